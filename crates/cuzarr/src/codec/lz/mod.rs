//! The copy engine of all formats made of literals and matches: it turns sequences into bytes with all threads of a GPU
//! (`lz.cu`). It is not a codec.
//!
//! A decoder writes the sequences of its units (`codec/lz/lz_sequences.cuh`), then launches an [`LzEngine`].
//!
//! There are two ways to copy a unit. A unit is a row if its tiles, copied one after the other, take no longer than all
//! other units together. The tiles of a row become bytes at once. A larger unit is cut into segments. All segments
//! become marks side by side, with 4 bytes of scratch memory for each byte; then they are settled one after the other.
//! If that is too much memory, segments are processed in parts, one after the other, in the same memory.

mod cuda;
pub(crate) mod find;

pub(crate) use cuda::{HEADERS, LzEngine, Sequences};

use std::ops::Range;

use cuzarr_device::Device;
use cuzarr_device::internal::{WARP, defined, stated_size};

use super::batch::Fields;

const CHAINS: &str = include_str!("lz_chains.cuh");
const SEQUENCES: &str = include_str!("lz_sequences.cuh");
/// Bytes of one sequence (literals and a match) that a decoder writes for the engine.
pub(crate) const SEQUENCE_BYTES: usize = stated_size(SEQUENCES, "LzSequence");
/// Bytes of one match, for decoders that write only matches.
pub(crate) const MATCH_BYTES: usize = size_of::<u64>();
/// Number of sequences of literals and a match in a bundle. In their lists, a bundle has `BUNDLE_BYTES`, and each of
/// its sequences `BRIEF_BYTES`.
pub(crate) const BUNDLE: usize = defined(SEQUENCES, "CUZARR_LZ_BUNDLE") as usize;
pub(crate) const BUNDLE_BYTES: usize = stated_size(SEQUENCES, "LzBundle");
pub(crate) const BRIEF_BYTES: usize = size_of::<u64>();
/// Exclusive upper limit of the distance in bytes that a match looks back, if sequences come in bundles.
pub(crate) const BRIEF_OFFSETS: usize = defined(SEQUENCES, "CUZARR_LZ_BRIEF_OFFSETS") as usize;
/// Bytes of a mark: a number that stands for one decoded byte, or for the place to copy this byte from.
const MARK_BYTES: usize = size_of::<u32>();
/// Maximum number of parts that are decoded one after the other, so that the marks of all parts share one memory. Each
/// part adds a row of tiles and of settled segments.
const MOST_PARTS: usize = 8;
/// Number of decoded bytes that one thread writes in a tile, the output of a thread block.
const THREAD_BYTES: usize = defined(CHAINS, "CUZARR_LZ_OWN") as usize;
const MOST_THREADS: u32 = defined(CHAINS, "CUZARR_LZ_THREADS");
/// How many tiles (pieces of output) of other units are decoded while one tile waits for the tile before it in its
/// unit. A tile waits about 2 microseconds, while all tiles run at 250 GB/s. With short sequences it waits 10
/// microseconds, and segments run at 110 GB/s.
const ROW_COST: usize = 64;
const ROW_COST_SHORT: usize = 130;
/// Maximum number of tiles in a row (a unit that is decoded tile by tile) for which `ROW_COST_BRIEF` replaces
/// `ROW_COST_SHORT`. Such rows end while the chains of other batches run, and segments would slow those chains. If
/// there is no memory for marks, all units of this size become rows, so that more batches are decoded at once.
const BRIEF_ROW: usize = 128;
const ROW_COST_BRIEF: usize = 60;
/// Minimum ratio of all units' tiles to those of the longest unit for which one thread (lane) copies each sequence. A
/// tile in a row then waits 25 microseconds for the one before, but 512 MiB take 2.5 instead of 4.2 milliseconds in
/// all.
const SHORT_SHARE: usize = 400;
/// Maximum number of tiles in a unit that is never cut into segments, because a second pass would gain nothing.
const SHORT_ROW: usize = 16;
/// Time to turn the marks of one tile into bytes, relative to the time to decode a tile directly to bytes.
/// `SETTLE_COST_SHORT` is for short sequences.
const SETTLE_COST: f64 = 0.6;
const SETTLE_COST_SHORT: f64 = 2.2;
/// Number of tiles in each segment into which a large unit is cut, if enough other units are decoded beside it. A unit
/// gets at most one segment for each `SETTLE_SHARE` tiles of all units. While segments are settled one after the other,
/// the other units keep the device busy. Short segments wait less.
const SEGMENT_TILES: usize = 5;
const SETTLE_SHARE: usize = 340;
/// Number of chains (runs of tiles of one unit) that are decoded in turns: one tile of each chain, then the next of
/// each. Only this many are at work at once, so that the bytes that they repeat are still in the cache.
const TURNS: usize = 1024;

