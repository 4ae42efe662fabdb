//! Splits a program in two as `split` does, where the unknown half computes
//! again what it needs.
//!
//! In: a program, which of its inputs are unknown, which outputs each half shall
//! give, and a policy. Out: the known half, which gives its outputs and then
//! what the policy saves; the unknown half, which takes some of the known
//! inputs, the saved values and unknown inputs. Invariants: the unknown half
//! needs no known value but inputs and saved ones: all else is computed in it
//! from these, and only if it is needed; what has effects happens in both
//! halves, but for reads and writes of mutable arrays, whose results are saved.
//! The policy is asked once for each known equation, in program order; of an
//! output of an op with sub-programs, it is asked for the equation in there that
//! the output comes from. Known scans and conds give what it saves of their
//! sub-programs, of which each equation is asked about before. Cost: linear.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::PolicyHandle;
use ferrax_ir::{Atom, Effect, Equation, Op, Program, Result, Type, Var};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::control::saved::{again, expose, handed};
use crate::dce::dce_with;
use crate::rewrite::{Needed, Rewriter};
use crate::split::dependence;

/// Where the unknown half finds one of its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Among the known inputs.
    Known(usize),
    /// Among the saved values.
    Saved(usize),
    /// Among the unknown inputs.
    Unknown(usize),
}

pub(crate) struct Remat {
    /// Known inputs to known outputs ++ saved values.
    pub known: Arc<Program>,
    pub saved: usize,
    /// What `inputs` says to the unknown outputs.
    pub unknown: Arc<Program>,
    pub inputs: Vec<Source>,
    /// Whether the unknown half has any equation of the known one.
    pub recomputes: bool,
}

pub(crate) fn rematerialise(
    program: &Program,
    is_unknown: &[bool],
    known_outputs: &[Atom],
    unknown_outputs: &[Atom],
    policy: &PolicyHandle,
) -> Result<Remat> {
    let hides = |equation: &Equation| matches!(equation.op.view(), View::Scan(_) | View::Cond(_));
    if policy.0.is_none() || !program.equations.iter().any(hides) {
        return take_apart(program, is_unknown, known_outputs, unknown_outputs, policy);
    }
    let (_, late) = dependence(program, is_unknown);
    let mut program = program.clone();
    program.outputs = [known_outputs, unknown_outputs].concat();
    let program = expose(&program, |index| !late[index], &|equation, types| {
        saved_outputs(policy, &equation.op, types, equation.outputs.len())
    })?;
    let (known_outputs, unknown_outputs) = program.outputs.split_at(known_outputs.len());
    take_apart(&program, is_unknown, known_outputs, unknown_outputs, policy)
}

fn take_apart(
    program: &Program,
    is_unknown: &[bool],
    known_outputs: &[Atom],
    unknown_outputs: &[Atom],
    policy: &PolicyHandle,
) -> Result<Remat> {
    let (_, late) = dependence(program, is_unknown);
    let mut saveable = vec![false; program.types.len()];
    for (equation, _) in program.equations.iter().zip(&late).filter(|(_, late)| !**late) {
        if equation.op.effects().contains(&Effect::Memory) {
            mark(&mut saveable, &equation.outputs, std::iter::repeat(true));
        } else if policy.0.is_some() {
            let types: SmallVec<[Type; 3]> =
                equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
            let flags = saved_outputs(policy, &equation.op, &types, equation.outputs.len())?;
            mark(&mut saveable, &equation.outputs, flags);
        }
    }

    // What the unknown half needs, found from its end.
    let mut needed = Needed::new(program);
    needed.add(unknown_outputs);
    let mut runs_again = vec![false; program.equations.len()];
    let mut recomputes = false;
    for (index, equation) in program.equations.iter().enumerate().rev() {
        let wanted = equation.outputs.iter().any(|var| needed.contains(*var) && !saveable[var.index()]);
        runs_again[index] = if late[index] {
            needed.any(&equation.outputs) || equation.op.happens()
        } else {
            wanted || (!unknown_outputs.is_empty() && happens_again(&equation.op))
        };
        if runs_again[index] {
            recomputes |= !late[index];
            needed.add(&equation.inputs);
            if !late[index] {
                // Its sub-programs are given what is saved of them.
                let saved = handed(equation).iter().filter(|var| saveable[var.index()]);
                needed.add(&saved.map(|&var| Atom::Var(var)).collect::<Vec<_>>());
            }
        }
    }
    let saved: Vec<Var> = program
        .equations
        .iter()
        .zip(&late)
        .filter(|(_, late)| !**late)
        .flat_map(|(equation, _)| equation.outputs.iter().copied())
        .filter(|&var| saveable[var.index()] && needed.contains(var))
        .collect();

    let mut half = Rewriter::new(program);
    let mut inputs = Vec::new();
    let side = |unknown: bool| {
        program.inputs.iter().zip(is_unknown).filter(move |(_, flag)| **flag == unknown).map(|(var, _)| *var)
    };
    for (position, var) in side(false).enumerate().filter(|(_, var)| needed.contains(*var)) {
        half.input(var);
        inputs.push(Source::Known(position));
    }
    let mut kept = FxHashMap::default();
    for (position, &var) in saved.iter().enumerate() {
        kept.insert(var, half.input(var));
        inputs.push(Source::Saved(position));
    }
    for (position, var) in side(true).enumerate() {
        half.input(var);
        inputs.push(Source::Unknown(position));
    }
    half.constants(|var| needed.contains(var));
    for (equation, _) in program.equations.iter().zip(&runs_again).filter(|(_, flag)| **flag) {
        again(&mut half, equation, &kept)?;
    }
    let unknown = half.finish(unknown_outputs)?;
    // Callees lose what is not needed of them, and this program perhaps inputs with them.
    let (unknown, used) = dce_with(&unknown, &vec![true; unknown_outputs.len()])?;
    let inputs = inputs.into_iter().zip(used).filter(|(_, used)| *used).map(|(source, _)| source).collect();

    let outputs: Vec<Atom> =
        known_outputs.iter().copied().chain(saved.iter().map(|&var| Atom::Var(var))).collect();
    let known = known_half(program, is_unknown, &late, &outputs)?;
    Ok(Remat { known: Arc::new(known), saved: saved.len(), unknown: Arc::new(unknown), inputs, recomputes })
}

