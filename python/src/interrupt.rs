//! Calls that Ctrl-C can end: work runs without the interpreter's lock, while signals are checked.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use cuzarr::CancellationToken;
use cuzarr::internal::run::{apart, aside};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};

/// Time between two checks for signals, such as Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// When this thread last checked for signals; `None` unless it is Python's main thread inside a call.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The exception that a signal handler raised during the call.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Makes a token for a call that a signal, such as Ctrl-C, cancels. The call then ends at its next object.
pub fn token() -> CancellationToken {
    CancellationToken::listening(signal_came)
}

/// Runs `work` without the interpreter's lock, in such a way that a signal such as Ctrl-C can end it. If a signal
/// cancels `token`, which comes from [`token`], the work ends at its next object and the call raises Python's
/// exception. Python's main thread only waits, because a signal that reached a store's code could make it fail.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    token: &CancellationToken,
    work: impl FnOnce() -> cuzarr::Result<T> + Send,
) -> PyResult<T> {
    here(py, || if LOOKED.get().is_some() { aside(token, work) } else { work() })
}

/// Runs `work`, which runs no Python code, like [`interruptible`] does, but always on this thread. Waking another
/// thread would cost a fiftieth of the time to read half a gigabyte.
pub fn here<T: Send>(py: Python<'_>, work: impl FnOnce() -> cuzarr::Result<T> + Send) -> PyResult<T> {
    let before = LOOKED.replace(is_main_thread(py)?.then(Instant::now));
    let result = py.unlocked(work);
    LOOKED.set(before);
    match RAISED.take() {
        Some(exception) => Err(exception),
        None => result.py(),
    }
}

/// Runs `work`, which only reads from a store, so that a signal such as Ctrl-C can end it, like [`interruptible`]. In
/// contrast to that, a cancelled call to a store far away does not wait for pending requests, and drops their answers.
pub fn looking<T: Send + 'static>(
    py: Python<'_>,
    is_far: bool,
    token: &CancellationToken,
    work: impl FnOnce() -> cuzarr::Result<T> + Send + 'static,
) -> PyResult<T> {
    here(py, || if is_far { apart(token, work) } else { work() })
}

/// Whether a signal handler has raised an exception since the call began. Only Python's main thread gets signals.
fn signal_came() -> bool {
    let Some(looked) = LOOKED.get() else { return false };
    if looked.elapsed() >= SIGNAL_INTERVAL {
        LOOKED.set(Some(Instant::now()));
        if let Err(exception) = Python::attach(|py| py.check_signals()) {
            RAISED.set(Some(exception));
        }
    }
    RAISED.with_borrow(Option::is_some)
}

/// Whether the call comes from Python's main thread, which alone gets signals.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    // Importing the module for each small read would take as long as the rest of the check.
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let current = CURRENT.import(py, "threading", "current_thread")?.call0()?;
    Ok(current.is(&MAIN.import(py, "threading", "main_thread")?.call0()?))
}
