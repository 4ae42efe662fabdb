//! Hessenberg's and tridiagonal form, by reflections from both sides, in LAPACK's places.
//!
//! Golub and Van Loan, Matrix Computations, 4th ed., sections 7.4.3 and 8.3.1.

use faer::linalg::matmul::matmul_with_conj;
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};

use crate::layout::{by_columns, by_rows};
use crate::reflections::reflection;
use crate::{Element, Tridiagonal};

/// A reflection's vector as a column, whose first element is 1.
fn vector<T: Element>(below: MatRef<'_, T>) -> Mat<T> {
    Mat::from_fn(below.nrows() + 1, 1, |row, _| if row == 0 { T::one_impl() } else { below[(row - 1, 0)] })
}

/// `c -= v (tau (v^H c))`.
fn from_left<T: Element>(v: MatRef<'_, T>, tau: T, mut c: MatMut<'_, T>) {
    let mut along = Mat::<T>::zeros(1, c.ncols());
    matmul_with_conj(
        along.as_mut(),
        Accum::Replace,
        v.transpose(),
        Conj::Yes,
        c.as_ref(),
        Conj::No,
        tau,
        Par::Seq,
    );
    matmul_with_conj(c.as_mut(), Accum::Add, v, Conj::No, along.as_ref(), Conj::No, -T::one_impl(), Par::Seq);
}

/// `c -= (tau (c v)) v^H`.
fn from_right<T: Element>(v: MatRef<'_, T>, tau: T, mut c: MatMut<'_, T>) {
    let mut along = Mat::<T>::zeros(c.nrows(), 1);
    matmul_with_conj(along.as_mut(), Accum::Replace, c.as_ref(), Conj::No, v, Conj::No, tau, Par::Seq);
    matmul_with_conj(
        c.as_mut(),
        Accum::Add,
        along.as_ref(),
        Conj::No,
        v.transpose(),
        Conj::Yes,
        -T::one_impl(),
        Par::Seq,
    );
}

/// `H` of `a = Q H Q^H` in place, with the reflections below it.
pub(crate) fn reduce<T: Element>(mut a: MatMut<'_, T>, taus: &mut [T]) {
    let size = a.nrows();
    for (step, to) in taus.iter_mut().enumerate().take(size.saturating_sub(1)) {
        let (left, right) = a.as_mut().split_at_col_mut(step + 1);
        let mut column = left.submatrix_mut(step + 1, step, size - step - 1, 1);
        let (tau, multiple) = reflection(column.as_mut().col_mut(0));
        column[(0, 0)] = multiple;
        *to = tau;
        let v = vector(column.as_ref().subrows(1, size - step - 2));
        let mut right = right;
        from_right(v.as_ref(), tau, right.as_mut());
        from_left(v.as_ref(), tau.conjugate(), right.subrows_mut(step + 1, size - step - 1));
    }
}

pub(crate) fn hessenberg<T: Element>(a: &[T], size: usize, packed: &mut [T], taus: &mut [T]) {
    let mut whole = by_columns(a, size, size);
    reduce(whole.as_mut(), taus);
    by_rows(whole.as_ref(), packed);
}

/// `a = Q T Q^H` of a Hermitian matrix of which one triangle is read: the reflections in that triangle,
/// the diagonal, what is beside it, and the reflections' factors.
pub(crate) fn tridiagonal<T: Element>(a: &[T], size: usize, lower: bool, out: Tridiagonal<'_, T>) {
    let Tridiagonal { packed, diagonal, beside, taus } = out;
    packed.copy_from_slice(a);
    // The upper triangle is the lower one of rows and columns in reverse.
    let place = |at: usize| if lower { at } else { size - 1 - at };
    let index = |row: usize, column: usize| place(row) * size + place(column);
    let mut whole = Mat::from_fn(size, size, |row, column| match row.cmp(&column) {
        std::cmp::Ordering::Greater => a[index(row, column)],
        std::cmp::Ordering::Equal => T::from_real_impl(&a[index(row, column)].real_part()),
        std::cmp::Ordering::Less => a[index(column, row)].conjugate(),
    });
    let one = T::one_impl();
    for step in 0..size {
        let to = place(step);
        diagonal[to] = whole[(step, step)].real_part();
        packed[index(step, step)] = T::from_real_impl(&diagonal[to]);
        if step + 1 == size {
            break;
        }
        let rest = size - step - 1;
        let (tau, multiple) = {
            let column = whole.as_mut().submatrix_mut(step + 1, step, rest, 1);
            reflection(column.col_mut(0))
        };
        let number = if lower { step } else { size - 2 - step };
        beside[number] = multiple.real_part();
        taus[number] = tau;
        packed[index(step + 1, step)] = multiple;
        for row in step + 2..size {
            packed[index(row, step)] = whole[(row, step)];
        }
        let v = vector(whole.as_ref().submatrix(step + 2, step, rest - 1, 1));
        let mut trailing = whole.as_mut().submatrix_mut(step + 1, step + 1, rest, rest);
        // H^H A H = A - v w^H - w v^H with x = tau A v and w = x - (tau / 2) (x^H v) v.
        let mut w = Mat::<T>::zeros(rest, 1);
        matmul_with_conj(
            w.as_mut(),
            Accum::Replace,
            trailing.as_ref(),
            Conj::No,
            v.as_ref(),
            Conj::No,
            tau,
            Par::Seq,
        );
        let inner = (0..rest).fold(T::zero_impl(), |sum, row| sum + w[(row, 0)].conjugate() * v[(row, 0)]);
        let by = tau.scaled(-1) * inner;
        for row in 0..rest {
            w[(row, 0)] -= by * v[(row, 0)];
        }
        for (x, y) in [(&v, &w), (&w, &v)] {
            matmul_with_conj(
                trailing.as_mut(),
                Accum::Add,
                x.as_ref(),
                Conj::No,
                y.transpose(),
                Conj::Yes,
                -one,
                Par::Seq,
            );
        }
    }
}
