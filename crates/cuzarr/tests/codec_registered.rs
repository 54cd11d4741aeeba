//! Codecs that zarr-extensions registers: what their specifications say, bytes by hand, and what hostile bytes and metadata get.

use cuzarr::ErrorKind;
use cuzarr::codec::ChunkSpec;
use cuzarr::internal::codec::Chain;
use cuzarr::meta::{DataType, Extension, FillValue};
use cuzarr_device::Device;
use serde_json::{Value, json};

mod codec_support;

use codec_support::{decode, encode};

fn chain(codecs: &Value, data_type: &str, shape: &[u64]) -> cuzarr::Result<Chain> {
    let data_type = DataType::from_v3(&Value::from(data_type))?;
    let fill_value = FillValue::Element(vec![7; data_type.size_bytes().unwrap()]);
    let codecs: cuzarr::Result<Vec<_>> =
        codecs.as_array().unwrap().iter().map(|codec| Extension::from_json(codec, "codecs")).collect();
    Chain::from_extensions(&codecs?, ChunkSpec::new(shape.to_vec(), data_type, fill_value))
}

fn refused(codecs: &Value, data_type: &str, shape: &[u64]) -> String {
    let error = chain(codecs, data_type, shape).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MetadataInvalid, "{codecs}: {error}");
    error.to_string()
}

/// Bytes that are no chunk.
fn damaged(chain: &Chain, stored: &[u8]) -> String {
    let error = decode(chain, stored).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
    error.to_string()
}

/// A number that does not follow from those before it.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn conditional(configuration: Value) -> Value {
    json!([{"name": "bytes"}, {"name": "conditional", "configuration": configuration}])
}

