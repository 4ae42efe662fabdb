//! Stopping long runs: executables report their work, and now and then the
//! host is asked whether to go on.
//!
//! Asking may be slow (Python's host attaches to the interpreter), so it
//! happens at most once per [`ASK_EVERY`], and the clock is read only once per
//! [`LOOK_EVERY`] bytes of work, or once a chunk of a kernel that is shared among
//! threads. Both are counted for each thread, across runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Bytes of work between two looks at the clock: well under a millisecond.
const LOOK_EVERY: usize = 1 << 20;
/// The least time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(10);
/// What a chunk of parallel work counts for: each one looks at the clock.
pub(crate) const CHUNK: usize = LOOK_EVERY;
/// What a step counts for besides the bytes of its operands.
pub(crate) const STEP: usize = 4 << 10;

static HOST: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static WORK: Cell<usize> = const { Cell::new(0) };
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Installs a function that is asked during long runs whether to stop them.
pub fn set_interrupt_check(check: fn() -> bool) {
    HOST.store(check as *mut (), Ordering::Release);
}

/// Counts `bytes` of work as done; whether to stop.
#[inline]
pub(crate) fn interrupted(bytes: usize) -> bool {
    let work = WORK.get().saturating_add(bytes);
    if work < LOOK_EVERY {
        WORK.set(work);
        return false;
    }
    WORK.set(0);
    look()
}

#[cold]
fn look() -> bool {
    let check = HOST.load(Ordering::Acquire);
    if check.is_null() || ASKED.get().is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
        return false;
    }
    ASKED.set(Some(Instant::now()));
    // SAFETY: only `set_interrupt_check` stores here, always a `fn() -> bool`.
    let check: fn() -> bool = unsafe { std::mem::transmute(check) };
    check()
}
