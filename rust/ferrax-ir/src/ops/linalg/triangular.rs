//! Solutions of triangular systems.

use smallvec::SmallVec;

use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types};

op_struct! {
    /// The solution of `op(a) x = b`, or of `x op(a) = b` unless `left_side`, where a triangle of `a` is
    /// read and `op` transposes and conjugates.
    TriangularSolve "triangular_solve" {
        left_side: bool,
        lower: bool,
        transpose_a: bool,
        conjugate_a: bool,
        unit_diagonal: bool,
    }
}

impl TriangularSolve {
    /// `op(a)` of a matrix that need not be a triangle.
    fn transformed(&self, b: &mut Builder, a: Atom) -> Result<Atom> {
        let rank = b.rank(a);
        let a = if self.transpose_a { b.move_axis(a, rank - 1, rank - 2)? } else { a };
        if self.conjugate_a && b.dtype(a).is_complex() { b.unary(Unary::Conj, a) } else { Ok(a) }
    }
}

impl Row for TriangularSolve {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [a, right] = over_one_batch(Self::NAME, inputs, [2, 2])?;
        let size = square(Self::NAME, a)?;
        let axis = right.rank() - if self.left_side { 2 } else { 1 };
        if right.shape[axis] != size {
            return Err(value_error!(
                "triangular_solve: shapes {} and {} do not fit: axis {axis} of the second one has to \
                 have the size of the matrix",
                ShowShape(&a.shape),
                ShowShape(&right.shape)
            ));
        }
        Ok(Types::from_iter([Type::Array(right.clone().with_weak(false))]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2, 2], outputs, |given| {
            let (a, right) = (&given[0], &given[1]);
            let conjugate = |x| if self.conjugate_a { matrix::conj(x) } else { x };
            // From the right, all is transposed.
            let turned = self.transpose_a == self.left_side;
            let at = |row, column| conjugate(if turned { a.at(column, row) } else { a.at(row, column) });
            let lower = self.lower != turned;
            let solved = match self.left_side {
                true => factors::substitute(at, lower, self.unit_diagonal, right.clone()),
                false => factors::substitute(at, lower, self.unit_diagonal, right.transposed()).transposed(),
            };
            Ok(vec![solved.elements])
        })
    }
}

impl Rules for TriangularSolve {
    /// `dx = op(a)^-1 (db - op(da) x)`, where of `da` the triangle counts that is read.
    /// (Giles, An extended collection of matrix derivative results, 2008, section 2.3.)
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let [a, _] = atoms(Self::NAME, eqn.inputs)?;
        let [x] = atoms(Self::NAME, eqn.outputs)?;
        let [of_matrix, of_right] = *eqn.tangents else { return Ok(no_tangents(1)) };
        let mut right = of_right;
        if let Some(tangent) = of_matrix {
            let tangent = in_triangle(b, tangent, self.lower, self.unit_diagonal)?;
            let tangent = self.transformed(b, tangent)?;
            let moved = if self.left_side { matmul(b, tangent, x)? } else { matmul(b, x, tangent)? };
            right = Some(match right {
                Some(right) => b.sub(right, moved)?,
                None => b.neg(moved)?,
            });
        }
        let Some(right) = right else { return Ok(no_tangents(1)) };
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[a, right])?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let Some(a) = eqn.inputs.first().and_then(rules::Operand::known) else {
            return Err(unsupported!(
                "'triangular_solve' is transposed in the right-hand side: it is not linear in the matrix"
            ));
        };
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let adjoint = TriangularSolve { transpose_a: !self.transpose_a, ..self.clone() };
        let cotangent = b.emit1(adjoint, &[a, cotangent])?;
        Ok(SmallVec::from_iter([None, Some(cotangent)]))
    }

    /// A batch of right-hand sides of one matrix is one right-hand side.
    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let ([a, right], [None, Some(dim)]) = (atoms(Self::NAME, eqn.inputs)?, eqn.dims) else {
            return batched(self.clone(), b, eqn);
        };
        let rank = b.rank(right);
        let place = if self.left_side { rank - 1 } else { rank - 2 };
        let right = b.move_axis(right, *dim, place)?;
        let shape = b.shape(right);
        let (first, second) = if self.left_side { (rank - 2, rank - 1) } else { (rank - 3, rank - 2) };
        let mut flat = shape.clone();
        flat[first] = shape[first].mul(&shape[second])?;
        flat.remove(second);
        let right = b.reshape(right, &flat)?;
        let solved = b.emit1(self.clone(), &[a, right])?;
        Ok(SmallVec::from_iter([(b.reshape(solved, &shape)?, Some(place))]))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn matrix_axes(&self) -> usize {
        2
    }
}
