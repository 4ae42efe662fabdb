//! Residuals and orthogonality of decompositions, for matrices of all magnitudes: within what LAPACK
//! leaves. Its bounds are a modest multiple of the size, which is here 1.
#![allow(clippy::unwrap_used)]

use ferrax_linalg::{Scalar, SingularVectors, c32, c64};

/// Numbers in [-1, 1), the same each time (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A matrix as the tests compute with it: products in double precision.
#[derive(Clone)]
struct Wide {
    rows: usize,
    columns: usize,
    elements: Vec<c64>,
}

impl Wide {
    fn new(rows: usize, columns: usize, of: impl FnMut(usize) -> c64) -> Wide {
        Wide { rows, columns, elements: (0..rows * columns).map(of).collect() }
    }

    fn random(rows: usize, columns: usize, complex: bool) -> Wide {
        let mut random = Random(88_172_645_463_325_252);
        Wide::new(rows, columns, |_| c64::new(random.next(), if complex { random.next() } else { 0.0 }))
    }

    fn at(&self, row: usize, column: usize) -> c64 {
        self.elements[row * self.columns + column]
    }

    fn adjoint(&self) -> Wide {
        Wide::new(self.columns, self.rows, |at| self.at(at % self.rows, at / self.rows).conj())
    }

    fn times(&self, other: &Wide) -> Wide {
        Wide::new(self.rows, other.columns, |at| {
            let (row, column) = (at / other.columns, at % other.columns);
            (0..self.columns).fold(c64::new(0.0, 0.0), |sum, k| sum + self.at(row, k) * other.at(k, column))
        })
    }

    /// The columns times these numbers.
    fn scaled_columns(&self, by: &[f64]) -> Wide {
        Wide::new(self.rows, self.columns, |at| self.elements[at] * by[at % self.columns])
    }

    fn minus(&self, other: &Wide) -> Wide {
        Wide::new(self.rows, self.columns, |at| self.elements[at] - other.elements[at])
    }

    fn norm(&self) -> f64 {
        self.elements.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt()
    }

    /// How far the columns are from orthonormal.
    fn skewness(&self) -> f64 {
        let gram = self.adjoint().times(self);
        let identity = Wide::new(gram.rows, gram.rows, |at| c64::from(f64::from(at % (gram.rows + 1) == 0)));
        gram.minus(&identity).norm()
    }
}

/// An element type: its rounding unit, and numbers of it times a power of two.
trait Narrow: Scalar {
    const EPSILON: f64;
    const COMPLEX: bool;
    fn of(x: c64, exponent: i32) -> Self;
    fn wide(self, exponent: i32) -> c64;
    fn real(x: Self::Real, exponent: i32) -> f64;
    fn zero() -> Self;
    fn zero_real() -> Self::Real;
}

fn power(x: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    x * 2f64.powi(half) * 2f64.powi(exponent - half)
}

macro_rules! narrow {
    ($($t:ty, $real:ident, $complex:expr, $make:expr, $parts:expr;)*) => {$(
        impl Narrow for $t {
            const EPSILON: f64 = $real::EPSILON as f64;
            const COMPLEX: bool = $complex;

            fn of(x: c64, exponent: i32) -> $t {
                $make(power(x.re, exponent) as $real, power(x.im, exponent) as $real)
            }

            fn wide(self, exponent: i32) -> c64 {
                let (re, im) = $parts(self);
                c64::new(power(f64::from(re), -exponent), power(f64::from(im), -exponent))
            }

            fn real(x: $real, exponent: i32) -> f64 {
                power(f64::from(x), -exponent)
            }

            fn zero() -> $t {
                $make(0.0, 0.0)
            }

            fn zero_real() -> $real {
                0.0
            }
        }
    )*};
}

narrow! {
    f32, f32, false, |re, _| re, |x| (x, 0.0f32);
    f64, f64, false, |re, _| re, |x| (x, 0.0f64);
    c32, f32, true, c32::new, |x: c32| (x.re, x.im);
    c64, f64, true, c64::new, |x: c64| (x.re, x.im);
}

/// The error, in rounding units of the norm and times the square root of the size, for `a` times
/// `2^exponent`.
fn eigh_error<T: Narrow>(a: &Wide, exponent: i32) -> f64 {
    let size = a.rows;
    let given: Vec<T> = a.elements.iter().map(|x| T::of(*x, exponent)).collect();
    let (mut vectors, mut values) = (vec![T::zero(); size * size], vec![T::zero_real(); size]);
    T::eigh(&given, size, true, &mut vectors, &mut values);
    let a = Wide::new(size, size, |at| given[at].wide(exponent));
    let vectors = Wide::new(size, size, |at| vectors[at].wide(0));
    let values: Vec<f64> = values.iter().map(|x| T::real(*x, exponent)).collect();
    assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "{values:?}");
    let largest = values.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let residual = a.times(&vectors).minus(&vectors.scaled_columns(&values)).norm() / largest;
    residual.max(vectors.skewness()) / T::EPSILON / (size as f64).sqrt()
}

