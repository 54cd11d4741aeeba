//! Which documents describe a node, and what they say together.

use serde_json::{Map, Value};

use super::json::{Json, Object, object_to_text};
use super::{ArrayMetadata, Consolidated, GroupMetadata, ZarrFormat, v2, v3};
use crate::{Result, ResultExt};

/// The document of a v3 array or group.
pub const ZARR_JSON: &str = "zarr.json";
/// The document of a v2 array.
pub const ZARRAY: &str = ".zarray";
/// The document of a v2 group.
pub const ZGROUP: &str = ".zgroup";
/// The attributes of a v2 array or group.
pub const ZATTRS: &str = ".zattrs";
/// The consolidated metadata of a v2 group.
pub const ZMETADATA: &str = ".zmetadata";

/// Every name that metadata is stored under; no chunk and no child has one of them.
pub const DOCUMENT_NAMES: [&str; 5] = [ZARR_JSON, ZARRAY, ZGROUP, ZATTRS, ZMETADATA];

/// The names of the documents to read to open a node that may be of one of `formats`.
///
/// ```
/// use cuzarr::meta::{ZarrFormat, node};
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

/// The key of a document or chunk of the node at `path`; the root's path is empty.
///
/// ```
/// use cuzarr::meta::node;
/// assert_eq!(node::key("a/b", node::ZARR_JSON), "a/b/zarr.json");
/// assert_eq!(node::key("", node::ZARR_JSON), "zarr.json");
/// ```
pub fn key(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

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
    zmetadata: Option<Object>,
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

    /// The consolidated metadata below a group, taken out of its documents; `None` if there is none.
    ///
    /// # Errors
    /// `MetadataInvalid` and `UnsupportedFeature` when it has another form.
    pub fn take_consolidated(&mut self) -> Result<Option<Consolidated>> {
        let v3 = match self.is_array {
            true => None,
            false => self.document.shift_remove("consolidated_metadata"),
        };
        match (v3, self.zmetadata.take()) {
            (None | Some(Json::Null), None) => Ok(None),
            (Some(member), _) => Consolidated::from_v3(member).map(Some).at(|| ZARR_JSON),
            (None, Some(zmetadata)) => Consolidated::from_v2(&zmetadata).map(Some).at(|| ZMETADATA),
        }
    }

    /// The documents without what is consolidated below a group.
    #[must_use]
    pub fn alone(mut self) -> NodeDocuments {
        if !self.is_array {
            self.document.shift_remove("consolidated_metadata");
        }
        NodeDocuments { zmetadata: None, ..self }
    }

    /// Puts what is consolidated below a group into its documents.
    pub fn set_consolidated(&mut self, consolidated: &Consolidated) {
        match self.format {
            ZarrFormat::V3 => drop(self.document.insert("consolidated_metadata".into(), consolidated.to_v3())),
            ZarrFormat::V2 => {
                let zattrs = self.zattrs.get_or_insert_default();
                self.zmetadata = Some(consolidated.to_v2(&self.document, zattrs));
            }
        }
    }

    /// The metadata that the documents describe.
    ///
    /// # Errors
    /// `MetadataInvalid`, `UnsupportedFeature`, `UnknownDataType`.
    pub fn check(self) -> Result<NodeMetadata> {
        let zattrs = self.zattrs.unwrap_or_default();
        Ok(match (self.format, self.is_array) {
            (ZarrFormat::V3, _) => match v3::node_type(&self.document)? {
                "array" => NodeMetadata::Array(Box::new(v3::parse_array(self.document)?)),
                _ => NodeMetadata::Group(Box::new(v3::parse_group(self.document)?)),
            },
            (ZarrFormat::V2, true) => NodeMetadata::Array(Box::new(v2::parse_array(self.document, zattrs)?)),
            (ZarrFormat::V2, false) => {
                let mut group = v2::parse_group(self.document, zattrs)?;
                if let Some(zmetadata) = self.zmetadata {
                    group.consolidated = Some(Consolidated::from_v2(&zmetadata).at(|| ZMETADATA)?);
                    group.zmetadata = Some(zmetadata);
                }
                NodeMetadata::Group(Box::new(group))
            }
        })
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

impl From<&NodeMetadata> for NodeDocuments {
    fn from(node: &NodeMetadata) -> Self {
        let (format, document, zattrs, zmetadata) = match node {
            NodeMetadata::Array(array) => (array.format, &array.document, &array.zattrs, None),
            NodeMetadata::Group(group) => (group.format, &group.document, &group.zattrs, group.zmetadata.clone()),
        };
        if format == ZarrFormat::V3 {
            return NodeDocuments::v3(document.clone());
        }
        let is_array = node.as_array().is_some();
        NodeDocuments { zmetadata, ..NodeDocuments::v2(is_array, document.clone(), Some(zattrs.clone())) }
    }
}

/// Metadata of an array or a group.
#[derive(Clone, Debug)]
pub enum NodeMetadata {
    /// An array.
    Array(Box<ArrayMetadata>),
    /// A group.
    Group(Box<GroupMetadata>),
}

impl NodeMetadata {
    /// The node that the documents describe; `None` if they describe none. v3 goes before v2 and arrays before groups, as in
    /// zarr-python.
    pub fn from_documents(documents: &Documents<'_>) -> Result<Option<NodeMetadata>> {
        let Some(found) = NodeDocuments::parse(documents)? else { return Ok(None) };
        let name = found.name();
        found.check().map(Some).at(|| name)
    }

    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&ArrayMetadata> {
        match self {
            NodeMetadata::Array(array) => Some(array),
            NodeMetadata::Group(_) => None,
        }
    }

    /// The group, if it is one.
    pub fn as_group(&self) -> Option<&GroupMetadata> {
        match self {
            NodeMetadata::Array(_) => None,
            NodeMetadata::Group(group) => Some(group),
        }
    }

    /// The format of the documents.
    pub fn zarr_format(&self) -> ZarrFormat {
        match self {
            NodeMetadata::Array(array) => array.zarr_format(),
            NodeMetadata::Group(group) => group.zarr_format(),
        }
    }

    /// The user's attributes.
    pub fn attributes(&self) -> &Map<String, Value> {
        match self {
            NodeMetadata::Array(array) => array.attributes(),
            NodeMetadata::Group(group) => group.attributes(),
        }
    }

    /// Every document to store: its name below the node's path, and its bytes.
    pub fn documents(&self) -> Vec<(&'static str, Vec<u8>)> {
        match self {
            NodeMetadata::Array(array) => array.documents(),
            NodeMetadata::Group(group) => group.documents(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    const ARRAY_V3: &[u8] = br#"{
        "zarr_format": 3, "node_type": "array", "shape": [], "data_type": "int8", "fill_value": 1, "codecs": ["bytes"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}, "chunk_key_encoding": "default"
    }"#;
    const ARRAY_V2: &[u8] =
        br#"{"zarr_format": 2, "shape": [], "chunks": [], "dtype": "|i1", "fill_value": 1, "order": "C"}"#;
    const GROUP_V3: &[u8] = br#"{"zarr_format": 3, "node_type": "group"}"#;
    const GROUP_V2: &[u8] = br#"{"zarr_format": 2}"#;

    fn read(documents: &[(&str, &[u8])]) -> Result<Option<NodeMetadata>> {
        let mut found = Documents::default();
        for &(name, bytes) in documents {
            found.set(name, bytes);
        }
        NodeMetadata::from_documents(&found)
    }

    #[test]
    fn nothing_describes_nothing() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ZATTRS, b"{}"), (ZMETADATA, b"{}"), ("readme", b"")]).unwrap().is_none());
    }

    #[test]
    fn newer_formats_and_arrays_go_first() {
        let all = [(ZGROUP, GROUP_V2), (ZARRAY, ARRAY_V2), (ZARR_JSON, GROUP_V3)];
        let node = read(&all).unwrap().unwrap();
        assert_eq!((node.zarr_format(), node.as_array().is_none()), (ZarrFormat::V3, true));
        let node = read(&all[..2]).unwrap().unwrap();
        assert_eq!((node.zarr_format(), node.as_group().is_none()), (ZarrFormat::V2, true));
        let node = read(&[(ZGROUP, GROUP_V2), (ZATTRS, br#"{"a": 1}"#)]).unwrap().unwrap();
        assert_eq!(node.as_group().unwrap().attributes()["a"], 1);
        assert!(read(&[(ZARR_JSON, ARRAY_V3)]).unwrap().unwrap().as_array().is_some());
    }

    #[test]
    fn errors_name_the_document() {
        for (documents, place) in [
            (vec![(ZARR_JSON, b"[]".as_slice())], ZARR_JSON),
            (vec![(ZARR_JSON, br#"{"zarr_format": 3, "node_type": "matrix"}"#)], ZARR_JSON),
            (vec![(ZARR_JSON, br#"{"zarr_format": 3}"#)], ZARR_JSON),
            (vec![(ZARR_JSON, GROUP_V2)], ZARR_JSON),
            (vec![(ZARRAY, GROUP_V2)], ZARRAY),
            (vec![(ZGROUP, GROUP_V3)], ZGROUP),
            (vec![(ZGROUP, GROUP_V2), (ZATTRS, b"3")], ZGROUP),
            (vec![(ZGROUP, GROUP_V2), (ZMETADATA, b"{}")], ZGROUP),
        ] {
            let error = read(&documents).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MetadataInvalid, "{error}");
            assert_eq!(error.trail()[0], place, "{error}");
        }
    }

    #[test]
    fn documents_of_a_v3_group_keep_optional_members() {
        let text = br#"{"zarr_format": 3, "x": {"must_understand": false}, "node_type": "group", "attributes": {}}"#;
        let documents = read(&[(ZARR_JSON, text)]).unwrap().unwrap().documents();
        assert_eq!(documents.len(), 1);
        assert_eq!(Json::parse(&documents[0].1).unwrap(), Json::parse(text).unwrap());
        let surprise = br#"{"zarr_format": 3, "x": 1, "node_type": "group", "attributes": {}}"#;
        assert_eq!(read(&[(ZARR_JSON, surprise)]).unwrap_err().kind(), ErrorKind::UnsupportedFeature);
    }
}
