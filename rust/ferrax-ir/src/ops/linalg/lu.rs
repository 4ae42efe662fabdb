//! Gauss' elimination with exchanges of rows.

use smallvec::SmallVec;

use super::cholesky::LOWER;
use super::triangular::TriangularSolve;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// `P a = L U`: both factors in one matrix (the diagonal of `L` is 1), the row that each row was
    /// exchanged with, and the rows of `a` in their last order.
    Lu "lu" {}
}

impl Row for Lu {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        let least = least(Self::NAME, &rows, &columns)?;
        let discrete = |size: &Dim| match of_batch(operand, &[size], DType::I32) {
            Type::Array(ty) => Type::Array(ty.with_weak(false)),
            other => other,
        };
        Ok(Types::from_iter([Type::Array(operand.clone()), discrete(&least), discrete(&rows)]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| {
            let (lu, pivots, order) = factors::lu(given[0].clone());
            let numbers = |all: Vec<usize>| all.into_iter().map(|at| (at as f64, 0.0)).collect();
            Ok(vec![lu.elements, numbers(pivots), numbers(order)])
        })
    }
}

/// The permutation matrix `P`, of which row `i` is the unit vector `order[i]`, in the dtype of `like`.
pub(super) fn permutation(b: &mut Builder, order: Atom, like: Atom) -> Result<Atom> {
    let size = b.shape(order).last().cloned().unwrap_or(Dim::Const(0));
    let wanted = spread(b, order, &size, false)?;
    let shape = b.shape(wanted);
    let columns = b.iota(DType::I32, &shape, shape.len() - 1)?;
    let ones = b.compare(Compare::Eq, wanted, columns)?;
    b.convert(ones, b.dtype(like))
}

/// The rows of `x` in this order.
pub(super) fn in_order(b: &mut Builder, x: Atom, order: Atom) -> Result<Atom> {
    let shape = b.shape(x);
    let columns = &shape[shape.len() - 1];
    let places = spread(b, order, columns, false)?;
    let mut indices = b.shape(places);
    indices.push(Dim::Const(1));
    let places = b.reshape(places, &indices)?;
    super::super::sort::take_along(b, x, places, shape.len() - 2)
}

impl Rules for Lu {
    /// With `T = L^-1 P dA U^-1`: `dL = L tril(T, -1)` and `dU = triu(T) U`. Where `a` is not square the
    /// smaller factor is completed by rows and columns of the identity matrix.
    /// (de Hoog, Anderssen and Lukas, Differentiation of matrix functionals using triangular
    /// factorization, Mathematics of Computation 80, 2011.)
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return Ok(no_tangents(3)) };
        let [lu, _, order] = atoms(Self::NAME, eqn.outputs)?;
        let shape = b.shape(lu);
        let [rows, columns] = [2, 1].map(|axis| constant(Self::NAME, &shape[shape.len() - axis]));
        let (rows, columns) = (rows?, columns?);
        let lower = resized(b, lu, rows, rows)?;
        let lower = in_triangle(b, lower, true, true)?;
        let identity = identity_like(b, lower)?;
        let lower = b.add(lower, identity)?;
        let upper = resized(b, lu, columns, columns)?;
        let mut upper = in_triangle(b, upper, false, false)?;
        if columns > rows {
            let rest = identity_like(b, upper)?;
            let shape = b.shape(rest);
            let at = b.iota(DType::I32, &shape, shape.len() - 1)?;
            let first = b.int_scalar(DType::I32, rows as i64);
            let beyond = b.compare(Compare::Ge, at, first)?;
            let zeros = b.zeros_like(rest)?;
            let rest = b.select(beyond, rest, zeros)?;
            upper = b.add(upper, rest)?;
        }
        let tangent = in_order(b, tangent, order)?;
        let unit = TriangularSolve { unit_diagonal: true, ..LOWER };
        let inner = b.emit1(unit, &[lower, tangent])?;
        let right = TriangularSolve { left_side: false, lower: false, ..LOWER };
        let inner = b.emit1(right, &[upper, inner])?;
        let below = in_triangle(b, inner, true, true)?;
        let above = in_triangle(b, inner, false, false)?;
        let of_lower = matmul(b, lower, below)?;
        let of_upper = matmul(b, above, upper)?;
        Ok(SmallVec::from_iter([Some(b.add(of_lower, of_upper)?), None, None]))
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        batched(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn matrix_axes(&self) -> usize {
        2
    }
}
