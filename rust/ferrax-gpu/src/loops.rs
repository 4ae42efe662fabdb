//! Small loops as one shader: scans and whiles whose bodies are kernels with little work.
//!
//! One workgroup goes through the kernels of a step, and from step to step. Carries, and what is between kernels, are
//! in memory of the workgroup as far as that goes. The row of an array that a scan goes through is one more loop of
//! the kernels that read it, whose index is the number of the step; stacked results are written where they belong. A
//! carry is written where it is if the body's plan lets the new value take over the memory of the old one; others are
//! copied at the end of a step.
//!
//! A dispatch does a limited number of steps, for drivers end those that take long, and leaves the carry in memory
//! for the next. The host waits for a `while` once for each dispatch, to read whether it goes on, and not for each
//! step; and not at all where the program says how many steps there are.
//!
//! In: an op. Out: a library call; none for loops with larger kernels, or with library calls in them. Cost: that of
//! planning the body.

use std::sync::Arc;

use ferrax_compile::carries::{Carries, Ends};
use ferrax_compile::plan::Buffer;
use ferrax_compile::{
    Argument, AxisKind, Backend, BufferId, Jumps, Kernel, Launch, Load, Operand, Place as PlanPlace, Plan,
    Stage, Step, Store, View, plan,
};
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::ops::{Scan, While};
use ferrax_ir::scalar::{Body, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Program, Result, internal_error};
use rustc_hash::FxHashMap;

use crate::backend::Library;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sequence::{MOST_ITERATIONS, OwnMemory, Place, Sequence, When, has_shader, lanes, work};
use crate::wgsl::sequence::{COUNT, FIRST, Frame, HOLDS, NEXT, SequenceForm};
use crate::wgsl::types;

/// Iterations of a kernel in a step, at most.
const MOST_WORK: usize = 4096;

/// What a binding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    /// An operand of the op; after the first dispatch carries are what the last one left.
    Input(usize),
    Output(usize),
    /// A constant of the loop.
    Constant(usize),
    /// Memory of so many bytes for a value between kernels: that of this number.
    Between(usize, usize),
    /// Whether a while goes on.
    Holds,
}

/// A loop that is one shader.
#[derive(Debug)]
pub struct SmallLoop {
    /// Those of a scan, in order. Of a while, one of as many steps as a dispatch has, and one of the steps before its
    /// bound that are left.
    dispatches: Vec<Prepared>,
    bindings: Vec<Bound>,
    constants: Vec<Memory>,
    /// The operand that the first carry is, and how many there are.
    first_carry: usize,
    carries: usize,
    /// The bytes of each result; none for carries that stay as they are.
    results: Vec<Option<usize>>,
    /// Of a while when it ends.
    end: Option<End>,
}

/// When a while ends.
#[derive(Debug)]
struct End {
    /// The steps of a dispatch.
    steps: usize,
    /// The steps that there may be.
    most: Option<usize>,
    /// The steps that there are, if that is known.
    known: Option<u64>,
    /// The body, which errors name.
    body: Arc<Program>,
}

/// A scan as one shader, if it is small.
pub fn scan(gpu: &Gpu, op: &Scan, inputs: &[Argument], outputs: &[Argument]) -> Result<Option<SmallLoop>> {
    let length = op.length.as_const();
    let length = length.ok_or_else(|| internal_error!("a scan of symbolic length {}", op.length))?;
    if length == 0 || !are_small(inputs.iter().chain(outputs)) {
        return Ok(None);
    }
    let body = plan(&op.jaxpr, &gpu.target())?;
    let Some(mut draft) = Draft::new(gpu, None, &body, (0, op.num_consts, op.num_carry), (length, outputs))?
    else {
        return Ok(None);
    };
    let Some((form, mut words, steps)) = draft.finish(Frame::Scan)? else { return Ok(None) };
    words[NEXT] = if op.reverse { u32::MAX } else { 1 };
    let mut dispatches = Vec::new();
    for first in (0..length).step_by(steps) {
        words[FIRST] = if op.reverse { length - 1 - first } else { first } as u32;
        words[COUNT] = steps.min(length - first) as u32;
        dispatches.push(gpu.prepared(Source::Sequence(Box::new(form.clone())), &words, 1)?);
    }
    draft.bound(dispatches, None).map(Some)
}

