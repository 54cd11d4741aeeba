//! Launches the kernels of `lz4_encode.cu`, which encode chunks to LZ4 blocks.

use cuzarr_device::internal::{WARP, defined, pool};
use cuzarr_device::{Buffer, Device, Header, KernelSource, header};

use super::Lz4Encoder;
use crate::Result;
use crate::codec::batch::{self, place_frames};
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::codec::lz::{self, find};

/// CUDA headers in `codec/lz4/encode` that kernels include.
const HEADERS: &[Header] = &[header!("codec/lz4/encode/lz4_encode.cuh")];

const TEXT: &str = include_str!("lz4_encode.cu");
static ENCODE: KernelSource =
    KernelSource { name: "lz4_encode", text: TEXT, headers: &[HEADERS, find::HEADERS, lz::HEADERS, batch::HEADERS] };

const HEADER: &str = include_str!("lz4_encode.cuh");
/// Bytes of the facts about one encoded piece of a chunk that one kernel leaves in device memory for the next. The
/// entry of a chunk's last literals has `TRAIL_BYTES`.
const PIECE_ENTRY_BYTES: usize = defined(HEADER, "CUZARR_LZ4_PIECE_ENTRY_BYTES") as usize;
const TRAIL_BYTES: usize = defined(TEXT, "CUZARR_LZ4_TRAIL_BYTES") as usize;
/// Number of bytes in each of the pieces into which a chunk is cut to be encoded. The matches of a piece may begin in
/// the `HISTORY_BYTES` before it. Both are small on `simt`, so that small chunks have several pieces.
const PIECE_BYTES: usize = defined(HEADER, "CUZARR_LZ4_PIECE_BYTES") as usize;
const HISTORY_BYTES: usize = defined(HEADER, "CUZARR_LZ4_HISTORY_BYTES") as usize;
const SIMT_PIECE_BYTES: usize = 1 << 10;
const SIMT_HISTORY_BYTES: usize = 512;
/// Number of threads that encode one piece of a chunk; few on the emulated device `simt`, where each thread is a fiber.
const PIECE_THREADS: u32 = defined(HEADER, "CUZARR_LZ4_THREADS");
const SIMT_PIECE_THREADS: u32 = 64;
const SHARED_BYTES: u32 = defined(HEADER, "CUZARR_LZ4_SHARED_BYTES");
/// Number of thread blocks, each with one piece of a chunk, that a multiprocessor runs at once.
const PIECES_PER_MULTIPROCESSOR: u32 = 3;
/// Number of multiprocessors of the largest GPUs, for which memory is set aside; kernels use no more on larger GPUs.
/// Each of their blocks of threads has scratch memory for the candidates of a piece: `CANDIDATE_BYTES` for each byte.
const MOST_MULTIPROCESSORS: u32 = 192;
const CANDIDATE_BYTES: usize = 4;
/// Bytes of the counter from which each thread block takes the number of the next piece to encode.
const TAKEN_BYTES: usize = 4;
/// Number of threads in a thread block of the kernels that put frames together from encoded pieces. A multiprocessor
/// holds `BLOCKS_PER_MULTIPROCESSOR` of the blocks that move bytes.
const THREADS: u32 = 128;
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// An argument of the kernels that encode LZ4 frames: the sizes of chunks, of the pieces into which chunks are cut, and
/// of frames. `Shape` in lz4_encode.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Shape {
    stride: u64,
    slot_stride: u64,
    /// Address of the chunks' sizes in device memory; 0 before a launch.
    sizes: usize,
    chunks: u32,
    piece_bytes: u32,
    history_bytes: u32,
    pieces: u32,
    header_bytes: u32,
    reserved: u32,
}

/// Chunks in one buffer that are ready to be encoded to LZ4 frames.
pub(super) struct Lz4Chunks {
    shape: Shape,
    output_bound_bytes: usize,
}

impl Lz4Chunks {
    pub(super) fn new(encoder: &Lz4Encoder, row: &ChunkRow) -> Lz4Chunks {
        let (piece_bytes, history_bytes) = match row.device {
            Device::Simt => (SIMT_PIECE_BYTES, SIMT_HISTORY_BYTES),
            _ => (PIECE_BYTES, HISTORY_BYTES),
        };
        let shape = Shape {
            stride: row.stride_bytes as u64,
            // Lengths of literals may take one byte more for each 255 bytes of the piece.
            slot_stride: (piece_bytes + piece_bytes / 128 + 64).next_multiple_of(16) as u64,
            sizes: 0,
            chunks: row.count as u32,
            piece_bytes: piece_bytes as u32,
            history_bytes: history_bytes as u32,
            pieces: encoder.chunk_bytes.div_ceil(piece_bytes) as u32,
            header_bytes: encoder.header_bytes as u32,
            reserved: 0,
        };
        Lz4Chunks { shape, output_bound_bytes: encoder.output_bound_bytes(row.count) }
    }

