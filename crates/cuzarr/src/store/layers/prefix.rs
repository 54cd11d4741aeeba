//! A store that shows the values below a prefix of another store.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::Device;

use crate::error::Result;
use crate::store::key::{join_key, validate_key, validate_prefix};
use crate::store::{
    Capabilities, Condition, Identity, Key, Listing, Lock, Payload, ReadRequest, ReadSink, Stat, Store, Unfinished,
    Workers,
};

/// A store that shows only the values below a prefix of another store, under shorter keys.
#[derive(Clone, Debug)]
pub struct Prefixed {
    inner: Arc<dyn Store>,
    prefix: String,
}

impl Prefixed {
    /// Makes a store that shows only the values of `inner` below `prefix`.
    ///
    /// # Errors
    /// `KeyInvalid` when the prefix is not valid.
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

#[deny(clippy::missing_trait_methods)]
impl Store for Prefixed {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        // With the prefix in front, an invalid key could become valid. `//` keeps it invalid, so the inner store
        // refuses it.
        let inner_key = |key: &str| self.key(key).unwrap_or_else(|_| format!("{}//{key}", self.prefix));
        let batch = batch.iter().map(|request| ReadRequest { key: inner_key(&request.key), range: request.range });
        self.inner.read(batch.collect(), sink, workers);
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        self.inner.put(&self.key(key)?, value, condition)
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.inner.begin(&self.key(key)?, size_bytes)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let keys: Vec<String> = keys.iter().map(|key| self.key(key)).collect::<Result<_>>()?;
        self.inner.delete_many(&keys)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.inner.delete_prefix(&self.prefix(prefix)?)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.inner.stat(&self.key(key)?)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        let Listing { keys, prefixes } = self.inner.list_dir(&self.prefix(prefix)?)?;
        Ok(Listing { keys: self.strip(keys), prefixes: self.strip(prefixes) })
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        Ok(self.strip(self.inner.list(&self.prefix(prefix)?)?))
    }

    fn identity(&self) -> Identity {
        self.inner.identity().below(&self.prefix)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.inner.try_lock(&self.prefix(prefix)?)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        let (above, name) = match self.prefix.rsplit_once('/') {
            Some((above, name)) => (above, name),
            None if self.prefix.is_empty() => return self.inner.above(),
            None => return Some((Arc::clone(&self.inner), self.prefix.clone())),
        };
        let above = Prefixed { inner: Arc::clone(&self.inner), prefix: above.to_string() };
        Some((Arc::new(above), name.to_string()))
    }
}

impl fmt::Display for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() { write!(f, "{}", self.inner) } else { write!(f, "{}/{}", self.inner, self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, StoreExt, conformance};

    #[test]
    fn prefixed_store_conforms() {
        conformance::run(&|| {
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
    fn prefixed_store_forwards_everything() {
        conformance::forwards(&|inner| Arc::new(Prefixed::new(inner, "below").unwrap()));
    }
}
