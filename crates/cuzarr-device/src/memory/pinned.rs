//! A cache of pinned host memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::Device;
use crate::driver::context::{Context, PerDevice};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::lease::Owner;

/// A block of host memory: pinned, or heap memory for `cpu`.
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) size_bytes: usize,
    heap: Option<Vec<u8>>,
}

/// Bytes of pinned memory for the tables that kernels read, allowed in addition to the limit that work has set.
pub(crate) const TABLES_BYTES: usize = 64 << 20;

/// Pinned host memory of a buffer, which is freed when this value is dropped.
struct PinnedMemory {
    context: &'static Context,
    address: usize,
    size_bytes: usize,
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: `allocate_host` returned the memory, with this size, and no buffer uses it any more. If this fails, the
        // device is lost, or this is a forked child; then the memory leaks.
        let _ = unsafe { self.context.backend.free_host(self.address, self.size_bytes) };
    }
}

impl Buffer {
    /// Allocates host memory of zeros that is pinned through `device`: kernels and copies of every GPU reach it. Without
    /// a GPU, this is ordinary host memory.
    ///
    /// # Errors
    /// `DeviceUnavailable`, and `OutOfMemory` when the system pins no more memory.
    pub fn pinned(device: Device, size_bytes: usize) -> Result<Buffer> {
        if device == Device::Cpu || size_bytes == 0 {
            return Buffer::zeroed(Device::Cpu, size_bytes);
        }
        let context = Context::get(device)?;
        let memory = PinnedMemory { context, address: context.backend.allocate_host(size_bytes)?, size_bytes };
        // SAFETY: new memory of this size, which no other code knows; it moves into the buffer's owner, initialised.
        unsafe {
            std::ptr::write_bytes(memory.address as *mut u8, 0, size_bytes);
            Ok(Buffer::from_raw(Device::Cpu, memory.address, size_bytes, Box::new(memory)))
        }
    }

    /// Whether this is pinned host memory, which kernels of `device` reach.
    pub(crate) fn is_reached_by(&self, device: Device) -> Result<bool> {
        if self.device() != Device::Cpu || device == Device::Cpu || self.size_bytes() == 0 {
            return Ok(false);
        }
        Context::get(device)?.backend.reaches_host(self.address(), self.size_bytes())
    }

    /// This pinned host memory as memory of `device`, whose kernels reach it. `lease` keeps the memory, and others from
    /// using it.
    ///
    /// # Safety
    /// [`Buffer::is_reached_by`] is true for `device`. While `lease` lives, no other code uses the memory.
    pub(crate) unsafe fn seen_by(&self, device: Device, lease: Owner) -> Buffer {
        // SAFETY: the caller promises it.
        unsafe { Buffer::from_raw(device, self.address(), self.size_bytes(), lease) }
    }
}

/// One device's cache of unused blocks of pinned host memory.
#[derive(Default)]
pub(crate) struct PinnedCache {
    cached: Mutex<Cached>,
    /// Most bytes of host memory that running work may pin; 0 before a limit was set.
    limit_bytes: AtomicU64,
}

#[derive(Default)]
struct Cached {
    free: Vec<Block>,
    held_bytes: usize,
    /// Up to this many bytes of unused blocks are kept: the largest limit of any slab ring so far. All rings share the
    /// blocks, so a small ring must not free what a large one left: giving pinned memory back to the system takes
    /// milliseconds.
    keep_bytes: usize,
}

/// The cache of unused blocks for `cpu`, which are not pinned.
static HOST: PinnedCache = PinnedCache {
    cached: Mutex::new(Cached { free: Vec::new(), held_bytes: 0, keep_bytes: 0 }),
    limit_bytes: AtomicU64::new(0),
};
/// The caches of pinned memory blocks, one for each device except `cpu`.
static PINNED: PerDevice<PinnedCache> = PerDevice::new();

