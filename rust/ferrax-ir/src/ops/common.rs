//! Rules that families of ops share.

use smallvec::SmallVec;

use crate::rules::{Batch, Batched, Types};
use crate::{ArrayType, Axes, Builder, Op, Result, Shape, ShowShape, Type, internal_error, type_error};

/// The array types of an op's operands, or a type error.
pub fn arrays<'a>(name: &str, inputs: &'a [Type]) -> Result<SmallVec<[&'a ArrayType; 3]>> {
    inputs
        .iter()
        .map(|ty| ty.as_array().ok_or_else(|| type_error!("{name} takes arrays, got {ty}")))
        .collect()
}

/// Fails unless an op got as many operands as it takes.
pub fn check_arity(name: &str, inputs: &[Type], expected: usize) -> Result<()> {
    if inputs.len() == expected {
        return Ok(());
    }
    Err(type_error!("{name} takes {expected} operands, got {}", inputs.len()))
}

/// The shape of an elementwise result: all operands share it, save that 0-d
/// ones go with any.
pub fn elementwise_shape(name: &str, arrays: &[&ArrayType]) -> Result<Shape> {
    let mut shape: Option<&Shape> = None;
    for array in arrays.iter().filter(|array| array.rank() > 0) {
        match shape {
            None => shape = Some(&array.shape),
            Some(shape) if *shape == array.shape => {}
            Some(shape) => {
                return Err(type_error!(
                    "{name} got incompatible shapes for broadcasting: {}, {}. The lax operations take equal \
                     shapes (or scalars); use the numpy functions to broadcast.",
                    ShowShape(shape),
                    ShowShape(&array.shape)
                ));
            }
        }
    }
    Ok(shape.cloned().unwrap_or_default())
}

/// The common dtype of operands that must share one.
pub fn same_dtype(name: &str, arrays: &[&ArrayType]) -> Result<()> {
    let Some(first) = arrays.first() else { return Ok(()) };
    if arrays.iter().all(|array| array.dtype == first.dtype) {
        return Ok(());
    }
    let dtypes: Vec<_> = arrays.iter().map(|array| array.dtype.name()).collect();
    Err(type_error!(
        "lax.{name} requires arguments to have the same dtypes, got {}. (Tip: the numpy function promotes \
         dtypes; or convert with lax.convert_element_type.)",
        dtypes.join(", ")
    ))
}

/// One output of this type.
pub fn one(ty: ArrayType) -> Result<Types> {
    Ok(SmallVec::from_iter([Type::Array(ty)]))
}

/// The batch rule of elementwise ops: batched operands get their batch
/// dimension in front, unbatched ones of rank > 0 a new axis of size 1..n.
pub fn elementwise_batch(op: impl Into<Op>, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
    let first = eqn.inputs.iter().zip(eqn.dims).find_map(|(&atom, dim)| dim.map(|dim| (b.shape(atom), dim)));
    let Some((shape, dim)) = first else { return Err(internal_error!("nothing is batched")) };
    // With the same batch dimension everywhere nothing has to move.
    let aligned = eqn.inputs.iter().zip(eqn.dims).all(|(&atom, d)| match d {
        Some(d) => *d == dim && b.rank(atom) == shape.len(),
        None => b.rank(atom) == 0,
    });
    if aligned {
        let output = b.emit1(op, eqn.inputs)?;
        return Ok(SmallVec::from_iter([(output, Some(dim))]));
    }
    let rank =
        eqn.inputs.iter().zip(eqn.dims).map(|(&atom, d)| b.rank(atom) - usize::from(d.is_some())).max();
    let rank = rank.unwrap_or(0);
    let mut operands: SmallVec<[_; 3]> = SmallVec::new();
    for (&atom, d) in eqn.inputs.iter().zip(eqn.dims) {
        operands.push(match d {
            Some(d) => {
                let moved = b.move_axis(atom, *d, 0)?;
                if b.rank(moved) == 1 && rank > 0 {
                    let mut full: Shape = logical_shape(b, eqn, rank);
                    full.insert(0, eqn.size.clone());
                    b.broadcast_in_dim(moved, &full, &[0])?
                } else {
                    moved
                }
            }
            None if b.rank(atom) == 0 => atom,
            None => b.broadcast_batch(atom, eqn.size, 0)?,
        });
    }
    let output = b.emit1(op, &operands)?;
    Ok(SmallVec::from_iter([(output, Some(0))]))
}

/// The shape without batch of the operand that has the full rank.
fn logical_shape(b: &Builder, eqn: &Batch<'_>, rank: usize) -> Shape {
    for (&atom, d) in eqn.inputs.iter().zip(eqn.dims) {
        let mut shape = b.shape(atom);
        if let Some(d) = d {
            shape.remove(*d);
        }
        if shape.len() == rank {
            return shape;
        }
    }
    Shape::new()
}

/// Axes of an unbatched operand after a batch dimension was put at `dim`.
pub fn shift_axes(axes: &[usize], dim: usize) -> Axes {
    axes.iter().map(|&axis| if axis >= dim { axis + 1 } else { axis }).collect()
}
