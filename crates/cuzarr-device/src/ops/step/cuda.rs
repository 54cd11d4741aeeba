//! The steps of a tail in the form that kernels interpret (`kernels/include/cuzarr/elements.cuh`).

use crate::array::dtype::{DType, DTypeKind};
use crate::c_layout::c_layout;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::defined;
use crate::ops::element::arithmetic::Arithmetic;
use crate::ops::step::ElementStep;
use crate::ops::transfer::tail::Packing;

const HEADER: &str = include_str!("../../../kernels/include/cuzarr/elements.cuh");
/// Most steps that a kernel applies to each element in one launch; more steps are refused.
const MAX_STEPS: usize = defined(HEADER, "CUZARR_MAX_STEPS") as usize;

/// One step that changes an element, in the form that kernels read. `Step` in elements.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    operation: u8,
    from: u8,
    to: u8,
    unit: u8,
    reserved: u32,
    operand: u64,
}

/// All steps of one launch, and the element sizes before and after them. `Steps` in elements.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    count: u32,
    src_bytes: u32,
    dst_bytes: u32,
    reserved: u32,
    steps: [Step; MAX_STEPS],
}

/// How the packed elements of a launch lie in memory, and whether they and the nd-buffer's elements are aligned.
/// `Packed` in elements.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    packing: u32,
    unit: u32,
    aligned: u32,
    strided_aligned: u32,
}

// `Step` and `Steps` in elements.cuh, and `Packed` in elements.cu, which checks the sizes, too.
c_layout! { Step: 16 bytes { operation at 0, from at 1, to at 2, unit at 3, reserved at 4, operand at 8 } }
c_layout! { Steps: 272 bytes { count at 0, src_bytes at 4, dst_bytes at 8, reserved at 12, steps at 16 } }
c_layout! { Packed: 16 bytes { packing at 0, unit at 4, aligned at 8, strided_aligned at 12 } }

impl Packed {
    pub(crate) fn new(packing: Packing, packed_aligned: bool, array_aligned: bool) -> Packed {
        let (packing, unit) = match packing {
            Packing::Plain => (0, 1),
            Packing::Shuffled { unit_bytes } => (1, unit_bytes as u32),
            Packing::Bits => (2, 1),
        };
        Packed { packing, unit, aligned: packed_aligned.into(), strided_aligned: array_aligned.into() }
    }
}