#[test]
fn a_bit_of_the_header_says_whether_a_codec_was_applied() {
    let codecs = json!([{"name": "numcodecs.shuffle", "configuration": {"elementsize": 2}}, {"name": "crc32c"}]);
    let chain = chain(&conditional(json!({"codecs": codecs})), "uint8", &[4]).unwrap();
    let (plain, shuffled) = ([1, 2, 3, 4], [1, 3, 2, 4]);
    let sum = |bytes: &[u8]| [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat();
    assert_eq!(decode(&chain, &[&[0b00][..], &plain].concat()).unwrap(), plain);
    assert_eq!(decode(&chain, &[&[0b01][..], &shuffled].concat()).unwrap(), plain);
    assert_eq!(decode(&chain, &[&[0b10][..], &sum(&plain)].concat()).unwrap(), plain);
    let all = [&[0b11][..], &sum(&shuffled)].concat();
    assert_eq!(decode(&chain, &all).unwrap(), plain);
    assert_eq!(encode(&chain, &plain).unwrap(), all, "codecs of a fixed size are always applied");
    assert!(damaged(&chain, &[&[0b101][..], &shuffled].concat()).contains("bit 2 of the header"));
    assert!(damaged(&chain, &[]).contains("expected 1 of header"));
    assert!(damaged(&chain, &[0, 1, 2, 3]).contains("got 3 encoded bytes, expected 4"));
    let error = decode(&chain, &[&[0b10][..], &plain, &[0; 4]].concat()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChecksumMismatch);
    assert!(error.to_string().contains("codec 'conditional': codec 'crc32c'"), "{error}");
}

#[test]
fn a_compressor_is_applied_where_it_makes_a_chunk_smaller() {
    let configuration = json!({"codecs": [{"name": "zstd"}, {"name": "gzip"}], "header_bits": 24});
    let chain = chain(&conditional(configuration), "uint8", &[3000]).unwrap();
    let (smooth, noise) = (vec![5; 3000], noise(3000));
    let stored = encode(&chain, &smooth).unwrap();
    assert_eq!(stored[..3], [0b01, 0, 0], "gzip makes nothing smaller behind zstd");
    assert!(stored.len() < 100);
    assert_eq!(decode(&chain, &stored).unwrap(), smooth);
    let stored = encode(&chain, &noise).unwrap();
    assert_eq!(stored, [&[0, 0, 0][..], &noise].concat());
    assert_eq!(decode(&chain, &stored).unwrap(), noise);
}

#[test]
fn chunks_of_fewer_codecs_are_read_by_later_metadata() {
    let names = ["zstd", "gzip", "crc32c", "crc32c", "crc32c", "crc32c", "crc32c", "crc32c", "crc32c"];
    let codecs = |count: usize| names[..count].iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let open = |count: usize| chain(&conditional(json!({"codecs": codecs(count), "header_bits": 16})), "uint8", &[400]);
    let smooth: Vec<u8> = (0..400).map(|at| (at / 9) as u8).collect();
    for count in 0..9 {
        let stored = encode(&open(count).unwrap(), &smooth).unwrap();
        assert_eq!(decode(&open(9).unwrap(), &stored).unwrap(), smooth, "{count} codecs");
    }
    let default = chain(&conditional(json!({"codecs": codecs(9)})), "uint8", &[400]).unwrap();
    assert_eq!(encode(&default, &smooth).unwrap()[1], 1, "a bit for every codec");
}

#[test]
fn conditional_metadata_that_names_no_chain_is_refused() {
    let of = |configuration: Value| refused(&conditional(configuration), "uint8", &[4]);
    assert!(of(json!({})).contains("'codecs' is missing"));
    assert!(of(json!({"codecs": "zstd"})).contains("'codecs' is"));
    assert!(of(json!({"codecs": [{"name": "bytes"}]})).contains("codecs[0]: 'bytes' is no bytes→bytes codec"));
    assert!(of(json!({"codecs": [], "header_bits": 12})).contains("'header_bits' is 12, expected a multiple of 8"));
    assert!(of(json!({"codecs": [{"name": "zstd"}], "header_bits": 0})).contains("'header_bits' is 0"));
    assert!(of(json!({"codecs": [], "header_bits": 1_000_000_000})).contains("'header_bits' is 1000000000"));
    assert!(of(json!({"codecs": [], "bits": 8})).contains("'bits'"));
    let unknown = chain(&conditional(json!({"codecs": [{"name": "brotli"}]})), "uint8", &[4]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownCodec);
}

#[test]
fn conditional_compressors_take_no_memory_on_a_frames_word() {
    let nested = json!([{"name": "bytes"}, {"name": "gzip"}, {"name": "gzip"}]);
    let nested = chain(&nested, "uint8", &[64 << 20]).unwrap();
    let frame = encode(&nested, &vec![0; 64 << 20]).unwrap();
    let small = chain(&conditional(json!({"codecs": [{"name": "gzip"}, {"name": "gzip"}]})), "uint8", &[64]).unwrap();
    damaged(&small, &[&[0b11][..], &frame].concat());
    damaged(&small, &[&[0b10][..], &frame].concat());
}

fn n5(ndim: usize, compressor: Option<Value>) -> Value {
    let order: Vec<usize> = (0..ndim).rev().collect();
    let transpose = json!({"name": "transpose", "configuration": {"order": order}});
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let inner: Vec<Value> = [transpose, big].into_iter().chain(compressor).collect();
    json!([{"name": "n5_default", "configuration": {"codecs": inner}}])
}

/// A block by hand: its elements in the order of its bytes.
fn block(shape: &[u32], elements: &[i16]) -> Vec<u8> {
    let header = [0u16, shape.len() as u16].map(u16::to_be_bytes).concat();
    let dims: Vec<u8> = shape.iter().flat_map(|extent| extent.to_be_bytes()).collect();
    [header, dims, elements.iter().flat_map(|element| element.to_be_bytes()).collect()].concat()
}

fn elements(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks::<2>().0.iter().map(|element| i16::from_ne_bytes(*element)).collect()
}

#[test]
fn blocks_begin_with_their_shape_and_the_first_dimension_is_the_fastest() {
    let chain = chain(&n5(2, None), "int16", &[2, 3]).unwrap();
    let stored = block(&[2, 3], &[1, 4, 2, 5, 3, 6]);
    assert_eq!(stored[..12], [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]);
    let decoded = decode(&chain, &stored).unwrap();
    assert_eq!(elements(&decoded), [1, 2, 3, 4, 5, 6]);
    assert_eq!(encode(&chain, &decoded).unwrap(), stored);
}

#[test]
fn blocks_of_other_shapes_are_cut_off_or_filled_up() {
    for compressor in [None, Some(json!({"name": "gzip", "configuration": {"level": 1}}))] {
        let chain = chain(&n5(2, compressor.clone()), "int16", &[2, 3]).unwrap();
        let store = |shape: &[u32], elements: &[i16]| {
            let mut stored = block(shape, elements);
            if compressor.is_some() {
                let codecs = [Extension::new("bytes", Default::default()), Extension::new("gzip", Default::default())];
                let size = stored.len() as u64 - 12;
                let spec = ChunkSpec::new(vec![size], DataType::UInt8, FillValue::Element(vec![0]));
                let gzip = Chain::from_extensions(&codecs, spec).unwrap().bind(Device::Cpu).unwrap();
                let compressed = gzip.encode(&stored.split_off(12)).unwrap();
                stored.extend(compressed);
            }
            stored
        };
        let read = |shape: &[u32], of: &[i16]| elements(&decode(&chain, &store(shape, of)).unwrap());
        let fill = 0x0707;
        assert_eq!(read(&[1, 3], &[1, 2, 3]), [1, 2, 3, fill, fill, fill]);
        assert_eq!(read(&[2, 1], &[1, 4]), [1, fill, fill, 4, fill, fill]);
        assert_eq!(read(&[3, 4], &[1, 4, 9, 2, 5, 9, 3, 6, 9, 9, 9, 9]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(read(&[3, 2], &[1, 4, 9, 2, 5, 9]), [1, 2, fill, 4, 5, fill]);
        assert_eq!(read(&[0, 5], &[]), [fill; 6]);
        let whole = store(&[2, 3], &[1, 4, 2, 5, 3, 6]);
        for (at, said) in [(1, "mode of the block is 1"), (3, "3 dimensions, expected 2")] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert!(damaged(&chain, &other).contains(said), "{at}");
        }
        assert!(damaged(&chain, &whole[..11]).contains("expected a header of 12"));
        assert!(damaged(&chain, &store(&[u32::MAX, u32::MAX], &[])).contains("too large for a chunk of [2, 3]"));
        assert!(damaged(&chain, &store(&[1 << 20, 1], &[0; 9])).contains("too large"));
        damaged(&chain, &store(&[1000, 300], &[0; 9]));
        damaged(&chain, &store(&[1, 2], &[0; 3]));
        damaged(&chain, &store(&[3, 3], &[0; 10]));
        damaged(&chain, &store(&[2, 3], &[0; 5]));
    }
}

#[test]
fn n5_metadata_that_is_none_of_n5_is_refused() {
    let named = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    let transpose = named("transpose", json!({"order": [1, 0]}));
    let big = named("bytes", json!({"endian": "big"}));
    let of = |codecs: Value, data_type: &str| {
        let codec = json!([named("n5_default", json!({"codecs": codecs}))]);
        refused(&codec, data_type, &[2, 3])
    };
    assert!(of(json!([big]), "int16").contains("codecs[0]: expected 'transpose' with 'order' [1,0]"));
    assert!(of(json!([named("transpose", json!({"order": [0, 1]})), big]), "int16").contains("codecs[0]"));
    assert!(of(json!([transpose]), "int16").contains("codecs[1]: expected 'bytes'"));
    let little = named("bytes", json!({"endian": "little"}));
    assert!(of(json!([transpose, little]), "int16").contains("codecs[1]: expected 'bytes' with 'endian' 'big'"));
    assert!(of(json!([transpose, little]), "int8").contains("codecs[1]"));
    assert!(of(json!([transpose, {"name": "bytes"}]), "int16").contains("codecs[1]"));
    let twice = json!([transpose, big, {"name": "gzip"}, {"name": "crc32c"}]);
    assert!(of(twice, "int16").contains("got 4 codecs, expected at most one behind 'bytes'"));
    assert!(of(json!([transpose, big]), "complex64").contains("N5 has no elements of"));
    assert!(of(json!([transpose, big, transpose]), "int16").contains("transpose"));
    assert!(refused(&json!([named("n5_default", json!({}))]), "int16", &[2, 3]).contains("'codecs' is missing"));
    assert!(refused(&n5(1, None), "int8", &[1 << 40]).contains("extent that N5's header cannot hold"));
    let single = json!([named("n5_default", json!({"codecs": [transpose, {"name": "bytes"}]}))]);
    assert!(chain(&single, "int8", &[2, 3]).is_ok(), "single bytes have no order");
}

fn zfp(configuration: Value) -> Value {
    json!([{"name": "zfp", "configuration": configuration}])
}

#[test]
fn every_block_of_a_fixed_rate_has_as_many_bits() {
    let rate = |rate: f64, shape: &[u64]| chain(&zfp(json!({"mode": "fixed_rate", "rate": rate})), "float32", shape);
    for (of, shape, bytes) in [(8.0, &[64u64, 64][..], 64 * 64), (10.5, &[9, 5], 6 * 21), (4.0, &[], 8), (8.0, &[0], 0)]
    {
        let chain = rate(of, shape).unwrap();
        let bytes = (bytes as u64).next_multiple_of(8);
        assert_eq!(chain.encoded_bound_bytes(), Some(bytes), "{of} {shape:?}");
        let elements: Vec<u8> = (0..shape.iter().product::<u64>()).flat_map(|at| (at as f32).to_ne_bytes()).collect();
        assert_eq!(encode(&chain, &elements).unwrap().len() as u64, bytes);
    }
}

#[test]
fn modes_that_are_named_otherwise_are_the_same() {
    let elements: Vec<u8> = (0..300).flat_map(|at| ((f64::from(at) / 9.0).sin() * 50.0).to_ne_bytes()).collect();
    let encode =
        |configuration: Value| encode(&chain(&zfp(configuration), "float64", &[15, 20]).unwrap(), &elements).unwrap();
    let expert = |least: u32, most: u32, planes: u32, exponent: i32| {
        encode(json!({"mode": "expert", "minbits": least, "maxbits": most, "maxprec": planes, "minexp": exponent}))
    };
    assert_eq!(encode(json!({"mode": "fixed_rate", "rate": 9})), expert(144, 144, 64, -1074));
    assert_eq!(encode(json!({"mode": "fixed_precision", "precision": 17})), expert(1, 20_000, 17, -1074));
    assert_eq!(encode(json!({"mode": "fixed_accuracy", "tolerance": 0.3})), expert(1, 16_658, 64, -2));
    assert_eq!(encode(json!({"mode": "reversible"})), expert(1, 16_658, 64, -1075));
}

#[test]
fn errors_stay_below_the_tolerance() {
    let values: Vec<f32> = (0..4000).map(|at| (at as f32 / 31.0).sin() * 300.0 + (at % 7) as f32).collect();
    let elements: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    for (tolerance, shape) in [(1e-3, &[4000u64][..]), (0.5, &[80, 50]), (4.0, &[10, 20, 20]), (0.02, &[4, 10, 10, 10])]
    {
        let chain = chain(&zfp(json!({"mode": "fixed_accuracy", "tolerance": tolerance})), "float32", shape).unwrap();
        let stored = encode(&chain, &elements).unwrap();
        assert!(stored.len() < elements.len(), "{tolerance}");
        let decoded = decode(&chain, &stored).unwrap();
        let worst = decoded.as_chunks::<4>().0.iter().zip(&values);
        let worst = worst.map(|(one, value)| (f32::from_ne_bytes(*one) - value).abs()).fold(0.0, f32::max);
        assert!(f64::from(worst) <= tolerance, "{tolerance}: {worst}");
    }
}

#[test]
fn the_smallest_floats_are_stored_as_near_as_decoders_give_them() {
    // The C library's encoder would scale these by infinity.
    let values = [1e-33f32, -3e-34, 2.5e-34, 0.0, 1e-45, -1e-40, 7e-33, 9e-34];
    let elements: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let precise = chain(&zfp(json!({"mode": "fixed_precision", "precision": 32})), "float32", &[8]).unwrap();
    let decoded = decode(&precise, &encode(&precise, &elements).unwrap()).unwrap();
    for (one, value) in decoded.as_chunks::<4>().0.iter().zip(values) {
        assert!((f32::from_ne_bytes(*one) - value).abs() <= 1e-40, "{value}");
    }
    let exact = chain(&zfp(json!({"mode": "reversible"})), "float32", &[8]).unwrap();
    assert_eq!(decode(&exact, &encode(&exact, &elements).unwrap()).unwrap(), elements);
}

#[test]
fn elements_that_blocks_cannot_hold_are_errors_naming_them() {
    let lossy = json!({"mode": "fixed_precision", "precision": 20});
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let elements = [1.0, 2.0, number, 3.0].map(f64::to_ne_bytes).concat();
        let error = encode(&chain(&zfp(lossy.clone()), "float64", &[4]).unwrap(), &elements).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EncodeFailed);
        assert!(error.to_string().contains("element 2 cannot be stored: it is no finite number"), "{error}");
        let exact = chain(&zfp(json!({"mode": "reversible"})), "float64", &[4]).unwrap();
        assert_eq!(decode(&exact, &encode(&exact, &elements).unwrap()).unwrap(), elements);
    }
    let unsigned = chain(&zfp(json!({"mode": "reversible"})), "uint32", &[2, 2]).unwrap();
    let fits = [0u32, 5, i32::MAX as u32, 1 << 30].map(u32::to_ne_bytes).concat();
    assert_eq!(decode(&unsigned, &encode(&unsigned, &fits).unwrap()).unwrap(), fits);
    let error = encode(&unsigned, &[0u32, 5, 6, 1 << 31].map(u32::to_ne_bytes).concat()).unwrap_err();
    assert!(error.to_string().contains("element 3 cannot be stored: zfp's integers are signed"), "{error}");
    // A lossy integer below zero is none.
    let noisy: Vec<u8> = (0..64u64).flat_map(|at| (at % 5 * 1000).to_ne_bytes()).collect();
    let lossy = chain(&zfp(json!({"mode": "fixed_rate", "rate": 5})), "uint64", &[8, 8]).unwrap();
    let decoded = decode(&lossy, &encode(&lossy, &noisy).unwrap()).unwrap();
    assert!(decoded.as_chunks::<8>().0.iter().all(|one| u64::from_ne_bytes(*one) < 1 << 62));
}

