//! Native programs (`ferrax_compile::native`) as machine code for x86-64 with AVX2 and FMA, and chains of operations on
//! blocks (`ferrax_compile::chain`) for the same or AVX-512.
//!
//! In: a program, and what it calls; or a chain. Out: bytes, which stand at any address; whoever puts them into memory that can be
//! executed runs them. There is no `unsafe` here. Cost: near-linear in the program.
//!
//! | module | holds |
//! |---|---|
//! | `encode` | instructions as bytes |
//! | `allocate` | a register or a place on the stack for each value |
//! | `select` | instructions for each operation |
//! | `vector/` | chains: operations as instructions of vector registers, and registers for them |

#![forbid(unsafe_code)]

mod allocate;
pub mod encode;
mod select;
mod vector;

pub use self::select::{Runtime, emit};
pub use self::vector::{ChainCode, Isa, MOST_LANES, emit_chain};
