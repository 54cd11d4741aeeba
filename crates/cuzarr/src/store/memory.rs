//! Values in host memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::batch::{self, Object, Source};
use super::values::Values;
use super::{Key, Listing, ReadRequest, ReadSink, Store, Version, Workers};
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
    values: Values<Value>,
    number: u64,
}

/// A value, with a number that no other has.
#[derive(Clone)]
pub(super) struct Value {
    bytes: Arc<[u8]>,
    number: u64,
}

impl Value {
    fn new(bytes: &[u8]) -> Value {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Value { bytes: Arc::from(bytes), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        MemoryStore { values: Values::default(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl Source for MemoryStore {
    type Object = Value;

    fn open(&self, key: &Key) -> Result<Option<Value>> {
        self.values.get(key)
    }

    fn name(&self) -> String {
        self.to_string()
    }
}

impl Object for Value {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn version(&self) -> Option<Version> {
        Some(Version::numbered(self.number))
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // `batch` resolved the range inside this very value, which never changes.
        let offset = offset as usize;
        bytes.copy_from_slice(&self.bytes[offset..offset + bytes.len()]);
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
        self.values.insert(key, Value::new(value))
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        self.values.insert_if_absent(key, Value::new(value))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.values.remove(key)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.values.remove_prefix(prefix)
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.values.get(key)?.map(|value| value.bytes.len() as u64))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn divides_reads(&self) -> bool {
        true
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
