//! Decoding of stored elements to numbers, by the attributes of the CF conventions, in the way that xarray reads them
//! from Zarr.
//!
//! | attributes | decoded elements |
//! |---|---|
//! | `scale_factor`, `add_offset` | `x * scale_factor + add_offset` in float64 |
//! | only `_FillValue`, `missing_value` | NaN where elements are missing, in float32 for integers of 8 and 16 bits, else float64; floats keep their type |
//! | `_Unsigned` | integers of the other signedness, before all other steps |
//! | `dtype` that is `bool` | booleans, after all other steps |
//!
//! A missing-value mark is compared with the stored element, after `_Unsigned` is applied. As in xarray, `_Unsigned`
//! also changes the signedness of `_FillValue`, but not that of `missing_value`. Scaled floats keep their type if NaN
//! is their only mark. There are two differences from xarray: an integer `scale_factor` also results in float64, and
//! marks of 8-byte integers are compared without rounding.
//!
//! Specification: <https://cfconventions.org/Data/cf-conventions/cf-conventions-1.11/cf-conventions.html#packed-data>.
//! xarray's implementation: `CFMaskCoder` and `CFScaleOffsetCoder` in `xarray/coding/variables.py`.

use cuzarr_device::{DType, DTypeKind};
use serde_json::{Number, Value};

use super::fill::FillValue;
use super::times::TimeScale;
use super::{ArrayMetadata, DataType, ZarrFormat, invalid};
use crate::{Error, ErrorKind, Result};

/// How to compute an array's values from its stored elements, by the CF attributes that xarray also follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoding {
    /// The integer type as which stored integers are read, if the attribute `_Unsigned` changes their signedness.
    pub read_as: Option<DType>,
    /// Whether some attribute marks elements as missing. True even if no element can equal the mark.
    pub is_masked: bool,
    /// The values that mark elements as missing, in the type `read_as` if that is set.
    pub missing: Vec<Mark>,
    /// The value of the attribute `scale_factor`.
    pub scale: Option<f64>,
    /// The value of the attribute `add_offset`.
    pub offset: Option<f64>,
    /// The type of decoded elements, if it differs from the stored type.
    pub dtype: Option<DType>,
    /// The value of the attribute `units`.
    pub units: Option<String>,
    /// The value of the attribute `calendar`.
    pub calendar: Option<String>,
}

/// A value that marks elements as missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// An integer that marks elements as missing.
    Int(i128),
    /// A float that marks elements as missing.
    Float(f64),
    /// A complex number that marks elements as missing: its real and imaginary part.
    Complex(f64, f64),
}

impl ArrayMetadata {
    /// Reads from the attributes how stored elements become values. Elements that are not numbers are not decoded.
    ///
    /// # Errors
    /// `MetadataInvalid` for a `scale_factor` or an `add_offset` that is not a number; `Unsupported` for complex
    /// numbers that are scaled.
    pub fn decoding(&self) -> Result<Decoding> {
        let text = |name: &str| self.attributes().get(name).and_then(Value::as_str).map(str::to_owned);
        let mut decoding = Decoding { units: text("units"), calendar: text("calendar"), ..Decoding::default() };
        let Some(stored) = self.data_type().device_dtype().filter(|_| is_number(self.data_type())) else {
            return Ok(decoding);
        };
        decoding.scale = self.decoding_number("scale_factor")?;
        decoding.offset = self.decoding_number("add_offset")?;
        decoding.read_as = read_as(stored, text("_Unsigned").as_deref());
        let mut has_nan = false;
        if stored != DType::BOOL {
            for (is_fill, value) in self.noted_missing() {
                let number = Noted::of(&value, self.data_type());
                has_nan |= matches!(number, Noted::Nan);
                decoding.is_masked |= matches!(number, Noted::Number(_) | Noted::Other);
                let Noted::Number(mark) = number else { continue };
                let mark = mark.as_element(self.data_type(), decoding.read_as.unwrap_or(stored), is_fill);
                decoding.missing.extend(mark.filter(|mark| !decoding.missing.contains(mark)));
            }
        }
        let is_truth = text("dtype").as_deref() == Some("bool");
        decoding.dtype = decoding.result(stored, has_nan, is_truth)?.filter(|dtype| *dtype != stored);
        Ok(decoding)
    }

