//! Schur's form: `a = Z T Z^H` with unitary `Z`, and `T` upper triangular or, of real matrices, with
//! blocks of two rows on the diagonal for pairs of complex eigenvalues.
//!
//! Real matrices: Francis' double steps with deflation by Ahues and Tisseur's criterion and exceptional
//! shifts (Golub and Van Loan, Matrix Computations, 4th ed., section 7.5; Ahues and Tisseur, A new
//! deflation criterion for the QR algorithm, LAPACK Working Note 122, 1997). Complex ones: single steps
//! with Wilkinson's shift (section 7.5.6 there). Blocks of two rows have equal elements on the diagonal
//! and others of opposite signs (Bai and Demmel, On swapping diagonal blocks in real Schur form, 1993).
//! What is far from the diagonal waits for a run of steps (`planes`), as in Braman, Byers and Mathias, The
//! multishift QR algorithm I, SIAM J. Matrix Anal. Appl. 23, 2002, but without products of matrices.

use faer::MatMut;
use faer::traits::ComplexField;

use crate::magnitude::Real as Number;
use crate::planes::{self, Plane, RUN, Reflection, Rotation, for_columns, for_rows};
use crate::vector::vectorised;
use crate::{Element, Real};

/// Steps for an eigenvalue after which the iteration is given up, as in LAPACK.
const STEPS: usize = 30;

type Pair<T> = (T, T);

/// Complex numbers, their parts apart.
struct Parts<T> {
    re: Plane<T>,
    im: Plane<T>,
}

impl<T: Number> Parts<T> {
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> Pair<T> {
        (self.re[(row, column)], self.im[(row, column)])
    }

    #[inline(always)]
    fn put(&mut self, row: usize, column: usize, (re, im): Pair<T>) {
        self.re[(row, column)] = re;
        self.im[(row, column)] = im;
    }

    #[inline(always)]
    fn size(&self, row: usize, column: usize) -> T {
        let (re, im) = self.at(row, column);
        re.size() + im.size()
    }

    fn both(&mut self) -> [&mut Plane<T>; 2] {
        [&mut self.re, &mut self.im]
    }
}

fn fill<E>(mut to: MatMut<'_, E>, element: impl Fn(usize, usize) -> E) {
    for column in 0..to.ncols() {
        for row in 0..to.nrows() {
            to[(row, column)] = element(row, column);
        }
    }
}

/// Of a Hessenberg matrix `h`; `z` is multiplied from the right. `None` where it does not end.
pub(crate) fn of_complex<E: Element>(h: MatMut<'_, E>, z: MatMut<'_, E>) -> Option<()> {
    let parts = |a: &MatMut<'_, E>| Parts {
        re: Plane::new(a.nrows(), |place| a[place].parts().0),
        im: Plane::new(a.nrows(), |place| a[place].parts().1),
    };
    let (mut form, mut vectors) = (parts(&h), parts(&z));
    vectorised(
        #[inline(always)]
        || complex_form::<E>(&mut form, &mut vectors),
    )?;
    let whole = |from: &Parts<Real<E>>, row, column| {
        let (re, im) = from.at(row, column);
        E::of_parts(re, im)
    };
    fill(h, |row, column| whole(&form, row, column));
    fill(z, |row, column| whole(&vectors, row, column));
    Some(())
}

