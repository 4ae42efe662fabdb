//! Running reductions along an axis.

use smallvec::SmallVec;

use crate::convert::Wide;
use crate::rules::{self, Batch, Batched, FromParams, Jvp, Lowering, Row, Rules, Types, not_linear};
use crate::{
    Atom, Axes, Builder, Dim, Param, Params, Result, Shape, ShowShape, Tensor, ToParam, Type, internal_error,
    parse_error, string_enum, type_error, unsupported, value_error,
};

use super::accumulate::{Reducer, element, rounded};
use super::common::one;
use super::index_space::*;
use super::reduce::check_number;
use super::{Binary, Compare, Concatenate, Pad, Rev, Slice, Unary};

string_enum! {
    /// Which running reduction.
    CumulativeKind {
        Sum = "cumsum", Prod = "cumprod", Max = "cummax", Min = "cummin", LogSumExp = "cumlogsumexp",
    }
}

/// Running reduction along an axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

reduction_params!(Cumulative, CumulativeKind, [axis, reverse], [
    "cumsum" "Running sum along an axis.",
    "cumprod" "Running product along an axis.",
    "cummax" "Running maximum along an axis.",
    "cummin" "Running minimum along an axis.",
    "cumlogsumexp" "Running log of the sum of exponentials along an axis.",
]);

