//! A pool of threads, since starting a thread takes longer than much of the work that it would do.
//!
//! Each job has a turn, and jobs with earlier turns run first. A job that borrows from its caller belongs to a
//! [`Scope`].

mod scope;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

pub use scope::Scope;

use crate::process::PerProcess;

/// A closure for any thread of a pool to run.
pub type Job = Box<dyn FnOnce() + Send>;

/// The position of a job in the order in which waiting jobs are run. Earlier turns have smaller numbers.
pub type Turn = u64;

/// A pool of threads, which run the jobs of one shared queue. They are started when jobs need them, and live until the
/// process ends.
///
/// ```
/// use cuzarr_device::internal::Threads;
/// let squares = Threads::workers().map(4, 0..100, |number: u64| number * number);
/// assert_eq!(squares[99], 9801);
/// ```
#[derive(Clone)]
pub struct Threads(Arc<Shared>);

struct Shared {
    most: AtomicUsize,
    /// Whether the threads are workers, whose jobs never wait for other jobs.
    are_workers: bool,
    turns: AtomicU64,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    /// The jobs that wait for a thread, by their turns. No queue in the map is empty.
    jobs: BTreeMap<Turn, VecDeque<Job>>,
    waiting: usize,
    started: usize,
    idle: usize,
}

/// The two thread pools that all calls in a process share.
#[derive(Default)]
struct Process {
    workers: OnceLock<Threads>,
    callers: OnceLock<Threads>,
}

static PROCESS: PerProcess<Process> = PerProcess::new();

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Number of processor cores that this process may use, which bounds its threads.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Runs a job on the calling thread, as if it were a worker.
pub fn run_here(job: Job) {
    let before = IS_WORKER.replace(true);
    run(job);
    IS_WORKER.set(before);
}

/// Whether the calling thread is a worker, whose jobs must not wait for other jobs.
pub fn is_worker() -> bool {
    IS_WORKER.get()
}

