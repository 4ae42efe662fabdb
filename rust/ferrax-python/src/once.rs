//! What is made once, by threads that are attached to an interpreter.
//!
//! pyo3's own cell leaves the interpreter before it marks itself as being made, and waits for it again while it is so
//! marked: a thread that forks then leaves a child in which nobody ever makes it, and whoever asks waits for ever. These
//! are filled by a thread that stays attached, and forks come from threads that are (`ferrax_cpu::protect_forks`). What is
//! made may run Python code, and so be made by two threads, of which the first to end counts.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// A place for it.
pub struct Once<T>(OnceLock<T>);

impl<T> Once<T> {
    pub const fn new() -> Once<T> {
        Once(OnceLock::new())
    }

    pub fn get(&self, _: Python<'_>) -> Option<&T> {
        self.0.get()
    }

    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.get(py) {
            Some(known) => known,
            None => self.keep(py, make()),
        }
    }

    pub fn get_or_try_init<E>(&self, py: Python<'_>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get(py) {
            Some(known) => Ok(known),
            None => Ok(self.keep(py, make()?)),
        }
    }

    /// The value, or another that was there first.
    pub fn keep(&self, _: Python<'_>, value: T) -> &T {
        self.0.get_or_init(|| value)
    }
}

/// A string of the interpreter's table.
pub struct Interned(&'static str, Once<Py<PyString>>);

impl Interned {
    pub const fn new(text: &'static str) -> Interned {
        Interned(text, Once::new())
    }

    pub fn get<'py>(&self, py: Python<'py>) -> &Bound<'py, PyString> {
        self.1.get_or_init(py, || PyString::intern(py, self.0).unbind()).bind(py)
    }
}

/// As pyo3's: the string of this text, which is looked for once.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static INTERNED: $crate::once::Interned = $crate::once::Interned::new($text);
        INTERNED.get($py)
    }};
}
pub(crate) use intern;
