//! Checks that a plan can be run without reading or writing where it must not. The invariants:
//!
//! 1. Over the whole index space of a kernel, inside of its guards, every load and
//!    store is of an element of its operand's buffer, whatever the indices of its jumps
//!    are; so is every argument of a library call, and every result.
//! 2. A store has no guards, writes each element once, and not to an input or a
//!    constant; no other store of its kernel writes to that element. So threads and
//!    lanes write apart. In the epilogue nothing moves along reduction axes.
//! 3. Bodies read what there is: registers from above, loads, accumulators (in the
//!    epilogue), indices of loops, in the register types of their dtypes.
//! 4. What a step reads was written before. A step that reads a buffer that it
//!    writes does so element by element, or is an op that works in place.
//! 5. Two values in the arena whose lives meet do not overlap, and lie inside of it.
//! 6. A donated input has the size of the result that it becomes, and is read
//!    before that is written, or element by element in the same step.
//! 7. A run is of steps with the same rows, and walks by rows what it writes. In the
//!    sense of 5 and 6 all that a run needs is alive in all its steps. The memory of its
//!    blocks is for values that it alone needs, to which 5 applies step by step.
//!
//! Not checked: what library calls do with their arguments.
//!
//! Cost: n log n in the size of the plan, and a few steps for each pair of stores of
//! a kernel into one buffer, whatever the extents.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{Error, Op, Program, Result, internal_error};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::Target;
use crate::index::View;
use crate::kernel::{AxisKind, Jump, Launch, Stage, registers};
use crate::place::{Uses, in_place_pairs, updates_operand};
use crate::plan::{ALIGNMENT, Argument, Buffer, BufferId, Place, Plan, Step};
use crate::rows::{analyse, run_at};

/// The error names the step, the operand and the equation whose value it is.
pub fn verify_plan(plan: &Plan, program: &Program, target: &Target) -> Result<()> {
    let verifier = Verifier { plan, program, target };
    for (number, step) in plan.steps.iter().enumerate() {
        match step {
            Step::Kernel { launch, operands } => verifier.kernel(number, launch, operands),
            Step::Library { op, inputs, outputs } => verifier.library(number, op, inputs, outputs),
        }?;
    }
    for output in &plan.outputs {
        verifier.argument("the result", output)?;
    }
    let uses = Uses::new(&plan.steps, plan.buffers.len());
    verifier.buffers(&uses)?;
    verifier.order()?;
    verifier.runs(&uses)?;
    let through = uses.clone().through(&plan.runs);
    verifier.arena(&through)?;
    verifier.donations(&uses, &through)
}

/// The bytes that a buffer has in a memory, and the steps that need them.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    last: usize,
    begin: usize,
    end: usize,
    number: usize,
}

struct Verifier<'a> {
    plan: &'a Plan,
    program: &'a Program,
    target: &'a Target,
}

/// The lowest and the highest element that a view with jumps reaches inside of its ranges; `None` for nothing.
fn reach(view: &View, jumps: &[Jump]) -> Option<(i128, i128)> {
    let (mut low, mut high) = (i128::from(view.offset), i128::from(view.offset));
    let loops =
        view.strides.iter().zip(&view.ranges).map(|(&stride, &(first, end))| (stride, first, end - 1));
    for (stride, first, last) in loops.chain(jumps.iter().map(|jump| (jump.stride, 0, jump.last))) {
        if first > last {
            return None;
        }
        let ends = [first, last].map(|index| i128::from(stride) * i128::from(index));
        low += ends[0].min(ends[1]);
        high += ends[0].max(ends[1]);
    }
    Some((low, high))
}

/// A lowest element, and the stride and count of each loop from there.
type Grid = (i128, Vec<(i128, i128)>);

/// The elements that a view reaches by the loops that `counts` holds for. (Backwards a loop reaches the
/// same ones.)
fn grid(view: &View, extents: &[usize], counts: impl Fn(usize) -> bool) -> Grid {
    let mut start = i128::from(view.offset);
    let mut loops = Vec::new();
    for (axis, (&stride, &extent)) in view.strides.iter().zip(extents).enumerate() {
        if extent > 1 && counts(axis) {
            let (stride, extent) = (i128::from(stride), extent as i128);
            start += stride.min(0) * (extent - 1);
            loops.push((stride.abs(), extent));
        }
    }
    (start, loops)
}

