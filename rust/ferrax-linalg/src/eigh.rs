//! Eigenvalues and eigenvectors of Hermitian matrices.
//!
//! The matrix is made tridiagonal by reflections, in which squares of its elements occur. Between
//! off-diagonal elements that are as good as zero lie blocks of their own, whose eigenvalues need
//! not be of one magnitude. Each is scaled to elements of at most 1, for what the divide-and-conquer
//! method takes for zero is absolute. (Gu and Eisenstat, A divide-and-conquer algorithm for the
//! symmetric tridiagonal eigenproblem, SIAM J. Matrix Anal. Appl. 16, 1995.)

use faer::diag::{DiagMut, DiagRef};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::evd::{self, ComputeEigenvectors, SelfAdjointEvdParams, tridiag};
use faer::linalg::{householder, qr};
use faer::traits::{ComplexField, RealField};
use faer::{Auto, Conj, Mat, MatMut, Par, Spec};

use crate::magnitude::{Real as _, exponent, shift};
use crate::{Element, Real};

/// Rows of blocks that are no longer divided. Rotations take more time than conquering and leave
/// more rounding errors.
const UNDIVIDED: usize = 8;

pub(crate) fn eigh<T: Element>(a: &[T], size: usize, lower: bool, vectors: &mut [T], values: &mut [Real<T>]) {
    let mut whole = Mat::from_fn(size, size, |row, column| {
        let there = a[row * size + column];
        let mirrored = a[column * size + row].conjugate();
        if row == column {
            // The diagonal is real, whatever its imaginary part holds.
            T::from_real_impl(&there.real_part())
        } else if (row > column) == lower {
            there
        } else {
            mirrored
        }
    });
    let elements = (0..size).flat_map(|column| whole.col_as_slice(column).iter().copied());
    let found = exponent(elements).and_then(|exponent| {
        let by = shift::<T>(exponent);
        if by != 0 {
            scale(whole.as_mut(), by);
        }
        let found = eigen(&mut whole, values);
        if by != 0 {
            values.iter_mut().for_each(|value| *value = value.times_power_of_two(-by));
        }
        found
    });
    match found {
        Some(found) => MatMut::from_row_major_slice_mut(vectors, size, size).copy_from(found),
        None => {
            vectors.fill(T::UNKNOWN);
            values.fill(T::UNKNOWN_REAL);
        }
    }
}

fn scale<T: Element>(mut a: MatMut<'_, T>, by: i32) {
    for column in 0..a.ncols() {
        for row in 0..a.nrows() {
            a[(row, column)] = a[(row, column)].scaled(by);
        }
    }
}

fn params<R: RealField>() -> Spec<SelfAdjointEvdParams, R> {
    let mut params = <SelfAdjointEvdParams as Auto<R>>::auto();
    params.recursion_threshold = UNDIVIDED;
    params.into()
}

