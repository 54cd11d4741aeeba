//! LZ4 blocks that the whole GPU decodes: kernels find their tokens, then `codec::lz` copies. This file decides what to
//! launch and how much memory it takes; `cuda.rs` launches it.

use std::ops::Range;

use cuzarr_device::Device;
use cuzarr_device::internal::{WARP, defined, stated_size};

use crate::codec::lz;

const TEXT: &str = include_str!("lz4.cu");
const TOKENS: &str = include_str!("lz4_tokens.cuh");
/// Number of encoded bytes of a span (a stretch of an LZ4 block) in which one thread reads the tokens. A span has at
/// most `MOST_THREADS` threads.
const THREAD_BYTES: usize = defined(TOKENS, "CUZARR_LZ4_OWN") as usize;
const MOST_THREADS: u32 = defined(TOKENS, "CUZARR_LZ4_THREADS");
/// Bytes of an LZ4 block's entry in the table that kernels read.
pub(super) const ENTRY_BYTES: usize = stated_size(TEXT, "Lz4Unit");
/// Bytes of the entry for the last token of a span (a stretch of encoded bytes), which leads into the next span. Its
/// sums have `TOTAL_BYTES`.
const EXIT_BYTES: usize = stated_size(include_str!("lz4_guess.cuh"), "Lz4Exit");
const TOTAL_BYTES: usize = stated_size(TOKENS, "Lz4Total");
/// One thread block may read all tokens of an LZ4 block in order if the block has less than 1 / `WALK_COST` of all
/// bytes. That is 1/32 to 1/128 as fast as finding them with all threads.
const WALK_COST: usize = 96;
/// One thread block may always read the tokens of an LZ4 block of up to this many encoded bytes: guessing takes as
/// long.
const WALK_FREE_BYTES: usize = 64 << 10;

/// Where one LZ4 block and its decoded bytes lie.
#[derive(Clone, Debug)]
pub(crate) struct Lz4Block {
    pub(crate) src: Range<usize>,
    pub(crate) dst: Range<usize>,
    /// The index of the block's status in the buffer in which kernels report damage. `place` is where the block begins
    /// in the unit of that status.
    pub(crate) status: u32,
    pub(crate) place: u32,
    /// Number of bytes in front of the block that state its decoded size: 4 or none.
    pub(crate) header: u32,
}

/// LZ4 blocks that are ready to be decoded together.
pub(crate) struct Lz4Blocks {
    pub(super) table: Vec<u8>,
    /// Number of blocks whose tokens are read in order, each by one thread block. Behind them in the table come `large`
    /// blocks, whose spans are searched side by side.
    pub(super) walkers: u32,
    pub(super) large: u32,
    pub(super) engine: lz::LzEngine,
    pub(super) sequences: usize,
    /// Number of spans (stretches of encoded bytes) that the large LZ4 blocks are cut into.
    pub(super) spans: u32,
    pub(super) threads: u32,
}

/// Guesses from the compression ratio whether the sequences of literals and matches are short. A wrong answer only
/// costs time. Plain arrays have a ratio below 1.5 and sequences of 5 to 10 bytes. Shuffled arrays mostly compress
/// better, and have sequences of 50 bytes and more.
pub(super) fn has_short_sequences(encoded_bytes: usize, decoded_bytes: usize) -> bool {
    encoded_bytes * 8 > decoded_bytes * 5
}

/// Maximum number of sequences of literals and a match in an LZ4 block, including the sentinel after the last. Every
/// token but the last takes at least 3 bytes and makes at least 4.
fn most_sequences(block: &Lz4Block) -> usize {
    (block.src.len() / 3).min(block.dst.len() / 4) + 3
}

