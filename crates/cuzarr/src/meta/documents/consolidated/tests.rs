use super::*;
use crate::meta::NodeMetadata;
use serde_json::{Value, json};

fn v2(value: Value) -> Result<Consolidated> {
    Consolidated::parse(ZarrFormat::V2, Text::of_object(value.to_string().as_bytes())?)
}

fn v3(value: Value) -> Result<Consolidated> {
    let group = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": value});
    Ok(NodeDocuments::parse_v3(group.to_string().as_bytes())?.take_consolidated()?.unwrap())
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
    let group = crate::meta::GroupMetadata::new(ZarrFormat::V2, serde_json::Map::new()).unwrap();
    let node = NodeMetadata::Group(Box::new(group));
    let error = Consolidated::from_nodes(ZarrFormat::V3, [("a".to_owned(), NodeDocuments::from(&node))]).unwrap_err();
    assert_eq!(error.message(), "node 'a': got format 2, expected 3");
}

#[test]
fn keys_without_a_name_stand_for_the_group_and_empty_names_are_left_out() {
    let group = json!({"zarr_format": 3, "node_type": "group"});
    let consolidated = v3(inline(json!({"": group, "/": group, "/a//b/": group}))).unwrap();
    assert_eq!(consolidated.paths().collect::<Vec<_>>(), ["a/b"]);
    let zgroup = json!({"zarr_format": 2});
    let metadata = json!({"//.zgroup": zgroup, "a//b/.zgroup": zgroup});
    let consolidated = v2(json!({"zarr_consolidated_format": 1, "metadata": metadata})).unwrap();
    assert_eq!(consolidated.paths().collect::<Vec<_>>(), ["a/b"]);
}

