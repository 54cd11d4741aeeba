//! Reading into device memory: chunks are decoded by all cores into slabs of pinned memory; a full slab crosses the bus in
//! one copy, and one launch moves its elements to their places. While one slab is filled, the one before crosses the bus
//! and the one before that is scattered. Where the device has kernels for the codec, chunks cross the bus encoded
//! (`route/kernels.rs`).

mod batch;
mod memory;
mod out;
mod slab_plan;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use cuzarr_device::transfer::{fill_boxes_on, scatter_on};
use cuzarr_device::{Buffer, Device, Event, NdBuffer, Slab, SlabRing, Stream, Tail, Transfer, TransferBox, pool};

use self::batch::{DeviceBatch, Fetched, FetchedBytes, Fetching, FetchingBytes, Pieces, State, Way};
use self::memory::{Scratch, Spare};
pub(crate) use self::out::{Arrived, InTurn, Out};
use self::slab_plan::{PIECE_ALIGNMENT_BYTES, SlabPlan};
use crate::codec::Program;
use crate::codec::native::Native;
use crate::error::Result;
use crate::plan::{Batch, Circumstances, ReadPlacement, Resident, Room, Route};
use crate::run::access::Access;
use crate::run::context::Context;
use crate::run::options::Options;
use crate::run::read::coordinator::{Destination, Launch, Launcher};
use crate::run::read::in_flight::{InFlight, launch};
use crate::run::read::route::kernels::{Decoders, Decoding, Packed, Pending, Ready, Slabs, StoredUnits, finish};
use crate::run::read::route::resident::{Placer, ResidentFrames, ResidentReads};
use crate::run::report::Stage;
use crate::run::schedule::budget::{Cost, Held, Reserved};

/// One part in so many of the limit is what a batch may take as scratch memory where it needs more than was expected.
const SCRATCH_SHARE: u64 = 2;
/// A batch whose stored bytes fit so many slabs has one for all of them.
const LEAST_SLABS: usize = 2;
/// One part in so many of the limit is what the slabs of a batch may take together where there are several: they leave some bytes empty.
const SERIES_SHARE: u64 = 4;
/// Batches that are fetched at once from a store that brings even one large read at full speed.
const DIVIDED_LOADING: usize = 4;
/// Units of one batch: their boxes are one launch.
const BATCH_UNITS: usize = 4096;

/// What every batch of a read into device memory shares.
struct Target {
    call: Arc<Context>,
    program: Arc<Program>,
    /// What is done with bytes that come in device memory; `None` where none may come so.
    resident: Option<Resident>,
    device: Device,
    read_missing: bool,
}

impl Target {
    /// Whether no codec has to run between stored and packed bytes.
    fn stored_is_packed(&self) -> bool {
        self.program.stored_is_packed()
    }

    /// The device in whose memory bytes may come as well as in the host's; `cpu` when they may not.
    fn resident_device(&self) -> Device {
        if self.resident.is_some() { self.device } else { Device::Cpu }
    }
}

/// A box of the result: its start and its extent.
type Extent = (Vec<usize>, Vec<usize>);

/// Reads into an nd-buffer on a device, or into several in turn.
pub(crate) struct DeviceDestination {
    target: Arc<Target>,
    out: Out,
    tail: Tail,
    packed_strides: Vec<isize>,
    fill: Vec<u8>,
    ring: SlabRing,
    /// How the next batch is carried out.
    route: Route,
    /// Packed bytes of a batch.
    batch_bytes: usize,
    copies: Stream,
    kernels: Stream,
    /// How many batches are on their way from the store.
    fetching: usize,
    /// Batches that came before one that was launched sooner, where order matters; and how many were placed.
    early: BTreeMap<usize, Arc<InFlight<DeviceBatch>>>,
    placed: usize,
    /// Batches on their way to the result, oldest first.
    decoding: VecDeque<InDecoding>,
    decoders: Decoders,
    /// Scratch memory of one batch that kernels decode.
    spare: Spare,
}

