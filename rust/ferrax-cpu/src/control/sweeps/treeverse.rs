//! Sweeps that run their steps again instead of recording all of them.
//!
//! Only the records of one step are there at a time. [`Walk::visit`] meets the
//! steps in a direction with the records that a sweep and those before it leave
//! at each. In the sweep's own direction the steps are simply made, along with a
//! visit to the steps of the sweep before. Against it the sweep is taken from
//! checkpoint to checkpoint, as `schedule` says, and each step is met from a
//! state before it: [`Walk::back`]. A checkpoint of a sweep includes what the
//! earlier sweeps need to start there.
//!
//! So the usual case, a loop and one sweep back, has at most as many states of the
//! loop at a time as are asked for, and the one that is worked on. Each sweep
//! more that goes against the one before multiplies the runs, and has
//! checkpoints of its own.

use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;

use ferrax_ir::ops::Sweeps;
use ferrax_ir::ops::control::within_bound;
use ferrax_ir::{Result, internal_error};
use ferrax_transform::dce;

use super::super::body::{Body, Loop};
use super::schedule::split;
use super::{ALIGNMENT, Sweep, SweepsKernel};
use crate::alloc::Buffer;
use crate::call::Call;
use crate::machine::Nested;

/// Consecutive places in memory.
#[derive(Debug, Default)]
struct Room {
    offsets: Vec<usize>,
    bytes: usize,
}

impl Room {
    fn add(&mut self, bytes: usize) -> usize {
        let offset = self.bytes;
        self.offsets.push(offset);
        self.bytes += bytes.next_multiple_of(ALIGNMENT);
        offset
    }

    fn of(values: &[usize]) -> Room {
        let mut room = Room::default();
        for &bytes in values {
            room.add(bytes);
        }
        room
    }

    fn pointers(&self, start: *mut u8) -> Vec<*mut u8> {
        self.offsets.iter().map(|&offset| start.wrapping_add(offset)).collect()
    }
}

/// What is known of the kernel before it runs.
#[derive(Debug)]
pub(super) struct Plan {
    checkpoints: usize,
    /// The bodies that give nothing but their carry, where they are others.
    plain: Vec<Option<Body>>,
    /// For each carry of the first of these that moves: the buffers of the body's and of the
    /// condition's input.
    moving: Vec<(u32, u32)>,
    /// Bytes of each carry of each sweep.
    carries: Vec<Vec<usize>>,
    states: Vec<Room>,
    /// The scratch memory: for each sweep a workspace, the carry of its running loop, and the records
    /// of a step; then the condition's workspace and its result.
    scratch: Room,
}

impl Plan {
    pub fn new(
        op: &Sweeps,
        checkpoints: usize,
        kernel: &SweepsKernel,
        nested: &mut Nested<'_>,
    ) -> Result<Plan> {
        let mut plain = Vec::with_capacity(kernel.sweeps.len());
        let mut carries = Vec::with_capacity(kernel.sweeps.len());
        let mut states = Vec::with_capacity(kernel.sweeps.len());
        let mut scratch = Room::default();
        for sweep in &kernel.sweeps {
            let own: Vec<usize> = (0..sweep.carries).map(|carry| sweep.body.inner.bytes_of(carry)).collect();
            let without = if sweep.records.is_empty() {
                None
            } else {
                let mut program = (*sweep.program).clone();
                program.outputs.truncate(sweep.carries);
                Some(Body::new(&Arc::new(dce(&program)?), op.num_consts, sweep.carries, &|_| false, nested)?)
            };
            let workspace = without.as_ref().map_or(0, Body::workspace);
            scratch.add(workspace.max(sweep.body.workspace()));
            scratch.add(Room::of(&own).bytes);
            scratch.add(Room::of(&sweep.records).bytes);
            plain.push(without);
            states.push(Room::of(&own));
            carries.push(own);
        }
        scratch.add(kernel.condition.raw.workspace());
        scratch.add(ALIGNMENT);
        let first = plain.first().and_then(Option::as_ref).or(kernel.sweeps.first().map(|sweep| &sweep.body));
        let input = |carry| kernel.condition.raw.inputs[op.num_consts + carry];
        let moving =
            first.into_iter().flat_map(|body| body.moving().map(|carry| (body.input(carry), input(carry))));
        let moving = moving.collect();
        Ok(Plan { checkpoints, plain, moving, carries, states, scratch })
    }

