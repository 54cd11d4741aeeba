//! Counters of each device's memory pool, such as bytes in use, and the names that callers gave to results.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::context::{Context, PerDevice};
use crate::driver::cuda::driver::MEMORY_HINT;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;

#[derive(Default)]
pub(super) struct Counters {
    pub(super) used: AtomicU64,
    pub(super) peak: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) trims: AtomicU64,
    /// Names that `name_result` gave to results, and the sizes of these results in bytes, by address.
    pub(super) names: Mutex<HashMap<usize, (String, u64)>>,
}

impl Counters {
    /// Returns the memory counters of the device that `context` belongs to.
    pub(super) fn of(context: &Context) -> &'static Counters {
        static COUNTERS: PerDevice<Counters> = PerDevice::new();
        COUNTERS.of(context)
    }

    pub(super) fn add(&self, size_bytes: usize) {
        let used = self.used.fetch_add(size_bytes as u64, Ordering::Relaxed) + size_bytes as u64;
        self.peak.fetch_max(used, Ordering::Relaxed);
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }
}

/// A result's name in the counters of its device; dropping this value removes the name.
pub(super) struct Named {
    pub(super) context: &'static Context,
    pub(super) address: usize,
}

impl Drop for Named {
    fn drop(&mut self) {
        lock(&Counters::of(self.context).names).remove(&self.address);
    }
}

/// Turns an out-of-memory error into one that says how much memory is in use. Other errors are unchanged.
pub(super) fn out_of_memory(context: &'static Context, size_bytes: usize, cause: Error) -> Error {
    if cause.kind() != ErrorKind::OutOfMemory {
        return cause;
    }
    let room = match context.backend.memory_info() {
        Ok((free, total)) => format!("{free} of {total} bytes are free"),
        Err(_) => "how much is free is unknown".to_string(),
    };
    let used = Counters::of(context).used.load(Ordering::Relaxed);
    let message = format!("{} has no {size_bytes} bytes left: {room}, cuzarr holds {used}", context.device);
    Error::new(ErrorKind::OutOfMemory, message).with_hint(MEMORY_HINT).with_source(cause)
}