    fn pieces(&self) -> usize {
        self.shape.chunks as usize * self.shape.pieces as usize
    }

    /// Number of thread blocks that encode pieces of chunks on a GPU with `multiprocessors` multiprocessors.
    fn working(&self, multiprocessors: u32) -> usize {
        let resident = multiprocessors.min(MOST_MULTIPROCESSORS) * PIECES_PER_MULTIPROCESSOR;
        self.pieces().clamp(1, resident as usize)
    }

    /// Sizes in bytes of the parts of device memory that a launch takes: six parts for the work of kernels, then one
    /// for the encoded frames.
    fn sizes_bytes(&self, multiprocessors: u32) -> [usize; 7] {
        let Shape { slot_stride, piece_bytes, chunks, .. } = self.shape;
        [
            self.pieces().saturating_mul(slot_stride as usize),
            self.working(multiprocessors) * piece_bytes as usize * CANDIDATE_BYTES,
            self.pieces().saturating_mul(PIECE_ENTRY_BYTES),
            chunks as usize * TRAIL_BYTES,
            chunks as usize * FRAME_ENTRY_BYTES,
            TAKEN_BYTES,
            self.output_bound_bytes,
        ]
    }

    /// Maximum device memory, in bytes, that one encoding launch takes for its work and for the frames, without the
    /// input chunks.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sizes_bytes(MOST_MULTIPROCESSORS).into_iter().fold(0, usize::saturating_add)
    }
}

impl Encode for Lz4Chunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let EncodeTask { stream, src, sizes, .. } = *task;
        let kernel = |name| ENCODE.kernel(stream.device(), name);
        let encode_pieces = kernel("encode_pieces")?.with_shared(SHARED_BYTES)?;
        let multiprocessors = encode_pieces.multiprocessors();
        let allocated = self.sizes_bytes(multiprocessors).map(|size_bytes| pool::allocate(size_bytes, stream));
        let [slots, candidates, pieces, trails, frames, taken, out] = allocated;
        let (slots, candidates, pieces) = (slots?, candidates?, pieces?);
        let (trails, frames, taken, out) = (trails?, frames?, taken?, out?);
        stream.memset(&taken, 0)?;
        let buffers = [src, &slots, &candidates, &pieces, &trails, &frames, &taken, &out, sizes];
        let [from, slots, candidates, pieces, trails, frame_table, taken, to, sizes] = buffers.map(Buffer::address);
        let is_simt = stream.device() == Device::Simt;
        let (piece_threads, threads) = if is_simt { (SIMT_PIECE_THREADS, WARP) } else { (PIECE_THREADS, THREADS) };
        let (shape, warps) = (Shape { sizes, ..self.shape }, (threads / WARP) as usize);
        // SAFETY: the parameters of each kernel. `EncodeBatch`, or the encoder of a container, has checked that the chunks lie in `src`, `stride` from
        // one to the next, and that `sizes` has one for each. There is a slot and an entry for each piece, an entry for each
        // chunk, room for a piece's candidates for each block of threads that encodes pieces, and room for every frame that
        // does not compress. Grids stride.
        unsafe {
            let arguments = (from, slots, pieces, candidates, shape, taken);
            let blocks = self.working(multiprocessors) as u32;
            encode_pieces.launch(stream, blocks, piece_threads, arguments, &buffers)?;
            let arguments = (pieces, trails, frame_table, shape);
            let blocks = (shape.chunks as usize).div_ceil(warps).clamp(1, i32::MAX as usize) as u32;
            kernel("encode_joins")?.launch(stream, blocks, threads, arguments, &buffers)?;
            place_frames(&frames, stream)?;
            let arguments = (from, slots, pieces, trails, frame_table, to, shape);
            let resident = (multiprocessors * BLOCKS_PER_MULTIPROCESSOR) as usize;
            let blocks = self.pieces().div_ceil(warps).clamp(1, resident) as u32;
            kernel("encode_assemble")?.launch(stream, blocks, threads, arguments, &buffers)?;
        }
        Ok(Launched { out, frames })
    }
}
