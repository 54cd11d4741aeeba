//! The read route of chunks that kernels decode on the device. Encoded chunks are fetched into a slab, one after the
//! other, and cross the bus in this form. Kernels decode all chunks of a batch in parallel. A batch holds many chunks,
//! because a warp decodes sequentially and takes milliseconds, no matter how many chunks there are. Several batches
//! decode at once, on separate streams.
//!
//! Each thread reads the headers of the frames that it fetched. The thread that fetched a batch's last bytes prepares
//! the decoding, and launches it if there is scratch memory at once. (That thread is awake; the calling thread might
//! have to wait for a core.) The calling thread does all other work, and all waiting for memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cuzarr_device::internal::{Copied, Slab, SlabPiece, SlabSeries, Threads, pool};
use cuzarr_device::{Buffer, Event, Stream};

use crate::codec::batch::{HostCopy, ScratchLimit};
use crate::codec::device::Headers;
use crate::codec::native::{NativeBatch, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Fill, SizeRule, Unit};
use crate::run::context::Context;
use crate::run::natives::Natives;
use crate::run::read::device::target::{Target, packed};
use crate::run::read::in_flight::{BatchRoute, DeviceRoute, Life, Packed, State};
use crate::run::read::stored::{Stored, check_missing};
use crate::run::report::Stage;
use crate::run::schedule::budget::{Held, Reserved};
use crate::run::schedule::scratch::ScratchBlock;
use crate::store::Lease;

/// Alignment of each read's bytes in a slab.
const ALIGNMENT_BYTES: usize = 256;

/// A batch whose stored bytes are copied to the device, where kernels decode them.
pub(crate) struct KernelsBatch {
    pub(crate) target: Arc<Target>,
    pub(crate) natives: Arc<Natives>,
    /// The CUDA stream on which kernels decode the batch.
    pub(crate) stream: Stream,
    /// Approximate limit of the scratch memory that kernels may use to decode the batch.
    pub(crate) scratch: ScratchLimit,
    pub(crate) life: Life<Fetching, Box<Fetched>, Decoding>,
}

/// Data of a batch while its stored bytes are fetched into slabs. Any thread fills the slabs, in any order.
pub(crate) struct Fetching {
    held: Held,
    slabs: Option<Slabs>,
    places: Vec<Option<Place>>,
}

/// Data of a batch whose stored bytes have all come, while they are copied to the device. Units are sorted by how they
/// are decoded.
pub(crate) struct Fetched {
    held: Held,
    slabs: Option<Slabs>,
    /// For each copy to the device, an event that marks its end.
    copied: Vec<Event>,
    /// Frames that kernels decode, in the order of `batch`.
    frames: Vec<Frame>,
    headers: Vec<Headers>,
    batch: Option<NativeBatch>,
    /// The decoded bytes, the launched batch and the event after it, if `complete` launched the decoding.
    decoded: Option<(Vec<Packed>, LaunchedDecoding, Event)>,
    scratch: Option<Reserved>,
    /// Frames that kernels cannot decode, so that the host must.
    unknown: Vec<Frame>,
    /// Numbers of chunks that the host decoded, with their decoded bytes.
    packed: Vec<(usize, ScratchBlock)>,
}

/// Data of a batch while kernels decode it, which keeps the batch's memory reserved.
pub(crate) struct Decoding {
    launched: Option<LaunchedDecoding>,
    _held: Held,
    _scratch: Option<Reserved>,
}

/// Pinned memory for the stored bytes of one batch, and the device memory to which they are copied.
pub(crate) enum Slabs {
    /// One slab for all bytes of the batch. Headers are read from it again when all bytes have come.
    Whole(Slab, Buffer),
    /// Several slabs, one after the other, for batches that are larger than a slab.
    Series(SlabSeries, Buffer),
}

/// The bytes of one chunk after they came: stored bytes in a slab, or decoded bytes in scratch memory.
enum Place {
    /// Stored bytes: their range among the bytes of the batch, and the frame's headers if kernels can decode it.
    Stored(Range<usize>, Option<Headers>),
    /// Decoded bytes in scratch memory, because the slab had no room for the stored bytes.
    Packed(ScratchBlock),
}

/// A chunk whose stored bytes are in a slab, with their range among all stored bytes of the batch.
struct Frame {
    unit: usize,
    src: Range<usize>,
}

