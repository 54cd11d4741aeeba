//! The table in which kernels find where each frame of a batch lies, and how it is stored. Its layout is in
//! `codec/batch/frames.cuh`. The host writes the table if it has the frames' bytes; otherwise a scan kernel writes it.

use cuzarr_device::internal::{defined, stated_size};

const HEADER: &str = include_str!("frames.cuh");
/// Bytes of one entry in the table of frames, and of the head in front of all entries.
pub(crate) const ENTRY_BYTES: usize = stated_size(HEADER, "Frame");

/// How a frame's contents are stored, in the numbers that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Damaged = defined(HEADER, "CUZARR_FRAME_DAMAGED") as u16,
    Copied = defined(HEADER, "CUZARR_FRAME_COPIED") as u16,
    Streams = defined(HEADER, "CUZARR_FRAME_STREAMS") as u16,
    Stored = defined(HEADER, "CUZARR_FRAME_STORED") as u16,
}

/// One entry in the table of frames: the facts about a frame that kernels read, `Frame` in frames.cuh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameEntry {
    pub(crate) src_offset: u64,
    pub(crate) dst_offset: u64,
    pub(crate) work_offset: u64,
    pub(crate) first_stream: u64,
    pub(crate) src_bytes: u32,
    pub(crate) dst_bytes: u32,
    pub(crate) block_bytes: u32,
    pub(crate) streams: u32,
    pub(crate) splits: u32,
    pub(crate) type_bytes: u32,
    pub(crate) first_tile: u32,
    pub(crate) kind: Kind,
    pub(crate) shuffling: u16,
}

impl FrameEntry {
    /// Makes the table entry of a frame that has one compressed stream and lies at the beginning of source and target.
    pub(crate) fn new(src_bytes: usize, dst_bytes: usize) -> FrameEntry {
        FrameEntry {
            src_offset: 0,
            dst_offset: 0,
            work_offset: 0,
            first_stream: 0,
            src_bytes: src_bytes as u32,
            dst_bytes: dst_bytes as u32,
            block_bytes: dst_bytes as u32,
            streams: 1,
            splits: 1,
            type_bytes: 1,
            first_tile: 0,
            kind: Kind::Streams,
            shuffling: 0,
        }
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let wide = [self.src_offset, self.dst_offset, self.work_offset, self.first_stream];
        let narrow = [
            self.src_bytes,
            self.dst_bytes,
            self.block_bytes,
            self.streams,
            self.splits,
            self.type_bytes,
            self.first_tile,
        ];
        let mut at = 0;
        let mut put = |value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        };
        wide.iter().for_each(|value| put(&value.to_ne_bytes()));
        narrow.iter().for_each(|value| put(&value.to_ne_bytes()));
        put(&(self.kind as u16).to_ne_bytes());
        put(&self.shuffling.to_ne_bytes());
        bytes
    }
}

/// The table of frames as bytes: a head with the number of streams, then the entries.
pub(crate) fn table(entries: &[FrameEntry], streams: u64) -> Vec<u8> {
    let mut table = vec![0; ENTRY_BYTES];
    table[..8].copy_from_slice(&streams.to_ne_bytes());
    table.extend(entries.iter().flat_map(|entry| entry.to_bytes()));
    table
}
