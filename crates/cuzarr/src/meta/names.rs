//! The names of documents, and the attribute that marks unfinished work on a node.

use serde_json::{Map, Value};

use super::ZarrFormat;

/// The name of the document of a v3 array or group.
pub const ZARR_JSON: &str = "zarr.json";
/// The name of the document of a v2 array.
pub const ZARRAY: &str = ".zarray";
/// The name of the document of a v2 group.
pub const ZGROUP: &str = ".zgroup";
/// The name of the document with the attributes of a v2 array or group.
pub const ZATTRS: &str = ".zattrs";
/// The name of the document with the consolidated metadata of a v2 group.
pub const ZMETADATA: &str = ".zmetadata";

/// The member of a v3 group's `zarr.json` that contains the consolidated metadata.
pub(super) const CONSOLIDATED: &str = "consolidated_metadata";

/// The attribute that marks a node while it is being written. The node is the root of a copy or a pyramid, or an array
/// for the results of a computation. Its value is an object whose member `work` names the work.
pub const UNFINISHED: &str = "cuzarr_unfinished";

/// The name of the unfinished work that these attributes are marked with; `None` if they have no mark.
pub(super) fn unfinished_work(attributes: &Map<String, Value>) -> Option<&str> {
    attributes.get(UNFINISHED).map(|mark| mark.get("work").and_then(Value::as_str).unwrap_or("work"))
}

/// The names of all metadata documents. No chunk and no child node has one of these names.
pub const DOCUMENT_NAMES: [&str; 5] = [ZARR_JSON, ZARRAY, ZGROUP, ZATTRS, ZMETADATA];

/// The names of the documents to read when a node of one of these `formats` is opened.
///
/// ```
/// use cuzarr::internal::meta::node;
/// use cuzarr::meta::ZarrFormat;
/// assert_eq!(node::document_names(&[ZarrFormat::V3]), ["zarr.json"]);
/// assert_eq!(node::document_names(&[ZarrFormat::V2]), [".zarray", ".zgroup", ".zattrs", ".zmetadata"]);
/// ```
pub fn document_names(formats: &[ZarrFormat]) -> Vec<&'static str> {
    let names_of = |format: &ZarrFormat| match format {
        ZarrFormat::V3 => &DOCUMENT_NAMES[..1],
        ZarrFormat::V2 => &DOCUMENT_NAMES[1..],
    };
    formats.iter().flat_map(names_of).copied().collect()
}

/// The key in the store of a document or a chunk of the node at `path`. The root's path is empty.
///
/// ```
/// use cuzarr::internal::meta::node;
/// assert_eq!(node::key("a/b", node::ZARR_JSON), "a/b/zarr.json");
/// assert_eq!(node::key("", node::ZARR_JSON), "zarr.json");
/// ```
pub fn key(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
