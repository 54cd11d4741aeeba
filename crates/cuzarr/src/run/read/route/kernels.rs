//! Decoding by kernels: encoded chunks are fetched into a slab one behind the other, cross the bus so, and one batch
//! decodes them beside each other. A batch holds many chunks, because a warp that decodes in order takes milliseconds
//! however few there are, and several batches decode at once, on streams of their own.
//!
//! Each thread reads the headers of the frames that it brings. The one that brings a batch's last bytes lays the decoding out
//! and, where there is scratch memory at once, launches it ([`Decoding::prepare`]): it is awake, where the calling thread may have to wait for a core. What else is to
//! be done, waiting for memory too, is the calling thread's ([`Ready::place`]).

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Buffer, Copied, Device, Event, Slab, SlabPiece, SlabSeries, Stream, TransferBox, pool};

use crate::codec::Program;
use crate::codec::device::Headers;
use crate::codec::native::{Native, NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Read, SizeRule, Unit};
use crate::run::context::Context;
use crate::run::report::Stage;
use crate::run::schedule::budget::Reserved;
use crate::run::schedule::pool::in_threads;
use crate::run::schedule::scratch::ScratchBlock;
use crate::run::schedule::streams::Streams;
use crate::store::Lease;

/// Decoded chunks begin at multiples of this, and reads in a slab too.
pub(crate) const ALIGNMENT_BYTES: usize = 256;
/// Batches that decode at once.
const STREAMS: usize = 4;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the bytes of one unit are.
pub(crate) enum Place {
    /// As they are stored, from this byte of the batch on, with what the headers say where kernels know them.
    Stored { offset_bytes: usize, size_bytes: usize, headers: Option<Headers> },
    /// Decoded already, because the slab had no room for them.
    Packed(ScratchBlock),
}

/// Memory that the stored bytes of one batch come to, and that they cross from.
pub(crate) enum Slabs {
    /// One for all of them, as their frames are looked at once more when they are there.
    Whole(Slab),
    /// Several, one behind the other.
    Series(SlabSeries),
}

impl Slabs {
    /// Room for so many bytes, and where they come to lie on the device.
    fn carve(&mut self, size_bytes: usize) -> Result<Option<(usize, SlabPiece)>> {
        Ok(match self {
            Slabs::Whole(slab) => slab.carve(size_bytes).map(|piece| (piece.offset_bytes(), piece)),
            Slabs::Series(series) => series.carve(size_bytes)?,
        })
    }

    fn carved_bytes(&self) -> usize {
        match self {
            Slabs::Whole(slab) => slab.carved_bytes(),
            Slabs::Series(series) => series.carved_bytes(),
        }
    }

    fn finish_upload(&mut self) -> Result<Vec<Copied>> {
        Ok(match self {
            Slabs::Whole(slab) => slab.finish_upload()?,
            Slabs::Series(series) => series.finish()?,
        })
    }

    /// All of them, where they are still there.
    fn bytes(&self) -> Result<Option<&[u8]>> {
        match self {
            Slabs::Whole(slab) => Ok(Some(&slab.bytes()?[..slab.carved_bytes()])),
            Slabs::Series(_) => Ok(None),
        }
    }
}

/// How kernels decode one batch.
pub(crate) struct Decoding {
    pub(crate) native: Arc<Native>,
    /// Where the batch decodes.
    pub(crate) stream: Stream,
    /// Bytes of a decoded chunk.
    pub(crate) packed_size_bytes: usize,
    /// Scratch memory that the batch may take, about.
    pub(crate) scratch_limit_bytes: usize,
}

/// The slabs of one batch while any thread fills them in any order, and where their bytes cross to.
pub(crate) struct StoredUnits {
    slabs: Option<(Slabs, Buffer)>,
    places: Vec<Option<Place>>,
}

/// What came of a batch, sorted by who decodes it.
pub(crate) struct Ready {
    slabs: Option<(Slabs, Buffer)>,
    /// Behind each copy of the slabs.
    copied: Vec<Event>,
    /// What kernels decode, in the order of `batch`.
    frames: Vec<Frame>,
    headers: Vec<Headers>,
    batch: Option<NativeBatch>,
    /// Behind the kernels, once they are launched, and the scratch memory that they were launched with at once.
    decoded: Option<Event>,
    scratch: Option<Reserved>,
    /// What they do not know.
    unknown: Vec<Frame>,
    /// What was decoded already.
    packed: Vec<(usize, ScratchBlock)>,
}

/// A unit, by its number, and its stored bytes among those of the batch.
struct Frame {
    unit: usize,
    src: Range<usize>,
}

