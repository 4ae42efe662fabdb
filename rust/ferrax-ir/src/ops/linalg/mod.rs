//! Decompositions of matrices: the last two axes of the operand. All axes before are a batch.
//!
//! Reference evaluation is in double precision: of eigenvalues and singular values by Jacobi's
//! rotations (`jacobi.rs`) and by QR iteration (`iteration.rs`), where matrices with an element that is not finite have NaN results; of
//! factorisations by the textbook's loops (`factors.rs`). Signs, pivots and the places of results are
//! LAPACK's (Anderson et al., LAPACK Users' Guide, 3rd ed., 1999).

mod cholesky;
mod eig;
mod eigh;
mod factors;
mod iteration;
mod jacobi;
mod lu;
mod matrix;
mod pivots;
mod qr;
mod qr_derivative;
mod reflectors;
mod svd;
mod triangular;
mod tridiagonal;

use smallvec::SmallVec;

use super::index_space::*;
use super::{Compare, DotGeneral, Pad, Unary};
use crate::convert::{Wide, load, store};
use crate::rules::{Batch, Batched, Row};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Op, Result, ShowShape, Tensor, Type, internal_error,
    type_error, unsupported, value_error,
};

use self::matrix::{Matrix, Number};

pub use cholesky::Cholesky;
pub use eig::{Eig, Schur};
pub use eigh::Eigh;
pub use lu::Lu;
pub use pivots::LuPivotsToPermutation;
pub use qr::Qr;
pub use reflectors::{Geqp3, Geqrf, HouseholderProduct, Ormqr};
pub use svd::Svd;
pub use triangular::TriangularSolve;
pub use tridiagonal::{Hessenberg, Tridiagonal, TridiagonalSolve};

/// Whether decompositions compute in this dtype.
fn check_computes(op: &str, dtype: DType, position: usize) -> Result<()> {
    if matches!(dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128) {
        return Ok(());
    }
    if !dtype.is_float() {
        return Err(type_error!(
            "{op} does not accept dtype {dtype} for operand {position}, which takes floating, \
             complexfloating; convert it with astype."
        ));
    }
    Err(unsupported!(
        "{op}: Unsupported dtype {dtype}. Decompositions are of float32, float64, complex64 and complex128; convert \
         first, for example with astype."
    ))
}

/// The sizes of the matrices that an operand holds, checked.
fn matrices(op: &str, operand: &ArrayType) -> Result<(Dim, Dim)> {
    check_computes(op, operand.dtype, 0)?;
    match operand.shape.as_slice() {
        [.., rows, columns] => Ok((rows.clone(), columns.clone())),
        _ => Err(type_error!("{op} takes matrices, got shape {operand}")),
    }
}

/// The same, of square matrices.
fn square(op: &str, operand: &ArrayType) -> Result<Dim> {
    let (rows, columns) = matrices(op, operand)?;
    if rows != columns {
        return Err(value_error!(
            "{op} takes square matrices in the last two axes, got shape {}",
            ShowShape(&operand.shape)
        ));
    }
    Ok(rows)
}

/// Operands of one dtype, of which the last axes, so many of each, are matrices and vectors over one
/// batch.
fn over_one_batch<'a, const N: usize>(
    op: &str,
    inputs: &'a [Type],
    ranks: [usize; N],
) -> Result<[&'a ArrayType; N]> {
    let all = operands::<N>(op, inputs)?;
    for (position, (ty, rank)) in all.iter().zip(ranks).enumerate() {
        check_computes(op, ty.dtype, position)?;
        if ty.rank() < rank {
            return Err(type_error!(
                "{op}: operand {position} needs {rank} axes or more, got shape {}",
                ShowShape(&ty.shape)
            ));
        }
    }
    super::common::same_dtype(op, &all)?;
    let batch = |at: usize| &all[at].shape[..all[at].rank() - ranks[at]];
    if let Some(other) = (1..N).find(|&at| batch(at) != batch(0)) {
        return Err(type_error!(
            "{op}: all operands need the same batch, got {} of operand 0 and {} of operand {other}: \
             broadcast them first",
            ShowShape(batch(0)),
            ShowShape(batch(other))
        ));
    }
    Ok(all)
}

/// The smaller one of two sizes.
fn least(op: &str, rows: &Dim, columns: &Dim) -> Result<Dim> {
    match (rows.as_const(), columns.as_const()) {
        _ if rows == columns => Ok(rows.clone()),
        (Some(rows), Some(columns)) => Ok(Dim::Const(rows.min(columns))),
        _ => Err(unsupported!(
            "{op} of matrices of symbolic sizes that are not square, got {rows} x {columns}"
        )),
    }
}

