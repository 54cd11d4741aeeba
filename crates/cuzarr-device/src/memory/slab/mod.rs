//! The pinned ring: host memory that storage fills and the bus empties.
//!
//! Slabs are plain pinned memory, never write-combined, since the host reads headers in them. Pinning is slow (about 1 s a
//! GiB), so slabs are made when first needed and kept for the process, per device; a [`SlabRing`] bounds how much one user
//! has in flight. On `cpu` slabs are heap memory.
//!
//! ```
//! use cuzarr_device::{Buffer, Device, SlabRing, Stream, pool};
//! let stream = Stream::new(Device::Cpu)?;
//! let ring = SlabRing::new(Device::Cpu, 1 << 20, 4 << 20)?;
//! let arena = pool::allocate(1 << 20, &stream)?;
//! let mut slab = ring.acquire(0)?;
//! let mut piece = slab.carve(1000).expect("a fresh slab has room");
//! std::thread::scope(|threads| threads.spawn(move || piece.fill(7)).join()).unwrap();
//! slab.upload(0..1000, &arena.slice(..1000)?, &stream)?;
//! drop(slab); // reused once the copy is done
//! stream.synchronize()?;
//! assert_eq!(arena.host_bytes()?[999], 7);
//! # Ok::<(), cuzarr_device::Error>(())
//! ```

mod cache;
mod forward;
mod series;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

use cache::HOST_CACHE;
pub(crate) use cache::{Block, PinnedCache};
pub use forward::Copied;
use forward::Forward;
pub use series::SlabSeries;

use crate::device::Device;
use crate::driver::context::{Context, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::memory::buffer::Buffer;
use crate::stream::Stream;

/// Size of a slab unless something else is asked: large enough that copies run at the bus's speed.
pub const DEFAULT_SLAB_BYTES: usize = 16 << 20;

/// Pieces begin at multiples of this, so that what lands behind them on the device is aligned for wide loads.
const PIECE_ALIGNMENT_BYTES: usize = 256;

/// Hands out slabs of one device, never more than its limit at once. Clones share the limit.
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
    /// Given back, but copies of them are still under way; oldest first.
    busy: VecDeque<(Vec<Event>, Block)>,
}

impl SlabRing {
    /// A ring of slabs of `slab_bytes` with at most `limit_bytes` out at once. Takes no memory yet.
    ///
    /// # Errors
    /// `InvalidArgument` for sizes of 0, `DeviceUnavailable` when the device cannot be used.
    pub fn new(device: Device, slab_bytes: usize, limit_bytes: usize) -> Result<SlabRing> {
        if slab_bytes == 0 || limit_bytes == 0 {
            return Err(Error::invalid(format!("slabs of {slab_bytes} bytes within {limit_bytes} bytes hold nothing")));
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

    /// For which device the slabs are pinned.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Size of an ordinary slab.
    pub fn slab_bytes(&self) -> usize {
        self.0.slab_bytes
    }

    /// Most bytes out at once.
    pub fn limit_bytes(&self) -> usize {
        self.0.limit_bytes
    }

    /// Bytes out now, copies under way included.
    pub fn leased_bytes(&self) -> usize {
        lock(&self.0.state).leased_bytes
    }

    /// A slab of at least `min_bytes` (0: an ordinary one). Blocks until enough slabs came back and their last copies are
    /// done; a thread that holds all of them itself waits for ever.
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

    /// As [`SlabRing::acquire`], but `None` instead of blocking.
    ///
    /// # Errors
    /// As [`SlabRing::acquire`].
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
                    copies: Mutex::default(),
                    forward: OnceLock::new(),
                };
                Ok(Slab { lease: Arc::new(lease), size_bytes, carved_bytes: 0 })
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
        self.context.map_or(&HOST_CACHE, |context| &context.pinned)
    }

    fn size_for(&self, min_bytes: usize) -> Result<usize> {
        if min_bytes <= self.slab_bytes {
            return Ok(self.slab_bytes);
        }
        if min_bytes > self.limit_bytes {
            let message =
                format!("one slab of {min_bytes} bytes is above the ring's limit of {} bytes", self.limit_bytes);
            return Err(Error::new(ErrorKind::BudgetExceeded, message)
                .with_hint("raise the pinned memory limit, or store smaller chunks"));
        }
        // Whole multiples, so that slabs of near sizes can replace each other.
        Ok(min_bytes.next_multiple_of(1 << 20).min(self.limit_bytes))
    }

