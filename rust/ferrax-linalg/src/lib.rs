//! Decompositions of one dense matrix, by faer, for the kernels of the CPU backend.
//!
//! Matrices are slices, row by row. The crate is one of its own because faer is generic: its code is
//! made where it is used, which takes longer than the rest of the backend.
//!
//! Batches of small matrices are computed side by side (`small`, `jacobi`). Triangular and orthonormal
//! factors have LAPACK's signs, pivots and places.
//!
//! Of eigenvalues and singular values: a matrix with an element that is not finite, and one for which the iteration does not end, gives
//! NaN, as LAPACK's callers have it. Squares of very large or small elements are no numbers: such
//! matrices are multiplied by a power of two first, which is exact, as LAPACK's drivers do
//! (Anderson et al., LAPACK Users' Guide, 3rd ed., 1999).

mod cholesky;
mod eig;
mod eigh;
mod hessenberg;
mod jacobi;
mod lanes;
mod layout;
mod lu;
mod magnitude;
mod planes;
mod reflections;
mod schur;
mod small;
mod svd;
mod triangular;
mod tridiagonal_solve;
mod vector;

use faer::traits::ComplexField;
pub use faer::{c32, c64};
pub use small::side_by_side;
pub use tridiagonal_solve::Diagonals;

use crate::lanes::{Complex, Reals};
use crate::magnitude::Real as Number;

/// The vectors that a singular value decomposition gives, to be overwritten: the left ones as
/// columns, the right ones, conjugated, as rows.
pub struct SingularVectors<'a, T> {
    pub left: &'a mut [T],
    pub right: &'a mut [T],
    /// Whether there are as many as rows and as columns, not only as singular values.
    pub full: bool,
}

/// What elimination gives of a batch, to be overwritten: both factors in one matrix, the row that each row
/// was exchanged with, and the rows in their last order.
pub struct Factored<'a, T> {
    pub factors: &'a mut [T],
    pub pivots: &'a mut [i32],
    pub order: &'a mut [i32],
}

/// How a triangular system is read: `op(a) x = b`, or `x op(a) = b` unless `from_left`.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    pub from_left: bool,
    pub lower: bool,
    pub transposed: bool,
    pub conjugated: bool,
    /// Whether the diagonal is 1, whatever stands there.
    pub unit: bool,
}

/// The tridiagonal form of a matrix, to be overwritten: the matrix with reflections in the triangle that
/// is read, the diagonal, the elements beside it, and the reflections' factors.
pub struct Tridiagonal<'a, T: Scalar> {
    pub packed: &'a mut [T],
    pub diagonal: &'a mut [T::Real],
    pub beside: &'a mut [T::Real],
    pub taus: &'a mut [T],
}

/// Where the product of reflections stands, and whether its adjoint does.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub left: bool,
    pub adjoint: bool,
}

