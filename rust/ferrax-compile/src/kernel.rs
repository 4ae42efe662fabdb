//! Kernel IR: a loop nest around scalar code.
//!
//! A [`Kernel`] has no sizes in it: kernels that are equal are the same code, whatever the shapes that they run
//! over. Extents, strides, offsets and guards are of a [`Launch`], and what bodies compute with and depends
//! on sizes (starts and steps of counts, bounds of pads) are its parameters.
//!
//! # Semantics
//!
//! A launch runs the main body at each index of its loops. There
//!
//! - `Input { operand: n, part }` is part `part` (of complex numbers the real and the imaginary one) of the
//!   element that load n reads; outside of its guards a load gives its `fill`, or zero, and reads nothing;
//! - a load may have [`Jump`]s: then its `Input`s have as many arguments, indices that were computed (`I32` or `I64`).
//!   Each is clamped to `0..=last` of its jump, and the element is so many times `stride` beyond the load's view. So
//!   accesses stay inside whatever the indices are, and what stands where they were out of range is the body's choice;
//! - `Index { axis }` is the index of a loop, `Param { index }` a parameter;
//! - all else is arithmetic, as [`ScalarOp`](ferrax_ir::scalar::ScalarOp) says. No instruction traps.
//!
//! An accumulator folds its argument over the reduction axes: one value for each index of the parallel ones. The
//! epilogue runs once for each such index, when these values are complete; in it, input `loads + n` is accumulator n,
//! loads do not move along reduction axes, and there are no indices of these. Without accumulators and
//! stores in the epilogue a kernel has no reduction axes that matter.
//!
//! A store writes the element at its view, converted to the operand's dtype: those of the main body at each
//! index, those of the epilogue at each index of the parallel axes. Each element is written once. Indices run in
//! any order, and at once: a kernel that writes a buffer which it also reads does so at one view.
//!
//! Launches have a text form (`kernel_text`), which parses, and a reference interpreter (`interpret`): the oracle
//! of those that make machine code or block operations of kernels. `verify` checks that accesses stay inside.

pub use ferrax_ir::lowering::AccumulatorKind;
use ferrax_ir::scalar::{Body, Reg, ScalarType, Value};
use ferrax_ir::{DType, Scalar};
use smallvec::SmallVec;

use crate::index::{PerLoop, View};
use crate::label::Label;

/// How the iterations of a loop relate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AxisKind {
    /// Independent.
    Parallel,
    /// Feeding accumulators.
    Reduction,
}

/// An array that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    pub dtype: DType,
    pub written: bool,
}

/// A read of one element; outside its guards it gives `fill` (zero if none).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Load {
    pub operand: u32,
    pub fill: Option<Scalar>,
}

/// How far a computed index moves a load: by `stride` elements for each step, from the first to index `last`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Jump {
    pub stride: i64,
    /// At least 0.
    pub last: i64,
}

/// The jumps of a load, one for each argument of its `Input`s.
pub type Jumps = SmallVec<[Jump; 2]>;

/// When a store happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    Main,
    Epilogue,
}

/// A write of one element, converted to the operand's dtype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Store {
    pub operand: u32,
    pub stage: Stage,
    pub value: Value,
}

/// Folds its argument over the reduction axes. Float sums and products are trees that the
/// number of their terms determines: neither tiles nor threads nor what else the
/// kernel computes change a bit. Terms are in the row-major order of the
/// reduction axes; where several of these do not lie in memory as one, those
/// that a tile does not span count slowest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accumulator {
    pub kind: AccumulatorKind,
    /// The type that is accumulated, that of `arg`.
    pub ty: ScalarType,
    pub arg: Reg,
}

impl Accumulator {
    /// Whether the order of its terms matters: a sum or product of floats, which is a tree.
    pub fn is_tree(&self) -> bool {
        matches!(self.kind, AccumulatorKind::Sum | AccumulatorKind::Prod) && self.ty.is_float()
    }

    /// The type of the result.
    pub const fn result(&self) -> ScalarType {
        if self.kind.is_arg() { ScalarType::I64 } else { self.ty }
    }
}

/// A loop nest without sizes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Kernel {
    pub axes: PerLoop<AxisKind>,
    pub params: Vec<ScalarType>,
    pub operands: Vec<Operand>,
    pub loads: Vec<Load>,
    pub body: Body,
    pub accumulators: Vec<Accumulator>,
    pub epilogue: Body,
    pub stores: Vec<Store>,
}

/// A kernel with its sizes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launch {
    pub kernel: Kernel,
    pub extents: PerLoop<usize>,
    /// The bits of each parameter.
    pub params: Vec<u64>,
    /// One for each load. Ranges short of the extents are guards.
    pub loads: Vec<View>,
    /// One for each load, of most nothing.
    pub jumps: Vec<Jumps>,
    /// One for each store, without guards.
    pub stores: Vec<View>,
    pub label: Label,
}

impl Kernel {
    pub fn body_of(&self, stage: Stage) -> &Body {
        match stage {
            Stage::Main => &self.body,
            Stage::Epilogue => &self.epilogue,
        }
    }

    pub fn has_reduction(&self) -> bool {
        self.axes.contains(&AxisKind::Reduction)
    }

    /// Whether its indices have terms that are folded: else each index of all loops stands for itself.
    pub fn folds(&self) -> bool {
        let epilogue = self.stores.iter().any(|store| store.stage == Stage::Epilogue);
        self.has_reduction() && (epilogue || !self.accumulators.is_empty())
    }
}

/// The registers of a value.
pub fn registers(value: Value) -> SmallVec<[Reg; 2]> {
    match value {
        Value::Real(reg) => SmallVec::from_slice(&[reg]),
        Value::Complex(re, im) => SmallVec::from_slice(&[re, im]),
    }
}

impl Jump {
    /// The element at an index, counted from the view.
    pub fn offset(&self, index: i64) -> i64 {
        self.stride * index.min(self.last).max(0)
    }
}

impl Launch {
    /// All indices over some loops, in row-major order; the others stay as in `base`.
    pub fn indices(&self, axes: &[usize], base: &[i64]) -> Vec<Vec<i64>> {
        axes.iter().fold(vec![base.to_vec()], |known, &axis| {
            let step = |index: Vec<i64>| {
                (0..self.extents[axis] as i64).map(move |place| {
                    let mut index = index.clone();
                    index[axis] = place;
                    index
                })
            };
            known.into_iter().flat_map(step).collect()
        })
    }

    /// The number of main iterations.
    pub fn iterations(&self) -> usize {
        self.extents.iter().product()
    }
}
