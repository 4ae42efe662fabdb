//! Collectives that change the operand's shape: arrays of all lanes put together,
//! sums handed out in pieces, and pieces exchanged between lanes.
//!
//! `axis_size` is the number of lanes: shapes depend on it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::Concatenate;
use super::super::common::one;
use super::super::index_space::*;
use super::super::reduce::check_number;
use super::groups::{by_group, stacked};
use super::reductions::device_sum;
use super::{Groups, beside, merge_axes, only, shared, split_axis, times_size};
use crate::rules::{self, Batch, Batched, Extents, Jvp, Row, Rules, Types};
use crate::shard_rule::{Cut, ShardRule};
use crate::{
    ArrayType, Atom, Axes, Builder, Dim, Result, Tensor, Type, internal_error, op_struct, value_error,
};

op_struct! {
    /// The arrays of all lanes along a new axis or, if `tiled`, one after the other along an old one.
    AllGather "all_gather" {
        all_gather_dimension: usize, axis_index_groups: Groups, axis_name: Vec<Arc<str>>, axis_size: Dim,
        tiled: bool,
    }
}
op_struct! {
    /// The lane's part of the sum over lanes: one index of an axis or, if `tiled`, a block of it.
    ReduceScatter "reduce_scatter" {
        axis_index_groups: Groups, axis_name: Vec<Arc<str>>, axis_size: Dim, scatter_dimension: usize,
        tiled: bool,
    }
}
op_struct! {
    /// Blocks of `split_axis`, one from each lane, one after the other along `concat_axis`. `tiled` says
    /// how it was asked for and changes nothing.
    AllToAll "all_to_all" {
        axis_index_groups: Groups, axis_name: Arc<str>, axis_size: Dim, concat_axis: usize, split_axis: usize,
        tiled: bool,
    }
}

/// The axis of an operand that is divided among lanes, checked.
fn divided(op: &str, what: &str, operand: &ArrayType, axis: usize, size: &Dim) -> Result<Dim> {
    let Some(length) = operand.shape.get(axis) else {
        return Err(value_error!("{op}: {what} {axis} is out of bounds for {operand}"));
    };
    match (length.as_const(), size.as_const()) {
        (Some(length), Some(size)) if size == 0 || !length.is_multiple_of(size) => Err(value_error!(
            "{op}: {what} has size {length}, which is no multiple of the {size} lanes of the named axis"
        )),
        _ => length.floor_div(size),
    }
}

/// The blocks of equal size that an axis consists of.
fn blocks(b: &mut Builder, x: Atom, axis: usize, count: usize) -> Result<Vec<Atom>> {
    let block = b.shape(x)[axis].require("a collective over groups")? / count.max(1);
    (0..count).map(|number| b.slice_axis(x, axis, number * block, (number + 1) * block)).collect()
}

/// Fails if an op was made for another number of lanes.
fn check_size(op: &str, made_for: &Dim, size: &Dim) -> Result<()> {
    if made_for == size {
        return Ok(());
    }
    Err(internal_error!("{op} for {made_for} lanes is batched over {size}"))
}

/// Axes of an array are cut alike before and after, but for that along which lanes are: part of it if `tiled`, else an axis that
/// one of the arrays has more.
fn beside_axis(tiled: bool, axis: usize, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
    if tiled {
        return ShardRule::coupled(&[axis], inputs, outputs);
    }
    let mut rule = ShardRule::apart(inputs, outputs);
    let (before, after) = (inputs[0].sizes.len(), outputs[0].sizes.len());
    for kept in 0..before.min(after) {
        let behind = kept + usize::from(kept >= axis);
        let (from, to) = if before > after { (behind, kept) } else { (kept, behind) };
        rule.share(0, from, 0, to, Cut::Pass);
    }
    rule
}

impl Row for AllGather {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let mut ty = operand.clone();
        let axis = self.all_gather_dimension;
        if axis >= ty.rank() + usize::from(!self.tiled) {
            return Err(value_error!("{}: axis {axis} is out of bounds for {operand}", Self::NAME));
        }
        if self.tiled {
            ty.shape[axis] = ty.shape[axis].mul(&self.axis_size)?;
        } else {
            ty.shape.insert(axis, self.axis_size.clone());
        }
        one(ty)
    }

    row_over_axes!(|op| &op.axis_name);
}

impl Rules for AllGather {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let back = ReduceScatter {
            axis_index_groups: self.axis_index_groups.clone(),
            axis_name: self.axis_name.clone(),
            axis_size: self.axis_size.clone(),
            scatter_dimension: self.all_gather_dimension,
            tiled: self.tiled,
        };
        one_cotangent(b.emit1(back, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        beside(b, AllGather { all_gather_dimension: self.all_gather_dimension + 1, ..self.clone() }, eqn)
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let axis = self.all_gather_dimension;
        if let Some(groups) = &self.axis_index_groups {
            return by_group(Self::NAME, b, eqn, groups, |b, lanes| {
                let gathered = match self.tiled {
                    true => b.emit1(Concatenate { dimension: axis }, lanes)?,
                    false => stacked(b, lanes, axis)?,
                };
                Ok(vec![gathered; lanes.len()])
            });
        }
        check_size(Self::NAME, &self.axis_size, eqn.size)?;
        let gathered = match only(Self::NAME, eqn)? {
            (operand, Some(dim)) => b.move_axis(operand, dim, axis)?,
            (operand, None) => b.broadcast_batch(operand, eqn.size, axis)?,
        };
        shared(if self.tiled { merge_axes(b, gathered, axis)? } else { gathered })
    }

    fn is_shared(&self) -> bool {
        self.axis_index_groups.is_none()
    }

    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        Ok(beside_axis(self.tiled, self.all_gather_dimension, inputs, outputs))
    }

