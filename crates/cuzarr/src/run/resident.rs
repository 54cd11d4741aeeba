//! Chunks whose stored bytes are in the device's memory when they come: lent by a store whose values live there, or read
//! into it by the storage itself. Packed ones are scattered from where they lie. Encoded ones are put beside each other and
//! decoded by kernels, which read the headers too: the host sees none of the bytes, unless a frame is one that only the
//! host knows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Device, Stream, TransferBox, pool};

use super::call::Call;
use super::device_decode::{Decoders, Packed};
use super::memory::{Cost, Reserved};
use super::report::Stage;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::codec::{Program, leave_nothing};
use crate::error::{Error, ErrorKind, Result};
use crate::plan;

/// Frames begin at multiples of this.
const ALIGNMENT_BYTES: usize = 256;
/// Elements of any type are aligned when packed bytes begin at a multiple of this.
const ELEMENT_ALIGNMENT_BYTES: usize = 16;
/// Device memory of a batch in multiples of its packed bytes: stored; and with kernels frames, decoded, shuffled.
const PACKED_COPIES: u64 = 1;
const DECODING_COPIES: u64 = 4;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What reads of a program's chunks do with bytes on the device.
#[derive(Clone, Debug)]
pub(super) enum Taking {
    /// Nothing: they are wanted on the host.
    Nothing,
    /// They are packed.
    Packed,
    /// Kernels decode them.
    Frames(Arc<Native>),
}

impl Taking {
    pub(super) fn new(program: &Program, limit_bytes: usize) -> Taking {
        let fits = program.packed_size_bytes() as u64 <= limit_bytes as u64 / DECODING_COPIES;
        match program.divide(&leave_nothing).whole() {
            _ if program.stored_is_packed() => Taking::Packed,
            // The host may decode faster, but it would have to fetch the bytes first.
            Some(native) if fits => Taking::Frames(Arc::new(native)),
            _ => Taking::Nothing,
        }
    }

    /// Device memory that a batch of so many packed bytes takes at most.
    pub(super) fn cost(&self, packed_bytes: usize) -> Cost {
        let copies = if let Taking::Packed = self { PACKED_COPIES } else { DECODING_COPIES };
        Cost { device: (packed_bytes as u64).saturating_mul(copies), ..Cost::default() }
    }
}

/// The reads of one batch that came so.
pub(super) struct Resident {
    call: Arc<Call>,
    taking: Taking,
    device: Device,
    reads: Mutex<Vec<(usize, Buffer)>>,
    /// For stored bytes beyond what the batch reserved.
    extra: Mutex<Vec<Reserved>>,
}

impl Resident {
    pub(super) fn new(call: &Arc<Call>, taking: Taking, device: Device) -> Resident {
        Resident { call: Arc::clone(call), taking, device, reads: Mutex::default(), extra: Mutex::default() }
    }

    /// Where bytes may come; `cpu` when they may not.
    pub(super) fn device(&self) -> Device {
        if let Taking::Nothing = self.taking { Device::Cpu } else { self.device }
    }

    /// Memory for stored bytes, of which the batch has counted `counted_bytes`.
    pub(super) fn lease(&self, size_bytes: usize, counted_bytes: usize) -> Result<Buffer> {
        if let Some(extra) = size_bytes.checked_sub(counted_bytes).filter(|&extra| extra > 0) {
            let call = &self.call;
            let reserved = call.memory.device.try_take(extra as u64, call.limit_bytes).ok_or_else(|| {
                let (used, limit) = (call.memory.device.used_bytes(), call.limit_bytes);
                let message =
                    format!("a stored chunk has {size_bytes} bytes, {used} are in flight, the memory limit is {limit}");
                Error::new(ErrorKind::BudgetExceeded, message).with_hint("raise the memory limit")
            })?;
            lock(&self.extra).push(reserved);
        }
        Ok(Buffer::empty(self.device, size_bytes)?)
    }

    /// What was reserved beyond the batch's share. Whoever still holds the flight then holds no memory.
    pub(super) fn take_extra(&self) -> Vec<Reserved> {
        std::mem::take(&mut *lock(&self.extra))
    }

    /// Forgets what came, after a failure.
    pub(super) fn clear(&self) {
        lock(&self.reads).clear();
        lock(&self.extra).clear();
    }

