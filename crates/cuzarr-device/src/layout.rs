//! How N-d elements lie in flat memory: a shape, byte strides, and the byte offset of the first element.

use crate::error::{Error, Result};

/// The order of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Last dimension fastest.
    C,
    /// First dimension fastest.
    F,
}

/// Shape, strides and offset, in bytes. A layout holds no memory; an nd-buffer joins it with one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset_bytes: usize,
    element_bytes: usize,
}

impl Layout {
    /// Elements packed without gaps, beginning at offset 0.
    ///
    /// # Errors
    /// `InvalidArgument` when the size in bytes does not fit `isize`.
    pub fn contiguous(shape: &[usize], element_bytes: usize, order: Order) -> Result<Layout> {
        let total = shape.iter().try_fold(element_bytes.max(1), |product, &extent| product.checked_mul(extent.max(1)));
        if total.is_none_or(|total| isize::try_from(total).is_err()) {
            return Err(Error::invalid(format!("shape {shape:?} of {element_bytes}-byte elements is too large")));
        }
        let mut strides = vec![0; shape.len()];
        let mut step = element_bytes as isize;
        let mut place = |axis: usize| {
            strides[axis] = step;
            step *= shape[axis].max(1) as isize;
        };
        match order {
            Order::C => (0..shape.len()).rev().for_each(&mut place),
            Order::F => (0..shape.len()).for_each(&mut place),
        }
        Ok(Layout { shape: shape.to_vec(), strides, offset_bytes: 0, element_bytes })
    }

    /// Elements at the given byte strides; every one must lie inside `memory_bytes` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` when lengths differ, or an element would lie outside the memory.
    pub fn strided(
        shape: &[usize],
        strides: &[isize],
        offset_bytes: usize,
        element_bytes: usize,
        memory_bytes: usize,
    ) -> Result<Layout> {
        if shape.len() != strides.len() {
            return Err(Error::invalid(format!("got {} strides for {} dimensions", strides.len(), shape.len())));
        }
        let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset_bytes, element_bytes };
        match layout.span_bytes() {
            Some((_, end)) if end <= memory_bytes => Ok(layout),
            _ => Err(Error::invalid(format!(
                "shape {shape:?} with strides {strides:?} from byte {offset_bytes} leaves its memory of {memory_bytes} bytes"
            ))),
        }
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes from one element to the next, per dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Where element (0, …, 0) begins.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Bytes of one element.
    pub fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes that the elements fill when packed.
    pub fn size_bytes(&self) -> usize {
        self.len() * self.element_bytes
    }

    /// First byte touched and the one behind the last, or `None` when they do not fit `usize` or lie before the memory.
    pub fn span_bytes(&self) -> Option<(usize, usize)> {
        if self.is_empty() {
            return Some((self.offset_bytes, self.offset_bytes));
        }
        let (mut low, mut high) = (isize::try_from(self.offset_bytes).ok()?, isize::try_from(self.offset_bytes).ok()?);
        for (&extent, &stride) in self.shape.iter().zip(&self.strides) {
            let reach = stride.checked_mul(isize::try_from(extent - 1).ok()?)?;
            if reach < 0 { low = low.checked_add(reach)? } else { high = high.checked_add(reach)? }
        }
        let end = usize::try_from(high).ok()?.checked_add(self.element_bytes)?;
        Some((usize::try_from(low).ok()?, end))
    }

