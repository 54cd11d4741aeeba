//! Construction of metadata from settings, or from the bytes of documents.

use serde_json::{Map, Value};

use super::array::{ArrayMetadata, CodecsMetadata, NewArray};
use super::documents::NodeDocuments;
use super::documents::consolidated::StoredCopy;
use super::group::GroupMetadata;
use super::json::{Json, Object, Text, object_from_map};
use super::{ZarrFormat, names, v2, v3};
use crate::{Result, ResultExt};

impl ArrayMetadata {
    /// Parses the bytes of a v3 `zarr.json`.
    pub fn from_json(zarr_json: &[u8]) -> Result<Self> {
        v3::parse_array(Json::parse_object(zarr_json)?)
    }

    /// Parses the bytes of a v2 `.zarray`, and of `.zattrs` if there is one.
    pub fn from_json_v2(zarray: &[u8], zattrs: Option<&[u8]>) -> Result<Self> {
        v2::parse_array(Json::parse_object(zarray)?, parse_zattrs(zattrs)?)
    }

    /// Makes the metadata of a new array. The settings are checked as if they had been read from a document.
    pub fn new(new: NewArray) -> Result<Self> {
        match &new.codecs {
            CodecsMetadata::V3(codecs) => v3::parse_array(v3::array_document(&new, codecs)?),
            CodecsMetadata::V2 { .. } => v2::parse_array(v2::array_document(&new)?, object_from_map(&new.attributes)?),
        }
    }
}

impl GroupMetadata {
    /// Makes the metadata of a new group.
    pub fn new(format: ZarrFormat, attributes: Map<String, Value>) -> Result<Self> {
        let members = object_from_map(&attributes)?;
        match format {
            ZarrFormat::V2 => v2::parse_group(v2::group_document(), members),
            ZarrFormat::V3 => v3::parse_group(v3::group_document(members)),
        }
    }

    /// Parses the bytes of a v3 `zarr.json`.
    pub fn from_json(zarr_json: &[u8]) -> Result<Self> {
        NodeDocuments::parse_v3(zarr_json)?.check_group()
    }

    /// Parses the bytes of a v2 `.zgroup`, and of `.zattrs` and `.zmetadata` if they exist.
    pub fn from_json_v2(zgroup: &[u8], zattrs: Option<&[u8]>, zmetadata: Option<&[u8]>) -> Result<Self> {
        let document = Json::parse_object(zgroup)?;
        let mut node = NodeDocuments::v2(false, document, Some(parse_zattrs(zattrs)?));
        let copy = zmetadata.map(|bytes| Text::of_object(bytes).at(|| names::ZMETADATA)).transpose()?;
        node.copy = copy.map(StoredCopy::Text);
        node.check_group()
    }
}

/// Parses the members of `.zattrs`; empty if there is no such document.
fn parse_zattrs(zattrs: Option<&[u8]>) -> Result<Object> {
    zattrs.map_or_else(|| Ok(Object::new()), |bytes| Json::parse_object(bytes).at(|| names::ZATTRS))
}
