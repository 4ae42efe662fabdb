//! Plans on a GPU.
//!
//! Steps are commands that are recorded one after the other, and nobody waits for them. Memory is given out when
//! a step first writes it, and is free after the last that uses it. What there is no shader for (sorting,
//! transforms, decompositions, callbacks) runs on the CPU: its operands are copied there, and its results back.

use std::sync::Arc;

use ferrax_compile::backend::{Event, Nested, Output};
use ferrax_compile::launches::{self, End, Fusion, Group, Machine};
use ferrax_compile::{Argument, Backend, BufferId, Place, Plan, Step, Target};
use ferrax_ir::{DType, Op, Program, Result, Tensor, View, internal_error};

use crate::blocks::Blocks;
use crate::control::{Branches, ScanLoop, WhileLoop, known_steps};
use crate::cost;
use crate::cumulative;
use crate::factorise;
use crate::fft;
use crate::gpu::{Gpu, Prepared};
use crate::library::{Bodies, Body, Library};
use crate::loops;
use crate::machine::{Shaders, target};
use crate::memory::Memory;
use crate::on_cpu::OnCpu;
use crate::product;
use crate::scatter;
use crate::sequence;
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
    in_vain: Option<u64>,
}

#[derive(Debug)]
enum Ready {
    Kernel(Prepared, Vec<BufferId>),
    Library(Box<dyn Library>, Vec<Argument>, Vec<Argument>),
    /// All steps of a run.
    Blocks(Blocks),
}

impl Backend for Gpu {
    type Buffer = Memory;
    type Executable = Executable;

    fn target(&self) -> Target {
        target(self)
    }

    fn prepared(&self, program: &Program) -> Result<Program> {
        ferrax_cpu::persistent::prepared(program)
    }

    fn bind(&self, plan: Plan, nested: &mut Nested<'_, Self>) -> Result<Executable> {
        let constants =
            plan.constants.iter().map(|tensor| Gpu::upload(self, tensor.bytes())).collect::<Result<_>>()?;
        let shaders = Shaders::new(self);
        let (plan, groups) = launches::launches(plan, &shaders)?;
        let uses = last_uses(&plan);
        let mut binder = Binder {
            gpu: self,
            shaders,
            plan: &plan,
            uses,
            steps: Vec::new(),
            last: Vec::new(),
            costs: Vec::new(),
        };
        let mut bodies = |program: &Arc<Program>| Ok(nested.executable(program)? as Arc<dyn Body>);
        for group in groups {
            binder.bind(group, &mut bodies)?;
        }
        let Binder { steps, last, costs, .. } = binder;
        Ok(Executable { constants, last, steps, in_vain: cost::total(costs), plan })
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
        let outputs = executable.record(self, inputs)?;
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

/// An executable while it is put together.
struct Binder<'a> {
    gpu: &'a Gpu,
    shaders: Shaders,
    plan: &'a Plan,
    /// For each step of the plan the buffers that it uses last.
    uses: Vec<Vec<BufferId>>,
    steps: Vec<Ready>,
    last: Vec<Vec<BufferId>>,
    costs: Vec<Option<u64>>,
}

impl Binder<'_> {
    fn bind(&mut self, group: Group, bodies: &mut Bodies<'_>) -> Result<()> {
        let plan = self.plan;
        let all = group.steps(plan);
        match group {
            Group::Step(step, fusion) => return self.step(step, fusion.as_deref(), bodies),
            Group::Together(together) => {
                self.costs.extend(plan.steps[all.clone()].iter().map(|step| match step {
                    Step::Kernel { launch, .. } => Some(cost::of_kernel(launch)),
                    Step::Library { .. } => None,
                }));
                self.steps.push(Ready::Kernel(sequence::prepared(self.gpu, &together)?, together.buffers));
            }
            Group::Run(run) => {
                let bytes = self.shaders.limits().thresholds.block_bytes;
                let Some(blocks) = Blocks::new(self.gpu, plan, &plan.runs[run], bytes)? else {
                    return all.into_iter().try_for_each(|step| self.step(step, None, bodies));
                };
                self.costs.push(Some(blocks.cost));
                self.steps.push(Ready::Blocks(blocks));
            }
        }
        self.last.push(self.uses[all].concat());
        Ok(())
    }

    /// A step of its own; of a product what it took in.
    fn step(&mut self, number: usize, fusion: Option<&Fusion>, bodies: &mut Bodies<'_>) -> Result<()> {
        let plan = self.plan;
        self.steps.push(match &plan.steps[number] {
            Step::Kernel { launch, operands } => {
                let bytes = operands.iter().map(|id| plan.buffers[id.0 as usize].bytes);
                let bytes: Vec<usize> = bytes.collect();
                self.costs.push(Some(cost::of_kernel(launch)));
                Ready::Kernel(self.gpu.prepare(launch, &bytes)?, operands.clone())
            }
            Step::Library { op, inputs, outputs, .. } => {
                let (library, cost) = match fusion {
                    Some(fusion) => {
                        let (inputs, outputs) = fusion.arguments.split_at(2);
                        (product::bind_fused(self.gpu, op, fusion)?, cost::of_call(op, inputs, outputs))
                    }
                    None => {
                        let library = self.library(op, (inputs, outputs), bodies)?;
                        (library, cost::of_call(op, inputs, outputs))
                    }
                };
                self.costs.push(library.in_vain(cost));
                Ready::Library(library, inputs.clone(), outputs.clone())
            }
        });
        self.last.push(self.uses[number].clone());
        Ok(())
    }

