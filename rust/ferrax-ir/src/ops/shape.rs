//! Ops that rearrange axes: broadcast_in_dim, reshape, transpose, squeeze.
//!
//! All are linear, take every dtype and only move elements.

use smallvec::SmallVec;

use crate::rules::{self, Batch, Batched, Extents, Follow, IndexMap, Jvp, Lowering, Row, Rules, Types};
use crate::{
    Atom, Axes, Builder, Dim, Result, Shape, ShowShape, Tensor, Type, op_struct, type_error, value_error,
};

use super::common::one;
use super::index_space::*;

op_struct! {
    /// Broadcasts: axis i of the operand becomes axis `broadcast_dimensions[i]`.
    BroadcastInDim "broadcast_in_dim" { shape: Shape, broadcast_dimensions: Axes }
}
op_struct! {
    /// The same elements in the same order with another shape.
    Reshape "reshape" { new_sizes: Shape, dimensions: Option<Axes> }
}
op_struct! {
    /// Axis i of the result is axis `permutation[i]` of the operand.
    Transpose "transpose" { permutation: Axes }
}
op_struct! {
    /// Removes axes of size 1.
    Squeeze "squeeze" { dimensions: Axes }
}

fn is_permutation(axes: &[usize], rank: usize) -> bool {
    axes.len() == rank && axes.iter().all(|&axis| axis < rank) && !has_duplicates(axes)
}

impl Row for BroadcastInDim {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let dims = &self.broadcast_dimensions;
        if dims.len() != operand.rank() {
            return Err(type_error!(
                "broadcast_in_dim broadcast_dimensions must name one axis for each axis of the operand, got {} \
                 for an operand of shape {}.",
                tuple(dims),
                ShowShape(&operand.shape)
            ));
        }
        if dims.iter().any(|&dim| dim >= self.shape.len()) || has_duplicates(dims) {
            return Err(type_error!(
                "broadcast_in_dim: broadcast_dimensions must be axes of the result, each once; its shape is {}, got {}.",
                ShowShape(&self.shape),
                tuple(dims)
            ));
        }
        for (size, &dim) in operand.shape.iter().zip(dims) {
            if *size != 1 && *size != self.shape[dim] {
                return Err(type_error!(
                    "broadcast_in_dim: axes of the operand, of shape {}, have size 1 or that of their \
                     axis in the result; got shape {} with broadcast_dimensions {}.",
                    ShowShape(&operand.shape),
                    ShowShape(&self.shape),
                    tuple(dims)
                ));
            }
        }
        one(operand.with_shape(self.shape.clone()))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let (_, sizes) = output_sizes(Self::NAME, outputs)?;
        let strides = strides(operand.sizes());
        let axes = operand.sizes().iter().zip(&strides).zip(&self.broadcast_dimensions);
        let moving: Vec<_> = axes.filter(|((size, _), _)| **size != 1).map(|((_, s), d)| (*s, *d)).collect();
        Ok(vec![remap(operand, &sizes, |index| moving.iter().map(|&(s, d)| s * index[d]).sum())?])
    }
}

impl Rules for BroadcastInDim {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        // Axes of the operand that were not repeated, with their places in the output.
        let kept: Axes = (0..operand.rank()).filter(|&axis| operand.shape[axis] != 1).collect();
        let places: Axes = kept.iter().map(|&axis| self.broadcast_dimensions[axis]).collect();
        let summed = b.reduce_sum(cotangent, &other_axes(self.shape.len(), &places))?;
        let order: Axes =
            places.iter().map(|place| places.iter().filter(|other| *other < place).count()).collect();
        let ordered = b.transpose(summed, &order)?;
        one_cotangent(b.broadcast_in_dim(ordered, &operand.shape, &kept)?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let operand = b.move_axis(operand, dim, 0)?;
        let mut shape = self.shape.clone();
        shape.insert(0, eqn.size.clone());
        one_batched(b.broadcast_in_dim(operand, &shape, &with_front(&self.broadcast_dimensions))?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        let axes = inputs[0].sizes.iter().zip(&self.broadcast_dimensions);
        let axes = axes.map(|(&size, &axis)| if size == 1 { Follow::FIRST } else { Follow::axis(axis) });
        Ok(Some(IndexMap::Along(axes.collect())))
    }
}

impl Row for Reshape {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        if let Some(dimensions) = &self.dimensions
            && !is_permutation(dimensions, operand.rank())
        {
            return Err(type_error!(
                "reshape: dimensions {} are not each axis once of shape {}.",
                tuple(dimensions),
                ShowShape(&operand.shape)
            ));
        }
        let (old, new) = (Dim::product(&operand.shape)?, Dim::product(&self.new_sizes)?);
        // Constraints may make symbolic ones equal: only sizes tell.
        if old.surely_differs(&new)? {
            return Err(type_error!(
                "cannot reshape array of shape {} (size {old}) into shape {} (size {new})",
                ShowShape(&operand.shape),
                ShowShape(&self.new_sizes)
            ));
        }
        one(operand.with_shape(self.new_sizes.clone()))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let (_, sizes) = output_sizes(Self::NAME, outputs)?;
        let ordered = match &self.dimensions {
            Some(dimensions) => permute(operand, dimensions)?,
            None => operand.clone(),
        };
        Ok(vec![ordered.with_sizes(sizes)?])
    }
}

