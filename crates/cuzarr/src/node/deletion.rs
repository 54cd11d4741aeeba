//! Deletes arrays, groups and chunks. The steps are ordered so that a killed process does no harm.
//!
//! A store deletes one value after another, so a killed process leaves some of them. What readers then see depends on
//! the order. Four rules ensure that old data are either complete or gone:
//!
//! 1. **Documents go before chunks.** An array that has its document also has all of its chunks. So no reader takes
//!    deleted chunks for the fill value. The checkpoint of a copy or a computation counts as a document, because it
//!    records which chunks exist.
//! 2. **Members go before their group.** While members are left, the group still exists, so the deletion can be
//!    repeated. When the group is gone, no nodes are left below it, so a new group at this path has no old members.
//! 3. **Consolidated metadata of the groups above goes first.** The entry of a node must not outlive the node's chunks.
//! 4. **Left-over chunks never become elements of a new array.** Creating an array over them is refused. Growing an
//!    array deletes those that it would include.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::copies::update_copies;
use super::document::refuse_written;
use super::documents::{self, Consolidation, Lookup, each};
use super::path::normalize_path;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::meta::{ArrayMetadata, EntryChange, ZarrFormat};
use crate::run::Engine;
use crate::store::{Store, StoreExt, join_key, validate_key};

/// Name of the object that records how far an interrupted operation on an array has come, stored beside the array's
/// metadata.
pub const CHECKPOINT: &str = ".cuzarr-work.json";
/// Name of the object that recorded the progress of copies before release 0.1.0.
pub const OLD_COPY_CHECKPOINT: &str = ".cuzarr-copy.json";

/// Names of the objects that are deleted first when an array or group is deleted, in three batches. Attributes go after
/// `.zarray`, because an array that lost its attributes is another array. They go before `.zgroup`, because a group
/// that is created later would inherit them.
const FIRST: [&[&str]; 3] = [&[CHECKPOINT, OLD_COPY_CHECKPOINT, ZMETADATA, ZARR_JSON, ZARRAY], &[ZATTRS], &[ZGROUP]];

/// Up to this many chunks are deleted without asking whether they exist. If there are more, the stored chunks are
/// listed first.
const LIST_INSTEAD_OF_DELETE: u64 = 1000;

/// If the store cannot list keys, at most this many chunks are looked up one by one, to find out whether any is stored.
const MOST_ASKED_FOR: u64 = 256;

/// Deletes everything at a path and below it, and its entries in the consolidated metadata of groups above.
///
/// # Errors
/// What the store reports; `ReadOnly`.
pub fn delete_node(store: &dyn Store, path: &str) -> Result<()> {
    let path = normalize_path(path)?;
    delete_nodes(store, std::slice::from_ref(&path))
}

/// Deletes everything at and below several paths, none of which lies below another.
///
/// # Errors
/// What the store reports; `ReadOnly`.
pub(super) fn delete_nodes(store: &dyn Store, paths: &[String]) -> Result<()> {
    paths.iter().try_for_each(|path| refuse_written(store, path))?;
    let removed = |path: &String| EntryChange { path: path.clone(), node: None };
    let cancellation = CancellationToken::default();
    for format in [ZarrFormat::V3, ZarrFormat::V2] {
        let changes = paths.iter().map(removed).collect();
        update_copies(store, format, changes, &cancellation)?;
    }
    each(store, paths, |path| delete_tree(store, path)).map(drop)
}

/// Deletes everything below a prefix (`""`: the whole store). Documents go first; those of members go before those of
/// their groups.
///
/// # Errors
/// `InvalidArgument` when a writer of this process has an array there; what the store reports; `ReadOnly`.
pub fn delete_tree(store: &dyn Store, prefix: &str) -> Result<()> {
    refuse_written(store, prefix)?;
    let keys = store.list(prefix)?;
    let (mut batches, mut others): (BTreeMap<_, Vec<String>>, Vec<String>) = Default::default();
    for key in keys {
        let (depth, name) = (key.matches('/').count(), key.rsplit('/').next().unwrap_or(&key));
        match FIRST.iter().position(|names| names.contains(&name)) {
            Some(rank) => batches.entry((Reverse(depth), rank)).or_default().push(key),
            None => others.push(key),
        }
    }
    batches.values().try_for_each(|batch| store.delete_many(batch))?;
    // Buckets have no folders to delete, and `delete_prefix` would list them again. But names in a bucket that are not
    // valid keys can only be deleted by prefix.
    let deleted = match store.capabilities().conditional_writes && others.iter().all(|key| validate_key(key).is_ok()) {
        true => store.delete_many(&others),
        false => store.delete_prefix(prefix),
    };
    Engine::get().forget_below(store, prefix);
    deleted
}

