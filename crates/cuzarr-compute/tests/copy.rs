//! Copies: to other chunks, codecs, formats and stores; what is refused, and what an interruption leaves.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

mod checkpoints;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use checkpoints::sealed;
use cuzarr::internal::node::with_store;
use cuzarr::internal::store::testing::{Observed, Operation};
use cuzarr::meta::{ArrayMetadata, FillValue, ZarrFormat};
use cuzarr::node::{self, Array, ArrayOptions, Consolidation, Group, Node};
use cuzarr::plan::Selection;
use cuzarr::store::{LocalStore, MemoryStore, Prefixed, Split, Store, StoreExt};
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{
    Changes, ComputeOptions, Copy, Existing, Expr, Pyramid, PyramidOptions, copy_elements, copy_node,
};
use cuzarr_device::downsample::Downsampling;
use cuzarr_device::{DType, Device, NdBuffer, Order};
use model::devices;
use serde_json::{Value, json};

const SHAPE: [u64; 3] = [30, 44, 26];

fn options(memory_limit_bytes: u64) -> ArrayOptions {
    ArrayOptions::default().with_memory_limit_bytes(memory_limit_bytes).with_threads(2)
}

fn source(store: Arc<dyn Store>, chunk: [u64; 3], options: ArrayOptions) -> Array {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": SHAPE, "data_type": "int32", "fill_value": 7,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
                   {"name": "zstd", "configuration": {"level": 1, "checksum": true}}],
        "dimension_names": ["t", "y", "x"], "attributes": {"units": "K", "scale": 1e-7},
    });
    let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
    let array = Array::create(store, "deep/source", metadata, false, options).unwrap();
    array.write_buffer(&Selection::all(&SHAPE), &numbers(Device::Cpu)).unwrap();
    array
}

/// Every element its own number, with a corner of fill values.
fn numbers(device: Device) -> NdBuffer {
    let elems = SHAPE.iter().product::<u64>() as i32;
    let corner = |at: i32| at / (26 * 44) < 10 && at / 26 % 44 < 16;
    let bytes: Vec<u8> = (0..elems).flat_map(|at| if corner(at) { 7 } else { at }.to_ne_bytes()).collect();
    let shape = SHAPE.map(|extent| extent as usize);
    NdBuffer::from_host(device, DType::INT32, &shape, Order::C, &bytes).unwrap()
}

fn check(array: &Array) {
    let read = array.read_buffer(&Selection::all(&SHAPE)).unwrap();
    assert!(read.to_device(Device::Cpu).unwrap().all_equal(&numbers(Device::Cpu), false).unwrap());
}

fn changes(document: Value) -> Changes {
    Changes::from_json(&document).unwrap()
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[test]
fn every_combination_of_formats_chunks_and_compressors_has_the_same_elements() {
    let cases = [
        json!({"chunks": [30, 11, 13]}),
        json!({"chunks": [null, 5, 7], "compressors": []}),
        json!({"chunks": [3, 44, 26], "shards": [15, null, null]}),
        json!({"zarr_format": 2, "chunks": [4, 44, 5]}),
        json!({"zarr_format": 2, "compressors": [{"name": "blosc", "configuration":
            {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}}]}),
        json!({"chunks": [10, 10, 10], "shards": [20, 20, 20], "compressors": ["gzip"]}),
        json!({"codecs": [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, "bytes", "crc32c"]}),
        json!({"shards": [14, 16, 26], "codecs": [{"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle", "blocksize": 0}}]}),
    ];
    for device in devices() {
        let options = options(1 << 20).with_device(device);
        let source = source(memory(), [7, 8, 26], options.clone());
        for case in &cases {
            let target = changes(case.clone()).apply(source.metadata()).unwrap();
            let copy = Copy::new(&source, memory(), "a/b", target, Existing::Refuse).unwrap().run(&|_| ()).unwrap();
            check(&copy);
            assert_eq!(copy.metadata().attributes()["units"], "K");
            // And back, by way of what was stored.
            let stored = Array::open(Arc::clone(copy.store()), "a/b", options.clone()).unwrap();
            let back = changes(json!({"zarr_format": 3, "chunks": [7, 8, 26], "shards": false}));
            let back = back.apply(stored.metadata()).unwrap();
            let back = Copy::new(&stored, memory(), "", back, Existing::Refuse).unwrap().run(&|_| ()).unwrap();
            check(&back);
            let names: Vec<_> = back.metadata().dimension_names().unwrap().iter().flatten().collect();
            assert_eq!(names, ["t", "y", "x"], "{case}");
            assert_eq!(back.store().list("").unwrap().len(), 1 + back.nchunks_initialized().unwrap() as usize);
        }
    }
}