/// A batch on its way to the result: what it takes until `done`, and what must be asked then.
struct InDecoding {
    done: Event,
    _held: Held,
    scratch: Option<Scratch>,
    decoded: Option<Pending>,
    /// Frames that came in device memory, and what they reserved beyond the batch's share.
    frames: Option<ResidentFrames>,
    _extra: Vec<Reserved>,
}

impl DeviceDestination {
    pub(crate) fn new(
        call: &Arc<Context>,
        access: &Access,
        out: Out,
        packed_strides: Vec<isize>,
        options: &Options,
    ) -> Result<DeviceDestination> {
        let program = access.program()?;
        let device = access.device();
        let limit_bytes = usize::try_from(call.limit_bytes).unwrap_or(usize::MAX);
        let slab_bytes = usize::try_from(options.batch_bytes(device)).unwrap_or(limit_bytes);
        let chunks = out.len().div_ceil(access.chunk_elements().max(1)) as u64;
        let given = Circumstances {
            in_turn: matches!(out, Out::InTurn(_)),
            is_resident: call.store.is_on(device),
            ..options.circumstances(device, chunks)
        };
        let ReadPlacement { route, resident, batch_bytes } = ReadPlacement::new(program, &given);
        let target = Target {
            call: Arc::clone(call),
            program: Arc::clone(program),
            resident,
            device,
            read_missing: options.read_missing_chunks,
        };
        let (copies, kernels) = (call.streams.take(device)?, call.streams.take(device)?);
        call.counters.begin_on(&copies)?;
        Ok(DeviceDestination {
            target: Arc::new(target),
            out,
            tail: program.tail().clone(),
            packed_strides,
            fill: access.fill().to_vec(),
            ring: SlabRing::new(device, slab_bytes, limit_bytes)?,
            route,
            batch_bytes: usize::try_from(batch_bytes).unwrap_or(limit_bytes),
            copies,
            kernels,
            fetching: 0,
            early: BTreeMap::new(),
            placed: 0,
            decoding: VecDeque::new(),
            decoders: Decoders::new(device, call.streams.clone()),
            spare: Spare::default(),
        })
    }

    /// Most slabs on their way at once: enough for every thread to have a chunk, and some that cross the bus meanwhile.
    fn most_loading(&self) -> usize {
        let call = &self.target.call;
        let fetched_as_stored = self.route.kernels().is_some() || self.target.program.stored_is_packed();
        if fetched_as_stored && call.store.capabilities().divides_reads {
            return DIVIDED_LOADING;
        }
        let chunks_a_batch = (self.batch_bytes / self.target.program.packed_size_bytes().max(1)).max(1);
        call.threads.div_ceil(chunks_a_batch) + 3
    }

    /// Whether a batch of so many stored bytes comes by several slabs, which have so many bytes together: one that is used again soon
    /// is in the host's cache still.
    fn comes_in_series(&self, slab_bytes: usize, series_bytes: usize) -> bool {
        let reads_frames = self.route.kernels().is_none_or(|native| native.reads_frames());
        let most_bytes = self.target.call.limit_bytes / SERIES_SHARE;
        !reads_frames && slab_bytes > LEAST_SLABS * self.ring.slab_bytes() && series_bytes as u64 <= most_bytes
    }

    /// Lets the bytes of a slab cross the bus as they come, to memory of the device beside it.
    fn with_arena(&self, mut slab: Slab, size_bytes: usize) -> Result<(Slab, Buffer)> {
        let arena = pool::allocate(size_bytes, &self.copies)?;
        slab.upload_as_filled(&arena, &self.copies)?;
        Ok((slab, arena))
    }

