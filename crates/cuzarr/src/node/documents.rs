//! Reading metadata documents from stores, to find the node at a path.

use std::sync::OnceLock;

use cuzarr_device::internal::Threads;

use crate::cancellation::CancellationToken;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::meta::node::{self, Documents, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use crate::meta::{ArrayMetadata, Consolidated, NodeDocuments, NodeMetadata, ZarrFormat};
use crate::store::{ByteRange, ReadRequest, Store, StoreExt};

/// Maximum size of a metadata document that is read, in bytes: the configuration's `metadata_max_bytes`. An array's
/// options cannot set this limit, because documents are read before there is an array.
pub(super) fn limit_bytes() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| Config::from_environment().unwrap_or_default().metadata_max_bytes())
}

/// Adds a hint to an error about a document that is too large.
pub(super) fn with_limit_hint(error: Error) -> Error {
    match error.kind() {
        ErrorKind::BudgetExceeded => error.with_hint("if you trust the store, raise metadata_max_bytes"),
        _ => error,
    }
}

/// Whether nodes are looked up in a group's consolidated metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Consolidation {
    /// Use consolidated metadata if the group has it.
    #[default]
    WhenPresent,
    /// Use consolidated metadata, and fail if the group does not have it.
    Required,
    /// Ignore consolidated metadata, and read every node's own documents.
    Never,
    /// Like [`Consolidation::Required`], but in v2 the document has this name instead of `.zmetadata`.
    Named(String),
}

impl Consolidation {
    /// Name of the v2 document from which consolidated metadata is read; `None` if it is not read.
    fn document(&self) -> Option<&str> {
        match self {
            Consolidation::WhenPresent | Consolidation::Required => Some(ZMETADATA),
            Consolidation::Never => None,
            Consolidation::Named(name) => Some(name),
        }
    }
}

/// Options for finding arrays and groups: format, kind, and use of consolidated metadata.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The Zarr format of the nodes to find; `None` finds nodes of any format.
    pub format: Option<ZarrFormat>,
    /// Whether only arrays (`true`) or only groups (`false`) are found; `None` finds both. In v3, the
    /// documents of both have the same name, so both are found.
    pub arrays: Option<bool>,
    /// Whether nodes are looked up in the consolidated metadata of groups.
    pub consolidation: Consolidation,
    /// Maximum size of a metadata document in bytes; a larger one is an error.
    pub max_bytes: u64,
    /// Stops a search that reads many nodes, between two batches.
    pub cancellation: CancellationToken,
}

/// The default search finds arrays and groups of any format, with documents up to the configured `metadata_max_bytes`.
impl Default for Lookup {
    fn default() -> Self {
        Lookup {
            format: None,
            arrays: None,
            consolidation: Consolidation::WhenPresent,
            max_bytes: limit_bytes(),
            cancellation: CancellationToken::default(),
        }
    }
}

/// The metadata documents that were found at a path.
#[derive(Clone, Debug)]
pub struct FoundNode {
    /// The metadata documents of the node itself.
    pub documents: NodeDocuments,
    /// The consolidated metadata of the node, if the search used it.
    pub consolidated: Option<Consolidated>,
    /// Warnings about the node's metadata documents.
    pub warnings: Vec<String>,
}

impl FoundNode {
    fn new(documents: NodeDocuments, warnings: Vec<String>, consolidation: &Consolidation) -> Result<FoundNode> {
        let mut documents = documents;
        let consolidated = match consolidation {
            Consolidation::Never => None,
            _ => documents.take_consolidated()?,
        };
        Ok(FoundNode { documents: documents.alone(), consolidated, warnings })
    }
}

/// Reads the metadata documents of the node at a path; `None` if no node is there. v3 documents take precedence. One
/// batch reads all documents, except the consolidated metadata of a v2 group, which is read after the group was found.
///
/// # Errors
/// `InvalidArgument` when consolidated metadata is required but missing; `MetadataInvalid`; what the store reports.
pub fn find_documents(store: &dyn Store, path: &str, lookup: &Lookup) -> Result<Option<FoundNode>> {
    let Some((documents, warnings)) = look(store, path, lookup)? else { return Ok(None) };
    let found = FoundNode::new(documents, warnings, &lookup.consolidation).at(|| place(store, path))?;
    let required = matches!(lookup.consolidation, Consolidation::Required | Consolidation::Named(_));
    if required && !found.documents.is_array() && found.consolidated.is_none() {
        return Err(not_consolidated(store, path));
    }
    Ok(Some(found))
}

