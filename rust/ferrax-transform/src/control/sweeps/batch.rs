//! `sweeps` over a batch.
//!
//! Where lanes have numbers of steps of their own, the sweeps go through as many
//! as the slowest has, and the first records which lanes make each step; in all
//! sweeps the others keep their carry. As in a `while` over a batch, the first
//! sweep makes steps for idle lanes at what they last made one for, so that what
//! later sweeps read of it has derivatives; those are linear in their own carries.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, Call, ReduceKind, Sweeps};
use ferrax_ir::rules::Batched;
use ferrax_ir::{ArrayType, Atom, Builder, Program, Result, Type};

use super::{Flow, invariant_carries};
use crate::batch::{Batching, Dims, OutDims};
use crate::control::scan::{inline_typed, union, within};
use crate::control::while_loop::{cut_off, first_active, keep_unless, made_for, step_for};
use crate::reach::Through;

fn front(flags: &[bool]) -> Dims {
    flags.iter().map(|flag| flag.then_some(0)).collect()
}

/// A batched body and which of its carries are batched.
struct Body {
    program: Arc<Program>,
    carry: Vec<bool>,
}

pub(crate) fn batch(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Sweeps,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let mut flags: Vec<bool> = dims.iter().map(Option::is_some).collect();
    let constants = flags[..op.num_consts].to_vec();
    let mut all = bodies(batching, op, &flags)?;
    let condition_dims = |carry: &[bool]| front(&[&constants, carry].concat());
    let (mut condition, holds) =
        batching.callee(&op.cond_jaxpr, &condition_dims(&all[0].carry), OutDims::Front)?;
    let diverges = holds.iter().any(Option::is_some);
    if diverges {
        // A lane that is done must keep what the others go on with.
        for sweep in 0..op.bodies.len() {
            for (flag, invariant) in
                flags[op.carry_inputs(sweep)].iter_mut().zip(invariant_carries(op, sweep))
            {
                *flag |= !invariant;
            }
        }
        all = bodies(batching, op, &flags)?;
        condition = batching.callee(&op.cond_jaxpr, &condition_dims(&all[0].carry), OutDims::Front)?.0;
    }

    let carry: Vec<bool> = all.iter().flat_map(|body| body.carry.iter().copied()).collect();
    let mut arguments = Vec::with_capacity(inputs.len() + 1);
    for (position, (&atom, &dim)) in inputs.iter().zip(dims).enumerate() {
        let is_batched = position.checked_sub(op.num_consts).is_some_and(|position| carry[position]);
        arguments.push(match dim {
            None if is_batched => batching.materialise(b, atom, None)?,
            dim => batching.to_front(b, atom, dim)?,
        });
    }
    if !diverges {
        let bodies = all.into_iter().map(|body| body.program).collect();
        let outputs = b.emit(Sweeps { bodies, cond_jaxpr: condition, ..op.clone() }, &arguments)?;
        return Ok(outputs.into_iter().map(Atom::Var).zip(front(&carry)).collect());
    }

    // Which lanes go on is the first carry and the first record.
    let call = Call { name: op.cond_jaxpr.name.clone(), program: condition.clone(), inline: false };
    let holds = b.emit1(call, &arguments[..op.carry_inputs(0).end])?;
    let lanes = b.array_type(holds)?;
    let first = arguments[op.carry_inputs(0)].to_vec();
    let made_for = made_for(b, holds, &first, &all[0].carry)?;
    let of_constants = first_active(b, holds, &arguments[..op.num_consts], &constants)?;
    arguments.splice(..op.num_consts, of_constants);
    let mut bodies = Vec::with_capacity(all.len());
    for (sweep, body) in all.iter().enumerate() {
        let first = (sweep == 0).then_some(&condition);
        bodies.push(Arc::new(step(
            op,
            body,
            op.num_carry[sweep],
            &lanes,
            first.map(|condition| &**condition),
        )?));
    }
    let mut num_carry = op.num_carry.clone();
    num_carry[0] += 1 + made_for.len();
    arguments.insert(op.num_consts, holds);
    let end = op.carry_inputs(0).end + 1;
    let added = made_for.len();
    arguments.splice(end..end, made_for);
    let batched = Sweeps { cond_jaxpr: Arc::new(any(op, &all[0], &lanes)?), bodies, num_carry, ..op.clone() };
    let mut outputs = b.emit(batched, &arguments)?.to_vec();
    let own = 1 + op.num_carry[0];
    outputs.drain(own..own + added);
    Ok(outputs.into_iter().skip(1).map(Atom::Var).zip(front(&carry)).collect())
}

