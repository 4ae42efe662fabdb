//! What steps of a plan are that are no kernels, and what runs them: each records commands.

use std::fmt::Debug;
use std::sync::Arc;

use ferrax_ir::{Program, Result};

use crate::gpu::Gpu;
use crate::memory::Memory;

/// A library call that is ready to run: an op with the types of its operands.
pub trait Library: Send + Sync + Debug {
    /// Records the commands that compute the results, which are dense and row-major, as operands are. Results may be
    /// operands, and be written into those that nobody else has.
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>>;

    /// What it costs to run it for results that are dropped, whatever its operands; none where the host would wait,
    /// or something else would happen. `cost` is what it is taken to cost if it only records commands.
    fn in_vain(&self, cost: u64) -> Option<u64> {
        Some(cost)
    }
}

/// A program within a program that is ready to run: a branch, or what a loop repeats.
pub trait Body: Send + Sync + Debug {
    /// Records its commands. The outputs may be inputs, or each other.
    fn record(&self, gpu: &Gpu, inputs: Vec<Memory>) -> Result<Vec<Memory>>;

    /// What it costs to run it for results that are dropped; none where that is not allowed.
    fn in_vain(&self) -> Option<u64>;
}

/// What makes the programs within a program ready.
pub type Bodies<'a> = dyn FnMut(&Arc<Program>) -> Result<Arc<dyn Body>> + 'a;
