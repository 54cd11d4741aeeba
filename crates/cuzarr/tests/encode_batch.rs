//! Frames that kernels make: decoded by the host's decoders (liblz4 under our containers), by our kernels, and compared in
//! size with those of liblz4, libzstd and zlib.

mod frames;
mod model;

use std::io::{Read, Write};
use std::sync::Arc;

use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::batch::{EncodeBatch, place_frames};
use cuzarr::internal::codec::device::DeviceEncoder;
use cuzarr::internal::codec::{Chain, Program};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr_device::{Buffer, Device, Stream};
use frames::{Format, Frame, assert_decodes, devices};
use model::Dice;
use serde_json::{Value, json};

fn program(codec: &Value, chunk_bytes: usize) -> Program {
    let codecs = [Extension::new("bytes", Default::default()), Extension::from_json(codec, "codecs").unwrap()];
    let data_type = DataType::from_v3(&Value::from("uint8")).unwrap();
    let spec = ChunkSpec::new(vec![chunk_bytes as u64], data_type.clone(), FillValue::default_of(&data_type));
    Chain::from_codecs(&codecs, spec).unwrap().bind(Device::Cpu).unwrap()
}

fn lz4() -> Value {
    json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})
}

fn zstd(checksum: bool) -> Value {
    json!({"name": "zstd", "configuration": {"level": 3, "checksum": checksum}})
}

fn deflate(format: Format, level: i32) -> Value {
    let name = if format == Format::Zlib { "numcodecs.zlib" } else { format.name() };
    json!({"name": name, "configuration": {"level": level}})
}

const DEFLATE: [Format; 3] = [Format::Gzip, Format::Zlib, Format::Deflate];

fn blosc_of(cname: &str, level: u8, shuffle: &str, type_bytes: usize, block_bytes: usize) -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": cname, "clevel": level, "shuffle": shuffle, "typesize": type_bytes, "blocksize": block_bytes}})
}

fn blosc(shuffle: &str, type_bytes: usize, block_bytes: usize) -> Value {
    blosc_of("lz4", 9, shuffle, type_bytes, block_bytes)
}

/// The frames of chunks, made on `device`.
fn encode(device: Device, encoder: &Arc<dyn DeviceEncoder>, chunks: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let stride = encoder.chunk_bytes().next_multiple_of(256);
    let mut bytes = Vec::new();
    for chunk in chunks {
        let begin = bytes.len();
        bytes.extend_from_slice(chunk);
        bytes.resize(begin + stride, 0xaa);
    }
    let src = Buffer::from_bytes(device, &bytes).unwrap();
    let sizes = chunks.iter().map(Vec::len).collect();
    let mut batch = EncodeBatch::prepare(&**encoder, &src, stride, sizes).unwrap();
    batch.run(&Stream::new(device).unwrap()).unwrap();
    let encoded = batch.finish().unwrap();
    let out = encoded.buffer.to_vec().unwrap();
    assert_eq!(src.to_vec().unwrap(), bytes, "the chunks stay as they are");
    let frames = encoded.frames.into_iter().map(|frame| out[frame.expect("nothing is left out")].to_vec());
    frames.collect()
}

/// Bytes of many kinds: constant, random, few values, runs, text-like repeats at all distances, smooth numbers.
fn plain(kind: usize, size: usize, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 64);
    while bytes.len() < size {
        match kind {
            0 => bytes.push(7),
            1 => bytes.push(dice.below(256) as u8),
            2 => bytes.push(dice.below(3) as u8),
            3 => {
                let (run, byte) = (1 + dice.below(600) as usize, dice.below(256) as u8);
                bytes.resize(bytes.len() + run, byte);
            }
            4 if bytes.len() > 16 && dice.chance(2) => {
                let from = dice.below(bytes.len() as u64 - 4) as usize;
                for at in from..from + 4 + dice.below(70) as usize {
                    bytes.push(bytes[at]);
                }
            }
            4 => (0..1 + dice.below(40)).for_each(|_| bytes.push(dice.below(256) as u8)),
            _ => {
                let value = 280.0 + 20.0 * (bytes.len() as f32 / 900.0).sin() + dice.below(16) as f32 / 100.0;
                bytes.extend_from_slice(&((value * 100.0).round() / 100.0).to_le_bytes());
            }
        }
    }
    bytes.truncate(size);
    bytes
}

