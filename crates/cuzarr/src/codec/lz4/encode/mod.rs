//! LZ4 frames, made on a device: numcodecs' LZ4 and Blosc-1 containers, from chunks that all have the same size.
//!
//! - `lz4_encode.cu`: a warp a piece of 8 KiB, then the pieces are joined to blocks and the blocks to frames. A
//!   frame is what any decoder reads: pieces only say who makes which part of it.
//! - Blosc's shuffle runs before, by the device's own kernels, block by block.
//!
//! What it gives is not what liblz4 gives: matches begin in their piece or shortly before it, and every position is looked at until nothing was
//! found for a while, whatever level or acceleration is asked.

pub(crate) mod cuda;

use crate::codec::blosc::Shuffling;

/// Frames begin at multiples of this. `CUZARR_ENCODE_ALIGNMENT` in lz4_encode.cu.
pub(crate) const FRAME_ALIGNMENT_BYTES: usize = 16;
/// Chunks of more are left to the host: positions in a frame are counted in 32 bits, with room for what does not compress.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Bytes of the header in front of blocks: numcodecs' LZ4, and Blosc.
const LZ4_HEADER_BYTES: usize = 4;
const BLOSC_HEADER_BYTES: usize = 16;

/// What frames chunks of one size become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    chunk_bytes: usize,
    container: Container,
}

/// What stands around the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    /// The decoded size, and one block.
    Lz4,
    /// Blosc's header, which says this.
    Blosc { block_bytes: usize, type_bytes: u8, splits: usize, shuffling: Shuffling, flags: u8 },
}

impl Encoding {
    /// Frames for chunks of `chunk_bytes`; `None` for chunks that are the host's to encode: empty and very large ones.
    pub(crate) fn new(chunk_bytes: usize, container: Container) -> Option<Encoding> {
        (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes).then_some(Encoding { chunk_bytes, container })
    }

    /// Bytes of one chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Most bytes of one frame.
    pub fn frame_bound_bytes(&self) -> usize {
        match self.container {
            Container::Lz4 => LZ4_HEADER_BYTES + self.chunk_bytes + self.chunk_bytes / 255 + 16,
            Container::Blosc { .. } => BLOSC_HEADER_BYTES + self.chunk_bytes,
        }
    }

    /// Most bytes of `count` frames, one behind the other.
    pub fn output_bound_bytes(&self, count: usize) -> usize {
        count.saturating_mul(self.frame_bound_bytes().next_multiple_of(FRAME_ALIGNMENT_BYTES))
    }
}
