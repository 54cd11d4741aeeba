//! A store that refuses every write.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::Device;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Workers,
};

/// A store that refuses every write.
#[derive(Clone, Debug)]
pub struct ReadOnly {
    inner: Arc<dyn Store>,
}

impl ReadOnly {
    /// Makes a read-only view of `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        ReadOnly { inner }
    }
}

/// The error for a write to a read-only store.
pub(in crate::store) fn read_only_error(store: &dyn Store, key: &Key) -> Error {
    let message = format!("{store}: key '{key}': the store was opened for reading only");
    Error::new(ErrorKind::ReadOnly, message).with_hint("open it with mode 'r+' or 'a'")
}

#[deny(clippy::missing_trait_methods)]
impl Store for ReadOnly {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        self.inner.read(batch, sink, workers);
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn put(&self, key: &Key, _value: Payload<'_>, _condition: &Condition) -> Result<bool> {
        Err(read_only_error(self, key))
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        Err(read_only_error(self, key))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.first().map_or(Ok(()), |key| Err(read_only_error(self, key)))
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        Err(read_only_error(self, prefix))
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.inner.stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.inner.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.inner.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { read_only: true, ..self.inner.capabilities() }
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.inner.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        let (above, name) = self.inner.above()?;
        Some((Arc::new(ReadOnly::new(above)), name))
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

#[cfg(test)]
mod tests {
    use cuzarr_device::Buffer;

    use super::*;
    use crate::store::{MemoryStore, StoreExt, conformance};

    #[test]
    fn forwards_reads() {
        conformance::forwards(&|inner| Arc::new(ReadOnly::new(inner)));
    }

    #[test]
    fn read_only_store_refuses_each_way_of_writing() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        inner.write("a/b", b"kept").unwrap();
        let store = ReadOnly::new(Arc::clone(&inner));
        let refusals = [
            store.write("a/b", b"new").unwrap_err(),
            store.write_buffer("a/b", &Buffer::from_vec(b"new".to_vec())).unwrap_err(),
            store.write_if_absent("c", b"new").unwrap_err(),
            store.delete("a/b").unwrap_err(),
            store.delete_many(&["a/b".into()]).unwrap_err(),
            store.delete_prefix("").unwrap_err(),
        ];
        assert!(refusals.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
        assert_eq!(store.get("a/b").unwrap().as_deref(), Some(&b"kept"[..]));
        assert_eq!(inner.list("").unwrap(), ["a/b"]);
    }
}
