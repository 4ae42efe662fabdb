//! The sizes of a launch as words: what a shader reads instead of having them in its code.
//!
//! In order: a zero, how many indices there are, how many terms each folds, the blocks of a segment and how many
//! segments there are; the extents; parameters, two words each; for each load its first element, strides, then, where
//! it has guards, their bounds, and two words for each jump; for each store its first element and strides. All are
//! `i32` but the parameters. Shaders find them by the same [`Layout`].

use ferrax_compile::interpret::{BLOCK, LANES};
use ferrax_compile::{AxisKind, Kernel, Launch, View};
use ferrax_ir::{Result, unsupported};

use super::WORKGROUP;
use super::wide::{self, Wide};
use crate::tuning::Kernels;

/// Where the first words are.
pub const INDICES: usize = 1;
pub const TERMS: usize = 2;
pub const SEGMENT_BLOCKS: usize = 3;
pub const SEGMENTS: usize = 4;
const HEAD: usize = 5;

/// Words of what a segment gives for an accumulator: a value, and a place.
pub const PARTIAL: usize = 3;

/// How often a workgroup goes through loops for the blocks that it has at a time, about.
const OF_ROUND: usize = 48;

/// Who folds the terms of an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fold {
    /// There are none.
    None,
    /// An invocation.
    Each,
    /// The invocations of a workgroup.
    Together,
    /// Several workgroups a segment each, into partial results.
    Segments,
    /// Several invocations a segment each, into partial results.
    SegmentsEach,
    /// An invocation the partial results.
    Finish,
}

impl Fold {
    /// Whether its results are partial.
    pub fn is_partial(self) -> bool {
        matches!(self, Fold::Segments | Fold::SegmentsEach)
    }

    /// Whether workgroups share memory.
    pub fn is_shared(self) -> bool {
        matches!(self, Fold::Together | Fold::Segments)
    }

    pub fn has_partials(self) -> bool {
        matches!(self, Fold::Segments | Fold::SegmentsEach | Fold::Finish)
    }
}

/// What shaders depend on beside the kernel: which loads have guards, and how many jumps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    pub kernel: Kernel,
    pub guarded: Vec<bool>,
    pub jumps: Vec<usize>,
    pub fold: Fold,
    pub wide: Option<Wide>,
    /// Neighbouring invocations of a workgroup that take values from each other without its memory; none if 0.
    pub subgroup: u32,
}

/// How often an invocation may go through loops: some machines leave them after that, and say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience(pub usize);

impl Patience {
    pub const EVER: Patience = Patience(usize::MAX);

    /// Terms of a product that an invocation has time for, one after the other, and to bring them.
    pub fn terms(self) -> usize {
        (self.0 / 2).max(1)
    }

    /// Blocks of terms that an invocation has time for.
    fn blocks_of_one(self, accumulators: usize) -> usize {
        (self.0 / (BLOCK * (1 + accumulators))).max(1)
    }

    /// Blocks of terms that a workgroup has time for.
    fn blocks_of_all(self) -> usize {
        (self.0 / OF_ROUND).max(1) * (WORKGROUP as usize / LANES)
    }
}

/// What the choice of who folds depends on beside the launch.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    pub patience: Patience,
    pub kernels: Kernels,
}

impl Means {
    pub const EVER: Means = Means { patience: Patience::EVER, kernels: Kernels::GPU };
}

impl Form {
    /// That of a launch whose operands have so many bytes.
    pub fn of(launch: &Launch, bytes: &[usize], means: &Means) -> Form {
        let mut form = Form::part(launch);
        if form.folds() {
            form.fold = form.chosen(&launch.extents, means);
        } else {
            form.wide = wide::of(launch, bytes, &form.guarded, means.kernels.wide);
        }
        form
    }

