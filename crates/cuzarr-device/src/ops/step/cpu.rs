//! Changes packed elements in host memory step by step, for example by casts.

use crate::array::dtype::DType;
use crate::ops::cast::cast;
use crate::ops::element::arithmetic::Arithmetic;
use crate::ops::element::{Element, WithType, with_type};
use crate::ops::shuffle::cpu as shuffle;
use crate::ops::step::ElementStep;
use crate::ops::step::bits;

/// Checked steps that convert elements of one type to another.
pub(crate) struct Steps<'a> {
    steps: &'a [ElementStep],
    from: DType,
    to: DType,
}

impl<'a> Steps<'a> {
    /// Makes a list of steps that [`crate::Tail::check`], or a similar check, accepted for elements of types `from` and
    /// `to`.
    pub(crate) fn new(steps: &'a [ElementStep], from: DType, to: DType) -> Self {
        Steps { steps, from, to }
    }

    /// Whether there are no steps, so that the elements stay unchanged.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether no step changes the element type, so that elements can be changed in place.
    pub(crate) fn are_in_place(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, ElementStep::Cast { .. }))
    }

    /// Size in bytes of the widest type that elements have before, between and after the steps, at least 1.
    pub(crate) fn widest_bytes(&self) -> usize {
        let after = |step: &ElementStep| match step {
            ElementStep::Cast { to, .. } => to.size_bytes(),
            _ => 0,
        };
        self.steps.iter().map(after).fold(self.from.size_bytes().max(self.to.size_bytes()).max(1), usize::max)
    }

    /// Applies the steps to `count` packed elements in `first`, with `second` as further scratch memory. `first` and
    /// `second` are scratch memory; the one returned holds the result.
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
                    bits::round_bits(bytes, dtype.swap_unit_bytes(), dropped_bits);
                }
                ElementStep::RoundInteger { dtype, kept_bits } => bits::round_integers(bytes, dtype, kept_bits),
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
