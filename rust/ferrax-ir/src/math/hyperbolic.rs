//! sinh, cosh, asinh, acosh, atanh.
//!
//! sinh near zero by `x + x³ p(x²)` (`tools/minimax.py hyperbolic`), beyond from half
//! the exponential, which does not overflow early. The inverses are logarithms of
//! `1 + t` with a `t` that does not cancel.

use super::coefficients::*;
use super::exp::half_exp;
use super::lang::{FloatLang, FloatLangExt, calc};
use super::log::{assemble, split};

#[inline(always)]
pub fn sinh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let z = l.mul(x, x);
    let p = l.poly(z, &SINH_32, &SINH_64);
    let small = calc!(l, fma(mul(x, z), p, x));
    let e = half_exp(l, a);
    let large = calc!(l, sub(e, div(0.25, e)));
    let large = l.with_sign(large, x);
    let is_small = calc!(l, lt(a, 1.0));
    l.select(is_small, small, large)
}

#[inline(always)]
pub fn cosh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let e = half_exp(l, a);
    calc!(l, add(e, div(0.25, e)))
}

/// `log(1 + t + t_low)`, or `log(2 a)` where `is_large` says that this is it.
#[inline(always)]
fn log_of<L: FloatLang>(l: &mut L, t: L::F, t_low: L::F, a: L::F, is_large: L::B) -> L::F {
    let format = l.format();
    let sum = calc!(l, add(t, 1.0));
    let v = l.select(is_large, a, sum);
    let (k, k_float, m) = split(l, v);
    let bias = l.int(format.exponent_bias);
    let exponent = l.sub_int(bias, k);
    let inverse = l.shl(exponent, format.fraction);
    let inverse = l.from_bits(inverse);
    let near = calc!(l, fma(t, inverse, sub(inverse, 1.0)));
    let far = calc!(l, sub(m, 1.0));
    let f = l.select(is_large, far, near);
    let one_more = calc!(l, add(k_float, 1.0));
    let k = l.select(is_large, one_more, k_float);
    let y = assemble(l, k, f);
    // What t_low adds is its share of 1 + t.
    let corrected = calc!(l, add(y, div(t_low, sum)));
    let y = l.select(is_large, y, corrected);
    let finite = calc!(l, lt(a, (f64::INFINITY)));
    l.select(finite, y, a)
}

/// From here on `1 + x²` is `x²` in the format.
#[inline(always)]
fn large_from<L: FloatLang>(l: &mut L) -> L::F {
    l.by_width(2f64.powi(14), 2f64.powi(28))
}

#[inline(always)]
pub fn asinh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let limit = large_from(l);
    let is_large = l.le(limit, a);
    let bounded = l.at_most(a, limit);
    let square = l.mul(bounded, bounded);
    let root = calc!(l, sqrt(add(square, 1.0)));
    let rest = calc!(l, div(square, add(root, 1.0)));
    let (t, t_low) = l.two_sum(bounded, rest);
    let y = log_of(l, t, t_low, a, is_large);
    l.with_sign(y, x)
}

#[inline(always)]
pub fn acosh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let limit = large_from(l);
    let is_large = l.le(limit, x);
    let bounded = l.at_most(x, limit);
    let u = calc!(l, sub(bounded, 1.0));
    let (product, error) = l.two_product(u, u);
    let doubled = l.add(u, u);
    let (radicand, lost) = l.two_sum(doubled, product);
    let lost = l.add(lost, error);
    let root = l.sqrt(radicand);
    // The root's own error, by one step of Newton's method.
    let (again, again_low) = l.two_product(root, root);
    let rest = calc!(l, add(sub(sub(radicand, again), again_low), lost));
    let twice = l.add(root, root);
    let positive = calc!(l, lt(0.0, root));
    let one = l.float(1.0);
    let twice = l.select(positive, twice, one);
    let root_low = l.div(rest, twice);
    let (t, t_low) = l.two_sum(root, u);
    let t_low = l.add(t_low, root_low);
    let y = log_of(l, t, t_low, x, is_large);
    let inside = calc!(l, le(1.0, x));
    calc!(l, select(inside, y, (f64::NAN)))
}

/// `log((1 + a) / (1 - a)) / 2` with `(1 + a) / (1 - a) = 2^k (1 + s) / (1 - s)`.
#[inline(always)]
pub fn atanh<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let format = l.format();
    let a = l.abs(x);
    let above = calc!(l, add(1.0, a));
    let below = calc!(l, sub(1.0, a));
    // The difference of the bits is the quotient's logarithm, to about 0.09.
    let above_bits = l.bits(above);
    let below_bits = l.bits(below);
    let difference = l.sub_int(above_bits, below_bits);
    let half = l.int(1 << (format.fraction - 1));
    let difference = l.add_int(difference, half);
    let k = l.shr(difference, format.fraction);
    let bias = l.int(format.exponent_bias);
    let biased = l.add_int(k, bias);
    let c = l.power_of_two(biased);
    let k = l.to_float(k);
    // For c = 1, 2, 4 its sums with 1 are exact; for a >= 1/2 that of 1 - a is.
    let c_above = calc!(l, add(c, 1.0));
    let c_below = calc!(l, sub(1.0, c));
    let near_n = l.fma(a, c_above, c_below);
    let near_d = l.fma(a, c_below, c_above);
    let far_n = l.fnma(c, below, above);
    let far_d = l.fma(c, below, above);
    let near = calc!(l, lt(a, 0.5));
    let n = l.select(near, near_n, far_n);
    let d = l.select(near, near_d, far_d);
    let s = l.div(n, d);
    let z = l.mul(s, s);
    // In 64 bits the logarithm's polynomial, which is for twice this.
    let p = l.poly(z, &ATANH_32, &LOG_64);
    let p = if l.wide() { calc!(l, mul(p, 0.5)) } else { p };
    let high = l.by_width(LN_2_32[0] / 2.0, LN_2_64[0] / 2.0);
    let low = l.by_width(LN_2_32[1] / 2.0, LN_2_64[1] / 2.0);
    let correction = calc!(l, fma(mul(s, z), p, mul(k, low)));
    // Both sums round; the larger first sum's error is kept.
    let product = l.mul(k, high);
    let (sum, lost) = l.two_sum(product, s);
    let y = calc!(l, add(sum, add(correction, lost)));
    let inside = calc!(l, lt(a, 1.0));
    let outside = calc!(l, lt(1.0, a));
    let edge = calc!(l, select(outside, (f64::NAN), (f64::INFINITY)));
    let is_number = l.eq(a, a);
    let edge = l.select(is_number, edge, a);
    let y = l.select(inside, y, edge);
    l.with_sign(y, x)
}
