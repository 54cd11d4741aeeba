//! A read-only store over a table of references.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuzarr::store::{
    ByteRange, Capabilities, Condition, Identity, Key, Lease, Listing, Lock, Payload, ReadOutcome, ReadRequest,
    ReadSink, Registry, Stat, Store, StoreExt, Unfinished, Workers,
};
use cuzarr::{Device, Error, ErrorKind, Result, ResultExt};

use super::location::{FileOptions, Files, Rules, Target};
use super::read::{self, Wanted};
use super::table::{Part, Place, Reference, ReferenceTable};
use crate::icechunk::chunk_key;
use crate::options::StorageOptions;

/// A store that returns the values which a table of references describes. It is read-only.
///
/// ```
/// use cuzarr::store::{Registry, Store, StoreExt};
/// use cuzarr_remote::reference::{ReferenceStore, ReferenceTable, Rules};
/// let table = ReferenceTable::from_json(br#"{"a/b": "text"}"#)?;
/// let store = ReferenceStore::new("example", table, Rules::new(), &Registry::new());
/// assert_eq!(store.get("a/b")?.as_deref(), Some(&b"text"[..]));
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone)]
pub struct ReferenceStore {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    identity: Identity,
    table: ReferenceTable,
    files: Files,
    /// The store of the Icechunk repository to which the table of references belongs, if there is one.
    repository: Option<Arc<dyn Store>>,
    is_far: bool,
}

impl ReferenceStore {
    /// Makes a store from a table of references. `name` is for messages, and `registry` opens the files.
    pub fn new(name: &str, table: ReferenceTable, rules: Rules, registry: &Registry) -> ReferenceStore {
        let options = FileOptions { plain: StorageOptions::new(), remote: StorageOptions::new() };
        ReferenceStore::with_parts(name, Identity::unique(), table, Files::new(registry, rules, options), None)
    }

