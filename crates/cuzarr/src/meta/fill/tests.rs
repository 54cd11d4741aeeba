use super::*;
use crate::meta::TimeUnit;
use serde_json::json;

fn parse(value: Value, data_type: &DataType, format: ZarrFormat) -> Result<Vec<u8>> {
    match FillValue::from_json(&value, data_type, format)? {
        FillValue::Element(bytes) => Ok(bytes),
        FillValue::Undefined => panic!("undefined"),
    }
}

/// Parses `value` in both Zarr formats and expects `bytes`; writes these bytes in both formats and expects `written`.
fn check(data_type: &DataType, value: Value, bytes: &[u8], written: Value) {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        assert_eq!(parse(value.clone(), data_type, format).unwrap(), bytes, "{data_type:?} {value}");
        let back = FillValue::Element(bytes.to_vec()).to_json(data_type, format).unwrap();
        assert_eq!(back, written, "{data_type:?} {value}");
    }
}

fn refused(data_type: &DataType, value: Value) {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let error = FillValue::from_json(&value, data_type, format).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MetadataInvalid, "{data_type:?} {value}");
        assert!(error.message().starts_with("member 'fill_value': got "), "{error}");
    }
}

#[test]
fn booleans_and_integers_are_exact() {
    check(&DataType::Bool, json!(true), &[1], json!(true));
    check(&DataType::Bool, json!(0), &[0], json!(false));
    check(&DataType::Int8, json!(-128), &[0x80], json!(-128));
    check(&DataType::UInt16, json!(5.0), &[5, 0], json!(5));
    check(&DataType::Int32, json!("-7"), &(-7i32).to_le_bytes(), json!(-7));
    check(&DataType::UInt64, json!(u64::MAX - 1), &(u64::MAX - 1).to_le_bytes(), json!(u64::MAX - 1));
    check(&DataType::Int64, json!(i64::MIN), &i64::MIN.to_le_bytes(), json!(i64::MIN));
}

#[test]
fn integers_out_of_range_are_refused_and_never_wrap() {
    refused(&DataType::Bool, json!(2));
    refused(&DataType::Bool, json!("true"));
    refused(&DataType::Int8, json!(128));
    refused(&DataType::UInt8, json!(-1));
    refused(&DataType::UInt8, json!(256.0));
    refused(&DataType::Int64, json!(9223372036854775808u64));
    refused(&DataType::UInt64, json!(18446744073709551616.0));
    // This float equals i64::MIN, but the text may have had a smaller number.
    refused(&DataType::Int64, json!(-9223372036854775808.0));
    refused(&DataType::Int32, json!(1.5));
    refused(&DataType::Int32, json!("x"));
    refused(&DataType::Int32, json!([1]));
}

#[test]
fn floats_keep_every_bit() {
    check(&DataType::Float32, json!(0.1), &0.1f32.to_le_bytes(), json!(f64::from(0.1f32)));
    check(&DataType::Float64, json!(-0.0), &(-0.0f64).to_le_bytes(), json!(-0.0));
    check(&DataType::Float64, json!(1), &1f64.to_le_bytes(), json!(1.0));
    check(&DataType::Float16, json!(65504), &[0xff, 0x7b], json!(65504.0));
    check(&DataType::BFloat16, json!("Infinity"), &[0x80, 0x7f], json!("Infinity"));
    check(&DataType::Float32, json!("-Infinity"), &f32::NEG_INFINITY.to_le_bytes(), json!("-Infinity"));
    check(&DataType::Float32, json!("NaN"), &0x7fc0_0000u32.to_le_bytes(), json!("NaN"));
    check(&DataType::Float64, json!("nan"), &0x7ff8_0000_0000_0000u64.to_le_bytes(), json!("NaN"));
    check(&DataType::Float64, json!("2.5"), &2.5f64.to_le_bytes(), json!(2.5));
    check(&DataType::Float32, json!(1e300), &f32::INFINITY.to_le_bytes(), json!("Infinity"));
}

