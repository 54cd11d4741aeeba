//! Calls that Ctrl-C ends: work without the interpreter's lock, and checks for signals meanwhile.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::{IntoPython, PyResult};
use crate::helper::Helper;
use crate::watch::Watch;

/// Time between two checks for signals while a call waits.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Does work without the interpreter's lock. Work for Python's main thread runs on another thread, and an interrupt cancels it
/// through `watch`. Then the work ends at its next object, and the call raises Python's own exception.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    watch: &Watch,
    work: impl FnOnce() -> cuzarr::Result<T> + Send + 'static,
) -> PyResult<T> {
    let helper = if is_main_thread(py)? { Helper::take() } else { None };
    let Some(helper) = helper else { return py.detach(work).py() };
    let mut signal = None;
    let wait = || {
        let results = helper.begin(work);
        loop {
            match results.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if signal.is_none() => {
                    if let Err(exception) = Python::attach(|py| py.check_signals()) {
                        watch.cancel();
                        signal = Some(exception);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Cancelled, "the call ended without a result"));
                }
            }
        }
    };
    let result = py.detach(wait);
    helper.keep();
    match signal {
        Some(exception) => Err(exception),
        None => result.py(),
    }
}

/// Does work that only reads, without the interpreter's lock. Where each request takes long (`is_far`), an interrupt does not wait for
/// the requests that are under way: `watch` is cancelled, and their answers are dropped.
pub fn reading<T: Send + 'static>(
    py: Python<'_>,
    is_far: bool,
    watch: &Watch,
    work: impl FnOnce() -> cuzarr::Result<T> + Send + 'static,
) -> PyResult<T> {
    if !is_far || !is_main_thread(py)? {
        return py.detach(work).py();
    }
    let (sender, results) = mpsc::channel();
    // A thread of its own, because it may outlive the call. Nobody may wait for it by then.
    let begun = thread::Builder::new().name("cuzarr-read".into()).spawn(move || drop(sender.send(work())));
    begun
        .map_err(|error| Error::new(ErrorKind::StoreFailed, format!("cannot start a thread: {error}")).telling(error))
        .py()?;
    py.detach(move || {
        loop {
            match results.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return result.py(),
                Err(RecvTimeoutError::Timeout) => {
                    Python::attach(|py| py.check_signals()).inspect_err(|_| watch.cancel())?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Cancelled, "the call ended without a result")).py();
                }
            }
        }
    })
}

/// Whether the call comes from Python's main thread, the only one that gets signals.
pub fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    // Importing the module takes as long as the rest of the check, at each small read.
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static MAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let current = CURRENT.import(py, "threading", "current_thread")?.call0()?;
    Ok(current.is(&MAIN.import(py, "threading", "main_thread")?.call0()?))
}