    /// Puts the boxes that landed, and those that have no chunk, to their places.
    fn place(&mut self, flight: &InFlight<DeviceBatch>, fetched: Fetched) -> Result<()> {
        let Fetched { held, bytes, mut resident } = fetched;
        let target = Arc::clone(&self.target);
        let (bytes, scratch) = match (bytes, &flight.route.way) {
            (FetchedBytes::Kernels(ready), Way::Kernels(decoding)) => {
                let (ready, scratch) = self.with_scratch(ready?, decoding)?;
                (FetchedBytes::Kernels(Ok(ready)), scratch)
            }
            (bytes, _) => (bytes, None),
        };
        let kernels = self.kernels.clone();
        let placer = Placer { call: &target.call, batch: &flight.batch, program: &target.program, scatters: &kernels };
        let (mut packed, frames) = resident.place(target.resident.as_ref(), &mut self.decoders, &placer)?;
        let (done, _extra) = (kernels.record()?, resident.into_extra());
        // Kept before anything can fail: what was damaged must be asked in any case.
        self.decoding.push_back(InDecoding { done, _held: held, scratch, decoded: None, frames, _extra });
        packed.extend(match (bytes, &flight.route.way) {
            (FetchedBytes::Kernels(ready), Way::Kernels(decoding)) => self.decode(&flight.batch, *ready?, decoding)?,
            (FetchedBytes::Slab(pieces), Way::Slab(hybrid)) => {
                let native = hybrid.as_ref().map(|(_, native)| &**native);
                self.place_landed(&flight.batch, &flight.landed(), pieces, native)?.into_iter().collect()
            }
            _ => Vec::new(),
        });
        self.put(packed, boxes_without_chunk(flight))?;
        let done = self.kernels.record()?;
        if let Some(placing) = self.decoding.back_mut() {
            placing.done = done;
        }
        Ok(())
    }

    /// A batch that kernels decode, with the scratch memory that they need.
    fn with_scratch(&mut self, mut ready: Box<Ready>, decoding: &Decoding) -> Result<(Box<Ready>, Option<Scratch>)> {
        let scratch = match ready.take_scratch() {
            Some(reserved) => Some(Scratch::of(reserved)),
            None => self.scratch(&mut ready, |ready, bytes| ready.prepare_within(decoding, bytes))?,
        };
        Ok((ready, scratch))
    }

    /// Decodes what came of a batch.
    fn decode(&mut self, batch: &Batch, ready: Ready, decoding: &Decoding) -> Result<Vec<Packed>> {
        let Target { call, program, .. } = &*self.target;
        let decoded = ready.place(decoding, batch, program, &self.copies, &self.kernels, call)?;
        if decoded.unknown {
            (self.route, self.spare) = (Route::Host, Spare::None);
        }
        if let Some(placing) = self.decoding.back_mut() {
            placing.decoded = decoded.pending;
        }
        Ok(decoded.packed)
    }

    /// Uploads what landed in a slab; kernels do what the host left of it.
    fn place_landed(
        &mut self,
        batch: &Batch,
        landed: &[usize],
        pieces: Pieces,
        hybrid: Option<&Native>,
    ) -> Result<Option<Packed>> {
        let Pieces { slab, unit_offsets: offsets, .. } = pieces;
        let counters = &self.target.call.counters;
        let boxes: Vec<TransferBox> =
            landed.iter().flat_map(|&unit| batch.units[unit].transfer_boxes(offsets[unit])).collect();
        let Some((mut slab, arena)) = slab.filter(|_| !boxes.is_empty()) else { return Ok(None) };
        let copied = slab.finish_upload()?;
        copied.iter().try_for_each(|copy| self.kernels.wait(&copy.end))?;
        counters.add_copies(Stage::Upload, copied);
        let Some(native) = hybrid else { return Ok(Some((arena, boxes))) };
        let units = landed.iter().map(|&unit| (&batch.units[unit], offsets[unit]));
        let (packed, pending) = finish(native, &arena, units, &self.kernels, &self.target.call)?;
        if let Some(placing) = self.decoding.back_mut() {
            placing.decoded = Some(pending);
        }
        Ok(Some(packed))
    }

