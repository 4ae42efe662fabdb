//! Devices beside the host: which runs a program, and what is moved there.
//!
//! A program runs on the device that operands were put on by request; where none was, on the default one.
//! Other operands are copied there. Which device an array is on is part of the number of its placement, so that
//! calls whose operands are all on the host, as they are where nothing was put anywhere, learn that from the
//! loads by which they look at placements anyway.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ferrax_compile::device::{Attached, Buffer, Device, DeviceId, Memory, Runnable, Usage};
use ferrax_compile::reference::Reference;
use ferrax_ir::{Result, Tensor, device_error, internal_error};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array::{Array, Concrete, Data};
use crate::convert::Operand;
use crate::errors::{IntoPyResult, to_py};
use crate::once::intern;
use crate::placement;
use crate::program::PyProgram;
use crate::tracebacks::Filtered;
use crate::{checks, eager, profiler, trace};

/// Those but the host; a device's number is one more than its index.
static DEVICES: RwLock<Vec<Attachment>> = RwLock::new(Vec::new());

struct Attachment {
    platform: &'static str,
    /// Which of the platform's it is, and how often that was asked for before.
    index: (usize, usize),
    /// What it is called by those who made it.
    name: String,
    device: Arc<dyn Device>,
}

/// What was looked for where `placement::MISSING` is the default device.
static LOOKED_FOR: RwLock<String> = RwLock::new(String::new());

/// Says why there is no default device: the number that stands for it, whose use is this error.
#[pyfunction]
pub fn missing_device(why: String) -> u16 {
    *LOOKED_FOR.write().unwrap_or_else(PoisonError::into_inner) = why;
    placement::MISSING.0
}

/// The device with this number, which is not the host's.
fn device(id: DeviceId) -> Result<Arc<dyn Device>> {
    if id == placement::MISSING {
        let why = LOOKED_FOR.read().unwrap_or_else(PoisonError::into_inner);
        return Err(device_error!("{why}"));
    }
    let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    let index = usize::from(id.0).checked_sub(1);
    let found = index.and_then(|index| devices.get(index)).map(|attachment| attachment.device.clone());
    found.ok_or_else(|| internal_error!("there is no {id}"))
}

