//! Library kernels: ops that are not loops around scalar code.
//!
//! [`bind`] turns an op with the types of its operands into a [`Kernel`], which
//! runs over raw operands. Operands are dense and row-major. Where the plan lets
//! an op work in place its first output is its first input.

mod body;
mod control;
mod conv;
pub mod copy;
pub mod cumulative;
mod decompositions;
mod factorisations;
mod fft;
pub mod gemm;
mod panels;
pub mod reference;
mod singles;
pub mod sort;
mod sweeps;
mod thin;
pub mod windows;

use std::ops::Range;

use ferrax_compile::Argument;
use ferrax_ir::{Op, Result, internal_error};

use crate::backend::Nested;

/// The operands of one call.
pub struct Call<'a> {
    pub inputs: &'a [*const u8],
    pub outputs: &'a [*mut u8],
    /// As many bytes as the kernel asks for, aligned as arrays are.
    pub scratch: *mut u8,
}

/// A library kernel with its sizes.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// Bytes of scratch memory that a run needs.
    fn scratch(&self) -> usize {
        0
    }

    /// Computes the outputs.
    ///
    /// # Safety
    /// The operands are valid for the types that the kernel was bound with.
    /// Only the first input and the first output may be the same memory. The
    /// scratch memory is as large as asked for and nobody else's during the run.
    unsafe fn run(&self, call: &Call<'_>) -> Result<()>;

    /// Computes some rows of the output, of an op that says how it goes by rows (`Rules::by_rows`), on this thread.
    ///
    /// # Safety
    /// As `run`, for these rows, and those of the first operand if it is walked by rows.
    unsafe fn run_rows(&self, _call: &Call<'_>, _rows: Range<usize>) -> Result<()> {
        Err(internal_error!("{self:?} does not go by rows"))
    }
}

/// Makes what is made once: see `fork`.
pub(crate) fn settle() {
    gemm::settle();
}

/// The kernel for `op` on operands of these types.
pub fn bind(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    nested: &mut Nested<'_>,
) -> Result<Box<dyn Kernel>> {
    let own = match op {
        Op::Cond(op) => Some(control::cond(op, nested)?),
        Op::While(op) => Some(control::while_loop(op, nested)?),
        Op::Sweeps(op) => Some(sweeps::sweeps(op, nested)?),
        Op::Scan(op) => Some(control::scan(op, nested)?),
        Op::DotGeneral(op) => Some(gemm::bind(op, inputs, outputs)?),
        Op::ConvGeneralDilated(op) => Some(conv::bind(op, inputs, outputs)?),
        Op::Gather(op) => Some(windows::gather(op, inputs, outputs)?),
        Op::Scatter(op) => windows::scatter(op, inputs, outputs)?,
        Op::DynamicSlice(op) => Some(windows::dynamic_slice(op, inputs, outputs)?),
        Op::DynamicUpdateSlice(_) => Some(windows::dynamic_update_slice(inputs)?),
        Op::Cumulative(op) => cumulative::bind(op, inputs)?,
        Op::Sort(op) => sort::bind(op, inputs),
        Op::TopK(op) => sort::bind_top_k(op, inputs),
        Op::Eigh(op) => decompositions::eigh(op, inputs, outputs),
        Op::Svd(op) => decompositions::svd(op, inputs, outputs),
        Op::Cholesky(_)
        | Op::Lu(_)
        | Op::TriangularSolve(_)
        | Op::Geqrf(_)
        | Op::Geqp3(_)
        | Op::HouseholderProduct(_)
        | Op::Ormqr(_)
        | Op::Hessenberg(_)
        | Op::Tridiagonal(_)
        | Op::TridiagonalSolve(_)
        | Op::Schur(_)
        | Op::Eig(_) => factorisations::bind(op, inputs, outputs),
        Op::Fft(op) => fft::bind(op, inputs, outputs),
        _ => None,
    };
    // Rare dtypes, ops from outside, reductions of complex numbers in their order.
    Ok(own.unwrap_or_else(|| Box::new(reference::Reference::new(op, inputs, outputs))))
}
