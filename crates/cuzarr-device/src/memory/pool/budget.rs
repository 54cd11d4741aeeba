//! Memory in flight: the memory that work uses beside its results, within a limit.
//!
//! A CUDA pool may hold more memory than is in use. If freed memory still waits for another stream, the pool takes new
//! memory from the driver instead of waiting. It also keeps gaps between blocks of different sizes. A pool with a
//! maximum size makes the stream wait instead. So memory in flight has its own pool, never larger than the limit, and
//! results have another. If the limited pool has no gap that is large enough, it gives its unused memory back to the
//! driver. If that does not help, cuzarr waits for all streams. Only then is the memory taken from the results' pool.
//!
//! Pools take 32 MiB at a time, which is a large part of a small limit. So work within a small limit gets one piece of
//! memory as large as the limit, cut by an [`Arena`]. The results of such work come from the driver one by one, in
//! units of 2 MiB. If the piece has no room for a block, pinned host memory is used instead. It is slower, but keeps
//! the device memory that the driver counts within the limit.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::device::Device;
use crate::driver::context::{Context, PerDevice};
use crate::error::{ErrorKind, Result};
use crate::event::Event;
use crate::lock::lock;
use crate::memory::pinned::{Block, PinnedCache};
use crate::memory::pool::arena::Arena;
use crate::memory::pool::counters::out_of_memory;

/// A limit below this many bytes is small: memory in flight then comes from an arena instead of CUDA's pool. For larger
/// limits, CUDA's pools waste at most an eighth of the limit.
const SMALL_LIMITS_BYTES: u64 = 512 << 20;
/// Unit, in bytes, in which the driver hands out large memory. Small limits are rounded up to whole units.
const UNIT_BYTES: u64 = 2 << 20;
/// Bytes that are allowed beyond the limit, for memory that callers do not count: tables of kernels, statuses.
const UNCOUNTED_BYTES: u64 = 1 << 20;

thread_local! {
    static IN_FLIGHT: Cell<bool> = const { Cell::new(false) };
}

/// A limit in force: until the value is dropped, work may use up to `limit_bytes` of a device's memory besides its
/// results.
pub struct Within {
    context: Option<&'static Context>,
    limit_bytes: u64,
}

/// Begins work on `device` that may use `limit_bytes` of its memory besides the results. Frees unused memory of earlier
/// work with a larger limit.
pub fn within(device: Device, limit_bytes: u64) -> Within {
    let context = if device == Device::Cpu { None } else { Context::get(device).ok() };
    if let Some(context) = context {
        Limits::of(context).begin(context, limit_bytes);
    }
    Within { context, limit_bytes }
}

impl Within {
    /// Number of bytes of device memory that the work may use besides its results.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        if let Some(context) = self.context {
            Limits::of(context).end(self.limit_bytes);
        }
    }
}

/// Runs `work`, and counts device memory that this thread allocates meanwhile as memory in flight, not as results.
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

/// Whether device memory that this thread allocates now counts as memory in flight, not as a result.
pub(super) fn is_in_flight() -> bool {
    IN_FLIGHT.get()
}

/// The memory limits of all work that now runs on a device, and how much memory in flight that work uses.
#[derive(Default)]
pub(super) struct Limits {
    under_way: Mutex<Vec<u64>>,
    count: AtomicUsize,
    /// The largest memory limit of the work that runs now. Without work, the last such limit; 0 before the first.
    most_bytes: AtomicU64,
    /// Number of bytes of device memory in flight, which running work uses besides its results.
    used_bytes: AtomicU64,
    small: Mutex<Small>,
    /// Number of allocations of memory in flight that the limit allowed, but for which no contiguous range of memory
    /// was free.
    refusals: AtomicU64,
}

static LIMITS: PerDevice<Limits> = PerDevice::new();