/// Memory in a slab that is lent to the store for one read.
pub(crate) struct InSlab {
    piece: SlabPiece,
    size_bytes: usize,
    /// Offset of this memory among all stored bytes of the batch.
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

impl Slabs {
    /// Takes memory for a read of `size_bytes` from the slabs; `None` if there is not enough.
    fn carve(&mut self, size_bytes: usize) -> Result<Option<InSlab>> {
        Ok(match self {
            Slabs::Whole(slab, _) => slab.carve(size_bytes).map(|piece| InSlab::new(piece.offset_bytes(), piece)),
            Slabs::Series(series, _) => series.carve(size_bytes)?.map(|(at, piece)| InSlab::new(at, piece)),
        })
    }

    fn finish_upload(&mut self) -> Result<Vec<Copied>> {
        Ok(match self {
            Slabs::Whole(slab, _) => slab.finish_upload()?,
            Slabs::Series(series, _) => series.finish()?,
        })
    }

    /// The batch's stored bytes on the device, and on the host if the slab still has them.
    fn bytes(&self) -> Result<(Buffer, Option<&[u8]>)> {
        Ok(match self {
            Slabs::Whole(slab, arena) => {
                let carved = ..slab.carved_bytes();
                (arena.slice(carved)?, Some(&slab.bytes()?[carved]))
            }
            Slabs::Series(series, arena) => (arena.slice(..series.carved_bytes())?, None),
        })
    }
}

/// Number of bytes that the slabs of a batch must hold. A frame that is larger than its chunk gets no room, because
/// kernels would gain nothing.
pub(crate) fn slab_bytes(batch: &Batch) -> usize {
    let sizes = batch.reads.iter().enumerate().map(|(number, read)| match read.size {
        SizeRule::Exact(size_bytes) => size_bytes as usize,
        _ => batch.packed_bytes(number),
    });
    sizes.fold(0, |total: usize, size_bytes| total.next_multiple_of(ALIGNMENT_BYTES) + size_bytes)
}

impl Fetching {
    pub(crate) fn new(held: Held, slabs: Option<Slabs>, batch: &Batch) -> Fetching {
        Fetching { held, slabs, places: batch.units.iter().map(|_| None).collect() }
    }

    /// Copies the rest of the slabs to the device, and sorts the chunks `landed` by whether kernels or the host decode
    /// them.
    fn sort(self, landed: &[usize], call: &Context) -> Result<Box<Fetched>> {
        let Fetching { held, mut slabs, mut places } = self;
        // The upload is started first, so that units are sorted while the last bytes cross the bus.
        let copied = slabs.as_mut().map_or(Ok(Vec::new()), Slabs::finish_upload)?;
        let ends = copied.iter().map(|copy| copy.end.clone()).collect();
        call.counters.add_copies(Stage::Upload, copied);
        let (mut known, mut unknown, mut packed) = (Vec::with_capacity(landed.len()), Vec::new(), Vec::new());
        for &unit in landed {
            match places[unit].take() {
                Some(Place::Stored(src, Some(headers))) => known.push((Frame { unit, src }, headers)),
                Some(Place::Stored(src, None)) => unknown.push(Frame { unit, src }),
                Some(Place::Packed(block)) => packed.push((unit, block)),
                None => {}
            }
        }
        let (frames, headers) = known.into_iter().unzip();
        let (batch, decoded, scratch) = (None, None, None);
        Ok(Box::new(Fetched { held, slabs, copied: ends, frames, headers, batch, decoded, scratch, unknown, packed }))
    }
}

impl Fetched {
    /// Size of the scratch memory that must be reserved before the batch can be decoded; 0 if it needs none.
    fn scratch_bytes(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| batch.scratch_bytes() as u64)
    }

    /// Prepares the decoding of the batch's frames, or prepares it again, with this limit of scratch memory. It tries
    /// to use at most this much.
    fn lay_out(&mut self, route: &KernelsBatch, plan: &Batch, scratch: ScratchLimit) -> Result<()> {
        // The old batch is dropped first: there is memory for the packed bytes of only one.
        self.batch = None;
        let (Some(slabs), false) = (&self.slabs, self.frames.is_empty()) else { return Ok(()) };
        let ranges = self.frames.iter().map(|frame| frame.src.clone()).collect();
        let (buffer, bytes) = slabs.bytes()?;
        let source = Source { buffer: &buffer, ranges, host: HostCopy { bytes, headers: &self.headers } };
        let units = self.frames.iter().map(|frame| &plan.units[frame.unit]);
        self.batch = Some(route.natives.prepare(units, source, scratch, &route.stream)?);
        Ok(())
    }

