//! Products of elements, made for all steps at once.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Builder, Result};

use super::{bytes_of, is_allowed, product, projection};
use crate::batch::{OutDims, batch};
use crate::control::invariant::{Hoisted, hoist, invariants};
use crate::split::dependence;

/// See [`super::Rule`].
pub(super) fn before(
    b: &mut Builder,
    op: &Scan,
    inputs: &[Atom],
    length: usize,
) -> Result<Option<Vec<Atom>>> {
    let body = &op.jaxpr;
    let arrays = op.num_consts + op.num_carry;
    let is_outside = |position: usize| position < op.num_consts || position >= arrays;
    let outside: Vec<bool> = (0..body.inputs.len()).map(is_outside).collect();
    let movable = invariants(body, &outside, false);
    if !body.equations.iter().zip(&movable).any(|(equation, movable)| *movable && product(equation).is_some())
    {
        return Ok(None);
    }
    let elements: Vec<bool> = (0..body.inputs.len()).map(|position| position >= arrays).collect();
    let (varies, _) = dependence(body, &elements);
    let roots: Vec<bool> = body
        .equations
        .iter()
        .zip(&movable)
        .map(|(equation, movable)| *movable && projection(body, equation, &varies).is_some())
        .collect();
    let Some(Hoisted { outer, inner, handed }) = hoist(body, &outside, &roots)? else { return Ok(None) };
    if !bytes_of(&outer, outer.equations.iter()).is_some_and(|bytes| is_allowed(op, bytes, length)) {
        return Ok(None);
    }

    let (constants, _, stacks) = op.split(inputs);
    let mut dims = vec![None; constants.len()];
    dims.resize(constants.len() + stacks.len(), Some(0));
    let (outer, found) = batch(&outer, &op.length, &dims, None, OutDims::Front)?;
    let values = b.inline(&outer, &[constants, stacks].concat())?;

    let mut jaxpr = inner;
    let own = jaxpr.inputs.split_off(handed);
    let (mut constant_vars, mut new_inputs) = (Vec::new(), Vec::new());
    let (mut element_vars, mut new_stacks) = (Vec::new(), Vec::new());
    for ((&var, value), dim) in jaxpr.inputs.iter().zip(values).zip(found) {
        let (vars, atoms) = match dim {
            None => (&mut constant_vars, &mut new_inputs),
            Some(_) => (&mut element_vars, &mut new_stacks),
        };
        vars.push(var);
        atoms.push(value);
    }
    let num_consts = constant_vars.len() + op.num_consts;
    jaxpr.inputs = [constant_vars, own, element_vars].concat();
    new_inputs.extend(inputs);
    new_inputs.extend(new_stacks);
    let smaller = Scan { jaxpr: Arc::new(jaxpr), num_consts, ..op.clone() };
    Ok(Some(b.emit(smaller, &new_inputs)?.into_iter().map(Atom::Var).collect()))
}
