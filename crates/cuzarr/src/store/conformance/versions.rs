//! Tests of a store's identity and capabilities, and of the versions of its values.

use std::sync::{Arc, Mutex};

use cuzarr_device::Device;

use super::{bytes, ok, request};
use crate::error::{ErrorKind, Result};
use crate::store::{
    ByteRange, Condition, InlineWorkers, Key, Lease, MemoryStore, Payload, ReadOutcome, ReadSink, Store, StoreExt,
    Version,
};

pub(super) fn tells_one_identity(store: &Arc<dyn Store>) {
    let identity = store.identity();
    ok(store.write("a/b", b"1"));
    assert_eq!(store.identity(), identity, "writing made it another store");
    assert!(identity.has_same_chunks(&identity) && identity.overlaps(&identity.below("a")));
    assert!(identity.below("a") != identity && !identity.below("a").overlaps(&identity.below("b")));
    assert!(!identity.overlaps(&MemoryStore::new().identity()));
}

pub(super) fn tells_versions_apart(store: &Arc<dyn Store>) {
    let version = |key: &Key| ok(store.stat(key)).expect("the value is there").version;
    ok(store.write("k", &bytes(1, 10)));
    assert_eq!(ok(store.stat("k")).map(|stat| stat.size_bytes), Some(10));
    assert_eq!(ok(store.stat("missing")), None);
    let Some(first) = version("k") else { return };
    assert_eq!(version("k").as_ref(), Some(&first), "nothing changed");
    ok(store.write("k", &bytes(2, 11)));
    let second = version("k").expect("the store knows versions");
    assert!(!second.has_same_bytes(&first), "the value was replaced");
    let sink = Arc::new(Versions::default());
    store.read(vec![request("k", ByteRange::Full)].into(), Arc::clone(&sink) as Arc<dyn ReadSink>, &InlineWorkers);
    if let Some(opened) = sink.0.lock().unwrap().first() {
        assert!(
            opened.has_same_bytes(&second),
            "the version of what is read is another one than that of what is there"
        );
    }
}

/// A sink for tests that records the versions that the store reports.
#[derive(Default)]
struct Versions(Mutex<Vec<Version>>);

impl ReadSink for Versions {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        Ok(Box::new(vec![0; size_bytes as usize]))
    }

    fn opened(&self, _index: usize, version: Version) -> Result<()> {
        self.0.lock().unwrap().push(version);
        Ok(())
    }

    fn done(&self, _index: usize, _outcome: Result<ReadOutcome>) {}
}

pub(super) fn writes_over_one_version(store: &Arc<dyn Store>) {
    ok(store.write("k", b"first"));
    let put = |value: &[u8], condition: &Condition| store.put("k", Payload::Bytes(value), condition);
    if !store.capabilities().conditional_writes {
        let error = put(b"x", &Condition::Unchanged(Version::numbered(0))).expect_err("a condition was ignored");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(ok(store.get("k")).as_deref(), Some(&b"first"[..]));
        return;
    }
    let first = Condition::Unchanged(ok(store.stat("k")).and_then(|stat| stat.version).expect("a version"));
    assert!(ok(put(b"second", &first)));
    assert!(!ok(put(b"third", &first)), "another writer was there");
    assert_eq!(ok(store.get("k")).as_deref(), Some(&b"second"[..]));
    ok(store.delete("k"));
    assert!(!ok(put(b"fourth", &first)), "the value is gone");
    assert_eq!(ok(store.get("k")), None);
}

pub(super) fn does_what_its_capabilities_say(store: &Arc<dyn Store>) {
    let said = store.capabilities();
    assert_eq!(store.capabilities(), said, "capabilities do not change");
    assert!(!said.read_only && said.deletes, "the suite writes and deletes");
    assert!(!store.is_on(Device::Cpu), "memory of the host is no device");
    ok(store.write("k", b"1"));
    ok(store.delete("k"));
    assert!(!ok(store.exists("k")));
}
