//! Ctrl-C during long runs: executables ask between steps.

use std::cell::RefCell;

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
pub fn take() -> Option<PyErr> {
    PENDING.with_borrow_mut(Option::take)
}
