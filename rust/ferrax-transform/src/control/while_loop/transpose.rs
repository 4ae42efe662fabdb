//! Loops turned around.
//!
//! A loop can be turned around if it is one over a counter: it runs while a
//! counter is below a limit, adds one to it at each step, and is linear in the
//! other carries. Then it is known what the counter was at each step, and the
//! backward loop, which counts up too, meets the steps in reverse. Linearised
//! loops with a bound have this form, and so have their transposes. The steps of
//! any other loop must be recorded: see `sweeps`.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, While};
use ferrax_ir::rules::Operand;
use ferrax_ir::{ArrayType, Atom, Builder, Program, Result, Type, internal_error};

use super::bounded::below_limit;
use super::counter::{Limit, counts_up, limit};
use super::invariant_carries;
use crate::control::sweeps;
use crate::reach::Through;
use crate::transpose::{Before, Cotangents, Transposition, Wanted, cotangent_type};

/// The counter of a loop: which carry it is, and what it stays below.
struct Counter {
    carry: usize,
    start: Atom,
    limit: Atom,
    ty: ArrayType,
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &While,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    let (_, constants, given) = op.split(&linear);
    let carry = transposition.reach.while_carry(op, &linear, Through::Everything);
    let Some(counter) = counter(op, operands, &carry) else {
        return sweeps::of_loop(transposition, b, op, operands, cotangents, before);
    };
    let (_, constant_operands, carry_operands) = op.split(operands);

    // How one step is turned around.
    let wanted = [constants, &carry].concat();
    let read = transposition.partly_read.inputs(&op.body_jaxpr);
    let read: Vec<bool> = constants.iter().zip(&*read).map(|(linear, read)| *linear && *read).collect();
    let step = Wanted { instantiate: wanted.clone(), onto: read.clone(), ..Wanted::of(&wanted, &carry) };
    let (step, _) = transposition.flagged(&op.body_jaxpr, step)?;

    // The steps that are made, and the counter at the last one.
    let one = b.int_scalar(counter.ty.dtype, 1);
    let limit = b.binary(Binary::Max, counter.limit, counter.start)?;
    let steps = b.sub(limit, counter.start)?;
    let last = b.add(counter.start, steps)?;
    let last = b.sub(last, one)?;

    let types: Vec<&Type> = op.body_jaxpr.input_types().collect();
    let (constant_types, carry_types) = types.split_at(op.body_nconsts);
    let known_constants: Vec<Atom> = constant_operands.iter().filter_map(Operand::known).collect();
    let known_carries: Vec<(usize, Atom)> = carry_operands
        .iter()
        .enumerate()
        .filter(|(position, _)| !carry[*position] && *position != counter.carry)
        .filter_map(|(position, operand)| Some((position, operand.known()?)))
        .collect();
    let mut arguments = vec![steps, last];
    arguments.extend(&known_constants);
    arguments.extend(known_carries.iter().map(|(_, atom)| *atom));
    arguments.push(b.int_scalar(counter.ty.dtype, 0));
    let mut sum_types: Vec<Type> = Vec::new();
    for (position, ty) in constant_types.iter().enumerate().filter(|(position, _)| constants[*position]) {
        let ty = cotangent_type(array(ty)?);
        let sum = if read[position] { before[op.cond_nconsts + position].take() } else { None };
        arguments.push(match sum {
            Some(sum) => sum,
            None => b.zeros(&ty)?,
        });
        sum_types.push(ty.into());
    }
    let mut cotangent_types: Vec<Type> = Vec::new();
    for ((ty, cotangent), _) in carry_types.iter().zip(cotangents).zip(&carry).filter(|(_, flag)| **flag) {
        let ty = cotangent_type(array(ty)?);
        arguments.push(match cotangent {
            Some(atom) => *atom,
            None => b.zeros(&ty)?,
        });
        cotangent_types.push(ty.into());
    }

    let backward = While {
        cond_nconsts: 1,
        body_nconsts: 1 + known_constants.len() + known_carries.len(),
        cond_jaxpr: Arc::new(below_limit(
            op,
            &counter.ty,
            &[sum_types.as_slice(), &cotangent_types].concat(),
        )?),
        body_jaxpr: Arc::new(backward_body(
            op,
            &step,
            &counter,
            (constants, &carry, &read),
            &known_carries,
            (&sum_types, &cotangent_types),
        )?),
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    };
    let mut found = b.emit(backward, &arguments)?.into_iter().skip(1).map(Atom::Var);
    let mut results = Cotangents::new();
    results.resize(op.cond_nconsts, None);
    for &flag in constants {
        results.push(if flag { found.next() } else { None });
    }
    for (&flag, &is_operand) in carry.iter().zip(given) {
        let cotangent = if flag { found.next() } else { None };
        results.push(cotangent.filter(|_| is_operand));
    }
    Ok(results)
}

