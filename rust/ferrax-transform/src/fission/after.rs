//! Products that only stacked outputs depend on, made for all steps at once,
//! together with all that depends on them.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Builder, Equation, Program, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Place, Stacks, bytes, bytes_of, product, projection};
use crate::batch::{OutDims, batch};
use crate::control::invariant::may_move;
use crate::rewrite::{Needed, Rewriter};
use crate::split::dependence;

/// See [`super::Rule`].
pub(super) fn after(b: &mut Builder, op: &Scan, inputs: &[Atom], length: usize) -> Result<Option<Vec<Atom>>> {
    let body = &op.jaxpr;
    if !body.equations.iter().any(|equation| product(equation).is_some()) {
        return Ok(None);
    }
    let changing: Vec<bool> = (0..body.inputs.len()).map(|position| position >= op.num_consts).collect();
    let (varies, _) = dependence(body, &changing);
    let Some(tail) = Tail::find(op, &varies) else { return Ok(None) };
    let is_moved = |atom: &Atom| tail.given.contains(atom);
    let moved: Vec<Atom> =
        body.outputs[op.num_carry..].iter().copied().filter(|atom| is_moved(atom)).collect();
    if moved.is_empty() {
        return Ok(None);
    }
    let mut stacks = Stacks::new(op, |atom| !is_moved(atom));
    let (stacked, same): (Vec<Atom>, Vec<Atom>) =
        tail.taken.iter().partition(|atom| atom.as_var().is_some_and(|var| varies[var.index()]));
    let Some(computed) = bytes_of(body, tail.equations.iter().copied()) else { return Ok(None) };
    // What a step reads of the factors is saved, what it stacks is paid.
    if !stacks.take(op, &stacked, tail.factors, computed, length) {
        return Ok(None);
    }

    let program = tail.program(body, &same, &stacked, &moved)?;
    let mut dims = vec![None; same.len()];
    dims.resize(same.len() + stacked.len(), Some(0));
    let (program, found) = batch(&program, &op.length, &dims, None, OutDims::Front)?;

    let mut jaxpr = Program::clone(body);
    jaxpr.outputs.truncate(op.num_carry);
    jaxpr.outputs.extend(&stacks.outputs);
    let results = b.emit(Scan { jaxpr: Arc::new(jaxpr), ..op.clone() }, inputs)?;
    let results: Vec<Atom> = results.into_iter().map(Atom::Var).collect();
    let (carry, stays) = results.split_at(op.num_carry);
    let (constants, _, arrays) = op.split(inputs);
    let constants: FxHashMap<_, _> = body.inputs.iter().copied().zip(constants.iter().copied()).collect();
    let constant = |atom: &Atom| constants.get(&atom.as_var()?).copied();
    let mut arguments: Vec<Atom> = same.iter().filter_map(constant).collect();
    arguments.extend(stacked.iter().map(|atom| match stacks.places[atom] {
        Place::Element(position) => arrays[position],
        Place::Stacked(position) => stays[position],
    }));
    let values = b.inline(&program, &arguments)?;

    let mut all = carry.to_vec();
    let (mut values, mut stays) = (values.into_iter().zip(found), stays.iter().copied());
    for atom in &body.outputs[op.num_carry..] {
        if !is_moved(atom) {
            all.extend(stays.next());
            continue;
        }
        all.extend(match values.next() {
            Some((value, None)) => Some(b.broadcast_batch(value, &op.length, 0)?),
            other => other.map(|(value, _)| value),
        });
    }
    Ok(Some(all))
}

/// What moves.
struct Tail<'a> {
    /// The products, what depends on them, and what that takes of what is the same at every step.
    equations: Vec<&'a Equation>,
    /// What the products and what depends on them give.
    given: FxHashSet<Atom>,
    /// What it takes of the rest of the body.
    taken: Vec<Atom>,
    /// Bytes of the factors that are the same at every step.
    factors: usize,
}

impl<'a> Tail<'a> {
    fn find(op: &'a Scan, varies: &[bool]) -> Option<Self> {
        let body = &op.jaxpr;
        // What the carry or something that must stay depends on.
        let mut kept = Needed::new(body);
        kept.add(&body.outputs[..op.num_carry]);
        let mut is_late = vec![false; body.equations.len()];
        for (index, equation) in body.equations.iter().enumerate().rev() {
            is_late[index] = may_move(equation, false) && !kept.any(&equation.outputs);
            if !is_late[index] {
                kept.add(&equation.inputs);
            }
        }
        let mut given = FxHashSet::default();
        let mut moves = vec![false; body.equations.len()];
        let mut factors = 0;
        for (index, equation) in body.equations.iter().enumerate().filter(|(index, _)| is_late[*index]) {
            let factor = projection(body, equation, varies);
            moves[index] = factor.is_some() || equation.inputs.iter().any(|atom| given.contains(atom));
            if moves[index] {
                factors += factor.and_then(|factor| bytes(&body.type_of(&factor))).unwrap_or(0);
                given.extend(equation.outputs.iter().map(|&var| Atom::Var(var)));
            }
        }
        if given.is_empty() {
            return None;
        }

        let mut needed = Needed::new(body);
        for (index, equation) in body.equations.iter().enumerate().rev() {
            let same = equation.outputs.iter().all(|var| !varies[var.index()]);
            if !moves[index] && same && needed.any(&equation.outputs) {
                if !may_move(equation, false) {
                    return None;
                }
                moves[index] = true;
            }
            if moves[index] {
                needed.add(&equation.inputs);
            }
        }
        let equations: Vec<&Equation> = body
            .equations
            .iter()
            .zip(&moves)
            .filter(|(_, moves)| **moves)
            .map(|(equation, _)| equation)
            .collect();
        let mut own: FxHashSet<Atom> = body.constants.iter().map(|(var, _)| Atom::Var(*var)).collect();
        own.extend(equations.iter().flat_map(|equation| &equation.outputs).map(|&var| Atom::Var(var)));
        let mut taken = Vec::new();
        for &atom in equations.iter().flat_map(|equation| &equation.inputs) {
            if atom.as_var().is_some() && own.insert(atom) {
                taken.push(atom);
            }
        }
        Some(Tail { equations, given, taken, factors })
    }

    /// From `same` and `stacked`, which are what it takes, to the values `outputs`.
    fn program(&self, body: &Program, same: &[Atom], stacked: &[Atom], outputs: &[Atom]) -> Result<Program> {
        let mut rewriter = Rewriter::new(body);
        for var in same.iter().chain(stacked).filter_map(Atom::as_var) {
            rewriter.input(var);
        }
        rewriter.constants(|_| true);
        for equation in &self.equations {
            rewriter.copy(equation)?;
        }
        rewriter.finish(outputs)
    }
}
