//! Deleting nodes and chunks. The order of steps does no harm if the process is killed.
//!
//! A store deletes one value after another, so a killed process leaves some of them. What readers then see depends on
//! the order. Four rules ensure that old data are either complete or gone:
//!
//! 1. **Documents go before chunks.** An array that has its document also has all of its chunks, so no reader takes
//!    deleted chunks for the fill value. The checkpoint of a copy or a computation counts as a document, because it
//!    records which chunks exist.
//! 2. **Members go before their group.** While members are left, the group still exists, so the deletion can be
//!    repeated. When the group is gone, nothing below it is a node, so nothing comes back if a new group is made there.
//! 3. **Consolidated metadata of the groups above goes first.** The entry of a node must not outlive the node's chunks.
//! 4. **Left-over chunks never become elements of a new array.** Creating an array over them is refused. Growing an
//!    array deletes those that it would include.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::document;
use super::documents::{self, Consolidation, Lookup, each};
use super::path::normalize_path;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::meta::{ArrayMetadata, EntryChange, ZarrFormat};
use crate::run::Engine;
use crate::store::{Store, StoreExt, join_key, validate_key};

/// Name of the object, beside an array, that records the progress of unfinished work on it.
pub const CHECKPOINT: &str = ".cuzarr-work.json";
/// Name of the object that recorded the progress of copies before release 0.1.0.
pub const OLD_COPY_CHECKPOINT: &str = ".cuzarr-copy.json";

/// The documents that are deleted before everything else below a node's path, in three batches. Attributes go after
/// `.zarray`, because an array that lost its attributes is another array. They go before `.zgroup`, because a group
/// that is created later would inherit them.
const FIRST: [&[&str]; 3] = [&[CHECKPOINT, OLD_COPY_CHECKPOINT, ZMETADATA, ZARR_JSON, ZARRAY], &[ZATTRS], &[ZGROUP]];

/// Maximum number of chunks that are deleted without asking whether they exist. If there are more, the stored chunks
/// are listed first.
const LIST_INSTEAD_OF_DELETE: u64 = 1000;

/// Maximum number of chunks that are looked up one by one if the store refuses to list.
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
    let removed = |path: &String| EntryChange { path: path.clone(), node: None };
    let cancellation = CancellationToken::default();
    for format in [ZarrFormat::V3, ZarrFormat::V2] {
        let changes = paths.iter().map(removed).collect();
        document::update_copies(store, format, changes, &cancellation)?;
    }
    each(store, paths, |path| delete_tree(store, path)).map(drop)
}

/// Deletes everything below a prefix (`""`: the whole store). Documents go first; those of members go before those of
/// their groups.
///
/// # Errors
/// What the store reports; `ReadOnly`.
pub fn delete_tree(store: &dyn Store, prefix: &str) -> Result<()> {
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
    // Buckets have no folders to delete, and listing them again would be another request. They may have names that are
    // not valid keys.
    let deleted = match store.capabilities().conditional_writes && others.iter().all(|key| validate_key(key).is_ok()) {
        true => store.delete_many(&others),
        false => store.delete_prefix(prefix),
    };
    Engine::get().forget_below(store, prefix);
    deleted
}

/// Copies a node's own documents to its entries in the consolidated metadata of groups above. Groups without an entry
/// get one. Returns whether anything changed.
///
/// # Errors
/// What the store reports; errors in the node's documents.
pub fn refresh_consolidated(store: &dyn Store, path: &str, format: ZarrFormat) -> Result<bool> {
    let path = normalize_path(path)?;
    let lookup = Lookup { format: Some(format), consolidation: Consolidation::Never, ..Lookup::default() };
    let node = documents::find_documents(store, &path, &lookup)?.map(|found| found.documents);
    document::update_copies(store, format, vec![EntryChange { path, node }], &lookup.cancellation)
}

/// Refuses to make an array where chunks are stored that would become its elements.
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
        .with_hint("unless another program is creating it, delete what is left there with overwrite"))
}

/// Looks up the first chunks of an array. Returns the key of one that is stored, if there is any.
fn any_of_first(store: &dyn Store, path: &str, metadata: &ArrayMetadata, counts: &[u64]) -> Result<Option<String>> {
    let grid: Bounds = counts.iter().map(|&count| (0, count)).collect();
    let encoding = metadata.chunk_key_encoding();
    let chunks = (0..volume(&grid).min(MOST_ASKED_FOR)).map(|linear| unravel(linear, &grid));
    let keys: Vec<String> = chunks.map(|chunk| join_key(path, &encoding.key(&chunk))).collect();
    let is_there = each(store, &keys, |key| store.exists(key))?;
    Ok(keys.into_iter().zip(is_there).find_map(|(key, is_there)| is_there.then_some(key)))
}

/// Returns the keys of the chunks inside the shape `within` but outside the shape `kept`. Some of these chunks may not
/// be stored, unless the store cannot delete.
fn chunks_outside(
    store: &dyn Store,
    path: &str,
    metadata: &ArrayMetadata,
    within: &[u64],
    kept: &[u64],
) -> Result<Vec<String>> {
    let grid = metadata.chunk_grid();
    let within = grid.chunk_counts(within)?;
    let kept = grid.chunk_counts(kept)?;
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
pub(super) fn refuse_undeletable(
    store: &dyn Store,
    path: &str,
    metadata: &ArrayMetadata,
    before: &[u64],
    after: &[u64],
) -> Result<()> {
    if store.capabilities().deletes {
        return Ok(());
    }
    let Some(key) = chunks_outside(store, path, metadata, before, after)?.into_iter().next() else { return Ok(()) };
    let message = format!(
        "{store}: cannot resize the array at '/{path}' from {before:?} to {after:?}: '{key}' would have to be deleted, but this store cannot delete"
    );
    Err(Error::new(ErrorKind::Unsupported, message).with_hint("copy the part that stays into a new store"))
}

/// Deletes chunks outside the stored shape that a killed resize left behind and that the shape `new` would include. A
/// consolidated copy above may still have the larger shape, so it is updated first.
///
/// # Errors
/// What the store reports.
pub(super) fn delete_left_over(store: &dyn Store, path: &str, metadata: &ArrayMetadata, new: &[u64]) -> Result<()> {
    refresh_consolidated(store, path, metadata.zarr_format())?;
    delete_chunks(store, path, metadata, new, metadata.shape())
}

/// Deletes the stored chunks inside the shape `within` but outside the shape `kept`, as one batch.
///
/// # Errors
/// What the store reports.
pub(super) fn delete_chunks(
    store: &dyn Store,
    path: &str,
    metadata: &ArrayMetadata,
    within: &[u64],
    kept: &[u64],
) -> Result<()> {
    let keys = chunks_outside(store, path, metadata, within, kept)?;
    let delete = || {
        // The checkpoint records chunks that will be deleted, so it goes first.
        if !store.capabilities().transactional {
            store.delete(&join_key(path, CHECKPOINT))?;
        }
        let deleted = store.delete_many(&keys);
        Engine::get().forget(store, keys.iter().map(String::as_str));
        deleted
    };
    if keys.is_empty() { Ok(()) } else { delete().at(|| documents::place(store, path)) }
}

/// The range of chunks of a box along each dimension: the first chunk, and the end.
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

/// The coordinates of the chunk with number `linear`, in C order, in a box.
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
