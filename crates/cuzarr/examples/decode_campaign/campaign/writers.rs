//! Frames as the formats' own libraries write them, with all their levels and parameters.

use std::io::Write;

use super::Format;
use super::levels::by_levels;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use libdeflater::{CompressionLvl, Compressor};
use lz4::block::CompressionMode;
use serde_json::json;
use zstd::zstd_safe::{CParameter, Strategy};

use super::random::Random;
use super::reference;

/// A frame, and who wrote it.
pub struct Written {
    pub encoded: Vec<u8>,
    pub writer: &'static str,
    /// With which level and parameters.
    pub how: String,
}

/// Writes `plain` with parameters at random.
pub fn write(format: Format, plain: &[u8], random: &mut Random) -> Written {
    match format {
        Format::Lz4 => lz4(plain, random),
        Format::Lz4Raw => {
            let mut written = lz4(plain, random);
            written.encoded.drain(..4);
            written
        }
        Format::Zstd => zstd(plain, random),
        Format::Gzip | Format::Zlib | Format::Deflate => deflate(format, plain, random),
        _ => blosc(plain, random),
    }
}

fn lz4(plain: &[u8], random: &mut Random) -> Written {
    let (writer, mode) = match random.below(5) {
        0 => ("liblz4 fast", CompressionMode::FAST(1 + random.below(64) as i32)),
        1 | 2 => ("liblz4 hc", CompressionMode::HIGHCOMPRESSION(1 + random.below(12) as i32)),
        _ => ("liblz4", CompressionMode::DEFAULT),
    };
    let block = lz4::block::compress(plain, Some(mode), false).expect("liblz4 takes every block");
    let encoded = [&(plain.len() as u32).to_le_bytes()[..], &block].concat();
    Written { encoded, writer, how: format!("{mode:?}") }
}

/// From -7 to 22; the slow ones less often for what is large.
fn zstd_level(size: usize, random: &mut Random) -> i32 {
    let level = random.below(30) as i32 - 7;
    if level > 12 && size > 256 << 10 && !random.one_in(12) { random.below(13) as i32 } else { level }
}

fn zstd(plain: &[u8], random: &mut Random) -> Written {
    if random.one_in(10) && plain.len() > 1 {
        // One chunk of several frames, some of them to be skipped.
        let at = random.below(plain.len());
        let (first, second) = (zstd_frame(&plain[..at], random), zstd_frame(&plain[at..], random));
        let mut encoded = first.encoded;
        if random.one_in(2) {
            let size = random.below(40);
            encoded.extend((0x184d_2a50 + size as u32 % 16).to_le_bytes());
            encoded.extend((size as u32).to_le_bytes());
            encoded.resize(encoded.len() + size, 7);
        }
        encoded.extend(second.encoded);
        return Written {
            encoded,
            writer: "libzstd, several frames",
            how: format!("{} and {}", first.how, second.how),
        };
    }
    zstd_frame(plain, random)
}

fn zstd_frame(plain: &[u8], random: &mut Random) -> Written {
    let level = if random.one_in(20) { -(1 << random.below(17)) } else { zstd_level(plain.len(), random) };
    if random.one_in(5) {
        // Without the content's size; blocks end where the writer flushes.
        let pieces = 1 + random.below(12);
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), level).expect("levels exist");
        encoder.include_checksum(random.one_in(2)).expect("a flag");
        for piece in plain.chunks(plain.len().div_ceil(pieces).max(1)) {
            encoder.write_all(piece).and_then(|()| encoder.flush()).expect("memory takes every byte");
        }
        let encoded = encoder.finish().expect("memory takes every byte");
        return Written { encoded, writer: "libzstd, streamed", how: format!("level {level}, {pieces} pieces") };
    }
    let checksum = random.one_in(3);
    let mut parameters = vec![CParameter::CompressionLevel(level), CParameter::ChecksumFlag(checksum)];
    if random.one_in(3) {
        // Levels use the other ones.
        const STRATEGIES: [Strategy; 4] =
            [Strategy::ZSTD_fast, Strategy::ZSTD_lazy2, Strategy::ZSTD_btlazy2, Strategy::ZSTD_btopt];
        parameters.extend([
            CParameter::ContentSizeFlag(random.one_in(2)),
            CParameter::WindowLog(10 + random.below(14) as u32),
            CParameter::MinMatch(3 + random.below(5) as u32),
            CParameter::Strategy(random.pick(&STRATEGIES)),
            CParameter::EnableLongDistanceMatching(random.one_in(3)),
        ]);
    }
    let mut compressor = zstd::bulk::Compressor::new(level).expect("levels exist");
    parameters.iter().for_each(|&parameter| compressor.set_parameter(parameter).expect("parameters exist"));
    let encoded = compressor.compress(plain).expect("libzstd takes every chunk");
    Written { encoded, writer: "libzstd", how: format!("{parameters:?}") }
}

