//! Element types as devices see them: a kind and a size, always in native byte order.
//!
//! Byte order, calendars, string encodings and record fields are left to the code that stores the elements. To a
//! device, a datetime is an 8-byte integer and a structure is opaque bytes.

use std::fmt;

use super::small_number::SmallNumber;

/// The kind of value that an element's bits stand for: a bool, an integer, a float, a complex number, or opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeKind {
    /// A bool: one byte, 0 or 1.
    Bool,
    /// A signed integer, in two's complement.
    Int,
    /// An unsigned integer.
    UInt,
    /// A float: IEEE 754 binary16, binary32 or binary64.
    Float,
    /// A bfloat16: the upper half of a binary32.
    BFloat,
    /// A complex number: two floats, the real and the imaginary part.
    Complex,
    /// Bytes without arithmetic, of any size. For some of them, [`DType::small_number`] tells the number format they
    /// hold.
    Opaque,
}

/// An element type: kind and size in bytes.
///
/// ```
/// use cuzarr_device::DType;
/// assert_eq!(DType::FLOAT32.size_bytes(), 4);
/// assert_eq!(DType::FLOAT32.to_string(), "float32");
/// assert_eq!(DType::opaque(24).to_string(), "opaque24");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DType {
    kind: DTypeKind,
    size_bytes: u32,
    small: Option<SmallNumber>,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $kind:ident, $size:literal;)*) => {
        impl DType {
            $($(#[$doc])* pub const $name: DType = DType { kind: DTypeKind::$kind, size_bytes: $size, small: None };)*

            /// All number types: every type but the opaque ones.
            pub const NUMBERS: [DType; 15] = [$(DType::$name),*];
        }
    };
}

dtypes! {
    /// `bool`
    BOOL = Bool, 1;
    /// `int8`
    INT8 = Int, 1;
    /// `int16`
    INT16 = Int, 2;
    /// `int32`
    INT32 = Int, 4;
    /// `int64`
    INT64 = Int, 8;
    /// `uint8`
    UINT8 = UInt, 1;
    /// `uint16`
    UINT16 = UInt, 2;
    /// `uint32`
    UINT32 = UInt, 4;
    /// `uint64`
    UINT64 = UInt, 8;
    /// `float16`
    FLOAT16 = Float, 2;
    /// `float32`
    FLOAT32 = Float, 4;
    /// `float64`
    FLOAT64 = Float, 8;
    /// `bfloat16`
    BFLOAT16 = BFloat, 2;
    /// `complex64`
    COMPLEX64 = Complex, 8;
    /// `complex128`
    COMPLEX128 = Complex, 16;
}

impl DType {
    /// Returns the element type of values that are `size_bytes` opaque bytes, with which nothing can be computed.
    /// Zero-sized elements are allowed.
    pub const fn opaque(size_bytes: u32) -> DType {
        DType { kind: DTypeKind::Opaque, size_bytes, small: None }
    }

    /// The element type of a [`SmallNumber`], whose values can be moved but not computed with.
    pub const fn small(number: SmallNumber) -> DType {
        let size_bytes = (number.part_bytes() * number.parts()) as u32;
        DType { kind: DTypeKind::Opaque, size_bytes, small: Some(number) }
    }

    /// The [`SmallNumber`] format of the elements, if they have one. Such elements can be moved but not computed with.
    pub const fn small_number(self) -> Option<SmallNumber> {
        self.small
    }

    /// The kind of value that an element's bits stand for.
    pub const fn kind(self) -> DTypeKind {
        self.kind
    }

    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        self.size_bytes as usize
    }

    /// Number of bytes that are reversed together when the byte order of an element changes. A complex number has two
    /// such units; each opaque byte is its own unit.
    pub const fn swap_unit_bytes(self) -> usize {
        match (self.kind, self.small) {
            (_, Some(number)) => number.part_bytes(),
            (DTypeKind::Complex, _) => self.size_bytes as usize / 2,
            (DTypeKind::Opaque, _) => 1,
            _ => self.size_bytes as usize,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.size_bytes * 8;
        if let Some(number) = self.small {
            return number.fmt(f);
        }
        match self.kind {
            DTypeKind::Bool => f.write_str("bool"),
            DTypeKind::Int => write!(f, "int{bits}"),
            DTypeKind::UInt => write!(f, "uint{bits}"),
            DTypeKind::Float => write!(f, "float{bits}"),
            DTypeKind::BFloat => write!(f, "bfloat{bits}"),
            DTypeKind::Complex => write!(f, "complex{bits}"),
            DTypeKind::Opaque => write!(f, "opaque{}", self.size_bytes),
        }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
