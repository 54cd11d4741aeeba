//! Launches the kernels of `blosc_encode.cu`: some before and some after the kernels that encode the streams of Blosc
//! blocks.

use cuzarr_device::internal::shuffle;
use cuzarr_device::internal::shuffle::{Shuffle, Span};
use cuzarr_device::internal::transfer::copy_pieces_on;
use cuzarr_device::internal::{WARP, defined, pool};
use cuzarr_device::{Buffer, Device, Header, KernelSource, Stream, header};

use super::{BloscEncoder, BloscLayout};
use crate::Result;
use crate::codec::batch::{self, place_frames};
use crate::codec::blosc::Shuffling;
use crate::codec::blosc::container::VERSION;
use crate::codec::device::{ChunkRow, DeviceEncoder, Encode, EncodeTask, FRAME_ENTRY_BYTES, Launched};
use crate::codec::lz;

/// CUDA headers in `codec/blosc` that kernels include.
const HEADERS: &[Header] = &[header!("codec/blosc/blosc.cuh")];
const TEXT: &str = include_str!("blosc_encode.cu");
static ENCODE: KernelSource =
    KernelSource { name: "blosc_encode", text: TEXT, headers: &[HEADERS, lz::HEADERS, batch::HEADERS] };

/// Number of bytes of a stream that a warp copies at a time.
const PART_BYTES: usize = defined(TEXT, "CUZARR_BLOSC_PART_BYTES") as usize;
/// Number of threads in a thread block; few on the emulated device `simt`, where each thread is a fiber.
const THREADS: u32 = 128;
/// For kernels that move bytes: how many thread blocks a multiprocessor holds at once.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;
/// Bytes of a `u32` in device memory.
const WORD_BYTES: usize = 4;

/// The arguments of the encoding kernels. blosc_encode.cu declares the same struct as `BloscEncode`.
#[repr(C)]
#[derive(Clone, Copy)]
struct BloscTask {
    src: usize,
    sizes: usize,
    streams: [EncodedStreams; 2],
    places: usize,
    frames: usize,
    out: usize,
    stride: u64,
    chunks: u32,
    chunk_bytes: u32,
    block_bytes: u32,
    splits: u32,
    header: u32,
    reserved: u32,
}

/// Streams of Blosc blocks that have one decoded size, before and after they are encoded. `BloscStreams` in
/// blosc_encode.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct EncodedStreams {
    plain: usize,
    coded: usize,
    entries: usize,
    count: u32,
    size_bytes: u32,
    stride_bytes: u32,
    parts: u32,
}

impl EncodedStreams {
    /// Describes, for kernels, streams of `size_bytes` bytes each, `count` in each chunk. Their plain bytes lie as
    /// `row` says.
    fn new(row: &ChunkRow, count: usize, size_bytes: usize, plain: &Buffer, made: &Launched) -> EncodedStreams {
        EncodedStreams {
            plain: plain.address(),
            coded: made.out.address(),
            entries: made.frames.address(),
            count: count as u32,
            size_bytes: size_bytes as u32,
            stride_bytes: row.stride_bytes as u32,
            parts: size_bytes.div_ceil(PART_BYTES) as u32,
        }
    }
}

/// Chunks in one buffer that are ready to be encoded to Blosc frames.
pub(super) struct BloscChunks {
    layout: BloscLayout,
    row: ChunkRow,
    rows: [ChunkRow; 2],
    streams: Box<dyn Encode>,
    rest: Option<Box<dyn Encode>>,
    output_bound_bytes: usize,
}

/// Maximum device memory, in bytes, that a launch takes without that of the streams' encoders. The streams' encoders
/// take more.
pub(super) fn memory_bytes(encoder: &BloscEncoder, row: &ChunkRow) -> usize {
    let [streams, rests] = encoder.layout.rows(row);
    // Memory for shuffled blocks, and for their streams if these must be moved to aligned places.
    let work = [streams, rests].map(|row| row.count.saturating_mul(row.stride_bytes)).into_iter();
    let work = work.fold(0, usize::saturating_add).saturating_mul(2);
    let words = streams.count.saturating_add(row.count).saturating_mul(2).saturating_mul(WORD_BYTES);
    let frames = row.count.saturating_mul(FRAME_ENTRY_BYTES);
    [work, words, frames, encoder.output_bound_bytes(row.count)].into_iter().fold(0, usize::saturating_add)
}

