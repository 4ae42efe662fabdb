//! Which launches go through lanes, and what a group of lanes has of each load.
//!
//! In: a launch one of whose loops goes through elements that follow one another, or reads one of them. Cost: linear in its
//! body, and in the groups of its lanes.

use std::ops::Range;

use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType};
use smallvec::SmallVec;

use super::GROUP;
use super::arrays::{Array, MOST_LANES, element};
use crate::chain::computes;
use crate::index::View;
use crate::interpret::operation;
use crate::kernel::{Accumulator, AxisKind, Kernel, Launch, Stage, registers};

/// How a launch goes through lanes.
pub(super) struct Form {
    /// The loop of lanes; loops before it that go on where it ends are one with it.
    pub axis: usize,
    pub lanes: usize,
    /// The other loops that are not folded.
    pub outer: SmallVec<[usize; 6]>,
}

/// The form of a launch, if it has one of so many lanes or more.
pub(super) fn form(launch: &Launch, least: usize) -> Option<Form> {
    let kernel = &launch.kernel;
    let folds = kernel.folds();
    let wanted = if folds { AxisKind::Reduction } else { AxisKind::Parallel };
    let long: SmallVec<[usize; 6]> = (0..kernel.axes.len())
        .filter(|&axis| launch.extents[axis] > 1 && (!folds || kernel.axes[axis] == wanted))
        .collect();
    let main = || {
        kernel
            .stores
            .iter()
            .zip(&launch.stores)
            .filter(|(store, _)| store.stage == Stage::Main)
            .map(|(_, view)| view)
    };
    let axis = match (folds, &*long) {
        (true, &[axis]) => axis,
        (true, _) => return None,
        (false, long) => *long.iter().find(|&&axis| main().all(|view| view.strides[axis] == 1))?,
    };
    if main().any(|view| view.strides[axis] != 1) || !is_of_chains(kernel, launch, axis, folds) {
        return None;
    }
    let indexed = |axis: usize| {
        let is_index = |op: ScalarOp| matches!(op, ScalarOp::Index { axis: of } if of as usize == axis);
        kernel.body.instructions().iter().any(|instruction| is_index(instruction.op))
    };
    let mut lanes = launch.extents[axis];
    let mut outer: SmallVec<[usize; 6]> = SmallVec::new();
    let whole = |view: &View, axis: usize| view.ranges[axis] == (0, launch.extents[axis] as i64);
    let views = || launch.loads.iter().chain(main());
    let mut open = !folds && !indexed(axis) && views().all(|view| whole(view, axis));
    for before in (0..kernel.axes.len()).rev().filter(|&before| before != axis) {
        if kernel.axes[before] == AxisKind::Reduction && folds {
            continue;
        }
        let goes_on =
            |view: &View| view.strides[before] == lanes as i64 * view.strides[axis] && whole(view, before);
        if launch.extents[before] == 1 {
            outer.insert(0, before);
        } else if open && before < axis && !indexed(before) && views().all(goes_on) {
            lanes = lanes.checked_mul(launch.extents[before])?;
        } else {
            open = false;
            outer.insert(0, before);
        }
    }
    (lanes >= least && launch.iterations() <= MOST_LANES).then_some(Form { axis, lanes, outer })
}

/// Which values of a kernel's main body are the same for all lanes.
fn uniform(kernel: &Kernel, launch: &Launch, axis: usize) -> Vec<bool> {
    let mut uniform: Vec<bool> = Vec::with_capacity(kernel.body.instructions().len());
    for instruction in kernel.body.instructions() {
        uniform.push(match instruction.op {
            ScalarOp::Input { operand, .. } => {
                let view = &launch.loads[operand as usize];
                view.strides[axis] == 0 && view.ranges[axis] == (0, launch.extents[axis] as i64)
            }
            ScalarOp::Index { axis: of } => of as usize != axis,
            _ => instruction.args.iter().all(|arg| uniform[arg.0 as usize]),
        });
    }
    uniform
}

