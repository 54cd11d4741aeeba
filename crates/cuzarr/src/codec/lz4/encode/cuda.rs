//! Launches of `lz4_encode.cu`.

use cuzarr_device::{Buffer, Device, Header, KernelSource, header, pool};

use super::{Encoder, Framing};
use crate::Result;
use crate::codec::batch::{self, place_frames};
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::codec::lz;

/// Headers of this folder that kernels include.
const HEADERS: &[Header] = &[header!("codec/lz4/encode/lz4_encode.cuh")];

static ENCODE: KernelSource = KernelSource {
    name: "lz4_encode",
    text: include_str!("lz4_encode.cu"),
    headers: &[HEADERS, lz::HEADERS, batch::HEADERS],
};

/// Bytes of what kernels hand to each other: a piece, a stream.
const PIECE_ENTRY_BYTES: usize = 32;
const STREAM_ENTRY_BYTES: usize = 16;
/// Bytes of a piece, and of what comes before it that its matches may begin in. Larger pieces gain hardly anything, and keep
/// fewer warps busy. In `simt` small ones, so that small chunks have several.
const PIECE_BYTES: usize = 8 << 10;
const HISTORY_BYTES: usize = 4 << 10;
const SIMT_PIECE_BYTES: usize = 1 << 10;
const SIMT_HISTORY_BYTES: usize = 512;
/// Warps of a block that encode a piece each, with a table of shared memory each. `CUZARR_ENCODE_WARPS` at most.
const ENCODING_WARPS: u32 = 4;
const WARP: u32 = 32;
/// Blocks of the kernels that move bytes: what a multiprocessor holds at once.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// How chunks become frames. `Shape` in lz4_encode.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Shape {
    plain_stride: u64,
    work_stride: u64,
    slot_stride: u64,
    chunks: u32,
    chunk_bytes: u32,
    block_bytes: u32,
    splits: u32,
    piece_bytes: u32,
    history_bytes: u32,
    stream_pieces: u32,
    streams: u32,
    pieces: u32,
    flags: u32,
    type_bytes: u32,
    reserved: u32,
}

/// Chunks that become frames.
pub(crate) struct Chunks {
    shape: Shape,
    output_bound_bytes: usize,
}

fn pieces_of(bytes: usize, piece_bytes: usize) -> usize {
    bytes.div_ceil(piece_bytes)
}

impl Shape {
    fn new(encoder: &Encoder, row: &ChunkRow) -> Shape {
        let ChunkRow { device, count, stride_bytes } = *row;
        let (piece_bytes, history_bytes) =
            if device == Device::Simt { (SIMT_PIECE_BYTES, SIMT_HISTORY_BYTES) } else { (PIECE_BYTES, HISTORY_BYTES) };
        let chunk_bytes = encoder.chunk_bytes;
        let (block_bytes, splits, flags, type_bytes) = match encoder.framing {
            Framing::Sized => (chunk_bytes, 1, 0, 0),
            Framing::Blosc { block_bytes, splits, flags, type_bytes } => (block_bytes, splits, flags, type_bytes),
        };
        let (whole, rest) = (chunk_bytes / block_bytes * splits, chunk_bytes % block_bytes);
        let stream_pieces = pieces_of(block_bytes / splits, piece_bytes);
        Shape {
            plain_stride: stride_bytes as u64,
            work_stride: stride_bytes as u64,
            // Lengths of literals may take a byte in 255 more than the piece.
            slot_stride: (piece_bytes + piece_bytes / 128 + 64).next_multiple_of(16) as u64,
            chunks: count as u32,
            chunk_bytes: chunk_bytes as u32,
            block_bytes: block_bytes as u32,
            splits: splits as u32,
            piece_bytes: piece_bytes as u32,
            history_bytes: history_bytes as u32,
            stream_pieces: stream_pieces as u32,
            streams: (whole + usize::from(rest > 0)) as u32,
            pieces: (whole * stream_pieces + pieces_of(rest, piece_bytes)) as u32,
            flags: u32::from(flags),
            type_bytes: u32::from(type_bytes),
            reserved: 0,
        }
    }

