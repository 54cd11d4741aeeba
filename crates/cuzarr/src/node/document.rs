//! Changes of stored metadata. Arrays, groups, creation and deletion change documents here and nowhere else.
//!
//! A change reads the *stored* document, modifies it and writes it. It never uses what a handle remembers. Three things
//! keep two changes apart:
//!
//! 1. A lock for each node, in this process.
//! 2. A conditional write, if the store has it ([`Condition::Unchanged`]). A change that lost begins again with the new
//!    document.
//! 3. The store's own lock of the node ([`Store::try_lock`]), such as `flock` on a directory. It excludes other
//!    processes. Stores with conditional writes need it only for changes of the shape, which also write or delete
//!    chunks.
//!
//! After the node's own documents, its entries in the consolidated copies are replaced: in every group above that has a
//! copy, even above the store's root ([`Store::above`]). No copy is created. A process that is killed in between leaves
//! a stale copy, which the next change of the node repairs. A caller that holds a node's lock may take locks of groups
//! above, never of nodes below.
//!
//! ```
//! use std::sync::Arc;
//! use cuzarr::meta::{Json, ZarrFormat};
//! use cuzarr::node::{ArrayOptions, Group, NodeLock};
//! use cuzarr::store::{MemoryStore, Store};
//!
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! Group::builder().create_in(Arc::clone(&store), "a")?;
//! let node = NodeLock::take(store, "a", ZarrFormat::V3, false, &Default::default())?;
//! let changed = node.update(Some(2), &mut |documents| {
//!     documents.attributes_mut()?.insert("units".into(), Json::String("K".into()));
//!     Ok(())
//! })?;
//! assert_eq!(changed.attributes().map(|attributes| attributes.len()), Some(1));
//! # Ok::<(), cuzarr::Error>(())
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::documents::{self, Consolidation, Lookup, document_names, limit_bytes};
use super::path::{ancestors, normalize_path};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{self, ZARR_JSON, ZGROUP, ZMETADATA};
use crate::meta::{ArrayMetadata, EntryChange, NodeDocuments, NodeMetadata, ZarrFormat, edit_consolidated};
use crate::run::{Engine, Turn};
use crate::store::{ByteRange, Condition, LOCK_NAME, Lock, Payload, ReadRequest, Store, StoreExt, Version, join_key};

/// A group document of at least this size is assumed to have a consolidated copy, until it has been read.
const LARGE_BYTES: u64 = 64 << 10;
/// Number of attempts of a change if other writers are faster. One writer succeeds each time.
pub(super) const MOST_ATTEMPTS: u32 = 64;
/// First pause of a caller that waits for another process. Pauses grow up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_FAR_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time to wait for a lock on a server.
const MOST_FAR_PATIENCE: Duration = Duration::from_secs(60);

/// The right to change the documents of one node. Until it is dropped, other changes of the node wait: those of this
/// process, and, if the store has locks, those of other processes.
pub struct NodeLock {
    store: Arc<dyn Store>,
    path: String,
    format: ZarrFormat,
    is_array: bool,
    cancellation: CancellationToken,
    _held: HeldDocument,
}

/// The stored documents of a node.
#[derive(Clone, Debug)]
pub struct StoredNode {
    documents: NodeDocuments,
    /// For each document, the condition under which it may be replaced.
    conditions: BTreeMap<&'static str, Condition>,
}

impl StoredNode {
    /// The documents.
    pub fn documents(&self) -> &NodeDocuments {
        &self.documents
    }
}

/// The locks of the store and of the process. They are released in this order.
struct HeldDocument {
    _lock: Lock,
    _turn: Turn,
}

