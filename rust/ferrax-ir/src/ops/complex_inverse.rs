//! Inverse trigonometric and hyperbolic functions of complex numbers.
//!
//! They follow W. Kahan, "Branch cuts for complex elementary functions, or much
//! ado about nothing's sign bit" (1987), evaluated in the first quadrant and
//! reflected. On the cuts of asin, acos, asinh and acosh the sign of a zero does
//! not count, as in JAX; for atan and atanh it does.

use super::complex::{Pair, first_quadrant_sqrt, log_abs};
use super::formula::Formulas;
use crate::math::MathFn;

/// Real and imaginary part of asin and the real part of acos, for the number's
/// reflection into the first quadrant.
fn inverse_sine<L: Formulas>(l: &mut L, z: Pair<L>) -> (L::F, L::F, L::F) {
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let zero = l.float(0.0);
    // sqrt(1 + z) = p + iq and sqrt(1 - z) = r - is; all four are not negative.
    let above = l.offset(x, 1.0);
    let (p, q) = first_quadrant_sqrt(l, above, y);
    let one = l.float(1.0);
    let below = l.sub(one, x);
    let magnitude = l.abs(below);
    let (r, s) = first_quadrant_sqrt(l, magnitude, y);
    let turned = l.lt(below, zero);
    let (r, s) = (l.select(turned, s, r), l.select(turned, r, s));
    // Re(sqrt(1 - z) sqrt(1 + z)) and Im(conj(sqrt(1 - z)) sqrt(1 + z)).
    let (pr, qs) = (l.mul(p, r), l.mul(q, s));
    let adjacent = l.add(pr, qs);
    let (qr, ps) = (l.mul(q, r), l.mul(p, s));
    let opposite = l.add(qr, ps);
    let re = l.atan2(x, adjacent);
    let im = l.math(MathFn::Asinh, opposite);
    let quarter = l.atan2(r, p);
    let acos = l.scale(quarter, 2.0);
    // Far out: the logarithm of 2z.
    let limit = l.float(if l.wide() { 2f64.powi(40) } else { 2f64.powi(20) });
    let size = l.max(x, y);
    let is_far = l.lt(limit, size);
    let (far_re, far_acos) = (l.atan2(x, y), l.atan2(y, x));
    let log = log_abs(l, (x, y));
    let far_im = l.offset(log, std::f64::consts::LN_2);
    (l.select(is_far, far_re, re), l.select(is_far, far_im, im), l.select(is_far, far_acos, acos))
}

/// `magnitude` with the sign of the number `like`; zeros count as positive.
fn with_sign<L: Formulas>(l: &mut L, magnitude: L::F, like: L::F) -> L::F {
    let zero = l.float(0.0);
    let negative = l.lt(like, zero);
    let flipped = l.neg(magnitude);
    l.select(negative, flipped, magnitude)
}

pub fn asin<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (re, im, _) = inverse_sine(l, z);
    (l.copysign(re, z.0), with_sign(l, im, z.1))
}

pub fn acos<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (_, im, re) = inverse_sine(l, z);
    let (zero, pi) = (l.float(0.0), l.float(std::f64::consts::PI));
    let reflected = l.sub(pi, re);
    let negative = l.lt(z.0, zero);
    let im = with_sign(l, im, z.1);
    (l.select(negative, reflected, re), l.neg(im))
}

/// `asinh z = -i asin(i z)`.
pub fn asinh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (im, re, _) = inverse_sine(l, (z.1, z.0));
    (with_sign(l, re, z.0), l.copysign(im, z.1))
}

/// `acosh z = ±i acos z`, the sign being that of the imaginary part.
pub fn acosh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (_, re, angle) = inverse_sine(l, z);
    let (zero, pi) = (l.float(0.0), l.float(std::f64::consts::PI));
    let reflected = l.sub(pi, angle);
    let negative = l.lt(z.0, zero);
    let im = l.select(negative, reflected, angle);
    (re, with_sign(l, im, z.1))
}

/// Real part `log1p(4x / ((1-x)² + y²)) / 4`, imaginary part the angle of
/// `(1-x)(1+x) - y² + 2iy` halved; all divided by the size of z against overflow.
pub fn atanh<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let (x, y) = (l.abs(z.0), l.abs(z.1));
    let (zero, one, infinity) = (l.float(0.0), l.float(1.0), l.float(f64::INFINITY));
    let size = l.max(x, y);
    let size = l.max(size, one);
    let (u, v) = (l.div(x, size), l.div(y, size));
    let below = l.sub(one, x);
    let scaled = l.div(below, size);
    let square = l.mul(scaled, below);
    let y_square = l.mul(v, y);
    let denominator = l.add(square, y_square);
    let numerator = l.scale(u, 4.0);
    let ratio = l.div(numerator, denominator);
    let log = l.math(MathFn::Log1p, ratio);
    let re = l.scale(log, 0.25);
    let above = l.offset(x, 1.0);
    let product = l.mul(scaled, above);
    let adjacent = l.sub(product, y_square);
    let opposite = l.scale(v, 2.0);
    let angle = l.atan2(opposite, adjacent);
    let im = l.scale(angle, 0.5);
    let is_infinite = l.eq(size, infinity);
    let right = l.float(std::f64::consts::FRAC_PI_2);
    let (re, im) = (l.select(is_infinite, zero, re), l.select(is_infinite, right, im));
    (l.copysign(re, z.0), l.copysign(im, z.1))
}

/// `atan z = -i atanh(i z)`.
pub fn atan<L: Formulas>(l: &mut L, z: Pair<L>) -> Pair<L> {
    let turned = (l.neg(z.1), z.0);
    let (re, im) = atanh(l, turned);
    (im, l.neg(re))
}
