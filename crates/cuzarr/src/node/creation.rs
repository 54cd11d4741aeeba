//! Creates arrays and groups, one or many by one call. The steps are ordered so that a killed process does no harm.

use std::collections::{BTreeMap, BTreeSet};

use super::copies::update_copies;
use super::deletion;
use super::documents::{self, Consolidation, FoundNode, Lookup, each};
use super::lock::{MOST_ATTEMPTS, pause};
use super::path::{ancestors, normalize_path};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{self, NodeDocuments, ZARRAY};
use crate::meta::{EntryChange, GroupMetadata, NodeMetadata, ZarrFormat};
use crate::store::{Condition, Payload, Store, StoreExt};

/// The metadata documents of all nodes that one call creates, and of the missing groups above them.
///
/// First, [`make_room`](NewNodes::make_room) checks and frees the paths. Then [`publish`](NewNodes::publish) stores the
/// documents. Chunks may be written in between, so that readers see a whole array or none.
///
/// ```
/// use cuzarr::meta::{GroupMetadata, NodeMetadata, ZarrFormat};
/// use cuzarr::internal::node::NewNodes;
/// use cuzarr::store::{MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let group = NodeMetadata::Group(Box::new(GroupMetadata::new(ZarrFormat::V3, Default::default())?));
/// let new = NewNodes::make_room(&store, vec![("a/b".into(), (&group).into())], false)?;
/// assert_eq!(new.paths().collect::<Vec<_>>(), ["", "a", "a/b"]);
/// new.publish(&store, Some(2))?;
/// assert_eq!(store.list("")?, ["a/b/zarr.json", "a/zarr.json", "zarr.json"]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewNodes {
    format: ZarrFormat,
    /// The new nodes, sorted by the segments of their paths, so that parents come first. `None` for missing groups
    /// above them.
    nodes: BTreeMap<Vec<String>, Option<NodeDocuments>>,
}

impl NewNodes {
    /// Checks that nodes can be created at the given paths, and plans which metadata documents must be stored for them.
    /// With `overwrite`, it deletes existing nodes, but only if all new nodes can be created.
    ///
    /// # Errors
    /// `ReadOnly`; `InvalidArgument` when formats differ or a path is given twice; `ContainsArray` when a node would lie below an
    /// array, or chunks lie where a new array would have its own; `ContainsArray` or `ContainsGroup` when a path is taken and
    /// `overwrite` is off; errors in an array's metadata; what the store reports.
    pub fn make_room(store: &dyn Store, nodes: Vec<(String, NodeDocuments)>, overwrite: bool) -> Result<NewNodes> {
        let new = NewNodes::plan(store, nodes, overwrite)?;
        if !overwrite {
            let given: Vec<_> = new.given().collect();
            each(store, &given, |(path, documents)| {
                let NodeMetadata::Array(array) = (*documents).clone().check().at(|| documents::place(store, path))?
                else {
                    return Ok(());
                };
                deletion::refuse_left_over(store, path, &array)
            })?;
        }
        new.delete_old(store, overwrite)
    }

    /// Like [`NewNodes::make_room`] without `overwrite`, for arrays whose chunks are already stored.
    ///
    /// # Errors
    /// Those of [`NewNodes::make_room`], except for existing chunks.
    pub(super) fn adopt(store: &dyn Store, nodes: Vec<(String, NodeDocuments)>) -> Result<NewNodes> {
        NewNodes::plan(store, nodes, false)
    }

    /// Finds out in one batch which nodes exist at and above the paths, and plans which documents must be created.
    fn plan(store: &dyn Store, nodes: Vec<(String, NodeDocuments)>, overwrite: bool) -> Result<NewNodes> {
        let mut new = NewNodes::sorted(nodes)?;
        if store.capabilities().read_only {
            let path = new.given().next().map(|(path, _)| path).unwrap_or_default();
            let message = format!("{store}: cannot create '/{path}': the store is read-only");
            return Err(Error::new(ErrorKind::ReadOnly, message));
        }
        let given: BTreeMap<String, bool> = new.given().map(|(path, node)| (path, node.is_array())).collect();
        let above: BTreeSet<&str> = given.keys().flat_map(|path| ancestors(path)).collect();
        let paths: BTreeSet<&str> = given.keys().map(String::as_str).chain(above.iter().copied()).collect();
        let paths: Vec<String> = paths.into_iter().map(String::from).collect();
        let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
        let found = documents::find_many(store, &paths, new.format, &lookup);
        for (path, found) in paths.iter().zip(found) {
            match given.contains_key(path) {
                true if overwrite => drop(readable(found)?),
                true => require_absent(store, path, found)?,
                false => {
                    if is_array(store, path, new.format, &found)? {
                        let below = given.keys().find(|given| ancestors(given).any(|above| above == path));
                        return Err(inside_array(store, below.map_or("", String::as_str), path));
                    }
                    if matches!(readable(found)?, Some(None)) {
                        new.nodes.insert(segments(path), None);
                    }
                }
            }
        }
        Ok(new)
    }

