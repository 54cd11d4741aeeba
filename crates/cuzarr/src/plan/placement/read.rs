//! The placement of one read: its route, the size of its batches, and which codecs run on the host.

use std::sync::Arc;

use cuzarr_device::Device;

use super::{Decoding, Placement, ViaHost, refuse_fallen};
use crate::codec::native::Native;
use crate::codec::{Chain, Division, Program, VARIABLE, leave_nothing};
use crate::error::Result;
use crate::plan::costs::{Costs, Load};

/// Device memory for a batch that kernels decode, as a multiple of its packed bytes: room for stored and packed bytes.
/// Scratch memory of the decoder comes on top.
pub(crate) const PLAIN_COPIES: u64 = 2;
/// Device memory for a batch whose stored bytes are already in device memory, as a multiple of its packed bytes. Packed
/// chunks need no further memory. Frames take two more copies: frames put together, and packed bytes.
const RESIDENT_PACKED_COPIES: u64 = 1;
const RESIDENT_FRAME_COPIES: u64 = 3;
/// Size of a batch of frames that the store hands over in device memory, as a multiple of the usual size. An early
/// start gains nothing for such frames, and each batch waits once for their headers.
const LARGER_BATCHES: u64 = 4;
/// Number of batches that kernels should decode at once, while one more batch is fetched from the store.
const DECODING_BATCHES: u64 = 3;
/// Number of batches that kernels should decode at once if regions of an array are read one after the other. Regions
/// take memory too, and smaller batches fill them sooner. On an H200 with a limit of 2 GiB, the mean of 8 GiB took 1.04
/// times as long as the read alone; with three batches 1.20, with five 1.18 (`docs/notes/engine.md`).
const DECODING_IN_TURN: u64 = 4;

/// Maximum size in bytes of a single chunk that the calling thread reads and decodes itself, without other threads or
/// kernels. Waking another thread, or starting work on a device, would take longer.
pub(crate) const SMALL_BYTES: usize = 128 << 10;

/// The facts about a read, beside the array's codecs, from which its placement is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Number of multiprocessors of the device that gets the result.
    pub(crate) multiprocessors: u32,
    /// Number of host threads that read and decode.
    pub(crate) threads: usize,
    /// Whether the device decodes everything that it can, even if the host would be faster.
    pub(crate) force_device: bool,
    /// Maximum number of bytes that may be in flight.
    pub(crate) memory_limit_bytes: u64,
    /// Size in bytes of a slab: a piece of pinned memory in which bytes wait for their copy to the device.
    pub(crate) slab_bytes: u64,
    /// Size of one batch that kernels decode, in packed bytes: what chunks take before elements are copied to the
    /// result.
    pub(crate) decode_batch_bytes: u64,
    /// The number of innermost chunks that are read; 0 if they are read into host memory, where they are not counted.
    pub(crate) chunks: u64,
    /// Whether regions of the array are read in order, and each one is handed to the caller as soon as it is complete.
    pub(crate) in_turn: bool,
    /// Whether the store keeps its objects in the memory of the device.
    pub(crate) is_resident: bool,
    /// Bytes of the result, if one chunk of a local store is read into contiguous memory.
    pub(crate) one_chunk_bytes: Option<usize>,
}

/// Where the batches of one read are decoded, and how their bytes get there. Each route is implemented in
/// `run/read/route`.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// The host decodes elements directly into the result, which is in host memory.
    Host,
    /// The host decodes elements of variable length, which stay in host memory.
    Variable,
    /// The host decodes one small chunk, and one copy moves its elements to the device.
    Small,
    /// The host undoes some or all codecs in pinned memory, from where the result is copied to the device. With a
    /// number, the host only undoes that many of the last passes of encoding, and kernels undo the others on the
    /// device.
    Hybrid(Option<(usize, Arc<Native>)>),
    /// Chunks are copied to the device in stored form, and kernels decode them there.
    Kernels(Arc<Native>),
    /// The store hands over the stored bytes of chunks in device memory, so that they need no copy from the host.
    Resident(Resident),
}

/// How a read treats chunks whose stored bytes the store hands over in device memory.
#[derive(Clone, Debug)]
pub(crate) enum Resident {
    /// The stored bytes of chunks need no decoding before elements are copied from them to the result.
    Packed,
    /// Stored bytes are frames, and kernels decode them. The host may decode faster, but it would need to download the
    /// bytes first.
    Frames(Arc<Native>),
}

