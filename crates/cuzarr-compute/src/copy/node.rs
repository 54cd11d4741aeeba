//! Copying a node: an array, or a group with everything below it.

use std::sync::Arc;

use serde_json::Value;

use super::array::{Copy, Existing};
use super::carrier::{Carrier, Here};
use super::changes::Changes;
use crate::checkpoint::Checkpoint;
use crate::progress::Progress;
use crate::spatial;
use crate::unfinished::Mark;
use cuzarr::internal::node::refuse_overlap;
use cuzarr::internal::node::{chain, set_unfinished};
use cuzarr::meta::{GroupMetadata, Multiscales, NodeMetadata, ZarrFormat};
use cuzarr::node::{self, Array, Consolidation, Group, Node, normalize_path};
use cuzarr::store::{Store, join_key};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// A planned and checked copy of a node: an array, or a group with all its members.
pub struct Copied {
    source: Node,
    store: Arc<dyn Store>,
    path: String,
    existing: Existing,
    mark: Mark,
    groups: Vec<(String, GroupMetadata)>,
    differences: Vec<String>,
    unreadable: Vec<(String, Error)>,
    copies: Vec<(String, Copy)>,
}

/// Plans a copy of a node, and of everything below a group. Changes of chunks and shards apply to arrays with as many
/// dimensions, or to arrays that have the named dimensions. Other changes apply to all arrays.
///
/// # Errors
/// Those of [`Copy::new`]; the error of the first node that cannot be read, with the names of all unreadable nodes,
/// unless [`Changes::skip_unreadable`] leaves them out.
pub fn copy_node(
    source: Node,
    store: Arc<dyn Store>,
    path: &str,
    changes: &Changes,
    existing: Existing,
) -> Result<Copied> {
    let path = normalize_path(path)?;
    let mark = mark_of(&source, changes);
    let mut copied = Copied {
        source,
        store,
        path,
        existing,
        mark,
        groups: Vec::new(),
        differences: Vec::new(),
        unreadable: Vec::new(),
        copies: Vec::new(),
    };
    match copied.source.clone() {
        Node::Array(array) => {
            if let Some(path) = changes.members.keys().chain(&changes.only).next() {
                let message = format!("the source is an array, expected a group with an array '{path}'");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let path = copied.path.clone();
            copied.plan_array(&array, &path, changes)?;
        }
        Node::Group(group) => copied.plan_group(&group, changes)?,
    }
    Ok(copied)
}

/// Returns the attribute that marks the target group as an unfinished copy of `source`.
fn mark_of(source: &Node, changes: &Changes) -> Mark {
    let (store, format) = match source {
        Node::Array(array) => (array.store(), array.metadata().zarr_format()),
        Node::Group(group) => (group.store(), group.metadata().zarr_format()),
    };
    let zarr_format = changes.zarr_format.or(Some(format));
    Mark::new("copy", (store, source.path()), Changes { zarr_format, ..changes.clone() }.to_json())
}

impl Copied {
    fn plan_array(&mut self, array: &Array, path: &str, changes: &Changes) -> Result<()> {
        let (metadata, select) = (changes.apply(array.metadata())?, changes.selection(array.metadata())?);
        let copy = Copy::planned(array, Arc::clone(&self.store), path, metadata, self.existing, None, select)?;
        self.copies.push((array.name(), copy));
        Ok(())
    }

    fn plan_group(&mut self, group: &Group, changes: &Changes) -> Result<()> {
        refuse_overlap((group.store(), group.path()), (&self.store, &self.path))?;
        Checkpoint::check_place(&*self.store, &self.path)?;
        if self.existing != Existing::Overwrite {
            self.check_what_is_there(group)?;
        }
        let format = changes.zarr_format.unwrap_or(group.metadata().zarr_format());
        self.add_group(self.path.clone(), group.metadata(), format, changes)?;
        // Consolidated metadata may be older than the nodes.
        self.differences = group.differences()?;
        let members = self.read_members(group, changes)?;
        let ndims = members.iter().filter_map(|(_, member)| match member {
            Node::Array(array) => Some(array.metadata().ndim()),
            Node::Group(_) => None,
        });
        changes.check_dimensions(&ndims.collect::<Vec<_>>())?;
        let arrays = members.iter().filter_map(|(name, member)| match member {
            Node::Array(array) => {
                let names = array.metadata().xarray_dimensions().unwrap_or_default();
                Some((name.clone(), names.into_iter().flatten().collect()))
            }
            Node::Group(_) => None,
        });
        changes.check_names(&arrays.collect::<Vec<_>>())?;
        for (name, member) in members {
            let path = if self.path.is_empty() { name.clone() } else { join_key(&self.path, &name) };
            match member {
                Node::Group(member) => self.add_group(path, member.metadata(), format, changes)?,
                Node::Array(array) => {
                    let own = changes.of_member(&name, array.metadata());
                    self.plan_array(&array, &path, &own).at(|| array.name())?;
                }
            }
        }
        Ok(())
    }

    fn add_group(&mut self, path: String, source: &GroupMetadata, format: ZarrFormat, changes: &Changes) -> Result<()> {
        if !changes.select.is_empty() && matches!(Multiscales::of(source.attributes()), Ok(Some(_))) {
            let message = format!("the group '/{path}' is an image, whose levels have other indices each");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("copy the array of one of its levels"));
        }
        let mut target = group_metadata(source, format)?;
        // The selected parts of the arrays below have other indices than the whole arrays.
        let selects = |name: &str| changes.select.contains_key(name);
        if !changes.select.is_empty()
            && spatial::dimension_names(source.attributes()).is_none_or(|names| names.into_iter().any(selects))
        {
            let mut attributes = source.attributes().clone();
            spatial::remove_indices(&mut attributes);
            if attributes != *source.attributes() {
                target.set_attributes(attributes)?;
            }
        }
        self.groups.push((path, target));
        Ok(())
    }

    /// Reads the nodes of a group that are to be copied, with their paths relative to the group.
    fn read_members(&mut self, group: &Group, changes: &Changes) -> Result<Vec<(String, Node)>> {
        let (mut members, mut known) = (Vec::new(), Vec::new());
        let unreadable = &mut self.unreadable;
        group.reading_documents()?.walk(None, &mut |path, metadata| {
            known.push(path.to_string());
            if !changes.keeps(path) {
                return Ok(());
            }
            match metadata.and_then(|metadata| member(group, path, metadata)) {
                Ok(node) => members.push((path.to_string(), node)),
                Err(error) => unreadable.push((format!("/{}", join_key(group.path(), path)), error)),
            }
            Ok(())
        })?;
        if let Some(missing) = changes.only.iter().find(|only| !known.contains(only)) {
            let message = format!("the group has no array or group '{missing}'");
            let error = Error::new(ErrorKind::InvalidArgument, message);
            return Err(error.with_nearest(missing, known.iter().map(String::as_str)));
        }
        if changes.skip_unreadable || self.unreadable.is_empty() {
            return Ok(members);
        }
        let nodes: Vec<&str> = self.unreadable.iter().map(|(name, _)| name.as_str()).collect();
        let trail = format!("unreadable nodes, so nothing was copied: {}", nodes.join(", "));
        let (_, first) = self.unreadable.swap_remove(0);
        Err(first.at(trail).with_hint("leave them out with `skip_unreadable`, or choose others with `only`"))
    }

    /// Refuses an existing node at the target, unless it is an unfinished copy of the same source that is resumed.
    fn check_what_is_there(&self, group: &Group) -> Result<()> {
        let kind = match node::open_existing(Arc::clone(&self.store), &self.path, None, group.options().clone()) {
            Err(error) if error.kind() == ErrorKind::NodeNotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(Node::Group(found)) if self.existing == Existing::Resume => return self.mark.check(&found),
            // Each array's own copy checks the array.
            Ok(Node::Array(_)) if self.existing == Existing::Resume => return Ok(()),
            Ok(Node::Group(found)) => {
                if let Some(work) = found.metadata().unfinished_work() {
                    let message = format!("{}: there is an unfinished {work} at '/{}' already", self.store, self.path);
                    return Err(Error::new(ErrorKind::ContainsGroup, message)
                        .with_hint("go on with `resume`, or replace it with `overwrite`"));
                }
                ErrorKind::ContainsGroup
            }
            Ok(Node::Array(_)) => ErrorKind::ContainsArray,
        };
        let message = format!("{}: the path '/{}' is not empty", self.store, self.path);
        Err(Error::new(kind, message)
            .with_hint("choose another place, go on with `resume`, or replace it with `overwrite`"))
    }

    /// Returns the name of each array that is copied, with the plan of its copy.
    pub fn copies(&self) -> &[(String, Copy)] {
        &self.copies
    }

    /// How the source's consolidated metadata differs from the nodes' own documents, in one sentence for each node.
    /// The nodes' own documents are copied.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// Returns the names and errors of the nodes that are left out because they cannot be read.
    pub fn unreadable(&self) -> &[(String, Error)] {
        &self.unreadable
    }

    /// Returns the plans of all copied arrays as JSON.
    pub fn to_json(&self) -> Value {
        self.copies.iter().map(|(_, copy)| copy.to_json()).collect()
    }

    /// Carries out the planned copy: copies all arrays, one after the other. `progress` is called for each array's
    /// regions.
    ///
    /// # Errors
    /// Those of [`Copy::run`].
    pub fn run(self, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Node> {
        self.run_by(&Here, progress)
    }

    /// Like [`Copied::run`], but `carrier` copies the regions, for example with workers of a cluster.
    ///
    /// # Errors
    /// Those of [`Copy::run_by`].
    pub fn run_by(self, carrier: &dyn Carrier, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Node> {
        let Copied { source, store, path, existing, mark, groups, copies, .. } = self;
        let options = options_of(&source);
        options.cancellation.check()?;
        carrier.prepare(&options, &store)?;
        if existing == Existing::Overwrite && !groups.is_empty() {
            node::delete_node(&*store, &path)?;
        }
        let is_complete = !copies.is_empty() && copies.iter().all(|(_, copy)| copy.passes().is_empty());
        for (at, (path, mut metadata)) in groups.into_iter().enumerate() {
            options.cancellation.check()?;
            let is_marked = at == 0 && !is_complete;
            if is_marked {
                mark.on(&*store, &mut metadata)?;
            }
            match Group::create_from(Arc::clone(&store), &path, metadata, false, options.clone()) {
                Err(error) if error.kind() == ErrorKind::ContainsGroup && is_marked => {
                    mark.set(&mut open_group(&store, &path, &options)?)?;
                }
                Err(error) if error.kind() == ErrorKind::ContainsGroup => {}
                created => drop(created?),
            }
        }
        let mut last: Option<Array> = None;
        for (name, copy) in copies {
            last = Some(copy.run_by(carrier, &|now| progress(&name, now)).at(|| name.clone())?);
        }
        let Node::Group(group) = source else {
            let missing = || Error::new(ErrorKind::ArrayNotFound, "the copy has no array");
            return last.map(Node::Array).ok_or_else(missing);
        };
        if group.consolidated().is_some() {
            node::consolidate_metadata(Arc::clone(&store), &path, None, options.clone())?;
        }
        let mut target = open_group(&store, &path, &options)?;
        // A copy of an unfinished hierarchy is unfinished too.
        let own = group.metadata().unfinished();
        if target.metadata().unfinished() != own {
            set_unfinished(&mut target, own)?;
            target = open_group(&store, &path, &options)?;
        }
        Ok(Node::Group(target))
    }
}

fn open_group(store: &Arc<dyn Store>, path: &str, options: &node::ArrayOptions) -> Result<Group> {
    Group::open(Arc::clone(store), path, None, Consolidation::WhenPresent, options.clone())
}

/// Makes the array or group at a path below a group from its metadata.
///
/// # Errors
/// `UnsupportedFeature` and others for an array whose elements cannot be read.
fn member(group: &Group, path: &str, metadata: NodeMetadata) -> Result<Node> {
    let (store, path) = (Arc::clone(group.store()), join_key(group.path(), path));
    match metadata {
        NodeMetadata::Array(metadata) => {
            let array = Array::from_metadata(store, &path, *metadata, group.options().clone())?;
            chain(&array)?;
            Ok(Node::Array(array))
        }
        NodeMetadata::Group(metadata) => {
            Group::from_metadata(store, &path, *metadata, group.options().clone()).map(Node::Group)
        }
    }
}

fn options_of(node: &Node) -> node::ArrayOptions {
    match node {
        Node::Array(array) => array.options().clone(),
        Node::Group(group) => group.options().clone(),
    }
}

fn group_metadata(source: &GroupMetadata, format: ZarrFormat) -> Result<GroupMetadata> {
    let mut target = GroupMetadata::new(format, Default::default())?;
    target.set_attributes_json(&source.attributes_json())?;
    Ok(target)
}
