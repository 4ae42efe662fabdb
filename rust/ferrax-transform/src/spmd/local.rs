//! Ops of parts: parameters that are sizes of operands and results become those of the parts.

use ferrax_ir::ops::{BroadcastInDim, DynamicSlice, Gather, Iota, Reshape, Slice};
use ferrax_ir::{Dim, Op, Type};

/// The op that does to the parts what `op` does to the whole, if it does the same along each axis that is cut.
pub fn of_parts(op: &Op, operands: &[Type], results: &[Type]) -> Op {
    let shape_of = |types: &[Type]| types.first().and_then(Type::as_array).map(|ty| ty.shape.clone());
    let (Some(result), operand) = (shape_of(results), shape_of(operands)) else { return op.clone() };
    match (op, operand) {
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
    }
}

/// Whether the op gives results of these shapes.
pub fn gives(op: &Op, operands: &[Type], results: &[Type]) -> bool {
    let shape = |ty: &Type| ty.as_array().map(|ty| ty.shape.clone());
    op.infer(operands).is_ok_and(|found| found.iter().map(shape).eq(results.iter().map(shape)))
}