/// Whether chains compute all of a kernel's main body that differs between lanes, reading what is in one place or follows
/// lanes.
fn is_of_chains(kernel: &Kernel, launch: &Launch, axis: usize, folds: bool) -> bool {
    let loads = kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps).all(|((load, view), jumps)| {
        jumps.is_empty()
            && matches!(view.strides[axis], 0 | 1)
            && element(kernel.operands[load.operand as usize].dtype).is_some()
    });
    let stores = kernel.stores.iter().filter(|store| store.stage == Stage::Main).all(|store| {
        let ty = element(kernel.operands[store.operand as usize].dtype);
        matches!(&*registers(store.value), [reg] if Some(kernel.body.type_of(*reg)) == ty)
    });
    let typed = |op: ScalarOp| usize::from(op == ScalarOp::Select);
    let uniform = uniform(kernel, launch, axis);
    let fits = |ty: ScalarType| ty.size() >= 4 || ty == ScalarType::Bool;
    let of = |arg: &Reg| kernel.body.type_of(*arg);
    let operations =
        kernel.body.instructions().iter().zip(uniform).all(|(instruction, uniform)| match instruction.op {
            ScalarOp::Input { part, .. } => part == 0,
            _ if uniform => true,
            ScalarOp::Index { .. } => instruction.ty.size() >= 4,
            op => {
                let from = instruction.args.get(typed(op)).map(of);
                from.is_some_and(|from| computes(op, instruction.ty, from))
                    && instruction.args.iter().all(|arg| fits(of(arg)))
            }
        });
    let folded = |accumulator: &Accumulator| {
        let ty = accumulator.ty;
        fits(ty) && operation(accumulator.kind).is_some_and(|(op, _)| computes(op, ty, ty))
    };
    loads && stores && operations && (!folds || kernel.accumulators.iter().all(folded))
}

/// What a group of lanes has of a load.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Guard {
    Inside,
    Outside,
    /// Lanes from one to before another.
    Between(usize, usize),
}

/// The lanes of an index that are done at once.
pub(super) struct Segment {
    pub first: usize,
    pub count: usize,
    pub guards: SmallVec<[Guard; 4]>,
}

/// A launch with its operands.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub launch: &'a Launch,
    pub form: &'a Form,
    /// What operands hold, and how many elements they have.
    pub arrays: &'a [Option<Array>],
    pub counts: &'a [usize],
}

impl Work<'_> {
    /// What each store of the main stage writes, with its number: elements that follow one another, in this order, so that
    /// a group that ends beyond its lanes is written over by those that come after it.
    pub fn written(&self) -> Option<Vec<(usize, Range<usize>)>> {
        let indices = self.launch.indices(&self.form.outer, &vec![0; self.launch.extents.len()]);
        let stores = self.launch.kernel.stores.iter().zip(&self.launch.stores).enumerate();
        let of_main = stores.filter(|(_, (store, _))| store.stage == Stage::Main);
        of_main
            .map(|(number, (_, view))| {
                let first = view.element(indices.first()?)?;
                let mut next = first;
                for index in &indices {
                    if view.element(index)? != next {
                        return None;
                    }
                    next += self.form.lanes as i64;
                }
                Some((number, usize::try_from(first).ok()?..usize::try_from(next).ok()?))
            })
            .collect()
    }

    /// The elements of a load: where it stands at an index, and the lanes that its guards let through.
    pub fn lanes_of(&self, load: usize, index: &[i64]) -> Option<(i64, usize, usize)> {
        let view = &self.launch.loads[load];
        let (low, high) = view.ranges[self.form.axis];
        let merged = self.form.lanes != self.launch.extents[self.form.axis];
        let lanes = self.form.lanes as i64;
        let (low, high) = if merged { (0, lanes) } else { (low.max(0), high.min(lanes)) };
        if low >= high {
            return None;
        }
        let mut inside = SmallVec::<[i64; 6]>::from_slice(index);
        if !merged {
            inside[self.form.axis] = low;
        }
        let at = view.element(&inside)? - if merged { 0 } else { low * view.strides[self.form.axis] };
        Some((at, low as usize, high as usize))
    }

    pub fn segments(&self, index: &[i64]) -> Vec<Segment> {
        let lanes = self.form.lanes;
        let loads: Vec<Option<(i64, usize, usize)>> =
            (0..self.launch.loads.len()).map(|load| self.lanes_of(load, index)).collect();
        let mut segments: Vec<Segment> = Vec::new();
        for first in (0..lanes).step_by(GROUP) {
            let end = lanes.min(first + GROUP);
            let guards: SmallVec<[Guard; 4]> = loads
                .iter()
                .map(|load| match *load {
                    Some((_, low, high)) if low <= first && end <= high => Guard::Inside,
                    Some((_, low, high)) if low < end && first < high => {
                        Guard::Between(low.saturating_sub(first), high.min(end) - first)
                    }
                    _ => Guard::Outside,
                })
                .collect();
            let divided = guards.iter().any(|guard| matches!(guard, Guard::Between(..)));
            match segments.last_mut() {
                Some(last) if !divided && last.guards == guards => last.count += GROUP,
                _ => segments.push(Segment { first, count: GROUP, guards }),
            }
        }
        segments
    }
}