/// The last counter, known constants and known carries; a counter of its own,
/// sums of the cotangents of constants, cotangents of carries.
fn backward_body(
    op: &While,
    step: &Arc<Program>,
    counter: &Counter,
    (constants, carry, read): (&[bool], &[bool], &[bool]),
    known_carries: &[(usize, Atom)],
    (sum_types, cotangent_types): (&[Type], &[Type]),
) -> Result<Program> {
    let mut b = Builder::new(op.body_jaxpr.name.clone());
    let last = b.input(counter.ty.clone());
    let types: Vec<&Type> = op.body_jaxpr.input_types().collect();
    let mut arguments: Vec<Atom> = Vec::new();
    for (&ty, _) in types.iter().zip(constants).filter(|(_, flag)| !**flag) {
        arguments.push(b.input(ty.clone()));
    }
    let carry_types = &types[op.body_nconsts..];
    let invariants: Vec<(usize, Atom)> = known_carries
        .iter()
        .map(|(position, _)| (*position, b.input(carry_types[*position].clone())))
        .collect();
    let own = b.input(counter.ty.clone());
    let sums: Vec<Atom> = sum_types.iter().map(|ty| b.input(ty.clone())).collect();
    let cotangents: Vec<Atom> = cotangent_types.iter().map(|ty| b.input(ty.clone())).collect();

    let at = b.sub(last, own)?;
    for position in (0..carry.len()).filter(|&position| !carry[position]) {
        let invariant = invariants.iter().find(|(own, _)| *own == position).map(|(_, atom)| *atom);
        arguments.push(invariant.unwrap_or(at));
    }
    arguments.extend(&cotangents);
    let of_sums: Vec<bool> =
        read.iter().zip(constants).filter(|(_, flag)| **flag).map(|(read, _)| *read).collect();
    arguments.extend(sums.iter().zip(&of_sums).filter(|(_, read)| **read).map(|(sum, _)| *sum));
    let found = crate::control::scan::inline_typed(&mut b, step, &arguments)?;
    let one = b.int_scalar(counter.ty.dtype, 1);
    let mut outputs = vec![b.add(own, one)?];
    for ((&sum, &term), &read) in sums.iter().zip(&found).zip(&of_sums) {
        outputs.push(if read { term } else { b.add(sum, term)? });
    }
    outputs.extend(found.iter().skip(sums.len()));
    Ok(b.finish(outputs))
}

fn array(ty: &Type) -> Result<&ArrayType> {
    ty.as_array().ok_or_else(|| internal_error!("a loop is linear in a value of type {ty}"))
}

/// The counter of a loop whose flagged carries are linear, if it has one: all
/// other carries are the same at every step, and the condition reads nothing
/// else.
fn counter(op: &While, operands: &[Operand], linear: &[bool]) -> Option<Counter> {
    let (condition_operands, _, carry_operands) = op.split(operands);
    let invariant = invariant_carries(op);
    let mut moving = (0..linear.len()).filter(|&position| !linear[position] && !invariant[position]);
    let carry = moving.next()?;
    if moving.next().is_some() || !op.cond_jaxpr.effects.is_empty() {
        return None;
    }
    let ty = op.body_jaxpr.input_types().nth(op.body_nconsts + carry)?.as_array()?.clone();
    let is_counter = ty.rank() == 0 && ty.dtype.is_integer() && counts_up(op, carry);
    let limit = limit(op, carry).filter(|_| is_counter)?;
    let limit = match limit {
        Limit::Literal(literal) => Atom::Literal(literal),
        Limit::Constant(position) => condition_operands.get(position)?.known()?,
        Limit::Carry(position) if invariant[position] && !linear[position] => {
            carry_operands.get(position)?.known()?
        }
        Limit::Carry(_) => return None,
    };
    let start = carry_operands.get(carry)?.known()?;
    Some(Counter { carry, start, limit, ty })
}