#[test]
fn every_chunk_is_stored_where_a_copy_has_no_fill_value() {
    for device in devices() {
        let options = options(1 << 20).with_device(device);
        let full = source(memory(), [7, 8, 26], options.clone());
        let empty = Array::create(memory(), "", full.metadata().clone(), false, options).unwrap();
        for compressor in [json!([]), json!(["zstd"]), json!([{"name": "blosc", "configuration": {"cname": "lz4"}}])] {
            let to_v2 = changes(json!({"zarr_format": 2, "chunks": [5, 8, 26], "compressors": compressor}));
            for source in [&full, &empty] {
                let target = to_v2.apply(source.metadata()).unwrap();
                assert_eq!(*target.fill_value(), FillValue::Undefined, "the source marks nothing as missing");
                let copy = Copy::new(source, memory(), "", target, Existing::Refuse).unwrap().run(&|_| ()).unwrap();
                assert_eq!(copy.nchunks_initialized().unwrap(), 6 * 6, "{device} {compressor}");
                let all = Selection::all(&SHAPE);
                assert!(copy.read_buffer(&all).unwrap().all_equal(&source.read_buffer(&all).unwrap(), false).unwrap());
            }
        }
    }
}

#[test]
fn no_object_is_written_twice_and_two_passes_read_less_than_one() {
    let store = Arc::new(Observed::new(memory()));
    let options = options(1 << 21);
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [512, 512, 4], "data_type": "int32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 512, 4]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes()).unwrap();
    let source = Array::create(memory(), "", metadata, false, options).unwrap();
    let elems = 512 * 512 * 4;
    let bytes: Vec<u8> = (1..=elems).flat_map(|at: i32| at.to_ne_bytes()).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::INT32, &[512, 512, 4], Order::C, &bytes).unwrap();
    source.write_buffer(&Selection::all(source.shape()), &value).unwrap();
    let target = changes(json!({"chunks": [512, 1, 4]})).apply(source.metadata()).unwrap();
    let copy = Copy::new(&source, Arc::clone(&store) as Arc<dyn Store>, "t", target, Existing::Refuse).unwrap();
    assert_eq!(copy.passes().len(), 2);
    assert!(copy.passes().iter().all(|pass| pass.reads < 1.5), "{:#}", copy.to_json());
    let told = AtomicU64::new(0);
    let copy = copy.run(&|now| told.store(now.bytes_done, Ordering::Relaxed)).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 2 * 4 * elems as u64);
    let mut written: Vec<String> = store
        .take_operations()
        .into_iter()
        .filter_map(|operation| match operation {
            Operation::Write(key, _) if !key.ends_with(".json") => Some(key),
            _ => None,
        })
        .collect();
    let all = written.len();
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), all, "an object was written twice");
    assert!(copy.read_buffer(&Selection::all(&[512, 512, 4])).unwrap().all_equal(&value, false).unwrap());
    assert_eq!(store.list("t").unwrap().len(), 513, "what lay between the passes is gone, and so is the checkpoint");
}

#[test]
fn a_source_is_not_read_many_times_for_want_of_memory() {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [128, 1024, 1024], "data_type": "float32", "fill_value": 0.0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1024, 1024]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes()).unwrap();
    for limit in [24 << 20, 32 << 20, 128 << 20, 1 << 30, 8 << 30] {
        let source = Array::from_metadata(memory(), "", metadata.clone(), options(limit)).unwrap();
        let target = changes(json!({"chunks": [128, 32, 32]})).apply(source.metadata()).unwrap();
        let copy = Copy::new(&source, memory(), "t", target, Existing::Refuse).unwrap();
        let reads: f64 = copy.passes().iter().map(|pass| pass.reads).sum();
        assert!(reads <= 4.0, "{limit}: {:#}", copy.to_json());
    }
}

/// Fails the write that comes after this many.
fn failing(inner: &Arc<dyn Store>, after: u64) -> Arc<Observed> {
    let count = AtomicU64::new(0);
    Arc::new(Observed::new(Arc::clone(inner)).with_failure(move |operation| match operation {
        Operation::Write(key, _) if key.contains("c/") && count.fetch_add(1, Ordering::SeqCst) >= after => {
            Some(Error::new(ErrorKind::StoreFailed, "the power went"))
        }
        _ => None,
    }))
}

