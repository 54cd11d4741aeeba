//! Data types, by their names in metadata.
//!
//! A [`DataType`] describes the meaning of an element. In memory, elements are always in native (little-endian) byte
//! order. How they are stored is given separately: by the v3 `bytes` codec, by the [`Endian`] of a v2 array, or, in a
//! v2 structure, by that of each field. Names and configurations are in [`v2`] and [`v3`].
//!
//! This module has all types that zarr-python 3.4 and zarr-extensions register, plus `float8_e4m3fn` and v2 fields with
//! a shape.

pub mod v2;
pub mod v3;

use std::fmt;
use std::str::FromStr;

use cuzarr_device::{DType, DTypeKind, SmallNumber};
use serde_json::Value;

use crate::{Error, ErrorKind, Result, ResultExt};

/// Maximum size of an element in bytes; data types with larger elements are refused. NumPy allows 2 GiB. But a fill
/// value is one element, and a line of metadata must not make a reader allocate that much.
pub const MAX_SIZE_BYTES: usize = 1 << 24;
/// Maximum number of groups of bytes that a change of byte order reverses in a structure; structures with more are
/// refused. Otherwise, a few bytes of metadata could cause a list of millions.
const MAX_SWAP_UNITS: usize = 1 << 16;

/// The data type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// A boolean, stored as one byte that is 0 or 1.
    Bool,
    /// 8-bit signed integer.
    Int8,
    /// 16-bit signed integer.
    Int16,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// 8-bit unsigned integer.
    UInt8,
    /// 16-bit unsigned integer.
    UInt16,
    /// 32-bit unsigned integer.
    UInt32,
    /// 64-bit unsigned integer.
    UInt64,
    /// A float of 16 bits: IEEE 754 binary16.
    Float16,
    /// A float of 32 bits: IEEE 754 binary32.
    Float32,
    /// A float of 64 bits: IEEE 754 binary64.
    Float64,
    /// The float `bfloat16`: the upper half of an IEEE 754 binary32.
    BFloat16,
    /// A complex number: two IEEE 754 binary32, the real part first.
    Complex64,
    /// A complex number: two IEEE 754 binary64, the real part first.
    Complex128,
    /// Numbers that can be moved but not calculated with: integers of less than 8 bits, floats of at most 8 bits,
    /// complex numbers of floats of at most 16 bits.
    Small(SmallNumber),
    /// Bytes without meaning: v3 `raw_bytes` and `r*`, v2 `|V*`.
    RawBytes {
        /// Size of one element in bytes; at least 1.
        size: usize,
    },
    /// Bytes without their trailing zeros: v3 `null_terminated_bytes`, v2 `|S*`.
    NullTerminatedBytes {
        /// Size of one element in bytes; at least 1.
        length_bytes: usize,
    },
    /// Code points of 4 bytes, padded with zeros: v3 `fixed_length_utf32`, v2 `<U*`.
    FixedLengthUtf32 {
        /// Size of one element in bytes: 4 for each code point, and at least 4.
        length_bytes: usize,
    },
    /// A point in time: an `i64` count of `scale_factor` units since 1970; `i64::MIN` is NaT.
    DateTime64 {
        /// The unit of time, which is multiplied by `scale_factor`.
        unit: TimeUnit,
        /// How many units one count stands for: 1 to `i32::MAX`.
        scale_factor: u32,
    },
    /// A length of time: an `i64` count of `scale_factor` units; `i64::MIN` is NaT.
    TimeDelta64 {
        /// The unit of time, which is multiplied by `scale_factor`.
        unit: TimeUnit,
        /// How many units one count stands for: 1 to `i32::MAX`.
        scale_factor: u32,
    },
    /// A structure: named fields one after another, without padding.
    Struct {
        /// The fields of the structure; at least one.
        fields: Vec<Field>,
    },
    /// Strings of any length, in UTF-8: v3 `string`, v2 `|O` with the filter `vlen-utf8`.
    VariableString,
    /// Byte strings of any length: v3 `variable_length_bytes` and `bytes`, v2 `|O` with the filter `vlen-bytes`.
    VariableBytes,
}

impl TryFrom<DType> for DataType {
    type Error = Error;

