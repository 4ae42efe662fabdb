//! asin, acos, atan, atan2, cbrt, rsqrt.
//!
//! asin and acos by `asin(x) = x + x³ p(x²)` below 1/2 and the half-angle formula
//! above; atan reduced to `|t| <= 1/2`. Coefficients: `tools/minimax.py inverse`.

use super::coefficients::*;
use super::lang::{FloatLang, FloatLangExt, calc};

/// `p(z)` with `asin(x) = x + x z p(z)`, `z = x² <= 1/4`.
#[inline(always)]
fn asin_poly<L: FloatLang>(l: &mut L, z: L::F) -> L::F {
    l.poly(z, &ASIN_32, &ASIN_64)
}

/// `|x|`, whether it is below 1/2, and `asin`'s correction `y z p(z)` and argument
/// `y`: `y = |x|` or, above, `sqrt((1 - |x|) / 2)`.
#[inline(always)]
fn asin_parts<L: FloatLang>(l: &mut L, x: L::F) -> (L::F, L::B, L::F, L::F) {
    let a = l.abs(x);
    let small = calc!(l, lt(a, 0.5));
    let square = l.mul(a, a);
    let half_angle = calc!(l, mul(sub(1.0, a), 0.5));
    let z = l.select(small, square, half_angle);
    let root = l.sqrt(half_angle);
    let y = l.select(small, a, root);
    let p = asin_poly(l, z);
    let correction = calc!(l, mul(mul(y, z), p));
    (a, small, y, correction)
}

#[inline(always)]
pub fn asin<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let (_, small, y, correction) = asin_parts(l, x);
    let direct = l.add(y, correction);
    let high = l.by_width(PI_2_4_32[0], PI_2_4_64[0]);
    let low = l.by_width(PI_2_4_32[1], PI_2_4_64[1]);
    let minus_two = l.float(-2.0);
    let twice = l.mul(y, minus_two);
    let (far, lost) = l.fast_two_sum(high, twice);
    let far = calc!(l, add(far, add(lost, fma(correction, minus_two, low))));
    let result = l.select(small, direct, far);
    l.with_sign(result, x)
}

#[inline(always)]
pub fn acos<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let (_, small, y, correction) = asin_parts(l, x);
    let negative = calc!(l, lt(x, 0.0));
    // Below 1/2: pi/2 -+ (y + correction).
    let high = l.by_width(PI_2_4_32[0], PI_2_4_64[0]);
    let low = l.by_width(PI_2_4_32[1], PI_2_4_64[1]);
    let minus_y = l.neg(y);
    let minus_correction = l.neg(correction);
    let signed = l.select(negative, y, minus_y);
    let signed_correction = l.select(negative, correction, minus_correction);
    let near = calc!(l, add(high, add(signed, add(signed_correction, low))));
    // Above: 2 (y + correction), or pi less that.
    let right = calc!(l, mul(add(y, correction), 2.0));
    let high = l.by_width(PI_4_4_32[0], PI_4_4_64[0]);
    let low = l.by_width(PI_4_4_32[1], PI_4_4_64[1]);
    let left = calc!(l, sub(high, sub(right, low)));
    let far = l.select(negative, left, right);
    l.select(small, near, far)
}

/// `atan(n / d)` for `n, d >= 0`, or pi less that.
#[inline(always)]
fn atan_of_quotient<L: FloatLang>(l: &mut L, y: L::F, x: L::F, reflect: Option<L::B>) -> L::F {
    let swap = l.lt(x, y);
    let n = l.select(swap, x, y);
    let d = l.select(swap, y, x);
    // Above 1/2 by the tangent of the difference to pi/4; there n - d is exact.
    let eighth = calc!(l, lt(mul(d, 0.5), n));
    let difference = l.sub(n, d);
    let sum = l.add(n, d);
    let n = l.select(eighth, difference, n);
    let d = l.select(eighth, sum, d);
    let t = l.div(n, d);
    let z = l.mul(t, t);
    let p = l.poly(z, &ATAN_32, &ATAN_64);
    let correction = calc!(l, mul(mul(t, z), p));
    let mut base = [l.float(0.0); 2];
    for part in 0..2 {
        let quarter = l.by_width(PI_1_4_32[part], PI_1_4_64[part]);
        let half = l.by_width(PI_2_4_32[part], PI_2_4_64[part]);
        let zero = l.float(0.0);
        let outer = l.select(swap, half, zero);
        let mut angle = l.select(eighth, quarter, outer);
        if let Some(reflect) = reflect {
            let three_quarters = l.by_width(PI_3_4_32[part], PI_3_4_64[part]);
            let whole = l.by_width(PI_4_4_32[part], PI_4_4_64[part]);
            let outer = l.select(swap, half, whole);
            let reflected = l.select(eighth, three_quarters, outer);
            angle = l.select(reflect, reflected, angle);
        }
        base[part] = angle;
    }
    let minus_t = l.neg(t);
    let minus_correction = l.neg(correction);
    let flip = match reflect {
        // Swapped or reflected, not both.
        Some(reflect) => {
            let any = l.either(swap, reflect);
            let all = l.both(swap, reflect);
            let not_all = l.not(all);
            l.both(any, not_all)
        }
        None => swap,
    };
    let t = l.select(flip, minus_t, t);
    let correction = l.select(flip, minus_correction, correction);
    let [high, low] = base;
    let (sum, lost) = l.fast_two_sum(high, t);
    // Where the base is zero, `sum` is `t` and nothing is lost.
    let is_zero = calc!(l, eq(high, 0.0));
    let lost = calc!(l, select(is_zero, low, lost));
    calc!(l, add(sum, add(correction, add(lost, low))))
}