    pub(crate) fn with_parts(
        name: &str,
        identity: Identity,
        table: ReferenceTable,
        files: Files,
        repository: Option<Arc<dyn Store>>,
    ) -> ReferenceStore {
        let is_far = match &repository {
            Some(store) => store.capabilities().far || files.rules().is_of_a_server(),
            None => table.has_servers() || files.rules().is_of_a_server(),
        };
        // Two tables at one place may name different files.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let identity = identity.with_view(&format!("table {}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        ReferenceStore {
            shared: Arc::new(Shared { name: name.to_string(), identity, table, files, repository, is_far }),
        }
    }

    fn refuse(&self, key: &Key) -> Error {
        Error::new(ErrorKind::ReadOnly, format!("{self}: key '{key}': references are only read"))
            .with_hint("copy the data to a directory or a bucket")
    }

    fn find(&self, key: &Key) -> Result<Option<Reference>> {
        self.shared.table.find(&[key])?.pop().unwrap_or(Ok(None))
    }

    fn name_of(&self, key: &Key) -> String {
        format!("{self}: key '{key}'")
    }

    fn target(&self, place: &Place) -> Result<Target> {
        match place {
            Place::Location(location) => self.shared.files.target(location).at(|| location.to_string()),
            Place::Chunk(id) => {
                let none = || Error::new(ErrorKind::StoreFailed, "the table belongs to no repository");
                let store = self.shared.repository.clone().ok_or_else(none)?;
                Ok(Target { store, key: chunk_key(id).into() })
            }
        }
    }

    /// Returns the file to read, and the part of it, for the request of a key that has a reference.
    fn wanted(&self, index: usize, request: &ReadRequest, part: &Part) -> Result<(Arc<dyn Store>, Wanted)> {
        let range = match part.size_bytes {
            Some(size_bytes) => {
                let (offset, size_bytes) = request.range.resolve(size_bytes)?;
                ByteRange::Span { offset: part.offset + offset, size_bytes }
            }
            // Only a whole file has no size.
            None => request.range,
        };
        let Target { store, key } = self.target(&part.place)?;
        let name = self.name_of(&request.key);
        let (etag, changed_until) = (part.etag.clone(), part.changed_until);
        let is_permanent = matches!(part.place, Place::Chunk(_));
        Ok((store, Wanted { index, file: key, range, etag, changed_until, is_permanent, name }))
    }

    fn read_found(
        &self,
        batch: &[ReadRequest],
        found: Vec<Result<Option<Reference>>>,
        sink: &Arc<dyn ReadSink>,
    ) -> Vec<(Arc<dyn Store>, Wanted)> {
        let mut wanted = Vec::new();
        for (index, (request, found)) in batch.iter().zip(found).enumerate() {
            let outcome = match found {
                Ok(None) => Ok(ReadOutcome::Missing),
                Ok(Some(Reference::Inline(bytes))) => give(index, &bytes, request.range, &**sink),
                Ok(Some(Reference::Part(part))) => match self.wanted(index, request, &part) {
                    Ok((_, Wanted { range: ByteRange::Span { size_bytes: 0, .. }, .. })) => {
                        give(index, &[], ByteRange::Full, &**sink)
                    }
                    Ok(part) => {
                        wanted.push(part);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            sink.done(index, outcome.at(|| self.name_of(&request.key)));
        }
        wanted
    }
}

/// Answers a read request from bytes in the table of references, by copying them to the caller's memory.
fn give(index: usize, bytes: &[u8], range: ByteRange, sink: &dyn ReadSink) -> Result<ReadOutcome> {
    sink.check()?;
    let (offset, size_bytes) = range.resolve(bytes.len() as u64)?;
    let mut lease: Box<dyn Lease> = sink.reserve(index, size_bytes)?;
    let source = &bytes[offset as usize..(offset + size_bytes) as usize];
    if lease.bytes().len() != source.len() {
        return Err(Error::new(ErrorKind::InvalidArgument, "the lent memory is of another size"));
    }
    lease.bytes().copy_from_slice(source);
    Ok(ReadOutcome::Filled(lease))
}

impl Store for ReferenceStore {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let keys: Vec<&str> = batch.iter().map(|request| request.key.as_str()).collect();
        let found = match self.shared.table.find(&keys) {
            Ok(found) => found,
            Err(error) => {
                for (index, request) in batch.iter().enumerate() {
                    sink.done(index, Err(error.clone()).at(|| self.name_of(&request.key)));
                }
                return;
            }
        };
        let wanted = self.read_found(&batch, found, &sink);
        for (store, wanted) in read::by_store(wanted) {
            read::run(&store, wanted, &sink, workers);
        }
    }

    fn put(&self, key: &Key, _value: Payload<'_>, _condition: &Condition) -> Result<bool> {
        Err(self.refuse(key))
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        Err(self.refuse(key))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.first().map_or(Ok(()), |key| Err(self.refuse(key)))
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        Err(self.refuse(prefix))
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let size = |size_bytes| Ok(Some(Stat { size_bytes, version: None }));
        let found = self.find(key).at(|| self.name_of(key))?;
        match found {
            None => Ok(None),
            Some(Reference::Inline(bytes)) => size(bytes.len() as u64),
            Some(Reference::Part(Part { size_bytes: Some(size_bytes), .. })) => size(size_bytes),
            Some(Reference::Part(part)) => {
                let target = self.target(&part.place).at(|| self.name_of(key))?;
                let found = target.store.size_bytes(&target.key).at(|| self.name_of(key))?;
                let missing =
                    || Error::new(ErrorKind::StoreFailed, format!("the file '{}' does not exist", target.key));
                size(found.ok_or_else(missing).at(|| self.name_of(key))?)
            }
        }
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.shared.table.complete(prefix, false).at(|| self.to_string())?;
        self.shared.table.entries.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.shared.table.complete(prefix, true).at(|| self.to_string())?;
        self.shared.table.entries.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.shared.identity.clone()
    }

    fn capabilities(&self) -> Capabilities {
        let is_far = self.shared.is_far;
        Capabilities {
            read_only: true,
            deletes: false,
            far: is_far,
            versions: true,
            divides_reads: !is_far,
            ..Capabilities::default()
        }
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

impl fmt::Display for ReferenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shared.name)
    }
}

impl fmt::Debug for ReferenceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReferenceStore('{self}')")
    }
}
