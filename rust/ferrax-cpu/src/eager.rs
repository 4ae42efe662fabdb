//! Single ops, run at once.

use ferrax_ir::{Op, Result, Tensor, Type};
use smallvec::SmallVec;

/// The outputs of one op.
pub fn run_op(op: &Op, inputs: &[Tensor]) -> Result<SmallVec<[Tensor; 1]>> {
    let types: SmallVec<[Type; 3]> = inputs.iter().map(|tensor| tensor.array_type().into()).collect();
    let outputs = op.infer(&types)?;
    Ok(op.eval(inputs, &outputs)?.into_iter().collect())
}
