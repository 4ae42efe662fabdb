//! `scan` without what nobody needs.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Builder, Equation, Program, Result};

use super::{chosen, count, key, settle, with_body, with_carry, within};
use crate::dce::{Elimination, Kept, Smaller};
use crate::memo::Flagged;
use crate::rewrite::{Needed, share};

/// The op without what nobody needs: a carry is needed if its last value is, or
/// if a step needs it for something that is needed.
pub(crate) fn eliminate(
    elimination: &mut Elimination,
    op: &Scan,
    equation: &Equation,
    needed: &Needed,
) -> Result<Kept> {
    let wanted: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
    let (body, kept) = body(elimination, op, &wanted)?;
    let (kept_inputs, kept_outputs) = kept.split_at(op.jaxpr.inputs.len());
    if Arc::ptr_eq(&body, &op.jaxpr) {
        return Ok(Kept::Whole);
    }
    let (constants, carry, _) = op.split(kept_inputs);
    let smaller = with_body(op, body, count(constants), count(carry));
    Ok(Kept::Smaller(Box::new(Smaller {
        op: smaller.into(),
        inputs: chosen(&equation.inputs, kept_inputs).collect(),
        outputs: chosen(&equation.outputs, kept_outputs).collect(),
    })))
}

/// The body for the outputs that are wanted, with flags for the inputs and the
/// outputs that it keeps.
fn body(elimination: &mut Elimination, op: &Scan, wanted: &[bool]) -> Result<Flagged> {
    let key = key(op, wanted, &[]);
    if let Some(found) = elimination.scans.get(&op.jaxpr, key.clone()) {
        return Ok(found);
    }
    let start = elimination.reach.carry_before(op, wanted);
    let (given, stacked) = wanted.split_at(op.num_carry);
    let (carry, used, body) = settle(start, given, |carry| {
        let (body, used) = elimination.callee(&op.jaxpr, &[carry, stacked].concat())?;
        let carry = op.split(&used).1.to_vec();
        Ok(((body, used), carry))
    })?;
    let (body, used_inputs) = body;
    let mut kept = with_carry(op, &used_inputs, &carry);
    let body = if within(&carry, &used) {
        body
    } else {
        share(with_inputs(&op.jaxpr, &body, &used_inputs, &kept)?, &op.jaxpr)
    };
    kept.extend(carry);
    kept.extend(stacked);
    Ok(elimination.scans.insert(&op.jaxpr, key, (body, kept.into())))
}

/// `body`, which has the flagged inputs of `original`, with more of them. Carries
/// that no step reads but the caller has a need for keep their place.
fn with_inputs(original: &Program, body: &Program, has: &[bool], wanted: &[bool]) -> Result<Program> {
    let mut b = Builder::new(body.name.clone());
    let mut arguments = Vec::new();
    for ((ty, &has), &wanted) in original.input_types().zip(has).zip(wanted) {
        if wanted {
            let atom: Atom = b.input(ty.clone());
            arguments.extend(has.then_some(atom));
        }
    }
    let outputs = b.inline(body, &arguments)?;
    Ok(b.finish(outputs))
}
