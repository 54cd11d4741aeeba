//! A batch of a read that is in flight: its started requests, and the outcome of each of its chunks. Its route owns the
//! memory of each state.
//!
//! | state | what happens | who does it |
//! |---|---|---|
//! | `Fetching` | bytes come: [`BatchRoute::lease`], [`arrived`](BatchRoute::arrived), [`land`](BatchRoute::land), [`fill`](BatchRoute::fill) | any thread |
//! | `Fetched` | every unit ended: [`BatchRoute::complete`]. A batch for host memory is then done | the thread that ended the last unit |
//! | `Decoding` | kernels decode, and scatter the elements: [`DeviceRoute::decode`] | the calling thread, on streams |
//! | `Placed` | the kernels ended: [`DeviceRoute::check`]. Memory goes back | the calling thread |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuzarr_device::internal::is_worker;
use cuzarr_device::{Buffer, Device, Stream, TransferBox, profile};

use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Batch, ChunkLayout, Fill, IndexRead, Read, SMALL_BYTES, SizeRule, Unit};
use crate::run::chunk_cache::{CallCache, KeptContent};
use crate::run::context::Context;
use crate::run::read::stored::{Stored, foreign_memory};
use crate::run::report::Stage;
use crate::run::schedule::pool::{Here, Share};
use crate::store::{ByteRange, Lease, OpenValues, ReadOutcome, ReadRequest, ReadSink, StoreExt, Version, Workers};

/// If the chunks of one read have at least this many decoded bytes, several threads decode them.
const SHARED_READ_BYTES: usize = 1 << 18;

