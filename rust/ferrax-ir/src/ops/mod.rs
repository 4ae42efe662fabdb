//! The rows of all ops, by family.

mod arithmetic;
mod binary;
mod binary_derivatives;
mod call;
pub(crate) mod common;
mod compare;
mod complex;
mod convert;
mod derive;
mod dot;
mod evaluate;
mod indexing;
mod pending;
mod random;
mod random_expand;
mod reduce;
mod rounding;
mod select;
mod structure;
mod unary;
mod unary_derivatives;

pub use binary::Binary;
pub use call::Call;
pub use compare::Compare;
pub use convert::{BitcastConvertType, ConvertElementType};
pub use dot::{DotGeneral, Precision};
pub use indexing::{Gather, GatherMode, Scatter, ScatterKind};
pub use random::{RandomBits, RandomFoldIn, RandomSeed, RandomSplit, RandomUnwrap, RandomWrap, Threefry2x32};
pub use reduce::{ArgKind, ArgReduce, Cumulative, CumulativeKind, Reduce, ReduceKind};
pub use rounding::{IntegerPow, ReducePrecision, Round};
pub use select::{Clamp, Copy, SelectN, StopGradient};
pub use structure::{
    BroadcastInDim, Concatenate, DynamicSlice, DynamicUpdateSlice, Iota, Pad, Reshape, Rev, Slice, Squeeze,
    Transpose,
};
pub use unary::Unary;
