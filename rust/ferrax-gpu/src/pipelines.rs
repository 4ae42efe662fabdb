//! What was made of kernels: a pipeline for each, whatever the sizes that it runs over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ferrax_ir::{Result, unsupported};
use rustc_hash::FxHashMap;
use wgpu::{
    BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType, ComputePipeline,
    ComputePipelineDescriptor, Device, ErrorFilter, Features, PipelineLayoutDescriptor,
    ShaderModuleDescriptor, ShaderSource, ShaderStages,
};

use crate::numbers::Form;
use crate::wgsl::shader;

/// How many pipelines were made, and how often one was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub made: usize,
    pub found: usize,
}

/// Pipelines by what shaders depend on.
#[derive(Default)]
pub struct Pipelines {
    known: Mutex<FxHashMap<Form, Arc<ComputePipeline>>>,
    made: AtomicUsize,
    found: AtomicUsize,
}

impl Pipelines {
    pub fn counts(&self) -> Counts {
        Counts { made: self.made.load(Ordering::Relaxed), found: self.found.load(Ordering::Relaxed) }
    }

    /// The pipeline of a kernel on this device, which messages call so.
    pub fn get(&self, device: &Device, name: &str, form: Form) -> Result<Arc<ComputePipeline>> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&form) {
            self.found.fetch_add(1, Ordering::Relaxed);
            return Ok(known.clone());
        }
        let pipeline = Arc::new(make(device, name, &form)?);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(form, pipeline.clone());
        Ok(pipeline)
    }
}

fn make(device: &Device, name: &str, form: &Form) -> Result<ComputePipeline> {
    let shader = shader(form)?;
    let lacks =
        |needed: bool, feature: Features, what: &str| match needed && !device.features().contains(feature) {
            true => Err(unsupported!("{name} cannot compute with {what}")),
            false => Ok(()),
        };
    lacks(shader.needs.int64, Features::SHADER_INT64, "integers of 64 bits")?;
    lacks(shader.needs.float64, Features::SHADER_F64, "float64")?;
    let scope = device.push_error_scope(ErrorFilter::Validation);
    let module = device.create_shader_module(ShaderModuleDescriptor {
        label: None,
        source: ShaderSource::Wgsl(shader.text.as_str().into()),
    });
    let entries: Vec<BindGroupLayoutEntry> = (0..=form.kernel.operands.len() as u32)
        .map(|binding| BindGroupLayoutEntry {
            binding,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer {
                ty: BufferBindingType::Storage { read_only: binding == 0 },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout =
        device.create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
    let layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: None,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    match pollster::block_on(scope.pop()) {
        None => Ok(pipeline),
        Some(error) => Err(unsupported!("{name} refuses a kernel: {error}\n{}", shader.text)),
    }
}
