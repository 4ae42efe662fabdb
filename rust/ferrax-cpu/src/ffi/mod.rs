//! Functions of other languages in programs: handlers for XLA's foreign function interface.
//!
//! A handler is a C function that takes a *call frame*: pointers to operands, to results and to
//! attributes, and a table of functions that it may call back. Libraries that were built for XLA are
//! loaded as they are.
//!
//! | module | holds |
//! |---|---|
//! | `registry` | handlers by name and platform |
//! | `types` | types of states |
//! | `context` | what a handler may ask for while it runs |
//! | `table` | the functions that it asks by |
//! | `frame` | a call frame, made once for an executable |
//! | `call` | the op, and its kernel |
//!
//! The layout of what both sides see is `ferrax_ffi::abi`, versions 0.1 to 0.5.

mod call;
mod context;
mod frame;
mod registry;
mod table;
mod types;

pub(crate) use call::kernel;
pub use call::{FfiCall, Order};
pub use frame::Attribute;
pub use registry::{Handlers, is_registered, register};
pub use types::register_type;

/// The locks, held: see `fork`.
pub(crate) type Held = Box<dyn std::any::Any>;

pub(crate) fn hold() -> Held {
    Box::new((registry::hold(), types::hold()))
}
