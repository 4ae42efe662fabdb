//! Runs: consecutive kernels that go through the rows of their arrays together, block of rows by block of rows.
//!
//! A row is what kernels read and write at one index of their first loops, which are parallel and the same in
//! all kernels of a run. What one kernel wrote for a block is still in the cache when the next one reads it, and
//! values that nothing but the run needs have memory for a block alone (`Place::Rows`). Softmax, normalisations
//! and their gradients, which reduce each row and come back to it, are such runs. Products of matrices are part of
//! a run where what they leave or take is too large for caches: of attention no matrix of all pairs is ever there.
//!
//! In: the steps of a plan, and their buffers. Out: the runs, which say of each step what it does for a row
//! ([`RowStep`]); machines take that as it stands, and `verify_runs` recomputes it. Each buffer that a run writes is
//! walked by rows by all its steps: row `r` is the `r`-th part of the buffer. So no block reads what another one
//! writes, and blocks may run in any order and at once. Cost: linear in the number of accesses.

use std::ops::Range;

use ferrax_ir::lowering::{ByRows, Extents};
use ferrax_ir::{Op, View as OpView};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cost_model::RUN_STEPS;
use crate::index::{PerLoop, View};
use crate::kernel::{AxisKind, Jump, Launch};
use crate::plan::{Argument, Buffer, BufferId, RowStep, Run, Share, Step};
use crate::tuning::Target;

/// Kernels that stand between the steps of a run with products, and need nothing of it, are put before it: what brings an
/// operand of its second product into another dtype, say.
pub fn make_way(steps: &mut [Step], buffers: &[Buffer], target: &Target) {
    let is_call = |step| matches!(Walker::new(step, buffers, target), Some(Walker::Call(_)));
    if !steps.iter().any(is_call) {
        return;
    }
    // The steps of a run so far are those from `first` to `number`.
    let (mut first, mut number) = (0, 1);
    while number < steps.len() {
        if longer(steps, first..number, buffers, target).is_some() {
            number += 1;
            continue;
        }
        let moved = (1..=OBSTACLES).find(|&count| {
            let Some(obstacles) = steps.get(number..number + count) else { return false };
            if !obstacles.iter().all(|step| is_independent(step, &steps[first..number])) {
                return false;
            }
            steps[first..number + count].rotate_right(count);
            let run = longer(steps, first + count..number + count, buffers, target);
            let fits = run.is_some_and(|run| run.has_calls());
            if !fits {
                steps[first..number + count].rotate_left(count);
            }
            fits
        });
        (first, number) = match moved {
            Some(count) => (first + count, number + count),
            None => (number, number + 1),
        };
    }
}

/// Kernels in a row that are put before a run, at most.
const OBSTACLES: usize = 4;

/// Whether a step is a kernel that uses nothing that these write.
fn is_independent(step: &Step, others: &[Step]) -> bool {
    let Step::Kernel { launch, operands } = step else { return false };
    let writes = |id: &BufferId, step: &Step| match step {
        Step::Kernel { launch, operands } => {
            accesses(launch, operands).any(|access| access.written && access.id == *id)
        }
        Step::Library { outputs, .. } => outputs.iter().any(|output| output.buffer == *id),
    };
    let uses = |id: BufferId| others.iter().any(|other| buffers_of(other).contains(&id));
    !operands.iter().any(|id| others.iter().any(|other| writes(id, other)))
        && !accesses(launch, operands).any(|access| access.written && uses(access.id))
}

/// The run of these steps and the next one, if they can be one and share rows.
fn longer(steps: &[Step], run: Range<usize>, buffers: &[Buffer], target: &Target) -> Option<Run> {
    let next = run.end;
    if run.len() >= RUN_STEPS || next >= steps.len() {
        return None;
    }
    let before = analyse(steps, run.clone(), buffers, target)?;
    let longer = analyse(steps, run.start..next + 1, buffers, target)?;
    let shares = buffers_of(&steps[next]).into_iter().any(|id| before.walks(id) && longer.walks(id));
    shares.then_some(longer)
}

