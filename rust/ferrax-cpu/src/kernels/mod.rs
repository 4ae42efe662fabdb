//! Library kernels: ops that are not loops around scalar code.
//!
//! [`bind`] turns an op with the types of its operands into a [`Kernel`], which
//! runs over raw operands. Operands are dense and row-major. Where the plan lets
//! an op work in place its first output is its first input.

mod blocked;
mod conv;
pub mod copy;
pub mod cumulative;
mod decompositions;
mod factorisations;
mod fft;
pub mod gemm;
mod matrices;
mod micro;
mod panels;
pub mod reference;
mod singles;
pub mod sort;
mod thin;
mod vectors;
pub mod windows;

use ferrax_compile::{Argument, Path};
use ferrax_ir::{Op, Result};

use crate::call::Kernel;
use crate::ffi::{self, FfiCall};
use crate::tuning::Tuning;

/// Makes what is made once: see `fork`.
pub(crate) fn settle() {
    gemm::settle();
}

/// The kernel for `op` on operands of these types.
pub fn bind(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Box<dyn Kernel>> {
    let own = match op {
        Op::DotGeneral(op) => Some(gemm::bind(op, inputs, outputs, tuning)?),
        Op::ConvGeneralDilated(op) => Some(conv::bind(op, inputs, outputs, tuning)?),
        Op::Gather(op) => Some(windows::gather(op, inputs, outputs, tuning)?),
        Op::Scatter(op) => windows::scatter(op, inputs, tuning)?,
        Op::DynamicSlice(op) => Some(windows::dynamic_slice(op, inputs, outputs)?),
        Op::DynamicUpdateSlice(_) => Some(windows::dynamic_update_slice(inputs)?),
        Op::Cumulative(op) => cumulative::bind(op, inputs, tuning)?,
        Op::Sort(op) => sort::bind(op, inputs, tuning),
        Op::TopK(op) => sort::bind_top_k(op, inputs, tuning),
        Op::Eigh(op) => decompositions::eigh(op, inputs, outputs, tuning),
        Op::Svd(op) => decompositions::svd(op, inputs, outputs, tuning),
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
        | Op::Eig(_) => factorisations::bind(op, inputs, outputs, tuning),
        Op::Fft(op) => fft::bind(op, inputs, outputs, tuning),
        Op::Extension(op) => match op.0.as_any().and_then(|op| op.downcast_ref::<FfiCall>()) {
            Some(call) => Some(ffi::kernel(call, inputs, outputs)?),
            None => None,
        },
        _ => None,
    };
    Path::Reference.take_if(own.is_none());
    // Rare dtypes, ops from outside, reductions of complex numbers in their order.
    Ok(own.unwrap_or_else(|| Box::new(reference::Reference::new(op, inputs, outputs))))
}
