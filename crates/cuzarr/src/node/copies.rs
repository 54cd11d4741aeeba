//! Updates consolidated metadata: entries of changed nodes are replaced in every group above that has some, even above
//! the store's root ([`Store::above`]). No copy is created.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::documents::{self, Consolidation, Lookup, limit_bytes};
use super::lock::{HeldDocuments, MOST_ATTEMPTS, outrun, pause};
use super::path::ancestors;
use crate::cancellation::CancellationToken;
use crate::error::{ErrorKind, Result, ResultExt};
use crate::meta::node::{self, ZARR_JSON, ZGROUP, ZMETADATA};
use crate::meta::{EntryChange, NodeDocuments, ZarrFormat, edit_consolidated};
use crate::store::{ByteRange, Condition, Payload, ReadRequest, Store, StoreExt, Version, join_key};

/// A group document of at least this size is assumed to have consolidated metadata, until it has been read.
const LARGE_BYTES: u64 = 64 << 10;

/// Changes the entries of some nodes in the consolidated metadata of all groups above them. Paths of nodes are relative
/// to the store's root. Each copy is read and written once. Returns whether a copy was changed.
///
/// # Errors
/// What the store reports. Group documents that cannot be read are skipped. Above the store's root, this ends at the
/// first one.
pub(super) fn update_copies(
    store: &dyn Store,
    format: ZarrFormat,
    changes: Vec<EntryChange>,
    cancellation: &CancellationToken,
) -> Result<bool> {
    if changes.is_empty() {
        return Ok(false);
    }
    let mut is_changed = false;
    let mut groups: BTreeMap<String, Vec<EntryChange>> = BTreeMap::new();
    for change in &changes {
        for group in ancestors(&change.path) {
            let path = if group.is_empty() { &change.path[..] } else { &change.path[group.len() + 1..] };
            groups.entry(group.to_string()).or_default().push(EntryChange { path: path.to_string(), ..change.clone() });
        }
    }
    let copies = Copies { store, format, cancellation };
    for (group, changes) in copies.consolidated(groups)? {
        is_changed |= copies.edit(&group, &changes)?;
    }
    let (mut above, mut prefix) = (store.above(), String::new());
    while let Some((outer, name)) = above {
        prefix = if prefix.is_empty() { name } else { join_key(&name, &prefix) };
        let below = |change: &EntryChange| {
            let path = if change.path.is_empty() { prefix.clone() } else { join_key(&prefix, &change.path) };
            EntryChange { path, ..change.clone() }
        };
        let copies = Copies { store: &*outer, format, cancellation };
        if !copies.has_group() {
            break;
        }
        is_changed |= copies.edit("", &changes.iter().map(below).collect::<Vec<_>>())?;
        above = outer.above();
    }
    Ok(is_changed)
}

/// A store that has groups whose consolidated metadata is to be changed.
struct Copies<'a> {
    store: &'a dyn Store,
    format: ZarrFormat,
    cancellation: &'a CancellationToken,
}

impl Copies<'_> {
    /// Returns the groups that seem to have consolidated metadata, each with the entries that change in it. If requests
    /// take long, one batch finds them. Otherwise all groups are returned, and each is tried.
    fn consolidated(&self, groups: BTreeMap<String, Vec<EntryChange>>) -> Result<Vec<(String, Vec<EntryChange>)>> {
        if groups.len() <= 1 || !self.store.capabilities().far {
            return Ok(groups.into_iter().collect());
        }
        let request = |group: &String| ReadRequest { key: copy_key(group, self.format), range: ByteRange::Full };
        let values = self.store.get_many_at_most(groups.keys().map(request).collect(), limit_bytes());
        let mut found = Vec::new();
        for (group, value) in groups.into_iter().zip(values) {
            if readable(value)?.flatten().is_some_and(|bytes| self.format == ZarrFormat::V2 || has_copy(&bytes)) {
                found.push(group);
            }
        }
        Ok(found)
    }

    /// Whether the store's root is a group of this format that can be read.
    fn has_group(&self) -> bool {
        let name = if self.format == ZarrFormat::V3 { ZARR_JSON } else { ZGROUP };
        matches!(self.store.exists(name), Ok(true))
    }

    /// Changes entries in a group's consolidated metadata, if it has any. Returns whether the copy was changed.
    fn edit(&self, group: &str, changes: &[EntryChange]) -> Result<bool> {
        let copy = Copy { store: self.store, group, format: self.format };
        // A conditional write needs no lock. Most groups have no copy, so this is checked before waiting for the lock.
        let _held = match self.store.capabilities().conditional_writes {
            true => None,
            false if !copy.is_there()? => return Ok(false),
            false => Some(HeldDocuments::take(self.store, &[group], false, self.cancellation)?),
        };
        for attempt in 0..MOST_ATTEMPTS {
            if let Some(changed) = copy.try_edit(changes)? {
                return Ok(changed);
            }
            pause(attempt, self.cancellation)?;
        }
        Err(outrun(self.store, group))
    }
}