/// The runs among these steps.
pub(crate) fn find_runs(steps: &[Step], buffers: &[Buffer], target: &Target) -> Vec<Run> {
    let is_worth_it =
        |run: &Run| run.steps.len() > 1 && run.row_bytes.saturating_mul(run.rows()) >= target.run_bytes;
    let mut runs: Vec<Run> = Vec::new();
    let mut last: Option<Run> = None;
    for number in 0..steps.len() {
        let joined = last.as_ref().filter(|run| run.steps.len() < RUN_STEPS).and_then(|run| {
            let longer = analyse(steps, run.steps.start..number + 1, buffers, target)?;
            let shares = buffers_of(&steps[number]).into_iter().any(|id| run.walks(id) && longer.walks(id));
            shares.then_some(longer)
        });
        if joined.is_none() {
            runs.extend(last.take().filter(is_worth_it));
        }
        last = joined.or_else(|| analyse(steps, number..number + 1, buffers, target));
    }
    runs.extend(last.filter(is_worth_it));
    runs
}

fn buffers_of(step: &Step) -> SmallVec<[BufferId; 8]> {
    match step {
        Step::Kernel { operands, .. } => operands.iter().copied().collect(),
        Step::Library { inputs, outputs, .. } => {
            inputs.iter().chain(outputs).map(|argument| argument.buffer).collect()
        }
    }
}

/// A library call that can go by rows, and the loops that number them.
struct Rowwise<'a> {
    inputs: &'a [Argument],
    output: &'a Argument,
    by_rows: ByRows,
    loops: PerLoop<usize>,
}

/// How a library call goes by rows, where it is worth that: what it leaves or takes is large, and what all rows
/// share is read once for each block.
fn rowwise<'a>(
    op: &Op,
    inputs: &'a [Argument],
    outputs: &'a [Argument],
    target: &Target,
) -> Option<Rowwise<'a>> {
    let (OpView::Leaf(rules), [output]) = (op.view(), outputs) else { return None };
    if inputs.first().map_or(0, Argument::bytes).max(output.bytes()) < target.product_bytes {
        return None;
    }
    let extents = |argument: &'a Argument| Extents { dtype: argument.dtype, sizes: &argument.sizes };
    let known: SmallVec<[Extents<'_>; 4]> = inputs.iter().map(extents).collect();
    let by_rows = rules.by_rows(&known, extents(output))?;
    let rows_of_first = if by_rows.first { inputs[0].bytes() } else { 0 };
    let large = output.bytes().max(rows_of_first) >= target.product_bytes;
    let shared = by_rows.shared.saturating_mul(output.dtype.size()) <= target.product_block / 2;
    let loops = by_rows.loops.iter().copied().filter(|&size| size != 1).collect();
    (large && shared).then_some(Rowwise { inputs, output, by_rows, loops })
}

/// An access of a kernel.
struct Access<'a> {
    id: BufferId,
    /// The operand of the kernel.
    operand: u32,
    /// The size of its elements.
    width: usize,
    view: &'a View,
    jumps: &'a [Jump],
    written: bool,
}

fn accesses<'a>(launch: &'a Launch, operands: &'a [BufferId]) -> impl Iterator<Item = Access<'a>> {
    let at = |operand: u32, view, jumps, written| {
        let width = launch.kernel.operands[operand as usize].dtype.size();
        Access { id: operands[operand as usize], operand, width, view, jumps, written }
    };
    let loads = launch.kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps);
    let stores = launch.kernel.stores.iter().zip(&launch.stores);
    loads
        .map(move |((load, view), jumps)| at(load.operand, view, jumps.as_slice(), false))
        .chain(stores.map(move |(store, view)| at(store.operand, view, &[], true)))
}

/// The loops of a step that number rows.
enum Walker<'a> {
    Kernel(&'a Launch, &'a [BufferId]),
    Call(Rowwise<'a>),
}

