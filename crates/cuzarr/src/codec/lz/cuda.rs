//! Launches the kernels that turn literals and matches into decoded bytes: `lz.cu`, `lz_short.cu` and `lz_settle.cu`.

use cuzarr_device::internal::{pool, write_table};
use cuzarr_device::{Arguments, Buffer, Device, Header, Kernel, KernelSource, Stream, header};

use super::{CHAIN_BYTES, LzPlan, LzUnit, MARK_BYTES, THREAD_BYTES, TILE_ENTRY_BYTES, by_lanes, threads};
use crate::Result;
use crate::codec::device::Task;

/// CUDA headers in `codec/lz` that kernels include.
pub(crate) const HEADERS: &[Header] = &[
    header!("codec/lz/bits.cuh"),
    header!("codec/lz/huffman.cuh"),
    header!("codec/lz/lz.cuh"),
    header!("codec/lz/lz_chains.cuh"),
    header!("codec/lz/lz_copies.cuh"),
    header!("codec/lz/lz_sequences.cuh"),
];

static LZ: KernelSource = KernelSource { name: "lz", text: include_str!("lz.cu"), headers: &[HEADERS] };
static LZ_SHORT: KernelSource =
    KernelSource { name: "lz_short", text: include_str!("lz_short.cu"), headers: &[HEADERS] };
static LZ_SETTLE: KernelSource =
    KernelSource { name: "lz_settle", text: include_str!("lz_settle.cu"), headers: &[HEADERS] };

/// Bytes of each counter that kernels share while they copy. The counters are a ticket for each list of tiles, then a
/// number of settled tiles for each unit, then a flag for each tile.
const WORD_BYTES: usize = 4;

/// A prepared copy that turns the literals and matches ("sequences") that a decoder found in a batch into decoded
/// bytes. Can be launched many times.
pub(crate) struct LzEngine {
    plan: LzPlan,
    units: usize,
    threads: u32,
    /// Whether each sequence is copied by one thread (lane) instead of a warp; only for sequences in bundles.
    by_lanes: bool,
    short: bool,
}

/// The sequences of literals and matches that a decoder's kernels found, and a `u32` for each unit that counts them.
#[derive(Clone, Copy)]
pub(crate) enum Sequences<'a> {
    /// Single sequences of literals and a match, with a sentinel after those of each unit.
    Plain { sequences: &'a Buffer, counts: &'a Buffer },
    /// Only matches, without literals; `counts` has the number of matches in each unit. The literals are already in
    /// their places.
    Matches { matches: &'a Buffer, counts: &'a Buffer },
    /// Sequences of literals and a match, in bundles of several. `counts` counts the bundles.
    Bundled { briefs: &'a Buffer, bundles: &'a Buffer, counts: &'a Buffer },
}

/// Device memory that a launch of an `LzEngine` reads: the table of the decoded bytes to write, and counters.
pub(crate) struct Brought {
    table: Buffer,
    counters: Buffer,
}

impl LzEngine {
    /// Prepares kernels that turn the literals and matches of `units` into decoded bytes. `short`: whether the
    /// sequences have a few bytes on average. Marks take at most `mark_limit_bytes`, if possible.
    pub(crate) fn new(device: Device, units: &[LzUnit], short: bool, mark_limit_bytes: usize) -> LzEngine {
        let threads = threads(device);
        let tile_bytes = threads as usize * THREAD_BYTES;
        let tiles = units.iter().map(|unit| unit.dst.len().div_ceil(tile_bytes));
        LzEngine {
            plan: LzPlan::new(units, tile_bytes, short, mark_limit_bytes),
            units: units.len(),
            threads,
            by_lanes: short && by_lanes(device, tiles),
            short,
        }
    }

    fn counter_bytes(&self) -> usize {
        (self.plan.lists().count() + self.units + self.plan.flags as usize) * WORD_BYTES
    }

    fn mark_bytes(&self) -> usize {
        self.plan.mark_count as usize * MARK_BYTES
    }

