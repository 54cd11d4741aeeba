//! Launches the kernels that encode chunks to deflate streams.

use std::ops::Range;

use cuzarr_device::internal::checksum;
use cuzarr_device::internal::checksum::Checksum;
use cuzarr_device::internal::{WARP, defined, pool};
use cuzarr_device::{Buffer, Device, Header, Kernel, KernelSource, header};

use super::{DeflateEncoder, HEADER_BYTES};
use crate::Result;
use crate::codec::batch::{self, place_frames};
use crate::codec::deflate::container::Container;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::codec::lz;
use crate::codec::lz::find::{self, Blocks, Found};

/// CUDA headers in `codec/deflate/encode` that kernels include.
const HEADERS: &[Header] = &[header!("codec/deflate/encode/deflate_encode.cuh")];
const ALL_HEADERS: &[&[Header]] = &[HEADERS, find::HEADERS, lz::HEADERS, batch::HEADERS];

static COUNT: KernelSource =
    KernelSource { name: "deflate_count", text: include_str!("deflate_count.cu"), headers: ALL_HEADERS };
static TREES: KernelSource =
    KernelSource { name: "deflate_trees", text: include_str!("deflate_trees.cu"), headers: ALL_HEADERS };
static ASSEMBLE: KernelSource =
    KernelSource { name: "deflate_assemble", text: include_str!("deflate_assemble.cu"), headers: ALL_HEADERS };

const HEADER: &str = include_str!("deflate_encode.cuh");
const COUNTERS_BYTES: usize = 2 * defined(HEADER, "CUZARR_DEFLATE_COUNTERS") as usize;
const CODES_BYTES: usize = defined(HEADER, "CUZARR_DEFLATE_CODES_BYTES") as usize;
const MADE_BYTES: usize = defined(HEADER, "CUZARR_DEFLATE_MADE_BYTES") as usize;
/// Number of threads in a thread block, for kernels that run one thread block for each deflate block. `simt` uses
/// fewer, because each thread is a fiber.
const THREADS: u32 = defined(HEADER, "CUZARR_DEFLATE_THREADS");
const SIMT_THREADS: u32 = 64;
/// Maximum number of thread blocks in a grid; with more work, each thread block does several shares of it.
const MOST_GROUPS: usize = 1 << 20;

/// The arguments of all kernels that encode deflate: `DeflateEncode` in deflate_encode.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeflateTask {
    src: usize,
    counts: usize,
    sequences: usize,
    counters: usize,
    codes: usize,
    made: usize,
    frames: usize,
    checksums: usize,
    out: usize,
    blocks: Blocks,
    header: [u8; HEADER_BYTES],
    header_bytes: u32,
    trailer_bytes: u32,
}

/// Chunks in one buffer that are ready to be encoded to deflate frames.
pub(super) struct DeflateChunks {
    blocks: Blocks,
    output_bound_bytes: usize,
    row: ChunkRow,
    checksum: Option<Checksum>,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    trailer_bytes: usize,
}

impl DeflateChunks {
    pub(super) fn new(encoder: &DeflateEncoder, row: &ChunkRow) -> DeflateChunks {
        let bytes = encoder.header();
        let mut header = [0; HEADER_BYTES];
        header[..bytes.len()].copy_from_slice(&bytes);
        DeflateChunks {
            blocks: Blocks::new(encoder.chunk_bytes, row),
            output_bound_bytes: encoder.output_bound_bytes(row.count),
            row: *row,
            checksum: match encoder.container {
                Container::Raw => None,
                Container::Zlib => Some(Checksum::Adler32),
                Container::Gzip => Some(Checksum::Crc32),
            },
            header,
            header_bytes: bytes.len(),
            trailer_bytes: encoder.trailer_bytes(),
        }
    }

    /// The ranges of the chunks in the source buffer.
    fn ranges(&self, task: &EncodeTask<'_>) -> Vec<Range<usize>> {
        let begins = (0..self.row.count).map(|index| index * self.row.stride_bytes);
        begins.zip(task.chunk_bytes).map(|(begin, bytes)| begin..begin + bytes).collect()
    }

    fn scratch_bytes(&self) -> [usize; 3] {
        [COUNTERS_BYTES, CODES_BYTES, MADE_BYTES].map(|bytes| self.blocks.count() * bytes)
    }

    /// Maximum device memory, in bytes, that one encoding launch takes for its work and for the frames, without the
    /// input chunks.
    pub(super) fn memory_bytes(&self) -> usize {
        let (scratch, chunks) = (self.scratch_bytes().iter().sum::<usize>(), self.row.count);
        let checksums = checksum::compute_bytes(chunks);
        find::memory_bytes(&self.blocks) + scratch + checksums + chunks * FRAME_ENTRY_BYTES + self.output_bound_bytes
    }
}

impl Encode for DeflateChunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let EncodeTask { stream, src, sizes, .. } = *task;
        let Found { sequences, counts } = find::find(&self.blocks, task)?;
        let allocate = |size_bytes| pool::allocate(size_bytes, stream);
        let [counters, codes, made] = self.scratch_bytes().map(allocate);
        let (counters, codes, made) = (counters?, codes?, made?);
        let (frames, out) = (allocate(self.row.count * FRAME_ENTRY_BYTES)?, allocate(self.output_bound_bytes)?);
        let checksums = match self.checksum {
            Some(checksum) => checksum::compute_on(checksum, src, &self.ranges(task), stream)?,
            None => frames.slice(0..0)?,
        };
        let buffers = [src, sizes, &counts, &sequences, &counters, &codes, &made, &frames, &checksums, &out];
        let [src, _, counts, sequences, counters, codes, made, frame_table, checksums, to] =
            buffers.map(Buffer::address);
        let arguments = DeflateTask {
            src,
            counts,
            sequences,
            counters,
            codes,
            made,
            frames: frame_table,
            checksums,
            out: to,
            blocks: self.blocks.sized(task),
            header: self.header,
            header_bytes: self.header_bytes as u32,
            trailer_bytes: self.trailer_bytes as u32,
        };
        let wide = if stream.device() == Device::Simt { SIMT_THREADS } else { THREADS };
        let launch = |kernel: Kernel, groups: usize, threads: u32| {
            let groups = groups.clamp(1, MOST_GROUPS) as u32;
            // SAFETY: the parameter of all these kernels. `EncodeBatch` has checked that the chunks lie in `src`; `Blocks`
            // says how many sequences a block has at most, and scratch memory is for as many blocks; `out` has room for
            // frames of stored blocks, and a block that would become larger is stored. Grids stride.
            unsafe { kernel.launch(stream, groups, threads, (arguments,), &buffers) }
        };
        let (blocks, chunks) = (self.blocks.count(), self.row.count);
        launch(COUNT.kernel(stream.device(), "deflate_encode_count")?, blocks, wide)?;
        launch(TREES.kernel(stream.device(), "deflate_encode_trees")?, blocks, WARP)?;
        launch(ASSEMBLE.kernel(stream.device(), "deflate_encode_sizes")?, chunks, WARP)?;
        place_frames(&frames, stream)?;
        launch(ASSEMBLE.kernel(stream.device(), "deflate_encode_clear")?, blocks.div_ceil(wide as usize), wide)?;
        launch(ASSEMBLE.kernel(stream.device(), "deflate_encode_write")?, blocks, wide)?;
        launch(ASSEMBLE.kernel(stream.device(), "deflate_encode_finish")?, chunks.div_ceil(wide as usize), wide)?;
        Ok(Launched { out, frames })
    }
}
