//! A loop whose steps are gone through again: what reverse-mode derivatives of
//! `while` are made of.
//!
//! | op | inputs | outputs |
//! |---|---|---|
//! | `sweeps` | constants, the carry of each sweep | the carry of each sweep |
//!
//! The first sweep is a `while`; it says how many steps there are. Each further
//! sweep visits the same steps, first to last or, where `reverse` says so, last
//! to first, with a carry of its own. A step of a sweep may leave *records*,
//! which the same step of all later sweeps reads. Body `s` takes the constants,
//! carry `s` and the records of sweeps `0..s`; it gives carry `s`, then the
//! records of `s`. The condition takes the constants and carry 0.
//!
//! The number of steps is known at run time only, yet all types are static:
//! records live and die inside the op, on stacks that grow. With `checkpoints`
//! there are no such stacks: of the carry of a sweep that a later one meets in the
//! other direction so many values are kept, the first included, and steps are made
//! again from these, each as seldom as the number of checkpoints and `max_steps`
//! allow. What the op gives is the same.

use std::ops::Range;
use std::sync::Arc;

use super::control::{
    check_arguments, check_carry, check_checkpoints, check_condition, goes_on, union, within_bound,
};
use crate::interpret;
use crate::rules::{Row, Types};
use crate::{Effects, Program, Result, Tensor, Type, op_struct, type_error};

op_struct! {
    /// Runs a loop, then goes through its steps again, forwards or backwards, reading what
    /// earlier sweeps recorded at each.
    Sweeps "sweeps" {
        bodies: Vec<Arc<Program>>,
        checkpoints: Option<usize>,
        cond_jaxpr: Arc<Program>,
        max_steps: Option<usize>,
        num_carry: Vec<usize>,
        num_consts: usize,
        reverse: Vec<bool>,
    }
}

impl Sweeps {
    /// Where the carry of a sweep is among all carries, which are also the outputs.
    pub fn carry(&self, sweep: usize) -> Range<usize> {
        let start = self.num_carry.iter().take(sweep).sum();
        start..start + self.num_carry.get(sweep).copied().unwrap_or(0)
    }

    /// The same among the inputs.
    pub fn carry_inputs(&self, sweep: usize) -> Range<usize> {
        let Range { start, end } = self.carry(sweep);
        self.num_consts + start..self.num_consts + end
    }

    /// How many records a step of a sweep leaves.
    pub fn records(&self, sweep: usize) -> usize {
        let carry = self.num_carry.get(sweep).copied().unwrap_or(0);
        self.bodies.get(sweep).map_or(0, |body| body.outputs.len().saturating_sub(carry))
    }

    /// Where its records are among all.
    pub fn records_of(&self, sweep: usize) -> Range<usize> {
        let start = (0..sweep).map(|earlier| self.records(earlier)).sum();
        start..start + self.records(sweep)
    }

    fn check_form(&self, inputs: usize) -> Result<()> {
        let sweeps = self.bodies.len();
        let fits = sweeps > 0
            && self.num_carry.len() == sweeps
            && self.reverse.len() == sweeps
            && self.reverse.first() == Some(&false)
            && inputs == self.num_consts + self.num_carry.iter().sum::<usize>()
            && self.bodies.iter().zip(&self.num_carry).all(|(body, &carry)| body.outputs.len() >= carry);
        if fits {
            return Ok(());
        }
        Err(type_error!(
            "sweeps requires a body, a number of carries and a direction for each sweep, the first one forwards, \
             and as many inputs as constants and carries; got {sweeps} bodies, carries {:?}, reverse {:?}, {} \
             constants and {inputs} inputs",
            self.num_carry,
            self.reverse,
            self.num_consts
        ))
    }
}

impl Row for Sweeps {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        self.check_form(inputs.len())?;
        check_checkpoints(self.checkpoints)?;
        let constants = &inputs[..self.num_consts];
        let first = &inputs[self.carry_inputs(0)];
        let arguments: Vec<Type> = constants.iter().chain(first).cloned().collect();
        check_arguments("condition", &self.cond_jaxpr, arguments.iter())?;
        check_condition(&self.cond_jaxpr)?;
        let mut records: Vec<Type> = Vec::new();
        let mut outputs = Types::new();
        for (sweep, body) in self.bodies.iter().enumerate() {
            let carry = &inputs[self.carry_inputs(sweep)];
            let arguments: Vec<Type> = constants.iter().chain(carry).chain(&records).cloned().collect();
            check_arguments("body", body, arguments.iter())?;
            let mut after: Vec<Type> = body.output_types().collect();
            records.extend(after.drain(carry.len()..));
            check_carry("sweeps", body, carry, &after)?;
            outputs.extend(after);
        }
        match records.iter().find(|ty| ty.as_array().is_none()) {
            Some(ty) => Err(type_error!("sweeps cannot record {ty}")),
            None => Ok(outputs),
        }
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let constants = &inputs[..self.num_consts];
        let mut carry = inputs[self.carry_inputs(0)].to_vec();
        let mut outputs = Vec::new();
        // Of each step: what the sweeps so far have left.
        let mut records: Vec<Vec<Tensor>> = Vec::new();
        let step = |body: &Program, carry: &mut Vec<Tensor>, records: &mut Vec<Tensor>| {
            let arguments: Vec<Tensor> =
                constants.iter().chain(carry.iter()).chain(records.iter()).cloned().collect();
            let mut after = interpret::run(body, &arguments)?;
            records.extend(after.drain(carry.len()..));
            *carry = after;
            Result::Ok(())
        };
        for (sweep, (body, &reverse)) in self.bodies.iter().zip(&self.reverse).enumerate() {
            if sweep == 0 {
                while goes_on(&self.cond_jaxpr, constants, &carry)? {
                    within_bound(body, records.len(), self.max_steps)?;
                    let mut own = Vec::new();
                    step(body, &mut carry, &mut own)?;
                    records.push(own);
                }
            } else {
                carry = inputs[self.carry_inputs(sweep)].to_vec();
                for at in 0..records.len() {
                    let at = if reverse { records.len() - 1 - at } else { at };
                    step(body, &mut carry, &mut records[at])?;
                }
            }
            outputs.append(&mut carry);
        }
        Ok(outputs)
    }

    fn effects(&self) -> Effects {
        union(self.bodies.iter().chain([&self.cond_jaxpr]))
    }
}
