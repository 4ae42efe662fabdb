//! Small loops as one launch: scans and whiles whose bodies are kernels with little work.
//!
//! One workgroup goes through the kernels of a step, and from step to step. Carries, and what is between kernels, are
//! in memory of the workgroup as far as that goes. The row of an array that a scan goes through is one more loop of
//! the kernels that read it, whose index is the number of the step; stacked results are written where they belong. A
//! carry is written where it is if the body's plan lets the new value take over the memory of the old one; others are
//! copied at the end of a step.
//!
//! A dispatch does a limited number of steps, for drivers end those that take long, and leaves the carry in memory
//! for the next.
//!
//! In: an op. Out: its sequence, and what its arrays are; none for loops with larger kernels, or with library calls in
//! them. Cost: that of planning the body.

use ferrax_ir::ops::{Scan, While};
use ferrax_ir::scalar::{Body, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Result, Tensor, internal_error};
use rustc_hash::FxHashMap;

use super::assembly::{self, MOST_ITERATIONS, When, has_shader, lanes, of_workgroup, work};
use super::machine::Machine;
use super::own::{OwnMemory, Place};
use super::sequence::{Frame, Sequence};
use crate::carries::{Carries, Ends};
use crate::compile::plan;
use crate::index::View;
use crate::kernel::{AxisKind, Jumps, Kernel, Launch, Load, Operand, Stage, Store};
use crate::plan::{Argument, Buffer, BufferId, Place as PlanPlace, Plan, Step};

/// What an array of the sequence is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// An operand of the op; after the first dispatch carries are what the last one left.
    Input(usize),
    Output(usize),
    /// A constant of the loop.
    Constant(usize),
    /// Memory of so many bytes for a value between kernels; the number tells it from others.
    Between(usize, usize),
    /// Whether a while goes on.
    Holds,
}

/// A loop that is one launch, or several with so many steps each.
#[derive(Debug)]
pub struct SmallLoop {
    pub sequence: Sequence,
    /// The steps of a dispatch, at most.
    pub steps: usize,
    /// What its arrays are.
    pub bindings: Vec<Bound>,
    pub constants: Vec<Tensor>,
    /// The operand that the first carry is, and how many there are.
    pub first_carry: usize,
    pub carries: usize,
    /// The bytes of each result; none for carries that stay as they are.
    pub results: Vec<Option<usize>>,
    pub end: End,
}

/// When a loop ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// After so many steps.
    Steps(usize),
    /// When the word of own memory of this number is zero.
    Holds(usize),
}

/// A scan as one launch, if it is small.
pub fn scan(
    machine: &dyn Machine,
    op: &Scan,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<SmallLoop>> {
    let length = op.length.as_const();
    let length = length.ok_or_else(|| internal_error!("a scan of symbolic length {}", op.length))?;
    if length == 0 || !are_small(machine, inputs.iter().chain(outputs)) {
        return Ok(None);
    }
    let body = plan(&op.jaxpr, &machine.limits().target)?;
    let constants = (0, op.num_consts, op.num_carry);
    match Draft::new(machine, None, &body, constants, (length, outputs))? {
        Some(draft) => draft.finish(Frame::Scan),
        None => Ok(None),
    }
}

/// A while as one launch, if it is small.
pub fn while_loop(
    machine: &dyn Machine,
    op: &While,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<SmallLoop>> {
    if !are_small(machine, inputs.iter().chain(outputs)) {
        return Ok(None);
    }
    let target = &machine.limits().target;
    let (condition, body) = (plan(&op.cond_jaxpr, target)?, plan(&op.body_jaxpr, target)?);
    let constants = (op.cond_nconsts, op.body_nconsts, outputs.len());
    match Draft::new(machine, Some(&condition), &body, constants, (1, outputs))? {
        Some(draft) => draft.finish(Frame::While),
        None => Ok(None),
    }
}

/// Whether these are of elements that shaders have, and few enough to be numbered by words.
fn are_small<'a>(machine: &dyn Machine, mut arguments: impl Iterator<Item = &'a Argument>) -> bool {
    arguments.all(|argument| machine.words(argument.dtype).is_some() && argument.bytes() < 1 << 31)
}

/// The kernels of a plan, if it has no others and these are small.
fn kernels<'a>(machine: &dyn Machine, plan: &'a Plan) -> Option<Vec<(&'a Launch, &'a [BufferId])>> {
    let most = machine.limits().thresholds.loop_work;
    let kernel = |step: &'_ Step| match step {
        Step::Kernel { launch, .. } => has_shader(launch, machine) && work(launch, &[]) <= most,
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
    machine: &'a dyn Machine,
    condition: Option<&'a Plan>,
    body: &'a Plan,
    /// Constants of the condition, and of the body; carries.
    constants: (usize, usize),
    carries: usize,
    length: usize,
    outputs: &'a [Argument],
    own: OwnMemory,
    bindings: Vec<Bound>,
    values: Vec<Tensor>,
    /// Where each carry is.
    carry_at: Vec<Place>,
    /// Those that stay as they are, and those whose new value takes over the memory.
    kept: Vec<bool>,
    in_place: Vec<bool>,
    /// When the copies at the end of a step are made.
    end: usize,
    sequence: assembly::Draft<'a>,
    /// How often an invocation goes through the loops of a step.
    iterations: usize,
}

