//! The metadata documents that are stored for one array or group, such as `zarr.json`.

pub(super) mod consolidated;

use self::consolidated::StoredCopy;
use super::json::{Json, Object, Part, Text, members_to_text, object_to_text, parse_object_apart};
use super::names::{CONSOLIDATED, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use super::{ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The metadata documents that were found at one path of a store, as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Documents<'a> {
    /// The bytes of `zarr.json`; `None` if there is no such document.
    pub zarr_json: Option<&'a [u8]>,
    /// The bytes of `.zarray`; `None` if there is no such document.
    pub zarray: Option<&'a [u8]>,
    /// The bytes of `.zgroup`; `None` if there is no such document.
    pub zgroup: Option<&'a [u8]>,
    /// The bytes of `.zattrs`; `None` if there is no such document.
    pub zattrs: Option<&'a [u8]>,
    /// The bytes of `.zmetadata`; `None` if there is no such document.
    pub zmetadata: Option<&'a [u8]>,
}

impl<'a> Documents<'a> {
    /// Sets the document of this name, such as `.zattrs`. Other names are ignored.
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

/// The metadata documents of one array or group as JSON objects, without further checks. So a node that this library
/// cannot use is still listed, and is consolidated as its author wrote it. [`NodeDocuments::check`] turns the documents
/// into metadata.
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
    /// The content of `zarr.json`, `.zarray` or `.zgroup`. If a v3 group has a consolidated copy, the document has
    /// `null` in its place.
    pub(super) document: Object,
    /// The content of `.zattrs`, if there is one; unused in v3.
    pub(super) zattrs: Option<Object>,
    /// The consolidated metadata, if this is a group that has any.
    pub(super) copy: Option<StoredCopy>,
}

impl NodeDocuments {
    /// Parses metadata documents; `None` if they describe neither an array nor a group. v3 takes precedence over v2,
    /// and arrays over groups, as in zarr-python.
    ///
    /// # Errors
    /// `MetadataInvalid` when a document is not a JSON object.
    pub fn parse(documents: &Documents<'_>) -> Result<Option<NodeDocuments>> {
        if let Some(bytes) = documents.zarr_json {
            return NodeDocuments::parse_v3(bytes).map(Some).at(|| ZARR_JSON);
        }
        let object = |name: &'static str, bytes: Option<&[u8]>| -> Result<Option<Object>> {
            bytes.map(|bytes| Json::parse_object(bytes).at(|| name)).transpose()
        };
        let is_array = documents.zarray.is_some();
        let (name, bytes) = if is_array { (ZARRAY, documents.zarray) } else { (ZGROUP, documents.zgroup) };
        let Some(document) = object(name, bytes)? else { return Ok(None) };
        let zattrs = object(ZATTRS, documents.zattrs).at(|| name)?;
        let zmetadata = documents.zmetadata.filter(|_| !is_array);
        let zmetadata = zmetadata.map(|bytes| Text::of_object(bytes).at(|| ZMETADATA).at(|| name)).transpose()?;
        Ok(Some(NodeDocuments {
            copy: zmetadata.map(StoredCopy::Text),
            ..NodeDocuments::v2(is_array, document, zattrs)
        }))
    }

    /// Parses a `zarr.json` document into an object.
    pub(super) fn parse_v3(bytes: &[u8]) -> Result<NodeDocuments> {
        let (document, copy) = parse_object_apart(bytes, CONSOLIDATED)?;
        let mut node = NodeDocuments::v3(document, copy.map(StoredCopy::Text));
        // In the document of an array, the member has no meaning, so it stays where it is.
        if let (true, Some(StoredCopy::Text(text))) = (node.is_array, &node.copy) {
            node.document.insert(CONSOLIDATED.into(), text.parse()?);
            node.copy = None;
        }
        Ok(node)
    }

    /// Combines documents that are already parsed, given by their names; `None` if they describe no node.
    pub fn from_members(members: impl IntoIterator<Item = (String, Object)>) -> Option<NodeDocuments> {
        let mut members: std::collections::BTreeMap<String, Object> = members.into_iter().collect();
        if let Some(document) = members.remove(ZARR_JSON) {
            let mut node = NodeDocuments::v3(document, None);
            if let (false, Some(member)) = (node.is_array, node.document.get_mut(CONSOLIDATED)) {
                node.copy = match std::mem::replace(member, Json::Null) {
                    Json::Object(copy) => Some(StoredCopy::Text(Text::written(&copy))),
                    other => {
                        *member = other;
                        None
                    }
                };
            }
            return Some(node);
        }
        let zattrs = members.remove(ZATTRS);
        match (members.remove(ZARRAY), members.remove(ZGROUP)) {
            (Some(zarray), _) => Some(NodeDocuments::v2(true, zarray, zattrs)),
            (None, Some(zgroup)) => {
                let copy = members.remove(ZMETADATA).map(|members| StoredCopy::Text(Text::written(&members)));
                Some(NodeDocuments { copy, ..NodeDocuments::v2(false, zgroup, zattrs) })
            }
            (None, None) => None,
        }
    }

    pub(super) fn v3(document: Object, copy: Option<StoredCopy>) -> NodeDocuments {
        let is_array = matches!(document.get("node_type"), Some(Json::String(name)) if name == "array");
        NodeDocuments { format: ZarrFormat::V3, is_array, document, zattrs: None, copy }
    }

    pub(super) fn v2(is_array: bool, document: Object, zattrs: Option<Object>) -> NodeDocuments {
        NodeDocuments { format: ZarrFormat::V2, is_array, document, zattrs, copy: None }
    }

    /// The Zarr format of the documents: v2 or v3.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// Whether the documents say that they describe an array.
    pub fn is_array(&self) -> bool {
        self.is_array
    }

    /// Whether the documents say that they describe a group. A v3 document may describe neither an array nor a group.
    pub fn is_group(&self) -> bool {
        match self.format {
            ZarrFormat::V2 => !self.is_array,
            ZarrFormat::V3 => matches!(self.document.get("node_type"), Some(Json::String(name)) if name == "group"),
        }
    }

    /// The name and the members of each document, except for the consolidated metadata of a group.
    pub fn members(&self) -> Vec<(&'static str, &Object)> {
        let zattrs = self.zattrs.as_ref().map(|members| (ZATTRS, members));
        [(self.name(), &self.document)].into_iter().chain(zattrs).collect()
    }

    /// Every document to store: its name below the node's path, and its bytes, with `indent` spaces per level or on one
    /// line. The first one makes the node. Consolidated metadata keeps the layout in which it was read.
    pub fn documents(&self, indent: Option<usize>) -> Vec<(&'static str, Vec<u8>)> {
        let (document, copy) = (&self.document, self.copy.as_ref());
        if self.format == ZarrFormat::V3 {
            let copy = copy.map(|copy| copy.to_v3(indent));
            return vec![(self.name(), v3_to_text(document, copy.as_deref(), indent).into_bytes())];
        }
        let empty = Object::new();
        let zattrs = self.zattrs.as_ref().unwrap_or(&empty);
        let mut documents =
            vec![(self.name(), object_to_text(document, indent)), (ZATTRS, object_to_text(zattrs, indent))];
        documents.extend(copy.map(|copy| (ZMETADATA, copy.to_v2(document, zattrs))));
        documents.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
    }

    /// Returns these documents without the user's attributes.
    #[must_use]
    pub fn without_attributes(&self) -> NodeDocuments {
        let members = self.document.iter().filter(|(name, _)| self.format == ZarrFormat::V2 || *name != "attributes");
        let document = members.map(|(name, member)| (name.clone(), member.clone())).collect();
        NodeDocuments { format: self.format, is_array: self.is_array, document, zattrs: None, copy: self.copy.clone() }
    }

    /// Returns these documents without the consolidated metadata of a group.
    #[must_use]
    pub fn alone(mut self) -> NodeDocuments {
        if !self.is_array {
            self.document.shift_remove(CONSOLIDATED);
        }
        NodeDocuments { copy: None, ..self }
    }

    /// The name of the document that makes the path an array or a group, such as `.zarray`.
    pub fn name(&self) -> &'static str {
        match (self.format, self.is_array) {
            (ZarrFormat::V3, _) => ZARR_JSON,
            (ZarrFormat::V2, true) => ZARRAY,
            (ZarrFormat::V2, false) => ZGROUP,
        }
    }
}

/// The text of a `zarr.json`, with the consolidated metadata `copy` put in. The copy replaces the `null` in its place.
pub(super) fn v3_to_text(document: &Object, copy: Option<&str>, indent: Option<usize>) -> String {
    let parts = document.iter().map(|(name, member)| match copy {
        Some(copy) if name == CONSOLIDATED => (CONSOLIDATED, Part::Text(copy)),
        _ => (name.as_str(), Part::Tree(member)),
    });
    members_to_text(parts, indent)
}

/// The type of node that a document describes, from its member `node_type`.
pub(super) fn node_type(member: Option<&Json>) -> Result<&str> {
    match member {
        Some(Json::String(name)) if name == "array" || name == "group" => Ok(name),
        Some(other) => Err(invalid("node_type", &other.to_value(), "\"array\" or \"group\"")),
        None => Err(Error::new(ErrorKind::MetadataInvalid, "member 'node_type' is missing")),
    }
}
