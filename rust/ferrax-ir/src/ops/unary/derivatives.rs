//! Derivatives of the ops of one operand that are longer than a line.
//!
//! Slopes take the operand `x` and the result `y`; tangents the operand's tangent `g`
//! before them; transpositions the cotangent and the operand's type.

use crate::ops::derive::{constant, spread};
use crate::ops::rounding::{IntegerPow, Round};
use crate::ops::{Binary, Compare, ConvertElementType, Unary};
use crate::{ArrayType, Atom, Builder, DType, Result};

pub fn offset(b: &mut Builder, x: Atom, by: f64) -> Result<Atom> {
    let by = constant(b, x, by);
    b.add(x, by)
}

pub fn scale(b: &mut Builder, x: Atom, by: f64) -> Result<Atom> {
    let by = constant(b, x, by);
    b.mul(x, by)
}

pub fn abs(b: &mut Builder, g: Atom, x: Atom, y: Atom) -> Result<Atom> {
    if b.dtype(x).is_complex() {
        // d|z| = Re(conj(z) dz) / |z|; zero at zero. Not by the sign of z, whose own derivative is
        // zero by convention.
        let conjugate = b.unary(Unary::Conj, x)?;
        let product = b.mul(g, conjugate)?;
        let product = b.unary(Unary::Real, product)?;
        let zero = constant(b, y, 0.0);
        let is_zero = b.compare(Compare::Eq, y, zero)?;
        let ones = b.full_like(y, 1.0)?;
        let magnitude = b.select(is_zero, ones, y)?;
        return b.div(product, magnitude);
    }
    let zero = constant(b, x, 0.0);
    let positive = b.compare(Compare::Ge, x, zero)?;
    let negated = b.neg(g)?;
    b.select(positive, g, negated)
}

pub fn log1p(b: &mut Builder, g: Atom, x: Atom, _: Atom) -> Result<Atom> {
    let shifted = offset(b, x, 1.0)?;
    b.div(g, shifted)
}

pub fn atan(b: &mut Builder, g: Atom, x: Atom, _: Atom) -> Result<Atom> {
    let square = b.unary(Unary::Square, x)?;
    let denominator = offset(b, square, 1.0)?;
    b.div(g, denominator)
}

pub fn atanh(b: &mut Builder, g: Atom, x: Atom, _: Atom) -> Result<Atom> {
    let one = constant(b, x, 1.0);
    let (below, above) = (b.sub(one, x)?, b.add(one, x)?);
    let denominator = b.mul(below, above)?;
    b.div(g, denominator)
}

/// `y^-2 / 3`: infinite at zero, as all derivatives are that follow. As a power, for the derivative of
/// a quotient is infinity times zero there.
pub fn cbrt(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let power = b.emit1(IntegerPow { y: -2 }, &[y])?;
    scale(b, power, 1.0 / 3.0)
}

/// `(1 - y)(1 + y)` is exact near ±1.
pub fn tanh(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let one = constant(b, y, 1.0);
    let (below, above) = (b.sub(one, y)?, b.add(one, y)?);
    b.mul(below, above)
}

pub fn logistic(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let one = constant(b, y, 1.0);
    let complement = b.sub(one, y)?;
    b.mul(y, complement)
}

pub fn cos(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    let sin = b.unary(Unary::Sin, x)?;
    b.neg(sin)
}

pub fn tan(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let square = b.unary(Unary::Square, y)?;
    offset(b, square, 1.0)
}

/// `e^x`, and not `y + 1`, which is 0 where `y` has rounded to -1.
pub fn expm1(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    b.unary(Unary::Exp, x)
}

pub fn asin(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    let one = constant(b, x, 1.0);
    let square = b.unary(Unary::Square, x)?;
    let radicand = b.sub(one, square)?;
    b.unary(Unary::Rsqrt, radicand)
}

pub fn acos(b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    let slope = asin(b, x, y)?;
    b.neg(slope)
}

/// `1 / √(1 + x²)`; of real numbers beyond ±1 by their reciprocal, whose square does not overflow.
pub fn asinh(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    if b.dtype(x).is_complex() {
        let square = b.unary(Unary::Square, x)?;
        let radicand = offset(b, square, 1.0)?;
        return b.unary(Unary::Rsqrt, radicand);
    }
    let one = constant(b, x, 1.0);
    let size = b.unary(Unary::Abs, x)?;
    let far = b.compare(Compare::Gt, size, one)?;
    let ones = spread(b, one, x)?;
    let large = b.select(far, size, ones)?;
    let inverse = b.div(one, large)?;
    let small = b.select(far, inverse, x)?;
    let square = b.unary(Unary::Square, small)?;
    let radicand = offset(b, square, 1.0)?;
    let root = b.unary(Unary::Rsqrt, radicand)?;
    b.mul(root, inverse)
}

/// Two roots: that of the product has another branch cut.
pub fn acosh(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    let (below, above) = (offset(b, x, -1.0)?, offset(b, x, 1.0)?);
    let (p, q) = (b.unary(Unary::Rsqrt, below)?, b.unary(Unary::Rsqrt, above)?);
    b.mul(p, q)
}

pub fn sqrt(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let half = constant(b, y, 0.5);
    b.div(half, y)
}

