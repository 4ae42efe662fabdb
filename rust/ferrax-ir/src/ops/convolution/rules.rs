//! Derivatives and batches of convolutions, which are convolutions again.
//!
//! With b the batch, c input and o output features, and spatial axes left out, a convolution is the
//! product `[b, c] [c, o] -> [b, o]`. Its cotangents are `[b, o] [o, c] -> [b, c]`, over the reversed
//! window with strides and dilations of `lhs` exchanged, and `[c, b] [b, o] -> [c, o]`, with strides and
//! dilations of `rhs` exchanged. With g feature groups, `[b, gc] [c, go] -> [b, go]`, they are
//! `[b, go] [o, gc] -> [b, gc]`, which has feature groups, and `[gc, b] [b, go] -> [c, go]`, which has
//! batch groups; with g batch groups, `[gb, c] [c, go] -> [b, go]`, they are `[b, go] [o, gc] -> [b, gc]`,
//! whose result is put in order, and `[c, gb] [b, go] -> [c, go]`, both with feature groups.
//! Batches of both operands are one group each; a batch of one operand is more batch or more features.

use smallvec::{SmallVec, smallvec};

use crate::ops::derive::{Cotangents, Tangents, cotangent, linear, zero};
use crate::rules::{
    Batch, Batched, Extents as Sized, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear,
};
use crate::shard_rule::{Cut, ShardRule};
use crate::{ArrayType, Atom, Axes, Builder, Dim, Result, Type, internal_error, ops::Rev, value_error};

use super::{ConvDims, ConvGeneralDilated, dilated};

/// Splits an axis into `outer` parts, which become an axis before it.
fn split_axis(b: &mut Builder, x: Atom, axis: usize, outer: &Dim) -> Result<Atom> {
    let mut shape = b.shape(x);
    shape[axis] = shape[axis].floor_div(outer)?;
    shape.insert(axis, outer.clone());
    b.reshape(x, &shape)
}

/// Moves axis `from` before the axis that is number `into` without it, and makes one axis of both.
fn merge_axis(b: &mut Builder, x: Atom, from: usize, into: usize) -> Result<Atom> {
    let x = b.move_axis(x, from, into)?;
    let mut shape = b.shape(x);
    shape[into] = shape[into].mul(&shape[into + 1])?;
    shape.remove(into + 1);
    b.reshape(x, &shape)
}

/// (batch, feature, spatial …) with the first two exchanged.
fn exchanged(spec: &Axes) -> Axes {
    let mut spec = spec.clone();
    spec.swap(0, 1);
    spec
}

/// A size as a number that widths are computed from.
fn width(size: &Dim) -> Result<i64> {
    let size = size.require("a derivative of a convolution")?;
    i64::try_from(size).map_err(|_| value_error!("a size of {size} in a convolution"))
}

/// Sizes along a spatial axis, dilated: of `lhs`, the window, and the result with its strides.
struct Extents {
    lhs: i64,
    rhs: i64,
    out: i64,
}

impl ConvGeneralDilated {
    fn extents(&self, axis: usize, lhs: &[Dim], rhs: &[Dim], out: &[Dim]) -> Result<Extents> {
        let dims = &self.dims;
        let of = |size: &Dim, dilation: usize| width(&dilated(size, dilation)?);
        Ok(Extents {
            lhs: of(&lhs[dims.lhs[axis + 2]], self.lhs_dilation[axis])?,
            rhs: of(&rhs[dims.rhs[axis + 2]], self.rhs_dilation[axis])?,
            out: of(&out[dims.out[axis + 2]], self.window_strides[axis])?,
        })
    }

