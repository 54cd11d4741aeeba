//! Plans a device's decoding steps for a batch of chunks: the memory between steps, and the kernel launches of each
//! step.

use std::ops::Range;

use cuzarr_device::internal::bits;
use cuzarr_device::internal::bits::Fields;
use cuzarr_device::internal::checksum;
use cuzarr_device::internal::checksum::Checksum;
use cuzarr_device::internal::convert;
use cuzarr_device::internal::convert::Conversion;
use cuzarr_device::internal::shuffle;
use cuzarr_device::internal::shuffle::Shuffle;
use cuzarr_device::internal::{delta, pool, transfer};
use cuzarr_device::{Buffer, DType, Event, Layout, NdBuffer, Stream, Tail, Transfer, TransferBox};

use super::{Map, Native, Source, Step};
use crate::codec::batch::{self, Batch, HostCopy, STATUS_BYTES, ScratchLimit, result_of};
use crate::codec::damage::expect_encoded_size;
use crate::codec::device::{FrameDecoder, Headers};
use crate::codec::step::{CHECKSUM_BYTES, Location};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Alignment in bytes of each chunk in the device memory between two decoding steps.
pub(super) const ALIGNMENT_BYTES: usize = 256;

/// Where the chunks of a batch lie in device memory: ranges of one buffer.
pub(crate) struct Chunks {
    pub(crate) buffer: Buffer,
    pub(crate) ranges: Vec<Range<usize>>,
}

/// The kernel launch of one decoding step, for all chunks of a batch or for those of one size.
enum NativeLaunch {
    /// Decodes frames; the numbers say which chunk each frame belongs to.
    Decode(Batch, Vec<usize>),
    Check {
        checksum: Checksum,
        data: Buffer,
        spans: Vec<checksum::Span>,
    },
    Header {
        expected: u8,
        data: Buffer,
        spans: Vec<checksum::Span>,
    },
    Unshuffle {
        src: Buffer,
        dst: Buffer,
        spans: Vec<shuffle::Span>,
        unit_bytes: usize,
    },
    Map {
        src: Buffer,
        transfer: Box<Transfer>,
        dst: Box<NdBuffer>,
    },
    Sum {
        dtype: DType,
        src: Buffer,
        dst: Buffer,
        chunks: Vec<delta::Chunk>,
    },
    Unpack {
        fields: Fields,
        len: usize,
        src: Buffer,
        dst: Buffer,
        spans: Vec<bits::Span>,
    },
    Convert {
        conversion: Conversion,
        len: usize,
        src: Buffer,
        dst: Buffer,
        spans: Vec<convert::Span>,
    },
}

/// A batch of stored chunks that a device turns into packed chunks, step by step.
pub(crate) struct NativeBatch {
    launches: Vec<StepLaunches>,
    /// For each kind of chunks in the batch, the numbers of its chunks; chunks of a kind have the same size in each
    /// step.
    kinds: Vec<Vec<usize>>,
    /// The statuses by which steps report chunks that they refuse: a number for each reporting step and each chunk.
    statuses: Option<Buffer>,
    memory_bytes: usize,
    chunks: Chunks,
    /// The caller's memory, if it gave any, in which the next step that needs memory puts its results.
    target: Option<Chunks>,
    /// The CUDA event that tells when the last run has ended.
    done: Option<Event>,
}

/// The kernel launches of one decoding step, and the name of the codec that the step decodes.
struct StepLaunches {
    launches: Vec<NativeLaunch>,
    /// Whether the step may refuse chunks, such as for a wrong checksum, and so writes a status for each chunk.
    looks: bool,
    codec: String,
}

/// The error for a batch whose chunks are decoded by different steps, which one set of launches cannot do.
fn mixed() -> Error {
    Error::new(ErrorKind::Unsupported, "chunks of one batch take different steps on the device")
}

impl Chunks {
    fn is_at(&self, buffer: &Buffer) -> bool {
        self.buffer.address() == buffer.address() && self.buffer.size_bytes() == buffer.size_bytes()
    }
}

