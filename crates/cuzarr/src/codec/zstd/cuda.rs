//! Launches the kernels that decode a batch of Zstandard frames whose headers the host has read.

use cuzarr_device::internal::{WARP, defined, pool, stated_size, write_table};
use cuzarr_device::{Buffer, Device, Header, Kernel, KernelSource, Stream, header};

use super::cost;
use super::scan::scan;
use super::table::{RESULT_BYTES, TABLES_BYTES, TREE_BYTES, TableLayout, ZstdTables};
use crate::codec::cost::Speeds;
use crate::codec::device::{Decode, DeviceDecoder, HeaderWalk, Headers, Prepared, Request, Task, Unit};
use crate::codec::{batch, lz};
use crate::{Error, ErrorKind, Result};

/// The CUDA header with the codes that kernels report for damaged Zstandard frames.
pub(crate) const DAMAGE: Header = header!("codec/zstd/zstd_damage.cuh");
/// CUDA headers in `codec/zstd` that kernels include.
pub(crate) const HEADERS: &[Header] = &[
    header!("codec/zstd/bit_window.cuh"),
    header!("codec/zstd/fse.cuh"),
    header!("codec/zstd/xxh64.cuh"),
    header!("codec/zstd/zstd.cuh"),
    DAMAGE,
    header!("codec/zstd/zstd_headers.cuh"),
    header!("codec/zstd/zstd_literals.cuh"),
    header!("codec/zstd/zstd_predefined.cuh"),
    header!("codec/zstd/zstd_sequences.cuh"),
];

static TABLES: KernelSource =
    KernelSource { name: "zstd_tables", text: include_str!("zstd_tables.cu"), headers: &[HEADERS, lz::HEADERS] };
static ENTROPY: KernelSource =
    KernelSource { name: "zstd_entropy", text: include_str!("zstd_entropy.cu"), headers: &[HEADERS, lz::HEADERS] };
static WALK: KernelSource =
    KernelSource { name: "zstd_headers", text: include_str!("zstd_headers.cu"), headers: &[HEADERS, batch::HEADERS] };
static EXECUTE: KernelSource =
    KernelSource { name: "zstd_execute", text: include_str!("zstd_execute.cu"), headers: &[HEADERS, lz::HEADERS] };

/// Alignment in bytes of each list and table that kernels keep in scratch memory.
const ALIGNMENT_BYTES: usize = 256;
/// Number of blocks whose literals one warp decodes: `LITERALS` in the kernel for literals, `LITERALS_BESIDE` in the
/// kernel for sequences.
const LITERALS: u32 = defined(ENTROPY.text, "CUZARR_ZSTD_LITERALS");
const LITERALS_BESIDE: u32 = defined(ENTROPY.text, "CUZARR_ZSTD_LITERALS_BESIDE");
/// Bytes of shared memory that a thread block of the kernel `zstd_entropy` takes.
const ENTROPY_SHARED_BYTES: u32 = stated_size(ENTROPY.text, "SpaceOfMany") as u32;
/// Maximum number of groups of blocks per multiprocessor for which literals are decoded beside sequences, not after
/// them.
const GROUPS_BESIDE: u32 = 4;
/// Maximum number of thread blocks per multiprocessor for which fewer Zstandard blocks share a thread block.
const GROUPS_ALONE: u32 = 2;
/// Number of warps in a thread block, for kernels in which each warp works on one unit or frame. A block keeps its
/// place until its slowest unit is done, so it has few warps.
const WARPS_PER_BLOCK: u32 = 2;
/// Kernels decode only chunks of fewer decoded bytes than this, because offsets in bundles of sequences are limited.
const LARGEST_UNIT_BYTES: usize = lz::BRIEF_OFFSETS;

/// The contents of one frame's headers in tables for kernels, and the error if kernels do not decode the frame.
struct HeaderRead {
    tables: ZstdTables,
    refused: Option<Error>,
}

/// Kernels that decode Zstandard frames. A unit may hold several frames.
#[derive(Debug)]
pub(crate) struct ZstdDecoder;