    /// Returns the data type whose elements have the same bits as those of `dtype`. Opaque elements become raw bytes.
    fn try_from(dtype: DType) -> Result<DataType> {
        match (dtype.kind(), dtype.small_number()) {
            (_, Some(number)) => Ok(DataType::Small(number)),
            (DTypeKind::Opaque, _) => Ok(DataType::RawBytes { size: dtype.size_bytes() }),
            // Devices and Zarr v3 use the same names for numbers.
            _ => DataType::from_v3(&Value::from(dtype.to_string())),
        }
    }
}

impl FromStr for DataType {
    type Err = Error;

    /// Parses the name of a type in Zarr v3.
    fn from_str(name: &str) -> Result<DataType> {
        DataType::from_v3(&Value::from(name))
    }
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// The name of the field. It is unique in the structure.
    pub name: String,
    /// The type of the field. It must have a fixed size.
    pub data_type: DataType,
    /// The byte order of the field in a v2 array; [`Endian::Little`] if it does not matter. In v3 the `bytes` codec
    /// decides.
    pub endian: Endian,
    /// Extents of the field's own dimensions; empty for a plain field. Only v2 supports them.
    pub shape: Vec<usize>,
}

impl Field {
    /// Makes a plain field that is stored in little-endian byte order.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Field { name: name.into(), data_type, endian: Endian::Little, shape: Vec::new() }
    }

    /// Number of elements in the field: 1 unless the field has a shape.
    fn count(&self) -> usize {
        self.shape.iter().fold(1, |count, &length| count.saturating_mul(length))
    }

    fn size_bytes(&self) -> usize {
        self.data_type.size_bytes().unwrap_or(0).saturating_mul(self.count())
    }
}

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Little-endian: the lowest byte of a number comes first.
    Little,
    /// Big-endian: the highest byte of a number comes first.
    Big,
}

/// Bytes inside an element that a change of byte order reverses: `count` consecutive units of `unit_bytes`. The first
/// unit begins at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SwapUnit {
    /// Offset of the first unit from the start of the element, in bytes.
    pub offset: usize,
    /// Bytes that are reversed together: 2, 4 or 8.
    pub unit_bytes: usize,
    /// Number of units that follow each other, each with its bytes reversed alone.
    pub count: usize,
}

/// The unit of a date or of a length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it.
pub enum TimeUnit {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Picosecond,
    Femtosecond,
    Attosecond,
    /// No unit: NumPy's `datetime64` without brackets.
    Generic,
}

const TIME_UNITS: [(TimeUnit, &str); 14] = [
    (TimeUnit::Year, "Y"),
    (TimeUnit::Month, "M"),
    (TimeUnit::Week, "W"),
    (TimeUnit::Day, "D"),
    (TimeUnit::Hour, "h"),
    (TimeUnit::Minute, "m"),
    (TimeUnit::Second, "s"),
    (TimeUnit::Millisecond, "ms"),
    (TimeUnit::Microsecond, "us"),
    (TimeUnit::Nanosecond, "ns"),
    (TimeUnit::Picosecond, "ps"),
    (TimeUnit::Femtosecond, "fs"),
    (TimeUnit::Attosecond, "as"),
    (TimeUnit::Generic, "generic"),
];

impl TimeUnit {
    /// NumPy's name of the unit: `ns`, `D`, `generic`.
    pub fn name(self) -> &'static str {
        TIME_UNITS.iter().find(|(unit, _)| *unit == self).map_or("generic", |(_, name)| name)
    }

    /// Returns the unit of time that has this name in NumPy; `None` if there is none. `μs` is also accepted.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = if matches!(name, "\u{3bc}s" | "\u{b5}s") { "us" } else { name };
        TIME_UNITS.iter().find(|(_, known)| *known == name).map(|(unit, _)| *unit)
    }
}

/// The types without parameters: each with its v3 name, its v2 kind and size, and its type on devices.
const PLAIN: [(DataType, &str, &str, DType); 15] = [
    (DataType::Bool, "bool", "b1", DType::BOOL),
    (DataType::Int8, "int8", "i1", DType::INT8),
    (DataType::Int16, "int16", "i2", DType::INT16),
    (DataType::Int32, "int32", "i4", DType::INT32),
    (DataType::Int64, "int64", "i8", DType::INT64),
    (DataType::UInt8, "uint8", "u1", DType::UINT8),
    (DataType::UInt16, "uint16", "u2", DType::UINT16),
    (DataType::UInt32, "uint32", "u4", DType::UINT32),
    (DataType::UInt64, "uint64", "u8", DType::UINT64),
    (DataType::Float16, "float16", "f2", DType::FLOAT16),
    (DataType::Float32, "float32", "f4", DType::FLOAT32),
    (DataType::Float64, "float64", "f8", DType::FLOAT64),
    // NumPy has no code for this type. tensorstore writes this name into v2 documents.
    (DataType::BFloat16, "bfloat16", "bfloat16", DType::BFLOAT16),
    (DataType::Complex64, "complex64", "c8", DType::COMPLEX64),
    (DataType::Complex128, "complex128", "c16", DType::COMPLEX128),
];

