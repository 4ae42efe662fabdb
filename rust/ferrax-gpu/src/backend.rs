//! Plans on a GPU.
//!
//! Steps are commands that are recorded one after the other, and nobody waits for them. Memory is given out when
//! a step first writes it, and is free after the last that uses it. What there is no shader for (sorting,
//! transforms, decompositions, callbacks) runs on the CPU: its operands are copied there, and its results back.

use std::time::Instant;

use ferrax_compile::backend::{Event, Nested, Output};
use ferrax_compile::{Argument, Backend, BufferId, Place, Plan, Step, Target};
use ferrax_ir::{ArrayType, Builder, DType, Op, Result, Sizes, Tensor, View, internal_error};

use crate::control::{Branches, ScanLoop, WhileLoop};
use crate::cumulative;
use crate::factorise;
use crate::fft;
use crate::fuse::fuse;
use crate::gpu::{Gpu, Prepared};
use crate::memory::Memory;
use crate::product;
use crate::scatter;
use crate::sort;

/// A plan that is ready to run.
#[derive(Debug)]
pub struct Executable {
    plan: Plan,
    constants: Vec<Memory>,
    steps: Vec<Ready>,
    /// For each step the buffers that nobody uses after it.
    last: Vec<Vec<BufferId>>,
}

#[derive(Debug)]
enum Ready {
    Kernel(Prepared, Vec<BufferId>),
    Library(Box<dyn Library>, Vec<Argument>, Vec<Argument>),
}

/// A library call that is ready to run: an op with the types of its operands.
pub trait Library: Send + Sync + std::fmt::Debug {
    /// Records the commands that compute the results, which are dense and row-major, as operands are. Results may be
    /// operands, and be written into those that nobody else has.
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>>;
}

impl Backend for Gpu {
    type Buffer = Memory;
    type Executable = Executable;

    fn target(&self) -> Target {
        Target { operands: self.most_operands(), ..Target::CPU }
    }

    fn bind(&self, plan: Plan, nested: &mut Nested<'_, Self>) -> Result<Executable> {
        let constants =
            plan.constants.iter().map(|tensor| Gpu::upload(self, tensor.bytes())).collect::<Result<_>>()?;
        let (plan, fusions) = fuse(plan, self.most_operands());
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (step, fusion) in plan.steps.iter().zip(fusions) {
            steps.push(match (step, fusion) {
                (Step::Kernel { launch, operands }, _) => {
                    Ready::Kernel(self.prepare(launch)?, operands.clone())
                }
                (Step::Library { op, inputs, outputs }, Some(fusion)) => {
                    Ready::Library(product::bind_fused(self, op, &fusion)?, inputs.clone(), outputs.clone())
                }
                (Step::Library { op, inputs, outputs }, None) => Ready::Library(
                    self.library(op, inputs, outputs, nested)?,
                    inputs.clone(),
                    outputs.clone(),
                ),
            });
        }
        Ok(Executable { constants, last: last_uses(&plan), steps, plan })
    }

    fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        Gpu::upload(self, bytes)
    }

    fn download(&self, memory: &Memory, to: &mut [u8]) -> Result<()> {
        Gpu::download(self, memory, to)
    }

    fn begin_profile(&self) -> Result<()> {
        Gpu::begin_profile(self)
    }

    fn end_profile(&self) -> Result<Vec<Event>> {
        Gpu::end_profile(self)
    }

    fn run(&self, executable: &Executable, inputs: &[&Memory]) -> Result<Vec<Output<Memory>>> {
        let inputs: Vec<Memory> = inputs.iter().map(|&memory| memory.clone()).collect();
        let outputs = self.record(executable, inputs)?;
        self.flush()?;
        let output = |(buffer, argument): (Memory, &Argument)| Output {
            buffer,
            dtype: argument.dtype,
            sizes: argument.sizes.clone(),
        };
        Ok(outputs.into_iter().zip(&executable.plan.outputs).map(output).collect())
    }
}

/// For each step the buffers of the plan that it uses last, but for outputs.
fn last_uses(plan: &Plan) -> Vec<Vec<BufferId>> {
    let mut seen = vec![false; plan.buffers.len()];
    plan.outputs.iter().for_each(|output| seen[output.buffer.0 as usize] = true);
    let mut last = vec![Vec::new(); plan.steps.len()];
    for (step, last) in plan.steps.iter().zip(&mut last).rev() {
        let used: Vec<BufferId> = match step {
            Step::Kernel { operands, .. } => operands.clone(),
            Step::Library { inputs, outputs, .. } => {
                inputs.iter().chain(outputs).map(|argument| argument.buffer).collect()
            }
        };
        for id in used {
            if !std::mem::replace(&mut seen[id.0 as usize], true) {
                last.push(id);
            }
        }
    }
    last
}

