//! Memory in flight: what work within a limit takes beside its results.
//!
//! CUDA's pools take more of the driver before they give out again what another stream freed and has not passed, and between
//! blocks of many sizes they keep gaps. One that may not grow any more lets the stream that asks wait for the other one instead.
//! So memory in flight comes from a pool of its own that is never larger than the limit, and results from another. Where the
//! bounded pool has no room in one piece, what it keeps unused goes back to the driver first, then all streams are waited for;
//! only then the other pool gives the memory.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::cuda::context::{Context, lock};
use crate::device::Device;
use crate::error::{ErrorKind, Result};

thread_local! {
    static IN_FLIGHT: Cell<bool> = const { Cell::new(false) };
}

/// Work that may have so many bytes in flight on a device, until this is dropped.
pub struct Within {
    context: Option<&'static Context>,
    limit_bytes: u64,
}

/// Says that work on `device` begins that may have so many bytes in flight. What is kept unused from work that could have more is
/// given back.
pub fn within(device: Device, limit_bytes: u64) -> Within {
    let context = if device == Device::Cpu { None } else { Context::get(device).ok() };
    if let Some(context) = context {
        context.counters.limits.begin(context, limit_bytes);
    }
    Within { context, limit_bytes }
}

impl Within {
    /// How many bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if let Some(context) = self.context {
            context.counters.limits.end(self.limit_bytes);
        }
    }
}

/// Does `work`, in which this thread asks for no results: all memory of the device that it takes is in flight.
pub fn in_flight<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IN_FLIGHT.set(self.0);
        }
    }
    let _before = Before(IN_FLIGHT.replace(true));
    work()
}

/// Whether this thread asks for no results now.
pub(super) fn is_in_flight() -> bool {
    IN_FLIGHT.get()
}

/// Limits of the work that is under way on a device.
#[derive(Default)]
pub(crate) struct Limits {
    under_way: Mutex<Vec<u64>>,
    count: AtomicUsize,
    /// The most that any of them may have; that of the last work when there is none, 0 before the first.
    most_bytes: AtomicU64,
    /// Bytes in use of the pool of what is in flight.
    used_bytes: AtomicU64,
    /// Times that it had no room in one piece, in the end.
    refusals: AtomicU64,
}

impl Limits {
    /// The most that work under way, or the last one, may have; 0 before the first.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// Times that the pool of what is in flight had no room in one piece, although the limit allowed it.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn begin(&self, context: &'static Context, limit_bytes: u64) {
        let mut under_way = lock(&self.under_way);
        under_way.push(limit_bytes);
        self.count.store(under_way.len(), Ordering::Relaxed);
        let most = under_way.iter().copied().max().unwrap_or(limit_bytes);
        let before = self.most_bytes.swap(most, Ordering::Relaxed);
        if before == most {
            return;
        }
        // What fails here fails again when memory is asked for.
        let _ = context.backend.bound(most);
        if before > most {
            let _ = context.backend.trim_to(context.counters.used_bytes());
            let _ = context.pinned.shrink_to(context, context.counters.pinned_allowed_bytes());
        }
    }

    fn end(&self, limit_bytes: u64) {
        let mut under_way = lock(&self.under_way);
        if let Some(at) = under_way.iter().position(|&limit| limit == limit_bytes) {
            under_way.swap_remove(at);
        }
        self.count.store(under_way.len(), Ordering::Relaxed);
    }

    /// Memory of the bounded pool; `None` where no work is under way, it would be more than the limit, or there is no room.
    pub(super) fn take(&self, context: &'static Context, size_bytes: usize, stream: usize) -> Result<Option<usize>> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.count_in(size_bytes as u64) {
            return Ok(None);
        }
        let backend = &context.backend;
        let allocate = || backend.allocate_bounded(size_bytes, stream);
        let trimmed = || backend.trim_bounded().and_then(|()| allocate());
        let waited = || backend.synchronize_device().and_then(|()| trimmed());
        let ways: [&dyn Fn() -> Result<Option<usize>>; 3] = [&allocate, &trimmed, &waited];
        let refused = |taken: &Result<_>| taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfMemory);
        let taken = ways.into_iter().map(|way| way()).find(|taken| !refused(taken)).unwrap_or(Ok(None));
        if !matches!(taken, Ok(Some(_))) {
            self.give_back(size_bytes as u64);
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    fn count_in(&self, size_bytes: u64) -> bool {
        let most = self.most_bytes();
        let add = |used: u64| used.checked_add(size_bytes).filter(|&used| used <= most);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// So many bytes of the bounded pool were freed.
    pub(super) fn give_back(&self, size_bytes: u64) {
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}
