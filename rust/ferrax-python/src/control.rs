//! Bodies of loops and branches: traced with what they capture as leading
//! inputs, and trimmed where they hand inputs on unchanged.
//!
//! A captured value is known by its object: the same tracer or array is one
//! input, whichever branch captures it.

use std::sync::Arc;

use ferrax_ir::{ArrayType, Atom, Program, Var};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;

use crate::array::Array;
use crate::errors::IntoPyResult;
use crate::program::{self, PyProgram};
use crate::trace::{self, FrameKind, Traced};

fn trace(
    py: Python<'_>,
    function: &Bound<'_, PyAny>,
    name: &str,
    types: &[ArrayType],
    names: Option<Py<PyAny>>,
    values: Option<&[Option<Py<Array>>]>,
) -> PyResult<Traced> {
    let (frame, tracers) = trace::push(py, FrameKind::Stage, name, types, names, values)?;
    function
        .call1((PyList::new(py, tracers)?,))
        .and_then(|outputs| program::operands(&outputs))
        .and_then(|outputs| trace::finish(py, frame, outputs))
        .inspect_err(|_| trace::abandon(frame))
}

/// Traces `function`, which takes a list of arrays and returns a sequence of
/// arrays: `(program, captured)`. The captured values are the program's first inputs. `values` are
/// what the arguments stand for when the body is first run, for messages.
#[pyfunction]
#[pyo3(signature = (function, name, types, names = None, values = None))]
pub fn trace_body<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    name: &str,
    types: Vec<Bound<'py, PyAny>>,
    names: Option<Py<PyAny>>,
    values: Option<Vec<Option<Py<Array>>>>,
) -> PyResult<(PyProgram, Vec<Py<Array>>)> {
    let types: Vec<ArrayType> = types.iter().map(program::array_type).collect::<PyResult<_>>()?;
    let mut traced = trace(py, function, name, &types, names, values.as_deref())?;
    let captured = traced.captured.len();
    traced.program.inputs.rotate_right(captured);
    Ok((PyProgram::new(Arc::new(traced.program)), traced.captured))
}

/// Traces functions of the same arguments: `(programs, captured)`. What any of
/// them captures is a leading input of all.
#[pyfunction]
#[pyo3(signature = (functions, labels, types, names, values = None))]
pub fn trace_branches<'py>(
    py: Python<'py>,
    functions: Vec<Bound<'py, PyAny>>,
    labels: Vec<String>,
    types: Vec<Bound<'py, PyAny>>,
    names: Vec<Py<PyAny>>,
    values: Option<Vec<Option<Py<Array>>>>,
) -> PyResult<(Vec<PyProgram>, Vec<Py<Array>>)> {
    if functions.len() != labels.len() || functions.len() != names.len() {
        return Err(PyValueError::new_err(
            "trace_branches: one label and one list of names for each function",
        ));
    }
    let types: Vec<ArrayType> = types.iter().map(program::array_type).collect::<PyResult<_>>()?;
    let mut traced = Vec::with_capacity(functions.len());
    for ((function, label), names) in functions.iter().zip(&labels).zip(names) {
        traced.push(trace(py, function, label, &types, Some(names), values.as_deref())?);
    }
    let mut union: Vec<Py<Array>> = Vec::new();
    let mut places: FxHashMap<usize, usize> = FxHashMap::default();
    for array in traced.iter().flat_map(|branch| &branch.captured) {
        places.entry(array.as_ptr() as usize).or_insert_with(|| {
            union.push(array.clone_ref(py));
            union.len() - 1
        });
    }
    let programs = traced
        .into_iter()
        .map(|branch| {
            let mut program = branch.program;
            let mut inputs: Vec<Option<Var>> = vec![None; union.len()];
            let own = program.inputs.split_off(types.len());
            for (array, var) in branch.captured.iter().zip(own) {
                inputs[places[&(array.as_ptr() as usize)]] = Some(var);
            }
            let mut all: Vec<Var> = Vec::with_capacity(union.len() + types.len());
            for (var, array) in inputs.into_iter().zip(&union) {
                all.push(var.unwrap_or_else(|| {
                    program.types.push(array.get().array_type().into());
                    Var(program.types.len() as u32 - 1)
                }));
            }
            all.append(&mut program.inputs);
            program.inputs = all;
            PyProgram::new(Arc::new(program))
        })
        .collect();
    Ok((programs, union))
}

#[pymethods]
impl PyProgram {
    /// For each output the position of the input that it is, or `None`.
    fn forwarded(&self) -> Vec<Option<usize>> {
        let positions: FxHashMap<Var, usize> =
            self.program.inputs.iter().enumerate().map(|(position, &var)| (var, position)).collect();
        self.program
            .outputs
            .iter()
            .map(|atom| atom.as_var().and_then(|var| positions.get(&var).copied()))
            .collect()
    }

    /// The program with its inputs in this order and with these outputs alone. Inputs that are
    /// left out must not be used.
    fn rearranged(&self, py: Python<'_>, inputs: Vec<usize>, outputs: Vec<usize>) -> PyResult<PyProgram> {
        let program = &*self.program;
        let missing = || PyIndexError::new_err("rearranged: no such input or output");
        let inputs = inputs
            .into_iter()
            .map(|position| program.inputs.get(position).copied().ok_or_else(missing))
            .collect::<PyResult<_>>()?;
        let outputs = outputs
            .into_iter()
            .map(|position| program.outputs.get(position).copied().ok_or_else(missing))
            .collect::<PyResult<Vec<Atom>>>()?;
        let rearranged = Program { inputs, outputs, ..program.clone() };
        ferrax_ir::verify::debug_verify(&rearranged, "rearranging inputs").py(py)?;
        Ok(PyProgram::new(Arc::new(rearranged)))
    }

    /// The program without dead equations, and which inputs it uses.
    fn trimmed(&self, py: Python<'_>) -> PyResult<(PyProgram, Vec<bool>)> {
        let all = vec![true; self.program.outputs.len()];
        let (_, used) = ferrax_transform::dce_with(&self.program, &all).py(py)?;
        let program = ferrax_transform::dce(&self.program).py(py)?;
        Ok((PyProgram::new(Arc::new(program)), used))
    }
}
