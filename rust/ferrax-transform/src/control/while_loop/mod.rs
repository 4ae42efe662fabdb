//! Rules of `while`.
//!
//! | module | holds |
//! |---|---|
//! | `forward` | jvp, and linearisation of loops without a bound |
//! | `bounded` | linearisation of loops of at most so many steps |
//! | `counter` | loops whose number of steps is known when they begin |
//! | `transpose` | loops over a counter turned around; others are left to `sweeps` |
//! | `batch` | lanes that stop at steps of their own |
//!
//! As for `scan`, the carries that a rule must treat are looked for from above.

mod batch;
mod bounded;
mod counter;
mod forward;
mod transpose;

use std::sync::Arc;

use ferrax_ir::ops::While;
use ferrax_ir::{Atom, Equation, Program, Result, Type};

use crate::control::scan::{chosen, count, negated, settle, union, within};
use crate::control::wiring::{Input, Wiring, Wirings, old_inputs, old_outputs};
use crate::dce::{Elimination, Kept, Smaller};
use crate::partial_eval::{PartialEval, PartialEvaluation};
use crate::reach::Through;
use crate::rewrite::{Needed, Rewriter, with_weak};

pub(crate) use batch::{batch, cut_off, first_active, keep_unless, made_for, step_for};
pub use counter::{Limit, counter};
pub(crate) use forward::forward;
pub(crate) use transpose::transpose;

/// Which carries the body hands on as they are.
fn invariant_carries(op: &While) -> Vec<bool> {
    let inputs = op.body_jaxpr.inputs.iter().skip(op.body_nconsts);
    inputs.zip(&op.body_jaxpr.outputs).map(|(&var, &atom)| atom == Atom::Var(var)).collect()
}

