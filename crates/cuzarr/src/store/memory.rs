//! Values in host memory.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::batch::{self, Object, Source};
use super::key::{join_key, validate_key, validate_prefix};
use super::{Key, Listing, ReadRequest, ReadSink, Store, Workers};
use crate::error::Result;

/// Values in host memory. Cloning shares them.
///
/// ```
/// use cuzarr::store::{MemoryStore, Store, StoreExt};
/// let store = MemoryStore::new();
/// store.write("a/b", b"bytes")?;
/// assert_eq!(store.get("a/b")?.as_deref(), Some(&b"bytes"[..]));
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    values: Arc<RwLock<Values>>,
    number: u64,
}

type Values = BTreeMap<String, Arc<[u8]>>;

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        MemoryStore { values: Arc::default(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    fn values(&self) -> RwLockReadGuard<'_, Values> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn values_mut(&self) -> RwLockWriteGuard<'_, Values> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl Source for MemoryStore {
    type Object = Arc<[u8]>;

    fn open(&self, key: &Key) -> Result<Option<Arc<[u8]>>> {
        validate_key(key)?;
        Ok(self.values().get(key).cloned())
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

impl Object for Arc<[u8]> {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // `batch` resolved the range inside this very value, which never changes.
        let offset = offset as usize;
        bytes.copy_from_slice(&self[offset..offset + bytes.len()]);
        Ok(())
    }

    fn check_unchanged(&self) -> Result<()> {
        Ok(())
    }
}

impl Store for MemoryStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        batch::run(self.clone(), batch, sink, workers);
    }

    fn write(&self, key: &Key, value: &[u8]) -> Result<()> {
        validate_key(key)?;
        let value = Arc::from(value);
        self.values_mut().insert(key.to_string(), value);
        Ok(())
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        validate_key(key)?;
        let mut values = self.values_mut();
        if values.contains_key(key) {
            return Ok(false);
        }
        values.insert(key.to_string(), Arc::from(value));
        Ok(true)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        validate_key(key)?;
        self.values_mut().remove(key);
        Ok(())
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        validate_prefix(prefix)?;
        let mut values = self.values_mut();
        if prefix.is_empty() {
            values.clear();
            return Ok(());
        }
        // Everything below `prefix/` lies between `prefix/` and `prefix0`: '0' is the character after '/'.
        let mut tail = values.split_off(&format!("{prefix}/"));
        let mut rest = tail.split_off(&format!("{prefix}0"));
        values.append(&mut rest);
        Ok(())
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        validate_key(key)?;
        Ok(self.values().get(key).map(|value| value.len() as u64))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        validate_prefix(prefix)?;
        let (values, start) = (self.values(), join_key(prefix, ""));
        let (mut listing, mut from) = (Listing::default(), start.clone());
        // Jumps over whole sub-prefixes, so the cost is the number of entries, not of keys below them.
        while let Some((key, _)) = values.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded)).next() {
            let Some(name) = key.strip_prefix(&start) else { break };
            match name.split_once('/') {
                None => {
                    listing.keys.push(key.clone());
                    from = format!("{key}\0");
                }
                Some((child, _)) => {
                    listing.prefixes.push(format!("{start}{child}"));
                    from = format!("{start}{child}0");
                }
            }
        }
        // 'a' < 'a-b' < 'a/c': prefixes are met in the order of 'a/', and sorted as 'a'.
        listing.prefixes.sort_unstable();
        Ok(listing)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        validate_prefix(prefix)?;
        let (values, start) = (self.values(), join_key(prefix, ""));
        let below = values.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
        Ok(below.map(|(key, _)| key).take_while(|key| key.starts_with(&start)).cloned().collect())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory://{}", self.number)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore('{self}')")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conforms() {
        super::super::conformance::run(&|| Arc::new(MemoryStore::new()));
    }
}
