//! Decoders for direct use: they decode the caller's frames into the caller's memory, without an array, a store or a plan.
//!
//! ```
//! use cuzarr::run::{Decoder, Frames};
//! use cuzarr_device::{Buffer, DType, Device, Event, NdBuffer, Order, Stream};
//!
//! let frame = [3, 0, 4, 0, 0x22, 0xa3, 0xcf, 0x64]; // two numbers and their CRC-32C
//! let decoder = Decoder::new(&serde_json::json!([{"name": "crc32c"}]), Device::Cpu)?;
//! let out = NdBuffer::zeroed(Device::Cpu, DType::UINT16, &[2], Order::C)?;
//! let frames = Frames::Apart(vec![Buffer::from_vec(frame.to_vec())]);
//! let mut batch = decoder.prepare(frames, vec![out.clone()], None)?;
//! batch.run(&Stream::new(Device::Cpu)?)?;
//! batch.check()?.into_iter().collect::<cuzarr::Result<Vec<()>>>()?;
//! assert_eq!(out.host_slice::<u16>()?, [3, 4]);
//! # Ok::<(), cuzarr::Error>(())
//! ```

use std::ops::Range;

use cuzarr_device::internal::transfer::{copy_pieces_on, scatter_host, scatter_on};
use cuzarr_device::{Buffer, Device, Event, NdBuffer, Order, Stream};
use serde_json::Value;

use super::codecs::Codecs;
use super::{for_each_item, place};
use crate::cancellation::CancellationToken;
use crate::codec::batch::HostCopy;
use crate::codec::native::{Chunks, NativeBatch, Source};
use crate::codec::{Chain, Program, leave_nothing};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// Alignment of frames that are copied into one buffer.
const ALIGNMENT_BYTES: usize = 256;
/// Alignment that outputs need so that decoders can write to them directly: the widest access of a kernel.
const OUT_ALIGNMENT_BYTES: usize = 16;

/// Decodes frames of one codec, or of a codec chain, into nd-buffers; no array is needed.
#[derive(Clone, Debug)]
pub struct Decoder {
    codecs: Codecs,
    device: Device,
}

/// The encoded frames that a decoder reads, and how they lie in memory.
#[derive(Debug)]
pub enum Frames {
    /// All frames lie in one buffer.
    Slab {
        /// The buffer in which all frames lie.
        buffer: Buffer,
        /// For each frame, the range of its bytes in the buffer.
        ranges: Vec<Range<usize>>,
    },
    /// Each frame lies in its own buffer.
    Apart(Vec<Buffer>),
}

/// The frames of a batch that decode to one shape and type.
struct Group {
    program: Program,
    /// The frames that kernels decode as one batch, with their numbers among the decoder's frames.
    native: Option<(NativeBatch, Vec<usize>)>,
    /// Whether kernels decode directly into the outputs of these frames.
    in_place: bool,
    /// The numbers of the frames that host threads decode, among all frames of the batch.
    host: Vec<usize>,
    /// Why the device cannot decode frames of this shape and type; `None` if it can.
    reason: Option<&'static str>,
}

/// A batch of frames that is ready to be decoded, any number of times.
pub struct DecoderBatch {
    device: Device,
    frames: Vec<Buffer>,
    outs: Vec<NdBuffer>,
    groups: Vec<Group>,
    scratch_limit_bytes: usize,
    /// Frames whose errors were found when the batch was prepared, with these errors.
    refused: Vec<(usize, Error)>,
    /// Frames that host threads failed to decode in the last run, with their errors.
    found: Vec<(usize, Error)>,
    /// An event that marks the end of the last run, when the outputs are complete.
    done: Option<Event>,
}

impl Decoder {
    /// Makes a decoder for frames of `codecs`, in the form of Zarr v3 metadata: one codec, or a list in the order of
    /// encoding. The array→bytes codec may be left out.
    ///
    /// # Errors
    /// `MetadataInvalid` for JSON that is not a codec. Names and configurations are checked when frames are prepared.
    pub fn new(codecs: &Value, device: Device) -> Result<Decoder> {
        Ok(Decoder { codecs: Codecs::named(codecs)?, device })
    }

