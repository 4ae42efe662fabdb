//! Kernels that go through rows together (`ferrax_compile::rows`), as one shader.
//!
//! Softmax, normalisations and their gradients reduce each row and come back to it. A workgroup takes a row through
//! all kernels, or an invocation does where rows are short and many; what only they need is in memory of its own, if
//! it fits, and never in an array. Small kernels that follow one another are such a shader, too, of one row. Long
//! rows that are few are left to kernels that follow one another, of which each fills the GPU.
//!
//! In: a plan. Out: shaders for some of its steps. Cost: that of finding runs.

use std::ops::Range;

use ferrax_compile::cost_model::RUN_STEPS;
use ferrax_compile::rows::{Run, find_runs};
use ferrax_compile::{BufferId, Launch, PerLoop, Place as PlanPlace, Plan, Step, Target};
use ferrax_ir::{DType, Result};

use crate::gpu::{Gpu, Prepared};
use crate::pipelines::Source;
use crate::sequence::{MOST_ITERATIONS, OwnMemory, Place, Sequence, When, has_shader, lanes, work};
use crate::wgsl::WORKGROUP;
use crate::wgsl::sequence::{COUNT, Frame};

/// Iterations of a row below which it is short, and rows from which on these are many: then rows are invocations.
const SHORT: usize = 32;
const MANY_ROWS: usize = 256;

/// Iterations of kernels that are small: one workgroup is faster than launches.
const SMALL: usize = 1024;

/// Words that an invocation may have of its own.
const OWN_WORDS: usize = 64;

/// Iterations of a row from which on a workgroup is slow, and rows that keep the GPU busy though it is.
const LONG: usize = 4096;
const ENOUGH_ROWS: usize = 512;

/// Steps of a plan that are one shader, and the buffers that are bound to it.
#[derive(Debug)]
pub struct Rows {
    pub steps: Range<usize>,
    pub prepared: Prepared,
    pub buffers: Vec<BufferId>,
}

/// The runs of kernels of a plan that become shaders, and its small kernels that follow one another, in order. What is in the
/// plan's own runs, which go block by block, is left to these.
pub fn bind(gpu: &Gpu, plan: &Plan) -> Result<Vec<Rows>> {
    // Library calls are no part of these runs, which may be small: each saves launches.
    let target = Target {
        run_bytes: 0,
        block_bytes: usize::MAX,
        product_bytes: usize::MAX,
        ..ferrax_compile::Backend::target(gpu)
    };
    let mut found = Vec::new();
    let mut taken = vec![false; plan.steps.len()];
    plan.runs.iter().for_each(|run| taken[run.steps.clone()].fill(true));
    for run in find_runs(&plan.steps, &plan.buffers, &target) {
        if !taken[run.steps.clone()].contains(&true)
            && !plan.steps[run.steps.clone()].iter().all(is_small)
            && let Some(rows) = rows(gpu, plan, &run)?
        {
            taken[run.steps].fill(true);
            found.push(rows);
        }
    }
    let mut first = 0;
    while first < plan.steps.len() {
        let rest = plan.steps[first..].iter().zip(&taken[first..]);
        let count = rest.take(RUN_STEPS).take_while(|(step, taken)| is_small(step) && !**taken).count();
        small(gpu, plan, first..first + count, &mut found)?;
        first += count.max(1);
    }
    found.sort_by_key(|rows| rows.steps.start);
    Ok(found)
}

fn is_small(step: &Step) -> bool {
    matches!(step, Step::Kernel { launch, .. } if has_shader(launch) && work(launch, &[]) <= SMALL)
}

/// Small kernels as one shader, of one workgroup, or in halves if their arrays are too many for one.
fn small(gpu: &Gpu, plan: &Plan, steps: Range<usize>, found: &mut Vec<Rows>) -> Result<()> {
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
    let run = Run { steps: steps.clone(), extents, by_rows, row_bytes: 0, own_bytes: 0, calls: false };
    if let Some(rows) = rows(gpu, plan, &run)? {
        found.push(rows);
        return Ok(());
    }
    let middle = steps.start + steps.len() / 2;
    small(gpu, plan, steps.start..middle, found)?;
    small(gpu, plan, middle..steps.end, found)
}

