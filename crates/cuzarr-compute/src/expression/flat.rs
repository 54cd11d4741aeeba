//! Expressions whose elements are arranged in one dimension.

use cuzarr::plan::Region;
use cuzarr::{Error, ErrorKind, Result};

use super::expr::{Expr, Flat, Kind};
use super::pick::{Along, Pick};

impl Expr {
    /// Arranges all elements of the expression in one dimension, in C order. Returns the same expression if it already
    /// has one dimension.
    ///
    /// Its regions contain all chunks that lie side by side along every dimension except the first.
    ///
    /// ```
    /// use cuzarr::meta::DataType;
    /// use cuzarr::node::Array;
    /// use cuzarr::plan::Selection;
    /// use cuzarr_compute::{ComputeOptions, Expr};
    /// let array = Array::builder([2, 2], DataType::Int32).chunks([1, 1]).create("memory://flat")?;
    /// array.write(&Selection::all(&[2, 2]), &[1i32, 2, 3, 4])?;
    /// let flat = Expr::array(array)?.flat()?;
    /// assert_eq!(flat.compute(&ComputeOptions::default())?.host_slice::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` for more than 2⁶⁴ - 1 elements, and for too many nested running results.
    pub fn flat(&self) -> Result<Expr> {
        if self.ndim() == 1 {
            return Ok(self.clone());
        }
        self.check_derived()?;
        let count = self.shape().iter().try_fold(1u64, |all, &one| all.checked_mul(one)).ok_or_else(|| {
            let message = format!("shape {:?} has too many elements for one dimension", self.shape());
            Error::new(ErrorKind::Unsupported, message)
        })?;
        Ok(Expr::new(vec![count], self.dtype(), Kind::Flat(Flat { of: self.clone(), from: 0, count })))
    }
}

impl Flat {
    /// Returns those elements of the flattened expression that `pick` chooses. The pick must fit the shape of this
    /// expression.
    ///
    /// # Errors
    /// `Unsupported` for elements that are not consecutive.
    pub(crate) fn picked(&self, pick: &Pick) -> Result<Flat> {
        let own = pick.along(0);
        let is_plain = pick.shape().len() == 1 && pick.dim_of(0) == Some(0);
        let (start, count) = match (own, own.count()) {
            (_, Some(0)) if is_plain => (0, 0),
            (_, Some(1)) if is_plain => (own.index(0), 1),
            (&Along::Range { start, count, step: 1 }, _) if is_plain => (start, count),
            _ => {
                let message =
                    "of an expression's elements in one dimension only those that follow each other can be picked";
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint("compute or store the elements, and pick from these"));
            }
        };
        Ok(Flat { of: self.of.clone(), from: self.from + start, count })
    }

    /// Returns the boxes of the inner expression whose elements, in order, make up a region of the flattened one.
    pub(crate) fn boxes(&self, region: &Region) -> Vec<Region> {
        let shape = self.of.shape();
        let (mut at, mut boxes) = (self.from + region.start[0], Vec::new());
        let end = at + region.extent[0];
        while at < end {
            let (mut start, mut extent) = (vec![0; shape.len()], vec![1; shape.len()]);
            let (mut rest, mut inner) = (at, 1);
            for axis in (0..shape.len()).rev() {
                start[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            // Whole rows of as many dimensions as fit between `at` and the end.
            for axis in (0..shape.len()).rev() {
                if !at.is_multiple_of(inner) || end - at < inner {
                    break;
                }
                let count = ((end - at) / inner).min(shape[axis] - start[axis]);
                extent[axis] = count;
                extent[axis + 1..].copy_from_slice(&shape[axis + 1..]);
                if count < shape[axis] {
                    break;
                }
                inner *= shape[axis];
            }
            at += extent.iter().product::<u64>().max(1);
            boxes.push(Region { number: region.number, start, extent });
        }
        boxes
    }

    /// Returns the extents of a box of the inner expression that contains at least `elems` elements.
    pub(crate) fn extent_around(&self, elems: u64) -> Vec<u64> {
        let mut left = elems;
        let mut extent = vec![1; self.of.ndim()];
        for (extent, &whole) in extent.iter_mut().zip(self.of.shape()).rev() {
            *extent = left.clamp(1, whole.max(1));
            left = left.div_ceil(whole.max(1));
        }
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuzarr_device::NdBuffer;

    #[test]
    fn boxes_have_each_element_once_in_its_order() {
        for shape in [vec![], vec![4], vec![3, 1, 4], vec![2, 3, 2], vec![1, 1], vec![5, 2]] {
            let count: usize = shape.iter().product();
            let of = Expr::buffer(NdBuffer::from_vec(vec![0u8; count], &shape).unwrap()).unwrap();
            let flat = Flat { of, from: 0, count: count as u64 };
            for start in 0..count as u64 {
                for extent in 0..=count as u64 - start {
                    let region = Region { number: 0, start: vec![start], extent: vec![extent] };
                    let boxes = flat.boxes(&region);
                    assert!(boxes.len() <= (2 * shape.len()).max(1), "{shape:?} {region}");
                    let mut numbers = Vec::new();
                    for one in &boxes {
                        for number in 0..one.extent.iter().product() {
                            let (mut rest, mut scale, mut flat) = (number, 1, 0);
                            for axis in (0..shape.len()).rev() {
                                flat += (one.start[axis] + rest % one.extent[axis]) * scale;
                                rest /= one.extent[axis];
                                scale *= shape[axis] as u64;
                            }
                            numbers.push(flat);
                        }
                    }
                    assert_eq!(numbers, (start..start + extent).collect::<Vec<u64>>(), "{shape:?} {region}");
                    let around: u64 = flat.extent_around(extent).iter().product();
                    assert!(around >= extent, "{shape:?} {extent}");
                }
            }
        }
    }
}
