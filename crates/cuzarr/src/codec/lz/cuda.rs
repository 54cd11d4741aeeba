//! Launches of `lz.cu`, `lz_short.cu` and `lz_settle.cu`.

use cuzarr_device::{Buffer, Device, Header, KernelSource, Stream, header, pool, write_table};

use super::{CHAIN_BYTES, Plan, THREAD_BYTES, TILE_ENTRY_BYTES, Unit, by_lanes, threads};
use crate::Result;
use crate::codec::device::Task;

/// Headers of this folder that kernels include.
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

/// In front of the flags: a ticket for each of three launches, then how many tiles of each unit are settled.
const TICKETS: usize = 4;
const WORD_BYTES: usize = 4;

/// The copies of a batch: turns the sequences of its units into bytes, and can be launched many times.
pub(crate) struct Engine {
    plan: Plan,
    units: usize,
    threads: u32,
    /// Whether tiles are made by a lane for each sequence.
    by_lanes: bool,
    short: bool,
}

/// The table that a launch reads, and the counters that it uses.
pub(crate) struct Brought {
    table: Buffer,
    counters: Buffer,
}

impl Engine {
    /// `short`: whether the sequences are of a few bytes on average.
    pub(crate) fn new(device: Device, units: &[Unit], short: bool) -> Engine {
        let threads = threads(device);
        let tile_bytes = threads as usize * THREAD_BYTES;
        let tiles = units.iter().map(|unit| unit.dst.len().div_ceil(tile_bytes));
        Engine {
            plan: Plan::new(units, tile_bytes, short),
            units: units.len(),
            threads,
            by_lanes: short && by_lanes(device, tiles),
            short,
        }
    }

    fn counter_bytes(&self) -> usize {
        (TICKETS + self.units + self.plan.flags as usize) * WORD_BYTES
    }

    fn mark_bytes(&self) -> usize {
        self.plan.mark_count as usize * WORD_BYTES
    }

    /// Device memory that a launch takes.
    pub(crate) fn scratch_bytes(&self) -> usize {
        self.plan.table_bytes() + self.counter_bytes() + self.mark_bytes()
    }

    /// Puts the tables of a launch, and its counters, into device memory, in the order of a stream that need not be the launch's.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn bring(&self, stream: &Stream) -> Result<Brought> {
        let table = write_table(self.plan.table_bytes(), stream, |table| self.plan.write(table))?;
        let counters = pool::allocate(self.counter_bytes(), stream)?;
        stream.memset(&counters, 0)?;
        Ok(Brought { table, counters })
    }

    /// Puts the copies on the stream, behind the kernels that write `sequences` and, a `u32` for each unit, `counts`, and behind
    /// what was brought for them. `scratch_literals` is where sequences with CUZARR_LZ_SCRATCH find theirs.
    ///
    /// # Errors
    /// `OutOfMemory`, `LibraryMissing`, `KernelCompileFailed`, `DeviceFailed`.
    pub(crate) fn launch(
        &self,
        task: &Task<'_>,
        Brought { table, counters }: &Brought,
        (sequences, counts): (&Buffer, &Buffer),
        scratch_literals: &Buffer,
    ) -> Result<()> {
        if self.plan.chains.is_empty() {
            return Ok(());
        }
        let Task { stream, src, dst, statuses } = *task;
        let marks = pool::allocate(self.mark_bytes().max(1), stream)?;
        let ticket = |launch: usize| counters.address() + launch * WORD_BYTES;
        let settled = ticket(TICKETS);
        let flags = settled + self.units * WORD_BYTES;
        let tiles = self.plan.tiles;
        let list = |list: usize| {
            let before: usize = tiles[..list].iter().sum();
            table.address() + self.plan.chains.len() * CHAIN_BYTES + before * TILE_ENTRY_BYTES
        };
        let buffers = [src, scratch_literals, dst, &marks, table, sequences, counts, statuses, counters];
        let read = |number| {
            (table.address(), list(number), sequences.address(), counts.address(), statuses.address(), ticket(number))
        };
        let literals = (src.address(), scratch_literals.address());
        if tiles[0] > 0 {
            let kernel = match self.by_lanes {
                true => LZ_SHORT.kernel(stream.device(), "lz_short")?,
                false => LZ.kernel(stream.device(), "lz_tiles")?,
            };
            let read = read(0);
            let to = dst.address();
            let arguments = (literals.0, literals.1, to, read.0, read.1, read.2, read.3, read.4, read.5, flags);
            // SAFETY: the parameters of lz_tiles and lz_short, a block of threads for each tile of the list, which `Plan` has
            // cut for so many threads. The decoder's kernels have checked the sequences of every unit that they did not
            // report as damaged; `Plan` has counted flags and tiles.
            unsafe { kernel.launch(stream, tiles[0] as u32, self.threads, arguments, &buffers) }?;
        }
        if tiles[1] > 0 {
            let kernel = LZ.kernel(stream.device(), "lz_marks")?;
            let read = read(1);
            let to = (dst.address(), marks.address());
            let arguments = (literals.0, literals.1, to.0, to.1, read.0, read.1, read.2, read.3, read.4, read.5, flags);
            // SAFETY: the parameters of lz_marks. The conditions are those above, and `Plan` has counted the marks.
            unsafe { kernel.launch(stream, tiles[1] as u32, self.threads, arguments, &buffers) }?;
        }
        if tiles[2] > 0 {
            let kernel = LZ_SETTLE.kernel(stream.device(), if self.short { "lz_settle_short" } else { "lz_settle" })?;
            let read = (marks.address(), dst.address(), table.address(), list(2), statuses.address());
            let arguments = (read.0, read.1, read.2, read.3, read.4, ticket(2), flags, settled);
            // SAFETY: the parameters of both. `lz_marks` has written marks that are literals or earlier places of the same
            // unit, and flags that say which tiles have none.
            unsafe { kernel.launch(stream, tiles[2] as u32, self.threads, arguments, &buffers) }?;
        }
        Ok(())
    }
}
