//! Linearisation of loops of at most so many steps.
//!
//! The primal loop counts its steps and writes what each leaves for the
//! derivative into arrays with room for all of them, so it still ends as soon as
//! its condition fails. The linear loop counts up to the same number and reads
//! them again: a loop over a counter, which can be transposed.

use std::sync::Arc;

use ferrax_ir::ops::control::stacked_type;
use ferrax_ir::ops::{Compare, DynamicSlice, DynamicUpdateSlice, While};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Equation, Result, Type, internal_error, unsupported};

use super::forward::{candidates, initial_tangents};
use super::{condition_with, invariant_carries};
use crate::control::scan::{count, inline_typed, settle, within};
use crate::control::wiring::filler;
use crate::jvp::{Forward, Tangents};
use crate::linearize::Linearized;
use crate::rewrite::Rewriter;

/// Where the linear loop finds a residual.
#[derive(Clone, Copy)]
enum Place {
    /// It is an input of the body that is the same at every step.
    Input(usize),
    /// It is an element of that stack.
    Stack(usize),
}

pub(super) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &While,
    steps: usize,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let inputs = rewriter.atoms(&equation.inputs)?;
    if steps == 0 {
        rewriter.copy(equation)?;
        return Ok(op.split(tangents).2.iter().copied().collect());
    }
    let (constants, given, start) = candidates(forward, op, tangents);
    let (carry, found, mut body) = settle(start, &given, |carry| {
        let body = forward.linearize_callee(&op.body_jaxpr, &[&constants, carry].concat(), &[])?;
        let found = body.nonzero_out.clone();
        Ok((body, found))
    })?;
    if !within(&carry, &found) {
        body = forward.linearize_callee(&op.body_jaxpr, &[&constants, &carry[..]].concat(), &carry)?;
    }
    if !carry.contains(&true) {
        rewriter.copy(equation)?;
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    let (places, stacks) = places(op, &body, steps)?;

    // The primal loop.
    let (condition_constants, body_constants, own) = op.split(&inputs);
    let primal = primal(forward, op, &body, &places, &stacks)?;
    let mut arguments = [condition_constants, body_constants].concat();
    arguments.push(rewriter.builder.int_scalar(DType::I32, 0));
    arguments.extend(own);
    for stack in &stacks {
        arguments.push(filler(&mut rewriter.builder, stack)?);
    }
    let results = rewriter.builder.emit(primal, &arguments)?;
    let mut results = results.into_iter().map(Atom::Var);
    let taken = results.next().ok_or_else(|| internal_error!("a counted loop lost its counter"))?;
    for (&var, atom) in equation.outputs.iter().zip(&mut results) {
        rewriter.set(var, atom);
    }
    let stacked: Vec<Atom> = results.collect();

    // The linear loop.
    let mut arguments = vec![taken];
    for place in &places {
        arguments.extend(match place {
            Place::Input(position) => inputs.get(op.cond_nconsts + position),
            Place::Stack(stack) => stacked.get(*stack),
        });
    }
    arguments.extend(op.split(tangents).1.iter().flatten());
    arguments.push(rewriter.builder.int_scalar(DType::I32, 0));
    arguments.extend(initial_tangents(rewriter, op, &carry, tangents)?);
    let linear = linear(op, &body, &places, &stacks, count(&constants))?;
    let mut results = rewriter.builder.emit(linear, &arguments)?.into_iter().skip(1).map(Atom::Var);
    Ok(carry.iter().map(|&flag| if flag { results.next() } else { None }).collect())
}

/// Where residuals are, and the types of the stacks.
fn places(op: &While, body: &Linearized, steps: usize) -> Result<(Vec<Place>, Vec<ArrayType>)> {
    let primal = &body.primal;
    let invariant = invariant_carries(op);
    let mut places = Vec::with_capacity(body.residuals);
    let mut stacks = Vec::new();
    for atom in primal.outputs.iter().skip(op.body_jaxpr.outputs.len()) {
        let input = primal.inputs.iter().position(|&var| Atom::Var(var) == *atom);
        let same = |position: usize| match position.checked_sub(op.body_nconsts) {
            None => true,
            Some(carry) => invariant.get(carry) == Some(&true),
        };
        if let Some(position) = input.filter(|&position| same(position)) {
            places.push(Place::Input(position));
            continue;
        }
        let Type::Array(ty) = primal.type_of(atom) else {
            return Err(unsupported!("a step of while needs {} again", primal.type_of(atom)));
        };
        places.push(Place::Stack(stacks.len()));
        stacks.push(stacked_type(&ty.with_weak(false), &Dim::Const(steps)));
    }
    Ok((places, stacks))
}

