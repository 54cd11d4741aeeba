//! Fill values: the values of elements that were never written.
//!
//! A fill value is kept as the bytes of one native element. So the payload of a NaN, or the last bit of a `uint64`, is
//! never lost. JSON forms, by data type:
//!
//! | type | written | also read |
//! |---|---|---|
//! | bool | `true` | `0`, `1` |
//! | integers, also of less than 8 bits | `5` | `5.0` up to 2⁵³, `"5"`, `true` |
//! | floats | `0.5`, `"NaN"`, `"Infinity"`, `"-Infinity"`, other NaNs as `"0x7fc00001"` (v3) | any `"0x…"`, `"0.5"` |
//! | complex | `[re, im]` | a plain number |
//! | raw, null-terminated and variable bytes | base64 | a list of byte values |
//! | strings | `"text"` | an integer, as its digits |
//! | dates and spans of time | the count | `"NaT"` |
//! | structures | v3: an object of the fields; v2: base64 of the element as stored | either |

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cuzarr_device::SmallNumber;
use serde_json::{Map, Number, Value};

use super::dtype::{DataType, Endian, Field};
use super::small_float::{BFLOAT16, FLOAT16, SmallFloat};
use super::{ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result, ResultExt};

/// Largest integer up to which 64-bit floats represent all integers exactly. A larger float in JSON may stand for
/// another integer.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// The value of elements that were never written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FillValue {
    /// The bytes of one element in native (little-endian) order. For data types of variable length, the bytes of the
    /// value.
    Element(Vec<u8>),
    /// No fill value is defined, which v2 metadata states as `null`. [`FillValue::element`] then returns the default of
    /// the data type, as zarr-python does.
    Undefined,
}

impl FillValue {
    /// The fill value that zarr-python gives this data type by default: zero, an empty string, NaT. Fields of
    /// structures are zero.
    pub fn default_of(data_type: &DataType) -> FillValue {
        FillValue::Element(default_element(data_type))
    }

    /// The bytes of one element that has this value. For an undefined value, those of the default.
    pub fn element(&self, data_type: &DataType) -> Cow<'_, [u8]> {
        match self {
            FillValue::Element(bytes) => Cow::Borrowed(bytes),
            FillValue::Undefined => Cow::Owned(default_element(data_type)),
        }
    }

    /// Parses the `fill_value` member of a document.
    pub fn from_json(value: &Value, data_type: &DataType, format: ZarrFormat) -> Result<FillValue> {
        data_type.check()?;
        match (value, format) {
            (Value::Null, ZarrFormat::V2) => Ok(FillValue::Undefined),
            _ => Ok(FillValue::Element(parse(value, data_type, format)?)),
        }
    }

    /// The parts of a float or complex fill value as doubles: one, or two for a complex number. `None` for other data
    /// types.
    pub(super) fn doubles(&self, data_type: &DataType) -> Option<Vec<f64>> {
        let (part, _) = Float::of(data_type)?;
        Some(self.element(data_type).chunks_exact(part.size_bytes()).map(|bytes| part.decode(bytes)).collect())
    }

    /// The float or complex fill value that is nearest to these parts; `None` for other data types, and for a wrong
    /// number of parts.
    pub(super) fn from_doubles(parts: &[f64], data_type: &DataType) -> Option<FillValue> {
        let (part, count) = Float::of(data_type)?;
        let encoded: Vec<Vec<u8>> = parts.iter().map(|&value| part.encode(value)).collect::<Option<_>>()?;
        (parts.len() == count).then(|| FillValue::Element(encoded.concat()))
    }

    /// The `fill_value` member of a v3 document whose data type has the old name `structured`: the element in base64.
    pub(super) fn to_base64(&self, data_type: &DataType) -> Result<Value> {
        self.to_json(data_type, ZarrFormat::V3)?; // checked
        Ok(Value::from(BASE64.encode(self.element(data_type))))
    }

    /// Writes the `fill_value` member of a document.
    pub fn to_json(&self, data_type: &DataType, format: ZarrFormat) -> Result<Value> {
        match (self, format) {
            (FillValue::Element(bytes), _) => {
                if data_type.size_bytes().is_some_and(|size| size != bytes.len()) {
                    let message = format!("fill value of {data_type}: got {} bytes, expected one element", bytes.len());
                    return Err(Error::new(ErrorKind::InvalidArgument, message));
                }
                write(bytes, data_type, format)
            }
            (FillValue::Undefined, ZarrFormat::V2) => Ok(Value::Null),
            (FillValue::Undefined, ZarrFormat::V3) => {
                Err(Error::new(ErrorKind::MetadataInvalid, "member 'fill_value': got null, expected a value"))
            }
        }
    }
}