const KINDS: usize = 6;

fn check(codec: &Value, size: usize, seed: u64) {
    let program = program(codec, size);
    let encoder = program.device_encoder().unwrap();
    let mut dice = Dice(seed);
    let chunks: Vec<_> = (0..KINDS).map(|kind| plain(kind, size, &mut dice)).collect();
    for device in devices() {
        let frames = encode(device, encoder, &chunks);
        for (kind, (frame, chunk)) in frames.iter().zip(&chunks).enumerate() {
            let context = format!("{device}: {codec}, {size} bytes of kind {kind}");
            assert!(frame.len() <= encoder.frame_bound_bytes(), "{context}: {} bytes", frame.len());
            let mut decoded = vec![0; size];
            program.decode(frame, &mut decoded).unwrap_or_else(|error| panic!("{context}: {error}"));
            let wrong = decoded.iter().zip(chunk).position(|(got, expected)| got != expected);
            assert_eq!(wrong, None, "{context}: first wrong byte");
        }
        assert_eq!(frames, encode(device, encoder, &chunks), "{device}: the same chunks give the same frames");
    }
}

#[test]
fn lz4_frames_of_any_size_and_kind_decode() {
    for size in [1, 2, 4, 5, 11, 12, 13, 16, 17, 63, 300, 1023, 1024, 1025, 1029, 1036, 1037, 2048, 5000, 9001] {
        check(&lz4(), size, size as u64);
    }
}

/// Rows that repeat, over many pieces of an encoder, with a byte changed here and there: `every` bytes on average.
fn rows(row_bytes: usize, every: u64, size: usize, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = plain(3, row_bytes, dice);
    while bytes.len() < size {
        let at = bytes.len() - row_bytes;
        bytes.extend_from_within(at..at + row_bytes);
    }
    bytes.truncate(size);
    // Nowhere so often as where pieces of a KiB meet.
    for _ in 0..size as u64 / every {
        let at = if dice.chance(2) { dice.below(size as u64) } else { dice.below(size as u64 >> 10) << 10 };
        let at = (at + dice.below(5)).saturating_sub(2) as usize;
        bytes[at.min(size - 1)] ^= 1 + dice.below(255) as u8;
    }
    bytes
}

#[test]
fn lz4_matches_go_on_over_pieces() {
    let mut dice = Dice(21);
    for size in [3 << 10, (4 << 10) + 7, 9 << 10, 33 << 10, (40 << 10) - 3] {
        let program = program(&lz4(), size);
        let chunks: Vec<_> = [1, 3, 4, 8, 116, 128, 384, 500, 512]
            .into_iter()
            .flat_map(|row| [(row, 20_000), (row, 900), (row, 120)])
            .map(|(row, every)| rows(row, every, size, &mut dice))
            .collect();
        for device in devices() {
            let frames = encode(device, program.device_encoder().unwrap(), &chunks);
            for (index, (frame, chunk)) in frames.iter().zip(&chunks).enumerate() {
                let mut decoded = vec![0; size];
                let context = format!("{device}: {size} bytes, chunk {index}");
                program.decode(frame, &mut decoded).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(decoded == *chunk, "{context}");
            }
            let frames: Vec<_> = frames.into_iter().map(|encoded| Frame { encoded, decoded_bytes: size }).collect();
            assert_decodes(Format::Lz4, &frames, &chunks);
        }
    }
    // One match, whose length has a byte in 255.
    let (size, chunk) = (100 << 10, vec![7; 100 << 10]);
    let program = program(&lz4(), size);
    for device in devices() {
        let frame = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk)).remove(0);
        assert!(frame.len() < size / 255 + 40, "{device}: {} bytes", frame.len());
    }
}

