//! Placement: where the chunks of one read or write are decoded or encoded. It is decided here for a whole call, from the costs
//! of codecs and the available memory. `run` carries it out.

use std::sync::Arc;

use cuzarr_device::Device;

use super::costs::{Costs, Load};
use super::explanation::{Decoding, Placed, placements};
use crate::codec::batch::EncodeBatch;
use crate::codec::cost::EncodingSpeeds;
use crate::codec::device::{ChunkRow, DeviceEncoder};
use crate::codec::native::Native;
use crate::codec::{Chain, Division, Program, Work, leave_nothing};

/// Device memory of a batch that kernels decode, in multiples of its packed bytes: stored bytes and packed bytes. The decoder's
/// scratch memory comes on top.
pub(crate) const PLAIN_COPIES: u64 = 2;
/// Device memory of a batch that comes in device memory, in multiples of its packed bytes: the bytes as they came. Where kernels
/// decode, two more: frames put together, and packed bytes.
const RESIDENT_PACKED_COPIES: u64 = 1;
const RESIDENT_FRAME_COPIES: u64 = 3;
/// Size of a batch of frames that come in device memory, in usual batches. Beginning early gains nothing there, and each batch
/// waits once for the headers of its frames.
const LARGER_BATCHES: u64 = 4;
/// Batches that kernels should decode at once, each with its scratch memory, while one more is fetched.
const DECODING_BATCHES: u64 = 3;
/// Batches that kernels should decode at once when regions are read in turn. Regions take memory as well, and smaller batches
/// fill them sooner. On an H200, the mean of 8 GiB within 2 GiB took 1.04 times as long as reading them; with three batches
/// 1.20, with five 1.18 (`docs/notes/engine.md`).
const DECODING_IN_TURN: u64 = 4;

/// Batches that kernels should encode at once, because the slowest piece of a batch takes as long as the whole batch. Fewer are
/// run when memory is short.
const ENCODING_BATCHES: usize = 4;
/// Batches of one large chunk that kernels should encode at once. Each fills the device by itself, and the sooner the first one is
/// done, the sooner its frame is on its way.
const ENCODING_LARGE_CHUNKS: usize = 2;
/// Batches into which a write is divided. Kernels encode larger batches faster, because their ends weigh less; but the first frames
/// come later, and the last ones have nothing to overlap with.
const BATCHES_OF_A_WRITE: u64 = 16;
/// Size of the largest batch, in usual batches.
const LARGEST_ENCODING_BATCH: u64 = 4;
/// Chunks that are gathered for kernels begin at multiples of this.
const CHUNK_ALIGNMENT_BYTES: usize = 256;

/// Most bytes of a single chunk that the calling thread reads itself. Waking another thread, or starting work on a device, would
/// take longer.
pub(crate) const SMALL_BYTES: usize = 128 << 10;

/// The circumstances that a placement depends on, beside the array's codecs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Multiprocessors of the device that elements are read to.
    pub(crate) multiprocessors: u32,
    /// Host threads.
    pub(crate) threads: usize,
    /// Whether the device decodes everything that it can, also where the host would be faster.
    pub(crate) strict: bool,
    /// Bytes that may be in flight.
    pub(crate) memory_limit_bytes: u64,
    /// Bytes of a slab of the staging ring.
    pub(crate) slab_bytes: u64,
    /// Packed bytes of one batch that kernels decode.
    pub(crate) decode_batch_bytes: u64,
    /// The number of innermost chunks that are read.
    pub(crate) chunks: u64,
    /// Whether regions are read one after the other and handed to the caller.
    pub(crate) in_turn: bool,
    /// Whether the store keeps values in the device's memory.
    pub(crate) is_resident: bool,
    /// Bytes of the result, when one chunk of a local store is read into contiguous memory.
    pub(crate) one_chunk_bytes: Option<usize>,
}