/// The batched bodies for these inputs, with carries that stay batched.
fn bodies(batching: &mut Batching<'_>, op: &Sweeps, flags: &[bool]) -> Result<Vec<Body>> {
    let flow = Flow::new(&mut batching.reach, op, flags, Through::Everything);
    let constants = &flags[..op.num_consts];
    let mut seen: Vec<bool> = Vec::new();
    let mut all = Vec::with_capacity(op.bodies.len());
    for (body, start) in op.bodies.iter().zip(flow.carry) {
        let mut carry = start;
        loop {
            let dims = front(&[constants, &carry, &seen].concat());
            let (mut program, found) = batching.callee(body, &dims, OutDims::Front)?;
            let found: Vec<bool> = found.iter().map(Option::is_some).collect();
            let (after, records) = found.split_at(carry.len());
            if !within(after, &carry) {
                carry = union(&carry, after);
                continue;
            }
            if !within(&carry, after) {
                let wanted = front(&[&carry, records].concat());
                program = batching.callee(body, &dims, OutDims::Force(&wanted))?.0;
            }
            seen.extend(records);
            all.push(Body { program, carry });
            break;
        }
    }
    Ok(all)
}

/// Whether a lane goes on.
fn any(op: &Sweeps, body: &Body, lanes: &ArrayType) -> Result<Program> {
    let mut b = Builder::new(op.cond_jaxpr.name.clone());
    let mut types = body.program.input_types();
    for ty in types.by_ref().take(op.num_consts) {
        b.input(ty.clone());
    }
    let holds = b.input(lanes.clone());
    let types: Vec<&Type> = types.collect();
    let made_for = types.iter().zip(&body.carry).filter(|(_, is_batched)| **is_batched);
    for ty in types.iter().copied().chain(made_for.map(|(ty, _)| *ty)) {
        b.input(ty.clone());
    }
    let any = b.reduce(ReduceKind::Or, holds, &[0])?;
    Ok(b.finish([any]))
}

/// A step of the lanes that make it: `holds` is a carry of the first sweep, whose
/// condition is given, and a record in the others.
fn step(
    op: &Sweeps,
    body: &Body,
    carries: usize,
    lanes: &ArrayType,
    condition: Option<&Program>,
) -> Result<Program> {
    let Body { program, carry } = body;
    let mut b = Builder::new(program.name.clone());
    let mut types = program.input_types();
    let constants: Vec<Atom> = types.by_ref().take(op.num_consts).map(|ty| b.input(ty.clone())).collect();
    let (holds, before): (Atom, Vec<Atom>);
    let mut made_for = Vec::new();
    if condition.is_some() {
        holds = b.input(lanes.clone());
        before = types.by_ref().take(carries).map(|ty| b.input(ty.clone())).collect();
        for (&atom, _) in before.iter().zip(carry).filter(|(_, is_batched)| **is_batched) {
            made_for.push(b.input(b.type_of(atom)));
        }
    } else {
        before = types.by_ref().take(carries).map(|ty| b.input(ty.clone())).collect();
        holds = b.input(lanes.clone());
    }
    let records: Vec<Atom> = types.map(|ty| b.input(ty.clone())).collect();
    let mut arguments = constants.clone();
    if condition.is_some() {
        step_for(&mut b, holds, (&before, carry), &mut made_for, &mut arguments)?;
    } else {
        for (&atom, &is_batched) in before.iter().zip(carry) {
            arguments.push(if is_batched { cut_off(&mut b, holds, atom)? } else { atom });
        }
    }
    arguments.extend(records);
    let call = Call { name: program.name.clone(), program: program.clone(), inline: false };
    let mut after = b.emit(call, &arguments)?.into_iter().map(Atom::Var);
    let mut next = Vec::with_capacity(carries);
    for ((&old, new), &is_batched) in before.iter().zip(&mut after).zip(carry) {
        next.push(if is_batched { keep_unless(&mut b, holds, new, old)? } else { old });
    }
    let own: Vec<Atom> = after.collect();
    let Some(condition) = condition else { return Ok(b.finish(next.into_iter().chain(own))) };
    let arguments: Vec<Atom> = constants.into_iter().chain(next.iter().copied()).collect();
    // The constants of a lane without a step may be another's.
    let goes_on = inline_typed(&mut b, condition, &arguments)?[0];
    let goes_on = b.binary(Binary::And, goes_on, holds)?;
    Ok(b.finish([goes_on].into_iter().chain(next).chain(made_for).chain([holds]).chain(own)))
}
