//! Reads into device memory: starts batches while there is memory, and moves decoded elements to the results. All cores
//! decode chunks into slabs of pinned memory. A full slab crosses the bus in one copy, and one launch moves its
//! elements to their places. While one slab is filled, the one before crosses the bus, and the one before that is
//! scattered. Where the device has kernels for the codec, chunks cross the bus encoded (`route/kernels.rs`). Results may
//! also be in host memory: then decoded chunks come back (`host.rs`).

mod host;
mod memory;
pub(crate) mod target;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuzarr_device::internal::transfer::{Scatter, fill_boxes_on, scatter_all_on};
use cuzarr_device::internal::{Slab, SlabRing, pool};
use cuzarr_device::{Buffer, Device, Event, NdBuffer, Stream, Tail, Transfer};

use self::host::HostOuts;
use self::target::Target;
use crate::codec::batch::ScratchLimit;
use crate::error::{Error, Result};
use crate::plan::{Batch, ChunkLayout, PLAIN_COPIES, ReadPlacement, Resident, Room, Route, Spacing};
use crate::run::access::Access;
use crate::run::chunk_cache::KeptContent;
use crate::run::context::Context;
use crate::run::natives::Natives;
use crate::run::options::Options;
use crate::run::read::cached::Unchecked;
use crate::run::read::destination::{Destination, Launch};
use crate::run::read::in_flight::{DeviceRoute, InFlight, Launcher, Life, Packed, PackedBytes, launch};
use crate::run::read::out::{Extent, InTurn, Out, by_number};
use crate::run::read::route::hybrid::{HybridBatch, PIECE_ALIGNMENT_BYTES, SlabPlan};
use crate::run::read::route::kernels::{self, KernelsBatch, Slabs};
use crate::run::read::route::resident::ResidentBatch;
use crate::run::report::Stage;
use crate::run::schedule::budget::{Cost, Reserved};
use crate::run::schedule::countdown::Countdown;
use crate::run::schedule::streams::Decoders;

/// A batch that needs more scratch memory than expected may use the memory limit divided by this.
const SCRATCH_SHARE: u64 = 2;
/// A batch that can also be decoded with less scratch memory, more slowly, may use the memory limit divided by this.
const SCRATCH_AIM_SHARE: u64 = 4;
/// Batches that are being fetched may together use the memory limit divided by this, if kernels need much memory too.
/// `LEAST_LOADING` batches are fetched in any case.
const LOADING_SHARE: u64 = 3;
const LEAST_LOADING: usize = 2;
/// A batch whose stored bytes fit into this many slabs gets one slab of its own size instead.
const LEAST_SLABS: usize = 2;
/// The slabs of pinned memory for one large batch may together use the memory limit divided by this. Such slabs leave
/// some bytes empty.
const SERIES_SHARE: u64 = 4;
/// Number of batches that are fetched at once from a store that serves even one large read at full speed.
const DIVIDED_LOADING: usize = 4;
/// Kernels write to pinned memory of the host if runs of neighbouring bytes have at least this size. Shorter writes use the
/// bus badly.
const LEAST_RUN_BYTES: u64 = 128;
/// Maximum number of chunks in a batch. One launch moves all their boxes.
const BATCH_UNITS: usize = 4096;

/// A batch of chunks on its way to device memory, on any read route.
type DeviceFlight = InFlight<dyn DeviceRoute>;

/// Receives the elements of a read into nd-buffers on a device.
pub(crate) struct DeviceDestination {
    call: Arc<Context>,
    groups: Vec<GroupState>,
    results: Vec<DeviceResult>,
    outs: Outs,
    ring: SlabRing,
    copies: Stream,
    kernels: Stream,
    /// The number of batches whose stored bytes are being fetched.
    fetching: usize,
    /// Batches that ended before an earlier batch did, kept for results that must be completed region by region.
    /// `placed` counts the batches whose elements were moved.
    early: BTreeMap<usize, Arc<DeviceFlight>>,
    placed: usize,
    /// Batches whose elements kernels are moving to the results, oldest first.
    decoding: VecDeque<InDecoding>,
    decoders: Decoders,
    /// Scratch memory that the call keeps reserved for one batch that kernels decode.
    spare: Option<Reserved>,
}