/// A while as one shader, if it is small; it has `known` steps, where that is known.
pub fn while_loop(
    gpu: &Gpu,
    op: &While,
    inputs: &[Argument],
    outputs: &[Argument],
    known: Option<u64>,
) -> Result<Option<SmallLoop>> {
    if !are_small(inputs.iter().chain(outputs)) {
        return Ok(None);
    }
    let target = gpu.target();
    let (condition, body) = (plan(&op.cond_jaxpr, &target)?, plan(&op.body_jaxpr, &target)?);
    let constants = (op.cond_nconsts, op.body_nconsts, outputs.len());
    let Some(mut draft) = Draft::new(gpu, Some(&condition), &body, constants, (1, outputs))? else {
        return Ok(None);
    };
    let Some((form, mut words, steps)) = draft.finish(Frame::While)? else { return Ok(None) };
    words[HOLDS] = draft.holds as u32;
    let counts = std::iter::once(steps).chain(op.max_steps.map(|most| most % steps));
    let mut dispatches = Vec::new();
    for count in counts {
        words[COUNT] = count as u32;
        dispatches.push(gpu.prepared(Source::Sequence(Box::new(form.clone())), &words, 1)?);
    }
    let end = End { steps, most: op.max_steps, known, body: op.body_jaxpr.clone() };
    draft.bound(dispatches, Some(end)).map(Some)
}

/// Whether these are of elements that shaders have, and few enough to be numbered by words.
fn are_small<'a>(mut arguments: impl Iterator<Item = &'a Argument>) -> bool {
    arguments.all(|argument| types::storage(argument.dtype).is_ok() && argument.bytes() < 1 << 31)
}

/// The kernels of a plan, if it has no others and these are small.
fn kernels(plan: &Plan) -> Option<Vec<(&Launch, &[BufferId])>> {
    let kernel = |step: &'_ Step| match step {
        Step::Kernel { launch, .. } => has_shader(launch) && work(launch, &[]) <= MOST_WORK,
        Step::Library { .. } => false,
    };
    if !plan.steps.iter().all(kernel) {
        return None;
    }
    let parts = plan.steps.iter().filter_map(|step| match step {
        Step::Kernel { launch, operands } => Some((launch, operands.as_slice())),
        Step::Library { .. } => None,
    });
    Some(parts.collect())
}

/// Where a value is, and how many of its elements a step of a scan moves on.
type At = (Place, usize);

/// A loop while it is put together.
struct Draft<'a> {
    gpu: &'a Gpu,
    condition: Option<&'a Plan>,
    body: &'a Plan,
    /// Constants of the condition, and of the body; carries.
    constants: (usize, usize),
    carries: usize,
    length: usize,
    outputs: &'a [Argument],
    own: OwnMemory,
    bindings: Vec<Bound>,
    memory: Vec<Memory>,
    /// Where each carry is.
    carry_at: Vec<Place>,
    /// Those that stay as they are, and those whose new value takes over the memory.
    kept: Vec<bool>,
    in_place: Vec<bool>,
    /// The word that says whether a while goes on.
    holds: usize,
    /// When the copies at the end of a step are made.
    end: usize,
    sequence: Sequence,
    /// How often an invocation goes through the loops of a step.
    iterations: usize,
}

