//! A GPU that was opened: its memory, and pipelines that run on it.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ferrax_compile::Launch;
use ferrax_compile::backend::Event;
use ferrax_ir::{Error, Result, internal_error, unsupported, value_error};
use wgpu::{
    BindGroupDescriptor, BindGroupEntry, BufferDescriptor, BufferUsages, Device, DeviceDescriptor, Features,
    MapMode, PollType, Queue,
};

use crate::adapter::{Choice, described, found, number};
use crate::memory::{Memory, Pool, PoolUsage};
use crate::numbers::{Fold, Form, words};
use crate::pipelines::{Counts, Pipeline, Pipelines, Source};
use crate::profile::Profile;
use crate::stream::Stream;
use crate::wgsl::MOST_GROUPS;

/// A GPU that was opened.
pub struct Gpu {
    name: String,
    device: Device,
    queue: Queue,
    pool: Arc<Pool>,
    stream: Mutex<Stream>,
    pipelines: Pipelines,
    /// What went wrong behind a call that cannot say so.
    errors: Arc<Mutex<Vec<String>>>,
    /// Why it is gone, if it is.
    lost: Arc<Mutex<Option<String>>>,
    /// The process that opened it: drivers do not survive forks.
    process: u32,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({})", self.name)
    }
}

/// Bytes of a word: copies and writes are of whole ones.
const WORD: usize = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens a GPU.
    ///
    /// Errors: those of [`crate::choose`], and the driver's.
    pub fn open(choice: &Choice) -> Result<Gpu> {
        let mut all = found();
        let adapter = all.swap_remove(number(&all, choice)?);
        let name = described(&adapter);
        let wanted = Features::SHADER_INT64 | Features::SHADER_F64 | Features::TIMESTAMP_QUERY;
        let descriptor = DeviceDescriptor {
            label: Some("ferrax"),
            required_features: adapter.features() & wanted,
            required_limits: adapter.limits(),
            ..DeviceDescriptor::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| value_error!("{name} cannot be opened: {error}"))?;
        let errors = Arc::new(Mutex::new(Vec::new()));
        let lost = Arc::new(Mutex::new(None));
        let noted = errors.clone();
        device
            .on_uncaptured_error(Arc::new(move |error: wgpu::Error| locked(&noted).push(error.to_string())));
        let gone = lost.clone();
        device.set_device_lost_callback(move |reason, why| {
            *locked(&gone) = Some(format!("{reason:?}: {why}"));
        });
        let pool = Pool::new(name.clone(), device.clone());
        let stream = Mutex::new(Stream::new(device.clone(), queue.clone()));
        let pipelines = Pipelines::default();
        Ok(Gpu { name, device, queue, pool, stream, pipelines, errors, lost, process: std::process::id() })
    }

    /// Its name and that of its driver.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many pipelines were made, and how often one was found that had been.
    pub fn counts(&self) -> Counts {
        self.pipelines.counts()
    }

    /// Bytes in arrays, and bytes that are kept for later ones.
    pub fn usage(&self) -> PoolUsage {
        self.pool.usage()
    }

    /// Gives memory that is kept for later arrays back to the driver.
    pub fn trim(&self) {
        self.pool.trim();
    }

    /// From now on arrays may have so many bytes together; none for what the driver gives.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.pool.set_limit(bytes);
    }

    /// Arrays that a kernel may have, beside its sizes and its partial results.
    pub fn most_operands(&self) -> usize {
        self.device.limits().max_storage_buffers_per_shader_stage as usize - 2
    }

    /// Ends the use of the GPU, as a driver does that was reset: what is asked of it from now on are errors.
    pub fn lose(&self) {
        self.device.destroy();
    }

    /// Fails in a process that was forked from the one that opened the GPU, and if it is lost.
    fn reach(&self) -> Result<()> {
        if self.process != std::process::id() {
            return Err(unsupported!(
                "{} was opened before this process was forked: start processes by 'spawn'",
                self.name
            ));
        }
        match &*locked(&self.lost) {
            None => Ok(()),
            Some(why) => Err(unsupported!(
                "{} was lost, with its arrays, of which {} bytes were in use ({why}); other devices still work, and \
                 this one after the process is started again",
                self.name,
                self.pool.usage().in_use
            )),
        }
    }

    /// Fails if something went wrong since the last look.
    fn check(&self) -> Result<()> {
        let errors = std::mem::take(&mut *locked(&self.errors));
        match errors.first() {
            None => Ok(()),
            Some(error) => {
                self.reach()?;
                Err(Error::Unsupported(format!("{}: {error}", self.name)))
            }
        }
    }

    /// Memory of so many bytes, rounded up.
    pub fn allocate(&self, bytes: usize) -> Result<Memory> {
        self.reach()?;
        self.pool.take(bytes)
    }

    /// Memory with these bytes.
    pub fn upload(&self, bytes: &[u8]) -> Result<Memory> {
        let memory = self.allocate(bytes.len())?;
        // What is written comes before all that is submitted later: commands that use the memory still, for
        // whom had it before, are submitted first.
        locked(&self.stream).flush()?;
        let whole = bytes.len() / WORD * WORD;
        self.queue.write_buffer(memory.buffer(), 0, &bytes[..whole]);
        if whole < bytes.len() {
            let mut last = [0; WORD];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.queue.write_buffer(memory.buffer(), whole as u64, &last);
        }
        self.check()?;
        Ok(memory)
    }

    /// Copies the first bytes of memory to the host, when all that was asked for before is done.
    pub fn download(&self, memory: &Memory, to: &mut [u8]) -> Result<()> {
        self.reach()?;
        let size = to.len().max(WORD).next_multiple_of(WORD) as u64;
        let staging = self.device.create_buffer(&BufferDescriptor {
            label: Some("download"),
            size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        {
            let mut stream = locked(&self.stream);
            stream.copy(memory.buffer(), &staging, size)?;
            stream.flush()?;
        }
        let (sender, receiver) = channel();
        staging.map_async(MapMode::Read, .., move |result| {
            // Nobody waits any more if this fails.
            let _ = sender.send(result);
        });
        let lost = |error: &dyn fmt::Display| {
            self.reach().err().unwrap_or_else(|| unsupported!("{}: {error}", self.name))
        };
        let wait = PollType::Wait { submission_index: None, timeout: None };
        self.device.poll(wait).map_err(|error| lost(&error))?;
        let mapped = receiver.recv().map_err(|_| internal_error!("a download was forgotten"))?;
        mapped.map_err(|error| lost(&error))?;
        let view = staging.get_mapped_range(..).map_err(|error| lost(&error))?;
        to.copy_from_slice(&view[..to.len()]);
        drop(view);
        self.check()
    }

    /// Memory of zeros.
    pub fn zeros(&self, bytes: usize) -> Result<Memory> {
        let memory = self.allocate(bytes)?;
        locked(&self.stream).clear(memory.buffer())?;
        Ok(memory)
    }

    /// The same bytes in memory of their own.
    pub fn copy(&self, memory: &Memory) -> Result<Memory> {
        let copy = self.allocate(memory.buffer().size() as usize)?;
        locked(&self.stream).copy(memory.buffer(), copy.buffer(), memory.buffer().size())?;
        Ok(copy)
    }

    /// A launch made ready: its pipeline, which may be known, and its sizes in memory.
    pub fn prepare(&self, launch: &Launch) -> Result<Prepared> {
        let form = Form::of(launch);
        let numbers = words(launch, &form)?;
        let groups = form.groups(&numbers)?;
        let then = match form.fold {
            Fold::Segments => {
                let finish = Form { fold: Fold::Finish, ..form.clone() };
                let (bytes, groups) = (form.partial_bytes(&numbers), finish.groups(&numbers)?);
                let finish = self.prepared(Source::Kernel(Box::new(finish)), &numbers, groups)?;
                Some((bytes, Box::new(finish)))
            }
            _ => None,
        };
        Ok(Prepared { then, ..self.prepared(Source::Kernel(Box::new(form)), &numbers, groups)? })
    }

    /// A shader made ready with these words as its first binding.
    pub(crate) fn prepared(&self, source: Source, numbers: &[u32], groups: u32) -> Result<Prepared> {
        self.reach()?;
        let pipeline = self.pipelines.get(&self.device, &self.name, source)?;
        let numbers = self.upload(bytemuck::cast_slice(numbers))?;
        Ok(Prepared { pipeline, numbers, groups, then: None })
    }

    /// Runs what was made ready on its operands, after all that was asked for before.
    pub fn launch<'a>(
        &self,
        prepared: &'a Prepared,
        operands: impl IntoIterator<Item = &'a Memory>,
    ) -> Result<()> {
        self.reach()?;
        let Some((bytes, then)) = &prepared.then else { return self.launch_one(prepared, operands) };
        let partials = self.allocate(*bytes)?;
        let mut operands: Vec<&Memory> =
            operands.into_iter().map(|memory: &'a Memory| -> &Memory { memory }).collect();
        operands.push(&partials);
        self.launch_one(prepared, operands.iter().copied())?;
        self.launch_one(then, operands)
    }

    fn launch_one<'a>(
        &self,
        prepared: &'a Prepared,
        operands: impl IntoIterator<Item = &'a Memory>,
    ) -> Result<()> {
        if prepared.groups == 0 {
            return Ok(());
        }
        let buffers = std::iter::once(&prepared.numbers).chain(operands);
        let entries: Vec<BindGroupEntry<'_>> = (0u32..)
            .zip(buffers)
            .map(|(binding, memory)| BindGroupEntry {
                binding,
                resource: memory.buffer().as_entire_binding(),
            })
            .collect();
        let bound = self.device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: &prepared.pipeline.layout,
            entries: &entries,
        });
        let groups = [prepared.groups.min(MOST_GROUPS), prepared.groups.div_ceil(MOST_GROUPS)];
        locked(&self.stream).dispatch(&prepared.pipeline, &bound, groups)?;
        self.check()
    }

    /// From now on the times of kernels are noted.
    ///
    /// Errors: the GPU has no clock, or notes them already.
    pub fn begin_profile(&self) -> Result<()> {
        self.reach()?;
        if !self.device.features().contains(Features::TIMESTAMP_QUERY) {
            return Err(unsupported!("{} does not tell the times of kernels", self.name));
        }
        let mut stream = locked(&self.stream);
        if stream.profile.is_some() {
            return Err(value_error!("a profile of {} is being taken already: end it first", self.name));
        }
        stream.flush()?;
        stream.profile = Some(Profile::new(&self.device, &self.queue));
        Ok(())
    }

    /// What was noted since the profile began, when all of it is done.
    pub fn end_profile(&self) -> Result<Vec<Event>> {
        let profile = {
            let mut stream = locked(&self.stream);
            stream.flush()?;
            stream.profile.take()
        };
        let profile = profile.ok_or_else(|| value_error!("no profile of {} was begun", self.name))?;
        let events = profile.finish();
        self.check()?;
        events
    }

    /// Notes what the host did since then, if a profile is taken.
    pub(crate) fn note(&self, name: &str, since: Instant) {
        if let Some(profile) = &mut locked(&self.stream).profile {
            profile.host(name, since);
        }
    }

    /// Lets the GPU begin with all that was asked for.
    pub fn flush(&self) -> Result<()> {
        locked(&self.stream).flush()?;
        self.check()
    }
}

/// A shader that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    pipeline: Arc<Pipeline>,
    numbers: Memory,
    groups: u32,
    /// What makes results of its partial results, which have so many bytes.
    then: Option<(usize, Box<Prepared>)>,
}

impl Prepared {
    /// With what makes results of its partial results, which have so many bytes.
    pub(crate) fn then(self, bytes: usize, then: Prepared) -> Prepared {
        Prepared { then: Some((bytes, Box::new(then))), ..self }
    }
}
