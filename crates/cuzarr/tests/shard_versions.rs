//! Shards that other writers replace: each read sees one version of a shard, and the newest one.

mod model;

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use cuzarr::internal::plan::ResultOf;
use cuzarr::internal::run::Access;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::plan::Selection;
use cuzarr::store::{ByteRange, LocalStore, MemoryStore, Store, StoreExt};
use cuzarr::{ErrorKind, Result};
use cuzarr_device::{Device, NdBuffer, Order};
use model::{Story, bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::json;

const INDEX: ByteRange = ByteRange::Suffix { size_bytes: 4 * 16 + 4 };
const NOTHING: ByteRange = ByteRange::Span { offset: 0, size_bytes: 0 };

/// Shards of 4 inner chunks of 8 `uint16` elements, without compression.
fn story(shards: u64, store: Arc<dyn Store>) -> Story {
    let codecs = sharding(&[8], json!([bytes_codec("little")]), "end");
    Story::new(metadata(&[32 * shards], &[32], "uint16", json!(0), codecs), store)
}

fn whole(story: &Story) -> Selection {
    Selection::all(story.metadata.shape())
}

fn elements(story: &Story, value: u16) -> Vec<u8> {
    value.to_ne_bytes().repeat(story.metadata.shape()[0] as usize)
}

fn read(story: &Story, access: &Access, selection: &Selection) -> Result<Vec<u8>> {
    let shape: Vec<usize> = selection.shape().iter().map(|&extent| extent as usize).collect();
    let out = NdBuffer::empty(access.device(), story.dtype, &shape, Order::C).unwrap();
    story.engine.read(access, &story.store, selection, &out, &story.options)?;
    Ok(out.to_host_bytes(Order::C).unwrap())
}

#[test]
fn an_open_array_decodes_the_index_of_a_version_once() {
    for device in devices() {
        let store = Arc::new(Observed::new(Arc::new(MemoryStore::new())));
        let mut story = story(1, store.clone());
        let everything = whole(&story);
        story.write(Device::Cpu, &everything, &elements(&story, 3));
        let access = story.access(device);
        let check = |story: &Story, what: &str, expected: &[ByteRange]| {
            store.take_operations();
            assert!(read(story, &access, &everything).unwrap() == story.elements, "{what}: wrong elements");
            let ranges: Vec<ByteRange> = store.take_reads().into_iter().map(|(_, range)| range).collect();
            assert_eq!(ranges, expected, "{what}");
        };
        let chunks = ByteRange::Span { offset: 0, size_bytes: 64 };
        check(&story, "first", &[INDEX, chunks]);
        check(&story, "the same version", &[NOTHING, chunks]);
        story.write(Device::Cpu, &everything, &elements(&story, 4));
        check(&story, "replaced", &[NOTHING, INDEX, chunks]);
        story.write(Device::Cpu, &Selection::region(&[8], &[24]).unwrap(), &[0; 48]);
        check(&story, "chunks are gone", &[NOTHING, INDEX, ByteRange::Span { offset: 0, size_bytes: 16 }]);
        story.write(Device::Cpu, &everything, &elements(&story, 0));
        check(&story, "the shard is gone", &[NOTHING]);
    }
}

#[test]
fn a_shard_of_files_is_read_in_its_newest_version() {
    let folder = tempfile::tempdir().unwrap();
    let mut story = story(3, Arc::new(LocalStore::new(folder.path()).unwrap()));
    let access = story.access(Device::Cpu);
    for value in [1, 2, 3, 0, 4] {
        story.write(Device::Cpu, &whole(&story), &elements(&story, value));
        assert_eq!(read(&story, &access, &whole(&story)).unwrap(), story.elements, "{value}");
    }
}

/// So many shards of files, every element 7.
fn written(shards: u64) -> (tempfile::TempDir, Arc<dyn Store>, Story) {
    let folder = tempfile::tempdir().unwrap();
    let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
    let mut story = story(shards, Arc::clone(&local));
    story.write(Device::Cpu, &whole(&story), &elements(&story, 7));
    (folder, local, story)
}

/// Does something at the first read of chunks, when the indexes are known.
fn meddled(inner: Arc<dyn Store>, meddle: impl Fn() + Send + Sync + 'static) -> (Arc<dyn Store>, Arc<AtomicBool>) {
    let (armed, once) = (Arc::new(AtomicBool::new(false)), Mutex::new(meddle));
    let trigger = Arc::clone(&armed);
    let store = Observed::new(inner).with_failure(move |operation| {
        let of_chunks = matches!(operation, Operation::Read(request) if matches!(request.range, ByteRange::Span { size_bytes: 1.., .. }));
        if of_chunks && trigger.swap(false, Ordering::SeqCst) {
            (once.lock().unwrap())();
        }
        None
    });
    (Arc::new(store), armed)
}

#[test]
fn a_read_sees_one_version_of_a_shard_that_is_replaced_meanwhile() {
    for device in devices() {
        let (_folder, local, mut story) = written(1);
        let newer = local.get("a/c/0").unwrap().unwrap();
        // The older version has its chunks elsewhere: behind a byte that nobody names.
        let older = [&[0xEE][..], &newer[..64].iter().map(|_| 9).collect::<Vec<u8>>(), &newer[64..]].concat();
        let older = moved(&older);
        local.write("a/c/0", &older).unwrap();
        let (store, armed) = meddled(Arc::clone(&local), move || local.write("a/c/0", &newer).unwrap());
        story.store = store;
        armed.store(true, Ordering::SeqCst);
        let access = story.access(device);
        assert_eq!(read(&story, &access, &whole(&story)).unwrap(), [9; 64], "as it was when its index was read");
        assert!(!armed.load(Ordering::SeqCst));
        assert_eq!(read(&story, &access, &whole(&story)).unwrap(), elements(&story, 7), "as it is now");
    }
}

/// A shard whose index says that every chunk lies a byte further.
fn moved(shard: &[u8]) -> Vec<u8> {
    let (chunks, index) = shard.split_at(shard.len() - 68);
    let mut entries: Vec<u8> = index[..64].to_vec();
    for offset in entries.chunks_exact_mut(16) {
        offset[0] += 1;
    }
    let checksum = crc32c::crc32c(&entries);
    [chunks, &entries, &checksum.to_le_bytes()].concat()
}

#[test]
fn a_shard_that_was_closed_and_replaced_meanwhile_is_an_error() {
    // More shards than are kept open.
    let (_folder, local, mut story) = written(200);
    let replace = move || {
        (0..200).for_each(|shard| {
            let key = format!("a/c/{shard}");
            local.write(&key, &local.get(&key).unwrap().unwrap()).unwrap();
        });
    };
    let (store, armed) = meddled(Arc::clone(&story.store), replace);
    story.store = store;
    story.check(Device::Cpu, &whole(&story), "nobody else writes");
    armed.store(true, Ordering::SeqCst);
    let error = story.try_read(Device::Cpu, &whole(&story)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFailed);
    assert!(error.message().contains("replaced by another writer"), "{error:?}");
    story.check(Device::Cpu, &whole(&story), "read again");
}

#[test]
fn a_shard_that_changes_in_place_meanwhile_is_an_error() {
    let (folder, local, mut story) = written(1);
    let path = folder.path().join("a/c/0");
    let (store, armed) = meddled(local, move || overwrite(&path));
    story.store = store;
    armed.store(true, Ordering::SeqCst);
    let error = story.try_read(Device::Cpu, &whole(&story)).unwrap_err();
    assert!(error.kind() == ErrorKind::StoreFailed && error.message().contains("changed in place"), "{error:?}");
}

/// Writes the same bytes to the same file, a minute later.
fn overwrite(path: &Path) {
    fs::write(path, fs::read(path).unwrap()).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
}

#[test]
fn several_boxes_of_shards_in_shards_are_read() {
    for device in devices() {
        let inner = sharding(&[2], json!([bytes_codec("little"), zstd_codec()]), "end");
        let codecs = sharding(&[8], inner, "end");
        let mut story = Story::new(metadata(&[64], &[16], "uint16", json!(0), codecs), Arc::new(MemoryStore::new()));
        story.write(Device::Cpu, &whole(&story), &(0..64u16).flat_map(u16::to_ne_bytes).collect::<Vec<_>>());
        let boxes = [0, 9, 3, 21, 1].map(|start| Selection::region(&[start], &[7]).unwrap());
        let out = NdBuffer::empty(device, story.dtype, &[boxes.len(), 7], Order::C).unwrap();
        story
            .engine
            .read_one(&story.access(device), &story.store, ResultOf::Stack(&boxes), &out, &story.options)
            .unwrap();
        let expected: Vec<u8> = boxes.iter().flat_map(|one| story.expected(one)).collect();
        assert_eq!(out.to_host_bytes(Order::C).unwrap(), expected);
    }
}
