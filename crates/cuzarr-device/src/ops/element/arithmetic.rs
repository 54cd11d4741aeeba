//! Arithmetic with an element and a constant of the same element type, such as `x + operand`.

/// One step of arithmetic, in the element type that is current at that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Computes `x + operand` for each element `x`; integers wrap.
    Add,
    /// Computes `x - operand` for each element `x`; integers wrap.
    Subtract,
    /// Computes `x * operand` for each element `x`; integers wrap.
    Multiply,
    /// Computes `x / operand` for each element `x`. Integer quotients are truncated towards zero; division by zero
    /// gives zero.
    Divide,
    /// Computes `round_half_even(x)` for each element `x`. The operand is not used, and integers are unchanged.
    Round,
}

/// A number type to whose values a step of arithmetic can be applied. Bool and complex numbers stay unchanged:
/// `Tail::check` refuses such steps.
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
                    // Rust leaves the bits of a rounded NaN open. An addition makes the NaN quiet, as NumPy's `rint`
                    // does.
                    Arithmetic::Round if self.is_nan() => self + self,
                    Arithmetic::Round => self.round_ties_even(),
                }
            }
        }
    )*};
}

compute_floats! { f32 f64 }
