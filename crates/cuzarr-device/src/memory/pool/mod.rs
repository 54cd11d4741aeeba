//! Where device memory comes from.
//!
//! Ours are two stream-ordered pools per GPU that keep what they once got: one for results, one for what is in flight within
//! a limit; work within a small limit has a piece of memory of that size instead (`within.rs`). The rule of their memory: it is allocated in the order of one stream; any stream that uses it through
//! this crate is put behind the allocation, and noted; when the last buffer over it is dropped, it is freed in the order of
//! the stream that used it last, after all the others. So dropping never blocks and never pulls memory from under running
//! work. Memory whose address was given to code outside ([`mark_shared`]) is freed only after the whole device is idle.
//!
//! Other libraries' pools come in through [`DeviceAllocator`] and [`lend`].

mod arena;
mod within;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use crate::device::Device;
use crate::driver::context::{Context, lock};
use crate::driver::cuda::MEMORY_HINT;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::memory::buffer::{Buffer, Owner};
use crate::memory::slab::Block;
use crate::ops::launch::TABLES_BYTES;
use crate::stream::Stream;

pub(crate) use within::Limits;
use within::is_in_flight;
pub use within::{Within, in_flight, within};

/// Gives memory for results: our pool, CuPy's, PyTorch's, RMM's.
pub trait DeviceAllocator: Send + Sync {
    /// Uninitialised memory on `device`, which every stream may use at once.
    ///
    /// # Errors
    /// `OutOfMemory` when the device has none left, after giving back what was cached.
    fn allocate(&self, device: Device, size_bytes: usize) -> Result<Buffer>;
}

/// Our own stream-ordered pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool;

impl DeviceAllocator for Pool {
    fn allocate(&self, device: Device, size_bytes: usize) -> Result<Buffer> {
        Ok(wrap(PooledMemory::new(Context::get(device)?, size_bytes, None)?))
    }
}

/// Who gives memory for results; nobody else than our pool by default.
static RESULTS: RwLock<Option<Arc<dyn DeviceAllocator>>> = RwLock::new(None);

/// Takes memory for results from another library's pool from now on, so that two pools do not fight over one GPU; `None` is
/// our own. Scratch memory always comes from ours.
pub fn set_allocator(allocator: Option<Arc<dyn DeviceAllocator>>) {
    *RESULTS.write().unwrap_or_else(PoisonError::into_inner) = allocator;
}

/// Memory on the device of `stream`, in its order, from our pool. On `cpu`, zeroed memory of the host.
///
/// # Errors
/// `OutOfMemory`, after the pool was trimmed and asked once more.
pub fn allocate(size_bytes: usize, stream: &Stream) -> Result<Buffer> {
    match stream.context() {
        None => Buffer::zeroed(Device::Cpu, size_bytes),
        Some(context) => {
            let memory = PooledMemory::new(context, size_bytes, Some(stream.clone()))?;
            Ok(wrap(memory))
        }
    }
}

/// Memory on `device` that every stream may use at once, from the pool that results come from ([`set_allocator`]).
///
/// # Errors
/// `DeviceUnavailable` when the device cannot be used; `OutOfMemory`, after the pool was trimmed and asked once more.
pub fn allocate_on(device: Device, size_bytes: usize) -> Result<Buffer> {
    if device == Device::Cpu {
        return Buffer::zeroed(Device::Cpu, size_bytes);
    }
    let chosen = RESULTS.read().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(chosen) = chosen else { return Pool.allocate(device, size_bytes) };
    check_given(chosen.allocate(device, size_bytes)?, device, size_bytes)
}

/// What an allocator gave, if it is what it was asked for.
fn check_given(given: Buffer, device: Device, size_bytes: usize) -> Result<Buffer> {
    if given.device() != device || given.size_bytes() < size_bytes || given.is_read_only() {
        let what = if given.is_read_only() { "read-only bytes" } else { "bytes" };
        let (got, place) = (given.size_bytes(), given.device());
        let message = format!("the allocator gave {got} {what} on {place}, expected {size_bytes} bytes on {device}");
        return Err(Error::invalid(message).with_hint("mend the allocator, or give memory back to cuzarr's own pool"));
    }
    given.slice(..size_bytes)
}

fn wrap(memory: PooledMemory) -> Buffer {
    let (device, address, size_bytes) = (memory.context.device, memory.address, memory.size_bytes);
    // SAFETY: the pool gave this memory, and the owner gives it back.
    unsafe { Buffer::from_raw(device, address, size_bytes, Box::new(memory)) }
}

