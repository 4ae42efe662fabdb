//! Functions of complex numbers from real arithmetic.
//!
//! On the cut of sqrt the sign of a zero does not count, as in JAX; on that of
//! log it does.

use super::formula::Formulas;
use crate::math::{FloatLang, MathFn};

/// A complex number of an arithmetic.
pub type Pair<L> = (<L as FloatLang>::F, <L as FloatLang>::F);

pub fn add<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    (l.add(x.0, y.0), l.add(x.1, y.1))
}

pub fn sub<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    (l.sub(x.0, y.0), l.sub(x.1, y.1))
}

pub fn mul<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    let (rr, ii) = (l.mul(x.0, y.0), l.mul(x.1, y.1));
    let (ri, ir) = (l.mul(x.0, y.1), l.mul(x.1, y.0));
    (l.sub(rr, ii), l.add(ri, ir))
}

/// `(x - y)(x + y) + 2xyi`: one zero factor makes the real part zero, also where the
/// sum is infinite for finite parts.
pub fn square<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (difference, sum) = (l.sub(z.0, z.1), l.add(z.0, z.1));
    let product = l.mul(difference, sum);
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    let (same, finite) = (l.eq(x, y), l.lt(x, infinity));
    let vanishes = l.both(same, finite);
    let re = l.select(vanishes, zero, product);
    let cross = l.mul(z.0, z.1);
    (re, l.add(cross, cross))
}

/// Smith's method (CACM 5, 1962), and where it gives NaN in both parts the
/// infinities and zeros that C99 Annex G asks for.
pub fn div<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    let (abs_re, abs_im) = (l.abs(y.0), l.abs(y.1));
    let wide = l.le(abs_im, abs_re);
    let (large, small) = (l.select(wide, y.0, y.1), l.select(wide, y.1, y.0));
    let ratio = l.div(small, large);
    let product = l.mul(small, ratio);
    let denominator = l.add(large, product);
    // Wide: (re + im r, im - re r) / d; else: (re r + im, im r - re) / d.
    let (first, second) = (l.select(wide, x.0, x.1), l.select(wide, x.1, x.0));
    let scaled = l.mul(second, ratio);
    let re = l.add(first, scaled);
    let scaled = l.mul(first, ratio);
    let (minuend, subtrahend) = (l.select(wide, second, scaled), l.select(wide, scaled, second));
    let im = l.sub(minuend, subtrahend);
    let (re, im) = (l.div(re, denominator), l.div(im, denominator));

    let (nan_re, nan_im) = (l.is_nan(re), l.is_nan(im));
    let both = l.both(nan_re, nan_im);
    let (zero, one, infinity) = (l.float(0.0), l.float(1.0), l.float(f64::INFINITY));
    let finite = |l: &mut L, z: Pair<L>| {
        let (re, im) = (l.abs(z.0), l.abs(z.1));
        let (re, im) = (l.lt(re, infinity), l.lt(im, infinity));
        l.both(re, im)
    };
    let infinite = |l: &mut L, z: Pair<L>| {
        let (re, im) = (l.abs(z.0), l.abs(z.1));
        let (re, im) = (l.eq(re, infinity), l.eq(im, infinity));
        l.either(re, im)
    };
    // An infinite part becomes ±1, any other ±0.
    let boxed = |l: &mut L, z: Pair<L>| {
        let part = |l: &mut L, v: L::F| {
            let magnitude = l.abs(v);
            let is_infinite = l.eq(magnitude, infinity);
            let unit = l.select(is_infinite, one, zero);
            l.copysign(unit, v)
        };
        (part(l, z.0), part(l, z.1))
    };
    let (zero_re, zero_im) = (l.eq(y.0, zero), l.eq(y.1, zero));
    let by_zero = l.both(zero_re, zero_im);
    let signed = l.copysign(infinity, y.0);
    let at_zero = (l.mul(signed, x.0), l.mul(signed, x.1));

    let (x_infinite, y_finite) = (infinite(l, x), finite(l, y));
    let grows = l.both(x_infinite, y_finite);
    let unit = boxed(l, x);
    let (rr, ii) = (l.mul(unit.0, y.0), l.mul(unit.1, y.1));
    let (ir, ri) = (l.mul(unit.1, y.0), l.mul(unit.0, y.1));
    let (grow_re, grow_im) = (l.add(rr, ii), l.sub(ir, ri));
    let grown = (l.mul(infinity, grow_re), l.mul(infinity, grow_im));

    let (y_infinite, x_finite) = (infinite(l, y), finite(l, x));
    let vanishes = l.both(y_infinite, x_finite);

    let pick = |l: &mut L, naive, at_zero, grown| {
        let nan_or_zero = l.select(vanishes, zero, naive);
        let with_grown = l.select(grows, grown, nan_or_zero);
        let recovered = l.select(by_zero, at_zero, with_grown);
        l.select(both, recovered, naive)
    };
    (pick(l, re, at_zero.0, grown.0), pick(l, im, at_zero.1, grown.1))
}

