//! Ops of parts: parameters that are sizes of operands and results become those of the parts.

use ferrax_ir::ops::{
    BroadcastInDim, ConvGeneralDilated, DotGeneral, DynamicSlice, Gather, Iota, Reshape, Slice,
};
use ferrax_ir::{DType, Dim, Op, Result, Type};

/// The op that does to the parts what `op` does to the whole, if it does the same along each axis that is cut.
pub fn of_parts(op: &Op, operands: &[Type], results: &[Type]) -> Result<Op> {
    let shape_of = |types: &[Type]| types.first().and_then(Type::as_array).map(|ty| ty.shape.clone());
    let (Some(result), operand) = (shape_of(results), shape_of(operands)) else { return Ok(op.clone()) };
    Ok(match (op, operand) {
        (Op::Extension(extension), _) => extension.0.of_parts(operands)?.unwrap_or_else(|| op.clone()),
        (Op::BroadcastInDim(op), _) => BroadcastInDim { shape: result, ..op.clone() }.into(),
        (Op::Reshape(op), _) => Reshape { new_sizes: result, ..op.clone() }.into(),
        (Op::Iota(op), _) => Iota { shape: result, ..op.clone() }.into(),
        (Op::DynamicSlice(_), _) => DynamicSlice { slice_sizes: result }.into(),
        (Op::Slice(op), Some(operand)) => {
            // An axis that is cut is taken whole: its limit is the end.
            let mut op: Slice = op.clone();
            for (limit, size) in op.limit_indices.iter_mut().zip(&operand) {
                if limit.as_const() > size.as_const() {
                    *limit = size.clone();
                }
            }
            op.into()
        }
        (Op::Gather(op), Some(operand)) => {
            let mut op: Gather = op.clone();
            for (window, size) in op.slice_sizes.iter_mut().zip(&operand) {
                if window.as_const() > size.as_const() {
                    *window = Dim::clone(size);
                }
            }
            op.into()
        }
        _ => op.clone(),
    })
}

/// The op that gives sums of narrow floats in 32 bits, which are rounded when those of all devices are added up; `None` for ops
/// that give no such.
pub fn in_wide(op: &Op, results: &[Type]) -> Option<Op> {
    let narrow = |ty: &Type| ty.as_array().is_some_and(|ty| matches!(ty.dtype, DType::F16 | DType::BF16));
    if !results.iter().all(narrow) {
        return None;
    }
    let preferred_element_type = Some(DType::F32);
    match op {
        Op::DotGeneral(op) => Some(DotGeneral { preferred_element_type, ..op.clone() }.into()),
        Op::ConvGeneralDilated(op) => {
            Some(ConvGeneralDilated { preferred_element_type, ..op.clone() }.into())
        }
        Op::Reduce(_) => Some(op.clone()),
        _ => None,
    }
}

/// Whether the op gives results of these shapes.
pub fn gives(op: &Op, operands: &[Type], results: &[Type]) -> bool {
    let shape = |ty: &Type| ty.as_array().map(|ty| ty.shape.clone());
    op.infer(operands).is_ok_and(|found| found.iter().map(shape).eq(results.iter().map(shape)))
}
