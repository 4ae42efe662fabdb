//! Functions of complex numbers from real arithmetic.
//!
//! On the cut of sqrt the sign of a zero does not count, as in JAX; on that of
//! log it does.

use super::arithmetic::Arithmetic;
use crate::scalar::MathFn;

/// A complex number of an arithmetic.
pub type Pair<A> = (<A as Arithmetic>::R, <A as Arithmetic>::R);

pub fn add<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    (a.add(x.0, y.0), a.add(x.1, y.1))
}

pub fn sub<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    (a.sub(x.0, y.0), a.sub(x.1, y.1))
}

pub fn mul<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    let (rr, ii) = (a.mul(x.0, y.0), a.mul(x.1, y.1));
    let (ri, ir) = (a.mul(x.0, y.1), a.mul(x.1, y.0));
    (a.sub(rr, ii), a.add(ri, ir))
}

/// Smith's method (CACM 5, 1962), and where it gives NaN in both parts the
/// infinities and zeros that C99 Annex G asks for.
pub fn div<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    let (abs_re, abs_im) = (a.abs(y.0), a.abs(y.1));
    let wide = a.le(abs_im, abs_re);
    let (large, small) = (a.select(wide, y.0, y.1), a.select(wide, y.1, y.0));
    let ratio = a.div(small, large);
    let product = a.mul(small, ratio);
    let denominator = a.add(large, product);
    // Wide: (re + im r, im - re r) / d; else: (re r + im, im r - re) / d.
    let (first, second) = (a.select(wide, x.0, x.1), a.select(wide, x.1, x.0));
    let scaled = a.mul(second, ratio);
    let re = a.add(first, scaled);
    let scaled = a.mul(first, ratio);
    let difference = a.sub(second, scaled);
    let negated = a.neg(difference);
    let im = a.select(wide, difference, negated);
    let (re, im) = (a.div(re, denominator), a.div(im, denominator));

    let (nan_re, nan_im) = (a.is_nan(re), a.is_nan(im));
    let both = a.and(nan_re, nan_im);
    let (zero, one, infinity) = (a.constant(0.0), a.constant(1.0), a.constant(f64::INFINITY));
    let finite = |a: &mut A, z: Pair<A>| {
        let (re, im) = (a.abs(z.0), a.abs(z.1));
        let (re, im) = (a.lt(re, infinity), a.lt(im, infinity));
        a.and(re, im)
    };
    let infinite = |a: &mut A, z: Pair<A>| {
        let (re, im) = (a.abs(z.0), a.abs(z.1));
        let (re, im) = (a.eq(re, infinity), a.eq(im, infinity));
        a.or(re, im)
    };
    // An infinite part becomes ±1, any other ±0.
    let boxed = |a: &mut A, z: Pair<A>| {
        let part = |a: &mut A, v: A::R| {
            let magnitude = a.abs(v);
            let is_infinite = a.eq(magnitude, infinity);
            let unit = a.select(is_infinite, one, zero);
            a.copysign(unit, v)
        };
        (part(a, z.0), part(a, z.1))
    };
    let (zero_re, zero_im) = (a.eq(y.0, zero), a.eq(y.1, zero));
    let by_zero = a.and(zero_re, zero_im);
    let signed = a.copysign(infinity, y.0);
    let at_zero = (a.mul(signed, x.0), a.mul(signed, x.1));

    let (x_infinite, y_finite) = (infinite(a, x), finite(a, y));
    let grows = a.and(x_infinite, y_finite);
    let unit = boxed(a, x);
    let (rr, ii) = (a.mul(unit.0, y.0), a.mul(unit.1, y.1));
    let (ir, ri) = (a.mul(unit.1, y.0), a.mul(unit.0, y.1));
    let (grow_re, grow_im) = (a.add(rr, ii), a.sub(ir, ri));
    let grown = (a.mul(infinity, grow_re), a.mul(infinity, grow_im));

    let (y_infinite, x_finite) = (infinite(a, y), finite(a, x));
    let vanishes = a.and(y_infinite, x_finite);

    let pick = |a: &mut A, naive, at_zero, grown| {
        let nan_or_zero = a.select(vanishes, zero, naive);
        let with_grown = a.select(grows, grown, nan_or_zero);
        let recovered = a.select(by_zero, at_zero, with_grown);
        a.select(both, recovered, naive)
    };
    (pick(a, re, at_zero.0, grown.0), pick(a, im, at_zero.1, grown.1))
}

