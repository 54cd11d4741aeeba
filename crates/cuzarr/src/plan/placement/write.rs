//! The placement of one write: its route, the size of its batches, and which codecs run on the host.

use std::sync::Arc;

use cuzarr_device::{Device, ElementStep, Packing};

use super::{Merging, PIECES_SHARE, Placement, encoding_places, refuse_fallen};
use crate::codec::batch::EncodeBatch;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder};
use crate::codec::native::Native;
use crate::codec::{Chain, Program, VARIABLE, leave_nothing};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::costs::{Offload, staged_gb_s};
use crate::plan::source::ChunkLayout;
use crate::plan::write::Coverage;

/// Number of batches that kernels should encode at once. One batch would not be enough, because its slowest piece takes
/// as long as the whole batch. There are fewer batches if memory is short.
pub(super) const ENCODING_BATCHES: usize = 4;
/// Number of batches that kernels encode at once if each batch is one chunk that is large enough to keep the device
/// busy. The sooner the first one is done, the sooner its frame is on its way.
const ENCODING_LARGE_CHUNKS: usize = 2;
/// Number of batches into which a write is divided. Kernels encode larger batches faster, because less time is lost at
/// their ends. But larger batches deliver their first frames later, and nothing overlaps with the last ones.
const BATCHES_OF_A_WRITE: u64 = 16;
/// Old chunks that wait for the kernels that decode them take at most the memory limit divided by this, in pinned
/// memory.
const OLD_SHARE: u64 = 16;
/// Size of the largest batch that kernels encode, as a multiple of the usual size of batches.
const LARGEST_ENCODING_BATCH: u64 = 4;
/// Alignment in bytes of the chunks that are put together in device memory for kernels.
const CHUNK_ALIGNMENT_BYTES: usize = 256;

/// Number of slabs (pieces of pinned memory) that may be on their way to the host before the write waits for the
/// oldest.
const DOWNLOADS: usize = 2;
/// Number of slabs in which old elements of merged chunks go to the device: one is filled while the other is copied.
const UPLOADS: usize = 2;
/// Number of parts of large objects that one slab (a piece of pinned memory) holds. Threads can write parts at the same
/// time only if they belong to different objects.
const PARTS_A_SLAB: usize = 4;

/// The facts about a write from which it is decided where its chunks are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteCircumstances {
    /// The device whose memory holds the elements to write, or that may encode them.
    pub(crate) device: Device,
    /// Whether the elements are in host memory, from where those of each batch go up to the device.
    pub(crate) staged: bool,
    /// Number of host threads.
    pub(crate) threads: usize,
    /// Whether the device encodes everything that it can, even if the host would be faster.
    pub(crate) force_device: bool,
    /// The number of innermost chunks that are written.
    pub(crate) chunks: u64,
    /// Number of elements of a chunk.
    pub(crate) chunk_elements: usize,
    /// Number of elements that are written to the chunk of which the write changes most.
    pub(crate) part_elements: usize,
    /// Whether the write replaces all elements of each chunk, or some chunk keeps old elements.
    pub(crate) least: Coverage,
    /// Whether the elements to write are selected by index lists or points, and not only by ranges.
    pub(crate) has_lists: bool,
    /// Whether chunks that only hold the fill value are stored.
    pub(crate) write_empty: bool,
    /// Whether the store keeps its objects in the memory of the device.
    pub(crate) is_resident: bool,
    /// Whether each object is a single chunk, and the store writes objects part by part.
    pub(crate) takes_parts: bool,
    /// Maximum number of bytes that may be in flight.
    pub(crate) memory_limit_bytes: u64,
    /// Size of one batch that kernels encode, in packed bytes: what the chunks take before encoding.
    pub(crate) batch_bytes: u64,
    /// Size in bytes of a slab: a piece of pinned memory to which bytes are copied from the device.
    pub(crate) slab_bytes: u64,
}

/// Where the chunks of one write are encoded.
#[derive(Clone, Debug)]
pub(crate) enum WriteRoute {
    /// The host encodes elements of variable length.
    Variable,
    /// The host encodes chunks of fixed-size elements. The elements are in host memory, or are copied there before the
    /// first chunk is encoded.
    Host,
    /// Elements come from device memory, and the route is chosen for each chunk.
    Device(Box<DeviceWrite>),
}

