//! Sums over long axes, as trees of panels.
//!
//! Terms are cut into panels of [`PANEL`], the sums of which are added as a binary counter counts: so the
//! shape of the tree is that of the number of terms alone, and with panels of p terms the error of a sum of
//! k products is at most `(p + 1 + log2(k / p)) u` times the sum of their magnitudes, to first order in the
//! unit roundoff u (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1, §4.2).
//! Whole subtrees may be summed apart and combined by the same rule.

use std::ops::Range;

use ferrax_ir::Result;

use super::super::micro::Number;
use crate::alloc::Buffer;

/// Terms of a panel.
pub const PANEL: usize = 3072;

/// Values that are summed, in memory of their own.
pub struct Sums(Buffer);

impl Sums {
    pub fn pointer<T>(&self) -> *mut T {
        self.0.pointer().cast()
    }
}

/// Sums of leaves `0..leaves`, each of so many values, which `compute` writes.
pub fn tree<T: Number>(
    values: usize,
    leaves: usize,
    mut compute: impl FnMut(usize, *mut T) -> Result<()>,
) -> Result<Sums> {
    let mut spare: Vec<Sums> = Vec::new();
    let mut stack: Vec<(Sums, u32)> = Vec::new();
    for leaf in 0..leaves {
        let sums = match spare.pop() {
            Some(sums) => sums,
            None => Sums(Buffer::new((values * size_of::<T>()).max(1))?),
        };
        compute(leaf, sums.pointer())?;
        stack.push((sums, 0));
        // As many halves are complete as the counter has ones at its end; at the last leaf all are.
        while let [.., (into, level), (from, other)] = stack.as_mut_slice()
            && (level == other || leaf + 1 == leaves)
        {
            // SAFETY: both buffers hold `values` elements that `compute` wrote, and are apart.
            unsafe { add::<T>(values, from.pointer(), into.pointer()) };
            *level += 1;
            if let Some((sums, _)) = stack.pop() {
                spare.push(sums);
            }
        }
    }
    match stack.pop() {
        Some((sums, _)) => Ok(sums),
        None => Ok(Sums(Buffer::new(1)?)),
    }
}

/// # Safety
/// Both are valid for so many elements and apart.
unsafe fn add<T: Number>(count: usize, from: *const T, to: *mut T) {
    // SAFETY: the caller's promise.
    let (from, to) =
        unsafe { (std::slice::from_raw_parts(from, count), std::slice::from_raw_parts_mut(to, count)) };
    for (to, &from) in to.iter_mut().zip(from) {
        *to = to.add(from);
    }
}

/// How the panels of a sum are shared among units of work.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    terms: usize,
    /// Panels of one part: a power of two, or all.
    panels: usize,
    pub parts: usize,
}

impl Split {
    /// At most about `parts` parts.
    pub fn new(terms: usize, parts: usize) -> Split {
        let all = terms.div_ceil(PANEL).max(1);
        let panels = match parts {
            0 | 1 => all,
            parts => 1 << all.div_ceil(parts).ilog2(),
        };
        Split { terms, panels, parts: all.div_ceil(panels) }
    }

    /// The number of panels of a part.
    pub fn panels(&self, part: usize) -> usize {
        let all = self.terms.div_ceil(PANEL).max(1);
        self.panels.min(all - part * self.panels)
    }

    /// The terms of a panel of a part.
    pub fn terms(&self, part: usize, panel: usize) -> Range<usize> {
        let first = (part * self.panels + panel) * PANEL;
        first..(first + PANEL).min(self.terms)
    }
}
