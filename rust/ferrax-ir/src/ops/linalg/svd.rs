//! Singular values and vectors.

use smallvec::SmallVec;

use super::jacobi::singular;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Row, Rules, Types, not_linear};

op_struct! {
    /// Singular values, descending, and, if asked for, left vectors as columns and right ones as
    /// conjugated rows: as many as values or, if `full_matrices`, as rows and columns.
    Svd "svd" { compute_uv: bool, full_matrices: bool }
}

impl Row for Svd {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        let least = least(Self::NAME, &rows, &columns)?;
        let mut types = Types::from_iter([of_batch(operand, &[&least], operand.dtype.real())]);
        if self.compute_uv {
            let [left, right] = if self.full_matrices { [&rows, &columns] } else { [&least, &least] };
            types.push(of_batch(operand, &[&rows, left], operand.dtype));
            types.push(of_batch(operand, &[right, &columns], operand.dtype));
        }
        Ok(types)
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        each_matrix(
            operand,
            outputs,
            |a| a,
            |a| {
                let full = self.full_matrices && self.compute_uv;
                let (left, values, right) = singular(&a, full);
                let right = if full { right } else { right.take(&(0..values.len()).collect::<Vec<_>>()) };
                let values = values.into_iter().map(|value| (value, 0.0)).collect();
                vec![values, left.elements, right.adjoint().elements]
            },
        )
    }
}

/// `[…, i, j]` from the values of the columns and of the rows.
fn of_pairs(b: &mut Builder, values: Atom) -> Result<(Atom, Atom)> {
    let size = b.shape(values).last().cloned().unwrap_or(Dim::Const(0));
    Ok((spread(b, values, &size, true)?, spread(b, values, &size, false)?))
}

/// `x + conj(x)^T`, or the difference.
fn with_adjoint(b: &mut Builder, x: Atom, plus: bool) -> Result<Atom> {
    let other = adjoint(b, x)?;
    if plus { b.add(x, other) } else { b.sub(x, other) }
}

/// What a tangent has outside of the span of `vectors`, divided by the values.
fn outside(b: &mut Builder, tangent: Atom, vectors: Atom, values: Atom) -> Result<Atom> {
    let back = adjoint(b, vectors)?;
    let inside = matmul(b, back, tangent)?;
    let inside = matmul(b, vectors, inside)?;
    let rest = b.sub(tangent, inside)?;
    let shape = b.shape(rest);
    let rows = &shape[shape.len() - 2];
    let divisor = spread(b, values, rows, true)?;
    let divisor = as_complex(b, divisor, rest)?;
    b.div(rest, divisor)
}

impl Svd {
    /// (Townsend, Differentiating the singular value decomposition, 2016.)
    fn tangents(&self, b: &mut Builder, a: Atom, tangent: Atom, outputs: [Atom; 3]) -> Result<Tangents> {
        let [values, left, right] = outputs;
        let shape = b.shape(a);
        let rank = shape.len();
        let (tall, wide) = match (shape[rank - 2].as_const(), shape[rank - 1].as_const()) {
            (Some(rows), Some(columns)) => (rows > columns, rows < columns),
            _ => (false, false),
        };
        let back = adjoint(b, left)?;
        let from = adjoint(b, right)?;
        let turned = matmul(b, back, tangent)?;
        let turned = matmul(b, turned, from)?;
        let along = diagonal(b, turned)?;
        let along = real(b, along)?;

        let (columns, rows) = of_pairs(b, values)?;
        let identity = identity_like(b, columns)?;
        let sums = b.add(columns, rows)?;
        let differences = b.sub(columns, rows)?;
        let squares = b.mul(sums, differences)?;
        let safe = b.add(squares, identity)?;
        let ones = b.full_like(safe, 1.0)?;
        let inverse = b.div(ones, safe)?;
        let factors = b.sub(inverse, identity)?;
        let factors = as_complex(b, factors, turned)?;
        let [columns, rows, identity] = [columns, rows, identity].map(|x| as_complex(b, x, turned));

        // A vector and its partner turn together: for a complex matrix, all of it on the left side.
        let zeros = b.zeros_like(values)?;
        let vanish = b.compare(Compare::Eq, values, zeros)?;
        let vanish = b.convert(vanish, b.dtype(values))?;
        let safe = b.add(values, vanish)?;
        let ones = b.full_like(safe, 1.0)?;
        let inverse = b.div(ones, safe)?;
        let inverse = b.sub(inverse, vanish)?;
        let (inverse, _) = of_pairs(b, inverse)?;
        let inverse = as_complex(b, inverse, turned)?;
        let inverse = b.mul(inverse, identity?)?;
        let skew = with_adjoint(b, turned, false)?;
        let skew = b.scale(skew, 0.5)?;
        let partner = b.mul(skew, inverse)?;

        let weighted = b.mul(columns?, turned)?;
        let weighted = with_adjoint(b, weighted, true)?;
        let weighted = b.mul(factors, weighted)?;
        let weighted = b.add(weighted, partner)?;
        let mut of_left = matmul(b, left, weighted)?;
        let weighted = b.mul(rows?, turned)?;
        let weighted = with_adjoint(b, weighted, true)?;
        let weighted = b.mul(factors, weighted)?;
        let mut of_right = matmul(b, from, weighted)?;
        if tall {
            let image = matmul(b, tangent, from)?;
            let rest = outside(b, image, left, values)?;
            of_left = b.add(of_left, rest)?;
        }
        if wide {
            let back = adjoint(b, tangent)?;
            let image = matmul(b, back, left)?;
            let rest = outside(b, image, from, values)?;
            of_right = b.add(of_right, rest)?;
        }
        Ok(SmallVec::from_iter([Some(along), Some(of_left), Some(adjoint(b, of_right)?)]))
    }
}

impl Rules for Svd {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let count = eqn.outputs.len();
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return Ok(no_tangents(count)) };
        let [a] = atoms(Self::NAME, eqn.inputs)?;
        if !self.compute_uv {
            let thin = Svd { compute_uv: true, full_matrices: false };
            let outputs: SmallVec<[Atom; 3]> = b.emit(thin, &[a])?.into_iter().map(Atom::Var).collect();
            let outputs = atoms(Self::NAME, &outputs)?;
            let mut tangents = self.tangents(b, a, tangent, outputs)?;
            tangents.truncate(1);
            return Ok(tangents);
        }
        let shape = b.shape(a);
        if self.full_matrices && shape[shape.len() - 2] != shape[shape.len() - 1] {
            return Err(unsupported!(
                "svd with full_matrices=True has no derivative: the vectors beyond the singular values \
                 are not determined by the matrix; use full_matrices=False"
            ));
        }
        let outputs = atoms(Self::NAME, eqn.outputs)?;
        self.tangents(b, a, tangent, outputs)
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
