//! What makes a chain valid, what becomes passes and what becomes the tail, codecs from elsewhere, and bounds of memory.

use std::sync::Arc;

use cuzarr::codec::{
    ChunkSpec, ExternalCodec, ExternalCodecs, ExternalKind, ExternalRequest, HostCodec, names, set_external,
};
use cuzarr::internal::codec::{Chain, Support};
use cuzarr::meta::{ArrayMetadata, DataType, Extension, FillValue};
use cuzarr::{ErrorKind, Result};
use cuzarr_device::{Device, ElementStep, Packing};
use serde_json::{Value, json};

mod codec_support;

use codec_support::{decode, encode};

fn chain(data_type: &str, shape: &[u64], codecs: Value) -> Result<Chain> {
    let data_type = DataType::from_v3(&Value::from(data_type))?;
    let spec = ChunkSpec::new(shape.to_vec(), data_type.clone(), FillValue::default_of(&data_type));
    let codecs = codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs"));
    Chain::from_extensions(&codecs.collect::<Result<Vec<_>>>()?, spec)
}

fn little() -> Value {
    json!({"name": "bytes", "configuration": {"endian": "little"}})
}

fn refusal(data_type: &str, shape: &[u64], codecs: Value) -> (ErrorKind, String) {
    let error = chain(data_type, shape, codecs).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn chains_out_of_order_are_refused_naming_the_codec() {
    for (codecs, kind, words) in [
        (json!([]), ErrorKind::MetadataInvalid, "no array→bytes codec"),
        (json!([{"name": "gzip"}]), ErrorKind::MetadataInvalid, "codec 'gzip' (bytes→bytes) stands before"),
        (json!([little(), little()]), ErrorKind::MetadataInvalid, "got a second"),
        (
            json!([little(), {"name": "transpose", "configuration": {"order": [0]}}]),
            ErrorKind::MetadataInvalid,
            "codec 'transpose' (array→array) stands behind",
        ),
        (json!([little(), {"name": "nonsense"}]), ErrorKind::UnknownCodec, "codec 'nonsense' is not known"),
        (json!([little(), {"name": "numcodecs.pickle"}]), ErrorKind::UnknownCodec, "runs code from the data"),
        (json!([{"name": "numcodecs.zfpy"}]), ErrorKind::UnknownCodec, "'numcodecs.zfpy'"),
        (json!([{"name": "bytes"}]), ErrorKind::MetadataInvalid, "'endian' is missing"),
        (json!([little(), {"name": "zstd", "configuration": {"lvl": 1}}]), ErrorKind::MetadataInvalid, "member 'lvl'"),
        (
            json!([little(), {"name": "zstd", "configuration": {"level": 99}}]),
            ErrorKind::MetadataInvalid,
            "'level' is 99",
        ),
        (json!([{"name": "vlen-utf8"}]), ErrorKind::MetadataInvalid, "variable length"),
    ] {
        let (got, message) = refusal("int32", &[8], codecs);
        assert_eq!(got, kind, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn shards_that_cannot_be_are_refused() {
    let shards = |chunk: Value, more: Value| {
        let mut configuration = json!({"chunk_shape": chunk, "codecs": [little()]});
        configuration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{"name": "sharding_indexed", "configuration": configuration}])
    };
    for (codecs, words) in [
        (shards(json!([3]), json!({})), "does not divide"),
        (shards(json!([0]), json!({})), "does not divide"),
        (shards(json!([2, 2]), json!({})), "does not divide"),
        (shards(json!([2]), json!({"index_codecs": [little(), {"name": "gzip"}]})), "fixed size"),
        (shards(json!([2]), json!({"index_codecs": []})), "no array→bytes codec"),
        (shards(json!([2]), json!({"index_location": "middle"})), "'index_location' is"),
    ] {
        let (kind, message) = refusal("int32", &[8], codecs);
        assert_eq!(kind, ErrorKind::MetadataInvalid);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn sizes_beyond_memory_are_refused_without_taking_any() {
    for shape in [&[u64::MAX, 2][..], &[1 << 40, 1 << 40], &[u64::MAX]] {
        assert_eq!(refusal("int32", shape, json!([little()])).0, ErrorKind::MetadataInvalid);
        let shards = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": vec![1; shape.len()]}}]);
        assert_eq!(refusal("uint8", shape, shards).0, ErrorKind::MetadataInvalid);
    }
    // A terabyte is possible, and opening it costs nothing; a short frame is refused before memory is taken.
    let chain =
        chain("uint8", &[1 << 40], json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [1]}}]))
            .unwrap();
    let sharding = chain.sharding().unwrap();
    assert_eq!(sharding.index_size_bytes(), 16 * (1 << 40) + 4);
    assert_eq!(sharding.decode_index(&[0; 100]).unwrap_err().kind(), ErrorKind::ChunkCorrupt);
}

