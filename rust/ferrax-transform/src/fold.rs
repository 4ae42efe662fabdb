//! Constant folding: equations of literals and small captured arrays are
//! evaluated now, by the ops' reference evaluation.
//!
//! Invariants: scalars fold to literals, arrays to constants; the results have
//! at most [`MAX_ELEMENTS`] elements and so have the inputs; keys stay; nothing
//! with effects, no call, no extension op and nothing symbolic is evaluated; an op that refuses
//! to evaluate stays as it is, for it may never run. Cost: linear.

use ferrax_ir::op::View;
use ferrax_ir::rules::Lowering;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Equation, Literal, Op, Program, Result, Tensor, Type};
use smallvec::SmallVec;

use crate::rewrite::Rewriter;

/// The largest array that is worth computing at compile time.
pub const MAX_ELEMENTS: usize = 64;

pub fn fold(program: &Program) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    // The value of each variable of the new program that is known and small.
    let mut values: Vec<Option<Tensor>> = Vec::new();
    for (var, tensor) in &rewriter.builder.program().constants {
        if tensor.len() <= MAX_ELEMENTS && !tensor.dtype().is_key() {
            remember(&mut values, var.index(), tensor.clone());
        }
    }
    for equation in &program.equations {
        let inputs = rewriter.atoms(&equation.inputs)?;
        let types: SmallVec<[Type; 1]> = rewriter.output_types(equation).collect();
        let Some(results) = evaluate(equation, &inputs, &types, &values)? else {
            rewriter.copy(equation)?;
            continue;
        };
        for ((&var, tensor), ty) in equation.outputs.iter().zip(results).zip(&types) {
            let weak = ty.as_array().is_some_and(|ty| ty.weak);
            let atom = match tensor.to_scalar().filter(|_| tensor.rank() == 0) {
                Some(value) => Atom::Literal(Literal { value, weak }),
                None => rewriter.builder.constant(tensor.clone(), weak),
            };
            if let Some(var) = atom.as_var() {
                remember(&mut values, var.index(), tensor);
            }
            rewriter.set(var, atom);
        }
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "constant folding")?;
    Ok(result)
}

fn remember(values: &mut Vec<Option<Tensor>>, index: usize, tensor: Tensor) {
    if values.len() <= index {
        values.resize(index + 1, None);
    }
    values[index] = Some(tensor);
}

fn evaluate(
    equation: &Equation,
    inputs: &[Atom],
    types: &[Type],
    values: &[Option<Tensor>],
) -> Result<Option<Vec<Tensor>>> {
    let View::Leaf(rules) = equation.op.view() else { return Ok(None) };
    // The user's own ops run when and where the program does; barriers are there to stay.
    if matches!(equation.op, Op::Extension(_) | Op::OptimizationBarrier(_)) {
        return Ok(None);
    }
    // Of literals alone only scalars are made: a broadcast literal is better left so.
    let from_array = inputs.iter().any(|atom| atom.as_var().is_some());
    let small = types.iter().all(|ty| {
        let Type::Array(ty) = ty else { return false };
        let elements =
            ty.sizes().and_then(|sizes| sizes.iter().try_fold(1usize, |n, &size| n.checked_mul(size)));
        let bounded =
            if ty.rank() == 0 { true } else { from_array && elements.is_some_and(|n| n <= MAX_ELEMENTS) };
        bounded && !ty.dtype.is_key() && ty.dtype.size() > 0
    });
    // Moving elements costs nothing in a kernel, so arrays stay symbolic there.
    let moves = rules.lower() == Lowering::Movement
        && types.iter().any(|ty| ty.as_array().is_some_and(|ty| ty.rank() > 0));
    if inputs.is_empty() || !small || moves || !equation.op.effects().is_empty() {
        return Ok(None);
    }
    let mut operands = Vec::with_capacity(inputs.len());
    for atom in inputs {
        let value = match atom {
            Atom::Literal(literal) => Some(literal.value.to_tensor()?),
            Atom::Var(var) => values.get(var.index()).cloned().flatten(),
        };
        let Some(value) = value else { return Ok(None) };
        operands.push(value);
    }
    let Ok(results) = equation.op.eval(&operands, types) else { return Ok(None) };
    let fits = results.len() == types.len()
        && results.iter().zip(types).all(|(tensor, ty)| {
            ty.as_array().is_some_and(|ty| ty.clone().with_weak(false) == tensor.array_type())
        });
    Ok(fits.then_some(results))
}