impl BloscChunks {
    pub(super) fn new(encoder: &BloscEncoder, row: &ChunkRow) -> Result<BloscChunks> {
        let rows = encoder.layout.rows(row);
        Ok(BloscChunks {
            layout: encoder.layout,
            row: *row,
            rows,
            streams: encoder.streams.prepare(&rows[0])?,
            rest: encoder.rest.as_ref().map(|rest| rest.prepare(&rows[1])).transpose()?,
            output_bound_bytes: encoder.output_bound_bytes(row.count),
        })
    }

    /// How blocks of `size_bytes` are shuffled; `None` if Blosc does not shuffle them.
    fn shuffle_of(&self, size_bytes: usize) -> Option<Shuffle> {
        let unit = usize::from(self.layout.type_bytes);
        match self.layout.shuffling {
            Shuffling::Bytes if unit > 1 => Some(Shuffle::Bytes),
            // Blosc shuffles no bits if the elements do not fill groups of 8.
            Shuffling::Bits if (size_bytes / unit).is_multiple_of(8) => Some(Shuffle::Bits),
            _ => None,
        }
    }

    /// Returns the offset in the source at which each Blosc block of `size_bytes` bytes begins. Each chunk has `each`
    /// blocks, from its byte `first` on.
    fn blocks(&self, first: usize, each: usize, size_bytes: usize) -> impl Iterator<Item = usize> {
        let stride = self.row.stride_bytes;
        (0..self.row.count * each).map(move |index| index / each * stride + first + index % each * size_bytes)
    }

    /// Shuffles blocks of one size, which begin at the offsets `begins` in `src`, to new memory, `stride_bytes` from
    /// one to the next.
    fn shuffled(
        &self,
        src: &Buffer,
        begins: impl Iterator<Item = usize>,
        size_bytes: usize,
        stride_bytes: usize,
        stream: &Stream,
    ) -> Result<Buffer> {
        let places = begins.enumerate().map(|(index, begin)| (begin, index * stride_bytes));
        let places: Vec<(usize, usize)> = places.collect();
        let work = pool::allocate(places.len() * stride_bytes, stream)?;
        if let Some(kind) = self.shuffle_of(size_bytes) {
            let span = |&(src_offset_bytes, dst_offset_bytes): &(usize, usize)| Span {
                src_offset_bytes,
                dst_offset_bytes,
                size_bytes,
            };
            let spans: Vec<Span> = places.iter().map(span).collect();
            shuffle::shuffle(kind, src, &work, &spans, self.layout.type_bytes.into(), stream)?;
        } else {
            copy_each(src, &work, places.into_iter(), size_bytes, stream)?;
        }
        Ok(work)
    }

    /// Returns the shuffled streams of all whole blocks in one buffer, as their encoder expects them.
    fn whole(&self, src: &Buffer, stream: &Stream) -> Result<Buffer> {
        let BloscLayout { block_bytes: block, chunk_bytes, .. } = self.layout;
        let (bytes, stride) = (self.layout.stream_bytes(), self.rows[0].stride_bytes);
        let is_row = self.row.stride_bytes == chunk_bytes && chunk_bytes.is_multiple_of(block);
        let blocks = if is_row && self.shuffle_of(block).is_none() {
            src.clone()
        } else {
            let begins = self.blocks(0, chunk_bytes / block, block);
            self.shuffled(src, begins, block, block, stream)?
        };
        if bytes == stride {
            return Ok(blocks);
        }
        let work = pool::allocate(self.rows[0].count * stride, stream)?;
        let places = (0..self.rows[0].count).map(|index| (index * bytes, index * stride));
        copy_each(&blocks, &work, places, bytes, stream)?;
        Ok(work)
    }
}

/// Copies pieces of `size_bytes` bytes each from offsets in `src` to offsets in `dst`. `places` holds the offsets of
/// each piece in `src` and `dst`.
fn copy_each(
    src: &Buffer,
    dst: &Buffer,
    places: impl Iterator<Item = (usize, usize)>,
    size_bytes: usize,
    stream: &Stream,
) -> Result<()> {
    let piece = |(from, to): (usize, usize)| Ok((src.slice(from..from + size_bytes)?, dst.slice(to..to + size_bytes)?));
    Ok(copy_pieces_on(&places.map(piece).collect::<Result<Vec<_>>>()?, stream)?)
}

