//! xarray's conventions: the meaning of an array's metadata beyond Zarr's own, and where each format stores it.
//!
//! | meaning | format 2 | format 3 |
//! |---|---|---|
//! | names of the dimensions | attribute `_ARRAY_DIMENSIONS`, else `dimrefs` of netCDF's `_NCZARR_ARRAY` | `dimension_names` |
//! | value of missing elements | `fill_value`; where that is null, the attribute `_FillValue` | attribute `_FillValue`, encoded |
//! | elements of chunks that are not stored | `fill_value` | `fill_value` |
//!
//! So `fill_value` has two meanings in format 2. An array of format 3 without a missing value gets the fill value
//! `null` in format 2. That defines no value for chunks that are not stored, so a writer of such an array has to store
//! all chunks. xarray cannot open arrays that do not name their dimensions; these keep their fill value and attributes.
//!
//! In format 3, xarray's reader supports no missing value for bytes, dates and structures, so none is written. For text
//! it only supports the attribute `missing_value`.
//!
//! Specification: <https://docs.xarray.dev/en/stable/internals/zarr-encoding-spec.html>. For `_FillValue` in format 3:
//! `FillValueCoder` in `xarray/backends/zarr.py`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::ZarrFormat;
use super::array::ArrayMetadata;
use super::dtype::DataType;
use super::fill::FillValue;
use super::json::{Json, Object, object_to_text};
use crate::Result;

const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";
const MISSING: &str = "_FillValue";
/// An attribute with which xarray marks missing elements besides [`MISSING`], in both formats, as plain JSON.
const ALSO_MISSING: &str = "missing_value";

/// Attributes that define which values the stored elements stand for.
const DECODING: [&str; 8] =
    [MISSING, ALSO_MISSING, "scale_factor", "add_offset", "_Unsigned", "units", "calendar", "dtype"];

/// Dimension names, fill value and attributes of an array, in the form that one Zarr format has for them.
pub struct Translated {
    /// The `dimension_names` of a v3 array.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// Value of elements that were never written.
    pub fill_value: FillValue,
    /// The attributes of the array as JSON text.
    pub attributes: String,
}

/// Translates dimension names, fill value and attributes of an array to another format, so that xarray reads the same
/// from both.
pub fn translate(source: &ArrayMetadata, format: ZarrFormat) -> Result<Translated> {
    let mut attributes = source.attribute_members().cloned().unwrap_or_default();
    let mut dimension_names = source.dimension_names.clone();
    let mut fill_value = source.fill_value.clone();
    let names = source.xarray_dimensions();
    match (source.format, format, names) {
        (ZarrFormat::V3, ZarrFormat::V3, _) => {}
        (ZarrFormat::V2, ZarrFormat::V2, Some(names)) => {
            if !attributes.contains_key(DIMENSIONS) {
                attributes.insert(DIMENSIONS.to_owned(), Json::from_value(&json!(names))?);
            }
        }
        (ZarrFormat::V3, ZarrFormat::V2, Some(names)) => {
            dimension_names = None;
            fill_value = take_missing(&mut attributes, &source.data_type).unwrap_or(FillValue::Undefined);
            attributes.shift_remove(DIMENSIONS);
            attributes.shift_insert(0, DIMENSIONS.to_owned(), Json::from_value(&json!(names))?);
        }
        (ZarrFormat::V2, ZarrFormat::V3, Some(names)) => {
            dimension_names = Some(names);
            // xarray hides these attributes in format 2: they describe netCDF's layout of that format.
            attributes.retain(|name, _| name != DIMENSIONS && !name.to_lowercase().starts_with("_nc"));
            note_missing(&mut attributes, source)?;
        }
        (_, ZarrFormat::V2, None) => dimension_names = None,
        (ZarrFormat::V2, ZarrFormat::V3, None) => {}
    }
    if format == ZarrFormat::V3 && fill_value == FillValue::Undefined {
        fill_value = FillValue::default_of(&source.data_type);
    }
    Ok(Translated { dimension_names, fill_value, attributes: object_to_text(&attributes, None) })
}

impl ArrayMetadata {
    /// The dimension names that xarray finds: for a v3 array its own, for a v2 array those in the attribute
    /// `_ARRAY_DIMENSIONS` or in netCDF's `dimrefs`. `None` if it finds none; then it cannot open the array.
    pub fn xarray_dimensions(&self) -> Option<Vec<Option<String>>> {
        let names = match self.format {
            ZarrFormat::V3 if self.ndim() == 0 => Some(Vec::new()),
            ZarrFormat::V3 => self.dimension_names.clone(),
            ZarrFormat::V2 => match self.attributes.get(DIMENSIONS) {
                Some(names) => strings(names),
                None => netcdf_dimensions(&self.document),
            },
        };
        let is_named = |names: &Vec<Option<String>>| names.is_empty() || names.iter().any(Option::is_some);
        names.filter(|names| names.len() == self.ndim() && is_named(names))
    }
}

impl ArrayMetadata {
    /// Removes all attributes except those that define which values the stored elements stand for.
    pub fn retain_decoding_attributes(&mut self) {
        let mut attributes = self.attribute_members().cloned().unwrap_or_default();
        attributes.retain(|name, _| DECODING.contains(&name.as_str()));
        self.replace_attributes(attributes);
    }

