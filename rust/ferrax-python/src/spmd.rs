//! How arrays are cut over the axes of a mesh, for the Python layer, which knows the meshes.

use std::sync::Arc;

use ferrax_ir::{Effect, Equation, Op, Program};
use ferrax_transform::spmd::{self, Spec, Stated};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::array::Array;
use crate::errors::IntoPyResult;
use crate::interrupt::stash;
use crate::jit::JitFunction;
use crate::once::intern;
use crate::program::PyProgram;
use crate::{params, primitive};

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

/// The program in which primitives that are defined in Python stand for ops over named axes, in sub-programs too.
/// `make(name, params, line)` gives the primitive, its parameters and the name of the one axis that it is over.
#[pyfunction]
pub fn replace_named(py: Python<'_>, program: &PyProgram, make: &Bound<'_, PyAny>) -> PyResult<PyProgram> {
    let mut known = FxHashMap::default();
    Ok(PyProgram::new(replaced(py, &program.program, make, &mut known)?))
}

fn replaced(
    py: Python<'_>,
    program: &Arc<Program>,
    make: &Bound<'_, PyAny>,
    known: &mut FxHashMap<*const Program, Arc<Program>>,
) -> PyResult<Arc<Program>> {
    if let Some(found) = known.get(&Arc::as_ptr(program)) {
        return Ok(found.clone());
    }
    let mut new = (**program).clone();
    for equation in &mut new.equations {
        if !equation.op.programs().is_empty() {
            equation.op = equation.op.map_programs(|inner| replaced(py, inner, make, known))?;
            continue;
        }
        if !equation.op.effects().iter().any(|effect| matches!(effect, Effect::NamedAxis(_))) {
            continue;
        }
        let params = PyDict::new(py);
        for (name, value) in equation.op.params() {
            params.set_item(name, params::to_python(py, &value)?)?;
        }
        let line = equation.source.line().map(|line| line.to_string());
        let made = make.call1((equation.op.name(), params, line))?;
        let (primitive, params, axis): (Bound<'_, PyAny>, Bound<'_, PyDict>, String) = made.extract()?;
        let inputs = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
        let outputs = equation.outputs.iter().map(|var| program.types[var.index()].clone()).collect();
        let effects = std::iter::once(Effect::NamedAxis(axis.as_str().into())).collect();
        equation.op = primitive::applied(&primitive, &params, inputs, outputs, effects)?;
    }
    new.effects = new.equations.iter().flat_map(|equation| equation.op.effects()).collect();
    let new = Arc::new(new);
    known.insert(Arc::as_ptr(program), new.clone());
    Ok(new)
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
    let inputs: Vec<Option<Spec>> = inputs.into_iter().map(|entries| entries.map(spec_of)).collect();
    let found = spmd::propagate(&program.program, &mesh, &inputs, &mut |equation| {
        ask(equation, &names, stated, None).map_err(stash)
    });
    Ok(found.py(py)?.into_iter().map(entries_of).collect())
}

fn entries_of(spec: Spec) -> Entries {
    spec.into_iter().map(|axes| axes.to_vec()).collect()
}

/// What an equation with one of these names says of its results; with what `body(params)` gives, if it is no value that is laid
/// out anew: the program of one device and how its operands are cut.
fn ask(
    equation: &Equation,
    names: &FxHashSet<String>,
    stated: &Bound<'_, PyAny>,
    body: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Stated>> {
    let Some(found) = primitive::of(&equation.op).filter(|_| names.contains(equation.op.name())) else {
        return Ok(None);
    };
    let params: &Bound<'_, PyDict> = found.params.bind(stated.py());
    let answer = stated.call1((equation.op.name(), params))?;
    let (results, closed, passes): (Vec<Option<Entries>>, bool, bool) = answer.extract()?;
    let results = results.into_iter().map(|entries| entries.map(spec_of)).collect();
    let body = match body.map(|body| body.call1((equation.op.name(), params))).transpose()? {
        Some(found) if !found.is_none() => {
            let (program, inputs): (PyRef<'_, PyProgram>, Vec<Entries>) = found.extract()?;
            Some((program.program.clone(), inputs.into_iter().map(spec_of).collect()))
        }
        _ => None,
    };
    Ok(Some(Stated { results, closed, passes, body }))
}

/// Line, name, axes by number, bytes that a device puts in, and for which op: of a collective.
type Exchange = (Option<String>, &'static str, Vec<u8>, usize, String);

/// A program of one device, values of its last inputs, how its results are cut, what devices exchange.
type Partitioned = (PyProgram, Vec<Py<Array>>, Vec<Entries>, Vec<Exchange>);

/// The program that each device of a mesh runs on its parts, the values of its last inputs, how its results are cut, and what
/// devices exchange. The axes of the mesh have these sizes and names; `stated` is as for `propagate`, `body` gives the programs of functions over meshes.
#[pyfunction]
#[pyo3(signature = (program, mesh, axes, inputs, outputs, names, stated, body))]
#[allow(clippy::too_many_arguments)] // The axes of a mesh, and what is asked, are two things each.
pub fn partition(
    py: Python<'_>,
    program: &PyProgram,
    mesh: Vec<usize>,
    axes: Vec<String>,
    inputs: Vec<Entries>,
    outputs: Vec<Option<Entries>>,
    names: FxHashSet<String>,
    stated: &Bound<'_, PyAny>,
    body: &Bound<'_, PyAny>,
) -> PyResult<Partitioned> {
    let axes: Vec<Arc<str>> = axes.iter().map(|name| name.as_str().into()).collect();
    let mesh = spmd::Mesh { sizes: &mesh, names: &axes };
    let inputs: Vec<Spec> = inputs.into_iter().map(spec_of).collect();
    let outputs: Vec<Option<Spec>> = outputs.into_iter().map(|entries| entries.map(spec_of)).collect();
    let stays = |op: &Op| match primitive::of(op) {
        Some(primitive) => Ok(names.contains(op.name()) || primitive.coupled()?.is_some()),
        None => Ok(false),
    };
    let found = spmd::partition(&program.program, &mesh, &inputs, &outputs, &stays, &mut |equation| {
        ask(equation, &names, stated, Some(body)).map_err(stash)
    });
    let spmd::Partitioned { program, constants, outputs, communication } = found.py(py)?;
    let constants = constants.into_iter().map(|tensor| Array::new_concrete(py, tensor, false));
    let exchange = |one: spmd::Communication| {
        let line = one.source.line().map(|line| line.to_string());
        (line, one.collective, one.axes.to_vec(), one.bytes, one.needed_by)
    };
    Ok((
        PyProgram::new(Arc::new(program)),
        constants.collect::<PyResult<_>>()?,
        outputs.into_iter().map(entries_of).collect(),
        communication.into_iter().map(exchange).collect(),
    ))
}

/// Calls the function of arrays of which other processes have parts, if that is why it failed.
#[cold]
pub fn over_processes<'py>(
    function: &Bound<'py, JitFunction>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    error: PyErr,
) -> PyResult<Py<PyAny>> {
    let py = function.py();
    if error.get_type(py).name()? != "OverProcesses" {
        return Err(error);
    }
    let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
    let module = py.import(intern!(py, "ferrax._src.callbacks.over_processes"))?;
    module.call_method1(intern!(py, "call_jitted"), (function, args, kwargs)).map(Bound::unbind)
}