/// Steps are left out after some without a match. A match at their end must not count as one that the next step goes on with.
#[test]
fn lz4_matches_behind_noise_do_not_reach_over_steps_left_out() {
    let mut dice = Dice(22);
    let size = 4000;
    let program = program(&lz4(), size);
    let chunks: Vec<Vec<u8>> = (4..15)
        .flat_map(|steps| [0, 1, 17].map(|more| 64 * steps + more))
        .map(|noise| {
            let start: Vec<u8> = (0..noise).map(|_| dice.below(256) as u8).collect();
            start.iter().copied().cycle().take(size).collect()
        })
        .collect();
    for device in devices() {
        let frames = encode(device, program.device_encoder().unwrap(), &chunks);
        for (index, (frame, chunk)) in frames.iter().zip(&chunks).enumerate() {
            let mut decoded = vec![0; size];
            program.decode(frame, &mut decoded).unwrap_or_else(|error| panic!("{device}, chunk {index}: {error}"));
            assert!(decoded == *chunk, "{device}, chunk {index}");
        }
    }
}

#[test]
fn zstd_frames_of_any_size_and_kind_decode() {
    for size in [1, 3, 4, 5, 8, 17, 20, 63, 255, 256, 257, 1023, 5000, 9001, 16_400] {
        check(&zstd(size % 2 == 0), size, size as u64);
    }
}

#[test]
fn levels_of_zstd_that_ask_for_small_frames_are_left_to_the_host() {
    for (level, host) in [(-5, false), (0, false), (9, false), (10, true), (22, true)] {
        let program = program(&json!({"name": "zstd", "configuration": {"level": level, "checksum": false}}), 4096);
        for device in devices() {
            let reason = program.device_encoder().unwrap().host_reason(device);
            assert_eq!(reason.is_some(), host, "{device}: level {level}: {reason:?}");
        }
    }
}

#[test]
fn zstd_frames_of_several_blocks_decode() {
    for (size, checksum) in [(32_768, true), (65_537, false)] {
        check(&zstd(checksum), size, size as u64);
    }
}

#[test]
fn deflate_frames_of_any_size_and_kind_decode() {
    for size in [1, 2, 3, 4, 5, 17, 63, 127, 128, 129, 255, 1023, 5000, 9001, 16_400] {
        check(&deflate(DEFLATE[size % 3], 1 + (size % 9) as i32), size, size as u64);
    }
}

#[test]
fn deflate_frames_of_several_blocks_decode() {
    for (format, size) in [(Format::Gzip, 32_768), (Format::Zlib, 65_537), (Format::Deflate, 32_769)] {
        check(&deflate(format, 5), size, size as u64);
    }
}

/// What zlib-rs decodes a frame to, where libdeflate is the host's decoder.
fn by_zlib(format: Format, frame: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let result = match format {
        Format::Gzip => flate2::read::GzDecoder::new(frame).read_to_end(&mut decoded),
        Format::Zlib => flate2::read::ZlibDecoder::new(frame).read_to_end(&mut decoded),
        _ => flate2::read::DeflateDecoder::new(frame).read_to_end(&mut decoded),
    };
    result.unwrap_or_else(|error| panic!("{format:?}: {error}"));
    decoded
}

#[test]
fn stored_blocks_of_deflate_lie_between_others_at_any_bit() {
    let (mut dice, block) = (Dice(11), 32 << 10);
    // Kinds of blocks of 32 KiB: 1 is stored, for it is noise.
    let rows = [vec![1, 5, 1, 1, 2], vec![4, 1, 3, 1], vec![0, 0, 1, 0], vec![1; 4], (0..35).map(|i| i % 3).collect()];
    for (row, kinds) in rows.iter().enumerate() {
        let mut chunk: Vec<u8> = kinds.iter().flat_map(|&kind| plain(kind, block, &mut dice)).collect();
        chunk.truncate(chunk.len() - 100 * row);
        let chunks = [chunk];
        let format = DEFLATE[row % 3];
        let program = program(&deflate(format, 5), chunks[0].len());
        for device in devices() {
            let encoded = encode(device, program.device_encoder().unwrap(), &chunks).remove(0);
            assert!(by_zlib(format, &encoded) == chunks[0], "{device}: {format:?}, row {row}");
            let frame = Frame { encoded, decoded_bytes: chunks[0].len() };
            assert_decodes(format, &[frame], &chunks);
        }
    }
}

