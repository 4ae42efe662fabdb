//! Devices, and programs compiled for them.

use std::fmt;
use std::sync::Arc;

use ferrax_ir::{Result, Tensor, unsupported, value_error};

use crate::{Array, Program, Value};

/// Where programs run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Device {
    /// The processor, with all its cores.
    #[default]
    Cpu,
}

impl Device {
    pub fn cpu() -> Device {
        Device::Cpu
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu:0"),
        }
    }
}

/// A program compiled for a device. May be run from several threads at once.
#[derive(Clone, Debug)]
pub struct Executable {
    name: Arc<str>,
    inputs: Arc<[Value]>,
    executable: Arc<ferrax_cpu::Executable>,
}

impl Executable {
    pub(crate) fn new(program: &Program, device: &Device) -> Result<Executable> {
        let Device::Cpu = device;
        for value in program.inputs() {
            if let Some(dim) = value.shape().iter().find(|dim| dim.as_const().is_none()) {
                return Err(unsupported!(
                    "'{}' cannot be compiled: its input {value} has the symbolic dimension '{dim}'",
                    program.name()
                ));
            }
        }
        Ok(Executable {
            name: program.name().into(),
            inputs: program.inputs().into(),
            executable: Arc::new(ferrax_cpu::compile(program.ir())?),
        })
    }

    /// What [`Executable::run`] takes, in order.
    pub fn inputs(&self) -> &[Value] {
        &self.inputs
    }

    /// The outputs for these inputs, whose dtypes and shapes must be the program's.
    pub fn run(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        if inputs.len() != self.inputs.len() {
            return Err(value_error!(
                "'{}' takes {} inputs, got {}",
                self.name,
                self.inputs.len(),
                inputs.len()
            ));
        }
        for (position, (array, value)) in inputs.iter().zip(&*self.inputs).enumerate() {
            let same = array.dtype() == value.dtype()
                && array.rank() == value.shape().len()
                && array.shape().iter().zip(value.shape()).all(|(&have, want)| *want == have);
            if !same {
                return Err(value_error!(
                    "input {position} of '{}' is {value}, got {}",
                    self.name,
                    array.tensor().array_type()
                ));
            }
        }
        let tensors: Vec<Tensor> = inputs.iter().map(|array| array.tensor().clone()).collect();
        Ok(self.executable.run(&tensors)?.into_iter().map(Array::from).collect())
    }
}