impl HeldDocument {
    fn take(
        store: &dyn Store,
        path: &str,
        owns_chunks: bool,
        cancellation: &CancellationToken,
    ) -> Result<HeldDocument> {
        let turn = Engine::get().node_turn(store.identity().below(path), cancellation)?;
        let capabilities = store.capabilities();
        if capabilities.conditional_writes && !owns_chunks {
            return Ok(HeldDocument { _lock: Lock::Unsupported, _turn: turn });
        }
        let (longest, since) = (if capabilities.far { LONGEST_FAR_PAUSE } else { LONGEST_PAUSE }, Instant::now());
        let mut pause = FIRST_PAUSE;
        loop {
            match store.try_lock(path)? {
                // The operating system releases the locks of a dead process. A server does not.
                Lock::Busy if capabilities.far && since.elapsed() > MOST_FAR_PATIENCE => {
                    return Err(held_elsewhere(store, path));
                }
                Lock::Busy => {
                    cancellation.check()?;
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(longest);
                }
                lock => return Ok(HeldDocument { _lock: lock, _turn: turn }),
            }
        }
    }
}

fn held_elsewhere(store: &dyn Store, path: &str) -> Error {
    let seconds = MOST_FAR_PATIENCE.as_secs();
    let message =
        format!("{store}: another program has been changing '/{path}' for more than {seconds} s, or died meanwhile");
    let key = join_key(path, LOCK_NAME);
    Error::new(ErrorKind::StoreFailed, message)
        .with_hint(format!("try again later, or delete '{key}' if no program runs"))
}

impl NodeLock {
    /// Waits for the lock of the node at `path`: an array if `is_array`, else a group.
    ///
    /// # Errors
    /// `KeyInvalid`; `Cancelled`; what the store reports.
    pub fn take(
        store: Arc<dyn Store>,
        path: &str,
        format: ZarrFormat,
        is_array: bool,
        cancellation: &CancellationToken,
    ) -> Result<NodeLock> {
        let path = normalize_path(path)?;
        let held = HeldDocument::take(&*store, &path, false, cancellation)?;
        Ok(NodeLock { store, path, format, is_array, cancellation: cancellation.clone(), _held: held })
    }

    /// Like [`NodeLock::take`], for an array whose shape changes. Nobody else changes the shape while chunks are
    /// written or deleted.
    ///
    /// # Errors
    /// Those of [`NodeLock::take`]; `StoreFailed` when a program on another machine does not give the lock back.
    pub fn take_for_shape(
        store: Arc<dyn Store>,
        path: &str,
        format: ZarrFormat,
        cancellation: &CancellationToken,
    ) -> Result<NodeLock> {
        let path = normalize_path(path)?;
        let held = HeldDocument::take(&*store, &path, true, cancellation)?;
        Ok(NodeLock { store, path, format, is_array: true, cancellation: cancellation.clone(), _held: held })
    }

    /// Reads the stored documents.
    ///
    /// # Errors
    /// `ArrayNotFound` or `GroupNotFound` when the node is gone; `MetadataInvalid`; what the store reports.
    pub fn read(&self) -> Result<StoredNode> {
        let names = document_names(Some(self.format), Some(self.is_array));
        let request = |name: &&'static str| ReadRequest { key: node::key(&self.path, name), range: ByteRange::Full };
        let requests = names.iter().map(request).collect();
        let is_compared = self.store.capabilities().conditional_writes;
        let (mut found, mut conditions) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in names.into_iter().zip(self.store.get_many_versioned(requests, limit_bytes())) {
            let value = value.map_err(documents::with_limit_hint).at(|| self.place())?;
            let condition = match &value {
                None => Condition::Absent,
                Some((_, Some(version))) => Condition::Unchanged(version.clone()),
                Some((_, None)) => Condition::Always,
            };
            conditions.insert(name, if is_compared { condition } else { Condition::Always });
            found.extend(value.map(|(bytes, _)| (name, bytes)));
        }
        let mut stored = node::Documents::default();
        found.iter().for_each(|(name, bytes)| stored.set(name, bytes));
        match NodeDocuments::parse(&stored).at(|| self.place())? {
            Some(documents) if documents.is_array() == self.is_array => Ok(StoredNode { documents, conditions }),
            _ => {
                let kind = if self.is_array { ErrorKind::ArrayNotFound } else { ErrorKind::GroupNotFound };
                Err(documents::not_found(kind, &*self.store, &self.path)
                    .with_hint("another program deleted or replaced it"))
            }
        }
    }

