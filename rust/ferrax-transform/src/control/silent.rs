//! Programs that are run a second time.
//!
//! In: a program whose effects have happened already. Out: the same values
//! without the effects; an error where a value comes of one, for asking the
//! world again may give another answer. Cost: linear.

use std::sync::Arc;

use ferrax_ir::{Effect, Equation, Program, Result, unsupported};

use crate::rewrite::{Needed, Rewriter, at};

/// `program` without effects, or itself if it has none.
pub(crate) fn silenced(program: &Arc<Program>) -> Result<Arc<Program>> {
    if !program.effects.iter().any(Effect::happens) {
        return Ok(program.clone());
    }
    let mut needed = Needed::new(program);
    needed.add(&program.outputs);
    let mut kept: Vec<bool> = vec![false; program.equations.len()];
    for (kept, equation) in kept.iter_mut().zip(&program.equations).rev() {
        *kept = needed.any(&equation.outputs);
        if *kept {
            needed.add(&equation.inputs);
        }
    }
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|var| needed.contains(var));
    for (equation, _) in program.equations.iter().zip(&kept).filter(|(_, kept)| **kept) {
        if !equation.op.happens() {
            rewriter.copy(equation)?;
            continue;
        }
        let inputs = rewriter.atoms(&equation.inputs)?;
        rewriter.copy_as(equation, at(equation, quiet(equation))?, &inputs)?;
    }
    Ok(Arc::new(rewriter.finish(&program.outputs)?))
}

fn quiet(equation: &Equation) -> Result<ferrax_ir::Op> {
    let op = equation.op.map_programs(silenced)?;
    if op.happens() {
        return Err(unsupported!(
            "the derivative of a while_loop without max_steps, or with checkpoints, runs its steps again, but they \
             need the result of {}, which has effects and must happen once; give the loop max_steps and no \
             checkpoints, so that the result is kept",
            op.name()
        ));
    }
    Ok(op)
}
