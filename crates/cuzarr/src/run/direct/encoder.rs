//! Encoders for direct use: they encode the caller's chunks into frames, without an array, a store or a plan.
//!
//! ```
//! use cuzarr::run::Encoder;
//! use cuzarr_device::{DType, Device, NdBuffer, Order, Stream};
//!
//! let encoder = Encoder::new(&serde_json::json!([{"name": "crc32c"}]), Device::Cpu)?;
//! let chunk = NdBuffer::from_host(Device::Cpu, DType::UINT16, &[2], Order::C, &[3, 0, 4, 0])?;
//! let mut batch = encoder.prepare(vec![chunk], None)?;
//! batch.run(&Stream::new(Device::Cpu)?)?;
//! let frames = batch.frames()?;
//! assert_eq!(frames[0].to_vec()?, [3, 0, 4, 0, 0x22, 0xa3, 0xcf, 0x64]); // two numbers and their CRC-32C
//! # Ok::<(), cuzarr::Error>(())
//! ```

use cuzarr_device::internal::pool;
use cuzarr_device::internal::transfer::{copy_pieces_on, gather_host};
use cuzarr_device::{Buffer, Device, Event, NdBuffer, Order, Stream};
use serde_json::Value;

use super::codecs::Codecs;
use super::{for_each_item, place};
use crate::cancellation::CancellationToken;
use crate::codec::batch::EncodeBatch;
use crate::codec::device::ChunkRow;
use crate::codec::native::{NativeEncoder, NativeEncoding, Strided};
use crate::codec::{CHECKSUM_BYTES, Chain, Location, Program};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{encoding_places, refuse_fallen};

/// Alignment of chunks or frames that lie one after the other in one buffer.
const ALIGNMENT_BYTES: usize = 256;
/// Alignment that chunks need so that kernels can read them without a copy: the widest access of a kernel.
const CHUNK_ALIGNMENT_BYTES: usize = 16;
/// The reason that is reported for encoding on the host when the chunks lie in host memory.
const ON_HOST: &str = "the chunks are in host memory";

/// Encodes nd-buffers as chunks with one codec, or with a codec chain; no array is needed.
#[derive(Clone, Debug)]
pub struct Encoder {
    codecs: Codecs,
    device: Device,
    strict: bool,
}

/// A batch of chunks that is ready to be encoded, any number of times.
pub struct EncoderBatch {
    device: Device,
    chunks: Vec<NdBuffer>,
    groups: Vec<Group>,
    state: State,
}

/// The chunks of an encoder's batch that have one shape and type.
struct Group {
    program: Program,
    numbers: Vec<usize>,
    /// The kernels that encode these chunks; `None` if host threads encode them.
    kernels: Option<EncoderKernels>,
    /// Why the host must run a codec of these chunks: the reason for the first such codec; `None` if the device runs
    /// all.
    reason: Option<String>,
}

/// The kernels that encode the chunks of one shape and type, and the memory from which they read the chunks.
struct EncoderKernels {
    native: NativeEncoder,
    /// The memory of the chunks themselves, if they lie there one after the other so that kernels need no copy.
    in_place: Option<Buffer>,
    /// Distance from the start of one chunk to the start of the next in the memory that kernels read, in bytes.
    stride_bytes: usize,
    /// Number of chunks that kernels encode at a time.
    together: usize,
}

enum State {
    Unrun,
    Running { parts: Vec<Part>, by_host: Vec<(usize, Result<Buffer>)>, done: Event },
    Done { frames: Vec<Result<Buffer>>, is_checked: bool },
}

/// Chunks of one shape and type that kernels encode at the same time: a part of a group.
struct Part {
    group: usize,
    numbers: Vec<usize>,
    encoding: NativeEncoding,
}

impl Encoder {
    /// Makes an encoder for `codecs`, in the form of Zarr v3 metadata: one codec, or a list in the order of encoding.
    /// The array→bytes codec may be left out.
    ///
    /// # Errors
    /// `MetadataInvalid` for JSON that is not a codec. Names and configurations are checked when chunks are prepared.
    pub fn new(codecs: &Value, device: Device) -> Result<Encoder> {
        Ok(Encoder { codecs: Codecs::named(codecs)?, device, strict: false })
    }

