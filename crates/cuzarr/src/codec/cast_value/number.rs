//! The exact values of elements of all types, and their rounding.

use cuzarr_device::internal::convert::Rounding;
use cuzarr_device::internal::cpu::cast::cast;
use cuzarr_device::{DType, DTypeKind};

use crate::codec::elements::{is_float, typed};

/// The exact value of an element of any integer or float type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
}

/// Casts one element between two types, each of at most 8 bytes.
fn convert(from: DType, to: DType, source: &[u8]) -> [u8; 8] {
    let mut target = [0; 8];
    // Only integers and floats come here, which all convert.
    let _ = cast(from, to, source, &mut target[..to.size_bytes()]);
    target
}

impl Number {
    /// Reads the value of an element from its bytes.
    pub(super) fn read(dtype: DType, element: &[u8]) -> Number {
        match (is_float(dtype), dtype.kind()) {
            (true, _) if dtype == DType::FLOAT64 => Number::Float(f64::from_ne_bytes(convert_same(element))),
            (true, _) => Number::Float(f64::from_ne_bytes(convert(dtype, DType::FLOAT64, element))),
            (_, DTypeKind::UInt) => {
                let value =
                    if dtype == DType::UINT64 { convert_same(element) } else { convert(dtype, DType::UINT64, element) };
                Number::Integer(u64::from_ne_bytes(value).into())
            }
            _ => {
                let value =
                    if dtype == DType::INT64 { convert_same(element) } else { convert(dtype, DType::INT64, element) };
                Number::Integer(i64::from_ne_bytes(value).into())
            }
        }
    }

    /// Whether two numbers of one type are equal, where NaN equals NaN. NaN equals NaN, and 0 equals -0.
    pub(super) fn is(self, other: Number) -> bool {
        match (self, other) {
            (Number::Float(a), Number::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
            (a, b) => a == b,
        }
    }
}

fn convert_same(element: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    bytes
}

/// Rounds `value` to a whole number, which may be beyond the range of all integer types.
pub(super) fn round_to_integer(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven => value.round_ties_even(),
        Rounding::TowardsZero => value.trunc(),
        Rounding::TowardsPositive => value.ceil(),
        Rounding::TowardsNegative => value.floor(),
        Rounding::NearestAway => value.round(),
    }
}

/// Smallest and largest value of an integer type.
pub(super) fn integer_range(dtype: DType) -> (i128, i128) {
    let bits = dtype.size_bytes() as u32 * 8;
    match dtype.kind() {
        DTypeKind::UInt => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// The bits of a float type's mantissa, hidden bit included, and the exponent of the first power of two beyond its
/// range.
fn float_format(dtype: DType) -> (u32, i32) {
    match dtype {
        DType::FLOAT16 => (11, 16),
        DType::BFLOAT16 => (8, 128),
        DType::FLOAT32 => (24, 128),
        _ => (53, 1024),
    }
}

/// Rounds `number` to the nearest value of the float type `dtype`, by `rounding`. A finite number that is out of range
/// becomes an infinity. The result is an `f64`, which holds every value of the narrower types.
pub(super) fn round_to_float(number: Number, dtype: DType, rounding: Rounding) -> f64 {
    match number {
        Number::Float(value) if !value.is_finite() || value == 0.0 => value,
        Number::Float(value) => {
            let (mantissa, beyond) = float_format(dtype);
            if value.abs() >= 2f64.powi(beyond) {
                return f64::INFINITY.copysign(value);
            }
            // The exponent of the distance between neighbouring floats. If that distance is scaled to 1, values round
            // like integers. Both scalings are exact.
            let exponent = exponent_of(value).max(smallest_exponent(dtype)) - (mantissa as i32 - 1);
            let scaled = scale_by(value, -exponent);
            let rounded = scale_by(round_to_integer(scaled, rounding), exponent).copysign(value);
            overflow(rounded, dtype)
        }
        Number::Integer(value) => {
            let (mantissa, _) = float_format(dtype);
            let magnitude = value.unsigned_abs();
            let extra = (128 - magnitude.leading_zeros()).saturating_sub(mantissa);
            let low = magnitude & ((1 << extra) - 1);
            let kept = magnitude >> extra;
            let half = if extra == 0 { 0 } else { 1u128 << (extra - 1) };
            let up = low != 0
                && match rounding {
                    Rounding::NearestEven => low > half || (low == half && kept & 1 == 1),
                    Rounding::NearestAway => low >= half,
                    Rounding::TowardsZero => false,
                    Rounding::TowardsPositive => value > 0,
                    Rounding::TowardsNegative => value < 0,
                };
            let rounded = (kept + u128::from(up)) as f64 * 2f64.powi(extra as i32);
            overflow(if value < 0 { -rounded } else { rounded }, dtype)
        }
    }
}

fn overflow(rounded: f64, dtype: DType) -> f64 {
    let (_, beyond) = float_format(dtype);
    match beyond < 1024 && rounded.abs() >= 2f64.powi(beyond) {
        true => f64::INFINITY.copysign(rounded),
        false => rounded,
    }
}

/// The exponent of a finite number that is not zero: that of the power of two at or below its magnitude.
fn exponent_of(value: f64) -> i32 {
    let biased = (value.to_bits() >> 52 & 0x7ff) as i32;
    match biased {
        0 => exponent_of(value * 2f64.powi(60)) - 60,
        biased => biased - 1023,
    }
}

/// The exponent of the smallest normal number of a float type.
fn smallest_exponent(dtype: DType) -> i32 {
    2 - float_format(dtype).1
}

/// Computes `value · 2^power`, for any power that occurs, by two exact multiplications.
fn scale_by(value: f64, power: i32) -> f64 {
    let half = power / 2;
    value * 2f64.powi(half) * 2f64.powi(power - half)
}

/// Writes the bytes of a float of `dtype` that holds `value` exactly.
pub(super) fn write_float(value: f64, dtype: DType, element: &mut [u8]) {
    let bytes = if dtype == DType::FLOAT64 {
        value.to_ne_bytes()
    } else {
        convert(DType::FLOAT64, dtype, &value.to_ne_bytes())
    };
    element.copy_from_slice(&bytes[..element.len()]);
}

/// Writes an integer to the bytes of an element, without its upper bits.
pub(super) fn write_integer(value: i128, dtype: DType, element: &mut [u8]) {
    typed!(dtype, T => element.copy_from_slice(&(value as T).to_ne_bytes()), {});
}
