//! One battery of tests, instantiated for every codec: round trips over data types and shapes, cut-off, over-long and
//! damaged frames, and frames that lie about their sizes.

use std::ops::Range;

use cuzarr::ErrorKind;
use cuzarr::codec::{ChunkSpec, VariableElements};
use cuzarr::internal::codec::{Chain, Program};
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr_device::Device;
use serde_json::{Value, json};

mod codec_support;

/// A small deterministic generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Bytes like those of smooth fields: small differences, some runs, some noise.
fn field(size: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed | 1);
    let mut value = 1000u32;
    let mut bytes = Vec::with_capacity(size + 4);
    while bytes.len() < size {
        match random.below(8) {
            0 => bytes.extend_from_slice(&random.next().to_le_bytes()),
            1 => bytes.extend(std::iter::repeat_n(value as u8, random.below(60))),
            _ => {
                value = value.wrapping_add(random.below(9) as u32).wrapping_sub(4);
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
    }
    bytes.truncate(size);
    bytes
}

fn chain(codecs: &Value, data_type: &str, shape: &[u64]) -> cuzarr::Result<Chain> {
    let data_type = DataType::from_v3(&Value::from(data_type))?;
    let fill_value = FillValue::default_of(&data_type);
    let codecs = codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs"));
    Chain::from_extensions(
        &codecs.collect::<cuzarr::Result<Vec<_>>>()?,
        ChunkSpec::new(shape.to_vec(), data_type, fill_value),
    )
}

const BYTES: &str = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;

fn with_bytes(codec: Value) -> Value {
    json!([serde_json::from_str::<Value>(BYTES).unwrap(), codec])
}

fn decode(program: &Program, stored: &[u8]) -> cuzarr::Result<Vec<u8>> {
    let mut packed = vec![0xa5; program.packed_size_bytes()];
    program.decode(stored, &mut packed).map(|()| packed)
}

fn assert_corrupt(error: &cuzarr::Error, what: &str) {
    // What looks like a frame with a dictionary is refused as one.
    let refused = error.kind() == ErrorKind::Unsupported && error.message().contains("needs dictionary");
    let known = refused || matches!(error.kind(), ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch);
    assert!(known && error.trail().iter().any(|place| place.starts_with("codec '")), "{what}: {error:?}");
}

/// Whether every change of the frame must be noticed.
#[derive(Clone, Copy, PartialEq)]
enum Guard {
    Checked,
    Unchecked,
}

fn round_trips(codecs: &Value, data_types: &[&str]) {
    round_trips_of(codecs, data_types, &|_| true);
}

/// Chunks of the shapes that `takes` takes.
fn round_trips_of(codecs: &Value, data_types: &[&str], takes: &dyn Fn(&[u64]) -> bool) {
    let shapes: &[&[u64]] = &[&[], &[0], &[1], &[7], &[3, 0, 2], &[17, 5], &[4, 3, 11], &[1000], &[130, 257]];
    let shapes: Vec<_> = shapes.iter().filter(|shape| takes(shape)).collect();
    for (case, (data_type, shape)) in data_types.iter().flat_map(|t| shapes.iter().map(move |s| (t, s))).enumerate() {
        let chain = chain(codecs, data_type, shape).unwrap();
        let program = chain.bind(Device::Cpu).unwrap();
        let packed = field(program.packed_size_bytes(), case as u64);
        let stored = program.encode(&packed).unwrap();
        let what = format!("{codecs} {data_type} {shape:?}");
        assert!(stored.len() as u64 <= chain.encoded_bound_bytes().unwrap(), "{what}: {} bytes", stored.len());
        assert_eq!(decode(&program, &stored).unwrap(), packed, "{what}");
        assert!(!program.stored_is_packed() || stored == packed, "{what}");
    }
}

fn survives_damage(codecs: &Value, guard: Guard, shapes: &[&[u64]]) {
    for (shape, seed) in shapes.iter().zip(1..) {
        let program = chain(codecs, "int32", shape).unwrap().bind(Device::Cpu).unwrap();
        let packed = field(program.packed_size_bytes(), seed);
        let stored = program.encode(&packed).unwrap();
        for length in 0..stored.len() {
            match decode(&program, &stored[..length]) {
                Err(error) => assert_corrupt(&error, "cut off"),
                Ok(decoded) => assert_eq!(decoded, packed, "{codecs}: cut to {length} of {}", stored.len()),
            }
        }
        for extra in [&[0u8][..], &[1], &[0xff; 40]] {
            match decode(&program, &[&stored, extra].concat()) {
                Err(error) => assert_corrupt(&error, "over-long"),
                Ok(decoded) => assert_eq!(decoded, packed, "{codecs}: {} bytes too many", extra.len()),
            }
        }
        flips(&program, &stored, &packed, guard, codecs);
    }
}

fn flips(program: &Program, stored: &[u8], packed: &[u8], guard: Guard, codecs: &Value) {
    for bit in 0..stored.len() * 8 {
        let mut damaged = stored.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match decode(program, &damaged) {
            Err(error) => assert_corrupt(&error, "flipped"),
            Ok(decoded) if guard == Guard::Checked => assert_eq!(decoded, packed, "{codecs}: bit {bit}"),
            Ok(decoded) => assert_eq!(decoded.len(), packed.len()),
        }
    }
}

/// Every 4-byte and 8-byte word of the frame replaced by huge and awkward numbers.
fn survives_lies(codecs: &Value) {
    let program = chain(codecs, "int32", &[64]).unwrap().bind(Device::Cpu).unwrap();
    let stored = program.encode(&field(program.packed_size_bytes(), 5)).unwrap();
    for at in 0..stored.len().min(200) {
        for word in [u32::MAX, i32::MAX as u32, i32::MIN as u32, 0x4000_0000, 0xffff_fff0, 0, 1] {
            let mut lying = stored.clone();
            let end = (at + 4).min(lying.len());
            lying[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            if let Err(error) = decode(&program, &lying) {
                assert_corrupt(&error, "lying");
            }
        }
        for word in [u64::MAX, 1 << 40, i64::MAX as u64] {
            let mut lying = stored.clone();
            let end = (at + 8).min(lying.len());
            lying[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            if let Err(error) = decode(&program, &lying) {
                assert_corrupt(&error, "lying");
            }
        }
    }
}

/// Seeded mutations: cuts, splices, flips and overwrites, several at a time.
fn survives_mutations(codecs: &Value) {
    let program = chain(codecs, "int32", &[9, 50]).unwrap().bind(Device::Cpu).unwrap();
    let stored = program.encode(&field(program.packed_size_bytes(), 9)).unwrap();
    let mut random = Random(0x5eed);
    for _ in 0..400 {
        let mut mutated = stored.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(mutated.len());
            match random.below(4) {
                0 => mutated.truncate(at),
                1 => mutated.splice(at..at, field(1 + random.below(20), random.next())).for_each(drop),
                2 => mutated.splice(at..(at + random.below(9)).min(mutated.len()), []).for_each(drop),
                _ if mutated.is_empty() => {}
                _ => mutated[at] = random.next() as u8,
            }
        }
        if let Err(error) = decode(&program, &mutated) {
            assert_corrupt(&error, "mutated");
        }
    }
}

/// A compressor over this codec sees sizes that metadata only bounds.
fn works_below_a_compressor(codec: &Value) {
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let codecs = json!([serde_json::from_str::<Value>(BYTES).unwrap(), gzip, codec]);
    let program = chain(&codecs, "int32", &[500]).unwrap().bind(Device::Cpu).unwrap();
    let packed = field(program.packed_size_bytes(), 11);
    let stored = program.encode(&packed).unwrap();
    assert_eq!(decode(&program, &stored).unwrap(), packed);
    survives_mutations(&codecs);
}

/// Parts of chunks are those of whole chunks, also of frames that were damaged without notice.
fn decodes_parts(codecs: &Value, guard: Guard) {
    let (mut random, mut flips) = (Random(0x9a27), Random(0xb175));
    for (data_type, shape) in [("int32", &[70_001][..]), ("r24", &[130, 257]), ("float64", &[9, 50]), ("uint8", &[1])] {
        let program = chain(codecs, data_type, shape).unwrap().bind(Device::Cpu).unwrap();
        let packed = field(program.packed_size_bytes(), 21);
        let stored = program.encode(&packed).unwrap();
        let mut part_of = |stored: &[u8], whole: Option<&[u8]>, what: &str| {
            let (one, other) = (random.below(packed.len() + 1), random.below(packed.len() + 1));
            let wanted = match random.below(3) {
                0 => one..(one + random.below(100)).min(packed.len()),
                _ => one.min(other)..one.max(other),
            };
            let mut part = vec![0xa5; packed.len()];
            let decoded_bytes = match program.decode_part(stored, &mut part, wanted.clone()) {
                Ok(decoded_bytes) => decoded_bytes,
                Err(error) => return assert_corrupt(&error, what),
            };
            assert!((wanted.len()..=packed.len()).contains(&decoded_bytes), "{codecs}: {decoded_bytes} of {wanted:?}");
            if let Some(whole) = whole {
                assert!(part[wanted.clone()] == whole[wanted.clone()], "{codecs}: {what}: wrong bytes in {wanted:?}");
            }
        };
        for _ in 0..40 {
            part_of(&stored, Some(&packed), "intact");
        }
        for _ in 0..60 {
            let mut damaged = stored.clone();
            let bit = flips.below(stored.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            let whole = decode(&program, &damaged).ok();
            let expected = if guard == Guard::Checked { Some(&packed[..]) } else { whole.as_deref() };
            part_of(&damaged, expected, &format!("bit {bit}"));
        }
        let cut = &stored[..stored.len() - 1];
        let whole = decode(&program, cut).ok();
        part_of(cut, whole.as_deref(), "cut off");
    }
}

const DATA_TYPES: &[&str] = &["bool", "uint8", "int16", "float32", "float64", "complex128", "r24"];

macro_rules! battery {
    ($($name:ident: $guard:ident, $codec:tt;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn round_trips() {
                super::round_trips(&with_bytes(json!($codec)), DATA_TYPES);
            }

            #[test]
            fn survives_damage() {
                let codecs = with_bytes(json!($codec));
                super::survives_damage(&codecs, Guard::$guard, &[&[40], &[300], &[1, 1]]);
                survives_lies(&codecs);
                survives_mutations(&codecs);
            }

            #[test]
            fn decodes_parts() {
                super::decodes_parts(&with_bytes(json!($codec)), Guard::$guard);
            }

            #[test]
            fn works_below_a_compressor() {
                super::works_below_a_compressor(&json!($codec));
            }
        }
    )*};
}

battery! {
    zstd: Unchecked, {"name": "zstd", "configuration": {"level": 3, "checksum": false}};
    zstd_checksum: Checked, {"name": "zstd", "configuration": {"level": -1, "checksum": true}};
    gzip: Checked, {"name": "gzip", "configuration": {"level": 5}};
    zlib: Checked, {"name": "numcodecs.zlib", "configuration": {"level": 1}};
    bz2: Checked, {"name": "numcodecs.bz2", "configuration": {"level": 1}};
    lzma: Checked, {"name": "numcodecs.lzma", "configuration": {"preset": 1}};
    lzma_alone: Unchecked, {"name": "numcodecs.lzma", "configuration": {"format": 2, "preset": 0}};
    lz4: Unchecked, {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}};
    crc32c: Checked, {"name": "crc32c"};
    crc32c_start: Checked, {"name": "numcodecs.crc32c", "configuration": {"location": "start"}};
    crc32: Checked, {"name": "numcodecs.crc32"};
    crc32_end: Checked, {"name": "numcodecs.crc32", "configuration": {"location": "end"}};
    adler32: Checked, {"name": "numcodecs.adler32"};
    fletcher32: Checked, {"name": "numcodecs.fletcher32"};
    blosc_lz4: Unchecked, {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}};
    blosc_lz4hc_blocks: Unchecked, {"name": "blosc", "configuration": {"cname": "lz4hc", "clevel": 9, "shuffle": "bitshuffle", "typesize": 4, "blocksize": 512}};
    blosc_blosclz: Unchecked, {"name": "blosc", "configuration": {"cname": "blosclz", "clevel": 9, "shuffle": "shuffle", "typesize": 4, "blocksize": 1024}};
    blosc_zlib: Unchecked, {"name": "blosc", "configuration": {"cname": "zlib", "clevel": 1, "shuffle": "noshuffle", "typesize": 8, "blocksize": 0}};
    blosc_zstd: Unchecked, {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 5, "shuffle": "bitshuffle", "typesize": 1, "blocksize": 0}};
    conditional: Unchecked, {"name": "conditional", "configuration": {"codecs": [
        {"name": "numcodecs.shuffle", "configuration": {"elementsize": 1}}, {"name": "zstd"}, {"name": "gzip"}, {"name": "crc32c"}]}};
    conditional_nothing: Unchecked, {"name": "conditional", "configuration": {"codecs": [], "header_bits": 16}};
    blosc_copied: Unchecked, {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 0, "shuffle": "shuffle", "typesize": 3, "blocksize": 0}};
}

