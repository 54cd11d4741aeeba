//! Reads the header of a Blosc frame, and its table of blocks. Everything is checked here before a decoder runs.
//!
//! ```text
//! header   version, version of the compressor's format, flags, typesize, nbytes u32, blocksize u32, cbytes u32
//! copied   nbytes bytes                                       when the flag MEMCPYED is set
//! blocks   start of each block u32 …, then per block: per split: size u32, that many bytes
//! ```
//! A split whose size equals its decoded size holds stored bytes. A block is split into `typesize` streams if the flag
//! DONT_SPLIT is clear, the block is not a short last one, and the streams are neither too many nor too short.

use cuzarr_device::internal::defined;

use crate::Result;
use crate::codec::damage::corrupt;

const TEXT: &str = include_str!("blosc.cuh");
/// Size of the header of a Blosc frame in bytes.
pub(crate) const HEADER_BYTES: usize = defined(TEXT, "CUZARR_BLOSC_HEADER") as usize;
/// The version of the Blosc container that is written; version 1 is read, too.
pub(super) const VERSION: u8 = 2;
/// Maximum number of streams that a Blosc block is split into; blocks of elements with more bytes are one stream.
pub(super) const MAX_SPLITS: usize = defined(TEXT, "CUZARR_BLOSC_MOST_SPLITS") as usize;
/// Minimum decoded bytes of each stream of a split block; a block whose streams would be smaller is one stream.
pub(super) const MIN_SPLIT_BYTES: usize = defined(TEXT, "CUZARR_BLOSC_LEAST_SPLIT") as usize;
/// Maximum decoded bytes of a Blosc frame, because c-blosc counts the bytes of data and header together in a C `int`.
pub(super) const MAX_DECODED_BYTES: usize = i32::MAX as usize - HEADER_BYTES;

pub(super) const FLAG_SHUFFLE: u8 = defined(TEXT, "CUZARR_BLOSC_BYTES") as u8;
pub(super) const FLAG_MEMCPYED: u8 = defined(TEXT, "CUZARR_BLOSC_COPIED") as u8;
pub(super) const FLAG_BITSHUFFLE: u8 = defined(TEXT, "CUZARR_BLOSC_BITS") as u8;
pub(super) const FLAG_DONT_SPLIT: u8 = defined(TEXT, "CUZARR_BLOSC_UNSPLIT") as u8;

/// The compressor that encoded the blocks of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compressor {
    BloscLz,
    Lz4,
    Lz4Hc,
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    /// The compressors, by the name that `cname` has in the configuration.
    pub(crate) const NAMES: &'static [(&'static str, Compressor)] = &[
        ("blosclz", Compressor::BloscLz),
        ("lz4", Compressor::Lz4),
        ("lz4hc", Compressor::Lz4Hc),
        ("snappy", Compressor::Snappy),
        ("zlib", Compressor::Zlib),
        ("zstd", Compressor::Zstd),
    ];

    /// The number that stands for the compressor's format in the flags of a Blosc header.
    pub(super) fn format(self) -> u8 {
        match self {
            Compressor::BloscLz => 0,
            Compressor::Lz4 | Compressor::Lz4Hc => 1,
            Compressor::Snappy => 2,
            Compressor::Zlib => 3,
            Compressor::Zstd => 4,
        }
    }

    fn from_format(format: u8) -> Option<Compressor> {
        use Compressor::{BloscLz, Lz4, Snappy, Zlib, Zstd};
        [BloscLz, Lz4, Snappy, Zlib, Zstd].into_iter().find(|compressor| compressor.format() == format)
    }
}

/// How the bytes of a block were shuffled before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffling {
    None,
    Bytes,
    Bits,
}

/// The header of a Blosc frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) compressor: Compressor,
    pub(crate) shuffling: Shuffling,
    pub(crate) type_bytes: usize,
    pub(crate) decoded_bytes: usize,
    pub(crate) block_bytes: usize,
    pub(crate) memcpyed: bool,
    may_split: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word) as usize)
}

impl Header {
    /// Reads the header of `frame`, which must be the whole frame.
    pub(crate) fn parse(frame: &[u8]) -> Result<Header> {
        Header::parse_first(frame, frame.len())
    }

