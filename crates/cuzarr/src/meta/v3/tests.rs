use super::*;

const TEXT: &str = r#"{
  "zarr_format": 3, "node_type": "array", "shape": [10, 20], "extra": {"must_understand": false, "x": 1.50},
  "data_type": "float32", "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 8]}},
  "chunk_key_encoding": {"name": "default"}, "fill_value": "0x7fc00001",
  "codecs": ["bytes", {"name": "zstd", "configuration": {"level": 1e0}}],
  "attributes": {"nan": NaN}, "dimension_names": ["y", null], "storage_transformers": []
}"#;

fn parse(edit: impl FnOnce(&mut Map<String, Value>)) -> Result<ArrayMetadata> {
    let mut members = object_to_map(&Json::parse_object(TEXT.as_bytes()).unwrap());
    edit(&mut members);
    ArrayMetadata::from_json(&serde_json::to_vec(&members).unwrap())
}

fn refused(member: &str, value: Value, kind: ErrorKind) {
    let error = parse(|members| drop(members.insert(member.into(), value.clone()))).unwrap_err();
    assert_eq!(error.kind(), kind, "{member}: {value}: {error}");
    assert!(error.to_string().contains(member) || kind == ErrorKind::UnknownDataType, "{error}");
}

#[test]
fn reads_what_an_array_says() {
    let array = ArrayMetadata::from_json(TEXT.as_bytes()).unwrap();
    assert_eq!(array.zarr_format(), ZarrFormat::V3);
    assert_eq!((array.shape(), array.elems().unwrap()), ([10, 20].as_slice(), 200));
    assert_eq!(array.fill_value(), &FillValue::Element(0x7fc0_0001u32.to_le_bytes().to_vec()));
    assert_eq!(array.dimension_names(), Some([Some("y".to_owned()), None].as_slice()));
    let CodecsMetadata::V3(codecs) = array.codecs() else { panic!("v2 codecs") };
    assert_eq!(codecs.iter().map(|codec| codec.name.as_str()).collect::<Vec<_>>(), ["bytes", "zstd"]);
}

