//! A series of slabs that fill one buffer on a device, one after the other.
//!
//! A slab that was used a moment ago is still in the CPU's cache. Filling it and sending it over the bus then takes
//! half as long. So data larger than a slab goes through several slabs. Each goes back to the ring as soon as its bytes
//! are uploaded.

use std::sync::{Arc, Mutex};

use crate::error::Result;
use crate::lock::lock;
use crate::memory::buffer::Buffer;
use crate::memory::slab::forward::Sent;
use crate::memory::slab::{Copied, PIECE_ALIGNMENT_BYTES, Slab, SlabPiece, SlabRing};
use crate::stream::Stream;

/// A piece of memory counts as small if this many of its size fit into one slab. Small pieces waste little of the
/// slab's end. For larger pieces, the size of a slab is a multiple of this fraction, so that one slab can replace
/// another.
const PIECES_PER_SLAB: usize = 4;

/// Slabs that are handed out one after the other, while their filled parts are uploaded to one buffer.
pub struct SlabSeries {
    ring: SlabRing,
    dst: Buffer,
    stream: Stream,
    /// Total size of the slabs that the series may still take, in bytes.
    allowed_bytes: usize,
    /// The slab that pieces are carved from, and the offset in the buffer where it begins.
    open: Option<(Slab, usize)>,
    carved_bytes: usize,
    /// Number of bytes that were carved (cut for threads to fill) from the slabs before the open one.
    closed_bytes: usize,
    sent: Arc<Mutex<Sent>>,
}

impl SlabRing {
    /// Makes a series of slabs that are uploaded to `dst` on `stream` as they are filled. Takes no slab yet.
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

    /// Most bytes that the slabs of a series can take together, for pieces of `size_bytes` in total. A slab may end
    /// with too little room for the next piece; that wastes at most a third of it.
    pub fn series_bytes(&self, size_bytes: usize) -> usize {
        size_bytes.saturating_add(size_bytes / 2).saturating_add(self.slab_bytes())
    }
}

impl SlabSeries {
    /// Offset in the buffer at which the last carved piece ends, in bytes.
    pub fn carved_bytes(&self) -> usize {
        self.carved_bytes
    }

    /// Carves the next piece of memory from the slabs, for any thread to fill. Returns its offset in the buffer, a
    /// multiple of 256 bytes, and the piece. `None` if the buffer or the ring has no room.
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

    /// Size in bytes of the slab to take from the ring, so that pieces of `size_bytes` fit into it well.
    fn slab_bytes_for(&self, size_bytes: usize) -> usize {
        let slab_bytes = self.ring.slab_bytes();
        match slab_bytes / PIECES_PER_SLAB {
            small if size_bytes <= small => slab_bytes,
            small if size_bytes <= 2 * small => 2 * slab_bytes,
            small => size_bytes.next_multiple_of(small.max(1)),
        }
    }

    /// Lets the rest of the slab that pieces were carved from be uploaded as soon as it is filled. The slab then goes
    /// back to the ring.
    fn close(&mut self) {
        if let Some((slab, _)) = self.open.take() {
            slab.close();
            self.closed_bytes += slab.carved_bytes();
        }
    }

    /// Submits the copies of all bytes that were not uploaded yet. Returns all copies of the series.
    ///
    /// # Errors
    /// `InvalidArgument` while a piece lives. `DeviceFailed`, also for copies that were submitted before.
    pub fn finish(&mut self) -> Result<Vec<Copied>> {
        self.close();
        lock(&self.sent).take(self.closed_bytes)
    }
}
