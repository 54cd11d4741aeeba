//! Arithmetic of one element type with itself.

/// One step of arithmetic, done in the element type that is current at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// `x + operand`; integers wrap.
    Add,
    /// `x - operand`; integers wrap.
    Subtract,
    /// `x * operand`; integers wrap.
    Multiply,
    /// `x / operand`; for integers the quotient is truncated toward zero, and by zero is zero.
    Divide,
    /// `round_half_even(x)`; the operand is not used. Integers stay as they are.
    Round,
}

/// The arithmetic of a type. Bool and complex numbers have none and stay as they are: `Tail::check` refuses
/// such steps.
pub(crate) trait Compute: Copy {
    fn compute(self, operation: Arithmetic, operand: Self) -> Self;
}

macro_rules! compute_integers {
    ($($name:ty)*) => {$(
        impl Compute for $name {
            #[inline(always)]
            fn compute(self, operation: Arithmetic, operand: Self) -> Self {
                match operation {
                    Arithmetic::Add => self.wrapping_add(operand),
                    Arithmetic::Subtract => self.wrapping_sub(operand),
                    Arithmetic::Multiply => self.wrapping_mul(operand),
                    Arithmetic::Divide if operand == 0 => 0,
                    Arithmetic::Divide => self.wrapping_div(operand),
                    Arithmetic::Round => self,
                }
            }
        }
    )*};
}

compute_integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! compute_floats {
    ($($name:ty)*) => {$(
        impl Compute for $name {
            #[inline(always)]
            fn compute(self, operation: Arithmetic, operand: Self) -> Self {
                match operation {
                    Arithmetic::Add => self + operand,
                    Arithmetic::Subtract => self - operand,
                    Arithmetic::Multiply => self * operand,
                    Arithmetic::Divide => self / operand,
                    // Which bits a rounded NaN has is left open; an addition quietens it, as NumPy's `rint` does.
                    Arithmetic::Round if self.is_nan() => self + self,
                    Arithmetic::Round => self.round_ties_even(),
                }
            }
        }
    )*};
}

compute_floats! { f32 f64 }