/// How the batches of one read are carried out. Each route is implemented in `run/read/route`.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// The host decodes elements to their place in host memory.
    Host,
    /// The host decodes elements of variable length.
    Variable,
    /// The host decodes one small chunk, and one copy moves its elements to the device.
    Small,
    /// The host decodes into pinned memory, and packed bytes cross the bus. The host may undo only the last passes of encoding,
    /// as many as the number tells; then kernels undo the others on the device.
    Hybrid(Option<(usize, Arc<Native>)>),
    /// Chunks cross the bus in stored form, and kernels decode them.
    Kernels(Arc<Native>),
    /// Chunks come in the device's memory.
    Resident(Resident),
}

/// What happens to chunks that come in device memory.
#[derive(Clone, Debug)]
pub(crate) enum Resident {
    /// They are packed, and are scattered from the memory in which they came.
    Packed,
    /// Kernels decode them. The host may decode faster, but it would need to download the bytes first.
    Frames(Arc<Native>),
}

/// The placement of one read: its route, and the size of a batch.
#[derive(Clone, Debug)]
pub(crate) struct ReadPlacement {
    pub(crate) route: Route,
    /// Packed bytes of one batch.
    pub(crate) batch_bytes: u64,
}

impl ReadPlacement {
    /// The placement of a read into memory of `device`. `program` is `None` for elements of variable length.
    pub(crate) fn new(program: Option<&Program>, device: Device, given: &Circumstances) -> ReadPlacement {
        let by = |route, batch_bytes| ReadPlacement { route, batch_bytes };
        let Some(program) = program else { return by(Route::Variable, given.slab_bytes) };
        if device == Device::Cpu {
            return by(Route::Host, given.slab_bytes);
        }
        let is_small = |bytes: usize| bytes.max(program.packed_size_bytes()) <= SMALL_BYTES;
        if !given.strict && !given.is_resident && given.one_chunk_bytes.is_some_and(is_small) {
            return by(Route::Small, given.slab_bytes);
        }
        let batch_bytes = batch_bytes(program, given);
        let resident = given.is_resident.then(|| Resident::new(program, given.memory_limit_bytes)).flatten();
        if let Some(resident) = resident {
            let bytes = match &resident {
                Resident::Packed => batch_bytes,
                Resident::Frames(native) => {
                    let share = given.memory_limit_bytes / (2 * (RESIDENT_FRAME_COPIES + native.scratch_copies()));
                    batch_bytes.saturating_mul(LARGER_BATCHES).min(share).max(batch_bytes)
                }
            };
            return by(Route::Resident(resident), bytes);
        }
        let Division { host_passes, native, .. } = divide(program, given);
        let route = match native.map(Arc::new) {
            Some(native) if host_passes == 0 => Route::Kernels(native),
            native => Route::Hybrid(native.map(|native| (host_passes, native))),
        };
        by(route, batch_bytes)
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

    /// The device memory that a batch of `chunks` chunks or pieces takes. When stored bytes are larger than packed bytes, the
    /// difference comes on top.
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

/// The places of a chain's codecs in a read to `device`, and the estimates behind them, for explanations.
pub(crate) fn placed(chain: &Chain, program: Option<&Program>, device: Device, given: &Circumstances) -> Placed {
    let Some(program) = program else {
        let codecs = placements(chain, device, &leave_nothing);
        return Placed { codecs, decoding: Vec::new(), batch_bytes: given.slab_bytes };
    };
    let (costs, load) = (Costs::shipped(given.multiprocessors), load(program, given));
    let leave = |work: Work<'_>| if given.strict { None } else { costs.host_reason(work, load) };
    let decoding = program.frames().filter(|_| device != Device::Cpu).map(|(decoder, frame_bytes)| {
        let estimate = costs.estimate(decoder.speeds(), frame_bytes, load);
        Decoding { format: decoder.name().into(), frame_bytes, load, estimate }
    });
    let (codecs, decoding) = (placements(chain, device, &leave), decoding.collect());
    Placed { codecs, decoding, batch_bytes: batch_bytes(program, given) }
}

/// The load of one batch.
fn load(program: &Program, given: &Circumstances) -> Load {
    let factor = program.frames().map(|(decoder, bytes)| decoder.batch_factor(bytes)).max().unwrap_or(1);
    let scratch = program.frames().map(|(decoder, bytes)| decoder.scratch_copies(bytes)).max().unwrap_or(1);
    let share = given.memory_limit_bytes / (PLAIN_COPIES + scratch);
    let bytes = given.decode_batch_bytes.saturating_mul(factor * DECODING_BATCHES).min(share);
    let frames = given.chunks.min(bytes / program.packed_size_bytes().max(1) as u64).max(1);
    Load { threads: given.threads, frames }
}

/// The places where the program's passes run: all on the host when there is too little memory for kernels.
fn divide(program: &Program, given: &Circumstances) -> Division {
    let (costs, load) = (Costs::shipped(given.multiprocessors), load(program, given));
    let mut division = match given.strict {
        true => program.divide(&leave_nothing),
        false => program.divide(&|work| costs.host_reason(work, load)),
    };
    let chunk_bytes = program.packed_size_bytes() as u64;
    division.native = division.native.filter(|native| {
        let decoding = chunk_bytes.saturating_mul(PLAIN_COPIES + native.scratch_copies());
        decoding.saturating_add(native.extra_bytes() as u64) <= given.memory_limit_bytes
    });
    division
}

/// The packed bytes of a batch.
fn batch_bytes(program: &Program, given: &Circumstances) -> u64 {
    let Some(native) = divide(program, given).whole() else { return given.slab_bytes };
    // One batch fits the limit with its scratch memory. Where batches are as large as a slab, several fit, and the next one is
    // fetched meanwhile.
    let copies = PLAIN_COPIES + native.scratch_copies();
    let most = given.memory_limit_bytes / copies;
    let decoding = if given.in_turn { DECODING_IN_TURN } else { DECODING_BATCHES };
    let several = given.memory_limit_bytes / (decoding * copies + PLAIN_COPIES);
    let wanted = given.decode_batch_bytes.saturating_mul(native.batch_factor());
    wanted.min(several).max(given.slab_bytes.min(most))
}

/// The circumstances of a write that decide where its whole chunks are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteCircumstances {
    /// The device of the value.
    pub(crate) device: Device,
    /// Host threads.
    pub(crate) threads: usize,
    /// Whether the device encodes everything that it can, also where the host would be faster.
    pub(crate) strict: bool,
    /// The number of innermost chunks that are written.
    pub(crate) chunks: u64,
    /// Elements of one chunk.
    pub(crate) chunk_elements: usize,
    /// Whether each chunk is replaced as a whole. Others are merged with their old elements.
    pub(crate) replaces: bool,
    /// Whether chunks that only hold the fill value are stored.
    pub(crate) write_empty: bool,
    /// Bytes that may be in flight.
    pub(crate) memory_limit_bytes: u64,
    /// Packed bytes of one batch.
    pub(crate) batch_bytes: u64,
}

/// Kernels that encode the whole chunks of a write.
#[derive(Clone, Debug)]
pub(crate) struct DeviceEncoding {
    pub(crate) encoder: Arc<dyn DeviceEncoder>,
    /// The kernels that decode chunks of which a part is written; `None` when there are none, or the host merges them.
    pub(crate) merging: Option<Arc<Native>>,
    /// Chunks of one batch.
    pub(crate) chunks: usize,
    /// Batches on the device at a time.
    pub(crate) batches: usize,
    /// Most device memory of all batches.
    pub(crate) memory_bytes: u64,
}

/// The kernels that encode the whole chunks of a write; else the reason why the host encodes.
///
/// # Errors
/// The reason.
pub(crate) fn encoding(program: &Program, given: &WriteCircumstances) -> Result<DeviceEncoding, &'static str> {
    let encoder = program.device_encoder()?;
    if let Some(reason) = encoder.host_reason(given.device) {
        return Err(reason);
    }
    let (chunks, threads) = (given.chunks, given.threads);
    let load = EncodingLoad { chunks, chunk_bytes: program.packed_size_bytes(), threads };
    if !given.strict && !load.prefers_device(encoder.speeds()) {
        return Err("the host's threads encode such a small write faster");
    }
    let merging = if given.replaces { None } else { merging(program, given.device).ok().map(Arc::new) };
    let merged = merging.and_then(|native| DeviceEncoding::within(program, encoder, given, Some(native)));
    merged
        .or_else(|| DeviceEncoding::within(program, encoder, given, None))
        .ok_or("kernels need more memory for such chunks than the limit allows")
}

