//! Errors that native calls hand to the user's code, with the frames of the package taken out of their
//! tracebacks (`ferrax._src.base.traceback_util`). Nothing happens where nothing failed.

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTraceback;

use crate::once::Once;

static FILTER: Once<Py<PyAny>> = Once::new();

/// Adds `.filtered(py)` to what the user's code is given.
pub trait Filtered: Sized {
    fn filtered(self, py: Python<'_>) -> Self;
}

impl<T> Filtered for PyResult<T> {
    #[inline]
    fn filtered(self, py: Python<'_>) -> Self {
        self.map_err(|error| filter(py, error))
    }
}

#[cold]
fn filter(py: Python<'_>, error: PyErr) -> PyErr {
    let Some(filter) = FILTER.get(py) else { return error };
    if error.traceback(py).is_none() || !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let value = error.into_value(py);
    match filter.call1(py, (&value,)) {
        Ok(_) => PyErr::from_value(value.into_bound(py).into_any()),
        Err(error) => error,
    }
}

/// Says what is called with each error, to change its traceback. The first function stays.
#[pyfunction]
pub fn set_error_filter(py: Python<'_>, filter: Py<PyAny>) {
    FILTER.keep(py, filter);
}

/// Sets the traceback with which `raise` raises the exception that is being handled once more. Before Python
/// 3.11 it is not the one that the exception itself has.
#[pyfunction]
pub fn set_handled_traceback(error: Bound<'_, PyException>, traceback: Option<Bound<'_, PyTraceback>>) {
    let class = error.get_type().into_ptr();
    let traceback = traceback.map_or(std::ptr::null_mut(), Bound::into_ptr);
    // SAFETY: the function takes over one reference to each of three objects, of which a traceback may be absent; the
    // class is the exception's, and the interpreter is attached.
    unsafe { ffi::PyErr_SetExcInfo(class, error.into_ptr(), traceback) }
}