impl Limits {
    /// Returns the memory limits of the work that runs on a device.
    pub(super) fn of(context: &Context) -> &'static Limits {
        LIMITS.of(context)
    }

    /// The largest memory limit of the work that runs now, else of the last work; 0 before the first.
    fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// Number of allocations of memory in flight that the limit allowed, but for which no contiguous range of memory
    /// was free.
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
        let pinned = PinnedCache::of(Some(context));
        pinned.set_limit(most);
        let small_bytes = if most < SMALL_LIMITS_BYTES { most.max(1).next_multiple_of(UNIT_BYTES) } else { 0 };
        // A failure here is reported again when memory is allocated.
        let _ = context.backend.bound(if small_bytes == 0 { most } else { 0 });
        let _ = lock(&self.small).set(context, small_bytes as usize);
        if before > most || small_bytes > 0 {
            let _ = context.backend.trim_to(0);
            let _ = pinned.shrink(context);
        }
    }

    fn end(&self, limit_bytes: u64) {
        let mut under_way = lock(&self.under_way);
        if let Some(at) = under_way.iter().position(|&limit| limit == limit_bytes) {
            under_way.swap_remove(at);
        }
        self.count.store(under_way.len(), Ordering::Relaxed);
    }

    /// Whether work is running on the device, and its largest memory limit is below `SMALL_LIMITS_BYTES`.
    pub(super) fn is_small(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && (1..SMALL_LIMITS_BYTES).contains(&self.most_bytes())
    }

    /// Allocates `size_bytes` of memory in flight, which work uses besides its results. `None` if there is no current
    /// work, the limit would be exceeded, or there is no room.
    pub(super) fn take(
        &self,
        context: &'static Context,
        size_bytes: usize,
        stream: usize,
    ) -> Result<Option<(usize, Source)>> {
        if self.count.load(Ordering::Relaxed) == 0 || !self.count_in(size_bytes as u64) {
            return Ok(None);
        }
        let taken = match self.is_small() {
            true => self.take_small(context, size_bytes, stream),
            false => self.take_bounded(context, size_bytes, stream),
        };
        if !matches!(taken, Ok(Some(_))) {
            self.give_back(size_bytes as u64);
        }
        taken
    }

    fn take_bounded(
        &self,
        context: &'static Context,
        size_bytes: usize,
        stream: usize,
    ) -> Result<Option<(usize, Source)>> {
        let backend = &context.backend;
        let allocate = || backend.allocate_bounded(size_bytes, stream);
        let trimmed = || backend.trim_bounded().and_then(|()| allocate());
        let waited = || backend.synchronize_device().and_then(|()| trimmed());
        let ways: [&dyn Fn() -> Result<Option<usize>>; 3] = [&allocate, &trimmed, &waited];
        let refused = |taken: &Result<_>| taken.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfMemory);
        let taken = ways.into_iter().map(|way| way()).find(|taken| !refused(taken)).unwrap_or(Ok(None));
        if !matches!(taken, Ok(Some(_))) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        Ok(taken?.map(|address| (address, Source::InFlight)))
    }

    fn take_small(
        &self,
        context: &'static Context,
        size_bytes: usize,
        stream: usize,
    ) -> Result<Option<(usize, Source)>> {
        let taken = lock(&self.small).take(context, size_bytes)?;
        let Some((address, marks)) = taken else {
            if !self.is_small() {
                // The limit is not small any more.
                return Ok(None);
            }
            self.refusals.fetch_add(1, Ordering::Relaxed);
            let block = PinnedCache::of(Some(context)).take(Some(context), size_bytes)?;
            return Ok(Some((block.address, Source::Pinned(block))));
        };
        let behind = marks.iter().try_for_each(|mark| mark.hold_back(context, stream));
        if let Err(error) = behind {
            // This call did not use the block, but earlier work may still use it.
            self.give_back_small(context, address, stream)?;
            return Err(error);
        }
        // SAFETY: memory of this size that only we know of. On `simt`, the only device that overwrites it, no work is
        // ever pending.
        unsafe { context.backend.spoil(address, size_bytes) };
        Ok(Some((address, Source::Small)))
    }

    /// Gives the memory block at `address` back to the arena for work with small memory limits. Its next user waits for
    /// the work that is now on `stream`.
    pub(super) fn give_back_small(&self, context: &'static Context, address: usize, stream: usize) -> Result<()> {
        lock(&self.small).give_back(context, address, stream)
    }

    /// Frees unused memory that is kept for running work. The device must be idle.
    pub(super) fn trim(&self, context: &'static Context) -> Result<()> {
        lock(&self.small).clear(context)?;
        context.backend.trim_bounded()
    }

    fn count_in(&self, size_bytes: u64) -> bool {
        let most = self.most_bytes().saturating_add(UNCOUNTED_BYTES);
        let add = |used: u64| used.checked_add(size_bytes).filter(|&used| used <= most);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Notes that `size_bytes` of the memory that work uses besides its results were freed.
    pub(super) fn give_back(&self, size_bytes: u64) {
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}

/// The pool or other source that an allocation came from.
pub(super) enum Source {
    /// The pool for results, such as arrays that a read returns.
    Results,
    /// The pool for memory in flight, which work uses besides its results.
    InFlight,
    /// An arena, which gives memory to work with a small memory limit.
    Small,
    /// The allocation came from the driver directly, outside all pools.
    Apart,
    /// The allocation is host memory that the device can access.
    Pinned(Block),
}

impl Source {
    /// Whether memory from this source counts against the limit of memory that work uses besides its results.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self, Source::InFlight | Source::Small | Source::Pinned(_))
    }
}