#[test]
fn an_interrupted_copy_goes_on_without_writing_what_is_there() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let target = changes(json!({"chunks": [5, 11, 26]})).apply(source.metadata()).unwrap();
    for after in [0, 1, 5, 9, 20] {
        let kept = memory();
        let begin = |store: Arc<dyn Store>, existing| Copy::new(&source, store, "t", target.clone(), existing);
        let error = begin(failing(&kept, after), Existing::Refuse).unwrap().run(&|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreFailed, "{error}");
        assert!(error.trail().iter().any(|place| place.starts_with("region [")), "{error}");
        let opened = Array::open(Arc::clone(&kept), "t", options(1 << 20)).unwrap_err();
        assert_eq!(opened.kind(), ErrorKind::ArrayNotFound, "nobody reads what is not complete");
        let refused = begin(Arc::clone(&kept), Existing::Refuse).err().unwrap();
        assert_eq!(
            (refused.kind(), refused.hint()),
            (ErrorKind::ContainsArray, Some("go on with `resume`, or replace it with `overwrite`"))
        );
        let there = kept.list("t/c").unwrap();
        let observed = Arc::new(Observed::new(Arc::clone(&kept)));
        let copy = begin(Arc::clone(&observed) as Arc<dyn Store>, Existing::Resume).unwrap().run(&|_| ()).unwrap();
        check(&copy);
        let again = observed.take_operations().into_iter().any(|operation| match operation {
            Operation::Write(key, _) => there.contains(&key),
            _ => false,
        });
        assert!(!again, "an object was written again");
        assert!(begin(Arc::clone(&kept), Existing::Resume).unwrap().passes().is_empty(), "it is complete");
    }
}

/// A store that takes nothing but Zarr's own keys, and chunks only of arrays that are there.
fn transaction(kept: &Arc<dyn Store>) -> Arc<dyn Store> {
    let inner = Arc::clone(kept);
    let observed = Observed::new(Arc::clone(kept)).transactional().with_failure(move |operation| match operation {
        Operation::Write(key, _) if key.contains(".cuzarr") => {
            Some(Error::new(ErrorKind::StoreFailed, "no key of Zarr's"))
        }
        Operation::Write(key, _) if key.contains("c/") && inner.size_bytes("t/zarr.json").unwrap().is_none() => {
            Some(Error::new(ErrorKind::StoreFailed, "there is no array"))
        }
        _ => None,
    });
    Arc::new(observed)
}

#[test]
fn what_is_committed_as_a_whole_gets_its_metadata_first_and_no_checkpoint() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let target = changes(json!({"chunks": [5, 11, 26]})).apply(source.metadata()).unwrap();
    let kept = memory();
    for existing in [Existing::Refuse, Existing::Overwrite] {
        let copy = Copy::new(&source, transaction(&kept), "t", target.clone(), existing).unwrap();
        assert_eq!(copy.passes().len(), 1, "an array between two passes has no metadata");
        check(&copy.run(&|_| ()).unwrap());
        check(&Array::open(Arc::clone(&kept), "t", options(1 << 20)).unwrap());
    }
    let refused = Copy::new(&source, transaction(&kept), "t", target, Existing::Resume).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

#[test]
fn another_copy_is_not_resumed() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let kept = memory();
    let apply = |document| changes(document).apply(source.metadata()).unwrap();
    let target = apply(json!({"chunks": [5, 11, 26]}));
    Copy::new(&source, failing(&kept, 3), "t", target, Existing::Refuse).unwrap().run(&|_| ()).unwrap_err();
    let other = apply(json!({"chunks": [5, 22, 26]}));
    let error = Copy::new(&source, Arc::clone(&kept), "t", other.clone(), Existing::Resume).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ContainsArray);
    check(&Copy::new(&source, kept, "t", other, Existing::Overwrite).unwrap().run(&|_| ()).unwrap());
}

const CHECKPOINT: &str = "t/.cuzarr-work.json";

/// What an interrupted copy of `source` to "t" left.
fn interrupted(source: &Array, target: &ArrayMetadata) -> Arc<dyn Store> {
    let kept = memory();
    let copy = Copy::new(source, failing(&kept, 3), "t", target.clone(), Existing::Refuse).unwrap();
    copy.run(&|_| ()).unwrap_err();
    kept
}

