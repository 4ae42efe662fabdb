//! Runs of steps that go through their rows together (`ferrax_compile::rows`).
//!
//! Threads take blocks of rows; each goes through all steps of the run before the next block begins. Values
//! of the run alone are in memory for one block, which a thread uses again for the next. What a step does for a row,
//! and which operands it walks by rows, is what the plan says.

use std::ops::Range;

use ferrax_compile::{BufferId, Path, Place, Plan, Run, Share, Step};
use ferrax_ir::{Result, internal_error};
use smallvec::SmallVec;

use crate::alloc::Buffer;
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::Tuning;
use crate::vm::Bound;

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
    share: Share,
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
    /// The blocks that it is cut into, as even as can be.
    blocks: usize,
    own_bytes: usize,
    /// Chunks of blocks that threads take.
    chunks: usize,
}

struct Pointers<'a>(&'a [*mut u8]);

// SAFETY: the pointers are only read; behind them, blocks write rows of their own.
unsafe impl Sync for Pointers<'_> {}

impl Rows {
    /// `bind` makes a step ready.
    pub fn new(
        plan: &Plan,
        run: &Run,
        tuning: &Tuning,
        mut bind: impl FnMut(&Step) -> Result<Work>,
    ) -> Result<Rows> {
        let Some((&extent, outer)) = run.extents.split_last() else {
            return Err(internal_error!("a run without loops"));
        };
        if run.has_calls() { Path::RunOfProducts } else { Path::Run }.take();
        let chunks = tuning.threads.run_chunks * pool::threads();
        let mut rows = Rows {
            buffers: SmallVec::new(),
            kernels: Vec::with_capacity(run.steps.len()),
            outer: outer.into(),
            extent,
            blocks: 1,
            own_bytes: run.own_bytes,
            chunks,
        };
        for (step, part) in plan.steps[run.steps.clone()].iter().zip(&run.parts) {
            let operands: SmallVec<[BufferId; 4]> = match step {
                Step::Kernel { operands, .. } => operands.iter().copied().collect(),
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().chain(outputs).map(|argument| argument.buffer).collect()
                }
            };
            let place = |rows: &mut Rows, (id, &by_rows): (&BufferId, &bool)| {
                let buffer = &plan.buffers[id.0 as usize];
                match buffer.place {
                    Place::Rows(offset) if by_rows => {
                        Ok(Operand::Own { offset, row: buffer.bytes / run.rows() })
                    }
                    Place::Rows(_) => Err(internal_error!("more is read of a block than a row")),
                    _ => {
                        let known = rows.buffers.iter().position(|&known| known == id.0);
                        Ok(Operand::Buffer(known.unwrap_or_else(|| {
                            rows.buffers.push(id.0);
                            rows.buffers.len() - 1
                        })))
                    }
                }
            };
            let operands = operands
                .iter()
                .zip(&part.by_rows)
                .map(|operand| place(&mut rows, operand))
                .collect::<Result<_>>()?;
            rows.kernels.push(Rowwise { work: bind(step)?, share: part.share, operands });
        }
        // Each thread has some blocks to take; those of products do not depend on threads.
        let outside: usize = outer.iter().product();
        let fewest = if run.has_calls() { 1 } else { chunks.div_ceil(outside) };
        let fitting = run.block(&tuning.plan, extent);
        rows.blocks = extent.div_ceil(fitting.max(1)).max(fewest).clamp(1, extent.max(1));
        // Fewer, where products of so few rows would have other bits.
        while rows.blocks > 1 && !rows.is_alike() {
            rows.blocks -= rows.blocks.div_ceil(8);
        }
        Ok(rows)
    }

    /// The rows of a block, where the first of the outer loops is at its begin.
    fn range(&self, number: usize) -> Range<usize> {
        let at = |number: usize| (number as u128 * self.extent as u128 / self.blocks as u128) as usize;
        at(number)..at(number + 1)
    }

    /// Whether the library's calls give for each block the bits that they give for all.
    fn is_alike(&self) -> bool {
        self.kernels.iter().all(|kernel| match (&kernel.work, kernel.share) {
            (Work::Call(call, _), Share::Rows(rows)) => (0..self.blocks).all(|number| {
                let block = self.range(number);
                call.rows_alike(block.start * rows..block.end * rows)
            }),
            _ => true,
        })
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
        let in_one = self.blocks;
        let blocks = in_one * self.outer.iter().product::<usize>();
        let chunks = blocks.min(self.chunks);
        let shared = Pointers(pointers);
        // SAFETY: the operands are the caller's.
        let prepared = unsafe { self.prepare(&shared, blocks)? };
        pool::run_fallibly(chunks, &|chunk| {
            let memory = Buffer::new(self.own_bytes.saturating_mul(self.extent.div_ceil(self.blocks)))?;
            (chunk * blocks / chunks..(chunk + 1) * blocks / chunks).try_for_each(|block| {
                // SAFETY: the operands are the caller's, blocks are of rows of their own, and the memory is
                // this chunk's.
                unsafe { self.block(&shared, &prepared, memory.pointer(), block / in_one, block % in_one) }
            })
        })
    }

    /// What the library's calls prepare once for all blocks, by kernel.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn prepare(&self, shared: &Pointers<'_>, blocks: usize) -> Result<Vec<Option<Buffer>>> {
        let prepare = |kernel: &Rowwise| -> Result<Option<Buffer>> {
            let Work::Call(call, count) = &kernel.work else { return Ok(None) };
            let bytes = call.prepared(blocks);
            if bytes == 0 {
                return Ok(None);
            }
            let buffer = Buffer::new(bytes)?;
            let pointer = |operand: &Operand| match *operand {
                Operand::Buffer(position) => shared.0[position].cast_const(),
                // Walked by rows: there are none yet.
                Operand::Own { .. } => std::ptr::null(),
            };
            let inputs: SmallVec<[*const u8; 4]> = kernel.operands[..*count].iter().map(pointer).collect();
            let operands = Call { inputs: &inputs, outputs: &[], scratch: buffer.pointer() };
            // SAFETY: the operands that all blocks share are the caller's, and the buffer has the bytes that were asked for.
            unsafe { call.prepare(&operands)? };
            Ok(Some(buffer))
        };
        self.kernels.iter().map(prepare).collect()
    }

    /// Runs all kernels for a block: of index `outside` of the outer loops together.
    ///
    /// # Safety
    /// As `run`; `memory` has the bytes of a block and is nobody else's.
    unsafe fn block(
        &self,
        shared: &Pointers<'_>,
        prepared: &[Option<Buffer>],
        memory: *mut u8,
        outside: usize,
        number: usize,
    ) -> Result<()> {
        let Range { start: first, end } = self.range(number);
        let most = self.extent.div_ceil(self.blocks);
        let mut ranges: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        let mut rest = outside;
        for &extent in self.outer.iter().rev() {
            ranges.push(rest % extent..rest % extent + 1);
            rest /= extent;
        }
        ranges.reverse();
        ranges.push(first..end);
        let row = outside * self.extent + first;
        for (kernel, prepared) in self.kernels.iter().zip(prepared) {
            let operands: SmallVec<[*mut u8; 8]> = kernel
                .operands
                .iter()
                .map(|operand| match *operand {
                    Operand::Buffer(position) => shared.0[position],
                    // Kernels index whole arrays: where the first of their rows would be.
                    Operand::Own { offset, row: bytes } => {
                        memory.wrapping_add(offset * most).wrapping_sub(row * bytes)
                    }
                })
                .collect();
            // SAFETY: operands are valid as the caller promised, or of the block: at these rows alone, which
            // have `block * bytes` bytes of it.
            unsafe {
                match (&kernel.work, kernel.share) {
                    (Work::Kernel(bound), Share::Loops) => bound.run_part(&operands, &ranges)?,
                    (Work::Call(call, inputs), Share::Rows(rows)) => {
                        let (inputs, outputs) = operands.split_at(*inputs);
                        let inputs: SmallVec<[*const u8; 4]> =
                            inputs.iter().map(|pointer| pointer.cast_const()).collect();
                        let scratch = prepared.as_ref().map_or(std::ptr::null_mut(), Buffer::pointer);
                        let operands = Call { inputs: &inputs, outputs, scratch };
                        call.run_rows(&operands, row * rows..(row + end - first) * rows)?;
                    }
                    _ => return Err(internal_error!("a step of a run is not what its plan says")),
                }
            }
        }
        Ok(())
    }
}
