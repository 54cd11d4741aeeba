//! Steps laid out for a batch of chunks: their memory, and what each of them launches.

use std::ops::Range;

use cuzarr_device::bits::{self, Fields};
use cuzarr_device::checksum::{self, Checksum};
use cuzarr_device::convert::{self, Conversion};
use cuzarr_device::shuffle::{self, Shuffle};
use cuzarr_device::{
    Buffer, DType, Event, Layout, NdBuffer, Stream, Tail, Transfer, TransferBox, delta, pool, transfer,
};

use super::{Map, Source, Step};
use crate::codec::batch::{self, Batch, STATUS_BYTES, ScratchLimit, result_of};
use crate::codec::damage::expect_encoded_size;
use crate::codec::device::Headers;
use crate::codec::step::{CHECKSUM_BYTES, Location};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Chunks between steps begin at multiples of this.
pub(super) const ALIGNMENT_BYTES: usize = 256;

/// A source of which the host has neither bytes nor headers.
const NOTHING_READ: (Option<&[u8]>, &[Headers]) = (None, &[]);
/// Chunks that lie in one buffer.
pub(crate) struct Chunks {
    pub(crate) buffer: Buffer,
    pub(crate) ranges: Vec<Range<usize>>,
}

/// One step over all chunks, ready to be launched.
enum Launch {
    Decode(Batch),
    Check { checksum: Checksum, data: Buffer, spans: Vec<checksum::Span> },
    Header { expected: u8, data: Buffer, spans: Vec<checksum::Span> },
    Unshuffle { src: Buffer, dst: Buffer, spans: Vec<shuffle::Span>, unit_bytes: usize },
    Map { src: Buffer, transfer: Box<Transfer>, dst: Box<NdBuffer> },
    Sum { dtype: DType, src: Buffer, dst: Buffer, chunks: Vec<delta::Chunk> },
    Unpack { fields: Fields, len: usize, src: Buffer, dst: Buffer, spans: Vec<bits::Span> },
    Convert { conversion: Conversion, len: usize, src: Buffer, dst: Buffer, spans: Vec<convert::Span> },
}

/// Chunks on their way through a device's steps to packed bytes.
pub(crate) struct NativeBatch {
    launches: Vec<(Launch, String)>,
    /// The findings of steps that only look, a word for each step and chunk.
    statuses: Option<Buffer>,
    memory_bytes: usize,
    chunks: Chunks,
    /// The memory that the next step writes to, when it is not its own.
    target: Option<Chunks>,
    /// The mark behind the last run.
    done: Option<Event>,
}

impl Chunks {
    fn is_at(&self, buffer: &Buffer) -> bool {
        self.buffer.address() == buffer.address() && self.buffer.size_bytes() == buffer.size_bytes()
    }
}

impl NativeBatch {
    /// One launch a step, in memory of `target` for the last of them.
    pub(super) fn lay_out(
        steps: &[(Step, String)],
        source: Source<'_>,
        mut target: Option<Chunks>,
        limit: ScratchLimit,
        stream: &Stream,
    ) -> Result<NativeBatch> {
        let Source { buffer, ranges, host, headers } = source;
        let chunks = Chunks { buffer: buffer.clone(), ranges };
        let mut batch =
            NativeBatch { launches: Vec::new(), statuses: None, memory_bytes: 0, chunks, target: None, done: None };
        let mut looks = 0;
        for (index, (step, codec)) in steps.iter().enumerate() {
            if index + 1 == steps.len() {
                batch.target = target.take();
            }
            let read = if batch.chunks.is_at(buffer) { (host, headers) } else { (None, &[][..]) };
            let launch = batch.add(step, (read, limit), &mut looks, stream);
            let launch = launch.at(|| format!("codec '{codec}'"))?;
            batch.launches.push((launch, codec.clone()));
        }
        if looks > 0 {
            let size_bytes = looks * batch.chunks.ranges.len() * STATUS_BYTES;
            batch.memory_bytes += size_bytes;
            batch.statuses = Some(pool::allocate(size_bytes.max(1), stream)?);
        }
        Ok(batch)
    }

