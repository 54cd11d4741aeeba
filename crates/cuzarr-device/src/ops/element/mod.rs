//! Element types for computations on the host: their values in memory, parts of complex numbers, and conversions.

pub(crate) mod arithmetic;
pub(crate) mod narrow;

use crate::array::dtype::{DType, DTypeKind};
use crate::ops::element::arithmetic::{Arithmetic, Compute};

/// A Rust type for the values of one element type, in computations on the host.
pub(crate) trait Element: Compute {
    /// Reads an element from its bytes in memory. `bytes` must have its exact size.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the element to its bytes in memory. `bytes` must have its exact size.
    fn write(self, bytes: &mut [u8]);
    /// Size of an element in bytes.
    const SIZE: usize;
    /// The type of a complex number's parts; for other elements, the type itself.
    type Part: Real;
    /// Returns the element's real and imaginary part.
    fn parts(self) -> (Self::Part, Self::Part);
    /// Converts a complex number to the nearest element of this type.
    fn from_parts<P: Real>(parts: (P, P)) -> Self;
}

/// A number type that is not complex, with its conversions to all other types.
pub(crate) trait Real: Copy {
    const ZERO: Self;
    fn is_nonzero(self) -> bool;
    fn to_i8(self) -> i8;
    fn to_i16(self) -> i16;
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    fn to_u8(self) -> u8;
    fn to_u16(self) -> u16;
    fn to_u32(self) -> u32;
    fn to_u64(self) -> u64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn to_half(self) -> u16 {
        narrow::half_from_f32(self.to_f32())
    }
    fn to_bfloat(self) -> u16 {
        narrow::bfloat_from_f32(self.to_f32())
    }
}

/// A bool: one byte that is 0 or 1. Other values count as 1.
#[derive(Clone, Copy)]
pub(crate) struct Bool(u8);
/// A binary16, as its bits.
#[derive(Clone, Copy)]
pub(crate) struct Half(pub(crate) u16);
/// A bfloat16, as its bits.
#[derive(Clone, Copy)]
pub(crate) struct BFloat(pub(crate) u16);
/// A complex number: its real and its imaginary part.
#[derive(Clone, Copy)]
pub(crate) struct Complex<T>(T, T);

macro_rules! real_integers {
    ($($name:ty)*) => {$(
        impl Real for $name {
            const ZERO: Self = 0;
            fn is_nonzero(self) -> bool { self != 0 }
            fn to_i8(self) -> i8 { self as i8 }
            fn to_i16(self) -> i16 { self as i16 }
            fn to_i32(self) -> i32 { self as i32 }
            fn to_i64(self) -> i64 { self as i64 }
            fn to_u8(self) -> u8 { self as u8 }
            fn to_u16(self) -> u16 { self as u16 }
            fn to_u32(self) -> u32 { self as u32 }
            fn to_u64(self) -> u64 { self as u64 }
            fn to_f32(self) -> f32 { self as f32 }
            fn to_f64(self) -> f64 { self as f64 }
        }
    )*};
}

real_integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! real_floats {
    ($($name:ty: $half:expr;)*) => {$(
        impl Real for $name {
            const ZERO: Self = 0.0;
            fn is_nonzero(self) -> bool { self != 0.0 }
            fn to_i8(self) -> i8 { self.to_i32() as i8 }
            fn to_i16(self) -> i16 { self.to_i32() as i16 }
            // `as` saturates and converts NaN to 0. The processor's instruction gives the least integer for NaN and for
            // values out of range, so only the upper end and NaN need a special case.
            fn to_i32(self) -> i32 { if self < 2_147_483_648.0 { self as i32 } else { i32::MIN } }
            fn to_i64(self) -> i64 { if self < 9_223_372_036_854_775_808.0 { self as i64 } else { i64::MIN } }
            fn to_u8(self) -> u8 { self.to_i32() as u8 }
            fn to_u16(self) -> u16 { self.to_i32() as u16 }
            fn to_u32(self) -> u32 { self.to_i64() as u32 }
            fn to_u64(self) -> u64 {
                const TOP: $name = 9_223_372_036_854_775_808.0;
                if self >= TOP { (self - TOP).to_i64() as u64 ^ (1 << 63) } else { self.to_i64() as u64 }
            }
            fn to_f32(self) -> f32 { self as f32 }
            fn to_f64(self) -> f64 { self as f64 }
            fn to_half(self) -> u16 { $half(self) }
        }
    )*};
}