/// Copies a node's documents to the consolidated metadata of the groups above it. Groups without an entry get one.
/// Returns whether anything changed.
///
/// # Errors
/// What the store reports; errors in the node's documents.
pub fn refresh_consolidated(store: &dyn Store, path: &str, format: ZarrFormat) -> Result<bool> {
    let path = normalize_path(path)?;
    let lookup = Lookup { format: Some(format), consolidation: Consolidation::Never, ..Lookup::default() };
    let node = documents::find_documents(store, &path, &lookup)?.map(|found| found.documents);
    update_copies(store, format, vec![EntryChange { path, node }], &lookup.cancellation)
}

/// Refuses to make an array where chunks are already stored, because they would become its elements.
///
/// # Errors
/// `ContainsArray`
pub(super) fn refuse_left_over(store: &dyn Store, path: &str, metadata: &ArrayMetadata) -> Result<()> {
    let start = join_key(path, "");
    let counts = metadata.chunk_grid().chunk_counts(metadata.shape())?;
    let is_chunk = |key: &String| {
        let relative = key.strip_prefix(&start).unwrap_or(key);
        let chunk = metadata.chunk_key_encoding().parse_key(relative, metadata.ndim());
        chunk.is_some_and(|chunk| chunk.iter().zip(&counts).all(|(at, count)| at < count))
    };
    // Only prefixes that can hold chunks are listed, because an array at the root of a store may have other nodes
    // beside it.
    let may_begin = |prefix: &String| {
        let name = prefix.strip_prefix(&start).unwrap_or(prefix);
        name == "c" || name.bytes().all(|byte| byte.is_ascii_digit())
    };
    let found = match store.list_dir(path) {
        // Without permission to list, the first chunks are looked up one by one.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => any_of_first(store, path, metadata, &counts)?,
        listing => {
            let listing = listing?;
            let mut found = listing.keys.into_iter().find(is_chunk);
            for prefix in listing.prefixes.iter().filter(|prefix| may_begin(prefix)) {
                if found.is_none() {
                    found = store.list(prefix)?.into_iter().find(is_chunk);
                }
            }
            found
        }
    };
    let Some(key) = found else { return Ok(()) };
    let message = format!(
        "{store}: cannot create an array at '/{path}': the chunk '{key}' of a deleted array is still there and would become part of the new one"
    );
    Err(Error::new(ErrorKind::ContainsArray, message)
        .with_hint("unless another program is creating it, delete what is left there with `overwrite`"))
}

/// Returns the key of one stored chunk, if any of the first chunks of the array's grid is stored.
fn any_of_first(store: &dyn Store, path: &str, metadata: &ArrayMetadata, counts: &[u64]) -> Result<Option<String>> {
    let grid: Bounds = counts.iter().map(|&count| (0, count)).collect();
    let encoding = metadata.chunk_key_encoding();
    let chunks = (0..volume(&grid).min(MOST_ASKED_FOR)).map(|linear| unravel(linear, &grid));
    let keys: Vec<String> = chunks.map(|chunk| join_key(path, &encoding.key(&chunk))).collect();
    let is_there = each(store, &keys, |key| store.exists(key))?;
    Ok(keys.into_iter().zip(is_there).find_map(|(key, is_there)| is_there.then_some(key)))
}

/// The chunks of an array that lie inside the shape `within` and outside the shape `kept`, for example after a resize.
pub(super) struct ChunksOutside<'a> {
    pub path: &'a str,
    pub metadata: &'a ArrayMetadata,
    pub within: &'a [u64],
    pub kept: &'a [u64],
}

/// Returns the keys of those chunks of an array that lie inside the shape `within` and outside the shape `kept`. Some
/// of them may not be stored, unless the store cannot delete.
fn keys_of(store: &dyn Store, chunks: &ChunksOutside<'_>) -> Result<Vec<String>> {
    let ChunksOutside { path, metadata, .. } = *chunks;
    let grid = metadata.chunk_grid();
    let (within, kept) = (grid.chunk_counts(chunks.within)?, grid.chunk_counts(chunks.kept)?);
    let is_in = |chunk: &[u64], counts: &[u64]| chunk.iter().zip(counts).all(|(at, count)| at < count);
    let is_gone = |chunk: &Vec<u64>| is_in(chunk, &within) && !is_in(chunk, &kept);
    let encoding = metadata.chunk_key_encoding();
    let boxes = outside(&within, &kept);
    let count = boxes.iter().fold(0u64, |all, each| all.saturating_add(volume(each)));
    // For a store that cannot delete, the result must be exact.
    Ok(if count <= LIST_INSTEAD_OF_DELETE && store.capabilities().deletes {
        let chunks = boxes.iter().flat_map(|each| (0..volume(each)).map(|linear| unravel(linear, each)));
        chunks.filter(is_gone).map(|chunk| join_key(path, &encoding.key(&chunk))).collect()
    } else {
        let start = join_key(path, "");
        let chunk_of = |key: &str| encoding.parse_key(key.strip_prefix(&start)?, metadata.ndim());
        store.list(path)?.into_iter().filter(|key| chunk_of(key).is_some_and(|chunk| is_gone(&chunk))).collect()
    })
}

