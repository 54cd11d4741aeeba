use std::sync::atomic::{AtomicUsize, Ordering};

use super::documents::Lookup;
use super::hierarchy::walk_documents;
use super::*;
use crate::config::Accelerator;
use crate::meta::{DataType, Extension, GroupMetadata, NodeDocuments};
use crate::plan::Selection;
use crate::store::testing::{Observed, Operation};
use crate::store::{LocalStore, MemoryStore, Prefixed, ReadOnly, Split, StoreExt, join_key};
use cuzarr_device::{Device, NdBuffer};
use serde_json::{Map, Value, json};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn options() -> ArrayOptions {
    ArrayOptions::default()
}

fn array_v3(shape: &[u64], chunks: &[u64]) -> ArrayMetadata {
    let array = Array::builder(shape, DataType::Int32).chunks(chunks).compressor("none");
    array.metadata().unwrap()
}

fn array_v2(shape: &[u64], chunks: &[u64]) -> ArrayMetadata {
    let array = Array::builder(shape, DataType::Int32).chunks(chunks).compressor("none");
    array.zarr_format(ZarrFormat::V2).metadata().unwrap()
}

fn attributes(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn paths(group: &Group, max_depth: Option<usize>) -> Vec<String> {
    group.members(max_depth).unwrap().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn creating_an_array_creates_the_groups_above_it() {
    for (metadata, keys) in [
        (array_v3(&[4], &[2]), vec!["a/b/zarr.json", "a/zarr.json", "zarr.json"]),
        (array_v2(&[4], &[2]), vec![".zattrs", ".zgroup", "a/.zattrs", "a/.zgroup", "a/b/.zarray", "a/b/.zattrs"]),
    ] {
        let store = memory();
        let created = Array::create(Arc::clone(&store), "/a/b/", metadata.clone(), false, options()).unwrap();
        assert_eq!((created.path(), created.name().as_str()), ("a/b", "/a/b"));
        assert_eq!(store.list("").unwrap(), keys);
        let opened = Array::open(Arc::clone(&store), "a/b", options()).unwrap();
        assert_eq!(opened.metadata().to_json(), metadata.to_json());
        let Node::Group(root) = open_existing(store, "", None, options()).unwrap() else { panic!("root is no group") };
        assert_eq!(paths(&root, None), ["a", "a/b"]);
        assert_eq!(paths(&root, Some(0)), ["a"]);
    }
}

#[test]
fn an_array_whose_chunks_cannot_be_deleted_shrinks_only_where_none_are_stored() {
    let store = memory();
    let undeleting: Arc<dyn Store> = Arc::new(Observed::new(Arc::clone(&store)).without_deletes());
    let mut array = Array::create(undeleting, "a", array_v3(&[8], &[2]), false, options()).unwrap();
    store.write("a/c/1", &[7; 8]).unwrap();
    array.resize(vec![5]).unwrap();
    let before = store.get("a/zarr.json").unwrap();
    let error = array.resize(vec![2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("from [5] to [2]: 'a/c/1' would have to be deleted"), "{error}");
    assert_eq!((store.get("a/zarr.json").unwrap(), array.shape()), (before, &[5][..]));
}

#[test]
fn creating_keeps_attributes_of_groups_above() {
    let store = memory();
    let group = Group::create(Arc::clone(&store), "a", ZarrFormat::V3, attributes(json!({"x": 1})), false, options());
    group.unwrap().create_array("b/c", array_v3(&[1], &[1]), false).unwrap();
    let group = Group::open(store, "a", None, Consolidation::WhenPresent, options()).unwrap();
    assert_eq!(group.metadata().attributes(), &attributes(json!({"x": 1})));
    assert_eq!(paths(&group, None), ["b", "b/c"]);
}

#[test]
fn creation_refuses_what_is_there_and_overwrites_when_asked() {
    for metadata in [array_v3(&[4], &[2]), array_v2(&[4], &[2])] {
        let store = memory();
        let format = metadata.zarr_format();
        let create = |overwrite| Array::create(Arc::clone(&store), "x", metadata.clone(), overwrite, options());
        create(false).unwrap();
        store.write("x/c/0", b"chunk").unwrap();
        assert_eq!(create(false).unwrap_err().kind(), ErrorKind::ContainsArray);
        let group = |overwrite| Group::create(Arc::clone(&store), "x", format, Map::new(), overwrite, options());
        assert_eq!(group(false).unwrap_err().kind(), ErrorKind::ContainsArray);
        group(true).unwrap();
        assert!(!store.exists("x/c/0").unwrap(), "overwriting deletes old chunks");
        assert_eq!(create(false).unwrap_err().kind(), ErrorKind::ContainsGroup);
        let below = Array::create(Arc::clone(&store), "x/y", metadata.clone(), false, options());
        below.unwrap();
        let error = Array::create(Arc::clone(&store), "x/y/z", metadata.clone(), false, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ContainsArray);
        assert!(error.message().contains("only groups have members"), "{error}");
        assert!(!store.list("").unwrap().iter().any(|key| key.starts_with("x/y/z/")), "nothing was stored");
    }
}

#[test]
fn metadata_with_unknown_codecs_is_refused_before_anything_is_stored() {
    let store = memory();
    let array = Array::builder([4], DataType::Int32).codecs([Extension::new("nonsense", Map::new())]).overwrite(true);
    let error = array.create_in(Arc::clone(&store), "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownCodec, "{error}");
    assert_eq!(store.list("").unwrap(), Vec::<String>::new());
}

#[test]
fn one_of_many_concurrent_creators_wins() {
    let directory = tempfile::tempdir().unwrap();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let root = directory.path().join(format.number().to_string());
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(root).unwrap());
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6u64)
                .map(|i| {
                    let store = Arc::clone(&store);
                    let metadata =
                        if format == ZarrFormat::V3 { array_v3(&[i + 1], &[1]) } else { array_v2(&[i + 1], &[1]) };
                    scope.spawn(move || Array::create(store, "deep/x", metadata, false, options()))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = outcomes.iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        assert!(outcomes.iter().flat_map(|o| o.as_ref().err()).all(|error| error.kind() == ErrorKind::ContainsArray));
        let stored = Array::open(store, "deep/x", options()).unwrap();
        assert_eq!(stored.shape(), winners[0].shape());
    }
}

#[test]
fn v3_metadata_wins_over_v2_with_a_warning() {
    let store = memory();
    Array::create(Arc::clone(&store), "", array_v2(&[4], &[2]), false, options()).unwrap();
    assert!(Array::open(Arc::clone(&store), "", options()).unwrap().warnings().is_empty());
    Array::create(Arc::clone(&store), "", array_v3(&[5], &[2]), false, options()).unwrap();
    let both = Array::open(Arc::clone(&store), "", options()).unwrap();
    assert_eq!(both.shape(), [5]);
    assert!(both.warnings()[0].contains("both zarr.json and .zarray"), "{:?}", both.warnings());
    let v2 = Array::open_format(store, "", Some(ZarrFormat::V2), options()).unwrap();
    assert_eq!((v2.shape(), v2.warnings().len()), (&[4][..], 0));
}

#[test]
fn modes_open_create_and_refuse_as_in_zarr_python() {
    let kind = |result: Result<Node>| result.map(|node| node.name()).map_err(|error| error.kind());
    let open = |store: &Arc<dyn Store>, mode: &str| {
        kind(super::open(Arc::clone(store), "n", mode.parse().unwrap(), None, options()))
    };
    for mode in ["r", "r+"] {
        assert_eq!(open(&memory(), mode), Err(ErrorKind::GroupNotFound).or(Err(ErrorKind::NodeNotFound)), "{mode}");
    }
    for mode in ["a", "w", "w-"] {
        assert_eq!(open(&memory(), mode), Ok("/n".into()), "{mode}");
    }
    let store = memory();
    Array::create(Arc::clone(&store), "n", array_v3(&[4], &[2]), false, options()).unwrap();
    let shape = |mode: &str| match super::open(Arc::clone(&store), "n", mode.parse().unwrap(), None, options()) {
        Ok(Node::Array(array)) => Ok(array.shape().to_vec()),
        Ok(Node::Group(_)) => Ok(vec![]),
        Err(error) => Err(error.kind()),
    };
    for mode in ["r", "r+", "a"] {
        assert_eq!(shape(mode), Ok(vec![4]), "{mode}");
    }
    assert_eq!(shape("w-"), Err(ErrorKind::ContainsArray));
    assert_eq!(shape("w"), Ok(vec![]), "'w' without a shape makes a group");
    assert_eq!(shape("r"), Ok(vec![]));
    assert_eq!("x".parse::<Mode>().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn mode_r_cannot_write_and_writing_modes_need_a_writable_store() {
    let store = memory();
    Array::create(Arc::clone(&store), "n", array_v3(&[4], &[2]), false, options()).unwrap();
    let mut array = open_array(Arc::clone(&store), "n", Mode::Read, None, None, options()).unwrap();
    assert_eq!(array.resize(vec![9]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(array.shape(), [4], "a failed change changes nothing");
    let read_only: Arc<dyn Store> = Arc::new(crate::store::ReadOnly::new(store));
    for mode in ["r+", "a", "w", "w-"] {
        let opened = open_array(Arc::clone(&read_only), "n", mode.parse().unwrap(), None, None, options());
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::ReadOnly, "{mode}");
    }
    assert!(open_array(read_only, "n", Mode::Read, None, None, options()).is_ok());
}

#[test]
fn opening_arrays_by_mode_creates_from_metadata() {
    let store = memory();
    let open = |mode: Mode, shape: Option<u64>| {
        let metadata = shape.map(|length| array_v3(&[length], &[2]));
        open_array(Arc::clone(&store), "n", mode, None, metadata, options()).map(|array| array.shape()[0])
    };
    assert_eq!(open(Mode::OpenOrCreate, None).unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(open(Mode::ReadWrite, Some(3)).unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(open(Mode::OpenOrCreate, Some(3)).unwrap(), 3);
    assert_eq!(open(Mode::OpenOrCreate, Some(4)).unwrap(), 3, "what is there is opened");
    assert_eq!(open(Mode::CreateNew, Some(5)).unwrap_err().kind(), ErrorKind::ContainsArray);
    assert_eq!(open(Mode::Replace, Some(6)).unwrap(), 6);
    let group = Group::open(Arc::clone(&store), "n", None, Consolidation::WhenPresent, options()).unwrap_err();
    assert_eq!((group.kind(), group.hint()), (ErrorKind::GroupNotFound, Some("open it as an array")));
}

#[test]
fn resizing_deletes_chunks_outside_and_keeps_the_others() {
    for metadata in [array_v3(&[10, 10], &[2, 3]), array_v2(&[10, 10], &[2, 3])] {
        let store = memory();
        let mut array = Array::create(Arc::clone(&store), "x", metadata, false, options()).unwrap();
        let key = |row, column| array.metadata().chunk_key_encoding().key(&[row, column]);
        let keys: Vec<String> =
            (0..5).flat_map(|row| (0..4).map(move |column| (row, column))).map(|(r, c)| key(r, c)).collect();
        for key in &keys {
            store.write(&format!("x/{key}"), b"chunk").unwrap();
        }
        store.write("x/notes.txt", b"not a chunk").unwrap();
        assert_eq!(array.nchunks_initialized().unwrap(), 20);
        assert_eq!(array.foreign_keys().unwrap(), ["notes.txt"]);
        array.resize(vec![5, 4]).unwrap();
        assert_eq!(array.nchunks_initialized().unwrap(), 3 * 2);
        let left = store.list("x").unwrap().len() - array.metadata().documents().len() - 1;
        assert_eq!(left, 6, "chunks outside are gone from the store");
        let reopened = Array::open(Arc::clone(&store), "x", options()).unwrap();
        assert_eq!(reopened.shape(), [5, 4]);
        assert!(array.resize(vec![5]).is_err());
    }
}

#[test]
fn resizing_a_huge_sparse_array_lists_instead_of_trying_each_chunk() {
    let watched = Arc::new(Observed::new(memory()));
    let store: Arc<dyn Store> = watched.clone();
    let mut array =
        Array::create(Arc::clone(&store), "x", array_v3(&[1 << 40, 1 << 20], &[1, 1]), false, options()).unwrap();
    store.write("x/c/5/7", b"kept").unwrap();
    store.write("x/c/99999/3", b"outside").unwrap();
    watched.take_operations();
    array.resize(vec![100, 100]).unwrap();
    let operations = watched.take_operations();
    assert!(operations.contains(&Operation::Delete("x/c/99999/3".into())), "{operations:?}");
    assert!(operations.len() < 10, "{operations:?}");
    assert_eq!(array.stored_chunks().unwrap(), ["c/5/7"]);
}

#[test]
fn attributes_are_replaced_here_and_in_the_store() {
    for metadata in [array_v3(&[4], &[2]), array_v2(&[4], &[2])] {
        let watched = Arc::new(Observed::new(memory()));
        let store: Arc<dyn Store> = watched.clone();
        let mut array = Array::create(Arc::clone(&store), "x", metadata, false, options()).unwrap();
        let mut other = Array::open(Arc::clone(&store), "x", options()).unwrap();
        watched.take_operations();
        array.set_attributes(attributes(json!({"unit": "K"}))).unwrap();
        let writes =
            watched.take_operations().into_iter().filter(|operation| matches!(operation, Operation::Write(..)));
        assert_eq!(writes.count(), 1, "one document changed");
        other.refresh().unwrap();
        assert_eq!(other.metadata().attributes(), &attributes(json!({"unit": "K"})));
        assert_eq!(array.shape(), [4]);
    }
}

#[test]
fn group_members_of_other_formats_and_other_things_are_left_out() {
    let store = memory();
    let root = Group::create(Arc::clone(&store), "", ZarrFormat::V3, Map::new(), false, options()).unwrap();
    root.create_array("x", array_v3(&[4], &[2]), false).unwrap();
    root.create_group("g", Map::new(), false).unwrap();
    store.write("old/.zgroup", br#"{"zarr_format": 2}"#).unwrap();
    store.write("implicit/deep/zarr.json", br#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    store.write("file.txt", b"").unwrap();
    assert_eq!(paths(&root, None), ["g", "x"]);
    assert!(root.contains("x").unwrap() && !root.contains("old").unwrap() && !root.contains("file.txt").unwrap());
    assert!(!root.contains("../x").unwrap());
    let error = root.create_array("y", array_v2(&[4], &[2]), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn one_bad_member_is_named_and_does_not_hide_the_others() {
    let store = memory();
    let root = Group::create(Arc::clone(&store), "", ZarrFormat::V3, Map::new(), false, options()).unwrap();
    root.create_array("good", array_v3(&[4], &[2]), false).unwrap();
    store.write("bad/zarr.json", b"{ not json").unwrap();
    let error = root.members(None).unwrap_err();
    assert!(error.to_string().contains("node '/bad'"), "{error}");
    let mut seen = Vec::new();
    root.walk(None, &mut |path, metadata| {
        seen.push((path.to_string(), metadata.is_ok()));
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [("bad".to_string(), false), ("good".to_string(), true)]);
    assert!(root.contains("bad").unwrap());
}

#[test]
fn nodes_that_cannot_be_used_are_consolidated_as_they_are_written() {
    let store = memory();
    let root = Group::create(Arc::clone(&store), "", ZarrFormat::V3, Map::new(), false, options()).unwrap();
    root.create_group("g", attributes(json!({"a": 1})), false).unwrap();
    let odd = br#"{"zarr_format": 3, "node_type": "array", "data_type": "unheard_of", "fill_value": NaN}"#;
    store.write("g/odd/zarr.json", odd).unwrap();
    store.write("table/zarr.json", br#"{"zarr_format": 3, "node_type": "table"}"#).unwrap();
    let consolidated = consolidate_metadata(Arc::clone(&store), "", None, options()).unwrap();
    let found = consolidated.consolidated().unwrap();
    assert_eq!(found.paths().collect::<Vec<_>>(), ["g", "g/odd"]);
    assert_eq!(found.node("g/odd").unwrap_err().kind(), ErrorKind::MetadataInvalid);
    let stored = String::from_utf8(store.get("zarr.json").unwrap().unwrap()).unwrap();
    assert!(stored.contains("\"unheard_of\"") && stored.contains("NaN") && !stored.contains("table"), "{stored}");
}

#[test]
fn the_first_nodes_of_a_walk_are_found_without_reading_the_others() {
    let watched = Arc::new(Observed::new(memory()));
    let store: Arc<dyn Store> = watched.clone();
    let group = || NodeMetadata::Group(Box::new(GroupMetadata::new(ZarrFormat::V3, Map::new()).unwrap()));
    let names = |parent: &str| (10..40).map(move |number| format!("{parent}{number}")).collect::<Vec<_>>();
    let nodes = names("g").into_iter().chain(names("g10/m")).map(|path| (path, group()));
    create_hierarchy(&*store, nodes.collect(), false).unwrap();
    let walk = |max_depth, most| {
        let found = walk_documents(&*store, "", ZarrFormat::V3, max_depth, most, &Lookup::default()).unwrap();
        found.into_iter().map(|(path, node)| node.map(|_| path).unwrap()).collect::<Vec<_>>()
    };
    let all = walk(None, None);
    assert_eq!((all.len(), all[0].as_str(), all[1].as_str(), all[31].as_str()), (60, "g10", "g10/m10", "g11"));
    assert_eq!(walk(Some(0), None), names("g"));
    watched.take_operations();
    assert_eq!(walk(None, Some(4)), all[..4]);
    assert_eq!(watched.take_reads().len(), 2 * 4);
}

#[test]
fn members_are_opened_required_and_deleted_by_path() {
    let store = memory();
    let mut root = Group::create(Arc::clone(&store), "top", ZarrFormat::V2, Map::new(), false, options()).unwrap();
    assert_eq!(root.require_group("g/h").unwrap().path(), "top/g/h");
    assert_eq!(root.require_group("g/h").unwrap().path(), "top/g/h");
    let array = root.require_array("g/x", array_v2(&[4], &[2])).unwrap();
    assert_eq!(array.path(), "top/g/x");
    assert_eq!(root.require_array("g/x", array_v2(&[4], &[1])).unwrap().chunk_shape().unwrap(), [2]);
    assert_eq!(root.require_array("g/x", array_v2(&[5], &[2])).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    assert_eq!(root.require_group("g/x").unwrap_err().kind(), ErrorKind::ContainsArray);
    assert_eq!(root.require_array("g", array_v2(&[4], &[2])).unwrap_err().kind(), ErrorKind::ContainsGroup);
    assert_eq!(root.array("g").unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(root.group("g/x").unwrap_err().kind(), ErrorKind::GroupNotFound);
    assert_eq!(root.get("nothing").unwrap_err().kind(), ErrorKind::NodeNotFound);
    root.delete("g/h").unwrap();
    assert_eq!(root.delete("g/h").unwrap_err().kind(), ErrorKind::NodeNotFound);
    assert_eq!(root.delete("").unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(paths(&root, None), ["g", "g/x"]);
}

#[test]
fn consolidated_metadata_saves_reads_and_is_kept_apart_from_the_nodes() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let watched = Arc::new(Observed::new(memory()));
        let store: Arc<dyn Store> = watched.clone();
        let root =
            Group::create(Arc::clone(&store), "", format, attributes(json!({"a": 1})), false, options()).unwrap();
        let metadata = || if format == ZarrFormat::V3 { array_v3(&[4], &[2]) } else { array_v2(&[4], &[2]) };
        root.create_array("g/x", metadata(), false).unwrap();
        root.create_array("g-1", metadata(), false).unwrap();
        let group = |consolidation| Group::open(Arc::clone(&store), "", None, consolidation, options());
        assert_eq!(group(Consolidation::Required).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let consolidated = consolidate_metadata(Arc::clone(&store), "", None, options()).unwrap();
        assert_eq!(paths(&consolidated, None), ["g", "g/x", "g-1"]);
        let mut opened = group(Consolidation::Required).unwrap();
        let read_only: Arc<dyn Store> = Arc::new(ReadOnly::new(Arc::clone(&store)));
        let trusting = Group::open(read_only, "", None, Consolidation::Required, options()).unwrap();
        watched.take_operations();
        assert_eq!(paths(&trusting, None), ["g", "g/x", "g-1"]);
        assert_eq!(paths(&trusting, Some(0)), ["g", "g-1"]);
        let Node::Group(inner) = trusting.get("g").unwrap() else { panic!("g is no group") };
        assert_eq!(paths(&inner, None), ["x"]);
        assert_eq!(inner.array("x").unwrap().path(), "g/x");
        assert!(!trusting.contains("later").unwrap());
        assert_eq!(watched.take_operations(), [], "nothing was read");
        // Written like by a program that does not support consolidated copies.
        for (key, value) in root.array("g-1").unwrap().metadata().documents() {
            store.write(&format!("later/{key}"), &value).unwrap();
        }
        assert!(!trusting.contains("later").unwrap() && opened.contains("later").unwrap());
        assert!(group(Consolidation::Never).unwrap().contains("later").unwrap());
        assert_eq!(opened.differences().unwrap(), ["'later' is missing in the consolidated metadata"]);
        root.create_array("new/array", metadata(), false).unwrap();
        let copy = paths(&group(Consolidation::Required).unwrap(), None);
        assert_eq!(copy, ["g", "g/x", "g-1", "new", "new/array"]);
        opened.delete("g").unwrap();
        assert_eq!(paths(&opened, None), ["g-1"]);
        opened.set_attributes(attributes(json!({"a": 2}))).unwrap();
        let again = group(Consolidation::Required).unwrap();
        assert_eq!(again.metadata().attributes(), &attributes(json!({"a": 2})));
    }
}

#[test]
fn hierarchies_are_created_whole_or_not_at_all() {
    let group =
        || NodeMetadata::Group(Box::new(GroupMetadata::new(ZarrFormat::V3, attributes(json!({"k": 1}))).unwrap()));
    let array = || NodeMetadata::Array(Box::new(array_v3(&[4], &[2])));
    let store = memory();
    let nodes = vec![("a/b/c".to_string(), array()), ("a".to_string(), group()), ("d/".to_string(), group())];
    assert_eq!(create_hierarchy(&*store, nodes.clone(), false).unwrap(), ["a", "a/b/c", "d"]);
    let root = Group::open(Arc::clone(&store), "", None, Consolidation::WhenPresent, options()).unwrap();
    assert_eq!(paths(&root, None), ["a", "a/b", "a/b/c", "d"]);
    assert_eq!(root.group("a").unwrap().metadata().attributes()["k"], 1);
    let before = store.list("").unwrap();
    let again = vec![("new".to_string(), array()), ("d".to_string(), group())];
    assert_eq!(create_hierarchy(&*store, again.clone(), false).unwrap_err().kind(), ErrorKind::ContainsGroup);
    let below = vec![("new".to_string(), array()), ("new/x".to_string(), group())];
    assert_eq!(create_hierarchy(&*store, below, false).unwrap_err().kind(), ErrorKind::ContainsArray);
    let mixed =
        vec![("n".to_string(), array()), ("o".to_string(), NodeMetadata::Array(Box::new(array_v2(&[4], &[2]))))];
    assert_eq!(create_hierarchy(&*store, mixed, false).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let twice = vec![("n".to_string(), array()), ("/n/".to_string(), array())];
    assert_eq!(create_hierarchy(&*store, twice, false).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.list("").unwrap(), before);
    assert_eq!(create_hierarchy(&*store, again, true).unwrap(), ["d", "new"]);
}

#[test]
fn arrays_say_their_chunks_and_shards() {
    let array = Array::builder([8, 8], DataType::Int32).chunks([2, 2]).shards([4, 8]).create_in(memory(), "x").unwrap();
    assert_eq!(array.chunk_shape().unwrap(), [2, 2]);
    assert_eq!(array.shard_shape().unwrap(), Some(vec![4, 8]));
    let plain = Array::from_metadata(memory(), "x", array_v3(&[8], &[3]), options()).unwrap();
    assert_eq!((plain.chunk_shape().unwrap(), plain.shard_shape().unwrap()), (vec![3], None));
}

/// Makes a group with consolidated metadata and, in the group `deep`, the array `t` of 4 elements.
fn consolidated_group(store: &Arc<dyn Store>, format: ZarrFormat) -> Group {
    let root = Group::create(Arc::clone(store), "", format, Map::new(), false, options()).unwrap();
    let metadata = if format == ZarrFormat::V3 { array_v3(&[4], &[2]) } else { array_v2(&[4], &[2]) };
    root.create_array("deep/t", metadata, false).unwrap();
    consolidate_metadata(Arc::clone(store), "deep", None, options()).unwrap();
    consolidate_metadata(Arc::clone(store), "", None, options()).unwrap()
}

/// The shape and attributes of the array `deep/t` in the consolidated metadata of the root and of `deep`.
fn said(store: &Arc<dyn Store>) -> Vec<(Vec<u64>, Map<String, Value>)> {
    let said = |group: &str, path: &str| {
        let read_only: Arc<dyn Store> = Arc::new(ReadOnly::new(Arc::clone(store)));
        let group = Group::open(read_only, group, None, Consolidation::Required, options()).unwrap();
        let array = group.array(path).unwrap();
        (array.shape().to_vec(), array.metadata().attributes().clone())
    };
    vec![said("", "deep/t"), said("deep", "t")]
}

#[test]
fn every_copy_above_follows_each_change() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let store = memory();
        let root = consolidated_group(&store, format);
        let mut array = root.array("deep/t").unwrap();
        array.resize(vec![6]).unwrap();
        array.set_attributes(attributes(json!({"units": "K"}))).unwrap();
        let expected = (vec![6], attributes(json!({"units": "K"})));
        assert_eq!(said(&store), [expected.clone(), expected]);
    }
}

#[test]
fn the_copy_of_a_v2_group_has_its_own_attributes_after_each_change() {
    let store = memory();
    consolidated_group(&store, ZarrFormat::V2);
    for path in ["", "deep"] {
        let mut group = Group::open(Arc::clone(&store), path, None, Consolidation::WhenPresent, options()).unwrap();
        group.set_attributes(attributes(json!({"title": path}))).unwrap();
        let copy: Value = serde_json::from_slice(&store.get(&join_key(path, ".zmetadata")).unwrap().unwrap()).unwrap();
        assert_eq!(copy["metadata"][".zattrs"], json!({"title": path}));
    }
}

#[test]
fn copies_beyond_the_root_of_a_store_follow_too() {
    let folder = tempfile::tempdir().unwrap();
    let outer: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path()).unwrap());
    let prefixed = |prefix: &str| -> Arc<dyn Store> { Arc::new(Prefixed::new(Arc::clone(&outer), prefix).unwrap()) };
    let local: Arc<dyn Store> = Arc::new(LocalStore::new(folder.path().join("deep/t")).unwrap());
    consolidated_group(&outer, ZarrFormat::V3);
    for (store, shape) in [(local, 8), (prefixed("deep/t"), 9)] {
        Array::open(store, "", options()).unwrap().resize(vec![shape]).unwrap();
        assert!(said(&outer).iter().all(|(found, _)| *found == [shape]));
    }
    Array::open(prefixed("deep"), "t", options()).unwrap().resize(vec![3]).unwrap();
    assert!(said(&outer).iter().all(|(found, _)| *found == [3]));
}

#[test]
fn a_stale_copy_is_mended_by_the_next_change() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let store = memory();
        let root = consolidated_group(&store, format);
        let mut elsewhere = root.array("deep/t").unwrap();
        // Written like by a program that does not support consolidated copies.
        let mut metadata = elsewhere.metadata().clone();
        metadata.set_shape(vec![5]).unwrap();
        for (name, bytes) in metadata.documents() {
            store.write(&format!("deep/t/{name}"), &bytes).unwrap();
        }
        let group = Group::open(Arc::clone(&store), "", None, Consolidation::Required, options()).unwrap();
        assert_eq!(group.array("deep/t").unwrap().shape(), [5], "names come from the copy, shapes from the array");
        assert_eq!(group.differences().unwrap(), ["'deep/t' has shape [5], the consolidated metadata says [4]"]);
        elsewhere.set_attributes(attributes(json!({"a": 1}))).unwrap();
        assert!(said(&store).iter().all(|(shape, found)| *shape == [5] && found["a"] == 1));
    }
}

#[test]
fn changes_by_many_handles_and_threads_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let stores: [&(dyn Fn() -> Arc<dyn Store> + Sync); 2] =
        [&|| Arc::clone(&memory), &|| Arc::new(LocalStore::new(folder.path()).unwrap())];
    for store in stores {
        consolidated_group(&store(), ZarrFormat::V3);
        std::thread::scope(|threads| {
            for thread in 0..4 {
                threads.spawn(move || {
                    for number in 0..8 {
                        let name = format!("{thread}-{number}");
                        let node =
                            NodeLock::take(store(), "deep/t", ZarrFormat::V3, true, &Default::default()).unwrap();
                        let mut change = |documents: &mut NodeDocuments| {
                            documents.attributes_mut()?.insert(name.clone(), crate::meta::Json::Bool(true));
                            Ok(())
                        };
                        node.update(Some(2), &mut change).unwrap();
                    }
                });
            }
        });
        assert!(said(&store()).iter().all(|(_, attributes)| attributes.len() == 32), "{:?}", said(&store()));
    }
}

#[test]
fn a_change_of_a_node_that_is_gone_is_an_error() {
    let store = memory();
    let root = consolidated_group(&store, ZarrFormat::V3);
    let (mut array, mut group) = (root.array("deep/t").unwrap(), root.group("deep").unwrap());
    delete_node(&*store, "deep").unwrap();
    assert_eq!(array.set_attributes(Map::new()).unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(array.resize(vec![9]).unwrap_err().kind(), ErrorKind::ArrayNotFound);
    assert_eq!(group.set_attributes(Map::new()).unwrap_err().kind(), ErrorKind::GroupNotFound);
    assert_eq!(store.list("").unwrap(), ["zarr.json"], "nothing was written");
}

#[test]
fn writers_that_overwrite_one_array_at_once_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let store = || -> Arc<dyn Store> { Arc::new(LocalStore::new(folder.path()).unwrap()) };
    std::thread::scope(|threads| {
        for thread in 0..4 {
            threads.spawn(move || {
                for _ in 0..10 {
                    Array::create(store(), "a", array_v3(&[4 + thread], &[2]), true, options()).unwrap();
                }
            });
        }
    });
    assert!((4..8).contains(&Array::open(store(), "a", options()).unwrap().shape()[0]));
}

/// Another writer interrupts a change of metadata before each of its requests in turn. Two split stores share documents
/// but have separate locks, like two processes with a bucket.
#[test]
fn a_change_that_another_writer_interrupts_at_any_request_loses_nothing() {
    let all = [(ZarrFormat::V3, "deep/t", true), (ZarrFormat::V2, "deep/t", true), (ZarrFormat::V2, "deep", false)];
    for (format, path, is_array) in all {
        let add = move |store: Arc<dyn Store>, name: &str| {
            let node = NodeLock::take(store, path, format, is_array, &Default::default()).unwrap();
            let mut change = |documents: &mut NodeDocuments| {
                documents.attributes_mut()?.insert(name.into(), crate::meta::Json::Bool(true));
                Ok(())
            };
            node.update(Some(2), &mut change).unwrap();
        };
        for interrupted in 0.. {
            let documents = memory();
            consolidated_group(&documents, format);
            let process = || -> Arc<dyn Store> { Arc::new(Split::new(memory(), Arc::clone(&documents))) };
            let (requests, theirs) = (Arc::new(AtomicUsize::new(0)), process());
            let heard = Arc::clone(&requests);
            let interrupt = move |_: &Operation| {
                if heard.fetch_add(1, Ordering::Relaxed) == interrupted {
                    add(Arc::clone(&theirs), "theirs");
                }
                None
            };
            add(Arc::new(Observed::new(process()).with_failure(interrupt)), "mine");
            if requests.load(Ordering::Relaxed) <= interrupted {
                assert!(interrupted > 4, "a document and two copies are read and written");
                break;
            }
            let name = if format == ZarrFormat::V3 { "zarr.json" } else { ".zmetadata" };
            for copy in [name.to_string(), format!("deep/{name}")] {
                let text = String::from_utf8(documents.get(&copy).unwrap().unwrap()).unwrap();
                assert!(
                    text.contains("mine") && text.contains("theirs"),
                    "{path}, request {interrupted}, {copy}: {text}"
                );
            }
        }
    }
}

#[test]
fn strict_takes_no_codec_of_the_host_for_damage() {
    let compressor = Extension::new("numcodecs.bz2", Map::from_iter([("level".to_string(), json!(1))]));
    let bytes = Extension::new("bytes", Map::from_iter([("endian".to_string(), json!("little"))]));
    let builder = Array::builder([4], DataType::Int32).codecs([bytes, compressor]);
    let array = builder.create_in(Arc::new(MemoryStore::new()), "a").unwrap();
    array
        .write_buffer(&Selection::all(&[4]), &NdBuffer::from_slice(Device::Cpu, &[1, 2, 3, 4], &[4]).unwrap())
        .unwrap();
    let options = array.options().clone().with_strict(true).with_accelerator(Accelerator::On(Device::Simt));
    let strict = array.with_options(options);
    let refused = strict.read_buffer(&Selection::all(&[4])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::FallbackRefused);
    let damaged = strict.verify(&|_, _| ()).unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
}
