//! Forks of the process.
//!
//! A child has only the thread that forked. A lock that another thread held at
//! that moment would stay locked in the child for ever, and what it guards may
//! be half changed. So before a fork the forking thread takes every lock of the
//! process that other threads may hold, in the order of [`Held`], and gives them
//! back afterwards, in the parent and in the child. No thread waits for one of
//! them while it holds another, but for the last, so the order is free, but it is always the same.
//!
//! What is made once (`OnceLock`, `LazyLock`) is made before the fork for the
//! same reason. Locks that are only held by threads attached to an interpreter
//! are the host's to keep: it forks while it is attached.

use std::cell::Cell;
use std::sync::{Once, OnceLock};

use ferrax_compile::profile;

use crate::{alloc, code, eager, ffi, kernels, persistent, pool, vm};

/// All locks, held by this thread.
struct Held {
    _host: Option<Box<dyn std::any::Any>>,
    _sources: Box<dyn std::any::Any>,
    _eager: eager::Held,
    _persistent: persistent::Held,
    _ffi: ffi::Held,
    code: code::Held,
    pool: pool::Held,
    _alloc: alloc::Held,
    /// Last: threads wait for it while they hold others, and for none while they hold it.
    profile: profile::Held,
}

thread_local! {
    /// From just before a fork until just after it.
    static HELD: Cell<Option<Box<Held>>> = const { Cell::new(None) };
}

extern "C" fn prepare() {
    vm::settle();
    kernels::settle();
    let held = Held {
        _host: HOST.get().map(|hold| hold()),
        _sources: ferrax_ir::hold_tables(),
        _eager: eager::hold(),
        _persistent: persistent::hold(),
        _ffi: ffi::hold(),
        code: code::hold(),
        pool: pool::hold(),
        _alloc: alloc::hold(),
        profile: profile::hold(),
    };
    HELD.set(Some(Box::new(held)));
}

extern "C" fn in_parent() {
    drop(HELD.take());
}

extern "C" fn in_child() {
    if let Some(mut held) = HELD.take() {
        held.pool.forget_helpers();
        held.profile.forget();
        code::in_child(&mut held.code);
    }
}

/// Takes the locks of the host that threads hold when they have left it; they are given back when the value is dropped.
type Hold = fn() -> Box<dyn std::any::Any>;

static HOST: OnceLock<Hold> = OnceLock::new();

/// Has these locks held through forks, too. The first call counts.
pub fn hold_also(hold: Hold) {
    HOST.get_or_init(|| hold);
}

/// Makes forks of this process safe from now on. Embedders call it before anything else of this crate:
/// the modules whose locks it takes do not know of it.
pub fn protect() {
    static ONCE: Once = Once::new();
    #[cfg(unix)]
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded: its helpers run
        // code of it. They do not unwind into C: poisoned locks are taken over, and an `extern "C"`
        // function that panics aborts.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}
