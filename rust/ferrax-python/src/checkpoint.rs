//! Checkpointed calls: policies as the native core sees them, and what a
//! linearised program keeps.
//!
//! A policy of the user's is a Python callable. It is asked while a
//! transformation runs, which holds the interpreter.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrax_ir::ops::{Checkpoint, Policy, PolicyHandle, Saveable};
use ferrax_ir::{Atom, Op, Program, Source, Type, View};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors::IntoPyResult;
use crate::interrupt::stash;
use crate::program::{PyProgram, operands, type_tuple};
use crate::{cache, params, trace};

/// What a checkpointed call keeps.
#[pyclass(frozen, module = "ferrax", name = "Policy")]
pub struct PyPolicy {
    handle: PolicyHandle,
    /// The same policy, if it asks Python.
    python: Option<Arc<PythonPolicy>>,
}

#[pymethods]
impl PyPolicy {
    /// The rule is shown while it is this object's alone: a program that has the policy keeps it.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.python {
            Some(policy) if Arc::strong_count(policy) == 2 => visit.call(&policy.rule),
            _ => Ok(()),
        }
    }
}

impl PyPolicy {
    fn native(policy: Saveable) -> PyPolicy {
        PyPolicy { handle: PolicyHandle::new(policy), python: None }
    }
}

#[derive(Debug)]
struct PythonPolicy {
    name: String,
    /// `(op's name, types of its inputs, its parameters) -> bool`.
    rule: Py<PyAny>,
}

impl PythonPolicy {
    fn ask(&self, py: Python<'_>, op: &Op, inputs: &[Type]) -> PyResult<bool> {
        let types = inputs.iter().map(|ty| type_tuple(py, ty)).collect::<PyResult<Vec<_>>>()?;
        let entries = PyDict::new(py);
        for (name, value) in op.params() {
            entries.set_item(name, params::to_python(py, &value)?)?;
        }
        self.rule.bind(py).call1((op.name(), types, entries))?.extract()
    }
}

impl Policy for PythonPolicy {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn saves(&self, op: &Op, inputs: &[Type]) -> ferrax_ir::Result<bool> {
        Python::attach(|py| self.ask(py, op, inputs)).map_err(stash)
    }
}

/// The native policy of this name; `names` are those that it lets through or holds back.
#[pyfunction]
#[pyo3(signature = (name, names = Vec::new()))]
pub fn builtin_policy(name: &str, names: Vec<String>) -> PyResult<PyPolicy> {
    let names: BTreeSet<Arc<str>> = names.into_iter().map(Arc::from).collect();
    let policy = match name {
        "everything" => Saveable::Everything,
        "nothing" => Saveable::Nothing,
        "dots" => Saveable::Dots,
        "dots_without_batch" => Saveable::DotsWithoutBatch,
        "names" => Saveable::Names(names),
        "other_names" => Saveable::OtherNames(names),
        other => return Err(PyValueError::new_err(format!("there is no policy '{other}'"))),
    };
    Ok(PyPolicy::native(policy))
}

/// Saves what either of two native policies saves.
#[pyfunction]
pub fn either_policy(first: &PyPolicy, second: &PyPolicy) -> PyPolicy {
    PyPolicy::native(Saveable::Either(first.handle.clone(), second.handle.clone()))
}

/// A policy that asks `rule`, see [`PythonPolicy`].
#[pyfunction]
pub fn python_policy(name: String, rule: Py<PyAny>) -> PyPolicy {
    let policy = Arc::new(PythonPolicy { name, rule });
    PyPolicy { handle: PolicyHandle(Some(policy.clone())), python: Some(policy) }
}

/// Applies a program as a checkpointed call: recorded where something traces, else run.
#[pyfunction]
pub fn checkpoint_call<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    policy: Option<&Bound<'py, PyPolicy>>,
    prevent_cse: bool,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let operands = operands(arguments)?;
    if trace::runs_at_once(&program.get().program.effects, &operands) {
        let cached = cache::shared(py, program)?;
        return PyList::new(py, cached.bind(py).get().run_as(py, &operands, program.get())?);
    }
    let op = Checkpoint {
        differentiated: false,
        jaxpr: program.get().program.clone(),
        policy: policy.map(|policy| policy.get().handle.clone()).unwrap_or_default(),
        prevent_cse,
    };
    PyList::new(py, trace::bind(py, op.into(), &operands)?)
}

/// Where a value of a program comes from.
enum Origin<'a> {
    Input(usize),
    Constant,
    Equation(&'a Op, Source),
}

/// The origin of an atom. Calls and checkpoints are looked into: what they give
/// comes from an equation of theirs or from an argument.
fn origin<'a>(program: &'a Program, atom: &Atom) -> Origin<'a> {
    let Atom::Var(var) = atom else { return Origin::Constant };
    if let Some(position) = program.inputs.iter().position(|input| input == var) {
        return Origin::Input(position);
    }
    let definition = program.equations.iter().find_map(|equation| {
        let position = equation.outputs.iter().position(|output| output == var)?;
        Some((equation, position))
    });
    let Some((equation, position)) = definition else { return Origin::Constant };
    let View::Checkpoint(op) = equation.op.view() else {
        return Origin::Equation(&equation.op, equation.source);
    };
    match op.jaxpr.outputs.get(position).map(|inner| origin(&op.jaxpr, inner)) {
        Some(Origin::Input(index)) => {
            equation.inputs.get(index).map_or(Origin::Constant, |argument| origin(program, argument))
        }
        Some(found) => found,
        None => Origin::Equation(&equation.op, equation.source),
    }
}

type Residual<'py> = (Bound<'py, PyTuple>, &'static str, Py<PyAny>, Option<String>);

/// What the derivative of a program, over the flagged inputs, keeps from its evaluation. Each as
/// `(type, kind, detail, line)`; kinds are 'argument' (detail: its number), 'constant', 'name'
/// (the name), 'jit' (the function's name) and 'op' (the op's name).
#[pyfunction]
pub fn saved_residuals<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    nonzero: Vec<bool>,
) -> PyResult<Vec<Residual<'py>>> {
    let linearized = ferrax_transform::linearize(&program.get().program, &nonzero).py(py)?;
    let primal = &linearized.primal;
    let first = primal.outputs.len() - linearized.residuals;
    let text = |text: &str| -> PyResult<Py<PyAny>> { Ok(text.into_pyobject(py)?.into_any().unbind()) };
    primal.outputs[first..]
        .iter()
        .map(|atom| {
            let (kind, detail, source) = match origin(primal, atom) {
                Origin::Input(number) => ("argument", number.into_pyobject(py)?.into_any().unbind(), None),
                Origin::Constant => ("constant", py.None(), None),
                Origin::Equation(Op::Name(op), source) => ("name", text(&op.name)?, source.line()),
                Origin::Equation(Op::Call(op), source) => ("jit", text(&op.name)?, source.line()),
                Origin::Equation(op, source) => ("op", text(op.name())?, source.line()),
            };
            let ty = type_tuple(py, &primal.type_of(atom))?;
            Ok((ty, kind, detail, source.map(|line| line.to_string())))
        })
        .collect()
}
