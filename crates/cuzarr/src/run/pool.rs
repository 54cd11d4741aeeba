//! The worker threads of the process. Jobs never wait for other jobs, so any number of calls can share them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::Workers;

type Job = Box<dyn FnOnce() + Send>;

/// Worker threads. They start with the first job and live as long as the process.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    threads: AtomicUsize,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    started: usize,
    idle: usize,
    closed: bool,
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread belongs to a pool.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// The calling thread as the only worker, for work that is done sooner than another thread wakes up.
pub(crate) struct Here;

impl Workers for Here {
    fn spawn(&self, job: Job) {
        let before = IS_WORKER.replace(true);
        run(job);
        IS_WORKER.set(before);
    }

    fn count(&self) -> usize {
        1
    }
}

impl Pool {
    /// A pool of at most so many threads.
    pub fn new(threads: usize) -> Pool {
        Pool(Arc::new(Shared {
            threads: AtomicUsize::new(threads.max(1)),
            state: Mutex::default(),
            ready: Condvar::new(),
        }))
    }

    /// Lets the pool have at least so many threads.
    pub(crate) fn grow(&self, threads: usize) {
        self.0.threads.fetch_max(threads, Ordering::Relaxed);
    }

    /// Runs `job` soon. When no thread can be started at all, runs it at once.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.0.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.started < self.0.threads.load(Ordering::Relaxed) {
            state.started += 1;
            let number = state.started;
            drop(state);
            let shared = Arc::clone(&self.0);
            let builder = std::thread::Builder::new().name(format!("cuzarr-{number}"));
            if builder.spawn(move || shared.work()).is_err() {
                self.0.lock().started -= 1;
                self.run_here_if_alone();
            }
        } else {
            drop(state);
        }
        self.0.ready.notify_one();
    }

    /// The system refused a thread: with no other one, the caller does the work.
    fn run_here_if_alone(&self) {
        loop {
            let mut state = self.0.lock();
            if state.started > 0 {
                return;
            }
            let Some(job) = state.jobs.pop_front() else { return };
            drop(state);
            run(job);
        }
    }
}

impl Workers for Pool {
    fn spawn(&self, job: Job) {
        self.submit(job);
    }

    fn count(&self) -> usize {
        self.0.threads.load(Ordering::Relaxed)
    }

    fn handle(&self) -> Option<Arc<dyn Workers>> {
        Some(Arc::new(self.clone()))
    }
}

/// A pool that takes part in one call with only some of the process's threads.
pub(crate) struct Share<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) threads: usize,
}

impl Workers for Share<'_> {
    fn spawn(&self, job: Job) {
        self.pool.submit(job);
    }

    fn count(&self) -> usize {
        self.threads.clamp(1, self.pool.count())
    }

    fn handle(&self) -> Option<Arc<dyn Workers>> {
        self.pool.handle()
    }
}

fn run(job: Job) {
    // A job that panics must not take its thread along; what it left undone is reported by the values it dropped.
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        IS_WORKER.set(true);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(job);
                state = self.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_job_runs_and_a_panic_stops_nothing() {
        let pool = Pool::new(3);
        let (done, jobs) = (Arc::new(AtomicUsize::new(0)), 200);
        let (sender, receiver) = mpsc::channel::<()>();
        for number in 0..jobs {
            let (done, sender) = (Arc::clone(&done), sender.clone());
            pool.submit(Box::new(move || {
                assert!(is_worker());
                done.fetch_add(1, Ordering::Relaxed);
                drop(sender);
                if number % 50 == 0 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            }));
        }
        drop(sender);
        assert!(receiver.recv().is_err(), "every sender was dropped, so every job ran");
        assert_eq!(done.load(Ordering::Relaxed), jobs);
    }
}
