//! Writing from device memory. One launch gathers the elements of many chunks, one copy moves them across the bus, and all cores
//! encode them from pinned memory. Or kernels encode them first (`crate::run::write::route::encode`), and frames cross the bus.
//! Kernels also decode and merge chunks of which a part is written, where they can do both.
//!
//! A large object of a store that writes parts comes down part by part, in turn with others (`crate::run::write::parts`), so that no
//! slab must hold it.
//!
//! Where the store keeps values on the device, whole chunks that need no encoding, and frames, are handed over
//! (`crate::run::write::route::resident`). Otherwise whole chunks are gathered in packed form, through the tail, when the tail
//! loses no information. Parts of chunks, and chunks whose tail rounds or casts, are gathered as plain elements, because the
//! host must compare them or merge them with old elements.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::transfer::gather_on;
use cuzarr_device::{
    Buffer, Device, ElementStep, Layout, NdBuffer, Order, Packing, Slab, SlabRing, Stream, Tail, pool,
};

use crate::codec::Program;
use crate::error::{ErrorKind, Result};
use crate::plan::{Coverage, chunks_touched, padded, strides};
use crate::run::options::Options;
use crate::run::report::Stage;
use crate::run::schedule::budget::{Cost, Held};
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::object::at_chunk;
use crate::run::write::parts::{Parts, PartsOf};
use crate::run::write::route::encode::{EncodedBatch, Encoders, FrameAt};
use crate::run::write::route::host::submit;
use crate::run::write::route::merge::OldChunks;
use crate::run::write::route::resident::{self, Resident};
use crate::run::write::writing::{Leaf, LeafValue, Writing};

/// Slabs that may be in flight to the host before the oldest is waited for.
const DOWNLOADS: usize = 2;
/// Parts of large objects that a slab holds. Threads write parts at the same time only when these belong to several objects.
const PARTS_A_SLAB: usize = 4;

/// Brings the chunks of a value on a device to the host.
pub(crate) struct DeviceSource {
    value: NdBuffer,
    ring: SlabRing,
    copies: Stream,
    kernels: Stream,
    /// Extents of the largest part of a chunk that is written, per kept dimension.
    part_shape: Vec<usize>,
    parts: Gathering,
    /// Whole chunks that are gathered packed; `None` when the tail loses information.
    chunks: Option<Gathering>,
    /// Chunks that kernels encode; `None` when the host encodes all.
    encoders: Option<Encoders>,
    /// Chunks that kernels merge with their old elements; `None` when the host merges them.
    old_chunks: Option<OldChunks>,
    downloading: VecDeque<Download>,
    /// The number of slabs that may be in flight when a full one is sent.
    downloads: usize,
    /// Objects of more bytes than this are written in parts of this size; `None` when all are written whole.
    part_bytes: Option<usize>,
    /// Slabs and arenas.
    _held: Held,
    /// Chunks that the store takes from the device; `None` when it takes none.
    resident: Option<Resident>,
}

/// A slab on its way to the host.
struct Download {
    slab: Slab,
    content: Content,
}

enum Content {
    /// Chunks, each whole.
    Chunks(Vec<FrameAt>, What),
    /// Parts of large objects, in the order in which they are written.
    Parts(Vec<(Arc<Parts>, Range<usize>)>),
}

/// What whole chunks in a slab are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// Elements of parts of chunks.
    Parts,
    /// Whole chunks, packed.
    Packed,
    /// Frames that kernels made.
    Frames,
}

