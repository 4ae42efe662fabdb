//! What the planning of launches asks of a machine.

use ferrax_ir::{DType, Op};

use super::sequence::Sequence;
use crate::plan::Argument;
use crate::tuning::{Launches, Target};

/// Numbers of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// What plans depend on.
    pub target: Target,
    /// Bytes that the invocations of a workgroup may share.
    pub workgroup_bytes: usize,
    pub thresholds: Launches,
}

/// A machine that runs launches: what of its shaders this depends on.
pub trait Machine {
    fn limits(&self) -> &Limits;

    /// The words that an element has in memory of a workgroup's or of an invocation's own; none if shaders have no
    /// such elements.
    fn words(&self, dtype: DType) -> Option<usize>;

    /// Whether there is a shader of a sequence, and a workgroup has memory for it.
    fn fits(&self, sequence: &Sequence) -> bool;

    /// Whether a library call is a product that may take kernels in.
    fn takes_kernels(&self, op: &Op, inputs: &[Argument], outputs: &[Argument]) -> bool;

    /// Whether its launches write each element of the result once, as a kernel that takes them has to see them.
    fn takes_result_kernel(&self, op: &Op, arguments: [&Argument; 3]) -> bool;

    /// How often it reads an element of the left operand, or of the right one.
    fn reads(&self, op: &Op, arguments: [&Argument; 3], which: usize) -> usize;
}
