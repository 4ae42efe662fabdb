//! The rows of all ops, by family.

mod call;
pub(crate) mod common;
mod dot;
mod elementwise;
mod indexing;
mod pending;
mod random;
mod reduce;
mod structure;

pub use call::Call;
pub use dot::{DotGeneral, Precision};
pub use elementwise::{
    Binary, BitcastConvertType, Clamp, Compare, ConvertElementType, Copy, IntegerPow, ReducePrecision, Round,
    SelectN, StopGradient, Unary,
};
pub use indexing::{Gather, GatherMode, Scatter, ScatterKind};
pub use random::{RandomBits, RandomFoldIn, RandomSeed, RandomSplit, RandomUnwrap, RandomWrap, Threefry2x32};
pub use reduce::{ArgKind, ArgReduce, Cumulative, CumulativeKind, Reduce, ReduceKind};
pub use structure::{
    BroadcastInDim, Concatenate, DynamicSlice, DynamicUpdateSlice, Iota, Pad, Reshape, Rev, Slice, Squeeze,
    Transpose,
};