/// The error if a group does not have the consolidated metadata that the caller requires.
pub(super) fn not_consolidated(store: &dyn Store, path: &str) -> Error {
    let message = format!("{store}: the group '/{path}' has no consolidated metadata");
    Error::new(ErrorKind::InvalidArgument, message).with_hint("consolidate it first")
}

/// The metadata of an array or group that was found in a store, and warnings about its documents.
pub(super) struct Found {
    pub metadata: NodeMetadata,
    pub warnings: Vec<String>,
}

/// Text with the store and the path, by which error messages name a node.
pub(super) fn place(store: &dyn Store, path: &str) -> String {
    format!("{store}: node '/{path}'")
}

/// The error if no node of the wanted kind is at a path.
pub(super) fn not_found(kind: ErrorKind, store: &dyn Store, path: &str) -> Error {
    let what = match kind {
        ErrorKind::ArrayNotFound => "no array",
        ErrorKind::GroupNotFound => "no group",
        _ => "no array or group",
    };
    Error::new(kind, format!("{store}: there is {what} at '/{path}'"))
}

/// Reads the metadata of the node at a path, of `format` or of any format. v3 takes precedence.
pub(super) fn find(
    store: &dyn Store,
    path: &str,
    format: Option<ZarrFormat>,
    consolidation: &Consolidation,
) -> Result<Option<Found>> {
    let lookup = Lookup { format, consolidation: consolidation.clone(), ..Lookup::default() };
    let Some((documents, warnings)) = look(store, path, &lookup)? else { return Ok(None) };
    let name = documents.name();
    let metadata = documents.check().at(|| name).at(|| place(store, path))?;
    Ok(Some(Found { metadata, warnings }))
}

/// Reads the metadata documents of the node at a path, and collects warnings about them.
fn look(store: &dyn Store, path: &str, lookup: &Lookup) -> Result<Option<(NodeDocuments, Vec<String>)>> {
    let names = document_names(lookup.format, lookup.arrays);
    let values = read(store, [path], &names, lookup.max_bytes);
    let mut found = StoredDocument::new(&names, values).at(|| place(store, path))?;
    if found.is_v2_group()
        && let Some(name) = lookup.consolidation.document()
    {
        found.zmetadata = store
            .get_at_most(&node::key(path, name), lookup.max_bytes)
            .map_err(with_limit_hint)
            .at(|| place(store, path))?;
    }
    let mut warnings = found.warnings(store, path);
    let documents = NodeDocuments::parse(&found.documents()).at(|| place(store, path))?;
    if let Some(work) = documents.as_ref().and_then(NodeDocuments::unfinished_work) {
        warnings.push(format!("{}: unfinished {work}: repeat the call that began it with resume", place(store, path)));
    }
    Ok(documents.map(|documents| (documents, warnings)))
}

/// Reads the metadata documents of the nodes at several normalized paths, as one batch. Includes consolidated metadata
/// if the lookup asks for it.
pub fn find_many(
    store: &dyn Store,
    paths: &[String],
    format: ZarrFormat,
    lookup: &Lookup,
) -> Vec<Result<Option<FoundNode>>> {
    let mut names = document_names(Some(format), None);
    if format == ZarrFormat::V2 && lookup.consolidation != Consolidation::Never {
        names.push(ZMETADATA);
    }
    let mut values = read(store, paths.iter().map(String::as_str), &names, lookup.max_bytes).into_iter();
    let parse = |path: &String| {
        let stored = StoredDocument::new(&names, values.by_ref().take(names.len()).collect())?;
        let found = NodeDocuments::parse(&stored.documents());
        let found = found.and_then(|documents| {
            documents.map(|documents| FoundNode::new(documents, Vec::new(), &lookup.consolidation)).transpose()
        });
        found.at(|| place(store, path))
    };
    paths.iter().map(parse).collect()
}

