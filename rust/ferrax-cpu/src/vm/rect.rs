//! Rectangles of elements between an array and a block, how elements change on the way, and blocks of indices.

/// A rectangle: `rows` by `cols`, with byte strides in the array and an
/// element stride between rows of the block.
#[derive(Clone, Copy, Debug)]
pub struct Rect {
    pub rows: usize,
    pub cols: usize,
    pub row_stride: isize,
    pub col_stride: isize,
    pub block_stride: usize,
}

/// `f(rectangle, source, destination)`; for loads the source is the array.
pub type TransferFn = unsafe fn(&Rect, *const u8, *mut u8);

/// Elements in memory as registers hold them, or the other way.
pub(super) trait Cast {
    type S: Copy;
    type R: Copy;
    fn cast(s: Self::S) -> Self::R;
}

/// Writes the indices of rows to all their lanes, or those of columns along each row.
///
/// # Safety
/// The block has so many lanes, in rows of so many columns, for writing.
pub(super) unsafe fn indices<T: Copy>(
    block: *mut T,
    (lanes, cols): (usize, usize),
    by_row: bool,
    index: impl Fn(i64) -> T,
) {
    // SAFETY: the caller's promise.
    let block = unsafe { std::slice::from_raw_parts_mut(block, lanes) };
    for (row, line) in block.chunks_exact_mut(cols).enumerate() {
        if by_row {
            line.fill(index(row as i64));
        } else {
            for (col, value) in line.iter_mut().enumerate() {
                *value = index(col as i64);
            }
        }
    }
}
