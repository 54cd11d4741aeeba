use super::*;
use crate::meta::node::{ZARRAY, ZATTRS};

const ZARRAY_TEXT: &str = r#"{
  "shape": [10, 20], "note": 1.50, "chunks": [5, 8], "dtype": ">f4", "fill_value": NaN, "order": "F",
  "filters": [{"id": "delta", "dtype": ">f4"}], "compressor": {"id": "zstd", "level": 0}, "zarr_format": 2
}"#;

fn parse(edit: impl FnOnce(&mut Map<String, Value>)) -> Result<ArrayMetadata> {
    let mut members = object_to_map(&Json::parse_object(ZARRAY_TEXT.as_bytes()).unwrap());
    edit(&mut members);
    ArrayMetadata::from_json_v2(&serde_json::to_vec(&members).unwrap(), None)
}

fn refused(member: &str, value: Value, kind: ErrorKind) {
    let error = parse(|members| drop(members.insert(member.into(), value.clone()))).unwrap_err();
    assert_eq!(error.kind(), kind, "{member}: {value}: {error}");
}

#[test]
fn reads_what_an_array_says() {
    let array = ArrayMetadata::from_json_v2(ZARRAY_TEXT.as_bytes(), Some(br#"{"units": "m"}"#)).unwrap();
    assert_eq!((array.shape(), array.chunk_grid().chunk_shape()), ([10, 20].as_slice(), [5, 8].as_slice()));
    assert_eq!(array.data_type(), &DataType::Float32);
    assert_eq!(array.fill_value(), &FillValue::Element(f32::NAN.to_le_bytes().to_vec()));
    assert_eq!(array.chunk_key_encoding().key(&[1, 2]), "1.2");
    assert_eq!(array.attributes()["units"], "m");
    let CodecsMetadata::V2 { filters, compressor, order, endian } = array.codecs() else { panic!("v3 codecs") };
    assert_eq!((filters.len(), *order, *endian), (1, Order::F, crate::meta::Endian::Big));
    assert_eq!(compressor.as_ref().unwrap()["id"], "zstd");
}

#[test]
fn editing_leaves_the_rest_as_it_was() {
    let attributes = br#"{"_FillValue": NaN, "big": 123456789012345678901234567890}"#;
    let mut array = ArrayMetadata::from_json_v2(ZARRAY_TEXT.as_bytes(), Some(attributes)).unwrap();
    array.set_shape(vec![11, 20]).unwrap();
    let documents = array.documents();
    assert_eq!(documents.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [ZARRAY, ZATTRS]);
    let expected = ZARRAY_TEXT.replace("[10, 20]", "[11, 20]");
    assert_eq!(Json::parse(&documents[0].1).unwrap(), Json::parse(expected.as_bytes()).unwrap());
    assert_eq!(Json::parse(&documents[1].1).unwrap(), Json::parse(attributes).unwrap());
    assert_eq!(array.attributes_json().as_bytes(), attributes);
    assert_eq!(array.attributes()["_FillValue"], "NaN");
    assert_eq!(array.set_shape(vec![1]).unwrap_err().kind(), ErrorKind::ShapeMismatch);
}

#[test]
fn objects_find_their_codec_among_filters_and_compressor() {
    let with_filters = |filters: Value, compressor: Value| {
        parse(|members| {
            members.insert("dtype".into(), json!("|O"));
            members.insert("fill_value".into(), json!(""));
            members.insert("filters".into(), filters);
            members.insert("compressor".into(), compressor);
        })
    };
    let array = with_filters(json!([{"id": "vlen-utf8"}]), Value::Null).unwrap();
    assert_eq!(array.data_type(), &DataType::VariableString);
    let array = with_filters(Value::Null, json!({"id": "vlen-bytes"})).unwrap();
    assert_eq!(array.data_type(), &DataType::VariableBytes);
    assert_eq!(with_filters(Value::Null, Value::Null).unwrap_err().kind(), ErrorKind::UnknownDataType);
    let error = with_filters(json!([{"id": "pickle"}]), Value::Null).unwrap_err();
    assert!(error.message().contains("'pickle'"), "{error}");
}

#[test]
fn broken_members_are_refused() {
    let invalid = ErrorKind::MetadataInvalid;
    for shape in [json!([-1, 20]), json!([1.5, 20]), json!("x"), json!([10]), json!([1e30, 20]), Value::Null] {
        refused("shape", shape, invalid);
    }
    for chunks in [json!([0, 8]), json!([5]), json!([u64::MAX, u64::MAX]), json!(true), json!([-5, 8])] {
        refused("chunks", chunks, invalid);
    }
    refused("dtype", json!("<x4"), ErrorKind::UnknownDataType);
    refused("order", json!("A"), invalid);
    refused("filters", json!({"id": "delta"}), invalid);
    refused("filters", json!([{"name": "delta"}]), invalid);
    refused("compressor", json!("zstd"), invalid);
    refused("dimension_separator", json!("-"), invalid);
    refused("fill_value", json!("x"), invalid);
    for format in [json!(3), json!("2"), json!(2.0), Value::Null] {
        refused("zarr_format", format, invalid);
    }
    for member in ["zarr_format", "shape", "chunks", "dtype", "fill_value", "order"] {
        let error = parse(|members| drop(members.shift_remove(member))).unwrap_err();
        assert_eq!(error.message(), format!("member '{member}' is missing"));
    }
    for zattrs in ["[]", "3", "", "{"] {
        let error = ArrayMetadata::from_json_v2(ZARRAY_TEXT.as_bytes(), Some(zattrs.as_bytes())).unwrap_err();
        assert_eq!((error.kind(), error.trail()), (invalid, [ZATTRS.to_owned()].as_slice()));
    }
}

#[test]
fn chunk_size_of_an_empty_dimension_may_be_zero() {
    let array = parse(|members| {
        members.insert("shape".into(), json!([0, 20]));
        members.insert("chunks".into(), json!([0, 8]));
    })
    .unwrap();
    assert_eq!(array.chunk_grid().chunk_shape(), [1, 8]);
    let written = Json::parse(&array.to_json()).unwrap().to_value();
    assert_eq!(written["chunks"], json!([1, 8]));
}

#[test]
fn new_array_reads_back() {
    let zlib = json!({"id": "zlib", "level": 1}).as_object().cloned();
    let fill = FillValue::Element(vec![7, 0]);
    let codecs =
        CodecsMetadata::V2 { filters: vec![], compressor: zlib, order: Order::C, endian: crate::meta::Endian::Little };
    let new = NewArray::plain(&[4, 4], DataType::UInt16, &[2, 2], codecs);
    let array = ArrayMetadata::new(NewArray { fill_value: fill.clone(), ..new }).unwrap();
    let expected = json!({
        "shape": [4, 4], "chunks": [2, 2], "dtype": "<u2", "fill_value": 7, "order": "C", "filters": null,
        "dimension_separator": ".", "compressor": {"id": "zlib", "level": 1}, "zarr_format": 2
    });
    assert_eq!(serde_json::from_slice::<Value>(&array.to_json()).unwrap(), expected);
    let read = ArrayMetadata::from_json_v2(&array.to_json(), None).unwrap();
    assert_eq!((read.fill_value(), read.codecs()), (&fill, array.codecs()));
}

#[test]
fn new_array_refuses_what_v2_cannot_store() {
    let new = |keys, names| {
        ArrayMetadata::new(NewArray {
            data_type_words: None,
            shape: vec![4],
            data_type: DataType::Int8,
            chunk_shape: vec![2],
            fill_value: FillValue::Undefined,
            codecs: CodecsMetadata::V2 {
                filters: vec![],
                compressor: None,
                order: Order::C,
                endian: crate::meta::Endian::Little,
            },
            chunk_key_encoding: keys,
            attributes: Map::new(),
            dimension_names: names,
        })
    };
    let keys = |separator| Some(ChunkKeyEncoding::V2 { separator });
    assert_eq!(new(keys(Separator::Slash), None).unwrap().chunk_key_encoding().key(&[1]), "1");
    let default = Some(ChunkKeyEncoding::Default { separator: Separator::Slash });
    assert_eq!(new(default, None).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(new(None, Some(vec![None])).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