/// Maximum number of requests that are in flight at a time to a far store, such as a server.
pub(super) const REQUESTS_AT_ONCE: usize = 64;

/// Calls `request` for each item, in many threads at a time if the store is far away, as over a network. Results are in
/// the order of the items.
pub(super) fn each<I: Sync, T: Send>(
    store: &dyn Store,
    items: &[I],
    request: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = if store.capabilities().far { REQUESTS_AT_ONCE } else { 1 };
    if threads.min(items.len()) <= 1 {
        return items.iter().map(request).collect();
    }
    Threads::callers().map(threads, items, request).into_iter().collect()
}

/// Whether the node at a path is an array (`true`) or a group (`false`). `None` if there is neither, or if it cannot be
/// read.
pub(super) fn kind_at(store: &dyn Store, path: &str) -> Result<Option<bool>> {
    match find(store, path, None, &Consolidation::Never) {
        Ok(found) => Ok(found.map(|found| found.metadata.as_array().is_some())),
        Err(error) if error.kind().is_of_store() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The names of documents to read for one format or both (`None`), and for arrays (`true`), groups (`false`) or both
/// (`None`).
pub(super) fn document_names(format: Option<ZarrFormat>, arrays: Option<bool>) -> Vec<&'static str> {
    let v3 = (format != Some(ZarrFormat::V2)).then_some(ZARR_JSON);
    let v2 = match (format, arrays) {
        (Some(ZarrFormat::V3), _) => &[][..],
        (_, None) => &[ZARRAY, ZGROUP, ZATTRS],
        (_, Some(true)) => &[ZARRAY, ZATTRS],
        (_, Some(false)) => &[ZGROUP, ZATTRS],
    };
    v3.into_iter().chain(v2.iter().copied()).collect()
}

type DocumentValue = Result<Option<Vec<u8>>>;

fn read<'a>(
    store: &dyn Store,
    paths: impl IntoIterator<Item = &'a str>,
    names: &[&str],
    max_bytes: u64,
) -> Vec<DocumentValue> {
    let request = |path: &str, name: &&str| ReadRequest { key: node::key(path, name), range: ByteRange::Full };
    let requests = paths.into_iter().flat_map(|path| names.iter().map(move |name| request(path, name)));
    let values = store.get_many_at_most(requests.collect(), max_bytes);
    values.into_iter().map(|value| value.map_err(with_limit_hint)).collect()
}

/// The metadata documents that are stored at one path, as bytes.
#[derive(Default)]
struct StoredDocument {
    zarr_json: Option<Vec<u8>>,
    zarray: Option<Vec<u8>>,
    zgroup: Option<Vec<u8>>,
    zattrs: Option<Vec<u8>>,
    zmetadata: Option<Vec<u8>>,
}

impl StoredDocument {
    fn new(names: &[&'static str], values: Vec<DocumentValue>) -> Result<StoredDocument> {
        let mut stored = StoredDocument::default();
        for (&name, value) in names.iter().zip(values) {
            let place = match name {
                ZARR_JSON => &mut stored.zarr_json,
                ZARRAY => &mut stored.zarray,
                ZGROUP => &mut stored.zgroup,
                ZMETADATA => &mut stored.zmetadata,
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

/// Reads the metadata of the array at a path. `ArrayNotFound` if there is no node, or a group.
pub(super) fn find_array(
    store: &dyn Store,
    path: &str,
    format: Option<ZarrFormat>,
) -> Result<(ArrayMetadata, Vec<String>)> {
    match find(store, path, format, &Consolidation::Never)? {
        Some(Found { metadata: NodeMetadata::Array(metadata), warnings }) => Ok((*metadata, warnings)),
        Some(_) => {
            let error = not_found(ErrorKind::ArrayNotFound, store, path);
            Err(error.with_hint("open it as a group"))
        }
        None => Err(not_found(ErrorKind::ArrayNotFound, store, path)),
    }
}