/// Number of threads in a thread block: few on the emulated device `simt`, where each thread is a fiber.
fn threads(device: Device) -> u32 {
    if device == Device::Simt { WARP } else { MOST_THREADS }
}

/// Whether one thread (lane) should copy each sequence, for units of these numbers of tiles whose sequences are short.
/// Two tiles are enough on `simt`, where tests are small.
fn by_lanes(device: Device, tiles: impl Iterator<Item = usize> + Clone) -> bool {
    let share = if device == Device::Simt { 2 } else { SHORT_SHARE };
    tiles.clone().max().is_some_and(|longest| longest * share <= tiles.sum())
}

/// Whether a unit of `tiles` tiles is decoded directly, one tile after the other, instead of in segments side by side.
/// All units together have `total` tiles. `short`: whether the sequences have a few bytes.
fn is_row(tiles: usize, total: usize, short: bool) -> bool {
    let cost = match (short, tiles <= BRIEF_ROW) {
        (false, _) => ROW_COST,
        (true, false) => ROW_COST_SHORT,
        (true, true) => ROW_COST_BRIEF,
    };
    tiles <= SHORT_ROW.max(total / cost)
}

/// Number of segments, decoded side by side, that a unit of `tiles` tiles is cut into. All units together have `total`
/// tiles. `short`: whether the sequences have a few bytes.
fn segments_of(tiles: usize, total: usize, short: bool) -> usize {
    let cost = if short { SETTLE_COST_SHORT } else { SETTLE_COST };
    let alone = (tiles as f64 / cost).sqrt().ceil() as usize;
    alone.max((tiles / SEGMENT_TILES).min(total / SETTLE_SHARE)).clamp(1, tiles)
}

/// Number of segments that a unit is cut into if all segments are processed in `parts` parts. A part takes as long as
/// its longest segment, however few there are. So shorter segments are better, until settling takes as long as the
/// rest.
fn segments_in_parts(segments: usize, parts: usize, tiles: usize) -> usize {
    ((segments as f64 * (parts as f64).sqrt()).ceil() as usize).max(parts).clamp(1, tiles)
}

/// A range of output that is decoded alone: where its literals and matches are read, and where its bytes are written.
#[derive(Clone, Debug)]
pub(crate) struct LzUnit {
    /// The range of the target buffer that the unit's decoded bytes fill.
    pub(crate) dst: Range<usize>,
    /// Where the unit's literals begin in the source.
    pub(crate) literals: u64,
    /// Where those literals of the unit begin that lie in scratch memory.
    pub(crate) scratch_literals: u64,
    /// The index of the unit's first sequence among those of all units, or of its first bundle among all bundles.
    pub(crate) first_sequence: u64,
    /// The index of the unit's status in the buffer in which kernels report damage. If the status reports damage,
    /// nothing is written.
    pub(crate) status: u32,
}

