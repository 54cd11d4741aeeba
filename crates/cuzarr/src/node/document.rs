//! Changes the stored metadata documents of arrays and groups. Arrays, groups, creation and deletion change documents
//! here and nowhere else.
//!
//! A change reads the *stored* document, modifies it and writes it. It never uses what a handle remembers. Three things
//! keep two changes from mixing:
//!
//! 1. A lock for each node, in this process.
//! 2. A conditional write, if the store has it ([`Condition::Unchanged`]). If another writer was faster, the change
//!    begins again with the new document.
//! 3. The store's own lock of the node ([`Store::try_lock`]), such as `flock` on a directory. It excludes other
//!    processes. Stores with conditional writes need it only for changes of the shape, which also write or delete
//!    chunks.
//!
//! After the node's own documents, its entries in the consolidated copies are replaced (`copies`). A process that is
//! killed in between leaves a stale copy, which the next change of the node repairs. A caller that holds locks of nodes
//! may take locks of groups above, never of nodes below or beside. A caller that needs several locks takes all of them
//! by one call.
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

use std::collections::BTreeMap;
use std::sync::Arc;

use super::copies;
use super::documents::{self, document_names, each, limit_bytes};
use super::lock::{HeldDocuments, MOST_ATTEMPTS, outrun, pause};
use super::path::normalize_path;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node;
use crate::meta::{ArrayMetadata, EntryChange, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::run::Engine;
use crate::store::{ByteRange, Condition, Payload, ReadRequest, Store, StoreExt};

/// A lock on the metadata documents of one array or group. Until it is dropped, other changes of the node wait: those
/// of this process, and, if the store has locks, those of other processes.
pub struct NodeLock(NodeLocks);

/// A lock on the metadata documents of several arrays and groups of one store, until it is dropped.
pub(super) struct NodeLocks {
    store: Arc<dyn Store>,
    nodes: Vec<NodePlace>,
    cancellation: CancellationToken,
    _held: HeldDocuments,
}

/// A node to be locked: its path, its format, and whether it is an array.
pub(super) struct NodePlace {
    pub path: String,
    pub format: ZarrFormat,
    pub is_array: bool,
}

/// The metadata documents of a node, read while they were locked.
#[derive(Clone, Debug)]
pub struct StoredNode {
    documents: NodeDocuments,
    /// By name of the document, the condition under which the store may replace it.
    conditions: BTreeMap<&'static str, Condition>,
}

impl StoredNode {
    /// The metadata documents that were read from the store.
    pub fn documents(&self) -> &NodeDocuments {
        &self.documents
    }
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
        let node = NodePlace { path: normalize_path(path)?, format, is_array };
        NodeLocks::take(store, vec![node], false, cancellation).map(NodeLock)
    }

    /// Like [`NodeLock::take`], for an array whose shape changes. No other caller changes the shape while chunks are
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
        let node = NodePlace { path: normalize_path(path)?, format, is_array: true };
        NodeLocks::take(store, vec![node], true, cancellation).map(NodeLock)
    }

    /// Reads the metadata documents of the locked node from the store.
    ///
    /// # Errors
    /// `ArrayNotFound` or `GroupNotFound` when the node is gone; `MetadataInvalid`; what the store reports.
    pub fn read(&self) -> Result<StoredNode> {
        self.0
            .read(&[0])?
            .pop()
            .ok_or_else(|| documents::not_found(ErrorKind::NodeNotFound, &*self.0.store, self.path()))
    }

    /// Stores the node's metadata documents that differ from the stored ones, then updates the consolidated metadata of
    /// the groups above. `indent` is the number of spaces per level. Returns false if another writer has changed a
    /// document since it was read. Then that document is not written.
    ///
    /// # Errors
    /// `ReadOnly`; what the store reports.
    pub fn replace(&self, stored: &StoredNode, documents: &NodeDocuments, indent: Option<usize>) -> Result<bool> {
        let change = NodeChange { number: 0, stored, documents };
        self.0.replace(&[change], indent)?.pop().unwrap_or(Ok(false))
    }

    /// Changes the stored metadata documents of the locked node with the caller's function. If another writer is
    /// faster, `change` is called again with the new documents.
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
            change(&mut documents).at(|| documents::place(&*self.0.store, self.path()))?;
            if self.replace(&stored, &documents, indent)? {
                return Ok(documents);
            }
            pause(attempt, &self.0.cancellation)?;
        }
        Err(outrun(&*self.0.store, self.path()))
    }

    fn path(&self) -> &str {
        &self.0.nodes[0].path
    }
}

/// Refuses to delete an array that has a writer, or to change its shape.
///
/// # Errors
/// `InvalidArgument`
pub(super) fn refuse_written(store: &dyn Store, path: &str) -> Result<()> {
    if Engine::get().has_writer(&store.identity().below(path)) {
        let message = format!("{store}: a writer has array '/{path}', or one below it");
        return Err(Error::new(ErrorKind::InvalidArgument, message).with_hint("close the writer first"));
    }
    Ok(())
}

/// New metadata documents for one of the locked nodes.
pub(super) struct NodeChange<'a> {
    /// The number of the node among the locked nodes.
    pub number: usize,
    pub stored: &'a StoredNode,
    pub documents: &'a NodeDocuments,
}