#[inline(always)]
pub fn atan<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let one = l.float(1.0);
    let y = atan_of_quotient(l, a, one, None);
    l.with_sign(y, x)
}

#[inline(always)]
pub fn atan2<L: FloatLang>(l: &mut L, y: L::F, x: L::F) -> L::F {
    let sign_mask = l.int(l.format().sign_bit);
    let zero_bits = l.int(0);
    let x_bits = l.bits(x);
    let x_sign = l.and_int(x_bits, sign_mask);
    let positive = l.eq_int(x_sign, zero_bits);
    let reflect = l.not(positive);
    let n = l.abs(y);
    let d = l.abs(x);
    // Sums must not overflow: large operands are scaled down together.
    let limit = l.by_width(2f64.powi(100), 2f64.powi(1000));
    let large_n = l.lt(limit, n);
    let large_d = l.lt(limit, d);
    let large = l.either(large_n, large_d);
    let factor = calc!(l, select(large, 0.00390625, 1.0));
    let n = l.mul(n, factor);
    let d = l.mul(d, factor);
    // 0/0 counts as 0/1 and inf/inf as 1/1.
    let infinity = l.float(f64::INFINITY);
    let one = l.float(1.0);
    let zero = l.float(0.0);
    let n_infinite = l.eq(n, infinity);
    let d_infinite = l.eq(d, infinity);
    let infinite = l.both(n_infinite, d_infinite);
    let n_zero = l.eq(n, zero);
    let d_zero = l.eq(d, zero);
    let zeros = l.both(n_zero, d_zero);
    let replace_d = l.either(infinite, zeros);
    let n = l.select(infinite, one, n);
    let d = l.select(replace_d, one, d);
    let angle = atan_of_quotient(l, n, d, Some(reflect));
    l.with_sign(angle, y)
}

#[inline(always)]
pub fn rsqrt<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    calc!(l, div(1.0, sqrt(x)))
}

/// `x^(-1/3)` by dividing the exponent bits by 3 and iterations of Householder's
/// method of third order, then `x^(1/3)` with one corrected step of Newton's.
#[inline(always)]
pub fn cbrt<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    // Neither the cube nor the low half of its pair may leave the normal range.
    let (extreme, step) = if l.wide() { (900, 54) } else { (90, 24) };
    let tiny = calc!(l, lt(a, (2f64.powi(-extreme))));
    let huge = calc!(l, lt((2f64.powi(extreme)), a));
    let factor = calc!(l, select(huge, (2f64.powi(-step)), 1.0));
    let factor = calc!(l, select(tiny, (2f64.powi(step)), factor));
    let inverse_root = calc!(l, select(huge, (2f64.powi(step / 3)), 1.0));
    let inverse_root = calc!(l, select(tiny, (2f64.powi(-step / 3)), inverse_root));
    let v = l.mul(a, factor);
    // The upper half of the bits is a small enough integer to be a float.
    let half = if l.wide() { 32 } else { 16 };
    let bits = l.bits(v);
    let upper = l.shr(bits, half);
    let upper = l.to_float(upper);
    // 4/3 of the bits of 1, less the error's middle.
    let start = if l.wide() { 1_430_188_287.0 } else { 21_666.98 };
    let upper = calc!(l, fma(upper, (-1.0 / 3.0), (start)));
    let one = l.float(1.0);
    let (_, bits) = l.round_product(upper, one, 0);
    let bits = l.shl(bits, half);
    let mut y = l.from_bits(bits);
    for _ in 0..if l.wide() { 3 } else { 2 } {
        let e = calc!(l, fnma(mul(mul(v, y), y), y, 1.0));
        let step = calc!(l, mul(e, fma(e, fma(e, (14.0 / 81.0), (2.0 / 9.0)), (1.0 / 3.0))));
        y = l.fma(y, step, y);
    }
    let square = l.mul(y, y);
    let r = l.mul(v, square);
    let (r_square, r_square_low) = l.two_product(r, r);
    let (cube, cube_low) = l.two_product(r_square, r);
    let rest = l.sub(v, cube);
    let rest = calc!(l, sub(rest, fma(r_square_low, r, cube_low)));
    let slope = calc!(l, mul(square, (1.0 / 3.0)));
    let r = l.fma(rest, slope, r);
    let r = l.mul(r, inverse_root);
    // Zero, infinity and NaN are their own roots.
    let finite = calc!(l, lt(a, (f64::INFINITY)));
    let r = l.select(finite, r, a);
    let r = l.keep_zero(a, r);
    l.with_sign(r, x)
}
