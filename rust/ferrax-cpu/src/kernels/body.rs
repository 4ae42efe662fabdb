//! The body of a loop, and how its values get from one step to the next.
//!
//! Nothing is copied between steps. A carry is *kept* where the body hands it
//! on as it is; it is worked on *in place* where the body's plan lets the new
//! value take over the memory of the old one; it *swaps* between two places
//! where the body computes it anew. All others *follow*: a pointer goes to
//! wherever the body found the value, such as another carry, an element of an
//! array that is gone through, or of one that is stacked. What the body
//! computes for them goes to places of a pool that no carry points to.

use std::sync::Arc;

use ferrax_compile::Place;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{Program, Result};
use smallvec::SmallVec;

use crate::executable::{Executable, Nested};
use crate::session::{Raw, Session};

const ALIGNMENT: usize = 64;
/// The place in the pool of what lies elsewhere.
const NOWHERE: u32 = u32::MAX;

/// An executable that runs over raw memory.
#[derive(Debug)]
pub struct Inner {
    pub executable: Arc<Executable>,
    pub raw: Raw,
}

impl Inner {
    pub fn new(program: &Arc<Program>, nested: &mut Nested) -> Result<Inner> {
        let executable = nested.executable(program)?;
        let raw = Raw::new(&executable);
        Ok(Inner { executable, raw })
    }

    /// # Safety
    /// As [`Session::begin`].
    pub unsafe fn begin(&self, workspace: *mut u8) -> Session<'_> {
        // SAFETY: the workspace is good for `begin` by this function's own contract; `raw` was made from
        // `executable` in `new`.
        unsafe { Session::begin(&self.executable, &self.raw, workspace) }
    }

    /// The number of the fresh buffer of an output, if it has one.
    pub fn fresh_of(&self, output: usize) -> Option<usize> {
        match self.executable.places[self.buffer_of(output) as usize] {
            Place::Fresh(index) => Some(index),
            _ => None,
        }
    }

    /// The buffer of an output.
    pub fn buffer_of(&self, output: usize) -> u32 {
        self.executable.outputs[output].buffer.0
    }

    /// Bytes of an output.
    pub fn bytes_of(&self, output: usize) -> usize {
        self.executable.outputs[output].bytes()
    }
}

/// A carry: the buffers of the body's input and output, and where its values
/// are. The number is the carry's.
#[derive(Clone, Copy, Debug)]
struct Carry {
    number: usize,
    bytes: usize,
    input: u32,
    output: u32,
}

/// A computed value that a carry follows, and the places of the pool for its size.
#[derive(Clone, Copy, Debug)]
struct Target {
    buffer: u32,
    places: (u32, u32),
}

/// A stacked output: one element for each step.
#[derive(Clone, Copy, Debug)]
struct Stacked {
    bytes: usize,
    buffer: u32,
    /// Computed where it is wanted; else copied there.
    direct: bool,
}

#[derive(Debug)]
pub struct Body {
    pub inner: Inner,
    constants: usize,
    kept: Vec<Carry>,
    in_place: Vec<Carry>,
    /// With the offset of the second place.
    swapped: Vec<(Carry, usize)>,
    followed: Vec<Carry>,
    targets: Vec<Target>,
    /// Offsets of the pool's places.
    pool: Vec<usize>,
    stacked: Vec<Stacked>,
    /// Buffers of the elements of arrays that are gone through, with their bytes.
    elements: Vec<(u32, usize)>,
    /// Bytes of the workspace, places of carries included.
    workspace: usize,
}