    /// Moves packed elements to their places, and fills boxes without a chunk.
    fn put(&mut self, packed: Vec<Packed>, fills: Vec<Extent>) -> Result<()> {
        if let Out::Whole(out) = &self.out {
            packed.into_iter().try_for_each(|packed| self.scatter(packed, out))?;
            return self.fill(&fills, out);
        }
        for (number, (packed, fills)) in out::by_number(packed, fills) {
            let Out::InTurn(in_turn) = &mut self.out else { break };
            let out = in_turn.memory(number, &self.kernels)?;
            let elems = packed.iter().flat_map(|(_, boxes)| boxes).map(|item| &item.extent);
            let elems =
                elems.chain(fills.iter().map(|(_, extent)| extent)).map(|extent| extent.iter().product::<usize>());
            let elems = elems.sum();
            packed.into_iter().try_for_each(|packed| self.scatter(packed, &out))?;
            self.fill(&fills, &out)?;
            if let Out::InTurn(in_turn) = &mut self.out {
                in_turn.placed(elems, &self.kernels)?;
            }
        }
        Ok(())
    }

    /// Moves packed elements to their places.
    fn scatter(&self, (packed, boxes): Packed, out: &NdBuffer) -> Result<()> {
        let size_bytes: usize = boxes.iter().map(|item| item.packed_size_bytes).sum();
        let transfer = Transfer { tail: self.tail.clone(), packed_strides: self.packed_strides.clone(), boxes };
        let counters = &self.target.call.counters;
        let scatter = || scatter_on(&packed, &transfer, out, &self.kernels);
        counters.time_on(Stage::Scatter, size_bytes as u64, &self.kernels, scatter)
    }

    fn fill(&self, boxes: &[Extent], out: &NdBuffer) -> Result<()> {
        if boxes.is_empty() {
            return Ok(());
        }
        let elements: usize = boxes.iter().map(|(_, extent)| extent.iter().product::<usize>()).sum();
        let size_bytes = (elements * self.fill.len()) as u64;
        let counters = &self.target.call.counters;
        let fill = || fill_boxes_on(out, boxes, &self.fill, &self.kernels);
        counters.time_on(Stage::Fill, size_bytes, &self.kernels, fill)
    }

    /// A batch came whose predecessors were placed, where that matters.
    fn close_now(&mut self, flight: &InFlight<DeviceBatch>) -> Result<()> {
        self.placed += 1;
        self.fetching = self.fetching.saturating_sub(1);
        flight.route.take().map_or(Ok(()), |fetched| self.place(flight, fetched))
    }
}

fn boxes_without_chunk<R>(flight: &InFlight<R>) -> Vec<Extent> {
    let missing = flight.missing();
    let missing = missing.iter().flat_map(|&unit| &flight.batch.units[unit].places);
    let missing = missing.map(|place| (place.start.clone(), place.extent.clone()));
    let known = flight.batch.fills.iter().map(|fill| (fill.start.clone(), fill.extent.clone()));
    missing.chain(known).collect()
}

impl Destination for DeviceDestination {
    type Route = DeviceBatch;

