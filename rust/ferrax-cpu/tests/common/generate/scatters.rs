//! Steps that write elements at computed places, in bounds or not, and more than once.

use ferrax_ir::ops::{Gather, GatherMode, Scatter, ScatterKind};
use ferrax_ir::{Atom, Op};

use super::bound::EXACT;
use super::{Made, Maker, Site, Value};
use crate::common::Choices;

/// The scatter that writes where a gather reads.
pub fn scatter_of(op: &Gather, kind: ScatterKind) -> Scatter {
    Scatter {
        kind,
        update_window_dims: op.offset_dims.clone(),
        inserted_window_dims: op.collapsed_slice_dims.clone(),
        scatter_dims_to_operand_dims: op.start_index_map.clone(),
        operand_batching_dims: op.operand_batching_dims.clone(),
        scatter_indices_batching_dims: op.start_indices_batching_dims.clone(),
        mode: op.mode,
        unique_indices: false,
        indices_are_sorted: false,
    }
}

impl<C: Choices> Maker<'_, C> {
    /// Updates come one after the other, so that their sums have the same bits.
    pub(super) fn scatter(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (op, indices) = self.placement(&site.sizes)?;
        let updates = self.updates(x, &op, indices)?;
        let kind = self.pick(ScatterKind::ALL);
        let scatter = scatter_of(&op, kind);
        if kind == ScatterKind::Set {
            return self.emit(scatter, &[x.atom, indices, updates.atom], x.bound.or(updates.bound));
        }
        if !x.is_exact() || !updates.is_exact() || site.dtype.is_complex() && kind == ScatterKind::Mul {
            return None;
        }
        self.emit(scatter, &[x.atom, indices, updates.atom], EXACT)
    }

    /// What such a gather gives, or another value of its type.
    fn updates(&mut self, x: Value, op: &Gather, indices: Atom) -> Option<Value> {
        let operands = [self.b.type_of(x.atom), self.b.type_of(indices)];
        let wanted = Op::from(op.clone()).infer(&operands).ok()?;
        let found = self.any(|maker, value| maker.b.type_of(value.atom) == wanted[0]);
        if found.is_some() && self.flip() {
            return found;
        }
        let y = self.like(x);
        // Places out of bounds are filled, by NaN if it is floats.
        let read = Gather { mode: GatherMode::Clip, ..op.clone() };
        self.emit(read, &[y.atom, indices], y.bound).map(|made| made[0])
    }
}