fn deflate(format: Format, plain: &[u8], random: &mut Random) -> Written {
    if format == Format::Gzip && random.one_in(10) && plain.len() > 1 {
        let at = random.below(plain.len());
        let (first, second) = (stream(format, &plain[..at], random), stream(format, &plain[at..], random));
        let encoded = [first.encoded, second.encoded].concat();
        return Written { encoded, writer: "several members", how: format!("{} and {}", first.how, second.how) };
    }
    stream(format, plain, random)
}

fn stream(format: Format, plain: &[u8], random: &mut Random) -> Written {
    if random.one_in(2) {
        let slow = if plain.len() > 1 << 20 && !random.one_in(12) { 9 } else { 13 };
        let level = random.below(slow) as i32;
        let mut compressor = Compressor::new(CompressionLvl::new(level).expect("levels exist"));
        let mut encoded = vec![0; compressor.gzip_compress_bound(plain.len())];
        let size = match format {
            Format::Gzip => compressor.gzip_compress(plain, &mut encoded),
            Format::Deflate => compressor.deflate_compress(plain, &mut encoded),
            _ => compressor.zlib_compress(plain, &mut encoded),
        };
        encoded.truncate(size.expect("there is room"));
        return Written { encoded, writer: "libdeflate", how: format!("level {level}") };
    }
    if random.one_in(4) && !plain.is_empty() {
        let piece = random.log_uniform(1 + plain.len() / 20, plain.len() + 1);
        let parts: Vec<_> = plain.chunks(piece).map(|part| (random.pick(&[0, 1, 1, 1, 6]), part)).collect();
        let how = format!("levels {:?}, {piece} bytes each", parts.iter().map(|part| part.0).collect::<Vec<_>>());
        return Written { encoded: by_levels(format, &parts), writer: "zlib-rs", how };
    }
    fn all<W: Write>(mut to: W, plain: &[u8], piece: usize) -> W {
        for part in plain.chunks(piece) {
            to.write_all(part).and_then(|()| to.flush()).expect("memory takes every byte");
        }
        to
    }
    let level = random.below(10) as u32;
    let piece = if random.one_in(3) { random.log_uniform(1 + plain.len() / 1000, plain.len() + 1) } else { usize::MAX };
    let encoded = match format {
        Format::Gzip => all(GzEncoder::new(Vec::new(), Compression::new(level)), plain, piece).finish(),
        Format::Deflate => all(DeflateEncoder::new(Vec::new(), Compression::new(level)), plain, piece).finish(),
        _ => all(ZlibEncoder::new(Vec::new(), Compression::new(level)), plain, piece).finish(),
    };
    let encoded = encoded.expect("memory takes every byte");
    Written { encoded, writer: "zlib-rs", how: format!("level {level}, flushed every {piece} bytes") }
}

fn blosc(plain: &[u8], random: &mut Random) -> Written {
    const NAMES: [(&str, &str); 5] = [
        ("lz4", "blosc lz4"),
        ("lz4hc", "blosc lz4hc"),
        ("zstd", "blosc zstd"),
        ("zlib", "blosc zlib"),
        ("blosclz", "blosc blosclz"),
    ];
    // Kernels leave blosclz to the host, so there is little to see.
    let (name, writer) = if random.one_in(40) { NAMES[4] } else { NAMES[random.below(4)] };
    let type_bytes = match random.below(8) {
        0 => 1 + random.below(255),
        _ => random.pick(&[1, 2, 3, 4, 8, 12, 16]),
    };
    let block_bytes = if random.one_in(2) { 0 } else { random.log_uniform(1, plain.len().max(1)) };
    let level = random.below(if name == "zstd" && plain.len() > 1 << 20 { 7 } else { 10 });
    let codec = json!({"name": "blosc", "configuration": {"cname": name, "clevel": level, "typesize": type_bytes,
        "shuffle": random.pick(&["noshuffle", "shuffle", "bitshuffle"]), "blocksize": block_bytes}});
    let encoded = reference::program(&codec, plain.len()).and_then(|program| program.encode(plain));
    Written { encoded: encoded.expect("Blosc takes every chunk"), writer, how: codec["configuration"].to_string() }
}
