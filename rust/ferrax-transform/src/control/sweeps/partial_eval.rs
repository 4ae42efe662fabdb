//! `sweeps` in two: the steps' number is known only when they have been made, so
//! the unknown half does everything again, and the known one what it can.

use ferrax_ir::ops::Sweeps;
use ferrax_ir::{Atom, Equation, Result};

use super::Flow;
use crate::control::scan::{chosen, count, negated, union, within};
use crate::control::wiring::{Wiring, old_inputs, old_outputs};
use crate::partial_eval::{PartialEval, PartialEvaluation};
use crate::reach::Through;
use crate::rewrite::Rewriter;

/// A half without its residuals.
fn known(parts: &PartialEval) -> Wiring {
    Wiring {
        inputs: old_inputs(0..parts.known.inputs.len()).collect(),
        outputs: old_outputs(0..parts.known.outputs.len() - parts.residuals).collect(),
    }
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown.
pub(crate) fn partial_eval(
    evaluation: &mut PartialEvaluation,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Sweeps,
    unknown: &[bool],
) -> Result<Vec<bool>> {
    rewriter.copy(equation)?;
    let flow = Flow::new(&mut evaluation.reach, op, unknown, Through::Everything);
    let constants = &unknown[..op.num_consts];
    let whole = vec![true; equation.outputs.len()];
    if flow.condition || !flow.carry.concat().contains(&false) || equation.op.happens() {
        return Ok(whole);
    }
    let mut seen: Vec<bool> = Vec::new();
    let mut late: Vec<bool> = Vec::new();
    let mut num_carry = Vec::new();
    let mut bodies = Vec::new();
    let mut cond_jaxpr = op.cond_jaxpr.clone();
    for ((sweep, body), start) in op.bodies.iter().enumerate().zip(flow.carry) {
        let mut carry = start;
        let (parts, flags) = loop {
            let flags = [constants, &carry, &seen].concat();
            let parts = evaluation.callee(body, &flags, &carry)?;
            let found = &parts.unknown_out[..carry.len()];
            if within(found, &carry) {
                break (parts, flags);
            }
            carry = union(&carry, found);
        };
        if sweep == 0 {
            let flags = [constants, &carry].concat();
            let condition = evaluation.callee(&op.cond_jaxpr, &flags, &[])?;
            if condition.unknown_out.contains(&true) {
                return Ok(whole);
            }
            let made = ("known", flags, Vec::new());
            let wiring = known(&condition);
            cond_jaxpr = evaluation.wirings.wire(&op.cond_jaxpr, made, &condition.known, wiring)?;
        }
        let made = ("known", flags, carry.clone());
        bodies.push(evaluation.wirings.wire(body, made, &parts.known, known(&parts))?);
        num_carry.push(count(&negated(&carry)));
        seen.extend(&parts.unknown_out[carry.len()..]);
        late.extend(carry);
    }
    let known_op = Sweeps {
        bodies,
        cond_jaxpr,
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
        num_carry,
        num_consts: count(&negated(constants)),
        reverse: op.reverse.clone(),
    };
    let early = [negated(constants), negated(&late)].concat();
    let inputs: Vec<Atom> = chosen(rewriter.atoms(&equation.inputs)?.iter(), &early).collect();
    let mut results = rewriter.builder.emit(known_op, &inputs)?.into_iter().map(Atom::Var);
    for (&var, _) in equation.outputs.iter().zip(&late).filter(|(_, late)| !**late) {
        if let Some(atom) = results.next() {
            rewriter.set(var, atom);
        }
    }
    Ok(late)
}
