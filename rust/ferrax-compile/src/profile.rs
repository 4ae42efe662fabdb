//! Profiles: what ran when, on which thread.
//!
//! In: spans of time, which the code that they are about begins and ends. Out: the events of each thread, in the order
//! in which they ended. While no profile is taken a span costs one relaxed load of a byte ([`is_on`]), and nothing
//! is made for it. While one is, an event is two readings of the clock and 24 bytes in a ring of its thread, whose lock
//! nobody else takes before the profile ends; where a ring is full the oldest events go, and are counted.
//!
//! What an event shows ([`What`]) is shared by the events that show the same: a step of a plan has one for all its runs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ferrax_ir::Source;

/// From which level of a profile on something is recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// What the user marked.
    Marks = 1,
    /// Calls, compilations, steps of programs, what threads share, transfers.
    Runs = 2,
    /// Steps in loops and branches, too.
    Inside = 3,
}

/// What kind of thing an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What the user marked, or a function of Python's.
    Mark,
    /// A call of a jitted function or an op that runs at once.
    Call,
    /// Tracing, optimising, planning, binding.
    Compile,
    /// A step of a program: a kernel, a library call.
    Kernel,
    Library,
    /// The part of a step that a helper of the thread pool does.
    Share,
    /// Elements that go from one memory to another.
    Transfer,
    /// A function of the host's within a program.
    Callback,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mark => "",
            Kind::Call => "call",
            Kind::Compile => "compile",
            Kind::Kernel => "kernel",
            Kind::Library => "library",
            Kind::Share => "share",
            Kind::Transfer => "transfer",
            Kind::Callback => "callback",
        }
    }
}

/// A value that is shown beside an event.
#[derive(Clone, PartialEq, Debug)]
pub enum Stat {
    Int(i64),
    Float(f64),
    Text(Box<str>),
}

/// What an event shows.
#[derive(Clone, Debug)]
pub struct What {
    pub kind: Kind,
    pub name: Box<str>,
    pub source: Source,
    pub stats: Vec<(Box<str>, Stat)>,
}

impl What {
    pub fn new(kind: Kind, name: impl Into<Box<str>>, source: Source) -> Arc<What> {
        Arc::new(What { kind, name: name.into(), source, stats: Vec::new() })
    }

    /// Something of no known line.
    pub fn named(kind: Kind, name: impl Into<Box<str>>) -> Arc<What> {
        What::new(kind, name, Source::UNKNOWN)
    }

    /// So many bytes that go somewhere.
    pub fn bytes(name: &str, bytes: usize) -> Arc<What> {
        let count = i64::try_from(bytes).unwrap_or(i64::MAX);
        Arc::new(What {
            kind: Kind::Transfer,
            name: name.into(),
            source: Source::UNKNOWN,
            stats: vec![("bytes".into(), Stat::Int(count))],
        })
    }
}

/// Something that ran: nanoseconds of [`now`].
#[derive(Clone, Debug)]
pub struct Record {
    pub what: Arc<What>,
    pub begin: u64,
    pub end: u64,
}

/// What a thread did while a profile was taken.
#[derive(Debug)]
pub struct Thread {
    /// Its number: the system's where that is known.
    pub id: u64,
    /// Its name, if it has one that the host did not give it.
    pub name: Option<String>,
    pub records: Vec<Record>,
    /// Events that there was no room for: the oldest.
    pub dropped: u64,
}

/// How a profile is taken.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// See [`Level`].
    pub level: u8,
    /// Events that are kept of a thread.
    pub capacity: usize,
    /// Only events that begin between these times are kept.
    pub from: u64,
    pub until: u64,
}

#[derive(Default)]
struct Ring {
    records: VecDeque<Record>,
    dropped: u64,
}

/// A thread in a profile.
struct Lane {
    /// Which profile.
    number: u64,
    settings: Settings,
    id: u64,
    name: Option<String>,
    ring: Mutex<Ring>,
}

