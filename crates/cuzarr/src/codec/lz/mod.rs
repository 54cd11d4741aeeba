//! Copies for every format that is literals and matches: sequences become bytes with all threads of a GPU (`lz.cu`).
//!
//! A decoder writes the sequences of its units (`cuzarr/lz_sequences.cuh`) and launches an [`Engine`] behind. Not a codec.
//!
//! Two ways, for each unit by how much there is beside it. A unit whose tiles, one behind the other, take no longer than
//! all others together becomes bytes at once. A larger one is cut into segments that are worked at side by side, with 4
//! bytes of scratch memory for each byte, and then settled segment after segment.

mod cuda;

pub(crate) use cuda::Engine;

use std::ops::Range;

use cuzarr_device::Device;

/// Bytes of a tile that a thread owns. `CUZARR_LZ_OWN` in lz.cu.
const THREAD_BYTES: usize = 32;
/// Tiles of so many others make up for waiting in a row: about 2 microseconds a tile, at 250 GB/s for all; where sequences are
/// short 10, at 110 for segments.
const ROW_COST: usize = 64;
const ROW_COST_SHORT: usize = 130;
/// The same for rows of at most so many tiles: they end while chains of other batches run, and segments would cost those the more.
const BRIEF_ROW: usize = 128;
const ROW_COST_BRIEF: usize = 60;
/// So many tiles of all units for each of the longest, and a lane a sequence is faster: a tile in a row waits 25 microseconds for
/// the one before, but all of them take 2.5 instead of 4.2 milliseconds for 512 MiB.
const SHORT_SHARE: usize = 400;
/// A row of so few tiles is not worth a second pass.
const SHORT_ROW: usize = 16;
/// What settling a segment costs, in tiles of a row.
const SETTLE_COST: f64 = 0.6;
/// Tiles of a segment, where so many tiles are there for each segment of a unit that settling one after the other is hidden behind
/// the other units': short segments have less to wait for.
const SEGMENT_TILES: usize = 5;
const SETTLE_SHARE: usize = 256;
/// Chains whose tiles take turns: as many as are at work at once, so that what they repeat is still in the cache.
const TURNS: usize = 1024;

/// Threads of a block: few in `simt`, where each is a fiber.
fn threads(device: Device) -> u32 {
    if device == Device::Simt { 32 } else { 256 }
}

/// Whether units of so many tiles are made by a lane for each sequence, when sequences are short. In `simt`, where tests are
/// small, already when there are two.
fn by_lanes(device: Device, tiles: impl Iterator<Item = usize> + Clone) -> bool {
    let share = if device == Device::Simt { 2 } else { SHORT_SHARE };
    tiles.clone().max().is_some_and(|longest| longest * share <= tiles.sum())
}

/// Whether a unit of so many tiles, among so many of all, becomes bytes in a row; `short`: whether the sequences are of a few bytes.
fn is_row(tiles: usize, total: usize, short: bool) -> bool {
    let cost = match (short, tiles <= BRIEF_ROW) {
        (false, _) => ROW_COST,
        (true, false) => ROW_COST_SHORT,
        (true, true) => ROW_COST_BRIEF,
    };
    tiles <= SHORT_ROW.max(total / cost)
}

/// Segments of a unit of so many tiles, among so many of all.
fn segments_of(tiles: usize, total: usize) -> usize {
    let alone = (tiles as f64 / SETTLE_COST).sqrt().ceil() as usize;
    alone.max((tiles / SEGMENT_TILES).min(total / SETTLE_SHARE)).clamp(1, tiles)
}

/// One run of sequences, and where its bytes go.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Range of the target.
    pub(crate) dst: Range<usize>,
    /// Where its memory of literals begins in the source.
    pub(crate) literals: u64,
    /// Where its second one begins in scratch.
    pub(crate) scratch_literals: u64,
    /// Of its sequences in the array of all units'.
    pub(crate) first_sequence: u64,
    /// The status that is about it: nothing is written when it says damage.
    pub(crate) status: u32,
}

