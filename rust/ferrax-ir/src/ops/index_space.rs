//! What the rows of structural ops share: multi-indices for reference
//! evaluation, comparisons of dimensions, and the common parts of their rules.
//!
//! Reference evaluation moves elements as bytes, so it serves every dtype:
//! keys, storage-only types, and `float0`, whose elements take no bytes.

use smallvec::SmallVec;

use crate::rules::{Batch, Batched, Jvp, Transpose};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Op, Result, Sizes, Tensor, Type, internal_error, value_error,
};

use super::common::{arrays, check_arity};

pub type Tangents = SmallVec<[Option<Atom>; 1]>;
pub type Cotangents = SmallVec<[Option<Atom>; 3]>;

/// Exactly `N` array operands.
pub fn operands<'a, const N: usize>(name: &str, inputs: &'a [Type]) -> Result<[&'a ArrayType; N]> {
    check_arity(name, inputs, N)?;
    let all = arrays(name, inputs)?;
    <[&ArrayType; N]>::try_from(all.as_slice())
        .map_err(|_| internal_error!("{name}: operands were miscounted"))
}

/// Exactly `N` tensors.
pub fn tensors<'a, const N: usize>(name: &str, inputs: &'a [Tensor]) -> Result<&'a [Tensor; N]> {
    <&[Tensor; N]>::try_from(inputs)
        .map_err(|_| internal_error!("{name} was evaluated on {} operands of {N}", inputs.len()))
}

/// Exactly `N` atoms.
pub fn atoms<const N: usize>(name: &str, inputs: &[Atom]) -> Result<[Atom; N]> {
    <[Atom; N]>::try_from(inputs).map_err(|_| internal_error!("{name} has {} operands of {N}", inputs.len()))
}

/// Dtype and sizes of the only output.
pub fn output_sizes(name: &str, outputs: &[Type]) -> Result<(DType, Sizes)> {
    let [Type::Array(ty)] = outputs else {
        return Err(internal_error!("{name} has one array output"));
    };
    let sizes =
        ty.sizes().ok_or_else(|| value_error!("{name} was evaluated with the symbolic shape {ty}"))?;
    Ok((ty.dtype, sizes))
}

/// Whether `small <= large` is possible: for constants the plain comparison,
/// for symbolic dimensions whatever is not known to be false.
pub fn may_be_at_most(small: &Dim, large: &Dim) -> bool {
    large.sub(small).is_ok()
}

/// A list of parameters as a tuple, for messages.
pub fn tuple<T: std::fmt::Display>(items: &[T]) -> String {
    let parts: Vec<_> = items.iter().map(T::to_string).collect();
    format!("({}{})", parts.join(", "), if parts.len() == 1 { "," } else { "" })
}

pub fn has_duplicates(axes: &[usize]) -> bool {
    axes.iter().enumerate().any(|(position, axis)| axes[..position].contains(axis))
}

/// The axes of an array of `rank` that are not in `axes`, ascending.
pub fn other_axes(rank: usize, axes: &[usize]) -> Axes {
    (0..rank).filter(|axis| !axes.contains(axis)).collect()
}

/// Row-major strides, in elements.
pub fn strides(sizes: &[usize]) -> Sizes {
    crate::tensor::row_major(sizes, 1)
}

