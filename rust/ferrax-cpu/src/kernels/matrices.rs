//! A product of two matrices as kernels see it, and the number that they share.

use std::ops::Range;

use ferrax_ir::Result;

use crate::tuning::Products;

/// Terms of a panel where each is added to the result in memory.
pub const SHORT: usize = 512;

/// A product: pointers to the first elements, strides in elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrices {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub left: *const u8,
    pub left_row: isize,
    pub left_col: isize,
    pub right: *const u8,
    pub right_row: isize,
    pub right_col: isize,
    /// Rows are dense, and this many elements apart.
    pub out: *mut u8,
    pub out_row: isize,
    /// All columns and terms of the right operand in strips, where register blocks have them packed.
    pub packed: Option<*mut u8>,
}

impl Matrices {
    /// The product of some rows, columns and terms, to its place in the result; of all columns and terms where these are packed. Elements have `size` bytes.
    pub fn part(&self, rows: Range<usize>, cols: Range<usize>, terms: Range<usize>, size: usize) -> Matrices {
        let at = |row: usize, row_stride: isize, col: usize, col_stride: isize| {
            (row as isize * row_stride + col as isize * col_stride) * size as isize
        };
        Matrices {
            m: rows.len(),
            n: cols.len(),
            k: terms.len(),
            left: self.left.wrapping_offset(at(rows.start, self.left_row, terms.start, self.left_col)),
            right: self.right.wrapping_offset(at(terms.start, self.right_row, cols.start, self.right_col)),
            out: self.out.wrapping_offset(at(rows.start, self.out_row, cols.start, 1)),
            ..*self
        }
    }
}

/// What multiplies matrices.
pub type Multiply = fn(&Matrices, &Products) -> Result<()>;