#[test]
fn numbers_that_only_move_have_the_fill_values_of_their_format() {
    let small = |name: &str| DataType::Small(SmallNumber::from_name(name).unwrap());
    for (name, value, bytes, written) in [
        ("int2", json!(-2), &[0b10][..], json!(-2)),
        ("int4", json!(-1), &[0x0f], json!(-1)),
        ("int4", json!(7.0), &[7], json!(7)),
        ("uint4", json!(15), &[15], json!(15)),
        ("float4_e2m1fn", json!(-1.5), &[0x0b], json!(-1.5)),
        ("float6_e3m2fn", json!("0x3f"), &[0x3f], json!(-28.0)),
        ("float8_e4m3", json!("NaN"), &[0x7c], json!("NaN")),
        ("float8_e4m3", json!("-Infinity"), &[0xf8], json!("-Infinity")),
        ("float8_e4m3fn", json!(0.1), &[0x1d], json!(0.1015625)),
        ("float8_e5m2fnuz", json!("NaN"), &[0x80], json!("NaN")),
        ("float8_e8m0fnu", json!(0.0), &[0], json!(5.877471754111438e-39)),
        ("float8_e8m0fnu", json!("NaN"), &[0xff], json!("NaN")),
        ("complex_float16", json!([1.0, "NaN"]), &[0x00, 0x3c, 0x00, 0x7e], json!([1.0, "NaN"])),
        ("complex_bfloat16", json!(["-Infinity", 2]), &[0x80, 0xff, 0x00, 0x40], json!(["-Infinity", 2.0])),
        ("complex_float8_e5m2", json!(["0x7c", 0]), &[0x7c, 0], json!(["Infinity", 0.0])),
    ] {
        check(&small(name), value, bytes, written);
    }
    let other_nan = FillValue::Element(vec![0xff]).to_json(&small("float8_e4m3fn"), ZarrFormat::V3).unwrap();
    assert_eq!(other_nan, json!("0xff"));
    assert_eq!(parse(other_nan, &small("float8_e4m3fn"), ZarrFormat::V3).unwrap(), [0xff]);
    for (name, value) in [
        ("int2", json!(2)),
        ("int4", json!(-9)),
        ("uint2", json!(-1)),
        ("uint4", json!(0.5)),
        ("float4_e2m1fn", json!("NaN")),
        ("float4_e2m1fn", json!(8)),
        ("float4_e2m1fn", json!("0x1f")),
        ("float6_e2m3fn", json!("Infinity")),
        ("float8_e4m3fn", json!(1000)),
        ("float8_e4m3fnuz", json!("Infinity")),
        ("float8_e8m0fnu", json!(-1)),
        ("float8_e5m2", json!("0x7")),
        ("complex_float6_e2m3fn", json!([1, 100])),
        ("complex_float16", json!([1])),
    ] {
        refused(&small(name), value);
    }
}

#[test]
fn hexadecimal_floats_are_bits() {
    for (data_type, text, bytes) in [
        (DataType::Float16, "0x7e01", vec![0x01, 0x7e]),
        (DataType::BFloat16, "0xffc1", vec![0xc1, 0xff]),
        (DataType::Float32, "0x7fc00001", 0x7fc0_0001u32.to_le_bytes().to_vec()),
        (DataType::Float32, "0xff800001", 0xff80_0001u32.to_le_bytes().to_vec()),
        (DataType::Float64, "0xfff8000000000000", 0xfff8_0000_0000_0000u64.to_le_bytes().to_vec()),
    ] {
        assert_eq!(parse(json!(text), &data_type, ZarrFormat::V3).unwrap(), bytes);
        let fill = FillValue::Element(bytes);
        assert_eq!(fill.to_json(&data_type, ZarrFormat::V3).unwrap(), json!(text));
        assert_eq!(fill.to_json(&data_type, ZarrFormat::V2).unwrap(), json!("NaN"));
    }
    // Numbers are written as numbers, and bits of another width are converted.
    check(&DataType::Float32, json!("0x3f800000"), &1f32.to_le_bytes(), json!(1.0));
    check(&DataType::Float64, json!("0x3f800000"), &1f64.to_le_bytes(), json!(1.0));
    check(&DataType::Float32, json!("0x3c00"), &1f32.to_le_bytes(), json!(1.0));
    for text in ["0x", "0x7fc0000", "0x7fc000011", "0xzzzzzzzz", "0x+fc00001", "0x7fc0é"] {
        refused(&DataType::Float32, json!(text));
    }
}

