//! The `data_type` member of v3 documents: a name, or an object with `name` and `configuration`.
//!
//! | type | written as | also read |
//! |---|---|---|
//! | plain types | `"bool"`, `"int8"` … `"complex128"`, `"bfloat16"` | |
//! | small numbers | `"int4"`, `"float8_e5m2"`, `"complex_bfloat16"` … | |
//! | complex numbers | `"complex64"`, `"complex128"` | `"complex_float32"`, `"complex_float64"` |
//! | raw bytes | `{"name": "raw_bytes", "configuration": {"length_bytes": 8}}` | `"r64"` (the specification's) |
//! | `null_terminated_bytes`, `fixed_length_utf32` | configuration `length_bytes` | |
//! | `numpy.datetime64`, `numpy.timedelta64` | configuration `unit`, `scale_factor` | |
//! | structures | `struct`, fields as `{"name", "data_type"}` | `structured`, fields as `[name, data_type]` |
//! | strings | `"string"` | |
//! | bytes | `"variable_length_bytes"` | `"bytes"` |
//!
//! When writing, the names of zarr-python 3.4 are used.

use cuzarr_device::SmallNumber;
use serde_json::{Map, Value, json};

use super::{DataType, Field, PLAIN, TimeUnit, unknown};
use crate::meta::extension::Extension;
use crate::meta::invalid;
use crate::{Error, ErrorKind, Result, ResultExt};

impl DataType {
    /// Parses the `data_type` member of a v3 document.
    pub fn from_v3(data_type: &Value) -> Result<DataType> {
        let parsed = DataType::unchecked_from_v3(data_type)?;
        parsed.check()?;
        Ok(parsed)
    }

    fn unchecked_from_v3(data_type: &Value) -> Result<DataType> {
        from_extension(&Extension::from_json(data_type, "data_type")?, data_type)
    }

    /// Writes the `data_type` member of a v3 document. A structure whose fields have shapes is an error.
    pub fn to_v3(&self) -> Result<Value> {
        let with_length = |name: &str, length: usize| json!({"name": name, "configuration": {"length_bytes": length}});
        let time = |name: &str, unit: TimeUnit, scale: u32| {
            let configuration = json!({"unit": unit.name(), "scale_factor": scale});
            json!({"name": name, "configuration": configuration})
        };
        Ok(match self {
            DataType::Small(number) => Value::from(number.name()),
            DataType::RawBytes { size } => with_length("raw_bytes", *size),
            DataType::NullTerminatedBytes { length_bytes } => with_length("null_terminated_bytes", *length_bytes),
            DataType::FixedLengthUtf32 { length_bytes } => with_length("fixed_length_utf32", *length_bytes),
            DataType::DateTime64 { unit, scale_factor } => time("numpy.datetime64", *unit, *scale_factor),
            DataType::TimeDelta64 { unit, scale_factor } => time("numpy.timedelta64", *unit, *scale_factor),
            DataType::Struct { fields } => {
                let fields = fields.iter().map(field_to).collect::<Result<Vec<_>>>()?;
                json!({"name": "struct", "configuration": {"fields": fields}})
            }
            DataType::VariableString => Value::from("string"),
            DataType::VariableBytes => Value::from("variable_length_bytes"),
            plain => Value::from(plain.plain().map_or("", |(_, name, ..)| *name)),
        })
    }
}

fn field_to(field: &Field) -> Result<Value> {
    if !field.shape.is_empty() {
        return Err(Error::new(
            ErrorKind::UnsupportedFeature,
            format!(
                "field '{}': got the shape {:?}, expected none: v3 has no fields with a shape",
                field.name, field.shape
            ),
        ));
    }
    Ok(json!({"name": field.name, "data_type": field.data_type.to_v3()?}))
}

