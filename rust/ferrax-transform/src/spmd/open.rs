//! Ops that are made of others, as what they are made of: so each of these is cut as its own rule says.
//!
//! In: a program, and which ops stay as they are: those that say themselves how they are cut. Out: the same without calls and
//! without other ops whose lowering is `Expand`, in sub-programs too. Ops with effects stay. Cost: linear in the result, for each level of ops
//! within ops.

use std::sync::Arc;

use ferrax_ir::rules::{Lowering, Rules};
use ferrax_ir::{Op, Program, Result, View, internal_error};

use crate::inline::{Inline, inline};
use crate::memo::{Memo, Pass};
use crate::rewrite::Rewriter;

/// Whether an op is not opened.
pub type Stays<'a> = &'a dyn Fn(&Op) -> Result<bool>;

/// A chain of ops within ops longer than this is a cycle between rows.
const MAX_ROUNDS: usize = 32;

/// See the head of the file.
pub fn opened(program: &Program, stays: Stays<'_>) -> Result<Program> {
    let mut program = inline(program, Inline::All)?;
    for _ in 0..MAX_ROUNDS {
        let mut round = Round { stays, done: Memo::default(), changed: false };
        let next = round.program(&program)?;
        if !round.changed {
            return Ok(program);
        }
        program = inline(&next, Inline::All)?;
    }
    Err(internal_error!("the expansions of '{}' do not end", program.name))
}

struct Round<'a> {
    stays: Stays<'a>,
    done: Memo<(), Arc<Program>>,
    changed: bool,
}

impl Pass for Round<'_> {
    fn done(&mut self) -> &mut Memo<(), Arc<Program>> {
        &mut self.done
    }

    fn program(&mut self, program: &Program) -> Result<Program> {
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        for equation in &program.equations {
            let inputs = rewriter.atoms(&equation.inputs)?;
            let opens = |row: &dyn Rules| row.lower() == Lowering::Expand && equation.op.effects().is_empty();
            match equation.op.view() {
                View::Leaf(row) if opens(row) && !(self.stays)(&equation.op)? => {
                    self.changed = true;
                    rewriter.builder.source = equation.source;
                    let outputs = row.expand(&mut rewriter.builder, &inputs)?;
                    for (&var, atom) in equation.outputs.iter().zip(outputs) {
                        let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
                        let atom = rewriter.builder.with_weak(atom, weak)?;
                        rewriter.set(var, atom);
                    }
                }
                _ => {
                    let op = equation.op.map_programs(|inner| self.inner(inner))?;
                    rewriter.copy_as(equation, op, &inputs)?;
                }
            }
        }
        rewriter.finish(&program.outputs)
    }
}
