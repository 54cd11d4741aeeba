//! Reading arrays whose chunks are decoded by kernels: the same elements as on the CPU, the same errors, the same limits.

mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::internal::codec::{Chain, Support, Work};
use cuzarr::internal::plan::{Costs, Load};
use cuzarr::internal::run::tuning;
use cuzarr::plan::Selection;
use cuzarr::run::{Options, Report, Stage};
use cuzarr::store::{MemoryStore, StoreExt};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, kernel_devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

fn blosc(cname: &str, shuffle: &str) -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 4096}})
}

fn lz4() -> Value {
    json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})
}

fn crc32c() -> Value {
    json!({"name": "crc32c"})
}

fn delta(dtype: &str, astype: &str) -> Value {
    json!({"name": "numcodecs.delta", "configuration": {"dtype": dtype, "astype": astype}})
}

/// An array of `int32` in 4 x 3 chunks of 40 x 50, values of a smooth field; one chunk stays missing.
fn written(codecs: Value) -> Story {
    let mut story =
        Story::new(metadata(&[150, 140], &[40, 50], "int32", json!(-7), codecs), Arc::new(MemoryStore::new()));
    // So few and small chunks are the host's, unless it is forbidden.
    tuning(&mut story.options).force_device = true;
    let mut dice = Dice(11);
    let value: Vec<u8> =
        (0..110 * 140).flat_map(|at: i32| (at / 7 + dice.below(3) as i32 * (at % 5)).to_le_bytes()).collect();
    story.write(Device::Cpu, &Selection::region(&[0, 0], &[110, 140]).unwrap(), &value);
    story
}

fn report(story: &Story, device: Device) -> Report {
    let out = NdBuffer::empty(device, story.dtype, &[150, 140], Order::C).unwrap();
    let all = Selection::all(&[150, 140]);
    story.engine.read(&story.access(device), &story.store, &all, &out, &story.options).unwrap()
}

fn chains() -> Vec<Value> {
    let with = |codec: Value| json!([bytes_codec("little"), codec]);
    vec![
        with(blosc("lz4", "shuffle")),
        with(blosc("lz4hc", "bitshuffle")),
        with(blosc("lz4", "noshuffle")),
        with(lz4()),
        json!([bytes_codec("big"), blosc("lz4", "shuffle")]),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, bytes_codec("little"), lz4()]),
        sharding(&[20, 25], with(blosc("lz4", "shuffle")), "end"),
        sharding(&[8, 10], with(lz4()), "start"),
        with(json!({"name": "zstd", "configuration": {"level": 5, "checksum": true}})),
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, bytes_codec("big"), zstd_codec()]),
        sharding(&[20, 25], with(zstd_codec()), "end"),
    ]
}

#[test]
fn chunks_cross_the_bus_encoded_and_come_out_as_on_the_cpu() {
    for codecs in chains() {
        let mut story = written(codecs.clone());
        let mut dice = Dice(3);
        for device in kernel_devices() {
            let context = format!("{codecs}");
            story.check(device, &Selection::all(&[150, 140]), &context);
            (0..4).for_each(|_| story.check(device, &story.random_selection(&mut dice), &context));
            let sizes = tuning(&mut story.options);
            (sizes.slab_bytes, sizes.decode_batch_bytes) = (9000, 9000);
            story.check(device, &Selection::all(&[150, 140]), &context);
            let report = report(&story, device);
            let (upload, decode) = (report.stage(Stage::Upload).size_bytes, report.stage(Stage::Decode).size_bytes);
            assert!(upload < decode, "{context}: {upload} bytes up, {decode} decoded");
            // All chunks in one batch, whose bytes come by several slabs.
            let sizes = tuning(&mut story.options);
            (sizes.slab_bytes, sizes.decode_batch_bytes) = (2000, 1 << 26);
            story.check(device, &Selection::all(&[150, 140]), &context);
            story.options = Options::default().with_threads(3);
            tuning(&mut story.options).force_device = true;
        }
    }
}