/// `|z|` without needless overflow; NaN if either part is.
pub fn abs<A: Arithmetic>(a: &mut A, z: Pair<A>) -> A::R {
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let (large, small) = (a.max(x, y), a.min(x, y));
    let (zero, infinity) = (a.constant(0.0), a.constant(f64::INFINITY));
    let ratio = a.div(small, large);
    let square = a.mul(ratio, ratio);
    let sum = a.offset(square, 1.0);
    let root = a.sqrt(sum);
    let product = a.mul(large, root);
    let (is_zero, is_infinite) = (a.eq(large, zero), a.eq(large, infinity));
    let plain = a.or(is_zero, is_infinite);
    a.select(plain, large, product)
}

/// `z / |z|`; zeros stay.
pub fn sign<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let magnitude = abs(a, z);
    let zero = a.constant(0.0);
    let is_zero = a.eq(magnitude, zero);
    let (re, im) = (a.div(z.0, magnitude), a.div(z.1, magnitude));
    (a.select(is_zero, z.0, re), a.select(is_zero, z.1, im))
}

/// `f cos y` and `g sin y` where `f` and `g` are exponentials in `x` that may
/// overflow before the products do; exactly real for `y = 0`.
fn polar<A: Arithmetic>(a: &mut A, x: A::R, y: A::R, f: A::R, g: A::R, f_sign: A::R, half: f64) -> Pair<A> {
    let (cos, sin) = (a.math(MathFn::Cos, y), a.math(MathFn::Sin, y));
    let (zero, infinity) = (a.constant(0.0), a.constant(f64::INFINITY));
    let magnitude = a.abs(g);
    let overflow = a.eq(magnitude, infinity);
    let halved = a.scale(x, 0.5);
    let root = a.math(MathFn::Exp, halved);
    let scaled = a.scale(root, half);
    let plain = (a.mul(f, cos), a.mul(g, sin));
    let (cos, sin) = (a.mul(scaled, cos), a.mul(scaled, sin));
    let (re, im) = (a.mul(root, cos), a.mul(root, sin));
    let re = a.mul(re, f_sign);
    let (re, im) = (a.select(overflow, re, plain.0), a.select(overflow, im, plain.1));
    let real = a.eq(y, zero);
    (a.select(real, f, re), a.select(real, y, im))
}

pub fn exp<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let e = a.math(MathFn::Exp, z.0);
    let one = a.constant(1.0);
    polar(a, z.0, z.1, e, e, one, 1.0)
}

pub fn exp2<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let e = a.math(MathFn::Exp2, z.0);
    let angle = a.scale(z.1, std::f64::consts::LN_2);
    let (cos, sin) = (a.math(MathFn::Cos, angle), a.math(MathFn::Sin, angle));
    let zero = a.constant(0.0);
    let (re, im) = (a.mul(e, cos), a.mul(e, sin));
    let real = a.eq(z.1, zero);
    (a.select(real, e, re), a.select(real, z.1, im))
}

/// `e^x cos y - 1 = expm1(x) cos y - 2 sin²(y/2)`.
pub fn expm1<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let whole = exp(a, z);
    let less = a.math(MathFn::Expm1, z.0);
    let cos = a.math(MathFn::Cos, z.1);
    let half = a.scale(z.1, 0.5);
    let sin = a.math(MathFn::Sin, half);
    let product = a.mul(less, cos);
    let square = a.mul(sin, sin);
    let twice = a.scale(square, 2.0);
    let small = a.sub(product, twice);
    // Beyond 1 nothing cancels, and `exp` overflows later.
    let one = a.constant(1.0);
    let minus_one = a.constant(-1.0);
    let large = a.add(whole.0, minus_one);
    let is_large = a.lt(one, z.0);
    let re = a.select(is_large, large, small);
    let zero = a.constant(0.0);
    let real = a.eq(z.1, zero);
    (a.select(real, less, re), whole.1)
}

