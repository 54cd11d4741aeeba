//! Launches of `lz4_encode.cu`.

use cuzarr_device::shuffle::{self, Shuffle, Span};
use cuzarr_device::transfer::copy_pieces_on;
use cuzarr_device::{Buffer, Device, Kernel, KernelSource, Stream, pool};

use super::{Container, Encoding};
use crate::codec::blosc::Shuffling;
use crate::{Error, ErrorKind, Result};

static ENCODE: KernelSource = KernelSource { name: "lz4_encode", text: include_str!("lz4_encode.cu") };

/// Bytes of what kernels hand to each other: a piece, a stream, a frame.
const PIECE_ENTRY_BYTES: usize = 32;
const STREAM_ENTRY_BYTES: usize = 16;
pub(crate) const FRAME_ENTRY_BYTES: usize = 16;
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

/// Chunks that may hold nothing but the fill value, compared before they are encoded.
pub(crate) struct Blank<'a> {
    /// Their elements, `stride_bytes` from one chunk to the next, as many as `blank` has bytes.
    pub(crate) chunks: &'a Buffer,
    pub(crate) stride_bytes: usize,
    /// A chunk of the fill value.
    pub(crate) blank: &'a Buffer,
    /// Bytes of a float, any NaN of which is any other; 3 for bfloat16, 0 for what is no float.
    pub(crate) nan: u32,
}

/// Encodes `count` chunks, `stride_bytes` from one to the next.
pub(crate) struct Encoder {
    encoding: Encoding,
    shape: Shape,
}

/// Where the results of a launch are.
pub(crate) struct Launched {
    /// The frames.
    pub(crate) out: Buffer,
    /// For each chunk where its frame begins, its size, and whether it is a copy: `EncodedFrame` in lz4_encode.cu.
    pub(crate) frames: Buffer,
}

fn pieces_of(bytes: usize, piece_bytes: usize) -> usize {
    bytes.div_ceil(piece_bytes)
}

