//! Groups: opening, creating and consolidating them, and their members.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::ArrayOptions;
use super::array::Array;
use super::creation::create_node;
use super::document::NodeLock;
use super::documents::{self, Consolidation, FoundNode, Lookup};
use super::hierarchy::{self, gather_documents};
use super::path::normalize_path;
use super::{Node, delete_node};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::{ArrayMetadata, Consolidated, GroupMetadata, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::store::{Store, join_key};

/// A Zarr group in a store, with its metadata and the options of its arrays.
#[derive(Clone)]
pub struct Group {
    store: Arc<dyn Store>,
    path: String,
    metadata: GroupMetadata,
    /// The options of the arrays that are opened or created through this group.
    options: ArrayOptions,
    warnings: Vec<String>,
    uses_consolidated: bool,
    /// Whether members are read from their own documents and not from consolidated metadata, even in a read-only store.
    reads_documents: bool,
}

impl Group {
    /// Opens the group at `path`. Arrays that it opens get `options`.
    ///
    /// # Errors
    /// `GroupNotFound`; `InvalidArgument` when consolidated metadata is required but missing.
    pub fn open(
        store: Arc<dyn Store>,
        path: &str,
        format: Option<ZarrFormat>,
        consolidation: Consolidation,
        options: ArrayOptions,
    ) -> Result<Group> {
        let path = normalize_path(path)?;
        let found = documents::find(&*store, &path, format, &consolidation)?;
        let missing = || documents::not_found(ErrorKind::GroupNotFound, &*store, &path);
        let (metadata, warnings) = match found.map(|found| (found.metadata, found.warnings)) {
            Some((NodeMetadata::Group(metadata), warnings)) => (*metadata, warnings),
            Some(_) => return Err(missing().with_hint("open it as an array")),
            None => return Err(missing()),
        };
        let required = matches!(consolidation, Consolidation::Required | Consolidation::Named(_));
        if required && metadata.consolidated().is_none() {
            return Err(documents::not_consolidated(&*store, &path));
        }
        let mut group = Group::opened(store, path, metadata, options, warnings);
        group.uses_consolidated &= consolidation != Consolidation::Never;
        Ok(group)
    }

    pub(super) fn opened(
        store: Arc<dyn Store>,
        path: String,
        metadata: GroupMetadata,
        options: ArrayOptions,
        warnings: Vec<String>,
    ) -> Group {
        let uses_consolidated = metadata.consolidated().is_some();
        Group { store, path, metadata, options, warnings, uses_consolidated, reads_documents: false }
    }

    /// Creates a group, and the missing groups above it. [`Group::builder`] has defaults for all but the path.
    ///
    /// # Errors
    /// `ContainsArray` or `ContainsGroup` when the path is taken and `overwrite` is off.
    pub fn create(
        store: Arc<dyn Store>,
        path: &str,
        format: ZarrFormat,
        attributes: Map<String, Value>,
        overwrite: bool,
        options: ArrayOptions,
    ) -> Result<Group> {
        Group::create_from(store, path, GroupMetadata::new(format, attributes)?, overwrite, options)
    }

    /// Creates a group from metadata, and the missing groups above it.
    ///
    /// # Errors
    /// Those of [`Group::create`].
    pub fn create_from(
        store: Arc<dyn Store>,
        path: &str,
        metadata: GroupMetadata,
        overwrite: bool,
        options: ArrayOptions,
    ) -> Result<Group> {
        let path = normalize_path(path)?;
        let node = NodeMetadata::Group(Box::new(metadata.clone()));
        create_node(&*store, &path, &node, overwrite)?;
        Ok(Group::opened(store, path, metadata, options, Vec::new()))
    }

    /// Makes a group from known metadata, without reading its documents.
    ///
    /// # Errors
    /// `KeyInvalid` when the path is not valid.
    pub fn from_metadata(
        store: Arc<dyn Store>,
        path: &str,
        metadata: GroupMetadata,
        options: ArrayOptions,
    ) -> Result<Group> {
        Ok(Group::opened(store, normalize_path(path)?, metadata, options, Vec::new()))
    }

    /// The store in which the group is.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The group's path in the store; the root's is empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The group's path with a leading `/`.
    pub fn name(&self) -> String {
        format!("/{}", self.path)
    }

    /// The group's metadata as it was read, with later changes through this `Group`.
    pub fn metadata(&self) -> &GroupMetadata {
        &self.metadata
    }

    /// The options of the arrays that are opened or created through this group.
    pub fn options(&self) -> &ArrayOptions {
        &self.options
    }

    /// Warnings about the group's metadata documents.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The group's consolidated metadata, if members are read from it.
    pub fn consolidated(&self) -> Option<&Consolidated> {
        self.metadata.consolidated().filter(|_| self.uses_consolidated)
    }

    /// Whether members of the group are opened from its consolidated metadata alone, without reading their own
    /// documents. In a writable store, the copy only gives their names.
    fn trusts_copy(&self) -> bool {
        self.store.capabilities().read_only && !self.reads_documents
    }

    /// Returns this group without its consolidated metadata: members are read from their own documents. If the store can
    /// list, these include members that the consolidated copy does not have.
    ///
    /// # Errors
    /// What the store reports.
    pub fn reading_documents(&self) -> Result<Group> {
        let mut group = self.clone();
        group.uses_consolidated = match self.consolidated() {
            None => false,
            Some(_) => match self.store.list_dir(&self.path) {
                Ok(_) => false,
                Err(error) if error.kind() == ErrorKind::Unsupported => true,
                Err(error) => return Err(error),
            },
        };
        group.reads_documents = true;
        Ok(group)
    }

    /// Describes how the consolidated metadata differs from the nodes' own documents: one sentence for each node that
    /// differs.
    ///
    /// # Errors
    /// What the store reports.
    pub fn differences(&self) -> Result<Vec<String>> {
        let Some(copy) = self.consolidated() else { return Ok(Vec::new()) };
        let (mut differences, mut stored) = (Vec::new(), BTreeSet::new());
        self.reading_documents()?.walk(None, &mut |path, metadata| {
            stored.insert(path.to_string());
            let Ok(metadata) = metadata else { return Ok(()) };
            match copy.node_alone(path) {
                Ok(None) => differences.push(format!("'{path}' is missing in the consolidated metadata")),
                Ok(Some(remembered))
                    if NodeDocuments::from(&remembered).alone() == NodeDocuments::from(&metadata).alone() => {}
                Ok(Some(remembered)) => differences.push(difference(path, &remembered, &metadata)),
                Err(_) => differences.push(format!("the consolidated metadata of '{path}' cannot be read")),
            }
            Ok(())
        })?;
        let gone = copy.paths().filter(|path| !stored.contains(*path));
        differences.extend(gone.map(|path| format!("'{path}' is in the consolidated metadata, but not stored")));
        Ok(differences)
    }

    /// Replaces all attributes, in this group and in the store.
    ///
    /// # Errors
    /// `GroupNotFound` when the group is gone; what the store reports.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) -> Result<()> {
        let mut metadata = self.metadata.clone();
        metadata.set_attributes(attributes).at(|| self.place())?;
        self.store_attributes(metadata)
    }

    /// Like [`Group::set_attributes`], but takes the attributes as a JSON object in `text`. The spelling of numbers is
    /// kept.
    ///
    /// # Errors
    /// `MetadataInvalid` when the text is not a JSON object; what the store reports.
    pub fn set_attributes_json(&mut self, text: &str) -> Result<()> {
        let mut metadata = self.metadata.clone();
        metadata.set_attributes_json(text).at(|| self.place())?;
        self.store_attributes(metadata)
    }

    fn store_attributes(&mut self, metadata: GroupMetadata) -> Result<()> {
        let new = NodeDocuments::from(&NodeMetadata::Group(Box::new(metadata.clone())));
        let (format, cancellation) = (metadata.zarr_format(), &self.options.cancellation);
        let node = NodeLock::take(Arc::clone(&self.store), &self.path, format, false, cancellation)?;
        node.update(Some(2), &mut |documents| documents.take_attributes_of(&new))?;
        self.metadata = metadata;
        Ok(())
    }

    /// Marks in this group, and in the store, that an operation on the group is unfinished; `None` removes the mark.
    ///
    /// # Errors
    /// Those of [`Group::set_attributes`].
    pub(crate) fn set_unfinished(&mut self, mark: Option<&Value>) -> Result<()> {
        let (format, cancellation) = (self.metadata.zarr_format(), &self.options.cancellation);
        let node = NodeLock::take(Arc::clone(&self.store), &self.path, format, false, cancellation)?;
        node.update(Some(2), &mut |documents| documents.set_unfinished(mark))?;
        self.metadata.set_unfinished(mark)
    }

    fn place(&self) -> String {
        documents::place(&*self.store, &self.path)
    }

    /// Turns a path relative to this group into the path in the store.
    fn absolute(&self, path: &str) -> Result<(String, String)> {
        let relative = normalize_path(path)?;
        let absolute = if relative.is_empty() { self.path.clone() } else { join_key(&self.path, &relative) };
        Ok((relative, absolute))
    }

    /// Opens the array or group at a path relative to this group.
    ///
    /// # Errors
    /// `NodeNotFound`.
    pub fn get(&self, path: &str) -> Result<Node> {
        let (relative, absolute) = self.absolute(path)?;
        if relative.is_empty() {
            return Ok(Node::Group(self.clone()));
        }
        let format = self.metadata.zarr_format();
        let (metadata, warnings) = match self.consolidated() {
            Some(copy) if self.trusts_copy() => (copy.node(&relative).at(|| self.place())?, Vec::new()),
            copy => {
                let below = copy.filter(|copy| copy.is_array(&relative).is_some()).map(|copy| copy.under(&relative));
                let own = if below.is_some() { Consolidation::Never } else { Consolidation::WhenPresent };
                let (mut found, mut warnings) = (None, Vec::new());
                if let Some(node) = documents::find(&*self.store, &absolute, Some(format), &own)? {
                    (found, warnings) = (Some(node.metadata), node.warnings);
                }
                if let (Some(NodeMetadata::Group(group)), Some(below)) = (&mut found, below) {
                    group.set_consolidated(Some(below))?;
                }
                (found, warnings)
            }
        };
        let store = Arc::clone(&self.store);
        match metadata {
            Some(NodeMetadata::Array(metadata)) => {
                let array = Array::opened(store, absolute, *metadata, self.options.clone(), warnings)?;
                Ok(Node::Array(self.trusted(array)))
            }
            Some(NodeMetadata::Group(metadata)) => {
                Ok(Node::Group(Group::opened(store, absolute, *metadata, self.options.clone(), warnings)))
            }
            None => Err(documents::not_found(ErrorKind::NodeNotFound, &*store, &absolute)),
        }
    }

    /// Opens the array at a path relative to this group.
    ///
    /// # Errors
    /// `ArrayNotFound` when nothing or a group is there.
    pub fn array(&self, path: &str) -> Result<Array> {
        match self.get(path) {
            Ok(Node::Array(array)) => Ok(array),
            Err(error) if error.kind() != ErrorKind::NodeNotFound => Err(error),
            _ => Err(documents::not_found(ErrorKind::ArrayNotFound, &*self.store, &self.absolute(path)?.1)),
        }
    }

    /// Opens the array with one resolution level of an image, at a path relative to the image's group. In GeoZarr a
    /// level may be a group. Then the level's array is the only array of two or more dimensions directly below that
    /// group.
    ///
    /// # Errors
    /// `ArrayNotFound` when nothing is there; `Unsupported` for a group with several such arrays, or with none.
    pub fn level(&self, path: &str) -> Result<Array> {
        let level = match self.get(path) {
            Ok(Node::Group(level)) => level,
            _ => return self.array(path),
        };
        let members = level.members(Some(0))?;
        let images = members.into_iter().filter_map(|(name, member)| match member {
            Node::Array(array) if array.metadata().ndim() >= 2 => Some((name, array)),
            _ => None,
        });
        let (names, mut arrays): (Vec<String>, Vec<Array>) = images.unzip();
        match arrays.pop() {
            Some(array) if arrays.is_empty() => Ok(array),
            _ => {
                let message = format!(
                    "the level '{path}' is a group with the arrays {names:?}, expected one array of two or more dimensions"
                );
                Err(Error::new(ErrorKind::Unsupported, message).with_hint("choose one of the arrays below the level"))
            }
        }
    }

    /// Opens the group at a path relative to this group.
    ///
    /// # Errors
    /// `GroupNotFound` when nothing or an array is there.
    pub fn group(&self, path: &str) -> Result<Group> {
        match self.get(path) {
            Ok(Node::Group(group)) => Ok(group),
            Err(error) if error.kind() != ErrorKind::NodeNotFound => Err(error),
            _ => Err(documents::not_found(ErrorKind::GroupNotFound, &*self.store, &self.absolute(path)?.1)),
        }
    }

    /// Whether an array or group is at a path relative to this group; it need not have valid metadata.
    ///
    /// # Errors
    /// What the store reports.
    pub fn contains(&self, path: &str) -> Result<bool> {
        match self.get(path) {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                ErrorKind::NodeNotFound | ErrorKind::KeyInvalid => Ok(false),
                kind if kind.is_of_store() => Err(error),
                _ => Ok(true),
            },
        }
    }

    /// Calls `visit` for every node below this group, with the node's path relative to the group and its metadata. Each
    /// group is directly followed by its members, which are sorted.
    ///
    /// `max_depth` counts levels below the direct members: `Some(0)` visits only direct members, `None` visits all. If
    /// the metadata of a node cannot be read, `visit` gets the error; the walk ends only if `visit` returns this error.
    /// Groups come without their consolidated metadata.
    ///
    /// # Errors
    /// What the store and `visit` report.
    pub fn walk(
        &self,
        max_depth: Option<usize>,
        visit: &mut dyn FnMut(&str, Result<NodeMetadata>) -> Result<()>,
    ) -> Result<()> {
        match self.consolidated() {
            Some(copy) if self.trusts_copy() => hierarchy::walk_consolidated(copy, max_depth, visit),
            Some(copy) => hierarchy::walk_named(&*self.store, &self.path, copy, max_depth, visit),
            None => hierarchy::walk(&*self.store, &self.path, self.metadata.zarr_format(), max_depth, visit),
        }
    }

    /// Opens every node below this group, and returns it with its path relative to the group; see [`Group::walk`]. The
    /// codecs of an array are checked when it is first used.
    ///
    /// # Errors
    /// The first node whose metadata cannot be read; what the store reports.
    pub fn members(&self, max_depth: Option<usize>) -> Result<Vec<(String, Node)>> {
        let mut members = Vec::new();
        self.walk(max_depth, &mut |path, metadata| {
            let mut metadata = metadata?;
            if let (NodeMetadata::Group(group), Some(consolidated)) = (&mut metadata, self.consolidated()) {
                group.set_consolidated(Some(consolidated.under(path)))?;
            }
            members.push((path.to_string(), self.member(path, metadata)?));
            Ok(())
        })?;
        Ok(members)
    }

    /// Makes the array or group at a path below this group from metadata that was already read.
    fn member(&self, path: &str, metadata: NodeMetadata) -> Result<Node> {
        let (store, path) = (Arc::clone(&self.store), join_key(&self.path, path));
        Ok(match metadata {
            NodeMetadata::Array(metadata) => {
                Node::Array(self.trusted(Array::from_metadata(store, &path, *metadata, self.options.clone())?))
            }
            NodeMetadata::Group(metadata) => {
                let mut group = Group::opened(store, path, *metadata, self.options.clone(), Vec::new());
                group.uses_consolidated &= self.uses_consolidated;
                Node::Group(group)
            }
        })
    }

    /// Marks an array as opened from consolidated metadata, if this group opens its members from it.
    fn trusted(&self, array: Array) -> Array {
        if self.consolidated().is_some() { array.trusting_consolidated() } else { array }
    }

    /// Creates a group of the same format at a path relative to this group.
    ///
    /// # Errors
    /// Those of [`Group::create`].
    pub fn create_group(&self, path: &str, attributes: Map<String, Value>, overwrite: bool) -> Result<Group> {
        let (_, absolute) = self.member_path(path)?;
        let format = self.metadata.zarr_format();
        Group::create(Arc::clone(&self.store), &absolute, format, attributes, overwrite, self.options.clone())
    }

    /// Creates an array at a path relative to this group. Its metadata must have the group's format.
    ///
    /// # Errors
    /// Those of [`Array::create`]; `InvalidArgument` for metadata of another format.
    pub fn create_array(&self, path: &str, metadata: ArrayMetadata, overwrite: bool) -> Result<Array> {
        let (_, absolute) = self.member_path(path)?;
        let (got, expected) = (metadata.zarr_format().number(), self.metadata.zarr_format().number());
        if got != expected {
            let message = format!("array '/{absolute}': got metadata of format {got}, the group has format {expected}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Array::create(Arc::clone(&self.store), &absolute, metadata, overwrite, self.options.clone())
    }

    /// Opens the group at a path relative to this group, or creates it.
    ///
    /// # Errors
    /// `ContainsArray` when an array is there.
    pub fn require_group(&self, path: &str) -> Result<Group> {
        match self.group(path) {
            Err(error) if error.kind() == ErrorKind::GroupNotFound => {}
            opened => return opened,
        }
        match self.create_group(path, Map::new(), false) {
            // Another writer was faster, so the group exists now.
            Err(error) if error.kind() == ErrorKind::ContainsGroup => self.group(path),
            created => created,
        }
    }

    /// Opens the array at a path relative to this group, or creates it from `metadata`. An existing array must have the same
    /// shape and data type.
    ///
    /// # Errors
    /// `ContainsGroup` when a group is there; `ShapeMismatch` and `DTypeMismatch`.
    pub fn require_array(&self, path: &str, metadata: ArrayMetadata) -> Result<Array> {
        let array = match self.array(path) {
            Err(error) if error.kind() == ErrorKind::ArrayNotFound => {
                match self.create_array(path, metadata.clone(), false) {
                    // Another writer was faster, or there are chunks without metadata.
                    Err(error) if error.kind() == ErrorKind::ContainsArray => self.array(path).map_err(|_| error)?,
                    created => return created,
                }
            }
            opened => opened?,
        };
        if array.shape() != metadata.shape() {
            let message = format!("the array has shape {:?}, expected {:?}", array.shape(), metadata.shape());
            return Err(Error::new(ErrorKind::ShapeMismatch, message).at(array.place()));
        }
        if array.metadata().data_type() != metadata.data_type() {
            let (stored, asked) = (array.metadata().data_type(), metadata.data_type());
            let message = format!("the array has elements of {stored}, expected {asked}");
            return Err(Error::new(ErrorKind::DTypeMismatch, message).at(array.place()));
        }
        Ok(array)
    }

    /// Deletes the array or group at a path relative to this group, and everything below it.
    ///
    /// # Errors
    /// `NodeNotFound`; what the store reports.
    pub fn delete(&mut self, path: &str) -> Result<()> {
        let (relative, absolute) = self.member_path(path)?;
        // The consolidated copy loses its entry first. So after an interrupted deletion, a stored node may have no
        // entry.
        let format = Some(self.metadata.zarr_format());
        let is_gone = || matches!(documents::find(&*self.store, &absolute, format, &Consolidation::Never), Ok(None));
        if !self.contains(&relative)? && is_gone() {
            return Err(documents::not_found(ErrorKind::NodeNotFound, &*self.store, &absolute));
        }
        delete_node(&*self.store, &absolute)?;
        if let Some(consolidated) = self.consolidated() {
            let rest = consolidated.without(&relative);
            self.metadata.set_consolidated(Some(rest))?;
        }
        Ok(())
    }

    /// Like [`Group::absolute`], but refuses the path of the group itself, which is not a member.
    fn member_path(&self, path: &str) -> Result<(String, String)> {
        let (relative, absolute) = self.absolute(path)?;
        if relative.is_empty() {
            let message = format!("{path:?} does not name a member of '/{}'", self.path);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok((relative, absolute))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} '{}')", self.store, self.name())
    }
}

