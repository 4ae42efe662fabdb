//! Pipelines: one for each source of a shader, whatever the sizes that it runs over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ferrax_ir::scalar::ScalarOp;
use ferrax_ir::{Result, unsupported};
use rustc_hash::FxHashMap;
use wgpu::{
    BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipeline, ComputePipelineDescriptor, Device, ErrorFilter, Features, PipelineCompilationOptions,
    PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderSource, ShaderStages,
};

use crate::numbers::Form;
use crate::wgsl::product::ProductForm;
use crate::wgsl::sort::SortForm;
use crate::wgsl::{self, Shader};

/// What a shader is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    Kernel(Box<Form>),
    Product(ProductForm),
    /// One row of an array, out of it or into it.
    Row(wgsl::rows::Way),
    Sort(wgsl::sort::SortForm),
    Factor(wgsl::factorise::FactorForm),
    Fft(wgsl::fft::FftForm),
    Cumulative(wgsl::cumulative::CumulativeForm),
    Scatter(wgsl::scatter::ScatterForm),
}

impl Source {
    /// What profiles call it: of kernels the functions and reductions that are in them.
    fn name(&self) -> String {
        match self {
            Source::Kernel(form) => {
                let kernel = &form.kernel;
                let mut parts: Vec<String> = Vec::new();
                let bodies = [&kernel.body, &kernel.epilogue];
                for instruction in bodies.iter().flat_map(|body| body.instructions()) {
                    if let ScalarOp::Math(function) = instruction.op {
                        parts.push(format!("{function:?}").to_lowercase());
                    }
                }
                let folds = kernel.accumulators.iter();
                parts
                    .extend(folds.map(|accumulator| format!("reduce {:?}", accumulator.kind).to_lowercase()));
                parts.dedup();
                if parts.is_empty() {
                    "kernel".to_string()
                } else {
                    format!("kernel of {}", parts.join(", "))
                }
            }
            Source::Product(form) => format!("product of {}, {}", form.dtype, form.name()),
            Source::Row(way) => format!("row, {way:?}").to_lowercase(),
            Source::Sort(form) => match form {
                SortForm::Keys { dtype, .. } => format!("sort, keys of {dtype}"),
                SortForm::Places | SortForm::TakePlaces => "sort, places".to_string(),
                SortForm::Exchange { way, .. } => format!("sort, {way:?}").to_lowercase(),
                SortForm::Take { .. } => "sort, take".to_string(),
            },
            Source::Factor(form) => format!("{:?} of {}", form.what, form.dtype).to_lowercase(),
            Source::Fft(form) => match form.unrolled {
                Some(factor) => format!("fft, factor {factor}"),
                None => "fft, large factor".to_string(),
            },
            Source::Cumulative(form) => format!("running {:?} of {}", form.kind, form.dtype).to_lowercase(),
            Source::Scatter(form) => format!("{}, {:?}", form.kind.name(), form.way).to_lowercase(),
        }
    }

    fn shader(&self) -> Result<Shader> {
        match self {
            Source::Kernel(form) => wgsl::shader(form),
            Source::Product(form) => wgsl::product::shader(form),
            Source::Row(way) => Ok(wgsl::rows::shader(*way)),
            Source::Sort(form) => wgsl::sort::shader(*form),
            Source::Factor(form) => wgsl::factorise::shader(*form),
            Source::Fft(form) => wgsl::fft::shader(*form),
            Source::Cumulative(form) => wgsl::cumulative::shader(*form),
            Source::Scatter(form) => wgsl::scatter::shader(form),
        }
    }
}

/// A pipeline and the layout of its bindings.
#[derive(Debug)]
pub struct Pipeline {
    /// What profiles call it.
    pub name: String,
    pub pipeline: ComputePipeline,
    pub layout: BindGroupLayout,
}

/// How many pipelines were made, and how often one was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub made: usize,
    pub found: usize,
}

/// Pipelines by what shaders depend on.
#[derive(Default)]
pub struct Pipelines {
    known: Mutex<FxHashMap<Source, Arc<Pipeline>>>,
    made: AtomicUsize,
    found: AtomicUsize,
}

impl Pipelines {
    pub fn counts(&self) -> Counts {
        Counts { made: self.made.load(Ordering::Relaxed), found: self.found.load(Ordering::Relaxed) }
    }

    /// The pipeline of a shader on this device, which messages call so.
    pub fn get(&self, device: &Device, name: &str, source: Source) -> Result<Arc<Pipeline>> {
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&source) {
            self.found.fetch_add(1, Ordering::Relaxed);
            return Ok(known.clone());
        }
        let pipeline = Arc::new(make(device, name, &source)?);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(source, pipeline.clone());
        Ok(pipeline)
    }
}

fn make(device: &Device, name: &str, source: &Source) -> Result<Pipeline> {
    let shader = source.shader()?;
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
    let entries: Vec<BindGroupLayoutEntry> = (0..=shader.operands)
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
    let of_pipeline = device.create_pipeline_layout(&PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
        label: None,
        layout: Some(&of_pipeline),
        module: &module,
        entry_point: Some("main"),
        compilation_options: PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..PipelineCompilationOptions::default()
        },
        cache: None,
    });
    match pollster::block_on(scope.pop()) {
        None => Ok(Pipeline { name: source.name(), pipeline, layout }),
        Some(error) => Err(unsupported!("{name} refuses a kernel: {error}\n{}", shader.text)),
    }
}
