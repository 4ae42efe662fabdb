//! Ops without shaders: on the CPU, to which operands are copied, and results back.

use std::time::Instant;

use ferrax_compile::Argument;
use ferrax_ir::{ArrayType, Builder, DType, Op, Result, Sizes, Tensor};

use crate::gpu::Gpu;
use crate::library::Library;
use crate::memory::Memory;

/// An op without shaders.
#[derive(Debug)]
pub struct OnCpu {
    name: String,
    inputs: Vec<(DType, Sizes)>,
    executable: ferrax_cpu::Executable,
}

impl OnCpu {
    pub fn new(op: &Op, inputs: &[Argument]) -> Result<OnCpu> {
        let mut b = Builder::new(op.name());
        let inputs: Vec<_> = inputs.iter().map(|argument| (argument.dtype, argument.sizes.clone())).collect();
        let atoms: Vec<_> =
            inputs.iter().map(|(dtype, sizes)| b.input(ArrayType::of_sizes(sizes, *dtype))).collect();
        let outputs = b.emit(op.clone(), &atoms)?;
        let executable = ferrax_cpu::compile(&b.finish(outputs.into_iter().map(Into::into)))?;
        Ok(OnCpu { name: format!("{} on the CPU", op.name()), inputs, executable })
    }
}

impl Library for OnCpu {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let begin = Instant::now();
        let tensor = |((dtype, sizes), memory): (&(DType, Sizes), &Memory)| -> Result<Tensor> {
            let mut tensor = Tensor::zeros(*dtype, sizes.clone())?;
            Gpu::download(gpu, memory, tensor.bytes_mut()?)?;
            Ok(tensor)
        };
        let inputs: Vec<Tensor> = self.inputs.iter().zip(inputs).map(tensor).collect::<Result<_>>()?;
        let outputs = self.executable.run(&inputs)?;
        let outputs = outputs.iter().map(|output| Gpu::upload(gpu, output.bytes())).collect();
        gpu.note(&self.name, begin);
        outputs
    }

    fn in_vain(&self, _: u64) -> Option<u64> {
        None
    }
}