impl NativeBatch {
    /// Plans all decoding steps for a batch with chunks of several kinds, which differ in size. Kinds take the same
    /// steps, with other sizes. `kind_of` holds the kind of each chunk; a missing entry means kind 0. `target` is the
    /// memory for the last step's results; without it, the batch allocates some.
    pub(super) fn lay_out(
        natives: &[&Native],
        kind_of: &[usize],
        source: Source<'_>,
        mut target: Option<Chunks>,
        limit: ScratchLimit,
        stream: &Stream,
    ) -> Result<NativeBatch> {
        let Source { buffer, ranges, host } = source;
        let mut kinds = vec![Vec::with_capacity(ranges.len() / natives.len().max(1)); natives.len()];
        for chunk in 0..ranges.len() {
            let kind = kind_of.get(chunk).copied().unwrap_or(0);
            kinds.get_mut(kind).ok_or_else(mixed)?.push(chunk);
        }
        let chunks = Chunks { buffer: buffer.clone(), ranges };
        let (launches, memory_bytes) = (Vec::new(), 0);
        let mut batch = NativeBatch { launches, kinds, statuses: None, memory_bytes, chunks, target: None, done: None };
        let (count, mut looks) = (natives.first().map_or(0, |native| native.steps.len()), 0);
        for index in 0..count {
            if index + 1 == count {
                batch.target = target.take();
            }
            let steps = natives.iter().map(|native| native.steps.get(index).ok_or_else(mixed));
            let steps: Vec<&(Step, String)> = steps.collect::<Result<_>>()?;
            let codec = &steps[0].1;
            let steps: Vec<&Step> = steps.iter().map(|(step, _)| step).collect();
            let host = if batch.chunks.is_at(buffer) { host } else { HostCopy::default() };
            batch.add(&steps, codec, host, limit, &mut looks, stream).at(|| format!("codec '{codec}'"))?;
        }
        if looks > 0 {
            let size_bytes = looks * batch.chunks.ranges.len() * STATUS_BYTES;
            batch.memory_bytes += size_bytes;
            batch.statuses = Some(pool::allocate(size_bytes.max(1), stream)?);
        }
        Ok(batch)
    }

    /// Plans the kernel launches of one decoding step, whose sizes differ between kinds of chunks.
    fn add(
        &mut self,
        steps: &[&Step],
        codec: &str,
        host: HostCopy<'_>,
        limit: ScratchLimit,
        looks: &mut usize,
        stream: &Stream,
    ) -> Result<()> {
        let first = *looks;
        let launches = match steps[0] {
            Step::Check { checksum, location } => {
                let spans = self.look(looks, CHECKSUM_BYTES, *location)?;
                vec![NativeLaunch::Check { checksum: *checksum, data: self.chunks.buffer.clone(), spans }]
            }
            Step::Header { location, .. } => {
                let spans = self.look(looks, 1, *location)?;
                self.each_kind(steps, |step, chunks| match step {
                    Step::Header { expected, .. } => {
                        let spans = chunks.iter().map(|&chunk| spans[chunk].clone()).collect();
                        Ok(NativeLaunch::Header { expected: *expected, data: self.chunks.buffer.clone(), spans })
                    }
                    _ => Err(mixed()),
                })?
            }
            Step::Decode { .. } => self.add_decoders(steps, host, limit, stream)?,
            Step::Unshuffle { unit_bytes } => {
                let (src, from) = self.move_alike(stream)?;
                let spans = from.iter().zip(&self.chunks.ranges).map(|(src, dst)| shuffle::Span {
                    src_offset_bytes: src.start,
                    dst_offset_bytes: dst.start,
                    size_bytes: src.len(),
                });
                let (spans, dst) = (spans.collect(), self.chunks.buffer.clone());
                vec![NativeLaunch::Unshuffle { src, dst, spans, unit_bytes: *unit_bytes }]
            }
            Step::Sum(dtype) => {
                self.align(*dtype, delta::ALIGNMENT_BYTES, looks, stream)?;
                let (src, from) = self.move_alike(stream)?;
                let chunks = from.iter().zip(&self.chunks.ranges).map(|(src, dst)| delta::Chunk {
                    src_offset_bytes: src.start,
                    dst_offset_bytes: dst.start,
                    size_bytes: src.len(),
                });
                let (chunks, dst) = (chunks.collect(), self.chunks.buffer.clone());
                vec![NativeLaunch::Sum { dtype: *dtype, src, dst, chunks }]
            }
            Step::Unpack { .. } => self.add_unpacking(steps, stream)?,
            Step::Convert { conversion, .. } => {
                self.align(conversion.from, conversion.from.size_bytes(), looks, stream)?;
                self.add_conversion(steps, looks, stream)?
            }
            Step::Map(_) => self.add_map(steps, stream)?,
        };
        self.launches.push(StepLaunches { launches, looks: *looks > first, codec: codec.to_string() });
        Ok(())
    }

