//! Kernels that go through rows together ([`crate::rows`]), as one launch.
//!
//! Softmax, normalisations and their gradients reduce each row and come back to it. A workgroup takes a row through
//! all kernels, or an invocation does where rows are short and many; what only they need is in memory of its own, if
//! it fits, and never in an array. Small kernels that follow one another are such a launch, too, of one row. Long
//! rows that are few are left to kernels that follow one another, of which each fills the machine.
//!
//! In: a plan. Out: sequences for some of its steps. Cost: that of finding runs.

use std::ops::Range;

use ferrax_ir::{DType, Result};

use super::assembly::{Draft, FEWEST_LANES, MOST_ITERATIONS, When, has_shader, lanes, of_workgroup, work};
use super::machine::Machine;
use super::own::{OwnMemory, Place};
use super::sequence::{Frame, Sequence};
use crate::cost_model::RUN_STEPS;
use crate::index::PerLoop;
use crate::kernel::Launch;
use crate::plan::{BufferId, Place as PlanPlace, Plan, Run, Step};
use crate::rows::find_runs;
use crate::tuning::Target;

/// Steps of a plan that are one launch.
#[derive(Debug)]
pub struct Together {
    pub steps: Range<usize>,
    pub sequence: Sequence,
    /// How many rows there are, each a workgroup's or an invocation's.
    pub rows: u32,
    /// The buffers that are its arrays.
    pub buffers: Vec<BufferId>,
}

/// The runs of kernels of a plan that are one launch each, and its small kernels that follow one another, in order.
/// What is in the plan's own runs, which go block by block, is left to these.
pub fn find(plan: &Plan, machine: &dyn Machine) -> Result<Vec<Together>> {
    // Library calls are no part of these runs, which may be small: each saves launches.
    let target = Target {
        run_bytes: 0,
        block_bytes: usize::MAX,
        product_bytes: usize::MAX,
        ..machine.limits().target
    };
    let mut found = Vec::new();
    let mut taken = vec![false; plan.steps.len()];
    plan.runs.iter().for_each(|run| taken[run.steps.clone()].fill(true));
    for run in find_runs(&plan.steps, &plan.buffers, &target) {
        if !taken[run.steps.clone()].contains(&true)
            && !plan.steps[run.steps.clone()].iter().all(|step| is_small(step, machine))
            && let Some(rows) = rows(machine, plan, &run)?
        {
            taken[run.steps].fill(true);
            found.push(rows);
        }
    }
    let mut first = 0;
    while first < plan.steps.len() {
        let rest = plan.steps[first..].iter().zip(&taken[first..]);
        let count = rest.take(RUN_STEPS).take_while(|(step, taken)| !**taken && is_small(step, machine));
        let count = count.count();
        small(machine, plan, first..first + count, &mut found)?;
        first += count.max(1);
    }
    found.sort_by_key(|rows| rows.steps.start);
    Ok(found)
}

fn is_small(step: &Step, machine: &dyn Machine) -> bool {
    let most = machine.limits().thresholds.small;
    matches!(step, Step::Kernel { launch, .. } if has_shader(launch, machine) && work(launch, &[]) <= most)
}

/// Small kernels as one launch, of one workgroup, or in halves if their arrays are too many for one.
fn small(machine: &dyn Machine, plan: &Plan, steps: Range<usize>, found: &mut Vec<Together>) -> Result<()> {
    if steps.len() < 2 {
        return Ok(());
    }
    let of = |step: &Step| match step {
        Step::Kernel { operands, .. } => operands.clone(),
        Step::Library { .. } => Vec::new(),
    };
    let mut by_rows: Vec<BufferId> = plan.steps[steps.clone()].iter().flat_map(of).collect();
    by_rows.sort_unstable();
    by_rows.dedup();
    let extents = PerLoop::new();
    let run = Run { steps: steps.clone(), extents, by_rows, row_bytes: 0, own_bytes: 0, parts: Vec::new() };
    if let Some(rows) = rows(machine, plan, &run)? {
        found.push(rows);
        return Ok(());
    }
    let middle = steps.start + steps.len() / 2;
    small(machine, plan, steps.start..middle, found)?;
    small(machine, plan, middle..steps.end, found)
}

fn launches<'a>(
    machine: &dyn Machine,
    plan: &'a Plan,
    run: &Run,
) -> Option<Vec<(&'a Launch, &'a [BufferId])>> {
    let launch = |step: &'a Step| match step {
        Step::Kernel { launch, operands } if has_shader(launch, machine) => {
            Some((launch, operands.as_slice()))
        }
        _ => None,
    };
    plan.steps[run.steps.clone()].iter().map(launch).collect()
}

