use super::*;
use crate::meta::ZarrFormat::{V2, V3};

const NAN: &str = "AAAAAAAA+H8=";

fn v2(dtype: &str, fill_value: Value, attributes: &str) -> ArrayMetadata {
    let object = json!([{"id": "vlen-utf8"}]);
    let document = json!({
        "zarr_format": 2, "shape": [4], "chunks": [2], "dtype": dtype, "fill_value": fill_value, "order": "C",
        "filters": if dtype == "|O" { object } else { Value::Null }, "compressor": null,
    });
    ArrayMetadata::from_json_v2(document.to_string().as_bytes(), Some(attributes.as_bytes())).unwrap()
}

fn v3(data_type: Value, fill_value: Value, attributes: Value, names: Value) -> ArrayMetadata {
    let document = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": data_type, "fill_value": fill_value,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"], "attributes": attributes,
        "dimension_names": names,
    });
    ArrayMetadata::from_json(document.to_string().as_bytes()).unwrap()
}

fn attributes(translated: &Translated) -> Value {
    serde_json::from_str(&translated.attributes).unwrap()
}

#[test]
fn a_fill_value_of_format_2_becomes_the_attribute_that_xarray_decodes_in_format_3() {
    let text = |missing: Value| json!({"units": "K", "missing_value": missing});
    let missing = |missing: Value| json!({"units": "K", "_FillValue": missing});
    let cases = [
        ("<i2", json!(-32767), missing(json!(-32767))),
        ("|u1", json!(255), missing(json!(255))),
        ("|b1", json!(false), missing(json!(false))),
        ("<f8", json!("NaN"), missing(json!(NAN))),
        ("<f8", json!(1e20), missing(json!("QIy1eB2vFUQ="))),
        (">f4", json!(1e20), missing(json!("AAAAgB2vFUQ="))),
        ("<f2", json!("Infinity"), missing(json!("AAAAAAAA8H8="))),
        ("<c8", json!([0.0, "NaN"]), missing(json!(["AAAAAAAAAAA=", NAN]))),
        ("<U3", json!("ab"), text(json!("ab"))),
        ("|O", json!(""), text(json!(""))),
        // xarray does not support a missing value for these types.
        ("|S3", json!("YQ=="), json!({"units": "K"})),
        ("<M8[ns]", json!(0), json!({"units": "K"})),
        ("<i2", Value::Null, json!({"units": "K"})),
    ];
    for (dtype, fill_value, expected) in cases {
        let source =
            v2(dtype, fill_value.clone(), r#"{"_ARRAY_DIMENSIONS": ["x"], "units": "K", "_nczarr_array": {}}"#);
        let translated = translate(&source, V3).unwrap();
        assert_eq!(attributes(&translated), expected, "{dtype} {fill_value}");
        assert_eq!(translated.dimension_names, Some(vec![Some("x".to_owned())]));
        if fill_value != Value::Null {
            assert_eq!(translated.fill_value, *source.fill_value(), "{dtype} {fill_value}");
        }
    }
}

#[test]
fn an_attribute_of_format_2_marks_what_is_missing_where_the_fill_value_does_not() {
    let of = |dtype: &str, fill_value: Value, missing: &str| {
        let text = format!(r#"{{"_ARRAY_DIMENSIONS": ["x"], "_FillValue": {missing}}}"#);
        attributes(&translate(&v2(dtype, fill_value, &text), V3).unwrap())
    };
    assert_eq!(of("<f4", Value::Null, "NaN"), json!({"_FillValue": NAN}));
    assert_eq!(of("<i4", Value::Null, "-999.0"), json!({"_FillValue": -999}));
    assert_eq!(of("<i4", json!(7), "-999"), json!({"_FillValue": 7}), "xarray reads the fill value");
    assert_eq!(of("|i1", Value::Null, "255"), json!({"_FillValue": 255}), "of _Unsigned");
    assert_eq!(of("<i4", Value::Null, "\"none\""), json!({}), "xarray could not open it");
    assert_eq!(of("|S1", Value::Null, "\"a\""), json!({}));
    let both = v2("<U1", json!("b"), r#"{"_ARRAY_DIMENSIONS": ["x"], "missing_value": "a"}"#);
    assert_eq!(attributes(&translate(&both, V3).unwrap()), json!({"missing_value": ["b", "a"]}));
}

#[test]
fn an_attribute_of_format_3_becomes_the_fill_value_of_format_2() {
    let element = |bytes: &[u8]| FillValue::Element(bytes.to_vec());
    let f4 = |value: f32| element(&value.to_le_bytes());
    let cases = [
        (json!("int16"), json!(-32767), element(&(-32767i16).to_le_bytes())),
        (json!("bool"), json!(true), element(&[1])),
        (json!("float32"), json!(NAN), f4(f32::NAN)),
        (json!("float32"), json!("QIy1eB2vFUQ="), f4(1e20)),
        (json!("float32"), json!(-999.0), f4(-999.0)),
        (json!("float32"), json!("NaN"), f4(f32::NAN)),
        (json!("complex128"), json!(["AAAAAAAAAAA=", NAN]), element(&[0f64, f64::NAN].map(f64::to_le_bytes).concat())),
        (json!("string"), json!("a"), element(b"a")),
    ];
    for (data_type, missing, expected) in cases {
        let fill_value = if data_type == "string" { json!("") } else { json!(0) };
        let given = json!({"units": "K", "_FillValue": missing});
        let source = v3(data_type, fill_value, given, json!(["x"]));
        let translated = translate(&source, V2).unwrap();
        assert_eq!(translated.fill_value, expected, "{missing}");
        assert_eq!(translated.attributes, r#"{"_ARRAY_DIMENSIONS": ["x"], "units": "K"}"#, "{missing}");
        assert_eq!(translated.dimension_names, None);
    }
}

#[test]
fn a_fill_value_of_format_3_marks_nothing_as_missing_in_format_2() {
    let source = v3(json!("int64"), json!(0), json!({}), json!(["time"]));
    let translated = translate(&source, V2).unwrap();
    assert_eq!(translated.fill_value, FillValue::Undefined);
    assert_eq!(attributes(&translated), json!({"_ARRAY_DIMENSIONS": ["time"]}));
    // A value that no element can equal stays unchanged, as xarray reads it in format 2.
    let source = v3(json!("int8"), json!(0), json!({"_FillValue": 255}), json!(["x"]));
    let translated = translate(&source, V2).unwrap();
    assert_eq!(translated.fill_value, FillValue::Undefined);
    assert_eq!(attributes(&translated), json!({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 255}));
}

#[test]
fn arrays_that_xarray_cannot_open_keep_fill_value_and_attributes() {
    for names in [Value::Null, json!([null])] {
        let source = v3(json!("int16"), json!(7), json!({"_FillValue": 3}), names);
        let translated = translate(&source, V2).unwrap();
        assert_eq!((&translated.fill_value, attributes(&translated)), (source.fill_value(), json!({"_FillValue": 3})));
    }
    for given in ["{\"a\": 1e-7}", r#"{"_ARRAY_DIMENSIONS": ["x", "y"]}"#] {
        let source = v2("<i2", json!(7), given);
        let translated = translate(&source, V3).unwrap();
        assert_eq!((translated.attributes.as_str(), translated.dimension_names), (given, None));
        assert_eq!(translated.fill_value, *source.fill_value());
    }
}

#[test]
fn dimensions_are_found_where_xarray_finds_them() {
    let netcdf = br#"{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i2", "fill_value": null, "order": "C",
        "filters": null, "compressor": null, "_NCZARR_ARRAY": {"dimrefs": ["/group/time"]}}"#;
    let source = ArrayMetadata::from_json_v2(netcdf, None).unwrap();
    assert_eq!(source.xarray_dimensions(), Some(vec![Some("time".to_owned())]));
    assert_eq!(attributes(&translate(&source, V2).unwrap()), json!({"_ARRAY_DIMENSIONS": ["time"]}));
    assert_eq!(translate(&source, V3).unwrap().dimension_names, Some(vec![Some("time".to_owned())]));
    // An array without dimensions has no names, but format 2 has to say so.
    let mut scalar: Value =
        serde_json::from_slice(&v3(json!("int8"), json!(0), json!({}), Value::Null).to_json()).unwrap();
    (scalar["shape"], scalar["chunk_grid"]["configuration"]["chunk_shape"]) = (json!([]), json!([]));
    scalar.as_object_mut().unwrap().remove("dimension_names");
    let source = ArrayMetadata::from_json(scalar.to_string().as_bytes()).unwrap();
    assert_eq!(attributes(&translate(&source, V2).unwrap()), json!({"_ARRAY_DIMENSIONS": []}));
    assert_eq!(translate(&source, V3).unwrap().dimension_names, None, "within a format nothing changes");
}