fn default_element(data_type: &DataType) -> Vec<u8> {
    match data_type {
        DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => i64::MIN.to_le_bytes().to_vec(),
        _ => vec![0; data_type.size_bytes().unwrap_or(0)],
    }
}

fn wrong(value: &Value, expected: &str) -> Error {
    invalid("fill_value", value, expected)
}

fn parse(value: &Value, data_type: &DataType, format: ZarrFormat) -> Result<Vec<u8>> {
    Ok(match data_type {
        DataType::Bool => vec![u8::from(parse_bool(value)?)],
        DataType::Int8 => (parse_integer(value, i8::MIN.into(), i8::MAX.into())? as i8).to_le_bytes().to_vec(),
        DataType::Int16 => (parse_integer(value, i16::MIN.into(), i16::MAX.into())? as i16).to_le_bytes().to_vec(),
        DataType::Int32 => (parse_integer(value, i32::MIN.into(), i32::MAX.into())? as i32).to_le_bytes().to_vec(),
        DataType::Int64 => (parse_integer(value, i64::MIN.into(), i64::MAX.into())? as i64).to_le_bytes().to_vec(),
        DataType::UInt8 => (parse_integer(value, 0, u8::MAX.into())? as u8).to_le_bytes().to_vec(),
        DataType::UInt16 => (parse_integer(value, 0, u16::MAX.into())? as u16).to_le_bytes().to_vec(),
        DataType::UInt32 => (parse_integer(value, 0, u32::MAX.into())? as u32).to_le_bytes().to_vec(),
        DataType::UInt64 => (parse_integer(value, 0, u64::MAX.into())? as u64).to_le_bytes().to_vec(),
        DataType::Small(number) => parse_small(value, *number)?,
        DataType::Float16 => Float::Small(FLOAT16).parse(value)?,
        DataType::BFloat16 => Float::Small(BFLOAT16).parse(value)?,
        DataType::Float32 => Float::Single.parse(value)?,
        DataType::Float64 => Float::Double.parse(value)?,
        DataType::Complex64 => parse_complex(value, Float::Single)?,
        DataType::Complex128 => parse_complex(value, Float::Double)?,
        DataType::RawBytes { size } => padded(parse_bytes(value)?, *size, value)?,
        DataType::NullTerminatedBytes { length_bytes } => padded(parse_bytes(value)?, *length_bytes, value)?,
        DataType::FixedLengthUtf32 { length_bytes } => {
            let text = value.as_str().ok_or_else(|| wrong(value, "a string"))?;
            let points = text.chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
            padded(points, *length_bytes, value)?
        }
        DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } if value == "NaT" => i64::MIN.to_le_bytes().to_vec(),
        DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => {
            (parse_integer(value, i64::MIN.into(), i64::MAX.into())? as i64).to_le_bytes().to_vec()
        }
        DataType::Struct { fields } => parse_structure(value, data_type, fields, format)?,
        DataType::VariableString => parse_text(value)?.into_bytes(),
        DataType::VariableBytes => parse_bytes(value)?,
    })
}

fn parse_bool(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(value) => Ok(*value),
        // zarr-python 2 wrote the value that it was given, often 0.
        Value::Number(number) if number.as_f64() == Some(0.0) => Ok(false),
        Value::Number(number) if number.as_f64() == Some(1.0) => Ok(true),
        _ => Err(wrong(value, "true or false")),
    }
}

