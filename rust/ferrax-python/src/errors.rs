//! Rust errors as Python exceptions.
//!
//! Each variant of the IR's error has one class. Classes with a constructor of
//! their own (tracer errors) live in `ferrax._src.errors` and are made from
//! facts, so that their texts are in one place.

use ferrax_ir::Error;
use pyo3::exceptions::{
    PyIndexError, PyMemoryError, PyNameError, PyNotImplementedError, PyOverflowError, PyRuntimeError,
    PyTypeError, PyValueError,
};
use pyo3::prelude::*;

use crate::once::{Once, intern};
use crate::{interrupt, source};

/// The Python exception for an IR error; names the user's line where one is known.
pub fn to_py(py: Python<'_>, error: Error) -> PyErr {
    let text = |message: String| with_line(py, message);
    match error {
        Error::Type(message) => PyTypeError::new_err(text(message)),
        Error::Value(message) | Error::Parse(message) => PyValueError::new_err(text(message)),
        Error::Index(message) => PyIndexError::new_err(text(message)),
        Error::Overflow(message) => PyOverflowError::new_err(text(message)),
        Error::Name(message) => PyNameError::new_err(text(message)),
        Error::Unsupported(message) => PyNotImplementedError::new_err(text(message)),
        Error::Interrupted(message) => interrupt::take(message),
        Error::Memory(message) => PyMemoryError::new_err(message + &largest(py)),
        Error::Device(message) => raise(py, "JaxRuntimeError", (text(message + &largest(py)),)),
        internal @ Error::Internal(_) => PyRuntimeError::new_err(text(internal.to_string())),
    }
}

/// The message with the user's line, where one is known and it does not end with it.
pub fn with_line(py: Python<'_>, message: String) -> String {
    match source::current(py).line() {
        Some(line) if !message.ends_with(&format!("at {line}")) => format!("{message}\n  at {line}"),
        _ => message,
    }
}

/// What to add to messages on memory: the largest arrays on devices other than the host, if there are some.
fn largest(py: Python<'_>) -> String {
    let told = || -> PyResult<String> {
        let module = py.import(intern!(py, "ferrax._src.core.live"))?;
        module.call_method0(intern!(py, "largest"))?.extract()
    };
    // A message without them is better than another error.
    told().unwrap_or_default()
}

/// Adds `.py(py)?` to IR results.
pub trait IntoPyResult<T> {
    fn py(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> IntoPyResult<T> for ferrax_ir::Result<T> {
    fn py(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_py(py, error))
    }
}

/// An exception of `ferrax._src.errors`, made by calling the class.
pub fn raise<'py, A>(py: Python<'py>, class: &str, arguments: A) -> PyErr
where
    A: pyo3::call::PyCallArgs<'py>,
{
    let made = module(py).and_then(|module| module.getattr(class)?.call1(arguments));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The module with the classes, which is imported once.
pub fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: Once<Py<PyModule>> = Once::new();
    let module = MODULE.get_or_try_init(py, || py.import("ferrax._src.base.errors").map(Bound::unbind))?;
    Ok(module.bind(py))
}
