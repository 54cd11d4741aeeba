//! Tests that gathered headers give the same tables as whole frames, for each decoder whose headers are gathered.

use cuzarr_device::{Buffer, Device};
use serde_json::json;

use super::cuda::{Found, most_pieces, read_within};
use crate::codec::device::{Headers, Request, Unit};
use crate::codec::registry::device_decoder;
use crate::codec::{Chain, ChunkSpec, blosc, zstd};
use crate::meta::{DataType, Extension, FillValue};

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

/// Returns 16-bit numbers that grow in random steps, of which codecs compress some parts and store others.
fn plain(size: usize, random: &mut Dice) -> Vec<u8> {
    let noise = 1 + random.below(200);
    let mut at = 0u16;
    let mut next = || {
        at = at.wrapping_add(random.below(noise) as u16);
        at.to_le_bytes()
    };
    (0..size.div_ceil(2)).flat_map(|_| next()).take(size).collect()
}

fn frame(codec: &serde_json::Value, plain: &[u8]) -> Vec<u8> {
    let codecs = [Extension::new("bytes", Default::default()), Extension::from_json(codec, "codecs").unwrap()];
    let data_type = DataType::from_v3(&json!("uint8")).unwrap();
    let fill_value = FillValue::default_of(&data_type);
    let spec = ChunkSpec::new(vec![plain.len() as u64], data_type, fill_value);
    Chain::from_extensions(&codecs, spec).unwrap().bind(Device::Cpu).unwrap().encode(plain).unwrap()
}

fn codec_of(name: &str, random: &mut Dice) -> serde_json::Value {
    if name == "zstd" {
        let level = 1 + random.below(15);
        return json!({"name": "zstd", "configuration": {"level": level, "checksum": random.below(2) == 0}});
    }
    let cname = ["lz4", "zstd", "zlib", "blosclz"][random.below(4)];
    let shuffle = ["noshuffle", "shuffle", "bitshuffle"][random.below(3)];
    let (type_bytes, block_bytes) = ([1, 2, 4, 8, 16, 32][random.below(6)], [0, 0, 1 << 10, 8 << 10][random.below(4)]);
    json!({"name": "blosc", "configuration": {"cname": cname, "clevel": 1 + random.below(9), "shuffle": shuffle,
        "typesize": type_bytes, "blocksize": block_bytes}})
}

fn damage(frame: &mut Vec<u8>, random: &mut Dice) {
    match random.below(8) {
        0 => frame.truncate(random.below(frame.len() + 1)),
        1 => frame.extend((0..random.below(40)).map(|_| 0xff)),
        _ => {}
    }
    for _ in 0..random.below(6) {
        let near = if random.below(2) == 0 { frame.len().min(64) } else { frame.len() };
        if near > 0 {
            let at = random.below(near);
            frame[at] = [0, 0xff, 1 << random.below(8), random.below(256) as u8][random.below(4)];
        }
    }
}

fn described(name: &str, device: Device, bytes: &[u8], units: &[Unit], apart: bool) -> Vec<String> {
    match name {
        "zstd" => zstd::described(bytes, units, apart),
        _ => blosc::described(device, bytes, units, apart).unwrap(),
    }
}

fn described_headers(name: &str, headers: &Headers) -> String {
    if name == "zstd" { zstd::described_headers(headers) } else { blosc::described_headers(headers) }.unwrap()
}

fn assert_same_tables(device: Device, name: &str, seed: u64, intact: bool) {
    let walk = device_decoder(name).unwrap().header_walk().unwrap();
    let mut random = Dice(seed);
    let (mut src, mut units, mut decoded) = (Vec::new(), Vec::new(), 0);
    for _ in 0..60 {
        let size = match random.below(4) {
            0 => random.below(40),
            1 => random.below(3000),
            _ => random.below(200_000),
        };
        let mut encoded = frame(&codec_of(name, &mut random), &plain(size, &mut random));
        if name == "zstd" && random.below(6) == 0 {
            encoded.splice(0..0, [0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        }
        if !intact {
            damage(&mut encoded, &mut random);
        }
        src.resize(src.len() + random.below(5), 0xff);
        units.push(Unit { src: src.len()..src.len() + encoded.len(), dst: decoded..decoded + size });
        src.extend(encoded);
        decoded += size;
    }
    let source = Buffer::from_bytes(device, &src).unwrap();
    if intact {
        let found = Found::of(most_pieces(&units), walk, &source, &units).unwrap();
        let read: usize = found.pieces.iter().map(|piece| piece.size).sum();
        assert!(read * 3 < src.len(), "{read} of {} bytes came to the host", src.len());
    }
    assert_eq!(described(name, device, &src, &units, true), described(name, device, &src, &units, false));
    // Without room in the list, frames are read whole.
    for most in [most_pieces(&units), random.below(2000), random.below(100)] {
        assert_same_headers(name, device, (&source, &src), &units, most);
    }
}

/// Compares headers that are read from a list of at most `most` pieces with those of whole frames.
fn assert_same_headers(name: &str, device: Device, (source, src): (&Buffer, &[u8]), units: &[Unit], most: usize) {
    let decoder = device_decoder(name).unwrap();
    let read = read_within(most, decoder, decoder.header_walk().unwrap(), source, units).unwrap();
    assert_eq!(read.len(), units.len());
    for (unit, read) in units.iter().zip(read) {
        let frame = &src[unit.src.clone()];
        let expected = decoder.headers(frame, unit.dst.len()).map(|headers| described_headers(name, &headers));
        match (read, expected) {
            (Ok(read), Some(expected)) => assert_eq!(described_headers(name, &read), expected, "{name}: {frame:?}"),
            (Err(error), None) => {
                let units = [Unit { src: 0..frame.len(), dst: 0..unit.dst.len() }];
                let request = Request { device, units: &units, host: Some(frame), headers: &[], scratch_aim_bytes: 0 };
                let (_, refused) = decoder.prepare(&request).unwrap().into_parts();
                assert_eq!(error.to_string(), refused[0].1.to_string(), "{name}: {frame:?}");
            }
            (read, expected) => panic!("{name}: {:?}, not {expected:?}: {frame:?}", read.err()),
        }
    }
}

/// Tests each format with rounds of 60 frames: one round of intact frames, then some of damaged ones
/// (`CUZARR_DAMAGE_ROUNDS`).
#[test]
fn headers_from_the_device_make_the_tables_of_whole_frames() {
    let rounds = std::env::var("CUZARR_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    for device in [Device::Simt, Device::Cuda(0)] {
        if let Err(error) = Buffer::empty(device, 1) {
            let required = std::env::var("CUZARR_REQUIRE_GPU").is_ok_and(|value| value == "1");
            assert!(!(required && device == Device::Cuda(0)), "a GPU is required: {error}");
            println!("skipped: {device}: {error}");
            continue;
        }
        for name in ["zstd", "blosc"] {
            assert_same_tables(device, name, 1, true);
            (1..=rounds).for_each(|round| assert_same_tables(device, name, 1000 + round, false));
        }
    }
}
