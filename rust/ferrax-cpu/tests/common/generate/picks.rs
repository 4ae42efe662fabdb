//! Steps that pick elements at computed places, in bounds or not.

use ferrax_ir::ops::{Gather, GatherMode, Unary};
use ferrax_ir::{Atom, DType, Scalar};

use super::bound::{Bound, EXACT};
use super::{MOST, Made, Maker, Site, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// Windows at places that an array says; by half, their negation instead, so that nothing else reads them.
    pub(super) fn picks(&mut self, site: &Site) -> Made {
        let made = self.gather(site.x, &site.sizes)?;
        if made.is_empty() || site.dtype.is_bool() || site.dtype.is_storage_only() || self.flip() {
            return Some(made);
        }
        self.emit(Unary::Neg, &[made[0].atom], made[0].bound)
    }

    fn gather(&mut self, x: Value, sizes: &[usize]) -> Made {
        let (mut op, indices) = self.placement(sizes)?;
        let dtype = self.dtype(x);
        let filled = dtype != DType::Bool && !dtype.is_storage_only() && self.flip();
        op.fill_value = filled.then(|| Scalar::from_i64(dtype, 1));
        let outside = match (op.mode, op.fill_value) {
            (GatherMode::Fill, Some(_)) => Bound { unit: 1.0, ..Bound::exact(1.0) },
            (GatherMode::Fill, None) => EXACT,
            _ => x.bound,
        };
        self.emit(op, &[x.atom, indices], x.bound.or(outside))
    }

    /// Places, in bounds or not, and how many there are.
    fn places(&mut self) -> Option<(Atom, usize)> {
        let value = self.any(|maker, value| {
            let dtype = maker.dtype(value);
            value.is_exact() && dtype.is_integer() && dtype.bits() >= 8
        })?;
        let count: usize = self.sizes(value).iter().product();
        let flat = self.b.reshape(value.atom, &dims(&[count])).ok()?;
        if count <= 9 {
            return Some((flat, count));
        }
        Some((self.b.slice_axis(flat, 0, 1, 10).ok()?, 9))
    }

    /// Windows of an array of these sizes and the places where they begin.
    pub(super) fn placement(&mut self, sizes: &[usize]) -> Option<(Gather, Atom)> {
        let rank = sizes.len();
        if rank == 0 {
            return None;
        }
        let (places, count) = self.places()?;
        let column = self.b.reshape(places, &dims(&[count, 1])).ok()?;
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
                self.b.broadcast_in_dim(places, &dims(&[count, 2]), &[0]).ok()?
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
        Some((op, indices))
    }
}