fn rows(machine: &dyn Machine, plan: &Plan, run: &Run) -> Result<Option<Together>> {
    let Some(launches) = launches(machine, plan, run) else { return Ok(None) };
    let loops: Vec<usize> = (0..run.extents.len()).collect();
    let most = launches.iter().map(|(launch, _)| work(launch, &loops)).max().unwrap_or(0);
    let limits = machine.limits();
    let thresholds = &limits.thresholds;
    let alone = most < thresholds.short_row && run.rows() >= thresholds.many_rows;
    if most > thresholds.long_row && run.rows() < thresholds.enough_rows {
        return Ok(None);
    }
    let frame = if alone { Frame::Alone } else { Frame::Rows };
    let mut own = if alone { OwnMemory::new(thresholds.alone_words) } else { of_workgroup(limits) };
    let mut buffers = Buffers::new(machine, plan, run, &launches);
    let mut sequence = Draft::new(machine, frame, if alone { FEWEST_LANES } else { lanes(most) });
    let mut places = Vec::with_capacity(launches.len());
    for (launch, operands) in &launches {
        let mut of_kernel = Vec::with_capacity(operands.len());
        for (id, operand) in operands.iter().zip(&launch.kernel.operands) {
            of_kernel.push(buffers.place(*id, operand.dtype, &mut own));
        }
        places.push(of_kernel);
    }
    if alone && buffers.spilled {
        return Ok(None);
    }
    if buffers.arrays.len() > limits.target.operands {
        return Ok(None);
    }
    let mut iterations = 0;
    for ((launch, _), places) in launches.iter().zip(&places) {
        iterations += sequence.part(When::Body, launch, &loops, places)?;
    }
    if iterations > MOST_ITERATIONS {
        return Ok(None);
    }
    let Some(sequence) = sequence.finish(&own, buffers.arrays.len()) else { return Ok(None) };
    let Ok(rows) = u32::try_from(run.rows()) else { return Ok(None) };
    Ok(Some(Together { steps: run.steps.clone(), sequence, rows, buffers: buffers.arrays }))
}

/// Where the buffers of a run are.
struct Buffers<'a> {
    machine: &'a dyn Machine,
    plan: &'a Plan,
    run: &'a Run,
    /// For each buffer the first and the last step of the run that uses it, if no other step does.
    within: Vec<Option<(usize, usize)>>,
    known: Vec<Option<Place>>,
    arrays: Vec<BufferId>,
    /// Whether a value that is the run's alone has no place in own memory.
    spilled: bool,
}

impl<'a> Buffers<'a> {
    fn new(
        machine: &'a dyn Machine,
        plan: &'a Plan,
        run: &'a Run,
        launches: &[(&Launch, &[BufferId])],
    ) -> Buffers<'a> {
        let mut within: Vec<Option<(usize, usize)>> = vec![None; plan.buffers.len()];
        for (number, (_, operands)) in launches.iter().enumerate() {
            for id in *operands {
                let place = plan.buffers[id.0 as usize].place;
                if run.walks(*id) && matches!(place, PlanPlace::Arena(_) | PlanPlace::Rows(_)) {
                    within[id.0 as usize].get_or_insert((number, number)).1 = number;
                }
            }
        }
        let outside = plan.steps.iter().enumerate().filter(|(number, _)| !run.steps.contains(number));
        outside.for_each(|(_, step)| step.each_buffer(|id| within[id.0 as usize] = None));
        plan.outputs.iter().for_each(|output| within[output.buffer.0 as usize] = None);
        let known = vec![None; plan.buffers.len()];
        Buffers { machine, plan, run, within, known, arrays: Vec::new(), spilled: false }
    }

    fn place(&mut self, id: BufferId, dtype: DType, own: &mut OwnMemory) -> Place {
        let at = id.0 as usize;
        if let Some(place) = self.known[at] {
            return place;
        }
        let mut place = None;
        if let Some((first, last)) = self.within[at] {
            let elements = self.plan.buffers[at].bytes / self.run.rows() / dtype.size();
            let words = self.machine.words(dtype).map(|words| elements.saturating_mul(words));
            place = words.and_then(|words| own.take(words, first, last));
            self.spilled |= place.is_none();
        }
        let place = place.unwrap_or_else(|| {
            self.arrays.push(id);
            Place::Array(self.arrays.len() as u32 - 1)
        });
        self.known[at] = Some(place);
        place
    }
}
