//! Rules of `sweeps`.
//!
//! | module | holds |
//! |---|---|
//! | `forward` | jvp and linearisation |
//! | `transpose` | loops whose steps must be known to go back through them |
//! | `batch` | lanes that stop at steps of their own |
//! | `partial_eval` | known from unknown carries |
//!
//! Every rule gives a `sweeps` again, so derivatives nest. A `while` is the case
//! of one sweep without records.

mod batch;
mod forward;
mod partial_eval;
mod transpose;

use std::sync::Arc;

use ferrax_ir::ops::{Sweeps, While};
use ferrax_ir::{Atom, Equation, Program, Result, Type};

pub(crate) use batch::batch;
pub(crate) use forward::forward;
pub(crate) use partial_eval::partial_eval;
pub(crate) use transpose::{of_loop, transpose};

use crate::control::scan::{chosen, count, union, within};
use crate::control::wiring::{Input, Wiring, Wirings, old_inputs, old_outputs};
use crate::dce::{Elimination, Kept, Smaller};
use crate::reach::{Reach, Through};
use crate::rewrite::Needed;

/// Flags for the carry and for the records of each sweep.
pub(crate) struct Flow {
    pub carry: Vec<Vec<bool>>,
    pub records: Vec<Vec<bool>>,
    /// Whether the condition is reached.
    pub condition: bool,
}

impl Flow {
    /// What flagged inputs of the op reach.
    pub fn new(reach: &mut Reach, op: &Sweeps, flags: &[bool], through: Through) -> Flow {
        let constants = &flags[..op.num_consts];
        let mut flow = Flow { carry: Vec::new(), records: Vec::new(), condition: false };
        let mut seen: Vec<bool> = Vec::new();
        for (sweep, body) in op.bodies.iter().enumerate() {
            let mut carry = flags[op.carry_inputs(sweep)].to_vec();
            let records = loop {
                let after = reach.outputs(body, &[constants, &carry, &seen].concat(), through);
                let (found, records) = after.split_at(carry.len());
                if within(found, &carry) {
                    break records.to_vec();
                }
                carry = union(&carry, found);
            };
            if sweep == 0 {
                let holds = reach.outputs(&op.cond_jaxpr, &[constants, &carry].concat(), through);
                flow.condition = holds.contains(&true);
            }
            seen.extend(&records);
            flow.carry.push(carry);
            flow.records.push(records);
        }
        flow
    }
}

/// The same loop as one sweep, and its inputs in their new order.
fn of_while(wirings: &mut Wirings, op: &While) -> Result<Sweeps> {
    let (conditions, constants) = (op.cond_nconsts, op.body_nconsts);
    let of_condition: Vec<Type> = op.cond_jaxpr.input_types().take(conditions).cloned().collect();
    let of_body: Vec<Type> = op.body_jaxpr.input_types().take(constants).cloned().collect();
    let inputs = old_inputs(0..conditions)
        .chain(of_body.into_iter().map(Input::New))
        .chain(old_inputs(conditions..op.cond_jaxpr.inputs.len()));
    let condition = Wiring { inputs: inputs.collect(), outputs: old_outputs(0..1).collect() };
    let inputs = of_condition.into_iter().map(Input::New).chain(old_inputs(0..op.body_jaxpr.inputs.len()));
    let carries = op.body_jaxpr.outputs.len();
    let body = Wiring { inputs: inputs.collect(), outputs: old_outputs(0..carries).collect() };
    Ok(Sweeps {
        bodies: vec![wirings.wire_shared(&op.body_jaxpr, body)?],
        cond_jaxpr: wirings.wire_shared(&op.cond_jaxpr, condition)?,
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
        num_carry: vec![carries],
        num_consts: conditions + constants,
        reverse: vec![false],
    })
}

/// Which carries of a sweep its body hands on as they are.
fn invariant_carries(op: &Sweeps, sweep: usize) -> Vec<bool> {
    let body = &op.bodies[sweep];
    let inputs = body.inputs.iter().skip(op.num_consts).take(op.num_carry[sweep]);
    inputs.zip(&body.outputs).map(|(&var, &atom)| atom == Atom::Var(var)).collect()
}

/// What is kept of a sweep.
struct KeptSweep {
    carry: Vec<bool>,
    records: Vec<bool>,
    body: Arc<Program>,
    /// Which inputs the new body reads.
    reads: Vec<bool>,
}