    /// Makes an encoder for the chunks of an array of format 2 or 3. Chunks have the array's chunk shape and type.
    pub fn of_chunks(chain: &Chain, device: Device) -> Encoder {
        Encoder { codecs: Codecs::Of(Box::new(chain.clone())), device, strict: false }
    }

    /// Sets whether [`Encoder::prepare`] refuses codecs that the host would run although the chunks are on a device.
    #[must_use]
    pub fn strict(self, strict: bool) -> Encoder {
        Encoder { strict, ..self }
    }

    /// Prepares the encoding of chunks of any shapes and types, on the encoder's device. They may still change until a
    /// run, which reads them in stream order. Kernels use at most about `scratch_limit_bytes` of device memory beside
    /// the frames: if it is short, chunks are encoded in several parts. A part has at least one chunk, even if that
    /// chunk needs more.
    ///
    /// # Errors
    /// `MemorySpace` for chunks on another device, `FallbackRefused` under `strict`; errors of the codecs.
    pub fn prepare(&self, chunks: Vec<NdBuffer>, scratch_limit_bytes: Option<usize>) -> Result<EncoderBatch> {
        if let Some((number, chunk)) = chunks.iter().enumerate().find(|(_, chunk)| chunk.device() != self.device) {
            let message = format!("chunk {number} is on {}, the encoder on {}", chunk.device(), self.device);
            let hint = format!("move chunks to {}, or make an encoder for their device", self.device);
            return Err(Error::new(ErrorKind::MemorySpace, message).with_hint(hint));
        }
        let mut groups = Vec::new();
        for numbers in place::kinds(&chunks) {
            groups.push(self.group(&chunks, numbers, scratch_limit_bytes.unwrap_or(usize::MAX))?);
        }
        Ok(EncoderBatch { device: self.device, chunks, groups, state: State::Unrun })
    }

    fn group(&self, chunks: &[NdBuffer], numbers: Vec<usize>, limit_bytes: usize) -> Result<Group> {
        let like = &chunks[numbers[0]];
        let chain = self.codecs.chain(like.shape(), like.dtype(), "chunk")?;
        let program = chain.bind(self.device)?;
        let native = NativeEncoder::of(&program).ok();
        let left = native.as_ref().and_then(|native| native.encoder.host_reason(self.device));
        if self.strict {
            refuse_fallen(encoding_places(&chain, self.device, left))?;
        }
        let native = native.filter(|_| left.is_none() && self.device != Device::Cpu);
        let reason = match self.device {
            Device::Cpu => Some(ON_HOST.to_string()),
            device => encoding_places(&chain, device, left).into_iter().find_map(|placement| placement.via_host),
        };
        let kernels =
            native.map(|native| EncoderKernels::new(native, &program, chunks, &numbers, limit_bytes)).transpose()?;
        Ok(Group { program, numbers, kernels, reason })
    }
}

impl EncoderKernels {
    fn new(
        native: NativeEncoder,
        program: &Program,
        chunks: &[NdBuffer],
        numbers: &[usize],
        limit_bytes: usize,
    ) -> Result<EncoderKernels> {
        let in_place = in_place(program, chunks, numbers)?;
        let packed_bytes = program.packed_size_bytes();
        let stride_bytes =
            if in_place.is_some() { packed_bytes } else { packed_bytes.next_multiple_of(ALIGNMENT_BYTES) };
        let mut kernels = EncoderKernels { native, in_place, stride_bytes, together: numbers.len() };
        let device = chunks[numbers[0]].device();
        while kernels.together > 1 && kernels.scratch_bytes(device) > limit_bytes {
            kernels.together = kernels.together.div_ceil(2);
        }
        Ok(kernels)
    }

