//! Devices, arrays on them, and programs compiled for them.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "gpu")]
use ferrax_compile::Device as _;
use ferrax_compile::Memory;
use ferrax_compile::device::Runnable;
use ferrax_ir::{DType, Result, Sizes, Tensor, unsupported, value_error};

use crate::{Array, Program, Value};

/// Where programs run. Copies are the same device.
#[derive(Clone, Default)]
pub enum Device {
    /// The processor, with all its cores.
    #[default]
    Cpu,
    /// A GPU that was opened, and is until nobody has it, its arrays or its executables.
    #[cfg(feature = "gpu")]
    Gpu(Arc<ferrax_compile::device::Attached<ferrax_gpu::Gpu>>),
}

impl Device {
    pub fn cpu() -> Device {
        Device::Cpu
    }

    /// Opens a GPU: the first that is one, not a processor that plays one.
    ///
    /// Errors: there is none; the message says what there is, and what to install.
    #[cfg(feature = "gpu")]
    pub fn gpu() -> Result<Device> {
        Device::open(&ferrax_gpu::Choice::Any)
    }

    /// Opens the GPU whose name, or that of whose driver, contains this, in any case of letters.
    ///
    /// Errors: those of [`Device::gpu`].
    #[cfg(feature = "gpu")]
    pub fn gpu_named(part: &str) -> Result<Device> {
        Device::open(&ferrax_gpu::Choice::Name(part.to_string()))
    }

    #[cfg(feature = "gpu")]
    fn open(choice: &ferrax_gpu::Choice) -> Result<Device> {
        use std::sync::atomic::{AtomicU16, Ordering};
        static OPENED: AtomicU16 = AtomicU16::new(1);
        let gpu = ferrax_gpu::Gpu::open(choice)?;
        let id = ferrax_compile::DeviceId(OPENED.fetch_add(1, Ordering::Relaxed));
        Ok(Device::Gpu(ferrax_compile::device::Attached::new(id, gpu)))
    }

    /// A copy of an array in the device's memory.
    ///
    /// Errors: there is no memory for it, or the device is lost.
    pub fn put(&self, array: &Array) -> Result<DeviceArray> {
        let tensor = array.tensor();
        let place = match self {
            Device::Cpu => Place::Host(tensor.clone()),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => Place::Device(gpu.upload(tensor.bytes())?),
        };
        Ok(DeviceArray { dtype: tensor.dtype(), sizes: tensor.sizes().into(), place })
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        match (self, other) {
            (Device::Cpu, Device::Cpu) => true,
            #[cfg(feature = "gpu")]
            (Device::Gpu(one), Device::Gpu(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "gpu")]
            _ => false,
        }
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu:0"),
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => write!(f, "gpu: {}", gpu.backend().name()),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

/// An array in the memory of a device. Copies are cheap: they share the elements.
#[derive(Clone, Debug)]
pub struct DeviceArray {
    dtype: DType,
    sizes: Sizes,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Host(Tensor),
    Device(Arc<dyn Memory>),
}

impl DeviceArray {
    pub fn shape(&self) -> &[usize] {
        &self.sizes
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// A copy of it in the memory of the processor, when what makes it has ended.
    ///
    /// Errors: the device is lost, or what makes the array failed.
    pub fn get(&self) -> Result<Array> {
        match &self.place {
            Place::Host(tensor) => Ok(Array::from(tensor.clone())),
            Place::Device(memory) => {
                let mut tensor = Tensor::zeros(self.dtype, self.sizes.clone())?;
                memory.download(tensor.bytes_mut()?)?;
                Ok(Array::from(tensor))
            }
        }
    }

    /// `f32[2,3]`, as messages say it.
    fn described(&self) -> String {
        ferrax_ir::ArrayType::of_sizes(&self.sizes, self.dtype).to_string()
    }
}

/// A program compiled for a device. May be run from several threads at once.
#[derive(Clone)]
pub struct Executable {
    name: Arc<str>,
    inputs: Arc<[Value]>,
    device: Device,
    code: Code,
}

#[derive(Clone)]
enum Code {
    Host(Arc<ferrax_cpu::Executable>),
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "there are no devices but the processor"))]
    Device(Arc<dyn Runnable>),
}

