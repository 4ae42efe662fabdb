//! Pipelines: one for each source of a shader, whatever the sizes that it runs over.
//!
//! What the driver made of a shader is kept in a file where the cache of programs has a folder, by the shader's text,
//! the GPU and its driver (`ferrax_cpu::persistent::code`): for Vulkan, whose drivers give it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ferrax_compile::launches::Frame;
use ferrax_cpu::persistent::code;
use ferrax_ir::scalar::ScalarOp;
use ferrax_ir::{Result, unsupported};
use rustc_hash::FxHashMap;
use wgpu::{
    AdapterInfo, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType,
    BufferBindingType, ComputePipeline, ComputePipelineDescriptor, Device, ErrorFilter, Features,
    PipelineCacheDescriptor, PipelineCompilationOptions, PipelineLayoutDescriptor, ShaderModuleDescriptor,
    ShaderRuntimeChecks, ShaderSource, ShaderStages,
};

use crate::offers;
use crate::wgsl::arrays::{Pieces, declarations};
use crate::wgsl::numbers::Form;
use crate::wgsl::product::ProductForm;
use crate::wgsl::sequence::SequenceForm;
use crate::wgsl::sort::SortForm;
use crate::wgsl::{self, Shader};

/// What a shader is made of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    Kernel(Box<Form>),
    /// Several kernels, one after the other.
    Sequence(Box<SequenceForm>),
    Product(ProductForm),
    /// One row of an array, out of it or into it.
    Row(wgsl::rows::Way),
    Flagged(wgsl::flags::Flagged),
    Sort(wgsl::sort::SortForm),
    Factor(wgsl::factorise::FactorForm),
    Fft(wgsl::fft::FftForm),
    Cumulative(wgsl::cumulative::CumulativeForm),
    /// How invocations are in subgroups.
    Subgroups,
    Scatter(wgsl::scatter::ScatterForm),
}

impl Source {
    /// What profiles call it: of kernels the functions and reductions that are in them.
    fn name(&self) -> String {
        match self {
            Source::Kernel(form) => match functions_of(form) {
                functions if functions.is_empty() => "kernel".to_string(),
                functions => format!("kernel of {}", functions.join(", ")),
            },
            Source::Sequence(form) => {
                let what = match form.frame {
                    Frame::Rows | Frame::Alone => "rows",
                    Frame::Scan => "scan",
                    Frame::While => "while",
                };
                let mut functions: Vec<String> =
                    form.parts().flat_map(|part| functions_of(&part.form)).collect();
                functions.dedup();
                match functions.is_empty() {
                    true => format!("{what}, {} kernels", form.parts().count()),
                    false => format!("{what}, kernels of {}", functions.join(", ")),
                }
            }
            Source::Product(form) => format!("product of {}, {}", form.dtype, form.name()),
            Source::Row(way) => format!("row, {way:?}").to_lowercase(),
            Source::Flagged(what) => format!("flagged, {what:?}").to_lowercase(),
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
            Source::Subgroups => "subgroups".to_string(),
            Source::Cumulative(form) => format!("running {:?} of {}", form.kind, form.dtype).to_lowercase(),
            Source::Scatter(form) => format!("{}, {:?}", form.kind.name(), form.way).to_lowercase(),
        }
    }

    fn shader(&self) -> Result<Shader> {
        match self {
            Source::Kernel(form) => wgsl::shader(form),
            Source::Sequence(form) => wgsl::sequence::shader(form),
            Source::Product(form) => wgsl::product::shader(form),
            Source::Row(way) => Ok(wgsl::rows::shader(*way)),
            Source::Flagged(what) => Ok(wgsl::flags::shader(*what)),
            Source::Sort(form) => wgsl::sort::shader(*form),
            Source::Factor(form) => wgsl::factorise::shader(*form),
            Source::Fft(form) => wgsl::fft::shader(*form),
            Source::Subgroups => Ok(wgsl::subgroups::shader()),
            Source::Cumulative(form) => wgsl::cumulative::shader(*form),
            Source::Scatter(form) => wgsl::scatter::shader(form),
        }
    }
}

/// The functions of floats and the reductions of a kernel.
fn functions_of(form: &Form) -> Vec<String> {
    let kernel = &form.kernel;
    let mut parts: Vec<String> = Vec::new();
    let bodies = [&kernel.body, &kernel.epilogue];
    for instruction in bodies.iter().flat_map(|body| body.instructions()) {
        if let ScalarOp::Math(function) = instruction.op {
            parts.push(format!("{function:?}").to_lowercase());
        }
    }
    let folds = kernel.accumulators.iter();
    parts.extend(folds.map(|accumulator| format!("reduce {:?}", accumulator.kind).to_lowercase()));
    parts.dedup();
    parts
}

/// A pipeline and the layout of its bindings: the words of a launch, then the pieces of each array.
#[derive(Debug)]
pub struct Pipeline {
    /// What profiles call it.
    pub name: String,
    pub pipeline: ComputePipeline,
    pub layout: BindGroupLayout,
    pub source: Source,
}

/// How many pipelines were made, and how often one was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub made: usize,
    pub found: usize,
    /// Of those that were made, those whose code was in a file.
    pub loaded: usize,
}

/// What a shader depends on: its source, and the pieces of arrays, of which some have several.
type Key = (Source, Option<Pieces>);

