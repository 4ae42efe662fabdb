//! Running the program of a jitted function on concrete operands.

use ferrax_compile::DeviceId;
use pyo3::prelude::*;
use smallvec::SmallVec;

use super::donation::{check_donated, give_up, take_donated};
use super::{Entry, JitFunction};
use crate::array::Array;
use crate::convert::Operand;
use crate::errors::IntoPyResult;
use crate::{checks, devices, eager, key_reuse, nans, placement};

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

    /// Runs an entry where its operands, or the default device, want it; its results, which are placed.
    #[cold]
    pub(super) fn run_placed<'py>(
        &self,
        py: Python<'py>,
        entry: &Entry,
        operands: &[Operand<'py>],
    ) -> PyResult<Vec<Py<Array>>> {
        let program = entry.program.get();
        let elsewhere = devices::elsewhere(operands);
        let moved: SmallVec<[Operand<'py>; 4]>;
        let arguments = entry.key.leaves.len();
        let captured = arguments..arguments + entry.captured.len();
        let donated = entry.donated.as_deref().unwrap_or_default();
        let follows = |number: usize, x: &Operand<'_>| {
            let free = captured.contains(&number) || program.unused().contains(&number);
            free && placement::committed(x).is_some()
                && placement::typed(x) == 0
                && donated.get(number) != Some(&true)
        };
        let operands = if operands.iter().enumerate().any(|(number, x)| follows(number, x)) {
            // What functions capture, and what nothing is made of, follows the arguments.
            let follow = |(number, x): (usize, &Operand<'py>)| {
                if follows(number, x) { devices::uncommitted(py, x) } else { Ok(x.clone()) }
            };
            moved = operands.iter().enumerate().map(follow).collect::<PyResult<_>>()?;
            &moved
        } else {
            operands
        };
        placement::check_devices(py, operands)?;
        let target = program.target(py, operands)?;
        let results = if target == DeviceId::HOST {
            let array = |(tensor, &weak)| Array::new_concrete(py, tensor, weak);
            self.execute(py, entry, operands)?
                .into_iter()
                .zip(&entry.weak)
                .map(array)
                .collect::<PyResult<Vec<_>>>()?
        } else {
            if checks::watched() {
                checks::may_run(&self.name)?;
                checks::arguments(py, operands)?;
            }
            check_donated(operands, donated)?;
            let results = devices::run(py, program, target, operands, entry.weak.iter().copied())?;
            give_up(operands, donated);
            results
        };
        if target != DeviceId::HOST || elsewhere || placement::any(operands) || program.says_places() {
            placement::place_results(py, program, operands, &results)?;
        }
        Ok(results)
    }

    /// Runs an entry whose use of keys is followed.
    #[cold]
    pub(super) fn run_followed<'py>(
        &self,
        py: Python<'py>,
        entry: &Entry,
        operands: &[Operand<'py>],
    ) -> PyResult<Py<PyAny>> {
        let program = entry.program.get();
        let followed = key_reuse::follow(py, &program.program, "jit-compiled function", operands)?;
        let arrays = self.run_placed(py, entry, operands)?;
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