    /// Size of the device memory for encoding the chunks that kernels take at a time, without the frames that they
    /// make.
    fn scratch_bytes(&self, device: Device) -> usize {
        let count = self.together;
        let gathered = if self.in_place.is_some() { 0 } else { self.stride_bytes };
        let NativeEncoder { encoder, undo, .. } = &self.native;
        let stride_bytes = encoder.chunk_bytes().next_multiple_of(ALIGNMENT_BYTES);
        let encoding = EncodeBatch::memory_bytes(&**encoder, &ChunkRow { device, count, stride_bytes });
        count.saturating_mul(gathered + undo.chunk_bytes()).saturating_add(encoding) - self.output_bytes(count)
    }

    fn output_bytes(&self, count: usize) -> usize {
        self.native.encoder.output_bound_bytes(count)
    }
}

/// Returns the memory of several chunks as one buffer, if they lie there one after the other as kernels read them.
fn in_place(program: &Program, chunks: &[NdBuffer], numbers: &[usize]) -> Result<Option<Buffer>> {
    let size_bytes = program.packed_size_bytes();
    let chunks = || numbers.iter().map(|&number| &chunks[number]);
    if !place::is_plain(program) || !chunks().all(|chunk| chunk.is_contiguous(Order::C)) {
        return Ok(None);
    }
    let chunks = chunks().map(NdBuffer::as_buffer).collect::<cuzarr_device::Result<Vec<_>>>()?;
    let is_aligned = size_bytes.is_multiple_of(CHUNK_ALIGNMENT_BYTES) || chunks.len() == 1;
    let joined = Buffer::joined(&chunks).filter(|(buffer, offsets)| {
        let in_order = offsets.iter().enumerate().all(|(number, &at)| at == number * size_bytes);
        is_aligned && in_order && buffer.address().is_multiple_of(CHUNK_ALIGNMENT_BYTES)
    });
    Ok(joined.map(|(buffer, _)| buffer))
}

impl EncoderBatch {
    /// The number of chunks in the batch.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the batch has no chunks.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Maximum device memory that a run uses beside chunks and frames.
    pub fn scratch_bytes(&self) -> usize {
        let scratch = |group: &Group| group.kernels.as_ref().map_or(0, |kernels| kernels.scratch_bytes(self.device));
        self.groups.iter().map(scratch).max().unwrap_or(0)
    }

    /// Why the host must run a codec for chunks of this batch; `None` if the device runs all codecs of all chunks.
    pub fn via_host(&self) -> Option<&str> {
        self.groups.iter().find_map(|group| group.reason.as_deref())
    }

