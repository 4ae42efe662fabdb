//! Derivatives of the elementwise ops of one operand. Complex functions have
//! their holomorphic derivative, without conjugation.

use smallvec::smallvec;

use super::convert::ConvertElementType;
use super::derive::{Cotangents, Tangents, constant, cotangent, each_linear, linear, zero};
use super::rounding::{IntegerPow, Round};
use super::{Binary, Compare, Unary};
use crate::rules::{Jvp, Transpose, not_linear};
use crate::{Atom, Builder, DType, Result, internal_error};

pub fn jvp(op: Unary, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
    let Some(g) = eqn.tangents[0] else { return Ok(zero()) };
    let (x, y) = (eqn.inputs[0], eqn.outputs[0]);
    let tangent = match op {
        Unary::Sign
        | Unary::Floor
        | Unary::Ceil
        | Unary::IsFinite
        | Unary::Not
        | Unary::PopulationCount
        | Unary::Clz => return Ok(zero()),
        Unary::Neg | Unary::Real | Unary::Imag | Unary::Conj => b.unary(op, g)?,
        Unary::Abs if b.dtype(x).is_complex() => {
            // d|z| = Re(conj(z) dz) / |z|; zero at zero. Not by the sign of z, whose own derivative is
            // zero by convention.
            let conjugate = b.unary(Unary::Conj, x)?;
            let product = b.mul(g, conjugate)?;
            let product = b.unary(Unary::Real, product)?;
            let zero = constant(b, y, 0.0);
            let is_zero = b.compare(Compare::Eq, y, zero)?;
            let ones = b.full_like(y, 1.0)?;
            let magnitude = b.select(is_zero, ones, y)?;
            b.div(product, magnitude)?
        }
        Unary::Abs => {
            let zero = constant(b, x, 0.0);
            let positive = b.compare(Compare::Ge, x, zero)?;
            let negated = b.neg(g)?;
            b.select(positive, g, negated)?
        }
        // g y' as a division.
        Unary::Log => b.div(g, x)?,
        Unary::Log1p => {
            let shifted = offset(b, x, 1.0)?;
            b.div(g, shifted)?
        }
        Unary::Atan => {
            let square = b.unary(Unary::Square, x)?;
            let denominator = offset(b, square, 1.0)?;
            b.div(g, denominator)?
        }
        Unary::Atanh => {
            let one = constant(b, x, 1.0);
            let (below, above) = (b.sub(one, x)?, b.add(one, x)?);
            let denominator = b.mul(below, above)?;
            b.div(g, denominator)?
        }
        Unary::Cbrt => {
            let ratio = b.div(y, x)?;
            let slope = scale(b, ratio, 1.0 / 3.0)?;
            b.mul(g, slope)?
        }
        _ => {
            let slope = slope(op, b, x, y)?;
            b.mul(g, slope)?
        }
    };
    Ok(smallvec![Some(tangent)])
}

