//! Steps that decompose matrices. Factors depend on roundings (signs, orders of close values), so they are only
//! held to have the same bits however they are computed; what has to agree with the interpreter is the matrix
//! that is made of them again, or sums that all such factors share. These are as exact as decompositions are backward
//! stable: within a few units of the norm of the matrix (Golub and Van Loan, Matrix Computations, 4th ed., 3-8).

use ferrax_ir::ops::{
    Binary, Cholesky, Clamp, Compare, DotGeneral, Eig, Eigh, Geqp3, Geqrf, Hessenberg, HouseholderProduct,
    Lu, LuPivotsToPermutation, Ormqr, Qr, Schur, Svd, TriangularSolve, Tridiagonal, TridiagonalSolve, Unary,
};
use ferrax_ir::{ArrayType, Atom, DType, Op};

use super::bound::{Bound, EXACT, REPEATABLE, epsilon};
use super::{Made, Maker, Site, Value, dims};
use crate::common::Choices;

/// The largest matrices.
const LARGEST: usize = 9;

/// Matrices: their sizes with those of the batch, and the largest element.
struct Matrices {
    atom: Atom,
    batch: Vec<usize>,
    rows: usize,
    columns: usize,
    dtype: DType,
    magnitude: f64,
}

impl Matrices {
    fn least(&self) -> usize {
        self.rows.min(self.columns)
    }

    fn sizes(&self, rows: usize, columns: usize) -> Vec<usize> {
        [&self.batch[..], &[rows, columns]].concat()
    }

    /// How far matrices that are made of factors may be apart.
    fn error(&self) -> f64 {
        let norm = self.magnitude * ((self.rows * self.columns) as f64).sqrt();
        64.0 * self.rows.max(self.columns) as f64 * epsilon(self.dtype) * norm
    }
}

