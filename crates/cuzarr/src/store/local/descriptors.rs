//! Counts the files that this process has open, and waits when there are too many of them. The system limits their
//! number for each process (`ulimit -n`).
//!
//! A reading thread needs one or two files for a moment. So a process with many threads and a low limit can run out of
//! files, although it keeps none open. Then opening a file waits until another thread closes one. If this process has
//! no file open, it soon stops waiting: other processes hold the files, perhaps forever.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two attempts to open a file while too many are open. Waiting on a lock would not work in a forked
/// child: a thread of the parent might hold it.
const WAIT: Duration = Duration::from_millis(1);

/// Maximum number of attempts to open a file while too many files are open; then opening it fails.
const MOST_ATTEMPTS: usize = 5000;

/// If this process has no file open, it gives up after this many attempts in a row to open one. Then other processes
/// certainly hold the files. One attempt proves nothing, because a file is counted a moment after it was opened.
const MOST_ALONE: usize = 50;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Counts one file that this process has open, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(());

impl Counted {
    pub(super) fn new() -> Counted {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Counted(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls `open`, which opens a file, and tries again while too many files are open. If the system allows no more open
/// files, waits until others are closed.
///
/// # Errors
/// Those of `open`.
pub(super) fn patiently<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut alone = 0;
    for _ in 1..MOST_ATTEMPTS {
        match open() {
            Err(error) if is_exhaustion(&error) && alone < MOST_ALONE => std::thread::sleep(WAIT),
            opened => return opened,
        }
        alone = if OPEN.load(Ordering::Relaxed) > 0 { 0 } else { alone + 1 };
    }
    open()
}

/// Whether an error means that the process or the system has too many open files.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        Errno::from_io_error(error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}