/// The memory of the results: whole results on the device or on the host, or regions of one array that are completed in
/// order.
pub(crate) enum Outs {
    Whole(Vec<NdBuffer>),
    Host(HostOuts),
    InTurn(Box<InTurn>),
}

impl TryFrom<Out> for Outs {
    type Error = Error;

    fn try_from(out: Out) -> Result<Outs> {
        match out {
            Out::InTurn(in_turn) => Ok(Outs::InTurn(Box::new(in_turn))),
            out => Ok(Outs::Whole(vec![out.whole()?.clone()])),
        }
    }
}

/// Arrays of one call whose chunks are decoded in the same way, so that one batch can hold chunks of several arrays.
pub(crate) struct Group {
    /// The route and batch size that were chosen for the array of the group with the largest chunks.
    placement: ReadPlacement,
    layout: Arc<ChunkLayout>,
}

impl Group {
    pub(crate) fn new(placement: ReadPlacement, layout: &Arc<ChunkLayout>) -> Group {
        Group { placement, layout: Arc::clone(layout) }
    }

    /// Whether an array with this placement and layout can share batches with the group's arrays.
    pub(crate) fn suits(&self, placement: &ReadPlacement, layout: &ChunkLayout) -> bool {
        layout.packed.stored_is_packed == self.layout.packed.stored_is_packed
            && self.placement.route.is_like(&placement.route)
    }

    /// Target size of one batch of the group: the decoded bytes of its chunks.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.placement.batch_bytes
    }

    /// Adds an array to this group, so that its chunks share batches with those of the group's other arrays.
    pub(crate) fn take(&mut self, placement: ReadPlacement, layout: &Arc<ChunkLayout>) {
        if layout.packed.size_bytes > self.layout.packed.size_bytes {
            *self = Group::new(placement, layout);
        }
    }
}

/// The route of a group of arrays, and the data that all batches of the group use.
struct GroupState {
    target: Arc<Target>,
    /// The route of the group's batches; `natives` are the kernels for this route.
    route: Route,
    natives: Option<Arc<Natives>>,
    /// Target size of one batch of the group: the decoded bytes of its chunks.
    batch_bytes: usize,
}

/// How the elements of decoded chunks are converted and moved to one result.
struct DeviceResult {
    tail: Tail,
    spacing: Spacing,
    fill: Vec<u8>,
}

/// How far the elements of a batch have come on their way from the decoder to the results.
enum Placing {
    /// Kernels move the elements to results on the device. They are there after the event.
    OnDevice(Event),
    /// Kernels decode the chunks, which will go to results on the host; they are decoded after the event. The boxes
    /// without a chunk will be filled.
    Decoding(Event, Vec<Packed>, BTreeMap<usize, Vec<Extent>>),
    /// Threads bring the decoded chunks to results on the host.
    OnHost(Countdown),
}

/// A batch that kernels decode, or whose elements are being moved to the results.
struct InDecoding {
    placing: Placing,
    flight: Arc<DeviceFlight>,
    scratch: Option<Scratch>,
    /// Copies of decoded chunks that go to the chunk cache when the frames are checked.
    keep: Vec<Unchecked>,
}

/// The scratch memory that is reserved for a batch while it is decoded.
struct Scratch {
    reserved: Reserved,
    is_spare: bool,
}

/// Whether chunks go to a result in runs of neighbouring bytes that are long enough for kernels to write them over the bus.
fn in_long_runs(out: &NdBuffer, spacing: &Spacing) -> bool {
    let (layout, element_bytes) = (out.layout(), out.dtype().size_bytes());
    let (Some(&extent), Some(&stride)) = (layout.shape().last(), layout.strides().last()) else { return false };
    let run_bytes = spacing.run().min(extent as u64).saturating_mul(element_bytes as u64);
    stride == element_bytes as isize && run_bytes >= LEAST_RUN_BYTES
}

