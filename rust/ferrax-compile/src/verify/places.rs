//! Invariants 4 to 6, and 7 as far as it is of places: that what a step reads is there, and that no value takes the
//! memory of another that is still needed.
//!
//! In: the steps in their order, and nothing that was computed for them before. Cost: n log n in the number of steps
//! and operands.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ferrax_ir::Result;
use ferrax_ir::tensor::element_count;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Verifier;
use super::grids::{count, grid};
use crate::kernel::{AxisKind, Launch, Stage};
use crate::plan::{ALIGNMENT, Argument, Buffer, BufferId, Place, Step};
use crate::updates::may_share;

/// The bytes that a buffer has in a memory, and the steps that need them.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    last: usize,
    begin: usize,
    end: usize,
    number: usize,
}

/// What steps do with a buffer: the first that touches it, the last, and the last that reads and the first that
/// writes it.
#[derive(Clone, Copy, Default)]
struct Touched {
    first: usize,
    last: usize,
    written: Option<usize>,
    read: Option<usize>,
}

impl Verifier<'_> {
    pub fn places(&self) -> Result<()> {
        let of_run = self.of_run()?;
        let touched = self.touched()?;
        self.buffers(&touched)?;
        self.own_memory(&touched, &of_run)?;
        // Blocks of a run take turns, so that all of its steps need what one of them does.
        let through: Vec<Option<Touched>> = touched
            .iter()
            .map(|touched| {
                touched.map(|touched| Touched {
                    first: of_run[touched.first].map_or(touched.first, |run| self.plan.runs[run].steps.start),
                    last: of_run[touched.last].map_or(touched.last, |run| self.plan.runs[run].steps.end - 1),
                    ..touched
                })
            })
            .collect();
        self.arena(&through)?;
        self.donations(&touched, &of_run)
    }

    /// The run that each step is in.
    fn of_run(&self) -> Result<Vec<Option<usize>>> {
        let mut of_run = vec![None; self.plan.steps.len()];
        for (number, run) in self.plan.runs.iter().enumerate() {
            let steps = of_run.get_mut(run.steps.clone()).filter(|steps| !steps.is_empty());
            let free = steps.filter(|steps| steps.iter().all(Option::is_none));
            let Some(steps) = free else {
                return Err(self.fault(format_args!("steps {:?} are no run of their own", run.steps)));
            };
            steps.fill(Some(number));
        }
        Ok(of_run)
    }

    /// What steps do with each buffer, in their order; nothing is read that was not written.
    fn touched(&self) -> Result<Vec<Option<Touched>>> {
        let plan = self.plan;
        let is_there = |buffer: &Buffer| {
            buffer.bytes == 0 || matches!(buffer.place, Place::Input(_) | Place::Constant(_))
        };
        let mut touched: Vec<Option<Touched>> = vec![None; plan.buffers.len()];
        let unwritten = |who: &dyn std::fmt::Display, id: BufferId| {
            self.fault(format_args!("{who} reads {}, which nothing has written", self.show(id)))
        };
        let read = |touched: &mut [Option<Touched>], number: usize, id: BufferId| {
            self.buffer("an operand", id)?;
            let at = &mut touched[id.0 as usize];
            if at.is_none_or(|at| at.written.is_none()) && !is_there(&plan.buffers[id.0 as usize]) {
                return Err(unwritten(&format_args!("step {number}"), id));
            }
            let at = at.get_or_insert(Touched { first: number, ..Touched::default() });
            (at.last, at.read) = (number, Some(number));
            Ok(())
        };
        let write = |touched: &mut [Option<Touched>], number: usize, id: BufferId| {
            self.buffer("a result", id)?;
            let at = touched[id.0 as usize].get_or_insert(Touched { first: number, ..Touched::default() });
            at.last = number;
            at.written.get_or_insert(number);
            Ok(())
        };
        for (number, step) in plan.steps.iter().enumerate() {
            match step {
                Step::Kernel { launch, operands } => {
                    let of = |operand: u32| {
                        let known = operands.get(operand as usize).copied();
                        known.ok_or_else(|| self.fault(format_args!("kernel {number}: no operand {operand}")))
                    };
                    for load in &launch.kernel.loads {
                        read(&mut touched, number, of(load.operand)?)?;
                    }
                    for store in &launch.kernel.stores {
                        write(&mut touched, number, of(store.operand)?)?;
                    }
                    // An operand that nothing reads is given all the same.
                    for &id in operands {
                        self.buffer("an operand", id)?;
                        let at = touched[id.0 as usize]
                            .get_or_insert(Touched { first: number, ..Touched::default() });
                        at.last = number;
                    }
                }
                Step::Library { inputs, outputs, .. } => {
                    for input in inputs {
                        read(&mut touched, number, input.buffer)?;
                    }
                    for output in outputs {
                        write(&mut touched, number, output.buffer)?;
                    }
                }
            }
        }
        for output in &plan.outputs {
            let buffer = self.buffer("the result", output.buffer)?;
            let written = touched[output.buffer.0 as usize].is_some_and(|at| at.written.is_some());
            if !written && !is_there(buffer) {
                return Err(unwritten(&"the caller", output.buffer));
            }
        }
        Ok(touched)
    }

    /// That what is read is there as a whole: what kernels have stored, each element once, is as much as the buffer
    /// holds.
    pub fn filled(&self) -> Result<()> {
        let plan = self.plan;
        let mut filled: Vec<usize> = vec![0; plan.buffers.len()];
        for (number, step) in plan.steps.iter().enumerate() {
            let check = |filled: &[usize], id: BufferId| {
                let buffer = &plan.buffers[id.0 as usize];
                let given = matches!(buffer.place, Place::Input(_) | Place::Constant(_));
                if given || filled[id.0 as usize] >= buffer.bytes {
                    return Ok(());
                }
                let (what, bytes, all) = (self.show(id), filled[id.0 as usize], buffer.bytes);
                Err(self.fault(format_args!(
                    "step {number} reads {what}, of which {bytes} bytes of {all} are there"
                )))
            };
            match step {
                Step::Kernel { launch, operands } => {
                    let kernel = &launch.kernel;
                    for load in &kernel.loads {
                        check(&filled, operands[load.operand as usize])?;
                    }
                    let mut stored: FxHashMap<BufferId, usize> = FxHashMap::default();
                    for (store, view) in kernel.stores.iter().zip(&launch.stores) {
                        let reduced = |axis: usize| {
                            store.stage == Stage::Epilogue && kernel.axes[axis] == AxisKind::Reduction
                        };
                        let elements = count(&grid(view, &launch.extents, |axis| !reduced(axis)));
                        let elements =
                            if launch.extents.iter().enumerate().any(|(a, &e)| e == 0 && !reduced(a)) {
                                0
                            } else {
                                elements
                            };
                        let width = kernel.operands[store.operand as usize].dtype.size();
                        *stored.entry(operands[store.operand as usize]).or_default() += elements * width;
                    }
                    for (id, bytes) in stored {
                        filled[id.0 as usize] += bytes;
                    }
                }
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().try_for_each(|input| check(&filled, input.buffer))?;
                    for output in outputs {
                        filled[output.buffer.0 as usize] = plan.buffers[output.buffer.0 as usize].bytes;
                    }
                }
            }
        }
        Ok(())
    }

    /// The buffers that anything touches.
    fn buffers(&self, touched: &[Option<Touched>]) -> Result<()> {
        let plan = self.plan;
        let mut fresh = FxHashSet::default();
        let leaving: FxHashSet<BufferId> = plan.outputs.iter().map(|output| output.buffer).collect();
        for (number, buffer) in plan.buffers.iter().enumerate() {
            let id = BufferId(number as u32);
            let leaves = leaving.contains(&id);
            if touched[number].is_none() && !leaves {
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

    /// The memory of the blocks of runs.
    fn own_memory(&self, touched: &[Option<Touched>], of_run: &[Option<usize>]) -> Result<()> {
        let plan = self.plan;
        let mut spans: Vec<Vec<Span>> = vec![Vec::new(); plan.runs.len()];
        for (number, buffer) in plan.buffers.iter().enumerate() {
            let (Place::Rows(begin), Some(touched)) = (buffer.place, touched[number]) else { continue };
            let id = BufferId(number as u32);
            let run = of_run[touched.first].filter(|&run| of_run[touched.last] == Some(run));
            let Some(run) = run.filter(|&run| plan.runs[run].by_rows.contains(&id)) else {
                return Err(self.fault(format_args!("{} is not of one run's rows", self.show(id))));
            };
            let rows = plan.runs[run].extents.iter().product::<usize>().max(1);
            let end = begin.checked_add(buffer.bytes / rows);
            let Some(end) = end.filter(|&end| end <= plan.runs[run].own_bytes) else {
                return Err(self.fault(format_args!("{} exceeds the memory of a row", self.show(id))));
            };
            let Touched { first, last, .. } = touched;
            spans[run].push(Span { first, last, begin, end, number });
        }
        spans.into_iter().try_for_each(|spans| self.apart(spans))
    }

    fn arena(&self, touched: &[Option<Touched>]) -> Result<()> {
        let buffers = self.plan.buffers.iter().enumerate();
        self.apart(buffers.filter_map(|(number, buffer)| match (buffer.place, touched[number]) {
            (Place::Arena(begin), Some(Touched { first, last, .. })) if buffer.bytes > 0 => {
                Some(Span { first, last, begin, end: begin + buffer.bytes, number })
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

    fn donations(&self, touched: &[Option<Touched>], of_run: &[Option<usize>]) -> Result<()> {
        let plan = self.plan;
        let mut of_place = FxHashMap::default();
        for (number, buffer) in plan.buffers.iter().enumerate() {
            match buffer.place {
                Place::Input(index) => of_place.insert((true, index), BufferId(number as u32)),
                Place::Fresh(index) => of_place.insert((false, index), BufferId(number as u32)),
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
            if plan.buffers[from.0 as usize].bytes != plan.buffers[to.0 as usize].bytes {
                return wrong("their sizes differ");
            }
            if leaving.contains(&from) {
                return wrong("it leaves as a result");
            }
            let (Some(read), Some(written)) = (
                touched[from.0 as usize].map(|touched| touched.last),
                touched[to.0 as usize].map(|touched| touched.first),
            ) else {
                continue;
            };
            // In a run blocks take turns: there both are walked by rows, or the one is done before the run.
            let run = of_run[read].filter(|&run| of_run[written] == Some(run));
            let walks = |run: usize| [from, to].iter().all(|id| plan.runs[run].by_rows.contains(id));
            let sound = match run {
                None => read < written || read == written && self.element_by_element(read, from, to),
                Some(run) => read == written && walks(run) && self.element_by_element(read, from, to),
            };
            if !sound {
                return wrong("it is read after that is written");
            }
        }
        Ok(())
    }

    /// Whether a step could write `to` over `from`: each element is read only where it is written.
    fn element_by_element(&self, number: usize, from: BufferId, to: BufferId) -> bool {
        match &self.plan.steps[number] {
            Step::Library { op, inputs, outputs, .. } => {
                // The one place of each in the call.
                let only = |of: &[Argument]| {
                    let mut places =
                        of.iter().enumerate().filter(|(_, other)| [from, to].contains(&other.buffer));
                    match (places.next(), places.next()) {
                        (Some((place, _)), None) => Some(place),
                        _ => None,
                    }
                };
                let (Some(operand), Some(result)) = (only(inputs), only(outputs)) else { return false };
                inputs[operand].buffer == from
                    && outputs[result].buffer == to
                    && may_share(op, operand, result)
            }
            Step::Kernel { launch, operands } => self.kernel_by_element(launch, operands, from, to),
        }
    }

    fn kernel_by_element(
        &self,
        launch: &Launch,
        operands: &[BufferId],
        from: BufferId,
        to: BufferId,
    ) -> bool {
        let kernel = &launch.kernel;
        let width = |operand: u32| kernel.operands[operand as usize].dtype.size();
        let mut stores = kernel
            .stores
            .iter()
            .zip(&launch.stores)
            .filter(|(store, _)| operands[store.operand as usize] == to);
        let (Some((store, to_view)), None) = (stores.next(), stores.next()) else { return false };
        let loads = kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps);
        let mut of_operand = loads.filter(|((load, _), _)| operands[load.operand as usize] == from);
        store.stage == Stage::Main
            && !kernel.axes.contains(&AxisKind::Reduction)
            && !kernel.stores.iter().any(|store| operands[store.operand as usize] == from)
            && of_operand.all(|((load, view), jumps)| {
                view == to_view && jumps.is_empty() && width(load.operand) == width(store.operand)
            })
    }
}
