//! Loads at computed indices: elements of a strided array, each moved on by indices that registers hold.
//!
//! Indices are clamped as their jumps say, so that none of them leads out of the array. Offsets are computed for
//! some elements at once, by instructions of the vector unit; then elements are read one by one.

use super::Place;
use super::isa::{Isa, isa};
use super::rect::{Cast, Rect, TransferFn};

/// Elements whose offsets are computed at once.
const CHUNK: usize = 64;

/// The indices of a jump (see `ferrax_compile::Jump`) over a block, and where they lead.
#[derive(Clone, Copy, Debug)]
pub struct Indices {
    pub indices: *const u8,
    /// Of 64 bits rather than 32.
    pub wide: bool,
    /// One index serves the whole block.
    pub one: bool,
    /// Elements between rows of the block.
    pub row: usize,
    /// In bytes.
    pub stride: isize,
    pub last: i64,
}

impl Indices {
    /// How far the index of an element leads, in bytes.
    ///
    /// # Safety
    /// There are so many indices.
    #[inline(always)]
    pub unsafe fn offset(&self, element: usize) -> isize {
        let element = if self.one { 0 } else { element };
        // SAFETY: there is an index for each element, or one for all, of this width.
        let index = unsafe {
            if self.wide {
                *self.indices.cast::<i64>().add(element)
            } else {
                i64::from(*self.indices.cast::<i32>().add(element))
            }
        };
        index.min(self.last).max(0) as isize * self.stride
    }
}

/// `f(rectangle, indices, array, block)`.
pub type PickFn = unsafe fn(&Rect, &[Indices], *const u8, *mut u8);

/// How the indices of a load differ within a tile.
#[derive(Clone, Copy, Debug)]
pub enum Picks {
    /// They do not, or there are none: the array is given at the element that they lead to.
    Tile,
    /// From row to row; elements of the block have so many bytes.
    Rows(usize),
    Lanes(PickFn),
}

impl Picks {
    /// Reads a rectangle at these indices, where `function` is what reads one without.
    ///
    /// # Safety
    /// Every element of the rectangle, moved on by its indices, is valid for reading in the array, and for writing in
    /// the block; there are as many indices as their rows and the rectangle say. Both functions are of one dtype.
    pub unsafe fn read(
        self,
        function: TransferFn,
        rect: &Rect,
        by: &[Indices],
        array: *const u8,
        block: *mut u8,
    ) {
        // SAFETY: the caller's promise, for all of the rectangle or for each row of it.
        unsafe {
            match self {
                Picks::Tile => function(rect, array, block),
                Picks::Rows(element) => {
                    let line = Rect { rows: 1, ..*rect };
                    for row in 0..rect.rows {
                        let jumped: isize = by.iter().map(|by| by.offset(row * by.row)).sum();
                        let from = array.offset(row as isize * rect.row_stride + jumped);
                        function(&line, from, block.add(row * rect.block_stride * element));
                    }
                }
                Picks::Lanes(pick) => pick(rect, by, array, block),
            }
        }
    }
}

/// A jump of a load: where its indices are, and their types.
#[derive(Clone, Copy, Debug)]
pub struct JumpStep {
    pub place: Place,
    /// Indices of 64 bits rather than 32.
    pub wide: bool,
    /// One index serves the whole tile.
    pub one: bool,
    /// In bytes.
    pub stride: isize,
    pub last: i64,
}

impl JumpStep {
    /// Its indices in a block, of a tile of so many columns, from those of element `first` of it on.
    pub fn indices(&self, block: *const u8, first: usize, cols: usize) -> Indices {
        let skipped = if self.one { 0 } else { first * if self.wide { 8 } else { 4 } };
        Indices {
            indices: block.wrapping_add(skipped),
            wide: self.wide,
            one: self.one,
            row: cols,
            stride: self.stride,
            last: self.last,
        }
    }
}