impl Route {
    /// Whether chunks on this route can share a batch with chunks on the route `other`, because the same kernels decode
    /// them.
    pub(crate) fn is_like(&self, other: &Route) -> bool {
        match (self, other) {
            (Route::Host, Route::Host) | (Route::Hybrid(None), Route::Hybrid(None)) => true,
            (Route::Hybrid(Some((passes, native))), Route::Hybrid(Some((others, other)))) => {
                passes == others && native.is_like(other)
            }
            (Route::Kernels(native), Route::Kernels(other)) => native.is_like(other),
            (Route::Resident(Resident::Packed), Route::Resident(Resident::Packed)) => true,
            (Route::Resident(Resident::Frames(native)), Route::Resident(Resident::Frames(other))) => {
                native.is_like(other)
            }
            _ => false,
        }
    }

    /// The name of this route of a read, which explanations show, such as `kernels`.
    fn name(&self) -> &'static str {
        match self {
            Route::Host => "host",
            Route::Variable => "variable",
            Route::Small => "small",
            Route::Hybrid(None) => "host, then a copy",
            Route::Hybrid(Some(_)) => "host, then kernels",
            Route::Kernels(_) => "kernels",
            Route::Resident(_) => "resident",
        }
    }
}

/// The decision how one read is executed: its route, the size of its batches, and why codecs run on the host.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlacement {
    pub(crate) route: Route,
    /// Size that one batch should have, in packed bytes: what chunks take before elements are copied to the result.
    pub(crate) batch_bytes: u64,
    device: Device,
    via_host: ViaHost,
    /// The device's decoding costs and the work in one batch, if the choice between device and host depended on them.
    pub(super) weighed: Option<(Costs, Load)>,
}

/// The reason, shown to users, why the host decodes a read of one small chunk.
const SMALL: &str = "the host decodes one small chunk before kernels would begin";
/// The reason, shown to users, why the host decodes if kernels would take too much memory.
const TOO_LITTLE_MEMORY: &str = "kernels need more memory for one chunk than the limit allows";

impl ReadPlacement {
    /// Chooses the placement of a read into memory of `device`. `program` is `None` for elements of variable length.
    pub(crate) fn new(program: Option<&Program>, device: Device, given: &Circumstances) -> ReadPlacement {
        let by = |route, batch_bytes, via_host| ReadPlacement { route, batch_bytes, device, via_host, weighed: None };
        let Some(program) = program else { return by(Route::Variable, given.slab_bytes, ViaHost::All(VARIABLE)) };
        if device == Device::Cpu {
            return by(Route::Host, given.slab_bytes, ViaHost::NOTHING);
        }
        let is_small = |bytes: usize| bytes.max(program.packed_size_bytes()) <= SMALL_BYTES;
        if !given.force_device && !given.is_resident && given.one_chunk_bytes.is_some_and(is_small) {
            return by(Route::Small, given.slab_bytes, ViaHost::These(program.all_via_host(SMALL)));
        }
        let (costs, load) = (Costs::shipped(given.multiprocessors), load(program, given));
        let division = divide(program, given, &costs, load);
        let batch_bytes = batch_bytes(&division, given);
        let resident = given.is_resident.then(|| Resident::new(program, given.memory_limit_bytes)).flatten();
        if let Some(resident) = resident {
            let bytes = match &resident {
                Resident::Packed => batch_bytes,
                Resident::Frames(native) => {
                    let share = given.memory_limit_bytes / (2 * (RESIDENT_FRAME_COPIES + native.scratch_copies()));
                    batch_bytes.saturating_mul(LARGER_BATCHES).min(share).max(batch_bytes)
                }
            };
            return by(Route::Resident(resident), bytes, ViaHost::NOTHING);
        }
        let Divided { host_passes, native, via_host } = division;
        let route = match native {
            Some(native) if host_passes == 0 => Route::Kernels(native),
            native => Route::Hybrid(native.map(|native| (host_passes, native))),
        };
        ReadPlacement { weighed: Some((costs, load)), ..by(route, batch_bytes, via_host) }
    }

    /// The name of the read's route, which explanations show, such as `kernels`.
    pub(crate) fn route_name(&self) -> &'static str {
        self.route.name()
    }

    /// For each codec, in order of encoding, whether it runs on the device, or why it runs on the host.
    pub(crate) fn codecs(&self, chain: &Chain) -> Vec<Placement> {
        self.via_host.places(chain, self.device)
    }

    /// The estimated decoding speeds of device and host, from which it was decided which of the two decodes.
    pub(crate) fn estimates(&self, program: Option<&Program>) -> Vec<Decoding> {
        let (Some((costs, load)), Some(program)) = (&self.weighed, program) else { return Vec::new() };
        let estimates = program.frames().map(|(decoder, frame_bytes)| {
            let estimate = costs.estimate(decoder.speeds(), frame_bytes, *load);
            Decoding { format: decoder.name().into(), frame_bytes, load: *load, estimate }
        });
        estimates.collect()
    }

    /// Refuses codecs that run on the host although elements are read to a device.
    ///
    /// # Errors
    /// `FallbackRefused`, with each codec and its reason.
    pub(crate) fn refuse_fallen(&self, chain: &Chain) -> Result<()> {
        if self.via_host.is_nothing() { Ok(()) } else { refuse_fallen(self.codecs(chain)) }
    }
}