/// The devices of a platform, which are looked for when they are first asked for: the number of each, and which of the
/// platform's it is. None for platforms that do not exist. `choice` says which GPUs: parts of their names, or numbers,
/// separated by commas, or nothing.
///
/// Errors: RuntimeError where there is none as chosen.
#[pyfunction]
pub fn platform_devices(py: Python<'_>, platform: &str, choice: &str) -> PyResult<Vec<(u16, usize)>> {
    py.detach(|| attached(platform, choice)).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn attached(platform: &str, choice: &str) -> Result<Vec<(u16, usize)>> {
    let (platform, (chosen, count)) = match platform {
        "reference" => ("reference", (vec![0], 1)),
        "gpu" => ("gpu", gpu::chosen(choice)?),
        _ => return Ok(Vec::new()),
    };
    let mut found = Vec::with_capacity(chosen.len());
    for (place, &index) in chosen.iter().enumerate() {
        let before = chosen[..place].iter().filter(|&&other| other == index).count();
        found.push((attach(platform, (index, before))?, index + before * count));
    }
    Ok(found)
}

fn attach(platform: &'static str, index: (usize, usize)) -> Result<u16> {
    let mut devices = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
    let known =
        devices.iter().find(|attachment| attachment.platform == platform && attachment.index == index);
    if let Some(known) = known {
        return Ok(known.device.id().0);
    }
    let id = DeviceId(devices.len() as u16 + 1);
    if id == placement::MISSING {
        return Err(device_error!(
            "there are {} devices, which are as many as can be numbered",
            devices.len()
        ));
    }
    let (name, device) = match platform {
        "gpu" => gpu::open(id, index.0)?,
        _ => (platform.to_string(), Attached::new(id, Reference::default()) as Arc<dyn Device>),
    };
    devices.push(Attachment { platform, index, name, device });
    Ok(id.0)
}

#[cfg(feature = "gpu")]
mod gpu {
    use super::*;
    use ferrax_gpu::{Choice, Gpu, choose_each};

    /// The numbers of those that are chosen, and how many there are.
    pub fn chosen(choice: &str) -> Result<(Vec<usize>, usize)> {
        choose_each(choice)
    }

    pub fn open(id: DeviceId, index: usize) -> Result<(String, Arc<dyn Device>)> {
        let gpu = Gpu::open(&Choice::Index(index))?;
        Ok((gpu.name().to_string(), Attached::new(id, gpu)))
    }
}

#[cfg(not(feature = "gpu"))]
mod gpu {
    use super::*;
    use ferrax_ir::unsupported;

    pub fn chosen(_: &str) -> Result<(Vec<usize>, usize)> {
        Err(unsupported!("GPUs: this build of ferrax is one without its feature 'gpu'"))
    }

    pub fn open(_: DeviceId, _: usize) -> Result<(String, Arc<dyn Device>)> {
        chosen("").and(Err(internal_error!("a GPU without its feature")))
    }
}

/// What a device is called.
#[pyfunction]
pub fn device_name(number: u16) -> Option<String> {
    let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    let index = usize::from(number).checked_sub(1)?;
    devices.get(index).map(|attachment| attachment.name.clone())
}

/// Bytes of arrays on a device, the most there ever were, how often memory was given, the largest, and bytes that are kept for
/// later arrays.
#[pyfunction]
pub fn device_usage(py: Python<'_>, number: u16) -> PyResult<(usize, usize, usize, usize, usize)> {
    let Usage { in_use, peak, given, largest, kept } = device(DeviceId(number)).py(py)?.usage();
    Ok((in_use, peak, given, largest, kept))
}

/// Gives memory of all devices but the host's that is kept for later arrays back to the system; how many bytes that were.
pub fn trim() -> usize {
    let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    let of_one = |attachment: &Attachment| {
        let kept = attachment.device.usage().kept;
        attachment.device.trim();
        kept
    };
    devices.iter().map(of_one).sum()
}

/// From now on the times of a device's kernels are noted.
#[pyfunction]
pub fn device_begin_profile(py: Python<'_>, number: u16) -> PyResult<()> {
    let device = device(DeviceId(number)).py(py)?;
    py.detach(|| device.begin_profile()).py(py)
}

/// What was noted: names, where they begin and end in nanoseconds, and whether it was the host's.
#[pyfunction]
pub fn device_end_profile(py: Python<'_>, number: u16) -> PyResult<Vec<(String, f64, f64, bool)>> {
    let device = device(DeviceId(number)).py(py)?;
    let events = py.detach(|| device.end_profile()).py(py)?;
    Ok(events.into_iter().map(|event| (event.name, event.begin, event.end, event.host)).collect())
}

/// Whether a call may have to do with another device than the host.
#[inline]
pub fn elsewhere(operands: &[Operand<'_>]) -> bool {
    placement::any_elsewhere(operands) || checks::elsewhere()
}

/// Where a program with these operands runs.
///
/// Errors: ValueError where they were put on different devices.
pub fn target(py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<DeviceId> {
    let mut committed = operands.iter().enumerate().filter_map(|(n, x)| Some((n, placement::committed(x)?)));
    let Some((first, target)) = committed.next() else { return Ok(placement::default_device()) };
    match committed.find(|&(_, other)| other != target) {
        None => Ok(target),
        Some((second, _)) => Err(apart(py, operands, first, second)?),
    }
}

/// The error that two operands are on different devices.
#[cold]
pub fn apart(py: Python<'_>, operands: &[Operand<'_>], first: usize, second: usize) -> PyResult<PyErr> {
    let shown = |number: usize| match &operands[number] {
        Operand::Array(array) => {
            let named = py.import(intern!(py, "ferrax._src.core.propagation"))?;
            let devices: String = named.call_method1(intern!(py, "devices_of"), (array,))?.extract()?;
            Ok::<_, PyErr>(format!("operand {number}, {}, is on {devices}", array.get().array_type()))
        }
        Operand::Literal(_) => Ok(format!("operand {number} is a number")),
    };
    let at = crate::source::current(py).line().map(|line| format!("\n  at {line}")).unwrap_or_default();
    Ok(PyValueError::new_err(format!(
        "incompatible devices: {}, and {}. A program runs on the devices of its arguments: put these on one device, \
         or on one mesh, with ferrax.device_put.{at}",
        shown(first)?,
        shown(second)?
    )))
}

/// What a program was compiled to, for each device that it ran on.
#[derive(Default)]
pub struct Compiled(Mutex<Runnables>);

type Runnables = SmallVec<[(DeviceId, Arc<dyn Runnable>); 1]>;

impl Compiled {
    fn find(&self, id: DeviceId) -> Option<Arc<dyn Runnable>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(other, _)| *other == id).map(|(_, runnable)| runnable.clone())
    }

    fn keep(&self, id: DeviceId, runnable: Arc<dyn Runnable>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Two threads may compile at once.
        if known.iter().all(|(other, _)| *other != id) {
            known.push((id, runnable));
        }
    }
}