    /// Device memory, in bytes, that one launch takes for the table of tiles, counters and marks.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.plan.table_bytes() + self.counter_bytes() + self.mark_bytes()
    }

    /// Copies the table of a launch to device memory and sets its counters to 0, on a stream that need not be the
    /// launch's.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn bring(&self, stream: &Stream) -> Result<Brought> {
        let table = write_table(self.plan.table_bytes(), stream, |table| self.plan.write(table))?;
        let counters = pool::allocate(self.counter_bytes(), stream)?;
        stream.memset(&counters, 0)?;
        Ok(Brought { table, counters })
    }

    /// Puts the kernels that turn sequences into decoded bytes on the stream of `task`. The kernels that write
    /// `sequences`, and the copy of `brought`, must come before. `scratch_literals` holds the literals of sequences
    /// with CUZARR_LZ_SCRATCH.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn launch(
        &self,
        task: &Task<'_>,
        brought: &Brought,
        sequences: Sequences<'_>,
        scratch_literals: &Buffer,
    ) -> Result<()> {
        if self.plan.chains.is_empty() {
            return Ok(());
        }
        let marks = pool::allocate(self.mark_bytes().max(1), task.stream)?;
        let mut launches =
            Launches { engine: self, task, brought, sequences, scratch_literals, marks: &marks, list: 0, number: 0 };
        launches.tiles(self.plan.row_tiles)?;
        for part in &self.plan.parts {
            launches.marks(part.tiles)?;
            launches.settle(part.tiles)?;
        }
        Ok(())
    }
}

/// The kernel launches of an `LzEngine`, one for each list of tiles (pieces of decoded bytes), and how far they are.
struct Launches<'a> {
    engine: &'a LzEngine,
    task: &'a Task<'a>,
    brought: &'a Brought,
    sequences: Sequences<'a>,
    scratch_literals: &'a Buffer,
    marks: &'a Buffer,
    /// Size in bytes of the lists of tiles for which a kernel was already launched. `number` counts these lists.
    list: usize,
    number: usize,
}

/// Device addresses that a kernel gets for one list of tiles (pieces of decoded bytes).
struct Places {
    chains: usize,
    tiles: usize,
    ticket: usize,
    settled: usize,
    flags: usize,
}

