//! A process that may be killed after any change of a store, and what readers find then. Tests of operations that change several
//! values share this.

#![allow(dead_code)] // each test file uses its part

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuzarr::meta::{ArrayMetadata, GroupMetadata, NodeMetadata, ZarrFormat};
use cuzarr::node::{self, Array, ArrayOptions, Consolidation, Group, Node, consolidate_metadata};
use cuzarr::plan::Selection;
use cuzarr::store::{
    Capabilities, Condition, Identity, Key, Listing, Lock, MemoryStore, Payload, ReadRequest, ReadSink, Stat, Store,
    StoreExt, Unfinished, Workers, no_parts,
};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{DType, Device, NdBuffer, Order};

pub const FORMATS: [ZarrFormat; 2] = [ZarrFormat::V2, ZarrFormat::V3];

pub type Values = BTreeMap<String, Vec<u8>>;

pub fn options() -> ArrayOptions {
    ArrayOptions::default()
}

/// Bytes in chunks of two, with 0 where nothing is stored.
pub fn metadata(format: ZarrFormat, length: u64) -> ArrayMetadata {
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

pub fn fill(array: &Array, values: &[u8]) {
    let elements = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[values.len()], Order::C, values).unwrap();
    array.write_buffer(&Selection::all(array.shape()), &elements).unwrap();
}

pub fn elements(array: &Array) -> Vec<u8> {
    array.read_buffer(&Selection::all(array.shape())).unwrap().to_host_bytes(Order::C).unwrap()
}

/// Arrays `a`, `g/b` and `g/h/c` of elements that count from 1.
pub fn prepared(format: ZarrFormat) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for path in ["a", "g/b", "g/h/c"] {
        fill(
            &Array::create(Arc::clone(&store), path, metadata(format, 6), false, options()).unwrap(),
            &[1, 2, 3, 4, 5, 6],
        );
    }
    store
}

pub fn values(store: &dyn Store) -> Values {
    store.list("").unwrap().into_iter().map(|key| (key.clone(), store.get(&key).unwrap().unwrap())).collect()
}

/// A store in which every change after some of them fails, as if the process were dead. Each change is of one value: prefixes are
/// deleted value by value, in the order of keys, as most stores do.
#[derive(Debug)]
pub struct Mortal {
    pub values: MemoryStore,
    changes: usize,
    made: AtomicUsize,
}

impl Mortal {
    pub fn new(values: &Values, changes: usize) -> Arc<Mortal> {
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

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        no_parts(self, key)
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
        Capabilities { writes_parts: false, ..self.values.capabilities() }
    }

    fn is_on(&self, device: Device) -> bool {
        self.values.is_on(device)
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.values.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.values.above()
    }
}

/// Everything that readers find: arrays that have documents, wherever they lie, and those that groups have consolidated.
pub fn arrays(store: &Arc<dyn Store>) -> Vec<(String, Array)> {
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

pub struct Operation {
    pub name: &'static str,
    pub is_consolidated: bool,
    pub run: fn(Arc<dyn Store>, ZarrFormat) -> Result<()>,
    /// What the arrays that are touched may hold, the last at the end.
    pub allowed: &'static [(&'static str, &'static [&'static [u8]])],
    /// Which arrays are there at the end.
    pub end: &'static [&'static str],
}

pub const OLD: &[u8] = &[1, 2, 3, 4, 5, 6];
pub const EMPTY: &[u8] = &[0, 0, 0, 0];

pub fn array(store: Arc<dyn Store>) -> Result<Array> {
    Array::open(store, "a", options())
}

pub fn root(store: Arc<dyn Store>) -> Result<Group> {
    Group::open(store, "", None, Consolidation::WhenPresent, options())
}

pub fn group_node(format: ZarrFormat) -> NodeMetadata {
    NodeMetadata::Group(Box::new(GroupMetadata::new(format, Default::default()).unwrap()))
}

pub fn array_node(format: ZarrFormat) -> NodeMetadata {
    NodeMetadata::Array(Box::new(metadata(format, 4)))
}

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

/// Lets each operation end after every number of changes, and looks what readers find; then repeats it.
pub fn check_operations(operations: &[Operation]) {
    for (operation, format) in operations.iter().flat_map(|operation| FORMATS.map(|format| (operation, format))) {
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
