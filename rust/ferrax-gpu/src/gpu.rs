//! A GPU that was opened: its memory, and pipelines that run on it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use ferrax_compile::backend::Event;
use ferrax_compile::{Launch, Setting};
use ferrax_ir::{DType, Error, Result, device_error, internal_error, unsupported, value_error};
use smallvec::SmallVec;
use wgpu::{
    Adapter, BufferDescriptor, BufferUsages, Device, DeviceDescriptor, DeviceType, ExperimentalFeatures,
    Features, MapMode, PollType, Queue, RequestDeviceError,
};

use crate::adapter::{Choice, described, found, number};
use crate::bindings::Buffers;
use crate::memory::{Memory, Pool, PoolUsage};
use crate::offers;
use crate::pipelines::{Counts, Pipeline, Pipelines, Source};
use crate::profile::Profile;
use crate::stream::{MANY, Stream};
use crate::tuning::Tuning;
use crate::wgsl::arrays::Pieces;
use crate::wgsl::numbers::{Fold, Form, Means, Patience, words};
use crate::wgsl::product::matrices::Matrices;
use crate::wgsl::{MOST_GROUPS, WORKGROUP};

/// A GPU that was opened.
pub struct Gpu {
    name: String,
    device: Device,
    queue: Queue,
    pool: Arc<Pool>,
    stream: Mutex<Stream>,
    pipelines: Pipelines,
    patience: Patience,
    tuning: &'static Tuning,
    /// The invocations of its smallest subgroups, and how many neighbours were found to be in one.
    smallest_subgroup: u32,
    subgroup: OnceLock<u32>,
    /// What its driver says that it multiplies, and whether that was found to be so, when it was first to be used.
    offered: Option<Matrices>,
    multiplies: OnceLock<bool>,
    downloads: AtomicUsize,
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

/// Mesa's software GPU leaves the loops of an invocation after 65,535 times together (`LP_MAX_TGSI_LOOP_ITERATIONS` in
/// its `lp_limits.h`).
const SOFTWARE: Patience = Patience(1 << 15);

/// Bytes of a word: copies and writes are of whole ones.
const WORD: usize = 4;

/// Asks a driver for its GPU, as if it lacked these dtypes, with its matrices or without.
fn request(
    adapter: &Adapter,
    lacked: &[DType],
    matrices: bool,
) -> std::result::Result<(Device, Queue), RequestDeviceError> {
    let wanted = Features::SHADER_INT64
        | Features::SHADER_F64
        | Features::TIMESTAMP_QUERY
        | Features::PIPELINE_CACHE
        | Features::SUBGROUP;
    let (wanted, experimental_features) = match matrices {
        false => (wanted, ExperimentalFeatures::disabled()),
        // SAFETY: what it may do wrong is what wgpu and drivers have wrong still. Of experimental features it is
        // cooperative matrices alone, whose shader reads and writes its own memory of the workgroup within bounds that
        // do not depend on sizes, and which is not used unless it gave the right results (`product::cooperative`).
        true => (wanted | offers::MATRICES, unsafe { ExperimentalFeatures::enabled() }),
    };
    let lacked = lacked.iter().filter_map(|&dtype| offers::feature(dtype));
    let descriptor = DeviceDescriptor {
        label: Some("ferrax"),
        experimental_features,
        required_features: lacked.fold(adapter.features() & wanted, |features, lacked| features - lacked),
        required_limits: adapter.limits(),
        ..DeviceDescriptor::default()
    };
    pollster::block_on(adapter.request_device(&descriptor))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens a GPU, with the thresholds that `FERRAX_TUNING` says.
    ///
    /// Errors: those of [`crate::choose`], the driver's, and of [`Setting::from_environment`].
    pub fn open(choice: &Choice) -> Result<Gpu> {
        Gpu::open_as(choice, &[], Setting::from_environment()?)
    }

    /// The same, as if it could not compute with these of `int64` and `float64`, and with these thresholds.
    pub fn open_as(choice: &Choice, lacked: &[DType], setting: Setting) -> Result<Gpu> {
        let tuning = Tuning::of(setting);
        let mut all = found();
        let adapter = all.swap_remove(number(&all, choice)?);
        let name = described(&adapter);
        let offered = offers::matrices(&adapter);
        let opened = |matrices: bool| request(&adapter, lacked, matrices);
        // A driver that refuses what it offers is opened without that.
        let (opened, offered) = match opened(offered.is_some()) {
            Err(_) if offered.is_some() => (opened(false), None),
            opened => (opened, offered),
        };
        let (device, queue) = opened.map_err(|error| value_error!("{name} cannot be opened: {error}"))?;
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
        let info = adapter.get_info();
        let pipelines = Pipelines::new(&device, &info);
        let patience = match info.device_type {
            DeviceType::Cpu => SOFTWARE,
            _ => Patience::EVER,
        };
        Ok(Gpu {
            name,
            device,
            queue,
            pool,
            stream,
            pipelines,
            patience,
            tuning,
            smallest_subgroup: info.subgroup_min_size,
            subgroup: OnceLock::new(),
            offered,
            multiplies: OnceLock::new(),
            downloads: AtomicUsize::new(0),
            errors,
            lost,
            process: std::process::id(),
        })
    }

    /// Its name and that of its driver.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many pipelines were made, and how often one was found that had been.
    pub fn counts(&self) -> Counts {
        self.pipelines.counts()
    }

    /// How often the host waited for bytes.
    pub fn downloads(&self) -> usize {
        self.downloads.load(Ordering::Relaxed)
    }

    /// Bytes in arrays, and bytes that are kept for later ones.
    pub fn usage(&self) -> PoolUsage {
        self.pool.usage()
    }

    /// Whether it computes with a dtype.
    pub fn has(&self, dtype: DType) -> bool {
        offers::feature(dtype).is_none_or(|feature| self.device.features().contains(feature))
    }

    /// Gives memory that is kept for later arrays back to the driver.
    pub fn trim(&self) {
        locked(&self.stream).bindings.clear();
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

    /// Bytes that the invocations of a workgroup may share.
    pub fn workgroup_bytes(&self) -> usize {
        self.device.limits().max_compute_workgroup_storage_size as usize
    }

    #[cfg(test)]
    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    /// How often an invocation may go through loops.
    pub(crate) fn patience(&self) -> Patience {
        self.patience
    }

    pub(crate) fn tuning(&self) -> &'static Tuning {
        self.tuning
    }

    /// So many neighbouring invocations of a workgroup are in one subgroup, in order; none if 0.
    fn subgroup(&self) -> u32 {
        let found = || -> Result<bool> {
            let prepared = self.prepared(Source::Subgroups, &[0], 1)?;
            let answers = self.allocate(WORKGROUP as usize * WORD)?;
            self.launch(&prepared, [&answers])?;
            let mut words = [0u32; WORKGROUP as usize];
            self.download(&answers, bytemuck::cast_slice_mut(&mut words))?;
            Ok(words.iter().all(|&word| word == 1))
        };
        *self.subgroup.get_or_init(|| {
            let has = self.device.features().contains(Features::SUBGROUP);
            let smallest = self.smallest_subgroup;
            // What a driver refuses it does not have.
            let fits = has && smallest.is_power_of_two() && smallest <= WORKGROUP && found().unwrap_or(false);
            if fits { smallest } else { 0 }
        })
    }

    /// The matrices that its driver says it multiplies, and whether it does, if that was asked for.
    pub(crate) fn offered_matrices(&self) -> Option<(Matrices, &OnceLock<bool>)> {
        Some((self.offered?, &self.multiplies))
    }

    #[cfg(test)]
    pub(crate) fn offers_matrices(&self) -> bool {
        self.offered.is_some()
    }

    /// As if it had been opened with these.
    #[cfg(test)]
    pub(crate) fn play(&mut self, matrices: Matrices) {
        self.offered = Some(matrices);
        self.multiplies = OnceLock::from(true);
    }

    /// Ends the use of the GPU, as a driver does that was reset: what is asked of it from now on are errors.
    pub fn lose(&self) {
        self.device.destroy();
    }

    /// Fails in a process that was forked from the one that opened the GPU, and if it is lost.
    pub(crate) fn reach(&self) -> Result<()> {
        if self.process != std::process::id() {
            return Err(device_error!(
                "{} was opened before this process was forked: start processes by 'spawn'",
                self.name
            ));
        }
        match &*locked(&self.lost) {
            None => Ok(()),
            Some(why) => Err(device_error!(
                "{} was lost, with its arrays ({why}), of which {}; other devices still work, and \
                 this one after the process is started again",
                self.name,
                self.pool.described()
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
        self.download_each(&mut [(memory, to)])
    }

    /// As [`Gpu::download`], of several at once.
    pub fn download_each(&self, parts: &mut [(&Memory, &mut [u8])]) -> Result<()> {
        self.reach()?;
        self.downloads.fetch_add(1, Ordering::Relaxed);
        let padded = |to: &[u8]| to.len().max(WORD).next_multiple_of(WORD);
        let size = parts.iter().map(|(_, to)| padded(to)).sum::<usize>().max(WORD) as u64;
        let staging = self.device.create_buffer(&BufferDescriptor {
            label: Some("download"),
            size,
            usage: BufferUsages::MAP_READ | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        {
            let mut stream = locked(&self.stream);
            let mut at = 0;
            for (memory, to) in &*parts {
                let bytes = padded(to) as u64;
                stream.copy(memory.buffer(), &staging, at, bytes)?;
                at += bytes;
            }
            stream.flush()?;
        }
        let (sender, receiver) = channel();
        staging.map_async(MapMode::Read, .., move |result| {
            // Nobody waits any more if this fails.
            let _ = sender.send(result);
        });
        let lost = |error: &dyn fmt::Display| {
            self.reach().err().unwrap_or_else(|| device_error!("{}: {error}", self.name))
        };
        let wait = PollType::Wait { submission_index: None, timeout: None };
        self.device.poll(wait).map_err(|error| lost(&error))?;
        let mapped = receiver.recv().map_err(|_| internal_error!("a download was forgotten"))?;
        mapped.map_err(|error| lost(&error))?;
        let view = staging.get_mapped_range(..).map_err(|error| lost(&error))?;
        let mut at = 0;
        for (_, to) in parts {
            to.copy_from_slice(&view[at..at + to.len()]);
            at += padded(to);
        }
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
        locked(&self.stream).copy(memory.buffer(), copy.buffer(), 0, memory.buffer().size())?;
        Ok(copy)
    }

    /// A launch over operands of so many bytes made ready: its pipeline, which may be known, and its sizes in memory.
    pub fn prepare(&self, launch: &Launch, bytes: &[usize]) -> Result<Prepared> {
        let means = Means { patience: self.patience, kernels: self.tuning.kernels };
        let mut form = Form::of(launch, bytes, &means);
        if form.fold.is_shared() {
            form.subgroup = self.subgroup();
        }
        let numbers = words(launch, &form, &means)?;
        let groups = form.groups(&numbers)?;
        let then = match form.fold {
            fold if fold.is_partial() => {
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
        let pipeline = self.pipelines.get(&self.name, source, None)?;
        let numbers = self.upload(bytemuck::cast_slice(numbers))?;
        Ok(Prepared { pipeline, numbers, groups, then: None })
    }

    /// Runs what was made ready on its operands, after all that was asked for before.
    pub fn launch<'a>(
        &self,
        prepared: &'a Prepared,
        operands: impl IntoIterator<Item = &'a Memory>,
    ) -> Result<()> {
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
        let log = self.pool.piece_log();
        let piece = WORD as u64 * (1 << log);
        let mut buffers: Buffers<'_> = SmallVec::new();
        buffers.push(prepared.numbers.buffer());
        buffers.extend(operands.into_iter().map(Memory::buffer));
        let pipeline = if buffers.iter().all(|buffer| buffer.size() <= piece) {
            prepared.pipeline.clone()
        } else {
            let counts = buffers[1..].iter().map(|buffer| buffer.size().div_ceil(piece) as u32).collect();
            let pieces = Pieces { counts, log };
            self.pipelines.get(&self.name, prepared.pipeline.source.clone(), Some(pieces))?
        };
        let groups = [prepared.groups.min(MOST_GROUPS), prepared.groups.div_ceil(MOST_GROUPS)];
        let mut stream = locked(&self.stream);
        let bound = stream.bindings.group(&pipeline, &buffers, piece, self.pool.returned());
        stream.dispatch(&pipeline, &bound, groups)?;
        drop(stream);
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
        stream.profile = Some(Profile::new(&self.device, &self.queue, MANY));
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

#[cfg(test)]
mod tests {
    use ferrax_compile::{Step, Target, plan};
    use ferrax_ir::Program;

    use super::*;
    use crate::wgsl;

    /// Where a GPU has subgroups whose invocations are neighbours, sums take values from these, and else none.
    #[test]
    fn sums_by_subgroups() {
        let name = std::env::var("FERRAX_GPU").unwrap_or_else(|_| "llvmpipe".to_string());
        let gpu = Gpu::open(&Choice::Name(name)).unwrap();
        let subgroup = gpu.subgroup();
        assert!(subgroup == 0 || subgroup == gpu.smallest_subgroup);
        if gpu.name().contains("llvmpipe") {
            assert!(subgroup > 1, "Mesa's are of four at least");
        }
        let program = "{ lambda ; a:f32[8,5000]. let b:f32[8] = reduce_sum[axes=(1,)] a in (b,) }";
        let plan = plan(&Program::parse(program).unwrap(), &Target::CPU).unwrap();
        let [Step::Kernel { launch, .. }] = &plan.steps[..] else { panic!("{plan:?}") };
        for (subgroup, wanted) in [(0, 0), (4, 2), (8, 3), (16, 4), (64, 4)] {
            let form = Form { subgroup, ..Form::of(launch, &[160_000, 32], &Means::EVER) };
            let text = wgsl::shader(&form).unwrap().text;
            assert_eq!(text.matches("subgroupShuffleDown").count(), wanted);
        }
    }
}
