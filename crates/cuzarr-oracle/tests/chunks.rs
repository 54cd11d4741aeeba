//! zarrs as oracle: what it writes we read, and what we write it reads, for every codec that both have.

#[path = "../../cuzarr/tests/codec_support/mod.rs"]
mod codec_support;

use std::sync::Arc;

use codec_support::{decode, encode};
use cuzarr::internal::codec::Chain;
use cuzarr::meta::{ArrayMetadata, DataType};
use serde_json::{Value, json};
use zarrs::array::{Array, ArrayBytes};
use zarrs::storage::store::MemoryStore;
use zarrs::storage::{ReadableStorageTraits, StoreKey, WritableStorageTraits};

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn metadata(data_type: &Value, shape: &[u64], codecs: &Value) -> Value {
    let is_complex = data_type.as_str().is_some_and(|name| name.starts_with("complex"));
    let fill_value = if is_complex { json!([0, 0]) } else { json!(0) };
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": fill_value,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs,
    })
}

/// Elements that compress, none of which is a NaN or the fill value throughout.
fn elements(size: usize) -> Vec<u8> {
    (0..size).map(|at| ((at * at / 7 + at / 3) % 61) as u8).collect()
}

/// An array of one chunk in both libraries, and zarrs' store of it.
fn open(data_type: &Value, shape: &[u64], codecs: &Value) -> (Chain, Array<MemoryStore>, Arc<MemoryStore>) {
    let document = metadata(data_type, shape, codecs).to_string();
    let chain = Chain::new(&ArrayMetadata::from_json(document.as_bytes()).unwrap()).unwrap();
    let store = Arc::new(MemoryStore::new());
    store.set(&StoreKey::new("zarr.json").unwrap(), document.into_bytes().into()).unwrap();
    let array = Array::open(store.clone(), "/").unwrap_or_else(|error| panic!("{data_type} {codecs}: {error}"));
    (chain, array, store)
}

/// Both directions for one array of one chunk.
fn check(data_type: &str, shape: &[u64], codecs: &Value) {
    let what = format!("{data_type} {shape:?} {codecs}");
    let (chain, array, store) = open(&Value::from(data_type), shape, codecs);
    let size = chain.spec().elements().unwrap() as usize * chain.spec().data_type.size_bytes().unwrap();
    let (elements, position) = (elements(size), vec![0; shape.len()]);

    array.store_chunk(&position, ArrayBytes::new_flen(elements.clone())).unwrap();
    let key = array.chunk_key(&position);
    let stored = store.get(&key).unwrap().unwrap_or_else(|| panic!("{what}: zarrs stored nothing"));
    assert_eq!(decode(&chain, &stored).unwrap(), elements, "{what}: zarrs wrote, we read");

    let ours = encode(&chain, &elements).unwrap();
    store.set(&key, ours.into()).unwrap();
    let read: ArrayBytes = array.retrieve_chunk(&position).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(read.into_fixed().unwrap().into_owned(), elements, "{what}: we wrote, zarrs read");
}

#[test]
fn compressors_and_checksums_agree() {
    let mut codecs = vec![
        json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}}),
        json!({"name": "zstd", "configuration": {"level": -3, "checksum": false}}),
        json!({"name": "gzip", "configuration": {"level": 6}}),
        json!({"name": "numcodecs.zlib", "configuration": {"level": 6}}),
        json!({"name": "numcodecs.bz2", "configuration": {"level": 6}}),
        json!({"name": "crc32c"}),
        json!({"name": "numcodecs.adler32", "configuration": {"location": "start"}}),
        json!({"name": "numcodecs.fletcher32"}),
        json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}),
    ];
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in ["noshuffle", "shuffle", "bitshuffle"] {
            for (clevel, blocksize) in [(5, 0), (9, 1024), (0, 0)] {
                codecs.push(json!({"name": "blosc", "configuration": {
                    "cname": cname, "clevel": clevel, "shuffle": shuffle, "typesize": 4, "blocksize": blocksize}}));
            }
        }
    }
    for codec in codecs {
        for shape in [&[1][..], &[33, 7], &[50, 40, 9]] {
            check("int32", shape, &json!([little(), codec]));
        }
    }
}

#[test]
fn data_types_and_byte_orders_agree() {
    for data_type in ["int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64"] {
        for endian in ["little", "big"] {
            check(data_type, &[6, 5], &json!([{"name": "bytes", "configuration": {"endian": endian}}]));
        }
    }
}

/// Numbers of any size: high bits are as often zero as not.
fn numbers(count: usize, element_bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let number = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
        (bits >> (64 - 8 * element_bytes) >> (bits % (8 * element_bytes as u64))).to_le_bytes()[..element_bytes]
            .to_vec()
    };
    (0..count).flat_map(number).collect()
}

/// zarrs lets a positive integer that rounds up reach the sign; it stays positive here.
fn becomes_negative(data_type: &str, before: &[u8], after: &[u8]) -> bool {
    let is_signed = !data_type.starts_with('u');
    is_signed && before.last().unwrap() & 0x80 == 0 && after.last().unwrap() & 0x80 != 0
}