    fn sorted(nodes: Vec<(String, NodeDocuments)>) -> Result<NewNodes> {
        let format = nodes.first().map_or(ZarrFormat::V3, |(_, node)| node.zarr_format());
        let mut sorted: BTreeMap<Vec<String>, Option<NodeDocuments>> = BTreeMap::new();
        for (path, node) in nodes {
            let path = normalize_path(&path)?;
            if node.zarr_format() != format {
                let (got, expected) = (node.zarr_format().number(), format.number());
                let message =
                    format!("node '/{path}': got format {got}, expected format {expected} like the other nodes");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            if sorted.insert(segments(&path), Some(node)).is_some() {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("the path '/{path}' is given twice")));
            }
        }
        for path in sorted.keys() {
            let is_array =
                |above: &&[String]| sorted.get(*above).and_then(Option::as_ref).is_some_and(NodeDocuments::is_array);
            if let Some(above) = (0..path.len()).map(|length| &path[..length]).find(is_array) {
                let (path, above) = (path.join("/"), above.join("/"));
                let message = format!("node '/{path}': '/{above}' is an array, and only groups have members");
                return Err(Error::new(ErrorKind::ContainsArray, message));
            }
        }
        Ok(NewNodes { format, nodes: sorted })
    }

    fn given(&self) -> impl Iterator<Item = (String, &NodeDocuments)> {
        self.nodes.iter().filter_map(|(path, node)| Some((path.join("/"), node.as_ref()?)))
    }

    fn delete_old(self, store: &dyn Store, overwrite: bool) -> Result<NewNodes> {
        if overwrite {
            let given: BTreeSet<String> = self.given().map(|(path, _)| path).collect();
            // A node below another one is deleted with it.
            let is_top = |path: &&String| !ancestors(path).any(|above| given.contains(above));
            let top: Vec<String> = given.iter().filter(is_top).cloned().collect();
            deletion::delete_nodes(store, &top)?;
        }
        Ok(self)
    }

    /// The paths of all new nodes and of the missing groups above them. Parents come first.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.nodes.keys().map(|path| path.join("/"))
    }

    /// Stores the metadata documents of all new nodes, with `indent` spaces per level of JSON. Documents at one depth
    /// are one batch, and groups are stored before their members.
    ///
    /// The document that makes a node is written last. So a node never lacks its attributes, and never has attributes
    /// of an earlier node. The document is only written if there is none. So if two writers create one node at the same
    /// time, one succeeds and the other fails.
    ///
    /// The new nodes are added to the consolidated copies above them. Each copy is written once.
    ///
    /// # Errors
    /// `ContainsArray` or `ContainsGroup` when another writer created the node first; what the store reports.
    pub fn publish(&self, store: &dyn Store, indent: Option<usize>) -> Result<()> {
        let group =
            NodeDocuments::from(&NodeMetadata::Group(Box::new(GroupMetadata::new(self.format, Default::default())?)));
        let mut batches: BTreeMap<(usize, bool), Vec<Write>> = BTreeMap::new();
        for (path, node) in &self.nodes {
            let documents = node.as_ref().unwrap_or(&group).documents(indent);
            for (at, (name, bytes)) in documents.into_iter().enumerate() {
                let (makes_node, is_given) = (at == 0, node.is_some());
                let is_array = node.as_ref().is_some_and(NodeDocuments::is_array);
                let write = Write { path: path.join("/"), name, bytes, is_given, is_array };
                batches.entry((path.len(), makes_node)).or_default().push(write);
            }
        }
        for ((_, makes_nodes), batch) in &batches {
            each(store, batch, |write| write.store(store, self.format, *makes_nodes))?;
        }
        let change = |(path, node): (&Vec<String>, &Option<NodeDocuments>)| {
            let node = node.as_ref().unwrap_or(&group).clone().alone();
            EntryChange { path: path.join("/"), node: Some(node) }
        };
        let changes = self.nodes.iter().map(change).collect();
        update_copies(store, self.format, changes, &CancellationToken::default()).map(drop)
    }
}

