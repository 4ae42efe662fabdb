//! Kernels that become one shader: where what is between them is, what waits for what, and the words.
//!
//! In: launches with a [`Place`] for each operand, in the order in which they run. Out: the form of a sequence and its
//! words. A part waits only for those parts before it that touched what it writes, or wrote what it reads.
//! Cost: quadratic in the number of accesses between two waits.

use ferrax_compile::Launch;
use ferrax_compile::interpret::{BLOCK, LANES};
use ferrax_ir::{DType, Result, internal_error};

use crate::gpu::Gpu;
use crate::numbers::{Fold, Form, INDICES, Patience, words};
use crate::wgsl::arrays::Words;
use crate::wgsl::own;
use crate::wgsl::sequence::{FRAME_WORDS, Frame, Part, SequenceForm, Waits};
use crate::wgsl::{Where, types};

/// What waiting for one another costs a workgroup that folds terms together, in terms.
const TOGETHER: usize = 16;

/// How often an invocation may go through loops in a dispatch: each time takes a microsecond or less. Some drivers
/// leave all loops after 2^16 times.
pub const MOST_ITERATIONS: usize = 1 << 15;

/// Bytes of workgroup memory that values may take, so that a processor of the GPU has several workgroups at a time.
const OWN_BYTES: usize = 24 << 10;

/// Bytes of workgroup memory that are left for folding.
const FOLD_BYTES: usize = 6 << 10;

/// The fewest words of own memory; above, they are a power of two, so that shapes share shaders.
const FEWEST: usize = 256;

/// Words to which values in own memory are aligned: those of the widest elements.
const ALIGNED: usize = 4;

/// Where a value is while a sequence runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the array of this number.
    Array(u32),
    /// In own memory, from a word on.
    Own { first: usize, words: usize },
}

impl Place {
    fn meets(self, other: Place) -> bool {
        match (self, other) {
            (Place::Array(a), Place::Array(b)) => a == b,
            (Place::Own { first: a, words: m }, Place::Own { first: b, words: n }) => a < b + n && b < a + m,
            _ => false,
        }
    }
}

/// Values of own memory by the time from the first to the last use of each: two have the same words only if these do
/// not meet.
#[derive(Debug, Default)]
pub struct OwnMemory {
    most: usize,
    taken: Vec<(usize, usize, usize, usize)>,
    /// Words up to which some are taken.
    pub size: usize,
}

impl OwnMemory {
    /// Of so many words at most.
    pub fn new(most: usize) -> OwnMemory {
        OwnMemory { most, ..OwnMemory::default() }
    }

    /// What a workgroup of this GPU may have.
    pub fn of_workgroup(gpu: &Gpu) -> OwnMemory {
        OwnMemory::new(OWN_BYTES.min(gpu.workgroup_bytes().saturating_sub(FOLD_BYTES)) / size_of::<u32>())
    }

    /// A place for so many elements between these times, if there is one.
    pub fn take(
        &mut self,
        elements: usize,
        dtype: DType,
        first: usize,
        last: usize,
    ) -> Result<Option<Place>> {
        let words = elements.saturating_mul(own::words(dtype)?).max(1).next_multiple_of(ALIGNED);
        let mut others: Vec<(usize, usize)> = self
            .taken
            .iter()
            .filter(|(_, _, from, to)| *from <= last && first <= *to)
            .map(|&(begin, end, ..)| (begin, end))
            .collect();
        others.sort_unstable();
        let mut begin = 0;
        for (from, to) in others {
            if from >= begin + words {
                break;
            }
            begin = begin.max(to);
        }
        if begin + words > self.most {
            return Ok(None);
        }
        self.taken.push((begin, begin + words, first, last));
        self.size = self.size.max(begin + words);
        Ok(Some(Place::Own { first: begin, words }))
    }

    /// Its words, rounded up.
    fn rounded(&self) -> u32 {
        match self.size {
            0 => 0,
            size => size.next_power_of_two().max(FEWEST).min(self.most) as u32,
        }
    }
}

/// When a part runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Before,
    Condition,
    Body,
    After,
}

/// A sequence while it is put together; parts come in the order in which they run.
#[derive(Debug)]
pub struct Sequence {
    form: SequenceForm,
    words: Vec<u32>,
    /// What was read and written since the last wait.
    read: Vec<Place>,
    written: Vec<Place>,
    when: When,
}

impl Sequence {
    pub fn new(frame: Frame, lanes: u32) -> Sequence {
        let form = SequenceForm {
            frame,
            lanes,
            own: 0,
            arrays: Vec::new(),
            before: Vec::new(),
            condition: Vec::new(),
            body: Vec::new(),
            after: Vec::new(),
        };
        Sequence {
            form,
            words: vec![0; FRAME_WORDS],
            read: Vec::new(),
            written: Vec::new(),
            when: When::Before,
        }
    }