impl Row for Cumulative {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        if self.axis >= operand.rank() {
            return Err(value_error!(
                "{name} axis {} is out of bounds for array of shape {}",
                self.axis,
                ShowShape(&operand.shape)
            ));
        }
        check_number(name, operand.dtype)?;
        if self.kind == CumulativeKind::LogSumExp && !operand.dtype.is_inexact() {
            return Err(type_error!(
                "{name} does not accept dtype {}. Accepted dtypes are floats and complex numbers.",
                operand.dtype
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(self.op_name(), inputs)?;
        let (dtype, length) = (operand.dtype(), operand.sizes()[self.axis]);
        let stride = strides(operand.sizes())[self.axis];
        let mut lines: Axes = operand.sizes().into();
        lines[self.axis] = 1;
        let all = strides(operand.sizes());
        let mut output = Tensor::zeros(dtype, operand.sizes())?;
        let target = output.bytes_mut()?;
        if length == 0 {
            return Ok(vec![output]);
        }
        for_each_index(&lines, |index| {
            let base = offset(index, &all);
            let mut total = None;
            for step in 0..length {
                let place = if self.reverse { length - 1 - step } else { step };
                let value = element(dtype, operand.bytes(), base + place * stride)?;
                let next = match total {
                    Some(total) => self.combine(total, value)?,
                    None => value,
                };
                total = Some(next);
                copy_element(&rounded(dtype, next)?.bytes(), 0, target, base + place * stride, dtype.size())?;
            }
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Cumulative {
    fn combine(&self, total: Wide, value: Wide) -> Result<Wide> {
        match self.kind {
            CumulativeKind::Sum => Reducer::Sum.apply(total, value),
            CumulativeKind::Prod => Reducer::Product.apply(total, value),
            CumulativeKind::Max => Reducer::Max.apply(total, value),
            CumulativeKind::Min => Reducer::Min.apply(total, value),
            CumulativeKind::LogSumExp => log_add_exp(total, value),
        }
    }
}

/// `log(e^a + e^b)` without overflow.
fn log_add_exp(a: Wide, b: Wide) -> Result<Wide> {
    match (a, b) {
        (Wide::Float(a), Wide::Float(b)) => {
            // Equal infinities have no difference; their sum is the answer.
            let distance = (a - b).abs();
            Ok(Wide::Float(if distance.is_nan() { a + b } else { a.max(b) + (-distance).exp().ln_1p() }))
        }
        (Wide::Complex(a, x), Wide::Complex(b, y)) => {
            let top = a.max(b);
            if !top.is_finite() {
                let (re, im) = if a >= b { (a, x) } else { (b, y) };
                return Ok(Wide::Complex(re, im));
            }
            let re = (a - top).exp() * x.cos() + (b - top).exp() * y.cos();
            let im = (a - top).exp() * x.sin() + (b - top).exp() * y.sin();
            Ok(Wide::Complex(top + re.hypot(im).ln(), im.atan2(re)))
        }
        _ => Err(internal_error!("cumlogsumexp of {a:?} and {b:?}")),
    }
}

impl Rules for Cumulative {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        if self.kind == CumulativeKind::Sum {
            return linear_jvp(self.clone(), b, eqn);
        }
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return no_tangent() };
        let [operand] = atoms(self.op_name(), eqn.inputs)?;
        let shape = b.shape(operand);
        let Some(length) = shape[self.axis].as_const() else {
            return Err(unsupported!(
                "the derivative of {} needs a constant size of its axis {}, got shape {}",
                self.op_name(),
                self.axis,
                ShowShape(&shape)
            ));
        };
        let flip = |b: &mut Builder, x: Atom| {
            if self.reverse {
                b.emit1(Rev { dimensions: SmallVec::from_iter([self.axis]) }, &[x])
            } else {
                Ok(x)
            }
        };
        let pair = Dual { primal: flip(b, operand)?, tangent: flip(b, tangent)? };
        let result = self.scan(b, pair, length)?.tangent;
        Ok(SmallVec::from_iter([Some(flip(b, result)?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        if self.kind != CumulativeKind::Sum {
            return not_linear(self);
        }
        let cotangent = only_cotangent(self.op_name(), eqn)?;
        one_cotangent(b.emit1(Cumulative { reverse: !self.reverse, ..self.clone() }, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(self.op_name(), eqn)?;
        let axis = if self.axis >= dim { self.axis + 1 } else { self.axis };
        one_batched(b.emit1(Cumulative { axis, ..self.clone() }, &[operand])?, dim)
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

/// A value with its tangent.
#[derive(Clone, Copy)]
struct Dual {
    primal: Atom,
    tangent: Atom,
}

/// Derivatives: the same reduction as a prefix scan of pairs in about
/// 2·log2(n) steps and linear work, whose combining function is differentiable
/// any number of times. The tree is that of odd-even reduction (Blelloch,
/// "Prefix Sums and Their Applications", 1990); between equal maxima it decides
/// how the derivative is shared.
impl Cumulative {
    fn scan(&self, b: &mut Builder, x: Dual, length: usize) -> Result<Dual> {
        if length < 2 {
            return Ok(x);
        }
        let even = self.strided(b, x, 0, length - 1, 2)?;
        let odd = self.strided(b, x, 1, length, 2)?;
        let pairs = self.combine_dual(b, even, odd)?;
        let odd = self.scan(b, pairs, length / 2)?;
        let mut even = self.strided(b, x, 0, 1, 1)?;
        if length > 2 {
            let before = self.strided(b, odd, 0, (length - 1) / 2, 1)?;
            let own = self.strided(b, x, 2, length, 2)?;
            let rest = self.combine_dual(b, before, own)?;
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

    /// `x` before `y`, with the derivative.
    fn combine_dual(&self, b: &mut Builder, x: Dual, y: Dual) -> Result<Dual> {
        let primal = match self.kind {
            CumulativeKind::Sum => b.add(x.primal, y.primal)?,
            CumulativeKind::Prod => b.mul(x.primal, y.primal)?,
            CumulativeKind::Max => b.binary(Binary::Max, x.primal, y.primal)?,
            CumulativeKind::Min => b.binary(Binary::Min, x.primal, y.primal)?,
            CumulativeKind::LogSumExp => emit_log_add_exp(b, x.primal, y.primal)?,
        };
        let (left, right) = match self.kind {
            CumulativeKind::Sum => (x.tangent, y.tangent),
            CumulativeKind::Prod => (b.mul(x.tangent, y.primal)?, b.mul(x.primal, y.tangent)?),
            CumulativeKind::Max | CumulativeKind::Min => {
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
                (share(x_reached, y_reached, x.tangent)?, share(y_reached, x_reached, y.tangent)?)
            }
            CumulativeKind::LogSumExp => {
                let mut share = |own: Atom, tangent: Atom| -> Result<Atom> {
                    let (own, total) = (finite_above(b, own)?, finite_above(b, primal)?);
                    let difference = b.sub(own, total)?;
                    let weight = b.unary(Unary::Exp, difference)?;
                    b.mul(tangent, weight)
                };
                (share(x.primal, x.tangent)?, share(y.primal, y.tangent)?)
            }
        };
        Ok(Dual { primal, tangent: b.add(left, right)? })
    }
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
