//! Eigenvalues and eigenvectors of small real symmetric matrices, a matrix a lane.
//!
//! Jacobi's method by rows (Golub and Van Loan, Matrix Computations, 4th ed., section 8.5.5): rotations make
//! elements off the diagonal zero, all of them in turn, until none of them counts. A matrix whose elements
//! no longer count is turned by nothing, so what is beside it changes none of its bits.

use crate::magnitude::Real as Number;
use crate::vector::vectorised;

/// Rows of the largest matrices: beyond, tridiagonal form is less work.
pub(crate) const MOST: usize = 8;
/// Times that all elements are gone through, after which the iteration is given up.
const SWEEPS: usize = 40;
/// Matrices of a group, and of one where there are fewer.
const MANY: usize = 16;
const FEW: usize = 4;

/// Of a batch, of which one triangle is read: eigenvalues, ascending, and vectors as columns. NaN for a
/// matrix that is not finite.
pub(crate) fn eigh<T: Number>(a: &[T], size: usize, lower: bool, vectors: &mut [T], values: &mut [T]) {
    let count = values.len() / size;
    let mut done = 0;
    while done < count {
        let lanes = if count - done > 2 * FEW { MANY } else { FEW };
        let next = (done + lanes).min(count);
        let (rows, places) = (done * size..next * size, done * size * size..next * size * size);
        let (of, vectors) = (&a[places.clone()], &mut vectors[places]);
        if lanes == MANY {
            group::<T, MANY>(of, size, lower, vectors, &mut values[rows]);
        } else {
            group::<T, FEW>(of, size, lower, vectors, &mut values[rows]);
        }
        done = next;
    }
}

/// As many matrices as lanes, or fewer.
fn group<T: Number, const N: usize>(a: &[T], size: usize, lower: bool, vectors: &mut [T], values: &mut [T]) {
    let (zero, one) = (T::zero_impl(), T::one_impl());
    let mut form = [[[zero; N]; MOST]; MOST];
    let mut turned = [[[zero; N]; MOST]; MOST];
    let mut exponents = [None; N];
    for (lane, a) in a.chunks_exact(size * size).enumerate() {
        let place = |row: usize, column: usize| match (row > column) == lower {
            true => row * size + column,
            false => column * size + row,
        };
        let mut most = zero;
        let mut finite = true;
        for row in 0..size {
            for column in 0..=row {
                let x = a[place(row, column)];
                finite &= T::is_finite_impl(&x);
                most = most.largest(x.size());
            }
        }
        // Elements of at most 1 have squares that are numbers.
        let exponent = most.exponent();
        for row in 0..size {
            turned[row][row][lane] = one;
            for column in 0..size {
                let x = a[place(row, column)].times_power_of_two(-exponent);
                form[row][column][lane] = if finite { x } else { zero };
            }
        }
        exponents[lane] = finite.then_some(exponent);
    }
    let ended = vectorised(
        #[inline(always)]
        || iterate(&mut form, &mut turned, size),
    );
    let each = values.chunks_exact_mut(size).zip(vectors.chunks_exact_mut(size * size)).zip(exponents);
    for (lane, ((values, vectors), exponent)) in each.enumerate() {
        let Some(exponent) = exponent.filter(|_| ended) else {
            values.fill(T::nan_impl());
            vectors.fill(T::nan_impl());
            continue;
        };
        let mut order: [usize; MOST] = std::array::from_fn(|row| row);
        order[..size].sort_by(|&p, &q| {
            let (p, q) = (form[p][p][lane], form[q][q][lane]);
            p.partial_cmp(&q).unwrap_or(std::cmp::Ordering::Equal)
        });
        for (column, &from) in order[..size].iter().enumerate() {
            values[column] = form[from][from][lane].times_power_of_two(exponent);
            for row in 0..size {
                vectors[row * size + column] = turned[from][row][lane];
            }
        }
    }
}

/// Makes `form` diagonal; the rows of `turned` are turned alike. False where it does not end.
#[inline(always)]
fn iterate<T: Number, const N: usize>(
    form: &mut [[[T; N]; MOST]; MOST],
    turned: &mut [[[T; N]; MOST]; MOST],
    size: usize,
) -> bool {
    let (zero, one) = (T::zero_impl(), T::one_impl());
    // Elements are at most 1: what is below changes no eigenvalue's bits but those of rounding errors.
    let (relative, absolute) = (T::unit().times_power_of_two(-2), T::unit() * T::unit());
    for _ in 0..SWEEPS {
        let mut counts = false;
        for p in 0..size {
            for q in p + 1..size {
                let (mut cosine, mut sine, mut tangent) = ([one; N], [zero; N], [zero; N]);
                let (own, other, between) = (form[p][p], form[q][q], form[p][q]);
                for lane in 0..N {
                    let (a, b, x) = (own[lane], other[lane], between[lane]);
                    let (sa, sb) = (a.size(), b.size());
                    let least = if sa < sb { sa } else { sb };
                    let small = (x.size() <= relative * least) | (x.size() <= absolute);
                    let theta = (b - a) / (x + x);
                    let t = one.with_sign_of(theta) / (theta.size() + (theta * theta + one).root());
                    let t = if small { zero } else { t };
                    let c = one / (t * t + one).root();
                    (tangent[lane], cosine[lane], sine[lane]) = (t, c, t * c);
                    counts |= !small;
                }
                for k in 0..size {
                    let (x, y) = (form[p][k], form[q][k]);
                    let (x, y) = turn(&cosine, &sine, x, y);
                    (form[p][k], form[q][k]) = (x, y);
                    (form[k][p], form[k][q]) = (x, y);
                    (turned[p][k], turned[q][k]) = turn(&cosine, &sine, turned[p][k], turned[q][k]);
                }
                let (mut a, mut b, mut x) = (own, other, between);
                for lane in 0..N {
                    let change = tangent[lane] * between[lane];
                    a[lane] = own[lane] - change;
                    b[lane] = other[lane] + change;
                    x[lane] = if tangent[lane] == zero { between[lane] } else { zero };
                }
                (form[p][p], form[q][q], form[p][q], form[q][p]) = (a, b, x, x);
            }
        }
        if !counts {
            return true;
        }
    }
    false
}

#[inline(always)]
fn turn<T: Number, const N: usize>(c: &[T; N], s: &[T; N], x: [T; N], y: [T; N]) -> ([T; N], [T; N]) {
    let (mut to_x, mut to_y) = (x, y);
    for lane in 0..N {
        to_x[lane] = c[lane] * x[lane] - s[lane] * y[lane];
        to_y[lane] = s[lane] * x[lane] + c[lane] * y[lane];
    }
    (to_x, to_y)
}
