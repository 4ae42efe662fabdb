//! Loops and branches of native programs.
//!
//! A carry of few elements is variables. One that may be computed in lanes is in memory, and copied there where a step leaves
//! it elsewhere. One of more elements, whose elements are updated at computed places, or that has many, is in memory, where it
//! is changed in place: only where the plan of the body lets it.

use ferrax_ir::ops::{Cond, Scan, While};
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Op, Program, Result};

use super::arrays::{Array, MOST_COMPARED, MOST_ELEMENTS, MOST_LANES, element, parts, same_memory};
use super::lower::Lowering;
use super::{Address, Code, GROUP, Id};
use crate::compile::plan;
use crate::plan::{Argument, BufferId, Place, Plan, Step};

/// The carries of a loop.
pub(super) struct Carried {
    pub arrays: Vec<Array>,
    /// Those that are variables, those in memory that is changed in place, and those in memory that is written anew.
    moving: Vec<usize>,
    fixed: Vec<usize>,
    anew: Vec<usize>,
}

impl Carried {
    /// Where a body's outputs should be.
    fn wanted(&self, body: &Plan) -> Vec<(BufferId, Array)> {
        self.anew.iter().map(|&number| (body.outputs[number].buffer, self.arrays[number].clone())).collect()
    }
}

/// Whether a step updates an input of a plan at computed places.
fn is_updated(body: &Plan, input: usize) -> bool {
    body.steps.iter().any(|step| match step {
        Step::Library { op: Op::DynamicUpdateSlice(_) | Op::Scatter(_), inputs, .. } => {
            body.buffers[inputs[0].buffer.0 as usize].place == Place::Input(input)
        }
        _ => false,
    })
}