impl<'a> Draft<'a> {
    fn new(
        gpu: &'a Gpu,
        condition: Option<&'a Plan>,
        body: &'a Plan,
        (of_condition, of_body, carries): (usize, usize, usize),
        (length, outputs): (usize, &'a [Argument]),
    ) -> Result<Option<Draft<'a>>> {
        let mut most = 1;
        let mut end = 0;
        for plan in condition.into_iter().chain([body]) {
            let Some(kernels) = kernels(plan) else { return Ok(None) };
            most = kernels.iter().map(|(launch, _)| work(launch, &[])).fold(most, usize::max);
            end += kernels.len();
        }
        if most.saturating_mul(length) >= 1 << 31 {
            return Ok(None);
        }
        let places: Vec<PlanPlace> = body.buffers.iter().map(|buffer| buffer.place).collect();
        let ends = Ends {
            inputs: &body.inputs,
            outputs: &body.outputs,
            places: &places,
            donations: &body.donations,
        };
        let found = Carries::new(&ends, of_body, carries)?;
        let (mut kept, mut in_place) = (vec![false; carries], vec![false; carries]);
        found.kept.iter().for_each(|carry| kept[carry.number] = true);
        found.in_place.iter().for_each(|carry| in_place[carry.number] = true);
        let sequence =
            Sequence::new(if condition.is_some() { Frame::While } else { Frame::Scan }, lanes(most));
        let mut draft = Draft {
            gpu,
            condition,
            body,
            constants: (of_condition, of_body),
            carries,
            length,
            outputs,
            own: OwnMemory::of_workgroup(gpu),
            bindings: Vec::new(),
            memory: Vec::new(),
            carry_at: Vec::with_capacity(carries),
            kept,
            in_place,
            holds: 0,
            end,
            sequence,
            iterations: 1,
        };
        for (number, output) in outputs.iter().enumerate().take(carries) {
            let place = match draft.kept[number] {
                true => draft.array(Bound::Input(of_condition + of_body + number)),
                false => {
                    let elements = output.bytes() / output.dtype.size().max(1);
                    match draft.own.take(elements, output.dtype, 0, end)? {
                        Some(place) => place,
                        None => draft.array(Bound::Output(number)),
                    }
                }
            };
            draft.carry_at.push(place);
        }
        Ok(Some(draft))
    }

    fn array(&mut self, bound: Bound) -> Place {
        let known = self.bindings.iter().position(|&other| other == bound);
        Place::Array(known.unwrap_or_else(|| {
            self.bindings.push(bound);
            self.bindings.len() - 1
        }) as u32)
    }

    /// All parts: the form, its words, and how many steps a dispatch has.
    fn finish(&mut self, frame: Frame) -> Result<Option<(SequenceForm, Vec<u32>, usize)>> {
        let before = self.constants.0 + self.constants.1;
        for number in (0..self.carries).filter(|&number| !self.kept[number]).collect::<Vec<_>>() {
            let from = self.array(Bound::Input(before + number));
            self.copy(When::Before, (from, 0), (self.carry_at[number], 0), &self.outputs[number])?;
        }
        let mut first = 0;
        if let Some(condition) = self.condition {
            let places = self.places(condition, first, true)?;
            first = self.parts(condition, &places, When::Condition)?;
            let Some(holds) = self.predicate(condition, &places)? else { return Ok(None) };
            self.holds = holds;
        }
        let places = self.places(self.body, first, false)?;
        self.parts(self.body, &places, When::Body)?;
        self.end_step(&places)?;
        for number in 0..self.carries {
            if let place @ Place::Own { .. } = self.carry_at[number] {
                let to = self.array(Bound::Output(number));
                self.copy(When::After, (place, 0), (to, 0), &self.outputs[number])?;
            }
        }
        if frame == Frame::While {
            self.array(Bound::Holds);
        }
        if self.bindings.len() > self.gpu.most_operands() {
            return Ok(None);
        }
        let empty = Sequence::new(frame, 1);
        let sequence = std::mem::replace(&mut self.sequence, empty);
        let finished = sequence.finish(self.gpu, &self.own, self.bindings.len());
        let steps = MOST_ITERATIONS / self.iterations;
        Ok(finished.filter(|_| steps > 0).map(|(form, words)| (form, words, steps)))
    }

