//! Traffic between stores and their servers: requests, bytes, retries, and the time until answers begin.
//!
//! A caller that wants these counts calls the store inside [`Traffic::watch`]. A far store asks [`Traffic::current`] on
//! the thread that called it, and counts there, even later and on other threads. Layers need not forward anything.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

thread_local! {
    static CURRENT: RefCell<Option<Traffic>> = const { RefCell::new(None) };
}

/// Counts the requests that stores send to servers, and their bytes. Clones share them.
///
/// ```
/// use std::time::Duration;
/// use cuzarr::store::Traffic;
/// let traffic = Traffic::default();
/// traffic.watch(|| {
///     // A store does this for each request.
///     let current = Traffic::current().unwrap();
///     current.answered(Duration::from_millis(30), false);
///     current.received(1000);
/// });
/// let counts = traffic.counts();
/// assert_eq!((counts.requests, counts.retries, counts.received_bytes), (1, 0, 1000));
/// assert!((counts.first_byte_seconds - 0.03).abs() < 1e-6);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<TrafficCounters>);

#[derive(Debug, Default)]
struct TrafficCounters {
    requests: AtomicU64,
    retries: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    first_byte_ns: AtomicU64,
}

/// Counts of the requests that stores have sent to servers: requests, repeats, bytes, and time until answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficCounts {
    /// Number of requests, including those that failed and were repeated.
    pub requests: u64,
    /// Number of requests that failed in a way that allows the store to repeat them.
    pub retries: u64,
    /// Bytes that servers sent in the bodies of their answers.
    pub received_bytes: u64,
    /// Bytes that stores sent in the bodies of their requests.
    pub sent_bytes: u64,
    /// Mean seconds from a request to the beginning of its answer.
    pub first_byte_seconds: f64,
}

impl Traffic {
    /// The counters that a caller has set for this thread, if any.
    pub fn current() -> Option<Traffic> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Runs `work`, and counts the requests to servers that this thread makes meanwhile.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// Counts a request that was sent to a server. Its answer began, or it failed, after `first_byte`. `is_retried`
    /// says whether it may be repeated.
    pub fn answered(&self, first_byte: Duration, is_retried: bool) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.retries.fetch_add(u64::from(is_retried), Ordering::Relaxed);
        self.0.first_byte_ns.fetch_add(first_byte.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts bytes that were received in an answer's body.
    pub fn received(&self, size_bytes: u64) {
        self.0.received_bytes.fetch_add(size_bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were sent in a request's body.
    pub fn sent(&self, size_bytes: u64) {
        self.0.sent_bytes.fetch_add(size_bytes, Ordering::Relaxed);
    }

    /// The numbers of requests and bytes that were counted so far.
    pub fn counts(&self) -> TrafficCounts {
        let TrafficCounters { requests, retries, received_bytes, sent_bytes, first_byte_ns } = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let requests = get(requests);
        TrafficCounts {
            requests,
            retries: get(retries),
            received_bytes: get(received_bytes),
            sent_bytes: get(sent_bytes),
            first_byte_seconds: get(first_byte_ns) as f64 / 1e9 / requests.max(1) as f64,
        }
    }
}

/// A guard that restores the previous counters of the thread when it is dropped, even after a panic.
struct Restored(Option<Traffic>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_watcher_counts_and_the_outer_one_comes_back() {
        let (outer, inner) = (Traffic::default(), Traffic::default());
        assert!(Traffic::current().is_none());
        outer.watch(|| {
            inner.watch(|| Traffic::current().unwrap().sent(5));
            Traffic::current().unwrap().sent(7);
        });
        assert_eq!((outer.counts().sent_bytes, inner.counts().sent_bytes), (7, 5));
        assert!(Traffic::current().is_none());
    }
}
