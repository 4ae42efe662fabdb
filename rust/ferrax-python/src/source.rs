//! The user's line: the innermost Python frame outside this package.

use std::cell::RefCell;
use std::sync::OnceLock;

use ferrax_ir::{Source, SourceLine};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::FxHashMap;

/// What is known of a code object.
enum Code {
    /// Part of this package: look further out.
    Library,
    User {
        lines: FxHashMap<i32, Source>,
        file: String,
        function: String,
    },
}

#[derive(Default)]
struct Cache {
    /// By address; the code object is kept alive so that the address stays its own.
    codes: FxHashMap<usize, (Py<PyAny>, Code)>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// Code objects remembered per thread before the cache starts over.
const CACHE_LIMIT: usize = 4096;

static PACKAGE: OnceLock<String> = OnceLock::new();

/// Tells which directory is the package's own.
pub fn set_package(directory: String) {
    // The package directory never changes within a process.
    let _ = PACKAGE.set(directory);
}

/// The source of what happens now; unknown if no user code is on the stack.
pub fn current(py: Python<'_>) -> Source {
    find(py).unwrap_or(Source::UNKNOWN)
}

fn find(py: Python<'_>) -> PyResult<Source> {
    // SAFETY: the interpreter is attached; the result is a borrowed reference or null.
    let mut frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    while let Some(current) = frame {
        // SAFETY: `current` is a frame object; a new reference is returned.
        let code = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyFrame_GetCode(current.as_ptr().cast()).cast())?
        };
        // SAFETY: `current` is a frame object.
        let line = unsafe { ffi::PyFrame_GetLineNumber(current.as_ptr().cast()) };
        if let Some(source) = lookup(&code, line)? {
            return Ok(source);
        }
        let back = current.getattr(intern!(py, "f_back"))?;
        frame = (!back.is_none()).then_some(back);
    }
    Ok(Source::UNKNOWN)
}

/// The source of a line of this code; `None` if it is the library's.
fn lookup(code: &Bound<'_, PyAny>, line: i32) -> PyResult<Option<Source>> {
    let address = code.as_ptr() as usize;
    let known = CACHE.with_borrow_mut(|cache| match cache.codes.get_mut(&address) {
        Some((_, Code::Library)) => Some(None),
        Some((_, Code::User { lines, file, function })) => {
            Some(Some(*lines.entry(line).or_insert_with(|| {
                Source::new(SourceLine {
                    file: file.as_str().into(),
                    line: line.max(0).cast_unsigned(),
                    function: function.as_str().into(),
                })
            })))
        }
        None => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let py = code.py();
    let file: String =
        code.getattr(intern!(py, "co_filename"))?.cast::<PyString>()?.to_string_lossy().into_owned();
    let function: String =
        code.getattr(intern!(py, "co_name"))?.cast::<PyString>()?.to_string_lossy().into_owned();
    let library = PACKAGE.get().is_some_and(|package| file.starts_with(package.as_str()))
        || file.starts_with("<frozen");
    let entry =
        if library { Code::Library } else { Code::User { lines: FxHashMap::default(), file, function } };
    CACHE.with_borrow_mut(|cache| {
        if cache.codes.len() >= CACHE_LIMIT {
            cache.codes.clear();
        }
        cache.codes.insert(address, (code.clone().unbind(), entry));
    });
    lookup(code, line)
}
