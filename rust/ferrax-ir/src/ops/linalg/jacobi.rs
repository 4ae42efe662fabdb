//! Eigenvalues and singular values by Jacobi's rotations: slow, obvious and accurate.
//!
//! Golub and Van Loan, Matrix Computations, 4th ed., sections 8.5 (symmetric matrices) and 8.6.3
//! (one-sided, for singular values); for complex ones with the phase of the element to remove.

use super::matrix::*;

/// Sweeps after which rotations end; convergence is quadratic, ten are many.
const SWEEPS: usize = 60;

/// The unitary that makes the element between two columns zero.
struct Rotation {
    cosine: f64,
    sine: f64,
    /// The phase of that element.
    phase: Number,
}

impl Rotation {
    /// For `[[a, element], [conj(element), b]]`; `None` if the element is as good as zero: beside its row and
    /// column, or of matrices of magnitude one so small that its phase would lose digits or overflow.
    fn new(a: f64, b: f64, element: Number, small: f64) -> Option<Rotation> {
        let size = element.0.hypot(element.1);
        if size <= small.max(f64::MIN_POSITIVE / f64::EPSILON) || size.is_nan() {
            return None;
        }
        let ratio = (b - a) / (2.0 * size);
        let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
        let cosine = 1.0 / tangent.hypot(1.0);
        Some(Rotation { cosine, sine: tangent * cosine, phase: scale(element, 1.0 / size) })
    }
}

impl Matrix {
    fn rotate_columns(&mut self, p: usize, q: usize, by: &Rotation) {
        for row in 0..self.rows {
            let (x, y) = (self.at(row, p), self.at(row, q));
            let mixed = scale(mul(conj(by.phase), y), -by.sine);
            self.set(row, p, add(scale(x, by.cosine), mixed));
            let mixed = scale(mul(by.phase, x), by.sine);
            self.set(row, q, add(mixed, scale(y, by.cosine)));
        }
    }
}

/// Eigenvalues of a Hermitian matrix, ascending if `sorted`, and eigenvectors as columns.
pub fn hermitian(mut a: Matrix, sorted: bool) -> (Vec<f64>, Matrix) {
    let exponent = a.exponent();
    a.multiply(-exponent);
    let (values, vectors) = hermitian_of_magnitude_one(a, sorted);
    (values.into_iter().map(|value| libm::ldexp(value, exponent)).collect(), vectors)
}

fn hermitian_of_magnitude_one(mut a: Matrix, sorted: bool) -> (Vec<f64>, Matrix) {
    let size = a.rows;
    let mut vectors = Matrix::identity(size);
    let norm = a.elements.iter().fold(0.0f64, |norm, x| norm.hypot(x.0).hypot(x.1));
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..size {
            for q in p + 1..size {
                let small = norm * f64::EPSILON * 1e-2;
                let Some(rotation) = Rotation::new(a.at(p, p).0, a.at(q, q).0, a.at(p, q), small) else {
                    continue;
                };
                rotated = true;
                a.rotate_columns(p, q, &rotation);
                a = a.adjoint();
                a.rotate_columns(p, q, &rotation);
                a = a.adjoint();
                vectors.rotate_columns(p, q, &rotation);
            }
        }
        if !rotated {
            break;
        }
    }
    let mut order: Vec<usize> = (0..size).collect();
    if sorted {
        order.sort_by(|&p, &q| a.at(p, p).0.total_cmp(&a.at(q, q).0));
    }
    (order.iter().map(|&at| a.at(at, at).0).collect(), vectors.take(&order))
}

/// Singular values, descending, with left and right vectors as columns: as many of both as rows
/// and as columns if `full`, else as values.
pub fn singular(a: &Matrix, full: bool) -> (Matrix, Vec<f64>, Matrix) {
    let exponent = a.exponent();
    let mut scaled = a.clone();
    scaled.multiply(-exponent);
    let (left, values, right) = singular_of_magnitude_one(&scaled, full);
    (left, values.into_iter().map(|value| libm::ldexp(value, exponent)).collect(), right)
}

fn singular_of_magnitude_one(a: &Matrix, full: bool) -> (Matrix, Vec<f64>, Matrix) {
    if a.rows < a.columns {
        let (right, values, left) = singular_of_magnitude_one(&a.adjoint(), full);
        return (left, values, right);
    }
    let size = a.columns;
    let (mut turned, mut right) = (a.clone(), Matrix::identity(size));
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..size {
            for q in p + 1..size {
                let (first, second) = (turned.inner(p, p).0, turned.inner(q, q).0);
                let small = f64::EPSILON * (first * second).sqrt();
                let Some(rotation) = Rotation::new(first, second, turned.inner(p, q), small) else {
                    continue;
                };
                rotated = true;
                turned.rotate_columns(p, q, &rotation);
                right.rotate_columns(p, q, &rotation);
            }
        }
        if !rotated {
            break;
        }
    }
    let lengths: Vec<f64> = (0..size).map(|column| turned.inner(column, column).0.sqrt()).collect();
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&p, &q| lengths[q].total_cmp(&lengths[p]));
    let values: Vec<f64> = order.iter().map(|&at| lengths[at]).collect();
    let left = orthonormal(&turned.take(&order), if full { a.rows } else { size });
    (left, values, right.take(&order))
}

/// The columns at length one, with as many more, orthogonal to all, as `count` asks for. Those in
/// the place of columns that are as good as zero are such, too.
fn orthonormal(columns: &Matrix, count: usize) -> Matrix {
    let mut result = Matrix::new(columns.rows, count, vec![(0.0, 0.0); columns.rows * count]);
    let longest = (0..columns.columns).map(|at| columns.inner(at, at).0.sqrt()).fold(0.0, f64::max);
    let mut units = 0..columns.rows;
    for to in 0..count {
        let mut candidate = if to < columns.columns { Some(columns.column(to)) } else { None };
        let mut least = longest * f64::EPSILON * columns.rows as f64;
        loop {
            let given = candidate.take().or_else(|| {
                least = 0.5 / (columns.rows as f64).sqrt();
                let unit = units.next()?;
                Some((0..columns.rows).map(|row| (f64::from(row == unit), 0.0)).collect())
            });
            let Some(given) = given else { break };
            let mut own = Matrix::new(columns.rows, 1, given);
            // Twice, for what rounding leaves.
            for _ in 0..2 {
                for before in 0..to {
                    let other = result.column(before);
                    let along = (0..columns.rows)
                        .fold((0.0, 0.0), |sum, row| add(sum, mul(conj(other[row]), own.at(row, 0))));
                    own.add_column(0, &other, scale(along, -1.0));
                }
            }
            let length = own.inner(0, 0).0.sqrt();
            if length > least {
                result.add_column(to, &own.column(0), (1.0 / length, 0.0));
                break;
            }
        }
    }
    result
}
