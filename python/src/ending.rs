//! Keeps threads from running Python code once the interpreter has begun to end. While it shuts down, Python ends every
//! thread that asks for its lock. Such a thread is unwound, and PyO3 then aborts the process. So once the end has
//! begun, only the thread that ends the interpreter may attach. It first waits for the attached threads. A thread that
//! returns from work without the lock does not attach again.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cuzarr::{Error, ErrorKind};
use cuzarr_device::PerProcess;
use pyo3::prelude::*;

/// Longest time that the end of the interpreter waits for threads that run Python code; then it ends nevertheless. A
/// thread that sleeps longer in Python code seldom wakes before the process has ended.
const PATIENCE: Duration = Duration::from_secs(1);

// A forked child has none of its parent's threads.
static ENDING: PerProcess<Ending> = PerProcess::new();

#[derive(Default)]
struct Ending {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of threads that are attached to the interpreter, or about to attach.
    attached: usize,
    /// The thread that ends the Python interpreter; `None` until the interpreter begins to end.
    ender: Option<ThreadId>,
}

impl Ending {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// Nesting depth of this thread's attachments to the Python interpreter; 0 if it is not attached. Python code that
    /// the thread runs may call Rust, which attaches it again.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A guard that counts this thread as attached to the Python interpreter until the guard is dropped.
struct Attached(&'static Ending);

impl Attached {
    fn new() -> Option<Attached> {
        let ending = ENDING.get();
        let mut state = ending.state();
        if DEPTH.get() == 0 && state.ender.is_some_and(|ender| ender != thread::current().id()) {
            return None;
        }
        state.attached += 1;
        DEPTH.set(DEPTH.get() + 1);
        Some(Attached(ending))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.attached -= 1;
        drop(state);
        DEPTH.set(DEPTH.get() - 1);
        self.0.left.notify_all();
    }
}

/// Attaches this thread to the interpreter; `None` if the interpreter has ended, or is about to.
pub fn try_attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _attached = Attached::new()?;
    Python::try_attach(work)
}

/// Attaches this thread to the interpreter and runs `work`; an error if the interpreter has ended.
///
/// # Errors
/// `Cancelled` when the interpreter has ended, or is about to; those of `work`.
pub fn attach<T>(work: impl FnOnce(Python<'_>) -> cuzarr::Result<T>) -> cuzarr::Result<T> {
    try_attach(work).unwrap_or_else(|| Err(Error::new(ErrorKind::Cancelled, "Python is shutting down")))
}

/// An extension of `Python` that runs Rust code without the interpreter's lock.
pub trait Unlocked {
    /// Releases the interpreter's lock, runs `work`, and takes the lock again. If the interpreter has begun to end by
    /// then, and another thread ends it, this thread sleeps until the process ends.
    fn unlocked<T: Send>(self, work: impl FnOnce() -> T + Send) -> T;
}

impl Unlocked for Python<'_> {
    fn unlocked<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        let (result, _attached) = self.detach(|| {
            let result = work();
            loop {
                match Attached::new() {
                    Some(attached) => return (result, attached),
                    None => thread::park(),
                }
            }
        });
        result
    }
}

/// Begins the end of the interpreter: no other thread can attach to it from now on. Waits for the threads that are
/// attached. Python calls this at its exit.
#[pyfunction]
pub fn begin_end(py: Python<'_>) {
    py.detach(|| {
        let ending = ENDING.get();
        let mut state = ending.state();
        state.ender = Some(thread::current().id());
        let waited = ending.left.wait_timeout_while(state, PATIENCE, |state| state.attached > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    });
}
