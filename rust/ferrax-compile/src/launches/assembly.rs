//! Sequences as they are put together: what waits for what, and who folds.
//!
//! In: launches with a [`Place`] for each operand, in the order in which they run. Out: a [`Sequence`]. A part waits
//! only for those parts before it that touched what it writes, or wrote what it reads. Cost: quadratic in the number
//! of accesses between two waits.

use ferrax_ir::{Result, internal_error};

use super::machine::{Limits, Machine};
use super::own::{OwnMemory, Place};
use super::sequence::{Folds, Frame, Part, Sequence, Waits};
use crate::interpret::{BLOCK, LANES};
use crate::kernel::{AxisKind, Launch};

/// What waiting for one another costs a workgroup that folds terms together, in terms.
const TOGETHER: usize = 16;

/// How often an invocation may go through loops in a dispatch: each time takes a microsecond or less. Some drivers
/// leave all loops after 2^16 times.
pub const MOST_ITERATIONS: usize = 1 << 15;

/// When a part runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Before,
    Condition,
    Body,
    After,
}

/// A sequence while it is put together; parts come in the order in which they run.
pub struct Draft<'a> {
    machine: &'a dyn Machine,
    sequence: Sequence,
    /// What was read and written since the last wait.
    read: Vec<Place>,
    written: Vec<Place>,
    when: When,
}

impl<'a> Draft<'a> {
    pub fn new(machine: &'a dyn Machine, frame: Frame, lanes: u32) -> Draft<'a> {
        let sequence = Sequence {
            frame,
            lanes,
            own: 0,
            arrays: 0,
            before: Vec::new(),
            condition: Vec::new(),
            body: Vec::new(),
            after: Vec::new(),
        };
        Draft { machine, sequence, read: Vec::new(), written: Vec::new(), when: When::Before }
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
        let words = |operand: u32| {
            let dtype = kernel.operands[operand as usize].dtype;
            let words = self.machine.words(dtype);
            words.ok_or_else(|| internal_error!("a part has elements of {dtype}, which shaders do not have"))
        };
        let loads = kernel.loads.iter().map(|load| load.operand).zip(&mut launch.loads);
        let stores = kernel.stores.iter().map(|store| store.operand).zip(&mut launch.stores);
        for (operand, view) in loads.chain(stores) {
            if let Place::Own { first, .. } = at(operand)? {
                view.offset += (first / words(operand)?) as i64;
                rows.iter().for_each(|&axis| view.strides[axis] = 0);
            }
        }
        let does_fold = kernel.folds();
        let is_folded = |axis: &usize| does_fold && kernel.axes[*axis] == AxisKind::Reduction;
        let extent = |axis: usize| launch.extents[axis];
        let loops = 0..kernel.axes.len();
        let others = loops.clone().filter(|axis| !is_folded(axis) && !rows.contains(axis));
        let indices: usize = others.map(extent).product();
        let terms: usize = loops.filter(is_folded).map(extent).product();
        let lanes = self.sequence.lanes as usize;
        let folds = if does_fold {
            let each = indices.div_ceil(lanes).saturating_mul(terms);
            let together = indices.saturating_mul(terms / lanes + TOGETHER) < each
                && !kernel.accumulators.is_empty()
                && self.sequence.frame != Frame::Alone;
            if together { Folds::Together } else { Folds::Each }
        } else {
            Folds::None
        };
        let iterations = iterations(folds, kernel.accumulators.len(), indices, terms, lanes);
        let waits = self.wait(when, &launch, places);
        let part = Part { rows: rows.to_vec(), indices, places: places.to_vec(), folds, waits, launch };
        match when {
            When::Before => self.sequence.before.push(part),
            When::Condition => self.sequence.condition.push(part),
            When::Body => self.sequence.body.push(part),
            When::After => self.sequence.after.push(part),
        }
        Ok(iterations)
    }

    /// What a part waits for, and what it reads and writes from then on.
    fn wait(&mut self, when: When, launch: &Launch, places: &[Place]) -> Waits {
        if when != self.when {
            // The frame waits for all.
            self.when = when;
            self.read.clear();
            self.written.clear();
        }
        let mut waits = Waits::default();
        let of = |written: bool| {
            let operands = launch.kernel.operands.iter().zip(places);
            operands.filter(move |(operand, _)| operand.written == written).map(|(_, place)| *place)
        };
        // A place that is written may be read by the same kernel, element by element.
        for place in of(true) {
            let met = self.read.iter().chain(&self.written).any(|other| other.meets(place));
            note(&mut waits, place, met);
        }
        for place in of(false).chain(of(true)) {
            let met = self.written.iter().any(|other| other.meets(place));
            note(&mut waits, place, met);
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

    /// The sequence, with so many arrays. None where the machine has no shader or no memory for it.
    pub fn finish(mut self, own: &OwnMemory, arrays: usize) -> Option<Sequence> {
        self.sequence.own = own.rounded();
        self.sequence.arrays = arrays;
        self.machine.fits(&self.sequence).then_some(self.sequence)
    }
}

fn note(waits: &mut Waits, place: Place, met: bool) {
    match place {
        Place::Own { .. } => waits.own |= met,
        Place::Array(_) => waits.arrays |= met,
    }
}

/// How often an invocation goes through the loops of a part, at most: those over indices, terms, lanes of blocks, and
/// the levels of the counter of blocks.
fn iterations(folds: Folds, accumulators: usize, indices: usize, terms: usize, lanes: usize) -> usize {
    let of_blocks = |blocks: usize| accumulators * (blocks * 3 * LANES + 32);
    match folds {
        Folds::None => 1 + indices.div_ceil(lanes),
        Folds::Together => {
            let rounds = terms.div_ceil(lanes / LANES * BLOCK);
            let of_round = BLOCK / LANES + 8 + accumulators * 4 * lanes / LANES;
            1 + indices.saturating_mul(rounds * of_round + accumulators * 32 + 16)
        }
        Folds::Each => {
            1 + indices.div_ceil(lanes).saturating_mul(1 + terms + of_blocks(terms.div_ceil(BLOCK)))
        }
    }
}

/// How many main iterations a launch has for each index of these loops.
pub fn work(launch: &Launch, rows: &[usize]) -> usize {
    let inner = (0..launch.extents.len()).filter(|axis| !rows.contains(axis));
    inner.map(|axis| launch.extents[axis]).fold(1, usize::saturating_mul)
}

/// Invocations of a workgroup, where work is little and where it is more.
pub const FEWEST_LANES: u32 = 64;
const LANES_FOR_MORE: u32 = 256;
const LITTLE: usize = 512;

/// Invocations for parts that have so many iterations at most.
pub fn lanes(work: usize) -> u32 {
    if work <= LITTLE { FEWEST_LANES } else { LANES_FOR_MORE }
}

/// Whether a kernel is of elements that shaders have.
pub fn has_shader(launch: &Launch, machine: &dyn Machine) -> bool {
    launch.kernel.operands.iter().all(|operand| machine.words(operand.dtype).is_some())
}

/// What a workgroup may have of its own.
pub fn of_workgroup(limits: &Limits) -> OwnMemory {
    let Limits { workgroup_bytes, thresholds, .. } = limits;
    let bytes = thresholds.own_bytes.min(workgroup_bytes.saturating_sub(thresholds.fold_bytes));
    OwnMemory::new(bytes / size_of::<u32>())
}
