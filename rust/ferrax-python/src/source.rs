//! The user's line: the innermost Python frame outside this package, and the named scope it is in.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

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
        /// By line and scope.
        lines: FxHashMap<(i32, u32), Source>,
        file: String,
        function: String,
    },
}

#[derive(Default)]
struct Cache {
    /// By address; the code object is kept alive so that the address stays its own.
    codes: FxHashMap<usize, (Py<PyAny>, Code)>,
}

/// Names that the user gives to parts of a program, by number; 0 is none.
#[derive(Default)]
struct Scopes {
    current: u32,
    /// Of the scopes from 1 on: all names from the outermost on.
    paths: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u32>,
}

impl Scopes {
    fn path(&self, scope: u32) -> Arc<str> {
        let index = (scope as usize).checked_sub(1);
        index.and_then(|index| self.paths.get(index)).cloned().unwrap_or_else(|| "".into())
    }

    fn enter(&mut self, name: &str) -> u32 {
        let outer = self.path(self.current);
        let path: Arc<str> = if outer.is_empty() { name.into() } else { format!("{outer}/{name}").into() };
        let next = u32::try_from(self.paths.len() + 1).unwrap_or(0);
        let number = *self.numbers.entry(path.clone()).or_insert(next);
        if number == next && next != 0 {
            self.paths.push(path);
        }
        std::mem::replace(&mut self.current, number)
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
    static SCOPES: RefCell<Scopes> = RefCell::default();
}

/// Enters a named scope within the current one; gives the one to go back to.
#[pyfunction]
pub fn enter_scope(name: &str) -> u32 {
    SCOPES.with_borrow_mut(|scopes| scopes.enter(name))
}

/// The scope that is entered.
pub fn current_scope() -> u32 {
    SCOPES.with_borrow(|scopes| scopes.current)
}

/// Makes this scope the current one; gives the one that was.
#[pyfunction]
pub fn set_scope(scope: u32) -> u32 {
    SCOPES.with_borrow_mut(|scopes| std::mem::replace(&mut scopes.current, scope))
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
    let scope = current_scope();
    let known = CACHE.with_borrow_mut(|cache| match cache.codes.get_mut(&address) {
        Some((_, Code::Library)) => Some(None),
        Some((_, Code::User { lines, file, function })) => {
            Some(Some(*lines.entry((line, scope)).or_insert_with(|| {
                Source::new(SourceLine {
                    file: file.as_str().into(),
                    line: line.max(0).cast_unsigned(),
                    function: function.as_str().into(),
                    scope: SCOPES.with_borrow(|scopes| scopes.path(scope)),
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