/// The kernels that decode old chunks, of which a write changes a part; else the reason why the host merges them.
///
/// # Errors
/// The reason.
fn merging(program: &Program, device: Device) -> Result<Native, &'static str> {
    let program = program.on(device);
    let division = program.divide(&leave_nothing);
    let reason = division.first_reason();
    division.whole().ok_or(reason.unwrap_or("kernels do not decode the old chunks"))
}

/// The reason why the host merges parts of chunks with their old elements; `None` when kernels do.
pub(crate) fn merging_reason(program: &Program, given: &WriteCircumstances) -> Option<&'static str> {
    match encoding(program, &WriteCircumstances { replaces: false, ..*given }) {
        Err(reason) => Some(reason),
        Ok(DeviceEncoding { merging: Some(_), .. }) => None,
        Ok(_) => {
            let memory = "kernels need more memory to merge such chunks than the limit allows";
            Some(merging(program, given.device).err().unwrap_or(memory))
        }
    }
}

/// Device memory for decoding one old chunk, beside the memory for encoding it again: stored and packed bytes, and the
/// decoder's scratch memory.
fn merging_bytes(native: &Native, encoder: &dyn DeviceEncoder, packed_bytes: usize) -> usize {
    let copies = usize::try_from(native.scratch_copies()).unwrap_or(usize::MAX).saturating_add(1);
    padded(old_bound_bytes(encoder, packed_bytes))
        .saturating_add(copies.saturating_mul(padded(packed_bytes)))
        .saturating_add(native.extra_bytes())
}

