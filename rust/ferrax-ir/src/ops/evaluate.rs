//! Reference evaluation of elementwise ops, one element at a time.

use crate::convert::{Wide, load, store};
use crate::{ArrayType, DType, Result, Scalar, Sizes, Tensor, Type, internal_error};

/// The first output's type and sizes.
pub fn output(outputs: &[Type]) -> Result<(&ArrayType, Sizes)> {
    let ty = outputs
        .first()
        .and_then(Type::as_array)
        .ok_or_else(|| internal_error!("evaluation without an output type"))?;
    let sizes = ty.sizes().ok_or_else(|| internal_error!("evaluation with symbolic dimensions: {ty}"))?;
    Ok((ty, sizes))
}

/// The bytes of element `index`, of 0-d operands always the only one.
fn element(tensor: &Tensor, index: usize) -> &[u8] {
    let size = tensor.dtype().size();
    let start = if tensor.rank() == 0 { 0 } else { index * size };
    &tensor.bytes()[start..start + size]
}

/// Calls `f` with the elements at each index and collects what it gives, as
/// raw elements.
pub fn map_scalars(
    inputs: &[Tensor],
    outputs: &[Type],
    mut f: impl FnMut(&[Scalar]) -> Result<Scalar>,
) -> Result<Vec<Tensor>> {
    let (ty, sizes) = output(outputs)?;
    let dtype = ty.dtype;
    let mut result = Tensor::zeros(dtype, sizes)?;
    let mut scalars = vec![Scalar::zero(DType::Bool); inputs.len()];
    for (index, target) in result.bytes_mut()?.chunks_exact_mut(dtype.size().max(1)).enumerate() {
        for (scalar, input) in scalars.iter_mut().zip(inputs) {
            *scalar = Scalar::from_bytes(input.dtype(), element(input, index))
                .ok_or_else(|| internal_error!("an element of {} is too short", input.dtype()))?;
        }
        target.copy_from_slice(&f(&scalars)?.bytes());
    }
    Ok(vec![result])
}

/// Calls `f` with the values at each index; what it gives is rounded to the
/// output's dtype.
pub fn map(
    inputs: &[Tensor],
    outputs: &[Type],
    mut f: impl FnMut(&[Wide]) -> Result<Wide>,
) -> Result<Vec<Tensor>> {
    let (ty, sizes) = output(outputs)?;
    let dtype = ty.dtype;
    let mut result = Tensor::zeros(dtype, sizes)?;
    let mut values = vec![Wide::Int(0); inputs.len()];
    for (index, target) in result.bytes_mut()?.chunks_exact_mut(dtype.size().max(1)).enumerate() {
        for (value, input) in values.iter_mut().zip(inputs) {
            *value = load(input.dtype(), element(input, index))
                .ok_or_else(|| internal_error!("elements of {} have no value", input.dtype()))?;
        }
        let scalar =
            store(dtype, f(&values)?).ok_or_else(|| internal_error!("elements of {dtype} have no value"))?;
        target.copy_from_slice(&scalar.bytes());
    }
    Ok(vec![result])
}
