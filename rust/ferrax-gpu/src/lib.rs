//! Any GPU, through wgpu: Vulkan, Metal and DX12.
//!
//! | module | holds |
//! |---|---|
//! | `adapter` | which GPUs there are, and one that was opened |
//! | `wgsl` | kernel IR as WGSL |
//! | `numbers` | the sizes of a launch, as words that a shader reads |
//! | `pipelines` | what was made of kernels, by kernel |
//! | `backend` | plans on it: kernels by shaders, library calls on the CPU, to which arrays go and come back |
//!
//! A shader is made of a kernel, which has no sizes in it: a new shape is other words in a buffer, and nothing is
//! compiled for it.

mod adapter;
mod backend;
mod numbers;
mod pipelines;
pub mod wgsl;

pub use adapter::{Choice, Gpu, Prepared, adapters, choose};
pub use backend::Executable;
pub use pipelines::Counts;
