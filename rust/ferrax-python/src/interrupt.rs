//! Ctrl-C during long runs: executables ask now and then whether to stop, and
//! end with `Error::Interrupted`, for which the handler's exception is raised.

use std::cell::RefCell;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

thread_local! {
    static PENDING: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs Python's signal handlers; whether one raised.
pub fn check() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            PENDING.with_borrow_mut(|pending| *pending = Some(error));
            true
        }
    })
}

/// The exception that stopped the last run of this thread.
pub fn take(message: String) -> PyErr {
    PENDING.with_borrow_mut(Option::take).unwrap_or_else(|| PyKeyboardInterrupt::new_err(message))
}
