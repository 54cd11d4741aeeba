//! The number of threads that an encoder may use for one chunk.

use std::cell::Cell;

thread_local! {
    static THREADS: Cell<usize> = const { Cell::new(1) };
}

/// Number of threads that may encode the current chunk of this thread: 1, unless [`with_threads`] sets more.
pub(crate) fn threads() -> usize {
    THREADS.get()
}

/// Runs `work`, which may use `threads` threads for each chunk that it encodes.
pub(crate) fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let before = THREADS.replace(threads.max(1));
    let outcome = work();
    THREADS.set(before);
    outcome
}
