//! Any GPU, through wgpu: Vulkan, Metal and DX12.
//!
//! What is launched at once is planned by `ferrax_compile::launches`; here it is made ready and run. From below:
//!
//! | module | holds |
//! |---|---|
//! | `adapter` | which GPUs there are |
//! | `tuning` | the thresholds of a GPU |
//! | `wgsl/` | shaders: of kernels, products, convolutions, rows of arrays; the words that they read (`numbers`) |
//! | `offers` | what a driver says that its GPU has |
//! | `memory` | a GPU's memory, which is given out again |
//! | `pipelines` | what was made of shaders, by what they were made of |
//! | `bindings` | what shaders see of memory |
//! | `profile` | how long kernels take |
//! | `stream` | commands, in one order |
//! | `gpu` | a GPU that was opened |
//! | `library` | what steps are that are no kernels, and programs within programs |
//! | `sequence` | kernels that become one shader |
//! | `loops` | small loops, as such |
//! | `product/` | products of matrices and convolutions, and whether a GPU multiplies matrices of halves |
//! | `sort` | sorting, and the largest elements |
//! | `scatter` | scatters, and updates of slices |
//! | `cumulative` | running reductions |
//! | `fft` | Fourier transforms |
//! | `factorise` | factorisations of small matrices |
//! | `on_cpu` | what there are no shaders for |
//! | `cost` | what may be computed in vain |
//! | `flags` | copies that are made if the GPU's memory says so |
//! | `chunks` | loops of which the host asks only now and then whether they go on |
//! | `control` | branches and loops |
//! | `blocks` | runs of kernels and products, block of rows by block of rows |
//! | `machine` | what plans ask of a GPU |
//! | `backend` | plans on it |
//!
//! A shader is made of a kernel, which has no sizes in it: a new shape is other words in a buffer, and nothing is
//! compiled for it.

mod adapter;
mod backend;
mod bindings;
mod blocks;
mod chunks;
#[cfg(test)]
#[path = "../../ferrax-cpu/tests/common/mod.rs"]
mod common;
mod control;
mod cost;
mod cumulative;
mod factorise;
mod fft;
mod flags;
mod gpu;
mod library;
mod loops;
mod machine;
mod memory;
mod offers;
mod on_cpu;
mod pipelines;
mod product;
mod profile;
mod scatter;
mod sequence;
mod sort;
mod stream;
mod tuning;
pub mod wgsl;

pub use adapter::{Choice, adapters, choose_each};
pub use backend::Executable;
pub use gpu::{Gpu, Prepared};
pub use memory::{Memory, PoolUsage};
pub use pipelines::Counts;
