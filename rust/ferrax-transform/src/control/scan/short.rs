//! Scans of no step or one are no loops.

use ferrax_ir::ops::Scan;
use ferrax_ir::ops::control::stacked_type;
use ferrax_ir::{Atom, Builder, Equation, Result, Type};

use super::halves::inline_typed;
use crate::rewrite::{Rewriter, with_weak};

/// The outputs of a scan of known length 0 or 1, with its body's equations in
/// its place; nothing for others.
pub(crate) fn unrolled(
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
        _ => Ok(None),
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

/// An element with an axis of one step in front.
fn stacked(b: &mut Builder, atom: Atom) -> Result<Atom> {
    let shape = stacked_type(&b.array_type(atom)?, &1.into()).shape;
    b.reshape(atom, &shape)
}
