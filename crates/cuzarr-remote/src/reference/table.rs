//! Tables of references: for each key of a store, its bytes or the part of a file that holds them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cuzarr::internal::store::KeyTable;
use cuzarr::store::Key;
use cuzarr::{Error, ErrorKind, Result, ResultExt};

use super::location::Location;

/// Where the bytes of a key are: in the table of references, or in a part of a file.
#[derive(Clone)]
pub(crate) enum Reference {
    Inline(Bytes),
    Part(Part),
}

/// A part of a file that holds the bytes of a key, or a whole file.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) place: Place,
    pub(crate) offset: u64,
    /// Number of bytes of the part; `None` for the whole file.
    pub(crate) size_bytes: Option<u64>,
    /// The entity tag that the file must have; `None` if that is not checked.
    pub(crate) etag: Option<Arc<str>>,
    /// Time in seconds since 1970 after which the file must not have changed; `None` if that is not checked.
    pub(crate) changed_until: Option<u32>,
}

#[derive(Clone)]
pub(crate) enum Place {
    /// A file whose location the table of references names.
    Location(Arc<Location>),
    /// A chunk file of the Icechunk repository to which the table of references belongs.
    Chunk([u8; 12]),
}

impl Part {
    /// Makes a part of a file that begins at `offset`. `size_bytes` is `None` for the whole file.
    ///
    /// # Errors
    /// `MetadataInvalid` for a part that no file can have.
    pub(crate) fn new(place: Place, offset: u64, size_bytes: Option<u64>) -> Result<Part> {
        if offset.checked_add(size_bytes.unwrap_or(0)).is_none_or(|end| end > i64::MAX as u64) {
            let message = format!("no file has {} bytes from byte {offset} on", size_bytes.unwrap_or(0));
            return Err(Error::new(ErrorKind::MetadataInvalid, message));
        }
        Ok(Part { place, offset, size_bytes, etag: None, changed_until: None })
    }
}

/// A source of references that a table of references gets when they are first needed.
pub(crate) trait Pending: Send + Sync {
    /// Adds the references of the given keys to the table's `entries`, unless they are already there.
    fn load(&self, keys: &mut dyn Iterator<Item = &Key>, entries: &KeyTable<Reference>) -> Result<()>;

    /// Adds the references that a listing of `prefix` needs: all keys below it if `all`, else only keys that determine
    /// the listed names.
    fn load_below(&self, prefix: &Key, all: bool, entries: &KeyTable<Reference>) -> Result<()>;
}

/// A source of the references of single arrays, for tables that are too large to be read when they are opened.
pub trait ArrayReferences: Send + Sync {
    /// Adds references to the chunks of one array to a table of references. It is called once for each array, by one
    /// thread at a time.
    ///
    /// # Errors
    /// Any error. The read that needs the chunks fails with it, and the next one tries again.
    fn add(&self, array: &str, table: &ReferenceTable) -> Result<()>;
}

/// A source of the references of single arrays, which are added to a table of references when a chunk of their array is
/// first needed.
struct PendingArrays {
    waiting: Mutex<BTreeSet<String>>,
    source: Arc<dyn ArrayReferences>,
}

impl PendingArrays {
    fn add(&self, wanted: impl Fn(&str) -> bool, entries: &KeyTable<Reference>) -> Result<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = waiting.iter().filter(|array| wanted(array)).cloned().collect();
        // This table shares its entries with the original.
        let table = ReferenceTable { entries: entries.clone(), ..ReferenceTable::default() };
        for array in found {
            self.source.add(&array, &table)?;
            waiting.remove(&array);
        }
        Ok(())
    }
}

impl Pending for PendingArrays {
    fn load(&self, keys: &mut dyn Iterator<Item = &Key>, entries: &KeyTable<Reference>) -> Result<()> {
        let is_chunk = |key: &&Key| !key.rsplit('/').next().unwrap_or(key).starts_with('.');
        let arrays: BTreeSet<&str> =
            keys.filter(is_chunk).map(|key| key.rsplit_once('/').map_or("", |(array, _)| array)).collect();
        if arrays.is_empty() { Ok(()) } else { self.add(|array| arrays.contains(array), entries) }
    }

    fn load_below(&self, prefix: &Key, all: bool, entries: &KeyTable<Reference>) -> Result<()> {
        let is_below = |array: &str| {
            prefix.is_empty() || array.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.add(|array| array == prefix || (all && is_below(array)), entries)
    }
}

/// A table of references: for each key its bytes, or the part of a file that holds them.
///
/// ```
/// use cuzarr_remote::reference::ReferenceTable;
/// let table = ReferenceTable::from_json(br#"{"refs": {"a": "text", "b": ["s3://bucket/file.nc", 10, 20]}}"#)?;
/// assert_eq!(table.len(), 2);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct ReferenceTable {
    pub(super) entries: KeyTable<Reference>,
    pub(super) pending: Option<Arc<dyn Pending>>,
    /// Whether the table of references names a file on a server, going by the URL scheme.
    has_servers: Arc<AtomicBool>,
}