/// Creates one node, and the missing groups above it; see [`NewNodes`]. If several programs overwrite a node at the
/// same time, a program that was too slow begins again. So the node of the last one remains.
pub(super) fn create_node(store: &dyn Store, path: &str, node: &NodeMetadata, overwrite: bool) -> Result<()> {
    let node = (path.to_string(), NodeDocuments::from(node));
    let mut attempt = 0;
    loop {
        let new = NewNodes::make_room(store, vec![node.clone()], overwrite)?;
        match new.publish(store, Some(2)) {
            Err(error) if overwrite && attempt < MOST_ATTEMPTS && is_taken(&error) => {
                pause(attempt, &CancellationToken::default())?;
                attempt += 1;
            }
            published => return published,
        }
    }
}

fn is_taken(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ContainsArray | ErrorKind::ContainsGroup)
}

/// One metadata document of a new node, as bytes to be stored.
struct Write {
    path: String,
    name: &'static str,
    bytes: Vec<u8>,
    is_given: bool,
    is_array: bool,
}

impl Write {
    fn store(&self, store: &dyn Store, format: ZarrFormat, makes_node: bool) -> Result<()> {
        let key = node::key(&self.path, self.name);
        let condition = if makes_node || !self.is_given { Condition::Absent } else { Condition::Always };
        let written = store.put(&key, Payload::Bytes(&self.bytes), &condition);
        if written.at(|| documents::place(store, &self.path))? || !(makes_node && self.is_given) {
            return Ok(());
        }
        let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
        for found in documents::find_many(store, std::slice::from_ref(&self.path), format, &lookup) {
            require_absent(store, &self.path, found)?;
        }
        let message = format!("{store}: another writer created and deleted '/{}' meanwhile", self.path);
        let error =
            Error::new(if self.is_array { ErrorKind::ContainsArray } else { ErrorKind::ContainsGroup }, message);
        Err(error.with_hint("try again"))
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').filter(|segment| !segment.is_empty()).map(String::from).collect()
}

/// Returns `None` in place of the error for a node whose metadata documents cannot be parsed. A failure of the store is
/// an error.
fn readable(found: Result<Option<FoundNode>>) -> Result<Option<Option<FoundNode>>> {
    match found {
        Err(error) if error.kind().is_of_store() => Err(error),
        found => Ok(found.ok()),
    }
}

/// Whether the node that was found at a path is an array. In v2, the name of the document decides. A v3 document that
/// cannot be read does not count as an array.
fn is_array(store: &dyn Store, path: &str, format: ZarrFormat, found: &Result<Option<FoundNode>>) -> Result<bool> {
    match found {
        Ok(found) => Ok(found.as_ref().is_some_and(|found| found.documents.is_array())),
        Err(_) if format == ZarrFormat::V2 => store.exists(&node::key(path, ZARRAY)),
        Err(_) => Ok(false),
    }
}

fn inside_array(store: &dyn Store, path: &str, parent: &str) -> Error {
    let message = format!("{store}: cannot create '/{path}': '/{parent}' is an array, and only groups have members");
    Error::new(ErrorKind::ContainsArray, message)
}

/// Fails if a node was found at the path.
fn require_absent(store: &dyn Store, path: &str, found: Result<Option<FoundNode>>) -> Result<()> {
    let found = match found {
        Ok(None) => return Ok(()),
        Err(error) if error.kind().is_of_store() => return Err(error),
        Err(error) => return Err(error.with_hint("replace the node with `overwrite`")),
        Ok(Some(found)) => found,
    };
    let (kind, what) = match found.documents.is_array() {
        true => (ErrorKind::ContainsArray, "an array"),
        false => (ErrorKind::ContainsGroup, "a group"),
    };
    let error = Error::new(kind, format!("{store}: there is {what} at '/{path}' already"));
    Err(error.with_hint("open it, or replace it with `overwrite`"))
}