impl Steps {
    /// Converts steps that change elements to the form that kernels read.
    ///
    /// # Errors
    /// `Unsupported` when there are more than a launch carries.
    pub(crate) fn new(steps: &[ElementStep], src_bytes: usize, dst_bytes: usize) -> Result<Steps> {
        if steps.len() > MAX_STEPS {
            let message = format!("{} steps on one element, kernels take {MAX_STEPS}", steps.len());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut all = Steps {
            count: steps.len() as u32,
            src_bytes: src_bytes as u32,
            dst_bytes: dst_bytes as u32,
            reserved: 0,
            steps: [Step::default(); MAX_STEPS],
        };
        for (to, step) in all.steps.iter_mut().zip(steps) {
            *to = Step::of(step)?;
        }
        Ok(all)
    }
}

impl Step {
    fn of(step: &ElementStep) -> Result<Step> {
        Ok(match *step {
            ElementStep::SwapBytes { unit_bytes } => Step { operation: 0, unit: unit_bytes as u8, ..Step::default() },
            ElementStep::Cast { from, to } => {
                Step { operation: 1, from: code(from)?, to: code(to)?, ..Step::default() }
            }
            ElementStep::RoundBits { dtype, dropped_bits } => {
                let unit = dtype.swap_unit_bytes() as u8;
                Step { operation: 7, from: code(dtype)?, unit, operand: dropped_bits.into(), ..Step::default() }
            }
            ElementStep::RoundInteger { dtype, kept_bits } => {
                let unit = dtype.size_bytes() as u8;
                Step { operation: 8, from: code(dtype)?, unit, operand: kept_bits.into(), ..Step::default() }
            }
            ElementStep::Arithmetic { operation, dtype, operand } => {
                let operation = match operation {
                    Arithmetic::Add => 2,
                    Arithmetic::Subtract => 3,
                    Arithmetic::Multiply => 4,
                    Arithmetic::Divide => 5,
                    Arithmetic::Round => 6,
                };
                let from = code(dtype)?;
                Step { operation, from, to: from, operand: u64::from_ne_bytes(operand), ..Step::default() }
            }
        })
    }
}

/// The number that elements.cuh gives to an element type.
pub(crate) fn code(dtype: DType) -> Result<u8> {
    Ok(match (dtype.kind(), dtype.size_bytes()) {
        (DTypeKind::Bool, _) => 0,
        (DTypeKind::Int, 1) => 1,
        (DTypeKind::Int, 2) => 2,
        (DTypeKind::Int, 4) => 3,
        (DTypeKind::Int, 8) => 4,
        (DTypeKind::UInt, 1) => 5,
        (DTypeKind::UInt, 2) => 6,
        (DTypeKind::UInt, 4) => 7,
        (DTypeKind::UInt, 8) => 8,
        (DTypeKind::Float, 2) => 9,
        (DTypeKind::BFloat, 2) => 10,
        (DTypeKind::Float, 4) => 11,
        (DTypeKind::Float, 8) => 12,
        (DTypeKind::Complex, 8) => 13,
        (DTypeKind::Complex, 16) => 14,
        (DTypeKind::Opaque, _) => 15,
        _ => return Err(Error::new(ErrorKind::Unsupported, format!("kernels do not know {dtype}"))),
    })
}

impl ElementStep {
    /// Bytes of an opaque element that the step reverses together, or rounds as one float; 1 for other steps.
    pub(crate) fn unit_bytes(&self) -> usize {
        match *self {
            ElementStep::SwapBytes { unit_bytes } => unit_bytes,
            ElementStep::RoundBits { dtype, .. } => dtype.swap_unit_bytes(),
            _ => 1,
        }
    }
}

/// Size of the unit whose bytes all these steps together reverse in an element; 1 if none are reversed. `None` if there
/// is any other step.
pub(crate) fn swap_unit(steps: &[ElementStep]) -> Option<usize> {
    let mut unit = 1;
    for step in steps {
        match *step {
            ElementStep::SwapBytes { unit_bytes } if unit == 1 => unit = unit_bytes,
            ElementStep::SwapBytes { unit_bytes } if unit == unit_bytes => unit = 1,
            _ => return None,
        }
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the first enumeration in `text` whose list begins with `first`, in their order.
    fn names<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
        let body = text.split("enum {").find(|body| body.trim_start().starts_with(first)).unwrap();
        body.split('}').next().unwrap().split(',').map(str::trim).collect()
    }

    #[test]
    fn kernels_number_types_as_the_host_does() {
        for (number, name) in names(HEADER, "BOOL").into_iter().enumerate() {
            let known = DType::NUMBERS.iter().find(|dtype| dtype.to_string() == name.to_lowercase());
            let dtype = if name == "OPAQUE" { DType::opaque(3) } else { *known.unwrap() };
            assert_eq!(usize::from(code(dtype).unwrap()), number, "{name}");
        }
    }

    #[test]
    fn kernels_number_steps_and_packings_as_the_host_does() {
        let arithmetic = |operation| ElementStep::Arithmetic { operation, dtype: DType::FLOAT32, operand: [0; 8] };
        let steps = [
            ("SWAP", ElementStep::SwapBytes { unit_bytes: 4 }),
            ("CAST", ElementStep::Cast { from: DType::INT8, to: DType::INT16 }),
            ("ADD", arithmetic(Arithmetic::Add)),
            ("SUBTRACT", arithmetic(Arithmetic::Subtract)),
            ("MULTIPLY", arithmetic(Arithmetic::Multiply)),
            ("DIVIDE", arithmetic(Arithmetic::Divide)),
            ("ROUND", arithmetic(Arithmetic::Round)),
            ("ROUND_BITS", ElementStep::RoundBits { dtype: DType::FLOAT32, dropped_bits: 3 }),
            ("ROUND_INTEGER", ElementStep::RoundInteger { dtype: DType::INT16, kept_bits: 3 }),
        ];
        let numbered = names(HEADER, "STEP_");
        assert_eq!(numbered, steps.map(|(name, _)| format!("STEP_{name}")));
        for (number, (name, step)) in steps.into_iter().enumerate() {
            assert_eq!(usize::from(Step::of(&step).unwrap().operation), number, "{name}");
        }
        let packings = [Packing::Plain, Packing::Shuffled { unit_bytes: 4 }, Packing::Bits];
        assert_eq!(
            names(include_str!("../transfer/elements.cu"), "PACKING_"),
            ["PACKING_PLAIN", "PACKING_SHUFFLED", "PACKING_BITS"]
        );
        assert_eq!(packings.map(|packing| Packed::new(packing, true, true).packing), [0, 1, 2]);
    }
}
