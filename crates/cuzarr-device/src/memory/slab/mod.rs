//! The ring of pinned slabs: host memory that is filled from storage and copied to a device.
//!
//! Slabs are plain pinned memory, never write-combined, since the host reads headers in them. Pinning is slow (about 1
//! s per GiB), so slabs are made when first needed and kept until the process ends, for each device. A [`SlabRing`]
//! limits how much one user has in flight. On `cpu`, slabs are heap memory.
//!
//! ```
//! use cuzarr_device::{Buffer, Device, Stream};
//! use cuzarr_device::internal::{SlabRing, pool};
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

mod copies;
mod forward;
mod piece;
mod ring;
mod series;

use std::ops::Range;
use std::sync::Arc;

pub use forward::Copied;
pub use piece::SlabPiece;
pub use ring::SlabRing;
pub use series::SlabSeries;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::slab::ring::Lease;
use crate::stream::Stream;

/// Default size in bytes of a slab, a block of pinned host memory. It is large enough for copies at the bus's full
/// speed.
pub const DEFAULT_SLAB_BYTES: usize = 16 << 20;

/// Alignment of pieces, so that their copies on the device are aligned for wide loads.
const PIECE_ALIGNMENT_BYTES: usize = 256;

/// A block of pinned host memory, handed out by a ring to one user at a time. Dropping it gives it back to the ring,
/// which reuses it once its last copy is done.
pub struct Slab {
    lease: Arc<Lease>,
    size_bytes: usize,
    carved_bytes: usize,
}

impl Slab {
    fn new(lease: Lease, size_bytes: usize) -> Slab {
        Slab { lease: Arc::new(lease), size_bytes, carved_bytes: 0 }
    }

    /// Size of the slab in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Offset in the slab at which the last carved piece ends, in bytes. An upload must cover everything up to here.
    pub fn carved_bytes(&self) -> usize {
        self.carved_bytes
    }

    /// Size of the largest piece that can still be carved from the slab, in bytes.
    pub fn room_bytes(&self) -> usize {
        self.size_bytes.saturating_sub(self.carved_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES))
    }

    /// Carves the next piece of `size_bytes` from the slab, for any thread to fill; `None` if the slab has no room for
    /// it. The piece begins at a multiple of 256 bytes. Its contents are unspecified.
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

    /// Discards all pieces carved from the slab, so that the slab can be carved again. Waits for pending copies.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, or after [`Slab::upload_as_filled`]; `DeviceFailed`.
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
        self.lease.copies.wait(false)
    }

    /// Blocks until every copy into this slab is done.
    fn wait_for_downloads(&self) -> Result<()> {
        self.lease.copies.wait(true)
    }

    /// Submits on `stream` the copy of the bytes `range` of this slab to `dst`. All pieces must have been dropped.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is outside, its size differs from `dst`, or a piece lives; `MemorySpace`;
    /// `DeviceFailed`.
    pub fn upload(&mut self, range: Range<usize>, dst: &Buffer, stream: &Stream) -> Result<()> {
        self.require_copy(&range, dst.size_bytes())?;
        // Later pieces begin behind the bytes that are being copied.
        self.carved_bytes = self.carved_bytes.max(range.end);
        // SAFETY: `require_copy` checked that the range lies inside the slab. No thread writes the slab while the copy
        // runs: no piece lives, and `bytes_mut`, `reset` and the ring wait for the mark that `Copies::note` leaves.
        unsafe { stream.h2d_async((self.lease.address() + range.start) as *const u8, dst) }?;
        self.lease.copies.note(stream, false)
    }

    /// Address of the slab's first byte in host memory. Devices access pinned memory at the same address.
    pub(crate) fn address(&self) -> usize {
        self.lease.address()
    }

    /// Records that work which reads the slab was submitted on `stream`. The slab is not written before that work is
    /// done.
    pub(crate) fn note_use(&self, stream: &Stream) -> Result<()> {
        self.lease.copies.note(stream, false)
    }

    /// Submits on `stream` the copy of `src` to byte `offset_bytes` of this slab. [`Slab::bytes`] waits for it.
    ///
    /// # Errors
    /// Those of [`Slab::upload`].
    pub fn download(&mut self, src: &Buffer, offset_bytes: usize, stream: &Stream) -> Result<()> {
        let end = offset_bytes.saturating_add(src.size_bytes());
        self.require_copy(&(offset_bytes..end), src.size_bytes())?;
        // SAFETY: `require_copy` checked that the range lies inside the slab. No thread touches the slab while the copy
        // runs: no piece lives, and `bytes`, `bytes_mut`, `reset` and the ring wait for the mark that `Copies::note`
        // leaves.
        unsafe { stream.d2h_async(src, (self.lease.address() + offset_bytes) as *mut u8) }?;
        self.carved_bytes = self.carved_bytes.max(end);
        self.lease.copies.note(stream, true)
    }

    /// Returns all bytes of the slab for reading. All pieces must have been dropped. Waits for copies into the slab.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, `DeviceFailed`.
    pub fn bytes(&self) -> Result<&[u8]> {
        self.require_no_pieces()?;
        self.wait_for_downloads()?;
        // SAFETY: initialised memory of this size, and nothing writes it: there is no piece, and `Copies::wait` has
        // waited for copies into the slab. New pieces and new copies need `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.lease.address() as *const u8, self.size_bytes) })
    }

    /// Returns all bytes of the slab for writing. All pieces must have been dropped. Waits for copies from and into the
    /// slab.
    ///
    /// # Errors
    /// Those of [`Slab::bytes`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.require_no_pieces()?;
        self.wait()?;
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.lease.address() as *mut u8, self.size_bytes) })
    }

    /// Turns the slab into a buffer in host memory that many threads may read at once. It goes back to the ring when
    /// the last view of it is dropped.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, `DeviceFailed`. Waits for pending copies.
    pub fn into_buffer(self) -> Result<Buffer> {
        self.require_no_pieces()?;
        self.wait()?;
        let (address, size_bytes) = (self.lease.address(), self.size_bytes);
        // SAFETY: initialised memory of this size, and all copies are done. The slab owns the memory from now on, so
        // neither the ring nor pieces use it.
        Ok(unsafe { Buffer::from_raw(Device::Cpu, address, size_bytes, Box::new(self)) })
    }

    fn require_no_pieces(&self) -> Result<()> {
        match Arc::strong_count(&self.lease) {
            1 => {
                // Makes the bytes visible that threads wrote before they dropped their pieces.
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
