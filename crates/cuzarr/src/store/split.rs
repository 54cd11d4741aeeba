//! Metadata in one store, everything else in another.

use std::fmt;
use std::sync::Arc;

use cuzarr_device::{Buffer, Device};

use super::{Key, Lease, Listing, OpenValues, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};
use crate::error::Result;

/// Names of the documents that describe arrays and groups, of both Zarr formats.
const DOCUMENTS: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Two stores as one: documents that describe arrays and groups live in the second, chunks and all else in the first.
#[derive(Clone, Debug)]
pub struct Split {
    data: Arc<dyn Store>,
    metadata: Arc<dyn Store>,
}

impl Split {
    /// Metadata in `metadata`, the rest in `data`.
    pub fn new(data: Arc<dyn Store>, metadata: Arc<dyn Store>) -> Self {
        Split { data, metadata }
    }

    fn of(&self, key: &Key) -> &Arc<dyn Store> {
        let name = key.rsplit('/').next().unwrap_or(key);
        if DOCUMENTS.contains(&name) { &self.metadata } else { &self.data }
    }
}

/// The sink of one side's items, under their places in the whole batch.
struct Side {
    sink: Arc<dyn ReadSink>,
    places: Vec<usize>,
}

impl ReadSink for Side {
    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.sink.reserve(self.places[index], size_bytes)
    }

    fn open_values(&self) -> Option<&OpenValues> {
        // A key has its place in one of the two stores.
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
                store.read(part, Arc::new(Side { sink: Arc::clone(&sink), places }), workers);
            }
        }
    }

    fn write(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.of(key).write(key, value)
    }

    fn is_on(&self, device: Device) -> bool {
        self.data.is_on(device)
    }

    fn write_buffer(&self, key: &Key, value: &Buffer) -> Result<()> {
        self.of(key).write_buffer(key, value)
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        self.of(key).write_if_absent(key, value)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.of(key).delete(key)
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        let (documents, others): (Vec<_>, Vec<_>) =
            keys.iter().cloned().partition(|key| Arc::ptr_eq(self.of(key), &self.metadata));
        self.metadata.delete_many(&documents)?;
        self.data.delete_many(&others)
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        // Metadata first: what is left behind when the second half fails belongs to nothing that can be opened.
        self.metadata.delete_prefix(prefix)?;
        self.data.delete_prefix(prefix)
    }

    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        self.of(key).size_bytes(key)
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        let (data, metadata) = (self.data.list_dir(prefix)?, self.metadata.list_dir(prefix)?);
        Ok(Listing { keys: merged(data.keys, metadata.keys), prefixes: merged(data.prefixes, metadata.prefixes) })
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        Ok(merged(self.data.list(prefix)?, self.metadata.list(prefix)?))
    }

    fn is_read_only(&self) -> bool {
        self.data.is_read_only() || self.metadata.is_read_only()
    }

    fn supports_deletes(&self) -> bool {
        self.data.supports_deletes() && self.metadata.supports_deletes()
    }

    fn is_far(&self) -> bool {
        self.data.is_far()
    }

    fn is_transactional(&self) -> bool {
        self.data.is_transactional() || self.metadata.is_transactional()
    }

    fn divides_reads(&self) -> bool {
        self.data.divides_reads()
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
