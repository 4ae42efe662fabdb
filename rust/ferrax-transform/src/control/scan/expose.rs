//! Scans that also give what a policy saves of their steps.
//!
//! In: a program, which of its equations count, and what is saved of an
//! equation's outputs. Out: the same program, where these scans, and scans in
//! their bodies, stack the saved results of their bodies' equations as further
//! outputs. Cost: linear, and each equation in a body is asked about once for
//! each level of nesting.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Equation, Program, Result, Type};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::rewrite::Rewriter;

/// Which outputs of an equation are saved.
pub(crate) type Saves<'a> = &'a dyn Fn(&Equation, &[Type]) -> Result<SmallVec<[bool; 4]>>;

pub(crate) fn expose(program: &Program, counts: impl Fn(usize) -> bool, saves: Saves<'_>) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    for (index, equation) in program.equations.iter().enumerate() {
        match equation.op.view() {
            View::Scan(op) if counts(index) => {
                let jaxpr = Arc::new(exposed_body(op, saves)?);
                let inputs = rewriter.atoms(&equation.inputs)?;
                rewriter.builder.source = equation.source;
                let outputs = rewriter.builder.emit(Scan { jaxpr, ..op.clone() }, &inputs)?;
                for (old, new) in equation.outputs.iter().zip(outputs) {
                    rewriter.set(*old, Atom::Var(new));
                }
            }
            _ => rewriter.copy(equation)?,
        }
    }
    rewriter.finish(&program.outputs)
}

fn exposed_body(op: &Scan, saves: Saves<'_>) -> Result<Program> {
    let mut body = expose(&op.jaxpr, |_| true, saves)?;
    let mut given: FxHashSet<Atom> = body.outputs[op.num_carry..].iter().copied().collect();
    let mut more = Vec::new();
    for equation in &body.equations {
        let types: SmallVec<[Type; 3]> = equation.inputs.iter().map(|atom| body.type_of(atom)).collect();
        for (&var, saved) in equation.outputs.iter().zip(saves(equation, &types)?) {
            let stackable = body.types[var.index()].as_array().is_some();
            if saved && stackable && given.insert(Atom::Var(var)) {
                more.push(Atom::Var(var));
            }
        }
    }
    body.outputs.extend(more);
    Ok(body)
}