    /// Enqueues the kernels that decode the batch's frames; they begin after the frames were copied to the device. Its
    /// scratch memory is reserved already.
    fn launch(&mut self, route: &KernelsBatch, plan: &Batch) -> Result<()> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        self.copied.iter().try_for_each(|end| route.stream.wait(end))?;
        let units = self.frames.iter().map(|frame| &plan.units[frame.unit]);
        let (elements, launched) = LaunchedDecoding::launch(&route.target.call, batch, units, &route.stream)?;
        self.decoded = Some((elements, launched, route.stream.record()?));
        Ok(())
    }

    /// Decodes on the host the frames that kernels cannot decode, on as many threads as the call may use. Such frames
    /// are rare. Failures are reported to the call.
    fn decode_unknown(&mut self, target: &Target, plan: &Batch, copies: &Stream) -> Result<()> {
        let (Some(slabs), false) = (&self.slabs, self.unknown.is_empty()) else { return Ok(()) };
        let (arena, host) = slabs.bytes()?;
        if host.is_none() {
            self.copied.iter().try_for_each(Event::synchronize)?;
        }
        let (Target { call, .. }, frames) = (target, &self.unknown);
        let decode = |unit: &Unit, range: Range<usize>| match host {
            Some(bytes) => decode(target, unit, &bytes[range]),
            None => {
                let mut stored = call.scratch.take(range.len())?;
                copies.d2h(&arena.slice(range)?, &mut stored)?;
                decode(target, unit, &stored)
            }
        };
        let work = |frame: &Frame| {
            let unit = &plan.units[frame.unit];
            let decoded = call.check_cancelled().and_then(|()| decode(unit, frame.src.clone()));
            decoded.map_err(|error| call.fail(error.at(unit.name.to_string()))).ok().map(|block| (frame.unit, block))
        };
        self.packed.extend(Threads::workers().map(call.threads, frames, work).into_iter().flatten());
        Ok(())
    }
}

impl BatchRoute for KernelsBatch {
    fn lease(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        let carve = |fetching: &mut Fetching| fetching.slabs.as_mut().map(|slabs| slabs.carve(size_bytes)).transpose();
        match self.life.fetching(carve)?.flatten() {
            Some(lease) => Ok(Box::new(lease)),
            None => Ok(Stored::take(&self.target.call, size_bytes, batch.packed_bytes(read))?),
        }
    }

    /// Reads the headers of the frames that came with a read. Many threads do this in parallel, because each access
    /// misses the cache.
    fn arrived(&self, batch: &Batch, read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        let lease = match Stored::or::<InSlab>(lease)? {
            Ok(stored) => return Ok(Some(stored)),
            Err(in_slab) => in_slab,
        };
        let held = || Error::new(ErrorKind::StoreFailed, "the store ended a read without returning its memory");
        let (bytes, read) = (lease.piece.whole().ok_or_else(held)?, &batch.reads[read]);
        for unit in read.units.clone() {
            let (from, size_bytes) = batch.unit_span(read, unit).unwrap_or((0, lease.size_bytes));
            let too_short = || Error::new(ErrorKind::ChunkCorrupt, "the read was too short");
            let stored = bytes.get(from..from + size_bytes).ok_or_else(too_short)?;
            let headers = self.natives.of(&batch.units[unit].layout).and_then(|native| native.headers(stored));
            let from = lease.at_bytes + from;
            self.put(unit, Place::Stored(from..from + size_bytes, headers))?;
        }
        Ok(None)
    }

    fn land(&self, batch: &Batch, unit: usize, stored: &[u8]) -> Result<()> {
        self.put(unit, Place::Packed(decode(&self.target, &batch.units[unit], stored)?))
    }

    fn fill(&self, _number: usize, fill: &Fill) -> Result<()> {
        check_missing(self.target.read_missing, fill)
    }

    /// Prepares the decoding of a batch whose bytes have all come, and launches it if there is scratch memory.
    fn complete(&self, batch: &Batch, landed: &[usize]) {
        let call = &self.target.call;
        let fetched = self.life.fetched(|fetching| {
            let mut fetched = fetching.sort(landed, call)?;
            fetched.lay_out(self, batch, self.scratch)?;
            if let bytes @ 1.. = fetched.scratch_bytes() {
                fetched.scratch = call.memory.device.try_take(bytes, call.limit_bytes);
                fetched.scratch.is_some().then(|| fetched.launch(self, batch)).transpose()?;
            }
            Ok(fetched)
        });
        if let Err(error) = fetched {
            call.fail(error);
        }
    }
}

impl DeviceRoute for KernelsBatch {
    fn scratch_bytes(&self) -> u64 {
        self.life.when_fetched(|fetched| fetched.scratch_bytes()).unwrap_or(0)
    }