impl Lane {
    fn push(&self, record: Record) {
        if !(self.settings.from..=self.settings.until).contains(&record.begin) {
            return;
        }
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest =
            if ring.records.len() < self.settings.capacity { None } else { ring.records.pop_front() };
        ring.dropped += u64::from(oldest.is_some());
        ring.records.push_back(record);
        drop(ring);
    }
}

struct Profile {
    settings: Settings,
    lanes: Vec<Arc<Lane>>,
}

/// 0 while no profile is taken.
static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Which profile is taken, or the next one: counts ends.
static NUMBER: AtomicU64 = AtomicU64::new(0);
static PROFILE: Mutex<Option<Profile>> = Mutex::new(None);
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    static LANE: RefCell<Option<Arc<Lane>>> = const { RefCell::new(None) };
    /// What the innermost step that this thread runs shows.
    static OPEN: RefCell<Option<Arc<What>>> = const { RefCell::new(None) };
}

fn profile() -> MutexGuard<'static, Option<Profile>> {
    PROFILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a profile is taken in which things of this level are recorded.
#[inline]
pub fn is_on(level: Level) -> bool {
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

/// Nanoseconds since some moment of this process.
pub fn now() -> u64 {
    u64::try_from(ZERO.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Begins a profile; whether it did: there is one at a time.
pub fn start(settings: Settings) -> bool {
    let mut profile = profile();
    if profile.is_some() {
        return false;
    }
    *profile = Some(Profile { settings, lanes: Vec::new() });
    LEVEL.store(settings.level, Ordering::Relaxed);
    true
}

/// Ends the profile: what the threads did, in the order in which they were first heard of. Nothing if there is none.
/// What has not ended yet is in none.
pub fn stop() -> Vec<Thread> {
    let taken = {
        let mut profile = profile();
        LEVEL.store(0, Ordering::Relaxed);
        NUMBER.fetch_add(1, Ordering::Relaxed);
        profile.take()
    };
    let lanes = taken.map(|profile| profile.lanes).unwrap_or_default();
    let thread = |lane: Arc<Lane>| {
        let ring = mem::take(&mut *lane.ring.lock().unwrap_or_else(PoisonError::into_inner));
        let (id, name) = (lane.id, lane.name.clone());
        Thread { id, name, records: ring.records.into(), dropped: ring.dropped }
    };
    lanes.into_iter().map(thread).collect()
}

/// This thread's number, and the name that Rust knows it by.
fn this_thread() -> (u64, Option<String>) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let thread = std::thread::current();
    // Linux: `PID/task/TID`.
    let link = std::fs::read_link("/proc/thread-self").ok();
    let id = link.and_then(|link| link.file_name()?.to_str()?.parse().ok());
    (id.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed)), thread.name().map(str::to_owned))
}

/// Notes something that ran on this thread.
pub fn record(what: Arc<What>, begin: u64, end: u64) {
    let number = NUMBER.load(Ordering::Relaxed);
    // A thread that is about to end may have no lane any more.
    let _ = LANE.try_with(|lane| {
        let mut lane = lane.borrow_mut();
        if lane.as_ref().is_none_or(|lane| lane.number != number) {
            let (id, name) = this_thread();
            let mut profile = profile();
            let Some(profile) = profile.as_mut() else { return };
            let (number, settings) = (NUMBER.load(Ordering::Relaxed), profile.settings);
            let new = Arc::new(Lane { number, settings, id, name, ring: Mutex::default() });
            profile.lanes.push(new.clone());
            *lane = Some(new);
        }
        if let Some(lane) = &*lane {
            lane.push(Record { what, begin, end });
        }
    });
}

/// Something that runs now: recorded when it is dropped, if the profile has not ended.
#[derive(Debug)]
pub struct Span {
    what: Arc<What>,
    begin: u64,
    outer: Option<Arc<What>>,
}

impl Span {
    /// Begins where a profile is taken that has this level. What it shows is made only then.
    #[inline]
    pub fn begin(level: Level, what: impl FnOnce() -> Arc<What>) -> Option<Span> {
        if is_on(level) { Some(Span::of(what())) } else { None }
    }

