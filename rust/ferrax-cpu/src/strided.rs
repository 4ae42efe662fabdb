//! Copies between strided regions of row-major arrays, element by element or in
//! runs: static indexing without a kernel.
//!
//! Invariant: everything that is read or written lies within the given slices;
//! this is checked once, before the first byte moves.

use ferrax_ir::{Result, internal_error};
use smallvec::SmallVec;

/// One axis of a region: how many places, and the bytes between two of them in
/// the source and in the target. A stride of 0 in the source repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    pub count: usize,
    pub from: isize,
    pub to: isize,
}

/// The lowest and the highest offset that a walk reaches.
fn reach(start: isize, axes: &[Axis], stride: impl Fn(&Axis) -> isize) -> Option<(isize, isize)> {
    axes.iter().try_fold((start, start), |(low, high), axis| {
        let span = stride(axis).checked_mul(axis.count.checked_sub(1)?.try_into().ok()?)?;
        Some((low.checked_add(span.min(0))?, high.checked_add(span.max(0))?))
    })
}

fn is_inside(range: Option<(isize, isize)>, item: usize, len: usize) -> bool {
    range.is_some_and(|(low, high)| {
        low >= 0 && high.cast_unsigned().checked_add(item).is_some_and(|end| end <= len)
    })
}

/// Copies the elements of `item` bytes that `axes` (outermost first) walk over,
/// beginning at the offsets `from_start` and `to_start`.
pub fn copy(
    (from, from_start): (&[u8], usize),
    (to, to_start): (&mut [u8], usize),
    axes: &[Axis],
    item: usize,
) -> Result<()> {
    if axes.iter().any(|axis| axis.count == 0) || item == 0 {
        return Ok(());
    }
    let starts = (from_start.cast_signed(), to_start.cast_signed());
    if !is_inside(reach(starts.0, axes, |axis| axis.from), item, from.len())
        || !is_inside(reach(starts.1, axes, |axis| axis.to), item, to.len())
    {
        return Err(internal_error!("a strided copy reaches beyond {} or {} bytes", from.len(), to.len()));
    }
    // Axes that continue each other become one; the innermost contiguous one becomes the run.
    let mut merged: SmallVec<[Axis; 6]> = SmallVec::new();
    for axis in axes.iter().filter(|axis| axis.count > 1) {
        let count = axis.count.cast_signed();
        match merged.last_mut() {
            Some(outer) if outer.from == axis.from * count && outer.to == axis.to * count => {
                *outer = Axis { count: outer.count * axis.count, ..*axis };
            }
            _ => merged.push(*axis),
        }
    }
    let run = match merged.last() {
        Some(&Axis { count, from, to }) if from == to && from == item.cast_signed() => {
            merged.pop();
            count * item
        }
        _ => item,
    };
    let inner = merged.pop().unwrap_or(Axis { count: 1, from: 0, to: 0 });
    let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, merged.len());
    let (mut f, mut t) = starts;
    loop {
        match run {
            1 => line::<1>(from, f, to, t, &inner),
            2 => line::<2>(from, f, to, t, &inner),
            4 => line::<4>(from, f, to, t, &inner),
            8 => line::<8>(from, f, to, t, &inner),
            16 => line::<16>(from, f, to, t, &inner),
            _ => {
                for place in 0..inner.count.cast_signed() {
                    let (f, t) =
                        ((f + place * inner.from).cast_unsigned(), (t + place * inner.to).cast_unsigned());
                    to[t..t + run].copy_from_slice(&from[f..f + run]);
                }
            }
        }
        // The next line: an odometer over the outer axes.
        let mut axis = merged.len();
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            let Axis { count, from, to } = merged[axis];
            index[axis] += 1;
            (f, t) = (f + from, t + to);
            if index[axis] < count {
                break;
            }
            index[axis] = 0;
            (f, t) = (f - from * count.cast_signed(), t - to * count.cast_signed());
        }
    }
}

/// One innermost axis, elements of `N` bytes.
fn line<const N: usize>(from: &[u8], from_start: isize, to: &mut [u8], to_start: isize, axis: &Axis) {
    for place in 0..axis.count.cast_signed() {
        let f = (from_start + place * axis.from).cast_unsigned();
        let t = (to_start + place * axis.to).cast_unsigned();
        to[t..t + N].copy_from_slice(&from[f..f + N]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every combination of steps over a 3-d array, against plain loops.
    #[test]
    fn equals_loops() {
        for item in [1usize, 2, 3, 4, 8, 16] {
            let sizes = [3usize, 4, 5];
            let from: Vec<u8> = (0..60 * item).map(|i| (i * 7 % 251) as u8).collect();
            let strides = [20 * item, 5 * item, item].map(usize::cast_signed);
            for steps in [[1isize, 1, 1], [1, 2, 1], [2, 1, 2], [-1, 1, 1], [1, -1, -2], [0, 1, 0]] {
                let counts: Vec<usize> =
                    (0..3)
                        .map(|axis| {
                            if steps[axis] == 0 {
                                2
                            } else {
                                sizes[axis].div_ceil(steps[axis].unsigned_abs())
                            }
                        })
                        .collect();
                let start: isize =
                    (0..3)
                        .map(|axis| {
                            if steps[axis] < 0 { (sizes[axis].cast_signed() - 1) * strides[axis] } else { 0 }
                        })
                        .sum();
                let total: usize = counts.iter().product();
                let outer = [counts[1] * counts[2], counts[2], 1].map(|n| (n * item).cast_signed());
                let axes: Vec<Axis> = (0..3)
                    .map(|axis| Axis {
                        count: counts[axis],
                        from: strides[axis] * steps[axis],
                        to: outer[axis],
                    })
                    .collect();
                let mut to = vec![0; total * item];
                copy((&from, start.cast_unsigned()), (&mut to, 0), &axes, item).unwrap();
                let mut expected = Vec::new();
                for i in 0..counts[0].cast_signed() {
                    for j in 0..counts[1].cast_signed() {
                        for k in 0..counts[2].cast_signed() {
                            let at = start + i * axes[0].from + j * axes[1].from + k * axes[2].from;
                            expected.extend_from_slice(&from[at.cast_unsigned()..at.cast_unsigned() + item]);
                        }
                    }
                }
                assert_eq!(to, expected, "{item} {steps:?}");
            }
        }
    }

    #[test]
    fn refuses_to_leave_the_arrays() {
        let axes = [Axis { count: 3, from: 4, to: 4 }];
        let mut to = [0; 12];
        assert!(copy((&[0; 12], 0), (&mut to, 0), &axes, 4).is_ok());
        assert!(copy((&[0; 12], 4), (&mut to, 0), &axes, 4).is_err());
        assert!(copy((&[0; 16], 4), (&mut to, 4), &axes, 4).is_err());
        assert!(copy((&[0; 16], 0), (&mut to, 0), &[Axis { count: 2, from: -4, to: 4 }], 4).is_err());
    }
}
