//! Reads and writes elements of an nd-buffer at a list of indices along one dimension. One launch moves all of them, as
//! in reads by index lists.

use std::sync::Arc;

use crate::array::layout::Order;
use crate::array::lists::{List, Lists};
use crate::array::ndbuffer::NdBuffer;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::ops::transfer::{Tail, Transfer, TransferBox, scatter};

impl NdBuffer {
    /// Returns the elements at the given indices along a dimension, in new memory in C order. Indices may be in any
    /// order, and may repeat.
    ///
    /// ```
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let rows = NdBuffer::from_host(Device::Cpu, DType::UINT8, &[3, 2], Order::C, &[1, 2, 3, 4, 5, 6])?;
    /// let taken = rows.take(0, &[2, 0, 2])?;
    /// assert_eq!(taken.shape(), [3, 2]);
    /// assert_eq!(taken.to_host_bytes(Order::C)?, [5, 6, 1, 2, 5, 6]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension, or an index is out of range; those of [`NdBuffer::empty`].
    pub fn take(&self, axis: usize, indices: &[u64]) -> Result<NdBuffer> {
        let shape = self.listed_shape(axis, indices)?;
        let taken = NdBuffer::empty(self.device(), self.dtype(), &shape, Order::C)?;
        let elem_bytes = self.dtype().size_bytes() as isize;
        if taken.is_empty() || elem_bytes == 0 {
            return Ok(taken);
        }
        if self.strides().iter().any(|stride| stride % elem_bytes != 0) {
            return self.copy(Order::C)?.take(axis, indices);
        }
        let (low, end) = self.layout().span_bytes().unwrap_or_default();
        let strides: Vec<isize> = self.strides().iter().map(|stride| stride / elem_bytes).collect();
        let first = (self.layout().offset_bytes() - low) / elem_bytes as usize;
        let pairs = indices.iter().enumerate().map(|(place, &index)| [index, place as u64]).collect();
        let lists = Lists::new(only(axis, pairs, shape.len()), &shape)?;
        move_all(&self.buffer().slice(low..end)?, strides, first, lists, &taken)?;
        Ok(taken)
    }

    /// Writes `values` to the elements at the given indices along a dimension. The values are broadcast, and converted
    /// if types differ; they may be on another device. If an index repeats, the last values win.
    ///
    /// ```
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let rows = NdBuffer::zeroed(Device::Cpu, DType::UINT8, &[3, 2], Order::C)?;
    /// rows.put(0, &[2, 0], &NdBuffer::from_host(Device::Cpu, DType::UINT8, &[2, 1], Order::C, &[7, 8])?)?;
    /// assert_eq!(rows.to_host_bytes(Order::C)?, [8, 8, 0, 0, 7, 7]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension, an index is out of range, shapes do not fit or the memory is
    /// read-only; those of [`NdBuffer::copy_from_cast`].
    pub fn put(&self, axis: usize, indices: &[u64], values: &NdBuffer) -> Result<()> {
        let shape = self.listed_shape(axis, indices)?;
        self.buffer().require_writable()?;
        // A copy, since the values may share this memory.
        let packed = NdBuffer::empty(self.device(), self.dtype(), &shape, Order::C)?;
        packed.copy_from_cast(&values.broadcast_to(&shape)?)?;
        let elem_bytes = self.dtype().size_bytes() as isize;
        if packed.is_empty() || elem_bytes == 0 {
            return Ok(());
        }
        let strides: Vec<isize> = packed.strides().iter().map(|stride| stride / elem_bytes).collect();
        let mut is_set = vec![false; self.shape()[axis]];
        let mut pairs = Vec::with_capacity(indices.len());
        for (place, &index) in indices.iter().enumerate().rev() {
            if !std::mem::replace(&mut is_set[index as usize], true) {
                pairs.push([place as u64, index]);
            }
        }
        pairs.reverse();
        let lists = Lists::new(only(axis, pairs, shape.len()), self.shape())?;
        move_all(&packed.as_buffer()?, strides, 0, lists, self)
    }

    /// The shape of the elements that a list of indices along a dimension selects.
    fn listed_shape(&self, axis: usize, indices: &[u64]) -> Result<Vec<usize>> {
        let mut shape = self.shape().to_vec();
        let Some(extent) = shape.get_mut(axis) else {
            return Err(Error::invalid(format!("there is no dimension {axis} of {}", self.ndim())));
        };
        if let Some(outside) = indices.iter().find(|&&index| index >= *extent as u64) {
            let message = format!("index {outside} of dimension {axis} is outside of its extent {extent}");
            return Err(Error::invalid(message));
        }
        *extent = indices.len();
        Ok(shape)
    }
}

/// Index lists for `ndim` dimensions, where only dimension `axis` has one.
fn only(axis: usize, pairs: Vec<[u64; 2]>, ndim: usize) -> Vec<Option<Arc<List>>> {
    let mut axes = vec![None; ndim];
    axes[axis] = Some(Arc::new(List::new(pairs)));
    axes
}

/// Moves all elements that the lists name from packed memory to `target`. `strides` and `first` are in elements.
fn move_all(packed: &Buffer, strides: Vec<isize>, first: usize, lists: Lists, target: &NdBuffer) -> Result<()> {
    let all = TransferBox {
        packed_offset_bytes: 0,
        packed_size_bytes: packed.size_bytes(),
        packed_first_elem: first,
        start: vec![0; target.ndim()],
        extent: lists.positions().to_vec(),
    };
    let transfer = Transfer {
        tail: Tail::plain(target.dtype()),
        packed_strides: strides,
        lists: Some(Arc::new(lists)),
        boxes: vec![all],
    };
    scatter(packed, &transfer, target)
}
