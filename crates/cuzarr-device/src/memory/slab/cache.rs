//! Memory that slabs are made of, kept for the next one when nobody uses it.

use std::sync::Mutex;

use crate::driver::context::{Context, lock};
use crate::error::{Error, ErrorKind, Result};

/// A block of host memory: pinned, or heap for `cpu`.
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(super) size_bytes: usize,
    heap: Option<Vec<u8>>,
}

/// Blocks that nobody uses now, kept for the next one.
#[derive(Default)]
pub(crate) struct PinnedCache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    free: Vec<Block>,
    held_bytes: usize,
    /// The largest limit of a ring so far. All rings share the blocks, so a small ring must not send away what a large
    /// one left: giving pinned memory back to the system takes milliseconds.
    keep_bytes: usize,
}

/// Those of `cpu`.
pub(super) static HOST_CACHE: PinnedCache =
    PinnedCache(Mutex::new(Cached { free: Vec::new(), held_bytes: 0, keep_bytes: 0 }));

impl PinnedCache {
    /// A kept block of at least `size_bytes` and at most twice that, the last one used first, of which most may still be in the
    /// host's cache; else a new one.
    pub(crate) fn take(&self, context: Option<&'static Context>, size_bytes: usize) -> Result<Block> {
        {
            let mut cached = lock(&self.0);
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
                        format!("the host has no {size_bytes} bytes for a slab"),
                    ));
                }
                heap.resize(size_bytes, 0);
                Block { address: heap.as_mut_ptr() as usize, size_bytes, heap: Some(heap) }
            }
            Some(context) => {
                let room = context.counters.pinned_allowed_bytes().saturating_sub(size_bytes as u64);
                self.shrink_to(context, room)?;
                let address = context.backend.allocate_host(size_bytes).or_else(|_| {
                    // Other sizes may hold all the memory that may be pinned: give those back and ask once more.
                    self.clear(context)?;
                    context.backend.allocate_host(size_bytes)
                })?;
                Block { address, size_bytes, heap: None }
            }
        };
        lock(&self.0).held_bytes += size_bytes;
        Ok(block)
    }

    /// Keeps a block for later, unless more would be held unused than the largest ring may have out; `keep_bytes` is the
    /// limit of this block's ring.
    pub(crate) fn put(&self, context: Option<&'static Context>, block: Block, keep_bytes: usize) {
        let mut cached = lock(&self.0);
        let unused: usize = cached.free.iter().map(|block| block.size_bytes).sum();
        cached.keep_bytes = cached.keep_bytes.max(keep_bytes);
        if unused + block.size_bytes <= cached.keep_bytes {
            cached.free.push(block);
            return;
        }
        cached.held_bytes -= block.size_bytes;
        drop(cached);
        if let (Some(context), None) = (context, &block.heap) {
            // SAFETY: it came from `allocate_host` with this size, and its last copy is done. A failure means that the
            // device is lost, which the next call on it reports.
            let _ = unsafe { context.backend.free_host(block.address, block.size_bytes) };
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        lock(&self.0).held_bytes as u64
    }

    /// Gives every unused block back to the system.
    pub(crate) fn clear(&self, context: &'static Context) -> Result<()> {
        self.shrink_to(context, 0)
    }

    /// Gives unused blocks back to the system, oldest first, until no more than so many bytes are held, or none is left.
    pub(crate) fn shrink_to(&self, context: &'static Context, most_bytes: u64) -> Result<()> {
        loop {
            let mut cached = lock(&self.0);
            if cached.held_bytes as u64 <= most_bytes || cached.free.is_empty() {
                return Ok(());
            }
            let block = cached.free.remove(0);
            cached.held_bytes -= block.size_bytes;
            drop(cached);
            // SAFETY: as in `put`.
            unsafe { context.backend.free_host(block.address, block.size_bytes) }?;
        }
    }
}
