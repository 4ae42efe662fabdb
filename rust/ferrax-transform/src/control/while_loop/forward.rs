//! Forward-mode derivatives of `while`: one loop with the tangents in its carry,
//! stopped by the primals alone.

use ferrax_ir::ops::While;
use ferrax_ir::{Atom, Equation, Result, Type, internal_error};

use super::{bounded, condition_with};
use crate::control::scan::{count, settle, within};
use crate::control::silent::silenced;
use crate::control::wiring::{Wiring, old_inputs, old_outputs};
use crate::jvp::{Calls, Forward, Tangents};
use crate::reach::Through;
use crate::rewrite::Rewriter;

/// Emits the primal outputs, which it sets, and gives the tangents. Linearised,
/// a loop without a bound, or with checkpoints, is done twice: how often it runs is not known in time
/// to keep what each step needs, so the tangents come from a loop that computes
/// the primals again, without the effects. What is linear in it is a `sweeps`
/// when turned around.
pub(crate) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &While,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let linearizes = forward.calls == Calls::Linearize;
    if let (true, Some(steps), None) = (linearizes, op.max_steps, op.checkpoints) {
        return bounded::forward(forward, rewriter, equation, op, steps, tangents);
    }
    let quiet;
    let op = if linearizes {
        let (cond_jaxpr, body_jaxpr) = (silenced(&op.cond_jaxpr), silenced(&op.body_jaxpr));
        quiet = While { cond_jaxpr: cond_jaxpr?, body_jaxpr: body_jaxpr?, ..op.clone() };
        &quiet
    } else {
        op
    };
    forward.calls = Calls::Jvp;
    let loops = jvp(forward, op, tangents);
    forward.calls = if linearizes { Calls::Linearize } else { Calls::Jvp };
    let (carry_flags, both) = loops?;
    if linearizes || !carry_flags.contains(&true) {
        rewriter.copy(equation)?;
    }
    if !carry_flags.contains(&true) {
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    let inputs = rewriter.atoms(&equation.inputs)?;
    let (condition_constants, body_constants, carry) = op.split(&inputs);
    let (_, constant_tangents, _) = op.split(tangents);
    let constant_tangents: Vec<Atom> = constant_tangents.iter().flatten().copied().collect();
    let carry_tangents = initial_tangents(rewriter, op, &carry_flags, tangents)?;
    let all = [condition_constants, body_constants, &constant_tangents, carry, &carry_tangents].concat();
    let mut results = rewriter.builder.emit(both, &all)?.into_iter().map(Atom::Var);
    for (&var, atom) in equation.outputs.iter().zip(&mut results) {
        if !linearizes {
            rewriter.set(var, atom);
        }
    }
    Ok(carry_flags.iter().map(|&flag| if flag { results.next() } else { None }).collect())
}

/// The tangents of the flagged carries before the loop, zeros where there is none.
pub(super) fn initial_tangents(
    rewriter: &mut Rewriter<'_>,
    op: &While,
    flags: &[bool],
    tangents: &[Option<Atom>],
) -> Result<Vec<Atom>> {
    let types = op.body_jaxpr.input_types().skip(op.body_nconsts);
    let mut all = Vec::new();
    for ((ty, tangent), _) in types.zip(op.split(tangents).2).zip(flags).filter(|(_, flag)| **flag) {
        all.push(match (tangent, ty) {
            (Some(tangent), _) => *tangent,
            (None, Type::Array(ty)) => rewriter.builder.zeros(&ty.tangent())?,
            (None, ty) => return Err(internal_error!("a carry of type {ty} has no tangent")),
        });
    }
    Ok(all)
}

/// The carries that may have tangents: those that are reached and of a kind to have any.
pub(super) fn candidates(
    forward: &mut Forward,
    op: &While,
    tangents: &[Option<Atom>],
) -> (Vec<bool>, Vec<bool>, Vec<bool>) {
    let flags: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let (_, constants, given) = op.split(&flags);
    let inexact = op.body_jaxpr.input_types().skip(op.body_nconsts);
    let inexact = inexact.map(|ty| ty.as_array().is_some_and(|ty| ty.dtype.is_inexact()));
    let start = forward
        .reach
        .while_carry(op, &flags, Through::Tangents)
        .into_iter()
        .zip(inexact)
        .map(|(a, b)| a && b)
        .collect();
    (constants.to_vec(), given.to_vec(), start)
}

/// The loop over primals and tangents, with flags for the carries that have these.
fn jvp(forward: &mut Forward, op: &While, tangents: &[Option<Atom>]) -> Result<(Vec<bool>, While)> {
    let (constants, given, start) = candidates(forward, op, tangents);
    let (carry, found, mut body) = settle(start, &given, |carry| {
        let (body, found) = forward.jvp_callee(&op.body_jaxpr, &[&constants, carry].concat(), &[])?;
        Ok((body, found.to_vec()))
    })?;
    if !within(&carry, &found) {
        body = forward.jvp_callee(&op.body_jaxpr, &[&constants, &carry[..]].concat(), &carry)?.0;
    }
    // Constants, carry, and the tangents of each, in another order.
    let (own, primals) = (op.body_nconsts, op.body_jaxpr.inputs.len());
    let constant_tangents = primals..primals + count(&constants);
    let carry_tangents = constant_tangents.end..body.inputs.len();
    let types: Vec<Type> = body.input_types().skip(carry_tangents.start).cloned().collect();
    let inputs = old_inputs(0..own)
        .chain(old_inputs(constant_tangents))
        .chain(old_inputs(own..primals))
        .chain(old_inputs(carry_tangents));
    let wiring = Wiring { inputs: inputs.collect(), outputs: old_outputs(0..body.outputs.len()).collect() };
    let both = While {
        cond_jaxpr: condition_with(&mut forward.wirings, op, &[], &types)?,
        body_jaxpr: forward.wirings.wire_shared(&body, wiring)?,
        body_nconsts: own + count(&constants),
        ..op.clone()
    };
    Ok((carry, both))
}
