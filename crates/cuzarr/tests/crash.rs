//! A process may be killed after any change of a store: arrays are whole before and after, or gone, and nothing old comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuzarr::compute::{Changes, Existing, copy_node};
use cuzarr::meta::{ArrayMetadata, GroupMetadata, NodeMetadata, ZarrFormat};
use cuzarr::node::{
    self, Array, ArrayOptions, Consolidation, Group, Mode, Node, consolidate_metadata, create_hierarchy,
};
use cuzarr::plan::Selection;
use cuzarr::store::{
    Capabilities, Condition, Identity, Key, Listing, MemoryStore, Payload, ReadRequest, ReadSink, Stat, Store,
    StoreExt, Workers,
};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order};

const FORMATS: [ZarrFormat; 2] = [ZarrFormat::V2, ZarrFormat::V3];

type Values = BTreeMap<String, Vec<u8>>;

fn options() -> ArrayOptions {
    ArrayOptions::default()
}

/// Bytes in chunks of two, with 0 where nothing is stored.
fn metadata(format: ZarrFormat, length: u64) -> ArrayMetadata {
    let parsed = match format {
        ZarrFormat::V2 => ArrayMetadata::from_json_v2(
            format!(
                r#"{{"zarr_format": 2, "shape": [{length}], "chunks": [2], "dtype": "|u1", "compressor": null, "fill_value": 0,
                    "order": "C", "filters": null}}"#
            )
            .as_bytes(),
            None,
        ),
        ZarrFormat::V3 => ArrayMetadata::from_json(
            format!(
                r#"{{"zarr_format": 3, "node_type": "array", "shape": [{length}], "data_type": "uint8", "fill_value": 0,
                    "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}},
                    "chunk_key_encoding": {{"name": "default"}}, "codecs": ["bytes"]}}"#
            )
            .as_bytes(),
        ),
    };
    parsed.unwrap()
}

fn fill(array: &Array, values: &[u8]) {
    let elements = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[values.len()], Order::C, values).unwrap();
    array.write(&Selection::all(array.shape()), &elements).unwrap();
}

fn elements(array: &Array) -> Vec<u8> {
    array.read(&Selection::all(array.shape())).unwrap().to_host_bytes(Order::C).unwrap()
}

/// Arrays `a`, `g/b` and `g/h/c` of elements that count from 1.
fn prepared(format: ZarrFormat) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for path in ["a", "g/b", "g/h/c"] {
        fill(
            &Array::create(Arc::clone(&store), path, metadata(format, 6), false, options()).unwrap(),
            &[1, 2, 3, 4, 5, 6],
        );
    }
    store
}

fn values(store: &dyn Store) -> Values {
    store.list("").unwrap().into_iter().map(|key| (key.clone(), store.get(&key).unwrap().unwrap())).collect()
}

/// A store in which every change after some of them fails, as if the process were dead. Each change is of one value: prefixes are
/// deleted value by value, in the order of keys, as most stores do.
#[derive(Debug)]
struct Mortal {
    values: MemoryStore,
    changes: usize,
    made: AtomicUsize,
}

impl Mortal {
    fn new(values: &Values, changes: usize) -> Arc<Mortal> {
        let store = MemoryStore::new();
        values.iter().for_each(|(key, value)| store.write(key, value).unwrap());
        Arc::new(Mortal { values: store, changes, made: AtomicUsize::new(0) })
    }

    fn change(&self) -> Result<()> {
        match self.made.fetch_add(1, Ordering::Relaxed) < self.changes {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::StoreFailed, "the process is dead")),
        }
    }

    fn is_dead(&self) -> bool {
        self.made.load(Ordering::Relaxed) > self.changes
    }
}

impl fmt::Display for Mortal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(f)
    }
}

impl Store for Mortal {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        self.values.read(batch, sink, workers);
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        if *condition == Condition::Absent && self.values.exists(key)? {
            return Ok(false);
        }
        self.change()?;
        self.values.put(key, value, condition)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| {
            if self.values.exists(key)? {
                self.change()?;
            }
            self.values.delete(key)
        })
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.delete_many(&self.values.list(prefix)?)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.values.stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.values.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.values.capabilities()
    }

    fn is_on(&self, device: Device) -> bool {
        self.values.is_on(device)
    }
}

/// Everything that readers find: arrays that have documents, wherever they lie, and those that groups have consolidated.
fn arrays(store: &Arc<dyn Store>) -> Vec<(String, Array)> {
    let mut found = Vec::new();
    for key in store.list("").unwrap() {
        let (path, name) = key.rsplit_once('/').unwrap_or(("", &key));
        if !["zarr.json", ".zarray", ".zgroup"].contains(&name) {
            continue;
        }
        match node::open_existing(Arc::clone(store), path, None, options()).unwrap() {
            Node::Array(array) => found.push((path.to_string(), array)),
            Node::Group(group) if group.consolidated().is_some() => {
                for (_, member) in group.members(None).unwrap() {
                    if let Node::Array(array) = member {
                        found.push((array.path().to_string(), array));
                    }
                }
            }
            Node::Group(_) => {}
        }
    }
    found
}

