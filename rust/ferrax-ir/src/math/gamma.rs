//! lgamma (the logarithm of |gamma|), digamma.
//!
//! With `t = x - 1` (below 3/4: `t = x`, one recurrence up): on `t` from -1/4 to 3/2
//! `lgamma(1 + t) = t (t - 1) p(t)` and `digamma(1 + t) = (1 + t - root) p(t)`, so
//! both keep their relative accuracy at the positive zeros; up to 8 by recurrence
//! down to there; from 8 on (digamma in 32 bits: 5) by the asymptotic series
//! (Abramowitz and Stegun 6.1.40, 6.3.18), with minimax coefficients. Negative
//! arguments by reflection (6.1.17, 6.3.7): there zeros have absolute accuracy only.
//! Coefficients: `tools/minimax.py gamma`.

use super::coefficients::*;
use super::lang::{FloatLang, FloatLangExt, calc};
use super::log::log;
use super::pow::log_pair;
use super::trig::polynomials;

/// Above this steps down lead to `[3/2, 5/2)`.
const DIRECT: f64 = 2.5;
/// From here on the asymptotic series.
const ASYMPTOTIC: f64 = 8.0;
/// Steps from 8 down to below 5/2.
const STEPS: usize = 6;

/// For `x >= 0`: `lgamma(x)`; whether `x` is below 3/4, and `lgamma(1 + x)` if so.
#[inline(always)]
fn lgamma_positive<L: FloatLang>(l: &mut L, x: L::F) -> (L::F, L::B, L::F) {
    let large = calc!(l, le((ASYMPTOTIC), x));
    let below = calc!(l, lt(x, 0.75));
    // Down to [3/2, 5/2): the product of what was passed.
    let mut v = x;
    let mut product = l.float(1.0);
    for _ in 0..STEPS {
        let high = calc!(l, le((DIRECT), v));
        let lower = calc!(l, sub(v, 1.0));
        let more = l.mul(product, lower);
        product = l.select(high, more, product);
        v = l.select(high, lower, v);
    }
    let reduced = calc!(l, sub(v, 1.0));
    let t = l.select(below, x, reduced);
    let p = calc!(l, sub(t, 0.625));
    let p = l.poly_in_turn(p, &LGAMMA_32, &LGAMMA_64);
    // t (t - 1); rounded once where that is possible.
    let zeros = if l.fused() { calc!(l, fma(t, t, neg(t))) } else { calc!(l, mul(t, sub(t, 1.0))) };
    let direct = l.mul(zeros, p);
    let argument = l.select(below, x, product);
    let argument = l.select(large, x, argument);
    let (logarithm, logarithm_low) = log_pair(l, argument);
    let minus = l.neg(logarithm);
    let signed = l.select(below, minus, logarithm);
    let minus = l.neg(logarithm_low);
    let signed_low = l.select(below, minus, logarithm_low);
    let small = calc!(l, add(signed, add(direct, signed_low)));
    let zero = calc!(l, eq(x, 0.0));
    let small = calc!(l, select(zero, (f64::INFINITY), small));
    let inverse = calc!(l, div(1.0, x));
    let z = l.mul(inverse, inverse);
    let series = l.poly(z, &STIRLING_32, &STIRLING_64);
    let tail = calc!(l, fma(inverse, series, (0.918_938_533_204_672_7 - 0.5)));
    let minus_one = l.float(-1.0);
    let (less, lost) = l.fast_two_sum(logarithm, minus_one);
    let less_low = l.add(lost, logarithm_low);
    let tail = calc!(l, fma(less, (-0.5), fma(x, less_low, tail)));
    let asymptotic = l.fma(x, less, tail);
    (l.select(large, asymptotic, small), below, direct)
}

/// The sine and cosine of pi times the signed distance from `a` to the nearest
/// integer: `sin(pi a)` and `cos(pi a)` but for one common sign.
#[inline(always)]
fn sin_cos_pi<L: FloatLang>(l: &mut L, a: L::F) -> (L::F, L::F) {
    let nearest = l.round_even(a);
    let f = l.sub(a, nearest);
    let magnitude = l.abs(f);
    let outer = calc!(l, lt(0.25, magnitude));
    let complement = calc!(l, sub(0.5, magnitude));
    let g = l.select(outer, complement, magnitude);
    let pi = l.by_width(PI_4_4_32[0], PI_4_4_64[0]);
    let pi_low = l.by_width(PI_4_4_32[1], PI_4_4_64[1]);
    let (r, error) = l.two_product(g, pi);
    let tail = l.fma(g, pi_low, error);
    let (sine, cosine) = polynomials(l, r, tail);
    let sine = l.add(r, sine);
    let cosine = calc!(l, add(cosine, 1.0));
    let s = l.select(outer, cosine, sine);
    let c = l.select(outer, sine, cosine);
    (l.with_sign(s, f), c)
}

