//! Schur's form: `a = Z T Z^H` with unitary `Z`, and `T` upper triangular or, of real matrices, with
//! blocks of two rows on the diagonal for pairs of complex eigenvalues.
//!
//! Real matrices: Francis' double steps with deflation by Ahues and Tisseur's criterion and exceptional
//! shifts (Golub and Van Loan, Matrix Computations, 4th ed., section 7.5; Ahues and Tisseur, A new
//! deflation criterion for the QR algorithm, LAPACK Working Note 122, 1997). Complex ones: single steps
//! with Wilkinson's shift (section 7.5.6 there). Blocks of two rows have equal elements on the diagonal
//! and others of opposite signs (Bai and Demmel, On swapping diagonal blocks in real Schur form, 1993).

use faer::MatMut;

use crate::magnitude::Real as Number;
use crate::{Element, Real};

/// Steps for an eigenvalue after which the iteration is given up, as in LAPACK.
const STEPS: usize = 30;

/// Rotates two columns by `(x, y) -> (c x + s y, c y - conj(s) x)`, within rows below `limit`.
fn rotate_columns<T: Element>(a: &mut MatMut<'_, T>, p: usize, q: usize, c: T, s: T, limit: usize) {
    for row in 0..limit {
        let (x, y) = (a[(row, p)], a[(row, q)]);
        a[(row, p)] = c * x + s * y;
        a[(row, q)] = c * y - s.conjugate() * x;
    }
}

/// Rotates two rows by `(x, y) -> (c x + conj(s) y, c y - s x)`, from column `first` on.
fn rotate_rows<T: Element>(a: &mut MatMut<'_, T>, p: usize, q: usize, c: T, s: T, first: usize) {
    for column in first..a.ncols() {
        let (x, y) = (a[(p, column)], a[(q, column)]);
        a[(p, column)] = c * x + s.conjugate() * y;
        a[(q, column)] = c * y - s * x;
    }
}

/// Of a Hessenberg matrix `h`; `z` is multiplied from the right. `None` where it does not end.
pub(crate) fn of_complex<T: Element>(mut h: MatMut<'_, T>, mut z: MatMut<'_, T>) -> Option<()> {
    let size = h.nrows();
    let (eps, tiny) = (Real::<T>::unit(), Real::<T>::least_inverted());
    let mut end = size;
    let mut steps = 0;
    while end > 1 {
        let last = end - 1;
        let mut start = last;
        while start > 0 {
            let below = h[(start, start - 1)].size();
            let mut beside = h[(start - 1, start - 1)].size() + h[(start, start)].size();
            if beside == T::zero_real() {
                beside = if start > 1 { h[(start - 1, start - 2)].size() } else { below };
            }
            if below <= tiny || below <= eps * beside {
                h[(start, start - 1)] = T::zero_impl();
                break;
            }
            start -= 1;
        }
        if start == last {
            end = last;
            steps = 0;
            continue;
        }
        steps += 1;
        if steps > STEPS * 10 {
            return None;
        }
        let shift = if steps % 10 == 0 {
            // An exceptional shift, where the usual one goes in circles.
            h[(last, last)] + T::from_real_impl(&(h[(last, last - 1)].size() * Real::<T>::of(0.75)))
        } else {
            wilkinson(&h, last)
        };
        step_of_complex(&mut h, &mut z, start, end, shift);
    }
    for row in 1..size {
        h[(row, row - 1)] = T::zero_impl();
    }
    Some(())
}

/// The eigenvalue of the last two rows that is nearer to the last element.
fn wilkinson<T: Element>(h: &MatMut<'_, T>, last: usize) -> T {
    let (a, d) = (h[(last - 1, last - 1)], h[(last, last)]);
    let product = h[(last - 1, last)] * h[(last, last - 1)];
    let half = (a - d) * T::from_real_impl(&Real::<T>::of(0.5));
    let root = (half * half + product).square_root();
    let (one, other) = (half + root, half - root);
    let larger = if one.size() >= other.size() { one } else { other };
    // d - product / larger
    if larger.size() == T::zero_real() { d } else { d - product.quotient(larger) }
}

