//! What a run of a plan takes: memory, and bytes that go through it.

use ferrax_ir::tensor::element_count;
use rustc_hash::FxHashSet;

use crate::plan::{BufferId, Place, Plan, Step};

/// Bytes that a run needs at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    pub arguments: usize,
    pub constants: usize,
    /// Of results that are no argument, constant or other result.
    pub results: usize,
    /// Of values in between.
    pub temporaries: usize,
}

impl Memory {
    pub fn peak(&self) -> usize {
        let all = [self.arguments, self.constants, self.results, self.temporaries];
        all.into_iter().fold(0, usize::saturating_add)
    }
}

impl Plan {
    /// Without what blocks of rows and library calls take for themselves while they run.
    pub fn memory(&self) -> Memory {
        let sum = |bytes: &mut dyn Iterator<Item = usize>| bytes.fold(0, usize::saturating_add);
        Memory {
            arguments: sum(&mut self.inputs.iter().map(|(dtype, sizes)| element_count(sizes) * dtype.size())),
            constants: sum(&mut self.constants.iter().map(|tensor| tensor.bytes().len())),
            results: sum(&mut self.fresh.iter().copied()),
            temporaries: self.arena,
        }
    }

    /// Bytes that the steps read and write, each buffer once a step; those of blocks of rows stay in the cache.
    pub fn traffic(&self) -> usize {
        let bytes = |ids: &mut dyn Iterator<Item = BufferId>| {
            let ids: FxHashSet<BufferId> = ids.collect();
            let buffers = ids.into_iter().map(|id| &self.buffers[id.0 as usize]);
            buffers.filter(|buffer| !matches!(buffer.place, Place::Rows(_))).map(|buffer| buffer.bytes).sum()
        };
        let step = |step: &Step| -> usize {
            match step {
                Step::Kernel { operands, .. } => bytes(&mut operands.iter().copied()),
                Step::Library { inputs, outputs, .. } => {
                    bytes(&mut inputs.iter().chain(outputs).map(|argument| argument.buffer))
                }
            }
        };
        self.steps.iter().map(step).fold(0, usize::saturating_add)
    }
}
