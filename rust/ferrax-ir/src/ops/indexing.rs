//! Gather and scatter.

use crate::rules::FromParams;
use crate::{Axes, Param, Params, Result, Scalar, Shape, ToParam, op_struct, pending_rules, string_enum};

string_enum! {
    /// What happens to indices out of bounds.
    GatherMode {
        /// They are clamped.
        Clip = "clip",
        /// Gather gives the fill value, scatter drops the update.
        Fill = "fill",
        /// The caller promises that there are none; treated as `Clip`.
        PromiseInBounds = "promise_in_bounds",
    }
}

op_struct! {
    /// Windows of the operand at positions given by an index array.
    Gather "gather" {
        offset_dims: Axes, collapsed_slice_dims: Axes, start_index_map: Axes, operand_batching_dims: Axes,
        start_indices_batching_dims: Axes, slice_sizes: Shape, mode: GatherMode, fill_value: Option<Scalar>,
        unique_indices: bool, indices_are_sorted: bool,
    }
}

string_enum! {
    /// How an update combines with what is there.
    ScatterKind {
        Set = "scatter", Add = "scatter_add", Sub = "scatter_sub", Mul = "scatter_mul", Min = "scatter_min",
        Max = "scatter_max",
    }
}

/// Updates windows of the operand at positions given by an index array. The
/// kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    pub kind: ScatterKind,
    pub update_window_dims: Axes,
    pub inserted_window_dims: Axes,
    pub scatter_dims_to_operand_dims: Axes,
    pub operand_batching_dims: Axes,
    pub scatter_indices_batching_dims: Axes,
    pub mode: GatherMode,
    pub unique_indices: bool,
    pub indices_are_sorted: bool,
}

impl Scatter {
    fn op_name(&self) -> &'static str {
        self.kind.name()
    }

    fn param_list(&self) -> Vec<(&'static str, Param)> {
        vec![
            ("update_window_dims", self.update_window_dims.to_param()),
            ("inserted_window_dims", self.inserted_window_dims.to_param()),
            ("scatter_dims_to_operand_dims", self.scatter_dims_to_operand_dims.to_param()),
            ("operand_batching_dims", self.operand_batching_dims.to_param()),
            ("scatter_indices_batching_dims", self.scatter_indices_batching_dims.to_param()),
            ("mode", self.mode.to_param()),
            ("unique_indices", self.unique_indices.to_param()),
            ("indices_are_sorted", self.indices_are_sorted.to_param()),
        ]
    }
}

impl FromParams for Scatter {
    const NAMES: &'static [(&'static str, &'static str)] = &[
        ("scatter", "Overwrites windows at indexed positions."),
        ("scatter_add", "Adds to windows at indexed positions."),
        ("scatter_sub", "Subtracts from windows at indexed positions."),
        ("scatter_mul", "Multiplies windows at indexed positions."),
        ("scatter_min", "Minimum with windows at indexed positions."),
        ("scatter_max", "Maximum with windows at indexed positions."),
    ];

    fn from_params(name: &str, params: &mut Params) -> Result<Self> {
        Ok(Scatter {
            kind: ScatterKind::from_param(Param::Str(name.into()))?,
            update_window_dims: params.take("update_window_dims")?,
            inserted_window_dims: params.take("inserted_window_dims")?,
            scatter_dims_to_operand_dims: params.take("scatter_dims_to_operand_dims")?,
            operand_batching_dims: params.take("operand_batching_dims")?,
            scatter_indices_batching_dims: params.take("scatter_indices_batching_dims")?,
            mode: params.take("mode")?,
            unique_indices: params.take("unique_indices")?,
            indices_are_sorted: params.take("indices_are_sorted")?,
        })
    }
}

pending_rules!(Gather, Scatter);