    /// That of a kernel that is a part of another shader, which says who folds and has which indices.
    pub fn part(launch: &Launch) -> Form {
        let guarded = |view: &View| {
            let full = view
                .ranges
                .iter()
                .zip(&launch.extents)
                .all(|(&(low, high), &extent)| low <= 0 && high >= extent as i64);
            !full
        };
        Form {
            kernel: launch.kernel.clone(),
            guarded: launch.loads.iter().map(guarded).collect(),
            jumps: launch.jumps.iter().map(|jumps| jumps.len()).collect(),
            fold: if launch.kernel.folds() { Fold::Each } else { Fold::None },
            wide: None,
            subgroup: 0,
        }
    }

    fn chosen(&self, extents: &[usize], means: &Means) -> Fold {
        let Means { patience, kernels } = means;
        let count = |axes: &[usize]| axes.iter().map(|&axis| extents[axis]).fold(1, usize::saturating_mul);
        let (indices, terms) = (count(&self.outer()), count(&self.inner()));
        let last = (0..extents.len()).rfind(|&axis| extents[axis] > 1);
        let neighbours = last.is_some_and(|axis| self.kernel.axes[axis] == AxisKind::Reduction);
        let accumulators = self.kernel.accumulators.len();
        let blocks = terms.div_ceil(BLOCK);
        let apart = !neighbours && indices >= kernels.neighbours;
        let fits = blocks <= patience.blocks_of_one(accumulators);
        if (terms < kernels.many_terms && fits) || accumulators == 0 {
            Fold::Each
        } else if apart && (indices < kernels.invocations || !fits) {
            Fold::SegmentsEach
        } else if apart {
            Fold::Each
        } else if (indices < kernels.few_indices && terms >= kernels.long)
            || blocks > patience.blocks_of_all()
        {
            Fold::Segments
        } else {
            Fold::Together
        }
    }

    /// Whether terms are folded: else each index of all loops is an invocation.
    pub fn folds(&self) -> bool {
        self.fold != Fold::None
    }

    /// Workgroups for these words.
    pub fn groups(&self, words: &[u32]) -> Result<u32> {
        let parts = if self.fold.is_partial() { words[SEGMENTS] } else { 1 };
        let all = words[INDICES].checked_mul(parts);
        let all = all.ok_or_else(|| unsupported!("more than 2^32 parts of a reduction on a GPU"))?;
        Ok(if self.fold.is_shared() { all } else { all.div_ceil(WORKGROUP) })
    }

    /// Bytes of partial results for these words.
    pub fn partial_bytes(&self, words: &[u32]) -> usize {
        words[INDICES] as usize * words[SEGMENTS] as usize * self.partial_words() * size_of::<u32>()
    }

    /// Words that each index of the parallel loops needs in each segment.
    pub fn partial_words(&self) -> usize {
        PARTIAL * self.kernel.accumulators.len()
    }

    /// The blocks of a segment, which are a power of two where there are several, and how many segments there are.
    fn segments(&self, indices: usize, terms: usize, means: &Means) -> (usize, usize) {
        let Means { patience, kernels } = means;
        let blocks = terms.div_ceil(BLOCK).max(1);
        let (enough, least, most) = match self.fold {
            Fold::Segments => (kernels.groups, WORKGROUP as usize / LANES, patience.blocks_of_all()),
            Fold::SegmentsEach => {
                (kernels.invocations, 1, patience.blocks_of_one(self.kernel.accumulators.len()))
            }
            _ => return (blocks, 1),
        };
        let wanted = (enough / indices.max(1)).max(1);
        let of_segment = blocks.div_ceil(wanted).max(least).next_power_of_two();
        let of_segment = of_segment.min(1 << most.ilog2());
        (of_segment, blocks.div_ceil(of_segment))
    }

    /// The loops whose indices are invocations.
    pub fn outer(&self) -> Vec<usize> {
        let folds = self.folds();
        let parallel = |axis: &usize| !folds || self.kernel.axes[*axis] == AxisKind::Parallel;
        (0..self.kernel.axes.len()).filter(parallel).collect()
    }