/// Decodes a part of a chunk whose other bytes are 0xa5.
fn decode_part(program: &Program, stored: &[u8], wanted: Range<usize>) -> cuzarr::Result<(Vec<u8>, usize)> {
    let mut packed = vec![0xa5; program.packed_size_bytes()];
    program.decode_part(stored, &mut packed, wanted).map(|decoded_bytes| (packed, decoded_bytes))
}

/// How many bytes are decoded for a part of a chunk.
fn part_bytes(program: &Program, stored: &[u8], wanted: Range<usize>) -> cuzarr::Result<usize> {
    decode_part(program, stored, wanted).map(|(_, decoded_bytes)| decoded_bytes)
}

#[test]
fn blocks_of_blosc_without_a_wanted_byte_are_left_out() {
    let blosc = json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 4096}});
    let program = chain(&with_bytes(blosc), "int32", &[10_001]).unwrap().bind(Device::Cpu).unwrap();
    let packed = field(program.packed_size_bytes(), 2);
    let mut stored = program.encode(&packed).unwrap();
    let (part, decoded_bytes) = decode_part(&program, &stored, 5000..9000).unwrap();
    assert!(part[4096..3 * 4096] == packed[4096..3 * 4096] && decoded_bytes == 2 * 4096);
    assert!(part[..4096].iter().chain(&part[3 * 4096..]).all(|byte| *byte == 0xa5), "others are not touched");
    assert_eq!(part_bytes(&program, &stored, 40_003..40_004).unwrap(), 40_004 % 4096, "the short last block");
    stored[16 + 2 * 4..][..4].fill(0xff);
    assert_eq!(part_bytes(&program, &stored, 0..8192).unwrap(), 8192, "damage in a later block");
    assert_corrupt(&part_bytes(&program, &stored, 8191..8193).unwrap_err(), "damage in a wanted block");
    assert_corrupt(&part_bytes(&program, &stored[..stored.len() - 1], 0..1).unwrap_err(), "cut off");
}

