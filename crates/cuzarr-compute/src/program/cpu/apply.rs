//! Applies one operation to one block of elements on the CPU, with NumPy's results.
//!
//! If C's version of a binary32 function may be off by more than an ulp, the function is computed in binary64 and
//! rounded. Sines and cosines of binary32 are computed in vectors. `program/arithmetic.cuh` has the same functions for the GPU.

use cuzarr_device::DType;
use cuzarr_device::internal::cpu::math;

use super::lanes::{Complex, Lane, map1, map2};
use crate::expression::Op;

/// Whether [`apply`] succeeded, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// An integer was raised to a negative power.
    NegativePower,
    /// The operation does not exist for the element types that the caller passed.
    Unknown,
}

/// Applies `op` to operands of the given types, and writes the result to `out`.
pub(super) fn apply(op: Op, operands: &[(DType, &[u8])], out: &mut [u8]) -> Outcome {
    if let (Op::Where, [(_, condition), (dtype, yes), (_, no)]) = (op, operands) {
        choose(condition, yes, no, dtype.size_bytes(), out);
        return Outcome::Done;
    }
    let (dtype, a) = operands[0];
    let b = operands.get(1).map_or(&[][..], |operand| operand.1);
    match (dtype, operands.get(1).map(|operand| operand.0)) {
        (DType::INT64, Some(DType::UINT64)) => {
            return compare(op, a, b, out, |a: i64, b: u64| i128::from(a).cmp(&i128::from(b)));
        }
        (DType::UINT64, Some(DType::INT64)) => {
            return compare(op, a, b, out, |a: u64, b: i64| i128::from(a).cmp(&i128::from(b)));
        }
        _ => {}
    }
    match (op, dtype) {
        (Op::Sin, DType::FLOAT32) => math::sines(a.as_chunks().0, out.as_chunks_mut().0),
        (Op::Cos, DType::FLOAT32) => math::cosines(a.as_chunks().0, out.as_chunks_mut().0),
        _ => return apply_alike(op, dtype, a, b, out),
    }
    Outcome::Done
}

/// Applies `op` to operands of one type.
fn apply_alike(op: Op, dtype: DType, a: &[u8], b: &[u8], out: &mut [u8]) -> Outcome {
    match dtype {
        DType::BOOL => logic(op, a, b, out),
        DType::INT8 => whole::<i8>(op, a, b, out),
        DType::INT16 => whole::<i16>(op, a, b, out),
        DType::INT32 => whole::<i32>(op, a, b, out),
        DType::INT64 => whole::<i64>(op, a, b, out),
        DType::UINT8 => whole::<u8>(op, a, b, out),
        DType::UINT16 => whole::<u16>(op, a, b, out),
        DType::UINT32 => whole::<u32>(op, a, b, out),
        DType::UINT64 => whole::<u64>(op, a, b, out),
        DType::FLOAT32 => real::<f32>(op, a, b, out),
        DType::FLOAT64 => real::<f64>(op, a, b, out),
        DType::COMPLEX64 => complex::<f32>(op, a, b, out),
        DType::COMPLEX128 => complex::<f64>(op, a, b, out),
        _ => Outcome::Unknown,
    }
}

fn choose(condition: &[u8], yes: &[u8], no: &[u8], size: usize, out: &mut [u8]) {
    let choices = yes.chunks_exact(size).zip(no.chunks_exact(size));
    for ((condition, (yes, no)), out) in condition.iter().zip(choices).zip(out.chunks_exact_mut(size)) {
        out.copy_from_slice(if *condition != 0 { yes } else { no });
    }
}

