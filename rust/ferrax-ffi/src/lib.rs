//! Handlers of foreign functions in Rust, which programs call by `ffi_call`.
//!
//! [`ffi_handler!`] makes a function of Rust's one that ferrax and JAX load from a shared library, by the C
//! interface of XLA, version 0.3. It checks what it is given: dtypes, alignment, sizes. Errors and panics become
//! errors of the call. There is no `unsafe` in handlers, and no dependency: not on the compiler either.
//!
//! ```
//! use ferrax_ffi::{Call, Result, ffi_handler};
//!
//! ffi_handler! {
//!     /// `by` times each number.
//!     pub fn scaled(call: &Call<'_>) -> Result<()> {
//!         let by: f32 = call.attribute("by")?;
//!         let x = call.operand::<f32>(0)?;
//!         for (y, x) in call.result::<f32>(0)?.iter_mut().zip(x.iter()) {
//!             *y = by * x;
//!         }
//!         Ok(())
//!     }
//! }
//! ```
//!
//! The library is a crate with `crate-type = ["cdylib"]`; `jax.ffi.pycapsule(library.scaled)` is its handler.
//!
//! | module | holds |
//! |---|---|
//! | [`abi`] | the layout of what both sides see |
//! | [`mod@error`] | codes and messages |
//! | [`element`] | types of elements |
//! | [`attributes`] | what is passed by keyword |
//! | [`call`] | operands, results, states of a call |
//! | [`parallel`] | loops over the caller's threads |
//! | [`state`] | types of states |
//! | [`handler`] | the function that the caller sees |

pub mod abi;
pub mod attributes;
pub mod call;
pub mod element;
pub mod error;
pub mod handler;
pub mod parallel;
pub mod state;

pub use attributes::{Attributes, FromAttribute};
pub use call::{Call, Operand, ResultBuffer};
pub use element::{BF16, Bool, Complex, Element, F16};
pub use error::{Code, Error, Result};
pub use state::State;