#[test]
fn the_checkpoint_of_other_work_is_not_resumed() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let target = changes(json!({"chunks": [5, 11, 26]})).apply(source.metadata()).unwrap();
    let resume = |source: &Array, kept: &Arc<dyn Store>| {
        Copy::new(source, Arc::clone(kept), "t", target.clone(), Existing::Resume).err().map(|error| error.kind())
    };
    let kept = interrupted(&source, &target);
    let moved = Array::create(memory(), "moved", source.metadata().clone(), false, options(1 << 17)).unwrap();
    assert_eq!(resume(&moved, &kept), Some(ErrorKind::ContainsArray));
    assert_eq!(resume(&source, &kept), None);
    // A computation into an array whose documents are those of the copy.
    let array = Array::create(Arc::clone(&kept), "t", target.clone(), true, options(1 << 17)).unwrap();
    let expr = Expr::array(source.clone()).unwrap();
    let compute = ComputeOptions::default().with_memory_limit_bytes(1 << 19).with_threads(2);
    let failing_array = with_store(&array, failing(&kept, 3));
    assert_eq!(expr.store_resumable(&failing_array, &compute).unwrap_err().kind(), ErrorKind::StoreFailed);
    assert!(kept.get(CHECKPOINT).unwrap().is_some());
    assert_eq!(resume(&source, &kept), Some(ErrorKind::ContainsArray), "half of the array is not computed");
    // And the other way round: the copy was killed after its last region.
    let document = json!({"version": 3, "work": "0", "target": "0", "passes": []});
    kept.write(CHECKPOINT, &sealed(document)).unwrap();
    expr.store_resumable(&array, &compute).unwrap();
    check(&array);
    assert!(kept.get(CHECKPOINT).unwrap().is_none());
}

#[test]
fn a_pyramid_goes_on_by_the_same_method_alone() {
    let source = source(memory(), [30, 44, 26], options(1 << 20));
    let kept = memory();
    let plan = |store: Arc<dyn Store>, method, existing| {
        let changes = changes(json!({"chunks": [5, 11, 13]}));
        let axes = ["z", "y", "x"].map(String::from).to_vec();
        let options =
            PyramidOptions::default().with_method(method).with_levels(2).with_changes(changes).with_axes(axes);
        Pyramid::new(&source, store, "t", existing, options)
    };
    let level: Arc<dyn Store> = Arc::new(Observed::new(Arc::clone(&kept)).with_failure(|operation| match operation {
        Operation::Write(key, _) if key == "t/1/c/2/0/0" => Some(Error::new(ErrorKind::StoreFailed, "the power went")),
        _ => None,
    }));
    plan(level, Downsampling::Mean, Existing::Refuse).unwrap().run(&|_, _| ()).unwrap_err();
    let error = plan(Arc::clone(&kept), Downsampling::Max, Existing::Resume).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::ContainsGroup, "{error}");
    plan(kept, Downsampling::Mean, Existing::Resume).unwrap().run(&|_, _| ()).unwrap();
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_named_and_overwritten() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let target = changes(json!({"chunks": [5, 11, 26]})).apply(source.metadata()).unwrap();
    let kept = interrupted(&source, &target);
    let good: Value = serde_json::from_slice(&kept.get(CHECKPOINT).unwrap().unwrap()).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut document = good.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        document
    };
    let damaged = [
        b"{".to_vec(),
        b"[]".to_vec(),
        b"{}".to_vec(),
        vec![0xff; 100],
        sealed(with("/version", json!(1))),
        sealed(with("/version", json!(4))),
        sealed(with("/passes", json!(null))),
        sealed(with("/passes", json!([]))),
        sealed(with("/passes/0/finished", json!(-1))),
        sealed(with("/passes/0/finished", json!(1u64 << 40))),
        sealed(with("/passes/0/chunk_shape", json!([1, 1, 1]))),
        // It says one region less, or more, than are finished.
        with("/passes/0/finished", json!(0)).to_string().into_bytes(),
        with("/passes/0/finished", json!(2)).to_string().into_bytes(),
    ];
    for bytes in &damaged {
        kept.write(CHECKPOINT, bytes).unwrap();
        for existing in [Existing::Resume, Existing::Refuse] {
            let copy = Copy::new(&source, Arc::clone(&kept), "t", target.clone(), existing);
            let (error, text) = (copy.err().unwrap(), String::from_utf8_lossy(bytes));
            let is_read = existing == Existing::Refuse && error.kind() == ErrorKind::ContainsArray;
            assert!(is_read || error.kind() == ErrorKind::MetadataInvalid, "{text}: {error}");
            assert!(error.hint().unwrap().contains("overwrite"), "{text}: {error}");
        }
    }
    check(&Copy::new(&source, kept, "t", target, Existing::Overwrite).unwrap().run(&|_| ()).unwrap());
}

