//! Decodes and encodes Blosc frames on the host. Each block is decompressed to scratch memory, and unshuffled from
//! there to its place.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::cpu::shuffle::{shuffle, unshuffle};
use lz4::block::CompressionMode;

use super::bits::{bitshuffle, bitunshuffle};
use super::container::{
    FLAG_BITSHUFFLE, FLAG_DONT_SPLIT, FLAG_MEMCPYED, FLAG_SHUFFLE, HEADER_BYTES, Header, MAX_DECODED_BYTES, MAX_SPLITS,
    MIN_SPLIT_BYTES, VERSION, stream,
};
use super::cuda::BloscDecoder;
use super::encode::{BloscEncoder, BloscLayout};
use super::{Compressor, Shuffling, blosclz};
use crate::codec::damage::{above_limit, corrupt, expect_size, unencodable};
use crate::codec::deflate::encode as deflate_encode;
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::gzip::cpu::{zlib_encode, zlib_into};
use crate::codec::host::BytesToBytes;
use crate::codec::lz4::encode as lz4_encode;
use crate::codec::size::Size;
use crate::codec::zstd::encode as zstd_encode;
use crate::codec::{lz4 as lz4_codec, scratch, zstd as zstd_codec};
use crate::{Result, ResultExt};

/// Maximum bytes of a block: c-blosc's decoder refuses larger ones.
const MAX_BLOCK_BYTES: usize = (i32::MAX as usize - 4 * 255) / 3;

#[derive(Debug)]
pub(super) struct Blosc {
    pub(super) compressor: Compressor,
    pub(super) level: u8,
    pub(super) shuffling: Shuffling,
    pub(super) type_bytes: u8,
    pub(super) block_bytes: usize,
}

/// Decodes the blocks of a frame that hold the bytes `wanted`, and returns the number of decoded bytes. The caller has
/// checked that the header says `decoded.len()`.
fn decode_frame(header: &Header, frame: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
    if header.memcpyed {
        decoded[wanted.clone()].copy_from_slice(&header.copied(frame)?[wanted.clone()]);
        return Ok(wanted.len());
    }
    let block_bytes = header.block_bytes.max(1);
    let blocks = decoded.chunks_mut(block_bytes).enumerate();
    let mut decoded_bytes = 0;
    for (index, block) in blocks.take(wanted.end.div_ceil(block_bytes)).skip(wanted.start / block_bytes) {
        decoded_bytes += block.len();
        let start = header.block_start(frame, index)?;
        let unit = header.type_bytes;
        match header.shuffling {
            Shuffling::Bytes if unit > 1 => scratch::with(block.len(), |scratch| {
                decode_streams(header, frame, start, scratch)?;
                Ok(unshuffle(scratch, block, unit)?)
            }),
            Shuffling::Bits if block.len() >= unit => scratch::with(block.len(), |scratch| {
                decode_streams(header, frame, start, scratch)?;
                bitunshuffle(scratch, block, unit)
            }),
            _ => decode_streams(header, frame, start, block),
        }
        .at(|| format!("block {index}"))?;
    }
    Ok(decoded_bytes)
}

fn decode_streams(header: &Header, frame: &[u8], start: usize, block: &mut [u8]) -> Result<()> {
    let splits = header.split_count(block.len());
    let split_bytes = block.len() / splits;
    // c-blosc's blocks consist of whole elements. In other blocks, some bytes would be in no stream.
    expect_size(split_bytes * splits, block.len())?;
    let mut at = start;
    for part in block.chunks_exact_mut(split_bytes.max(1)) {
        let (compressed, next) = stream(frame, at)?;
        if compressed.len() == part.len() {
            part.copy_from_slice(compressed);
        } else {
            decode_stream(header.compressor, compressed, part).at(|| format!("stream at byte {at}"))?;
        }
        at = next;
    }
    Ok(())
}

fn decode_stream(compressor: Compressor, compressed: &[u8], part: &mut [u8]) -> Result<()> {
    match compressor {
        Compressor::BloscLz => blosclz::decompress(compressed, part),
        Compressor::Lz4 | Compressor::Lz4Hc => lz4_codec::cpu::block_into(compressed, part),
        Compressor::Zlib => zlib_into(compressed, part),
        Compressor::Zstd => expect_size(zstd_codec::cpu::decompress(compressed, part)?, part.len()),
        Compressor::Snappy => {
            let size = snap::raw::decompress_len(compressed).map_err(|error| corrupt(error.to_string()))?;
            expect_size(size, part.len())?;
            let size =
                snap::raw::Decoder::new().decompress(compressed, part).map_err(|error| corrupt(error.to_string()))?;
            expect_size(size, part.len())
        }
    }
}