/// `log |z|`, accurate near the unit circle.
pub fn log_abs<A: Arithmetic>(a: &mut A, z: Pair<A>) -> A::R {
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let (large, small) = (a.max(x, y), a.min(x, y));
    let (zero, infinity) = (a.constant(0.0), a.constant(f64::INFINITY));
    // log(large) + log1p((small/large)²) / 2
    let ratio = a.div(small, large);
    let square = a.mul(ratio, ratio);
    let correction = a.math(MathFn::Log1p, square);
    let half = a.scale(correction, 0.5);
    let log = a.math(MathFn::Log, large);
    let far = a.add(log, half);
    // log1p((large - 1)(large + 1) + small²) / 2
    let (below, above) = (a.offset(large, -1.0), a.offset(large, 1.0));
    let product = a.mul(below, above);
    let square = a.mul(small, small);
    let excess = a.add(product, square);
    let log1p = a.math(MathFn::Log1p, excess);
    let near = a.scale(log1p, 0.5);
    let (low, high) = (a.constant(0.5), a.constant(2.0));
    let (above_low, below_high) = (a.lt(low, large), a.lt(large, high));
    let is_near = a.and(above_low, below_high);
    let value = a.select(is_near, near, far);
    let (is_zero, is_infinite) = (a.eq(large, zero), a.eq(large, infinity));
    let plain = a.or(is_zero, is_infinite);
    a.select(plain, log, value)
}

pub fn log<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    (log_abs(a, z), a.atan2(z.1, z.0))
}

pub fn log1p<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let shifted = a.offset(z.0, 1.0);
    let large = log_abs(a, (shifted, z.1));
    // |1 + z|² - 1 = x (x + 2) + y²
    let twice = a.offset(z.0, 2.0);
    let product = a.mul(z.0, twice);
    let square = a.mul(z.1, z.1);
    let excess = a.add(product, square);
    let log1p = a.math(MathFn::Log1p, excess);
    let small = a.scale(log1p, 0.5);
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let magnitude = a.max(x, y);
    let limit = a.constant(0.5);
    let is_small = a.lt(magnitude, limit);
    (a.select(is_small, small, large), a.atan2(z.1, shifted))
}

/// The root with a real part that is not negative.
pub fn sqrt<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (zero, infinity) = (a.constant(0.0), a.constant(f64::INFINITY));
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let (re, im) = first_quadrant_sqrt(a, x, y);
    // For a negative real part the two change places.
    let negative = a.lt(z.0, zero);
    let (re, im) = (a.select(negative, im, re), a.select(negative, re, im));
    let below = a.lt(z.1, zero);
    let flipped = a.neg(im);
    let im = a.select(below, flipped, im);
    let is_infinite = a.eq(y, infinity);
    let signed = a.select(below, z.1, y);
    (a.select(is_infinite, infinity, re), a.select(is_infinite, signed, im))
}

