//! Fork-join over chunks of work.
//!
//! The caller posts a job and works on it; helpers that are awake join in.
//! Its chunks are cut into as many shares as threads may work on it. A thread
//! begins with the share of its number, the caller with the first, so that the
//! same thread works on the same part of an array in one job after another and
//! finds it in the caches of its core, which others may not share. Who is done
//! goes on with the shares of others. Chunks of a share are claimed by one
//! atomic counter, so nobody waits for a chunk that nobody has begun: when the
//! counters are exhausted the caller waits only for chunks already claimed.
//! Helpers spin for a while after their last chunk and then park. A job posted
//! from within a chunk runs on its own thread. Between its chunks the caller
//! asks whether to stop: then the counters are exhausted at once. After a fork
//! the child has no helpers and starts new ones.
//!
//! How work is cut follows [`threads`], which stays as it is while the process lives: memory is set aside by it when
//! programs are compiled. How many threads work on a job is [`width`], which may change at any time and be more:
//! helpers are started on demand, and a job lets no more of them in than it has room for.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ferrax_compile::profile::{self, Span, What};
use ferrax_ir::paths::Path;
use ferrax_ir::{Error, Result};

use crate::interrupt;

/// Whether a run is to be given up.
#[derive(Debug, Default)]
struct Stop(AtomicBool);

/// How long an idle helper looks for work before it parks.
const SPIN: Duration = Duration::from_micros(60);

/// Chunks that follow one another. Each has cache lines of its own: threads count in different ones.
#[repr(align(128))]
struct Share {
    /// The next chunk to claim. From `end` on there is none.
    next: AtomicUsize,
    begin: usize,
    end: usize,
}

impl Share {
    fn claim(&self) -> Option<usize> {
        let chunk = self.next.fetch_add(1, Ordering::Relaxed);
        (chunk < self.end).then_some(chunk)
    }

    fn is_claimed(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.end
    }

    /// Leaves the chunks that nobody has claimed; how many were claimed.
    fn close(&self) -> usize {
        self.next.swap(self.end, Ordering::Relaxed).min(self.end) - self.begin
    }
}

/// So many chunks in so many shares, whose sizes differ by at most one.
fn shares(chunks: usize, count: usize) -> Box<[Share]> {
    let (each, more) = (chunks / count, chunks % count);
    let begin = |share: usize| share * each + share.min(more);
    let share =
        |share| Share { next: AtomicUsize::new(begin(share)), begin: begin(share), end: begin(share + 1) };
    (0..count).map(share).collect()
}

struct Job {
    /// One for each thread that may work on the job.
    shares: Box<[Share]>,
    done: AtomicUsize,
    /// Helpers that may still join.
    room: AtomicUsize,
    panicked: AtomicBool,
    /// None if nothing may stop the job.
    stop: Option<Arc<Stop>>,
    /// What a profile shows of helpers.
    what: Option<Arc<What>>,
    /// Valid while an unfinished chunk is claimed: the caller returns only
    /// after all claimed chunks are done and no further one can be claimed.
    work: *const (dyn Fn(usize) + Sync),
}

// SAFETY: all fields but `work` are atomics or plain numbers. `work` points to a `Sync` closure, so any
// thread may call it, and is called only between claiming a chunk and counting it as done, which the
// closure's owner waits for (`run_until`).
unsafe impl Send for Job {}
// SAFETY: as for `Send`; nothing of a job is changed but its atomics.
unsafe impl Sync for Job {}

