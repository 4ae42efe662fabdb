//! The intermediate representation of ferrax: what programs are.
//!
//! A [`Program`] is a list of [`Equation`]s in single assignment, each the
//! application of an [`Op`] to variables and literals. Everything there is to
//! know of an op — parameters, types, derivatives, batching, meaning, lowering —
//! is in its row under [`ops`].
//!
//! | module | holds |
//! |---|---|
//! | `dtype`, `dim`, `types` | element types, dimensions, types of values |
//! | `tensor`, `convert`, `minifloat` | values and conversions between dtypes |
//! | `op`, `param`, `rules`, `ops/` | the op set, parameters as values, the rows |
//! | `lowering` | what rows tell compilers: index maps, reductions |
//! | `shard_rule` | which axes of operands and results are cut into parts together |
//! | `program`, `builder` | programs and how to make them |
//! | `equality` | programs compared and hashed |
//! | `print`, `parse`, `canonical` | programs as text and back; one numbering |
//! | `serial/` | programs as files and back |
//! | `verify` | the invariants of programs |
//! | `interpret` | the reference interpreter |
//! | `math/` | functions of floats as polynomials, shared by all backends |
//! | `scalar/` | the scalar language that elementwise rows lower to |

pub mod builder;
mod canonical;
pub mod convert;
pub mod costs;
pub mod dim;
pub mod dtype;
mod equality;
pub mod error;
mod generators;
pub mod interpret;
pub mod lowering;
pub mod math;
pub mod minifloat;
pub mod op;
pub mod ops;
pub mod param;
mod parse;
pub mod paths;
mod pretty;
mod print;
pub mod program;
pub mod rules;
pub mod scalar;
pub mod serial;
pub mod shard_rule;
pub mod tensor;
pub mod types;
pub mod varying;
pub mod verify;

pub use builder::Builder;
pub use dim::Dim;
pub use dtype::{DType, Kind};
pub use error::{Error, Result};
pub use generators::KeyImpl;
pub use op::{Extension, Op, View};
pub use param::{Param, Params, ToParam};
pub use print::{ShowCaptured, ShowOp};
pub use program::{
    Atom, Atoms, Effect, Effects, Equation, Literal, Measure, Program, Source, SourceLine, Var, Vars,
    hold_tables,
};
pub use tensor::{Element, Scalar, Sizes, Storage, Tensor};
pub use types::{ArrayType, Axes, Shape, ShowShape, Type};
pub use varying::Varying;
