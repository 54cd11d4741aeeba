//! A store that keeps its values in host memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr_device::Device;

use super::batch::{self, Source};
use super::object::Object;
use super::values::Values;
use super::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Version, Workers, no_parts,
};
use crate::error::Result;

/// A store that keeps its values in host memory. Clones share the values.
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
    identity: Identity,
}

/// A value in host memory, and a unique number that serves as its version.
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

    fn version(&self) -> Version {
        Version::numbered(self.number)
    }
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        MemoryStore { values: Values::default(), identity: Identity::unique() }
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
        Some(Value::version(self))
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        // `batch` checked the range against this value, which never changes.
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

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let value = value.with_bytes(|bytes| Ok(Value::new(bytes)))?;
        self.values.insert_if(key, value, |old| condition.allows(old.map(|old| old.version()).as_ref()))
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        no_parts(self, key)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        self.values.remove(keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.values.remove_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let stat = |value: Value| Stat { size_bytes: value.bytes.len() as u64, version: Some(value.version()) };
        Ok(self.values.get(key)?.map(stat))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.values.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.values.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { conditional_writes: true, versions: true, divides_reads: true, ..Capabilities::default() }
    }

    fn is_on(&self, _device: Device) -> bool {
        false
    }

    fn try_lock(&self, _prefix: &Key) -> Result<Lock> {
        Ok(Lock::Unsupported)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}

impl fmt::Display for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory://{}", self.identity)
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
