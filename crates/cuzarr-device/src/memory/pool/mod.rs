//! Allocation of device memory.
//!
//! There are two stream-ordered pools per GPU, which keep the memory that they have taken: one for results, one for
//! memory in flight within a limit. Work within a small limit has one piece of memory of that size instead
//! (`budget.rs`).
//!
//! Memory is allocated in the order of one stream. Any other stream that uses it through this crate waits for the
//! allocation first, and is noted. When the last buffer over the memory is dropped, it is freed in the order of the
//! stream that used it last, after all the others. So dropping never blocks, and never frees memory that running work
//! uses. Memory whose address was given to other code ([`mark_shared`]) is freed only after the whole device is idle.
//!
//! Other libraries' pools are used through [`DeviceAllocator`] and [`lend`].

mod arena;
mod budget;
mod counters;
mod lent;
pub(crate) mod pooled;
mod uses;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::device::Device;
use crate::driver::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::pinned::PinnedCache;
use crate::memory::pool::budget::Limits;
use crate::memory::pool::counters::{Counters, Named};
use crate::memory::pool::lent::Lent;
use crate::memory::pool::pooled::PooledMemory;
use crate::stream::Stream;

pub use budget::{Within, in_flight, within};
pub use lent::lend;

/// Allocates working memory (memory in flight) from cuzarr's pool, on the device of `stream` and in the stream's order.
/// On `cpu`, returns zeroed host memory.
///
/// # Errors
/// `OutOfMemory`, after the pool was trimmed and tried again.
pub fn allocate(size_bytes: usize, stream: &Stream) -> Result<Buffer> {
    match stream.context() {
        None => Buffer::zeroed_on_host(size_bytes),
        Some(context) => Ok(PooledMemory::new(context, size_bytes, Some(stream.clone()))?.into_buffer()),
    }
}

/// Records that other code knows this memory's address (DLPack, CUDA array interface) and may use it on unknown
/// streams. Freeing the memory then waits for the whole device.
pub fn mark_shared(buffer: &Buffer) {
    if let Some(pooled) = buffer.owner().downcast_ref::<PooledMemory>() {
        pooled.shared.store(true, Ordering::Release);
    } else if let Some(lent) = buffer.owner().downcast_ref::<Lent>() {
        lent.shared.store(true, Ordering::Release);
    }
}

/// Names a result on a device, for [`named_bytes`]. The name is kept as long as the memory.
pub fn name_result(buffer: &Buffer, name: impl FnOnce() -> String) {
    let pooled = buffer.owner().downcast_ref::<PooledMemory>().map(|pooled| (pooled.context, &pooled.name));
    let lent = || buffer.owner().downcast_ref::<Lent>().map(|lent| (lent.context, &lent.name));
    let Some((context, place)) = pooled.or_else(lent) else { return };
    let address = buffer.address();
    if buffer.size_bytes() > 0 && place.set(Named { context, address }).is_ok() {
        lock(&Counters::of(context).names).insert(address, (name(), buffer.size_bytes() as u64));
    }
}

/// Bytes of live results on `device`, by the name that [`name_result`] gave them.
pub fn named_bytes(device: Device) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::new();
    if let Ok(context) = used_context(device) {
        for (name, size_bytes) in lock(&Counters::of(context).names).values() {
            *bytes.entry(name.clone()).or_default() += size_bytes;
        }
    }
    bytes
}

/// Memory counters of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of the device's memory that are in use now.
    pub used_bytes: u64,
    /// Largest number of bytes of the device's memory that were in use at once.
    pub peak_bytes: u64,
    /// Bytes that the pool has taken from the driver, in use or not.
    pub held_bytes: u64,
    /// Number of allocations since the process began.
    pub allocations: u64,
    /// Number of times the pool was trimmed because the device was full.
    pub trims: u64,
    /// Number of allocations of working memory (not results) that the limit allowed, but for which no contiguous range
    /// was free.
    pub refusals: u64,
    /// Bytes of pinned host memory that are allocated for the device, in use or not.
    pub pinned_bytes: u64,
}

