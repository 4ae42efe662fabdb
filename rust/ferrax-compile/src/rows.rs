//! Runs: consecutive kernels that go through the rows of their arrays together, block of rows by block of rows.
//!
//! A row is what kernels read and write at one index of their first loops, which are parallel and the same in
//! all kernels of a run. What one kernel wrote for a block is still in the cache when the next one reads it, and
//! values that nothing but the run needs have memory for a block alone (`Place::Rows`). Softmax, normalisations
//! and their gradients, which reduce each row and come back to it, are such runs.
//!
//! In: the steps of a plan, and their buffers. Out: the runs. Each buffer that a run writes is walked by rows by
//! all its steps: row `r` is the `r`-th part of the buffer. So no block reads what another one writes, and
//! blocks may run in any order and at once. Cost: linear in the number of accesses.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::index::{PerLoop, View};
use crate::kernel::{AxisKind, Launch};
use crate::plan::{Buffer, BufferId, Step};

/// The first loops of a run, and what moves with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub steps: Range<usize>,
    /// Extents of the loops whose indices number the rows.
    pub extents: PerLoop<usize>,
    /// The buffers that all steps walk by rows, in order.
    pub by_rows: Vec<BufferId>,
    /// The bytes of a row of all these.
    pub row_bytes: usize,
    /// The bytes, for each row of a block, of the memory that the run has of its own.
    pub own_bytes: usize,
}

/// What a block of rows should take: a part of a second-level cache.
pub const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of a run below which its arrays stay in the cache anyway.
const LEAST_BYTES: usize = 1 << 20;
/// Steps of a run: what is found again for each that joins stays linear.
const MOST_STEPS: usize = 64;

impl Run {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether all steps of the run walk this buffer by rows.
    pub fn walks(&self, id: BufferId) -> bool {
        self.by_rows.binary_search(&id).is_ok()
    }
}

/// The number of the run that a step is in.
pub fn run_at(runs: &[Run], step: usize) -> Option<usize> {
    let number = runs.partition_point(|run| run.steps.end <= step);
    runs.get(number).filter(|run| run.steps.contains(&step)).map(|_| number)
}

/// The first and the last step that need a value, given those that use it: blocks of a run take turns, so that
/// all of its steps need what one of them does.
pub fn needed(runs: &[Run], first: usize, last: usize) -> (usize, usize) {
    (
        run_at(runs, first).map_or(first, |run| runs[run].steps.start),
        run_at(runs, last).map_or(last, |run| runs[run].steps.end - 1),
    )
}

/// The runs among these steps.
pub fn find_runs(steps: &[Step], buffers: &[Buffer]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut last: Option<Run> = None;
    for number in 0..steps.len() {
        let joined = last.as_ref().filter(|run| run.steps.len() < MOST_STEPS).and_then(|run| {
            let longer = analyse(steps, run.steps.start..number + 1, buffers)?;
            let shares = buffers_of(&steps[number]).any(|id| run.walks(id) && longer.walks(id));
            shares.then_some(longer)
        });
        if joined.is_none() {
            runs.extend(last.take().filter(is_worth_it));
        }
        last = joined.or_else(|| analyse(steps, number..number + 1, buffers));
    }
    runs.extend(last.filter(is_worth_it));
    runs
}

fn is_worth_it(run: &Run) -> bool {
    run.steps.len() > 1 && run.row_bytes.saturating_mul(run.rows()) >= LEAST_BYTES
}

fn buffers_of(step: &Step) -> impl Iterator<Item = BufferId> {
    let operands = match step {
        Step::Kernel { operands, .. } => operands.as_slice(),
        Step::Library { .. } => &[],
    };
    operands.iter().copied()
}

