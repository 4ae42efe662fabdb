//! Half-precision floats: portable conversions, and those of the machine (F16C), eight at a time, which give the same bits.

/// Bits of the nearest f16, ties to even, without branches (so that it
/// vectorises): subnormal results are rounded by adding a magic number.
#[inline(always)]
pub fn f16_from_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let rounded = magnitude.wrapping_add(0xfff + ((magnitude >> 13) & 1));
    let normal = (rounded.wrapping_sub(112 << 23)) >> 13;
    // 0.5's last place is the least f16 subnormal.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < (113 << 23) { subnormal } else { normal };
    let large = if magnitude > 0x7f80_0000 { 0x7e00 | (magnitude >> 13 & 0x3ff) } else { 0x7c00 };
    (sign | if magnitude >= 0x477f_f000 { large } else { finite }) as u16
}

#[inline(always)]
pub fn f32_from_f16(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff);
    let normal = (magnitude << 13).wrapping_add(112 << 23);
    // NaN becomes quiet.
    let quiet = if magnitude > 0x7c00 { 0x40_0000 } else { 0 };
    let special = (magnitude << 13) | 0x7f80_0000 | quiet;
    // Subnormals are integers of 2^-24.
    let subnormal = (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let bits = if magnitude >= 0x7c00 { special } else { normal };
    let bits = if magnitude < 0x400 { subnormal } else { bits };
    f32::from_bits(sign | bits)
}

/// Rows of elements that follow one another, and blocks; the portable functions do what is left of a row.
#[cfg(target_arch = "x86_64")]
pub mod machine {
    use std::arch::x86_64::*;

    use super::super::rect::{Rect, TransferFn};
    use super::{f16_from_f32, f32_from_f16};

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    /// # Safety
    /// `from` is valid for reading `n` halves, `to` for writing as many floats, apart from them. The machine has AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn widen(n: usize, from: *const u16, to: *mut f32) {
        let whole = n / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: the group ends at `n` or before.
            unsafe { _mm256_storeu_ps(to.add(at), _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast()))) };
        }
        for at in whole..n {
            // SAFETY: below `n`.
            unsafe { *to.add(at) = f32_from_f16(*from.add(at)) };
        }
    }

    /// # Safety
    /// As [`widen`], with the types exchanged.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn narrow(n: usize, from: *const f32, to: *mut u16) {
        let whole = n / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: the group ends at `n` or before.
            unsafe {
                let halves = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from.add(at)));
                _mm_storeu_si128(to.add(at).cast(), halves);
            }
        }
        for at in whole..n {
            // SAFETY: below `n`.
            unsafe { *to.add(at) = f16_from_f32(*from.add(at)) };
        }
    }

    /// The block function that rounds floats to halves.
    ///
    /// # Safety
    /// As `BlockFn` says of `f32`; the machine has AVX2 and F16C.
    #[target_feature(enable = "avx2,f16c")]
    pub unsafe fn round(n: usize, to: *mut u8, from: *const u8, _: *const u8, _: *const u8) {
        let (from, to) = (from.cast::<f32>(), to.cast::<f32>());
        let whole = n / 8 * 8;
        for at in (0..whole).step_by(8) {
            // SAFETY: the group ends at `n` or before.
            unsafe {
                let halves = _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from.add(at)));
                _mm256_storeu_ps(to.add(at), _mm256_cvtph_ps(halves));
            }
        }
        for at in whole..n {
            // SAFETY: below `n`.
            unsafe { *to.add(at) = f32_from_f16(f16_from_f32(*from.add(at))) };
        }
    }

    /// Reads or writes a rectangle: rows of adjacent elements by these functions, others by that for any rectangle.
    macro_rules! transfers {
        ($($name:ident $row:ident $other:ident $from:ty => $to:ty;)*) => {$(
            /// # Safety
            /// As a `TransferFn` of these types; the machine has AVX2 and F16C.
            pub unsafe fn $name(rect: &Rect, from: *const u8, to: *mut u8, $other: TransferFn) {
                let Rect { rows, cols, row_stride, col_stride, block_stride } = *rect;
                if col_stride != 2 {
                    // SAFETY: the caller's promise.
                    return unsafe { $other(rect, from, to) };
                }
                let in_block = (block_stride * 4) as isize;
                let (from_stride, to_stride) =
                    if size_of::<$from>() == 2 { (row_stride, in_block) } else { (in_block, row_stride) };
                for row in 0..rows as isize {
                    // SAFETY: rows of the rectangle, each with so many elements.
                    unsafe {
                        let (from, to) = (from.offset(row * from_stride), to.offset(row * to_stride));
                        $row(cols, from.cast::<$from>(), to.cast::<$to>());
                    }
                }
            }
        )*};
    }

    transfers! {
        load widen other u16 => f32;
        store narrow other f32 => u16;
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn conversions_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f32_from_f16(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{bits:#x}");
        }
        for step in 0..(1u32 << 20) {
            let x = f32::from_bits(step.wrapping_mul(4099));
            let (ours, theirs) = (f16_from_f32(x), f16::from_f32(x).to_bits());
            assert!(ours == theirs || x.is_nan(), "{x} {ours:#x} {theirs:#x}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_machine_converts_as_the_portable_functions_do() {
        use super::machine::{narrow, round, widen};

        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")) {
            return;
        }
        let halves: Vec<u16> = (0..=u16::MAX).collect();
        let mut floats = vec![0f32; halves.len()];
        // SAFETY: as many elements; the features are there.
        unsafe { widen(halves.len(), halves.as_ptr(), floats.as_mut_ptr()) };
        for (&half, float) in halves.iter().zip(&floats) {
            assert_eq!(f32_from_f16(half).to_bits(), float.to_bits(), "{half:#x}");
        }
        let floats: Vec<f32> = (0..1u32 << 20).map(|step| f32::from_bits(step.wrapping_mul(4099))).collect();
        let (mut halves, mut rounded) = (vec![0u16; floats.len()], vec![0f32; floats.len()]);
        // SAFETY: as many elements; the features are there.
        unsafe {
            narrow(floats.len(), floats.as_ptr(), halves.as_mut_ptr());
            let none = std::ptr::null();
            round(floats.len(), rounded.as_mut_ptr().cast(), floats.as_ptr().cast(), none, none);
        }
        for ((&float, &half), rounded) in floats.iter().zip(&halves).zip(&rounded) {
            assert_eq!(f16_from_f32(float), half, "{float}");
            assert_eq!(f32_from_f16(half).to_bits(), rounded.to_bits(), "{float}");
        }
    }
}