    /// Makes a kernel launch for each kind of chunks in the batch, from the decoding step for that kind.
    fn each_kind(
        &self,
        steps: &[&Step],
        mut launch: impl FnMut(&Step, &[usize]) -> Result<NativeLaunch>,
    ) -> Result<Vec<NativeLaunch>> {
        let kinds = self.kinds.iter().zip(steps).filter(|(chunks, _)| !chunks.is_empty());
        kinds.map(|(chunks, step)| launch(step, chunks)).collect()
    }

    /// Allocates memory for the results of a step that keeps the sizes of chunks. Returns the memory and the places
    /// that the chunks had before.
    fn move_alike(&mut self, stream: &Stream) -> Result<(Buffer, Vec<Range<usize>>)> {
        let size = |chunks: &Vec<usize>| chunks.first().map_or(0, |&first| self.chunks.ranges[first].len());
        let sizes: Vec<usize> = self.kinds.iter().map(size).collect();
        self.allocate(&sizes, stream)
    }

    /// Plans the launches of a step that decodes one frame for each chunk of the batch. A decoder that takes all of an
    /// array's frames decodes all kinds together; decoders that were made for one shape of chunks take a launch for
    /// each kind.
    fn add_decoders(
        &mut self,
        steps: &[&Step],
        host: HostCopy<'_>,
        limit: ScratchLimit,
        stream: &Stream,
    ) -> Result<Vec<NativeLaunch>> {
        let decoder = |step: &Step| match step {
            Step::Decode { decoder, decoded_bytes } => Ok((decoder.clone(), *decoded_bytes)),
            _ => Err(mixed()),
        };
        let decoders: Vec<(FrameDecoder, usize)> = steps.iter().map(|step| decoder(step)).collect::<Result<_>>()?;
        let sizes: Vec<usize> = decoders.iter().map(|(_, size_bytes)| *size_bytes).collect();
        let (src, from) = self.allocate(&sizes, stream)?;
        let prepare = |decoder: &FrameDecoder, chunks: Vec<usize>, headers: &[Headers]| -> Result<NativeLaunch> {
            let unit =
                |&chunk: &usize| batch::Unit { src: from[chunk].clone(), dst: self.chunks.ranges[chunk].clone() };
            let units: Vec<batch::Unit> = chunks.iter().map(unit).collect();
            let source = batch::Source { buffer: &src, host: HostCopy { headers, ..host } };
            let batch = Batch::prepare_read(decoder.clone(), source, &self.chunks.buffer, &units, limit)?;
            Ok(NativeLaunch::Decode(batch, chunks))
        };
        let is_one = decoders.len() == 1 || decoders.iter().all(|(decoder, _)| matches!(decoder, FrameDecoder::Any(_)));
        let launches = match is_one {
            true => vec![prepare(&decoders[0].0, (0..from.len()).collect(), host.headers)?],
            false => {
                let kinds = self.kinds.iter().zip(&decoders).filter(|(chunks, _)| !chunks.is_empty());
                kinds.map(|(chunks, (decoder, _))| prepare(decoder, chunks.clone(), &[])).collect::<Result<_>>()?
            }
        };
        let scratch = launches.iter().map(|launch| match launch {
            NativeLaunch::Decode(batch, _) => batch.scratch_bytes(),
            _ => 0,
        });
        self.memory_bytes += scratch.sum::<usize>();
        Ok(launches)
    }

