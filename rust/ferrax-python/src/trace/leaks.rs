//! `check_tracer_leaks`: tracers that outlive their frame are an error at its end.
//!
//! While the check is on, each tracer is known by a weak reference. Off, this costs a look at a flag
//! where tracers are made.

use std::cell::RefCell;

use ferrax_ir::Program;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;

use super::origin::{argument_names, name_of};
use crate::array::Array;
use crate::checks;
use crate::drops::OfThread;
use crate::once::intern;

/// Weak references to the tracers of a frame.
pub type Watched = Vec<Py<PyAny>>;

thread_local! {
    /// By frame.
    static MADE: RefCell<OfThread<FxHashMap<u64, Watched>>> = RefCell::default();
}

pub fn watch(py: Python<'_>, frame: u64, tracer: &Py<Array>) -> PyResult<()> {
    if checks::leaks() {
        let reference = py.import(intern!(py, "weakref"))?.call_method1(intern!(py, "ref"), (tracer,))?;
        MADE.with_borrow_mut(|made| made.entry(frame).or_default().push(reference.unbind()));
    }
    Ok(())
}

/// The tracers that a frame made; nobody watches them any more.
pub fn take(frame: u64) -> Watched {
    MADE.with_borrow_mut(|made| if made.is_empty() { None } else { made.remove(&frame) }).unwrap_or_default()
}

fn alive<'py>(py: Python<'py>, watched: &Watched) -> PyResult<Vec<Bound<'py, Array>>> {
    let mut found = Vec::new();
    for reference in watched {
        let tracer = reference.bind(py).call0()?;
        if !tracer.is_none() {
            found.push(tracer.cast_into::<Array>()?);
        }
    }
    Ok(found)
}

/// Fails if tracers of a frame that has ended with this program are still referred to.
pub fn check(py: Python<'_>, watched: Watched, program: &Program, names: Option<&Py<PyAny>>) -> PyResult<()> {
    if watched.is_empty() || alive(py, &watched)?.is_empty() {
        return Ok(());
    }
    // Those in reference cycles are no leaks.
    py.import(intern!(py, "gc"))?.call_method0(intern!(py, "collect"))?;
    let leaked = alive(py, &watched)?;
    if leaked.is_empty() {
        return Ok(());
    }
    let names = argument_names(py, names)?;
    let described: Vec<String> =
        leaked.iter().map(|tracer| description(tracer.get(), program, &names)).collect();
    let error = py
        .import(intern!(py, "ferrax._src.tracing.leaks"))?
        .getattr(intern!(py, "error"))?
        .call1((&*program.name, PyList::new(py, leaked)?, described))?;
    Err(PyErr::from_value(error))
}

fn description(tracer: &Array, program: &Program, names: &[String]) -> String {
    let ty = tracer.array_type();
    let Some(tracer) = tracer.tracer() else { return ty.to_string() };
    if let Some(index) = program.inputs.iter().position(|&input| input == tracer.var) {
        return format!("{ty}, the argument {}", name_of(names, index));
    }
    let made = program.equations.iter().find(|equation| equation.outputs.contains(&tracer.var));
    let op = made.map(|equation| format!(", computed by '{}'", equation.op.name())).unwrap_or_default();
    let line = tracer.source.line().map(|line| format!(" at {line}")).unwrap_or_default();
    format!("{ty}{op}{line}")
}