/// A read that fills its place in a slab.
pub(crate) struct InSlab {
    piece: SlabPiece,
    size_bytes: usize,
    /// Where its bytes lie among those of the batch.
    at_bytes: usize,
}

impl InSlab {
    pub(crate) fn new(at_bytes: usize, piece: SlabPiece) -> InSlab {
        InSlab { size_bytes: piece.len(), piece, at_bytes }
    }
}

impl Lease for InSlab {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.piece
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn split_off(&mut self, at: usize) -> Option<Box<dyn Lease>> {
        Some(Box::new(InSlab::new(self.at_bytes + at, self.piece.split_off(at))))
    }
}

impl StoredUnits {
    pub(crate) fn new(slabs: Option<(Slabs, Buffer)>, units: usize) -> StoredUnits {
        StoredUnits { slabs, places: (0..units).map(|_| None).collect() }
    }

    /// Bytes that the slabs of a batch must hold: what its reads bring. A frame that is larger than its chunk has no room
    /// planned, and nothing to gain.
    pub(crate) fn slab_bytes(batch: &Batch) -> usize {
        let sizes = batch.reads.iter().map(|read| match read.size {
            SizeRule::Exact(size_bytes) => size_bytes as usize,
            _ => batch.units[read.units.clone()].iter().map(|unit| unit.packed_size_bytes).sum(),
        });
        sizes.fold(0, |total: usize, size_bytes| total.next_multiple_of(ALIGNMENT_BYTES) + size_bytes)
    }

    /// Room for the bytes of a read; `None` when the slabs have none.
    pub(crate) fn lease(&mut self, size_bytes: usize) -> Result<Option<InSlab>> {
        let carved = self.slabs.as_mut().map(|(slabs, _)| slabs.carve(size_bytes)).transpose()?;
        Ok(carved.flatten().map(|(at_bytes, piece)| InSlab::new(at_bytes, piece)))
    }

    /// Notes where a unit is.
    pub(crate) fn put(&mut self, unit: usize, place: Place) {
        self.places[unit] = Some(place);
    }
}

impl Decoding {
    /// A read lies in the slab: its headers are read here, by many threads side by side, as each look is a miss of their caches.
    pub(crate) fn look(
        &self,
        batch: &Batch,
        read: &Read,
        lease: &InSlab,
        mut put: impl FnMut(usize, Place) -> Result<()>,
    ) -> Result<()> {
        let held = || Error::new(ErrorKind::StoreFailed, "the store ended a read whose memory it has not given back");
        let bytes = lease.piece.whole().ok_or_else(held)?;
        for unit in read.units.clone() {
            let (from, size_bytes) = batch.unit_span(read, unit).unwrap_or((0, lease.size_bytes));
            let too_short = || Error::new(ErrorKind::ChunkCorrupt, "the read was too short");
            let headers = self.native.headers(bytes.get(from..from + size_bytes).ok_or_else(too_short)?);
            put(unit, Place::Stored { offset_bytes: lease.at_bytes + from, size_bytes, headers })?;
        }
        Ok(())
    }

    /// Sends the rest of the slab across the bus, lays the decoding of what `landed` out, and launches it where scratch memory
    /// is at hand.
    pub(crate) fn prepare(&self, stored: StoredUnits, landed: &[usize], call: &Context) -> Result<Ready> {
        let mut ready = Ready::sort(stored, landed, call)?;
        ready.prepare_within(self, self.scratch_limit_bytes)?;
        if let bytes @ 1.. = ready.scratch_bytes() {
            ready.scratch = call.memory.device.try_take(bytes, call.limit_bytes);
            ready.scratch.is_some().then(|| ready.launch(self, call)).transpose()?;
        }
        Ok(ready)
    }
}

impl Ready {
    fn sort(stored: StoredUnits, landed: &[usize], call: &Context) -> Result<Ready> {
        let StoredUnits { mut slabs, mut places } = stored;
        // The bus first: the rest is done while the last bytes cross.
        let copied = slabs.as_mut().map_or(Ok(Vec::new()), |(slabs, _)| slabs.finish_upload())?;
        let ends = copied.iter().map(|copy| copy.end.clone()).collect();
        call.counters.add_copies(Stage::Upload, copied);
        let (mut known, mut unknown, mut packed) = (Vec::with_capacity(landed.len()), Vec::new(), Vec::new());
        for &unit in landed {
            match places[unit].take() {
                Some(Place::Stored { offset_bytes, size_bytes, headers }) => {
                    let frame = Frame { unit, src: offset_bytes..offset_bytes + size_bytes };
                    match headers {
                        Some(headers) => known.push((frame, headers)),
                        None => unknown.push(frame),
                    }
                }
                Some(Place::Packed(block)) => packed.push((unit, block)),
                None => {}
            }
        }
        let (frames, headers) = known.into_iter().unzip();
        Ok(Ready { slabs, copied: ends, frames, headers, batch: None, decoded: None, scratch: None, unknown, packed })
    }

