//! What Python asks of traced values: numbers, truth, arrays.
//!
//! Diff and value frames know values (`evaluate`). A staging frame does not, unless it records a function for one call and
//! somebody answers for it (`ferrax._src.parallel.eager`): then that is asked. Nothing but `asked` and `settled`
//! does so, so that what is recorded does not depend on it.

use std::sync::Arc;

use ferrax_ir::{Atom, Equation, Program};
use pyo3::prelude::*;
use rustc_hash::FxHashSet;

use super::{FrameKind, STACK, evaluate};
use crate::array::{Array, Data, TracerData};
use crate::program::PyProgram;

/// Gives a frame what is called with its tracers and returns their values, or None.
#[pyfunction]
pub fn set_frame_answer(id: u64, answer: Py<PyAny>) {
    let old = STACK.with_borrow_mut(|stack| {
        let frame = stack.iter_mut().rfind(|frame| frame.id == id)?;
        frame.answer.replace(answer)
    });
    drop(old);
}

/// What is recorded so far of what a tracer depends on, a program with that one output, and what it captured. `None` where
/// that does something besides computing it, and where the tracer's frame has ended.
#[pyfunction]
pub fn recorded_so_far(py: Python<'_>, value: &Bound<'_, Array>) -> Option<(PyProgram, Vec<Py<Array>>)> {
    let tracer = value.get().tracer()?;
    let (program, captured) = STACK.with_borrow(|stack| {
        let frame = stack.iter().find(|frame| frame.id == tracer.frame)?;
        let recorded = frame.builder.program();
        let mut seen = FxHashSet::default();
        let mut pending = vec![tracer.var];
        while let Some(var) = pending.pop() {
            let producer = frame.producers.get(var.index()).copied().unwrap_or(u32::MAX);
            if producer == u32::MAX || !seen.insert(producer) {
                continue;
            }
            let equation = recorded.equations.get(producer as usize)?;
            if equation.op.happens() {
                return None;
            }
            pending.extend(equation.inputs.iter().filter_map(Atom::as_var));
        }
        let mut needed: Vec<u32> = seen.into_iter().collect();
        needed.sort_unstable();
        let equations: Vec<Equation> =
            needed.iter().map(|&index| recorded.equations[index as usize].clone()).collect();
        let program = Program {
            name: recorded.name.clone(),
            types: recorded.types.clone(),
            inputs: recorded.inputs.clone(),
            constants: recorded.constants.clone(),
            effects: equations.iter().flat_map(|equation| equation.op.effects()).collect(),
            equations,
            outputs: vec![Atom::Var(tracer.var)],
            donated: Vec::new(),
        };
        let captured: Vec<Py<Array>> = frame.captured.iter().map(|array| array.clone_ref(py)).collect();
        Some((program, captured))
    })?;
    Some((PyProgram::new(Arc::new(program)), captured))
}

/// The value of a tracer of a staging frame that somebody answers for.
fn answered<'py>(tracer: &TracerData, array: &Bound<'py, Array>) -> PyResult<Option<Bound<'py, Array>>> {
    let py = array.py();
    let answer = STACK.with_borrow(|stack| {
        let frame = stack.iter().find(|frame| frame.id == tracer.frame)?;
        frame.answer.as_ref().map(|answer| answer.clone_ref(py))
    });
    let Some(answer) = answer else { return Ok(None) };
    let value: Option<Bound<'py, Array>> = answer.bind(py).call1((array,))?.extract()?;
    Ok(value)
}

/// The concrete array that `array` is or stands for, where Python asks for it.
pub fn asked<'py>(array: &Bound<'py, Array>) -> PyResult<Option<Bound<'py, Array>>> {
    let mut current = array.clone();
    loop {
        let tracer = match &current.get().data {
            Data::Concrete(_) => return Ok(Some(current)),
            Data::Tracer(tracer) => tracer,
        };
        let value = match answered(tracer, &current)? {
            Some(value) => Some(value),
            None => evaluate(array.py(), tracer, &current)?,
        };
        match value {
            Some(value) => current = value,
            None => return Ok(None),
        }
    }
}

/// As `asked`, but under diff frames only in a rule of a custom derivative that no other derivative goes through.
pub fn settled<'py>(array: &Bound<'py, Array>) -> PyResult<Option<Bound<'py, Array>>> {
    let mut current = array.clone();
    let mut derivatives = None;
    loop {
        let tracer = match &current.get().data {
            Data::Concrete(_) => return Ok(Some(current)),
            Data::Tracer(tracer) => tracer,
        };
        let kind = STACK
            .with_borrow(|stack| stack.iter().find(|frame| frame.id == tracer.frame).map(|frame| frame.kind));
        derivatives = match (kind, derivatives) {
            (Some(FrameKind::Value), known) => Some(known.unwrap_or(0)),
            (Some(FrameKind::Diff), Some(0)) => Some(1),
            (Some(FrameKind::Stage), known) => known,
            _ => return Ok(None),
        };
        let value = match kind {
            Some(FrameKind::Stage) => answered(tracer, &current)?,
            _ => evaluate(array.py(), tracer, &current)?,
        };
        match value {
            Some(value) => current = value,
            None => return Ok(None),
        }
    }
}