/// Returns the memory counters of `device`. All are 0 for `cpu` and for a device that was not used.
pub fn stats(device: Device) -> PoolStats {
    let Ok(context) = used_context(device) else { return PoolStats::default() };
    let counters = Counters::of(context);
    PoolStats {
        used_bytes: counters.used.load(Ordering::Relaxed),
        peak_bytes: counters.peak.load(Ordering::Relaxed),
        held_bytes: context.backend.held_bytes().unwrap_or(0),
        allocations: counters.allocations.load(Ordering::Relaxed),
        trims: counters.trims.load(Ordering::Relaxed),
        refusals: Limits::of(context).refusals(),
        pinned_bytes: PinnedCache::of(Some(context)).held_bytes(),
    }
}

/// Returns the free and the total bytes of the device, as its driver counts them. This includes other programs' memory.
///
/// # Errors
/// `DeviceUnavailable` for `cpu`, and when the device cannot be used; `DeviceFailed`.
pub fn memory_info(device: Device) -> Result<(u64, u64)> {
    Context::get(device)?.backend.memory_info()
}

/// Resets [`PoolStats::peak_bytes`] to the bytes in use now.
pub fn reset_peak(device: Device) {
    if let Ok(context) = used_context(device) {
        Counters::of(context).peak.store(Counters::of(context).used.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Gives unused pool memory and unused pinned slabs back to the system. Waits for the device.
///
/// # Errors
/// `DeviceFailed`
pub fn trim(device: Device) -> Result<()> {
    match used_context(device) {
        Ok(context) => {
            PinnedCache::of(Some(context)).clear(context)?;
            context.backend.synchronize_device()?;
            Limits::of(context).trim(context)?;
            context.backend.trim_to(0)
        }
        Err(_) => Ok(()),
    }
}

/// Returns the context of a device if it exists: asking for counters must not start CUDA.
fn used_context(device: Device) -> Result<&'static Context> {
    Context::existing(device).ok_or_else(|| Error::new(ErrorKind::DeviceUnavailable, format!("{device} was not used")))
}

impl Buffer {
    /// Joins buffers that together fill a range of memory, in any order. Returns one buffer over the range, and the
    /// offset of each part. `None` if the parts leave gaps or overlap. Also `None` for several blocks of the pool or of
    /// host memory, since streams and leases track each block. For kernels only: a driver's copy may not cross from one
    /// block to another.
    pub fn joined(parts: &[Buffer]) -> Option<(Buffer, Vec<usize>)> {
        let mut sorted: Vec<&Buffer> = parts.iter().filter(|part| part.size_bytes() > 0).collect();
        sorted.sort_by_key(|part| part.address());
        let first = *sorted.first()?;
        let follows = |pair: &[&Buffer]| {
            pair[0].address() + pair[0].size_bytes() == pair[1].address() && pair[0].device() == pair[1].device()
        };
        if !sorted.windows(2).all(follows) {
            return None;
        }
        let start = first.address();
        let offset = |part: &Buffer| if part.size_bytes() > 0 { part.address() - start } else { 0 };
        let (offsets, read_only) = (parts.iter().map(offset).collect(), parts.iter().any(Buffer::is_read_only));
        let size_bytes = sorted.iter().map(|part| part.size_bytes()).sum();
        let joined = if sorted.iter().all(|part| part.shares_memory_with(first)) {
            first.extended_to(size_bytes)?
        } else if first.device().is_host_accessible() || sorted.iter().any(|part| part.owner().is::<PooledMemory>()) {
            return None;
        } else {
            // SAFETY: the parts were checked to fill the range without gaps, and the owner keeps all of them alive. GPU
            // memory needs no leases.
            unsafe { Buffer::from_raw(first.device(), start, size_bytes, Box::new(parts.to_vec())) }
        };
        Some((if read_only { joined.into_read_only() } else { joined }, offsets))
    }
}