    fn add_unpacking(&mut self, steps: &[&Step], stream: &Stream) -> Result<Vec<NativeLaunch>> {
        let unpacking = |step: &Step| match step {
            Step::Unpack { fields, len } => Ok((*fields, *len)),
            _ => Err(mixed()),
        };
        let kinds: Vec<(Fields, usize)> = steps.iter().map(|step| unpacking(step)).collect::<Result<_>>()?;
        for (chunks, (fields, len)) in self.kinds.iter().zip(&kinds) {
            for &chunk in chunks {
                expect_encoded_size(self.chunks.ranges[chunk].len(), fields.packed_bytes(*len))?;
            }
        }
        let sizes: Vec<usize> = kinds.iter().map(|(fields, len)| len * fields.elem_bytes).collect();
        let (src, from) = self.allocate(&sizes, stream)?;
        self.each_kind(steps, |step, chunks| {
            let (fields, len) = unpacking(step)?;
            let spans = chunks.iter().map(|&chunk| bits::Span {
                packed_offset_bytes: from[chunk].start,
                elems_offset_bytes: self.chunks.ranges[chunk].start,
            });
            let (src, dst) = (src.clone(), self.chunks.buffer.clone());
            Ok(NativeLaunch::Unpack { fields, len, src, dst, spans: spans.collect() })
        })
    }

    fn add_map(&mut self, steps: &[&Step], stream: &Stream) -> Result<Vec<NativeLaunch>> {
        let map_of = |step: &Step| if let Step::Map(map) = step { Ok(map.clone()) } else { Err(mixed()) };
        let maps: Vec<Map> = steps.iter().map(|step| map_of(step)).collect::<Result<_>>()?;
        let sizes: Vec<usize> = maps.iter().map(Map::decoded_bytes).collect();
        let (src, from) = self.allocate(&sizes, stream)?;
        self.each_kind(steps, |step, chunks| {
            let map = map_of(step)?;
            // The chunks of a kind lie one after the other.
            let stride = map.decoded_bytes().next_multiple_of(ALIGNMENT_BYTES);
            let start = self.chunks.ranges[chunks[0]].start;
            let memory = self.chunks.buffer.slice(start..start + stride * chunks.len())?;
            let dst = rows(&memory, &map, chunks.len(), stride as isize)?;
            let boxes = chunks.iter().enumerate().map(|(index, &chunk)| TransferBox {
                packed_offset_bytes: from[chunk].start,
                packed_size_bytes: from[chunk].len(),
                packed_first_elem: 0,
                start: [&[index][..], &vec![0; map.shape.len()]].concat(),
                extent: [&[1][..], &map.shape].concat(),
            });
            let packed_strides = [&[0][..], &map.packed_strides].concat();
            let transfer = Transfer { tail: map.tail.clone(), packed_strides, lists: None, boxes: boxes.collect() };
            Ok(NativeLaunch::Map { src: src.clone(), transfer: Box::new(transfer), dst: Box::new(dst) })
        })
    }

    /// Copies chunks to offsets that are multiples of `alignment_bytes`, unless they already begin there.
    fn align(&mut self, dtype: DType, alignment_bytes: usize, looks: &mut usize, stream: &Stream) -> Result<()> {
        let (base, ranges) = (self.chunks.buffer.address(), &self.chunks.ranges);
        if ranges.iter().all(|range| (base + range.start).is_multiple_of(alignment_bytes)) {
            return Ok(());
        }
        let len = |chunks: &Vec<usize>| chunks.first().map_or(0, |&first| ranges[first].len()) / dtype.size_bytes();
        let aligned = |chunks| Step::Map(Map::flat(Tail::plain(dtype), len(chunks)));
        let steps: Vec<Step> = self.kinds.iter().map(aligned).collect();
        let steps: Vec<&Step> = steps.iter().collect();
        self.add(&steps, "", HostCopy::default(), usize::MAX.into(), looks, stream)
    }