fn compare<A: Lane, B: Lane>(
    op: Op,
    a: &[u8],
    b: &[u8],
    out: &mut [u8],
    order: impl Fn(A, B) -> std::cmp::Ordering,
) -> Outcome {
    match op {
        Op::Equal => map2(a, b, out, |a: A, b: B| order(a, b).is_eq()),
        Op::NotEqual => map2(a, b, out, |a: A, b: B| order(a, b).is_ne()),
        Op::Less => map2(a, b, out, |a: A, b: B| order(a, b).is_lt()),
        Op::LessEqual => map2(a, b, out, |a: A, b: B| order(a, b).is_le()),
        Op::Greater => map2(a, b, out, |a: A, b: B| order(a, b).is_gt()),
        Op::GreaterEqual => map2(a, b, out, |a: A, b: B| order(a, b).is_ge()),
        _ => return Outcome::Unknown,
    }
    Outcome::Done
}

fn logic(op: Op, a: &[u8], b: &[u8], out: &mut [u8]) -> Outcome {
    type B = bool;
    match op {
        Op::Add | Op::LogicalOr | Op::BitwiseOr | Op::Maximum | Op::Fmax => map2(a, b, out, |a: B, b: B| a | b),
        Op::Multiply | Op::LogicalAnd | Op::BitwiseAnd | Op::Minimum | Op::Fmin => map2(a, b, out, |a: B, b: B| a & b),
        Op::LogicalXor | Op::BitwiseXor | Op::NotEqual => map2(a, b, out, |a: B, b: B| a ^ b),
        Op::Equal => map2(a, b, out, |a: B, b: B| a == b),
        Op::Less => map2(a, b, out, |a: B, b: B| !a & b),
        Op::LessEqual => map2(a, b, out, |a: B, b: B| !a | b),
        Op::Greater => map2(a, b, out, |a: B, b: B| a & !b),
        Op::GreaterEqual => map2(a, b, out, |a: B, b: B| a | !b),
        Op::LogicalNot | Op::Invert => map1(a, out, |a: B| !a),
        Op::Absolute | Op::RealPart | Op::Floor | Op::Ceil | Op::Trunc => map1(a, out, |a: B| a),
        Op::ImaginaryPart | Op::IsNan | Op::IsInf => map1(a, out, |_: B| false),
        Op::IsFinite => map1(a, out, |_: B| true),
        _ => return Outcome::Unknown,
    }
    Outcome::Done
}

trait Whole: Lane + Ord {
    const ZERO: Self;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn floor_divide(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
    fn fmod(self, other: Self) -> Self;
    fn power(self, exponent: Self) -> Self;
    fn negative(self) -> Self;
    fn absolute(self) -> Self;
    fn sign(self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn invert(self) -> Self;
    fn left_shift(self, by: Self) -> Self;
    fn right_shift(self, by: Self) -> Self;
}

macro_rules! whole_numbers {
    ($($name:ident $absolute:expr, $sign:expr, $floor_divide:expr, $remainder:expr;)*) => {$(
        impl Whole for $name {
            const ZERO: Self = 0;
            #[inline(always)] fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)] fn subtract(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)] fn multiply(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)] fn floor_divide(self, other: Self) -> Self {
                if other == 0 { 0 } else { $floor_divide(self, other) }
            }
            #[inline(always)] fn remainder(self, other: Self) -> Self {
                if other == 0 { 0 } else { $remainder(self, other) }
            }
            #[inline(always)] fn fmod(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)] fn power(self, exponent: Self) -> Self {
                let (mut base, mut left, mut product) = (self, exponent, 1 as Self);
                while left > 0 {
                    if left & 1 == 1 { product = product.wrapping_mul(base) }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                product
            }
            #[inline(always)] fn negative(self) -> Self { self.wrapping_neg() }
            #[inline(always)] fn absolute(self) -> Self { $absolute(self) }
            #[inline(always)] fn sign(self) -> Self { $sign(self) }
            #[inline(always)] fn and(self, other: Self) -> Self { self & other }
            #[inline(always)] fn or(self, other: Self) -> Self { self | other }
            #[inline(always)] fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)] fn invert(self) -> Self { !self }
            #[inline(always)] fn left_shift(self, by: Self) -> Self {
                if (0..Self::BITS as Self).contains(&by) { self << by } else { 0 }
            }
            #[inline(always)] fn right_shift(self, by: Self) -> Self {
                if (0..Self::BITS as Self).contains(&by) { self >> by } else if self < 0 as Self { !0 } else { 0 }
            }
        }
    )*};
    (signed $($name:ident)*) => {whole_numbers! {$(
        $name $name::wrapping_abs, $name::signum, |a: $name, b: $name| {
            let quotient = a.wrapping_div(b);
            if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
        }, |a: $name, b: $name| {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        };
    )*}};
    (unsigned $($name:ident)*) => {whole_numbers! {$(
        $name |a| a, |a| $name::from(a != 0), |a: $name, b: $name| a / b, |a: $name, b: $name| a % b;
    )*}};
}

