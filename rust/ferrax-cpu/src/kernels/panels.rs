//! Products of matrices over long contracted axes.
//!
//! Register blocks, and the `gemm` crate, add the products of some hundreds of terms
//! to the result one after the other, so their error grows with the length. Here the contracted axis
//! is cut into panels of fixed length, whose products are added as a tree: a run
//! of panels is split at the largest power of two below their number. Its shape
//! is that of the number of panels alone. With panels of p terms the error of a
//! sum of k products is at most `(p + 1 + log2(k / p)) u` times the sum of their
//! magnitudes, to first order in the unit roundoff u (N. J. Higham, Accuracy and
//! Stability of Numerical Algorithms, 2nd ed., §3.1 and §4.2).
//!
//! The result is cut into pieces that keep the tree's values in cache, and, where
//! there are few, the tree into subtrees, which run side by side.

use std::ops::Range;

use ferrax_ir::paths::Path;
use ferrax_ir::{DType, Result};
use smallvec::SmallVec;

use super::matrices::{Matrices, Multiply};
use super::thin;
use crate::alloc::Buffer;
use crate::pool;
use crate::tuning::Products;

/// Terms of a panel.
pub const LONG: usize = 4096;

/// `f(rows, cols, from, row stride, to, row stride)`: adds matrices of dense rows, strides in elements.
type Add = unsafe fn(usize, usize, *const u8, isize, *mut u8, isize);

/// # Safety
/// Both matrices are valid and apart.
unsafe fn add<T: Copy + std::ops::Add<Output = T>>(
    rows: usize,
    cols: usize,
    from: *const u8,
    from_row: isize,
    to: *mut u8,
    to_row: isize,
) {
    for row in 0..rows as isize {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe {
            (
                std::slice::from_raw_parts(from.cast::<T>().offset(row * from_row), cols),
                std::slice::from_raw_parts_mut(to.cast::<T>().offset(row * to_row), cols),
            )
        };
        for (to, &from) in to.iter_mut().zip(from) {
            *to = *to + from;
        }
    }
}

/// How products over long axes are cut.
#[derive(Clone, Copy, Debug)]
pub struct Panels {
    run: Multiply,
    add: Add,
    dtype: DType,
    size: usize,
    length: usize,
    tuning: &'static Products,
}

/// Matrices that threads write disjoint parts of.
struct Shared(*mut u8);

// SAFETY: behind the pointer each subtree of a piece has a matrix of its own (`place` in `Panels::run`),
// and only the thread that computes it writes there.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Where a run of so many panels, or of subtrees, is split.
fn middle(count: usize) -> usize {
    1 << (count - 1).ilog2()
}

impl Panels {
    /// Panels of this length for products by `run`; `None` where the order does not matter.
    pub fn new(dtype: DType, run: Multiply, length: usize, tuning: &'static Products) -> Option<Panels> {
        let add: Add = match dtype {
            DType::F32 => add::<f32>,
            DType::F64 => add::<f64>,
            DType::C64 => add::<gemm::c32>,
            DType::C128 => add::<gemm::c64>,
            _ => return None,
        };
        Some(Panels { run, add, dtype, size: dtype.size(), length, tuning })
    }

    /// The terms of a panel and, where they are others, those of the last, of so many.
    pub fn terms(&self, k: usize) -> SmallVec<[usize; 2]> {
        [self.length.min(k), k % self.length].into_iter().filter(|&terms| terms > 0).collect()
    }

