//! Writes of parts of chunks from a device: kernels decode the old chunk, the new elements go over it, and kernels encode it again.
//! What is stored is what the host would have stored, element by element.

mod model;

use std::sync::Arc;

use cuzarr::internal::run::tuning;
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::run::Stage;
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Array, ArrayOptions, ErrorKind};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, kernel_devices, metadata, sharding};
use serde_json::{Value, json};

fn story(shape: &[u64], chunks: &[u64], data_type: &str, fill: Value, codecs: Value) -> Story {
    let mut story = Story::new(metadata(shape, chunks, data_type, fill, codecs), Arc::new(MemoryStore::new()));
    // However little it is, kernels encode it.
    tuning(&mut story.options).force_device = true;
    story
}

fn range(start: u64, count: u64) -> AxisSelection {
    AxisSelection { start, count, step: 1, dropped: false }
}

fn blosc(cname: &str, shuffle: &str, type_bytes: usize) -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": type_bytes, "blocksize": 512}})
}

/// A codec that has kernels for both directions.
fn compressor(dice: &mut Dice, width: usize) -> Value {
    dice.pick(&[
        json!({"name": "zstd", "configuration": {"level": 0, "checksum": false}}),
        json!({"name": "zstd", "configuration": {"level": 3, "checksum": true}}),
        json!({"name": "gzip", "configuration": {"level": 5}}),
        json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
        blosc("lz4", "shuffle", width),
        blosc("zstd", "bitshuffle", width),
    ])
}

/// An array of two dimensions whose chunks kernels merge.
fn random_story(dice: &mut Dice) -> Story {
    let (data_type, width, fill) = dice.pick(&[
        ("uint8", 1, json!(0)),
        ("bool", 1, json!(false)),
        ("int16", 2, json!(-3)),
        ("uint32", 4, json!(7)),
        ("float32", 4, json!("NaN")),
        ("float64", 8, json!(0.0)),
    ]);
    let mut codecs = Vec::new();
    if dice.chance(3) {
        codecs.push(json!({"name": "transpose", "configuration": {"order": [1, 0]}}));
    }
    match (data_type, dice.below(2)) {
        ("bool", 0) => codecs.push(json!({"name": "numcodecs.packbits"})),
        ("int16", 0) => codecs.push(json!({"name": "numcodecs.fixedscaleoffset",
            "configuration": {"offset": -5, "scale": 1, "dtype": "<i2", "astype": "<i4"}})),
        ("uint32", 0) => {
            codecs.push(json!({"name": "numcodecs.delta", "configuration": {"dtype": "<u4", "astype": "<u4"}}));
        }
        _ => {}
    }
    codecs.push(match dice.chance(8) {
        true => json!({"name": "packbits", "configuration": {"padding_encoding": dice.pick(&["none", "last_byte"])}}),
        false => bytes_codec(dice.pick(&["little", "big"])),
    });
    codecs.push(compressor(dice, width));
    if dice.chance(3) {
        codecs.push(json!({"name": "crc32c"}));
    }
    let inner: Vec<u64> = (0..2).map(|_| 1 + dice.below(12)).collect();
    let shape: Vec<u64> = (0..2).map(|_| 1 + dice.below(40)).collect();
    let (mut codecs, mut outer) = (json!(codecs), inner);
    if dice.chance(3) {
        codecs = sharding(&outer, codecs, dice.pick(&["start", "end"]));
        outer = outer.iter().map(|extent| extent * (1 + dice.below(3))).collect();
    }
    story(&shape, &outer, data_type, fill, codecs)
}

/// Stored objects of the array.
fn keys(store: &Arc<dyn Store>) -> Vec<String> {
    let mut keys = store.list("a").unwrap();
    keys.sort();
    keys
}