/// The route of one chunk whose elements are in device memory. Each route is implemented in `run/write/route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkRoute {
    /// The device packs the chunk's elements as they are stored, and the store takes these bytes from device memory.
    Resident,
    /// Kernels encode the chunk in device memory, without its old elements.
    Kernels,
    /// Kernels decode the stored chunk, replace some of its elements by new ones, and encode it again.
    Merge,
    /// The device puts the chunk's elements one after the other ("packs" them), and the host encodes a copy of the
    /// packed bytes.
    Packed,
    /// Elements are copied to host memory without being packed on the device first. The host compares them, or merges
    /// them with old elements, and encodes them.
    Elements,
}

/// The decision how a write from device memory is executed: its kernels, its buffers and what the store takes.
#[derive(Clone, Debug)]
pub(crate) struct DeviceWrite {
    /// The kernels that encode chunks, and the size of their batches; `None` if the host encodes.
    pub(crate) encoding: Option<DeviceEncoding>,
    /// Whether whole chunks may be packed on the device, because packing keeps every bit of the elements.
    pub(crate) gathers_packed: bool,
    /// Whether the store takes whole packed chunks in device memory, so that they need no copy to the host.
    pub(crate) keeps_packed: bool,
    /// Whether the store takes encoded chunks in device memory, so that they need no copy to the host.
    pub(crate) keeps_frames: bool,
    /// Size in bytes of a slab (a piece of pinned memory), with the number of slabs and how many may be in flight.
    pub(crate) slab_bytes: usize,
    pub(crate) slabs: usize,
    pub(crate) downloads: usize,
    /// Number of large chunks that are put together in device memory at a time, so that their parts can be written in
    /// turn.
    pub(crate) large_chunks: usize,
    /// Size in bytes of the parts in which larger objects are written; `None` if all objects are written whole.
    pub(crate) part_bytes: Option<usize>,
    /// Device memory, in bytes, that the write needs beside the buffers from which slabs of pinned memory are filled.
    pub(crate) device_bytes: u64,
}

/// The decision how one write is executed: its route, and why some work is left to the host.
#[derive(Clone, Debug)]
pub(crate) struct WritePlacement {
    pub(crate) route: WriteRoute,
    device: Device,
    /// Why the host encodes chunks whose elements are in device memory; `None` if kernels do, or the elements are on
    /// the host.
    left: Option<&'static str>,
    /// Where old elements are merged with new ones: on the device (`Ok`), or on the host, with the reason (`Err`).
    /// `None` if each chunk is replaced as a whole.
    merging: Option<Result<(), &'static str>>,
}

/// The reason, shown to users, why the host merges old and new elements if index lists select elements.
const LISTED: &str = "the host merges chunks of which index lists choose elements";

impl WritePlacement {
    /// Chooses the placement of a write. `program` is `None` for elements of variable length.
    pub(crate) fn new(program: Option<&Program>, given: &WriteCircumstances) -> WritePlacement {
        let keeps = !given.least.replaces();
        let by_host =
            |route| WritePlacement { route, device: given.device, left: None, merging: keeps.then_some(Ok(())) };
        let Some(program) = program else { return by_host(WriteRoute::Variable) };
        if given.device == Device::Cpu {
            return by_host(WriteRoute::Host);
        }
        let encoding = encoding(program, given);
        let merging = keeps.then(|| merging_place(program, given.device, &encoding));
        let left = encoding.as_ref().err().copied();
        let route = match encoding.ok() {
            None if given.has_lists => WriteRoute::Host,
            Some(DeviceEncoding { merging: None, .. }) if given.has_lists => WriteRoute::Host,
            encoding => WriteRoute::Device(Box::new(DeviceWrite::new(program, encoding, given))),
        };
        let left = if matches!(route, WriteRoute::Host) { left.or(Some(LISTED)) } else { left };
        WritePlacement { route, device: given.device, left, merging }
    }