/// `|z|` without needless overflow; NaN if either part is.
pub fn abs<L: Formulas>(l: &mut L, z: Pair<L>) -> L::F {
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let (large, small) = (l.max(x, y), l.min(x, y));
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    let ratio = l.div(small, large);
    let square = l.mul(ratio, ratio);
    let sum = l.offset(square, 1.0);
    let root = l.sqrt(sum);
    let product = l.mul(large, root);
    let (is_zero, is_infinite) = (l.eq(large, zero), l.eq(large, infinity));
    let plain = l.either(is_zero, is_infinite);
    l.select(plain, large, product)
}

/// `z / |z|`; zeros stay.
pub fn sign<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let magnitude = abs(l, z);
    let zero = l.float(0.0);
    let is_zero = l.eq(magnitude, zero);
    let (re, im) = (l.div(z.0, magnitude), l.div(z.1, magnitude));
    (l.select(is_zero, z.0, re), l.select(is_zero, z.1, im))
}

/// `f cos y` and `g sin y` where `f` and `g` are exponentials in `x` that may
/// overflow before the products do; exactly real for `y = 0`.
fn polar<L: Formulas>(l: &mut L, x: L::F, y: L::F, f: L::F, g: L::F, f_sign: L::F, half: f64) -> Pair<L> {
    let (cos, sin) = (l.math(MathFn::Cos, y), l.math(MathFn::Sin, y));
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    let magnitude = l.abs(g);
    let overflow = l.eq(magnitude, infinity);
    let halved = l.scale(x, 0.5);
    let root = l.math(MathFn::Exp, halved);
    let scaled = l.scale(root, half);
    let plain = (l.mul(f, cos), l.mul(g, sin));
    let (cos, sin) = (l.mul(scaled, cos), l.mul(scaled, sin));
    let (re, im) = (l.mul(root, cos), l.mul(root, sin));
    let re = l.mul(re, f_sign);
    let (re, im) = (l.select(overflow, re, plain.0), l.select(overflow, im, plain.1));
    let real = l.eq(y, zero);
    (l.select(real, f, re), l.select(real, y, im))
}

pub fn exp<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let e = l.math(MathFn::Exp, z.0);
    let one = l.float(1.0);
    polar(l, z.0, z.1, e, e, one, 1.0)
}

pub fn exp2<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let e = l.math(MathFn::Exp2, z.0);
    let angle = l.scale(z.1, std::f64::consts::LN_2);
    let (cos, sin) = (l.math(MathFn::Cos, angle), l.math(MathFn::Sin, angle));
    let zero = l.float(0.0);
    let (re, im) = (l.mul(e, cos), l.mul(e, sin));
    let real = l.eq(z.1, zero);
    (l.select(real, e, re), l.select(real, z.1, im))
}