fn from_extension(extension: &Extension, data_type: &Value) -> Result<DataType> {
    let name = extension.name.as_str();
    let plain = PLAIN.iter().find(|(_, known, ..)| *known == name).map(|(data_type, ..)| data_type.clone());
    let parsed = match name {
        _ if plain.is_some() => plain,
        "string" => Some(DataType::VariableString),
        "variable_length_bytes" | "bytes" => Some(DataType::VariableBytes),
        "complex_float32" => Some(DataType::Complex64),
        "complex_float64" => Some(DataType::Complex128),
        _ => SmallNumber::from_name(name).map(DataType::Small).or_else(|| raw_bits(name)),
    };
    if let Some(parsed) = parsed {
        extension.check_members("data_type", &[])?;
        return Ok(parsed);
    }
    match name {
        "raw_bytes" => Ok(DataType::RawBytes { size: length_bytes(extension)? }),
        "null_terminated_bytes" => Ok(DataType::NullTerminatedBytes { length_bytes: length_bytes(extension)? }),
        "fixed_length_utf32" => Ok(DataType::FixedLengthUtf32 { length_bytes: length_bytes(extension)? }),
        "numpy.datetime64" => {
            let (unit, scale_factor) = time_of(extension)?;
            Ok(DataType::DateTime64 { unit, scale_factor })
        }
        "numpy.timedelta64" => {
            let (unit, scale_factor) = time_of(extension)?;
            Ok(DataType::TimeDelta64 { unit, scale_factor })
        }
        "struct" | "structured" => structure_of(extension),
        _ => Err(unknown(data_type, "a data type that is supported")),
    }
}

/// Parses the names `r8`, `r16` and so on, whose number of bits is a multiple of 8.
fn raw_bits(name: &str) -> Option<DataType> {
    let digits = name.strip_prefix('r').filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))?;
    let bits: usize = digits.parse().ok()?;
    bits.is_multiple_of(8).then_some(DataType::RawBytes { size: bits / 8 })
}

fn configured<'a>(extension: &'a Extension, member: &str) -> Result<&'a Value> {
    extension.configuration.get(member).ok_or_else(|| {
        let message = format!("member 'data_type.configuration.{member}' of '{}'", extension.name);
        Error::new(ErrorKind::MetadataInvalid, format!("{message} is missing"))
    })
}

fn length_bytes(extension: &Extension) -> Result<usize> {
    extension.check_members("data_type", &["length_bytes"])?;
    let value = configured(extension, "length_bytes")?;
    let length = value.as_u64().and_then(|length| usize::try_from(length).ok());
    length.ok_or_else(|| invalid("data_type.configuration.length_bytes", value, "a number of bytes"))
}

fn time_of(extension: &Extension) -> Result<(TimeUnit, u32)> {
    extension.check_members("data_type", &["unit", "scale_factor"])?;
    let unit = configured(extension, "unit")?;
    let scale = configured(extension, "scale_factor")?;
    let parsed_unit = unit.as_str().and_then(TimeUnit::from_name);
    let parsed_scale = scale.as_u64().and_then(|scale| u32::try_from(scale).ok());
    Ok((
        parsed_unit
            .ok_or_else(|| invalid("data_type.configuration.unit", unit, "a unit such as \"ns\" or \"generic\""))?,
        parsed_scale.ok_or_else(|| invalid("data_type.configuration.scale_factor", scale, "1 to 2147483647"))?,
    ))
}

fn structure_of(extension: &Extension) -> Result<DataType> {
    extension.check_members("data_type", &["fields"])?;
    let value = configured(extension, "fields")?;
    let Value::Array(entries) = value else {
        return Err(invalid("data_type.configuration.fields", value, "a list of fields"));
    };
    let mut fields = Vec::with_capacity(entries.len());
    for entry in entries {
        let (name, data_type) = field_of(entry)
            .ok_or_else(|| invalid("data_type.configuration.fields", entry, "a field with name and data_type"))?;
        let data_type = DataType::unchecked_from_v3(data_type).at(|| format!("field '{name}'"))?;
        fields.push(Field::new(name, data_type));
    }
    Ok(DataType::Struct { fields })
}

/// Splits a field of a structure, `{"name": …, "data_type": …}` or `[name, data_type]`, into its name and type.
fn field_of(entry: &Value) -> Option<(&str, &Value)> {
    match entry {
        Value::Object(members) if members.len() == 2 => object_field(members),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(name), data_type] => Some((name, data_type)),
            _ => None,
        },
        _ => None,
    }
}