    /// Adds a kernel, of which these loops are numbered by the row; gives how often an invocation goes through its
    /// loops. Elements of own memory do not move with the row.
    pub fn part(&mut self, when: When, launch: &Launch, rows: &[usize], places: &[Place]) -> Result<usize> {
        let mut launch = launch.clone();
        let kernel = &launch.kernel;
        let at = |operand: u32| {
            let place = places.get(operand as usize);
            place.copied().ok_or_else(|| internal_error!("operand {operand} of a part is nowhere"))
        };
        let dtype = |operand: u32| kernel.operands[operand as usize].dtype;
        let loads = kernel.loads.iter().map(|load| load.operand).zip(&mut launch.loads);
        let stores = kernel.stores.iter().map(|store| store.operand).zip(&mut launch.stores);
        for (operand, view) in loads.chain(stores) {
            if let Place::Own { first, .. } = at(operand)? {
                view.offset += (first / own::words(dtype(operand))?) as i64;
                rows.iter().for_each(|&axis| view.strides[axis] = 0);
            }
        }
        // Who puts a sequence together sees to it that loops end in time (`iterations`).
        let mut form = Form::part(&launch);
        let extent = |axis: &usize| launch.extents[*axis];
        let inner: usize = form.outer().iter().filter(|axis| !rows.contains(axis)).map(extent).product();
        let terms: usize = form.inner().iter().map(extent).product();
        if form.folds() {
            let lanes = self.form.lanes as usize;
            let each = inner.div_ceil(lanes).saturating_mul(terms);
            let together = inner.saturating_mul(terms / lanes + TOGETHER) < each
                && !form.kernel.accumulators.is_empty()
                && self.form.frame != Frame::Alone;
            form.fold = if together { Fold::Together } else { Fold::Each };
        }
        let iterations = iterations(&form, inner, terms, self.form.lanes as usize);
        let mut numbers = words(&launch, &form, Patience::EVER)?;
        numbers[INDICES] = inner as u32;
        let operand = |place: &Place| match *place {
            Place::Own { .. } => Where::Own,
            Place::Array(number) => Where::Array(number),
        };
        let operands = places.iter().map(operand).collect();
        let waits = self.wait(when, &form, places);
        let part = Part { form, rows: rows.to_vec(), operands, waits };
        match when {
            When::Before => self.form.before.push(part),
            When::Condition => self.form.condition.push(part),
            When::Body => self.form.body.push(part),
            When::After => self.form.after.push(part),
        }
        self.words.extend(numbers);
        Ok(iterations)
    }

    /// What a part waits for, and what it reads and writes from then on.
    fn wait(&mut self, when: When, form: &Form, places: &[Place]) -> Waits {
        if when != self.when {
            // The frame waits for all.
            self.when = when;
            self.read.clear();
            self.written.clear();
        }
        let mut waits = Waits::default();
        let of = |written: bool| {
            let operands = form.kernel.operands.iter().zip(places);
            operands.filter(move |(operand, _)| operand.written == written).map(|(_, place)| *place)
        };
        // A place that is written may be read by the same kernel, element by element.
        for place in of(true) {
            let met = self.read.iter().chain(&self.written).any(|other| other.meets(place));
            waits.note(place, met);
        }
        for place in of(false).chain(of(true)) {
            let met = self.written.iter().any(|other| other.meets(place));
            waits.note(place, met);
        }
        let stays = |place: &Place| match place {
            Place::Own { .. } => !waits.own,
            Place::Array(_) => !waits.arrays,
        };
        self.read.retain(stays);
        self.written.retain(stays);
        self.read.extend(of(false));
        self.written.extend(of(true));
        waits
    }

    /// The form, with so many arrays, and the words, of which the frame's are to be set. None where workgroups of
    /// this GPU lack memory for it, or an array is written as parts of words and as whole ones.
    pub fn finish(mut self, gpu: &Gpu, own: &OwnMemory, arrays: usize) -> Option<(SequenceForm, Vec<u32>)> {
        let mut written: Vec<Option<Words>> = vec![None; arrays];
        for part in self.form.parts() {
            for (place, operand) in part.operands.iter().zip(&part.form.kernel.operands) {
                let (Where::Array(number), true) = (place, operand.written) else { continue };
                let words = types::words(operand.dtype, true);
                let known = written.get_mut(*number as usize)?.get_or_insert(words);
                if *known != words {
                    return None;
                }
            }
        }
        self.form.own = own.rounded();
        self.form.arrays = written.into_iter().map(|words| words.unwrap_or(Words::Whole)).collect();
        (self.form.workgroup_bytes() <= gpu.workgroup_bytes()).then_some((self.form, self.words))
    }
}

impl Waits {
    fn note(&mut self, place: Place, met: bool) {
        match place {
            Place::Own { .. } => self.own |= met,
            Place::Array(_) => self.arrays |= met,
        }
    }
}

/// How often an invocation goes through the loops of a part, at most: those over indices, terms, lanes of blocks, and
/// the levels of the counter of blocks (`wgsl/fold`).
fn iterations(form: &Form, inner: usize, terms: usize, lanes: usize) -> usize {
    let each = form.kernel.accumulators.len();
    let of_blocks = |blocks: usize| each * (blocks * 3 * LANES + 32);
    match form.fold {
        Fold::None => 1 + inner.div_ceil(lanes),
        Fold::Together => {
            let rounds = terms.div_ceil(lanes / LANES * BLOCK);
            let of_round = BLOCK / LANES + 8 + each * 4 * lanes / LANES;
            1 + inner.saturating_mul(rounds * of_round + each * 32 + 16)
        }
        _ => 1 + inner.div_ceil(lanes).saturating_mul(1 + terms + of_blocks(terms.div_ceil(BLOCK))),
    }
}

/// How many main iterations a launch has for each index of these loops.
pub fn work(launch: &Launch, rows: &[usize]) -> usize {
    let inner = (0..launch.extents.len()).filter(|axis| !rows.contains(axis));
    inner.map(|axis| launch.extents[axis]).fold(1, usize::saturating_mul)
}

/// Invocations for parts that have so many iterations at most.
pub fn lanes(work: usize) -> u32 {
    if work <= 512 { 64 } else { 256 }
}

/// Whether a kernel is of elements that shaders have.
pub fn has_shader(launch: &Launch) -> bool {
    let mut dtypes = launch.kernel.operands.iter().map(|operand| operand.dtype);
    dtypes.all(|dtype| types::storage(dtype).is_ok())
}
