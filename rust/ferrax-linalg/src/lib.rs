//! Decompositions of one dense matrix, by faer, for the kernels of the CPU backend.
//!
//! Matrices are slices, row by row. The crate is one of its own because faer is generic: its code is
//! made where it is used, which takes longer than the rest of the backend.
//!
//! A matrix with an element that is not finite, and one for which the iteration does not end, gives
//! NaN, as LAPACK's callers have it.

use faer::traits::ComplexField;
use faer::{Mat, MatMut, MatRef, Side};
pub use faer::{c32, c64};

/// The vectors that a singular value decomposition gives, to be overwritten: the left ones as
/// columns, the right ones, conjugated, as rows.
pub struct SingularVectors<'a, T> {
    pub left: &'a mut [T],
    pub right: &'a mut [T],
    /// Whether there are as many as rows and as columns, not only as singular values.
    pub full: bool,
}

/// The elements of matrices.
pub trait Scalar: Copy + Send + Sync + Sized + 'static {
    /// The type of eigenvalues and singular values.
    type Real: Copy;

    /// The eigenvalues, ascending, and the eigenvectors, as columns, of the Hermitian matrix `a` of
    /// this size, of which the lower or the upper triangle is read.
    fn eigh(a: &[Self], size: usize, lower: bool, vectors: &mut [Self], values: &mut [Self::Real]);

    /// The singular values, descending, of a matrix with rows and columns, and its singular vectors
    /// where they are asked for.
    fn svd(
        a: &[Self],
        rows: usize,
        columns: usize,
        values: &mut [Self::Real],
        vectors: Option<SingularVectors<'_, Self>>,
    );
}

/// What the decompositions need to know of faer's elements.
trait Element: ComplexField<Real = <Self as Scalar>::Real> + Scalar {
    /// NaN in all parts.
    const UNKNOWN: Self;
    const UNKNOWN_REAL: <Self as Scalar>::Real;

    fn is_number(self) -> bool;
    /// The complex conjugate.
    fn conjugate(self) -> Self;
    fn real_part(self) -> <Self as Scalar>::Real;
}

macro_rules! scalars {
    ($($t:ty, $real:ident, $unknown:expr, $is_number:expr, $conjugate:expr, $real_part:expr;)*) => {$(
        impl Scalar for $t {
            type Real = $real;

            fn eigh(a: &[$t], size: usize, lower: bool, vectors: &mut [$t], values: &mut [$real]) {
                eigh(a, size, lower, vectors, values);
            }

            fn svd(
                a: &[$t],
                rows: usize,
                columns: usize,
                values: &mut [$real],
                vectors: Option<SingularVectors<'_, $t>>,
            ) {
                svd(a, rows, columns, values, vectors);
            }
        }

        impl Element for $t {
            const UNKNOWN: $t = $unknown;
            const UNKNOWN_REAL: $real = $real::NAN;

            fn is_number(self) -> bool {
                $is_number(self)
            }

            fn conjugate(self) -> $t {
                $conjugate(self)
            }

            fn real_part(self) -> $real {
                $real_part(self)
            }
        }
    )*};
}

scalars! {
    f32, f32, f32::NAN, f32::is_finite, |x| x, |x| x;
    f64, f64, f64::NAN, f64::is_finite, |x| x, |x| x;
    c32, f32, c32::new(f32::NAN, f32::NAN), c32::is_finite, |x: c32| x.conj(), |x: c32| x.re;
    c64, f64, c64::new(f64::NAN, f64::NAN), c64::is_finite, |x: c64| x.conj(), |x: c64| x.re;
}

type Real<T> = <T as Scalar>::Real;

fn eigh<T: Element>(a: &[T], size: usize, lower: bool, vectors: &mut [T], values: &mut [Real<T>]) {
    let whole = Mat::from_fn(size, size, |row, column| {
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
    let finite = (0..size).all(|column| whole.col_as_slice(column).iter().all(|x| x.is_number()));
    let found = if finite { whole.self_adjoint_eigen(Side::Lower).ok() } else { None };
    let Some(found) = found else {
        vectors.fill(T::UNKNOWN);
        return values.fill(T::UNKNOWN_REAL);
    };
    MatMut::from_row_major_slice_mut(vectors, size, size).copy_from(found.U());
    for (value, &found) in values.iter_mut().zip(found.S().column_vector().iter()) {
        *value = found.real_part();
    }
}

fn svd<T: Element>(
    a: &[T],
    rows: usize,
    columns: usize,
    values: &mut [Real<T>],
    mut vectors: Option<SingularVectors<'_, T>>,
) {
    let matrix = MatRef::from_row_major_slice(a, rows, columns);
    let found =
        if a.iter().all(|x| x.is_number()) { decomposed(matrix, values, vectors.as_mut()) } else { None };
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
    let Some(vectors) = vectors else {
        values.copy_from_slice(&a.singular_values().ok()?);
        return Some(());
    };
    let found = if vectors.full { a.svd() } else { a.thin_svd() }.ok()?;
    for (value, &found) in values.iter_mut().zip(found.S().column_vector().iter()) {
        *value = found.real_part();
    }
    MatMut::from_row_major_slice_mut(vectors.left, a.nrows(), found.U().ncols()).copy_from(found.U());
    let right = found.V().transpose();
    MatMut::from_row_major_slice_mut(vectors.right, right.nrows(), a.ncols()).copy_from(right);
    vectors.right.iter_mut().for_each(|x| *x = x.conjugate());
    Some(())
}
