//! What the attributes of the CF conventions say about an array's numbers: which are missing, and how the others are scaled.
//!
//! Specification: <https://cfconventions.org/Data/cf-conventions/cf-conventions-1.11/cf-conventions.html#packed-data>.

use serde_json::Value;

use super::{ArrayMetadata, DataType};

/// How stored numbers become those that they stand for: `x * scale + offset`, with NaN for missing ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoding {
    /// The stored numbers that mark missing elements.
    pub missing: Vec<Mark>,
    /// The attribute `scale_factor`; 1 where there is none.
    pub scale: f64,
    /// The attribute `add_offset`; 0 where there is none.
    pub offset: f64,
    /// Whether signed integers are to be read as unsigned ones (the attribute `_Unsigned`).
    pub is_unsigned: bool,
    /// The attribute `units`.
    pub units: Option<String>,
}

/// A stored number that marks missing elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    /// An integer, or a bit pattern that stands for one.
    Int(i128),
    /// A float.
    Float(f64),
}

impl Mark {
    /// The mark as a double.
    pub fn as_f64(self) -> f64 {
        match self {
            Mark::Int(value) => value as f64,
            Mark::Float(value) => value,
        }
    }
}

impl ArrayMetadata {
    /// Reads the attributes `_FillValue`, `missing_value`, `scale_factor`, `add_offset`, `_Unsigned` and `units`. In format 2 the
    /// fill value marks missing elements, too, where the array names its dimensions as xarray does.
    pub fn decoding(&self) -> Decoding {
        let number = |name: &str| self.attributes().get(name).and_then(Value::as_f64).filter(|value| value.is_finite());
        let is_signed =
            matches!(self.data_type(), DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
        let unsigned = self.attributes().get("_Unsigned");
        Decoding {
            missing: self.missing_numbers().iter().filter_map(|text| mark(text)).collect(),
            scale: number("scale_factor").unwrap_or(1.0),
            offset: number("add_offset").unwrap_or(0.0),
            is_unsigned: is_signed && unsigned.is_some_and(|value| value == "true" || value == true),
            units: self.attributes().get("units").and_then(Value::as_str).map(str::to_owned),
        }
    }
}

fn mark(text: &str) -> Option<Mark> {
    let integer = text.parse().ok().map(Mark::Int);
    integer.or_else(|| text.parse().ok().filter(|value: &f64| value.is_finite()).map(Mark::Float))
}

impl Decoding {
    /// Whether stored numbers are what they stand for.
    pub fn is_plain(&self) -> bool {
        self.missing.is_empty() && !self.is_scaled() && !self.is_unsigned
    }

    /// Whether numbers are multiplied or moved.
    pub fn is_scaled(&self) -> bool {
        self.scale != 1.0 || self.offset != 0.0
    }

    /// The number that a stored one of `bits` bits stands for.
    pub fn decode(&self, stored: f64, bits: u32) -> f64 {
        if self.missing.iter().any(|mark| mark.as_f64() == stored) {
            return f64::NAN;
        }
        let stored = if self.is_unsigned && stored < 0.0 { stored + 2f64.powi(bits as i32) } else { stored };
        stored * self.scale + self.offset
    }

    /// What is done to stored numbers, for people; `None` where nothing is.
    pub fn describe(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.is_unsigned {
            parts.push("read as unsigned".to_owned());
        }
        if !self.missing.is_empty() {
            let marks: Vec<String> = self.missing.iter().map(|mark| format!("{:?}", mark.as_f64())).collect();
            parts.push(format!("{} as missing", marks.join(", ")));
        }
        if self.scale != 1.0 {
            parts.push(format!("times {:?}", self.scale));
        }
        if self.offset != 0.0 {
            parts.push(format!("plus {:?}", self.offset));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dtype: &str, attributes: &str) -> ArrayMetadata {
        let document = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "{dtype}", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [4]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}],
            "dimension_names": ["x"], "attributes": {attributes}}}"#
        );
        ArrayMetadata::from_json(document.as_bytes()).unwrap()
    }

    #[test]
    fn packed_integers_are_scaled_and_marks_are_missing() {
        let packed = array("int16", r#"{"scale_factor": 0.5, "add_offset": 10, "_FillValue": -1, "units": "K"}"#);
        let decoding = packed.decoding();
        assert_eq!(decoding.missing, [Mark::Int(-1)]);
        assert_eq!((decoding.decode(4.0, 16), decoding.units.as_deref()), (12.0, Some("K")));
        assert!(decoding.decode(-1.0, 16).is_nan());
        assert_eq!(decoding.describe().unwrap(), "-1.0 as missing, times 0.5, plus 10.0");
    }

    #[test]
    fn several_marks_are_all_missing() {
        let decoding = array("float32", r#"{"_FillValue": 1e20, "missing_value": [1e20, -9]}"#).decoding();
        let marks: Vec<f64> = decoding.missing.iter().map(|mark| mark.as_f64()).collect();
        assert_eq!(marks, [f64::from(1e20f32), -9.0]);
    }

    #[test]
    fn signed_bytes_may_stand_for_unsigned_ones() {
        let decoding = array("int8", r#"{"_Unsigned": "true"}"#).decoding();
        assert_eq!((decoding.decode(-1.0, 8), decoding.decode(5.0, 8)), (255.0, 5.0));
    }

    #[test]
    fn other_attributes_leave_numbers_as_they_are() {
        let decoding = array("float32", r#"{"scale_factor": "often", "long_name": "height"}"#).decoding();
        assert!(decoding.is_plain() && decoding.describe().is_none());
    }
}
