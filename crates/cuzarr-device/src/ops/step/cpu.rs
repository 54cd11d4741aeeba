//! The steps of a tail on packed host elements.

use crate::array::dtype::DType;
use crate::ops::cast::narrow;
use crate::ops::cast::{BFloat, Bool, Complex, Element, Half, WithType, cast, with_type};
use crate::ops::shuffle::cpu as shuffle;
use crate::ops::step::bits;
use crate::ops::transfer::{Arithmetic, ElementStep};

/// Steps that have been checked, and the memory for running them on one tile of elements.
pub(crate) struct Steps<'a> {
    steps: &'a [ElementStep],
    from: DType,
    to: DType,
}

impl<'a> Steps<'a> {
    /// `steps` take elements of `from` to `to`; [`crate::Tail::check`] or its like has said so.
    pub(crate) fn new(steps: &'a [ElementStep], from: DType, to: DType) -> Self {
        Steps { steps, from, to }
    }

    /// Whether elements stay as they are.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether no step changes the type, so that all can be done without a second memory.
    pub(crate) fn are_in_place(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, ElementStep::Cast { .. }))
    }

    /// Bytes of the widest element on the way, at least 1.
    pub(crate) fn widest_bytes(&self) -> usize {
        let after = |step: &ElementStep| match step {
            ElementStep::Cast { to, .. } => to.size_bytes(),
            _ => 0,
        };
        self.steps.iter().map(after).fold(self.from.size_bytes().max(self.to.size_bytes()).max(1), usize::max)
    }

    /// Takes `count` packed elements in `first` through the steps. The result is in whichever scratch is returned.
    pub(crate) fn run<'b>(&self, mut first: &'b mut [u8], mut second: &'b mut [u8], count: usize) -> &'b mut [u8] {
        let mut current = self.from;
        for step in self.steps {
            let bytes = &mut first[..count * current.size_bytes()];
            match *step {
                ElementStep::SwapBytes { unit_bytes } => shuffle::swap_bytes(bytes, unit_bytes),
                ElementStep::Arithmetic { operation, dtype, operand } => {
                    with_type(dtype, ComputeAll { operation, operand, bytes });
                }
                ElementStep::RoundBits { dtype, dropped_bits } => {
                    bits::round_bits(bytes, dtype.size_bytes(), dropped_bits);
                }
                ElementStep::Cast { from, to } => {
                    let converted = cast(from, to, bytes, &mut second[..count * to.size_bytes()]);
                    debug_assert!(converted.is_ok(), "steps were checked");
                    std::mem::swap(&mut first, &mut second);
                    current = to;
                }
            }
        }
        first
    }
}

struct ComputeAll<'a> {
    operation: Arithmetic,
    operand: [u8; 8],
    bytes: &'a mut [u8],
}

impl WithType for ComputeAll<'_> {
    type Output = ();

    fn run<T: Element>(self) {
        // Only complex numbers are wider than the operand.
        let Some(operand) = self.operand.get(..T::SIZE) else { return };
        let operand = T::read(operand);
        for bytes in self.bytes.chunks_exact_mut(T::SIZE) {
            T::read(bytes).compute(self.operation, operand).write(bytes);
        }
    }
}

/// Arithmetic of one type with itself. Bool and complex numbers have none and stay as they are: `Tail::check` refuses
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