impl DeviceDestination {
    pub(crate) fn new(
        call: &Arc<Context>,
        groups: Vec<Group>,
        results: &[(&Access, Spacing)],
        outs: Outs,
        options: &Options,
    ) -> Result<DeviceDestination> {
        let device = results.first().map_or(Device::Cpu, |(access, _)| access.device());
        let limit_bytes = usize::try_from(call.limit_bytes).unwrap_or(usize::MAX);
        let slab_bytes = usize::try_from(options.batch_bytes(device)).unwrap_or(limit_bytes);
        let (copies, kernels) = (call.streams.take(device)?, call.streams.take(device)?);
        call.counters.begin_on(&copies)?;
        let group = |Group { placement, layout }: Group| -> Result<GroupState> {
            let (program, ReadPlacement { route, batch_bytes, .. }) = (layout.program()?, placement);
            let target = Target {
                call: Arc::clone(call),
                device,
                chunk_bytes: program.packed_size_bytes(),
                stored_is_packed: program.stored_is_packed(),
                read_missing: options.read_missing_chunks,
                kernels_help: AtomicBool::new(true),
            };
            let (target, natives) = (Arc::new(target), natives(&layout, &route));
            let batch_bytes = usize::try_from(batch_bytes).unwrap_or(limit_bytes);
            Ok(GroupState { target, route, natives, batch_bytes })
        };
        let outs = match outs {
            Outs::Whole(outs) if device != Device::Cpu && outs.iter().any(|out| out.device() == Device::Cpu) => {
                let spacings = results.iter().map(|(_, spacing)| spacing);
                let pinned = outs.iter().zip(spacings.clone()).map(|(out, spacing)| match in_long_runs(out, spacing) {
                    true => Ok(out.lent_to(device)?),
                    false => Ok(None),
                });
                match pinned.collect::<Result<Option<Vec<_>>>>()? {
                    Some(pinned) => Outs::Whole(pinned),
                    None => Outs::Host(HostOuts::new(call, &outs, spacings, device)?),
                }
            }
            outs => outs,
        };
        let result = |(access, spacing): &(&Access, Spacing)| -> Result<DeviceResult> {
            let (tail, fill) = (access.program()?.tail().clone(), access.fill().to_vec());
            Ok(DeviceResult { tail, spacing: spacing.clone(), fill })
        };
        Ok(DeviceDestination {
            call: Arc::clone(call),
            groups: groups.into_iter().map(group).collect::<Result<_>>()?,
            results: results.iter().map(result).collect::<Result<_>>()?,
            outs,
            ring: SlabRing::new(device, slab_bytes, limit_bytes)?,
            copies,
            kernels,
            fetching: 0,
            early: BTreeMap::new(),
            placed: 0,
            decoding: VecDeque::new(),
            decoders: Decoders::new(device, &call.streams),
            spare: None,
        })
    }

    /// Maximum number of slabs in flight: one chunk for every thread, and a few slabs that are being copied to the
    /// device.
    fn most_loading(&self, group: usize) -> usize {
        let (call, GroupState { target, route, batch_bytes, .. }) = (&self.call, &self.groups[group]);
        let fetched_as_stored = matches!(route, Route::Kernels(_)) || target.stored_is_packed;
        if fetched_as_stored && call.stores.iter().all(|of| of.store.capabilities().divides_reads) {
            // Decoders that want large batches profit more from scratch memory than from one more fetched batch.
            let batch_bytes = PLAIN_COPIES.saturating_mul(*batch_bytes as u64).max(1);
            let within = (call.limit_bytes / LOADING_SHARE / batch_bytes) as usize;
            return match route {
                Route::Kernels(native) if native.batch_factor() > 1 => within.clamp(LEAST_LOADING, DIVIDED_LOADING),
                _ => DIVIDED_LOADING,
            };
        }
        let chunks_a_batch = (batch_bytes / target.chunk_bytes.max(1)).max(1);
        call.threads.div_ceil(chunks_a_batch) + 3
    }

