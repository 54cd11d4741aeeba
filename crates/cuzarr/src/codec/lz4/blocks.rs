//! LZ4 blocks that the whole GPU decodes: kernels find their tokens, then `codec::lz` copies. This file decides what to
//! launch and how much memory it takes; `cuda.rs` launches it.

use std::ops::Range;

use cuzarr_device::{Device, WARP, defined, stated_size};

use crate::codec::lz;

const TEXT: &str = include_str!("lz4.cu");
const TOKENS: &str = include_str!("lz4_tokens.cuh");
/// Bytes of a block that a thread owns.
const THREAD_BYTES: usize = defined(TOKENS, "CUZARR_LZ4_OWN") as usize;
const MOST_THREADS: u32 = defined(TOKENS, "CUZARR_LZ4_THREADS");
/// Bytes of a block's entry.
pub(super) const ENTRY_BYTES: usize = stated_size(TEXT, "Lz4Unit");
/// A block walks when it has less than this share of all bytes. One block of threads finds tokens at 1/32 to 1/128 of the
/// speed of all; shorter sequences are found more slowly.
const WALK_COST: usize = 48;
/// Spans that the path is followed over at a time.
pub(super) const GROUP_SPANS: u32 = defined(TEXT, "CUZARR_LZ4_GROUP");
/// Spans that all units together have in their windows, and the most of one; few in `simt`, so that there are several windows.
const WINDOW_SPANS: usize = (defined(TEXT, "CUZARR_LZ4_GROUPS") * GROUP_SPANS) as usize;
const WINDOW_SIMT_SPANS: usize = 64;
/// Encoded bytes for which the launches of the other way take as long as a walk.
const WALK_FREE_BYTES: usize = 64 << 10;

/// One LZ4 block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) src: Range<usize>,
    pub(crate) dst: Range<usize>,
    /// The status that is about it, and where the block lies in what that is about.
    pub(crate) status: u32,
    pub(crate) place: u32,
    /// Bytes in front of the block that say its decoded size: 4 or none.
    pub(crate) header: u32,
}

/// Blocks that are decoded together.
pub(crate) struct Blocks {
    pub(super) table: Vec<u8>,
    /// Blocks for a block of threads each; behind them in the table, those whose spans are looked at side by side.
    pub(super) walkers: u32,
    pub(super) large: u32,
    pub(super) engine: lz::Engine,
    pub(super) sequences: usize,
    pub(super) windows: Windows,
    pub(super) span_bytes: usize,
    pub(super) threads: u32,
}

/// How the spans of large blocks are looked at side by side.
#[derive(Clone, Copy)]
pub(super) struct Windows {
    /// Spans of all blocks.
    pub(super) spans: u32,
    /// Spans of one block's window: whole groups.
    pub(super) window_spans: u32,
    /// One after the other.
    pub(super) count: u32,
}

impl Windows {
    fn new(device: Device, blocks: &[&Block], spans: u32, span_bytes: usize) -> Windows {
        let most = if device == Device::Simt { WINDOW_SIMT_SPANS } else { WINDOW_SPANS };
        let largest = blocks.iter().map(|block| block.src.len().div_ceil(span_bytes)).max().unwrap_or(0);
        let window =
            (most / blocks.len().max(1)).min(largest).next_multiple_of(GROUP_SPANS as usize).max(GROUP_SPANS as usize);
        Windows { spans, window_spans: window as u32, count: largest.div_ceil(window) as u32 }
    }
}

/// The most sequences of a block, with the sentinel: a token takes 3 bytes and makes 4, but for the last.
fn most_sequences(block: &Block) -> usize {
    (block.src.len() / 3).min(block.dst.len() / 4) + 3
}