/// Memory that another library's pool gave for a result. `owner` is dropped, which gives it back, with the last buffer over
/// it, once our streams have passed it and, if [`mark_shared`] was called, the whole device is idle.
///
/// # Errors
/// `DeviceUnavailable` when the device cannot be used.
///
/// # Safety
/// As [`Buffer::from_raw`].
pub unsafe fn lend(device: Device, address: usize, size_bytes: usize, owner: Owner) -> Result<Buffer> {
    let context = Context::get(device)?;
    let lent = Lent { context, owner: Some(owner), shared: AtomicBool::new(false), name: OnceLock::new() };
    // SAFETY: the caller's promise.
    Ok(unsafe { Buffer::from_raw(device, address, size_bytes, Box::new(lent)) })
}

/// Says that code outside knows this memory's address (DLPack, CUDA array interface) and may use it on streams we do not
/// know: its return waits for the whole device.
pub fn mark_shared(buffer: &Buffer) {
    if let Some(pooled) = buffer.owner().downcast_ref::<PooledMemory>() {
        pooled.shared.store(true, Ordering::Release);
    } else if let Some(lent) = buffer.owner().downcast_ref::<Lent>() {
        lent.shared.store(true, Ordering::Release);
    }
}

/// Names the array that a result on a device is of, for [`named_bytes`], as long as somebody holds the result.
pub fn name_result(buffer: &Buffer, name: impl FnOnce() -> String) {
    let pooled = buffer.owner().downcast_ref::<PooledMemory>().map(|pooled| (pooled.context, &pooled.name));
    let lent = || buffer.owner().downcast_ref::<Lent>().map(|lent| (lent.context, &lent.name));
    let Some((context, place)) = pooled.or_else(lent) else { return };
    let address = buffer.address();
    if buffer.size_bytes() > 0 && place.set(Named { context, address }).is_ok() {
        lock(&context.counters.names).insert(address, (name(), buffer.size_bytes() as u64));
    }
}

/// Bytes of results on `device` that somebody holds, by the name that [`name_result`] gave them.
pub fn named_bytes(device: Device) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::new();
    if let Ok(context) = used_context(device) {
        for (name, size_bytes) in lock(&context.counters.names).values() {
            *bytes.entry(name.clone()).or_default() += size_bytes;
        }
    }
    bytes
}

/// What our pool has given on one device.
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
    /// Times that what is kept for memory in flight had no room in one piece, although the limit allowed it.
    pub refusals: u64,
    /// Bytes of pinned host memory held for slabs.
    pub pinned_bytes: u64,
}

/// What our pool has given on `device`. Zeroes for `cpu` and for a device that was not used.
pub fn stats(device: Device) -> PoolStats {
    let Ok(context) = used_context(device) else { return PoolStats::default() };
    let counters = &context.counters;
    PoolStats {
        used_bytes: counters.used.load(Ordering::Relaxed),
        peak_bytes: counters.peak.load(Ordering::Relaxed),
        held_bytes: context.backend.held_bytes().unwrap_or(0),
        allocations: counters.allocations.load(Ordering::Relaxed),
        trims: counters.trims.load(Ordering::Relaxed),
        refusals: counters.limits.refusals(),
        pinned_bytes: context.pinned.held_bytes(),
    }
}

/// Free and total bytes of the device, as its driver counts them, others' memory too.
///
/// # Errors
/// `DeviceUnavailable` for `cpu`, and when the device cannot be used; `DeviceFailed`.
pub fn memory_info(device: Device) -> Result<(u64, u64)> {
    Context::get(device)?.backend.memory_info()
}

