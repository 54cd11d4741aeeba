//! Tests that gathered headers give the same tables as whole frames, for each decoder whose headers are gathered.

use cuzarr_device::{Buffer, Device};
use serde_json::json;

use super::cuda::{gather, gather_within};
use crate::codec::device::Unit;
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

fn described(name: &str, device: Device, bytes: &[u8], units: &[Unit]) -> Vec<String> {
    match name {
        "zstd" => zstd::described(bytes, units, false),
        _ => blosc::described(device, bytes, units).unwrap(),
    }
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
    let gathered = gather(walk, &source, &units).unwrap();
    if intact {
        let read = gathered.iter().filter(|&&byte| byte != 0).count();
        assert!(read * 3 < src.len(), "{read} of {} bytes came to the host", src.len());
    }
    for unit in &units {
        let one = std::slice::from_ref(unit);
        let of = |bytes: &[u8]| described(name, device, bytes, one);
        assert_eq!(of(&gathered), of(&src), "{name}, seed {seed}: {:?}", &src[unit.src.clone()]);
    }
    let whole = described(name, device, &src, &units);
    assert_eq!(described(name, device, &gathered, &units), whole);
    if name == "zstd" {
        assert_eq!(zstd::described(&src, &units, true), whole);
    }
    // Without room, frames are read whole.
    let read = gather_within(random.below(100), walk, &source, &units).unwrap();
    assert_eq!(described(name, device, &read, &units), whole);
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
