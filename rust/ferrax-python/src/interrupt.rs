//! Exceptions that arise below the native core: Ctrl-C during long runs (executables ask now and
//! then whether to stop) and what the user's rules raise. They come up as `Error::Interrupted`, for
//! which the exception itself is raised.

use std::cell::RefCell;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::drops::OfThread;

thread_local! {
    static PENDING: RefCell<OfThread<Option<PyErr>>> = const { RefCell::new(OfThread::new(None)) };
}

/// Runs Python's signal handlers; whether one raised.
pub fn check() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            keep(error);
            true
        }
    })
}

fn keep(error: PyErr) {
    let old = PENDING.with_borrow_mut(|pending| pending.replace(error));
    // Dropped outside the borrow: what an exception refers to may have destructors.
    drop(old);
}

/// Keeps an exception that Python code raised below the native core; the error
/// to hand up in its place, which becomes the exception again at the binding.
pub fn stash(error: PyErr) -> ferrax_ir::Error {
    let text = error.to_string();
    keep(error);
    ferrax_ir::Error::Interrupted(text)
}

/// The exception that stopped the last run of this thread.
pub fn take(message: String) -> PyErr {
    PENDING.with_borrow_mut(|pending| pending.take()).unwrap_or_else(|| PyKeyboardInterrupt::new_err(message))
}
