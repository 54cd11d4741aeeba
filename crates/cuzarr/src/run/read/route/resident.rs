//! The read route of chunks whose stored bytes come in device memory: a store on the device lends them, or the storage
//! reads them into device memory. Packed chunks are scattered from the memory in which they came. Encoded chunks are
//! put together and decoded by kernels, which also read the headers. The host sees none of the bytes, except frames
//! that only the host can decode.

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::pool;
use cuzarr_device::{Buffer, Device, Stream};

use crate::codec::batch::HostCopy;
use crate::codec::native::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Fill, Unit};
use crate::run::context::Context;
use crate::run::natives::Natives;
use crate::run::read::device::target::{Target, packed};
use crate::run::read::in_flight::{BatchRoute, DeviceRoute, Life, Packed, State};
use crate::run::read::route::hybrid::ELEMENT_ALIGNMENT_BYTES;
use crate::run::read::route::kernels::{LaunchedDecoding, decode, upload};
use crate::run::read::stored::{Stored, check_missing};
use crate::run::schedule::budget::{Held, Reserved};
use crate::run::schedule::scratch::ScratchBlock;
use crate::store::Lease;

/// Alignment of frames that are copied into one buffer.
const ALIGNMENT_BYTES: usize = 256;

/// A batch whose stored bytes come in device memory, where the store keeps them or reads them to.
pub(crate) struct ResidentBatch {
    target: Arc<Target>,
    /// The kernels that decode the batch's frames, and a stream for them; `None` for uncompressed chunks.
    kernels: Option<(Arc<Natives>, Stream)>,
    life: Life<Fetched, Fetched, Decoding>,
}

/// Data of a batch while its stored bytes come: those that came so far.
struct Fetched {
    memory: Memory,
    reads: Vec<(usize, Buffer)>,
    /// Numbers of chunks whose bytes came in host memory, with their decoded bytes.
    packed: Vec<(usize, ScratchBlock)>,
}

/// The memory that a batch has reserved, including later reservations if its stored bytes were larger than expected.
struct Memory {
    _held: Held,
    extra: Vec<Reserved>,
}

/// Data of a batch while kernels decode its frames, if there are any.
struct Decoding {
    frames: Option<Frames>,
    _memory: Memory,
}

/// The frames of a batch while kernels decode them. They are checked when the kernels have ended.
struct Frames {
    launched: LaunchedDecoding,
    frames: Vec<Frame>,
    arena: Buffer,
}

struct Frame {
    unit: Unit,
    /// The range of the frame's bytes in the buffer `arena`.
    range: Range<usize>,
}

impl ResidentBatch {
    pub(crate) fn new(target: &Arc<Target>, kernels: Option<(Arc<Natives>, Stream)>, held: Held) -> ResidentBatch {
        let memory = Memory { _held: held, extra: Vec::new() };
        let life = Life::new(Fetched { memory, reads: Vec::new(), packed: Vec::new() });
        ResidentBatch { target: Arc::clone(target), kernels, life }
    }
}

impl Memory {
    /// Reserves memory that the batch needs beyond its first reservation, and keeps it until the batch ends. Returns
    /// whether there was room.
    fn reserve(&mut self, call: &Context, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let reserved = call.memory.device.try_take(bytes as u64, call.limit_bytes);
        let was_there = reserved.is_some();
        self.extra.extend(reserved);
        was_there
    }
}

impl BatchRoute for ResidentBatch {
    fn lease(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        Ok(Stored::take(&self.target.call, size_bytes, batch.packed_bytes(read))?)
    }

    fn arrived(&self, _batch: &Batch, _read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        Ok(Stored::or::<Stored>(lease)?.ok())
    }

    fn device(&self) -> Device {
        self.target.device
    }

