//! Steps the other way: what a device does to packed chunks before it makes frames of them.
//!
//! ```text
//! packed ──[delta: differences]──[shuffle]── what becomes frames
//! ```

use cuzarr_device::shuffle::{self, Shuffle};
use cuzarr_device::transfer::gather_on;
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Packing, Stream, Transfer, TransferBox, delta, pool};

use super::{ALIGNMENT_BYTES, Map, Step, rows};
use crate::{Error, ErrorKind, Result, ResultExt};

/// What undoes the steps of some codecs, in order of encoding, for chunks of one size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    /// Each with the name of its codec, and the size of what it gives.
    steps: Vec<(Inverse, String, usize)>,
}

#[derive(Clone, Debug)]
enum Inverse {
    /// Of a sum.
    Differences(DType),
    Shuffle {
        unit_bytes: usize,
    },
    /// The tail's way of writing.
    Map(Map),
    /// A first byte.
    Header(u8),
}

/// Chunks that lie in one buffer, `stride_bytes` from one to the next.
pub(crate) struct Strided {
    pub(crate) buffer: Buffer,
    pub(crate) stride_bytes: usize,
}

impl Undo {
    /// Adds what undoes `steps` of decoding; false, and no change, where a device cannot.
    pub(crate) fn add(&mut self, steps: &[Step], codec: &str, input_bytes: usize) -> bool {
        let (len, mut size_bytes) = (self.steps.len(), input_bytes);
        for step in steps.iter().rev() {
            let (inverse, given_bytes) = match step {
                Step::Sum(dtype) => (Inverse::Differences(*dtype), size_bytes),
                Step::Unshuffle { unit_bytes } => (Inverse::Shuffle { unit_bytes: *unit_bytes }, size_bytes),
                Step::Map(map) => (Inverse::Map(map.clone()), map.packed_bytes()),
                Step::Header { expected } => (Inverse::Header(*expected), size_bytes + 1),
                Step::Decode { .. } | Step::Check { .. } | Step::Convert { .. } => {
                    self.steps.truncate(len);
                    return false;
                }
            };
            self.steps.push((inverse, codec.to_string(), given_bytes));
            size_bytes = given_bytes;
        }
        true
    }

    /// Device memory that the steps take for a chunk, beside the packed ones.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.steps.iter().map(|(.., size_bytes)| padded(*size_bytes)).sum()
    }

    /// Puts the steps over `count` chunks of `size_bytes` on `stream`; gives what becomes frames.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn run(&self, src: Strided, size_bytes: usize, count: usize, stream: &Stream) -> Result<Strided> {
        let (mut chunks, mut size_bytes) = (src, size_bytes);
        for (inverse, codec, given_bytes) in &self.steps {
            let stride_bytes = padded(*given_bytes);
            let total_bytes = stride_bytes.checked_mul(count).ok_or_else(|| {
                Error::new(
                    ErrorKind::OutOfMemory,
                    format!("{count} chunks of {given_bytes} bytes are more than memory"),
                )
            })?;
            let given = Strided { buffer: pool::allocate(total_bytes.max(1), stream)?, stride_bytes };
            inverse.run(&chunks, &given, size_bytes, count, stream).at(|| format!("codec '{codec}'"))?;
            (chunks, size_bytes) = (given, *given_bytes);
        }
        Ok(chunks)
    }
}

fn padded(size_bytes: usize) -> usize {
    size_bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES)
}

impl Inverse {
    fn run(&self, src: &Strided, dst: &Strided, size_bytes: usize, count: usize, stream: &Stream) -> Result<()> {
        let places = (0..count).map(|index| (index * src.stride_bytes, index * dst.stride_bytes));
        match self {
            Inverse::Differences(dtype) => {
                let chunk = |(src_offset_bytes, dst_offset_bytes)| delta::Chunk {
                    src_offset_bytes,
                    dst_offset_bytes,
                    size_bytes,
                };
                let chunks: Vec<_> = places.map(chunk).collect();
                delta::differ_on(*dtype, &src.buffer, &dst.buffer, &chunks, stream)?;
            }
            Inverse::Shuffle { unit_bytes } => {
                let span = |(src_offset_bytes, dst_offset_bytes)| shuffle::Span {
                    src_offset_bytes,
                    dst_offset_bytes,
                    size_bytes,
                };
                let spans: Vec<_> = places.map(span).collect();
                shuffle::shuffle(Shuffle::Bytes, &src.buffer, &dst.buffer, &spans, *unit_bytes, stream)?;
            }
            Inverse::Map(map) => {
                if map.tail.packing == Packing::Bits {
                    // No element owns the bits behind the last one.
                    stream.memset(&dst.buffer, 0)?;
                }
                let elements = rows(&src.buffer, map, count, src.stride_bytes as isize)?;
                gather_chunks(&elements, map, (dst, 0, map.packed_bytes()), stream)?;
            }
            Inverse::Header(byte) => {
                let bytes = Map::flat(cuzarr_device::Tail::plain(DType::UINT8), size_bytes);
                let inside = rows(&src.buffer, &bytes, count, src.stride_bytes as isize)?;
                gather_chunks(&inside, &bytes, (dst, 1, size_bytes), stream)?;
                let header = Map::flat(cuzarr_device::Tail::plain(DType::UINT8), 1);
                gather_chunks(&repeated(*byte, count, stream.device())?, &header, (dst, 0, 1), stream)?;
            }
        }
        Ok(())
    }
}

/// The same byte for each chunk, as an array of `[count, 1]`.
fn repeated(byte: u8, count: usize, device: Device) -> Result<NdBuffer> {
    let layout = Layout::strided(&[count, 1], &[0, 1], 0, 1, 1)?;
    Ok(NdBuffer::from_parts(Buffer::from_bytes(device, &[byte])?, DType::UINT8, layout)?)
}

/// Packs each row of `elements` into a chunk of `dst`, so many bytes behind its beginning.
fn gather_chunks(
    elements: &NdBuffer,
    map: &Map,
    (dst, from_byte, packed_size_bytes): (&Strided, usize, usize),
    stream: &Stream,
) -> Result<()> {
    let boxes = (0..elements.shape()[0]).map(|index| TransferBox {
        packed_offset_bytes: index * dst.stride_bytes + from_byte,
        packed_size_bytes,
        packed_first_elem: 0,
        start: [&[index][..], &vec![0; map.shape.len()]].concat(),
        extent: [&[1][..], &map.shape].concat(),
    });
    let packed_strides = [&[0][..], &map.packed_strides].concat();
    let transfer = Transfer { tail: map.tail.clone(), packed_strides, boxes: boxes.collect() };
    Ok(gather_on(elements, &transfer, &dst.buffer, stream)?)
}
