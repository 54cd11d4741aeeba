//! The `dtype` member of v2 documents: NumPy's type strings, and lists of fields for structures.
//!
//! Numbers without a NumPy code have their v3 names, as tensorstore writes them: `bfloat16`, `int4`.
//!
//! `<f4`, `>i2`, `|b1`, `|S5`, `|V8`, `<U7`, `<M8[10us]`, `|O` (with `vlen-utf8` or `vlen-bytes` among the filters),
//! and `[["a", "<i4"], ["b", ">f8", [2, 3]], ["c", [["d", "|u1"]]]]`. A byte order is accepted even if it has no effect
//! (`<i1`).

use cuzarr_device::SmallNumber;
use serde_json::Value;

use super::{DataType, Endian, Field, PLAIN, TimeUnit, unknown};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Filters and compressors that define the elements of type `|O`, as zarr-python lists them.
pub(crate) const OBJECT_CODECS: [&str; 6] = ["vlen-utf8", "vlen-bytes", "vlen-array", "pickle", "json2", "msgpack2"];

impl DataType {
    /// Parses the `dtype` member of a v2 document. Returns the type, and the byte order of a plain type. `object_codec`
    /// is the `id` of the filter or compressor that defines the elements of `|O`.
    pub fn from_v2(dtype: &Value, object_codec: Option<&str>) -> Result<(DataType, Endian)> {
        let (data_type, endian) = DataType::unchecked_from_v2(dtype, object_codec)?;
        data_type.check()?;
        Ok((data_type, endian))
    }

    fn unchecked_from_v2(dtype: &Value, object_codec: Option<&str>) -> Result<(DataType, Endian)> {
        Ok(match dtype {
            Value::String(name) if name.as_str() == "|O" => (from_object_codec(object_codec)?, Endian::Little),
            Value::String(name) => from_name(name).ok_or_else(|| unknown(dtype, "a NumPy type string"))?,
            Value::Array(fields) => (structure_from(fields)?, Endian::Little),
            _ => return Err(unknown(dtype, "a NumPy type string or a list of fields")),
        })
    }

    /// The `dtype` member of a v2 document; `endian` is the byte order of a plain type.
    pub fn to_v2(&self, endian: Endian) -> Value {
        to_name(self, endian, FieldOrder::Stored)
    }
}

fn from_object_codec(object_codec: Option<&str>) -> Result<DataType> {
    let message = match object_codec {
        Some("vlen-utf8") => return Ok(DataType::VariableString),
        Some("vlen-bytes") => return Ok(DataType::VariableBytes),
        Some(other) => format!("data type '|O': got the object codec '{other}', expected 'vlen-utf8' or 'vlen-bytes'"),
        None => "data type '|O': got no object codec, expected the filter 'vlen-utf8' or 'vlen-bytes'".to_owned(),
    };
    Err(Error::new(ErrorKind::UnknownDataType, message))
}

/// Parses a NumPy type string such as `<f4`; `None` if it is not one.
fn from_name(name: &str) -> Option<(DataType, Endian)> {
    if name == "bfloat16" {
        return Some((DataType::BFloat16, Endian::Little));
    }
    if let Some(number) = SmallNumber::from_name(name) {
        return Some((DataType::Small(number), Endian::Little));
    }
    let (order, code) = name.split_at_checked(1)?;
    let endian = match order {
        "<" | "|" => Endian::Little,
        ">" => Endian::Big,
        _ => return None,
    };
    let data_type = from_code(code)?;
    match data_type.swap_unit_bytes() {
        Some(1) => Some((data_type, Endian::Little)),
        // Without a byte order, only types that need none are valid.
        _ if order == "|" => None,
        _ => Some((data_type, endian)),
    }
}

fn from_code(code: &str) -> Option<DataType> {
    if let Some((data_type, ..)) = PLAIN.iter().find(|(_, _, known, _)| *known == code && *known != "bfloat16") {
        return Some(data_type.clone());
    }
    let (kind, rest) = code.split_at_checked(1)?;
    match kind {
        "V" => Some(DataType::RawBytes { size: parse_size(rest)? }),
        "S" => Some(DataType::NullTerminatedBytes { length_bytes: parse_size(rest)? }),
        "U" => Some(DataType::FixedLengthUtf32 { length_bytes: parse_size(rest)?.checked_mul(4)? }),
        "M" => from_time(rest).map(|(unit, scale_factor)| DataType::DateTime64 { unit, scale_factor }),
        "m" => from_time(rest).map(|(unit, scale_factor)| DataType::TimeDelta64 { unit, scale_factor }),
        _ => None,
    }
}

