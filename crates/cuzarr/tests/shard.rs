//! Shards: their inner chunks are read and rewritten by themselves.

mod model;

use std::sync::Arc;

use cuzarr::ErrorKind;
use cuzarr::internal::store::testing::Observed;
use cuzarr::plan::Selection;
use cuzarr::store::{ByteRange, MemoryStore, Store, StoreExt};
use cuzarr_device::Device;
use model::{Story, bytes_codec, devices, metadata, sharding, zstd_codec};
use serde_json::{Value, json};

const INDEX_BYTES: u64 = 16 * 4 + 4;

fn region(start: u64, extent: u64) -> Selection {
    Selection::region(&[start], &[extent]).unwrap()
}

/// Two and a half shards of 4 inner chunks of 8 `uint16` elements, all written.
fn written(codecs: Value, location: &str) -> (Story, Arc<Observed>) {
    let store = Arc::new(Observed::new(Arc::new(MemoryStore::new())));
    let mut story =
        Story::new(metadata(&[80], &[32], "uint16", json!(0), sharding(&[8], codecs, location)), store.clone());
    story.write(Device::Cpu, &Selection::all(&[80]), &(1..81u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    store.take_operations();
    (story, store)
}

#[test]
fn neighbouring_inner_chunks_are_read_together_and_others_not_at_all() {
    let (mut story, store) = written(json!([bytes_codec("little")]), "end");
    story.options.coalesce_gap_bytes = 0;
    story.check(Device::Cpu, &region(10, 20), "three of four inner chunks");
    let index = ("a/c/0".to_string(), ByteRange::Suffix { size_bytes: INDEX_BYTES });
    assert_eq!(store.take_reads(), [index, ("a/c/0".to_string(), ByteRange::Span { offset: 20, size_bytes: 40 })]);
    let (story, store) = written(json!([bytes_codec("little"), zstd_codec()]), "start");
    story.check(Device::Cpu, &region(33, 2), "one inner chunk");
    let reads = store.take_reads();
    assert_eq!(reads[0], ("a/c/1".to_string(), ByteRange::Span { offset: 0, size_bytes: INDEX_BYTES }));
    assert!(reads.len() == 2 && matches!(reads[1].1, ByteRange::Span { offset: INDEX_BYTES, size_bytes: 1..40 }));
}

#[test]
fn a_missing_inner_chunk_is_fill_value_or_an_error() {
    for device in devices() {
        let (mut story, store) = written(json!([bytes_codec("little"), zstd_codec()]), "end");
        story.write(device, &region(8, 8), &[0; 16]);
        story.check(device, &Selection::all(&[80]), "an inner chunk was emptied");
        story.options.read_missing_chunks = false;
        let error = story.try_read(device, &Selection::all(&[80])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChunkNotFound);
        assert_eq!(error.trail(), ["chunk 'a/c/0', inner chunk [1]"]);
        story.check(device, &region(16, 64), "inner chunks that exist");
        story.write(device, &region(0, 32), &[0; 64]);
        assert_eq!(store.get("a/c/0").unwrap(), None, "a shard without chunks is not stored");
    }
}

#[test]
fn a_partial_write_keeps_the_bytes_of_other_inner_chunks() {
    for device in devices() {
        let (mut story, store) = written(json!([bytes_codec("little"), zstd_codec()]), "end");
        let before = store.get("a/c/0").unwrap().unwrap();
        story.write(device, &region(9, 3), &[7, 1, 7, 1, 7, 1]);
        let after = store.get("a/c/0").unwrap().unwrap();
        let inner = |object: &[u8], number: usize| {
            let index = object.len() - INDEX_BYTES as usize;
            let word = |at: usize| u64::from_le_bytes(object[index + at..index + at + 8].try_into().unwrap()) as usize;
            let (offset, size) = (word(number * 16), word(number * 16 + 8));
            object[offset..offset + size].to_vec()
        };
        for number in [0, 2, 3] {
            assert_eq!(inner(&before, number), inner(&after, number), "inner chunk {number}");
        }
        assert_ne!(inner(&before, 1), inner(&after, 1));
        story.check(device, &Selection::all(&[80]), "after a partial write");
    }
}

#[test]
fn damaged_shards_are_named() {
    for device in devices() {
        let (story, store) = written(json!([bytes_codec("little"), zstd_codec()]), "end");
        let sound = store.get("a/c/1").unwrap().unwrap();
        let index = sound.len() - INDEX_BYTES as usize;
        let mut flipped_index = sound.clone();
        flipped_index[index + 3] ^= 1;
        let mut flipped_chunk = sound.clone();
        flipped_chunk[10] ^= 0xff;
        for (damage, what) in [
            (sound[..20].to_vec(), "shorter than its index"),
            (sound[..sound.len() - 1].to_vec(), "cut"),
            (flipped_index, "index"),
            (flipped_chunk, "inner chunk"),
        ] {
            store.write("a/c/1", &damage).unwrap();
            let error = story.try_read(device, &Selection::all(&[80])).unwrap_err();
            let corrupt = matches!(error.kind(), ErrorKind::ChunkCorrupt | ErrorKind::ChecksumMismatch);
            assert!(corrupt && error.trail()[0].starts_with("chunk 'a/c/1'"), "{what}: {error:?}");
            assert_eq!(story.engine.memory(device).used_bytes(), 0);
            story.check(device, &region(0, 32), "another shard");
            let error = story.try_write(device, &region(33, 1), &[1, 1]).map(|()| None).unwrap_or_else(Some);
            let stored = store.get("a/c/1").unwrap().unwrap();
            assert!(error.is_some() == (stored == damage), "{what}: a damaged shard is repaired whole or left alone");
        }
        store.write("a/c/1", &sound).unwrap();
        story.check(device, &Selection::all(&[80]), "after the repair");
    }
}

/// Chunks that are read together are told apart: the one whose entry is damaged is named, and the others are read without it.
#[test]
fn an_entry_that_leaves_its_shard_is_named() {
    for device in devices() {
        for location in ["end", "start"] {
            let (story, store) = written(json!([bytes_codec("little"), zstd_codec()]), location);
            let sound = store.get("a/c/1").unwrap().unwrap();
            let index = if location == "end" { sound.len() - INDEX_BYTES as usize } else { 0 };
            let mut damaged = sound.clone();
            let offset = u64::from_le_bytes(sound[index + 16..index + 24].try_into().unwrap()) + sound.len() as u64;
            damaged[index + 16..index + 24].copy_from_slice(&offset.to_le_bytes());
            let entries = index..index + INDEX_BYTES as usize - 4;
            let checksum = crc32c::crc32c(&damaged[entries.clone()]);
            damaged[entries.end..entries.end + 4].copy_from_slice(&checksum.to_le_bytes());
            store.write("a/c/1", &damaged).unwrap();
            let error = story.try_read(device, &Selection::all(&[80])).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{error:?}");
            assert_eq!(error.trail()[0], "chunk 'a/c/1', inner chunk [1]", "{location}");
            story.check(device, &region(32, 8), "the chunk before it");
            story.check(device, &region(48, 32), "the chunks behind it");
        }
    }
}

/// A shard inside a shard has no chunks among the bytes of its neighbour.
#[test]
fn an_entry_that_leaves_a_shard_inside_another_is_refused() {
    for device in devices() {
        let codecs = sharding(&[4], sharding(&[2], json!([bytes_codec("little")]), "end"), "end");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = Story::new(metadata(&[8], &[8], "uint16", json!(0), codecs), Arc::clone(&store));
        story.write(device, &region(0, 8), &(1..9u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>());
        let mut damaged = store.get("a/c/0").unwrap().unwrap();
        // Two chunks of 4 bytes, an index of two entries with its checksum, and then the other shard.
        let entries = 8..40;
        damaged[8..16].copy_from_slice(&44u64.to_le_bytes());
        let checksum = crc32c::crc32c(&damaged[entries.clone()]);
        damaged[entries.end..entries.end + 4].copy_from_slice(&checksum.to_le_bytes());
        store.write("a/c/0", &damaged).unwrap();
        let error = story.try_read(device, &region(0, 8)).unwrap_err();
        assert_eq!((error.kind(), &*error.trail()[0]), (ErrorKind::ChunkCorrupt, "chunk 'a/c/0', inner chunk [0, 0]"));
        story.check(device, &region(2, 6), "the other chunks");
    }
}

/// Where the index lies makes no difference to what a shard is that ends inside it.
#[test]
fn a_shard_that_ends_in_its_index_is_corrupt() {
    for device in devices() {
        for location in ["end", "start"] {
            let (story, store) = written(json!([bytes_codec("little"), zstd_codec()]), location);
            for size in [0, 1, INDEX_BYTES as usize - 1] {
                store.write("a/c/1", &vec![7; size]).unwrap();
                let error = story.try_read(device, &Selection::all(&[80])).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ChunkCorrupt, "{location}: {error:?}");
                assert_eq!(error.trail()[0], "chunk 'a/c/1': shard index", "{location}: {error:?}");
            }
        }
    }
}

#[test]
fn shards_in_shards_are_resolved() {
    for device in devices() {
        let codecs = sharding(&[8, 4], sharding(&[2, 2], json!([bytes_codec("big"), zstd_codec()]), "start"), "end");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut story = Story::new(metadata(&[30, 20], &[16, 8], "int32", json!(5), codecs), store);
        let value: Vec<u8> = (0..11 * 9).flat_map(|number: i32| number.to_ne_bytes()).collect();
        story.write(device, &Selection::region(&[3, 5], &[11, 9]).unwrap(), &value);
        story.check(device, &Selection::all(&[30, 20]), "nested");
        story.write(device, &Selection::region(&[13, 0], &[4, 20]).unwrap(), &vec![1; 4 * 20 * 4]);
        story.check(device, &Selection::all(&[30, 20]), "nested, rewritten in part");
    }
}