/// The condition with these further carries behind its own.
fn condition_with(
    wirings: &mut Wirings,
    op: &While,
    before: &[Type],
    after: &[Type],
) -> Result<Arc<Program>> {
    let inputs = old_inputs(0..op.cond_nconsts)
        .chain(before.iter().cloned().map(Input::New))
        .chain(old_inputs(op.cond_nconsts..op.cond_jaxpr.inputs.len()))
        .chain(after.iter().cloned().map(Input::New));
    let wiring = Wiring { inputs: inputs.collect(), outputs: old_outputs(0..1).collect() };
    wirings.wire_shared(&op.cond_jaxpr, wiring)
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown. How often the loop runs is known only when it has run, so the
/// unknown loop does everything again, and the known one what it can.
pub(crate) fn partial_eval(
    evaluation: &mut PartialEvaluation,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &While,
    unknown: &[bool],
) -> Result<Vec<bool>> {
    rewriter.copy(equation)?;
    let (condition_constants, body_constants, given) = op.split(unknown);
    let start = evaluation.reach.while_carry(op, unknown, Through::Everything);
    let (late, found, mut body) = settle(start, given, |carry| {
        let parts = evaluation.callee(&op.body_jaxpr, &[body_constants, carry].concat(), &[])?;
        let found = parts.unknown_out.clone();
        Ok((parts, found))
    })?;
    if !within(&late, &found) {
        body = evaluation.callee(&op.body_jaxpr, &[body_constants, &late].concat(), &late)?;
    }
    let condition = evaluation.callee(&op.cond_jaxpr, &[condition_constants, &late].concat(), &[])?;
    let whole = condition.unknown_out.contains(&true) || !late.contains(&false) || equation.op.happens();
    if whole {
        return Ok(vec![true; equation.outputs.len()]);
    }
    let known = |parts: &PartialEval| Wiring {
        inputs: old_inputs(0..parts.known.inputs.len()).collect(),
        outputs: old_outputs(0..parts.known.outputs.len() - parts.residuals).collect(),
    };
    let made = ("known", [condition_constants, &late].concat(), Vec::new());
    let cond_jaxpr = evaluation.wirings.wire(&op.cond_jaxpr, made, &condition.known, known(&condition))?;
    let made = ("known", [body_constants, &late].concat(), late.clone());
    let body_jaxpr = evaluation.wirings.wire(&op.body_jaxpr, made, &body.known, known(&body))?;
    let known_op = While {
        cond_jaxpr,
        body_jaxpr,
        cond_nconsts: count(&negated(condition_constants)),
        body_nconsts: count(&negated(body_constants)),
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    };
    let early = [negated(condition_constants), negated(body_constants), negated(&late)].concat();
    let inputs: Vec<Atom> = chosen(rewriter.atoms(&equation.inputs)?.iter(), &early).collect();
    let mut results = rewriter.builder.emit(known_op, &inputs)?.into_iter().map(Atom::Var);
    for (&var, _) in equation.outputs.iter().zip(&late).filter(|(_, late)| !**late) {
        if let Some(atom) = results.next() {
            rewriter.set(var, atom);
        }
    }
    Ok(late)
}

/// The op without what nobody needs: a carry is needed if its last value is, if
/// the condition reads it, or if a step needs it for something that is needed.
pub(crate) fn eliminate(
    elimination: &mut Elimination,
    op: &While,
    equation: &Equation,
    needed: &Needed,
) -> Result<Kept> {
    let wanted: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
    let (condition, condition_reads) = elimination.callee(&op.cond_jaxpr, &[true])?;
    let (condition_constants, condition_carry) = condition_reads.split_at(op.cond_nconsts);
    let given = union(&wanted, condition_carry);
    let start = elimination.reach.while_carry_before(op, &given);
    let (carry, _, (body, body_reads)) = settle(start, &given, |carry| {
        let (body, reads) = elimination.callee(&op.body_jaxpr, carry)?;
        let found = reads[op.body_nconsts..].to_vec();
        Ok(((body, reads), found))
    })?;
    let (body_constants, body_carry) = body_reads.split_at(op.body_nconsts);

    let types: Vec<Type> = op.body_jaxpr.input_types().skip(op.body_nconsts).cloned().collect();
    let mut wire = |origin: &Arc<Program>, callee: &Arc<Program>, constants: &[bool], reads: &[bool]| {
        let mut next = count(constants)..callee.inputs.len();
        let own = types.iter().zip(carry.iter().zip(reads)).filter(|(_, (kept, _))| **kept);
        let own = own.map(|(ty, (_, &reads))| {
            let old = if reads { next.next() } else { None };
            old.map_or_else(|| Input::New(ty.clone()), Input::Old)
        });
        let inputs = old_inputs(0..count(constants)).chain(own).collect();
        let wiring = Wiring { inputs, outputs: old_outputs(0..callee.outputs.len()).collect() };
        elimination.wirings.wire(origin, ("kept", carry.clone(), Vec::new()), callee, wiring)
    };
    let cond_jaxpr = wire(&op.cond_jaxpr, &condition, condition_constants, condition_carry)?;
    let body_jaxpr = wire(&op.body_jaxpr, &body, body_constants, body_carry)?;
    if Arc::ptr_eq(&cond_jaxpr, &op.cond_jaxpr) && Arc::ptr_eq(&body_jaxpr, &op.body_jaxpr) {
        return Ok(Kept::Whole);
    }
    let kept = [condition_constants, body_constants, &carry].concat();
    let smaller = While {
        cond_jaxpr,
        body_jaxpr,
        cond_nconsts: count(condition_constants),
        body_nconsts: count(body_constants),
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    };
    Ok(Kept::Smaller(Box::new(Smaller {
        op: smaller.into(),
        inputs: chosen(&equation.inputs, &kept).collect(),
        outputs: chosen(&equation.outputs, &carry).collect(),
    })))
}

/// The outputs of a loop that certainly does not run.
pub(crate) fn skipped(
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &While,
) -> Result<Option<Vec<Atom>>> {
    let holds = op.cond_jaxpr.outputs.first().and_then(Atom::as_literal);
    let never = holds.is_some_and(|literal| literal.value.is_zero());
    if !never || !op.cond_jaxpr.effects.is_empty() {
        return Ok(None);
    }
    let inputs = rewriter.atoms(&equation.inputs)?;
    rewriter.builder.source = equation.source;
    unchanged(rewriter, equation, op.split(&inputs).2).map(Some)
}

/// The initial carry as outputs of the equation.
fn unchanged(rewriter: &mut Rewriter<'_>, equation: &Equation, carry: &[Atom]) -> Result<Vec<Atom>> {
    let types: Vec<Type> = rewriter.output_types(equation).collect();
    let with_type = carry.iter().zip(types).map(|(&atom, ty)| {
        let weak = ty.as_array().is_some_and(|ty| ty.weak);
        with_weak(&mut rewriter.builder, atom, weak)
    });
    with_type.collect()
}
