//! From programs to plans: fused kernels and library calls over placed buffers.
//!
//! | module | holds |
//! |---|---|
//! | `expand` | one flat list of equations that all have a lowering |
//! | `graph` | classes of equations, which variables must be in memory |
//! | `group` | which of them share a kernel |
//! | `emit`, `movement`, `draft` | groups to kernels |
//! | `index` | affine views: movement ops as index maps |
//! | `kernel` | kernel IR and its text form |
//! | `plan`, `place` | steps in order, buffers placed by liveness |
//! | `rows` | kernels that go through rows together, a block at a time |
//! | `verify_plan` | that every access of a plan is inside of its buffer, and no two values share one |
//! | `plan_text`, `plan_costs` | plans as text; the memory that they need |

mod draft;
pub mod emit;
pub mod expand;
pub mod graph;
pub mod group;
pub mod index;
pub mod kernel;
mod movement;
mod place;
pub mod plan;
pub mod plan_costs;
mod plan_text;
pub mod rows;
pub mod verify_plan;

pub use expand::expand;
pub use index::{PerLoop, View};
pub use kernel::{
    Accumulator, AccumulatorKind, AxisKind, Kernel, Launch, Load, Operand, Stage, Store, registers,
};
pub use plan::{Argument, BufferId, Place, Plan, Step, plan};
pub use rows::Run;
pub use verify_plan::verify_plan;
