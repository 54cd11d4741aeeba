//! Reads the headers of frames, blocks and their sections (RFC 8878, section 3.1.1) on the host, into the tables that
//! kernels start from. The sizes in the tables are checked here against the unit's ranges, so that a frame alone never
//! decides how much memory is taken. Kernels check the contents of the streams.

use std::ops::Range;

use cuzarr_device::internal::defined;

use super::table::{Literals, MOST_BLOCK_BYTES, PREDEFINED, UnitEntry, ZstdBlock, ZstdFrameEntry, ZstdTables};
use crate::codec::damage::corrupt;
use crate::{Error, ErrorKind, Result};

const WALK: &str = include_str!("zstd_headers.cuh");
pub(super) const MAGIC: u32 = defined(WALK, "CUZARR_ZSTD_MAGIC");
const SKIPPABLE_MAGIC: u32 = defined(WALK, "CUZARR_ZSTD_SKIPPABLE");
const SHORTEST_MATCH: usize = 3;
const LARGEST_WINDOW_LOG: u32 = 31;
/// Minimum number of literals that are coded as four Huffman streams.
const FOUR_STREAMS_LITERALS: usize = 6;
/// Maximum bytes of one chunk's decoding tables for each encoded and decoded byte, besides `TABLE_BYTES`; beyond it,
/// the host decodes the chunk. Known writers make far larger blocks, which need less.
const TABLE_BYTES_PER_BYTE: usize = 8;
const TABLE_BYTES: usize = 256 << 10;

/// A reader of the bytes of a Zstandard block, which knows its position for error messages.
#[derive(Clone, Copy)]
struct BlockReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

fn damaged(at: usize, what: impl std::fmt::Display) -> Error {
    corrupt(format!("byte {at}: {what}"))
}

impl<'a> BlockReader<'a> {
    fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.rest() {
            let message = format!("the frame is cut off: {count} bytes are needed, {} are left", self.rest());
            return Err(damaged(self.at, message));
        }
        self.at += count;
        Ok(&self.bytes[self.at - count..self.at])
    }

    /// Reads a little-endian number of `count` bytes, at most 8.
    fn number(&mut self, count: usize) -> Result<u64> {
        Ok(self.take(count)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// The latest Huffman tree and sequence tables in a Zstandard frame, which later blocks of the frame may use again.
#[derive(Clone, Copy, Default)]
struct Earlier {
    tree: Option<u32>,
    tables: Option<[u32; 3]>,
}

/// A compressed Zstandard block, while its headers are read.
struct Coded<'a> {
    block: ZstdBlock,
    reader: BlockReader<'a>,
    /// Maximum bytes that the block may decode to.
    limit: usize,
}

/// One unit (a chunk's Zstandard frames), while its headers are read.
struct FrameScan<'a> {
    reader: BlockReader<'a>,
    /// Offset in the source at which the unit begins.
    src: usize,
    unit: u32,
    dst_bytes: usize,
    /// Minimum number of bytes that the blocks read so far decode to.
    least_bytes: usize,
    /// Bytes of scratch memory for the decoding tables of all headers read so far.
    slot_bytes: usize,
}

/// Adds the frames of one unit to the tables that kernels read. `at` is its range in the source. On an error, the unit
/// is added without frames.
pub(super) fn scan(tables: &mut ZstdTables, bytes: &[u8], at: Range<usize>, dst: Range<usize>) -> Result<()> {
    let mark = tables.mark();
    let (first_frame, literals, first_bundle) = (tables.frames.len() as u32, tables.literal_bytes, tables.bundles);
    let mut scan = FrameScan {
        reader: BlockReader { bytes, at: 0 },
        src: at.start,
        unit: tables.units.len() as u32,
        dst_bytes: dst.len(),
        least_bytes: 0,
        slot_bytes: 0,
    };
    let result = scan.frames(tables);
    if result.is_err() {
        tables.reset(&mark);
    }
    let frames = tables.frames.len() as u32 - first_frame;
    let bundles = (tables.bundles - first_bundle) as u32;
    tables.units.push(UnitEntry { src: at, dst, literals, first_bundle, first_frame, frames, bundles });
    result
}