impl Job {
    /// Claims and runs chunks until none is left or the job is stopped, beginning with the share of this thread's
    /// number: 0 for the thread that posted the job.
    fn help(&self, number: usize) {
        let _within = Within::enter(self.stop.as_ref());
        // Of more helpers than shares some begin with the same one, none with the caller's.
        let first = if number == 0 { 0 } else { 1 + (number - 1) % (self.shares.len() - 1) };
        let (before, from) = self.shares.split_at(first);
        for chunk in from.iter().chain(before).flat_map(|share| std::iter::from_fn(|| share.claim())) {
            // SAFETY: this chunk is claimed and not counted as done, so `run_until`, which borrows the
            // closure, has not returned.
            let work = unsafe { &*self.work };
            if catch_unwind(AssertUnwindSafe(|| work(chunk))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.done.fetch_add(1, Ordering::Release);
            match catch_unwind(AssertUnwindSafe(|| self.stop.is_some() && stopping())) {
                Ok(false) => {}
                Ok(true) => return,
                Err(_) => return self.panicked.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Whether there is work for one more helper, who is then expected to help.
    fn join(&self) -> bool {
        !self.shares.iter().all(Share::is_claimed)
            && self
                .room
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1))
                .is_ok()
    }

    /// Leaves the chunks that nobody has claimed; how many were claimed.
    fn close(&self) -> usize {
        self.shares.iter().map(Share::close).sum()
    }
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Vec<Arc<Job>>>,
    wake: Condvar,
    /// Counts posted jobs; idle helpers watch it.
    posted: AtomicU64,
    sleeping: AtomicUsize,
    /// How many helpers were started; changed under the lock of `POOL`.
    helpers: AtomicUsize,
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self) -> Option<Arc<Job>> {
        self.jobs().iter().find(|job| job.join()).cloned()
    }

    fn helper(&self, number: usize) {
        IN_CHUNK.set(true);
        IS_HELPER.set(true);
        loop {
            let seen = self.posted.load(Ordering::Acquire);
            while let Some(job) = self.find() {
                let _span = job.what.clone().map(Span::of);
                job.help(number);
            }
            let idle = Instant::now();
            while self.posted.load(Ordering::Acquire) == seen {
                if idle.elapsed() < SPIN {
                    for _ in 0..32 {
                        std::hint::spin_loop();
                    }
                    continue;
                }
                let mut jobs = self.jobs();
                self.sleeping.fetch_add(1, Ordering::SeqCst);
                while self.posted.load(Ordering::SeqCst) == seen {
                    jobs = self.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                }
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

thread_local! {
    static IN_CHUNK: Cell<bool> = const { Cell::new(false) };
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
    /// See `width`; 0 for that of the process.
    static OWN_WIDTH: Cell<usize> = const { Cell::new(0) };
    /// Of the innermost job that this thread works on and that may be stopped.
    static STOP: RefCell<Option<Arc<Stop>>> = const { RefCell::new(None) };
}

/// Work on a job that may be stopped; undone when dropped.
struct Within(Option<Option<Arc<Stop>>>);

impl Within {
    fn enter(stop: Option<&Arc<Stop>>) -> Within {
        Within(stop.map(|stop| STOP.replace(Some(stop.clone()))))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            STOP.set(before);
        }
    }
}

/// Whether the work that this thread does is to be given up: work that takes long asks now and then.
/// The thread that began it asks the host; helpers see what it was told.
pub fn stopping() -> bool {
    // Cloned: the host may run anything, which may run kernels.
    let Some(stop) = STOP.with_borrow(Clone::clone) else { return false };
    if stop.0.load(Ordering::Relaxed) {
        return true;
    }
    let asked = !IS_HELPER.get() && interrupt::interrupted(interrupt::CHUNK);
    if asked {
        stop.0.store(true, Ordering::Relaxed);
    }
    asked
}

/// Lives as long as the process, so that a lock of it can be held through a fork.
static POOL: Mutex<Option<&'static Shared>> = Mutex::new(None);

/// The pool's locks, held by this thread.
pub(crate) struct Held {
    pool: MutexGuard<'static, Option<&'static Shared>>,
    _jobs: Option<MutexGuard<'static, Vec<Arc<Job>>>>,
}

/// Waits until no thread changes the pool and keeps all from doing so.
pub(crate) fn hold() -> Held {
    // Settled before a fork: another thread in the middle of it would never end in the child.
    threads();
    let pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let _jobs = pool.map(Shared::jobs);
    Held { pool, _jobs }
}

/// How many forks lie between this process and the first one.
static FORKS: AtomicUsize = AtomicUsize::new(0);

impl Held {
    /// In the child of a fork: there are no helpers, and the next job starts a pool of its own.
    pub(crate) fn forget_helpers(&mut self) {
        FORKS.fetch_add(1, Ordering::Relaxed);
        *self.pool = None;
    }
}

/// Threads that work is cut for: `FERRAX_NUM_THREADS` at the start, or as many as this process may use.
pub fn threads() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("FERRAX_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        wanted
            .filter(|&n| (1..=MOST_THREADS).contains(&n))
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS))
    })
}

/// The most threads that may work on a job.
pub const MOST_THREADS: usize = 1024;

/// Threads that work on a job of any thread that has no number of its own; 0 for `threads()`.
static WIDTH: AtomicUsize = AtomicUsize::new(0);

/// How many threads work on a job that this thread posts, itself included.
pub fn width() -> usize {
    match OWN_WIDTH.get() {
        0 => match WIDTH.load(Ordering::Relaxed) {
            0 => threads(),
            shared => shared,
        },
        own => own,
    }
}

