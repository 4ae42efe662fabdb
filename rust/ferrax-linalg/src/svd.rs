//! Singular values and singular vectors.
//!
//! By faer: reflections to bidiagonal form, then divide and conquer (Gu and Eisenstat, A
//! divide-and-conquer algorithm for the bidiagonal SVD, SIAM J. Matrix Anal. Appl. 16, 1995).

use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::svd::{self, ComputeSvdVectors, SvdParams};
use faer::{Auto, Mat, MatMut, MatRef, Par, Spec};

use crate::magnitude::{Real as _, exponent, shift};
use crate::{Element, Real, SingularVectors};

/// Columns of blocks that are no longer divided. Rotations take more time than conquering and leave
/// more rounding errors.
const UNDIVIDED: usize = 12;

pub(crate) fn svd<T: Element>(
    a: &[T],
    rows: usize,
    columns: usize,
    values: &mut [Real<T>],
    mut vectors: Option<SingularVectors<'_, T>>,
) {
    let matrix = MatRef::from_row_major_slice(a, rows, columns);
    let found = exponent(a.iter().copied()).and_then(|exponent| match shift::<T>(exponent) {
        0 => decomposed(matrix, values, vectors.as_mut()),
        by => {
            let scaled = Mat::from_fn(rows, columns, |row, column| matrix[(row, column)].scaled(by));
            decomposed(scaled.as_ref(), values, vectors.as_mut())?;
            values.iter_mut().for_each(|value| *value = value.times_power_of_two(-by));
            Some(())
        }
    });
    if found.is_none() {
        values.fill(T::UNKNOWN_REAL);
        if let Some(vectors) = vectors {
            vectors.left.fill(T::UNKNOWN);
            vectors.right.fill(T::UNKNOWN);
        }
    }
}

/// None where the iteration does not end.
fn decomposed<T: Element>(
    a: MatRef<'_, T>,
    values: &mut [Real<T>],
    vectors: Option<&mut SingularVectors<'_, T>>,
) -> Option<()> {
    let (rows, columns) = a.shape();
    let mut found = vec![T::zero_impl(); values.len()];
    let which = match &vectors {
        None => ComputeSvdVectors::No,
        Some(SingularVectors { full: true, .. }) => ComputeSvdVectors::Full,
        Some(_) => ComputeSvdVectors::Thin,
    };
    let mut params = <SvdParams as Auto<T>>::auto();
    // Without vectors there is nothing to rotate but the two diagonals, which is less than to conquer.
    params.recursion_threshold = if vectors.is_some() { UNDIVIDED } else { usize::MAX };
    let params: Spec<SvdParams, T> = params.into();
    let mut memory = MemBuffer::new(svd::svd_scratch::<T>(rows, columns, which, which, Par::Seq, params));
    let stack = MemStack::new(&mut memory);
    let diagonal = DiagMut::from_slice_mut(&mut found);
    match vectors {
        None => svd::svd(a, diagonal, None, None, Par::Seq, stack, params).ok()?,
        Some(vectors) => {
            let (left, right) =
                if vectors.full { (rows, columns) } else { (rows.min(columns), rows.min(columns)) };
            let (mut u, mut v) = (Mat::<T>::zeros(rows, left), Mat::<T>::zeros(columns, right));
            svd::svd(a, diagonal, Some(u.as_mut()), Some(v.as_mut()), Par::Seq, stack, params).ok()?;
            MatMut::from_row_major_slice_mut(vectors.left, rows, left).copy_from(u);
            MatMut::from_row_major_slice_mut(vectors.right, right, columns).copy_from(v.transpose());
            vectors.right.iter_mut().for_each(|x| *x = x.conjugate());
        }
    }
    for (value, found) in values.iter_mut().zip(found) {
        *value = found.real_part();
    }
    Some(())
}
