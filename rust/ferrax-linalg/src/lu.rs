//! Gauss' elimination with exchanges of rows, by halves of the columns.
//!
//! Toledo, Locality of reference in LU decomposition with partial pivoting, SIAM J. Matrix Anal. Appl.
//! 18, 1997. Pivots are LAPACK's: the first element of largest absolute value, for a complex number
//! that of its parts added.

use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::solve_unit_lower_triangular_in_place;
use faer::{Accum, MatMut, Par};

use crate::layout::{by_columns, by_rows};
use crate::vector::vectorised;
use crate::{Element, Factored};

/// Columns that are no longer halved.
const WHOLE: usize = 8;

/// Of one matrix.
pub(crate) fn lu<T: Element>(a: &[T], rows: usize, columns: usize, out: Factored<'_, T>) {
    let mut whole = by_columns(a, rows, columns);
    let least = rows.min(columns);
    let (mut left, mut right) = whole.as_mut().split_at_col_mut(least);
    factor(left.as_mut(), out.pivots);
    if columns > least {
        exchange(right.as_mut(), out.pivots);
        solve_unit_lower_triangular_in_place(left.as_ref(), right, Par::Seq);
    }
    by_rows(whole.as_ref(), out.factors);
    order(out.pivots, out.order);
}

/// The rows in their last order.
pub(crate) fn order(pivots: &[i32], order: &mut [i32]) {
    for (at, place) in order.iter_mut().enumerate() {
        *place = at as i32;
    }
    for (at, &pivot) in pivots.iter().enumerate() {
        order.swap(at, pivot as usize);
    }
}

/// Exchanges rows in the order of the pivots.
fn exchange<T: Element>(mut a: MatMut<'_, T>, pivots: &[i32]) {
    for column in 0..a.ncols() {
        let Some(line) = a.as_mut().col_mut(column).try_as_col_major_mut() else { continue };
        let line = line.as_slice_mut();
        for (at, &pivot) in pivots.iter().enumerate() {
            line.swap(at, pivot as usize);
        }
    }
}

/// At least as many rows as columns, in columns that are dense.
fn factor<T: Element>(mut a: MatMut<'_, T>, pivots: &mut [i32]) {
    let columns = a.ncols();
    if columns <= WHOLE {
        return eliminate(a, pivots);
    }
    let half = (columns / 2).next_multiple_of(WHOLE).min(columns - 1);
    let (first, second) = pivots.split_at_mut(half);
    {
        let (mut left, mut right) = a.as_mut().split_at_col_mut(half);
        factor(left.as_mut(), first);
        exchange(right.as_mut(), first);
        let (upper, below) = left.as_ref().split_at_row(half);
        let (mut top, mut rest) = right.split_at_row_mut(half);
        solve_unit_lower_triangular_in_place(upper, top.as_mut(), Par::Seq);
        matmul(rest.as_mut(), Accum::Add, below, top.as_ref(), -T::one_impl(), Par::Seq);
        factor(rest, second);
    }
    let rows = a.nrows();
    exchange(a.submatrix_mut(half, 0, rows - half, half), second);
    second.iter_mut().for_each(|pivot| *pivot += half as i32);
}

fn eliminate<T: Element>(mut a: MatMut<'_, T>, pivots: &mut [i32]) {
    let columns = a.ncols();
    for step in 0..columns {
        let mut pivot = step;
        let mut most = a[(step, step)].size();
        for row in step + 1..a.nrows() {
            let size = a[(row, step)].size();
            if size > most {
                (pivot, most) = (row, size);
            }
        }
        pivots[step] = pivot as i32;
        if most == T::zero_real() {
            continue;
        }
        if pivot != step {
            for column in 0..columns {
                let (x, y) = (a[(step, column)], a[(pivot, column)]);
                a[(step, column)] = y;
                a[(pivot, column)] = x;
            }
        }
        let (left, right) = a.as_mut().split_at_col_mut(step + 1);
        let factors = left.col_mut(step).split_at_row_mut(step + 1);
        let top = factors.0[step];
        let Some(factors) = factors.1.try_as_col_major_mut() else { continue };
        let factors = factors.as_slice_mut();
        if most >= T::least_inverted() {
            let inverse = T::recip_impl(&top);
            factors.iter_mut().for_each(|x| *x *= inverse);
        } else {
            factors.iter_mut().for_each(|x| *x = x.quotient(top));
        }
        subtract(factors, right, step);
    }
}

/// Takes products of the factors with row `step` from the rows below it.
fn subtract<T: Element>(factors: &[T], mut right: MatMut<'_, T>, step: usize) {
    vectorised(
        #[inline(always)]
        || {
            for column in 0..right.ncols() {
                let Some(line) = right.as_mut().col_mut(column).try_as_col_major_mut() else { continue };
                let (top, rest) = line.as_slice_mut().split_at_mut(step + 1);
                let by = top[step];
                for (x, &factor) in rest.iter_mut().zip(factors) {
                    *x -= factor * by;
                }
            }
        },
    );
}
