//! Chunks whose stored bytes are in the device's memory when they come: lent by a store whose values live there, or read
//! into it by the storage itself. Packed ones are scattered from where they lie. Encoded ones are put beside each other and
//! decoded by kernels, which read the headers too: the host sees none of the bytes, unless a frame is one that only the
//! host knows.

use std::ops::Range;

use cuzarr_device::{Buffer, Stream, TransferBox, pool};

use crate::codec::Program;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{self, Resident};
use crate::run::context::Context;
use crate::run::read::route::kernels::{Decoders, Packed};
use crate::run::report::Stage;
use crate::run::schedule::budget::Reserved;

/// Frames begin at multiples of this.
const ALIGNMENT_BYTES: usize = 256;
/// Elements of any type are aligned when packed bytes begin at a multiple of this.
const ELEMENT_ALIGNMENT_BYTES: usize = 16;
/// The reads of one batch whose bytes came in device memory.
#[derive(Default)]
pub(crate) struct ResidentReads {
    reads: Vec<(usize, Buffer)>,
    /// For stored bytes beyond what the batch reserved.
    extra: Vec<Reserved>,
}

/// What reading a batch to a device shares, and where its elements are put in order.
pub(crate) struct Placer<'a> {
    pub(crate) call: &'a Context,
    pub(crate) batch: &'a plan::Batch,
    pub(crate) program: &'a Program,
    pub(crate) scatters: &'a Stream,
}

impl ResidentReads {
    /// Reserves memory for stored bytes, of which the batch has counted `counted_bytes`.
    pub(crate) fn reserve_for(&mut self, call: &Context, size_bytes: usize, counted_bytes: usize) -> Result<()> {
        if self.reserve(call, size_bytes.saturating_sub(counted_bytes)) {
            return Ok(());
        }
        let (used, limit) = (call.memory.device.used_bytes(), call.limit_bytes);
        let message =
            format!("a stored chunk has {size_bytes} bytes, {used} are in flight, the memory limit is {limit}");
        Err(Error::new(ErrorKind::BudgetExceeded, message).with_hint("raise the memory limit"))
    }

    /// Reserves bytes beyond the batch's share, for as long as the batch; says whether they were to be had.
    fn reserve(&mut self, call: &Context, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let reserved = call.memory.device.try_take(bytes as u64, call.limit_bytes);
        let was_there = reserved.is_some();
        self.extra.extend(reserved);
        was_there
    }

    /// What was reserved beyond the batch's share.
    pub(crate) fn into_extra(self) -> Vec<Reserved> {
        self.extra
    }

    /// Notes what came for a read.
    pub(crate) fn put(&mut self, read: usize, bytes: Buffer) {
        self.reads.push((read, bytes));
    }

    /// What is to be scattered, in the order of `scatters`, and the batch that must be checked afterwards.
    pub(crate) fn place(
        &mut self,
        route: Option<&Resident>,
        decoders: &mut Decoders,
        placer: &Placer<'_>,
    ) -> Result<(Vec<Packed>, Option<ResidentFrames>)> {
        let reads = std::mem::take(&mut self.reads);
        match route {
            _ if reads.is_empty() => Ok((Vec::new(), None)),
            Some(Resident::Frames(native)) => self.decode(&reads, native, &decoders.stream()?, placer),
            Some(Resident::Packed) | None => {
                let mut packed = Vec::with_capacity(reads.len());
                for (read, bytes) in &reads {
                    packed.extend(in_place(placer.batch, *read, bytes, placer.scatters)?);
                }
                Ok((packed, None))
            }
        }
    }