/// Whether different indices are different elements: sorted, each stride exceeds all that the
/// smaller ones reach.
fn is_injective(mut loops: Vec<(i128, i128)>) -> bool {
    loops.sort_unstable();
    let mut reached = 0;
    loops.into_iter().all(|(stride, extent)| {
        let apart = stride > reached;
        reached += stride * (extent - 1);
        apart
    })
}

/// How much is tried before two stores count as meeting. Grids of parts of one array need two or three
/// steps for each loop.
const MOST_STEPS: usize = 4096;

/// Whether two injective grids may have an element in common.
fn meet(a: &Grid, b: &Grid) -> bool {
    // Where they do, Σ stride * (i - j) is how far `b` starts behind `a`: by strides, the bounds of i - j.
    let mut differences: BTreeMap<i128, (i128, i128)> = BTreeMap::new();
    for &(stride, extent) in &a.1 {
        differences.entry(stride).or_default().1 += extent - 1;
    }
    for &(stride, extent) in &b.1 {
        differences.entry(stride).or_default().0 -= extent - 1;
    }
    let terms: Vec<(i128, (i128, i128))> = differences.into_iter().collect();
    is_sum(b.0 - a.0, &terms, &mut MOST_STEPS.clone())
}

/// Whether a number may be Σ stride * n with each n within its bounds; strides are positive and ascend.
fn is_sum(number: i128, terms: &[(i128, (i128, i128))], steps: &mut usize) -> bool {
    let Some((&(stride, (low, high)), rest)) = terms.split_last() else { return number == 0 };
    let (least, most) = rest
        .iter()
        .fold((0, 0), |(least, most), &(stride, (low, high))| (least + stride * low, most + stride * high));
    let first = low.max(-(most - number).div_euclid(stride));
    let last = high.min((number - least).div_euclid(stride));
    (first..=last).any(|n| {
        *steps = steps.saturating_sub(1);
        *steps == 0 || is_sum(number - stride * n, rest, steps)
    })
}

