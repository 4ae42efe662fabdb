//! Rules of `linear_call`, `custom_linear_solve` and `custom_vmap_call` that
//! need a derivative or a batch of their programs; the others are in their rows.
//!
//! Invariants: what such a call is linear in is batched whole and in front, and
//! so are all outputs, so that a program and its transpose agree.

use std::sync::Arc;

use ferrax_ir::ops::{Call, CustomVmap, LinearCall, LinearSolve, Scan};
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Dim, Equation, Op, Program, Result, Type};

use crate::batch::{Batching, Dims, OutDims};
use crate::jvp::{Forward, Tangents};
use crate::rewrite::Rewriter;

/// The implicit derivative: from A x = b follows A dx = db - dA x.
pub(crate) fn forward_solve(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &LinearSolve,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    rewriter.copy(equation)?;
    let mut inputs = rewriter.atoms(&equation.inputs)?.to_vec();
    let right_side = inputs.split_off(op.num_params);
    let size = right_side.len();
    let solution: Vec<Atom> =
        equation.outputs[..size].iter().map(|&var| rewriter.atom(&Atom::Var(var))).collect::<Result<_>>()?;
    let (params, found) = tangents.split_at(op.num_params);
    let mut found = found.to_vec();
    let b = &mut rewriter.builder;
    b.source = equation.source.derivative_of(equation.op.name());
    if params.iter().any(Option::is_some) {
        let matvec = Call { name: op.matvec.name.clone(), program: op.matvec.clone(), inline: true };
        let arguments: Vec<Atom> = inputs.iter().copied().chain(solution).collect();
        let moving: Vec<Option<Atom>> = params.iter().copied().chain((0..size).map(|_| None)).collect();
        let (_, moved) = forward.emit_call(b, &matvec, &arguments, &moving)?;
        for (found, moved) in found.iter_mut().zip(moved) {
            let Some(moved) = moved else { continue };
            *found = Some(match found {
                Some(there) => b.sub(*there, moved)?,
                None => b.neg(moved)?,
            });
        }
    }
    if found.iter().all(Option::is_none) {
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    for (tangent, &value) in found.iter().zip(&right_side) {
        inputs.push(match tangent {
            Some(tangent) => *tangent,
            None => {
                let ty = b.array_type(value)?.tangent();
                b.zeros(&ty)?
            }
        });
    }
    let outputs = b.emit(op.clone(), &inputs)?;
    // What a solver gives beside the solution has no derivative.
    Ok(outputs.into_iter().enumerate().map(|(at, var)| (at < size).then_some(Atom::Var(var))).collect())
}

pub(crate) fn forward_vmap(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &CustomVmap,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let (call, flags) = forward.jvp_callee(&op.call, &nonzero, &[])?;
    let mut inputs = rewriter.atoms(&equation.inputs)?.to_vec();
    inputs.extend(tangents.iter().flatten());
    let mut outputs = rewriter.builder.emit(CustomVmap { call, ..op.clone() }, &inputs)?.into_iter();
    for (&var, out) in equation.outputs.iter().zip(&mut outputs) {
        rewriter.set(var, Atom::Var(out));
    }
    Ok(flags.iter().map(|&flag| if flag { outputs.next().map(Atom::Var) } else { None }).collect())
}

/// The program with all outputs batched in front.
fn in_front(
    batching: &mut Batching<'_>,
    program: &Arc<Program>,
    dims: &[Option<usize>],
) -> Result<Arc<Program>> {
    let front = vec![Some(0); program.outputs.len()];
    Ok(batching.callee(program, dims, OutDims::Force(&front))?.0)
}

/// Inputs and their batch dimensions, where those after the first `known` are
/// batched in front.
fn linear_in_front(
    b: &mut Builder,
    size: &Dim,
    inputs: &[Atom],
    dims: &[Option<usize>],
    known: usize,
) -> Result<(Vec<Atom>, Dims)> {
    let mut inputs = inputs.to_vec();
    let mut dims: Dims = dims.to_vec();
    for (atom, dim) in inputs.iter_mut().zip(&mut dims).skip(known) {
        *atom = match dim.replace(0) {
            Some(0) => *atom,
            Some(from) => b.move_axis(*atom, from, 0)?,
            None => b.broadcast_batch(*atom, size, 0)?,
        };
    }
    Ok((inputs, dims))
}

fn all_in_front(b: &mut Builder, op: impl Into<Op>, inputs: &[Atom]) -> Result<Batched> {
    Ok(b.emit(op, inputs)?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}

pub(crate) fn batch_linear(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &LinearCall,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let (inputs, dims) = linear_in_front(b, batching.size, inputs, dims, op.num_res)?;
    let callee = in_front(batching, &op.callee, &dims)?;
    let mut back: Dims = dims[..op.num_res].to_vec();
    back.extend(op.callee.outputs.iter().map(|_| Some(0)));
    let transpose = match &op.transpose {
        Some(transpose) => Some(in_front(batching, transpose, &back)?),
        None => None,
    };
    all_in_front(b, LinearCall { callee, transpose, ..op.clone() }, &inputs)
}

pub(crate) fn batch_solve(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &LinearSolve,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let (inputs, dims) = linear_in_front(b, batching.size, inputs, dims, op.num_params)?;
    let mut each = |program: &Arc<Program>| in_front(batching, program, &dims);
    let batched = LinearSolve {
        matvec: each(&op.matvec)?,
        num_params: op.num_params,
        solve: each(&op.solve)?,
        transpose_solve: op.transpose_solve.as_ref().map(&mut each).transpose()?,
        vecmat: op.vecmat.as_ref().map(&mut each).transpose()?,
    };
    all_in_front(b, batched, &inputs)
}

/// A loop over the cases, for a rule that says so.
pub(crate) fn batch_vmap(
    batching: &Batching<'_>,
    b: &mut Builder,
    op: &CustomVmap,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    if !op.sequential {
        return op.rule_not_saved();
    }
    let mut body = Builder::new(op.name.clone());
    let mut arguments: Vec<Option<Atom>> = vec![None; inputs.len()];
    let mut operands = Vec::with_capacity(inputs.len());
    for shared in [true, false] {
        for ((argument, &atom), dim) in arguments.iter_mut().zip(inputs).zip(dims) {
            if dim.is_none() != shared {
                continue;
            }
            let mut ty = b.type_of(atom);
            if let (Type::Array(ty), &Some(dim)) = (&mut ty, dim) {
                ty.shape.remove(dim);
            }
            *argument = Some(body.input(ty));
            operands.push(match *dim {
                None | Some(0) => atom,
                Some(dim) => b.move_axis(atom, dim, 0)?,
            });
        }
    }
    let arguments: Vec<Atom> = arguments.into_iter().flatten().collect();
    let outputs = body.emit(op.clone(), &arguments)?;
    let scan = Scan {
        jaxpr: Arc::new(body.finish(outputs.into_iter().map(Atom::Var))),
        length: batching.size.clone(),
        num_carry: 0,
        num_consts: dims.iter().filter(|dim| dim.is_none()).count(),
        reverse: false,
        unroll: 1,
    };
    all_in_front(b, scan, &operands)
}