/// For `x, y >= 0`, scaled by a power of 4 so that squares neither overflow nor
/// vanish.
pub fn first_quadrant_sqrt<A: Arithmetic>(a: &mut A, x: A::R, y: A::R) -> Pair<A> {
    let (zero, infinity) = (a.constant(0.0), a.constant(f64::INFINITY));
    let exponent = if a.precision() == 53 { 500 } else { 60 };
    let (high, low) = (a.constant(2f64.powi(exponent)), a.constant(2f64.powi(-exponent)));
    let size = a.max(x, y);
    let (is_high, is_low) = (a.lt(high, size), a.lt(size, low));
    let one = a.constant(1.0);
    let unscale = a.select(is_low, high, one);
    let scale = a.select(is_high, low, unscale);
    let (root_high, root_low) = (a.constant(2f64.powi(exponent / 2)), a.constant(2f64.powi(-exponent / 2)));
    let unscale = a.select(is_low, root_low, one);
    let back = a.select(is_high, root_high, unscale);
    let (u, v) = (a.mul(x, scale), a.mul(y, scale));
    let magnitude = abs(a, (u, v));
    let sum = a.add(u, magnitude);
    let half = a.scale(sum, 0.5);
    let root = a.sqrt(half);
    let double = a.scale(root, 2.0);
    let quotient = a.div(v, double);
    let (re, im) = (a.mul(root, back), a.mul(quotient, back));
    let is_zero = a.eq(size, zero);
    let is_infinite = a.eq(x, infinity);
    let real = a.or(is_zero, is_infinite);
    (a.select(is_zero, zero, re), a.select(real, zero, im))
}

pub fn rsqrt<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let root = sqrt(a, z);
    let one = (a.constant(1.0), a.constant(0.0));
    div(a, one, root)
}

pub fn logistic<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (zero, one) = (a.constant(0.0), a.constant(1.0));
    let negative = a.lt(z.0, zero);
    let opposite = (a.neg(z.0), a.neg(z.1));
    // e^-|x| can only vanish.
    let exponent = (a.select(negative, z.0, opposite.0), a.select(negative, z.1, opposite.1));
    let e = exp(a, exponent);
    let numerator = (a.select(negative, e.0, one), a.select(negative, e.1, zero));
    let denominator = (a.offset(e.0, 1.0), e.1);
    div(a, numerator, denominator)
}

pub fn sinh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (sinh, cosh) = (a.math(MathFn::Sinh, z.0), a.math(MathFn::Cosh, z.0));
    let (one, magnitude) = (a.constant(1.0), a.abs(z.0));
    let sign = a.copysign(one, z.0);
    polar(a, magnitude, z.1, sinh, cosh, sign, 0.5)
}

pub fn cosh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    // cosh(x) cos(y) + i sinh(x) sin(y), even: evaluated for |x|.
    let (magnitude, one, zero) = (a.abs(z.0), a.constant(1.0), a.constant(0.0));
    let (sinh, cosh) = (a.math(MathFn::Sinh, magnitude), a.math(MathFn::Cosh, magnitude));
    let (re, im) = polar(a, magnitude, z.1, cosh, sinh, one, 0.5);
    let flipped = a.neg(im);
    let negative = a.lt(z.0, zero);
    (re, a.select(negative, flipped, im))
}

/// `sin z = -i sinh(i z)`.
pub fn sin<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let turned = (a.neg(z.1), z.0);
    let (re, im) = sinh(a, turned);
    (im, a.neg(re))
}

/// `cos z = cosh(i z)`.
pub fn cos<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let turned = (a.neg(z.1), z.0);
    cosh(a, turned)
}

/// With `t = tan y`, `s = sinh x`, `b = 1 + t²`:
/// `(b s sqrt(1 + s²) + i t) / (1 + b s²)`; for large `|x|` its limit.
pub fn tanh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (zero, one) = (a.constant(0.0), a.constant(1.0));
    let tan = a.math(MathFn::Tan, z.1);
    let sinh = a.math(MathFn::Sinh, z.0);
    let (tan_square, sinh_square) = (a.mul(tan, tan), a.mul(sinh, sinh));
    let beta = a.offset(tan_square, 1.0);
    let rho = a.offset(sinh_square, 1.0);
    let rho = a.sqrt(rho);
    let product = a.mul(beta, sinh_square);
    let denominator = a.offset(product, 1.0);
    let numerator = a.mul(beta, rho);
    let numerator = a.mul(numerator, sinh);
    let (re, im) = (a.div(numerator, denominator), a.div(tan, denominator));
    // Beyond the limit: ±1 + 4i sin y cos y e^-2|x|.
    let limit = a.constant(if a.precision() == 53 { 20.0 } else { 10.0 });
    let magnitude = a.abs(z.0);
    let is_large = a.lt(limit, magnitude);
    let exponent = a.scale(magnitude, -2.0);
    let e = a.math(MathFn::Exp, exponent);
    let (cos, sin) = (a.math(MathFn::Cos, z.1), a.math(MathFn::Sin, z.1));
    let product = a.mul(sin, cos);
    let product = a.mul(product, e);
    let tail = a.scale(product, 4.0);
    let vanished = a.eq(e, zero);
    let tail = a.select(vanished, zero, tail);
    let unit = a.copysign(one, z.0);
    let (re, im) = (a.select(is_large, unit, re), a.select(is_large, tail, im));
    let real = a.eq(z.1, zero);
    (re, a.select(real, z.1, im))
}