/// References given as columns, in which each index stands for one key. Row `i` is the reference of `keys[i]`.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// The keys of the store; `files`, `offsets` and `sizes_bytes` have one entry for each key.
    pub keys: &'a [String],
    /// The URLs of the files that contain the values.
    pub urls: &'a [String],
    /// For each key, the index in `urls` of the file that contains its value.
    pub files: &'a [u32],
    /// For each key, the offset in the file at which its value begins.
    pub offsets: &'a [u64],
    /// For each key, the size of its value in bytes; 0 with offset 0 means the whole file.
    pub sizes_bytes: &'a [u64],
}

impl ReferenceTable {
    /// Makes a table of references that has no entries.
    pub fn new() -> ReferenceTable {
        ReferenceTable::default()
    }

    /// Returns the number of references that are in the table of references at the moment.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table of references contains no references at the moment.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a key whose value is stored in the table of references itself.
    ///
    /// # Errors
    /// `KeyInvalid`
    pub fn insert_inline(&self, key: &Key, value: Vec<u8>) -> Result<()> {
        self.insert(key, Reference::Inline(value.into()))
    }

    /// Adds references to parts of files, given as columns.
    ///
    /// # Errors
    /// `InvalidArgument` when the columns do not fit each other; `KeyInvalid`; `MetadataInvalid` for a part that no
    /// file can have.
    pub fn insert_columns(&self, columns: Columns<'_>) -> Result<()> {
        let Columns { keys, urls, files, offsets, sizes_bytes } = columns;
        let count = keys.len();
        if [files.len(), offsets.len(), sizes_bytes.len()].iter().any(|&len| len != count) {
            let message = format!(
                "columns of references: got {count} keys, {} files, {} offsets and {} sizes",
                files.len(),
                offsets.len(),
                sizes_bytes.len()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let locations: Vec<_> = urls.iter().map(|url| Arc::new(Location::new(url))).collect();
        for (row, key) in keys.iter().enumerate() {
            let location = locations.get(files[row] as usize).ok_or_else(|| {
                let message = format!("file {} of key '{key}': there are {} files", files[row], urls.len());
                Error::new(ErrorKind::InvalidArgument, message)
            })?;
            let size_bytes = Some(sizes_bytes[row]).filter(|&size| size > 0 || offsets[row] > 0);
            let part = Part::new(Place::Location(Arc::clone(location)), offsets[row], size_bytes);
            self.insert(key, Reference::Part(part.at(|| format!("key '{key}'"))?))?;
        }
        Ok(())
    }

    /// Returns the table of references with a source of further references, which are added when they are first needed.
    pub(crate) fn with_pending(mut self, pending: Arc<dyn Pending>) -> ReferenceTable {
        self.pending = Some(pending);
        self
    }

    /// Returns this table of references with a source of the references to chunks of `arrays`, added when one of them
    /// is needed. Keys of chunks must not contain a `/` after the array's path.
    #[must_use]
    pub fn with_arrays(
        self,
        arrays: impl IntoIterator<Item = String>,
        source: Arc<dyn ArrayReferences>,
    ) -> ReferenceTable {
        let waiting = Mutex::new(arrays.into_iter().collect());
        self.with_pending(Arc::new(PendingArrays { waiting, source }))
    }

    /// Whether the table of references names a file on a server, going by the URL scheme.
    pub(super) fn has_servers(&self) -> bool {
        self.has_servers.load(Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, key: &Key, reference: Reference) -> Result<()> {
        if let Reference::Part(Part { place: Place::Location(location), .. }) = &reference
            && location.is_on_a_server()
        {
            self.has_servers.store(true, Ordering::Relaxed);
        }
        self.entries.insert_if(key, reference, |_| true).map(|_| ())
    }

    /// Returns the reference of each key; `None` for a key that the table of references does not have.
    pub(super) fn find(&self, keys: &[&Key]) -> Result<Vec<Result<Option<Reference>>>> {
        if let Some(pending) = &self.pending {
            pending.load(&mut keys.iter().copied(), &self.entries)?;
        }
        Ok(keys.iter().map(|key| self.entries.get(key)).collect())
    }

    /// Adds missing references that a listing of `prefix` needs: all keys below it if `all`, else only keys that
    /// determine the listed names.
    pub(super) fn complete(&self, prefix: &Key, all: bool) -> Result<()> {
        self.pending.as_ref().map_or(Ok(()), |pending| pending.load_below(prefix, all, &self.entries))
    }
}
