//! Consolidated metadata: a copy, stored with a group, of the documents of all nodes below it. With it, one read opens
//! a hierarchy. In v3 the copy is inline in the group's `zarr.json` (an extension of zarr-python), in v2 it is
//! `.zmetadata`.
//!
//! Documents are kept as text until a node is requested. So a group of many arrays opens quickly, an array that cannot
//! be read does not affect the others, and unchanged text is written back as it was.

mod edit;
mod scan;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use super::NodeDocuments;
use crate::meta::ZarrFormat;
use crate::meta::json::{Json, Object, Part, Text, members_to_text, write_members};
use crate::meta::names::{ZARRAY, ZATTRS, ZGROUP, key};
use crate::{Error, ErrorKind, Result};
pub use edit::{EntryChange, edit_consolidated};

/// Maximum number of names in the path of a node; a longer path in consolidated metadata is refused.
const MAX_DEPTH: usize = 128;

/// Consolidated metadata: the documents of all nodes below a group, by path relative to the group.
#[derive(Clone, Debug)]
pub struct Consolidated {
    format: ZarrFormat,
    entries: Arc<IndexMap<String, Entry>>,
    /// The stored document that contains the text of all entries.
    source: Arc<str>,
    /// The text of the consolidated metadata as it was read; `None` after a change.
    unchanged: Option<Text>,
}

/// The entry of one node in consolidated metadata: where its documents are.
#[derive(Clone, Debug)]
enum Entry {
    /// The node's documents lie in the text of the stored document, at these ranges.
    Found { is_array: bool, document: Range<usize>, zattrs: Option<Range<usize>> },
    /// The node's documents are in memory, because a caller gave them.
    Given(Box<NodeDocuments>),
}

/// The consolidated metadata of a group, as text or parsed.
#[derive(Clone, Debug)]
pub(in crate::meta) enum StoredCopy {
    /// The member `consolidated_metadata` of a v3 group, or the `.zmetadata` of a v2 group.
    Text(Text),
    Open(Consolidated),
}

impl StoredCopy {
    /// Parses the consolidated metadata, if it is still text.
    ///
    /// # Errors
    /// `MetadataInvalid` and `UnsupportedFeature` when it has another form.
    pub(in crate::meta) fn open(self, format: ZarrFormat) -> Result<Consolidated> {
        match self {
            StoredCopy::Text(text) => Consolidated::parse(format, text),
            StoredCopy::Open(consolidated) => Ok(consolidated),
        }
    }

    /// The text of the `consolidated_metadata` member of a v3 group: see [`Consolidated::to_v3`].
    pub(in crate::meta) fn to_v3(&self, indent: Option<usize>) -> Cow<'_, str> {
        match self {
            StoredCopy::Text(text) => Cow::Borrowed(text.as_str()),
            StoredCopy::Open(consolidated) => consolidated.to_v3(indent),
        }
    }

    /// The text of the `.zmetadata` of a v2 group: see [`Consolidated::to_v2`].
    pub(in crate::meta) fn to_v2(&self, zgroup: &Object, zattrs: &Object) -> String {
        match self {
            StoredCopy::Text(text) => text.as_str().to_owned(),
            StoredCopy::Open(consolidated) => consolidated.to_v2(zgroup, zattrs),
        }
    }
}

/// Consolidated metadata is equal if its content is, even if the spelling differs.
impl PartialEq for StoredCopy {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (StoredCopy::Open(one), StoredCopy::Open(other)) => one == other,
            (StoredCopy::Text(one), StoredCopy::Text(other)) => {
                matches!((one.parse(), other.parse()), (Ok(one), Ok(other)) if one == other)
            }
            (StoredCopy::Open(open), StoredCopy::Text(text)) | (StoredCopy::Text(text), StoredCopy::Open(open)) => {
                Consolidated::parse(open.format, text.clone()).is_ok_and(|text| text == *open)
            }
        }
    }
}

/// Consolidated metadata is equal if its content is, even if the spelling differs.
impl PartialEq for Consolidated {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |path: &str| matches!((self.documents(path), other.documents(path)), (Ok(Some(one)), Ok(Some(other))) if one == other);
        self.format == other.format && self.entries.len() == other.entries.len() && self.paths().all(is_same)
    }
}

