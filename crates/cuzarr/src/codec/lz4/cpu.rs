//! Decodes and encodes LZ4 blocks on the host, by liblz4 with its safe decoder.

use std::borrow::Cow;
use std::sync::Arc;

use lz4::block::{CompressionMode, compress_bound, compress_to_buffer, decompress_to_buffer};

use super::encode::Lz4Encoder;
use super::{HEADER_BYTES, cuda};
use crate::Result;
use crate::codec::damage::{above_limit, corrupt, expect_size, unencodable};
use crate::codec::device::{DeviceDecoder, DeviceEncoder};
use crate::codec::host::BytesToBytes;
use crate::codec::size::Size;

#[derive(Debug)]
pub(super) struct Lz4 {
    pub(super) acceleration: i32,
}

/// The codec of single LZ4 blocks with nothing around them.
#[derive(Debug)]
pub(super) struct Lz4Raw {
    pub(super) acceleration: i32,
}

/// Decodes one LZ4 block of exactly `decoded.len()` bytes.
pub(crate) fn block_into(block: &[u8], decoded: &mut [u8]) -> Result<()> {
    // liblz4 counts in C's `int`, and needs a last token even for an empty block.
    let (Ok(size), Ok(_)) = (i32::try_from(decoded.len()), i32::try_from(block.len())) else {
        return Err(corrupt(format!("an LZ4 block of {} bytes is larger than the format allows", block.len())));
    };
    let count = decompress_to_buffer(block, Some(size), decoded).map_err(|_| {
        let (at, what) = damage(block, decoded.len());
        corrupt(format!("block of {} bytes: byte {at}: {what}", block.len()))
    })?;
    expect_size(count, decoded.len())
}

/// Finds where and how a block that liblz4 refused is damaged. liblz4 says neither.
fn damage(block: &[u8], size: usize) -> (usize, &'static str) {
    const CUT_OFF: &str = "the stream is cut off";
    const TOO_LONG: &str = "the stream decodes to more than its place";
    let (mut at, mut decoded) = (0, 0);
    loop {
        let begin = at;
        let Some(&token) = block.get(at) else { return (at, CUT_OFF) };
        at += 1;
        let literals = length(block, &mut at, token >> 4).filter(|&literals| literals <= block.len() - at);
        let Some(literals) = literals else { return (begin, CUT_OFF) };
        (at, decoded) = (at + literals, decoded + literals);
        match () {
            () if decoded > size => return (begin, TOO_LONG),
            () if at == block.len() && decoded < size => return (at, "the stream decodes to less than its place"),
            () if at == block.len() => return (begin, "the last match is too near to the end"),
            () if decoded == size => return (at, "bytes follow the end of the stream"),
            () => {}
        }
        let Some(offset) = block[at..].first_chunk::<2>() else { return (begin, CUT_OFF) };
        let offset = usize::from(u16::from_le_bytes(*offset));
        if offset == 0 || offset > decoded {
            return (at, "a match begins before the stream's first byte");
        }
        at += 2;
        let Some(repeated) = length(block, &mut at, token & 15) else { return (begin, CUT_OFF) };
        decoded += repeated + 4;
        if decoded > size {
            return (begin, TOO_LONG);
        }
    }
}

/// Reads a length whose lowest part is four bits of a token, and moves `at` past its further bytes. `None` if the block
/// ends first.
fn length(block: &[u8], at: &mut usize, first: u8) -> Option<usize> {
    let mut length = usize::from(first);
    let mut more = first == 15;
    while more {
        let byte = *block.get(*at)?;
        (*at, length, more) = (*at + 1, length + usize::from(byte), byte == 255);
    }
    Some(length)
}

/// Encodes one LZ4 block into `encoded`, and returns its size; `None` if it does not fit.
pub(crate) fn block_encode(decoded: &[u8], mode: CompressionMode, encoded: &mut [u8]) -> Option<usize> {
    compress_to_buffer(decoded, Some(mode), false, encoded).ok()
}

/// Splits a frame into the decoded size, which its header states, and its LZ4 block. The caller compares the size with
/// metadata.
fn split(encoded: &[u8]) -> Result<(usize, &[u8])> {
    match encoded.split_first_chunk::<HEADER_BYTES>() {
        Some((header, block)) => Ok((u32::from_le_bytes(*header) as usize, block)),
        None => Err(corrupt(format!("got {} encoded bytes, expected a header of {HEADER_BYTES}", encoded.len()))),
    }
}

impl BytesToBytes for Lz4 {
    fn name(&self) -> &str {
        "numcodecs.lz4"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&cuda::SIZED)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(Lz4Encoder::new(decoded_bytes, HEADER_BYTES)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let (size, block) = split(encoded)?;
        if size != decoded.len() {
            return Err(corrupt(format!("byte 0: the header says {size} bytes, expected {}", decoded.len())));
        }
        block_into(block, decoded)
    }

    fn decode(&self, encoded: &[u8], limit_bytes: u64) -> Result<Vec<u8>> {
        let (size, block) = split(encoded)?;
        // An encoded byte decodes to at most 255 bytes. So a larger size is false, whatever the limit is.
        if size / 255 > block.len() {
            return Err(corrupt(format!("byte 0: the header says {size} bytes, for {} encoded ones", block.len())));
        }
        if size as u64 > limit_bytes {
            return Err(above_limit(size, limit_bytes));
        }
        let mut decoded = vec![0; size];
        block_into(block, &mut decoded)?;
        Ok(decoded)
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        encode_behind(&(decoded.len() as u32).to_le_bytes(), &decoded, self.acceleration)
    }
}

/// Encodes `decoded` to an LZ4 block, and returns `header` followed by the block.
fn encode_behind(header: &[u8], decoded: &[u8], acceleration: i32) -> Result<Vec<u8>> {
    let bound =
        compress_bound(decoded.len()).map_err(|_| unencodable(format!("{} bytes are too many", decoded.len())))?;
    let mut encoded = vec![0; header.len() + bound];
    encoded[..header.len()].copy_from_slice(header);
    let size = block_encode(decoded, CompressionMode::FAST(acceleration), &mut encoded[header.len()..])
        .ok_or_else(|| unencodable("liblz4 failed"))?;
    encoded.truncate(header.len() + size);
    Ok(encoded)
}

impl BytesToBytes for Lz4Raw {
    fn name(&self) -> &str {
        "lz4_raw"
    }

    fn encoded_size(&self, decoded: Size) -> Size {
        decoded.compressed()
    }

    fn device_decoder(&self) -> Option<&'static dyn DeviceDecoder> {
        Some(&cuda::RAW)
    }

    fn device_encoder(&self, decoded_bytes: usize) -> Option<Arc<dyn DeviceEncoder>> {
        Some(Arc::new(Lz4Encoder::new(decoded_bytes, 0)?))
    }

    fn decode_into(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        block_into(encoded, decoded)
    }

    fn decode(&self, _: &[u8], _: u64) -> Result<Vec<u8>> {
        Err(corrupt("an LZ4 block does not say what size it decodes to, and nothing else does"))
    }

    fn encode(&self, decoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        encode_behind(&[], &decoded, self.acceleration)
    }
}
