//! Metadata documents in stores: finding what is at a path, and writing what is new there.

use std::sync::OnceLock;

use super::deletion;
use super::group::Consolidation;
use super::path::ancestors;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{self, Documents, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::meta::{ArrayMetadata, GroupMetadata, NodeMetadata, ZarrFormat};
use crate::store::{ByteRange, ReadRequest, Store, StoreExt};

/// Bytes of the largest metadata document that is read: `metadata_max_bytes` of the process's configuration. Documents are read
/// before there is an array with options of its own.
pub(super) fn limit_bytes() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| Config::from_environment().unwrap_or_default().metadata_max_bytes())
}

/// Adds to an error about a document that is too large what can be done.
fn with_limit_hint(error: Error) -> Error {
    match error.kind() {
        ErrorKind::BudgetExceeded => error.with_hint("if you trust the store, raise metadata_max_bytes"),
        _ => error,
    }
}

/// What was found at a path.
pub(super) struct Found {
    pub metadata: NodeMetadata,
    pub warnings: Vec<String>,
}

/// Names a node in an error's trail.
pub(super) fn place(store: &dyn Store, path: &str) -> String {
    format!("{store}: node '/{path}'")
}

/// The error for a path where nothing fitting is.
pub(super) fn not_found(kind: ErrorKind, store: &dyn Store, path: &str) -> Error {
    let what = match kind {
        ErrorKind::ArrayNotFound => "no array",
        ErrorKind::GroupNotFound => "no group",
        _ => "no array or group",
    };
    Error::new(kind, format!("{store}: there is {what} at '/{path}'"))
}

/// The metadata at a path, of `format` or of either; v3 wins.
pub(super) fn find(
    store: &dyn Store,
    path: &str,
    format: Option<ZarrFormat>,
    consolidation: &Consolidation,
) -> Result<Option<Found>> {
    let names = document_names(format);
    let values = read(store, [path], &names);
    let mut found = Stored::new(&names, values).at(|| place(store, path))?;
    if found.is_v2_group()
        && let Some(name) = consolidation.document()
    {
        found.zmetadata = store
            .get_at_most(&node::key(path, name), limit_bytes())
            .map_err(with_limit_hint)
            .at(|| place(store, path))?;
    }
    let warnings = found.warnings(store, path);
    let metadata = NodeMetadata::from_documents(&found.documents()).at(|| place(store, path))?;
    Ok(metadata.map(|metadata| Found { metadata, warnings }))
}

/// The metadata at each of several paths, without what is consolidated there.
pub(super) fn find_many(store: &dyn Store, paths: &[String], format: ZarrFormat) -> Vec<Result<Option<NodeMetadata>>> {
    let names = document_names(Some(format));
    let mut values = read(store, paths.iter().map(String::as_str), &names).into_iter();
    let parse = |path: &String| {
        let stored = Stored::new(&names, values.by_ref().take(names.len()).collect())?;
        NodeMetadata::from_documents(&stored.documents()).at(|| place(store, path))
    };
    paths.iter().map(parse).collect()
}

/// Whether an array (`true`) or a group is at a path; `None` also when what is there cannot be read.
pub(super) fn kind_at(store: &dyn Store, path: &str) -> Result<Option<bool>> {
    match find(store, path, None, &Consolidation::Never) {
        Ok(found) => Ok(found.map(|found| found.metadata.as_array().is_some())),
        Err(error) if error.kind() == ErrorKind::StoreFailed => Err(error),
        Err(_) => Ok(None),
    }
}

fn document_names(format: Option<ZarrFormat>) -> Vec<&'static str> {
    match format {
        Some(ZarrFormat::V3) => vec![ZARR_JSON],
        Some(ZarrFormat::V2) => vec![ZARRAY, ZGROUP, ZATTRS],
        None => vec![ZARR_JSON, ZARRAY, ZGROUP, ZATTRS],
    }
}

type Value = Result<Option<Vec<u8>>>;

fn read<'a>(store: &dyn Store, paths: impl IntoIterator<Item = &'a str>, names: &[&str]) -> Vec<Value> {
    let request = |path: &str, name: &&str| ReadRequest { key: node::key(path, name), range: ByteRange::Full };
    let requests = paths.into_iter().flat_map(|path| names.iter().map(move |name| request(path, name)));
    let values = store.get_many_at_most(requests.collect(), limit_bytes());
    values.into_iter().map(|value| value.map_err(with_limit_hint)).collect()
}