/// The eigenvectors, as columns, of a matrix whose elements are finite and not extreme, which is
/// overwritten. `None` where the iteration does not end.
fn eigen<T: Element>(a: &mut Mat<T>, values: &mut [Real<T>]) -> Option<Mat<T>> {
    let size = a.nrows();
    if size < 2 {
        values.iter_mut().for_each(|value| *value = a[(0, 0)].real_part());
        return Some(Mat::identity(size, size));
    }
    let block = qr::no_pivoting::factor::recommended_block_size::<T>(size, size);
    let mut reflections = Mat::<T>::zeros(block, size - 1);
    let scratch = StackReq::any_of(&[
        tridiag::tridiag_in_place_scratch::<T>(size, Par::Seq, Default::default()),
        evd::self_adjoint_evd_scratch::<Real<T>>(
            size,
            ComputeEigenvectors::Yes,
            Par::Seq,
            params::<Real<T>>(),
        ),
        householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<T>(
            size - 1,
            block,
            size,
        ),
    ]);
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    tridiag::tridiag_in_place(a.as_mut(), reflections.as_mut(), Par::Seq, stack, Default::default());

    let mut diagonal: Vec<Real<T>> = (0..size).map(|at| a[(at, at)].real_part()).collect();
    let beside: Vec<Real<T>> = (1..size).map(|at| T::abs_impl(&a[(at, at - 1)])).collect();
    let mut real = Mat::<Real<T>>::zeros(size, size);
    let mut start = 0;
    let mut blocks = 0;
    for end in 1..=size {
        if end == size || is_negligible::<T>(beside[end - 1], diagonal[end - 1], diagonal[end]) {
            let count = end - start;
            let within = &beside[start..end - 1];
            let vectors = real.as_mut().submatrix_mut(start, start, count, count);
            tridiagonal::<T>(&mut diagonal[start..end], within, vectors, stack)?;
            start = end;
            blocks += 1;
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    if blocks > 1 {
        order.sort_by(|&p, &q| diagonal[p].partial_cmp(&diagonal[q]).unwrap_or(std::cmp::Ordering::Equal));
    }

    // Off the diagonal stand absolute values above: the rows have the phases.
    let mut phases = vec![T::one_impl(); size];
    for at in 1..size {
        let turned = a[(at, at - 1)] * phases[at - 1];
        let length = T::abs_impl(&turned);
        if length > Real::<T>::zero_impl() {
            phases[at] = T::mul_real_impl(&turned, &Real::<T>::recip_impl(&length));
        }
    }
    let mut vectors =
        Mat::from_fn(size, size, |row, column| T::mul_real_impl(&phases[row], &real[(row, order[column])]));
    householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
        a.as_ref().submatrix(1, 0, size - 1, size - 1),
        reflections.as_ref(),
        Conj::No,
        vectors.as_mut().subrows_mut(1, size - 1),
        Par::Seq,
        stack,
    );
    for (value, &at) in values.iter_mut().zip(&order) {
        *value = diagonal[at];
    }
    Some(vectors)
}

/// Whether an off-diagonal element changes no eigenvalue by more than its rounding.
fn is_negligible<T: Element>(element: Real<T>, before: Real<T>, after: Real<T>) -> bool {
    let root = |x: Real<T>| Real::<T>::sqrt_impl(&Real::<T>::abs_impl(&x));
    element <= Real::<T>::epsilon_impl() * root(before) * root(after)
}

/// The eigenvalues, in place of the diagonal, and eigenvectors of a real symmetric tridiagonal matrix.
fn tridiagonal<T: Element>(
    diagonal: &mut [Real<T>],
    beside: &[Real<T>],
    mut vectors: MatMut<'_, Real<T>>,
    stack: &mut MemStack,
) -> Option<()> {
    if let [_] = diagonal {
        vectors[(0, 0)] = Real::<T>::one_impl();
        return Some(());
    }
    let by = -diagonal.iter().chain(beside).map(|x| (*x, x.exponent())).fold(None, larger).unwrap_or(0);
    let scaled = |x: &Real<T>| x.times_power_of_two(by);
    let given: Vec<Real<T>> = diagonal.iter().map(scaled).collect();
    let mut off: Vec<Real<T>> = beside.iter().map(scaled).collect();
    off.push(Real::<T>::zero_impl());
    evd::tridiagonal_self_adjoint_evd(
        DiagRef::from_slice(&given),
        DiagRef::from_slice(&off),
        DiagMut::from_slice_mut(diagonal),
        Some(vectors),
        Par::Seq,
        stack,
        params::<Real<T>>(),
    )
    .ok()?;
    diagonal.iter_mut().for_each(|value| *value = value.times_power_of_two(-by));
    Some(())
}

/// The larger exponent of numbers that are not zero.
fn larger<R: RealField>(found: Option<i32>, (x, exponent): (R, i32)) -> Option<i32> {
    if x == R::zero_impl() { found } else { Some(found.map_or(exponent, |found| found.max(exponent))) }
}
