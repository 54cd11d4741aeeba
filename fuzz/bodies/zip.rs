//! Any bytes as a ZIP file: nothing may panic, and each member that is read is as long as its size says.

use std::sync::Arc;

use cuzarr::store::{MemoryStore, Store, StoreExt, ZipStore};

/// Most bytes of a member that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Opens `bytes` and reads all members. Returns how many could be read.
pub fn check(bytes: &[u8]) -> usize {
    let outer = MemoryStore::new();
    outer.write("a.zip", bytes).expect("memory takes all values");
    let Ok(store) = ZipStore::open(Arc::new(outer), "a.zip") else { return 0 };
    let keys = store.list("").expect("a directory that was read can be listed");
    let read = keys.iter().filter(|key| {
        let value = store.get_at_most(key, MOST_BYTES).ok().flatten();
        value.is_some_and(|value| store.size_bytes(key).is_ok_and(|size| size == Some(value.len() as u64)))
    });
    read.count()
}
