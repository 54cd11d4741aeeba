//! Visits, reads and creates many arrays and groups by one call.

use super::creation::NewNodes;
use super::documents::{self, Consolidation, FoundNode, Lookup, each};
use super::path::normalize_path;
use crate::error::{ErrorKind, Result, ResultExt};
use crate::meta::{Consolidated, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::store::{Store, join_key};

type Visit<'a> = dyn FnMut(&str, Result<NodeMetadata>) -> Result<()> + 'a;

/// Finds the documents of all nodes of `format` below the group at a path. Their paths are relative to the group.
///
/// `max_depth` counts levels below the direct members: `Some(0)` finds only direct members, `None` finds all. Each
/// group comes before its members, which are sorted. A node whose documents cannot be read comes as an error. `most`
/// limits the result to the first `most` nodes.
///
/// Each level takes two batches: its groups are listed, then the documents of all their members are read. A group with
/// consolidated metadata is not listed if the lookup uses it.
///
/// # Errors
/// What the store reports; `Cancelled`.
pub fn walk_documents(
    store: &dyn Store,
    group: &str,
    format: ZarrFormat,
    max_depth: Option<usize>,
    most: Option<usize>,
    lookup: &Lookup,
) -> Result<Vec<(String, Result<FoundNode>)>> {
    let absolute = |relative: &str| if relative.is_empty() { group.to_string() } else { join_key(group, relative) };
    let mut found: Vec<(String, Result<FoundNode>)> = Vec::new();
    let mut groups = vec![String::new()];
    for depth in 0.. {
        if groups.is_empty() || max_depth.is_some_and(|most| depth > most) {
            break;
        }
        lookup.cancellation.check()?;
        let listings = each(store, &groups, |group| store.list_dir(&absolute(group)))?;
        let name = |path: &String| path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name).to_string();
        let members = groups.iter().zip(&listings);
        let mut members: Vec<String> = members
            .flat_map(|(group, listing)| listing.prefixes.iter().map(|path| join_key(group, &name(path))))
            .collect();
        sort(&mut members, |member| member);
        for members in members.chunks(most.unwrap_or(usize::MAX).max(1)) {
            lookup.cancellation.check()?;
            let paths: Vec<String> = members.iter().map(|member| absolute(member)).collect();
            let documents = documents::find_many(store, &paths, format, lookup);
            let nodes =
                members.iter().zip(documents).filter_map(|(path, node)| Some((path.clone(), node.transpose()?)));
            found.extend(nodes);
            sort(&mut found, |(path, _)| path);
            // All other nodes of this level come after the last one that was found.
            if let Some((last, most)) = members.last().zip(most)
                && found.len() >= most
                && found[most - 1].0.split('/').le(last.split('/'))
            {
                break;
            }
        }
        found.truncate(most.unwrap_or(usize::MAX));
        let is_listed = |(path, node): &&(String, Result<FoundNode>)| {
            let is_open = |node: &FoundNode| node.documents.is_group() && node.consolidated.is_none();
            path.matches('/').count() == depth && node.as_ref().is_ok_and(is_open)
        };
        groups = found.iter().filter(is_listed).map(|(path, _)| path.clone()).collect();
    }
    Ok(found)
}

/// Sorts items by the path of their array or group, so that each group is directly followed by its members.
fn sort<T>(items: &mut [T], path: impl Fn(&T) -> &String) {
    items.sort_by(|a, b| path(a).split('/').cmp(path(b).split('/')));
}

/// Visits the nodes of `format` below a group; see [`Group::walk`](super::Group::walk).
pub(super) fn walk(
    store: &dyn Store,
    group: &str,
    format: ZarrFormat,
    max_depth: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
    for (path, found) in walk_documents(store, group, format, max_depth, None, &lookup)? {
        let metadata = found.and_then(|found| {
            let name = found.documents.name();
            found.documents.check().at(|| name).at(|| documents::place(store, &join_key(group, &path)))
        });
        visit(&path, metadata)?;
    }
    Ok(())
}

