//! Forward-mode derivatives of `sweeps`: each sweep takes the tangents of its
//! carry and of the records that it reads along, and records its own.

use std::sync::Arc;

use ferrax_ir::ops::Sweeps;
use ferrax_ir::{Atom, Equation, Program, Result, Type, internal_error};

use super::Flow;
use crate::control::scan::{count, union, within};
use crate::control::silent::silenced;
use crate::control::wiring::{Input, Wiring, old_inputs, old_outputs};
use crate::jvp::{Calls, Forward, Tangents};
use crate::reach::Through;
use crate::rewrite::Rewriter;

/// Emits the primal outputs, which it sets, and gives the tangents. Linearised,
/// the sweeps are done twice, as an unbounded `while` is.
pub(crate) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Sweeps,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let linearizes = forward.calls == Calls::Linearize;
    let flags: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let flow = Flow::new(&mut forward.reach, op, &flags, Through::Tangents);
    if linearizes || !flow.carry.concat().contains(&true) {
        rewriter.copy(equation)?;
    }
    if !flow.carry.concat().contains(&true) {
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    let quiet;
    let op = if linearizes {
        let bodies = op.bodies.iter().map(silenced).collect::<Result<_>>()?;
        quiet = Sweeps { bodies, cond_jaxpr: silenced(&op.cond_jaxpr)?, ..op.clone() };
        &quiet
    } else {
        op
    };
    forward.calls = Calls::Jvp;
    let both = jvp(forward, op, &flags, flow);
    forward.calls = if linearizes { Calls::Linearize } else { Calls::Jvp };
    let (carry, both) = both?;

    let inputs = rewriter.atoms(&equation.inputs)?;
    let mut arguments = inputs[..op.num_consts].to_vec();
    arguments.extend(tangents[..op.num_consts].iter().flatten());
    for (sweep, carry) in carry.iter().enumerate() {
        let range = op.carry_inputs(sweep);
        arguments.extend(&inputs[range.clone()]);
        let types = op.bodies[sweep].input_types().skip(op.num_consts);
        for ((ty, tangent), _) in types.zip(&tangents[range]).zip(carry).filter(|(_, flag)| **flag) {
            arguments.push(match (tangent, ty) {
                (Some(tangent), _) => *tangent,
                (None, Type::Array(ty)) => rewriter.builder.zeros(&ty.tangent())?,
                (None, ty) => return Err(internal_error!("a carry of type {ty} has no tangent")),
            });
        }
    }
    let mut results = rewriter.builder.emit(both, &arguments)?.into_iter().map(Atom::Var);
    let mut found = Tangents::new();
    for (sweep, carry) in carry.iter().enumerate() {
        for (&var, atom) in equation.outputs[op.carry(sweep)].iter().zip(&mut results) {
            if !linearizes {
                rewriter.set(var, atom);
            }
        }
        found.extend(carry.iter().map(|&flag| if flag { results.next() } else { None }));
    }
    Ok(found)
}

/// The sweeps over primals and tangents, with flags for the carries that have these.
fn jvp(forward: &mut Forward, op: &Sweeps, flags: &[bool], flow: Flow) -> Result<(Vec<Vec<bool>>, Sweeps)> {
    let constants = &flags[..op.num_consts];
    let mut carries: Vec<Vec<bool>> = Vec::new();
    // Of the records seen so far.
    let mut seen: Vec<Vec<bool>> = Vec::new();
    let mut bodies = Vec::new();
    for ((sweep, body), start) in op.bodies.iter().enumerate().zip(flow.carry) {
        let mut carry = start;
        let (program, records) = loop {
            let mut instantiate = carry.clone();
            instantiate.resize(body.outputs.len(), false);
            let flags = [constants, &carry, &seen.concat()].concat();
            let (program, found) = forward.jvp_callee(body, &flags, &instantiate)?;
            let (found, records) = found.split_at(carry.len());
            if within(found, &carry) {
                break (program, records.to_vec());
            }
            carry = union(&carry, found);
        };
        let wiring = wiring(op, sweep, constants, &carry, &seen, &records);
        bodies.push(forward.wirings.wire_shared(&program, wiring)?);
        seen.push(records);
        carries.push(carry);
    }
    let more = |position: usize| -> Result<Input> {
        let ty = op.bodies[0].input_types().nth(position).and_then(Type::as_array);
        let ty = ty.ok_or_else(|| internal_error!("a loop is differentiated in what is no array"))?;
        Ok(Input::New(ty.tangent().into()))
    };
    let mut inputs: Vec<Input> = old_inputs(0..op.num_consts).collect();
    for (position, _) in constants.iter().enumerate().filter(|(_, flag)| **flag) {
        inputs.push(more(position)?);
    }
    inputs.extend(old_inputs(op.num_consts..op.cond_jaxpr.inputs.len()));
    for (position, _) in carries[0].iter().enumerate().filter(|(_, flag)| **flag) {
        inputs.push(more(op.num_consts + position)?);
    }
    let condition = Wiring { inputs, outputs: old_outputs(0..1).collect() };
    let cond_jaxpr: Arc<Program> = forward.wirings.wire_shared(&op.cond_jaxpr, condition)?;
    let both = Sweeps {
        bodies,
        cond_jaxpr,
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
        num_carry: op.num_carry.iter().zip(&carries).map(|(own, flags)| own + count(flags)).collect(),
        num_consts: op.num_consts + count(constants),
        reverse: op.reverse.clone(),
    };
    Ok((carries, both))
}

/// The jvp of a body has the tangents behind all primals; here they follow the
/// constants, the carry and the records of each sweep.
fn wiring(
    op: &Sweeps,
    sweep: usize,
    constants: &[bool],
    carry: &[bool],
    seen: &[Vec<bool>],
    records: &[bool],
) -> Wiring {
    let primals = op.bodies[sweep].inputs.len();
    let (mut primal, mut tangent) = (0, primals);
    let mut inputs = Vec::new();
    for flags in [constants, carry].into_iter().chain(seen.iter().map(Vec::as_slice)) {
        inputs.extend(old_inputs(primal..primal + flags.len()));
        inputs.extend(old_inputs(tangent..tangent + count(flags)));
        primal += flags.len();
        tangent += count(flags);
    }
    let all = op.bodies[sweep].outputs.len();
    let (split, moved) = (carry.len(), count(carry));
    let outputs = old_outputs(0..split)
        .chain(old_outputs(all..all + moved))
        .chain(old_outputs(split..all))
        .chain(old_outputs(all + moved..all + moved + count(records)));
    Wiring { inputs, outputs: outputs.collect() }
}
