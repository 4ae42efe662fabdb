//! Checks that a plan can be run without reading or writing where it must not. The invariants:
//!
//! 1. Over the whole index space of a kernel, inside of its guards, every load and
//!    store is of an element of its operand's buffer, whatever the indices of its jumps
//!    are; so is every argument of a library call, and every result.
//! 2. A store has no guards, writes each element once, and not to an input or a
//!    constant; no other store of its kernel writes to that element. So threads and
//!    lanes write apart. In the epilogue nothing moves along reduction axes.
//! 3. Bodies read what there is: registers from above, loads, accumulators (in the
//!    epilogue), indices of loops, in the register types of their dtypes.
//! 4. What a step reads was written before, all of it. A step that reads a buffer that
//!    it writes does so element by element, or is an op that works in place.
//! 5. Two values in the arena whose lives meet do not overlap, and lie inside of it.
//! 6. A donated input has the size of the result that it becomes, and is read
//!    before that is written, or element by element in the same step.
//! 7. A run is of steps that have its rows, and for each row they reach, in all that the
//!    run writes, that row alone. In the sense of 5 and 6 all that a run needs is alive
//!    in all its steps. The memory of its blocks is for values that it alone needs, to
//!    which 5 applies step by step.
//!
//! Nothing of this is computed by what makes plans: lives, what works in place and the rows of runs are found
//! again from the steps and their index maps. [`verify_places`] holds 4 to 6 and what 7 says of places, for each plan
//! that is made; [`verify_plan`] all of it, in tests and debug builds.
//!
//! Not checked: what library calls do with their arguments, but for the rows of products.
//!
//! Cost: n log n in the size of the plan, and a few steps for each pair of stores of
//! a kernel into one buffer, whatever the extents.

mod accesses;
mod grids;
mod places;
mod runs;

use ferrax_ir::{Error, Program, Result, internal_error};

use crate::plan::{Buffer, BufferId, Plan, Step};
use crate::tuning::Target;

/// All invariants. The error names the step, the operand and the equation whose value it is.
pub fn verify_plan(plan: &Plan, program: &Program, target: &Target) -> Result<()> {
    let verifier = Verifier { plan, program, target };
    for (number, step) in plan.steps.iter().enumerate() {
        match step {
            Step::Kernel { launch, operands } => verifier.kernel(number, launch, operands),
            Step::Library { op, inputs, outputs, .. } => verifier.library(number, op, inputs, outputs),
        }?;
    }
    for output in &plan.outputs {
        verifier.argument("the result", output)?;
    }
    verifier.places()?;
    verifier.filled()?;
    verifier.runs()
}

/// That no value takes the memory of another: invariants 5 and 6, 4 and 7 as far as they are of places.
pub fn verify_places(plan: &Plan, program: &Program, target: &Target) -> Result<()> {
    Verifier { plan, program, target }.places()
}

struct Verifier<'a> {
    plan: &'a Plan,
    program: &'a Program,
    target: &'a Target,
}

impl Verifier<'_> {
    fn fault(&self, what: impl std::fmt::Display) -> Error {
        internal_error!("the plan of '{}': {what}", self.plan.name)
    }

    /// A buffer for messages: the value in it, and the op that made it.
    fn show(&self, id: BufferId) -> String {
        let Some(var) = self.plan.buffers.get(id.0 as usize).and_then(|buffer| buffer.var) else {
            return format!("buffer {}", id.0);
        };
        match self.program.equations.iter().find(|equation| equation.outputs.contains(&var)) {
            Some(equation) => format!("buffer {} (%{}, of {})", id.0, var.0, equation.op.name()),
            None => format!("buffer {} (%{})", id.0, var.0),
        }
    }

    fn buffer(&self, who: &str, id: BufferId) -> Result<&Buffer> {
        self.plan
            .buffers
            .get(id.0 as usize)
            .ok_or_else(|| self.fault(format_args!("{who} is buffer {}, which does not exist", id.0)))
    }
}

#[cfg(test)]
mod tests;
