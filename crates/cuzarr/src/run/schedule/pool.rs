//! The worker threads of calls: each call's share of the process's threads, and its queue of jobs. A job never waits
//! for another job, so any number of calls can share the threads.
//!
//! All jobs of one batch of a read share a turn number, which is drawn when the batch begins. So threads finish a batch
//! that was begun before they begin another, and the device gets its first batch soon.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::internal::{Job, Threads, Turn, run_here};

use crate::store::Workers;

/// Workers that consist of the calling thread alone, for work that takes less time than waking another thread.
pub(crate) struct Here;

impl Workers for Here {
    fn spawn(&self, job: Job) {
        run_here(job);
    }

    fn count(&self) -> usize {
        1
    }
}

impl Workers for Threads {
    fn spawn(&self, job: Job) {
        self.submit(job);
    }

    fn count(&self) -> usize {
        self.most()
    }

    fn handle(&self) -> Option<Arc<dyn Workers>> {
        Some(Arc::new(self.clone()))
    }
}

/// The queue of one call's jobs, of which at most `threads` run at once, in a pool that other calls share.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Queue>);

struct Queue {
    pool: Threads,
    threads: usize,
    /// The jobs that wait, and the number of jobs that were given to the pool and have not ended.
    state: Mutex<(VecDeque<Job>, usize)>,
}

impl Jobs {
    pub(crate) fn new(pool: Threads, threads: usize) -> Jobs {
        Jobs(Arc::new(Queue { pool, threads: threads.max(1), state: Mutex::default() }))
    }

    /// Runs `job` soon, after the call's waiting jobs.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 == self.0.threads {
            state.0.push_back(job);
            return;
        }
        state.1 += 1;
        drop(state);
        self.begin(job);
    }

    /// Runs one of the call's waiting jobs on this thread. Returns false if none waits.
    pub(crate) fn help(&self) -> bool {
        let next = self.0.state.lock().unwrap_or_else(PoisonError::into_inner).0.pop_front();
        next.map(run_here).is_some()
    }

    /// Runs `job` in the pool, and after it the jobs that wait. Waiting jobs of other calls may run in between.
    fn begin(&self, job: Job) {
        let jobs = self.clone();
        self.0.pool.submit(Box::new(move || {
            run_here(job);
            while let Some(next) = jobs.next() {
                if jobs.0.pool.is_wanted() {
                    return jobs.begin(next);
                }
                run_here(next);
            }
        }));
    }

    /// Returns the job that the pool runs next when one of the call's jobs has ended. If there is none, the call uses
    /// one thread fewer.
    fn next(&self) -> Option<Job> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.0.pop_front();
        state.1 -= usize::from(next.is_none());
        next
    }
}

/// The threads that one batch may use: some of the process's threads, in turn with other batches.
#[derive(Clone)]
pub(crate) struct Share {
    pub(crate) pool: Threads,
    pub(crate) threads: usize,
    pub(crate) turn: Turn,
}

impl Workers for Share {
    fn spawn(&self, job: Job) {
        self.pool.submit_at(self.turn, job);
    }

    fn count(&self) -> usize {
        self.threads.clamp(1, self.pool.most())
    }

    fn handle(&self) -> Option<Arc<dyn Workers>> {
        Some(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_waiting_caller_helps() {
        let (pool, (sender, done)) = (Threads::new(1), mpsc::channel());
        let (jobs, held) = (Jobs::new(pool, 1), Arc::new(Mutex::new(())));
        let hold = held.lock().unwrap();
        let blocked = Arc::clone(&held);
        jobs.submit(Box::new(move || drop(blocked.lock())));
        let helper = std::thread::current().id();
        jobs.submit(Box::new(move || sender.send(std::thread::current().id()).unwrap()));
        assert!(jobs.help() && !jobs.help());
        assert_eq!(done.recv().unwrap(), helper);
        drop(hold);
    }

    #[test]
    fn calls_keep_to_their_threads_and_lose_no_job() {
        let (pool, now, most) = (Threads::new(4), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (sender, order) = mpsc::channel();
        for (threads, name) in [(1, "one"), (2, "two")] {
            let jobs = Jobs::new(pool.clone(), threads);
            for number in 0..50 {
                let (now, most, sender) = (Arc::clone(&now), Arc::clone(&most), sender.clone());
                jobs.submit(Box::new(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    sender.send((name, number)).unwrap();
                    if number % 20 == 0 {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                }));
            }
        }
        drop(sender);
        let order: Vec<_> = order.into_iter().collect();
        let of_one: Vec<_> = order.iter().filter(|(name, _)| *name == "one").map(|(_, number)| *number).collect();
        assert_eq!(of_one, (0..50).collect::<Vec<_>>(), "one thread keeps their order");
        assert_eq!(order.len(), 100, "a panic loses no job behind it");
        assert!(most.load(Ordering::SeqCst) <= 3);
    }
}