/// The loop with its number of steps in front of the carry and stacks behind it.
fn primal(
    forward: &mut Forward,
    op: &While,
    body: &Linearized,
    places: &[Place],
    stacks: &[ArrayType],
) -> Result<While> {
    let counter = ArrayType::scalar(DType::I32);
    let mut b = Builder::new(op.body_jaxpr.name.clone());
    let mut types = body.primal.input_types().cloned();
    let mut arguments: Vec<Atom> = types.by_ref().take(op.body_nconsts).map(|ty| b.input(ty)).collect();
    let step = b.input(counter.clone());
    arguments.extend(types.map(|ty| b.input(ty)));
    let arrays: Vec<Atom> = stacks.iter().map(|ty| b.input(ty.clone())).collect();
    let mut results = b.inline(&body.primal, &arguments)?.into_vec();
    let residuals = results.split_off(op.body_jaxpr.outputs.len());
    let one = b.int_scalar(DType::I32, 1);
    let mut outputs = vec![b.add(step, one)?];
    outputs.extend(results);
    for (place, residual) in places.iter().zip(residuals) {
        let Place::Stack(stack) = *place else { continue };
        let row = b.expand_dim(residual, 0)?;
        let mut operands = vec![arrays[stack], row];
        operands.extend(starts(&b, step, b.rank(row)));
        outputs.push(b.emit1(DynamicUpdateSlice {}, &operands)?);
    }
    let after: Vec<Type> = stacks.iter().cloned().map(Type::Array).collect();
    Ok(While {
        body_jaxpr: Arc::new(b.finish(outputs)),
        cond_jaxpr: condition_with(&mut forward.wirings, op, &[counter.into()], &after)?,
        ..op.clone()
    })
}

/// Where row `step` of an array of that many dimensions begins.
fn starts(b: &Builder, step: Atom, rank: usize) -> impl Iterator<Item = Atom> + use<> {
    let zero = b.int_scalar(DType::I32, 0);
    std::iter::once(step).chain(std::iter::repeat_n(zero, rank - 1))
}

/// The loop over tangents: its condition takes the number of steps, its body the
/// residuals and the tangents of `constants` constants; the carry is a counter
/// and tangents.
fn linear(
    op: &While,
    body: &Linearized,
    places: &[Place],
    stacks: &[ArrayType],
    constants: usize,
) -> Result<While> {
    let counter = ArrayType::scalar(DType::I32);
    let types: Vec<Type> = body.linear.input_types().cloned().collect();
    let (residuals, tangents) = types.split_at(body.residuals);
    let (constant_tangents, carry_tangents) = tangents.split_at(constants);

    let mut b = Builder::new(op.body_jaxpr.name.clone());
    let handed: Vec<Atom> = places
        .iter()
        .zip(residuals)
        .map(|(place, ty)| match place {
            Place::Input(_) => b.input(ty.clone()),
            Place::Stack(stack) => b.input(stacks[*stack].clone()),
        })
        .collect();
    let mut tangents: Vec<Atom> = constant_tangents.iter().map(|ty| b.input(ty.clone())).collect();
    let step = b.input(counter.clone());
    tangents.extend(carry_tangents.iter().map(|ty| b.input(ty.clone())));
    let mut arguments = Vec::with_capacity(types.len());
    for (place, &atom) in places.iter().zip(&handed) {
        arguments.push(match place {
            Place::Input(_) => atom,
            Place::Stack(_) => {
                let mut slice_sizes = b.shape(atom);
                slice_sizes[0] = Dim::Const(1);
                let operands: Vec<Atom> =
                    std::iter::once(atom).chain(starts(&b, step, slice_sizes.len())).collect();
                let row = b.emit1(DynamicSlice { slice_sizes }, &operands)?;
                b.squeeze(row, &[0])?
            }
        });
    }
    arguments.extend(tangents);
    let results = inline_typed(&mut b, &body.linear, &arguments)?;
    let one = b.int_scalar(DType::I32, 1);
    let next = b.add(step, one)?;
    let body_jaxpr = b.finish(std::iter::once(next).chain(results));

    Ok(While {
        body_nconsts: handed.len() + constants,
        body_jaxpr: Arc::new(body_jaxpr),
        cond_nconsts: 1,
        cond_jaxpr: Arc::new(below_limit(op, &counter, carry_tangents)?),
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    })
}

/// `counter < limit`, of a limit, a counter and other carries.
pub(super) fn below_limit(op: &While, counter: &ArrayType, others: &[Type]) -> Result<ferrax_ir::Program> {
    let mut b = Builder::new(op.cond_jaxpr.name.clone());
    let limit = b.input(counter.clone());
    let step = b.input(counter.clone());
    for ty in others {
        b.input(ty.clone());
    }
    let below = b.compare(Compare::Lt, step, limit)?;
    Ok(b.finish([below]))
}
