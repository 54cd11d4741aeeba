//! The thread that does a call while Python's main thread listens for signals. It is kept for the next call: starting one, and
//! what CUDA makes for each thread that comes to it, takes longer than reading a small array.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for jobs, of this process; it ends when this is dropped.
pub struct Helper {
    process: u32,
    jobs: Sender<Job>,
}

/// The one that waits, unless it is at work.
static WAITING: Mutex<Option<Helper>> = Mutex::new(None);

impl Helper {
    /// The one that waits, or a new one; `None` when the system refuses a thread.
    pub fn take() -> Option<Helper> {
        let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner).take();
        match waiting {
            Some(helper) if helper.process == std::process::id() => Some(helper),
            other => {
                // A parent's thread does not exist here, and its locks may be held for ever.
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

    /// Begins `work`, whose result comes through what is returned; nothing comes when it panics.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = channel();
        let job: Job = Box::new(move || {
            // Nobody listens only when the caller's thread is gone.
            let _ = sender.send(work());
        });
        if let Err(SendError(job)) = self.jobs.send(job) {
            run(job);
        }
        receiver
    }

    /// Keeps the thread, whose work is done, for the next call.
    pub fn keep(self) {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
    }
}

fn run(job: Job) {
    // The caller learns of a panic by the end of the channel.
    let _ = catch_unwind(AssertUnwindSafe(job));
}