#[test]
fn levels_of_deflate_that_store_or_try_everything_are_left_to_the_host() {
    for (format, level, host) in [
        (Format::Gzip, 0, true),
        (Format::Gzip, 1, false),
        (Format::Gzip, -1, false),
        (Format::Zlib, 9, false),
        (Format::Deflate, 10, true),
    ] {
        let program = program(&deflate(format, level), 4096);
        for device in devices() {
            let reason = program.device_encoder().unwrap().host_reason(device);
            assert_eq!(reason.is_some(), host, "{device}: {format:?} {level}: {reason:?}");
        }
    }
    for (size, is_left) in [(0, true), (1 << 28, false), ((1 << 28) + 1, true)] {
        assert_eq!(program(&deflate(Format::Gzip, 5), size).device_encoder().is_err(), is_left, "{size}");
    }
}

#[test]
fn deflate_headers_are_those_of_the_host() {
    let chunk = plain(5, 3000, &mut Dice(1));
    for (format, bytes) in [(Format::Gzip, 10), (Format::Zlib, 2)] {
        for level in 1..=9 {
            let program = program(&deflate(format, level), chunk.len());
            let host = program.encode(&chunk).unwrap();
            for device in devices() {
                let frame = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk)).remove(0);
                assert_eq!(frame[..bytes], host[..bytes], "{device}: {format:?} {level}");
                let trailer = if format == Format::Gzip { 8 } else { 4 };
                assert_eq!(frame[frame.len() - trailer..], host[host.len() - trailer..], "{device}: {format:?}");
            }
        }
    }
}

#[test]
fn deflate_frames_are_about_as_small_as_those_of_zlib() {
    let size = 64 << 10;
    let program = program(&deflate(Format::Gzip, 5), size);
    for (kind, most) in [(0, 3.0), (1, 1.01), (2, 1.2), (3, 1.35), (4, 1.15), (5, 1.08)] {
        let chunk = plain(kind, size, &mut Dice(kind as u64));
        let mut zlib = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(5));
        zlib.write_all(&chunk).unwrap();
        let reference = zlib.finish().unwrap().len();
        for device in devices() {
            let got = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk))[0].len();
            println!("{device}: kind {kind}: {got}, zlib {reference}");
            assert!(got as f64 <= most * reference as f64, "{device}: kind {kind}: {got}, zlib {reference}");
        }
    }
}

#[test]
fn blosc_frames_of_any_size_kind_and_shuffle_decode() {
    for (index, shuffle) in ["noshuffle", "shuffle", "bitshuffle"].into_iter().enumerate() {
        for (size, type_bytes, block_bytes) in [
            (1, 1, 0),
            (3, 4, 0),
            (15, 4, 0),
            (64, 8, 0),
            (127, 2, 128),
            (1000, 4, 512),
            (4096, 4, 1024),
            (4100, 4, 1024),
            (5003, 2, 2048),
            (6001, 3, 1500),
            (7000, 8, 3000),
            (8192, 16, 4096),
        ] {
            check(&blosc(shuffle, type_bytes, block_bytes), size, (index * 100_000 + size) as u64);
        }
    }
}

#[test]
fn blosc_frames_of_zstd_and_zlib_decode() {
    for (index, shuffle) in ["noshuffle", "shuffle", "bitshuffle"].into_iter().enumerate() {
        for (size, type_bytes, block_bytes) in [(3, 4, 0), (1000, 4, 512), (4100, 4, 1024), (6001, 3, 1500)] {
            for (cname, level) in [("zstd", 5), ("zlib", 1 + 4 * index as u8)] {
                let codec = blosc_of(cname, level, shuffle, type_bytes, block_bytes);
                check(&codec, size, (index * 100_000 + size) as u64);
            }
        }
    }
}