impl DataType {
    fn plain(&self) -> Option<&'static (DataType, &'static str, &'static str, DType)> {
        PLAIN.iter().find(|(data_type, ..)| data_type == self)
    }

    /// Makes a structure type of these fields. Checks that there is at least one, that names are unique and sizes
    /// fixed, and that all together have at most 16 MiB.
    pub fn structure(fields: Vec<Field>) -> Result<DataType> {
        let structure = DataType::Struct { fields };
        structure.check()?;
        Ok(structure)
    }

    /// Size of one element in bytes; `None` for elements of variable length.
    pub fn size_bytes(&self) -> Option<usize> {
        match self {
            DataType::Small(number) => Some(number.part_bytes() * number.parts()),
            DataType::RawBytes { size } => Some(*size),
            DataType::NullTerminatedBytes { length_bytes } | DataType::FixedLengthUtf32 { length_bytes } => {
                Some(*length_bytes)
            }
            DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => Some(8),
            DataType::Struct { fields } => {
                Some(fields.iter().fold(0, |size: usize, field| size.saturating_add(field.size_bytes())))
            }
            DataType::VariableString | DataType::VariableBytes => None,
            plain => plain.plain().map(|(.., dtype)| dtype.size_bytes()),
        }
    }

    /// The element type on devices; `None` for variable length.
    pub fn device_dtype(&self) -> Option<DType> {
        match self {
            DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => Some(DType::INT64),
            // NumPy and DLPack have no complex numbers of 8-bit floats, so these are two opaque bytes, like a
            // structure.
            DataType::Small(number) if number.parts() == 2 && number.part_bytes() == 1 => Some(DType::opaque(2)),
            DataType::Small(number) => Some(DType::small(*number)),
            _ => match self.plain() {
                Some((.., dtype)) => Some(*dtype),
                None => self.size_bytes().and_then(|size| u32::try_from(size).ok()).map(DType::opaque),
            },
        }
    }

    /// Byte offset of every field of a structure; empty for other types.
    pub fn field_offsets(&self) -> Vec<usize> {
        let DataType::Struct { fields } = self else {
            return Vec::new();
        };
        let mut end = 0usize;
        let offset_of = |field: &Field| {
            let offset = end;
            end = end.saturating_add(field.size_bytes());
            offset
        };
        fields.iter().map(offset_of).collect()
    }

    /// Number of bytes that a change of byte order reverses together, if it is the same in the whole element. It is 1
    /// for bytes and single-byte numbers, half a complex number, 4 for UTF-32. `None` for a structure with larger
    /// fields (see [`swap_units`](Self::swap_units)) and for variable length.
    pub fn swap_unit_bytes(&self) -> Option<usize> {
        match self {
            DataType::Small(number) => Some(number.part_bytes()),
            DataType::RawBytes { .. } | DataType::NullTerminatedBytes { .. } => Some(1),
            DataType::FixedLengthUtf32 { .. } => Some(4),
            DataType::DateTime64 { .. } | DataType::TimeDelta64 { .. } => Some(8),
            DataType::Struct { .. } if self.swap_units().is_empty() => Some(1),
            DataType::Struct { .. } | DataType::VariableString | DataType::VariableBytes => None,
            plain => plain.plain().map(|(.., dtype)| dtype.swap_unit_bytes()),
        }
    }

    /// All groups of bytes inside an element that a change of byte order reverses, in order of offset. This is what the
    /// v3 `bytes` codec with `endian: big` swaps. Empty if byte order does not matter.
    pub fn swap_units(&self) -> Vec<SwapUnit> {
        let mut units = Vec::new();
        self.push_swap_units(0, 1, None, &mut units);
        units
    }

    /// The units whose bytes are reversed when stored elements of a v2 array are brought to native byte order. `endian`
    /// is the byte order of the array's dtype. In a structure, the byte order of each field is used.
    pub fn stored_swap_units(&self, endian: Endian) -> Vec<SwapUnit> {
        let mut units = Vec::new();
        self.push_swap_units(0, 1, Some(endian), &mut units);
        units
    }

    /// Adds to `units` the groups of bytes that a change of byte order reverses in `repeat` elements from byte `offset`
    /// on. If `stored` is given, only groups that are stored in big-endian order are added. Returns the size of these
    /// elements in bytes.
    fn push_swap_units(
        &self,
        offset: usize,
        repeat: usize,
        stored: Option<Endian>,
        units: &mut Vec<SwapUnit>,
    ) -> usize {
        if let DataType::Struct { fields } = self {
            let mut size = 0usize;
            for index in 0..repeat {
                let (before, start) = (units.len(), offset.saturating_add(index.saturating_mul(size)));
                let mut end = start;
                for field in fields {
                    let stored = stored.map(|_| field.endian);
                    end = end.saturating_add(field.data_type.push_swap_units(end, field.count(), stored, units));
                }
                size = end - start;
                // Byte-sized fields add no units. Then the loop stops, so that a huge repeat in bad metadata costs no
                // time.
                if units.len() == before || units.len() > MAX_SWAP_UNITS {
                    break;
                }
            }
            return size.saturating_mul(repeat);
        }
        let Some(size) = self.size_bytes() else { return 0 };
        match self.swap_unit_bytes() {
            Some(unit_bytes) if unit_bytes > 1 && stored != Some(Endian::Little) => {
                let count = (size / unit_bytes).saturating_mul(repeat);
                units.push(SwapUnit { offset, unit_bytes, count });
            }
            _ => {}
        }
        size.saturating_mul(repeat)
    }

    /// The argument of `numpy.dtype` for native elements, once lists of fields are converted to lists of tuples:
    /// `"<f4"`, or `[["a", "<i4"], ["b", "<f8", [2]]]`. `bfloat16` and [`DataType::Small`] need `ml_dtypes`; variable
    /// lengths are `"T"` and `"|O"`.
    pub fn numpy_descr(&self) -> Value {
        match self {
            DataType::VariableString => Value::from("T"),
            _ => v2::to_name(self, Endian::Little, v2::FieldOrder::Native),
        }
    }

    /// Refuses types that no array can have: elements of 0 bytes or of more than 16 MiB, and structures with duplicate
    /// names or too many numbers.
    pub(crate) fn check(&self) -> Result<()> {
        self.checked_size_bytes()?;
        if matches!(self, DataType::Struct { .. }) && self.swap_units().len() > MAX_SWAP_UNITS {
            return Err(Error::new(
                ErrorKind::UnsupportedFeature,
                format!("data type: got a structure of more than {MAX_SWAP_UNITS} numbers, expected fewer"),
            ));
        }
        Ok(())
    }

    /// Returns [`DataType::size_bytes`], and checks the types of fields inside this type too.
    fn checked_size_bytes(&self) -> Result<Option<usize>> {
        let refuse = |message: String| Err(Error::new(ErrorKind::MetadataInvalid, message));
        let size = match self {
            DataType::Struct { fields } => Some(checked_fields_size_bytes(fields)?),
            other => other.size_bytes(),
        };
        if let Some(size) = size.filter(|size| !(1..=MAX_SIZE_BYTES).contains(size)) {
            return refuse(format!("data type: got elements of {size} bytes, expected 1 to {MAX_SIZE_BYTES}"));
        }
        if let DataType::FixedLengthUtf32 { length_bytes } = self
            && !length_bytes.is_multiple_of(4)
        {
            return refuse(format!(
                "data type 'fixed_length_utf32': got {length_bytes} bytes, expected a multiple of 4"
            ));
        }
        if let DataType::DateTime64 { scale_factor, .. } | DataType::TimeDelta64 { scale_factor, .. } = self
            && !(1..=i32::MAX as u32).contains(scale_factor)
        {
            return refuse(format!("data type: got a scale factor of {scale_factor}, expected 1 to {}", i32::MAX));
        }
        Ok(size)
    }
}

