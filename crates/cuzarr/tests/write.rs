//! Writing: what is stored, what is kept, and what a failure leaves.

mod model;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuzarr::internal::run::tuning;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, MemoryStore, Store, StoreExt};
use cuzarr::{CancellationToken, Error, ErrorKind};
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::{Story, bytes_codec, devices, metadata, zstd_codec};
use serde_json::json;

fn story(store: Arc<dyn Store>) -> Story {
    Story::new(metadata(&[7, 10], &[4, 4], "float32", json!(0.0), json!([bytes_codec("little"), zstd_codec()])), store)
}

fn region(start: &[u64], extent: &[u64]) -> Selection {
    Selection::region(start, extent).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[test]
fn chunks_of_nothing_but_the_fill_value_are_not_stored() {
    for device in devices() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = story(Arc::clone(&store));
        story.write(device, &region(&[0, 0], &[7, 6]), &floats(&[3.0; 42]));
        assert_eq!(store.list("a").unwrap().len(), 4);
        story.write(device, &region(&[0, 0], &[4, 5]), &floats(&[0.0; 20]));
        assert_eq!(store.list("a").unwrap(), ["a/c/0/1", "a/c/1/0", "a/c/1/1"], "a whole chunk was emptied");
        story.write(device, &region(&[0, 5], &[4, 1]), &floats(&[0.0; 4]));
        assert_eq!(store.list("a").unwrap(), ["a/c/1/0", "a/c/1/1"], "the rest of a chunk was emptied");
        story.write(device, &region(&[0, 0], &[1, 1]), &floats(&[-0.0]));
        assert_eq!(store.list("a").unwrap().len(), 3, "-0.0 is not 0.0");
        story.options.write_empty_chunks = true;
        story.write(device, &region(&[0, 8], &[4, 2]), &floats(&[0.0; 8]));
        assert_eq!(store.list("a").unwrap().len(), 4);
        story.check(device, &Selection::all(&[7, 10]), "after all");
    }
}

#[test]
fn a_value_is_broadcast_to_the_selection() {
    for device in devices() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = story(store);
        let access = story.access(Device::Cpu);
        let row = NdBuffer::from_host(
            device,
            DType::FLOAT32,
            &[1, 10],
            Order::C,
            &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]),
        )
        .unwrap();
        story.engine.write(&access, &story.store, &Selection::all(&[7, 10]), &row, &story.options).unwrap();
        let scalar = NdBuffer::full(device, DType::FLOAT32, &[], Order::C, &0.5f32.to_ne_bytes()).unwrap();
        story.engine.write(&access, &story.store, &region(&[2, 3], &[4, 4]), &scalar, &story.options).unwrap();
        let at = |row: usize, column: usize| {
            if (2..6).contains(&row) && (3..7).contains(&column) { 0.5 } else { column as f32 + 1.0 }
        };
        story.elements = floats(&(0..70).map(|place| at(place / 10, place % 10)).collect::<Vec<_>>());
        story.check(device, &Selection::all(&[7, 10]), "broadcast");
        let wrong = NdBuffer::zeroed(device, DType::FLOAT32, &[3], Order::C).unwrap();
        let all = Selection::all(&[7, 10]);
        let error = story.engine.write(&access, &story.store, &all, &wrong, &story.options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        let wrong = NdBuffer::zeroed(device, DType::FLOAT64, &[], Order::C).unwrap();
        let error = story.engine.write(&access, &story.store, &all, &wrong, &story.options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DTypeMismatch);
    }
}

#[test]
fn whole_chunks_are_written_without_reading_and_each_once() {
    let store = Arc::new(Observed::new(Arc::new(MemoryStore::new())));
    let mut story = story(store.clone());
    story.write(Device::Cpu, &Selection::all(&[7, 10]), &floats(&[2.0; 70]));
    let mut operations = store.take_operations();
    operations.sort_by_key(|operation| format!("{operation:?}"));
    let keys: Vec<String> = operations
        .iter()
        .map(|operation| match operation {
            Operation::Write(key, _) => key.clone(),
            other => panic!("only writes are needed, got {other:?}"),
        })
        .collect();
    assert_eq!(keys, ["a/c/0/0", "a/c/0/1", "a/c/0/2", "a/c/1/0", "a/c/1/1", "a/c/1/2"]);
    story.write(Device::Cpu, &region(&[1, 1], &[1, 1]), &floats(&[9.0]));
    assert_eq!(store.take_reads(), [("a/c/0/0".into(), cuzarr::store::ByteRange::Full)]);
}

