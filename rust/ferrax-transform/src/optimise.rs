//! The pipeline that programs go through before they are compiled: `inline`,
//! then rounds of `simplify`, `conditional_updates`, `hoist`, `fission`, `fold`, `cse` and `dce`.
//!
//! Invariants: values, types, inputs, outputs and effects stay. Callees that are
//! not inlined are optimised too, each once. Cost: linear for each round, and
//! the rounds are few; they end when nothing changes. A branch that folding decides
//! is there in the round after, and what it holds may be decided then: there are as
//! many rounds more as such branches are nested, up to [`NESTED`].

use std::sync::Arc;

use ferrax_ir::{Equation, Op, Program, Result};

use crate::inline::Inline;
use crate::memo::Memo;
use crate::rewrite::{Rewriter, is_same, share};
use crate::{conditional_updates, cse, dce, fission, fold, hoist, inline, simplify};

/// Rounds for decided branches in decided branches, at most: each may be as long as all branches of the one before.
const NESTED: usize = 8;

/// What `optimise` does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    pub inline: Inline,
    /// The most rounds there are, but for those that decided branches ask for.
    pub rounds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { inline: Inline::All, rounds: 2 }
    }
}

pub fn optimise(program: &Program, options: Options) -> Result<Program> {
    let inlined = inline(program, options.inline)?;
    Optimiser { rounds: options.rounds, callees: Memo::default() }.program(&inlined)
}

/// Whether it is known which branch an equation takes: there are fewer of those after each round.
fn is_decided(equation: &Equation) -> bool {
    let index = equation.inputs.first().filter(|_| matches!(equation.op, Op::Cond(_)));
    index.is_some_and(|index| index.as_literal().is_some())
}

struct Optimiser {
    rounds: usize,
    callees: Memo<(), Arc<Program>>,
}

impl Optimiser {
    fn program(&mut self, program: &Program) -> Result<Program> {
        let mut current = self.optimise_callees(program)?;
        let mut round = 0;
        let asked = |program: &Program| program.equations.iter().any(is_decided);
        while round < self.rounds || (round < self.rounds + NESTED && asked(&current)) {
            round += 1;
            let simpler = conditional_updates(simplify(&current)?)?;
            let next = dce(&cse(&fold(&fission(&hoist(&simpler)?)?)?)?)?;
            let same = is_same(&next, &current);
            current = next;
            if same {
                break;
            }
        }
        Ok(current)
    }

    fn optimise_callees(&mut self, program: &Program) -> Result<Program> {
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        for equation in &program.equations {
            let op = equation.op.map_programs(|callee| self.callee(callee))?;
            let inputs = rewriter.atoms(&equation.inputs)?;
            rewriter.copy_as(equation, op, &inputs)?;
        }
        rewriter.finish(&program.outputs)
    }

    fn callee(&mut self, callee: &Arc<Program>) -> Result<Arc<Program>> {
        if let Some(found) = self.callees.get(callee, ()) {
            return Ok(found);
        }
        let optimised = share(self.program(callee)?, callee);
        Ok(self.callees.insert(callee, (), optimised))
    }
}
