//! Blosc-1 containers, made on a device: chunks are shuffled block by block, then LZ4's encoder makes the streams and puts
//! the container around them.

use cuzarr_device::shuffle::{self, Shuffle, Span};
use cuzarr_device::transfer::copy_pieces_on;
use cuzarr_device::{Buffer, Stream, pool};

use super::Shuffling;
use crate::Result;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, Launched};
use crate::codec::lz4::encode as lz4;

/// Makes Blosc-1 containers of chunks of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoder {
    /// Makes the streams of a chunk's blocks, and the container around them.
    pub(super) streams: lz4::Encoder,
    pub(super) shuffling: Shuffling,
    pub(super) type_bytes: usize,
    pub(super) block_bytes: usize,
}

impl DeviceEncoder for Encoder {
    fn chunk_bytes(&self) -> usize {
        self.streams.chunk_bytes()
    }

    fn frame_bound_bytes(&self) -> usize {
        self.streams.frame_bound_bytes()
    }

    fn speeds(&self) -> &'static EncodingSpeeds {
        self.streams.speeds()
    }

    fn memory_bytes(&self, row: &ChunkRow) -> usize {
        let shuffled = if self.shuffling == Shuffling::None { 0 } else { row.count.saturating_mul(row.stride_bytes) };
        self.streams.memory_bytes(row).saturating_add(shuffled)
    }

    fn prepare(&self, row: &ChunkRow) -> Result<Box<dyn Encode>> {
        Ok(Box::new(Chunks { encoder: *self, row: *row, streams: lz4::Chunks::new(&self.streams, row) }))
    }
}

/// Chunks that become containers.
struct Chunks {
    encoder: Encoder,
    row: ChunkRow,
    streams: lz4::Chunks,
}

impl Encode for Chunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let shuffled = self.shuffle(task.src, task.stream)?;
        self.streams.launch_shuffled(task, shuffled.as_ref().unwrap_or(task.src))
    }
}

impl Chunks {
    /// The chunks with their blocks shuffled, where that differs from how they are.
    fn shuffle(&self, src: &Buffer, stream: &Stream) -> Result<Option<Buffer>> {
        let Encoder { shuffling, type_bytes: unit, block_bytes: block, .. } = self.encoder;
        let kind = match shuffling {
            Shuffling::Bytes if unit > 1 => Shuffle::Bytes,
            Shuffling::Bits => Shuffle::Bits,
            _ => return Ok(None),
        };
        // Blosc leaves a block alone whose elements do not fill groups of 8.
        let is_moved = |size: usize| kind == Shuffle::Bytes || (size / unit).is_multiple_of(8);
        let (stride, chunk) = (self.row.stride_bytes, self.encoder.chunk_bytes());
        let blocks = (0..self.row.count)
            .flat_map(|index| (0..chunk).step_by(block).map(move |at| (index * stride + at, block.min(chunk - at))));
        let (moved, copied): (Vec<_>, Vec<_>) = blocks.partition(|&(_, size)| is_moved(size));
        let work = pool::allocate(src.size_bytes(), stream)?;
        let span = |&(at, size_bytes): &(usize, usize)| Span { src_offset_bytes: at, dst_offset_bytes: at, size_bytes };
        let spans: Vec<Span> = moved.iter().map(span).collect();
        shuffle::shuffle(kind, src, &work, &spans, unit, stream)?;
        let same = |&(at, size): &(usize, usize)| Ok((src.slice(at..at + size)?, work.slice(at..at + size)?));
        let same: Vec<_> = copied.iter().map(same).collect::<Result<_>>()?;
        if !same.is_empty() {
            copy_pieces_on(&same, stream)?;
        }
        Ok(Some(work))
    }
}