    /// Begins now.
    pub fn of(what: Arc<What>) -> Span {
        let outer = OPEN.try_with(|open| open.replace(Some(what.clone()))).ok().flatten();
        Span { what, begin: now(), outer }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let end = now();
        let outer = self.outer.take();
        // Replaced under the borrow, dropped after it.
        let _ = OPEN.try_with(|open| open.replace(outer));
        if is_on(Level::Marks) {
            record(self.what.clone(), self.begin, end);
        }
    }
}

/// What the threads that help with the innermost open span of this one show, if it is recorded.
pub fn share() -> Option<Arc<What>> {
    if !is_on(Level::Runs) {
        return None;
    }
    let open = OPEN.try_with(|open| open.borrow().clone()).ok().flatten()?;
    Some(What::new(Kind::Share, open.name.clone(), open.source))
}

/// The lock of this module, held by this thread.
pub struct Held(MutexGuard<'static, Option<Profile>>);

/// Waits until no thread joins a profile and keeps all from doing so.
pub fn hold() -> Held {
    LazyLock::force(&ZERO);
    Held(profile())
}

impl Held {
    /// In the child of a fork: no profile is taken. Rings that other threads were about to change are left as they are.
    pub fn forget(&mut self) {
        LEVEL.store(0, Ordering::Relaxed);
        NUMBER.fetch_add(1, Ordering::Relaxed);
        mem::forget(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One at a time: profiles are of the process.
    static ONE: Mutex<()> = Mutex::new(());

    fn settings(level: u8, capacity: usize) -> Settings {
        Settings { level, capacity, from: 0, until: u64::MAX }
    }

    fn own(threads: Vec<Thread>) -> Option<Thread> {
        let (id, _) = this_thread();
        threads.into_iter().find(|thread| thread.id == id)
    }

    fn names(thread: &Thread) -> Vec<&str> {
        thread.records.iter().map(|record| &*record.what.name).collect()
    }

    fn mark(level: Level, name: &str) -> Option<Span> {
        Span::begin(level, || What::named(Kind::Mark, name))
    }

    #[test]
    fn spans_nest_and_levels_choose() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(mark(Level::Marks, "before").is_none());
        assert!(start(settings(2, 10)) && !start(settings(2, 10)));
        {
            let _outer = mark(Level::Marks, "outer");
            let _inner = mark(Level::Runs, "inner");
            assert_eq!(&*share().unwrap().name, "inner");
            assert!(mark(Level::Inside, "no").is_none());
        }
        let late = mark(Level::Marks, "late");
        let thread = own(stop()).unwrap();
        drop(late);
        assert_eq!((names(&thread), thread.dropped), (vec!["inner", "outer"], 0));
        let [inner, outer] = &thread.records[..] else { panic!() };
        assert!(outer.begin <= inner.begin && inner.begin <= inner.end && inner.end <= outer.end);
        assert!(share().is_none() && own(stop()).is_none());
    }

    #[test]
    fn the_oldest_are_dropped_and_windows_hold() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(start(settings(1, 3)));
        for number in 0..10 {
            drop(mark(Level::Marks, &number.to_string()));
        }
        let thread = own(stop()).unwrap();
        assert_eq!((names(&thread), thread.dropped), (vec!["7", "8", "9"], 7));
        assert!(start(Settings { from: 100, until: 200, ..settings(1, 10) }));
        for begin in [99, 100, 200, 201] {
            record(What::named(Kind::Mark, begin.to_string()), begin, 300);
        }
        assert_eq!(names(&own(stop()).unwrap()), ["100", "200"]);
    }

    #[test]
    fn threads_have_lanes_of_their_own() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(start(settings(1, 1000)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| drop(mark(Level::Marks, "work"))));
            }
        });
        let threads = stop();
        let busy: Vec<_> = threads.iter().filter(|thread| thread.records.len() == 100).collect();
        assert!(
            busy.len() == 4 && busy.iter().all(|thread| names(thread).iter().all(|name| *name == "work"))
        );
    }
}