    /// Encodes all chunks of the batch. Work of the device is enqueued on `stream`. If host threads encode, this first
    /// waits for the stream, and returns when they are done. Frames of the previous run stay unchanged.
    ///
    /// # Errors
    /// `MemorySpace` for a stream of another device, `OutOfMemory`, `KernelCompileFailed`, `DeviceFailed`.
    /// [`EncoderBatch::check`] reports chunks that cannot be encoded.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        self.run_under(stream, &CancellationToken::new())
    }

    /// Like [`EncoderBatch::run`], but can be cancelled: it then ends before the host encodes its next chunk.
    ///
    /// # Errors
    /// Those of [`EncoderBatch::run`]; `Cancelled`, after which there are no frames.
    pub fn run_under(&mut self, stream: &Stream, cancellation: &CancellationToken) -> Result<()> {
        cancellation.check()?;
        if stream.device() != self.device {
            let message = format!("a batch on {} cannot run on a stream of {}", self.device, stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        self.state = State::Unrun;
        let mut parts = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            let Some(kernels) = &group.kernels else { continue };
            for (part, numbers) in group.numbers.chunks(kernels.together).enumerate() {
                parts.push(self.begin(index, kernels, part * kernels.together, numbers, stream)?);
            }
        }
        let by_host = self.encode_on_host(stream, cancellation)?;
        self.state = State::Running { parts, by_host, done: stream.record()? };
        Ok(())
    }

    /// Enqueues the encoding of the chunks `numbers` of the batch; `first` is the position of the first of them in
    /// group `index`.
    fn begin(
        &self,
        index: usize,
        kernels: &EncoderKernels,
        first: usize,
        numbers: &[usize],
        stream: &Stream,
    ) -> Result<Part> {
        let (program, stride_bytes) = (&self.groups[index].program, kernels.stride_bytes);
        let (count, size_bytes) = (numbers.len(), program.packed_size_bytes());
        let packed = match &kernels.in_place {
            Some(all) => all.slice(first * stride_bytes..(first + count) * stride_bytes)?,
            None => {
                let packed = pool::allocate(count * stride_bytes, stream)?;
                let chunks = numbers.iter().enumerate().map(|(at, &number)| (&self.chunks[number], at * stride_bytes));
                place::gather(program, &chunks.collect::<Vec<_>>(), &packed, stream)?;
                packed
            }
        };
        let packed = Strided { buffer: packed, stride_bytes, size_bytes, count };
        let encoding = kernels.native.begin(&packed, vec![size_bytes; count], None, stream)?;
        Ok(Part { group: index, numbers: numbers.to_vec(), encoding })
    }

    /// Encodes the chunks that are left to the host, with as many threads as the machine has.
    fn encode_on_host(
        &self,
        stream: &Stream,
        cancellation: &CancellationToken,
    ) -> Result<Vec<(usize, Result<Buffer>)>> {
        let host = self.groups.iter().filter(|group| group.kernels.is_none());
        let work = host.flat_map(|group| group.numbers.iter().map(move |&number| (&group.program, number)));
        let work: Vec<(&Program, usize)> = work.collect();
        if work.is_empty() {
            return Ok(Vec::new());
        }
        // Work on the stream may still write the chunks.
        stream.synchronize()?;
        for_each_item(work, cancellation, |(program, number)| (number, self.encode_one(program, &self.chunks[number])))
    }

    fn encode_one(&self, program: &Program, chunk: &NdBuffer) -> Result<Buffer> {
        let mut packed = vec![0; program.packed_size_bytes()];
        let transfer = place::transfer(program, chunk, 0);
        if chunk.device().is_host_accessible() {
            gather_host(chunk, &transfer, &mut packed)?;
        } else {
            let elements = chunk.to_host_bytes(Order::C)?;
            let chunk = NdBuffer::from_host(Device::Cpu, chunk.dtype(), chunk.shape(), Order::C, &elements)?;
            gather_host(&chunk, &transfer, &mut packed)?;
        }
        self.hand_over(program.encode(&packed)?)
    }

    /// Moves a frame that the host made to the memory of the encoder's device.
    fn hand_over(&self, frame: Vec<u8>) -> Result<Buffer> {
        match self.device {
            Device::Cpu => Ok(Buffer::from_vec(frame)),
            device => Ok(Buffer::from_bytes(device, &frame)?),
        }
    }

    /// Waits for the last run, and returns for each chunk whether it was encoded. Errors have the codec and the chunk's number
    /// in their trail.
    ///
    /// # Errors
    /// `InvalidArgument` when nothing ran since the last check; `DeviceFailed`.
    pub fn check(&mut self) -> Result<Vec<Result<()>>> {
        self.finish()?;
        let is_empty = self.is_empty();
        match &mut self.state {
            State::Done { frames, is_checked } if !*is_checked => {
                *is_checked = true;
                Ok(frames.iter().enumerate().map(|(number, frame)| outcome(number, frame).map(|_| ())).collect())
            }
            _ if is_empty => Ok(Vec::new()),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "the batch has not run since the last check")),
        }
    }

    /// Waits for the last run, and returns the frames in the order of the chunks, in the memory of the encoder's
    /// device. A later run leaves them unchanged.
    ///
    /// # Errors
    /// The error of the first chunk that could not be encoded; `InvalidArgument` when nothing ran; `DeviceFailed`.
    pub fn frames(&mut self) -> Result<Vec<Buffer>> {
        self.finish()?;
        match &self.state {
            State::Done { frames, .. } => {
                frames.iter().enumerate().map(|(number, frame)| outcome(number, frame).cloned()).collect()
            }
            _ if self.is_empty() => Ok(Vec::new()),
            _ => Err(Error::new(ErrorKind::InvalidArgument, "the batch has not run")),
        }
    }

    fn finish(&mut self) -> Result<()> {
        if !matches!(self.state, State::Running { .. }) {
            return Ok(());
        }
        let State::Running { parts, by_host, done } = std::mem::replace(&mut self.state, State::Unrun) else {
            return Ok(());
        };
        done.synchronize()?;
        let mut frames: Vec<Option<Result<Buffer>>> = self.chunks.iter().map(|_| None).collect();
        for (number, frame) in by_host {
            frames[number] = Some(frame);
        }
        for part in parts {
            for (number, frame) in self.take(part)? {
                frames[number] = Some(frame);
            }
        }
        let missing = || Err(Error::new(ErrorKind::EncodeFailed, "the chunk has no frame"));
        let frames = frames.into_iter().map(|frame| frame.unwrap_or_else(missing)).collect();
        self.state = State::Done { frames, is_checked: false };
        Ok(())
    }

    /// Waits until kernels have encoded some chunks of a group, and returns the frame of each chunk.
    fn take(&self, part: Part) -> Result<Vec<(usize, Result<Buffer>)>> {
        let Part { group, numbers, encoding } = part;
        let program = &self.groups[group].program;
        // A new stream: the stream of the run may have other work by now.
        let encoded = encoding.finish(|| Ok(Stream::new(self.device)?))?;
        let ranges = encoded.frames.iter().map(|range| range.clone().unwrap_or_default());
        let made = ranges.map(|range| encoded.buffer.slice(range));
        let mut frames = made.collect::<cuzarr_device::Result<Vec<_>>>()?;
        if let Some((_, location)) = program.device_checksum() {
            frames = sealed(&frames, &encoded.checksums, location, &Stream::new(self.device)?)?;
        } else {
            for frame in &mut frames {
                if let Some(bytes) = program.encode_behind_device(&frame.to_vec()?)? {
                    *frame = self.hand_over(bytes)?;
                }
            }
        }
        let mut made = Vec::with_capacity(numbers.len());
        for (at, (number, frame)) in numbers.into_iter().zip(frames).enumerate() {
            let frame = match encoded.refused(at)? {
                Some(packed) => program.encode(&packed).and_then(|frame| self.hand_over(frame)),
                None => Ok(frame),
            };
            made.push((number, frame));
        }
        Ok(made)
    }
}

