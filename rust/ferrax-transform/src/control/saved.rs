//! What a policy saves inside of scans and branches, on its way out of them and
//! back in.
//!
//! [`expose`]: in, a program, which of its equations count, and what is saved of
//! an equation's outputs; out, the same program, where these scans and conds, and
//! those inside of them, give the saved results of their sub-programs' equations
//! as further outputs. A scan stacks them. Branches share the outputs of one
//! type: each fills as many as it needs, and leaves any value in the others.
//!
//! [`again`]: such an equation run a second time, which is given what was kept of
//! the first instead of computing it.
//!
//! Invariants: outputs that are there already are not given twice. Cost: linear,
//! and each equation in a sub-program is asked about once for each level of
//! nesting.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Cond, Scan};
use ferrax_ir::{ArrayType, Atom, Equation, Op, Program, Result, Type, Var};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::control::wiring::{Output, Wiring, old_inputs, old_outputs, wire};
use crate::rewrite::Rewriter;

/// Which outputs of an equation are saved.
pub(crate) type Saves<'a> = &'a dyn Fn(&Equation, &[Type]) -> Result<SmallVec<[bool; 4]>>;

pub(crate) fn expose(program: &Program, counts: impl Fn(usize) -> bool, saves: Saves<'_>) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    for (index, equation) in program.equations.iter().enumerate() {
        let op: Op = match equation.op.view() {
            View::Scan(op) if counts(index) => {
                let (mut body, more) = exposed(&op.jaxpr, &op.jaxpr.outputs[op.num_carry..], saves)?;
                body.outputs.extend(more.into_iter().map(Atom::Var));
                Scan { jaxpr: Arc::new(body), ..op.clone() }.into()
            }
            View::Cond(op) if counts(index) => Cond { branches: exposed_branches(op, saves)? }.into(),
            _ => {
                rewriter.copy(equation)?;
                continue;
            }
        };
        let inputs = rewriter.atoms(&equation.inputs)?;
        rewriter.builder.source = equation.source;
        let outputs = rewriter.builder.emit(op, &inputs)?;
        for (old, new) in equation.outputs.iter().zip(outputs) {
            rewriter.set(*old, Atom::Var(new));
        }
    }
    rewriter.finish(&program.outputs)
}

/// A sub-program with those inside of it exposed, and what is saved of its own
/// equations besides what is `given` out of it anyway.
fn exposed(program: &Program, given: &[Atom], saves: Saves<'_>) -> Result<(Program, Vec<Var>)> {
    // Outputs are as many as before, in the same places.
    let outputs: Vec<usize> =
        given.iter().filter_map(|atom| program.outputs.iter().position(|output| output == atom)).collect();
    let program = expose(program, |_| true, saves)?;
    let mut given: FxHashSet<Atom> = outputs.into_iter().map(|position| program.outputs[position]).collect();
    let mut more = Vec::new();
    for equation in &program.equations {
        let types: SmallVec<[Type; 3]> = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
        for (&var, saved) in equation.outputs.iter().zip(saves(equation, &types)?) {
            let is_array = program.types[var.index()].as_array().is_some();
            if saved && is_array && given.insert(Atom::Var(var)) {
                more.push(var);
            }
        }
    }
    Ok((program, more))
}