    pub fn scratch(&self) -> usize {
        self.scratch.bytes
    }
}

/// The carry of a sweep between two steps.
struct State {
    pointers: Vec<*const u8>,
    _memory: Option<Buffer>,
    #[cfg(test)]
    _counted: tests::Counted,
}

impl State {
    fn new(pointers: Vec<*const u8>, memory: Option<Buffer>) -> Rc<State> {
        Rc::new(State {
            pointers,
            _memory: memory,
            #[cfg(test)]
            _counted: tests::Counted::new(),
        })
    }
}

/// What is done at a step that is visited.
type Then<'t, 'a> = &'t mut dyn FnMut(&mut Walk<'a>, usize) -> Result<ControlFlow<()>>;

/// What the first sweep has left.
struct First {
    steps: usize,
    /// Checkpoints, each with the number of steps before it.
    placed: Vec<(usize, Rc<State>)>,
    /// Whether the records of the last step are there.
    recorded: bool,
}

/// Sweeps that run.
struct Walk<'a> {
    kernel: &'a SweepsKernel,
    plan: &'a Plan,
    constants: &'a [*const u8],
    scratch: *mut u8,
    /// Of each sweep: where its loop has its carry while it runs.
    own: Vec<Vec<*mut u8>>,
    /// The records of the present step: those of a sweep, and those of all before it.
    records: Vec<Vec<*mut u8>>,
    seen: Vec<Vec<*const u8>>,
    /// Of each sweep whose loop runs: its carry before the first step, and after the last one.
    before: Vec<Option<Rc<State>>>,
    after: Vec<Vec<*const u8>>,
}

/// Runs the sweeps of the kernel.
///
/// # Safety
/// As [`crate::call::Kernel::run`].
pub(super) unsafe fn run(kernel: &SweepsKernel, plan: &Plan, call: &Call<'_>) -> Result<()> {
    let (constants, carries) = call.inputs.split_at(kernel.constants);
    // SAFETY: `call` is a call of this kernel, and its scratch memory has the bytes of the plan's.
    unsafe { Walk::new(kernel, plan, constants, call.scratch).run(carries, call.outputs) }
}

