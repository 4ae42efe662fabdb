//! Loops as native programs, if they are small: each kernel of each step is written out, element by element, or, if it has
//! more of them, in lanes.
//!
//! In: a `scan` or a `while`, whose body and what is in it consist of kernels of few elements, small products, updates at
//! computed places, branches, and loops of the same kind. Out: one function; none for others. Elements of small carries and
//! of what is between kernels are values of the program; what is done in lanes, arrays that are gone through, constants of
//! the loop and stacked results are in memory.
//!
//! Cost: that of planning the bodies, and linear in the instructions, which are limited.

use ferrax_ir::ops::{Scan, While};
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Op, Program, Result, Tensor, Type, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::arrays::{
    self, Array, MOST_COMPARED, MOST_ELEMENTS, MOST_LANES, Pointer, moved, parts, same_memory,
};
use super::build::Builder;
use super::course::{Course, Held, Written};
use super::form::{self, Work};
use super::{Address, Id, Native};
use crate::kernel::{Accumulator, AxisKind, Launch, Stage};
use crate::plan::{Argument, BufferId, Place, Plan, Step};
use crate::tuning::Target;

/// Instructions of a function, and bytes of arrays between loops, at most.
pub(super) const MOST_CODE: usize = 1200;
const MOST_SCRATCH: usize = 32 << 10;
/// Bytes between arrays of scratch memory, where groups of lanes may begin and end.
const GAP: usize = 128;

/// A loop as one function.
#[derive(Debug)]
pub struct Function {
    pub native: Native,
    pub pointers: Vec<Pointer>,
    pub constants: Vec<Tensor>,
    /// Bytes of scratch memory.
    pub scratch: usize,
    /// Operands that are copied to results, with their bytes: before the function runs, and after it.
    pub before: Vec<(usize, usize, usize)>,
    pub after: Vec<(usize, usize, usize)>,
}

/// A scan as one function, if it is small.
pub fn scan(
    op: &Scan,
    inputs: &[Argument],
    outputs: &[Argument],
    target: &Target,
) -> Result<Option<Function>> {
    let Some(length) = op.length.as_const().filter(|&length| length > 0) else { return Ok(None) };
    let mut lowering = Lowering::new(target);
    if !small(&op.jaxpr) {
        return Ok(None);
    }
    let (arrays, before) = lowering.operands(op.num_consts, op.num_carry, inputs);
    let stacks: Vec<Array> =
        (op.num_carry..outputs.len()).map(|output| lowering.memory(Pointer::Output(output), false)).collect();
    match lowering.scan(op, length, &arrays, &stacks, &|_| true)? {
        Some(carries) => lowering.finish(op.num_consts, &carries, before, inputs, outputs),
        None => Ok(None),
    }
}

/// A while as one function, if it is small.
pub fn while_loop(
    op: &While,
    inputs: &[Argument],
    outputs: &[Argument],
    target: &Target,
) -> Result<Option<Function>> {
    if op.max_steps.is_some() || !small(&op.body_jaxpr) || !small(&op.cond_jaxpr) {
        return Ok(None);
    }
    let mut lowering = Lowering::new(target);
    let constants = op.cond_nconsts + op.body_nconsts;
    let (arrays, before) = lowering.operands(constants, outputs.len(), inputs);
    match lowering.while_loop(op, &arrays, &|_| true)? {
        Some(carries) => lowering.finish(constants, &carries, before, inputs, outputs),
        None => Ok(None),
    }
}

/// Whether a program may be one: told before it is planned.
fn small(program: &Program) -> bool {
    let few = |ty: &Type| {
        let sizes = ty.as_array().and_then(|array| array.sizes());
        sizes.is_some_and(|sizes| element_count(&sizes) <= MOST_LANES)
    };
    program.equations.len() <= MOST_CODE / 4
        && program.equations.iter().all(|equation| {
            // Their results may be in place.
            let places = matches!(
                equation.op,
                Op::DynamicUpdateSlice(_) | Op::Scatter(_) | Op::Cond(_) | Op::While(_) | Op::Scan(_)
            );
            let results = || equation.outputs.iter().all(|var| few(&program.types[var.index()]));
            let known = !matches!(equation.op, Op::Extension(_)) && equation.op.effects().is_empty();
            known && (places || results())
        })
}

