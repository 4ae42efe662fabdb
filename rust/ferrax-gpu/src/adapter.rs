//! Which GPUs there are, and one that was opened: its memory, and kernels on it.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use ferrax_compile::Launch;
use ferrax_ir::{Error, Result, internal_error, unsupported, value_error};
use wgpu::{
    Adapter, Backends, BindGroupDescriptor, BindGroupEntry, Buffer, BufferDescriptor, BufferUsages,
    CommandEncoderDescriptor, ComputePassDescriptor, ComputePipeline, Device, DeviceDescriptor, DeviceType,
    Features, Instance, InstanceDescriptor, MapMode, PollType, Queue,
};

use crate::numbers::{Form, words};
use crate::pipelines::{Counts, Pipelines};
use crate::wgsl::{MOST_GROUPS, WORKGROUP};

/// Which GPU is meant.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The first that is one: not a processor that plays one.
    #[default]
    Any,
    /// By its number among [`adapters`].
    Index(usize),
    /// One whose name, or that of whose driver, contains this, in any case of letters.
    Name(String),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Any => write!(f, "was found that is not software"),
            Choice::Index(number) => write!(f, "has number {number}"),
            Choice::Name(part) => write!(f, "has '{part}' in its name or its driver's"),
        }
    }
}

fn found() -> Vec<Adapter> {
    let backends = Backends::PRIMARY;
    let instance =
        Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    pollster::block_on(instance.enumerate_adapters(backends))
}

fn described(adapter: &Adapter) -> String {
    let info = adapter.get_info();
    let kind = if info.device_type == DeviceType::Cpu { ", software" } else { "" };
    format!("{} ({} {}{kind})", info.name, info.backend, info.driver)
}

/// What GPUs there are, and processors that play one, in words.
pub fn adapters() -> Vec<String> {
    found().iter().map(described).collect()
}

/// The number of the GPU that is meant.
///
/// Errors: a value error that says which there are and what to install, if none is.
pub fn choose(choice: &Choice) -> Result<usize> {
    number(&found(), choice)
}

fn number(all: &[Adapter], choice: &Choice) -> Result<usize> {
    let names: Vec<String> = all.iter().map(described).collect();
    let hardware = |adapter: &Adapter| adapter.get_info().device_type != DeviceType::Cpu;
    let number = match choice {
        Choice::Any => all.iter().position(hardware),
        Choice::Index(number) => (*number < all.len()).then_some(*number),
        Choice::Name(part) => {
            let part = part.to_lowercase();
            names.iter().position(|name| name.to_lowercase().contains(&part))
        }
    };
    number.ok_or_else(|| {
        let there = if names.is_empty() { "none at all".to_string() } else { names.join("; ") };
        value_error!(
            "no GPU {choice}; there are: {there}. A GPU needs a driver of Vulkan, Metal or DX12; Mesa's software GPU \
             (Debian: mesa-vulkan-drivers, libvulkan1) is taken where its name, llvmpipe, is given"
        )
    })
}

/// A GPU that was opened.
pub struct Gpu {
    name: String,
    device: Device,
    queue: Queue,
    pipelines: Pipelines,
    /// What went wrong behind a call that cannot say so.
    errors: Arc<Mutex<Vec<String>>>,
    /// The process that opened it: drivers do not survive forks.
    process: u32,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.name)
    }
}

/// What an array of no bytes has, for there is no memory of none.
const LEAST: usize = 4;

