//! The documents of one node: which ones they are, and what they say together.

use super::json::{Json, Object, object_to_text};
use super::names::{ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use super::{ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The bytes of the documents that were found at a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Documents<'a> {
    /// `zarr.json`
    pub zarr_json: Option<&'a [u8]>,
    /// `.zarray`
    pub zarray: Option<&'a [u8]>,
    /// `.zgroup`
    pub zgroup: Option<&'a [u8]>,
    /// `.zattrs`
    pub zattrs: Option<&'a [u8]>,
    /// `.zmetadata`
    pub zmetadata: Option<&'a [u8]>,
}

impl<'a> Documents<'a> {
    /// Puts a document in its place; other names are ignored.
    pub fn set(&mut self, name: &str, bytes: &'a [u8]) {
        match name {
            ZARR_JSON => self.zarr_json = Some(bytes),
            ZARRAY => self.zarray = Some(bytes),
            ZGROUP => self.zgroup = Some(bytes),
            ZATTRS => self.zattrs = Some(bytes),
            ZMETADATA => self.zmetadata = Some(bytes),
            _ => {}
        }
    }
}

/// The documents of one node as JSON, each an object and nothing else checked. So a node that this library cannot use is still
/// listed and consolidated as its author wrote it; [`NodeDocuments::check`] makes metadata of them.
///
/// ```
/// use cuzarr::meta::{Documents, NodeDocuments};
/// let zarr_json = br#"{"zarr_format": 3, "node_type": "array", "data_type": "unheard_of"}"#;
/// let found = NodeDocuments::parse(&Documents { zarr_json: Some(zarr_json), ..Documents::default() })?.unwrap();
/// assert!(found.is_array() && found.check().is_err());
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDocuments {
    pub(super) format: ZarrFormat,
    pub(super) is_array: bool,
    /// `zarr.json`, `.zarray` or `.zgroup`.
    pub(super) document: Object,
    /// `.zattrs`, if there is one; unused in v3.
    pub(super) zattrs: Option<Object>,
    /// `.zmetadata`, if there is one; unused in v3.
    pub(super) zmetadata: Option<Object>,
}

impl NodeDocuments {
    /// Takes documents apart; `None` if they describe nothing. v3 goes before v2 and arrays before groups, as in zarr-python.
    ///
    /// # Errors
    /// `MetadataInvalid` when a document is no JSON object.
    pub fn parse(documents: &Documents<'_>) -> Result<Option<NodeDocuments>> {
        let object = |name: &'static str, bytes: Option<&[u8]>| -> Result<Option<Object>> {
            bytes.map(|bytes| Json::parse_object(bytes).at(|| name)).transpose()
        };
        if let Some(document) = object(ZARR_JSON, documents.zarr_json)? {
            return Ok(Some(NodeDocuments::v3(document)));
        }
        let is_array = documents.zarray.is_some();
        let (name, bytes) = if is_array { (ZARRAY, documents.zarray) } else { (ZGROUP, documents.zgroup) };
        let Some(document) = object(name, bytes)? else { return Ok(None) };
        let zattrs = object(ZATTRS, documents.zattrs).at(|| name)?;
        let zmetadata = if is_array { None } else { object(ZMETADATA, documents.zmetadata).at(|| name)? };
        Ok(Some(NodeDocuments { zmetadata, ..NodeDocuments::v2(is_array, document, zattrs) }))
    }

    /// Puts together documents that were taken apart already, given by their names; `None` if they describe nothing.
    pub fn from_members(members: impl IntoIterator<Item = (String, Object)>) -> Option<NodeDocuments> {
        let mut members: std::collections::BTreeMap<String, Object> = members.into_iter().collect();
        if let Some(document) = members.remove(ZARR_JSON) {
            return Some(NodeDocuments::v3(document));
        }
        let zattrs = members.remove(ZATTRS);
        match (members.remove(ZARRAY), members.remove(ZGROUP)) {
            (Some(zarray), _) => Some(NodeDocuments::v2(true, zarray, zattrs)),
            (None, Some(zgroup)) => {
                let zmetadata = members.remove(ZMETADATA);
                Some(NodeDocuments { zmetadata, ..NodeDocuments::v2(false, zgroup, zattrs) })
            }
            (None, None) => None,
        }
    }

    pub(super) fn v3(document: Object) -> NodeDocuments {
        let is_array = matches!(document.get("node_type"), Some(Json::String(name)) if name == "array");
        NodeDocuments { format: ZarrFormat::V3, is_array, document, zattrs: None, zmetadata: None }
    }

    pub(super) fn v2(is_array: bool, document: Object, zattrs: Option<Object>) -> NodeDocuments {
        NodeDocuments { format: ZarrFormat::V2, is_array, document, zattrs, zmetadata: None }
    }

    /// The format of the documents.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// Whether they say that they are an array's.
    pub fn is_array(&self) -> bool {
        self.is_array
    }

    /// Whether they say that they are a group's. A v3 document may say that it is something else.
    pub fn is_group(&self) -> bool {
        match self.format {
            ZarrFormat::V2 => !self.is_array,
            ZarrFormat::V3 => matches!(self.document.get("node_type"), Some(Json::String(name)) if name == "group"),
        }
    }

    /// Each document's name and members.
    pub fn members(&self) -> Vec<(&'static str, &Object)> {
        let zattrs = self.zattrs.as_ref().map(|members| (ZATTRS, members));
        let zmetadata = self.zmetadata.as_ref().map(|members| (ZMETADATA, members));
        [(self.name(), &self.document)].into_iter().chain(zattrs).chain(zmetadata).collect()
    }

    /// Every document to store: its name below the node's path, and its bytes, with `indent` spaces a level or on one line. The
    /// first one makes the node.
    pub fn documents(&self, indent: Option<usize>) -> Vec<(&'static str, Vec<u8>)> {
        let bytes = |members: &Object, indent| object_to_text(members, indent).into_bytes();
        let mut documents = vec![(self.name(), bytes(&self.document, indent))];
        if self.format == ZarrFormat::V2 {
            documents.push((ZATTRS, self.zattrs.as_ref().map_or_else(|| b"{}".to_vec(), |it| bytes(it, indent))));
        }
        // On one line, as zarr-python writes it: it can be large, and people do not read it.
        documents.extend(self.zmetadata.as_ref().map(|members| (ZMETADATA, bytes(members, None))));
        documents
    }

    /// The documents without what is consolidated below a group.
    #[must_use]
    pub fn alone(mut self) -> NodeDocuments {
        if !self.is_array {
            self.document.shift_remove("consolidated_metadata");
        }
        NodeDocuments { zmetadata: None, ..self }
    }

    /// The name of the document that makes the node.
    pub fn name(&self) -> &'static str {
        match (self.format, self.is_array) {
            (ZarrFormat::V3, _) => ZARR_JSON,
            (ZarrFormat::V2, true) => ZARRAY,
            (ZarrFormat::V2, false) => ZGROUP,
        }
    }
}

/// Which node a document describes.
pub(super) fn node_type(document: &Object) -> Result<&str> {
    match document.get("node_type") {
        Some(Json::String(name)) if name == "array" || name == "group" => Ok(name),
        Some(other) => Err(invalid("node_type", &other.to_value(), "\"array\" or \"group\"")),
        None => Err(Error::new(ErrorKind::MetadataInvalid, "member 'node_type' is missing")),
    }
}