/// Pipelines by what shaders depend on.
pub struct Pipelines {
    device: Device,
    /// The GPU and its driver, as far as their code depends on them.
    machine: String,
    known: Mutex<FxHashMap<Key, Arc<Pipeline>>>,
    made: AtomicUsize,
    found: AtomicUsize,
    loaded: AtomicUsize,
}

impl Pipelines {
    pub fn new(device: &Device, info: &AdapterInfo) -> Pipelines {
        let AdapterInfo { name, vendor, device: number, driver, driver_info, backend, .. } = info;
        Pipelines {
            device: device.clone(),
            machine: format!("{backend} {vendor:x}:{number:x} {name}, {driver} {driver_info}"),
            known: Mutex::default(),
            made: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
            loaded: AtomicUsize::new(0),
        }
    }

    pub fn counts(&self) -> Counts {
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        Counts { made: count(&self.made), found: count(&self.found), loaded: count(&self.loaded) }
    }

    /// The pipeline of a shader on this GPU, which messages call so. Without `pieces` each array is one.
    pub fn get(&self, name: &str, source: Source, pieces: Option<Pieces>) -> Result<Arc<Pipeline>> {
        let key = (source, pieces);
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            self.found.fetch_add(1, Ordering::Relaxed);
            return Ok(known.clone());
        }
        let pipeline = Arc::new(self.make(name, &key.0, key.1.as_ref())?);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, pipeline.clone());
        Ok(pipeline)
    }

    fn make(&self, name: &str, source: &Source, pieces: Option<&Pieces>) -> Result<Pipeline> {
        let device = &self.device;
        let shader = source.shader()?;
        let whole = || Pieces { counts: vec![1; shader.arrays.len()], log: 0 };
        let pieces = pieces.cloned().unwrap_or_else(whole);
        let most = device.limits().max_storage_buffers_per_shader_stage;
        if pieces.bindings() >= most {
            return Err(unsupported!(
                "{} arrays of a kernel in {} pieces, as none is larger than a binding of {name}, which has {most} of them",
                shader.arrays.len(),
                pieces.bindings()
            ));
        }
        let text =
            shader.needs.directives().to_string() + &declarations(&shader.arrays, &pieces) + &shader.text;
        let lacks = |needed: bool, feature: Features, what: &str| match needed
            && !device.features().contains(feature)
        {
            true => Err(unsupported!("{name} cannot compute with {what}")),
            false => Ok(()),
        };
        lacks(shader.needs.int64, Features::SHADER_INT64, "integers of 64 bits")?;
        lacks(shader.needs.float64, Features::SHADER_F64, "float64")?;
        lacks(shader.needs.cooperative, offers::MATRICES, "matrices of halves")?;
        let (pipeline, layout) = self.compiled(name, &text, pieces.bindings())?;
        Ok(Pipeline { name: source.name(), pipeline, layout, source: source.clone() })
    }

    /// The pipeline of a shader with so many bindings after the words.
    fn compiled(&self, name: &str, text: &str, bindings: u32) -> Result<(ComputePipeline, BindGroupLayout)> {
        let device = &self.device;
        let scope = device.push_error_scope(ErrorFilter::Validation);
        let descriptor = ShaderModuleDescriptor { label: None, source: ShaderSource::Wgsl(text.into()) };
        let checks = ShaderRuntimeChecks { force_loop_bounding: false, ..ShaderRuntimeChecks::checked() };
        // SAFETY: accesses are checked, and loops end: they count up to sizes, or down.
        let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
        let entries: Vec<BindGroupLayoutEntry> = (0..=bindings)
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
        let began = Instant::now();
        let keeps = device.features().contains(Features::PIPELINE_CACHE);
        let place = keeps.then(|| code::place(&self.machine, text)).flatten();
        let kept = place.as_ref().and_then(code::Place::read);
        let cache = place.as_ref().map(|_| {
            let descriptor = PipelineCacheDescriptor { label: None, data: kept.as_deref(), fallback: true };
            // SAFETY: the bytes are what `get_data` gave for this driver: the file has a digest of them, and nobody but
            // the user can have written it.
            unsafe { device.create_pipeline_cache(&descriptor) }
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
            cache: cache.as_ref(),
        });
        let failed = pollster::block_on(scope.pop());
        if let (None, Some(place), Some(cache)) = (&failed, &place, &cache) {
            match kept {
                Some(_) => {
                    self.loaded.fetch_add(1, Ordering::Relaxed);
                }
                None => cache.get_data().into_iter().for_each(|data| place.write(&data, began.elapsed())),
            }
        }
        match failed {
            None => Ok((pipeline, layout)),
            Some(error) => Err(unsupported!("{name} refuses a kernel: {error}\n{text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Choice, Gpu};

    /// What a driver, or what stands before it, does not take is an error with its words and the shader, and the GPU is
    /// there for others.
    #[test]
    fn refused_shaders() {
        let name = std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string());
        let gpu = Gpu::open(&Choice::Name(name)).unwrap();
        for text in ["fn main(", "fn other() {}", "@compute @workgroup_size(1048576) fn main() {}"] {
            let error = gpu.pipelines().compiled(gpu.name(), text, 1).map(drop).unwrap_err().to_string();
            assert!(error.contains("refuses a kernel: ") && error.ends_with(text), "{error}");
        }
        let text = "@compute @workgroup_size(64) fn main() {}";
        gpu.pipelines().compiled(gpu.name(), text, 1).map(drop).unwrap();
        gpu.zeros(64).unwrap();
    }
}
