//! Loads and stores that are more than a pointer: rectangles of a strided array
//! to or from a dense block, with conversion between storage and register.

use std::sync::LazyLock;

use ferrax_ir::minifloat::MiniFloat;
use ferrax_ir::{DType, Result, internal_error};

use super::halves::{f16_from_f32, f32_from_f16};
use super::isa::{Isa, isa};
use super::ops::bf16_bits;
use super::pick::{PickFn, pick};
use super::rect::{Cast, Rect, TransferFn};

/// What reads elements of a dtype.
#[derive(Clone, Copy, Debug)]
pub struct LoadFns {
    pub rect: TransferFn,
    /// At computed indices.
    pub pick: PickFn,
}

/// Rows of the array to rows of the block.
///
/// # Safety
/// Every element of the rectangle is valid for reading in the array and for
/// writing in the block, which do not overlap.
#[inline(always)]
unsafe fn load_rect<C: Cast>(rect: &Rect, array: *const u8, block: *mut u8) {
    let Rect { rows, cols, row_stride, col_stride, block_stride } = *rect;
    let size = size_of::<C::S>() as isize;
    let block = block.cast::<C::R>();
    // SAFETY: all indices stay in the rectangle.
    unsafe {
        if rows >= 8 && cols > 1 && row_stride == size && col_stride != size && col_stride != 0 {
            // Contiguous along rows: strips of 8 rows keep both sides in cache.
            let mut row = 0;
            while row < rows {
                let strip = (rows - row).min(8);
                let from = array.offset(row as isize * row_stride);
                for col in 0..cols {
                    let from = from.offset(col as isize * col_stride).cast::<C::S>();
                    for i in 0..strip {
                        *block.add((row + i) * block_stride + col) = C::cast(*from.add(i));
                    }
                }
                row += strip;
            }
            return;
        }
        if col_stride == 0 && block_stride == cols && cols < 32 {
            // Of short rows there are many: each is written as vectors, and what is too much is the next one's.
            let block = std::slice::from_raw_parts_mut(block, rows * cols);
            for row in 0..rows {
                let value = C::cast(*array.offset(row as isize * row_stride).cast::<C::S>());
                let to = &mut block[row * cols..];
                let (eights, rest) = to.as_chunks_mut::<8>();
                let vectors = cols.div_ceil(8);
                if vectors <= eights.len() {
                    eights[..vectors].fill([value; 8]);
                } else {
                    eights.fill([value; 8]);
                    rest.fill(value);
                }
            }
            return;
        }
        for row in 0..rows {
            let from = array.offset(row as isize * row_stride);
            let to = std::slice::from_raw_parts_mut(block.add(row * block_stride), cols);
            if col_stride == size {
                let from = std::slice::from_raw_parts(from.cast::<C::S>(), cols);
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = C::cast(from);
                }
            } else if col_stride == -size && cols > 0 {
                // The compiler makes vectors of slices that are gone through from their ends, and of fixed distances.
                let last = from.offset((cols as isize - 1) * col_stride).cast::<C::S>();
                let from = std::slice::from_raw_parts(last, cols);
                for (to, &from) in to.iter_mut().zip(from.iter().rev()) {
                    *to = C::cast(from);
                }
            } else if col_stride.abs() == 2 * size {
                apart::<C, 2>(from, col_stride, to);
            } else if col_stride.abs() == 3 * size {
                apart::<C, 3>(from, col_stride, to);
            } else if col_stride.abs() == 4 * size {
                apart::<C, 4>(from, col_stride, to);
            } else if col_stride == 0 {
                // By eights: of short rows there are many.
                let value = C::cast(*from.cast::<C::S>());
                let (eights, rest) = to.as_chunks_mut::<8>();
                for eight in eights {
                    *eight = [value; 8];
                }
                for to in rest {
                    *to = value;
                }
            } else {
                for (col, to) in to.iter_mut().enumerate() {
                    *to = C::cast(*from.offset(col as isize * col_stride).cast::<C::S>());
                }
            }
        }
    }
}

