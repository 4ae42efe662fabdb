//! Branches and loops: bodies are executables of their own, whose commands are recorded one after the other.
//!
//! A scan needs nothing of the host: it is its body's commands, as often as it has steps, between those that take
//! a row out of each array and put one into each result; the number of the step is in memory of the GPU. Whether a `while`
//! goes on, and which branch of a `cond` is taken, is read by the host, which waits for it: once for each step.

use std::sync::Arc;

use ferrax_compile::Argument;
use ferrax_compile::backend::Nested;
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::ops::{Cond, Scan, While};
use ferrax_ir::{Program, Result, internal_error, unsupported};

use crate::backend::{Executable, Library};
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::wgsl::WORKGROUP;
use crate::wgsl::rows::Way;

#[derive(Debug)]
pub struct Branches(Vec<Arc<Executable>>);

#[derive(Debug)]
pub struct WhileLoop {
    condition: Arc<Executable>,
    body: Arc<Executable>,
    condition_constants: usize,
    body_constants: usize,
    max_steps: Option<usize>,
    program: Arc<Program>,
}

#[derive(Debug)]
pub struct ScanLoop {
    body: Arc<Executable>,
    length: usize,
    first: u32,
    constants: usize,
    carries: usize,
    next: Prepared,
    /// For each array that is gone through the bytes of a row, and what takes one out.
    arrays: Vec<(usize, Prepared)>,
    /// For each result that rows make up its bytes, and what puts one into it.
    stacks: Vec<(usize, Prepared)>,
}

impl Branches {
    pub fn new(op: &Cond, nested: &mut Nested<'_, Gpu>) -> Result<Branches> {
        Ok(Branches(op.branches.iter().map(|program| nested.executable(program)).collect::<Result<_>>()?))
    }
}

impl Library for Branches {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let mut bytes = [0; 4];
        gpu.download(&inputs[0], &mut bytes)?;
        let index = usize::try_from(i32::from_le_bytes(bytes)).unwrap_or(0);
        let last = self.0.len().checked_sub(1).ok_or_else(|| internal_error!("a cond without branches"))?;
        gpu.record(&self.0[index.min(last)], inputs[1..].to_vec())
    }
}

impl WhileLoop {
    pub fn new(op: &While, nested: &mut Nested<'_, Gpu>) -> Result<WhileLoop> {
        Ok(WhileLoop {
            condition: nested.executable(&op.cond_jaxpr)?,
            body: nested.executable(&op.body_jaxpr)?,
            condition_constants: op.cond_nconsts,
            body_constants: op.body_nconsts,
            max_steps: op.max_steps,
            program: op.body_jaxpr.clone(),
        })
    }
}

impl Library for WhileLoop {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let (of_condition, rest) = inputs.split_at(self.condition_constants);
        let (of_body, carry) = rest.split_at(self.body_constants);
        let mut carry = carry.to_vec();
        for steps in 0.. {
            let arguments: Vec<Memory> = of_condition.iter().chain(&carry).cloned().collect();
            let holds = gpu.record(&self.condition, arguments)?;
            let mut byte = [0];
            gpu.download(&holds[0], &mut byte)?;
            if byte == [0] {
                break;
            }
            within_bound(&self.program, steps, self.max_steps)?;
            let arguments: Vec<Memory> = of_body.iter().cloned().chain(carry).collect();
            carry = gpu.record(&self.body, arguments)?;
        }
        Ok(carry)
    }
}

impl ScanLoop {
    pub fn new(
        gpu: &Gpu,
        op: &Scan,
        (inputs, outputs): (&[Argument], &[Argument]),
        nested: &mut Nested<'_, Gpu>,
    ) -> Result<ScanLoop> {
        let length = op.length.as_const();
        let length = length.ok_or_else(|| internal_error!("a scan of symbolic length {}", op.length))?;
        let row = |way: Way, argument: &Argument| -> Result<(usize, Prepared)> {
            let (all, bytes) = (argument.bytes(), argument.bytes() / length.max(1));
            if u32::try_from(all).is_err() {
                return Err(unsupported!(
                    "a scan over an array of {all} bytes on {}: at most 2^32",
                    gpu.name()
                ));
            }
            // A row that does not begin at a word reaches into one more.
            let words =
                if bytes == 0 { 0 } else { bytes.div_ceil(4) as u32 + u32::from(way == Way::IntoArray) };
            let prepared =
                gpu.prepared(Source::Row(way), &[words, bytes as u32, 0], words.div_ceil(WORKGROUP))?;
            Ok((if way == Way::IntoArray { all } else { bytes }, prepared))
        };
        let rows = |way: Way, arguments: &[Argument]| {
            arguments.iter().map(|argument| row(way, argument)).collect::<Result<Vec<_>>>()
        };
        let (first, step) = if op.reverse { (length.saturating_sub(1) as u32, u32::MAX) } else { (0, 1) };
        Ok(ScanLoop {
            body: nested.executable(&op.jaxpr)?,
            length,
            first,
            constants: op.num_consts,
            carries: op.num_carry,
            next: gpu.prepared(Source::Row(Way::Next), &[1, 0, step], 1)?,
            arrays: rows(Way::OutOfArray, &inputs[op.num_consts + op.num_carry..])?,
            stacks: rows(Way::IntoArray, &outputs[op.num_carry..])?,
        })
    }
}

impl Library for ScanLoop {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let (constants, rest) = inputs.split_at(self.constants);
        let (carry, arrays) = rest.split_at(self.carries);
        let mut carry = carry.to_vec();
        let stacks = self.stacks.iter().map(|(bytes, _)| gpu.allocate(*bytes)).collect::<Result<Vec<_>>>()?;
        let counter = gpu.upload(&self.first.to_le_bytes())?;
        for _ in 0..self.length {
            let mut arguments: Vec<Memory> = constants.iter().cloned().chain(carry).collect();
            for (array, (bytes, take)) in arrays.iter().zip(&self.arrays) {
                let row = gpu.allocate(*bytes)?;
                gpu.launch(take, [&counter, array, &row])?;
                arguments.push(row);
            }
            carry = gpu.record(&self.body, arguments)?;
            for ((stack, (_, put)), row) in stacks.iter().zip(&self.stacks).zip(carry.split_off(self.carries))
            {
                gpu.launch(put, [&counter, stack, &row])?;
            }
            gpu.launch(&self.next, [&counter])?;
        }
        carry.extend(stacks);
        Ok(carry)
    }
}