impl Shape {
    fn new(encoding: &Encoding, is_simt: bool, count: usize, stride_bytes: usize) -> Shape {
        let (piece_bytes, history_bytes) =
            if is_simt { (SIMT_PIECE_BYTES, SIMT_HISTORY_BYTES) } else { (PIECE_BYTES, HISTORY_BYTES) };
        let chunk_bytes = encoding.chunk_bytes;
        let (block_bytes, splits, flags, type_bytes) = match encoding.container {
            Container::Lz4 => (chunk_bytes, 1, 0, 0),
            Container::Blosc { block_bytes, splits, flags, type_bytes, .. } => (block_bytes, splits, flags, type_bytes),
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

impl Encoder {
    /// # Errors
    /// `InvalidArgument` for more chunks than a launch counts, or chunks that overlap.
    pub(crate) fn new(device: Device, encoding: Encoding, count: usize, stride_bytes: usize) -> Result<Encoder> {
        if count > i32::MAX as usize || stride_bytes < encoding.chunk_bytes {
            let message = format!("cannot encode {count} chunks, {stride_bytes} bytes from one to the next");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(Encoder { encoding, shape: Shape::new(&encoding, device == Device::Simt, count, stride_bytes) })
    }

    /// Most device memory that a launch takes beside the chunks, its results included.
    pub(crate) fn memory_bytes(encoding: &Encoding, device: Device, count: usize, stride_bytes: usize) -> usize {
        let shape = Shape::new(encoding, device == Device::Simt, count, stride_bytes);
        let work = if encoding.shuffling() == Shuffling::None { 0 } else { count.saturating_mul(stride_bytes) };
        let entries = [
            work,
            shape.slots_bytes(),
            shape.all_pieces().saturating_mul(PIECE_ENTRY_BYTES),
            shape.all_streams().saturating_mul(STREAM_ENTRY_BYTES),
            count.saturating_mul(FRAME_ENTRY_BYTES + 4),
            encoding.output_bound_bytes(count),
        ];
        entries.into_iter().fold(0, usize::saturating_add)
    }

    /// Puts the encoding of the chunks in `src` on the stream. Where chunks are compared with `blank`, those that are equal
    /// become frames of no bytes.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn launch(&self, src: &Buffer, blank: Option<&Blank<'_>>, stream: &Stream) -> Result<Launched> {
        let shape = self.shape;
        let kernel = |name| ENCODE.kernel(stream.device(), name);
        let differs = self.compare(blank, stream)?;
        let shuffled = self.shuffle(src, stream)?;
        let work = shuffled.as_ref().unwrap_or(src);
        let slots = pool::allocate(shape.slots_bytes(), stream)?;
        let pieces = pool::allocate(shape.all_pieces() * PIECE_ENTRY_BYTES, stream)?;
        let streams = pool::allocate(shape.all_streams() * STREAM_ENTRY_BYTES, stream)?;
        let frames = pool::allocate(shape.chunks as usize * FRAME_ENTRY_BYTES, stream)?;
        let out = pool::allocate(self.encoding.output_bound_bytes(shape.chunks as usize), stream)?;
        let buffers = [src, work, &slots, &pieces, &streams, &frames, &out, &differs];
        let [src, work, slots, pieces, streams, frame_table, to, differs] = buffers.map(Buffer::address);
        let simt = stream.device() == Device::Simt;
        let (warps, threads) = if simt { (1, 32) } else { (ENCODING_WARPS, 128) };
        let grid = |items: usize, each: u32| items.div_ceil(each as usize).clamp(1, i32::MAX as usize) as u32;
        // SAFETY: the parameters of each kernel. The chunks lie in `src`, `stride_bytes` from one to the next, as the caller
        // of `new` says, and `work` is the same bytes shuffled; there is a slot and an entry for each piece, an entry for each
        // stream and frame, and room for every frame that does not compress. Grids stride.
        unsafe {
            let arguments = (work, slots, pieces, shape, differs);
            let blocks = grid(shape.all_pieces(), warps);
            kernel("encode_pieces")?.launch(stream, blocks, warps * WARP, arguments, &buffers)?;
            let arguments = (pieces, streams, shape, differs);
            let blocks = grid(shape.all_streams(), threads);
            kernel("encode_streams")?.launch(stream, blocks, threads, arguments, &buffers)?;
            let arguments = (streams, frame_table, shape, differs);
            kernel("encode_frames")?.launch(stream, grid(shape.chunks as usize, WARP), WARP, arguments, &buffers)?;
            kernel("encode_places")?.launch(stream, 1, WARP, (frame_table, shape.chunks), &buffers)?;
            let assemble = kernel("encode_assemble")?;
            let blocks = resident(&assemble, grid(shape.all_pieces(), warps));
            let arguments = (src, work, slots, pieces, streams, frame_table, to, shape);
            assemble.launch(stream, blocks, warps * WARP, arguments, &buffers)?;
        }
        Ok(Launched { out, frames })
    }

    /// A word for each chunk: whether it is encoded.
    fn compare(&self, blank: Option<&Blank<'_>>, stream: &Stream) -> Result<Buffer> {
        let count = self.shape.chunks;
        let differs = pool::allocate(count as usize * 4, stream)?;
        let Some(Blank { chunks, stride_bytes, blank, nan }) = blank else {
            stream.memset(&differs, 1)?;
            return Ok(differs);
        };
        stream.memset(&differs, 0)?;
        let (kernel, threads) = (ENCODE.kernel(stream.device(), "encode_differs")?, threads(stream.device()));
        let size_bytes = blank.size_bytes() as u32;
        let addresses = (chunks.address(), blank.address(), differs.address());
        let arguments = (addresses.0, addresses.1, *stride_bytes as u64, count, size_bytes, *nan, addresses.2);
        let buffers = [*chunks, *blank, &differs];
        // SAFETY: the parameters of encode_differs; chunks lie in the buffer, as many as were said, each as large as `blank`.
        unsafe { kernel.launch(stream, resident(&kernel, count), threads, arguments, &buffers) }?;
        Ok(differs)
    }

    /// The chunks as their blocks are compressed, where that differs from how they are.
    fn shuffle(&self, src: &Buffer, stream: &Stream) -> Result<Option<Buffer>> {
        let (kind, unit) = match self.encoding.container {
            Container::Blosc { shuffling: Shuffling::Bytes, type_bytes, .. } if type_bytes > 1 => {
                (Shuffle::Bytes, type_bytes)
            }
            Container::Blosc { shuffling: Shuffling::Bits, type_bytes, .. } => (Shuffle::Bits, type_bytes),
            _ => return Ok(None),
        };
        let unit = usize::from(unit);
        // Blosc leaves a block alone whose elements do not fill groups of 8.
        let is_moved = |size: usize| kind == Shuffle::Bytes || (size / unit).is_multiple_of(8);
        let (stride, chunk) = (self.shape.plain_stride as usize, self.encoding.chunk_bytes);
        let block = self.shape.block_bytes as usize;
        let blocks = (0..self.shape.chunks as usize)
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

impl Encoding {
    fn shuffling(&self) -> Shuffling {
        match self.container {
            Container::Blosc { shuffling, .. } => shuffling,
            Container::Lz4 => Shuffling::None,
        }
    }
}

fn threads(device: Device) -> u32 {
    if device == Device::Simt { 32 } else { 256 }
}

fn resident(kernel: &Kernel, blocks: u32) -> u32 {
    blocks.clamp(1, kernel.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR)
}