/// One step with this shift on rows from `start` up to `end`.
fn step_of_complex<T: Element>(
    h: &mut MatMut<'_, T>,
    z: &mut MatMut<'_, T>,
    start: usize,
    end: usize,
    shift: T,
) {
    let size = h.nrows();
    let (mut x, mut y) = (h[(start, start)] - shift, h[(start + 1, start)]);
    for at in start..end - 1 {
        if at > start {
            (x, y) = (h[(at, at - 1)], h[(at + 1, at - 1)]);
        }
        // Turns (x, y) into (r, 0).
        let (c, s) = {
            let (ax, ay) = (T::abs_impl(&x), T::abs_impl(&y));
            let length = ax.hypot(ay);
            if length == T::zero_real() {
                (T::one_impl(), T::zero_impl())
            } else if ax == T::zero_real() {
                (T::zero_impl(), y.quotient(T::from_real_impl(&ay)))
            } else {
                let phase = x.quotient(T::from_real_impl(&ax));
                let c = T::from_real_impl(&(ax / length));
                (c, y.quotient(T::from_real_impl(&length)) * phase.conjugate())
            }
        };
        rotate_rows(h, at, at + 1, c, s, if at > start { at - 1 } else { start });
        if at > start {
            h[(at + 1, at - 1)] = T::zero_impl();
        }
        // The adjoint from the right.
        rotate_columns(h, at, at + 1, c, s, (at + 3).min(end));
        rotate_columns(z, at, at + 1, c, s, size);
    }
}

/// Of a real Hessenberg matrix. `None` where it does not end.
pub(crate) fn of_real<T: Number>(mut h: MatMut<'_, T>, mut z: MatMut<'_, T>) -> Option<()> {
    let size = h.nrows();
    let mut end = size;
    let mut steps = 0;
    while end > 0 {
        let last = end - 1;
        let start = deflated(&h, last);
        if start > 0 {
            h[(start, start - 1)] = T::zero_impl();
        }
        if start == last {
            (end, steps) = (last, 0);
            continue;
        }
        if start + 1 == last {
            let (c, s) = standardise(&mut h, start);
            for column in last + 1..size {
                let (x, y) = (h[(start, column)], h[(last, column)]);
                (h[(start, column)], h[(last, column)]) = (c * x + s * y, c * y - s * x);
            }
            turn_columns(&mut h, start, last, (c, s), start);
            turn_columns(&mut z, start, last, (c, s), size);
            (end, steps) = (start, 0);
            continue;
        }
        steps += 1;
        if steps > STEPS * 10 {
            return None;
        }
        double_step(&mut h, &mut z, start, last, steps);
    }
    Some(())
}

/// Rotates two columns, within rows below `limit`.
fn turn_columns<T: Number>(a: &mut MatMut<'_, T>, p: usize, q: usize, (c, s): (T, T), limit: usize) {
    for row in 0..limit {
        let (x, y) = (a[(row, p)], a[(row, q)]);
        (a[(row, p)], a[(row, q)]) = (c * x + s * y, c * y - s * x);
    }
}

/// The first row of the last block of which no element below the diagonal is as good as zero.
fn deflated<T: Number>(h: &MatMut<'_, T>, last: usize) -> usize {
    let (eps, tiny) = (T::unit(), T::least_inverted());
    let mut at = last;
    while at > 0 {
        let below = h[(at, at - 1)].size();
        if below <= tiny {
            break;
        }
        let mut beside = h[(at - 1, at - 1)].size() + h[(at, at)].size();
        if beside == T::zero_impl() {
            if at > 1 {
                beside += h[(at - 1, at - 2)].size();
            }
            if at < last {
                beside += h[(at + 1, at)].size();
            }
        }
        if below <= eps * beside {
            let above = h[(at - 1, at)].size();
            let (own, apart) = (h[(at, at)].size(), (h[(at - 1, at - 1)] - h[(at, at)]).size());
            let ((ab, ba), (aa, bb)) = (ordered(below, above), ordered(own, apart));
            let sum = aa + ab;
            if ba * (ab / sum) <= larger(tiny, eps * (bb * (aa / sum))) {
                break;
            }
        }
        at -= 1;
    }
    at
}

