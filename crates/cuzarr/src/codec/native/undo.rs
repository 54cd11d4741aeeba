//! Undoes steps of decoding: the work of a device on packed chunks before it encodes them to frames.
//!
//! ```text
//! packed ──[delta: differences]──[shuffle]── what becomes frames
//! ```

use std::ops::Range;

use cuzarr_device::internal::bits;
use cuzarr_device::internal::bits::Fields;
use cuzarr_device::internal::convert;
use cuzarr_device::internal::convert::Conversion;
use cuzarr_device::internal::shuffle;
use cuzarr_device::internal::shuffle::Shuffle;
use cuzarr_device::internal::transfer::gather_on;
use cuzarr_device::internal::{delta, pool};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Packing, Stream, Transfer, TransferBox};

use super::launches::{ALIGNMENT_BYTES, rows};
use super::{Map, Step};
use crate::codec::batch::STATUS_BYTES;
use crate::codec::step::Location;
use crate::{Error, ErrorKind, Result, ResultExt};

/// The inverses of decoding steps, by which a device encodes chunks of one size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    /// The steps in order of encoding, each with the name of its codec and the size of its output.
    steps: Vec<(Inverse, String, usize)>,
}

#[derive(Clone, Debug)]
enum Inverse {
    /// Replaces each element but the first by its difference from the one before, which undoes a running sum.
    Differences(DType),
    Shuffle {
        unit_bytes: usize,
    },
    /// Changes elements one by one, or reorders them, from the decoded to the encoded form.
    Map(Map),
    /// Adds a fixed byte at the start or the end of each chunk's bytes.
    Header(u8, Location),
    /// Packs the bits that are kept of each element, without gaps.
    Pack {
        fields: Fields,
        len: usize,
    },
    /// Converts each element to the type in which it is stored; if that fails, writes a status for the chunk of the
    /// element.
    Convert {
        conversion: Conversion,
        /// The number of this conversion among the conversions of an `Undo`, by which its statuses are found.
        number: usize,
    },
}

/// Chunks after all steps of an `Undo`, ready to be encoded to frames, and the statuses that conversions wrote.
pub(crate) struct Undone {
    pub(crate) chunks: Strided,
    /// A status for each conversion and each chunk, conversion by conversion; `None` if there are no conversions.
    statuses: Option<Buffer>,
}

/// Chunks of one size that lie in one buffer, `stride_bytes` from one to the next.
#[derive(Clone)]
pub(crate) struct Strided {
    pub(crate) buffer: Buffer,
    pub(crate) stride_bytes: usize,
    /// The size of each chunk in the buffer, in bytes.
    pub(crate) size_bytes: usize,
    /// The number of chunks in the buffer.
    pub(crate) count: usize,
}

