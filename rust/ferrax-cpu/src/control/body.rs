//! The body of a loop, and its values from one step to the next (`ferrax_compile::carries`).

use std::sync::Arc;

use ferrax_compile::Path;
use ferrax_compile::carries::{Carries, Carry};
use ferrax_ir::{Program, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::ALIGNMENT;
use crate::call::Held;
use crate::executable::Executable;
use crate::machine::Nested;
use crate::session::{Raw, Session};

/// The place in the pool of what lies elsewhere.
const NOWHERE: u32 = u32::MAX;

/// An executable that runs over raw memory.
#[derive(Debug)]
pub struct Inner {
    pub executable: Arc<Executable>,
    pub raw: Raw,
}

impl Inner {
    pub fn new(program: &Arc<Program>, nested: &mut Nested<'_>) -> Result<Inner> {
        let executable = nested.executable(program)?;
        let raw = Raw::new(&executable);
        Ok(Inner { executable, raw })
    }

    /// The executable, as far as one asks what it keeps in memory.
    pub fn held(&self) -> &dyn Held {
        &*self.executable
    }

    /// Bytes that it keeps, but for the executable.
    pub fn bytes(&self) -> usize {
        self.raw.bytes()
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
        self.executable.ends().fresh_of(output)
    }

    /// The buffer of an output.
    pub fn buffer_of(&self, output: usize) -> u32 {
        self.executable.outputs[output].buffer.0
    }

    /// Whether the fresh buffer may be computed in the memory of an input.
    pub fn may_take(&self, input: usize, fresh: usize) -> bool {
        self.executable.donations.contains(&(input, fresh))
    }

    /// Bytes of an output.
    pub fn bytes_of(&self, output: usize) -> usize {
        self.executable.outputs[output].bytes()
    }
}

/// What a carry that follows points to after a step.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// What was computed for the target with this number.
    Target(usize),
    /// What the one with this number among those that follow pointed to.
    Followed(usize),
    /// What has no place in the pool.
    Elsewhere,
}

#[derive(Debug)]
pub struct Body {
    pub inner: Inner,
    constants: usize,
    carries: Carries,
    /// Of each carry that follows.
    sources: Vec<Source>,
    /// Carries that follow whose initial value may lie where the result goes, which others may still point to then: it is
    /// copied, to these offsets after all else.
    moved: Vec<(Carry, usize)>,
    workspace: usize,
}

impl Body {
    /// The body of a loop whose inputs are so many constants, the carry, and elements. `shared` says of a carry whether
    /// its initial value may be in the memory of its result.
    pub fn new(
        program: &Arc<Program>,
        constants: usize,
        carries: usize,
        shared: &dyn Fn(usize) -> bool,
        nested: &mut Nested<'_>,
    ) -> Result<Body> {
        let inner = Inner::new(program, nested)?;
        let carries = Carries::new(&inner.executable.ends(), constants, carries)?;
        Path::CarryKept.take_if(!carries.kept.is_empty());
        Path::CarryInPlace.take_if(!carries.in_place.is_empty());
        Path::CarrySwapped.take_if(!carries.swapped.is_empty());
        Path::CarryFollowed.take_if(!carries.followed.is_empty());
        Path::StackDirect.take_if(carries.stacked.iter().any(|stacked| stacked.direct));
        Path::StackCopied.take_if(carries.stacked.iter().any(|stacked| !stacked.direct));
        let mut of_buffer: FxHashMap<u32, Source> = FxHashMap::default();
        for (number, carry) in carries.followed.iter().enumerate() {
            of_buffer.insert(carry.input, Source::Followed(number));
        }
        for (number, target) in carries.targets.iter().enumerate() {
            of_buffer.insert(target.buffer, Source::Target(number));
        }
        let source = |carry: &Carry| of_buffer.get(&carry.output).copied().unwrap_or(Source::Elsewhere);
        let sources = carries.followed.iter().map(source).collect();
        let mut workspace = inner.raw.workspace() + carries.bytes;
        let mut moved = Vec::new();
        for carry in carries.followed.iter().filter(|carry| shared(carry.number)) {
            moved.push((*carry, workspace));
            workspace += carry.bytes.next_multiple_of(ALIGNMENT);
        }
        Ok(Body { inner, constants, carries, sources, moved, workspace })
    }

    /// Bytes that it keeps, but for the executable.
    pub fn bytes(&self) -> usize {
        self.inner.bytes() + size_of_val(&*self.sources) + size_of_val(&*self.moved)
    }

