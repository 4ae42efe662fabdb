//! Eigenvalues and eigenvectors of matrices of any kind, and Schur's form.

use smallvec::SmallVec;

use super::super::{ArgKind, ArgReduce, Compare};
use super::cholesky::LOWER;
use super::lu::in_order;
use super::reflectors::without_derivative;
use super::triangular::TriangularSolve;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// Eigenvalues, complex and in no order, and, where they are asked for, left and right eigenvectors as
    /// columns: of length 1, with a real element of largest absolute value.
    Eig "eig" {
        compute_left_eigenvectors: bool,
        compute_right_eigenvectors: bool,
        enable_eigvec_derivs: bool,
    }
}
op_struct! {
    /// Schur's form `T` of `a = Z T Z^H`, triangular or, of real matrices, with blocks of two rows, and
    /// `Z` if it is asked for.
    Schur "schur" { compute_schur_vectors: bool }
}

impl Row for Eig {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let size = square(Self::NAME, operand)?;
        let complex = operand.dtype.complex().unwrap_or(operand.dtype);
        let count =
            usize::from(self.compute_left_eigenvectors) + usize::from(self.compute_right_eigenvectors);
        let mut types = Types::from_iter([of_batch(operand, &[&size], complex)]);
        types.extend((0..count).map(|_| of_batch(operand, &[&size, &size], complex)));
        Ok(types)
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        each_matrix(
            operand,
            outputs,
            |a| a,
            |a| {
                let (values, left, right) = iteration::eigen(a);
                let left = self.compute_left_eigenvectors.then_some(left.elements);
                let right = self.compute_right_eigenvectors.then_some(right.elements);
                [Some(values), left, right].into_iter().flatten().collect()
            },
        )
    }
}

/// `x` with `a x = right`.
fn solved(b: &mut Builder, a: Atom, right: Atom) -> Result<Atom> {
    let factored = b.emit(super::Lu {}, &[a])?;
    let [factors, _, order] = <[crate::Var; 3]>::try_from(factored.as_slice())
        .map_err(|_| internal_error!("lu has three outputs"))?
        .map(Atom::Var);
    let right = in_order(b, right, order)?;
    let half = b.emit1(TriangularSolve { unit_diagonal: true, ..LOWER }, &[factors, right])?;
    b.emit1(TriangularSolve { lower: false, ..LOWER }, &[factors, half])
}

/// The sums of columns, `[…, n]`.
fn column_sums(b: &mut Builder, x: Atom) -> Result<Atom> {
    let rank = b.rank(x);
    b.reduce_sum(x, &[rank - 2])
}

/// The tangents of eigenvalues and of their right eigenvectors.
///
/// With `P = V^-1 dA V`: `dw` is the diagonal of `P` and `dV = V (F ∘ P) + V C`, where `F` is
/// `1 / (w_j - w_i)` off the diagonal and `C` is diagonal, for vectors are known but for a factor each
/// (Giles, An extended collection of matrix derivative results, 2008, section 3.1). That their length
/// stays 1 makes the real part of `c_j` that of `-v_j^H u_j`, where `U = V (F ∘ P)`; that their largest
/// element `v_kj` stays real makes its imaginary part `-Im(u_kj) / v_kj`.
fn perturbed(b: &mut Builder, values: Atom, vectors: Atom, tangent: Atom) -> Result<(Atom, Atom)> {
    let size = b.shape(values).last().cloned().unwrap_or(Dim::Const(0));
    let turned = matmul(b, tangent, vectors)?;
    let turned = solved(b, vectors, turned)?;
    let along = diagonal(b, turned)?;
    let columns = spread(b, values, &size, true)?;
    let rows = spread(b, values, &size, false)?;
    let apart = b.sub(columns, rows)?;
    let identity = identity_like(b, apart)?;
    let safe = b.add(apart, identity)?;
    let ones = b.full_like(safe, 1.0)?;
    let inverse = b.div(ones, safe)?;
    let factors = b.sub(inverse, identity)?;
    let mixed = b.mul(factors, turned)?;
    let moved = matmul(b, vectors, mixed)?;

    let conjugate = b.unary(Unary::Conj, vectors)?;
    let inner = b.mul(conjugate, moved)?;
    let inner = column_sums(b, inner)?;
    let shrink = b.unary(Unary::Real, inner)?;
    let sizes = b.unary(Unary::Abs, vectors)?;
    let axis = b.rank(sizes) - 2;
    let op = ArgReduce { kind: ArgKind::Max, axes: SmallVec::from_iter([axis]), index_dtype: DType::I32 };
    let largest = b.emit1(op, &[sizes])?;
    let largest = spread(b, largest, &size, true)?;
    let shape = b.shape(largest);
    let own = b.iota(DType::I32, &shape, axis)?;
    let there = b.compare(Compare::Eq, own, largest)?;
    let zeros = b.zeros_like(moved)?;
    let at_largest = |b: &mut Builder, x: Atom| -> Result<Atom> {
        let kept = b.select(there, x, zeros)?;
        column_sums(b, kept)
    };
    let turn = at_largest(b, moved)?;
    let turn = b.unary(Unary::Imag, turn)?;
    let length = at_largest(b, vectors)?;
    let length = b.unary(Unary::Real, length)?;
    let turn = b.div(turn, length)?;
    let factor = b.binary(super::super::Binary::Complex, shrink, turn)?;
    let factor = spread(b, factor, &size, true)?;
    let own = b.mul(vectors, factor)?;
    Ok((along, b.sub(moved, own)?))
}

