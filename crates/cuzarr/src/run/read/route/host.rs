//! The read route into host memory: threads fetch and decode chunks, and put their elements into the results. If packed
//! bytes equal the bytes of the result, a chunk is decoded directly into the result. Other chunks are decoded into
//! scratch memory that is still in a core's cache. If the codec can skip blocks, blocks without a wanted element are
//! not decoded.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use cuzarr_device::internal::{ElementBox, Lent, Part, PartBytes, Writer};
use cuzarr_device::{Buffer, Device, NdBuffer, Tail, Transfer, profile};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Batch, Fill, Place, Room, Spacing, Unit};
use crate::run::access::Access;
use crate::run::chunk_cache::KeptContent;
use crate::run::context::Context;
use crate::run::options::Options;
use crate::run::read::destination::{Destination, Launch};
use crate::run::read::in_flight::{BatchRoute, InFlight, Launcher, launch};
use crate::run::read::stored::{Stored, check_missing};
use crate::run::report::Stage;
use crate::run::schedule::budget::Reserved;
use crate::store::Lease;

/// Maximum number of chunks in a batch: enough to keep many threads busy, few enough to keep the plan small.
const BATCH_UNITS: usize = 256;

/// Maximum number of chunks in a batch that is read from a store over a network. With large batches, fewer batches wait
/// for repeated requests, and small neighbouring parts of a file become large requests.
const FAR_BATCH_UNITS: usize = 4096;

/// Maximum number of batches of one read that are in flight at a time. The store already has the next batches when one
/// ends. A plan of millions of chunks is never in memory as a whole.
const MOST_BATCHES: usize = 4;

/// Data that all batches of a read into host memory share: the results, and how elements get there.
struct Target {
    call: Arc<Context>,
    results: Vec<HostResult>,
    read_missing: bool,
}

/// One result in host memory, and how the elements of decoded chunks are converted and moved to it.
struct HostResult {
    out: NdBuffer,
    tail: Tail,
    /// Whether the chunks need no decoding, because they are stored without compression.
    stored_is_packed: bool,
    spacing: Spacing,
    fill: Vec<u8>,
}

/// Receives the elements of a read into nd-buffers in host memory.
pub(crate) struct HostDestination {
    target: Arc<Target>,
    writers: Vec<Writer>,
    /// Target for the decoded bytes of one batch: a share of the memory limit, so that a few batches fit.
    batch_bytes: usize,
    reserved: HashMap<usize, Reserved>,
}

impl HostDestination {
    pub(crate) fn new(
        call: &Arc<Context>,
        results: Vec<(&Access, &NdBuffer, Spacing)>,
        options: &Options,
    ) -> Result<HostDestination> {
        let mut writers = Vec::with_capacity(results.len());
        let result = |(access, out, spacing): (&Access, &NdBuffer, Spacing)| -> Result<HostResult> {
            let program = access.program()?;
            writers.push(out.writer_by(spacing.lists.clone())?);
            Ok(HostResult {
                out: out.clone(),
                tail: program.tail().clone(),
                stored_is_packed: program.stored_is_packed(),
                spacing,
                fill: access.fill().to_vec(),
            })
        };
        let results = results.into_iter().map(result).collect::<Result<_>>()?;
        let target = Target { call: Arc::clone(call), results, read_missing: options.read_missing_chunks };
        let batch_bytes = usize::try_from(options.batch_bytes(Device::Cpu)).unwrap_or(usize::MAX);
        Ok(HostDestination { target: Arc::new(target), writers, batch_bytes, reserved: HashMap::new() })
    }

