//! sin, cos, tan of all finite arguments.
//!
//! `x = q pi/2 + r + tail` with `|r|` at most a little above `pi/4`. For moderate
//! arguments `q pi/2` is subtracted in three parts (Cody and Waite, fused); for
//! large ones `x 2/pi` is computed modulo 4 from the five pieces of `2/pi` that
//! matter (Payne and Hanek 1983, here in floating point: pieces are chosen by
//! halving the exponent's range, products are exact pairs). Polynomials:
//! `tools/minimax.py sin`.

use super::coefficients::*;
use super::lang::{FloatLang, FloatLangExt, calc};

/// The largest magnitudes that the moderate reduction takes.
pub const MODERATE: (f64, f64) = (131_072.0, 1_099_511_627_776.0);

/// `r`, its tail, and `q` in the two low bits.
pub type Reduced<L> = (<L as FloatLang>::F, <L as FloatLang>::F, <L as FloatLang>::I);

#[inline(always)]
pub fn reduce_moderate<L: FloatLang>(l: &mut L, x: L::F) -> Reduced<L> {
    let factor = l.float(std::f64::consts::FRAC_2_PI);
    let first = l.by_width(HALF_PI_32[0], HALF_PI_64[0]);
    let second = l.by_width(HALF_PI_32[1], HALF_PI_64[1]);
    let third = l.by_width(HALF_PI_32[2], HALF_PI_64[2]);
    let (k, bits) = l.round_product(x, factor, 0);
    if l.fused() {
        // The first difference is exact; `tail` holds what the second and its product
        // lose (where r is small against the product, the differences are exact).
        let t = l.fnma(k, first, x);
        let product = l.mul(k, second);
        let r = l.sub(t, product);
        let lost = calc!(l, sub(sub(t, r), product));
        let minus = l.neg(product);
        let lost = calc!(l, sub(lost, fma(k, second, minus)));
        let tail = l.fnma(k, third, lost);
        return (r, tail, bits);
    }
    let (product, error) = l.two_product(k, first);
    let difference = l.sub(x, product);
    let error = l.neg(error);
    let (t, lost_first) = l.two_sum(difference, error);
    let (product, error) = l.two_product(k, second);
    let product = l.neg(product);
    let (r, lost_second) = l.two_sum(t, product);
    let tail = calc!(l, sub(add(lost_first, lost_second), add(error, mul(k, third))));
    (r, tail, bits)
}

/// `v` modulo 4, in `[-2, 2]`; exact.
#[inline(always)]
fn modulo_four<L: FloatLang>(l: &mut L, v: L::F) -> L::F {
    let quotient = calc!(l, round_even(mul(v, 0.25)));
    calc!(l, sub(v, mul(quotient, 4.0)))
}

#[inline(always)]
pub fn reduce_large<L: FloatLang>(l: &mut L, x: L::F) -> Reduced<L> {
    const PIECES: usize = 5;
    let width: i32 = if l.wide() { 53 } else { 24 };
    let first_shift = if l.wide() { 16 } else { 4 };
    let zero = l.float(0.0);
    let mut pieces = [zero; 2 * 16 + PIECES - 1];
    let stored: &[f64] = if l.wide() { &TWO_OVER_PI_64 } else { &TWO_OVER_PI_32 };
    for (piece, value) in pieces.iter_mut().zip(stored) {
        *piece = l.float(*value);
    }
    // Leading pieces whose product with x is a multiple of 4 are dropped; x is
    // scaled down by their weight.
    let (mut x, mut magnitude) = (x, l.abs(x));
    let mut shift = first_shift;
    while shift > 0 {
        let threshold = l.float(2f64.powi(width * (shift + 1) + 1));
        let drop = l.le(threshold, magnitude);
        let weight = l.float(2f64.powi(-width * shift));
        let scaled = l.mul(magnitude, weight);
        magnitude = l.select(drop, scaled, magnitude);
        let scaled = l.mul(x, weight);
        x = l.select(drop, scaled, x);
        let shift_by = shift as usize;
        for k in 0..PIECES + shift_by - 1 {
            pieces[k] = l.select(drop, pieces[k + shift_by], pieces[k]);
        }
        shift /= 2;
    }
    let unit = 2f64.powi(-width);
    let (high_0, low_0) = l.two_product(x, pieces[0]);
    let x = calc!(l, mul(x, (unit)));
    let (high_1, low_1) = l.two_product(x, pieces[1]);
    let x = calc!(l, mul(x, (unit)));
    let (high_2, low_2) = l.two_product(x, pieces[2]);
    let x = calc!(l, mul(x, (unit)));
    let (high_3, low_3) = l.two_product(x, pieces[3]);
    let x = calc!(l, mul(x, (unit)));
    let high_4 = l.mul(x, pieces[4]);
    // Three levels, each about one significand below the one before; what a sum
    // rounds off goes to the next level.
    let a = modulo_four(l, high_0);
    let b = modulo_four(l, low_0);
    let c = modulo_four(l, high_1);
    let (sum, e1) = l.two_sum(a, b);
    let (sum, e2) = l.two_sum(sum, c);
    let (sum, e3) = l.two_sum(sum, low_1);
    let (sum, e4) = l.two_sum(sum, high_2);
    let quotient = l.round_even(sum);
    let fraction = l.sub(sum, quotient);
    let (second, g1) = l.two_sum(e1, e2);
    let (second, g2) = l.two_sum(second, e3);
    let (second, g3) = l.two_sum(second, e4);
    let (second, g4) = l.two_sum(second, low_2);
    let (second, g5) = l.two_sum(second, high_3);
    let third = calc!(l, add(add(add(g1, g2), add(g3, g4)), add(g5, add(low_3, high_4))));
    let (high, low) = l.two_sum(fraction, second);
    let low = l.add(low, third);
    let (high, low) = l.two_sum(high, low);
    let half_pi = l.by_width(HALF_PI_32[0], HALF_PI_64[0]);
    let half_pi_low = l.by_width(HALF_PI_32[1], HALF_PI_64[1]);
    let (r, tail) = l.two_product(high, half_pi);
    let tail = calc!(l, fma(low, half_pi, fma(high, half_pi_low, tail)));
    let magic = l.float(l.format().magic);
    let quotient = l.add(quotient, magic);
    (r, tail, l.bits(quotient))
}

