//! Any bytes as a table of references in JSON: nothing may panic, and what is accepted can be listed. No file is opened.

use cuzarr::store::{Registry, Store, StoreExt};
use cuzarr_remote::reference::{ReferenceStore, ReferenceTable, Rules};

/// Reads `bytes` and looks at all keys. Returns whether it is a table with any.
pub fn check(bytes: &[u8]) -> usize {
    let Ok(table) = ReferenceTable::from_json(bytes) else { return 0 };
    let store = ReferenceStore::new("any", table, Rules::new(), &Registry::new());
    let keys = store.list("").expect("a table can be listed");
    for key in &keys {
        let _ = (store.size_bytes(key), store.get_at_most(key, 1 << 20));
    }
    keys.len()
}