impl DeviceDecoder for ZstdDecoder {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn speeds(&self) -> &'static Speeds {
        &cost::SPEEDS
    }

    fn host_reason(&self, decoded_bytes: usize) -> Option<&'static str> {
        (decoded_bytes >= LARGEST_UNIT_BYTES).then_some("zstd frames of 512 MiB and more are decoded on the host")
    }

    fn batch_factor(&self, _: usize) -> u64 {
        cost::BATCH_FACTOR
    }

    fn scratch_copies(&self, decoded_bytes: usize) -> u64 {
        cost::scratch_copies(decoded_bytes)
    }

    fn headers(&self, frame: &[u8], decoded_bytes: usize) -> Option<Headers> {
        let mut tables = ZstdTables::new();
        let refused = scan(&mut tables, frame, 0..frame.len(), 0..decoded_bytes).err();
        let unknown = refused.as_ref().is_some_and(|error| error.kind() == ErrorKind::Unsupported);
        (decoded_bytes < LARGEST_UNIT_BYTES && !unknown).then(|| Headers::read(HeaderRead { tables, refused }))
    }

    fn damages(&self) -> &'static [Header] {
        &[DAMAGE]
    }

    fn header_walk(&self) -> Option<HeaderWalk> {
        Some(HeaderWalk { source: &WALK, kernel: "headers_zstd", threads: 1 })
    }

    fn prepare(&self, request: &Request<'_>) -> Result<Prepared> {
        prepare(request)
    }
}

