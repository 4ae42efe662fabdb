//! Ops that move elements by static rules.

use crate::{Axes, DType, Shape, op_struct, pending_rules};

op_struct! {
    /// Broadcasts: axis i of the operand becomes axis `broadcast_dimensions[i]`.
    BroadcastInDim "broadcast_in_dim" { shape: Shape, broadcast_dimensions: Axes }
}
op_struct! {
    /// The same elements in the same order with another shape.
    Reshape "reshape" { new_sizes: Shape, dimensions: Option<Axes> }
}
op_struct! {
    /// Axis i of the result is axis `permutation[i]` of the operand.
    Transpose "transpose" { permutation: Axes }
}
op_struct! {
    /// Removes axes of size 1.
    Squeeze "squeeze" { dimensions: Axes }
}
op_struct! {
    /// A window with fixed bounds and steps.
    Slice "slice" { start_indices: Shape, limit_indices: Shape, strides: Option<Axes> }
}
op_struct! {
    /// A window of fixed size at a position given by operands, clamped to fit.
    DynamicSlice "dynamic_slice" { slice_sizes: Shape }
}
op_struct! {
    /// The operand with a window overwritten, clamped to fit.
    DynamicUpdateSlice "dynamic_update_slice" {}
}
op_struct! {
    /// The operands one after the other along an axis.
    Concatenate "concatenate" { dimension: usize }
}
op_struct! {
    /// Pads (or for negative widths crops) with a value: low, high, interior for each axis.
    Pad "pad" { padding_config: Vec<(i64, i64, i64)> }
}
op_struct! {
    /// Reverses axes.
    Rev "rev" { dimensions: Axes }
}
op_struct! {
    /// Counts 0, 1, 2, … along an axis.
    Iota "iota" { dtype: DType, shape: Shape, dimension: usize }
}

pending_rules!(
    BroadcastInDim,
    Reshape,
    Transpose,
    Squeeze,
    Slice,
    DynamicSlice,
    DynamicUpdateSlice,
    Concatenate,
    Pad,
    Rev,
    Iota
);