#[test]
fn a_failed_write_leaves_old_values_whole() {
    for device in devices() {
        let folder = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
        let mut story = story(Arc::clone(&local));
        let all = Selection::all(&[7, 10]);
        story.write(device, &all, &floats(&[1.0; 70]));
        let before: Vec<_> = local.list("a").unwrap();
        let failing = Observed::new(Arc::clone(&local)).with_failure(|operation| match operation {
            Operation::Write(key, _) if key == "a/c/1/1" => {
                Some(Error::new(ErrorKind::StoreFailed, "the disk is full"))
            }
            _ => None,
        });
        let failing = Story {
            store: Arc::new(failing),
            metadata: story.metadata.clone(),
            fill: story.fill.clone(),
            elements: story.elements.clone(),
            engine: Arc::clone(&story.engine),
            ..story
        };
        let error = failing.try_write(device, &all, &floats(&[2.0; 70])).unwrap_err();
        assert_eq!((error.kind(), error.trail()[0].as_str()), (ErrorKind::StoreFailed, "chunk 'a/c/1/1'"));
        assert_eq!(failing.engine.memory(device).used_bytes(), 0);
        assert_eq!(local.list("a").unwrap(), before, "no rests");
        let read = failing.try_read(device, &all).unwrap();
        let value = |at: usize| f32::from_ne_bytes(read[at * 4..at * 4 + 4].try_into().unwrap());
        for row in 0..7 {
            for column in 0..10 {
                let got = value(row * 10 + column);
                let first = value(row / 4 * 40 + column / 4 * 4);
                assert!(got == first && (got == 1.0 || got == 2.0), "each chunk is old or new");
                assert!(row < 4 || !(4..8).contains(&column) || got == 1.0, "the failed one is old");
            }
        }
    }
}

/// An array of four chunks of 16 KiB in a local store, whose slabs have room for four parts of a KiB.
fn large(store: Arc<dyn Store>) -> Story {
    let metadata = metadata(&[256, 64], &[64, 64], "uint32", json!(7), json!([bytes_codec("big")]));
    let mut story = Story::new(metadata, store);
    tuning(&mut story.options).slab_bytes = 4096;
    story
}

/// The first chunk counts, the second begins with the fill value, the third only has the fill value, the last one ends with it.
fn large_values() -> Vec<u8> {
    let element = |at: u32| if (6000..12_288).contains(&at) || at > 16_000 { 7 } else { at };
    (0..16_384u32)
        .map(|at| if (4096..6000).contains(&at) { 7 } else { element(at) })
        .flat_map(u32::to_ne_bytes)
        .collect()
}

#[test]
fn large_objects_come_from_devices_in_parts() {
    for device in devices() {
        let folder = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
        let store = Arc::new(Observed::new(Arc::clone(&local)));
        let mut story = large(store.clone());
        let all = Selection::all(&[256, 64]);
        let mut values = large_values();
        values[5000 * 4..5004 * 4].fill(9);
        story.write(device, &all, &values);
        assert_eq!(local.list("").unwrap(), ["a/c/0/0", "a/c/1/0", "a/c/3/0"], "{device}");
        let parts = store.take_operations().into_iter().filter(|operation| matches!(operation, Operation::Part(..)));
        assert_eq!(parts.count() > 0, device != Device::Cpu, "{device}");
        for device in devices() {
            story.check(device, &all, "in parts");
        }
        story.options.write_empty_chunks = true;
        story.write(device, &all, &values);
        assert_eq!(local.list("").unwrap().len(), 4);
        story.check(device, &all, "with empty chunks");
        story.write(device, &region(&[0, 3], &[200, 40]), &values[..200 * 40 * 4]);
        story.check(device, &all, "with parts of chunks");
        for limit in [4 << 10, 20 << 10, 40 << 10, 100 << 10, 200 << 10] {
            story.options.memory_limit_bytes = limit;
            if story.try_write(device, &all, &values).is_ok() {
                story.elements.clone_from(&values);
                story.options.memory_limit_bytes = 1 << 20;
                story.check(device, &all, &format!("within {limit}"));
            } else {
                assert!(limit < 100 << 10, "{limit} bytes are enough");
            }
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
        }
        let rests = std::fs::read_dir(folder.path().join("a/c/0")).unwrap().count();
        assert_eq!(rests, 1, "temporary files are gone");
    }
}