/// Refuses a change of shape when chunks lie outside the new shape and the store cannot delete them.
///
/// # Errors
/// `Unsupported`; what the store reports.
pub(super) fn refuse_undeletable(store: &dyn Store, removed: &ChunksOutside<'_>) -> Result<()> {
    if store.capabilities().deletes {
        return Ok(());
    }
    let Some(key) = keys_of(store, removed)?.into_iter().next() else { return Ok(()) };
    let ChunksOutside { path, within: before, kept: after, .. } = removed;
    let message = format!(
        "{store}: cannot resize the array at '/{path}' from {before:?} to {after:?}: '{key}' would have to be deleted, but this store cannot delete"
    );
    Err(Error::new(ErrorKind::Unsupported, message).with_hint("copy the part that stays into a new store"))
}

/// Deletes, as one batch, the chunks of several arrays that lie outside the shapes that the arrays keep.
///
/// # Errors
/// What the store reports.
pub(super) fn delete_chunks(store: &dyn Store, arrays: &[ChunksOutside<'_>]) -> Result<()> {
    let find = |array: &ChunksOutside<'_>| keys_of(store, array).at(|| documents::place(store, array.path));
    let keys = each(store, arrays, find)?;
    let checkpoint = |(array, keys): (&ChunksOutside<'_>, &Vec<String>)| {
        (!keys.is_empty()).then(|| join_key(array.path, CHECKPOINT))
    };
    let checkpoints: Vec<String> = arrays.iter().zip(&keys).filter_map(checkpoint).collect();
    let keys = keys.concat();
    if keys.is_empty() {
        return Ok(());
    }
    // A checkpoint records chunks that will be deleted, so it goes first.
    if !store.capabilities().transactional {
        store.delete_many(&checkpoints)?;
    }
    let deleted = store.delete_many(&keys);
    Engine::get().forget(store, keys.iter().map(String::as_str));
    deleted
}

/// A box of chunks: along each dimension, the first chunk and the end.
type Bounds = Vec<(u64, u64)>;

/// The chunks of a grid that lie outside a smaller grid, as boxes that do not overlap.
fn outside(within: &[u64], kept: &[u64]) -> Vec<Bounds> {
    let least = |axis: usize| kept.get(axis).map_or(0, |&count| count.min(within[axis]));
    let bounds = |first: usize| {
        let along = |axis: usize| match axis.cmp(&first) {
            Ordering::Less => (0, least(axis)),
            Ordering::Equal => (least(axis), within[axis]),
            Ordering::Greater => (0, within[axis]),
        };
        (0..within.len()).map(along).collect()
    };
    (0..within.len()).map(bounds).collect()
}

fn volume(bounds: &[(u64, u64)]) -> u64 {
    bounds.iter().fold(1u64, |all, (start, end)| all.saturating_mul(end - start))
}

/// Returns the grid coordinates of the chunk that has number `linear` in a box of chunks, in C order.
fn unravel(mut linear: u64, bounds: &[(u64, u64)]) -> Vec<u64> {
    let mut chunk = vec![0; bounds.len()];
    for (at, (start, end)) in chunk.iter_mut().zip(bounds).rev() {
        let extent = end - start;
        (*at, linear) = (start + linear % extent, linear / extent);
    }
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_outside_of_a_grid_cover_it_once() {
        for (within, kept) in [([3, 4], [2, 2]), ([3, 4], [5, 1]), ([2, 2], [2, 2]), ([3, 1], [0, 9]), ([0, 4], [1, 1])]
        {
            let boxes = outside(&within, &kept);
            let mut found: Vec<Vec<u64>> =
                boxes.iter().flat_map(|each| (0..volume(each)).map(|linear| unravel(linear, each))).collect();
            found.sort();
            let all = (0..within[0]).flat_map(|a| (0..within[1]).map(move |b| vec![a, b]));
            let expected: Vec<Vec<u64>> = all.filter(|chunk| chunk[0] >= kept[0] || chunk[1] >= kept[1]).collect();
            assert_eq!(found, expected, "{within:?} without {kept:?}");
        }
    }
}