/// Runs 40 random programs on each device. `CUZARR_DAMAGE_ROUNDS` sets another number, for campaigns.
#[test]
fn random_writes_from_a_device_store_what_the_host_stores() {
    let rounds = std::env::var("CUZARR_DAMAGE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    let mut merged = 0;
    for device in kernel_devices() {
        for round in 0..rounds {
            let mut dice = Dice(round);
            let mut here = random_story(&mut dice);
            here.options.write_empty_chunks = dice.chance(6);
            let mut host = Story::new(here.metadata.clone(), Arc::new(MemoryStore::new()));
            host.options.write_empty_chunks = here.options.write_empty_chunks;
            let all = Selection::all(here.metadata.shape());
            for step in 0..6 {
                let selection = if dice.chance(5) { all.clone() } else { here.random_selection(&mut dice) };
                let value = here.random_value(&mut dice, &selection);
                let context = format!(
                    "round {round}, step {step}: {selection} of {}",
                    String::from_utf8_lossy(&here.metadata.to_json())
                );
                let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
                let source = NdBuffer::from_host(device, here.dtype, &shape, Order::C, &value).unwrap();
                let (access, store) = (here.access(Device::Cpu), Arc::clone(&here.store));
                let report = here.engine.write(&access, &store, &selection, &source, &here.options);
                let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
                merged += u64::from(report.stage(Stage::Decode).size_bytes > 0);
                assert_eq!(here.engine.memory(device).used_bytes(), 0, "{context}: memory is given back");
                host.write(Device::Cpu, &selection, &value);
                here.elements.clone_from(&host.elements);
                here.check(Device::Cpu, &all, &context);
                assert_eq!(keys(&here.store), keys(&host.store), "{context}: {device}");
            }
            here.check(device, &all, &format!("round {round}"));
        }
    }
    assert!(kernel_devices().is_empty() || merged > rounds, "{merged} of {rounds} programs merged");
}

#[test]
fn kernels_decode_merge_and_encode_parts_and_the_report_says_so() {
    let shards = sharding(&[16, 256], json!([bytes_codec("little"), blosc("zstd", "shuffle", 4)]), "end");
    let plain = json!([bytes_codec("little"), {"name": "zstd", "configuration": {"level": 3, "checksum": false}}]);
    for device in kernel_devices() {
        for (codecs, chunks) in [(plain.clone(), [16, 256]), (shards.clone(), [32, 256])] {
            let mut story = story(&[64, 256], &chunks, "uint32", json!(0), codecs);
            let smooth = |count: u32, first: u32| (0..count).flat_map(move |at| (first + at / 64).to_ne_bytes());
            let all = Selection::all(&[64, 256]);
            story.write(device, &all, &smooth(64 * 256, 1).collect::<Vec<_>>());
            // The second half of a chunk, two whole ones, and the first half of another.
            let part = Selection::new(vec![range(8, 48), range(0, 256)]).unwrap();
            let value: Vec<u8> = smooth(48 * 256, 500).collect();
            let source = NdBuffer::from_host(device, story.dtype, &[48, 256], Order::C, &value).unwrap();
            let report =
                story.engine.write(&story.access(device), &story.store, &part, &source, &story.options).unwrap();
            let (uploaded, decoded) = (report.stage(Stage::Upload), report.stage(Stage::Decode));
            assert!(uploaded.size_bytes > 0 && uploaded.size_bytes < 16 << 10, "frames come, not elements: {report}");
            assert_eq!(decoded.size_bytes, 2 * 16 * 256 * 4, "two chunks are decoded: {report}");
            assert!(report.stage(Stage::Download).size_bytes < value.len() as u64 / 4, "frames go: {report}");
            let start = 8 * 256 * 4;
            story.elements[start..start + value.len()].copy_from_slice(&value);
            story.check(Device::Cpu, &all, "merged");
            story.check(device, &all, "merged");
        }
    }
}

#[test]
fn chunks_that_become_the_fill_value_in_parts_are_removed() {
    for device in kernel_devices() {
        let scale = json!({"name": "numcodecs.fixedscaleoffset",
            "configuration": {"offset": -5, "scale": 2, "dtype": "<f8", "astype": "<u2"}});
        for (data_type, filter) in [("uint32", None), ("float64", Some(scale))] {
            let codecs: Vec<Value> =
                filter.into_iter().chain([bytes_codec("little"), compressor(&mut Dice(4), 2)]).collect();
            let mut story = story(&[40], &[16], data_type, json!(0), json!(codecs));
            let width = story.element_bytes;
            let ones =
                if data_type == "uint32" { 250_u32.to_ne_bytes().to_vec() } else { 250_f64.to_ne_bytes().to_vec() };
            story.write(device, &Selection::all(&[40]), &ones.repeat(40));
            for (start, count, left) in [(0, 8, 3), (8, 8, 2), (33, 7, 2), (32, 1, 1)] {
                let part = Selection::new(vec![range(start, count)]).unwrap();
                story.write(device, &part, &vec![0; count as usize * width]);
                assert_eq!(story.store.list("a").unwrap().len(), left, "{device}: {data_type}, from {start}");
                story.check(Device::Cpu, &Selection::all(&[40]), "some removed");
            }
        }
    }
}

/// Gzip files of several members, as other writers append them: kernels refuse some, and some are larger than any that we write.
#[test]
fn frames_that_only_the_host_decodes_are_merged_as_well() {
    for device in kernel_devices() {
        let codecs = json!([bytes_codec("little"), {"name": "gzip", "configuration": {"level": 5}}]);
        let mut story = story(&[64], &[32], "uint32", json!(0), codecs);
        story.write(Device::Cpu, &Selection::all(&[64]), &7_u32.to_ne_bytes().repeat(64));
        // Members of no bytes in front.
        let frame = story.store.get("a/c/0").unwrap().unwrap();
        let empty = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for count in [1, 100] {
            let long = [&empty.repeat(count)[..], &frame].concat();
            story.store.write("a/c/0", &long).unwrap();
            story.elements[..32 * 4].copy_from_slice(&7_u32.to_ne_bytes().repeat(32));
            story.check(Device::Cpu, &Selection::all(&[64]), "several members");
            let part = Selection::new(vec![range(3, 40)]).unwrap();
            story.write(device, &part, &9_u32.to_ne_bytes().repeat(40));
            story.check(Device::Cpu, &Selection::all(&[64]), "merged");
        }
    }
}

#[test]
fn a_damaged_old_chunk_fails_the_write_and_stays() {
    for device in kernel_devices() {
        for name in ["zstd", "numcodecs.lz4"] {
            let codec = match name {
                "zstd" => json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}}),
                _ => json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}),
            };
            let mut story = story(&[2048], &[512], "uint32", json!(0), json!([bytes_codec("little"), codec]));
            let value: Vec<u8> = (0..2048_u32).flat_map(|at| (1 + at * at % 701).to_ne_bytes()).collect();
            story.write(Device::Cpu, &Selection::all(&[2048]), &value);
            let mut damaged = story.store.get("a/c/1").unwrap().unwrap();
            damaged.truncate(damaged.len() - 7);
            story.store.write("a/c/1", &damaged).unwrap();
            let part = Selection::new(vec![range(10, 1500)]).unwrap();
            let error = story.try_write(device, &part, &vec![3; 1500 * 4]);
            // The middle chunks are replaced as a whole, so nobody reads the damaged one.
            error.unwrap();
            story.store.write("a/c/1", &damaged).unwrap();
            let part = Selection::new(vec![range(600, 10)]).unwrap();
            let error = story.try_write(device, &part, &[3; 40]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
            assert_eq!(error.trail()[0], "chunk 'a/c/1'", "{error}");
            assert_eq!(story.store.get("a/c/1").unwrap().unwrap(), damaged, "the old bytes stay");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
        }
    }
}

