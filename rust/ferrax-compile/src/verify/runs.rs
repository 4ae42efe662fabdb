//! Invariant 7: that blocks of a run can go in any order and at once.
//!
//! For each access the elements that it reaches at one row are an interval whose ends are affine in the row's indices,
//! as are the ends of the row's part of the buffer: the one is inside of the other for all rows if the least of the
//! differences is not negative, which is found loop by loop. (What makes runs compares strides instead.)
//!
//! Cost: linear in the accesses, times their loops.

use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{Op, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Verifier;
use crate::index::View;
use crate::kernel::{AxisKind, Jump, Launch};
use crate::plan::{Argument, BufferId, Run, Share, Step};

impl Verifier<'_> {
    pub fn runs(&self) -> Result<()> {
        self.plan.runs.iter().try_for_each(|run| self.run(run))
    }

    fn run(&self, run: &Run) -> Result<()> {
        let plan = self.plan;
        let (steps, extents) = (run.steps.clone(), &run.extents);
        let fault = |what: String| self.fault(format_args!("steps {steps:?}, by rows {extents:?}: {what}"));
        let rows = extents.iter().try_fold(1usize, |rows, &extent| rows.checked_mul(extent));
        let Some(rows) = rows.filter(|&rows| rows > 0 && !extents.is_empty()) else {
            return Err(fault("there is none".to_owned()));
        };
        let of_run = plan.steps.get(run.steps.clone()).filter(|steps| steps.len() == run.parts.len());
        let Some(of_run) = of_run else {
            return Err(fault(format!("{} steps are described", run.parts.len())));
        };
        // Of each buffer: whether each step reaches a row's part of it alone, and whether one writes it.
        let mut found: FxHashMap<BufferId, (bool, bool)> = FxHashMap::default();
        for (number, (step, part)) in run.steps.clone().zip(of_run.iter().zip(&run.parts)) {
            let wrong = |what: &str| Err(fault(format!("step {number} {what}")));
            let (ids, by_rows) = match step {
                Step::Kernel { launch, operands } => {
                    let mut kinds = launch.kernel.axes.iter().take(extents.len());
                    if !launch.extents.starts_with(extents) || !kinds.all(|kind| *kind == AxisKind::Parallel)
                    {
                        return wrong("has other first loops");
                    }
                    if part.share != Share::Loops {
                        return wrong("is a kernel");
                    }
                    (operands.clone(), self.kernel_by_rows(launch, operands, extents, rows))
                }
                Step::Library { op, inputs, outputs, .. } => {
                    let Some((own, by_rows)) = call_by_rows(op, inputs, outputs) else {
                        return wrong("is a call of no known rows");
                    };
                    if !own.is_multiple_of(rows) || part.share != Share::Rows(own / rows) {
                        return wrong(&format!("has {own} rows, of which the run takes {:?}", part.share));
                    }
                    (inputs.iter().chain(outputs).map(|argument| argument.buffer).collect(), by_rows)
                }
            };
            if part.by_rows.len() != ids.len() || by_rows.len() != ids.len() {
                return wrong("has other operands");
            }
            if let Some(position) = (0..ids.len()).find(|&at| part.by_rows[at] && !by_rows[at]) {
                let what = self.show(ids[position]);
                return wrong(&format!("reaches more of {what} than the part of a row"));
            }
            let written = self.written(step);
            for (&id, &by_rows) in ids.iter().zip(&part.by_rows) {
                let entry = found.entry(id).or_insert((true, false));
                entry.0 &= by_rows;
                entry.1 |= written.contains(&id);
            }
        }
        if let Some(id) = run.by_rows.iter().find(|id| !found.get(id).is_some_and(|found| found.0)) {
            return Err(fault(format!("{} is not walked by rows", self.show(*id))));
        }
        match found.iter().find(|(id, found)| found.1 && !run.by_rows.contains(id)) {
            Some((&id, _)) => Err(fault(format!("{} is written, and not by rows", self.show(id)))),
            None => Ok(()),
        }
    }

    fn written(&self, step: &Step) -> FxHashSet<BufferId> {
        match step {
            Step::Kernel { launch, operands } => {
                launch.kernel.stores.iter().map(|store| operands[store.operand as usize]).collect()
            }
            Step::Library { outputs, .. } => outputs.iter().map(|output| output.buffer).collect(),
        }
    }

    /// Of each operand whether a kernel reaches of it, at each row, that row's part alone.
    fn kernel_by_rows(
        &self,
        launch: &Launch,
        operands: &[BufferId],
        extents: &[usize],
        rows: usize,
    ) -> Vec<bool> {
        let kernel = &launch.kernel;
        let mut by_rows = vec![true; operands.len()];
        let mut access = |operand: u32, view: &View, jumps: &[Jump]| {
            let bytes = self.plan.buffers[operands[operand as usize].0 as usize].bytes;
            let width = kernel.operands[operand as usize].dtype.size();
            by_rows[operand as usize] &= stays_in_rows(view, jumps, extents, rows, bytes, width);
        };
        for ((load, view), jumps) in kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps) {
            access(load.operand, view, jumps);
        }
        for (store, view) in kernel.stores.iter().zip(&launch.stores) {
            access(store.operand, view, &[]);
        }
        by_rows
    }
}

