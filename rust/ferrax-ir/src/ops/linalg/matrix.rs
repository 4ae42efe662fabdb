//! Matrices of complex numbers in double precision, for reference evaluation.

pub type Number = (f64, f64);

pub fn mul(x: Number, y: Number) -> Number {
    (x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0)
}

pub fn conj(x: Number) -> Number {
    (x.0, -x.1)
}

pub fn add(x: Number, y: Number) -> Number {
    (x.0 + y.0, x.1 + y.1)
}

pub fn sub(x: Number, y: Number) -> Number {
    (x.0 - y.0, x.1 - y.1)
}

/// The quotient, of reals that of reals. (R. L. Smith, Algorithm 116: complex division, Communications
/// of the ACM 5, 1962.)
pub fn div(x: Number, y: Number) -> Number {
    if y.1 == 0.0 && x.1 == 0.0 {
        return (x.0 / y.0, 0.0);
    }
    if y.0.abs() >= y.1.abs() {
        let ratio = y.1 / y.0;
        let divisor = y.0 + y.1 * ratio;
        return ((x.0 + x.1 * ratio) / divisor, (x.1 - x.0 * ratio) / divisor);
    }
    let ratio = y.0 / y.1;
    let divisor = y.0 * ratio + y.1;
    ((x.0 * ratio + x.1) / divisor, (x.1 * ratio - x.0) / divisor)
}

pub fn scale(x: Number, by: f64) -> Number {
    (x.0 * by, x.1 * by)
}

/// A matrix, row by row.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub elements: Vec<Number>,
}

impl Matrix {
    pub fn new(rows: usize, columns: usize, elements: Vec<Number>) -> Matrix {
        Matrix { rows, columns, elements }
    }

    pub fn identity(size: usize) -> Matrix {
        let one = |index| if index % (size + 1) == 0 { (1.0, 0.0) } else { (0.0, 0.0) };
        Matrix::new(size, size, (0..size * size).map(one).collect())
    }

    pub fn at(&self, row: usize, column: usize) -> Number {
        self.elements[row * self.columns + column]
    }

    pub fn set(&mut self, row: usize, column: usize, value: Number) {
        self.elements[row * self.columns + column] = value;
    }

    pub fn adjoint(&self) -> Matrix {
        let elements = (0..self.rows * self.columns)
            .map(|index| conj(self.at(index % self.rows, index / self.rows)))
            .collect();
        Matrix::new(self.columns, self.rows, elements)
    }

    pub fn transposed(&self) -> Matrix {
        let elements = (0..self.rows * self.columns)
            .map(|index| self.at(index % self.rows, index / self.rows))
            .collect();
        Matrix::new(self.columns, self.rows, elements)
    }

    /// The columns of these numbers.
    pub fn take(&self, columns: &[usize]) -> Matrix {
        let elements = (0..self.rows).flat_map(|row| columns.iter().map(move |&column| self.at(row, column)));
        Matrix::new(self.rows, columns.len(), elements.collect())
    }

    /// The `n` for which the largest part of an element is in `[0.5, 1)` times `2^n`. Matrices are
    /// multiplied by such powers, which is exact, for products of elements to be numbers.
    pub fn exponent(&self) -> i32 {
        let largest = self.elements.iter().fold(0.0f64, |most, x| most.max(x.0.abs()).max(x.1.abs()));
        if largest.is_finite() { libm::frexp(largest).1 } else { 0 }
    }

    pub fn multiply(&mut self, exponent: i32) {
        for x in &mut self.elements {
            *x = (libm::ldexp(x.0, exponent), libm::ldexp(x.1, exponent));
        }
    }

    /// The inner product of two columns.
    pub fn inner(&self, p: usize, q: usize) -> Number {
        (0..self.rows).fold((0.0, 0.0), |sum, row| add(sum, mul(conj(self.at(row, p)), self.at(row, q))))
    }

    /// `self` plus a multiple of column `from` of `other` in column `to`.
    pub fn add_column(&mut self, to: usize, other: &[Number], by: Number) {
        for (row, &value) in other.iter().enumerate() {
            let sum = add(self.at(row, to), mul(by, value));
            self.set(row, to, sum);
        }
    }

    pub fn column(&self, column: usize) -> Vec<Number> {
        (0..self.rows).map(|row| self.at(row, column)).collect()
    }
}
