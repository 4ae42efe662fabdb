//! Triangular factors of positive definite matrices.

use smallvec::SmallVec;

use super::triangular::TriangularSolve;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// The lower triangular factor `L` with `L L^H` the Hermitian matrix of which the lower triangle is
    /// read; NaN in the lower triangle if it is not positive definite.
    Cholesky "cholesky" {}
}

impl Row for Cholesky {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        square(Self::NAME, operand)?;
        Ok(Types::from_iter([Type::Array(operand.clone())]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| Ok(vec![factors::cholesky(&given[0]).elements]))
    }
}

impl Rules for Cholesky {
    /// `dL = L Φ(L^-1 dA L^-H)` for a Hermitian `dA`, where `Φ` is the lower triangle with half of the
    /// diagonal.
    /// (Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527, 2016, section 3.1.)
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return Ok(no_tangents(1)) };
        let [factor] = atoms(Self::NAME, eqn.outputs)?;
        let right = TriangularSolve { left_side: false, transpose_a: true, conjugate_a: true, ..LOWER };
        let inner = b.emit1(right, &[factor, tangent])?;
        let inner = b.emit1(LOWER, &[factor, inner])?;
        let below = in_triangle(b, inner, true, true)?;
        let on = on_diagonal(b, inner)?;
        let half = b.scale(inner, 0.5)?;
        let inner = b.select(on, half, below)?;
        Ok(SmallVec::from_iter([Some(matmul(b, factor, inner)?)]))
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

/// The solution of `L x = b`.
pub(super) const LOWER: TriangularSolve = TriangularSolve {
    left_side: true,
    lower: true,
    transpose_a: false,
    conjugate_a: false,
    unit_diagonal: false,
};
