//! Schur's form by QR iteration with explicit steps: slow and obvious.
//!
//! Golub and Van Loan, Matrix Computations, 4th ed., sections 7.3 to 7.5. A step factors a polynomial of
//! the active block, of degree 1 for complex matrices and of degree 2 for real ones, and turns by `Q`.

use super::factors::{multiply, triangularise};
use super::matrix::*;

/// Steps for an eigenvalue, at most.
const STEPS: usize = 200;

fn product(x: &Matrix, y: &Matrix) -> Matrix {
    let element = |index: usize| {
        let (row, column) = (index / y.columns, index % y.columns);
        (0..x.columns).fold((0.0, 0.0), |sum, at| add(sum, mul(x.at(row, at), y.at(at, column))))
    };
    Matrix::new(x.rows, y.columns, (0..x.rows * y.columns).map(element).collect())
}

fn root(x: Number) -> Number {
    let length = x.0.hypot(x.1);
    let re = ((length + x.0.abs()) / 2.0).sqrt();
    if length == 0.0 {
        return (0.0, 0.0);
    }
    let im = x.1.abs() / (2.0 * re);
    let (re, im) = if x.0 >= 0.0 { (re, im) } else { (im, re) };
    (re, if x.1 < 0.0 { -im } else { im })
}

/// The eigenvalues of the block of two rows that begins at `at`.
fn pair(a: &Matrix, at: usize) -> [Number; 2] {
    let half = scale(sub(a.at(at, at), a.at(at + 1, at + 1)), 0.5);
    let radicand = add(mul(half, half), mul(a.at(at, at + 1), a.at(at + 1, at)));
    let root = root(radicand);
    let middle = scale(add(a.at(at, at), a.at(at + 1, at + 1)), 0.5);
    [add(middle, root), sub(middle, root)]
}

fn size(x: Number) -> f64 {
    x.0.abs() + x.1.abs()
}

/// `a` and `z` turned by a unitary matrix that acts on rows `start..end`.
fn turn(a: &mut Matrix, z: &mut Matrix, start: usize, q: &Matrix) {
    let mut whole = Matrix::identity(a.rows);
    for row in 0..q.rows {
        for column in 0..q.columns {
            whole.set(start + row, start + column, q.at(row, column));
        }
    }
    *a = product(&product(&whole.adjoint(), a), &whole);
    *z = product(z, &whole);
}

/// The form and the vectors: triangular if `complex`.
pub fn schur(a: Matrix, complex: bool) -> (Matrix, Matrix) {
    let length = a.rows;
    let (packed, taus) = super::factors::hessenberg(a);
    let mut z = Matrix::identity(length);
    // The reflections act on all rows but the first.
    if length > 1 {
        let inner = (1..length).flat_map(|row| (0..length - 1).map(move |column| (row, column)));
        let inner =
            Matrix::new(length - 1, length - 1, inner.map(|(row, column)| packed.at(row, column)).collect());
        let q = multiply(&inner, &taus, false, Matrix::identity(length - 1));
        for row in 1..length {
            for column in 1..length {
                z.set(row, column, q.at(row - 1, column - 1));
            }
        }
    }
    let zero_below = |index: usize| {
        let (row, column) = (index / length, index % length);
        if row > column + 1 { (0.0, 0.0) } else { packed.at(row, column) }
    };
    let mut a = Matrix::new(length, length, (0..length * length).map(zero_below).collect());
    let mut end = length;
    let mut steps = 0;
    while end > 0 {
        let mut start = end - 1;
        while start > 0 {
            let beside = size(a.at(start - 1, start - 1)) + size(a.at(start, start));
            if size(a.at(start, start - 1)) <= f64::EPSILON * beside.max(f64::MIN_POSITIVE) {
                a.set(start, start - 1, (0.0, 0.0));
                break;
            }
            start -= 1;
        }
        let block = end - start;
        if block == 1 || block == 2 && !complex {
            if block == 2 {
                standardise(&mut a, &mut z, start);
            }
            (end, steps) = (start, 0);
            continue;
        }
        steps += 1;
        if steps > STEPS {
            let unknown =
                |x: &Matrix| Matrix::new(length, length, vec![(f64::NAN, f64::NAN); x.elements.len()]);
            return (unknown(&a), unknown(&z));
        }
        let active = (start..end).flat_map(|row| (start..end).map(move |column| (row, column)));
        let active = Matrix::new(block, block, active.map(|(row, column)| a.at(row, column)).collect());
        let last = active.at(block - 1, block - 1);
        let mut shifts = pair(&active, block - 2);
        if steps % 10 == 0 {
            let s = size(active.at(block - 1, block - 2));
            shifts = [add(last, (0.75 * s, 0.5 * s)), add(last, (0.75 * s, -0.5 * s))];
        }
        let nearer =
            if size(sub(shifts[0], last)) <= size(sub(shifts[1], last)) { shifts[0] } else { shifts[1] };
        let less = |shift: Number| {
            let mut moved = active.clone();
            (0..block).for_each(|at| moved.set(at, at, sub(moved.at(at, at), shift)));
            moved
        };
        let polynomial = match complex {
            true => less(nearer),
            false => {
                let mut both = product(&less(shifts[0]), &less(shifts[1]));
                both.elements.iter_mut().for_each(|x| x.1 = 0.0);
                both
            }
        };
        let (r, taus) = triangularise(polynomial, 0, None);
        let q = multiply(&r, &taus, false, Matrix::identity(block));
        turn(&mut a, &mut z, start, &q);
        for column in start..end {
            for row in column + 2..end {
                a.set(row, column, (0.0, 0.0));
            }
        }
    }
    (a, z)
}