    /// Bytes of the workspace of a [`Loop`].
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// Buffers of the carries that move from step to step.
    pub fn moving(&self) -> impl Iterator<Item = usize> {
        let swapped = self.carries.swapped.iter().map(|(carry, _)| carry.number);
        self.carries.in_place.iter().chain(&self.carries.followed).map(|carry| carry.number).chain(swapped)
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
    /// Memory of the carries' places.
    places: *mut u8,
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
    /// while the loop lasts, and outputs overlap nothing but the initial value of their carry, where `Body::new` was
    /// told so.
    pub unsafe fn begin(
        body: &'a Body,
        constants: &[*const u8],
        carry_at: &[*const u8],
        outputs: &[*mut u8],
        workspace: *mut u8,
        even: bool,
    ) -> Loop<'a> {
        // SAFETY: the caller gives a workspace of the body's size that is nobody else's while the loop
        // lasts.
        let mut session = unsafe { body.inner.begin(workspace) };
        let places = workspace.wrapping_add(body.inner.raw.workspace());
        for (index, pointer) in constants.iter().chain(carry_at).enumerate() {
            *session.input(index) = pointer.cast_mut();
        }
        for (carry, place) in &body.moved {
            let (from, to) = (carry_at[carry.number], workspace.wrapping_add(*place));
            if from == outputs[carry.number].cast_const() {
                // SAFETY: the workspace has this place, which nothing else has, and the operand so many bytes.
                unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) };
                session.pointers[carry.input as usize] = to;
            }
        }
        for carry in &body.carries.in_place {
            session.pointers[carry.output as usize] = outputs[carry.number];
        }
        for (carry, spare) in &body.carries.swapped {
            // So that the last step ends where the result belongs; never over what the first one reads.
            let beside = even || carry_at[carry.number] == outputs[carry.number].cast_const();
            session.pointers[carry.output as usize] =
                if beside { places.wrapping_add(*spare) } else { outputs[carry.number] };
        }
        Loop {
            body,
            session,
            places,
            held: SmallVec::from_elem(NOWHERE, body.carries.followed.len()),
            taken: SmallVec::from_elem(NOWHERE, body.carries.targets.len()),
            holders: SmallVec::from_elem(0, body.carries.pool.len()),
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
        for (&(buffer, bytes), array) in body.carries.elements.iter().zip(arrays) {
            self.session.pointers[buffer as usize] = array.wrapping_add(at * bytes).cast_mut();
        }
        for (stacked, stack) in body.carries.stacked.iter().zip(stacks) {
            if stacked.direct {
                self.session.pointers[stacked.buffer as usize] = stack.wrapping_add(at * stacked.bytes);
            }
        }
        let mut free = 0;
        for (target, taken) in body.carries.targets.iter().zip(&mut self.taken) {
            // Those of one size have the same places, of which there are more than holders, and are neighbours:
            // places before the last that was taken are taken, too.
            let (first, last) = target.places;
            let mut place = first.max(free);
            while place + 1 < last && self.holders[place as usize] > 0 {
                place += 1;
            }
            free = place;
            self.holders[place as usize] += 1;
            *taken = place;
            self.session.pointers[target.buffer as usize] =
                self.places.wrapping_add(body.carries.pool[place as usize]);
        }
        // SAFETY: inputs and outputs are set and apart: places that carries hold are not taken, and elements
        // of stacks are each written once, before carries follow them.
        unsafe {
            self.session.run()?;
            for (stacked, stack) in
                body.carries.stacked.iter().zip(stacks).filter(|(stacked, _)| !stacked.direct)
            {
                let from = self.session.pointers[stacked.buffer as usize];
                std::ptr::copy_nonoverlapping(from, stack.wrapping_add(at * stacked.bytes), stacked.bytes);
            }
        }
        if !body.carries.followed.is_empty() {
            self.follow();
        }
        let pointers = &mut *self.session.pointers;
        for (carry, _) in &body.carries.swapped {
            pointers.swap(carry.input as usize, carry.output as usize);
        }
        if self.first {
            self.first = false;
            for carry in &body.carries.in_place {
                pointers[carry.input as usize] = pointers[carry.output as usize];
            }
            for (carry, spare) in &body.carries.swapped {
                let (spare, own) = (self.places.wrapping_add(*spare), outputs[carry.number]);
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
        for (carry, source) in body.carries.followed.iter().zip(&body.sources) {
            let place = match *source {
                Source::Target(target) => self.taken[target],
                Source::Followed(other) => self.held[other],
                Source::Elsewhere => NOWHERE,
            };
            self.next.push((self.session.pointers[carry.output as usize], place));
        }
        for (index, carry) in body.carries.followed.iter().enumerate() {
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
        let swapped = body.carries.swapped.iter().map(|(carry, _)| carry);
        for carry in body
            .carries
            .kept
            .iter()
            .chain(&body.carries.in_place)
            .chain(swapped)
            .chain(&body.carries.followed)
        {
            let (from, to) = (self.session.pointers[carry.input as usize], outputs[carry.number]);
            if from != to {
                // SAFETY: values are never in the place of another carry's result.
                unsafe { std::ptr::copy_nonoverlapping(from, to, carry.bytes) };
            }
        }
    }
}
