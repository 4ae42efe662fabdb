//! The elements that an affine view reaches: bounds, whether indices are different elements, whether two views meet.
//!
//! Cost: that of sorting a view's loops; for two views a few steps for each loop, whatever the extents.

use std::collections::BTreeMap;

use crate::index::View;
use crate::kernel::Jump;

/// The lowest and the highest element that a view with jumps reaches inside of its ranges; `None` for nothing.
pub fn reach(view: &View, jumps: &[Jump]) -> Option<(i128, i128)> {
    let (mut low, mut high) = (i128::from(view.offset), i128::from(view.offset));
    let loops =
        view.strides.iter().zip(&view.ranges).map(|(&stride, &(first, end))| (stride, first, end - 1));
    for (stride, first, last) in loops.chain(jumps.iter().map(|jump| (jump.stride, 0, jump.last))) {
        if first > last {
            return None;
        }
        let ends = [first, last].map(|index| i128::from(stride) * i128::from(index));
        low += ends[0].min(ends[1]);
        high += ends[0].max(ends[1]);
    }
    Some((low, high))
}

/// A lowest element, and the stride and count of each loop from there.
pub type Grid = (i128, Vec<(i128, i128)>);

/// The elements that a view reaches by the loops that `counts` holds for. (Backwards a loop reaches the
/// same ones.)
pub fn grid(view: &View, extents: &[usize], counts: impl Fn(usize) -> bool) -> Grid {
    let mut start = i128::from(view.offset);
    let mut loops = Vec::new();
    for (axis, (&stride, &extent)) in view.strides.iter().zip(extents).enumerate() {
        if extent > 1 && counts(axis) {
            let (stride, extent) = (i128::from(stride), extent as i128);
            start += stride.min(0) * (extent - 1);
            loops.push((stride.abs(), extent));
        }
    }
    (start, loops)
}

/// The number of elements, where different indices are different ones.
pub fn count(grid: &Grid) -> usize {
    grid.1.iter().map(|&(_, extent)| extent as usize).product()
}

/// Whether different indices are different elements: sorted, each stride exceeds all that the
/// smaller ones reach.
pub fn is_injective(mut loops: Vec<(i128, i128)>) -> bool {
    loops.sort_unstable();
    let mut reached = 0;
    loops.into_iter().all(|(stride, extent)| {
        let apart = stride > reached;
        reached += stride * (extent - 1);
        apart
    })
}

/// How much is tried before two stores count as meeting. Grids of parts of one array need two or three
/// steps for each loop.
const MOST_STEPS: usize = 4096;

/// Whether two injective grids may have an element in common.
pub fn meet(a: &Grid, b: &Grid) -> bool {
    // Where they do, Σ stride * (i - j) is how far `b` starts behind `a`: by strides, the bounds of i - j.
    let mut differences: BTreeMap<i128, (i128, i128)> = BTreeMap::new();
    for &(stride, extent) in &a.1 {
        differences.entry(stride).or_default().1 += extent - 1;
    }
    for &(stride, extent) in &b.1 {
        differences.entry(stride).or_default().0 -= extent - 1;
    }
    let terms: Vec<(i128, (i128, i128))> = differences.into_iter().collect();
    is_sum(b.0 - a.0, &terms, &mut MOST_STEPS.clone())
}

/// Whether a number may be Σ stride * n with each n within its bounds; strides are positive and ascend.
fn is_sum(number: i128, terms: &[(i128, (i128, i128))], steps: &mut usize) -> bool {
    let Some((&(stride, (low, high)), rest)) = terms.split_last() else { return number == 0 };
    let (least, most) = rest
        .iter()
        .fold((0, 0), |(least, most), &(stride, (low, high))| (least + stride * low, most + stride * high));
    let first = low.max(-(most - number).div_euclid(stride));
    let last = high.min((number - least).div_euclid(stride));
    (first..=last).any(|n| {
        *steps = steps.saturating_sub(1);
        *steps == 0 || is_sum(number - stride * n, rest, steps)
    })
}