    /// Whether the elements are packed without gaps in this order. Extents of 1 may have any stride.
    pub fn is_contiguous(&self, order: Order) -> bool {
        let mut expected = self.element_bytes as isize;
        let mut follows = |axis: usize| {
            let right = self.shape[axis] == 1 || self.strides[axis] == expected;
            expected *= self.shape[axis] as isize;
            right
        };
        self.is_empty()
            || match order {
                Order::C => (0..self.ndim()).rev().all(&mut follows),
                Order::F => (0..self.ndim()).all(&mut follows),
            }
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `axes[i]` of this one.
    ///
    /// # Errors
    /// `InvalidArgument` when `axes` is not a permutation.
    pub fn transpose(&self, axes: &[usize]) -> Result<Layout> {
        let mut seen = vec![false; self.ndim()];
        let valid = axes.len() == self.ndim()
            && axes.iter().all(|&axis| axis < seen.len() && !std::mem::replace(&mut seen[axis], true));
        if !valid {
            return Err(Error::invalid(format!("axes {axes:?} are not a permutation of {} dimensions", self.ndim())));
        }
        Ok(Layout {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            ..*self
        })
    }

    /// The box of `extent` elements that begins at `start`, with every `step`-th element taken.
    ///
    /// # Errors
    /// `InvalidArgument` when it does not lie inside.
    pub fn region(&self, start: &[usize], extent: &[usize], step: &[usize]) -> Result<Layout> {
        let ndim = self.ndim();
        let fits = start.len() == ndim
            && extent.len() == ndim
            && step.len() == ndim
            && (0..ndim).all(|axis| {
                let last = extent[axis].checked_sub(1).map_or(Some(0), |n| n.checked_mul(step[axis]));
                let end = last.and_then(|last| last.checked_add(start[axis]));
                match extent[axis] {
                    0 => start[axis] <= self.shape[axis],
                    _ => step[axis] > 0 && end.is_some_and(|end| end < self.shape[axis]),
                }
            });
        if !fits {
            let message = format!("region {start:?} + {extent:?} by {step:?} is not inside shape {:?}", self.shape);
            return Err(Error::invalid(message));
        }
        let offset: isize = start.iter().zip(&self.strides).map(|(&at, &stride)| at as isize * stride).sum();
        let empty = extent.contains(&0);
        Ok(Layout {
            shape: extent.to_vec(),
            strides: self.strides.iter().zip(step).map(|(&stride, &by)| stride.saturating_mul(by as isize)).collect(),
            offset_bytes: if empty { self.offset_bytes } else { self.offset_bytes.wrapping_add_signed(offset) },
            element_bytes: self.element_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_strides_follow_the_order() {
        assert_eq!(Layout::contiguous(&[2, 3, 4], 4, Order::C).unwrap().strides(), [48, 16, 4]);
        assert_eq!(Layout::contiguous(&[2, 3, 4], 4, Order::F).unwrap().strides(), [4, 8, 24]);
        assert!(Layout::contiguous(&[usize::MAX, 2], 8, Order::C).is_err());
    }

    #[test]
    fn strided_refuses_elements_outside_the_memory() {
        assert!(Layout::strided(&[3], &[-4], 8, 4, 12).is_ok());
        assert!(Layout::strided(&[3], &[-4], 4, 4, 12).is_err());
        assert!(Layout::strided(&[4], &[4], 0, 4, 15).is_err());
        assert!(Layout::strided(&[3], &[isize::MAX], 0, 4, 12).is_err());
        assert!(Layout::strided(&[0], &[isize::MAX], 0, 4, 0).is_ok());
    }

    #[test]
    fn region_takes_every_nth_element() {
        let layout = Layout::contiguous(&[10, 8], 2, Order::C).unwrap();
        let region = layout.region(&[1, 2], &[3, 2], &[4, 5]).unwrap();
        assert_eq!((region.shape(), region.strides(), region.offset_bytes()), (&[3, 2][..], &[64, 10][..], 20));
        assert!(layout.region(&[1, 2], &[4, 2], &[4, 5]).is_err());
        assert!(layout.region(&[10, 0], &[0, 8], &[1, 1]).is_ok());
    }

    #[test]
    fn transposed_c_order_is_f_order() {
        let layout = Layout::contiguous(&[2, 3], 4, Order::C).unwrap().transpose(&[1, 0]).unwrap();
        assert!(layout.is_contiguous(Order::F) && !layout.is_contiguous(Order::C));
        assert!(layout.transpose(&[0, 0]).is_err());
    }
}
