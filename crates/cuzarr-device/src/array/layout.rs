//! How N-d elements lie in flat memory: a shape, byte strides, and the byte offset of the first element.

use std::ops::Range;

use crate::error::{Error, Result};

/// The order of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// C order: the last dimension is the fastest.
    C,
    /// F order: the first dimension is the fastest.
    F,
}

/// Shape, byte strides and byte offset of N-d elements. A layout holds no memory; an nd-buffer joins it with memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset_bytes: usize,
    element_bytes: usize,
}

impl Layout {
    /// Layout of elements packed without gaps, beginning at offset 0.
    ///
    /// # Errors
    /// `InvalidArgument` when the size in bytes does not fit `isize`.
    pub fn contiguous(shape: &[usize], element_bytes: usize, order: Order) -> Result<Layout> {
        check_size(shape, element_bytes)?;
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

    /// Layout of elements at the given byte strides. Every element must lie inside `memory_bytes` bytes.
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
        // Strides of 0 let a small memory hold a shape whose packed size overflows; `len` must not.
        check_size(shape, element_bytes)?;
        let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset_bytes, element_bytes };
        match layout.span_bytes() {
            Some((_, end)) if end <= memory_bytes => Ok(layout),
            _ => Err(Error::invalid(format!(
                "shape {shape:?} with strides {strides:?} from byte {offset_bytes} leaves its memory of {memory_bytes} bytes"
            ))),
        }
    }

    /// The shape of the layout: the extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes from one element to the next, for each dimension.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Byte offset of element (0, …, 0) in the flat memory.
    pub fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Size of one element in bytes.
    pub fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// The layout of the same bytes, seen as elements of another size. Only the extent of the last dimension changes.
    /// `None` if that dimension is not packed, if its bytes are no whole number of elements, or if a new element would
    /// not begin at a multiple of `alignment_bytes`.
    pub fn with_element_bytes(&self, element_bytes: usize, alignment_bytes: usize) -> Option<Layout> {
        let mut layout = Layout { element_bytes, ..self.clone() };
        let (extent, stride) = (layout.shape.last_mut()?, layout.strides.last_mut()?);
        let is_packed = *extent == 1 || *stride == isize::try_from(self.element_bytes).ok()?;
        let bytes = extent.checked_mul(self.element_bytes)?;
        if element_bytes == 0 || !is_packed || !bytes.is_multiple_of(element_bytes) {
            return None;
        }
        (*extent, *stride) = (bytes / element_bytes, isize::try_from(element_bytes).ok()?);
        let is_aligned = layout.strides.iter().all(|stride| stride.unsigned_abs().is_multiple_of(alignment_bytes));
        is_aligned.then_some(layout)
    }

    /// Number of dimensions of the layout.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements of the layout.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The byte range of a box of elements, if the box is contiguous in C or F order, else `None`. The box must lie
    /// inside the layout. Allocates nothing.
    pub(crate) fn box_bytes(&self, start: &[usize], extent: &[usize]) -> Option<Range<usize>> {
        let axes = || self.strides.iter().zip(extent);
        let grow = |width: Option<usize>, (&stride, &extent): (&isize, &usize)| match width {
            Some(width) if extent == 1 || usize::try_from(stride) == Ok(width) => Some(width * extent),
            _ => None,
        };
        let element = Some(self.element_bytes);
        let width = axes().rev().fold(element, grow).or_else(|| axes().fold(element, grow))?;
        let places = self.strides.iter().zip(start);
        let from = places.fold(self.offset_bytes as isize, |from, (stride, &start)| from + stride * start as isize);
        Some(from as usize..from as usize + width)
    }

    /// Whether no two elements of the layout share a byte. May be `false` for unusual strides even if the elements are
    /// apart.
    pub(crate) fn is_injective(&self) -> bool {
        let mut axes: Vec<(usize, usize)> =
            self.strides.iter().map(|stride| stride.unsigned_abs()).zip(self.shape.iter().copied()).collect();
        axes.retain(|&(_, extent)| extent > 1);
        axes.sort_unstable();
        let mut span = self.element_bytes;
        let apart = |&(stride, extent): &(usize, usize)| {
            let fits = stride >= span;
            span += stride * (extent - 1);
            fits
        };
        self.is_empty() || axes.iter().all(apart)
    }

    /// Whether the layout has no elements, because an extent is 0.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes that the layout's elements fill when they are packed without gaps.
    pub fn size_bytes(&self) -> usize {
        self.len() * self.element_bytes
    }

    /// The offset of the first byte that the elements touch, and the offset behind the last. `None` if they do not fit
    /// `usize` or lie before the memory.
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

    /// Whether the elements are packed without gaps in `order`. Extents of 1 may have any stride.
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

    /// Reorders the dimensions: dimension `i` of the result is dimension `axes[i]` of this layout.
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

    /// The layout of a box that begins at `start`, takes every `step`-th element, and has `extent` elements per
    /// dimension.
    ///
    /// # Errors
    /// `InvalidArgument` when the box does not lie inside.
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
        let empty = extent.contains(&0);
        // A box with elements begins inside the span, so only an empty one could overflow here.
        let offset = match empty {
            true => 0,
            false => start.iter().zip(&self.strides).map(|(&at, &stride)| at as isize * stride).sum::<isize>(),
        };
        Ok(Layout {
            shape: extent.to_vec(),
            strides: self.strides.iter().zip(step).map(|(&stride, &by)| stride.saturating_mul(by as isize)).collect(),
            offset_bytes: self.offset_bytes.wrapping_add_signed(offset),
            element_bytes: self.element_bytes,
        })
    }

    /// The layout of the elements whose index along dimension `axis` is `index`. The result does not have that
    /// dimension.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension or position.
    pub fn index_axis(&self, axis: usize, index: usize) -> Result<Layout> {
        if axis >= self.ndim() || index >= self.shape[axis] {
            let message = format!("index {index} of axis {axis} is not inside shape {:?}", self.shape);
            return Err(Error::invalid(message));
        }
        let mut layout = self.clone();
        let (stride, _) = (layout.strides.remove(axis), layout.shape.remove(axis));
        if !self.is_empty() {
            layout.offset_bytes = layout.offset_bytes.wrapping_add_signed(index as isize * stride);
        }
        Ok(layout)
    }

    /// The layout without the dimensions `axes`, which must have extent 1.
    ///
    /// # Errors
    /// `InvalidArgument` when a dimension has another extent or does not exist.
    pub fn squeeze(&self, axes: &[usize]) -> Result<Layout> {
        if axes.iter().any(|&axis| self.shape.get(axis) != Some(&1)) {
            return Err(Error::invalid(format!("axes {axes:?} of shape {:?} are not all of extent 1", self.shape)));
        }
        let keep = |axis: &usize| !axes.contains(axis);
        Ok(Layout {
            shape: (0..self.ndim()).filter(keep).map(|axis| self.shape[axis]).collect(),
            strides: (0..self.ndim()).filter(keep).map(|axis| self.strides[axis]).collect(),
            ..*self
        })
    }

    /// The layout broadcast as in NumPy: elements repeat along missing and 1-element dimensions, by strides of 0.
    ///
    /// # Errors
    /// `InvalidArgument` when the shapes do not match, or the result is too large.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Layout> {
        check_size(shape, self.element_bytes)?;
        let missing = shape.len().checked_sub(self.ndim());
        let fits = missing.is_some_and(|missing| {
            self.shape.iter().zip(&shape[missing..]).all(|(&own, &wanted)| own == wanted || own == 1)
        });
        let (Some(missing), true) = (missing, fits) else {
            return Err(Error::invalid(format!("shape {:?} does not broadcast to {shape:?}", self.shape)));
        };
        let mut strides = vec![0; shape.len()];
        for axis in 0..self.ndim() {
            let repeated = self.shape[axis] == 1 && shape[missing + axis] != 1;
            strides[missing + axis] = if repeated { 0 } else { self.strides[axis] };
        }
        Ok(Layout { shape: shape.to_vec(), strides, ..*self })
    }

    /// The layout of the same elements, in C order, under another shape; `None` if no strides can express it (a copy is
    /// needed).
    ///
    /// # Errors
    /// `InvalidArgument` when the number of elements differs.
    pub fn reshape(&self, shape: &[usize]) -> Result<Option<Layout>> {
        check_size(shape, self.element_bytes)?;
        if shape.iter().product::<usize>() != self.len() {
            return Err(Error::invalid(format!("cannot reshape {:?} into {shape:?}", self.shape)));
        }
        if self.is_empty() {
            let strides = Layout::contiguous(shape, self.element_bytes, Order::C)?.strides;
            return Ok(Some(Layout { shape: shape.to_vec(), strides, ..*self }));
        }
        // Divides both shapes into the smallest groups of dimensions with equal products. Within a group, the old
        // dimensions must be one evenly spaced run, which the new ones then divide.
        let old: Vec<(usize, isize)> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(extent, _)| extent != 1).collect();
        let mut strides = vec![self.element_bytes as isize; shape.len()];
        let (mut old_at, mut new_at) = (0, 0);
        while old_at < old.len() {
            let (old_begin, new_begin) = (old_at, new_at);
            let (mut old_product, mut new_product) = (old[old_at].0, shape[new_at]);
            (old_at, new_at) = (old_at + 1, new_at + 1);
            while old_product != new_product {
                if old_product < new_product {
                    old_product *= old[old_at].0;
                    old_at += 1;
                } else {
                    new_product *= shape[new_at];
                    new_at += 1;
                }
            }
            if !old[old_begin..old_at].windows(2).all(|pair| pair[0].1 == pair[1].1.wrapping_mul(pair[1].0 as isize)) {
                return Ok(None);
            }
            let mut stride = old[old_at - 1].1;
            for axis in (new_begin..new_at).rev() {
                strides[axis] = stride;
                stride = stride.wrapping_mul(shape[axis] as isize);
            }
        }
        Ok(Some(Layout { shape: shape.to_vec(), strides, ..*self }))
    }
}