/// Describes how the consolidated metadata of a node differs from the node's own documents.
fn difference(path: &str, remembered: &NodeMetadata, stored: &NodeMetadata) -> String {
    match (remembered, stored) {
        (NodeMetadata::Array(old), NodeMetadata::Array(new)) if old.shape() != new.shape() => {
            format!("'{path}' has shape {:?}, the consolidated metadata says {:?}", new.shape(), old.shape())
        }
        (NodeMetadata::Group(_), NodeMetadata::Array(_)) => {
            format!("'{path}' is an array, the consolidated metadata says a group")
        }
        (NodeMetadata::Array(_), NodeMetadata::Group(_)) => {
            format!("'{path}' is a group, the consolidated metadata says an array")
        }
        _ => format!("'{path}' has other metadata than the consolidated metadata says"),
    }
}

/// Copies the documents of everything below the group at `path` into the group, as its consolidated metadata.
///
/// # Errors
/// Those of [`gather_documents`]; errors in the group's metadata.
pub fn consolidate_metadata(
    store: Arc<dyn Store>,
    path: &str,
    format: Option<ZarrFormat>,
    options: ArrayOptions,
) -> Result<Group> {
    let path = normalize_path(path)?;
    let cancellation = options.cancellation.clone();
    let (documents, _) = consolidate(&store, &path, Some(2), &Lookup { format, cancellation, ..Lookup::default() })?;
    let name = documents.name();
    match documents.check().at(|| name).at(|| documents::place(&*store, &path))? {
        NodeMetadata::Group(metadata) => Group::from_metadata(store, &path, *metadata, options),
        NodeMetadata::Array(_) => Err(documents::not_found(ErrorKind::GroupNotFound, &*store, &path)),
    }
}