    /// Values that mark elements as missing, in the form that xarray gives them in format 3. The `bool` says whether
    /// the value is the array's `_FillValue`. In format 2 this is the fill value, if there is one and the array names
    /// its dimensions.
    pub(super) fn noted_missing(&self) -> Vec<(bool, Value)> {
        let is_mark = self.format == ZarrFormat::V2
            && self.fill_value != FillValue::Undefined
            && self.xarray_dimensions().is_some();
        let fill = || {
            let encoded = encode(&self.fill_value, &self.data_type).ok().flatten();
            encoded.or_else(|| self.fill_value.to_json(&self.data_type, ZarrFormat::V3).ok())
        };
        let fill = if is_mark { fill() } else { self.attributes.get(MISSING).cloned() };
        // A complex number is a list of two parts. Any other list has several marks.
        let is_complex = |parts: &[Value]| {
            let parts: Option<Vec<f64>> = parts.iter().map(double).collect();
            parts.is_some_and(|parts| parts.len() == 2 && FillValue::from_doubles(&parts, &self.data_type).is_some())
        };
        let mut noted = Vec::new();
        for (is_fill, value) in [(false, self.attributes.get(ALSO_MISSING).cloned()), (true, fill)] {
            let mut left: Vec<Value> = value.into_iter().collect();
            while let Some(value) = left.pop() {
                match value {
                    Value::Null => {}
                    Value::Array(values) if !is_complex(&values) => left.extend(values.into_iter().rev()),
                    value => noted.push((is_fill, value)),
                }
            }
        }
        noted
    }
}

fn strings(value: &Value) -> Option<Vec<Option<String>>> {
    let string = |value: &Value| match value {
        Value::Null => Some(None),
        value => value.as_str().map(|text| Some(text.to_owned())),
    };
    value.as_array()?.iter().map(string).collect()
}

/// The dimension names that netCDF stores in a `.zarray`, without the path before each.
fn netcdf_dimensions(document: &Object) -> Option<Vec<Option<String>>> {
    let Json::Object(member) = document.get("_NCZARR_ARRAY")? else { return None };
    let names = strings(&member.get("dimrefs")?.to_value())?;
    let last = |name: String| name.rsplit('/').next().map(str::to_owned);
    Some(names.into_iter().map(|name| name.and_then(last)).collect())
}

/// Copies the value that marks missing elements in a format 2 array into `attributes` of format 3.
fn note_missing(attributes: &mut Object, source: &ArrayMetadata) -> Result<()> {
    let data_type = &source.data_type;
    let noted = attributes.shift_remove(MISSING).map(|value| value.to_value());
    let missing = match (&source.fill_value, &noted) {
        (FillValue::Undefined, Some(noted)) => FillValue::from_json(noted, data_type, ZarrFormat::V2).ok(),
        (value, _) => Some(value.clone()),
    };
    let encoded = match missing.map(|value| encode(&value, data_type)) {
        Some(encoded) => encoded?,
        // No element can equal it, for example 255 for signed bytes that are read as unsigned. xarray still needs it.
        None => noted.filter(|noted| is_integer(data_type) && noted.is_i64()),
    };
    let Some(encoded) = encoded else { return Ok(()) };
    if !is_text(data_type) {
        attributes.insert(MISSING.to_owned(), Json::from_value(&encoded)?);
        return Ok(());
    }
    let also = match attributes.get(ALSO_MISSING).map(Json::to_value) {
        None => encoded,
        Some(Value::Array(others)) => std::iter::once(encoded).chain(others).collect(),
        Some(other) if other == encoded => other,
        Some(other) => json!([encoded, other]),
    };
    attributes.insert(ALSO_MISSING.to_owned(), Json::from_value(&also)?);
    Ok(())
}

/// Removes the value that marks missing elements from attributes of format 3, and returns it. A value that no element
/// can equal stays there: in format 2, xarray reads it unchanged.
fn take_missing(attributes: &mut Object, data_type: &DataType) -> Option<FillValue> {
    let value = decode(&attributes.get(MISSING)?.to_value(), data_type)?;
    attributes.shift_remove(MISSING);
    Some(value)
}

/// The value that marks missing elements as an attribute of format 3, in the form of `FillValueCoder.encode`; `None`
/// for data types that it does not support.
fn encode(value: &FillValue, data_type: &DataType) -> Result<Option<Value>> {
    if *value == FillValue::Undefined {
        return Ok(None);
    }
    let double = |part: f64| Value::from(BASE64.encode(part.to_le_bytes()));
    Ok(match (data_type, value.doubles(data_type)) {
        (DataType::BFloat16 | DataType::Small(_), _) => None,
        (_, Some(parts)) => match parts[..] {
            [part] => Some(double(part)),
            _ => Some(parts.into_iter().map(double).collect()),
        },
        _ if *data_type == DataType::Bool || is_integer(data_type) || is_text(data_type) => {
            Some(value.to_json(data_type, ZarrFormat::V3)?)
        }
        _ => None,
    })
}

/// Reads the value that marks missing elements from an attribute of format 3. Plain JSON from programs other than
/// xarray is accepted too. `None` if no element can equal it.
fn decode(value: &Value, data_type: &DataType) -> Option<FillValue> {
    let encoded = doubles(value).and_then(|parts| FillValue::from_doubles(&parts, data_type));
    encoded.or_else(|| FillValue::from_json(value, data_type, ZarrFormat::V3).ok())
}

/// Parses a float in the form that xarray writes into attributes of format 3; `None` for anything else.
fn double(part: &Value) -> Option<f64> {
    let bytes = BASE64.decode(part.as_str()?).ok()?;
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}

/// Parses the parts of a float or complex number in the form that xarray writes into attributes of format 3; `None` for
/// anything else.
pub(super) fn doubles(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Array(parts) => parts.iter().map(double).collect(),
        part => double(part).map(|part| vec![part]),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::FixedLengthUtf32 { .. } | DataType::VariableString)
}

fn is_integer(data_type: &DataType) -> bool {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

#[cfg(test)]
mod tests;
