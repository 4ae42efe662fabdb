//! Common subexpressions: an equation that repeats an earlier one is dropped.
//!
//! Invariants: equal means the same op with the same parameters and the same
//! inputs, in either order for ops that commute bit for bit; literals are equal
//! if their bits are; calls are equal if they call the same object. Equations
//! with effects and barriers are never merged. Cost: expected linear.

use std::hash::{Hash, Hasher};

use ferrax_ir::ops::Binary;
use ferrax_ir::program::Atoms;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Op, Program, Result};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::rewrite::Rewriter;

pub fn cse(program: &Program) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    share_constants(&mut rewriter);
    // Equations of the new program by the hash of op and inputs.
    let mut seen: FxHashMap<u64, SmallVec<[u32; 1]>> = FxHashMap::default();
    for equation in &program.equations {
        // A barrier keeps its users apart from those of other barriers.
        if matches!(equation.op, Op::OptimizationBarrier(_)) || equation.op.happens() {
            rewriter.copy(equation)?;
            continue;
        }
        let inputs = rewriter.atoms(&equation.inputs)?;
        let candidates = seen.entry(hash(&equation.op, &inputs)).or_default();
        let new = rewriter.builder.program();
        let earlier = candidates
            .iter()
            .filter_map(|&index| new.equations.get(index as usize))
            .find(|earlier| same(&equation.op, &inputs, &earlier.op, &earlier.inputs));
        if let Some(earlier) = earlier {
            for (&old, new) in equation.outputs.iter().zip(earlier.outputs.clone()) {
                rewriter.set(old, Atom::Var(new));
            }
            continue;
        }
        candidates.push(new.equations.len() as u32);
        rewriter.copy_as(equation, equation.op.clone(), &inputs)?;
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "common subexpression elimination")?;
    Ok(result)
}

/// Ops are hashed and compared by their sub-programs's identities: reading
/// these for every equation would not be linear.
fn hash(op: &Op, inputs: &[Atom]) -> u64 {
    let mut hasher = FxHasher::default();
    op.hash_shallow(&mut hasher);
    in_order(op, inputs).hash(&mut hasher);
    hasher.finish()
}

fn same(op: &Op, inputs: &[Atom], earlier_op: &Op, earlier_inputs: &[Atom]) -> bool {
    op.is_same(earlier_op) && in_order(op, inputs) == in_order(op, earlier_inputs)
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
fn in_order(op: &Op, inputs: &[Atom]) -> Atoms {
    let mut inputs = Atoms::from_slice(inputs);
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
