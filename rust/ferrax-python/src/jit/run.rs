//! Running the program of a jitted function on concrete operands.

use pyo3::prelude::*;

use super::donation::take_donated;
use super::{Entry, JitFunction};
use crate::convert::Operand;
use crate::errors::IntoPyResult;
use crate::{checks, eager, nans};

/// The names of the arguments' leaves, for messages.
pub type Names<'a> = &'a dyn Fn() -> PyResult<Vec<String>>;

impl JitFunction {
    pub(super) fn execute(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
        names: Names<'_>,
    ) -> PyResult<ferrax_cpu::Outputs> {
        if checks::values().is_some() {
            return self.run_checked(py, entry, operands, names);
        }
        let program = entry.program.get();
        let executable = program.executable(py)?;
        match &entry.donated {
            Some(donated) if donated.contains(&true) => {
                let tensors = take_donated(py, operands, donated)?;
                let mut flags = donated.clone();
                flags.resize(tensors.len(), false);
                eager::release_gil(py, program.work(), || executable.run_donating(tensors, &flags)).py(py)
            }
            _ => {
                let tensors = eager::tensors(py, operands)?;
                eager::release_gil(py, program.work(), || executable.run(&tensors)).py(py)
            }
        }
    }

    /// Runs an entry whose results must not have certain values. Nothing is donated before that is
    /// known: the inputs may be needed for a second run.
    #[cold]
    fn run_checked(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
        names: Names<'_>,
    ) -> PyResult<ferrax_cpu::Outputs> {
        let program = entry.program.get();
        let executable = program.executable(py)?;
        let tensors = match &entry.donated {
            Some(donated) => take_donated(py, operands, donated)?,
            None => eager::tensors(py, operands)?.into_vec(),
        };
        let results = eager::release_gil(py, program.work(), || executable.run(&tensors)).py(py)?;
        let what = || format!("the jitted function {}", self.place(py));
        nans::check_program(py, &program.program, &tensors, &results, &what, &|number| match names()
            .ok()
            .and_then(|names| names.get(number).cloned())
        {
            Some(name) => format!("The argument {name} of {}", self.name),
            None => format!("An array that {} captures", self.name),
        })?;
        Ok(results)
    }
}