/// Consolidates the metadata below the group at `path`, with `indent` spaces per level. Returns the group's stored
/// documents, and the nodes that were found below. The group's documents do not change during the call.
///
/// # Errors
/// Those of [`gather_documents`].
pub fn consolidate(
    store: &Arc<dyn Store>,
    path: &str,
    indent: Option<usize>,
    lookup: &Lookup,
) -> Result<(NodeDocuments, FoundNode)> {
    let path = normalize_path(path)?;
    let format = match lookup.format {
        Some(format) => format,
        None => gather_format(&**store, &path, lookup)?,
    };
    let node = NodeLock::take(Arc::clone(store), &path, format, false, &lookup.cancellation)?;
    let found = gather_documents(&**store, &path, &Lookup { format: Some(format), ..lookup.clone() })?;
    let documents = node.update(indent, &mut |documents| {
        found.consolidated.iter().for_each(|below| documents.set_consolidated(below.clone()));
        Ok(())
    })?;
    Ok((documents, found))
}

/// Returns the format of the group at `path`, whose consolidated metadata will be written.
fn gather_format(store: &dyn Store, path: &str, lookup: &Lookup) -> Result<ZarrFormat> {
    let lookup = Lookup { arrays: Some(false), consolidation: Consolidation::Never, ..lookup.clone() };
    let found = documents::find_documents(store, path, &lookup)?.filter(|found| found.documents.is_group());
    let missing = || documents::not_found(ErrorKind::GroupNotFound, store, path);
    Ok(found.ok_or_else(missing)?.documents.zarr_format())
}