/// Decodes the chunks of one batch as their bytes come, and puts their elements into the results. Any thread that
/// brings bytes may call its methods.
pub(crate) trait BatchRoute: Send + Sync + 'static {
    /// Lends memory to the store for a read of `size_bytes`: the memory where the route needs the bytes, or scratch
    /// memory.
    fn lease(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>>;

    /// Takes over the stored bytes of a finished read, in the memory that was lent for it. Returns the scratch memory
    /// if the units must be landed one by one; `None` if the bytes are in their place.
    fn arrived(&self, batch: &Batch, read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>>;

    /// The device in whose memory the store may hand over stored bytes to this route, besides host memory.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Lends memory of the device [`BatchRoute::device`] for a read of `size_bytes`.
    fn lease_on_device(&self, _batch: &Batch, _read: usize, _size_bytes: usize) -> Result<Buffer> {
        Err(foreign_memory())
    }

    /// Takes over the stored bytes of a finished read, in memory of the route's device. The route then decodes their
    /// units itself.
    fn arrived_on_device(&self, _batch: &Batch, _read: usize, _bytes: Buffer) -> Result<()> {
        Err(foreign_memory())
    }

    /// Decodes the stored bytes of one chunk into the memory where the route needs the elements.
    fn land(&self, batch: &Batch, unit: usize, stored: &[u8]) -> Result<()>;

    /// Writes the fill value to a box of a result for which the store has no chunk. `number` is the number of the unit;
    /// fills are counted behind all units.
    fn fill(&self, number: usize, fill: &Fill) -> Result<()>;

    /// Whether this batch has cached chunks that the host must copy to the results with [`BatchRoute::place_kept`].
    fn places_kept(&self) -> bool {
        false
    }

    /// Moves the elements of a chunk from the chunk cache to the results. `kept` is its number in the batch.
    fn place_kept(&self, _batch: &Batch, _kept: usize) -> Result<()> {
        Ok(())
    }

    /// Does the work of a batch that needs all of its chunks, after the last chunk came or was found missing. `_landed`
    /// are the units that landed. It runs on the thread that ended the last unit, and does not run after a failure.
    fn complete(&self, _batch: &Batch, _landed: &[usize]) {}
}

/// The bytes of decoded chunks on a device, in one buffer or in several.
#[derive(Clone)]
pub(crate) enum PackedBytes {
    /// One buffer in device memory with the decoded bytes for all boxes of one result.
    Together(Buffer),
    /// A separate buffer of decoded bytes in device memory for each box of one result.
    Each(Vec<Buffer>),
}

/// Decoded chunks of one layout in device memory, with the boxes of one result that their elements fill.
pub(crate) struct Packed {
    /// The result's number among the results of the call.
    pub(crate) out: usize,
    pub(crate) bytes: PackedBytes,
    pub(crate) layout: Arc<ChunkLayout>,
    pub(crate) boxes: Vec<TransferBox>,
    /// Chunks that also go to the chunk cache, each with the offset of its decoded bytes in the buffer.
    pub(crate) keep: Vec<(Unit, usize)>,
}

/// A read route into device memory: the work on a batch after its bytes were fetched. All of it runs on the calling
/// thread.
pub(crate) trait DeviceRoute: BatchRoute {
    /// Size of the scratch memory that must be reserved before the batch can be decoded; 0 if it needs none.
    fn scratch_bytes(&self) -> u64 {
        0
    }

    /// Prepares the decoding of the batch again, to use at most `scratch_bytes` of scratch memory. `None` leaves the
    /// decoding to the host.
    fn lay_out(&self, _batch: &Batch, _scratch_bytes: Option<usize>) -> Result<()> {
        Ok(())
    }

    /// Enqueues the remaining work on a fetched batch on CUDA streams, above all the decoding. Returns the packed
    /// elements, which are complete for work on the stream `scatters`. Elements that the host decodes are uploaded on
    /// `copies`. Scratch memory is reserved already.
    fn decode(&self, batch: &Batch, copies: &Stream, scatters: &Stream) -> Result<Vec<Packed>>;

    /// Checks whether all frames of the batch could be decoded, after its elements are in the results. Reports damage
    /// to the call, and returns the elements that the host had to decode.
    fn check(&self) -> Result<Vec<Packed>>;

    /// Ends the batch after the call failed, so that its memory is free.
    fn give_up(&self);
}

/// The stages of a batch in order: its bytes are fetched, all bytes came, it is being decoded, its elements are placed.
pub(crate) enum State<Fetching, Fetched, Decoding> {
    Fetching(Fetching),
    Fetched(Fetched),
    Decoding(Decoding),
    Placed,
}

/// The stage in which one batch is, and the data that its route keeps in that stage. Threads change it one after
/// another.
pub(crate) struct Life<Fetching, Fetched, Decoding>(Mutex<State<Fetching, Fetched, Decoding>>);

impl<Fetching, Fetched, Decoding> Life<Fetching, Fetched, Decoding> {
    /// Makes the state of a new batch, whose bytes are being fetched.
    pub(crate) fn new(fetching: Fetching) -> Self {
        Life(Mutex::new(State::Fetching(fetching)))
    }

    fn state(&self) -> MutexGuard<'_, State<Fetching, Fetched, Decoding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the route's data of a batch whose bytes are still being fetched.
    ///
    /// # Errors
    /// `StoreFailed` when the batch was complete already.
    pub(crate) fn fetching<T>(&self, work: impl FnOnce(&mut Fetching) -> Result<T>) -> Result<T> {
        match &mut *self.state() {
            State::Fetching(fetching) => work(fetching),
            _ => Err(Error::new(ErrorKind::StoreFailed, "the store reported on a batch whose reads had all ended")),
        }
    }

    /// Moves a batch whose bytes have all come to the state `Fetched`. From then on, no other thread fills it or waits
    /// for its state.
    pub(crate) fn fetched(&self, next: impl FnOnce(Fetching) -> Result<Fetched>) -> Result<()> {
        let mut state = self.state();
        if let State::Fetching(fetching) = std::mem::replace(&mut *state, State::Placed) {
            *state = State::Fetched(next(fetching)?);
        }
        Ok(())
    }

    /// Calls `work` if all bytes of the batch have come but it is not being decoded yet; else returns `None`.
    pub(crate) fn when_fetched<T>(&self, work: impl FnOnce(&mut Fetched) -> T) -> Option<T> {
        if let State::Fetched(fetched) = &mut *self.state() { Some(work(fetched)) } else { None }
    }

    /// Moves a fetched batch to the state `Decoding`, with the data that `next` makes for it. `next` returns the new
    /// state and a value, which this returns.
    pub(crate) fn decoding<T: Default>(&self, next: impl FnOnce(Fetched) -> Result<(Decoding, T)>) -> Result<T> {
        let mut state = self.state();
        let State::Fetched(fetched) = std::mem::replace(&mut *state, State::Placed) else { return Ok(T::default()) };
        let (decoding, packed) = next(fetched)?;
        *state = State::Decoding(decoding);
        Ok(packed)
    }

    /// Ends the batch, and returns the stage in which it was, with the route's data.
    pub(crate) fn end(&self) -> State<Fetching, Fetched, Decoding> {
        std::mem::replace(&mut *self.state(), State::Placed)
    }
}

/// How far one chunk of a batch has come: not yet, decoded, missing, or in device memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The chunk's bytes have not come yet, or its read failed.
    Unknown,
    /// The chunk was decoded, or its stored bytes are in the memory from which the route will decode them.
    Landed,
    /// The store has no such chunk.
    Missing,
    /// The store handed over the chunk's stored bytes in device memory.
    Resident,
}

