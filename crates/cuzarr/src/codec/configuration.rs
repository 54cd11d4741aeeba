//! Reads the members of a codec's configuration by type. An unknown member is an error that names it.

use cuzarr_device::{DType, DTypeKind};
use serde_json::{Map, Value};

use crate::meta::abbreviate;
use crate::{Error, ErrorKind, Result};

/// The configuration of one codec, from which members are read one by one.
#[derive(Clone, Copy)]
pub(crate) struct Configuration<'a> {
    codec: &'a str,
    members: &'a Map<String, Value>,
}

impl<'a> Configuration<'a> {
    /// Takes a codec's configuration, and refuses members that are not `known`: an unknown one could change the encoded
    /// bytes. numcodecs' `id` is always allowed.
    pub(crate) fn new(codec: &'a str, members: &'a Map<String, Value>, known: &[&str]) -> Result<Self> {
        match members.keys().find(|key| *key != "id" && !known.contains(&key.as_str())) {
            Some(key) => {
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                let message = format!("codec '{codec}': unknown configuration member '{key}', known are: {known}");
                Err(Error::new(ErrorKind::MetadataInvalid, message))
            }
            None => Ok(Configuration { codec, members }),
        }
    }

    pub(crate) fn invalid(&self, message: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::MetadataInvalid, format!("codec '{}': {message}", self.codec))
    }

    /// The value of the member `key` of this codec's configuration; `None` if it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn wrong<T>(&self, key: &str, value: &Value, expected: &str) -> Result<T> {
        Err(self.invalid(format!("'{key}' is {}, expected {expected}", abbreviate(value))))
    }

    /// The value of the member `key` of this codec's configuration as an integer in `range`; `default` if it is
    /// missing. Floats are accepted if they are whole, because some writers make them.
    pub(crate) fn integer(&self, key: &str, range: std::ops::RangeInclusive<i64>, default: i64) -> Result<i64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let whole =
            value.as_i64().or_else(|| value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 1e15).map(|x| x as i64));
        match whole.filter(|number| range.contains(number)) {
            Some(number) => Ok(number),
            None => self.wrong(key, value, &format!("a whole number from {} to {}", range.start(), range.end())),
        }
    }

    pub(crate) fn boolean(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            // GDAL writes its creation options as they were given: `"checksum": "NO"`.
            Some(Value::String(word)) if word.eq_ignore_ascii_case("NO") => Ok(false),
            Some(Value::String(word)) if word.eq_ignore_ascii_case("YES") => Ok(true),
            Some(value) => self.wrong(key, value, "true or false"),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(value) => self.wrong(key, value, "a string"),
        }
    }

    /// The value of the member `key` of this codec's configuration, which names one of `choices`; `None` if it is
    /// missing.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => Ok(Some(*choice)),
            None => {
                let names: Vec<_> = choices.iter().map(|(name, _)| format!("'{name}'")).collect();
                self.wrong(key, &Value::from(text), &format!("one of {}", names.join(", ")))
            }
        }
    }

    /// The value of the member `key` of this codec's configuration, which must be a number. A missing member is an
    /// error.
    pub(crate) fn number(&self, key: &str) -> Result<&'a serde_json::Number> {
        match self.get(key) {
            Some(Value::Number(number)) => Ok(number),
            Some(value) => self.wrong(key, value, "a number"),
            None => Err(self.invalid(format!("'{key}' is missing"))),
        }
    }

    /// The value of the member `key` of this codec's configuration, which must be a list of extents. A missing member
    /// is an error.
    pub(crate) fn extents(&self, key: &str) -> Result<Vec<u64>> {
        let Some(value) = self.get(key) else { return Err(self.invalid(format!("'{key}' is missing"))) };
        let extents = value.as_array().map(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        match extents.flatten() {
            Some(extents) => Ok(extents),
            None => self.wrong(key, value, "a list of whole numbers"),
        }
    }

    /// The value of the member `key` of this codec's configuration, which must be a NumPy data type: `<f4`, `float32`,
    /// `|u1`.
    pub(crate) fn numpy_dtype(&self, key: &str) -> Result<Option<NumpyDType>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match NumpyDType::parse(text) {
            Some(dtype) => Ok(Some(dtype)),
            None => self.wrong(key, &Value::from(text), "a NumPy data type of fixed size, such as '<f4'"),
        }
    }
}

/// A NumPy data type as numcodecs writes it into configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumpyDType {
    pub(crate) dtype: DType,
    pub(crate) big_endian: bool,
}

impl NumpyDType {
    /// Reads one member of a configuration as a NumPy data type.
    pub(crate) fn member(codec: &str, members: &Map<String, Value>, key: &str) -> Result<Option<NumpyDType>> {
        Configuration { codec, members }.numpy_dtype(key)
    }

    fn parse(text: &str) -> Option<NumpyDType> {
        let (order, rest) = match text.as_bytes().first()? {
            b'<' | b'>' | b'|' | b'=' => (text.as_bytes()[0], &text[1..]),
            _ => (b'=', text),
        };
        let big_endian = order == b'>' || (order == b'=' && cfg!(target_endian = "big"));
        let dtype = Self::parse_short(rest).or_else(|| Self::parse_name(rest))?;
        Some(NumpyDType { dtype, big_endian: big_endian && dtype.size_bytes() > 1 })
    }

    fn parse_short(text: &str) -> Option<DType> {
        let (kind, size) = text.split_at_checked(1)?;
        if matches!(kind, "M" | "m") {
            return (size == "8" || (size.starts_with("8[") && size.ends_with(']'))).then_some(DType::INT64);
        }
        let size: u32 = size.parse().ok()?;
        let kind = match (kind, size) {
            ("b" | "?", 1) => DTypeKind::Bool,
            ("i", 1 | 2 | 4 | 8) => DTypeKind::Int,
            ("u", 1 | 2 | 4 | 8) => DTypeKind::UInt,
            ("f", 2 | 4 | 8) => DTypeKind::Float,
            ("c", 8 | 16) => DTypeKind::Complex,
            ("S" | "V", _) => return Some(DType::opaque(size)),
            ("U", _) => return Some(DType::opaque(size.checked_mul(4)?)),
            _ => return None,
        };
        ALL_DTYPES
            .iter()
            .find(|(_, dtype)| dtype.kind() == kind && dtype.size_bytes() == size as usize)
            .map(|(_, d)| *d)
    }

    fn parse_name(text: &str) -> Option<DType> {
        ALL_DTYPES.iter().find(|(name, _)| *name == text).map(|(_, dtype)| *dtype)
    }
}

/// The element types that can be calculated with, each by its name in NumPy and Zarr.
pub(crate) const ALL_DTYPES: &[(&str, DType)] = &[
    ("bool", DType::BOOL),
    ("int8", DType::INT8),
    ("int16", DType::INT16),
    ("int32", DType::INT32),
    ("int64", DType::INT64),
    ("uint8", DType::UINT8),
    ("uint16", DType::UINT16),
    ("uint32", DType::UINT32),
    ("uint64", DType::UINT64),
    ("float16", DType::FLOAT16),
    ("float32", DType::FLOAT32),
    ("float64", DType::FLOAT64),
    ("bfloat16", DType::BFLOAT16),
    ("complex64", DType::COMPLEX64),
    ("complex128", DType::COMPLEX128),
];
