//! Symbolic dimensions between Python and the IR.
//!
//! In Python a dimension that depends on variables is an object of `ferrax._src.dims`, which belongs to a scope; the IR knows
//! its text alone. What is traced has one scope, that of the dimensions it was given: they tell it on their way in, and
//! what comes out again is made by it.

use std::cell::RefCell;

use ferrax_ir::{Dim, Shape};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::drops::{OfThread, Referred};
use crate::errors::IntoPyResult;

thread_local! {
    static SCOPE: RefCell<OfThread<Option<Py<PyAny>>>> = const { RefCell::new(OfThread::new(None)) };
}

/// The scope of the dimensions that were met last.
pub fn scope(py: Python<'_>) -> Option<Py<PyAny>> {
    SCOPE.with_borrow(|scope| scope.as_ref().map(|scope| scope.clone_ref(py)))
}

/// The same for a program, which keeps it.
pub fn referred() -> Option<Referred<PyAny>> {
    let symbolic = SCOPE.with_borrow(|scope| scope.is_some());
    if symbolic { Python::attach(scope).map(Referred::from) } else { None }
}

/// While it lives, another scope may be met; then the old one is there again.
pub struct Within(Option<Py<PyAny>>);

pub fn within(py: Python<'_>) -> Within {
    Within(scope(py))
}

/// The same, in this scope.
pub fn within_scope(scope: Option<Py<PyAny>>) -> Within {
    Within(SCOPE.with_borrow_mut(|known| std::mem::replace(&mut **known, scope)))
}

impl Drop for Within {
    fn drop(&mut self) {
        let old = self.0.take();
        let left = SCOPE.with_borrow_mut(|scope| std::mem::replace(&mut **scope, old));
        drop(left);
    }
}

/// A symbolic dimension of Python's; `None` for other objects.
pub fn symbolic(value: &Bound<'_, PyAny>) -> PyResult<Option<Dim>> {
    let py = value.py();
    let Ok(method) = value.getattr(intern!(py, "_native")) else { return Ok(None) };
    let (text, scope): (String, Py<PyAny>) = method.call0()?.extract()?;
    let old = SCOPE.with_borrow_mut(|known| known.replace(scope));
    drop(old);
    Dim::parse(&text).py(py).map(Some)
}

/// A size that may be symbolic.
pub fn dim(value: &Bound<'_, PyAny>) -> PyResult<Dim> {
    if value.is_exact_instance_of::<PyInt>() {
        return value.extract().map(Dim::Const);
    }
    match symbolic(value)? {
        Some(dim) => Ok(dim),
        None => value.extract().map(Dim::Const),
    }
}

/// The sizes of a tuple or list.
pub fn shape(value: &Bound<'_, PyAny>) -> PyResult<Shape> {
    value
        .try_iter()
        .map_err(|_| PyTypeError::new_err(format!("a shape is a tuple of sizes, got {value}")))?
        .map(|size| dim(&size?))
        .collect()
}

/// A size as Python has it: an int, or a dimension of this scope, or without one its text.
pub fn to_python(py: Python<'_>, dim: &Dim, scope: Option<&Py<PyAny>>) -> PyResult<Py<PyAny>> {
    match (dim, scope) {
        (Dim::Const(size), _) => Ok(size.into_pyobject(py)?.into_any().unbind()),
        (Dim::Symbolic(_), Some(scope)) => {
            scope.call_method1(py, intern!(py, "_of_native"), (dim.to_string(),))
        }
        (Dim::Symbolic(_), None) => Ok(dim.to_string().into_pyobject(py)?.into_any().unbind()),
    }
}

/// The tuple of sizes.
pub fn shape_tuple<'py>(
    py: Python<'py>,
    shape: &[Dim],
    scope: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let sizes = shape.iter().map(|dim| to_python(py, dim, scope)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, sizes)
}