#[test]
fn zfp_refuses_chunks_and_elements_that_it_has_no_blocks_for() {
    let exact = zfp(json!({"mode": "reversible"}));
    assert!(refused(&exact, "float32", &[2, 2, 2, 2, 2]).contains("at most 4 dimensions, got [2, 2, 2, 2, 2]"));
    for data_type in ["bool", "float16", "complex64", "r24"] {
        assert!(refused(&exact, data_type, &[4]).contains("takes integers of 8 to 64 bits"), "{data_type}");
    }
    let reshaped = json!([{"name": "reshape", "configuration": {"shape": [[0, 1, 2], 2, 2]}}, exact[0]]);
    let chain = chain(&reshaped, "int32", &[1, 2, 3, 2, 2]).unwrap();
    let elements: Vec<u8> = (0..24u32).flat_map(u32::to_ne_bytes).collect();
    assert_eq!(decode(&chain, &encode(&chain, &elements).unwrap()).unwrap(), elements);
}

#[test]
fn streams_of_another_length_are_refused() {
    let elements: Vec<u8> = (0..77u32).flat_map(u32::to_ne_bytes).collect();
    for mode in [json!({"mode": "reversible"}), json!({"mode": "fixed_rate", "rate": 6})] {
        let chain = chain(&zfp(mode), "int32", &[7, 11]).unwrap();
        let stored = encode(&chain, &elements).unwrap();
        damaged(&chain, &stored[..stored.len() - 8]);
        damaged(&chain, &stored[..stored.len() - 1]);
        damaged(&chain, &[&stored[..], &[0; 8]].concat());
        damaged(&chain, &[]);
        // Blocks that never end.
        decode(&chain, &vec![0xff; stored.len()]).unwrap_or_default();
    }
}

#[test]
fn the_rate_of_zarrs_is_told_by_its_size() {
    // 6 bits of each of 64 values, for blocks of 16.
    let chain = chain(&zfp(json!({"mode": "fixed_rate", "rate": 6})), "int32", &[8, 8]).unwrap();
    let error = decode(&chain, &[0; 4 * 48]).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("'minbits' and 'maxbits' 384"), "{hint}");
    assert!(decode(&chain, &[0; 4 * 48 + 8]).unwrap_err().hint().is_none());
}
