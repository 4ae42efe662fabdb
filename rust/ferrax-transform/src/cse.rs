//! Common subexpressions: an equation that repeats an earlier one is dropped.
//!
//! Invariants: equal means the same op with the same parameters and the same
//! inputs, in either order for ops that commute bit for bit; literals are equal
//! if their bits are; calls are equal if they call the same object. Equations
//! with effects are never merged. Cost: expected linear.

use std::sync::Arc;

use ferrax_ir::ops::Binary;
use ferrax_ir::program::{Atoms, Vars};
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Op, Program, Result};
use rustc_hash::FxHashMap;

use crate::rewrite::Rewriter;

/// What decides whether two equations are equal. A call is compared by its
/// callee's identity: reading the callee for every call would not be linear.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Leaf(Op, Atoms),
    Call(usize, Atoms),
}

pub fn cse(program: &Program) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    share_constants(&mut rewriter);
    let mut seen: FxHashMap<Key, Vars> = FxHashMap::default();
    for equation in &program.equations {
        if !equation.op.effects().is_empty() {
            rewriter.copy(equation)?;
            continue;
        }
        let inputs = rewriter.atoms(&equation.inputs)?;
        let key = match &equation.op {
            Op::Call(call) => Key::Call(Arc::as_ptr(&call.program).addr(), inputs.clone()),
            op => Key::Leaf(op.clone(), in_order(op, inputs.clone())),
        };
        if let Some(earlier) = seen.get(&key) {
            for (&old, &new) in equation.outputs.iter().zip(earlier) {
                rewriter.set(old, Atom::Var(new));
            }
            continue;
        }
        rewriter.copy_as(equation, equation.op.clone(), &inputs)?;
        let outputs = rewriter.atoms(&equation.outputs.iter().map(|&v| Atom::Var(v)).collect::<Atoms>())?;
        seen.insert(key, outputs.iter().filter_map(Atom::as_var).collect());
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "common subexpression elimination")?;
    Ok(result)
}

/// Constants that are the same array become one.
fn share_constants(rewriter: &mut Rewriter<'_>) {
    let program = rewriter.source;
    let mut seen = FxHashMap::default();
    for (var, tensor) in &program.constants {
        let key = (tensor.bytes().as_ptr().addr(), &program.types[var.index()]);
        match seen.get(&key) {
            Some(&atom) if !tensor.bytes().is_empty() => rewriter.set(*var, atom),
            _ => {
                let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
                let atom = rewriter.builder.constant(tensor.clone(), weak);
                rewriter.set(*var, atom);
                seen.insert(key, atom);
            }
        }
    }
}

/// The inputs of a commutative op in an order that does not depend on how it
/// was written.
fn in_order(op: &Op, mut inputs: Atoms) -> Atoms {
    let commutes =
        matches!(op, Op::Binary(Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor));
    if commutes {
        inputs.sort_by_key(|atom| match atom {
            Atom::Var(var) => (0, u128::from(var.0)),
            Atom::Literal(literal) => (1, literal.value.bits()),
        });
    }
    inputs
}