/// The documents at one path.
#[derive(Default)]
struct Stored {
    zarr_json: Option<Vec<u8>>,
    zarray: Option<Vec<u8>>,
    zgroup: Option<Vec<u8>>,
    zattrs: Option<Vec<u8>>,
    zmetadata: Option<Vec<u8>>,
}

impl Stored {
    fn new(names: &[&'static str], values: Vec<Value>) -> Result<Stored> {
        let mut stored = Stored::default();
        for (&name, value) in names.iter().zip(values) {
            let place = match name {
                ZARR_JSON => &mut stored.zarr_json,
                ZARRAY => &mut stored.zarray,
                ZGROUP => &mut stored.zgroup,
                _ => &mut stored.zattrs,
            };
            *place = value?;
        }
        Ok(stored)
    }

    fn is_v2_group(&self) -> bool {
        self.zarr_json.is_none() && self.zarray.is_none() && self.zgroup.is_some()
    }

    fn documents(&self) -> Documents<'_> {
        Documents {
            zarr_json: self.zarr_json.as_deref(),
            zarray: self.zarray.as_deref(),
            zgroup: self.zgroup.as_deref(),
            zattrs: self.zattrs.as_deref(),
            zmetadata: self.zmetadata.as_deref(),
        }
    }

    fn warnings(&self, store: &dyn Store, path: &str) -> Vec<String> {
        let v2 = if self.zarray.is_some() { ZARRAY } else { ZGROUP };
        let mut warnings = Vec::new();
        if self.zarr_json.is_some() && (self.zarray.is_some() || self.zgroup.is_some()) {
            let place = place(store, path);
            warnings.push(format!("{place}: both {ZARR_JSON} and {v2} are there; {ZARR_JSON} is used"));
        } else if self.zarray.is_some() && self.zgroup.is_some() {
            let place = place(store, path);
            warnings.push(format!("{place}: both {ZARRAY} and {ZGROUP} are there; {ZARRAY} is used"));
        }
        warnings
    }
}

/// Refuses when a node of this format is at the path already.
pub(super) fn require_absent(store: &dyn Store, path: &str, format: ZarrFormat) -> Result<()> {
    let found = find(store, path, Some(format), &Consolidation::Never);
    match found {
        Ok(None) => Ok(()),
        Ok(Some(found)) => Err(contains(store, path, found.metadata.as_array().is_some())),
        Err(error) if error.kind() == ErrorKind::StoreFailed => Err(error),
        Err(error) => Err(error.with_hint("replace it with overwrite, if what is there is of no use")),
    }
}

fn contains(store: &dyn Store, path: &str, is_array: bool) -> Error {
    let (kind, what) = match is_array {
        true => (ErrorKind::ContainsArray, "an array"),
        false => (ErrorKind::ContainsGroup, "a group"),
    };
    Error::new(kind, format!("{store}: there is {what} at '/{path}' already"))
        .with_hint("open it, or replace it with overwrite")
}

/// Creates a node of metadata, and the groups above it that are not there yet. See [`make_room`] and [`publish`].
pub(super) fn create(store: &dyn Store, path: &str, metadata: &NodeMetadata, overwrite: bool) -> Result<()> {
    let was_consolidated = make_room(store, path, metadata.zarr_format(), overwrite)?;
    if !overwrite {
        refuse_left_over(store, path, metadata)?;
    }
    publish(store, path, metadata.zarr_format(), &metadata.documents())?;
    if was_consolidated {
        deletion::refresh_consolidated(store, path, true)?;
    }
    Ok(())
}

