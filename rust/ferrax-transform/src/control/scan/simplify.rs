//! Scans that say the same in a simpler way: those of no step or one are no
//! loops, and a carry that every step hands on as it is, is a constant.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::ops::control::stacked_type;
use ferrax_ir::{Atom, Builder, Equation, Program, Result, Type};

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
        _ => without_constant_carries(b, op, &inputs),
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

fn without_constant_carries(b: &mut Builder, op: &Scan, inputs: &[Atom]) -> Result<Option<Vec<Atom>>> {
    let flags = invariant_inputs(op);
    let (_, kept, _) = op.split(&flags);
    if !kept.contains(&true) {
        return Ok(None);
    }
    let changing = negated(kept);
    let reordered = |items: &[Atom]| -> Vec<Atom> {
        let (constants, carry, arrays) = op.split(items);
        let (kept, changing) = (chosen(carry, kept), chosen(carry, &changing));
        constants.iter().copied().chain(kept).chain(changing).chain(arrays.iter().copied()).collect()
    };
    let mut body = Program::clone(&op.jaxpr);
    let vars: Vec<Atom> = body.inputs.iter().map(|&var| Atom::Var(var)).collect();
    body.inputs = reordered(&vars).iter().filter_map(Atom::as_var).collect();
    let outputs = std::mem::take(&mut body.outputs);
    let (carry, stacked) = outputs.split_at(op.num_carry);
    body.outputs = chosen(carry, &changing).chain(stacked.iter().copied()).collect();

    let constants = op.num_consts + count(kept);
    let smaller = with_body(op, Arc::new(body), constants, op.num_carry - count(kept));
    let mut results = b.emit(smaller, &reordered(inputs))?.into_iter().map(Atom::Var);
    let mut all = Vec::with_capacity(outputs.len());
    for ((&first, output), &kept) in op.split(inputs).1.iter().zip(carry).zip(kept) {
        let weak = op.jaxpr.type_of(output).as_array().is_some_and(|ty| ty.weak);
        if kept {
            all.push(with_weak(b, first, weak)?);
        } else {
            all.extend(results.next());
        }
    }
    all.extend(results);
    Ok(Some(all))
}

/// An element with an axis of one step in front.
fn stacked(b: &mut Builder, atom: Atom) -> Result<Atom> {
    let shape = stacked_type(&b.array_type(atom)?, &1.into()).shape;
    b.reshape(atom, &shape)
}