pub fn rsqrt(b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    let ratio = b.div(y, x)?;
    scale(b, ratio, -0.5)
}

/// `2 e^(-x²) / √π`.
pub fn erf(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    bell(b, x, std::f64::consts::FRAC_2_SQRT_PI)
}

pub fn erfc(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    bell(b, x, -std::f64::consts::FRAC_2_SQRT_PI)
}

fn bell(b: &mut Builder, x: Atom, height: f64) -> Result<Atom> {
    let square = b.unary(Unary::Square, x)?;
    let negated = b.neg(square)?;
    let bell = b.unary(Unary::Exp, negated)?;
    scale(b, bell, height)
}

pub fn erf_inv(b: &mut Builder, _: Atom, y: Atom) -> Result<Atom> {
    let square = b.unary(Unary::Square, y)?;
    let bell = b.unary(Unary::Exp, square)?;
    scale(b, bell, std::f64::consts::FRAC_2_SQRT_PI.recip())
}

/// The slope of digamma; of halves, which its terms exceed, in `float32`.
pub fn trigamma(b: &mut Builder, x: Atom, _: Atom) -> Result<Atom> {
    if !matches!(b.dtype(x), DType::BF16 | DType::F16) {
        return expanded_trigamma(b, x);
    }
    let wide = b.convert(x, DType::F32)?;
    let value = expanded_trigamma(b, wide)?;
    b.convert(value, b.dtype(x))
}

/// From ops that are here, so that it has derivatives of any order: recurrence from x to
/// x + 12 (DLMF 5.15.5), then the asymptotic series (5.15.8); below 1/2 the reflection
/// `psi'(x) = π² / sin²(πx) - psi'(1 - x)` (5.15.6). The series are those of the
/// derivatives, too, term by term; what is left out of the n-th is below
/// `(n + 16)! / 16! · 7 / 12^(n + 17)`.
fn expanded_trigamma(b: &mut Builder, x: Atom) -> Result<Atom> {
    const STEPS: usize = 12;
    /// Bernoulli numbers B2, B4, ….
    const SERIES: [f64; 7] =
        [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0];
    let half = constant(b, x, 0.5);
    let one = constant(b, x, 1.0);
    let low = b.compare(Compare::Lt, x, half)?;
    let mirrored = b.sub(one, x)?;
    let start = b.select(low, mirrored, x)?;

    let mut total = None;
    for step in 0..STEPS {
        let place = if step == 0 { start } else { offset(b, start, step as f64)? };
        let term = b.emit1(IntegerPow { y: -2 }, &[place])?;
        total = Some(match total {
            None => term,
            Some(sum) => b.add(sum, term)?,
        });
    }
    let far = offset(b, start, STEPS as f64)?;
    let inverse = b.div(one, far)?;
    let square = b.unary(Unary::Square, inverse)?;
    // 1/z + 1/(2z²) + Σ B2k / z^(2k+1)
    let mut series = constant(b, x, SERIES[SERIES.len() - 1]);
    for &coefficient in SERIES.iter().rev().skip(1) {
        let product = b.mul(series, square)?;
        series = offset(b, product, coefficient)?;
    }
    let product = b.mul(series, square)?;
    let tail = offset(b, product, 1.0)?;
    let tail = b.mul(tail, inverse)?;
    let middle = scale(b, square, 0.5)?;
    let tail = b.add(tail, middle)?;
    let value = match total {
        Some(sum) => b.add(sum, tail)?,
        None => tail,
    };

    let nearest = b.emit1(Round { rounding_method: 1 }, &[x])?;
    let fraction = b.sub(x, nearest)?;
    // Where it is not reflected, away from the poles: their derivatives would be NaN times zero.
    let away = constant(b, x, 0.25);
    let away = spread(b, away, x)?;
    let fraction = b.select(low, fraction, away)?;
    let angle = scale(b, fraction, std::f64::consts::PI)?;
    let sin = b.unary(Unary::Sin, angle)?;
    let sin = b.unary(Unary::Square, sin)?;
    let pi_square = constant(b, x, std::f64::consts::PI * std::f64::consts::PI);
    let pole = b.div(pi_square, sin)?;
    let reflected = b.sub(pole, value)?;
    b.select(low, reflected, value)
}

pub fn neg_transposed(b: &mut Builder, ct: Atom, _: &ArrayType) -> Result<Atom> {
    b.neg(ct)
}

/// The other part is strong, and so is the cotangent.
pub fn real_transposed(b: &mut Builder, ct: Atom, _: &ArrayType) -> Result<Atom> {
    let zero = b.scalar(b.dtype(ct), 0.0);
    b.binary(Binary::Complex, ct, zero)
}

pub fn imag_transposed(b: &mut Builder, ct: Atom, _: &ArrayType) -> Result<Atom> {
    let zero = b.scalar(b.dtype(ct), 0.0);
    let negated = b.neg(ct)?;
    b.binary(Binary::Complex, zero, negated)
}

pub fn conj_transposed(b: &mut Builder, ct: Atom, operand: &ArrayType) -> Result<Atom> {
    let conjugate = b.unary(Unary::Conj, ct)?;
    if operand.dtype.is_complex() {
        return Ok(conjugate);
    }
    b.emit1(ConvertElementType { new_dtype: operand.dtype, weak_type: operand.weak }, &[conjugate])
}
