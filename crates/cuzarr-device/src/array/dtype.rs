//! Element types as devices see them: a kind and a size, always in native byte order.
//!
//! Byte order, calendars, string encodings and record fields are left to the code that stores the elements. To a
//! device, a datetime is an 8-byte integer and a structure is opaque bytes.

use std::fmt;

use super::small_number::SmallNumber;

/// The kind of value that an element's bits stand for: a bool, an integer, a float, a complex number, or opaque bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeKind {
    /// The elements are bools: one byte each, 0 or 1.
    Bool,
    /// The elements are signed integers, in two's complement.
    Int,
    /// The elements are unsigned integers.
    UInt,
    /// The elements are floats: IEEE 754 binary16, binary32 or binary64.
    Float,
    /// The elements are bfloat16 numbers: the upper half of a binary32.
    BFloat,
    /// The elements are complex numbers: two floats each, the real and the imaginary part.
    Complex,
    /// The elements are bytes without arithmetic; an element has any number of them. For some of them,
    /// [`DType::small_number`] tells the number format they hold.
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
    /// The element type `bool`: one byte, 0 or 1.
    BOOL = Bool, 1;
    /// The element type `int8`: a signed integer of 1 byte.
    INT8 = Int, 1;
    /// The element type `int16`: a signed integer of 2 bytes.
    INT16 = Int, 2;
    /// The element type `int32`: a signed integer of 4 bytes.
    INT32 = Int, 4;
    /// The element type `int64`: a signed integer of 8 bytes.
    INT64 = Int, 8;
    /// The element type `uint8`: an unsigned integer of 1 byte.
    UINT8 = UInt, 1;
    /// The element type `uint16`: an unsigned integer of 2 bytes.
    UINT16 = UInt, 2;
    /// The element type `uint32`: an unsigned integer of 4 bytes.
    UINT32 = UInt, 4;
    /// The element type `uint64`: an unsigned integer of 8 bytes.
    UINT64 = UInt, 8;
    /// The element type `float16`: an IEEE 754 binary16.
    FLOAT16 = Float, 2;
    /// The element type `float32`: an IEEE 754 binary32.
    FLOAT32 = Float, 4;
    /// The element type `float64`: an IEEE 754 binary64.
    FLOAT64 = Float, 8;
    /// The element type `bfloat16`: the upper half of a binary32.
    BFLOAT16 = BFloat, 2;
    /// The element type `complex64`: two floats of 4 bytes, the real and the imaginary part.
    COMPLEX64 = Complex, 8;
    /// The element type `complex128`: two floats of 8 bytes, the real and the imaginary part.
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
