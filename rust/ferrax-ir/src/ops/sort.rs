//! Sorting along an axis, in the order of keys (`order.rs`). Equal keys keep
//! their order, whether that is asked for or not.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::convert::Wide;
use crate::rules::{self, Batch, Batched, Jvp, Lowering, Row, Rules, Types, WithTangents, not_linear};
use crate::{
    Atom, Axes, Builder, DType, Dim, Result, Shape, ShowShape, Tensor, Type, internal_error, op_struct,
    type_error, value_error,
};

use super::accumulate::element;
use super::common::arrays;
use super::index_space::*;
use super::order::{check_ordered, compare_keys};
use super::{Gather, GatherMode};

op_struct! {
    /// Sorts along an axis by the first operands; the others are permuted along.
    Sort "sort" { dimension: usize, is_stable: bool, num_keys: usize }
}

/// `x` at `indices` along one axis, for indices in bounds of the shape that the result is to have
/// and a last axis of size 1.
pub(super) fn take_along(b: &mut Builder, x: Atom, indices: Atom, axis: usize) -> Result<Atom> {
    let rank = b.rank(x);
    let others: Axes = other_axes(rank, &[axis]);
    let op = Gather {
        offset_dims: Axes::new(),
        collapsed_slice_dims: SmallVec::from_iter([axis]),
        start_index_map: SmallVec::from_iter([axis]),
        operand_batching_dims: others.clone(),
        start_indices_batching_dims: others,
        slice_sizes: smallvec::smallvec![Dim::Const(1); rank],
        mode: GatherMode::PromiseInBounds,
        fill_value: None,
        unique_indices: false,
        indices_are_sorted: false,
    };
    b.emit1(op, &[x, indices])
}

/// The first element of each line along `axis`, and the stride within lines.
pub(super) fn lines(sizes: &[usize], axis: usize) -> Result<(Vec<usize>, usize)> {
    let all = strides(sizes);
    let mut across: Axes = sizes.into();
    across[axis] = 1;
    let mut first = Vec::new();
    for_each_index(&across, |index| {
        first.push(offset(index, &all));
        Ok(())
    })?;
    Ok((first, all[axis]))
}

impl Row for Sort {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let all = arrays(Self::NAME, inputs)?;
        let Some(first) = all.first() else {
            return Err(type_error!("sort: there must be an operand, got none"));
        };
        if all.iter().any(|ty| ty.shape != first.shape) {
            let shapes: Vec<_> = all.iter().map(|ty| ShowShape(&ty.shape).to_string()).collect();
            return Err(type_error!("sort: all operands need one shape, got {}", shapes.join(" ")));
        }
        if self.dimension >= first.rank() {
            return Err(value_error!(
                "sort: there is no axis {} in shape {}",
                self.dimension,
                ShowShape(&first.shape)
            ));
        }
        if !(1..=all.len()).contains(&self.num_keys) {
            return Err(value_error!(
                "sort: num_keys={} of {} operands: there must be a key, and no more than operands",
                self.num_keys,
                all.len()
            ));
        }
        for (position, ty) in all.iter().take(self.num_keys).enumerate() {
            check_ordered(Self::NAME, ty.dtype, position)?;
        }
        Ok(inputs.iter().cloned().collect())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let Some(first) = inputs.first() else { return Err(internal_error!("sort has no operands")) };
        let mut outputs: Vec<Tensor> =
            inputs.iter().map(|x| Tensor::zeros(x.dtype(), x.sizes())).collect::<Result<_>>()?;
        let length = first.sizes()[self.dimension];
        let (starts, stride) = lines(first.sizes(), self.dimension)?;
        for base in starts {
            let keys: Vec<Vec<Wide>> = (0..length)
                .map(|place| {
                    let at = base + place * stride;
                    let keys = inputs.iter().take(self.num_keys);
                    keys.map(|x| element(x.dtype(), x.bytes(), at)).collect()
                })
                .collect::<Result<_>>()?;
            let mut order: Vec<usize> = (0..length).collect();
            order.sort_by(|&left, &right| {
                inputs
                    .iter()
                    .zip(keys[left].iter().zip(&keys[right]))
                    .map(|(x, (&left, &right))| compare_keys(x.dtype(), left, right))
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            });
            for (x, output) in inputs.iter().zip(&mut outputs) {
                let (width, target) = (x.dtype().size(), output.bytes_mut()?);
                for (to, from) in order.iter().enumerate() {
                    copy_element(x.bytes(), base + from * stride, target, base + to * stride, width)?;
                }
            }
        }
        Ok(outputs)
    }
}

impl Sort {
    /// The outputs, and where each element was along the axis, with a last axis of size 1.
    fn with_places(&self, b: &mut Builder, inputs: &[Atom]) -> Result<(SmallVec<[Atom; 4]>, Atom)> {
        let shape: Shape = inputs.first().map(|&x| b.shape(x)).unwrap_or_default();
        let wide = shape[self.dimension].as_const().is_some_and(|length| u32::try_from(length).is_err());
        let iota = b.iota(if wide { DType::U64 } else { DType::U32 }, &shape, self.dimension)?;
        let mut operands: SmallVec<[Atom; 4]> = inputs.into();
        operands.push(iota);
        let mut outputs: SmallVec<[Atom; 4]> =
            b.emit(self.clone(), &operands)?.into_iter().map(Atom::Var).collect();
        let places = outputs.pop().ok_or_else(|| internal_error!("sort has no outputs"))?;
        let places = b.expand_dim(places, shape.len())?;
        Ok((outputs, places))
    }

    fn with_tangents(
        &self,
        b: &mut Builder,
        inputs: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Result<WithTangents> {
        let (outputs, places) = self.with_places(b, inputs)?;
        let mut results = WithTangents::new();
        for (output, tangent) in outputs.into_iter().zip(tangents) {
            let sorted = tangent.map(|tangent| take_along(b, tangent, places, self.dimension));
            results.push((output, sorted.transpose()?));
        }
        Ok(results)
    }
}

impl Rules for Sort {
    /// Places are sorted along, so that tangents can be taken in the same order.
    fn jvp_joint(
        &self,
        b: &mut Builder,
        inputs: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Option<Result<WithTangents>> {
        Some(self.with_tangents(b, inputs, tangents))
    }

    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let pairs = self.with_tangents(b, eqn.inputs, eqn.tangents)?;
        Ok(pairs.into_iter().map(|(_, tangent)| tangent).collect())
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let target = eqn.dims.iter().find_map(|&dim| dim);
        let target = target.ok_or_else(|| internal_error!("sort: nothing is batched"))?;
        let mut operands: SmallVec<[Atom; 4]> = SmallVec::new();
        for (&x, &dim) in eqn.inputs.iter().zip(eqn.dims) {
            operands.push(match dim {
                Some(dim) => b.move_axis(x, dim, target)?,
                None => b.broadcast_batch(x, eqn.size, target)?,
            });
        }
        let dimension = self.dimension + usize::from(self.dimension >= target);
        let outputs = b.emit(Sort { dimension, ..self.clone() }, &operands)?;
        Ok(outputs.into_iter().map(|var| (Atom::Var(var), Some(target))).collect())
    }

    fn coupled_axes(&self, _rank: usize) -> Option<Axes> {
        Some(SmallVec::from_elem(self.dimension, 1))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}
