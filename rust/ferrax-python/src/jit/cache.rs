//! The programs of a jitted function: what is kept, and why it was traced again.
//!
//! Programs are kept by generations (`Generations`), so many and so many bytes of one; what the last call came to is at
//! hand besides.

use std::sync::{Arc, Mutex, PoisonError};

use ferrax_cpu::generations::{Epoch, Generations};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::Entry;

/// Programs, and their bytes, of a generation of a function's cache.
const KEPT: usize = 4096;
const KEPT_BYTES: usize = 1 << 30;

/// Why a function was traced once more.
pub enum Retrace {
    /// No known program fitted: the new one.
    Unlike(Arc<Entry>),
    /// It captures values of an outer trace: its programs are not kept.
    Captured,
}

pub struct Cache {
    pub entries: Generations<Arc<Entry>>,
    /// What the last call came to: the next one is probably alike.
    pub last: Option<Arc<Entry>>,
    pub traces: usize,
    /// Compiled programs that were forgotten when the cache was full.
    pub compiled_before: usize,
    pub retrace: Option<Retrace>,
    pub epoch: Epoch,
}

impl Cache {
    fn new() -> Cache {
        let mut epoch = Epoch::FIRST;
        epoch.renew();
        Cache {
            entries: Generations::new(KEPT, KEPT_BYTES),
            last: None,
            traces: 0,
            compiled_before: 0,
            retrace: None,
            epoch,
        }
    }

    /// How many owners an entry has in this cache.
    fn owners(&self, entry: &Arc<Entry>) -> usize {
        let same = |other: &&Arc<Entry>| Arc::ptr_eq(other, entry);
        let compared = match &self.retrace {
            Some(Retrace::Unlike(after)) => usize::from(same(&after)),
            _ => 0,
        };
        1 + compared + self.last.iter().filter(same).count()
    }
}

/// Programs of one function under one set of options; shared by equal jits.
#[pyclass(frozen, weakref, module = "ferrax")]
pub struct JitCache {
    cache: Mutex<Cache>,
    /// Whether symbolic sizes are all of one scope: what a trace decided of them holds for all calls.
    pub one_scope: bool,
}

#[pymethods]
impl JitCache {
    #[new]
    #[pyo3(signature = (one_scope = false))]
    fn new(one_scope: bool) -> Self {
        JitCache { cache: Mutex::new(Cache::new()), one_scope }
    }

    /// Forgets all programs.
    pub fn clear(&self) {
        // Dropped outside the lock: what entries refer to may have destructors.
        let old = std::mem::replace(&mut *self.lock(), Cache::new());
        drop(old);
    }

    /// A cache that is in use now shows nothing, and an entry nothing that a call holds as well:
    /// both live on.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(cache) = self.cache.try_lock() else { return Ok(()) };
        let own = cache.entries.iter().filter(|entry| Arc::strong_count(entry) == cache.owners(entry));
        own.into_iter().try_for_each(|entry| entry.traverse(&visit))
    }

    fn __clear__(&self) {
        self.clear();
    }
}

impl JitCache {
    /// What the last call came to, if caches were not cleared since.
    pub fn last(&self) -> Option<Arc<Entry>> {
        let cache = self.lock();
        if cache.epoch.is_current() {
            return cache.last.clone();
        }
        drop(cache);
        self.clear();
        None
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
