//! Runs with products of matrices (`ferrax_compile::rows`), block of rows by block of rows.
//!
//! In: the steps of a run, and of which of its buffers nobody else needs anything. Out: launches of the same
//! steps for each block, over a range of the first loops: views move by its offset, extents are cut, and indices count
//! from where it begins. What only the run needs has memory for one block, which goes to the next; so of attention
//! there is never more than [`OWN`] bytes of the matrix of all pairs. Blocks are commands like others, and as large as
//! that, so that each fills a GPU. A block is of neighbouring indices of one loop, whole in those after it, at one
//! index of those before. Cost to prepare: linear in the blocks times the steps.

use ferrax_compile::{BufferId, Launch, Place, Plan, Run, Stage, Step};
use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{Op, Result};

use crate::cost;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::product;

/// Bytes that the values of a block may take for which nobody else has a use.
const OWN: usize = 32 << 20;

/// Where an operand of a step is: among the buffers of the plan, or in memory of the block.
#[derive(Clone, Copy, Debug)]
enum Operand {
    Buffer(usize),
    Own(usize),
}

/// What has memory for a block: the bytes of a row, and the last step that uses it.
#[derive(Debug)]
struct Own {
    id: BufferId,
    row: usize,
    last: usize,
}

/// A range of the first loops: where it begins and how many indices it has in each.
pub type Part = Vec<(usize, usize)>;

#[derive(Debug)]
struct Block {
    rows: usize,
    steps: Vec<Prepared>,
}

/// A run made ready.
#[derive(Debug)]
pub struct Blocks {
    buffers: Vec<BufferId>,
    own: Vec<Own>,
    operands: Vec<Vec<Operand>>,
    blocks: Vec<Block>,
    /// See [`crate::cost`].
    pub cost: u64,
}

/// The blocks of a run over these loops, of at most so many rows.
fn parts(extents: &[usize], rows: usize) -> Vec<Part> {
    let inner =
        |cut: usize| extents[cut + 1..].iter().fold(1, |all: usize, &extent| all.saturating_mul(extent));
    let Some(cut) = (0..extents.len()).find(|&cut| inner(cut) <= rows) else { return Vec::new() };
    let (extent, most) = (extents[cut], (rows / inner(cut)).max(1));
    let length = extent.div_ceil(extent.div_ceil(most).max(1)).max(1);
    let mut parts = Vec::new();
    for outside in 0..extents[..cut].iter().product() {
        let mut rest: usize = outside;
        let mut before: Part = extents[..cut]
            .iter()
            .rev()
            .map(|&extent| {
                let index = rest % extent;
                rest /= extent;
                (index, 1)
            })
            .collect();
        before.reverse();
        for first in (0..extent).step_by(length) {
            let mut part = before.clone();
            part.push((first, length.min(extent - first)));
            part.extend(extents[cut + 1..].iter().map(|&extent| (0, extent)));
            parts.push(part);
        }
    }
    parts
}

/// The rows of a run whose own values take so many bytes.
fn rows_of(run: &Run, bytes: usize) -> usize {
    (bytes / run.own_bytes.max(1)).max(1)
}

impl Blocks {
    /// Whether a run has products, and several blocks.
    pub fn are_several(run: &Run) -> bool {
        run.calls && parts(&run.extents, rows_of(run, OWN)).len() > 1
    }

    /// None for a run that is one block, or of which a step has no shader.
    pub fn new(gpu: &Gpu, plan: &Plan, run: &Run) -> Result<Option<Blocks>> {
        Blocks::of_bytes(gpu, plan, run, OWN)
    }