    /// Prepares the fetching of a batch that kernels decode; `None` if there is no memory for it now.
    fn by_kernels(&mut self, natives: Arc<Natives>, batch: &Batch, alone: bool) -> Result<Option<KernelsBatch>> {
        let target = Arc::clone(&self.groups[batch.group].target);
        let packed_bytes = SlabPlan::new(batch, target.stored_is_packed).total_bytes;
        let (slab_bytes, limit_bytes) = (kernels::slab_bytes(batch), self.call.limit_bytes);
        let native = natives.usual();
        let scratch_bytes = native.scratch_copies().saturating_mul(packed_bytes as u64);
        let (cost, series_bytes) =
            (self.cost(batch.group, slab_bytes, packed_bytes), self.ring.series_bytes(slab_bytes));
        // Small slabs are reused soon, while they are still in the host's cache.
        let in_series = !native.reads_frames()
            && slab_bytes > LEAST_SLABS * self.ring.slab_bytes()
            && series_bytes as u64 <= limit_bytes / SERIES_SHARE;
        let (slabs, held) = if packed_bytes.max(slab_bytes) == 0 {
            (None, self.call.memory.take(Cost::default(), limit_bytes, &self.call.cancellation)?)
        } else if in_series {
            let pinned = series_bytes as u64 + self.pieces_bytes(batch.group, packed_bytes);
            let cost = Cost { pinned, ..cost };
            let Some(held) = self.reserve(cost, scratch_bytes, alone)? else { return Ok(None) };
            let arena = pool::allocate(slab_bytes, &self.copies)?;
            (Some(Slabs::Series(self.ring.series(&arena, &self.copies), arena)), held)
        } else {
            let Some((slab, held)) = self.acquire(slab_bytes, cost, scratch_bytes, alone)? else { return Ok(None) };
            let (slab, arena) = self.with_arena(slab, slab_bytes)?;
            (Some(Slabs::Whole(slab, arena)), held)
        };
        Ok(Some(KernelsBatch {
            target,
            natives,
            stream: self.decoders.next()?,
            scratch: ScratchLimit {
                aim_bytes: scratch_bytes.max(limit_bytes / SCRATCH_AIM_SHARE) as usize,
                most_bytes: scratch_bytes.max(limit_bytes / SCRATCH_SHARE) as usize,
            },
            life: Life::new(kernels::Fetching::new(held, slabs, batch)),
        }))
    }

    /// Prepares the fetching of a batch that the host decodes, completely or in part; `None` if there is no memory for
    /// it now.
    fn by_host(&mut self, rest: Option<Arc<Natives>>, batch: &Batch, alone: bool) -> Result<Option<HybridBatch>> {
        let target = Arc::clone(&self.groups[batch.group].target);
        let plan = SlabPlan::new(batch, target.stored_is_packed);
        let (slab, held) = match plan.total_bytes {
            0 => {
                let call = &self.call;
                (None, call.memory.take(Cost::default(), call.limit_bytes, &call.cancellation)?)
            }
            bytes => {
                let gaps: usize = (0..batch.reads.len()).map(|read| batch.gap_bytes(read)).sum();
                let cost = self.cost(batch.group, bytes, bytes);
                let cost = Cost { host: cost.host.saturating_add(gaps as u64), ..cost };
                let Some((slab, held)) = self.acquire(bytes, cost, 0, alone)? else { return Ok(None) };
                (Some(self.with_arena(slab, bytes)?), held)
            }
        };
        HybridBatch::new(&target, rest, plan, slab, held).map(Some)
    }