    /// Replaces the stored documents that differ, with `indent` spaces per level, then the node's entries in the
    /// consolidated copies above. If another writer has changed a document since it was read, it returns false and that
    /// document is not written.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    pub fn replace(&self, stored: &StoredNode, documents: &NodeDocuments, indent: Option<usize>) -> Result<bool> {
        let old = stored.documents.documents(indent);
        for (name, bytes) in documents.documents(indent) {
            if old.iter().any(|old| (old.0, &old.1) == (name, &bytes)) {
                continue;
            }
            let condition = stored.conditions.get(name).unwrap_or(&Condition::Always);
            let key = node::key(&self.path, name);
            if !self.store.put(&key, Payload::Bytes(&bytes), condition).at(|| self.place())? {
                return Ok(false);
            }
        }
        let change = EntryChange { path: self.path.clone(), node: Some(documents.clone().alone()) };
        if self.format == ZarrFormat::V2 && !self.is_array {
            // The consolidated copy of a v2 group also has the group's own attributes.
            let own = EntryChange { path: String::new(), ..change.clone() };
            Copy { store: &*self.store, group: &self.path, format: self.format }.edit_held(&[own])?;
        }
        update_copies(&*self.store, self.format, vec![change], &self.cancellation)?;
        Ok(true)
    }

    /// Changes the stored documents. If another writer is faster, `change` is called again with the new documents.
    ///
    /// # Errors
    /// Those of [`NodeLock::read`], [`NodeLock::replace`] and `change`; `StoreFailed` when other writers do not stop.
    pub fn update(
        &self,
        indent: Option<usize>,
        change: &mut dyn FnMut(&mut NodeDocuments) -> Result<()>,
    ) -> Result<NodeDocuments> {
        for attempt in 0..MOST_ATTEMPTS {
            let stored = self.read()?;
            let mut documents = stored.documents.clone();
            change(&mut documents).at(|| self.place())?;
            if self.replace(&stored, &documents, indent)? {
                return Ok(documents);
            }
            pause(attempt, &self.cancellation)?;
        }
        Err(outrun(&*self.store, &self.path))
    }

    fn place(&self) -> String {
        documents::place(&*self.store, &self.path)
    }
}

impl StoredNode {
    /// The metadata of an array, from its documents.
    ///
    /// # Errors
    /// `MetadataInvalid`, `UnsupportedFeature`, `UnknownDataType`; `ArrayNotFound` when the documents describe a group.
    pub(super) fn array(&self) -> Result<ArrayMetadata> {
        match self.documents.clone().check()? {
            NodeMetadata::Array(metadata) => Ok(*metadata),
            NodeMetadata::Group(_) => Err(Error::new(ErrorKind::ArrayNotFound, "the documents describe a group")),
        }
    }
}

/// Pauses for a random time, so that two writers that collided do not collide again.
pub(super) fn pause(attempt: u32, cancellation: &CancellationToken) -> Result<()> {
    let most = LONGEST_PAUSE.min(FIRST_PAUSE * 2u32.saturating_pow(attempt.min(16)));
    let nanoseconds = RandomState::new().hash_one(attempt) % (most.as_nanos() as u64).max(1);
    std::thread::sleep(Duration::from_nanos(nanoseconds));
    cancellation.check()
}

/// The error of a change if other writers were faster at each attempt.
pub(super) fn outrun(store: &dyn Store, path: &str) -> Error {
    let message =
        format!("{store}: the metadata of '/{path}' was changed by other writers at each of {MOST_ATTEMPTS} attempts");
    Error::new(ErrorKind::StoreFailed, message).with_hint("try again when they are done")
}

