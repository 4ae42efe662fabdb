//! Which values may take the memory of others: operands that die with the step that reads them, donated inputs.
//!
//! In: steps in their last order. Out: pairs of buffers that may be one. Cost: n log n in the number of steps and
//! operands.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::index::View;
use crate::kernel::{AxisKind, Stage};
use crate::lives::Lives;
use crate::plan::{Argument, Buffer, BufferId, Place, Run, Step, run_at};
use crate::tuning::Target;
use crate::updates::updates;

/// Which step may write over a buffer that dies with it, and the buffer that is its memory from then on. Nothing
/// of it moves a step.
pub fn taken_over(steps: &[Step], buffers: &[Buffer], target: &Target) -> Vec<(usize, BufferId, BufferId)> {
    let lives = Lives::of(steps, buffers.len());
    let place = |id: BufferId| buffers[id.0 as usize].place;
    let bytes = |id: BufferId| buffers[id.0 as usize].bytes;
    let mut taken = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        // What is in the arena, and what begins there or leaves.
        let dies = |id: BufferId| matches!(place(id), Place::Arena(_)) && lives.last(id) == Some(number);
        let begins = |id: BufferId| {
            matches!(place(id), Place::Arena(_) | Place::Fresh(_)) && lives.first(id) == Some(number)
        };
        let pairs = in_place_pairs(step, target, bytes, dies, begins);
        taken.extend(pairs.into_iter().map(|(from, to)| (number, from, to)));
    }
    taken
}

/// Pairs of an input and a fresh buffer of its size such that the last
/// reads of the one are before the first write of the other, or pointwise in
/// the same step. In a run they have to be walked by rows.
pub fn donations(
    buffers: &[Buffer],
    steps: &[Step],
    runs: &[Run],
    outputs: &[Argument],
    target: &Target,
) -> Vec<(usize, usize)> {
    let lives = Lives::of(steps, buffers.len());
    let bytes = |id: BufferId| buffers[id.0 as usize].bytes;
    // Not yet given, and not yet made of what was given.
    let mut free = vec![true; buffers.len()];
    for output in outputs {
        if matches!(buffers[output.buffer.0 as usize].place, Place::Input(_)) {
            free[output.buffer.0 as usize] = false;
        }
    }
    let mut result: Vec<(usize, usize)> = Vec::new();
    let mut pair = |free: &mut [bool], from: BufferId, to: BufferId| {
        if let (Place::Input(input), Place::Fresh(fresh)) =
            (buffers[from.0 as usize].place, buffers[to.0 as usize].place)
        {
            result.push((input, fresh));
            free[from.0 as usize] = false;
            free[to.0 as usize] = false;
        }
    };
    let is_input = |id: usize| matches!(buffers[id].place, Place::Input(_));
    let is_fresh = |id: usize| matches!(buffers[id].place, Place::Fresh(_));
    for (number, step) in steps.iter().enumerate() {
        let run = run_at(runs, number);
        let gives = |id: BufferId| {
            let walked = run.is_none_or(|run| runs[run].walks(id));
            let dies = lives.last(id) == Some(number);
            let id = id.0 as usize;
            walked && dies && is_input(id) && free[id]
        };
        let takes = |id: BufferId| {
            let begins = lives.first(id) == Some(number);
            let id = id.0 as usize;
            begins && is_fresh(id) && free[id]
        };
        for (from, to) in in_place_pairs(step, target, bytes, gives, takes) {
            pair(&mut free, from, to);
        }
    }
    let lives = lives.through(runs);
    // Dead before the output begins: of each size, the input that died first.
    let mut dead: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    let mut begin: Vec<(usize, u32)> = Vec::new();
    for (id, buffer) in buffers.iter().enumerate().filter(|(id, buffer)| free[*id] && buffer.bytes > 0) {
        match (buffer.place, lives.of_buffer(BufferId(id as u32))) {
            (Place::Input(_), Some((_, last))) => {
                dead.entry(buffer.bytes).or_default().push((last, id as u32));
            }
            (Place::Fresh(_), Some((first, _))) => begin.push((first, id as u32)),
            _ => {}
        }
    }
    // The one that died first is last.
    dead.values_mut().for_each(|inputs| inputs.sort_unstable_by(|a, b| b.cmp(a)));
    begin.sort_unstable();
    for (first, to) in begin {
        if let Some(inputs) = dead.get_mut(&bytes(BufferId(to)))
            && let Some((_, from)) = inputs.pop_if(|(last, _)| *last < first)
        {
            pair(&mut free, BufferId(from), BufferId(to));
        }
    }
    result
}

/// Pairs of an operand and a result of a step that may be one buffer, of those operands that `gives` and
/// results that `takes` hold for; each is in one pair at most. Linear in the size of the step.
fn in_place_pairs(
    step: &Step,
    target: &Target,
    bytes: impl Fn(BufferId) -> usize,
    gives: impl Fn(BufferId) -> bool,
    takes: impl Fn(BufferId) -> bool,
) -> SmallVec<[(BufferId, BufferId); 2]> {
    let mut pairs = SmallVec::new();
    let (launch, operands) = match step {
        Step::Library { op, inputs, outputs, .. } => {
            for (operand, result) in updates(op, target) {
                let (from, to) = (inputs[operand].buffer, outputs[result].buffer);
                let once =
                    |of: &[Argument], id| of.iter().filter(|argument| argument.buffer == id).count() == 1;
                if once(inputs, from)
                    && once(outputs, to)
                    && bytes(from) == bytes(to)
                    && gives(from)
                    && takes(to)
                {
                    pairs.push((from, to));
                }
            }
            return pairs;
        }
        Step::Kernel { launch, operands } => (launch, operands),
    };
    let kernel = &launch.kernel;
    if kernel.axes.contains(&AxisKind::Reduction) {
        return pairs;
    }
    let width = |operand: u32| kernel.operands[operand as usize].dtype.size();
    // How each buffer is read: by one view and as elements of one width, or in several ways.
    let mut reads: FxHashMap<BufferId, Option<(&View, usize)>> = FxHashMap::default();
    for ((load, view), jumps) in kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps) {
        let how = jumps.is_empty().then(|| (view, width(load.operand)));
        let known = reads.entry(operands[load.operand as usize]).or_insert(how);
        if *known != how {
            *known = None;
        }
    }
    let mut stores: FxHashMap<BufferId, u32> = FxHashMap::default();
    for store in &kernel.stores {
        *stores.entry(operands[store.operand as usize]).or_default() += 1;
    }
    // Operands that may be given, by how they are read; the first operand is last.
    let mut given: FxHashMap<(&View, usize, usize), Vec<BufferId>> = FxHashMap::default();
    let mut seen: FxHashSet<BufferId> = FxHashSet::default();
    for &from in operands {
        if let Some(&Some((view, width))) = reads.get(&from)
            && !stores.contains_key(&from)
            && seen.insert(from)
            && gives(from)
        {
            given.entry((view, width, bytes(from))).or_default().push(from);
        }
    }
    given.values_mut().for_each(|operands| operands.reverse());
    for (store, view) in kernel.stores.iter().zip(&launch.stores) {
        let to = operands[store.operand as usize];
        if store.stage == Stage::Main
            && stores.get(&to) == Some(&1)
            && takes(to)
            && let Some(from) = given.get_mut(&(view, width(store.operand), bytes(to))).and_then(Vec::pop)
        {
            pairs.push((from, to));
        }
    }
    pairs
}
