//! Derivatives of running reductions: prefix scans of pairs, and the functions that they combine by.

use crate::ops::{Binary, Compare, Concatenate, Pad, Slice, Unary};
use crate::{Atom, Axes, Builder, Dim, Result, Shape};

/// A value with its tangent.
#[derive(Clone, Copy)]
pub struct Dual {
    pub primal: Atom,
    pub tangent: Atom,
}

/// Derivatives: the same reduction as a prefix scan of pairs in about
/// 2·log2(n) steps and linear work, whose combining function is differentiable
/// any number of times. The tree is that of odd-even reduction (Blelloch,
/// "Prefix Sums and Their Applications", 1990); between equal maxima it decides
/// how the derivative is shared.
pub struct Scan {
    pub axis: usize,
    pub combine: fn(&mut Builder, Dual, Dual) -> Result<Dual>,
}

impl Scan {
    pub fn pairs(&self, b: &mut Builder, x: Dual, length: usize) -> Result<Dual> {
        if length < 2 {
            return Ok(x);
        }
        let even = self.strided(b, x, 0, length - 1, 2)?;
        let odd = self.strided(b, x, 1, length, 2)?;
        let pairs = (self.combine)(b, even, odd)?;
        let odd = self.pairs(b, pairs, length / 2)?;
        let mut even = self.strided(b, x, 0, 1, 1)?;
        if length > 2 {
            let before = self.strided(b, odd, 0, (length - 1) / 2, 1)?;
            let own = self.strided(b, x, 2, length, 2)?;
            let rest = (self.combine)(b, before, own)?;
            even = self.both(even, rest, |first, rest| {
                b.emit1(Concatenate { dimension: self.axis }, &[first, rest])
            })?;
        }
        self.both(even, odd, |even, odd| self.interleave(b, even, odd, length))
    }

    fn both(&self, x: Dual, y: Dual, mut f: impl FnMut(Atom, Atom) -> Result<Atom>) -> Result<Dual> {
        Ok(Dual { primal: f(x.primal, y.primal)?, tangent: f(x.tangent, y.tangent)? })
    }

    fn strided(&self, b: &mut Builder, x: Dual, start: usize, limit: usize, stride: usize) -> Result<Dual> {
        self.both(x, x, |x, _| {
            let shape = b.shape(x);
            let mut starts: Shape = smallvec::smallvec![Dim::Const(0); shape.len()];
            let mut limits = shape;
            let mut strides: Axes = smallvec::smallvec![1; limits.len()];
            starts[self.axis] = Dim::Const(start);
            limits[self.axis] = Dim::Const(limit);
            strides[self.axis] = stride;
            let strides = (stride != 1).then_some(strides);
            b.emit1(Slice { start_indices: starts, limit_indices: limits, strides }, &[x])
        })
    }

    /// Elements of `even` at even places and of `odd` at odd ones.
    fn interleave(&self, b: &mut Builder, even: Atom, odd: Atom, length: usize) -> Result<Atom> {
        let last_is_odd = i64::from(length.is_multiple_of(2));
        let zero = b.scalar(b.dtype(even), 0.0);
        let mut padding_config = vec![(0, 0, 0); b.rank(even)];
        padding_config[self.axis] = (0, last_is_odd, 1);
        let even = b.emit1(Pad { padding_config: padding_config.clone() }, &[even, zero])?;
        padding_config[self.axis] = (1, 1 - last_is_odd, 1);
        let odd = b.emit1(Pad { padding_config }, &[odd, zero])?;
        b.add(even, odd)
    }
}

/// `x y`.
pub fn product(b: &mut Builder, x: Dual, y: Dual) -> Result<Dual> {
    let primal = b.mul(x.primal, y.primal)?;
    let (left, right) = (b.mul(x.tangent, y.primal)?, b.mul(x.primal, y.tangent)?);
    Ok(Dual { primal, tangent: b.add(left, right)? })
}

pub fn max(b: &mut Builder, x: Dual, y: Dual) -> Result<Dual> {
    extremum(b, Binary::Max, x, y)
}

pub fn min(b: &mut Builder, x: Dual, y: Dual) -> Result<Dual> {
    extremum(b, Binary::Min, x, y)
}

/// The tangent of the operand that is the result; half of each where both are.
fn extremum(b: &mut Builder, op: Binary, x: Dual, y: Dual) -> Result<Dual> {
    let primal = b.binary(op, x.primal, y.primal)?;
    let (one, zero) = (b.full_like(primal, 1.0)?, b.zeros_like(primal)?);
    let two = b.full_like(primal, 2.0)?;
    let x_reached = b.compare(Compare::Eq, x.primal, primal)?;
    let y_reached = b.compare(Compare::Eq, y.primal, primal)?;
    let mut share = |mine: Atom, other: Atom, tangent: Atom| -> Result<Atom> {
        let top = b.select(mine, one, zero)?;
        let bottom = b.select(other, two, one)?;
        let weight = b.div(top, bottom)?;
        b.mul(tangent, weight)
    };
    let (left, right) = (share(x_reached, y_reached, x.tangent)?, share(y_reached, x_reached, y.tangent)?);
    Ok(Dual { primal, tangent: b.add(left, right)? })
}

/// `log(e^x + e^y)`, whose terms have the weights `e^(x - result)` and `e^(y - result)`.
pub fn log_sum_exp(b: &mut Builder, x: Dual, y: Dual) -> Result<Dual> {
    let primal = emit_log_add_exp(b, x.primal, y.primal)?;
    let mut share = |own: Atom, tangent: Atom| -> Result<Atom> {
        let (own, total) = (finite_above(b, own)?, finite_above(b, primal)?);
        let difference = b.sub(own, total)?;
        let weight = b.unary(Unary::Exp, difference)?;
        b.mul(tangent, weight)
    };
    let (left, right) = (share(x.primal, x.tangent)?, share(y.primal, y.tangent)?);
    Ok(Dual { primal, tangent: b.add(left, right)? })
}

/// `x` with 0 in place of plus infinity, so that the parts of an infinite sum
/// have finite weights.
fn finite_above(b: &mut Builder, x: Atom) -> Result<Atom> {
    let (infinity, zero) = (b.full_like(x, f64::INFINITY)?, b.zeros_like(x)?);
    let is_infinite = b.compare(Compare::Eq, x, infinity)?;
    b.select(is_infinite, zero, x)
}

/// `t + log1p(e^(l - t))` with the larger operand as `t` and the other as `l`: which one is which
/// has no derivative, so that those of the sum are right between equal operands, too, to any order.
fn emit_log_add_exp(b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    let largest = b.binary(Binary::Max, x, y)?;
    let swap = b.compare(Compare::Ne, x, largest)?;
    let (top, low) = (b.select(swap, y, x)?, b.select(swap, x, y)?);
    let distance = b.sub(low, top)?;
    let ratio = b.unary(Unary::Exp, distance)?;
    let rest = b.unary(Unary::Log1p, ratio)?;
    let value = b.add(top, rest)?;
    if b.dtype(x).is_complex() {
        return Ok(value);
    }
    // Equal infinities have no distance; their sum is the answer.
    let is_nan = b.compare(Compare::Ne, distance, distance)?;
    let sum = b.add(x, y)?;
    b.select(is_nan, sum, value)
}