fn ordered<R: PartialOrd>(x: R, y: R) -> (R, R) {
    if x >= y { (x, y) } else { (y, x) }
}

fn larger<R: PartialOrd>(x: R, y: R) -> R {
    if x >= y { x } else { y }
}

/// Two shifts, as real and imaginary parts of both, for rows from `start` to `last`.
fn shifts<T: Number>(h: &MatMut<'_, T>, start: usize, last: usize, steps: usize) -> [(T, T); 2] {
    let zero = T::zero_impl();
    let (h11, h12, h21, h22) = if steps % 20 == 10 {
        let s = h[(start + 1, start)].size() + h[(start + 2, start + 1)].size();
        let own = T::of(0.75) * s + h[(start, start)];
        (own, T::of(-0.4375) * s, s, own)
    } else if steps.is_multiple_of(20) {
        let s = h[(last, last - 1)].size() + h[(last - 1, last - 2)].size();
        let own = T::of(0.75) * s + h[(last, last)];
        (own, T::of(-0.4375) * s, s, own)
    } else {
        (h[(last - 1, last - 1)], h[(last - 1, last)], h[(last, last - 1)], h[(last, last)])
    };
    let s = h11.size() + h12.size() + h21.size() + h22.size();
    if s == zero {
        return [(zero, zero); 2];
    }
    let (h11, h12, h21, h22) = (h11 / s, h12 / s, h21 / s, h22 / s);
    let half = (h11 + h22) * T::of(0.5);
    let det = (h11 - half) * (h22 - half) - h12 * h21;
    let root = det.size().root();
    if det >= zero {
        return [(half * s, root * s), (half * s, -root * s)];
    }
    let (one, other) = (half + root, half - root);
    let nearer = if (one - h22).size() <= (other - h22).size() { one } else { other };
    [(nearer * s, zero); 2]
}

fn double_step<T: Number>(
    h: &mut MatMut<'_, T>,
    z: &mut MatMut<'_, T>,
    start: usize,
    last: usize,
    steps: usize,
) {
    let size = h.nrows();
    let eps = T::unit();
    let [(re1, im1), (re2, im2)] = shifts(h, start, last, steps);
    // Where two elements below the diagonal are small, the step begins there.
    let mut first = last - 2;
    let mut v;
    loop {
        let below = h[(first + 1, first)];
        let s = (h[(first, first)] - re2).size() + im2.size() + below.size();
        let below = below / s;
        v = [
            below * h[(first, first + 1)] + (h[(first, first)] - re1) * ((h[(first, first)] - re2) / s)
                - im1 * (im2 / s),
            below * (h[(first, first)] + h[(first + 1, first + 1)] - re1 - re2),
            below * h[(first + 2, first + 1)],
        ];
        let s = v[0].size() + v[1].size() + v[2].size();
        v = v.map(|x| x / s);
        if first == start {
            break;
        }
        let around =
            h[(first - 1, first - 1)].size() + h[(first, first)].size() + h[(first + 1, first + 1)].size();
        if h[(first, first - 1)].size() * (v[1].size() + v[2].size()) <= eps * v[0].size() * around {
            break;
        }
        first -= 1;
    }
    for at in first..last {
        let count = 3.min(last - at + 1);
        if at > first {
            for row in 0..count {
                v[row] = h[(at + row, at - 1)];
            }
        }
        let tau = reflection(&mut v[..count]);
        if at > first {
            h[(at, at - 1)] = v[0];
            for row in 1..count {
                h[(at + row, at - 1)] = T::zero_impl();
            }
        } else if at > start {
            // The element before is not reflected, for what is below it counts as zero.
            h[(at, at - 1)] *= T::one_impl() - tau;
        }
        v[0] = T::one_impl();
        for column in at..size {
            let sum = (0..count).fold(T::zero_impl(), |sum, row| sum + v[row] * h[(at + row, column)]);
            for row in 0..count {
                h[(at + row, column)] -= tau * sum * v[row];
            }
        }
        reflect_columns(h, at, &v[..count], tau, (at + 4).min(last + 1));
        reflect_columns(z, at, &v[..count], tau, size);
    }
}

