//! Factorisations in the order of the textbook: Golub and Van Loan, Matrix Computations, 4th ed.,
//! chapters 3 (triangular systems, Gauss), 4 (Cholesky) and 5 (Householder).

use super::matrix::*;

/// The lower triangular factor with `L L^H = a`, of whose lower triangle is read; NaN in the lower
/// triangle if the matrix is not positive definite.
pub fn cholesky(a: &Matrix) -> Matrix {
    let size = a.rows;
    let mut l = Matrix::new(size, size, vec![(0.0, 0.0); size * size]);
    for column in 0..size {
        let taken = |row: usize, l: &Matrix| {
            (0..column)
                .fold(a.at(row, column), |rest, at| sub(rest, mul(l.at(row, at), conj(l.at(column, at)))))
        };
        let square = taken(column, &l).0;
        if square.is_nan() || square <= 0.0 {
            let unknown =
                |index: usize| if index / size >= index % size { (f64::NAN, f64::NAN) } else { (0.0, 0.0) };
            return Matrix::new(size, size, (0..size * size).map(unknown).collect());
        }
        let pivot = square.sqrt();
        l.set(column, column, (pivot, 0.0));
        for row in column + 1..size {
            let value = taken(row, &l);
            l.set(row, column, (value.0 / pivot, value.1 / pivot));
        }
    }
    l
}

/// `P a = L U` with the factors in one matrix, what row each row was exchanged with, and the rows of
/// `a` in their last order. A pivot is the first one of largest absolute value, for a complex number
/// that of its parts added, as in LAPACK.
pub fn lu(mut a: Matrix) -> (Matrix, Vec<usize>, Vec<usize>) {
    let mut order: Vec<usize> = (0..a.rows).collect();
    let mut pivots = Vec::new();
    let size = |x: Number| x.0.abs() + x.1.abs();
    for step in 0..a.rows.min(a.columns) {
        let mut pivot = step;
        for row in step + 1..a.rows {
            if size(a.at(row, step)) > size(a.at(pivot, step)) {
                pivot = row;
            }
        }
        pivots.push(pivot);
        order.swap(step, pivot);
        for column in 0..a.columns {
            a.elements.swap(step * a.columns + column, pivot * a.columns + column);
        }
        if a.at(step, step) == (0.0, 0.0) {
            continue;
        }
        for row in step + 1..a.rows {
            let factor = div(a.at(row, step), a.at(step, step));
            a.set(row, step, factor);
            for column in step + 1..a.columns {
                let value = sub(a.at(row, column), mul(factor, a.at(step, column)));
                a.set(row, column, value);
            }
        }
    }
    (a, pivots, order)
}

/// `x` with `op(a) x = b`, where `op(a)(row, column)` is triangular.
pub fn substitute(a: impl Fn(usize, usize) -> Number, lower: bool, unit: bool, mut b: Matrix) -> Matrix {
    let size = b.rows;
    for step in 0..size {
        let row = if lower { step } else { size - 1 - step };
        let known = if lower { 0..row } else { row + 1..size };
        for column in 0..b.columns {
            let rest = known
                .clone()
                .fold(b.at(row, column), |rest, at| sub(rest, mul(a(row, at), b.at(at, column))));
            b.set(row, column, if unit { rest } else { div(rest, a(row, row)) });
        }
    }
    b
}

/// The reflection `H = I - tau v v^H`, `v = (1, …)`, for which `H^H x` is a real multiple of the first
/// unit vector, as LAPACK has it: `tau`, and that multiple; the rest of `v` takes the place of `x`.
pub fn reflection(x: &mut [Number]) -> (Number, f64) {
    let Some((&mut first, rest)) = x.split_first_mut() else { return ((0.0, 0.0), 0.0) };
    let length = rest.iter().fold(0.0f64, |sum, x| sum.hypot(x.0).hypot(x.1));
    if length == 0.0 && first.1 == 0.0 {
        return ((0.0, 0.0), first.0);
    }
    let whole = first.0.hypot(first.1).hypot(length);
    let multiple = if first.0 >= 0.0 { -whole } else { whole };
    let below = sub(first, (multiple, 0.0));
    rest.iter_mut().for_each(|x| *x = div(*x, below));
    (((multiple - first.0) / multiple, -first.1 / multiple), multiple)
}

/// `H c` for rows from `start` on, where `v = (1, below…)`.
pub fn reflect(c: &mut Matrix, start: usize, below: &[Number], tau: Number, columns: std::ops::Range<usize>) {
    for column in columns {
        let along = below
            .iter()
            .enumerate()
            .fold(c.at(start, column), |sum, (at, &v)| add(sum, mul(conj(v), c.at(start + 1 + at, column))));
        let along = mul(tau, along);
        c.set(start, column, sub(c.at(start, column), along));
        for (at, &v) in below.iter().enumerate() {
            let row = start + 1 + at;
            c.set(row, column, sub(c.at(row, column), mul(v, along)));
        }
    }
}

