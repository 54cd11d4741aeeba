//! Promotion of element types: NumPy 2's rules (NEP 50), and ml_dtypes' rules for bfloat16.

use cuzarr_device::{DType, DTypeKind};

use cuzarr::{Error, ErrorKind, Result};

/// A number without its own type, like a Python number. It takes the type of the other operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weak {
    /// The number is an integer, like Python's `int`.
    Int(i128),
    /// The number is a float, like Python's `float`.
    Float(f64),
    /// The number is complex, with a real and an imaginary part, like Python's `complex`.
    Complex(f64, f64),
}

impl Weak {
    /// Returns the type that the number has without any other operand.
    pub(crate) fn default_dtype(self) -> DType {
        match self {
            Weak::Int(value) if i64::try_from(value).is_err() && u64::try_from(value).is_ok() => DType::UINT64,
            Weak::Int(_) => DType::INT64,
            Weak::Float(_) => DType::FLOAT64,
            Weak::Complex(..) => DType::COMPLEX128,
        }
    }

    /// Returns the type in which an operation combines this number with elements of type `dtype`.
    pub(crate) fn meets(self, dtype: DType) -> DType {
        let kind = dtype.kind();
        let is_exact = matches!(kind, DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt);
        match self {
            Weak::Int(_) if kind == DTypeKind::Bool => DType::INT64,
            Weak::Float(_) if is_exact => DType::FLOAT64,
            Weak::Complex(..) if is_exact || dtype == DType::FLOAT64 => DType::COMPLEX128,
            Weak::Complex(..) if kind != DTypeKind::Complex => DType::COMPLEX64,
            _ => dtype,
        }
    }
}

/// Returns the smallest type that holds the values of both types, like NumPy's `promote_types`.
///
/// # Errors
/// `DTypeMismatch` for types without arithmetic.
pub(crate) fn promote(a: DType, b: DType) -> Result<DType> {
    use DTypeKind::{BFloat, Bool, Complex, Float, Int, Opaque, UInt};
    let (low, high) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
    let size = |dtype: DType| dtype.size_bytes();
    Ok(match (low.kind(), high.kind()) {
        (Opaque, _) | (_, Opaque) => return Err(without_arithmetic(if rank(a) == OPAQUE { a } else { b })),
        _ if low == high => low,
        (Bool, _) => high,
        (Int, Int) | (UInt, UInt) | (Float, Float) => wider(low, high),
        (UInt, Int) if size(high) > size(low) => high,
        (UInt, Int) => match size(low) {
            1 => DType::INT16,
            2 => DType::INT32,
            4 => DType::INT64,
            _ => DType::FLOAT64,
        },
        (UInt | Int, BFloat | Float) => {
            let least = match (size(low), high.kind()) {
                (1, _) => high,
                (2, _) => DType::FLOAT32,
                _ => DType::FLOAT64,
            };
            if least == high { high } else { wider(least, high) }
        }
        (BFloat, Float) | (Float, BFloat) => wider(DType::FLOAT32, if low.kind() == Float { low } else { high }),
        (UInt | Int, Complex) if size(low) > 2 => DType::COMPLEX128,
        (Float, Complex) if size(low) > 4 => DType::COMPLEX128,
        (Complex, Complex) => DType::COMPLEX128,
        _ => high,
    })
}

const OPAQUE: u8 = 6;

fn rank(dtype: DType) -> u8 {
    match dtype.kind() {
        DTypeKind::Bool => 0,
        DTypeKind::UInt => 1,
        DTypeKind::Int => 2,
        DTypeKind::BFloat => 3,
        DTypeKind::Float => 4,
        DTypeKind::Complex => 5,
        DTypeKind::Opaque => OPAQUE,
    }
}

fn wider(a: DType, b: DType) -> DType {
    if a.size_bytes() > b.size_bytes() { a } else { b }
}

/// Returns the error for elements of a type that has no arithmetic.
pub(crate) fn without_arithmetic(dtype: DType) -> Error {
    Error::new(ErrorKind::DTypeMismatch, format!("elements of {dtype} have no arithmetic"))
}

/// Returns the type in which functions such as `sqrt` compute for elements of type `dtype`. Integers and bools become
/// floats.
pub(crate) fn float_of(dtype: DType) -> DType {
    match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Bool | DTypeKind::Int | DTypeKind::UInt, 1) => DType::FLOAT16,
        (DTypeKind::Int | DTypeKind::UInt, 2) => DType::FLOAT32,
        (DTypeKind::Int | DTypeKind::UInt, _) => DType::FLOAT64,
        _ => dtype,
    }
}

/// Returns the type of the real and the imaginary part of a complex type. Other types are returned unchanged.
pub(crate) fn real_of(dtype: DType) -> DType {
    match dtype {
        DType::COMPLEX64 => DType::FLOAT32,
        DType::COMPLEX128 => DType::FLOAT64,
        other => other,
    }
}

/// Returns the type in which elements of type `dtype` are computed.
pub(crate) fn lane(dtype: DType) -> DType {
    if is_half(dtype) { DType::FLOAT32 } else { dtype }
}

/// Whether `dtype` is a 2-byte float.
pub(crate) fn is_half(dtype: DType) -> bool {
    dtype == DType::FLOAT16 || dtype == DType::BFLOAT16
}
