//! The cache of programs on disk, for Python (`_src/core/program_cache.py`).

use std::path::Path;
use std::time::Duration;

use ferrax_cpu::persistent::{self, Settings};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::once::intern;

/// Folder, build, least time in seconds, least bytes of a file, most bytes of all.
type Given = (String, String, f64, u64, Option<u64>);

/// Sets where programs are kept for this thread or, with `shared`, for the process; `None`: nowhere.
#[pyfunction]
pub fn set_program_cache(settings: Option<Given>, shared: bool) {
    let settings = settings.map(|(folder, build, least_time, least_bytes, most_bytes)| Settings {
        folder: folder.into(),
        build,
        least_time: Duration::try_from_secs_f64(least_time).unwrap_or(Duration::MAX),
        least_bytes,
        most_bytes,
    });
    if shared { persistent::configure(settings) } else { persistent::configure_thread(Some(settings)) }
}

/// This thread follows the process again.
#[pyfunction]
pub fn follow_program_cache() {
    persistent::configure_thread(None);
}

/// Hits, misses, files written, problems, of this process.
#[pyfunction]
pub fn program_cache_counts() -> (usize, usize, usize, usize) {
    let counts = persistent::counts();
    (counts.hits, counts.misses, counts.written, counts.problems)
}

/// How many files are in a folder, and their bytes.
#[pyfunction]
pub fn program_cache_entries(py: Python<'_>, folder: &str) -> (usize, u64) {
    let entries = py.detach(|| persistent::entries(Path::new(folder)));
    (entries.count, entries.bytes)
}

/// Removes the files in a folder; how many.
#[pyfunction]
pub fn clear_program_files(py: Python<'_>, folder: &str) -> PyResult<usize> {
    py.detach(|| persistent::clear(Path::new(folder))).map_err(PyOSError::new_err)
}

/// Tells what went wrong since it was last asked, which may be an error.
pub fn tell(py: Python<'_>) -> PyResult<()> {
    let Some(problem) = persistent::take_problem() else { return Ok(()) };
    py.import(intern!(py, "ferrax._src.core.program_cache"))?
        .call_method1(intern!(py, "problem"), (problem,))
        .map(drop)
}