impl<C: Choices> Maker<'_, C> {
    fn matrices(&mut self, site: &Site) -> Option<Matrices> {
        let &[ref batch @ .., rows, columns] = &site.sizes[..] else { return None };
        let fits = |size: usize| (1..=LARGEST).contains(&size);
        let decomposed = matches!(site.dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128);
        let bounded = site.x.is_finite() && site.x.bound.magnitude <= 64.0;
        (decomposed && bounded && fits(rows) && fits(columns) && batch.iter().product::<usize>() <= 40).then(
            || Matrices {
                atom: site.x.atom,
                batch: batch.to_vec(),
                rows,
                columns,
                dtype: site.dtype,
                magnitude: site.x.bound.magnitude.max(0.25),
            },
        )
    }

    /// The leading square parts.
    fn squares(&mut self, a: Matrices) -> Option<Matrices> {
        let size = a.least();
        let atom = self.leading(a.atom, size, size)?;
        Some(Matrices { atom, rows: size, columns: size, ..a })
    }

    fn leading(&mut self, a: Atom, rows: usize, columns: usize) -> Option<Atom> {
        let rank = self.b.rank(a);
        let a = self.b.slice_axis(a, rank - 2, 0, rows).ok()?;
        self.b.slice_axis(a, rank - 1, 0, columns).ok()
    }

    /// `a b`, of all matrices of a batch.
    fn multiply(&mut self, a: Atom, b: Atom) -> Option<Atom> {
        let rank = self.b.rank(a);
        let batch: Vec<usize> = (0..rank - 2).collect();
        let op = DotGeneral {
            lhs_contracting: [rank - 1][..].into(),
            rhs_contracting: [rank - 2][..].into(),
            lhs_batch: batch[..].into(),
            rhs_batch: batch[..].into(),
            precision: None,
            preferred_element_type: None,
        };
        self.b.emit1(op, &[a, b]).ok()
    }

    /// The conjugate transpose.
    fn adjoint(&mut self, a: Atom) -> Option<Atom> {
        let rank = self.b.rank(a);
        let mut permutation: Vec<usize> = (0..rank).collect();
        permutation.swap(rank - 1, rank - 2);
        let turned = self.b.transpose(a, &permutation).ok()?;
        if self.b.dtype(a).is_complex() { self.b.unary(Unary::Conj, turned).ok() } else { Some(turned) }
    }

    /// What is below the diagonal, or not, with zeros elsewhere.
    fn triangle(&mut self, a: Atom, below: bool) -> Option<Atom> {
        let shape = self.b.shape(a);
        let rank = shape.len();
        let rows = self.b.iota(DType::I32, &shape, rank - 2).ok()?;
        let columns = self.b.iota(DType::I32, &shape, rank - 1).ok()?;
        let inside = self.b.compare(if below { Compare::Gt } else { Compare::Le }, rows, columns).ok()?;
        let zeros = self.b.zeros_like(a).ok()?;
        self.b.select(inside, a, zeros).ok()
    }

    /// Multiples of the identity of such sizes.
    fn identity_of(&mut self, sizes: &[usize], dtype: DType, by: f64) -> Option<Atom> {
        let (shape, rank) = (dims(sizes), sizes.len());
        let rows = self.b.iota(DType::I32, &shape, rank - 2).ok()?;
        let columns = self.b.iota(DType::I32, &shape, rank - 1).ok()?;
        let on = self.b.compare(Compare::Eq, rows, columns).ok()?;
        let on = self.b.convert(on, dtype).ok()?;
        self.b.scale(on, by).ok()
    }

    /// The matrices that permute rows (`turned`: columns) as numbers, counted from `first`, say.
    fn permutation(&mut self, order: Atom, dtype: DType, first: i64, turned: bool) -> Option<Atom> {
        let sizes: Vec<usize> = self.b.shape(order).iter().map(|dim| dim.as_const().unwrap()).collect();
        let rank = sizes.len();
        let shape = dims(&[&sizes[..], &sizes[rank - 1..]].concat());
        // Of rows: element (order[i], i) is one. Of columns: element (i, order[i]).
        let mut along: Vec<usize> = (0..rank).collect();
        along[rank - 1] += usize::from(!turned);
        let order = self.b.broadcast_in_dim(order, &shape, &along).ok()?;
        let places = self.b.iota(DType::I32, &shape, if turned { rank } else { rank - 1 }).ok()?;
        let first = self.b.int_scalar(DType::I32, first);
        let places = self.b.add(places, first).ok()?;
        let on = self.b.compare(Compare::Eq, order, places).ok()?;
        self.b.convert(on, dtype).ok()
    }

    /// The outputs of a decomposition, which are repeatable.
    fn decomposed(&mut self, op: impl Into<Op>, inputs: &[Atom]) -> Option<Vec<Atom>> {
        let made = self.emit(op, inputs, REPEATABLE)?;
        self.ends.extend(&made);
        Some(made.iter().map(|value| value.atom).collect())
    }

    /// A matrix that is made again.
    fn again(&self, a: &Matrices, atom: Atom) -> Made {
        Some(vec![Value { atom, bound: Bound::new(a.magnitude * 1.01, a.error()) }])
    }

    /// Factors by elimination and by reflections.
    pub(super) fn factors(&mut self, site: &Site) -> Made {
        let a = self.matrices(site)?;
        let (least, dtype) = (a.least(), a.dtype);
        match self.choices.below(7) {
            0 => {
                let mut a = self.squares(a)?;
                // What is added to the diagonal exceeds all else in its row.
                let by = (3.0 * a.rows as f64 * a.magnitude).ceil();
                let sizes = a.sizes(a.rows, a.rows);
                let more = self.identity_of(&sizes, dtype, by)?;
                let turned = self.adjoint(a.atom)?;
                let both = self.b.add(a.atom, turned).ok()?;
                a.atom = self.b.add(both, more).ok()?;
                a.magnitude = 2.0 * a.magnitude + by;
                let l = self.decomposed(Cholesky {}, &[a.atom])?[0];
                let turned = self.adjoint(l)?;
                let made = self.multiply(l, turned)?;
                self.again(&a, made)
            }
            1 => {
                let found = self.decomposed(Lu {}, &[a.atom])?;
                let below = self.leading(found[0], a.rows, least)?;
                let below = self.triangle(below, true)?;
                let one = self.identity_of(&a.sizes(a.rows, least), dtype, 1.0)?;
                let l = self.b.add(below, one).ok()?;
                let u = self.leading(found[0], least, a.columns)?;
                let u = self.triangle(u, false)?;
                let made = self.multiply(l, u)?;
                let order = self.permutation(found[2], dtype, 0, false)?;
                let made = self.multiply(order, made)?;
                self.again(&a, made)
            }
            2 | 3 => {
                let op = Qr { pivoting: self.flip(), full_matrices: self.flip() };
                let found = self.decomposed(op.clone(), &[a.atom])?;
                let mut made = self.multiply(found[0], found[1])?;
                if op.pivoting {
                    let order = self.permutation(found[2], dtype, 0, true)?;
                    made = self.multiply(made, order)?;
                }
                self.again(&a, made)
            }
            4 => {
                let found = self.decomposed(Geqrf {}, &[a.atom])?;
                let reflections = self.leading(found[0], a.rows, least)?;
                let r = self.leading(found[0], least, a.columns)?;
                let r = self.triangle(r, false)?;
                let q = self.decomposed(HouseholderProduct {}, &[reflections, found[1]])?[0];
                let made = self.multiply(q, r)?;
                self.again(&a, made)
            }
            5 => {
                let found = self.decomposed(Geqrf {}, &[a.atom])?;
                let reflections = self.leading(found[0], a.rows, least)?;
                let r = self.triangle(found[0], false)?;
                if self.flip() {
                    let made = self
                        .decomposed(Ormqr { left: true, transpose: false }, &[reflections, found[1], r])?[0];
                    return self.again(&a, made);
                }
                // Products with Q and then its adjoint, from the right.
                let turned = self.adjoint(a.atom)?;
                let both = [false, true].into_iter().try_fold(turned, |c, transpose| {
                    let op = Ormqr { left: false, transpose };
                    Some(self.decomposed(op, &[reflections, found[1], c])?[0])
                })?;
                self.again(&a, both)
            }
            _ => {
                let none = self
                    .b
                    .zeros(&ArrayType::of_sizes(&[&a.batch[..], &[a.columns]].concat(), DType::I32))
                    .ok()?;
                let found = self.decomposed(Geqp3 {}, &[a.atom, none])?;
                let reflections = self.leading(found[0], a.rows, least)?;
                let r = self.leading(found[0], least, a.columns)?;
                let r = self.triangle(r, false)?;
                let q = self.decomposed(HouseholderProduct {}, &[reflections, found[2]])?[0];
                let made = self.multiply(q, r)?;
                let order = self.permutation(found[1], dtype, 1, true)?;
                let made = self.multiply(made, order)?;
                self.again(&a, made)
            }
        }
    }

    /// `a`'s columns, each by a number.
    fn scaled_columns(&mut self, a: Atom, by: Atom) -> Option<Atom> {
        let (shape, rank) = (self.b.shape(a), self.b.rank(a));
        let dtype = self.b.dtype(a);
        let by = self.b.convert(by, dtype).ok()?;
        let mut along: Vec<usize> = (0..rank - 1).collect();
        along[rank - 2] = rank - 1;
        let by = self.b.broadcast_in_dim(by, &shape, &along).ok()?;
        self.b.mul(a, by).ok()
    }

    /// The sum of the diagonal.
    fn trace(&mut self, a: &Matrices, of: Atom) -> Option<Atom> {
        let one = self.identity_of(&a.sizes(a.rows, a.columns), a.dtype, 1.0)?;
        let on = self.b.mul(of, one).ok()?;
        let rank = self.b.rank(on);
        self.b.reduce_sum(on, &[rank - 2, rank - 1]).ok()
    }

    /// Singular values and eigenvalues, and forms on the way to them.
    pub(super) fn spectrum(&mut self, site: &Site) -> Made {
        let a = self.matrices(site)?;
        if self.choices.below(4) == 0 {
            let least = a.least();
            let op = Svd { compute_uv: self.choices.below(4) > 0, full_matrices: self.flip() };
            let found = self.decomposed(op.clone(), &[a.atom])?;
            if !op.compute_uv {
                // Singular values are well conditioned.
                let bound = Bound::new(a.magnitude * LARGEST as f64, a.error());
                return Some(vec![Value { atom: found[0], bound }]);
            }
            let u = self.leading(found[1], a.rows, least)?;
            let vt = self.leading(found[2], least, a.columns)?;
            let us = self.scaled_columns(u, found[0])?;
            let made = self.multiply(us, vt)?;
            return self.again(&a, made);
        }
        let mut a = self.squares(a)?;
        let size = a.rows as f64;
        let traced = |a: &Matrices, atom: Atom| {
            Some(vec![Value { atom, bound: Bound::new(size * a.magnitude, size * a.error()) }])
        };
        match self.choices.below(5) {
            kind @ (0 | 1) => {
                let turned = self.adjoint(a.atom)?;
                a.atom = self.b.add(a.atom, turned).ok()?;
                a.magnitude *= 2.0;
                if kind == 0 {
                    let op = Eigh { lower: self.flip(), sort_eigenvalues: true };
                    let found = self.decomposed(op, &[a.atom])?;
                    let scaled = self.scaled_columns(found[0], found[1])?;
                    let turned = self.adjoint(found[0])?;
                    let made = self.multiply(scaled, turned)?;
                    return self.again(&a, made);
                }
                let lower = self.flip();
                let found = self.decomposed(Tridiagonal { lower }, &[a.atom])?;
                let rank = self.b.rank(found[1]);
                let sum = self.b.reduce_sum(found[1], &[rank - 1]).ok()?;
                traced(&a, sum)
            }
            2 => {
                let found = self.decomposed(Hessenberg {}, &[a.atom])?;
                let sum = self.trace(&a, found[0])?;
                traced(&a, sum)
            }
            3 => {
                let found = self.decomposed(Schur { compute_schur_vectors: true }, &[a.atom])?;
                let zt = self.multiply(found[1], found[0])?;
                let turned = self.adjoint(found[1])?;
                let made = self.multiply(zt, turned)?;
                self.again(&a, made)
            }
            _ => {
                let op = Eig {
                    compute_left_eigenvectors: self.flip(),
                    compute_right_eigenvectors: true,
                    enable_eigvec_derivs: false,
                };
                let left = usize::from(op.compute_left_eigenvectors);
                let found = self.decomposed(op, &[a.atom])?;
                let right = found[1 + left];
                let complex = a.dtype.complex()?;
                let whole = self.b.convert(a.atom, complex).ok()?;
                let product = self.multiply(whole, right)?;
                let scaled = self.scaled_columns(right, found[0])?;
                let rest = self.b.sub(product, scaled).ok()?;
                self.ends.push(Value { atom: rest, bound: Bound::new(1.0, a.error()) });
                let rank = self.b.rank(found[0]);
                let sum = self.b.reduce_sum(found[0], &[rank - 1]).ok()?;
                traced(&a, sum)
            }
        }
    }

    /// Systems that are far from singular, so that solutions are close.
    pub(super) fn system(&mut self, site: &Site) -> Made {
        if site.dtype == DType::I32 && site.rank() > 0 {
            return self.pivots(site);
        }
        let a = self.matrices(site)?;
        let (least, dtype) = (a.least(), a.dtype);
        if self.flip() {
            // Other rows of `a` by its size, so that they are small beside the diagonal.
            let (left_side, unit_diagonal) = (self.flip(), self.flip());
            let matrix = self.leading(a.atom, least, least)?;
            let small = self.b.scale(matrix, 0.125 / a.magnitude.ceil()).ok()?;
            let twice = self.identity_of(&a.sizes(least, least), dtype, 2.0)?;
            let matrix = self.b.add(small, twice).ok()?;
            let (rows, columns) = if left_side { (least, a.columns) } else { (a.rows, least) };
            let right = self.leading(a.atom, rows, columns)?;
            let transpose_a = self.flip();
            let conjugate_a = transpose_a && dtype.is_complex() && self.flip();
            let op =
                TriangularSolve { left_side, lower: self.flip(), transpose_a, conjugate_a, unit_diagonal };
            let magnitude = a.magnitude * 1.25f64.powi(least as i32);
            let bound = Bound::new(magnitude, 16.0 * least as f64 * epsilon(dtype) * magnitude);
            return self.emit(op, &[matrix, right], bound);
        }
        let rank = self.b.rank(a.atom);
        let mut diagonal = |column: usize| {
            let column = self.b.slice_axis(a.atom, rank - 1, column, column + 1).ok()?;
            self.b.squeeze(column, &[rank - 1]).ok()
        };
        let (lower, middle, upper) = (diagonal(0)?, diagonal(a.columns - 1)?, diagonal(a.columns / 2)?);
        let shape = self.b.shape(middle);
        let by = self.b.scalar(dtype, (4.0 * a.magnitude).ceil());
        let by = self.b.broadcast_scalar(by, &shape).ok()?;
        let middle = self.b.binary(Binary::Add, middle, by).ok()?;
        let op = TridiagonalSolve { perturb_singular: self.flip() };
        let bound = Bound::new(a.magnitude, 64.0 * a.rows as f64 * epsilon(dtype) * a.magnitude);
        self.emit(op, &[lower, middle, upper, a.atom], bound)
    }

    /// The order of rows after exchanges.
    fn pivots(&mut self, site: &Site) -> Made {
        let rank = site.rank();
        let count = site.sizes[rank - 1];
        if count == 0 || count > 64 {
            return None;
        }
        let size = count + self.choices.below(3);
        let shape = dims(&site.sizes);
        let low = self.b.iota(DType::I32, &shape, rank - 1).ok()?;
        let high = self.b.int_scalar(DType::I32, size as i64 - 1);
        let high = self.b.broadcast_scalar(high, &shape).ok()?;
        let pivots = self.emit(Clamp {}, &[low, site.x.atom, high], EXACT)?[0];
        site.x
            .is_exact()
            .then(|| self.exactly(LuPivotsToPermutation { permutation_size: size }, &[pivots]))?
    }
}
