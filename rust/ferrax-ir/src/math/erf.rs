//! erf, erfc, erf_inv.
//!
//! Small arguments: `x + x p(x²)`. Beyond, in 32 bits `erf(a) = 1 - p(a)^-8` (after C.
//! Hastings, "Approximations for Digital Computers", 1955); else from `erfc(a) = exp(-a²) R`
//! where `R (1 + 2a)` is a polynomial of `(a - c) / (a + c)` (Shepherd and Laframboise,
//! "Chebyshev approximation of (1 + 2x) exp(x²) erfc x", Math. Comp. 36, 1981).
//! Coefficients: `tools/minimax.py erf`.

use super::coefficients::*;
use super::exp::{bias, reduced, scale};
use super::lang::{FloatLang, FloatLangExt, calc};
use super::log::log;

/// For `|x| <= 1`.
#[inline(always)]
fn erf_small<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let z = l.mul(x, x);
    let p = l.poly(z, &ERF_SMALL_32, &ERF_SMALL_64);
    l.fma(x, p, x)
}

/// `expm1(r)` and `k`, with its bias, with `exp(-a²) = 2^k exp(r)`.
#[inline(always)]
fn exp_of_square<L: FloatLang>(l: &mut L, a: L::F) -> (L::F, L::I) {
    let (square, error) = l.two_product(a, a);
    let square = l.neg(square);
    let error = l.neg(error);
    let bias = bias(l);
    reduced(l, square, Some(error), bias)
}

/// For `a >= 0.45`; zero where that is all there is.
#[inline(always)]
fn erfc_large<L: FloatLang>(l: &mut L, a: L::F) -> L::F {
    let high = l.by_width(10.3, 28.0);
    let a = l.at_most(a, high);
    let c = if l.wide() { 4.0 } else { 2.0 };
    let t = calc!(l, div(sub(a, (c)), add(a, (c))));
    if !l.wide() {
        let [first, rest] = l.first_and_rest(t, &ERFC_32, &ERFC_32);
        let n = l.fma(rest, t, first);
        let q = calc!(l, div(n, add(add(a, a), 1.0)));
        let (p, k) = exp_of_square(l, a);
        let y = l.fma(p, q, q);
        return scale(l, y, k);
    }
    // Quotient and exponential are pairs until the last product.
    let [first, rest] = l.first_and_rest(t, &ERFC_32, &ERFC_64);
    let rest = l.mul(rest, t);
    let (n, n_low) = l.fast_two_sum(first, rest);
    let one = l.float(1.0);
    let doubled = l.add(a, a);
    let (d, d_low) = l.two_sum(doubled, one);
    let inverse = l.div(one, d);
    let q = l.mul(n, inverse);
    let (again, again_low) = l.two_product(q, d);
    let lost = calc!(l, sub(sub(sub(n, again), again_low), mul(q, d_low)));
    let q_low = calc!(l, mul(add(lost, n_low), inverse));
    let (p, k) = exp_of_square(l, a);
    let (e, e_low) = l.fast_two_sum(one, p);
    let y = calc!(l, fma(e, q, fma(e, q_low, mul(e_low, q))));
    scale(l, y, k)
}

#[inline(always)]
pub fn erf<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let is_small = calc!(l, lt(a, 1.0));
    let small = erf_small(l, x);
    let high = l.by_width(4.05, 6.0);
    let bounded = l.at_most(a, high);
    let complement = if l.wide() {
        erfc_large(l, bounded)
    } else {
        // Its error is taken eight times: the first coefficient, most of the sum, comes last.
        let [first, rest] = l.first_and_rest(bounded, &ERF_LARGE_32, &ERF_LARGE_32);
        let root = l.fma(rest, bounded, first);
        let square = l.mul(root, root);
        let fourth = l.mul(square, square);
        calc!(l, div(1.0, mul(fourth, fourth)))
    };
    let large = calc!(l, sub(1.0, complement));
    let large = l.with_sign(large, x);
    l.select(is_small, small, large)
}

#[inline(always)]
pub fn erfc<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let a = l.abs(x);
    let is_small = calc!(l, lt(a, 0.5));
    let small = erf_small(l, x);
    let small = calc!(l, sub(1.0, small));
    let right = erfc_large(l, a);
    let left = calc!(l, sub(2.0, right));
    let negative = calc!(l, lt(x, 0.0));
    let large = l.select(negative, left, right);
    l.select(is_small, small, large)
}

/// `x + x p(w)` with `w = -log(1 - x²)`, in the far range by the root of `w` (M. Giles,
/// "Approximating the erfinv function", GPU Computing Gems 2, 2010).
#[inline(always)]
pub fn erf_inv<L: FloatLang>(l: &mut L, x: L::F) -> L::F {
    let one = l.float(1.0);
    let a = l.abs(x);
    let below = l.sub(one, a);
    let above = l.add(one, a);
    let product = l.mul(below, above);
    let w = log(l, product);
    let w = l.neg(w);
    let root = l.sqrt(w);
    let p = if l.wide() {
        // The differences are exact; what the root rounds off counts.
        let root_low = calc!(l, div(fnma(root, root, w), add(root, root)));
        let t = calc!(l, sub(w, 3.125));
        let near = l.poly(t, &ERF_INV_NEAR_64, &ERF_INV_NEAR_64);
        let t = calc!(l, add(sub(root, 3.25), root_low));
        let middle = l.poly(t, &ERF_INV_MIDDLE_64, &ERF_INV_MIDDLE_64);
        let t = calc!(l, add(sub(root, 5.0), root_low));
        let far = l.poly(t, &ERF_INV_FAR_64, &ERF_INV_FAR_64);
        let is_far = calc!(l, le(16.0, w));
        let is_near = calc!(l, lt(w, 6.25));
        let outer = l.select(is_far, far, middle);
        l.select(is_near, near, outer)
    } else {
        let t = calc!(l, sub(w, 2.5));
        let near = l.poly(t, &ERF_INV_NEAR_32, &ERF_INV_NEAR_32);
        let t = calc!(l, sub(root, 3.0));
        let far = l.poly(t, &ERF_INV_FAR_32, &ERF_INV_FAR_32);
        let is_near = calc!(l, lt(w, 5.0));
        l.select(is_near, near, far)
    };
    let y = l.fma(x, p, x);
    let y = l.keep_zero(x, y);
    let edge = l.eq(a, one);
    let infinity = l.float(f64::INFINITY);
    let infinity = l.with_sign(infinity, x);
    let y = l.select(edge, infinity, y);
    let outside = l.lt(one, a);
    calc!(l, select(outside, (f64::NAN), y))
}