#[test]
fn entries_that_were_read_are_written_byte_for_byte() {
    let entry = r#"{ "zarr_format":3,"node_type" : "group", "attributes": {"x": [1.50, NaN]}}"#;
    let text = format!(
        r#"{{"zarr_format": 3, "consolidated_metadata": {{"kind": "inline", "metadata": {{"a": {entry}, "b": {entry}}}}}, "node_type": "group"}}"#
    );
    let mut group = crate::meta::GroupMetadata::from_json(text.as_bytes()).unwrap();
    group.set_attributes(serde_json::Map::new()).unwrap();
    let written = String::from_utf8(group.to_json()).unwrap();
    assert!(
        written.contains(&format!(r#"{{"kind": "inline", "metadata": {{"a": {entry}, "b": {entry}}}}}"#)),
        "{written}"
    );
    let rest = group.consolidated().unwrap().without("a");
    group.set_consolidated(Some(rest)).unwrap();
    let written = String::from_utf8(group.to_json()).unwrap();
    assert!(written.contains(&format!("\n      \"b\": {entry}\n")) && !written.contains("\"a\""), "{written}");
}

#[test]
fn v2_copies_repeat_the_groups_own_attributes() {
    let zmetadata = br#"{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, "a/.zgroup":{"zarr_format":2}}}"#;
    let mut group = crate::meta::GroupMetadata::from_json_v2(br#"{"zarr_format": 2}"#, None, Some(zmetadata)).unwrap();
    group.set_attributes_json(r#"{"k": 1.0}"#).unwrap();
    let documents = group.documents();
    let expected = r#"{"zarr_consolidated_format": 1, "metadata": {".zattrs": {"k": 1.0}, ".zgroup": {"zarr_format": 2}, "a/.zgroup":{"zarr_format":2}}}"#;
    assert_eq!(std::str::from_utf8(&documents[2].1).unwrap(), expected);
}

mod edits {
    use std::collections::BTreeMap;

    use super::*;
    use crate::meta::Documents;
    use crate::meta::json::Object;

    fn node(format: ZarrFormat, is_array: bool, mark: usize) -> NodeDocuments {
        let zattrs = format!(r#"{{"mark": {mark}}}"#);
        let document = match (format, is_array) {
            (ZarrFormat::V3, true) => format!(r#"{{"zarr_format": 3, "node_type": "array", "shape": [{mark}]}}"#),
            (ZarrFormat::V3, false) => {
                format!(
                    r#"{{"attributes": {{"mark": {mark}}}, "zarr_format": 3, "node_type": "group", "consolidated_metadata": {{}}}}"#
                )
            }
            (ZarrFormat::V2, true) => format!(r#"{{"shape": [{mark}], "zarr_format": 2}}"#),
            (ZarrFormat::V2, false) => r#"{"zarr_format": 2}"#.into(),
        };
        let mut documents = Documents::default();
        match format {
            ZarrFormat::V3 => documents.zarr_json = Some(document.as_bytes()),
            ZarrFormat::V2 => {
                documents.set(if is_array { ".zarray" } else { ".zgroup" }, document.as_bytes());
                documents.zattrs = Some(zattrs.as_bytes()).filter(|_| mark > 0);
            }
        }
        NodeDocuments::parse(&documents).unwrap().unwrap()
    }

    fn document(format: ZarrFormat, nodes: &[(&str, bool)], indent: Option<usize>) -> Vec<u8> {
        let mut group = node(format, false, 7).alone();
        let nodes = nodes.iter().map(|(path, is_array)| ((*path).to_owned(), node(format, *is_array, 1)));
        group.set_consolidated(Consolidated::from_nodes(format, nodes).unwrap());
        group.documents(indent).pop().unwrap().1
    }

    fn edited(format: ZarrFormat, document: &[u8], changes: &[(&str, Option<NodeDocuments>)]) -> Option<String> {
        let change =
            |(path, node): &(&str, Option<NodeDocuments>)| EntryChange { path: (*path).into(), node: node.clone() };
        let changes: Vec<_> = changes.iter().map(change).collect();
        edit_consolidated(format, document, &changes).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    /// The entries of the consolidated metadata in a stored document, found by parsing the whole document.
    fn entries(format: ZarrFormat, document: &[u8]) -> Object {
        let mut tree = Json::parse_object(document).unwrap();
        let mut take = |name: &str| match tree.swap_remove(name) {
            Some(Json::Object(members)) => members,
            other => panic!("{name}: {other:?}"),
        };
        if format == ZarrFormat::V2 {
            return take("metadata");
        }
        match take("consolidated_metadata").swap_remove("metadata") {
            Some(Json::Object(members)) => members,
            other => panic!("{other:?}"),
        }
    }

    /// A slow but simple way to make a change: applies it to a map of entries.
    fn model(format: ZarrFormat, entries: &mut BTreeMap<String, Json>, path: &str, node: Option<&NodeDocuments>) {
        let is_array = node.is_some_and(NodeDocuments::is_array);
        let name = |key: &str| key.rsplit_once('/').map_or("", |(path, _)| path).to_owned();
        entries.retain(|key, _| {
            let at = if format == ZarrFormat::V2 { name(key) } else { key.clone() };
            let is_below = !at.is_empty() && below(&at, path).is_some();
            !(is_below && (node.is_none() || is_array) || node.is_none() && at == path && !at.is_empty())
        });
        let Some(node) = node.cloned().map(NodeDocuments::alone) else { return };
        if format == ZarrFormat::V3 {
            entries.insert(path.into(), Json::Object(node.document));
            return;
        }
        let (other, zattrs) = (if is_array { ZGROUP } else { ZARRAY }, crate::meta::names::key(path, ZATTRS));
        entries.remove(&crate::meta::names::key(path, other));
        match node.zattrs.clone().unwrap_or_default() {
            empty if empty.is_empty() && !entries.contains_key(&zattrs) => {}
            members => drop(entries.insert(zattrs, Json::Object(members))),
        }
        entries.insert(crate::meta::names::key(path, node.name()), Json::Object(node.document));
    }

    #[test]
    fn edits_are_those_of_a_slow_model() {
        let names = ["a", "b", "a/x", "a/y", "a-1", "b/x/y", "c", "/b//x/"];
        for seed in 0..400_usize {
            let format = if seed % 2 == 0 { ZarrFormat::V3 } else { ZarrFormat::V2 };
            let pick = |salt: usize, end: usize| (seed * 7919 + salt * 104_729 + seed / 7 * salt) % end;
            let nodes: Vec<(&str, bool)> = names[..7]
                .iter()
                .enumerate()
                .filter(|(at, _)| pick(*at, 3) > 0)
                .map(|(at, name)| (*name, pick(at + 9, 2) > 0))
                .collect();
            let before = document(format, &nodes, [None, Some(2), Some(0)][seed % 3]);
            let mut expected: BTreeMap<String, Json> = entries(format, &before).into_iter().collect();
            let changes: Vec<(&str, Option<NodeDocuments>)> = (0..1 + pick(3, 4))
                .map(|at| {
                    (
                        names[pick(at + 20, 8)],
                        (pick(at + 30, 3) > 0).then(|| node(format, pick(at + 40, 2) > 0, pick(at + 50, 3))),
                    )
                })
                .collect();
            for (path, node) in &changes {
                model(format, &mut expected, &normal(path), node.as_ref());
            }
            let after = edited(format, &before, &changes).map_or_else(|| before.clone(), String::into_bytes);
            let mut found: BTreeMap<String, Json> = entries(format, &after).into_iter().collect();
            // An empty `.zattrs` may be left out.
            for entries in [&mut found, &mut expected] {
                entries.retain(|key, member| !(key.ends_with(ZATTRS) && *member == Json::Object(Object::new())));
            }
            assert_eq!(found, expected, "{}\n{changes:?}", String::from_utf8_lossy(&before));
            let head = |bytes: &[u8]| bytes.split(|byte| *byte == b'{').next().unwrap().to_vec();
            assert_eq!(head(&after), head(&before));
        }
    }

    #[test]
    fn all_other_bytes_stay() {
        let before = "\u{feff}{ \"zarr_format\":3,\n\"x\": 1.50, \"consolidated_metadata\": {\"kind\":\"inline\",\"y\": [ 1 ], \
                      \"metadata\": { \"a\" : {\"node_type\":\"group\"} ,\t\"b\":{\"node_type\":\"array\"},\n\"c\" :3 } },\"node_type\":\"group\"}\n";
        let group = || Some(node(ZarrFormat::V3, false, 1));
        let cut = |from: &str| before.replace(from, "");
        let gone = |path: &str| edited(ZarrFormat::V3, before.as_bytes(), &[(path, None)]).unwrap();
        assert_eq!(gone("a"), cut("\"a\" : {\"node_type\":\"group\"} ,\t"));
        assert_eq!(gone("b"), cut(" ,\t\"b\":{\"node_type\":\"array\"}"));
        assert_eq!(gone("c"), cut(",\n\"c\" :3"));
        let written = r#"{"attributes": {"mark": 1}, "zarr_format": 3, "node_type": "group"}"#;
        let replaced = edited(ZarrFormat::V3, before.as_bytes(), &[("b", group())]).unwrap();
        assert_eq!(replaced, before.replace("{\"node_type\":\"array\"}", written));
        let inserted = edited(ZarrFormat::V3, before.as_bytes(), &[("aa", group())]).unwrap();
        assert_eq!(inserted, before.replace("\"b\":", &format!("\"aa\": {written} ,\t\"b\":")));
        assert_eq!(edited(ZarrFormat::V3, before.as_bytes(), &[("d", None), ("d", None)]), None);
    }

    #[test]
    fn new_entries_have_the_layout_of_the_document() {
        for format in [ZarrFormat::V3, ZarrFormat::V2] {
            for indent in [None, Some(4), Some(0)] {
                let all = [("a", true), ("b", true), ("b/c", false)];
                // `.zmetadata` is written on one line.
                if format == ZarrFormat::V2 && indent.is_some() {
                    continue;
                }
                let expected = String::from_utf8(document(format, &all, indent)).unwrap();
                for start in [&all[1..], &all[..2], &all[..1], &[]] {
                    let before = document(format, start, indent);
                    let new: Vec<_> =
                        all.iter().map(|(path, is_array)| (*path, Some(node(format, *is_array, 1)))).collect();
                    assert_eq!(edited(format, &before, &new).unwrap(), expected);
                    let gone: Vec<_> =
                        all.iter().filter(|one| !start.contains(one)).map(|(path, _)| (*path, None)).collect();
                    assert_eq!(edited(format, expected.as_bytes(), &gone).unwrap().into_bytes(), before);
                    assert_eq!(edited(format, expected.as_bytes(), &new), None, "nothing changes");
                }
            }
        }
    }

    #[test]
    fn a_groups_own_documents_are_in_zmetadata_only() {
        let own = || Some(node(ZarrFormat::V2, false, 2));
        let before = document(ZarrFormat::V2, &[("a", true)], None);
        let after = edited(ZarrFormat::V2, &before, &[("", own())]).unwrap();
        assert_eq!(after, String::from_utf8(before).unwrap().replacen("{\"mark\": 7}", "{\"mark\": 2}", 1));
        let before = document(ZarrFormat::V3, &[("a", true)], None);
        assert_eq!(edited(ZarrFormat::V3, &before, &[("", Some(node(ZarrFormat::V3, false, 2)))]), None);
        assert_eq!(
            entries(ZarrFormat::V3, edited(ZarrFormat::V3, &before, &[("", None)]).unwrap().as_bytes()).len(),
            0
        );
    }

    #[test]
    fn documents_of_other_forms_are_not_edited() {
        let edit = |format, text: &str| {
            edit_consolidated(format, text.as_bytes(), &[EntryChange { path: "a".into(), node: None }])
        };
        for text in [
            r#"{"node_type": "group"}"#,
            r#"{"consolidated_metadata": null}"#,
            r#"{"consolidated_metadata": {"kind": "inline", "metadata": {"a": {}}}, "node_type": "array"}"#,
            r#"{"consolidated_metadata": {"kind": "inline", "metadata": {}}}"#,
        ] {
            assert_eq!(edit(ZarrFormat::V3, text).unwrap(), None, "{text}");
        }
        for text in [
            "",
            "3",
            r#"{"consolidated_metadata": 3}"#,
            r#"{"consolidated_metadata": {"kind": "inline", "metadata": []}}"#,
        ] {
            assert_eq!(edit(ZarrFormat::V3, text).unwrap_err().kind(), ErrorKind::MetadataInvalid, "{text}");
        }
        let other = edit(ZarrFormat::V3, r#"{"consolidated_metadata": {"kind": "else", "metadata": {}}}"#);
        assert_eq!(other.unwrap_err().kind(), ErrorKind::UnsupportedFeature);
        assert_eq!(edit(ZarrFormat::V2, "[]").unwrap_err().kind(), ErrorKind::MetadataInvalid);
        let change = EntryChange { path: "a".into(), node: Some(node(ZarrFormat::V2, true, 1)) };
        let error = edit_consolidated(ZarrFormat::V3, b"{}", &[change]).unwrap_err();
        assert_eq!(error.message(), "node 'a': got format 2, expected 3");
    }

    #[test]
    fn hostile_documents_are_edited_or_refused() {
        for format in [ZarrFormat::V3, ZarrFormat::V2] {
            let text = document(format, &[("a", true), ("a/b", false), ("c", true)], Some(2));
            for at in 0..text.len() {
                for byte in [b'"', b'{', b'}', b',', b'/', b'\\', 0xff] {
                    let mut text = text.clone();
                    text[at] = byte;
                    let node = node(format, true, 5);
                    let changes =
                        ["a", "a/b", "", "d"].map(|path| EntryChange { path: path.into(), node: Some(node.clone()) });
                    for change in changes {
                        match edit_consolidated(format, &text, &[change]) {
                            Ok(Some(edited)) => drop(Json::parse_object(&edited).unwrap()),
                            Ok(None) => drop(Json::parse_object(&text).unwrap()),
                            Err(_) => {}
                        }
                    }
                }
            }
        }
    }
}
