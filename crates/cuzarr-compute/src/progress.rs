//! Progress of work, for callers that want to show it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How far work has come that goes through arrays region by region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Number of finished regions of all passes, including those that an earlier call finished.
    pub regions_done: u64,
    /// Number of regions of all passes.
    pub regions: u64,
    /// Bytes of elements that this call has read so far. In copies, bytes that it has written.
    pub bytes_done: u64,
    /// Bytes of elements that this call reads in all. In copies, bytes that it has to write.
    pub bytes: u64,
    /// Seconds that have passed since the call that does the work began.
    pub seconds: f64,
}

/// A callback that gets the progress after each finished region.
pub type Tell<'a> = &'a (dyn Fn(&Progress) + Sync);

/// A counter of finished regions and their bytes, to which any thread may add, and which reports the progress to a
/// callback.
pub(crate) struct Meter<'a> {
    tell: Tell<'a>,
    begun: Instant,
    regions: AtomicU64,
    bytes: AtomicU64,
    regions_done: AtomicU64,
    bytes_done: AtomicU64,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(tell: Tell<'a>) -> Meter<'a> {
        let [regions, bytes, regions_done, bytes_done] = std::array::from_fn(|_| AtomicU64::new(0));
        Meter { tell, begun: Instant::now(), regions, bytes, regions_done, bytes_done }
    }

    /// Adds a pass to the totals: its number of regions, how many are already finished, and the bytes of the unfinished
    /// ones.
    pub(crate) fn expect(&self, regions: u64, finished: u64, bytes: u64) {
        self.regions.fetch_add(regions, Ordering::Relaxed);
        self.regions_done.fetch_add(finished, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds regions and bytes to those that are done, and calls the callback.
    pub(crate) fn note(&self, regions: u64, bytes: u64) {
        let progress = Progress {
            regions_done: regions + self.regions_done.fetch_add(regions, Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            bytes_done: bytes + self.bytes_done.fetch_add(bytes, Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            seconds: self.begun.elapsed().as_secs_f64(),
        };
        (self.tell)(&progress);
    }
}