    /// The first number that the attributes mark as missing, as text. NaN is skipped, because arithmetic handles it. A
    /// fill value of 0 in format 2 is skipped too: images have it, and their zeros are real.
    pub fn missing_number(&self) -> Option<String> {
        let fill_is_mark = self.zarr_format() == ZarrFormat::V2 && *self.fill_value() != FillValue::Undefined;
        let mut marks = self.noted_missing().into_iter().filter_map(|(is_fill, value)| {
            let Noted::Number(mark) = Noted::of(&value, self.data_type()) else { return None };
            (!(is_fill && fill_is_mark && mark.real() == 0.0)).then(|| mark.to_string())
        });
        marks.next().filter(|_| is_number(self.data_type()) && *self.data_type() != DataType::Bool)
    }

    fn decoding_number(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.attributes().get(name) else { return Ok(None) };
        // xarray also accepts a list of one number, because netCDF tools write attributes as lists.
        let number = match value {
            Value::Null => return Ok(None),
            Value::Array(list) if list.len() == 1 => float(&list[0]),
            other => float(other),
        };
        let hint = "read the elements as they are stored, or correct the attribute";
        number.map(Some).ok_or_else(|| invalid(&format!("attributes.{name}"), value, "a number").with_hint(hint))
    }
}

impl Decoding {
    /// The type of the decoded values, for elements stored as `stored`.
    fn result(&self, stored: DType, has_nan: bool, is_truth: bool) -> Result<Option<DType>> {
        let own = self.read_as.unwrap_or(stored);
        if is_truth {
            return Ok(Some(DType::BOOL));
        }
        let is_float = matches!(own.kind(), DTypeKind::Float | DTypeKind::BFloat);
        Ok(Some(match own.kind() {
            DTypeKind::Complex if self.is_scaled() => {
                let message = "scale_factor and add_offset of complex numbers have no meaning";
                return Err(
                    Error::new(ErrorKind::Unsupported, message).with_hint("read the elements as they are stored")
                );
            }
            _ if self.is_scaled() && is_float && has_nan && !self.is_masked => own,
            _ if self.is_scaled() => DType::FLOAT64,
            DTypeKind::Int | DTypeKind::UInt if self.is_masked && own.size_bytes() <= 2 => DType::FLOAT32,
            DTypeKind::Int | DTypeKind::UInt if self.is_masked => DType::FLOAT64,
            _ => own,
        }))
    }

    /// Whether stored elements are already the array's values, so that nothing is decoded.
    pub fn is_plain(&self) -> bool {
        !self.is_masked && !self.is_scaled() && self.read_as.is_none() && self.dtype.is_none()
    }

    /// Whether decoding multiplies elements or adds an offset to them.
    pub fn is_scaled(&self) -> bool {
        self.scale.is_some() || self.offset.is_some()
    }

    /// The time scale of the elements; `None` if `units` has no reference date.
    ///
    /// # Errors
    /// `Unsupported` for an unknown calendar or unit, and for a reference date that cannot be parsed.
    pub fn time_scale(&self) -> Result<Option<TimeScale>> {
        let units = self.units.as_deref().filter(|units| units.contains("since"));
        units.map(|units| TimeScale::of(units, self.calendar.as_deref())).transpose()
    }