#[test]
fn blosc_streams_that_kernels_do_not_make_are_left_to_the_host() {
    let cases = [("lz4", 0, false), ("lz4", 9, true), ("lz4hc", 5, false), ("blosclz", 5, false)];
    let cases = cases.into_iter().chain([("zstd", 5, true), ("zstd", 6, false), ("zlib", 9, true)]);
    for (cname, level, is_made) in cases {
        let program = program(&blosc_of(cname, level, "shuffle", 4, 0), 4096);
        for device in devices() {
            let got = program.device_encoder().is_ok_and(|encoder| encoder.host_reason(device).is_none());
            assert_eq!(got, is_made, "{device}: {cname} {level}");
        }
    }
}

#[test]
fn frames_decode_by_kernels() {
    let mut dice = Dice(3);
    let chunks: Vec<_> = (0..KINDS).map(|kind| plain(kind, 6000, &mut dice)).collect();
    let mut codecs = vec![
        (Format::Lz4, lz4()),
        (Format::Blosc, blosc("shuffle", 4, 2048)),
        (Format::Blosc, blosc_of("zstd", 5, "bitshuffle", 4, 2048)),
        (Format::Blosc, blosc_of("zlib", 5, "shuffle", 4, 2048)),
        (Format::Zstd, zstd(true)),
    ];
    codecs.extend(DEFLATE.map(|format| (format, deflate(format, 6))));
    for (format, codec) in codecs {
        for device in devices() {
            let frames = encode(device, program(&codec, 6000).device_encoder().unwrap(), &chunks);
            let frames: Vec<_> = frames.into_iter().map(|encoded| Frame { encoded, decoded_bytes: 6000 }).collect();
            assert_decodes(format, &frames, &chunks);
        }
    }
}

#[test]
fn frames_are_about_as_small_as_those_of_liblz4() {
    let size = 16 << 10;
    for (codec, most) in [(lz4(), 1.25), (blosc("shuffle", 4, 8 << 10), 1.25)] {
        let program = program(&codec, size);
        for kind in [2, 3, 5] {
            let chunk = plain(kind, size, &mut Dice(kind as u64));
            let reference = program.encode(&chunk).unwrap().len();
            for device in devices() {
                let got = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk))[0].len();
                // Pieces of 1 KiB in `simt` find less than those of 64 KiB on a GPU, but never this much less.
                println!("{device}: {codec} kind {kind}: {got}, liblz4 {reference}");
                assert!((got as f64) < most * reference as f64, "{device}: kind {kind}: {got}, liblz4 {reference}");
            }
        }
    }
}

#[test]
fn zstd_frames_of_large_chunks_decode_by_kernels() {
    let (mut dice, size) = (Dice(5), 150_001);
    let chunks: Vec<_> = [1, 4, 5].map(|kind| plain(kind, size, &mut dice)).to_vec();
    for device in devices() {
        let frames = encode(device, program(&zstd(false), size).device_encoder().unwrap(), &chunks);
        let frames: Vec<_> = frames.into_iter().map(|encoded| Frame { encoded, decoded_bytes: size }).collect();
        assert_decodes(Format::Zstd, &frames, &chunks);
    }
}

#[test]
fn zstd_frames_are_about_as_small_as_those_of_libzstd() {
    let size = 64 << 10;
    let program = program(&zstd(false), size);
    for (kind, most) in [(0, 1.0), (1, 1.01), (2, 1.1), (3, 1.8), (4, 1.15), (5, 1.05)] {
        let chunk = plain(kind, size, &mut Dice(kind as u64));
        let reference = program.encode(&chunk).unwrap().len();
        for device in devices() {
            let got = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk))[0].len();
            println!("{device}: kind {kind}: {got}, libzstd {reference}");
            assert!(got as f64 <= most * reference as f64, "{device}: kind {kind}: {got}, libzstd {reference}");
        }
    }
}

