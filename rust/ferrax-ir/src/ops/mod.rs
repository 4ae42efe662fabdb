//! The rows of all ops, by family.

/// `Row::name` and `Row::params` of ops made by `op_struct!` and the like.
macro_rules! row_identity {
    () => {
        fn name(&self) -> &str {
            self.op_name()
        }

        fn params(&self) -> Vec<(&'static str, $crate::Param)> {
            self.param_list()
        }
    };
}

/// Names and parameters of an op whose kind is part of its name. Kinds are a table of rows, or an
/// enum whose docs are given here.
macro_rules! kind_params {
    ($name:ident, $kind:ident, [$($field:ident),*]) => {
        kind_params!($name, $kind, [$($field),*], $kind::NAMES);
    };
    ($name:ident, $kind:ident, [$($field:ident),*], [$($text:literal $doc:literal),* $(,)?]) => {
        kind_params!($name, $kind, [$($field),*], &[$(($text, $doc)),*]);
    };
    ($name:ident, $kind:ident, [$($field:ident),*], $names:expr) => {
        impl $name {
            fn op_name(&self) -> &'static str {
                self.kind.name()
            }

            fn param_list(&self) -> Vec<(&'static str, $crate::Param)> {
                vec![$((stringify!($field), $crate::ToParam::to_param(&self.$field))),*]
            }
        }

        impl $crate::rules::FromParams for $name {
            const NAMES: &'static [(&'static str, &'static str)] = $names;

            fn from_params(name: &str, params: &mut $crate::Params) -> $crate::Result<Self> {
                let kind = $kind::ALL.iter().copied().find(|kind| kind.name() == name);
                let kind = kind.ok_or_else(|| $crate::parse_error!("there is no op named '{name}'"))?;
                Ok($name { kind, $($field: params.take(stringify!($field))?),* })
            }
        }
    };
}

mod accumulate;
mod assemble;
mod binary;
mod call;
mod checkpoint;
mod collectives;
pub(crate) mod common;
mod compare;
mod complex;
mod complex_inverse;
pub mod control;
mod convert;
mod convolution;
mod cumulative;
mod custom;
mod derive;
mod dim_value;
mod dot;
mod evaluate;
mod fft;
mod formula;
mod gather;
mod identities;
pub(crate) mod index_space;
mod linalg;
mod order;
mod policy;
pub mod python;
mod random;
mod random_expand;
mod reduce;
mod rounding;
mod ruled_calls;
mod saved_rules;
mod scatter;
mod select;
mod shape;
mod slice;
mod sort;
mod stand_in;
mod sweeps;
mod top_k;
mod unary;

pub use assemble::{Concatenate, Iota, Kept, Pad, Rev};
pub use binary::{Binary, BinaryRow, Derivative as BinaryDerivative};
pub use call::Call;
pub use checkpoint::Checkpoint;
pub use collectives::{
    AllGather, AllGatherInvariant, AllGatherReduced, AllToAll, AxisIndex, AxisReduce, AxisReduceKind,
    Pbroadcast, Ppermute, ReduceScatter, UnreducedReduceScatter,
};
pub use common::Accept;
pub use compare::{Compare, CompareRow};
pub use control::{Cond, Scan, While};
pub use convert::{BitcastConvertType, ConvertElementType};
pub use convolution::{ConvDims, ConvGeneralDilated};
pub use cumulative::{Cumulative, CumulativeKind, CumulativeRow};
pub use custom::{
    CustomJvp, CustomLinear, CustomVjp, FlaggedProgram, JvpHandle, JvpRule, VjpHandle, VjpRule, ZeroLike,
};
pub use dim_value::DimAsValue;
pub use dot::{DotGeneral, Precision};
pub use fft::{Fft, FftType};
pub use gather::{Gather, GatherMode};
pub use identities::{
    Copy, Name, OptimizationBarrier, Preduced, Pvary, ReducedVary, StopGradient, VaryUnreduced,
};
pub use linalg::{
    Cholesky, Eig, Eigh, Geqp3, Geqrf, Hessenberg, HouseholderProduct, Lu, LuPivotsToPermutation, Ormqr, Qr,
    Schur, Svd, TriangularSolve, Tridiagonal, TridiagonalSolve,
};
pub use order::{key_ranks, total_ranks};
pub use policy::{Policy, PolicyHandle, Saveable};
pub use random::{RandomBits, RandomFoldIn, RandomSeed, RandomSplit, RandomUnwrap, RandomWrap, Threefry2x32};
pub use reduce::{ArgKind, ArgReduce, ArgRow, Reduce, ReduceKind, ReduceRow};
pub use rounding::{IntegerPow, ReducePrecision, Round};
pub use ruled_calls::{CustomVmap, LinearCall, LinearSolve};
pub use saved_rules::{SavedJvp, SavedVjp};
pub use scatter::{Scatter, ScatterKind};
pub use select::{Clamp, SelectN};
pub use shape::{BroadcastInDim, Reshape, Squeeze, Transpose};
pub use slice::{DynamicSlice, DynamicUpdateSlice, Slice};
pub use sort::Sort;
pub use stand_in::StandIn;
pub use sweeps::Sweeps;
pub use top_k::TopK;
pub use unary::{Derivative as UnaryDerivative, Unary, UnaryRow};

/// Hands the list of all ops to a macro: leaves, ops over sub-programs that passes know by name,
/// and calls with rules of the user's.
macro_rules! with_all_ops {
    ($then:ident) => {
        $then! {
            leaves:
            // Elementwise.
            Unary, Binary, Compare, Round, IntegerPow, ReducePrecision, ConvertElementType, BitcastConvertType,
            SelectN, Clamp, StopGradient, StandIn, Copy, OptimizationBarrier, Name,
            // Structure.
            BroadcastInDim, Reshape, Transpose, Squeeze, Slice, DynamicSlice, DynamicUpdateSlice, Concatenate, Pad,
            Rev, Iota, DimAsValue, Gather, Scatter,
            // Reductions.
            Reduce, ArgReduce, Cumulative,
            // Order.
            Sort, TopK,
            // Decompositions.
            Eigh, Svd, Cholesky, Lu, Qr, Geqrf, Geqp3, HouseholderProduct, Ormqr, TriangularSolve,
            LuPivotsToPermutation, Tridiagonal, TridiagonalSolve, Hessenberg, Schur, Eig,
            // Transforms.
            Fft,
            // Products.
            DotGeneral, ConvGeneralDilated,
            // Random bits.
            Threefry2x32, RandomSeed, RandomSplit, RandomFoldIn, RandomBits, RandomWrap, RandomUnwrap,
            // Over named axes.
            AxisReduce, Ppermute, Pbroadcast, AxisIndex, AllGather, AllGatherInvariant, AllGatherReduced,
            ReduceScatter, UnreducedReduceScatter, AllToAll, Pvary, Preduced, ReducedVary, VaryUnreduced,
            // Derivatives of the user's.
            CustomLinear;
            structured:
            Call, Cond, While, Sweeps, Scan, Checkpoint, CustomJvp, CustomVjp;
            ruled:
            LinearCall, LinearSolve, CustomVmap,
        }
    };
}
pub(crate) use with_all_ops;