fn exposed_branches(op: &Cond, saves: Saves<'_>) -> Result<Vec<Arc<Program>>> {
    let mut slots: Vec<ArrayType> = Vec::new();
    let mut made = Vec::with_capacity(op.branches.len());
    for branch in &op.branches {
        let (mut program, more) = exposed(branch, &branch.outputs, saves)?;
        let mut filled: Vec<Option<usize>> = vec![None; slots.len()];
        for var in more {
            let Some(ty) = program.types[var.index()].as_array().map(|ty| ty.clone().with_weak(false)) else {
                continue;
            };
            let free = (0..slots.len()).find(|&slot| filled[slot].is_none() && slots[slot] == ty);
            let slot = free.unwrap_or_else(|| {
                slots.push(ty);
                filled.push(None);
                slots.len() - 1
            });
            filled[slot] = Some(program.outputs.len());
            program.outputs.push(Atom::Var(var));
        }
        made.push((program, filled));
    }
    let outputs = op.branches.first().map_or(0, |branch| branch.outputs.len());
    made.into_iter()
        .map(|(program, filled)| {
            let slots = slots.iter().enumerate().map(|(slot, ty)| {
                let position = filled.get(slot).copied().flatten();
                position.map_or_else(|| Output::Filler(ty.clone()), Output::Old)
            });
            let wiring = Wiring {
                inputs: old_inputs(0..program.inputs.len()).collect(),
                outputs: old_outputs(0..outputs).chain(slots).collect(),
            };
            Ok(Arc::new(wire(&program, &wiring)?))
        })
        .collect()
}

/// The outputs of an equation that can be handed into it when it is run again,
/// were they kept: those that its sub-programs compute once.
pub(crate) fn handed(equation: &Equation) -> &[Var] {
    match equation.op.view() {
        View::Scan(op) => &equation.outputs[op.num_carry..],
        View::Cond(_) => &equation.outputs,
        _ => &[],
    }
}

/// Copies an equation that is run again, where `kept` says what its outputs were
/// the first time. What was kept is not computed again inside of it.
pub(crate) fn again(half: &mut Rewriter<'_>, equation: &Equation, kept: &FxHashMap<Var, Atom>) -> Result<()> {
    let outputs = handed(equation);
    let first = equation.outputs.len() - outputs.len();
    let found: Vec<(usize, Atom)> = outputs
        .iter()
        .enumerate()
        .filter_map(|(position, var)| Some((first + position, *kept.get(var)?)))
        .collect();
    match equation.op.view() {
        View::Scan(op) if !found.is_empty() => {
            let positions: Vec<usize> = found.iter().map(|(position, _)| *position).collect();
            let jaxpr = Arc::new(given(&op.jaxpr, &positions)?);
            again_as(half, equation, Scan { jaxpr, ..op.clone() }.into(), &found)?;
        }
        View::Cond(op) if !found.is_empty() => {
            let positions: Vec<usize> = found.iter().map(|(position, _)| *position).collect();
            let branches = op
                .branches
                .iter()
                .map(|branch| given(branch, &positions).map(Arc::new))
                .collect::<Result<_>>()?;
            again_as(half, equation, Cond { branches }.into(), &found)?;
        }
        _ => half.copy(equation)?,
    }
    // An equation may be run again for one output while another is kept.
    for var in &equation.outputs {
        if let Some(&atom) = kept.get(var) {
            half.set(*var, atom);
        }
    }
    Ok(())
}

fn again_as(half: &mut Rewriter<'_>, equation: &Equation, op: Op, found: &[(usize, Atom)]) -> Result<()> {
    let mut inputs = half.atoms(&equation.inputs)?;
    inputs.extend(found.iter().map(|(_, atom)| *atom));
    half.copy_as(equation, op, &inputs)
}

/// A sub-program with a further input for each of these of its outputs, whose value
/// it takes instead of computing it.
fn given(program: &Program, positions: &[usize]) -> Result<Program> {
    let mut inside = Rewriter::with_inputs(program);
    let mut kept = FxHashMap::default();
    for &position in positions {
        let atom = program.outputs[position];
        match atom.as_var() {
            Some(var) if !program.inputs.contains(&var) && !kept.contains_key(&var) => {
                kept.insert(var, inside.input(var));
            }
            _ => {
                inside.builder.input(program.type_of(&atom));
            }
        }
    }
    inside.constants(|var| !kept.contains_key(&var));
    for equation in &program.equations {
        again(&mut inside, equation, &kept)?;
    }
    inside.finish(&program.outputs)
}
