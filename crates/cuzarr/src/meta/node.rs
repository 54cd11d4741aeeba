//! Which documents describe a node, and what they say together.

use serde_json::{Map, Value};

use super::json::Json;
use super::{ArrayMetadata, GroupMetadata, ZarrFormat, v3};
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
        if let Some(bytes) = documents.zarr_json {
            let document = Json::parse_object(bytes).at(|| ZARR_JSON)?;
            let node = match v3::node_type(&document).at(|| ZARR_JSON)? {
                "array" => v3::parse_array(document).map(|array| NodeMetadata::Array(Box::new(array))),
                _ => v3::parse_group(document).map(|group| NodeMetadata::Group(Box::new(group))),
            };
            return node.map(Some).at(|| ZARR_JSON);
        }
        if let Some(bytes) = documents.zarray {
            let array = ArrayMetadata::from_json_v2(bytes, documents.zattrs).at(|| ZARRAY)?;
            return Ok(Some(NodeMetadata::Array(Box::new(array))));
        }
        if let Some(bytes) = documents.zgroup {
            let group = GroupMetadata::from_json_v2(bytes, documents.zattrs, documents.zmetadata).at(|| ZGROUP)?;
            return Ok(Some(NodeMetadata::Group(Box::new(group))));
        }
        Ok(None)
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