    /// Where the buffers of the condition or of the body are, whose first step has this number among those of a step
    /// of the loop.
    fn places(&mut self, plan: &Plan, first: usize, is_condition: bool) -> Result<Vec<Option<At>>> {
        // Of each buffer: the dtype by which it is used, and the first and last step that do.
        let mut uses: FxHashMap<BufferId, (DType, usize, usize)> = FxHashMap::default();
        for (number, (launch, operands)) in kernels(plan).unwrap_or_default().into_iter().enumerate() {
            for (id, operand) in operands.iter().zip(&launch.kernel.operands) {
                uses.entry(*id).or_insert((operand.dtype, first + number, 0)).2 = first + number;
            }
        }
        for output in &plan.outputs {
            uses.entry(output.buffer).or_insert((output.dtype, first, self.end)).2 = self.end;
        }
        let mut places = vec![None; plan.buffers.len()];
        for (number, buffer) in plan.buffers.iter().enumerate() {
            let Some(&(dtype, from, to)) = uses.get(&BufferId(number as u32)) else { continue };
            let id = BufferId(number as u32);
            let known = if is_condition { self.of_condition(buffer) } else { self.of_body(id, buffer) };
            places[number] = Some(match known {
                Some(at) => at,
                None => match buffer.place {
                    PlanPlace::Constant(constant) => {
                        let tensor = plan.constants.get(constant);
                        let tensor =
                            tensor.ok_or_else(|| internal_error!("there is no constant {constant}"))?;
                        self.memory.push(Gpu::upload(self.gpu, tensor.bytes())?);
                        (self.array(Bound::Constant(self.memory.len() - 1)), 0)
                    }
                    _ => {
                        let elements = buffer.bytes / dtype.size().max(1);
                        let place = match self.own.take(elements, dtype, from, to)? {
                            Some(place) => place,
                            None => self.array(Bound::Between(buffer.bytes, self.bindings.len())),
                        };
                        (place, 0)
                    }
                },
            });
        }
        Ok(places)
    }

    /// Where an input of the condition is.
    fn of_condition(&mut self, buffer: &Buffer) -> Option<At> {
        let PlanPlace::Input(number) = buffer.place else { return None };
        Some(match number.checked_sub(self.constants.0) {
            Some(carry) => (*self.carry_at.get(carry)?, 0),
            None => (self.array(Bound::Input(number)), 0),
        })
    }

    /// Where a buffer of the body is that is not between its kernels.
    fn of_body(&mut self, id: BufferId, buffer: &Buffer) -> Option<At> {
        let outputs = &self.body.outputs;
        match buffer.place {
            PlanPlace::Input(number) => {
                let carry = number.checked_sub(self.constants.1);
                if let Some(&place) = carry.and_then(|carry| self.carry_at.get(carry)) {
                    return Some((place, 0));
                }
                let row = carry.is_some().then(|| self.body.inputs.get(number)).flatten();
                let row = row.map_or(0, |(_, sizes)| sizes.iter().product());
                Some((self.array(Bound::Input(self.constants.0 + number)), row))
            }
            PlanPlace::Fresh(_) => {
                let number = outputs.iter().position(|output| output.buffer == id)?;
                if self.in_place.get(number).is_some_and(|&in_place| in_place) {
                    return Some((self.carry_at[number], 0));
                }
                let mut stacked = outputs.iter().enumerate().skip(self.carries);
                let (number, output) = stacked.find(|(_, output)| output.buffer == id)?;
                let row = output.sizes.iter().product();
                Some((self.array(Bound::Output(number)), row))
            }
            _ => None,
        }
    }

    /// The kernels of a plan; gives the number of the step after them.
    fn parts(&mut self, plan: &Plan, places: &[Option<At>], when: When) -> Result<usize> {
        let kernels = kernels(plan).unwrap_or_default();
        for (launch, operands) in &kernels {
            let at = operands.iter().map(|id| {
                let place = places.get(id.0 as usize).copied().flatten();
                place.ok_or_else(|| internal_error!("buffer {} of a loop is nowhere", id.0))
            });
            let at = at.collect::<Result<Vec<At>>>()?;
            self.part(when, (*launch).clone(), &at)?;
        }
        let condition = self.condition.map_or(0, |plan| plan.steps.len());
        Ok(if when == When::Condition { condition } else { self.end })
    }