    /// Lends out the boxes of the results that the chunks of a batch fill, so that several threads can write at once.
    fn lend(&mut self, batch: &Batch) -> Result<Parts> {
        let one = |start: &Vec<usize>, extent: &Vec<usize>| ElementBox { start: start.clone(), extent: extent.clone() };
        let (mut boxes, mut places) = (BTreeMap::<usize, Vec<Vec<ElementBox>>>::new(), Vec::new());
        let mut add = |out: usize, part: Vec<ElementBox>| {
            let parts = boxes.entry(out).or_default();
            parts.push(part);
            (out, parts.len() - 1)
        };
        let of_unit = |unit: &Unit, add: &mut dyn FnMut(usize, Vec<ElementBox>) -> (usize, usize)| {
            let of_out =
                |run: &[Place]| (run[0].out, run.iter().map(|place| one(&place.start, &place.extent)).collect());
            unit.places_by_out().map(of_out).map(|(out, part)| add(out, part)).collect()
        };
        for unit in &batch.units {
            places.push(of_unit(unit, &mut add));
        }
        places.extend(batch.fills.iter().map(|fill| vec![add(fill.out, vec![one(&fill.start, &fill.extent)])]));
        for (unit, _) in &batch.kept {
            places.push(of_unit(unit, &mut add));
        }
        let lent = boxes.into_iter().map(|(out, boxes)| Ok((out, self.writers[out].lend(boxes)?)));
        Ok(Parts { lent: lent.collect::<Result<_>>()?, places })
    }
}

/// The boxes of the results that the chunks of one batch fill, lent to the threads that write them.
struct Parts {
    /// The lent boxes of each result, by the number of the result.
    lent: BTreeMap<usize, Lent>,
    /// For each chunk and each fill-value box of the batch, the results that it fills, each with an index into `lent`.
    places: Vec<Vec<(usize, usize)>>,
}

impl Parts {
    /// Returns the lent boxes of one result that a chunk of the batch, or a box with the fill value, fills. Fills are
    /// counted behind all units.
    fn part(&self, number: usize, out: usize) -> Result<Part> {
        let none = || Error::new(ErrorKind::StoreFailed, "the store reported on a part that no batch has");
        let parts = self.places.get(number).ok_or_else(none)?;
        let at = parts.binary_search_by_key(&out, |(of, _)| *of).map_err(|_| none())?;
        Ok(self.lent.get(&out).ok_or_else(none)?.part(parts[at].1)?)
    }
}

impl Destination for HostDestination {
    type Route = HostBatch;

    fn room(&self, _group: usize) -> Room {
        let units = if self.target.call.is_far() { FAR_BATCH_UNITS } else { BATCH_UNITS };
        Room { packed_bytes: self.batch_bytes, units, alignment_bytes: 1 }
    }

    fn launch(&mut self, launcher: &Launcher<'_>, batch: Batch, alone: bool) -> Result<Launch<Self::Route>> {
        if !alone && self.reserved.len() >= MOST_BATCHES {
            return Ok(Launch::NoMemory(batch));
        }
        let call = launcher.call;
        let bytes = (0..batch.reads.len()).map(|read| self.target.bytes_in_flight(&batch, read)).sum();
        let reserved = match call.memory.host.try_take(bytes, call.limit_bytes) {
            Some(reserved) => reserved,
            None if alone => call.memory.host.take(bytes, call.limit_bytes, &call.cancellation)?,
            None => return Ok(Launch::NoMemory(batch)),
        };
        let parts = self.lend(&batch)?;
        self.reserved.insert(launcher.number, reserved);
        let route = HostBatch { target: Arc::clone(&self.target), parts };
        Ok(Launch::Launched(launch(launcher, batch, route)))
    }

    fn close(&mut self, _flight: Arc<InFlight<Self::Route>>, number: usize) -> Result<()> {
        self.reserved.remove(&number);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.reserved.clear();
        Ok(())
    }
}