/// Lets [`PoolStats::peak_bytes`] begin again at what is in use now.
pub fn reset_peak(device: Device) {
    if let Ok(context) = used_context(device) {
        context.counters.peak.store(context.counters.used.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Gives memory that the pool keeps unused, pinned slabs too, back to the system. Waits for the device.
///
/// # Errors
/// `DeviceFailed`
pub fn trim(device: Device) -> Result<()> {
    match used_context(device) {
        Ok(context) => {
            context.pinned.clear(context)?;
            context.backend.synchronize_device()?;
            context.counters.limits.trim(context)?;
            context.backend.trim_to(0)
        }
        Err(_) => Ok(()),
    }
}

/// A context only if there is one already: asking for numbers must not start CUDA.
fn used_context(device: Device) -> Result<&'static Context> {
    Context::existing(device).ok_or_else(|| Error::new(ErrorKind::DeviceUnavailable, format!("{device} was not used")))
}

#[derive(Default)]
pub(crate) struct Counters {
    used: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
    trims: AtomicU64,
    pub(crate) limits: Limits,
    /// Names and sizes of results, by their address.
    names: Mutex<HashMap<usize, (String, u64)>>,
}

impl Counters {
    /// Most bytes of pinned memory that may be held: those of the limit, and what tables of kernels have of their own.
    pub(crate) fn pinned_allowed_bytes(&self) -> u64 {
        match self.limits.most_bytes() {
            0 => u64::MAX,
            limit_bytes => limit_bytes.saturating_add(TABLES_BYTES as u64),
        }
    }

    fn add(&self, size_bytes: usize) {
        let used = self.used.fetch_add(size_bytes as u64, Ordering::Relaxed) + size_bytes as u64;
        self.peak.fetch_max(used, Ordering::Relaxed);
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }
}

/// An entry among the names of results, until it is dropped.
struct Named {
    context: &'static Context,
    address: usize,
}

impl Drop for Named {
    fn drop(&mut self) {
        lock(&self.context.counters.names).remove(&self.address);
    }
}

/// The owner of memory that another library's pool gave.
struct Lent {
    context: &'static Context,
    owner: Option<Owner>,
    shared: AtomicBool,
    name: OnceLock<Named>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Before somebody else gets this address.
        drop(self.name.take());
        let is_lost = self.shared.load(Ordering::Acquire) && self.context.backend.synchronize_device().is_err();
        if is_lost {
            // The other library would touch a lost device.
            std::mem::forget(self.owner.take());
        }
    }
}

/// The owner of one allocation of our pool.
pub(crate) struct PooledMemory {
    context: &'static Context,
    address: usize,
    size_bytes: usize,
    source: Source,
    /// The stream it was allocated on; none when it was given to all of them.
    home: Option<Stream>,
    /// Passed once the memory may be used on other streams; none when it may at once.
    ready: Option<Event>,
    /// What the stream it was allocated on did with it.
    at_home: Mutex<HomeUses>,
    /// Other streams that used it, the last one last.
    users: Mutex<Vec<Stream>>,
    shared: AtomicBool,
    name: OnceLock<Named>,
}

/// Uses by the stream that memory was allocated on.
#[derive(Default)]
struct HomeUses {
    /// Those whose end was not marked.
    open: usize,
    /// Behind all others.
    passed: Option<Event>,
}

impl PooledMemory {
    fn new(context: &'static Context, size_bytes: usize, home: Option<Stream>) -> Result<PooledMemory> {
        let raw = home.as_ref().map_or(context.home_stream, Stream::raw_handle);
        let is_in_flight = home.is_some() || is_in_flight();
        let (address, source) = match size_bytes {
            0 => (0, Source::Results),
            _ => take(context, size_bytes, raw, is_in_flight)?,
        };
        let mut memory = PooledMemory {
            context,
            address,
            size_bytes,
            source,
            home,
            ready: None,
            at_home: Mutex::default(),
            users: Mutex::default(),
            shared: AtomicBool::new(false),
            name: OnceLock::new(),
        };
        context.counters.add(size_bytes);
        match &memory.home {
            _ if size_bytes == 0 => {}
            Some(home) => {
                memory.ready = Some(home.record()?);
                lock(&memory.at_home).passed.clone_from(&memory.ready);
            }
            // SAFETY: the home stream lives as long as the process.
            None => unsafe { context.backend.synchronize_stream(raw) }?,
        }
        Ok(memory)
    }

    /// Orders `stream` behind the allocation and remembers it.
    pub(crate) fn note_use(&self, stream: &Stream) -> Result<()> {
        if self.is_home(stream) {
            lock(&self.at_home).open += 1;
            return Ok(());
        }
        let mut users = lock(&self.users);
        if let Some(at) = users.iter().position(|user| user.is_same_queue(stream)) {
            let last = users.len() - 1;
            users.swap(at, last);
            return Ok(());
        }
        if let Some(ready) = &self.ready {
            stream.wait(ready)?;
        }
        users.push(stream.clone());
        Ok(())
    }

    /// Marks the end of the last use that was noted, on the stream that it was noted for. Where every use by the stream that
    /// the memory was allocated on is marked so, its return does not wait for what that stream does meanwhile.
    pub(crate) fn note_end(&self, stream: &Stream) -> Result<()> {
        if self.is_home(stream) {
            let mut at_home = lock(&self.at_home);
            // Marked under the lock: the last mark is behind all others.
            at_home.passed = Some(stream.record()?);
            at_home.open -= 1;
        }
        Ok(())
    }

    fn is_home(&self, stream: &Stream) -> bool {
        self.home.as_ref().is_some_and(|home| home.is_same_queue(stream))
    }

    fn give_back(&mut self) -> Result<()> {
        let context = self.context;
        let is_shared = self.shared.load(Ordering::Acquire);
        if is_shared {
            context.backend.synchronize_device()?;
        }
        let users = std::mem::take(&mut *lock(&self.users));
        let has_passed =
            |user: &Stream| (is_shared && user.device() == context.device) || user.is_idle().unwrap_or(false);
        if self.home.is_none() && users.iter().all(has_passed) {
            // Where the next memory of no stream is asked for: it takes this instead of more from the driver, which gives
            // out again what other streams freed only once it has seen them pass.
            // SAFETY: as below; no stream uses it any more.
            return unsafe { self.free(context.home_stream) };
        }
        let freeing = users.iter().rfind(|user| user.device() == context.device).or(self.home.as_ref());
        let raw = freeing.map_or(context.home_stream, Stream::raw_handle);
        let at_home = std::mem::take(&mut *lock(&self.at_home));
        let passed = at_home.passed.filter(|_| at_home.open == 0);
        for user in users.iter().chain(&self.home) {
            if freeing.is_none_or(|freeing| !freeing.is_same_queue(user)) {
                let event = match &passed {
                    Some(passed) if self.is_home(user) => passed.clone(),
                    _ => user.record()?,
                };
                event.hold_back(context, raw)?;
            }
        }
        // SAFETY: the pool gave it, nobody views it any more, and the stream is behind every stream that used it.
        unsafe { self.free(raw) }
    }

    /// # Safety
    /// Nobody views it, and `stream` is behind every stream that used it.
    unsafe fn free(&mut self, stream: usize) -> Result<()> {
        let (context, address) = (self.context, self.address);
        match std::mem::replace(&mut self.source, Source::Results) {
            // SAFETY: the caller's promise; nobody uses it any more.
            Source::Results | Source::InFlight => unsafe { context.backend.free(address, stream) },
            Source::Small => context.counters.limits.give_back_small(context, address, stream),
            // SAFETY: as above.
            Source::Apart => unsafe { context.backend.free_apart(address, self.size_bytes) },
            Source::Pinned(block) => {
                // SAFETY: as above.
                unsafe { context.backend.synchronize_stream(stream) }?;
                context.pinned.put(Some(context), block, 0);
                Ok(())
            }
        }
    }
}

impl Drop for PooledMemory {
    fn drop(&mut self) {
        drop(self.name.take());
        let is_counted = self.source.is_counted();
        if self.size_bytes > 0 {
            // A failure means that the device is lost, or that this is a forked child; then leaking is right, and the next
            // call on the device reports it.
            let _ = self.give_back();
        }
        let (counters, size_bytes) = (&self.context.counters, self.size_bytes as u64);
        counters.used.fetch_sub(size_bytes, Ordering::Relaxed);
        if is_counted {
            counters.limits.give_back(size_bytes);
        }
    }
}

/// Where memory came from.
enum Source {
    /// The pool of results.
    Results,
    /// The pool of what is in flight.
    InFlight,
    /// The piece of what is in flight within small limits.
    Small,
    /// The driver, by itself.
    Apart,
    /// Host memory that the device reaches.
    Pinned(Block),
}

impl Source {
    /// Whether it counts against the limit.
    fn is_counted(&self) -> bool {
        matches!(self, Source::InFlight | Source::Small | Source::Pinned(_))
    }
}

fn take(context: &'static Context, size_bytes: usize, stream: usize, is_in_flight: bool) -> Result<(usize, Source)> {
    let limits = &context.counters.limits;
    if is_in_flight && let Some(taken) = limits.take(context, size_bytes, stream)? {
        return Ok(taken);
    }
    let backend = &context.backend;
    if limits.is_small() {
        // Pools' pieces would be more than the result.
        let address = or_trim(context, size_bytes, &|| backend.allocate_apart(size_bytes))?;
        return Ok((address, Source::Apart));
    }
    Ok((or_trim(context, size_bytes, &|| backend.allocate(size_bytes, stream))?, Source::Results))
}

/// What `allocate` gives; where the device is full, once more without what is kept unused.
fn or_trim(context: &'static Context, size_bytes: usize, allocate: &dyn Fn() -> Result<usize>) -> Result<usize> {
    if size_bytes as u64 > context.backend.properties().total_bytes {
        // Trimming could not help, and drivers call some such sizes invalid rather than too large.
        let cause = Error::new(ErrorKind::OutOfMemory, "more than the device has");
        return Err(out_of_memory(context, size_bytes, cause));
    }
    match allocate() {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            context.counters.trims.fetch_add(1, Ordering::Relaxed);
            context.backend.synchronize_device()?;
            context.counters.limits.trim(context)?;
            context.backend.trim_to(0)?;
            allocate().map_err(|error| out_of_memory(context, size_bytes, error))
        }
        answer => answer,
    }
}

fn out_of_memory(context: &'static Context, size_bytes: usize, cause: Error) -> Error {
    if cause.kind() != ErrorKind::OutOfMemory {
        return cause;
    }
    let room = match context.backend.memory_info() {
        Ok((free, total)) => format!("{free} of {total} bytes are free"),
        Err(_) => "how much is free is unknown".to_string(),
    };
    let used = context.counters.used.load(Ordering::Relaxed);
    let message = format!("{} has no {size_bytes} bytes left: {room}, cuzarr holds {used}", context.device);
    Error::new(ErrorKind::OutOfMemory, message).with_hint(MEMORY_HINT).with_source(cause)
}