/// Adds to offsets of bytes where indices lead.
///
/// # Safety
/// There are as many indices, from this one on, as offsets; what they lead to fits into the type of the offsets.
macro_rules! add_offsets {
    ($name:ident $t:ty) => {
        #[inline(always)]
        unsafe fn $name(by: &Indices, first: usize, offsets: &mut [$t]) {
            let (stride, last) = (by.stride as $t, by.last.min(<$t>::MAX.into()) as $t);
            // SAFETY: the caller's promise; indices are of this width.
            unsafe {
                if by.one {
                    let offset = by.offset(0) as $t;
                    offsets.iter_mut().for_each(|at| *at += offset);
                } else if by.wide {
                    let indices =
                        std::slice::from_raw_parts(by.indices.cast::<i64>().add(first), offsets.len());
                    for (at, &index) in offsets.iter_mut().zip(indices) {
                        *at += index.min(by.last).max(0) as $t * stride;
                    }
                } else {
                    let indices =
                        std::slice::from_raw_parts(by.indices.cast::<i32>().add(first), offsets.len());
                    for (at, &index) in offsets.iter_mut().zip(indices) {
                        *at += <$t>::from(index).min(last).max(0) * stride;
                    }
                }
            }
        }
    };
}

add_offsets!(add_narrow i32);
add_offsets!(add_wide i64);

/// # Safety
/// Every element of the rectangle, moved on by its indices, is valid for reading in the array, and for writing in
/// the block; there are as many indices as their rows and the rectangle say.
#[inline(always)]
unsafe fn pick_rect<C: Cast>(rect: &Rect, by: &[Indices], array: *const u8, block: *mut u8) {
    let Rect { rows, cols, row_stride, col_stride, block_stride } = *rect;
    let block = block.cast::<C::R>();
    let reach = |count: usize, stride: isize| (count as i128) * (stride.unsigned_abs() as i128);
    let jumps = by.iter().map(|by| (i128::from(by.last) + 1) * (by.stride.unsigned_abs() as i128));
    let narrow = reach(cols, col_stride) + jumps.sum::<i128>() < i128::from(i32::MAX);
    // SAFETY: offsets are those of elements that the caller promises.
    unsafe {
        for row in 0..rows {
            let from = array.offset(row as isize * row_stride);
            let to = std::slice::from_raw_parts_mut(block.add(row * block_stride), cols);
            for (number, to) in to.chunks_mut(CHUNK).enumerate() {
                let first = number * CHUNK;
                let at = |by: &Indices| row * by.row + first;
                if narrow {
                    let mut offsets = [0i32; CHUNK];
                    let offsets = &mut offsets[..to.len()];
                    if col_stride != 0 {
                        for (offset, col) in offsets.iter_mut().zip(first as i32..) {
                            *offset = col * col_stride as i32;
                        }
                    }
                    by.iter().for_each(|by| add_narrow(by, at(by), offsets));
                    for (to, &offset) in to.iter_mut().zip(&*offsets) {
                        *to = C::cast(*from.offset(offset as isize).cast::<C::S>());
                    }
                } else {
                    let mut offsets = [0i64; CHUNK];
                    let offsets = &mut offsets[..to.len()];
                    for (offset, col) in offsets.iter_mut().zip(first as i64..) {
                        *offset = col * col_stride as i64;
                    }
                    by.iter().for_each(|by| add_wide(by, at(by), offsets));
                    for (to, &offset) in to.iter_mut().zip(&*offsets) {
                        *to = C::cast(*from.offset(offset as isize).cast::<C::S>());
                    }
                }
            }
        }
    }
}

macro_rules! versions {
    ($($name:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<C: Cast>(rect: &Rect, by: &[Indices], from: *const u8, to: *mut u8) {
            // SAFETY: the function has the contract of the one that it calls; `isa` found the instructions
            // that it is compiled for on this machine before it was chosen.
            unsafe { pick_rect::<C>(rect, by, from, to) }
        }
    )*};
}

versions! {
    pick_baseline;
    pick_avx2 "avx2,fma,bmi1,bmi2,f16c";
    pick_avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c";
}

pub(super) fn pick<C: Cast>() -> PickFn {
    match isa() {
        Isa::Baseline => pick_baseline::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => pick_avx2::<C>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => pick_avx512::<C>,
    }
}