struct Operation {
    name: &'static str,
    is_consolidated: bool,
    run: fn(Arc<dyn Store>, ZarrFormat) -> Result<()>,
    /// What the arrays that are touched may hold, the last at the end.
    allowed: &'static [(&'static str, &'static [&'static [u8]])],
    /// Which arrays are there at the end.
    end: &'static [&'static str],
}

const OLD: &[u8] = &[1, 2, 3, 4, 5, 6];
const EMPTY: &[u8] = &[0, 0, 0, 0];

fn array(store: Arc<dyn Store>) -> Result<Array> {
    Array::open(store, "a", options())
}

fn root(store: Arc<dyn Store>) -> Result<Group> {
    Group::open(store, "", None, Consolidation::WhenPresent, options())
}

fn group_node(format: ZarrFormat) -> NodeMetadata {
    NodeMetadata::Group(Box::new(GroupMetadata::new(format, Default::default()).unwrap()))
}

fn array_node(format: ZarrFormat) -> NodeMetadata {
    NodeMetadata::Array(Box::new(metadata(format, 4)))
}

const OPERATIONS: &[Operation] = &[
    Operation {
        name: "shrink",
        is_consolidated: true,
        run: |store, _| array(store)?.resize(vec![3]),
        allowed: &[("a", &[OLD, &[1, 2, 3]])],
        end: &["a", "g/b", "g/h/c"],
    },
    Operation {
        name: "grow",
        is_consolidated: false,
        run: |store, _| array(store)?.resize(vec![9]),
        allowed: &[("a", &[OLD, &[1, 2, 3, 4, 5, 6, 0, 0, 0]])],
        end: &["a", "g/b", "g/h/c"],
    },
    Operation {
        name: "create over an array",
        is_consolidated: true,
        run: |store, format| root(store)?.create_array("a", metadata(format, 4), true).map(drop),
        allowed: &[("a", &[OLD, EMPTY])],
        end: &["a", "g/b", "g/h/c"],
    },
    Operation {
        name: "open to replace",
        is_consolidated: true,
        run: |store, format| {
            let new = Some(metadata(format, 4));
            node::open_array(store, "a", Mode::Replace, Some(format), new, options()).map(drop)
        },
        allowed: &[("a", &[OLD, EMPTY])],
        end: &["a", "g/b", "g/h/c"],
    },
    Operation {
        name: "delete an array",
        is_consolidated: true,
        run: |store, _| node::delete_node(&*store, "a").map(drop),
        allowed: &[("a", &[OLD])],
        end: &["g/b", "g/h/c"],
    },
    Operation {
        name: "delete a member",
        is_consolidated: true,
        run: |store, _| match root(store)?.delete("g") {
            // The former call came as far as that.
            Err(error) if error.kind() == ErrorKind::NodeNotFound => Ok(()),
            deleted => deleted,
        },
        allowed: &[("g/b", &[OLD]), ("g/h/c", &[OLD])],
        end: &["a"],
    },
    Operation {
        name: "create a group over a group",
        is_consolidated: false,
        run: |store, _| root(store)?.create_group("g", Default::default(), true).map(drop),
        allowed: &[("g/b", &[OLD]), ("g/h/c", &[OLD])],
        end: &["a"],
    },
    Operation {
        name: "create a hierarchy",
        is_consolidated: true,
        run: |store, format| {
            let nodes = [("a", array_node(format)), ("g/h", group_node(format)), ("g/h/c", array_node(format))];
            let nodes = nodes.map(|(path, node)| (path.to_string(), node)).to_vec();
            create_hierarchy(&*store, nodes, true).map(drop)
        },
        allowed: &[("a", &[OLD, EMPTY]), ("g/h/c", &[OLD, EMPTY])],
        end: &["a", "g/b", "g/h/c"],
    },
    Operation {
        name: "copy a group",
        is_consolidated: false,
        run: |store, _| {
            let source = Node::Group(root(Arc::clone(&store))?.group("g")?);
            copy_node(source, store, "a", &Changes::default(), Existing::Overwrite)?.run(&|_, _| ()).map(drop)
        },
        allowed: &[("a", &[OLD]), ("a/b", &[OLD]), ("a/h/c", &[OLD])],
        end: &["a/b", "a/h/c", "g/b", "g/h/c"],
    },
];

