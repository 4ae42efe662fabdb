//! Decompositions of matrices: the last two axes of the operand. All axes before are a batch.
//!
//! Reference evaluation is by Jacobi's rotations, in double precision (`jacobi.rs`). Matrices with
//! an element that is not finite have NaN results.

mod eigh;
mod jacobi;
mod svd;

use smallvec::SmallVec;

use super::index_space::*;
use super::{DotGeneral, Unary};
use crate::convert::{Wide, load, store};
use crate::rules::{Batch, Batched};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Op, Result, Tensor, Type, internal_error, type_error,
    unsupported,
};

use self::jacobi::Matrix;

pub use eigh::Eigh;
pub use svd::Svd;

/// The sizes of the matrices that an operand holds, checked.
fn matrices(op: &str, operand: &ArrayType) -> Result<(Dim, Dim)> {
    if !matches!(operand.dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128) {
        return Err(unsupported!(
            "{op}: Unsupported dtype {}. Decompositions are of float32, float64, complex64 and complex128; convert \
             first, for example with astype.",
            operand.dtype
        ));
    }
    match operand.shape.as_slice() {
        [.., rows, columns] => Ok((rows.clone(), columns.clone())),
        _ => Err(type_error!("Input 0 to {op} must have rank at least 2, but got shape={operand}")),
    }
}

/// An output of an operand's batch, with these last sizes.
fn of_batch(operand: &ArrayType, last: &[&Dim], dtype: DType) -> Type {
    let mut ty = operand.clone();
    ty.shape.truncate(operand.rank().saturating_sub(2));
    ty.shape.extend(last.iter().map(|&size| size.clone()));
    ty.dtype = dtype;
    Type::Array(ty)
}

/// The batch rule: batch dimensions are in front.
fn batched(op: impl Into<Op>, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
    let op = op.into();
    let (operand, dim) = only_batched(op.name(), eqn)?;
    let operand = b.move_axis(operand, dim, 0)?;
    Ok(b.emit(op, &[operand])?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}

/// Evaluates matrix by matrix: `each` gives, of what `read` makes of a matrix, the outputs' elements
/// in order.
fn each_matrix(
    operand: &Tensor,
    outputs: &[Type],
    read: impl Fn(Matrix) -> Matrix,
    each: impl Fn(Matrix) -> Vec<Vec<(f64, f64)>>,
) -> Result<Vec<Tensor>> {
    let [.., rows, columns] = *operand.sizes() else {
        return Err(internal_error!("a decomposition of what has less than two axes"));
    };
    let (dtype, width) = (operand.dtype(), operand.dtype().size());
    let mut results: Vec<Tensor> = outputs
        .iter()
        .map(|ty| {
            let ty = ty.as_array().ok_or_else(|| internal_error!("decompositions give arrays"))?;
            let sizes = ty.sizes().ok_or_else(|| internal_error!("evaluation with symbolic sizes"))?;
            Tensor::zeros(ty.dtype, sizes)
        })
        .collect::<Result<_>>()?;
    if results.iter().all(Tensor::is_empty) {
        return Ok(results);
    }
    let count = element_count(&operand.sizes()[..operand.rank() - 2]);
    for number in 0..count {
        let elements = (0..rows * columns)
            .map(|index| {
                let start = (number * rows * columns + index) * width;
                match operand.bytes().get(start..).and_then(|bytes| load(dtype, bytes)) {
                    Some(Wide::Float(value)) => Ok((value, 0.0)),
                    Some(Wide::Complex(re, im)) => Ok((re, im)),
                    _ => Err(internal_error!("a matrix element of {dtype} is not a number")),
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let a = read(Matrix::new(rows, columns, elements));
        let finite = a.elements.iter().all(|(re, im)| re.is_finite() && im.is_finite());
        let found = each(a);
        for (result, elements) in results.iter_mut().zip(found) {
            let (dtype, length) = (result.dtype(), elements.len());
            for (index, (re, im)) in elements.into_iter().enumerate() {
                let (re, im) = if finite { (re, im) } else { (f64::NAN, f64::NAN) };
                let value = if dtype.is_complex() { Wide::Complex(re, im) } else { Wide::Float(re) };
                let scalar = store(dtype, value).ok_or_else(|| internal_error!("{dtype} holds no floats"))?;
                let target = result.bytes_mut()?;
                copy_element(&scalar.bytes(), 0, target, number * length + index, dtype.size())?;
            }
        }
    }
    Ok(results)
}

// Matrices in rules.

/// `x @ y` of equal batches.
fn matmul(b: &mut Builder, x: Atom, y: Atom) -> Result<Atom> {
    let rank = b.rank(x);
    let batch: Axes = (0..rank - 2).collect();
    let op = DotGeneral {
        lhs_contracting: Axes::from_slice(&[rank - 1]),
        rhs_contracting: Axes::from_slice(&[rank - 2]),
        lhs_batch: batch.clone(),
        rhs_batch: batch,
        precision: None,
        preferred_element_type: None,
    };
    b.emit1(op, &[x, y])
}

/// The conjugate transpose.
fn adjoint(b: &mut Builder, x: Atom) -> Result<Atom> {
    let rank = b.rank(x);
    let x = if b.dtype(x).is_complex() { b.unary(Unary::Conj, x)? } else { x };
    b.move_axis(x, rank - 1, rank - 2)
}

/// `x` as a complex array, where `like` is one.
fn as_complex(b: &mut Builder, x: Atom, like: Atom) -> Result<Atom> {
    let dtype = b.dtype(like);
    b.convert(x, dtype)
}

/// The real part, also of real arrays.
fn real(b: &mut Builder, x: Atom) -> Result<Atom> {
    if b.dtype(x).is_complex() { b.unary(Unary::Real, x) } else { Ok(x) }
}

/// Vectors `[…, n]` as matrices `[…, m, n]` whose rows they all are or, if not `rows`, `[…, n, m]`
/// whose columns they are.
fn spread(b: &mut Builder, x: Atom, size: &Dim, rows: bool) -> Result<Atom> {
    let rank = b.rank(x);
    b.broadcast_batch(x, size, if rows { rank - 1 } else { rank })
}

/// Whether elements of square matrices in the shape of `like` are on the diagonal.
fn on_diagonal(b: &mut Builder, like: Atom) -> Result<Atom> {
    let shape = b.shape(like);
    let rank = shape.len();
    let [row, column] = [rank - 2, rank - 1].map(|axis| b.iota(DType::I32, &shape, axis));
    b.compare(super::Compare::Eq, row?, column?)
}

/// The identity matrix in the shape and dtype of `like`, which is square.
fn identity_like(b: &mut Builder, like: Atom) -> Result<Atom> {
    let on = on_diagonal(b, like)?;
    b.convert(on, b.dtype(like))
}

/// The diagonals, `[…, n]`, of matrices.
fn diagonal(b: &mut Builder, x: Atom) -> Result<Atom> {
    let on = on_diagonal(b, x)?;
    let zeros = b.zeros_like(x)?;
    let kept = b.select(on, x, zeros)?;
    let rank = b.rank(x);
    b.reduce_sum(kept, &[rank - 1])
}

/// No tangents for so many outputs.
fn no_tangents(count: usize) -> Tangents {
    SmallVec::from_elem(None, count)
}