/// Most stored bytes of an old chunk that kernels decode for merging. Frames of other writers may be larger; the host decodes
/// those.
pub(crate) fn old_bound_bytes(encoder: &dyn DeviceEncoder, packed_bytes: usize) -> usize {
    encoder.frame_bound_bytes().max(packed_bytes)
}

impl DeviceEncoding {
    /// Chooses the most batches at a time for which the memory suffices; `None` when it does not suffice for one.
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
        let gathered_bytes =
            (packed_bytes + program.device_undo().chunk_bytes() + plain_bytes).saturating_add(merging_bytes);
        let blank_bytes = (program.packed_size_bytes() + elements_bytes) as u64;
        let memory_bytes = |chunks: usize, batches: usize| {
            let stride_bytes = padded(encoder.chunk_bytes());
            let row = ChunkRow { device: given.device, count: chunks, stride_bytes };
            let encoding = EncodeBatch::memory_bytes(&**encoder, &row);
            let batch = chunks.saturating_mul(gathered_bytes).saturating_add(encoding);
            // The frames of an earlier batch may still be downloading.
            batch.saturating_mul(batches).saturating_add(encoder.output_bound_bytes(chunks)) as u64
        };
        // Parts that the host merges need memory of the device as well.
        let share = given.memory_limit_bytes / 4 * if given.replaces || merging.is_some() { 3 } else { 2 };
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
            };
            (chunks > 0 && memory_bytes <= room).then_some(encoding)
        })
    }
}