impl fmt::Debug for Executable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executable({} on {})", self.name, self.device)
    }
}

impl Executable {
    pub(crate) fn new(program: &Program, device: &Device) -> Result<Executable> {
        for value in program.inputs() {
            if let Some(dim) = value.shape().iter().find(|dim| dim.as_const().is_none()) {
                return Err(unsupported!(
                    "'{}' cannot be compiled: its input {value} has the symbolic dimension '{dim}'; give sizes with \
                     with_sizes",
                    program.name()
                ));
            }
        }
        ferrax_cpu::protect_forks();
        Ok(Executable {
            name: program.name().into(),
            inputs: program.inputs().into(),
            code: match device {
                Device::Cpu => Code::Host(Arc::new(ferrax_cpu::compile(program.ir())?)),
                #[cfg(feature = "gpu")]
                Device::Gpu(gpu) => Code::Device(gpu.compile(program.ir())?),
            },
            device: device.clone(),
        })
    }

    /// What [`Executable::run`] takes, in order.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The outputs for these inputs, whose dtypes and shapes must be the program's. Where the device has memory of its own,
    /// inputs are copied there and outputs back: [`Executable::run_on_device`] leaves them where they are.
    ///
    /// Errors: other inputs than the program's; what the program's ops and the device fail of.
    pub fn run(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let inputs = inputs.iter().map(|array| self.device.put(array)).collect::<Result<Vec<_>>>()?;
        self.run_on_device(&inputs)?.iter().map(DeviceArray::get).collect()
    }

    /// The outputs for these inputs, which are on the executable's device, as are the outputs. A GPU may still
    /// compute them when this returns.
    ///
    /// Errors: those of [`Executable::run`]; inputs of another device.
    pub fn run_on_device(&self, inputs: &[DeviceArray]) -> Result<Vec<DeviceArray>> {
        if inputs.len() != self.inputs.len() {
            return Err(value_error!(
                "'{}' takes {} inputs, got {}",
                self.name,
                self.inputs.len(),
                inputs.len()
            ));
        }
        for (position, (array, value)) in inputs.iter().zip(&*self.inputs).enumerate() {
            let same = array.dtype == value.dtype()
                && array.sizes.len() == value.shape().len()
                && array.sizes.iter().zip(value.shape()).all(|(&have, want)| *want == have);
            if !same {
                return Err(value_error!(
                    "input {position} of '{}' is {value}, got {}",
                    self.name,
                    array.described()
                ));
            }
        }
        let elsewhere = |position: usize| {
            value_error!(
                "input {position} of '{}', which runs on {}, is on another device: get() and put() it",
                self.name,
                self.device
            )
        };
        match &self.code {
            Code::Host(executable) => {
                let tensor = |(position, array): (usize, &DeviceArray)| match &array.place {
                    Place::Host(tensor) => Ok(tensor.clone()),
                    Place::Device(_) => Err(elsewhere(position)),
                };
                let tensors = inputs.iter().enumerate().map(tensor).collect::<Result<Vec<_>>>()?;
                let output = |tensor: Tensor| DeviceArray {
                    dtype: tensor.dtype(),
                    sizes: tensor.sizes().into(),
                    place: Place::Host(tensor),
                };
                Ok(executable.run(&tensors)?.into_iter().map(output).collect())
            }
            Code::Device(runnable) => {
                let memory = |(position, array): (usize, &DeviceArray)| match &array.place {
                    Place::Device(memory) if self.holds(&**memory) => Ok(memory.clone()),
                    _ => Err(elsewhere(position)),
                };
                let memory = inputs.iter().enumerate().map(memory).collect::<Result<Vec<_>>>()?;
                let outputs = runnable.run(&memory)?.into_iter();
                let output = |output: ferrax_compile::backend::Output<Arc<dyn Memory>>| DeviceArray {
                    dtype: output.dtype,
                    sizes: output.sizes,
                    place: Place::Device(output.buffer),
                };
                Ok(outputs.map(output).collect())
            }
        }
    }

    /// Whether memory is that of the executable's device.
    fn holds(&self, memory: &dyn Memory) -> bool {
        match &self.device {
            Device::Cpu => memory.device() == ferrax_compile::DeviceId::HOST,
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => memory.device() == gpu.id(),
        }
    }
}
