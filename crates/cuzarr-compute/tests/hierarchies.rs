//! Copies of hierarchies: what is copied, what is left out, and the mark of one that is not finished.

use std::sync::Arc;

use cuzarr::internal::node::set_unfinished;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::meta::{ArrayMetadata, ZarrFormat};
use cuzarr::node::{self, Array, ArrayOptions, Consolidation, Group, Node};
use cuzarr::plan::{Selection, SliceArg};
use cuzarr::store::{MemoryStore, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{Changes, Existing, Pyramid, PyramidOptions, copy_node};
use cuzarr_device::downsample::Downsampling;
use cuzarr_device::{DType, Device, NdBuffer, Order};
use serde_json::{Value, json};

const ATTRIBUTES: &str = r#"{"scale": 1e-7, "title": [1.50]}"#;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

fn options(memory_limit_bytes: u64) -> ArrayOptions {
    ArrayOptions::default().with_memory_limit_bytes(memory_limit_bytes).with_threads(2)
}

fn create(store: &Arc<dyn Store>, path: &str, shape: &[u64], chunk: &[u64], names: &[&str]) -> Array {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int32", "fill_value": -1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"}, "dimension_names": names,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    let array = Array::create(Arc::clone(store), path, metadata, false, options(1 << 20)).unwrap();
    let elems = shape.iter().product::<u64>() as i32;
    let bytes: Vec<u8> = (0..elems).flat_map(i32::to_ne_bytes).collect();
    let shape: Vec<usize> = shape.iter().map(|&extent| extent as usize).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::INT32, &shape, Order::C, &bytes).unwrap();
    array.write_buffer(&Selection::all(array.shape()), &value).unwrap();
    array
}

/// A group with arrays over time and without, and a group below.
fn hierarchy() -> Group {
    let store = memory();
    let mut group = Group::builder().create_in(Arc::clone(&store), "from").unwrap();
    group.set_attributes_json(ATTRIBUTES).unwrap();
    create(&store, "from/a", &[12, 5], &[4, 5], &["time", "x"]);
    create(&store, "from/b", &[12, 5], &[4, 5], &["time", "x"]);
    create(&store, "from/surface/time", &[12], &[12], &["time"]);
    create(&store, "from/surface/x", &[5], &[5], &["x"]);
    open(&store, "from")
}

fn open(store: &Arc<dyn Store>, path: &str) -> Group {
    Group::open(Arc::clone(store), path, None, Consolidation::WhenPresent, options(1 << 20)).unwrap()
}

fn paths(group: &Group) -> Vec<String> {
    group.members(None).unwrap().into_iter().map(|(path, _)| path).collect()
}

fn read(array: &Array) -> Vec<i32> {
    array.read_buffer(&Selection::all(array.shape())).unwrap().host_slice::<i32>().unwrap().to_vec()
}

/// A store that fails to write this key.
fn failing(kept: &Arc<dyn Store>, failed: &'static str) -> Arc<dyn Store> {
    Arc::new(Observed::new(Arc::clone(kept)).with_failure(move |operation| match operation {
        Operation::Write(key, _) if key == failed => Some(Error::new(ErrorKind::StoreFailed, "the power went")),
        _ => None,
    }))
}

fn copy(source: &Group, store: &Arc<dyn Store>, changes: &Changes, existing: Existing) -> cuzarr::Result<Group> {
    let copied = copy_node(Node::Group(source.clone()), Arc::clone(store), "t", changes, existing)?;
    match copied.run(&|_, _| ())? {
        Node::Group(group) => Ok(group),
        Node::Array(_) => panic!("a group comes out"),
    }
}

