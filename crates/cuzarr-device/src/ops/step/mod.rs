//! Steps that change elements between packed memory and an nd-buffer, one after the other.

pub mod bits;
pub(crate) mod cpu;
pub(crate) mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::small_number::SmallNumber;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::cast;
use crate::ops::element::arithmetic::Arithmetic;

/// One change that each element undergoes on the way between packed memory and an nd-buffer. Steps are listed in the
/// order of reading (packed → nd-buffer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementStep {
    /// Reverses the bytes of every unit of `unit_bytes` (2, 4, 8 or 16) in the element.
    SwapBytes {
        /// Number of bytes of an element that are reversed together.
        unit_bytes: usize,
    },
    /// Converts each element as NumPy's `astype` does on x86-64, including NaN and values out of range (see [`cast`]).
    Cast {
        /// Type of the elements before the conversion.
        from: DType,
        /// Type of the elements after the conversion.
        to: DType,
    },
    /// Computes `operation` with each element and the constant `operand`, in the type `dtype`.
    Arithmetic {
        /// The arithmetic operation, such as an addition.
        operation: Arithmetic,
        /// The type of the arithmetic: an integer or float type of 1 to 8 bytes. 2-byte floats compute in binary32 and
        /// round once.
        dtype: DType,
        /// The constant, as the bytes of `dtype` in native order, padded with zeros.
        operand: [u8; 8],
    },
    /// Rounds each float in integer arithmetic, half to even, so that its lowest bits are zero (see [`bits`]). Both
    /// parts of a complex number are rounded.
    RoundBits {
        /// A float type of 2, 4 or 8 bytes, or a complex type of two such floats.
        dtype: DType,
        /// Number of bits that become zero; less than one float has.
        dropped_bits: u32,
    },
    /// Rounds each integer, half to even, so that at most `kept_bits` bits remain, counted from the highest set bit
    /// (see [`bits`]).
    RoundInteger {
        /// The integer type of the elements that are rounded.
        dtype: DType,
        /// Number of highest bits that remain of the integer, at least 1.
        kept_bits: u32,
    },
}

impl ElementStep {
    /// The step that undoes this one, as far as possible; `None` if no step does.
    pub fn inverse(&self) -> Option<ElementStep> {
        match *self {
            ElementStep::SwapBytes { .. } => Some(*self),
            ElementStep::Cast { from, to } => Some(ElementStep::Cast { from: to, to: from }),
            ElementStep::RoundBits { .. } | ElementStep::RoundInteger { .. } => None,
            ElementStep::Arithmetic { operation, dtype, operand } => {
                let operation = match operation {
                    Arithmetic::Add => Arithmetic::Subtract,
                    Arithmetic::Subtract => Arithmetic::Add,
                    Arithmetic::Multiply => Arithmetic::Divide,
                    Arithmetic::Divide => Arithmetic::Multiply,
                    Arithmetic::Round => return None,
                };
                Some(ElementStep::Arithmetic { operation, dtype, operand })
            }
        }
    }
}

/// Checks that every step fits the one before, and that they lead from type `from` to type `to`.
pub(crate) fn check_steps(steps: &[ElementStep], from: DType, to: DType) -> Result<()> {
    let mut current = from;
    for step in steps {
        match *step {
            ElementStep::SwapBytes { unit_bytes } => {
                if !matches!(unit_bytes, 2 | 4 | 8 | 16) || !current.size_bytes().is_multiple_of(unit_bytes) {
                    return Err(Error::invalid(format!("cannot swap units of {unit_bytes} bytes in {current}")));
                }
            }
            ElementStep::Cast { from, to } => {
                require_dtype("cast", from, current)?;
                if !cast::is_supported(from, to) {
                    return Err(Error::new(ErrorKind::Unsupported, format!("cannot cast {from} to {to}")));
                }
                current = to;
            }
            ElementStep::RoundBits { dtype, dropped_bits } => {
                require_dtype("rounding", dtype, current)?;
                if !has_wide_floats(dtype) || dropped_bits as usize >= 8 * dtype.swap_unit_bytes() {
                    return Err(Error::invalid(format!("cannot round {dropped_bits} bits of {dtype} away")));
                }
            }
            ElementStep::RoundInteger { dtype, kept_bits } => {
                require_dtype("rounding", dtype, current)?;
                if !matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt) || kept_bits == 0 {
                    return Err(Error::invalid(format!("cannot round {dtype} to {kept_bits} bits")));
                }
            }
            ElementStep::Arithmetic { dtype, .. } => {
                require_dtype("arithmetic", dtype, current)?;
                if !matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat) {
                    return Err(Error::new(ErrorKind::Unsupported, format!("no arithmetic in {dtype}")));
                }
            }
        }
    }
    require_dtype("the end of the steps", current, to)
}

/// Whether elements are floats of at least 16 bits, or complex numbers of them.
fn has_wide_floats(dtype: DType) -> bool {
    let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat | DTypeKind::Complex);
    is_float || matches!(dtype.small_number(), Some(SmallNumber::ComplexFloat16 | SmallNumber::ComplexBFloat16))
}

pub(crate) fn require_dtype(what: &str, got: DType, expected: DType) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} is in {got}, expected {expected}")))
}