impl Lz4Blocks {
    /// Plans how each of `blocks` is decoded. Scratch memory keeps within `scratch_aim_bytes` if it can.
    pub(crate) fn new(device: Device, blocks: &[Lz4Block], scratch_aim_bytes: usize) -> Lz4Blocks {
        let threads = if device == Device::Simt { WARP } else { MOST_THREADS };
        let span_bytes = threads as usize * THREAD_BYTES;
        let total: usize = blocks.iter().map(|block| block.src.len()).sum();
        // On `simt`, small blocks must test both ways.
        let free_bytes = if device == Device::Simt { 4 << 10 } else { WALK_FREE_BYTES };
        let (limit, largest) =
            (free_bytes.max(total / WALK_COST), blocks.iter().map(|block| block.src.len()).max().unwrap_or(0));
        // Guessing finds the tokens of short sequences sooner than a walk.
        let decoded: usize = blocks.iter().map(|block| block.dst.len()).sum();
        let guesses = has_short_sequences(total, decoded);
        // Blocks of about the same size go the same way, because the two ways run one after the other.
        let walks = |block: &&Lz4Block| {
            !guesses && block.src.len() <= limit && (largest <= limit || block.src.len() < largest / 2)
        };
        let (walkers, large): (Vec<&Lz4Block>, Vec<&Lz4Block>) = blocks.iter().partition(walks);
        let (mut table, mut units) = (Vec::with_capacity(blocks.len() * ENTRY_BYTES), Vec::with_capacity(blocks.len()));
        let (mut sequences, mut spans) = (0, 0u32);
        for (index, block) in walkers.iter().chain(&large).enumerate() {
            units.push(lz::LzUnit {
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
        let mark_bytes = scratch_aim_bytes.saturating_sub(sequences * lz::SEQUENCE_BYTES);
        Lz4Blocks {
            table,
            walkers: walkers.len() as u32,
            large: large.len() as u32,
            engine: lz::LzEngine::new(device, &units, false, mark_bytes),
            sequences,
            spans,
            threads,
        }
    }

    /// Number of encoded bytes in a span (the input of a thread block) that one lane of a warp reads.
    pub(super) fn part_bytes(&self) -> u32 {
        self.threads * THREAD_BYTES as u32 / WARP
    }

    /// Sizes in bytes of the four device buffers that the kernels that find LZ4 tokens write. Each span has a bit for
    /// each byte, an exit, an entry, and sums.
    pub(super) fn map_bytes(&self) -> [usize; 4] {
        let spans = self.spans as usize;
        [spans * self.threads as usize * 4, spans * EXIT_BYTES, spans * 4, spans * TOTAL_BYTES]
    }

    /// Number of LZ4 blocks that are decoded together.
    pub(super) fn count(&self) -> usize {
        (self.walkers + self.large) as usize
    }

    /// Device memory, in bytes, that one decoding launch takes besides source and target.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let map: usize = self.map_bytes().iter().sum();
        let sequences = self.sequences * lz::SEQUENCE_BYTES;
        self.table.len() + sequences + self.count() * 4 + map + self.engine.scratch_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In how many LZ4 blocks of these sizes a GPU reads the tokens in order, and in how many it guesses them.
    fn ways(sizes: impl IntoIterator<Item = usize>) -> (u32, u32) {
        let block = |bytes| Lz4Block { src: 0..bytes, dst: 0..4 * bytes, status: 0, place: 0, header: 0 };
        let blocks: Vec<Lz4Block> = sizes.into_iter().map(block).collect();
        let blocks = Lz4Blocks::new(Device::Cuda(0), &blocks, usize::MAX);
        (blocks.walkers, blocks.large)
    }

    #[test]
    fn blocks_of_about_one_size_go_the_same_way() {
        for count in [1, 32, 64, 80, 95, 96, 97, 104, 128, 512] {
            let (walkers, large) = ways((0..count).map(|number| 4_000_000 + number % 7 * 200_000));
            assert!(walkers == 0 || large == 0, "{count} blocks: {walkers} walk, {large} do not");
        }
        assert_eq!(ways([4_000_000; 32]), (0, 32));
        assert_eq!(ways([4_000_000; 128]), (128, 0));
        assert_eq!(ways([vec![4_000_000; 2], vec![1000; 300]].concat()), (300, 2));
    }

    #[test]
    fn blocks_of_short_sequences_do_not_walk() {
        let block = Lz4Block { src: 0..1_000_000, dst: 0..1_400_000, status: 0, place: 0, header: 0 };
        let blocks = Lz4Blocks::new(Device::Cuda(0), &vec![block; 512], usize::MAX);
        assert_eq!((blocks.walkers, blocks.large, blocks.spans), (0, 512, 512 * 123));
    }
}