whole_numbers! { signed i8 i16 i32 i64 }
whole_numbers! { unsigned u8 u16 u32 u64 }

fn whole<T: Whole>(op: Op, a: &[u8], b: &[u8], out: &mut [u8]) -> Outcome {
    match op {
        Op::Add => map2(a, b, out, T::add),
        Op::Subtract => map2(a, b, out, T::subtract),
        Op::Multiply => map2(a, b, out, T::multiply),
        Op::FloorDivide => map2(a, b, out, T::floor_divide),
        Op::Remainder => map2(a, b, out, T::remainder),
        Op::Fmod => map2(a, b, out, T::fmod),
        Op::Power => {
            if b.chunks_exact(T::SIZE).any(|b| T::get(b) < T::ZERO) {
                return Outcome::NegativePower;
            }
            map2(a, b, out, T::power);
        }
        Op::Minimum | Op::Fmin => map2(a, b, out, |a: T, b: T| if a <= b { a } else { b }),
        Op::Maximum | Op::Fmax => map2(a, b, out, |a: T, b: T| if a >= b { a } else { b }),
        Op::BitwiseAnd => map2(a, b, out, T::and),
        Op::BitwiseOr => map2(a, b, out, T::or),
        Op::BitwiseXor => map2(a, b, out, T::xor),
        Op::LeftShift => map2(a, b, out, T::left_shift),
        Op::RightShift => map2(a, b, out, T::right_shift),
        Op::Negative => map1(a, out, T::negative),
        Op::Absolute => map1(a, out, T::absolute),
        Op::Sign => map1(a, out, T::sign),
        Op::Square => map1(a, out, |a: T| a.multiply(a)),
        Op::Invert => map1(a, out, T::invert),
        Op::Conjugate | Op::RealPart | Op::Floor | Op::Ceil | Op::Trunc => map1(a, out, |a: T| a),
        Op::ImaginaryPart => map1(a, out, |_: T| T::ZERO),
        Op::IsNan | Op::IsInf => map1(a, out, |_: T| false),
        Op::IsFinite => map1(a, out, |_: T| true),
        _ => return compare(op, a, b, out, |a: T, b: T| a.cmp(&b)),
    }
    Outcome::Done
}

