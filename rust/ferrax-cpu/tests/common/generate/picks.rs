//! Steps that pick elements at computed places, in bounds or not.

use ferrax_ir::ops::{DynamicSlice, Gather, GatherMode, Unary};
use ferrax_ir::{DType, Scalar};

use super::bound::Bound;
use super::{MOST, Maker, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// Windows at places that an array says; by half, their negation instead, so that nothing else reads them.
    pub(super) fn picks(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let made = if self.choices.below(4) == 0 { self.slice_of(x, sizes) } else { self.gather(x, sizes) }?;
        let dtype = self.dtype(made[0]);
        if dtype.is_bool() || self.flip() {
            return Some(made);
        }
        self.emit(Unary::Neg, &[made[0].atom], made[0].bound)
    }

    fn slice_of(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let inner: Vec<usize> = sizes.iter().map(|&size| self.choices.below(size + 1)).collect();
        let mut operands = vec![x.atom];
        for _ in sizes {
            let index = self.index();
            operands.push(index);
        }
        self.emit(DynamicSlice { slice_sizes: dims(&inner).into() }, &operands, x.bound)
    }

    fn gather(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let rank = sizes.len();
        let places = self.any(|maker, value| {
            let dtype = maker.dtype(value);
            value.is_exact() && dtype.is_integer() && dtype.bits() >= 8 && maker.sizes(value).len() == 1
        })?;
        let count = self.sizes(places)[0];
        let column = self.b.reshape(places.atom, &dims(&[count, 1])).ok()?;
        let mode = self.pick(GatherMode::ALL);
        let axis = self.choices.below(rank);
        let mut window = sizes.to_vec();
        window[axis] = window[axis].min(1);
        let mut op = Gather {
            offset_dims: (1..rank).collect(),
            collapsed_slice_dims: [axis][..].into(),
            start_index_map: [axis][..].into(),
            operand_batching_dims: [][..].into(),
            start_indices_batching_dims: [][..].into(),
            slice_sizes: [][..].into(),
            mode,
            fill_value: None,
            unique_indices: false,
            indices_are_sorted: false,
        };
        let indices = match self.choices.below(3) {
            // Parts of each line along the axis, places of their own for each index of another axis.
            0 if rank > 1 => {
                let batch = (axis + 1) % rank;
                window[batch] = window[batch].min(1);
                op.operand_batching_dims = [batch][..].into();
                op.start_indices_batching_dims = [0][..].into();
                op.offset_dims = (2..rank).collect();
                self.b.broadcast_in_dim(column, &dims(&[sizes[batch], count, 1]), &[1, 2]).ok()?
            }
            // Windows that begin at two places.
            1 if rank > 1 => {
                let second = (axis + 1) % rank;
                window[second] = self.choices.below(sizes[second] + 1);
                op.start_index_map = [second, axis][..].into();
                self.b.broadcast_in_dim(places.atom, &dims(&[count, 2]), &[0]).ok()?
            }
            // Windows that keep the axis, before the places.
            2 if rank < 4 => {
                window[axis] = self.choices.below(sizes[axis] + 1);
                op.collapsed_slice_dims = [][..].into();
                op.offset_dims = (0..rank).collect();
                column
            }
            _ => column,
        };
        op.slice_sizes = dims(&window).into();
        if window.iter().product::<usize>() * count * sizes.iter().max()? > 4 * MOST {
            return None;
        }
        let dtype = self.dtype(x);
        op.fill_value = (dtype != DType::Bool && self.flip()).then(|| Scalar::from_i64(dtype, 3));
        let outside = match (mode, op.fill_value) {
            (GatherMode::Fill, Some(_)) => 3.0,
            (GatherMode::Fill, None) if dtype.is_inexact() => f64::INFINITY,
            _ => 0.0,
        };
        self.emit(op, &[x.atom, indices], x.bound.or(Bound { magnitude: outside, error: 0.0 }))
    }
}