    /// The cotangent of `lhs`.
    fn left_cotangent(&self, b: &mut Builder, ct: Atom, rhs: Atom, lhs: &ArrayType) -> Result<Atom> {
        let dims = &self.dims;
        let (window, result) = (b.shape(rhs), b.shape(ct));
        let mut padding = Vec::with_capacity(self.spatial());
        for axis in 0..self.spatial() {
            let size = self.extents(axis, &lhs.shape, &window, &result)?;
            let low = size.rhs - self.padding[axis].0 - 1;
            padding.push((low, size.lhs + size.rhs - 1 - size.out - low));
        }
        let (groups, mut weights) = (self.groups(), rhs);
        if groups > 1 {
            weights = split_axis(b, weights, dims.rhs[0], &Dim::Const(groups))?;
            weights = merge_axis(b, weights, dims.rhs[0], dims.rhs[1])?;
        }
        if self.spatial() > 0 {
            weights = b.emit1(Rev { dimensions: dims.rhs[2..].iter().copied().collect() }, &[weights])?;
        }
        let weights = b.convert(weights, b.dtype(ct))?;
        let op = ConvGeneralDilated {
            window_strides: self.lhs_dilation.clone(),
            padding,
            lhs_dilation: self.window_strides.clone(),
            dims: ConvDims { lhs: dims.out.clone(), rhs: exchanged(&dims.rhs), out: dims.lhs.clone() },
            feature_group_count: groups,
            batch_group_count: 1,
            preferred_element_type: self.preferred_for(b, ct),
            ..self.clone()
        };
        let mut result = b.emit1(op, &[ct, weights])?;
        if self.batch_group_count > 1 {
            result = split_axis(b, result, dims.lhs[1], &Dim::Const(groups))?;
            result = merge_axis(b, result, dims.lhs[1], dims.lhs[0])?;
        }
        b.convert(result, lhs.dtype)
    }

    /// The cotangent of `rhs`; none where no result depends on it.
    fn right_cotangent(&self, b: &mut Builder, ct: Atom, lhs: Atom, rhs: &ArrayType) -> Result<Option<Atom>> {
        let dims = &self.dims;
        let (operand, result) = (b.shape(lhs), b.shape(ct));
        if result.contains(&Dim::Const(0)) {
            return Ok(None);
        }
        let mut padding = Vec::with_capacity(self.spatial());
        for axis in 0..self.spatial() {
            let size = self.extents(axis, &operand, &rhs.shape, &result)?;
            let low = self.padding[axis].0;
            padding.push((low, size.out - size.lhs + size.rhs - low - 1));
        }
        let lhs = b.convert(lhs, b.dtype(ct))?;
        let op = ConvGeneralDilated {
            window_strides: self.rhs_dilation.clone(),
            padding,
            rhs_dilation: self.window_strides.clone(),
            dims: ConvDims {
                lhs: exchanged(&dims.lhs),
                rhs: exchanged(&dims.out),
                out: exchanged(&dims.rhs),
            },
            feature_group_count: self.batch_group_count,
            batch_group_count: self.feature_group_count,
            preferred_element_type: self.preferred_for(b, ct),
            ..self.clone()
        };
        let result = b.emit1(op, &[lhs, ct])?;
        b.convert(result, rhs.dtype).map(Some)
    }

    /// The result dtype for operands of the dtype of a cotangent: the op's own, if it goes with that.
    fn preferred_for(&self, b: &Builder, ct: Atom) -> Option<crate::DType> {
        let dtype = b.dtype(ct);
        self.preferred_element_type.filter(|_| self.result_dtype(dtype).is_ok())
    }

    /// Nothing, in the shape of a batch of no elements.
    fn empty_batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let mut types: SmallVec<[Type; 2]> = SmallVec::new();
        for (&atom, dim) in eqn.inputs.iter().zip(eqn.dims) {
            let mut ty = b.array_type(atom)?;
            if let Some(dim) = *dim {
                ty.shape.remove(dim);
            }
            types.push(Type::Array(ty));
        }
        let types: Types = self.infer(&types)?;
        let ty = types[0].as_array().ok_or_else(|| internal_error!("a convolution has one array output"))?;
        let mut ty = ty.clone();
        ty.shape.insert(0, Dim::Const(0));
        Ok(smallvec![(b.zeros(&ty)?, Some(0))])
    }

    /// Merges a batch dimension into an axis behind the axis' groups: [batch, (groups, n)] becomes
    /// [(groups, batch, n)].
    fn merge_behind_groups(&self, b: &mut Builder, x: Atom, dim: usize, axis: usize) -> Result<Atom> {
        let x = b.move_axis(x, dim, axis)?;
        let x = split_axis(b, x, axis + 1, &Dim::Const(self.groups()))?;
        let x = merge_axis(b, x, axis, axis + 1)?;
        merge_axis(b, x, axis, axis)
    }
}

