//! A store that keeps metadata in one store and everything else in another.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use crate::error::Result;
use crate::store::key::is_document;
use crate::store::{
    Capabilities, Condition, Identity, Key, Lease, Listing, Lock, OpenValues, Payload, ReadOutcome, ReadRequest,
    ReadSink, Stat, Store, Unfinished, Version, Workers,
};

/// Two stores that act as one: one holds the documents of arrays and groups; the other holds chunks and everything
/// else.
#[derive(Clone, Debug)]
pub struct Split {
    data: Arc<dyn Store>,
    metadata: Arc<dyn Store>,
}

impl Split {
    /// Makes a store that keeps documents in `metadata` and everything else in `data`.
    pub fn new(data: Arc<dyn Store>, metadata: Arc<dyn Store>) -> Self {
        Split { data, metadata }
    }

    fn of(&self, key: &Key) -> &Arc<dyn Store> {
        if is_document(key) { &self.metadata } else { &self.data }
    }
}

/// A sink for some items of a batch, which passes each call on to the batch's sink, with the item's number in the whole
/// batch.
pub(in crate::store) struct Side {
    sink: Arc<dyn ReadSink>,
    places: Vec<usize>,
}

impl Side {
    pub(in crate::store) fn new(sink: Arc<dyn ReadSink>, places: Vec<usize>) -> Self {
        Side { sink, places }
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for Side {
    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.sink.reserve(self.places[index], size_bytes)
    }

    fn open_values(&self) -> Option<&OpenValues> {
        // Each key belongs to only one of the stores, so both can share the open values.
        self.sink.open_values()
    }

    fn opened(&self, index: usize, version: Version) -> Result<()> {
        self.sink.opened(self.places[index], version)
    }

    fn device(&self) -> Device {
        self.sink.device()
    }

    fn reserve_on_device(&self, index: usize, size_bytes: u64) -> Result<Buffer> {
        self.sink.reserve_on_device(self.places[index], size_bytes)
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        self.sink.done(self.places[index], outcome);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Split {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        for store in [&self.data, &self.metadata] {
            let is_here = |request: &ReadRequest| Arc::ptr_eq(self.of(&request.key), store);
            let places: Vec<usize> = (0..batch.len()).filter(|&place| is_here(&batch[place])).collect();
            if places.len() == batch.len() {
                return store.read(batch, sink, workers);
            }
            if !places.is_empty() {
                let part = places.iter().map(|&place| batch[place].clone()).collect();
                store.read(part, Arc::new(Side::new(Arc::clone(&sink), places)), workers);
            }
        }
    }

    fn is_on(&self, device: Device) -> bool {
        self.data.is_on(device)
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        self.of(key).put(key, value, condition)
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.of(key).begin(key, size_bytes)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let (documents, others): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|key| Arc::ptr_eq(self.of(key), &self.metadata));
        self.metadata.delete_many(&documents)?;
        self.data.delete_many(&others)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        // Metadata goes first. If the second deletion fails, the remaining chunks belong to no node that can be opened.
        self.metadata.delete_prefix(prefix)?;
        self.data.delete_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.of(key).stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        let (data, metadata) = (self.data.list_dir(prefix)?, self.metadata.list_dir(prefix)?);
        Ok(Listing { keys: merged(data.keys, metadata.keys), prefixes: merged(data.prefixes, metadata.prefixes) })
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        Ok(merged(self.data.list(prefix)?, self.metadata.list(prefix)?))
    }

    fn identity(&self) -> Identity {
        self.data.identity().with_metadata_in(self.metadata.identity())
    }

    fn capabilities(&self) -> Capabilities {
        let (data, metadata) = (self.data.capabilities(), self.metadata.capabilities());
        Capabilities {
            read_only: data.read_only || metadata.read_only,
            deletes: data.deletes && metadata.deletes,
            conditional_writes: data.conditional_writes && metadata.conditional_writes,
            writes_parts: data.writes_parts && metadata.writes_parts,
            shortens_parts: data.shortens_parts && metadata.shortens_parts,
            transactional: data.transactional || metadata.transactional,
            ..data
        }
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.metadata.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.metadata.above()
    }
}

fn merged(mut left: Vec<String>, right: Vec<String>) -> Vec<String> {
    left.extend(right);
    left.sort();
    left.dedup();
    left
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with metadata in {}", self.data, self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ByteRange, MemoryStore, StoreExt, conformance};

    #[test]
    fn behaves_as_one_store() {
        conformance::run(&|| Arc::new(Split::new(Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()))));
    }

    #[test]
    fn forwards_everything() {
        conformance::forwards(&|inner| Arc::new(Split::new(Arc::clone(&inner), inner)));
    }

    #[test]
    fn keeps_documents_apart_from_chunks() -> Result<()> {
        let (data, metadata) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
        let split = Split::new(data.clone(), metadata.clone());
        for key in ["zarr.json", "a/.zattrs", "a/c/0", "a/zarr.json.gz", "b/zarr.json/c"] {
            split.write(key, key.as_bytes())?;
        }
        assert_eq!(metadata.list("")?, ["a/.zattrs", "zarr.json"]);
        assert_eq!(data.list("")?, ["a/c/0", "a/zarr.json.gz", "b/zarr.json/c"]);
        assert_eq!(split.list_dir("")?.prefixes, ["a", "b"]);
        let keys = ["a/c/0", "zarr.json", "nothing"];
        let batch = keys.iter().map(|key| ReadRequest { key: (*key).to_string(), range: ByteRange::Full }).collect();
        let both: Vec<_> = split.get_many(batch).into_iter().collect::<Result<_>>()?;
        assert_eq!(both, [Some(b"a/c/0".to_vec()), Some(b"zarr.json".to_vec()), None]);
        split.delete_prefix("a")?;
        assert_eq!(split.list("")?, ["b/zarr.json/c", "zarr.json"]);
        Ok(())
    }
}
