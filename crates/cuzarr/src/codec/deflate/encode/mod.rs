//! Encodes deflate streams on a device.
//!
//! `codec/lz/find` finds repeated bytes in blocks of 32 KiB. The kernels of this folder make codes for each block, and
//! join all blocks of a chunk to one stream, bit by bit. Any deflate decoder reads it.
//!
//! The streams differ from libdeflate's. Levels 1 to [`MAX_LEVEL`] give the same streams. Level 0, which only stores,
//! and higher levels are left to libdeflate.

mod cuda;

use cuzarr_device::Device;
use cuzarr_device::internal::defined;

use super::container::Container;
use super::cost;
use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode};
use crate::codec::lz::find::{self, BLOCK_BYTES};

/// Maximum bytes of a chunk that kernels encode: they count positions in a frame in bits, as 32-bit numbers.
const MAX_CHUNK_BYTES: usize = 1 << 28;
/// Maximum level at which kernels encode: higher ones look for the smallest stream, which kernels do not.
const MAX_LEVEL: i32 = 9;
/// Maximum bytes of a deflate block besides its content: the header of a stored block, filled up to a whole byte.
const BLOCK_HEADER_BYTES: usize = 6;
const HEADER_BYTES: usize = defined(include_str!("deflate_encode.cuh"), "CUZARR_DEFLATE_HEADER_BYTES") as usize;

/// An encoder of chunks of at most `chunk_bytes` to deflate streams inside one kind of container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeflateEncoder {
    container: Container,
    chunk_bytes: usize,
    level: i32,
}

impl DeflateEncoder {
    /// An encoder to gzip members; `None` for chunks that the host encodes.
    pub(crate) fn gzip(chunk_bytes: usize, level: i32) -> Option<DeflateEncoder> {
        DeflateEncoder::new(Container::Gzip, chunk_bytes, level)
    }

    /// An encoder to zlib streams; `None` for chunks that the host encodes.
    pub(crate) fn zlib(chunk_bytes: usize, level: i32) -> Option<DeflateEncoder> {
        DeflateEncoder::new(Container::Zlib, chunk_bytes, level)
    }

    /// An encoder to deflate streams without a container; `None` for chunks that the host encodes.
    pub(super) fn raw(chunk_bytes: usize, level: i32) -> Option<DeflateEncoder> {
        DeflateEncoder::new(Container::Raw, chunk_bytes, level)
    }

    /// Returns an encoder to one container; `None` for chunks that the host encodes: empty and very large ones.
    fn new(container: Container, chunk_bytes: usize, level: i32) -> Option<DeflateEncoder> {
        (1..=MAX_CHUNK_BYTES).contains(&chunk_bytes).then_some(DeflateEncoder { container, chunk_bytes, level })
    }

    /// The bytes of the container before the stream, as libdeflate writes them.
    fn header(&self) -> Vec<u8> {
        match self.container {
            Container::Raw => Vec::new(),
            Container::Zlib => {
                // RFC 1950: deflate with a window of 32 KiB, the effort, and bits that make the number a multiple of
                // 31.
                let tried: u16 = match self.level {
                    ..2 => 0,
                    2..6 => 1,
                    6..8 => 2,
                    8.. => 3,
                };
                let header = 0x7800 | tried << 6;
                (header + 31 - header % 31).to_be_bytes().to_vec()
            }
            Container::Gzip => {
                // RFC 1952: no name and no time; the effort; an unknown system.
                let tried = match self.level {
                    ..2 => 4,
                    2..8 => 0,
                    8.. => 2,
                };
                vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, tried, 0xff]
            }
        }
    }

    /// Number of bytes that the container has after the stream: checksum and size.
    fn trailer_bytes(&self) -> usize {
        match self.container {
            Container::Raw => 0,
            Container::Zlib => 4,
            Container::Gzip => 8,
        }
    }
}

impl DeviceEncoder for DeflateEncoder {
    fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    fn takes_smaller(&self) -> bool {
        true
    }

    fn frame_bound_bytes(&self) -> usize {
        let blocks = self.chunk_bytes.div_ceil(BLOCK_BYTES) * BLOCK_HEADER_BYTES;
        self.header().len() + blocks + self.chunk_bytes + self.trailer_bytes()
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        &cost::ENCODING_SPEEDS
    }

    fn host_reason(&self, device: Device) -> Option<&'static str> {
        match self.level {
            ..1 => Some("level 0 of deflate stores chunks as they are, and GPUs would compress them"),
            1..=MAX_LEVEL => find::host_reason(device),
            _ => Some("levels of deflate above 9 ask for smaller frames than GPUs make"),
        }
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        cuda::DeflateChunks::new(self, row).memory_bytes()
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(cuda::DeflateChunks::new(self, row)))
    }
}
