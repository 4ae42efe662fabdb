//! Running the program of a jitted function on concrete operands.

use pyo3::prelude::*;

use super::donation::take_donated;
use super::{Entry, JitFunction};
use crate::array::Array;
use crate::convert::Operand;
use crate::errors::IntoPyResult;
use crate::{checks, eager, key_reuse, nans, placement};

impl JitFunction {
    pub(super) fn execute(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
    ) -> PyResult<ferrax_cpu::Outputs> {
        if checks::watched() {
            return self.run_checked(py, entry, operands);
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
                eager::release_gil(py, program.work(), || executable.run_apart(&tensors)).py(py)
            }
        }
    }

    /// Runs an entry whose use of keys is followed.
    #[cold]
    pub(super) fn run_followed(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
    ) -> PyResult<Py<PyAny>> {
        let program = entry.program.get();
        let followed = key_reuse::follow(py, &program.program, "jit-compiled function", operands)?;
        let arrays: Vec<Py<Array>> = self
            .execute(py, entry, operands)?
            .into_iter()
            .zip(&entry.weak)
            .map(|(tensor, &weak)| Array::new_concrete(py, tensor, weak))
            .collect::<PyResult<_>>()?;
        if placement::any(operands) || program.says_places() {
            placement::place_results(py, program, operands, &arrays)?;
        }
        followed.done(&arrays)?;
        entry.out_tree.unflatten(py, arrays.into_iter().map(Py::into_any))
    }

    /// Runs an entry where runs are looked at: its arguments and the values of its results. Nothing is
    /// donated before those are known: the inputs may be needed for a second run.
    #[cold]
    fn run_checked(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
    ) -> PyResult<ferrax_cpu::Outputs> {
        checks::may_run(&self.name)?;
        checks::arguments(py, operands)?;
        let program = entry.program.get();
        let executable = program.executable(py)?;
        let tensors = match &entry.donated {
            Some(donated) => take_donated(py, operands, donated)?,
            None => eager::tensors(py, operands)?.into_vec(),
        };
        let results = eager::release_gil(py, program.work(), || executable.run_apart(&tensors)).py(py)?;
        let what = || format!("the jitted function {}", self.place(py));
        let source = |number: usize| {
            let names = entry.key.names(py, self.function.bind(py)).unwrap_or_default();
            match names.get(number) {
                Some(name) => format!("The argument {name} of {}", self.name),
                None => format!("An array that {} captures", self.name),
            }
        };
        nans::check_program(py, &program.program, &tensors, &results, &what, &source)?;
        Ok(results)
    }
}
