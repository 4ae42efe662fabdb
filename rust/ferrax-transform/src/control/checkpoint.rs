//! Rules of `checkpoint`.
//!
//! Linearised, it is two checkpoints. The first is the call itself, which also
//! gives what its policy saves. The second goes from inputs, saved values and
//! tangents to tangents, and computes again all else that it needs: it is marked
//! `differentiated`, and since it is one equation that depends on tangents, no
//! other values are kept for it. Transposed it computes those first and then
//! goes backwards. Both can be differentiated further in the same way.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Checkpoint, PolicyHandle};
use ferrax_ir::rules::{Batched, Operand};
use ferrax_ir::{Atom, Builder, Equation, Program, Result, internal_error};

use crate::batch::{Batching, OutDims};
use crate::dce::{Elimination, Kept, Smaller};
use crate::inline::{Inline, inline};
use crate::jvp::{Calls, Forward, Tangents};
use crate::partial_eval::PartialEvaluation;
use crate::remat::{Remat, Source, rematerialise};
use crate::rewrite::{Needed, Rewriter};
use crate::split::{dependence, split};
use crate::transpose::{Before, Cotangents, Transposition, arguments};

/// A checkpointed program in two, with flags of the outputs that the second gives.
pub(crate) struct Rematerialised {
    parts: Remat,
    late_out: Vec<bool>,
}

/// What a checkpointed program was taken apart for: unknown inputs and what is saved.
pub(crate) type Key = (Vec<bool>, PolicyHandle);

impl Rematerialised {
    /// Emits both checkpoints: the outputs of the first (saved values included)
    /// and of the second.
    fn emit(
        &self,
        b: &mut Builder,
        op: &Checkpoint,
        known: &[Atom],
        unknown: &[Atom],
    ) -> Result<(Vec<Atom>, Vec<Atom>)> {
        let parts = &self.parts;
        let first = Checkpoint { jaxpr: parts.known.clone(), ..op.clone() };
        let first: Vec<Atom> = b.emit(first, known)?.into_iter().map(Atom::Var).collect();
        if parts.unknown.outputs.is_empty() && parts.unknown.effects.is_empty() {
            return Ok((first, Vec::new()));
        }
        let saved = &first[first.len() - parts.saved..];
        let inputs: Vec<Atom> = parts
            .inputs
            .iter()
            .map(|source| match *source {
                Source::Known(position) => known.get(position),
                Source::Saved(position) => saved.get(position),
                Source::Unknown(position) => unknown.get(position),
            })
            .map(|atom| atom.copied().ok_or_else(|| internal_error!("a value of a checkpoint is missing")))
            .collect::<Result<_>>()?;
        let second = Checkpoint {
            jaxpr: parts.unknown.clone(),
            differentiated: op.differentiated || parts.recomputes,
            ..op.clone()
        };
        let second = b.emit(second, &inputs)?.into_iter().map(Atom::Var).collect();
        Ok((first, second))
    }
}

/// The program as its policy sees it: without calls.
fn seen_by(policy: &PolicyHandle, program: &Arc<Program>) -> Result<Arc<Program>> {
    match &policy.0 {
        None => Ok(program.clone()),
        Some(_) => Ok(Arc::new(inline(program, Inline::All)?)),
    }
}