real_floats! {
    f32: narrow::half_from_f32;
    f64: narrow::half_from_f64;
}

macro_rules! real_by_way_of {
    ($($name:ident: $way:expr, $double:expr, $half:expr;)*) => {$(
        impl Real for $name {
            const ZERO: Self = $name(0);
            fn is_nonzero(self) -> bool { $way(self).is_nonzero() }
            fn to_i8(self) -> i8 { $way(self).to_i8() }
            fn to_i16(self) -> i16 { $way(self).to_i16() }
            fn to_i32(self) -> i32 { $way(self).to_i32() }
            fn to_i64(self) -> i64 { $way(self).to_i64() }
            fn to_u8(self) -> u8 { $way(self).to_u8() }
            fn to_u16(self) -> u16 { $way(self).to_u16() }
            fn to_u32(self) -> u32 { $way(self).to_u32() }
            fn to_u64(self) -> u64 { $way(self).to_u64() }
            fn to_f32(self) -> f32 { $way(self).to_f32() }
            fn to_f64(self) -> f64 { $double(self) }
            fn to_half(self) -> u16 { $half(self) }
        }
    )*};
}

real_by_way_of! {
    Bool: |value: Bool| u8::from(value.0 != 0),
        |value: Bool| f64::from(value.0 != 0),
        |value: Bool| narrow::half_from_f32(f32::from(value.0 != 0));
    // NumPy widens the bits of a signalling NaN, and it remains signalling.
    Half: |value: Half| narrow::f32_from_half(value.0),
        |value: Half| narrow::f64_from_half(value.0),
        |value: Half| value.0;
    // ml_dtypes drops the payload of a NaN.
    BFloat: |value: BFloat| narrow::f32_from_bfloat(value.0),
        |value: BFloat| f64::from(narrow::f32_from_bfloat(value.0)),
        |value: BFloat| match narrow::f32_from_bfloat(value.0) {
            wide if wide.is_nan() => value.0 & 0x8000 | 0x7e00,
            wide => narrow::half_from_f32(wide),
        };
}

macro_rules! real_elements {
    ($($name:ty: $bits:ty, $value:pat => $to_bits:expr, $from_bits:expr, $convert:expr;)*) => {$(
        impl Element for $name {
            const SIZE: usize = size_of::<$bits>();
            type Part = Self;
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$bits>()];
                own.copy_from_slice(bytes);
                $from_bits(<$bits>::from_ne_bytes(own))
            }
            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                let $value = self;
                bytes.copy_from_slice(&$to_bits.to_ne_bytes());
            }
            #[inline(always)]
            fn parts(self) -> (Self, Self) {
                (self, Self::ZERO)
            }
            #[inline(always)]
            fn from_parts<P: Real>(parts: (P, P)) -> Self {
                $convert(parts)
            }
        }
    )*};
}

real_elements! {
    Bool: u8, Bool(value) => value, Bool, |parts: (P, P)| Bool(u8::from(parts.0.is_nonzero() || parts.1.is_nonzero()));
    i8: i8, value => value, i8::from, |parts: (P, P)| parts.0.to_i8();
    i16: i16, value => value, i16::from, |parts: (P, P)| parts.0.to_i16();
    i32: i32, value => value, i32::from, |parts: (P, P)| parts.0.to_i32();
    i64: i64, value => value, i64::from, |parts: (P, P)| parts.0.to_i64();
    u8: u8, value => value, u8::from, |parts: (P, P)| parts.0.to_u8();
    u16: u16, value => value, u16::from, |parts: (P, P)| parts.0.to_u16();
    u32: u32, value => value, u32::from, |parts: (P, P)| parts.0.to_u32();
    u64: u64, value => value, u64::from, |parts: (P, P)| parts.0.to_u64();
    f32: f32, value => value, f32::from, |parts: (P, P)| parts.0.to_f32();
    f64: f64, value => value, f64::from, |parts: (P, P)| parts.0.to_f64();
    Half: u16, Half(value) => value, Half, |parts: (P, P)| Half(parts.0.to_half());
    BFloat: u16, BFloat(value) => value, BFloat, |parts: (P, P)| BFloat(parts.0.to_bfloat());
}