/// Planes of shuffled numbers: four bytes that repeat by accident cost more as a match than as literals of few bits.
#[test]
fn bytes_of_few_bits_become_literals_alone() {
    let size = 4 * 32768;
    let mut dice = Dice(77);
    let chunk: Vec<u8> = (0..size).map(|_| (0..4).map(|_| dice.below(12) as u8).sum()).collect();
    let mut counts = [0_u32; 256];
    chunk.iter().for_each(|byte| counts[*byte as usize] += 1);
    let bits = |count: u32| -f64::from(count) * (f64::from(count) / size as f64).log2();
    let least = counts.into_iter().filter(|count| *count > 0).map(bits).sum::<f64>() / 8.0;
    let program = program(&zstd(false), size);
    for device in devices() {
        let frames = encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk));
        let got = frames[0].len();
        assert!(got as f64 <= 1.012 * least, "{device}: {got} bytes of at least {least:.0}");
        let mut decoded = vec![0; size];
        program.decode(&frames[0], &mut decoded).unwrap();
        assert!(decoded == chunk, "{device}");
    }
}

#[test]
fn rows_that_repeat_are_found_as_a_whole() {
    // Labels 29 elements wide in rows of 2000: neither is a multiple of a step of the match finder.
    let (mut dice, size) = (Dice(29), 96 << 10);
    let row: Vec<u8> = (0..2000_usize.div_ceil(29))
        .flat_map(|_| [dice.below(1 << 20) as u32; 29])
        .take(2000)
        .flat_map(u32::to_le_bytes)
        .collect();
    let mut chunk: Vec<u8> = row.iter().copied().cycle().take(size).collect();
    // One that is unlike the others, and a place where the repetition is off by a byte.
    chunk[40_001] ^= 1;
    chunk.remove(60_000);
    chunk.push(0);
    for (codec, most) in [(zstd(false), 1.2), (deflate(Format::Gzip, 5), 0.6)] {
        let program = program(&codec, size);
        let reference = program.encode(&chunk).unwrap().len();
        for device in devices() {
            let frame = &encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk))[0];
            let mut decoded = vec![0; size];
            program.decode(frame, &mut decoded).unwrap();
            assert!(decoded == chunk, "{device}: other bytes");
            println!("{device}: {}, the host {reference}", frame.len());
            assert!(frame.len() as f64 <= most * reference as f64, "{device}: {}, the host {reference}", frame.len());
        }
    }
}

#[test]
fn lz4_rows_that_repeat_become_one_match() {
    // Rows as above, but short ones, which the small pieces of `simt` reach back to.
    let (mut dice, size) = (Dice(31), 64 << 10);
    let labels: Vec<u32> = (0..4).flat_map(|_| [dice.below(1 << 20) as u32; 29]).take(100).collect();
    let row: Vec<u8> = labels.into_iter().flat_map(u32::to_le_bytes).collect();
    let chunk: Vec<u8> = row.iter().copied().cycle().take(size).collect();
    let program = program(&lz4(), size);
    for device in devices() {
        let frame = &encode(device, program.device_encoder().unwrap(), std::slice::from_ref(&chunk))[0];
        let mut decoded = vec![0; size];
        program.decode(frame, &mut decoded).unwrap();
        assert!(decoded == chunk, "{device}: other bytes");
        // A byte of length for 255 bytes of one match, and what the first step of all threads together finds little in.
        let first_step = if device == Device::Simt { 100 } else { 512 };
        assert!(frame.len() <= size / 255 + first_step, "{device}: {}", frame.len());
    }
}

#[test]
fn zstd_chunks_that_the_host_has_to_encode_are_left_to_it() {
    for (size, checksum, is_left) in [(0, false, true), (1 << 30, false, false), ((1 << 30) + 1, false, true)] {
        assert_eq!(program(&zstd(checksum), size).device_encoder().is_err(), is_left, "{size}");
    }
    assert!(program(&zstd(true), 4 << 20).device_encoder().is_ok());
    assert!(program(&zstd(true), (4 << 20) + 1).device_encoder().is_err(), "one warp would hash it");
}

