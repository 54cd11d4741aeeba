//! Frames of LZ4 blocks, made on a device from chunks that all have one size.
//!
//! `lz4_encode.cu` lets a warp encode a piece of 8 KiB, then joins the pieces to blocks and the blocks to frames. Any decoder
//! reads the frames: pieces only say who makes which part of them.
//!
//! The frames are not those of liblz4. Matches begin in their piece or shortly before it. The kernels look at every position
//! until they have found nothing for a while, whatever level or acceleration is asked.

mod cuda;

pub(crate) use cuda::Chunks;

use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode};

/// Chunks of more are left to the host: positions in a frame are counted in 32 bits, with room for what does not compress.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Bytes of the header in front of blocks: numcodecs' LZ4, and Blosc.
const SIZED_HEADER_BYTES: usize = 4;
const BLOSC_HEADER_BYTES: usize = 16;

/// What stands around the blocks of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The decoded size before one block.
    Sized,
    /// Blosc-1: a header that says these values, the starts of blocks, and a size before each stream.
    Blosc { block_bytes: usize, type_bytes: u8, splits: usize, flags: u8 },
}

/// Makes LZ4 frames of chunks of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoder {
    chunk_bytes: usize,
    framing: Framing,
}

impl Encoder {
    /// An encoder of chunks of `chunk_bytes`. `None` for chunks that the host encodes: empty and very large ones.
    pub(crate) fn new(chunk_bytes: usize, framing: Framing) -> Option<Encoder> {
        (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes).then_some(Encoder { chunk_bytes, framing })
    }
}

impl DeviceEncoder for Encoder {
    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn frame_bound_bytes(&self) -> usize {
        match self.framing {
            Framing::Sized => SIZED_HEADER_BYTES + self.chunk_bytes + self.chunk_bytes / 255 + 16,
            Framing::Blosc { .. } => BLOSC_HEADER_BYTES + self.chunk_bytes,
        }
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        &super::cost::ENCODING_SPEEDS
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        Chunks::memory_bytes(self, row)
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(Chunks::new(self, row)))
    }
}
