//! Ops that only their row can compute: the reference evaluation, on copies of
//! the operands.

use ferrax_compile::Argument;
use ferrax_ir::{ArrayType, Op, Result, Tensor, Type, internal_error};

use crate::call::{Call, Kernel};

#[derive(Debug)]
pub struct Reference {
    op: Op,
    inputs: Vec<Argument>,
    outputs: Vec<Type>,
}

impl Reference {
    pub fn new(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Reference {
        let ty = |argument: &Argument| ArrayType::of_sizes(&argument.sizes, argument.dtype).into();
        Reference { op: op.clone(), inputs: inputs.to_vec(), outputs: outputs.iter().map(ty).collect() }
    }
}

impl Kernel for Reference {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let mut tensors = Vec::with_capacity(self.inputs.len());
        for (argument, &pointer) in self.inputs.iter().zip(call.inputs) {
            // SAFETY: an input is valid for its type, whose elements take so many bytes, and is only read.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, argument.bytes()) };
            tensors.push(Tensor::from_bytes(argument.dtype, argument.sizes.clone(), bytes)?);
        }
        let results = self.op.eval(&tensors, &self.outputs)?;
        if results.len() != call.outputs.len() {
            return Err(internal_error!("{} gave {} outputs", self.op.name(), results.len()));
        }
        for (result, &pointer) in results.iter().zip(call.outputs) {
            let bytes = result.bytes();
            // SAFETY: the output has the type that the row gave.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()) };
        }
        Ok(())
    }
}