    fn add(
        &mut self,
        step: &Step,
        (read, limit): ((Option<&[u8]>, &[Headers]), ScratchLimit),
        looks: &mut usize,
        stream: &Stream,
    ) -> Result<Launch> {
        let count = self.chunks.ranges.len();
        let src = self.chunks.buffer.clone();
        match step {
            Step::Check { checksum, location } => {
                let spans = self.look(looks, CHECKSUM_BYTES, *location)?;
                Ok(Launch::Check { checksum: *checksum, data: src, spans })
            }
            Step::Header { expected, location } => {
                let spans = self.look(looks, 1, *location)?;
                Ok(Launch::Header { expected: *expected, data: src, spans })
            }
            Step::Decode { decoder, decoded_bytes } => {
                let from = self.chunks.ranges.clone();
                self.allocate(*decoded_bytes, stream)?;
                let units = from.into_iter().zip(&self.chunks.ranges);
                let units: Vec<_> = units.map(|(src, dst)| batch::Unit { src, dst: dst.clone() }).collect();
                let dst = &self.chunks.buffer;
                let source = batch::Source { buffer: &src, host: read.0, headers: read.1 };
                let batch = Batch::prepare_read(decoder.clone(), source, dst, &units, limit)?;
                self.memory_bytes += batch.scratch_bytes();
                Ok(Launch::Decode(batch))
            }
            Step::Unshuffle { unit_bytes } => {
                let from = self.chunks.ranges.clone();
                self.allocate(from.first().map_or(0, ExactSizeIterator::len), stream)?;
                let spans = from.iter().zip(&self.chunks.ranges).map(|(src, dst)| shuffle::Span {
                    src_offset_bytes: src.start,
                    dst_offset_bytes: dst.start,
                    size_bytes: src.len(),
                });
                let spans = spans.collect();
                Ok(Launch::Unshuffle { src, dst: self.chunks.buffer.clone(), spans, unit_bytes: *unit_bytes })
            }
            Step::Sum(dtype) => {
                if self.align(*dtype, delta::ALIGNMENT_BYTES, looks, stream)? {
                    return self.add(step, (NOTHING_READ, usize::MAX.into()), looks, stream);
                }
                let from = self.chunks.ranges.clone();
                self.allocate(from.first().map_or(0, ExactSizeIterator::len), stream)?;
                let chunks = from.iter().zip(&self.chunks.ranges).map(|(src, dst)| delta::Chunk {
                    src_offset_bytes: src.start,
                    dst_offset_bytes: dst.start,
                    size_bytes: src.len(),
                });
                let chunks = chunks.collect();
                Ok(Launch::Sum { dtype: *dtype, src, dst: self.chunks.buffer.clone(), chunks })
            }
            Step::Unpack { fields, len } => {
                let from = self.chunks.ranges.clone();
                for range in &from {
                    expect_encoded_size(range.len(), fields.packed_bytes(*len))?;
                }
                self.allocate(len * fields.elem_bytes, stream)?;
                let spans = from.iter().zip(&self.chunks.ranges).map(|(packed, elems)| bits::Span {
                    packed_offset_bytes: packed.start,
                    elems_offset_bytes: elems.start,
                });
                let (spans, dst) = (spans.collect(), self.chunks.buffer.clone());
                Ok(Launch::Unpack { fields: *fields, len: *len, src, dst, spans })
            }
            Step::Convert { conversion, len } => self.add_conversion(conversion, *len, looks, stream),
            Step::Map(map) => {
                let from = self.chunks.ranges.clone();
                let decoded_bytes = map.decoded_bytes();
                self.allocate(decoded_bytes, stream)?;
                let stride = decoded_bytes.next_multiple_of(ALIGNMENT_BYTES) as isize;
                let dst = rows(&self.chunks.buffer, map, count, stride)?;
                let boxes = from.into_iter().enumerate().map(|(index, range)| TransferBox {
                    packed_offset_bytes: range.start,
                    packed_size_bytes: range.len(),
                    packed_first_elem: 0,
                    start: [&[index][..], &vec![0; map.shape.len()]].concat(),
                    extent: [&[1][..], &map.shape].concat(),
                });
                let packed_strides = [&[0][..], &map.packed_strides].concat();
                let transfer = Transfer { tail: map.tail.clone(), packed_strides, lists: None, boxes: boxes.collect() };
                Ok(Launch::Map { src, transfer: Box::new(transfer), dst: Box::new(dst) })
            }
        }
    }