fn object_field(members: &Map<String, Value>) -> Option<(&str, &Value)> {
    Some((members.get("name")?.as_str()?, members.get("data_type")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back() {
        for value in [
            json!("bool"),
            json!("int8"),
            json!("uint64"),
            json!("float16"),
            json!("bfloat16"),
            json!("uint2"),
            json!("float8_e4m3fn"),
            json!("complex_float6_e2m3fn"),
            json!("complex128"),
            json!("string"),
            json!("variable_length_bytes"),
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 8}}),
            json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 5}}),
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 28}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 10}}),
            json!({"name": "numpy.timedelta64", "configuration": {"unit": "generic", "scale_factor": 1}}),
            json!({"name": "struct", "configuration": {"fields": [
                {"name": "a", "data_type": "int32"},
                {"name": "b", "data_type": {"name": "struct", "configuration": {"fields": [
                    {"name": "c", "data_type": {"name": "raw_bytes", "configuration": {"length_bytes": 3}}}
                ]}}}
            ]}}),
        ] {
            assert_eq!(DataType::from_v3(&value).unwrap().to_v3().unwrap(), value);
        }
    }

    #[test]
    fn aliases_are_read() {
        let parse = |value: Value| DataType::from_v3(&value).unwrap();
        assert_eq!(parse(json!("r24")), DataType::RawBytes { size: 3 });
        assert_eq!(parse(json!("bytes")), DataType::VariableBytes);
        assert_eq!(parse(json!("complex_float32")), DataType::Complex64);
        assert_eq!(parse(json!("complex_float64")), DataType::Complex128);
        assert_eq!(parse(json!({"name": "int32"})), DataType::Int32);
        assert_eq!(parse(json!({"name": "int32", "configuration": {}})), DataType::Int32);
        let micro = json!({"name": "numpy.datetime64", "configuration": {"unit": "μs", "scale_factor": 1}});
        assert_eq!(parse(micro), DataType::DateTime64 { unit: TimeUnit::Microsecond, scale_factor: 1 });
        let legacy = json!({"name": "structured", "configuration": {"fields": [["a", "int8"], ["b", "float64"]]}});
        let fields = vec![Field::new("a", DataType::Int8), Field::new("b", DataType::Float64)];
        assert_eq!(parse(legacy), DataType::Struct { fields });
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        for name in ["int3", "float8_e9m9", "numpy.void", "r7", "r", "r+8", "Int32", ""] {
            let error = DataType::from_v3(&json!(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnknownDataType, "{name}");
            assert!(error.message().contains(&format!("got \"{name}\"")), "{error}");
        }
    }

    #[test]
    fn broken_configurations_are_refused() {
        for value in [
            json!(3),
            json!({"configuration": {}}),
            json!("r0"),
            json!({"name": "int32", "configuration": {"bits": 3}}),
            json!({"name": "raw_bytes"}),
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 0}}),
            json!({"name": "raw_bytes", "configuration": {"length_bytes": -1}}),
            json!({"name": "raw_bytes", "configuration": {"length_bytes": u64::MAX}}),
            json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 7}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "x", "scale_factor": 1}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 0}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1u64 << 31}}),
            json!({"name": "numpy.datetime64", "configuration": {"unit": "s"}}),
            json!({"name": "struct", "configuration": {"fields": []}}),
            json!({"name": "struct", "configuration": {"fields": [["a"]]}}),
            json!({"name": "struct", "configuration": {"fields": {}}}),
            json!({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "int8", "shape": [2]}]}}),
        ] {
            assert_eq!(DataType::from_v3(&value).unwrap_err().kind(), ErrorKind::MetadataInvalid, "{value}");
        }
        let variable = json!({"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "string"}]}});
        assert_eq!(DataType::from_v3(&variable).unwrap_err().kind(), ErrorKind::UnsupportedFeature);
    }

    #[test]
    fn fields_with_shapes_cannot_be_written() {
        let fields = vec![Field { shape: vec![2], ..Field::new("a", DataType::Int8) }];
        let error = DataType::structure(fields).unwrap().to_v3().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
    }
}
