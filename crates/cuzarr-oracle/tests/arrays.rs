//! Whole arrays exchanged with zarrs, another implementation: what one writes, the other reads.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use std::sync::Arc;

use cuzarr::meta::{ArrayMetadata, DataType};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, Store, StoreExt};
use cuzarr_device::Device;
use model::{Dice, Story, bytes_codec, random_metadata, sharding, zstd_codec};
use serde_json::json;
use zarrs::array::{Array, ArrayBytes};
use zarrs::filesystem::FilesystemStore;

/// A random array on disk, with its metadata, of which nothing is written yet. Codecs that zarrs does not have, or under
/// another meaning, are avoided.
fn begin(seed: u64, folder: &std::path::Path) -> (Story, Array<FilesystemStore>) {
    let mut dice = Dice(seed);
    let unknown = |metadata: &ArrayMetadata| {
        let text: String = String::from_utf8_lossy(&metadata.to_json()).split_whitespace().collect();
        // zarrs refuses a Blosc frame of fewer bytes than one of the items that its header tells of.
        let item_bytes = metadata.data_type().size_bytes().unwrap_or(1);
        let has_wider_items = (item_bytes + 1..=4).any(|bytes| text.contains(&format!("\"typesize\":{bytes}")));
        // zarrs writes no padding byte where elements are whole bytes.
        let has_padding = text.contains("first_byte") || text.contains("last_byte");
        let lacks_padding = has_padding && *metadata.data_type() != DataType::Bool;
        let has_unknown = text.contains("numcodecs.packbits") || text.contains("numcodecs.fixedscaleoffset");
        has_unknown || has_wider_items || lacks_padding
    };
    let metadata = std::iter::repeat_with(|| random_metadata(&mut dice)).find(|metadata| !unknown(metadata)).unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder).unwrap());
    store.write("a/zarr.json", &metadata.to_json()).unwrap();
    let theirs = Array::open(Arc::new(FilesystemStore::new(folder).unwrap()), "/a").unwrap();
    (Story::new(metadata, store), theirs)
}

fn whole(array: &Array<FilesystemStore>) -> Vec<u8> {
    let bytes: ArrayBytes<'static> = array.retrieve_array_subset(&array.subset_all()).unwrap();
    bytes.into_fixed().unwrap().into_owned()
}

#[test]
fn zarrs_reads_what_was_written() {
    for seed in 0..80 {
        let folder = tempfile::tempdir().unwrap();
        let (mut story, theirs) = begin(seed, folder.path());
        let mut dice = Dice(seed + 5000);
        for selection in [Selection::all(story.metadata.shape()), story.random_selection(&mut dice)] {
            let value = story.random_value(&mut dice, &selection);
            story.write(Device::Cpu, &selection, &value);
        }
        assert!(
            whole(&theirs) == story.elements,
            "seed {seed}: {}",
            String::from_utf8_lossy(&story.metadata.to_json())
        );
    }
}

#[test]
fn what_zarrs_writes_is_read() {
    for seed in 100..180 {
        let folder = tempfile::tempdir().unwrap();
        let (mut story, theirs) = begin(seed, folder.path());
        let mut dice = Dice(seed + 5000);
        let all = Selection::all(story.metadata.shape());
        story.elements = story.random_value(&mut dice, &all);
        if !story.elements.is_empty() {
            theirs.store_array_subset(&theirs.subset_all(), ArrayBytes::new_flen(story.elements.clone())).unwrap();
        }
        let context = format!("seed {seed}: {}", String::from_utf8_lossy(&story.metadata.to_json()));
        story.check(Device::Cpu, &all, &context);
        story.check(Device::Cpu, &story.random_selection(&mut dice), &context);
    }
}

#[test]
fn both_rewrite_parts_of_one_sharded_array() {
    let folder = tempfile::tempdir().unwrap();
    let codecs = sharding(&[4, 6], json!([bytes_codec("little"), zstd_codec()]), "end");
    let metadata = model::metadata(&[30, 30], &[12, 12], "int32", json!(-1), codecs);
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
    store.write("a/zarr.json", &metadata.to_json()).unwrap();
    let theirs = Array::open(Arc::new(FilesystemStore::new(folder.path()).unwrap()), "/a").unwrap();
    let mut story = Story::new(metadata, store);
    for round in 0..6u64 {
        let (start, extent) = ([round * 3, 20 - round * 2], [9, 7]);
        let selection = Selection::region(&start, &extent).unwrap();
        let value: Vec<u8> = (0..63).flat_map(|at: i32| (at * 100 + round as i32).to_ne_bytes()).collect();
        if round % 2 == 0 {
            story.write(Device::Cpu, &selection, &value);
        } else {
            let subset = zarrs::array::ArraySubset::new_with_start_shape(start.to_vec(), extent.to_vec()).unwrap();
            theirs.store_array_subset(&subset, ArrayBytes::new_flen(value.clone())).unwrap();
            for (number, place) in story.numbers(&selection).into_iter().enumerate() {
                story.elements[place * 4..place * 4 + 4].copy_from_slice(&value[number * 4..number * 4 + 4]);
            }
        }
        story.check(Device::Cpu, &Selection::all(&[30, 30]), "ours");
        assert!(whole(&theirs) == story.elements, "theirs, round {round}");
    }
}
