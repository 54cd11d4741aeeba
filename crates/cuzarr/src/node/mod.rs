//! Arrays and groups: opening, creating and changing them. The engine reads and writes their elements.
//!
//! ```
//! use std::sync::Arc;
//! use cuzarr::node::{self, ArrayOptions, Group, Mode, Node};
//! use cuzarr::store::{MemoryStore, Store};
//!
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! Group::builder().create_in(Arc::clone(&store), "a/b")?;
//! let Node::Group(root) = node::open(store, "", Mode::Read, None, ArrayOptions::default())? else { unreachable!() };
//! let paths: Vec<String> = root.members(None)?.into_iter().map(|(path, _)| path).collect();
//! assert_eq!(paths, ["a", "a/b"]);
//! # Ok::<(), cuzarr::Error>(())
//! ```
//!
//! Names and modes follow zarr-python 3. v3 metadata wins over v2 metadata at the same path, with a warning (see
//! [`Group::warnings`]). Creating a node creates the groups above it. All members of a group have the group's format.

mod append;
mod array;
mod array_io;
mod builder;
mod copies;
pub(crate) mod creation;
pub(crate) mod deletion;
mod document;
pub(crate) mod documents;
pub(crate) mod group;
mod group_builder;
pub(crate) mod hierarchy;
mod lock;
mod many;
mod mode;
#[cfg(feature = "ndarray")]
mod ndarray;
mod path;
pub(crate) mod place;
pub(crate) mod resize;
mod stream;
mod typed;
pub(crate) mod unchanged;
mod update;
mod values;
mod writer;

use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::meta::{ArrayMetadata, NodeMetadata, ZarrFormat};
use crate::store::Store;

pub use crate::run::Options as ArrayOptions;
pub use array::Array;
pub use builder::ArrayBuilder;
pub use deletion::{delete_node, delete_tree};
pub use document::{NodeLock, StoredNode};
pub use documents::Consolidation;
pub use group::{Group, consolidate_metadata};
pub use group_builder::GroupBuilder;
pub use hierarchy::create_hierarchy;
pub use many::{ArraySelection, ArrayWrite, explain_all, read_all, write_all};
pub use mode::Mode;
pub use path::normalize_path;
pub use resize::{ArrayResize, resize_all};
pub use update::Update;
pub use values::{HostData, HostView, Values};
pub use writer::{Writer, WriterArray, WriterOptions, WriterProgress};

/// A node of a Zarr hierarchy: an array or a group.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nodes are held one at a time, and are not moved around in bulk")]
pub enum Node {
    /// The node is an array.
    Array(Array),
    /// The node is a group.
    Group(Group),
}

impl Node {
    /// The node's path in the store; the root's is empty.
    pub fn path(&self) -> &str {
        match self {
            Node::Array(array) => array.path(),
            Node::Group(group) => group.path(),
        }
    }

    /// The node's path with a leading `/`.
    pub fn name(&self) -> String {
        format!("/{}", self.path())
    }
}

/// Opens the array or group at `path`, or creates a group there, as `mode` says. `format: None` accepts any existing
/// format, and uses version 3 for a new group.
///
/// # Errors
/// `NodeNotFound` when there is no node and the mode does not create; `ContainsArray` or `ContainsGroup` when there is one and
/// the mode must create.
pub fn open(
    store: Arc<dyn Store>,
    path: &str,
    mode: Mode,
    format: Option<ZarrFormat>,
    options: ArrayOptions,
) -> Result<Node> {
    if mode.may_open() {
        match open_existing(mode.restrict(Arc::clone(&store))?, path, format, options.clone()) {
            Err(error) if error.kind() == ErrorKind::NodeNotFound && mode.may_create() => {}
            opened => return opened,
        }
    }
    open_group(store, path, mode, format, options).map(Node::Group)
}

/// Opens the array or group at `path`.
///
/// # Errors
/// `NodeNotFound` when nothing is there.
pub fn open_existing(
    store: Arc<dyn Store>,
    path: &str,
    format: Option<ZarrFormat>,
    options: ArrayOptions,
) -> Result<Node> {
    let path = normalize_path(path)?;
    let consolidation = Consolidation::WhenPresent;
    let Some(found) = documents::find(&*store, &path, format, &consolidation)? else {
        return Err(documents::not_found(ErrorKind::NodeNotFound, &*store, &path));
    };
    match found.metadata {
        NodeMetadata::Array(metadata) => {
            Array::opened(store, path, *metadata, options, found.warnings).map(Node::Array)
        }
        NodeMetadata::Group(metadata) => {
            let group = Group::opened(store, path, *metadata, options, found.warnings);
            Ok(Node::Group(group))
        }
    }
}

/// Opens the group at `path`, or creates it, as `mode` says.
///
/// # Errors
/// `GroupNotFound` when it does not exist and the mode does not create; `ContainsArray` or `ContainsGroup` when another node is
/// in the way.
pub fn open_group(
    store: Arc<dyn Store>,
    path: &str,
    mode: Mode,
    format: Option<ZarrFormat>,
    options: ArrayOptions,
) -> Result<Group> {
    if mode.may_open() {
        let store = mode.restrict(Arc::clone(&store))?;
        match Group::open(store, path, format, Consolidation::WhenPresent, options.clone()) {
            Err(error) if error.kind() == ErrorKind::GroupNotFound && mode.may_create() => {}
            opened => return opened,
        }
    }
    let store = mode.restrict(store)?;
    mode.check_creation(&*store, path)?;
    Group::create(store, path, format.unwrap_or(ZarrFormat::V3), Default::default(), mode.overwrites(), options)
}

/// Opens the array at `path`, or creates it from `metadata`, as `mode` says.
///
/// # Errors
/// `ArrayNotFound` when it does not exist and the mode does not create, or there is no metadata to create it from;
/// `ContainsArray` or `ContainsGroup` when another node is in the way.
pub fn open_array(
    store: Arc<dyn Store>,
    path: &str,
    mode: Mode,
    format: Option<ZarrFormat>,
    metadata: Option<ArrayMetadata>,
    options: ArrayOptions,
) -> Result<Array> {
    if mode.may_open() {
        match Array::open_format(mode.restrict(Arc::clone(&store))?, path, format, options.clone()) {
            Err(error) if error.kind() == ErrorKind::ArrayNotFound && mode.may_create() && metadata.is_some() => {}
            opened => return opened,
        }
    }
    let store = mode.restrict(store)?;
    let Some(metadata) = metadata else {
        return Err(documents::not_found(ErrorKind::ArrayNotFound, &*store, &normalize_path(path)?));
    };
    mode.check_creation(&*store, path)?;
    Array::create(store, path, metadata, mode.overwrites(), options)
}

#[cfg(test)]
mod tests;