/// Elements that are `STEP` elements apart, forwards or backwards.
///
/// # Safety
/// There are as many as the block has.
#[inline(always)]
unsafe fn apart<C: Cast, const STEP: usize>(from: *const u8, stride: isize, to: &mut [C::R]) {
    if stride > 0 {
        let from = from.cast::<C::S>();
        for (place, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = C::cast(unsafe { *from.add(place * STEP) });
        }
        return;
    }
    let last = from.wrapping_offset((to.len() as isize - 1) * stride).cast::<C::S>();
    for (place, to) in to.iter_mut().rev().enumerate() {
        // SAFETY: the caller's promise.
        *to = C::cast(unsafe { *last.add(place * STEP) });
    }
}

/// Rows of the block to rows of the array.
///
/// # Safety
/// As `load_rect`, with the directions exchanged.
#[inline(always)]
unsafe fn store_rect<C: Cast>(rect: &Rect, block: *const u8, array: *mut u8) {
    let Rect { rows, cols, row_stride, col_stride, block_stride } = *rect;
    let block = block.cast::<C::S>();
    // SAFETY: all indices stay in the rectangle.
    unsafe {
        for row in 0..rows {
            let to = array.offset(row as isize * row_stride);
            let from = std::slice::from_raw_parts(block.add(row * block_stride), cols);
            if col_stride == size_of::<C::R>() as isize {
                let to = std::slice::from_raw_parts_mut(to.cast::<C::R>(), cols);
                for (to, &from) in to.iter_mut().zip(from) {
                    *to = C::cast(from);
                }
            } else {
                for (col, &from) in from.iter().enumerate() {
                    *to.offset(col as isize * col_stride).cast::<C::R>() = C::cast(from);
                }
            }
        }
    }
}

macro_rules! versions {
    ($($name:ident $inner:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<C: Cast>(rect: &Rect, from: *const u8, to: *mut u8) {
            // SAFETY: the function has the contract of the one that it calls; `isa` found the instructions
            // that it is compiled for on this machine before it was chosen.
            unsafe { $inner::<C>(rect, from, to) }
        }
    )*};
}

versions! {
    load_baseline load_rect;
    load_avx2 load_rect "avx2,fma,bmi1,bmi2,f16c";
    load_avx512 load_rect "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c";
    store_baseline store_rect;
    store_avx2 store_rect "avx2,fma,bmi1,bmi2,f16c";
    store_avx512 store_rect "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c";
}

fn load<C: Cast>() -> LoadFns {
    let rect = match isa() {
        Isa::Baseline => load_baseline::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => load_avx2::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => load_avx512::<C>,
    };
    LoadFns { rect, pick: pick::<C>() }
}

/// Elements of four bytes as they are.
fn load_words() -> LoadFns {
    let rect = match isa() {
        Isa::Baseline => load_baseline::<Copy4>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => transpose::load_words,
    };
    LoadFns { rect, ..load::<Copy4>() }
}

/// Halves as floats.
fn load_halves() -> LoadFns {
    let rect = match isa() {
        Isa::Baseline => load_baseline::<FromF16>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => by_machine::load,
    };
    LoadFns { rect, ..load::<FromF16>() }
}

fn store_halves() -> TransferFn {
    match isa() {
        Isa::Baseline => store_baseline::<ToF16>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => by_machine::store,
    }
}

/// Halves in rows of adjacent ones, by the machine's conversions.
#[cfg(target_arch = "x86_64")]
mod by_machine {
    use super::super::halves::machine;
    use super::{FromF16, Rect, ToF16, load_avx2, store_avx2};

    /// # Safety
    /// As `load_rect`; the machine has AVX2 and F16C.
    pub(super) unsafe fn load(rect: &Rect, array: *const u8, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { machine::load(rect, array, block, load_avx2::<FromF16>) }
    }

    /// # Safety
    /// As `store_rect`; the machine has AVX2 and F16C.
    pub(super) unsafe fn store(rect: &Rect, block: *const u8, array: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { machine::store(rect, block, array, store_avx2::<ToF16>) }
    }
}

fn store<C: Cast>() -> TransferFn {
    match isa() {
        Isa::Baseline => store_baseline::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => store_avx2::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => store_avx512::<C>,
    }
}

/// Transpositions of words in registers.
#[cfg(target_arch = "x86_64")]
mod transpose {
    use std::arch::x86_64::*;

    use super::{Copy4, Rect, load_avx2};