    /// Prepares the fetching of a batch whose bytes come in device memory; `None` if there is no memory for it now.
    fn by_lending(&mut self, resident: &Resident, batch: &Batch, alone: bool) -> Result<Option<ResidentBatch>> {
        let target = Arc::clone(&self.groups[batch.group].target);
        let packed_bytes = SlabPlan::new(batch, target.stored_is_packed).total_bytes;
        let cost = Cost {
            pinned: self.pieces_bytes(batch.group, packed_bytes),
            device: resident.device_bytes(packed_bytes, batch.units.len()),
            ..Cost::default()
        };
        let Some(held) = self.reserve(cost, 0, alone)? else { return Ok(None) };
        let kernels = match self.groups[batch.group].natives.clone() {
            Some(natives) => Some((natives, self.decoders.next()?)),
            None => None,
        };
        Ok(Some(ResidentBatch::new(&target, kernels, held)))
    }

    /// Allocates device memory for a slab, to which the slab's bytes are uploaded as they come.
    fn with_arena(&self, mut slab: Slab, size_bytes: usize) -> Result<(Slab, Buffer)> {
        let arena = pool::allocate(size_bytes, &self.copies)?;
        slab.upload_as_filled(&arena, &self.copies)?;
        Ok((slab, arena))
    }

    /// Moves the elements of a fetched batch to the results, and fills boxes without a chunk.
    fn place(&mut self, flight: Arc<DeviceFlight>) -> Result<()> {
        if self.call.is_cancelled() {
            flight.route.give_up();
            return Ok(());
        }
        let scratch = self.scratch(&flight)?;
        let placing = Placing::OnDevice(self.kernels.record()?);
        // Added before anything can fail, because the frames must be checked in any case.
        self.decoding.push_back(InDecoding { placing, flight: Arc::clone(&flight), scratch, keep: Vec::new() });
        let mut packed = flight.route.decode(&flight.batch, &self.copies, &self.kernels)?;
        let keep = self.copies_for_cache(&mut packed)?;
        packed.extend(target::kept(flight.batch.kept.iter().filter_map(|(unit, chunk)| {
            match KeptContent::of(&**chunk) {
                Some(KeptContent::Packed(buffer)) => Some((unit, buffer)),
                _ => None,
            }
        })));
        let fills = boxes_without_chunk(&flight);
        let placing = match self.outs {
            Outs::Host(_) => Placing::Decoding(self.kernels.record()?, packed, fills),
            _ => {
                self.put(packed, fills)?;
                Placing::OnDevice(self.kernels.record()?)
            }
        };
        if let Some(last) = self.decoding.back_mut() {
            (last.placing, last.keep) = (placing, keep);
        }
        Ok(())
    }

    /// Copies decoded chunks for the chunk cache, as many as it has room for.
    fn copies_for_cache(&self, packed: &mut [Packed]) -> Result<Vec<Unchecked>> {
        let Some(cache) = self.call.cache.get() else { return Ok(Vec::new()) };
        let mut keep = Vec::new();
        for Packed { bytes, keep: units, .. } in packed {
            let PackedBytes::Together(buffer) = bytes else { continue };
            for (unit, offset) in std::mem::take(units) {
                let size_bytes = unit.packed_size_bytes;
                let Some(memory) = cache.reserve(size_bytes) else { continue };
                // Without memory for it, the chunk is not kept; the read itself goes on.
                let Ok(copy) = pool::allocate(size_bytes, &self.kernels) else { continue };
                self.kernels.d2d(&buffer.slice(offset..offset + size_bytes)?, &copy)?;
                keep.push(Unchecked { unit, content: KeptContent::Packed(copy), memory });
            }
        }
        Ok(keep)
    }

    /// Moves the elements of decoded chunks to the results, and fills boxes that have no chunk with the fill value.
    fn put(&mut self, packed: Vec<Packed>, fills: BTreeMap<usize, Vec<Extent>>) -> Result<()> {
        if let Outs::Host(outs) = &mut self.outs {
            let placed = outs.place(&self.results, packed, fills)?;
            self.call.help_until(&placed);
            return Ok(());
        }
        if let Outs::Whole(outs) = &self.outs {
            self.scatter(packed, outs)?;
            return fills.into_iter().try_for_each(|(out, fills)| self.fill(&fills, out, &outs[out]));
        }
        // Boxes in order belong to one array, so the key of the map adds nothing.
        let fills = fills.into_values().flatten().collect();
        for (number, (packed, fills)) in by_number(packed, fills) {
            let Outs::InTurn(in_turn) = &mut self.outs else { break };
            let out = in_turn.memory(number, &self.kernels)?;
            let elems = packed.iter().flat_map(|packed| &packed.boxes).map(|item| &item.extent);
            let elems =
                elems.chain(fills.iter().map(|(_, extent)| extent)).map(|extent| extent.iter().product::<usize>());
            let elems = elems.sum();
            self.scatter(packed, std::slice::from_ref(&out))?;
            self.fill(&fills, 0, &out)?;
            if let Outs::InTurn(in_turn) = &mut self.outs {
                in_turn.placed(elems, &self.kernels)?;
            }
        }
        Ok(())
    }