/// An access of a kernel: the buffer, the size of its elements, where, and whether it is written.
fn accesses<'a>(
    launch: &'a Launch,
    operands: &'a [BufferId],
) -> impl Iterator<Item = (BufferId, usize, &'a View, bool)> {
    let at = |operand: u32, view, written| {
        let dtype = launch.kernel.operands[operand as usize].dtype;
        (operands[operand as usize], dtype.size(), view, written)
    };
    let loads =
        launch.kernel.loads.iter().zip(&launch.loads).map(move |(load, view)| at(load.operand, view, false));
    let stores = launch.kernel.stores.iter().zip(&launch.stores);
    loads.chain(stores.map(move |(store, view)| at(store.operand, view, true)))
}

/// These steps as a run whose rows fit into a block, if they can be one: with as few loops as that takes.
pub fn analyse(steps: &[Step], range: Range<usize>, buffers: &[Buffer]) -> Option<Run> {
    let mut kernels = Vec::with_capacity(range.len());
    let mut common: Option<&[usize]> = None;
    for step in &steps[range.clone()] {
        let Step::Kernel { launch, operands } = step else { return None };
        let bytes = operands.iter().fold(0usize, |sum, id| sum.saturating_add(buffers[id.0 as usize].bytes));
        if bytes < LEAST_BYTES / 4 || launch.extents.contains(&0) {
            return None;
        }
        let parallel = launch.kernel.axes.iter().take_while(|kind| **kind == AxisKind::Parallel).count();
        let own = &launch.extents[..parallel];
        let known = common.unwrap_or(own);
        common = Some(&known[..known.iter().zip(own).take_while(|(a, b)| a == b).count()]);
        kernels.push((launch, operands));
    }
    let common = common?;
    for depth in 1..=common.len() {
        let extents = &common[..depth];
        // Of each buffer: whether all walk it by rows, and whether any writes it.
        let mut found: FxHashMap<BufferId, (bool, bool)> = FxHashMap::default();
        for (launch, operands) in &kernels {
            for (id, width, view, written) in accesses(launch, operands) {
                let entry = found.entry(id).or_insert((true, false));
                entry.0 &= is_by_rows(view, depth, launch, width, buffers[id.0 as usize].bytes);
                entry.1 |= written;
            }
        }
        if found.values().any(|&(by_rows, written)| written && !by_rows) {
            // With more loops rows are smaller parts of these, and no more are walked by rows.
            return None;
        }
        let mut by_rows: Vec<BufferId> =
            found.iter().filter(|(_, (by_rows, _))| *by_rows).map(|(&id, _)| id).collect();
        by_rows.sort_unstable();
        let rows: usize = extents.iter().product();
        let row_bytes = by_rows.iter().map(|id| buffers[id.0 as usize].bytes / rows).sum();
        if rows > 1 && row_bytes <= BLOCK_BYTES {
            let extents = extents.iter().copied().collect();
            return Some(Run { steps: range, extents, by_rows, row_bytes, own_bytes: 0 });
        }
    }
    None
}

/// Whether a view reaches, at each index of the first `depth` loops, elements of that row alone.
fn is_by_rows(view: &View, depth: usize, launch: &Launch, width: usize, bytes: usize) -> bool {
    let rows: usize = launch.extents[..depth].iter().product();
    let row = (bytes / rows).checked_div(width).unwrap_or(0);
    if row == 0 || row * rows * width != bytes {
        return false;
    }
    let mut stride = row as i64;
    for axis in (0..depth).rev() {
        if launch.extents[axis] > 1 && view.strides[axis] != stride {
            return false;
        }
        stride *= launch.extents[axis] as i64;
    }
    let (mut low, mut high) = (i128::from(view.offset), i128::from(view.offset));
    for (&stride, &(first, end)) in view.strides.iter().zip(&view.ranges).skip(depth) {
        if first >= end {
            return true;
        }
        let ends = [first, end - 1].map(|index| i128::from(stride) * i128::from(index));
        low += ends[0].min(ends[1]);
        high += ends[0].max(ends[1]);
    }
    0 <= low && high < row as i128
}
