//! zarrs as oracle: what it writes we read, and what we write it reads, for every codec that both have.

use std::sync::Arc;

use cuzarr::codec::Chain;
use cuzarr::meta::ArrayMetadata;
use cuzarr_oracle::{decode, encode};
use serde_json::{Value, json};
use zarrs::array::{Array, ArrayBytes};
use zarrs::storage::store::MemoryStore;
use zarrs::storage::{ReadableStorageTraits, StoreKey, WritableStorageTraits};

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn metadata(data_type: &str, shape: &[u64], codecs: &Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": data_type, "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs,
    })
}

/// Elements that compress, none of which is a NaN or the fill value throughout.
fn elements(size: usize) -> Vec<u8> {
    (0..size).map(|at| ((at * at / 7 + at / 3) % 61) as u8).collect()
}

/// Both directions for one array of one chunk.
fn check(data_type: &str, shape: &[u64], codecs: &Value) {
    let what = format!("{data_type} {shape:?} {codecs}");
    let document = metadata(data_type, shape, codecs).to_string();
    let chain = Chain::new(&ArrayMetadata::from_json(document.as_bytes()).unwrap()).unwrap();
    let store = Arc::new(MemoryStore::new());
    store.set(&StoreKey::new("zarr.json").unwrap(), document.into_bytes().into()).unwrap();
    let array = Array::open(store.clone(), "/").unwrap_or_else(|error| panic!("{what}: {error}"));
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
