//! Householder's reflections, with LAPACK's signs and factors, and their products.
//!
//! `H = I - tau v v^H`; `k` of them are `I - V T V^H`, where `T` is upper triangular (Schreiber and Van
//! Loan, A storage-efficient WY representation for products of Householder transformations, SIAM J.
//! Sci. Stat. Comput. 10, 1989). The columns of a block are halved (Elmroth and Gustavson, Applying
//! recursion to serial and parallel QR factorization, IBM J. Res. Dev. 44, 2000).

use faer::linalg::matmul::matmul_with_conj;
use faer::linalg::matmul::triangular::{BlockStructure, matmul_with_conj as triangular};
use faer::traits::{ComplexField, RealField};
use faer::{Accum, ColMut, Conj, Mat, MatMut, MatRef, Par};

use crate::layout::{by_columns, by_rows};
use crate::magnitude::Real as _;
use crate::{Element, Real, Side};

/// Columns that are triangularised before those to the right of them change.
const BLOCK: usize = 32;

/// The reflection that makes a column a multiple of the first unit vector: `tau` and that multiple. The
/// rest of `v` takes the place of the column's.
pub(crate) fn reflection<T: Element>(x: ColMut<'_, T>) -> (T, T) {
    let (mut first, mut rest) = x.split_at_row_mut(1);
    let (re, im) = first[0].parts();
    let zero = Real::<T>::zero_impl();
    let length = rest.norm_l2();
    if length == zero && im == zero {
        return (T::zero_impl(), first[0]);
    }
    let whole = re.hypot(im).hypot(length);
    let by = if whole < Real::<T>::least_inverted() { Real::<T>::BOUND } else { 0 };
    if by != 0 {
        // The inverse of the difference below would not be a number.
        first[0] = first[0].scaled(by);
        (0..rest.nrows()).for_each(|row| rest[row] = rest[row].scaled(by));
    }
    let (re, im) = first[0].parts();
    let multiple = -re.hypot(im).hypot(rest.norm_l2()).with_sign_of(re);
    let inverse = T::recip_impl(&(first[0] - T::from_real_impl(&multiple)));
    (0..rest.nrows()).for_each(|row| rest[row] *= inverse);
    let tau = T::of_parts((multiple - re) / multiple, -im / multiple);
    (tau, T::from_real_impl(&multiple.times_power_of_two(-by)))
}

/// Triangularises at least as many rows as columns; `t` becomes `T`.
fn factor<T: Element>(mut a: MatMut<'_, T>, taus: &mut [T], mut t: MatMut<'_, T>) {
    let columns = a.ncols();
    if columns == 1 {
        let (tau, multiple) = reflection(a.as_mut().col_mut(0));
        a[(0, 0)] = multiple;
        t[(0, 0)] = tau;
        taus[0] = tau;
        return;
    }
    let half = columns / 2;
    let (mut left, mut right) = a.split_at_col_mut(half);
    let (mut first, corner, _, mut second) = t.split_at_mut(half, half);
    let (before, after) = taus.split_at_mut(half);
    factor(left.as_mut(), before, first.as_mut());
    apply(left.as_ref(), first.as_ref(), true, right.as_mut());
    let mut lower = right.subrows_mut(half, left.nrows() - half);
    factor(lower.as_mut(), after, second.as_mut());
    // T12 = -T11 (V1^H V2) T22
    let v1 = left.as_ref().subrows(half, left.nrows() - half);
    let v2 = lower.as_ref();
    let rest = columns - half;
    let mut inner = Mat::<T>::zeros(half, rest);
    unit_times(inner.as_mut(), v2.subrows(0, rest), v1.subrows(0, rest));
    let (below1, below2) = (v1.subrows(rest, v1.nrows() - rest), v2.subrows(rest, v2.nrows() - rest));
    let one = T::one_impl();
    matmul_with_conj(
        inner.as_mut(),
        Accum::Add,
        below1.transpose(),
        Conj::Yes,
        below2,
        Conj::No,
        one,
        Par::Seq,
    );
    let mut half_way = Mat::<T>::zeros(half, rest);
    triangular_times(half_way.as_mut(), first.as_ref(), false, inner.as_ref());
    triangular(
        corner,
        BlockStructure::Rectangular,
        Accum::Replace,
        half_way.as_ref(),
        BlockStructure::Rectangular,
        Conj::No,
        second.as_ref(),
        BlockStructure::TriangularUpper,
        Conj::No,
        -one,
        Par::Seq,
    );
}

