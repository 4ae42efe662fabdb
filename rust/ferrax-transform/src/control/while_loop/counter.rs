//! Loops over a counter: while a carry is below a limit, to which the body adds one at each step.
//!
//! In: a loop. Out: which carry that is, and where the limit stands. Such a loop makes `limit - start` steps, or none
//! if that is negative: no counter is beyond its dtype before it is at the limit. Cost: linear in the loop's programs.

use ferrax_ir::ops::{Binary, Compare, While};
use ferrax_ir::{Atom, Equation, Literal, Op, Program, Type, Var};

use super::invariant_carries;

/// The counter of a loop whose steps are known when it begins: a carry of integers, and a limit that is the same at
/// each step. Other carries may do what they will. Nothing else happens in the condition.
pub fn counter(op: &While) -> Option<(usize, Limit)> {
    let types: Vec<&Type> = op.body_jaxpr.input_types().skip(op.body_nconsts).collect();
    let invariant = invariant_carries(op);
    let is_counter = |carry: &usize| {
        let integer = types[*carry].as_array().is_some_and(|ty| ty.rank() == 0 && ty.dtype.is_integer());
        integer && counts_up(op, *carry)
    };
    if !op.cond_jaxpr.effects.is_empty() {
        return None;
    }
    let (carry, limit) =
        (0..types.len()).filter(is_counter).find_map(|carry| Some((carry, limit(op, carry)?)))?;
    let stays = |position: usize| invariant.get(position).copied().unwrap_or(false);
    match limit {
        Limit::Carry(position) => stays(position),
        Limit::Literal(_) | Limit::Constant(_) => true,
    }
    .then_some((carry, limit))
}

/// Whether the body adds one to the carry.
pub(super) fn counts_up(op: &While, carry: usize) -> bool {
    let body = &op.body_jaxpr;
    let before = body.inputs.get(op.body_nconsts + carry).map(|&var| Atom::Var(var));
    let Some(equation) = body.outputs.get(carry).and_then(|atom| definition(body, *atom)) else {
        return false;
    };
    let is_one = |atom: &Atom| atom.as_literal().is_some_and(|literal| literal.value.is_one());
    match (&equation.op, equation.inputs.as_slice()) {
        (Op::Binary(Binary::Add), [x, y]) => {
            (Some(*x) == before && is_one(y)) || (Some(*y) == before && is_one(x))
        }
        _ => false,
    }
}

/// What a counter stays below.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    Literal(Literal),
    /// A constant of the condition.
    Constant(usize),
    Carry(usize),
}

/// What the condition says that the carry is below, if it says nothing else.
pub(super) fn limit(op: &While, carry: usize) -> Option<Limit> {
    let condition = &op.cond_jaxpr;
    let equation = definition(condition, *condition.outputs.first()?)?;
    let (x, y) = match (&equation.op, equation.inputs.as_slice()) {
        (Op::Compare(Compare::Lt), [x, y]) => (*x, *y),
        (Op::Compare(Compare::Gt), [y, x]) => (*x, *y),
        _ => return None,
    };
    let place = |var: Var| condition.inputs.iter().position(|&input| input == var);
    if place(x.as_var()?)? != op.cond_nconsts + carry {
        return None;
    }
    let position = match y {
        Atom::Literal(literal) => return Some(Limit::Literal(literal)),
        Atom::Var(limit) => place(limit)?,
    };
    Some(match position.checked_sub(op.cond_nconsts) {
        None => Limit::Constant(position),
        Some(carry) => Limit::Carry(carry),
    })
}

fn definition(program: &Program, atom: Atom) -> Option<&Equation> {
    let var = atom.as_var()?;
    program.equations.iter().rev().find(|equation| equation.outputs.contains(&var))
}