impl Resident {
    fn new(program: &Program, memory_limit_bytes: u64) -> Option<Resident> {
        if program.stored_is_packed() {
            return Some(Resident::Packed);
        }
        let resident = Resident::Frames(Arc::new(program.divide(&leave_nothing).whole()?));
        (resident.device_bytes(program.packed_size_bytes(), 1) <= memory_limit_bytes).then_some(resident)
    }

    /// Device memory, in bytes, that a batch of `chunks` chunks or pieces of chunks needs. If stored bytes are larger
    /// than packed bytes, the difference comes on top.
    pub(crate) fn device_bytes(&self, packed_bytes: usize, chunks: usize) -> u64 {
        let packed = packed_bytes as u64;
        match self {
            Resident::Packed => packed.saturating_mul(RESIDENT_PACKED_COPIES),
            Resident::Frames(native) => {
                let between = (chunks as u64).saturating_mul(native.extra_bytes() as u64);
                (RESIDENT_FRAME_COPIES + native.scratch_copies()).saturating_mul(packed).saturating_add(between)
            }
        }
    }
}

/// The amount of parallel work in one batch, for choosing where to decode.
fn load(program: &Program, given: &Circumstances) -> Load {
    let factor = program.frames().map(|(decoder, bytes)| decoder.batch_factor(bytes)).max().unwrap_or(1);
    let scratch = program.frames().map(|(decoder, bytes)| decoder.scratch_copies(bytes)).max().unwrap_or(1);
    let share = given.memory_limit_bytes / (PLAIN_COPIES + scratch);
    let bytes = given.decode_batch_bytes.saturating_mul(factor * DECODING_BATCHES).min(share);
    let frames = given.chunks.min(bytes / program.packed_size_bytes().max(1) as u64).max(1);
    Load { threads: given.threads, frames }
}

/// Which decoding passes of a program run on the host in a read, and which kernels run the other passes.
struct Divided {
    /// Number of decoding passes that the host runs over each chunk, if kernels run the rest.
    host_passes: usize,
    /// The kernels that run the remaining decoding passes on the device; `None` if the host runs all passes.
    native: Option<Arc<Native>>,
    via_host: ViaHost,
}

/// Decides which decoding passes of the program the host runs, and which the device. If there is too little memory for
/// kernels, all run on the host.
fn divide(program: &Program, given: &Circumstances, costs: &Costs, load: Load) -> Divided {
    let Division { host_passes, native, via_host } = match given.force_device {
        true => program.divide(&leave_nothing),
        false => program.divide(&|work| costs.host_reason(work, load)),
    };
    let chunk_bytes = program.packed_size_bytes() as u64;
    let fits = |native: &Native| {
        let decoding = chunk_bytes.saturating_mul(PLAIN_COPIES + native.scratch_copies());
        decoding.saturating_add(native.extra_bytes() as u64) <= given.memory_limit_bytes
    };
    match native {
        Some(native) if !fits(&native) => {
            Divided { host_passes, native: None, via_host: ViaHost::These(program.all_via_host(TOO_LITTLE_MEMORY)) }
        }
        native => Divided { host_passes, native: native.map(Arc::new), via_host: ViaHost::These(via_host) },
    }
}

/// Chooses how many packed bytes a batch should have.
fn batch_bytes(division: &Divided, given: &Circumstances) -> u64 {
    let Some(native) = division.native.as_ref().filter(|_| division.host_passes == 0) else { return given.slab_bytes };
    // At least one batch fits the limit with its scratch memory. If batches are larger than a slab, several fit, and
    // one more can be fetched while they decode.
    let copies = PLAIN_COPIES + native.scratch_copies();
    let most = given.memory_limit_bytes / copies;
    let decoding = if given.in_turn { DECODING_IN_TURN } else { DECODING_BATCHES };
    let several = given.memory_limit_bytes / (decoding * copies + PLAIN_COPIES);
    let wanted = given.decode_batch_bytes.saturating_mul(native.batch_factor());
    wanted.min(several).max(given.slab_bytes.min(most))
}