impl Blocks {
    pub(crate) fn new(device: Device, blocks: &[Block]) -> Blocks {
        let threads = if device == Device::Simt { WARP } else { MOST_THREADS };
        let span_bytes = threads as usize * THREAD_BYTES;
        let total: usize = blocks.iter().map(|block| block.src.len()).sum();
        // In `simt` both ways are to be tested with little.
        let free_bytes = if device == Device::Simt { 4 << 10 } else { WALK_FREE_BYTES };
        let (limit, largest) =
            (free_bytes.max(total / WALK_COST), blocks.iter().map(|block| block.src.len()).max().unwrap_or(0));
        // Blocks of about one size go the same way: the two ways run one after the other.
        let walks = |block: &&Block| block.src.len() <= limit && (largest <= limit || block.src.len() < largest / 2);
        let (walkers, large): (Vec<&Block>, Vec<&Block>) = blocks.iter().partition(walks);
        let (mut table, mut units) = (Vec::with_capacity(blocks.len() * ENTRY_BYTES), Vec::with_capacity(blocks.len()));
        let (mut sequences, mut spans) = (0, 0u32);
        for (index, block) in walkers.iter().chain(&large).enumerate() {
            units.push(lz::Unit {
                dst: block.dst.clone(),
                literals: block.src.start as u64,
                scratch_literals: 0,
                first_sequence: sequences as u64,
                status: block.status,
            });
            let sizes = [block.src.len() as u32, block.dst.len() as u32];
            let narrow = [sizes[0], sizes[1], block.status, block.place, block.header, spans, 0, 0];
            table.extend((block.src.start as u64).to_ne_bytes());
            table.extend((sequences as u64).to_ne_bytes());
            table.extend(narrow.iter().flat_map(|value| value.to_ne_bytes()));
            sequences += most_sequences(block);
            if index >= walkers.len() {
                spans += block.src.len().div_ceil(span_bytes) as u32;
            }
        }
        Blocks {
            table,
            walkers: walkers.len() as u32,
            large: large.len() as u32,
            engine: lz::Engine::new(device, &units, false),
            sequences,
            windows: Windows::new(device, &large, spans, span_bytes),
            span_bytes,
            threads,
        }
    }

    /// The memory for finding tokens: two words for each byte of the windows, a cursor for each block, and for each span an
    /// entry, its leading bytes and its sums.
    pub(super) fn map_bytes(&self) -> [usize; 6] {
        let (large, spans) = (self.large as usize, self.windows.spans as usize);
        let words = large * self.windows.window_spans as usize * self.span_bytes * 4;
        [words, words, large * 4, spans * 4, spans * 4, spans * 16]
    }

    /// How many blocks there are.
    pub(super) fn count(&self) -> usize {
        (self.walkers + self.large) as usize
    }

    /// Device memory that a launch takes.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let map: usize = self.map_bytes().iter().sum();
        let sequences = self.sequences * lz::SEQUENCE_BYTES;
        self.table.len() + sequences + self.count() * 4 + map + self.engine.scratch_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of blocks of these encoded sizes walk on a GPU, and how many go by windows.
    fn ways(sizes: impl IntoIterator<Item = usize>) -> (u32, u32) {
        let block = |bytes| Block { src: 0..bytes, dst: 0..2 * bytes, status: 0, place: 0, header: 0 };
        let blocks: Vec<Block> = sizes.into_iter().map(block).collect();
        let blocks = Blocks::new(Device::Cuda(0), &blocks);
        (blocks.walkers, blocks.large)
    }

    #[test]
    fn blocks_of_about_one_size_go_the_same_way() {
        for count in [1, 32, 40, 47, 48, 49, 56, 64, 512] {
            let (walkers, large) = ways((0..count).map(|number| 4_000_000 + number % 7 * 200_000));
            assert!(walkers == 0 || large == 0, "{count} blocks: {walkers} walk, {large} do not");
        }
        assert_eq!(ways([4_000_000; 32]), (0, 32));
        assert_eq!(ways([4_000_000; 64]), (64, 0));
        assert_eq!(ways([vec![4_000_000; 2], vec![1000; 300]].concat()), (300, 2));
    }
}