/// The op without what nobody needs: sweeps, carries and records that no result
/// comes from. Steps are counted in any case.
pub(crate) fn eliminate(
    elimination: &mut Elimination,
    op: &Sweeps,
    equation: &Equation,
    needed: &Needed,
) -> Result<Kept> {
    let wanted: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
    let (condition, condition_reads) = elimination.callee(&op.cond_jaxpr, &[true])?;
    let all_records: usize = (0..op.bodies.len()).map(|sweep| op.records(sweep)).sum();
    let mut read_records = vec![false; all_records];
    let mut constants = condition_reads[..op.num_consts].to_vec();
    let mut kept: Vec<KeptSweep> = Vec::with_capacity(op.bodies.len());
    for (sweep, body) in op.bodies.iter().enumerate().rev() {
        let mut carry = wanted[op.carry(sweep)].to_vec();
        if sweep == 0 {
            carry = union(&carry, &condition_reads[op.num_consts..]);
        }
        let records = read_records[op.records_of(sweep)].to_vec();
        let (body, reads) = loop {
            let (body, reads) = elimination.callee(body, &[carry.as_slice(), &records].concat())?;
            let found = &reads[op.carry_inputs(0).start..][..carry.len()];
            if within(found, &carry) {
                break (body, reads);
            }
            carry = union(&carry, found);
        };
        constants = union(&constants, &reads[..op.num_consts]);
        for (flag, read) in read_records.iter_mut().zip(&reads[op.num_consts + carry.len()..]) {
            *flag |= *read;
        }
        kept.push(KeptSweep { carry, records, body, reads: reads.to_vec() });
    }
    kept.reverse();

    let stays = |sweep: usize, kept: &KeptSweep| {
        sweep == 0
            || kept.carry.contains(&true)
            || kept.records.contains(&true)
            || !kept.body.effects.is_empty()
    };
    let staying: Vec<bool> = kept.iter().enumerate().map(|(sweep, kept)| stays(sweep, kept)).collect();
    let record_flags: Vec<bool> = kept.iter().flat_map(|kept| kept.records.iter().copied()).collect();
    let mut bodies = Vec::new();
    for (sweep, own) in kept.iter().enumerate().filter(|(sweep, _)| staying[*sweep]) {
        let seen = op.records_of(sweep).start;
        let flags = [&constants, own.carry.as_slice(), &record_flags[..seen]].concat();
        let made = ("kept", flags.clone(), [&own.carry[..], &own.records].concat());
        let wiring = rewired(&op.bodies[sweep], &own.body, &flags, &own.reads);
        bodies.push(elimination.wirings.wire(&op.bodies[sweep], made, &own.body, wiring)?);
    }
    let flags = [constants.as_slice(), &kept[0].carry].concat();
    let wiring = rewired(&op.cond_jaxpr, &condition, &flags, &condition_reads);
    let cond_jaxpr =
        elimination.wirings.wire(&op.cond_jaxpr, ("kept", flags, Vec::new()), &condition, wiring)?;
    let same = bodies.len() == op.bodies.len()
        && bodies.iter().zip(&op.bodies).all(|(new, old)| Arc::ptr_eq(new, old))
        && Arc::ptr_eq(&cond_jaxpr, &op.cond_jaxpr);
    if same {
        return Ok(Kept::Whole);
    }
    let carries: Vec<bool> = kept.iter().flat_map(|kept| kept.carry.iter().copied()).collect();
    let smaller = Sweeps {
        bodies,
        cond_jaxpr,
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
        num_carry: chosen(&kept.iter().map(|kept| count(&kept.carry)).collect::<Vec<_>>(), &staying)
            .collect(),
        num_consts: count(&constants),
        reverse: chosen(&op.reverse, &staying).collect(),
    };
    Ok(Kept::Smaller(Box::new(Smaller {
        op: smaller.into(),
        inputs: chosen(&equation.inputs, &[constants, carries.clone()].concat()).collect(),
        outputs: chosen(&equation.outputs, &carries).collect(),
    })))
}

/// How `program`, which reads the flagged inputs of `origin`, gets those flagged
/// in `kept`, which are more.
fn rewired(origin: &Program, program: &Program, kept: &[bool], reads: &[bool]) -> Wiring {
    let mut next = 0;
    let mut inputs = Vec::new();
    for (ty, (&kept, &reads)) in origin.input_types().zip(kept.iter().zip(reads)) {
        let old = next;
        next += usize::from(reads);
        if kept {
            inputs.push(if reads { Input::Old(old) } else { Input::New(ty.clone()) });
        }
    }
    Wiring { inputs, outputs: old_outputs(0..program.outputs.len()).collect() }
}
