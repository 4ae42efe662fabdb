//! Programs made ready to run on the CPU.

use std::sync::RwLock;

use ferrax_ir::{Program, Result, Tensor, interpret};

/// A compiled program. Runs may overlap.
#[derive(Debug)]
pub struct Executable {
    program: Program,
}

/// Compiles a program whose dimensions are all constant.
pub fn compile(program: &Program) -> Result<Executable> {
    Ok(Executable { program: program.clone() })
}

impl Executable {
    /// The outputs for these inputs, whose dtypes and sizes must be the program's.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        interpret::run(&self.program, inputs)
    }

    /// As `run`; the memory of inputs marked in `donate` may become outputs.
    pub fn run_donating(&self, inputs: Vec<Tensor>, _donate: &[bool]) -> Result<Vec<Tensor>> {
        self.run(&inputs)
    }
}

static INTERRUPT: RwLock<Option<fn() -> bool>> = RwLock::new(None);

/// Installs a function that is asked between steps whether to stop.
pub fn set_interrupt_check(check: fn() -> bool) {
    *INTERRUPT.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(check);
}