    /// Reads the header from the first bytes of a frame; the whole frame has `frame_size_bytes` bytes.
    pub(crate) fn parse_first(first: &[u8], frame_size_bytes: usize) -> Result<Header> {
        let Some(header) = first.first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt(format!("got {} bytes, expected a header of {HEADER_BYTES}", first.len())));
        };
        let [version, _, flags, type_bytes, ..] = *header;
        if !(1..=VERSION).contains(&version) {
            return Err(corrupt(format!("byte 0: container version {version}, expected 1 or {VERSION}")));
        }
        let size = |at| word(header, at).unwrap_or(0);
        let (decoded_bytes, block_bytes, frame_bytes) = (size(4), size(8), size(12));
        if frame_bytes != frame_size_bytes {
            let message = format!("the header says a frame of {frame_bytes} bytes, got {frame_size_bytes}");
            return Err(corrupt(format!("byte 12: {message}")));
        }
        let memcpyed = flags & FLAG_MEMCPYED != 0;
        let shuffling = match (flags & FLAG_SHUFFLE != 0, flags & FLAG_BITSHUFFLE != 0) {
            (true, _) => Shuffling::Bytes,
            (false, true) => Shuffling::Bits,
            (false, false) => Shuffling::None,
        };
        let format = flags >> 5;
        let compressor = match Compressor::from_format(format) {
            Some(compressor) => compressor,
            // Nothing is compressed, so the number means nothing.
            None if memcpyed => Compressor::BloscLz,
            None => return Err(corrupt(format!("byte 2: unknown compressor format {format}"))),
        };
        if decoded_bytes > 0 && (block_bytes == 0 || type_bytes == 0 || decoded_bytes > MAX_DECODED_BYTES) {
            let message = format!(
                "the header's sizes contradict each other: {decoded_bytes}, blocks of {block_bytes}, types of {type_bytes}"
            );
            return Err(corrupt(format!("byte 3: {message}")));
        }
        let may_split = flags & FLAG_DONT_SPLIT == 0;
        let type_bytes = type_bytes.max(1).into();
        Ok(Header { compressor, shuffling, type_bytes, decoded_bytes, block_bytes, memcpyed, may_split })
    }

    /// Number of blocks in the frame.
    pub(crate) fn block_count(&self) -> usize {
        self.decoded_bytes.div_ceil(self.block_bytes.max(1))
    }

    /// Number of streams that a block of `size` decoded bytes is split into.
    pub(crate) fn split_count(&self, size: usize) -> usize {
        let splits = self.may_split
            && size == self.block_bytes
            && self.type_bytes <= MAX_SPLITS
            && size / self.type_bytes >= MIN_SPLIT_BYTES;
        if splits { self.type_bytes } else { 1 }
    }

    /// Returns the data of a Blosc frame that is stored uncompressed: all bytes after the header.
    pub(crate) fn copied<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8]> {
        let data = &frame[HEADER_BYTES.min(frame.len())..];
        match data.len() == self.decoded_bytes {
            true => Ok(data),
            false => Err(corrupt(format!("got {} stored bytes, expected {}", data.len(), self.decoded_bytes))),
        }
    }

    /// Offset in the frame at which block `index` begins.
    pub(crate) fn block_start(&self, frame: &[u8], index: usize) -> Result<usize> {
        let table_end = self.block_count().saturating_mul(4).saturating_add(HEADER_BYTES);
        let start = word(frame, index.saturating_mul(4).saturating_add(HEADER_BYTES));
        match start {
            Some(start) if start >= table_end && start < frame.len() => Ok(start),
            _ => {
                let start = start.map_or("nowhere".into(), |start| format!("at byte {start}"));
                let frame = frame.len();
                Err(corrupt(format!("block {index} begins {start}, expected from {table_end} to below {frame}")))
            }
        }
    }
}

/// The stream whose size stands at byte `at` of the frame, and the offset after it.
pub(crate) fn stream(frame: &[u8], at: usize) -> Result<(&[u8], usize)> {
    let stream = word(frame, at).and_then(|size| {
        let end = at.checked_add(4)?.checked_add(size)?;
        Some((frame.get(at + 4..end)?, end))
    });
    stream.ok_or_else(|| corrupt(format!("byte {at}: the stream there leaves the frame of {} bytes", frame.len())))
}