    /// # Safety
    /// As `load_rect`; the machine has AVX2.
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c")]
    pub(super) unsafe fn load_words(rect: &Rect, array: *const u8, block: *mut u8) {
        let Rect { rows, cols, row_stride, col_stride, block_stride } = *rect;
        let across = row_stride == 4 && col_stride != 4 && col_stride != 0;
        // Squares of eight by eight, then what is left to the right and below.
        let (down, right) = if across { (rows / 8 * 8, cols / 8 * 8) } else { (0, 0) };
        // SAFETY: squares and what is left of them are parts of the rectangle.
        unsafe {
            for row in (0..down).step_by(8) {
                for col in (0..right).step_by(8) {
                    let from = array.offset(row as isize * row_stride + col as isize * col_stride);
                    let to = block.cast::<f32>().add(row * block_stride + col);
                    square(from, col_stride, to, block_stride);
                }
            }
            let rest = |row: usize, col: usize, rows: usize, cols: usize| {
                if rows > 0 && cols > 0 {
                    let from = array.offset(row as isize * row_stride + col as isize * col_stride);
                    let to = block.cast::<f32>().add(row * block_stride + col).cast();
                    load_avx2::<Copy4>(&Rect { rows, cols, ..*rect }, from, to);
                }
            };
            if down == 0 || right == 0 {
                rest(0, 0, rows, cols);
            } else {
                rest(0, right, down, cols - right);
                rest(down, 0, rows - down, cols);
            }
        }
    }

    /// # Safety
    /// Eight words are valid at each of eight places, which are so many bytes and so many words apart.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn square(from: *const u8, from_stride: isize, to: *mut f32, to_stride: usize) {
        let mut lines = [_mm256_setzero_ps(); 8];
        for (place, line) in lines.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *line = unsafe { _mm256_loadu_ps(from.offset(place as isize * from_stride).cast()) };
        }
        let [a, b, c, d, e, f, g, h] = lines;
        let pairs = |x, y| (_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
        let fours = |(x, y), (z, w)| {
            [
                _mm256_shuffle_ps::<0x44>(x, z),
                _mm256_shuffle_ps::<0xee>(x, z),
                _mm256_shuffle_ps::<0x44>(y, w),
                _mm256_shuffle_ps::<0xee>(y, w),
            ]
        };
        let (low, high) = (fours(pairs(a, b), pairs(c, d)), fours(pairs(e, f), pairs(g, h)));
        for place in 0..4 {
            let (x, y) = (low[place], high[place]);
            // SAFETY: the caller's promise.
            unsafe {
                _mm256_storeu_ps(to.add(place * to_stride), _mm256_permute2f128_ps::<0x20>(x, y));
                _mm256_storeu_ps(to.add((place + 4) * to_stride), _mm256_permute2f128_ps::<0x31>(x, y));
            }
        }
    }
}

macro_rules! casts {
    ($($name:ident($x:ident: $s:ty) -> $r:ty = $body:expr;)*) => {$(
        struct $name;
        impl Cast for $name {
            type S = $s;
            type R = $r;
            #[inline(always)]
            fn cast($x: $s) -> $r { $body }
        }
    )*};
}

casts! {
    Copy1(x: u8) -> u8 = x;
    Copy2(x: u16) -> u16 = x;
    Copy4(x: u32) -> u32 = x;
    Copy8(x: u64) -> u64 = x;
    FromBf16(x: u16) -> f32 = f32::from_bits(u32::from(x) << 16);
    FromF16(x: u16) -> f32 = f32_from_f16(x);
    ToBf16(x: f32) -> u16 = bf16_bits(x);
    ToF16(x: f32) -> u16 = f16_from_f32(x);
    LowU2(x: u8) -> u8 = x & 3;
    LowU4(x: u8) -> u8 = x & 15;
    LowI2(x: u8) -> u8 = ((x << 6).cast_signed() >> 6).cast_unsigned();
    LowI4(x: u8) -> u8 = ((x << 4).cast_signed() >> 4).cast_unsigned();
    ToBool(x: u8) -> u8 = u8::from(x != 0);
}