#[test]
fn chunks_of_many_sizes_become_the_frames_that_each_becomes_alone() {
    let mut dice = Dice(88);
    let largest = 33_001;
    let deflate = DEFLATE.map(|format| deflate(format, 5));
    for codec in [lz4(), zstd(true)].iter().chain(&deflate) {
        let of_largest = program(codec, largest);
        let encoder = of_largest.device_encoder().unwrap();
        let sizes = [1, 256, 1024, 1025, 32_768, 32_769, largest];
        let more = (0..3).map(|_| 1 + dice.below(largest as u64) as usize).collect::<Vec<_>>();
        let sizes = sizes.into_iter().chain(more).rev();
        let chunks: Vec<_> = sizes.enumerate().map(|(index, size)| plain(index % KINDS, size, &mut dice)).collect();
        for device in devices() {
            let frames = encode(device, encoder, &chunks);
            for (frame, chunk) in frames.iter().zip(&chunks) {
                let context = format!("{device}: {codec}, {} bytes", chunk.len());
                let own = program(codec, chunk.len());
                let mut decoded = vec![0; chunk.len()];
                own.decode(frame, &mut decoded).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(decoded == *chunk, "{context}: other bytes");
                let alone = encode(device, own.device_encoder().unwrap(), std::slice::from_ref(chunk));
                assert!(*frame == alone[0], "{context}: {} bytes, alone {}", frame.len(), alone[0].len());
            }
        }
    }
}

#[test]
fn sizes_that_an_encoder_does_not_take_are_refused() {
    for (codec, sizes, is_taken) in [
        (lz4(), vec![100, 1, 99], true),
        (lz4(), vec![100, 0], false),
        (lz4(), vec![101, 100], false),
        (blosc("noshuffle", 1, 0), vec![100, 100], true),
        (blosc("noshuffle", 1, 0), vec![100, 99], false),
    ] {
        let program = program(&codec, 100);
        for device in devices() {
            let src = Buffer::zeroed(device, 1024).unwrap();
            let outcome = EncodeBatch::prepare(&**program.device_encoder().unwrap(), &src, 256, sizes.clone());
            assert_eq!(
                outcome.err().map(|error| error.kind()),
                (!is_taken).then_some(cuzarr::ErrorKind::InvalidArgument)
            );
        }
    }
}

#[test]
fn chunks_outside_their_buffer_are_refused() {
    let program_of_100 = program(&lz4(), 100);
    let encoder = program_of_100.device_encoder().unwrap();
    assert!(program(&lz4(), 0).device_encoder().is_err(), "nothing is the host's to encode");
    for device in devices() {
        let src = Buffer::zeroed(device, 612).unwrap();
        assert!(EncodeBatch::prepare(&**encoder, &src, 256, vec![100; 3]).is_ok());
        for (stride, count) in [(256, 4), (96, 3), (260, 2), (usize::MAX - 15, 3)] {
            let error = EncodeBatch::prepare(&**encoder, &src, stride, vec![100; count]).unwrap_err();
            assert_eq!(error.kind(), cuzarr::ErrorKind::InvalidArgument, "{stride} {count}");
        }
        let skewed = EncodeBatch::prepare(&**encoder, &src.slice(4..).unwrap(), 256, vec![100]).unwrap_err();
        assert!(skewed.message().contains("multiple of 16"), "{skewed}");
        let none = EncodeBatch::prepare(&**encoder, &src, 256, Vec::new()).unwrap();
        assert!(none.finish().unwrap().frames.is_empty());
    }
}

#[test]
fn entries_that_kernels_cannot_write_are_refused() {
    for device in devices() {
        let (entries, stream) = (Buffer::zeroed(device, 64).unwrap(), Stream::new(device).unwrap());
        assert!(place_frames(&entries, &stream).is_ok());
        for entries in [entries.slice(4..36).unwrap(), entries.into_read_only()] {
            assert_eq!(place_frames(&entries, &stream).unwrap_err().kind(), cuzarr::ErrorKind::InvalidArgument);
        }
    }
}
