//! Products of matrices by register blocks, their operands packed.
//!
//! In: matrices of one dtype. Out: their product. An element is the sum, in order, of sums of [`TERMS`] products, the last of
//! fewer, each of which adds its products in order, by fused operations where the machine has them: bits do not depend on
//! which part of a product is computed, nor by whom. For each block of terms parts of both operands are packed, so that the
//! register blocks ([`super::micro`]) read a strip of the right one from the first-level cache and rows of the left one from
//! the second-level one (K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3),
//! 2008). Few rows read the right operand where it is, few columns the left one.
//!
//! Cost: the multiplications, rounded up to register blocks, and for each block of terms a copy of the operands' parts. One
//! thread packs what it is about to multiply; threads that share a product pack parts of up to `tuning.shared` rows and columns
//! once for all of them, and then take units of the result.

use std::ops::Range;

use ferrax_ir::Result;

use super::matrices::Matrices;
use super::micro::{Micro, Number, ROW};
use crate::alloc::Buffer;
use crate::pool;
use crate::tuning::Products;
use crate::vm::rect::{Rect, TransferFn};
use crate::vm::transfer;

/// Terms whose products are added in order: a strip of so many is half of a small first-level cache.
const TERMS: usize = 256;
/// Register blocks of a unit, at most: more rows of the left operand leave the second-level cache.
const MOST_BLOCKS: usize = 16;
/// Elements of the largest register block.
const MOST_ELEMENTS: usize = 12 * 32;
/// Terms of which rows of the right operand are packed before those of the next strip: what lies together in memory is read
/// together.
const TOGETHER: usize = 16;
/// Columns up to which rows of the left operand are read where they are, and rows up to which those of the right one are.
const FEW_COLS: usize = 64;
const FEW_ROWS: usize = 24;

/// A product, and how it is cut.
struct Product<'a, T: 'static> {
    of: &'a Matrices,
    micro: Micro<T>,
    load: TransferFn,
    /// Whether threads share it; else it is one thread's.
    shared: bool,
    /// Register blocks, one below the other, and columns of a unit.
    unit: [usize; 2],
    /// Rows of the left operand are read where they are; strips of the right one are, if they are whole.
    left_in_place: bool,
    right_in_place: bool,
    /// Packed rows, [`ROW`] elements apart, and strips, each with a row for every term.
    left: *mut T,
    right: *mut T,
}

// SAFETY: the operands are only read. Units of packing write disjoint rows and strips, which units of the product, that begin
// when all are packed ([`Product::block`]), only read; these write disjoint parts of the result.
unsafe impl<T: Number> Sync for Product<'_, T> {}

/// Multiplies matrices, with the other threads if `shared`.
///
/// # Safety
/// The operands hold the elements that the strides reach, and the result, which nobody else uses, has room.
pub unsafe fn multiply<T: Number>(of: &Matrices, shared: bool, tuning: &Products) -> Result<()> {
    let micro = T::micro();
    let [most_rows, most_cols] = if shared { tuning.shared } else { tuning.own };
    let left_in_place = of.left_col == 1 && of.n <= FEW_COLS;
    let right_in_place = of.right_col == 1 && of.m <= FEW_ROWS && of.packed.is_none();
    let rows = if left_in_place { 0 } else { of.m.min(most_rows).next_multiple_of(micro.most_rows()) };
    let cols = of.n.min(most_cols).next_multiple_of(micro.width());
    let left = Buffer::new(rows * ROW * size_of::<T>())?;
    // Strips for all terms are packed already, or those of a block of terms are going to be.
    let own = if of.packed.is_some() { 0 } else { cols * TERMS.min(of.k) * size_of::<T>() };
    let right = Buffer::new(own)?;
    let load = transfer::load_fn(T::DTYPE)?.rect;
    let (left, right) = (left.pointer().cast(), of.packed.unwrap_or(right.pointer()).cast());
    let unit = tuning.unit;
    let product = Product { of, micro, load, shared, unit, left_in_place, right_in_place, left, right };
    for terms in parts(0..of.k, TERMS) {
        for cols in parts(0..of.n, most_cols) {
            for (number, rows) in parts(0..of.m, most_rows).enumerate() {
                product.block(&terms, &rows, &cols, number == 0 && of.packed.is_none())?;
            }
        }
    }
    Ok(())
}