macro_rules! small_floats {
    ($($name:ident $dtype:ident;)*) => {
        $(struct $name;
        impl Cast for $name {
            type S = u8;
            type R = f32;
            #[inline(always)]
            fn cast(x: u8) -> f32 {
                static TABLE: LazyLock<[f32; 256]> = LazyLock::new(|| {
                    let format = MiniFloat::of(DType::$dtype);
                    std::array::from_fn(|bits| format.map_or(0.0, |format| format.decode(bits as u8) as f32))
                });
                TABLE[usize::from(x)]
            }
        }
        )*
        /// Makes the tables that are made once.
        pub fn settle() {
            $($name::cast(0);)*
        }

        fn load_small_float(dtype: DType) -> Option<LoadFns> {
            match dtype {
                $(DType::$dtype => Some(LoadFns { rect: load_baseline::<$name>, ..load::<$name>() }),)*
                _ => None,
            }
        }
    };
}

small_floats! {
    FromF4E2M1FN F4E2M1FN; FromF8E3M4 F8E3M4; FromF8E4M3 F8E4M3; FromF8E4M3B11FNUZ F8E4M3B11FNUZ;
    FromF8E4M3FN F8E4M3FN; FromF8E4M3FNUZ F8E4M3FNUZ; FromF8E5M2 F8E5M2; FromF8E5M2FNUZ F8E5M2FNUZ;
    FromF8E8M0FNU F8E8M0FNU;
}

macro_rules! to_small_floats {
    ($($name:ident $dtype:ident;)*) => {
        $(struct $name;
        impl Cast for $name {
            type S = f32;
            type R = u8;
            #[inline(always)]
            fn cast(x: f32) -> u8 {
                const FORMAT: Option<MiniFloat> = MiniFloat::of(DType::$dtype);
                FORMAT.map_or(0, |format| format.encode(f64::from(x)))
            }
        }
        )*
        fn store_small_float(dtype: DType) -> Option<TransferFn> {
            match dtype {
                $(DType::$dtype => Some(store_baseline::<$name>),)*
                _ => None,
            }
        }
    };
}

to_small_floats! {
    ToF4E2M1FN F4E2M1FN; ToF8E3M4 F8E3M4; ToF8E4M3 F8E4M3; ToF8E4M3B11FNUZ F8E4M3B11FNUZ;
    ToF8E4M3FN F8E4M3FN; ToF8E4M3FNUZ F8E4M3FNUZ; ToF8E5M2 F8E5M2; ToF8E5M2FNUZ F8E5M2FNUZ;
    ToF8E8M0FNU F8E8M0FNU;
}

/// Whether elements are stored as registers hold them.
pub fn is_native(dtype: DType) -> bool {
    match dtype {
        DType::I2 | DType::I4 | DType::U2 | DType::U4 | DType::BF16 | DType::F16 => false,
        other => other.parts() == 1 && MiniFloat::of(other).is_none(),
    }
}

/// Bytes of one part of an element in memory.
pub fn part_size(dtype: DType) -> usize {
    dtype.size() / dtype.parts()
}

fn copy<F: Copy>(size: usize, make: [F; 4]) -> F {
    make[size.trailing_zeros().min(3) as usize]
}

/// Reads elements (or parts) of `dtype`.
pub fn load_fn(dtype: DType) -> Result<LoadFns> {
    Ok(match dtype {
        DType::BF16 => load::<FromBf16>(),
        DType::F16 => load_halves(),
        DType::U2 => load::<LowU2>(),
        DType::U4 => load::<LowU4>(),
        DType::I2 => load::<LowI2>(),
        DType::I4 => load::<LowI4>(),
        DType::Bool => load::<ToBool>(),
        DType::Float0 => return Err(internal_error!("float0 has no elements to load")),
        other => match load_small_float(other) {
            Some(found) => found,
            None => copy(part_size(other), [load::<Copy1>(), load::<Copy2>(), load_words(), load::<Copy8>()]),
        },
    })
}

/// Writes elements (or parts) of `dtype`.
pub fn store_fn(dtype: DType) -> Result<TransferFn> {
    Ok(match dtype {
        DType::BF16 => store::<ToBf16>(),
        DType::F16 => store_halves(),
        DType::U2 => store::<LowU2>(),
        DType::U4 => store::<LowU4>(),
        DType::I2 => store::<LowI2>(),
        DType::I4 => store::<LowI4>(),
        DType::Float0 => return Err(internal_error!("float0 has no elements to store")),
        other => match store_small_float(other) {
            Some(found) => found,
            None => copy(
                part_size(other),
                [store::<Copy1>(), store::<Copy2>(), store::<Copy4>(), store::<Copy8>()],
            ),
        },
    })
}
