//! The vector VM: runs kernels block by block.
//!
//! Each instruction of a kernel's body is one pass of a precompiled, vectorised
//! loop over a block that stays in the first-level cache.
//!
//! | module | holds |
//! |---|---|
//! | `isa`, `ops`, `math` | block functions for each instruction set |
//! | `transfer`, `fold` | strided and converting loads and stores, reductions |
//! | `nest` | loops and tiles |
//! | `section` | bodies as block instructions over places |
//! | `bound` | a launch made ready, and its run |
//! | `flat` | small kernels as straight lines of calls |

pub mod bound;
pub mod flat;
pub mod fold;
pub mod isa;
pub mod math;
pub mod nest;
pub mod ops;
pub mod section;
pub mod transfer;

pub use bound::Bound;

/// Makes what is made once: see `fork`.
pub(crate) fn settle() {
    isa::isa();
    transfer::settle();
}