#[test]
fn blocks_of_zstd_behind_the_wanted_bytes_are_left_out() {
    let zstd = |checksum| with_bytes(json!({"name": "zstd", "configuration": {"level": 3, "checksum": checksum}}));
    let program = chain(&zstd(false), "int32", &[250_001]).unwrap().bind(Device::Cpu).unwrap();
    let packed = field(program.packed_size_bytes(), 2);
    let stored = program.encode(&packed).unwrap();
    for end in [1, 1000, 70_000, 500_000] {
        let (part, decoded_bytes) = decode_part(&program, &stored, end / 2..end).unwrap();
        assert!(part[..decoded_bytes] == packed[..decoded_bytes] && decoded_bytes < end + (128 << 10));
        assert!(part[decoded_bytes + 64..].iter().all(|byte| *byte == 0xa5), "others are not touched");
    }
    assert_eq!(part_bytes(&program, &stored, 1_000_000..1_000_004).unwrap(), packed.len(), "the last bytes");
    assert_corrupt(&part_bytes(&program, &stored[..stored.len() - 1], 0..1).unwrap_err(), "cut off");
    assert_corrupt(&part_bytes(&program, &[&stored[..], &[0]].concat(), 0..1).unwrap_err(), "too long");
    let two_frames = [&stored[..], &stored[..]].concat();
    assert_corrupt(&part_bytes(&program, &two_frames, 0..1).unwrap_err(), "two frames");
    let mut damaged = stored.clone();
    // A block whose literals want the tree of a block before it.
    damaged[12..40].fill(0xff);
    assert_corrupt(&part_bytes(&program, &damaged, 0..1).unwrap_err(), "damage in the first block");
    assert_eq!(decode_part(&program, &stored, 0..1).unwrap().0[0], packed[0], "the decoder is as before after damage");
    let checked = chain(&zstd(true), "int32", &[250_001]).unwrap().bind(Device::Cpu).unwrap();
    let mut stored = checked.encode(&packed).unwrap();
    assert_eq!(part_bytes(&checked, &stored, 0..1).unwrap(), packed.len(), "a checksum is compared");
    *stored.last_mut().unwrap() ^= 1;
    assert_eq!(part_bytes(&checked, &stored, 0..1).unwrap_err().kind(), ErrorKind::ChecksumMismatch);
}