/// Whether the derivative of a program runs rules of the user's for which `counts` holds.
fn has_rules(program: &Program, counts: fn(&View<'_>) -> bool) -> bool {
    program.measure(&|program, of| {
        program
            .equations
            .iter()
            .any(|equation| counts(&equation.op.view()) || equation.op.programs().into_iter().any(of))
    })
}

/// Whether the value is the rule's where residuals are made again. What it computes need not be what
/// the function does.
fn gives_value(view: &View<'_>) -> bool {
    match view {
        View::CustomJvp(_) => true,
        View::CustomVjp(op) => !op.rule.0.optimize_remat(),
        _ => false,
    }
}

fn leaves_value(view: &View<'_>) -> bool {
    matches!(view, View::CustomVjp(op) if op.rule.0.optimize_remat())
}

/// What gives the values of a program of which nothing is saved, if that is not its linearised form.
fn values(program: &Arc<Program>, nonzero: &[bool]) -> Result<Option<Arc<Program>>> {
    if !has_rules(program, gives_value) {
        return Ok(Some(program.clone()));
    }
    if !has_rules(program, leaves_value) {
        return Ok(None);
    }
    let mut forward = Forward::new(Calls::Linearize);
    forward.keeps_functions = true;
    let joint = forward.joint(program, nonzero, &[])?;
    let both = joint.builder.finish([]);
    let unknown: Vec<bool> =
        (0..both.inputs.len()).map(|position| position >= program.inputs.len()).collect();
    Ok(Some(Arc::new(split(&both, &unknown, &joint.outputs, &[])?.known)))
}

/// The halves of a program whose inputs flagged in `nonzero` have tangents.
fn linearised(forward: &mut Forward, op: &Checkpoint, nonzero: Vec<bool>) -> Result<Arc<Rematerialised>> {
    let key = (nonzero, op.policy.clone());
    if let Some(found) = forward.rematerialised.get(&op.jaxpr, key.clone()) {
        return Ok(found);
    }
    let program = seen_by(&op.policy, &op.jaxpr)?;
    let joint = forward.joint(&program, &key.0, &[])?;
    let late_out = joint.tangents.iter().map(Option::is_some).collect();
    let tangents: Vec<Atom> = joint.tangents.into_iter().flatten().collect();
    let both = joint.builder.finish([]);
    let unknown: Vec<bool> =
        (0..both.inputs.len()).map(|position| position >= program.inputs.len()).collect();
    let mut parts = rematerialise(&both, &unknown, &joint.outputs, &tangents, &op.policy)?;
    if parts.saved == 0
        && let Some(known) = values(&op.jaxpr, &key.0)?
    {
        parts.known = known;
    }
    let made = Arc::new(Rematerialised { parts, late_out });
    Ok(forward.rematerialised.insert(&op.jaxpr, key, made))
}

/// Emits the primal outputs, which it sets, and gives the tangents.
pub(crate) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Checkpoint,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let arguments = rewriter.atoms(&equation.inputs)?;
    let given: Vec<Atom> = tangents.iter().flatten().copied().collect();
    let (primals, found, flags): (Vec<Atom>, Vec<Atom>, Vec<bool>) = match forward.calls {
        Calls::Jvp => {
            let (jaxpr, flags) = forward.jvp_callee(&op.jaxpr, &nonzero, &[])?;
            let inputs: Vec<Atom> = arguments.iter().copied().chain(given).collect();
            let outputs = rewriter.builder.emit(Checkpoint { jaxpr, ..op.clone() }, &inputs)?;
            let mut primals: Vec<Atom> = outputs.into_iter().map(Atom::Var).collect();
            let found = primals.split_off(equation.outputs.len());
            (primals, found, flags.to_vec())
        }
        Calls::Linearize => {
            let halves = linearised(forward, op, nonzero)?;
            let (primals, found) = halves.emit(&mut rewriter.builder, op, &arguments, &given)?;
            (primals, found, halves.late_out.clone())
        }
    };
    for (&var, atom) in equation.outputs.iter().zip(primals) {
        rewriter.set(var, atom);
    }
    let mut found = found.into_iter();
    Ok(flags.into_iter().map(|flag| if flag { found.next() } else { None }).collect())
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown.
pub(crate) fn partial_eval(
    evaluation: &mut PartialEvaluation,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Checkpoint,
    unknown: &[bool],
) -> Result<Vec<bool>> {
    let program = evaluation.separate_calls(&*seen_by(&op.policy, &op.jaxpr)?, unknown)?;
    let (depends, _) = dependence(&program, unknown);
    let late_out: Vec<bool> =
        program.outputs.iter().map(|atom| atom.as_var().is_some_and(|var| depends[var.index()])).collect();
    if !late_out.contains(&false) {
        // What is known of it is computed in it, as before.
        rewriter.copy(equation)?;
        return Ok(late_out);
    }
    let choose = |want: bool| -> Vec<Atom> {
        program
            .outputs
            .iter()
            .zip(&late_out)
            .filter(|(_, flag)| **flag == want)
            .map(|(atom, _)| *atom)
            .collect()
    };
    let parts = rematerialise(&program, unknown, &choose(false), &choose(true), &op.policy)?;
    let halves = Rematerialised { parts, late_out };
    let arguments = rewriter.atoms(&equation.inputs)?;
    let side = |want: bool| -> Vec<Atom> {
        arguments.iter().zip(unknown).filter(|(_, flag)| **flag == want).map(|(atom, _)| *atom).collect()
    };
    rewriter.builder.source = equation.source;
    let (known, late) = halves.emit(&mut rewriter.builder, op, &side(false), &side(true))?;
    let (mut known, mut late) = (known.into_iter(), late.into_iter());
    for (&var, &is_late) in equation.outputs.iter().zip(&halves.late_out) {
        if let Some(atom) = if is_late { late.next() } else { known.next() } {
            rewriter.set(var, atom);
        }
    }
    Ok(halves.late_out)
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &Checkpoint,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    let given: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    if op.differentiated && !given.contains(&true) && !linear_part_happens(&op.jaxpr, &linear) {
        // Nobody needs what would be computed again.
        return Ok(operands.iter().map(|_| None).collect());
    }
    let sums = transposition.take_read(&op.jaxpr, before);
    let (jaxpr, flags) = transposition.callee(&op.jaxpr, operands, cotangents, &sums)?;
    if jaxpr.outputs.is_empty() && jaxpr.effects.is_empty() {
        return Ok(operands.iter().map(|_| None).collect());
    }
    let inputs = arguments(operands, cotangents, &sums);
    let mut outputs = b.emit(Checkpoint { jaxpr, ..op.clone() }, &inputs)?.into_iter().map(Atom::Var);
    Ok(flags.iter().map(|&flag| if flag { outputs.next() } else { None }).collect())
}

fn linear_part_happens(program: &Program, linear: &[bool]) -> bool {
    let (_, depends) = dependence(program, linear);
    program.equations.iter().zip(depends).any(|(equation, depends)| depends && equation.op.happens())
}

pub(crate) fn batch(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Checkpoint,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let (jaxpr, out_dims) = batching.callee(&op.jaxpr, dims, OutDims::AsIs)?;
    let outputs = b.emit(Checkpoint { jaxpr, ..op.clone() }, inputs)?;
    Ok(outputs.into_iter().map(Atom::Var).zip(out_dims.iter().copied()).collect())
}

/// The op without what nobody needs.
pub(crate) fn eliminate(
    elimination: &mut Elimination,
    op: &Checkpoint,
    equation: &Equation,
    needed: &Needed,
) -> Result<Kept> {
    let used: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
    let (jaxpr, used_inputs) = elimination.callee(&op.jaxpr, &used)?;
    if Arc::ptr_eq(&jaxpr, &op.jaxpr) {
        return Ok(Kept::Whole);
    }
    let inputs =
        equation.inputs.iter().zip(&*used_inputs).filter(|(_, flag)| **flag).map(|(a, _)| *a).collect();
    let outputs = equation.outputs.iter().zip(&used).filter(|(_, flag)| **flag).map(|(v, _)| *v).collect();
    let op = Checkpoint { jaxpr, ..op.clone() };
    Ok(Kept::Smaller(Box::new(Smaller { op: op.into(), inputs, outputs })))
}
