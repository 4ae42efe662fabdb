//! Rules that families of ops share.

use smallvec::SmallVec;

use crate::rules::{Batch, Batched, Types};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Op, Result, Shape, ShowShape, Type, internal_error, type_error,
};

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
                let (a, b) = (ShowShape(shape), ShowShape(&array.shape));
                return Err(if shape.len() == array.rank() {
                    type_error!(
                        "{name}: shapes {a} and {b} differ. The operations of lax take equal shapes or \
                         scalars; the functions of ferrax.numpy broadcast."
                    )
                } else {
                    type_error!(
                        "{name}: the ranks of the arrays differ: {a}, {b}. The functions of ferrax.numpy \
                         broadcast."
                    )
                });
            }
        }
    }
    Ok(shape.cloned().unwrap_or_default())
}

/// A set of dtypes that an op accepts, under the name that errors give it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    Bool,
    Integer,
    SignedInteger,
    Floating,
    Complex,
    /// `float32` and `float64`: the parts of complex numbers.
    Parts,
}

impl Accept {
    const fn name(self) -> &'static str {
        match self {
            Accept::Bool => "bool",
            Accept::Integer => "integer",
            Accept::SignedInteger => "signedinteger",
            Accept::Floating => "floating",
            Accept::Complex => "complexfloating",
            Accept::Parts => "float32, float64",
        }
    }

    /// What help calls them.
    pub const fn plural(self) -> &'static str {
        match self {
            Accept::Bool => "truth values",
            Accept::Integer => "integers",
            Accept::SignedInteger => "signed integers",
            Accept::Floating => "floats",
            Accept::Complex => "complex numbers",
            Accept::Parts => "float32 or float64",
        }
    }

    pub const fn holds(self, dtype: DType) -> bool {
        match self {
            Accept::Bool => dtype.is_bool(),
            Accept::Integer => dtype.is_integer(),
            Accept::SignedInteger => dtype.is_signed(),
            Accept::Floating => dtype.is_float(),
            Accept::Complex => dtype.is_complex(),
            Accept::Parts => matches!(dtype, DType::F32 | DType::F64),
        }
    }
}

fn accepted(accept: &[Accept]) -> String {
    accept.iter().map(|group| group.name()).collect::<Vec<_>>().join(", ")
}

/// Fails unless one of `accept` holds the dtype of the operand at `position`
/// (of an op with several) and it can be computed with.
pub fn check_dtype(name: &str, dtype: DType, accept: &[Accept], position: Option<usize>) -> Result<()> {
    if !accept.iter().any(|group| group.holds(dtype)) {
        let groups = accepted(accept);
        return Err(match position {
            None => {
                type_error!("{name} does not accept dtype {dtype}: it takes {groups}.")
            }
            Some(position) => type_error!(
                "{name} does not accept dtype {dtype} for operand {position}, which takes {groups}."
            ),
        });
    }
    check_computes(name, dtype)
}

/// Fails for dtypes that arrays are stored in but not computed in.
pub fn check_computes(name: &str, dtype: DType) -> Result<()> {
    if !dtype.is_storage_only() {
        return Ok(());
    }
    Err(type_error!(
        "{name} does not accept dtype {dtype}: arrays of {dtype} can be stored, moved and converted but not \
         computed with. Convert first, for example with lax.convert_element_type."
    ))
}

/// The common dtype of operands that must share one.
pub fn same_dtype(name: &str, arrays: &[&ArrayType]) -> Result<()> {
    let Some(first) = arrays.first() else { return Ok(()) };
    if arrays.iter().all(|array| array.dtype == first.dtype) {
        return Ok(());
    }
    let dtypes: Vec<_> = arrays.iter().map(|array| array.dtype.name()).collect();
    Err(type_error!(
        "lax.{name}: all arguments need one dtype, got {}. The numpy function promotes dtypes; or \
         convert with lax.convert_element_type.",
        dtypes.join(", ")
    ))
}

/// One output of this type.
pub fn one(ty: ArrayType) -> Result<Types> {
    Ok(SmallVec::from_iter([Type::Array(ty)]))
}

/// The batch rule of elementwise ops with one output.
pub fn elementwise_batch(op: impl Into<Op>, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
    let (operands, dim) = elementwise_operands(b, eqn)?;
    let output = b.emit1(op, &operands)?;
    Ok(SmallVec::from_iter([(output, Some(dim))]))
}

/// The operands of an elementwise op over a batch, and where the result has
/// its batch dimension. Unbatched 0-d operands stay as they are; of the others
/// as few as possible are moved.
pub fn elementwise_operands(b: &mut Builder, eqn: &Batch<'_>) -> Result<(SmallVec<[Atom; 3]>, usize)> {
    let rank = |b: &Builder, atom: Atom, dim: Option<usize>| b.rank(atom) - usize::from(dim.is_some());
    let operands = || eqn.inputs.iter().copied().zip(eqn.dims.iter().copied());
    let full = operands().map(|(atom, dim)| rank(b, atom, dim)).max().unwrap_or(0);
    if operands().all(|(_, dim)| dim.is_none()) {
        return Err(internal_error!("nothing is batched"));
    }
    let target =
        operands().filter(|&(atom, dim)| rank(b, atom, dim) == full).find_map(|(_, dim)| dim).unwrap_or(0);
    let mut shape = logical_shape(b, eqn, full);
    shape.insert(target, eqn.size.clone());
    let mut aligned = SmallVec::new();
    for (atom, dim) in operands() {
        aligned.push(match dim {
            Some(_) if b.rank(atom) == 1 && full > 0 => b.broadcast_in_dim(atom, &shape, &[target])?,
            Some(dim) => b.move_axis(atom, dim, target)?,
            None if b.rank(atom) == 0 => atom,
            None => b.broadcast_batch(atom, eqn.size, target)?,
        });
    }
    Ok((aligned, target))
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
