//! Chains (`ferrax_compile::chain`) as functions, one for all kernels that do the same to their blocks.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrax_compile::chain::Chain;
use ferrax_ir::Result;
use ferrax_ir::paths::Path;
use ferrax_ir::scalar::ScalarOp;
#[cfg(target_arch = "x86_64")]
use ferrax_ir::scalar::ScalarType;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

#[cfg(target_arch = "x86_64")]
use super::arena;
use super::arena::Block;
use super::listing;
use crate::generations::Generations;

/// Functions that are known, at most, and their bytes.
const KEPT: usize = 2048;
const KEPT_BYTES: usize = 16 << 20;

/// Bytes of a step's lanes of a block, at most.
const STEP: usize = ferrax_x86::MOST_LANES * 8;
/// Blocks whose last lanes are on the stack.
const FEW: usize = 8;

/// A chain's function.
#[derive(Debug)]
pub struct ChainFunction {
    chain: Chain,
    block: Block,
    /// Lanes of a step.
    lanes: usize,
    /// Of each input and output, bytes of an element; of single elements none.
    sizes: SmallVec<[usize; 8]>,
}

type Known = Generations<Arc<ChainFunction>>;

static KNOWN: Mutex<Known> = Mutex::new(Generations::new(KEPT, KEPT_BYTES));

pub(super) fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ChainFunction {
    /// The function of a chain; none where there can be none.
    pub fn of(chain: Chain) -> Result<Option<Arc<ChainFunction>>> {
        let Some(isa) = super::wanted()? else { return Ok(None) };
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(&chain);
        let (found, forgotten) = known().find(hash, |known| known.chain == chain);
        drop(forgotten);
        if let Some(found) = found {
            Path::ChainKnown.take();
            listing::met(&found.block, || found.name());
            return Ok(Some(found));
        }
        let Some(function) = ChainFunction::made(chain, isa)? else { return Ok(None) };
        let function = Arc::new(function);
        listing::published(&function.block, || function.name());
        listing::met(&function.block, || function.name());
        let bytes = function.block.bytes() + size_of::<ChainFunction>();
        let forgotten = known().insert(hash, function.clone(), bytes);
        drop(forgotten);
        Ok(Some(function))
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn made(chain: Chain, isa: super::Isa) -> Result<Option<ChainFunction>> {
        let code = ferrax_x86::emit_chain(&chain, isa)?;
        let block = arena::publish(&code.bytes);
        Path::Chain.take_if(block.is_some());
        Path::ChainRefused.take_if(block.is_none());
        let outputs = chain.outputs.iter().map(|&output| (chain.body.type_of(output), false));
        let size = |(ty, uniform): (ScalarType, bool)| if uniform { 0 } else { ty.size() };
        let sizes = chain.inputs.iter().copied().chain(outputs).map(size).collect();
        Ok(block.map(|block| ChainFunction { chain, block, lanes: code.lanes, sizes }))
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn made(_chain: Chain, _isa: super::Isa) -> Result<Option<ChainFunction>> {
        Ok(None)
    }

    /// What it does, in short.
    fn name(&self) -> String {
        let Chain { body, inputs, outputs } = &self.chain;
        let given = |op| matches!(op, ScalarOp::Input { .. } | ScalarOp::Const { .. });
        let count = body.instructions().iter().filter(|instruction| !given(instruction.op)).count();
        format!("{count} operations on blocks, of {} arrays to {}", inputs.len(), outputs.len())
    }

    /// Computes so many lanes of blocks: of the inputs, then of the outputs.
    ///
    /// # Safety
    /// There are a pointer for each input and output, each valid for so many lanes, or for one element where the input is
    /// one; no output overlaps an input.
    pub unsafe fn run(&self, pointers: &[*mut u8], lanes: usize) {
        debug_assert_eq!(pointers.len(), self.sizes.len());
        let whole = lanes / self.lanes * self.lanes;
        if whole > 0 {
            // SAFETY: the block's code is the function of the chain, for whose blocks the caller answers; the number of
            // lanes is a multiple of a step's, and not zero.
            unsafe { self.block.call_chain(pointers.as_ptr(), whole) };
        }
        let rest = lanes - whole;
        if rest == 0 {
            return;
        }
        // The last lanes are a step of their own, in memory that is long enough for one.
        let mut few = [const { MaybeUninit::<u64>::uninit() }; FEW * STEP / 8];
        let mut many = Vec::new();
        let room: *mut u8 = if self.sizes.len() <= FEW {
            few.as_mut_ptr().cast()
        } else {
            many.resize(self.sizes.len() * STEP / 8, 0u64);
            many.as_mut_ptr().cast()
        };
        let inputs = self.chain.inputs.len();
        let place = |block: usize| {
            let (from, size) = (pointers[block], self.sizes[block]);
            if size == 0 {
                (from, from)
            } else {
                (from.wrapping_add(whole * size), room.wrapping_add(block * STEP))
            }
        };
        let step: SmallVec<[*mut u8; 8]> = (0..self.sizes.len())
            .map(|block| {
                let (from, to) = place(block);
                if block < inputs && self.sizes[block] > 0 {
                    // SAFETY: `rest` elements of the input are left, and the room has place for a step's lanes, which are
                    // more than that.
                    unsafe {
                        to.write_bytes(0, self.lanes * self.sizes[block]);
                        std::ptr::copy_nonoverlapping(from, to, rest * self.sizes[block]);
                    }
                }
                to
            })
            .collect();
        // SAFETY: all blocks are valid for a step's lanes, and apart.
        unsafe { self.block.call_chain(step.as_ptr(), self.lanes) };
        for block in inputs..self.sizes.len() {
            let (to, from) = place(block);
            // SAFETY: `rest` elements of the output are left, and were computed to this block's room.
            unsafe { std::ptr::copy_nonoverlapping(from, to, rest * self.sizes[block]) };
        }
    }
}
