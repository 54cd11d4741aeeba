//! Metadata of one group.

use serde_json::{Map, Value};

use super::array::{INDENT, attributes_member, to_bytes};
use super::documents::consolidated::Consolidated;
use super::documents::v3_to_text;
use super::json::{Json, Object, object_from_map, object_to_map, object_to_text};
use super::names::CONSOLIDATED;
use super::{ZarrFormat, names};
use crate::{Error, ErrorKind, Result};

/// Checked metadata of one group, with the documents from which it was read.
#[derive(Clone, Debug)]
pub struct GroupMetadata {
    pub(super) format: ZarrFormat,
    pub(super) attributes: Map<String, Value>,
    pub(super) consolidated: Option<Consolidated>,
    /// The content of `zarr.json` or `.zgroup` that will be stored, with `null` in place of the consolidated metadata.
    pub(super) document: Object,
    /// The content of `.zattrs` that will be stored; unused in v3.
    pub(super) zattrs: Object,
}

impl GroupMetadata {
    /// The Zarr format of the group: v2 or v3.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// The attributes that the user gave the group, without Zarr's own metadata. Numbers that are not finite are
    /// strings here; see [`ArrayMetadata::attributes`](super::ArrayMetadata::attributes).
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
    }

    /// The user's attributes as JSON text. Numbers are spelled as they were written.
    pub fn attributes_json(&self) -> String {
        let members = match self.format {
            ZarrFormat::V2 => Some(&self.zattrs),
            ZarrFormat::V3 => attributes_member(&self.document),
        };
        members.map_or_else(|| "{}".to_owned(), |members| object_to_text(members, None))
    }

    /// The consolidated metadata of all nodes below this group, if it has any.
    pub fn consolidated(&self) -> Option<&Consolidated> {
        self.consolidated.as_ref()
    }

    /// The mark at the root of a hierarchy while a copy or a pyramid is being written there; `None` if nothing is.
    pub fn unfinished(&self) -> Option<&Value> {
        self.attributes.get(names::UNFINISHED)
    }

    /// The name of the unfinished work that writes this group and the nodes below it, such as `copy`.
    pub fn unfinished_work(&self) -> Option<&str> {
        names::unfinished_work(&self.attributes)
    }

    /// Replaces all attributes of the group.
    pub fn set_attributes(&mut self, attributes: Map<String, Value>) -> Result<()> {
        self.replace_attributes(object_from_map(&attributes)?)
    }

    /// Replaces all attributes of the group with the members of the JSON object in `text`. Numbers keep their spelling,
    /// including `NaN`.
    pub fn set_attributes_json(&mut self, text: &str) -> Result<()> {
        self.replace_attributes(Json::parse_object(text.as_bytes())?)
    }

    /// Sets `mark` as the mark of unfinished work below this group, or removes it (`None`). Other attributes stay as
    /// they are written.
    pub fn set_unfinished(&mut self, mark: Option<&Value>) -> Result<()> {
        let mut attributes = Json::parse_object(self.attributes_json().as_bytes())?;
        match mark {
            Some(mark) => drop(attributes.insert(names::UNFINISHED.into(), Json::from_value(mark)?)),
            None => drop(attributes.shift_remove(names::UNFINISHED)),
        }
        self.replace_attributes(attributes)
    }

    fn replace_attributes(&mut self, attributes: Object) -> Result<()> {
        self.attributes = object_to_map(&attributes);
        match self.format {
            ZarrFormat::V2 => self.zattrs = attributes,
            ZarrFormat::V3 => drop(self.document.insert("attributes".into(), Json::Object(attributes))),
        }
        Ok(())
    }

    /// Replaces or removes the consolidated metadata. It must have the group's format.
    pub fn set_consolidated(&mut self, consolidated: Option<Consolidated>) -> Result<()> {
        if let Some(other) =
            consolidated.as_ref().map(Consolidated::zarr_format).filter(|format| *format != self.format)
        {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("consolidated metadata: got format {}, expected {}", other.number(), self.format.number()),
            ));
        }
        if self.format == ZarrFormat::V3 {
            match consolidated {
                None => drop(self.document.shift_remove(CONSOLIDATED)),
                Some(_) => drop(self.document.insert(CONSOLIDATED.into(), Json::Null)),
            }
        }
        self.consolidated = consolidated;
        Ok(())
    }

    /// The content of `zarr.json` or `.zgroup` in bytes.
    pub fn to_json(&self) -> Vec<u8> {
        let copy = self.consolidated.as_ref().filter(|_| self.format == ZarrFormat::V3);
        v3_to_text(&self.document, copy.map(|copy| copy.to_v3(INDENT)).as_deref(), INDENT).into_bytes()
    }

    /// Every document to store: its name below the group's path, and its bytes.
    pub fn documents(&self) -> Vec<(&'static str, Vec<u8>)> {
        if self.format == ZarrFormat::V3 {
            return vec![(names::ZARR_JSON, self.to_json())];
        }
        let mut documents = vec![(names::ZGROUP, self.to_json()), (names::ZATTRS, to_bytes(&self.zattrs))];
        let zmetadata = self.consolidated.as_ref().map(|copy| copy.to_v2(&self.document, &self.zattrs));
        documents.extend(zmetadata.map(|text| (names::ZMETADATA, text.into_bytes())));
        documents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attributes(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn new_groups_read_back() {
        let v3 = GroupMetadata::new(ZarrFormat::V3, attributes(json!({"a": [1.5]}))).unwrap();
        let expected = json!({"attributes": {"a": [1.5]}, "zarr_format": 3, "node_type": "group"});
        assert_eq!(serde_json::from_slice::<Value>(&v3.to_json()).unwrap(), expected);
        assert_eq!(GroupMetadata::from_json(&v3.to_json()).unwrap().attributes(), v3.attributes());

        let v2 = GroupMetadata::new(ZarrFormat::V2, attributes(json!({"a": 1}))).unwrap();
        let [(zgroup, group), (zattrs, attrs)] = &v2.documents()[..] else { panic!("two documents") };
        assert_eq!((*zgroup, *zattrs), (names::ZGROUP, names::ZATTRS));
        let read = GroupMetadata::from_json_v2(group, Some(attrs), None).unwrap();
        assert_eq!(read.attributes_json(), r#"{"a": 1}"#);
    }

    #[test]
    fn attributes_are_replaced_in_their_place() {
        let text = br#"{"zarr_format": 3, "attributes": {"a": 1}, "node_type": "group"}"#;
        let mut group = GroupMetadata::from_json(text).unwrap();
        group.set_attributes(attributes(json!({"b": null}))).unwrap();
        let written = Json::parse(&group.to_json()).unwrap().to_text(None);
        assert_eq!(written, r#"{"zarr_format": 3, "attributes": {"b": null}, "node_type": "group"}"#);
        assert!(group.set_attributes_json("[]").is_err());
        assert_eq!(group.attributes_json(), r#"{"b": null}"#);
    }

    #[test]
    fn attributes_nested_too_deep_are_refused() {
        let deep = (0..500).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let error = GroupMetadata::new(ZarrFormat::V3, attributes(json!({"a": deep}))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MetadataInvalid);
    }

    #[test]
    fn consolidated_metadata_must_be_of_the_same_format() {
        let mut group = GroupMetadata::new(ZarrFormat::V2, Map::new()).unwrap();
        let other = Consolidated::from_nodes(ZarrFormat::V3, []).unwrap();
        assert_eq!(group.set_consolidated(Some(other)).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(group.documents().len(), 2);
    }
}
