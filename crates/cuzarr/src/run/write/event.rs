//! What the threads of a write tell its coordinator.

/// What the coordinator of a write waits for.
pub(crate) enum Event {
    /// All work on the stored object with this number has ended.
    Ended(usize),
    /// A thread has fetched the old elements of a chunk, or failed to.
    Fetched,
}
