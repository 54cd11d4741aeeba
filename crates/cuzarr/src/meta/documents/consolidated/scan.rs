//! Finds where the entries of consolidated metadata lie in the text of a document.

use std::borrow::Cow;
use std::ops::Range;

use indexmap::IndexMap;
use serde_json::Value;

use super::{Entry, MAX_DEPTH, normal};
use crate::meta::documents::node_type;
use crate::meta::json::{Json, Parser, Text};
use crate::meta::names::{CONSOLIDATED, ZARRAY, ZATTRS, ZGROUP};
use crate::meta::{ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The contents of consolidated metadata, as ranges in its text. Only its JSON syntax was checked.
#[derive(Default)]
pub(super) struct Scan<'a> {
    /// The value of the member that states the layout of the entries: `kind` in v3, `zarr_consolidated_format` in v2.
    form: Option<Json>,
    metadata: Option<Metadata<'a>>,
}

/// Where the member `metadata` lies in the text, and its members if it is an object.
struct Metadata<'a> {
    place: Range<usize>,
    members: Option<Vec<Member<'a>>>,
}

/// One member of the object `metadata`: an entry, or one document of it in v2.
pub(super) struct Member<'a> {
    /// Offset in the text at which the member's name begins.
    pub start: usize,
    pub name: Cow<'a, str>,
    pub value: Range<usize>,
    is_object: bool,
    /// The range in the text where the value of this entry's member `node_type` lies, if the entry has that member.
    node_type: Option<Range<usize>>,
}