/// Makes sure that a node can be created at a path: deletes what is there when it is to be replaced. Says whether that was part of
/// consolidated metadata.
///
/// # Errors
/// `ReadOnly`; `ContainsArray`, `ContainsGroup`; what the store reports.
fn make_room(store: &dyn Store, path: &str, format: ZarrFormat, overwrite: bool) -> Result<bool> {
    if store.capabilities().read_only {
        let message = format!("{store}: cannot create '/{path}': the store is for reading only");
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    require_no_array_above(store, path, format)?;
    match overwrite {
        true => deletion::delete_node(store, path),
        false => require_absent(store, path, format).map(|()| false),
    }
}

/// Refuses to make an array of chunks that are there already; groups have no chunks.
pub(super) fn refuse_left_over(store: &dyn Store, path: &str, metadata: &NodeMetadata) -> Result<()> {
    metadata.as_array().map_or(Ok(()), |array| deletion::refuse_left_over(store, path, array))
}

/// Creates an array of the chunks that lie at its path already.
///
/// # Errors
/// As of [`make_room`].
pub(super) fn adopt(store: &dyn Store, path: &str, metadata: &ArrayMetadata) -> Result<()> {
    make_room(store, path, metadata.zarr_format(), false)?;
    publish(store, path, metadata.zarr_format(), &metadata.documents())
}

/// Stores the documents of a new node, and of the groups above it that are not there yet.
///
/// The document that makes the node is written last, so a node is never without its attributes, nor with those of another one that
/// was there before. It is written only where there is none, so of two writers that create one node at the same time, one succeeds
/// and one hears of the other.
fn publish(store: &dyn Store, path: &str, format: ZarrFormat, documents: &[(&'static str, Vec<u8>)]) -> Result<()> {
    let parents = GroupMetadata::new(format, Default::default())?.documents();
    for parent in ancestors(path) {
        for (name, bytes) in &parents {
            store.write_if_absent(&node::key(parent, name), bytes)?;
        }
    }
    let Some(((name, bytes), others)) = documents.split_first() else { return Ok(()) };
    replace(store, path, others)?;
    if !store.write_if_absent(&node::key(path, name), bytes)? {
        require_absent(store, path, format)?;
        let message = format!("{store}: '/{path}' was created and deleted by others meanwhile");
        return Err(Error::new(ErrorKind::StoreFailed, message));
    }
    Ok(())
}

/// Only groups have children.
fn require_no_array_above(store: &dyn Store, path: &str, format: ZarrFormat) -> Result<()> {
    for parent in ancestors(path) {
        let is_array = match format {
            ZarrFormat::V2 => store.exists(&node::key(parent, ZARRAY))?,
            // A document that cannot be read is no array, and is left alone.
            ZarrFormat::V3 => matches!(
                find(store, parent, Some(format), &Consolidation::Never),
                Ok(Some(Found { metadata: NodeMetadata::Array(_), .. }))
            ),
        };
        if is_array {
            let message =
                format!("{store}: cannot create '/{path}': '/{parent}' is an array, and only groups have members");
            return Err(Error::new(ErrorKind::ContainsArray, message));
        }
    }
    Ok(())
}

/// Replaces the documents of a node.
pub(super) fn replace(store: &dyn Store, path: &str, documents: &[(&'static str, Vec<u8>)]) -> Result<()> {
    documents.iter().try_for_each(|(name, bytes)| store.write(&node::key(path, name), bytes)).at(|| place(store, path))
}

/// The documents that changed between two states of a node, so that the others are left as they are.
pub(super) fn changed(
    old: &[(&'static str, Vec<u8>)],
    new: Vec<(&'static str, Vec<u8>)>,
) -> Vec<(&'static str, Vec<u8>)> {
    new.into_iter().filter(|document| !old.contains(document)).collect()
}

/// The array's metadata alone; `ArrayNotFound` when there is none, or a group.
pub(super) fn find_array(
    store: &dyn Store,
    path: &str,
    format: Option<ZarrFormat>,
) -> Result<(ArrayMetadata, Vec<String>)> {
    match find(store, path, format, &Consolidation::Never)? {
        Some(Found { metadata: NodeMetadata::Array(metadata), warnings }) => Ok((*metadata, warnings)),
        Some(_) => {
            let error = not_found(ErrorKind::ArrayNotFound, store, path);
            Err(error.with_hint("open it as a group, which it is"))
        }
        None => Err(not_found(ErrorKind::ArrayNotFound, store, path)),
    }
}

/// The name of the document that v2 groups are consolidated in.
pub(super) const CONSOLIDATED_V2: &str = ZMETADATA;