#[test]
fn other_forms_of_floats_are_refused() {
    for value in [json!("one"), json!(""), json!([1.0]), json!({}), json!("1,5")] {
        refused(&DataType::Float64, value);
    }
}

#[test]
fn complex_numbers_are_pairs() {
    let bytes = [1.5f32.to_le_bytes(), 0x7fc0_0000u32.to_le_bytes()].concat();
    check(&DataType::Complex64, json!([1.5, "NaN"]), &bytes, json!([1.5, "NaN"]));
    let bytes = [f64::NEG_INFINITY.to_le_bytes(), (-0.0f64).to_le_bytes()].concat();
    check(&DataType::Complex128, json!(["-Infinity", -0.0]), &bytes, json!(["-Infinity", -0.0]));
    check(&DataType::Complex64, json!(0), &[0; 8], json!([0.0, 0.0]));
    refused(&DataType::Complex64, json!([1.0]));
    refused(&DataType::Complex64, json!([1.0, 2.0, 3.0]));
    refused(&DataType::Complex64, json!("NaN"));
}

#[test]
fn bytes_are_base64_or_lists() {
    let raw = DataType::RawBytes { size: 3 };
    check(&raw, json!("AQID"), &[1, 2, 3], json!("AQID"));
    check(&raw, json!([1, 2, 3]), &[1, 2, 3], json!("AQID"));
    check(&raw, json!("AQ=="), &[1, 0, 0], json!("AQAA"));
    let text = DataType::NullTerminatedBytes { length_bytes: 4 };
    check(&text, json!("YWI="), b"ab\0\0", json!("YWI="));
    check(&text, json!(""), &[0; 4], json!(""));
    check(&DataType::VariableBytes, json!("AAE="), &[0, 1], json!("AAE="));
    for value in [json!("AQIDBA=="), json!("AQI"), json!("*"), json!([256]), json!([1, 2, 3, 4]), json!(0)] {
        refused(&raw, value);
    }
}

