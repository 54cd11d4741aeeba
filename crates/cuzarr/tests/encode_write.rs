//! Writes whose chunks kernels encode: what is stored is read by the host's codecs, what holds nothing is not stored.

mod model;

use std::sync::Arc;

use cuzarr::internal::codec::Support;
use cuzarr::internal::run::Engine;
use cuzarr::internal::run::tuning;
use cuzarr::plan::Selection;
use cuzarr::run::Stage;
use cuzarr::store::{MemoryStore, StoreExt};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, metadata, sharding};
use serde_json::{Value, json};

fn devices() -> Vec<Device> {
    model::kernel_devices()
}

fn blosc(shuffle: &str, type_bytes: usize) -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": "lz4", "clevel": 5, "shuffle": shuffle, "typesize": type_bytes, "blocksize": 1024}})
}

fn lz4() -> Value {
    json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})
}

fn story(shape: &[u64], chunks: &[u64], data_type: &str, fill: Value, codecs: Value) -> Story {
    let mut story = Story::new(metadata(shape, chunks, data_type, fill, codecs), Arc::new(MemoryStore::new()));
    // However little it is, kernels encode it.
    tuning(&mut story.options).force_device = true;
    story
}

/// Smooth numbers, of which some chunks are the fill value.
fn values(story: &Story, selection: &Selection, dice: &mut Dice) -> Vec<u8> {
    let numbers = story.numbers(selection);
    numbers
        .iter()
        .flat_map(|&at| match story.element_bytes {
            4 => (((at / 7) % 300) as u32 + dice.below(2) as u32).to_ne_bytes().to_vec(),
            8 => (250.0 + (at as f64 / 50.0).sin().round()).to_ne_bytes().to_vec(),
            _ => vec![(at / 5 % if story.dtype == DType::BOOL { 2 } else { 3 }) as u8; story.element_bytes],
        })
        .collect()
}

fn check_all(story: &mut Story, context: &str) {
    let shape = story.metadata.shape().to_vec();
    let (all, mut dice) = (Selection::all(&shape), Dice(shape.iter().sum()));
    for device in devices() {
        let value = values(story, &all, &mut dice);
        story.write(device, &all, &value);
        story.check(Device::Cpu, &all, context);
        story.check(device, &all, context);
        // Parts of chunks are merged with their old elements.
        for _ in 0..3 {
            let selection = story.random_selection(&mut dice);
            let value = values(story, &selection, &mut dice);
            story.write(device, &selection, &value);
        }
        story.check(Device::Cpu, &all, context);
        story.write(device, &all, &story.fill.repeat(shape.iter().product::<u64>() as usize));
        assert_eq!(story.store.list("a").unwrap().len(), 0, "{context}: {device}: nothing needs to be stored");
    }
}

#[test]
fn every_chain_that_kernels_encode_is_read_back() {
    let scale = json!({"name": "numcodecs.fixedscaleoffset",
        "configuration": {"offset": 200, "scale": 1, "dtype": "<f8", "astype": "<u2"}});
    let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let crc = json!({"name": "crc32c"});
    let mut blosc_zstd = blosc("shuffle", 4);
    blosc_zstd["configuration"]["cname"] = json!("zstd");
    let cases = [
        ("uint32", json!([bytes_codec("little"), blosc("shuffle", 4)])),
        ("uint32", json!([bytes_codec("big"), blosc("bitshuffle", 4)])),
        ("float32", json!([bytes_codec("little"), blosc("noshuffle", 4), crc])),
        ("uint32", json!([bytes_codec("little"), blosc_zstd])),
        ("uint32", json!([transpose, bytes_codec("little"), lz4()])),
        ("uint32", json!([bytes_codec("little"), shuffle, lz4(), crc])),
        (
            "uint32",
            json!([bytes_codec("little"), lz4(), {"name": "numcodecs.adler32", "configuration": {"location": "start"}}]),
        ),
        ("uint32", json!([bytes_codec("little"), lz4(), crc, {"name": "numcodecs.fletcher32"}])),
        ("float64", json!([scale, bytes_codec("little"), blosc("shuffle", 2)])),
        ("uint8", json!([bytes_codec("little"), lz4()])),
        ("uint32", sharding(&[10, 20], json!([bytes_codec("little"), blosc("shuffle", 4), crc]), "end")),
    ];
    for (data_type, codecs) in cases {
        let context = codecs.to_string();
        // Neither extent is whole chunks: those at the edges hang over it.
        let mut story = story(&[70, 90], &[20, 40], data_type, json!(0), codecs);
        check_all(&mut story, &context);
    }
}

