//! From a plan to an executable: each step with its sizes, its thresholds and the memory that it may find in one.

use std::ops::Range;
use std::sync::Arc;

use ferrax_compile::profile::{Kind, What};
use ferrax_compile::{Argument, Place, Plan, Step};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{Op, Result, internal_error};
use rustc_hash::FxHashMap;

use crate::call::Kernel;
use crate::executable::{Action, Executable, Ready};
use crate::machine::Nested;
use crate::rows::{Rows, Work};
use crate::vm::Bound;
use crate::{control, interrupt, kernels};

/// The memory that each buffer lies in, told by the number of a buffer: an input and the fresh buffer that it may be
/// donated to are in one, for each is in one donation at most; all others are apart.
fn regions(places: &[Place], donations: &[(usize, usize)]) -> Vec<u32> {
    let taken_by: FxHashMap<usize, usize> = donations.iter().copied().collect();
    let numbered = || places.iter().zip(0u32..);
    let fresh: FxHashMap<usize, u32> = numbered()
        .filter_map(
            |(place, buffer)| if let Place::Fresh(index) = place { Some((*index, buffer)) } else { None },
        )
        .collect();
    let region = |(place, own): (&Place, u32)| match place {
        Place::Input(index) => taken_by.get(index).and_then(|taker| fresh.get(taker)).copied().unwrap_or(own),
        _ => own,
    };
    numbered().map(region).collect()
}

/// What computes an op that is no kernel IR.
fn kernel(
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
    regions: &[u32],
    nested: &mut Nested<'_>,
) -> Result<Box<dyn Kernel>> {
    let region = |argument: &Argument| regions[argument.buffer.0 as usize];
    let shared = |operand: usize, result: usize| region(&inputs[operand]) == region(&outputs[result]);
    match control::bind(op, inputs, outputs, &shared, nested)? {
        Some(kernel) => Ok(kernel),
        None => kernels::bind(op, inputs, outputs, nested.backend().tuning()),
    }
}

/// What profiles show of these steps, which run as one.
fn what(plan: &Plan, steps: Range<usize>) -> Arc<What> {
    let steps = &plan.steps[steps];
    let kind = match steps {
        [Step::Library { .. }] => Kind::Library,
        _ => Kind::Kernel,
    };
    let labels = steps.iter().map(Step::label);
    let source = labels.clone().rev().map(|label| label.source).find(|source| source.is_known());
    let names: Vec<&str> = labels.map(|label| &*label.name).collect();
    let by_rows = if names.len() > 1 { " by rows" } else { "" };
    What::new(kind, names.join(" + ") + by_rows, source.unwrap_or_default())
}

/// Makes a plan ready.
pub(crate) fn bind(plan: Plan, nested: &mut Nested<'_>) -> Result<Executable> {
    let (tuning, times) = (nested.backend().tuning(), nested.times());
    let places: Vec<Place> = plan.buffers.iter().map(|buffer| buffer.place).collect();
    let regions = regions(&places, &plan.donations);
    let mut steps = Vec::with_capacity(plan.steps.len());
    // One at a time runs, so that they share their scratch memory.
    let mut scratch = 0;
    let bound = |step: &Step, cut: usize| -> Result<Bound> {
        let Step::Kernel { launch, operands } = step else {
            return Err(internal_error!("a call as a kernel"));
        };
        Bound::new(launch, tuning, (cut, times), &|operand| regions[operands[operand as usize].0 as usize])
    };
    let mut runs = plan.runs.iter().peekable();
    let mut number = 0;
    while let Some(step) = plan.steps.get(number) {
        let run = runs.next_if(|run| run.steps.start == number);
        let first = number;
        number = run.map_or(number + 1, |run| run.steps.end);
        let action = match (run, step) {
            (Some(run), _) => Action::Rows(Box::new(Rows::new(&plan, run, tuning, |step| match step {
                Step::Kernel { .. } => Ok(Work::Kernel(Box::new(bound(step, run.extents.len())?))),
                Step::Library { op, inputs, outputs, .. } => {
                    Ok(Work::Call(kernel(op, inputs, outputs, &regions, nested)?, inputs.len()))
                }
            })?)),
            (None, Step::Kernel { operands, .. }) => Action::Kernel {
                bound: Box::new(bound(step, 0)?),
                operands: operands.iter().map(|id| id.0).collect(),
            },
            (None, Step::Library { op, inputs, outputs, .. }) => Action::Library {
                kernel: kernel(op, inputs, outputs, &regions, nested)?,
                inputs: inputs.iter().map(|argument| argument.buffer.0).collect(),
                outputs: outputs.iter().map(|argument| argument.buffer.0).collect(),
            },
        };
        let bytes = action.buffers().map(|id| plan.buffers[id as usize].bytes);
        let work = bytes.fold(interrupt::STEP, usize::saturating_add);
        if let Action::Library { kernel, .. } = &action {
            scratch = scratch.max(kernel.scratch());
        }
        steps.push(Ready { action, work, what: what(&plan, first..number) });
    }
    let read = plan.inputs.iter().map(|(dtype, sizes)| element_count(sizes).saturating_mul(dtype.size()));
    // An output that is another value may be copied.
    let written = plan.outputs.iter().map(Argument::bytes).chain([plan.arena]);
    let work = read.fold(0, usize::saturating_add).max(written.fold(0, usize::saturating_add));
    let mut donations = plan.donations;
    donations.sort_unstable_by_key(|&(_, fresh)| fresh);
    Ok(Executable {
        name: plan.name,
        inputs: plan.inputs,
        constants: plan.constants,
        places,
        steps,
        outputs: plan.outputs,
        fresh: plan.fresh,
        arena: plan.arena.saturating_add(scratch),
        scratch: plan.arena,
        donations,
        tuning,
        work,
    })
}