#[test]
fn a_copy_of_a_version_before_is_refused_until_it_is_overwritten() {
    let source = source(memory(), [30, 4, 4], options(1 << 17));
    let target = changes(json!({"chunks": [5, 11, 26]})).apply(source.metadata()).unwrap();
    let kept = memory();
    kept.write("t/.cuzarr-copy.json", br#"{"version":1,"source":{},"target":"","between":null,"passes":[]}"#).unwrap();
    let plan = |existing| Copy::new(&source, Arc::clone(&kept), "t", target.clone(), existing);
    for existing in [Existing::Refuse, Existing::Resume] {
        let error = plan(existing).err().unwrap();
        assert_eq!((error.kind(), error.hint()), (ErrorKind::ContainsArray, Some("begin again with `overwrite`")));
    }
    check(&plan(Existing::Overwrite).unwrap().run(&|_| ()).unwrap());
    assert!(!kept.list("t").unwrap().iter().any(|key| key.contains("cuzarr")));
    // A computation of version 1 was noted beside an array that is gone: there is nothing to go on with.
    let kept = memory();
    kept.write(CHECKPOINT, br#"{"of":{"work":"","target":[],"region_shape":[5,11,26]},"finished":9}"#).unwrap();
    check(&Copy::new(&source, Arc::clone(&kept), "t", target, Existing::Resume).unwrap().run(&|_| ()).unwrap());
    assert!(kept.get(CHECKPOINT).unwrap().is_none());
}

#[test]
fn overlapping_and_existing_targets_and_small_budgets_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path()).unwrap());
    let source = source(Arc::clone(&store), [7, 8, 26], options(1 << 20));
    let metadata = source.metadata().clone();
    let refusal = |store: &Arc<dyn Store>, path: &str, existing| {
        Copy::new(&source, Arc::clone(store), path, metadata.clone(), existing).err().map(|error| error.kind())
    };
    let nested: Arc<dyn Store> = Arc::new(LocalStore::new(directory.path().join("deep")).unwrap());
    for (store, path) in [(&store, "deep/source"), (&store, "deep/source/in"), (&store, "deep"), (&nested, "source")] {
        for existing in [Existing::Refuse, Existing::Overwrite] {
            assert_eq!(refusal(store, path, existing), Some(ErrorKind::InvalidArgument), "{path}");
        }
    }
    #[cfg(unix)]
    {
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("deep"), &link).unwrap();
        let linked: Arc<dyn Store> = Arc::new(LocalStore::new(link).unwrap());
        assert_eq!(refusal(&linked, "source", Existing::Overwrite), Some(ErrorKind::InvalidArgument));
    }
    assert_eq!(refusal(&store, "deep/source-2", Existing::Refuse), None);
    Group::create(Arc::clone(&store), "group", ZarrFormat::V3, Default::default(), false, options(1)).unwrap();
    assert_eq!(refusal(&store, "group", Existing::Refuse), Some(ErrorKind::ContainsGroup));
    assert_eq!(refusal(&store, "group", Existing::Resume), Some(ErrorKind::ContainsGroup));
    let small = source.with_options(options(1 << 10));
    let error = Copy::new(&small, memory(), "t", metadata.clone(), Existing::Refuse).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    check(&source);
}