/// A real block of two rows becomes triangular if its eigenvalues are real, else one with equal elements
/// on the diagonal.
fn standardise(a: &mut Matrix, z: &mut Matrix, at: usize) {
    let [x, y, u, v] = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(row, column)| a.at(at + row, at + column).0);
    let values = pair(a, at);
    let (c, s) = if values[0].1 == 0.0 {
        // An eigenvector, which becomes the first column.
        let value =
            if (values[0].0 - v).abs() >= (values[1].0 - v).abs() { values[0].0 } else { values[1].0 };
        let length = (value - v).hypot(u);
        if length == 0.0 { (1.0, 0.0) } else { ((value - v) / length, u / length) }
    } else {
        // The diagonal's difference is (x - v) cos 2t + (y + u) sin 2t.
        let angle = 0.5 * (v - x).atan2(y + u);
        (angle.cos(), angle.sin())
    };
    let q = Matrix::new(2, 2, vec![(c, 0.0), (-s, 0.0), (s, 0.0), (c, 0.0)]);
    turn(a, z, at, &q);
    if values[0].1 == 0.0 {
        a.set(at + 1, at, (0.0, 0.0));
    } else {
        let middle = 0.5 * (a.at(at, at).0 + a.at(at + 1, at + 1).0);
        a.set(at, at, (middle, 0.0));
        a.set(at + 1, at + 1, (middle, 0.0));
    }
}

/// The eigenvalues, and left and right eigenvectors as columns.
pub fn eigen(a: Matrix) -> (Vec<Number>, Matrix, Matrix) {
    let (form, z) = schur(a, true);
    let length = form.rows;
    let values: Vec<Number> = (0..length).map(|at| form.at(at, at)).collect();
    let right = columns(&form, &z, &values);
    // T^H is lower triangular: with rows and columns in reverse an upper one.
    let reversed = |m: &Matrix| {
        let at = |index: usize| m.at(length - 1 - index / length, length - 1 - index % length);
        Matrix::new(length, length, (0..length * length).map(at).collect())
    };
    let flipped = |m: &Matrix| {
        let at = |index: usize| m.at(index / length, length - 1 - index % length);
        Matrix::new(length, length, (0..length * length).map(at).collect())
    };
    let conjugates: Vec<Number> = values.iter().rev().map(|&x| conj(x)).collect();
    let left = flipped(&columns(&reversed(&form.adjoint()), &flipped(&z), &conjugates));
    (values, left, right)
}

/// `z x` at length 1, for eigenvectors `x` of an upper triangular matrix.
fn columns(form: &Matrix, z: &Matrix, values: &[Number]) -> Matrix {
    let length = form.rows;
    let norm = form.elements.iter().fold(f64::MIN_POSITIVE, |most, &x| most.max(size(x)));
    let mut vectors = Matrix::new(length, length, vec![(0.0, 0.0); length * length]);
    for (column, &value) in values.iter().enumerate() {
        vectors.set(column, column, (1.0, 0.0));
        for row in (0..column).rev() {
            let sum = (row + 1..=column)
                .fold((0.0, 0.0), |sum, at| add(sum, mul(form.at(row, at), vectors.at(at, column))));
            let mut apart = sub(value, form.at(row, row));
            if size(apart) < f64::EPSILON * norm {
                apart = (f64::EPSILON * norm, 0.0);
            }
            vectors.set(row, column, div(sum, apart));
        }
    }
    let mut whole = product(z, &vectors);
    for column in 0..length {
        let own: Vec<Number> = (0..length).map(|row| whole.at(row, column)).collect();
        let squares = own.iter().fold(0.0f64, |sum, x| sum.hypot(x.0).hypot(x.1));
        let largest = own.iter().fold((0.0, 0.0), |most: Number, &x| {
            if x.0.hypot(x.1) > most.0.hypot(most.1) * (1.0 + 1e-12) { x } else { most }
        });
        let phase = scale(conj(largest), 1.0 / (largest.0.hypot(largest.1) * squares));
        for (row, x) in own.into_iter().enumerate() {
            whole.set(row, column, mul(x, phase));
        }
    }
    whole
}