impl<'a> Scan<'a> {
    /// Reads consolidated metadata at the position of `parser`. If it is not an object, returns `None` and does not
    /// advance.
    pub fn of(format: ZarrFormat, parser: &mut Parser<'a>) -> Result<Option<Scan<'a>>> {
        let form = match format {
            ZarrFormat::V2 => "zarr_consolidated_format",
            ZarrFormat::V3 => "kind",
        };
        let mut scan = Scan::default();
        let found = parser.object(|parser, _, name| {
            match &*name {
                name if name == form => scan.form = Some(parser.value()?),
                "metadata" => scan.metadata = Some(Metadata::of(parser)?),
                _ => {
                    parser.pass()?;
                }
            }
            Ok(())
        })?;
        Ok(found.map(|_| scan))
    }

    /// Returns where the member `metadata` lies in the text, and the members inside it.
    ///
    /// # Errors
    /// `UnsupportedFeature`, `MetadataInvalid` when it has another form.
    pub fn members(self, format: ZarrFormat, text: &str) -> Result<(Range<usize>, Vec<Member<'a>>)> {
        let form = self.form.as_ref().map_or(Value::Null, Json::to_value);
        match format {
            ZarrFormat::V2 if form.as_u64() != Some(1) => {
                return Err(invalid("zarr_consolidated_format", &form, "1"));
            }
            ZarrFormat::V3 if form != "inline" => {
                let message = format!("member '{CONSOLIDATED}.kind': got {form}, expected \"inline\"");
                return Err(Error::new(ErrorKind::UnsupportedFeature, message));
            }
            _ => {}
        }
        let name = match format {
            ZarrFormat::V2 => "metadata",
            ZarrFormat::V3 => "consolidated_metadata.metadata",
        };
        match self.metadata {
            Some(Metadata { place, members: Some(members) }) => Ok((place, members)),
            Some(Metadata { place, .. }) => Err(invalid(name, &value_at(text, &place)?, "an object")),
            None => Err(invalid(name, &Value::Null, "an object")),
        }
    }
}

impl<'a> Metadata<'a> {
    fn of(parser: &mut Parser<'a>) -> Result<Metadata<'a>> {
        let mut members = Vec::new();
        let place = parser.object(|parser, start, name| {
            let mut node_type = None;
            let object = parser.object(|parser, _, name| {
                let place = parser.pass()?;
                if name == "node_type" {
                    node_type = Some(place);
                }
                Ok(())
            })?;
            let is_object = object.is_some();
            let value = object.map_or_else(|| parser.pass(), Ok)?;
            members.push(Member { start, name, value, is_object, node_type });
            Ok(())
        })?;
        Ok(match place {
            Some(place) => Metadata { place, members: Some(members) },
            None => Metadata { place: parser.pass()?, members: None },
        })
    }
}

fn value_at(text: &str, place: &Range<usize>) -> Result<Value> {
    Ok(Json::parse(text[place.clone()].as_bytes())?.to_value())
}

/// Finds the documents of each node in the text, by the node's path. Checks everything that can be checked without
/// parsing documents.
pub(super) fn entries(format: ZarrFormat, text: &Text) -> Result<IndexMap<String, Entry>> {
    let scan = text.read(|parser| Scan::of(format, parser))?.unwrap_or_default();
    let source = text.document();
    let (_, members) = scan.members(format, source)?;
    match format {
        ZarrFormat::V2 => v2_entries(members, source),
        ZarrFormat::V3 => v3_entries(members, source),
    }
}

fn v3_entries(members: Vec<Member<'_>>, source: &str) -> Result<IndexMap<String, Entry>> {
    let mut entries = IndexMap::with_capacity(members.len());
    for member in members {
        let path = normal(&member.name);
        if path.is_empty() {
            continue;
        }
        let check = || {
            check_depth(&path)?;
            if !member.is_object {
                return Err(invalid("metadata", &value_at(source, &member.value)?, "an object"));
            }
            // Almost all documents have these exact words. Others are parsed.
            match member.node_type.as_ref().map(|place| &source[place.clone()]) {
                Some("\"array\"") => Ok(true),
                Some("\"group\"") => Ok(false),
                other => {
                    let other = other.map(|text| Json::parse(text.as_bytes())).transpose()?;
                    Ok(node_type(other.as_ref())? == "array")
                }
            }
        };
        let is_array = check().at(|| format!("consolidated metadata of '{path}'"))?;
        entries.insert(path.into_owned(), Entry::Found { is_array, document: member.value, zattrs: None });
    }
    Ok(entries)
}

fn v2_entries(members: Vec<Member<'_>>, source: &str) -> Result<IndexMap<String, Entry>> {
    let mut found: IndexMap<String, [Option<Range<usize>>; 3]> = IndexMap::with_capacity(members.len() / 2);
    for member in members {
        let (path, name) = split(&member.name);
        let path = normal(path);
        check_depth(&path).at(|| format!("consolidated metadata of '{path}'"))?;
        let (Some(kind), true) = (document_kind(name), member.is_object) else {
            let expected = "an object under a key that ends with .zarray, .zgroup or .zattrs";
            return Err(invalid(&format!("metadata.{}", member.name), &value_at(source, &member.value)?, expected));
        };
        match found.get_mut(&*path) {
            Some(documents) => documents[kind] = Some(member.value),
            None => {
                let mut documents = [None, None, None];
                documents[kind] = Some(member.value);
                found.insert(path.into_owned(), documents);
            }
        }
    }
    let mut entries = IndexMap::with_capacity(found.len());
    for (path, [zarray, zgroup, zattrs]) in found {
        let is_array = zarray.is_some();
        // Attributes without a document describe no node.
        if let (false, Some(document)) = (path.is_empty(), zarray.or(zgroup)) {
            entries.insert(path, Entry::Found { is_array, document, zattrs });
        }
    }
    Ok(entries)
}

/// Splits a key of `.zmetadata` into the path of a node and the name of its document.
pub(super) fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// The kind of a v2 document by its name: 0 for an array's, 1 for a group's, 2 for attributes; `None` for other names.
pub(super) fn document_kind(name: &str) -> Option<usize> {
    [ZARRAY, ZGROUP, ZATTRS].iter().position(|known| *known == name)
}

/// Refuses a path of more names than a node can have. A hierarchy is listed level by level, and no real store has so
/// many levels.
fn check_depth(path: &str) -> Result<()> {
    match path.split('/').count() {
        depth if depth <= MAX_DEPTH => Ok(()),
        depth => {
            let message = format!("got a path of {depth} names, expected at most {MAX_DEPTH}");
            Err(Error::new(ErrorKind::MetadataInvalid, message))
        }
    }
}