#[test]
fn a_store_whose_values_cannot_be_deleted_is_refused_before_anything_is_written() {
    let kept = memory();
    let source = source(Arc::clone(&kept), [7, 8, 26], options(1 << 20));
    let group = Group::open(kept, "deep", None, Consolidation::Never, source.options().clone()).unwrap();
    let observed = Arc::new(Observed::new(memory()).without_deletes());
    let store: Arc<dyn Store> = Arc::clone(&observed) as Arc<dyn Store>;
    let views: [Arc<dyn Store>; 3] = [
        Arc::clone(&store),
        Arc::new(Prefixed::new(Arc::clone(&store), "in").unwrap()),
        Arc::new(Split::new(memory(), Arc::clone(&store))),
    ];
    for store in views {
        let metadata = source.metadata().clone();
        let to = || Arc::clone(&store);
        let array = Array::from_metadata(to(), "a", metadata.clone(), source.options().clone()).unwrap();
        let node = |node: Node| copy_node(node, to(), "a", &Changes::default(), Existing::Overwrite).err();
        let pyramid = Pyramid::new(&source, to(), "a", Existing::Refuse, PyramidOptions::default());
        let expr = Expr::array(source.clone()).unwrap();
        for error in [
            Copy::new(&source, to(), "a", metadata, Existing::Refuse).err(),
            node(Node::Array(source.clone())),
            node(Node::Group(group.clone())),
            pyramid.err(),
            expr.store_resumable(&array, &ComputeOptions::default()).err(),
        ] {
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.hint().unwrap().starts_with("write to a directory"), "{error}");
        }
    }
    assert!(observed.take_operations().is_empty());
}

#[test]
fn hierarchies_keep_their_attributes_and_members() {
    let store = memory();
    let source = source(Arc::clone(&store), [7, 8, 26], options(1 << 20));
    let attributes = json!({"title": "all of it"}).as_object().unwrap().clone();
    Group::create(Arc::clone(&store), "deep/more", ZarrFormat::V3, attributes, false, source.options().clone())
        .unwrap();
    node::consolidate_metadata(Arc::clone(&store), "deep", None, source.options().clone()).unwrap();
    let group = Group::open(store, "deep", None, Consolidation::WhenPresent, source.options().clone()).unwrap();
    let target = memory();
    let to_v2 = changes(json!({"zarr_format": 2, "chunks": [10, 10, 10]}));
    let copy = || copy_node(Node::Group(group.clone()), Arc::clone(&target), "x", &to_v2, Existing::Refuse);
    let Node::Group(copied) = copy().unwrap().run(&|_, _| ()).unwrap() else { panic!("a group comes out") };
    assert!(copied.consolidated().is_some());
    assert_eq!(copied.group("more").unwrap().metadata().attributes()["title"], "all of it");
    let array = copied.array("source").unwrap();
    check(&array);
    assert_eq!((array.metadata().zarr_format(), array.chunk_shape().unwrap()), (ZarrFormat::V2, vec![10, 10, 10]));
    assert_eq!(copy().err().map(|error| error.kind()), Some(ErrorKind::ContainsGroup));
}

#[test]
fn strings_and_arrays_without_elements_are_copied() {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [5], "data_type": "string", "fill_value": "",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["vlen-utf8"],
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes()).unwrap();
    let source = Array::create(memory(), "", metadata, false, options(1 << 20)).unwrap();
    let words = cuzarr::codec::VariableElements { offsets: vec![0, 1, 3, 3, 6, 9], data: b"abbcccddd".to_vec() };
    let everything = Selection::all(&[5]);
    source.write_variable(&everything, &words).unwrap();
    for document in [json!({"chunks": [3]}), json!({"zarr_format": 2})] {
        let target = changes(document).apply(source.metadata()).unwrap();
        let copy = Copy::new(&source, memory(), "", target, Existing::Refuse).unwrap().run(&|_| ()).unwrap();
        let read = copy.read_variable(&everything).unwrap();
        assert_eq!((read.offsets, read.data), (words.offsets.clone(), words.data.clone()));
    }
    let mut empty = source.metadata().clone();
    empty.set_shape(vec![0]).unwrap();
    let empty = Array::create(memory(), "", empty, false, options(1 << 20)).unwrap();
    let copy =
        Copy::new(&empty, memory(), "", empty.metadata().clone(), Existing::Refuse).unwrap().run(&|_| ()).unwrap();
    assert_eq!(copy.shape(), [0]);
}

/// An array whose documents are not written here.
fn undocumented(store: Arc<dyn Store>, like: &Array, changes: Value) -> Array {
    let metadata = Changes::from_json(&changes).unwrap().apply(like.metadata()).unwrap();
    Array::from_metadata(store, "t", metadata, like.options().clone()).unwrap()
}