fn reflect_columns<T: Number>(a: &mut MatMut<'_, T>, at: usize, v: &[T], tau: T, limit: usize) {
    for row in 0..limit {
        let sum = v.iter().enumerate().fold(T::zero_impl(), |sum, (k, &x)| sum + x * a[(row, at + k)]);
        for (k, &x) in v.iter().enumerate() {
            a[(row, at + k)] -= tau * sum * x;
        }
    }
}

/// The reflection of a few numbers: the multiple of the first unit vector and the rest of `v` take their
/// place.
fn reflection<T: Number>(x: &mut [T]) -> T {
    let length = x[1..].iter().fold(T::zero_impl(), |sum, &x| sum.hypot(x));
    if length == T::zero_impl() {
        return T::zero_impl();
    }
    let first = x[0];
    let multiple = -first.hypot(length).with_sign_of(first);
    x[1..].iter_mut().for_each(|x| *x /= first - multiple);
    x[0] = multiple;
    (multiple - first) / multiple
}

/// Makes the block of rows `at` and `at + 1` a standard one; the rotation by which it is made.
fn standardise<T: Number>(h: &mut MatMut<'_, T>, at: usize) -> (T, T) {
    let (zero, one, half) = (T::zero_impl(), T::one_impl(), T::of(0.5));
    let (mut a, mut b, mut c, mut d) = (h[(at, at)], h[(at, at + 1)], h[(at + 1, at)], h[(at + 1, at + 1)]);
    let (mut cosine, mut sine) = (one, zero);
    let sign = |x: T| one.with_sign_of(x);
    if c == zero {
    } else if b == zero {
        (cosine, sine) = (zero, one);
        (a, b, c, d) = (d, -c, zero, a);
    } else if a - d == zero && sign(b) != sign(c) {
    } else {
        let apart = a - d;
        let p = half * apart;
        let (most, least) = ordered(b.size(), c.size());
        let least = least * sign(b) * sign(c);
        let scale = larger(p.size(), most);
        let root = p / scale * p + most / scale * least;
        if root >= T::of(4.0) * T::unit() {
            // Real eigenvalues.
            let root = p + (scale.root() * root.root()).with_sign_of(p);
            a = d + root;
            d -= most / root * least;
            let tau = c.hypot(root);
            (cosine, sine) = (root / tau, c / tau);
            b -= c;
            c = zero;
        } else {
            // Complex ones, or real ones that are almost equal: the diagonal is made equal.
            let sigma = b + c;
            let tau = sigma.hypot(apart);
            cosine = (half * (one + sigma.size() / tau)).root();
            sine = -(p / (tau * cosine)) * sign(sigma);
            let (aa, bb) = (a * cosine + b * sine, b * cosine - a * sine);
            let (cc, dd) = (c * cosine + d * sine, d * cosine - c * sine);
            (a, b) = (aa * cosine + cc * sine, bb * cosine + dd * sine);
            (c, d) = (cc * cosine - aa * sine, dd * cosine - bb * sine);
            let middle = half * (a + d);
            (a, d) = (middle, middle);
            if c != zero {
                if b == zero {
                    (b, c) = (-c, zero);
                    (cosine, sine) = (-sine, cosine);
                } else if sign(b) == sign(c) {
                    let (sab, sac) = (b.size().root(), c.size().root());
                    let p = (sab * sac).with_sign_of(c);
                    let tau = one / (b + c).size().root();
                    (a, d) = (middle + p, middle - p);
                    b -= c;
                    c = zero;
                    let (c1, s1) = (sab * tau, sac * tau);
                    (cosine, sine) = (cosine * c1 - sine * s1, cosine * s1 + sine * c1);
                }
            }
        }
    }
    (h[(at, at)], h[(at, at + 1)], h[(at + 1, at)], h[(at + 1, at + 1)]) = (a, b, c, d);
    (cosine, sine)
}