/// `e^x cos y - 1 = expm1(x) cos y - 2 sin²(y/2)`.
pub fn expm1<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let whole = exp(l, z);
    let less = l.math(MathFn::Expm1, z.0);
    let cos = l.math(MathFn::Cos, z.1);
    let half = l.scale(z.1, 0.5);
    let sin = l.math(MathFn::Sin, half);
    let product = l.mul(less, cos);
    let square = l.mul(sin, sin);
    let twice = l.scale(square, 2.0);
    let small = l.sub(product, twice);
    // Beyond 1 nothing cancels, and `exp` overflows later.
    let one = l.float(1.0);
    let minus_one = l.float(-1.0);
    let large = l.add(whole.0, minus_one);
    let is_large = l.lt(one, z.0);
    let re = l.select(is_large, large, small);
    let zero = l.float(0.0);
    let real = l.eq(z.1, zero);
    (l.select(real, less, re), whole.1)
}

/// `log |z|`, accurate near the unit circle.
pub fn log_abs<L: Formulas>(l: &mut L, z: Pair<L>) -> L::F {
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let (large, small) = (l.max(x, y), l.min(x, y));
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    // log(large) + log1p((small/large)²) / 2
    let ratio = l.div(small, large);
    let square = l.mul(ratio, ratio);
    let correction = l.math(MathFn::Log1p, square);
    let half = l.scale(correction, 0.5);
    let log = l.math(MathFn::Log, large);
    let far = l.add(log, half);
    // log1p((large - 1)(large + 1) + small²) / 2
    let (below, above) = (l.offset(large, -1.0), l.offset(large, 1.0));
    let product = l.mul(below, above);
    let square = l.mul(small, small);
    let excess = l.add(product, square);
    let log1p = l.math(MathFn::Log1p, excess);
    let near = l.scale(log1p, 0.5);
    let (low, high) = (l.float(0.5), l.float(2.0));
    let (above_low, below_high) = (l.lt(low, large), l.lt(large, high));
    let is_near = l.both(above_low, below_high);
    let value = l.select(is_near, near, far);
    let (is_zero, is_infinite) = (l.eq(large, zero), l.eq(large, infinity));
    let plain = l.either(is_zero, is_infinite);
    l.select(plain, log, value)
}

pub fn log<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    (log_abs(l, z), l.atan2(z.1, z.0))
}

pub fn log1p<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let shifted = l.offset(z.0, 1.0);
    let large = log_abs(l, (shifted, z.1));
    // |1 + z|² - 1 = x (x + 2) + y²
    let twice = l.offset(z.0, 2.0);
    let product = l.mul(z.0, twice);
    let square = l.mul(z.1, z.1);
    let excess = l.add(product, square);
    let log1p = l.math(MathFn::Log1p, excess);
    let small = l.scale(log1p, 0.5);
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let magnitude = l.max(x, y);
    let limit = l.float(0.5);
    let is_small = l.lt(magnitude, limit);
    (l.select(is_small, small, large), l.atan2(z.1, shifted))
}

/// The root with a real part that is not negative.
pub fn sqrt<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let (re, im) = first_quadrant_sqrt(l, x, y);
    // For a negative real part the two change places.
    let negative = l.lt(z.0, zero);
    let (re, im) = (l.select(negative, im, re), l.select(negative, re, im));
    let below = l.lt(z.1, zero);
    let flipped = l.neg(im);
    let im = l.select(below, flipped, im);
    let is_infinite = l.eq(y, infinity);
    let signed = l.select(below, z.1, y);
    (l.select(is_infinite, infinity, re), l.select(is_infinite, signed, im))
}

