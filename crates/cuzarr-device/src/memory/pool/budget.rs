//! Memory in flight: the memory that work within a limit takes beside its results.
//!
//! CUDA's pools take more memory of the driver before they reuse memory that another stream freed and has not passed. Between
//! blocks of many sizes they also keep gaps. A pool that may not grow makes the stream that asks wait for the other one
//! instead. So memory in flight comes from a pool of its own, which is never larger than the limit, and results come from
//! another. Where the bounded pool has no room in one piece, its unused memory goes back to the driver first; then all
//! streams are waited for; only then the other pool gives the memory.
//!
//! Pools take 32 MiB at a time, which is much of a small limit. Work within a small limit has a piece of memory as large as
//! the limit, cut by [`Arena`]. Its results come from the driver one by one, in units of 2 MiB. Where the piece has no room
//! for a block, pinned memory of the host serves instead, slower, so that the device memory that the driver counts stays
//! within the limit.

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

/// Limits below this are small. From here on, what CUDA's pools leave of a limit is at most an eighth.
const SMALL_LIMITS_BYTES: u64 = 512 << 20;
/// The driver gives large memory in units of this size; small limits are rounded up to them.
const UNIT_BYTES: u64 = 2 << 20;
/// Memory that work takes without counting it: tables of kernels, statuses.
const UNCOUNTED_BYTES: u64 = 1 << 20;

thread_local! {
    static IN_FLIGHT: Cell<bool> = const { Cell::new(false) };
}

/// Permission for work to have some bytes in flight on a device, until this is dropped.
pub struct Within {
    context: Option<&'static Context>,
    limit_bytes: u64,
}

/// Begins work on `device` that may have `limit_bytes` in flight. Gives back unused memory of work that was allowed more.
pub fn within(device: Device, limit_bytes: u64) -> Within {
    let context = if device == Device::Cpu { None } else { Context::get(device).ok() };
    if let Some(context) = context {
        Limits::of(context).begin(context, limit_bytes);
    }
    Within { context, limit_bytes }
}

impl Within {
    /// The number of bytes that may be in flight.
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

/// Runs `work`; all device memory that this thread takes meanwhile is in flight, and none of it is for results.
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

/// Whether the memory that this thread takes now is in flight.
pub(super) fn is_in_flight() -> bool {
    IN_FLIGHT.get()
}

/// Limits of the work that is under way on a device.
#[derive(Default)]
pub(super) struct Limits {
    under_way: Mutex<Vec<u64>>,
    count: AtomicUsize,
    /// The largest limit of the work under way; without work that of the last one, 0 before the first.
    most_bytes: AtomicU64,
    /// Bytes in use of the pool of memory in flight.
    used_bytes: AtomicU64,
    small: Mutex<Small>,
    /// How often that pool had no room in one piece, in the end.
    refusals: AtomicU64,
}

static LIMITS: PerDevice<Limits> = PerDevice::new();

impl Limits {
    /// The limits of a device.
    pub(super) fn of(context: &Context) -> &'static Limits {
        LIMITS.of(context)
    }

    /// The largest limit of the work under way, or of the last one; 0 before the first.
    fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// How often the pool of memory in flight had no room in one piece, although the limit allowed it.
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
        // A failure here comes again when memory is asked for.
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

    /// Whether work within a small limit is under way.
    pub(super) fn is_small(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && (1..SMALL_LIMITS_BYTES).contains(&self.most_bytes())
    }

    /// Memory for what is in flight; `None` where no work is under way, it would be more than the limit, or there is no room.
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
                // Not any more.
                return Ok(None);
            }
            self.refusals.fetch_add(1, Ordering::Relaxed);
            let block = PinnedCache::of(Some(context)).take(Some(context), size_bytes)?;
            return Ok(Some((block.address, Source::Pinned(block))));
        };
        let behind = marks.iter().try_for_each(|mark| mark.hold_back(context, stream));
        if let Err(error) = behind {
            // It was not used, but must not be used before the work that it waits for.
            self.give_back_small(context, address, stream)?;
            return Err(error);
        }
        // SAFETY: memory of this size that only we know of; on a device that spoils, nothing is ever under way.
        unsafe { context.backend.spoil(address, size_bytes) };
        Ok(Some((address, Source::Small)))
    }

    /// Frees the block at `address` for streams that are behind the present work of `stream`.
    pub(super) fn give_back_small(&self, context: &'static Context, address: usize, stream: usize) -> Result<()> {
        lock(&self.small).give_back(context, address, stream)
    }

    /// Gives back what is kept unused for work in flight. The device is idle.
    pub(super) fn trim(&self, context: &'static Context) -> Result<()> {
        lock(&self.small).clear(context)?;
        context.backend.trim_bounded()
    }

    fn count_in(&self, size_bytes: u64) -> bool {
        let most = self.most_bytes().saturating_add(UNCOUNTED_BYTES);
        let add = |used: u64| used.checked_add(size_bytes).filter(|&used| used <= most);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    /// Notes that `size_bytes` of the bounded pool were freed.
    pub(super) fn give_back(&self, size_bytes: u64) {
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}

/// Where memory came from.
pub(super) enum Source {
    /// The pool of results.
    Results,
    /// The pool of memory in flight.
    InFlight,
    /// The piece of memory in flight within small limits.
    Small,
    /// The driver, outside of all pools.
    Apart,
    /// Host memory that the device reaches.
    Pinned(Block),
}

impl Source {
    /// Whether it counts against the limit.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self, Source::InFlight | Source::Small | Source::Pinned(_))
    }
}

/// Memory of work within small limits.
#[derive(Default)]
struct Small {
    /// The size of the piece; 0 while limits are large.
    most_bytes: usize,
    /// One piece of that size, or several where limits rose while blocks were in use.
    arenas: Vec<Arena<Event>>,
}

impl Small {
    /// Sets the size of the piece from now on. More stays as long as it is in use.
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

    /// A block, and marks that its user must be behind; `None` when there is no room in one piece.
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
        // Under the lock of all others: no thread gets the block before it has the mark.
        let mark = Event::record(context, stream, false)?;
        if let Some(arena) = self.arenas.iter_mut().find(|arena| arena.gave(address)) {
            arena.give_back(address, mark, is_passed);
        }
        if self.most_bytes == 0 { self.clear(context) } else { Ok(()) }
    }

    /// Gives everything back to the driver, unless a block is in use. Waits for the device.
    fn clear(&mut self, context: &'static Context) -> Result<()> {
        if !self.arenas.iter().all(Arena::is_unused) {
            return Ok(());
        }
        self.arenas.drain(..).try_for_each(|arena| {
            // SAFETY: `allocate` got it from `allocate_apart` with this size, no block of it is out, as was checked under the
            // lock, and the driver waits for streams.
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