/// The derivative at `x`, where the value is `y`.
fn slope(op: Unary, b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    match op {
        Unary::Exp => Ok(y),
        Unary::Exp2 => scale(b, y, std::f64::consts::LN_2),
        Unary::Expm1 => offset(b, y, 1.0),
        Unary::Tanh => {
            // (1 - y)(1 + y) is exact near ±1.
            let one = constant(b, y, 1.0);
            let (below, above) = (b.sub(one, y)?, b.add(one, y)?);
            b.mul(below, above)
        }
        Unary::Logistic => {
            let one = constant(b, y, 1.0);
            let complement = b.sub(one, y)?;
            b.mul(y, complement)
        }
        Unary::Sin => b.unary(Unary::Cos, x),
        Unary::Cos => {
            let sin = b.unary(Unary::Sin, x)?;
            b.neg(sin)
        }
        Unary::Tan => {
            let square = b.unary(Unary::Square, y)?;
            offset(b, square, 1.0)
        }
        Unary::Asin | Unary::Acos => {
            let square = b.unary(Unary::Square, x)?;
            let one = constant(b, x, 1.0);
            let radicand = b.sub(one, square)?;
            let root = b.unary(Unary::Rsqrt, radicand)?;
            if op == Unary::Acos { b.neg(root) } else { Ok(root) }
        }
        Unary::Sinh => b.unary(Unary::Cosh, x),
        Unary::Cosh => b.unary(Unary::Sinh, x),
        Unary::Asinh => {
            let square = b.unary(Unary::Square, x)?;
            let radicand = offset(b, square, 1.0)?;
            b.unary(Unary::Rsqrt, radicand)
        }
        Unary::Acosh => {
            // Two roots: that of the product has another branch cut.
            let (below, above) = (offset(b, x, -1.0)?, offset(b, x, 1.0)?);
            let (p, q) = (b.unary(Unary::Rsqrt, below)?, b.unary(Unary::Rsqrt, above)?);
            b.mul(p, q)
        }
        Unary::Sqrt => {
            let half = constant(b, y, 0.5);
            b.div(half, y)
        }
        Unary::Rsqrt => {
            let ratio = b.div(y, x)?;
            scale(b, ratio, -0.5)
        }
        Unary::Square => scale(b, x, 2.0),
        Unary::Erf | Unary::Erfc => {
            let square = b.unary(Unary::Square, x)?;
            let negated = b.neg(square)?;
            let bell = b.unary(Unary::Exp, negated)?;
            let sign = if op == Unary::Erf { 1.0 } else { -1.0 };
            scale(b, bell, sign * std::f64::consts::FRAC_2_SQRT_PI)
        }
        Unary::ErfInv => {
            let square = b.unary(Unary::Square, y)?;
            let bell = b.unary(Unary::Exp, square)?;
            scale(b, bell, std::f64::consts::FRAC_2_SQRT_PI.recip())
        }
        Unary::Lgamma => b.unary(Unary::Digamma, x),
        Unary::Digamma if matches!(b.dtype(x), DType::BF16 | DType::F16) => {
            let wide = b.convert(x, DType::F32)?;
            let value = trigamma(b, wide)?;
            b.convert(value, b.dtype(x))
        }
        Unary::Digamma => trigamma(b, x),
        other => Err(internal_error!("{} has no slope", other.op_name())),
    }
}

/// The derivative of digamma from ops that are here: recurrence from x to
/// x + 8, then the asymptotic series (Abramowitz and Stegun 6.4.12); below 1/2
/// the reflection `psi'(x) = π² / sin²(πx) - psi'(1 - x)` (6.4.7).
fn trigamma(b: &mut Builder, x: Atom) -> Result<Atom> {
    const STEPS: usize = 8;
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
    let angle = scale(b, fraction, std::f64::consts::PI)?;
    let sin = b.unary(Unary::Sin, angle)?;
    let sin = b.unary(Unary::Square, sin)?;
    let pi_square = constant(b, x, std::f64::consts::PI * std::f64::consts::PI);
    let pole = b.div(pi_square, sin)?;
    let reflected = b.sub(pole, value)?;
    b.select(low, reflected, value)
}

fn offset(b: &mut Builder, x: Atom, by: f64) -> Result<Atom> {
    let by = constant(b, x, by);
    b.add(x, by)
}

fn scale(b: &mut Builder, x: Atom, by: f64) -> Result<Atom> {
    let by = constant(b, x, by);
    b.mul(x, by)
}

pub fn transpose(op: Unary, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    match op {
        Unary::Neg => each_linear(b, eqn, |b, _, ct| b.neg(ct)),
        // The other part is strong, and so is the cotangent.
        Unary::Real => each_linear(b, eqn, |b, _, ct| {
            let zero = b.scalar(b.dtype(ct), 0.0);
            b.binary(Binary::Complex, ct, zero)
        }),
        Unary::Imag => each_linear(b, eqn, |b, _, ct| {
            let zero = b.scalar(b.dtype(ct), 0.0);
            let negated = b.neg(ct)?;
            b.binary(Binary::Complex, zero, negated)
        }),
        Unary::Conj => {
            let ct = cotangent(eqn)?;
            let Some(ty) = linear(eqn, 0) else { return Ok(smallvec![None]) };
            let conjugate = b.unary(Unary::Conj, ct)?;
            let result = if ty.dtype.is_complex() {
                conjugate
            } else {
                let op = ConvertElementType { new_dtype: ty.dtype, weak_type: ty.weak };
                b.emit1(op, &[conjugate])?
            };
            Ok(smallvec![Some(result)])
        }
        other => not_linear(&other),
    }
}