/// Parses an integer fill value. Refuses one below `low` or above `high`.
fn parse_integer(value: &Value, low: i128, high: i128) -> Result<i128> {
    let integer = match value {
        Value::Bool(value) => Some(i128::from(*value)),
        Value::Number(number) => number.as_i128().or_else(|| {
            let float = number.as_f64()?;
            (float.fract() == 0.0 && float.abs() <= MAX_EXACT_INTEGER).then_some(float as i128)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    integer
        .filter(|integer| (low..=high).contains(integer))
        .ok_or_else(|| wrong(value, &format!("an integer from {low} to {high}")))
}

/// Parses a fill value for elements of a [`DataType::Small`] to the bytes of one element.
fn parse_small(value: &Value, number: SmallNumber) -> Result<Vec<u8>> {
    match (SmallFloat::of(number), number.parts()) {
        (Some(part), 1) => Float::Small(part).parse(value),
        (Some(part), _) => parse_complex(value, Float::Small(part)),
        (None, _) => {
            let count = 1_i128 << number.part_bits();
            let low = if number.is_signed_integer() { -count / 2 } else { 0 };
            // As in ml_dtypes and tensorstore, the unused upper bits are zero, even for a negative integer.
            Ok(vec![parse_integer(value, low, low + count - 1)?.rem_euclid(count) as u8])
        }
    }
}

fn write_small(bytes: &[u8], number: SmallNumber, format: ZarrFormat) -> Value {
    match (SmallFloat::of(number), number.parts()) {
        (Some(part), 1) => Float::Small(part).write(bytes, format),
        (Some(part), _) => write_complex(bytes, Float::Small(part), format),
        (None, _) => {
            let unused = 8 - number.part_bits();
            let low = bytes[0] << unused;
            Value::from(if number.is_signed_integer() {
                i16::from(low as i8 >> unused)
            } else {
                i16::from(low >> unused)
            })
        }
    }
}

/// A floating-point format in which fill values are parsed and written.
#[derive(Clone, Copy)]
enum Float {
    Small(SmallFloat),
    Single,
    Double,
}

impl Float {
    /// The floating-point format of a data type, and the number of floats in an element: 2 for complex numbers.
    fn of(data_type: &DataType) -> Option<(Float, usize)> {
        match data_type {
            DataType::Small(number) => SmallFloat::of(*number).map(|part| (Float::Small(part), number.parts())),
            DataType::Float16 => Some((Float::Small(FLOAT16), 1)),
            DataType::BFloat16 => Some((Float::Small(BFLOAT16), 1)),
            DataType::Float32 => Some((Float::Single, 1)),
            DataType::Float64 => Some((Float::Double, 1)),
            DataType::Complex64 => Some((Float::Single, 2)),
            DataType::Complex128 => Some((Float::Double, 2)),
            _ => None,
        }
    }

    fn size_bytes(self) -> usize {
        match self {
            Float::Small(format) => format.size_bytes(),
            Float::Single => 4,
            Float::Double => 8,
        }
    }

    /// The little-endian bytes of this format's number that is nearest to `value`. As in NumPy, too large values become
    /// infinity. `None` for infinity, NaN and values out of range, if the format does not have them.
    fn encode(self, value: f64) -> Option<Vec<u8>> {
        Some(match self {
            Float::Small(format) => format.encode(value)?.to_le_bytes()[..format.size_bytes()].to_vec(),
            Float::Single => (value as f32).to_le_bytes().to_vec(),
            Float::Double => value.to_le_bytes().to_vec(),
        })
    }

    /// The exact value of a float that is given by its little-endian bytes.
    fn decode(self, bytes: &[u8]) -> f64 {
        match self {
            Float::Small(format) if format.size_bytes() == 1 => format.decode(bytes[0].into()),
            Float::Small(format) => format.decode(u16::from_le_bytes(array_of(bytes))),
            Float::Single => f64::from(f32::from_le_bytes(array_of(bytes))),
            Float::Double => f64::from_le_bytes(array_of(bytes)),
        }
    }

    fn parse(self, value: &Value) -> Result<Vec<u8>> {
        let expected = "a number in the range of the data type, \"NaN\", \"Infinity\", \"-Infinity\" where it has them, or \"0x\" with \
                        hexadecimal digits";
        let parsed = match value {
            Value::Number(number) => number.as_f64().and_then(|value| self.encode(value)),
            Value::Bool(value) => self.encode(f64::from(u8::from(*value))),
            Value::String(text) => match text.strip_prefix("0x") {
                Some(digits) => self.parse_hex(digits),
                None => self.parse_text(text),
            },
            _ => None,
        };
        parsed.ok_or_else(|| wrong(value, expected))
    }

    fn parse_text(self, text: &str) -> Option<Vec<u8>> {
        match text {
            "NaN" => self.encode(f64::NAN),
            "Infinity" => self.encode(f64::INFINITY),
            "-Infinity" => self.encode(f64::NEG_INFINITY),
            _ => text.trim().parse().ok().and_then(|value| self.encode(value)),
        }
    }

    /// Parses hexadecimal digits as the bits of this format, or of an IEEE format of another width, which is then
    /// converted.
    fn parse_hex(self, digits: &str) -> Option<Vec<u8>> {
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let bits = u64::from_str_radix(digits, 16).ok()?;
        if digits.len() == 2 * self.size_bytes() {
            let is_known = !matches!(self, Float::Small(format) if bits > u64::from(format.mask()));
            return is_known.then(|| bits.to_le_bytes()[..self.size_bytes()].to_vec());
        }
        match digits.len() {
            4 => self.encode(FLOAT16.decode(bits as u16)),
            8 => self.encode(f64::from(f32::from_bits(bits as u32))),
            16 => self.encode(f64::from_bits(bits)),
            _ => None,
        }
    }

    fn write(self, bytes: &[u8], format: ZarrFormat) -> Value {
        let value = self.decode(bytes);
        if value.is_infinite() {
            return Value::from(if value > 0.0 { "Infinity" } else { "-Infinity" });
        }
        if let Some(number) = Number::from_f64(value) {
            return Value::Number(number);
        }
        // Readers of v2 only know NaN, not its bits.
        if format == ZarrFormat::V2 || self.encode(f64::NAN).is_some_and(|nan| nan == bytes) {
            return Value::from("NaN");
        }
        let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        Value::from(format!("0x{digits}"))
    }
}

fn parse_complex(value: &Value, part: Float) -> Result<Vec<u8>> {
    match value {
        Value::Array(parts) if parts.len() == 2 => Ok([part.parse(&parts[0])?, part.parse(&parts[1])?].concat()),
        Value::Number(_) => Ok([part.parse(value)?, part.parse(&Value::from(0))?].concat()),
        _ => Err(wrong(value, "[real, imaginary]")),
    }
}

fn write_complex(bytes: &[u8], part: Float, format: ZarrFormat) -> Value {
    Value::Array(bytes.chunks_exact(part.size_bytes()).map(|bytes| part.write(bytes, format)).collect())
}

/// Parses bytes from base64, or from a list of byte values, which the v3 specification uses for `r*`.
fn parse_bytes(value: &Value) -> Result<Vec<u8>> {
    let parsed = match value {
        Value::String(text) => BASE64.decode(text).ok(),
        Value::Array(bytes) => bytes.iter().map(|byte| byte.as_u64().and_then(|byte| byte.try_into().ok())).collect(),
        _ => None,
    };
    parsed.ok_or_else(|| wrong(value, "base64 or a list of byte values"))
}

fn parse_text(value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        // Arrays of strings were often created with a fill value of 0. zarr-python reads it as "0".
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        _ => Err(wrong(value, "a string")),
    }
}

/// Pads `bytes` with zeros to `size` bytes.
fn padded(mut bytes: Vec<u8>, size: usize, value: &Value) -> Result<Vec<u8>> {
    if bytes.len() > size {
        return Err(wrong(value, &format!("at most {size} bytes, not {}", bytes.len())));
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

fn parse_structure(value: &Value, data_type: &DataType, fields: &[Field], format: ZarrFormat) -> Result<Vec<u8>> {
    match value {
        Value::String(_) => {
            let mut bytes = parse_bytes(value)?;
            let size = data_type.size_bytes().unwrap_or(0);
            if bytes.len() != size {
                return Err(wrong(value, &format!("base64 of {size} bytes, not {}", bytes.len())));
            }
            if format == ZarrFormat::V2 {
                swap_stored(&mut bytes, data_type);
            }
            Ok(bytes)
        }
        Value::Object(members) => parse_members(value, members, fields, format),
        _ => Err(wrong(value, "base64 or an object of the fields")),
    }
}

fn parse_members(value: &Value, members: &Map<String, Value>, fields: &[Field], format: ZarrFormat) -> Result<Vec<u8>> {
    let known: HashSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    if let Some(name) = members.keys().find(|name| !known.contains(name.as_str())) {
        return Err(wrong(value, &format!("only the structure's fields, not '{name}'")));
    }
    let mut bytes = Vec::new();
    for field in fields {
        let element = match members.get(&field.name) {
            Some(inner) => parse(inner, &field.data_type, format).at(|| format!("field '{}'", field.name))?,
            None => default_element(&field.data_type),
        };
        // A field with a shape repeats its element. The structure's size was checked before, so this fits in memory.
        bytes.extend(element.repeat(field.shape.iter().product()));
    }
    Ok(bytes)
}

/// Converts an element of a v2 structure between stored and native byte order.
fn swap_stored(bytes: &mut [u8], data_type: &DataType) {
    for unit in data_type.stored_swap_units(Endian::Little) {
        let end = unit.offset + unit.unit_bytes * unit.count;
        for number in bytes[unit.offset..end].chunks_exact_mut(unit.unit_bytes) {
            number.reverse();
        }
    }
}

/// Writes one element as the JSON of a fill value. `bytes` has the data type's size.
fn write(bytes: &[u8], data_type: &DataType, format: ZarrFormat) -> Result<Value> {
    Ok(match data_type {
        DataType::Bool => Value::from(bytes != [0]),
        DataType::Int8 => Value::from(i8::from_le_bytes(array_of(bytes))),
        DataType::Int16 => Value::from(i16::from_le_bytes(array_of(bytes))),
        DataType::Int32 => Value::from(i32::from_le_bytes(array_of(bytes))),
        DataType::Int64 | DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => {
            Value::from(i64::from_le_bytes(array_of(bytes)))
        }
        DataType::UInt8 => Value::from(u8::from_le_bytes(array_of(bytes))),
        DataType::UInt16 => Value::from(u16::from_le_bytes(array_of(bytes))),
        DataType::UInt32 => Value::from(u32::from_le_bytes(array_of(bytes))),
        DataType::UInt64 => Value::from(u64::from_le_bytes(array_of(bytes))),
        DataType::Small(number) => write_small(bytes, *number, format),
        DataType::Float16 => Float::Small(FLOAT16).write(bytes, format),
        DataType::BFloat16 => Float::Small(BFLOAT16).write(bytes, format),
        DataType::Float32 => Float::Single.write(bytes, format),
        DataType::Float64 => Float::Double.write(bytes, format),
        DataType::Complex64 => write_complex(bytes, Float::Single, format),
        DataType::Complex128 => write_complex(bytes, Float::Double, format),
        DataType::NullTerminatedBytes { .. } => {
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            Value::from(BASE64.encode(&bytes[..end]))
        }
        DataType::RawBytes { .. } | DataType::VariableBytes => Value::from(BASE64.encode(bytes)),
        DataType::FixedLengthUtf32 { .. } => write_utf32(bytes)?,
        DataType::VariableString => {
            let text = std::str::from_utf8(bytes);
            Value::from(
                text.map_err(|_| Error::new(ErrorKind::InvalidArgument, "fill value: got bytes, expected UTF-8"))?,
            )
        }
        DataType::Struct { fields } if format == ZarrFormat::V3 => write_members(bytes, data_type, fields)?,
        DataType::Struct { .. } => {
            let mut stored = bytes.to_vec();
            swap_stored(&mut stored, data_type);
            Value::from(BASE64.encode(stored))
        }
    })
}

fn write_utf32(bytes: &[u8]) -> Result<Value> {
    let points: Vec<u32> = bytes.chunks_exact(4).map(|point| u32::from_le_bytes(array_of(point))).collect();
    let end = points.iter().rposition(|&point| point != 0).map_or(0, |last| last + 1);
    let text: Option<String> = points[..end].iter().map(|&point| char::from_u32(point)).collect();
    let message = "fill value: got a number that is no code point, expected UTF-32";
    text.map(Value::from).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, message))
}

fn write_members(bytes: &[u8], data_type: &DataType, fields: &[Field]) -> Result<Value> {
    let mut members = Map::new();
    for (field, offset) in fields.iter().zip(data_type.field_offsets()) {
        // In v3, fields have no shapes.
        let end = offset + field.data_type.size_bytes().unwrap_or(0);
        members.insert(field.name.clone(), write(&bytes[offset..end], &field.data_type, ZarrFormat::V3)?);
    }
    Ok(Value::Object(members))
}

/// Returns the bytes of an element as an array of `N` bytes. The size was checked before, so zeros are never returned.
fn array_of<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