#[test]
fn editing_leaves_the_rest_as_it_was() {
    let mut array = ArrayMetadata::from_json(TEXT.as_bytes()).unwrap();
    array.set_shape(vec![11, 0]).unwrap();
    array.set_attributes_json(r#"{"a": Infinity}"#).unwrap();
    let expected = TEXT.replace("[10, 20]", "[11, 0]").replace(r#"{"nan": NaN}"#, r#"{"a": Infinity}"#);
    let written = array.to_json();
    assert_eq!(Json::parse(&written).unwrap(), Json::parse(expected.as_bytes()).unwrap());
    // Members keep their order: the texts differ only in layout.
    let one_line = |bytes: &[u8]| Json::parse(bytes).unwrap().to_text(None);
    assert_eq!(one_line(&written), one_line(expected.as_bytes()));
    assert_eq!(array.attributes()["a"], "Infinity");
    array.set_attributes(Map::new()).unwrap();
    assert_eq!(array.attributes_json(), "{}");
}

#[test]
fn broken_members_are_refused() {
    let invalid = ErrorKind::MetadataInvalid;
    refused("zarr_format", json!(2), invalid);
    refused("node_type", json!("group"), invalid);
    refused("shape", json!([10]), invalid);
    refused("shape", json!([-1, 2]), invalid);
    refused("data_type", json!("float9_e4m4"), ErrorKind::UnknownDataType);
    refused("fill_value", Value::Null, invalid);
    refused("codecs", json!({}), invalid);
    refused("codecs", json!([3]), invalid);
    refused("attributes", json!([]), invalid);
    refused("dimension_names", json!(["x"]), invalid);
    refused("dimension_names", json!([1, 2]), invalid);
    refused("chunk_grid", json!({"name": "hexagonal", "configuration": {}}), ErrorKind::UnsupportedFeature);
    refused("chunk_grid", json!({"name": "rectilinear", "configuration": {}}), invalid);
    refused("chunk_key_encoding", json!("other"), ErrorKind::UnsupportedFeature);
    refused("storage_transformers", json!([{"name": "indirect"}]), ErrorKind::UnsupportedFeature);
    for chunk_shape in [json!([5]), json!([0, 8]), json!([u64::MAX, 2]), json!([1u64 << 61, 1])] {
        let grid = json!({"name": "regular", "configuration": {"chunk_shape": chunk_shape}});
        let error = parse(|members| drop(members.insert("chunk_grid".into(), grid))).unwrap_err();
        assert_eq!(error.kind(), invalid, "{error}");
    }
    for member in ["zarr_format", "node_type", "shape", "data_type", "chunk_grid", "fill_value", "codecs"] {
        let error = parse(|members| drop(members.shift_remove(member))).unwrap_err();
        assert_eq!(error.message(), format!("member '{member}' is missing"));
    }
}

#[test]
fn unknown_members_must_be_optional() {
    for value in [json!(1), json!({}), json!({"must_understand": true}), json!({"must_understand": 0}), Value::Null] {
        refused("surprise", value, ErrorKind::UnsupportedFeature);
    }
}

#[test]
fn optional_members_may_be_missing_or_null() {
    for member in ["attributes", "dimension_names", "storage_transformers"] {
        assert!(parse(|members| drop(members.shift_remove(member))).is_ok());
        assert!(parse(|members| drop(members.insert(member.into(), Value::Null))).is_ok());
    }
    let mut array = parse(|members| drop(members.shift_remove("attributes"))).unwrap();
    assert_eq!(array.attributes_json(), "{}");
    array.set_attributes_json(r#"{"a": 1}"#).unwrap();
    assert_eq!(ArrayMetadata::from_json(&array.to_json()).unwrap().attributes()["a"], 1);
}

#[test]
fn chunk_size_of_an_empty_dimension_becomes_that_of_an_inner_chunk() {
    let array = parse(|members| {
        members.insert("shape".into(), json!([0, 0]));
        members.insert("chunk_grid".into(), grid_json(&[0, 8]));
        let sharding = json!({"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 4]}});
        members.insert("codecs".into(), json!([sharding]));
    })
    .unwrap();
    assert_eq!(array.chunk_grid().chunk_shape(), [3, 8]);
    let read = ArrayMetadata::from_json(&array.to_json()).unwrap();
    assert_eq!(read.chunk_grid(), array.chunk_grid());
}

#[test]
fn new_array_reads_back() {
    let array = ArrayMetadata::new(NewArray {
        data_type_words: None,
        shape: vec![4],
        data_type: DataType::RawBytes { size: 2 },
        chunk_shape: vec![2],
        fill_value: FillValue::Element(vec![0, 1]),
        codecs: CodecsMetadata::V3(vec![Extension::new("bytes", Map::new())]),
        chunk_key_encoding: None,
        attributes: json!({"a": [1, null]}).as_object().cloned().unwrap_or_default(),
        dimension_names: Some(vec![Some("x".into())]),
    })
    .unwrap();
    let expected = json!({
        "shape": [4],
        "data_type": {"name": "raw_bytes", "configuration": {"length_bytes": 2}},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "AAE=", "codecs": [{"name": "bytes"}], "attributes": {"a": [1, null]},
        "dimension_names": ["x"], "zarr_format": 3, "node_type": "array", "storage_transformers": []
    });
    let written: Value = serde_json::from_slice(&array.to_json()).unwrap();
    assert_eq!(written, expected);
    let order = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(order(&written), order(&expected));
}

#[test]
fn new_array_is_checked_like_a_read_one() {
    let new = |shape: Vec<u64>, data_type, chunk_shape: Vec<u64>, fill_value| {
        let new = NewArray::plain(&shape, data_type, &chunk_shape, CodecsMetadata::V3(vec![]));
        ArrayMetadata::new(NewArray { fill_value, ..new }).unwrap_err().kind()
    };
    let zero = || FillValue::Element(vec![0]);
    assert_eq!(new(vec![4], DataType::Int8, vec![0], zero()), ErrorKind::MetadataInvalid);
    assert_eq!(new(vec![4], DataType::Int8, vec![2, 2], zero()), ErrorKind::MetadataInvalid);
    assert_eq!(new(vec![4], DataType::Int8, vec![2], FillValue::Undefined), ErrorKind::MetadataInvalid);
    assert_eq!(new(vec![4], DataType::Int16, vec![2], zero()), ErrorKind::InvalidArgument);
    let empty = DataType::RawBytes { size: 0 };
    assert_eq!(new(vec![4], empty, vec![2], FillValue::Element(vec![])), ErrorKind::MetadataInvalid);
}
