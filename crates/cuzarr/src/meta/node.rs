//! Conversion between the documents of a node and the metadata of an array or a group.

use serde_json::{Map, Value};

use super::array::ArrayMetadata;
use super::documents::consolidated::{Consolidated, StoredCopy};
use super::documents::node_type;
pub use super::documents::{Documents, NodeDocuments};
use super::group::GroupMetadata;
use super::json::{Json, Object, object_to_map};
use super::names::CONSOLIDATED;
pub use super::names::{DOCUMENT_NAMES, UNFINISHED, ZARR_JSON, ZARRAY, ZATTRS, ZGROUP, ZMETADATA, document_names, key};
use super::outline::Outline;
use super::{ZarrFormat, invalid, v2, v3};
use crate::{Result, ResultExt};

impl NodeDocuments {
    /// The user's attributes, if the documents have any.
    pub fn attributes(&self) -> Option<&Object> {
        match self.format {
            ZarrFormat::V2 => self.zattrs.as_ref(),
            ZarrFormat::V3 => match self.document.get("attributes") {
                Some(Json::Object(attributes)) => Some(attributes),
                _ => None,
            },
        }
    }

    /// The user's attributes, to be changed in place. If there are none, adds empty ones.
    ///
    /// # Errors
    /// `MetadataInvalid` when they are not a JSON object.
    pub fn attributes_mut(&mut self) -> Result<&mut Object> {
        if self.format == ZarrFormat::V2 {
            return Ok(self.zattrs.get_or_insert_default());
        }
        let member = self.document.entry("attributes".into()).or_insert(Json::Null);
        if *member == Json::Null {
            *member = Json::Object(Object::new());
        }
        match member {
            Json::Object(attributes) => Ok(attributes),
            other => Err(invalid("attributes", &other.to_value(), "an object")),
        }
    }

    /// The name of the unfinished work that writes this node, such as `copy`.
    pub fn unfinished_work(&self) -> Option<&str> {
        match self.attributes()?.get(UNFINISHED)? {
            Json::Object(mark) => match mark.get("work") {
                Some(Json::String(work)) => Some(work),
                _ => Some("work"),
            },
            _ => Some("work"),
        }
    }

    /// Sets `mark` as the mark of unfinished work below this group, or removes it (`None`).
    ///
    /// # Errors
    /// `MetadataInvalid` when the attributes are not a JSON object, or the mark is nested too deeply.
    pub fn set_unfinished(&mut self, mark: Option<&Value>) -> Result<()> {
        self.set_attribute(UNFINISHED, mark).map(drop)
    }

    /// Sets one attribute to a value, or deletes it (`None`). Returns whether it existed.
    ///
    /// # Errors
    /// `MetadataInvalid` when the attributes are not a JSON object, or the value is nested too deeply.
    pub fn set_attribute(&mut self, name: &str, value: Option<&Value>) -> Result<bool> {
        let value = value.map(Json::from_value).transpose()?;
        let attributes = self.attributes_mut()?;
        Ok(match value {
            Some(value) => attributes.insert(name.into(), value).is_some(),
            None => attributes.shift_remove(name).is_some(),
        })
    }

    /// Replaces the user's attributes with those of other documents.
    ///
    /// # Errors
    /// `MetadataInvalid` when the attributes are not a JSON object.
    pub fn take_attributes_of(&mut self, other: &NodeDocuments) -> Result<()> {
        *self.attributes_mut()? = other.attributes().cloned().unwrap_or_default();
        Ok(())
    }

    /// Removes the consolidated metadata from a group's documents, and returns it; `None` if there is none.
    ///
    /// # Errors
    /// `MetadataInvalid` and `UnsupportedFeature` when it has an unknown form.
    pub fn take_consolidated(&mut self) -> Result<Option<Consolidated>> {
        let found = self.open_copy().at(|| if self.format == ZarrFormat::V3 { ZARR_JSON } else { ZMETADATA })?;
        if !self.is_array {
            self.document.shift_remove(CONSOLIDATED);
        }
        Ok(found)
    }

    fn open_copy(&mut self) -> Result<Option<Consolidated>> {
        match (self.copy.take(), self.document.get(CONSOLIDATED)) {
            (Some(copy), _) => copy.open(self.format).map(Some),
            (None, Some(odd)) if self.format == ZarrFormat::V3 && !self.is_array && *odd != Json::Null => {
                Err(invalid(CONSOLIDATED, &odd.to_value(), "an object"))
            }
            (None, _) => Ok(None),
        }
    }

    /// Puts consolidated metadata into a group's documents.
    pub fn set_consolidated(&mut self, consolidated: Consolidated) {
        if self.format == ZarrFormat::V3 {
            self.document.insert(CONSOLIDATED.into(), Json::Null);
        }
        self.copy = Some(StoredCopy::Open(consolidated));
    }

