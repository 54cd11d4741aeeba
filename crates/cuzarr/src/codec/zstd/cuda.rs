//! Launches of zstd's kernels over a batch of units whose headers the host has read.

use cuzarr_device::{Kernel, KernelSource, pool, upload_table};

use super::scan::scan;
use super::table::{Layout, RESULT_BYTES, SEQUENCE_BYTES, TABLES_BYTES, TREE_BYTES, Tables};
use crate::codec::batch::{Decode, Prepared, Request, Task};
use crate::{Error, ErrorKind, Result};

static TABLES: KernelSource = KernelSource { name: "zstd_tables", text: include_str!("zstd_tables.cu") };
static LITERALS: KernelSource = KernelSource { name: "zstd_literals", text: include_str!("zstd_literals.cu") };
static SEQUENCES: KernelSource = KernelSource { name: "zstd_sequences", text: include_str!("zstd_sequences.cu") };
static EXECUTE: KernelSource = KernelSource { name: "zstd_execute", text: include_str!("zstd_execute.cu") };

const WARP: u32 = 32;
/// Parts of scratch begin at multiples of this.
const ALIGNMENT_BYTES: usize = 256;
/// Blocks that a multiprocessor has before they share warps: up to here every scheduler has two warps, which leaves it time.
const BLOCKS_ALONE: u32 = 8;
/// Before eight share one, instead of four.
const BLOCKS_BY_FOUR: u32 = 32;
/// Few warps a block of threads, so that its place is free as soon as its slowest unit is done.
const WARPS_PER_BLOCK: u32 = 2;
/// Offsets are counted in 30 bits, some of which say other things: `CUZARR_ZSTD_SYMBOLIC`.
const LARGEST_UNIT_BYTES: usize = 3 << 28;

/// Why kernels do not decode units of so many bytes.
pub(crate) fn host_reason(decoded_bytes: usize) -> Option<&'static str> {
    (decoded_bytes >= LARGEST_UNIT_BYTES).then_some("zstd frames of 768 MiB and more are decoded on the host")
}

/// Whether kernels decode what the headers promise, or know what is wrong with it.
pub(crate) fn knows(bytes: &[u8], decoded_bytes: usize) -> bool {
    let scanned = scan(&mut Tables::new(), bytes, 0..bytes.len(), 0..decoded_bytes);
    decoded_bytes < LARGEST_UNIT_BYTES && scanned.map_or_else(|error| error.kind() != ErrorKind::Unsupported, |()| true)
}

/// Reads the headers of all units.
pub(crate) fn prepare(request: &Request<'_>) -> Result<Prepared> {
    let host = request.host.ok_or_else(|| {
        Error::new(ErrorKind::InvalidArgument, "zstd frames are prepared from their bytes on the host, but got none")
    })?;
    let mut tables = Tables::new();
    let mut refused = Vec::new();
    for (index, unit) in request.units.iter().enumerate() {
        if let Err(error) = scan(&mut tables, &host[unit.src.clone()], unit.src.clone(), unit.dst.clone()) {
            refused.push((index, error));
        } else if let Some(reason) = host_reason(unit.dst.len()) {
            refused.push((index, Error::new(ErrorKind::Unsupported, reason)));
        }
    }
    Ok(Prepared { decode: Box::new(Zstd { layout: tables.layout(), scratch: Scratch::of(&tables), tables }), refused })
}

/// Sizes of the parts of scratch.
struct Scratch {
    results: usize,
    trees: usize,
    tables: usize,
    sequences: usize,
    literals: usize,
}

impl Scratch {
    fn of(tables: &Tables) -> Scratch {
        let aligned = |bytes: usize| bytes.next_multiple_of(ALIGNMENT_BYTES);
        Scratch {
            results: aligned(tables.blocks.len() * RESULT_BYTES),
            trees: aligned(tables.trees as usize * TREE_BYTES),
            tables: aligned(tables.tables as usize * TABLES_BYTES),
            sequences: aligned(tables.sequences as usize * SEQUENCE_BYTES),
            literals: aligned(tables.literal_bytes as usize),
        }
    }

    fn bytes(&self) -> usize {
        self.results + self.trees + self.tables + self.sequences + self.literals
    }
}

struct Zstd {
    tables: Tables,
    layout: Layout,
    scratch: Scratch,
}

