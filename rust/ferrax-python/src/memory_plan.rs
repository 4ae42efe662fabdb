//! `Program.memory_plan`: a memory plan as dicts and lists, which Python draws (`_src/transforms/memory_plan.py`).

use std::sync::Arc;

use ferrax_compile::Place;
use ferrax_compile::memory_plan::{BufferLife, MemoryPlan, Operation, StepMemory, Value};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::IntoPyResult;
use crate::program::PyProgram;

#[pymethods]
impl PyProgram {
    /// Each buffer's place and life, each step's operations, copies and updates in place.
    fn memory_plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let program = self.program.clone();
        let plan = py.detach(|| ferrax_cpu::memory_plan(&program)).py(py)?;
        shown(py, &plan)
    }
}

macro_rules! dict {
    ($py:expr, { $($name:ident: $value:expr),* $(,)? }) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($name), $value)?;)*
        dict
    }};
}

fn shown<'py>(py: Python<'py>, plan: &MemoryPlan) -> PyResult<Bound<'py, PyDict>> {
    let runs = plan.runs.iter().map(|run| (run.first, run.last, run.rows, run.own_bytes));
    let returns = plan.returns.iter().map(|output| (output.buffer, output.copied));
    Ok(dict!(py, {
        name: &*plan.name,
        arena: plan.arena,
        peak: plan.peak,
        peak_step: plan.peak_step,
        steps: list(py, &plan.steps, step)?,
        buffers: list(py, &plan.buffers, buffer)?,
        runs: PyList::new(py, runs.collect::<Vec<_>>())?,
        returns: PyList::new(py, returns.collect::<Vec<_>>())?,
    }))
}

fn list<'py, T>(
    py: Python<'py>,
    items: &[T],
    show: impl Fn(Python<'py>, &T) -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, items.iter().map(|item| show(py, item)).collect::<PyResult<Vec<_>>>()?)
}

fn step<'py>(py: Python<'py>, step: &StepMemory) -> PyResult<Bound<'py, PyDict>> {
    let inner = |py, plan: &Arc<MemoryPlan>| shown(py, plan);
    Ok(dict!(py, {
        is_kernel: step.is_kernel,
        operations: list(py, &step.operations, operation)?,
        reads: &step.reads,
        writes: &step.writes,
        in_place: &step.in_place,
        copied: step.copied,
        run: step.run,
        live: step.live,
        text: &step.text,
        inner: list(py, &step.inner, inner)?,
    }))
}

fn operation<'py>(py: Python<'py>, operation: &Operation) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, {
        name: &operation.name,
        line: &operation.line,
        derivative_of: operation.derivative_of.as_deref(),
    }))
}

fn buffer<'py>(py: Python<'py>, buffer: &BufferLife) -> PyResult<Bound<'py, PyDict>> {
    let (place, at) = match buffer.place {
        Place::Input(number) => ("argument", number),
        Place::Constant(number) => ("constant", number),
        Place::Arena(offset) => ("arena", offset),
        Place::Fresh(number) => ("result", number),
        Place::Rows(offset) => ("rows", offset),
    };
    Ok(dict!(py, {
        id: buffer.id,
        bytes: buffer.bytes,
        place: place,
        at: at,
        first: buffer.first,
        last: buffer.last,
        values: list(py, &buffer.values, value)?,
        reuses: &buffer.reuses,
        donation: buffer.donation,
    }))
}

fn value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, { type: &value.ty, of: operation(py, &value.of)?, first: value.first }))
}