impl Body {
    /// The body of a loop whose inputs are so many constants, the carry, and elements.
    pub fn new(
        program: &Arc<Program>,
        constants: usize,
        carries: usize,
        nested: &mut Nested,
    ) -> Result<Body> {
        let inner = Inner::new(program, nested)?;
        let executable = &inner.executable;
        let outputs = executable.outputs.len();
        let mut workspace = inner.raw.workspace();
        let mut place = |bytes: usize| {
            let offset = workspace;
            workspace += bytes.next_multiple_of(ALIGNMENT);
            offset
        };
        // Whether another carry or a stacked output has the same buffer.
        let shared = |number: usize| {
            (0..outputs).any(|other| other != number && inner.buffer_of(other) == inner.buffer_of(number))
        };
        let is_read_by_another = |number: usize, input: u32| {
            (0..carries).any(|other| other != number && inner.buffer_of(other) == input)
        };
        let mut body_kept = Vec::new();
        let mut in_place = Vec::new();
        let mut swapped = Vec::new();
        let mut followed: Vec<Carry> = Vec::new();
        for number in 0..carries {
            let input = inner.raw.inputs[constants + number];
            let carry =
                Carry { number, bytes: inner.bytes_of(number), input, output: inner.buffer_of(number) };
            match inner.fresh_of(number) {
                _ if carry.output == input => body_kept.push(carry),
                Some(fresh) if !shared(number) && !is_read_by_another(number, input) => {
                    if executable.donations.contains(&(constants + number, fresh)) {
                        in_place.push(carry);
                    } else {
                        swapped.push((carry, place(carry.bytes)));
                    }
                }
                _ => followed.push(carry),
            }
        }
        let mut stacked: Vec<Stacked> = Vec::new();
        for output in carries..outputs {
            let buffer = inner.buffer_of(output);
            let direct =
                inner.fresh_of(output).is_some() && stacked.iter().all(|other| other.buffer != buffer);
            stacked.push(Stacked { bytes: inner.bytes_of(output), buffer, direct });
        }
        // Places for what carries follow that has no place of its own: at any time each of these carries
        // may hold one, and each new value takes one more.
        let mut fresh: Vec<Carry> = Vec::new();
        for carry in &followed {
            let computed = inner.fresh_of(carry.number).is_some();
            let known = fresh.iter().any(|other| other.output == carry.output);
            if computed && !known && stacked.iter().all(|stack| stack.buffer != carry.output) {
                fresh.push(*carry);
            }
        }
        let mut pool = Vec::new();
        let mut targets = Vec::new();
        fresh.sort_by_key(|carry| carry.bytes);
        for group in fresh.chunk_by(|a, b| a.bytes == b.bytes) {
            let holders = followed.iter().filter(|carry| carry.bytes == group[0].bytes).count();
            let first = pool.len() as u32;
            pool.extend((0..holders + group.len()).map(|_| place(group[0].bytes)));
            let places = (first, pool.len() as u32);
            targets.extend(group.iter().map(|carry| Target { buffer: carry.output, places }));
        }
        let elements = (constants + carries..executable.inputs().len())
            .map(|input| {
                let (dtype, sizes) = &executable.inputs()[input];
                (inner.raw.inputs[input], element_count(sizes) * dtype.size())
            })
            .collect();
        Ok(Body {
            constants,
            kept: body_kept,
            in_place,
            swapped,
            followed,
            targets,
            pool,
            stacked,
            elements,
            workspace,
            inner,
        })
    }

    /// Bytes of the workspace of a [`Loop`].
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Buffers of the carries that move from step to step.
    pub fn moving(&self) -> impl Iterator<Item = usize> {
        let swapped = self.swapped.iter().map(|(carry, _)| carry.number);
        self.in_place.iter().chain(&self.followed).map(|carry| carry.number).chain(swapped)
    }

    /// The buffer of the body's input for a carry.
    pub fn input(&self, carry: usize) -> u32 {
        self.inner.raw.inputs[self.constants + carry]
    }
}

/// A loop that runs.
pub struct Loop<'a> {
    body: &'a Body,
    pub session: Session<'a>,
    workspace: *mut u8,
    /// The place in the pool of each carry that follows, of each target, and
    /// how many hold each place.
    held: SmallVec<[u32; 8]>,
    taken: SmallVec<[u32; 8]>,
    holders: SmallVec<[u32; 16]>,
    next: SmallVec<[(*mut u8, u32); 8]>,
    first: bool,
}

