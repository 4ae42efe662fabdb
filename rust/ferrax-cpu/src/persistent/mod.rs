//! Optimised programs in files, so that another process need not optimise them again.
//!
//! | module | holds |
//! |---|---|
//! | `digest` | which file a program's is |
//! | `files` | reading, writing and bounding the folder |
//! | `code` | code that drivers of other machines made, in files of the same folder |
//!
//! In: a program. Out: what `prepare` makes of it, from a file where there is one that was written by the same
//! build for the same program, else computed and, if that took long enough, written. Files of programs hold
//! nothing that is executed: they are read as any file is, with checksum and verifier (`ferrax_ir::serial`), and
//! are planned and bound in each process. Nothing fails because of a file: one that is no good is removed, and what
//! goes wrong is kept for the host to tell ([`take_problem`]).
//!
//! Cost of a hit: the digest and the reader are linear in the program, about a sixth of what it saves.

pub mod code;
mod digest;
mod files;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ferrax_compile::backend::{optimised, prepare};
use ferrax_ir::{Program, Result};

pub use files::{Entries, clear, entries};

/// Where programs are kept, and which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub folder: PathBuf,
    /// What else than the program its optimised form depends on: the version and the build of this library.
    pub build: String,
    /// Programs that are optimised faster, and files that would be smaller, are not written.
    pub least_time: Duration,
    pub least_bytes: u64,
    /// Of all files; none for any number.
    pub most_bytes: Option<u64>,
}

/// What this process found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub hits: usize,
    pub misses: usize,
    pub written: usize,
    /// Files that were no good, or could not be read or written.
    pub problems: usize,
}

static HITS: AtomicUsize = AtomicUsize::new(0);
static MISSES: AtomicUsize = AtomicUsize::new(0);
static WRITTEN: AtomicUsize = AtomicUsize::new(0);
static PROBLEMS: AtomicUsize = AtomicUsize::new(0);

struct Shared {
    settings: Option<Arc<Settings>>,
    /// What went wrong last, until the host asks.
    problem: Option<String>,
    /// Bytes in the folder as far as this process knows, and how many files it wrote since it counted.
    known: Option<u64>,
    since: usize,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { settings: None, problem: None, known: None, since: 0 });

thread_local! {
    /// Settings of this thread alone, if it has some.
    static OWN: RefCell<Option<Option<Arc<Settings>>>> = const { RefCell::new(None) };
}

fn shared() -> MutexGuard<'static, Shared> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of this module, held by this thread.
pub(crate) struct Held(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, Shared>);

pub(crate) fn hold() -> Held {
    Held(shared())
}

/// Sets where programs are kept, if at all, for threads without settings of their own.
pub fn configure(settings: Option<Settings>) {
    let mut shared = shared();
    shared.settings = settings.map(Arc::new);
    (shared.known, shared.since) = (None, 0);
}

/// The same for this thread; the outer `None` is for that of the process.
pub fn configure_thread(settings: Option<Option<Settings>>) {
    OWN.set(settings.map(|settings| settings.map(Arc::new)));
}

fn settings() -> Option<Arc<Settings>> {
    OWN.with_borrow(Clone::clone).unwrap_or_else(|| shared().settings.clone())
}

/// What this process found so far.
pub fn counts() -> Counts {
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    Counts {
        hits: count(&HITS),
        misses: count(&MISSES),
        written: count(&WRITTEN),
        problems: count(&PROBLEMS),
    }
}

/// What went wrong since the last question.
pub fn take_problem() -> Option<String> {
    if PROBLEMS.load(Ordering::Relaxed) == 0 { None } else { shared().problem.take() }
}

fn problem(text: String) {
    PROBLEMS.fetch_add(1, Ordering::Relaxed);
    shared().problem = Some(text);
}

/// About the most that an equation takes to be optimised: what cannot reach the least time is not looked for.
const EQUATION: Duration = Duration::from_micros(12);

/// What `prepare` gives, from a file if there is one.
pub fn prepared(program: &Program) -> Result<Program> {
    let Some(settings) = settings() else { return prepare(program) };
    let flat = ferrax_compile::expand(program)?;
    let size = u32::try_from(flat.size()).unwrap_or(u32::MAX);
    if EQUATION.saturating_mul(size) < settings.least_time {
        return optimised(flat);
    }
    let Some(digest) = digest::digest(&flat) else { return optimised(flat) };
    let name = files::Name::new(&settings, digest);
    match files::read(&name, &flat) {
        Ok(Some(found)) => {
            HITS.fetch_add(1, Ordering::Relaxed);
            return Ok(found);
        }
        Ok(None) => {}
        Err(text) => problem(text),
    }
    MISSES.fetch_add(1, Ordering::Relaxed);
    let begun = Instant::now();
    let made = optimised(flat)?;
    if begun.elapsed() >= settings.least_time {
        keep(&settings, &name, &made);
    }
    Ok(made)
}

/// How many files are written before those of other processes are counted again.
const RECOUNT: usize = 64;

fn keep(settings: &Settings, name: &files::Name, program: &Program) {
    match files::write(name, program, settings) {
        Ok(Some(bytes)) => wrote(settings, bytes),
        Ok(None) => {}
        Err(text) => problem(text),
    }
}

/// Notes that a file of so many bytes was written, and removes others where the folder has too many.
fn wrote(settings: &Settings, written: u64) {
    WRITTEN.fetch_add(1, Ordering::Relaxed);
    let Some(most) = settings.most_bytes else { return };
    let full = {
        let mut shared = shared();
        shared.since += 1;
        shared.known = shared.known.map(|known| known.saturating_add(written));
        let stale = shared.since > RECOUNT || shared.known.is_none_or(|known| known > most);
        if stale {
            shared.since = 0;
        }
        stale
    };
    if full {
        // Without the lock: other processes do the same at the same time, and files may vanish.
        let left = files::shrink(&settings.folder, most);
        shared().known = Some(left);
    }
}

#[cfg(test)]
mod tests;
