//! The vector VM: runs kernels block by block.
//!
//! Each instruction of a kernel's body is one pass of a precompiled, vectorised
//! loop over a block that stays in the first-level cache.
//!
//! | module | holds |
//! |---|---|
//! | `isa`, `ops`, `math` | block functions for each instruction set |
//! | `transfer` | strided and converting loads and stores |
//! | `pick` | loads at computed indices |
//! | `fold`, `tree` | reductions of blocks: of any order, and of floats in a fixed one |
//! | `section` | bodies as block instructions over places |
//! | `stores` | where values are stored, and which are computed there |
//! | `chains`, `collect` | instructions that follow one another as one function of machine code |
//! | `bound`, `reduction`, `accumulate` | a launch made ready, its run, its accumulators and what they take |
//! | `flat` | small kernels as straight lines of calls |

mod accumulate;
pub mod bound;
pub mod chains;
mod collect;
pub mod flat;
pub mod fold;
mod halves;
pub mod isa;
pub mod math;
pub mod ops;
pub mod pick;
pub mod rect;
pub mod reduction;
pub mod section;
mod stores;
pub mod transfer;
pub mod tree;

pub use bound::Bound;

/// An index into the pointer table of a kernel.
pub type Place = u32;

/// Makes what is made once: see `fork`.
pub(crate) fn settle() {
    isa::isa();
    transfer::settle();
}