fn svd_error<T: Narrow>(a: &Wide, exponent: i32) -> f64 {
    let (rows, columns, least) = (a.rows, a.columns, a.rows.min(a.columns));
    let given: Vec<T> = a.elements.iter().map(|x| T::of(*x, exponent)).collect();
    let mut values = vec![T::zero_real(); least];
    let (mut left, mut right) = (vec![T::zero(); rows * least], vec![T::zero(); least * columns]);
    let vectors = SingularVectors { left: &mut left, right: &mut right, full: false };
    T::svd(&given, rows, columns, &mut values, Some(vectors));
    let mut alone = values.clone();
    T::svd(&given, rows, columns, &mut alone, None);
    let a = Wide::new(rows, columns, |at| given[at].wide(exponent));
    let (left, right) =
        (Wide::new(rows, least, |at| left[at].wide(0)), Wide::new(least, columns, |at| right[at].wide(0)));
    let real = |values: &[T::Real]| values.iter().map(|x| T::real(*x, exponent)).collect::<Vec<f64>>();
    let (values, alone) = (real(&values), real(&alone));
    assert!(values.windows(2).all(|pair| pair[0] >= pair[1]), "{values:?}");
    let apart = values.iter().zip(&alone).fold(0.0, |most: f64, (x, y)| most.max((x - y).abs()));
    let residual = a.minus(&left.scaled_columns(&values).times(&right)).norm();
    let skewness = left.skewness().max(right.adjoint().skewness());
    (residual.max(apart) / values[0]).max(skewness) / T::EPSILON / (least as f64).sqrt()
}

fn hermitian(a: &Wide) -> Wide {
    let adjoint = a.adjoint();
    Wide::new(a.rows, a.rows, |at| (a.elements[at] + adjoint.elements[at]) * 0.5)
}

/// A matrix with an eigenvalue of 0.
fn deficient(size: usize, complex: bool) -> Wide {
    let a = Wide::random(size, size - 1, complex);
    a.times(&a.adjoint())
}

fn check<T: Narrow>(exponents: &[i32]) {
    // Twelve units and the root of the size is more than LAPACK has; iterations by rotations alone
    // come to 25.
    for &exponent in exponents {
        for size in [1, 2, 3, 8, 9, 40, 130] {
            let a = Wide::random(size, size, T::COMPLEX);
            let error = eigh_error::<T>(&hermitian(&a), exponent);
            assert!(error < 12.0, "eigh of {size} at 2^{exponent}: {error}");
            let error = svd_error::<T>(&a, exponent);
            assert!(error < 12.0, "svd of {size} at 2^{exponent}: {error}");
        }
        let error = eigh_error::<T>(&deficient(100, T::COMPLEX), exponent);
        assert!(error < 12.0, "eigh of a deficient matrix at 2^{exponent}: {error}");
        for (rows, columns) in [(90, 40), (40, 90), (3, 70)] {
            let error = svd_error::<T>(&Wide::random(rows, columns, T::COMPLEX), exponent);
            assert!(error < 12.0, "svd of {rows} x {columns} at 2^{exponent}: {error}");
        }
    }
}

#[test]
fn single_precision_is_accurate_at_all_magnitudes() {
    check::<f32>(&[0, -24, 66, -83, 118, -118]);
}

#[test]
fn double_precision_is_accurate_at_all_magnitudes() {
    check::<f64>(&[0, -53, 531, -564]);
}

#[test]
fn complex_numbers_are_accurate_at_all_magnitudes() {
    check::<c32>(&[0, -24, 66, -83]);
    check::<c64>(&[0, 531]);
}

#[test]
fn eigenvalues_of_separate_blocks_have_their_own_magnitude() {
    // Blocks of 1e10, 1 and 1e-20, in an order that is none of the eigenvalues.
    let magnitudes = [1.0f64, 1e10, 1e-20];
    let size = 3 * 20;
    let mut a = vec![0f64; size * size];
    for (block, magnitude) in magnitudes.iter().enumerate() {
        for within in 0..20 {
            let at = block * 20 + within;
            a[at * size + at] = 2.0 * magnitude;
            if within > 0 {
                a[at * size + at - 1] = -magnitude;
            }
        }
    }
    let (mut vectors, mut values) = (vec![0f64; size * size], vec![0f64; size]);
    f64::eigh(&a, size, true, &mut vectors, &mut values);
    // The eigenvalues of the second difference are 2 - 2 cos(k pi / 21).
    let mut wanted: Vec<f64> = magnitudes
        .iter()
        .flat_map(|m| {
            (1..=20).map(move |k| m * (2.0 - 2.0 * (f64::from(k) * std::f64::consts::PI / 21.0).cos()))
        })
        .collect();
    wanted.sort_by(f64::total_cmp);
    for (got, want) in values.iter().zip(&wanted) {
        assert!((got - want).abs() <= 1e-13 * want, "{got} for {want}");
    }
}