/// Consecutive tiles (pieces of decoded bytes) of one unit, which are decoded in order. `LzChain` in lz_chains.cuh.
#[derive(Clone, Debug)]
struct LzChain {
    dst: u64,
    literals: u64,
    scratch_literals: u64,
    first_sequence: u64,
    first_mark: u64,
    unit: u32,
    status: u32,
    begin: u32,
    bytes: u32,
    first_flag: u32,
    tiles_before: u32,
}

/// Bytes of the entry for one chain of tiles in the table that kernels read. A tile has `TILE_ENTRY_BYTES`.
const CHAIN_BYTES: usize = stated_size(CHAINS, "LzChain");
const TILE_ENTRY_BYTES: usize = stated_size(CHAINS, "LzTile");

/// The number of a chain (consecutive tiles of decoded bytes), and the number of one tile in it. `LzTile` in
/// lz_chains.cuh.
type Tile = (u32, u32);

/// The order in which all tiles (pieces of output) of a launch are decoded, and the memory for their marks.
#[derive(Debug, Default)]
struct LzPlan {
    tile_bytes: usize,
    chains: Vec<LzChain>,
    /// Numbers of the chains of tiles that are decoded directly to bytes.
    rows: Vec<u32>,
    /// Numbers of the chains of tiles that are decoded to marks first, and then to bytes. They are sorted: the first
    /// segments of all units, then the second ones, and so on.
    segments: Vec<u32>,
    /// Number of tiles in all chains that are decoded directly to bytes, without marks.
    row_tiles: usize,
    /// The parts of `segments` that are processed one after the other. Only the marks of one part are in memory at a
    /// time.
    parts: Vec<LzPart>,
    flags: u32,
    /// Number of marks (one for each decoded byte) in the largest part of the segments.
    mark_count: u64,
}

/// A range of the plan's list of segments that is decoded at one time, and the number of tiles in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LzPart {
    segments: Range<usize>,
    tiles: usize,
}

