//! Branches and loops: bodies are executables of their own, whose commands are recorded one after the other.
//!
//! A scan needs nothing of the host: it is its body's commands, as often as it has steps, between those that take a
//! row out of each array and put one into each result; the number of the step is in memory of the GPU. So is a
//! `while` over a counter, as often as its limit says, which the host reads before it begins unless the program knows
//! it. Another `while` goes in chunks (`chunks`), or the host reads at each step whether it goes on. Of a `cond` all
//! branches run and the results of one are kept, if none costs more than a read by the host (`cost`), else the host
//! reads which it is.

use std::sync::Arc;

use ferrax_compile::Argument;
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::ops::{Cond, Scan, While};
use ferrax_ir::{DType, Program, Result, Scalar, Sizes, Tensor, internal_error, unsupported};
use ferrax_transform::Limit;

use crate::chunks::Chunks;
use crate::cost;
use crate::flags::Copies;
use crate::gpu::{Gpu, Prepared};
use crate::library::{Bodies, Body, Library};
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::wgsl::WORKGROUP;
use crate::wgsl::rows::Way;

#[derive(Debug)]
pub struct Branches {
    branches: Vec<Arc<dyn Body>>,
    /// What copies the results of each branch if it is the one, where all run, and what they cost.
    all: Option<(Vec<Copies>, u64)>,
}

#[derive(Debug)]
pub struct WhileLoop {
    condition: Arc<dyn Body>,
    body: Arc<dyn Body>,
    condition_constants: usize,
    body_constants: usize,
    max_steps: Option<usize>,
    program: Arc<Program>,
    steps: Steps,
}

/// How it is known how many steps a loop makes.
#[derive(Debug)]
enum Steps {
    Known(u64),
    /// From these operands, of a dtype: where a counter begins, and what it stays below.
    Counted(DType, [Bound; 2]),
    Chunks(Chunks),
    /// The host reads at each step whether there is one.
    Read,
}

/// A number that a loop over a counter depends on: an operand, or known.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Operand(usize),
    Known(i128),
}

#[derive(Debug)]
pub struct ScanLoop {
    body: Arc<dyn Body>,
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
    pub fn new(gpu: &Gpu, op: &Cond, outputs: &[Argument], bodies: &mut Bodies<'_>) -> Result<Branches> {
        let branches = op.branches.iter().map(bodies);
        let branches = branches.collect::<Result<Vec<_>>>()?;
        let last = branches.len().saturating_sub(1);
        let bytes: Vec<usize> = outputs.iter().map(Argument::bytes).collect();
        let copies = cost::of_copies(&bytes).saturating_mul(last as u64);
        let cost = cost::total(branches.iter().map(|branch| branch.in_vain()).chain([Some(copies)]));
        let most = gpu.tuning().vain.most;
        let all = match cost.filter(|&cost| cost <= most) {
            Some(cost) => {
                let copies = (0..branches.len()).map(|index| Copies::new(gpu, &bytes, (last, index)));
                Some((copies.collect::<Result<_>>()?, cost))
            }
            None => None,
        };
        Ok(Branches { branches, all })
    }

    /// The results of the branch that the index says, of those of all.
    fn choose(&self, gpu: &Gpu, index: &Memory, copies: &[Copies], inputs: &[Memory]) -> Result<Vec<Memory>> {
        let record = |branch: &Arc<dyn Body>| branch.record(gpu, inputs.to_vec());
        let all = self.branches.iter().map(record).collect::<Result<Vec<_>>>()?;
        let (first, others) = all.split_first().ok_or_else(|| internal_error!("a cond without branches"))?;
        let chosen = |(number, result): (usize, &Memory)| -> Result<Memory> {
            let same = others.iter().all(|results| results[number].is(result));
            // What an operand has, or another result, stays theirs.
            if same || !result.is_shared() { Ok(result.clone()) } else { gpu.copy(result) }
        };
        let results = first.iter().enumerate().map(chosen).collect::<Result<Vec<_>>>()?;
        for (copies, own) in copies.iter().skip(1).zip(others) {
            copies.record(gpu, index, own, &results)?;
        }
        Ok(results)
    }
}