#[test]
fn what_is_not_finite_gives_nan_and_what_is_zero_gives_zeros() {
    let (mut vectors, mut values) = (vec![0f32; 4], vec![0f32; 2]);
    f32::eigh(&[1.0, 0.0, f32::INFINITY, 2.0], 2, true, &mut vectors, &mut values);
    assert!(vectors.iter().chain(&values).all(|x| x.is_nan()));
    for size in [1, 2, 3, 40] {
        let a = vec![0f32; size * size];
        let (mut vectors, mut values) = (vec![1f32; size * size], vec![1f32; size]);
        f32::eigh(&a, size, true, &mut vectors, &mut values);
        assert!(values.iter().all(|x| *x == 0.0));
        assert!(Wide::new(size, size, |at| vectors[at].wide(0)).skewness() < 1e-5);
        let mut values = vec![1f32; size];
        f32::svd(&a, size, size, &mut values, None);
        assert!(values.iter().all(|x| *x == 0.0));
    }
}

/// How far Schur's form is from the matrix and its vectors from orthonormal, in units and the root of the
/// size. The form has to be triangular, but for blocks of complex eigenvalues.
fn schur_error<T: Narrow>(a: &Wide) -> f64 {
    let size = a.rows;
    let given: Vec<T> = a.elements.iter().map(|x| T::of(*x, 0)).collect();
    let (mut form, mut vectors) = (vec![T::zero(); size * size], vec![T::zero(); size * size]);
    T::schur(&given, size, &mut form, Some(&mut vectors));
    let wide = |x: &[T]| Wide::new(size, size, |at| x[at].wide(0));
    let (a, form, vectors) = (wide(&given), wide(&form), wide(&vectors));
    let mut block = false;
    for column in 0..size {
        assert!((column + 2..size).all(|row| form.at(row, column).norm() == 0.0), "column {column}");
        let below = if column + 1 < size { form.at(column + 1, column).re } else { 0.0 };
        if below != 0.0 {
            assert!(!T::COMPLEX && !block, "what is below the diagonal at {column}");
            assert!(form.at(column, column) == form.at(column + 1, column + 1), "a block at {column}");
            assert!(form.at(column, column + 1).re * below < 0.0, "a block at {column}");
        }
        block = below != 0.0;
    }
    let residual = a.times(&vectors).minus(&vectors.times(&form)).norm() / a.norm().max(f64::MIN_POSITIVE);
    residual.max(vectors.skewness()) / T::EPSILON / (size as f64).sqrt()
}

fn check_schur<T: Narrow>() {
    // As many steps as there are eigenvalues turn each element: LAPACK comes to 20 for a size of 70.
    // Runs of reflections have 16 of them.
    for size in [1, 2, 3, 5, 16, 17, 18, 19, 33, 70] {
        let error = schur_error::<T>(&Wide::random(size, size, T::COMPLEX));
        assert!(error < 25.0, "schur of {size}: {error}");
    }
    let number = |x: bool| c64::from(f64::from(u8::from(x)));
    let jordan = Wide::new(40, 40, |at| number(at / 40 == at % 40 || at / 40 + 1 == at % 40));
    let cycle = Wide::new(40, 40, |at| number((at / 40 + 1) % 40 == at % 40));
    let zeros = Wide::new(20, 20, |_| c64::new(0.0, 0.0));
    for (name, a) in [("a Jordan block", jordan), ("a cycle", cycle), ("zeros", zeros)] {
        let error = schur_error::<T>(&a);
        assert!(error < 25.0, "schur of {name}: {error}");
    }
}

#[test]
fn forms_of_schur_are_accurate() {
    check_schur::<f32>();
    check_schur::<f64>();
    check_schur::<c32>();
    check_schur::<c64>();
}

/// Small matrices are computed side by side; what is beside one changes none of its bits.
#[test]
fn a_matrix_of_a_batch_has_the_bits_that_it_has_alone() {
    for size in 2..=8 {
        let each = size * size;
        let count = 16 + 7;
        let mut a: Vec<f64> = Vec::new();
        for number in 0..count {
            let of = hermitian(&Wide::random(size + number, size + number, false));
            // Magnitudes of their own, equal eigenvalues, and one that is not finite.
            let scale = 2f64.powi(90 * (number as i32 - 11));
            let element = |row: usize, column: usize| match number {
                3 => f64::from(u8::from(row == column)),
                4 => 1.0,
                5 => f64::NAN,
                _ => scale * of.at(row, column).re,
            };
            a.extend((0..each).map(|at| element(at / size, at % size)));
        }
        let (mut vectors, mut values) = (vec![0f64; count * each], vec![0f64; count * size]);
        f64::eigh(&a, size, true, &mut vectors, &mut values);
        for number in 0..count {
            let (mut own, mut alone) = (vec![0f64; each], vec![0f64; size]);
            f64::eigh(&a[number * each..][..each], size, true, &mut own, &mut alone);
            let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&own), bits(&vectors[number * each..][..each]), "vectors of {number}, {size}");
            assert_eq!(bits(&alone), bits(&values[number * size..][..size]), "values of {number}, {size}");
            assert_eq!(own.iter().any(|x| x.is_nan()), number == 5);
        }
    }
}
