//! log, log1p.
//!
//! `x = 2^k (1 + f)` with `sqrt(1/2) <= 1 + f < sqrt(2)`. In 32 bits `log(1 + f) =
//! f - f²/2 + f³ p(f)`; in 64 bits by `s = f / (2 + f)` and an even polynomial of it,
//! the scheme of FDLIBM's `e_log.c`. Coefficients: `tools/minimax.py log`.

use super::coefficients::*;
use super::lang::{FloatLang, FloatLangExt, calc};

/// `k` (as an integer and a float) and the significand `m` in `[sqrt(1/2), sqrt(2))`
/// of a positive normal number.
#[inline(always)]
pub fn split<L: FloatLang>(l: &mut L, x: L::F) -> (L::I, L::F, L::F) {
    let format = l.format();
    let (one, root) = if l.wide() {
        (1f64.to_bits() as i64, std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64)
    } else {
        (1f32.to_bits() as i64, std::f32::consts::FRAC_1_SQRT_2.to_bits() as i64)
    };
    let bits = l.bits(x);
    let offset = l.int(one - root);
    let shifted = l.add_int(bits, offset);
    let exponent = l.shr(shifted, format.fraction);
    let bias = l.int(format.exponent_bias);
    let k = l.sub_int(exponent, bias);
    let mask = l.int((1 << format.fraction) - 1);
    let fraction = l.and_int(shifted, mask);
    let root = l.int(root);
    let m = l.add_int(fraction, root);
    let m = l.from_bits(m);
    let k_float = l.to_float(k);
    (k, k_float, m)
}

/// `k ln 2 + log(1 + f)`.
#[inline(always)]
pub fn assemble<L: FloatLang>(l: &mut L, k: L::F, f: L::F) -> L::F {
    let high = l.by_width(LN_2_32[0], LN_2_64[0]);
    let low = l.by_width(LN_2_32[1], LN_2_64[1]);
    let square = l.mul(f, f);
    if l.wide() {
        let s = calc!(l, div(f, add(f, 2.0)));
        let z = l.mul(s, s);
        let p = l.poly(z, &LOG_64, &LOG_64);
        let r = l.mul(z, p);
        let half_square = calc!(l, mul(square, 0.5));
        let correction = calc!(l, fma(s, add(half_square, r), mul(k, low)));
        return calc!(l, fma(k, high, sub(f, sub(half_square, correction))));
    }
    let p = l.poly(f, &LOG_32, &LOG_32);
    let y = calc!(l, fma(mul(square, f), p, mul(k, low)));
    let y = calc!(l, fma(square, (-0.5), y));
    calc!(l, fma(k, high, add(f, y)))
}

/// `y` where `x` is positive and finite; the logarithm's values elsewhere.
#[inline(always)]
fn special<L: FloatLang>(l: &mut L, x: L::F, y: L::F) -> L::F {
    let infinity = l.float(f64::INFINITY);
    let zero = l.float(0.0);
    let finite = l.lt(x, infinity);
    let y = l.select(finite, y, x);
    let is_zero = l.eq(x, zero);
    let lowest = l.float(f64::NEG_INFINITY);
    let y = l.select(is_zero, lowest, y);
    let negative = l.lt(x, zero);
    let nan = l.float(f64::NAN);
    l.select(negative, nan, y)
}

/// `log(x) + k0 ln 2` for positive `x`, and the logarithm's values elsewhere.
#[inline(always)]
pub fn log_scaled<L: FloatLang>(l: &mut L, x: L::F, k0: Option<L::F>) -> L::F {
    let format = l.format();
    let tiny = calc!(l, lt(x, (format.min_normal)));
    let lift = 2f64.powi(format.fraction as i32);
    let lifted = calc!(l, mul(x, (lift)));
    let scaled = l.select(tiny, lifted, x);
    let (_, k, m) = split(l, scaled);
    let lowered = calc!(l, sub(k, (f64::from(format.fraction))));
    let mut k = l.select(tiny, lowered, k);
    if let Some(k0) = k0 {
        k = l.add(k, k0);
    }
    let f = calc!(l, sub(m, 1.0));
    let y = assemble(l, k, f);
    special(l, x, y)
}

#[inline(always)]
pub fn log<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    log_scaled(l, x, None)
}

/// `k` and `f` are those of the rounded `1 + x`, but `f` is computed from `x` with
/// one rounding: `x 2^-k + (2^-k - 1)`.
#[inline(always)]
pub fn log1p<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let format = l.format();
    let sum = calc!(l, add(x, 1.0));
    let (k, k_float, m) = split(l, sum);
    let bias = l.int(format.exponent_bias);
    let exponent = l.sub_int(bias, k);
    let inverse = l.shl(exponent, format.fraction);
    let inverse = l.from_bits(inverse);
    let near = calc!(l, fma(x, inverse, sub(inverse, 1.0)));
    let far = calc!(l, sub(m, 1.0));
    // Beyond, 1 + x = x in the format or nearly so, and 2^-k may not be normal.
    let is_near = calc!(l, lt(x, (2f64.powi(format.fraction as i32 + 2))));
    let f = l.select(is_near, near, far);
    let y = assemble(l, k_float, f);
    let y = special(l, sum, y);
    l.keep_zero(x, y)
}
