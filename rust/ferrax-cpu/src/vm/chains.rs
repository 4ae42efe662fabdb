//! Operations of a section that follow one another as one function, while they are collected (`collect`) and then.

use std::sync::Arc;

use ferrax_compile::chain::Chain;
use ferrax_ir::scalar::{Instruction, Reg};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Place;
use crate::code::ChainFunction;

/// A chain over places.
#[derive(Clone, Debug)]
pub struct ChainStep {
    pub function: Arc<ChainFunction>,
    /// Of its inputs, then of its outputs.
    pub places: SmallVec<[Place; 8]>,
}

/// A chain that is not at its end.
#[derive(Default)]
pub struct Open {
    pub chain: Chain,
    /// What instructions of the body are in the chain, and whether they are computed there.
    pub known: FxHashMap<u32, (Reg, bool)>,
    pub inputs: SmallVec<[Place; 8]>,
    /// The latter, in order.
    pub members: Vec<u32>,
    /// What is not needed once the chain is done: registers and places.
    pub dying: Vec<Reg>,
    pub temporary: SmallVec<[Place; 3]>,
}

impl Open {
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether an instruction needs what is computed in the chain.
    pub fn has(&self, instruction: &Instruction) -> bool {
        let is_member = |arg: &Reg| matches!(self.known.get(&arg.0), Some((_, true)));
        instruction.args.iter().any(is_member)
    }

    pub fn outlive(&mut self, registers: impl IntoIterator<Item = Reg>) {
        self.dying.extend(registers);
    }
}

impl ChainStep {
    /// The same where a table begins at entry `first` of a larger one.
    pub fn shifted(mut self, first: Place) -> ChainStep {
        self.places.iter_mut().for_each(|place| *place += first);
        self
    }

    /// Bytes that it keeps beside the function, which others share.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// Computes so many lanes.
    ///
    /// # Safety
    /// The table has the places of the chain: of so many lanes, or of one element where the input is one.
    pub unsafe fn run(&self, table: *const *mut u8, lanes: usize) {
        // SAFETY: the table has these entries.
        let at = |&place: &Place| unsafe { *table.add(place as usize) };
        let pointers: SmallVec<[*mut u8; 16]> = self.places.iter().map(at).collect();
        // SAFETY: the caller answers for the blocks; results have places of their own.
        unsafe { self.function.run(&pointers, lanes) };
    }
}