    fn room(&self) -> Room {
        Room { packed_bytes: self.batch_bytes, units: BATCH_UNITS, alignment_bytes: PIECE_ALIGNMENT_BYTES }
    }

    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<DeviceBatch>> {
        if !alone && self.fetching >= self.most_loading() {
            return Ok(Launch::NoMemory(batch));
        }
        let plan = SlabPlan::new(&batch, self.target.stored_is_packed());
        let resident = self.target.resident.clone();
        let scratch_bytes = self.scratch_bytes(plan.total_bytes);
        let slab_bytes =
            if self.route.kernels().is_some() { StoredUnits::slab_bytes(&batch) } else { plan.total_bytes };
        let (cost, series_bytes) = (self.cost(slab_bytes, plan.total_bytes), self.ring.series_bytes(slab_bytes));
        let in_series = resident.is_none() && self.comes_in_series(slab_bytes, series_bytes);
        let bytes = plan.total_bytes.max(slab_bytes);
        let resident_cost = resident
            .as_ref()
            .map(|resident| Cost { device: resident.device_bytes(bytes, batch.units.len()), ..Cost::default() });
        let (slab, held) = match (bytes, resident_cost) {
            (_, Some(cost)) => match self.reserve(cost, 0, alone)? {
                Some(held) => (None, held),
                None => return Ok(Launch::NoMemory(batch)),
            },
            (0, None) => (None, self.target.call.memory.take(Cost::default(), self.target.call.limit_bytes)?),
            (_, None) if in_series => {
                match self.reserve(Cost { pinned: series_bytes as u64, ..cost }, scratch_bytes, alone)? {
                    Some(held) => (None, held),
                    None => return Ok(Launch::NoMemory(batch)),
                }
            }
            (_, None) => match self.acquire(slab_bytes, cost, scratch_bytes, alone)? {
                Some((slab, held)) => (Some(self.with_arena(slab, slab_bytes)?), held),
                None => return Ok(Launch::NoMemory(batch)),
            },
        };
        let way = Way::by(&self.route, |native| {
            let most = scratch_bytes.max(self.target.call.limit_bytes / SCRATCH_SHARE) as usize;
            let (stream, packed_size_bytes) = (self.decoders.stream()?, self.target.program.packed_size_bytes());
            Ok(Decoding { native, stream, packed_size_bytes, scratch_limit_bytes: most })
        })?;
        let bytes = match &way {
            Way::Slab(_) => FetchingBytes::Slab(Pieces::carve(slab, &plan)?),
            Way::Kernels(_) => {
                let slabs = match slab {
                    None if in_series => {
                        let arena = pool::allocate(slab_bytes, &self.copies)?;
                        Some((Slabs::Series(self.ring.series(&arena, &self.copies)), arena))
                    }
                    slab => slab.map(|(slab, arena)| (Slabs::Whole(slab), arena)),
                };
                FetchingBytes::Kernels(StoredUnits::new(slabs, batch.units.len()))
            }
        };
        self.fetching += 1;
        let state = Mutex::new(State::Fetching(Fetching { held, bytes, resident: ResidentReads::default() }));
        let route = DeviceBatch { target: Arc::clone(&self.target), way, units: plan.units, state };
        Ok(Launch::Launched(launch(launcher.call, batch, route, launcher.number, launcher.sender)))
    }

    fn close(&mut self, flight: Arc<InFlight<DeviceBatch>>, number: usize) -> Result<()> {
        self.collect(false)?;
        if let Out::Whole(_) = self.out {
            return self.close_now(&flight);
        }
        self.early.insert(number, flight);
        while let Some(flight) = self.early.remove(&self.placed) {
            self.close_now(&flight)?;
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        self.collect(false)?;
        self.target.call.counters.settle()
    }

    fn finish(&mut self) -> Result<()> {
        // There are some when the call failed: then nothing of them is placed.
        for flight in std::mem::take(&mut self.early).into_values() {
            self.close_now(&flight)?;
        }
        let copied = self.copies.synchronize();
        // What ended is looked at while the last batch decodes, so that little is left behind it.
        let mut looked = self.target.call.counters.settle();
        while looked.is_ok() && !self.decoding.is_empty() {
            looked = self.collect(true);
        }
        let decoded = self.decoders.synchronize();
        let placed = self.kernels.synchronize();
        let placing = std::mem::take(&mut self.decoding);
        let checked: Vec<Result<()>> = placing.into_iter().map(|placing| self.check(placing)).collect();
        self.spare = Spare::None;
        // What was decoded on the host after all is on its way only now.
        let placed_again = self.kernels.synchronize();
        copied?;
        looked?;
        decoded?;
        placed?;
        checked.into_iter().collect::<Result<()>>()?;
        placed_again?;
        let streams = &self.target.call.streams;
        [&self.copies, &self.kernels].into_iter().for_each(|stream| streams.give_back(stream));
        self.decoders.give_back();
        self.target.call.counters.settle()
    }
}