impl Blosc {
    /// Whether blocks of `block_bytes` are split into several streams, by the rule of c-blosc's FORWARD_COMPAT_SPLIT.
    fn splits(&self, block_bytes: usize) -> bool {
        let unit = usize::from(self.type_bytes);
        self.compressor != Compressor::Zstd && unit <= MAX_SPLITS && block_bytes / unit >= MIN_SPLIT_BYTES
    }

    /// Chooses the size of a Blosc block in bytes: the configured size, or else one that depends on the compression
    /// level. It is chosen so that a block stays in the second-level cache and there are enough blocks to decode in
    /// parallel.
    fn choose_block_bytes(&self, decoded: usize) -> usize {
        let unit = usize::from(self.type_bytes);
        let wanted = match (self.block_bytes, self.level) {
            (0, 0..=2) => 64 << 10,
            (0, 3..=5) => 256 << 10,
            (0, _) => 512 << 10,
            (asked, _) => asked.clamp(MIN_SPLIT_BYTES, MAX_BLOCK_BYTES),
        };
        let block = wanted.min(decoded).max(1);
        if block > unit { block / unit * unit } else { block }
    }

    /// The flags in the header that say how blocks are shuffled, split and compressed.
    fn flags(&self, block_bytes: usize) -> u8 {
        let shuffle_flag = match self.shuffling {
            Shuffling::None => 0,
            Shuffling::Bytes => FLAG_SHUFFLE,
            Shuffling::Bits => FLAG_BITSHUFFLE,
        };
        let split_flag = if self.splits(block_bytes) { 0 } else { FLAG_DONT_SPLIT };
        shuffle_flag | split_flag | self.compressor.format() << 5
    }