/// A batch whose reads were started, with its route and the outcome of each of its chunks.
pub(crate) struct InFlight<R: ?Sized> {
    pub(crate) batch: Batch,
    outcomes: Mutex<Vec<Outcome>>,
    pub(crate) route: R,
}

impl<R: ?Sized> InFlight<R> {
    /// The numbers of the batch's chunks that were decoded, or are ready for the route to decode.
    fn landed(&self) -> Vec<usize> {
        self.units_that(Outcome::Landed)
    }

    /// The numbers of the batch's chunks that the store does not have.
    pub(crate) fn missing(&self) -> Vec<usize> {
        self.units_that(Outcome::Missing)
    }

    fn units_that(&self, outcome: Outcome) -> Vec<usize> {
        self.outcomes().iter().enumerate().filter(|(_, came)| **came == outcome).map(|(unit, _)| unit).collect()
    }

    fn outcomes(&self) -> MutexGuard<'_, Vec<Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token that tells the coordinator exactly once that a batch ended: after its last chunk, or when the token is
/// dropped.
struct Ticket {
    number: usize,
    workers: Share,
    remaining: AtomicUsize,
    sent: AtomicBool,
    call: Arc<Context>,
    sender: Sender<usize>,
}

impl Ticket {
    fn end<R: BatchRoute>(&self, flight: &InFlight<R>, units: usize) {
        if self.remaining.fetch_sub(units, Ordering::AcqRel) == units {
            if !self.call.is_cancelled() {
                flight.route.complete(&flight.batch, &flight.landed());
            }
            self.send();
        }
    }

