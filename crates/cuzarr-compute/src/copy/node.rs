//! Copying a node: an array, or a group with everything below it.

use std::sync::Arc;

use serde_json::Value;

use super::array::{Copy, Existing};
use super::carrier::{Carrier, Here};
use super::changes::Changes;
use crate::checkpoint::Checkpoint;
use crate::progress::Progress;
use cuzarr::meta::{GroupMetadata, ZarrFormat};
use cuzarr::node::refuse_overlap;
use cuzarr::node::{self, Array, Group, Node, normalize_path};
use cuzarr::store::{Store, join_key};
use cuzarr::{Error, ErrorKind, Result, ResultExt};

/// A planned and checked copy of a node: an array, or a group with all its members.
pub struct Copied {
    source: Node,
    store: Arc<dyn Store>,
    path: String,
    existing: Existing,
    groups: Vec<(String, GroupMetadata)>,
    differences: Vec<String>,
    copies: Vec<(String, Copy)>,
}

/// Plans a copy of a node, with everything below a group. Changes of chunks and shards apply to arrays with the same number of
/// dimensions or, where dimensions are named, to arrays that have them; other changes apply to all arrays.
///
/// # Errors
/// Those of [`Copy::new`]; the first node whose metadata cannot be read.
pub fn copy_node(
    source: Node,
    store: Arc<dyn Store>,
    path: &str,
    changes: &Changes,
    existing: Existing,
) -> Result<Copied> {
    let path = normalize_path(path)?;
    let mut copied =
        Copied { source, store, path, existing, groups: Vec::new(), differences: Vec::new(), copies: Vec::new() };
    match copied.source.clone() {
        Node::Array(array) => {
            if let Some(path) = changes.members.keys().next() {
                let message = format!("the source is an array, expected a group with an array '{path}'");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            let metadata = changes.apply(array.metadata())?;
            let copy = Copy::new(&array, Arc::clone(&copied.store), &copied.path, metadata, existing)?;
            copied.copies.push((array.name(), copy));
        }
        Node::Group(group) => copied.plan_group(&group, changes)?,
    }
    Ok(copied)
}

impl Copied {
    fn plan_group(&mut self, group: &Group, changes: &Changes) -> Result<()> {
        refuse_overlap((group.store(), group.path()), (&self.store, &self.path))?;
        Checkpoint::check_place(&*self.store, &self.path)?;
        if self.existing == Existing::Refuse {
            self.refuse_what_is_there(group)?;
        }
        let format = changes.zarr_format.unwrap_or(group.metadata().zarr_format());
        self.groups.push((self.path.clone(), group_metadata(group.metadata(), format)?));
        // Consolidated metadata may be older than the nodes.
        self.differences = group.differences()?;
        let members = group.reading_documents()?.members(None)?;
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
                Node::Group(member) => self.groups.push((path, group_metadata(member.metadata(), format)?)),
                Node::Array(array) => {
                    let metadata =
                        changes.of_member(&name, array.metadata()).apply(array.metadata()).at(|| array.name())?;
                    let copy = Copy::new(&array, Arc::clone(&self.store), &path, metadata, self.existing)
                        .at(|| array.name())?;
                    self.copies.push((array.name(), copy));
                }
            }
        }
        Ok(())
    }

    fn refuse_what_is_there(&self, group: &Group) -> Result<()> {
        let kind = match node::open_existing(Arc::clone(&self.store), &self.path, None, group.options().clone()) {
            Err(error) if error.kind() == ErrorKind::NodeNotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(Node::Array(_)) => ErrorKind::ContainsArray,
            Ok(Node::Group(_)) => ErrorKind::ContainsGroup,
        };
        let message = format!("{}: the path '/{}' is not empty", self.store, self.path);
        Err(Error::new(kind, message).with_hint("copy to another place, resume the copy, or overwrite it"))
    }

    /// The arrays, each with its plan.
    pub fn copies(&self) -> &[(String, Copy)] {
        &self.copies
    }

    /// What the consolidated metadata of the source says otherwise than its nodes' own documents, which are copied: a sentence for
    /// each node.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// The plan as JSON.
    pub fn to_json(&self) -> Value {
        self.copies.iter().map(|(_, copy)| copy.to_json()).collect()
    }

    /// Copies everything, one array after the other. `progress` is called for each array's regions.
    ///
    /// # Errors
    /// Those of [`Copy::run`].
    pub fn run(self, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Node> {
        self.run_by(&Here, progress)
    }

    /// Like [`Copied::run`], but `carrier` copies the regions, such as workers of a cluster.
    ///
    /// # Errors
    /// Those of [`Copy::run_by`].
    pub fn run_by(self, carrier: &dyn Carrier, progress: &(dyn Fn(&str, &Progress) + Sync)) -> Result<Node> {
        let Copied { source, store, path, existing, groups, copies, differences: _ } = self;
        let options = options_of(&source);
        options.cancellation.check()?;
        carrier.prepare(&options, &store)?;
        if existing == Existing::Overwrite && !groups.is_empty() {
            node::delete_node(&*store, &path)?;
        }
        for (path, metadata) in groups {
            options.cancellation.check()?;
            match Group::create_from(Arc::clone(&store), &path, metadata, false, options.clone()) {
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
            return node::consolidate_metadata(store, &path, None, group.options().clone()).map(Node::Group);
        }
        node::open_existing(store, &path, None, group.options().clone())
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