    /// Makes a decoder for the chunks of an array of format 2 or 3. Outputs have the shape and type of a chunk.
    pub fn of_chunks(chain: &Chain, device: Device) -> Decoder {
        Decoder { codecs: Codecs::Of(Box::new(chain.clone())), device }
    }

    /// Prepares a batch that decodes each frame into the output with the same number. The output's shape and type
    /// describe the frame's content. This reads the frames' headers. So the frames must be complete, and must not
    /// change until they are decoded. Decoders use at most about `scratch_limit_bytes` of device memory beside the
    /// outputs.
    ///
    /// # Errors
    /// `InvalidArgument` when the numbers of frames and outputs differ, or a range is outside the slab; `MemorySpace` for
    /// outputs on another device; errors of the codecs.
    pub fn prepare(
        &self,
        frames: Frames,
        outs: Vec<NdBuffer>,
        scratch_limit_bytes: Option<usize>,
    ) -> Result<DecoderBatch> {
        let slab = match &frames {
            Frames::Slab { buffer, ranges } => Some((buffer.clone(), ranges.clone())),
            Frames::Apart(_) => None,
        };
        let frames = match frames {
            Frames::Slab { buffer, ranges } => {
                let frames = ranges.into_iter().map(|range| buffer.slice(range));
                frames.collect::<cuzarr_device::Result<Vec<_>>>()?
            }
            Frames::Apart(frames) => frames,
        };
        check(&frames, &outs, self.device)?;
        let mut batch = DecoderBatch {
            device: self.device,
            frames,
            outs,
            groups: Vec::new(),
            scratch_limit_bytes: scratch_limit_bytes.unwrap_or(usize::MAX),
            refused: Vec::new(),
            found: Vec::new(),
            done: None,
        };
        for numbers in place::kinds(&batch.outs) {
            let out = &batch.outs[numbers[0]];
            let program = self.codecs.chain(out.shape(), out.dtype(), "output")?.bind(self.device)?;
            let group = batch.group(program, numbers, slab.as_ref())?;
            batch.groups.push(group);
        }
        Ok(batch)
    }
}

