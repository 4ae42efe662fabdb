//! Custom derivatives: the user's rules as the native core sees them.
//!
//! A rule is a Python callable that traces the user's function on request. It is
//! asked while a transformation runs, which holds the interpreter.

use std::sync::Arc;

use ferrax_ir::ops::{CustomJvp, CustomVjp, FlaggedProgram, JvpHandle, JvpRule, VjpHandle, VjpRule};
use ferrax_ir::{Error, Op, Program};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::drops::Referred;
use crate::errors::raise;
use crate::interrupt::stash;
use crate::program::{PyProgram, operands};
use crate::trace;

type Asked<'py> = (Bound<'py, PyProgram>, Vec<bool>);

fn ask<A>(rule: &Py<PyAny>, arguments: A) -> ferrax_ir::Result<FlaggedProgram>
where
    A: for<'py> pyo3::call::PyCallArgs<'py>,
{
    Python::attach(|py| {
        let (program, flags): Asked<'_> = rule.bind(py).call1(arguments)?.extract()?;
        Ok((program.get().program.clone(), flags.into()))
    })
    .map_err(stash)
}

fn closed_over(kind: &str, name: &str) -> Error {
    let text = format!(
        "Encountered an unexpected tracer: the {kind} function '{name}' closes over a value that is being \
         differentiated, and its rule gives no derivative with respect to that value. Pass the value as an argument of \
         the function; closure_convert makes arguments of what a function closes over."
    );
    Python::attach(|py| stash(raise(py, "UnexpectedTracerError", (text,))))
}

#[derive(Debug)]
struct PythonJvp {
    name: String,
    /// `nonzero -> (program, flags)`, as [`JvpRule::program`].
    rule: Referred<PyAny>,
}

impl JvpRule for PythonJvp {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn closed_over(&self) -> Error {
        closed_over("custom_jvp", &self.name)
    }

    fn program(&self, nonzero: &[bool]) -> ferrax_ir::Result<FlaggedProgram> {
        ask(&self.rule, (nonzero.to_vec(),))
    }
}

#[derive(Debug)]
struct PythonVjp {
    name: String,
    /// `perturbed -> (program, [])`, as [`VjpRule::forward`].
    forward: Referred<PyAny>,
    /// `perturbed, given -> (program, flags)`, as [`VjpRule::backward`].
    backward: Referred<PyAny>,
    optimize_remat: bool,
}

impl VjpRule for PythonVjp {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn closed_over(&self) -> Error {
        closed_over("custom_vjp", &self.name)
    }

    fn forward(&self, perturbed: &[bool]) -> ferrax_ir::Result<Arc<Program>> {
        ask(&self.forward, (perturbed.to_vec(),)).map(|(program, _)| program)
    }

    fn backward(&self, perturbed: &[bool], given: &[bool]) -> ferrax_ir::Result<FlaggedProgram> {
        ask(&self.backward, (perturbed.to_vec(), given.to_vec()))
    }

    fn optimize_remat(&self) -> bool {
        self.optimize_remat
    }
}

fn bind<'py>(py: Python<'py>, op: Op, arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, trace::bind(py, op, &operands(arguments)?)?)
}

/// The kind of the frame that records an op on these arguments, and which of them are its tracers;
/// None if the op runs at once.
#[pyfunction]
pub fn recording_frame(arguments: &Bound<'_, PyAny>) -> PyResult<Option<(&'static str, Vec<bool>)>> {
    Ok(trace::recording(&operands(arguments)?)?.map(|(kind, own)| (kind.name(), own)))
}

/// Records a call of `program` whose forward derivative `rule` gives.
#[pyfunction]
pub fn custom_jvp_call<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    rule: Py<PyAny>,
    name: String,
    num_consts: usize,
    symbolic_zeros: bool,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let op = CustomJvp {
        call_jaxpr: program.get().program.clone(),
        jvp_jaxpr_fun: JvpHandle(Arc::new(PythonJvp { name, rule: rule.into() })),
        num_consts,
        symbolic_zeros,
    };
    bind(py, op.into(), arguments)
}

/// Records a call of `program` whose reverse derivative `forward` and `backward` give.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "called once, by the Python custom_vjp")]
pub fn custom_vjp_call<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    forward: Py<PyAny>,
    backward: Py<PyAny>,
    name: String,
    num_consts: usize,
    symbolic_zeros: bool,
    optimize_remat: bool,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let op = CustomVjp {
        call_jaxpr: program.get().program.clone(),
        num_consts,
        rule: VjpHandle(Arc::new(PythonVjp {
            name,
            forward: forward.into(),
            backward: backward.into(),
            optimize_remat,
        })),
        symbolic_zeros,
    };
    bind(py, op.into(), arguments)
}
