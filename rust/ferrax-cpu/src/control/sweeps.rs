//! `sweeps`: a loop whose steps are gone through again.
//!
//! What steps record lies in chunks that never move, since carries may point into
//! them; each holds twice the steps of the one before, up to a size. Chunks are
//! allocated as the first sweep gets to them and freed when the op is done. With
//! checkpoints nothing is recorded but the present step: see `treeverse`.
//!
//! Steps that have effects happen once, whatever checkpoints are asked for.

mod schedule;
mod treeverse;

use std::sync::Arc;

use ferrax_ir::ops::Sweeps;
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::paths::Path;
use ferrax_ir::rules::Row;
use ferrax_ir::{Program, Result};
use smallvec::SmallVec;

use super::ALIGNMENT;
use super::body::{Body, Inner, Loop};
use crate::alloc::Buffer;
use crate::call::{Call, Held, Kernel};
use crate::machine::Nested;
use crate::tuning::Loops;

#[derive(Debug)]
struct Sweep {
    body: Body,
    program: Arc<Program>,
    carries: usize,
    reverse: bool,
    /// Bytes of each of its records.
    records: Vec<usize>,
}

#[derive(Debug)]
struct SweepsKernel {
    condition: Inner,
    sweeps: Vec<Sweep>,
    constants: usize,
    max_steps: Option<usize>,
    /// For each carry of the first sweep that moves: the buffers of the body's and
    /// of the condition's input.
    moving: Vec<(u32, u32)>,
    again: Option<treeverse::Plan>,
    tuning: &'static Loops,
}

pub fn sweeps(op: &Sweeps, nested: &mut Nested<'_>) -> Result<Box<dyn Kernel>> {
    let condition = Inner::new(&op.cond_jaxpr, nested)?;
    let mut sweeps = Vec::with_capacity(op.bodies.len());
    for (sweep, program) in op.bodies.iter().enumerate() {
        let carries = op.num_carry[sweep];
        let body = Body::new(program, op.num_consts, carries, &|_| false, nested)?;
        let records = (carries..program.outputs.len()).map(|output| body.inner.bytes_of(output)).collect();
        sweeps.push(Sweep { body, program: program.clone(), carries, reverse: op.reverse[sweep], records });
    }
    let moving = sweeps.iter().take(1).flat_map(|sweep| {
        let buffers = |carry| (sweep.body.input(carry), condition.raw.inputs[op.num_consts + carry]);
        sweep.body.moving().map(buffers)
    });
    let moving = moving.collect();
    let (constants, max_steps, tuning) = (op.num_consts, op.max_steps, &nested.backend().tuning().loops);
    let mut kernel = SweepsKernel { condition, sweeps, constants, max_steps, moving, again: None, tuning };
    if let Some(checkpoints) = op.checkpoints.filter(|_| op.effects().is_empty()) {
        kernel.again = Some(treeverse::Plan::new(op, checkpoints, &kernel, nested)?);
    }
    if kernel.again.is_some() { Path::SweepsAgain } else { Path::Sweeps }.take();
    Ok(Box::new(kernel))
}

/// Room for the records of one sweep at consecutive steps.
struct Chunk {
    memory: Buffer,
    /// Where each record's elements begin.
    offsets: Vec<usize>,
}

impl Chunk {
    fn new(records: &[usize], steps: usize) -> Result<Chunk> {
        let mut bytes: usize = 0;
        let mut offsets = Vec::with_capacity(records.len());
        for record in records {
            offsets.push(bytes);
            let own = record.saturating_mul(steps).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
            bytes = bytes.saturating_add(own);
        }
        Ok(Chunk { memory: Buffer::new(bytes)?, offsets })
    }

    fn pointers(&self) -> impl Iterator<Item = *mut u8> {
        self.offsets.iter().map(|&offset| self.memory.pointer().wrapping_add(offset))
    }
}

/// Steps that share chunks, one of each sweep.
struct Part {
    steps: usize,
    chunks: Vec<Chunk>,
    /// Where the records of all sweeps so far begin.
    records: Vec<*const u8>,
    /// Where those of the present sweep begin.
    own: Vec<*mut u8>,
}

impl Part {
    /// Makes room for the records of the next sweep.
    fn extend(&mut self, sweep: &Sweep) -> Result<()> {
        self.records.extend(self.own.drain(..).map(<*mut u8>::cast_const));
        if !sweep.records.is_empty() {
            let chunk = Chunk::new(&sweep.records, self.steps)?;
            self.own.extend(chunk.pointers());
            self.chunks.push(chunk);
        }
        Ok(())
    }
}

impl SweepsKernel {
    /// Where the condition's workspace and its result are: behind the first body's.
    fn condition_at(&self) -> (usize, usize) {
        let workspace = self.sweeps.first().map_or(0, |sweep| sweep.body.workspace());
        (workspace, workspace + self.condition.raw.workspace())
    }

