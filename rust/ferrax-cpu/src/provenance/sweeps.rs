//! Into `sweeps`: reverse-mode derivatives of loops. A sweep is a loop over the records of the
//! sweeps before it; a bad record is followed into the sweep that left it.

use ferrax_ir::ops::Sweeps;
use ferrax_ir::{Equation, Result, Tensor, internal_error};

use super::{Loop, Step, Watch};
use crate::backend::compile;

/// Looks into an equation for what made output `number` bad.
pub(super) fn descend(
    op: &Sweeps,
    equation: &Equation,
    operands: &[Tensor],
    number: usize,
    watch: Watch,
) -> Result<Step> {
    let Some(mut sweep) = (0..op.bodies.len()).find(|&sweep| op.carry(sweep).contains(&number)) else {
        return Ok(Step::Whole);
    };
    let constants = &operands[..op.num_consts];
    let mut first = the_loop(op, 0, operands, &[], None)?;
    first.condition = Some((compile(&op.cond_jaxpr)?, constants));
    let length = first.count(op.max_steps)?;
    let mut slot = number - op.carry(sweep).start;
    if length == 0 {
        return Ok(Step::Operand(op.carry_inputs(sweep).start + slot));
    }
    let mut records = Vec::new();
    for earlier in 0..sweep {
        let stacks = the_loop(op, earlier, operands, &records, Some(length))?.stacks(length)?;
        records.extend(stacks);
    }
    let mut step = length - 1;
    loop {
        let seen = &records[..op.records_of(sweep).start];
        let found = the_loop(op, sweep, operands, seen, Some(length))?.follow(equation, slot, step, watch)?;
        let record = match found {
            Step::Operand(position) if position >= operands.len() => position - operands.len(),
            // The infinity came in with a record.
            Step::Found(finding, Some(position)) if position >= operands.len() => {
                return Ok(Step::Found(finding, None));
            }
            found => return Ok(found),
        };
        // To the sweep that left it, at the step of its first bad element.
        let Some(index) = watch.first(&records[record]) else { return Ok(Step::Whole) };
        sweep = (0..sweep)
            .find(|&earlier| op.records_of(earlier).contains(&record))
            .ok_or_else(|| internal_error!("no sweep leaves record {record}"))?;
        slot = op.carry(sweep).len() + record - op.records_of(sweep).start;
        let steps = the_loop(op, sweep, operands, &[], Some(length))?;
        step = steps.turn(index / steps.elements(slot).max(1));
    }
}

/// A sweep over the records of earlier ones, each stacked by step. Records count as operands after
/// the equation's own.
fn the_loop<'a>(
    op: &'a Sweeps,
    sweep: usize,
    operands: &'a [Tensor],
    records: &'a [Tensor],
    length: Option<usize>,
) -> Result<Loop<'a>> {
    let body = op.bodies.get(sweep).ok_or_else(|| internal_error!("sweep {sweep} of {}", op.bodies.len()))?;
    Ok(Loop {
        body,
        executable: compile(body)?,
        constants: &operands[..op.num_consts],
        carry: &operands[op.carry_inputs(sweep)],
        arrays: records,
        length,
        reverse: op.reverse.get(sweep).copied().unwrap_or(false),
        condition: None,
        first: [0, op.carry_inputs(sweep).start, operands.len()],
    })
}

impl Loop<'_> {
    /// What the steps give besides the carry, stacked.
    fn stacks(&self, length: usize) -> Result<Vec<Tensor>> {
        let mut carry = self.carry.to_vec();
        let mut pieces: Vec<Vec<Tensor>> = vec![Vec::new(); length];
        for step in 0..length {
            let mut results = self.executable.run(&self.arguments(&carry, step)?)?.into_vec();
            pieces[self.turn(step)] = results.split_off(self.carry.len());
            carry = results;
        }
        let count = pieces.first().map_or(0, Vec::len);
        let stack = |record: usize| {
            let like = &pieces[0][record];
            let sizes: Vec<usize> = std::iter::once(length).chain(like.sizes().iter().copied()).collect();
            let bytes: Vec<u8> = pieces.iter().flat_map(|step| step[record].bytes()).copied().collect();
            Tensor::from_bytes(like.dtype(), sizes.as_slice(), &bytes)
        };
        (0..count).map(stack).collect()
    }
}