#[inline(always)]
fn complex_form<E: Element>(h: &mut Parts<Real<E>>, z: &mut Parts<Real<E>>) -> Option<()> {
    let size = h.re.size;
    let (zero, none) = (Real::<E>::zero_impl(), (Real::<E>::zero_impl(), Real::<E>::zero_impl()));
    let (eps, tiny) = (Real::<E>::unit(), Real::<E>::least_inverted());
    let mut end = size;
    let mut steps = 0;
    while end > 1 {
        let last = end - 1;
        let mut start = last;
        while start > 0 {
            let below = h.size(start, start - 1);
            let mut beside = h.size(start - 1, start - 1) + h.size(start, start);
            if beside == zero {
                beside = if start > 1 { h.size(start - 1, start - 2) } else { below };
            }
            if below <= tiny || below <= eps * beside {
                h.put(start, start - 1, none);
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
        let own = h.at(last, last);
        let shift = if steps % 10 == 0 {
            // An exceptional shift, where the usual one goes in circles.
            (own.0 + h.size(last, last - 1) * Real::<E>::of(0.75), own.1)
        } else {
            let block = [(last - 1, last - 1), (last - 1, last), (last, last - 1), (last, last)];
            let [a, b, c, d] = block.map(|(row, column)| {
                let (re, im) = h.at(row, column);
                E::of_parts(re, im)
            });
            wilkinson(a, b * c, d).parts()
        };
        step_of_complex(h, z, start, end, shift);
    }
    for row in 1..size {
        h.put(row, row - 1, none);
    }
    Some(())
}

/// The eigenvalue of two rows that is nearer to the last element, `d`.
fn wilkinson<T: Element>(a: T, product: T, d: T) -> T {
    let half = (a - d) * T::from_real_impl(&Real::<T>::of(0.5));
    let root = (half * half + product).square_root();
    let (one, other) = (half + root, half - root);
    let larger = if one.size() >= other.size() { one } else { other };
    // d - product / larger
    if larger.size() == T::zero_real() { d } else { d - product.quotient(larger) }
}

/// The rotation that turns `(x, y)` into a multiple of the first unit vector.
fn rotation<T: Number>(x: Pair<T>, y: Pair<T>) -> Rotation<T> {
    let (zero, one) = (T::zero_impl(), T::one_impl());
    let (ax, ay) = (x.0.hypot(x.1), y.0.hypot(y.1));
    let length = ax.hypot(ay);
    if length == zero {
        Rotation { c: one, s: (zero, zero) }
    } else if ax == zero {
        Rotation { c: zero, s: (y.0 / ay, y.1 / ay) }
    } else {
        let (p, q) = ((x.0 / ax, x.1 / ax), (y.0 / length, y.1 / length));
        Rotation { c: ax / length, s: (q.0 * p.0 + q.1 * p.1, q.1 * p.0 - q.0 * p.1) }
    }
}

/// One step with this shift on rows from `start` up to `end`.
#[inline(always)]
fn step_of_complex<T: Number>(h: &mut Parts<T>, z: &mut Parts<T>, start: usize, end: usize, shift: Pair<T>) {
    let size = h.re.size;
    let mut x = h.at(start, start);
    x = (x.0 - shift.0, x.1 - shift.1);
    let mut y = h.at(start + 1, start);
    let none = Rotation { c: T::one_impl(), s: (T::zero_impl(), T::zero_impl()) };
    let mut top = start;
    while top < end - 1 {
        // Rotations of a run are found by what is near the diagonal; they turn the rest together.
        let stop = (top + RUN).min(end - 1);
        let mut run = [none; RUN];
        for at in top..stop {
            if at > start {
                (x, y) = (h.at(at, at - 1), h.at(at + 1, at - 1));
            }
            let turn = rotation(x, y);
            for column in (if at > start { at - 1 } else { start })..=stop {
                let (x, y) = turn.conjugated().of(h.at(at, column), h.at(at + 1, column));
                h.put(at, column, x);
                h.put(at + 1, column, y);
            }
            if at > start {
                h.put(at + 1, at - 1, (T::zero_impl(), T::zero_impl()));
            }
            // The adjoint from the right.
            for row in top..(at + 3).min(end) {
                let (x, y) = turn.of(h.at(row, at), h.at(row, at + 1));
                h.put(row, at, x);
                h.put(row, at + 1, y);
            }
            run[at - top] = turn;
        }
        let run = &run[..stop - top];
        let mut conjugated = [none; RUN];
        conjugated.iter_mut().zip(run).for_each(|(to, turn)| *to = turn.conjugated());
        let conjugated = &conjugated[..run.len()];
        let touched = (top, stop + 1 - top);
        for_rows(
            h.both(),
            touched,
            stop + 1,
            #[inline(always)]
            |lines| planes::rotate(lines, conjugated),
        );
        for_columns(
            h.both(),
            touched,
            top,
            #[inline(always)]
            |lines| planes::rotate(lines, run),
        );
        for_columns(
            z.both(),
            touched,
            size,
            #[inline(always)]
            |lines| planes::rotate(lines, run),
        );
        top = stop;
    }
}

/// Of a real Hessenberg matrix. `None` where it does not end.
pub(crate) fn of_real<T: Number>(h: MatMut<'_, T>, z: MatMut<'_, T>) -> Option<()> {
    let (mut form, mut vectors) = (Plane::new(h.nrows(), |at| h[at]), Plane::new(z.nrows(), |at| z[at]));
    vectorised(
        #[inline(always)]
        || real_form(&mut form, &mut vectors),
    )?;
    fill(h, |row, column| form[(row, column)]);
    fill(z, |row, column| vectors[(row, column)]);
    Some(())
}

#[inline(always)]
fn real_form<T: Number>(h: &mut Plane<T>, z: &mut Plane<T>) -> Option<()> {
    let size = h.size;
    let mut end = size;
    let mut steps = 0;
    while end > 0 {
        let last = end - 1;
        let start = deflated(h, last);
        if start > 0 {
            h[(start, start - 1)] = T::zero_impl();
        }
        if start == last {
            (end, steps) = (last, 0);
            continue;
        }
        if start + 1 == last {
            let (c, s) = standardise(h, start);
            for column in last + 1..size {
                let (x, y) = (h[(start, column)], h[(last, column)]);
                (h[(start, column)], h[(last, column)]) = (c * x + s * y, c * y - s * x);
            }
            turn_columns(h, start, (c, s), start);
            turn_columns(z, start, (c, s), size);
            (end, steps) = (start, 0);
            continue;
        }
        steps += 1;
        if steps > STEPS * 10 {
            return None;
        }
        double_step(h, z, start, last, steps);
    }
    Some(())
}

/// Rotates a column and the next one, within rows below `limit`.
#[inline(always)]
fn turn_columns<T: Number>(a: &mut Plane<T>, first: usize, (c, s): (T, T), limit: usize) {
    let [p, q] = a.columns(first, limit);
    for (p, q) in p.iter_mut().zip(q) {
        (*p, *q) = (c * *p + s * *q, c * *q - s * *p);
    }
}

/// The first row of the last block of which no element below the diagonal is as good as zero.
fn deflated<T: Number>(h: &Plane<T>, last: usize) -> usize {
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
fn shifts<T: Number>(h: &Plane<T>, start: usize, last: usize, steps: usize) -> [(T, T); 2] {
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

#[inline(always)]
fn double_step<T: Number>(h: &mut Plane<T>, z: &mut Plane<T>, start: usize, last: usize, steps: usize) {
    let size = h.size;
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
    let mut top = first;
    while top < last {
        // Reflections of a run are found by what is near the diagonal; they reflect the rest together.
        let stop = (top + RUN).min(last);
        let beyond = (stop + 2).min(last + 1);
        let mut run = [Reflection::new(T::zero_impl(), [T::zero_impl(); 2]); RUN];
        for at in top..stop {
            let count = 3.min(last - at + 1);
            if at > first {
                v = [h[(at, at - 1)], h[(at + 1, at - 1)], T::zero_impl()];
                if count == 3 {
                    v[2] = h[(at + 2, at - 1)];
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
            let by = Reflection::new(tau, [v[1], if count == 3 { v[2] } else { T::zero_impl() }]);
            for column in at..beyond {
                let third = if count == 3 { h[(at + 2, column)] } else { T::zero_impl() };
                let [x, y, z] = by.of([h[(at, column)], h[(at + 1, column)], third]);
                (h[(at, column)], h[(at + 1, column)]) = (x, y);
                if count == 3 {
                    h[(at + 2, column)] = z;
                }
            }
            let limit = (at + 4).min(last + 1);
            if count == 3 {
                let [x, y, z] = h.columns(at, limit);
                for ((x, y), z) in x[top..].iter_mut().zip(&mut y[top..]).zip(&mut z[top..]) {
                    [*x, *y, *z] = by.of([*x, *y, *z]);
                }
            } else {
                let [x, y] = h.columns(at, limit);
                for (x, y) in x[top..].iter_mut().zip(&mut y[top..]) {
                    [*x, *y, _] = by.of([*x, *y, T::zero_impl()]);
                }
            }
            run[at - top] = by;
        }
        let run = &run[..stop - top];
        let touched = (top, beyond - top);
        for_rows(
            [&mut *h],
            touched,
            beyond,
            #[inline(always)]
            |[lines]| planes::reflect(lines, run),
        );
        for_columns(
            [&mut *h],
            touched,
            top,
            #[inline(always)]
            |[lines]| planes::reflect(lines, run),
        );
        for_columns(
            [&mut *z],
            touched,
            size,
            #[inline(always)]
            |[lines]| planes::reflect(lines, run),
        );
        top = stop;
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
fn standardise<T: Number>(h: &mut Plane<T>, at: usize) -> (T, T) {
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