    fn all_pieces(&self) -> usize {
        self.chunks as usize * self.pieces as usize
    }

    fn all_streams(&self) -> usize {
        self.chunks as usize * self.streams as usize
    }

    fn slots_bytes(&self) -> usize {
        self.all_pieces().saturating_mul(self.slot_stride as usize)
    }
}

impl Chunks {
    pub(crate) fn new(encoder: &Encoder, row: &ChunkRow) -> Chunks {
        Chunks { shape: Shape::new(encoder, row), output_bound_bytes: encoder.output_bound_bytes(row.count) }
    }

    /// Most device memory that a launch takes beside the chunks, its results included.
    pub(super) fn memory_bytes(encoder: &Encoder, row: &ChunkRow) -> usize {
        let shape = Shape::new(encoder, row);
        let entries = [
            shape.slots_bytes(),
            shape.all_pieces().saturating_mul(PIECE_ENTRY_BYTES),
            shape.all_streams().saturating_mul(STREAM_ENTRY_BYTES),
            row.count.saturating_mul(FRAME_ENTRY_BYTES),
            encoder.output_bound_bytes(row.count),
        ];
        entries.into_iter().fold(0, usize::saturating_add)
    }

    /// Like [`Encode::launch`], from chunks whose blocks are shuffled in `work`, which has the layout of `task.src`.
    ///
    /// # Errors
    /// The errors of [`Encode::launch`].
    pub(crate) fn launch_shuffled(&self, task: &EncodeTask<'_>, work: &Buffer) -> Result<Launched> {
        let EncodeTask { stream, src, wanted } = *task;
        let shape = self.shape;
        let kernel = |name| ENCODE.kernel(stream.device(), name);
        let slots = pool::allocate(shape.slots_bytes(), stream)?;
        let pieces = pool::allocate(shape.all_pieces() * PIECE_ENTRY_BYTES, stream)?;
        let streams = pool::allocate(shape.all_streams() * STREAM_ENTRY_BYTES, stream)?;
        let frames = pool::allocate(shape.chunks as usize * FRAME_ENTRY_BYTES, stream)?;
        let out = pool::allocate(self.output_bound_bytes, stream)?;
        let buffers = [src, work, &slots, &pieces, &streams, &frames, &out, wanted];
        let [src, work, slots, pieces, streams, frame_table, to, wanted] = buffers.map(Buffer::address);
        let simt = stream.device() == Device::Simt;
        let (warps, threads) = if simt { (1, 32) } else { (ENCODING_WARPS, 128) };
        let grid = |items: usize, each: u32| items.div_ceil(each as usize).clamp(1, i32::MAX as usize) as u32;
        // SAFETY: the parameters of each kernel. `EncodeBatch` has checked that the chunks lie in `src`, `stride_bytes` from one
        // to the next; `work` has the same layout. There is a slot and an entry for each piece, an entry for each stream and
        // frame, and room for every frame that does not compress. Grids stride.
        unsafe {
            let arguments = (work, slots, pieces, shape, wanted);
            let blocks = grid(shape.all_pieces(), warps);
            kernel("encode_pieces")?.launch(stream, blocks, warps * WARP, arguments, &buffers)?;
            let arguments = (pieces, streams, shape, wanted);
            let blocks = grid(shape.all_streams(), threads);
            kernel("encode_streams")?.launch(stream, blocks, threads, arguments, &buffers)?;
            let arguments = (streams, frame_table, shape, wanted);
            kernel("encode_frames")?.launch(stream, grid(shape.chunks as usize, WARP), WARP, arguments, &buffers)?;
            place_frames(&frames, stream)?;
            let assemble = kernel("encode_assemble")?;
            let resident = assemble.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR;
            let blocks = grid(shape.all_pieces(), warps).clamp(1, resident);
            let arguments = (src, work, slots, pieces, streams, frame_table, to, shape);
            assemble.launch(stream, blocks, warps * WARP, arguments, &buffers)?;
        }
        Ok(Launched { out, frames })
    }
}

impl Encode for Chunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        self.launch_shuffled(task, task.src)
    }
}
