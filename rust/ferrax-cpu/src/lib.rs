//! The CPU backend: compiles programs and runs them.
//!
//! | module | holds |
//! |---|---|
//! | `executable` | [`compile`] and [`Executable`] |
//! | `session` | running an executable many times, without allocation |
//! | `rows` | kernels that go through rows together, a block at a time |
//! | `eager` | [`run_op`]: one op at once, through a cache of executables |
//! | `vm/` | runs kernels block by block |
//! | `legalise` | programs into what the library kernels take |
//! | `kernels/` | library kernels: products, gathers, branches and loops, … |
//! | `strided` | copies between regions of arrays |
//! | `pool`, `alloc` | threads and memory |
//! | `provenance` | where a NaN in a result came from |
//! | `interrupt` | stopping long runs |
//! | `fork` | forks of the process |
//! | `generations` | bounded caches |

pub mod alloc;
pub mod eager;
pub mod executable;
mod fork;
pub mod generations;
mod interrupt;
pub mod kernels;
mod legalise;
pub mod pool;
pub mod provenance;
mod rows;
mod session;
pub mod strided;
pub mod vm;

pub use eager::run_op;
pub use executable::{Executable, Outputs, compile, plan};
pub use fork::protect as protect_forks;
pub use interrupt::set_interrupt_check;
