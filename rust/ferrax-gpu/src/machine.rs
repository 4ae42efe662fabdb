//! What the planning of launches asks of a GPU (`ferrax_compile::launches`).

use ferrax_compile::Argument;
use ferrax_compile::launches::{Limits, Machine, Sequence};
use ferrax_compile::tuning::Target;
use ferrax_ir::{DType, Op};

use crate::gpu::Gpu;
use crate::product::sizes;
use crate::sequence;
use crate::wgsl::own;

/// A GPU as plans see it.
pub struct Shaders {
    limits: Limits,
}

/// The numbers of a GPU that plans depend on.
pub fn target(gpu: &Gpu) -> Target {
    Target { operands: gpu.most_operands(), ..gpu.tuning().plan }
}

impl Shaders {
    pub fn new(gpu: &Gpu) -> Shaders {
        let workgroup_bytes = gpu.workgroup_bytes();
        Shaders { limits: Limits { target: target(gpu), workgroup_bytes, thresholds: gpu.tuning().launches } }
    }
}

impl Machine for Shaders {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn words(&self, dtype: DType) -> Option<usize> {
        own::words(dtype).ok()
    }

    fn fits(&self, sequence: &Sequence) -> bool {
        let form = sequence::form(sequence);
        form.is_some_and(|form| form.workgroup_bytes() <= self.limits.workgroup_bytes)
    }

    fn takes_kernels(&self, op: &Op, inputs: &[Argument], outputs: &[Argument]) -> bool {
        sizes::takes_kernels(op, inputs, outputs)
    }

    fn takes_result_kernel(&self, op: &Op, arguments: [&Argument; 3]) -> bool {
        sizes::takes_result_kernel(op, arguments)
    }

    fn reads(&self, op: &Op, arguments: [&Argument; 3], which: usize) -> usize {
        sizes::reads(op, arguments, which)
    }
}
