//! Finds repeated bytes (matches) in the blocks of chunks on a device (`lz_find.cu`), for the encoders of several
//! codecs. It is not a codec.
//!
//! An encoder cuts its chunks into [`Blocks`], calls [`find`] for their sequences, and writes these in its own format.

mod cuda;

pub(crate) use cuda::{HEADERS, find, memory_bytes};

use cuzarr_device::internal::defined;
use cuzarr_device::{Buffer, Device};

use crate::codec::device::{ChunkRow, EncodeTask};

const FIND: &str = include_str!("lz_find.cuh");
/// Size of the blocks of a chunk that are searched for repeated bytes. A match ends in its block; the bytes that it
/// repeats may lie in earlier blocks of the chunk.
pub(crate) const BLOCK_BYTES: usize = defined(FIND, "CUZARR_FIND_BLOCK_BYTES") as usize;
/// Bytes of one sequence of literals and a match that was found.
pub(crate) const ENTRY_BYTES: usize = defined(FIND, "CUZARR_FIND_ENTRY_BYTES") as usize;
const LEAST_MATCH: usize = defined(FIND, "CUZARR_FIND_LEAST_MATCH") as usize;
/// Number of sequences (literals and a match) that kernels read at a time; each block has room for a multiple of it.
const ENTRIES_TOGETHER: usize = 4;

/// Minimum compute capability of a GPU on which a thread block gets as much shared memory as `lz_find.cu` asks for.
const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// Why the host encodes chunks in the memory of `device`; `None` if repeated bytes can be found there. A GPU that this
/// machine does not have is taken for a current one: its work can only be explained here.
pub(crate) fn host_reason(device: Device) -> Option<&'static str> {
    let is_old = |capability| capability < LEAST_CAPABILITY;
    (matches!(device, Device::Cuda(_)) && device.compute_capability().is_ok_and(is_old))
        .then_some("GPUs before compute capability 8.0 have too little shared memory to look for what chunks repeat")
}

/// How chunks of one buffer are cut into blocks that are searched for repeated bytes. `LzBlocks` in lz_find.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    stride: u64,
    /// Address of the chunks' sizes in device memory; 0 before a launch.
    sizes: usize,
    chunks: u32,
    chunk_blocks: u32,
    most_sequences: u32,
    reserved: u32,
}

impl Blocks {
    /// Cuts the chunks in `row`, each of at most `chunk_bytes`, into blocks; `chunk_bytes` is less than 2 GiB.
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

    /// Returns a copy of this division into blocks with the device address of the chunk sizes of `task`, for a launch.
    pub(crate) fn sized(&self, task: &EncodeTask<'_>) -> Blocks {
        Blocks { sizes: task.sizes.address(), ..*self }
    }

    /// Number of blocks to be searched for repeated bytes, in all chunks together.
    pub(crate) fn count(&self) -> usize {
        self.chunks as usize * self.chunk_blocks as usize
    }

    /// Maximum number of sequences of literals and a match in one block.
    pub(crate) fn most_sequences(&self) -> usize {
        self.most_sequences as usize
    }
}

/// The sequences of literals and matches that were found in blocks, in device memory.
pub(crate) struct Found {
    /// The sequences as `LzFound`s, with room for [`Blocks::most_sequences`] in each block.
    pub(crate) sequences: Buffer,
    /// An `LzFoundBlock` for each block, which counts its sequences.
    pub(crate) counts: Buffer,
}
