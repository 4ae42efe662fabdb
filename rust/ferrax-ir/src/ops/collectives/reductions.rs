//! Collectives that keep the operand's shape: sums and extrema over lanes, one
//! lane's value, values of other lanes, and the number of the lane.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::common::{check_arity, elementwise_batch, one};
use super::super::index_space::*;
use super::super::reduce::check_number;
use super::super::{Compare, Concatenate, Preduced, Pvary, ReduceKind, Slice};
use super::groups::{by_group, stacked};
use super::{Groups, only, shared, times_size};
use crate::rules::{self, Batch, Batched, Jvp, Row, Rules, Types, not_linear};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Result, Shape, Tensor, Type, Varying, internal_error, op_struct,
    string_enum, value_error,
};

string_enum! {
    /// Which reduction over lanes.
    AxisReduceKind { Sum = "psum", SumInvariant = "psum_invariant", SumUnreduced = "unreduced_psum", Max = "pmax", Min = "pmin" }
}

/// A reduction over lanes of named axes. The kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AxisReduce {
    pub kind: AxisReduceKind,
    pub axes: Vec<Arc<str>>,
    pub axis_index_groups: Groups,
}

kind_params!(AxisReduce, AxisReduceKind, [axes, axis_index_groups], [
    "psum" "Sum over the lanes of named axes.",
    "psum_invariant" "Sum over devices, by type the same on all of them.",
    "unreduced_psum" "The sum that a value is by type of what devices have.",
    "pmax" "Maximum over the lanes of named axes; NaN if there is one.",
    "pmin" "Minimum over the lanes of named axes; NaN if there is one.",
]);

op_struct! {
    /// The value of the lane from which `perm`, pairs of source and destination, sends to this one.
    Ppermute "ppermute" { axis_name: Vec<Arc<str>>, perm: Vec<(usize, usize)> }
}
op_struct! {
    /// The value of the lane of number `source`.
    Pbroadcast "pbroadcast" { axis_name: Arc<str>, source: usize }
}
op_struct! {
    /// The number of the lane.
    AxisIndex "axis_index" { axis_name: Arc<str> }
}

impl AxisReduce {
    fn reduce_kind(&self) -> ReduceKind {
        match self.kind {
            AxisReduceKind::Sum | AxisReduceKind::SumInvariant | AxisReduceKind::SumUnreduced => {
                ReduceKind::Sum
            }
            AxisReduceKind::Max => ReduceKind::Max,
            AxisReduceKind::Min => ReduceKind::Min,
        }
    }

    /// The lanes along `dim` as one. The result may have a wider dtype, to be rounded at the end.
    fn folded(&self, b: &mut Builder, operand: Atom, dim: usize) -> Result<Atom> {
        match self.kind {
            AxisReduceKind::SumInvariant | AxisReduceKind::SumUnreduced => wide_sum(b, operand, dim),
            _ => b.reduce(self.reduce_kind(), operand, &[dim]),
        }
    }

    /// Whether it adds up, and is linear so.
    pub fn is_sum(&self) -> bool {
        !matches!(self.kind, AxisReduceKind::Max | AxisReduceKind::Min)
    }

    fn sum(&self) -> AxisReduce {
        AxisReduce { kind: AxisReduceKind::Sum, ..self.clone() }
    }
}

impl Row for AxisReduce {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        if self.axes.is_empty() {
            return Err(value_error!("{name} requires the name of an axis"));
        }
        if self.is_sum() || !operand.dtype.is_bool() {
            check_number(name, operand.dtype)?;
        }
        one(operand.clone())
    }

    row_over_axes!(|op| &op.axes);
}