/// Changes the entries of some nodes in all consolidated copies above them. Paths of nodes are relative to the store's
/// root. Each copy is read and written once. Returns whether a copy was changed.
///
/// # Errors
/// What the store reports. Group documents that cannot be read are skipped, and so is everything above the store's root
/// that the store cannot read.
pub(super) fn update_copies(
    store: &dyn Store,
    format: ZarrFormat,
    changes: Vec<EntryChange>,
    cancellation: &CancellationToken,
) -> Result<bool> {
    let mut is_changed = false;
    let mut groups: BTreeMap<String, Vec<EntryChange>> = BTreeMap::new();
    for change in &changes {
        for group in ancestors(&change.path) {
            let path = if group.is_empty() { &change.path[..] } else { &change.path[group.len() + 1..] };
            groups.entry(group.to_string()).or_default().push(EntryChange { path: path.to_string(), ..change.clone() });
        }
    }
    let copies = Copies { store, format, cancellation };
    for (group, changes) in copies.consolidated(groups)? {
        is_changed |= copies.edit(&group, &changes)?;
    }
    let (mut above, mut prefix) = (store.above(), String::new());
    while let Some((outer, name)) = above {
        prefix = if prefix.is_empty() { name } else { join_key(&name, &prefix) };
        let below = |change: &EntryChange| {
            let path = if change.path.is_empty() { prefix.clone() } else { join_key(&prefix, &change.path) };
            EntryChange { path, ..change.clone() }
        };
        let copies = Copies { store: &*outer, format, cancellation };
        if !copies.has_group() {
            break;
        }
        is_changed |= copies.edit("", &changes.iter().map(below).collect::<Vec<_>>())?;
        above = outer.above();
    }
    Ok(is_changed)
}

/// The consolidated copies of one store.
struct Copies<'a> {
    store: &'a dyn Store,
    format: ZarrFormat,
    cancellation: &'a CancellationToken,
}

impl Copies<'_> {
    /// Returns the groups that seem to have a copy. If requests take long, one batch finds them. Otherwise all groups
    /// are returned, and each is tried.
    fn consolidated(&self, groups: BTreeMap<String, Vec<EntryChange>>) -> Result<Vec<(String, Vec<EntryChange>)>> {
        if groups.len() <= 1 || !self.store.capabilities().far {
            return Ok(groups.into_iter().collect());
        }
        let request = |group: &String| ReadRequest { key: copy_key(group, self.format), range: ByteRange::Full };
        let values = self.store.get_many_at_most(groups.keys().map(request).collect(), limit_bytes());
        let mut found = Vec::new();
        for (group, value) in groups.into_iter().zip(values) {
            if readable(value)?.flatten().is_some_and(|bytes| self.format == ZarrFormat::V2 || has_copy(&bytes)) {
                found.push(group);
            }
        }
        Ok(found)
    }

    /// Whether a group of this format is at the root of the store, and can be read.
    fn has_group(&self) -> bool {
        let name = if self.format == ZarrFormat::V3 { ZARR_JSON } else { ZGROUP };
        matches!(self.store.exists(name), Ok(true))
    }

    /// Changes entries in a group's consolidated copy, if it has one. Returns whether the copy was changed.
    fn edit(&self, group: &str, changes: &[EntryChange]) -> Result<bool> {
        let copy = Copy { store: self.store, group, format: self.format };
        // A conditional write needs no lock. Most groups have no copy, so this is checked before waiting for the lock.
        let _held = match self.store.capabilities().conditional_writes {
            true => None,
            false if !copy.is_there()? => return Ok(false),
            false => Some(HeldDocument::take(self.store, group, false, self.cancellation)?),
        };
        for attempt in 0..MOST_ATTEMPTS {
            if let Some(changed) = copy.try_edit(changes)? {
                return Ok(changed);
            }
            pause(attempt, self.cancellation)?;
        }
        Err(outrun(self.store, group))
    }
}

/// The consolidated copy of one group.
struct Copy<'a> {
    store: &'a dyn Store,
    group: &'a str,
    format: ZarrFormat,
}

