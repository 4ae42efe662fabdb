//! Fork-join over chunks of work.
//!
//! The caller posts a job and works on it; helpers that are awake join in.
//! Chunks are claimed by one atomic counter, so nobody waits for a chunk that
//! nobody has begun: when the counter is exhausted the caller waits only for
//! chunks already claimed. Helpers spin for a while after their last chunk and
//! then park. A job posted from within a chunk runs on its own thread. After a
//! fork the child has no helpers and starts new ones.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle helper looks for work before it parks.
const SPIN: Duration = Duration::from_micros(60);

struct Job {
    next: AtomicUsize,
    done: AtomicUsize,
    total: usize,
    panicked: AtomicBool,
    /// Valid while an unfinished chunk is claimed: the caller returns only
    /// after `done == total`.
    work: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `work` is `Sync` and is used only while the caller keeps it alive.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Claims and runs chunks until none is left.
    fn help(&self) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.total {
                return;
            }
            // SAFETY: this chunk is claimed and not done, so the caller is still waiting.
            let work = unsafe { &*self.work };
            if catch_unwind(AssertUnwindSafe(|| work(chunk))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.done.fetch_add(1, Ordering::Release);
        }
    }
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Vec<Arc<Job>>>,
    wake: Condvar,
    /// Counts posted jobs; idle helpers watch it.
    posted: AtomicU64,
    sleeping: AtomicUsize,
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self) -> Option<Arc<Job>> {
        self.jobs().iter().find(|job| job.next.load(Ordering::Relaxed) < job.total).cloned()
    }

    fn helper(&self) {
        IN_CHUNK.set(true);
        loop {
            let seen = self.posted.load(Ordering::Acquire);
            while let Some(job) = self.find() {
                job.help();
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
}

static POOL: Mutex<Option<Arc<Shared>>> = Mutex::new(None);
/// Set in a forked child, whose helpers do not exist.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Threads that work on one job, the caller included: `FERRAX_NUM_THREADS`, or
/// as many as this process may use.
pub fn threads() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("FERRAX_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        wanted
            .filter(|&n| n > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    })
}

#[cfg(unix)]
extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::SeqCst);
}

fn pool() -> Option<Arc<Shared>> {
    static REGISTER: OnceLock<()> = OnceLock::new();
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if FORKED.swap(false, Ordering::SeqCst) {
        // The old pool's locks may be held by threads that are gone.
        std::mem::forget(pool.take());
    }
    if let Some(shared) = &*pool {
        return Some(shared.clone());
    }
    #[cfg(unix)]
    REGISTER.get_or_init(|| {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    });
    let shared = Arc::new(Shared::default());
    for index in 1..threads() {
        let helper = shared.clone();
        let thread = std::thread::Builder::new().name(format!("ferrax-{index}"));
        if thread.spawn(move || helper.helper()).is_err() {
            break;
        }
    }
    *pool = Some(shared.clone());
    Some(shared)
}

/// Calls `work` for every chunk in `0..chunks`, each once, on any thread.
/// Returns when all calls have. Panics if one did.
pub fn run(chunks: usize, work: &(dyn Fn(usize) + Sync)) {
    let alone = chunks <= 1 || threads() <= 1 || IN_CHUNK.get();
    let Some(shared) = (if alone { None } else { pool() }) else {
        (0..chunks).for_each(work);
        return;
    };
    // SAFETY: only the lifetime changes; `run` does not return before the last claimed chunk is done.
    let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
    let job = Arc::new(Job {
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        total: chunks,
        panicked: AtomicBool::new(false),
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
    job.help();
    IN_CHUNK.set(false);
    shared.jobs().retain(|other| !Arc::ptr_eq(other, &job));
    let mut spins = 0u32;
    while job.done.load(Ordering::Acquire) < chunks {
        spins += 1;
        if spins < 4096 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
    if job.panicked.load(Ordering::Relaxed) {
        resume_unwind(Box::new("a chunk of parallel work panicked"));
    }
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
    fn a_panic_in_a_chunk_reaches_the_caller() {
        let result = catch_unwind(|| run(4, &|chunk| assert!(chunk != 2, "expected")));
        assert!(result.is_err());
        run(4, &|_| {});
    }
}