/// Refuses a shape whose packed elements would not fit `isize` bytes; extents of 0 count as 1, as in NumPy.
fn check_size(shape: &[usize], element_bytes: usize) -> Result<()> {
    let total = shape.iter().try_fold(element_bytes.max(1), |product, &extent| product.checked_mul(extent.max(1)));
    match total {
        Some(total) if isize::try_from(total).is_ok() => Ok(()),
        _ => Err(Error::invalid(format!("shape {shape:?} of {element_bytes}-byte elements is too large"))),
    }
}

/// Refuses a box that is not inside `shape`.
pub(crate) fn check_box(start: &[usize], extent: &[usize], shape: &[usize]) -> Result<()> {
    let inside = start.len() == shape.len()
        && extent.len() == shape.len()
        && (0..shape.len()).all(|axis| start[axis].checked_add(extent[axis]).is_some_and(|end| end <= shape[axis]));
    if inside {
        return Ok(());
    }
    Err(Error::invalid(format!("{start:?} + {extent:?} is not inside shape {shape:?}")))
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
    fn other_elements_take_the_same_bytes_where_they_lie_side_by_side_and_are_aligned() {
        let rows = Layout::contiguous(&[3, 4], 8, Order::C).unwrap();
        let bytes = rows.with_element_bytes(1, 1).unwrap();
        assert_eq!((bytes.shape(), bytes.strides(), bytes.element_bytes()), (&[3, 32][..], &[32, 1][..], 1));
        assert_eq!(bytes.with_element_bytes(8, 8), Some(rows.clone()));
        assert_eq!(rows.with_element_bytes(16, 16).unwrap().shape(), [3, 2]);
        assert_eq!(rows.with_element_bytes(5, 1), None);
        assert_eq!(rows.region(&[0, 0], &[3, 2], &[1, 2]).unwrap().with_element_bytes(1, 1), None);
        let unaligned = Layout::strided(&[2, 8], &[9, 1], 0, 1, 17).unwrap();
        assert_eq!(unaligned.with_element_bytes(8, 8), None);
        assert!(Layout::contiguous(&[], 8, Order::C).unwrap().with_element_bytes(1, 1).is_none());
    }

    #[test]
    fn reshape_is_a_view_where_strides_allow() {
        let rows = Layout::contiguous(&[4, 6], 2, Order::C).unwrap();
        assert_eq!(rows.reshape(&[2, 2, 3, 2]).unwrap().unwrap().strides(), [24, 12, 4, 2]);
        assert_eq!(rows.reshape(&[24]).unwrap().unwrap().strides(), [2]);
        let columns = rows.transpose(&[1, 0]).unwrap();
        assert!(columns.reshape(&[24]).unwrap().is_none());
        assert_eq!(columns.reshape(&[3, 2, 1, 4]).unwrap().unwrap().strides(), [4, 2, 48, 12]);
        let one = Layout::contiguous(&[], 2, Order::C).unwrap();
        assert_eq!(one.reshape(&[1, 1]).unwrap().unwrap().shape(), [1, 1]);
        assert!(rows.reshape(&[5]).is_err() && rows.reshape(&[usize::MAX, 2]).is_err());
    }

    #[test]
    fn broadcast_repeats_by_zero_strides() {
        let column = Layout::contiguous(&[3, 1], 4, Order::C).unwrap();
        assert_eq!(column.broadcast_to(&[2, 3, 5]).unwrap().strides(), [0, 4, 0]);
        assert!(column.broadcast_to(&[2, 5]).is_err() && column.broadcast_to(&[3]).is_err());
    }

    #[test]
    fn index_axis_and_squeeze_drop_dimensions() {
        let layout = Layout::contiguous(&[2, 1, 5], 4, Order::C).unwrap();
        let row = layout.index_axis(0, 1).unwrap();
        assert_eq!((row.shape(), row.offset_bytes()), (&[1, 5][..], 20));
        assert_eq!(row.squeeze(&[0]).unwrap().shape(), [5]);
        assert!(layout.squeeze(&[0]).is_err() && layout.index_axis(2, 5).is_err());
    }

    #[test]
    fn transposed_c_order_is_f_order() {
        let layout = Layout::contiguous(&[2, 3], 4, Order::C).unwrap().transpose(&[1, 0]).unwrap();
        assert!(layout.is_contiguous(Order::F) && !layout.is_contiguous(Order::C));
        assert!(layout.transpose(&[0, 0]).is_err());
    }
}