    /// A kernel, with a loop more if it uses rows.
    fn part(&mut self, when: When, mut launch: Launch, at: &[At]) -> Result<()> {
        let mut rows = Vec::new();
        if at.iter().any(|&(_, row)| row != 0) {
            rows.push(launch.kernel.axes.len());
            launch.kernel.axes.push(AxisKind::Parallel);
            launch.extents.push(self.length);
            let kernel = &launch.kernel;
            let loads = kernel.loads.iter().map(|load| load.operand).zip(&mut launch.loads);
            let stores = kernel.stores.iter().map(|store| store.operand).zip(&mut launch.stores);
            for (operand, view) in loads.chain(stores) {
                view.strides.push(at.get(operand as usize).map_or(0, |&(_, row)| row as i64));
                view.ranges.push((0, self.length as i64));
            }
        }
        let places: Vec<Place> = at.iter().map(|&(place, _)| place).collect();
        self.iterations += self.sequence.part(when, &launch, &rows, &places)?;
        Ok(())
    }

    /// Copies a value.
    fn copy(&mut self, when: When, from: At, to: At, like: &Argument) -> Result<()> {
        let (dtype, ty) = match like.dtype.size() {
            1 => (DType::U8, ScalarType::U8),
            2 => (DType::U16, ScalarType::U16),
            _ => (DType::U32, ScalarType::U32),
        };
        let count = like.bytes() / dtype.size();
        // How many of these an element is.
        let each = (like.dtype.size() / dtype.size()).max(1);
        let mut body = Body::default();
        let value = body.push(ScalarOp::Input { operand: 0, part: 0 }, ty, &[]);
        let kernel = Kernel {
            axes: [AxisKind::Parallel].into_iter().collect(),
            operands: vec![Operand { dtype, written: false }, Operand { dtype, written: true }],
            loads: vec![Load { operand: 0, fill: None }],
            body,
            stores: vec![Store { operand: 1, stage: Stage::Main, value: Value::Real(value) }],
            ..Kernel::default()
        };
        let view = View::identity(&[count]);
        let launch = Launch {
            kernel,
            extents: [count].into_iter().collect(),
            params: Vec::new(),
            loads: vec![view.clone()],
            jumps: vec![Jumps::default()],
            stores: vec![view],
        };
        self.part(when, launch, &[(from.0, from.1 * each), (to.0, to.1 * each)])
    }

    /// The word of own memory that has what the condition gives.
    fn predicate(&mut self, plan: &Plan, places: &[Option<At>]) -> Result<Option<usize>> {
        let output = plan.outputs.first().ok_or_else(|| internal_error!("a condition without a result"))?;
        let at = places.get(output.buffer.0 as usize).copied().flatten();
        let at = at.ok_or_else(|| internal_error!("what a condition gives is nowhere"))?;
        if let Place::Own { first, .. } = at.0 {
            return Ok(Some(first));
        }
        let Some(place @ Place::Own { first, .. }) = self.own.take(1, DType::Bool, 0, self.end)? else {
            return Ok(None);
        };
        self.copy(When::Condition, at, (place, 0), output)?;
        Ok(Some(first))
    }

    /// The copies at the end of a step.
    fn end_step(&mut self, places: &[Option<At>]) -> Result<()> {
        let body = self.body;
        let at = |output: &Argument| {
            let place = places.get(output.buffer.0 as usize).copied().flatten();
            place.ok_or_else(|| internal_error!("buffer {} of a loop is nowhere", output.buffer.0))
        };
        for (number, output) in body.outputs.iter().enumerate().skip(self.carries) {
            let to = (self.array(Bound::Output(number)), output.sizes.iter().product());
            if at(output)?.0 != to.0 {
                self.copy(When::Body, at(output)?, to, output)?;
            }
        }
        // What is a carry now is copied before any carry changes.
        let mut copies = Vec::new();
        for number in (0..self.carries).filter(|&number| !self.kept[number] && !self.in_place[number]) {
            copies.push((number, at(&body.outputs[number])?));
        }
        for (number, from) in &mut copies {
            if self.carry_at.contains(&from.0) {
                let output = &body.outputs[*number];
                let elements = output.bytes() / output.dtype.size().max(1);
                let between = match self.own.take(elements, output.dtype, self.end, self.end)? {
                    Some(place) => place,
                    None => self.array(Bound::Between(output.bytes(), self.bindings.len())),
                };
                self.copy(When::Body, *from, (between, 0), output)?;
                *from = (between, 0);
            }
        }
        for (number, from) in copies {
            self.copy(When::Body, from, (self.carry_at[number], 0), &body.outputs[number])?;
        }
        Ok(())
    }

