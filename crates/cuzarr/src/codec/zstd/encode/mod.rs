//! Encodes Zstandard frames on a device.
//!
//! `codec/lz/find` finds repeated bytes in blocks of 32 KiB. The kernels of this folder code the sequences and literals
//! of all blocks side by side, and assemble the frames. Any decoder reads the frames, and GPUs decode blocks of that
//! size fast.
//!
//! The frames differ from libzstd's. All levels up to [`MAX_LEVEL`] give the same frames. Higher levels ask for smaller
//! frames, and are left to libzstd.

mod cuda;

use cuzarr_device::Device;

use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode};
use crate::codec::lz::find::{self, BLOCK_BYTES};

/// Maximum bytes of a chunk that kernels encode: they count positions in a frame in 32 bits.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Maximum bytes of a chunk that kernels encode if its frame needs a checksum: one warp hashes a chunk, at 2 GB/s.
const MAX_CHECKED_BYTES: usize = 4 << 20;
/// Maximum level at which kernels encode; the host encodes at higher levels. These ask for frames at least a tenth
/// smaller than libzstd's at level 3, which kernels do not make.
const MAX_LEVEL: i32 = 9;
/// Maximum bytes of the header of a Zstandard frame. A block's header and the checksum follow.
const FRAME_HEADER_BYTES: usize = 10;
const BLOCK_HEADER_BYTES: usize = 3;
const CHECKSUM_BYTES: usize = 4;

/// An encoder of chunks of at most `chunk_bytes` to Zstandard frames, by kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ZstdEncoder {
    chunk_bytes: usize,
    level: i32,
    checksum: bool,
}

impl ZstdEncoder {
    /// An encoder of chunks of up to `chunk_bytes` to Zstandard frames. `None` for chunks that the host encodes: empty
    /// and very large ones.
    pub(crate) fn new(chunk_bytes: usize, level: i32, checksum: bool) -> Option<ZstdEncoder> {
        let most = if checksum { MAX_CHECKED_BYTES } else { MAX_CHUNK_BYTES };
        (1..=most).contains(&chunk_bytes).then_some(ZstdEncoder { chunk_bytes, level, checksum })
    }
}

impl DeviceEncoder for ZstdEncoder {
    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn takes_smaller(&self) -> bool {
        true
    }

    fn frame_bound_bytes(&self) -> usize {
        let blocks = self.chunk_bytes.div_ceil(BLOCK_BYTES) * BLOCK_HEADER_BYTES;
        FRAME_HEADER_BYTES + blocks + self.chunk_bytes + CHECKSUM_BYTES
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        &super::cost::ENCODING_SPEEDS
    }

    fn host_reason(&self, device: Device) -> Option<&'static str> {
        if self.level > MAX_LEVEL {
            return Some("levels of zstd above 9 ask for smaller frames than GPUs make");
        }
        find::host_reason(device)
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        cuda::ZstdChunks::new(self, row).memory_bytes()
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(cuda::ZstdChunks::new(self, row)))
    }
}
