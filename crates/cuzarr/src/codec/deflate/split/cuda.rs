//! Scratch memory and launches of `deflate_split.cu`: large frames, decoded by many warps.

use cuzarr_device::internal::{WARP, defined, pool, stated_size};
use cuzarr_device::{Buffer, Device, Kernel, KernelSource};

use crate::Result;
use crate::codec::batch::frames::FrameEntry;
use crate::codec::batch::{self, STATUS_BYTES};
use crate::codec::deflate::container::{Container, HEADERS, STATE_BYTES};
use crate::codec::device::{Task, Unit};
use crate::codec::lz;

static SPLIT: KernelSource = KernelSource {
    name: "deflate_split",
    text: include_str!("deflate_split.cu"),
    headers: &[HEADERS, lz::HEADERS, batch::HEADERS],
};

const HEADER: &str = include_str!("deflate_split.cuh");
const SLOT_BYTES: usize = defined(HEADER, "CUZARR_DEFLATE_SLOT_BITS") as usize / 8;
/// Settings of the kernel that finds where regions of a deflate frame end: `FEW` if there is little work for the
/// device, else `MANY`. An entry has some rounds, each of about 3 KiB decoded. A row of `warps` rounds is measured at a
/// time; an entry lies in one row.
const FEW: Measuring = Measuring { rounds: 2, warps: 8, inside_slots: 16, kernel: "deflate_measure_8" };
const MANY: Measuring = Measuring { rounds: 4, warps: 4, inside_slots: 32, kernel: "deflate_measure_4" };
const INSIDE_SLOTS_SIMT: u32 = 2;
/// Decoded bytes of a batch below which the settings `FEW` are used, so that the device has enough to do. `simt` has a
/// smaller limit, so that tests take both ways.
const LITTLE_BYTES: usize = 32 << 20;
const LITTLE_SIMT_BYTES: usize = 60_000;
/// Encoded bytes per entry in the list of places where a deflate block may begin, by which the list's capacity is
/// chosen. About one place in 180 bytes passes the first check. Places that do not fit are left out, which only costs
/// time.
const BYTES_PER_PLACE: usize = 64;
/// Encoded bytes per entry in the list of deflate blocks and parts of blocks, by which the list's capacity is chosen.
/// An entry is a block, or some rounds of 1.4 KB encoded; a block has at least one round. Frames with more entries or
/// rounds are decoded in order.
const BYTES_PER_ENTRY: usize = 256;
const BYTES_PER_ROUND: usize = 512;
/// Decoding tables are kept for about one deflate block in this many encoded bytes. The tables of further blocks are
/// made twice.
const BYTES_PER_TABLE: usize = 16 << 10;
/// Minimum bytes that a sequence of literals and a match decodes to, on average; frames with shorter ones are decoded
/// in order. A match has at least three bytes, and literals in front, so that even short sequences have more than six
/// on average.
const BYTES_PER_SEQUENCE: usize = 4;
/// Number of thread blocks of one warp each that a multiprocessor holds at once. `THREAD_BLOCKS` are blocks of 256
/// threads; `MEASURING_WARPS` are warps that measure.
const WARP_BLOCKS: u32 = 28;
const THREAD_BLOCKS: u32 = 8;
const MEASURING_WARPS: u32 = 32;
/// Number of lists that the kernels that split deflate frames keep in scratch memory. A launch sets the first `ZEROED`
/// to zeros, and those after them up to `FILLED` to ones.
const LISTS: usize = 11;
const ZEROED: usize = 2;
const FILLED: usize = 4;

/// Bytes of a `DeflateCounts`, an element of one of the lists that kernels keep in scratch memory.
const COUNTS_BYTES: usize = stated_size(HEADER, "DeflateCounts");
const REGION_BYTES: usize = stated_size(HEADER, "DeflateRegion");
const PLACE_BYTES: usize = stated_size(HEADER, "DeflatePlaceFound");
const ENTRY_BYTES: usize = stated_size(HEADER, "DeflateEntry");
const ROUND_BYTES: usize = stated_size(HEADER, "DeflateRound");
const TABLE_BYTES: usize = 4 * defined(
    concat!(include_str!("deflate_split.cuh"), include_str!("../deflate_tables.cuh")),
    "CUZARR_DEFLATE_KEPT_WORDS",
) as usize;
const LISTED_BYTES: usize = size_of::<u32>();
const COUNT_BYTES: usize = size_of::<u32>();
const ALIGNMENT_BYTES: usize = 256;

/// The addresses and maximum lengths of all lists in scratch memory, as an argument of kernels: `DeflateSplit` in
/// deflate_split.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tables {
    counts: usize,
    states: usize,
    regions: usize,
    listed: usize,
    places: usize,
    entries: usize,
    rounds: usize,
    tables: usize,
    skipped: usize,
    matches: usize,
    match_counts: usize,
    most_places: u32,
    most_entries: u32,
    most_rounds: u32,
    most_tables: u32,
    entry_rounds: u32,
    inside_slots: u32,
}

