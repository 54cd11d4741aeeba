//! Tests with documents that zarr-python wrote, and their meaning according to zarr-python and NumPy.
//! `tests/data/*/make.py` made them.

use serde_json::{Value, json};

use super::json::Json;
use super::*;

const ZARR_3: &str = include_str!("../../tests/data/zarr-python-3.4.2/metadata.json");
const ZARR_2: &str = include_str!("../../tests/data/zarr-python-2.18.7/metadata.json");

fn cases(text: &str) -> Vec<Value> {
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 20);
    cases
}

/// The documents of the node at `path`, each with its name.
fn documents_at<'a>(case: &'a Value, path: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (key, text) in case["documents"].as_object().unwrap() {
        let (parent, name) = key.rsplit_once('/').unwrap_or(("", key));
        if parent == path {
            found.push((name, text.as_str().unwrap()));
        }
    }
    found
}

fn read(case: &Value, path: &str) -> NodeMetadata {
    let mut documents = Documents::default();
    for (name, text) in documents_at(case, path) {
        documents.set(name, text.as_bytes());
    }
    NodeMetadata::from_documents(&documents).unwrap().unwrap()
}

fn is_array(case: &Value) -> bool {
    case.get("shape").is_some()
}

/// Every test case (of both Zarr formats) that is an array: the name of the case, the case, and the array's metadata.
fn arrays() -> Vec<(String, Value, ArrayMetadata)> {
    let all = [cases(ZARR_3), cases(ZARR_2)].concat();
    let read_array = |case: Value| match read(&case, "") {
        NodeMetadata::Array(array) => (case["name"].to_string(), case, *array),
        NodeMetadata::Group(_) => panic!("{case}: a group"),
    };
    all.into_iter().filter(is_array).map(read_array).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn arrays_mean_what_numpy_says() {
    for (name, case, array) in arrays() {
        assert_eq!(json!(array.shape()), case["shape"], "{name}");
        assert_eq!(json!(array.chunk_grid().chunk_shape()), case["chunk_shape"], "{name}");
        if !case["numpy"].is_null() {
            assert_eq!(array.data_type().numpy_descr(), case["numpy"], "{name}");
        }
        let fill = match array.fill_value() {
            FillValue::Element(bytes) => json!(hex(bytes)),
            FillValue::Undefined => Value::Null,
        };
        assert_eq!(fill, case["fill_hex"], "{name}");
        assert_eq!(array.attributes_json(), case["attributes"].as_str().unwrap(), "{name}");
        for pair in case["keys"].as_array().unwrap() {
            let index: Vec<u64> = serde_json::from_value(pair[0].clone()).unwrap();
            assert_eq!(array.chunk_key_encoding().key(&index), pair[1].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn documents_of_version_3_come_back_byte_for_byte() {
    for case in cases(ZARR_3) {
        let node = read(&case, "");
        let mut written = node.documents();
        written.sort();
        let written: Vec<_> =
            written.iter().map(|(name, bytes)| (*name, std::str::from_utf8(bytes).unwrap())).collect();
        assert_eq!(written, documents_at(&case, ""), "{}", case["name"]);
    }
}

#[test]
fn documents_of_version_2_come_back_but_for_their_layout() {
    for case in cases(ZARR_2) {
        let stored = documents_at(&case, "");
        for (name, bytes) in read(&case, "").documents() {
            let text = stored.iter().find(|(other, _)| *other == name).map_or("{}", |(_, text)| text);
            assert_eq!(Json::parse(&bytes).unwrap(), Json::parse(text.as_bytes()).unwrap(), "{}", case["name"]);
        }
    }
}

#[test]
fn data_types_and_fill_values_are_written_as_they_were_read() {
    for (name, _, array) in arrays() {
        let document = Json::parse(&array.to_json()).unwrap().to_value();
        let data_type = match array.codecs() {
            CodecsMetadata::V2 { endian, .. } => (array.data_type().to_v2(*endian), &document["dtype"]),
            CodecsMetadata::V3(_) => (array.data_type().to_v3().unwrap(), &document["data_type"]),
        };
        assert_eq!(&data_type.0, data_type.1, "{name}");
        let fill = array.fill_value().to_json(array.data_type(), array.zarr_format()).unwrap();
        let expected = match array.data_type() {
            // A fill value of 0 for strings is read as "0", as zarr-python 3 does.
            DataType::VariableString if document["fill_value"] == 0 => &json!("0"),
            _ => &document["fill_value"],
        };
        assert_eq!(&fill, expected, "{name}");
    }
}

#[test]
fn new_arrays_are_written_as_zarr_python_writes_them() {
    for (name, case, array) in arrays().into_iter().filter(|(name, ..)| !name.contains("zarr2")) {
        let mut new = ArrayMetadata::new(NewArray {
            data_type_words: None,
            shape: array.shape().to_vec(),
            data_type: array.data_type().clone(),
            chunk_shape: array.chunk_grid().chunk_shape().to_vec(),
            fill_value: array.fill_value().clone(),
            codecs: array.codecs().clone(),
            chunk_key_encoding: Some(*array.chunk_key_encoding()),
            attributes: Map::new(),
            dimension_names: array.dimension_names().map(<[_]>::to_vec),
        })
        .unwrap();
        new.set_attributes_json(case["attributes"].as_str().unwrap()).unwrap();
        for (file, bytes) in new.documents() {
            let text = case["documents"][file].as_str().unwrap();
            // zarr-python writes an empty configuration for some codecs, and not for others.
            let text_of =
                |bytes: &[u8]| Json::parse(bytes).unwrap().to_value().to_string().replace(r#","configuration":{}"#, "");
            assert_eq!(text_of(&bytes), text_of(text.as_bytes()), "{name}");
        }
    }
}

/// Returns every test case that is a group with consolidated metadata, with the group's parsed metadata.
fn consolidated() -> Vec<(Value, GroupMetadata)> {
    let all = [cases(ZARR_3), cases(ZARR_2)].concat();
    let groups: Vec<_> = all
        .into_iter()
        .filter(|case| case.get("arrays").is_some())
        .map(|case| match read(&case, "") {
            NodeMetadata::Group(group) => (case, *group),
            NodeMetadata::Array(_) => panic!("{case}: an array"),
        })
        .collect();
    assert_eq!(groups.len(), 3);
    groups
}

fn names(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap()
}

fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    items.sort();
    items
}

#[test]
fn consolidated_nodes_are_those_of_the_hierarchy() {
    for (case, group) in consolidated() {
        let consolidated = group.consolidated().unwrap();
        let (arrays, groups) = (names(&case["arrays"]), names(&case["groups"]));
        let expected = sorted(arrays.iter().chain(&groups).map(String::as_str));
        assert_eq!(sorted(consolidated.paths()), expected);
        assert!(arrays.iter().all(|path| consolidated.is_array(path) == Some(true)));
        assert!(groups.iter().all(|path| consolidated.is_array(path) == Some(false)));
        for path in arrays.iter().chain(&groups) {
            let (node, own) = (consolidated.node(path).unwrap().unwrap(), read(&case, path));
            assert_eq!(node.as_array().is_some(), own.as_array().is_some());
            assert_eq!(node.attributes(), own.attributes());
            if let (Some(array), Some(own)) = (node.as_array(), own.as_array()) {
                assert_eq!(array.to_json(), own.to_json());
            }
        }
        assert_eq!(group.attributes_json(), case["attributes"].as_str().unwrap());
    }
}

#[test]
fn consolidated_groups_come_with_what_is_below_them() {
    for (_, group) in consolidated() {
        let consolidated = group.consolidated().unwrap();
        assert_eq!(sorted(consolidated.children("")), ["b", "e", "z"]);
        assert_eq!(consolidated.children("z").collect::<Vec<_>>(), ["empty"]);
        assert!(consolidated.node("b/nothing").unwrap().is_none());
        let node = consolidated.node("b").unwrap().unwrap();
        let below = node.as_group().unwrap().consolidated().unwrap();
        assert_eq!(below.is_array("a"), Some(true));
        let leaf = consolidated.node("z/empty").unwrap().unwrap();
        assert_eq!(leaf.as_group().unwrap().consolidated().unwrap().paths().len(), 0);
    }
}

#[test]
fn consolidating_again_gives_the_same_nodes() {
    for (case, mut group) in consolidated() {
        let paths = names(&case["arrays"]).into_iter().chain(names(&case["groups"]));
        let nodes: Vec<(String, NodeMetadata)> = paths.map(|path| (path.clone(), read(&case, &path))).collect();
        let by_path = nodes.iter().map(|(path, node)| (path.clone(), NodeDocuments::from(node)));
        let new = Consolidated::from_nodes(group.zarr_format(), by_path).unwrap();
        if !case["name"].as_str().unwrap().starts_with("zarr2") {
            let order: Vec<&str> = group.consolidated().unwrap().paths().collect();
            assert_eq!(new.paths().collect::<Vec<_>>(), order, "by depth, then by path");
        }
        group.set_consolidated(Some(new.clone())).unwrap();
        let written = group.documents();
        let mut documents = Documents::default();
        for (name, bytes) in &written {
            documents.set(name, bytes);
        }
        let read_again = NodeMetadata::from_documents(&documents).unwrap().unwrap();
        assert_eq!(read_again.as_group().unwrap().consolidated(), Some(&new));

        group.set_consolidated(None).unwrap();
        assert!(group.documents().iter().all(|(_, bytes)| !String::from_utf8_lossy(bytes).contains("metadata")));
    }
}

#[test]
fn consolidated_attributes_of_the_group_itself_follow_it() {
    for (_, mut group) in consolidated() {
        group.set_attributes_json(r#"{"new": NaN}"#).unwrap();
        let stale = group.documents().iter().any(|(_, bytes)| String::from_utf8_lossy(bytes).contains("\"nan\""));
        assert!(!stale);
        assert_eq!(group.attributes()["new"], "NaN");
    }
}
