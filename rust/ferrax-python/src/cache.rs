//! Programs that eager transformations make, by content: `grad(f)(x)` called
//! twice makes two equal programs, and the second runs the first's executable.

use std::cell::RefCell;
use std::hash::BuildHasher;

use pyo3::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::program::PyProgram;

/// Programs remembered per thread before the cache starts over.
const LIMIT: usize = 1024;

thread_local! {
    static PROGRAMS: RefCell<FxHashMap<u64, Py<PyProgram>>> = RefCell::default();
}

/// The known program equal to this one; itself if there is none.
pub fn shared(py: Python<'_>, program: &Bound<'_, PyProgram>) -> PyResult<Py<PyProgram>> {
    let hash = FxBuildHasher.hash_one(&program.get().program);
    PROGRAMS.with_borrow_mut(|programs| {
        if let Some(known) = programs.get(&hash)
            && known.get().program == program.get().program
        {
            return Ok(known.clone_ref(py));
        }
        if programs.len() >= LIMIT {
            programs.clear();
        }
        programs.insert(hash, program.clone().unbind());
        Ok(program.clone().unbind())
    })
}

/// Forgets all programs of this thread.
#[pyfunction]
pub fn clear_program_cache() {
    let old = PROGRAMS.with_borrow_mut(std::mem::take);
    drop(old);
}