impl<'a> Draft<'a> {
    fn new(
        machine: &'a dyn Machine,
        condition: Option<&'a Plan>,
        body: &'a Plan,
        (of_condition, of_body, carries): (usize, usize, usize),
        (length, outputs): (usize, &'a [Argument]),
    ) -> Result<Option<Draft<'a>>> {
        let mut most = 1;
        let mut end = 0;
        for plan in condition.into_iter().chain([body]) {
            let Some(kernels) = kernels(machine, plan) else { return Ok(None) };
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
        let frame = if condition.is_some() { Frame::While } else { Frame::Scan };
        let sequence = assembly::Draft::new(machine, frame, lanes(most));
        let mut draft = Draft {
            machine,
            condition,
            body,
            constants: (of_condition, of_body),
            carries,
            length,
            outputs,
            own: of_workgroup(machine.limits()),
            bindings: Vec::new(),
            values: Vec::new(),
            carry_at: Vec::with_capacity(carries),
            kept,
            in_place,
            end,
            sequence,
            iterations: 1,
        };
        for (number, output) in outputs.iter().enumerate().take(carries) {
            let place = match draft.kept[number] {
                true => draft.array(Bound::Input(of_condition + of_body + number)),
                false => {
                    let elements = output.bytes() / output.dtype.size().max(1);
                    match draft.own(elements, output.dtype, 0, end) {
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

    /// A place in own memory for so many elements between these times, if there is one.
    fn own(&mut self, elements: usize, dtype: DType, first: usize, last: usize) -> Option<Place> {
        let words = elements.saturating_mul(self.machine.words(dtype)?);
        self.own.take(words, first, last)
    }

    /// All parts.
    fn finish(mut self, frame: Frame) -> Result<Option<SmallLoop>> {
        let before = self.constants.0 + self.constants.1;
        for number in (0..self.carries).filter(|&number| !self.kept[number]).collect::<Vec<_>>() {
            let from = self.array(Bound::Input(before + number));
            self.copy(When::Before, (from, 0), (self.carry_at[number], 0), &self.outputs[number])?;
        }
        let mut first = 0;
        let mut end = End::Steps(self.length);
        if let Some(condition) = self.condition {
            let places = self.places(condition, first, true)?;
            first = self.parts(condition, &places, When::Condition)?;
            let Some(holds) = self.predicate(condition, &places)? else { return Ok(None) };
            end = End::Holds(holds);
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
        if self.bindings.len() > self.machine.limits().target.operands {
            return Ok(None);
        }
        let steps = MOST_ITERATIONS / self.iterations;
        let Some(sequence) = self.sequence.finish(&self.own, self.bindings.len()).filter(|_| steps > 0)
        else {
            return Ok(None);
        };
        let result = |(number, output): (usize, &Argument)| {
            let kept = self.kept.get(number).is_some_and(|&kept| kept);
            (!kept).then(|| output.bytes())
        };
        Ok(Some(SmallLoop {
            sequence,
            steps,
            results: self.outputs.iter().enumerate().map(result).collect(),
            bindings: self.bindings,
            constants: self.values,
            first_carry: before,
            carries: self.carries,
            end,
        }))
    }

    /// Where the buffers of the condition or of the body are, whose first step has this number among those of a step
    /// of the loop.
    fn places(&mut self, plan: &Plan, first: usize, is_condition: bool) -> Result<Vec<Option<At>>> {
        // Of each buffer: the dtype by which it is used, and the first and last step that do.
        let mut uses: FxHashMap<BufferId, (DType, usize, usize)> = FxHashMap::default();
        for (number, (launch, operands)) in
            kernels(self.machine, plan).unwrap_or_default().into_iter().enumerate()
        {
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
                        self.values.push(tensor.clone());
                        (self.array(Bound::Constant(self.values.len() - 1)), 0)
                    }
                    _ => {
                        let elements = buffer.bytes / dtype.size().max(1);
                        let place = match self.own(elements, dtype, from, to) {
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
        let kernels = kernels(self.machine, plan).unwrap_or_default();
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
            ..Launch::default()
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
        let Some(place @ Place::Own { first, .. }) = self.own(1, DType::Bool, 0, self.end) else {
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
                let between = match self.own(elements, output.dtype, self.end, self.end) {
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
}
