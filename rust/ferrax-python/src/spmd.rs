//! How arrays are cut over the axes of a mesh, for the Python layer, which knows the meshes.

use std::sync::Arc;

use ferrax_ir::{Equation, Program};
use ferrax_transform::spmd::{self, Spec, Stated};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashSet;

use crate::errors::IntoPyResult;
use crate::interrupt::stash;
use crate::primitive;
use crate::program::PyProgram;

/// For each axis the numbers of the mesh's axes.
type Entries = Vec<Vec<u8>>;

fn spec_of(entries: Entries) -> Spec {
    entries.into_iter().map(|axes| axes.into_iter().collect()).collect()
}

/// Name and parameters of the equations with one of these names, of primitives that are defined in Python; those of a
/// sub-program once, however often it is called.
#[pyfunction]
pub fn equations_named<'py>(
    py: Python<'py>,
    program: &PyProgram,
    names: FxHashSet<String>,
) -> Vec<(String, Bound<'py, PyDict>)> {
    let (mut found, mut seen) = (Vec::new(), FxHashSet::default());
    collect(py, &program.program, &names, &mut seen, &mut found);
    found
}

fn collect<'py>(
    py: Python<'py>,
    program: &Arc<Program>,
    names: &FxHashSet<String>,
    seen: &mut FxHashSet<*const Program>,
    found: &mut Vec<(String, Bound<'py, PyDict>)>,
) {
    if !seen.insert(Arc::as_ptr(program)) {
        return;
    }
    for equation in &program.equations {
        if let Some(primitive) = primitive::of(&equation.op).filter(|_| names.contains(equation.op.name())) {
            found.push((equation.op.name().to_string(), primitive.params.bind(py).clone()));
        }
        for inner in equation.op.programs() {
            collect(py, inner, names, seen, found);
        }
    }
}

/// How the outputs of a program are cut. `stated(name, params)` is asked of primitives that are defined in Python and have one of
/// these names: for each result how it is cut, or None, and whether that holds to the letter; and whether the operands
/// are cut as the results.
#[pyfunction]
pub fn propagate(
    py: Python<'_>,
    program: &PyProgram,
    mesh: Vec<usize>,
    inputs: Vec<Option<Entries>>,
    names: FxHashSet<String>,
    stated: &Bound<'_, PyAny>,
) -> PyResult<Vec<Entries>> {
    let ask = |equation: &Equation| -> PyResult<Option<Stated>> {
        let Some(found) = primitive::of(&equation.op).filter(|_| names.contains(equation.op.name())) else {
            return Ok(None);
        };
        let params: &Bound<'_, PyDict> = found.params.bind(py);
        let answer = stated.call1((equation.op.name(), params))?;
        let (results, closed, passes): (Vec<Option<Entries>>, bool, bool) = answer.extract()?;
        let results = results.into_iter().map(|entries| entries.map(spec_of)).collect();
        Ok(Some(Stated { results, closed, passes }))
    };
    let inputs: Vec<Option<Spec>> = inputs.into_iter().map(|entries| entries.map(spec_of)).collect();
    let found =
        spmd::propagate(&program.program, &mesh, &inputs, &mut |equation| ask(equation).map_err(stash));
    let entries = |spec: Spec| spec.into_iter().map(|axes| axes.to_vec()).collect();
    Ok(found.py(py)?.into_iter().map(entries).collect())
}