impl Rules for AxisReduce {
    /// That of an extremum is shared by all lanes that reach it, as along an axis of an array.
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return no_tangent() };
        if self.is_sum() {
            return Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[tangent])?)]));
        }
        let [operand] = atoms(self.op_name(), eqn.inputs)?;
        let [output] = atoms(self.op_name(), eqn.outputs)?;
        let reached = b.compare(Compare::Eq, operand, output)?;
        let reached = b.convert(reached, b.dtype(tangent))?;
        let count = b.emit1(self.sum(), &[reached])?;
        let part = b.mul(tangent, reached)?;
        let total = b.emit1(self.sum(), &[part])?;
        Ok(SmallVec::from_iter([Some(b.div(total, count)?)]))
    }

    /// Of a sum over axes along which operands are said to differ the result is one value, and so is its cotangent: that of
    /// all terms. Over other axes each lane has a cotangent of its own.
    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        if !self.is_sum() {
            return not_linear(self);
        }
        let mut cotangent = only_cotangent(self.op_name(), eqn)?;
        if self.kind == AxisReduceKind::SumUnreduced {
            return one_cotangent(b.emit1(Preduced { axes: self.axes.clone() }, &[cotangent])?);
        }
        let operand = linear_varying(eqn);
        let (one, own): (Vec<_>, Vec<_>) = self.axes.iter().cloned().partition(|axis| operand.contains(axis));
        if !own.is_empty() {
            cotangent = b.emit1(AxisReduce { axes: own, ..self.clone() }, &[cotangent])?;
        }
        if !one.is_empty() {
            cotangent = b.emit1(Pvary { axes: one }, &[cotangent])?;
        }
        one_cotangent(cotangent)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        if let Some(groups) = &self.axis_index_groups {
            return by_group(self.op_name(), b, eqn, groups, |b, lanes| {
                let all = stacked(b, lanes, 0)?;
                let sum = match self.kind {
                    AxisReduceKind::SumInvariant | AxisReduceKind::SumUnreduced => device_sum(b, all, 0)?,
                    _ => b.reduce(self.reduce_kind(), all, &[0])?,
                };
                Ok(vec![sum; lanes.len()])
            });
        }
        let (operand, dim) = only(self.op_name(), eqn)?;
        let dtype = b.dtype(operand);
        let mut result = match (dim, self.kind) {
            (Some(dim), _) => self.folded(b, operand, dim)?,
            (None, AxisReduceKind::Max | AxisReduceKind::Min) => operand,
            (None, _) => times_size(b, operand, eqn.size)?,
        };
        let axes: Vec<_> = self.axes.iter().filter(|axis| Some(&***axis) != eqn.axis_name).cloned().collect();
        if !axes.is_empty() {
            result = b.emit1(AxisReduce { axes, ..self.clone() }, &[result])?;
        }
        shared(if b.dtype(result) == dtype { result } else { b.convert(result, dtype)? })
    }

    fn is_shared(&self) -> bool {
        self.axis_index_groups.is_none()
    }

    fn varies(&self, operands: Varying) -> Varying {
        if self.axis_index_groups.is_some() { operands } else { operands.without_names(&self.axes) }
    }

    /// Along the array's own axes each element is by itself.
    fn coupled_axes(&self, _: usize) -> Option<Axes> {
        Some(Axes::new())
    }

    rules_over_axes!(|op| &op.axes);
}

/// Of more lanes than that sums are not of devices, and as those along any axis.
const MOST_DEVICES: usize = 64;

/// The sum of what devices have along `dim`: of adjacent pairs, so that those of a power of two of devices may be made wherever
/// these are, and have the same bits. Floats of fewer than 32 bits are summed in 32, and not rounded.
fn wide_sum(b: &mut Builder, operand: Atom, dim: usize) -> Result<Atom> {
    let dtype = b.dtype(operand);
    match b.shape(operand)[dim].as_const() {
        Some(size) if (1..=MOST_DEVICES).contains(&size) && !dtype.is_integer() && !dtype.is_bool() => {
            let narrow = dtype.is_float() && dtype.size() < 4;
            let wide = if narrow { b.convert(operand, DType::F32)? } else { operand };
            let sum = paired(b, wide, dim, size)?;
            b.squeeze(sum, &[dim])
        }
        _ => b.reduce_sum(operand, &[dim]),
    }
}

/// As `wide_sum`, rounded to the dtype of the operand.
pub(super) fn device_sum(b: &mut Builder, operand: Atom, dim: usize) -> Result<Atom> {
    let (dtype, sum) = (b.dtype(operand), wide_sum(b, operand, dim)?);
    if b.dtype(sum) == dtype { Ok(sum) } else { b.convert(sum, dtype) }
}

/// The sum of `size` elements along an axis, `((x0 + x1) + (x2 + x3)) + x4`: of more than a power of two the largest power
/// of two that is less comes first.
fn paired(b: &mut Builder, x: Atom, dim: usize, size: usize) -> Result<Atom> {
    if size == 1 {
        return Ok(x);
    }
    if !size.is_power_of_two() {
        let half = 1 << (usize::BITS - 1 - (size - 1).leading_zeros());
        let (first, second) = (b.slice_axis(x, dim, 0, half)?, b.slice_axis(x, dim, half, size)?);
        let (first, second) = (paired(b, first, dim, half)?, paired(b, second, dim, size - half)?);
        return b.add(first, second);
    }
    let shape = b.shape(x);
    let every = |b: &mut Builder, first: usize| {
        let mut start_indices: Shape = smallvec::smallvec![0.into(); shape.len()];
        let mut strides: Axes = smallvec::smallvec![1; shape.len()];
        start_indices[dim] = first.into();
        strides[dim] = 2;
        let slice = Slice { start_indices, limit_indices: shape.clone(), strides: Some(strides) };
        b.emit1(slice, &[x])
    };
    let (even, odd) = (every(b, 0)?, every(b, 1)?);
    let sums = b.add(even, odd)?;
    paired(b, sums, dim, size / 2)
}

/// Along which axes the operand of a linear op differs.
pub(super) fn linear_varying(eqn: &rules::Transpose<'_>) -> Varying {
    match eqn.inputs.first() {
        Some(rules::Operand::Linear(ty)) => ty.varying(),
        _ => Varying::NONE,
    }
}

