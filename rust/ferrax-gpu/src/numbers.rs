//! The sizes of a launch as words: what a shader reads instead of having them in its code.
//!
//! In order: a zero, how many indices there are, how many terms each folds; the extents; parameters, two words each;
//! for each load its first element, strides, then, where it has guards, their bounds, and two words for each jump; for each
//! store its first element and strides. All are `i32` but the parameters. Shaders find them by the same [`Layout`].

use ferrax_compile::{AxisKind, View};
use ferrax_compile::{Kernel, Launch, Stage};
use ferrax_ir::{Result, unsupported};

use crate::wgsl::WORKGROUP;

/// What shaders depend on beside the kernel: which loads have guards, and how many jumps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Form {
    pub kernel: Kernel,
    pub guarded: Vec<bool>,
    pub jumps: Vec<usize>,
}

impl Form {
    pub fn of(launch: &Launch) -> Form {
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
        }
    }

    /// Whether an invocation folds terms: else each index of all loops is one of its own.
    pub fn folds(&self) -> bool {
        let epilogue = self.kernel.stores.iter().any(|store| store.stage == Stage::Epilogue);
        self.kernel.has_reduction() && (epilogue || !self.kernel.accumulators.is_empty())
    }

    /// Workgroups for so many indices of the loops that are invocations.
    pub fn groups(&self, indices: u32) -> u32 {
        indices.div_ceil(WORKGROUP)
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
    pub extents: usize,
    pub params: usize,
    pub loads: Vec<usize>,
    pub stores: Vec<usize>,
    rank: usize,
}

impl Layout {
    pub fn new(form: &Form) -> Layout {
        let rank = form.kernel.axes.len();
        let (extents, params) = (3, 3 + rank);
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
        Layout { extents, params, loads, stores, rank }
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
pub fn words(launch: &Launch, form: &Form) -> Result<Vec<u32>> {
    let word = |number: i64| -> Result<u32> {
        let small = i32::try_from(number);
        let small = small.map_err(|_| {
            unsupported!("arrays of more than 2^31 elements on a GPU: {number} is not a word")
        })?;
        Ok(small as u32)
    };
    let count = |axes: &[usize]| {
        axes.iter().map(|&axis| launch.extents[axis] as i64).try_fold(1i64, i64::checked_mul)
    };
    let total = |axes: &[usize]| count(axes).ok_or_else(|| unsupported!("more than 2^63 indices"));
    let mut words = vec![0, word(total(&form.outer())?)?, word(total(&form.inner())?)?];
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
