//! Derivatives of the elementwise ops of two operands.

use super::derive::{Cotangents, Tangents, constant, each_linear, linear, spread, sum, zero};
use super::{Binary, Compare, Unary};
use crate::rules::{Jvp, Transpose, not_linear};
use crate::{Atom, Builder, Result, unsupported};

pub fn jvp(op: Binary, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
    let (x, y, out) = (eqn.inputs[0], eqn.inputs[1], eqn.outputs[0]);
    if b.dtype(out).is_integer() || b.dtype(out).is_bool() {
        return Ok(zero());
    }
    let (dx, dy) = (eqn.tangents[0], eqn.tangents[1]);
    let terms: [Option<Atom>; 2] = match op {
        Binary::Add => [dx, dy],
        Binary::Sub => match (dx, dy) {
            (Some(dx), Some(dy)) => [Some(b.sub(dx, dy)?), None],
            _ => [dx, map(dy, |dy| b.neg(dy))?],
        },
        Binary::Mul => [map(dx, |dx| b.mul(dx, y))?, map(dy, |dy| b.mul(x, dy))?],
        Binary::Div => {
            let left = map(dx, |dx| b.div(dx, y))?;
            // -(x / y²) dy
            let right = map(dy, |dy| {
                let slope = b.div(out, y)?;
                let slope = b.neg(slope)?;
                b.mul(dy, slope)
            })?;
            [left, right]
        }
        Binary::Rem => {
            // x - y trunc(x / y)
            let right = map(dy, |dy| {
                let ratio = b.div(x, y)?;
                let (sign, magnitude) = (b.unary(Unary::Sign, ratio)?, b.unary(Unary::Abs, ratio)?);
                let floor = b.unary(Unary::Floor, magnitude)?;
                let truncated = b.mul(sign, floor)?;
                let slope = b.neg(truncated)?;
                b.mul(dy, slope)
            })?;
            [dx, right]
        }
        Binary::Pow => [map(dx, |dx| pow_base(b, x, y, dx))?, map(dy, |dy| pow_exponent(b, x, out, dy))?],
        Binary::Max | Binary::Min => {
            [map(dx, |dx| chosen(b, x, y, out, dx))?, map(dy, |dy| chosen(b, y, x, out, dy))?]
        }
        Binary::Atan2 => {
            // angle(y: x, x: y): (dx y - x dy) / (x² + y²)
            let (xx, yy) = (b.unary(Unary::Square, x)?, b.unary(Unary::Square, y)?);
            let squares = b.add(xx, yy)?;
            let left = map(dx, |dx| {
                let slope = b.div(y, squares)?;
                b.mul(dx, slope)
            })?;
            let right = map(dy, |dy| {
                let slope = b.div(x, squares)?;
                let slope = b.neg(slope)?;
                b.mul(dy, slope)
            })?;
            [left, right]
        }
        Binary::Complex => {
            if dx.is_none() && dy.is_none() {
                return Ok(zero());
            }
            let real = constant(b, x, 0.0);
            let tangent = b.binary(Binary::Complex, dx.unwrap_or(real), dy.unwrap_or(real))?;
            [Some(tangent), None]
        }
        Binary::Nextafter => {
            if dx.is_none() && dy.is_none() {
                return Ok(zero());
            }
            return Err(unsupported!("Differentiation rule for 'nextafter' not implemented"));
        }
        Binary::And
        | Binary::Or
        | Binary::Xor
        | Binary::ShiftLeft
        | Binary::ShiftRightArithmetic
        | Binary::ShiftRightLogical => return Ok(zero()),
    };
    if terms == [None, None] {
        return Ok(zero());
    }
    sum(b, &terms, out)
}

fn map(tangent: Option<Atom>, f: impl FnOnce(Atom) -> Result<Atom>) -> Result<Option<Atom>> {
    tangent.map(f).transpose()
}

/// `y x^(y-1) dx`; zero where an integer exponent is.
fn pow_base(b: &mut Builder, x: Atom, y: Atom, dx: Atom) -> Result<Atom> {
    let dtype = b.dtype(x);
    let one = constant(b, y, 1.0);
    if !b.dtype(y).is_integer() {
        let less = b.sub(y, one)?;
        let power = b.binary(Binary::Pow, x, less)?;
        let slope = b.mul(y, power)?;
        return b.mul(dx, slope);
    }
    let zero = constant(b, y, 0.0);
    let is_zero = b.compare(Compare::Eq, y, zero)?;
    let ones = spread(b, one, y)?;
    let safe = b.select(is_zero, ones, y)?;
    let less = b.sub(safe, one)?;
    let power = b.binary(Binary::Pow, x, less)?;
    // The factor y itself is zero there.
    let factor = b.convert(y, dtype)?;
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
fn chosen(b: &mut Builder, x: Atom, y: Atom, out: Atom, g: Atom) -> Result<Atom> {
    let (one, half, zero) = (constant(b, x, 1.0), constant(b, x, 0.5), constant(b, x, 0.0));
    let [one, half, zero] = [spread(b, one, out)?, spread(b, half, out)?, spread(b, zero, out)?];
    let (is_x, is_y) = (b.compare(Compare::Eq, x, out)?, b.compare(Compare::Eq, y, out)?);
    let weight = b.select(is_y, half, one)?;
    let weight = b.select(is_x, weight, zero)?;
    b.mul(g, weight)
}

pub fn transpose(op: Binary, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
    let known = |position: usize| eqn.inputs[position].known();
    match op {
        Binary::Add => each_linear(b, eqn, |_, _, ct| Ok(ct)),
        Binary::Sub => each_linear(b, eqn, |b, position, ct| if position == 0 { Ok(ct) } else { b.neg(ct) }),
        Binary::Mul => match (known(0), known(1)) {
            (Some(factor), None) | (None, Some(factor)) => each_linear(b, eqn, |b, _, ct| b.mul(ct, factor)),
            _ => not_linear(&op),
        },
        Binary::Div => match (linear(eqn, 0), known(1)) {
            (Some(_), Some(divisor)) => each_linear(b, eqn, |b, _, ct| b.div(ct, divisor)),
            _ => not_linear(&op),
        },
        Binary::Complex => each_linear(b, eqn, |b, position, ct| {
            if position == 0 {
                return b.unary(Unary::Real, ct);
            }
            let imag = b.unary(Unary::Imag, ct)?;
            b.neg(imag)
        }),
        other => not_linear(&other),
    }
}