/// The arenas that give memory to work with small memory limits.
#[derive(Default)]
struct Small {
    /// The wanted size in bytes of the arena for work with small memory limits; 0 while memory limits are large.
    most_bytes: usize,
    /// The arenas from which memory blocks are taken: normally one, which has the wanted size. Several if the limit
    /// rose while blocks were in use.
    arenas: Vec<Arena<Event>>,
}

impl Small {
    /// Sets the wanted size of the arena, and frees arenas of another size. Arenas stay as long as one of their blocks
    /// is in use.
    fn set(&mut self, context: &'static Context, most_bytes: usize) -> Result<()> {
        self.most_bytes = most_bytes;
        if self.is_as_wished() { Ok(()) } else { self.clear(context) }
    }

    fn is_as_wished(&self) -> bool {
        matches!(&self.arenas[..], [arena] if arena.size_bytes() == self.most_bytes)
    }

    fn held_bytes(&self) -> usize {
        self.arenas.iter().map(Arena::size_bytes).sum()
    }

    /// Takes a block of `size_bytes` from an arena, and returns its address and the events that its user must wait for.
    /// `None` if no arena has room.
    fn take(&mut self, context: &'static Context, size_bytes: usize) -> Result<Option<(usize, Vec<Event>)>> {
        if !self.is_as_wished() {
            self.clear(context)?;
        }
        let missing = self.most_bytes.saturating_sub(self.held_bytes());
        if missing > 0 {
            self.arenas.push(Arena::new(allocate(context, missing)?, missing));
        }
        Ok(self.arenas.iter_mut().find_map(|arena| arena.take(size_bytes, is_passed)))
    }

    fn give_back(&mut self, context: &'static Context, address: usize, stream: usize) -> Result<()> {
        // Recorded under the lock, so that no thread gets the block without the mark.
        let mark = Event::record(context, stream, false)?;
        if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.gave(address)) {
            arena.give_back(address, mark, is_passed);
        }
        if self.most_bytes == 0 { self.clear(context) } else { Ok(()) }
    }

    /// Frees all arenas for small memory limits, unless any of their blocks is in use. Waits for the device.
    fn clear(&mut self, context: &'static Context) -> Result<()> {
        if !self.arenas.iter().all(Arena::is_unused) {
            return Ok(());
        }
        self.arenas.drain(..).try_for_each(|arena| {
            // SAFETY: `allocate` got the arena from `allocate_apart` with this size. None of its blocks is in use, as
            // was checked under the lock. The driver waits for all streams.
            unsafe { context.backend.free_apart(arena.address(), arena.size_bytes()) }
        })
    }
}

fn is_passed(mark: &Event) -> bool {
    mark.is_done().unwrap_or(false)
}

fn allocate(context: &'static Context, size_bytes: usize) -> Result<usize> {
    context.backend.allocate_apart(size_bytes).or_else(|error| {
        if error.kind() == ErrorKind::OutOfMemory {
            context.backend.synchronize_device()?;
            context.backend.trim_to(0)?;
        }
        context.backend.allocate_apart(size_bytes).map_err(|error| out_of_memory(context, size_bytes, error))
    })
}