impl Library for Branches {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        if let Some((copies, _)) = &self.all {
            return self.choose(gpu, &inputs[0], copies, &inputs[1..]);
        }
        let mut bytes = [0; 4];
        gpu.download(&inputs[0], &mut bytes)?;
        let index = usize::try_from(i32::from_le_bytes(bytes)).unwrap_or(0);
        let last = self.branches.len().checked_sub(1);
        let last = last.ok_or_else(|| internal_error!("a cond without branches"))?;
        self.branches[index.min(last)].record(gpu, inputs[1..].to_vec())
    }

    fn in_vain(&self, _: u64) -> Option<u64> {
        self.all.as_ref().map(|(_, cost)| *cost)
    }
}

impl WhileLoop {
    /// `known` is what an operand is, where the program says it.
    pub fn new(
        gpu: &Gpu,
        op: &While,
        inputs: &[Argument],
        known: &dyn Fn(&Argument) -> Option<Scalar>,
        bodies: &mut Bodies<'_>,
    ) -> Result<WhileLoop> {
        let (condition, body) = (bodies(&op.cond_jaxpr)?, bodies(&op.body_jaxpr)?);
        let first = op.cond_nconsts + op.body_nconsts;
        let steps = match counted(op, inputs, known)? {
            Some((_, [Bound::Known(begin), Bound::Known(end)])) => Steps::Known(difference(begin, end)),
            Some((dtype, bounds)) => Steps::Counted(dtype, bounds),
            None => {
                let bytes: Vec<usize> = inputs[first..].iter().map(Argument::bytes).collect();
                let chunks = Chunks::new(gpu, &bytes, [condition.in_vain(), body.in_vain()])?;
                chunks.map_or(Steps::Read, Steps::Chunks)
            }
        };
        Ok(WhileLoop {
            condition,
            body,
            condition_constants: op.cond_nconsts,
            body_constants: op.body_nconsts,
            max_steps: op.max_steps,
            program: op.body_jaxpr.clone(),
            steps,
        })
    }

    /// The carry after so many steps.
    fn times(
        &self,
        gpu: &Gpu,
        steps: u64,
        constants: &[Memory],
        mut carry: Vec<Memory>,
    ) -> Result<Vec<Memory>> {
        let most = self.max_steps.map_or(u64::MAX, |most| most as u64);
        for _ in 0..steps.min(most) {
            carry = self.body.record(gpu, constants.iter().cloned().chain(carry).collect())?;
        }
        if steps > most {
            within_bound(&self.program, most as usize, self.max_steps)?
        }
        Ok(carry)
    }
}

/// The dtype of the counter that a loop is over, where it begins and what it stays below, if there is one. `known` is
/// what an operand is, where the program says it.
fn counted(
    op: &While,
    inputs: &[Argument],
    known: &dyn Fn(&Argument) -> Option<Scalar>,
) -> Result<Option<(DType, [Bound; 2])>> {
    let Some((carry, limit)) = ferrax_transform::counter(op) else { return Ok(None) };
    let first = op.cond_nconsts + op.body_nconsts;
    let bound = |operand: usize| match known(&inputs[operand]).and_then(Scalar::to_i128) {
        Some(number) => Bound::Known(number),
        None => Bound::Operand(operand),
    };
    let limit = match limit {
        Limit::Literal(literal) => {
            let number = literal.value.to_i128();
            Bound::Known(number.ok_or_else(|| internal_error!("a limit that is no integer"))?)
        }
        Limit::Constant(position) => bound(position),
        Limit::Carry(position) => bound(first + position),
    };
    Ok(Some((inputs[first + carry].dtype, [bound(first + carry), limit])))
}

/// How many steps a loop makes, if the program says it.
pub fn known_steps(
    op: &While,
    inputs: &[Argument],
    known: &dyn Fn(&Argument) -> Option<Scalar>,
) -> Result<Option<u64>> {
    Ok(match counted(op, inputs, known)? {
        Some((_, [Bound::Known(begin), Bound::Known(end)])) => Some(difference(begin, end)),
        _ => None,
    })
}