fn check(frames: &[Buffer], outs: &[NdBuffer], device: Device) -> Result<()> {
    if frames.len() != outs.len() {
        let message = format!("got {} frames and {} outputs", frames.len(), outs.len());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    for (number, (frame, out)) in frames.iter().zip(outs).enumerate() {
        let reachable = frame.device() == device || frame.device().is_host_accessible();
        if out.device() != device || !reachable {
            let (from, to) = (frame.device(), out.device());
            let message = format!("frame {number} is on {from}, its output on {to}, the decoder on {device}");
            let hint = format!("move frames and outputs to {device}, or make a decoder for their device");
            return Err(Error::new(ErrorKind::MemorySpace, message).with_hint(hint));
        }
        if out.is_read_only() {
            return Err(Error::new(ErrorKind::ReadOnly, format!("output {number} is read-only")));
        }
    }
    Ok(())
}

impl DecoderBatch {
    fn group(
        &mut self,
        program: Program,
        numbers: Vec<usize>,
        slab: Option<&(Buffer, Vec<Range<usize>>)>,
    ) -> Result<Group> {
        let division = program.divide(&leave_nothing);
        let reason = division.first_reason();
        let Some(native) = program.all_native(division).filter(|_| program.packed_size_bytes() > 0) else {
            return Ok(Group { program, native: None, in_place: false, host: numbers, reason });
        };
        let (mut known, mut host) = (Vec::new(), Vec::new());
        for number in numbers {
            let frame = &self.frames[number];
            if frame.device().is_host_accessible() {
                if native.headers(&frame.host_bytes()?).is_some() {
                    known.push(number)
                } else {
                    host.push(number)
                }
                continue;
            }
            match native.check_size(frame.size_bytes()) {
                Ok(()) => known.push(number),
                Err(error) => self.refused.push((number, error)),
            }
        }
        if known.is_empty() {
            return Ok(Group { program, native: None, in_place: false, host, reason: None });
        }
        let stream = Stream::new(self.device)?;
        let (arena, ranges, bytes) = match slab.filter(|(buffer, _)| buffer.device() == self.device) {
            Some((buffer, all)) => (buffer.clone(), known.iter().map(|&number| all[number].clone()).collect(), None),
            None => self.put_together(&known, &stream)?,
        };
        let target = match native.ends_with_decoder() {
            true => self.outs_of(&program, &known)?.filter(|outs| !overlap(&outs.buffer, &arena)),
            false => None,
        };
        let source = Source { buffer: &arena, ranges, host: HostCopy { bytes: bytes.as_deref(), headers: &[] } };
        let in_place = target.is_some();
        let batch = native.prepare_to(source, target, self.scratch_limit_bytes.into(), &stream)?;
        stream.synchronize()?;
        Ok(Group { program, native: Some((batch, known)), in_place, host, reason: None })
    }

    /// Returns the memory of several outputs as one buffer, if they are contiguous there and have the layout of decoded
    /// chunks.
    fn outs_of(&self, program: &Program, numbers: &[usize]) -> Result<Option<Chunks>> {
        let outs = || numbers.iter().map(|&number| &self.outs[number]);
        if !place::is_plain(program) || !outs().all(|out| out.is_contiguous(Order::C)) {
            return Ok(None);
        }
        let outs = outs().map(NdBuffer::as_buffer).collect::<cuzarr_device::Result<Vec<_>>>()?;
        if !outs.iter().all(|out| out.address().is_multiple_of(OUT_ALIGNMENT_BYTES)) {
            return Ok(None);
        }
        let ranges = |offsets: Vec<usize>| offsets.into_iter().zip(&outs).map(|(at, out)| at..at + out.size_bytes());
        Ok(Buffer::joined(&outs).map(|(buffer, offsets)| Chunks { buffer, ranges: ranges(offsets).collect() }))
    }

    /// Copies frames that lie in separate buffers into one buffer of device memory. Also returns their bytes if the
    /// host has all of them.
    #[allow(clippy::type_complexity)] // taken apart at once
    fn put_together(&self, numbers: &[usize], stream: &Stream) -> Result<(Buffer, Vec<Range<usize>>, Option<Vec<u8>>)> {
        let (mut total, mut ranges) = (0usize, Vec::with_capacity(numbers.len()));
        for &number in numbers {
            let size_bytes = self.frames[number].size_bytes();
            ranges.push(total..total + size_bytes);
            total = (total + size_bytes).next_multiple_of(ALIGNMENT_BYTES);
        }
        let frames = numbers.iter().map(|&number| &self.frames[number]);
        if frames.clone().all(|frame| frame.device().is_host_accessible()) {
            let mut bytes = vec![0; total.max(1)];
            for (frame, range) in frames.zip(&ranges) {
                bytes[range.clone()].copy_from_slice(&frame.host_bytes()?);
            }
            return Ok((Buffer::from_bytes(self.device, &bytes)?, ranges, Some(bytes)));
        }
        let arena = Buffer::empty(self.device, total.max(1))?;
        let mut pieces = Vec::new();
        for (frame, range) in frames.zip(&ranges) {
            pieces.push((frame.to_device(self.device)?, arena.slice(range.clone())?));
        }
        copy_pieces_on(&pieces, stream)?;
        // Preparing the batch reads headers from the arena, so the copies must have ended.
        stream.synchronize()?;
        Ok((arena, ranges, None))
    }

    /// The number of frames in the batch.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the batch has no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Size of the device memory that the batch and its runs use, beside frames and outputs.
    pub fn scratch_bytes(&self) -> usize {
        let natives = self.groups.iter().filter_map(|group| Some((group, group.native.as_ref()?)));
        let held: usize = natives.clone().map(|(_, (batch, _))| batch.memory_bytes()).sum();
        let between = natives.map(|(group, (_, numbers))| {
            let outs = numbers.iter().map(|&number| &self.outs[number]);
            place::between_bytes(&group.program, outs, self.scratch_limit_bytes)
        });
        held + between.max().unwrap_or(0)
    }

    /// Why the device cannot decode some frames of the batch; `None` if it can decode all of them.
    pub fn via_host(&self) -> Option<&'static str> {
        self.groups.iter().find_map(|group| group.reason)
    }

    /// Decodes all frames of the batch into their outputs. Work of the device is enqueued on `stream`. Frames that the
    /// device cannot decode are decoded by host threads and uploaded before this returns.
    ///
    /// # Errors
    /// `MemorySpace` for a stream of another device, `OutOfMemory`, `KernelCompileFailed`, `DeviceFailed`.
    /// [`DecoderBatch::check`] reports damaged frames.
    pub fn run(&mut self, stream: &Stream) -> Result<()> {
        self.run_under(stream, &CancellationToken::new())
    }

    /// Like [`DecoderBatch::run`], but can be cancelled: it then ends before the host decodes its next frame.
    ///
    /// # Errors
    /// Those of [`DecoderBatch::run`]; `Cancelled`, after which some outputs are not written.
    pub fn run_under(&mut self, stream: &Stream, cancellation: &CancellationToken) -> Result<()> {
        cancellation.check()?;
        if stream.device() != self.device {
            let message = format!("a batch on {} cannot run on a stream of {}", self.device, stream.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
        self.done = None;
        for group in &mut self.groups {
            if let Some((batch, numbers)) = &mut group.native {
                batch.run(stream)?;
                if group.in_place {
                    continue;
                }
                let (packed, offsets) = batch.packed();
                let outs: Vec<_> = numbers.iter().map(|&number| &self.outs[number]).zip(offsets).collect();
                place::place(&group.program, packed, &outs, self.scratch_limit_bytes, stream)?;
            }
        }
        self.found = self.decode_on_host(stream, cancellation)?;
        self.done = Some(stream.record()?);
        Ok(())
    }

    /// Decodes the frames that are left to the host, with as many threads as the machine has.
    fn decode_on_host(&self, stream: &Stream, cancellation: &CancellationToken) -> Result<Vec<(usize, Error)>> {
        let work: Vec<(&Program, usize)> =
            self.groups.iter().flat_map(|group| group.host.iter().map(|&number| (&group.program, number))).collect();
        if work.is_empty() {
            return Ok(Vec::new());
        }
        let decode = |(program, number)| self.decode_one(program, number, stream).err().map(|error| (number, error));
        Ok(for_each_item(work, cancellation, decode)?.into_iter().flatten().collect())
    }

    fn decode_one(&self, program: &Program, number: usize, stream: &Stream) -> Result<()> {
        let (frame, out) = (&self.frames[number], &self.outs[number]);
        let mut packed = vec![0; program.packed_size_bytes()];
        match frame.device().is_host_accessible() {
            true => program.decode(&frame.host_bytes()?, &mut packed)?,
            false => program.decode(&frame.to_vec()?, &mut packed)?,
        }
        let transfer = place::transfer(program, out, 0);
        match self.device {
            Device::Cpu => Ok(scatter_host(&packed, &transfer, out)?),
            device => Ok(scatter_on(&Buffer::from_bytes(device, &packed)?, &transfer, out, stream)?),
        }
    }

    /// Waits for the last run, and returns for each frame whether it was decoded. Errors have the codec and the frame's
    /// number in their trail. Frames that only the host can decode are decoded here.
    ///
    /// # Errors
    /// `InvalidArgument` when nothing ran since the last check; `DeviceFailed`.
    pub fn check(&mut self) -> Result<Vec<Result<()>>> {
        let mut results: Vec<Result<()>> = (0..self.len()).map(|_| Ok(())).collect();
        match self.done.take() {
            Some(done) => done.synchronize()?,
            None if self.is_empty() => return Ok(results),
            None => return Err(Error::new(ErrorKind::InvalidArgument, "the batch has not run since the last check")),
        }
        let mut again = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate() {
            let Some((batch, numbers)) = &mut group.native else { continue };
            for (result, &number) in batch.check()?.into_iter().zip(&*numbers) {
                match result {
                    Err(error) if error.kind() == ErrorKind::Unsupported => again.push((index, number)),
                    result => results[number] = result,
                }
            }
        }
        for (index, number) in again {
            let stream = Stream::new(self.device)?;
            results[number] = self.decode_one(&self.groups[index].program, number, &stream);
            stream.synchronize()?;
        }
        for (number, error) in std::mem::take(&mut self.found).into_iter().chain(self.refused.iter().cloned()) {
            results[number] = Err(error);
        }
        Ok(results.into_iter().enumerate().map(|(number, result)| result.at(|| format!("frame {number}"))).collect())
    }
}

fn overlap(one: &Buffer, other: &Buffer) -> bool {
    let end = |buffer: &Buffer| buffer.address() + buffer.size_bytes();
    one.address() < end(other) && other.address() < end(one)
}