/// Runs a program on a device that is not the host. Results are not placed yet.
#[cold]
pub fn run(
    py: Python<'_>,
    program: &PyProgram,
    id: DeviceId,
    operands: &[Operand<'_>],
    weak: impl Iterator<Item = bool>,
) -> PyResult<Vec<Py<Array>>> {
    let device = device(id).py(py)?;
    let runnable = match program.compiled.find(id) {
        Some(runnable) => runnable,
        None => {
            let _span = profiler::phase("compile", &program.program.name);
            let made = py.detach(|| device.compile(&program.program)).py(py)?;
            program.compiled.keep(id, made.clone());
            made
        }
    };
    let inputs = operands
        .iter()
        .map(|operand| match operand {
            Operand::Array(array) => match &array.get().data {
                Data::Concrete(concrete) => memory(py, &*device, concrete),
                Data::Tracer(_) => Err(to_py(py, internal_error!("a tracer reached execution"))),
            },
            Operand::Literal(literal) => device.upload(literal.value.to_tensor().py(py)?.bytes()).py(py),
        })
        .collect::<PyResult<Vec<_>>>()?;
    let span = profiler::call(py, || format!("run on {id}"));
    let outputs = py.detach(|| runnable.run(&inputs)).py(py)?;
    drop(span);
    let results: Vec<Concrete> = outputs
        .into_iter()
        .zip(weak)
        .map(|(output, weak)| {
            Concrete::of_buffer(output.dtype, output.sizes, Buffer::Device(output.buffer), weak)
        })
        .collect();
    if checks::values().is_some() {
        let given: SmallVec<[Tensor; 3]> = eager::tensors(py, operands)?;
        let results = results.iter().map(Concrete::tensor).collect::<PyResult<Vec<_>>>()?;
        program.check(py, &given, &results)?;
    }
    results.into_iter().map(|concrete| Array::of_concrete(py, concrete)).collect()
}

/// The elements of an array in memory of this device.
fn memory(py: Python<'_>, device: &dyn Device, concrete: &Concrete) -> PyResult<Arc<dyn Memory>> {
    match concrete.buffer()? {
        Buffer::Device(memory) if memory.device() == device.id() => Ok(memory),
        Buffer::Device(memory) => {
            eager::release_gil(py, memory.size(), || device.upload(downloaded(&*memory, concrete)?.bytes()))
                .py(py)
        }
        Buffer::Host(storage) => {
            let _span = profiler::transfer("copy to device", storage.bytes().len());
            eager::release_gil(py, storage.bytes().len(), || device.upload(storage.bytes())).py(py)
        }
    }
}

/// The elements of an array on a device, copied to the host.
fn downloaded(memory: &dyn Memory, of: &Concrete) -> Result<Tensor> {
    let (mut storage, _) = ferrax_cpu::alloc::storage(memory.size())?;
    let to = Arc::get_mut(&mut storage)
        .and_then(|storage| storage.bytes_mut())
        .ok_or_else(|| internal_error!("fresh storage cannot be written"))?;
    let span = profiler::transfer("copy from device", to.len());
    memory.download(to)?;
    drop(span);
    of.with(storage)
}

/// The array at the placement with this number: itself if it is given to nobody else (`fresh`) and is on that
/// device, else another, with the same memory if that is there.
#[pyfunction]
pub fn place_at<'py>(array: &Bound<'py, Array>, number: u32, fresh: bool) -> PyResult<Bound<'py, Array>> {
    let py = array.py();
    let Some(concrete) = array.get().concrete() else {
        array.get().place.set(number);
        return Ok(array.clone());
    };
    let (buffer, to) = (concrete.buffer()?, placement::device_of(number));
    if fresh && buffer.device() == to {
        array.get().place.set(number);
        return Ok(array.clone());
    }
    let buffer = match (buffer, to) {
        (buffer, to) if buffer.device() == to => buffer,
        (Buffer::Device(memory), DeviceId::HOST) => {
            let tensor = eager::release_gil(py, memory.size(), || downloaded(&*memory, concrete));
            Buffer::Host(tensor.py(py)?.storage().clone())
        }
        (_, to) => Buffer::Device(memory(py, &*device(to).py(py)?, concrete)?),
    };
    let moved = Concrete::of_buffer(concrete.dtype, concrete.sizes.clone(), buffer, concrete.weak);
    let moved = Array::of_concrete(py, moved)?;
    moved.get().place.set(number);
    Ok(moved.into_bound(py))
}

/// The operand as one that was not put anywhere by request.
pub fn uncommitted<'py>(py: Python<'py>, operand: &Operand<'py>) -> PyResult<Operand<'py>> {
    let Operand::Array(array) = operand else { return Ok(operand.clone()) };
    let Some(concrete) = array.get().concrete() else { return Ok(operand.clone()) };
    let buffer = concrete.buffer()?;
    let number = placement::nowhere(buffer.device());
    let same = Concrete::of_buffer(concrete.dtype, concrete.sizes.clone(), buffer, concrete.weak);
    let same = Array::of_concrete(py, same)?;
    same.get().place.set(number);
    Ok(Operand::Array(same.into_bound(py)))
}

/// A fresh array where arrays are that were put nowhere.
#[inline]
pub fn at_default<'py>(array: Bound<'py, Array>) -> PyResult<Bound<'py, Array>> {
    if !checks::elsewhere() || trace::is_staging() {
        return Ok(array);
    }
    place_at(&array, placement::default_place(), true)
}

/// The elements of an array on a device, which somebody reads on the host without having asked for a copy.
#[cold]
pub fn tensor(of: &Concrete, memory: &dyn Memory) -> PyResult<Tensor> {
    Python::attach(|py| {
        let module = py.import(intern!(py, "ferrax._src.core.transfers"))?;
        module.call_method1(intern!(py, "downloaded"), (of.array_type().to_string(),)).filtered(py)?;
        eager::release_gil(py, memory.size(), || downloaded(memory, of)).py(py)
    })
}
