//! Replaces calls by the equations of their callees.
//!
//! Invariants: arguments take the weakness that the callee was typed with;
//! effects keep their order. Cost: linear in the size of the result; a callee
//! is prepared once however many calls it has.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Call;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Program, Result};

use crate::memo::{Memo, Pass};
use crate::rewrite::Rewriter;

/// Which calls are inlined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Inline {
    /// Those that say so.
    Marked,
    /// Those, and callees of at most so many equations.
    UpTo(usize),
    /// All.
    All,
}

pub fn inline(program: &Program, which: Inline) -> Result<Program> {
    let result = Inliner { which, callees: Memo::default() }.program(program)?;
    debug_verify(&result, "inlining")?;
    Ok(result)
}

struct Inliner {
    which: Inline,
    callees: Memo<(), Arc<Program>>,
}

impl Pass for Inliner {
    fn done(&mut self) -> &mut Memo<(), Arc<Program>> {
        &mut self.callees
    }

    fn program(&mut self, program: &Program) -> Result<Program> {
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        for equation in &program.equations {
            let View::Call(call) = equation.op.view() else {
                let op = equation.op.map_programs(|callee| self.inner(callee))?;
                let inputs = rewriter.atoms(&equation.inputs)?;
                rewriter.copy_as(equation, op, &inputs)?;
                continue;
            };
            let callee = self.inner(&call.program)?;
            let inside = match self.which {
                Inline::Marked => call.inline,
                Inline::UpTo(limit) => call.inline || callee.equations.len() <= limit,
                Inline::All => true,
            };
            let inputs = rewriter.atoms(&equation.inputs)?;
            if !inside {
                let op = Call { name: call.name.clone(), program: callee, inline: false };
                rewriter.copy_as(equation, op.into(), &inputs)?;
                continue;
            }
            rewriter.builder.source = equation.source;
            let outputs = rewriter.builder.inline(&callee, &inputs)?;
            for (&var, atom) in equation.outputs.iter().zip(outputs) {
                rewriter.set(var, atom);
            }
        }
        rewriter.finish(&program.outputs)
    }
}