impl Gpu {
    fn library(
        &self,
        op: &Op,
        inputs: &[Argument],
        outputs: &[Argument],
        nested: &mut Nested<'_, Self>,
    ) -> Result<Box<dyn Library>> {
        match op.view() {
            View::Cond(op) => return Ok(Box::new(Branches::new(op, nested)?)),
            View::While(op) => return Ok(Box::new(WhileLoop::new(op, nested)?)),
            View::Scan(op) => return Ok(Box::new(ScanLoop::new(self, op, (inputs, outputs), nested)?)),
            _ => {}
        }
        let own = match op {
            Op::DotGeneral(_) | Op::ConvGeneralDilated(_) => product::bind(self, op, inputs, outputs)?,
            Op::Fft(op) => fft::bind(self, op, inputs, outputs)?,
            Op::Cholesky(_)
            | Op::Lu(_)
            | Op::Geqrf(_)
            | Op::TriangularSolve(_)
            | Op::HouseholderProduct(_)
            | Op::Ormqr(_) => factorise::bind(self, op, inputs, outputs)?,
            Op::Gather(_) | Op::DynamicSlice(_) => scatter::bind_gather(self, op, inputs, outputs)?,
            Op::Scatter(_) | Op::DynamicUpdateSlice(_) => scatter::bind(self, op, inputs)?,
            Op::Cumulative(op) => cumulative::bind(self, op, inputs)?,
            Op::Sort(_) | Op::TopK(_) => sort::bind(self, op, inputs, outputs)?,
            _ => None,
        };
        own.map_or_else(|| Ok(Box::new(OnCpu::new(op, inputs)?) as Box<dyn Library>), Ok)
    }

    /// Records the commands of an executable. The outputs may be inputs, or each other.
    pub(crate) fn record(&self, executable: &Executable, inputs: Vec<Memory>) -> Result<Vec<Memory>> {
        let plan = &executable.plan;
        let mut memory: Vec<Option<Memory>> = plan
            .buffers
            .iter()
            .map(|buffer| match buffer.place {
                Place::Input(number) => inputs.get(number).cloned(),
                Place::Constant(number) => executable.constants.get(number).cloned(),
                Place::Arena(_) | Place::Fresh(_) | Place::Rows(_) => None,
            })
            .collect();
        drop(inputs);
        let at = |memory: &mut Vec<Option<Memory>>, id: BufferId| -> Result<Memory> {
            let slot = &mut memory[id.0 as usize];
            if slot.is_none() {
                *slot = Some(self.allocate(plan.buffers[id.0 as usize].bytes)?);
            }
            slot.clone().ok_or_else(|| internal_error!("buffer {} has no memory", id.0))
        };
        for (step, last) in executable.steps.iter().zip(&executable.last) {
            match step {
                Ready::Kernel(prepared, operands) => {
                    let operands =
                        operands.iter().map(|&id| at(&mut memory, id)).collect::<Result<Vec<_>>>()?;
                    self.launch(prepared, &operands)?;
                }
                Ready::Library(library, takes, gives) => {
                    let mut inputs = Vec::with_capacity(takes.len());
                    for (number, take) in takes.iter().enumerate() {
                        inputs.push(at(&mut memory, take.buffer)?);
                        // What nobody needs later is the call's alone, which may write into it.
                        let again = takes[number + 1..].iter().any(|other| other.buffer == take.buffer);
                        if !again && last.contains(&take.buffer) {
                            memory[take.buffer.0 as usize] = None;
                        }
                    }
                    let outputs = library.run(self, &inputs)?;
                    drop(inputs);
                    if outputs.len() != gives.len() {
                        return Err(internal_error!(
                            "{} results of a call that gives {}",
                            outputs.len(),
                            gives.len()
                        ));
                    }
                    for (output, give) in outputs.into_iter().zip(gives) {
                        // Later steps may write over it.
                        let own = if output.is_shared() { self.copy(&output)? } else { output };
                        memory[give.buffer.0 as usize] = Some(own);
                    }
                }
            }
            last.iter().for_each(|id| memory[id.0 as usize] = None);
        }
        plan.outputs.iter().map(|output| at(&mut memory, output.buffer)).collect()
    }
}

/// An op without shaders: on the CPU, to which its operands are copied, and its results back.
#[derive(Debug)]
struct OnCpu {
    name: String,
    inputs: Vec<(DType, Sizes)>,
    executable: ferrax_cpu::Executable,
}

impl OnCpu {
    fn new(op: &Op, inputs: &[Argument]) -> Result<OnCpu> {
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
}