    /// Chooses the placement of a write of elements in host memory whose chunks a device encodes. Also returns the
    /// estimated times of both ways.
    ///
    /// # Errors
    /// The reason why the host encodes.
    pub(crate) fn accelerated(
        program: Option<&Program>,
        given: &WriteCircumstances,
    ) -> Result<(WritePlacement, Offload), &'static str> {
        let program = program.ok_or(VARIABLE)?;
        if given.has_lists {
            return Err(LISTED);
        }
        let placement = WritePlacement::new(Some(program), given);
        match (&placement.route, placement.left) {
            (WriteRoute::Device(device), _) if device.encoding.is_some() => {
                let offload = load(program, given).offload(program.device_encoder()?.speeds());
                Ok((placement, offload))
            }
            (_, reason) => Err(reason.unwrap_or("no codec of the chunks has kernels")),
        }
    }

    /// The device whose memory holds the elements to write, or that encodes them.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Why the host encodes chunks whose elements are in device memory; `None` if kernels do, or the elements are on
    /// the host.
    #[cfg(test)]
    pub(super) fn left(&self) -> Option<&'static str> {
        self.left
    }

    /// The name of the write's route, which explanations show, such as `kernels`.
    pub(crate) fn route_name(&self) -> &'static str {
        match &self.route {
            WriteRoute::Variable => "variable",
            WriteRoute::Host => "host",
            WriteRoute::Device(device) if device.encoding.is_some() => "kernels",
            WriteRoute::Device(device) if device.keeps_packed => "resident",
            WriteRoute::Device(_) => "a copy, then host",
        }
    }

    /// For each codec, in order of encoding, whether it runs on the device, or why it runs on the host.
    pub(crate) fn codecs(&self, chain: &Chain) -> Vec<Placement> {
        encoding_places(chain, self.device, self.left)
    }

    /// Where old elements are merged with new ones; `None` if each chunk is replaced as a whole.
    pub(crate) fn merging(&self) -> Option<Merging> {
        self.merging.map(|place| Merging { via_host: place.err().map(String::from) })
    }

    /// Refuses codecs that run on the host although the written elements are on a device. If old elements are kept,
    /// this includes their decoding.
    ///
    /// # Errors
    /// `FallbackRefused`, with each codec and its reason.
    pub(crate) fn refuse_fallen(&self, chain: &Chain) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        refuse_fallen(self.codecs(chain))?;
        let Some(place) = self.merging else { return Ok(()) };
        refuse_fallen(super::placements(chain.describe(self.device)))?;
        match (place, &self.route) {
            (Err(reason), WriteRoute::Device(device)) if device.encoding.is_some() => {
                let message = format!("the host would merge parts of chunks, which strict forbids: {reason}");
                let hint = "leave out `strict`, write whole chunks, or raise `memory_limit`";
                Err(Error::new(ErrorKind::FallbackRefused, message).with_hint(hint))
            }
            _ => Ok(()),
        }
    }
}

impl DeviceWrite {
    fn new(program: &Program, encoding: Option<DeviceEncoding>, given: &WriteCircumstances) -> DeviceWrite {
        let limit_bytes = given.memory_limit_bytes;
        let gathers_packed = loses_nothing(program);
        let is_final = program.stores_device_frames();
        let slab_bytes = usize::try_from(given.slab_bytes).unwrap_or(usize::MAX);
        let part_bytes = slab_bytes / PARTS_A_SLAB;
        let is_large = |bytes: usize| part_bytes > 0 && bytes > part_bytes && given.takes_parts && is_final;
        // Number of large chunks that are gathered together, so that their parts can be written in turn.
        let packed_bytes = program.packed_size_bytes();
        let chunk_bytes = if gathers_packed { padded(packed_bytes) } else { 0 };
        let large_chunks = match gathers_packed && program.stored_is_packed() && is_large(packed_bytes) {
            true => (limit_bytes / 2 / chunk_bytes as u64).min(given.threads as u64).min(given.chunks) as usize,
            false => 0,
        };
        let frame_bytes = encoding.as_ref().map_or(0, |encoding| encoding.encoder.frame_bound_bytes());
        let is_in_parts = if encoding.is_some() { is_large(frame_bytes) } else { large_chunks > 0 };
        let is_whole = match &encoding {
            Some(encoding) => given.least.replaces() || encoding.merging.is_some(),
            None => given.least == Coverage::Full && gathers_packed,
        };
        let elements_bytes = if is_whole { 0 } else { given.part_elements * program.tail().dtype.size_bytes() };
        let gathered = if large_chunks > 0 || encoding.is_some() { 0 } else { chunk_bytes };
        let largest = elements_bytes.max(gathered).max(if is_in_parts { 0 } else { frame_bytes });
        let slab_bytes = slab_bytes.max(padded(largest));
        // Some slabs are being downloaded while others are being encoded. Each thread writes one part while the next
        // ones come. Frames come one after the other, and one thread at a time writes each, so more parts wait.
        let parts_a_thread = if encoding.is_some() { 4 } else { 2 };
        let for_parts = if is_in_parts { (parts_a_thread * given.threads).div_ceil(PARTS_A_SLAB) } else { 0 };
        // Old elements go to the device while frames come from it, so these slabs are extra.
        let merges = encoding.as_ref().is_some_and(|encoding| encoding.merging.is_some());
        let uploads = if merges { UPLOADS } else { 0 };
        let most_slabs = 2 * DOWNLOADS + 2 + for_parts + uploads;
        let for_pieces = if given.staged { limit_bytes / PIECES_SHARE } else { 0 };
        let old_bytes = encoding.as_ref().map_or(0, DeviceEncoding::old_pinned_bytes) as u64;
        let for_slabs = limit_bytes.saturating_sub(for_pieces + old_bytes);
        let slabs = (for_slabs / slab_bytes as u64).clamp(1, most_slabs as u64) as usize;
        let encoding_bytes = encoding.as_ref().map_or(0, |encoding| encoding.memory_bytes);
        let device_bytes = (large_chunks * chunk_bytes) as u64 + encoding_bytes;
        let arenas = limit_bytes.saturating_sub(device_bytes) / slab_bytes as u64;
        let downloads = DOWNLOADS.min(slabs - 1).min((arenas as usize).saturating_sub(1));
        DeviceWrite {
            gathers_packed,
            keeps_packed: given.is_resident && program.stored_is_packed() && program.tail().packing == Packing::Plain,
            keeps_frames: given.is_resident && is_final,
            slab_bytes,
            slabs,
            downloads,
            large_chunks,
            part_bytes: is_in_parts.then_some(part_bytes),
            device_bytes,
            encoding,
        }
    }