impl DeviceSource {
    pub(crate) fn new(writing: &Writing, value: NdBuffer, options: &Options) -> Result<DeviceSource> {
        let part_shape = writing.plan.largest_part();
        let strides = strides(0..part_shape.len(), &part_shape).into_iter().map(|stride| stride as isize).collect();
        let part_shape: Vec<usize> = part_shape.into_iter().map(|extent| extent as usize).collect();
        let element_bytes = value.dtype().size_bytes();
        let part_size_bytes = part_shape.iter().product::<usize>() * element_bytes;
        let program = writing.program.as_ref().filter(|program| loses_nothing(program));
        let device = value.device();
        let limit_bytes = writing.call.limit_bytes;
        let encoders = Encoders::new(writing, &value, options)?;
        let (encoders, encoders_bytes) = encoders.map_or((None, 0), |(encoders, bytes)| (Some(encoders), bytes));
        let old_chunks = encoders.as_ref().and_then(Encoders::old_chunks);
        let ordinary_bytes = usize::try_from(options.batch_bytes(device)).unwrap_or(usize::MAX);
        let part_bytes = ordinary_bytes / PARTS_A_SLAB;
        let is_large = |bytes: usize| part_bytes > 0 && bytes > part_bytes && takes_parts(writing);
        // Large chunks that are gathered together, so that their parts can come in turn.
        let chunk_bytes = program.map_or(0, |program| padded(program.packed_size_bytes()));
        let large = match program {
            Some(program) if program.stored_is_packed() && is_large(program.packed_size_bytes()) => {
                let most = limit_bytes / 2 / chunk_bytes as u64;
                most.min(writing.call.threads as u64).min(chunks_touched(&writing.plan.source, &writing.plan.order))
            }
            _ => 0,
        } as usize;
        let frame_bytes = encoders.as_ref().map_or(0, Encoders::frame_bound_bytes);
        let is_in_parts = if encoders.is_some() { is_large(frame_bytes) } else { large > 0 };
        let least = writing.plan.least_coverage();
        let whole = if encoders.is_some() {
            least.replaces() || old_chunks.is_some()
        } else {
            least == Coverage::Full && program.is_some()
        };
        let elements_bytes = if whole { 0 } else { part_size_bytes };
        let packed_bytes = if large > 0 || encoders.is_some() { 0 } else { chunk_bytes };
        let largest = elements_bytes.max(packed_bytes).max(if is_in_parts { 0 } else { frame_bytes });
        let slab_bytes = ordinary_bytes.max(padded(largest));
        let parts = GatherTo::Parts(strides);
        let parts = Gathering::new(Tail::plain(value.dtype()), parts, part_size_bytes, slab_bytes);
        let chunks = program.map(|program| {
            let arena_bytes = slab_bytes.max(large * chunk_bytes);
            Gathering::new(program.tail().clone(), GatherTo::Chunks, program.packed_size_bytes(), arena_bytes)
        });
        let resident = Resident::new(writing, &value, slab_bytes);
        // Slabs are waited for while some are downloading and some are being encoded. Each thread writes one part while the
        // next ones come. Frames come one after the other, and one thread at a time writes each, so more of them wait.
        let parts_a_thread = if encoders.is_some() { 4 } else { 2 };
        let for_parts = if is_in_parts { (parts_a_thread * writing.call.threads).div_ceil(PARTS_A_SLAB) } else { 0 };
        let slabs = (limit_bytes / slab_bytes as u64).clamp(1, (2 * DOWNLOADS + 2 + for_parts) as u64) as usize;
        let gathered_bytes = (large * chunk_bytes) as u64 + encoders_bytes;
        let arenas = limit_bytes.saturating_sub(gathered_bytes) / slab_bytes as u64;
        let downloads = DOWNLOADS.min(slabs - 1).min((arenas as usize).saturating_sub(1));
        let mut cost = cost(slab_bytes, slabs, downloads);
        cost.device += gathered_bytes;
        let held = writing.call.memory.take(cost, limit_bytes, &writing.call.cancellation)?;
        Ok(DeviceSource {
            ring: SlabRing::new(device, slab_bytes, slab_bytes.saturating_mul(slabs))?,
            downloads,
            part_bytes: is_in_parts.then_some(part_bytes),
            _held: held,
            copies: writing.call.streams.take(device)?,
            kernels: writing.call.streams.take(device)?,
            value,
            part_shape,
            parts,
            chunks,
            encoders,
            old_chunks,
            downloading: VecDeque::new(),
            resident,
        })
    }

    /// Adds a chunk to the next copy.
    pub(crate) fn add(&mut self, writing: &Arc<Writing>, leaf: Leaf) -> Result<()> {
        if let Some(resident) = self.resident.as_mut().filter(|resident| resident.takes(&leaf)) {
            return resident.add(writing, &self.value, &self.kernels, leaf);
        }
        if let Some(encoders) = self.encoders.as_mut().filter(|_| leaf.chunk.coverage.replaces()) {
            return if encoders.add((leaf, None)) { self.encode(writing) } else { Ok(()) };
        }
        if let Some(old_chunks) = &mut self.old_chunks {
            old_chunks.fetch(writing, leaf);
            return self.add_fetched(writing);
        }
        let packed = (leaf.chunk.coverage == Coverage::Full) && self.chunks.is_some();
        let gathering = self.gathering(packed);
        gathering.leaves.push(leaf);
        if gathering.leaves.len() < gathering.most {
            return Ok(());
        }
        self.download(writing, packed)
    }

