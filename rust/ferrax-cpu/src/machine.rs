//! The machine that programs are compiled for: from where on which way to compute pays on it.

use std::sync::OnceLock;

use ferrax_compile::{Setting, backend};
use ferrax_ir::Result;

use crate::code;
use crate::tuning::Tuning;

/// Host memory, the vector VM and library kernels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cpu {
    tuning: &'static Tuning,
}

impl Cpu {
    /// With these thresholds.
    pub fn with(tuning: &'static Tuning) -> Cpu {
        Cpu { tuning }
    }

    /// With those that the environment chose when it was first asked.
    pub fn of_process() -> Result<Cpu> {
        static CHOSEN: OnceLock<Result<Setting>> = OnceLock::new();
        let setting = CHOSEN.get_or_init(Setting::from_environment).clone()?;
        code::wanted()?;
        Ok(Cpu::with(Tuning::of(setting)))
    }

    /// From where on what pays.
    pub fn tuning(&self) -> &'static Tuning {
        self.tuning
    }
}

/// The sub-programs of a program that is compiled for the CPU.
pub type Nested<'a> = backend::Nested<'a, Cpu>;
