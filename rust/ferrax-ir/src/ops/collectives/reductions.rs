//! Collectives that keep the operand's shape: sums and extrema over lanes, one
//! lane's value, values of other lanes, and the number of the lane.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::common::{check_arity, elementwise_batch, one};
use super::super::index_space::*;
use super::super::reduce::check_number;
use super::super::{Compare, Concatenate, ReduceKind};
use super::{Groups, only, refuse_groups, shared, times_size};
use crate::rules::{self, Batch, Batched, Jvp, Row, Rules, Types, not_linear};
use crate::{
    ArrayType, Atom, Builder, DType, Result, Tensor, Type, internal_error, op_struct, string_enum,
    value_error,
};

string_enum! {
    /// Which reduction over lanes.
    AxisReduceKind { Sum = "psum", Max = "pmax", Min = "pmin" }
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
            AxisReduceKind::Sum => ReduceKind::Sum,
            AxisReduceKind::Max => ReduceKind::Max,
            AxisReduceKind::Min => ReduceKind::Min,
        }
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
        if self.kind == AxisReduceKind::Sum || !operand.dtype.is_bool() {
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
        if self.kind == AxisReduceKind::Sum {
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

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        if self.kind != AxisReduceKind::Sum {
            return not_linear(self);
        }
        let cotangent = only_cotangent(self.op_name(), eqn)?;
        one_cotangent(b.emit1(self.clone(), &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        refuse_groups(self.op_name(), &self.axis_index_groups)?;
        let (operand, dim) = only(self.op_name(), eqn)?;
        let mut result = match (dim, self.kind) {
            (Some(dim), _) => b.reduce(self.reduce_kind(), operand, &[dim])?,
            (None, AxisReduceKind::Sum) => times_size(b, operand, eqn.size)?,
            (None, AxisReduceKind::Max | AxisReduceKind::Min) => operand,
        };
        let axes: Vec<_> = self.axes.iter().filter(|axis| Some(&***axis) != eqn.axis_name).cloned().collect();
        if !axes.is_empty() {
            result = b.emit1(AxisReduce { axes, ..self.clone() }, &[result])?;
        }
        shared(result)
    }

    fn is_shared(&self) -> bool {
        true
    }

    rules_over_axes!(|op| &op.axes);
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

    /// Runs of lanes that come from neighbours are moved as one slice: a rotation is two.
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
        let Some(from) = from.into_iter().collect::<Option<Vec<usize>>>() else {
            return Err(value_error!(
                "ppermute over an axis of vmap needs a permutation of all its {size} lanes, got {:?}",
                self.perm
            ));
        };
        let (operand, dim) = only(Self::NAME, eqn)?;
        let Some(dim) = dim else { return shared(operand) };
        let mut pieces = Vec::new();
        for run in from.chunk_by(|a, b| a + 1 == *b) {
            pieces.push(b.slice_axis(operand, dim, run[0], run[0] + run.len())?);
        }
        let permuted = match pieces.as_slice() {
            [] => operand,
            [only] => *only,
            pieces => b.emit1(Concatenate { dimension: dim }, pieces)?,
        };
        one_batched(permuted, dim)
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
        let is_source = b.compare(Compare::Eq, index, source)?;
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