    fn send(&self) {
        if !self.sent.swap(true, Ordering::AcqRel) {
            // The receiver lives longer than every batch, unless its thread panics. Then no thread waits.
            let _ = self.sender.send(self.number);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !*self.sent.get_mut() {
            self.call.fail(Error::new(ErrorKind::StoreFailed, "the store dropped a read without an outcome"));
            self.send();
        }
    }
}

struct Sink<R> {
    flight: Arc<InFlight<R>>,
    ticket: Arc<Ticket>,
    /// The number of the array whose reads this sink takes; `first` is the number of its first read in the batch.
    array: usize,
    first: usize,
    /// For each read of the batch, its start time in nanoseconds from the beginning of the call.
    begun_ns: Vec<AtomicU64>,
    /// For each read of the batch, its size in bytes.
    size_bytes: Vec<AtomicU64>,
    /// For each read of the batch, the number of the profiler's time range that shows it.
    ranges: Vec<AtomicU64>,
    /// Whether the chunks lie in shards whose version is known from the shard's index. Such shards stay open between
    /// batches.
    in_shards: bool,
}

/// The call, the batch's number and the channel that a destination needs to start a batch.
pub(crate) struct Launcher<'a> {
    pub(crate) call: &'a Arc<Context>,
    pub(crate) number: usize,
    pub(crate) sender: &'a Sender<usize>,
}

/// Starts the reads of a batch of chunks. Its number comes through `sender` when every unit ended. Failures are
/// reported to the call.
pub(crate) fn launch<R: BatchRoute>(launcher: &Launcher<'_>, batch: Batch, route: R) -> Arc<InFlight<R>> {
    let Launcher { call, number, sender } = *launcher;
    let kept = if route.places_kept() { batch.kept.len() } else { 0 };
    let ticket = Arc::new(Ticket {
        number,
        workers: call.workers(),
        remaining: AtomicUsize::new(batch.units.len() + batch.fills.len() + kept),
        sent: AtomicBool::new(false),
        call: Arc::clone(call),
        sender: sender.clone(),
    });
    let outcomes = Mutex::new(vec![Outcome::Unknown; batch.units.len()]);
    let flight = Arc::new(InFlight { batch, outcomes, route });
    fill(&flight, &ticket);
    place_kept(&flight, &ticket, kept);
    if flight.batch.reads.is_empty() && flight.batch.fills.is_empty() && kept == 0 {
        ticket.end(&flight, 0);
    }
    let mut first = 0;
    for reads in flight.batch.reads.chunk_by(|one, next| one.array == next.array) {
        let request = |read: &Read| ReadRequest { key: read.key.to_string(), range: read.range };
        let requests: Arc<[ReadRequest]> = reads.iter().map(request).collect();
        let numbers = || reads.iter().map(|_| AtomicU64::new(0)).collect();
        let (array, workers) = (reads[0].array, ticket.workers.clone());
        // A read of a remote store begins with its request.
        let asked_ns = if call.of(array).is_far() { call.elapsed_ns() } else { 0 };
        let sink = Arc::new(Sink {
            flight: Arc::clone(&flight),
            ticket: Arc::clone(&ticket),
            array,
            first,
            begun_ns: reads.iter().map(|_| AtomicU64::new(asked_ns)).collect(),
            size_bytes: numbers(),
            ranges: numbers(),
            in_shards: reads.iter().any(|read| read.version.is_some()),
        });
        match is_brief(call, &flight.batch) {
            true => call.read(array, requests, sink, &Here),
            false => call.read(array, requests, sink, &workers),
        }
        first += reads.len();
    }
    flight
}

/// Whether a batch is one small read of a local store, so that the calling thread does it itself.
fn is_brief(call: &Context, batch: &Batch) -> bool {
    let packed = batch.units.iter().map(|unit| unit.packed_size_bytes).sum::<usize>();
    let divides = |read: &Read| call.of(read.array).store.capabilities().divides_reads;
    packed <= SMALL_BYTES && matches!(&batch.reads[..], [one] if divides(one))
}

/// Fills the boxes of a batch that have no chunk, with as many jobs at a time as there are threads.
fn fill<R: BatchRoute>(flight: &Arc<InFlight<R>>, ticket: &Arc<Ticket>) {
    let count = flight.batch.fills.len();
    let share = count.div_ceil(ticket.call.threads).max(1);
    for from in (0..count).step_by(share) {
        let (flight, ticket) = (Arc::clone(flight), Arc::clone(ticket));
        ticket.workers.clone().spawn(Box::new(move || {
            let units = flight.batch.units.len();
            for (at, fill) in flight.batch.fills.iter().enumerate().take(from + share).skip(from) {
                let filled = ticket.call.check_cancelled().and_then(|()| flight.route.fill(units + at, fill));
                if let Err(error) = filled {
                    ticket.call.fail(error);
                }
                ticket.end(&flight, 1);
            }
        }));
    }
}

/// Puts chunks from the chunk cache into the results, on as many threads as the call may use if they are large.
fn place_kept<R: BatchRoute>(flight: &Arc<InFlight<R>>, ticket: &Arc<Ticket>, count: usize) {
    let work = |flight: &InFlight<R>, ticket: &Ticket, kept: usize| {
        let placed = ticket.call.check_cancelled().and_then(|()| flight.route.place_kept(&flight.batch, kept));
        if let Err(error) = placed {
            ticket.call.fail(error.at(flight.batch.kept[kept].0.name.to_string()));
        }
        ticket.end(flight, 1);
    };
    let bytes: usize = flight.batch.kept.iter().map(|(unit, _)| unit.packed_size_bytes).sum();
    if bytes <= SHARED_READ_BYTES || count == 1 {
        return (0..count).for_each(|kept| work(flight, ticket, kept));
    }
    let share = count.div_ceil(ticket.call.threads).max(1);
    for from in (0..count).step_by(share) {
        let (flight, ticket) = (Arc::clone(flight), Arc::clone(ticket));
        ticket.workers.clone().spawn(Box::new(move || {
            (from..count.min(from + share)).for_each(|kept| work(&flight, &ticket, kept));
        }));
    }
}

impl<R: BatchRoute> Sink<R> {
    /// Returns the read of the batch for which the store reports item `index`; `None` if there is none.
    fn read(&self, index: usize) -> Option<&Read> {
        // The store numbers the reads of one array only.
        (index < self.begun_ns.len()).then(|| &self.flight.batch.reads[self.first + index])
    }