/// `tan z = -i tanh(i z)`.
pub fn tan<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let turned = (a.neg(z.1), z.0);
    let (re, im) = tanh(a, turned);
    (im, a.neg(re))
}

/// `e^(w log z)`; powers of zero: 1 for `w = 0`, 0 for positive real `w`.
pub fn pow<A: Arithmetic>(a: &mut A, z: Pair<A>, w: Pair<A>) -> Pair<A> {
    let (zero, one) = (a.constant(0.0), a.constant(1.0));
    let log = log(a, z);
    let product = mul(a, w, log);
    let (re, im) = exp(a, product);
    let (z_re, z_im) = (a.eq(z.0, zero), a.eq(z.1, zero));
    let of_zero = a.and(z_re, z_im);
    let (positive, is_real) = (a.lt(zero, w.0), a.eq(w.1, zero));
    let vanishes = a.and(positive, is_real);
    let vanishes = a.and(of_zero, vanishes);
    let w_zero = a.eq(w.0, zero);
    let to_one = a.and(w_zero, is_real);
    let (re, im) = (a.select(vanishes, zero, re), a.select(vanishes, zero, im));
    (a.select(to_one, one, re), a.select(to_one, zero, im))
}

/// `-i log((x + iy) / sqrt(x² + y²))`.
pub fn atan2<A: Arithmetic>(a: &mut A, y: Pair<A>, x: Pair<A>) -> Pair<A> {
    let (xx, yy) = (mul(a, x, x), mul(a, y, y));
    let squares = add(a, xx, yy);
    let length = sqrt(a, squares);
    let point = (a.sub(x.0, y.1), a.add(x.1, y.0));
    let unit = div(a, point, length);
    let (re, im) = log(a, unit);
    (im, a.neg(re))
}

/// Whether `x` comes before `y` in lexicographic order.
pub fn less<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> A::B {
    let (first, same, second) = (a.lt(x.0, y.0), a.eq(x.0, y.0), a.lt(x.1, y.1));
    let tie = a.and(same, second);
    a.or(first, tie)
}

pub fn select<A: Arithmetic>(a: &mut A, condition: A::B, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    (a.select(condition, x.0, y.0), a.select(condition, x.1, y.1))
}

pub fn max<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    let greater = less(a, y, x);
    select(a, greater, x, y)
}

pub fn min<A: Arithmetic>(a: &mut A, x: Pair<A>, y: Pair<A>) -> Pair<A> {
    let smaller = less(a, x, y);
    select(a, smaller, x, y)
}

/// `z^n` by repeated squaring, for a negative n its reciprocal.
pub fn integer_pow<A: Arithmetic>(a: &mut A, z: Pair<A>, n: i32) -> Pair<A> {
    let one = (a.constant(1.0), a.constant(0.0));
    let mut result = None;
    let (mut square, mut rest) = (z, n.unsigned_abs());
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(match result {
                None => square,
                Some(product) => mul(a, product, square),
            });
        }
        rest >>= 1;
        if rest > 0 {
            square = mul(a, square, square);
        }
    }
    let result = result.unwrap_or(one);
    if n < 0 { div(a, one, result) } else { result }
}
