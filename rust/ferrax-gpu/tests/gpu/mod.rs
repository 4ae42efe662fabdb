//! The GPU that tests run on, and programs on it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::Arc;

use ferrax_compile::backend::Output;
use ferrax_compile::device::{Attached, Device, DeviceId, Memory};
use ferrax_gpu::{Choice, Gpu};
use ferrax_ir::{Program, Result, Tensor};

/// The one that `FERRAX_GPU` names, or Mesa's.
pub fn choice() -> Choice {
    Choice::Name(std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string()))
}

pub fn gpu() -> Gpu {
    Gpu::open(&choice()).unwrap()
}

pub fn device() -> Arc<Attached<Gpu>> {
    Attached::new(DeviceId(1), gpu())
}

pub fn run(device: &Arc<Attached<Gpu>>, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let runnable = device.compile(program)?;
    let upload = |tensor: &Tensor| device.upload(tensor.bytes());
    let buffers: Vec<Arc<dyn Memory>> = inputs.iter().map(upload).collect::<Result<_>>()?;
    let outputs = runnable.run(&buffers)?;
    let home = |output: Output<Arc<dyn Memory>>| {
        let mut tensor = Tensor::zeros(output.dtype, output.sizes)?;
        output.buffer.download(tensor.bytes_mut()?)?;
        Ok(tensor)
    };
    outputs.into_iter().map(home).collect()
}