/// `to = other^H v` where `v` is lower triangular with ones on the diagonal.
fn unit_times<T: Element>(to: MatMut<'_, T>, v: MatRef<'_, T>, other: MatRef<'_, T>) {
    triangular(
        to,
        BlockStructure::Rectangular,
        Accum::Replace,
        other.transpose(),
        BlockStructure::Rectangular,
        Conj::Yes,
        v,
        BlockStructure::UnitTriangularLower,
        Conj::No,
        T::one_impl(),
        Par::Seq,
    );
}

/// `to = t x`, or `t^H x`, where `t` is upper triangular.
fn triangular_times<T: Element>(to: MatMut<'_, T>, t: MatRef<'_, T>, adjoint: bool, x: MatRef<'_, T>) {
    let (t, structure, conj) = match adjoint {
        true => (t.transpose(), BlockStructure::TriangularLower, Conj::Yes),
        false => (t, BlockStructure::TriangularUpper, Conj::No),
    };
    triangular(
        to,
        BlockStructure::Rectangular,
        Accum::Replace,
        t,
        structure,
        conj,
        x,
        BlockStructure::Rectangular,
        Conj::No,
        T::one_impl(),
        Par::Seq,
    );
}

/// `c` becomes `(I - V T V^H) c`, or with `T^H`; `v` holds `V` below its diagonal.
fn apply<T: Element>(v: MatRef<'_, T>, t: MatRef<'_, T>, adjoint: bool, c: MatMut<'_, T>) {
    let (count, columns) = (v.ncols(), c.ncols());
    let (one, whole) = (T::one_impl(), BlockStructure::Rectangular);
    let (upper, below) = v.split_at_row(count);
    let (mut top, mut rest) = c.split_at_row_mut(count);
    let mut along = Mat::<T>::zeros(count, columns);
    triangular(
        along.as_mut(),
        whole,
        Accum::Replace,
        upper.transpose(),
        BlockStructure::UnitTriangularUpper,
        Conj::Yes,
        top.as_ref(),
        whole,
        Conj::No,
        one,
        Par::Seq,
    );
    matmul_with_conj(
        along.as_mut(),
        Accum::Add,
        below.transpose(),
        Conj::Yes,
        rest.as_ref(),
        Conj::No,
        one,
        Par::Seq,
    );
    let mut turned = Mat::<T>::zeros(count, columns);
    triangular_times(turned.as_mut(), t, adjoint, along.as_ref());
    matmul_with_conj(rest.as_mut(), Accum::Add, below, Conj::No, turned.as_ref(), Conj::No, -one, Par::Seq);
    triangular(
        top.as_mut(),
        whole,
        Accum::Add,
        upper,
        BlockStructure::UnitTriangularLower,
        Conj::No,
        turned.as_ref(),
        whole,
        Conj::No,
        -one,
        Par::Seq,
    );
}

/// `R` and the reflections of one matrix.
pub(crate) fn geqrf<T: Element>(a: &[T], rows: usize, columns: usize, packed: &mut [T], taus: &mut [T]) {
    let mut whole = by_columns(a, rows, columns);
    let least = rows.min(columns);
    let mut t = Mat::<T>::zeros(BLOCK, BLOCK);
    for start in (0..least).step_by(BLOCK) {
        let count = BLOCK.min(least - start);
        let (left, right) = whole.as_mut().split_at_col_mut(start + count);
        let mut block = left.submatrix_mut(start, start, rows - start, count);
        let mut t = t.as_mut().submatrix_mut(0, 0, count, count);
        factor(block.as_mut(), &mut taus[start..start + count], t.as_mut());
        if right.ncols() > 0 {
            apply(block.as_ref(), t.as_ref(), true, right.subrows_mut(start, rows - start));
        }
    }
    by_rows(whole.as_ref(), packed);
}

/// As `geqrf`, with columns of largest rest first. `order` holds the numbers of columns from 1, and
/// before that what is not 0 for those that come first in any case.
pub(crate) fn geqp3<T: Element>(
    a: &[T],
    rows: usize,
    columns: usize,
    packed: &mut [T],
    order: &mut [i32],
    taus: &mut [T],
) {
    let mut whole = by_columns(a, rows, columns);
    let mut fixed = 0;
    let given: Vec<bool> = order.iter().map(|&number| number != 0).collect();
    order.iter_mut().zip(1..).for_each(|(number, at)| *number = at);
    for (column, &first) in given.iter().enumerate() {
        if first {
            swap_columns(whole.as_mut(), order, column, fixed);
            fixed += 1;
        }
    }
    let mut t = Mat::<T>::zeros(1, 1);
    for step in 0..rows.min(columns) {
        if step >= fixed {
            let mut most = step;
            let mut longest = whole.as_ref().col(step).subrows(step, rows - step).norm_l2();
            for column in step + 1..columns {
                let length = whole.as_ref().col(column).subrows(step, rows - step).norm_l2();
                // Columns as long as each other, but for rounding, stay in their order.
                if length
                    > longest * (Real::<T>::one_impl() + Real::<T>::epsilon_impl().times_power_of_two(3))
                {
                    (most, longest) = (column, length);
                }
            }
            swap_columns(whole.as_mut(), order, step, most);
        }
        let (left, right) = whole.as_mut().split_at_col_mut(step + 1);
        let mut column = left.submatrix_mut(step, step, rows - step, 1);
        factor(column.as_mut(), &mut taus[step..=step], t.as_mut());
        if right.ncols() > 0 {
            apply(column.as_ref(), t.as_ref(), true, right.subrows_mut(step, rows - step));
        }
    }
    by_rows(whole.as_ref(), packed);
}

