//! Formats of numbers, such as `int4`, that devices move but do not compute with. They are integers of less than 8
//! bits, floats of at most 8 bits, and complex numbers whose parts are floats of at most 16 bits. A number of less than
//! 8 bits takes the low bits of a byte. The higher bits have no meaning.

use std::fmt;

/// A number format, such as `int4`, that devices move but do not compute with.
///
/// ```
/// use cuzarr_device::{DType, SmallNumber};
/// let dtype = DType::small(SmallNumber::Float8E4M3FN);
/// assert_eq!((dtype.to_string().as_str(), dtype.size_bytes()), ("float8_e4m3fn", 1));
/// assert_eq!(SmallNumber::from_name("float8_e4m3fn"), Some(SmallNumber::Float8E4M3FN));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it; `name` has them as Zarr and ml_dtypes spell them.
pub enum SmallNumber {
    Int2,
    Int4,
    UInt2,
    UInt4,
    Float4E2M1FN,
    Float6E2M3FN,
    Float6E3M2FN,
    Float8E3M4,
    Float8E4M3,
    Float8E4M3B11FNUZ,
    Float8E4M3FN,
    Float8E4M3FNUZ,
    Float8E5M2,
    Float8E5M2FNUZ,
    Float8E8M0FNU,
    ComplexFloat16,
    ComplexBFloat16,
    ComplexFloat4E2M1FN,
    ComplexFloat6E2M3FN,
    ComplexFloat6E3M2FN,
    ComplexFloat8E3M4,
    ComplexFloat8E4M3,
    ComplexFloat8E4M3B11FNUZ,
    ComplexFloat8E4M3FNUZ,
    ComplexFloat8E5M2,
    ComplexFloat8E5M2FNUZ,
    ComplexFloat8E8M0FNU,
}

use SmallNumber::*;

/// For each format: its name, the bits of a number (of the real part, if it is complex), and its DLPack type code, if
/// it has one.
const FORMATS: [(SmallNumber, &str, u32, Option<u8>); 27] = [
    (Int2, "int2", 2, Some(0)),
    (Int4, "int4", 4, Some(0)),
    (UInt2, "uint2", 2, Some(1)),
    (UInt4, "uint4", 4, Some(1)),
    (Float4E2M1FN, "float4_e2m1fn", 4, Some(17)),
    (Float6E2M3FN, "float6_e2m3fn", 6, Some(15)),
    (Float6E3M2FN, "float6_e3m2fn", 6, Some(16)),
    (Float8E3M4, "float8_e3m4", 8, Some(7)),
    (Float8E4M3, "float8_e4m3", 8, Some(8)),
    (Float8E4M3B11FNUZ, "float8_e4m3b11fnuz", 8, Some(9)),
    (Float8E4M3FN, "float8_e4m3fn", 8, Some(10)),
    (Float8E4M3FNUZ, "float8_e4m3fnuz", 8, Some(11)),
    (Float8E5M2, "float8_e5m2", 8, Some(12)),
    (Float8E5M2FNUZ, "float8_e5m2fnuz", 8, Some(13)),
    (Float8E8M0FNU, "float8_e8m0fnu", 8, Some(14)),
    (ComplexFloat16, "complex_float16", 16, Some(5)),
    (ComplexBFloat16, "complex_bfloat16", 16, None),
    (ComplexFloat4E2M1FN, "complex_float4_e2m1fn", 4, None),
    (ComplexFloat6E2M3FN, "complex_float6_e2m3fn", 6, None),
    (ComplexFloat6E3M2FN, "complex_float6_e3m2fn", 6, None),
    (ComplexFloat8E3M4, "complex_float8_e3m4", 8, None),
    (ComplexFloat8E4M3, "complex_float8_e4m3", 8, None),
    (ComplexFloat8E4M3B11FNUZ, "complex_float8_e4m3b11fnuz", 8, None),
    (ComplexFloat8E4M3FNUZ, "complex_float8_e4m3fnuz", 8, None),
    (ComplexFloat8E5M2, "complex_float8_e5m2", 8, None),
    (ComplexFloat8E5M2FNUZ, "complex_float8_e5m2fnuz", 8, None),
    (ComplexFloat8E8M0FNU, "complex_float8_e8m0fnu", 8, None),
];

impl SmallNumber {
    /// Lists every number format that devices move but do not compute with.
    pub fn all() -> impl Iterator<Item = SmallNumber> {
        FORMATS.iter().map(|(format, ..)| *format)
    }

    /// Returns the format with this name in Zarr v3, such as `int4`.
    pub fn from_name(name: &str) -> Option<SmallNumber> {
        FORMATS.iter().find(|(_, known, ..)| *known == name).map(|(format, ..)| *format)
    }

    /// The name of the format in Zarr v3. `ml_dtypes` uses the same name for the formats it has.
    pub const fn name(self) -> &'static str {
        FORMATS[self as usize].1
    }

    /// Number of parts of a number: 2 for complex numbers (real and imaginary), otherwise 1.
    pub const fn parts(self) -> usize {
        if self as usize >= ComplexFloat16 as usize { 2 } else { 1 }
    }

    /// Number of bits that have a meaning, in one part (real or imaginary) of a number.
    pub const fn part_bits(self) -> u32 {
        FORMATS[self as usize].2
    }

    /// Size in bytes of one part (real or imaginary) of a number.
    pub const fn part_bytes(self) -> usize {
        self.part_bits().div_ceil(8) as usize
    }

    /// Whether numbers of the format are signed integers.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, Int2 | Int4)
    }

    /// DLPack's type code and number of bits; `None` if DLPack does not have the format.
    pub(crate) const fn dlpack(self) -> Option<(u8, u8)> {
        match FORMATS[self as usize].3 {
            Some(code) => Some((code, self.part_bits() as u8 * self.parts() as u8)),
            None => None,
        }
    }
}

impl fmt::Display for SmallNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (at, (format, name, ..)) in FORMATS.into_iter().enumerate() {
            assert_eq!(format as usize, at, "{name}");
            assert_eq!(format.parts() == 2, name.starts_with("complex_"));
        }
    }
}
