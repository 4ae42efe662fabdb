//! The CPU backend: compiles programs and runs them.
//!
//! | module | holds |
//! |---|---|
//! | `executable` | [`compile`] and [`Executable`] |
//! | `eager` | [`run_op`]: one op at once, through a cache of executables |

pub mod eager;
pub mod executable;

pub use eager::run_op;
pub use executable::{Executable, compile, set_interrupt_check};