#[test]
fn a_part_that_leaves_the_chunk_is_refused() {
    let program = chain(&with_bytes(json!({"name": "zstd"})), "int32", &[10]).unwrap().bind(Device::Cpu).unwrap();
    let stored = program.encode(&[0; 40]).unwrap();
    for (start, end) in [(0, 41), (41, 41), (3, 2)] {
        let refused = part_bytes(&program, &stored, start..end).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
}

#[test]
fn sharding_survives_damage() {
    for (location, nested) in [("start", false), ("end", false), ("end", true)] {
        let inner = json!([serde_json::from_str::<Value>(BYTES).unwrap(), {"name": "crc32c"}]);
        let inner = match nested {
            false => inner,
            true => json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": inner}}]),
        };
        let shards = json!({"name": "sharding_indexed", "configuration":
            {"chunk_shape": [4], "codecs": inner, "index_location": location}});
        // With a codec behind it the shard is decoded whole.
        let codecs = json!([shards, {"name": "crc32c"}]);
        let program = chain(&codecs, "int32", &[40]).unwrap().bind(Device::Cpu).unwrap();
        let mut packed = field(program.packed_size_bytes(), 3);
        packed[16..48].fill(0);
        let stored = program.encode(&packed).unwrap();
        assert_eq!(decode(&program, &stored).unwrap(), packed);
        survives_damage(&codecs, Guard::Checked, &[&[40], &[8]]);
        survives_lies(&codecs);
    }
}

/// Filters that lose nothing: through passes and tail, alone and below a compressor.
#[test]
fn filters_round_trip() {
    let named = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    for (data_type, filter) in [
        ("int32", named("numcodecs.delta", json!({"dtype": "<i4"}))),
        ("uint8", named("numcodecs.delta", json!({"dtype": "|u1", "astype": "<u2"}))),
        ("float64", named("numcodecs.astype", json!({"encode_dtype": "<f8", "decode_dtype": "<f8"}))),
        ("int16", named("numcodecs.astype", json!({"encode_dtype": "<i8", "decode_dtype": "<i2"}))),
        ("int16", named("cast_value", json!({"data_type": "float64"}))),
        ("int64", named("scale_offset", json!({"offset": 0, "scale": -1}))),
        ("uint32", named("scale_offset", json!({}))),
        ("float32", named("bitround", json!({"keepbits": 23}))),
        ("int16", named("bitround", json!({"keepbits": 16}))),
        ("complex128", named("bitround", json!({"keepbits": 52}))),
        ("bool", named("numcodecs.packbits", json!({}))),
        ("complex64", named("reshape", json!({"shape": [-1]}))),
        ("r24", named("reshape", json!({"shape": [1, -1, 1]}))),
    ] {
        let shapes: &[&[u64]] = &[&[], &[0], &[1], &[7], &[8], &[2, 0], &[3, 5], &[9, 4, 7], &[1025, 3]];
        for (shape, compressed) in shapes.iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            let mut codecs = vec![filter.clone(), serde_json::from_str(BYTES).unwrap()];
            codecs.extend(compressed.then(|| json!({"name": "zstd"})));
            let chain = chain(&Value::from(codecs), data_type, shape).unwrap();
            let size = chain.spec().elements().unwrap() as usize * chain.spec().data_type.size_bytes().unwrap();
            let mut elements = field(size, 4);
            match data_type {
                "bool" => elements.iter_mut().for_each(|byte| *byte &= 1),
                // The smallest integer has no opposite.
                "int64" => elements.chunks_exact_mut(8).for_each(|element| element[7] = 0),
                _ => {}
            }
            let stored = codec_support::encode(&chain, &elements).unwrap();
            assert_eq!(codec_support::decode(&chain, &stored).unwrap(), elements, "{filter} {data_type} {shape:?}");
            for length in (0..stored.len()).rev().take(40) {
                match codec_support::decode(&chain, &stored[..length]) {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{filter}: {error}"),
                    // No bytes are the encoding of no elements.
                    Ok(decoded) => assert!(decoded.is_empty() && elements.is_empty(), "{filter}: cut to {length}"),
                }
            }
        }
    }
}

