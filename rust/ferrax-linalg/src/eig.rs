//! Eigenvalues and eigenvectors of matrices of any kind, by Schur's form and substitution in it.
//!
//! Golub and Van Loan, Matrix Computations, 4th ed., section 7.6. Vectors have length 1, and those of
//! complex numbers a real element of largest absolute value, as LAPACK has them.

use faer::linalg::matmul::matmul;
use faer::traits::ComplexField;
use faer::{Accum, Mat, MatMut, Par};

use crate::layout::{by_columns, by_rows};
use crate::magnitude::{Real as Number, exponent, shift};
use crate::{Element, Real, Scalar, hessenberg, reflections};

/// Where Schur's form and its vectors are computed: by rows, for matrices that are finite.
pub(crate) fn schur<T: Element>(
    a: &[T],
    size: usize,
    iterate: fn(MatMut<'_, T>, MatMut<'_, T>) -> Option<()>,
) -> Option<(Mat<T>, Mat<T>)> {
    let by = shift::<T>(exponent(a.iter().copied())?);
    let mut h = by_columns(a, size, size);
    if by != 0 {
        scale(h.as_mut(), by);
    }
    let mut taus = vec![T::zero_impl(); size.saturating_sub(1)];
    hessenberg::reduce(h.as_mut(), &mut taus);
    let mut z = Mat::<T>::identity(size, size);
    if size > 1 {
        let reflections = h.as_ref().submatrix(1, 0, size - 1, size - 1);
        let rest = z.as_mut().submatrix_mut(1, 1, size - 1, size - 1);
        reflections::multiply(reflections, &taus, false, true, rest);
    }
    for column in 0..size {
        for row in column + 2..size {
            h[(row, column)] = T::zero_impl();
        }
    }
    iterate(h.as_mut(), z.as_mut())?;
    if by != 0 {
        scale(h.as_mut(), -by);
    }
    Some((h, z))
}

fn scale<T: Element>(mut a: MatMut<'_, T>, by: i32) {
    for column in 0..a.ncols() {
        for row in 0..a.nrows() {
            a[(row, column)] = a[(row, column)].scaled(by);
        }
    }
}

/// The form and, where they are asked for, the vectors; NaN for a matrix that is not finite and where the
/// iteration does not end.
pub(crate) fn schur_of<T: Element>(
    a: &[T],
    size: usize,
    iterate: fn(MatMut<'_, T>, MatMut<'_, T>) -> Option<()>,
    form: &mut [T],
    vectors: Option<&mut [T]>,
) {
    match schur(a, size, iterate) {
        Some((h, z)) => {
            by_rows(h.as_ref(), form);
            if let Some(vectors) = vectors {
                by_rows(z.as_ref(), vectors);
            }
        }
        None => {
            form.fill(T::UNKNOWN);
            if let Some(vectors) = vectors {
                vectors.fill(T::UNKNOWN);
            }
        }
    }
}

/// Eigenvalues and vectors that are asked for. `C` are the complex numbers of `T`'s parts.
pub(crate) fn eig<T: Element, C: Element + Scalar<Real = Real<T>>>(
    a: &[T],
    size: usize,
    iterate: fn(MatMut<'_, T>, MatMut<'_, T>) -> Option<()>,
    values: &mut [C],
    left: Option<&mut [C]>,
    right: Option<&mut [C]>,
) {
    let Some((h, z)) = schur(a, size, iterate) else {
        values.fill(C::UNKNOWN);
        left.into_iter().chain(right).for_each(|vectors| vectors.fill(C::UNKNOWN));
        return;
    };
    let complex = |x: T| {
        let (re, im) = x.parts();
        C::of_parts(re, im)
    };
    let form = Mat::from_fn(size, size, |row, column| complex(h[(row, column)]));
    // Whether the row and the next one are a pair of complex eigenvalues.
    let zero = Real::<T>::zero_impl();
    let pair = |row: usize| T::IS_REAL && row + 1 < size && h[(row + 1, row)] != T::zero_impl();
    let mut row = 0;
    while row < size {
        if pair(row) {
            let (above, below) = (form[(row, row + 1)].parts().0, form[(row + 1, row)].parts().0);
            let im = above.size().root() * below.size().root();
            let re = form[(row, row)].parts().0;
            values[row] = C::of_parts(re, im);
            values[row + 1] = C::of_parts(re, -im);
            row += 2;
        } else {
            values[row] = form[(row, row)];
            row += 1;
        }
    }
    let z = Mat::from_fn(size, size, |row, column| complex(z[(row, column)]));
    let largest = form.as_ref().norm_max();
    let least = (largest * Real::<T>::unit()).largest(Real::<T>::least_inverted());
    for (vectors, is_left) in [(left, true), (right, false)] {
        let Some(vectors) = vectors else { continue };
        let mut x = Mat::<C>::zeros(size, size);
        let mut column = 0;
        while column < size {
            let own = values[column];
            let both = pair(column);
            let mut v = vec![C::zero_impl(); size];
            let (first, last) = (column, if both { column + 1 } else { column });
            v[column] = C::one_impl();
            if both {
                // (T11 - w) v1 + T12 v2 = 0; from the left the adjoint's elements, of the conjugate.
                let (_, im) = own.parts();
                let (by, im) = match is_left {
                    false => (form[(column, column + 1)].parts().0, im),
                    true => (form[(column + 1, column)].parts().0, -im),
                };
                v[column + 1] = C::of_parts(zero, im / by);
            }
            if is_left {
                substitute_left(&form, own.conjugate(), last + 1, &mut v, &pair, least);
            } else {
                substitute_right(&form, own, first, &mut v, &pair, least);
            }
            for (row, value) in v.iter().enumerate() {
                x[(row, column)] = *value;
            }
            if both {
                for (row, value) in v.iter().enumerate() {
                    x[(row, column + 1)] = value.conjugate();
                }
            }
            column += if both { 2 } else { 1 };
        }
        let mut whole = Mat::<C>::zeros(size, size);
        matmul(whole.as_mut(), Accum::Replace, &z, &x, C::one_impl(), Par::Seq);
        for (column, value) in values.iter().enumerate().take(size) {
            normalise(
                whole.as_mut().submatrix_mut(0, column, size, 1),
                T::IS_REAL && value.parts().1 == zero,
            );
        }
        by_rows(whole.as_ref(), vectors);
    }
}