#[inline(always)]
pub fn reduce<L: FloatLang>(l: &mut L, x: L::F) -> Reduced<L> {
    let (r, tail, q) = reduce_moderate(l, x);
    let (r_large, tail_large, q_large) = reduce_large(l, x);
    let limit = l.by_width(MODERATE.0, MODERATE.1);
    let moderate = calc!(l, le(abs(x), limit));
    let r = l.select(moderate, r, r_large);
    let tail = l.select(moderate, tail, tail_large);
    (r, tail, l.select_int(moderate, q, q_large))
}

/// `sin(r + tail) - r` and `cos(r + tail) - 1`.
#[inline(always)]
pub(super) fn polynomials<L: FloatLang>(l: &mut L, r: L::F, tail: L::F) -> (L::F, L::F) {
    let z = l.mul(r, r);
    let p = l.poly(z, &SIN_32, &SIN_64);
    let sine = calc!(l, fma(mul(z, r), p, tail));
    let p = l.poly(z, &COS_32, &COS_64);
    let cosine = calc!(l, fma(z, fma(z, p, (-0.5)), neg(mul(r, tail))));
    (sine, cosine)
}

/// The sine of what was reduced, turned by `quarter` quarters.
#[inline(always)]
fn turned<L: FloatLang>(l: &mut L, (r, tail, q): Reduced<L>, quarter: i64) -> L::F {
    let (sine, cosine) = polynomials(l, r, tail);
    let sine = l.add(r, sine);
    let cosine = calc!(l, add(cosine, 1.0));
    let quarter = l.int(quarter);
    let q = l.add_int(q, quarter);
    let odd = l.test(q, 1);
    let y = l.select(odd, cosine, sine);
    let two = l.int(2);
    let half = l.and_int(q, two);
    let sign = l.shl(half, if l.wide() { 62 } else { 30 });
    l.flip(y, sign)
}

#[inline(always)]
fn tangent<L: FloatLang>(l: &mut L, (r, tail, q): Reduced<L>) -> L::F {
    let (sine, cosine) = polynomials(l, r, tail);
    // Numerator and denominator as pairs; the quotient is corrected for what they
    // and the reciprocal lost.
    let (s, s_low) = l.fast_two_sum(r, sine);
    let one = l.float(1.0);
    let (c, c_low) = l.fast_two_sum(one, cosine);
    let odd = l.test(q, 1);
    let minus_c = l.neg(c);
    let minus_c_low = l.neg(c_low);
    let n = l.select(odd, minus_c, s);
    let n_low = l.select(odd, minus_c_low, s_low);
    let d = l.select(odd, s, c);
    let d_low = l.select(odd, s_low, c_low);
    let inverse = l.div(one, d);
    let y = l.mul(n, inverse);
    let rest = calc!(l, add(fnma(y, d, n), fnma(y, d_low, n_low)));
    l.fma(rest, inverse, y)
}

#[inline(always)]
pub fn sin<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce(l, x);
    let y = turned(l, reduced, 0);
    l.keep_zero(x, y)
}

#[inline(always)]
pub fn cos<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce(l, x);
    turned(l, reduced, 1)
}

#[inline(always)]
pub fn tan<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce(l, x);
    let y = tangent(l, reduced);
    l.keep_zero(x, y)
}

/// Without the large reduction.
#[inline(always)]
pub fn sin_moderate<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce_moderate(l, x);
    let y = turned(l, reduced, 0);
    l.keep_zero(x, y)
}

#[inline(always)]
pub fn cos_moderate<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce_moderate(l, x);
    turned(l, reduced, 1)
}

#[inline(always)]
pub fn tan_moderate<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let reduced = reduce_moderate(l, x);
    let y = tangent(l, reduced);
    l.keep_zero(x, y)
}
