//! Runs with products of matrices (`ferrax_compile::launches::blocks`), block of rows by block of rows.
//!
//! In: a run of a plan. Out: launches of its steps for each block. What only the run needs has memory for one block,
//! which goes to the next. Blocks are commands like others, and large enough that each fills a GPU. Cost to prepare:
//! linear in the blocks times the steps.

use ferrax_compile::launches::blocks::{self, Blocks as Planned, Operand};
use ferrax_compile::{BufferId, Plan, Run, Step};
use ferrax_ir::{Op, Result};

use crate::cost;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::product;

#[derive(Debug)]
struct Block {
    rows: usize,
    steps: Vec<Prepared>,
}

/// A run made ready.
#[derive(Debug)]
pub struct Blocks {
    planned: Planned,
    blocks: Vec<Block>,
    /// See [`crate::cost`].
    pub cost: u64,
}

impl Blocks {
    /// By blocks whose own values take so many bytes. None for a run that is one block, or of which a step has no
    /// shader.
    pub fn new(gpu: &Gpu, plan: &Plan, run: &Run, bytes: usize) -> Result<Option<Blocks>> {
        let Some(planned) = blocks::blocks(plan, run, bytes) else { return Ok(None) };
        let steps = &plan.steps[run.steps.clone()];
        let cost = steps.iter().map(|step| match step {
            Step::Kernel { launch, .. } => cost::of_kernel(launch),
            Step::Library { op, inputs, outputs, .. } => cost::of_call(op, inputs, outputs),
        });
        let each = planned.parts.len() as u64 * cost::LAUNCH;
        let cost = cost.fold(0, |all: u64, cost| all.saturating_add(cost).saturating_add(each));
        let mut blocks = Vec::with_capacity(planned.parts.len());
        for part in &planned.parts {
            let rows = blocks::rows(part);
            let mut ready = Vec::with_capacity(steps.len());
            for (number, step) in steps.iter().enumerate() {
                let operands = &planned.operands[number];
                ready.push(match step {
                    Step::Kernel { launch, .. } => {
                        let bytes = operands.iter().map(|&operand| planned.bytes(plan, operand, rows));
                        let bytes: Vec<usize> = bytes.collect();
                        gpu.prepare(&planned.launch(number, launch, part), &bytes)?
                    }
                    Step::Library { op: Op::DotGeneral(op), inputs, outputs, .. } => {
                        let begin = [0, 1, 2].map(|operand| operands[operand].is_own());
                        match product::bind_part(gpu, op, (inputs, outputs), (part, begin))? {
                            Some(prepared) => prepared,
                            None => return Ok(None),
                        }
                    }
                    Step::Library { .. } => return Ok(None),
                });
            }
            blocks.push(Block { rows, steps: ready });
        }
        Ok(Some(Blocks { planned, blocks, cost }))
    }

    /// Records all blocks; `memory` is that of a buffer of the plan.
    pub fn record(&self, gpu: &Gpu, memory: impl FnMut(BufferId) -> Result<Memory>) -> Result<()> {
        let Planned { buffers, own: owned, operands, .. } = &self.planned;
        let shared = buffers.iter().copied().map(memory).collect::<Result<Vec<_>>>()?;
        for block in &self.blocks {
            let mut own: Vec<Option<Memory>> = vec![None; owned.len()];
            for (number, (prepared, operands)) in block.steps.iter().zip(operands).enumerate() {
                let memory = |operand: &Operand| match *operand {
                    Operand::Buffer(number) => Ok(shared[number].clone()),
                    Operand::Own(number) => match &own[number] {
                        Some(memory) => Ok(memory.clone()),
                        None => {
                            let memory = gpu.allocate(owned[number].row * block.rows)?;
                            Ok(own[number].insert(memory).clone())
                        }
                    },
                };
                let operands = operands.iter().map(memory).collect::<Result<Vec<_>>>()?;
                gpu.launch(prepared, &operands)?;
                for (memory, own) in own.iter_mut().zip(owned) {
                    if own.last == number {
                        *memory = None;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