/// Parses what follows the letter in the type string of a time: `8`, `8[ns]` or `8[10us]`.
fn from_time(rest: &str) -> Option<(TimeUnit, u32)> {
    let rest = rest.strip_prefix('8')?;
    if rest.is_empty() {
        return Some((TimeUnit::Generic, 1));
    }
    let inside = rest.strip_prefix('[')?.strip_suffix(']')?;
    let digits = inside.bytes().take_while(u8::is_ascii_digit).count();
    let (scale, unit) = inside.split_at(digits);
    let scale_factor = if scale.is_empty() { 1 } else { scale.parse().ok()? };
    Some((TimeUnit::from_name(unit)?, scale_factor))
}

/// Parses the size in the type string of a NumPy type, such as 4 in `<f4`. Accepts digits only, because `str::parse`
/// would accept a sign.
fn parse_size(text: &str) -> Option<usize> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn structure_from(list: &[Value]) -> Result<DataType> {
    let mut fields = Vec::with_capacity(list.len());
    for entry in list {
        let expected = "a field as [name, dtype] or [name, dtype, shape]";
        let (name, dtype, shape) = match entry.as_array().map(Vec::as_slice) {
            Some([Value::String(name), dtype]) => (name, dtype, None),
            Some([Value::String(name), dtype, shape]) => (name, dtype, Some(shape)),
            _ => return Err(unknown(entry, expected)),
        };
        let (data_type, endian) = DataType::unchecked_from_v2(dtype, None).at(|| format!("field '{name}'"))?;
        let shape = match shape {
            None => Vec::new(),
            Some(Value::Number(length)) => vec![field_length(length.as_u64()).ok_or_else(|| unknown(entry, expected))?],
            Some(Value::Array(lengths)) => lengths
                .iter()
                .map(|length| field_length(length.as_u64()))
                .collect::<Option<_>>()
                .ok_or_else(|| unknown(entry, expected))?,
            Some(_) => return Err(unknown(entry, expected)),
        };
        fields.push(Field { name: name.clone(), data_type, endian, shape });
    }
    Ok(DataType::Struct { fields })
}

fn field_length(length: Option<u64>) -> Option<usize> {
    usize::try_from(length?).ok()
}

/// The byte order that is written for the fields of a structure.
#[derive(Clone, Copy)]
pub(super) enum FieldOrder {
    /// Each field keeps the byte order in which the array stores it.
    Stored,
    /// Little-endian, as in memory.
    Native,
}

/// Writes the type string of a plain type in byte order `endian`, or the list of fields of a structure.
pub(super) fn to_name(data_type: &DataType, endian: Endian, field_order: FieldOrder) -> Value {
    let order = match endian {
        Endian::Little => "<",
        Endian::Big => ">",
    };
    let time = |kind: &str, unit: TimeUnit, scale_factor: u32| match (unit, scale_factor) {
        (TimeUnit::Generic, 1) => Value::from(format!("{order}{kind}8")),
        (unit, 1) => Value::from(format!("{order}{kind}8[{}]", unit.name())),
        (unit, scale) => Value::from(format!("{order}{kind}8[{scale}{}]", unit.name())),
    };
    match data_type {
        DataType::BFloat16 => Value::from("bfloat16"),
        DataType::Small(number) => Value::from(number.name()),
        DataType::RawBytes { size } => Value::from(format!("|V{size}")),
        DataType::NullTerminatedBytes { length_bytes } => Value::from(format!("|S{length_bytes}")),
        DataType::FixedLengthUtf32 { length_bytes } => Value::from(format!("{order}U{}", length_bytes / 4)),
        DataType::DateTime64 { unit, scale_factor } => time("M", *unit, *scale_factor),
        DataType::TimeDelta64 { unit, scale_factor } => time("m", *unit, *scale_factor),
        DataType::VariableString | DataType::VariableBytes => Value::from("|O"),
        DataType::Struct { fields } => Value::Array(fields.iter().map(|field| field_to(field, field_order)).collect()),
        plain => {
            let order = if plain.swap_unit_bytes() == Some(1) { "|" } else { order };
            Value::from(format!("{order}{}", plain.plain().map_or("V1", |(_, _, code, _)| code)))
        }
    }
}

