//! Loops over the threads of the caller's pool.
//!
//! The handler's thread works too, and waits only for steps that somebody has begun: the pool may be busy, or
//! have one thread. Invariant: what a task borrows it touches only in a step that is claimed and not done, which the
//! loop waits for; a task that comes later finds no step left, and gives its share of the job up.
//!
//! Cost: an allocation a loop, a task for each thread.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::abi;
use crate::call::Call;
use crate::error::{Error, Result, take_error};

struct Job {
    next: AtomicUsize,
    count: usize,
    panicked: AtomicBool,
    done: Mutex<usize>,
    changed: Condvar,
    work: *const (dyn Fn(usize) + Sync),
}

// SAFETY: `work` is `Sync`, and called only in steps that its owner waits for; the rest is made for threads.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    fn help(&self) {
        let mut steps = 0;
        loop {
            let step = self.next.fetch_add(1, Ordering::Relaxed);
            if step >= self.count {
                break;
            }
            // SAFETY: this step is claimed and not counted as done, so `parallel`, which borrows the function, waits.
            let work = unsafe { &*self.work };
            if catch_unwind(AssertUnwindSafe(|| work(step))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            steps += 1;
        }
        if steps > 0 {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            *done += steps;
            if *done == self.count {
                self.changed.notify_all();
            }
        }
    }

    fn wait(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while *done < self.count {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

unsafe extern "C" fn task(data: *mut c_void) {
    // SAFETY: the share of the job that was handed over with this task.
    unsafe { Arc::from_raw(data.cast_const().cast::<Job>()) }.help();
}

impl Call<'_> {
    /// How many threads the caller's pool has; 1 where it has none.
    #[must_use]
    pub fn threads(&self) -> usize {
        let mut count = 1;
        let mut arguments = abi::NumThreads {
            size: size_of::<abi::NumThreads>(),
            extension: std::ptr::null_mut(),
            context: self.frame().context,
            count: &raw mut count,
        };
        // SAFETY: the table is the caller's, of a version that has this function.
        let known = unsafe {
            let error = ((*self.frame().api).pool_threads)((&raw mut arguments).cast());
            take_error(self.frame().api, error)
        };
        if known.is_ok() { usize::try_from(count).unwrap_or(1).max(1) } else { 1 }
    }

    /// Calls `work` with each number below `count`, on the threads of the caller's pool. It returns when all are done.
    ///
    /// # Errors
    /// `Internal` where one panicked; the others are done all the same.
    pub fn parallel(&self, count: usize, work: &(dyn Fn(usize) + Sync)) -> Result<()> {
        let work: *const (dyn Fn(usize) + Sync + '_) = work;
        // SAFETY: only the lifetime changes: `Job::help` says why it is not called after this function.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let job = Arc::new(Job {
            next: AtomicUsize::new(0),
            count,
            panicked: AtomicBool::new(false),
            done: Mutex::new(0),
            changed: Condvar::new(),
            work,
        });
        for _ in 1..self.threads().min(count) {
            if !self.schedule(&job) {
                break;
            }
        }
        job.help();
        job.wait();
        if job.panicked.load(Ordering::Relaxed) {
            return Err(Error::internal("a step of a parallel loop panicked"));
        }
        Ok(())
    }

    /// Hands a share of a job to the pool; false where there is no pool.
    fn schedule(&self, job: &Arc<Job>) -> bool {
        let data = Arc::into_raw(job.clone());
        let mut arguments = abi::Schedule {
            size: size_of::<abi::Schedule>(),
            extension: std::ptr::null_mut(),
            context: self.frame().context,
            task,
            data: data.cast_mut().cast(),
        };
        // SAFETY: the table is the caller's, of a version that has this function. What it refuses is ours again.
        unsafe {
            let error = ((*self.frame().api).pool_schedule)((&raw mut arguments).cast());
            let taken = take_error(self.frame().api, error).is_ok();
            if !taken {
                drop(Arc::from_raw(data));
            }
            taken
        }
    }

    /// A number of the run that the call is part of.
    ///
    /// # Errors
    /// As the caller has it.
    pub fn run_id(&self) -> Result<i64> {
        let mut arguments = abi::RunId {
            size: size_of::<abi::RunId>(),
            extension: std::ptr::null_mut(),
            context: self.frame().context,
            id: 0,
        };
        // SAFETY: the table is the caller's, of a version that has this function.
        unsafe {
            let error = ((*self.frame().api).run_id)((&raw mut arguments).cast());
            take_error(self.frame().api, error)?;
        }
        Ok(arguments.id)
    }

    /// The number of the device that the call runs on.
    ///
    /// # Errors
    /// As the caller has it.
    pub fn device(&self) -> Result<c_int> {
        let mut arguments = abi::DeviceOrdinal {
            size: size_of::<abi::DeviceOrdinal>(),
            extension: std::ptr::null_mut(),
            context: self.frame().context,
            ordinal: 0,
        };
        // SAFETY: as above.
        unsafe {
            let error = ((*self.frame().api).device)((&raw mut arguments).cast());
            take_error(self.frame().api, error)?;
        }
        Ok(arguments.ordinal)
    }
}
