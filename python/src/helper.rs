//! The helper thread that runs a call while Python's main thread checks for signals. It is kept for the next call, because a new
//! thread, and what CUDA sets up for each thread, take longer than reading a small array.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// A thread of this process that waits for jobs. It ends when the value is dropped.
pub struct Helper {
    process: u32,
    jobs: Sender<Job>,
}

/// The helper that waits; `None` while it works.
static WAITING: Mutex<Option<Helper>> = Mutex::new(None);

impl Helper {
    /// Takes the helper that waits, or starts a new one. `None` when the system refuses a thread.
    pub fn take() -> Option<Helper> {
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take();
        match waiting {
            Some(helper) if helper.process == std::process::id() => Some(helper),
            other => {
                // After a fork, the parent's thread does not exist here, and its locks may be held for ever.
                std::mem::forget(other);
                Helper::start()
            }
        }
    }

    fn start() -> Option<Helper> {
        let (jobs, waiting) = channel::<Job>();
        let work = move || waiting.into_iter().for_each(run);
        std::thread::Builder::new().name("cuzarr-call".into()).spawn(work).ok()?;
        Some(Helper { process: std::process::id(), jobs })
    }

    /// Begins `work`. Its result comes through the returned channel; after a panic, the channel closes without one.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = channel();
        let job: Job = Box::new(move || {
            // This fails only when the caller's thread is gone.
            let _ = sender.send(work());
        });
        if let Err(SendError(job)) = self.jobs.send(job) {
            run(job);
        }
        receiver
    }

    /// Keeps the thread for the next call, after its work is done.
    pub fn keep(self) {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }
}

fn run(job: Job) {
    // After a panic, the channel closes, which tells the caller.
    let _ = catch_unwind(AssertUnwindSafe(job));
}
