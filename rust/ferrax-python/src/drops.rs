//! Python objects that go where the interpreter is not at hand.
//!
//! PyO3 lets such objects wait in a list of its own, whose lock may be held by another thread when the process forks: then
//! the child waits for it for ever. So nothing of this crate gets there. What threads keep for themselves goes when they
//! have ended, and waits here for a thread that is attached ([`OfThread`]); the lock is held through forks. What programs
//! refer to goes with them, wherever that is: the thread attaches for it ([`Referred`]).

use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, take};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

static WAITING: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());
/// Whether something waits, roughly.
static ANY: AtomicBool = AtomicBool::new(false);

/// The lock of this module, held by this thread.
pub fn hold() -> Box<dyn Any> {
    Box::new(WAITING.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Drops what waits.
#[inline]
pub fn drop_waiting(_: Python<'_>) {
    if ANY.load(Ordering::Relaxed) {
        drop_all();
    }
}

#[cold]
fn drop_all() {
    ANY.store(false, Ordering::Relaxed);
    let waiting = take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    // Under no lock: destructors may run anything.
    drop(waiting);
}

/// What a thread keeps for itself.
#[derive(Default)]
pub struct OfThread<T: Default + Send + 'static>(T);

impl<T: Default + Send + 'static> OfThread<T> {
    pub const fn new(value: T) -> OfThread<T> {
        OfThread(value)
    }
}

impl<T: Default + Send + 'static> Deref for OfThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default + Send + 'static> DerefMut for OfThread<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Default + Send + 'static> Drop for OfThread<T> {
    fn drop(&mut self) {
        let value = Box::new(take(&mut self.0));
        WAITING.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        ANY.store(true, Ordering::Relaxed);
    }
}

/// An object that a program refers to.
pub struct Referred<T>(ManuallyDrop<Py<T>>);

impl<T> From<Py<T>> for Referred<T> {
    fn from(object: Py<T>) -> Self {
        Referred(ManuallyDrop::new(object))
    }
}

impl<T> fmt::Debug for Referred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T> Deref for Referred<T> {
    type Target = Py<T>;

    fn deref(&self) -> &Py<T> {
        &self.0
    }
}

impl<T> Drop for Referred<T> {
    fn drop(&mut self) {
        // Where there is no interpreter any more, neither are there objects.
        Python::try_attach(|_| {
            // SAFETY: nobody sees the object after this, and this is done once.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        });
    }
}
