//! What the host makes of frames, by the reference library of each format.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::device::DeviceDecoder;
use cuzarr::internal::codec::{Chain, Program, device_decoder};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr_device::Device;
use serde_json::{Value, json};

/// What frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Lz4,
    Lz4Raw,
    Blosc,
    Zstd,
    Gzip,
    Zlib,
    Deflate,
}

impl Format {
    /// The name of the codec.
    pub fn name(self) -> &'static str {
        match self {
            Format::Lz4 => "lz4",
            Format::Lz4Raw => "lz4_raw",
            Format::Blosc => "blosc",
            Format::Zstd => "zstd",
            Format::Gzip => "gzip",
            Format::Zlib => "zlib",
            Format::Deflate => "deflate",
        }
    }

    /// The kernels that decode it.
    pub fn decoder(self) -> &'static dyn DeviceDecoder {
        device_decoder(self.name()).unwrap()
    }
}

thread_local! {
    static PROGRAMS: RefCell<HashMap<(usize, usize), Program>> = RefCell::default();
    static ZSTD: RefCell<zstd::bulk::Decompressor<'static>> = RefCell::default();
    static DEFLATE: RefCell<libdeflater::Decompressor> = RefCell::default();
}

/// The host's program for chunks of `size` bytes, of the codec that a v3 document describes.
pub fn program(codec: &Value, size: usize) -> cuzarr::Result<Program> {
    let codecs = [Extension::new("bytes", Default::default()), Extension::from_json(codec, "codecs")?];
    let fill_value = FillValue::default_of(&DataType::UInt8);
    Chain::from_codecs(&codecs, ChunkSpec::new(vec![size as u64], DataType::UInt8, fill_value))?.bind(Device::Cpu)
}

/// A codec that decodes frames of the format.
pub fn codec(format: Format) -> Value {
    match format {
        Format::Lz4 => json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
        Format::Lz4Raw => json!({"name": "lz4_raw"}),
        Format::Gzip => json!({"name": "gzip", "configuration": {"level": 5}}),
        Format::Zlib => json!({"name": "numcodecs.zlib", "configuration": {"level": 5}}),
        Format::Deflate => json!({"name": "deflate"}),
        Format::Zstd => json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}}),
        _ => json!({"name": "blosc", "configuration":
            {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}}),
    }
}

/// What liblz4, libzstd, libdeflate and zlib-rs, and for Blosc the container's reader with them, decode a frame to.
pub fn decode(format: Format, encoded: &[u8], decoded_bytes: usize) -> cuzarr::Result<Vec<u8>> {
    let mut decoded = vec![0; decoded_bytes];
    PROGRAMS.with_borrow_mut(|programs| {
        // A few: frames that are damaged again and again have few sizes.
        let key = (format as usize, decoded_bytes);
        if programs.len() > 4000 {
            programs.clear();
        }
        let program = match programs.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(program(&codec(format), decoded_bytes)?),
        };
        program.decode(encoded, &mut decoded)
    })?;
    Ok(decoded)
}

/// Whether gzip members of `decoded_bytes` in all, and zeros behind them, are all that there is: libdeflate, which the host
/// asks first, ignores what follows the first member.
pub fn is_gzip_throughout(encoded: &[u8], decoded_bytes: usize) -> bool {
    let (mut rest, mut total) = (encoded, 0);
    loop {
        let mut member = flate2::bufread::GzDecoder::new(rest);
        match std::io::copy(&mut member, &mut std::io::sink()) {
            Ok(size) => total += size,
            Err(_) => return false,
        }
        let behind = member.into_inner();
        let zeros = behind.iter().take_while(|&&byte| byte == 0).count();
        rest = &behind[zeros..];
        if rest.is_empty() {
            return total == decoded_bytes as u64;
        }
    }
}

/// Literals of a block's last sequence, as its tokens say it; none when they lead out of the block.
fn lz4_last_literals(block: &[u8]) -> Option<usize> {
    let length = |nibble: u8, at: &mut usize| {
        let mut length = usize::from(nibble);
        let mut byte = if nibble == 15 { 255 } else { 0 };
        while byte == 255 {
            byte = *block.get(*at)?;
            length += usize::from(byte);
            *at += 1;
        }
        Some(length)
    };
    let mut at = 0;
    loop {
        let token = *block.get(at)?;
        at += 1;
        let literals = length(token >> 4, &mut at)?;
        at += literals;
        if at >= block.len() {
            return (at == block.len()).then_some(literals);
        }
        at += 2;
        length(token & 15, &mut at)?;
    }
}

/// Whether not all of the last five bytes of an LZ4 block are literals, as its format wants them. liblz4 asks for that too, but not
/// where it copies a short sequence in one go.
pub fn ends_in_a_match(format: Format, encoded: &[u8]) -> bool {
    let block = match format {
        Format::Lz4 => encoded.get(4..).unwrap_or_default(),
        Format::Lz4Raw => encoded,
        _ => return false,
    };
    lz4_last_literals(block).is_some_and(|literals| literals < 5)
}

/// Bytes before and behind a deflate stream, at least.
fn around(format: Format) -> (usize, usize) {
    match format {
        Format::Gzip => (10, 8),
        Format::Zlib => (2, 4),
        _ => (0, 0),
    }
}

/// How many bytes a frame holds, when they are no more than `most`: what metadata would have to say for it to be taken.
pub fn decoded_bytes(format: Format, encoded: &[u8], most: usize) -> Option<usize> {
    let mut place = vec![0; most];
    match format {
        Format::Lz4 | Format::Lz4Raw => {
            let block = if format == Format::Lz4 { encoded.get(4..)? } else { encoded };
            lz4::block::decompress_to_buffer(block, Some(most as i32), &mut place).ok()
        }
        Format::Zstd => ZSTD.with_borrow_mut(|zstd| zstd.decompress_to_buffer(encoded, &mut place).ok()),
        Format::Gzip | Format::Zlib | Format::Deflate => {
            let (header, trailer) = around(format);
            let stream = encoded.get(header..encoded.len().checked_sub(trailer)?)?;
            DEFLATE.with_borrow_mut(|deflate| deflate.deflate_decompress(stream, &mut place).ok())
        }
        _ => {
            let size = u32::from_le_bytes(*encoded.get(4..)?.first_chunk()?) as usize;
            (size <= most).then_some(size)
        }
    }
}

/// Writes what a frame says of its content anew, so that damage is not refused for a wrong size or checksum alone.
pub fn mend(format: Format, encoded: &mut [u8], decoded_bytes: usize) {
    let size = (decoded_bytes as u32).to_le_bytes();
    match format {
        Format::Lz4 if encoded.len() >= 4 => encoded[..4].copy_from_slice(&size),
        Format::Gzip | Format::Zlib => {
            let (header, trailer) = around(format);
            let Some(end) = encoded.len().checked_sub(trailer).filter(|&end| end >= header) else { return };
            let mut plain = vec![0; decoded_bytes];
            let inflate = |stream: &[u8], plain: &mut [u8]| {
                DEFLATE.with_borrow_mut(|deflate| deflate.deflate_decompress(stream, plain))
            };
            if inflate(&encoded[header..end], &mut plain) != Ok(decoded_bytes) {
                return;
            }
            match format {
                Format::Gzip => {
                    encoded[end..end + 4].copy_from_slice(&crc32fast::hash(&plain).to_le_bytes());
                    encoded[end + 4..].copy_from_slice(&size);
                }
                _ => encoded[end..].copy_from_slice(&simd_adler32::adler32(&plain.as_slice()).to_be_bytes()),
            }
        }
        _ => {}
    }
}