    /// Adds the chunks whose old elements have come.
    fn add_fetched(&mut self, writing: &Arc<Writing>) -> Result<()> {
        while let Some(changed) = self.old_chunks.as_mut().and_then(OldChunks::try_next) {
            if self.encoders.as_mut().is_some_and(|encoders| encoders.add(changed)) {
                self.encode(writing)?;
            }
        }
        Ok(())
    }

    /// Waits for the next chunk whose old elements come, and adds it; false when none will.
    fn wait_for_old(&mut self, writing: &Arc<Writing>) -> Result<bool> {
        let Some(old_chunks) = &mut self.old_chunks else { return Ok(false) };
        let Some(changed) = old_chunks.next(writing)? else { return Ok(false) };
        if self.encoders.as_mut().is_some_and(|encoders| encoders.add(changed)) {
            self.encode(writing)?;
        }
        Ok(true)
    }

    /// Begins a batch of the chunks that kernels encode, once there is room for it.
    fn encode(&mut self, writing: &Arc<Writing>) -> Result<()> {
        while self.encoders.as_ref().is_some_and(Encoders::is_full) {
            self.take_frames(writing)?;
        }
        match &mut self.encoders {
            Some(encoders) => encoders.begin(writing, &self.value),
            None => Ok(()),
        }
    }

    /// Waits for the oldest batch that kernels encode, and downloads its frames; false when there is none.
    fn take_frames(&mut self, writing: &Arc<Writing>) -> Result<bool> {
        // Then the memory of the batch before is free.
        while !self.downloading.is_empty() {
            self.hand_over(writing)?;
        }
        let Some(encoders) = &mut self.encoders else { return Ok(false) };
        let Some(EncodedBatch { buffer, leaves, empty, refused, undecoded }) = encoders.take()? else {
            return Ok(false);
        };
        for (leaf, stored, error) in undecoded {
            match &mut self.old_chunks {
                Some(old_chunks) if error.kind() == ErrorKind::Unsupported => {
                    old_chunks.decode_on_host(writing, leaf, stored);
                }
                _ => at_chunk(Err(error), &leaf.chunk.name)?,
            }
        }
        refused.into_iter().for_each(|(leaf, packed)| submit(writing, leaf, LeafValue::Packed(packed)));
        empty.into_iter().for_each(|leaf| submit(writing, leaf, LeafValue::Blank));
        let stays = |frame: &FrameAt| frame.leaf.place.is_object() && keeps_frames(writing, buffer.device());
        let (resident, leaves): (Vec<_>, Vec<_>) = leaves.into_iter().partition(stays);
        resident::keep(&buffer, resident, &self.copies)?;
        let is_large = |frame: &FrameAt| self.part_bytes.is_some_and(|part_bytes| frame.range.len() > part_bytes);
        let (large, leaves): (Vec<_>, Vec<_>) = leaves.into_iter().partition(is_large);
        self.bring_in_parts(writing, &buffer, large, PartsOf::Frame)?;
        let mut leaves = leaves.into_iter().peekable();
        while let Some(first) = leaves.peek() {
            let (start, slab_bytes) = (first.range.start, self.ring.slab_bytes());
            let (mut together, mut end) = (Vec::new(), start);
            while let Some(frame) = leaves.next_if(|frame| frame.range.end - start <= slab_bytes) {
                end = frame.range.end;
                together.push(FrameAt { range: frame.range.start - start..end - start, ..frame });
            }
            self.bring(writing, &buffer.slice(start..end)?, together, What::Frames)?;
        }
        Ok(true)
    }

    /// Downloads bytes of the device into a slab.
    fn bring(&mut self, writing: &Arc<Writing>, bytes: &Buffer, leaves: Vec<FrameAt>, what: What) -> Result<()> {
        self.make_room(writing)?;
        let mut slab = self.ring.acquire(bytes.size_bytes())?;
        self.copy(writing, bytes, &mut slab, 0)?;
        self.downloading.push_back(Download { slab, content: Content::Chunks(leaves, what) });
        Ok(())
    }

    /// Downloads objects part by part, in turn, so that several are written at once.
    fn bring_in_parts(
        &mut self,
        writing: &Arc<Writing>,
        bytes: &Buffer,
        leaves: Vec<FrameAt>,
        of: PartsOf,
    ) -> Result<()> {
        let part_bytes = self.part_bytes.unwrap_or(usize::MAX);
        let object = |FrameAt { leaf, range, seal }| (Arc::new(Parts::new(leaf, of, range.len(), seal)), range);
        let mut objects: VecDeque<_> = leaves.into_iter().map(object).collect();
        while !objects.is_empty() {
            self.make_room(writing)?;
            let mut slab = self.ring.acquire(0)?;
            let (mut parts, mut end) = (Vec::new(), 0);
            while let Some((object, Range { start, end: last })) = objects.pop_front() {
                let size_bytes = part_bytes.min(last - start);
                if end + size_bytes > slab.size_bytes() {
                    objects.push_front((object, start..last));
                    break;
                }
                self.copy(writing, &bytes.slice(start..start + size_bytes)?, &mut slab, end)?;
                parts.push((Arc::clone(&object), end..end + size_bytes));
                end += size_bytes;
                if start + size_bytes < last {
                    objects.push_back((object, start + size_bytes..last));
                }
            }
            self.downloading.push_back(Download { slab, content: Content::Parts(parts) });
        }
        Ok(())
    }

