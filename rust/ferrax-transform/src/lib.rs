//! Transformations of programs: every one takes a program and gives a program.
//!
//! | module | holds |
//! |---|---|
//! | `jvp` | forward-mode derivatives |
//! | `linearize` | the same, split into a primal and a linear program |
//! | `partial_eval`, `split`, `remat` | known from unknown inputs |
//! | `reach` | which values depend on which |
//! | `transpose`, `partly_read` | linear programs turned around; which inputs are read a part at a time |
//! | `row_blocks` | products over all pairs of rows by blocks, before they are differentiated |
//! | `vjp` | reverse-mode derivatives from the two |
//! | `batch` | one axis more |
//! | `specialise` | symbolic dimensions are given sizes |
//! | `spmd/` | programs over the devices of a mesh: how their arrays are cut |
//! | `control/` | the rules of branches, loops, checkpoints and custom derivatives, one file an op |
//! | `optimise` | `inline`, `simplify`, `conditional_updates`, `hoist`, `fission`, `fold`, `cse`, `dce` in turn |
//!
//! Invariants of all of them: the input is not changed; the result verifies
//! (checked in debug builds); effects keep their order; every equation keeps its
//! source line; the cost is linear in the size of the program, where a
//! sub-program that is reached through many calls counts once.

pub mod batch;
pub mod conditional_updates;
mod control;
pub mod cse;
pub mod dce;
pub mod fission;
pub mod fold;
pub mod hoist;
pub mod inline;
pub mod jvp;
pub mod linearize;
mod memo;
pub mod optimise;
pub mod partial_eval;
mod partly_read;
mod reach;
mod remat;
mod rewrite;
pub mod row_blocks;
pub mod simplify;
pub mod specialise;
mod split;
pub mod spmd;
pub mod transpose;
pub mod vjp;

pub use batch::{OutDims, batch};
pub use conditional_updates::conditional_updates;
pub use control::while_loop::{Limit, counter};
pub use cse::cse;
pub use dce::{dce, dce_with};
pub use fission::fission;
pub use fold::fold;
pub use hoist::hoist;
pub use inline::{Inline, inline};
pub use jvp::{jvp, jvp_with};
pub use linearize::{Linearized, linearize};
pub use optimise::{Options, optimise};
pub use partial_eval::{PartialEval, partial_eval, partial_eval_with};
pub use row_blocks::row_blocks;
pub use simplify::simplify;
pub use specialise::specialise;
pub use transpose::transpose;
pub use vjp::{Vjp, vjp, vjp_program};