/// A size that has to be a number.
fn constant(op: &str, size: &Dim) -> Result<usize> {
    size.as_const().ok_or_else(|| unsupported!("{op} of matrices of the symbolic size {size}"))
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
    let operands = eqn.inputs.iter().zip(eqn.dims);
    let operands: SmallVec<[Atom; 3]> =
        operands.map(|(&atom, &dim)| batch_to_front(b, atom, dim, eqn.size)).collect::<Result<_>>()?;
    Ok(b.emit(op, &operands)?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}

/// The tangent rule of ops without one.
fn no_derivative<T>(op: &dyn Row) -> Result<T> {
    Err(unsupported!("Differentiation rule for '{}' not implemented", op.name()))
}

/// Evaluates over a batch: `each` gives, of the matrices and vectors (as columns) of an operand each,
/// of which `ranks` are the last axes, the outputs' elements in order.
fn over_batch(
    inputs: &[Tensor],
    ranks: &[usize],
    outputs: &[Type],
    each: impl Fn(&[Matrix]) -> Result<Vec<Vec<Number>>>,
) -> Result<Vec<Tensor>> {
    let mut results: Vec<Tensor> = outputs
        .iter()
        .map(|ty| {
            let ty = ty.as_array().ok_or_else(|| internal_error!("decompositions give arrays"))?;
            let sizes = ty.sizes().ok_or_else(|| internal_error!("evaluation with symbolic sizes"))?;
            Tensor::zeros(ty.dtype, sizes)
        })
        .collect::<Result<_>>()?;
    let Some(batch) = inputs.first().zip(ranks.first()) else {
        return Err(internal_error!("a decomposition of nothing"));
    };
    let count = element_count(&batch.0.sizes()[..batch.0.rank() - batch.1]);
    for number in 0..count {
        let given: Vec<Matrix> =
            inputs.iter().zip(ranks).map(|(x, &rank)| read(x, rank, number)).collect::<Result<_>>()?;
        for (result, elements) in results.iter_mut().zip(each(&given)?) {
            let (dtype, length) = (result.dtype(), elements.len());
            for (index, (re, im)) in elements.into_iter().enumerate() {
                let value = if dtype.is_complex() { Wide::Complex(re, im) } else { Wide::Float(re) };
                let scalar = store(dtype, value).ok_or_else(|| internal_error!("{dtype} holds no floats"))?;
                let target = result.bytes_mut()?;
                copy_element(&scalar.bytes(), 0, target, number * length + index, dtype.size())?;
            }
        }
    }
    Ok(results)
}

/// A matrix of a batch, or a vector as a column.
fn read(operand: &Tensor, rank: usize, number: usize) -> Result<Matrix> {
    let (rows, columns) = match *operand.sizes() {
        [.., rows, columns] if rank == 2 => (rows, columns),
        [.., rows] if rank == 1 => (rows, 1),
        _ => return Err(internal_error!("a decomposition of too few axes")),
    };
    let (dtype, width) = (operand.dtype(), operand.dtype().size());
    let elements = (0..rows * columns)
        .map(|index| {
            let start = (number * rows * columns + index) * width;
            match operand.bytes().get(start..).and_then(|bytes| load(dtype, bytes)) {
                Some(Wide::Float(value)) => Ok((value, 0.0)),
                Some(Wide::Complex(re, im)) => Ok((re, im)),
                Some(Wide::Int(value)) => Ok((value as f64, 0.0)),
                None => Err(internal_error!("a matrix has fewer elements than its shape")),
            }
        })
        .collect::<Result<_>>()?;
    Ok(Matrix::new(rows, columns, elements))
}

/// Evaluates matrix by matrix: `each` gives, of what `read` makes of a matrix, the outputs' elements
/// in order, and for a matrix with an element that is not finite NaN takes their place.
fn each_matrix(
    operand: &Tensor,
    outputs: &[Type],
    read: impl Fn(Matrix) -> Matrix,
    each: impl Fn(Matrix) -> Vec<Vec<Number>>,
) -> Result<Vec<Tensor>> {
    over_batch(std::slice::from_ref(operand), &[2], outputs, |given| {
        let a = read(given[0].clone());
        let finite = a.elements.iter().all(|(re, im)| re.is_finite() && im.is_finite());
        let mut found = each(a);
        if !finite {
            found.iter_mut().flatten().for_each(|x| *x = (f64::NAN, f64::NAN));
        }
        Ok(found)
    })
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
        precision: Some(super::Precision::Highest),
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
    b.compare(Compare::Eq, row?, column?)
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

/// Which elements of matrices in the shape of `like` are in the lower or in the upper triangle, with
/// or without the diagonal.
fn triangle(b: &mut Builder, like: Atom, lower: bool, strict: bool) -> Result<Atom> {
    let shape = b.shape(like);
    let rank = shape.len();
    let row = b.iota(DType::I32, &shape, rank - 2)?;
    let column = b.iota(DType::I32, &shape, rank - 1)?;
    let which = match (lower, strict) {
        (true, false) => Compare::Ge,
        (true, true) => Compare::Gt,
        (false, false) => Compare::Le,
        (false, true) => Compare::Lt,
    };
    b.compare(which, row, column)
}

/// A triangle of a matrix, with zeros elsewhere.
fn in_triangle(b: &mut Builder, x: Atom, lower: bool, strict: bool) -> Result<Atom> {
    let which = triangle(b, x, lower, strict)?;
    let zeros = b.zeros_like(x)?;
    b.select(which, x, zeros)
}

/// `x` with so many rows and columns: cut, or with zeros added.
fn resized(b: &mut Builder, x: Atom, rows: usize, columns: usize) -> Result<Atom> {
    let shape = b.shape(x);
    let rank = shape.len();
    let mut config = vec![(0, 0, 0); rank];
    for (axis, size) in [(rank - 2, rows), (rank - 1, columns)] {
        config[axis].1 = size as i64 - constant("a decomposition", &shape[axis])? as i64;
    }
    if config.iter().all(|&(_, high, _)| high == 0) {
        return Ok(x);
    }
    let zero = b.scalar(b.dtype(x), 0.0);
    b.emit1(Pad { padding_config: config }, &[x, zero])
}

/// Rows or columns (`axis` counts from the end) from `start` up to `limit`.
fn part(b: &mut Builder, x: Atom, axis: usize, start: usize, limit: usize) -> Result<Atom> {
    let axis = b.rank(x) - axis;
    if start == 0 && b.shape(x)[axis] == limit {
        return Ok(x);
    }
    b.slice_axis(x, axis, start, limit)
}

/// No tangents for so many outputs.
fn no_tangents(count: usize) -> Tangents {
    SmallVec::from_elem(None, count)
}
