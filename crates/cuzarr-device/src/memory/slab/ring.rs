//! The ring: hands out slabs of one device, up to a limit at once.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use crate::device::Device;
use crate::driver::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::lock::lock;
use crate::memory::pinned::{Block, PinnedCache};
use crate::memory::slab::Slab;
use crate::memory::slab::copies::Copies;
use crate::memory::slab::forward::Forward;

/// A source of slabs (pinned host memory) for one device, which hands out at most `limit_bytes` at once. Clones share
/// the limit.
#[derive(Clone)]
pub struct SlabRing(Arc<Ring>);

struct Ring {
    device: Device,
    context: Option<&'static Context>,
    slab_bytes: usize,
    limit_bytes: usize,
    state: Mutex<RingState>,
    returned: Condvar,
}

#[derive(Default)]
struct RingState {
    leased_bytes: usize,
    /// Slabs that were given back while copies were still pending, oldest first.
    busy: VecDeque<(Vec<Event>, Block)>,
}

impl SlabRing {
    /// Makes a ring of slabs of `slab_bytes`, with at most `limit_bytes` handed out at once. Allocates no memory yet.
    ///
    /// # Errors
    /// `InvalidArgument` for sizes of 0, `DeviceUnavailable` when the device cannot be used.
    pub fn new(device: Device, slab_bytes: usize, limit_bytes: usize) -> Result<SlabRing> {
        if slab_bytes == 0 || limit_bytes == 0 {
            return Err(Error::invalid(format!(
                "got slabs of {slab_bytes} bytes within {limit_bytes} bytes, expected more than 0"
            )));
        }
        let context = if device == Device::Cpu { None } else { Some(Context::get(device)?) };
        Ok(SlabRing(Arc::new(Ring {
            device,
            context,
            slab_bytes: slab_bytes.min(limit_bytes),
            limit_bytes,
            state: Mutex::default(),
            returned: Condvar::new(),
        })))
    }

    /// The device for which the slabs are pinned.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Size of an ordinary slab in bytes.
    pub fn slab_bytes(&self) -> usize {
        self.0.slab_bytes
    }

    /// Most bytes of slabs that are handed out at once.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// Bytes of slabs that are handed out now, including slabs with pending copies.
    pub fn leased_bytes(&self) -> usize {
        lock(&self.0.state).leased_bytes
    }

    /// Returns a slab (pinned host memory) of at least `min_bytes` (0: an ordinary one). Blocks until enough slabs came
    /// back and their last copies are done. A thread that holds all slabs itself would wait for ever.
    ///
    /// # Errors
    /// `BudgetExceeded` when `min_bytes` is above the ring's limit, `OutOfMemory`, `DeviceFailed`.
    pub fn acquire(&self, min_bytes: usize) -> Result<Slab> {
        let size_bytes = self.0.size_for(min_bytes)?;
        let mut state = lock(&self.0.state);
        loop {
            state = self.0.reap(state, false)?;
            if state.leased_bytes + size_bytes <= self.0.limit_bytes {
                break;
            }
            state = if state.busy.is_empty() {
                self.0.returned.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner())
            } else {
                self.0.reap(state, true)?
            };
        }
        state.leased_bytes += size_bytes;
        drop(state);
        self.lease(size_bytes)
    }

    /// Like [`SlabRing::acquire`], but returns `None` instead of blocking.
    ///
    /// # Errors
    /// Those of [`SlabRing::acquire`].
    pub fn try_acquire(&self, min_bytes: usize) -> Result<Option<Slab>> {
        let size_bytes = self.0.size_for(min_bytes)?;
        let mut state = self.0.reap(lock(&self.0.state), false)?;
        if state.leased_bytes + size_bytes > self.0.limit_bytes {
            return Ok(None);
        }
        state.leased_bytes += size_bytes;
        drop(state);
        self.lease(size_bytes).map(Some)
    }

    fn lease(&self, size_bytes: usize) -> Result<Slab> {
        match self.0.cache().take(self.0.context, size_bytes) {
            Ok(block) => {
                let lease = Lease {
                    ring: Arc::clone(&self.0),
                    leased_bytes: size_bytes,
                    block: Some(block),
                    copies: Copies::default(),
                    forward: OnceLock::new(),
                };
                Ok(Slab::new(lease, size_bytes))
            }
            Err(error) => {
                lock(&self.0.state).leased_bytes -= size_bytes;
                self.0.returned.notify_all();
                Err(error)
            }
        }
    }
}

impl Ring {
    fn cache(&self) -> &'static PinnedCache {
        PinnedCache::of(self.context)
    }

    fn size_for(&self, min_bytes: usize) -> Result<usize> {
        if min_bytes <= self.slab_bytes {
            return Ok(self.slab_bytes);
        }
        if min_bytes > self.limit_bytes {
            let message =
                format!("one slab of {min_bytes} bytes is above the ring's limit of {} bytes", self.limit_bytes);
            return Err(Error::new(ErrorKind::BudgetExceeded, message)
                .with_hint("raise `memory_limit`, or store smaller chunks"));
        }
        // Rounded to whole MiB, so that slabs of similar sizes can replace each other.
        Ok(min_bytes.next_multiple_of(1 << 20).min(self.limit_bytes))
    }

    /// Makes those slabs in `busy` available again whose pending copies are done. With `wait`, blocks for the oldest
    /// one.
    fn reap<'a>(&'a self, mut state: MutexGuard<'a, RingState>, wait: bool) -> Result<MutexGuard<'a, RingState>> {
        let mut must_wait = wait;
        while let Some((events, _)) = state.busy.front() {
            let mut done = true;
            for event in events {
                done = done && event.is_done()?;
            }
            if !done && !must_wait {
                break;
            }
            // The slab is taken out of the queue first, so that no other thread takes it too.
            let Some((events, block)) = state.busy.pop_front() else { break };
            drop(state);
            let passed: Result<()> = events.iter().try_for_each(Event::synchronize);
            let size_bytes = block.size_bytes;
            match passed {
                Ok(()) => self.cache().put(self.context, block, self.limit_bytes),
                // The device may still access it, so it is never handed out again.
                Err(_) => std::mem::forget(block),
            }
            state = lock(&self.state);
            state.leased_bytes = state.leased_bytes.saturating_sub(size_bytes);
            self.returned.notify_all();
            passed?;
            must_wait = false;
        }
        Ok(state)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let busy = std::mem::take(&mut lock(&self.state).busy);
        for (events, block) in busy {
            match events.iter().try_for_each(Event::synchronize) {
                Ok(()) => self.cache().put(self.context, block, self.limit_bytes),
                Err(_) => std::mem::forget(block),
            }
        }
    }
}

/// The pinned memory that a slab and the pieces carved from it share. The last of them drops it.
pub(super) struct Lease {
    ring: Arc<Ring>,
    leased_bytes: usize,
    /// The slab's memory; `None` only during `drop`.
    block: Option<Block>,
    pub(super) copies: Copies,
    pub(super) forward: OnceLock<Forward>,
}

impl Lease {
    pub(super) fn address(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.address)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let events = self.copies.take();
        let mut state = lock(&self.ring.state);
        // A reused block may be larger than requested. The ring counted the requested size.
        state.leased_bytes = state.leased_bytes - self.leased_bytes + block.size_bytes;
        state.busy.push_back((events, block));
        drop(state);
        self.ring.returned.notify_all();
    }
}