fn run(job: Job) {
    // A panic in a job must not end its thread. Values that the job drops report its unfinished work.
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl Threads {
    /// Makes a pool of at most `most` workers: threads whose jobs never wait for other jobs.
    pub fn new(most: usize) -> Threads {
        Threads::of(most, true)
    }

    fn of(most: usize, are_workers: bool) -> Threads {
        Threads(Arc::new(Shared {
            most: AtomicUsize::new(most.max(1)),
            are_workers,
            turns: AtomicU64::new(0),
            state: Mutex::default(),
            ready: Condvar::new(),
        }))
    }

    /// Returns the process's workers, which all calls share.
    pub fn workers() -> Threads {
        PROCESS.get().workers.get_or_init(|| Threads::new(cores())).clone()
    }

    /// Returns the process's thread pool for whole calls, which run while their callers continue. Its jobs may wait, so
    /// it has no limit.
    pub fn callers() -> Threads {
        PROCESS.get().callers.get_or_init(|| Threads::of(usize::MAX, false)).clone()
    }

    /// Largest number of threads that the pool may start.
    pub fn most(&self) -> usize {
        self.0.most.load(Ordering::Relaxed)
    }

    /// Raises the largest number of threads that the pool may start to `most`, if it is less.
    pub fn grow(&self, most: usize) {
        self.0.most.fetch_max(most, Ordering::Relaxed);
    }

    /// Returns a new turn, which comes after all turns so far.
    pub fn next_turn(&self) -> Turn {
        self.0.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Queues `job` behind all waiting jobs, for a thread of the pool to run.
    pub fn submit(&self, job: Job) {
        self.submit_at(self.next_turn(), job);
    }

    /// Queues `job`, to run when its turn comes. If there is no thread and none can be started, runs it before this
    /// returns.
    pub fn submit_at(&self, turn: Turn, job: Job) {
        if self.queue(turn, job).is_err() {
            self.run_here_if_alone();
        }
    }

    /// Whether jobs wait for a thread of the pool.
    pub fn is_wanted(&self) -> bool {
        self.0.lock().waiting > 0
    }

    /// Applies `run` to each piece of work, on at most `threads` threads including the caller's. Results are in the
    /// order of the work. If all threads are busy, the caller does the work alone.
    pub fn map<I: Send, O: Send>(
        &self,
        threads: usize,
        work: impl IntoIterator<Item = I, IntoIter: Send>,
        run: impl Fn(I) -> O + Sync,
    ) -> Vec<O> {
        let work = work.into_iter();
        let threads = threads.min(work.size_hint().1.unwrap_or(usize::MAX));
        if threads <= 1 {
            return work.map(run).collect();
        }
        let (work, results) = (Mutex::new(work.enumerate()), Mutex::new(Vec::new()));
        let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
        let each = || {
            while let Some((at, one)) = next() {
                let result = run(one);
                results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
            }
        };
        self.scope(|scope| {
            for _ in 1..threads {
                // If the system refuses a thread, the others do its work.
                let _ = scope.spawn(each);
            }
            each();
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Queues a job for any thread of the pool. Starts a thread for it if no thread is idle and the limit allows one
    /// more.
    ///
    /// # Errors
    /// When the system refuses the thread. The job then waits for another thread.
    fn queue(&self, turn: Turn, job: Job) -> io::Result<()> {
        let mut state = self.0.lock();
        state.jobs.entry(turn).or_default().push_back(job);
        state.waiting += 1;
        let mut begun = Ok(());
        if state.idle < state.waiting && state.started < self.most() {
            state.started += 1;
            let number = state.started;
            drop(state);
            let shared = Arc::clone(&self.0);
            let name = if self.0.are_workers { "cuzarr" } else { "cuzarr-call" };
            let builder = std::thread::Builder::new().name(format!("{name}-{number}"));
            begun = builder.spawn(move || shared.work()).map(|_| ()).inspect_err(|_| self.0.lock().started -= 1);
        } else {
            drop(state);
        }
        self.0.ready.notify_one();
        begun
    }

    /// Runs the waiting jobs on the caller's thread, if the pool has no thread and the system refused one.
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

impl State {
    /// Removes and returns the waiting job with the earliest turn; `None` if no job waits.
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        IS_WORKER.set(self.are_workers);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.next() {
                drop(state);
                run(job);
                state = self.lock();
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
        let threads = Threads::new(1);
        let (hold, held) = mpsc::channel::<()>();
        let (sender, order) = mpsc::channel();
        threads.submit(Box::new(move || assert!(held.recv().is_err())));
        let (early, late) = (threads.next_turn(), threads.next_turn());
        for (turn, name) in [(late, "third"), (early, "first"), (late, "fourth"), (early, "second")] {
            let sender = sender.clone();
            threads.submit_at(turn, Box::new(move || sender.send(name).unwrap()));
        }
        drop((hold, sender));
        assert_eq!(order.into_iter().collect::<Vec<_>>(), ["first", "second", "third", "fourth"]);
    }

    #[test]
    fn every_job_runs_and_a_panic_stops_nothing() {
        let threads = Threads::new(3);
        let (done, jobs) = (Arc::new(AtomicUsize::new(0)), 200);
        let (sender, receiver) = mpsc::channel::<()>();
        for number in 0..jobs {
            let (done, sender) = (Arc::clone(&done), sender.clone());
            threads.submit(Box::new(move || {
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

    #[test]
    fn work_keeps_its_order_and_nests_without_a_free_thread() {
        let threads = Threads::new(2);
        let squares = threads.map(4, 0..100_usize, |at| {
            let sums = threads.map(4, 0..at, |one| one);
            at + sums.iter().sum::<usize>()
        });
        assert_eq!(squares, (0..100_usize).map(|at| at + at * at.saturating_sub(1) / 2).collect::<Vec<_>>());
        assert!(threads.map(4, Vec::<u8>::new(), |one| one).is_empty());
    }
}
