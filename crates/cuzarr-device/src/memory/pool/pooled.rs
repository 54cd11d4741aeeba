//! One allocation of our pool: the streams that used it, and how it is freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::driver::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::pinned::PinnedCache;
use crate::memory::pool::budget::{Limits, Source, is_in_flight};
use crate::memory::pool::counters::{Counters, Named, out_of_memory};
use crate::stream::Stream;

/// One allocation of cuzarr's pool, which is freed when the last view of it is dropped.
pub(crate) struct PooledMemory {
    pub(super) context: &'static Context,
    address: usize,
    size_bytes: usize,
    source: Source,
    /// The stream in whose order the memory was allocated; `None` if every stream may use the memory immediately.
    home: Option<Stream>,
    /// The event behind the allocation, for which other streams wait before they use the memory; `None` if no stream
    /// has to wait.
    ready: Option<Event>,
    /// Uses of this memory by its home stream, the stream in whose order it was allocated.
    at_home: Mutex<HomeUses>,
    /// Other streams that used the memory, the latest one last.
    users: Mutex<Vec<Stream>>,
    pub(super) shared: AtomicBool,
    pub(super) name: OnceLock<Named>,
}

/// Uses of memory by its home stream, on which it was allocated.
#[derive(Default)]
struct HomeUses {
    /// Number of uses of the memory by its home stream that have no event recorded behind them yet.
    open: usize,
    /// The last event that the home stream recorded; once it has passed, all uses before it are done.
    passed: Option<Event>,
}

impl PooledMemory {
    pub(crate) fn new(context: &'static Context, size_bytes: usize, home: Option<Stream>) -> Result<PooledMemory> {
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
        Counters::of(context).add(size_bytes);
        match &memory.home {
            _ if size_bytes == 0 => {}
            Some(home) => {
                memory.ready = Some(home.record()?);
                lock(&memory.at_home).passed.clone_from(&memory.ready);
            }
            // SAFETY: without a home, `raw` is the context's home stream, which lives as long as the process.
            None => unsafe { context.backend.synchronize_stream(raw) }?,
        }
        Ok(memory)
    }

    /// Notes that `stream` uses the memory, and makes the stream wait until the memory was allocated.
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

    /// Records an event behind the last noted use of the memory, if `stream` is its home stream. If all uses by the
    /// home stream are marked, freeing the memory does not wait for its later work.
    pub(crate) fn note_end(&self, stream: &Stream) -> Result<()> {
        if self.is_home(stream) {
            let mut at_home = lock(&self.at_home);
            // Recorded under the lock, so that the last mark is behind all others.
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
            // Frees on the context's home stream, so that the next allocation without a stream reuses this memory. If
            // another stream freed it, the driver would take more memory from the system until it has seen that stream
            // pass.
            // SAFETY: `drop` calls this once, with the last view gone, and all streams that used it have passed.
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
        // SAFETY: `drop` calls this once, with the last view gone. The loop above made `raw` wait for every other user
        // stream.
        unsafe { self.free(raw) }
    }

    /// Gives the memory back to the pool, arena or driver that it came from, in the order of `stream`.
    ///
    /// # Safety
    /// Called once. No buffer views the memory any more. `stream` is alive, and waits for every stream that used the
    /// memory.
    unsafe fn free(&mut self, stream: usize) -> Result<()> {
        let (context, address) = (self.context, self.address);
        match std::mem::replace(&mut self.source, Source::Results) {
            // SAFETY: `take` got it from this backend's pools, and the caller promises the rest.
            Source::Results | Source::InFlight => unsafe { context.backend.free(address, stream) },
            Source::Small => Limits::of(context).give_back_small(context, address, stream),
            // SAFETY: `take` got it from `allocate_apart` with this size, and the caller promises the rest.
            Source::Apart => unsafe { context.backend.free_apart(address, self.size_bytes) },
            Source::Pinned(block) => {
                // SAFETY: the caller promises a stream, which lives.
                unsafe { context.backend.synchronize_stream(stream) }?;
                PinnedCache::of(Some(context)).put(Some(context), block, 0);
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
            // A failure means that the device is lost, or that this is a forked child. Then the memory may leak: the
            // next call on the device reports the failure.
            let _ = self.give_back();
        }
        let size_bytes = self.size_bytes as u64;
        Counters::of(self.context).used.fetch_sub(size_bytes, Ordering::Relaxed);
        if is_counted {
            Limits::of(self.context).give_back(size_bytes);
        }
    }
}

impl PooledMemory {
    /// Turns this allocation of the pool into a buffer over all of its bytes.
    pub(crate) fn into_buffer(self) -> Buffer {
        let (device, address, size_bytes) = (self.context.device, self.address, self.size_bytes);
        // SAFETY: the pool gave this memory to this value alone, and the owner gives it back. The host cannot reach it.
        unsafe { Buffer::from_raw(device, address, size_bytes, Box::new(self)) }
    }
}

/// Allocates device memory for running work or for a result. If `is_in_flight`, it comes from the memory for work in
/// flight while there is room; otherwise from the pool for results or from the driver.
fn take(context: &'static Context, size_bytes: usize, stream: usize, is_in_flight: bool) -> Result<(usize, Source)> {
    let limits = Limits::of(context);
    if is_in_flight && let Some(taken) = limits.take(context, size_bytes, stream)? {
        return Ok(taken);
    }
    let backend = &context.backend;
    if limits.is_small() {
        // A pool takes larger pieces from the driver than the result needs.
        let address = or_trim(context, size_bytes, &|| backend.allocate_apart(size_bytes))?;
        return Ok((address, Source::Apart));
    }
    Ok((or_trim(context, size_bytes, &|| backend.allocate(size_bytes, stream))?, Source::Results))
}

/// Calls `allocate`; if the device is full, frees unused memory and calls it once more.
fn or_trim(context: &'static Context, size_bytes: usize, allocate: &dyn Fn() -> Result<usize>) -> Result<usize> {
    if size_bytes as u64 > context.backend.properties().total_bytes {
        // Trimming could not help, and some drivers call such sizes invalid instead of too large.
        let cause = Error::new(ErrorKind::OutOfMemory, "the device does not have so much memory");
        return Err(out_of_memory(context, size_bytes, cause));
    }
    match allocate() {
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {
            Counters::of(context).trims.fetch_add(1, Ordering::Relaxed);
            context.backend.synchronize_device()?;
            Limits::of(context).trim(context)?;
            context.backend.trim_to(0)?;
            allocate().map_err(|error| out_of_memory(context, size_bytes, error))
        }
        answer => answer,
    }
}