/// Bytes of the strips of a right operand of so many columns and terms.
pub fn packed_bytes<T: Number>(cols: usize, terms: usize) -> usize {
    cols.next_multiple_of(T::micro().width()).saturating_mul(terms).saturating_mul(size_of::<T>())
}

/// Packs the strips of the whole right operand for [`Matrices::packed`], with all threads.
///
/// # Safety
/// The right operand holds the elements that its strides reach; there is room for [`packed_bytes`], which nobody else uses.
pub unsafe fn pack<T: Number>(of: &Matrices, to: *mut u8, tuning: &Products) -> Result<()> {
    let micro = T::micro();
    let width = micro.width();
    let load = transfer::load_fn(T::DTYPE)?.rect;
    let of = &Matrices { packed: Some(to), ..*of };
    let (left, right) = (std::ptr::null_mut(), to.cast());
    let (left_in_place, right_in_place, shared) = (true, false, true);
    let product =
        Product { of, micro, load, shared, unit: tuning.unit, left_in_place, right_in_place, left, right };
    let strips = of.n.div_ceil(width);
    let each = (tuning.unit[1] / width / 4).max(1);
    let (units, n, k) = (strips.div_ceil(each), of.n, of.k);
    product.each(k.div_ceil(TERMS) * units, &|unit| {
        let first = unit / units * TERMS;
        let terms = first..(first + TERMS).min(k);
        let some = unit % units * each..((unit % units + 1) * each).min(strips);
        // SAFETY: the ranges are parts of the operand's, and no two units have strips in common.
        unsafe { product.pack_strips(&(0..n), some, &terms) };
    })
}

/// Lines of one width, which is one of vectors and so a multiple of 32 bytes.
///
/// # Safety
/// So many lines, each so far behind the last one, are valid for reading, and as many without a gap for writing.
unsafe fn copy_lines<T: Number>(from: *const T, stride: isize, to: *mut T, width: usize, lines: usize) {
    const PART: usize = 32;
    let parts = width * size_of::<T>() / PART;
    for line in 0..lines {
        let from = from.wrapping_offset(line as isize * stride).cast::<[u8; PART]>();
        let to = to.wrapping_add(line * width).cast::<[u8; PART]>();
        for part in 0..parts {
            // SAFETY: the caller's promise.
            unsafe { to.add(part).write(from.add(part).read()) };
        }
    }
}

/// A range in parts of so many, the last of fewer.
fn parts(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(count).map(move |first| first..(first + count).min(range.end))
}