/// The steps of a counter.
fn difference(begin: i128, end: i128) -> u64 {
    u64::try_from(end.saturating_sub(begin).max(0)).unwrap_or(u64::MAX)
}

/// The steps of a counter, of which the host reads what the program does not say.
fn count(gpu: &Gpu, dtype: DType, bounds: [Bound; 2], inputs: &[Memory]) -> Result<u64> {
    let mut tensors = [Tensor::zeros(dtype, Sizes::new())?, Tensor::zeros(dtype, Sizes::new())?];
    let mut parts = Vec::with_capacity(bounds.len());
    for (bound, tensor) in bounds.iter().zip(&mut tensors) {
        if let Bound::Operand(operand) = *bound {
            parts.push((&inputs[operand], tensor.bytes_mut()?));
        }
    }
    gpu.download_each(&mut parts)?;
    let number = |(bound, tensor): (Bound, &Tensor)| match bound {
        Bound::Known(number) => Ok(number),
        Bound::Operand(_) => tensor
            .to_scalar()
            .and_then(Scalar::to_i128)
            .ok_or_else(|| internal_error!("a counter of {dtype} is no integer")),
    };
    Ok(difference(number((bounds[0], &tensors[0]))?, number((bounds[1], &tensors[1]))?))
}

impl Library for WhileLoop {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let (of_condition, rest) = inputs.split_at(self.condition_constants);
        let (of_body, carry) = rest.split_at(self.body_constants);
        let mut carry = carry.to_vec();
        match &self.steps {
            Steps::Known(steps) => return self.times(gpu, *steps, of_body, carry),
            Steps::Counted(dtype, bounds) => {
                return self.times(gpu, count(gpu, *dtype, *bounds, inputs)?, of_body, carry);
            }
            Steps::Chunks(chunks) => {
                let step = |carry: &[Memory]| {
                    let arguments =
                        |constants: &[Memory]| constants.iter().chain(carry).cloned().collect::<Vec<_>>();
                    let holds = self.condition.record(gpu, arguments(of_condition))?.pop();
                    let holds = holds.ok_or_else(|| internal_error!("a condition without a result"))?;
                    Ok((holds, self.body.record(gpu, arguments(of_body))?))
                };
                let bound = |steps| within_bound(&self.program, steps, self.max_steps);
                return chunks.run(gpu, carry, &step, (self.max_steps, &bound));
            }
            Steps::Read => {}
        }
        for steps in 0.. {
            let arguments: Vec<Memory> = of_condition.iter().chain(&carry).cloned().collect();
            let holds = self.condition.record(gpu, arguments)?;
            let mut byte = [0];
            gpu.download(&holds[0], &mut byte)?;
            if byte == [0] {
                break;
            }
            within_bound(&self.program, steps, self.max_steps)?;
            let arguments: Vec<Memory> = of_body.iter().cloned().chain(carry).collect();
            carry = self.body.record(gpu, arguments)?;
        }
        Ok(carry)
    }

    fn in_vain(&self, _: u64) -> Option<u64> {
        match self.steps {
            Steps::Known(steps) => Some(self.body.in_vain()?.saturating_mul(steps)),
            _ => None,
        }
    }
}

impl ScanLoop {
    pub fn new(
        gpu: &Gpu,
        op: &Scan,
        (inputs, outputs): (&[Argument], &[Argument]),
        bodies: &mut Bodies<'_>,
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
            body: bodies(&op.jaxpr)?,
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
            carry = self.body.record(gpu, arguments)?;
            for ((stack, (_, put)), row) in stacks.iter().zip(&self.stacks).zip(carry.split_off(self.carries))
            {
                gpu.launch(put, [&counter, stack, &row])?;
            }
            gpu.launch(&self.next, [&counter])?;
        }
        carry.extend(stacks);
        Ok(carry)
    }

    fn in_vain(&self, _: u64) -> Option<u64> {
        let rows = (1 + self.arrays.len() + self.stacks.len()) as u64 * cost::LAUNCH;
        Some(self.body.in_vain()?.saturating_add(rows).saturating_mul(self.length as u64))
    }
}
