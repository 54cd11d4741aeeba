//! Jobs that borrow from their caller, like those of [`std::thread::scope`], but on pooled threads.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Job, Threads};

/// A scope for jobs that borrow values which live longer than the scope.
pub struct Scope<'scope, 'env: 'scope> {
    threads: Threads,
    jobs: Arc<ScopeJobs>,
    // Invariant in both lifetimes, like the scopes of the standard library.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// The jobs that were spawned in a scope, waiting or running. Pooled threads hold it in an `Arc`; after the scope has
/// ended, they find no job there.
#[derive(Default)]
struct ScopeJobs {
    state: Mutex<ScopeState>,
    ended: Condvar,
}

#[derive(Default)]
struct ScopeState {
    waiting: VecDeque<Job>,
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl Threads {
    /// Runs `work` with a scope, in which it can spawn jobs. When this returns, all jobs that began have ended. Jobs
    /// that did not begin before `work` ended never run.
    ///
    /// # Panics
    /// When `work` or a job panics.
    pub fn scope<'env, T>(&self, work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        let scope = Scope { threads: self.clone(), jobs: Arc::default(), _scope: PhantomData, _env: PhantomData };
        let worked = catch_unwind(AssertUnwindSafe(|| work(&scope)));
        let panic = scope.jobs.end();
        match (worked, panic) {
            (Ok(result), None) => result,
            (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Queues `job` for a thread of the pool, which runs it soon.
    ///
    /// # Errors
    /// When the system refuses a thread. The job then runs only if another thread becomes free before the scope ends.
    pub fn spawn(&'scope self, job: impl FnOnce() + Send + 'scope) -> io::Result<()> {
        let job: Box<dyn FnOnce() + Send + 'scope> = Box::new(job);
        // SAFETY: only the lifetime changes. `ScopeJobs::end` runs before 'scope ends: it drops waiting jobs, and waits
        // for running ones. No other code keeps a job.
        let job = unsafe { mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Job>(job) };
        self.jobs.lock().waiting.push_back(job);
        let jobs = Arc::clone(&self.jobs);
        self.threads.queue(self.threads.next_turn(), Box::new(move || jobs.run_next()))
    }
}

impl ScopeJobs {
    fn lock(&self) -> MutexGuard<'_, ScopeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one of the scope's jobs on the calling thread, if any is still waiting.
    fn run_next(&self) {
        let mut state = self.lock();
        let Some(job) = state.waiting.pop_front() else { return };
        state.running += 1;
        drop(state);
        let panic = catch_unwind(AssertUnwindSafe(job)).err();
        let mut state = self.lock();
        state.panic = state.panic.take().or(panic);
        state.running -= 1;
        self.ended.notify_all();
    }

    /// Drops waiting jobs, waits until no job of the scope runs, and returns the first panic.
    fn end(&self) -> Option<Box<dyn Any + Send>> {
        let mut state = self.lock();
        let unbegun = mem::take(&mut state.waiting);
        drop(state);
        // Even if dropping them panics, the running jobs are waited for.
        let panic = catch_unwind(AssertUnwindSafe(|| drop(unbegun))).err();
        state = self.lock();
        while state.running > 0 {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.panic.take().or(panic)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn jobs_have_ended_with_their_scope() {
        let (threads, ended) = (Threads::new(usize::MAX), AtomicUsize::new(0));
        for _ in 0..200 {
            let (begun, begins) = mpsc::channel();
            threads.scope(|scope| {
                let ended = &ended;
                scope
                    .spawn(move || {
                        begun.send(()).unwrap();
                        std::thread::yield_now();
                        ended.fetch_add(1, Ordering::SeqCst);
                    })
                    .unwrap();
                begins.recv().unwrap();
            });
        }
        assert_eq!(ended.into_inner(), 200);
    }

    #[test]
    fn a_job_that_has_not_begun_is_dropped_before_the_scope_ends() {
        struct Counted<'a>(&'a AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (threads, (hold, held)) = (Threads::new(1), mpsc::channel::<()>());
        threads.submit(Box::new(move || assert!(held.recv().is_err())));
        let dropped = AtomicUsize::new(0);
        threads.scope(|scope| {
            let counted = Counted(&dropped);
            let job = move || {
                drop(counted);
                panic!("never runs");
            };
            scope.spawn(job).unwrap();
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        drop(hold);
    }

    #[test]
    fn a_panic_of_a_job_is_the_scopes() {
        let threads = Threads::new(usize::MAX);
        let (begun, begins) = mpsc::channel();
        let scope = || {
            threads.scope(|scope| {
                let job = move || {
                    begun.send(()).unwrap();
                    resume_unwind(Box::new("on purpose"));
                };
                scope.spawn(job).unwrap();
                begins.recv().unwrap();
            });
        };
        let panic = catch_unwind(AssertUnwindSafe(scope)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
