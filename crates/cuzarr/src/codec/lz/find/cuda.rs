//! Launches the kernel of `lz_find.cu`, which finds repeated bytes in chunks that will be encoded.

use cuzarr_device::internal::{defined, pool};
use cuzarr_device::{Buffer, Header, KernelSource, header};

use super::{BLOCK_BYTES, Blocks, ENTRY_BYTES, Found};
use crate::Result;
use crate::codec::device::EncodeTask;

/// CUDA headers in `codec/lz/find` that kernels include.
pub(crate) const HEADERS: &[Header] = &[header!("codec/lz/find/lz_find.cuh")];

const TEXT: &str = include_str!("lz_find.cu");
static FIND: KernelSource = KernelSource { name: "lz_find", text: TEXT, headers: &[HEADERS] };

const THREADS: u32 = defined(TEXT, "CUZARR_FIND_THREADS");
const SHARED_BYTES: u32 = defined(TEXT, "CUZARR_FIND_SHARED_BYTES");
/// Number of thread blocks that a multiprocessor holds at once, for the kernel that finds repeated bytes.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;
/// Number of multiprocessors of the largest GPUs, for which memory is set aside; kernels use no more on larger GPUs.
/// Each of their blocks of threads has scratch memory for the candidates of a block: `CANDIDATE_BYTES` for each byte.
const MOST_MULTIPROCESSORS: u32 = 192;
const CANDIDATE_BYTES: usize = 4;

/// Bytes of an `LzFoundBlock`, which counts the sequences that were found in a block.
const COUNT_BYTES: usize = 8;
/// Bytes of the counter by which thread blocks share the blocks to be searched.
const TAKEN_BYTES: usize = 4;

/// Maximum device memory that [`find`] takes, in bytes, including its results.
pub(crate) fn memory_bytes(blocks: &Blocks) -> usize {
    let working = blocks.count().min((MOST_MULTIPROCESSORS * BLOCKS_PER_MULTIPROCESSOR) as usize);
    working * BLOCK_BYTES * CANDIDATE_BYTES
        + TAKEN_BYTES
        + blocks.count() * (blocks.most_sequences() * ENTRY_BYTES + COUNT_BYTES)
}

/// Finds repeated bytes in all blocks, except in chunks of size 0.
///
/// # Errors
/// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
pub(crate) fn find(blocks: &Blocks, task: &EncodeTask<'_>) -> Result<Found> {
    let EncodeTask { stream, src, sizes, .. } = *task;
    let kernel = FIND.kernel(stream.device(), "lz_find")?.with_shared(SHARED_BYTES)?;
    let resident = kernel.multiprocessors().min(MOST_MULTIPROCESSORS) * BLOCKS_PER_MULTIPROCESSOR;
    let grid = (blocks.count() as u32).min(resident);
    let candidates = pool::allocate(grid as usize * BLOCK_BYTES * CANDIDATE_BYTES, stream)?;
    let sequences = pool::allocate(blocks.count() * blocks.most_sequences() * ENTRY_BYTES, stream)?;
    let counts = pool::allocate(blocks.count() * COUNT_BYTES, stream)?;
    let taken = pool::allocate(TAKEN_BYTES, stream)?;
    stream.memset(&taken, 0)?;
    let buffers = [src, sizes, &candidates, &sequences, &counts, &taken];
    let [from, _, work, to, made, begun] = buffers.map(Buffer::address);
    let arguments = (from, blocks.sized(task), work, to, made, begun);
    // SAFETY: the parameters of lz_find. `EncodeBatch` has checked that the chunks lie in `src`, and that there is a size for
    // each in `sizes`; there is room for the candidates of a block for each block of threads, and for the sequences of all; `taken` is 0.
    unsafe { kernel.launch(stream, grid, THREADS, arguments, &buffers) }?;
    Ok(Found { sequences, counts })
}