    /// The shape, chunks and dimension names of the array that these documents describe.
    ///
    /// # Errors
    /// `MetadataInvalid` and `UnsupportedFeature` for the members that the outline needs.
    pub fn outline(&self) -> Result<Outline> {
        let members = object_to_map(&self.document);
        match self.format {
            ZarrFormat::V2 => v2::parse_outline(&members),
            ZarrFormat::V3 => v3::parse_outline(&members),
        }
    }

    /// Checks the documents, and returns the metadata that they describe.
    ///
    /// # Errors
    /// `MetadataInvalid`, `UnsupportedFeature`, `UnknownDataType`.
    pub fn check(self) -> Result<NodeMetadata> {
        Ok(match (self.format, self.is_array) {
            (ZarrFormat::V3, _) => match node_type(self.document.get("node_type"))? {
                "array" => NodeMetadata::Array(Box::new(v3::parse_array(self.document)?)),
                _ => NodeMetadata::Group(Box::new(self.check_group()?)),
            },
            (ZarrFormat::V2, true) => {
                NodeMetadata::Array(Box::new(v2::parse_array(self.document, self.zattrs.unwrap_or_default())?))
            }
            (ZarrFormat::V2, false) => NodeMetadata::Group(Box::new(self.check_group()?)),
        })
    }

    /// Checks the documents of a group, and returns the metadata that they describe.
    pub(super) fn check_group(mut self) -> Result<GroupMetadata> {
        let consolidated = self.open_copy();
        let group = match self.format {
            ZarrFormat::V2 => v2::parse_group(self.document, self.zattrs.unwrap_or_default())?,
            ZarrFormat::V3 => v3::parse_group(self.document)?,
        };
        let consolidated = if self.format == ZarrFormat::V2 { consolidated.at(|| ZMETADATA) } else { consolidated };
        Ok(GroupMetadata { consolidated: consolidated?, ..group })
    }
}

impl Consolidated {
    /// Checks and returns the metadata of the node at `path`; `None` if there is no such node. A group gets the
    /// consolidated metadata of the nodes below it.
    pub fn node(&self, path: &str) -> Result<Option<NodeMetadata>> {
        let mut node = self.node_alone(path)?;
        if let Some(NodeMetadata::Group(group)) = &mut node {
            group.set_consolidated(Some(self.under(path))).at(|| format!("consolidated metadata of '{path}'"))?;
        }
        Ok(node)
    }

    /// Like [`node`](Self::node), but a group comes without the metadata of the nodes below it. Finding them would take
    /// a look at all paths.
    pub fn node_alone(&self, path: &str) -> Result<Option<NodeMetadata>> {
        let place = || format!("consolidated metadata of '{path}'");
        let Some(node) = self.documents(path).at(place)? else {
            return Ok(None);
        };
        node.alone().check().map(Some).at(place)
    }
}

impl From<&NodeMetadata> for NodeDocuments {
    fn from(node: &NodeMetadata) -> Self {
        let (format, document, zattrs, consolidated) = match node {
            NodeMetadata::Array(array) => (array.format, &array.document, &array.zattrs, None),
            NodeMetadata::Group(group) => (group.format, &group.document, &group.zattrs, group.consolidated.clone()),
        };
        let copy = consolidated.map(StoredCopy::Open);
        if format == ZarrFormat::V3 {
            return NodeDocuments::v3(document.clone(), copy);
        }
        let is_array = node.as_array().is_some();
        NodeDocuments { copy, ..NodeDocuments::v2(is_array, document.clone(), Some(zattrs.clone())) }
    }
}

/// Metadata of an array or a group.
#[derive(Clone, Debug)]
pub enum NodeMetadata {
    /// The metadata of an array.
    Array(Box<ArrayMetadata>),
    /// The metadata of a group.
    Group(Box<GroupMetadata>),
}

impl NodeMetadata {
    /// Parses and checks the node that the documents describe; `None` if they describe no node. v3 takes precedence
    /// over v2, and arrays over groups, as in zarr-python.
    pub fn from_documents(documents: &Documents<'_>) -> Result<Option<NodeMetadata>> {
        let Some(found) = NodeDocuments::parse(documents)? else { return Ok(None) };
        let name = found.name();
        found.check().map(Some).at(|| name)
    }

    /// The metadata if this is an array; else `None`.
    pub fn as_array(&self) -> Option<&ArrayMetadata> {
        match self {
            NodeMetadata::Array(array) => Some(array),
            NodeMetadata::Group(_) => None,
        }
    }

    /// The metadata if this is a group; else `None`.
    pub fn as_group(&self) -> Option<&GroupMetadata> {
        match self {
            NodeMetadata::Array(_) => None,
            NodeMetadata::Group(group) => Some(group),
        }
    }

    /// The Zarr format of the array or group: v2 or v3.
    pub fn zarr_format(&self) -> ZarrFormat {
        match self {
            NodeMetadata::Array(array) => array.zarr_format(),
            NodeMetadata::Group(group) => group.zarr_format(),
        }
    }

    /// The attributes that the user gave the array or group.
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
