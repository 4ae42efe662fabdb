//! Programs that eager transformations make, by content: `grad(f)(x)` called
//! twice makes two equal programs, and the second runs the first's executable.
//!
//! Comparing and dropping programs may run Python code, which may come back here:
//! neither happens while the table is borrowed.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;

use ferrax_cpu::generations::{Epoch, Generations};
use pyo3::prelude::*;
use rustc_hash::FxBuildHasher;

use crate::drops::{OfThread, drop_waiting};
use crate::program::PyProgram;

/// Programs, and their bytes, of a generation of a thread's table.
const KEPT: usize = 1024;
const KEPT_BYTES: usize = 256 << 20;

struct Known {
    programs: Generations<Shared>,
    epoch: Epoch,
}

impl Default for Known {
    fn default() -> Known {
        Known { programs: Generations::new(KEPT, KEPT_BYTES), epoch: Epoch::FIRST }
    }
}

/// A program that may be cloned without the interpreter.
#[derive(Clone)]
struct Shared(Arc<Py<PyProgram>>);

thread_local! {
    static PROGRAMS: RefCell<OfThread<Known>> = RefCell::default();
}

/// The known program equal to this one; itself if there is none.
pub fn shared(py: Python<'_>, program: &Bound<'_, PyProgram>) -> PyResult<Py<PyProgram>> {
    let hash = FxBuildHasher.hash_one(&program.get().program);
    let (candidates, old) = PROGRAMS.with_borrow_mut(|known| {
        let old = known.epoch.renew().then(|| known.programs.clear());
        (known.programs.candidates(hash), old)
    });
    drop(old);
    for candidate in candidates {
        if candidate.0.get().program == program.get().program {
            let same = |other: &Shared| Arc::ptr_eq(&other.0, &candidate.0);
            let (_, old) = PROGRAMS.with_borrow_mut(|known| known.programs.find(hash, same));
            drop(old);
            return Ok(candidate.0.clone_ref(py));
        }
    }
    let new = Shared(Arc::new(program.clone().unbind()));
    let bytes = program.get().kept_bytes();
    let old = PROGRAMS.with_borrow_mut(|known| known.programs.insert(hash, new, bytes));
    drop(old);
    Ok(program.clone().unbind())
}

/// Forgets the programs and executables that are kept for calls to come, those of all jitted functions
/// included, and gives memory that waits for reuse back to the system.
#[pyfunction]
pub fn clear_program_cache(py: Python<'_>) {
    drop_waiting(py);
    ferrax_cpu::eager::forget();
    let old = PROGRAMS.with_borrow_mut(|known| known.programs.clear());
    drop(old);
    crate::pairwise::forget();
    ferrax_cpu::alloc::release_cached();
}

/// Bytes of array memory that wait for reuse, and how many executables of single ops are kept.
#[pyfunction]
pub fn cache_sizes() -> (usize, usize) {
    (ferrax_cpu::alloc::waiting(), ferrax_cpu::eager::kept())
}