/// Sets how many threads work on jobs of this process, up to [`MOST_THREADS`]; 0: as many as work is cut for.
pub fn set_width(width: usize) {
    WIDTH.store(width.min(MOST_THREADS), Ordering::Relaxed);
}

/// Sets how many threads work on jobs that this thread posts; 0: as many as on those of others.
pub fn set_own_width(width: usize) {
    OWN_WIDTH.set(width.min(MOST_THREADS));
}

/// The pool, with so many helpers at least, if the system lets them start.
fn pool(helpers: usize) -> &'static Shared {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = match *pool {
        Some(shared) => shared,
        None => *pool.insert(Box::leak(Box::default())),
    };
    for index in shared.helpers.load(Ordering::Relaxed)..helpers {
        let thread = std::thread::Builder::new().name(format!("ferrax-{}", index + 1));
        if thread.spawn(move || shared.helper(index + 1)).is_err() {
            break;
        }
        shared.helpers.store(index + 1, Ordering::Relaxed);
    }
    shared
}

/// Calls `work` for every chunk in `0..chunks`, each once, on any thread.
/// Returns when all calls have. Panics if one did.
pub fn run(chunks: usize, work: &(dyn Fn(usize) + Sync)) {
    // Without a reason to stop there is no error.
    let _ = run_until(chunks, work, None);
}

/// As `run`, but the host is asked now and then whether to go on: if not, the
/// error is [`Error::Interrupted`] and some chunks have not been run.
pub fn run_interruptibly(chunks: usize, work: &(dyn Fn(usize) + Sync)) -> Result<()> {
    run_until(chunks, work, Some(Arc::default()))
}

