//! Takes out of loops what is the same at every step.
//!
//! Invariants: values and effects stay; what moves would run at every step or is
//! a single op that can do no harm if the loop has no step; nothing moves whose
//! result is larger than what it reads, if elementwise: that costs less to do
//! again than to read. Loops in loops: callees first, so that what the inner loop
//! gives up may leave the outer one in turn. Cost: linear.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Scan, While};
use ferrax_ir::rules::Lowering;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Dim, Equation, Program, Result, Type};

use crate::control::invariant::{Hoisted, hoist as hoist_equations, invariants};
use crate::control::scan::{inline_typed, runs};
use crate::rewrite::Rewriter;
use crate::split::is_free;

/// `program` whose own loops are rid of what can be computed before them.
pub fn hoist(program: &Program) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    for equation in &program.equations {
        let inputs = rewriter.atoms(&equation.inputs)?;
        rewriter.builder.source = equation.source;
        let done = match equation.op.view() {
            View::Scan(op) => scan(&mut rewriter, equation, op, &inputs)?,
            View::While(op) => while_loop(&mut rewriter, equation, op, &inputs)?,
            _ => false,
        };
        if !done {
            rewriter.copy_as(equation, equation.op.clone(), &inputs)?;
        }
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "hoisting")?;
    Ok(result)
}

fn scan(rewriter: &mut Rewriter<'_>, equation: &Equation, op: &Scan, inputs: &[Atom]) -> Result<bool> {
    let constants = op.split(inputs).0;
    let Some((body, handed)) = body(rewriter, &op.jaxpr, constants, runs(op))? else { return Ok(false) };
    let arguments = [&handed, inputs].concat();
    let op = Scan { jaxpr: body, num_consts: op.num_consts + handed.len(), ..op.clone() };
    rewriter.copy_as(equation, op.into(), &arguments)?;
    Ok(true)
}

fn while_loop(rewriter: &mut Rewriter<'_>, equation: &Equation, op: &While, inputs: &[Atom]) -> Result<bool> {
    let (condition_constants, body_constants, carry) = op.split(inputs);
    let condition = body(rewriter, &op.cond_jaxpr, condition_constants, true)?;
    let step = body(rewriter, &op.body_jaxpr, body_constants, false)?;
    if condition.is_none() && step.is_none() {
        return Ok(false);
    }
    let (cond_jaxpr, from_condition) = condition.unwrap_or((op.cond_jaxpr.clone(), Vec::new()));
    let (body_jaxpr, from_body) = step.unwrap_or((op.body_jaxpr.clone(), Vec::new()));
    let arguments = [&from_condition, condition_constants, &from_body, body_constants, carry].concat();
    let op = While {
        cond_nconsts: op.cond_nconsts + from_condition.len(),
        body_nconsts: op.body_nconsts + from_body.len(),
        cond_jaxpr,
        body_jaxpr,
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    };
    rewriter.copy_as(equation, op.into(), &arguments)?;
    Ok(true)
}

/// The body of a loop, whose first inputs are `constants`, without what moves,
/// and the values to be handed to it in front of these. `runs` says that it
/// does run.
fn body(
    rewriter: &mut Rewriter<'_>,
    program: &Arc<Program>,
    constants: &[Atom],
    runs: bool,
) -> Result<Option<(Arc<Program>, Vec<Atom>)>> {
    let same: Vec<bool> = (0..program.inputs.len()).map(|position| position < constants.len()).collect();
    let mut found = invariants(program, &same, runs);
    for (found, equation) in found.iter_mut().zip(&program.equations) {
        *found = *found && is_worth_moving(program, equation);
    }
    let Some(Hoisted { outer, inner, .. }) = hoist_equations(program, &same, &found)? else {
        return Ok(None);
    };
    let handed = inline_typed(&mut rewriter.builder, &outer, constants)?;
    Ok(Some((Arc::new(inner), handed)))
}

fn is_worth_moving(program: &Program, equation: &Equation) -> bool {
    let View::Leaf(rules) = equation.op.view() else { return true };
    let elements = |ty: &Type| -> Option<usize> {
        let ty = ty.as_array()?;
        Dim::product(&ty.shape).ok()?.as_const()
    };
    let largest = |types: &mut dyn Iterator<Item = Type>| types.map(|ty| elements(&ty)).max().flatten();
    if equation.inputs.iter().all(|atom| atom.as_var().is_none()) || is_free(program, equation) {
        return false;
    }
    match rules.lower() {
        Lowering::Elementwise | Lowering::Movement => {
            let read = largest(&mut equation.inputs.iter().map(|atom| program.type_of(atom)));
            let given = largest(&mut equation.outputs.iter().map(|var| program.types[var.index()].clone()));
            // Sizes that are not known are taken for equal.
            read.zip(given).is_none_or(|(read, given)| given <= read)
        }
        Lowering::Reduction | Lowering::Library | Lowering::Expand => true,
    }
}