/// Settings of the kernel that finds where the regions of a deflate frame end and how many bytes they decode to.
struct Measuring {
    rounds: u32,
    warps: u32,
    /// Only in one of this many slots (stretches of encoded bytes) may a region begin inside a block of the fixed
    /// Huffman codes.
    inside_slots: u32,
    kernel: &'static str,
}

/// A plan for decoding each frame of a batch by many warps: the lists that kernels need, and the engine that copies
/// matches.
pub(in crate::codec::deflate) struct DeflateSplit {
    lists: Lists,
    engine: lz::LzEngine,
}

/// The numbers of frames, regions, sequences and bytes in a batch, which determine the sizes of the lists in scratch
/// memory.
struct Lists {
    frames: u32,
    slots: usize,
    sequences: usize,
    src_bytes: usize,
    dst_bytes: usize,
}

/// Maximum number of literal-match sequences in a frame that is split.
fn most_sequences(unit: &Unit) -> usize {
    unit.dst.len() / BYTES_PER_SEQUENCE + unit.src.len() / BYTES_PER_ENTRY + 64
}

impl DeflateSplit {
    /// Plans how frames are split, and completes their entries in the table of frames. Scratch memory keeps within
    /// `scratch_aim_bytes` if it can.
    pub(in crate::codec::deflate) fn new(
        device: Device,
        units: &[Unit],
        entries: &mut [FrameEntry],
        scratch_aim_bytes: usize,
    ) -> DeflateSplit {
        let (mut slots, mut sequences) = (0, 0);
        let mut copied = Vec::with_capacity(units.len());
        for (index, (unit, entry)) in units.iter().zip(entries).enumerate() {
            // Slots are counted from an aligned word. One more is for the frame's first region.
            let own_slots = (unit.src.len() + 3).div_ceil(SLOT_BYTES) + 1;
            let own_sequences = most_sequences(unit);
            entry.first_stream = slots as u64;
            entry.streams = own_slots as u32;
            entry.work_offset = sequences as u64;
            entry.block_bytes = own_sequences as u32;
            copied.push(lz::LzUnit {
                dst: unit.dst.clone(),
                // Literals already lie in the target.
                literals: unit.dst.start as u64,
                scratch_literals: 0,
                first_sequence: sequences as u64,
                status: index as u32,
            });
            slots += own_slots;
            sequences += own_sequences;
        }
        let lists = Lists {
            frames: units.len() as u32,
            slots,
            sequences,
            src_bytes: units.iter().map(|unit| unit.src.len()).sum(),
            dst_bytes: units.iter().map(|unit| unit.dst.len()).sum(),
        };
        let mark_bytes = scratch_aim_bytes.saturating_sub(lists.sizes().iter().sum());
        DeflateSplit { lists, engine: lz::LzEngine::new(device, &copied, false, mark_bytes) }
    }
}

impl Lists {
    fn most_places(&self) -> usize {
        self.src_bytes / BYTES_PER_PLACE + 1024
    }

    fn most_entries(&self) -> usize {
        self.src_bytes / BYTES_PER_ENTRY + 16 * self.frames as usize + 256
    }

    fn most_rounds(&self) -> usize {
        self.src_bytes / BYTES_PER_ROUND + 16 * self.frames as usize + 256
    }

    fn most_tables(&self) -> usize {
        // The first tables are those of the fixed codes.
        self.src_bytes / BYTES_PER_TABLE + self.frames as usize + 64
    }

    fn measuring(&self, device: Device) -> &'static Measuring {
        let little_bytes = if device == Device::Simt { LITTLE_SIMT_BYTES } else { LITTLE_BYTES };
        if self.dst_bytes < little_bytes { &FEW } else { &MANY }
    }

    /// Sizes in bytes of all lists that the kernels that split deflate frames keep in scratch memory, in the order of
    /// the lists there.
    fn sizes(&self) -> [usize; LISTS] {
        [
            COUNTS_BYTES,
            self.frames as usize * STATE_BYTES,
            self.slots * REGION_BYTES,
            self.frames as usize * STATUS_BYTES,
            self.slots * LISTED_BYTES,
            self.most_places() * PLACE_BYTES,
            self.most_entries() * ENTRY_BYTES,
            self.most_rounds() * ROUND_BYTES,
            self.most_tables() * TABLE_BYTES,
            self.sequences * lz::MATCH_BYTES,
            self.frames as usize * COUNT_BYTES,
        ]
        .map(|size| size.next_multiple_of(ALIGNMENT_BYTES))
    }
}