/// For `x, y >= 0`, scaled by a power of 4 so that squares neither overflow nor
/// vanish.
pub fn first_quadrant_sqrt<L: Formulas>(l: &mut L, x: L::F, y: L::F) -> Pair<L> {
    let (zero, infinity) = (l.float(0.0), l.float(f64::INFINITY));
    let exponent = if l.wide() { 500 } else { 60 };
    let (high, low) = (l.float(2f64.powi(exponent)), l.float(2f64.powi(-exponent)));
    let size = l.max(x, y);
    let (is_high, is_low) = (l.lt(high, size), l.lt(size, low));
    let one = l.float(1.0);
    let unscale = l.select(is_low, high, one);
    let scale = l.select(is_high, low, unscale);
    let (root_high, root_low) = (l.float(2f64.powi(exponent / 2)), l.float(2f64.powi(-exponent / 2)));
    let unscale = l.select(is_low, root_low, one);
    let back = l.select(is_high, root_high, unscale);
    let (u, v) = (l.mul(x, scale), l.mul(y, scale));
    let magnitude = abs(l, (u, v));
    let sum = l.add(u, magnitude);
    let half = l.scale(sum, 0.5);
    let root = l.sqrt(half);
    let double = l.scale(root, 2.0);
    let quotient = l.div(v, double);
    let (re, im) = (l.mul(root, back), l.mul(quotient, back));
    let is_zero = l.eq(size, zero);
    let is_infinite = l.eq(x, infinity);
    let real = l.either(is_zero, is_infinite);
    (l.select(is_zero, zero, re), l.select(real, zero, im))
}

pub fn rsqrt<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let root = sqrt(l, z);
    let one = (l.float(1.0), l.float(0.0));
    div(l, one, root)
}

pub fn logistic<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (zero, one) = (l.float(0.0), l.float(1.0));
    let negative = l.lt(z.0, zero);
    let opposite = (l.neg(z.0), l.neg(z.1));
    // e^-|x| can only vanish.
    let exponent = (l.select(negative, z.0, opposite.0), l.select(negative, z.1, opposite.1));
    let e = exp(l, exponent);
    let numerator = (l.select(negative, e.0, one), l.select(negative, e.1, zero));
    let denominator = (l.offset(e.0, 1.0), e.1);
    div(l, numerator, denominator)
}

pub fn sinh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (sinh, cosh) = (l.math(MathFn::Sinh, z.0), l.math(MathFn::Cosh, z.0));
    let (one, magnitude) = (l.float(1.0), l.abs(z.0));
    let sign = l.copysign(one, z.0);
    polar(l, magnitude, z.1, sinh, cosh, sign, 0.5)
}

pub fn cosh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    // cosh(x) cos(y) + i sinh(x) sin(y), even: evaluated for |x|.
    let (magnitude, one, zero) = (l.abs(z.0), l.float(1.0), l.float(0.0));
    let (sinh, cosh) = (l.math(MathFn::Sinh, magnitude), l.math(MathFn::Cosh, magnitude));
    let (re, im) = polar(l, magnitude, z.1, cosh, sinh, one, 0.5);
    let flipped = l.neg(im);
    let negative = l.lt(z.0, zero);
    (re, l.select(negative, flipped, im))
}

/// `sin z = -i sinh(i z)`.
pub fn sin<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let turned = (l.neg(z.1), z.0);
    let (re, im) = sinh(l, turned);
    (im, l.neg(re))
}

/// `cos z = cosh(i z)`.
pub fn cos<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let turned = (l.neg(z.1), z.0);
    cosh(l, turned)
}

/// With `t = tan y`, `s = sinh x`, `b = 1 + t²`:
/// `(b s sqrt(1 + s²) + i t) / (1 + b s²)`; for large `|x|` its limit.
pub fn tanh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (zero, one) = (l.float(0.0), l.float(1.0));
    let tan = l.math(MathFn::Tan, z.1);
    let sinh = l.math(MathFn::Sinh, z.0);
    let (tan_square, sinh_square) = (l.mul(tan, tan), l.mul(sinh, sinh));
    let beta = l.offset(tan_square, 1.0);
    let rho = l.offset(sinh_square, 1.0);
    let rho = l.sqrt(rho);
    let product = l.mul(beta, sinh_square);
    let denominator = l.offset(product, 1.0);
    let numerator = l.mul(beta, rho);
    let numerator = l.mul(numerator, sinh);
    let (re, im) = (l.div(numerator, denominator), l.div(tan, denominator));
    // Beyond the limit: ±1 + 4i sin y cos y e^-2|x|.
    let limit = l.float(if l.wide() { 20.0 } else { 10.0 });
    let magnitude = l.abs(z.0);
    let is_large = l.lt(limit, magnitude);
    let exponent = l.scale(magnitude, -2.0);
    let e = l.math(MathFn::Exp, exponent);
    let (cos, sin) = (l.math(MathFn::Cos, z.1), l.math(MathFn::Sin, z.1));
    let product = l.mul(sin, cos);
    let product = l.mul(product, e);
    let tail = l.scale(product, 4.0);
    let vanished = l.eq(e, zero);
    let tail = l.select(vanished, zero, tail);
    let unit = l.copysign(one, z.0);
    let (re, im) = (l.select(is_large, unit, re), l.select(is_large, tail, im));
    let real = l.eq(z.1, zero);
    (re, l.select(real, z.1, im))
}