#[test]
fn shards_of_large_chunks_are_written_without_being_put_together() {
    for (location, rows) in [("start", 128), ("end", 128), ("end", 4)] {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Observed::new(Arc::new(LocalStore::new(folder.path()).unwrap())));
        let codecs = model::sharding(&[rows, 128], json!([bytes_codec("little")]), location);
        let metadata = metadata(&[500, 128], &[256, 128], "uint32", json!(0), codecs);
        let mut story = Story::new(metadata, store.clone());
        let values: Vec<u8> = (1..=500 * 128u32).flat_map(u32::to_ne_bytes).collect();
        story.write(Device::Cpu, &Selection::all(&[500, 128]), &values);
        let parts = store.take_operations().into_iter().filter(|operation| matches!(operation, Operation::Part(..)));
        assert_eq!(parts.count(), if rows == 128 { 6 } else { 0 }, "two shards of an index and two chunks");
        story.check(Device::Cpu, &Selection::all(&[500, 128]), location);
        story.write(Device::Cpu, &region(&[100, 3], &[1, 1]), &[9, 0, 0, 0]);
        for device in devices() {
            story.check(device, &Selection::all(&[500, 128]), location);
        }
    }
}

#[test]
fn a_part_that_fails_leaves_the_whole_old_object() {
    for device in model::kernel_devices() {
        let folder = tempfile::tempdir().unwrap();
        let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
        let mut story = large(Arc::clone(&local));
        let all = Selection::all(&[256, 64]);
        story.write(device, &all, &1u32.to_ne_bytes().repeat(256 * 64));
        let old = local.get("a/c/1/0").unwrap();
        let failing = Observed::new(Arc::clone(&local)).with_failure(|operation| match operation {
            Operation::Part(key, 9216, _) if key == "a/c/1/0" => {
                Some(Error::new(ErrorKind::StoreFailed, "the disk is full"))
            }
            _ => None,
        });
        story.store = Arc::new(failing);
        let error = story.try_write(device, &all, &2u32.to_ne_bytes().repeat(256 * 64)).unwrap_err();
        assert_eq!((error.kind(), error.trail()[0].as_str()), (ErrorKind::StoreFailed, "chunk 'a/c/1/0'"));
        assert_eq!(story.engine.memory(device).used_bytes(), 0);
        assert_eq!(local.get("a/c/1/0").unwrap(), old);
        for row in 0..4 {
            let files = std::fs::read_dir(folder.path().join(format!("a/c/{row}"))).unwrap();
            assert_eq!(files.count(), 1, "no rests");
            let chunk = local.get(&format!("a/c/{row}/0")).unwrap().unwrap();
            assert!(chunk.chunks(4).all(|element| element == &chunk[..4]), "chunk {row} is old or new");
        }
    }
}

#[test]
fn a_cancelled_write_ends_before_its_next_object() {
    let kept: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut story = story(Arc::clone(&kept));
    let token = CancellationToken::new();
    story.options.cancellation = token.clone();
    story.options.threads = 1;
    story.store = Arc::new(Observed::new(Arc::clone(&kept)).with_failure(move |operation| {
        if matches!(operation, Operation::Write(..)) {
            // The engine has more threads, and they have time to begin another object.
            std::thread::sleep(Duration::from_millis(20));
            token.cancel();
        }
        None
    }));
    let error = story.try_write(Device::Cpu, &Selection::all(&[7, 10]), &floats(&[1.0; 70])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(kept.list("").unwrap().len(), 1, "the object that was on its way is there, whole");
}

#[test]
fn a_write_listens_while_it_waits_for_its_objects() {
    let kept: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut story = story(Arc::clone(&kept));
    let begun = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&begun);
    let token = CancellationToken::listening(move || asked.load(Ordering::Relaxed));
    story.options.cancellation = token.clone();
    story.store = Arc::new(Observed::new(Arc::clone(&kept)).with_failure(move |operation| {
        if matches!(operation, Operation::Write(..)) {
            begun.store(true, Ordering::Relaxed);
            let end = Instant::now() + Duration::from_secs(20);
            while !token.is_cancelled() && Instant::now() < end {
                std::thread::yield_now();
            }
        }
        None
    }));
    let error = story.try_write(Device::Cpu, &Selection::all(&[7, 10]), &floats(&[1.0; 70])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn a_damaged_chunk_is_not_rewritten_in_part() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut story = story(Arc::clone(&store));
    story.write(Device::Cpu, &Selection::all(&[7, 10]), &floats(&[1.0; 70]));
    store.write("a/c/0/0", b"damage").unwrap();
    let error = story.try_write(Device::Cpu, &region(&[0, 0], &[1, 2]), &floats(&[5.0; 2])).unwrap_err();
    assert_eq!((error.kind(), error.trail()[0].as_str()), (ErrorKind::ChunkCorrupt, "chunk 'a/c/0/0'"));
    assert_eq!(store.get("a/c/0/0").unwrap().unwrap(), b"damage");
    story.write(Device::Cpu, &region(&[0, 0], &[4, 4]), &floats(&[5.0; 16]));
    story.check(Device::Cpu, &Selection::all(&[7, 10]), "replaced as a whole");
}