fn checked_fields_size_bytes(fields: &[Field]) -> Result<usize> {
    let mut names = std::collections::HashSet::new();
    let mut size = 0usize;
    for field in fields {
        if !names.insert(&field.name) {
            let message = format!("field '{}': got the name twice, expected it once", field.name);
            return Err(Error::new(ErrorKind::MetadataInvalid, message));
        }
        let Some(element) = field.data_type.checked_size_bytes().at(|| format!("field '{}'", field.name))? else {
            let message = format!("field '{}': got a data type of variable length, expected a fixed size", field.name);
            return Err(Error::new(ErrorKind::UnsupportedFeature, message));
        };
        size = size.saturating_add(element.saturating_mul(field.count()));
    }
    Ok(size)
}

/// Writes a data type as a short text for people: `float32`, `raw_bytes(8)`, `datetime64[10us]`, `struct(a: int32, b:
/// float64[2, 3])`.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |f: &mut fmt::Formatter<'_>, kind: &str, unit: TimeUnit, scale_factor: u32| match scale_factor {
            1 => write!(f, "{kind}[{}]", unit.name()),
            scale => write!(f, "{kind}[{scale}{}]", unit.name()),
        };
        match self {
            DataType::Small(number) => number.fmt(f),
            DataType::RawBytes { size } => write!(f, "raw_bytes({size})"),
            DataType::NullTerminatedBytes { length_bytes } => write!(f, "null_terminated_bytes({length_bytes})"),
            DataType::FixedLengthUtf32 { length_bytes } => write!(f, "fixed_length_utf32({length_bytes})"),
            DataType::DateTime64 { unit, scale_factor } => time(f, "datetime64", *unit, *scale_factor),
            DataType::TimeDelta64 { unit, scale_factor } => time(f, "timedelta64", *unit, *scale_factor),
            DataType::Struct { fields } => {
                f.write_str("struct(")?;
                for (index, field) in fields.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{}: {}", field.name, field.data_type)?;
                    if !field.shape.is_empty() {
                        write!(f, "{:?}", field.shape)?;
                    }
                }
                f.write_str(")")
            }
            DataType::VariableString => f.write_str("string"),
            DataType::VariableBytes => f.write_str("variable_length_bytes"),
            plain => f.write_str(plain.plain().map_or("", |(_, name, ..)| name)),
        }
    }
}