/// As `run_interruptibly`, of work that may fail: then the error is one that it gave, and the other chunks have
/// been run.
pub fn run_fallibly(chunks: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    run_interruptibly(chunks, &|chunk| {
        if let Err(error) = work(chunk) {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    })?;
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The error of what was given up because of `stopping`.
pub fn stopped() -> Error {
    Error::Interrupted("the computation was interrupted".into())
}

fn run_until(chunks: usize, work: &(dyn Fn(usize) + Sync), stop: Option<Arc<Stop>>) -> Result<()> {
    let is_stopped =
        |stop: &Option<Arc<Stop>>| stop.as_ref().is_some_and(|stop| stop.0.load(Ordering::Relaxed));
    let width = if chunks <= 1 || IN_CHUNK.get() { 1 } else { width().min(chunks) };
    if width <= 1 {
        // In a chunk it is the job of that which is stopped.
        let stop = stop.filter(|_| !IN_CHUNK.get());
        let _within = Within::enter(stop.as_ref());
        for chunk in 0..chunks {
            work(chunk);
            if chunk + 1 < chunks && stopping() {
                return Err(stopped());
            }
        }
        return if is_stopped(&stop) { Err(stopped()) } else { Ok(()) };
    }
    Path::Threads.take();
    let shared = pool(width - 1);
    let forks = FORKS.load(Ordering::Relaxed);
    // SAFETY: only the lifetime changes. The closure is called only for claimed chunks that are not done;
    // this function returns, and unwinds, only after `close` and after all claimed chunks are done: `help`
    // catches the panics of `work` and of the host. (The one return before that is in a forked child, where
    // the threads that claimed them do not exist.)
    let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
    let job = Arc::new(Job {
        shares: shares(chunks, width),
        done: AtomicUsize::new(0),
        room: AtomicUsize::new(width - 1),
        panicked: AtomicBool::new(false),
        stop,
        what: profile::share(),
        work,
    });
    shared.jobs().push(job.clone());
    shared.posted.fetch_add(1, Ordering::SeqCst);
    if shared.sleeping.load(Ordering::SeqCst) > 0 {
        // Taking the lock orders this wake-up after a helper's decision to sleep.
        drop(shared.jobs());
        shared.wake.notify_all();
    }
    IN_CHUNK.set(true);
    job.help(0);
    IN_CHUNK.set(false);
    let claimed = job.close();
    shared.jobs().retain(|other| !Arc::ptr_eq(other, &job));
    let mut spins = 0u32;
    while job.done.load(Ordering::Acquire) < claimed {
        spins += 1;
        if spins < 4096 {
            std::hint::spin_loop();
        } else if FORKS.load(Ordering::Relaxed) != forks {
            // A signal handler forked in the middle, and this is the child: the helpers are in the parent.
            return Err(Error::Interrupted("the process was forked during this computation".into()));
        } else {
            std::thread::yield_now();
        }
    }
    if job.panicked.load(Ordering::Relaxed) {
        resume_unwind(Box::new("a chunk of parallel work panicked"));
    }
    if claimed < chunks || is_stopped(&job.stop) { Err(stopped()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_runs_once_even_nested_and_concurrently() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..200 {
                        let counts: Vec<AtomicUsize> = (0..17).map(|_| AtomicUsize::new(0)).collect();
                        run(17, &|chunk| {
                            counts[chunk].fetch_add(1, Ordering::Relaxed);
                            if round % 50 == 0 {
                                run(3, &|_| std::hint::black_box(()));
                            }
                        });
                        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn shares_have_each_chunk_once_and_a_thread_begins_with_its_own() {
        for (chunks, count) in [(2, 2), (7, 3), (8, 3), (64, 5), (1000, 1000)] {
            let order = |number: usize| {
                let seen: Mutex<Vec<usize>> = Mutex::default();
                let work = |chunk: usize| seen.lock().unwrap().push(chunk);
                let work: &(dyn Fn(usize) + Sync) = &work;
                let job = Job {
                    shares: shares(chunks, count),
                    done: AtomicUsize::new(0),
                    room: AtomicUsize::new(0),
                    panicked: AtomicBool::new(false),
                    stop: None,
                    what: None,
                    // SAFETY: only the lifetime changes, and the job ends before the closure does.
                    work: unsafe {
                        std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work)
                    },
                };
                job.help(number);
                assert_eq!((job.close(), job.done.into_inner()), (chunks, chunks));
                seen.into_inner().unwrap()
            };
            for number in [0, 1, count - 1, count, 3 * count + 1] {
                let (seen, share) =
                    (order(number), if number == 0 { 0 } else { 1 + (number - 1) % (count - 1) });
                assert_eq!(seen[0], shares(chunks, count)[share].begin);
                let mut sorted = seen;
                sorted.sort_unstable();
                assert_eq!(sorted, (0..chunks).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_job_that_is_stopped_runs_no_chunk_twice_and_says_so() {
        let counts: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
        let work = |chunk: usize| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
            // What a kernel within the chunk does is given up with it.
            let inner = run_interruptibly(3, &|_| std::thread::sleep(Duration::from_micros(30)));
            assert!(inner.is_ok() || stopping());
            if chunk == 3 {
                STOP.with_borrow(|stop| stop.as_ref().unwrap().0.store(true, Ordering::Relaxed));
            }
        };
        for _ in 0..2 {
            assert!(matches!(run_interruptibly(1000, &work), Err(Error::Interrupted(_))));
            assert!(!stopping());
            let total: usize = counts.iter().map(|count| count.swap(0, Ordering::Relaxed)).sum();
            assert!((4..1000).contains(&total), "{total}");
        }
        run(1000, &|chunk| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn no_more_threads_work_than_the_posting_thread_wants() {
        let threads_of = |width: usize| {
            set_own_width(width);
            let seen: Mutex<std::collections::HashSet<std::thread::ThreadId>> = Mutex::default();
            for _ in 0..20 {
                run(64, &|_| {
                    seen.lock().unwrap().insert(std::thread::current().id());
                    std::thread::sleep(Duration::from_micros(50));
                });
            }
            set_own_width(0);
            // Helpers take turns between jobs, never within one.
            let now = Mutex::new((0usize, 0usize));
            set_own_width(width);
            run(64, &|_| {
                {
                    let mut now = now.lock().unwrap();
                    now.0 += 1;
                    now.1 = now.1.max(now.0);
                }
                std::thread::sleep(Duration::from_micros(300));
                now.lock().unwrap().0 -= 1;
            });
            set_own_width(0);
            (seen.into_inner().unwrap().len(), now.into_inner().unwrap().1)
        };
        assert_eq!(threads_of(1), (1, 1));
        let (_, at_once) = threads_of(2);
        assert!(at_once <= 2);
        let (_, at_once) = threads_of(5);
        assert!((2..=5).contains(&at_once), "{at_once}");
        assert_eq!(width(), threads());
        set_own_width(3);
        assert_eq!((width(), std::thread::spawn(width).join().unwrap()), (3, threads()));
        set_own_width(0);
    }

    #[test]
    fn a_panic_in_a_chunk_reaches_the_caller() {
        let result = catch_unwind(|| run(4, &|chunk| assert!(chunk != 2, "expected")));
        assert!(result.is_err());
        run(4, &|_| {});
    }
}
