//! Inverse trigonometric and hyperbolic functions of complex numbers.
//!
//! They follow W. Kahan, "Branch cuts for complex elementary functions, or much
//! ado about nothing's sign bit" (1987), evaluated in the first quadrant and
//! reflected. On the cuts of asin, acos, asinh and acosh the sign of a zero does
//! not count, as in JAX; for atan and atanh it does.

use super::arithmetic::Arithmetic;
use super::complex::{Pair, first_quadrant_sqrt, log_abs};
use crate::scalar::MathFn;

/// Real and imaginary part of asin and the real part of acos, for the number's
/// reflection into the first quadrant.
fn inverse_sine<A: Arithmetic>(a: &mut A, z: Pair<A>) -> (A::R, A::R, A::R) {
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let zero = a.constant(0.0);
    // sqrt(1 + z) = p + iq and sqrt(1 - z) = r - is; all four are not negative.
    let above = a.offset(x, 1.0);
    let (p, q) = first_quadrant_sqrt(a, above, y);
    let one = a.constant(1.0);
    let below = a.sub(one, x);
    let magnitude = a.abs(below);
    let (r, s) = first_quadrant_sqrt(a, magnitude, y);
    let turned = a.lt(below, zero);
    let (r, s) = (a.select(turned, s, r), a.select(turned, r, s));
    // Re(sqrt(1 - z) sqrt(1 + z)) and Im(conj(sqrt(1 - z)) sqrt(1 + z)).
    let (pr, qs) = (a.mul(p, r), a.mul(q, s));
    let adjacent = a.add(pr, qs);
    let (qr, ps) = (a.mul(q, r), a.mul(p, s));
    let opposite = a.add(qr, ps);
    let re = a.atan2(x, adjacent);
    let im = a.math(MathFn::Asinh, opposite);
    let quarter = a.atan2(r, p);
    let acos = a.scale(quarter, 2.0);
    // Far out: the logarithm of 2z.
    let limit = a.constant(if a.precision() == 53 { 2f64.powi(40) } else { 2f64.powi(20) });
    let size = a.max(x, y);
    let is_far = a.lt(limit, size);
    let (far_re, far_acos) = (a.atan2(x, y), a.atan2(y, x));
    let log = log_abs(a, (x, y));
    let far_im = a.offset(log, std::f64::consts::LN_2);
    (a.select(is_far, far_re, re), a.select(is_far, far_im, im), a.select(is_far, far_acos, acos))
}

/// `magnitude` with the sign of the number `like`; zeros count as positive.
fn with_sign<A: Arithmetic>(a: &mut A, magnitude: A::R, like: A::R) -> A::R {
    let zero = a.constant(0.0);
    let negative = a.lt(like, zero);
    let flipped = a.neg(magnitude);
    a.select(negative, flipped, magnitude)
}

pub fn asin<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (re, im, _) = inverse_sine(a, z);
    (a.copysign(re, z.0), with_sign(a, im, z.1))
}

pub fn acos<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (_, im, re) = inverse_sine(a, z);
    let (zero, pi) = (a.constant(0.0), a.constant(std::f64::consts::PI));
    let reflected = a.sub(pi, re);
    let negative = a.lt(z.0, zero);
    let im = with_sign(a, im, z.1);
    (a.select(negative, reflected, re), a.neg(im))
}

/// `asinh z = -i asin(i z)`.
pub fn asinh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (im, re, _) = inverse_sine(a, (z.1, z.0));
    (with_sign(a, re, z.0), a.copysign(im, z.1))
}

/// `acosh z = ±i acos z`, the sign being that of the imaginary part.
pub fn acosh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (_, re, angle) = inverse_sine(a, z);
    let (zero, pi) = (a.constant(0.0), a.constant(std::f64::consts::PI));
    let reflected = a.sub(pi, angle);
    let negative = a.lt(z.0, zero);
    let im = a.select(negative, reflected, angle);
    (re, with_sign(a, im, z.1))
}

/// Real part `log1p(4x / ((1-x)² + y²)) / 4`, imaginary part the angle of
/// `(1-x)(1+x) - y² + 2iy` halved; all divided by the size of z against overflow.
pub fn atanh<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let (x, y) = (a.abs(z.0), a.abs(z.1));
    let (zero, one, infinity) = (a.constant(0.0), a.constant(1.0), a.constant(f64::INFINITY));
    let size = a.max(x, y);
    let size = a.max(size, one);
    let (u, v) = (a.div(x, size), a.div(y, size));
    let below = a.sub(one, x);
    let scaled = a.div(below, size);
    let square = a.mul(scaled, below);
    let y_square = a.mul(v, y);
    let denominator = a.add(square, y_square);
    let numerator = a.scale(u, 4.0);
    let ratio = a.div(numerator, denominator);
    let log = a.math(MathFn::Log1p, ratio);
    let re = a.scale(log, 0.25);
    let above = a.offset(x, 1.0);
    let product = a.mul(scaled, above);
    let adjacent = a.sub(product, y_square);
    let opposite = a.scale(v, 2.0);
    let angle = a.atan2(opposite, adjacent);
    let im = a.scale(angle, 0.5);
    let is_infinite = a.eq(size, infinity);
    let right = a.constant(std::f64::consts::FRAC_PI_2);
    let (re, im) = (a.select(is_infinite, zero, re), a.select(is_infinite, right, im));
    (a.copysign(re, z.0), a.copysign(im, z.1))
}

/// `atan z = -i atanh(i z)`.
pub fn atan<A: Arithmetic>(a: &mut A, z: Pair<A>) -> Pair<A> {
    let turned = (a.neg(z.1), z.0);
    let (re, im) = atanh(a, turned);
    (im, a.neg(re))
}