impl Undo {
    /// Adds the inverses of a codec's decoding `steps`, the last one first. Returns false, and changes nothing, if a
    /// device cannot undo them.
    pub(crate) fn add(&mut self, steps: &[Step], codec: &str, input_bytes: usize) -> bool {
        let (len, mut size_bytes) = (self.steps.len(), input_bytes);
        for step in steps.iter().rev() {
            let (inverse, given_bytes) = match step {
                Step::Sum(dtype) => (Inverse::Differences(*dtype), size_bytes),
                Step::Unshuffle { unit_bytes } => (Inverse::Shuffle { unit_bytes: *unit_bytes }, size_bytes),
                Step::Map(map) => (Inverse::Map(map.clone()), map.packed_bytes()),
                Step::Header { expected, location } => (Inverse::Header(*expected, *location), size_bytes + 1),
                Step::Unpack { fields, len } => {
                    (Inverse::Pack { fields: *fields, len: *len }, fields.packed_bytes(*len))
                }
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

    /// Adds a step that converts each element to the type in which it is stored. Returns true, because a device can do
    /// any conversion.
    pub(crate) fn add_conversion(&mut self, conversion: &Conversion, codec: &str, input_bytes: usize) -> bool {
        let len = input_bytes / conversion.from.size_bytes();
        let given_bytes = len * conversion.to.size_bytes();
        let inverse = Inverse::Convert { conversion: conversion.clone(), number: self.conversions() };
        self.steps.push((inverse, codec.to_string(), given_bytes));
        true
    }

    /// Whether some step may report an element that it cannot convert. If so, the packed chunks are kept for the host.
    pub(crate) fn reports(&self) -> bool {
        self.conversions() > 0
    }

    fn conversions(&self) -> usize {
        self.steps.iter().filter(|(inverse, ..)| matches!(inverse, Inverse::Convert { .. })).count()
    }

    /// Device memory, in bytes, that all steps take for a chunk, besides the packed chunk.
    pub(crate) fn chunk_bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(|(.., size_bytes)| padded(*size_bytes)).sum();
        steps + self.conversions() * STATUS_BYTES
    }

    /// Launches all inverse steps on `stream`, for the packed chunks of `src`. Returns the chunks that become frames.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn run(&self, src: Strided, stream: &Stream) -> Result<Undone> {
        let (unused, count) = (src.buffer.clone(), src.count);
        let mut chunks = src;
        let statuses_bytes = self.conversions() * count * STATUS_BYTES;
        let statuses = (statuses_bytes > 0).then(|| pool::allocate(statuses_bytes, stream)).transpose()?;
        if let Some(statuses) = &statuses {
            stream.memset(statuses, 0)?;
        }
        for (inverse, codec, given_bytes) in &self.steps {
            let stride_bytes = padded(*given_bytes);
            let total_bytes = stride_bytes.checked_mul(count).ok_or_else(|| {
                Error::new(
                    ErrorKind::OutOfMemory,
                    format!("{count} chunks of {given_bytes} bytes do not fit into memory"),
                )
            })?;
            let buffer = pool::allocate(total_bytes.max(1), stream)?;
            let given = Strided { buffer, stride_bytes, size_bytes: *given_bytes, count };
            let statuses = statuses.as_ref().unwrap_or(&unused);
            inverse.run(&chunks, &given, statuses, stream).at(|| format!("codec '{codec}'"))?;
            chunks = given;
        }
        Ok(Undone { chunks, statuses })
    }
}

impl Undone {
    /// Returns for each chunk whether it has an element that could not be converted. The steps must have run.
    ///
    /// # Errors
    /// `DeviceFailed`
    pub(crate) fn reported(&self) -> Result<Vec<bool>> {
        let count = self.chunks.count;
        let mut reported = vec![false; count];
        let Some(statuses) = &self.statuses else { return Ok(reported) };
        for (at, status) in statuses.to_vec()?.as_chunks::<STATUS_BYTES>().0.iter().enumerate() {
            reported[at % count] |= *status != [0; STATUS_BYTES];
        }
        Ok(reported)
    }
}

fn padded(size_bytes: usize) -> usize {
    size_bytes.next_multiple_of(ALIGNMENT_BYTES).max(ALIGNMENT_BYTES)
}

impl Inverse {
    /// Puts this step on `stream`: it reads the chunks of `src` and writes those of `dst`. Conversions also write
    /// `statuses`.
    fn run(&self, src: &Strided, dst: &Strided, statuses: &Buffer, stream: &Stream) -> Result<()> {
        let &Strided { size_bytes, count, .. } = src;
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
                    // No element writes the bits after the last one.
                    stream.memset(&dst.buffer, 0)?;
                }
                let elements = rows(&src.buffer, map, count, src.stride_bytes as isize)?;
                gather_chunks(&elements, map, dst, 0..map.packed_bytes(), stream)?;
            }
            Inverse::Convert { conversion, number } => {
                let too_many = |_| Error::new(ErrorKind::InvalidArgument, "too many chunks for one batch");
                let span = |(index, (src_offset_bytes, dst_offset_bytes))| {
                    let status = u32::try_from(number * count + index).map_err(too_many)?;
                    Ok(convert::Span { src_offset_bytes, dst_offset_bytes, status })
                };
                let spans = places.enumerate().map(span).collect::<Result<Vec<_>>>()?;
                let len = size_bytes / conversion.from.size_bytes();
                convert::convert_on(conversion, &src.buffer, &dst.buffer, statuses, &spans, len, stream)?;
            }
            Inverse::Pack { fields, len } => {
                let span =
                    |(elems_offset_bytes, packed_offset_bytes)| bits::Span { packed_offset_bytes, elems_offset_bytes };
                let spans: Vec<_> = places.map(span).collect();
                bits::pack_on(fields, &src.buffer, &dst.buffer, &spans, *len, stream)?;
            }
            Inverse::Header(byte, location) => {
                let (inside, at) = location.split(1, size_bytes + 1);
                let bytes = Map::flat(cuzarr_device::Tail::plain(DType::UINT8), size_bytes);
                let others = rows(&src.buffer, &bytes, count, src.stride_bytes as isize)?;
                gather_chunks(&others, &bytes, dst, inside, stream)?;
                let header = Map::flat(cuzarr_device::Tail::plain(DType::UINT8), 1);
                gather_chunks(&repeated(*byte, count, stream.device())?, &header, dst, at..at + 1, stream)?;
            }
        }
        Ok(())
    }
}

/// An array of shape `[count, 1]` in which every element is `byte`.
fn repeated(byte: u8, count: usize, device: Device) -> Result<NdBuffer> {
    let layout = Layout::strided(&[count, 1], &[0, 1], 0, 1, 1)?;
    Ok(NdBuffer::from_parts(Buffer::from_bytes(device, &[byte])?, DType::UINT8, layout)?)
}

/// Packs each row of `elements` into the byte range `inside` of one chunk of `dst`.
fn gather_chunks(elements: &NdBuffer, map: &Map, dst: &Strided, inside: Range<usize>, stream: &Stream) -> Result<()> {
    let boxes = (0..elements.shape()[0]).map(|index| TransferBox {
        packed_offset_bytes: index * dst.stride_bytes + inside.start,
        packed_size_bytes: inside.len(),
        packed_first_elem: 0,
        start: [&[index][..], &vec![0; map.shape.len()]].concat(),
        extent: [&[1][..], &map.shape].concat(),
    });
    let packed_strides = [&[0][..], &map.packed_strides].concat();
    let transfer = Transfer { tail: map.tail.clone(), packed_strides, lists: None, boxes: boxes.collect() };
    Ok(gather_on(elements, &transfer, &dst.buffer, stream)?)
}