    fn add_conversion(&mut self, steps: &[&Step], looks: &mut usize, stream: &Stream) -> Result<Vec<NativeLaunch>> {
        let conversion_of = |step: &Step| match step {
            Step::Convert { conversion, len } => Ok((conversion.clone(), *len)),
            _ => Err(mixed()),
        };
        let kinds: Vec<(Conversion, usize)> = steps.iter().map(|step| conversion_of(step)).collect::<Result<_>>()?;
        for (chunks, (conversion, len)) in self.kinds.iter().zip(&kinds) {
            for &chunk in chunks {
                expect_encoded_size(self.chunks.ranges[chunk].len(), len * conversion.from.size_bytes())?;
            }
        }
        let sizes: Vec<usize> = kinds.iter().map(|(conversion, len)| len * conversion.to.size_bytes()).collect();
        let (src, from) = self.allocate(&sizes, stream)?;
        let first = *looks * from.len();
        *looks += 1;
        self.each_kind(steps, |step, chunks| {
            let (conversion, len) = conversion_of(step)?;
            let too_many = |_| Error::new(ErrorKind::InvalidArgument, "too many chunks for one batch");
            let span = |&chunk: &usize| {
                let (src_offset_bytes, dst_offset_bytes) = (from[chunk].start, self.chunks.ranges[chunk].start);
                let status = u32::try_from(first + chunk).map_err(too_many)?;
                Ok(convert::Span { src_offset_bytes, dst_offset_bytes, status })
            };
            let spans = chunks.iter().map(span).collect::<Result<_>>()?;
            let (src, dst) = (src.clone(), self.chunks.buffer.clone());
            Ok(NativeLaunch::Convert { conversion, len, src, dst, spans })
        })
    }

    /// Cuts a checksum or another header off every chunk, for a step that checks it. Returns for each chunk its data,
    /// the place of the header in the buffer, and the header's place in the chunk.
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

    /// Allocates memory for the results of the next step, or takes the caller's memory if that is still unused. `sizes`
    /// holds the chunk size of each kind; the chunks of a kind lie one after the other. Returns the memory and the
    /// places that the chunks had before.
    fn allocate(&mut self, sizes: &[usize], stream: &Stream) -> Result<(Buffer, Vec<Range<usize>>)> {
        if let Some(target) = self.target.take() {
            let Chunks { buffer, ranges } = std::mem::replace(&mut self.chunks, target);
            return Ok((buffer, ranges));
        }
        let (mut total_bytes, mut ranges) = (0usize, vec![0..0; self.chunks.ranges.len()]);
        for (chunks, &size_bytes) in self.kinds.iter().zip(sizes) {
            let stride = size_bytes.next_multiple_of(ALIGNMENT_BYTES);
            let end = stride.checked_mul(chunks.len()).and_then(|bytes| bytes.checked_add(total_bytes));
            let too_large = || {
                let message = format!("{} chunks of {size_bytes} bytes do not fit into memory", chunks.len());
                Error::new(ErrorKind::OutOfMemory, message)
            };
            let end = end.ok_or_else(too_large)?;
            for (index, &chunk) in chunks.iter().enumerate() {
                let start = total_bytes + index * stride;
                ranges[chunk] = start..start + size_bytes;
            }
            total_bytes = end;
        }
        self.memory_bytes += total_bytes;
        let chunks = Chunks { buffer: pool::allocate(total_bytes.max(1), stream)?, ranges };
        let Chunks { buffer, ranges } = std::mem::replace(&mut self.chunks, chunks);
        Ok((buffer, ranges))
    }

