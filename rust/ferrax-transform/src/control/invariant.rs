//! What is the same at every step of a loop.
//!
//! In: the body of a loop and which of its inputs keep their values. Out: a
//! program that computes chosen equations once, from those inputs, and the body
//! without them, which takes their results as its first inputs. Invariants:
//! equations with effects, barriers and the user's own ops stay where they are
//! (effects in any order of a loop that is linearised excepted);
//! what costs no more to do than to read is done in both. Cost: linear.

use ferrax_ir::op::View;
use ferrax_ir::{Atom, Effect, Equation, Op, Program, Result};

use crate::rewrite::{Needed, Rewriter};
use crate::split::is_free;

/// A body in two; see the module.
pub(crate) struct Hoisted {
    /// The flagged inputs to the values that are handed over.
    pub outer: Program,
    /// Those values ++ all inputs of the body, to the body's outputs.
    pub inner: Program,
    /// How many values there are.
    pub handed: usize,
}

/// The equations that give the same values at every step and may be moved; only
/// single ops unless the loop `runs`, for loops in it might never end.
pub(crate) fn invariants(body: &Program, inputs: &[bool], runs: bool) -> Vec<bool> {
    constant_where(body, inputs, |equation| may_move(equation, runs))
}

/// As [`invariants`] of a loop that runs, with effects in any order among them: a
/// loop that is linearised has those of its constants once, as in JAX.
pub(crate) fn invariants_and_effects(body: &Program, inputs: &[bool]) -> Vec<bool> {
    constant_where(body, inputs, |equation| may_move(equation, true) || moves_effect(equation))
}

/// Whether an equation has effects, and none whose order or place matters.
pub(crate) fn moves_effect(equation: &Equation) -> bool {
    let effects = equation.op.effects();
    !effects.is_empty() && effects.iter().all(|effect| *effect == Effect::Unordered)
}

fn constant_where(body: &Program, inputs: &[bool], moves: impl Fn(&Equation) -> bool) -> Vec<bool> {
    let mut same = vec![false; body.types.len()];
    for (var, &flag) in body.inputs.iter().zip(inputs) {
        same[var.index()] = flag;
    }
    for (var, _) in &body.constants {
        same[var.index()] = true;
    }
    body.equations
        .iter()
        .map(|equation| {
            let moves = moves(equation)
                && equation.inputs.iter().filter_map(Atom::as_var).all(|var| same[var.index()]);
            for var in &equation.outputs {
                same[var.index()] = moves;
            }
            moves
        })
        .collect()
}

/// Whether an equation may be done elsewhere; only single ops unless the loop `runs`.
pub(crate) fn may_move(equation: &Equation, runs: bool) -> bool {
    !matches!(equation.op, Op::OptimizationBarrier(_) | Op::Extension(_))
        && (runs || matches!(equation.op.view(), View::Leaf(_)))
        && !equation.op.happens()
}

/// Takes the equations flagged in `roots`, all of them invariant, out of the
/// body together with what they need. Nothing if there is none.
pub(crate) fn hoist(body: &Program, inputs: &[bool], roots: &[bool]) -> Result<Option<Hoisted>> {
    if !roots.contains(&true) {
        return Ok(None);
    }
    let mut needed = Needed::new(body);
    let mut outside = vec![false; body.equations.len()];
    for (index, equation) in body.equations.iter().enumerate().rev() {
        outside[index] = roots[index] || needed.any(&equation.outputs);
        if outside[index] {
            needed.add(&equation.inputs);
        }
    }
    let needed_outside = needed;
    let mut needed = Needed::new(body);
    needed.add(&body.outputs);
    let mut inside = vec![false; body.equations.len()];
    for (index, equation) in body.equations.iter().enumerate().rev() {
        inside[index] =
            !outside[index] || (!roots[index] && is_free(body, equation) && needed.any(&equation.outputs));
        if inside[index] {
            needed.add(&equation.inputs);
        }
    }
    let handed: Vec<_> = body
        .equations
        .iter()
        .zip(outside.iter().zip(&inside))
        .filter(|(_, (outside, inside))| **outside && !**inside)
        .flat_map(|(equation, _)| equation.outputs.iter().copied())
        .filter(|&var| needed.contains(var))
        .collect();

    let mut outer = Rewriter::new(body);
    for (&var, _) in body.inputs.iter().zip(inputs).filter(|(_, flag)| **flag) {
        outer.input(var);
    }
    outer.constants(|var| needed_outside.contains(var));
    for (equation, _) in body.equations.iter().zip(&outside).filter(|(_, flag)| **flag) {
        outer.copy(equation)?;
    }
    let results: Vec<Atom> = handed.iter().map(|&var| Atom::Var(var)).collect();
    let outer = outer.finish(&results)?;

    let mut inner = Rewriter::new(body);
    for &var in handed.iter().chain(&body.inputs) {
        inner.input(var);
    }
    inner.constants(|var| needed.contains(var));
    for (equation, _) in body.equations.iter().zip(&inside).filter(|(_, flag)| **flag) {
        inner.copy(equation)?;
    }
    let inner = inner.finish(&body.outputs)?;
    Ok(Some(Hoisted { outer, inner, handed: handed.len() }))
}
