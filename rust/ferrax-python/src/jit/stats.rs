//! How often functions are traced and compiled, and why again. Calls are compared where somebody asks: those that
//! find their program pay nothing, those that do not next to nothing.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::cache::{Cache, Retrace};
use super::key::Key;
use super::{Entry, JitFunction};
use crate::checks;
use crate::once::intern;

/// Earlier calls that a new one is compared with, the latest first.
const COMPARED: usize = 64;

impl Cache {
    /// How many of the kept programs are compiled.
    pub fn compiled(&self) -> usize {
        self.entries.iter().filter(|entry| entry.program.get().is_compiled()).count()
    }

    /// The known call before that number that is most like this one; of several, the latest.
    fn most_alike(&self, key: &Key, number: usize) -> Option<Arc<Entry>> {
        let mut entries: Vec<&Arc<Entry>> =
            self.entries.iter().filter(|entry| entry.number < number).collect();
        if entries.len() > COMPARED {
            entries.select_nth_unstable_by_key(COMPARED, |entry| Reverse(entry.number));
            entries.truncate(COMPARED);
        }
        entries.sort_unstable_by_key(|entry| Reverse(entry.number));
        entries.into_iter().min_by_key(|entry| entry.key.distance(key)).cloned()
    }
}

impl JitFunction {
    /// Called before the function is traced: whether other calls were known. Fails if the function may not be
    /// traced again.
    pub(super) fn before_trace(&self, py: Python<'_>, key: &Key) -> PyResult<bool> {
        let (traces, known) = {
            let cache = self.cache.get().lock();
            (cache.traces, !cache.entries.is_empty())
        };
        let too_many = self.max_traces.filter(|&limit| traces >= limit);
        if too_many.is_none() && !(known && checks::retraces()) {
            return Ok(known);
        }
        let alike = self.cache.get().lock().most_alike(key, usize::MAX);
        let before = alike.map(|alike| alike.key.parts(py)).transpose()?;
        if let Some(limit) = too_many {
            let (function, after) = (self.function.bind(py), key.parts(py)?);
            let error = explain(py)?
                .getattr(intern!(py, "too_many_traces"))?
                .call1((function, limit, before, after))?;
            return Err(PyErr::from_value(error));
        }
        if let Some(before) = before {
            let log = explain(py)?.getattr(intern!(py, "log_retrace"))?;
            log.call1((self.function.bind(py), before, key.parts(py)?))?;
        }
        Ok(known)
    }

    /// Called after the function was traced, which began then.
    pub(super) fn after_trace(&self, py: Python<'_>, begun: Instant) -> PyResult<()> {
        if checks::compiles() {
            let log = explain(py)?.getattr(intern!(py, "log_trace"))?;
            log.call1((self.function.bind(py), begun.elapsed().as_secs_f64()))?;
        }
        Ok(())
    }
}

fn explain(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "ferrax._src.transforms.stats"))
}

#[pymethods]
impl JitFunction {
    /// Bytes of each of its executables, constants included.
    fn _executable_bytes(&self) -> Vec<usize> {
        let entries: Vec<Arc<Entry>> = self.cache.get().lock().entries.iter().cloned().collect();
        entries.iter().filter_map(|entry| entry.program.get().executable_bytes()).collect()
    }

    /// `(traces, compiles, cache entries, keys of the last retrace)`; the keys are None if there
    /// was none, and empty if the programs are not kept.
    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<(usize, usize, usize, Option<Bound<'py, PyTuple>>)> {
        let (traces, compiles, entries, keys) = {
            let cache = self.cache.get().lock();
            let keys = cache.retrace.as_ref().map(|retrace| match retrace {
                Retrace::Unlike(after) => Some((cache.most_alike(&after.key, after.number)?, after.clone())),
                Retrace::Captured => None,
            });
            let entries = cache.entries.len();
            (cache.traces, cache.compiled_before + cache.compiled(), entries, keys)
        };
        let keys = match keys {
            None => None,
            Some(None) => Some(PyTuple::empty(py)),
            Some(Some((before, after))) => {
                Some((before.key.parts(py)?, after.key.parts(py)?).into_pyobject(py)?)
            }
        };
        Ok((traces, compiles, entries, keys))
    }
}