impl Verifier<'_> {
    fn fault(&self, what: impl std::fmt::Display) -> Error {
        internal_error!("the plan of '{}': {what}", self.plan.name)
    }

    /// A buffer for messages: the value in it, and the op that made it.
    fn show(&self, id: BufferId) -> String {
        let Some(var) = self.plan.buffers.get(id.0 as usize).and_then(|buffer| buffer.var) else {
            return format!("buffer {}", id.0);
        };
        match self.program.equations.iter().find(|equation| equation.outputs.contains(&var)) {
            Some(equation) => format!("buffer {} (%{}, of {})", id.0, var.0, equation.op.name()),
            None => format!("buffer {} (%{})", id.0, var.0),
        }
    }

    fn buffer(&self, who: &str, id: BufferId) -> Result<&Buffer> {
        self.plan
            .buffers
            .get(id.0 as usize)
            .ok_or_else(|| self.fault(format_args!("{who} is buffer {}, which does not exist", id.0)))
    }

    fn argument(&self, who: &str, argument: &Argument) -> Result<()> {
        let bytes = self.buffer(who, argument.buffer)?.bytes;
        if argument.bytes() == bytes {
            return Ok(());
        }
        let buffer = self.show(argument.buffer);
        Err(self.fault(format_args!("{who} takes {} bytes, {buffer} has {bytes}", argument.bytes())))
    }

    fn writable(&self, who: &str, id: BufferId) -> Result<()> {
        match self.buffer(who, id)?.place {
            Place::Arena(_) | Place::Fresh(_) | Place::Rows(_) => Ok(()),
            place => Err(self.fault(format_args!("{who} writes to {}, which is {place}", self.show(id)))),
        }
    }

    fn library(&self, number: usize, op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Result<()> {
        for (position, input) in inputs.iter().enumerate() {
            self.argument(&format!("operand {position} of step {number}, {}", op.name()), input)?;
        }
        let works_in_place = updates_operand(op);
        for (position, output) in outputs.iter().enumerate() {
            let who = format!("result {position} of step {number}, {}", op.name());
            self.argument(&who, output)?;
            if output.bytes() == 0 {
                continue;
            }
            self.writable(&who, output.buffer)?;
            let read = inputs.iter().skip(usize::from(works_in_place && position == 0));
            let again = outputs[..position].iter().chain(read).any(|other| other.buffer == output.buffer);
            if again {
                return Err(self.fault(format_args!("{who} overwrites {}", self.show(output.buffer))));
            }
        }
        Ok(())
    }

    fn kernel(&self, number: usize, launch: &Launch, operands: &[BufferId]) -> Result<()> {
        let kernel = &launch.kernel;
        let fault = |what: String| self.fault(format_args!("kernel {number}: {what}"));
        let lengths = [
            (kernel.axes.len(), launch.extents.len(), "axes"),
            (kernel.operands.len(), operands.len(), "operands"),
            (kernel.loads.len(), launch.loads.len(), "loads"),
            (kernel.loads.len(), launch.jumps.len(), "jumps of loads"),
            (kernel.stores.len(), launch.stores.len(), "stores"),
        ];
        if let Some((a, b, what)) = lengths.into_iter().find(|(a, b, _)| a != b) {
            return Err(fault(format!("{a} and {b} {what}")));
        }
        if operands.len() > self.target.operands {
            let most = self.target.operands;
            return Err(fault(format!("{} arrays, where the machine takes {most}", operands.len())));
        }
        let count = launch.extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
        let Some(count) = count.filter(|&count| isize::try_from(count).is_ok()) else {
            return Err(fault(format!("its extents {:?} exceed the address space", launch.extents)));
        };
        let reduced = |axis: usize| kernel.axes[axis] == AxisKind::Reduction;
        let still = |view: &View| {
            (0..kernel.axes.len()).all(|axis| {
                !reduced(axis)
                    || view.strides[axis] == 0 && view.ranges[axis] == (0, launch.extents[axis] as i64)
            })
        };
        // One access: of operand `operand` at `view`.
        let access =
            |who: &str, operand: u32, written: bool, view: &View, jumps: &[Jump]| -> Result<BufferId> {
                let (Some(kind), Some(&id)) =
                    (kernel.operands.get(operand as usize), operands.get(operand as usize))
                else {
                    return Err(fault(format!("{who} is of operand {operand}, which does not exist")));
                };
                let at = || format!("{who}, of operand {operand} in {}", self.show(id));
                let bytes = self.buffer(who, id)?.bytes;
                if kind.written != written {
                    return Err(fault(format!("{}: the operand is written: {}", at(), kind.written)));
                }
                if view.strides.len() != launch.extents.len() || view.ranges.len() != launch.extents.len() {
                    return Err(fault(format!("{} has {} strides", at(), view.strides.len())));
                }
                let inside = |(&(low, high), &extent): (&(i64, i64), &usize)| {
                    0 <= low && low <= high && high as u64 <= extent as u64
                };
                if !view.ranges.iter().zip(&launch.extents).all(inside) {
                    return Err(fault(format!("{} has guards beyond the loops: {:?}", at(), view.ranges)));
                }
                let Some(elements) = bytes.checked_div(kind.dtype.size()) else {
                    return Err(fault(format!("{}: its elements have no bytes", at())));
                };
                if jumps.iter().any(|jump| jump.last < 0) {
                    return Err(fault(format!("{} jumps to no index: {jumps:?}", at())));
                }
                if count > 0
                    && let Some((low, high)) = reach(view, jumps)
                    && !(0 <= low && high < elements as i128)
                {
                    return Err(fault(format!("{} reaches elements {low} to {high} of {elements}", at())));
                }
                Ok(id)
            };
        let mut reads: FxHashMap<BufferId, Vec<usize>> = FxHashMap::default();
        for (index, (load, view)) in kernel.loads.iter().zip(&launch.loads).enumerate() {
            let id = access(&format!("load {index}"), load.operand, false, view, &launch.jumps[index])?;
            reads.entry(id).or_default().push(index);
        }
        // Of each buffer: the stores so far, the size of their elements, and where they are.
        let mut writes: FxHashMap<BufferId, Vec<(usize, usize, Grid)>> = FxHashMap::default();
        for (index, (store, view)) in kernel.stores.iter().zip(&launch.stores).enumerate() {
            let who = format!("store {index}");
            let id = access(&who, store.operand, true, view, &[])?;
            self.writable(&format!("kernel {number}: {who}"), id)?;
            let at = || format!("{who}, to {}", self.show(id));
            if view.ranges.iter().zip(&launch.extents).any(|(range, &extent)| *range != (0, extent as i64)) {
                return Err(fault(format!("{} has guards", at())));
            }
            let epilogue = store.stage == Stage::Epilogue;
            if epilogue && !still(view) {
                return Err(fault(format!("{} moves along a reduction axis", at())));
            }
            let width = |operand: u32| kernel.operands[operand as usize].dtype.size();
            let grid = grid(view, &launch.extents, |axis| !epilogue || !reduced(axis));
            if !is_injective(grid.1.clone()) {
                return Err(fault(format!("{} writes elements more than once", at())));
            }
            let others = writes.entry(id).or_default();
            for (other, size, elements) in others.iter() {
                if *size != width(store.operand) || count > 0 && meet(elements, &grid) {
                    return Err(fault(format!("{} writes what store {other} writes", at())));
                }
            }
            others.push((index, width(store.operand), grid));
            let body = kernel.body_of(store.stage);
            if registers(store.value).iter().any(|reg| reg.0 as usize >= body.instructions().len()) {
                return Err(fault(format!("{} is of a register that does not exist", at())));
            }
            for &index in reads.get(&id).into_iter().flatten() {
                let pointwise = !kernel.has_reduction()
                    && launch.loads[index] == *view
                    && launch.jumps[index].is_empty()
                    && width(kernel.loads[index].operand) == width(store.operand);
                if !pointwise {
                    return Err(fault(format!("{} overwrites what load {index} reads", at())));
                }
            }
        }
        for accumulator in &kernel.accumulators {
            if accumulator.arg.0 as usize >= kernel.body.instructions().len() {
                return Err(fault("an accumulator of a register that does not exist".to_owned()));
            }
        }
        let movable = |load: usize| !still(&launch.loads[load]);
        self.body(launch, Stage::Main, &|_| false, &|_| false).map_err(&fault)?;
        self.body(launch, Stage::Epilogue, &movable, &reduced).map_err(&fault)
    }

    /// What is wrong with a body; `moves` and `reduced` are loads and loops that it must not read.
    fn body(
        &self,
        launch: &Launch,
        stage: Stage,
        moves: &dyn Fn(usize) -> bool,
        reduced: &dyn Fn(usize) -> bool,
    ) -> Result<(), String> {
        let kernel = &launch.kernel;
        let body: &Body = kernel.body_of(stage);
        for (index, instruction) in body.instructions().iter().enumerate() {
            let wrong = |what: &str| Err(format!("instruction {index} of {stage:?} {what}"));
            if instruction.args.iter().any(|arg| arg.0 as usize >= index) {
                return wrong("reads a register from below");
            }
            match instruction.op {
                ScalarOp::Input { operand, part } => {
                    let operand = operand as usize;
                    let accumulator = operand
                        .checked_sub(kernel.loads.len())
                        .filter(|_| stage == Stage::Epilogue)
                        .and_then(|number| kernel.accumulators.get(number));
                    let expected = match (kernel.loads.get(operand), accumulator) {
                        (Some(_), _) if moves(operand) => {
                            return wrong("reads what moves along a reduction axis");
                        }
                        (Some(load), _) => {
                            let dtype = kernel.operands[load.operand as usize].dtype;
                            ScalarType::of(dtype).ok().filter(|_| usize::from(part) < dtype.parts())
                        }
                        (None, Some(accumulator)) => Some(accumulator.result()).filter(|_| part == 0),
                        (None, None) => return wrong("reads an input that does not exist"),
                    };
                    let is_index =
                        |arg: &Reg| matches!(body.type_of(*arg), ScalarType::I32 | ScalarType::I64);
                    if instruction.args.len() != launch.jumps.get(operand).map_or(0, |jumps| jumps.len())
                        || !instruction.args.iter().all(is_index)
                    {
                        return wrong("reads an input by other indices than it has jumps");
                    }
                    if expected != Some(instruction.ty) {
                        return wrong("reads an input as another type");
                    }
                }
                ScalarOp::Index { axis } if axis as usize >= kernel.axes.len() || reduced(axis as usize) => {
                    return wrong("reads the index of a loop that it is not in");
                }
                ScalarOp::Param { index } if kernel.params.get(index as usize) != Some(&instruction.ty) => {
                    return wrong("reads a parameter that does not exist");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The buffers that anything touches.
    fn buffers(&self, uses: &Uses) -> Result<()> {
        let plan = self.plan;
        let mut fresh = FxHashSet::default();
        let leaving: FxHashSet<BufferId> = plan.outputs.iter().map(|output| output.buffer).collect();
        for (number, buffer) in plan.buffers.iter().enumerate() {
            let id = BufferId(number as u32);
            let leaves = leaving.contains(&id);
            if uses.last[number].is_none() && !leaves {
                continue;
            }
            let bytes = match buffer.place {
                Place::Input(index) => {
                    plan.inputs.get(index).map(|(dtype, sizes)| element_count(sizes) * dtype.size())
                }
                Place::Constant(index) => plan.constants.get(index).map(|tensor| tensor.bytes().len()),
                Place::Fresh(index) => plan.fresh.get(index).copied().filter(|_| fresh.insert(index)),
                Place::Arena(offset) => {
                    let end = offset.checked_add(buffer.bytes);
                    let inside = end.is_some_and(|end| end <= plan.arena) && offset % ALIGNMENT == 0;
                    (buffer.bytes == 0 || inside && !leaves).then_some(buffer.bytes)
                }
                Place::Rows(offset) => (offset % ALIGNMENT == 0 && !leaves).then_some(buffer.bytes),
            };
            if bytes != Some(buffer.bytes) {
                let (what, bytes, place) = (self.show(id), buffer.bytes, buffer.place);
                return Err(self.fault(format_args!("{what}, of {bytes} bytes, cannot be {place}")));
            }
        }
        Ok(())
    }

    fn order(&self) -> Result<()> {
        let plan = self.plan;
        let known = |buffer: &Buffer| {
            buffer.bytes == 0 || matches!(buffer.place, Place::Input(_) | Place::Constant(_))
        };
        let mut written: Vec<bool> = plan.buffers.iter().map(known).collect();
        let unwritten = |who: &dyn std::fmt::Display, id: BufferId| {
            self.fault(format_args!("{who} reads {}, which nothing has written", self.show(id)))
        };
        for (number, step) in plan.steps.iter().enumerate() {
            let (reads, writes): (Vec<BufferId>, Vec<BufferId>) = match step {
                Step::Kernel { launch, operands } => {
                    let kernel = &launch.kernel;
                    let buffer = |operand: u32| operands[operand as usize];
                    (
                        kernel.loads.iter().map(|load| buffer(load.operand)).collect(),
                        kernel.stores.iter().map(|store| buffer(store.operand)).collect(),
                    )
                }
                Step::Library { inputs, outputs, .. } => (
                    inputs.iter().map(|argument| argument.buffer).collect(),
                    outputs.iter().map(|argument| argument.buffer).collect(),
                ),
            };
            if let Some(&id) = reads.iter().find(|id| !written[id.0 as usize]) {
                return Err(unwritten(&format_args!("step {number}"), id));
            }
            for id in writes {
                written[id.0 as usize] = true;
            }
        }
        match plan.outputs.iter().find(|output| !written[output.buffer.0 as usize]) {
            Some(output) => Err(unwritten(&"the caller", output.buffer)),
            None => Ok(()),
        }
    }

    /// Invariant 7, but for what holds of arena and donations.
    fn runs(&self, uses: &Uses) -> Result<()> {
        let plan = self.plan;
        let mut end = 0;
        for run in &plan.runs {
            let steps = run.steps.clone();
            let found = (end <= steps.start && steps.start < steps.end && steps.end <= plan.steps.len())
                .then(|| analyse(&plan.steps, steps.clone(), &plan.buffers, self.target))
                .flatten();
            if found.is_none_or(|found| {
                (found.extents, found.by_rows) != (run.extents.clone(), run.by_rows.clone())
            }) {
                return Err(self.fault(format_args!("steps {steps:?} do not go by rows {:?}", run.extents)));
            }
            end = steps.end;
        }
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); plan.runs.len()];
        for (number, buffer) in plan.buffers.iter().enumerate() {
            let (Place::Rows(begin), Some(last)) = (buffer.place, uses.last[number]) else { continue };
            let first = uses.first[number];
            let id = BufferId(number as u32);
            let Some(run) = run_at(&plan.runs, first)
                .filter(|&run| run_at(&plan.runs, last) == Some(run) && plan.runs[run].walks(id))
            else {
                return Err(self.fault(format_args!("{} is not of one run's rows", self.show(id))));
            };
            let end = begin.checked_add(buffer.bytes / plan.runs[run].rows());
            let Some(end) = end.filter(|&end| end <= plan.runs[run].own_bytes) else {
                return Err(self.fault(format_args!("{} exceeds the memory of a row", self.show(id))));
            };
            spans[run].push(Span { first, last, begin, end, number });
        }
        spans.into_iter().try_for_each(|spans| self.apart(spans))
    }

    fn arena(&self, uses: &Uses) -> Result<()> {
        let buffers = self.plan.buffers.iter().enumerate();
        self.apart(buffers.filter_map(|(number, buffer)| match (buffer.place, uses.last[number]) {
            (Place::Arena(begin), Some(last)) if buffer.bytes > 0 => {
                Some(Span { first: uses.first[number], last, begin, end: begin + buffer.bytes, number })
            }
            _ => None,
        }))
    }

    /// No two values of one memory whose lives meet have bytes in common.
    fn apart(&self, spans: impl IntoIterator<Item = Span>) -> Result<()> {
        let mut spans: Vec<Span> = spans.into_iter().collect();
        spans.sort_unstable_by_key(|span| (span.first, span.begin, span.number));
        // What is alive: by offset, the end and the buffer; and by the step after which it is not.
        let mut alive: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        let mut ends: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        for Span { first, last, begin, end, number } in spans {
            while let Some(&Reverse((last, begin))) = ends.peek()
                && last < first
            {
                ends.pop();
                alive.remove(&begin);
            }
            let below = alive.range(..end).next_back();
            if let Some((_, &(_, other))) = below.filter(|(_, (other_end, _))| *other_end > begin) {
                let ids = [number, other].map(|id| self.show(BufferId(id as u32)));
                return Err(self.fault(format_args!("{} overlaps {} in the arena", ids[0], ids[1])));
            }
            alive.insert(begin, (end, number));
            ends.push(Reverse((last, begin)));
        }
        Ok(())
    }

    fn donations(&self, uses: &Uses, through: &Uses) -> Result<()> {
        let plan = self.plan;
        let mut of_place = BTreeMap::new();
        for (number, buffer) in plan.buffers.iter().enumerate() {
            match buffer.place {
                Place::Input(index) => of_place.insert((true, index), number),
                Place::Fresh(index) => of_place.insert((false, index), number),
                Place::Constant(_) | Place::Arena(_) | Place::Rows(_) => None,
            };
        }
        let leaving: FxHashSet<BufferId> = plan.outputs.iter().map(|output| output.buffer).collect();
        let mut seen = FxHashSet::default();
        for &(input, fresh) in &plan.donations {
            let wrong = |why: &str| {
                Err(self.fault(format_args!("input {input} cannot become fresh buffer {fresh}: {why}")))
            };
            let (Some(&from), Some(&to)) = (of_place.get(&(true, input)), of_place.get(&(false, fresh)))
            else {
                return wrong("there is none");
            };
            if !seen.insert((true, input)) || !seen.insert((false, fresh)) {
                return wrong("one is in use");
            }
            if plan.buffers[from].bytes != plan.buffers[to].bytes {
                return wrong("their sizes differ");
            }
            if leaving.contains(&BufferId(from as u32)) {
                return wrong("it leaves as a result");
            }
            let in_place = |number: usize| {
                let bytes = |id: BufferId| plan.buffers[id.0 as usize].bytes;
                let walked =
                    |run: usize| [from, to].iter().all(|&id| plan.runs[run].walks(BufferId(id as u32)));
                run_at(&plan.runs, number).is_none_or(walked)
                    && !in_place_pairs(
                        &plan.steps[number],
                        bytes,
                        |id| id.0 as usize == from,
                        |id| id.0 as usize == to,
                    )
                    .is_empty()
            };
            let (Some(last), first) = (uses.last[from], uses.first[to]) else { continue };
            if through.last[from] >= Some(through.first[to]) && !(last == first && in_place(last)) {
                return wrong("it is read after that is written");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "verify_plan_tests.rs"]
mod tests;
