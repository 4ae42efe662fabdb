//! The user's line: the innermost Python frame outside this package.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, PoisonError, RwLock};

use ferrax_ir::{Source, SourceLine};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::drops::{OfThread, drop_waiting};
use crate::once::intern;

/// What is known of a code object.
enum Code {
    /// Part of this package: look further out.
    Library,
    User {
        /// By line and scope.
        lines: FxHashMap<(i32, Option<usize>), Source>,
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
    static CACHE: RefCell<OfThread<Cache>> = RefCell::default();
}

/// Code objects remembered per thread before the cache starts over.
const CACHE_LIMIT: usize = 4096;

/// Beginnings of the paths of files whose code is not the user's: the package's own directory, and
/// those that libraries add.
static EXCLUDED: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Adds the beginning of paths of files whose code is not the user's.
pub fn exclude(path: String) {
    EXCLUDED.write().unwrap_or_else(PoisonError::into_inner).push(path);
    let old = CACHE.with_borrow_mut(|cache| std::mem::take(&mut cache.codes));
    // Dropped outside the borrow: code may be looked at by weak references.
    drop(old);
}

/// Scopes by number, and numbers by the names of scopes.
struct Scopes {
    names: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, usize>,
}

static SCOPES: RwLock<Scopes> =
    RwLock::new(Scopes { names: Vec::new(), numbers: FxHashMap::with_hasher(FxBuildHasher) });

thread_local! {
    /// The number of the scope that is being traced; none for the outermost.
    static SCOPE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The scope that is being traced, to set it again.
pub fn scope() -> Option<usize> {
    SCOPE.get()
}

/// Sets the scope that is being traced; returns the one before.
pub fn set_scope(scope: Option<usize>) -> Option<usize> {
    SCOPE.replace(scope)
}

/// The number of the scope of these names.
pub fn scope_number(names: &str) -> Option<usize> {
    if names.is_empty() {
        return None;
    }
    let mut scopes = SCOPES.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(&number) = scopes.numbers.get(names) {
        return Some(number);
    }
    let (number, names) = (scopes.names.len(), Arc::<str>::from(names));
    scopes.names.push(names.clone());
    scopes.numbers.insert(names, number);
    Some(number)
}

/// The names of a scope.
pub fn scope_names(scope: Option<usize>) -> Arc<str> {
    let scopes = SCOPES.read().unwrap_or_else(PoisonError::into_inner);
    scope.and_then(|number| scopes.names.get(number).cloned()).unwrap_or_else(|| "".into())
}

/// The source of what happens now; unknown if no user code is on the stack.
pub fn current(py: Python<'_>) -> Source {
    find(py).unwrap_or(Source::UNKNOWN)
}

fn find(py: Python<'_>) -> PyResult<Source> {
    // SAFETY: the interpreter is attached; the result is a borrowed reference or null.
    let mut frame = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    while let Some(current) = frame {
        // SAFETY: `current` is a frame object: the interpreter's own, or the `f_back` of one. A new
        // reference is returned.
        let code = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyFrame_GetCode(current.as_ptr().cast()).cast())?
        };
        // SAFETY: `current` is a frame object, as for its code.
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
            let scope = scope();
            Some(Some(*lines.entry((line, scope)).or_insert_with(|| {
                Source::new(SourceLine {
                    file: file.as_str().into(),
                    line: line.max(0).cast_unsigned(),
                    function: function.as_str().into(),
                    scope: scope_names(scope),
                })
            })))
        }
        None => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let py = code.py();
    drop_waiting(py);
    let file: String =
        code.getattr(intern!(py, "co_filename"))?.cast::<PyString>()?.to_string_lossy().into_owned();
    let function: String =
        code.getattr(intern!(py, "co_name"))?.cast::<PyString>()?.to_string_lossy().into_owned();
    let excluded = EXCLUDED.read().unwrap_or_else(PoisonError::into_inner);
    let library = excluded.iter().any(|path| file.starts_with(path.as_str())) || file.starts_with("<frozen");
    let entry =
        if library { Code::Library } else { Code::User { lines: FxHashMap::default(), file, function } };
    drop(excluded);
    let old = CACHE.with_borrow_mut(|cache| {
        let full = cache.codes.len() >= CACHE_LIMIT;
        let old = if full { std::mem::take(&mut cache.codes) } else { FxHashMap::default() };
        (old, cache.codes.insert(address, (code.clone().unbind(), entry)))
    });
    drop(old);
    lookup(code, line)
}
