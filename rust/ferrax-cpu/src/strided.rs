//! Copies between strided regions of row-major arrays: static indexing without a kernel.
//!
//! Invariant: everything that is read or written lies within the given slices;
//! this is checked once, before the first byte moves.

use ferrax_ir::{Result, internal_error};

use crate::kernels::copy::StridedCopy;

/// One axis of a region: how many places, and the bytes between two of them in
/// the source and in the target. A stride of 0 in the source repeats.
pub use crate::kernels::copy::CopyLoop as Axis;

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
    let copy = StridedCopy::new(axes.iter().copied(), item);
    // SAFETY: the starts are inside the slices, and from there every element that the loops reach is,
    // as was just checked; the slices do not overlap, for one of them is borrowed mutably.
    unsafe { copy.run(from.as_ptr().add(from_start), to.as_mut_ptr().add(to_start)) };
    Ok(())
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
