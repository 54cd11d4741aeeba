//! Stores that are views of others.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use super::key::{join_key, validate_key, validate_prefix};
use super::{Key, Listing, ReadRequest, ReadSink, Store, Workers};
use crate::error::{Error, ErrorKind, Result};

/// A store that refuses every write.
#[derive(Clone, Debug)]
pub struct ReadOnly {
    inner: Arc<dyn Store>,
}

impl ReadOnly {
    /// The same values, for reading only.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        ReadOnly { inner }
    }
}

/// The refusal of every store that was opened for reading only.
pub(super) fn read_only_error(store: &dyn Store, key: &Key) -> Error {
    let message = format!("{store}: key '{key}': the store was opened for reading only");
    Error::new(ErrorKind::ReadOnly, message).with_hint("open it with mode 'r+' or 'a'")
}

impl Store for ReadOnly {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        self.inner.read(batch, sink, workers);
    }

    fn write(&self, key: &Key, _value: &[u8]) -> Result<()> {
        Err(read_only_error(self, key))
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn write_buffer(&self, key: &Key, _value: &Buffer) -> Result<()> {
        Err(read_only_error(self, key))
    }

    fn write_if_absent(&self, key: &Key, _value: &[u8]) -> Result<bool> {
        Err(read_only_error(self, key))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        Err(read_only_error(self, key))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.first().map_or(Ok(()), |key| Err(read_only_error(self, key)))
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        Err(read_only_error(self, prefix))
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        self.inner.size_bytes(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.inner.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.inner.list(prefix)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn supports_deletes(&self) -> bool {
        self.inner.supports_deletes()
    }

    fn is_far(&self) -> bool {
        self.inner.is_far()
    }

    fn is_transactional(&self) -> bool {
        self.inner.is_transactional()
    }

    fn divides_reads(&self) -> bool {
        self.inner.divides_reads()
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

/// What lies below a prefix of another store, as a store of its own.
#[derive(Clone, Debug)]
pub struct Prefixed {
    inner: Arc<dyn Store>,
    prefix: String,
}

impl Prefixed {
    /// The values below `prefix`.
    ///
    /// # Errors
    /// `KeyInvalid` when the prefix has no meaning.
    pub fn new(inner: Arc<dyn Store>, prefix: &Key) -> Result<Self> {
        validate_prefix(prefix)?;
        Ok(Prefixed { inner, prefix: prefix.to_string() })
    }

    fn key(&self, key: &Key) -> Result<String> {
        validate_key(key)?;
        Ok(join_key(&self.prefix, key))
    }

    fn prefix(&self, prefix: &Key) -> Result<String> {
        validate_prefix(prefix)?;
        Ok(if prefix.is_empty() { self.prefix.clone() } else { join_key(&self.prefix, prefix) })
    }

    fn strip(&self, keys: Vec<String>) -> Vec<String> {
        let start = join_key(&self.prefix, "");
        keys.iter().filter_map(|key| key.strip_prefix(&start)).map(String::from).collect()
    }
}

impl Store for Prefixed {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        // An invalid key stays as it is when its prefix would make it valid: the store below must refuse it.
        let inner_key = |key: &str| self.key(key).unwrap_or_else(|_| format!("{}//{key}", self.prefix));
        let batch = batch.iter().map(|request| ReadRequest { key: inner_key(&request.key), range: request.range });
        self.inner.read(batch.collect(), sink, workers);
    }

    fn write(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.inner.write(&self.key(key)?, value)
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn write_buffer(&self, key: &Key, value: &Buffer) -> Result<()> {
        self.inner.write_buffer(&self.key(key)?, value)
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        self.inner.write_if_absent(&self.key(key)?, value)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.inner.delete(&self.key(key)?)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect::<Result<_>>()?;
        self.inner.delete_many(&keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.inner.delete_prefix(&self.prefix(prefix)?)
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        self.inner.size_bytes(&self.key(key)?)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        let Listing { keys, prefixes } = self.inner.list_dir(&self.prefix(prefix)?)?;
        Ok(Listing { keys: self.strip(keys), prefixes: self.strip(prefixes) })
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        Ok(self.strip(self.inner.list(&self.prefix(prefix)?)?))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn supports_deletes(&self) -> bool {
        self.inner.supports_deletes()
    }

    fn is_far(&self) -> bool {
        self.inner.is_far()
    }

    fn is_transactional(&self) -> bool {
        self.inner.is_transactional()
    }

    fn divides_reads(&self) -> bool {
        self.inner.divides_reads()
    }
}

impl fmt::Display for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() { write!(f, "{}", self.inner) } else { write!(f, "{}/{}", self.inner, self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, StoreExt};
    use super::*;

    #[test]
    fn prefixed_store_conforms() {
        super::super::conformance::run(&|| {
            let outer = MemoryStore::new();
            outer.write("outside", b"untouched").unwrap();
            Arc::new(Prefixed::new(Arc::new(outer), "some/where").unwrap())
        });
    }

    #[test]
    fn prefixed_store_leaves_its_neighbours_alone() {
        let outer: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let inner = Prefixed::new(Arc::clone(&outer), "a").unwrap();
        outer.write("ab/c", b"neighbour").unwrap();
        inner.write("c", b"own").unwrap();
        inner.delete_prefix("").unwrap();
        assert_eq!(outer.list("").unwrap(), ["ab/c"]);
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
