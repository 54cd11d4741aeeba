//! The worker threads of the process. Jobs never wait for other jobs, so any number of calls can share them.
//!
//! Jobs have turns. All jobs of one batch of a read share a turn, which is drawn when the batch begins, and jobs of earlier turns
//! come first. So threads finish begun work before they begin more, and the device gets its first batch soon.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::Workers;

type Job = Box<dyn FnOnce() + Send>;

/// Worker threads. They start with the first job and live as long as the process.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

/// The turn of a job. Earlier turns are smaller.
pub(crate) type Turn = u64;

struct Shared {
    threads: AtomicUsize,
    turns: AtomicU64,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// The waiting jobs by turn. No queue is empty.
    jobs: BTreeMap<Turn, VecDeque<Job>>,
    waiting: usize,
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

/// The calling thread as the only worker, for work that takes less time than waking another thread.
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

/// Runs `work` on `threads` threads at once, including the calling thread, and returns when all have ended. `work` takes pieces
/// of work one by one, so it does not matter when the system refuses a thread.
pub fn in_threads(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, &work);
        }
        work();
    });
}

impl Pool {
    /// A pool of at most `threads` threads.
    pub fn new(threads: usize) -> Pool {
        Pool(Arc::new(Shared {
            threads: AtomicUsize::new(threads.max(1)),
            turns: AtomicU64::new(0),
            state: Mutex::default(),
            ready: Condvar::new(),
        }))
    }

    /// Raises the pool's limit to at least `threads` threads.
    pub(crate) fn grow(&self, threads: usize) {
        self.0.threads.fetch_max(threads, Ordering::Relaxed);
    }

    /// Draws a turn behind all earlier turns.
    pub(crate) fn next_turn(&self) -> Turn {
        self.0.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `job` soon, behind all waiting jobs.
    pub(crate) fn submit(&self, job: Job) {
        self.submit_at(self.next_turn(), job);
    }

    /// Runs `job` when its turn comes. When no thread can be started at all, it runs at once.
    pub(crate) fn submit_at(&self, turn: Turn, job: Job) {
        let mut state = self.0.lock();
        state.jobs.entry(turn).or_default().push_back(job);
        state.waiting += 1;
        if state.idle < state.waiting && state.started < self.0.threads.load(Ordering::Relaxed) {
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

    /// Whether jobs wait for a thread.
    fn is_wanted(&self) -> bool {
        self.0.lock().waiting > 0
    }

    /// Does the work on the caller's thread when the system refused a thread and there is no other one.
    fn run_here_if_alone(&self) {
        loop {
            let mut state = self.0.lock();
            if state.started > 0 {
                return;
            }
            let Some(job) = state.next() else { return };
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

/// The jobs of one call. At most `threads` of them run at once, in a pool that has more for other calls.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Queue>);

struct Queue {
    pool: Pool,
    threads: usize,
    /// The jobs that wait, and how many are in the pool.
    state: Mutex<(VecDeque<Job>, usize)>,
}

impl Jobs {
    pub(crate) fn new(pool: Pool, threads: usize) -> Jobs {
        Jobs(Arc::new(Queue { pool, threads: threads.max(1), state: Mutex::default() }))
    }

    /// Runs `job` soon, behind the call's waiting jobs.
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

    /// Runs `job` in the pool, and the jobs behind it. Jobs of other calls that wait come between.
    fn begin(&self, job: Job) {
        let jobs = self.clone();
        self.0.pool.submit(Box::new(move || {
            run(job);
            while let Some(next) = jobs.next() {
                if jobs.0.pool.is_wanted() {
                    return jobs.begin(next);
                }
                run(next);
            }
        }));
    }

    /// The job that goes on after one has ended; `None` where one thread fewer is needed now.
    fn next(&self) -> Option<Job> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.0.pop_front();
        state.1 -= usize::from(next.is_none());
        next
    }
}

/// A share of the pool for one batch of a call, with a part of the process's threads.
#[derive(Clone)]
pub(crate) struct Share {
    pub(crate) pool: Pool,
    pub(crate) threads: usize,
    pub(crate) turn: Turn,
}

impl Workers for Share {
    fn spawn(&self, job: Job) {
        self.pool.submit_at(self.turn, job);
    }

    fn count(&self) -> usize {
        self.threads.clamp(1, self.pool.count())
    }

    fn handle(&self) -> Option<Arc<dyn Workers>> {
        Some(Arc::new(self.clone()))
    }
}

impl State {
    /// The job whose turn it is.
    fn next(&mut self) -> Option<Job> {
        let mut first = self.jobs.first_entry()?;
        let job = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.waiting -= usize::from(job.is_some());
        job
    }
}

fn run(job: Job) {
    // A job that panics must not end its thread. The values that it drops report the work that is left undone.
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
            if let Some(job) = state.next() {
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
    fn jobs_of_earlier_turns_come_first() {
        let pool = Pool::new(1);
        let (hold, held) = mpsc::channel::<()>();
        let (sender, order) = mpsc::channel();
        pool.submit(Box::new(move || assert!(held.recv().is_err())));
        let (early, late) = (pool.next_turn(), pool.next_turn());
        for (turn, name) in [(late, "third"), (early, "first"), (late, "fourth"), (early, "second")] {
            let sender = sender.clone();
            pool.submit_at(turn, Box::new(move || sender.send(name).unwrap()));
        }
        drop((hold, sender));
        assert_eq!(order.into_iter().collect::<Vec<_>>(), ["first", "second", "third", "fourth"]);
    }

    #[test]
    fn calls_keep_to_their_threads_and_lose_no_job() {
        let (pool, now, most) = (Pool::new(4), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
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