    /// Takes slabs whose copies are done out of `busy`; with `wait`, blocks for the oldest.
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
            // The slab leaves the queue first, so that no other thread takes it too.
            let Some((events, block)) = state.busy.pop_front() else { break };
            drop(state);
            let passed: Result<()> = events.iter().try_for_each(Event::synchronize);
            let size_bytes = block.size_bytes;
            match passed {
                Ok(()) => self.cache().put(self.context, block, self.limit_bytes),
                // The device may still reach it: never give it to anybody again.
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

/// What a slab and its pieces share; dropped by the last of them.
struct Lease {
    ring: Arc<Ring>,
    leased_bytes: usize,
    /// `None` only while it is being dropped.
    block: Option<Block>,
    /// The last copy from, and the last into the slab on each stream.
    copies: Mutex<Vec<UnderWay>>,
    forward: OnceLock<Forward>,
}

/// A copy that was put on a stream.
struct UnderWay {
    stream: Stream,
    /// Whether it writes the slab.
    into: bool,
    done: Event,
}

impl Lease {
    fn address(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.address)
    }

    fn note_copy(&self, stream: &Stream, into: bool) -> Result<()> {
        let done = match stream.record() {
            Ok(event) => event,
            // Without a mark nobody would know when the copy is done.
            Err(error) => return stream.synchronize().and(Err(error)),
        };
        self.note_done(stream, into, done);
        Ok(())
    }

    fn note_done(&self, stream: &Stream, into: bool, done: Event) {
        let mut copies = lock(&self.copies);
        match copies.iter_mut().find(|copy| copy.into == into && copy.stream.is_same_queue(stream)) {
            Some(copy) => copy.done = done,
            None => copies.push(UnderWay { stream: stream.clone(), into, done }),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        let events: Vec<Event> = lock(&self.copies).drain(..).map(|copy| copy.done).collect();
        let mut state = lock(&self.ring.state);
        // A reused block may be larger than what was asked; the ring counts what it asked for.
        state.leased_bytes = state.leased_bytes - self.leased_bytes + block.size_bytes;
        state.busy.push_back((events, block));
        drop(state);
        self.ring.returned.notify_all();
    }
}

/// A piece of pinned host memory, for one user at a time. Dropping it gives it back to the ring, which hands it out again
/// once its last copy is done.
pub struct Slab {
    lease: Arc<Lease>,
    size_bytes: usize,
    carved_bytes: usize,
}

impl Slab {
    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Bytes up to the end of the last piece: what an upload has to take.
    pub fn carved_bytes(&self) -> usize {
        self.carved_bytes
    }

    /// Bytes that can still be carved in one piece.
    pub fn room_bytes(&self) -> usize {
        self.size_bytes.saturating_sub(self.carved_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES))
    }

    /// The next piece, for any thread to fill; `None` when there is no room. It begins at a multiple of 256 bytes and holds
    /// whatever was there before.
    pub fn carve(&mut self, size_bytes: usize) -> Option<SlabPiece> {
        if size_bytes > self.room_bytes() {
            return None;
        }
        let offset_bytes = self.carved_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES);
        if let Some(forward) = self.lease.forward.get() {
            forward.carved(self.carved_bytes..offset_bytes, offset_bytes + size_bytes);
        }
        self.carved_bytes = offset_bytes + size_bytes;
        Some(SlabPiece { lease: Arc::clone(&self.lease), offset_bytes, size_bytes, family: None })
    }

    /// Forgets what was carved, to begin again.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives or when filled parts cross by themselves, `DeviceFailed`. Waits for copies under
    /// way.
    pub fn reset(&mut self) -> Result<()> {
        self.require_no_pieces()?;
        if self.lease.forward.get().is_some() {
            return Err(Error::invalid("a slab whose filled parts cross by themselves is filled once"));
        }
        self.wait()?;
        self.carved_bytes = 0;
        Ok(())
    }

