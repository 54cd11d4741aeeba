//! Where device memory comes from.
//!
//! We have two stream-ordered pools per GPU, which keep memory that they once took: one for results, one for memory in flight
//! within a limit. Work within a small limit has a piece of memory of that size instead (`budget.rs`).
//!
//! Memory is allocated in the order of one stream. Any stream that uses it through this crate is put behind the allocation,
//! and noted. When the last buffer over it is dropped, it is freed in the order of the stream that used it last, after all
//! the others. So dropping never blocks, and never takes memory from running work. Memory whose address was given to other
//! code ([`mark_shared`]) is freed only after the whole device is idle.
//!
//! Pools of other libraries come in through [`DeviceAllocator`] and [`lend`].

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

/// Memory on the device of `stream`, in its order, from our pool. On `cpu`, zeroed memory of the host.
///
/// # Errors
/// `OutOfMemory`, after the pool was trimmed and asked once more.
pub fn allocate(size_bytes: usize, stream: &Stream) -> Result<Buffer> {
    match stream.context() {
        None => Buffer::zeroed_on_host(size_bytes),
        Some(context) => Ok(PooledMemory::new(context, size_bytes, Some(stream.clone()))?.into_buffer()),
    }
}

/// Notes that other code knows this memory's address (DLPack, CUDA array interface) and may use it on streams unknown here.
/// Freeing it then waits for the whole device.
pub fn mark_shared(buffer: &Buffer) {
    if let Some(pooled) = buffer.owner().downcast_ref::<PooledMemory>() {
        pooled.shared.store(true, Ordering::Release);
    } else if let Some(lent) = buffer.owner().downcast_ref::<Lent>() {
        lent.shared.store(true, Ordering::Release);
    }
}

/// Names the array of a result on a device, for [`named_bytes`], as long as the result is held.
pub fn name_result(buffer: &Buffer, name: impl FnOnce() -> String) {
    let pooled = buffer.owner().downcast_ref::<PooledMemory>().map(|pooled| (pooled.context, &pooled.name));
    let lent = || buffer.owner().downcast_ref::<Lent>().map(|lent| (lent.context, &lent.name));
    let Some((context, place)) = pooled.or_else(lent) else { return };
    let address = buffer.address();
    if buffer.size_bytes() > 0 && place.set(Named { context, address }).is_ok() {
        lock(&Counters::of(context).names).insert(address, (name(), buffer.size_bytes() as u64));
    }
}

/// Bytes of results on `device` that are held, by the name that [`name_result`] gave them.
pub fn named_bytes(device: Device) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::new();
    if let Ok(context) = used_context(device) {
        for (name, size_bytes) in lock(&Counters::of(context).names).values() {
            *bytes.entry(name.clone()).or_default() += size_bytes;
        }
    }
    bytes
}

/// Counts of the memory that our pool has given on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Most bytes that were in use at once.
    pub peak_bytes: u64,
    /// Bytes that the pool has taken from the driver, in use or not.
    pub held_bytes: u64,
    /// Allocations since the process began.
    pub allocations: u64,
    /// Times the pool had to be trimmed because the device was full.
    pub trims: u64,
    /// How often the memory kept for work in flight had no room in one piece, although the limit allowed it.
    pub refusals: u64,
    /// Bytes of pinned host memory held for slabs.
    pub pinned_bytes: u64,
}

/// Counts of the memory that our pool has given on `device`. Zeroes for `cpu` and for a device that was not used.
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

/// Free and total bytes of the device, as its driver counts them, others' memory too.
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

/// Gives memory that the pool keeps unused, pinned slabs too, back to the system. Waits for the device.
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

/// A context only if there is one already: asking for numbers must not start CUDA.
fn used_context(device: Device) -> Result<&'static Context> {
    Context::existing(device).ok_or_else(|| Error::new(ErrorKind::DeviceUnavailable, format!("{device} was not used")))
}

impl Buffer {
    /// One view of buffers that together fill a stretch of memory, in any order, and where in it each begins. `None` when
    /// they leave gaps or overlap, and for blocks of the pool or of host memory, which streams and leases know one by one.
    /// For kernels only: a copy by the driver may not cross from one block to another.
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
            // SAFETY: every byte belongs to one of the parts, which touch each other as was checked, and the owner keeps all
            // of them. It is memory of a device, which needs no leases.
            unsafe { Buffer::from_raw(first.device(), start, size_bytes, Box::new(parts.to_vec())) }
        };
        Some((if read_only { joined.into_read_only() } else { joined }, offsets))
    }
}