impl Target {
    /// Returns the bytes of the result into which the chunk can be decoded directly; `None` if their layout differs
    /// from the chunk's.
    fn direct(&self, unit: &Unit) -> Option<Range<usize>> {
        let [place] = &unit.places[..] else { return None };
        let HostResult { out, tail, spacing, .. } = &self.results[place.out];
        if spacing.lists.is_some() {
            return None;
        }
        let layout = out.layout();
        let element_bytes = layout.element_bytes();
        let elements: usize = place.extent.iter().product();
        if !tail.is_plain() || place.first_elem != 0 || elements * element_bytes != unit.packed_size_bytes {
            return None;
        }
        let (mut from, strides) = (layout.offset_bytes(), spacing.strides(&unit.layout));
        for dim in 0..place.extent.len() {
            let stride = layout.strides()[dim];
            if place.extent[dim] > 1 && strides[dim].checked_mul(element_bytes as isize) != Some(stride) {
                return None;
            }
            from = from.checked_add_signed(stride.checked_mul(isize::try_from(place.start[dim]).ok()?)?)?;
        }
        Some(from..from + unit.packed_size_bytes)
    }

    /// Memory that a read needs outside the result while it is in flight: for stored bytes and for decoded bytes.
    /// Stored bytes count as much as packed bytes. If a read brings more bytes than that, the surplus is reserved when
    /// it comes.
    fn bytes_in_flight(&self, batch: &Batch, read: usize) -> u64 {
        let units = &batch.units[batch.reads[read].units.clone()];
        let stored_is_packed = units.iter().all(|unit| self.stored_is_packed(unit));
        let stored = match units {
            [unit] if stored_is_packed && self.direct(unit).is_some() => 0,
            _ => batch.packed_bytes(read) + batch.gap_bytes(read),
        };
        let is_decoded_apart = |unit: &&Unit| !stored_is_packed && self.direct(unit).is_none();
        let packed: usize = units.iter().filter(is_decoded_apart).map(|unit| unit.packed_size_bytes).sum();
        (stored + packed) as u64
    }

    /// Whether the chunk needs no decoding, because it is stored without compression.
    fn stored_is_packed(&self, unit: &Unit) -> bool {
        unit.places.first().is_some_and(|place| self.results[place.out].stored_is_packed)
    }

    /// Describes how a kernel or thread moves the elements of one decoded chunk to one result.
    fn transfer(&self, unit: &Unit, places: &[Place]) -> Transfer {
        let HostResult { tail, spacing, .. } = &self.results[places[0].out];
        Transfer {
            tail: tail.clone(),
            packed_strides: spacing.strides(&unit.layout).into_owned(),
            lists: spacing.lists.clone(),
            boxes: places.iter().map(|place| unit.transfer_box(place, 0)).collect(),
        }
    }

    fn scatter(&self, transfer: &Transfer, packed: &[u8], mut part: Part) -> Result<()> {
        let size_bytes = packed.len() as u64;
        self.call.counters.time(Stage::Scatter, size_bytes, || part.scatter(packed, transfer))?;
        Ok(())
    }

    /// Adds a copy of a decoded chunk to the chunk cache, if this read decodes the chunk for the cache.
    fn keep(&self, unit: &Unit, packed: &[u8]) -> Result<()> {
        if let Some(cache) = self.call.cache.get().filter(|_| unit.keep)
            && let Some(reserved) = cache.reserve(packed.len())
        {
            let mut copy = Vec::new();
            // Without memory for it, the chunk is not kept; the read itself goes on.
            if copy.try_reserve_exact(packed.len()).is_ok() {
                copy.extend_from_slice(packed);
                cache.keep(unit, KeptContent::Packed(Buffer::from_vec(copy)), reserved);
            }
        }
        Ok(())
    }

    /// Decodes the bytes `wanted` of a chunk into `packed`; its other bytes may have any value.
    fn decode(&self, unit: &Unit, stored: &[u8], packed: &mut [u8], wanted: Range<usize>) -> Result<()> {
        let begun = Instant::now();
        let _range = profile::range(Stage::Decode.name(), wanted.len() as u64);
        let size_bytes = unit.layout.program()?.decode_part(stored, packed, wanted)?;
        self.call.counters.add(Stage::Decode, size_bytes as u64, begun.elapsed());
        Ok(())
    }
}

pub(crate) struct HostBatch {
    target: Arc<Target>,
    /// The boxes of the results that the chunks of this batch fill, lent to the threads that write them.
    parts: Parts,
}

