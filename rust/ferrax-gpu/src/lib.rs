//! Any GPU, through wgpu: Vulkan, Metal and DX12.
//!
//! | module | holds |
//! |---|---|
//! | `adapter` | which GPUs there are |
//! | `gpu` | one that was opened |
//! | `memory` | its memory, which is given out again |
//! | `stream` | its commands, in one order |
//! | `wgsl/` | shaders: of kernel IR, of products and convolutions, of rows of arrays |
//! | `numbers` | the sizes of a launch, as words that a shader reads |
//! | `pipelines` | what was made of shaders, by what they were made of |
//! | `product` | products of matrices and convolutions |
//! | `fuse` | kernels that these take in: those of elements (`elementwise`) |
//! | `sort` | sorting, and the largest elements |
//! | `scatter` | scatters, and updates of slices |
//! | `cumulative` | running reductions |
//! | `fft` | Fourier transforms |
//! | `factorise` | factorisations of small matrices |
//! | `control` | branches and loops |
//! | `profile` | how long kernels take |
//! | `backend` | plans on it; library calls that it has no shaders for run on the CPU, to which arrays go and come back |
//!
//! A shader is made of a kernel, which has no sizes in it: a new shape is other words in a buffer, and nothing is
//! compiled for it.

mod adapter;
mod backend;
mod control;
mod cumulative;
mod elementwise;
mod factorise;
mod fft;
mod fuse;
mod gpu;
mod memory;
mod numbers;
mod pipelines;
mod product;
mod profile;
mod scatter;
mod sort;
mod stream;
pub mod wgsl;

pub use adapter::{Choice, adapters, choose};
pub use backend::Executable;
pub use gpu::{Gpu, Prepared};
pub use memory::{Memory, PoolUsage};
pub use pipelines::Counts;
