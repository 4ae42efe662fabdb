//! Derivatives of reductions.

use super::At;
use crate::ops::index_space::{other_axes, tuple};
use crate::ops::{Compare, Concatenate};
use crate::{ArrayType, Atom, Axes, Builder, Dim, Result, Shape, ShowShape, unsupported};

/// Each element has the cotangent of the sum that it is in.
pub fn sum_transposed(b: &mut Builder, cotangent: Atom, operand: &ArrayType, axes: &[usize]) -> Result<Atom> {
    let kept = other_axes(operand.rank(), axes);
    b.broadcast_in_dim(cotangent, &operand.shape, &kept)
}

/// The mean of the tangents of those elements that the extremum is equal to.
pub fn extremum(b: &mut Builder, at: &At<'_>) -> Result<Atom> {
    let shape = b.shape(at.operand);
    let kept = other_axes(shape.len(), at.axes);
    let extremum = b.broadcast_in_dim(at.result, &shape, &kept)?;
    let reached = b.compare(Compare::Eq, at.operand, extremum)?;
    let reached = b.convert(reached, b.dtype(at.tangent))?;
    let count = b.reduce_sum(reached, at.axes)?;
    let share = b.mul(at.tangent, reached)?;
    let total = b.reduce_sum(share, at.axes)?;
    b.div(total, count)
}

/// The tangent of a product, without divisions and so exact where factors are
/// zero: the array is folded in half until one element is left, and each fold
/// `z = x·y` takes the tangents along as `dz = dx·y + x·dy`.
pub fn product(b: &mut Builder, at: &At<'_>) -> Result<Atom> {
    let (shape, axes) = (b.shape(at.operand), at.axes);
    let kept = other_axes(shape.len(), axes);
    let reduced: Shape = axes.iter().map(|&axis| shape[axis].clone()).collect();
    let length = Dim::product(&reduced)?.as_const().ok_or_else(|| {
        unsupported!(
            "the derivative of reduce_prod needs constant sizes of the reduced axes, got shape {} and axes {}",
            ShowShape(&shape),
            tuple(axes)
        )
    })?;
    let result: Shape = kept.iter().map(|&axis| shape[axis].clone()).collect();
    if length == 0 {
        let ty = ArrayType::new(result, b.dtype(at.tangent));
        return b.zeros(&ty);
    }
    // One axis stays where it is, several become the last one.
    let order: Axes = kept.iter().chain(axes).copied().collect();
    let mut flat = result.clone();
    flat.push(Dim::Const(length));
    let mut flatten = |x: Atom| -> Result<Atom> {
        if axes.len() == 1 {
            return Ok(x);
        }
        let x = b.transpose(x, &order)?;
        b.reshape(x, &flat)
    };
    let (mut x, mut t) = (flatten(at.operand)?, flatten(at.tangent)?);
    let (axis, mut length) = (if let [axis] = *axes { axis } else { kept.len() }, length);
    while length > 1 {
        let half = length / 2;
        let part = |b: &mut Builder, x: Atom, from: usize, to: usize| b.slice_axis(x, axis, from, to);
        let (x0, x1) = (part(b, x, 0, half)?, part(b, x, half, 2 * half)?);
        let (t0, t1) = (part(b, t, 0, half)?, part(b, t, half, 2 * half)?);
        let (left, right) = (b.mul(t0, x1)?, b.mul(x0, t1)?);
        let (mut folded, mut folded_tangent) = (b.mul(x0, x1)?, b.add(left, right)?);
        if length % 2 == 1 {
            let (x2, t2) = (part(b, x, 2 * half, length)?, part(b, t, 2 * half, length)?);
            folded = b.emit1(Concatenate { dimension: axis }, &[folded, x2])?;
            folded_tangent = b.emit1(Concatenate { dimension: axis }, &[folded_tangent, t2])?;
        }
        (x, t) = (folded, folded_tangent);
        length = length.div_ceil(2);
    }
    b.reshape(t, &result)
}
