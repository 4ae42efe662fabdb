//! Triangular systems, by faer: halves, with a product between them.

use faer::linalg::triangular_solve as solve;
use faer::{Conj, MatMut, MatRef, Par};

use crate::{Element, Triangle};

/// One system, whose right-hand side `x` is overwritten by the solution.
pub(crate) fn solve<T: Element>(how: &Triangle, a: &[T], x: &mut [T], rows: usize, columns: usize) {
    let size = if how.from_left { rows } else { columns };
    let a = MatRef::from_row_major_slice(a, size, size);
    let x = MatMut::from_row_major_slice_mut(x, rows, columns).as_dyn_stride_mut();
    // From the right, all is transposed.
    let turned = how.transposed == how.from_left;
    let a = if turned { a.transpose().as_dyn_stride() } else { a.as_dyn_stride() };
    let x = if how.from_left { x } else { x.transpose_mut() };
    let conj = if how.conjugated { Conj::Yes } else { Conj::No };
    match (how.lower != turned, how.unit) {
        (true, false) => solve::solve_lower_triangular_in_place_with_conj(a, conj, x, Par::Seq),
        (true, true) => solve::solve_unit_lower_triangular_in_place_with_conj(a, conj, x, Par::Seq),
        (false, false) => solve::solve_upper_triangular_in_place_with_conj(a, conj, x, Par::Seq),
        (false, true) => solve::solve_unit_upper_triangular_in_place_with_conj(a, conj, x, Par::Seq),
    }
}