    /// Blocks until every copy from or into this slab is done.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub fn wait(&self) -> Result<()> {
        let copies = std::mem::take(&mut *lock(&self.lease.copies));
        copies.iter().try_for_each(|copy| copy.done.synchronize())
    }

    /// Blocks until every copy into this slab is done.
    fn wait_for_downloads(&self) -> Result<()> {
        let mut copies = lock(&self.lease.copies);
        let downloads: Vec<UnderWay> = copies.extract_if(.., |copy| copy.into).collect();
        drop(copies);
        downloads.iter().try_for_each(|copy| copy.done.synchronize())
    }

    /// Puts the copy of `range` of this slab into `dst` on `stream`; all pieces must have been dropped.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is outside or of another size than `dst`, or a piece lives; `MemorySpace`;
    /// `DeviceFailed`.
    pub fn upload(&mut self, range: Range<usize>, dst: &Buffer, stream: &Stream) -> Result<()> {
        self.require_copy(&range, dst.size_bytes())?;
        // Later pieces begin behind what is being copied.
        self.carved_bytes = self.carved_bytes.max(range.end);
        // SAFETY: inside the slab, which is not written while the copy runs: no piece lives, writing again goes through
        // `bytes_mut` or `reset`, which wait, and the ring waits for the mark before it hands the slab out.
        unsafe { stream.h2d_async((self.lease.address() + range.start) as *const u8, dst) }?;
        self.lease.note_copy(stream, false)
    }

    /// Where the slab lies; devices reach pinned memory at the same address.
    pub(crate) fn address(&self) -> usize {
        self.lease.address()
    }

    /// Work that reads the slab was put on `stream`: it is not written before that is done.
    pub(crate) fn note_use(&self, stream: &Stream) -> Result<()> {
        self.lease.note_copy(stream, false)
    }

    /// Puts the copy of `src` to byte `offset_bytes` of this slab on `stream`. [`Slab::bytes`] waits for it.
    ///
    /// # Errors
    /// As [`Slab::upload`].
    pub fn download(&mut self, src: &Buffer, offset_bytes: usize, stream: &Stream) -> Result<()> {
        let end = offset_bytes.saturating_add(src.size_bytes());
        self.require_copy(&(offset_bytes..end), src.size_bytes())?;
        // SAFETY: inside the slab, which is not touched while the copy runs, as in `upload`.
        unsafe { stream.d2h_async(src, (self.lease.address() + offset_bytes) as *mut u8) }?;
        self.carved_bytes = self.carved_bytes.max(end);
        self.lease.note_copy(stream, true)
    }

    /// The bytes, once no piece lives; waits for copies into the slab.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, `DeviceFailed`.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.require_no_pieces()?;
        self.wait_for_downloads()?;
        // SAFETY: initialised memory of this size, and nobody writes it: no piece, no such copy, and both need `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.lease.address() as *const u8, self.size_bytes) })
    }

    /// The bytes for writing, as [`Slab::bytes`].
    ///
    /// # Errors
    /// As [`Slab::bytes`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.require_no_pieces()?;
        self.wait()?;
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.lease.address() as *mut u8, self.size_bytes) })
    }

    /// The slab as host memory that many may read at once. It goes back to the ring with the last view of it.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, `DeviceFailed`. Waits for copies under way.
    pub fn into_buffer(self) -> Result<Buffer> {
        self.require_no_pieces()?;
        self.wait()?;
        let (address, size_bytes) = (self.lease.address(), self.size_bytes);
        // SAFETY: initialised memory of this size that the slab keeps from everybody else until the owner is dropped.
        Ok(unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(self)) })
    }

    fn require_no_pieces(&self) -> Result<()> {
        match Arc::strong_count(&self.lease) {
            1 => {
                // What the threads that dropped their pieces wrote is visible from here on.
                std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
                Ok(())
            }
            count => Err(Error::invalid(format!("{} pieces of the slab are still being filled", count - 1))),
        }
    }

    fn require_copy(&self, range: &Range<usize>, size_bytes: usize) -> Result<()> {
        self.require_no_pieces()?;
        if range.start <= range.end && range.end <= self.size_bytes && range.len() == size_bytes {
            return Ok(());
        }
        let message = format!("range {range:?} of a slab of {} bytes, for {size_bytes} bytes", self.size_bytes);
        Err(Error::invalid(message))
    }
}

/// Part of a slab, to be filled by whichever thread has it. Keeps the slab out until it is dropped.
pub struct SlabPiece {
    lease: Arc<Lease>,
    offset_bytes: usize,
    size_bytes: usize,
    /// Bytes of the slab that this piece and others were before they were divided; all of them hold it.
    family: Option<Arc<Range<usize>>>,
}

impl SlabPiece {
    /// Where in the slab the piece begins.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Keeps the first `at` bytes and gives the others, for another thread to fill. An `at` beyond the end keeps all.
    pub fn split_off(&mut self, at: usize) -> SlabPiece {
        let at = at.min(self.size_bytes);
        let (offset_bytes, size_bytes) = (self.offset_bytes + at, self.size_bytes - at);
        let whole = self.offset_bytes..self.offset_bytes + self.size_bytes;
        let family = Arc::clone(self.family.get_or_insert_with(|| Arc::new(whole)));
        self.size_bytes = at;
        SlabPiece { lease: Arc::clone(&self.lease), offset_bytes, size_bytes, family: Some(family) }
    }

    /// The bytes of this piece and of all others that it was divided into, once those were dropped; `None` before.
    pub fn whole(&self) -> Option<&[u8]> {
        let Some(family) = &self.family else { return Some(self) };
        if Arc::strong_count(family) > 1 {
            return None;
        }
        // What the threads that dropped the others wrote is visible from here on.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let address = self.lease.address() + family.start;
        // SAFETY: initialised memory inside the slab, which nobody writes: the others are gone, this piece is borrowed, and the slab
        // itself refuses while it lives. Copies under way only read.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, family.len()) })
    }
}

impl Drop for SlabPiece {
    fn drop(&mut self) {
        if let Some(forward) = self.lease.forward.get() {
            forward.filled(&self.lease, self.offset_bytes..self.offset_bytes + self.size_bytes);
        }
    }
}

impl Deref for SlabPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let address = self.lease.address() + self.offset_bytes;
        // SAFETY: initialised memory inside the slab; pieces do not overlap, and the slab itself refuses while one lives.
        unsafe { std::slice::from_raw_parts(address as *const u8, self.size_bytes) }
    }
}

impl DerefMut for SlabPiece {
    fn deref_mut(&mut self) -> &mut [u8] {
        let address = self.lease.address() + self.offset_bytes;
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, self.size_bytes) }
    }
}
