//! Plans on a GPU.
//!
//! Kernels are shaders; those that follow one another are one submission, which nobody waits for. What is a library
//! call of the plan (products, sorting, decompositions, loops) runs on the CPU so far: its operands are
//! copied there, and its results back.

use std::sync::Arc;

use ferrax_compile::backend::{Nested, Output};
use ferrax_compile::{Argument, Backend, BufferId, Place, Plan, Step, Target};
use ferrax_ir::{ArrayType, Builder, DType, Op, Result, Sizes, Tensor, internal_error};
use wgpu::Buffer;

use crate::adapter::{Gpu, Prepared};

/// A plan that is ready to run.
#[derive(Debug)]
pub struct Executable {
    plan: Plan,
    constants: Vec<Buffer>,
    steps: Vec<Ready>,
}

#[derive(Debug)]
enum Ready {
    Kernel(Prepared, Vec<BufferId>),
    Call(Arc<ferrax_cpu::Executable>, Vec<Argument>, Vec<Argument>),
}

impl Backend for Gpu {
    type Buffer = Buffer;
    type Executable = Executable;

    fn target(&self) -> Target {
        Target { operands: self.most_operands(), ..Target::CPU }
    }

    fn bind(&self, plan: Plan, _nested: &mut Nested<'_, Self>) -> Result<Executable> {
        let constants =
            plan.constants.iter().map(|tensor| Gpu::upload(self, tensor.bytes())).collect::<Result<_>>()?;
        let ready = |step: &Step| -> Result<Ready> {
            Ok(match step {
                Step::Kernel { launch, operands } => Ready::Kernel(self.prepare(launch)?, operands.clone()),
                Step::Library { op, inputs, outputs } => {
                    Ready::Call(Arc::new(on_cpu(op, inputs)?), inputs.clone(), outputs.clone())
                }
            })
        };
        let steps = plan.steps.iter().map(ready).collect::<Result<_>>()?;
        Ok(Executable { constants, steps, plan })
    }

    fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        Gpu::upload(self, bytes)
    }

    fn download(&self, buffer: &Buffer, to: &mut [u8]) -> Result<()> {
        Gpu::download(self, buffer, to)
    }

    fn run(&self, executable: &Executable, inputs: &[&Buffer]) -> Result<Vec<Output<Buffer>>> {
        let plan = &executable.plan;
        let memory = |buffer: &ferrax_compile::plan::Buffer| -> Result<Buffer> {
            match buffer.place {
                Place::Input(number) => Ok(inputs[number].clone()),
                Place::Constant(number) => Ok(executable.constants[number].clone()),
                Place::Arena(_) | Place::Fresh(_) | Place::Rows(_) => self.allocate(buffer.bytes),
            }
        };
        let buffers: Vec<Buffer> = plan.buffers.iter().map(memory).collect::<Result<_>>()?;
        let mut waiting: Vec<(&Prepared, Vec<&Buffer>)> = Vec::new();
        for step in &executable.steps {
            match step {
                Ready::Kernel(prepared, operands) => {
                    waiting.push((prepared, operands.iter().map(|id| &buffers[id.0 as usize]).collect()));
                }
                Ready::Call(call, takes, gives) => {
                    Gpu::run(self, std::mem::take(&mut waiting))?;
                    self.call(call, takes, gives, &buffers)?;
                }
            }
        }
        Gpu::run(self, waiting)?;
        let output = |argument: &Argument| Output {
            buffer: buffers[argument.buffer.0 as usize].clone(),
            dtype: argument.dtype,
            sizes: argument.sizes.clone(),
        };
        Ok(plan.outputs.iter().map(output).collect())
    }
}

impl Gpu {
    /// A library call on the CPU.
    fn call(
        &self,
        call: &ferrax_cpu::Executable,
        takes: &[Argument],
        gives: &[Argument],
        buffers: &[Buffer],
    ) -> Result<()> {
        let tensor = |argument: &Argument| -> Result<Tensor> {
            let mut bytes = vec![0; argument.bytes()];
            Gpu::download(self, &buffers[argument.buffer.0 as usize], &mut bytes)?;
            Tensor::from_bytes(argument.dtype, argument.sizes.clone(), &bytes)
        };
        let inputs: Vec<Tensor> = takes.iter().map(tensor).collect::<Result<_>>()?;
        let outputs = call.run(&inputs)?;
        if outputs.len() != gives.len() {
            return Err(internal_error!("{} results of a call that gives {}", outputs.len(), gives.len()));
        }
        for (output, argument) in outputs.iter().zip(gives) {
            self.write(&buffers[argument.buffer.0 as usize], output.bytes())?;
        }
        Ok(())
    }
}

/// An op with operands of these types, compiled for the CPU.
fn on_cpu(op: &Op, inputs: &[Argument]) -> Result<ferrax_cpu::Executable> {
    let mut b = Builder::new(op.name());
    let typed = |argument: &Argument| -> (DType, Sizes) { (argument.dtype, argument.sizes.clone()) };
    let atoms: Vec<_> =
        inputs.iter().map(typed).map(|(dtype, sizes)| b.input(ArrayType::of_sizes(&sizes, dtype))).collect();
    let outputs = b.emit(op.clone(), &atoms)?;
    ferrax_cpu::compile(&b.finish(outputs.into_iter().map(Into::into)))
}
