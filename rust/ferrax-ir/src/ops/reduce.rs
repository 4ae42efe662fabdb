//! Reductions and cumulative ops.

use crate::rules::FromParams;
use crate::{Axes, DType, Param, Params, Result, ToParam, parse_error, pending_rules, string_enum};

string_enum! {
    /// Which reduction.
    ReduceKind {
        Sum = "reduce_sum", Prod = "reduce_prod", Max = "reduce_max", Min = "reduce_min", And = "reduce_and",
        Or = "reduce_or", Xor = "reduce_xor",
    }
}

string_enum! {
    /// Which extremum's index.
    ArgKind { Max = "argmax", Min = "argmin" }
}

string_enum! {
    /// Which running reduction.
    CumulativeKind {
        Sum = "cumsum", Prod = "cumprod", Max = "cummax", Min = "cummin", LogSumExp = "cumlogsumexp",
    }
}

/// Reduces over axes, which disappear. The kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Axes,
}

/// The index of the first extremum along one axis; NaN counts as extreme.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axes: Axes,
    pub index_dtype: DType,
}

/// Running reduction along an axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

macro_rules! kinds {
    ($name:ident, $kind:ident, [$($field:ident),*], [$($text:literal $doc:literal),* $(,)?]) => {
        impl $name {
            fn op_name(&self) -> &'static str {
                self.kind.name()
            }

            fn param_list(&self) -> Vec<(&'static str, Param)> {
                vec![$((stringify!($field), self.$field.to_param())),*]
            }
        }

        impl FromParams for $name {
            const NAMES: &'static [(&'static str, &'static str)] = &[$(($text, $doc)),*];

            fn from_params(name: &str, params: &mut Params) -> Result<Self> {
                let kind = $kind::from_param(Param::Str(name.into())).map_err(|_| parse_error!("no op '{name}'"))?;
                Ok($name { kind, $($field: params.take(stringify!($field))?),* })
            }
        }
    };
}

kinds!(Reduce, ReduceKind, [axes], [
    "reduce_sum" "Sum over axes.",
    "reduce_prod" "Product over axes.",
    "reduce_max" "Maximum over axes; NaN if there is one.",
    "reduce_min" "Minimum over axes; NaN if there is one.",
    "reduce_and" "Bitwise and over axes.",
    "reduce_or" "Bitwise or over axes.",
    "reduce_xor" "Bitwise exclusive or over axes.",
]);
kinds!(ArgReduce, ArgKind, [axes, index_dtype], [
    "argmax" "Index of the first maximum along an axis.",
    "argmin" "Index of the first minimum along an axis.",
]);
kinds!(Cumulative, CumulativeKind, [axis, reverse], [
    "cumsum" "Running sum along an axis.",
    "cumprod" "Running product along an axis.",
    "cummax" "Running maximum along an axis.",
    "cummin" "Running minimum along an axis.",
    "cumlogsumexp" "Running log of the sum of exponentials along an axis.",
]);

pending_rules!(Reduce, ArgReduce, Cumulative);
