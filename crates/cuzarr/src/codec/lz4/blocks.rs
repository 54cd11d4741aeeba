//! LZ4 blocks that the whole GPU decodes: where their tokens are, then the copies of `codec::lz`. What to launch, and with
//! how much memory; `cuda.rs` launches it.

use std::ops::Range;

use cuzarr_device::Device;

use crate::codec::lz;

/// Bytes of a block that a thread owns. `CUZARR_LZ4_OWN` in lz4_tokens.cuh.
const THREAD_BYTES: usize = 32;
/// Bytes of a sequence, and of a block's entry.
pub(super) const SEQUENCE_BYTES: usize = 16;
pub(super) const ENTRY_BYTES: usize = 48;
/// One block of threads finds tokens at about 1/32 of the speed of all.
const WALK_COST: usize = 32;
/// Spans that the path is followed over at a time. `CUZARR_LZ4_GROUP` in lz4.cu.
const GROUP_SPANS: usize = 32;
/// Encoded bytes for which the launches of the other way take as long as a walk.
const WALK_FREE_BYTES: usize = 256 << 10;

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
    pub(super) count: u32,
    pub(super) engine: lz::Engine,
    pub(super) sequences: usize,
    /// All spans side by side, or else block by block: how many spans, and groups of them.
    pub(super) spans: Option<(u32, u32)>,
    pub(super) span_bytes: usize,
    pub(super) threads: u32,
}

/// The most sequences of a block, with the sentinel: a token takes 3 bytes and makes 4, but for the last.
fn most_sequences(block: &Block) -> usize {
    (block.src.len() / 3).min(block.dst.len() / 4) + 3
}

impl Blocks {
    pub(crate) fn new(device: Device, blocks: &[Block]) -> Blocks {
        let threads: u32 = if device == Device::Simt { 32 } else { 256 };
        let span_bytes = threads as usize * THREAD_BYTES;
        let (mut table, mut units) = (Vec::with_capacity(blocks.len() * ENTRY_BYTES), Vec::with_capacity(blocks.len()));
        let (mut sequences, mut spans, mut groups) = (0, 0u32, 0u32);
        for block in blocks {
            units.push(lz::Unit {
                dst: block.dst.clone(),
                literals: block.src.start as u64,
                scratch_literals: 0,
                first_sequence: sequences as u64,
                status: block.status,
            });
            let sizes = [block.src.len() as u32, block.dst.len() as u32];
            let narrow = [sizes[0], sizes[1], block.status, block.place, block.header, spans, groups, 0];
            table.extend((block.src.start as u64).to_ne_bytes());
            table.extend((sequences as u64).to_ne_bytes());
            table.extend(narrow.iter().flat_map(|value| value.to_ne_bytes()));
            sequences += most_sequences(block);
            spans += block.src.len().div_ceil(span_bytes) as u32;
            groups += block.src.len().div_ceil(span_bytes * GROUP_SPANS) as u32;
        }
        let largest = blocks.iter().map(|block| block.src.len()).max().unwrap_or(0);
        let total: usize = blocks.iter().map(|block| block.src.len()).sum();
        // In `simt` both ways are to be tested with little.
        let free_bytes = if device == Device::Simt { 4 << 10 } else { WALK_FREE_BYTES };
        let walks = largest.saturating_sub(free_bytes).saturating_mul(WALK_COST) <= total;
        Blocks {
            table,
            count: blocks.len() as u32,
            engine: lz::Engine::new(device, &units),
            sequences,
            spans: (!walks && spans > 0).then_some((spans, groups)),
            span_bytes,
            threads,
        }
    }

    /// Two words for each encoded byte, an entry for each span and group, and for each span what it leads with and sums.
    pub(super) fn map_bytes(&self) -> [usize; 5] {
        let (spans, groups) = self.spans.unwrap_or((0, 0));
        let (spans, groups) = (spans as usize, groups as usize);
        let words = spans * self.span_bytes * 4;
        [words, words, (spans + groups) * 4, spans * 4, spans * 16].map(|bytes| bytes.max(1))
    }

    /// Device memory that a launch takes.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let map: usize = self.map_bytes().iter().sum();
        let sequences = self.sequences * SEQUENCE_BYTES;
        self.table.len() + sequences + self.count as usize * 4 + map + self.engine.scratch_bytes()
    }
}
