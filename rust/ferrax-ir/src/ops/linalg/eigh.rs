//! Eigenvalues and eigenvectors of Hermitian matrices.

use smallvec::SmallVec;

use super::jacobi::hermitian;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Row, Rules, Types, not_linear};

op_struct! {
    /// Eigenvectors as columns, and real eigenvalues, of Hermitian matrices of which one triangle is
    /// read.
    Eigh "eigh" { lower: bool, sort_eigenvalues: bool }
}

impl Eigh {
    /// The Hermitian matrix of which one triangle counts.
    fn completed(&self, mut a: Matrix) -> Matrix {
        for row in 0..a.rows {
            for column in 0..a.columns {
                let given = if self.lower { row >= column } else { row <= column };
                let (re, im) = if given { a.at(row, column) } else { a.at(column, row) };
                let im = match row == column {
                    true => 0.0,
                    false if given => im,
                    false => -im,
                };
                a.elements[row * a.columns + column] = (re, im);
            }
        }
        a
    }
}

impl Row for Eigh {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        if rows != columns {
            return Err(type_error!(
                "eigh requires square matrices in the last two axes, got shape {}",
                ShowShape(&operand.shape)
            ));
        }
        Ok(SmallVec::from_iter([
            of_batch(operand, &[&rows, &columns], operand.dtype),
            of_batch(operand, &[&rows], operand.dtype.real()),
        ]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let read = |a| self.completed(a);
        each_matrix(operand, outputs, read, |a| {
            let (values, vectors) = hermitian(a, self.sort_eigenvalues);
            vec![vectors.elements, values.into_iter().map(|value| (value, 0.0)).collect()]
        })
    }
}

impl Rules for Eigh {
    /// With `D = V* dA V`: `dw` is the diagonal of `D`, and `dV = V (F ∘ D)` where `F` is
    /// `1 / (w_j - w_i)` off the diagonal. Vectors of equal eigenvalues have no derivative: NaN.
    /// (Giles, An extended collection of matrix derivative results, 2008, section 3.1.)
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return Ok(no_tangents(2)) };
        let [vectors, values] = atoms(Self::NAME, eqn.outputs)?;
        let size = b.shape(values).last().cloned().unwrap_or(Dim::Const(0));
        let back = adjoint(b, vectors)?;
        let turned = matmul(b, back, tangent)?;
        let turned = matmul(b, turned, vectors)?;
        let columns = spread(b, values, &size, true)?;
        let rows = spread(b, values, &size, false)?;
        let differences = b.sub(columns, rows)?;
        let identity = identity_like(b, differences)?;
        let safe = b.add(differences, identity)?;
        let ones = b.full_like(safe, 1.0)?;
        let inverse = b.div(ones, safe)?;
        let factors = b.sub(inverse, identity)?;
        let factors = as_complex(b, factors, turned)?;
        let mixed = b.mul(factors, turned)?;
        let vectors = matmul(b, vectors, mixed)?;
        let along = diagonal(b, turned)?;
        Ok(SmallVec::from_iter([Some(vectors), Some(real(b, along)?)]))
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
