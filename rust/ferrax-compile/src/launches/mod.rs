//! What machines launch at once, for which each launch costs something: GPUs.
//!
//! In: a plan, and what a [`Machine`] says of itself. Out: the plan, whose products took kernels in, and its steps in
//! groups of which each is launched at once. A machine only makes them ready and runs them. In their order:
//!
//! | module | holds |
//! |---|---|
//! | `machine` | what this asks of a machine |
//! | `blocks` | runs with products, cut into blocks of rows |
//! | `fuse` | kernels that products take in: those of elements (`elementwise`) |
//! | `together` | kernels that go through rows together, and small ones, as one launch |
//! | `loops` | small loops, as such |
//! | `assembly` | kernels in one launch (`sequence`): what waits for what; `own`: where what is between them is |
//!
//! Cost: that of finding runs, and linear in the number of accesses.

mod assembly;
pub mod blocks;
mod elementwise;
mod fuse;
mod loops;
mod machine;
mod own;
mod sequence;
mod together;

use std::ops::Range;

use ferrax_ir::Result;

use crate::plan::Plan;
pub use elementwise::digits;
pub use fuse::{Fusion, Origin, Taken};
pub use loops::{Bound, End, SmallLoop, scan, while_loop};
pub use machine::{Limits, Machine};
pub use own::Place;
pub use sequence::{Folds, Frame, Part, Sequence, Waits};
pub use together::Together;

/// Steps that are launched at once.
#[derive(Debug)]
pub enum Group {
    /// One step; of a product what it took in, if anything.
    Step(usize, Option<Box<Fusion>>),
    /// Kernels that follow one another, as one launch.
    Together(Together),
    /// A run of the plan that goes block by block.
    Run(usize),
}

impl Group {
    /// Its steps.
    pub fn steps(&self, plan: &Plan) -> Range<usize> {
        match self {
            Group::Step(step, _) => *step..step + 1,
            Group::Together(together) => together.steps.clone(),
            Group::Run(run) => plan.runs[*run].steps.clone(),
        }
    }
}

/// The plan as it is launched, and its steps in groups, in order.
pub fn launches(mut plan: Plan, machine: &dyn Machine) -> Result<(Plan, Vec<Group>)> {
    let bytes = machine.limits().thresholds.block_bytes;
    plan.runs.retain(|run| blocks::are_several(run, bytes));
    let (plan, fusions) = fuse::fuse(plan, machine);
    let mut together = together::find(&plan, machine)?.into_iter().peekable();
    let mut runs = (0..plan.runs.len()).peekable();
    let mut groups = Vec::with_capacity(plan.steps.len());
    let mut next = 0;
    for (step, fusion) in fusions.into_iter().enumerate() {
        if step < next {
            continue;
        }
        let group = if let Some(together) = together.next_if(|together| together.steps.start == step) {
            Group::Together(together)
        } else if let Some(run) = runs.next_if(|&run| plan.runs[run].steps.start == step) {
            Group::Run(run)
        } else {
            Group::Step(step, fusion.map(Box::new))
        };
        next = group.steps(&plan).end;
        groups.push(group);
    }
    Ok((plan, groups))
}

#[cfg(test)]
mod tests;