impl Encode for BloscChunks {
    fn launch(&self, task: &EncodeTask<'_>) -> Result<Launched> {
        let EncodeTask { stream, src, sizes, .. } = *task;
        let BloscLayout { chunk_bytes, block_bytes, splits, type_bytes, flags, .. } = self.layout;
        let (count, per_chunk, rest_bytes) = (self.row.count, self.layout.whole_streams(), self.layout.rest_bytes());
        let is_simt = stream.device() == Device::Simt;
        let threads = if is_simt { WARP } else { THREADS };
        let kernel = |name| ENCODE.kernel(stream.device(), name);
        let write = kernel("blosc_encode_write")?;
        let resident = (write.multiprocessors() * BLOCKS_PER_MULTIPROCESSOR) as usize;
        let grid = |warps: usize| warps.div_ceil((threads / WARP) as usize).clamp(1, resident) as u32;

        // Encodes streams of one size, `per_chunk` in each chunk, by their own encoder.
        let encode = |encode: &dyn Encode, src: &Buffer, per_chunk: usize, stream_bytes: usize| {
            let streams = count * per_chunk;
            let made = pool::allocate(streams * WORD_BYTES, stream)?;
            let arguments = (sizes.address(), made.address(), streams as u32, per_chunk as u32, stream_bytes as u32);
            let blocks = grid(streams.div_ceil(WARP as usize));
            // SAFETY: the parameters of blosc_encode_streams. `EncodeBatch` has made a size for each chunk; there is room for one of
            // each of its streams in `made`.
            unsafe { kernel("blosc_encode_streams")?.launch(stream, blocks, threads, arguments, &[sizes, &made]) }?;
            encode.launch(&EncodeTask { stream, src, sizes: &made, chunk_bytes: &vec![stream_bytes; streams] })
        };
        let whole = self.whole(src, stream)?;
        let made = encode(&*self.streams, &whole, per_chunk, self.layout.stream_bytes())?;
        let rest = self.rest.as_ref().map(|rest| {
            let begins = self.blocks(chunk_bytes - rest_bytes, 1, rest_bytes);
            let work = self.shuffled(src, begins, rest_bytes, self.rows[1].stride_bytes, stream)?;
            Ok::<_, crate::Error>((encode(&**rest, &work, 1, rest_bytes)?, work))
        });
        let rest = rest.transpose()?;

        let streams = EncodedStreams::new(&self.rows[0], per_chunk, self.layout.stream_bytes(), &whole, &made);
        let rests = rest.as_ref().map(|(made, work)| EncodedStreams::new(&self.rows[1], 1, rest_bytes, work, made));
        let rests = rests.unwrap_or_default();
        let places = pool::allocate(count * (per_chunk + 1) * WORD_BYTES, stream)?;
        let frames = pool::allocate(count * FRAME_ENTRY_BYTES, stream)?;
        let out = pool::allocate(self.output_bound_bytes, stream)?;
        let mut buffers = vec![src, sizes, &whole, &made.out, &made.frames, &places, &frames, &out];
        buffers.extend(rest.iter().flat_map(|(made, work)| [work, &made.out, &made.frames]));
        let arguments = BloscTask {
            src: src.address(),
            sizes: sizes.address(),
            streams: [streams, rests],
            places: places.address(),
            frames: frames.address(),
            out: out.address(),
            stride: self.row.stride_bytes as u64,
            chunks: count as u32,
            chunk_bytes: chunk_bytes as u32,
            block_bytes: block_bytes as u32,
            splits: splits as u32,
            // The second byte is the version of the streams' format: 1 for all of them.
            header: u32::from_le_bytes([VERSION, 1, flags, type_bytes]),
            reserved: 0,
        };
        let parts = count * (streams.count * streams.parts + rests.count * rests.parts) as usize;
        // SAFETY: the parameter of both kernels. `EncodeBatch` has checked that the chunks lie in `src`. The streams' encoders have
        // made an entry for each stream, and those of all streams lie in their memory; streams that are not smaller are read
        // from `whole` and the rests' memory. There is a place for each stream, an entry for each chunk, and room for every
        // chunk as it is; a container that would become larger is a copy. Grids stride.
        unsafe {
            kernel("blosc_encode_sizes")?.launch(stream, grid(count), threads, (arguments,), &buffers)?;
            place_frames(&frames, stream)?;
            write.launch(stream, grid(parts), threads, (arguments,), &buffers)?;
        }
        Ok(Launched { out, frames })
    }
}
