//! The facts about a chunk that codecs need, and chunks of variable-length elements.

use std::sync::Arc;

use cuzarr_device::DType;

use super::size::Size;
use crate::meta::{DataType, FillValue};
use crate::{Error, ErrorKind, Result};

/// The shape, data type and fill value of a chunk, or of the array between two codecs of a chain. Elements are in
/// native byte order, C order.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkSpec {
    /// The length of the chunk along each dimension.
    pub shape: Vec<u64>,
    /// The data type of the elements. It is shared: every codec of a chain has a spec, and a structure may have
    /// thousands of fields.
    pub data_type: Arc<DataType>,
    /// The value of elements that were never written. It is shared too, because it may have megabytes.
    pub fill_value: Arc<FillValue>,
}

impl ChunkSpec {
    /// Makes a spec from a shape, a data type and a fill value.
    pub fn new(
        shape: Vec<u64>,
        data_type: impl Into<Arc<DataType>>,
        fill_value: impl Into<Arc<FillValue>>,
    ) -> ChunkSpec {
        ChunkSpec { shape, data_type: data_type.into(), fill_value: fill_value.into() }
    }

    /// Number of elements of the chunk; `None` if it does not fit into 64 bits.
    pub fn elements(&self) -> Option<u64> {
        // An extent of 0 makes the product 0, even if the other extents overflow.
        if self.shape.contains(&0) {
            return Some(0);
        }
        self.shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent))
    }

    /// Size of all elements of the chunk together, as far as metadata determines it.
    pub(crate) fn size(&self) -> Result<Size> {
        let Some(element) = self.data_type.size_bytes() else { return Ok(Size::Unknown) };
        let bytes = self.elements().and_then(|count| count.checked_mul(element as u64));
        match bytes.filter(|&bytes| isize::try_from(bytes).is_ok()) {
            Some(bytes) => Ok(Size::Exact(bytes)),
            None => Err(Error::new(
                ErrorKind::MetadataInvalid,
                format!("a chunk of shape {:?} with elements of {element} bytes is too large", self.shape),
            )),
        }
    }

    /// Size in bytes of all elements of the chunk together, for elements of fixed size.
    pub(crate) fn size_bytes(&self) -> Result<usize> {
        match self.size()? {
            Size::Exact(bytes) => Ok(bytes as usize),
            _ => Err(Error::new(ErrorKind::Unsupported, "elements of variable length have no packed form")),
        }
    }

    /// The type of the elements in device memory; an error for elements of variable length.
    pub(crate) fn dtype(&self) -> Result<DType> {
        self.data_type.device_dtype().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("elements of {:?} differ in length", self.data_type))
        })
    }

    /// The fill value as the bytes of one element.
    pub(crate) fn fill_bytes(&self) -> Vec<u8> {
        self.fill_value.element(&self.data_type).into_owned()
    }
}

/// Variable-length elements of a chunk or selection, in C order: element `i` is `data[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariableElements {
    /// Where each element begins in `data`, and where the last one ends. There is one number more than elements. They
    /// ascend from 0.
    pub offsets: Vec<u64>,
    /// The elements' bytes, one after the other.
    pub data: Vec<u8>,
}

impl VariableElements {
    /// Bytes of memory that the elements and their offsets take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.data.len() + size_of_val(&*self.offsets)
    }

    /// Makes an empty list with room for `count` elements.
    pub fn with_capacity(count: usize) -> VariableElements {
        let mut offsets = Vec::with_capacity(count.saturating_add(1));
        offsets.push(0);
        VariableElements { offsets, data: Vec::new() }
    }

    /// Like [`with_capacity`](Self::with_capacity), but `None` if there is not enough memory.
    pub(crate) fn try_with_capacity(count: usize) -> Option<VariableElements> {
        let mut offsets = Vec::new();
        offsets.try_reserve_exact(count.checked_add(1)?).ok()?;
        offsets.push(0);
        Some(VariableElements { offsets, data: Vec::new() })
    }

    /// Number of elements in the list.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether the list has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of element number `index`; `None` if there is no such element.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = (*self.offsets.get(index)?, *self.offsets.get(index + 1)?);
        self.data.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// Adds a variable-length element, given by its bytes, at the end of the list.
    pub fn push(&mut self, element: &[u8]) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.data.extend_from_slice(element);
        self.offsets.push(self.data.len() as u64);
    }

    /// Returns these elements in the order of the transposed array. `shape` is the shape of this array, whose number of
    /// elements must match. Both arrays are in C order.
    pub(crate) fn transposed<'a>(&self, shape: impl DoubleEndedIterator<Item = &'a u64>) -> VariableElements {
        // For each dimension of the reversed shape: its extent, and the distance between neighbours in `self`.
        let axes: Vec<(usize, usize)> = shape
            .rev()
            .scan(1, |stride, &extent| {
                let axis = (extent as usize, *stride);
                *stride *= extent as usize;
                Some(axis)
            })
            .collect();
        let mut result = VariableElements::with_capacity(self.len());
        for place in 0..self.len() {
            let (mut rest, mut from) = (place, 0);
            for &(extent, stride) in axes.iter().rev() {
                from += rest % extent * stride;
                rest /= extent;
            }
            result.push(self.get(from).unwrap_or_default());
        }
        result
    }

    /// The bytes of each element, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_twice_by_reversed_shapes_gives_the_elements_again() {
        let mut elements = VariableElements::with_capacity(24);
        (0..24u8).for_each(|n| elements.push(&vec![n; usize::from(n) % 3]));
        let shape = [2, 3, 4u64];
        let transposed = elements.transposed(shape.iter());
        // Element (1, 2, 3) of the array is (3, 2, 1) of the transposed one.
        assert_eq!(transposed.get(3 * 6 + 2 * 2 + 1), elements.get(12 + 2 * 4 + 3));
        assert_eq!(transposed.get(1), elements.get(12));
        let again: Vec<_> = transposed.transposed(shape.iter().rev()).iter().map(<[u8]>::to_vec).collect();
        assert_eq!(again, elements.iter().map(<[u8]>::to_vec).collect::<Vec<_>>());
    }
}