#[test]
fn rounding_agrees() {
    const COUNT: usize = 4096;
    let time = json!({"name": "numpy.timedelta64", "configuration": {"unit": "s", "scale_factor": 1}});
    let data_types = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"].map(Value::from);
    let floats = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"].map(Value::from);
    for data_type in data_types.iter().chain([&time]).chain(&floats) {
        let is_float = floats.contains(data_type);
        for keepbits in [1, 2, 3, 5, 6] {
            let codecs = json!([{"name": "bitround", "configuration": {"keepbits": keepbits}}, little()]);
            let (chain, array, store) = open(data_type, &[COUNT as u64], &codecs);
            let element_bytes = chain.spec().data_type.size_bytes().unwrap();
            let mut elements = numbers(COUNT, element_bytes.min(8));
            elements.resize(COUNT * element_bytes, 0);
            if is_float {
                // No NaN, whose bits zarrs rounds in another way: an exponent is not all ones.
                let part_bytes = chain.spec().data_type.swap_unit_bytes().unwrap();
                elements.chunks_exact_mut(part_bytes).for_each(|part| part[part_bytes - 1] &= 0xbf);
            }
            array.store_chunk(&[0], ArrayBytes::new_flen(elements.clone())).unwrap();
            let theirs = store.get(&array.chunk_key(&[0])).unwrap().unwrap();
            let ours = encode(&chain, &elements).unwrap();
            assert!(ours != elements, "{data_type} {keepbits}: nothing was rounded");
            let name = data_type.as_str().unwrap_or("int64");
            for at in (0..elements.len()).step_by(element_bytes) {
                let element = |bytes: &[u8]| bytes[at..at + element_bytes].to_vec();
                let (before, ours, theirs) = (element(&elements), element(&ours), element(&theirs));
                if !is_float && becomes_negative(name, &before, &theirs) {
                    assert_eq!(ours.last().unwrap() & 0x80, 0, "{data_type} {keepbits}: {before:?} became {ours:?}");
                    continue;
                }
                assert_eq!(ours, theirs, "{data_type} {keepbits}: {before:?}");
            }
        }
    }
}

/// Formats of numbers that only move, and whether zarrs packs their bits.
const SMALL: [(&str, bool); 18] = [
    ("int2", true),
    ("int4", true),
    ("uint2", true),
    ("uint4", true),
    ("float4_e2m1fn", true),
    ("float6_e2m3fn", true),
    ("float6_e3m2fn", true),
    ("float8_e3m4", false),
    ("float8_e4m3", false),
    ("float8_e4m3b11fnuz", false),
    ("float8_e4m3fnuz", false),
    ("float8_e5m2", false),
    ("float8_e5m2fnuz", false),
    ("float8_e8m0fnu", false),
    ("complex_float4_e2m1fn", true),
    ("complex_float6_e3m2fn", true),
    ("complex_float8_e5m2", false),
    ("complex_bfloat16", true),
];

#[test]
fn numbers_that_only_move_agree() {
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    for (data_type, is_packed) in SMALL {
        let mut serializers = vec![little()];
        serializers.extend(is_packed.then(|| json!({"name": "packbits"})));
        // zarrs writes no padding byte where elements are whole bytes.
        let has_padding = is_packed && !data_type.ends_with("bfloat16");
        serializers.extend(
            has_padding.then(|| json!({"name": "packbits", "configuration": {"padding_encoding": "last_byte"}})),
        );
        for serializer in serializers {
            for shape in [&[1][..], &[7], &[33, 7]] {
                let (chain, array, store) = open(&Value::from(data_type), shape, &json!([serializer, zstd]));
                let DataType::Small(number) = *chain.spec().data_type else { panic!("{data_type}") };
                let count = shape.iter().product::<u64>() as usize * number.parts();
                let mask = if number.part_bits() < 8 { (1u8 << number.part_bits()) - 1 } else { 0xff };
                let bytes = elements(count * number.part_bytes());
                let ours: Vec<u8> = bytes.iter().map(|byte| (byte * 4 + 1) & mask).collect();
                // zarrs repeats the sign of an integer in the bits that have no meaning.
                let same =
                    |left: &[u8], right: &[u8]| left.iter().zip(right).all(|(left, right)| (left ^ right) & mask == 0);
                let what = format!("{data_type} {shape:?} {serializer}");

                let position = vec![0; shape.len()];
                array.store_chunk(&position, ArrayBytes::new_flen(ours.clone())).unwrap();
                let key = array.chunk_key(&position);
                let stored = store.get(&key).unwrap().unwrap_or_else(|| panic!("{what}: zarrs stored nothing"));
                assert!(same(&decode(&chain, &stored).unwrap(), &ours), "{what}: zarrs wrote, we read");

                store.set(&key, encode(&chain, &ours).unwrap().into()).unwrap();
                let read: ArrayBytes =
                    array.retrieve_chunk(&position).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(same(&read.into_fixed().unwrap(), &ours), "{what}: we wrote, zarrs read");
            }
        }
    }
}

#[test]
fn transpositions_agree() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let transpose = json!({"name": "transpose", "configuration": {"order": order}});
        check("uint16", &[3, 4, 5], &json!([transpose, little()]));
        check("uint16", &[3, 4, 5], &json!([transpose, transpose, little(), {"name": "crc32c"}]));
    }
}

#[test]
fn shards_agree() {
    let zstd = json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}});
    let index = json!([little(), {"name": "crc32c"}]);
    for location in ["start", "end"] {
        let shards = |chunk_shape: Value, codecs: Value| {
            json!({"name": "sharding_indexed", "configuration": {"chunk_shape": chunk_shape, "codecs": codecs,
                "index_codecs": index, "index_location": location}})
        };
        let flat = shards(json!([2, 5]), json!([little(), zstd]));
        check("int32", &[8, 10], &json!([flat]));
        check("int32", &[8, 10], &json!([flat, {"name": "gzip", "configuration": {"level": 1}}]));
        let nested = shards(json!([4, 5]), json!([shards(json!([2, 5]), json!([little()]))]));
        check("int32", &[8, 10], &json!([nested]));
        let turned = shards(json!([5, 2]), json!([little()]));
        check("int32", &[8, 10], &json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, turned]));
    }
}
