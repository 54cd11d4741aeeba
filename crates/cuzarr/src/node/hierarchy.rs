//! Many nodes at once: walking, consolidating, creating and deleting.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ArrayOptions;
use super::documents;
use super::group::{Consolidation, Group};
use super::path::normalize_path;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{Consolidated, NodeMetadata, ZarrFormat};
use crate::store::{Store, join_key};

type Visit<'a> = dyn FnMut(&str, Result<NodeMetadata>) -> Result<()> + 'a;

/// Visits the nodes of `format` below a group; see [`Group::walk`]. The documents of a level are read as one batch.
pub(super) fn walk(
    store: &dyn Store,
    group: &str,
    format: ZarrFormat,
    max_depth: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    walk_level(store, group, "", format, max_depth, visit)
}

fn walk_level(
    store: &dyn Store,
    group: &str,
    relative: &str,
    format: ZarrFormat,
    levels: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let here = if relative.is_empty() { group.to_string() } else { join_key(group, relative) };
    let paths = store.list_dir(&here)?.prefixes;
    let found = documents::find_many(store, &paths, format);
    for (path, metadata) in paths.iter().zip(found) {
        let name = path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name);
        let member = join_key(relative, name);
        let metadata = match metadata {
            Ok(None) => continue,
            Ok(Some(metadata)) => Ok(metadata),
            Err(error) => Err(error),
        };
        let is_group = matches!(metadata, Ok(NodeMetadata::Group(_)));
        visit(&member, metadata)?;
        let below = levels.map(|levels| levels.checked_sub(1));
        match below {
            _ if !is_group => {}
            Some(None) => {}
            None => walk_level(store, group, &member, format, None, visit)?,
            Some(deeper) => walk_level(store, group, &member, format, deeper, visit)?,
        }
    }
    Ok(())
}

/// Visits the nodes of consolidated metadata; see [`Group::walk`].
pub(super) fn walk_consolidated(
    consolidated: &Consolidated,
    max_depth: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let depth = |path: &str| path.matches('/').count();
    let mut paths: Vec<&str> =
        consolidated.paths().filter(|path| max_depth.is_none_or(|most| depth(path) <= most)).collect();
    paths.sort_unstable_by(|a, b| a.split('/').cmp(b.split('/')));
    for path in paths {
        match consolidated.node_alone(path) {
            Ok(None) => {}
            Ok(Some(metadata)) => visit(path, Ok(metadata))?,
            Err(error) => visit(path, Err(error))?,
        }
    }
    Ok(())
}

/// Reads the metadata of everything below the group at `path`, and stores it with the group.
///
/// # Errors
/// `GroupNotFound`; the first node whose metadata cannot be read; what the store reports.
pub fn consolidate_metadata(
    store: Arc<dyn Store>,
    path: &str,
    format: Option<ZarrFormat>,
    options: ArrayOptions,
) -> Result<Group> {
    let group = Group::open(Arc::clone(&store), path, format, Consolidation::Never, options.clone())?;
    let mut nodes = Vec::new();
    group.walk(None, &mut |path, metadata| {
        nodes.push((path.to_string(), metadata?));
        Ok(())
    })?;
    let format = group.metadata().zarr_format();
    let consolidated = Consolidated::from_nodes(format, nodes.iter().map(|(path, node)| (path.clone(), node)))?;
    let mut metadata = group.metadata().clone();
    metadata.set_consolidated(Some(consolidated))?;
    let mut group =
        Group::opened(store, group.path().to_string(), group.metadata().clone(), options.clone(), Vec::new());
    group.replace_metadata(metadata.clone())?;
    Group::from_metadata(Arc::clone(group.store()), group.path(), metadata, options)
}

/// Creates many nodes, given by path, and the groups above them, one after the other. Nothing is stored when one of them cannot be
/// created. Returns the paths of the given nodes, parents first.
///
/// # Errors
/// `InvalidArgument` when formats differ or a path comes twice; `ContainsArray` when a node would lie below an array;
/// `ContainsArray` or `ContainsGroup` when something is there and `overwrite` is off.
pub fn create_hierarchy(store: &dyn Store, nodes: Vec<(String, NodeMetadata)>, overwrite: bool) -> Result<Vec<String>> {
    let mut sorted: BTreeMap<Vec<String>, NodeMetadata> = BTreeMap::new();
    for (path, metadata) in nodes {
        let path = normalize_path(&path)?;
        let segments = path.split('/').filter(|segment| !segment.is_empty()).map(String::from).collect();
        if sorted.insert(segments, metadata).is_some() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the path '/{path}' comes twice")));
        }
    }
    let Some(format) = sorted.values().next().map(NodeMetadata::zarr_format) else { return Ok(Vec::new()) };
    for (segments, metadata) in &sorted {
        let path = segments.join("/");
        if metadata.zarr_format() != format {
            let (got, expected) = (metadata.zarr_format().number(), format.number());
            let message = format!("node '/{path}': got format {got}, others have format {expected}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        for length in 0..segments.len() {
            if sorted.get(&segments[..length]).is_some_and(|above| above.as_array().is_some()) {
                let above = segments[..length].join("/");
                let message = format!("node '/{path}': '/{above}' is an array, and only groups have members");
                return Err(Error::new(ErrorKind::ContainsArray, message));
            }
        }
        if !overwrite {
            documents::require_absent(store, &path, format)?;
            documents::refuse_left_over(store, &path, metadata)?;
        }
    }
    let mut created: Vec<String> = Vec::new();
    for (segments, metadata) in &sorted {
        let path = segments.join("/");
        // What was replaced with a group above is gone already.
        let is_below = (0..segments.len()).any(|length| sorted.contains_key(&segments[..length]));
        documents::create(store, &path, metadata, overwrite && !is_below)?;
        created.push(path);
    }
    Ok(created)
}