/// The error for a data type that is unknown, or has an unknown form.
fn unknown(got: &Value, expected: &str) -> Error {
    Error::new(
        ErrorKind::UnknownDataType,
        format!("data type: got {}, expected {expected}", super::json::abbreviate(got)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn structure(fields: Vec<(&str, DataType)>) -> DataType {
        DataType::structure(fields.into_iter().map(|(name, data_type)| Field::new(name, data_type)).collect()).unwrap()
    }

    #[test]
    fn structures_inside_of_structures_are_checked_and_swapped() {
        let inner = (0..200).fold(json!("<i4"), |inner, _| json!([["a", inner], ["b", "|u1"]]));
        let (data_type, _) = DataType::from_v2(&inner, None).unwrap();
        assert_eq!((data_type.size_bytes(), data_type.swap_units().len()), (Some(204), 1));
        let repeated = json!([["a", [["b", ">i2", [3]], ["c", "|u1"]], [2]], ["d", ">f8"]]);
        let (data_type, endian) = DataType::from_v2(&repeated, None).unwrap();
        let unit = |offset, unit_bytes, count| SwapUnit { offset, unit_bytes, count };
        assert_eq!(data_type.stored_swap_units(endian), [unit(0, 2, 3), unit(7, 2, 3), unit(14, 8, 1)]);
        let error = DataType::from_v2(&json!([["a", [["b", "|V0"]]]]), None).unwrap_err();
        assert!(error.to_string().contains("field 'a': field 'b': data type: got elements of 0 bytes"), "{error}");
    }

    #[test]
    fn sizes_and_swap_units_by_type() {
        for (data_type, size, unit) in [
            (DataType::Bool, 1, 1),
            (DataType::UInt64, 8, 8),
            (DataType::BFloat16, 2, 2),
            (DataType::Complex64, 8, 4),
            (DataType::Complex128, 16, 8),
            (DataType::RawBytes { size: 7 }, 7, 1),
            (DataType::NullTerminatedBytes { length_bytes: 5 }, 5, 1),
            (DataType::FixedLengthUtf32 { length_bytes: 12 }, 12, 4),
            (DataType::DateTime64 { unit: TimeUnit::Nanosecond, scale_factor: 1 }, 8, 8),
        ] {
            assert_eq!(data_type.size_bytes(), Some(size), "{data_type:?}");
            assert_eq!(data_type.swap_unit_bytes(), Some(unit), "{data_type:?}");
            assert_eq!(data_type.device_dtype().unwrap().size_bytes(), size);
            let units = data_type.swap_units();
            let expected = SwapUnit { offset: 0, unit_bytes: unit, count: size / unit };
            assert_eq!(units, if unit == 1 { vec![] } else { vec![expected] });
        }
        assert_eq!(DataType::VariableString.size_bytes(), None);
        assert_eq!(DataType::VariableBytes.device_dtype(), None);
    }

    #[test]
    fn structure_lists_its_units_by_offset() {
        let inner = structure(vec![("x", DataType::Int16), ("y", DataType::UInt8)]);
        let mut fields =
            vec![Field::new("a", DataType::UInt8), Field::new("b", inner), Field::new("c", DataType::Complex64)];
        fields[1].shape = vec![2];
        let outer = DataType::structure(fields).unwrap();
        assert_eq!(outer.size_bytes(), Some(1 + 2 * 3 + 8));
        assert_eq!(outer.field_offsets(), [0, 1, 7]);
        assert_eq!(outer.device_dtype(), Some(DType::opaque(15)));
        let unit = |offset, unit_bytes, count| SwapUnit { offset, unit_bytes, count };
        assert_eq!(outer.swap_units(), [unit(1, 2, 1), unit(4, 2, 1), unit(7, 4, 2)]);
        assert_eq!(outer.swap_unit_bytes(), None);
        assert_eq!(structure(vec![("a", DataType::Int8)]).swap_unit_bytes(), Some(1));
    }

    #[test]
    fn names_for_people_are_short() {
        let mut fields = vec![Field::new("a", DataType::Int32), Field::new("b", DataType::Float64)];
        fields[1].shape = vec![2, 3];
        assert_eq!(DataType::Struct { fields }.to_string(), "struct(a: int32, b: float64[2, 3])");
        let time = DataType::DateTime64 { unit: TimeUnit::Microsecond, scale_factor: 10 };
        assert_eq!(time.to_string(), "datetime64[10us]");
        assert_eq!(DataType::RawBytes { size: 8 }.to_string(), "raw_bytes(8)");
    }

    #[test]
    fn stored_units_follow_each_fields_byte_order() {
        let mut fields = vec![Field::new("a", DataType::Int32), Field::new("b", DataType::Float64)];
        fields[1].endian = Endian::Big;
        let data_type = DataType::structure(fields).unwrap();
        let expected = [SwapUnit { offset: 4, unit_bytes: 8, count: 1 }];
        assert_eq!(data_type.stored_swap_units(Endian::Little), expected);
        assert_eq!(DataType::Int16.stored_swap_units(Endian::Little), []);
        assert_eq!(DataType::Int16.stored_swap_units(Endian::Big).len(), 1);
    }

    #[test]
    fn impossible_structures_are_refused() {
        let refused = |fields: Vec<Field>| DataType::structure(fields).unwrap_err().kind();
        let with_shape = |data_type, shape| Field { shape, ..Field::new("a", data_type) };
        assert_eq!(refused(vec![]), ErrorKind::MetadataInvalid);
        let twice = vec![Field::new("a", DataType::Int8), Field::new("a", DataType::Int8)];
        assert_eq!(refused(twice), ErrorKind::MetadataInvalid);
        assert_eq!(refused(vec![Field::new("a", DataType::VariableString)]), ErrorKind::UnsupportedFeature);
        assert_eq!(refused(vec![with_shape(DataType::Int8, vec![0])]), ErrorKind::MetadataInvalid);
        let huge = vec![usize::MAX, usize::MAX];
        assert_eq!(refused(vec![with_shape(DataType::Int8, huge)]), ErrorKind::MetadataInvalid);
        let inner = structure(vec![("x", DataType::Int16), ("y", DataType::UInt8)]);
        assert_eq!(refused(vec![with_shape(inner, vec![1 << 22])]), ErrorKind::UnsupportedFeature);
        let bytes = structure(vec![("x", DataType::Int8), ("y", DataType::UInt8)]);
        assert!(DataType::structure(vec![with_shape(bytes, vec![1 << 22])]).is_ok());
    }
}