/// What is below the diagonal in a column.
pub fn below(a: &Matrix, column: usize) -> Vec<Number> {
    (column + 1..a.rows).map(|row| a.at(row, column)).collect()
}

/// `R` in the upper triangle and, below it, the reflections whose product is `Q`, with their factors.
/// With `order` the column of largest rest is exchanged to the front before each step, but for the
/// first `fixed` ones.
pub fn triangularise(mut a: Matrix, fixed: usize, mut order: Option<&mut [usize]>) -> (Matrix, Vec<Number>) {
    let mut taus = Vec::new();
    for step in 0..a.rows.min(a.columns) {
        if let Some(order) = order.as_deref_mut().filter(|_| step >= fixed) {
            let rest = |column: usize| {
                (step..a.rows)
                    .fold(0.0f64, |sum, row| sum.hypot(a.at(row, column).0).hypot(a.at(row, column).1))
            };
            let mut most = step;
            for column in step + 1..a.columns {
                // Columns as long as each other, but for rounding, stay in their order.
                if rest(column) > rest(most) * (1.0 + 1e-12) {
                    most = column;
                }
            }
            order.swap(step, most);
            for row in 0..a.rows {
                a.elements.swap(row * a.columns + step, row * a.columns + most);
            }
        }
        let mut x: Vec<Number> = (step..a.rows).map(|row| a.at(row, step)).collect();
        let (tau, multiple) = reflection(&mut x);
        let columns = step + 1..a.columns;
        reflect(&mut a, step, &x[1..], conj(tau), columns);
        a.set(step, step, (multiple, 0.0));
        for (at, &v) in x[1..].iter().enumerate() {
            a.set(step + 1 + at, step, v);
        }
        taus.push(tau);
    }
    (a, taus)
}

/// `Q c`, or `Q^H c`, of the reflections below the diagonal of `a`.
pub fn multiply(a: &Matrix, taus: &[Number], adjoint: bool, mut c: Matrix) -> Matrix {
    for step in 0..taus.len() {
        let at = if adjoint { step } else { taus.len() - 1 - step };
        let tau = if adjoint { conj(taus[at]) } else { taus[at] };
        let columns = 0..c.columns;
        reflect(&mut c, at, &below(a, at), tau, columns);
    }
    c
}

/// `H` of `a = Q H Q^H`, zero below the elements next to the diagonal, where the reflections are; and
/// their factors.
pub fn hessenberg(mut a: Matrix) -> (Matrix, Vec<Number>) {
    let size = a.rows;
    let mut taus = Vec::new();
    for step in 0..size.saturating_sub(1) {
        let mut x: Vec<Number> = (step + 1..size).map(|row| a.at(row, step)).collect();
        let (tau, multiple) = reflection(&mut x);
        // From the right: the adjoint of the reflection's adjoint on the adjoint.
        let mut turned = a.adjoint();
        reflect(&mut turned, step + 1, &x[1..], conj(tau), 0..size);
        a = turned.adjoint();
        reflect(&mut a, step + 1, &x[1..], conj(tau), step + 1..size);
        a.set(step + 1, step, (multiple, 0.0));
        for (at, &v) in x[1..].iter().enumerate() {
            a.set(step + 2 + at, step, v);
        }
        taus.push(tau);
    }
    (a, taus)
}

/// The tridiagonal form of a Hermitian matrix: reflections in the triangle that is read, the diagonal,
/// the elements beside it, and the reflections' factors.
pub fn tridiagonal(a: &Matrix, lower: bool) -> (Matrix, Vec<f64>, Vec<f64>, Vec<Number>) {
    let size = a.rows;
    // The upper triangle is the lower one of rows and columns in reverse.
    let place = |at: usize| if lower { at } else { size - 1 - at };
    let hermitian = (0..size * size).map(|index| {
        let (row, column) = (index / size, index % size);
        match row.cmp(&column) {
            std::cmp::Ordering::Greater => a.at(place(row), place(column)),
            std::cmp::Ordering::Equal => (a.at(place(row), place(column)).0, 0.0),
            std::cmp::Ordering::Less => conj(a.at(place(column), place(row))),
        }
    });
    let (reduced, mut taus) = hessenberg(Matrix::new(size, size, hermitian.collect()));
    let mut packed = a.clone();
    for row in 0..size {
        for column in 0..=row {
            let value = reduced.at(row, column);
            packed.set(place(row), place(column), if row - column < 2 { (value.0, 0.0) } else { value });
        }
    }
    let mut diagonal: Vec<f64> = (0..size).map(|at| reduced.at(at, at).0).collect();
    let mut beside: Vec<f64> = (1..size).map(|at| reduced.at(at, at - 1).0).collect();
    if !lower {
        diagonal.reverse();
        beside.reverse();
        taus.reverse();
    }
    (packed, diagonal, beside, taus)
}
