//! Rectangles of elements between an array and a block, and how elements change on the way.

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
