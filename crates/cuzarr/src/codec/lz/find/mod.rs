//! The match finder of encoders. It finds repeated bytes in the blocks of chunks (`lz_find.cu`). It is not a codec.
//!
//! An encoder cuts its chunks into [`Blocks`], calls [`find`] for their sequences, and writes these in its own format.

mod cuda;

pub(crate) use cuda::{HEADERS, find, memory_bytes};

use cuzarr_device::internal::defined;
use cuzarr_device::{Buffer, Device};

use crate::codec::device::{ChunkRow, EncodeTask};

const FIND: &str = include_str!("lz_find.cuh");
/// Bytes of a block. A match ends in its block; the bytes that it repeats may lie in earlier blocks of the chunk.
pub(crate) const BLOCK_BYTES: usize = defined(FIND, "CUZARR_FIND_BLOCK_BYTES") as usize;
/// Bytes of a sequence.
pub(crate) const ENTRY_BYTES: usize = defined(FIND, "CUZARR_FIND_ENTRY_BYTES") as usize;
const LEAST_MATCH: usize = defined(FIND, "CUZARR_FIND_LEAST_MATCH") as usize;
/// Number of entries that are read at a time.
const ENTRIES_TOGETHER: usize = 4;

/// From this compute capability on, a block of threads gets the shared memory that `lz_find.cu` asks for.
const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// Why the host encodes chunks of a value on `device`; `None` if the finder runs there.
pub(crate) fn host_reason(device: Device) -> Option<&'static str> {
    let has_room = match device {
        Device::Cuda(_) => device.compute_capability().is_ok_and(|capability| capability >= LEAST_CAPABILITY),
        _ => true,
    };
    (!has_room)
        .then_some("GPUs before compute capability 8.0 have too little shared memory to look for what chunks repeat")
}

/// Chunks, each cut into blocks. `LzBlocks` in lz_find.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    stride: u64,
    /// Address of the chunks' sizes; 0 before a launch.
    sizes: usize,
    chunks: u32,
    chunk_blocks: u32,
    most_sequences: u32,
    reserved: u32,
}

impl Blocks {
    /// The blocks of the chunks in `row`, each of at most `chunk_bytes`, which is less than 2 GiB.
    pub(crate) fn new(chunk_bytes: usize, row: &ChunkRow) -> Blocks {
        let most = chunk_bytes.min(BLOCK_BYTES) / LEAST_MATCH + 1;
        Blocks {
            stride: row.stride_bytes as u64,
            sizes: 0,
            chunks: row.count as u32,
            chunk_blocks: chunk_bytes.div_ceil(BLOCK_BYTES) as u32,
            most_sequences: most.next_multiple_of(ENTRIES_TOGETHER) as u32,
            reserved: 0,
        }
    }

    /// Returns the blocks with the chunk sizes of `task`.
    pub(crate) fn sized(&self, task: &EncodeTask<'_>) -> Blocks {
        Blocks { sizes: task.sizes.address(), ..*self }
    }

    /// Number of blocks in all chunks.
    pub(crate) fn count(&self) -> usize {
        self.chunks as usize * self.chunk_blocks as usize
    }

    /// Maximum number of sequences in a block.
    pub(crate) fn most_sequences(&self) -> usize {
        self.most_sequences as usize
    }
}

/// The sequences that were found.
pub(crate) struct Found {
    /// `LzFound`s, [`Blocks::most_sequences`] for each block.
    pub(crate) sequences: Buffer,
    /// An `LzFoundBlock` for each block.
    pub(crate) counts: Buffer,
}
