//! Checks that a layer over another store passes every call on to that store.

use std::fmt;
use std::sync::{Arc, Mutex};

use cuzarr_device::{Buffer, Device};

use super::{ok, request};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    ByteRange, Capabilities, Condition, Identity, InlineWorkers, Key, Lease, Listing, Lock, MemoryStore, OpenValues,
    Payload, ReadOutcome, ReadRequest, ReadSink, Stat, Store, StoreExt, Unfinished, Version, Workers,
};

/// Checks that a store which wraps another one, and changes no keys but their prefix, passes every call on to it. `wrap` returns a store that shows all or a
/// part of the given store. Every call must reach the inner store, and what that store says about itself must come
/// through.
///
/// # Panics
/// If the layer does not pass something through.
pub fn forwards(wrap: &dyn Fn(Arc<dyn Store>) -> Arc<dyn Store>) {
    for (far, conditional_writes, divides_reads) in [(true, false, true), (false, true, false), (true, true, false)] {
        for (deletes, transactional) in [(true, false), (false, true)] {
            let (writes_parts, shortens_parts) = (deletes, far);
            let said = Capabilities {
                read_only: false,
                deletes,
                conditional_writes,
                transactional,
                far,
                versions: deletes,
                divides_reads,
                writes_parts,
                shortens_parts,
            };
            let inner = Arc::new(Behind { values: MemoryStore::new(), said, heard: Mutex::default() });
            let layer = wrap(Arc::clone(&inner) as Arc<dyn Store>);
            let read_only = layer.capabilities().read_only;
            assert_eq!(layer.capabilities(), Capabilities { read_only, ..said });
            assert!(layer.is_on(Device::Simt) && !layer.is_on(Device::Cpu));
            assert!(matches!(layer.try_lock("node"), Ok(Lock::Busy)) && layer.above().is_some());
            assert!(layer.identity().overlaps(&inner.values.identity()), "the layer is about other values");
            if !read_only {
                forwards_writes(&layer, &inner);
            }
            let sink = Arc::new(Asked::default());
            layer.read(
                vec![request("asked", ByteRange::Full)].into(),
                Arc::clone(&sink) as Arc<dyn ReadSink>,
                &InlineWorkers,
            );
            assert_eq!(
                *sink.0.lock().unwrap(),
                ["check", "open_values", "opened 0", "device", "reserve_on_device 0", "done 0"]
            );
        }
    }
}

fn forwards_writes(layer: &Arc<dyn Store>, inner: &Behind) {
    ok(layer.write_buffer("a", &Buffer::from_vec(vec![1])));
    ok(layer.put("a", Payload::Bytes(&[1, 2]), &Condition::Absent));
    let finished = layer.begin("a", 3).and_then(Unfinished::finish);
    assert_eq!(finished.expect_err("the store behind was not asked").message(), "told to fail");
    ok(layer.delete_many(&["a".into(), "b".into()]));
    ok(layer.delete_prefix("p"));
    let heard = inner.heard.lock().unwrap().clone();
    assert_eq!(heard[..3], ["buffer of 1, Always", "bytes of 2, Absent", "begin 3"]);
    let deleted = &heard[3..];
    assert!(deleted.iter().any(|heard| heard == "delete 2 keys"), "one batch became many: {deleted:?}");
    assert!(deleted.iter().any(|heard| heard == "delete prefix"), "{deleted:?}");
}

/// The inner store of the checks, which records the calls that reach it.
#[derive(Debug)]
struct Behind {
    values: MemoryStore,
    said: Capabilities,
    heard: Mutex<Vec<String>>,
}

impl Behind {
    fn hear(&self, what: String) {
        self.heard.lock().unwrap().push(what);
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.values, f)
    }
}

impl Store for Behind {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, _workers: &dyn Workers) {
        // Asks everything that a store may ask a sink.
        for index in 0..batch.len() {
            ok(sink.check());
            assert!(sink.open_values().is_none());
            ok(sink.opened(index, Version::numbered(0)));
            assert_eq!(sink.device(), Device::Simt);
            assert!(sink.reserve_on_device(index, 1).is_err());
            sink.done(index, Ok(ReadOutcome::Missing));
        }
    }

    fn put(&self, _key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let kind = if matches!(value, Payload::Buffer(_)) { "buffer" } else { "bytes" };
        self.hear(format!("{kind} of {}, {condition:?}", value.size_bytes()));
        Ok(true)
    }

    fn begin(&self, _key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.hear(format!("begin {size_bytes}"));
        Ok(Box::new(Refusing))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.hear(format!("delete {} keys", keys.len()));
        Ok(())
    }

    fn delete_prefix(&self, _prefix: &Key) -> Result<()> {
        self.hear("delete prefix".into());
        Ok(())
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
        self.said
    }

    fn is_on(&self, device: Device) -> bool {
        device == Device::Simt
    }

    fn try_lock(&self, _prefix: &Key) -> Result<Lock> {
        Ok(Lock::Busy)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        Some((Arc::new(MemoryStore::new()), "above".into()))
    }
}

/// A value for tests that accepts all of its parts, but then fails to be completed.
struct Refusing;

impl Unfinished for Refusing {
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn shorten(&mut self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Err(Error::new(ErrorKind::StoreFailed, "told to fail"))
    }
}

/// A sink for tests that records the calls of the store.
#[derive(Default)]
struct Asked(Mutex<Vec<String>>);

impl Asked {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Asked {
    fn check(&self) -> Result<()> {
        self.note("check");
        Ok(())
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.note(format!("reserve {index}"));
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.note("open_values");
        None
    }

    fn opened(&self, index: usize, _version: Version) -> Result<()> {
        self.note(format!("opened {index}"));
        Ok(())
    }

    fn device(&self) -> Device {
        self.note("device");
        Device::Simt
    }

    fn reserve_on_device(&self, index: usize, _size_bytes: u64) -> Result<Buffer> {
        self.note(format!("reserve_on_device {index}"));
        Err(Error::new(ErrorKind::MemorySpace, "this sink only listens"))
    }

    fn done(&self, index: usize, _outcome: Result<ReadOutcome>) {
        self.note(format!("done {index}"));
    }
}