    /// Moves the elements of decoded chunks to the results, by one kernel launch for many results where strides are
    /// equal.
    fn scatter(&self, packed: Vec<Packed>, outs: &[NdBuffer]) -> Result<()> {
        let transfer = |Packed { out, bytes, layout, boxes, .. }: Packed| {
            let DeviceResult { tail, spacing, .. } = &self.results[out];
            let (packed_strides, lists) = (spacing.strides(&layout).into_owned(), spacing.lists.clone());
            (&outs[out], bytes, Transfer { tail: tail.clone(), packed_strides, lists, boxes })
        };
        let transfers: Vec<(&NdBuffer, PackedBytes, Transfer)> = packed.into_iter().map(transfer).collect();
        let mut moves = Vec::new();
        for &(target, ref bytes, ref transfer) in &transfers {
            match bytes {
                PackedBytes::Together(packed) => moves.push(Scatter::all(packed, transfer, target)),
                PackedBytes::Each(buffers) => {
                    let one = |(at, packed)| Scatter { packed, transfer, range: at..at + 1, target };
                    moves.extend(buffers.iter().enumerate().map(one));
                }
            }
        }
        if moves.is_empty() {
            return Ok(());
        }
        let boxes = transfers.iter().flat_map(|(_, _, transfer)| &transfer.boxes);
        let size_bytes: usize = boxes.map(|item| item.packed_size_bytes).sum();
        let scatter = || scatter_all_on(&moves, &self.kernels);
        self.call.counters.time_on(Stage::Scatter, size_bytes as u64, &self.kernels, scatter)
    }

    fn fill(&self, boxes: &[Extent], result: usize, out: &NdBuffer) -> Result<()> {
        if boxes.is_empty() {
            return Ok(());
        }
        let elements: usize = boxes.iter().map(|(_, extent)| extent.iter().product::<usize>()).sum();
        let DeviceResult { spacing, fill: element, .. } = &self.results[result];
        let size_bytes = (elements * element.len()) as u64;
        let counters = &self.call.counters;
        let fill = || fill_boxes_on(out, spacing.lists.as_deref(), boxes, element, &self.kernels);
        counters.time_on(Stage::Fill, size_bytes, &self.kernels, fill)
    }

    /// Decodes the chunks of a fetched batch now, and moves their elements to the results. If order matters, all
    /// earlier batches are placed already.
    fn close_now(&mut self, flight: Arc<DeviceFlight>) -> Result<()> {
        self.placed += 1;
        self.fetching = self.fetching.saturating_sub(1);
        self.place(flight)
    }
}

/// Returns the kernels of a route; `None` if the host decodes everything.
fn natives(layout: &Arc<ChunkLayout>, route: &Route) -> Option<Arc<Natives>> {
    let (host_passes, native) = match route {
        Route::Kernels(native) | Route::Resident(Resident::Frames(native)) => (0, native),
        Route::Hybrid(Some((host_passes, native))) => (*host_passes, native),
        _ => return None,
    };
    Some(Arc::new(Natives::new(host_passes, layout, Arc::clone(native))))
}

/// Launches a batch on its route; without a `route`, because there was no memory, gives the batch back.
fn launched<R: DeviceRoute>(launcher: &Launcher<'_>, route: Option<R>, batch: Batch) -> Launch<dyn DeviceRoute> {
    match route {
        Some(route) => Launch::Launched(launch(launcher, batch, route)),
        None => Launch::NoMemory(batch),
    }
}