/// Whether what an access reaches at each row is inside of that row's part of the buffer.
fn stays_in_rows(
    view: &View,
    jumps: &[Jump],
    extents: &[usize],
    rows: usize,
    bytes: usize,
    width: usize,
) -> bool {
    let part = bytes / rows;
    if width == 0 || part == 0 || part * rows != bytes || !part.is_multiple_of(width) {
        return false;
    }
    let elements = (part / width) as i128;
    // From the begin of the part to the lowest element, and from the highest to its end, both at their least.
    let mut below = i128::from(view.offset);
    let mut above = elements - 1 - i128::from(view.offset);
    let mut weight = elements;
    let weights: Vec<i128> = extents
        .iter()
        .rev()
        .map(|&extent| {
            let of_axis = weight;
            weight *= extent as i128;
            of_axis
        })
        .collect();
    for (axis, (&stride, &(first, end))) in view.strides.iter().zip(&view.ranges).enumerate() {
        if first >= end {
            return true;
        }
        let moved = match extents.len().checked_sub(axis + 1) {
            Some(at) => i128::from(stride) - weights[at],
            None => i128::from(stride),
        };
        let ends = [first, end - 1].map(|index| moved * i128::from(index));
        below += ends[0].min(ends[1]);
        above -= ends[0].max(ends[1]);
    }
    for jump in jumps {
        let most = i128::from(jump.stride) * i128::from(jump.last);
        below += most.min(0);
        above -= most.max(0);
    }
    below >= 0 && above >= 0
}

/// The rows of its own that a library call has, and of each operand whether a row takes that row's part alone.
fn call_by_rows(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Option<(usize, Vec<bool>)> {
    let (Op::DotGeneral(dot), [left, right], [out]) = (op, inputs, outputs) else { return None };
    // The result's axes are those of the batch, then those of the left operand alone, then those of the right one.
    let of_right = right.sizes.len() - dot.rhs_batch.len() - dot.rhs_contracting.len();
    let rows = out.sizes[..out.sizes.len().checked_sub(of_right)?].iter().product();
    Some((rows, vec![is_in_order(dot, left.sizes.len()), false, true]))
}

/// Whether the left operand of a product has its axes in the order of the result's rows, and then those of sums.
fn is_in_order(dot: &DotGeneral, rank: usize) -> bool {
    let summed = |axis: &usize| dot.lhs_contracting.contains(axis);
    let batch = dot.lhs_batch.iter().copied().eq(0..dot.lhs_batch.len());
    batch && (rank - dot.lhs_contracting.len()..rank).all(|axis| summed(&axis))
}