    /// Copies chunks of elements to where they begin at multiples of `alignment_bytes`, unless they do.
    fn align(&mut self, dtype: DType, alignment_bytes: usize, looks: &mut usize, stream: &Stream) -> Result<bool> {
        let (base, ranges) = (self.chunks.buffer.address(), &self.chunks.ranges);
        if ranges.iter().all(|range| (base + range.start).is_multiple_of(alignment_bytes)) {
            return Ok(false);
        }
        let len = ranges.first().map_or(0, ExactSizeIterator::len) / dtype.size_bytes();
        let aligned = Step::Map(Map::flat(Tail::plain(dtype), len));
        let launch = self.add(&aligned, (NOTHING_READ, usize::MAX.into()), looks, stream)?;
        self.launches.push((launch, String::new()));
        Ok(true)
    }

    fn add_conversion(
        &mut self,
        conversion: &Conversion,
        len: usize,
        looks: &mut usize,
        stream: &Stream,
    ) -> Result<Launch> {
        self.align(conversion.from, conversion.from.size_bytes(), looks, stream)?;
        let (src, from) = (self.chunks.buffer.clone(), self.chunks.ranges.clone());
        for range in &from {
            expect_encoded_size(range.len(), len * conversion.from.size_bytes())?;
        }
        self.allocate(len * conversion.to.size_bytes(), stream)?;
        let (first, dst) = (*looks * from.len(), self.chunks.buffer.clone());
        let too_many = |_| Error::new(ErrorKind::InvalidArgument, "too many chunks for one batch");
        let span = |(index, (src, dst)): (usize, (&Range<usize>, &Range<usize>))| {
            let status = u32::try_from(first + index).map_err(too_many)?;
            Ok(convert::Span { src_offset_bytes: src.start, dst_offset_bytes: dst.start, status })
        };
        let spans: Result<_> = from.iter().zip(&self.chunks.ranges).enumerate().map(span).collect();
        *looks += 1;
        Ok(Launch::Convert { conversion: conversion.clone(), len, src, dst, spans: spans? })
    }

    /// Narrows every chunk to the data beside a header that a step looks at: gives the data, the place of the header in the
    /// buffer, and its place in the chunk.
    fn look(&mut self, looks: &mut usize, header_bytes: usize, location: Location) -> Result<Vec<checksum::Span>> {
        let first = *looks * self.chunks.ranges.len();
        *looks += 1;
        let mut spans = Vec::with_capacity(self.chunks.ranges.len());
        for (index, range) in self.chunks.ranges.iter_mut().enumerate() {
            let (inside, at) = location.split(header_bytes, range.len());
            let (bytes, stored_offset_bytes) = (range.start + inside.start..range.start + inside.end, range.start + at);
            *range = bytes.clone();
            let too_many = |_| Error::new(ErrorKind::InvalidArgument, "too many or too large chunks for one batch");
            let status = u32::try_from(first + index).map_err(too_many)?;
            let at = u32::try_from(at).map_err(too_many)?;
            spans.push(checksum::Span { bytes, stored_offset_bytes, status, at });
        }
        Ok(spans)
    }