impl Consolidated {
    /// Makes consolidated metadata of `nodes`, given by their paths relative to the group. All must be of `format`.
    /// Sorts them by depth, then by path, as zarr-python does.
    pub fn from_nodes(format: ZarrFormat, nodes: impl IntoIterator<Item = (String, NodeDocuments)>) -> Result<Self> {
        let mut entries = IndexMap::new();
        for (path, node) in nodes {
            check_node_format(format, &path, &node)?;
            entries.insert(path, Entry::Given(Box::new(node.alone())));
        }
        entries.sort_by(|one, _, other, _| order(one).cmp(&order(other)));
        Ok(Consolidated { format, entries: Arc::new(entries), source: "".into(), unchanged: None })
    }

    /// Parses the `consolidated_metadata` member of a v3 group, or the `.zmetadata` of a v2 group. Keys with an empty
    /// path mean the group itself. They are left out, because the group's own documents are read anyway.
    pub(in crate::meta) fn parse(format: ZarrFormat, text: Text) -> Result<Self> {
        let entries = scan::entries(format, &text)?;
        let source = Arc::clone(text.document());
        Ok(Consolidated { format, entries: Arc::new(entries), source, unchanged: Some(text) })
    }

    /// The text of the `consolidated_metadata` member of a v3 group, with `indent` spaces per level or on one line.
    /// Entries that were read keep their text.
    pub(in crate::meta) fn to_v3(&self, indent: Option<usize>) -> Cow<'_, str> {
        if let Some(text) = &self.unchanged {
            return Cow::Borrowed(text.as_str());
        }
        let unit = indent.map(|width| " ".repeat(width));
        let entries = self.entries.iter().map(|(path, entry)| (path.as_str(), self.part(entry)));
        let mut metadata = String::new();
        write_members(&mut metadata, entries, unit.as_deref(), 2);
        let (kind, must_understand) = (Json::String("inline".into()), Json::Bool(false));
        let members = [
            ("kind", Part::Tree(&kind)),
            ("must_understand", Part::Tree(&must_understand)),
            ("metadata", Part::Text(&metadata)),
        ];
        let mut out = String::new();
        write_members(&mut out, members.into_iter(), unit.as_deref(), 1);
        Cow::Owned(out)
    }

    /// The text of the `.zmetadata` of a v2 group; the group's own documents are the arguments. It is on one line, like
    /// zarr-python's: it can be large, and people do not read it.
    pub(in crate::meta) fn to_v2(&self, zgroup: &Object, zattrs: &Object) -> String {
        if let Some(text) = &self.unchanged {
            let own = NodeDocuments::v2(false, zgroup.clone(), Some(zattrs.clone()));
            let change = EntryChange { path: String::new(), node: Some(own) };
            // The text that was read is edited. If that is not possible, everything is written anew.
            match edit::edit(self.format, text.as_str(), &[change]) {
                Ok(Some(edited)) => return edited,
                Ok(None) => return text.as_str().to_owned(),
                Err(_) => {}
            }
        }
        let own = [(ZGROUP.to_owned(), Part::Object(zgroup)), (ZATTRS.to_owned(), Part::Object(zattrs))];
        let below = self.entries.iter().flat_map(|(path, entry)| {
            let (name, zattrs) = match entry {
                Entry::Found { is_array: true, zattrs, .. } => (ZARRAY, zattrs.as_ref().map(|place| self.text(place))),
                Entry::Found { zattrs, .. } => (ZGROUP, zattrs.as_ref().map(|place| self.text(place))),
                Entry::Given(node) => (node.name(), node.zattrs.as_ref().map(Part::Object)),
            };
            let zattrs = zattrs.unwrap_or(Part::Text("{}"));
            [(key(path, ZATTRS), zattrs), (key(path, name), self.part(entry))]
        });
        let documents: Vec<(String, Part<'_>)> = own.into_iter().chain(below).collect();
        let mut metadata = String::new();
        write_members(&mut metadata, documents.iter().map(|(key, part)| (key.as_str(), *part)), None, 1);
        let version = Json::Number("1".into());
        let members = [("metadata", Part::Text(&metadata)), ("zarr_consolidated_format", Part::Tree(&version))];
        members_to_text(members.into_iter(), None)
    }

    fn text(&self, place: &Range<usize>) -> Part<'_> {
        Part::Text(&self.source[place.clone()])
    }

    /// The document that makes a node an array or a group, ready to be written.
    fn part<'a>(&'a self, entry: &'a Entry) -> Part<'a> {
        match entry {
            Entry::Found { document, .. } => self.text(document),
            Entry::Given(node) => Part::Object(&node.document),
        }
    }

    /// The Zarr format of the group and of all nodes below it.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// The path of every node, relative to the group, in the stored order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Parses the documents of the node at `path`; `None` if there is none.
    ///
    /// # Errors
    /// `MetadataInvalid`
    pub fn documents(&self, path: &str) -> Result<Option<NodeDocuments>> {
        let (is_array, document, zattrs) = match self.entries.get(path) {
            None => return Ok(None),
            Some(Entry::Given(node)) => return Ok(Some((**node).clone())),
            Some(Entry::Found { is_array, document, zattrs }) => (*is_array, document, zattrs),
        };
        let bytes = |place: &Range<usize>| self.source[place.clone()].as_bytes();
        if self.format == ZarrFormat::V3 {
            return NodeDocuments::parse_v3(bytes(document)).map(Some);
        }
        let zattrs = zattrs.as_ref().map(|place| Json::parse_object(bytes(place))).transpose()?;
        Ok(Some(NodeDocuments::v2(is_array, Json::parse_object(bytes(document))?, zattrs)))
    }

    /// Whether the node at `path` is an array; `None` if there is none.
    pub fn is_array(&self, path: &str) -> Option<bool> {
        self.entries.get(path).map(|entry| match entry {
            Entry::Found { is_array, .. } => *is_array,
            Entry::Given(node) => node.is_array(),
        })
    }

    /// The names of the nodes directly below `path`. `""` is the group itself.
    pub fn children<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.paths().filter_map(move |it| below(it, path)).filter(|name| !name.contains('/'))
    }

    /// Whether there is a node at or below `path`.
    pub fn has_any(&self, path: &str) -> bool {
        self.paths().any(|other| is_at_or_below(other, path))
    }

    /// Returns a copy without the nodes at and below `path`.
    #[must_use]
    pub fn without(&self, path: &str) -> Consolidated {
        let rest = self.entries.iter().filter(|(other, _)| !is_at_or_below(other, path));
        self.changed(rest.map(|(path, entry)| (path.clone(), entry.clone())).collect())
    }

    /// Returns a copy in which `node` is the node at `path`. The node must have the same format.
    #[must_use]
    pub fn with(&self, path: &str, node: NodeDocuments) -> Consolidated {
        let mut entries = (*self.entries).clone();
        entries.insert(path.to_owned(), Entry::Given(Box::new(node.alone())));
        entries.sort_by(|one, _, other, _| order(one).cmp(&order(other)));
        self.changed(entries)
    }

    /// Returns a copy with only the nodes below `path`, with paths relative to it.
    pub fn under(&self, path: &str) -> Consolidated {
        let part = |(it, entry): (&String, &Entry)| below(it, path).map(|rest| (rest.to_owned(), entry.clone()));
        self.changed(self.entries.iter().filter_map(part).collect())
    }

    fn changed(&self, entries: IndexMap<String, Entry>) -> Consolidated {
        Consolidated {
            format: self.format,
            entries: Arc::new(entries),
            source: Arc::clone(&self.source),
            unchanged: None,
        }
    }
}

/// Refuses a node whose format differs from that of the group.
fn check_node_format(format: ZarrFormat, path: &str, node: &NodeDocuments) -> Result<()> {
    let (got, expected) = (node.zarr_format().number(), format.number());
    if got == expected {
        return Ok(());
    }
    let message = format!("node '{path}': got format {got}, expected {expected}");
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// The sort key of a path: by depth, then by path, as in zarr-python.
fn order(path: &str) -> (usize, &str) {
    (path.matches('/').count(), path)
}

/// The rest of `path` after `group`; `None` if the path does not lie below the group.
fn below<'a>(path: &'a str, group: &str) -> Option<&'a str> {
    match group {
        "" => Some(path),
        _ => path.strip_prefix(group)?.strip_prefix('/'),
    }
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path == above || below(path, above).is_some()
}

/// Removes slashes at both ends of `path`, and empty names inside it.
fn normal(path: &str) -> Cow<'_, str> {
    match path.split('/').all(|name| !name.is_empty()) {
        true => Cow::Borrowed(path),
        false => Cow::Owned(path.split('/').filter(|name| !name.is_empty()).collect::<Vec<_>>().join("/")),
    }
}

#[cfg(test)]
mod tests;
