//! Rules of `cond`.
//!
//! Outputs of branches must agree in number, so whatever a rule gives for one
//! branch (tangents, cotangents, batched or unknown outputs) it gives for all.

mod batch;
mod halves;
mod lanes;

use std::sync::Arc;

use ferrax_ir::ops::Cond;
use ferrax_ir::rules::Operand;
use ferrax_ir::{Atom, Builder, Equation, Program, Result, internal_error, unsupported};
use smallvec::SmallVec;

use crate::control::scan::inline_typed;
use crate::control::wiring::{Input, Wiring, old_outputs};
use crate::dce::{Elimination, Kept, Smaller};
use crate::jvp::{Calls, Forward, Tangents};
use crate::partial_eval::PartialEvaluation;
use crate::rewrite::{Needed, Rewriter, with_weak};
use crate::transpose::{Before, Cotangents, Transposition, Wanted, arguments};

pub(crate) use batch::batch;
use halves::{Branch, Parts};

/// What a pass makes of all branches so that they agree in their flags: `treat`
/// takes a branch and the flags that it must have, and gives those that it has.
fn agreed<T>(
    branches: &[Arc<Program>],
    mut treat: impl FnMut(&Arc<Program>, &[bool]) -> Result<(T, Vec<bool>)>,
) -> Result<(Vec<T>, Vec<bool>)> {
    let mut treated = branches.iter().map(|branch| treat(branch, &[])).collect::<Result<Vec<_>>>()?;
    let mut union: Vec<bool> = treated.first().map(|(_, flags)| flags.clone()).unwrap_or_default();
    for (_, flags) in &treated {
        for (union, flag) in union.iter_mut().zip(flags) {
            *union |= flag;
        }
    }
    for (branch, made) in branches.iter().zip(&mut treated) {
        if made.1 != union {
            *made = treat(branch, &union)?;
        }
    }
    Ok((treated.into_iter().map(|(value, _)| value).collect(), union))
}

/// One of `values` for each flag that is set.
fn spread(flags: &[bool], mut values: impl Iterator<Item = Atom>) -> impl Iterator<Item = Option<Atom>> {
    flags.iter().map(move |&flag| if flag { values.next() } else { None })
}

/// Emits the primal outputs, which it sets, and gives the tangents.
pub(crate) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Cond,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let nonzero: Vec<bool> = tangents.iter().skip(1).map(Option::is_some).collect();
    let inputs = rewriter.atoms(&equation.inputs)?;
    let given = tangents.iter().flatten().copied();
    let outputs = equation.outputs.len();
    if forward.calls == Calls::Linearize {
        let (callees, union) = agreed(&op.branches, |branch, flags| {
            let callee = forward.linearize_callee(branch, &nonzero, flags)?;
            let found = callee.nonzero_out.clone();
            Ok((callee, found))
        })?;
        let branches = op.branches.iter().zip(&callees).map(|(origin, callee)| Branch {
            origin,
            first: &callee.primal,
            second: &callee.linear,
            residuals: callee.residuals,
        });
        let parts = Parts { made: (nonzero, union.clone()), outputs, branches: branches.collect() };
        let late: Vec<Atom> = given.collect();
        let (primals, found) =
            parts.emit(&mut forward.wirings, &mut rewriter.builder, inputs[0], &inputs[1..], &late)?;
        for (&var, atom) in equation.outputs.iter().zip(primals) {
            rewriter.set(var, atom);
        }
        return Ok(spread(&union, found.into_iter()).collect());
    }
    let (branches, union) = agreed(&op.branches, |branch, flags| {
        let (callee, found) = forward.jvp_callee(branch, &nonzero, flags)?;
        Ok((callee, found.to_vec()))
    })?;
    let inputs: Vec<Atom> = inputs.iter().copied().chain(given).collect();
    let mut found = rewriter.builder.emit(Cond { branches }, &inputs)?.into_iter().map(Atom::Var);
    for (&var, atom) in equation.outputs.iter().zip(&mut found) {
        rewriter.set(var, atom);
    }
    Ok(spread(&union, found).collect())
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &Cond,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let Some((index, operands)) = operands.split_first() else {
        return Err(internal_error!("cond without an index"));
    };
    let Some(index) = index.known() else {
        return Err(unsupported!(
            "'cond' has no transpose where the predicate \
             depends on a linear input, a tangent for instance. Rules of derivatives must be linear in tangents: \
             choose the branch by primal values, or use forward mode."
        ));
    };
    let linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    let given: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    // The sums of what some branch reads a part of: the others hand them on.
    let mut sums = Before::from_elem(None, operands.len());
    for branch in &op.branches {
        for (sum, taken) in sums.iter_mut().zip(transposition.take_read(branch, &mut before[1..])) {
            *sum = sum.or(taken);
        }
    }
    let onto: Vec<bool> = sums.iter().map(Option::is_some).collect();
    let (branches, union) = agreed(&op.branches, |branch, flags| {
        let instantiate = flags.to_vec();
        let wanted = Wanted { instantiate, onto: onto.clone(), ..Wanted::of(&linear, &given) };
        let (callee, found) = transposition.flagged(branch, wanted)?;
        Ok((callee, found.to_vec()))
    })?;
    let silent = branches.iter().all(|branch| branch.effects.is_empty());
    if silent && !union.contains(&true) {
        return Ok(SmallVec::from_elem(None, operands.len() + 1));
    }
    let inputs: Vec<Atom> = std::iter::once(index).chain(arguments(operands, cotangents, &sums)).collect();
    let found = b.emit(Cond { branches }, &inputs)?.into_iter().map(Atom::Var);
    Ok(std::iter::once(None).chain(spread(&union, found)).collect())
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown.
pub(crate) fn partial_eval(
    evaluation: &mut PartialEvaluation,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Cond,
    unknown: &[bool],
) -> Result<Vec<bool>> {
    let Some((&unknown_index, unknown)) = unknown.split_first() else {
        return Err(internal_error!("cond without an index"));
    };
    if unknown_index {
        rewriter.copy(equation)?;
        return Ok(vec![true; equation.outputs.len()]);
    }
    let (callees, late_outputs) = agreed(&op.branches, |branch, flags| {
        let callee = evaluation.callee(branch, unknown, flags)?;
        let found = callee.unknown_out.clone();
        Ok((callee, found))
    })?;
    let branches = op.branches.iter().zip(&callees).map(|(origin, callee)| Branch {
        origin,
        first: &callee.known,
        second: &callee.unknown,
        residuals: callee.residuals,
    });
    let parts = Parts {
        made: (unknown.to_vec(), late_outputs.clone()),
        outputs: late_outputs.iter().filter(|late| !**late).count(),
        branches: branches.collect(),
    };
    let inputs = rewriter.atoms(&equation.inputs)?;
    let side = |want: bool| -> Vec<Atom> {
        let operands = inputs[1..].iter().zip(unknown);
        operands.filter(|(_, late)| **late == want).map(|(atom, _)| *atom).collect()
    };
    rewriter.builder.source = equation.source;
    let (known, late) =
        parts.emit(&mut evaluation.wirings, &mut rewriter.builder, inputs[0], &side(false), &side(true))?;
    let (mut known, mut late) = (known.into_iter(), late.into_iter());
    for (&var, &is_late) in equation.outputs.iter().zip(&late_outputs) {
        if let Some(atom) = if is_late { late.next() } else { known.next() } {
            rewriter.set(var, atom);
        }
    }
    Ok(late_outputs)
}