fn launches<'a>(plan: &'a Plan, run: &Run) -> Option<Vec<(&'a Launch, &'a [BufferId])>> {
    let launch = |step: &'a Step| match step {
        Step::Kernel { launch, operands } if has_shader(launch) => Some((launch, operands.as_slice())),
        _ => None,
    };
    plan.steps[run.steps.clone()].iter().map(launch).collect()
}

fn rows(gpu: &Gpu, plan: &Plan, run: &Run) -> Result<Option<Rows>> {
    let Some(launches) = launches(plan, run) else { return Ok(None) };
    let loops: Vec<usize> = (0..run.extents.len()).collect();
    let most = launches.iter().map(|(launch, _)| work(launch, &loops)).max().unwrap_or(0);
    let alone = most < SHORT && run.rows() >= MANY_ROWS;
    if most > LONG && run.rows() < ENOUGH_ROWS {
        return Ok(None);
    }
    let frame = if alone { Frame::Alone } else { Frame::Rows };
    let mut own = if alone { OwnMemory::new(OWN_WORDS) } else { OwnMemory::of_workgroup(gpu) };
    let mut buffers = Buffers::new(plan, run, &launches);
    let mut sequence = Sequence::new(frame, if alone { WORKGROUP } else { lanes(most) });
    let mut places = Vec::with_capacity(launches.len());
    for (launch, operands) in &launches {
        let mut of_kernel = Vec::with_capacity(operands.len());
        for (id, operand) in operands.iter().zip(&launch.kernel.operands) {
            of_kernel.push(buffers.place(*id, operand.dtype, &mut own)?);
        }
        places.push(of_kernel);
    }
    if alone && buffers.spilled {
        return Ok(None);
    }
    if buffers.arrays.len() > gpu.most_operands() {
        return Ok(None);
    }
    let mut iterations = 0;
    for ((launch, _), places) in launches.iter().zip(&places) {
        iterations += sequence.part(When::Body, launch, &loops, places)?;
    }
    if iterations > MOST_ITERATIONS {
        return Ok(None);
    }
    let Some((form, mut words)) = sequence.finish(gpu, &own, buffers.arrays.len()) else { return Ok(None) };
    let Ok(count) = u32::try_from(run.rows()) else { return Ok(None) };
    words[COUNT] = count;
    let groups = if alone { count.div_ceil(WORKGROUP) } else { count };
    let prepared = gpu.prepared(Source::Sequence(Box::new(form)), &words, groups)?;
    Ok(Some(Rows { steps: run.steps.clone(), prepared, buffers: buffers.arrays }))
}

/// Where the buffers of a run are.
struct Buffers<'a> {
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
    fn new(plan: &'a Plan, run: &'a Run, launches: &[(&Launch, &[BufferId])]) -> Buffers<'a> {
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
        for (_, step) in outside {
            match step {
                Step::Kernel { operands, .. } => operands.iter().for_each(|id| within[id.0 as usize] = None),
                Step::Library { inputs, outputs, .. } => {
                    inputs
                        .iter()
                        .chain(outputs)
                        .for_each(|argument| within[argument.buffer.0 as usize] = None);
                }
            }
        }
        plan.outputs.iter().for_each(|output| within[output.buffer.0 as usize] = None);
        let known = vec![None; plan.buffers.len()];
        Buffers { plan, run, within, known, arrays: Vec::new(), spilled: false }
    }

    fn place(&mut self, id: BufferId, dtype: DType, own: &mut OwnMemory) -> Result<Place> {
        let at = id.0 as usize;
        if let Some(place) = self.known[at] {
            return Ok(place);
        }
        let mut place = None;
        if let Some((first, last)) = self.within[at] {
            let elements = self.plan.buffers[at].bytes / self.run.rows() / dtype.size();
            place = own.take(elements, dtype, first, last)?;
            self.spilled |= place.is_none();
        }
        let place = place.unwrap_or_else(|| {
            self.arrays.push(id);
            Place::Array(self.arrays.len() as u32 - 1)
        });
        self.known[at] = Some(place);
        Ok(place)
    }
}