pub(super) struct Lowering<'a> {
    pub build: Builder,
    pub target: &'a Target,
    pub pointers: Vec<Pointer>,
    constants: Vec<Tensor>,
    scratch: usize,
    /// Nanoseconds that the vector VM takes for all that was written out, once.
    pub elsewhere: f64,
    /// Memory that operands of the present kernel were put to, and that which constants were put to once.
    pub rooms: FxHashMap<u32, Array>,
    pub lasting: FxHashMap<(u32, i32), Array>,
    pub of_folds: Option<Array>,
}

impl<'a> Lowering<'a> {
    fn new(target: &'a Target) -> Lowering<'a> {
        Lowering {
            build: Builder::new(),
            target,
            pointers: Vec::new(),
            constants: Vec::new(),
            scratch: 0,
            elsewhere: 0.0,
            rooms: FxHashMap::default(),
            lasting: FxHashMap::default(),
            of_folds: None,
        }
    }

    fn entry(&mut self, pointer: Pointer) -> u32 {
        let known = self.pointers.iter().position(|&known| known == pointer);
        known.unwrap_or_else(|| {
            self.pointers.push(pointer);
            self.pointers.len() - 1
        }) as u32
    }

    pub fn memory(&mut self, pointer: Pointer, constant: bool) -> Array {
        let pointer = self.entry(pointer);
        Array::Memory { at: Address { pointer, bytes: None, offset: 0 }, constant }
    }

    /// Operands of a loop, and which of them are copied to their results: carries of many elements, which are changed there,
    /// and those of some, which may be.
    fn operands(
        &mut self,
        constants: usize,
        carries: usize,
        inputs: &[Argument],
    ) -> (Vec<Array>, Vec<(usize, usize, usize)>) {
        let mut before = Vec::new();
        let arrays = inputs.iter().enumerate().map(|(number, input)| {
            let carry = number.checked_sub(constants).filter(|&carry| carry < carries);
            match carry.filter(|_| element_count(&input.sizes) > MOST_COMPARED) {
                Some(carry) => {
                    before.push((number, carry, input.bytes()));
                    self.memory(Pointer::Output(carry), false)
                }
                None => self.memory(Pointer::Input(number), true),
            }
        });
        (arrays.collect(), before)
    }

    /// Scratch memory of so many bytes.
    pub fn room(&mut self, bytes: usize) -> Option<Array> {
        let offset = self.scratch + GAP;
        self.scratch = offset + bytes.next_multiple_of(GAP / 2);
        if self.scratch + GAP > MOST_SCRATCH {
            return None;
        }
        let pointer = self.entry(Pointer::Scratch);
        Some(Array::Memory { at: Address { pointer, bytes: None, offset: offset as i32 }, constant: false })
    }

    /// Reads a part of an element.
    pub fn read(&mut self, array: &Array, dtype: DType, element: usize, part: usize) -> Option<Id> {
        let (ty, parts) = parts(dtype)?;
        match array {
            Array::Values(ids) => {
                ids.get(element * parts + part).copied().filter(|&id| self.build.type_of(id) == ty)
            }
            Array::Memory { at, constant } => {
                let at = moved(*at, ((element * parts + part) * ty.size()) as i64)?;
                Some(self.build.load(ty, at, *constant))
            }
        }
    }

    /// All elements as values.
    pub fn values(&mut self, array: &Array, dtype: DType, count: usize) -> Option<Vec<Id>> {
        let (_, parts) = parts(dtype)?;
        if count > MOST_ELEMENTS {
            return None;
        }
        (0..count * parts).map(|place| self.read(array, dtype, place / parts, place % parts)).collect()
    }

    /// Puts an array's values to memory.
    pub fn write(&mut self, values: &[Id], to: &Array) -> Option<()> {
        values
            .iter()
            .enumerate()
            .try_for_each(|(place, &value)| self.write_part(value, to, place).ok_or(()))
            .ok()
    }

    /// Puts a part of an element, numbered with all parts before it, to memory.
    pub fn write_part(&mut self, value: Id, to: &Array, place: usize) -> Option<()> {
        let Array::Memory { at, .. } = to else { return None };
        let size = self.build.type_of(value).size();
        let to = moved(*at, (place * size) as i64)?;
        self.build.store(value, to);
        Some(())
    }

    /// An array in memory, where an index may be computed.
    pub fn in_memory(&mut self, array: &Array, dtype: DType, count: usize) -> Option<Array> {
        match array {
            Array::Memory { .. } => Some(array.clone()),
            Array::Values(values) => {
                let room = self.room(count * dtype.size())?;
                self.write(values, &room)?;
                Some(room)
            }
        }
    }

    fn finish(
        mut self,
        first: usize,
        carries: &[Array],
        before: Vec<(usize, usize, usize)>,
        inputs: &[Argument],
        outputs: &[Argument],
    ) -> Result<Option<Function>> {
        let mut copies = Vec::new();
        let mut written = Vec::new();
        let mut in_scratch = Vec::new();
        for (number, (carry, output)) in carries.iter().zip(outputs).enumerate() {
            if let Array::Memory { at, .. } = carry {
                // A carry that is handed on as it is, or was changed where its result is.
                match self.pointers[at.pointer as usize] {
                    Pointer::Scratch => in_scratch.push(number),
                    _ if at.offset != 0 || at.bytes.is_some() => return Ok(None),
                    Pointer::Input(input) if input == first + number => {
                        copies.push((input, number, inputs[input].bytes()));
                    }
                    Pointer::Output(output) if output == number => {}
                    _ => return Ok(None),
                }
                continue;
            }
            let count = element_count(&output.sizes);
            let Some(values) = self.values(carry, output.dtype, count) else { return Ok(None) };
            written.push((number, values));
        }
        for (number, values) in written {
            let to = self.memory(Pointer::Output(number), false);
            if self.write(&values, &to).is_none() {
                return Ok(None);
            }
        }
        for number in in_scratch {
            let to = self.memory(Pointer::Output(number), false);
            let output = &outputs[number];
            if self.copy(&carries[number], &to, output.dtype, element_count(&output.sizes))?.is_none() {
                return Ok(None);
            }
        }
        // What an instruction takes where it waits for others now and then.
        const NANOSECONDS: f64 = 0.35;
        if self.build.steps() as f64 * NANOSECONDS > self.elsewhere {
            return Ok(None);
        }
        let Lowering { build, pointers, constants, scratch, .. } = self;
        let native = build.finish();
        Ok(Some(Function { native, pointers, constants, scratch: scratch + GAP, before, after: copies }))
    }

    /// The outputs of a plan, of which some are `wanted` at places.
    pub fn run(
        &mut self,
        body: &Plan,
        inputs: &[Array],
        wanted: &[(BufferId, Array)],
    ) -> Result<Option<Vec<Array>>> {
        let mut held: Vec<Held> = Vec::with_capacity(body.buffers.len());
        for buffer in &body.buffers {
            held.push(match buffer.place {
                Place::Input(index) => match inputs.get(index) {
                    Some(array) => Held::Array(array.clone()),
                    None => return Err(internal_error!("a body has no input {index}")),
                },
                Place::Constant(index) => match self.constant(&body.constants[index]) {
                    Some(array) => Held::Array(array),
                    None => Held::Nothing,
                },
                _ => Held::Nothing,
            });
        }
        let mut last = vec![0; body.buffers.len()];
        for (number, step) in body.steps.iter().enumerate() {
            step.each_buffer(|id| last[id.0 as usize] = number);
        }
        body.outputs.iter().for_each(|output| last[output.buffer.0 as usize] = body.steps.len());
        let mut course = Course { body, held, last, wanted };
        for (number, step) in body.steps.iter().enumerate() {
            if self.build.written() > MOST_CODE {
                return Ok(None);
            }
            let done = match step {
                Step::Kernel { launch, operands } => self.kernel(number, launch, operands, &mut course)?,
                Step::Library { op, inputs, outputs, .. } => self.call(op, inputs, outputs, &mut course)?,
            };
            if done.is_none() {
                return Ok(None);
            }
        }
        Ok(body.outputs.iter().map(|output| course.array(output.buffer)).collect())
    }

    /// A constant: values of few elements, else memory.
    fn constant(&mut self, tensor: &Tensor) -> Option<Array> {
        let (ty, parts) = parts(tensor.dtype())?;
        let bytes = tensor.bytes();
        if bytes.len() <= MOST_COMPARED * ty.size() * parts {
            let word =
                |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
            return Some(Array::Values(
                bytes.chunks_exact(ty.size()).map(|bytes| self.build.constant(ty, word(bytes))).collect(),
            ));
        }
        Some(self.elements_of(tensor.clone()))
    }

    /// The elements of a constant in memory.
    pub fn elements_of(&mut self, tensor: Tensor) -> Array {
        let known = self.constants.iter().position(|known| *known == tensor);
        let number = known.unwrap_or_else(|| {
            self.constants.push(tensor);
            self.constants.len() - 1
        });
        self.memory(Pointer::Constant(number), true)
    }

    /// A step that is no kernel.
    fn call(
        &mut self,
        op: &Op,
        inputs: &[Argument],
        outputs: &[Argument],
        course: &mut Course<'_>,
    ) -> Result<Option<()>> {
        let body = course.body;
        let Some(arrays) =
            inputs.iter().map(|input| course.array(input.buffer)).collect::<Option<Vec<Array>>>()
        else {
            return Ok(None);
        };
        self.elsewhere += 40.0;
        let alone = |operand: usize| {
            let other =
                |(number, array): (usize, &Array)| number != operand && same_memory(array, &arrays[operand]);
            !arrays.iter().enumerate().any(other)
        };
        let shared = |operand: usize, result: usize| {
            in_place(body, &inputs[operand], &outputs[result]) && alone(operand)
        };
        let results = match op {
            Op::Scan(op) if small(&op.jaxpr) => {
                let own = |carry: usize| shared(op.num_consts + carry, carry);
                self.inner_scan(op, inputs, &arrays, &own)?
            }
            Op::While(op) if op.max_steps.is_none() && small(&op.body_jaxpr) && small(&op.cond_jaxpr) => {
                let own = |carry: usize| shared(op.cond_nconsts + op.body_nconsts + carry, carry);
                self.while_loop(op, &arrays, &own)?
            }
            Op::Cond(op) if op.branches.iter().all(|branch| small(branch)) => {
                self.cond(op, outputs, &arrays, &shared)?
            }
            Op::DynamicSlice(_) => self.slice(inputs, &outputs[0], &arrays)?.map(|array| vec![array]),
            Op::DynamicUpdateSlice(_) => {
                self.update_slice(inputs, &arrays, shared(0, 0))?.map(|array| vec![array])
            }
            Op::Scatter(op) => self.scatter(op, inputs, &arrays, shared(0, 0))?.map(|array| vec![array]),
            Op::DotGeneral(op) => self.product(op, inputs, &outputs[0], &arrays)?.map(|array| vec![array]),
            _ => None,
        };
        let Some(results) = results else { return Ok(None) };
        for (array, output) in results.into_iter().zip(outputs) {
            course.held[output.buffer.0 as usize] = Held::Array(array);
        }
        Ok(Some(()))
    }

    /// Writes a kernel out.
    fn kernel(
        &mut self,
        step: usize,
        launch: &Launch,
        operands: &[BufferId],
        course: &mut Course<'_>,
    ) -> Result<Option<()>> {
        let kernel = &launch.kernel;
        let each = kernel.body.instructions().len() + kernel.epilogue.instructions().len();
        let work = launch.iterations().saturating_mul(each.max(1));
        let trees = kernel.accumulators.iter().any(Accumulator::is_tree);
        let over = |kind| {
            let axes = (0..kernel.axes.len()).filter(move |&axis| kernel.axes[axis] == kind);
            axes.collect::<SmallVec<[usize; 6]>>()
        };
        let (parallel, reduced) = (over(AxisKind::Parallel), over(AxisKind::Reduction));
        // The order of the terms is the schedule's where several axes are reduced.
        let ordered = reduced.iter().filter(|&&axis| launch.extents[axis] > 1).count() <= 1;
        let form = form::form(launch, self.target.lanes);
        if (work > 4 * MOST_CODE && form.is_none()) || (trees && !ordered) {
            return Ok(None);
        }
        self.rooms.clear();
        // A call for each operation, twenty nanoseconds for the first element of a function.
        let computing = kernel.body.instructions().iter().chain(kernel.epilogue.instructions());
        let nanoseconds = computing.map(|instruction| match instruction.op {
            ScalarOp::Input { .. }
            | ScalarOp::Index { .. }
            | ScalarOp::Const { .. }
            | ScalarOp::Param { .. } => 0.0,
            ScalarOp::Math(_) => 20.0 + 0.8 * launch.iterations() as f64,
            _ => 5.0 + 0.05 * launch.iterations() as f64,
        });
        // Kernels that fold are no straight line.
        self.elsewhere += if kernel.folds() { 120.0 } else { 25.0 } + nanoseconds.sum::<f64>();
        let arrays: Vec<Option<Array>> = operands.iter().map(|&buffer| course.array(buffer)).collect();
        let sizes = kernel.operands.iter().zip(operands);
        let counts: Vec<usize> = sizes
            .map(|(operand, buffer)| course.body.buffers[buffer.0 as usize].bytes / operand.dtype.size())
            .collect();
        let lanes = form.as_ref().map(|form| Work { launch, form, arrays: &arrays, counts: &counts });
        let of_lanes = match &lanes {
            Some(work) => {
                let Some(ranges) = work.written() else { return Ok(None) };
                let mut written: Vec<Written> = Vec::with_capacity(ranges.len());
                for range in ranges {
                    match self.result((step, work, operands), range, &written, course) {
                        Some(result) => written.push(result),
                        None => return Ok(None),
                    }
                }
                let Some(terms) = self.rooms_of_terms(work) else { return Ok(None) };
                let results: Vec<Array> = written.iter().map(Written::begins).collect();
                Some((work, written, results, terms))
            }
            None => None,
        };
        if let Some((work, written, results, _)) = &of_lanes
            && !kernel.folds()
        {
            if self.in_lanes(work, results)?.is_none() {
                return Ok(None);
            }
            return self.note(written, course);
        }
        let mut writes: Vec<Write> = Vec::new();
        for outer in launch.indices(&parallel, &vec![0; kernel.axes.len()]) {
            let folded = match &of_lanes {
                Some((work, _, results, terms)) => self.folded(work, &outer, results, terms)?,
                None => self.folded_one_by_one((launch, &arrays), &reduced, &outer, &mut writes)?,
            };
            let Some(folded) = folded else { return Ok(None) };
            if kernel.stores.iter().any(|store| store.stage == Stage::Epilogue) {
                let point = Point { launch, arrays: &arrays, index: &outer, folded: &folded };
                let Some(ids) = self.body(&point, Stage::Epilogue)? else { return Ok(None) };
                if note(launch, Stage::Epilogue, &outer, &ids, &mut writes).is_none() {
                    return Ok(None);
                }
            }
        }
        if let Some((_, written, ..)) = &of_lanes
            && self.note(written, course)?.is_none()
        {
            return Ok(None);
        }
        for Write { operand, element, parts: ids } in writes {
            let (dtype, buffer) = (kernel.operands[operand].dtype, operands[operand]);
            let Some((ty, parts)) = parts(dtype) else { return Ok(None) };
            let count = counts[operand];
            let is_large = count > MOST_ELEMENTS && arrays::element(dtype).is_some() && count <= MOST_LANES;
            if is_large || matches!(course.held[buffer.0 as usize], Held::Parts(_)) {
                let Some(parts) = self.parts_of(course, buffer, dtype, count) else { return Ok(None) };
                let array = parts.array.clone();
                parts.note(element..element + 1);
                for (part, &id) in ids.iter().enumerate() {
                    if self.build.type_of(id) != ty
                        || self.write_part(id, &array, element * ids.len() + part).is_none()
                    {
                        return Ok(None);
                    }
                }
                continue;
            }
            if count > MOST_ELEMENTS
                || ids.len() != parts
                || ids.iter().any(|&id| self.build.type_of(id) != ty)
            {
                return Ok(None);
            }
            let place = &mut course.held[buffer.0 as usize];
            if !matches!(place, Held::Written(known, values) if *known == ty && values.len() == count * parts)
            {
                *place = Held::Written(ty, vec![None; count * parts]);
            }
            if let Held::Written(_, values) = place {
                for (part, id) in ids.into_iter().enumerate() {
                    match values.get_mut(element * parts + part) {
                        Some(value) => *value = Some(id),
                        None => return Err(internal_error!("element {element} of a buffer of {count}")),
                    }
                }
            }
        }
        Ok(Some(()))
    }

    /// The accumulators of a launch at an index of its parallel loops, term by term, and what its main stage writes.
    fn folded_one_by_one(
        &mut self,
        (launch, arrays): (&Launch, &[Option<Array>]),
        reduced: &[usize],
        outer: &[i64],
        writes: &mut Vec<Write>,
    ) -> Result<Option<Vec<Id>>> {
        let kernel = &launch.kernel;
        let mut terms: Vec<Vec<Id>> = vec![Vec::new(); kernel.accumulators.len()];
        for index in launch.indices(reduced, outer) {
            let point = Point { launch, arrays, index: &index, folded: &[] };
            let Some(ids) = self.body(&point, Stage::Main)? else { return Ok(None) };
            for (terms, accumulator) in terms.iter_mut().zip(&kernel.accumulators) {
                terms.push(ids[accumulator.arg.0 as usize]);
            }
            if note(launch, Stage::Main, &index, &ids, writes).is_none() {
                return Ok(None);
            }
        }
        let mut folded = Vec::with_capacity(terms.len());
        for (accumulator, terms) in kernel.accumulators.iter().zip(&terms) {
            match self.fold(accumulator, terms)? {
                Some(value) => folded.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(folded))
    }

    /// The values of a body's instructions at an index.
    fn body(&mut self, point: &Point<'_>, stage: Stage) -> Result<Option<Vec<Id>>> {
        let Point { launch, index, folded, .. } = *point;
        let body = launch.kernel.body_of(stage);
        let mut ids: Vec<Id> = Vec::with_capacity(body.instructions().len());
        for instruction in body.instructions() {
            if self.build.written() > MOST_CODE {
                return Ok(None);
            }
            let args: SmallVec<[Id; 3]> = instruction.args.iter().map(|reg| ids[reg.0 as usize]).collect();
            let id = match instruction.op {
                ScalarOp::Input { operand, part } => {
                    let load = operand as usize;
                    match load.checked_sub(launch.kernel.loads.len()) {
                        Some(accumulator) => folded.get(accumulator).copied(),
                        None => self.load(point, load, usize::from(part), instruction.ty, &args)?,
                    }
                }
                ScalarOp::Index { axis } => {
                    Some(self.build.constant(instruction.ty, index[axis as usize] as u64))
                }
                ScalarOp::Param { index } => {
                    Some(self.build.constant(instruction.ty, launch.params[index as usize]))
                }
                op => Some(self.build.compute(op, instruction.ty, &args)?),
            };
            match id {
                Some(id) if self.build.type_of(id) == instruction.ty => ids.push(id),
                _ => return Ok(None),
            }
        }
        Ok(Some(ids))
    }

    /// A part of what a load reads at an index, beyond it by the jumps that `args` say.
    fn load(
        &mut self,
        point: &Point<'_>,
        number: usize,
        part: usize,
        ty: ScalarType,
        args: &[Id],
    ) -> Result<Option<Id>> {
        let Point { launch, arrays, index, .. } = *point;
        let (load, view, jumps) =
            (&launch.kernel.loads[number], &launch.loads[number], &launch.jumps[number]);
        let dtype = launch.kernel.operands[load.operand as usize].dtype;
        let Some((_, parts)) = parts(dtype) else { return Ok(None) };
        let Some(mut element) = view.element(index) else {
            let bits = load.fill.map_or(0, |fill| fill.bits());
            return Ok(Some(self.build.constant(ty, (bits >> (8 * ty.size() * part)) as u64)));
        };
        let Some(array) = &arrays[load.operand as usize] else { return Ok(None) };
        let mut moving: SmallVec<[(Id, i64, i64); 2]> = SmallVec::new();
        for (jump, &arg) in jumps.iter().zip(args) {
            let known = self.build.known(arg).map(|bits| match self.build.type_of(arg) {
                ScalarType::I32 => i64::from(bits as u32 as i32),
                _ => bits as i64,
            });
            match known {
                Some(known) => element += jump.offset(known),
                None => moving.push((arg, jump.stride, jump.last)),
            }
        }
        let Ok(element) = usize::try_from(element) else { return Ok(None) };
        if moving.is_empty() {
            return Ok(self.read(array, dtype, element, part));
        }
        if let (Array::Values(_), &[(arg, stride, last)]) = (array, &*moving)
            && last < MOST_COMPARED as i64
        {
            let arg = self.build.compute(ScalarOp::Convert, ScalarType::I64, &[arg])?;
            let Some(mut chosen) = self.read(array, dtype, element, part) else { return Ok(None) };
            for place in 1..=last {
                let at = element as i64 + stride * place;
                let other = usize::try_from(at).ok().and_then(|at| self.read(array, dtype, at, part));
                let Some(other) = other else { return Ok(None) };
                let from = self.build.int(place);
                let beyond = self.build.compute(ScalarOp::Le, ScalarType::Bool, &[from, arg])?;
                chosen = self.build.compute(ScalarOp::Select, ty, &[beyond, other, chosen])?;
            }
            return Ok(Some(chosen));
        }
        let mut memory = match self.rooms.get(&load.operand) {
            Some(room) => room.clone(),
            None => {
                let count = match array {
                    Array::Values(values) => values.len() / parts,
                    Array::Memory { .. } => 0,
                };
                let Some(memory) = self.in_memory(array, dtype, count) else { return Ok(None) };
                self.rooms.insert(load.operand, memory.clone());
                memory
            }
        };
        for (arg, stride, last) in moving {
            let arg = self.build.compute(ScalarOp::Convert, ScalarType::I64, &[arg])?;
            let (least, most) = (self.build.int(0), self.build.int(last));
            let arg = self.build.compute(ScalarOp::Max, ScalarType::I64, &[arg, least])?;
            let arg = self.build.compute(ScalarOp::Min, ScalarType::I64, &[arg, most])?;
            let step = stride.checked_mul(dtype.size() as i64);
            let Some(step) = step.and_then(|step| usize::try_from(step).ok()) else { return Ok(None) };
            let Some(moved) = self.element(&memory, arg, step)? else { return Ok(None) };
            memory = moved;
        }
        Ok(self.read(&memory, dtype, element, part))
    }
}

/// What a store writes.
struct Write {
    operand: usize,
    element: usize,
    parts: SmallVec<[Id; 2]>,
}

/// An index of a launch, with what its operands are there.
#[derive(Clone, Copy)]
struct Point<'a> {
    launch: &'a Launch,
    arrays: &'a [Option<Array>],
    index: &'a [i64],
    folded: &'a [Id],
}

/// Whether what a step of a plan writes may lie where an operand of it is.
fn in_place(body: &Plan, operand: &Argument, result: &Argument) -> bool {
    let place = |argument: &Argument| body.buffers[argument.buffer.0 as usize].place;
    operand.buffer == result.buffer
        || match (place(operand), place(result)) {
            (Place::Input(input), Place::Fresh(fresh)) => body.donations.contains(&(input, fresh)),
            _ => false,
        }
}

/// Notes what the stores of a stage write at an index.
fn note(launch: &Launch, stage: Stage, index: &[i64], ids: &[Id], writes: &mut Vec<Write>) -> Option<()> {
    let stores = launch.kernel.stores.iter().zip(&launch.stores);
    for (store, view) in stores.filter(|(store, _)| store.stage == stage) {
        let element = usize::try_from(view.element(index)?).ok()?;
        let parts = crate::kernel::registers(store.value).iter().map(|reg| ids[reg.0 as usize]).collect();
        writes.push(Write { operand: store.operand as usize, element, parts });
    }
    Some(())
}