/// Returns the frame of the chunk with this number, or the error of its encoding, to which the number is added.
fn outcome(number: usize, frame: &Result<Buffer>) -> Result<&Buffer> {
    frame.as_ref().map_err(Error::clone).at(|| format!("chunk {number}"))
}

/// Joins each frame with its checksum, by a copy of both into new device memory.
fn sealed(frames: &[Buffer], checksums: &[u32], location: Location, stream: &Stream) -> Result<Vec<Buffer>> {
    let device = stream.device();
    let bytes: Vec<u8> = checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
    let checksums = Buffer::from_bytes(device, &bytes)?;
    let sizes = frames.iter().map(|frame| frame.size_bytes() + CHECKSUM_BYTES);
    let total = sizes.clone().map(|size_bytes| size_bytes.next_multiple_of(ALIGNMENT_BYTES)).sum();
    let (memory, mut at) = (Buffer::empty(device, total)?, 0);
    let (mut pieces, mut sealed) = (Vec::new(), Vec::with_capacity(frames.len()));
    for (number, (frame, size_bytes)) in frames.iter().zip(sizes).enumerate() {
        let whole = memory.slice(at..at + size_bytes)?;
        let payload = location.payload(size_bytes);
        let seal = if payload.start == 0 { payload.end..size_bytes } else { 0..payload.start };
        pieces.push((frame.clone(), whole.slice(payload)?));
        let own = number * CHECKSUM_BYTES..(number + 1) * CHECKSUM_BYTES;
        pieces.push((checksums.slice(own)?, whole.slice(seal)?));
        sealed.push(whole);
        at += size_bytes.next_multiple_of(ALIGNMENT_BYTES);
    }
    copy_pieces_on(&pieces, stream)?;
    stream.synchronize()?;
    Ok(sealed)
}