    fn lay_out(&self, batch: &Batch, scratch_bytes: Option<usize>) -> Result<()> {
        let work = |fetched: &mut Box<Fetched>| match scratch_bytes {
            Some(scratch_bytes) => fetched.lay_out(self, batch, scratch_bytes.into()),
            None => {
                fetched.batch = None;
                fetched.unknown.append(&mut fetched.frames);
                Ok(())
            }
        };
        self.life.when_fetched(work).unwrap_or(Ok(()))
    }

    fn decode(&self, plan: &Batch, copies: &Stream, scatters: &Stream) -> Result<Vec<Packed>> {
        self.life.decoding(|mut fetched| {
            fetched.launch(self, plan)?;
            if fetched.frames.is_empty() && !fetched.unknown.is_empty() {
                self.target.kernels_help.store(false, Ordering::Relaxed);
            }
            fetched.decode_unknown(&self.target, plan, copies)?;
            let Fetched { held, decoded, scratch, packed: on_host, .. } = *fetched;
            let mut packed = upload(&self.target, plan, on_host, copies)?;
            let mut launched = None;
            if let Some((elements, under_way, end)) = decoded {
                scatters.wait(&end)?;
                packed.extend(elements);
                launched = Some(under_way);
            }
            Ok((Decoding { launched, _held: held, _scratch: scratch }, packed))
        })
    }

    fn check(&self) -> Result<Vec<Packed>> {
        if let State::Decoding(Decoding { launched: Some(launched), .. }) = self.life.end() {
            launched.check(&self.target.call);
        }
        Ok(Vec::new())
    }

    fn give_up(&self) {
        self.life.end();
    }
}

impl KernelsBatch {
    /// Records in which memory the bytes of a chunk are.
    fn put(&self, unit: usize, place: Place) -> Result<()> {
        self.life.fetching(|fetching| {
            fetching.places[unit] = Some(place);
            Ok(())
        })
    }
}

/// Decodes a chunk on the host into scratch memory.
pub(crate) fn decode(target: &Target, unit: &Unit, stored: &[u8]) -> Result<ScratchBlock> {
    let (call, program) = (&target.call, unit.layout.program()?);
    let size_bytes = program.packed_size_bytes();
    let mut packed = call.scratch.take(size_bytes)?;
    call.counters.time(Stage::Decode, size_bytes as u64, || program.decode(stored, &mut packed))?;
    Ok(packed)
}

/// Copies chunks that the host decoded to the device.
pub(crate) fn upload(
    target: &Target,
    plan: &Batch,
    decoded: Vec<(usize, ScratchBlock)>,
    copies: &Stream,
) -> Result<Vec<Packed>> {
    let upload = |(unit, block): (usize, ScratchBlock)| {
        let buffer = pool::allocate(block.len(), copies)?;
        let copy = || copies.h2d(&block, &buffer);
        target.call.counters.time(Stage::Upload, block.len() as u64, copy)?;
        Ok(packed(&buffer, std::iter::once((&plan.units[unit], 0))))
    };
    Ok(decoded.into_iter().map(upload).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// A batch of frames whose decoding kernels were launched. It is checked when they have ended.
pub(crate) struct LaunchedDecoding {
    batch: NativeBatch,
    names: Vec<String>,
}

impl LaunchedDecoding {
    /// Launches the kernels that decode a batch of frames. Also returns the packed bytes of its units, in the order of
    /// the batch.
    pub(crate) fn launch<'a>(
        call: &Context,
        mut batch: NativeBatch,
        units: impl Iterator<Item = &'a Unit> + Clone,
        stream: &Stream,
    ) -> Result<(Vec<Packed>, LaunchedDecoding)> {
        let size_bytes = units.clone().map(|unit| unit.packed_size_bytes as u64).sum();
        call.counters.time_on(Stage::Decode, size_bytes, stream, || batch.run(stream))?;
        let (buffer, offsets) = batch.packed();
        let elements = packed(buffer, units.clone().zip(offsets));
        let names = units.map(|unit| unit.name.to_string()).collect();
        Ok((elements, LaunchedDecoding { batch, names }))
    }

    /// Waits for the decoding kernels, and reports damaged frames to the call.
    pub(crate) fn check(self, call: &Context) {
        self.check_or(call, |_, error| Err(error));
    }

    /// Like [`LaunchedDecoding::check`], but calls `rescue` for each frame that kernels could not decode. It gets the
    /// number of the frame and its error.
    pub(crate) fn check_or(mut self, call: &Context, mut rescue: impl FnMut(usize, Error) -> Result<()>) {
        let results = match self.batch.check() {
            Ok(results) => results,
            Err(error) => return call.fail(error),
        };
        for (number, (result, name)) in results.into_iter().zip(self.names).enumerate() {
            if let Err(error) = result.or_else(|error| rescue(number, error)) {
                call.fail(error.at(name));
            }
        }
    }
}