    /// The loops that are folded.
    pub fn inner(&self) -> Vec<usize> {
        let outer = self.outer();
        (0..self.kernel.axes.len()).filter(|axis| !outer.contains(axis)).collect()
    }
}

/// Where the words of a form are.
pub struct Layout {
    /// The first of them, and the first after them.
    pub begin: usize,
    pub end: usize,
    pub extents: usize,
    pub params: usize,
    pub loads: Vec<usize>,
    pub stores: Vec<usize>,
    rank: usize,
}

impl Layout {
    /// Of words that begin there.
    pub fn new(form: &Form, begin: usize) -> Layout {
        let rank = form.kernel.axes.len();
        let (extents, params) = (begin + HEAD, begin + HEAD + rank);
        let mut next = params + 2 * form.kernel.params.len();
        let mut take = |words: usize| {
            next += words;
            next - words
        };
        let loads = form.guarded.iter().zip(&form.jumps);
        let loads = loads
            .map(|(&guarded, jumps)| take(1 + rank + if guarded { 2 * rank } else { 0 } + 2 * jumps))
            .collect();
        let stores = form.kernel.stores.iter().map(|_| take(1 + rank)).collect();
        Layout { begin, end: take(0), extents, params, loads, stores, rank }
    }

    pub fn stride(&self, at: usize, axis: usize) -> usize {
        at + 1 + axis
    }

    /// The lower and the upper bound of a guard.
    pub fn guard(&self, at: usize, axis: usize) -> (usize, usize) {
        let low = at + 1 + self.rank + 2 * axis;
        (low, low + 1)
    }

    /// Stride and last index of a jump.
    pub fn jump(&self, at: usize, guarded: bool, number: usize) -> (usize, usize) {
        let stride = at + 1 + self.rank + if guarded { 2 * self.rank } else { 0 } + 2 * number;
        (stride, stride + 1)
    }
}

/// The words of a launch.
pub fn words(launch: &Launch, form: &Form, means: &Means) -> Result<Vec<u32>> {
    let word = |number: i64| -> Result<u32> {
        let small = i32::try_from(number);
        let small = small.map_err(|_| {
            unsupported!("arrays of more than 2^31 elements on a GPU: {number} is not a word")
        })?;
        Ok(small as u32)
    };
    let extent = |axis: usize| match &form.wide {
        Some(wide) if wide.axis == axis => launch.extents[axis].div_ceil(wide::TOGETHER),
        _ => launch.extents[axis],
    };
    let count =
        |axes: &[usize]| axes.iter().map(|&axis| extent(axis) as i64).try_fold(1i64, i64::checked_mul);
    let total = |axes: &[usize]| count(axes).ok_or_else(|| unsupported!("more than 2^63 indices"));
    let (indices, terms) = (total(&form.outer())?, total(&form.inner())?);
    let (of_segment, segments) = form.segments(indices as usize, terms as usize, means);
    let mut words = vec![0, word(indices)?, word(terms)?, word(of_segment as i64)?, word(segments as i64)?];
    debug_assert_eq!(words.len(), HEAD);
    for &extent in &launch.extents {
        words.push(word(extent as i64)?);
    }
    words.extend(launch.params.iter().flat_map(|&bits| [bits as u32, (bits >> 32) as u32]));
    for (number, view) in launch.loads.iter().enumerate() {
        words.push(word(view.offset)?);
        for &stride in &view.strides {
            words.push(word(stride)?);
        }
        if form.guarded[number] {
            for &(low, high) in &view.ranges {
                words.extend([word(low)?, word(high)?]);
            }
        }
        for jump in &launch.jumps[number] {
            words.extend([word(jump.stride)?, word(jump.last)?]);
        }
    }
    for view in &launch.stores {
        words.push(word(view.offset)?);
        for &stride in &view.strides {
            words.push(word(stride)?);
        }
    }
    Ok(words)
}