/// `ZstdTask` in zstd.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelTask {
    src: usize,
    dst: usize,
    units: usize,
    frames: usize,
    blocks: usize,
    with_tree: usize,
    with_sequences: usize,
    results: usize,
    literals: usize,
    sequences: usize,
    trees: usize,
    tables: usize,
    statuses: usize,
    unit_count: u32,
    frame_count: u32,
    block_count: u32,
    with_tree_count: u32,
    with_sequences_count: u32,
    reserved: u32,
}

impl Zstd {
    fn task(&self, task: &Task<'_>, table: usize, scratch: usize) -> KernelTask {
        let (layout, parts) = (&self.layout, &self.scratch);
        let trees = scratch + parts.results;
        let tables = trees + parts.trees;
        let sequences = tables + parts.tables;
        KernelTask {
            src: task.src.address(),
            dst: task.dst.address(),
            units: table,
            frames: table + layout.frames,
            blocks: table + layout.blocks,
            with_tree: table + layout.with_tree,
            with_sequences: table + layout.with_sequences,
            results: scratch,
            literals: sequences + parts.sequences,
            sequences,
            trees,
            tables,
            statuses: task.statuses.address(),
            unit_count: self.tables.units.len() as u32,
            frame_count: self.tables.frames.len() as u32,
            block_count: self.tables.blocks.len() as u32,
            with_tree_count: layout.with_tree_count,
            with_sequences_count: layout.with_sequences_count,
            reserved: 0,
        }
    }
}

/// How many blocks share a warp.
fn sharing(blocks: u32, multiprocessors: u32) -> u32 {
    match blocks {
        few if few <= BLOCKS_ALONE * multiprocessors => 1,
        some if some <= BLOCKS_BY_FOUR * multiprocessors => 4,
        _ => 8,
    }
}

impl Decode for Zstd {
    fn scratch_bytes(&self) -> usize {
        self.scratch.bytes() + self.layout.bytes.len()
    }

    fn launch(&self, task: &Task<'_>) -> Result<()> {
        let device = task.stream.device();
        let table = upload_table(&self.layout.bytes, task.stream)?;
        let scratch = pool::allocate(self.scratch.bytes(), task.stream)?;
        let kernel_task = self.task(task, table.address(), scratch.address());
        let buffers = [task.src, task.dst, task.statuses, &table, &scratch];
        let launch = |kernel: &Kernel, blocks: u32, threads: u32| -> Result<()> {
            if blocks == 0 {
                return Ok(());
            }
            // SAFETY: the parameter of every kernel of zstd. The scan has checked that sections lie in their units and units in
            // source and target, and scratch has room for what the tables say; kernels check what they read in streams.
            Ok(unsafe { kernel.launch(task.stream, blocks, threads, (kernel_task,), &buffers) }?)
        };
        let KernelTask { with_tree_count, with_sequences_count, block_count, unit_count, frame_count, .. } =
            kernel_task;
        if with_tree_count + with_sequences_count > 0 {
            launch(&TABLES.kernel(device, "zstd_tables")?, 1 + with_tree_count + with_sequences_count, WARP)?;
        }
        let alone = LITERALS.kernel(device, "zstd_literals_1")?;
        match sharing(block_count, alone.multiprocessors()) {
            1 => launch(&alone, block_count, WARP)?,
            _ => launch(&LITERALS.kernel(device, "zstd_literals_8")?, block_count.div_ceil(8), WARP)?,
        }
        let shared = sharing(with_sequences_count, alone.multiprocessors());
        let sequences = SEQUENCES.kernel(device, &format!("zstd_sequences_{shared}"))?;
        launch(&sequences, with_sequences_count.div_ceil(shared), WARP)?;
        let by_warp = |count: u32| count.div_ceil(WARPS_PER_BLOCK);
        launch(&EXECUTE.kernel(device, "zstd_place")?, by_warp(unit_count), WARPS_PER_BLOCK * WARP)?;
        launch(&EXECUTE.kernel(device, "zstd_copy")?, by_warp(unit_count), WARPS_PER_BLOCK * WARP)?;
        if self.tables.frames.iter().any(|frame| frame.checksum.is_some()) {
            launch(&EXECUTE.kernel(device, "zstd_checksum")?, by_warp(frame_count), WARPS_PER_BLOCK * WARP)?;
        }
        Ok(())
    }
}