    /// Waits until one slab is free, or on its way back from the workers.
    fn make_room(&mut self, writing: &Arc<Writing>) -> Result<()> {
        while self.downloading.len() > self.downloads {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Puts the copy of bytes of the device into a slab on the stream.
    fn copy(&self, writing: &Writing, bytes: &Buffer, slab: &mut Slab, offset_bytes: usize) -> Result<()> {
        let (size_bytes, copies) = (bytes.size_bytes() as u64, &self.copies);
        let copy = || slab.download(bytes, offset_bytes, copies);
        writing.call.counters.time_on(Stage::Download, size_bytes, copies, copy)
    }

    /// Hands every chunk over to the workers.
    pub(crate) fn flush(&mut self, writing: &Arc<Writing>) -> Result<()> {
        self.resident.as_mut().map_or(Ok(()), |resident| resident.flush(&self.kernels))?;
        loop {
            while self.wait_for_old(writing)? {}
            if self.encoders.as_ref().is_some_and(Encoders::has_leaves) {
                self.encode(writing)?;
            }
            while self.take_frames(writing)? {}
            // Chunks that kernels did not decode come once more.
            if !self.old_chunks.as_ref().is_some_and(OldChunks::is_waiting) {
                break;
            }
        }
        for packed in [true, false] {
            if !self.gathering(packed).leaves.is_empty() {
                self.download(writing, packed)?;
            }
        }
        while !self.downloading.is_empty() {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Hands the oldest chunks on: those in flight, or else those that wait for more chunks. False when there are none.
    pub(crate) fn advance(&mut self, writing: &Arc<Writing>) -> Result<bool> {
        if !self.downloading.is_empty() {
            self.hand_over(writing)?;
            return Ok(true);
        }
        if self.take_frames(writing)? || self.wait_for_old(writing)? {
            return Ok(true);
        }
        let waiting = self.encoders.as_ref().is_some_and(Encoders::has_leaves)
            || self.resident.as_ref().is_some_and(Resident::has_leaves)
            || !self.parts.leaves.is_empty()
            || self.chunks.as_ref().is_some_and(|chunks| !chunks.leaves.is_empty());
        self.flush(writing)?;
        Ok(waiting)
    }

    /// Chunks that kernels encode at a time, of all batches together.
    pub(crate) fn chunks_wanted(&self) -> usize {
        self.encoders.as_ref().map_or(0, Encoders::chunks_wanted)
    }

    /// Whether kernels encode such chunks.
    pub(crate) fn encodes(&self, coverage: Coverage) -> bool {
        self.encoders.is_some() && (coverage.replaces() || self.merges())
    }

    /// Whether kernels merge chunks with their old elements.
    pub(crate) fn merges(&self) -> bool {
        self.old_chunks.is_some()
    }

    /// Whether a chunk goes from slabs to the store, without other memory of the host.
    pub(crate) fn passes_by(&self, coverage: Coverage) -> bool {
        coverage == Coverage::Full && self.encoders.is_none() && self.part_bytes.is_some()
    }

    /// Counts the device's work, and returns the streams, after the last chunk.
    pub(crate) fn finish(&mut self, writing: &Writing) -> Result<()> {
        writing.call.counters.settle()?;
        if let Some(encoders) = &mut self.encoders {
            encoders.give_back(writing);
        }
        self.give_back(writing);
        Ok(())
    }

    /// Returns the streams. Nothing is on them any more.
    pub(crate) fn give_back(&self, writing: &Writing) {
        [&self.copies, &self.kernels].into_iter().for_each(|stream| writing.call.streams.give_back(stream));
    }

    /// Drops chunks that were not handed over, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.gathering(true).leaves.clear();
        self.gathering(false).leaves.clear();
        self.downloading.clear();
        self.resident.iter_mut().for_each(Resident::abandon);
        self.encoders.iter_mut().for_each(Encoders::abandon);
        self.old_chunks = None;
    }

    fn gathering(&mut self, packed: bool) -> &mut Gathering {
        match &mut self.chunks {
            Some(chunks) if packed => chunks,
            _ => &mut self.parts,
        }
    }

    /// Puts the gathering and the copy of the collected chunks on the streams.
    fn download(&mut self, writing: &Arc<Writing>, packed: bool) -> Result<()> {
        // The arenas that are counted: one of large chunks.
        self.make_room(writing)?;
        let is_large = packed && self.encoders.is_none() && self.part_bytes.is_some();
        while is_large && !self.downloading.is_empty() {
            self.hand_over(writing)?;
        }
        let gathering = self.gathering(packed);
        let leaves = std::mem::take(&mut gathering.leaves);
        let (size_bytes, padded_bytes) = (gathering.size_bytes, gathering.padded_bytes);
        let transfer = gathering.transfer(writing, &leaves);
        let total_bytes = leaves.len() * padded_bytes;
        let arena = pool::allocate(total_bytes, &self.kernels)?;
        if transfer.tail.packing == Packing::Bits {
            // No element owns the bits behind the last one.
            self.kernels.memset(&arena, 0)?;
        }
        let gather = || gather_on(&self.value, &transfer, &arena, &self.kernels);
        writing.call.counters.time_on(Stage::Gather, total_bytes as u64, &self.kernels, gather)?;
        self.copies.wait(&self.kernels.record()?)?;
        let range = |number: usize| number * padded_bytes..number * padded_bytes + size_bytes;
        let leaves =
            leaves.into_iter().enumerate().map(|(number, leaf)| FrameAt { leaf, range: range(number), seal: None });
        let leaves = leaves.collect();
        if is_large {
            return self.bring_in_parts(writing, &arena, leaves, PartsOf::Packed);
        }
        let what = if packed && self.chunks.is_some() { What::Packed } else { What::Parts };
        self.bring(writing, &arena, leaves, what)
    }

    /// Waits for the oldest copy, and gives its chunks to the workers to encode and store.
    fn hand_over(&mut self, writing: &Arc<Writing>) -> Result<()> {
        let Some(Download { slab, content }) = self.downloading.pop_front() else { return Ok(()) };
        let dtype = self.value.dtype();
        let bytes = slab.into_buffer()?;
        let (leaves, what) = match content {
            Content::Chunks(leaves, what) => (leaves, what),
            Content::Parts(parts) => {
                return parts.into_iter().try_for_each(|(parts, range)| {
                    parts.add(writing, bytes.slice(range)?);
                    Ok(())
                });
            }
        };
        let whole = Layout::contiguous(&self.part_shape, dtype.size_bytes(), Order::C)?;
        for FrameAt { leaf, range, seal } in leaves {
            let part = bytes.slice(range)?;
            let value = match what {
                What::Packed => LeafValue::Packed(part),
                What::Frames => LeafValue::Frame(part, seal),
                What::Parts => {
                    let (_, extent) = writing.plan.region(&leaf.chunk);
                    let layout = whole.region(&vec![0; extent.len()], &extent, &vec![1; extent.len()])?;
                    LeafValue::Elements(NdBuffer::from_parts(part, dtype, layout)?.reader()?)
                }
            };
            submit(writing, leaf, value);
        }
        Ok(())
    }
}

/// The cost: pinned memory of the slabs, and device memory of the arenas from which they are filled.
fn cost(slab_bytes: usize, slabs: usize, downloads: usize) -> Cost {
    let bytes = |count: usize| (slab_bytes as u64).saturating_mul(count as u64);
    Cost { host: 0, pinned: bytes(slabs), device: bytes(downloads + 1) }
}

/// Whether the store takes frames in memory of the device where kernels made them.
fn keeps_frames(writing: &Writing, device: Device) -> bool {
    let is_final = writing.program.as_ref().is_some_and(|program| program.stores_device_frames());
    is_final && writing.call.store.is_on(device)
}

/// Whether large objects are written in parts, where the device makes their final bytes.
fn takes_parts(writing: &Writing) -> bool {
    let is_final = writing.program.as_ref().is_some_and(|program| program.stores_device_frames());
    let call = &writing.call;
    is_final && writing.plan.source.levels.len() == 1 && call.store.capabilities().writes_parts && !call.is_far()
}

/// Whether packed bytes are equal exactly when the elements are equal, bit for bit. Then packed bytes can be compared with the
/// fill value.
fn loses_nothing(program: &Program) -> bool {
    let steps = program.tail().steps_of_writing();
    steps.iter().all(|step| matches!(step, ElementStep::SwapBytes { .. }))
}