impl Rules for Eig {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let count = eqn.outputs.len();
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return Ok(no_tangents(count)) };
        let [a] = atoms(Self::NAME, eqn.inputs)?;
        let values = eqn.outputs[0];
        if count > 1 && !self.enable_eigvec_derivs {
            return Err(unsupported!(
                "Differentiation rule for eigenvectors of 'eig' not implemented unless enable_eigvec_derivs=True is \
                 passed to lax.linalg.eig: they are defined but for a factor each, and have derivatives where the \
                 eigenvalues are distinct and one element is the largest"
            ));
        }
        let tangent = b.convert(tangent, b.dtype(values))?;
        let right = if self.compute_right_eigenvectors {
            eqn.outputs[count - 1]
        } else if self.compute_left_eigenvectors {
            // (V^-1)^H are left eigenvectors; dA^H gives what follows from them.
            let back = adjoint(b, tangent)?;
            let conjugate = b.unary(Unary::Conj, values)?;
            let (along, of_left) = perturbed(b, conjugate, eqn.outputs[1], back)?;
            let along = b.unary(Unary::Conj, along)?;
            return Ok(SmallVec::from_iter([Some(along), Some(of_left)]));
        } else {
            let op = Eig { compute_right_eigenvectors: true, ..self.clone() };
            let outputs = b.emit(op, &[a])?;
            let right = outputs.last().ok_or_else(|| internal_error!("eig has no vectors"))?;
            let right = Atom::Var(*right);
            let turned = matmul(b, tangent, right)?;
            let turned = solved(b, right, turned)?;
            return Ok(SmallVec::from_iter([Some(diagonal(b, turned)?)]));
        };
        let (along, of_right) = perturbed(b, values, right, tangent)?;
        let mut tangents = SmallVec::from_iter([Some(along)]);
        if self.compute_left_eigenvectors {
            let back = adjoint(b, tangent)?;
            let conjugate = b.unary(Unary::Conj, values)?;
            let (_, of_left) = perturbed(b, conjugate, eqn.outputs[1], back)?;
            tangents.push(Some(of_left));
        }
        tangents.push(Some(of_right));
        Ok(tangents)
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

impl Row for Schur {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        square(Self::NAME, operand)?;
        let count = 1 + usize::from(self.compute_schur_vectors);
        Ok((0..count).map(|_| Type::Array(operand.clone())).collect())
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let complex = operand.dtype().is_complex();
        each_matrix(
            operand,
            outputs,
            |a| a,
            |a| {
                let (form, vectors) = iteration::schur(a, complex);
                vec![form.elements, vectors.elements]
            },
        )
    }
}

impl Rules for Schur {
    without_derivative!();
}