/// Length 1, and unless `real` a real element of largest absolute value.
fn normalise<C: Element>(mut v: MatMut<'_, C>, real: bool) {
    let length = v.norm_l2();
    let mut most = 0;
    for row in 1..v.nrows() {
        if C::abs_impl(&v[(row, 0)]) > C::abs_impl(&v[(most, 0)]) {
            most = row;
        }
    }
    let largest = v[(most, 0)];
    let size = C::abs_impl(&largest);
    let phase = if real { C::one_impl() } else { largest.conjugate().quotient(C::from_real_impl(&size)) };
    for row in 0..v.nrows() {
        v[(row, 0)] = v[(row, 0)].quotient(C::from_real_impl(&length)) * phase;
    }
    if !real {
        v[(most, 0)] = C::from_real_impl(&v[(most, 0)].parts().0);
    }
}

/// `x` at least as far from zero as `least`.
fn apart<C: Element>(x: C, least: Real<C>) -> C {
    if x.size() < least { C::from_real_impl(&least) } else { x }
}

/// The solution of two equations.
fn two<C: Element>(m: [C; 4], b: [C; 2], least: Real<C>) -> [C; 2] {
    let det = apart(m[0] * m[3] - m[1] * m[2], least * least);
    [(b[0] * m[3] - m[1] * b[1]).quotient(det), (m[0] * b[1] - m[2] * b[0]).quotient(det)]
}

/// Keeps numbers in range: vectors are known but for a factor.
fn shrink<C: Element>(v: &mut [C], x: Real<C>) {
    if x.exponent() > Real::<C>::BOUND / 2 {
        let by = -x.exponent();
        v.iter_mut().for_each(|x| *x = x.scaled(by));
    }
}

/// The elements before `first` of `v` with `(form - value) v = 0`.
fn substitute_right<C: Element>(
    form: &Mat<C>,
    value: C,
    first: usize,
    v: &mut [C],
    pair: &dyn Fn(usize) -> bool,
    least: Real<C>,
) {
    let size = v.len();
    let known = (first..size).take_while(|&at| v[at] != C::zero_impl()).count();
    let mut rest: Vec<C> = (0..first)
        .map(|row| (first..first + known).fold(C::zero_impl(), |sum, at| sum - form[(row, at)] * v[at]))
        .collect();
    let mut end = first;
    while end > 0 {
        let row = end - 1;
        let both = row > 0 && pair(row - 1);
        let start = if both { row - 1 } else { row };
        if both {
            let m = [
                form[(start, start)] - value,
                form[(start, row)],
                form[(row, start)],
                form[(row, row)] - value,
            ];
            let [x, y] = two(m, [rest[start], rest[row]], least);
            (v[start], v[row]) = (x, y);
        } else {
            v[row] = rest[row].quotient(apart(form[(row, row)] - value, least));
        }
        for (at, &by) in v.iter().enumerate().take(end).skip(start) {
            let column = form.col_as_slice(at);
            for (rest, &x) in rest[..start].iter_mut().zip(column) {
                *rest -= x * by;
            }
        }
        let most = v[start..end]
            .iter()
            .fold(C::zero_real(), |most, x| if x.size() > most { x.size() } else { most });
        if most.exponent() > Real::<C>::BOUND / 2 {
            let by = -most.exponent();
            rest.iter_mut().for_each(|x| *x = x.scaled(by));
            shrink(v, most);
        }
        end = start;
    }
}

/// The elements from `first` on of `v` with `(form^H - value) v = 0`.
fn substitute_left<C: Element>(
    form: &Mat<C>,
    value: C,
    first: usize,
    v: &mut [C],
    pair: &dyn Fn(usize) -> bool,
    least: Real<C>,
) {
    let size = v.len();
    let mut row = first;
    while row < size {
        let both = pair(row);
        let count = if both { 2 } else { 1 };
        let sum = |at: usize, v: &[C]| {
            let column = form.col_as_slice(at);
            v[..row].iter().zip(column).fold(C::zero_impl(), |sum, (&v, &x)| sum - x.conjugate() * v)
        };
        if both {
            let b = [sum(row, v), sum(row + 1, v)];
            let m = [
                form[(row, row)].conjugate() - value,
                form[(row + 1, row)].conjugate(),
                form[(row, row + 1)].conjugate(),
                form[(row + 1, row + 1)].conjugate() - value,
            ];
            [v[row], v[row + 1]] = two(m, b, least);
        } else {
            v[row] = sum(row, v).quotient(apart(form[(row, row)].conjugate() - value, least));
        }
        let most = v[row..row + count]
            .iter()
            .fold(C::zero_real(), |most, x| if x.size() > most { x.size() } else { most });
        shrink(v, most);
        row += count;
    }
}