impl<'a> Loop<'a> {
    /// Begins with these inputs: constants, then carry. The carry's final
    /// values go to `outputs`. `even` says that the number of steps is known to be so.
    ///
    /// # Safety
    /// The workspace is as the body says; operands are valid for their types
    /// while the loop lasts, and outputs overlap nothing.
    pub unsafe fn begin(
        body: &'a Body,
        constants: &[*const u8],
        carry: &[*const u8],
        outputs: &[*mut u8],
        workspace: *mut u8,
        even: bool,
    ) -> Loop<'a> {
        // SAFETY: the caller gives a workspace of the body's size that is nobody else's while the loop
        // lasts.
        let mut session = unsafe { body.inner.begin(workspace) };
        for (index, pointer) in constants.iter().chain(carry).enumerate() {
            *session.input(index) = pointer.cast_mut();
        }
        for carry in &body.in_place {
            session.pointers[carry.output as usize] = outputs[carry.number];
        }
        for (carry, spare) in &body.swapped {
            // So that the last step ends where the result belongs.
            session.pointers[carry.output as usize] =
                if even { workspace.wrapping_add(*spare) } else { outputs[carry.number] };
        }
        Loop {
            body,
            session,
            workspace,
            held: SmallVec::from_elem(NOWHERE, body.followed.len()),
            taken: SmallVec::from_elem(NOWHERE, body.targets.len()),
            holders: SmallVec::from_elem(0, body.pool.len()),
            next: SmallVec::new(),
            first: true,
        }
    }

    /// Runs the body once and hands the carry on. `at` is the number of the
    /// element, `arrays` and `stacks` are what is gone through and stacked.
    ///
    /// # Safety
    /// `at` is in range for all arrays and stacks, which are valid.
    #[inline]
    pub unsafe fn step(
        &mut self,
        outputs: &[*mut u8],
        at: usize,
        arrays: &[*const u8],
        stacks: &[*mut u8],
    ) -> Result<()> {
        let body = self.body;
        for (&(buffer, bytes), array) in body.elements.iter().zip(arrays) {
            self.session.pointers[buffer as usize] = array.wrapping_add(at * bytes).cast_mut();
        }
        for (stacked, stack) in body.stacked.iter().zip(stacks) {
            if stacked.direct {
                self.session.pointers[stacked.buffer as usize] = stack.wrapping_add(at * stacked.bytes);
            }
        }
        for (target, taken) in body.targets.iter().zip(&mut self.taken) {
            // There are more places than holders.
            let (mut place, last) = target.places;
            while place + 1 < last && self.holders[place as usize] > 0 {
                place += 1;
            }
            self.holders[place as usize] += 1;
            *taken = place;
            self.session.pointers[target.buffer as usize] =
                self.workspace.wrapping_add(body.pool[place as usize]);
        }
        // SAFETY: inputs and outputs are set and apart: places that carries hold are not taken, and elements
        // of stacks are each written once, before carries follow them.
        unsafe {
            self.session.run()?;
            for (stacked, stack) in body.stacked.iter().zip(stacks).filter(|(stacked, _)| !stacked.direct) {
                let from = self.session.pointers[stacked.buffer as usize];
                std::ptr::copy_nonoverlapping(from, stack.wrapping_add(at * stacked.bytes), stacked.bytes);
            }
        }
        if !body.followed.is_empty() {
            self.follow();
        }
        let pointers = &mut *self.session.pointers;
        for (carry, _) in &body.swapped {
            pointers.swap(carry.input as usize, carry.output as usize);
        }
        if self.first {
            self.first = false;
            for carry in &body.in_place {
                pointers[carry.input as usize] = pointers[carry.output as usize];
            }
            for (carry, spare) in &body.swapped {
                let (spare, own) = (self.workspace.wrapping_add(*spare), outputs[carry.number]);
                let now = pointers[carry.input as usize];
                pointers[carry.output as usize] = if now == own { spare } else { own };
            }
        }
        Ok(())
    }

    /// Points the carries that follow to their new values.
    fn follow(&mut self) {
        let body = self.body;
        self.next.clear();
        for carry in &body.followed {
            let place = match body.targets.iter().position(|target| target.buffer == carry.output) {
                Some(target) => self.taken[target],
                // What another carry held.
                None => body
                    .followed
                    .iter()
                    .position(|other| other.input == carry.output)
                    .map_or(NOWHERE, |other| self.held[other]),
            };
            self.next.push((self.session.pointers[carry.output as usize], place));
        }
        for (index, carry) in body.followed.iter().enumerate() {
            let (pointer, place) = self.next[index];
            if place != NOWHERE {
                self.holders[place as usize] += 1;
            }
            if self.held[index] != NOWHERE {
                self.holders[self.held[index] as usize] -= 1;
            }
            self.held[index] = place;
            self.session.pointers[carry.input as usize] = pointer;
        }
        for &place in &self.taken {
            self.holders[place as usize] -= 1;
        }
    }

    /// Puts the carry's values where they belong.
    ///
    /// # Safety
    /// As `begin`, with the same outputs.
    pub unsafe fn finish(self, outputs: &[*mut u8]) {
        let body = self.body;
        let swapped = body.swapped.iter().map(|(carry, _)| carry);
        for carry in body.kept.iter().chain(&body.in_place).chain(swapped).chain(&body.followed) {
            let (from, to) = (self.session.pointers[carry.input as usize], outputs[carry.number]);
            if from != to {
                // SAFETY: values are never in the place of another carry's result.
                unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) };
            }
        }
    }
}