/// Bytes from one gathered chunk to the next.
pub(crate) fn padded(size_bytes: usize) -> usize {
    size_bytes.next_multiple_of(CHUNK_ALIGNMENT_BYTES).max(CHUNK_ALIGNMENT_BYTES)
}

/// Whole chunks to encode, for the choice between kernels and host threads.
#[derive(Clone, Copy, Debug)]
struct EncodingLoad {
    chunks: u64,
    chunk_bytes: usize,
    threads: usize,
}

impl EncodingLoad {
    /// Whether kernels are faster. Host threads take one chunk at a time; on the device only the bytes count.
    fn prefers_device(&self, speeds: &EncodingSpeeds) -> bool {
        let bytes = self.chunk_bytes as f64;
        let rounds = self.chunks.div_ceil(self.threads.max(1) as u64) as f64;
        let host = rounds * bytes / (speeds.host_thread_gb_s * 1e9);
        let device = speeds.device_s + self.chunks as f64 * bytes / (speeds.device_gb_s * 1e9);
        device < host
    }
}

#[cfg(test)]
mod tests {
    use cuzarr_device::DType;
    use serde_json::{Value, json};

    use super::*;
    use crate::codec::ChunkSpec;
    use crate::meta::{DataType, Extension, FillValue};

    #[test]
    fn little_is_encoded_by_the_host_and_much_by_the_device() {
        let speeds = EncodingSpeeds { host_thread_gb_s: 0.6, device_gb_s: 40.0, device_s: 1e-3 };
        let prefers =
            |chunks, chunk_bytes, threads| EncodingLoad { chunks, chunk_bytes, threads }.prefers_device(&speeds);
        assert!(!prefers(1, 64 << 10, 16) && !prefers(16, 256 << 10, 16));
        assert!(prefers(1, 16 << 20, 16), "the device divides one chunk, the host does not");
        assert!(prefers(512, 1 << 20, 16) && prefers(8192, 64 << 10, 16));
        assert!(!prefers(8192, 64 << 10, 200), "threads enough");
    }

    /// The program of chunks of `floats` floats with these codecs.
    fn program(codecs: &Value, floats: u64, device: Device) -> Program {
        let codecs = codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs").unwrap());
        let data_type = DataType::try_from(DType::FLOAT32).unwrap();
        let fill_value = FillValue::default_of(&data_type);
        let spec = ChunkSpec::new(vec![floats], data_type, fill_value);
        Chain::from_codecs(&codecs.collect::<Vec<_>>(), spec).unwrap().bind(device).unwrap()
    }

    /// The route of a read of chunks of `floats` floats with these codecs. `change` adapts the circumstances of a large read.
    fn route(codecs: &Value, floats: u64, device: Device, change: impl Fn(&mut Circumstances)) -> Route {
        let program = program(codecs, floats, device);
        let mut given = Circumstances {
            multiprocessors: 132,
            threads: 4,
            strict: false,
            memory_limit_bytes: 1 << 30,
            slab_bytes: 16 << 20,
            decode_batch_bytes: 64 << 20,
            chunks: 4096,
            in_turn: false,
            is_resident: false,
            one_chunk_bytes: None,
        };
        change(&mut given);
        ReadPlacement::new(Some(&program), device, &given).route
    }