impl Launches<'_> {
    /// Returns the device addresses that the kernel for the next list of tiles gets; the list has `tiles` tiles.
    fn next(&mut self, tiles: usize) -> Places {
        let plan = &self.engine.plan;
        let (chains, counters) = (self.brought.table.address(), self.brought.counters.address());
        let settled = counters + plan.lists().count() * WORD_BYTES;
        let places = Places {
            chains,
            tiles: chains + plan.chains.len() * CHAIN_BYTES + self.list,
            ticket: counters + self.number * WORD_BYTES,
            settled,
            flags: settled + self.engine.units * WORD_BYTES,
        };
        (self.list, self.number) = (self.list + tiles * TILE_ENTRY_BYTES, self.number + 1);
        places
    }

    fn launch(&self, kernel: &Kernel, tiles: usize, arguments: impl Arguments) -> Result<()> {
        let (Task { src, dst, statuses, stream }, Brought { table, counters }) = (*self.task, self.brought);
        let (first, second, counts) = match self.sequences {
            Sequences::Plain { sequences, counts } => (sequences, sequences, counts),
            Sequences::Matches { matches, counts } => (matches, matches, counts),
            Sequences::Bundled { briefs, bundles, counts } => (briefs, bundles, counts),
        };
        let buffers = [src, self.scratch_literals, dst, self.marks, table, first, second, counts, statuses, counters];
        // SAFETY: the parameters are those of the kernel (callers); a block of threads for each tile of the list, which `LzPlan`
        // has cut for so many threads. The decoder's kernels have checked the sequences of every unit that they did not report
        // as damaged; `LzPlan` has counted flags, tiles and marks. `lz_marks` writes marks that are literals or earlier places of
        // the same unit, and flags that say which tiles have none.
        Ok(unsafe { kernel.launch(stream, tiles as u32, self.engine.threads, arguments, &buffers) }?)
    }

    /// Launches the kernel that decodes the tiles of all rows directly to bytes; a row is a unit whose tiles are
    /// decoded in order.
    fn tiles(&mut self, tiles: usize) -> Result<()> {
        let at = self.next(tiles);
        if tiles == 0 {
            return Ok(());
        }
        let Task { stream, src, dst, statuses } = *self.task;
        let (device, from, to) = (stream.device(), (src.address(), self.scratch_literals.address()), dst.address());
        let statuses = statuses.address();
        match self.sequences {
            Sequences::Plain { sequences, counts } | Sequences::Matches { matches: sequences, counts } => {
                let plain = matches!(self.sequences, Sequences::Plain { .. });
                let name = if plain { "lz_tiles" } else { "lz_tiles_of_matches" };
                let (sequences, counts) = (sequences.address(), counts.address());
                let arguments =
                    (from.0, from.1, to, at.chains, at.tiles, sequences, counts, statuses, at.ticket, at.flags);
                self.launch(&LZ.kernel(device, name)?, tiles, arguments)
            }
            Sequences::Bundled { briefs, bundles, counts } => {
                let kernel = match self.engine.by_lanes {
                    true => LZ_SHORT.kernel(device, "lz_short")?,
                    false => LZ.kernel(device, "lz_tiles_bundled")?,
                };
                let (briefs, bundles, counts) = (briefs.address(), bundles.address(), counts.address());
                let arguments =
                    (from.0, from.1, to, at.chains, at.tiles, briefs, bundles, counts, statuses, at.ticket, at.flags);
                self.launch(&kernel, tiles, arguments)
            }
        }
    }

    /// Launches the kernel that decodes parts of large units to marks, each of which is a byte or the place to copy it
    /// from.
    fn marks(&mut self, tiles: usize) -> Result<()> {
        let at = self.next(tiles);
        let Task { stream, src, dst, statuses } = *self.task;
        let (device, from, to) = (stream.device(), (src.address(), self.scratch_literals.address()), dst.address());
        let (marks, statuses) = (self.marks.address(), statuses.address());
        match self.sequences {
            Sequences::Plain { sequences, counts } | Sequences::Matches { matches: sequences, counts } => {
                let plain = matches!(self.sequences, Sequences::Plain { .. });
                let name = if plain { "lz_marks" } else { "lz_marks_of_matches" };
                let (sequences, counts) = (sequences.address(), counts.address());
                let arguments =
                    (from.0, from.1, to, marks, at.chains, at.tiles, sequences, counts, statuses, at.ticket, at.flags);
                self.launch(&LZ.kernel(device, name)?, tiles, arguments)
            }
            Sequences::Bundled { briefs, bundles, counts } => {
                let (briefs, bundles, counts) = (briefs.address(), bundles.address(), counts.address());
                let (chains, list, ticket, flags) = (at.chains, at.tiles, at.ticket, at.flags);
                let arguments =
                    (from.0, from.1, to, marks, chains, list, briefs, bundles, counts, statuses, ticket, flags);
                self.launch(&LZ.kernel(device, "lz_marks_bundled")?, tiles, arguments)
            }
        }
    }

    /// Launches the kernel that turns the marks of one part of the large units into decoded bytes.
    fn settle(&mut self, tiles: usize) -> Result<()> {
        let at = self.next(tiles);
        let Task { stream, dst, statuses, .. } = *self.task;
        let name = if self.engine.short { "lz_settle_short" } else { "lz_settle" };
        let (marks, to) = (self.marks.address(), dst.address());
        let arguments = (marks, to, at.chains, at.tiles, statuses.address(), at.ticket, at.flags, at.settled);
        self.launch(&LZ_SETTLE.kernel(stream.device(), name)?, tiles, arguments)
    }
}
