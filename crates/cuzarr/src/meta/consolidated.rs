//! Consolidated metadata: the documents of everything below a group, kept with the group so that opening a hierarchy
//! takes one read. v3 keeps them inline in the group's `zarr.json` (zarr-python's extension), v2 in `.zmetadata`.
//!
//! Documents are only taken apart when a node is asked for: one array that cannot be read does not close the others.

use indexmap::IndexMap;
use serde_json::Value;

use super::documents::{NodeDocuments, node_type};
use super::json::{Json, Object};
use super::names::{ZARRAY, ZATTRS, ZGROUP};
use super::{ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result, ResultExt};

/// The most names of a path.
const MAX_DEPTH: usize = 128;

/// The documents of the nodes below a group, by their path relative to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Consolidated {
    format: ZarrFormat,
    pub(super) entries: IndexMap<String, NodeDocuments>,
}

impl Consolidated {
    /// Consolidates `nodes`, which are given by their path relative to the group and must all be of `format`. Sorted by
    /// depth, then by path, as zarr-python does.
    pub fn from_nodes(format: ZarrFormat, nodes: impl IntoIterator<Item = (String, NodeDocuments)>) -> Result<Self> {
        let mut entries = IndexMap::new();
        for (path, node) in nodes {
            if node.zarr_format() != format {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("node '{path}': got format {}, expected {}", node.zarr_format().number(), format.number()),
                ));
            }
            entries.insert(path, node.alone());
        }
        let mut consolidated = Consolidated { format, entries };
        consolidated.sort();
        Ok(consolidated)
    }

    /// From the `consolidated_metadata` member of a v3 group.
    pub(super) fn from_v3(value: Json) -> Result<Self> {
        const MEMBER: &str = "consolidated_metadata";
        let Json::Object(mut members) = value else {
            return Err(invalid(MEMBER, &value.to_value(), "an object"));
        };
        match members.get("kind") {
            Some(Json::String(kind)) if kind == "inline" => {}
            kind => {
                let got = kind.map_or(Value::Null, Json::to_value);
                return Err(Error::new(
                    ErrorKind::UnsupportedFeature,
                    format!("member '{MEMBER}.kind': got {got}, expected \"inline\""),
                ));
            }
        }
        let documents = match members.swap_remove("metadata") {
            Some(Json::Object(documents)) => documents,
            other => {
                let got = other.as_ref().map_or(Value::Null, Json::to_value);
                return Err(invalid("consolidated_metadata.metadata", &got, "an object"));
            }
        };
        let mut entries = IndexMap::with_capacity(documents.len());
        for (path, document) in documents {
            let place = || format!("consolidated metadata of '{path}'");
            check_depth(&path).at(place)?;
            let Json::Object(document) = document else {
                return Err(invalid("metadata", &document.to_value(), "an object")).at(place);
            };
            node_type(&document).at(place)?;
            // The group's own document is the one that this is in.
            let path = normal(&path);
            if !path.is_empty() {
                entries.insert(path, NodeDocuments::v3(document));
            }
        }
        Ok(Consolidated { format: ZarrFormat::V3, entries })
    }

    /// From a v2 `.zmetadata`.
    pub(super) fn from_v2(document: &Object) -> Result<Self> {
        let version = document.get("zarr_consolidated_format").map_or(Value::Null, Json::to_value);
        if version.as_u64() != Some(1) {
            return Err(invalid("zarr_consolidated_format", &version, "1"));
        }
        let Some(Json::Object(documents)) = document.get("metadata") else {
            let got = document.get("metadata").map_or(Value::Null, Json::to_value);
            return Err(invalid("metadata", &got, "an object"));
        };
        let mut found: IndexMap<String, [Option<&Object>; 3]> = IndexMap::new();
        for (key, member) in documents {
            let (path, name) = key.rsplit_once('/').unwrap_or(("", key));
            check_depth(path).at(|| format!("consolidated metadata of '{path}'"))?;
            let place = [ZARRAY, ZGROUP, ZATTRS].iter().position(|known| *known == name);
            let (Some(place), Json::Object(member)) = (place, member) else {
                let expected = "an object under a key that ends with .zarray, .zgroup or .zattrs";
                return Err(invalid(&format!("metadata.{key}"), &member.to_value(), expected));
            };
            found.entry(normal(path)).or_default()[place] = Some(member);
        }
        let mut entries = IndexMap::new();
        for (path, [zarray, zgroup, zattrs]) in found {
            // The group's own documents are beside `.zmetadata` as well; attributes without a node describe nothing.
            if let (false, Some(document)) = (path.is_empty(), zarray.or(zgroup)) {
                entries.insert(path, NodeDocuments::v2(zarray.is_some(), document.clone(), zattrs.cloned()));
            }
        }
        Ok(Consolidated { format: ZarrFormat::V2, entries })
    }

    /// The `consolidated_metadata` member of a v3 group.
    pub(super) fn into_v3(self) -> Json {
        let documents: Object =
            self.entries.into_iter().map(|(path, node)| (path, Json::Object(node.document))).collect();
        Json::Object(
            [
                ("kind", Json::String("inline".into())),
                ("must_understand", Json::Bool(false)),
                ("metadata", Json::Object(documents)),
            ]
            .map(|(name, member)| (name.to_owned(), member))
            .into_iter()
            .collect(),
        )
    }

    /// The `.zmetadata` of a v2 group, whose own documents are given.
    pub(super) fn into_v2(self, zgroup: &Object, zattrs: &Object) -> Object {
        let mut documents = Object::new();
        documents.insert(ZGROUP.into(), Json::Object(zgroup.clone()));
        documents.insert(ZATTRS.into(), Json::Object(zattrs.clone()));
        for (path, node) in self.entries {
            let name = node.name();
            documents.insert(format!("{path}/{ZATTRS}"), Json::Object(node.zattrs.unwrap_or_default()));
            documents.insert(format!("{path}/{name}"), Json::Object(node.document));
        }
        [("metadata", Json::Object(documents)), ("zarr_consolidated_format", Json::Number("1".into()))]
            .map(|(name, member)| (name.to_owned(), member))
            .into_iter()
            .collect()
    }

    /// The format of the documents.
    pub fn zarr_format(&self) -> ZarrFormat {
        self.format
    }

    /// The path of every node, relative to the group, in stored order.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The path and the documents of every node, in stored order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&str, &NodeDocuments)> {
        self.entries.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Whether the node at `path` is an array; `None` if there is none.
    pub fn is_array(&self, path: &str) -> Option<bool> {
        self.entries.get(path).map(NodeDocuments::is_array)
    }

    /// The names of the nodes directly below `path`; the group itself is at `""`.
    pub fn children<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.paths().filter_map(move |it| below(it, path)).filter(|name| !name.contains('/'))
    }

    /// Whether there is a node at or below `path`.
    pub fn has_any(&self, path: &str) -> bool {
        self.paths().any(|other| is_at_or_below(other, path))
    }

    /// A copy without the nodes at and below `path`.
    #[must_use]
    pub fn without(&self, path: &str) -> Consolidated {
        let rest = self.entries.iter().filter(|(other, _)| !is_at_or_below(other, path));
        Consolidated { format: self.format, entries: rest.map(|(path, node)| (path.clone(), node.clone())).collect() }
    }

    /// A copy with another node at `path`, which must be of the same format.
    #[must_use]
    pub fn with(&self, path: &str, node: NodeDocuments) -> Consolidated {
        let mut changed = self.clone();
        changed.entries.insert(path.to_owned(), node);
        changed.sort();
        changed
    }

    /// By depth, then by path, as zarr-python does.
    fn sort(&mut self) {
        self.entries.sort_by(|a, _, b, _| (a.matches('/').count(), a).cmp(&(b.matches('/').count(), b)));
    }

    /// The part below `path`.
    pub fn under(&self, path: &str) -> Consolidated {
        let part = |(it, node): (&String, &NodeDocuments)| below(it, path).map(|rest| (rest.to_owned(), node.clone()));
        Consolidated { format: self.format, entries: self.entries.iter().filter_map(part).collect() }
    }
}