impl<T: Number> Product<'_, T> {
    /// The products of some terms to some rows and columns, whose strips are to be packed if they are new.
    fn block(&self, terms: &Range<usize>, rows: &Range<usize>, cols: &Range<usize>, new: bool) -> Result<()> {
        let Product { ref micro, shared, left_in_place, unit: [least, unit_cols], .. } = *self;
        let (most, width) = (micro.most_rows(), micro.width());
        // Packing: units of rows, then units of strips.
        let down = if left_in_place { 0 } else { rows.len().div_ceil(least * most) };
        let strips = if new { cols.len().div_ceil(width) } else { 0 };
        let each = if shared { (unit_cols / width / 4).max(1) } else { strips.max(1) };
        let pack = |unit: usize| {
            // SAFETY: the ranges are parts of the operands', and no two units have rows or strips in common.
            unsafe {
                match unit.checked_sub(down) {
                    None => {
                        let first = rows.start + unit * least * most;
                        let end = (first + least * most).min(rows.end);
                        self.pack_rows(first..end, terms, first - rows.start);
                    }
                    Some(unit) => {
                        self.pack_strips(cols, unit * each..((unit + 1) * each).min(strips), terms);
                    }
                }
            }
        };
        self.each(down + strips.div_ceil(each), &pack)?;
        // Units of the result: so many that threads end together.
        let across = if shared { cols.len().div_ceil(unit_cols) } else { 1 };
        let blocks = rows.len().div_ceil(most);
        let wanted = if shared { blocks.div_ceil((8 * pool::width()).div_ceil(across)) } else { blocks };
        let step = if shared { wanted.clamp(least, MOST_BLOCKS.max(least)) } else { wanted } * most;
        let multiply = |unit: usize| {
            let first = rows.start + unit / across * step;
            let col = cols.start + unit % across * unit_cols;
            let some_cols = if shared { col..(col + unit_cols).min(cols.end) } else { cols.clone() };
            let packed_from = if self.of.packed.is_some() { 0 } else { cols.start };
            // SAFETY: the ranges are parts of the result's that no other unit has, and what they need is packed.
            unsafe {
                self.unit(terms, first..(first + step).min(rows.end), some_cols, [rows.start, packed_from]);
            }
        };
        self.each(rows.len().div_ceil(step) * across, &multiply)
    }

    fn each(&self, units: usize, work: &(dyn Fn(usize) + Sync)) -> Result<()> {
        if self.shared {
            return pool::run_interruptibly(units, work);
        }
        (0..units).for_each(work);
        Ok(())
    }

    fn left(&self, row: usize, term: usize) -> *const T {
        let at = row as isize * self.of.left_row + term as isize * self.of.left_col;
        self.of.left.cast::<T>().wrapping_offset(at)
    }

    fn right(&self, term: usize, col: usize) -> *const T {
        let at = term as isize * self.of.right_row + col as isize * self.of.right_col;
        self.of.right.cast::<T>().wrapping_offset(at)
    }

    /// # Safety
    /// The ranges are parts of the operand's; nobody else uses the packed rows from this place on.
    unsafe fn pack_rows(&self, rows: Range<usize>, terms: &Range<usize>, place: usize) {
        let size = size_of::<T>();
        let rect = Rect {
            rows: rows.len(),
            cols: terms.len(),
            row_stride: self.of.left_row * size as isize,
            col_stride: self.of.left_col * size as isize,
            block_stride: ROW,
        };
        let to = self.left.wrapping_add(place * ROW);
        // SAFETY: the caller's promise; there is room for rows up to a multiple of a register block's.
        unsafe {
            (self.load)(&rect, self.left(rows.start, terms.start).cast(), to.cast());
            // A last block computes rows that are not there, and nobody reads.
            for row in rows.len()..rows.len().next_multiple_of(self.micro.most_rows()) {
                to.add(row * ROW).write_bytes(0, terms.len());
            }
        }
    }

    /// # Safety
    /// The ranges are parts of the operand's, strips are counted from the first of these columns; nobody else uses the packed
    /// strips.
    unsafe fn pack_strips(&self, cols: &Range<usize>, strips: Range<usize>, terms: &Range<usize>) {
        let (size, width) = (size_of::<T>() as isize, self.micro.width());
        for some in parts(terms.clone(), if self.of.right_col == 1 { TOGETHER } else { TERMS }) {
            for strip in strips.clone() {
                let first = cols.start + strip * width;
                let count = width.min(cols.end - first);
                if self.right_in_place && count == width {
                    continue;
                }
                let from = self.right(some.start, first);
                // SAFETY: the caller's promise; there is room for whole strips.
                unsafe {
                    let to = self.strip(strip, terms).add((some.start - terms.start) * width);
                    if count == width && self.of.right_col == 1 {
                        copy_lines(from, self.of.right_row, to, width, some.len());
                        continue;
                    }
                    let rect = Rect {
                        rows: some.len(),
                        cols: count,
                        row_stride: self.of.right_row * size,
                        col_stride: self.of.right_col * size,
                        block_stride: width,
                    };
                    if count < width {
                        to.write_bytes(0, some.len() * width);
                    }
                    (self.load)(&rect, from.cast(), to.cast());
                }
            }
        }
    }

    /// A packed strip, one of those of its terms.
    fn strip(&self, strip: usize, terms: &Range<usize>) -> *mut T {
        let width = self.micro.width();
        let before =
            if self.of.packed.is_some() { terms.start * self.of.n.next_multiple_of(width) } else { 0 };
        self.right.wrapping_add(before + strip * terms.len() * width)
    }

    /// The products of some terms to a unit of the result. What is packed begins at a row and a column.
    ///
    /// # Safety
    /// The ranges are parts of the result's, which nobody else uses; what they need of the operands is packed.
    unsafe fn unit(
        &self,
        terms: &Range<usize>,
        rows: Range<usize>,
        cols: Range<usize>,
        [row, col]: [usize; 2],
    ) {
        let width = self.micro.width();
        for some in parts(cols, width) {
            let in_place = self.right_in_place && some.len() == width;
            let (b, b_step) = match in_place {
                true => (self.right(terms.start, some.start), self.of.right_row.unsigned_abs()),
                false => (self.strip((some.start - col) / width, terms).cast_const(), width),
            };
            let mut first = rows.start;
            while first < rows.end {
                let left = rows.end - first;
                // SAFETY: the caller's promise: these rows and columns are the unit's, their elements are packed or in place.
                first += unsafe {
                    if self.left_in_place {
                        let (block, count) = self.micro.select_straight(left, some.len());
                        let a = self.left(first, terms.start);
                        let by = |c, c_step, new| {
                            block(&[(0, terms.len())], a, self.of.left_row, b, b_step, c, c_step, new);
                        };
                        self.put(first, count, &some, terms.start == 0, count, by)
                    } else {
                        let (block, count) = self.micro.select(left, some.len(), false);
                        let a = self.left.add((first - row) * ROW).cast_const();
                        let by = |c, c_step, new| block(terms.len(), a, 1, b, b_step, c, c_step, new);
                        self.put(first, left, &some, terms.start == 0, count, by)
                    }
                };
            }
        }
    }

    /// Has `count` rows computed from a row on, of which `left` are there, and puts them to the result; says how many.
    ///
    /// # Safety
    /// As for [`Product::unit`]; `by` writes so many rows of one or two vectors.
    unsafe fn put(
        &self,
        row: usize,
        left: usize,
        cols: &Range<usize>,
        new: bool,
        count: usize,
        by: impl Fn(*mut T, usize, bool),
    ) -> usize {
        let step = self.of.out_row.unsigned_abs();
        let rows = count.min(left);
        let out = self.of.out.cast::<T>().wrapping_add(row * step + cols.start);
        let whole = cols.len() == self.micro.lanes || cols.len() == self.micro.width();
        if rows == count && whole {
            by(out, step, new);
            return rows;
        }
        // Through a block of its own, of which what is there is copied.
        let mut block = [T::zeroed(); MOST_ELEMENTS];
        let width = self.micro.width();
        by(block.as_mut_ptr(), width, true);
        for (number, line) in block.chunks(width).enumerate().take(rows) {
            for (col, &sum) in line.iter().enumerate().take(cols.len()) {
                // SAFETY: the row and the column are the result's.
                unsafe {
                    let to = out.add(number * step + col);
                    *to = if new { sum } else { (*to).add(sum) };
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use ferrax_compile::tuning::Setting;

    use super::*;
    use crate::tuning::Tuning;

    /// Small whole numbers, whose products and sums floats hold exactly.
    fn numbers(count: usize, seed: usize) -> Vec<i64> {
        (0..count).map(|place| ((place * 7919 + seed * 104_729) % 15) as i64 - 7).collect()
    }

    /// The product of matrices whose axes are as they are or turned, in rows that are longer than the result's.
    fn multiplied<T: Number>(
        [m, n, k]: [usize; 3],
        turned: [bool; 2],
        of: impl Fn(i64) -> T,
        (shared, packed, setting): (bool, bool, Setting),
    ) -> (Vec<T>, Vec<i64>) {
        let (left, right) = (numbers(m * k, 1), numbers(k * n, 2));
        let [left_row, left_col] = if turned[0] { [1, m as isize] } else { [k as isize, 1] };
        let [right_row, right_col] = if turned[1] { [1, k as isize] } else { [n as isize, 1] };
        let [a, b] = [&left, &right].map(|all| all.iter().map(|&x| of(x)).collect::<Vec<T>>());
        let out_row = n + 3;
        let mut out = vec![of(99); m * out_row];
        let matrices = Matrices {
            m,
            n,
            k,
            left: a.as_ptr().cast(),
            left_row,
            left_col,
            right: b.as_ptr().cast(),
            right_row,
            right_col,
            out: out.as_mut_ptr().cast(),
            out_row: out_row as isize,
            packed: None,
        };
        let tuning = &Tuning::of(setting).products;
        let strips = Buffer::new(packed_bytes::<T>(n, k)).unwrap();
        // SAFETY: operands and result are as large as the sizes and strides say.
        unsafe {
            let mut to = None;
            if packed {
                pack::<T>(&matrices, strips.pointer(), tuning).unwrap();
                to = Some(strips.pointer());
            }
            multiply::<T>(&Matrices { packed: to, ..matrices }, shared, tuning).unwrap();
        }
        let at = |row: usize, rows: isize, col: usize, cols: isize| row * rows as usize + col * cols as usize;
        let sum = |row: usize, col: usize| -> i64 {
            let product =
                |p: usize| left[at(row, left_row, p, left_col)] * right[at(p, right_row, col, right_col)];
            (0..k).map(product).sum()
        };
        let expected = (0..m).flat_map(|row| (0..out_row).map(move |col| (row, col)));
        (out, expected.map(|(row, col)| if col < n { sum(row, col) } else { 99 }).collect())
    }

    fn check<T: Number + PartialEq>(of: fn(i64) -> T, sizes: [usize; 3]) {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for how in [
                (false, false, Setting::Tiny),
                (true, false, Setting::Tiny),
                (false, true, Setting::Tiny),
                (true, true, Setting::Tiny),
                (false, false, Setting::Default),
                (true, true, Setting::Default),
            ] {
                let (found, expected) = multiplied(sizes, turned, of, how);
                let expected: Vec<T> = expected.into_iter().map(of).collect();
                assert!(found == expected, "{sizes:?} {turned:?} {how:?} {}", T::DTYPE);
            }
        }
    }

    #[test]
    fn products_of_all_sizes() {
        let micro = <f32 as Number>::micro();
        assert!(micro.most_rows() * micro.width() <= MOST_ELEMENTS);
        for m in [1, 5, 6, 7, 13, 25] {
            for n in [1, 7, 8, 9, 16, 17, 33, 65] {
                for k in [1, 3, TERMS, 2 * TERMS + 1] {
                    check::<f32>(|x| x as f32, [m, n, k]);
                }
                check::<f64>(|x| x as f64, [m, n, TERMS + 1]);
                check::<u8>(|x| x as u8, [m, n, 7]);
                check::<u16>(|x| x as u16, [m, n, 7]);
                check::<u32>(|x| x as u32, [m, n, TERMS + 1]);
                check::<u64>(|x| x as u64, [m, n, 7]);
            }
        }
    }

    /// Whatever is computed at once, an element's sum has its order.
    #[test]
    fn parts_have_the_bits_of_the_whole() {
        let [m, n, k] = [150, 140, 3 * TERMS + 5];
        let numbers = |seed: usize, count: usize| -> Vec<f32> {
            (0..count).map(|place| ((place * 7919 + seed) % 1013) as f32 / 1013.0 - 0.5).collect()
        };
        let (left, right) = (numbers(1, m * k), numbers(2, k * n));
        let product = |[rows, cols]: [Range<usize>; 2], shared: bool, setting| {
            let mut out = vec![0f32; rows.len() * cols.len()];
            let matrices = Matrices {
                m: rows.len(),
                n: cols.len(),
                k,
                left: left[rows.start * k..].as_ptr().cast(),
                left_row: k as isize,
                left_col: 1,
                right: right[cols.start..].as_ptr().cast(),
                right_row: n as isize,
                right_col: 1,
                out: out.as_mut_ptr().cast(),
                out_row: cols.len() as isize,
                packed: None,
            };
            // SAFETY: operands and result are as large as the sizes and strides say.
            unsafe { multiply::<f32>(&matrices, shared, &Tuning::of(setting).products) }.unwrap();
            out
        };
        let whole = product([0..m, 0..n], false, Setting::Default);
        assert!(product([0..m, 0..n], true, Setting::Default) == whole);
        for [rows, cols] in [[0..1, 0..n], [3..140, 5..9], [77..90, 1..140], [0..150, 60..61]] {
            for (shared, setting) in [(false, Setting::Default), (true, Setting::Tiny)] {
                let part = product([rows.clone(), cols.clone()], shared, setting);
                let expected = rows.clone().flat_map(|row| cols.clone().map(move |col| row * n + col));
                assert!(part.into_iter().eq(expected.map(|at| whole[at])), "{rows:?} {cols:?}");
            }
        }
    }
}
