//! A machine that is slow and obvious: kernels by the interpreter of kernel IR, library calls by reference
//! evaluation, in memory of its own.
//!
//! It is what results of other machines are compared with. Bytes do not lie in its memory as they
//! lie in the host's, so that whoever reads them without asking reads nonsense: what runs on it assumes
//! nothing of where arrays are.

use ferrax_ir::{ArrayType, Op, Result, Tensor, Type, internal_error};

use crate::backend::{Backend, Nested, Output, Target};
use crate::interpret::interpret;
use crate::plan::{Argument, BufferId, Place, Plan, Step};

/// What bytes are combined with in memory.
const MASK: u8 = 0x5a;

/// What is in memory before it is written.
const UNWRITTEN: u8 = 0xa5;

#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// The machine that plans are made for.
    pub target: Target,
}

impl Default for Reference {
    fn default() -> Self {
        Reference { target: Target::CPU }
    }
}

/// Memory of the machine.
#[derive(Debug)]
pub struct Masked(Vec<u8>);

impl Masked {
    fn new(bytes: &[u8]) -> Masked {
        Masked(bytes.iter().map(|byte| byte ^ MASK).collect())
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte ^ MASK).collect()
    }
}

impl Backend for Reference {
    type Buffer = Masked;
    type Executable = Plan;

    fn target(&self) -> Target {
        self.target
    }

    fn bind(&self, plan: Plan, _nested: &mut Nested<'_, Self>) -> Result<Plan> {
        Ok(plan)
    }

    fn upload(&self, bytes: &[u8]) -> Result<Masked> {
        Ok(Masked::new(bytes))
    }

    fn download(&self, buffer: &Masked, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&buffer.bytes());
        Ok(())
    }

    fn run(&self, plan: &Plan, inputs: &[&Masked]) -> Result<Vec<Output<Masked>>> {
        let unwritten = |bytes: usize| vec![UNWRITTEN; bytes];
        let mut run = Run {
            plan,
            inputs: inputs.iter().map(|buffer| buffer.bytes()).collect(),
            fresh: plan.fresh.iter().map(|&bytes| unwritten(bytes)).collect(),
            arena: unwritten(plan.arena),
            rows: plan
                .buffers
                .iter()
                .map(|buffer| {
                    if matches!(buffer.place, Place::Rows(_)) { unwritten(buffer.bytes) } else { Vec::new() }
                })
                .collect(),
        };
        for step in &plan.steps {
            run.step(step)?;
        }
        let output = |argument: &Argument| -> Result<Output<Masked>> {
            let buffer = Masked::new(run.read(argument)?);
            Ok(Output { buffer, dtype: argument.dtype, sizes: argument.sizes.clone() })
        };
        plan.outputs.iter().map(output).collect()
    }
}

/// The memory of a run of a plan.
struct Run<'a> {
    plan: &'a Plan,
    inputs: Vec<Vec<u8>>,
    fresh: Vec<Vec<u8>>,
    arena: Vec<u8>,
    /// What runs of rows have for a block is here for all rows, a piece for each buffer.
    rows: Vec<Vec<u8>>,
}

impl Run<'_> {
    fn bytes(&self, id: BufferId) -> &[u8] {
        let buffer = &self.plan.buffers[id.0 as usize];
        match buffer.place {
            Place::Input(number) => &self.inputs[number],
            Place::Constant(number) => self.plan.constants[number].bytes(),
            Place::Arena(offset) => &self.arena[offset..offset + buffer.bytes],
            Place::Fresh(number) => &self.fresh[number],
            Place::Rows(_) => &self.rows[id.0 as usize],
        }
    }

    fn write(&mut self, id: BufferId, bytes: &[u8]) -> Result<()> {
        let buffer = &self.plan.buffers[id.0 as usize];
        let target = match buffer.place {
            Place::Arena(offset) => &mut self.arena[offset..offset + buffer.bytes],
            Place::Fresh(number) => &mut self.fresh[number][..],
            Place::Rows(_) => &mut self.rows[id.0 as usize][..],
            place => return Err(internal_error!("a step writes to {place}")),
        };
        target.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, argument: &Argument) -> Result<&[u8]> {
        let bytes = self.bytes(argument.buffer);
        if bytes.len() == argument.bytes() {
            return Ok(bytes);
        }
        Err(internal_error!("{argument:?} has {} bytes", bytes.len()))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Kernel { launch, operands } => {
                // Of a buffer that several operands are, each writes its part.
                let before: Vec<Vec<u8>> = operands.iter().map(|&id| self.bytes(id).to_vec()).collect();
                let mut after = before.clone();
                interpret(launch, &mut after)?;
                for ((&id, before), after) in operands.iter().zip(&before).zip(&after) {
                    let mut merged = self.bytes(id).to_vec();
                    for ((to, old), new) in merged.iter_mut().zip(before).zip(after) {
                        if old != new {
                            *to = *new;
                        }
                    }
                    if merged != self.bytes(id) {
                        self.write(id, &merged)?;
                    }
                }
                Ok(())
            }
            Step::Library { op, inputs, outputs, .. } => self.call(op, inputs, outputs),
        }
    }

    fn call(&mut self, op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Result<()> {
        let tensor = |argument: &Argument| {
            Tensor::from_bytes(argument.dtype, argument.sizes.clone(), self.read(argument)?)
        };
        let inputs: Vec<Tensor> = inputs.iter().map(tensor).collect::<Result<_>>()?;
        let types: Vec<Type> = outputs
            .iter()
            .map(|argument| ArrayType::of_sizes(&argument.sizes, argument.dtype).into())
            .collect();
        for (output, result) in outputs.iter().zip(op.eval(&inputs, &types)?) {
            self.write(output.buffer, result.bytes())?;
        }
        Ok(())
    }
}