    /// Device memory, in bytes, that decoders take while the batch runs. The memory between the steps is not included.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let launches = self.launches.iter().flat_map(|step| &step.launches);
        let decoders = launches.filter_map(|launch| match launch {
            NativeLaunch::Decode(batch, _) => Some(batch.scratch_bytes()),
            _ => None,
        });
        decoders.max().unwrap_or(0)
    }

    /// Device memory, in bytes, that all steps take together, packed chunks included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The device memory in which the last step puts the packed chunks, and the offset at which each chunk begins. They
    /// are there once the batch has run.
    pub(crate) fn packed(&self) -> (&Buffer, impl ExactSizeIterator<Item = usize>) {
        (&self.chunks.buffer, self.chunks.ranges.iter().map(|range| range.start))
    }

    /// Launches all decoding steps of the batch on `stream`, without waiting for them. A damaged chunk leaves arbitrary
    /// packed bytes; other chunks are not affected.
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
        // Only steps that check something use the statuses. If there are such steps, the statuses have memory.
        let statuses = self.statuses.as_ref().unwrap_or(&self.chunks.buffer);
        for StepLaunches { launches, codec, .. } in &mut self.launches {
            for launch in launches {
                launch.run(statuses, stream).at(|| format!("codec '{codec}'"))?;
            }
        }
        self.done = Some(stream.record()?);
        Ok(())
    }

    /// Waits for the batch's last run, and returns for each chunk whether it was decoded. An error comes from the first
    /// codec that refused the chunk; its name is in the trail.
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
        // The copy does not go onto the stream of the run, which may have other work by now.
        let statuses = self.statuses.as_ref().map_or(Ok(Vec::new()), Buffer::to_vec)?;
        let mut words = statuses.as_chunks::<STATUS_BYTES>().0.chunks(count.max(1));
        for StepLaunches { launches, looks, codec } in &mut self.launches {
            let mut found: Vec<(usize, Result<()>)> = Vec::new();
            if *looks {
                let words = words.next().unwrap_or_default().iter();
                let words = words.map(|word| result_of(u64::from_ne_bytes(*word), &[]));
                found.extend(words.enumerate());
            }
            for launch in launches {
                if let NativeLaunch::Decode(batch, chunks) = launch {
                    found.extend(chunks.iter().copied().zip(batch.check()?));
                }
            }
            for (chunk, found) in found {
                if results[chunk].is_ok() {
                    results[chunk] = found.at(|| format!("codec '{codec}'"));
                }
            }
        }
        Ok(results)
    }
}

/// Views chunks of `map.shape` elements, `stride` bytes from one to the next, as one array with a first dimension for
/// the chunks.
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

impl NativeLaunch {
    fn run(&mut self, statuses: &Buffer, stream: &Stream) -> Result<()> {
        match self {
            NativeLaunch::Decode(batch, _) => batch.run(stream)?,
            NativeLaunch::Check { checksum, data, spans } => {
                checksum::verify_on(*checksum, false, data, data, statuses, spans, stream)?;
            }
            NativeLaunch::Header { expected, data, spans } => {
                checksum::expect_byte_on(*expected, data, statuses, spans, stream)?;
            }
            NativeLaunch::Unshuffle { src, dst, spans, unit_bytes } => {
                shuffle::unshuffle(Shuffle::Bytes, src, dst, spans, *unit_bytes, stream)?;
            }
            NativeLaunch::Map { src, transfer, dst } => transfer::scatter_on(src, transfer, dst, stream)?,
            NativeLaunch::Unpack { fields, len, src, dst, spans } => {
                bits::unpack_on(fields, src, dst, spans, *len, stream)?;
            }
            NativeLaunch::Convert { conversion, len, src, dst, spans } => {
                convert::convert_on(conversion, src, dst, statuses, spans, *len, stream)?;
            }
            NativeLaunch::Sum { dtype, src, dst, chunks } => delta::accumulate_on(*dtype, src, dst, chunks, stream)?,
        }
        Ok(())
    }
}