/// Collects for each result the boxes of a batch that have no chunk.
fn boxes_without_chunk(flight: &DeviceFlight) -> BTreeMap<usize, Vec<Extent>> {
    let mut boxes = BTreeMap::<usize, Vec<Extent>>::new();
    for unit in flight.missing() {
        let unit = &flight.batch.units[unit];
        for place in &unit.places {
            boxes.entry(place.out).or_default().push((place.start.clone(), place.extent.clone()));
        }
    }
    for fill in &flight.batch.fills {
        boxes.entry(fill.out).or_default().push((fill.start.clone(), fill.extent.clone()));
    }
    boxes
}

impl Destination for DeviceDestination {
    type Route = dyn DeviceRoute;

    fn room(&self, group: usize) -> Room {
        Room {
            packed_bytes: self.groups[group].batch_bytes,
            units: BATCH_UNITS,
            alignment_bytes: PIECE_ALIGNMENT_BYTES,
        }
    }

    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<dyn DeviceRoute>> {
        let group = &mut self.groups[batch.group];
        if !group.target.kernels_help.swap(true, Ordering::Relaxed) {
            (group.route, group.natives, self.spare) = (Route::Hybrid(None), None, None);
        }
        if !alone && self.fetching >= self.most_loading(batch.group) {
            return Ok(Launch::NoMemory(batch));
        }
        let GroupState { route, natives, .. } = &self.groups[batch.group];
        let launch = match (route.clone(), natives.clone()) {
            (Route::Kernels(_), Some(natives)) => launched(launcher, self.by_kernels(natives, &batch, alone)?, batch),
            (Route::Resident(resident), _) => launched(launcher, self.by_lending(&resident, &batch, alone)?, batch),
            (_, natives) => launched(launcher, self.by_host(natives, &batch, alone)?, batch),
        };
        self.fetching += usize::from(matches!(launch, Launch::Launched(_)));
        Ok(launch)
    }

    fn close(&mut self, flight: Arc<DeviceFlight>, number: usize) -> Result<()> {
        self.collect(false)?;
        if let Outs::Whole(_) | Outs::Host(_) = self.outs {
            return self.close_now(flight);
        }
        self.early.insert(number, flight);
        while let Some(flight) = self.early.remove(&self.placed) {
            self.close_now(flight)?;
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<()> {
        while !self.decoding.is_empty() {
            self.collect(true)?;
        }
        self.spare = None;
        Ok(())
    }

    fn idle(&mut self) -> Result<()> {
        self.collect(false)?;
        self.call.counters.settle()
    }

    fn finish(&mut self) -> Result<()> {
        // Batches are left over only after a failure. They are not placed.
        for flight in std::mem::take(&mut self.early).into_values() {
            self.close_now(flight)?;
        }
        let copied = self.copies.synchronize();
        // Work that has ended is counted while the last batch decodes, so that little remains to do afterwards.
        let mut looked = self.call.counters.settle();
        while looked.is_ok() && !self.decoding.is_empty() {
            looked = self.collect(true);
        }
        let decoded = self.decoders.synchronize();
        let placed = self.kernels.synchronize();
        let unchecked = std::mem::take(&mut self.decoding);
        let checked: Vec<Result<()>> = unchecked.into_iter().map(|batch| self.check(batch)).collect();
        self.spare = None;
        // Elements that the host had to decode are placed only now.
        let placed_again = self.kernels.synchronize();
        copied?;
        looked?;
        decoded?;
        placed?;
        checked.into_iter().collect::<Result<()>>()?;
        placed_again?;
        let streams = &self.call.streams;
        [&self.copies, &self.kernels].into_iter().for_each(|stream| streams.give_back(stream));
        self.decoders.give_back();
        if let Outs::Host(outs) = &self.outs {
            outs.give_back()?;
        }
        self.call.counters.settle()
    }
}
