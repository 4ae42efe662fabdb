//! pow.
//!
//! `exp(y log|x|)` with the logarithm and the product as unevaluated sums of two
//! floats, whose relative error is below 2^-32 in 32 and 2^-63 in 64 bits; special
//! cases as IEEE 754-2019, 9.2.1 has them.

use super::coefficients::*;
use super::exp::{bias, reduced, scale};
use super::lang::{FloatLang, FloatLangExt, calc};
use super::log::split;

/// `log(x)` of a positive finite number as a sum of two floats.
///
/// `log(m) = 2 s + 2/3 s³ + s⁵ q(s²)`, `s = f / (2 + f)`; the first two terms are
/// pairs.
#[inline(always)]
pub(super) fn log_pair<L: FloatLang>(l: &mut L, x: L::F) -> (L::F, L::F) {
    let format = l.format();
    let tiny = calc!(l, lt(x, (format.min_normal)));
    let lifted = calc!(l, mul(x, (2f64.powi(format.fraction as i32))));
    let scaled = l.select(tiny, lifted, x);
    let (_, k, m) = split(l, scaled);
    let lowered = calc!(l, sub(k, (f64::from(format.fraction))));
    let k = l.select(tiny, lowered, k);
    let f = calc!(l, sub(m, 1.0));
    let two = l.float(2.0);
    let (d, d_low) = l.fast_two_sum(two, f);
    let inverse = calc!(l, div(1.0, d));
    let s = l.mul(f, inverse);
    let (again, again_low) = l.two_product(s, d);
    let rest = calc!(l, sub(sub(sub(f, again), again_low), mul(s, d_low)));
    let s_low = l.mul(rest, inverse);
    let (z, z_low) = l.two_product(s, s);
    let z_low = calc!(l, fma(add(s, s), s_low, z_low));
    let q = l.poly(z, &POW_32, &POW_64);
    // 2/3 + z q as a pair.
    let third = l.by_width(TWO_THIRDS_32[0], TWO_THIRDS_64[0]);
    let third_low = l.by_width(TWO_THIRDS_32[1], TWO_THIRDS_64[1]);
    let (w, w_low) = l.two_product(z, q);
    let (c, c_low) = l.fast_two_sum(third, w);
    let c_low = calc!(l, add(c_low, add(third_low, fma(z_low, q, w_low))));
    // s z c as a pair.
    let (sz, sz_low) = l.two_product(s, z);
    let sz_low = calc!(l, fma(s, z_low, fma(s_low, z, sz_low)));
    let (t, t_low) = l.two_product(sz, c);
    let t_low = calc!(l, fma(sz, c_low, fma(sz_low, c, t_low)));
    // k ln 2 + 2 s + t, the exact parts by exact sums.
    let high = l.by_width(LN_2_32[0], LN_2_64[0]);
    let middle = l.by_width(LN_2_32[1], LN_2_64[1]);
    let k_high = l.mul(k, high);
    let doubled = l.add(s, s);
    let (sum, lost_1) = l.two_sum(k_high, doubled);
    let (sum, lost_2) = l.two_sum(sum, t);
    let low = calc!(l, add(fma(s_low, 2.0, t_low), fma(k, middle, add(lost_1, lost_2))));
    l.fast_two_sum(sum, low)
}

#[inline(always)]
pub fn pow<L: FloatLang>(l: &mut L, x: L::F, y: L::F) -> L::F {
    let zero = l.float(0.0);
    let one = l.float(1.0);
    let infinity = l.float(f64::INFINITY);
    let nan = l.float(f64::NAN);
    let a = l.abs(x);
    let (log, log_low) = log_pair(l, a);
    let is_zero = l.eq(a, zero);
    let finite = l.lt(a, infinity);
    // The logarithms of infinity and NaN are themselves.
    let log = l.select(finite, log, a);
    let log = calc!(l, select(is_zero, (f64::NEG_INFINITY), log));
    let product = l.mul(y, log);
    let low_limit = l.by_width(-104.0, -746.0);
    let high_limit = l.by_width(89.0, 710.0);
    let bounded = l.clamp(product, low_limit, high_limit);
    let not_low = l.lt(low_limit, product);
    let not_high = l.lt(product, high_limit);
    let inside = l.both(not_low, not_high);
    let (_, error) = l.two_product(y, log);
    let low = l.fma(y, log_low, error);
    let low = l.select(inside, low, zero);
    let bias = bias(l);
    let (p, k) = reduced(l, bounded, Some(low), bias);
    let power = l.add(p, one);
    let power = scale(l, power, k);
    // Integers: no fraction; odd ones have a half.
    let floor = l.floor(y);
    let integer = l.eq(floor, y);
    let half = calc!(l, mul(y, 0.5));
    let half_floor = l.floor(half);
    let even = l.eq(half_floor, half);
    let not_even = l.not(even);
    let odd = l.both(integer, not_even);
    let sign_mask = l.int(l.format().sign_bit);
    let no_sign = l.int(0);
    let x_bits = l.bits(x);
    let x_sign = l.and_int(x_bits, sign_mask);
    let sign = l.select_int(odd, x_sign, no_sign);
    let power = l.flip(power, sign);
    // Negative and finite to what is no integer.
    let negative = l.lt(x, zero);
    let fractional = l.not(integer);
    let undefined = l.both(negative, fractional);
    let undefined = l.both(undefined, finite);
    let power = l.select(undefined, nan, power);
    // (-1)^(+-inf) = 1, 1^y = 1 and x^0 = 1, NaN or not.
    let minus_one = calc!(l, eq(x, (-1.0)));
    let y_infinite = calc!(l, eq(abs(y), infinity));
    let unit = l.both(minus_one, y_infinite);
    let x_one = l.eq(x, one);
    let y_zero = l.eq(y, zero);
    let unit = l.either(unit, x_one);
    let unit = l.either(unit, y_zero);
    l.select(unit, one, power)
}