    #[test]
    fn kernels_encode_fewer_batches_at_a_time_where_memory_is_short() {
        let codecs = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
        let program = program(&codecs, 1 << 22, Device::Cuda(0));
        let mut given = WriteCircumstances {
            device: Device::Cuda(0),
            threads: 16,
            strict: true,
            chunks: 8,
            chunk_elements: 1 << 22,
            replaces: true,
            write_empty: false,
            memory_limit_bytes: 16 << 30,
            batch_bytes: 16 << 20,
        };
        let roomy = encoding(&program, &given).unwrap();
        assert_eq!((roomy.chunks, roomy.batches), (1, ENCODING_BATCHES));
        let mut batches = Vec::new();
        for limit in (1..200).rev().map(|step| step * roomy.memory_bytes / 100) {
            given.memory_limit_bytes = limit;
            match encoding(&program, &given) {
                Ok(encoding) => {
                    assert!(encoding.memory_bytes <= limit, "{encoding:?}");
                    batches.push(encoding.batches);
                }
                Err(reason) => assert!(reason.contains("memory"), "{reason}"),
            }
        }
        assert!(batches.is_sorted_by(|before, after| before >= after));
        batches.dedup();
        assert_eq!(batches, [4, 3, 2, 1]);
        given.memory_limit_bytes = 16 << 20;
        assert!(encoding(&program, &given).is_err(), "not even one");
    }

    #[test]
    fn batches_grow_with_the_write_and_few_large_chunks_are_encoded_at_a_time() {
        let codecs = json!([{"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}]);
        let batches = |floats: u64, chunks: u64| {
            let given = WriteCircumstances {
                device: Device::Cuda(0),
                threads: 16,
                strict: true,
                chunks,
                chunk_elements: floats as usize,
                replaces: true,
                write_empty: false,
                memory_limit_bytes: 16 << 30,
                batch_bytes: 16 << 20,
            };
            let encoding = encoding(&program(&codecs, floats, Device::Cuda(0)), &given).unwrap();
            (encoding.chunks, encoding.batches)
        };
        let mib = 1 << 18;
        assert_eq!(batches(mib, 128), (16, 4), "a usual batch");
        assert_eq!(batches(mib, 512), (32, 4), "512 MiB in 16 batches");
        assert_eq!(batches(mib, 1 << 20), (64, 4), "the largest batch");
        assert_eq!(batches(64 * mib, 64), (1, 2), "large chunks");
    }

    #[test]
    fn a_route_follows_from_where_bytes_are_and_what_decodes_them() {
        let (gpu, floats, large) = (Device::Cuda(0), 1 << 18, |_: &mut Circumstances| {});
        let (plain, zstd) = (json!([]), json!([{"name": "zstd", "configuration": {"level": 3}}]));
        assert!(matches!(route(&zstd, floats, Device::Cpu, large), Route::Host));
        assert!(matches!(route(&zstd, floats, gpu, large), Route::Kernels(_)));
        assert!(matches!(route(&plain, floats, gpu, large), Route::Hybrid(None)));
        let little = |given: &mut Circumstances| given.memory_limit_bytes = 1 << 20;
        assert!(matches!(route(&zstd, floats, gpu, little), Route::Hybrid(None)));
        let resident = |given: &mut Circumstances| given.is_resident = true;
        assert!(matches!(route(&plain, floats, gpu, resident), Route::Resident(Resident::Packed)));
        assert!(matches!(route(&zstd, floats, gpu, resident), Route::Resident(Resident::Frames(_))));
    }

    #[test]
    fn one_small_chunk_goes_by_the_host_unless_the_device_must_decode() {
        let is_small = |floats: u64, bytes: usize, change: &dyn Fn(&mut Circumstances)| {
            let route = route(&json!([]), floats, Device::Cuda(0), |given| {
                given.one_chunk_bytes = Some(bytes);
                change(given);
            });
            matches!(route, Route::Small)
        };
        assert!(is_small(1 << 15, SMALL_BYTES, &|_| {}));
        assert!(!is_small((1 << 15) + 1, 8, &|_| {}), "all of the chunk is decoded");
        assert!(!is_small(1 << 15, SMALL_BYTES + 1, &|_| {}));
        assert!(!is_small(1 << 15, 8, &|given| given.strict = true));
        assert!(!is_small(1 << 15, 8, &|given| given.is_resident = true));
        assert!(!is_small(1 << 15, 8, &|given| given.one_chunk_bytes = None));
    }
}