#[test]
fn strings_are_filled_up_with_zeros() {
    let data_type = DataType::FixedLengthUtf32 { length_bytes: 12 };
    let bytes = [u32::from('é'), u32::from('😀'), 0].map(u32::to_le_bytes).concat();
    check(&data_type, json!("é😀"), &bytes, json!("é😀"));
    refused(&data_type, json!("four"));
    refused(&data_type, json!(1));
    check(&DataType::VariableString, json!("é"), "é".as_bytes(), json!("é"));
    check(&DataType::VariableString, json!(0), b"0", json!("0"));
    refused(&DataType::VariableString, json!([]));
    let no_text = FillValue::Element(0x11_0000u32.to_le_bytes().repeat(3));
    assert_eq!(no_text.to_json(&data_type, ZarrFormat::V3).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn dates_are_counts_or_nat() {
    for data_type in [
        DataType::DateTime64 { unit: TimeUnit::Second, scale_factor: 1 },
        DataType::TimeDelta64 { unit: TimeUnit::Generic, scale_factor: 1 },
    ] {
        check(&data_type, json!(-5), &(-5i64).to_le_bytes(), json!(-5));
        check(&data_type, json!("NaT"), &i64::MIN.to_le_bytes(), json!(i64::MIN));
        assert_eq!(FillValue::default_of(&data_type), FillValue::Element(i64::MIN.to_le_bytes().to_vec()));
        refused(&data_type, json!("2020-01-01"));
        refused(&data_type, json!(u64::MAX));
    }
}

fn mixed() -> DataType {
    DataType::from_v2(&json!([["a", ">i2"], ["b", "<f4"], ["c", ">M8[s]"]]), None).unwrap().0
}

#[test]
fn structures_are_objects_in_v3_and_stored_bytes_in_v2() {
    let native = [&[2, 1][..], &1f32.to_le_bytes(), &7i64.to_le_bytes()].concat();
    let stored = [&[1, 2][..], &1f32.to_le_bytes(), &7i64.to_be_bytes()].concat();
    let fill = FillValue::Element(native.clone());
    let v2 = fill.to_json(&mixed(), ZarrFormat::V2).unwrap();
    assert_eq!(v2, json!(BASE64.encode(&stored)));
    assert_eq!(parse(v2, &mixed(), ZarrFormat::V2).unwrap(), native);
    let v3 = fill.to_json(&mixed(), ZarrFormat::V3).unwrap();
    assert_eq!(v3, json!({"a": 258, "b": 1.0, "c": 7}));
    assert_eq!(parse(v3, &mixed(), ZarrFormat::V3).unwrap(), native);
    assert_eq!(parse(json!(BASE64.encode(&native)), &mixed(), ZarrFormat::V3).unwrap(), native);
}

#[test]
fn fields_left_out_have_their_default() {
    let bytes = parse(json!({"b": 1}), &mixed(), ZarrFormat::V3).unwrap();
    assert_eq!(bytes, [&[0, 0][..], &1f32.to_le_bytes(), &i64::MIN.to_le_bytes()].concat());
    assert_eq!(FillValue::default_of(&mixed()), FillValue::Element(vec![0; 14]));
    refused(&mixed(), json!({"d": 1}));
    refused(&mixed(), json!("AAAA"));
    let error = parse(json!({"a": 1e9}), &mixed(), ZarrFormat::V3).unwrap_err();
    assert_eq!(error.trail(), ["field 'a'"]);
}

#[test]
fn only_v2_may_leave_the_value_open() {
    let data_type = DataType::Int16;
    let open = FillValue::from_json(&Value::Null, &data_type, ZarrFormat::V2).unwrap();
    assert_eq!(open, FillValue::Undefined);
    assert_eq!(open.to_json(&data_type, ZarrFormat::V2).unwrap(), Value::Null);
    assert_eq!(*open.element(&data_type), [0, 0]);
    assert!(open.to_json(&data_type, ZarrFormat::V3).is_err());
    assert!(FillValue::from_json(&Value::Null, &data_type, ZarrFormat::V3).is_err());
}

#[test]
fn elements_of_another_size_are_not_written() {
    for bytes in [vec![], vec![0], vec![0; 3]] {
        let error = FillValue::Element(bytes).to_json(&DataType::Int16, ZarrFormat::V3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

/// Returns the next pseudo-random number of xorshift64*: <https://doi.org/10.1145/2845077>
fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Writes the value as the text of a document, and parses it again.
fn through_text(value: &Value) -> Value {
    crate::meta::json::Json::parse(value.to_string().as_bytes()).unwrap().to_value()
}

#[test]
fn random_elements_survive_bit_by_bit() {
    let structure = |dtype| DataType::from_v2(&dtype, None).unwrap().0;
    let mut state = 1;
    for data_type in [
        DataType::Int8,
        DataType::Int64,
        DataType::UInt64,
        DataType::Float16,
        DataType::BFloat16,
        DataType::Float32,
        DataType::Float64,
        DataType::Complex64,
        DataType::Complex128,
        DataType::RawBytes { size: 5 },
        DataType::NullTerminatedBytes { length_bytes: 3 },
        DataType::DateTime64 { unit: TimeUnit::Day, scale_factor: 2 },
        structure(json!([["a", ">u2"], ["b", [["c", "<f2"], ["d", ">c8"]]], ["e", "|V3"]])),
    ] {
        let size = data_type.size_bytes().unwrap();
        for round in 0..400 {
            let mut bytes: Vec<u8> = (0..size).map(|_| (random(&mut state) >> 40) as u8).collect();
            // Without this, exponents with all bits set (as in NaN) would be rare.
            if round % 4 == 0 {
                bytes.iter_mut().skip(size.saturating_sub(2)).for_each(|byte| *byte |= 0x7f);
            }
            let fill = FillValue::Element(bytes);
            let v3 = through_text(&fill.to_json(&data_type, ZarrFormat::V3).unwrap());
            assert_eq!(FillValue::from_json(&v3, &data_type, ZarrFormat::V3).unwrap(), fill, "{data_type:?} {v3}");
            let v2 = through_text(&fill.to_json(&data_type, ZarrFormat::V2).unwrap());
            let read = FillValue::from_json(&v2, &data_type, ZarrFormat::V2).unwrap();
            assert!(read == fill || v2.to_string().contains("NaN"), "{data_type:?} {v2}");
        }
    }
}