fn delta(dtype: &str, astype: &str) -> Value {
    json!({"name": "numcodecs.delta", "configuration": {"dtype": dtype, "astype": astype}})
}

/// Chains whose filters are steps of their own between packed chunks and frames.
fn filtered() -> Vec<(&'static str, Value)> {
    let shuffle = json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let bits = json!({"name": "numcodecs.packbits"});
    let packed = |padding: &str| json!({"name": "packbits", "configuration": {"padding_encoding": padding}});
    let crc = json!({"name": "crc32c"});
    vec![
        ("uint32", json!([delta("<u4", "<u4"), bytes_codec("little"), lz4()])),
        ("uint32", json!([delta("<u4", "<u8"), bytes_codec("big"), blosc("shuffle", 8), crc])),
        ("uint32", json!([transpose, delta("<u4", "<u4"), bytes_codec("little"), shuffle, lz4()])),
        ("uint32", json!([delta("<u4", "<u4"), transpose, bytes_codec("big"), blosc("bitshuffle", 4)])),
        ("float64", json!([delta("<f8", "<f8"), bytes_codec("little"), blosc("shuffle", 8)])),
        ("float64", json!([delta("<f8", "<f4"), bytes_codec("little"), lz4()])),
        ("uint8", json!([delta("|u1", "|u1"), bytes_codec("little"), lz4()])),
        ("bool", json!([bits, bytes_codec("little"), lz4(), crc])),
        ("bool", json!([bits, bytes_codec("little"), blosc("noshuffle", 1)])),
        ("bool", json!([bits, delta("|u1", "|u1"), bytes_codec("little"), lz4()])),
        ("bool", json!([packed("first_byte"), lz4(), crc])),
        ("uint32", json!([transpose, packed("last_byte"), blosc("shuffle", 4)])),
        ("float64", json!([packed("none"), lz4()])),
    ]
}

#[test]
fn chunks_behind_filters_are_encoded_by_kernels_and_read_back() {
    for (data_type, codecs) in filtered() {
        let context = codecs.to_string();
        let mut story = story(&[70, 90], &[20, 40], data_type, json!(0), codecs);
        for device in devices() {
            let stages = story.access(device).chain().describe_encoding(device, None);
            assert!(stages.iter().all(|stage| stage.support == Support::Native), "{context}: {stages:?}");
        }
        check_all(&mut story, &context);
    }
}

#[test]
fn filters_give_what_the_host_gives() {
    let mut dice = Dice(11);
    let rounded = |bits: u32| json!({"name": "bitround", "configuration": {"keepbits": bits}});
    let mut cases =
        vec![("float16", rounded(3)), ("float32", rounded(0)), ("float32", rounded(10)), ("float64", rounded(1))];
    cases.extend(["int8", "uint8", "int16", "uint32", "int64", "uint64"].map(|data_type| (data_type, rounded(3))));
    cases.extend([("int32", rounded(1)), ("complex64", rounded(4)), ("complex128", rounded(11))]);
    cases.extend([("complex_float16", rounded(2)), ("complex_bfloat16", rounded(3))]);
    for (data_type, dtype) in
        [("float16", "<f2"), ("float32", "<f4"), ("float64", "<f8"), ("int16", "<i2"), ("int64", "<i8")]
    {
        cases.push((data_type, delta(dtype, dtype)));
    }
    for (data_type, filter) in cases {
        let codecs = json!([filter, bytes_codec("little"), lz4()]);
        let made = || story(&[3, 1500], &[1, 1500], data_type, json!(0), codecs.clone());
        // Bytes that are any number: NaN of every kind, infinities, what wraps.
        let (all, size) = (Selection::all(&[3, 1500]), 3 * 1500 * made().element_bytes);
        let value: Vec<u8> = (0..size).map(|_| if dice.chance(4) { 0xff } else { dice.below(256) as u8 }).collect();
        for device in devices() {
            let stages = made().access(device).chain().describe_encoding(device, None);
            assert!(stages.iter().all(|stage| stage.support == Support::Native), "{stages:?}");
            let stored = [Device::Cpu, device].map(|writer| {
                let story = made();
                story.try_write(writer, &all, &value).unwrap();
                // What the filter gave, without what takes it back.
                let plain = story_of(&story, json!([bytes_codec("little"), lz4()]), data_type);
                plain.try_read(Device::Cpu, &all).unwrap()
            });
            assert!(stored[0] != value, "{codecs} changes elements");
            assert!(stored[0] == stored[1], "{device}: {data_type} {codecs}");
        }
    }
}