impl Lowering<'_> {
    /// The carries of a scan after its last step; stacked results go to `stacks`. `own` says of a carry whether its memory
    /// may be written.
    pub fn scan(
        &mut self,
        op: &Scan,
        length: usize,
        inputs: &[Array],
        stacks: &[Array],
        own: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Vec<Array>>> {
        let body = plan(&op.jaxpr, self.target)?;
        let (constants, rest) = inputs.split_at(op.num_consts);
        let (carry, arrays) = rest.split_at(op.num_carry);
        let Some(carried) = self.carried(&body, op.num_consts, carry, own)? else { return Ok(None) };
        let start = if op.reverse { length as i64 - 1 } else { 0 };
        let (start, count) = (self.build.int(start), self.build.int(length as i64));
        let (index, count) = (self.build.variable(start), self.build.variable(count));
        self.build.begin_loop();
        let mut of_step = constants.to_vec();
        of_step.extend(carried.arrays.iter().cloned());
        for (array, (dtype, sizes)) in arrays.iter().zip(&body.inputs[op.num_consts + op.num_carry..]) {
            let Some(element) = self.element(array, index, element_count(sizes) * dtype.size())? else {
                return Ok(None);
            };
            of_step.push(element);
        }
        let Some(results) = self.run(&body, &of_step, &carried.wanted(&body))? else { return Ok(None) };
        for ((result, stack), output) in
            results[op.num_carry..].iter().zip(stacks).zip(&body.outputs[op.num_carry..])
        {
            let count = element_count(&output.sizes);
            let Some(element) = self.element(stack, index, output.bytes())? else { return Ok(None) };
            if self.copy(result, &element, output.dtype, count)?.is_none() {
                return Ok(None);
            }
        }
        let by = self.build.int(if op.reverse { -1 } else { 1 });
        let next = self.build.compute(ScalarOp::Add, ScalarType::I64, &[index, by])?;
        if self.hand_on(&carried, &body, &results, Some((index, next)))?.is_none() {
            return Ok(None);
        }
        self.build.end_loop(Code::Again { count })?;
        self.settle(&carried);
        Ok(Some(carried.arrays))
    }

    /// The carries of a while after its last step.
    pub fn while_loop(
        &mut self,
        op: &While,
        inputs: &[Array],
        own: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Vec<Array>>> {
        let (condition, body) = (plan(&op.cond_jaxpr, self.target)?, plan(&op.body_jaxpr, self.target)?);
        let (of_condition, rest) = inputs.split_at(op.cond_nconsts);
        let (of_body, carry) = rest.split_at(op.body_nconsts);
        let Some(carried) = self.carried(&body, op.body_nconsts, carry, own)? else { return Ok(None) };
        self.build.begin_loop();
        let with_carries = |constants: &[Array]| -> Vec<Array> {
            constants.iter().chain(&carried.arrays).cloned().collect()
        };
        let Some(holds) = self.run(&condition, &with_carries(of_condition), &[])? else { return Ok(None) };
        let holds = holds.first().and_then(|array| self.read(array, DType::Bool, 0, 0));
        let Some(unless) = holds else { return Ok(None) };
        self.build.code(Code::Leave { unless });
        let wanted = carried.wanted(&body);
        let Some(results) = self.run(&body, &with_carries(of_body), &wanted)? else { return Ok(None) };
        if self.hand_on(&carried, &body, &results, None)?.is_none() {
            return Ok(None);
        }
        self.build.end_loop(Code::Forever)?;
        self.settle(&carried);
        Ok(Some(carried.arrays))
    }

    /// Variables and memory for the carries of a loop that is about to begin.
    fn carried(
        &mut self,
        body: &Plan,
        constants: usize,
        carry: &[Array],
        own: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Carried>> {
        let mut carried = Carried {
            arrays: Vec::with_capacity(carry.len()),
            moving: Vec::new(),
            fixed: Vec::new(),
            anew: Vec::new(),
        };
        for (number, array) in carry.iter().enumerate() {
            let output = &body.outputs[number];
            if body.buffers[output.buffer.0 as usize].place == Place::Input(constants + number) {
                carried.arrays.push(array.clone());
                continue;
            }
            let count = element_count(&output.sizes);
            let updated = is_updated(body, constants + number);
            let lanes = count >= self.target.lanes && element(output.dtype).is_some();
            if lanes && (!updated || count <= MOST_LANES) {
                let memory = match array {
                    Array::Memory { at, constant: false }
                        if own(number) && (self.is_own(at) || count.is_multiple_of(GROUP)) =>
                    {
                        array.clone()
                    }
                    array => {
                        let Some(room) = self.room(count * output.dtype.size()) else { return Ok(None) };
                        if self.copy(array, &room, output.dtype, count)?.is_none() {
                            return Ok(None);
                        }
                        room
                    }
                };
                carried.arrays.push(memory);
                carried.anew.push(number);
                continue;
            }
            let many = count > MOST_ELEMENTS;
            if many || (count > MOST_COMPARED && updated) {
                let memory = match array {
                    Array::Memory { constant: false, .. } if own(number) => Some(array.clone()),
                    Array::Memory { .. } if many => None,
                    array => {
                        let values = self.values(array, output.dtype, count);
                        values.and_then(|values| self.in_memory(&Array::Values(values), output.dtype, count))
                    }
                };
                let Some(memory) = memory else { return Ok(None) };
                carried.arrays.push(memory);
                carried.fixed.push(number);
                continue;
            }
            let Some(values) = self.values(array, output.dtype, count) else { return Ok(None) };
            let variables = values.into_iter().map(|value| self.build.variable(value)).collect();
            carried.arrays.push(Array::Values(variables));
            carried.moving.push(number);
        }
        Ok(Some(carried))
    }

    /// Assigns carries the values of the next step, and with them an index.
    fn hand_on(
        &mut self,
        carried: &Carried,
        body: &Plan,
        results: &[Array],
        index: Option<(Id, Id)>,
    ) -> Result<Option<()>> {
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for &number in &carried.fixed {
            if !same_memory(&results[number], &carried.arrays[number]) {
                return Ok(None);
            }
        }
        for &number in &carried.moving {
            let output = &body.outputs[number];
            let count = element_count(&output.sizes);
            let Some(values) = self.values(&results[number], output.dtype, count) else { return Ok(None) };
            let Array::Values(variables) = &carried.arrays[number] else { return Ok(None) };
            let same_types = |(&a, &b): (&Id, &Id)| self.build.type_of(a) == self.build.type_of(b);
            if values.len() != variables.len() || !values.iter().zip(variables).all(same_types) {
                return Ok(None);
            }
            to.extend_from_slice(variables);
            from.extend(values);
        }
        if let Some((index, next)) = index {
            to.push(index);
            from.push(next);
        }
        if self.write_anew(carried, body, results)?.is_none() {
            return Ok(None);
        }
        self.build.set_all(&to, &from);
        Ok(Some(()))
    }

    /// Copies carries that are not where they should be: what is where another one will be, out of the way first.
    fn write_anew(&mut self, carried: &Carried, body: &Plan, results: &[Array]) -> Result<Option<()>> {
        let late = |&&number: &&usize| !same_memory(&results[number], &carried.arrays[number]);
        let mut copies: Vec<(usize, Array)> = Vec::new();
        for &number in carried.anew.iter().filter(late) {
            let (result, output) = (&results[number], &body.outputs[number]);
            let taken = carried.anew.iter().any(|&other| same_memory(result, &carried.arrays[other]));
            if !taken {
                copies.push((number, result.clone()));
                continue;
            }
            let count = element_count(&output.sizes);
            let Some(room) = self.room(count * output.dtype.size()) else { return Ok(None) };
            if self.copy(result, &room, output.dtype, count)?.is_none() {
                return Ok(None);
            }
            copies.push((number, room));
        }
        for (number, array) in copies {
            let output = &body.outputs[number];
            let count = element_count(&output.sizes);
            if self.copy(&array, &carried.arrays[number], output.dtype, count)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn settle(&mut self, carried: &Carried) {
        for &number in &carried.moving {
            if let Array::Values(variables) = &carried.arrays[number] {
                variables.iter().for_each(|&variable| self.build.settled(variable));
            }
        }
    }

    /// The element of an array with a computed number, of so many bytes.
    pub fn element(&mut self, array: &Array, index: Id, bytes: usize) -> Result<Option<Array>> {
        let Array::Memory { at, constant } = array else { return Ok(None) };
        let step = self.build.int(bytes as i64);
        let mut distance = self.build.compute(ScalarOp::Mul, ScalarType::I64, &[index, step])?;
        if let Some(more) = at.bytes {
            distance = self.build.compute(ScalarOp::Add, ScalarType::I64, &[distance, more])?;
        }
        Ok(Some(Array::Memory { at: Address { bytes: Some(distance), ..*at }, constant: *constant }))
    }

    /// A loop within a loop: what it goes through and stacks is in memory.
    pub fn inner_scan(
        &mut self,
        op: &Scan,
        inputs: &[Argument],
        arrays: &[Array],
        own: &dyn Fn(usize) -> bool,
    ) -> Result<Option<Vec<Array>>> {
        let Some(length) = op.length.as_const().filter(|&length| length > 0) else { return Ok(None) };
        let mut operands = Vec::with_capacity(arrays.len());
        for (number, (array, argument)) in arrays.iter().zip(inputs).enumerate() {
            let operand = if number < op.num_consts + op.num_carry {
                Some(array.clone())
            } else {
                self.in_memory(array, argument.dtype, element_count(&argument.sizes))
            };
            let Some(operand) = operand else { return Ok(None) };
            operands.push(operand);
        }
        let bytes = op.jaxpr.outputs[op.num_carry..].iter().map(|atom| {
            let ty = op.jaxpr.type_of(atom);
            let array = ty.as_array()?;
            array.sizes().map(|sizes| element_count(&sizes) * array.dtype.size())
        });
        let Some(bytes) = bytes.collect::<Option<Vec<usize>>>() else { return Ok(None) };
        let mut stacks = Vec::with_capacity(bytes.len());
        for bytes in bytes {
            let room = bytes.checked_mul(length).and_then(|bytes| self.room(bytes));
            let Some(room) = room else { return Ok(None) };
            stacks.push(room);
        }
        let Some(mut results) = self.scan(op, length, &operands, &stacks, own)? else { return Ok(None) };
        results.extend(stacks);
        Ok(Some(results))
    }

    /// A branch: `shared` says of an operand and a result whether the plan lets them be in the same memory.
    pub fn cond(
        &mut self,
        op: &Cond,
        outputs: &[Argument],
        operands: &[Array],
        shared: &dyn Fn(usize, usize) -> bool,
    ) -> Result<Option<Vec<Array>>> {
        let Some(index) = operands.first().and_then(|array| self.read(array, DType::I32, 0, 0)) else {
            return Ok(None);
        };
        let mut results: Vec<Array> = Vec::with_capacity(outputs.len());
        for (number, output) in outputs.iter().enumerate() {
            let Some((ty, parts)) = parts(output.dtype) else { return Ok(None) };
            let count = element_count(&output.sizes);
            let memory = (1..operands.len())
                .find(|&operand| shared(operand, number))
                .map(|operand| &operands[operand])
                .filter(|array| matches!(array, Array::Memory { constant: false, .. }));
            results.push(match memory {
                Some(memory) => memory.clone(),
                None if count >= self.target.lanes && element(output.dtype).is_some() => {
                    match self.room(count * output.dtype.size()) {
                        Some(room) => room,
                        None => return Ok(None),
                    }
                }
                None if count > MOST_ELEMENTS => return Ok(None),
                None => Array::Values((0..count * parts).map(|_| self.build.undefined(ty)).collect()),
            });
        }
        if self.branches(op, 0, index, outputs, &operands[1..], &results)?.is_none() {
            return Ok(None);
        }
        for result in &results {
            if let Array::Values(variables) = result {
                variables.iter().for_each(|&variable| self.build.settled(variable));
            }
        }
        Ok(Some(results))
    }

    /// One of the branches from `number` on, the last one without a question.
    fn branches(
        &mut self,
        op: &Cond,
        number: usize,
        index: Id,
        outputs: &[Argument],
        operands: &[Array],
        results: &[Array],
    ) -> Result<Option<()>> {
        let Some(branch) = op.branches.get(number) else { return Ok(None) };
        if number + 1 == op.branches.len() {
            return self.branch(branch, outputs, operands, results);
        }
        let most = self.build.constant(ScalarType::I32, number as u64);
        let holds = self.build.compute(ScalarOp::Le, ScalarType::Bool, &[index, most])?;
        self.build.begin_if();
        if self.branch(branch, outputs, operands, results)?.is_none() {
            return Ok(None);
        }
        self.build.end_list(Code::If { holds })?;
        self.build.begin_if();
        if self.branches(op, number + 1, index, outputs, operands, results)?.is_none() {
            return Ok(None);
        }
        self.build.end_list(Code::Else)?;
        self.build.code(Code::End);
        Ok(Some(()))
    }

    fn branch(
        &mut self,
        program: &Program,
        outputs: &[Argument],
        operands: &[Array],
        results: &[Array],
    ) -> Result<Option<()>> {
        let body = plan(program, self.target)?;
        let Some(values) = self.run(&body, operands, &[])? else { return Ok(None) };
        for ((array, output), result) in values.iter().zip(outputs).zip(results) {
            match result {
                Array::Memory { .. } if same_memory(array, result) => {}
                Array::Memory { .. } if !operands.iter().any(|operand| same_memory(operand, result)) => {
                    let count = element_count(&output.sizes);
                    if self.copy(array, result, output.dtype, count)?.is_none() {
                        return Ok(None);
                    }
                }
                Array::Memory { .. } => return Ok(None),
                Array::Values(variables) => {
                    let count = element_count(&output.sizes);
                    let Some(values) = self.values(array, output.dtype, count) else { return Ok(None) };
                    for (&to, &from) in variables.iter().zip(&values) {
                        self.build.set(to, from);
                    }
                }
            }
        }
        Ok(Some(()))
    }
}