/// Copies a carry.
///
/// # Safety
/// Both are memory for as many bytes each, apart from one another.
unsafe fn copy(from: &[*const u8], to: &[*mut u8], bytes: &[usize]) {
    for ((&from, &to), &bytes) in from.iter().zip(to).zip(bytes) {
        // SAFETY: the lists are of one carry: each pair of pointers is valid for the bytes beside it, and
        // the caller says that they are apart.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

impl Loop<'_> {
    /// Where the carry is.
    fn carry(&self, body: &Body, count: usize) -> impl Iterator<Item = *const u8> {
        (0..count).map(|carry| self.session.pointers[body.input(carry) as usize].cast_const())
    }
}

impl<'a> Walk<'a> {
    fn new(kernel: &'a SweepsKernel, plan: &'a Plan, constants: &'a [*const u8], scratch: *mut u8) -> Self {
        let part = |index: usize| scratch.wrapping_add(plan.scratch.offsets[index]);
        let mut walk = Walk {
            kernel,
            plan,
            constants,
            scratch,
            own: Vec::new(),
            records: Vec::new(),
            seen: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        };
        let mut seen: Vec<*const u8> = Vec::new();
        for (number, sweep) in kernel.sweeps.iter().enumerate() {
            walk.own.push(plan.states[number].pointers(part(3 * number + 1)));
            let records = Room::of(&sweep.records).pointers(part(3 * number + 2));
            walk.seen.push(seen.clone());
            seen.extend(records.iter().map(|record| record.cast_const()));
            walk.records.push(records);
            walk.before.push(None);
            walk.after.push(Vec::new());
        }
        walk
    }

    fn part(&self, index: usize) -> *mut u8 {
        self.scratch.wrapping_add(self.plan.scratch.offsets[index])
    }

    fn workspace(&self, sweep: usize) -> *mut u8 {
        self.part(3 * sweep)
    }

    /// The body that leaves no records.
    fn plain(&self, sweep: usize) -> &'a Body {
        self.plan.plain[sweep].as_ref().unwrap_or(&self.kernel.sweeps[sweep].body)
    }

    /// Room for a state, and where its parts go.
    fn room(&self, sweep: usize) -> Result<(Rc<State>, Vec<*mut u8>)> {
        let room = &self.plan.states[sweep];
        let memory = Buffer::new(room.bytes)?;
        let pointers = room.pointers(memory.pointer());
        let state = State::new(pointers.iter().map(|pointer| pointer.cast_const()).collect(), Some(memory));
        Ok((state, pointers))
    }

    /// Keeps a carry.
    ///
    /// # Safety
    /// It is one of that sweep's.
    unsafe fn keep(&self, sweep: usize, carry: &[*const u8]) -> Result<Rc<State>> {
        let (state, to) = self.room(sweep)?;
        // SAFETY: the room is new and made for that carry.
        unsafe { copy(carry, &to, &self.plan.carries[sweep]) };
        Ok(state)
    }

    /// # Safety
    /// As [`run`].
    unsafe fn run(mut self, carries: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        let kernel = self.kernel;
        let mut entries = Vec::with_capacity(kernel.sweeps.len());
        let mut results: Vec<&[*mut u8]> = Vec::with_capacity(kernel.sweeps.len());
        let mut at = 0;
        for sweep in &kernel.sweeps {
            entries.push(State::new(carries[at..at + sweep.carries].to_vec(), None));
            results.push(&outputs[at..at + sweep.carries]);
            at += sweep.carries;
        }
        let last = kernel.sweeps.len() - 1;
        let reverse = kernel.sweeps[last].reverse;
        // SAFETY: operands and results are those of the sweeps; the places of the scratch memory and the
        // states are made for what is put there.
        unsafe {
            let found = self.first(&entries[0], results[0], last == 1 && reverse)?;
            let steps = found.steps;
            let Some(entry) = entries.pop().filter(|_| last > 0) else { return Ok(()) };
            if steps == 0 {
                for sweep in 1..last {
                    copy(&entries[sweep].pointers, results[sweep], &self.plan.carries[sweep]);
                }
            }
            let body = self.plain(last);
            let mut sweep = Loop::begin(
                body,
                self.constants,
                &entry.pointers,
                results[last],
                self.workspace(last),
                steps.is_multiple_of(2),
            );
            let ends = [0, steps.saturating_sub(1)];
            let mut then = |walk: &mut Walk<'a>, at: usize| {
                sweep.step(results[last], 0, &walk.seen[last], &[])?;
                for middle in 1..last {
                    let end = ends[usize::from(!kernel.sweeps[middle].reverse)];
                    if at == end {
                        copy(&walk.after[middle], results[middle], &walk.plan.carries[middle]);
                    }
                }
                Ok(ControlFlow::Continue(()))
            };
            if last == 1 && reverse {
                drop(entries);
                self.back_from(found, &mut then)?;
            } else if steps > 0 {
                drop(found);
                let _ = self.visit(last - 1, reverse, 0..steps, entries, &mut then)?;
            }
            sweep.finish(results[last]);
        }
        Ok(())
    }

    /// The first sweep. If the next one goes back, it places checkpoints on the way as if there were as
    /// many steps as there may be, and keeps the records of the last of so many.
    ///
    /// # Safety
    /// The entry and the outputs are those of the first sweep.
    unsafe fn first(&mut self, entry: &Rc<State>, outputs: &[*mut u8], goes_back: bool) -> Result<First> {
        let (kernel, plan) = (self.kernel, self.plan);
        let first = &kernel.sweeps[0];
        let most = kernel.max_steps.filter(|_| goes_back);
        let mut placed = vec![(0, entry.clone())];
        let next = |at: usize, states: usize| {
            let place =
                at + split(most?.checked_sub(at).filter(|left| *left > 2)?, plan.checkpoints - states + 1);
            (states < plan.checkpoints && Some(place + 1) != most).then_some(place)
        };
        let mut place = next(0, 1);
        let mut steps = 0;
        let mut recorded = false;
        let (plain, workspace) = (self.plain(0), self.workspace(0));
        let conditions = 3 * kernel.sweeps.len();
        // SAFETY: the plan's scratch memory has a part for the condition's workspace, one for its result
        // and one for the first body's workspace, and none of them is used by another sweep; the entry and
        // the outputs have the types of the sweep's carry; with records the last step writes to the first
        // sweep's room for them.
        unsafe {
            let mut condition = kernel.condition.begin(self.part(conditions));
            for (position, pointer) in self.constants.iter().chain(&entry.pointers).enumerate() {
                *condition.input(position) = pointer.cast_mut();
            }
            if let Some(fresh) = kernel.condition.fresh_of(0) {
                *condition.fresh(fresh) = self.part(conditions + 1);
            }
            let mut body = Loop::begin(plain, self.constants, &entry.pointers, outputs, workspace, false);
            let mut moving = &plan.moving;
            loop {
                condition.run()?;
                if *condition.output(0) == 0 {
                    break;
                }
                within_bound(&first.program, steps, kernel.max_steps)?;
                if Some(steps) == place {
                    let carry: Vec<_> = body.carry(plain, first.carries).collect();
                    placed.push((steps, self.keep(0, &carry)?));
                    place = next(steps, placed.len());
                }
                if most == Some(steps + 1) {
                    // The other body works in the same memory.
                    let carry: Vec<_> = body.carry(plain, first.carries).collect();
                    copy(&carry, &self.own[0], &plan.carries[0]);
                    let carry: Vec<_> = self.own[0].iter().map(|pointer| pointer.cast_const()).collect();
                    drop(body);
                    body = Loop::begin(&first.body, self.constants, &carry, outputs, workspace, false);
                    body.step(outputs, 0, &[], &self.records[0])?;
                    moving = &kernel.moving;
                    recorded = true;
                } else {
                    body.step(outputs, 0, &[], &[])?;
                }
                steps += 1;
                for &(from, to) in moving {
                    condition.pointers[to as usize] = body.session.pointers[from as usize];
                }
            }
            body.finish(outputs);
        }
        Ok(First { steps, placed, recorded })
    }

    /// Visits the steps of the first sweep from the last to the first.
    ///
    /// # Safety
    /// The checkpoints are this sweep's.
    unsafe fn back_from(&mut self, found: First, then: Then<'_, 'a>) -> Result<()> {
        let First { steps: mut end, mut placed, recorded } = found;
        if recorded {
            end -= 1;
            if then(self, end)?.is_break() {
                return Ok(());
            }
        }
        while let Some((start, state)) = placed.pop() {
            let more = self.plan.checkpoints - placed.len() - 1;
            // SAFETY: the checkpoints that are left are states of this sweep, the last one at `start`.
            if unsafe { self.back(0, start..end, vec![state], more, then)? }.is_break() {
                return Ok(());
            }
            end = start;
        }
        Ok(())
    }

    /// Visits steps in that direction with the records of sweeps up to this one. The entries are the
    /// carries of these sweeps where each comes to the steps.
    ///
    /// # Safety
    /// The entries are of these sweeps.
    unsafe fn visit(
        &mut self,
        sweep: usize,
        reverse: bool,
        steps: Range<usize>,
        mut entries: Vec<Rc<State>>,
        then: Then<'_, 'a>,
    ) -> Result<ControlFlow<()>> {
        let own: &'a Sweep = &self.kernel.sweeps[sweep];
        if own.reverse != reverse {
            let more = self.plan.checkpoints - 1;
            // SAFETY: entries and steps are those of this call, seen from the other direction.
            return unsafe { self.back(sweep, steps, entries, more, then) };
        }
        let entry =
            entries.pop().ok_or_else(|| internal_error!("sweep {sweep} has no state to start from"))?;
        let workspace = self.workspace(sweep);
        // SAFETY: the workspace, the carry and the records are this sweep's; its loop does not run already.
        let mut body = unsafe {
            Loop::begin(&own.body, self.constants, &entry.pointers, &self.own[sweep], workspace, false)
        };
        self.before[sweep] = Some(entry);
        let mut step = |walk: &mut Walk<'a>, at: usize| {
            // SAFETY: the loop was begun above with this sweep's carry and workspace; it leaves this
            // sweep's records in this sweep's room, and reads those of the sweeps before it, which `visit`
            // has filled for step `at`.
            unsafe { body.step(&walk.own[sweep], 0, &walk.seen[sweep], &walk.records[sweep])? };
            if walk.kernel.sweeps.len() > 2 {
                walk.after[sweep].clear();
                walk.after[sweep].extend(body.carry(&own.body, own.carries));
            }
            then(walk, at)
        };
        let mut flow = ControlFlow::Continue(());
        if sweep > 0 {
            // SAFETY: without the last one the entries are those of the sweeps before this one.
            flow = unsafe { self.visit(sweep - 1, reverse, steps, entries, &mut step)? };
        } else {
            for at in steps {
                flow = step(self, at)?;
                if flow.is_break() {
                    break;
                }
            }
        }
        self.before[sweep] = None;
        Ok(flow)
    }

    /// Visits steps against the direction of the sweep, with room for `more` checkpoints.
    ///
    /// # Safety
    /// As `visit`.
    unsafe fn back(
        &mut self,
        sweep: usize,
        steps: Range<usize>,
        mut entries: Vec<Rc<State>>,
        more: usize,
        then: Then<'_, 'a>,
    ) -> Result<ControlFlow<()>> {
        let kernel = self.kernel;
        let reverse = kernel.sweeps[sweep].reverse;
        let Range { mut start, mut end } = steps;
        while end - start > 1 {
            let count = if more == 0 { end - start - 1 } else { split(end - start, more + 1) };
            // SAFETY: the entries are of the sweeps up to this one, where they come to these steps.
            let mut between = unsafe { self.advance(sweep, start..end, &entries, count)? };
            // The rest begins with these states for sweeps in this direction, and ends with them for
            // the others.
            for ((entry, state), other) in entries.iter_mut().zip(&mut between).zip(&kernel.sweeps) {
                if other.reverse != reverse {
                    std::mem::swap(entry, state);
                }
            }
            let rest = if reverse { start..end - count } else { start + count..end };
            // SAFETY: `advance` gave the states of the same sweeps `count` steps on: with those at the
            // other end of the rest they are its entries.
            let flow = unsafe { self.back(sweep, rest, between, more.saturating_sub(1), then)? };
            if flow.is_break() {
                return Ok(flow);
            }
            if reverse { start = end - count } else { end = start + count }
        }
        if start == end {
            return Ok(ControlFlow::Continue(()));
        }
        // SAFETY: one step is left, which begins with these entries.
        unsafe { self.visit(sweep, reverse, start..end, entries, then) }
    }

    /// Makes the first steps of a sweep: the states of it and those before it then.
    ///
    /// # Safety
    /// As `visit`, with at least as many steps.
    unsafe fn advance(
        &mut self,
        sweep: usize,
        steps: Range<usize>,
        entries: &[Rc<State>],
        count: usize,
    ) -> Result<Vec<Rc<State>>> {
        let (state, to) = self.room(sweep)?;
        let body = self.plain(sweep);
        let (entry, even) = (&entries[sweep].pointers, count.is_multiple_of(2));
        let mut states = Vec::with_capacity(sweep + 1);
        // SAFETY: the workspace is this sweep's, and its loop does not run already; the state is made for
        // its carry.
        unsafe {
            let mut own = Loop::begin(body, self.constants, entry, &to, self.workspace(sweep), even);
            if sweep == 0 {
                for _ in 0..count {
                    own.step(&to, 0, &[], &[])?;
                }
            } else {
                let reverse = self.kernel.sweeps[sweep].reverse;
                let mut left = count;
                let _ =
                    self.visit(sweep - 1, reverse, steps, entries[..sweep].to_vec(), &mut |walk, _| {
                        own.step(&to, 0, &walk.seen[sweep], &[])?;
                        left -= 1;
                        if left > 0 {
                            return Ok(ControlFlow::Continue(()));
                        }
                        for earlier in 0..sweep {
                            states.push(walk.between(earlier, reverse)?);
                        }
                        Ok(ControlFlow::Break(()))
                    })?;
            }
            own.finish(&to);
        }
        states.push(state);
        Ok(states)
    }

    /// The state of a sweep between the present step and the next one in that direction.
    ///
    /// # Safety
    /// The sweep's loop runs: alone for this step if it goes in the other direction.
    unsafe fn between(&self, sweep: usize, reverse: bool) -> Result<Rc<State>> {
        if self.kernel.sweeps[sweep].reverse == reverse {
            // SAFETY: the carry is where the loop has it.
            return unsafe { self.keep(sweep, &self.after[sweep]) };
        }
        self.before[sweep].clone().ok_or_else(|| internal_error!("sweep {sweep} is at no step"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ferrax_ir::{Program, Tensor};

    use crate::backend::compile;

    thread_local! {
        static STATES: Cell<[usize; 2]> = const { Cell::new([0, 0]) };
    }

    /// Counts the states that there are, and the most at a time.
    pub(super) struct Counted;

    impl Counted {
        pub(super) fn new() -> Counted {
            let [now, most] = STATES.get();
            STATES.set([now + 1, most.max(now + 1)]);
            Counted
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            let [now, most] = STATES.get();
            STATES.set([now - 1, most]);
        }
    }

    /// A loop and a sweep back.
    const BACK: &str = "{ lambda ; n:i32[] i:i32[] x:f32[] t:f32[]. let
        j:i32[] y:f32[] u:f32[] = sweeps[
          bodies=(
            { lambda ; n:i32[] i:i32[] x:f32[]. let j:i32[] = add i 1:i32[]; y:f32[] = sin x; c:f32[] = cos x in (j, y, c) },
            { lambda ; n:i32[] t:f32[] c:f32[]. let u:f32[] = mul t c in (u,) }
          )
          checkpoints=CHECKPOINTS
          cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f32[]. let c:bool[] = lt i n in (c,) }
          max_steps=MOST num_carry=(2, 1) num_consts=1 reverse=(False, True)
        ] n i x t
      in (j, y, u) }";

    #[test]
    fn no_more_states_than_checkpoints_and_one() {
        for checkpoints in [1, 2, 3, 10, 60] {
            for (steps, most) in [(0, 4), (1, 1), (2, 2), (3, 3), (40, 40), (40, 41), (40, 1000), (100, 100)]
            {
                let text =
                    BACK.replace("CHECKPOINTS", &checkpoints.to_string()).replace("MOST", &most.to_string());
                let scalar = |value: f32| Tensor::from_elements(&[][..], &[value]).unwrap();
                let int = |value: i32| Tensor::from_elements(&[][..], &[value]).unwrap();
                let executable = compile(&Program::parse(&text).unwrap()).unwrap();
                STATES.set([0, 0]);
                executable.run(&[int(steps), int(0), scalar(0.5), scalar(1.0)]).unwrap();
                let [left, found] = STATES.get();
                assert_eq!(left, 0);
                // The cotangent that the sweep back begins with is counted too.
                let found = found - 1;
                assert!(
                    found <= checkpoints + 1,
                    "{found} states, {checkpoints} checkpoints, {steps} of {most} steps"
                );
                if steps as usize > checkpoints + 2 {
                    assert_eq!(found, checkpoints + 1);
                }
            }
        }
    }
}