    fn library(
        &self,
        op: &Op,
        (inputs, outputs): (&[Argument], &[Argument]),
        bodies: &mut Bodies<'_>,
    ) -> Result<Box<dyn Library>> {
        let (gpu, plan) = (self.gpu, self.plan);
        let known = |argument: &Argument| match plan.buffers[argument.buffer.0 as usize].place {
            Place::Constant(number) => plan.constants.get(number).and_then(Tensor::to_scalar),
            _ => None,
        };
        match op.view() {
            View::While(op) => {
                if let Some(planned) = launches::while_loop(&self.shaders, op, inputs, outputs)?
                    && let End::Holds(holds) = planned.end
                {
                    let known = known_steps(op, inputs, &known)?;
                    return Ok(Box::new(loops::while_loop(gpu, op, (holds, known), planned)?));
                }
                return Ok(Box::new(WhileLoop::new(gpu, op, inputs, &known, bodies)?));
            }
            View::Scan(op) => {
                if let Some(planned) = launches::scan(&self.shaders, op, inputs, outputs)?
                    && let End::Steps(length) = planned.end
                {
                    return Ok(Box::new(loops::scan(gpu, op, length, planned)?));
                }
                return Ok(Box::new(ScanLoop::new(gpu, op, (inputs, outputs), bodies)?));
            }
            View::Cond(op) => return Ok(Box::new(Branches::new(gpu, op, outputs, bodies)?)),
            _ => {}
        }
        let own = match op {
            Op::DotGeneral(_) | Op::ConvGeneralDilated(_) => product::bind(gpu, op, inputs, outputs)?,
            Op::Fft(op) => fft::bind(gpu, op, inputs, outputs)?,
            Op::Cholesky(_)
            | Op::Lu(_)
            | Op::Geqrf(_)
            | Op::TriangularSolve(_)
            | Op::HouseholderProduct(_)
            | Op::Ormqr(_) => factorise::bind(gpu, op, inputs, outputs)?,
            Op::Gather(_) | Op::DynamicSlice(_) => scatter::bind_gather(gpu, op, inputs, outputs)?,
            Op::Scatter(_) | Op::DynamicUpdateSlice(_) => scatter::bind(gpu, op, inputs)?,
            Op::Cumulative(op) => cumulative::bind(gpu, op, inputs)?,
            Op::Sort(_) | Op::TopK(_) => sort::bind(gpu, op, inputs, outputs)?,
            _ => None,
        };
        own.map_or_else(|| Ok(Box::new(OnCpu::new(op, inputs)?) as Box<dyn Library>), Ok)
    }
}

impl Body for Executable {
    fn record(&self, gpu: &Gpu, inputs: Vec<Memory>) -> Result<Vec<Memory>> {
        let plan = &self.plan;
        let mut memory: Vec<Option<Memory>> = plan
            .buffers
            .iter()
            .map(|buffer| match buffer.place {
                Place::Input(number) => inputs.get(number).cloned(),
                Place::Constant(number) => self.constants.get(number).cloned(),
                Place::Arena(_) | Place::Fresh(_) | Place::Rows(_) => None,
            })
            .collect();
        drop(inputs);
        let at = |memory: &mut Vec<Option<Memory>>, id: BufferId| -> Result<Memory> {
            let slot = &mut memory[id.0 as usize];
            if slot.is_none() {
                *slot = Some(gpu.allocate(plan.buffers[id.0 as usize].bytes)?);
            }
            slot.clone().ok_or_else(|| internal_error!("buffer {} has no memory", id.0))
        };
        for (step, last) in self.steps.iter().zip(&self.last) {
            match step {
                Ready::Kernel(prepared, operands) => {
                    let operands =
                        operands.iter().map(|&id| at(&mut memory, id)).collect::<Result<Vec<_>>>()?;
                    gpu.launch(prepared, &operands)?;
                }
                Ready::Blocks(blocks) => blocks.record(gpu, |id| at(&mut memory, id))?,
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
                    let outputs = library.run(gpu, &inputs)?;
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
                        let own = if output.is_shared() { gpu.copy(&output)? } else { output };
                        memory[give.buffer.0 as usize] = Some(own);
                    }
                }
            }
            last.iter().for_each(|id| memory[id.0 as usize] = None);
        }
        plan.outputs.iter().map(|output| at(&mut memory, output.buffer)).collect()
    }

    fn in_vain(&self) -> Option<u64> {
        self.in_vain
    }
}
