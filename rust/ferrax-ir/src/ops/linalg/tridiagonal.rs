//! Tridiagonal systems, and reductions to tridiagonal and Hessenberg's form.

use smallvec::SmallVec;

use super::reflectors::without_derivative;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// The solution of a tridiagonal system, from the diagonals below, on and above the main one and the
    /// right-hand sides. The first element of the lower one and the last of the upper one are not read.
    /// A singular matrix gives NaN, or with `perturb_singular` is changed by its rounding.
    TridiagonalSolve "tridiagonal_solve" { perturb_singular: bool }
}
op_struct! {
    /// The reduction of Hermitian matrices, of which one triangle is read, to tridiagonal form: the
    /// reflections in that triangle, the diagonal, the elements beside it, and the reflections' factors.
    Tridiagonal "tridiagonal" { lower: bool }
}
op_struct! {
    /// The reduction to Hessenberg's form, with the reflections below it, and their factors.
    Hessenberg "hessenberg" {}
}

impl Row for TridiagonalSolve {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [lower, middle, upper, right] = over_one_batch(Self::NAME, inputs, [1, 1, 1, 2])?;
        if lower.shape != middle.shape || upper.shape != middle.shape {
            return Err(type_error!(
                "tridiagonal_solve takes diagonals of one shape, got {}, {} and {}",
                ShowShape(&lower.shape),
                ShowShape(&middle.shape),
                ShowShape(&upper.shape)
            ));
        }
        if right.shape[..right.rank() - 1] != middle.shape[..] {
            return Err(type_error!(
                "tridiagonal_solve takes right-hand sides whose axes but the last are those of the diagonals, got {} \
                 and {}",
                ShowShape(&right.shape),
                ShowShape(&middle.shape)
            ));
        }
        Ok(Types::from_iter([Type::Array(right.clone().with_weak(false))]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[1, 1, 1, 2], outputs, |given| {
            let [lower, middle, upper, right] = given else {
                return Err(internal_error!("tridiagonal_solve of {} operands", given.len()));
            };
            let size = middle.rows;
            let dense = |row: usize, column: usize| match (row + 1).checked_sub(column) {
                Some(0) => upper.elements[row],
                Some(1) => middle.elements[row],
                Some(2) => lower.elements[row],
                _ => (0.0, 0.0),
            };
            let dense = (0..size * size).map(|index| dense(index / size, index % size)).collect();
            let (mut factors, _, order) = factors::lu(Matrix::new(size, size, dense));
            let sizes = factors.elements.iter().map(|x| x.0.abs() + x.1.abs());
            let least = sizes.fold(0.0, f64::max) * f64::EPSILON;
            for at in 0..size {
                let pivot = factors.at(at, at);
                if self.perturb_singular && pivot.0.abs() + pivot.1.abs() < least {
                    factors.set(at, at, (if pivot.0 < 0.0 { -least } else { least }, 0.0));
                } else if pivot == (0.0, 0.0) {
                    return Ok(vec![vec![(f64::NAN, f64::NAN); right.elements.len()]]);
                }
            }
            let moved =
                order.iter().flat_map(|&row| (0..right.columns).map(move |column| right.at(row, column)));
            let moved = Matrix::new(size, right.columns, moved.collect());
            let half = factors::substitute(|row, column| factors.at(row, column), true, true, moved);
            let whole = factors::substitute(|row, column| factors.at(row, column), false, false, half);
            Ok(vec![whole.elements])
        })
    }
}

/// The elements of vectors one place further (`down`), or one before, with zero in the place left.
fn shifted(b: &mut Builder, x: Atom, axis: usize, down: bool) -> Result<Atom> {
    let mut config = vec![(0, 0, 0); b.rank(x)];
    config[axis] = if down { (1, -1, 0) } else { (-1, 1, 0) };
    let zero = b.scalar(b.dtype(x), 0.0);
    b.emit1(Pad { padding_config: config }, &[x, zero])
}