trait Real: Lane + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn divide(self, other: Self) -> Self;
    /// Divides this number by `other`, and returns the remainder for a quotient that is rounded towards 0, without
    /// rounding errors.
    fn fmod(self, other: Self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn absolute(self) -> Self;
    fn negative(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn rint(self) -> Self;
    fn sqrt(self) -> Self;
    fn is_finite(self) -> bool;
    fn is_negative(self) -> bool;
    /// Returns the function that computes an operation with one operand; `None` if this type does not have it.
    fn function(op: Op) -> Option<fn(Self) -> Self>;
    /// Returns the function that computes an operation with two operands; `None` if this type does not have it.
    fn function2(op: Op) -> Option<fn(Self, Self) -> Self>;
    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
    /// Divides this number by `other`, and returns the quotient, rounded down, and the remainder. `other` must not be
    /// 0.
    #[inline(always)]
    fn divmod(self, other: Self) -> (Self, Self) {
        let mut rest = self.fmod(other);
        let mut quotient = self.subtract(rest).divide(other);
        if rest != Self::ZERO {
            if (other < Self::ZERO) != (rest < Self::ZERO) {
                rest = rest.add(other);
                quotient = quotient.subtract(Self::ONE);
            }
        } else {
            rest = Self::ZERO.copysign(other);
        }
        let whole = if quotient != Self::ZERO {
            let down = quotient.floor();
            let half = Self::ONE.divide(Self::ONE.add(Self::ONE));
            if quotient.subtract(down) > half { down.add(Self::ONE) } else { down }
        } else {
            Self::ZERO.copysign(self.divide(other))
        };
        (whole, rest)
    }
    #[inline(always)]
    fn floor_divide(self, other: Self) -> Self {
        if other == Self::ZERO { self.divide(other) } else { self.divmod(other).0 }
    }
    #[inline(always)]
    fn remainder(self, other: Self) -> Self {
        if other == Self::ZERO { self.fmod(other) } else { self.divmod(other).1 }
    }
    #[inline(always)]
    fn sign(self) -> Self {
        if self > Self::ZERO {
            Self::ONE
        } else if self < Self::ZERO {
            Self::ONE.negative()
        } else if self == Self::ZERO {
            Self::ZERO
        } else {
            self
        }
    }
}

macro_rules! real_basics {
    ($name:ident) => {
        const ZERO: Self = 0.0;
        const ONE: Self = 1.0;
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            self + other
        }
        #[inline(always)]
        fn subtract(self, other: Self) -> Self {
            self - other
        }
        #[inline(always)]
        fn multiply(self, other: Self) -> Self {
            self * other
        }
        #[inline(always)]
        fn divide(self, other: Self) -> Self {
            self / other
        }
        #[inline(always)]
        fn fmod(self, other: Self) -> Self {
            self % other
        }
        #[inline(always)]
        fn copysign(self, sign: Self) -> Self {
            self.copysign(sign)
        }
        #[inline(always)]
        fn absolute(self) -> Self {
            self.abs()
        }
        #[inline(always)]
        fn negative(self) -> Self {
            -self
        }
        #[inline(always)]
        fn floor(self) -> Self {
            self.floor()
        }
        #[inline(always)]
        fn ceil(self) -> Self {
            self.ceil()
        }
        #[inline(always)]
        fn trunc(self) -> Self {
            self.trunc()
        }
        #[inline(always)]
        fn rint(self) -> Self {
            self.round_ties_even()
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            self.sqrt()
        }
        #[inline(always)]
        fn is_finite(self) -> bool {
            self.is_finite()
        }
        #[inline(always)]
        fn is_negative(self) -> bool {
            self.is_sign_negative()
        }
    };
}

impl Real for f64 {
    real_basics! { f64 }

    fn function(op: Op) -> Option<fn(f64) -> f64> {
        Some(match op {
            Op::Cbrt => f64::cbrt,
            Op::Exp => f64::exp,
            Op::Exp2 => f64::exp2,
            Op::Expm1 => f64::exp_m1,
            Op::Log => f64::ln,
            Op::Log2 => f64::log2,
            Op::Log10 => f64::log10,
            Op::Log1p => f64::ln_1p,
            Op::Sin => f64::sin,
            Op::Cos => f64::cos,
            Op::Tan => f64::tan,
            Op::Arcsin => f64::asin,
            Op::Arccos => f64::acos,
            Op::Arctan => f64::atan,
            Op::Sinh => f64::sinh,
            Op::Cosh => f64::cosh,
            Op::Tanh => f64::tanh,
            Op::Arcsinh => math::asinh,
            Op::Arccosh => math::acosh,
            Op::Arctanh => math::atanh,
            _ => return None,
        })
    }

