//! Encodes Blosc-1 containers on a device. Chunks are shuffled block by block, another codec's encoder makes the
//! streams, and `blosc_encode.cu` puts the containers around them.

mod cuda;

use std::sync::Arc;

use cuzarr_device::Device;

use super::Shuffling;
use super::container::HEADER_BYTES;
use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode};

/// Alignment in bytes of each stream in the device memory that the encoders of Blosc streams read.
const STREAM_ALIGNMENT_BYTES: usize = 16;

/// The layout of the Blosc frames that kernels encode: how chunks are cut into blocks and streams, and the flags in the
/// frame's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct BloscLayout {
    pub(super) chunk_bytes: usize,
    pub(super) block_bytes: usize,
    /// Number of streams that a Blosc block is split into. If the last block of a chunk is shorter than the others, it
    /// is one stream.
    pub(super) splits: usize,
    pub(super) type_bytes: u8,
    pub(super) shuffling: Shuffling,
    pub(super) flags: u8,
}

impl BloscLayout {
    pub(super) fn stream_bytes(&self) -> usize {
        self.block_bytes / self.splits
    }

    /// Number of streams in all whole blocks of a chunk.
    fn whole_streams(&self) -> usize {
        self.chunk_bytes / self.block_bytes * self.splits
    }

    /// Bytes of a chunk's last block if it is shorter than the others; 0 if it is not.
    pub(super) fn rest_bytes(&self) -> usize {
        self.chunk_bytes % self.block_bytes
    }

    /// How the streams of the chunks in `row` lie in memory: one row for the streams of whole Blosc blocks, one for
    /// those of short last blocks.
    fn rows(&self, row: &ChunkRow) -> [ChunkRow; 2] {
        let stride = |bytes: usize| bytes.next_multiple_of(STREAM_ALIGNMENT_BYTES);
        let of = |count, bytes| ChunkRow { device: row.device, count, stride_bytes: stride(bytes) };
        [of(row.count.saturating_mul(self.whole_streams()), self.stream_bytes()), of(row.count, self.rest_bytes())]
    }
}

/// An encoder of chunks of one size to Blosc-1 containers, by kernels.
#[derive(Clone, Debug)]
pub(super) struct BloscEncoder {
    pub(super) layout: BloscLayout,
    /// The encoder for the streams of Blosc blocks of full size.
    pub(super) streams: Arc<dyn DeviceEncoder>,
    /// The encoder for the stream of a short last block, if chunks have one.
    pub(super) rest: Option<Arc<dyn DeviceEncoder>>,
}

impl DeviceEncoder for BloscEncoder {
    fn chunk_bytes(&self) -> usize {
        self.layout.chunk_bytes
    }

    fn frame_bound_bytes(&self) -> usize {
        HEADER_BYTES + self.layout.chunk_bytes
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        self.streams.speeds()
    }

    fn host_reason(&self, device: Device) -> Option<&'static str> {
        self.streams.host_reason(device)
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        let [streams, rests] = self.layout.rows(row);
        let rest = self.rest.as_ref().map_or(0, |rest| rest.memory_bytes(&rests));
        let own = cuda::memory_bytes(self, row);
        self.streams.memory_bytes(&streams).saturating_add(rest).saturating_add(own)
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(cuda::BloscChunks::new(self, row)?))
    }
}