/// Visits the nodes that a group's consolidated metadata describes; see [`Group::walk`](super::Group::walk).
pub(super) fn walk_consolidated(
    consolidated: &Consolidated,
    max_depth: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    for path in named(consolidated, max_depth) {
        match consolidated.node_alone(path) {
            Ok(None) => {}
            Ok(Some(metadata)) => visit(path, Ok(metadata))?,
            Err(error) => visit(path, Err(error))?,
        }
    }
    Ok(())
}

/// Visits the nodes that consolidated metadata names below the group at a path, but with the metadata of the nodes' own
/// documents. Nodes that no longer exist are skipped.
pub(super) fn walk_named(
    store: &dyn Store,
    group: &str,
    consolidated: &Consolidated,
    max_depth: Option<usize>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
    let paths: Vec<&str> = named(consolidated, max_depth);
    let absolute: Vec<String> = paths.iter().map(|path| join_key(group, path)).collect();
    let found = documents::find_many(store, &absolute, consolidated.zarr_format(), &lookup);
    for ((path, absolute), found) in paths.into_iter().zip(&absolute).zip(found) {
        let Some(found) = found.transpose() else { continue };
        let metadata = found.and_then(|found| {
            let name = found.documents.name();
            found.documents.check().at(|| name).at(|| documents::place(store, absolute))
        });
        visit(path, metadata)?;
    }
    Ok(())
}

/// The paths of the nodes in consolidated metadata, down to the depth `max_depth`. Each group comes before its members.
fn named(consolidated: &Consolidated, max_depth: Option<usize>) -> Vec<&str> {
    let depth = |path: &str| path.matches('/').count();
    let mut paths: Vec<&str> =
        consolidated.paths().filter(|path| max_depth.is_none_or(|most| depth(path) <= most)).collect();
    paths.sort_unstable_by(|a, b| a.split('/').cmp(b.split('/')));
    paths
}

/// Reads the group at a path with the documents of everything below it, ready to be consolidated. Writes nothing. This
/// library need not support all of the nodes.
///
/// # Errors
/// `GroupNotFound`; the first node whose documents cannot be read; what the store reports; `Cancelled`.
pub fn gather_documents(store: &dyn Store, path: &str, lookup: &Lookup) -> Result<FoundNode> {
    let lookup = Lookup { arrays: Some(false), consolidation: Consolidation::Never, ..lookup.clone() };
    let group = documents::find_documents(store, path, &lookup)?.filter(|found| found.documents.is_group());
    let mut group = group.ok_or_else(|| documents::not_found(ErrorKind::GroupNotFound, store, path))?;
    let format = group.documents.zarr_format();
    let mut below = Vec::new();
    for (path, node) in walk_documents(store, path, format, None, None, &lookup)? {
        let documents = node?.documents;
        if documents.is_array() || documents.is_group() {
            below.push((path, documents));
        }
    }
    group.consolidated = Some(Consolidated::from_nodes(format, below)?);
    Ok(group)
}

/// Creates many nodes, and the missing groups above them. Nothing is stored if one of them cannot be created. Returns
/// the paths of the given nodes, parents first.
///
/// # Errors
/// Those of [`NewNodes::make_room`] and [`NewNodes::publish`].
pub fn create_hierarchy(store: &dyn Store, nodes: Vec<(String, NodeMetadata)>, overwrite: bool) -> Result<Vec<String>> {
    let nodes: Vec<_> = nodes.iter().map(|(path, node)| (path.clone(), NodeDocuments::from(node))).collect();
    let given = nodes.iter().map(|(path, _)| normalize_path(path)).collect::<Result<Vec<_>>>()?;
    let new = NewNodes::make_room(store, nodes, overwrite)?;
    new.publish(store, Some(2))?;
    Ok(new.paths().filter(|path| given.contains(path)).collect())
}
