//! From programs to plans: fused kernels and library calls over placed buffers.
//!
//! | module | holds |
//! |---|---|
//! | `expand` | one flat list of equations that all have a lowering |
//! | `graph` | classes of equations, which variables must be in memory |
//! | `group` | which of them share a kernel |
//! | `emit` | groups to kernels |
//! | `index` | affine views: movement ops as index maps |
//! | `kernel` | kernel IR and its text form |
//! | `plan` | steps in order, buffers placed by liveness |
//! | `plan_text` | plans as text |

pub mod emit;
pub mod expand;
pub mod graph;
pub mod group;
pub mod index;
pub mod kernel;
pub mod plan;
mod plan_text;

pub use expand::expand;
pub use index::{PerLoop, View};
pub use kernel::{
    Accumulator, AccumulatorKind, AxisKind, Kernel, Launch, Load, Operand, Stage, Store, registers,
};
pub use plan::{Argument, BufferId, Output, Place, Plan, Step, plan};
