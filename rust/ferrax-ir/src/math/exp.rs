//! exp, exp2, expm1, logistic, tanh.
//!
//! `x = k ln 2 + r` with `|r| <= ln 2 / 2` by Cody and Waite's subtraction in two
//! parts; `expm1(r)` by a minimax polynomial (`tools/minimax.py exp exp2`); `2^k` by
//! exponent bits, in two factors where results may be subnormal or overflow (Muller
//! et al., Handbook of Floating-Point Arithmetic, 2nd ed., 10.2).

use super::coefficients::*;
use super::lang::{FloatLang, FloatLangExt, calc};

/// `expm1(r)` and `k + bias` (in the low bits) with the integer `k` and `x + low = k ln 2 + r`; `low` is small.
#[inline(always)]
pub fn reduced<L: FloatLang>(l: &mut L, x: L::F, low: Option<L::F>, bias: i64) -> (L::F, L::I) {
    let log2_e = l.float(std::f64::consts::LOG2_E);
    let (k, bits) = l.round_product(x, log2_e, bias);
    let high_part = l.by_width(LN_2_32[0], LN_2_64[0]);
    let low_part = l.by_width(LN_2_32[1], LN_2_64[1]);
    let r = l.fnma(k, high_part, x);
    let mut r = l.fnma(k, low_part, r);
    if let Some(low) = low {
        r = l.add(r, low);
    }
    (expm1_near_zero(l, r), bits)
}

/// `expm1(r)` for `|r| <= 0.35`.
#[inline(always)]
fn expm1_near_zero<L: FloatLang>(l: &mut L, r: L::F) -> L::F {
    let q = l.poly(r, &EXP_32, &EXP_64);
    calc!(l, fma(mul(r, r), q, r))
}

/// What [`scale`] asks to be added to `k`: twice the exponents' bias, so that halves are positive and biased once.
#[inline(always)]
pub fn bias<L: FloatLang>(l: &L) -> i64 {
    2 * l.format().exponent_bias
}

/// `y * 2^k` for `k` from twice the least exponent to one above the largest, which is given with [`bias`] added; rounds once
/// where the result is subnormal.
#[inline(always)]
pub fn scale<L: FloatLang>(l: &mut L, y: L::F, k_bits: L::I) -> L::F {
    // Of the magic number's bits, halved or not, none is in those that an exponent keeps.
    let half = l.shr(k_bits, 1);
    let rest = l.sub_int(k_bits, half);
    let first = l.power_of_two(half);
    let second = l.power_of_two(rest);
    calc!(l, mul(mul(y, first), second))
}

/// Bounds beyond which `exp` is zero and infinite.
#[inline(always)]
fn clamped<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let low = l.by_width(-104.0, -746.0);
    let high = l.by_width(89.0, 710.0);
    l.clamp(x, low, high)
}

#[inline(always)]
pub fn exp<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let x = clamped(l, x);
    let bias = bias(l);
    let (p, k) = reduced(l, x, None, bias);
    let y = calc!(l, add(p, 1.0));
    scale(l, y, k)
}

/// `exp(x) / 2` for `x >= 0`, finite for as long as that is.
#[inline(always)]
pub fn half_exp<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let high = l.by_width(90.0, 711.0);
    let x = l.at_most(x, high);
    let bias = bias(l);
    let (p, k) = reduced(l, x, None, bias);
    let y = calc!(l, mul(add(p, 1.0), 0.5));
    scale(l, y, k)
}

#[inline(always)]
pub fn exp2<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let low = l.by_width(-151.0, -1076.0);
    let high = l.by_width(128.0, 1024.0);
    let x = l.clamp(x, low, high);
    let one = l.float(1.0);
    let bias = bias(l);
    let (k, bits) = l.round_product(x, one, bias);
    let r = l.sub(x, k);
    let q = l.poly(r, &EXP2_32, &EXP2_64);
    let y = l.fma(r, q, one);
    scale(l, y, bits)
}

#[inline(always)]
pub fn expm1<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let low = l.by_width(-20.0, -40.0);
    let high = l.by_width(89.0, 710.0);
    let clamped = l.clamp(x, low, high);
    // Half of it, so that 2^(k - 1) is finite.
    let bias = l.format().exponent_bias - 1;
    let (p, k) = reduced(l, clamped, None, bias);
    let power = l.power_of_two(k);
    let half = calc!(l, fma(power, p, sub(power, 0.5)));
    let y = l.add(half, half);
    l.keep_zero(x, y)
}

/// `1 / (1 + exp(-x))`, in 64 bits corrected for what the sum and the quotient round off.
#[inline(always)]
pub fn logistic<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let negated = l.neg(x);
    let e = exp(l, negated);
    let s = calc!(l, add(e, 1.0));
    let y = calc!(l, div(1.0, s));
    if !l.wide() {
        return y;
    }
    // Where e < 1, `s_low` is what the sum lost, or zero.
    let s_low = calc!(l, sub(1.0, sub(s, e)));
    let rest = calc!(l, fnma(y, s_low, fnma(y, s, 1.0)));
    let corrected = l.fma(rest, y, y);
    let finite = calc!(l, lt(e, (f64::INFINITY)));
    l.select(finite, corrected, y)
}

/// `t / (t + 2)` with `t = expm1(2 |x|)`, in 64 bits corrected for what the sum and the quotient round off.
#[inline(always)]
pub fn tanh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let high = l.by_width(10.0, 20.0);
    let a = l.abs(x);
    let a = l.at_most(a, high);
    let doubled = l.add(a, a);
    let bias = l.format().exponent_bias;
    let (p, k) = reduced(l, doubled, None, bias);
    let power = l.power_of_two(k);
    let t = calc!(l, fma(power, p, sub(power, 1.0)));
    let d = calc!(l, add(t, 2.0));
    if !l.wide() {
        let y = l.div(t, d);
        return l.with_sign(y, x);
    }
    let d_low = calc!(l, sub(t, sub(d, 2.0)));
    let inverse = calc!(l, div(1.0, d));
    let y = l.mul(t, inverse);
    let rest = calc!(l, fnma(y, d_low, fnma(y, d, t)));
    let y = l.fma(rest, inverse, y);
    l.with_sign(y, x)
}