    fn decode(
        &mut self,
        reads: &[(usize, Buffer)],
        native: &Native,
        stream: &Stream,
        placer: &Placer<'_>,
    ) -> Result<(Vec<Packed>, Option<ResidentFrames>)> {
        let Placer { call, batch: plan, program, scatters } = *placer;
        let size_bytes: usize =
            reads.iter().map(|(_, bytes)| bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES)).sum();
        let (mut at, mut ranges, mut sources) = (0, Vec::new(), Vec::new());
        for (read, bytes) in reads {
            let read = &plan.reads[*read];
            for unit in read.units.clone() {
                let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
                match native.check_size(size_bytes) {
                    Ok(()) => {
                        ranges.push(at + from..at + from + size_bytes);
                        sources.push(&plan.units[unit]);
                    }
                    Err(error) => call.fail(error.at(plan.units[unit].name.to_string())),
                }
            }
            at += bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES);
        }
        let decoded_bytes = program.packed_size_bytes() * ranges.len();
        if !self.reserve(call, size_bytes.saturating_sub(decoded_bytes)) {
            return Ok((decode_on_host(reads, placer)?, None));
        }
        let arena = pool::allocate(size_bytes, stream)?;
        let mut at = 0;
        for (_, bytes) in reads {
            stream.d2d(bytes, &arena.slice(at..at + bytes.size_bytes())?)?;
            at += bytes.size_bytes().next_multiple_of(ALIGNMENT_BYTES);
        }
        // Headers are read from the arena when the batch is prepared.
        stream.synchronize()?;
        let most = (native.scratch_copies() as usize).saturating_mul(decoded_bytes);
        let source = Source { buffer: &arena, ranges: ranges.clone(), host: None, headers: &[] };
        let mut batch = native.prepare(source, most, stream)?;
        if !self.reserve(call, batch.scratch_bytes().saturating_sub(most)) {
            return Ok((decode_on_host(reads, placer)?, None));
        }
        call.counters.time_on(Stage::Decode, decoded_bytes as u64, stream, || batch.run(stream))?;
        scatters.wait(&stream.record()?)?;
        let (decoded, offsets) = batch.packed();
        let boxes = sources.iter().zip(offsets).flat_map(|(unit, offset)| unit.transfer_boxes(offset)).collect();
        let packed = (decoded.clone(), boxes);
        let frames = ranges.into_iter().zip(&sources).map(|(range, unit)| Frame {
            name: unit.name.to_string(),
            range,
            items: unit.transfer_boxes(0).collect(),
        });
        let frames = frames.collect();
        Ok((vec![packed], Some(ResidentFrames { batch, frames, arena })))
    }
}

/// The way of frames for which the device has no scratch memory left within the limit. What fails is handed to the call.
fn decode_on_host(reads: &[(usize, Buffer)], placer: &Placer<'_>) -> Result<Vec<Packed>> {
    let Placer { call, batch: plan, program, .. } = *placer;
    let mut packed = Vec::new();
    for (read, bytes) in reads {
        let read = &plan.reads[*read];
        for unit in read.units.clone() {
            let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
            let unit = &plan.units[unit];
            match decode_one(&bytes.slice(from..from + size_bytes)?, call, program) {
                Ok(decoded) => packed.push((decoded, unit.transfer_boxes(0).collect())),
                Err(error) => call.fail(error.at(unit.name.to_string())),
            }
        }
    }
    Ok(packed)
}

/// The units of a read whose bytes are packed; those that begin at odd addresses are copied to better ones.
fn in_place(plan: &plan::Batch, read: usize, bytes: &Buffer, scatters: &Stream) -> Result<Vec<Packed>> {
    let read = &plan.reads[read];
    let (mut aligned, mut packed) = (Vec::new(), Vec::new());
    for unit in read.units.clone() {
        let (from, size_bytes) = plan.unit_span(read, unit).unwrap_or((0, bytes.size_bytes()));
        let unit = &plan.units[unit];
        if (bytes.address() + from).is_multiple_of(ELEMENT_ALIGNMENT_BYTES) {
            aligned.extend(unit.transfer_boxes(from));
        } else {
            let moved = pool::allocate(size_bytes, scatters)?;
            scatters.d2d(&bytes.slice(from..from + size_bytes)?, &moved)?;
            packed.push((moved, unit.transfer_boxes(0).collect()));
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
    items: Vec<TransferBox>,
}

/// Frames that kernels decode, to be checked when they are done.
pub(crate) struct ResidentFrames {
    batch: NativeBatch,
    frames: Vec<Frame>,
    arena: Buffer,
}

impl ResidentFrames {
    /// Waits for the batch; hands what is damaged to the call, and decodes on the host what only the host knows. Returns the
    /// latter, to be scattered once more.
    pub(crate) fn check(mut self, call: &Context, program: &Program) -> Result<Vec<Packed>> {
        let mut again = Vec::new();
        for (result, frame) in self.batch.check()?.into_iter().zip(&self.frames) {
            let decoded = match result {
                Ok(()) => continue,
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    decode_one(&self.arena.slice(frame.range.clone())?, call, program)
                }
                Err(error) => Err(error),
            };
            match decoded {
                Ok(packed) => again.push((packed, frame.items.clone())),
                Err(error) => call.fail(error.at(frame.name.clone())),
            }
        }
        Ok(again)
    }
}

/// Decodes a frame that lies on the device by the host, and puts what it gives there again.
fn decode_one(frame: &Buffer, call: &Context, program: &Program) -> Result<Buffer> {
    let stored = frame.to_vec()?;
    let mut packed = call.scratch.take(program.packed_size_bytes())?;
    let size_bytes = packed.len() as u64;
    call.counters.time(Stage::Decode, size_bytes, || program.decode(&stored, &mut packed))?;
    Ok(Buffer::from_bytes(frame.device(), &packed)?)
}