    fn bound(self, dispatches: Vec<Prepared>, end: Option<End>) -> Result<SmallLoop> {
        let result = |(number, output): (usize, &Argument)| {
            let kept = self.kept.get(number).is_some_and(|&kept| kept);
            (!kept).then(|| output.bytes())
        };
        Ok(SmallLoop {
            dispatches,
            results: self.outputs.iter().enumerate().map(result).collect(),
            bindings: self.bindings,
            constants: self.memory,
            first_carry: self.constants.0 + self.constants.1,
            carries: self.carries,
            end,
        })
    }
}

impl SmallLoop {
    /// One dispatch, the first of them or not.
    fn dispatch(
        &self,
        gpu: &Gpu,
        prepared: &Prepared,
        (inputs, results): (&[Memory], &[Memory]),
        between: &[Option<Memory>],
        is_first: bool,
    ) -> Result<()> {
        let memory = |(bound, between): (&Bound, &Option<Memory>)| {
            let found = match *bound {
                Bound::Input(number) => match number.checked_sub(self.first_carry) {
                    Some(carry) if !is_first && carry < self.carries => results.get(carry),
                    _ => inputs.get(number),
                },
                Bound::Output(number) => results.get(number),
                Bound::Constant(number) => self.constants.get(number),
                Bound::Between(..) | Bound::Holds => between.as_ref(),
            };
            found.cloned().ok_or_else(|| internal_error!("a loop has no memory for {bound:?}"))
        };
        let bindings = self.bindings.iter().zip(between);
        let bindings = bindings.map(memory).collect::<Result<Vec<_>>>()?;
        gpu.launch(prepared, &bindings)
    }
}

impl Library for SmallLoop {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let mut results = Vec::with_capacity(self.results.len());
        for (number, bytes) in self.results.iter().enumerate() {
            results.push(match (bytes, inputs.get(self.first_carry + number)) {
                (Some(bytes), _) => gpu.allocate(*bytes)?,
                (None, Some(input)) => input.clone(),
                (None, None) => return Err(internal_error!("a loop has no carry {number}")),
            });
        }
        let between = |bound: &Bound| match *bound {
            Bound::Between(bytes, _) => gpu.allocate(bytes).map(Some),
            Bound::Holds => gpu.allocate(size_of::<u32>()).map(Some),
            _ => Ok(None),
        };
        let between = self.bindings.iter().map(between).collect::<Result<Vec<_>>>()?;
        let arrays = (inputs, results.as_slice());
        let Some(End { steps, most, known, body }) = &self.end else {
            for (number, prepared) in self.dispatches.iter().enumerate() {
                self.dispatch(gpu, prepared, arrays, &between, number == 0)?;
            }
            return Ok(results);
        };
        let holds = between.last().and_then(Option::as_ref);
        let holds = holds.ok_or_else(|| internal_error!("a while without a place for its condition"))?;
        let mut done = 0;
        loop {
            let left = most.map_or(*steps, |most| most - done);
            let prepared = self.dispatches.get(usize::from(left < *steps));
            let prepared = prepared.ok_or_else(|| internal_error!("a while without a dispatch"))?;
            self.dispatch(gpu, prepared, arrays, &between, done == 0)?;
            done += left.min(*steps);
            let goes_on = match known {
                Some(known) => *known > done as u64,
                None => {
                    let mut word = [0; size_of::<u32>()];
                    gpu.download(holds, &mut word)?;
                    u32::from_le_bytes(word) != 0
                }
            };
            if !goes_on {
                return Ok(results);
            }
            within_bound(body, done, *most)?;
        }
    }

    fn in_vain(&self, cost: u64) -> Option<u64> {
        match &self.end {
            None => Some(cost),
            Some(end) => end.known.map(|_| cost),
        }
    }
}