    /// Describes in words how elements are decoded; `None` if they are not.
    pub fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if let Some(dtype) = self.read_as {
            parts.push(format!("read as {dtype}"));
        }
        if !self.missing.is_empty() {
            let marks: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
            parts.push(format!("{} as missing", marks.join(", ")));
        }
        parts.extend(self.scale.map(|scale| format!("times {scale:?}")));
        parts.extend(self.offset.map(|offset| format!("plus {offset:?}")));
        if self.dtype == Some(DType::BOOL) {
            parts.push("as truths".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// The content of an attribute that marks missing elements, such as `_FillValue`.
enum Noted {
    Number(Mark),
    Nan,
    /// A value that no element can equal, such as text.
    Other,
}

impl Noted {
    /// Parses an attribute's value: a JSON number, or a float in the form that xarray writes in format 3.
    fn of(value: &Value, data_type: &DataType) -> Noted {
        // Text in that form never marks integers.
        let is_float =
            data_type.device_dtype().is_some_and(|dtype| !matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt));
        let parts = super::xarray::doubles(value).filter(|_| is_float);
        match (parts.as_deref(), value) {
            (Some([part]), _) if part.is_nan() => Noted::Nan,
            (Some([part]), _) => Noted::Number(Mark::Float(*part)),
            (Some(&[re, im]), _)
                if data_type.device_dtype().is_some_and(|dtype| dtype.kind() == DTypeKind::Complex) =>
            {
                if re.is_nan() || im.is_nan() { Noted::Nan } else { Noted::Number(Mark::Complex(re, im)) }
            }
            (_, Value::Bool(truth)) => Noted::Number(Mark::Int(i128::from(*truth))),
            (_, Value::Number(number)) => integer(number).map_or_else(
                || number.as_f64().map_or(Noted::Other, |value| Noted::Number(Mark::Float(value))),
                |value| Noted::Number(Mark::Int(value)),
            ),
            _ => match float(value) {
                Some(value) if value.is_nan() => Noted::Nan,
                Some(value) => Noted::Number(Mark::Float(value)),
                None => Noted::Other,
            },
        }
    }
}

impl Mark {
    /// Converts this value to an element of `data_type`; `None` if no element equals it. `own` is the type of elements
    /// after `_Unsigned`.
    fn as_element(self, data_type: &DataType, own: DType, is_fill: bool) -> Option<Mark> {
        let (least, most) = match own.kind() {
            DTypeKind::Int | DTypeKind::UInt => bounds(own),
            DTypeKind::Complex => return Some(self.as_complex()).filter(|mark| mark.is_exact(data_type)),
            _ => return Some(Mark::Float(self.real())).filter(|mark| mark.is_exact(data_type)),
        };
        let whole = match self {
            Mark::Int(value) => Some(value),
            Mark::Float(value) => (value.fract() == 0.0 && value.abs() < 1e20).then_some(value as i128),
            Mark::Complex(..) => None,
        }?;
        // `_FillValue` has the stored type. Its bits are read with the other signedness, like those of the elements.
        let turns = is_fill && data_type.device_dtype() != Some(own);
        let span = 1i128 << (8 * own.size_bytes());
        let whole = match own.kind() {
            DTypeKind::UInt if turns && whole < 0 => whole + span,
            DTypeKind::Int if turns && whole > most => whole - span,
            _ => whole,
        };
        (least..=most).contains(&whole).then_some(Mark::Int(whole))
    }

    fn real(self) -> f64 {
        match self {
            Mark::Int(value) => value as f64,
            Mark::Float(value) | Mark::Complex(value, _) => value,
        }
    }

    fn as_complex(self) -> Mark {
        match self {
            Mark::Complex(..) => self,
            other => Mark::Complex(other.real(), 0.0),
        }
    }

    /// Whether some element of `data_type` equals this number exactly.
    fn is_exact(self, data_type: &DataType) -> bool {
        let parts = match self {
            Mark::Complex(re, im) => vec![re, im],
            other => vec![other.real()],
        };
        FillValue::from_doubles(&parts, data_type).and_then(|value| value.doubles(data_type)) == Some(parts)
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mark::Complex(re, im) => write!(f, "{re:?}{im:+?}j"),
            real => write!(f, "{:?}", real.real()),
        }
    }
}

/// Whether elements of this type are numbers that can be calculated with.
fn is_number(data_type: &DataType) -> bool {
    let is_time = matches!(data_type, DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. });
    !is_time && data_type.device_dtype().is_some_and(|dtype| dtype.kind() != DTypeKind::Opaque)
}

/// The type that the attribute `_Unsigned` gives to elements stored as `stored`; `None` if it changes nothing. As in
/// xarray, `_Unsigned` must be text, not JSON `true`.
fn read_as(stored: DType, unsigned: Option<&str>) -> Option<DType> {
    match (unsigned?, stored) {
        ("true", DType::INT8) => Some(DType::UINT8),
        ("true", DType::INT16) => Some(DType::UINT16),
        ("true", DType::INT32) => Some(DType::UINT32),
        ("true", DType::INT64) => Some(DType::UINT64),
        ("false", DType::UINT8) => Some(DType::INT8),
        ("false", DType::UINT16) => Some(DType::INT16),
        ("false", DType::UINT32) => Some(DType::INT32),
        ("false", DType::UINT64) => Some(DType::INT64),
        _ => None,
    }
}

