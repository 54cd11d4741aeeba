//! Arrays whose store keeps its values in device memory: the same elements as from host memory, and no bytes through the
//! host where none are needed.

mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::internal::run::tuning;
use cuzarr::internal::store::testing::Observed;
use cuzarr::plan::Selection;
use cuzarr::run::{Options, Stage};
use cuzarr::store::{ByteRange, GpuMemoryStore, MemoryStore, Prefixed, Store, StoreExt, conformance};
use cuzarr_device::{Buffer, Device, NdBuffer, Order};
use model::{Dice, Story, bytes_codec, devices, kernel_devices, metadata, random_metadata, sharding, zstd_codec};
use serde_json::{Value, json};

fn blosc(cname: &str) -> Value {
    json!({"name": "blosc", "configuration":
        {"cname": cname, "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 4096}})
}

fn lz4() -> Value {
    json!({"name": "numcodecs.lz4", "configuration": {"acceleration": 1}})
}

/// `int32` in chunks that hang over the array's edge, in memory of `device`; one chunk stays missing.
fn written(device: Device, codecs: Value) -> Story {
    let store = Arc::new(GpuMemoryStore::new(device));
    let mut story = Story::new(metadata(&[150, 140], &[40, 50], "int32", json!(-7), codecs), store);
    let mut dice = Dice(11);
    let value: Vec<u8> =
        (0..110 * 140).flat_map(|at: i32| (at / 7 + dice.below(3) as i32 * (at % 5)).to_le_bytes()).collect();
    story.write(device, &Selection::region(&[0, 0], &[110, 140]).unwrap(), &value);
    story
}

#[test]
fn stores_on_devices_conform() {
    for device in devices() {
        conformance::run(&|| Arc::new(GpuMemoryStore::new(device)));
    }
}

#[test]
fn uncompressed_chunks_never_touch_the_host() {
    for device in kernel_devices() {
        for codecs in [
            json!([bytes_codec("little")]),
            json!([bytes_codec("big")]),
            json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, bytes_codec("little")]),
        ] {
            let mut story = Story::new(
                metadata(&[150, 140], &[40, 50], "int32", json!(-7), codecs.clone()),
                Arc::new(GpuMemoryStore::new(device)),
            );
            let all = Selection::all(&[150, 140]);
            let value: Vec<u8> = (0..150 * 140).flat_map(|at: i32| (at * at).to_le_bytes()).collect();
            let array = NdBuffer::from_host(device, story.dtype, &[150, 140], Order::C, &value).unwrap();
            let report =
                story.engine.write(&story.access(Device::Cpu), &story.store, &all, &array, &story.options).unwrap();
            let untouched = [Stage::Download, Stage::Encode, Stage::Upload, Stage::Decode];
            assert!(untouched.iter().all(|&stage| report.stage(stage).size_bytes == 0), "{report:?}");
            story.elements = value;
            let out = NdBuffer::empty(device, story.dtype, &[150, 140], Order::C).unwrap();
            let report = story.engine.read(&story.access(device), &story.store, &all, &out, &story.options).unwrap();
            assert!(untouched.iter().all(|&stage| report.stage(stage).size_bytes == 0), "{report:?}");
            assert!(report.stage(Stage::Fetch).size_bytes >= story.elements.len() as u64);
            story.check(device, &all, &codecs.to_string());
            story.check(Device::Cpu, &all, &codecs.to_string());
            // What was handed over is the store's: another write leaves no trace in it.
            let host = story.store.get("a/c/0/0").unwrap().unwrap();
            array.fill(&[9; 4]).unwrap();
            assert_eq!(story.store.get("a/c/0/0").unwrap().unwrap(), host);
        }
    }
}

#[test]
fn frames_stay_where_kernels_make_them() {
    let crc32c = json!({"name": "crc32c"});
    let adler32 = json!({"name": "numcodecs.adler32"});
    for device in kernel_devices() {
        for codecs in [
            json!([bytes_codec("little"), lz4()]),
            json!([bytes_codec("little"), blosc("lz4"), crc32c]),
            json!([bytes_codec("little"), lz4(), adler32]),
        ] {
            let all = Selection::all(&[150, 140]);
            let array = metadata(&[150, 140], &[40, 50], "int32", json!(-7), codecs.clone());
            let mut story = Story::new(array, Arc::new(GpuMemoryStore::new(device)));
            tuning(&mut story.options).force_device = true;
            let value: Vec<u8> = (0..150 * 140).flat_map(|at: i32| (at / 9).to_le_bytes()).collect();
            let array = NdBuffer::from_host(device, story.dtype, &[150, 140], Order::C, &value).unwrap();
            let report = story.engine.write(&story.access(device), &story.store, &all, &array, &story.options).unwrap();
            assert_eq!(report.stage(Stage::Download).size_bytes, 0, "{report}");
            let stored: u64 =
                story.store.list("a").unwrap().iter().map(|key| story.store.size_bytes(key).unwrap().unwrap()).sum();
            assert_eq!(report.stage(Stage::Flush).size_bytes, stored);
            assert!(stored < value.len() as u64 / 2);
            story.elements = value;
            story.check(device, &all, &codecs.to_string());
            story.check(Device::Cpu, &all, &codecs.to_string());
        }
    }
}

#[test]
fn frames_are_decoded_where_they_are() {
    for device in kernel_devices() {
        for codecs in [
            json!([bytes_codec("little"), blosc("lz4")]),
            json!([bytes_codec("little"), lz4()]),
            sharding(&[20, 25], json!([bytes_codec("little"), blosc("lz4")]), "end"),
            sharding(&[8, 10], json!([bytes_codec("little"), lz4()]), "start"),
        ] {
            let mut story = written(device, codecs.clone());
            let (all, mut dice) = (Selection::all(&[150, 140]), Dice(3));
            // So many threads would decode faster on the host, if the bytes were there.
            story.options = Options::default().with_threads(16);
            story.check(device, &all, &codecs.to_string());
            (0..4).for_each(|_| story.check(device, &story.random_selection(&mut dice), &codecs.to_string()));
            tuning(&mut story.options).slab_bytes = 9000;
            story.check(device, &all, &codecs.to_string());
            let out = NdBuffer::empty(device, story.dtype, &[150, 140], Order::C).unwrap();
            let report = story.engine.read(&story.access(device), &story.store, &all, &out, &story.options).unwrap();
            assert_eq!(report.stage(Stage::Upload).size_bytes, 0, "{codecs}");
        }
    }
}

#[test]
fn frames_that_kernels_do_not_know_are_decoded_on_the_host() {
    for device in kernel_devices() {
        let zstd = written(device, json!([bytes_codec("little"), blosc("zstd")]));
        let mut mixed = written(device, json!([bytes_codec("little"), blosc("lz4")]));
        for key in ["a/c/0/0", "a/c/1/1", "a/c/2/2"] {
            let stored = zstd.store.get(key).unwrap().unwrap();
            mixed.store.write(key, &stored).unwrap();
        }
        mixed.elements.clone_from(&zstd.elements);
        mixed.check(device, &Selection::all(&[150, 140]), "chunks of two compressors");
        zstd.check(device, &Selection::all(&[150, 140]), "chunks that only the host decodes");
    }
}

#[test]
fn random_arrays_are_the_same_from_device_memory() {
    for device in devices() {
        for seed in 0..60 {
            let mut dice = Dice(seed);
            let store = Arc::new(GpuMemoryStore::new(device));
            let mut story = Story::new(random_metadata(&mut dice), store);
            let context = format!("seed {seed} {device}");
            for _ in 0..3 {
                let selection = story.random_selection(&mut dice);
                let value = story.random_value(&mut dice, &selection);
                let from = dice.pick(&[Device::Cpu, device]);
                story.write(from, &selection, &value);
                story.check(dice.pick(&[Device::Cpu, device]), &story.random_selection(&mut dice), &context);
            }
            story.check(device, &Selection::all(story.metadata.shape()), &context);
        }
    }
}

#[test]
fn damage_names_the_chunk() {
    for device in kernel_devices() {
        for (codecs, kind) in [
            (json!([bytes_codec("little")]), ErrorKind::ChunkCorrupt),
            (json!([bytes_codec("little"), lz4()]), ErrorKind::ChunkCorrupt),
            (json!([bytes_codec("little"), zstd_codec()]), ErrorKind::ChunkCorrupt),
        ] {
            let story = written(device, codecs.clone());
            let stored = story.store.get("a/c/1/1").unwrap().unwrap();
            story.store.write("a/c/1/1", &stored[..stored.len() - 1]).unwrap();
            let error = story.try_read(device, &Selection::all(&[150, 140])).unwrap_err();
            assert_eq!(error.kind(), kind, "{codecs}: {error}");
            assert!(error.to_string().contains("a/c/1/1"), "{error}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(device, &Selection::region(&[0, 0], &[40, 140]).unwrap(), "chunks beside it");
        }
    }
}

#[test]
fn views_of_a_store_hand_over_too() {
    for device in kernel_devices() {
        let store: Arc<dyn Store> = Arc::new(GpuMemoryStore::new(device));
        let seen = Arc::new(Observed::new(Arc::new(Prefixed::new(store, "below").unwrap())));
        let chunk = Buffer::from_bytes(device, &[1; 64]).unwrap();
        seen.write_buffer("c/0", &chunk).unwrap();
        assert!(seen.is_on(device) && !seen.is_on(Device::Cpu));
        assert_eq!(seen.get("c/0").unwrap().unwrap(), [1; 64]);
        assert!(!MemoryStore::new().is_on(device));
    }
}

#[test]
fn metadata_stays_on_the_host() {
    for device in devices() {
        let store = GpuMemoryStore::new(device);
        for key in ["zarr.json", "a/.zarray", "a/.zattrs", ".zgroup", ".zmetadata"] {
            store.write(key, b"{}").unwrap();
            store.write_buffer(&format!("b/{key}"), &Buffer::from_bytes(device, b"{}").unwrap()).unwrap();
            assert_eq!(store.value(key).unwrap().unwrap().device(), Device::Cpu, "{key}");
            assert_eq!(store.value(&format!("b/{key}")).unwrap().unwrap().device(), Device::Cpu, "{key}");
        }
        store.write("c/0", b"chunk").unwrap();
        assert_eq!(store.value("c/0").unwrap().unwrap().device(), device);
        let span = ByteRange::Span { offset: 1, size_bytes: 3 };
        for place in [Device::Cpu, device] {
            let part = store.get_buffer("c/0", span, place).unwrap().unwrap();
            assert_eq!((part.device(), part.to_vec().unwrap()), (place, b"hun".to_vec()));
            // What is given away is no window into the store.
            part.copy_from(&Buffer::from_vec(b"new".to_vec())).unwrap();
            assert_eq!(store.get("c/0").unwrap().unwrap(), b"chunk");
            assert!(store.get_buffer("c/1", span, place).unwrap().is_none());
        }
    }
}