impl Copy<'_> {
    /// Whether the group seems to have a copy. Large documents almost always have one, so only the end of a document is
    /// read.
    fn is_there(&self) -> Result<bool> {
        if self.format == ZarrFormat::V2 {
            return self.store.exists(&self.key());
        }
        let end = self.store.get_range(&self.key(), ByteRange::Suffix { size_bytes: LARGE_BYTES });
        Ok(readable(end)?.flatten().is_some_and(|end| end.len() as u64 == LARGE_BYTES || has_copy(&end)))
    }

    /// The changed document, and the version that was read. `None` if there is no copy, or if nothing changes.
    fn edited(&self, changes: &[EntryChange]) -> Result<Option<(Vec<u8>, Option<Version>)>> {
        let stored = self.store.get_versioned(&self.key(), limit_bytes());
        let Some(Some((bytes, version))) = readable(stored)? else { return Ok(None) };
        if self.format == ZarrFormat::V3 && !has_copy(&bytes) {
            return Ok(None);
        }
        let edited = readable(edit_consolidated(self.format, &bytes, &self.current(changes)?))?.flatten();
        Ok(edited.map(|edited| (edited, version)))
    }

    /// Reads the documents that the nodes have now, after the copy was read. Without a lock, another process may have
    /// changed a node after this one did. Then its change of the copy is either in the copy that was read, or makes
    /// this write fail.
    fn current<'c>(&self, changes: &'c [EntryChange]) -> Result<Cow<'c, [EntryChange]>> {
        let is_there = |change: &&EntryChange| change.node.is_some();
        if !self.store.capabilities().conditional_writes || !changes.iter().any(|change| is_there(&change)) {
            return Ok(Cow::Borrowed(changes));
        }
        let absolute = |change: &EntryChange| match (self.group, &change.path[..]) {
            ("", path) => path.to_string(),
            (group, "") => group.to_string(),
            (group, path) => join_key(group, path),
        };
        let paths: Vec<String> = changes.iter().filter(is_there).map(absolute).collect();
        let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
        let mut found = documents::find_many(self.store, &paths, self.format, &lookup).into_iter();
        let current = |change: &EntryChange| -> Result<EntryChange> {
            if !is_there(&change) {
                return Ok(change.clone());
            }
            let node = found.next().transpose()?.flatten().map(|found| found.documents);
            Ok(EntryChange { path: change.path.clone(), node })
        };
        changes.iter().map(current).collect()
    }

    /// Tries once to change the copy, and returns whether it was changed; `None` if another writer was faster.
    fn try_edit(&self, changes: &[EntryChange]) -> Result<Option<bool>> {
        let Some((edited, version)) = self.edited(changes)? else { return Ok(Some(false)) };
        let is_compared = self.store.capabilities().conditional_writes;
        let condition = version.filter(|_| is_compared).map_or(Condition::Always, Condition::Unchanged);
        let written = self.store.put(&self.key(), Payload::Bytes(&edited), &condition);
        Ok(written.at(|| documents::place(self.store, self.group))?.then_some(true))
    }

    /// Changes the copy of a group. The caller holds the group's lock.
    fn edit_held(&self, changes: &[EntryChange]) -> Result<()> {
        for _ in 0..MOST_ATTEMPTS {
            if self.try_edit(changes)?.is_some() {
                return Ok(());
            }
        }
        Err(outrun(self.store, self.group))
    }

    fn key(&self) -> String {
        copy_key(self.group, self.format)
    }
}

/// The key of the document that holds a group's consolidated copy.
fn copy_key(group: &str, format: ZarrFormat) -> String {
    node::key(group, if format == ZarrFormat::V3 { ZARR_JSON } else { ZMETADATA })
}

/// The value that was read; `None` if the document cannot be used. A failure of the store is an error.
fn readable<T>(value: Result<T>) -> Result<Option<T>> {
    match value {
        Err(error) if matches!(error.kind(), ErrorKind::StoreFailed | ErrorKind::Cancelled) => Err(error),
        value => Ok(value.ok()),
    }
}

/// Whether a `zarr.json` seems to have consolidated metadata.
fn has_copy(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"\"consolidated_metadata\"";
    bytes.windows(NAME.len()).any(|window| window == NAME)
}