/// The smallest and the largest integer of a type.
fn bounds(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size_bytes();
    match dtype.kind() {
        DTypeKind::Int => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Parses a float, including infinities and NaN, which JSON cannot represent as numbers.
fn float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dtype: &str, attributes: &str) -> ArrayMetadata {
        let fill_value = match dtype {
            "bool" => "false",
            "complex64" => "[0.0, 0.0]",
            _ => "0",
        };
        let document = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "{dtype}", "fill_value": {fill_value},
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}],
            "dimension_names": ["x"], "attributes": {attributes}}}"#
        );
        ArrayMetadata::from_json(document.as_bytes()).unwrap()
    }

    fn decoding(dtype: &str, attributes: &str) -> Decoding {
        array(dtype, attributes).decoding().unwrap()
    }

    #[test]
    fn packed_integers_are_scaled_and_marks_are_missing() {
        let decoding = decoding("int16", r#"{"scale_factor": 0.5, "add_offset": 10, "_FillValue": -1, "units": "K"}"#);
        assert_eq!(decoding.missing, [Mark::Int(-1)]);
        assert_eq!((decoding.scale, decoding.offset, decoding.dtype), (Some(0.5), Some(10.0), Some(DType::FLOAT64)));
        assert_eq!(decoding.units.as_deref(), Some("K"));
        assert_eq!(decoding.describe().unwrap(), "-1.0 as missing, times 0.5, plus 10.0");
    }

    #[test]
    fn marks_are_the_elements_that_equal_them_without_rounding() {
        let marks = |dtype: &str, attributes: &str| decoding(dtype, attributes).missing;
        let both = marks("float64", r#"{"_FillValue": 1e20, "missing_value": [1e20, -9]}"#);
        assert_eq!(both, [Mark::Float(1e20), Mark::Float(-9.0)]);
        // No float32 equals 1e20. So xarray finds no such element, and turns none into NaN.
        let none = decoding("float32", r#"{"missing_value": 1e20}"#);
        assert!(none.missing.is_empty() && none.is_masked);
        assert_eq!(marks("int8", r#"{"missing_value": [-9999, 2.0, 2.5, "x", true]}"#), [Mark::Int(2), Mark::Int(1)]);
        assert_eq!(
            marks("complex64", r#"{"_FillValue": ["AAAAAAAA8D8=", "AAAAAAAAAAA="]}"#),
            [Mark::Complex(1.0, 0.0)]
        );
    }

    #[test]
    fn masks_make_floats_that_hold_the_integers() {
        let result = |dtype: &str, attributes: &str| decoding(dtype, attributes).dtype;
        let marked = r#"{"missing_value": 7}"#;
        assert_eq!(result("int8", marked), Some(DType::FLOAT32));
        assert_eq!(result("uint16", marked), Some(DType::FLOAT32));
        assert_eq!(result("int32", marked), Some(DType::FLOAT64));
        assert_eq!(result("float16", marked), None);
        assert_eq!(result("bool", marked), None);
        assert_eq!(result("float32", r#"{"scale_factor": 2}"#), Some(DType::FLOAT64));
        assert_eq!(result("float32", r#"{"scale_factor": 2, "missing_value": NaN}"#), None, "as in xarray");
        assert_eq!(result("int8", r#"{"dtype": "bool"}"#), Some(DType::BOOL));
    }

    #[test]
    fn integers_may_stand_for_those_of_the_other_sign() {
        let signed = decoding("int8", r#"{"_Unsigned": "true", "_FillValue": -1, "missing_value": [-2, 254]}"#);
        assert_eq!((signed.read_as, &signed.missing[..]), (Some(DType::UINT8), &[Mark::Int(254), Mark::Int(255)][..]));
        let unsigned = decoding("uint8", r#"{"_Unsigned": "false", "_FillValue": 255}"#);
        assert_eq!((unsigned.read_as, &unsigned.missing[..]), (Some(DType::INT8), &[Mark::Int(-1)][..]));
        assert_eq!(decoding("int8", r#"{"_Unsigned": "false"}"#).read_as, None);
    }

    #[test]
    fn the_fill_value_of_format_2_marks_missing_elements_beside_names_of_dimensions() {
        let of = |fill_value: &str, attributes: &str| {
            let document = format!(
                r#"{{"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i2", "compressor": null, "filters": null,
                "order": "C", "fill_value": {fill_value}}}"#
            );
            let mut array = ArrayMetadata::from_json_v2(document.as_bytes(), None).unwrap();
            array.set_attributes_json(attributes).unwrap();
            array.decoding().unwrap().missing
        };
        let named = r#"{"_ARRAY_DIMENSIONS": ["x"], "_FillValue": 5, "missing_value": 6}"#;
        assert_eq!(of("0", named), [Mark::Int(6), Mark::Int(0)], "which replaces the attribute");
        assert_eq!(of("null", named), [Mark::Int(6), Mark::Int(5)]);
        assert_eq!(of("7", r#"{"missing_value": 6}"#), [Mark::Int(6)]);
    }

    #[test]
    fn other_attributes_leave_numbers_as_they_are_and_broken_ones_are_refused() {
        let decoding = decoding("float32", r#"{"valid_range": [0, 1], "scale_factor": null, "long_name": "height"}"#);
        assert!(decoding.is_plain() && decoding.describe().is_none());
        let error = array("float32", r#"{"scale_factor": "often"}"#).decoding().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MetadataInvalid);
        assert!(error.to_string().contains("scale_factor") && error.to_string().contains("often"), "{error}");
    }
}