/// `tan z = -i tanh(i z)`.
pub fn tan<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let turned = (l.neg(z.1), z.0);
    let (re, im) = tanh(l, turned);
    (im, l.neg(re))
}

/// `e^(w log z)`; powers of zero: 1 for `w = 0`, 0 for positive real `w`.
pub fn pow<L: Formulas>(l: &mut L, z: Pair<L>, w: Pair<L>) -> Pair<L> {
    let (zero, one) = (l.float(0.0), l.float(1.0));
    let log = log(l, z);
    let product = mul(l, w, log);
    let (re, im) = exp(l, product);
    let (z_re, z_im) = (l.eq(z.0, zero), l.eq(z.1, zero));
    let of_zero = l.both(z_re, z_im);
    let (positive, is_real) = (l.lt(zero, w.0), l.eq(w.1, zero));
    let vanishes = l.both(positive, is_real);
    let vanishes = l.both(of_zero, vanishes);
    let w_zero = l.eq(w.0, zero);
    let to_one = l.both(w_zero, is_real);
    let (re, im) = (l.select(vanishes, zero, re), l.select(vanishes, zero, im));
    (l.select(to_one, one, re), l.select(to_one, zero, im))
}

/// `-i log((x + iy) / sqrt(x² + y²))`.
pub fn atan2<L: Formulas>(l: &mut L, y: Pair<L>, x: Pair<L>) -> Pair<L> {
    let (xx, yy) = (mul(l, x, x), mul(l, y, y));
    let squares = add(l, xx, yy);
    let length = sqrt(l, squares);
    let point = (l.sub(x.0, y.1), l.add(x.1, y.0));
    let unit = div(l, point, length);
    let (re, im) = log(l, unit);
    (im, l.neg(re))
}

/// Whether `x` comes before `y` in lexicographic order.
pub fn less<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> L::B {
    let (first, same, second) = (l.lt(x.0, y.0), l.eq(x.0, y.0), l.lt(x.1, y.1));
    let tie = l.both(same, second);
    l.either(first, tie)
}

pub fn select<L: Formulas>(l: &mut L, condition: L::B, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    (l.select(condition, x.0, y.0), l.select(condition, x.1, y.1))
}

pub fn max<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    let greater = less(l, y, x);
    select(l, greater, x, y)
}

pub fn min<L: Formulas>(l: &mut L, x: Pair<L>, y: Pair<L>) -> Pair<L> {
    let smaller = less(l, x, y);
    select(l, smaller, x, y)
}

/// `z^n` by repeated squaring, for a negative n its reciprocal.
pub fn integer_pow<L: Formulas>(l: &mut L, z: Pair<L>, n: i64) -> Pair<L> {
    let one = (l.float(1.0), l.float(0.0));
    let mut result = None;
    let (mut square, mut rest) = (z, n.unsigned_abs());
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(match result {
                None => square,
                Some(product) => mul(l, product, square),
            });
        }
        rest >>= 1;
        if rest > 0 {
            square = mul(l, square, square);
        }
    }
    let result = result.unwrap_or(one);
    if n < 0 { div(l, one, result) } else { result }
}
