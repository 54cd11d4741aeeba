//! Slabs one behind the other that fill one piece of a device's memory.
//!
//! A slab that was used a moment ago is still in the host's cache: filling it, and reading it for the bus, takes half as long. So
//! data larger than a slab goes through several of them, each of which goes back as soon as its bytes have crossed.

use std::sync::{Arc, Mutex};

use crate::error::Result;
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::slab::forward::Sent;
use crate::memory::slab::{Copied, PIECE_ALIGNMENT_BYTES, Slab, SlabPiece, SlabRing};
use crate::stream::Stream;

/// Pieces up to a fourth of a slab leave little of it empty. Slabs for larger ones have whole multiples of that, so that one can
/// replace another.
const PIECES_PER_SLAB: usize = 4;

/// Slabs that are lent one after the other, while their filled parts cross to one buffer.
pub struct SlabSeries {
    ring: SlabRing,
    dst: Buffer,
    stream: Stream,
    /// Bytes of slabs that it may still take.
    allowed_bytes: usize,
    /// The slab that pieces are carved of, and where in the buffer it begins.
    open: Option<(Slab, usize)>,
    carved_bytes: usize,
    /// Carved bytes of the slabs before it.
    closed_bytes: usize,
    sent: Arc<Mutex<Sent>>,
}

impl SlabRing {
    /// Slabs for `dst`, whose parts cross to it on `stream` when they were filled. Takes none yet.
    pub fn series(&self, dst: &Buffer, stream: &Stream) -> SlabSeries {
        SlabSeries {
            ring: self.clone(),
            dst: dst.clone(),
            stream: stream.clone(),
            allowed_bytes: self.series_bytes(dst.size_bytes()),
            open: None,
            carved_bytes: 0,
            closed_bytes: 0,
            sent: Arc::default(),
        }
    }

    /// Most bytes that the slabs of a series have, together, for pieces of `size_bytes` in all: a slab may end with too
    /// little room for the next piece, a third of its bytes at most.
    pub fn series_bytes(&self, size_bytes: usize) -> usize {
        size_bytes.saturating_add(size_bytes / 2).saturating_add(self.slab_bytes())
    }
}

impl SlabSeries {
    /// Bytes up to the end of the last piece.
    pub fn carved_bytes(&self) -> usize {
        self.carved_bytes
    }

    /// The next piece, for any thread to fill, and where in the buffer it comes to lie: at a multiple of 256 bytes. `None`
    /// when there is no room, in the buffer or in the ring.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceFailed`.
    pub fn carve(&mut self, size_bytes: usize) -> Result<Option<(usize, SlabPiece)>> {
        if let Some((slab, begin)) = &mut self.open
            && let Some(piece) = slab.carve(size_bytes)
        {
            self.carved_bytes = *begin + slab.carved_bytes();
            return Ok(Some((*begin + piece.offset_bytes(), piece)));
        }
        let begin = self.carved_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES);
        let wanted_bytes = self.slab_bytes_for(size_bytes).min(self.allowed_bytes).min(self.ring.limit_bytes());
        if begin + size_bytes > self.dst.size_bytes() || size_bytes > wanted_bytes {
            return Ok(None);
        }
        let Some(mut slab) = self.ring.try_acquire(wanted_bytes)? else { return Ok(None) };
        self.allowed_bytes -= slab.size_bytes().min(self.allowed_bytes);
        slab.upload_beside(&self.dst.slice(begin..)?, &self.stream, Arc::clone(&self.sent))?;
        self.close();
        let piece = slab.carve(size_bytes);
        self.carved_bytes = begin + slab.carved_bytes();
        self.open = Some((slab, begin));
        Ok(piece.map(|piece| (begin, piece)))
    }

    /// A slab for pieces like this one.
    fn slab_bytes_for(&self, size_bytes: usize) -> usize {
        let slab_bytes = self.ring.slab_bytes();
        match slab_bytes / PIECES_PER_SLAB {
            small if size_bytes <= small => slab_bytes,
            small if size_bytes <= 2 * small => 2 * slab_bytes,
            small => size_bytes.next_multiple_of(small.max(1)),
        }
    }

    /// Sends the open slab's rest as soon as it is filled; it goes back behind that.
    fn close(&mut self) {
        if let Some((slab, _)) = self.open.take() {
            slab.close();
            self.closed_bytes += slab.carved_bytes();
        }
    }

    /// Sends what was filled and has not crossed yet; gives all copies.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives, `DeviceFailed`, also for copies that were sent before.
    pub fn finish(&mut self) -> Result<Vec<Copied>> {
        self.close();
        lock(&self.sent).take(self.closed_bytes)
    }
}