impl Gpu {
    /// Opens a GPU.
    ///
    /// Errors: those of [`choose`], and the driver's.
    pub fn open(choice: &Choice) -> Result<Gpu> {
        let mut all = found();
        let adapter = all.swap_remove(number(&all, choice)?);
        let name = described(&adapter);
        let wanted = Features::SHADER_INT64 | Features::SHADER_F64;
        let descriptor = DeviceDescriptor {
            label: Some("ferrax"),
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            ..DeviceDescriptor::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| value_error!("{name} cannot be opened: {error}"))?;
        let errors: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = errors.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }));
        Ok(Gpu { name, device, queue, pipelines: Pipelines::default(), errors, process: std::process::id() })
    }

    /// Its name and that of its driver.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many pipelines were made, and how often one was found that had been.
    pub fn counts(&self) -> Counts {
        self.pipelines.counts()
    }

    /// Arrays that a kernel may have, beside its sizes.
    pub fn most_operands(&self) -> usize {
        self.device.limits().max_storage_buffers_per_shader_stage as usize - 1
    }

    /// Fails in a process that was forked from the one that opened the GPU.
    fn reach(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(unsupported!(
            "{} was opened before this process was forked: start processes by 'spawn'",
            self.name
        ))
    }

    /// Fails if something went wrong since the last look.
    fn check(&self) -> Result<()> {
        let errors = std::mem::take(&mut *self.errors.lock().unwrap_or_else(PoisonError::into_inner));
        match errors.first() {
            None => Ok(()),
            Some(error) => Err(Error::Unsupported(format!("{}: {error}", self.name))),
        }
    }

    /// Memory of so many bytes, rounded up to words.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer> {
        self.reach()?;
        let size = bytes.max(LEAST).next_multiple_of(LEAST);
        let limit = self.device.limits().max_storage_buffer_binding_size;
        if size as u64 > limit {
            return Err(unsupported!(
                "an array of {bytes} bytes on {}, whose arrays have at most {limit}",
                self.name
            ));
        }
        let buffer = self.device.create_buffer(&BufferDescriptor {
            label: None,
            size: size as u64,
            usage: BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.check()?;
        Ok(buffer)
    }

    /// Memory with these bytes.
    pub fn upload(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.allocate(bytes.len())?;
        self.write(&buffer, bytes)?;
        Ok(buffer)
    }

    /// Writes the first bytes of a buffer, after all that was asked for before.
    pub fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<()> {
        self.reach()?;
        let whole = bytes.len() / LEAST * LEAST;
        self.queue.write_buffer(buffer, 0, &bytes[..whole]);
        if whole < bytes.len() {
            let mut last = [0; LEAST];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(buffer, whole as u64, &last);
        }
        self.check()
    }

    /// Copies the first bytes of a buffer to the host, when all that was asked for before is done.
    pub fn download(&self, buffer: &Buffer, to: &mut [u8]) -> Result<()> {
        self.reach()?;
        let size = to.len().max(LEAST).next_multiple_of(LEAST) as u64;
        let staging = self.device.create_buffer(&BufferDescriptor {
            label: Some("download"),
            size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&CommandEncoderDescriptor { label: None });
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, size);
        self.queue.submit([encoder.finish()]);
        let (sender, receiver) = channel();
        staging.map_async(MapMode::Read, .., move |result| {
            // Nobody waits any more if this fails.
            let _ = sender.send(result);
        });
        let wait = PollType::Wait { submission_index: None, timeout: None };
        self.device.poll(wait).map_err(|error| unsupported!("{} was lost: {error}", self.name))?;
        let mapped = receiver.recv().map_err(|_| internal_error!("a download was forgotten"))?;
        mapped.map_err(|error| unsupported!("{}: {error}", self.name))?;
        let view = staging.get_mapped_range(..).map_err(|error| unsupported!("{}: {error}", self.name))?;
        to.copy_from_slice(&view[..to.len()]);
        drop(view);
        self.check()
    }

    /// A launch made ready: its pipeline, which may be known, and its sizes in memory.
    pub fn prepare(&self, launch: &Launch) -> Result<Prepared> {
        self.reach()?;
        let form = Form::of(launch);
        let numbers = words(launch, &form)?;
        let invocations = numbers[1];
        let pipeline = self.pipelines.get(&self.device, &self.name, form)?;
        let numbers = self.upload(bytemuck::cast_slice(&numbers))?;
        Ok(Prepared { pipeline, numbers, groups: invocations.div_ceil(WORKGROUP) })
    }

    /// Runs launches one after the other, each on its operands.
    pub fn run<'a>(&self, launches: impl IntoIterator<Item = (&'a Prepared, Vec<&'a Buffer>)>) -> Result<()> {
        self.reach()?;
        let mut encoder = self.device.create_command_encoder(&CommandEncoderDescriptor { label: None });
        let mut pass =
            encoder.begin_compute_pass(&ComputePassDescriptor { label: None, timestamp_writes: None });
        for (prepared, operands) in launches {
            if prepared.groups == 0 {
                continue;
            }
            let buffers = std::iter::once(&prepared.numbers).chain(operands);
            let entries: Vec<BindGroupEntry<'_>> = (0u32..)
                .zip(buffers)
                .map(|(binding, buffer)| BindGroupEntry { binding, resource: buffer.as_entire_binding() })
                .collect();
            let bound = self.device.create_bind_group(&BindGroupDescriptor {
                label: None,
                layout: &prepared.pipeline.get_bind_group_layout(0),
                entries: &entries,
            });
            pass.set_pipeline(&prepared.pipeline);
            pass.set_bind_group(0, &bound, &[]);
            let (x, y) = (prepared.groups.min(MOST_GROUPS), prepared.groups.div_ceil(MOST_GROUPS));
            pass.dispatch_workgroups(x, y, 1);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        self.check()
    }
}

/// A launch that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    pipeline: Arc<ComputePipeline>,
    numbers: Buffer,
    groups: u32,
}