fn check(operation: &Operation, store: &Arc<dyn Store>, is_end: bool, place: &str) {
    let mut found = BTreeSet::new();
    for (path, array) in arrays(store) {
        let allowed =
            operation.allowed.iter().find(|(other, _)| *other == path).map_or(&[OLD][..], |(_, allowed)| allowed);
        let values = elements(&array);
        let is_allowed = match is_end {
            true => allowed.last().is_some_and(|last| *last == values),
            false => allowed.contains(&&values[..]),
        };
        assert!(is_allowed, "{place}: '{path}' is {values:?}");
        found.insert(path);
    }
    if is_end {
        assert_eq!(found, operation.end.iter().map(|path| path.to_string()).collect(), "{place}");
    }
}

#[test]
fn an_operation_that_ends_after_any_change_leaves_old_or_new_arrays() {
    for (operation, format) in OPERATIONS.iter().flat_map(|operation| FORMATS.map(|format| (operation, format))) {
        let store = prepared(format);
        if operation.is_consolidated {
            consolidate_metadata(Arc::clone(&store), "", Some(format), options()).unwrap();
        }
        let before = values(&*store);
        let mut changes = 0;
        loop {
            let place = format!("{} in {format:?} after {changes} changes", operation.name);
            let store = Mortal::new(&before, changes);
            let done = (operation.run)(store.clone(), format);
            assert_eq!(done.is_err(), store.is_dead(), "{place}: {done:?}");
            let left: Arc<dyn Store> = Arc::new(store.values.clone());
            check(operation, &left, done.is_ok(), &place);
            if done.is_ok() {
                break;
            }
            (operation.run)(Arc::clone(&left), format).unwrap_or_else(|error| panic!("{place}: {error}"));
            check(operation, &left, true, &place);
            changes += 1;
        }
        assert!(changes > 0, "{}", operation.name);
    }
}

#[test]
fn an_array_that_grows_after_a_shrink_that_died_has_the_fill_value() {
    for (format, first) in FORMATS.into_iter().flat_map(|format| (0..5).map(move |first| (format, first))) {
        let shrunk = Mortal::new(&values(&*prepared(format)), first);
        let died = array(shrunk.clone()).unwrap().resize(vec![1]);
        if array(shrunk.clone()).unwrap().shape() != [1] {
            continue;
        }
        assert!(died.is_err() || first > 2);
        for second in 0..5 {
            let grown = Mortal::new(&values(&shrunk.values), second);
            let _ = array(grown.clone()).unwrap().resize(vec![6]);
            let array = array(grown).unwrap();
            // The chunk at the edge keeps its second element, as zarr-python leaves it.
            let expected = if array.shape() == [1] { vec![1] } else { vec![1, 2, 0, 0, 0, 0] };
            assert_eq!(elements(&array), expected, "{format:?} {first} {second}");
        }
    }
}

#[test]
fn resizing_a_large_grid_deletes_what_is_stored_alone() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut array =
        Array::create(Arc::clone(&store), "a", metadata(ZarrFormat::V3, 1 << 40), false, options()).unwrap();
    for at in [0, 5000, 1 << 39] {
        let value = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[1], Order::C, &[7]).unwrap();
        array.write(&Selection::region(&[at], &[1]).unwrap(), &value).unwrap();
    }
    array.resize(vec![4096]).unwrap();
    assert_eq!(store.list("a/c").unwrap(), ["a/c/0"]);
    // Left by a call that was killed.
    store.write("a/c/2500", &[7, 7]).unwrap();
    store.write("a/.cuzarr-work.json", b"{}").unwrap();
    array.resize(vec![1 << 40]).unwrap();
    assert_eq!(store.list("a").unwrap(), ["a/c/0", "a/zarr.json"]);
}

#[test]
fn chunks_without_metadata_become_an_array_only_when_that_is_asked_for() {
    for format in FORMATS {
        let store = prepared(format);
        let name = if format == ZarrFormat::V2 { "a/.zarray" } else { "a/zarr.json" };
        store.delete(name).unwrap();
        let create = |overwrite| Array::create(Arc::clone(&store), "a", metadata(format, 6), overwrite, options());
        assert_eq!(create(false).unwrap_err().kind(), ErrorKind::ContainsArray);
        let nodes = vec![("a".to_string(), array_node(format))];
        assert_eq!(create_hierarchy(&*store, nodes, false).unwrap_err().kind(), ErrorKind::ContainsArray);
        let adopted = Array::adopt(Arc::clone(&store), "a", metadata(format, 6), options()).unwrap();
        assert_eq!(elements(&adopted), OLD);
        store.delete(name).unwrap();
        assert_eq!(elements(&create(true).unwrap()), [0; 6]);
    }
}