#[test]
fn elements_alone_are_copied_into_any_store_each_object_once() {
    for device in devices() {
        let options = options(1 << 20).with_device(device);
        let source = source(memory(), [7, 8, 26], options);
        for case in [json!({"chunks": [30, 11, 13]}), json!({"chunks": [3, 44, 26], "shards": [15, null, null]})] {
            let (zip, session) = (Observed::new(memory()).without_deletes(), Observed::new(memory()).transactional());
            for store in [Arc::new(zip), Arc::new(session)] {
                let target = undocumented(Arc::clone(&store) as Arc<dyn Store>, &source, case.clone());
                let told = AtomicU64::new(0);
                copy_elements(&source, &target, &|now| told.store(now.bytes_done, Ordering::Relaxed)).unwrap();
                assert_eq!(told.load(Ordering::Relaxed), SHAPE.iter().product::<u64>() * 4);
                check(&target);
                let keys = store.list("").unwrap();
                assert!(keys.iter().all(|key| key.starts_with("t/c/")), "{keys:?}");
                let written = store.take_operations().into_iter().filter(|one| matches!(one, Operation::Write(..)));
                assert_eq!(written.count(), keys.len(), "an object was written twice");
            }
        }
    }
}

#[test]
fn what_becomes_one_object_is_read_as_one_batch() {
    let store = Arc::new(Observed::new(memory()).with_read_delay(std::time::Duration::from_millis(200)));
    let source = source(Arc::clone(&store) as Arc<dyn Store>, [3, 11, 13], options(1 << 20));
    store.take_operations();
    copy_elements(&source, &undocumented(memory(), &source, json!({})), &|_| ()).unwrap();
    // A busy machine may have begun the last ones after the first have come.
    assert!(store.most_in_flight() >= 16, "{} at a time, with 2 threads", store.most_in_flight());
    assert_eq!(store.take_reads().len(), 80, "each chunk once");
}

#[test]
fn an_object_that_is_large_for_the_limit_is_copied_by_itself() {
    let source = source(memory(), [3, 11, 13], options(1 << 18));
    let whole = || changes(json!({"chunks": [null, null, null]})).apply(source.metadata()).unwrap();
    let refused = Copy::new(&source, memory(), "t", whole(), Existing::Refuse).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::BudgetExceeded);
    let target = undocumented(memory(), &source, json!({"chunks": [15, 44, 26]}));
    let told = AtomicU64::new(0);
    copy_elements(&source, &target, &|now| told.store(now.regions, Ordering::Relaxed)).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 2);
    check(&target);
    let tight = source.with_options(options(1 << 10));
    let error = copy_elements(&tight, &undocumented(memory(), &tight, json!({})), &|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
}

#[test]
fn numbers_are_converted_and_nothing_else() {
    let of_type = |data_type: &str, path: &str| {
        let document = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type, "fill_value": 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}},
            "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
        });
        let metadata = ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap();
        Array::create(memory(), path, metadata, false, options(1 << 20)).unwrap()
    };
    let floats = of_type("float32", "a");
    let bytes: Vec<u8> = [1.5f32, -2.5, 300.0, 0.0].into_iter().flat_map(f32::to_ne_bytes).collect();
    let value = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[4], Order::C, &bytes).unwrap();
    floats.write_buffer(&Selection::all(&[4]), &value).unwrap();
    let integers = of_type("int16", "a");
    copy_elements(&floats, &integers, &|_| ()).unwrap();
    let read = integers.read_buffer(&Selection::all(&[4])).unwrap();
    assert_eq!(read.host_slice::<i16>().unwrap(), [1, -2, 300, 0]);
    let refusal = |from: &Array, to: &Array| copy_elements(from, to, &|_| ()).unwrap_err().kind();
    let mut time = floats.metadata().to_json();
    time = String::from_utf8(time)
        .unwrap()
        .replace("\"float32\"", r#"{"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}"#)
        .into_bytes();
    let time = ArrayMetadata::from_json(&time).unwrap();
    let time = Array::create(memory(), "a", time, false, options(1 << 20)).unwrap();
    assert_eq!(refusal(&time, &integers), ErrorKind::DTypeMismatch, "a date is no number");
    assert_eq!(refusal(&integers, &time), ErrorKind::DTypeMismatch);
    assert_eq!(refusal(&floats, &floats), ErrorKind::InvalidArgument, "they overlap");
    let mut shorter = floats.metadata().clone();
    shorter.set_shape(vec![3]).unwrap();
    let shorter = Array::from_metadata(memory(), "b", shorter, options(1 << 20)).unwrap();
    assert_eq!(refusal(&floats, &shorter), ErrorKind::ShapeMismatch);
}