impl PinnedCache {
    /// The cache of a device; without a context, that of `cpu`.
    pub(crate) fn of(context: Option<&'static Context>) -> &'static PinnedCache {
        context.map_or(&HOST, |context| PINNED.of(context))
    }

    /// Sets how many bytes of host memory running work may pin from now on.
    pub(crate) fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Frees unused blocks of pinned memory until no more than the limit is held, or none is left.
    pub(crate) fn shrink(&self, context: &'static Context) -> Result<()> {
        self.shrink_to(context, self.allowed_bytes())
    }

    /// Most bytes of pinned memory that may be held: the limit, and [`TABLES_BYTES`].
    fn allowed_bytes(&self) -> u64 {
        match self.limit_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit_bytes => limit_bytes.saturating_add(TABLES_BYTES as u64),
        }
    }

    /// Returns a block of at least `size_bytes`: the smallest cached block that is at most twice as large, or a new
    /// block. Among blocks of equal size it takes the last used one, which may still be in the CPU's cache.
    pub(crate) fn take(&self, context: Option<&'static Context>, size_bytes: usize) -> Result<Block> {
        {
            let mut cached = lock(&self.cached);
            let fits = |block: &Block| block.size_bytes >= size_bytes && block.size_bytes / 2 <= size_bytes;
            let best = cached.free.iter().enumerate().rev().filter(|(_, block)| fits(block));
            if let Some(at) = best.min_by_key(|(_, block)| block.size_bytes).map(|(at, _)| at) {
                return Ok(cached.free.remove(at));
            }
        }
        let block = match context {
            None => {
                let mut heap = Vec::new();
                if heap.try_reserve_exact(size_bytes).is_err() {
                    return Err(Error::new(
                        ErrorKind::OutOfMemory,
                        format!("the host has no {size_bytes} bytes of pinned memory"),
                    ));
                }
                heap.resize(size_bytes, 0);
                Block { address: heap.as_mut_ptr() as usize, size_bytes, heap: Some(heap) }
            }
            Some(context) => {
                let room = self.allowed_bytes().saturating_sub(size_bytes as u64);
                self.shrink_to(context, room)?;
                let address = context.backend.allocate_host(size_bytes).or_else(|_| {
                    // Blocks of other sizes may hold all the memory that can be pinned. Free those and try again.
                    self.clear(context)?;
                    context.backend.allocate_host(size_bytes)
                })?;
                Block { address, size_bytes, heap: None }
            }
        };
        lock(&self.cached).held_bytes += size_bytes;
        Ok(block)
    }

    /// Keeps a block of pinned memory in the cache for later users. Frees it instead if the unused blocks would exceed
    /// the largest ring's limit. `keep_bytes` is the limit of this block's ring.
    pub(crate) fn put(&self, context: Option<&'static Context>, block: Block, keep_bytes: usize) {
        let mut cached = lock(&self.cached);
        let unused: usize = cached.free.iter().map(|block| block.size_bytes).sum();
        cached.keep_bytes = cached.keep_bytes.max(keep_bytes);
        if unused + block.size_bytes <= cached.keep_bytes {
            cached.free.push(block);
            return;
        }
        cached.held_bytes -= block.size_bytes;
        drop(cached);
        if let (Some(context), None) = (context, &block.heap) {
            // SAFETY: the block came from `allocate_host` with this size, and its user gave it back after the last
            // copy. If this fails, the device is lost, and the next call on it reports that.
            let _ = unsafe { context.backend.free_host(block.address, block.size_bytes) };
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        lock(&self.cached).held_bytes as u64
    }

    /// Frees every unused block of pinned memory in the cache.
    pub(crate) fn clear(&self, context: &'static Context) -> Result<()> {
        self.shrink_to(context, 0)
    }

    /// Frees unused blocks of pinned memory, oldest first, until at most `most_bytes` are held, or none is left.
    fn shrink_to(&self, context: &'static Context, most_bytes: u64) -> Result<()> {
        loop {
            let mut cached = lock(&self.cached);
            if cached.held_bytes as u64 <= most_bytes || cached.free.is_empty() {
                return Ok(());
            }
            let block = cached.free.remove(0);
            cached.held_bytes -= block.size_bytes;
            drop(cached);
            // SAFETY: like `put`; only the cache has the block, which came back after its last copy.
            unsafe { context.backend.free_host(block.address, block.size_bytes) }?;
        }
    }
}