/// Adds the contents of one frame's headers to the tables that kernels read.
fn add(tables: &mut ZstdTables, request: &Request<'_>, index: usize) -> Result<()> {
    let Unit { src, dst } = &request.units[index];
    match (request.headers.get(index).and_then(Headers::get::<HeaderRead>), request.host) {
        (Some(read), _) if tables.append(&read.tables, src, dst) => match &read.refused {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        },
        (_, Some(host)) => scan(tables, &host[src.clone()], src.clone(), dst.clone()),
        (_, None) => {
            // Each unit has an entry, with or without frames.
            let _ = scan(tables, &[], src.clone(), dst.clone());
            let message = "zstd frames are prepared from their headers on the host, but got none";
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Plans the decoding of frames: collects the contents of all headers in tables that kernels read.
fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let mut tables = ZstdTables::new();
    let read = request.headers.iter().filter_map(Headers::get::<HeaderRead>).map(|read| read.tables.blocks.len());
    tables.blocks.reserve_exact(read.sum());
    let mut refused = Vec::new();
    for (index, unit) in request.units.iter().enumerate() {
        if let Err(error) = add(&mut tables, request, index) {
            refused.push((index, error));
        } else if let Some(reason) = ZstdDecoder.host_reason(unit.dst.len()) {
            refused.push((index, Error::new(ErrorKind::Unsupported, reason)));
        }
    }
    let units = tables.units.iter().enumerate().map(|(index, unit)| lz::LzUnit {
        dst: unit.dst.clone(),
        literals: unit.src.start as u64,
        scratch_literals: unit.literals,
        first_sequence: unit.first_bundle,
        status: index as u32,
    });
    let (layout, scratch) = (tables.layout(), ZstdScratch::of(&tables));
    let mark_bytes = request.scratch_aim_bytes.saturating_sub(scratch.bytes() + layout.size_bytes);
    let (units, short) = (units.collect::<Vec<_>>(), tables.has_short_sequences());
    let engine = lz::LzEngine::new(request.device, &units, short, mark_bytes);
    Prepared::new(request, ZstdDecoding { tables, layout, scratch, engine }, refused)
}

/// Sizes in bytes of the lists and tables in scratch memory that kernels need to decode a batch of Zstandard frames.
struct ZstdScratch {
    results: usize,
    trees: usize,
    tables: usize,
    sequences: usize,
    literals: usize,
    bundles: usize,
    bundle_counts: usize,
}

impl ZstdScratch {
    fn of(tables: &ZstdTables) -> ZstdScratch {
        let aligned = |bytes: usize| bytes.next_multiple_of(ALIGNMENT_BYTES);
        ZstdScratch {
            results: aligned(tables.blocks.len() * RESULT_BYTES),
            trees: aligned(tables.trees as usize * TREE_BYTES),
            tables: aligned(tables.tables as usize * TABLES_BYTES),
            sequences: aligned(tables.bundles as usize * lz::BUNDLE * lz::BRIEF_BYTES),
            literals: aligned(tables.literal_bytes as usize),
            bundles: aligned(tables.bundles as usize * lz::BUNDLE_BYTES),
            bundle_counts: aligned(tables.units.len() * 4),
        }
    }

    fn bytes(&self) -> usize {
        self.results + self.trees + self.tables + self.sequences + self.literals + self.bundles + self.bundle_counts
    }
}

struct ZstdDecoding {
    tables: ZstdTables,
    layout: TableLayout,
    scratch: ZstdScratch,
    engine: lz::LzEngine,
}

/// The arguments of all kernels that decode Zstandard frames: `ZstdTask` in zstd.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelTask {
    src: usize,
    dst: usize,
    units: usize,
    frames: usize,
    blocks: usize,
    with_tree: usize,
    with_literals: usize,
    with_sequences: usize,
    results: usize,
    literals: usize,
    sequences: usize,
    trees: usize,
    tables: usize,
    statuses: usize,
    bundles: usize,
    bundle_counts: usize,
    unit_count: u32,
    frame_count: u32,
    block_count: u32,
    with_tree_count: u32,
    with_literals_count: u32,
    with_sequences_count: u32,
}

/// The scratch memory of one launch: one buffer for each list or table of the Zstandard kernels.
struct ZstdParts {
    results: Buffer,
    trees: Buffer,
    tables: Buffer,
    sequences: Buffer,
    literals: Buffer,
    bundles: Buffer,
    bundle_counts: Buffer,
}

impl ZstdScratch {
    fn allocate(&self, task: &Task<'_>) -> Result<ZstdParts> {
        let all = pool::allocate(self.bytes(), task.stream)?;
        let mut at = 0;
        let mut part = |bytes: usize| {
            at += bytes;
            all.slice(at - bytes..at)
        };
        Ok(ZstdParts {
            results: part(self.results)?,
            trees: part(self.trees)?,
            tables: part(self.tables)?,
            sequences: part(self.sequences)?,
            literals: part(self.literals)?,
            bundles: part(self.bundles)?,
            bundle_counts: part(self.bundle_counts)?,
        })
    }
}

impl ZstdDecoding {
    fn task(&self, task: &Task<'_>, table: &Buffer, parts: &ZstdParts) -> KernelTask {
        let layout = &self.layout;
        let within = |at: usize| table.address() + at;
        KernelTask {
            src: task.src.address(),
            dst: task.dst.address(),
            units: within(0),
            frames: within(layout.frames),
            blocks: within(layout.blocks),
            with_tree: within(layout.with_tree.at),
            with_literals: within(layout.with_literals.at),
            with_sequences: within(layout.with_sequences.at),
            results: parts.results.address(),
            literals: parts.literals.address(),
            sequences: parts.sequences.address(),
            trees: parts.trees.address(),
            tables: parts.tables.address(),
            statuses: task.statuses.address(),
            bundles: parts.bundles.address(),
            bundle_counts: parts.bundle_counts.address(),
            unit_count: self.tables.units.len() as u32,
            frame_count: self.tables.frames.len() as u32,
            block_count: self.tables.blocks.len() as u32,
            with_tree_count: layout.with_tree.count(),
            with_literals_count: layout.with_literals.count(),
            with_sequences_count: layout.with_sequences.count(),
        }
    }
}

/// The number of Zstandard blocks whose sequences one thread block decodes. It decides the kernel.
#[derive(Clone, Copy)]
enum ZstdGroup {
    Few = defined(ENTROPY.text, "CUZARR_ZSTD_FEW") as isize,
    Some = defined(ENTROPY.text, "CUZARR_ZSTD_SOME") as isize,
    Many = defined(ENTROPY.text, "CUZARR_ZSTD_MANY") as isize,
}

impl ZstdGroup {
    fn of(sequences: u32, multiprocessors: u32) -> ZstdGroup {
        let fits = |group: &ZstdGroup| sequences.div_ceil(*group as u32) <= GROUPS_ALONE * multiprocessors;
        [ZstdGroup::Few, ZstdGroup::Some].into_iter().find(fits).unwrap_or(ZstdGroup::Many)
    }

    fn kernel(self, device: Device) -> Result<Kernel> {
        Ok(match self {
            ZstdGroup::Few => ENTROPY.kernel(device, "zstd_entropy_few")?,
            ZstdGroup::Some => ENTROPY.kernel(device, "zstd_entropy_some")?,
            ZstdGroup::Many => ENTROPY.kernel(device, "zstd_entropy")?.with_shared(ENTROPY_SHARED_BYTES)?,
        })
    }

    /// The number of Zstandard blocks that one thread block decodes; few on the device `simt`, where each thread is a
    /// fiber.
    fn blocks(self, device: Device) -> u32 {
        match self {
            ZstdGroup::Many if device == Device::Simt => ZstdGroup::Few as u32,
            group => group as u32,
        }
    }
}

impl Decode for ZstdDecoding {
    fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.layout.size_bytes + self.engine.scratch_bytes()
    }

    /// Launches the kernels that decode Zstandard frames on two CUDA streams: first those that find literals and
    /// matches, with higher priority, then those that copy. Decoding takes a millisecond even for little work, because
    /// each state depends on the one before, and leaves most of the device free. So the launches before the copies go
    /// ahead of another batch's copies. Otherwise they could only begin after all of those copies have begun.
    fn launch(&self, copies: &Task<'_>) -> Result<()> {
        let urgent = copies.stream.urgent()?;
        urgent.wait(&copies.stream.record()?)?;
        let task = &Task { stream: &urgent, ..*copies };
        let device = task.stream.device();
        let table = write_table(self.layout.size_bytes, task.stream, |table| self.tables.write(&self.layout, table))?;
        let parts = self.scratch.allocate(task)?;
        let kernel_task = self.task(task, &table, &parts);
        // The parts of scratch are one allocation.
        let buffers = [task.src, task.dst, task.statuses, &table, &parts.results];
        let launch_on = |stream: &Stream, kernel: &Kernel, blocks: u32, threads: u32| -> Result<()> {
            if blocks == 0 {
                return Ok(());
            }
            // SAFETY: the parameter of every kernel of zstd. The scan has checked that sections lie in their units, and
            // `Prepared` that source, target and statuses have room for all units. `ZstdScratch::of` and `TableLayout` have counted
            // the room that the tables need, and kernels check what they read in streams.
            Ok(unsafe { kernel.launch(stream, blocks, threads, (kernel_task,), &buffers) }?)
        };
        let launch = |kernel: &Kernel, blocks: u32, threads: u32| launch_on(&urgent, kernel, blocks, threads);
        let KernelTask { with_tree_count: trees, with_literals_count: literals, .. } = kernel_task;
        let KernelTask { with_sequences_count: sequences, unit_count, block_count, frame_count, .. } = kernel_task;
        let by_warp = |count: u32| count.div_ceil(WARPS_PER_BLOCK);
        if trees + sequences > 0 {
            launch(&TABLES.kernel(device, "zstd_tables")?, 1 + trees + sequences, WARP)?;
        }
        let place = EXECUTE.kernel(device, "zstd_place")?;
        let group = ZstdGroup::of(sequences, place.multiprocessors());
        let blocks = group.blocks(device);
        let (entropy, groups, threads) = (group.kernel(device)?, sequences.div_ceil(blocks), (1 + blocks) * WARP);
        let beside = literals.div_ceil(LITERALS_BESIDE);
        if groups > 0 && groups + beside <= GROUPS_BESIDE * place.multiprocessors() {
            launch(&entropy, groups + beside, threads)?;
        } else {
            launch(&entropy, groups, threads)?;
            launch(&ENTROPY.kernel(device, "zstd_literals")?, literals.div_ceil(LITERALS), WARP)?;
        }
        launch(&place, by_warp(unit_count), WARPS_PER_BLOCK * WARP)?;
        // Few threads in `simt`, where each is a fiber.
        let threads = if device == Device::Simt { 2 * WARP } else { 8 * WARP };
        launch(&EXECUTE.kernel(device, "zstd_finish")?, block_count, threads)?;
        let brought = self.engine.bring(task.stream)?;
        copies.stream.wait(&urgent.record()?)?;
        let ZstdParts { sequences: briefs, bundles, bundle_counts: counts, literals, .. } = &parts;
        self.engine.launch(copies, &brought, lz::Sequences::Bundled { briefs, bundles, counts }, literals)?;
        if self.tables.frames.iter().any(|frame| frame.checksum.is_some()) {
            let kernel = EXECUTE.kernel(device, "zstd_checksum")?;
            launch_on(copies.stream, &kernel, by_warp(frame_count), WARPS_PER_BLOCK * WARP)?;
        }
        Ok(())
    }
}

/// Describes the headers that a [`ZstdDecoder`] read from a frame, as text for tests.
#[cfg(test)]
pub(crate) fn described_headers(headers: &Headers) -> Option<String> {
    let HeaderRead { tables, refused } = headers.get()?;
    let layout = tables.layout();
    let mut table = vec![0; layout.size_bytes];
    tables.write(&layout, &mut table);
    let counts = (tables.bundles, tables.trees, tables.tables, tables.literal_bytes);
    Some(format!("{:?} {counts:?} {table:?}", refused.as_ref().map(Error::to_string)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubins_are_named_by_the_headers_of_both_folders_as_the_script_names_them() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/compile_kernels.py");
        let Ok(output) = std::process::Command::new("python3").arg(script).arg("--keys").output() else {
            println!("skipped: no python3");
            return;
        };
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        for source in [&TABLES, &ENTROPY, &EXECUTE, &WALK] {
            let line = format!("{} {}", source.name, source.key().unwrap());
            assert!(words.lines().any(|known| known == line), "{line}: {words}");
        }
    }
}