    fn lease_on_device(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Buffer> {
        let (call, beyond) = (&self.target.call, size_bytes.saturating_sub(batch.packed_bytes(read)));
        self.life.fetching(|fetching| match fetching.memory.reserve(call, beyond) {
            true => Ok(()),
            false => {
                let (used, limit) = (call.memory.device.used_bytes(), call.limit_bytes);
                let message =
                    format!("a stored chunk has {size_bytes} bytes, {used} are in flight, the memory limit is {limit}");
                Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint("raise `memory_limit`"))
            }
        })?;
        Ok(pool::in_flight(|| Buffer::empty(self.target.device, size_bytes))?)
    }

    fn arrived_on_device(&self, _batch: &Batch, read: usize, bytes: Buffer) -> Result<()> {
        if bytes.device() != self.device() {
            let message = format!("the store returned memory on {}, expected {}", bytes.device(), self.device());
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        self.life.fetching(|fetching| {
            fetching.reads.push((read, bytes));
            Ok(())
        })
    }

    fn land(&self, batch: &Batch, unit: usize, stored: &[u8]) -> Result<()> {
        let block = decode(&self.target, &batch.units[unit], stored)?;
        self.life.fetching(|fetching| {
            fetching.packed.push((unit, block));
            Ok(())
        })
    }

    fn fill(&self, _number: usize, fill: &Fill) -> Result<()> {
        check_missing(self.target.read_missing, fill)
    }

    fn complete(&self, _batch: &Batch, _landed: &[usize]) {
        if let Err(error) = self.life.fetched(Ok) {
            self.target.call.fail(error);
        }
    }
}

impl DeviceRoute for ResidentBatch {
    fn decode(&self, batch: &Batch, copies: &Stream, scatters: &Stream) -> Result<Vec<Packed>> {
        self.life.decoding(|Fetched { mut memory, reads, packed }| {
            let mut packed = upload(&self.target, batch, packed, copies)?;
            let mut frames = None;
            match &self.kernels {
                Some((natives, stream)) if !reads.is_empty() => {
                    match self.launch(&mut memory, &reads, batch, natives, stream)? {
                        Some((elements, launched)) => {
                            scatters.wait(&stream.record()?)?;
                            packed.extend(elements);
                            frames = Some(launched);
                        }
                        None => packed.extend(self.decode_on_host(&reads, batch)?),
                    }
                }
                _ => {
                    for (read, bytes) in &reads {
                        packed.extend(in_place(batch, *read, bytes, scatters)?);
                    }
                }
            }
            Ok((Decoding { frames, _memory: memory }, packed))
        })
    }

    /// Checks whether kernels decoded all frames, and decodes on the host those that only the host can decode.
    fn check(&self) -> Result<Vec<Packed>> {
        let State::Decoding(Decoding { frames: Some(launched), _memory }) = self.life.end() else {
            return Ok(Vec::new());
        };
        let (Frames { launched, frames, arena }, mut again) = (launched, Vec::new());
        launched.check_or(&self.target.call, |number, error| {
            if error.kind() != ErrorKind::Unsupported {
                return Err(error);
            }
            let Frame { unit, range } = &frames[number];
            let decoded = self.decode_one(unit, &arena.slice(range.clone())?)?;
            again.extend(packed(&decoded, std::iter::once((unit, 0))));
            Ok(())
        });
        Ok(again)
    }

