//! Any GPU, through wgpu: Vulkan, Metal and DX12.
//!
//! | module | holds |
//! |---|---|
//! | `adapter` | which GPUs there are |
//! | `gpu` | one that was opened |
//! | `memory` | its memory, which is given out again |
//! | `bindings` | what shaders see of it |
//! | `stream` | its commands, in one order |
//! | `wgsl/` | shaders: of kernel IR, of products and convolutions, of rows of arrays |
//! | `numbers` | the sizes of a launch, as words that a shader reads |
//! | `pipelines` | what was made of shaders, by what they were made of |
//! | `sequence` | kernels that become one shader |
//! | `runs` | kernels that go through rows together, as such |
//! | `loops` | small loops, as such |
//! | `product` | products of matrices and convolutions |
//! | `cooperative` | whether a GPU multiplies matrices of halves |
//! | `fuse` | kernels that these take in: those of elements (`elementwise`) |
//! | `sort` | sorting, and the largest elements |
//! | `scatter` | scatters, and updates of slices |
//! | `cumulative` | running reductions |
//! | `fft` | Fourier transforms |
//! | `factorise` | factorisations of small matrices |
//! | `control` | branches and loops |
//! | `chunks` | loops of which the host asks only now and then whether they go on |
//! | `flags` | copies that are made if the GPU's memory says so |
//! | `cost` | what may be computed in vain |
//! | `blocks` | runs of kernels and products, block of rows by block of rows |
//! | `profile` | how long kernels take |
//! | `backend` | plans on it; library calls that it has no shaders for run on the CPU, to which arrays go and come back |
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
mod cooperative;
mod cost;
mod cumulative;
mod elementwise;
mod factorise;
mod fft;
mod flags;
mod fuse;
mod gpu;
mod loops;
mod memory;
mod numbers;
mod pipelines;
mod product;
mod profile;
mod runs;
mod scatter;
mod sequence;
mod sort;
mod stream;
pub mod wgsl;

pub use adapter::{Choice, adapters, choose};
pub use backend::Executable;
pub use gpu::{Gpu, Prepared};
pub use memory::{Memory, PoolUsage};
pub use pipelines::Counts;