    fn of_bytes(gpu: &Gpu, plan: &Plan, run: &Run, bytes: usize) -> Result<Option<Blocks>> {
        let parts = parts(&run.extents, rows_of(run, bytes));
        if !run.calls || parts.len() < 2 {
            return Ok(None);
        }
        let steps = &plan.steps[run.steps.clone()];
        let mut own: Vec<Own> = Vec::new();
        let mut buffers: Vec<BufferId> = Vec::new();
        let mut operands = Vec::with_capacity(steps.len());
        let mut place = |step: usize, id: BufferId| {
            let buffer = plan.buffers[id.0 as usize];
            if !matches!(buffer.place, Place::Rows(_)) {
                let known = buffers.iter().position(|&known| known == id);
                return Operand::Buffer(known.unwrap_or_else(|| {
                    buffers.push(id);
                    buffers.len() - 1
                }));
            }
            let known = own.iter().position(|own| own.id == id).unwrap_or_else(|| {
                own.push(Own { id, row: buffer.bytes / run.rows(), last: step });
                own.len() - 1
            });
            own[known].last = step;
            Operand::Own(known)
        };
        let mut cost = 0u64;
        for (number, step) in steps.iter().enumerate() {
            let (of_step, ids): (u64, Vec<BufferId>) = match step {
                Step::Kernel { launch, operands } => (cost::of_kernel(launch), operands.clone()),
                Step::Library { op, inputs, outputs } => (
                    cost::of_call(op, inputs, outputs),
                    inputs.iter().chain(outputs).map(|argument| argument.buffer).collect(),
                ),
            };
            cost = cost.saturating_add(of_step).saturating_add(parts.len() as u64 * cost::LAUNCH);
            operands.push(ids.into_iter().map(|id| place(number, id)).collect::<Vec<Operand>>());
        }
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            let rows = part.iter().map(|&(_, length)| length).product();
            let mut ready = Vec::with_capacity(steps.len());
            for (step, operands) in steps.iter().zip(&operands) {
                let is_own = |number: usize| matches!(operands[number], Operand::Own(_));
                ready.push(match step {
                    Step::Kernel { launch, .. } => {
                        let bytes = |operand: &Operand| match *operand {
                            Operand::Buffer(number) => plan.buffers[buffers[number].0 as usize].bytes,
                            Operand::Own(number) => own[number].row * rows,
                        };
                        let bytes: Vec<usize> = operands.iter().map(bytes).collect();
                        gpu.prepare(&restricted(launch, &part, is_own), &bytes)?
                    }
                    Step::Library { op: Op::DotGeneral(op), inputs, outputs } => {
                        let begin = [0, 1, 2].map(is_own);
                        match product::bind_part(gpu, op, (inputs, outputs), (&part, begin))? {
                            Some(prepared) => prepared,
                            None => return Ok(None),
                        }
                    }
                    Step::Library { .. } => return Ok(None),
                });
            }
            blocks.push(Block { rows, steps: ready });
        }
        Ok(Some(Blocks { buffers, own, operands, blocks, cost }))
    }

    /// Records all blocks; `memory` is that of a buffer of the plan.
    pub fn record(&self, gpu: &Gpu, memory: impl FnMut(BufferId) -> Result<Memory>) -> Result<()> {
        let shared = self.buffers.iter().copied().map(memory).collect::<Result<Vec<_>>>()?;
        for block in &self.blocks {
            let mut own: Vec<Option<Memory>> = vec![None; self.own.len()];
            for (number, (prepared, operands)) in block.steps.iter().zip(&self.operands).enumerate() {
                let memory = |operand: &Operand| match *operand {
                    Operand::Buffer(number) => Ok(shared[number].clone()),
                    Operand::Own(number) => match &own[number] {
                        Some(memory) => Ok(memory.clone()),
                        None => {
                            let memory = gpu.allocate(self.own[number].row * block.rows)?;
                            Ok(own[number].insert(memory).clone())
                        }
                    },
                };
                let operands = operands.iter().map(memory).collect::<Result<Vec<_>>>()?;
                gpu.launch(prepared, &operands)?;
                for (memory, own) in own.iter_mut().zip(&self.own) {
                    if own.last == number {
                        *memory = None;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A launch over a part of its first loops. Operands that are the block's own begin where the part does.
fn restricted(launch: &Launch, part: &[(usize, usize)], is_own: impl Fn(usize) -> bool) -> Launch {
    let mut out = launch.clone();
    for (axis, &(first, length)) in part.iter().enumerate() {
        out.extents[axis] = length;
        let first = first as i64;
        let loads = out.loads.iter_mut().zip(launch.kernel.loads.iter().map(|load| load.operand));
        let stores = out.stores.iter_mut().zip(launch.kernel.stores.iter().map(|store| store.operand));
        for (view, operand) in loads.chain(stores) {
            if !is_own(operand as usize) {
                view.offset += view.strides[axis] * first;
            }
            view.ranges[axis] = (view.ranges[axis].0 - first, view.ranges[axis].1 - first);
        }
    }
    // Of each loop whose index is computed with, a parameter says where it begins.
    let base = launch.kernel.params.len();
    let counts: Vec<usize> = (0..part.len())
        .filter(|&axis| {
            let bodies = [&launch.kernel.body, &launch.kernel.epilogue];
            let is_index = |op| matches!(op, ScalarOp::Index { axis: of } if of as usize == axis);
            bodies.iter().any(|body| body.instructions().iter().any(|instruction| is_index(instruction.op)))
        })
        .collect();
    for &axis in &counts {
        out.kernel.params.push(ScalarType::I64);
        out.params.push(part[axis].0 as u64);
    }
    let (body, main) = counted(&launch.kernel.body, &counts, base);
    let (epilogue, end) = counted(&launch.kernel.epilogue, &counts, base);
    (out.kernel.body, out.kernel.epilogue) = (body, epilogue);
    for accumulator in &mut out.kernel.accumulators {
        accumulator.arg = main[accumulator.arg.0 as usize];
    }
    for store in &mut out.kernel.stores {
        let map = match store.stage {
            Stage::Main => &main,
            Stage::Epilogue => &end,
        };
        let moved = |reg: Reg| map[reg.0 as usize];
        store.value = match store.value {
            Value::Real(reg) => Value::Real(moved(reg)),
            Value::Complex(re, im) => Value::Complex(moved(re), moved(im)),
        };
    }
    out
}

/// A body in which the indices of these loops begin at parameters, the first of which is `base`; and where its
/// registers are now.
fn counted(body: &Body, loops: &[usize], base: usize) -> (Body, Vec<Reg>) {
    let mut out = Body::default();
    let mut map: Vec<Reg> = Vec::with_capacity(body.instructions().len());
    for instruction in body.instructions() {
        let args: Vec<Reg> = instruction.args.iter().map(|reg| map[reg.0 as usize]).collect();
        let mut own = out.push(instruction.op, instruction.ty, &args);
        if let ScalarOp::Index { axis } = instruction.op
            && let Some(number) = loops.iter().position(|&counted| counted == axis as usize)
        {
            let index = (base + number) as u32;
            let begin = out.push(ScalarOp::Param { index }, ScalarType::I64, &[]);
            own = out.push(ScalarOp::Add, ScalarType::I64, &[own, begin]);
        }
        map.push(own);
    }
    (out, map)
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
