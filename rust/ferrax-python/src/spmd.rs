//! How arrays are cut over the axes of a mesh, for the Python layer, which knows the meshes.

use ferrax_ir::Equation;
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