    /// Encodes one block, and appends its streams to `frame`. Returns false if the frame would not be smaller than a
    /// copy.
    fn encode_block(&self, block: &[u8], splits: usize, limit: usize, frame: &mut Vec<u8>) -> Result<bool> {
        let split_bytes = (block.len() / splits).max(1);
        for part in block.chunks_exact(split_bytes) {
            let header = frame.len();
            frame.extend_from_slice(&[0; 4]);
            let compressed = self.encode_stream(part)?.filter(|stream| stream.len() < part.len());
            let stream = compressed.as_deref().unwrap_or(part);
            frame.extend_from_slice(stream);
            frame[header..header + 4].copy_from_slice(&(stream.len() as u32).to_le_bytes());
            if frame.len() >= limit {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Encodes one stream; `None` if the compressor gives up because the stream does not become smaller.
    fn encode_stream(&self, part: &[u8]) -> Result<Option<Vec<u8>>> {
        let lz4 = |mode| {
            let mut stream = vec![0; part.len()];
            let size = lz4_codec::cpu::block_encode(part, mode, &mut stream)?;
            stream.truncate(size);
            Some(stream)
        };
        let level = i32::from(self.level);
        Ok(match self.compressor {
            Compressor::BloscLz => blosclz::compress(part, self.level, part.len()),
            Compressor::Lz4 => lz4(CompressionMode::FAST((10 - level).max(1))),
            Compressor::Lz4Hc => lz4(CompressionMode::HIGHCOMPRESSION(level)),
            Compressor::Zlib => Some(zlib_encode(part, level)?),
            Compressor::Zstd => {
                let mut stream = Vec::with_capacity(part.len());
                zstd_codec::cpu::compress(part, self.zstd_level(), &mut stream).is_ok().then_some(stream)
            }
            Compressor::Snappy => return Err(unencodable("'cname' snappy is only decoded")),
        })
    }

    /// The kernels that encode streams of `decoded_bytes`; `None` if the host encodes them.
    fn stream_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(match self.compressor {
            Compressor::Lz4 => Arc::new(lz4_encode::Lz4Encoder::new(decoded_bytes, 0)?),
            Compressor::Zstd => Arc::new(zstd_encode::ZstdEncoder::new(decoded_bytes, self.zstd_level(), false)?),
            Compressor::Zlib => Arc::new(deflate_encode::DeflateEncoder::zlib(decoded_bytes, self.level.into())?),
            _ => return None,
        })
    }

    /// The zstd level that stands for a Blosc level, as in c-blosc: 1, 3, 5, … for levels up to 8, and zstd's highest
    /// for 9.
    fn zstd_level(&self) -> i32 {
        if self.level < 9 { i32::from(self.level) * 2 - 1 } else { 22 }
    }

    fn header(&self, flags: u8, decoded: usize, block: usize) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        // The second byte is the version of the compressor's format: 1 for all of them.
        header[..4].copy_from_slice(&[VERSION, 1, flags, self.type_bytes]);
        header[4..8].copy_from_slice(&(decoded as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(block as u32).to_le_bytes());
        header
    }

    fn encode_copied(&self, flags: u8, decoded: &[u8], block: usize) -> Vec<u8> {
        let mut frame = self.header(flags | FLAG_MEMCPYED, decoded.len(), block).to_vec();
        frame.extend_from_slice(decoded);
        frame
    }

    /// Encodes all blocks to a frame; `None` if a frame of uncompressed bytes is shorter.
    fn encode_blocks(&self, flags: u8, decoded: &[u8], block_bytes: usize) -> Result<Option<Vec<u8>>> {
        let limit = HEADER_BYTES + decoded.len();
        let count = decoded.len().div_ceil(block_bytes);
        let mut frame = Vec::with_capacity(limit);
        frame.extend_from_slice(&self.header(flags, decoded.len(), block_bytes));
        frame.resize(HEADER_BYTES + 4 * count, 0);
        let mut shuffled = vec![0; if self.shuffling == Shuffling::None { 0 } else { block_bytes }];
        let unit = usize::from(self.type_bytes);
        for (index, block) in decoded.chunks(block_bytes).enumerate() {
            let start = (frame.len() as u32).to_le_bytes();
            frame[HEADER_BYTES + 4 * index..][..4].copy_from_slice(&start);
            let block = match self.shuffling {
                Shuffling::Bytes if unit > 1 => {
                    shuffle(block, &mut shuffled[..block.len()], unit)?;
                    &shuffled[..block.len()]
                }
                Shuffling::Bits if block.len() >= unit => {
                    bitshuffle(block, &mut shuffled[..block.len()], unit)?;
                    &shuffled[..block.len()]
                }
                _ => block,
            };
            let splits = if flags & FLAG_DONT_SPLIT == 0 && block.len() == block_bytes { unit } else { 1 };
            if !self.encode_block(block, splits, limit, &mut frame)? {
                return Ok(None);
            }
        }
        Ok(Some(frame))
    }
}

impl BytesToBytes for Blosc {
    fn name(&self) -> &str {
        "blosc"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        (!matches!(self.compressor, Compressor::BloscLz | Compressor::Snappy)).then_some(&BloscDecoder)
    }

    fn host_reason(&self) -> &'static str {
        "kernels decode no blosclz and no snappy"
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        if self.level == 0 || !(1..=MAX_DECODED_BYTES).contains(&decoded_bytes) {
            return None;
        }
        let block_bytes = self.choose_block_bytes(decoded_bytes);
        let layout = BloscLayout {
            chunk_bytes: decoded_bytes,
            block_bytes,
            splits: if self.splits(block_bytes) { self.type_bytes.into() } else { 1 },
            type_bytes: self.type_bytes,
            shuffling: self.shuffling,
            flags: self.flags(block_bytes),
        };
        let rest = match layout.rest_bytes() {
            0 => None,
            bytes => Some(self.stream_encoder(bytes)?),
        };
        Some(Arc::new(BloscEncoder { streams: self.stream_encoder(layout.stream_bytes())?, rest, layout }))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let all = 0..decoded.len();
        self.decode_part_into(encoded, decoded, all).map(drop)
    }

    fn decode_part_into(&self, encoded: &[u8], decoded: &mut [u8], wanted: Range<usize>) -> Result<usize> {
        let header = Header::parse(encoded)?;
        if header.decoded_bytes != decoded.len() {
            let (got, expected) = (header.decoded_bytes, decoded.len());
            return Err(corrupt(format!("byte 4: the header says {got} decoded bytes, expected {expected}")));
        }
        decode_frame(&header, encoded, decoded, wanted)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let header = Header::parse(encoded)?;
        if header.decoded_bytes as u64 > limit_bytes {
            return Err(above_limit(header.decoded_bytes, limit_bytes)).at(|| "byte 4");
        }
        // Zeroed pages cost nothing until they are written. A frame with a false size fails at its first missing block.
        let mut decoded = vec![0; header.decoded_bytes];
        decode_frame(&header, encoded, &mut decoded, 0..header.decoded_bytes)?;
        Ok(decoded)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        if decoded.len() > MAX_DECODED_BYTES {
            let message = format!("{} bytes in a chunk, Blosc holds at most {MAX_DECODED_BYTES}", decoded.len());
            return Err(unencodable(message).with_hint("use smaller chunks or another compressor"));
        }
        let block_bytes = self.choose_block_bytes(decoded.len());
        let flags = self.flags(block_bytes);
        let blocks = match self.level {
            0 => None,
            _ if decoded.is_empty() => None,
            _ => self.encode_blocks(flags, &decoded, block_bytes)?,
        };
        let mut frame = blocks.unwrap_or_else(|| self.encode_copied(flags, &decoded, block_bytes));
        let size = (frame.len() as u32).to_le_bytes();
        frame[12..16].copy_from_slice(&size);
        Ok(frame)
    }
}