    /// Notes that the store begins the read of item `index`, after a check that `size_bytes` is an allowed size.
    fn begin(&self, index: usize, size_bytes: u64) -> Result<usize> {
        self.ticket.call.check_cancelled()?;
        let read = self.read(index).ok_or_else(|| foreign_item(index))?;
        let size_bytes = check_size(read, size_bytes)?;
        // A read that began before keeps its start time.
        let now_ns = self.ticket.call.elapsed_ns();
        let _ = self.begun_ns[index].compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        self.ranges[index].store(profile::start(Stage::Fetch.name(), size_bytes as u64), Ordering::Relaxed);
        Ok(size_bytes)
    }
}

impl<R: BatchRoute> ReadSink for Sink<R> {
    fn check(&self) -> Result<()> {
        self.ticket.call.check_cancelled()
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.in_shards.then_some(&self.ticket.call.of(self.array).shards)
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        let read = self.read(index).ok_or_else(|| foreign_item(index))?;
        let checked = Context::check_version(read.version.as_ref(), &version);
        if let Some(cache) = self.cache() {
            match &read.version {
                None => cache.opened(read.array, &read.key, version),
                Some(_) if checked.is_err() => cache.forget(read.array, &read.key),
                Some(_) => {}
            }
        }
        checked
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        let size_bytes = self.begin(index, size_bytes)?;
        self.size_bytes[index].store(size_bytes as u64, Ordering::Relaxed);
        self.flight.route.lease(&self.flight.batch, self.first + index, size_bytes)
    }

    fn device(&self) -> Device {
        self.flight.route.device()
    }