/// Memory of the result that is lent to the store, which reads uncompressed elements directly into it.
struct InPlace(PartBytes);

impl Lease for InPlace {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl BatchRoute for HostBatch {
    fn lease(&self, batch: &Batch, read: usize, size_bytes: usize) -> Result<Box<dyn Lease>> {
        let numbers = batch.reads[read].units.clone();
        let units = &batch.units[numbers.clone()];
        if let [unit] = units
            && self.target.stored_is_packed(unit)
            && !unit.keep
            && let Some(range) = self.target.direct(unit)
        {
            let part = self.parts.part(numbers.start, unit.places[0].out)?;
            return Ok(Box::new(InPlace(part.into_bytes(range)?)));
        }
        let counted_bytes = batch.packed_bytes(read) + batch.gap_bytes(read);
        Ok(Stored::take(&self.target.call, size_bytes, counted_bytes)?)
    }

    fn arrived(&self, _batch: &Batch, _read: usize, lease: Box<dyn Lease>) -> Result<Option<Box<Stored>>> {
        Ok(Stored::or::<InPlace>(lease)?.ok())
    }

    fn land(&self, batch: &Batch, number: usize, stored: &[u8]) -> Result<()> {
        let (target, unit) = (&*self.target, &batch.units[number]);
        let is_packed = target.stored_is_packed(unit);
        if let Some(range) = target.direct(unit) {
            let mut place = self.parts.part(number, unit.places[0].out)?.into_bytes(range)?;
            match is_packed {
                true => place.copy_from_slice(stored),
                false => target.decode(unit, stored, &mut place, 0..unit.packed_size_bytes)?,
            }
            return target.keep(unit, &place);
        }
        let transfers: Vec<_> =
            unit.places_by_out().map(|places| (places[0].out, target.transfer(unit, places))).collect();
        let mut decoded = None;
        if !is_packed {
            let mut packed = target.call.scratch.take(unit.packed_size_bytes)?;
            let wanted = transfers.iter().map(|(_, transfer)| transfer.packed_range());
            let wanted = wanted.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
            let wanted = if unit.keep { 0..unit.packed_size_bytes } else { wanted.unwrap_or(0..0) };
            target.decode(unit, stored, &mut packed, wanted)?;
            decoded = Some(packed);
        }
        let packed = decoded.as_deref().unwrap_or(stored);
        target.keep(unit, packed)?;
        transfers
            .iter()
            .try_for_each(|(out, transfer)| target.scatter(transfer, packed, self.parts.part(number, *out)?))
    }

    fn places_kept(&self) -> bool {
        true
    }

    fn place_kept(&self, batch: &Batch, kept: usize) -> Result<()> {
        let (target, (unit, chunk)) = (&*self.target, &batch.kept[kept]);
        let number = batch.units.len() + batch.fills.len() + kept;
        let Some(KeptContent::Packed(packed)) = KeptContent::of(&**chunk) else { return Ok(()) };
        let packed = packed.host_bytes()?;
        if let Some(range) = target.direct(unit) {
            let mut place = self.parts.part(number, unit.places[0].out)?.into_bytes(range)?;
            let size_bytes = packed.len() as u64;
            target.call.counters.time(Stage::Scatter, size_bytes, || place.copy_from_slice(&packed));
            return Ok(());
        }
        unit.places_by_out().try_for_each(|places| {
            let out = places[0].out;
            target.scatter(&target.transfer(unit, places), &packed, self.parts.part(number, out)?)
        })
    }

    fn fill(&self, number: usize, fill: &Fill) -> Result<()> {
        let target = &*self.target;
        check_missing(target.read_missing, fill)?;
        let mut part = self.parts.part(number, fill.out)?;
        let elements: usize = fill.extent.iter().product();
        let element = &target.results[fill.out].fill;
        let size_bytes = (elements * element.len()) as u64;
        let work = || part.fill(&fill.start, &fill.extent, element);
        target.call.counters.time(Stage::Fill, size_bytes, work)?;
        Ok(())
    }
}