macro_rules! complex_elements {
    ($($part:ty: $convert:ident;)*) => {$(
        impl Element for Complex<$part> {
            const SIZE: usize = 2 * size_of::<$part>();
            type Part = $part;
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let (real, imaginary) = bytes.split_at(size_of::<$part>());
                Complex(<$part>::read(real), <$part>::read(imaginary))
            }
            #[inline(always)]
            fn write(self, bytes: &mut [u8]) {
                let (real, imaginary) = bytes.split_at_mut(size_of::<$part>());
                self.0.write(real);
                self.1.write(imaginary);
            }
            #[inline(always)]
            fn parts(self) -> ($part, $part) {
                (self.0, self.1)
            }
            #[inline(always)]
            fn from_parts<P: Real>(parts: (P, P)) -> Self {
                Complex(parts.0.$convert(), parts.1.$convert())
            }
        }
    )*};
}

complex_elements! {
    f32: to_f32;
    f64: to_f64;
}

/// A generic function that `with_type` calls with the Rust type of a dtype.
pub(crate) trait WithType {
    type Output;
    fn run<T: Element>(self) -> Self::Output;
}

/// Calls `action` with the Rust type of `dtype`; `None` for opaque bytes and for sizes that do not exist.
pub(crate) fn with_type<A: WithType>(dtype: DType, action: A) -> Option<A::Output> {
    Some(match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Bool, 1) => action.run::<Bool>(),
        (DTypeKind::Int, 1) => action.run::<i8>(),
        (DTypeKind::Int, 2) => action.run::<i16>(),
        (DTypeKind::Int, 4) => action.run::<i32>(),
        (DTypeKind::Int, 8) => action.run::<i64>(),
        (DTypeKind::UInt, 1) => action.run::<u8>(),
        (DTypeKind::UInt, 2) => action.run::<u16>(),
        (DTypeKind::UInt, 4) => action.run::<u32>(),
        (DTypeKind::UInt, 8) => action.run::<u64>(),
        (DTypeKind::Float, 2) => action.run::<Half>(),
        (DTypeKind::Float, 4) => action.run::<f32>(),
        (DTypeKind::Float, 8) => action.run::<f64>(),
        (DTypeKind::BFloat, 2) => action.run::<BFloat>(),
        (DTypeKind::Complex, 8) => action.run::<Complex<f32>>(),
        (DTypeKind::Complex, 16) => action.run::<Complex<f64>>(),
        _ => return None,
    })
}

impl Compute for Half {
    #[inline(always)]
    fn compute(self, operation: Arithmetic, operand: Self) -> Self {
        let wide = narrow::f32_from_half(self.0).compute(operation, narrow::f32_from_half(operand.0));
        Half(narrow::half_from_f32(wide))
    }
}

impl Compute for BFloat {
    #[inline(always)]
    fn compute(self, operation: Arithmetic, operand: Self) -> Self {
        let wide = narrow::f32_from_bfloat(self.0).compute(operation, narrow::f32_from_bfloat(operand.0));
        BFloat(narrow::bfloat_from_f32(wide))
    }
}

impl Compute for Bool {
    fn compute(self, _operation: Arithmetic, _operand: Self) -> Self {
        self
    }
}

impl<T: Copy> Compute for Complex<T> {
    fn compute(self, _operation: Arithmetic, _operand: Self) -> Self {
        self
    }
}
