//! What a pass already made of sub-programs.
//!
//! The key is the identity of the sub-program together with how the pass
//! treats it. The sub-program is kept alive, so that its address stays its own.

use std::hash::Hash;
use std::sync::Arc;

use ferrax_ir::{Program, Result};
use rustc_hash::FxHashMap;

use crate::rewrite::share;

/// A transformed callee, with a flag for each of its inputs or outputs.
pub(crate) type Flagged = (Arc<Program>, Arc<[bool]>);

pub(crate) struct Memo<K, V> {
    entries: FxHashMap<(usize, K), (Arc<Program>, V)>,
}

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Memo { entries: FxHashMap::default() }
    }
}

impl<K: Hash + Eq, V: Clone> Memo<K, V> {
    pub fn get(&self, program: &Arc<Program>, key: K) -> Option<V> {
        self.entries.get(&(Arc::as_ptr(program).addr(), key)).map(|(_, value)| value.clone())
    }

    pub fn insert(&mut self, program: &Arc<Program>, key: K, value: V) -> V {
        self.entries.insert((Arc::as_ptr(program).addr(), key), (program.clone(), value.clone()));
        value
    }
}

/// A pass that makes a program of a program, of each sub-program once.
pub(crate) trait Pass {
    fn done(&mut self) -> &mut Memo<(), Arc<Program>>;

    fn program(&mut self, program: &Program) -> Result<Program>;

    /// What the pass makes of a sub-program.
    fn inner(&mut self, inner: &Arc<Program>) -> Result<Arc<Program>> {
        if let Some(found) = self.done().get(inner, ()) {
            return Ok(found);
        }
        let program = share(self.program(inner)?, inner);
        Ok(self.done().insert(inner, (), program))
    }
}
