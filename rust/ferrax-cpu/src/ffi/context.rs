//! What a handler may ask for while it runs: states, memory, threads; and what it gives: errors and
//! futures.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ferrax_ffi::abi::Stage;

use super::types;
use crate::pool;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of a handler: a code of `absl::StatusCode` and a message.
pub struct Failure {
    pub code: c_int,
    pub message: CString,
}

/// A new error, for a handler to give.
pub fn error(code: c_int, message: &str) -> *mut c_void {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    Box::into_raw(Box::new(Failure { code, message })).cast()
}

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The text of an error that a handler gave, `CODE: message`; `None` for null.
///
/// # Safety
/// The pointer is null or that of a [`Failure`] that nobody else has.
pub unsafe fn take_error(error: *mut c_void) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: it was made by `error`.
    let failure = unsafe { Box::from_raw(error.cast::<Failure>()) };
    let name = usize::try_from(failure.code).ok().and_then(|code| NAMES.get(code)).unwrap_or(&"UNKNOWN");
    Some(format!("{name}: {}", failure.message.to_string_lossy()))
}

/// The text that a pointer to a C string is of.
///
/// # Safety
/// It is null or ends in a zero.
pub unsafe fn text(pointer: *const std::ffi::c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// States that handlers made, by their stages: those of an executable, made as it is instantiated, or those of
/// one run, made as it is prepared and initialized. Dropped, they are deleted.
#[derive(Default)]
pub struct States(Mutex<[Option<(i64, Pointer)>; 3]>);

#[derive(Clone, Copy)]
struct Pointer(*mut c_void);

// SAFETY: a state belongs to its executable; handlers are called with it from one thread at a time or are made
// for more, as the interface asks.
unsafe impl Send for Pointer {}

impl States {
    /// Keeps a state; false if there is one of this stage, or the stage has none.
    fn set(&self, stage: c_int, id: i64, state: *mut c_void) -> bool {
        let mut states = lock(&self.0);
        match usize::try_from(stage).ok().and_then(|stage| states.get_mut(stage)) {
            Some(place @ None) => {
                *place = Some((id, Pointer(state)));
                true
            }
            _ => false,
        }
    }

    fn get(&self, stage: c_int, id: i64) -> Result<*mut c_void, &'static str> {
        let states = lock(&self.0);
        match usize::try_from(stage).ok().and_then(|stage| states.get(stage)).copied().flatten() {
            Some((known, state)) if known == id => Ok(state.0),
            Some(_) => Err("the state is of another type"),
            None => Err("there is no state of this stage"),
        }
    }
}

fn delete((id, state): (i64, Pointer)) {
    if let Some(deleter) = types::deleter(id) {
        // SAFETY: the type's own deleter, called once.
        unsafe { deleter(state.0) };
    }
}

impl Drop for States {
    fn drop(&mut self) {
        let states = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        states.into_iter().flatten().for_each(delete);
    }
}

/// One run of a handler.
pub struct Context<'a> {
    /// Those of the executable.
    states: &'a States,
    /// Those of this run: several runs of an executable may go on at once.
    own: States,
    pub run: i64,
    memory: Mutex<HashMap<usize, Layout>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

static RUNS: AtomicI64 = AtomicI64::new(0);

impl<'a> Context<'a> {
    pub fn new(states: &'a States) -> Context<'a> {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Context { states, own: States::default(), run, memory: Mutex::default(), tasks: Mutex::default() }
    }

    fn of_stage(&self, stage: c_int) -> &States {
        if stage == Stage::Instantiate as c_int { self.states } else { &self.own }
    }

    /// Keeps a state; false if there is one of this stage, or the stage has none.
    pub fn set_state(&self, stage: c_int, id: i64, state: *mut c_void) -> bool {
        self.of_stage(stage).set(stage, id, state)
    }

    pub fn state(&self, stage: c_int, id: i64) -> Result<*mut c_void, &'static str> {
        self.of_stage(stage).get(stage, id)
    }

    /// Memory of so many bytes, until it is given back or the run ends; null if there is none.
    pub fn allocate(&self, bytes: usize, alignment: usize) -> *mut c_void {
        let Ok(layout) = Layout::from_size_align(bytes.max(1), alignment.max(64)) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the layout has a size.
        let pointer = unsafe { alloc(layout) };
        if !pointer.is_null() {
            lock(&self.memory).insert(pointer as usize, layout);
        }
        pointer.cast()
    }

    /// Gives memory back; false if it is none of this run's.
    pub fn free(&self, pointer: *mut c_void) -> bool {
        let Some(layout) = lock(&self.memory).remove(&(pointer as usize)) else { return false };
        // SAFETY: it was allocated with this layout and is there once.
        unsafe { dealloc(pointer.cast(), layout) };
        true
    }

    /// Runs a task on a thread of its own, as long as there are fewer than the pool's; else here.
    pub fn schedule(&self, task: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
        let data = Pointer(data);
        let mut tasks = lock(&self.tasks);
        tasks.retain(|task| !task.is_finished());
        if tasks.len() < pool::threads() {
            let work = move || {
                let data = data;
                // SAFETY: the handler hands the task and its data over to any thread.
                unsafe { task(data.0) };
            };
            if let Ok(handle) = std::thread::Builder::new().spawn(work) {
                tasks.push(handle);
                return;
            }
        }
        drop(tasks);
        // SAFETY: as above.
        unsafe { task(data.0) };
    }

    /// Waits for the tasks: a run is over when they are.
    pub fn finish(&self) {
        loop {
            let Some(task) = lock(&self.tasks).pop() else { return };
            // A task that panicked is C++ that threw, and has ended the process.
            let _ = task.join();
        }
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        self.finish();
        for (pointer, layout) in lock(&self.memory).drain() {
            // SAFETY: it was allocated with this layout and was not given back.
            unsafe { dealloc(pointer as *mut u8, layout) };
        }
    }
}

/// What a handler gives that is not done yet.
#[derive(Default)]
pub struct Future {
    done: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
}

impl Future {
    pub fn settle(&self, result: Result<(), String>) {
        *lock(&self.done) = Some(result);
        self.changed.notify_all();
    }

    pub fn wait(&self) -> Result<(), String> {
        let mut done = lock(&self.done);
        loop {
            match done.take() {
                Some(result) => return result,
                None => done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
