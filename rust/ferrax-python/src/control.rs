//! Bodies of loops and branches: traced with what they capture as leading
//! inputs, and trimmed where they hand inputs on unchanged.
//!
//! A captured value is known by its object: the same tracer or array is one
//! input, whichever branch captures it.

use std::sync::Arc;

use ferrax_ir::{ArrayType, Atom, Program, Var};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;

use crate::array::Array;
use crate::errors::IntoPyResult;
use crate::once::Once;
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
    let (frame, tracers) = trace::push(py, FrameKind::Stage, name, types, names, values, None)?;
    function
        .call1((PyList::new(py, tracers)?,))
        .and_then(|outputs| program::operands(&outputs))
        .and_then(|outputs| trace::finish_with_refs(py, frame, outputs))
        .inspect_err(|_| trace::abandon(frame))
}

/// A traced function of a loop or a conditional, which Python may keep for calls to come.
#[pyclass(frozen, module = "ferrax", name = "TracedBody")]
pub struct TracedBody {
    traced: Traced,
    /// The program whose first inputs are what is captured.
    loop_program: Once<Py<PyProgram>>,
}

#[pymethods]
impl TracedBody {
    /// Whether it is good for other calls: it touches no mutable array and captures nothing that is
    /// being traced.
    #[getter]
    fn lasts(&self) -> bool {
        self.traced.refs.is_none() && self.traced.captured.iter().all(|array| array.get().tracer().is_none())
    }

    /// `(program, captured, refs)` of a loop: the captured values are the program's first inputs;
    /// `refs` as in `trace_program`.
    fn of_loop(&self, py: Python<'_>) -> PyResult<LoopParts> {
        let make = || {
            let mut program = self.traced.program.clone();
            program.inputs.rotate_right(self.traced.captured.len());
            Py::new(py, PyProgram::new(Arc::new(program)))
        };
        let program = self.loop_program.get_or_try_init(py, make)?.clone_ref(py);
        let captured = self.traced.captured.iter().map(|array| array.clone_ref(py)).collect();
        Ok((program, captured, self.traced.refs.as_ref().map(|refs| refs.clone_ref(py))))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traced.refs.iter().try_for_each(|refs| visit.call(refs))
    }
}

/// A program, what it captured, and what its function did to mutable arrays.
type LoopParts = (Py<PyProgram>, Vec<Py<Array>>, Option<Py<PyAny>>);

/// Traces `function`, which takes a list of arrays and returns a sequence of arrays. `values` are what
/// the arguments stand for when it is first run, for messages.
#[pyfunction]
#[pyo3(signature = (function, name, types, names = None, values = None))]
pub fn trace_body<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    name: &str,
    types: Vec<Bound<'py, PyAny>>,
    names: Option<Py<PyAny>>,
    values: Option<Vec<Option<Py<Array>>>>,
) -> PyResult<TracedBody> {
    let types: Vec<ArrayType> = types.iter().map(program::array_type).collect::<PyResult<_>>()?;
    let traced = trace(py, function, name, &types, names, values.as_deref())?;
    Ok(TracedBody { traced, loop_program: Once::new() })
}

/// What each branch did to mutable arrays, and where in the union the values are that it captured.
type BranchRefs = Vec<(Option<Py<PyAny>>, Vec<usize>)>;

/// Functions of the same arguments as branches: `(programs, captured, refs)`. What any of them
/// captures is a leading input of all. `refs` has for each function what it did to mutable arrays,
/// and the positions in `captured` of what it captured itself.
#[pyfunction]
pub fn unite_branches(
    py: Python<'_>,
    branches: Vec<Py<TracedBody>>,
) -> (Vec<PyProgram>, Vec<Py<Array>>, BranchRefs) {
    let traced: Vec<&Traced> = branches.iter().map(|branch| &branch.get().traced).collect();
    let mut union: Vec<Py<Array>> = Vec::new();
    // A value that a mutable array holds is an input of its own, whoever else captures it.
    let mut places: FxHashMap<(usize, usize), usize> = FxHashMap::default();
    let mut own_places: Vec<Vec<usize>> = Vec::with_capacity(traced.len());
    for branch in &traced {
        let mut keys = vec![0; branch.captured.len()];
        for &(position, key) in &branch.ref_inputs {
            keys[position] = key;
        }
        let place = |(array, key): (&Py<Array>, usize)| {
            *places.entry((array.as_ptr() as usize, key)).or_insert_with(|| {
                union.push(array.clone_ref(py));
                union.len() - 1
            })
        };
        own_places.push(branch.captured.iter().zip(keys).map(place).collect());
    }
    let mut refs: BranchRefs = Vec::with_capacity(traced.len());
    let programs = traced
        .into_iter()
        .zip(own_places)
        .map(|(branch, places)| {
            let mut program = branch.program.clone();
            let mut inputs: Vec<Option<Var>> = vec![None; union.len()];
            let own = program.inputs.split_off(program.inputs.len() - branch.captured.len());
            for (&place, var) in places.iter().zip(own) {
                inputs[place] = Some(var);
            }
            refs.push((branch.refs.as_ref().map(|refs| refs.clone_ref(py)), places));
            let mut all: Vec<Var> = Vec::with_capacity(union.len() + program.inputs.len());
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
    (programs, union, refs)
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
        let rearranged = Program { inputs, outputs, donated: Vec::new(), ..program.clone() };
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