    fn reserve_on_device(&self, index: usize, size_bytes: u64) -> Result<Buffer> {
        let size_bytes = self.begin(index, size_bytes)?;
        self.flight.route.lease_on_device(&self.flight.batch, self.first + index, size_bytes)
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let Some(read) = self.read(index) else {
            return self.ticket.call.fail(foreign_item(index));
        };
        profile::end(self.ranges[index].load(Ordering::Relaxed));
        let begun = self.begun_ns[index].load(Ordering::Relaxed);
        match outcome {
            Ok(ReadOutcome::Filled(lease)) => {
                let time = Duration::from_nanos(self.ticket.call.elapsed_ns().saturating_sub(begun));
                // If the read's memory was divided, only its first part comes back.
                let size_bytes = self.size_bytes[index].load(Ordering::Relaxed);
                self.ticket.call.counters.add(Stage::Fetch, size_bytes, time);
                self.filled(self.first + index, lease);
            }
            Ok(ReadOutcome::OnDevice(bytes)) => {
                let size_bytes = bytes.size_bytes() as u64;
                // If `begin` was not called, because the store lent its own memory, the read has no duration.
                let begun = if begun == 0 { self.ticket.call.elapsed_ns() } else { begun };
                let time = Duration::from_nanos(self.ticket.call.elapsed_ns().saturating_sub(begun));
                self.ticket.call.counters.add(Stage::Fetch, size_bytes, time);
                let route = &self.flight.route;
                let arrived = check_size(read, size_bytes)
                    .and_then(|_| route.arrived_on_device(&self.flight.batch, self.first + index, bytes));
                match arrived {
                    Ok(()) => self.flight.outcomes()[read.units.clone()].fill(Outcome::Resident),
                    Err(error) => {
                        let name = &self.flight.batch.units[read.units.start].name;
                        self.ticket.call.fail(error.at(name.to_string()));
                    }
                }
                self.ticket.end(&self.flight, read.units.len());
            }
            Ok(ReadOutcome::Missing) => {
                self.flight.outcomes()[read.units.clone()].fill(Outcome::Missing);
                for number in read.units.clone() {
                    for fill in self.flight.batch.units[number].fills() {
                        if let Err(error) = self.flight.route.fill(number, &fill) {
                            self.ticket.call.fail(error);
                        }
                    }
                    self.keep_missing(number);
                }
                self.ticket.end(&self.flight, read.units.len());
            }
            Err(error) => {
                let units = &self.flight.batch.units[read.units.clone()];
                self.ticket.call.fail(explain(&self.ticket.call, units, read, error));
                self.ticket.end(&self.flight, read.units.len());
            }
        }
    }
}

impl<R: BatchRoute> Sink<R> {
    /// The call's view of the chunk cache, if the array of this sink uses it.
    fn cache(&self) -> Option<&CallCache> {
        self.ticket.call.cache.get().filter(|cache| cache.is_for(self.array))
    }

    /// Records in the chunk cache that a stored object does not exist, if its store is reached over a network.
    fn keep_missing(&self, unit: usize) {
        let (call, unit) = (&self.ticket.call, &self.flight.batch.units[unit]);
        if let Some(cache) =
            self.cache().filter(|_| unit.keep && unit.version.is_none() && call.of(unit.array).is_far())
            && let Some(reserved) = cache.reserve(0)
        {
            cache.keep(unit, KeptContent::Missing, reserved);
        }
    }

    fn filled(&self, index: usize, lease: Box<dyn Lease>) {
        let (flight, ticket) = (&self.flight, &self.ticket);
        let units = flight.batch.reads[index].units.clone();
        let stored = match flight.route.arrived(&flight.batch, index, lease) {
            Ok(Some(stored)) => Arc::new(stored),
            Ok(None) => {
                flight.outcomes()[units.clone()].fill(Outcome::Landed);
                return ticket.end(flight, units.len());
            }
            Err(error) => {
                ticket.call.fail(error.at(flight.batch.units[units.start].name.to_string()));
                return ticket.end(flight, units.len());
            }
        };
        // A thread of the store returns to its work at once. A worker keeps the last unit for itself.
        let kept = if is_worker() { units.end - 1 } else { units.end };
        let packed: usize = flight.batch.units[units.clone()].iter().map(|unit| unit.packed_size_bytes).sum();
        if is_worker() && packed <= SHARED_READ_BYTES {
            return units.for_each(|unit| land(flight, ticket, index, unit, &stored));
        }
        for unit in units.start..kept {
            let (flight, ticket, stored) = (Arc::clone(flight), Arc::clone(ticket), Arc::clone(&stored));
            ticket.workers.clone().spawn(Box::new(move || land(&flight, &ticket, index, unit, &stored)));
        }
        (kept..units.end).for_each(|unit| land(flight, ticket, index, unit, &stored));
    }
}

fn land<R: BatchRoute>(flight: &InFlight<R>, ticket: &Ticket, read: usize, unit: usize, stored: &[u8]) {
    let batch = &flight.batch;
    let name = || batch.units[unit].name.to_string();
    let work = || {
        ticket.call.check_cancelled()?;
        let stored = match batch.unit_span(&batch.reads[read], unit) {
            None => stored,
            Some((from, size_bytes)) => stored
                .get(from..from + size_bytes)
                .ok_or_else(|| Error::new(ErrorKind::ChunkCorrupt, "the read was too short"))?,
        };
        flight.route.land(batch, unit, stored)
    };
    // A panic in a codec becomes a failure of its chunk, so that no thread waits forever.
    let landed = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::ChunkCorrupt, "a codec panicked; please report this")));
    match landed.at(name) {
        Ok(()) => flight.outcomes()[unit] = Outcome::Landed,
        Err(error) => ticket.call.fail(error),
    }
    ticket.end(flight, 1);
}