/// Every element of the type, or so many that none is far: as bits.
fn elements(bytes: usize, dice: &mut Dice) -> u64 {
    let bits = dice.below(1 << 32) << 32 | dice.below(1 << 32);
    match (bytes, dice.below(6)) {
        // Near zero of both signs, near the largest numbers, and anything.
        (_, 0) => dice.below(40),
        (_, 1) => dice.below(40).wrapping_neg(),
        (4, 2) => (dice.below(600) as f32 / 2.0 - 150.0).to_bits().into(),
        (8, 2) => (dice.below(1 << 20) as f64 / 4.0 - 131_072.0).to_bits(),
        (_, 3) => (1 << (8 * bytes - 1)) - 20 + dice.below(40),
        _ => bits,
    }
}

/// `cast_value` and `scale_offset` with what they make of elements, and whether any of those may have no value.
fn checked() -> Vec<(&'static str, &'static str, Value)> {
    let cast = |to: &str, rounding: &str, range: &str, map: Value| {
        let mut codec = json!({"name": "cast_value", "configuration": {"data_type": to, "rounding": rounding,
            "scalar_map": {"encode": map}}});
        if range != "error" {
            codec["configuration"]["out_of_range"] = json!(range);
        }
        codec
    };
    let infinite = json!([["NaN", 7], ["Infinity", 1], ["-Infinity", 2]]);
    let scale = |offset: i64, scale: i64| {
        json!({"name": "scale_offset",
        "configuration": {"offset": offset, "scale": scale}})
    };
    vec![
        ("float32", "uint8", cast("uint8", "nearest-even", "clamp", infinite.clone())),
        ("float64", "int16", cast("int16", "towards-negative", "wrap", infinite.clone())),
        ("float64", "int64", cast("int64", "nearest-away", "clamp", infinite.clone())),
        ("float64", "uint64", cast("uint64", "towards-positive", "wrap", infinite)),
        ("float64", "float32", cast("float32", "towards-zero", "clamp", json!([["NaN", 5.5]]))),
        ("float32", "float16", cast("float16", "nearest-even", "clamp", json!([]))),
        ("int64", "float32", cast("float32", "towards-positive", "error", json!([[3, "NaN"]]))),
        ("int32", "int8", cast("int8", "nearest-even", "wrap", json!([[0, 1], [1, 0]]))),
        ("uint64", "int64", cast("int64", "nearest-even", "clamp", json!([]))),
        ("int8", "int32", cast("int32", "nearest-even", "error", json!([]))),
        ("int32", "int32", scale(-5, 3)),
        ("uint16", "uint16", scale(0, 2)),
        ("int64", "int64", scale(-i64::MAX, 1)),
        ("int8", "int8", scale(1, -2)),
        ("uint64", "uint64", scale(0, 3)),
        ("float64", "int32", cast("int32", "nearest-even", "error", json!([]))),
        ("float32", "float16", cast("float16", "nearest-even", "error", json!([]))),
        ("int32", "uint8", cast("uint8", "nearest-even", "error", json!([[-1, 200]]))),
    ]
}