    /// Scratch memory that the decoding needs; 0 when nothing waits for it.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let waiting = self.batch.as_ref().filter(|_| self.decoded.is_none());
        waiting.map_or(0, |batch| batch.scratch_bytes() as u64)
    }

    /// What was reserved for kernels that are launched already.
    pub(crate) fn take_scratch(&mut self) -> Option<Reserved> {
        self.scratch.take()
    }

    /// Puts the decoding behind what crosses the bus; its scratch memory is reserved.
    fn launch(&mut self, decoding: &Decoding, call: &Context) -> Result<()> {
        let (Some(batch), stream) = (&mut self.batch, &decoding.stream) else { return Ok(()) };
        self.copied.iter().try_for_each(|end| stream.wait(end))?;
        let size_bytes = (self.frames.len() * decoding.packed_size_bytes) as u64;
        call.counters.time_on(Stage::Decode, size_bytes, stream, || batch.run(stream))?;
        self.decoded = Some(stream.record()?);
        Ok(())
    }

    /// Lays the decoding out, once more perhaps, within so many bytes of scratch memory where that can be.
    pub(crate) fn prepare_within(&mut self, decoding: &Decoding, scratch_limit_bytes: usize) -> Result<()> {
        // Memory for packed bytes is there for one layout at a time.
        self.batch = None;
        let (Some((slabs, arena)), false) = (&self.slabs, self.frames.is_empty()) else { return Ok(()) };
        let ranges = self.frames.iter().map(|frame| frame.src.clone()).collect();
        let (buffer, host) = (&arena.slice(..slabs.carved_bytes())?, slabs.bytes()?);
        let source = Source { buffer, ranges, host, headers: &self.headers };
        self.batch = Some(decoding.native.prepare(source, scratch_limit_bytes, &decoding.stream)?);
        Ok(())
    }

    /// Leaves all of it to the host.
    pub(crate) fn give_up_kernels(&mut self) {
        self.batch = None;
        self.unknown.append(&mut self.frames);
    }

    /// Launches the decoding unless that was done; `scatters` then waits for it. What the host decodes goes by `copies`.
    /// Scratch memory is reserved.
    pub(crate) fn place(
        mut self,
        decoding: &Decoding,
        plan: &Batch,
        program: &Program,
        copies: &Stream,
        scatters: &Stream,
        call: &Context,
    ) -> Result<Decoded> {
        if self.decoded.is_none() {
            self.launch(decoding, call)?;
        }
        let Ready { slabs, copied, frames, batch, decoded: end, unknown, mut packed, .. } = self;
        let all_unknown = frames.is_empty() && !unknown.is_empty();
        if let (Some((slabs, arena)), false) = (&slabs, unknown.is_empty()) {
            let stored = match slabs.bytes()? {
                Some(bytes) => StoredAt::Slab(bytes),
                None => {
                    copied.iter().try_for_each(Event::synchronize)?;
                    StoredAt::Device(arena, copies)
                }
            };
            packed.extend(decode_on_host(&unknown, plan, &stored, program, call));
        }
        let mut decoded = Decoded { packed: Vec::new(), pending: None, unknown: all_unknown };
        for (unit, block) in packed {
            let buffer = pool::allocate(block.len(), copies)?;
            call.counters.time(Stage::Upload, block.len() as u64, || copies.h2d(&block, &buffer))?;
            decoded.packed.push((buffer, plan.units[unit].transfer_boxes(0).collect()));
        }
        if let (Some(batch), Some(end)) = (batch, end) {
            scatters.wait(&end)?;
            let (packed, pending) = packed_units(batch, frames.iter().map(|frame| &plan.units[frame.unit]));
            decoded.packed.push(packed);
            decoded.pending = Some(pending);
        }
        Ok(decoded)
    }
}

pub(crate) fn decode(program: &Program, call: &Context, stored: &[u8]) -> Result<ScratchBlock> {
    let size_bytes = program.packed_size_bytes();
    let mut packed = call.scratch.take(size_bytes)?;
    call.counters.time(Stage::Decode, size_bytes as u64, || program.decode(stored, &mut packed))?;
    Ok(packed)
}

/// A batch that was put on a stream, to be checked when it is done.
pub(crate) struct Pending {
    batch: NativeBatch,
    names: Vec<String>,
}