    rules_over_axes!(|op| &op.axis_name);
}

impl Row for ReduceScatter {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = Self::NAME;
        let [operand] = operands(name, inputs)?;
        check_number(name, operand.dtype)?;
        let axis = self.scatter_dimension;
        let block = divided(name, "scatter_dimension", operand, axis, &self.axis_size)?;
        let mut ty = operand.clone();
        if self.tiled {
            ty.shape[axis] = block;
            return one(ty);
        }
        if ty.shape[axis] != self.axis_size {
            return Err(value_error!(
                "{name}: scatter_dimension {axis} of {operand} must have the size of the named axis ({}); use \
                 tiled=True for blocks",
                self.axis_size
            ));
        }
        ty.shape.remove(axis);
        one(ty)
    }

    row_over_axes!(|op| &op.axis_name);
}

impl Rules for ReduceScatter {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let back = AllGather {
            all_gather_dimension: self.scatter_dimension,
            axis_index_groups: self.axis_index_groups.clone(),
            axis_name: self.axis_name.clone(),
            axis_size: self.axis_size.clone(),
            tiled: self.tiled,
        };
        one_cotangent(b.emit1(back, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        beside(b, ReduceScatter { scatter_dimension: self.scatter_dimension + 1, ..self.clone() }, eqn)
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let axis = self.scatter_dimension;
        if let Some(groups) = &self.axis_index_groups {
            return by_group(Self::NAME, b, eqn, groups, |b, lanes| {
                let all = stacked(b, lanes, 0)?;
                let sum = device_sum(b, all, 0)?;
                let blocks = blocks(b, sum, axis, lanes.len())?;
                if self.tiled {
                    Ok(blocks)
                } else {
                    blocks.into_iter().map(|one| b.squeeze(one, &[axis])).collect()
                }
            });
        }
        check_size(Self::NAME, &self.axis_size, eqn.size)?;
        let sum = match only(Self::NAME, eqn)? {
            (operand, Some(dim)) => device_sum(b, operand, dim)?,
            (operand, None) => times_size(b, operand, eqn.size)?,
        };
        one_batched(if self.tiled { split_axis(b, sum, axis, eqn.size)? } else { sum }, axis)
    }

    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        Ok(beside_axis(self.tiled, self.scatter_dimension, inputs, outputs))
    }

    rules_over_axes!(|op| &op.axis_name);
}

impl Row for AllToAll {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let block = divided(Self::NAME, "split_axis", operand, self.split_axis, &self.axis_size)?;
        let mut ty = operand.clone();
        ty.shape[self.split_axis] = block;
        let Some(size) = ty.shape.get_mut(self.concat_axis) else {
            return Err(value_error!(
                "{}: concat_axis {} is out of bounds for {operand}",
                Self::NAME,
                self.concat_axis
            ));
        };
        *size = size.mul(&self.axis_size)?;
        one(ty)
    }

    row_over_axes!(|op| [&op.axis_name]);
}

impl Rules for AllToAll {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let back = AllToAll { concat_axis: self.split_axis, split_axis: self.concat_axis, ..self.clone() };
        one_cotangent(b.emit1(back, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let op =
            AllToAll { concat_axis: self.concat_axis + 1, split_axis: self.split_axis + 1, ..self.clone() };
        beside(b, op, eqn)
    }

    /// With the lanes that send in front, the blocks' number becomes the lanes that receive, and
    /// the lanes that send become the blocks' number.
    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        if let Some(groups) = &self.axis_index_groups {
            return by_group(Self::NAME, b, eqn, groups, |b, lanes| {
                let sent = lanes.iter().map(|&lane| blocks(b, lane, self.split_axis, lanes.len()));
                let sent = sent.collect::<Result<Vec<_>>>()?;
                (0..lanes.len())
                    .map(|to| {
                        let received: Vec<Atom> = sent.iter().map(|from| from[to]).collect();
                        b.emit1(Concatenate { dimension: self.concat_axis }, &received)
                    })
                    .collect()
            });
        }
        check_size(Self::NAME, &self.axis_size, eqn.size)?;
        let (operand, dim) = only(Self::NAME, eqn)?;
        let sent = batch_to_front(b, operand, dim, eqn.size)?;
        let blocks = split_axis(b, sent, self.split_axis + 1, eqn.size)?;
        let received = b.move_axis(blocks, self.split_axis + 1, 0)?;
        let placed = b.move_axis(received, 1, self.concat_axis + 1)?;
        one_batched(merge_axes(b, placed, self.concat_axis + 1)?, 0)
    }

    fn coupled_axes(&self, _: usize) -> Option<Axes> {
        Some(Axes::from_slice(&[self.split_axis, self.concat_axis]))
    }

    rules_over_axes!(|op| [&op.axis_name]);
}