    pub(super) fn arrived(&self, read: usize, bytes: Buffer) -> Result<()> {
        if bytes.device() != self.device() || self.device() == Device::Cpu {
            let message = format!("the store handed over memory of {}, asked for {}", bytes.device(), self.device());
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        lock(&self.reads).push((read, bytes));
        Ok(())
    }

    /// What is to be scattered, in the order of `scatters`, and the batch that must be checked afterwards.
    pub(super) fn place(
        &self,
        plan: &plan::Batch,
        program: &Program,
        decoders: &mut Decoders,
        scatters: &Stream,
    ) -> Result<(Vec<Packed>, Option<Frames>)> {
        let reads = std::mem::take(&mut *lock(&self.reads));
        match &self.taking {
            _ if reads.is_empty() => Ok((Vec::new(), None)),
            Taking::Frames(native) => {
                let (packed, frames) = self.decode(plan, &reads, (program, native), &decoders.stream()?, scatters)?;
                Ok((vec![packed], Some(frames)))
            }
            Taking::Packed | Taking::Nothing => {
                let mut packed = Vec::with_capacity(reads.len());
                for (read, bytes) in &reads {
                    packed.extend(in_place(plan, *read, bytes, scatters)?);
                }
                Ok((packed, None))
            }
        }
    }

    fn decode(
        &self,
        plan: &plan::Batch,
        reads: &[(usize, Buffer)],
        (program, native): (&Program, &Native),
        stream: &Stream,
        scatters: &Stream,
    ) -> Result<(Packed, Frames)> {
        let size_bytes = reads.iter().map(|(_, bytes)| bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES)).sum();
        let arena = pool::allocate(size_bytes, stream)?;
        let (mut at, mut ranges, mut sources) = (0, Vec::new(), Vec::new());
        for (read, bytes) in reads {
            stream.d2d(bytes, &arena.slice(at..at + bytes.size_bytes())?)?;
            let read = &plan.reads[*read];
            for unit in read.units.clone() {
                let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
                match native.check_size(size_bytes) {
                    Ok(()) => {
                        ranges.push(at + from..at + from + size_bytes);
                        sources.push(&plan.units[unit]);
                    }
                    Err(error) => self.call.fail(error.at(plan.units[unit].name.to_string())),
                }
            }
            at += bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES);
        }
        // Formats whose headers only the host reads are copied back from the arena at once.
        stream.synchronize()?;
        let mut batch =
            native.prepare(Source { buffer: &arena, ranges: ranges.clone(), host: None }, usize::MAX, stream)?;
        let decoded_bytes = (program.packed_size_bytes() * ranges.len()) as u64;
        self.call.counters.time_on((Stage::Decode, decoded_bytes), stream, || batch.run(stream))?;
        scatters.wait(&stream.record()?)?;
        let (decoded, offsets) = batch.packed();
        let boxes = sources.iter().zip(offsets).map(|(unit, offset)| unit.transfer_box(offset)).collect();
        let packed = (decoded.clone(), boxes);
        let frames = ranges.into_iter().zip(&sources).map(|(range, unit)| Frame {
            name: unit.name.to_string(),
            range,
            item: unit.transfer_box(0),
        });
        let frames = frames.collect();
        Ok((packed, Frames { batch, frames, arena }))
    }
}

/// The units of a read whose bytes are packed; those that begin at odd addresses are copied to better ones.
fn in_place(plan: &plan::Batch, read: usize, bytes: &Buffer, scatters: &Stream) -> Result<Vec<Packed>> {
    let read = &plan.reads[read];
    let (mut aligned, mut packed) = (Vec::new(), Vec::new());
    for unit in read.units.clone() {
        let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
        let unit = &plan.units[unit];
        if (bytes.address() + from).is_multiple_of(ELEMENT_ALIGNMENT_BYTES) {
            aligned.push(unit.transfer_box(from));
        } else {
            let moved = pool::allocate(size_bytes, scatters)?;
            scatters.d2d(&bytes.slice(from..from + size_bytes)?, &moved)?;
            packed.push((moved, vec![unit.transfer_box(0)]));
        }
    }
    if !aligned.is_empty() {
        packed.push((bytes.clone(), aligned));
    }
    Ok(packed)
}

struct Frame {
    name: String,
    /// Its bytes in the arena.
    range: Range<usize>,
    /// Its elements, once they are packed at 0.
    item: TransferBox,
}

/// Frames that kernels decode, to be checked when they are done.
pub(super) struct Frames {
    batch: NativeBatch,
    frames: Vec<Frame>,
    arena: Buffer,
}

impl Frames {
    /// Waits for the batch; hands what is damaged to the call, and decodes on the host what only the host knows. Returns the
    /// latter, to be scattered once more.
    pub(super) fn check(mut self, call: &Call, program: &Program) -> Result<Vec<Packed>> {
        let mut again = Vec::new();
        for (result, frame) in self.batch.check()?.into_iter().zip(&self.frames) {
            let decoded = match result {
                Ok(()) => continue,
                Err(error) if error.kind() == ErrorKind::Unsupported => self.decode_on_host(frame, call, program),
                Err(error) => Err(error),
            };
            match decoded {
                Ok(packed) => again.push((packed, vec![frame.item.clone()])),
                Err(error) => call.fail(error.at(frame.name.clone())),
            }
        }
        Ok(again)
    }

    fn decode_on_host(&self, frame: &Frame, call: &Call, program: &Program) -> Result<Buffer> {
        let stored = self.arena.slice(frame.range.clone())?.to_vec()?;
        let mut packed = call.scratch.take(program.packed_size_bytes())?;
        let size_bytes = packed.len() as u64;
        call.counters.time(Stage::Decode, size_bytes, || program.decode(&stored, &mut packed))?;
        Ok(Buffer::from_bytes(self.arena.device(), &packed)?)
    }
}
