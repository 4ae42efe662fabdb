//! Plans on a GPU.
//!
//! Steps are commands that are recorded one after the other, and nobody waits for them. Memory is given out when
//! a step first writes it, and is free after the last that uses it. What there is no shader for (sorting,
//! transforms, decompositions, callbacks) runs on the CPU: its operands are copied there, and its results back.

use std::time::Instant;

use ferrax_compile::backend::{Event, Nested, Output};
use ferrax_compile::{Argument, Backend, BufferId, Place, Plan, Step, Target};
use ferrax_ir::{ArrayType, Builder, DType, Op, Program, Result, Sizes, Tensor, View, internal_error};

use crate::blocks::Blocks;
use crate::control::{Branches, ScanLoop, WhileLoop, known_steps};
use crate::cost;
use crate::cumulative;
use crate::factorise;
use crate::fft;
use crate::fuse::fuse;
use crate::gpu::{Gpu, Prepared};
use crate::loops;
use crate::memory::Memory;
use crate::product;
use crate::runs;
use crate::scatter;
use crate::sort;

/// A plan that is ready to run.
#[derive(Debug)]
pub struct Executable {
    plan: Plan,
    constants: Vec<Memory>,
    /// Steps of the plan, of which some are one.
    steps: Vec<Ready>,
    /// For each step the buffers that nobody uses after it.
    last: Vec<Vec<BufferId>>,
    /// What it costs to run it for results that are dropped; none where that is not allowed.
    pub(crate) in_vain: Option<u64>,
}

#[derive(Debug)]
enum Ready {
    Kernel(Prepared, Vec<BufferId>),
    Library(Box<dyn Library>, Vec<Argument>, Vec<Argument>),
    /// All steps of a run.
    Blocks(Blocks),
}

/// A library call that is ready to run: an op with the types of its operands.
pub trait Library: Send + Sync + std::fmt::Debug {
    /// Records the commands that compute the results, which are dense and row-major, as operands are. Results may be
    /// operands, and be written into those that nobody else has.
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>>;

    /// What it costs to run it for results that are dropped, whatever its operands; none where the host would wait,
    /// or something else would happen. `cost` is what it is taken to cost if it only records commands.
    fn in_vain(&self, cost: u64) -> Option<u64> {
        Some(cost)
    }
}

impl Backend for Gpu {
    type Buffer = Memory;
    type Executable = Executable;

    fn target(&self) -> Target {
        Target { operands: self.most_operands(), ..Target::CPU }
    }

    fn prepared(&self, program: &Program) -> Result<Program> {
        ferrax_cpu::persistent::prepared(program)
    }

    fn bind(&self, mut plan: Plan, nested: &mut Nested<'_, Self>) -> Result<Executable> {
        let constants =
            plan.constants.iter().map(|tensor| Gpu::upload(self, tensor.bytes())).collect::<Result<_>>()?;
        plan.runs.retain(Blocks::are_several);
        let (plan, mut fusions) = fuse(plan, self.most_operands());
        let mut steps = Vec::with_capacity(plan.steps.len());
        let mut costs = Vec::with_capacity(plan.steps.len());
        let mut last = Vec::with_capacity(plan.steps.len());
        let mut together = runs::bind(self, &plan)?.into_iter().peekable();
        let mut blocked = plan.runs.iter().peekable();
        let uses = last_uses(&plan);
        let mut number = 0;
        while let Some(step) = plan.steps.get(number) {
            if let Some(run) = together.next_if(|run| run.steps.start == number) {
                number = run.steps.end;
                let launches = plan.steps[run.steps.clone()].iter().map(|step| match step {
                    Step::Kernel { launch, .. } => Some(cost::of_kernel(launch)),
                    Step::Library { .. } => None,
                });
                costs.extend(launches);
                last.push(uses[run.steps].concat());
                steps.push(Ready::Kernel(run.prepared, run.buffers));
                continue;
            }
            let run = blocked.next_if(|run| run.steps.start == number);
            let blocks = run.map(|run| Blocks::new(self, &plan, run)).transpose()?.flatten();
            if let (Some(blocks), Some(run)) = (blocks, run) {
                number = run.steps.end;
                last.push(uses[run.steps.clone()].concat());
                costs.push(Some(blocks.cost));
                steps.push(Ready::Blocks(blocks));
                continue;
            }
            last.push(uses[number].clone());
            let fusion = fusions[number].take();
            number += 1;
            steps.push(match step {
                Step::Kernel { launch, operands } => {
                    let bytes: Vec<usize> =
                        operands.iter().map(|id| plan.buffers[id.0 as usize].bytes).collect();
                    costs.push(Some(cost::of_kernel(launch)));
                    Ready::Kernel(self.prepare(launch, &bytes)?, operands.clone())
                }
                Step::Library { op, inputs, outputs } => {
                    let (library, cost) = match fusion {
                        Some(fusion) => {
                            let (inputs, outputs) = fusion.arguments.split_at(2);
                            (product::bind_fused(self, op, &fusion)?, cost::of_call(op, inputs, outputs))
                        }
                        None => (
                            self.library(&plan, op, (inputs, outputs), nested)?,
                            cost::of_call(op, inputs, outputs),
                        ),
                    };
                    costs.push(library.in_vain(cost));
                    Ready::Library(library, inputs.clone(), outputs.clone())
                }
            });
        }
        Ok(Executable { constants, last, steps, plan, in_vain: cost::total(costs) })
    }

    fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        Gpu::upload(self, bytes)
    }

    fn download(&self, memory: &Memory, to: &mut [u8]) -> Result<()> {
        Gpu::download(self, memory, to)
    }

    fn kept(&self) -> usize {
        self.usage().kept as usize
    }

    fn trim(&self) {
        Gpu::trim(self);
    }

    fn has(&self, dtype: DType) -> bool {
        Gpu::has(self, dtype)
    }

    fn begin_profile(&self) -> Result<()> {
        Gpu::begin_profile(self)
    }

    fn end_profile(&self) -> Result<Vec<Event>> {
        Gpu::end_profile(self)
    }

    fn run(&self, executable: &Executable, inputs: &[&Memory]) -> Result<Vec<Output<Memory>>> {
        self.reach()?;
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
        plan: &Plan,
        op: &Op,
        (inputs, outputs): (&[Argument], &[Argument]),
        nested: &mut Nested<'_, Self>,
    ) -> Result<Box<dyn Library>> {
        let known = |argument: &Argument| match plan.buffers[argument.buffer.0 as usize].place {
            Place::Constant(number) => plan.constants.get(number).and_then(Tensor::to_scalar),
            _ => None,
        };
        let small = match op.view() {
            View::While(op) => {
                let steps = known_steps(op, inputs, &known)?;
                loops::while_loop(self, op, inputs, outputs, steps)?
            }
            View::Scan(op) => loops::scan(self, op, inputs, outputs)?,
            _ => None,
        };
        if let Some(small) = small {
            return Ok(Box::new(small));
        }
        match op.view() {
            View::Cond(op) => return Ok(Box::new(Branches::new(self, op, outputs, nested)?)),
            View::While(op) => return Ok(Box::new(WhileLoop::new(self, op, inputs, &known, nested)?)),
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
                Ready::Blocks(blocks) => blocks.record(self, |id| at(&mut memory, id))?,
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

    fn in_vain(&self, _: u64) -> Option<u64> {
        None
    }
}