    /// Chooses the route of a chunk that has this layout. `is_object` says whether it is an object itself, or lies in a
    /// shard. Kernels may be able to encode the array's own layout, but not another one.
    pub(crate) fn route(&self, layout: &ChunkLayout, coverage: Coverage, is_object: bool) -> ChunkRoute {
        let is_encoded = || layout.program.as_ref().is_some_and(|program| program.device_encoder().is_ok());
        self.route_of(coverage, is_object, self.encoding.is_some() && is_encoded())
    }

    /// Chooses the route of a chunk. `is_encoded` says whether kernels can encode its layout.
    pub(super) fn route_of(&self, coverage: Coverage, is_object: bool, is_encoded: bool) -> ChunkRoute {
        match self.encoding.as_ref().filter(|_| is_encoded) {
            _ if self.keeps_packed && coverage.replaces() && is_object => ChunkRoute::Resident,
            Some(_) if coverage.replaces() => ChunkRoute::Kernels,
            Some(DeviceEncoding { merging: Some(_), .. }) => ChunkRoute::Merge,
            _ if coverage == Coverage::Full && self.gathers_packed => ChunkRoute::Packed,
            _ => ChunkRoute::Elements,
        }
    }

    /// Whether kernels encode the chunks of which a write keeps as many old elements as `coverage` says.
    pub(crate) fn encodes(&self, coverage: Coverage) -> bool {
        matches!(self.route_of(coverage, false, true), ChunkRoute::Kernels | ChunkRoute::Merge)
    }

    /// Whether chunks of which a write keeps as many old elements as `coverage` says go from pinned memory directly to
    /// the store.
    pub(crate) fn passes_by(&self, coverage: Coverage) -> bool {
        coverage == Coverage::Full && self.encoding.is_none() && self.part_bytes.is_some()
    }

    /// Number of chunks to keep collected for encoding kernels: those of the batches on the device and of two batches
    /// more.
    pub(crate) fn chunks_wanted(&self) -> usize {
        self.encoding.as_ref().map_or(0, |encoding| encoding.chunks.saturating_mul(encoding.batches + 2))
    }
}

/// Whether packing keeps all bits, so that elements with equal packed bytes are equal. Then packed bytes can be
/// compared with the fill value.
fn loses_nothing(program: &Program) -> bool {
    let steps = program.tail().steps_of_writing();
    steps.iter().all(|step| matches!(step, ElementStep::SwapBytes { .. }))
}

