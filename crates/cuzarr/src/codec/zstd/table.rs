//! The tables of Zstandard frames and blocks that the host writes and kernels read, with the layout of
//! `codec/zstd/zstd.cuh`.

use std::cmp::Reverse;
use std::ops::Range;

use cuzarr_device::internal::{defined, stated_size};

use crate::codec::batch::Fields;
use crate::codec::lz;

const HEADER: &str = include_str!("zstd.cuh");
/// Bytes of scratch memory for the decoding table of one Huffman tree. A slot for the tables of sequences has
/// `TABLES_BYTES`.
pub(super) const TREE_BYTES: usize = 4 * defined(HEADER, "CUZARR_ZSTD_TREE_WORDS") as usize;
pub(super) const TABLES_BYTES: usize = 4 * defined(HEADER, "CUZARR_ZSTD_TABLE_WORDS") as usize;
pub(super) const RESULT_BYTES: usize = stated_size(HEADER, "ZstdResult");
const UNIT_BYTES: usize = stated_size(HEADER, "ZstdUnit");
const FRAME_BYTES: usize = stated_size(HEADER, "ZstdFrame");
const BLOCK_BYTES: usize = stated_size(HEADER, "ZstdBlock");
/// Maximum bytes that one Zstandard block decodes to.
pub(super) const MOST_BLOCK_BYTES: usize = defined(HEADER, "CUZARR_ZSTD_BLOCK_BYTES") as usize;
/// The number of the slot in scratch memory that holds the predefined decoding tables for sequences.
pub(super) const PREDEFINED: u32 = defined(HEADER, "CUZARR_ZSTD_PREDEFINED");
/// Upper limit of real match offsets; larger values stand for repeated offsets until kernels have resolved them.
const SYMBOLIC_OFFSET: usize = defined(HEADER, "CUZARR_ZSTD_SYMBOLIC") as usize;
const _: () = assert!(lz::BRIEF_OFFSETS <= SYMBOLIC_OFFSET);
/// Alignment in bytes of the literals of each Zstandard block in scratch memory.
const LITERALS_ALIGNMENT_BYTES: u64 = 16;
/// A sequence of literals and a match counts as short if it decodes to fewer bytes than this.
const SHORT_SEQUENCE_BYTES: u64 = 16;
const UNKNOWN: u64 = u64::MAX;

/// The facts about one unit (the Zstandard frames of a chunk) that kernels read: `ZstdUnit`.
pub(super) struct UnitEntry {
    pub(super) src: Range<usize>,
    pub(super) dst: Range<usize>,
    /// Where the unit's literals begin in scratch memory. `first_bundle` is where its bundles of sequences begin.
    pub(super) literals: u64,
    pub(super) first_bundle: u64,
    pub(super) first_frame: u32,
    pub(super) frames: u32,
    pub(super) bundles: u32,
}

/// The facts about one Zstandard frame that kernels read: `ZstdFrame`.
#[derive(Clone, Copy)]
pub(super) struct ZstdFrameEntry {
    pub(super) content: Option<u64>,
    /// Offset of the frame's checksum in the source.
    pub(super) checksum: Option<usize>,
    pub(super) unit: u32,
    pub(super) at: u32,
    pub(super) first_block: u32,
    pub(super) blocks: u32,
}

/// How the literals of a block are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Literals {
    Raw = defined(HEADER, "CUZARR_ZSTD_RAW") as isize,
    Rle = defined(HEADER, "CUZARR_ZSTD_RLE") as isize,
    Huffman = defined(HEADER, "CUZARR_ZSTD_HUFFMAN") as isize,
}

/// The facts about one block that kernels read: `ZstdBlock`, without where its results lie in scratch memory.
#[derive(Clone, Copy)]
pub(super) struct ZstdBlock {
    pub(super) src: usize,
    pub(super) src_bytes: u32,
    pub(super) unit: u32,
    pub(super) literals: Literals,
    pub(super) streams: u8,
    pub(super) own_tree: bool,
    pub(super) modes: u8,
    pub(super) literal_bytes: u32,
    pub(super) literals_at: u32,
    pub(super) literals_src_bytes: u32,
    pub(super) sequences: u32,
    pub(super) sequences_at: u32,
    pub(super) tree: u32,
    pub(super) own_tables: u32,
    pub(super) tables: [u32; 3],
    /// Maximum number of bytes that the block may decode to.
    pub(super) most_bytes: u32,
}

impl ZstdBlock {
    /// Number of bundles (groups of sequences) for the block's sequences, and for one more with the literals after
    /// them. Without sequences, its literals take one or two.
    fn bundles(&self) -> u64 {
        u64::from(self.sequences) / lz::BUNDLE as u64 + 1
    }

