//! The memory layout of several operands that are broadcast to one shape. Dimensions are joined where all operands
//! allow it.

use cuzarr_device::NdBuffer;

use cuzarr::Result;

/// A shape, and how each operand of a program is traversed to cover it. Dimensions of extent 1 are left out.
/// Neighbouring dimensions along which every operand has even steps are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joint {
    pub(crate) shape: Vec<usize>,
    /// Strides of each operand along each dimension, in bytes.
    pub(crate) strides: Vec<Vec<isize>>,
}

impl Joint {
    /// Broadcasts the operands to `shape` and joins dimensions, for a result that is packed in C order.
    ///
    /// # Errors
    /// `InvalidArgument` when an operand does not broadcast.
    pub(crate) fn new(shape: &[usize], operands: &[NdBuffer]) -> Result<Joint> {
        let mut all: Vec<Vec<isize>> = Vec::with_capacity(operands.len());
        for operand in operands {
            all.push(operand.layout().broadcast_to(shape)?.strides().to_vec());
        }
        let mut joint = Joint { shape: Vec::new(), strides: vec![Vec::new(); operands.len()] };
        for (axis, &extent) in shape.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let joins = !joint.shape.is_empty()
                && joint.strides.iter().zip(&all).all(|(joined, strides)| {
                    joined.last().is_some_and(|&outer| outer == strides[axis].wrapping_mul(extent as isize))
                });
            if joins {
                if let Some(last) = joint.shape.last_mut() {
                    *last *= extent;
                }
                joint.strides.iter_mut().for_each(|joined| {
                    joined.pop();
                });
            } else {
                joint.shape.push(extent);
            }
            joint.strides.iter_mut().zip(&all).for_each(|(joined, strides)| joined.push(strides[axis]));
        }
        Ok(joint)
    }

    /// Number of elements of the shape.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether an operand's elements are packed in C order, like the result.
    pub(crate) fn is_packed(&self, operand: usize, element_bytes: usize) -> bool {
        match self.strides[operand][..] {
            [] => true,
            [stride] => stride == element_bytes as isize,
            _ => false,
        }
    }

    /// Whether an operand is a single element that is used for every element of the result.
    pub(crate) fn is_single(&self, operand: usize) -> bool {
        self.strides[operand].iter().all(|&stride| stride == 0)
    }

    /// Calls `each` for every row of an operand (elements at an even distance) that overlaps `range`, in order. The
    /// arguments are the row's first place within `range`, its offset from the operand's origin in bytes, and its
    /// number of elements.
    pub(crate) fn rows(
        &self,
        operand: usize,
        range: std::ops::Range<usize>,
        mut each: impl FnMut(usize, isize, usize),
    ) {
        let (Some(&inner), strides) = (self.shape.last(), &self.strides[operand]) else {
            each(0, 0, range.len());
            return;
        };
        let mut at = range.start;
        while at < range.end {
            let (mut rest, within) = (at / inner, at % inner);
            let mut offset = within as isize * strides[strides.len() - 1];
            for (&extent, &stride) in self.shape.iter().zip(strides).rev().skip(1) {
                offset += (rest % extent) as isize * stride;
                rest /= extent;
            }
            let count = (inner - within).min(range.end - at);
            each(at - range.start, offset, count);
            at += count;
        }
    }
}