/// The kernels that encode the whole chunks of a write, and the size of their batches.
#[derive(Clone, Debug)]
pub(crate) struct DeviceEncoding {
    pub(crate) encoder: Arc<dyn DeviceEncoder>,
    /// The kernels that decode stored chunks of which the write replaces a part; `None` if the host decodes them.
    /// `None` if no chunk is written in part, or if the host merges such chunks.
    pub(crate) merging: Option<Arc<Native>>,
    /// Number of chunks that kernels encode in one batch.
    pub(crate) chunks: usize,
    /// Number of batches that the device encodes at a time.
    pub(crate) batches: usize,
    /// Maximum device memory, in bytes, that all batches on the device take together.
    pub(crate) memory_bytes: u64,
    /// Maximum stored bytes of an old chunk that kernels decode for merging. Frames of other writers may be larger; the
    /// host decodes them.
    pub(crate) old_bound_bytes: usize,
    /// Number of old chunks that may wait in pinned memory.
    old_waiting: usize,
}

/// Chooses the kernels that encode the whole chunks of a write.
///
/// # Errors
/// The reason why the host encodes.
fn encoding(program: &Program, given: &WriteCircumstances) -> Result<DeviceEncoding, &'static str> {
    let encoder = program.device_encoder()?;
    if let Some(reason) = encoder.host_reason(given.device) {
        return Err(reason);
    }
    if !given.force_device && !load(program, given).prefers_device(encoder.speeds()) {
        return Err("the host's threads encode such a small write faster");
    }
    let merging = if given.least.replaces() { None } else { merging(program, given.device).ok().map(Arc::new) };
    let merged = merging.and_then(|native| DeviceEncoding::within(program, encoder, given, Some(native)));
    merged
        .or_else(|| DeviceEncoding::within(program, encoder, given, None))
        .ok_or("kernels need more memory for such chunks than the limit allows")
}

/// The amount of work of a write.
fn load(program: &Program, given: &WriteCircumstances) -> EncodingLoad {
    let WriteCircumstances { chunks, threads, staged, .. } = *given;
    EncodingLoad { chunks, chunk_bytes: program.packed_size_bytes(), threads, staged }
}

/// Chooses the kernels that decode stored chunks of which a write changes a part.
///
/// # Errors
/// The reason why the host merges them.
fn merging(program: &Program, device: Device) -> Result<Native, &'static str> {
    let program = program.on(device);
    let division = program.divide(&leave_nothing);
    let reason = division.first_reason();
    division.whole().ok_or(reason.unwrap_or("kernels do not decode the old chunks"))
}

/// Decides whether the device or the host merges old elements with new ones. Returns the reason if the host does.
fn merging_place(
    program: &Program,
    device: Device,
    encoding: &Result<DeviceEncoding, &'static str>,
) -> Result<(), &'static str> {
    match encoding {
        Err(reason) => Err(*reason),
        Ok(DeviceEncoding { merging: Some(_), .. }) => Ok(()),
        Ok(_) => {
            let memory = "kernels need more memory to merge such chunks than the limit allows";
            Err(merging(program, device).err().unwrap_or(memory))
        }
    }
}

/// Device memory, in bytes, that a merge takes for decoding one old chunk: its stored and packed bytes, and the
/// decoder's scratch memory.
fn merging_bytes(native: &Native, encoder: &dyn DeviceEncoder, packed_bytes: usize) -> usize {
    let copies = usize::try_from(native.scratch_copies()).unwrap_or(usize::MAX).saturating_add(1);
    padded(old_bound_bytes(encoder, packed_bytes))
        .saturating_add(copies.saturating_mul(padded(packed_bytes)))
        .saturating_add(native.extra_bytes())
}

fn old_bound_bytes(encoder: &dyn DeviceEncoder, packed_bytes: usize) -> usize {
    encoder.frame_bound_bytes().max(packed_bytes)
}

impl DeviceEncoding {
    /// Size of the pinned memory in which old chunks wait for the kernels that decode them, in bytes.
    pub(crate) fn old_pinned_bytes(&self) -> usize {
        self.old_bound_bytes.saturating_mul(self.old_waiting)
    }

