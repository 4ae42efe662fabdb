//! Derivatives of the ops of two operands: the terms of the result's tangent, and the
//! transpositions of those that are linear.

use super::At;
use crate::ops::derive::{Cotangents, constant, each_linear, linear, spread};
use crate::ops::{Binary, Compare, Unary};
use crate::rules::{Transpose, not_linear};
use crate::{Atom, Builder, Result};

type Pair = [Option<Atom>; 2];

pub fn sub(b: &mut Builder, _: &At, d: Pair) -> Result<Pair> {
    match d {
        [Some(dx), Some(dy)] => Ok([Some(b.sub(dx, dy)?), None]),
        [dx, dy] => Ok([dx, map(dy, |dy| b.neg(dy))?]),
    }
}

pub fn mul(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    Ok([map(dx, |dx| b.mul(dx, at.y))?, map(dy, |dy| b.mul(at.x, dy))?])
}

/// `dx / y` and `-(x / y²) dy`.
pub fn div(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let left = map(dx, |dx| b.div(dx, at.y))?;
    let right = map(dy, |dy| {
        let slope = b.div(at.out, at.y)?;
        let slope = b.neg(slope)?;
        b.mul(dy, slope)
    })?;
    Ok([left, right])
}

/// Of `x - y trunc(x / y)`.
pub fn rem(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let right = map(dy, |dy| {
        let ratio = b.div(at.x, at.y)?;
        let (sign, magnitude) = (b.unary(Unary::Sign, ratio)?, b.unary(Unary::Abs, ratio)?);
        let floor = b.unary(Unary::Floor, magnitude)?;
        let truncated = b.mul(sign, floor)?;
        let slope = b.neg(truncated)?;
        b.mul(dy, slope)
    })?;
    Ok([dx, right])
}

pub fn pow(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let left = map(dx, |dx| pow_base(b, at.x, at.y, dx))?;
    Ok([left, map(dy, |dy| pow_exponent(b, at.x, at.out, dy))?])
}

/// Of the operand that is the result; halves where both are.
pub fn chosen(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let left = map(dx, |dx| share(b, at.x, at.y, at.out, dx))?;
    Ok([left, map(dy, |dy| share(b, at.y, at.x, at.out, dy))?])
}

/// The angle of (y: x, x: y): `(dx y - x dy) / (x² + y²)`.
pub fn atan2(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let (xx, yy) = (b.unary(Unary::Square, at.x)?, b.unary(Unary::Square, at.y)?);
    let squares = b.add(xx, yy)?;
    let left = map(dx, |dx| {
        let slope = b.div(at.y, squares)?;
        b.mul(dx, slope)
    })?;
    let right = map(dy, |dy| {
        let slope = b.div(at.x, squares)?;
        let slope = b.neg(slope)?;
        b.mul(dy, slope)
    })?;
    Ok([left, right])
}

pub fn complex(b: &mut Builder, at: &At, [dx, dy]: Pair) -> Result<Pair> {
    let zero = constant(b, at.x, 0.0);
    let tangent = b.binary(Binary::Complex, dx.unwrap_or(zero), dy.unwrap_or(zero))?;
    Ok([Some(tangent), None])
}

fn map(tangent: Option<Atom>, f: impl FnOnce(Atom) -> Result<Atom>) -> Result<Option<Atom>> {
    tangent.map(f).transpose()
}

/// `y x^(y-1) dx`; zero where an integer exponent is, and for any of zero beside a base of zero.
fn pow_base(b: &mut Builder, x: Atom, y: Atom, dx: Atom) -> Result<Atom> {
    let dtype = b.dtype(x);
    let (zero, one) = (constant(b, y, 0.0), constant(b, y, 1.0));
    let mut is_zero = b.compare(Compare::Eq, y, zero)?;
    let integer = b.dtype(y).is_integer();
    if !integer {
        // Elsewhere the slope changes with the exponent.
        let none = constant(b, x, 0.0);
        let base_is_zero = b.compare(Compare::Eq, x, none)?;
        is_zero = b.binary(Binary::And, is_zero, base_is_zero)?;
    }
    let (ones, exponents) = (spread(b, one, is_zero)?, spread(b, y, is_zero)?);
    let safe = b.select(is_zero, ones, exponents)?;
    let less = b.sub(safe, one)?;
    let power = b.binary(Binary::Pow, x, less)?;
    // The factor y itself is zero there.
    let factor = if integer { b.convert(y, dtype)? } else { y };
    let slope = b.mul(factor, power)?;
    b.mul(dx, slope)
}

/// `log(x) x^y dy`, with `log(0)` taken as zero.
fn pow_exponent(b: &mut Builder, x: Atom, out: Atom, dy: Atom) -> Result<Atom> {
    let (zero, one) = (constant(b, x, 0.0), constant(b, x, 1.0));
    let is_zero = b.compare(Compare::Eq, x, zero)?;
    let ones = spread(b, one, x)?;
    let safe = b.select(is_zero, ones, x)?;
    let log = b.unary(Unary::Log, safe)?;
    let slope = b.mul(log, out)?;
    b.mul(dy, slope)
}

/// `g` where `x` was chosen over `y`, half of it where both are the result.
fn share(b: &mut Builder, x: Atom, y: Atom, out: Atom, g: Atom) -> Result<Atom> {
    let (one, half, zero) = (constant(b, x, 1.0), constant(b, x, 0.5), constant(b, x, 0.0));
    let [one, half, zero] = [spread(b, one, out)?, spread(b, half, out)?, spread(b, zero, out)?];
    let (is_x, is_y) = (b.compare(Compare::Eq, x, out)?, b.compare(Compare::Eq, y, out)?);
    let weight = b.select(is_y, half, one)?;
    let weight = b.select(is_x, weight, zero)?;
    b.mul(g, weight)
}

pub fn add_transposed(b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    each_linear(b, eqn, |_, _, ct| Ok(ct))
}

pub fn sub_transposed(b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    each_linear(b, eqn, |b, position, ct| if position == 0 { Ok(ct) } else { b.neg(ct) })
}

pub fn mul_transposed(b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    match (eqn.inputs[0].known(), eqn.inputs[1].known()) {
        (Some(factor), None) | (None, Some(factor)) => each_linear(b, eqn, |b, _, ct| b.mul(ct, factor)),
        _ => not_linear(&Binary::Mul),
    }
}

pub fn div_transposed(b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    match (linear(eqn, 0), eqn.inputs[1].known()) {
        (Some(_), Some(divisor)) => each_linear(b, eqn, |b, _, ct| b.div(ct, divisor)),
        _ => not_linear(&Binary::Div),
    }
}

pub fn complex_transposed(b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    each_linear(b, eqn, |b, position, ct| {
        if position == 0 {
            return b.unary(Unary::Real, ct);
        }
        let imag = b.unary(Unary::Imag, ct)?;
        b.neg(imag)
    })
}
