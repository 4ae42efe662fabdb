//! Decompositions of one dense matrix, by faer, for the kernels of the CPU backend.
//!
//! Matrices are slices, row by row. The crate is one of its own because faer is generic: its code is
//! made where it is used, which takes longer than the rest of the backend.
//!
//! A matrix with an element that is not finite, and one for which the iteration does not end, gives
//! NaN, as LAPACK's callers have it. Squares of very large or small elements are no numbers: such
//! matrices are multiplied by a power of two first, which is exact, as LAPACK's drivers do
//! (Anderson et al., LAPACK Users' Guide, 3rd ed., 1999).

mod eigh;
mod magnitude;
mod svd;

use faer::traits::ComplexField;
pub use faer::{c32, c64};

use crate::magnitude::Real as Number;

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
    type Real: Number;

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
    /// The larger absolute value of the parts.
    fn largest_part(self) -> <Self as Scalar>::Real;
    /// `self` times a power of two.
    fn scaled(self, exponent: i32) -> Self;
}

macro_rules! scalars {
    ($($t:ty, $real:ident, $unknown:expr, $is_number:expr, $conjugate:expr, $real_part:expr,
      $parts:expr, $with_parts:expr;)*) => {$(
        impl Scalar for $t {
            type Real = $real;

            fn eigh(a: &[$t], size: usize, lower: bool, vectors: &mut [$t], values: &mut [$real]) {
                eigh::eigh(a, size, lower, vectors, values);
            }

            fn svd(
                a: &[$t],
                rows: usize,
                columns: usize,
                values: &mut [$real],
                vectors: Option<SingularVectors<'_, $t>>,
            ) {
                svd::svd(a, rows, columns, values, vectors);
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

            fn largest_part(self) -> $real {
                let (re, im): ($real, $real) = $parts(self);
                re.abs().max(im.abs())
            }

            fn scaled(self, exponent: i32) -> $t {
                let (re, im): ($real, $real) = $parts(self);
                $with_parts(re.times_power_of_two(exponent), im.times_power_of_two(exponent))
            }
        }
    )*};
}

scalars! {
    f32, f32, f32::NAN, f32::is_finite, |x| x, |x| x, |x| (x, 0.0), |re, _| re;
    f64, f64, f64::NAN, f64::is_finite, |x| x, |x| x, |x| (x, 0.0), |re, _| re;
    c32, f32, c32::new(f32::NAN, f32::NAN), c32::is_finite, |x: c32| x.conj(), |x: c32| x.re,
        |x: c32| (x.re, x.im), c32::new;
    c64, f64, c64::new(f64::NAN, f64::NAN), c64::is_finite, |x: c64| x.conj(), |x: c64| x.re,
        |x: c64| (x.re, x.im), c64::new;
}

type Real<T> = <T as Scalar>::Real;
