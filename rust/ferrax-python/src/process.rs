//! Threads and memory of the process, for Python.

use ferrax_cpu::{alloc, pool};
use ferrax_ir::paths::Path;
use pyo3::prelude::*;

use crate::devices;

/// Bytes of array memory in use, the most there ever were, those that wait for reuse, how often a block was given
/// out, the largest, and what the process may take.
#[pyfunction]
pub fn memory_stats() -> (usize, usize, usize, usize, usize, usize) {
    let alloc::Stats { in_use, peak, waiting, given, largest, limit } = alloc::stats();
    (in_use, peak, waiting, given, largest, limit)
}

/// Gives memory that waits for reuse back to the system; how many bytes that were.
#[pyfunction]
pub fn release_memory(py: Python<'_>) -> usize {
    py.detach(|| {
        let waiting = alloc::waiting();
        alloc::release_cached();
        waiting.saturating_sub(alloc::waiting()) + devices::trim()
    })
}

/// How many threads work on what this thread computes.
#[pyfunction]
pub fn num_threads() -> usize {
    pool::width()
}

/// The most that `set_num_threads` takes.
#[pyfunction]
pub fn most_threads() -> usize {
    pool::MOST_THREADS
}

/// Sets how many threads work on what this thread computes or, with `shared`, on what all do that have no number of
/// their own. 0: as many as the others, or as at the start.
#[pyfunction]
pub fn set_num_threads(count: usize, shared: bool) {
    if shared { pool::set_width(count) } else { pool::set_own_width(count) }
}

/// How often each way of computing was taken, by name.
#[pyfunction]
pub fn paths_taken() -> Vec<(&'static str, u64)> {
    Path::ALL.iter().map(|path| (path.name(), path.taken())).collect()
}

/// Sets about how many bytes of a product over all pairs of rows a derivative has at once, and gives the number before.
#[pyfunction]
pub fn set_block_bytes(bytes: usize) -> usize {
    ferrax_transform::row_blocks::set_block_bytes(bytes)
}
