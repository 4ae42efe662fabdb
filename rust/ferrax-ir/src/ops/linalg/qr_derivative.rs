//! The derivative of `a = Q R`.
//!
//! With `C = Q^H da R^-1` and `Ω = Q^H dQ`, which is skew-Hermitian: `C = Ω + dR R^-1`. The last term is
//! upper triangular with a real diagonal, so below the diagonal `Ω` is `C`, and on it its imaginary
//! part. (Walter and Lehmann, Algorithmic differentiation of linear algebra functions with application
//! in optimum experimental design, 2010, section 4.) A wide matrix gives the rest of `R` by
//! `dR = Q^H da - Ω R` (Roberts and Roberts, QR and LQ decomposition matrix backpropagation algorithms,
//! arXiv:2009.10071, 2020).
//!
//! All columns of `Q` depend on the reflections: `Q = I - Y T Y^H` with `Y = (Y1; Y2)`, whose upper part
//! is square, so with `Z = Y2 Y1^-1 = Q21 (Q11 - I)^-1` the other columns are
//! `(Q12; Q22) = (0; I) + ((Q11; Q21) - (I; 0)) Z^H`. Its derivative, written with columns of `Q`, is
//! `(dQ11; dQ21) Z^H - ((Q11; Q21) + (Q12; Q22) Z) (dQ21 - Z dQ11)^H`.

use smallvec::SmallVec;

use super::cholesky::LOWER;
use super::triangular::TriangularSolve;
use super::*;

const FROM_RIGHT: TriangularSolve = TriangularSolve { left_side: false, lower: false, ..LOWER };

/// The tangents of `Q` and of `R`. With an order of the columns, the third output, those of the tangent
/// of `a` take it first.
pub(super) fn tangents(b: &mut Builder, tangent: Atom, outputs: &[Atom]) -> Result<Tangents> {
    let (&[q, r], order) = match outputs.split_at_checked(2) {
        Some((&[q, r], rest)) => (&[q, r], rest.first().copied()),
        _ => return Err(internal_error!("qr has {} outputs", outputs.len())),
    };
    let shape = b.shape(tangent);
    let [rows, columns] = [2, 1].map(|axis| constant("qr", &shape[shape.len() - axis]));
    let (rows, columns) = (rows?, columns?);
    let tangent = match order {
        Some(order) => columns_in_order(b, tangent, order)?,
        None => tangent,
    };
    let least = rows.min(columns);
    let thin = part(b, q, 1, 0, least)?;
    let square = part(b, r, 2, 0, least)?;
    let square = part(b, square, 1, 0, least)?;
    let first = part(b, tangent, 1, 0, least)?;

    let moved = b.emit1(FROM_RIGHT, &[square, first])?;
    let back = adjoint(b, thin)?;
    let inner = matmul(b, back, moved)?;
    let turn = skew(b, inner)?;
    let rest = b.sub(turn, inner)?;
    let of_q = matmul(b, thin, rest)?;
    let of_q = b.add(of_q, moved)?;
    let of_square = b.sub(inner, turn)?;
    let of_square = matmul(b, of_square, square)?;

    if rows < columns {
        let wide = part(b, r, 1, least, columns)?;
        let other = part(b, tangent, 1, least, columns)?;
        let other = matmul(b, back, other)?;
        let turned = matmul(b, turn, wide)?;
        let other = b.sub(other, turned)?;
        let axis = b.rank(other) - 1;
        let of_r = b.emit1(super::super::Concatenate { dimension: axis }, &[of_square, other])?;
        return Ok(SmallVec::from_iter([Some(of_q), Some(of_r)]));
    }
    let shape = b.shape(q);
    if shape[shape.len() - 1] == columns {
        return Ok(SmallVec::from_iter([Some(of_q), Some(of_square)]));
    }
    let other = other_columns(b, q, of_q, rows, columns)?;
    let axis = b.rank(q) - 1;
    let of_q = b.emit1(super::super::Concatenate { dimension: axis }, &[of_q, other])?;
    Ok(SmallVec::from_iter([Some(of_q), Some(resized(b, of_square, rows, columns)?)]))
}

/// `Ω` of `C`.
fn skew(b: &mut Builder, inner: Atom) -> Result<Atom> {
    let below = in_triangle(b, inner, true, true)?;
    let above = adjoint(b, below)?;
    let mut turn = b.sub(below, above)?;
    if b.dtype(inner).is_complex() {
        let on = on_diagonal(b, inner)?;
        let along = b.unary(Unary::Real, inner)?;
        let along = as_complex(b, along, inner)?;
        let imaginary = b.sub(inner, along)?;
        turn = b.select(on, imaginary, turn)?;
    }
    Ok(turn)
}

/// The tangents of the columns of `Q` beyond those of the matrix.
fn other_columns(b: &mut Builder, q: Atom, of_thin: Atom, rows: usize, columns: usize) -> Result<Atom> {
    let thin = part(b, q, 1, 0, columns)?;
    let rest = part(b, q, 1, columns, rows)?;
    let (upper, lower) = (part(b, thin, 2, 0, columns)?, part(b, thin, 2, columns, rows)?);
    let identity = identity_like(b, upper)?;
    let less = b.sub(upper, identity)?;
    let factored = b.emit(super::Lu {}, &[less])?;
    let [factors, _, order] = <[crate::Var; 3]>::try_from(factored.as_slice())
        .map_err(|_| internal_error!("lu has three outputs"))?
        .map(Atom::Var);
    let z = b.emit1(FROM_RIGHT, &[factors, lower])?;
    let unit = TriangularSolve { lower: true, unit_diagonal: true, ..FROM_RIGHT };
    let z = b.emit1(unit, &[factors, z])?;
    let exchange = super::lu::permutation(b, order, z)?;
    let z = matmul(b, z, exchange)?;
    let back = adjoint(b, z)?;
    let first = matmul(b, of_thin, back)?;
    let (of_upper, of_lower) = (part(b, of_thin, 2, 0, columns)?, part(b, of_thin, 2, columns, rows)?);
    let moved = matmul(b, z, of_upper)?;
    let moved = b.sub(of_lower, moved)?;
    let moved = adjoint(b, moved)?;
    let span = matmul(b, rest, z)?;
    let span = b.add(thin, span)?;
    let second = matmul(b, span, moved)?;
    b.sub(first, second)
}

/// The columns of `x` in this order.
fn columns_in_order(b: &mut Builder, x: Atom, order: Atom) -> Result<Atom> {
    let shape = b.shape(x);
    let places = spread(b, order, &shape[shape.len() - 2], true)?;
    let mut indices = b.shape(places);
    indices.push(Dim::Const(1));
    let places = b.reshape(places, &indices)?;
    super::super::sort::take_along(b, x, places, shape.len() - 1)
}