impl Rules for TridiagonalSolve {
    /// `dx = A^-1 (db - dA x)`.
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let [lower, middle, upper, _] = atoms(Self::NAME, eqn.inputs)?;
        let [x] = atoms(Self::NAME, eqn.outputs)?;
        let [of_lower, of_middle, of_upper, mut right] = *eqn.tangents else { return Ok(no_tangents(1)) };
        let axis = b.rank(x) - 2;
        let columns = b.shape(x)[axis + 1].clone();
        // Rows meet the solution's row before, their own, and the one behind.
        for (tangent, shift) in [(of_lower, Some(true)), (of_middle, None), (of_upper, Some(false))] {
            let Some(tangent) = tangent else { continue };
            let beside = match shift {
                Some(down) => shifted(b, x, axis, down)?,
                None => x,
            };
            let tangent = spread(b, tangent, &columns, false)?;
            let moved = b.mul(tangent, beside)?;
            right = Some(match right {
                Some(right) => b.sub(right, moved)?,
                None => b.neg(moved)?,
            });
        }
        let Some(right) = right else { return Ok(no_tangents(1)) };
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[lower, middle, upper, right])?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let known: Option<SmallVec<[Atom; 3]>> = eqn.inputs[..3].iter().map(rules::Operand::known).collect();
        let Some([lower, middle, upper]) = known.as_deref().and_then(|x| <[Atom; 3]>::try_from(x).ok())
        else {
            return Err(unsupported!(
                "'tridiagonal_solve' is transposed in the right-hand side: it is not linear in the matrix"
            ));
        };
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let axis = b.rank(middle) - 1;
        let below = shifted(b, upper, axis, true)?;
        let above = shifted(b, lower, axis, false)?;
        let cotangent = b.emit1(self.clone(), &[below, middle, above, cotangent])?;
        Ok(SmallVec::from_iter([None, None, None, Some(cotangent)]))
    }

    /// A batch of right-hand sides of one matrix is one right-hand side.
    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (&[lower, middle, upper, right], &[None, None, None, Some(dim)]) = (eqn.inputs, eqn.dims) else {
            return batched(self.clone(), b, eqn);
        };
        let rank = b.rank(right);
        let right = b.move_axis(right, dim, rank - 2)?;
        let shape = b.shape(right);
        let mut flat = shape.clone();
        flat[rank - 2] = shape[rank - 2].mul(&shape[rank - 1])?;
        flat.pop();
        let right = b.reshape(right, &flat)?;
        let solved = b.emit1(self.clone(), &[lower, middle, upper, right])?;
        Ok(SmallVec::from_iter([(b.reshape(solved, &shape)?, Some(rank - 2))]))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn matrix_axes(&self) -> usize {
        2
    }
}

impl Row for Tridiagonal {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let size = constant(Self::NAME, &square(Self::NAME, operand)?)?;
        if size == 0 {
            return Err(value_error!(
                "tridiagonal takes matrices with elements, got shape {}",
                ShowShape(&operand.shape)
            ));
        }
        let (whole, less) = (Dim::Const(size), Dim::Const(size - 1));
        let real = operand.dtype.real();
        Ok(Types::from_iter([
            Type::Array(operand.clone()),
            of_batch(operand, &[&whole], real),
            of_batch(operand, &[&less], real),
            of_batch(operand, &[&less], operand.dtype),
        ]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| {
            let (a, diagonal, beside, taus) = factors::tridiagonal(&given[0], self.lower);
            let numbers = |all: Vec<f64>| all.into_iter().map(|x| (x, 0.0)).collect();
            Ok(vec![a.elements, numbers(diagonal), numbers(beside), taus])
        })
    }
}

impl Rules for Tridiagonal {
    without_derivative!();
}

impl Row for Hessenberg {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let size = constant(Self::NAME, &square(Self::NAME, operand)?)?;
        if size == 0 {
            return Err(value_error!(
                "hessenberg takes matrices with elements, got shape {}",
                ShowShape(&operand.shape)
            ));
        }
        let less = Dim::Const(size - 1);
        Ok(Types::from_iter([Type::Array(operand.clone()), of_batch(operand, &[&less], operand.dtype)]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| {
            let (a, taus) = factors::hessenberg(given[0].clone());
            Ok(vec![a.elements, taus])
        })
    }
}

impl Rules for Hessenberg {
    without_derivative!();
}
