//! Open files, whose number the system limits for each process (`ulimit -n`).
//!
//! A reading thread needs one or two files for a moment, so a process with many threads and a low limit runs out of them although
//! none is kept. Then an opening waits until another thread closes its file. It does not wait when this process has no file open:
//! others hold them, and may hold them for ever.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two attempts. There is no lock to wait for: a forked child would find it held by a thread that it does not have.
const WAIT: Duration = Duration::from_millis(1);

/// Most attempts of one opening.
const MOST_ATTEMPTS: usize = 5000;

/// Attempts in a row without an open file of this process, after which other processes hold them for certain: a file counts a
/// moment after it was opened.
const MOST_ALONE: usize = 50;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// One open file of this process.
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

/// Opens a file, and waits for other ones to be closed where the system allows no more.
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