impl FrameScan<'_> {
    fn frames(&mut self, tables: &mut ZstdTables) -> Result<()> {
        while self.reader.rest() > 0 {
            let begin = self.reader.at;
            let magic = self.reader.number(4)? as u32;
            if magic & !15 == SKIPPABLE_MAGIC {
                let size = self.reader.number(4)? as usize;
                self.reader.take(size)?;
            } else if magic == MAGIC {
                self.frame(tables, begin)?;
            } else {
                return Err(damaged(begin, format!("not a zstd frame: it begins with {magic:#010x}")));
            }
        }
        Ok(())
    }

    fn frame(&mut self, tables: &mut ZstdTables, begin: usize) -> Result<()> {
        let descriptor = self.reader.number(1)? as u8;
        if descriptor & 8 != 0 {
            return Err(damaged(begin + 4, "the frame's header has a reserved bit set"));
        }
        let single_segment = descriptor & 32 != 0;
        let mut window_bytes = match single_segment {
            true => None,
            false => Some(self.window()?),
        };
        let dictionary = self.reader.number([0, 1, 2, 4][usize::from(descriptor & 3)])?;
        if dictionary != 0 {
            let message =
                format!("byte {begin}: the frame needs dictionary {dictionary}; dictionaries are not supported");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let content = match (descriptor >> 6, single_segment) {
            (0, false) => None,
            (0, true) => Some(self.reader.number(1)?),
            (1, _) => Some(self.reader.number(2)? + 256),
            (2, _) => Some(self.reader.number(4)?),
            _ => Some(self.reader.number(8)?),
        };
        if let Some(bytes) = content.filter(|&bytes| bytes > (self.dst_bytes - self.least_bytes) as u64) {
            let room = self.dst_bytes - self.least_bytes;
            return Err(damaged(begin, format!("the header says {bytes} decoded bytes, {room} are expected at most")));
        }
        if single_segment {
            window_bytes = content;
        }
        let block_limit = window_bytes.map_or(MOST_BLOCK_BYTES, |bytes| bytes.min(MOST_BLOCK_BYTES as u64) as usize);
        let first_block = tables.blocks.len() as u32;
        let mut earlier = Earlier::default();
        while !self.block(tables, block_limit, &mut earlier)? {}
        let checksum = match descriptor & 4 != 0 {
            true => {
                self.reader.take(4)?;
                Some(self.src + self.reader.at - 4)
            }
            false => None,
        };
        let blocks = tables.blocks.len() as u32 - first_block;
        tables.frames.push(ZstdFrameEntry {
            content,
            checksum,
            unit: self.unit,
            at: begin as u32,
            first_block,
            blocks,
        });
        Ok(())
    }

    fn window(&mut self) -> Result<u64> {
        let at = self.reader.at;
        let byte = self.reader.number(1)?;
        let log = 10 + (byte >> 3) as u32;
        if log > LARGEST_WINDOW_LOG {
            return Err(damaged(
                at,
                format!("the window has 2^{log} bytes, at most 2^{LARGEST_WINDOW_LOG} are allowed"),
            ));
        }
        Ok((1 << log) + (1 << (log - 3)) * (byte & 7))
    }

    /// Adds `bytes` to the minimum number of bytes that the blocks read so far decode to. An error if the unit then
    /// decodes to too many bytes.
    fn claim(&mut self, at: usize, bytes: usize) -> Result<()> {
        self.least_bytes += bytes;
        match self.least_bytes > self.dst_bytes {
            true => Err(damaged(at, format!("the blocks decode to more than the expected {} bytes", self.dst_bytes))),
            false => Ok(()),
        }
    }

    /// Reads the headers of one block; returns whether it is the frame's last.
    fn block(&mut self, tables: &mut ZstdTables, limit: usize, earlier: &mut Earlier) -> Result<bool> {
        let at = self.reader.at;
        let header = self.reader.number(3)? as usize;
        let (last, kind, size) = (header & 1 == 1, header >> 1 & 3, header >> 3);
        if size > limit {
            return Err(damaged(at, format!("a block of {size} bytes, {limit} are allowed")));
        }
        let content = self.reader.at;
        let stored = if kind == 1 { 1 } else { size };
        self.reader.take(stored)?;
        let reader = BlockReader { bytes: &self.reader.bytes[..content + stored], at: content };
        let mut content =
            Coded { block: ZstdBlock::new(self.src + content, stored as u32, self.unit, limit), reader, limit };
        match kind {
            0 | 1 => {
                self.claim(at, size)?;
                content.block.literals = if kind == 1 { Literals::Rle } else { Literals::Raw };
                content.block.literal_bytes = size as u32;
            }
            2 => {
                self.literals(tables, &mut content, earlier)?;
                self.sequences(tables, &mut content, earlier)?;
            }
            _ => return Err(damaged(at, "a block of the reserved kind")),
        }
        let block = content.block;
        if block.literal_bytes > 0 || block.sequences > 0 {
            tables.add(block);
        }
        Ok(last)
    }

    /// Adds `bytes` to the count of memory that the frame's decoding tables take. An error if they take too much for a
    /// frame of its size.
    fn slot(&mut self, at: usize, bytes: usize) -> Result<()> {
        self.slot_bytes += bytes;
        if self.slot_bytes > TABLE_BYTES + TABLE_BYTES_PER_BYTE * (self.reader.bytes.len() + self.dst_bytes) {
            let message = format!("byte {at}: the frame has so many small blocks that only the host decodes it");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    /// Reads the headers in a block's section of literals (RFC 8878, 3.1.1.3.1).
    fn literals(&mut self, tables: &mut ZstdTables, content: &mut Coded<'_>, earlier: &mut Earlier) -> Result<()> {
        let Coded { block, reader, limit } = content;
        let begin = reader.at;
        let Some(&first) = reader.bytes.get(begin) else {
            return Err(damaged(begin, "a compressed block without bytes"));
        };
        let (kind, format) = (first & 3, usize::from(first >> 2 & 3));
        let (regenerated, compressed);
        if kind < 2 {
            let (header, shift) = [(1, 3), (2, 4), (1, 3), (3, 4)][format];
            regenerated = (reader.number(header)? >> shift) as usize;
            compressed = if kind == 0 { regenerated } else { 1 };
            block.literals = if kind == 0 { Literals::Raw } else { Literals::Rle };
        } else {
            let (header, bits) = [(3, 10), (3, 10), (4, 14), (5, 18)][format];
            let number = reader.number(header)? >> 4;
            regenerated = (number & ((1 << bits) - 1)) as usize;
            compressed = (number >> bits) as usize;
            block.literals = Literals::Huffman;
            block.streams = if format == 0 { 1 } else { 4 };
            if regenerated == 0 || compressed == 0 || (format > 0 && regenerated < FOUR_STREAMS_LITERALS) {
                return Err(damaged(begin, format!("{regenerated} literals do not fit into {compressed} bytes")));
            }
            if kind == 2 {
                block.own_tree = true;
                self.slot(begin, super::table::TREE_BYTES)?;
                earlier.tree = Some(tables.new_tree());
            }
            block.tree =
                earlier.tree.ok_or_else(|| damaged(begin, "literals use an earlier code, but there is none"))?;
        }
        if regenerated > *limit {
            return Err(damaged(begin, format!("a block with {regenerated} literals, {limit} are allowed")));
        }
        self.claim(begin, regenerated)?;
        block.literals_at = (reader.at - (block.src - self.src)) as u32;
        (block.literal_bytes, block.literals_src_bytes) = (regenerated as u32, compressed as u32);
        reader.take(compressed)?;
        Ok(())
    }

    /// Reads the headers in a block's section of sequences (RFC 8878, 3.1.1.3.2).
    fn sequences(&mut self, tables: &mut ZstdTables, content: &mut Coded<'_>, earlier: &mut Earlier) -> Result<()> {
        let Coded { block, reader, limit } = content;
        let begin = reader.at;
        let count = match reader.number(1)? as usize {
            few @ 0..128 => few,
            255 => reader.number(2)? as usize + 0x7f00,
            high => ((high - 128) << 8) + reader.number(1)? as usize,
        };
        if count == 0 {
            return match reader.rest() {
                0 => Ok(()),
                rest => Err(damaged(reader.at, format!("{rest} bytes follow the end of a block without sequences"))),
            };
        }
        if count * SHORTEST_MATCH + block.literal_bytes as usize > (*limit).max(MOST_BLOCK_BYTES) {
            return Err(damaged(begin, format!("a block of {count} sequences decodes to more than it may")));
        }
        self.claim(begin, count * SHORTEST_MATCH)?;
        let modes = reader.number(1)? as u8;
        if modes & 3 != 0 {
            return Err(damaged(begin, "the header of the sequences has a reserved bit set"));
        }
        if reader.rest() == 0 {
            return Err(damaged(reader.at, "the sequences are cut off"));
        }
        let kinds = [modes >> 6, modes >> 4 & 3, modes >> 2 & 3];
        if kinds.iter().any(|&kind| kind == 1 || kind == 2) {
            self.slot(begin, super::table::TABLES_BYTES)?;
            block.own_tables = tables.new_tables();
        }
        let before = earlier.tables;
        for (slot, (index, kind)) in block.tables.iter_mut().zip(kinds.iter().enumerate()) {
            *slot = match kind {
                0 => PREDEFINED,
                3 => before.ok_or_else(|| damaged(begin, "sequences use earlier tables, but there are none"))?[index],
                _ => block.own_tables,
            };
        }
        earlier.tables = Some(block.tables);
        (block.modes, block.sequences) = (modes, count as u32);
        block.sequences_at = (reader.at - (block.src - self.src)) as u32;
        Ok(())
    }
}

/// Describes what was read from the headers of `units`, and the errors, as text for tests. If `apart`, the headers of
/// each unit are first read separately.
#[cfg(test)]
pub(crate) fn described(host: &[u8], units: &[crate::codec::batch::Unit], apart: bool) -> Vec<String> {
    let mut tables = ZstdTables::new();
    let scan = |unit: &crate::codec::batch::Unit| {
        let (bytes, mut own) = (&host[unit.src.clone()], ZstdTables::new());
        let scanned = if apart {
            let scanned = scan(&mut own, bytes, 0..bytes.len(), 0..unit.dst.len());
            assert!(tables.append(&own, &unit.src, &unit.dst));
            scanned
        } else {
            scan(&mut tables, bytes, unit.src.clone(), unit.dst.clone())
        };
        format!("{:?}", scanned.map_err(|error| error.to_string()))
    };
    let mut described: Vec<String> = units.iter().map(scan).collect();
    let counts = (tables.bundles, tables.trees, tables.tables, tables.literal_bytes);
    let layout = tables.layout();
    let mut table = vec![0; layout.size_bytes];
    tables.write(&layout, &mut table);
    described.push(format!("{counts:?} {table:?}"));
    described
}
