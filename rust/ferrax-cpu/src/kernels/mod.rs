//! Library kernels: ops that are not loops around scalar code.
//!
//! [`bind`] turns an op with the types of its operands into a [`Kernel`], which
//! runs over raw operands. Operands are dense and row-major. Where the plan lets
//! an op work in place its first output is its first input.

pub mod reference;

use ferrax_compile::Argument;
use ferrax_ir::{Op, Result};

/// The operands of one call.
pub struct Call<'a> {
    pub inputs: &'a [*const u8],
    pub outputs: &'a [*mut u8],
}

/// A library kernel with its sizes.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// Computes the outputs.
    ///
    /// # Safety
    /// The operands are valid for the types that the kernel was bound with.
    /// Only the first input and the first output may be the same memory.
    unsafe fn run(&self, call: &Call<'_>) -> Result<()>;
}

/// The kernel for `op` on operands of these types.
pub fn bind(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Result<Box<dyn Kernel>> {
    Ok(Box::new(reference::Reference::new(op, inputs, outputs)))
}