/// The operand with axes in the order `permutation`.
fn permute(operand: &Tensor, permutation: &[usize]) -> Result<Tensor> {
    let sizes: Axes = permutation.iter().map(|&axis| operand.sizes()[axis]).collect();
    let old = strides(operand.sizes());
    let strides: Axes = permutation.iter().map(|&axis| old[axis]).collect();
    remap(operand, &sizes, |index| offset(index, &strides))
}

impl Rules for Reshape {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let Some(dimensions) = &self.dimensions else {
            return one_cotangent(b.reshape(cotangent, &operand.shape)?);
        };
        let permuted: Shape = dimensions.iter().map(|&axis| operand.shape[axis].clone()).collect();
        let reshaped = b.reshape(cotangent, &permuted)?;
        one_cotangent(b.transpose(reshaped, &inverse(dimensions))?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let operand = b.move_axis(operand, dim, 0)?;
        let mut new_sizes = self.new_sizes.clone();
        new_sizes.insert(0, eqn.size.clone());
        let dimensions = self.dimensions.as_ref().map(|dimensions| with_front(dimensions));
        one_batched(b.emit1(Reshape { new_sizes, dimensions }, &[operand])?, 0)
    }

    fn lower(&self) -> Lowering {
        // With `dimensions` it is a transpose, then a reshape.
        if self.dimensions.is_some() { Lowering::Expand } else { Lowering::Movement }
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::InOrder))
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        let permuted = b.transpose(inputs[0], self.dimensions.as_deref().unwrap_or_default())?;
        Ok(SmallVec::from_iter([b.reshape(permuted, &self.new_sizes)?]))
    }
}

/// The permutation that undoes `permutation`.
fn inverse(permutation: &[usize]) -> Axes {
    let mut inverse: Axes = smallvec::smallvec![0; permutation.len()];
    for (position, &axis) in permutation.iter().enumerate() {
        inverse[axis] = position;
    }
    inverse
}

impl Row for Transpose {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        if !is_permutation(&self.permutation, operand.rank()) {
            return Err(type_error!(
                "transpose: {} does not have each axis once of an operand of shape {}.",
                tuple(&self.permutation),
                ShowShape(&operand.shape)
            ));
        }
        one(operand.with_shape(self.permutation.iter().map(|&axis| operand.shape[axis].clone()).collect()))
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        Ok(vec![permute(operand, &self.permutation)?])
    }
}

impl Rules for Transpose {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        one_cotangent(b.transpose(cotangent, &inverse(&self.permutation))?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let moved = self.permutation.iter().map(|&axis| if axis < dim { axis } else { axis + 1 });
        let permutation: Axes = std::iter::once(dim).chain(moved).collect();
        one_batched(b.transpose(operand, &permutation)?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::Along(inverse(&self.permutation).into_iter().map(Follow::axis).collect())))
    }
}

impl Row for Squeeze {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let dims = &self.dimensions;
        if has_duplicates(dims) {
            return Err(value_error!("squeeze dimensions are not unique: {}", tuple(dims)));
        }
        if dims.iter().any(|&dim| dim >= operand.rank()) {
            return Err(value_error!(
                "squeeze dimensions outside range [0, {}): {}",
                operand.rank(),
                tuple(dims)
            ));
        }
        if dims.iter().any(|&dim| operand.shape[dim] != 1) {
            return Err(value_error!(
                "squeeze: only axes of size 1 can go, got shape={} and dimensions={}",
                ShowShape(&operand.shape),
                tuple(dims)
            ));
        }
        let kept = other_axes(operand.rank(), dims);
        one(operand.with_shape(kept.iter().map(|&axis| operand.shape[axis].clone()).collect()))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let (_, sizes) = output_sizes(Self::NAME, outputs)?;
        Ok(vec![operand.with_sizes(sizes)?])
    }
}

impl Rules for Squeeze {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let kept = other_axes(operand.rank(), &self.dimensions);
        one_cotangent(b.broadcast_in_dim(cotangent, &operand.shape, &kept)?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let operand = b.move_axis(operand, dim, 0)?;
        one_batched(b.squeeze(operand, &after_front(&self.dimensions))?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::InOrder))
    }
}