fn swap_columns<T: Element>(a: MatMut<'_, T>, order: &mut [i32], p: usize, q: usize) {
    if p != q {
        let (x, y) = a.two_cols_mut(p, q);
        faer::zip!(x, y).for_each(|faer::unzip!(x, y)| std::mem::swap(x, y));
        order.swap(p, q);
    }
}

/// `T` of reflections whose vectors are below the diagonal of `v`.
fn accumulated<T: Element>(v: MatRef<'_, T>, taus: &[T]) -> Mat<T> {
    let count = taus.len();
    let (upper, below) = v.split_at_row(count);
    let (one, zero) = (T::one_impl(), T::zero_impl());
    let unit = Mat::from_fn(count, count, |row, column| match row.cmp(&column) {
        std::cmp::Ordering::Greater => upper[(row, column)],
        std::cmp::Ordering::Equal => one,
        std::cmp::Ordering::Less => zero,
    });
    let mut gram = Mat::<T>::zeros(count, count);
    matmul_with_conj(
        gram.as_mut(),
        Accum::Replace,
        unit.transpose(),
        Conj::Yes,
        &unit,
        Conj::No,
        one,
        Par::Seq,
    );
    matmul_with_conj(gram.as_mut(), Accum::Add, below.transpose(), Conj::Yes, below, Conj::No, one, Par::Seq);
    let mut t = Mat::<T>::zeros(count, count);
    for column in 0..count {
        for row in 0..column {
            let sum = (row..column).fold(zero, |sum, at| sum + t[(row, at)] * gram[(at, column)]);
            t[(row, column)] = -(taus[column] * sum);
        }
        t[(column, column)] = taus[column];
    }
    t
}

/// `c` becomes `Q c`, or `Q^H c`. Blocks of `c` above and left of where `c` still is the identity matrix
/// are not touched if `unit`.
pub(crate) fn multiply<T: Element>(
    v: MatRef<'_, T>,
    taus: &[T],
    adjoint: bool,
    unit: bool,
    mut c: MatMut<'_, T>,
) {
    let rows = v.nrows();
    let blocks = taus.len().div_ceil(BLOCK);
    for number in 0..blocks {
        let start = BLOCK * if adjoint { number } else { blocks - 1 - number };
        let count = BLOCK.min(taus.len() - start);
        let block = v.submatrix(start, start, rows - start, count);
        let t = accumulated(block, &taus[start..start + count]);
        let first = if unit { start } else { 0 };
        let columns = c.ncols() - first;
        apply(block, t.as_ref(), adjoint, c.as_mut().submatrix_mut(start, first, rows - start, columns));
    }
}

/// The first columns of the product of reflections.
pub(crate) fn householder_product<T: Element>(a: &[T], taus: &[T], rows: usize, columns: usize, q: &mut [T]) {
    let v = by_columns(a, rows, columns);
    let mut c = Mat::<T>::identity(rows, columns);
    multiply(v.as_ref(), taus, false, true, c.as_mut());
    by_rows(c.as_ref(), q);
}

/// `c` becomes `Q c` or `c Q`, or that of the adjoint.
pub(crate) fn ormqr<T: Element>(side: Side, a: &[T], taus: &[T], columns: usize, others: usize, c: &mut [T]) {
    let rows = a.len() / columns.max(1);
    let v = by_columns(a, rows, columns);
    if side.left {
        let mut x = by_columns(c, rows, others);
        multiply(v.as_ref(), taus, side.adjoint, false, x.as_mut());
        return by_rows(x.as_ref(), c);
    }
    // c Q = (Q^H c^H)^H
    let mut x = Mat::from_fn(rows, others, |row, other| c[other * rows + row].conjugate());
    multiply(v.as_ref(), taus, !side.adjoint, false, x.as_mut());
    for other in 0..others {
        for row in 0..rows {
            c[other * rows + row] = x[(row, other)].conjugate();
        }
    }
}
