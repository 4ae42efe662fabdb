//! Runs of steps that go through their rows together (`ferrax_compile::rows`).
//!
//! Threads take blocks of rows; each goes through all steps of the run before the next block begins. Values
//! of the run alone are in memory for one block, which a thread uses again for the next.

use ferrax_compile::{BufferId, Place, Plan, Run, Step};
use ferrax_ir::{Result, internal_error};
use smallvec::SmallVec;

use crate::alloc::Buffer;
use crate::backend::TARGET;
use crate::kernels::{Call, Kernel};
use crate::pool;
use crate::vm::Bound;

/// Chunks of blocks for each thread.
const CHUNKS: usize = 4;

/// Where an operand of a kernel is.
#[derive(Clone, Copy, Debug)]
enum Operand {
    /// The buffer at this position of `Rows::buffers`.
    Buffer(usize),
    /// In the memory of a block: an offset for each of its rows, and the bytes of a row.
    Own { offset: usize, row: usize },
}

/// What a step of a run does.
#[derive(Debug)]
pub(crate) enum Work {
    Kernel(Box<Bound>),
    /// A library call with so many inputs.
    Call(Box<dyn Kernel>, usize),
}

#[derive(Debug)]
struct Rowwise {
    work: Work,
    operands: SmallVec<[Operand; 4]>,
}

/// A run made ready.
#[derive(Debug)]
pub(crate) struct Rows {
    /// The buffers of the plan that it works on.
    pub buffers: SmallVec<[u32; 4]>,
    kernels: Vec<Rowwise>,
    /// The extents of the loops before the one that is cut into blocks, and that one's.
    outer: SmallVec<[usize; 4]>,
    extent: usize,
    block: usize,
    own_bytes: usize,
}

struct Pointers<'a>(&'a [*mut u8]);

// SAFETY: the pointers are only read; behind them, blocks write rows of their own.
unsafe impl Sync for Pointers<'_> {}

impl Rows {
    /// `bind` makes a step ready.
    pub fn new(plan: &Plan, run: &Run, mut bind: impl FnMut(&Step) -> Result<Work>) -> Result<Rows> {
        let Some((&extent, outer)) = run.extents.split_last() else {
            return Err(internal_error!("a run without loops"));
        };
        let mut rows = Rows {
            buffers: SmallVec::new(),
            kernels: Vec::with_capacity(run.steps.len()),
            outer: outer.into(),
            extent,
            block: 1,
            own_bytes: run.own_bytes,
        };
        let fitting = run.block(&TARGET, extent);
        // Each thread has some blocks to take; those of products do not depend on threads.
        let outside: usize = outer.iter().product();
        let fewest = if run.calls { 1 } else { (CHUNKS * pool::threads()).div_ceil(outside) };
        rows.block = extent.div_ceil(extent.div_ceil(fitting).max(fewest)).max(1);
        for step in &plan.steps[run.steps.clone()] {
            let operands: SmallVec<[BufferId; 4]> = match step {
                Step::Kernel { operands, .. } => operands.iter().copied().collect(),
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().chain(outputs).map(|argument| argument.buffer).collect()
                }
            };
            let place = |rows: &mut Rows, id: u32| match plan.buffers[id as usize].place {
                Place::Rows(offset) => {
                    Operand::Own { offset, row: plan.buffers[id as usize].bytes / run.rows() }
                }
                _ => {
                    Operand::Buffer(rows.buffers.iter().position(|&known| known == id).unwrap_or_else(|| {
                        rows.buffers.push(id);
                        rows.buffers.len() - 1
                    }))
                }
            };
            let operands = operands.iter().map(|id| place(&mut rows, id.0)).collect();
            rows.kernels.push(Rowwise { work: bind(step)?, operands });
        }
        Ok(rows)
    }

    /// The number of kernels.
    pub fn steps(&self) -> usize {
        self.kernels.len()
    }

    /// Runs all kernels; `pointers` are those of `buffers`.
    ///
    /// # Safety
    /// As `Bound::run` asks of each kernel's operands, which overlap as the kernels were told and as the plan
    /// lets them: what is written is walked by rows.
    pub unsafe fn run(&self, pointers: &[*mut u8]) -> Result<()> {
        let in_one = self.extent.div_ceil(self.block);
        let blocks = in_one * self.outer.iter().product::<usize>();
        let chunks = blocks.min(CHUNKS * pool::threads());
        let shared = Pointers(pointers);
        pool::run_fallibly(chunks, &|chunk| {
            let memory = Buffer::new(self.own_bytes.saturating_mul(self.block))?;
            (chunk * blocks / chunks..(chunk + 1) * blocks / chunks).try_for_each(|block| {
                // SAFETY: the operands are the caller's, blocks are of rows of their own, and the memory is
                // this chunk's.
                unsafe { self.block(&shared, memory.pointer(), block / in_one, block % in_one) }
            })
        })
    }

    /// Runs all kernels for a block: of index `outside` of the outer loops together.
    ///
    /// # Safety
    /// As `run`; `memory` has the bytes of a block and is nobody else's.
    unsafe fn block(
        &self,
        shared: &Pointers<'_>,
        memory: *mut u8,
        outside: usize,
        number: usize,
    ) -> Result<()> {
        let first = number * self.block;
        let mut ranges: SmallVec<[std::ops::Range<usize>; 4]> = SmallVec::new();
        let mut rest = outside;
        for &extent in self.outer.iter().rev() {
            ranges.push(rest % extent..rest % extent + 1);
            rest /= extent;
        }
        ranges.reverse();
        ranges.push(first..self.extent.min(first + self.block));
        let row = outside * self.extent + first;
        for kernel in &self.kernels {
            let operands: SmallVec<[*mut u8; 8]> = kernel
                .operands
                .iter()
                .map(|operand| match *operand {
                    Operand::Buffer(position) => shared.0[position],
                    // Kernels index whole arrays: where the first of their rows would be.
                    Operand::Own { offset, row: bytes } => {
                        memory.wrapping_add(offset * self.block).wrapping_sub(row * bytes)
                    }
                })
                .collect();
            // SAFETY: operands are valid as the caller promised, or of the block: at these rows alone, which
            // have `block * bytes` bytes of it.
            unsafe {
                match &kernel.work {
                    Work::Kernel(bound) => bound.run_part(&operands, &ranges)?,
                    Work::Call(call, inputs) => {
                        let (inputs, outputs) = operands.split_at(*inputs);
                        let inputs: SmallVec<[*const u8; 4]> =
                            inputs.iter().map(|pointer| pointer.cast_const()).collect();
                        let operands = Call { inputs: &inputs, outputs, scratch: std::ptr::null_mut() };
                        call.run_rows(&operands, row..row + ranges.last().map_or(0, ExactSizeIterator::len))?;
                    }
                }
            }
        }
        Ok(())
    }
}