impl Rules for ConvGeneralDilated {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let dtype = b.dtype(eqn.outputs[0]);
        if !dtype.is_inexact() {
            return Ok(zero());
        }
        let mut total: Option<Atom> = None;
        for (position, tangent) in eqn.tangents.iter().enumerate() {
            let &Some(g) = tangent else { continue };
            let operands = if position == 0 { [g, eqn.inputs[1]] } else { [eqn.inputs[0], g] };
            let term = b.emit1(self.clone(), &operands)?;
            total = Some(match total {
                Some(sum) => b.add(sum, term)?,
                None => term,
            });
        }
        Ok(smallvec![total])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let ct = cotangent(eqn)?;
        match (linear(eqn, 0), linear(eqn, 1), eqn.inputs[0].known(), eqn.inputs[1].known()) {
            (Some(lhs), None, _, Some(rhs)) => {
                Ok(smallvec![Some(self.left_cotangent(b, ct, rhs, lhs)?), None])
            }
            (None, Some(rhs), Some(lhs), _) => Ok(smallvec![None, self.right_cotangent(b, ct, lhs, rhs)?]),
            _ => not_linear(self),
        }
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        if *eqn.size == Dim::Const(0) {
            return self.empty_batch(b, eqn);
        }
        let (lhs, rhs) = (eqn.inputs[0], eqn.inputs[1]);
        let ConvDims { lhs: left, rhs: right, out } = &self.dims;
        let mut op = self.clone();
        match (eqn.dims[0], eqn.dims[1]) {
            (Some(l), Some(r)) => {
                let size = eqn.size.require("vmap of a convolution over both operands")?;
                let count = if self.batch_group_count > 1 {
                    &mut op.batch_group_count
                } else {
                    &mut op.feature_group_count
                };
                *count = count
                    .checked_mul(size)
                    .ok_or_else(|| value_error!("a convolution of {size} times {count} groups"))?;
                let lhs = merge_axis(b, lhs, l, left[usize::from(self.batch_group_count == 1)])?;
                let rhs = merge_axis(b, rhs, r, right[0])?;
                let result = b.emit1(op, &[lhs, rhs])?;
                Ok(smallvec![(split_axis(b, result, out[1], eqn.size)?, Some(out[1]))])
            }
            (Some(l), None) => {
                let lhs = match self.batch_group_count {
                    1 => merge_axis(b, lhs, l, left[0])?,
                    _ => self.merge_behind_groups(b, lhs, l, left[0])?,
                };
                let result = b.emit1(op, &[lhs, rhs])?;
                Ok(smallvec![(split_axis(b, result, out[0], eqn.size)?, Some(out[0]))])
            }
            (None, Some(r)) if self.groups() == 1 => {
                let rhs = merge_axis(b, rhs, r, right[0])?;
                let result = b.emit1(op, &[lhs, rhs])?;
                Ok(smallvec![(split_axis(b, result, out[1], eqn.size)?, Some(out[1]))])
            }
            (None, Some(r)) => {
                let rhs = self.merge_behind_groups(b, rhs, r, right[0])?;
                let result = b.emit1(op, &[lhs, rhs])?;
                // (groups, batch, n) features: the batch to the front of them.
                let result = split_axis(b, result, out[1], &Dim::Const(self.groups()))?;
                let result = split_axis(b, result, out[1] + 1, eqn.size)?;
                Ok(smallvec![(merge_axis(b, result, out[1], out[1] + 1)?, Some(out[1]))])
            }
            (None, None) => Err(internal_error!("nothing is batched")),
        }
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    /// Features are whole where there are groups of them; windows reach into neighbouring parts.
    fn shard(&self, inputs: &[Sized<'_>], outputs: &[Sized<'_>]) -> Result<ShardRule> {
        let mut rule = ShardRule::apart(inputs, outputs);
        let dims = &self.dims;
        if self.batch_group_count == 1 {
            rule.share(0, dims.lhs[0], 0, dims.out[0], Cut::Pass);
        }
        if self.groups() == 1 {
            rule.share(1, dims.rhs[0], 0, dims.out[1], Cut::Pass);
            rule.fold((0, dims.lhs[1]), (1, dims.rhs[1]));
        }
        for axis in 2..dims.lhs.len() {
            rule.share(0, dims.lhs[axis], 0, dims.out[axis], Cut::Shift);
        }
        Ok(rule)
    }
}