#[test]
fn pcodec_round_trips_and_survives_damage() {
    for configuration in [
        json!({}),
        json!({"level": 0, "mode_spec": "classic", "delta_spec": "no_op", "equal_pages_up_to": 100}),
        json!({"level": 3, "delta_spec": "try_consecutive", "delta_encoding_order": 2, "paging_spec": "equal_pages_up_to"}),
        json!({"delta_spec": "try_lookback", "delta_encoding_order": null}),
    ] {
        let codecs = json!([{"name": "numcodecs.pcodec", "configuration": configuration}]);
        round_trips(
            &codecs,
            &["int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
        );
        survives_damage(&codecs, Guard::Unchecked, &[&[40], &[300], &[1, 1]]);
        survives_lies(&codecs);
        survives_mutations(&codecs);
    }
    let refused = |codec: Value, data_type: &str| chain(&json!([codec]), data_type, &[4]).unwrap_err();
    let named = |configuration: Value| json!({"name": "numcodecs.pcodec", "configuration": configuration});
    assert_eq!(refused(named(json!({"delta_spec": "try_consecutive"})), "int32").kind(), ErrorKind::MetadataInvalid);
    assert_eq!(refused(named(json!({"level": 13})), "int32").kind(), ErrorKind::MetadataInvalid);
    assert_eq!(refused(named(json!({})), "complex64").kind(), ErrorKind::MetadataInvalid);
}

#[test]
fn blocks_of_n5_round_trip_and_survive_damage() {
    for compressor in
        [None, Some(json!({"name": "gzip", "configuration": {"level": 1}})), Some(json!({"name": "blosc"}))]
    {
        let codecs = |ndim: usize| {
            let order: Vec<usize> = (0..ndim).rev().collect();
            let transpose = json!({"name": "transpose", "configuration": {"order": order}});
            let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
            let inner: Vec<Value> = [transpose, big].into_iter().chain(compressor.clone()).collect();
            json!([{"name": "n5_default", "configuration": {"codecs": inner}}])
        };
        let types = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"];
        for ndim in 0..=3 {
            round_trips_of(&codecs(ndim), &types, &|shape| shape.len() == ndim);
        }
        survives_damage(&codecs(1), Guard::Unchecked, &[&[40], &[300]]);
        survives_damage(&codecs(2), Guard::Unchecked, &[&[7, 9]]);
        survives_lies(&codecs(1));
        survives_mutations(&codecs(2));
    }
}

#[test]
fn zfp_round_trips_and_survives_damage() {
    let all = ["int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64"];
    let zfp = |configuration: Value| json!([{"name": "zfp", "configuration": configuration}]);
    round_trips(&zfp(json!({"mode": "reversible"})), &all);
    let expert = json!({"mode": "expert", "minbits": 900, "maxbits": 20_000, "maxprec": 64, "minexp": -1075});
    round_trips(&zfp(expert), &all);
    for configuration in [
        json!({"mode": "reversible"}),
        json!({"mode": "fixed_rate", "rate": 9.5}),
        json!({"mode": "fixed_precision", "precision": 20}),
        json!({"mode": "expert", "minbits": 20, "maxbits": 100, "maxprec": 19, "minexp": -2}),
    ] {
        let codecs = zfp(configuration);
        survives_damage(&codecs, Guard::Unchecked, &[&[40], &[7, 9], &[1, 1]]);
        survives_lies(&codecs);
        survives_mutations(&codecs);
    }
}

#[test]
fn packed_bits_are_those_of_the_specification() {
    let pack = |configuration: Value, data_type: &str, elements: &[u8], shape: &[u64]| {
        let codec = json!([{"name": "packbits", "configuration": configuration}]);
        let chain = chain(&codec, data_type, shape).unwrap();
        let stored = codec_support::encode(&chain, elements).unwrap();
        (codec_support::decode(&chain, &stored).unwrap(), stored)
    };
    let bools = [1, 0, 1, 1, 0, 0, 0, 0, 1, 1];
    assert_eq!(pack(json!({}), "bool", &bools, &[10]), (bools.to_vec(), vec![0b0000_1101, 0b11]));
    let first = json!({"padding_encoding": "first_byte"});
    assert_eq!(pack(first, "bool", &bools, &[10]).1, [6, 0b0000_1101, 0b11]);
    let last = json!({"padding_encoding": "last_byte"});
    assert_eq!(pack(last, "bool", &bools, &[10]).1, [0b0000_1101, 0b11, 6]);
    // Three bits of each, of which the highest is the sign.
    let signed = [3u8, 0xff, 0xfc, 2];
    let three = || json!({"first_bit": 0, "last_bit": 2});
    assert_eq!(pack(three(), "int8", &signed, &[4]), (signed.to_vec(), vec![0b0011_1011, 0b0101]));
    // What lies below the first bit is lost, and so is what lies above the last.
    let wide = [0x1234_u16, 0xffff].map(u16::to_le_bytes).concat();
    let kept = [0x0230_u16, 0x0ff0].map(u16::to_le_bytes).concat();
    assert_eq!(pack(json!({"first_bit": 4, "last_bit": 11}), "uint16", &wide, &[2]), (kept, vec![0x23, 0xff]));
    for (data_type, configuration) in
        [("float64", json!({})), ("complex64", json!({"last_bit": 31})), ("uint64", three())]
    {
        let mut elements = field(8 * 13, 3);
        if data_type == "uint64" {
            elements.chunks_exact_mut(8).for_each(|one| one.copy_from_slice(&u64::from(one[0] & 7).to_le_bytes()));
        }
        assert_eq!(pack(configuration, data_type, &elements, &[13]).0, elements, "{data_type}");
    }
    // Wide numbers that begin inside a byte reach into a ninth one.
    for width in 33..=64u32 {
        let numbers = (0..13).map(|at: u64| (u64::MAX / 3).wrapping_mul(at + 1) & u64::MAX >> (64 - width));
        let elements: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        assert_eq!(pack(json!({"last_bit": width - 1}), "uint64", &elements, &[13]).0, elements, "{width} bits");
    }
    // Sizes of chunks that no memory holds are still sizes.
    let huge = chain(&json!([{"name": "packbits"}, {"name": "zstd"}]), "uint64", &[1 << 59]).unwrap();
    assert_eq!(huge.bind(Device::Cpu).unwrap().packed_size_bytes(), 1 << 62);
    let codecs = json!([{"name": "packbits", "configuration": {"padding_encoding": "first_byte", "last_bit": 20}}]);
    let program = chain(&codecs, "int32", &[40]).unwrap().bind(Device::Cpu).unwrap();
    let stored = program.encode(&field(program.packed_size_bytes(), 3)).unwrap();
    for length in 0..stored.len() {
        assert_corrupt(&decode(&program, &stored[..length]).unwrap_err(), "cut off");
    }
    let mut padded = stored.clone();
    padded[0] ^= 1;
    assert_corrupt(&decode(&program, &padded).unwrap_err(), "other padding");
    assert_corrupt(&decode(&program, &[&stored[..], &[0]].concat()).unwrap_err(), "over-long");
    for wrong in [json!({"last_bit": 32}), json!({"first_bit": 5, "last_bit": 4}), json!({"padding_encoding": "both"})]
    {
        let codec = json!([{"name": "packbits", "configuration": wrong}]);
        assert_eq!(chain(&codec, "int32", &[4]).unwrap_err().kind(), ErrorKind::MetadataInvalid, "{codec}");
    }
}

#[test]
fn integers_out_of_range_are_errors_naming_the_element() {
    let scale = json!([{"name": "scale_offset", "configuration": {"offset": 5, "scale": 3}}, {"name": "bytes"}]);
    let chain = chain(&scale, "int8", &[3]).unwrap();
    let error = codec_support::encode(&chain, &[6, 100, 7]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EncodeFailed);
    assert!(error.to_string().contains("codec 'scale_offset': element 1: (100 - 5) * 3 is not"), "{error}");
    let error = codec_support::decode(&chain, &[3, 6, 7]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChunkCorrupt);
    assert!(error.to_string().contains("element 2: 7 / 3 + 5 is not"), "{error}");
}

fn variable(codecs: &Value, shape: &[u64]) -> (Chain, VariableElements) {
    let chain = chain(codecs, "string", shape).unwrap();
    let mut random = Random(7);
    let mut elements = VariableElements::default();
    for index in 0..chain.spec().elements().unwrap() {
        elements.push("äb\u{1f980}c".repeat(random.below(4) * usize::from(index % 3 != 0)).as_bytes());
    }
    (chain, elements)
}

#[test]
fn variable_lengths_survive_damage() {
    let shards =
        json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [3], "codecs": [{"name": "vlen-utf8"}]}});
    for codecs in [
        json!([{"name": "vlen-utf8"}]),
        json!([{"name": "vlen-utf8"}, {"name": "gzip"}, {"name": "crc32c"}]),
        json!([{"name": "vlen-utf8"}, {"name": "numcodecs.lz4"}]),
        json!([{"name": "vlen-utf8"}, {"name": "blosc"}]),
        json!([{"name": "vlen-utf8"}, {"name": "zstd"}]),
        json!([shards]),
        json!([shards, {"name": "zstd"}]),
    ] {
        let (chain, elements) = variable(&codecs, &[12]);
        let stored = chain.encode_variable(&elements).unwrap();
        assert_eq!(chain.decode_variable(&stored, 1 << 30).unwrap(), elements, "{codecs}");
        for length in 0..stored.len() {
            assert!(chain.decode_variable(&stored[..length], 1 << 30).is_err(), "{codecs}: cut to {length}");
        }
        let mut random = Random(99);
        for _ in 0..600 {
            let mut damaged = stored.clone();
            let at = random.below(damaged.len());
            match random.below(3) {
                0 => damaged[at] ^= 1 << random.below(8),
                1 => damaged[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
                _ => damaged.splice(at..at, [1, 2, 3]).for_each(drop),
            }
            match chain.decode_variable(&damaged, 1 << 30) {
                Ok(decoded) => assert_eq!(decoded.len(), elements.len()),
                Err(error) => assert_corrupt(&error, "damaged"),
            }
        }
    }
}