impl DeflateSplit {
    pub(in crate::codec::deflate) fn scratch_bytes(&self) -> usize {
        self.lists.sizes().iter().sum::<usize>() + self.engine.scratch_bytes()
    }

    /// Launches the kernels that decode several regions of each large deflate frame at the same time, as far as this is
    /// possible. Returns the scratch memory, and the address in it of the states, which say which frames are done.
    pub(in crate::codec::deflate) fn launch(
        &self,
        container: Container,
        task: &Task<'_>,
        table: &Buffer,
        trailers: &Buffer,
    ) -> Result<(Buffer, usize)> {
        let Task { stream, src, dst, .. } = *task;
        let (lists, sizes) = (&self.lists, self.lists.sizes());
        let mut at = [0; LISTS + 1];
        (0..LISTS).for_each(|index| at[index + 1] = at[index] + sizes[index]);
        let scratch = pool::allocate(at[LISTS], stream)?;
        stream.memset(&scratch.slice(..at[ZEROED])?, 0)?;
        stream.memset(&scratch.slice(at[ZEROED]..at[FILLED])?, 0xff)?;
        let device = stream.device();
        let measuring = lists.measuring(device);
        let place = |index: usize| scratch.address() + at[index];
        let tables = Tables {
            counts: place(0),
            states: place(1),
            regions: place(2),
            skipped: place(3),
            listed: place(4),
            places: place(5),
            entries: place(6),
            rounds: place(7),
            tables: place(8),
            matches: place(9),
            match_counts: place(10),
            most_places: lists.most_places() as u32,
            most_entries: lists.most_entries() as u32,
            most_rounds: lists.most_rounds() as u32,
            most_tables: lists.most_tables() as u32,
            entry_rounds: measuring.rounds,
            inside_slots: if device == Device::Simt { INSIDE_SLOTS_SIMT } else { measuring.inside_slots },
        };
        let kernel = |name| SPLIT.kernel(device, name);
        // Few threads in `simt`, where each is a fiber.
        let threads = if device == Device::Simt { WARP } else { 256 };
        let blocks = |kernel: &Kernel, wanted: u64, each: u32| {
            wanted.clamp(1, u64::from(kernel.multiprocessors() * each)) as u32
        };
        let (count, from, to, lines) = (lists.frames, src.address(), dst.address(), table.address());
        let buffers = [src, dst, table, trailers, &scratch];
        // SAFETY, for all launches: the parameters of the kernels in deflate_split.cu. `Prepared` has checked that source and
        // target have room for every frame. `sizes` has given every list the room that `tables` and the frames' entries say:
        // regions and sequences, as many as `new` counted. Kernels stop at the end of a list.
        let find = kernel("deflate_find")?;
        let grid = blocks(&find, (lists.slots as u64).div_ceil(u64::from(threads / WARP)), THREAD_BLOCKS);
        // SAFETY: as above.
        unsafe { find.launch(stream, grid, threads, (from, lines, count, lists.slots as u32, tables), &buffers) }?;
        let verify = kernel("deflate_verify")?;
        let grid = blocks(&verify, (lists.most_places() as u64).div_ceil(u64::from(WARP)), 4 * THREAD_BLOCKS);
        // SAFETY: as above.
        unsafe { verify.launch(stream, grid, WARP, (from, lines, count, lists.slots as u32, tables), &buffers) }?;
        let begin = (from, lines, count, container as u32, tables);
        // SAFETY: as above.
        unsafe { kernel("deflate_begin")?.launch(stream, count, WARP, begin, &buffers) }?;
        let measure = kernel(measuring.kernel)?;
        let grid = blocks(&measure, lists.slots as u64, MEASURING_WARPS / measuring.warps);
        // SAFETY: as above.
        unsafe { measure.launch(stream, grid, measuring.warps * WARP, (from, lines, count, tables), &buffers) }?;
        let chain = (from, lines, count, container as u32, tables, trailers.address());
        // SAFETY: as above; there is a trailer for each frame.
        unsafe { kernel("deflate_chain")?.launch(stream, count, WARP, chain, &buffers) }?;
        let emit = kernel("deflate_emit")?;
        let grid = blocks(&emit, lists.most_entries() as u64, WARP_BLOCKS);
        // SAFETY: as above.
        unsafe { emit.launch(stream, grid, WARP, (from, to, lines, count, tables), &buffers) }?;
        let part = |index: usize| scratch.slice(at[index]..at[index + 1]);
        let copies = Task { stream, src: dst, dst, statuses: &part(3)? };
        let (matches, counts) = (&part(9)?, &part(10)?);
        self.engine.launch(&copies, &self.engine.bring(stream)?, lz::Sequences::Matches { matches, counts }, dst)?;
        let states = tables.states;
        Ok((scratch, states))
    }
}