/// Refuses a path of more nested groups than any store has, because a hierarchy is listed level by level.
fn check_depth(path: &str) -> Result<()> {
    match path.split('/').count() {
        depth if depth <= MAX_DEPTH => Ok(()),
        depth => {
            let message = format!("got a path of {depth} names, expected at most {MAX_DEPTH}");
            Err(Error::new(ErrorKind::MetadataInvalid, message))
        }
    }
}

/// The part of `path` behind `group`, if the path lies below it.
fn below<'a>(path: &'a str, group: &str) -> Option<&'a str> {
    match group {
        "" => Some(path),
        _ => path.strip_prefix(group)?.strip_prefix('/'),
    }
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path == above || below(path, above).is_some()
}

/// A path without slashes around it.
fn normal(path: &str) -> String {
    path.trim_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::NodeMetadata;
    use serde_json::json;

    fn v2(value: Value) -> Result<Consolidated> {
        Consolidated::from_v2(&Json::parse_object(value.to_string().as_bytes()).unwrap())
    }

    fn v3(value: Value) -> Result<Consolidated> {
        Consolidated::from_v3(Json::parse(value.to_string().as_bytes()).unwrap())
    }

    fn inline(metadata: Value) -> Value {
        json!({"kind": "inline", "must_understand": false, "metadata": metadata})
    }

    #[test]
    fn one_unreadable_array_leaves_the_others() {
        let group = json!({"zarr_format": 3, "node_type": "group"});
        let broken = json!({"zarr_format": 3, "node_type": "array", "shape": "x"});
        let consolidated = v3(inline(json!({"good": group, "bad": broken}))).unwrap();
        assert!(consolidated.node("good").unwrap().is_some());
        let error = consolidated.node("bad").unwrap_err();
        assert_eq!(error.trail(), ["consolidated metadata of 'bad'"]);
    }

    #[test]
    fn paths_of_very_many_names_are_refused() {
        let group = json!({"zarr_format": 3, "node_type": "group"});
        let path = |depth: usize| vec!["a"; depth].join("/");
        assert!(v3(inline(json!({path(MAX_DEPTH): group}))).is_ok());
        assert_eq!(v3(inline(json!({path(MAX_DEPTH + 1): group}))).unwrap_err().kind(), ErrorKind::MetadataInvalid);
        let deep = json!({format!("{}/.zgroup", path(100_000)): {"zarr_format": 2}});
        let error = v2(json!({"zarr_consolidated_format": 1, "metadata": deep})).unwrap_err();
        assert!(error.to_string().len() < 5000, "a message to read");
    }

    #[test]
    fn attributes_without_a_node_and_the_group_itself_are_left_out() {
        let zgroup = json!({"zarr_format": 2});
        let metadata = json!({".zgroup": zgroup, ".zattrs": {}, "a/.zattrs": {}, "b/.zgroup": zgroup});
        let consolidated = v2(json!({"zarr_consolidated_format": 1, "metadata": metadata})).unwrap();
        assert_eq!(consolidated.paths().collect::<Vec<_>>(), ["b"]);
        assert_eq!(consolidated.is_array("a"), None);
        let group = json!({"zarr_format": 3, "node_type": "group"});
        let consolidated = v3(inline(json!({"": group, "/": group, "b": group}))).unwrap();
        assert_eq!(consolidated.paths().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn names_that_only_begin_alike_are_not_below() {
        let group = json!({"zarr_format": 3, "node_type": "group"});
        let consolidated = v3(inline(json!({"a": group, "ab": group, "a/b": group, "a/b/c": group}))).unwrap();
        assert_eq!(consolidated.children("a").collect::<Vec<_>>(), ["b"]);
        assert_eq!(consolidated.under("a").paths().collect::<Vec<_>>(), ["b", "b/c"]);
        assert_eq!(consolidated.children("").collect::<Vec<_>>(), ["a", "ab"]);
    }

    #[test]
    fn other_forms_are_refused() {
        let kind = json!({"kind": "elsewhere", "must_understand": false, "metadata": {}});
        assert_eq!(v3(kind).unwrap_err().kind(), ErrorKind::UnsupportedFeature);
        for value in [json!(3), inline(json!([])), inline(json!({"a": 3})), inline(json!({"a": {"node_type": 3}}))] {
            assert_eq!(v3(value).unwrap_err().kind(), ErrorKind::MetadataInvalid);
        }
        for value in [
            json!({"metadata": {}}),
            json!({"zarr_consolidated_format": 2, "metadata": {}}),
            json!({"zarr_consolidated_format": 1, "metadata": []}),
            json!({"zarr_consolidated_format": 1, "metadata": {"a/.other": {}}}),
            json!({"zarr_consolidated_format": 1, "metadata": {"a/.zgroup": 3}}),
        ] {
            assert_eq!(v2(value).unwrap_err().kind(), ErrorKind::MetadataInvalid);
        }
    }

    #[test]
    fn nodes_of_another_format_are_refused() {
        let group = super::super::GroupMetadata::new(ZarrFormat::V2, serde_json::Map::new()).unwrap();
        let node = NodeMetadata::Group(Box::new(group));
        let error =
            Consolidated::from_nodes(ZarrFormat::V3, [("a".to_owned(), NodeDocuments::from(&node))]).unwrap_err();
        assert_eq!(error.message(), "node 'a': got format 2, expected 3");
    }
}