/// Passes around the decoder: checksums on both sides, whole-chunk filters behind it.
fn chains_of_several_passes() -> Vec<Value> {
    vec![
        json!([bytes_codec("little"), lz4(), crc32c()]),
        json!([bytes_codec("little"), {"name": "numcodecs.adler32"}, lz4(), {"name": "numcodecs.fletcher32"}]),
        json!([delta("<i4", "<i4"), bytes_codec("little"), lz4()]),
        // What is stored narrow is widened there, nothing of it can be out of range.
        json!([
            {"name": "cast_value", "configuration": {"data_type": "int16", "out_of_range": "clamp"}},
            bytes_codec("little"), lz4(), crc32c()
        ]),
        json!([delta("<i4", "<f8"), bytes_codec("big"), blosc("lz4", "noshuffle"), crc32c()]),
        json!([
            {"name": "transpose", "configuration": {"order": [1, 0]}}, delta("<i4", "<i4"), bytes_codec("big"),
            {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, {"name": "numcodecs.crc32"}, lz4()
        ]),
        json!([
            delta("<i4", "<i4"), {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "numcodecs.fixedscaleoffset", "configuration":
                {"offset": 0, "scale": 1, "dtype": "<i4", "astype": "<i8"}},
            bytes_codec("little"), lz4()
        ]),
        sharding(&[20, 25], json!([delta("<i4", "<i4"), bytes_codec("little"), lz4(), crc32c()]), "end"),
    ]
}

#[test]
fn passes_around_the_decoder_give_what_they_give_on_the_cpu() {
    for codecs in chains_of_several_passes() {
        let mut story = written(codecs.clone());
        for device in kernel_devices() {
            let stages = Chain::new(&story.metadata).unwrap().describe(device);
            assert!(stages.iter().all(|stage| stage.support == Support::Native), "{stages:?}");
            story.check(device, &Selection::all(&[150, 140]), &format!("{codecs}"));
            tuning(&mut story.options).slab_bytes = 9000;
            story.check(device, &Selection::region(&[30, 20], &[60, 90]).unwrap(), &format!("{codecs}"));
            story.options = Options::default().with_threads(3);
            tuning(&mut story.options).force_device = true;
        }
    }
}

#[test]
fn what_the_host_decompresses_the_device_finishes() {
    let bz2 = json!({"name": "numcodecs.bz2", "configuration": {"level": 1}});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    for arrays in [
        vec![delta("<i4", "<i4")],
        vec![delta("<i4", "<i2")],
        vec![transpose.clone(), delta("<i4", "<i4")],
        vec![delta("<i4", "<i4"), transpose],
    ] {
        for endian in ["little", "big"] {
            let codecs: Vec<Value> =
                arrays.iter().cloned().chain([bytes_codec(endian), crc32c(), bz2.clone()]).collect();
            let chunked = Value::from(codecs);
            for codecs in [sharding(&[20, 25], chunked.clone(), "end"), chunked] {
                let mut story = written(codecs.clone());
                let mut dice = Dice(4);
                for device in kernel_devices() {
                    let context = format!("{codecs}");
                    story.check(device, &Selection::all(&[150, 140]), &context);
                    (0..3).for_each(|_| story.check(device, &story.random_selection(&mut dice), &context));
                    tuning(&mut story.options).slab_bytes = 9000;
                    story.check(device, &Selection::all(&[150, 140]), &context);
                    story.options = Options::default().with_threads(3);
                    tuning(&mut story.options).force_device = true;
                    assert_eq!(story.engine.memory(device).used_bytes(), 0);
                }
            }
        }
    }
}

#[test]
fn a_wrong_checksum_names_chunk_codec_and_byte() {
    for codecs in [
        json!([bytes_codec("little"), lz4(), crc32c()]),
        json!([bytes_codec("little"), {"name": "numcodecs.adler32"}, blosc("lz4", "noshuffle")]),
        json!([bytes_codec("little"), crc32c()]),
    ] {
        let story = written(codecs.clone());
        let key = "a/c/1/1";
        let mut stored = story.store.get(key).unwrap().unwrap();
        // A byte of the checksum behind the data, or a literal that decodes to another.
        let at = stored.len() - 3;
        stored[at] ^= 1;
        story.store.write(key, &stored).unwrap();
        for device in kernel_devices() {
            let error = story.try_read(device, &Selection::all(&[150, 140])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChecksumMismatch, "{codecs}: {error}");
            let text = error.to_string();
            assert!(text.contains(key) && text.contains("32") && text.contains("codec '"), "{text}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(device, &Selection::region(&[0, 0], &[40, 140]).unwrap(), "chunks beside it");
        }
    }
}

#[test]
fn large_chunks_are_fetched_by_several_threads() {
    for codecs in [json!([bytes_codec("little")]), json!([bytes_codec("little"), blosc("lz4", "noshuffle")])] {
        let shape = [2, 600_000];
        let metadata = metadata(&shape, &[1, 600_000], "int32", json!(0), codecs.clone());
        let mut story = Story::new(metadata, Arc::new(MemoryStore::new()));
        let mut dice = Dice(5);
        // Noise, so that what is stored is as large as the chunk.
        let value: Vec<u8> = (0..1_200_000).flat_map(|_| (dice.below(1 << 32) as u32).to_le_bytes()).collect();
        story.write(Device::Cpu, &Selection::all(&shape), &value);
        for device in kernel_devices() {
            story.check(device, &Selection::all(&shape), &format!("{codecs}"));
        }
    }
}

#[test]
fn a_limit_that_is_too_small_for_kernels_is_enough_for_the_host() {
    let mut story = written(json!([bytes_codec("little"), lz4()]));
    story.options.memory_limit_bytes = 4 * 8000;
    for device in kernel_devices() {
        story.check(device, &Selection::all(&[150, 140]), "a small limit");
    }
}

#[test]
fn damage_names_chunk_codec_and_byte() {
    for codec in [blosc("lz4", "shuffle"), lz4(), zstd_codec()] {
        let story = written(json!([bytes_codec("little"), codec]));
        let key = "a/c/1/1";
        let mut stored = story.store.get(key).unwrap().unwrap();
        let at = stored.len() - 1;
        stored[at / 2..].fill(0xff);
        story.store.write(key, &stored).unwrap();
        for device in kernel_devices() {
            let error = story.try_read(device, &Selection::all(&[150, 140])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
            let text = error.to_string();
            assert!(text.contains(key) && text.contains("codec '") && text.contains("byte "), "{text}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(device, &Selection::region(&[0, 0], &[40, 140]).unwrap(), "chunks beside it");
        }
    }
}

#[test]
fn what_is_left_to_the_host_comes_back_when_its_slab_is_gone() {
    let mut story = written(json!([bytes_codec("little"), lz4()]));
    let sizes = tuning(&mut story.options);
    (sizes.slab_bytes, sizes.decode_batch_bytes) = (2000, 1 << 26);
    let key = "a/c/1/1";
    let stored = story.store.get(key).unwrap().unwrap();
    // Too short to have a header: no kernel takes it, and the host says why.
    story.store.write(key, &stored[..2]).unwrap();
    for device in kernel_devices() {
        let error = story.try_read(device, &Selection::all(&[150, 140])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error}");
        assert!(error.to_string().contains(key), "{error}");
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
    }
}

#[test]
fn frames_that_kernels_do_not_know_go_by_way_of_the_host() {
    // Metadata says LZ4, but chunks hold what their writer liked, as Blosc allows.
    let story = written(json!([bytes_codec("little"), blosc("blosclz", "shuffle")]));
    let keys: Vec<String> = (0..6).map(|at| format!("a/c/{}/{}", at / 3, at % 3)).collect();
    let mut mixed = written(json!([bytes_codec("little"), blosc("lz4", "shuffle")]));
    for key in keys.iter().step_by(2) {
        let stored = story.store.get(key).unwrap().unwrap();
        mixed.store.write(key, &stored).unwrap();
    }
    mixed.elements.clone_from(&story.elements);
    for device in kernel_devices() {
        mixed.check(device, &Selection::all(&[150, 140]), "chunks of two compressors");
    }
    for key in &keys {
        mixed.store.write(key, &story.store.get(key).unwrap().unwrap()).unwrap();
    }
    tuning(&mut mixed.options).decode_batch_bytes = 9000;
    for device in kernel_devices() {
        mixed.check(device, &Selection::region(&[0, 0], &[80, 140]).unwrap(), "chunks that no kernel knows");
    }
}

#[test]
fn running_sums_of_floats_are_left_to_the_host_where_chunks_are_few() {
    let codecs = json!([delta("<f4", "<f4"), bytes_codec("little"), zstd_codec()]);
    let chain = Chain::new(&metadata(&[512, 512], &[512, 512], "float32", json!(0), codecs)).unwrap();
    let native = |frames| {
        let leave = |work: Work<'_>| Costs::shipped(132).host_reason(work, Load { threads: 8, frames });
        chain.describe_beside(Device::Cuda(0), &leave).iter().map(|stage| stage.support == Support::Native).collect()
    };
    let (few, many): (Vec<bool>, Vec<bool>) = (native(8), native(512));
    assert_eq!((few, many), (vec![false, true, false], vec![true; 3]));
    assert!(chain.describe(Device::Cuda(0)).iter().all(|stage| stage.support == Support::Native));
}

#[test]
fn descriptions_know_what_is_native() {
    let device = Device::Cuda(0);
    let chain = |codec: Value, side: u64| {
        Chain::new(&metadata(&[side, side], &[side, side], "int32", json!(0), json!([bytes_codec("little"), codec])))
            .unwrap()
    };
    for (codec, side, native) in [
        (blosc("lz4", "shuffle"), 1000, true),
        (blosc("zstd", "shuffle"), 1000, true),
        (blosc("blosclz", "shuffle"), 1000, false),
        (lz4(), 300, true),
        (lz4(), 1000, true),
        (zstd_codec(), 300, true),
    ] {
        let chain = chain(codec.clone(), side);
        let last = chain.describe(device).pop().unwrap();
        assert_eq!(last.support == Support::Native, native, "{codec}");
        // Much is worth a batch on the device; one small frame is not.
        let costs = Costs::shipped(132);
        let beside = |frames, threads| {
            let leave = |work: Work<'_>| costs.host_reason(work, Load { threads, frames });
            chain.describe_beside(device, &leave).pop().unwrap().support == Support::Native
        };
        assert_eq!(beside(8192, 1), native, "{codec}");
        assert!(side > 300 || !beside(1, 16), "{codec}");
        // Kernels encode zstd and LZ4, alone and in Blosc; the host does the rest.
        let encodes = [lz4(), zstd_codec(), blosc("lz4", "shuffle"), blosc("zstd", "shuffle")].contains(&codec);
        let is_native =
            |device| chain.describe_encoding(device, None).iter().all(|stage| stage.support == Support::Native);
        assert_eq!(is_native(device), encodes, "{codec}");
        assert!(
            is_native(Device::Cpu) && chain.describe(Device::Cpu).iter().all(|stage| stage.support == Support::Native)
        );
    }
}
