//! The CPU backend: compiles programs and runs them.
//!
//! | module | holds |
//! |---|---|
//! | `backend` | [`compile`], and the CPU as a [`Backend`](ferrax_compile::backend::Backend) |
//! | `machine` | [`Cpu`], with its thresholds |
//! | `bind` | from a plan to an executable |
//! | `executable` | [`Executable`]: a plan made ready |
//! | `call` | what an executable calls |
//! | `session` | running an executable many times, without allocation |
//! | `rows` | kernels that go through rows together, a block at a time |
//! | `tuning` | from where on a way to compute pays |
//! | `eager` | [`run_op`]: one op at once, through a cache of executables |
//! | `vm/` | runs kernels block by block |
//! | `kernels/` | library kernels: products, gathers, … |
//! | `control/` | branches and loops |
//! | `code/` | machine code, and memory for it |
//! | `ffi/` | functions of other languages |
//! | `strided` | copies between regions of arrays |
//! | `persistent` | optimised programs in files |
//! | `pool`, `alloc` | threads and memory |
//! | `provenance` | where a NaN in a result came from |
//! | `interrupt` | stopping long runs |
//! | `fork` | forks of the process |
//! | `generations` | bounded caches |

pub mod alloc;
pub mod backend;
mod bind;
pub mod call;
mod code;
mod control;
pub mod eager;
pub mod executable;
pub mod ffi;
mod fork;
pub mod generations;
mod interrupt;
pub mod kernels;
mod machine;
pub mod persistent;
pub mod pool;
pub mod provenance;
mod rows;
mod session;
pub mod strided;
pub mod tuning;
pub mod vm;

pub use backend::{compile, compile_kept, machine_code, memory_plan, plan};
pub use code::Listing;
pub use eager::run_op;
pub use executable::{Executable, Outputs};
pub use fork::{hold_also as hold_through_forks, protect as protect_forks};
pub use interrupt::set_interrupt_check;
pub use machine::Cpu;
pub use tuning::Tuning;
