//! Branches and loops: kernels that run executables of their own, which are
//! compiled with the program that they are in.

mod body;
mod branches;
mod native;
mod sweeps;

use std::sync::Arc;

use ferrax_compile::Argument;
use ferrax_compile::plan::ALIGNMENT;
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::ops::{Scan, While};
use ferrax_ir::{Op, Program, Result, internal_error};
use smallvec::{SmallVec, smallvec};

use self::body::{Body, Inner, Loop};
use crate::call::{Call, Held, Kernel};
use crate::machine::Nested;

/// The kernel of a branch or a loop; nothing for other ops.
///
/// `shared` says of an operand and a result whether they may be in the same memory; at a run they are or are not.
pub fn bind(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    shared: &dyn Fn(usize, usize) -> bool,
    nested: &mut Nested<'_>,
) -> Result<Option<Box<dyn Kernel>>> {
    if let Some(native) = native::bind(op, inputs, outputs, nested.backend().tuning())? {
        return Ok(Some(native));
    }
    let steps = match op {
        Op::Cond(_) => 1.0,
        Op::Scan(op) => op.length.as_const().map_or(UNKNOWN_STEPS, |length| length as f64),
        _ => UNKNOWN_STEPS,
    };
    nested.repeated(steps, |nested| match op {
        Op::Cond(op) => branches::cond(op, shared, nested).map(Some),
        Op::While(op) => while_loop(op, shared, nested).map(Some),
        Op::Scan(op) => scan(op, shared, nested).map(Some),
        Op::Sweeps(op) => sweeps::sweeps(op, nested).map(Some),
        _ => Ok(None),
    })
}

/// Steps that a loop is taken to have, where nothing says how many.
const UNKNOWN_STEPS: f64 = 64.0;

#[derive(Debug)]
struct WhileLoop {
    condition: Inner,
    body: Body,
    condition_constants: usize,
    body_constants: usize,
    max_steps: Option<usize>,
    program: Arc<Program>,
    /// For each carry that moves: the buffers of the body's and of the condition's input.
    moving: Vec<(u32, u32)>,
}

fn while_loop(
    op: &While,
    shared: &dyn Fn(usize, usize) -> bool,
    nested: &mut Nested<'_>,
) -> Result<Box<dyn Kernel>> {
    let condition = Inner::new(&op.cond_jaxpr, nested)?;
    let carries = op.body_jaxpr.outputs.len();
    let body = {
        let first = op.cond_nconsts + op.body_nconsts;
        let shared = |carry: usize| shared(first + carry, carry);
        Body::new(&op.body_jaxpr, op.body_nconsts, carries, &shared, nested)?
    };
    let moving = body
        .moving()
        .map(|carry| (body.input(carry), condition.raw.inputs[op.cond_nconsts + carry]))
        .collect();
    Ok(Box::new(WhileLoop {
        condition,
        body,
        condition_constants: op.cond_nconsts,
        body_constants: op.body_nconsts,
        max_steps: op.max_steps,
        program: op.body_jaxpr.clone(),
        moving,
    }))
}

impl WhileLoop {
    /// Where the condition's workspace and its result are.
    fn condition_at(&self) -> (usize, usize) {
        let workspace = self.body.workspace();
        (workspace, workspace + self.condition.raw.workspace())
    }
}

impl Kernel for WhileLoop {
    fn scratch(&self) -> usize {
        self.condition_at().1 + 64
    }

    fn bytes(&self) -> usize {
        self.condition.bytes() + self.body.bytes()
    }

    fn programs(&self) -> SmallVec<[&dyn Held; 2]> {
        smallvec![self.condition.held(), self.body.inner.held()]
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (of_condition, rest) = call.inputs.split_at(self.condition_constants);
        let (of_body, carry) = rest.split_at(self.body_constants);
        let (condition_at, result_at) = self.condition_at();
        // SAFETY: the scratch memory has room for both workspaces and the result; operands have the types
        // of the programs' inputs and outputs, and outputs overlap nothing but the initial value of their carry.
        unsafe {
            let mut condition = self.condition.begin(call.scratch.wrapping_add(condition_at));
            for (position, pointer) in of_condition.iter().chain(carry).enumerate() {
                *condition.input(position) = pointer.cast_mut();
            }
            if let Some(fresh) = self.condition.fresh_of(0) {
                *condition.fresh(fresh) = call.scratch.wrapping_add(result_at);
            }
            let mut body = Loop::begin(&self.body, of_body, carry, call.outputs, call.scratch, false);
            for steps in 0.. {
                condition.run()?;
                if *condition.output(0) == 0 {
                    break;
                }
                within_bound(&self.program, steps, self.max_steps)?;
                body.step(call.outputs, 0, &[], &[])?;
                for &(from, to) in &self.moving {
                    condition.pointers[to as usize] = body.session.pointers[from as usize];
                }
            }
            body.finish(call.outputs);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct ScanLoop {
    body: Body,
    length: usize,
    reverse: bool,
    constants: usize,
    carries: usize,
}

fn scan(
    op: &Scan,
    shared: &dyn Fn(usize, usize) -> bool,
    nested: &mut Nested<'_>,
) -> Result<Box<dyn Kernel>> {
    let length = op.length.as_const();
    let length = length.ok_or_else(|| internal_error!("a scan of symbolic length {}", op.length))?;
    let shared = |carry: usize| shared(op.num_consts + carry, carry);
    let body = Body::new(&op.jaxpr, op.num_consts, op.num_carry, &shared, nested)?;
    Ok(Box::new(ScanLoop {
        body,
        length,
        reverse: op.reverse,
        constants: op.num_consts,
        carries: op.num_carry,
    }))
}

impl Kernel for ScanLoop {
    fn scratch(&self) -> usize {
        self.body.workspace()
    }

    fn bytes(&self) -> usize {
        self.body.bytes()
    }

    fn programs(&self) -> SmallVec<[&dyn Held; 2]> {
        smallvec![self.body.inner.held()]
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (constants, rest) = call.inputs.split_at(self.constants);
        let (carry, arrays) = rest.split_at(self.carries);
        let (outputs, stacks) = call.outputs.split_at(self.carries);
        // SAFETY: the scratch memory has room for the body; operands have the types of its inputs and
        // outputs, arrays and stacks `length` elements of them, and outputs overlap nothing but the initial value of
        // their carry.
        unsafe {
            let even = self.length.is_multiple_of(2);
            let mut body = Loop::begin(&self.body, constants, carry, outputs, call.scratch, even);
            for step in 0..self.length {
                let at = if self.reverse { self.length - 1 - step } else { step };
                body.step(outputs, at, arrays, stacks)?;
            }
            body.finish(outputs);
        }
        Ok(())
    }
}