/// Replaces the attributes that a v2 group's consolidated metadata has of the group itself. The caller holds the
/// group's lock.
///
/// # Errors
/// What the store reports.
pub(super) fn update_own(store: &dyn Store, group: &str, node: &NodeDocuments) -> Result<()> {
    let own = EntryChange { path: String::new(), node: Some(node.clone()) };
    Copy { store, group, format: ZarrFormat::V2 }.edit_held(&[own])
}

/// The location of one group's consolidated metadata: the store, the group's path and the format.
struct Copy<'a> {
    store: &'a dyn Store,
    group: &'a str,
    format: ZarrFormat,
}

impl Copy<'_> {
    /// Whether the group seems to have consolidated metadata. Large documents almost always have one, so only the end
    /// of a document is read.
    fn is_there(&self) -> Result<bool> {
        if self.format == ZarrFormat::V2 {
            return self.store.exists(&self.key());
        }
        let end = self.store.get_range(&self.key(), ByteRange::Suffix { size_bytes: LARGE_BYTES });
        Ok(readable(end)?.flatten().is_some_and(|end| end.len() as u64 == LARGE_BYTES || has_copy(&end)))
    }

    /// Returns the group's document with the changed entries, and the version that was read. `None` if there is no
    /// copy, or if nothing changes.
    fn edited(&self, changes: &[EntryChange]) -> Result<Option<(Vec<u8>, Option<Version>)>> {
        let stored = self.store.get_versioned(&self.key(), limit_bytes());
        let Some(Some((bytes, version))) = readable(stored)? else { return Ok(None) };
        if self.format == ZarrFormat::V3 && !has_copy(&bytes) {
            return Ok(None);
        }
        let edited = readable(edit_consolidated(self.format, &bytes, &self.current(changes)?))?.flatten();
        Ok(edited.map(|edited| (edited, version)))
    }

    /// Replaces each entry to be written by the documents that its node has in the store now, so that no newer change
    /// is undone. Without a lock, another process may have changed a node after this process did. If that process
    /// changes the copy between this read and this write, this write fails and is tried again.
    fn current<'c>(&self, changes: &'c [EntryChange]) -> Result<Cow<'c, [EntryChange]>> {
        let is_there = |change: &&EntryChange| change.node.is_some();
        if !self.store.capabilities().conditional_writes || !changes.iter().any(|change| is_there(&change)) {
            return Ok(Cow::Borrowed(changes));
        }
        let absolute = |change: &EntryChange| match (self.group, &change.path[..]) {
            ("", path) => path.to_string(),
            (group, "") => group.to_string(),
            (group, path) => join_key(group, path),
        };
        let paths: Vec<String> = changes.iter().filter(is_there).map(absolute).collect();
        let lookup = Lookup { consolidation: Consolidation::Never, ..Lookup::default() };
        let mut found = documents::find_many(self.store, &paths, self.format, &lookup).into_iter();
        let current = |change: &EntryChange| -> Result<EntryChange> {
            if !is_there(&change) {
                return Ok(change.clone());
            }
            let node = found.next().transpose()?.flatten().map(|found| found.documents);
            Ok(EntryChange { path: change.path.clone(), node })
        };
        changes.iter().map(current).collect()
    }

    /// Tries once to change a group's consolidated metadata, and returns whether it was changed; `None` if another
    /// writer was faster.
    fn try_edit(&self, changes: &[EntryChange]) -> Result<Option<bool>> {
        let Some((edited, version)) = self.edited(changes)? else { return Ok(Some(false)) };
        let is_compared = self.store.capabilities().conditional_writes;
        let condition = version.filter(|_| is_compared).map_or(Condition::Always, Condition::Unchanged);
        let written = self.store.put(&self.key(), Payload::Bytes(&edited), &condition);
        Ok(written.at(|| documents::place(self.store, self.group))?.then_some(true))
    }

    /// Changes the consolidated metadata of a group whose lock the caller holds.
    fn edit_held(&self, changes: &[EntryChange]) -> Result<()> {
        for _ in 0..MOST_ATTEMPTS {
            if self.try_edit(changes)?.is_some() {
                return Ok(());
            }
        }
        Err(outrun(self.store, self.group))
    }

    fn key(&self) -> String {
        copy_key(self.group, self.format)
    }
}

/// The key of the document that holds a group's consolidated metadata.
fn copy_key(group: &str, format: ZarrFormat) -> String {
    node::key(group, if format == ZarrFormat::V3 { ZARR_JSON } else { ZMETADATA })
}

/// Returns `None` in place of the error for a group's document that cannot be parsed or used. A failure of the store is
/// an error.
fn readable<T>(value: Result<T>) -> Result<Option<T>> {
    match value {
        Err(error) if matches!(error.kind(), ErrorKind::StoreFailed | ErrorKind::Cancelled) => Err(error),
        value => Ok(value.ok()),
    }
}

/// Whether a `zarr.json` with these bytes seems to have consolidated metadata.
fn has_copy(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"\"consolidated_metadata\"";
    bytes.windows(NAME.len()).any(|window| window == NAME)
}