#[test]
fn a_killed_copy_of_a_group_is_marked_until_it_is_resumed() {
    let group = hierarchy();
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let changes = Changes { zarr_format: Some(format), ..Changes::default() };
        let kept = memory();
        let key = if format == ZarrFormat::V2 { "t/b/1.0" } else { "t/b/c/1/0" };
        let error = copy(&group, &failing(&kept, key), &changes, Existing::Refuse).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
        let half = open(&kept, "t");
        assert!(half.array("a").is_ok() && half.array("b").is_err(), "it looks like a hierarchy with fewer members");
        assert_eq!(half.metadata().unfinished_work(), Some("copy"));
        assert!(half.warnings()[0].contains("unfinished copy"), "{:?}", half.warnings());
        let refused = copy(&group, &kept, &changes, Existing::Refuse).unwrap_err();
        assert!(refused.message().contains("unfinished copy"), "{refused}");
        let whole = copy(&group, &kept, &changes, Existing::Resume).unwrap();
        for group in [whole, open(&kept, "t")] {
            assert_eq!((group.metadata().unfinished(), group.warnings().len()), (None, 0));
            assert_eq!(group.metadata().attributes_json(), ATTRIBUTES);
            assert_eq!(read(&group.array("b").unwrap()), (0..60).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_copy_is_not_resumed_with_other_options_or_from_another_source() {
    let group = hierarchy();
    let kept = memory();
    let chunks = |extents| Changes { chunks: Some(extents), ..Changes::default() };
    let begun = chunks(vec![Some(6), None]);
    copy(&group, &failing(&kept, "t/b/c/1/0"), &begun, Existing::Refuse).unwrap_err();
    let resume = |source: &Group, changes: &Changes| copy(source, &kept, changes, Existing::Resume).unwrap_err();
    let other = resume(&group, &chunks(vec![Some(3), None]));
    assert_eq!(other.kind(), ErrorKind::ContainsGroup);
    assert!(other.message().contains("chunks is [3,null], was [6,null]"), "{other}");
    let more = resume(&group, &Changes { compressors: Some(Vec::new()), ..begun.clone() });
    assert!(more.message().contains("compressors is [], was not given"), "{more}");
    let parted = Changes { only: vec!["b".into()], ..begun.clone() };
    assert!(resume(&group, &parted).message().contains("only is [\"b\"]"));
    // Memory stores are told apart by their addresses.
    create(group.store(), "elsewhere/a", &[12, 5], &[4, 5], &["time", "x"]);
    let elsewhere = open(group.store(), "elsewhere");
    assert!(resume(&elsewhere, &begun).message().contains("another source"));
    let explicit = Changes { zarr_format: Some(ZarrFormat::V3), ..begun };
    copy(&group, &kept, &explicit, Existing::Resume).unwrap();
}

#[test]
fn settings_of_an_array_that_differ_are_named() {
    let group = hierarchy();
    let source = || Node::Array(group.array("a").unwrap());
    let run = |store: &Arc<dyn Store>, extent, existing| {
        let changes = Changes { chunks: Some(vec![Some(extent), None]), ..Changes::default() };
        copy_node(source(), Arc::clone(store), "t", &changes, existing)?.run(&|_, _| ())
    };
    let kept = memory();
    run(&failing(&kept, "t/c/1/0"), 4, Existing::Refuse).unwrap_err();
    let begun = run(&kept, 6, Existing::Resume).unwrap_err();
    assert!(begun.message().contains("chunk_grid is") && begun.message().contains("[4,5]"), "{begun}");
    run(&kept, 4, Existing::Resume).unwrap();
    let whole = run(&kept, 6, Existing::Resume).unwrap_err();
    assert!(whole.message().contains("chunk_grid is") && !whole.message().contains("codecs"), "{whole}");
}

#[test]
fn a_copy_of_an_unfinished_hierarchy_is_one_too() {
    let mut group = hierarchy();
    set_unfinished(&mut group, Some(&json!({"work": "copy"}))).unwrap();
    let copied = copy(&group, &memory(), &Changes::default(), Existing::Refuse).unwrap();
    assert_eq!(copied.metadata().unfinished(), Some(&json!({"work": "copy"})));
}

#[test]
fn only_named_nodes_are_copied_with_the_groups_above_them() {
    let group = hierarchy();
    let only =
        |only: &[&str]| Changes { only: only.iter().map(|path| (*path).to_string()).collect(), ..Changes::default() };
    let copied = |names: &[&str]| copy(&group, &memory(), &only(names), Existing::Refuse).map(|group| paths(&group));
    assert_eq!(copied(&["surface/x"]).unwrap(), ["surface", "surface/x"]);
    assert_eq!(copied(&["surface", "b"]).unwrap(), ["b", "surface", "surface/time", "surface/x"]);
    let error = copied(&["surfaces"]).unwrap_err();
    assert_eq!((error.kind(), error.hint()), (ErrorKind::InvalidArgument, Some("did you mean 'surface'?")));
}

#[test]
fn a_part_is_copied_along_named_dimensions() {
    let group = hierarchy();
    let slice = |start, stop, step| SliceArg::Slice { start, stop, step };
    let cases = [
        (slice(Some(3), Some(9), None), (3..9).collect::<Vec<i32>>()),
        (slice(Some(-5), None, Some(2)), vec![7, 9, 11]),
        (slice(None, Some(100), None), (0..12).collect()),
    ];
    for (range, times) in cases {
        for (format, limit) in [(ZarrFormat::V2, 1 << 20), (ZarrFormat::V3, 1 << 20), (ZarrFormat::V3, 2048)] {
            let source =
                Group::open(Arc::clone(group.store()), "from", None, Consolidation::WhenPresent, options(limit));
            let select = [("time".to_string(), range)].into_iter().collect();
            let changes =
                Changes { select, zarr_format: Some(format), chunks: Some(vec![None, Some(1)]), ..Changes::default() };
            let copied = copy(&source.unwrap(), &memory(), &changes, Existing::Refuse).unwrap();
            assert_eq!(read(&copied.array("surface/time").unwrap()), times);
            assert_eq!(read(&copied.array("surface/x").unwrap()), [0, 1, 2, 3, 4], "it has no time");
            let rows: Vec<i32> = times.iter().flat_map(|time| time * 5..time * 5 + 5).collect();
            let a = copied.array("a").unwrap();
            assert_eq!((a.shape()[0], read(&a)), (times.len() as u64, rows));
        }
    }
    let refused = |name: &str, range| {
        let select = [(name.to_string(), range)].into_iter().collect();
        copy(&group, &memory(), &Changes { select, ..Changes::default() }, Existing::Refuse).unwrap_err()
    };
    assert_eq!(refused("tiem", slice(None, None, None)).hint(), Some("did you mean 'time'?"));
    for range in [slice(Some(4), Some(4), None), SliceArg::Index(3)] {
        let error = refused("time", range);
        assert!(error.message().contains("selects no range"), "{error}");
    }
}

#[test]
fn nodes_that_cannot_be_read_are_all_named_and_left_out_when_asked() {
    let group = hierarchy();
    let store = group.store();
    let strange = String::from_utf8(store.get("from/a/zarr.json").unwrap().unwrap()).unwrap();
    store.write("from/strange/zarr.json", strange.replace("\"bytes\"", "\"from-the-future\"").as_bytes()).unwrap();
    store.write("from/broken/zarr.json", b"{").unwrap();
    let target = memory();
    let error = copy(&group, &target, &Changes::default(), Existing::Refuse).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/from/broken") && text.contains("/from/strange"), "{text}");
    assert!(target.list("").unwrap().is_empty());
    let skipping = Changes { skip_unreadable: true, ..Changes::default() };
    let plan = copy_node(Node::Group(group.clone()), Arc::clone(&target), "t", &skipping, Existing::Refuse).unwrap();
    let names: Vec<&str> = plan.unreadable().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["/from/broken", "/from/strange"]);
    plan.run(&|_, _| ()).unwrap();
    assert_eq!(paths(&open(&target, "t")), ["a", "b", "surface", "surface/time", "surface/x"]);
    let others = Changes { only: vec!["a".into()], ..Changes::default() };
    copy(&group, &memory(), &others, Existing::Refuse).unwrap();
}

fn pyramid(array: &Array, store: &Arc<dyn Store>, method: Downsampling, existing: Existing) -> cuzarr::Result<Group> {
    let options = PyramidOptions::default().with_method(method).with_levels(2);
    Pyramid::new(array, Arc::clone(store), "t", existing, options)?.run(&|_, _| ())
}

#[test]
fn a_killed_pyramid_is_marked_and_only_goes_on_as_it_began() {
    let array = create(&memory(), "image", &[12, 8], &[4, 8], &["y", "x"]);
    let kept = memory();
    pyramid(&array, &failing(&kept, "t/1/c/0/0"), Downsampling::Mean, Existing::Refuse).unwrap_err();
    assert_eq!(open(&kept, "t").metadata().unfinished_work(), Some("pyramid"));
    let other = pyramid(&array, &kept, Downsampling::Max, Existing::Resume).unwrap_err();
    assert!(other.message().contains("method is \"max\", was \"mean\""), "{other}");
    let whole = pyramid(&array, &kept, Downsampling::Mean, Existing::Resume).unwrap();
    assert_eq!(whole.metadata().unfinished(), None);
    // Its levels would stay as they are.
    let other = pyramid(&array, &kept, Downsampling::Max, Existing::Resume).unwrap_err();
    assert!(other.message().contains("method is \"max\", was \"mean\""), "{other}");
    pyramid(&array, &kept, Downsampling::Mean, Existing::Resume).unwrap();
    let levels: Value = open(&kept, "t").metadata().attributes()["ome"]["multiscales"][0]["datasets"].clone();
    assert_eq!(levels.as_array().unwrap().len(), 2);
}

#[test]
fn consolidated_copies_lose_the_mark_too() {
    let group = hierarchy();
    node::consolidate_metadata(Arc::clone(group.store()), "from", None, options(1 << 20)).unwrap();
    let target = memory();
    Group::builder().create_in(Arc::clone(&target), "").unwrap();
    node::consolidate_metadata(Arc::clone(&target), "", None, options(1 << 20)).unwrap();
    let copied = copy(&open(group.store(), "from"), &target, &Changes::default(), Existing::Refuse).unwrap();
    assert!(copied.consolidated().is_some());
    for key in ["zarr.json", "t/zarr.json"] {
        let document = String::from_utf8(target.get(key).unwrap().unwrap()).unwrap();
        assert!(document.contains("consolidated_metadata") && !document.contains("cuzarr_unfinished"), "{key}");
    }
}
