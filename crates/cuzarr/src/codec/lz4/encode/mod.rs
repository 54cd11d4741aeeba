//! Encodes LZ4 blocks on a device.
//!
//! In `lz4_encode.cu`, each block of threads encodes a piece of 16 KiB; then the pieces are joined to LZ4 blocks. Any
//! LZ4 decoder reads the blocks: pieces only divide the work.
//!
//! The blocks differ from liblz4's. Matches begin in their piece or shortly before it. The kernels look at every
//! position, at any level and acceleration.

mod cuda;

use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode};

/// Maximum bytes of a chunk that kernels encode; the host encodes larger ones. Positions in a frame are counted in 32
/// bits, with room for data that does not compress.
const MAX_CHUNK_BYTES: usize = 1 << 30;

/// An encoder of chunks of at most `chunk_bytes` to LZ4 blocks, by kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lz4Encoder {
    chunk_bytes: usize,
    header_bytes: usize,
}

impl Lz4Encoder {
    /// An encoder of chunks of up to `chunk_bytes`; each frame states its decoded size in `header_bytes` bytes, 4 or
    /// none. `None` for chunks that the host encodes: empty and very large ones.
    pub(crate) fn new(chunk_bytes: usize, header_bytes: usize) -> Option<Lz4Encoder> {
        (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes).then_some(Lz4Encoder { chunk_bytes, header_bytes })
    }
}

impl DeviceEncoder for Lz4Encoder {
    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn takes_smaller(&self) -> bool {
        true
    }

    fn frame_bound_bytes(&self) -> usize {
        self.header_bytes + self.chunk_bytes + self.chunk_bytes / 255 + 16
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        &super::cost::ENCODING_SPEEDS
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        cuda::Lz4Chunks::new(self, row).memory_bytes()
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(cuda::Lz4Chunks::new(self, row)))
    }
}
