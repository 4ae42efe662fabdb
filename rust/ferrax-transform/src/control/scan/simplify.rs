//! Scans that say the same in a simpler way: those of no step or one are no
//! loops, a carry that every step hands on as it is, is a constant, and what is
//! stacked of constants and elements is there without the loop.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::ops::control::stacked_type;
use ferrax_ir::{Atom, Builder, Equation, Program, Result, Type};
use rustc_hash::FxHashMap;

use super::halves::inline_typed;
use super::{chosen, count, invariant_inputs, negated, with_body};
use crate::rewrite::{Rewriter, with_weak};

/// Emits the simpler form of a scan, if there is one, and gives its outputs.
pub(crate) fn simplified(
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Scan,
) -> Result<Option<Vec<Atom>>> {
    let inputs = rewriter.atoms(&equation.inputs)?;
    let types: Vec<Type> = rewriter.output_types(equation).collect();
    let b = &mut rewriter.builder;
    b.source = equation.source;
    match op.length.as_const() {
        Some(0) => no_step(b, op, &inputs, &types),
        Some(1) => one_step(b, op, &inputs).map(Some),
        _ => without_what_is_known(b, op, &inputs),
    }
}

fn no_step(b: &mut Builder, op: &Scan, inputs: &[Atom], types: &[Type]) -> Result<Option<Vec<Atom>>> {
    // Of keys there are no zeros to be had, not even none of them.
    let stacks: Option<Vec<_>> = types[op.num_carry..].iter().map(Type::as_array).collect();
    let Some(stacks) = stacks.filter(|all| all.iter().all(|ty| !ty.dtype.is_key())) else { return Ok(None) };
    let mut outputs = Vec::with_capacity(types.len());
    for (&atom, ty) in op.split(inputs).1.iter().zip(types) {
        let weak = ty.as_array().is_some_and(|ty| ty.weak);
        outputs.push(with_weak(b, atom, weak)?);
    }
    for ty in stacks {
        outputs.push(b.zeros(ty)?);
    }
    Ok(Some(outputs))
}

fn one_step(b: &mut Builder, op: &Scan, inputs: &[Atom]) -> Result<Vec<Atom>> {
    let (constants, carry, arrays) = op.split(inputs);
    let mut arguments = [constants, carry].concat();
    for &array in arrays {
        arguments.push(b.squeeze(array, &[0])?);
    }
    let mut outputs = inline_typed(b, &op.jaxpr, &arguments)?;
    for atom in outputs.iter_mut().skip(op.num_carry) {
        *atom = stacked(b, *atom)?;
    }
    Ok(outputs)
}

/// How an output is had without the loop.
enum Known {
    /// It is a value from outside, at every step.
    Same(Atom),
    /// It is an array that is gone through.
    Array(Atom),
}

fn without_what_is_known(b: &mut Builder, op: &Scan, inputs: &[Atom]) -> Result<Option<Vec<Atom>>> {
    let flags = invariant_inputs(op);
    let body = &op.jaxpr;
    let arrays = op.num_consts + op.num_carry;
    let mut values: FxHashMap<Atom, Known> = FxHashMap::default();
    for (position, (&var, &atom)) in body.inputs.iter().zip(inputs).enumerate() {
        if flags[position] {
            values.insert(Atom::Var(var), Known::Same(atom));
        } else if position >= arrays {
            values.insert(Atom::Var(var), Known::Array(atom));
        }
    }
    let (_, kept, _) = op.split(&flags);
    let mut known: Vec<Option<&Known>> = Vec::with_capacity(body.outputs.len());
    for (position, atom) in body.outputs.iter().enumerate() {
        let is_known = kept.get(position).copied().unwrap_or(true);
        known.push(values.get(atom).filter(|_| is_known));
    }
    if known.iter().all(Option::is_none) {
        return Ok(None);
    }

    let changing = negated(kept);
    let reordered = |items: &[Atom]| -> Vec<Atom> {
        let (constants, carry, arrays) = op.split(items);
        let (kept, changing) = (chosen(carry, kept), chosen(carry, &changing));
        constants.iter().copied().chain(kept).chain(changing).chain(arrays.iter().copied()).collect()
    };
    let mut smaller = Program::clone(body);
    let vars: Vec<Atom> = body.inputs.iter().map(|&var| Atom::Var(var)).collect();
    smaller.inputs = reordered(&vars).iter().filter_map(Atom::as_var).collect();
    let left: Vec<bool> = known.iter().map(Option::is_none).collect();
    smaller.outputs = chosen(&body.outputs, &left).collect();
    let constants = op.num_consts + count(kept);
    let scan = with_body(op, Arc::new(smaller), constants, op.num_carry - count(kept));
    let mut results = b.emit(scan, &reordered(inputs))?.into_iter().map(Atom::Var);

    let mut all = Vec::with_capacity(body.outputs.len());
    for (position, (output, known)) in body.outputs.iter().zip(known).enumerate() {
        let weak = body.type_of(output).as_array().is_some_and(|ty| ty.weak);
        let atom = match known {
            None => {
                all.extend(results.next());
                continue;
            }
            Some(Known::Same(atom)) if position >= op.num_carry => {
                let typed = with_weak(b, *atom, weak)?;
                b.broadcast_batch(typed, &op.length, 0)?
            }
            Some(Known::Same(atom) | Known::Array(atom)) => *atom,
        };
        all.push(with_weak(b, atom, weak)?);
    }
    Ok(Some(all))
}

/// An element with an axis of one step in front.
fn stacked(b: &mut Builder, atom: Atom) -> Result<Atom> {
    let shape = stacked_type(&b.array_type(atom)?, &1.into()).shape;
    b.reshape(atom, &shape)
}