/// Consecutive tiles of a unit. `LzChain` in lz.cu.
#[derive(Clone, Debug)]
struct Chain {
    unit: u32,
    begin: u32,
    bytes: u32,
    first_flag: u32,
    tiles_before: u32,
    first_mark: u64,
}

/// Bytes of a chain, and of a tile, in their tables.
const CHAIN_BYTES: usize = 64;
const TILE_ENTRY_BYTES: usize = 8;

/// One tile of a chain. `LzTile` in lz.cu.
type Tile = (u32, u32);

/// Who does what in which order: pure.
#[derive(Debug, Default)]
struct Plan {
    chains: Vec<Chain>,
    /// Tiles that become bytes, marks, and bytes from marks. In each list, what a tile waits for stands before it.
    tiles: Vec<Tile>,
    marks: Vec<Tile>,
    settles: Vec<Tile>,
    flags: u32,
    mark_count: u64,
}

impl Plan {
    fn new(units: &[Unit], tile_bytes: usize, short: bool) -> Plan {
        let mut plan = Plan::default();
        let total: usize = units.iter().map(|unit| unit.dst.len().div_ceil(tile_bytes)).sum();
        let (mut rows, mut segments): (Vec<usize>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
        for (index, unit) in units.iter().enumerate() {
            let tiles = unit.dst.len().div_ceil(tile_bytes);
            if tiles == 0 {
                continue;
            }
            if is_row(tiles, total, short) {
                rows.push(plan.chains.len());
                plan.add(index, 0..unit.dst.len(), tile_bytes);
                continue;
            }
            let count = segments_of(tiles, total);
            let segment_bytes = tiles.div_ceil(count) * tile_bytes;
            for (number, begin) in (0..unit.dst.len()).step_by(segment_bytes).enumerate() {
                if segments.len() <= number {
                    segments.push(Vec::new());
                }
                segments[number].push(plan.chains.len());
                plan.add(index, begin..(begin + segment_bytes).min(unit.dst.len()), tile_bytes);
            }
            plan.mark_count += unit.dst.len().next_multiple_of(4) as u64;
        }
        plan.tiles = plan.in_turns(&rows, tile_bytes);
        plan.marks = plan.in_turns(&segments.concat(), tile_bytes);
        for &chain in segments.iter().flatten() {
            let tiles = plan.chains[chain].bytes.div_ceil(tile_bytes as u32);
            plan.settles.extend((0..tiles).map(|tile| (chain as u32, tile)));
        }
        plan
    }

    fn add(&mut self, unit: usize, range: Range<usize>, tile_bytes: usize) {
        self.chains.push(Chain {
            unit: unit as u32,
            begin: range.start as u32,
            bytes: range.len() as u32,
            first_flag: self.flags,
            tiles_before: (range.start / tile_bytes) as u32,
            first_mark: self.mark_count,
        });
        self.flags += range.len().div_ceil(tile_bytes) as u32;
    }

    /// The first tiles of some chains, then the second ones, and so on.
    fn in_turns(&self, chains: &[usize], tile_bytes: usize) -> Vec<Tile> {
        let mut tiles = Vec::new();
        for chains in chains.chunks(TURNS) {
            let mut left = chains.to_vec();
            let mut tile = 0;
            while !left.is_empty() {
                left.retain(|&chain| u64::from(self.chains[chain].bytes) > u64::from(tile) * tile_bytes as u64);
                tiles.extend(left.iter().map(|&chain| (chain as u32, tile)));
                tile += 1;
            }
        }
        tiles
    }

    /// Chains, then the three lists.
    fn table(&self, units: &[Unit]) -> Vec<u8> {
        let tiles = self.tiles.len() + self.marks.len() + self.settles.len();
        let mut table = Vec::with_capacity(self.chains.len() * CHAIN_BYTES + tiles * TILE_ENTRY_BYTES);
        for chain in &self.chains {
            let unit = &units[chain.unit as usize];
            let wide =
                [unit.dst.start as u64, unit.literals, unit.scratch_literals, unit.first_sequence, chain.first_mark];
            let narrow = [chain.unit, unit.status, chain.begin, chain.bytes, chain.first_flag, chain.tiles_before];
            table.extend(wide.iter().flat_map(|value| value.to_ne_bytes()));
            table.extend(narrow.iter().flat_map(|value| value.to_ne_bytes()));
        }
        for &(chain, tile) in self.tiles.iter().chain(&self.marks).chain(&self.settles) {
            table.extend(chain.to_ne_bytes());
            table.extend(tile.to_ne_bytes());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(sizes: &[usize]) -> Vec<Unit> {
        let unit = |size| Unit { dst: 0..size, literals: 0, scratch_literals: 0, first_sequence: 0, status: 0 };
        sizes.iter().map(|&size| unit(size)).collect()
    }

    /// Every tile once, and behind the one before it in its chain.
    fn assert_in_order(plan: &Plan, tiles: &[Tile]) -> usize {
        let mut next = vec![0; plan.chains.len()];
        for &(chain, tile) in tiles {
            assert_eq!(next[chain as usize], tile);
            next[chain as usize] += 1;
        }
        tiles.len()
    }

    #[test]
    fn many_units_become_bytes_at_once() {
        let plan = Plan::new(&units(&[70_000; 3000]), 8192, false);
        assert_eq!((plan.chains.len(), plan.marks.len(), plan.settles.len(), plan.mark_count), (3000, 0, 0, 0));
        assert_eq!(assert_in_order(&plan, &plan.tiles), 27_000);
        assert_eq!(plan.flags, 27_000);
    }

    #[test]
    fn units_among_enough_others_are_rows() {
        let (small, large) = (128, 1024);
        assert!(is_row(large, 64 * large, false) && !is_row(large, 63 * large, false));
        // Of short sequences 64 of 8 MiB take 10 milliseconds in rows, and 5 in segments.
        assert!(is_row(large, 130 * large, true) && !is_row(large, 64 * large, true));
        assert!(is_row(small, 60 * small, true) && !is_row(small, 59 * small, true));
        assert!(is_row(SHORT_ROW, SHORT_ROW, false) && is_row(SHORT_ROW, SHORT_ROW, true));
    }

    #[test]
    fn units_beside_others_have_shorter_segments() {
        assert_eq!([segments_of(1024, 1024), segments_of(8192, 8192)], [42, 117]);
        assert_eq!([segments_of(1024, 65_536), segments_of(8192, 65_536), segments_of(128, 4096)], [204, 256, 16]);
        assert_eq!([segments_of(1, 1), segments_of(1, 1 << 20)], [1, 1]);
    }

    #[test]
    fn one_large_unit_is_cut_into_segments_that_settle_in_order() {
        let units = units(&[0, 10_000, (8 << 20) + 1, 0]);
        let plan = Plan::new(&units, 8192, false);
        assert_eq!(assert_in_order(&plan, &plan.tiles), 2);
        assert_eq!(assert_in_order(&plan, &plan.marks), 1025);
        assert_eq!(assert_in_order(&plan, &plan.settles), 1025);
        let segments: Vec<&Chain> = plan.chains.iter().filter(|chain| chain.unit == 2).collect();
        assert!((10..60).contains(&segments.len()), "{}", segments.len());
        assert_eq!(segments.iter().map(|chain| chain.bytes).sum::<u32>(), (8 << 20) + 1);
        for (before, &(chain, tile)) in plan.settles.iter().enumerate() {
            assert_eq!((plan.chains[chain as usize].tiles_before + tile) as usize, before);
        }
        assert_eq!(plan.table(&units).len(), plan.chains.len() * CHAIN_BYTES + 2052 * TILE_ENTRY_BYTES);
    }
}