#[test]
fn explain_says_where_parts_are_merged_and_strict_forbids_the_host() {
    let array = |codecs: Value, device: Device, strict: bool| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let metadata = metadata(&[1 << 22], &[1 << 20], "uint32", json!(0), codecs);
        let options = ArrayOptions::default().with_device(device).with_strict(strict);
        Array::create(store, "a", metadata, false, options).unwrap()
    };
    let zstd = json!([bytes_codec("little"), {"name": "zstd", "configuration": {"level": 3, "checksum": false}}]);
    let part = Selection::new(vec![range(5, 1 << 21)]).unwrap();
    for device in kernel_devices() {
        let zstd = array(zstd.clone(), device, true);
        let whole = zstd.explain_write(&Selection::all(&[1 << 22])).unwrap();
        assert_eq!(whole.merging, None, "each chunk is replaced");
        assert!(!whole.to_string().contains("parts of chunks") && whole.to_json()["parts_of_chunks"].is_null());
        let some = zstd.explain_write(&part).unwrap();
        assert_eq!(some.merging.as_ref().map(|merging| merging.via_host.is_none()), Some(true), "{some}");
        assert_eq!(some.to_json()["parts_of_chunks"]["placement"], "native");
        let plain = array(json!([bytes_codec("little")]), device, false).explain_write(&part).unwrap();
        let reason = plain.merging.as_ref().and_then(|merging| merging.via_host.clone()).unwrap();
        assert!(reason.contains("stored as they are"), "{reason}");
        assert!(plain.to_string().contains("parts of chunks      via host"), "{plain}");
    }
    // In host memory nothing is merged elsewhere.
    let host = array(zstd, Device::Cpu, true).explain_write(&part).unwrap();
    assert_eq!(host.merging.and_then(|merging| merging.via_host), None);
}