impl Pending {
    /// Hands what is damaged to the call. Waits for the batch.
    pub(crate) fn check(mut self, call: &Context) {
        match self.batch.check() {
            Ok(results) => {
                let failed =
                    results.into_iter().zip(self.names).filter_map(|(result, name)| Some((result.err()?, name)));
                failed.for_each(|(error, name)| call.fail(error.at(name)));
            }
            Err(error) => call.fail(error),
        }
    }
}

/// Packed bytes on the device, and the boxes that lie in them.
pub(crate) type Packed = (Buffer, Vec<TransferBox>);

/// What became of one batch.
pub(crate) struct Decoded {
    pub(crate) packed: Vec<Packed>,
    pub(crate) pending: Option<Pending>,
    /// Whether kernels knew none of its frames: then the host had better decode the others too.
    pub(crate) unknown: bool,
}

/// The streams that batches decode on, in turn.
pub(crate) struct Decoders {
    device: Device,
    source: Streams,
    streams: Vec<Stream>,
    next: usize,
}

impl Decoders {
    pub(crate) fn new(device: Device, source: Streams) -> Decoders {
        Decoders { device, source, streams: Vec::new(), next: 0 }
    }

    /// Gives the streams back, on which nothing is under way any more.
    pub(crate) fn give_back(&mut self) {
        self.streams.drain(..).for_each(|stream| self.source.give_back(&stream));
    }

    /// Waits for all of them.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }

    /// The next stream in turn.
    pub(crate) fn stream(&mut self) -> Result<Stream> {
        self.next = (self.next + 1) % STREAMS;
        while self.streams.len() <= self.next {
            self.streams.push(self.source.take(self.device)?);
        }
        Ok(self.streams[self.next].clone())
    }
}

/// Where the stored bytes of a batch are by now.
enum StoredAt<'a> {
    Slab(&'a [u8]),
    /// On the device alone.
    Device(&'a Buffer, &'a Stream),
}

impl StoredAt<'_> {
    fn decode(&self, program: &Program, call: &Context, range: Range<usize>) -> Result<ScratchBlock> {
        match self {
            StoredAt::Slab(bytes) => decode(program, call, &bytes[range]),
            StoredAt::Device(arena, stream) => {
                let mut stored = call.scratch.take(range.len())?;
                stream.d2h(&arena.slice(range)?, &mut stored)?;
                decode(program, call, &stored)
            }
        }
    }
}

/// Decodes frames that kernels do not know, which is rare, on as many threads as the call may have. What fails is handed
/// to the call.
fn decode_on_host(
    frames: &[Frame],
    plan: &Batch,
    stored: &StoredAt<'_>,
    program: &Program,
    call: &Context,
) -> Vec<(usize, ScratchBlock)> {
    let (next, packed) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(frames.len())));
    let work = || {
        while let Some(frame) = frames.get(next.fetch_add(1, Ordering::Relaxed)) {
            let decoded = call.check_cancelled().and_then(|()| stored.decode(program, call, frame.src.clone()));
            match decoded {
                Ok(block) => lock(&packed).push((frame.unit, block)),
                Err(error) => call.fail(error.at(plan.units[frame.unit].name.to_string())),
            }
        }
    };
    in_threads(call.threads.min(frames.len()), work);
    packed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the device's passes over what the host decoded of these units, each from its offset in `arena` on.
pub(crate) fn finish<'a>(
    native: &Native,
    arena: &Buffer,
    units: impl Iterator<Item = (&'a Unit, usize)>,
    stream: &Stream,
    call: &Context,
) -> Result<(Packed, Pending)> {
    let size_bytes = native.input_bytes().unwrap_or(0);
    let (units, ranges): (Vec<&Unit>, Vec<_>) = units.map(|(unit, at)| (unit, at..at + size_bytes)).unzip();
    let source = Source { buffer: arena, ranges, host: None, headers: &[] };
    let mut batch = native.prepare(source, usize::MAX, stream)?;
    let decoded_bytes = units.iter().map(|unit| unit.packed_size_bytes as u64).sum();
    call.counters.time_on(Stage::Decode, decoded_bytes, stream, || batch.run(stream))?;
    Ok(packed_units(batch, units.into_iter()))
}

/// Where the packed bytes of units lie, in the order of the batch.
fn packed_units<'a>(batch: NativeBatch, units: impl Iterator<Item = &'a Unit>) -> (Packed, Pending) {
    let (packed, offsets) = batch.packed();
    let (mut boxes, mut names) = (Vec::with_capacity(offsets.len()), Vec::with_capacity(offsets.len()));
    for (unit, offset) in units.zip(offsets) {
        boxes.extend(unit.transfer_boxes(offset));
        names.push(unit.name.to_string());
    }
    ((packed.clone(), boxes), Pending { batch, names })
}
