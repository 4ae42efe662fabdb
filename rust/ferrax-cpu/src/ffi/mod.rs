//! Functions of other languages in programs: handlers for XLA's foreign function interface.
//!
//! A handler is a C function that takes a *call frame*: pointers to operands, to results and to
//! attributes, and a table of functions that it may call back. Libraries that were built for XLA are
//! loaded as they are.
//!
//! | module | holds |
//! |---|---|
//! | `abi` | the layout of what both sides see |
//! | `registry` | handlers by name and platform, types of their states |
//! | `context` | what a handler may ask for while it runs |
//! | `table` | the functions that it asks by |
//! | `frame` | a call frame, made once for an executable |
//! | `call` | the op, and its kernel |
//!
//! Source of the interface: `xla/ffi/api/c_api.h` of XLA, versions 0.1 to 0.5, whose layout is public.

mod abi;
mod call;
mod context;
mod frame;
mod registry;
mod table;

pub(crate) use call::kernel;
pub use call::{Attribute, FfiCall};
pub use registry::{Handlers, is_registered, register, register_type};
pub(crate) use registry::{Held, hold};
