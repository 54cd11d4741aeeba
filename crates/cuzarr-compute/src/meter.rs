//! How far reading is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::copy::Progress;
use super::run::Tell;

/// Counts the regions that were read, for somebody who wants to know.
pub(super) struct Meter<'a> {
    tell: Tell<'a>,
    begun: Instant,
    regions: AtomicU64,
    bytes: AtomicU64,
    regions_done: AtomicU64,
    bytes_done: AtomicU64,
}

impl<'a> Meter<'a> {
    pub(super) fn new(tell: Tell<'a>) -> Meter<'a> {
        let [regions, bytes, regions_done, bytes_done] = std::array::from_fn(|_| AtomicU64::new(0));
        Meter { tell, begun: Instant::now(), regions, bytes, regions_done, bytes_done }
    }

    /// So many regions and bytes are to be read, so often.
    pub(super) fn expect(&self, regions: u64, bytes: u64, passes: u64) {
        self.regions.fetch_add(passes * regions, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.saturating_mul(passes), Ordering::Relaxed);
    }

    /// So many bytes of a region were read.
    pub(super) fn note(&self, bytes: u64) {
        let progress = Progress {
            regions_done: 1 + self.regions_done.fetch_add(1, Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            bytes_done: bytes + self.bytes_done.fetch_add(bytes, Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            seconds: self.begun.elapsed().as_secs_f64(),
        };
        (self.tell)(&progress);
    }
}
