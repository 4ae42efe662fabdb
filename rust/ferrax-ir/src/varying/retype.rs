//! Programs for inputs that differ along more axes than those that they were typed for.
//!
//! In goes an op with sub-programs and the types of its operands, out comes the op with sub-programs that take what such
//! operands are: the same equations, of which those that only make values differ fall away where these do already. A branch
//! is taken by some devices alone where its index differs, and a loop goes on for some where its condition does, so that
//! all that goes into them differs there too: no sum over the devices stands in it. Cost: linear in the sub-programs; loops are
//! typed anew until their carry does not change, at most as often as there are axes.

use std::sync::Arc;

use super::{Share, Varying, excess, expected};
use crate::ops::{Call, Checkpoint, Cond, CustomJvp, CustomVjp, Scan, While};
use crate::{Atom, Builder, Equation, Op, Program, Result, Type};

/// The op, for operands of these types.
pub fn fitting(op: Op, operands: &[Type]) -> Result<Op> {
    let Some(taken) = expected(&op, operands.len()) else { return Ok(op) };
    let chosen = super::chosen(&op, operands);
    let is_cond = matches!(op, Op::Cond(_));
    let fits = excess(&taken, operands, is_cond).is_empty();
    let entered = taken.iter().skip(usize::from(is_cond)).all(|taken| taken.covers(chosen));
    if fits && (entered || chosen.is_empty()) {
        return Ok(op);
    }
    let given: Vec<Varying> =
        operands.iter().zip(&taken).map(|(ty, taken)| ty.varying().union(*taken)).collect();
    Ok(match op {
        Op::Call(op) => Call { program: retyped(&op.program, &given)?, ..op }.into(),
        Op::Checkpoint(op) => Checkpoint { jaxpr: retyped(&op.jaxpr, &given)?, ..op }.into(),
        Op::CustomJvp(op) => CustomJvp { call_jaxpr: retyped(&op.call_jaxpr, &given)?, ..op }.into(),
        Op::CustomVjp(op) => CustomVjp { call_jaxpr: retyped(&op.call_jaxpr, &given)?, ..op }.into(),
        Op::Cond(op) => {
            let given: Vec<Varying> = given.iter().skip(1).map(|own| own.union(chosen)).collect();
            let branches = op.branches.iter().map(|branch| retyped(branch, &given));
            Cond { branches: branches.collect::<Result<_>>()? }.into()
        }
        Op::Scan(op) => scan(op, given)?.into(),
        Op::While(op) => while_loop(op, given)?.into(),
        other => other,
    })
}

/// Adds to the carry what it differs along after a step; whether that was anything.
fn grown(carry: &mut [Varying], after: &Program) -> bool {
    let mut any = false;
    for (before, ty) in carry.iter_mut().zip(after.output_types()) {
        let union = before.union(ty.varying());
        any |= union != *before;
        *before = union;
    }
    any
}

fn scan(op: Scan, mut given: Vec<Varying>) -> Result<Scan> {
    loop {
        let jaxpr = retyped(&op.jaxpr, &given)?;
        let carry = op.num_consts..op.num_consts + op.num_carry;
        if !grown(&mut given[carry], &jaxpr) {
            return Ok(Scan { jaxpr, ..op });
        }
    }
}

fn while_loop(op: While, mut given: Vec<Varying>) -> Result<While> {
    let constants = op.cond_nconsts + op.body_nconsts;
    loop {
        let condition: Vec<Varying> =
            given[..op.cond_nconsts].iter().chain(&given[constants..]).copied().collect();
        let cond_jaxpr = retyped(&op.cond_jaxpr, &condition)?;
        let goes_on = cond_jaxpr.output_types().fold(Varying::NONE, |all, ty| all.union(ty.varying()));
        let entered: Vec<Varying> = given[op.cond_nconsts..].iter().map(|own| own.union(goes_on)).collect();
        let body_jaxpr = retyped(&op.body_jaxpr, &entered)?;
        let before = given.clone();
        given[op.cond_nconsts..].copy_from_slice(&entered);
        if !grown(&mut given[constants..], &body_jaxpr) && before == given {
            return Ok(While { cond_jaxpr, body_jaxpr, ..op });
        }
    }
}

/// Appends an equation over operands that may differ along more axes than those of the equation, whose outputs are of `types`
/// but for that. What differs already is not taken as differing again: the cotangent would be summed twice.
pub fn append(
    b: &mut Builder,
    equation: &Equation,
    operands: &[Atom],
    types: &[Type],
    map: &mut [Option<Atom>],
) -> Result<()> {
    if let ([operand], [output]) = (operands, equation.outputs.as_slice()) {
        let wanted = match &equation.op {
            Op::Pvary(op) => Some((&op.axes, Share::Varying)),
            Op::ReducedVary(op) => Some((&op.axes, Share::Varying)),
            Op::Preduced(op) => Some((&op.axes, Share::Reduced)),
            _ => None,
        };
        if let Some((axes, share)) = wanted {
            let ty = b.type_of(*operand);
            let wanted = ty.varying().union(Varying::of(axes.iter().map(|axis| share.mark(axis))));
            map[output.index()] = Some(super::cast(b, *operand, &ty, wanted)?);
            return Ok(());
        }
    }
    for (old, new) in equation.outputs.iter().zip(b.emit_as(equation.op.clone(), operands, types)?) {
        map[old.index()] = Some(Atom::Var(new));
    }
    Ok(())
}

/// The program for inputs that differ along these axes.
fn retyped(program: &Arc<Program>, inputs: &[Varying]) -> Result<Arc<Program>> {
    let own = program.input_types().map(Type::varying);
    if own.zip(inputs).all(|(own, given)| own == *given) {
        return Ok(program.clone());
    }
    let mut b = Builder::new(program.name.clone());
    let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
    for (var, varying) in program.inputs.iter().zip(inputs) {
        let mut ty = program.types[var.index()].clone();
        ty.vary(*varying);
        map[var.index()] = Some(b.input(ty));
    }
    for (var, tensor) in &program.constants {
        let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
        map[var.index()] = Some(b.constant(tensor.clone(), weak));
    }
    for equation in &program.equations {
        let operands = crate::builder::substitute(&map, &equation.inputs)?;
        b.source = equation.source;
        let types: Vec<Type> =
            equation.outputs.iter().map(|var| program.types[var.index()].clone()).collect();
        append(&mut b, equation, &operands, &types, &mut map)?;
    }
    let outputs = crate::builder::substitute(&map, &program.outputs)?;
    Ok(Arc::new(b.finish(outputs)))
}