#[test]
fn movements_and_maps_become_the_tail() {
    let scale = json!({"name": "scale_offset", "configuration": {"offset": 1.5, "scale": 2}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [2, 0, 1]}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}});
    let chain =
        chain("float32", &[2, 3, 4], json!([scale, transpose, transpose, big, shuffle, {"name": "crc32c"}])).unwrap();
    let program = chain.bind(Device::Cpu).unwrap();
    assert_eq!(program.tail().packing, Packing::Shuffled { unit_bytes: 4 });
    assert_eq!(program.tail().steps[0], ElementStep::SwapBytes { unit_bytes: 4 });
    assert_eq!((program.tail().steps.len(), program.packed_axes()), (3, &[1, 2, 0][..]));
    assert!(!program.stored_is_packed());
    let support: Vec<_> = chain.describe(Device::Cuda(0)).into_iter().map(|stage| stage.support).collect();
    // The checksum is looked at where the bytes are.
    assert_eq!(support, [Support::Native; 6]);

    let elements: Vec<u8> = (0..24).flat_map(|i| (i as f32 * 0.75 - 3.0).to_ne_bytes()).collect();
    assert_eq!(decode(&chain, &encode(&chain, &elements).unwrap()).unwrap(), elements);
}

#[test]
fn codecs_of_whole_chunks_end_the_tail() {
    let delta = json!({"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let codecs =
        json!([transpose, delta, {"name": "bytes", "configuration": {"endian": "big"}}, {"name": "numcodecs.bz2"}]);
    let chain = chain("int32", &[30, 7], codecs).unwrap();
    let program = chain.bind(Device::Cpu).unwrap();
    assert_eq!((program.packed_size_bytes(), program.packed_axes()), (30 * 7 * 4, &[1, 0][..]));
    assert!(program.tail().is_plain());
    let elements: Vec<u8> = (0..210i32).flat_map(|i| (i * i % 1000).to_ne_bytes()).collect();
    assert_eq!(decode(&chain, &encode(&chain, &elements).unwrap()).unwrap(), elements);
    let names: Vec<_> = chain.describe(Device::Cuda(0)).into_iter().map(|stage| (stage.name, stage.support)).collect();
    // What the host decompresses the device sums, and places.
    let native = |name: &str| (name.to_string(), Support::Native);
    assert_eq!(names[..3], [native("transpose"), native("numcodecs.delta"), native("bytes")]);
    assert!(matches!(&names[3], (_, Support::ViaHost(_))), "{names:?}");
}

#[test]
fn what_feeds_a_codec_of_the_host_runs_there_too() {
    // More pairs than kernels take.
    let pairs: Vec<_> = (0..=1 << 16).map(|number| json!([number, number + 1])).collect();
    let map = json!({"decode": pairs});
    let cast = json!({"name": "cast_value", "configuration": {"data_type": "int64", "scalar_map": map}});
    let codecs = json!([cast, little(), {"name": "numcodecs.lz4"}, {"name": "crc32c"}]);
    let stages = chain("int32", &[30, 7], codecs).unwrap().describe(Device::Cuda(0));
    assert_eq!(stages[0].support, Support::ViaHost("every element is checked"));
    // Elements in native order have no bytes to swap.
    assert_eq!(stages[1].support, Support::Native);
    assert_eq!(stages[2].support, Support::ViaHost("feeds a codec that runs on the host"));
    assert_eq!(stages[3].support, stages[2].support);
    // What is inside Blosc decides, and is told.
    let blosclz = json!({"name": "blosc", "configuration": {"cname": "blosclz", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0}});
    let stages = chain("int32", &[30, 7], json!([little(), blosclz])).unwrap().describe(Device::Cuda(0));
    assert_eq!(stages[1].support, Support::ViaHost("kernels decode no blosclz and no snappy"));
}

#[test]
fn stored_bytes_are_packed_bytes_without_passes() {
    let plain = chain("int16", &[4], json!([little()])).unwrap().bind(Device::Cpu).unwrap();
    assert!(plain.stored_is_packed() && plain.tail().is_plain());
    let error = plain.decode(&[0; 7], &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
    // Rounding happens when writing, so what is stored is read as it is, and written otherwise.
    let round = json!({"name": "bitround", "configuration": {"keepbits": 2}});
    let rounded = chain("float32", &[4], json!([round, little()])).unwrap();
    let tail = rounded.bind(Device::Cpu).unwrap().tail().clone();
    assert!(tail.steps.is_empty() && !tail.is_plain());
    let stored = encode(&rounded, &1.3f32.to_ne_bytes().repeat(4)).unwrap();
    assert_eq!(stored, 1.25f32.to_ne_bytes().repeat(4));
    assert_eq!(decode(&rounded, &stored).unwrap(), stored);
}

#[test]
fn numbers_of_any_kind_are_rounded_to_significant_bits() {
    let encoded = |data_type: &str, keepbits: u32, elements: &[u8]| {
        let round = json!({"name": "bitround", "configuration": {"keepbits": keepbits}});
        let count = elements.len() as u64 / data_type.parse::<DataType>().unwrap().size_bytes().unwrap() as u64;
        let rounded = chain(data_type, &[count], json!([round, little()])).unwrap();
        encode(&rounded, elements).unwrap()
    };
    // The sample of zarr-extensions.
    let sample = [0, 1, 10, 11, 100, 123, 200, 208, 209, 255];
    assert_eq!(encoded("uint8", 3, &sample), [0, 1, 10, 12, 96, 128, 192, 192, 224, 224]);
    // A positive number stays positive, and a negative one keeps the bits from its sign on.
    let signed = [127i8, 100, 5, 0, -128, -127, -1, -96].map(|number| number as u8);
    let expected = [112i8, 96, 5, 0, -128, -128, -32, -96].map(|number| number as u8);
    assert_eq!(encoded("int8", 3, &signed), expected);
    let parts = |pair: [f32; 2]| pair.map(f32::to_ne_bytes).concat();
    assert_eq!(encoded("complex64", 3, &parts([12.3, -1234.5])), parts([12.0, -1280.0]));
}

#[test]
fn rounding_that_is_not_defined_is_refused() {
    let open = |data_type: &str, name: &str, keepbits: Value| {
        let round = json!({"name": name, "configuration": {"keepbits": keepbits}});
        chain(data_type, &[4], json!([round, little()])).map_err(|error| error.to_string())
    };
    for (data_type, name, keepbits, expected) in [
        ("int8", "bitround", json!(0), "'keepbits' is 0, expected a whole number from 1"),
        ("int8", "bitround", Value::Null, "'keepbits' is missing"),
        ("float32", "bitround", json!(24), "'keepbits' is 24, expected a whole number from 0 to 23"),
        ("complex64", "bitround", json!(24), "'keepbits' is 24, expected a whole number from 0 to 23"),
        ("bool", "bitround", json!(1), "takes numbers and times, got bool"),
        ("r16", "bitround", json!(1), "takes numbers and times, got opaque2"),
        ("int16", "numcodecs.bitround", json!(3), "takes floats, got int16"),
    ] {
        let error = open(data_type, name, keepbits).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert!(open("int8", "bitround", json!(1_000)).is_ok());
}

#[test]
fn shards_read_and_write_their_chunks_alone() {
    let shards = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": [little(), {"name": "crc32c"}]}});
    let chain = chain("int16", &[6], json!([shards])).unwrap();
    let sharding = chain.sharding().unwrap();
    let inner = sharding.inner().bind(Device::Cpu).unwrap();
    let first = inner.encode(&[1, 0, 2, 0]).unwrap();
    let object = sharding.encode(vec![None, Some(first.clone()), None]).unwrap().unwrap();
    let index_bytes = sharding.index_size_bytes() as usize;
    let index = sharding.decode_index(&object[object.len() - index_bytes..]).unwrap();
    index.validate(object.len() as u64).unwrap();
    assert_eq!((index.len(), index.get(0), index.get(1)), (3, None, Some((0, first.len() as u64))));
    assert_eq!(index.validate(first.len() as u64 - 1).unwrap_err().kind(), ErrorKind::ChunkCorrupt);
    assert_eq!(sharding.encode(vec![None; 3]).unwrap(), None);
    assert_eq!(decode(&chain, &object).unwrap(), [0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0]);
}

#[test]
fn v2_filters_of_arrays_behind_bytes_are_refused() {
    let document = |filters: Value, dtype: &str| {
        json!({"zarr_format": 2, "shape": [8], "chunks": [8], "dtype": dtype, "order": "C", "fill_value": 0,
            "compressor": null, "filters": filters})
    };
    let open = |document: Value| Chain::new(&ArrayMetadata::from_json_v2(document.to_string().as_bytes(), None)?);
    let shuffled = json!([{"id": "shuffle", "elementsize": 4}, {"id": "delta", "dtype": "<i4"}]);
    let error = open(document(shuffled, "<i4")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
    assert!(error.to_string().starts_with("filters[1]: codec 'delta'"), "{error}");
    let error = open(document(json!([{"id": "pickle"}]), "<i4")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownCodec);
    let viewed = json!([{"id": "delta", "dtype": "<i8"}]);
    assert!(open(document(viewed.clone(), "<i4")).is_ok());
    let odd = json!({"zarr_format": 2, "shape": [7], "chunks": [7], "dtype": "<i4", "order": "C", "fill_value": 0,
        "compressor": null, "filters": viewed});
    assert_eq!(open(odd).unwrap_err().kind(), ErrorKind::MetadataInvalid);
}

/// Adds one to every byte.
#[derive(Debug)]
struct Plus(u8);

impl HostCodec for Plus {
    fn decode(&self, encoded: &[u8]) -> Result<Vec<u8>> {
        Ok(encoded.iter().map(|byte| byte.wrapping_sub(self.0)).collect())
    }

    fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Ok(decoded.iter().map(|byte| byte.wrapping_add(self.0)).collect())
    }
}

struct Elsewhere;

impl ExternalCodecs for Elsewhere {
    fn open(&self, request: &ExternalRequest<'_>) -> Result<Option<ExternalCodec>> {
        let kind = match request.name {
            "test.array" => ExternalKind::ArrayToArray(request.spec.clone()),
            "test.serializer" => ExternalKind::ArrayToBytes,
            "test.bytes" | "numcodecs.base64" => ExternalKind::BytesToBytes,
            _ => return Ok(None),
        };
        Ok(Some(ExternalCodec { kind, codec: Arc::new(Plus(1)) }))
    }
}

#[test]
fn external_codecs_stand_wherever_others_do() {
    set_external(Some(Arc::new(Elsewhere)));
    let codecs = json!([{"name": "test.array"}, {"name": "test.serializer"}, {"name": "test.bytes"}, {"name": "numcodecs.base64"}]);
    let chain_of_four = chain("uint8", &[4], codecs).unwrap();
    assert_eq!(encode(&chain_of_four, &[0, 1, 2, 255]).unwrap(), [4, 5, 6, 3]);
    assert_eq!(decode(&chain_of_four, &[4, 5, 6, 3]).unwrap(), [0, 1, 2, 255]);
    let error = decode(&chain_of_four, &[4, 5, 6]).unwrap_err();
    assert_eq!((error.kind(), error.trail()), (ErrorKind::ChunkCorrupt, &["codec 'test.serializer'".to_string()][..]));
    // Whoever registers codecs decides on pickle; who does not take it refuses it.
    assert_eq!(
        chain("uint8", &[4], json!([little(), {"name": "pickle"}])).unwrap_err().kind(),
        ErrorKind::UnknownCodec
    );
    set_external(None);
}

#[test]
fn every_name_is_listed_once() {
    let mut all: Vec<_> = names().collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}
