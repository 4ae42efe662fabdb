//! Small loops as one shader (`ferrax_compile::launches`): what runs them.
//!
//! A dispatch does a limited number of steps and leaves the carry in memory for the next. The host waits for a `while`
//! once for each dispatch, to read whether it goes on, and not for each step; and not at all where the program says how
//! many steps there are.

use std::sync::Arc;

use ferrax_compile::launches::{self, Bound};
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::ops::{Scan, While};
use ferrax_ir::{Program, Result, internal_error};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sequence::with_words;
use crate::wgsl::sequence::{COUNT, FIRST, HOLDS, NEXT};

/// A loop that is one shader.
#[derive(Debug)]
pub struct SmallLoop {
    /// Those of a scan, in order. Of a while, one of as many steps as a dispatch has, and one of the steps before its
    /// bound that are left.
    dispatches: Vec<Prepared>,
    bindings: Vec<Bound>,
    constants: Vec<Memory>,
    /// The operand that the first carry is, and how many there are.
    first_carry: usize,
    carries: usize,
    /// The bytes of each result; none for carries that stay as they are.
    results: Vec<Option<usize>>,
    /// Of a while when it ends.
    end: Option<End>,
}

/// When a while ends.
#[derive(Debug)]
struct End {
    /// The steps of a dispatch.
    steps: usize,
    /// The steps that there may be.
    most: Option<usize>,
    /// The steps that there are, if that is known.
    known: Option<u64>,
    /// The body, which errors name.
    body: Arc<Program>,
}

/// A scan of so many steps.
pub fn scan(gpu: &Gpu, op: &Scan, length: usize, planned: launches::SmallLoop) -> Result<SmallLoop> {
    let (form, mut words) = with_words(&planned.sequence)?;
    words[NEXT] = if op.reverse { u32::MAX } else { 1 };
    let mut dispatches = Vec::new();
    for first in (0..length).step_by(planned.steps) {
        words[FIRST] = if op.reverse { length - 1 - first } else { first } as u32;
        words[COUNT] = planned.steps.min(length - first) as u32;
        dispatches.push(gpu.prepared(Source::Sequence(Box::new(form.clone())), &words, 1)?);
    }
    SmallLoop::new(gpu, planned, dispatches, None)
}

/// A while that goes on as long as word `holds` of own memory says so; it has `known` steps, where that is known.
pub fn while_loop(
    gpu: &Gpu,
    op: &While,
    (holds, known): (usize, Option<u64>),
    planned: launches::SmallLoop,
) -> Result<SmallLoop> {
    let (form, mut words) = with_words(&planned.sequence)?;
    words[HOLDS] = holds as u32;
    let steps = planned.steps;
    let counts = std::iter::once(steps).chain(op.max_steps.map(|most| most % steps));
    let mut dispatches = Vec::new();
    for count in counts {
        words[COUNT] = count as u32;
        dispatches.push(gpu.prepared(Source::Sequence(Box::new(form.clone())), &words, 1)?);
    }
    let end = End { steps, most: op.max_steps, known, body: op.body_jaxpr.clone() };
    SmallLoop::new(gpu, planned, dispatches, Some(end))
}

impl SmallLoop {
    fn new(
        gpu: &Gpu,
        planned: launches::SmallLoop,
        dispatches: Vec<Prepared>,
        end: Option<End>,
    ) -> Result<SmallLoop> {
        let constants = planned.constants.iter().map(|tensor| gpu.upload(tensor.bytes()));
        Ok(SmallLoop {
            dispatches,
            constants: constants.collect::<Result<_>>()?,
            bindings: planned.bindings,
            first_carry: planned.first_carry,
            carries: planned.carries,
            results: planned.results,
            end,
        })
    }

    /// One dispatch, the first of them or not.
    fn dispatch(
        &self,
        gpu: &Gpu,
        prepared: &Prepared,
        (inputs, results): (&[Memory], &[Memory]),
        between: &[Option<Memory>],
        is_first: bool,
    ) -> Result<()> {
        let memory = |(bound, between): (&Bound, &Option<Memory>)| {
            let found = match *bound {
                Bound::Input(number) => match number.checked_sub(self.first_carry) {
                    Some(carry) if !is_first && carry < self.carries => results.get(carry),
                    _ => inputs.get(number),
                },
                Bound::Output(number) => results.get(number),
                Bound::Constant(number) => self.constants.get(number),
                Bound::Between(..) | Bound::Holds => between.as_ref(),
            };
            found.cloned().ok_or_else(|| internal_error!("a loop has no memory for {bound:?}"))
        };
        let bindings = self.bindings.iter().zip(between);
        let bindings = bindings.map(memory).collect::<Result<Vec<_>>>()?;
        gpu.launch(prepared, &bindings)
    }
}

impl Library for SmallLoop {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let mut results = Vec::with_capacity(self.results.len());
        for (number, bytes) in self.results.iter().enumerate() {
            results.push(match (bytes, inputs.get(self.first_carry + number)) {
                (Some(bytes), _) => gpu.allocate(*bytes)?,
                (None, Some(input)) => input.clone(),
                (None, None) => return Err(internal_error!("a loop has no carry {number}")),
            });
        }
        let between = |bound: &Bound| match *bound {
            Bound::Between(bytes, _) => gpu.allocate(bytes).map(Some),
            Bound::Holds => gpu.allocate(size_of::<u32>()).map(Some),
            _ => Ok(None),
        };
        let between = self.bindings.iter().map(between).collect::<Result<Vec<_>>>()?;
        let arrays = (inputs, results.as_slice());
        let Some(End { steps, most, known, body }) = &self.end else {
            for (number, prepared) in self.dispatches.iter().enumerate() {
                self.dispatch(gpu, prepared, arrays, &between, number == 0)?;
            }
            return Ok(results);
        };
        let holds = between.last().and_then(Option::as_ref);
        let holds = holds.ok_or_else(|| internal_error!("a while without a place for its condition"))?;
        let mut done = 0;
        loop {
            let left = most.map_or(*steps, |most| most - done);
            let prepared = self.dispatches.get(usize::from(left < *steps));
            let prepared = prepared.ok_or_else(|| internal_error!("a while without a dispatch"))?;
            self.dispatch(gpu, prepared, arrays, &between, done == 0)?;
            done += left.min(*steps);
            let goes_on = match known {
                Some(known) => *known > done as u64,
                None => {
                    let mut word = [0; size_of::<u32>()];
                    gpu.download(holds, &mut word)?;
                    u32::from_le_bytes(word) != 0
                }
            };
            if !goes_on {
                return Ok(results);
            }
            within_bound(body, done, *most)?;
        }
    }

    fn in_vain(&self, cost: u64) -> Option<u64> {
        match &self.end {
            None => Some(cost),
            Some(end) => end.known.map(|_| cost),
        }
    }
}