impl Walker<'_> {
    fn new<'a>(step: &'a Step, buffers: &[Buffer], target: &Target) -> Option<Walker<'a>> {
        match step {
            Step::Kernel { launch, operands } => {
                let bytes =
                    operands.iter().map(|id| buffers[id.0 as usize].bytes).fold(0, usize::saturating_add);
                let worth_it = bytes >= target.run_bytes / 4 && !launch.extents.contains(&0);
                worth_it.then_some(Walker::Kernel(launch, operands))
            }
            Step::Library { op, inputs, outputs, .. } => {
                rowwise(op, inputs, outputs, target).map(Walker::Call)
            }
        }
    }

    fn loops(&self) -> &[usize] {
        match self {
            Walker::Kernel(launch, _) => {
                let parallel = launch.kernel.axes.iter().take_while(|kind| **kind == AxisKind::Parallel);
                &launch.extents[..parallel.count()]
            }
            Walker::Call(call) => &call.loops,
        }
    }

    /// Whether each operand is walked by rows over so many first loops.
    fn by_rows(&self, depth: usize, buffers: &[Buffer]) -> SmallVec<[bool; 4]> {
        match self {
            Walker::Kernel(launch, operands) => {
                let mut by_rows: SmallVec<[bool; 4]> = SmallVec::from_elem(true, operands.len());
                for access in accesses(launch, operands) {
                    let bytes = buffers[access.id.0 as usize].bytes;
                    by_rows[access.operand as usize] &= access.is_by_rows(depth, launch, bytes);
                }
                by_rows
            }
            Walker::Call(call) => {
                let inputs = (0..call.inputs.len()).map(|number| number == 0 && call.by_rows.first);
                inputs.chain([true]).collect()
            }
        }
    }

    /// The buffer of each operand, and whether it is written.
    fn operands(&self) -> SmallVec<[(BufferId, bool); 4]> {
        match self {
            Walker::Kernel(launch, operands) => {
                let written = launch.kernel.operands.iter().map(|operand| operand.written);
                operands.iter().copied().zip(written).collect()
            }
            Walker::Call(call) => {
                let inputs = call.inputs.iter().map(|input| (input.buffer, false));
                inputs.chain([(call.output.buffer, true)]).collect()
            }
        }
    }

    /// What belongs to one of so many rows, which divide a call's own.
    fn share(&self, rows: usize) -> Share {
        match self {
            Walker::Kernel(..) => Share::Loops,
            Walker::Call(call) => Share::Rows(call.loops.iter().product::<usize>() / rows),
        }
    }
}

/// These steps as a run whose rows fit into a block, if they can be one: with as few loops as that takes.
pub fn analyse(steps: &[Step], range: Range<usize>, buffers: &[Buffer], target: &Target) -> Option<Run> {
    let mut walkers: Vec<Walker<'_>> = Vec::with_capacity(range.len());
    for step in &steps[range.clone()] {
        walkers.push(Walker::new(step, buffers, target)?);
    }
    let mut common: Option<&[usize]> = None;
    for walker in &walkers {
        let own = walker.loops();
        let known = common.unwrap_or(own);
        common = Some(&known[..known.iter().zip(own).take_while(|(a, b)| a == b).count()]);
    }
    let common = common?;
    let calls = walkers.iter().any(|walker| matches!(walker, Walker::Call(_)));
    let most = if calls { target.product_block / target.product_rows } else { target.block_bytes };
    for depth in 1..=common.len() {
        let extents = &common[..depth];
        let rows: usize = extents.iter().product();
        let part = |walker: &Walker<'_>| RowStep {
            share: walker.share(rows),
            by_rows: walker.by_rows(depth, buffers),
        };
        let parts: Vec<RowStep> = walkers.iter().map(part).collect();
        // Of each buffer: whether all walk it by rows, and whether any writes it.
        let mut found: FxHashMap<BufferId, (bool, bool)> = FxHashMap::default();
        for (walker, part) in walkers.iter().zip(&parts) {
            for ((id, written), &by_rows) in walker.operands().into_iter().zip(&part.by_rows) {
                let entry = found.entry(id).or_insert((true, false));
                entry.0 &= by_rows;
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
        let row_bytes = by_rows.iter().map(|id| buffers[id.0 as usize].bytes / rows).sum();
        if rows > 1 && row_bytes <= most {
            let extents = extents.iter().copied().collect();
            return Some(Run { steps: range, extents, by_rows, row_bytes, own_bytes: 0, parts });
        }
    }
    None
}

impl Access<'_> {
    /// Whether it reaches, at each index of the first `depth` loops, elements of that row alone, of a buffer of so
    /// many bytes.
    fn is_by_rows(&self, depth: usize, launch: &Launch, bytes: usize) -> bool {
        let Access { width, view, .. } = *self;
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
        let loops = view.strides.iter().zip(&view.ranges).skip(depth);
        let moves = loops.map(|(&stride, &(first, end))| (stride, first, end - 1));
        for (stride, first, last) in moves.chain(self.jumps.iter().map(|jump| (jump.stride, 0, jump.last))) {
            if first > last {
                return true;
            }
            let ends = [first, last].map(|index| i128::from(stride) * i128::from(index));
            low += ends[0].min(ends[1]);
            high += ends[0].max(ends[1]);
        }
        0 <= low && high < row as i128
    }
}
