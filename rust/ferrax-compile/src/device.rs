//! Devices of any backend behind one face: what holds arrays of several machines at once.
//!
//! A [`Backend`] has types of its own for memory and for executables. [`Attached`] makes a [`Device`] of one,
//! whose memory knows by number where it is, and refuses to run with memory of another. Memory that
//! is the host's is not among these: [`Buffer`] tells the two apart, so that bytes are read of the host's alone,
//! and of a device's only after they were asked for.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use ferrax_ir::tensor::byte_size;
use ferrax_ir::{Program, Result, Storage, internal_error};

use crate::backend::{self, Backend, Event, Output};

/// The number of a device in a process. The host's is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceId(pub u16);

impl DeviceId {
    pub const HOST: DeviceId = DeviceId(0);
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// Memory of a device.
pub trait Memory: Any + fmt::Debug + Send + Sync {
    fn device(&self) -> DeviceId;

    /// How many bytes it has.
    fn size(&self) -> usize;

    /// Copies all of it to the host.
    fn download(&self, to: &mut [u8]) -> Result<()>;
}

/// Where the elements of an array are.
#[derive(Clone, Debug)]
pub enum Buffer {
    Host(Arc<dyn Storage>),
    Device(Arc<dyn Memory>),
}

impl Buffer {
    pub fn device(&self) -> DeviceId {
        match self {
            Buffer::Host(_) => DeviceId::HOST,
            Buffer::Device(memory) => memory.device(),
        }
    }
}

/// A program that was compiled for a device.
pub trait Runnable: Send + Sync {
    /// The outputs for these inputs, which have the dtypes and sizes of the program's.
    fn run(&self, inputs: &[Arc<dyn Memory>]) -> Result<Vec<Output<Arc<dyn Memory>>>>;
}

/// What holds arrays and runs programs.
pub trait Device: Send + Sync {
    fn id(&self) -> DeviceId;

    /// Compiles a program whose dimensions are all constant.
    fn compile(&self, program: &Program) -> Result<Arc<dyn Runnable>>;

    fn upload(&self, bytes: &[u8]) -> Result<Arc<dyn Memory>>;

    /// The memory of arrays that are on it.
    fn usage(&self) -> Usage;

    /// Gives memory that is kept for later arrays back to the system.
    fn trim(&self);

    /// See [`Backend::begin_profile`].
    fn begin_profile(&self) -> Result<()>;

    fn end_profile(&self) -> Result<Vec<Event>>;
}

/// Bytes of arrays on a device, the most there ever were, how often memory was given, the largest, and bytes that are
/// kept for later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub in_use: usize,
    pub peak: usize,
    pub given: usize,
    pub largest: usize,
    pub kept: usize,
}

#[derive(Debug, Default)]
struct Counts {
    in_use: AtomicUsize,
    peak: AtomicUsize,
    given: AtomicUsize,
    largest: AtomicUsize,
}

impl Counts {
    fn add(&self, bytes: usize) {
        let now = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        self.given.fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// A backend with a number.
pub struct Attached<B> {
    id: DeviceId,
    backend: B,
    counts: Counts,
    /// What it gives out keeps it.
    this: Weak<Attached<B>>,
}

/// Memory that an attached backend gave out.
struct Held<B: Backend> {
    buffer: B::Buffer,
    size: usize,
    owner: Arc<Attached<B>>,
}

struct Compiled<B: Backend> {
    executable: B::Executable,
    owner: Arc<Attached<B>>,
}

impl<B: Backend + 'static> Attached<B> {
    pub fn new(id: DeviceId, backend: B) -> Arc<Attached<B>> {
        Arc::new_cyclic(|this| Attached { id, backend, counts: Counts::default(), this: this.clone() })
    }

    pub fn backend(&self) -> &B {
        &self.backend
    }

    fn owner(&self) -> Result<Arc<Attached<B>>> {
        self.this.upgrade().ok_or_else(|| internal_error!("{} is gone", self.id))
    }

    fn hold(&self, buffer: B::Buffer, size: usize) -> Result<Arc<dyn Memory>> {
        self.counts.add(size);
        Ok(Arc::new(Held { buffer, size, owner: self.owner()? }))
    }
}

impl<B: Backend + 'static> Device for Attached<B> {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn compile(&self, program: &Program) -> Result<Arc<dyn Runnable>> {
        let executable = backend::compile(&self.backend, program)?;
        Ok(Arc::new(Compiled { executable, owner: self.owner()? }))
    }

    fn upload(&self, bytes: &[u8]) -> Result<Arc<dyn Memory>> {
        self.hold(self.backend.upload(bytes)?, bytes.len())
    }

    fn trim(&self) {
        self.backend.trim();
    }

    fn begin_profile(&self) -> Result<()> {
        self.backend.begin_profile()
    }

    fn end_profile(&self) -> Result<Vec<Event>> {
        self.backend.end_profile()
    }

    fn usage(&self) -> Usage {
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let Counts { in_use, peak, given, largest } = &self.counts;
        Usage {
            in_use: read(in_use),
            peak: read(peak),
            given: read(given),
            largest: read(largest),
            kept: self.backend.kept(),
        }
    }
}

impl<B: Backend> Drop for Held<B> {
    fn drop(&mut self) {
        self.owner.counts.in_use.fetch_sub(self.size, Ordering::Relaxed);
    }
}

impl<B: Backend> fmt::Debug for Held<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes on {}", self.size, self.owner.id)
    }
}

impl<B: Backend + 'static> Memory for Held<B> {
    fn device(&self) -> DeviceId {
        self.owner.id
    }

    fn size(&self) -> usize {
        self.size
    }

    fn download(&self, to: &mut [u8]) -> Result<()> {
        if to.len() != self.size {
            return Err(internal_error!("{} bytes for {self:?}", to.len()));
        }
        self.owner.backend.download(&self.buffer, to)
    }
}

impl<B: Backend + 'static> Compiled<B> {
    /// What the backend knows memory by.
    fn own<'a>(&self, memory: &'a Arc<dyn Memory>) -> Result<&'a B::Buffer> {
        let held = (&**memory as &dyn Any).downcast_ref::<Held<B>>();
        held.filter(|held| Arc::ptr_eq(&held.owner, &self.owner))
            .map(|held| &held.buffer)
            .ok_or_else(|| internal_error!("{memory:?} is given to a program on {}", self.owner.id))
    }
}

impl<B: Backend + 'static> Runnable for Compiled<B> {
    fn run(&self, inputs: &[Arc<dyn Memory>]) -> Result<Vec<Output<Arc<dyn Memory>>>> {
        let buffers = inputs.iter().map(|memory| self.own(memory)).collect::<Result<Vec<_>>>()?;
        let outputs = self.owner.backend.run(&self.executable, &buffers)?;
        let held = |Output { buffer, dtype, sizes }: Output<B::Buffer>| {
            let size = byte_size(&sizes, dtype)?;
            Ok(Output { buffer: self.owner.hold(buffer, size)?, dtype, sizes })
        };
        outputs.into_iter().map(held).collect()
    }
}
