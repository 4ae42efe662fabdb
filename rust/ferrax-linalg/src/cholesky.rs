//! Triangular factors of positive definite matrices.
//!
//! By faer: blocks that are updated by products of those to their left.

use faer::Par;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor;

use crate::Element;
use crate::layout::{by_columns, by_rows};

/// The lower factor of one matrix, of which the lower triangle is read.
pub(crate) fn cholesky<T: Element>(a: &[T], size: usize, factors: &mut [T]) {
    let mut l = by_columns(a, size, size);
    for at in 0..size {
        // The diagonal is real, whatever its imaginary part holds.
        l[(at, at)] = T::from_real_impl(&l[(at, at)].real_part());
    }
    let scratch = factor::cholesky_in_place_scratch::<T>(size, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let found =
        factor::cholesky_in_place(l.as_mut(), Default::default(), Par::Seq, stack, Default::default());
    by_rows(l.as_ref(), factors);
    let definite = found.is_ok() && (0..size).all(|at| l[(at, at)].real_part() > T::zero_real());
    for row in 0..size {
        let (below, above) = factors[row * size..(row + 1) * size].split_at_mut(row + 1);
        above.fill(T::zero_impl());
        if !definite {
            below.fill(T::UNKNOWN);
        }
    }
}