/// Four rounds by default, as many as `CUZARR_DAMAGE_ROUNDS` says for a campaign.
#[test]
fn elements_that_are_checked_are_what_the_host_makes_of_them_or_its_errors() {
    let (mut dice, mut written, mut refused) = (Dice(17), 0, 0);
    let rounds = std::env::var("CUZARR_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4);
    for (data_type, stored_type, filter) in checked() {
        let codecs = json!([filter, bytes_codec("little"), lz4()]);
        let made = || story(&[4, 200], &[1, 200], data_type, json!(0), codecs.clone());
        let (width, all) = (made().element_bytes, Selection::all(&[4, 200]));
        for device in devices() {
            let stages = made().access(device).chain().describe_encoding(device, None);
            assert!(stages.iter().all(|stage| stage.support == Support::Native), "{stages:?}");
        }
        for round in 0..rounds {
            let few = round % 2 == 0;
            // Chunks of small numbers have a value each.
            let element = |dice: &mut Dice| if few { dice.below(20) } else { elements(width, dice) };
            let of_float =
                |number: u64| if width == 4 { (number as f32).to_bits().into() } else { (number as f64).to_bits() };
            let value = (0..4 * 200).flat_map(|_| {
                let bits = element(&mut dice);
                let bits = if few && data_type.starts_with("float") { of_float(bits) } else { bits };
                bits.to_le_bytes()[..width].to_vec()
            });
            let value: Vec<u8> = value.collect();
            for device in devices() {
                let [host, here] = [Device::Cpu, device].map(|writer| {
                    let story = made();
                    story.try_write(writer, &all, &value)?;
                    let metadata =
                        metadata(&[4, 200], &[1, 200], stored_type, json!(0), json!([bytes_codec("little"), lz4()]));
                    Story::new(metadata, Arc::clone(&story.store)).try_read(Device::Cpu, &all)
                });
                match (host, here) {
                    (Ok(host), Ok(here)) => {
                        written += 1;
                        assert!(host == here, "{device}: {data_type} {codecs}");
                    }
                    (Err(host), Err(here)) => {
                        refused += 1;
                        assert_eq!(here.kind(), host.kind(), "{device}: {data_type} {codecs}");
                        // Of chunks that have such an element, either side may tell of another one first.
                        assert_eq!(here.trail()[1..], host.trail()[1..], "{device}: {here}");
                        assert!(here.message().starts_with("element "), "{device}: {here}");
                    }
                    (host, here) => panic!("{device}: {data_type} {codecs}: {:?}, {:?}", host.err(), here.err()),
                }
            }
        }
    }
    assert!(devices().is_empty() || (written > 40 && refused > 5), "{written} written, {refused} refused");
}

/// The same stored chunks, as these codecs read them.
fn story_of(story: &Story, codecs: Value, data_type: &str) -> Story {
    let metadata = metadata(&[3, 1500], &[1, 1500], data_type, json!(0), codecs);
    Story::new(metadata, Arc::clone(&story.store))
}

#[test]
fn frames_come_from_kernels_and_cross_the_bus_compressed() {
    for device in devices() {
        let mut story = story(&[64, 256], &[16, 256], "uint32", json!(0), json!([bytes_codec("little"), lz4()]));
        let value: Vec<u8> = (0..64 * 256u32).flat_map(|at| (1 + at / 64).to_ne_bytes()).collect();
        let source = NdBuffer::from_host(device, story.dtype, &[64, 256], Order::C, &value).unwrap();
        let all = Selection::all(&[64, 256]);
        let report = story.engine.write(&story.access(device), &story.store, &all, &source, &story.options).unwrap();
        let (gathered, downloaded) = (report.stage(Stage::Gather), report.stage(Stage::Download));
        assert!(gathered.size_bytes >= value.len() as u64, "{device}: {report}");
        assert!(downloaded.size_bytes < value.len() as u64 / 4, "{device}: {report}");
        assert_eq!(
            downloaded.size_bytes.next_multiple_of(64),
            report.stage(Stage::Flush).size_bytes.next_multiple_of(64)
        );
        story.elements = value;
        story.check(Device::Cpu, &all, "compressed");
        tuning(&mut story.options).force_device = false;
        let report = story.engine.write(&story.access(device), &story.store, &all, &source, &story.options).unwrap();
        assert!(report.stage(Stage::Download).size_bytes >= 64 << 10, "so little is the host's to encode");
        story.check(Device::Cpu, &all, "by the host");
    }
}

#[test]
fn kernels_encode_large_chunks_within_little_memory() {
    for device in devices() {
        let mut story = story(&[64, 256], &[32, 256], "uint32", json!(0), json!([bytes_codec("little"), lz4()]));
        let value: Vec<u8> = (0..64 * 256u32).flat_map(|at| (1 + at / 64).to_ne_bytes()).collect();
        let source = NdBuffer::from_host(device, story.dtype, &[64, 256], Order::C, &value).unwrap();
        // Memory for one batch at a time.
        story.options.memory_limit_bytes = 24 * (32 << 10);
        let (all, access) = (Selection::all(&[64, 256]), story.access(device));
        let report = story.engine.write(&access, &story.store, &all, &source, &story.options).unwrap();
        assert!(report.stage(Stage::Download).size_bytes < value.len() as u64 / 4, "{device}: {report}");
        story.elements = value;
        story.check(Device::Cpu, &all, "one batch at a time");
        let places = |limit_bytes| {
            let options = story.options.clone().with_memory_limit_bytes(limit_bytes);
            Engine::explain_write(&access, &story.store, &all, &options).unwrap().placements
        };
        assert!(places(24 * (32 << 10)).iter().all(|place| place.via_host.is_none()));
        let reasons: Vec<_> = places(32 << 10).into_iter().filter_map(|place| place.via_host).collect();
        assert!(reasons.iter().any(|reason| reason.contains("memory")), "{reasons:?}");
    }
}

#[test]
fn large_frames_are_written_in_parts() {
    use cuzarr::internal::store::testing::{Observed, Operation};
    use cuzarr::store::LocalStore;
    let mut dice = Dice(3);
    let value: Vec<u8> = (0..128 * 128).flat_map(|_| (dice.below(1 << 32) as u32).to_ne_bytes()).collect();
    let all = Selection::all(&[128, 128]);
    for device in devices() {
        for checksum in [json!([]), json!([{"name": "crc32c"}]), json!([{"name": "numcodecs.adler32"}])] {
            let codecs = [&[bytes_codec("little"), lz4()], &checksum.as_array().unwrap()[..]].concat();
            let mut story = story(&[128, 128], &[64, 64], "uint32", json!(0), json!(codecs));
            let folder = tempfile::tempdir().unwrap();
            let store = Arc::new(Observed::new(Arc::new(LocalStore::new(folder.path()).unwrap())));
            story.store = store.clone();
            tuning(&mut story.options).slab_bytes = 4096;
            story.write(device, &all, &value);
            let parts =
                store.take_operations().into_iter().filter(|operation| matches!(operation, Operation::Part(..)));
            assert!(parts.count() >= 4 * 16, "{device}: {checksum}");
            story.check(Device::Cpu, &all, &format!("{checksum}"));
            story.check(device, &all, &format!("{checksum}"));
        }
    }
}

#[test]
fn chunks_of_nan_are_left_out_only_with_the_bits_of_the_fill_value() {
    for device in devices() {
        for (data_type, nan) in [
            ("float16", 0x7e00_u16.to_ne_bytes().to_vec()),
            ("bfloat16", 0x7fc0_u16.to_ne_bytes().to_vec()),
            ("float32", f32::NAN.to_ne_bytes().to_vec()),
            ("float64", f64::NAN.to_ne_bytes().to_vec()),
            ("complex64", f32::NAN.to_ne_bytes().repeat(2)),
            ("complex128", f64::NAN.to_ne_bytes().repeat(2)),
        ] {
            let fill = if data_type.starts_with("complex") { json!(["NaN", "NaN"]) } else { json!("NaN") };
            let size = nan.len();
            for packing in [blosc("shuffle", size), lz4()] {
                let mut story = story(&[48], &[16], data_type, fill.clone(), json!([bytes_codec("little"), packing]));
                // The first chunk has the fill value's NaN, the second one NaNs of other bits, the third one such a NaN at its end.
                let mut value = nan.repeat(48);
                value[16 * size..32 * size].copy_from_slice(&vec![0xff; 16 * size]);
                value[47 * size..].copy_from_slice(&vec![0xff; size]);
                let all = Selection::all(&[48]);
                story.write(device, &all, &value);
                let mut stored = story.store.list("a").unwrap();
                stored.sort();
                assert_eq!(stored, ["a/c/1", "a/c/2"], "{device}: {data_type}");
                story.check(Device::Cpu, &all, data_type);
            }
        }
    }
}

#[test]
fn chunks_of_the_fill_value_are_stored_where_that_is_asked() {
    for device in devices() {
        let mut story = story(&[40], &[16], "uint32", json!(5), json!([bytes_codec("little"), blosc("shuffle", 4)]));
        story.options.write_empty_chunks = true;
        story.write(device, &Selection::all(&[40]), &5u32.to_ne_bytes().repeat(40));
        assert_eq!(story.store.list("a").unwrap().len(), 3);
        story.check(Device::Cpu, &Selection::all(&[40]), "stored");
        let at_edge = story.store.get("a/c/2").unwrap().unwrap();
        let whole = story.store.get("a/c/0").unwrap().unwrap();
        assert_eq!(at_edge, whole, "what hangs over the edge is the fill value");
    }
}

#[test]
fn a_failed_store_fails_the_write_and_gives_everything_back() {
    use cuzarr::internal::store::testing::{Observed, Operation};
    use cuzarr::{Error, ErrorKind};
    for device in devices() {
        let mut story = story(&[64, 64], &[8, 64], "uint32", json!(0), json!([bytes_codec("little"), lz4()]));
        let failing = Observed::new(Arc::clone(&story.store)).with_failure(|operation| match operation {
            Operation::Write(key, _) if key == "a/c/3/0" => {
                Some(Error::new(ErrorKind::StoreFailed, "the disk is full"))
            }
            _ => None,
        });
        story.store = Arc::new(failing);
        let error = story.try_write(device, &Selection::all(&[64, 64]), &vec![3; 64 * 64 * 4]).unwrap_err();
        assert_eq!((error.kind(), error.trail()[0].as_str()), (ErrorKind::StoreFailed, "chunk 'a/c/3/0'"));
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
    }
}

#[test]
fn shards_are_written_in_turn_as_their_chunks_come() {
    use cuzarr::internal::store::testing::{Observed, Operation};
    use cuzarr::store::{LocalStore, Store};
    use cuzarr::{Error, ErrorKind};
    let (shape, all) = ([250, 130], Selection::all(&[250, 130]));
    let mut dice = Dice(11);
    // Chunks without an element that is not the fill value are not stored: one in the middle of a shard, and a whole shard.
    let is_filled = |row: u64, column: u64| (row / 64, column / 64) != (2, 0) && row < 192;
    let value: Vec<u8> = (0..shape[0])
        .flat_map(|row| (0..shape[1]).map(move |column| is_filled(row, column)))
        .flat_map(|filled| if filled { 1 + dice.below(1 << 31) as u32 } else { 0 }.to_ne_bytes())
        .collect();
    for device in devices() {
        for location in ["start", "end"] {
            let codecs = model::sharding(&[64, 64], json!([bytes_codec("little"), lz4()]), location);
            let mut story = story(&shape, &[64, 192], "uint32", json!(0), codecs);
            let folder = tempfile::tempdir().unwrap();
            let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
            let store = Arc::new(Observed::new(Arc::clone(&local)));
            story.store = store.clone();
            tuning(&mut story.options).slab_bytes = 40_000;
            // As many shards take turns as there are threads.
            story.options.threads = 4;
            let part_of = |operation| match operation {
                Operation::Part(key, ..) => Some(key),
                _ => None,
            };
            let mut write = || {
                story.write(device, &all, &value);
                let parts: Vec<_> = store.take_operations().into_iter().filter_map(part_of).collect();
                let of = |key: &str| parts.iter().filter(|part| *part == key).count();
                assert_eq!(
                    ["0", "1", "2", "3"].map(|row| of(&format!("a/c/{row}/0"))),
                    [4, 4, 3, 0],
                    "{device}: {parts:?}"
                );
                let last_of_first = parts.iter().rposition(|part| part == "a/c/0/0").unwrap();
                parts[..last_of_first].iter().any(|part| part == "a/c/2/0")
            };
            // Threads that are held up may end the first shard early. Shards one by one never begin the third before that.
            assert!((0..10).any(|_| write()), "{device}: one by one");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(Device::Cpu, &all, location);
            story.check(device, &all, location);

            let failing = Observed::new(Arc::clone(&local)).with_failure(|operation| match operation {
                Operation::Part(key, offset, _) if key == "a/c/1/0" && *offset > 9000 => {
                    Some(Error::new(ErrorKind::StoreFailed, "the disk is full"))
                }
                _ => None,
            });
            story.store = Arc::new(failing);
            let noise: Vec<u8> = (0..250 * 130).flat_map(|_| (dice.below(1 << 32) as u32).to_ne_bytes()).collect();
            let before = local.get("a/c/1/0").unwrap();
            let error = story.try_write(device, &all, &noise).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
            assert!(error.trail()[0].starts_with("chunk 'a/c/1/0', inner chunk"), "{error}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            assert_eq!(local.get("a/c/1/0").unwrap(), before);
            for row in 0..4 {
                let files = std::fs::read_dir(folder.path().join(format!("a/c/{row}"))).map_or(0, Iterator::count);
                assert!(files <= 1, "no rests: {files} in {row}");
            }
        }
    }
}