    /// New memory for chunks of this size, or the caller's.
    fn allocate(&mut self, size_bytes: usize, stream: &Stream) -> Result<()> {
        if let Some(target) = self.target.take() {
            self.chunks = target;
            return Ok(());
        }
        let stride = size_bytes.next_multiple_of(ALIGNMENT_BYTES);
        let count = self.chunks.ranges.len();
        let total_bytes = stride.checked_mul(count).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("{count} chunks of {size_bytes} bytes do not fit into memory"))
        })?;
        self.memory_bytes += total_bytes;
        let ranges = (0..count).map(|index| index * stride..index * stride + size_bytes).collect();
        self.chunks = Chunks { buffer: pool::allocate(total_bytes.max(1), stream)?, ranges };
        Ok(())
    }

    /// Device memory that decoders take while the batch runs, beside what lies between its steps.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let decoders = self.launches.iter().filter_map(|(launch, _)| match launch {
            Launch::Decode(batch) => Some(batch.scratch_bytes()),
            _ => None,
        });
        decoders.max().unwrap_or(0)
    }

    /// Device memory that the steps take in all, packed chunks included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The memory that packed chunks lie in, and where each begins, once the batch has run.
    pub(crate) fn packed(&self) -> (&Buffer, impl ExactSizeIterator<Item = usize>) {
        (&self.chunks.buffer, self.chunks.ranges.iter().map(|range| range.start))
    }

    /// Puts all steps on `stream`. Where a chunk is damaged, its packed bytes are anything; others are not touched by it.
    ///
    /// # Errors
    /// Those of [`Batch::run`].
    pub(crate) fn run(&mut self, stream: &Stream) -> Result<()> {
        if self.chunks.ranges.is_empty() {
            return Ok(());
        }
        if let Some(statuses) = &self.statuses {
            stream.memset(statuses, 0)?;
        }
        // There are statuses wherever a step looks.
        let statuses = self.statuses.as_ref().unwrap_or(&self.chunks.buffer);
        for (launch, codec) in &mut self.launches {
            launch.run(statuses, stream).at(|| format!("codec '{codec}'"))?;
        }
        self.done = Some(stream.record()?);
        Ok(())
    }

    /// Waits for the last run, and says for each chunk whether it was decoded. An error is that of the first codec that
    /// refused the chunk, with the codec's name in the trail.
    ///
    /// # Errors
    /// Those of [`Batch::check`].
    pub(crate) fn check(&mut self) -> Result<Vec<Result<()>>> {
        let count = self.chunks.ranges.len();
        let mut results: Vec<Result<()>> = (0..count).map(|_| Ok(())).collect();
        if count == 0 {
            return Ok(results);
        }
        let Some(done) = self.done.take() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "the batch was not run since it was checked"));
        };
        done.synchronize()?;
        // Not on the stream of the run, which may have other work by now.
        let statuses = self.statuses.as_ref().map_or(Ok(Vec::new()), Buffer::to_vec)?;
        let mut words = statuses.as_chunks::<STATUS_BYTES>().0.chunks(count.max(1));
        for (launch, codec) in &mut self.launches {
            let found: Vec<Result<()>> = match launch {
                Launch::Decode(batch) => batch.check()?,
                Launch::Check { .. } | Launch::Header { .. } | Launch::Convert { .. } => {
                    let words = words.next().unwrap_or_default();
                    words.iter().map(|word| result_of(u64::from_ne_bytes(*word), &[])).collect()
                }
                _ => continue,
            };
            for (result, found) in results.iter_mut().zip(found) {
                if result.is_ok() {
                    *result = found.at(|| format!("codec '{codec}'"));
                }
            }
        }
        Ok(results)
    }
}

/// Chunks of `map.shape` elements, `stride` bytes from one to the next, as one array.
pub(super) fn rows(buffer: &Buffer, map: &Map, count: usize, stride: isize) -> Result<NdBuffer> {
    let element_bytes = map.tail.dtype.size_bytes();
    let mut strides = vec![stride];
    for axis in 0..map.shape.len() {
        strides.push((map.shape[axis + 1..].iter().product::<usize>() * element_bytes) as isize);
    }
    let shape = [&[count][..], &map.shape].concat();
    let layout = Layout::strided(&shape, &strides, 0, element_bytes, buffer.size_bytes())?;
    Ok(NdBuffer::from_parts(buffer.clone(), map.tail.dtype, layout)?)
}

impl Launch {
    fn run(&mut self, statuses: &Buffer, stream: &Stream) -> Result<()> {
        match self {
            Launch::Decode(batch) => batch.run(stream)?,
            Launch::Check { checksum, data, spans } => {
                checksum::verify_on(*checksum, false, data, (data, statuses), spans, stream)?;
            }
            Launch::Header { expected, data, spans } => {
                checksum::expect_byte_on(*expected, data, statuses, spans, stream)?;
            }
            Launch::Unshuffle { src, dst, spans, unit_bytes } => {
                shuffle::unshuffle(Shuffle::Bytes, src, dst, spans, *unit_bytes, stream)?;
            }
            Launch::Map { src, transfer, dst } => transfer::scatter_on(src, transfer, dst, stream)?,
            Launch::Unpack { fields, len, src, dst, spans } => {
                bits::unpack_on(fields, (src, dst), spans, *len, stream)?;
            }
            Launch::Convert { conversion, len, src, dst, spans } => {
                convert::convert_on(conversion, (src, dst), statuses, spans, *len, stream)?;
            }
            Launch::Sum { dtype, src, dst, chunks } => delta::accumulate_on(*dtype, src, dst, chunks, stream)?,
        }
        Ok(())
    }
}