    /// Bytes of scratch memory for the block's literals. Stored literals are read from the source, and take none.
    fn literal_room(&self) -> u64 {
        match self.literals {
            Literals::Huffman => u64::from(self.literal_bytes).next_multiple_of(LITERALS_ALIGNMENT_BYTES),
            Literals::Rle if self.sequences > 0 => {
                u64::from(self.literal_bytes).next_multiple_of(LITERALS_ALIGNMENT_BYTES)
            }
            _ => 0,
        }
    }

    pub(super) fn new(src: usize, src_bytes: u32, unit: u32, most_bytes: usize) -> ZstdBlock {
        ZstdBlock {
            src,
            src_bytes,
            unit,
            literals: Literals::Raw,
            streams: 0,
            own_tree: false,
            modes: 0,
            literal_bytes: 0,
            literals_at: 0,
            literals_src_bytes: 0,
            sequences: 0,
            sequences_at: 0,
            tree: 0,
            own_tables: 0,
            tables: [0; 3],
            most_bytes: most_bytes as u32,
        }
    }
}

/// The contents of the headers of a batch of frames, in tables that kernels will read.
pub(super) struct ZstdTables {
    pub(super) units: Vec<UnitEntry>,
    pub(super) frames: Vec<ZstdFrameEntry>,
    pub(super) blocks: Vec<ZstdBlock>,
    /// Number of slots in use for decoding tables: `trees` of Huffman trees, `tables` of sequences.
    pub(super) trees: u32,
    pub(super) tables: u32,
    /// Number of sequences in all blocks together.
    sequences: u64,
    /// Scratch memory in use: `literal_bytes` of literals, and room for `bundles` bundles of sequences.
    pub(super) literal_bytes: u64,
    pub(super) bundles: u64,
}

/// The lengths of the lists in [`ZstdTables`] at one moment, so that later additions can be undone.
pub(super) struct TableMark {
    frames: usize,
    blocks: usize,
    counts: (u32, u32, u64, u64, u64),
}

/// Where each table begins in the buffer that is copied to the device.
pub(super) struct TableLayout {
    pub(super) frames: usize,
    pub(super) blocks: usize,
    /// The list of the blocks that come with a Huffman code of their own. The other lists hold blocks whose literals
    /// must be decoded, and blocks with sequences.
    pub(super) with_tree: ListTable,
    pub(super) with_literals: ListTable,
    pub(super) with_sequences: ListTable,
    pub(super) size_bytes: usize,
}

/// A list of the numbers of some Zstandard blocks, and where it begins in the buffer that is copied to the device.
pub(super) struct ListTable {
    pub(super) at: usize,
    numbers: Vec<u32>,
}

impl ListTable {
    pub(super) fn count(&self) -> u32 {
        self.numbers.len() as u32
    }
}

impl ZstdTables {
    pub(super) fn new() -> ZstdTables {
        // The first slot of tables is for the predefined ones.
        let (units, frames, blocks) = (Vec::new(), Vec::new(), Vec::new());
        ZstdTables { units, frames, blocks, trees: 0, tables: 1, sequences: 0, literal_bytes: 0, bundles: 0 }
    }

    pub(super) fn mark(&self) -> TableMark {
        let counts = (self.trees, self.tables, self.sequences, self.literal_bytes, self.bundles);
        TableMark { frames: self.frames.len(), blocks: self.blocks.len(), counts }
    }

    pub(super) fn reset(&mut self, mark: &TableMark) {
        self.frames.truncate(mark.frames);
        self.blocks.truncate(mark.blocks);
        (self.trees, self.tables, self.sequences, self.literal_bytes, self.bundles) = mark.counts;
    }

    pub(super) fn new_tree(&mut self) -> u32 {
        self.trees += 1;
        self.trees - 1
    }

    pub(super) fn new_tables(&mut self) -> u32 {
        self.tables += 1;
        self.tables - 1
    }

    pub(super) fn add(&mut self, block: ZstdBlock) {
        self.sequences += u64::from(block.sequences);
        self.literal_bytes += block.literal_room();
        self.bundles += block.bundles();
        self.blocks.push(block);
    }