#[test]
fn long_strings_are_copied_a_few_at_a_time() {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [64], "data_type": "string", "fill_value": "",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["vlen-utf8"],
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes()).unwrap();
    let source = Array::create(memory(), "", metadata, false, options(1 << 20)).unwrap();
    let words = |size_bytes: u64| cuzarr::codec::VariableElements {
        offsets: (0..=64).map(|at| at * size_bytes).collect(),
        data: (0..64 * size_bytes).map(|at| b'a' + (at / size_bytes % 26) as u8).collect(),
    };
    let everything = Selection::all(&[64]);
    for (size_bytes, regions) in [(1, 1), (10_000, 4)] {
        source.write_variable(&everything, &words(size_bytes)).unwrap();
        let target = undocumented(memory(), &source, json!({}));
        let told = AtomicU64::new(0);
        copy_elements(&source, &target, &|now| told.store(now.regions, Ordering::Relaxed)).unwrap();
        assert_eq!(told.load(Ordering::Relaxed), regions, "{size_bytes} bytes each");
        let read = target.read_variable(&everything).unwrap();
        assert_eq!((read.offsets, read.data), (words(size_bytes).offsets, words(size_bytes).data));
    }
}

#[test]
fn a_compressor_stands_behind_any_codec_that_makes_bytes() {
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [8, 8], "data_type": "float32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}},
                   {"name": "zfp", "configuration": {"mode": "reversible"}}, "crc32c"],
    });
    let metadata = ArrayMetadata::from_json(metadata.to_string().as_bytes()).unwrap();
    let source = Array::create(memory(), "", metadata, false, options(1 << 20)).unwrap();
    let bytes: Vec<u8> = (0..64).flat_map(|at| (at as f32 / 3.0).to_ne_bytes()).collect();
    let values = NdBuffer::from_host(Device::Cpu, DType::FLOAT32, &[8, 8], Order::C, &bytes).unwrap();
    source.write_buffer(&Selection::all(&[8, 8]), &values).unwrap();
    for (document, codecs) in
        [(json!({"compressors": ["zstd"]}), vec!["transpose", "zfp", "zstd"]), (json!({"zarr_format": 2}), vec![])]
    {
        let target = changes(document).apply(source.metadata()).unwrap();
        let copied = Copy::new(&source, memory(), "", target, Existing::Refuse).unwrap().run(&|_| ()).unwrap();
        assert!(copied.read_buffer(&Selection::all(&[8, 8])).unwrap().all_equal(&values, false).unwrap());
        let document: Value = serde_json::from_slice(&copied.metadata().to_json()).unwrap();
        let names: Vec<&str> =
            document["codecs"].as_array().into_iter().flatten().filter_map(|codec| codec["name"].as_str()).collect();
        assert_eq!(names, codecs);
        assert!(document.get("compressor").is_none_or(Value::is_null), "{document}");
    }
}

#[test]
fn changes_that_do_not_fit_are_named() {
    let source = source(memory(), [7, 8, 26], options(1 << 20));
    for document in [
        json!({"chunks": [1, 2]}),
        json!({"chunks": [4, 4, 4], "shards": [6, 8, 8]}),
        json!({"zarr_format": 2, "shards": [10, 10, 10]}),
        json!({"zarr_format": 2, "compressors": ["zstd", "gzip"]}),
        json!({"zarr_format": 2, "codecs": ["bytes"]}),
        json!({"codecs": ["bytes"], "compressors": ["zstd"]}),
        json!({"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1], "codecs": ["bytes"]}}]}),
        json!({"codecs": ["gzip"]}),
        json!({"codecs": ["gzip", "bytes"]}),
        json!({"codecs": []}),
    ] {
        let target = changes(document.clone()).apply(source.metadata());
        let copied = target.and_then(|target| Copy::new(&source, memory(), "", target, Existing::Refuse).map(drop));
        let error = copied.unwrap_err();
        let of_chain = document["codecs"].is_array() && error.kind() == ErrorKind::MetadataInvalid;
        assert!(of_chain || error.kind() == ErrorKind::InvalidArgument, "{document}: {error}");
    }
    for document in [json!({"chunks": [0]}), json!({"zarr_format": 4}), json!({"colour": 1}), json!([])] {
        assert!(Changes::from_json(&document).is_err(), "{document}");
    }
}