impl NodeLocks {
    /// Waits for the locks of several nodes of one store, whose paths must be sorted. With `owns_chunks`, no other
    /// caller changes the shape of these arrays.
    ///
    /// # Errors
    /// `InvalidArgument` with `owns_chunks` for an array that has a writer; `Cancelled`; `StoreFailed` when a program on another machine does not give a lock back.
    pub fn take(
        store: Arc<dyn Store>,
        nodes: Vec<NodePlace>,
        owns_chunks: bool,
        cancellation: &CancellationToken,
    ) -> Result<NodeLocks> {
        if owns_chunks {
            nodes.iter().try_for_each(|node| refuse_written(&*store, &node.path))?;
        }
        NodeLocks::held(store, nodes, owns_chunks, cancellation)
    }

    /// Waits for the locks of arrays for the writer that has them, which changes their shapes.
    ///
    /// # Errors
    /// Those of [`NodeLocks::take`].
    pub fn take_as_writer(
        store: Arc<dyn Store>,
        nodes: Vec<NodePlace>,
        cancellation: &CancellationToken,
    ) -> Result<NodeLocks> {
        NodeLocks::held(store, nodes, true, cancellation)
    }

    fn held(
        store: Arc<dyn Store>,
        nodes: Vec<NodePlace>,
        owns_chunks: bool,
        cancellation: &CancellationToken,
    ) -> Result<NodeLocks> {
        let paths: Vec<&str> = nodes.iter().map(|node| &node.path[..]).collect();
        let held = HeldDocuments::take(&*store, &paths, owns_chunks, cancellation)?;
        Ok(NodeLocks { store, nodes, cancellation: cancellation.clone(), _held: held })
    }

    /// Reads the metadata documents of the locked nodes with these numbers, as one batch.
    ///
    /// # Errors
    /// Those of [`NodeLock::read`].
    pub fn read(&self, numbers: &[usize]) -> Result<Vec<StoredNode>> {
        let names = |node: &NodePlace| document_names(Some(node.format), Some(node.is_array));
        let nodes = || numbers.iter().map(|&number| &self.nodes[number]);
        let keys = nodes().flat_map(|node| names(node).into_iter().map(|name| node::key(&node.path, name)));
        let requests = keys.map(|key| ReadRequest { key, range: ByteRange::Full }).collect();
        let mut values = self.store.get_many_versioned(requests, limit_bytes()).into_iter();
        let is_compared = self.store.capabilities().conditional_writes;
        let parse = |node: &NodePlace| {
            let names = names(node);
            let place = || documents::place(&*self.store, &node.path);
            let (mut found, mut conditions) = (BTreeMap::new(), BTreeMap::new());
            for (name, value) in names.iter().zip(values.by_ref().take(names.len())) {
                let value = value.map_err(documents::with_limit_hint).at(place)?;
                let condition = match &value {
                    None => Condition::Absent,
                    Some((_, Some(version))) => Condition::Unchanged(version.clone()),
                    Some((_, None)) => Condition::Always,
                };
                conditions.insert(*name, if is_compared { condition } else { Condition::Always });
                found.extend(value.map(|(bytes, _)| (*name, bytes)));
            }
            let mut stored = node::Documents::default();
            found.iter().for_each(|(name, bytes)| stored.set(name, bytes));
            match NodeDocuments::parse(&stored).at(place)? {
                Some(documents) if documents.is_array() == node.is_array => Ok(StoredNode { documents, conditions }),
                _ => {
                    let kind = if node.is_array { ErrorKind::ArrayNotFound } else { ErrorKind::GroupNotFound };
                    Err(documents::not_found(kind, &*self.store, &node.path)
                        .with_hint("another program deleted or replaced it"))
                }
            }
        };
        nodes().map(parse).collect()
    }

    /// Stores the nodes' metadata documents that differ from the stored ones, then updates the consolidated metadata of
    /// the groups above. Says for each change whether it was stored, as [`NodeLock::replace`] does.
    ///
    /// # Errors
    /// What the store reports about consolidated copies.
    pub fn replace(&self, changes: &[NodeChange<'_>], indent: Option<usize>) -> Result<Vec<Result<bool>>> {
        let put = |change: &NodeChange<'_>| Ok(self.put(change, indent));
        let stored = each(&*self.store, changes, put)?;
        let mut entries: BTreeMap<ZarrFormat, Vec<EntryChange>> = BTreeMap::new();
        for (change, _) in changes.iter().zip(&stored).filter(|(_, stored)| matches!(stored, Ok(true))) {
            let (node, documents) = (&self.nodes[change.number], change.documents.clone().alone());
            if node.format == ZarrFormat::V2 && !node.is_array {
                // The consolidated copy of a v2 group also has the group's own attributes.
                copies::update_own(&*self.store, &node.path, &documents)?;
            }
            let entry = EntryChange { path: node.path.clone(), node: Some(documents) };
            entries.entry(node.format).or_default().push(entry);
        }
        for (format, entries) in entries {
            copies::update_copies(&*self.store, format, entries, &self.cancellation)?;
        }
        Ok(stored)
    }

    /// Stores the metadata documents of one node, except those that are equal to the stored ones.
    fn put(&self, change: &NodeChange<'_>, indent: Option<usize>) -> Result<bool> {
        let (node, old) = (&self.nodes[change.number], change.stored.documents.documents(indent));
        for (name, bytes) in change.documents.documents(indent) {
            if old.iter().any(|old| (old.0, &old.1) == (name, &bytes)) {
                continue;
            }
            let condition = change.stored.conditions.get(name).unwrap_or(&Condition::Always);
            let put = self.store.put(&node::key(&node.path, name), Payload::Bytes(&bytes), condition);
            if !put.at(|| documents::place(&*self.store, &node.path))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl StoredNode {
    /// Parses the metadata of an array from its stored documents.
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
