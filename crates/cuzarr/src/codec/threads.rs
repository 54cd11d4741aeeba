//! How many threads an encoder may put to work on one chunk.

use std::cell::Cell;

thread_local! {
    static THREADS: Cell<usize> = const { Cell::new(1) };
}

/// Threads for the chunk that this thread encodes; one unless [`with_threads`] says more.
pub(crate) fn threads() -> usize {
    THREADS.get()
}

/// Lets what `work` encodes have `threads` threads.
pub(crate) fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let before = THREADS.replace(threads.max(1));
    let outcome = work();
    THREADS.set(before);
    outcome
}