/// The op without what nobody needs: operands that no branch reads, and outputs.
pub(crate) fn eliminate(
    elimination: &mut Elimination,
    op: &Cond,
    equation: &Equation,
    needed: &Needed,
) -> Result<Kept> {
    let used: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
    let callees =
        op.branches.iter().map(|branch| elimination.callee(branch, &used)).collect::<Result<Vec<_>>>()?;
    let operands = equation.inputs.len().saturating_sub(1);
    let kept: Vec<bool> =
        (0..operands).map(|position| callees.iter().any(|(_, reads)| reads[position])).collect();
    let mut branches = Vec::with_capacity(callees.len());
    for (origin, (callee, reads)) in op.branches.iter().zip(&callees) {
        let mut next = 0..callee.inputs.len();
        let inputs = origin.input_types().zip(kept.iter().zip(&**reads)).filter(|(_, (kept, _))| **kept);
        let inputs = inputs
            .map(|(ty, (_, &reads))| {
                let old = if reads { next.next() } else { None };
                old.map_or_else(|| Input::New(ty.clone()), Input::Old)
            })
            .collect();
        let wiring = Wiring { inputs, outputs: old_outputs(0..callee.outputs.len()).collect() };
        let made = ("kept", used.clone(), kept.clone());
        branches.push(elimination.wirings.wire(origin, made, callee, wiring)?);
    }
    if branches.iter().zip(&op.branches).all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Ok(Kept::Whole);
    }
    let chosen = equation.inputs[1..].iter().zip(&kept).filter(|(_, kept)| **kept).map(|(atom, _)| *atom);
    let outputs = equation.outputs.iter().zip(&used).filter(|(_, used)| **used).map(|(var, _)| *var);
    Ok(Kept::Smaller(Box::new(Smaller {
        op: Cond { branches }.into(),
        inputs: equation.inputs.iter().take(1).copied().chain(chosen).collect(),
        outputs: outputs.collect(),
    })))
}

/// The outputs of the branch that is taken in any case, if there is one.
pub(crate) fn decided(
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Cond,
) -> Result<Option<Vec<Atom>>> {
    let inputs = rewriter.atoms(&equation.inputs)?;
    let Some((index, operands)) = inputs.split_first() else { return Ok(None) };
    let last = op.branches.len().saturating_sub(1);
    let index = match index.as_literal().and_then(|literal| literal.value.to_i128()) {
        Some(index) => index.clamp(0, last as i128) as usize,
        None if last == 0 => 0,
        None => return Ok(None),
    };
    let Some(branch) = op.branches.get(index) else { return Ok(None) };
    rewriter.builder.source = equation.source;
    let mut outputs = inline_typed(&mut rewriter.builder, branch, operands)?;
    for (atom, ty) in outputs.iter_mut().zip(rewriter.output_types(equation)) {
        let weak = ty.as_array().is_some_and(|ty| ty.weak);
        *atom = with_weak(&mut rewriter.builder, *atom, weak)?;
    }
    Ok(Some(outputs))
}