/// On the host as on a GPU: the kind of the damage, and the byte of the frame where it was seen.
#[test]
fn damage_is_told_with_its_place() {
    use ErrorKind::{ChecksumMismatch, ChunkCorrupt, Unsupported};
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
    let zlib = json!({"name": "numcodecs.zlib", "configuration": {"level": 1}});
    let lz4 = json!({"name": "numcodecs.lz4"});
    let cut = |frame: &[u8], end: usize| frame[..frame.len() - end].to_vec();
    let flip = |frame: &[u8], end: usize| {
        let mut frame = frame.to_vec();
        let at = frame.len() - end;
        frame[at] ^= 1;
        frame
    };
    let behind = |frame: &[u8]| [frame, b"junkjunkjunk"].concat();
    for codec in [&zstd, &gzip, &zlib, &lz4] {
        let program = chain(&with_bytes(codec.clone()), "uint8", &[1000]).unwrap().bind(Device::Cpu).unwrap();
        let frame = program.encode(&(0..1000).map(|at| (at * at / 7) as u8).collect::<Vec<_>>()).unwrap();
        let len = frame.len();
        let cases = match codec["name"].as_str().unwrap() {
            "zstd" => vec![
                (flip(&frame, 1), ChecksumMismatch, format!("byte {}: the checksum", len - 4)),
                (behind(&frame), ChunkCorrupt, format!("byte {len}: not a zstd frame")),
                (b"\x28\xb5\x2f\xfd\x21\x4d\x10\x01\0\0".to_vec(), Unsupported, "needs dictionary 77".into()),
            ],
            "gzip" => vec![
                (flip(&frame, 8), ChecksumMismatch, format!("byte {}: the checksum", len - 8)),
                (cut(&frame, 1), ChunkCorrupt, format!("byte {}: unexpected end", len - 1)),
                (behind(&frame), ChunkCorrupt, "invalid gzip header".into()),
            ],
            "numcodecs.zlib" => vec![
                (flip(&frame, 1), ChecksumMismatch, format!("byte {}: the checksum", len - 4)),
                (cut(&frame, 1), ChunkCorrupt, format!("byte {}: the stream is cut off", len - 1)),
                (cut(&frame, len / 2), ChunkCorrupt, format!("byte {}: the stream is cut off", len - len / 2)),
                (frame[2..].to_vec(), ChunkCorrupt, "byte 0: the header".into()),
            ],
            _ => vec![
                (cut(&frame, 1), ChunkCorrupt, "the stream is cut off".into()),
                (behind(&frame), ChunkCorrupt, "bytes follow the end of the stream".into()),
                (frame[..4].to_vec(), ChunkCorrupt, "byte 0: the stream is cut off".into()),
            ],
        };
        for (damaged, kind, text) in cases {
            let error = decode(&program, &damaged).unwrap_err();
            assert!(error.kind() == kind && error.message().contains(&text), "{codec}, {text}: {error:?}");
        }
    }
}