    fn function2(op: Op) -> Option<fn(f64, f64) -> f64> {
        Some(match op {
            Op::Power => f64::powf,
            Op::Arctan2 => f64::atan2,
            Op::Hypot => f64::hypot,
            _ => return None,
        })
    }
}

macro_rules! in_double {
    ($($op:ident)*; $($op2:ident)*; $asked:expr) => {
        match $asked {
            $(Op::$op => {
                fn one(x: f32) -> f32 {
                    // Binary64 has every operation of this macro.
                    <f64 as Real>::function(Op::$op).map_or(f32::NAN, |f| f(f64::from(x)) as f32)
                }
                Some(one as fn(f32) -> f32)
            })*
            _ => None,
        }
    };
}

impl Real for f32 {
    real_basics! { f32 }

    fn function(op: Op) -> Option<fn(f32) -> f32> {
        match op {
            Op::Exp => Some(f32::exp),
            Op::Exp2 => Some(f32::exp2),
            Op::Log => Some(f32::ln),
            Op::Log2 => Some(f32::log2),
            other => in_double! {
                Cbrt Expm1 Log10 Log1p Tan Arcsin Arccos Arctan Sinh Cosh Tanh Arcsinh Arccosh Arctanh;; other
            },
        }
    }

    fn function2(op: Op) -> Option<fn(f32, f32) -> f32> {
        Some(match op {
            Op::Power => f32::powf,
            Op::Arctan2 => |y, x| f64::from(y).atan2(f64::from(x)) as f32,
            Op::Hypot => |x, y| f64::from(x).hypot(f64::from(y)) as f32,
            _ => return None,
        })
    }
}

fn real<T: Real>(op: Op, a: &[u8], b: &[u8], out: &mut [u8]) -> Outcome {
    match op {
        Op::Add => map2(a, b, out, T::add),
        Op::Subtract => map2(a, b, out, T::subtract),
        Op::Multiply => map2(a, b, out, T::multiply),
        Op::Divide => map2(a, b, out, T::divide),
        Op::FloorDivide => map2(a, b, out, T::floor_divide),
        Op::Remainder => map2(a, b, out, T::remainder),
        Op::Fmod => map2(a, b, out, T::fmod),
        Op::Minimum => map2(a, b, out, |a: T, b: T| if a <= b || a.is_nan() { a } else { b }),
        Op::Maximum => map2(a, b, out, |a: T, b: T| if a >= b || a.is_nan() { a } else { b }),
        Op::Fmin => map2(a, b, out, |a: T, b: T| if a <= b || b.is_nan() { a } else { b }),
        Op::Fmax => map2(a, b, out, |a: T, b: T| if a >= b || b.is_nan() { a } else { b }),
        Op::Copysign => map2(a, b, out, T::copysign),
        Op::Equal => map2(a, b, out, |a: T, b: T| a == b),
        Op::NotEqual => map2(a, b, out, |a: T, b: T| a != b),
        Op::Less => map2(a, b, out, |a: T, b: T| a < b),
        Op::LessEqual => map2(a, b, out, |a: T, b: T| a <= b),
        Op::Greater => map2(a, b, out, |a: T, b: T| a > b),
        Op::GreaterEqual => map2(a, b, out, |a: T, b: T| a >= b),
        Op::Negative => map1(a, out, T::negative),
        Op::Absolute => map1(a, out, T::absolute),
        Op::Sign => map1(a, out, T::sign),
        Op::Square => map1(a, out, |a: T| a.multiply(a)),
        Op::Conjugate | Op::RealPart => map1(a, out, |a: T| a),
        Op::ImaginaryPart => map1(a, out, |_: T| T::ZERO),
        Op::Sqrt => map1(a, out, T::sqrt),
        Op::Floor => map1(a, out, T::floor),
        Op::Ceil => map1(a, out, T::ceil),
        Op::Trunc => map1(a, out, T::trunc),
        Op::Rint => map1(a, out, T::rint),
        Op::IsNan => map1(a, out, T::is_nan),
        Op::IsInf => map1(a, out, |a: T| !a.is_finite() && !a.is_nan()),
        Op::IsFinite => map1(a, out, T::is_finite),
        Op::SignBit => map1(a, out, T::is_negative),
        _ => match (T::function(op), T::function2(op)) {
            (Some(function), _) => map1(a, out, function),
            (_, Some(function)) => map2(a, b, out, function),
            _ => return Outcome::Unknown,
        },
    }
    Outcome::Done
}

