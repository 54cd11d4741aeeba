//! Launches the kernels that encode chunks to Zstandard frames.

use cuzarr_device::internal::{WARP, defined, pool};
use cuzarr_device::{Buffer, Device, Header, Kernel, KernelSource, header};

use super::ZstdEncoder;
use crate::Result;
use crate::codec::batch::{self, place_frames};
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::codec::lz::find::{self, BLOCK_BYTES, Blocks, Found};
use crate::codec::{lz, zstd};

/// CUDA headers in `codec/zstd/encode` that kernels include.
const HEADERS: &[Header] = &[header!("codec/zstd/encode/zstd_encode.cuh")];
const ALL_HEADERS: &[&[Header]] = &[HEADERS, zstd::HEADERS, find::HEADERS, lz::HEADERS, batch::HEADERS];

static CODES: KernelSource =
    KernelSource { name: "zstd_codes", text: include_str!("zstd_codes.cu"), headers: ALL_HEADERS };
static TREES: KernelSource =
    KernelSource { name: "zstd_trees", text: include_str!("zstd_trees.cu"), headers: ALL_HEADERS };
static CHAINS: KernelSource =
    KernelSource { name: "zstd_chains", text: include_str!("zstd_chains.cu"), headers: ALL_HEADERS };
static ASSEMBLE: KernelSource =
    KernelSource { name: "zstd_assemble", text: include_str!("zstd_assemble.cu"), headers: ALL_HEADERS };

const HEADER: &str = include_str!("zstd_encode.cuh");
const COUNTERS_BYTES: usize = 2 * defined(HEADER, "CUZARR_ZSTD_COUNTERS") as usize;
const CODES_BYTES: usize = defined(HEADER, "CUZARR_ZSTD_CODES_BYTES") as usize;
const MADE_BYTES: usize = defined(HEADER, "CUZARR_ZSTD_MADE_BYTES") as usize;
/// Bytes that one sequence takes in the three chains of states of the encoder, two bytes for each chain.
const STATES_BYTES: usize = 2 * 3;
/// Number of bytes after the literals that may be read, because kernels read 16 bytes and more at a time.
const READ_BEHIND_BYTES: usize = 32;
/// Number of Zstandard blocks for which one warp computes the chains of the encoder's states (zstd_chains.cu).
const CHAIN_BLOCKS: u32 = defined(include_str!("zstd_chains.cu"), "CUZARR_ZSTD_CHAIN_BLOCKS");
/// Number of threads in a thread block, for kernels that run one thread block for each Zstandard block. `simt` uses
/// fewer, because each thread is a fiber.
const THREADS: u32 = defined(include_str!("zstd_codes.cu"), "CUZARR_ZSTD_THREADS");
const SIMT_THREADS: u32 = 128;
/// Maximum number of thread blocks in a grid; with more work, each thread block does several shares of it.
const MOST_GROUPS: usize = 1 << 20;

/// The arguments of all kernels that encode Zstandard frames: `ZstdEncode` in zstd_encode.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct ZstdTask {
    src: usize,
    counts: usize,
    records: usize,
    literals: usize,
    states: usize,
    counters: usize,
    codes: usize,
    made: usize,
    frames: usize,
    out: usize,
    blocks: Blocks,
    literal_stride: u32,
    checksum: u32,
}

/// Chunks in one buffer that are ready to be encoded to Zstandard frames.
pub(super) struct ZstdChunks {
    blocks: Blocks,
    literal_stride: usize,
    output_bound_bytes: usize,
    chunks: usize,
    checksum: bool,
}

impl ZstdChunks {
    pub(super) fn new(encoder: &ZstdEncoder, row: &ChunkRow) -> ZstdChunks {
        ZstdChunks {
            blocks: Blocks::new(encoder.chunk_bytes, row),
            literal_stride: encoder.chunk_bytes.min(BLOCK_BYTES).next_multiple_of(16),
            output_bound_bytes: encoder.output_bound_bytes(row.count),
            chunks: row.count,
            checksum: encoder.checksum,
        }
    }

    fn scratch_bytes(&self) -> [usize; 5] {
        let count = self.blocks.count();
        let states = count * self.blocks.most_sequences() * STATES_BYTES;
        [
            count * self.literal_stride + READ_BEHIND_BYTES,
            states,
            count * COUNTERS_BYTES,
            count * CODES_BYTES,
            count * MADE_BYTES,
        ]
    }

    /// Maximum device memory, in bytes, that one encoding launch takes for its work and for the frames, without the
    /// input chunks.
    pub(super) fn memory_bytes(&self) -> usize {
        let scratch: usize = self.scratch_bytes().iter().sum();
        find::memory_bytes(&self.blocks) + scratch + self.chunks * FRAME_ENTRY_BYTES + self.output_bound_bytes
    }
}

impl Encode for ZstdChunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let EncodeTask { stream, src, sizes, .. } = *task;
        let Found { sequences, counts } = find::find(&self.blocks, task)?;
        let allocate = |size_bytes| pool::allocate(size_bytes, stream);
        let [literals, states, counters, codes, made] = self.scratch_bytes().map(allocate);
        let (literals, states, counters, codes, made) = (literals?, states?, counters?, codes?, made?);
        let (frames, out) = (allocate(self.chunks * FRAME_ENTRY_BYTES)?, allocate(self.output_bound_bytes)?);
        let buffers = [src, sizes, &counts, &sequences, &literals, &states, &counters, &codes, &made, &frames, &out];
        let [src, _, counts, records, literals, states, counters, codes, made, frame_table, to] =
            buffers.map(Buffer::address);
        let arguments = ZstdTask {
            src,
            counts,
            records,
            literals,
            states,
            counters,
            codes,
            made,
            frames: frame_table,
            out: to,
            blocks: self.blocks.sized(task),
            literal_stride: self.literal_stride as u32,
            checksum: u32::from(self.checksum),
        };
        let wide = if stream.device() == Device::Simt { SIMT_THREADS } else { THREADS };
        let launch = |kernel: Kernel, groups: usize, threads: u32| {
            let groups = groups.clamp(1, MOST_GROUPS) as u32;
            // SAFETY: the parameter of all these kernels. `EncodeBatch` has checked that the chunks lie in `src`; `Blocks`
            // says how many sequences a block has at most, and scratch memory is for as many; `out` has room for frames of
            // raw blocks, and a block that would become larger is raw. Grids stride.
            unsafe { kernel.launch(stream, groups, threads, (arguments,), &buffers) }
        };
        let blocks = self.blocks.count();
        launch(CODES.kernel(stream.device(), "zstd_encode_codes")?, blocks, wide)?;
        launch(TREES.kernel(stream.device(), "zstd_encode_trees")?, blocks, WARP)?;
        let chains = blocks.div_ceil(CHAIN_BLOCKS as usize);
        launch(CHAINS.kernel(stream.device(), "zstd_encode_chains")?, chains, WARP)?;
        launch(ASSEMBLE.kernel(stream.device(), "zstd_encode_sizes")?, self.chunks, WARP)?;
        place_frames(&frames, stream)?;
        launch(ASSEMBLE.kernel(stream.device(), "zstd_encode_write")?, blocks, wide)?;
        if self.checksum {
            launch(ASSEMBLE.kernel(stream.device(), "zstd_encode_checksums")?, self.chunks, WARP)?;
        }
        Ok(Launched { out, frames })
    }
}