/// The elements of matrices. Matrices have rows and columns.
pub trait Scalar: Copy + Send + Sync + Sized + 'static {
    /// The type of eigenvalues and singular values.
    type Real: Number;

    /// The type of eigenvalues of matrices of any kind.
    type Complex: Scalar;

    /// The eigenvalues, ascending, and the eigenvectors, as columns, of a batch of Hermitian matrices of
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

    /// The lower triangular factors of a batch of Hermitian matrices of which the lower triangle is read,
    /// with zeros above; NaN, of matrices that are not positive definite. `beside`: [`side_by_side`], of all the
    /// matrices that these may be a part of.
    fn cholesky(beside: bool, a: &[Self], size: usize, factors: &mut [Self]);

    /// Elimination with exchanges of rows, of a batch. `beside`: as for `cholesky`.
    fn lu(beside: bool, a: &[Self], rows: usize, columns: usize, out: Factored<'_, Self>);

    /// Solves a batch of triangular systems; `x` holds the right-hand sides, of so many rows and columns,
    /// and then the solutions. `beside`: as for `cholesky`.
    fn solve_triangular(
        beside: bool,
        how: &Triangle,
        a: &[Self],
        x: &mut [Self],
        rows: usize,
        columns: usize,
    );

    /// The factor `R` of one matrix, with the reflections below its diagonal, and their factors.
    fn geqrf(a: &[Self], rows: usize, columns: usize, packed: &mut [Self], taus: &mut [Self]);

    /// The same with columns of the longest rest first. `order` tells by what is not 0 which columns come
    /// first in any case, and is overwritten by their numbers, from 1.
    fn geqp3(
        a: &[Self],
        rows: usize,
        columns: usize,
        packed: &mut [Self],
        order: &mut [i32],
        taus: &mut [Self],
    );

    /// The first columns of the product of one matrix's reflections.
    fn householder_product(a: &[Self], taus: &[Self], rows: usize, columns: usize, q: &mut [Self]);

    /// The product of one matrix's reflections times `c`, which is overwritten; `columns` and `others` are
    /// those of the reflections and the other size of `c`.
    fn ormqr(side: Side, a: &[Self], taus: &[Self], columns: usize, others: usize, c: &mut [Self]);

    /// Hessenberg's form of one matrix, with the reflections below it, and their factors.
    fn hessenberg(a: &[Self], size: usize, packed: &mut [Self], taus: &mut [Self]);

    /// The tridiagonal form of one Hermitian matrix.
    fn tridiagonal(a: &[Self], size: usize, lower: bool, out: Tridiagonal<'_, Self>);

    /// Solves one tridiagonal system; `x` holds the right-hand sides and then the solutions. A singular
    /// matrix gives NaN unless `perturb`.
    fn solve_tridiagonal(of: &Diagonals<'_, Self>, perturb: bool, x: &mut [Self]);

    /// Schur's form of one matrix, and its vectors.
    fn schur(a: &[Self], size: usize, form: &mut [Self], vectors: Option<&mut [Self]>);

    /// The eigenvalues of one matrix, and left and right eigenvectors as columns.
    fn eig(
        a: &[Self],
        size: usize,
        values: &mut [Self::Complex],
        left: Option<&mut [Self::Complex]>,
        right: Option<&mut [Self::Complex]>,
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
    /// The real and the imaginary part.
    fn parts(self) -> (<Self as Scalar>::Real, <Self as Scalar>::Real);
    fn of_parts(re: <Self as Scalar>::Real, im: <Self as Scalar>::Real) -> Self;
    /// The sum of the parts' absolute values, by which pivots are chosen.
    fn size(self) -> <Self as Scalar>::Real;
    /// `self / by`.
    fn quotient(self, by: Self) -> Self;
    /// The square root.
    fn square_root(self) -> Self;
    fn zero_real() -> <Self as Scalar>::Real;
    fn least_inverted() -> <Self as Scalar>::Real;
}

/// What computes eigenvalues of a batch of small matrices.
type Small<T, R> = fn(&[T], usize, bool, &mut [T], &mut [R]);

macro_rules! scalars {
    ($($t:ty, $real:ident, $complex:ty, $lanes:ty, $iterate:path, $small:expr, $unknown:expr, $is_number:expr, $conjugate:expr, $real_part:expr,
      $parts:expr, $with_parts:expr;)*) => {$(
        impl Scalar for $t {
            type Real = $real;
            type Complex = $complex;

            fn eigh(a: &[$t], size: usize, lower: bool, vectors: &mut [$t], values: &mut [$real]) {
                let small: Option<Small<$t, $real>> = $small;
                if let (2..=jacobi::MOST, Some(small)) = (size, small) {
                    return small(a, size, lower, vectors, values);
                }
                let each = (size * size).max(1);
                let out = vectors.chunks_exact_mut(each).zip(values.chunks_exact_mut(size.max(1)));
                for (a, (vectors, values)) in a.chunks_exact(each).zip(out) {
                    eigh::eigh(a, size, lower, vectors, values);
                }
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

            fn cholesky(beside: bool, a: &[$t], size: usize, factors: &mut [$t]) {
                let each = (size * size).max(1);
                if beside {
                    return small::cholesky::<$lanes>(a, size, factors);
                }
                for (a, factors) in a.chunks_exact(each).zip(factors.chunks_exact_mut(each)) {
                    cholesky::cholesky(a, size, factors);
                }
            }

            fn lu(beside: bool, a: &[$t], rows: usize, columns: usize, out: Factored<'_, $t>) {
                let (each, least) = ((rows * columns).max(1), rows.min(columns).max(1));
                if beside {
                    return small::lu::<$lanes>(a, rows, columns, out);
                }
                let factors = out.factors.chunks_exact_mut(each);
                let places = out.pivots.chunks_exact_mut(least).zip(out.order.chunks_exact_mut(rows.max(1)));
                for ((a, factors), (pivots, order)) in a.chunks_exact(each).zip(factors).zip(places) {
                    lu::lu(a, rows, columns, Factored { factors, pivots, order });
                }
            }

            fn solve_triangular(
                beside: bool,
                how: &Triangle,
                a: &[$t],
                x: &mut [$t],
                rows: usize,
                columns: usize,
            ) {
                let size = if how.from_left { rows } else { columns };
                let (each, sides) = ((size * size).max(1), (rows * columns).max(1));
                if beside {
                    return small::solve::<$lanes>(how, a, x, rows, columns);
                }
                for (a, x) in a.chunks_exact(each).zip(x.chunks_exact_mut(sides)) {
                    triangular::solve(how, a, x, rows, columns);
                }
            }

            fn geqrf(a: &[$t], rows: usize, columns: usize, packed: &mut [$t], taus: &mut [$t]) {
                reflections::geqrf(a, rows, columns, packed, taus);
            }

            fn geqp3(
                a: &[$t],
                rows: usize,
                columns: usize,
                packed: &mut [$t],
                order: &mut [i32],
                taus: &mut [$t],
            ) {
                reflections::geqp3(a, rows, columns, packed, order, taus);
            }

            fn householder_product(a: &[$t], taus: &[$t], rows: usize, columns: usize, q: &mut [$t]) {
                reflections::householder_product(a, taus, rows, columns, q);
            }

            fn ormqr(side: Side, a: &[$t], taus: &[$t], columns: usize, others: usize, c: &mut [$t]) {
                reflections::ormqr(side, a, taus, columns, others, c);
            }

            fn hessenberg(a: &[$t], size: usize, packed: &mut [$t], taus: &mut [$t]) {
                hessenberg::hessenberg(a, size, packed, taus);
            }

            fn tridiagonal(a: &[$t], size: usize, lower: bool, out: Tridiagonal<'_, $t>) {
                hessenberg::tridiagonal(a, size, lower, out);
            }

            fn solve_tridiagonal(of: &Diagonals<'_, $t>, perturb: bool, x: &mut [$t]) {
                tridiagonal_solve::solve(of, perturb, x);
            }

            fn schur(a: &[$t], size: usize, form: &mut [$t], vectors: Option<&mut [$t]>) {
                eig::schur_of(a, size, $iterate, form, vectors);
            }

            fn eig(
                a: &[$t],
                size: usize,
                values: &mut [$complex],
                left: Option<&mut [$complex]>,
                right: Option<&mut [$complex]>,
            ) {
                eig::eig(a, size, $iterate, values, left, right);
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

            fn parts(self) -> ($real, $real) {
                $parts(self)
            }

            fn of_parts(re: $real, im: $real) -> $t {
                $with_parts(re, im)
            }

            #[inline(always)]
            fn size(self) -> $real {
                let (re, im): ($real, $real) = $parts(self);
                re.abs() + im.abs()
            }

            fn quotient(self, by: $t) -> $t {
                self / by
            }

            fn square_root(self) -> $t {
                self.sqrt()
            }

            #[inline(always)]
            fn zero_real() -> $real {
                0.0
            }

            #[inline(always)]
            fn least_inverted() -> $real {
                <$real as Number>::least_inverted()
            }
        }
    )*};
}

scalars! {
    f32, f32, c32, Reals<f32, 16>, schur::of_real, Some(jacobi::eigh), f32::NAN, f32::is_finite, |x| x, |x| x, |x| (x, 0.0), |re, _| re;
    f64, f64, c64, Reals<f64, 8>, schur::of_real, Some(jacobi::eigh), f64::NAN, f64::is_finite, |x| x, |x| x, |x| (x, 0.0), |re, _| re;
    c32, f32, c32, Complex<Reals<f32, 16>>, schur::of_complex, None, c32::new(f32::NAN, f32::NAN), c32::is_finite, |x: c32| x.conj(), |x: c32| x.re,
        |x: c32| (x.re, x.im), c32::new;
    c64, f64, c64, Complex<Reals<f64, 8>>, schur::of_complex, None, c64::new(f64::NAN, f64::NAN), c64::is_finite, |x: c64| x.conj(), |x: c64| x.re,
        |x: c64| (x.re, x.im), c64::new;
}

type Real<T> = <T as Scalar>::Real;