fn complex<T: Real>(op: Op, a: &[u8], b: &[u8], out: &mut [u8]) -> Outcome {
    type C<T> = Complex<T>;
    match op {
        Op::Add => map2(a, b, out, |a: C<T>, b: C<T>| Complex(a.0.add(b.0), a.1.add(b.1))),
        Op::Subtract => map2(a, b, out, |a: C<T>, b: C<T>| Complex(a.0.subtract(b.0), a.1.subtract(b.1))),
        Op::Multiply => map2(a, b, out, product::<T>),
        Op::Divide => map2(a, b, out, quotient::<T>),
        Op::Equal => map2(a, b, out, |a: C<T>, b: C<T>| a.0 == b.0 && a.1 == b.1),
        Op::NotEqual => map2(a, b, out, |a: C<T>, b: C<T>| a.0 != b.0 || a.1 != b.1),
        Op::Negative => map1(a, out, |a: C<T>| Complex(a.0.negative(), a.1.negative())),
        Op::Conjugate => map1(a, out, |a: C<T>| Complex(a.0, a.1.negative())),
        Op::Square => map1(a, out, |a: C<T>| product(a, a)),
        Op::RealPart => map1(a, out, |a: C<T>| a.0),
        Op::ImaginaryPart => map1(a, out, |a: C<T>| a.1),
        Op::Absolute => {
            let Some(hypot) = T::function2(Op::Hypot) else { return Outcome::Unknown };
            map1(a, out, |a: C<T>| hypot(a.0, a.1));
        }
        Op::IsNan => map1(a, out, |a: C<T>| a.0.is_nan() || a.1.is_nan()),
        Op::IsFinite => map1(a, out, |a: C<T>| a.0.is_finite() && a.1.is_finite()),
        Op::IsInf => {
            let is_infinite = |x: T| !x.is_finite() && !x.is_nan();
            map1(a, out, |a: C<T>| is_infinite(a.0) || is_infinite(a.1));
        }
        _ => return Outcome::Unknown,
    }
    Outcome::Done
}

#[inline(always)]
fn product<T: Real>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let real = a.0.multiply(b.0).subtract(a.1.multiply(b.1));
    Complex(real, a.0.multiply(b.1).add(a.1.multiply(b.0)))
}

/// Divides complex numbers by Smith's algorithm (1962), in NumPy's order of operations.
#[inline(always)]
fn quotient<T: Real>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let (real, imaginary) = (b.0.absolute(), b.1.absolute());
    if real >= imaginary {
        if real == T::ZERO && imaginary == T::ZERO {
            return Complex(a.0.divide(real), a.1.divide(real));
        }
        let ratio = b.1.divide(b.0);
        let scale = T::ONE.divide(b.0.add(b.1.multiply(ratio)));
        let real = a.0.add(a.1.multiply(ratio)).multiply(scale);
        return Complex(real, a.1.subtract(a.0.multiply(ratio)).multiply(scale));
    }
    let ratio = b.0.divide(b.1);
    let scale = T::ONE.divide(b.1.add(b.0.multiply(ratio)));
    let real = a.0.multiply(ratio).add(a.1).multiply(scale);
    Complex(real, a.1.multiply(ratio).subtract(a.0).multiply(scale))
}