/// Adds to the error of a read where it happened: the name of the first chunk that failed.
fn explain(call: &Context, units: &[Unit], read: &Read, error: Error) -> Error {
    let is_failure = error.kind() == ErrorKind::StoreFailed && !call.is_cancelled();
    let store = &call.of(read.array).store;
    let size_bytes = if is_failure { store.size_bytes(&read.key).ok().flatten() } else { None };
    let end = |unit: &Unit| end_of(unit.range, unit.size).unwrap_or(0);
    let beyond = size_bytes.and_then(|size_bytes| units.iter().find(|unit| end(unit) > size_bytes));
    match (beyond, units.first()) {
        (Some(unit), _) => too_short(size_bytes.unwrap_or(0), end(unit), error).at(unit.name.to_string()),
        (None, Some(unit)) => error.at(unit.name.to_string()),
        (None, None) => error,
    }
}

/// Replaces the store's error for a read beyond the end of an object: the object is shorter than its metadata says, so
/// it is damaged.
pub(crate) fn shorter(call: &Context, index: &IndexRead, error: Error) -> Error {
    let Some(end) = end_of(index.range, SizeRule::Any) else { return error };
    if error.kind() != ErrorKind::StoreFailed || call.is_cancelled() {
        return error;
    }
    match call.of(index.array).store.size_bytes(&index.place.key) {
        Ok(Some(size_bytes)) if size_bytes < end => too_short(size_bytes, end, error),
        _ => error,
    }
}

/// The offset in the stored object at which a read range ends; `None` if it is not known.
fn end_of(range: ByteRange, size: SizeRule) -> Option<u64> {
    match (range, size) {
        (ByteRange::Span { offset, size_bytes }, _) => Some(offset.saturating_add(size_bytes)),
        (ByteRange::From { offset }, SizeRule::Exact(size_bytes)) => Some(offset.saturating_add(size_bytes)),
        _ => None,
    }
}

fn too_short(size_bytes: u64, end: u64, error: Error) -> Error {
    let message = format!("the object has {size_bytes} bytes, expected at least {end}");
    Error::new(ErrorKind::ChunkCorrupt, message).with_source(error)
}

/// Checks that the size of a read is one that the array's metadata allows.
fn check_size(read: &Read, size_bytes: u64) -> Result<usize> {
    let wrong = |expected: String| {
        let message = format!("got {size_bytes} bytes, expected {expected}");
        Err(Error::new(ErrorKind::ChunkCorrupt, message))
    };
    match read.size {
        SizeRule::Exact(expected) if size_bytes != expected => {
            let from = if let ByteRange::From { offset } = read.range { offset } else { 0 };
            match from {
                0 => wrong(expected.to_string()),
                from => wrong(format!("{expected} from byte {from} on")),
            }
        }
        SizeRule::AtMost(bound) if size_bytes > bound => {
            wrong(format!("at most {bound}, which is what its metadata allows"))
        }
        _ => usize::try_from(size_bytes).map_err(|_| {
            Error::new(ErrorKind::OutOfMemory, format!("not enough host memory for a chunk of {size_bytes} bytes"))
        }),
    }
}

fn foreign_item(index: usize) -> Error {
    Error::new(ErrorKind::StoreFailed, format!("the store reported on item {index}, which was not requested"))
}