    /// The products of a batch, all of the same sizes.
    pub fn run(&self, batches: usize, matrices: &(dyn Fn(usize) -> Matrices + Sync)) -> Result<()> {
        let Matrices { m, n, k, .. } = matrices(0);
        let &Products { serial, panel_piece: most, units, .. } = self.tuning;
        let is_alike = |rows: usize, cols: usize| {
            self.terms(k).into_iter().all(|terms| thin::alike(self.dtype, [m, n, terms], [rows, cols]))
        };
        let (row_pieces, rows) = thin::pieces(m, m.div_ceil(most), 1, |rows| is_alike(rows, n));
        let last_rows = m - (row_pieces - 1) * rows;
        let (col_pieces, cols) =
            thin::pieces(n, n.div_ceil(most), 1, |cols| is_alike(rows, cols) && is_alike(last_rows, cols));
        let pieces = batches * row_pieces * col_pieces;
        let panels = k.div_ceil(self.length);
        let serial = m.saturating_mul(n).saturating_mul(k).saturating_mul(batches) < serial;
        // Whole subtrees side by side, where there are few pieces.
        let subtree = match units / pieces.clamp(1, units) {
            _ if serial => panels,
            0 | 1 => panels,
            many => 1 << (panels / many).max(1).ilog2(),
        };
        let subtrees = panels.div_ceil(subtree);
        Path::ProductPanelPieces.take_if(pieces > batches);
        Path::ProductSubtrees.take_if(subtrees > 1);
        let bytes = rows * cols * self.size;
        let partial = Buffer::new((pieces * (subtrees - 1) * bytes).max(1))?;
        let partials = Shared(partial.pointer());
        let piece = |number: usize| {
            let (batch, rest) = (number / (row_pieces * col_pieces), number % (row_pieces * col_pieces));
            let (row, col) = (rest / col_pieces * rows, rest % col_pieces * cols);
            let whole = matrices(batch);
            whole.part(row..(row + rows).min(m), col..(col + cols).min(n), 0..k, self.size)
        };
        // The first subtree of a piece goes to the result, the others to places of their own.
        let place = |number: usize, of: &Matrices| match number % subtrees {
            0 => (of.out, of.out_row),
            other => (partials.at((number / subtrees * (subtrees - 1) + other - 1) * bytes), of.n as isize),
        };
        let unit = |number: usize| -> Result<()> {
            let of = piece(number / subtrees);
            let first = number % subtrees * subtree;
            let last = (first + subtree).min(panels);
            let (out, out_row) = place(number, &of);
            let depth = (last - first).next_power_of_two().ilog2() as usize;
            let scratch = Buffer::new((depth * of.m * of.n * self.size).max(1))?;
            // SAFETY: the matrices are a part of those that the caller gave; the buffer holds a matrix for
            // each of the `depth` levels of splits of so many panels.
            unsafe { self.tree(&Matrices { out, out_row, ..of }, first..last, scratch.pointer()) }
        };
        let units = pieces * subtrees;
        if serial {
            (0..units).try_for_each(unit)?;
        } else {
            pool::run_fallibly(units, &unit)?;
        }
        if subtrees > 1 {
            for number in 0..pieces {
                let of = piece(number);
                // SAFETY: `run_fallibly` or the loop above has computed every subtree to its place, and
                // no other thread uses them any more.
                unsafe { self.combine(&of, number * subtrees, 0..subtrees, &place) };
            }
        }
        Ok(())
    }

    /// The sum of the products of these panels, to the place of the result.
    ///
    /// # Safety
    /// Operands and result are valid; `scratch` holds a matrix for each level below.
    unsafe fn tree(&self, of: &Matrices, panels: Range<usize>, scratch: *mut u8) -> Result<()> {
        if panels.len() == 1 {
            let terms = panels.start * self.length..(panels.end * self.length).min(of.k);
            return (self.run)(&of.part(0..of.m, 0..of.n, terms, self.size), self.tuning);
        }
        let split = panels.start + middle(panels.len());
        let other = Matrices { out: scratch, out_row: of.n as isize, ..*of };
        let rest = scratch.wrapping_add(of.m * of.n * self.size);
        // SAFETY: operands and result are the caller's. The second half goes to the first matrix of
        // `scratch`, which the first half no longer needs when it is done; each half has at most one
        // level less than both, for which the matrices behind that one, or all of them, are enough.
        unsafe {
            self.tree(of, panels.start..split, scratch)?;
            self.tree(&other, split..panels.end, rest)?;
            (self.add)(of.m, of.n, scratch, of.n as isize, of.out, of.out_row);
        }
        Ok(())
    }

    /// Adds up subtrees in their places, which begin at number `first`.
    ///
    /// # Safety
    /// The places of these subtrees hold their sums, matrices as large as the result, that nobody else
    /// uses.
    unsafe fn combine(
        &self,
        of: &Matrices,
        first: usize,
        subtrees: Range<usize>,
        place: &impl Fn(usize, &Matrices) -> (*mut u8, isize),
    ) {
        if subtrees.len() == 1 {
            return;
        }
        let split = subtrees.start + middle(subtrees.len());
        let (to, to_row) = place(first + subtrees.start, of);
        let (from, from_row) = place(first + split, of);
        // SAFETY: the caller promises a matrix for each subtree of the range, and each half is a part of
        // the range; `place` gives different ones to different subtrees, so `from` and `to` are apart.
        unsafe {
            self.combine(of, first, subtrees.start..split, place);
            self.combine(of, first, split..subtrees.end, place);
            (self.add)(of.m, of.n, from, from_row, to, to_row);
        }
    }
}