fn field_to(field: &Field, field_order: FieldOrder) -> Value {
    let endian = match field_order {
        FieldOrder::Stored => field.endian,
        FieldOrder::Native => Endian::Little,
    };
    let mut entry = vec![Value::from(field.name.as_str()), to_name(&field.data_type, endian, field_order)];
    if !field.shape.is_empty() {
        entry.push(Value::from(field.shape.clone()));
    }
    Value::Array(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::dtype::SwapUnit;
    use serde_json::json;

    #[test]
    fn type_strings_come_back() {
        for name in [
            "|b1",
            "|i1",
            "|u1",
            "<i2",
            ">i2",
            "<u4",
            ">u8",
            "<f2",
            ">f4",
            "<f8",
            "<c8",
            ">c16",
            "|V8",
            "|S5",
            "<U7",
            ">U1",
            "<M8",
            "<M8[ns]",
            ">M8[10us]",
            "<m8[D]",
            "<m8[25s]",
            "<M8[3generic]",
            "bfloat16",
        ] {
            let (data_type, endian) = DataType::from_v2(&json!(name), None).unwrap();
            assert_eq!(data_type.to_v2(endian), json!(name));
        }
    }

    #[test]
    fn byte_order_without_effect_is_dropped() {
        for (name, canonical) in [("<i1", "|i1"), (">b1", "|b1"), ("<V3", "|V3"), (">S3", "|S3")] {
            let (data_type, endian) = DataType::from_v2(&json!(name), None).unwrap();
            assert_eq!((data_type.to_v2(endian), endian), (json!(canonical), Endian::Little));
        }
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        for name in [
            "f4",
            "|f4",
            "=f4",
            "<f16",
            "<f3",
            "",
            "<",
            "é",
            "<é",
            "|S0",
            "|S",
            "|S-1",
            "|S+1",
            "<U99999999999",
            "|V4294967296",
            "<M8[ns",
            "<M8[xs]",
            "<M4[ns]",
            "<M8[0ns]",
            "<M8[2147483648ns]",
            "<M8[]",
            "<t5",
            "<bfloat16",
        ] {
            let error = DataType::from_v2(&json!(name), None).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::UnknownDataType | ErrorKind::MetadataInvalid),
                "{name:?}: {error:?}"
            );
        }
        let error = DataType::from_v2(&json!("<f16"), None).unwrap_err();
        assert_eq!(error.to_string(), "data type: got \"<f16\", expected a NumPy type string");
    }

    #[test]
    fn objects_need_a_codec_that_names_their_type() {
        let parse = |codec| DataType::from_v2(&json!("|O"), codec);
        assert_eq!(parse(Some("vlen-utf8")).unwrap().0, DataType::VariableString);
        assert_eq!(parse(Some("vlen-bytes")).unwrap().0, DataType::VariableBytes);
        assert!(parse(Some("pickle")).unwrap_err().message().contains("'pickle'"));
        assert_eq!(parse(None).unwrap_err().kind(), ErrorKind::UnknownDataType);
    }

    #[test]
    fn structures_come_back_with_order_nesting_and_shapes() {
        let dtype = json!([["a", "<i4"], ["b", ">f8", [2, 3]], ["c", [["d", "|u1"], ["e", ">U2"]]], ["f", "|S3"]]);
        let (data_type, endian) = DataType::from_v2(&dtype, None).unwrap();
        assert_eq!(data_type.size_bytes(), Some(4 + 48 + 9 + 3));
        assert_eq!(data_type.to_v2(endian), dtype);
        let native = json!([["a", "<i4"], ["b", "<f8", [2, 3]], ["c", [["d", "|u1"], ["e", "<U2"]]], ["f", "|S3"]]);
        assert_eq!(data_type.numpy_descr(), native);
        let unit = |offset, unit_bytes, count| SwapUnit { offset, unit_bytes, count };
        assert_eq!(data_type.stored_swap_units(endian), [unit(4, 8, 6), unit(53, 4, 2)]);
    }

    #[test]
    fn broken_structures_are_refused() {
        for dtype in [
            json!([]),
            json!([[]]),
            json!([["a"]]),
            json!([["a", "<i4", [-1]]]),
            json!([["a", "<i4", [0]]]),
            json!([["a", "<i4", "x"]]),
            json!([["a", "<i4", [1], 2]]),
            json!([[["title", "a"], "<i4"]]),
            json!([["a", "|O"]]),
            json!([["a", "<i4"], ["a", "<i4"]]),
            json!([["a", "<i4", [4294967296u64, 4294967296u64, 4294967296u64]]]),
            json!({"name": "<i4"}),
            json!(4),
            json!(null),
        ] {
            assert!(DataType::from_v2(&dtype, None).is_err(), "{dtype}");
        }
        let error = DataType::from_v2(&json!([["a", [["b", "<x4"]]]]), None).unwrap_err();
        assert_eq!(error.trail(), ["field 'a'", "field 'b'"]);
    }
}