    /// Adds the tables `other` of a single unit (the Zstandard frames of one chunk) to these tables. The unit's ranges
    /// begin at 0 there, and are `src` and `dst` here. Returns false if their sizes differ.
    pub(super) fn append(&mut self, other: &ZstdTables, src: &Range<usize>, dst: &Range<usize>) -> bool {
        let [unit] = &other.units[..] else { return false };
        if (unit.src.len(), unit.dst.len()) != (src.len(), dst.len()) {
            return false;
        }
        let (number, first_frame, first_block) =
            (self.units.len() as u32, self.frames.len() as u32, self.blocks.len() as u32);
        let (src, dst, literals) = (src.clone(), dst.clone(), self.literal_bytes);
        let begin = src.start;
        let first_bundle = self.bundles;
        self.units.push(UnitEntry { src, dst, literals, first_bundle, first_frame, ..*unit });
        self.frames.extend(other.frames.iter().map(|frame| ZstdFrameEntry {
            checksum: frame.checksum.map(|at| at + begin),
            unit: number,
            first_block: first_block + frame.first_block,
            ..*frame
        }));
        let (trees, tables) = (self.trees, self.tables - 1);
        // All units share the first slot of tables.
        let slot = |slot: u32| if slot == 0 { 0 } else { slot + tables };
        self.blocks.extend(other.blocks.iter().map(|block| ZstdBlock {
            src: block.src + begin,
            unit: number,
            tree: if block.literals == Literals::Huffman { block.tree + trees } else { block.tree },
            own_tables: slot(block.own_tables),
            tables: block.tables.map(slot),
            ..*block
        }));
        self.trees += other.trees;
        self.tables += other.tables - 1;
        self.sequences += other.sequences;
        self.literal_bytes += other.literal_bytes;
        self.bundles += other.bundles;
        true
    }

    /// Whether the sequences of literals and matches are short on average.
    pub(super) fn has_short_sequences(&self) -> bool {
        let bytes: usize = self.units.iter().map(|unit| unit.dst.len()).sum();
        (bytes as u64) < self.sequences * SHORT_SEQUENCE_BYTES
    }

    /// Returns where each table begins in the buffer that is copied to the device.
    pub(super) fn layout(&self) -> TableLayout {
        let frames = self.units.len() * UNIT_BYTES;
        let blocks = frames + self.frames.len() * FRAME_BYTES;
        let mut at = blocks + self.blocks.len() * BLOCK_BYTES;
        let mut list = |size: &dyn Fn(&ZstdBlock) -> u32| {
            let sizes = self.blocks.iter().map(size).zip(0u32..).filter(|&(size, _)| size > 0);
            // Blocks that share a warp should take about as long, and the longest should begin first.
            let mut order: Vec<(Reverse<u32>, u32)> = sizes.map(|(size, index)| (Reverse(size), index)).collect();
            order.sort_unstable();
            let numbers: Vec<u32> = order.into_iter().map(|(_, index)| index).collect();
            let begin = at;
            at += numbers.len() * 4;
            ListTable { at: begin, numbers }
        };
        let with_tree = list(&|block| u32::from(block.own_tree));
        let with_literals = list(&|block| if block.literal_room() > 0 { block.literal_bytes } else { 0 });
        let with_sequences = list(&|block| block.sequences);
        TableLayout { frames, blocks, with_tree, with_literals, with_sequences, size_bytes: at }
    }

    /// Writes all tables into one buffer, as kernels read them. `table` has the size of the layout.
    pub(super) fn write(&self, layout: &TableLayout, table: &mut [u8]) {
        let mut fields = Fields::new(table);
        for unit in &self.units {
            fields.put64(&[unit.src.start as u64, unit.dst.start as u64, unit.literals, unit.first_bundle]);
            fields.put32(&[unit.src.len() as u32, unit.dst.len() as u32, unit.first_frame, unit.frames]);
            fields.put32(&[unit.bundles, 0]);
        }
        for frame in &self.frames {
            fields.put64(&[frame.content.unwrap_or(UNKNOWN), frame.checksum.map_or(UNKNOWN, |at| at as u64)]);
            fields.put32(&[frame.unit, frame.at, frame.first_block, frame.blocks]);
        }
        let (mut literals, mut bundle) = (0, 0);
        for block in &self.blocks {
            fields.put64(&[block.src as u64, literals, bundle * lz::BUNDLE as u64]);
            fields.put32(&[block.src_bytes, block.unit]);
            fields.put([block.literals as u8, block.streams, u8::from(block.own_tree), block.modes]);
            fields.put32(&[block.literal_bytes, block.literals_at, block.literals_src_bytes]);
            fields.put32(&[block.sequences, block.sequences_at, block.tree, block.own_tables]);
            fields.put32(&block.tables);
            fields.put32(&[block.most_bytes]);
            literals += block.literal_room();
            bundle += block.bundles();
        }
        let lists = [&layout.with_tree, &layout.with_literals, &layout.with_sequences];
        lists.into_iter().for_each(|list| fields.put32(&list.numbers));
    }
}
