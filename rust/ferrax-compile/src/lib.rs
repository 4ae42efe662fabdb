//! From programs to plans: fused kernels and library calls over placed buffers.
//!
//! | module | holds |
//! |---|---|
//! | `backend` | machines, and how programs are made ready for one |
//! | `device` | machines of several backends behind one face, memory that knows where it is |
//! | `expand` | one flat list of equations that all have a lowering |
//! | `legalise` | products and convolutions in the dtypes that they are computed in |
//! | `graph` | classes of equations, which variables must be in memory |
//! | `group` | which of them share a kernel |
//! | `tuning` | every threshold of plans and schedules |
//! | `cost_model` | the work of an element, and what bounds the cost of compiling |
//! | `emit`, `movement`, `draft` | groups to kernels |
//! | `index` | affine views: movement ops as index maps |
//! | `kernel`, `kernel_text` | kernel IR, its semantics and its text form |
//! | `interpret` | its reference interpreter |
//! | `reference` | a machine made of it, with memory of its own |
//! | `plan`, `place` | steps in order and their runs; buffers placed by liveness |
//! | `compile` | the order of the passes from a program to its plan |
//! | `lives`, `in_place` | which steps need a buffer; which buffers may be one |
//! | `updates` | which results are an operand with some elements changed |
//! | `schedule/` | how a kernel runs: blocks, the order of terms, what threads share |
//! | `chain` | what is done to each element of blocks, for emitters of vector code |
//! | `carries` | the values of a loop, from one step to the next |
//! | `convolution` | convolutions as products of matrices |
//! | `rows` | kernels that go through rows together, a block at a time |
//! | `verify/` | that every access of a plan is inside of its buffer, blocks of runs are apart, and no two values share memory |
//! | `launches/` | what machines launch at once: kernels in products, in one shader, in small loops; blocks of runs |
//! | `label` | what profiles call a step, and the user's line |
//! | `profile` | what ran when, on which thread |
//! | `plan_text`, `plan_costs` | plans as text; the memory that they need |
//! | `memory_plan` | each buffer's place and life, each copy and update in place, as plain data |

pub mod backend;
pub mod carries;
pub mod chain;
pub mod compile;
pub mod convolution;
pub mod cost_model;
pub mod device;
mod draft;
pub mod emit;
pub mod expand;
pub mod graph;
pub mod group;
mod in_place;
pub mod index;
pub mod interpret;
pub mod kernel;
mod kernel_text;
pub mod label;
pub mod launches;
mod legalise;
mod lives;
pub mod memory_plan;
mod movement;
pub mod native;
mod place;
pub mod plan;
pub mod plan_costs;
mod plan_text;
pub mod profile;
pub mod reference;
pub mod rows;
pub mod schedule;
pub mod tuning;
mod updates;
pub mod verify;

pub use backend::{Backend, Target, plan_for};
pub use compile::plan;
pub use device::{Buffer, Device, DeviceId, Memory};
pub use expand::expand;
pub use ferrax_ir::paths::Path;
pub use index::{PerLoop, View};
pub use kernel::{
    Accumulator, AccumulatorKind, AxisKind, Jump, Jumps, Kernel, Launch, Load, Operand, Stage, Store,
    registers,
};
pub use memory_plan::MemoryPlan;
pub use plan::{Argument, BufferId, Place, Plan, RowStep, Run, Share, Step};
pub use tuning::{Blocks, Setting};
pub use verify::verify_plan;