/// The position of `index` in row-major order.
pub fn offset(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

/// Visits every multi-index, the last axis fastest.
pub fn for_each_index(sizes: &[usize], mut visit: impl FnMut(&[usize]) -> Result<()>) -> Result<()> {
    if sizes.contains(&0) {
        return Ok(());
    }
    let mut index: Sizes = smallvec::smallvec![0; sizes.len()];
    loop {
        visit(&index)?;
        let mut axis = sizes.len();
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Copies element `from` of `source` to element `to` of `target`.
pub fn copy_element(source: &[u8], from: usize, target: &mut [u8], to: usize, width: usize) -> Result<()> {
    let source = source.get(from * width..(from + 1) * width);
    let target = target.get_mut(to * width..(to + 1) * width);
    match (source, target) {
        (Some(source), Some(target)) => {
            target.copy_from_slice(source);
            Ok(())
        }
        _ => Err(internal_error!("an element was read or written outside its array")),
    }
}

/// The tensor whose element at each index is the element of `input` at the
/// row-major position `source(index)`.
pub fn remap(input: &Tensor, sizes: &[usize], source: impl Fn(&[usize]) -> usize) -> Result<Tensor> {
    let mut output = Tensor::zeros(input.dtype(), sizes)?;
    let width = input.dtype().size();
    let target = output.bytes_mut()?;
    let mut position = 0;
    for_each_index(sizes, |index| {
        copy_element(input.bytes(), source(index), target, position, width)?;
        position += 1;
        Ok(())
    })?;
    Ok(output)
}

/// The elements of an integer array, of any width.
pub fn integers(tensor: &Tensor) -> Result<Vec<i128>> {
    let width = tensor.dtype().size();
    tensor
        .bytes()
        .chunks_exact(width.max(1))
        .map(|bytes| match crate::convert::load(tensor.dtype(), bytes) {
            Some(crate::convert::Wide::Int(value)) => Ok(value),
            _ => Err(internal_error!("indices of {} are not integers", tensor.dtype())),
        })
        .collect()
}

/// `tangent`, or zeros of the tangent type of `primal`.
pub fn instantiate(b: &mut Builder, tangent: Option<Atom>, primal: Atom) -> Result<Atom> {
    match tangent {
        Some(tangent) => Ok(tangent),
        None => {
            let ty = b.array_type(primal)?.tangent().with_weak(false);
            b.zeros(&ty)
        }
    }
}

/// The jvp rule of ops that are linear in their first operand and take no
/// tangents of the others: the op itself, applied to the tangent.
pub fn linear_jvp(op: impl Into<Op>, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
    let Some(tangent) = eqn.tangents.first().copied().flatten() else {
        return Ok(SmallVec::from_iter([None]));
    };
    let mut operands: SmallVec<[Atom; 3]> = eqn.inputs.into();
    operands[0] = tangent;
    Ok(SmallVec::from_iter([Some(b.emit1(op, &operands)?)]))
}

/// No tangent: the output is discrete or constant.
pub fn no_tangent() -> Result<Tangents> {
    Ok(SmallVec::from_iter([None]))
}

/// The cotangent of an op's only output.
pub fn only_cotangent(name: &str, eqn: &Transpose<'_>) -> Result<Atom> {
    eqn.cotangents.first().copied().flatten().ok_or_else(|| internal_error!("{name}: no cotangent"))
}

/// The type of an input that the equation is linear in.
pub fn linear_type(name: &str, eqn: &Transpose<'_>, position: usize) -> Result<ArrayType> {
    match eqn.inputs.get(position) {
        Some(crate::rules::Operand::Linear(Type::Array(ty))) => Ok(ty.clone()),
        _ => Err(internal_error!("{name}: operand {position} is not linear")),
    }
}

/// The type of an input, linear or known.
pub fn operand_type(b: &Builder, name: &str, eqn: &Transpose<'_>, position: usize) -> Result<ArrayType> {
    match eqn.inputs.get(position) {
        Some(crate::rules::Operand::Linear(Type::Array(ty))) => Ok(ty.clone()),
        Some(crate::rules::Operand::Known(atom)) => b.array_type(*atom),
        _ => Err(internal_error!("{name}: operand {position} is not an array")),
    }
}

/// The known inputs from `first` on.
pub fn known_from(name: &str, eqn: &Transpose<'_>, first: usize) -> Result<SmallVec<[Atom; 4]>> {
    eqn.inputs
        .iter()
        .skip(first)
        .map(|operand| {
            operand.known().ok_or_else(|| internal_error!("{name}: an index operand is linear in something"))
        })
        .collect()
}

/// Whether the equation is linear in this input.
pub fn is_linear(eqn: &Transpose<'_>, position: usize) -> bool {
    eqn.inputs.get(position).is_some_and(crate::rules::Operand::is_linear)
}

/// One cotangent.
pub fn one_cotangent(atom: Atom) -> Result<Cotangents> {
    Ok(SmallVec::from_iter([Some(atom)]))
}

/// The only operand and its batch dimension.
pub fn only_batched(name: &str, eqn: &Batch<'_>) -> Result<(Atom, usize)> {
    match (eqn.inputs, eqn.dims) {
        ([operand], [Some(dim)]) => Ok((*operand, *dim)),
        _ => Err(internal_error!("{name}: expected one batched operand")),
    }
}

/// One output with its batch dimension.
pub fn one_batched(atom: Atom, dim: usize) -> Result<Batched> {
    Ok(SmallVec::from_iter([(atom, Some(dim))]))
}

/// The operand with its batch dimension in front: moved there, or made there by repetition.
pub fn batch_to_front(b: &mut Builder, atom: Atom, dim: Option<usize>, size: &Dim) -> Result<Atom> {
    match dim {
        Some(dim) => b.move_axis(atom, dim, 0),
        None => b.broadcast_batch(atom, size, 0),
    }
}

/// Axes after a new axis was put in front.
pub fn after_front(axes: &[usize]) -> Axes {
    axes.iter().map(|axis| axis + 1).collect()
}

/// The same, with the new axis itself first.
pub fn with_front(axes: &[usize]) -> Axes {
    std::iter::once(0).chain(axes.iter().map(|axis| axis + 1)).collect()
}