impl LzPlan {
    /// Plans how the output of `units` is cut into chains of tiles, and in which order the chains are decoded. Marks
    /// should take at most `mark_limit_bytes`.
    fn new(units: &[LzUnit], tile_bytes: usize, short: bool, mark_limit_bytes: usize) -> LzPlan {
        let mut plan = LzPlan { tile_bytes, ..LzPlan::default() };
        let tiles_of = |unit: &LzUnit| unit.dst.len().div_ceil(tile_bytes);
        let total: usize = units.iter().map(tiles_of).sum();
        let mark_bytes = |is_row: &dyn Fn(usize) -> bool| {
            units.iter().map(tiles_of).filter(|&tiles| !is_row(tiles)).sum::<usize>() * tile_bytes * MARK_BYTES
        };
        let is_short_of_memory = mark_bytes(&|tiles| is_row(tiles, total, short)) > mark_limit_bytes;
        let is_row = |tiles| is_row(tiles, total, short) || (is_short_of_memory && tiles <= BRIEF_ROW);
        let mark_bytes = mark_bytes(&is_row);
        let parts = mark_bytes.div_ceil(mark_limit_bytes.max(1)).clamp(1, MOST_PARTS);
        // For each chain: its number as a segment of its unit, then its number among all chains.
        let mut segments: Vec<(u32, u32)> = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let tiles = tiles_of(unit);
            if tiles == 0 {
                continue;
            }
            if is_row(tiles) {
                plan.rows.push(plan.chains.len() as u32);
                plan.row_tiles += tiles;
                plan.add(index, unit, 0..unit.dst.len());
                continue;
            }
            let count = segments_in_parts(segments_of(tiles, total, short), parts, tiles);
            let segment_bytes = tiles.div_ceil(count) * tile_bytes;
            for (number, begin) in (0..unit.dst.len()).step_by(segment_bytes).enumerate() {
                segments.push((number as u32, plan.chains.len() as u32));
                plan.add(index, unit, begin..(begin + segment_bytes).min(unit.dst.len()));
            }
        }
        segments.sort_unstable();
        plan.segments = segments.into_iter().map(|(_, chain)| chain).collect();
        plan.divide((mark_bytes / MARK_BYTES / tile_bytes).div_ceil(parts));
        plan
    }

    /// Divides the segments into parts of about `part_tiles` tiles, and sets where each segment's marks begin in the
    /// memory for marks.
    fn divide(&mut self, part_tiles: usize) {
        let (mut part, mut marks) = (LzPart { segments: 0..0, tiles: 0 }, 0);
        for (number, &chain) in self.segments.iter().enumerate() {
            let tiles = self.tiles_of(chain) as usize;
            // The last segment of a part may exceed the part by half of the segment's tiles. This avoids further parts.
            if part.tiles > 0 && part.tiles + tiles / 2 > part_tiles {
                self.parts.push(part);
                (part, marks) = (LzPart { segments: number..number, tiles: 0 }, 0);
            }
            part.segments.end = number + 1;
            part.tiles += tiles;
            let chain = &mut self.chains[chain as usize];
            chain.first_mark = marks;
            marks += u64::from(chain.bytes).next_multiple_of(4);
            self.mark_count = self.mark_count.max(marks);
        }
        if part.tiles > 0 {
            self.parts.push(part);
        }
    }

    fn add(&mut self, index: usize, unit: &LzUnit, range: Range<usize>) {
        self.chains.push(LzChain {
            dst: unit.dst.start as u64,
            literals: unit.literals,
            scratch_literals: unit.scratch_literals,
            first_sequence: unit.first_sequence,
            first_mark: 0,
            unit: index as u32,
            status: unit.status,
            begin: range.start as u32,
            bytes: range.len() as u32,
            first_flag: self.flags,
            tiles_before: (range.start / self.tile_bytes) as u32,
        });
        self.flags += range.len().div_ceil(self.tile_bytes) as u32;
    }

    fn tiles_of(&self, chain: u32) -> u32 {
        self.chains[chain as usize].bytes.div_ceil(self.tile_bytes as u32)
    }

    /// Lists the first tiles of `chains`, then their second tiles, and so on, for [`TURNS`] chains at a time.
    fn in_turns(&self, chains: &[u32], mut put: impl FnMut(Tile)) {
        for chains in chains.chunks(TURNS) {
            let mut left: Vec<(u32, u32)> = chains.iter().map(|&chain| (chain, self.tiles_of(chain))).collect();
            let mut tile = 0;
            while !left.is_empty() {
                left.iter().for_each(|&(chain, _)| put((chain, tile)));
                tile += 1;
                left.retain(|&(_, tiles)| tiles > tile);
            }
        }
    }

    /// Lists all tiles of the first segment, then those of the next, and so on.
    fn one_by_one(&self, segments: &[u32], mut put: impl FnMut(Tile)) {
        for &chain in segments {
            (0..self.tiles_of(chain)).for_each(|tile| put((chain, tile)));
        }
    }

    /// Lengths of the lists of tiles (pieces of output): one list decoded directly to bytes, then two for each part of
    /// the segments. The two are for making marks, and for turning marks into bytes. In each list, a tile stands after
    /// the tiles that it waits for.
    fn lists(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.row_tiles).chain(self.parts.iter().flat_map(|part| [part.tiles; 2]))
    }

    fn table_bytes(&self) -> usize {
        self.chains.len() * CHAIN_BYTES + self.lists().sum::<usize>() * TILE_ENTRY_BYTES
    }

    /// Writes the table that kernels read: the chains, then the lists of tiles.
    fn write(&self, table: &mut [u8]) {
        let mut fields = Fields::new(table);
        for chain in &self.chains {
            let LzChain { dst, literals, scratch_literals, first_sequence, first_mark, .. } = *chain;
            fields.put64(&[dst, literals, scratch_literals, first_sequence, first_mark]);
            let LzChain { unit, status, begin, bytes, first_flag, tiles_before, .. } = *chain;
            fields.put32(&[unit, status, begin, bytes, first_flag, tiles_before]);
        }
        let mut put = |(chain, tile): Tile| fields.put32(&[chain, tile]);
        self.in_turns(&self.rows, &mut put);
        for part in &self.parts {
            let segments = &self.segments[part.segments.clone()];
            self.in_turns(segments, &mut put);
            self.one_by_one(segments, &mut put);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(sizes: &[usize]) -> Vec<LzUnit> {
        let unit = |size| LzUnit { dst: 0..size, literals: 0, scratch_literals: 0, first_sequence: 0, status: 0 };
        sizes.iter().map(|&size| unit(size)).collect()
    }

    /// Returns three lists of tiles: those decoded to bytes, those decoded to marks, and those turned from marks into
    /// bytes.
    fn lists(plan: &LzPlan) -> [Vec<Tile>; 3] {
        let (mut tiles, mut marks, mut settles) = (Vec::new(), Vec::new(), Vec::new());
        plan.in_turns(&plan.rows, |tile| tiles.push(tile));
        assert_eq!(plan.row_tiles, tiles.len());
        for part in &plan.parts {
            let segments = &plan.segments[part.segments.clone()];
            plan.in_turns(segments, |tile| marks.push(tile));
            plan.one_by_one(segments, |tile| settles.push(tile));
            assert_eq!(part.tiles, segments.iter().map(|&chain| plan.tiles_of(chain) as usize).sum::<usize>());
        }
        let all: usize = plan.parts.iter().map(|part| part.tiles).sum();
        assert_eq!([marks.len(), settles.len()], [all; 2]);
        [tiles, marks, settles]
    }

    /// Asserts that the tiles of each chain are in order. Returns the number of tiles.
    fn assert_in_order(plan: &LzPlan, tiles: &[Tile]) -> usize {
        let mut next = vec![0; plan.chains.len()];
        for &(chain, tile) in tiles {
            assert_eq!(next[chain as usize], tile);
            next[chain as usize] += 1;
        }
        tiles.len()
    }

    #[test]
    fn many_units_become_bytes_at_once() {
        let plan = LzPlan::new(&units(&[70_000; 3000]), 8192, false, usize::MAX);
        assert_eq!((plan.chains.len(), plan.row_tiles, plan.parts.len(), plan.mark_count), (3000, 27_000, 0, 0));
        assert_eq!(assert_in_order(&plan, &lists(&plan)[0]), 27_000);
        assert_eq!(plan.flags, 27_000);
    }

    #[test]
    fn units_among_enough_others_are_rows() {
        let (small, large) = (128, 1024);
        assert!(is_row(large, 64 * large, false) && !is_row(large, 63 * large, false));
        // 64 units of 8 MiB with short sequences take 10 milliseconds in rows, and 5 in segments.
        assert!(is_row(large, 130 * large, true) && !is_row(large, 64 * large, true));
        assert!(is_row(small, 60 * small, true) && !is_row(small, 59 * small, true));
        assert!(is_row(SHORT_ROW, SHORT_ROW, false) && is_row(SHORT_ROW, SHORT_ROW, true));
    }

    #[test]
    fn units_beside_others_have_shorter_segments() {
        let of = |cases: [(usize, usize); 3], short| cases.map(|(tiles, total)| segments_of(tiles, total, short));
        assert_eq!(of([(1024, 1024), (8192, 8192), (8192, 16_384)], false), [42, 117, 117]);
        assert_eq!(of([(1024, 65_536), (8192, 65_536), (128, 4096)], false), [192, 192, 15]);
        // Two units of 64 MiB, and sixteen of 8.
        assert_eq!(of([(8192, 16_384), (1024, 16_384), (8192, 65_536)], true), [62, 48, 192]);
        assert_eq!(of([(1, 1), (1, 1 << 20), (1024, 1024)], true), [1, 1, 22]);
    }

    #[test]
    fn one_large_unit_is_cut_into_segments_that_settle_in_order() {
        let units = units(&[0, 10_000, (8 << 20) + 1, 0]);
        let plan = LzPlan::new(&units, 8192, false, usize::MAX);
        let [tiles, marks, settles] = lists(&plan);
        assert_eq!(assert_in_order(&plan, &tiles), 2);
        assert_eq!(assert_in_order(&plan, &marks), 1025);
        assert_eq!(assert_in_order(&plan, &settles), 1025);
        let segments: Vec<&LzChain> = plan.chains.iter().filter(|chain| chain.unit == 2).collect();
        assert!((10..60).contains(&segments.len()), "{}", segments.len());
        assert_eq!(segments.iter().map(|chain| chain.bytes).sum::<u32>(), (8 << 20) + 1);
        for (before, &(chain, tile)) in settles.iter().enumerate() {
            assert_eq!((plan.chains[chain as usize].tiles_before + tile) as usize, before);
        }
        let mut table = vec![0xff; plan.table_bytes()];
        plan.write(&mut table);
        assert_eq!(table.len(), plan.chains.len() * CHAIN_BYTES + 2052 * TILE_ENTRY_BYTES);
        let last = settles.last().map(|&(chain, tile)| [chain.to_ne_bytes(), tile.to_ne_bytes()].concat());
        assert_eq!(last.as_deref(), table.last_chunk::<TILE_ENTRY_BYTES>().map(|entry| &entry[..]));
    }

    #[test]
    fn short_units_become_rows_where_marks_have_no_memory() {
        let units = units(&[1 << 20; 24]);
        let plan = |limit_bytes| LzPlan::new(&units, 8192, true, limit_bytes);
        assert_eq!((plan(96 << 20).row_tiles, plan(96 << 20).mark_count), (0, 24 << 20));
        assert_eq!((plan((96 << 20) - 1).row_tiles, plan(0).mark_count, plan(0).parts.len()), (24 * 128, 0, 0));
    }

    #[test]
    fn segments_are_worked_at_in_parts_within_the_memory_for_marks() {
        let (units, mib) = (units(&[64 << 20, 8 << 20, (8 << 20) + 5]), 1 << 20);
        let whole = LzPlan::new(&units, 8192, true, usize::MAX);
        assert_eq!((whole.parts.len(), whole.mark_count), (1, (80 << 20) + 8));
        for (limit_bytes, parts) in [(320 * mib, 2), (160 * mib, 3), (80 * mib, 5), (1, MOST_PARTS)] {
            let plan = LzPlan::new(&units, 8192, true, limit_bytes);
            assert!(plan.parts.len().abs_diff(parts) <= 1, "{} parts within {limit_bytes}", plan.parts.len());
            let most_bytes = ((80 << 20) * 4 / parts).max(limit_bytes);
            assert!(
                plan.mark_count as usize * 4 < most_bytes * 9 / 8,
                "{} marks within {limit_bytes}",
                plan.mark_count
            );
            let [_, marks, settles] = lists(&plan);
            assert_eq!((assert_in_order(&plan, &marks), assert_in_order(&plan, &settles)), (10_241, 10_241));
            let mut settled = vec![0; units.len()];
            for (number, part) in plan.parts.iter().enumerate() {
                let (mut ranges, mut end) = (Vec::new(), 0);
                for &chain in &plan.segments[part.segments.clone()] {
                    let chain = &plan.chains[chain as usize];
                    // The segments of a unit come in order, and those of a part have marks of their own.
                    assert_eq!(chain.begin, settled[chain.unit as usize]);
                    settled[chain.unit as usize] += chain.bytes;
                    ranges.push(chain.first_mark..chain.first_mark + u64::from(chain.bytes));
                }
                for range in &ranges {
                    assert!(
                        range.start >= end && range.start % 4 == 0 && range.end <= plan.mark_count,
                        "part {number}"
                    );
                    end = range.end;
                }
            }
            assert_eq!(settled, [64 << 20, 8 << 20, (8 << 20) + 5]);
        }
    }
}
