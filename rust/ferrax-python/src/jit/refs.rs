//! Mutable arrays in jitted functions: see `ferrax._src.state`.
//!
//! A function's program gets the values of the mutable arrays that it closes over
//! as its last inputs, and gives those that it writes as its last outputs. Each
//! call reads them before and writes them afterwards.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use smallvec::SmallVec;

use super::{Entry, JitFunction};
use crate::array::Array;
use crate::convert::Operand;
use crate::once::{Once, intern};
use crate::trace::{self, Traced};

pub(super) type Refs<'py> = Vec<(usize, Bound<'py, PyAny>)>;

pub(super) static REF: Once<Py<PyType>> = Once::new();

/// Tells this module the class of mutable arrays.
#[pyfunction]
pub fn register_ref(class: Bound<'_, PyType>) {
    // The first class stays; there is one.
    REF.keep(class.py(), class.clone().unbind());
}

pub(super) fn is_ref(leaf: &Bound<'_, PyAny>) -> bool {
    REF.get(leaf.py()).is_some_and(|class| leaf.get_type().is(class))
}

/// Makes the values of mutable arrays the program's last inputs: they are read anew at each call,
/// so they are no captured values.
pub(super) fn values_last(py: Python<'_>, traced: &mut Traced, arguments: usize) {
    if traced.ref_inputs.is_empty() {
        return;
    }
    let is_ref = |position: &usize| traced.ref_inputs.iter().any(|(index, _)| index == position);
    let (last, kept): (Vec<usize>, Vec<usize>) = (0..traced.captured.len()).partition(is_ref);
    let own = traced.program.inputs.split_off(arguments);
    traced.program.inputs.extend(kept.iter().chain(&last).map(|&position| own[position]));
    traced.captured = kept.iter().map(|&position| traced.captured[position].clone_ref(py)).collect();
}

/// The positional and the keyword arguments of a call that are not static.
pub(super) type Given<'a, 'py> = (&'a Bound<'py, PyTuple>, &'a Option<Bound<'py, PyDict>>);

impl JitFunction {
    /// No mutable array may be passed twice: a program's inputs do not alias.
    pub(super) fn check_distinct(
        &self,
        py: Python<'_>,
        refs: &Refs<'_>,
        given: Given<'_, '_>,
    ) -> PyResult<()> {
        for (position, (index, leaf)) in refs.iter().enumerate() {
            let Some((first, _)) = refs[..position].iter().find(|(_, other)| other.is(leaf)) else {
                continue;
            };
            let name = |index: usize| {
                self.leaf_name(py, index, given).unwrap_or_else(|| format!("argument leaf {index}"))
            };
            let message = py.import(intern!(py, "ferrax._src.state"))?.call_method1(
                intern!(py, "passed_twice"),
                (leaf, self.function.bind(py), "jit", name(*first), name(*index)),
            )?;
            return Err(PyValueError::new_err(message.extract::<String>()?));
        }
        Ok(())
    }

    /// Puts mutable arrays of the trace in the places of those that were passed.
    pub(super) fn place_refs(
        &self,
        py: Python<'_>,
        refs: &Refs<'_>,
        given: Given<'_, '_>,
        leaves: &mut [Py<PyAny>],
    ) -> PyResult<()> {
        if refs.is_empty() {
            return Ok(());
        }
        let make = py.import(intern!(py, "ferrax._src.state"))?.getattr(intern!(py, "argument"))?;
        for (index, actual) in refs {
            let name = self.leaf_name(py, *index, given);
            leaves[*index] = make.call1((&leaves[*index], index, name, actual))?.unbind();
        }
        Ok(())
    }

    pub(super) fn returned_ref(
        &self,
        py: Python<'_>,
        leaf: &Bound<'_, PyAny>,
        result: &Bound<'_, PyAny>,
    ) -> PyErr {
        let message = || -> PyResult<String> {
            py.import(intern!(py, "ferrax._src.state"))?
                .call_method1(intern!(py, "returned"), (leaf, self.function.bind(py), "jit", result))?
                .extract()
        };
        message().map_or_else(|error| error, PyValueError::new_err)
    }

    /// A call that reads or writes mutable arrays: reads them before and writes them afterwards.
    pub(super) fn run_with_refs(
        &self,
        py: Python<'_>,
        entry: &Entry,
        done: &Bound<'_, PyAny>,
        operands: &[Operand<'_>],
        refs: &Refs<'_>,
    ) -> PyResult<Py<PyAny>> {
        let arguments = PyDict::new(py);
        for (index, leaf) in refs {
            arguments.set_item(index, leaf)?;
        }
        let read = done.call_method1(intern!(py, "read"), (&arguments, self.function.bind(py)))?;
        let mut all: SmallVec<[Operand<'_>; 4]> = operands.into();
        all.extend(crate::program::operands(&read)?);
        let program = entry.program.get();
        let mut results: Vec<Py<Array>> = if trace::runs_at_once(&program.program.effects, &all) {
            self.run_placed(py, entry, &all)?
        } else {
            self.record(py, program, &all)?.into_iter().collect()
        };
        let values = results.split_off(entry.out_tree.num_leaves());
        done.call_method1(intern!(py, "write"), (values, arguments))?;
        entry.out_tree.unflatten(py, results.into_iter().map(Py::into_any))
    }
}