/// The equations that depend on no unknown input, without what nobody asks of them.
fn known_half(program: &Program, is_unknown: &[bool], late: &[bool], outputs: &[Atom]) -> Result<Program> {
    let mut needed = Needed::new(program);
    needed.add(outputs);
    let mut inside = vec![false; program.equations.len()];
    for (index, equation) in program.equations.iter().enumerate().rev() {
        let wanted = needed.any(&equation.outputs) || equation.op.happens();
        inside[index] = !late[index] && wanted;
        if inside[index] {
            needed.add(&equation.inputs);
        }
    }
    let mut half = Rewriter::new(program);
    for (&var, _) in program.inputs.iter().zip(is_unknown).filter(|(_, flag)| !**flag) {
        half.input(var);
    }
    half.constants(|var| needed.contains(var));
    for (equation, _) in program.equations.iter().zip(&inside).filter(|(_, inside)| **inside) {
        half.copy(equation)?;
    }
    half.finish(outputs)
}

fn mark(flags: &mut [bool], vars: &[Var], values: impl IntoIterator<Item = bool>) {
    for (var, value) in vars.iter().zip(values) {
        flags[var.index()] = value;
    }
}

/// Whether an equation is done again for what it does besides computing.
fn happens_again(op: &Op) -> bool {
    let effects = op.effects();
    !effects.contains(&Effect::Memory)
        && effects.iter().any(|effect| matches!(effect, Effect::Ordered | Effect::Unordered))
}

/// Which outputs of an equation the policy saves.
fn saved_outputs(
    policy: &PolicyHandle,
    op: &Op,
    types: &[Type],
    outputs: usize,
) -> Result<SmallVec<[bool; 4]>> {
    let programs = match op.view() {
        View::Leaf(_) | View::Ruled(..) => return Ok(smallvec![policy.saves(op, types)?; outputs]),
        View::While(op) => smallvec![&op.body_jaxpr],
        // Its results are those of several bodies.
        View::Sweeps(_) => SmallVec::new(),
        _ => op.programs(),
    };
    let mut flags: SmallVec<[bool; 4]> = smallvec![false; outputs];
    for program in programs {
        for (flag, found) in flags.iter_mut().zip(saved_results(policy, program)?) {
            *flag |= found;
        }
    }
    Ok(flags)
}

/// Which results of a sub-program the policy saves.
fn saved_results(policy: &PolicyHandle, program: &Program) -> Result<Vec<bool>> {
    let mut found: FxHashMap<Var, bool> = FxHashMap::default();
    let mut results = Needed::new(program);
    results.add(&program.outputs);
    for equation in program.equations.iter().filter(|equation| results.any(&equation.outputs)) {
        let types: SmallVec<[Type; 3]> = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
        let flags = saved_outputs(policy, &equation.op, &types, equation.outputs.len())?;
        found.extend(equation.outputs.iter().copied().zip(flags));
    }
    let saved = |atom: &Atom| atom.as_var().is_some_and(|var| found.get(&var) == Some(&true));
    Ok(program.outputs.iter().map(saved).collect())
}