#[inline(always)]
pub fn lgamma<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let (positive, below, next) = lgamma_positive(l, a);
    let (sine, _) = sin_cos_pi(l, a);
    // -log(a |sin(pi a)| / pi) - lgamma(a); close to 0, where the product underflows,
    // -log(|sin(pi a)| / pi) - lgamma(1 + a).
    let factor = calc!(l, select(below, 1.0, a));
    let rest = l.select(below, next, positive);
    let product = calc!(l, mul(mul(factor, abs(sine)), (std::f64::consts::FRAC_1_PI)));
    let logarithm = log(l, product);
    let reflected = calc!(l, neg(add(logarithm, rest)));
    let pole = calc!(l, eq(sine, 0.0));
    let reflected = calc!(l, select(pole, (f64::INFINITY), reflected));
    let negative = calc!(l, lt(x, 0.0));
    let y = l.select(negative, reflected, positive);
    let finite = calc!(l, lt(a, (f64::INFINITY)));
    l.select(finite, y, a)
}

/// For `x >= 0`.
#[inline(always)]
fn digamma_positive<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    // In 32 bits the series serves from 5 on, and fewer steps round less.
    let (start, steps) = if l.wide() { (ASYMPTOTIC, STEPS) } else { (5.0, 3) };
    let large = calc!(l, le((start), x));
    let below = calc!(l, lt(x, 0.75));
    let zero = l.float(0.0);
    let one = l.float(1.0);
    // The sum of the inverses of what was passed, as one fraction.
    let mut v = x;
    let mut n = zero;
    let mut d = one;
    for _ in 0..steps {
        let high = calc!(l, le((DIRECT), v));
        let lower = l.sub(v, one);
        let more = l.fma(n, lower, d);
        n = l.select(high, more, n);
        let more = l.mul(d, lower);
        d = l.select(high, more, d);
        v = l.select(high, lower, v);
    }
    // Below 3/4 it is -1/x; for large arguments 1/x is what is wanted.
    let minus_one = l.neg(one);
    let n = l.select(below, minus_one, n);
    let n = l.select(large, one, n);
    let use_x = l.either(below, large);
    let d = l.select(use_x, x, d);
    let fraction = l.div(n, d);
    let reduced = l.sub(v, one);
    let t = l.select(below, x, reduced);
    let p = calc!(l, sub(t, 0.625));
    let p = l.poly_in_turn(p, &DIGAMMA_32, &DIGAMMA_64);
    let root = l.by_width(DIGAMMA_ROOT_LESS_1_32[0], DIGAMMA_ROOT_LESS_1_64[0]);
    let root_low = l.by_width(DIGAMMA_ROOT_LESS_1_32[1], DIGAMMA_ROOT_LESS_1_64[1]);
    let distance = calc!(l, sub(sub(t, root), root_low));
    let small = l.fma(distance, p, fraction);
    let z = l.mul(fraction, fraction);
    let series = l.poly(z, &DIGAMMA_TAIL_32, &DIGAMMA_TAIL_64);
    let logarithm = log(l, x);
    let tail = calc!(l, fma(z, series, mul(fraction, 0.5)));
    let asymptotic = l.sub(logarithm, tail);
    l.select(large, asymptotic, small)
}

#[inline(always)]
pub fn digamma<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    // digamma(1 - x) - pi / tan(pi x)
    let negative = calc!(l, le(x, 0.0));
    let mirrored = calc!(l, sub(1.0, x));
    let v = l.select(negative, mirrored, x);
    let y = digamma_positive(l, v);
    let a = l.neg(x);
    let (sine, cosine) = sin_cos_pi(l, a);
    let pi = l.float(std::f64::consts::PI);
    let cotangent = calc!(l, div(mul(pi, cosine), sine));
    let reflected = l.add(y, cotangent);
    let pole = calc!(l, eq(sine, 0.0));
    let reflected = calc!(l, select(pole, (f64::NAN), reflected));
    let y = l.select(negative, reflected, y);
    let highest = calc!(l, eq(x, (f64::INFINITY)));
    l.select(highest, x, y)
}