    /// How many steps the next chunk holds.
    fn next_part(&self, parts: &[Part]) -> usize {
        let bytes: usize = self.sweeps.iter().flat_map(|sweep| &sweep.records).sum();
        let last = parts.last().map_or(self.tuning.first_chunk / 2, |part| part.steps);
        let doubled = last.saturating_mul(2);
        if doubled.saturating_mul(bytes) <= self.tuning.large_chunk { doubled } else { last }
    }

    /// The first sweep: how many steps it makes, and their records.
    ///
    /// # Safety
    /// As [`Kernel::run`], with the carries and outputs of the first sweep.
    unsafe fn first(
        &self,
        sweep: &Sweep,
        constants: &[*const u8],
        carry: &[*const u8],
        outputs: &[*mut u8],
        scratch: *mut u8,
    ) -> Result<(usize, Vec<Part>)> {
        let (condition_at, result_at) = self.condition_at();
        let mut parts: Vec<Part> = Vec::new();
        let mut steps = 0;
        let mut left = 0;
        // SAFETY: the scratch memory has room for both workspaces and the result; operands have the types
        // of the programs' inputs and outputs, and outputs overlap nothing; the last part has room for the
        // steps that are left in it.
        unsafe {
            let mut condition = self.condition.begin(scratch.wrapping_add(condition_at));
            for (position, pointer) in constants.iter().chain(carry).enumerate() {
                *condition.input(position) = pointer.cast_mut();
            }
            if let Some(fresh) = self.condition.fresh_of(0) {
                *condition.fresh(fresh) = scratch.wrapping_add(result_at);
            }
            let mut body = Loop::begin(&sweep.body, constants, carry, outputs, scratch, false);
            loop {
                condition.run()?;
                if *condition.output(0) == 0 {
                    break;
                }
                within_bound(&sweep.program, steps, self.max_steps)?;
                if left == 0 {
                    left = self.next_part(&parts);
                    let mut part =
                        Part { steps: left, chunks: Vec::new(), records: Vec::new(), own: Vec::new() };
                    part.extend(sweep)?;
                    parts.push(part);
                }
                if let Some(part) = parts.last() {
                    body.step(outputs, part.steps - left, &[], &part.own)?;
                }
                left -= 1;
                steps += 1;
                for &(from, to) in &self.moving {
                    condition.pointers[to as usize] = body.session.pointers[from as usize];
                }
            }
            body.finish(outputs);
        }
        if let Some(part) = parts.last_mut() {
            part.steps -= left;
        }
        Ok((steps, parts))
    }
}

impl Kernel for SweepsKernel {
    fn scratch(&self) -> usize {
        if let Some(plan) = &self.again {
            return plan.scratch();
        }
        let bodies = self.sweeps.iter().map(|sweep| sweep.body.workspace());
        bodies.max().unwrap_or(0).max(self.condition_at().1 + ALIGNMENT)
    }

    fn bytes(&self) -> usize {
        self.condition.bytes() + self.sweeps.iter().map(|sweep| sweep.body.bytes()).sum::<usize>()
    }

    fn programs(&self) -> SmallVec<[&dyn Held; 2]> {
        self.sweeps.iter().map(|sweep| sweep.body.inner.held()).chain([self.condition.held()]).collect()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        if let Some(plan) = &self.again {
            // SAFETY: `call` is a call of this kernel, whose plan this is.
            return unsafe { treeverse::run(self, plan, call) };
        }
        let (constants, mut carries) = call.inputs.split_at(self.constants);
        let mut outputs = call.outputs;
        let (mut steps, mut parts) = (0, Vec::new());
        for (number, sweep) in self.sweeps.iter().enumerate() {
            let (carry, own_outputs);
            (carry, carries) = carries.split_at(sweep.carries);
            (own_outputs, outputs) = outputs.split_at(sweep.carries);
            if number == 0 {
                // SAFETY: the first carry and the first outputs are those of the first sweep; the scratch
                // memory has the bytes that `scratch` asked for, which are enough for its body and the
                // condition.
                (steps, parts) = unsafe { self.first(sweep, constants, carry, own_outputs, call.scratch)? };
                continue;
            }
            // SAFETY: the first sweep is over, so that the scratch memory is free for this sweep's body,
            // which `scratch` counted; the operands have the types of its program and its outputs overlap
            // nothing; each part has the records of its steps and, after `extend`, room for this sweep's.
            unsafe {
                let even = steps.is_multiple_of(2);
                let mut body = Loop::begin(&sweep.body, constants, carry, own_outputs, call.scratch, even);
                for number in 0..parts.len() {
                    let number = if sweep.reverse { parts.len() - 1 - number } else { number };
                    let part = &mut parts[number];
                    part.extend(sweep)?;
                    for at in 0..part.steps {
                        let at = if sweep.reverse { part.steps - 1 - at } else { at };
                        body.step(own_outputs, at, &part.records, &part.own)?;
                    }
                }
                body.finish(own_outputs);
            }
        }
        Ok(())
    }
}
