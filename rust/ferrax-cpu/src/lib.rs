//! The CPU backend: compiles programs and runs them.
//!
//! | module | holds |
//! |---|---|
//! | `backend` | [`compile`], and the CPU as a [`Backend`](ferrax_compile::backend::Backend) |
//! | `executable` | [`Executable`]: a plan made ready |
//! | `session` | running an executable many times, without allocation |
//! | `rows` | kernels that go through rows together, a block at a time |
//! | `eager` | [`run_op`]: one op at once, through a cache of executables |
//! | `vm/` | runs kernels block by block |
//! | `kernels/` | library kernels: products, gathers, branches and loops, … |
//! | `strided` | copies between regions of arrays |
//! | `persistent` | optimised programs in files |
//! | `pool`, `alloc` | threads and memory |
//! | `provenance` | where a NaN in a result came from |
//! | `interrupt` | stopping long runs |
//! | `fork` | forks of the process |
//! | `generations` | bounded caches |

pub mod alloc;
pub mod backend;
pub mod eager;
pub mod executable;
mod fork;
pub mod generations;
mod interrupt;
pub mod kernels;
pub mod persistent;
pub mod pool;
pub mod provenance;
mod rows;
mod session;
pub mod strided;
pub mod vm;

pub use backend::{Cpu, compile, compile_kept, memory_plan, plan};
pub use eager::run_op;
pub use executable::{Executable, Outputs};
pub use fork::protect as protect_forks;
pub use interrupt::set_interrupt_check;