    /// Chooses how many batches kernels encode at a time, as many as fit the memory; `None` if not even one fits.
    fn within(
        program: &Program,
        encoder: &Arc<dyn DeviceEncoder>,
        given: &WriteCircumstances,
        merging: Option<Arc<Native>>,
    ) -> Option<DeviceEncoding> {
        let (tail, is_compared) = (program.tail(), !given.write_empty);
        let elements_bytes = if is_compared { tail.dtype.size_bytes() * given.chunk_elements } else { 0 };
        let packed_bytes = padded(program.packed_size_bytes());
        let plain_bytes = if tail.is_plain() || !is_compared { 0 } else { padded(elements_bytes) };
        let merging_bytes =
            merging.as_ref().map_or(0, |native| merging_bytes(native, &**encoder, program.packed_size_bytes()));
        let staged_bytes = if given.staged { given.part_elements * tail.dtype.size_bytes() } else { 0 };
        let gathered_bytes = (packed_bytes + program.device_undo().chunk_bytes() + plain_bytes + staged_bytes)
            .saturating_add(merging_bytes);
        let old_bound_bytes = old_bound_bytes(&**encoder, program.packed_size_bytes());
        let most_old = (given.memory_limit_bytes / OLD_SHARE / (old_bound_bytes as u64).max(1)) as usize;
        let blank_bytes = (program.packed_size_bytes() + elements_bytes) as u64;
        let memory_bytes = |chunks: usize, batches: usize| {
            let stride_bytes = padded(encoder.chunk_bytes());
            let row = ChunkRow { device: given.device, count: chunks, stride_bytes };
            let encoding = EncodeBatch::memory_bytes(&**encoder, &row);
            let batch = chunks.saturating_mul(gathered_bytes).saturating_add(encoding);
            // The frames of an earlier batch may still be on their way to the host.
            batch.saturating_mul(batches).saturating_add(encoder.output_bound_bytes(chunks)) as u64
        };
        // Parts that the host merges need device memory as well.
        let share = given.memory_limit_bytes / 4 * if given.least.replaces() || merging.is_some() { 3 } else { 2 };
        let room = share.checked_sub(blank_bytes)?;
        let (usual, packed) = (given.batch_bytes, packed_bytes as u64);
        let share = given.chunks.saturating_mul(packed) / BATCHES_OF_A_WRITE;
        let batch_bytes = share.clamp(usual, usual.saturating_mul(LARGEST_ENCODING_BATCH));
        let wanted = (batch_bytes / packed).max(1).min(given.chunks.max(1));
        let is_large = packed >= usual.saturating_mul(LARGEST_ENCODING_BATCH);
        let most = if is_large { ENCODING_LARGE_CHUNKS } else { ENCODING_BATCHES };
        (1..=most).rev().find_map(|batches| {
            let chunks = usize::try_from((room / memory_bytes(1, batches).max(1)).min(wanted)).ok()?;
            let memory_bytes = memory_bytes(chunks, batches);
            let encoding = DeviceEncoding {
                encoder: Arc::clone(encoder),
                merging: merging.clone(),
                chunks,
                batches,
                memory_bytes: memory_bytes + blank_bytes,
                old_bound_bytes,
                old_waiting: if merging.is_some() { chunks.saturating_mul(batches + 2).min(most_old) } else { 0 },
            };
            (chunks > 0 && memory_bytes <= room).then_some(encoding)
        })
    }
}

/// The distance in bytes between the beginnings of chunks of `size_bytes` that are put together in device memory.
pub(crate) fn padded(size_bytes: usize) -> usize {
    size_bytes.next_multiple_of(CHUNK_ALIGNMENT_BYTES).max(CHUNK_ALIGNMENT_BYTES)
}

/// The amount of encoding work, for the choice between kernels and host threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodingLoad {
    pub(super) chunks: u64,
    pub(super) chunk_bytes: usize,
    pub(super) threads: usize,
    /// Whether the elements are in host memory, from where those of each batch go up to the device.
    pub(super) staged: bool,
}

impl EncodingLoad {
    /// Whether kernels encode this work faster than host threads. A host thread takes one chunk at a time; on the
    /// device only the number of bytes matters.
    pub(super) fn prefers_device(&self, speeds: &EncodingSpeeds) -> bool {
        let Offload { host_s, device_s } = self.offload(speeds);
        device_s < host_s
    }

    /// The estimated times of encoding this work on the host and on the device.
    fn offload(&self, speeds: &EncodingSpeeds) -> Offload {
        let bytes = self.chunk_bytes as f64;
        let rounds = self.chunks.div_ceil(self.threads.max(1) as u64) as f64;
        let host_s = rounds * bytes / (speeds.host_thread_gb_s * 1e9);
        let taken_gb_s = if self.staged { staged_gb_s(self.threads) } else { f64::INFINITY };
        let device_gb_s = speeds.device_gb_s.min(taken_gb_s);
        Offload { host_s, device_s: speeds.device_s + self.chunks as f64 * bytes / (device_gb_s * 1e9) }
    }
}