    fn give_up(&self) {
        self.life.end();
    }
}

impl ResidentBatch {
    /// Copies frames into one buffer, and launches the kernels that decode them; `None` if there is too little memory.
    fn launch(
        &self,
        memory: &mut Memory,
        reads: &[(usize, Buffer)],
        plan: &Batch,
        natives: &Natives,
        stream: &Stream,
    ) -> Result<Option<(Vec<Packed>, Frames)>> {
        let Target { call, .. } = &*self.target;
        let (mut size_bytes, mut ranges, mut units, mut copies) = (0, Vec::new(), Vec::new(), Vec::new());
        for (read, bytes) in reads {
            let read = &plan.reads[*read];
            for unit in read.units.clone() {
                let (from, unit_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
                let unit = &plan.units[unit];
                let none = || Error::new(ErrorKind::Unsupported, "kernels do not decode chunks of its shape");
                match natives.of(&unit.layout).ok_or_else(none).and_then(|native| native.check_size(unit_bytes)) {
                    Ok(()) => {
                        ranges.push(size_bytes + from..size_bytes + from + unit_bytes);
                        units.push(unit);
                    }
                    Err(error) => call.fail(error.at(unit.name.to_string())),
                }
            }
            copies.push((bytes, size_bytes..size_bytes + bytes.size_bytes()));
            size_bytes += bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES);
        }
        let decoded_bytes: usize = units.iter().map(|unit| unit.packed_size_bytes).sum();
        if !memory.reserve(call, size_bytes.saturating_sub(decoded_bytes)) {
            return Ok(None);
        }
        let arena = pool::allocate(size_bytes, stream)?;
        copies
            .into_iter()
            .try_for_each(|(bytes, range)| -> Result<()> { Ok(stream.d2d(bytes, &arena.slice(range)?)?) })?;
        // Preparing the batch reads headers from the arena, so the copies must have ended.
        stream.synchronize()?;
        let most = (natives.usual().scratch_copies() as usize).saturating_mul(decoded_bytes);
        let source = Source { buffer: &arena, ranges: ranges.clone(), host: HostCopy::default() };
        let batch = natives.prepare(units.iter().copied(), source, most.into(), stream)?;
        if !memory.reserve(call, batch.scratch_bytes().saturating_sub(most)) {
            return Ok(None);
        }
        let (elements, launched) = LaunchedDecoding::launch(call, batch, units.iter().copied(), stream)?;
        let frames = ranges.into_iter().zip(units).map(|(range, unit)| Frame { unit: unit.clone(), range });
        let frames = frames.collect();
        Ok(Some((elements, Frames { launched, frames, arena })))
    }

    /// Decodes frames on the host, because the memory limit leaves no scratch memory on the device for kernels.
    /// Failures are reported to the call.
    fn decode_on_host(&self, reads: &[(usize, Buffer)], plan: &Batch) -> Result<Vec<Packed>> {
        let mut found = Vec::new();
        for (read, bytes) in reads {
            let read = &plan.reads[*read];
            for unit in read.units.clone() {
                let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
                let unit = &plan.units[unit];
                match self.decode_one(unit, &bytes.slice(from..from + size_bytes)?) {
                    Ok(decoded) => found.extend(packed(&decoded, std::iter::once((unit, 0)))),
                    Err(error) => self.target.call.fail(error.at(unit.name.to_string())),
                }
            }
        }
        Ok(found)
    }

    /// Decodes a frame of device memory on the host: copies it to the host, decodes it, and uploads the result.
    fn decode_one(&self, unit: &Unit, frame: &Buffer) -> Result<Buffer> {
        Ok(Buffer::from_bytes(frame.device(), &decode(&self.target, unit, &frame.to_vec()?)?)?)
    }
}

/// Returns the uncompressed chunks of a read, whose elements are moved to the result from the memory in which they
/// came. A unit at an unaligned address is copied to an aligned one.
fn in_place(plan: &Batch, read: usize, bytes: &Buffer, scatters: &Stream) -> Result<Vec<Packed>> {
    let read = &plan.reads[read];
    let (mut aligned, mut apart) = (Vec::new(), Vec::new());
    for unit in read.units.clone() {
        let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
        let unit = &plan.units[unit];
        if (bytes.address() + from).is_multiple_of(ELEMENT_ALIGNMENT_BYTES) {
            aligned.push((unit, from));
        } else {
            let moved = pool::allocate(size_bytes, scatters)?;
            scatters.d2d(&bytes.slice(from..from + size_bytes)?, &moved)?;
            apart.extend(packed(&moved, std::iter::once((unit, 0))));
        }
    }
    apart.extend(packed(bytes, aligned.into_iter()));
    Ok(apart)
}