impl Row for Ppermute {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let mut seen: Vec<(usize, usize)> = self.perm.clone();
        seen.sort_unstable_by_key(|&(source, _)| source);
        let sources = seen.windows(2).any(|pair| pair[0].0 == pair[1].0);
        seen.sort_unstable_by_key(|&(_, destination)| destination);
        if sources || seen.windows(2).any(|pair| pair[0].1 == pair[1].1) {
            return Err(value_error!(
                "ppermute sources and destinations must be unique, got {:?}; to send one lane's value to several, \
                 use all_gather or pbroadcast",
                self.perm
            ));
        }
        one(operand.clone())
    }

    row_over_axes!(|op| &op.axis_name);
}

impl Rules for Ppermute {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let perm = self.perm.iter().map(|&(source, destination)| (destination, source)).collect();
        one_cotangent(b.emit1(Ppermute { perm, ..self.clone() }, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    /// Runs of lanes that come from neighbours are moved as one slice: a rotation is two. Lanes to which none sends get zeros.
    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let size = eqn.size.require("ppermute over an axis")?;
        let mut from = vec![None; size];
        for &(source, destination) in &self.perm {
            match from.get_mut(destination) {
                Some(place) if source < size => *place = Some(source),
                _ => {
                    return Err(crate::index_error!(
                        "ppermute: the pair ({source}, {destination}) is out of bounds for an axis of size {size}"
                    ));
                }
            }
        }
        let (operand, dim) = only(Self::NAME, eqn)?;
        let (operand, dim) = match dim {
            Some(dim) => (operand, dim),
            None if from.iter().all(Option::is_some) => return shared(operand),
            None => (b.broadcast_batch(operand, eqn.size, 0)?, 0),
        };
        let mut pieces = Vec::new();
        let follows = |a: &Option<usize>, b: &Option<usize>| a.map(|a| a + 1) == *b;
        for run in from.chunk_by(follows) {
            pieces.push(match run[0] {
                Some(first) => b.slice_axis(operand, dim, first, first + run.len())?,
                None => {
                    let mut ty = b.array_type(operand)?;
                    ty.shape[dim] = run.len().into();
                    b.zeros(&ty)?
                }
            });
        }
        let permuted = match pieces.as_slice() {
            [] => operand,
            [only] => *only,
            pieces => b.emit1(Concatenate { dimension: dim }, pieces)?,
        };
        one_batched(permuted, dim)
    }

    /// Along the array's own axes each element is by itself.
    fn coupled_axes(&self, _: usize) -> Option<Axes> {
        Some(Axes::new())
    }

    rules_over_axes!(|op| &op.axis_name);
}

impl Row for Pbroadcast {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        one(operand.clone())
    }

    row_over_axes!(|op| [&op.axis_name]);
}

impl Rules for Pbroadcast {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    /// The source has all cotangents, the others none.
    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let axes = vec![self.axis_name.clone()];
        let sum = AxisReduce { kind: AxisReduceKind::Sum, axes, axis_index_groups: None };
        let sum = b.emit1(sum, &[cotangent])?;
        let index = b.emit1(AxisIndex { axis_name: self.axis_name.clone() }, &[])?;
        let source = b.int_scalar(DType::I32, self.source as i64);
        let mut is_source = b.compare(Compare::Eq, index, source)?;
        if linear_varying(eqn).contains(&self.axis_name) {
            is_source = b.emit1(Pvary { axes: vec![self.axis_name.clone()] }, &[is_source])?;
        }
        let is_source = b.broadcast_scalar(is_source, &b.shape(sum))?;
        let zeros = b.zeros_like(sum)?;
        one_cotangent(b.select(is_source, sum, zeros)?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only(Self::NAME, eqn)?;
        let Some(dim) = dim else { return shared(operand) };
        let size = eqn.size.require("pbroadcast over an axis")?;
        if self.source >= size {
            return Err(value_error!(
                "pbroadcast: there is no lane {} on the axis '{}' of size {size}",
                self.source,
                self.axis_name
            ));
        }
        let lane = b.slice_axis(operand, dim, self.source, self.source + 1)?;
        shared(b.squeeze(lane, &[dim])?)
    }

    fn is_shared(&self) -> bool {
        true
    }

    /// Along the array's own axes each element is by itself.
    fn coupled_axes(&self, _: usize) -> Option<Axes> {
        Some(Axes::new())
    }

    rules_over_axes!(|op| [&op.axis_name]);
}

impl Row for AxisIndex {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Self::NAME, inputs, 0)?;
        one(ArrayType::of_sizes(&[], DType::I32))
    }

    row_over_axes!(|op| [&op.axis_name]);
}

impl Rules for AxisIndex {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        no_tangent()
    }

    fn transpose(&self, _: &mut Builder, _: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(internal_error!("axis_index has no operands"))
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        one_batched(b.iota(DType::I32, std::slice::from_ref(eqn.size), 0)?, 0)
    }

    rules_over_axes!(|op| [&op.axis_name]);
}
