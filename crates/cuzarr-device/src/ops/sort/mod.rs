//! Sorts the elements of an nd-buffer along a dimension.

mod cpu;
mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::lines::Lines;
use crate::stream::Stream;

impl NdBuffer {
    /// Returns the indices, as int64, that sort the elements of each line along a dimension. The result is packed in C
    /// order.
    ///
    /// The order is NumPy's, and stable: equal elements keep their order. Zeros of both signs are equal. All NaNs are
    /// equal and come last; in descending order, they come first.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer};
    /// let array = NdBuffer::from_slice(Device::Cpu, &[2.0, f64::NAN, -1.0, 2.0], &[4])?;
    /// assert_eq!(array.argsort(0, false)?.host_slice::<i64>()?, [2, 0, 3, 1]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension; `Unsupported` for complex numbers and opaque bytes, and for
    /// 2³² elements or more on a GPU; those of [`NdBuffer::empty`].
    pub fn argsort(&self, axis: usize, is_descending: bool) -> Result<NdBuffer> {
        let lines = Lines::new(self.shape(), axis)?;
        if matches!(self.dtype().kind(), DTypeKind::Complex | DTypeKind::Opaque) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("there is no order of elements of {}", self.dtype()),
            ));
        }
        // Moves the axis to the end, so that the elements of a line lie side by side; `back` reverses this.
        let mut axes: Vec<usize> = (0..self.ndim()).filter(|&own| own != axis).collect();
        axes.push(axis);
        let mut back: Vec<usize> = (0..self.ndim() - 1).collect();
        back.insert(axis, self.ndim() - 1);
        let turned = self.transpose(&axes)?;
        if turned.is_empty() {
            return NdBuffer::empty(self.device(), DType::INT64, self.shape(), Order::C);
        }
        let packed = if turned.is_contiguous(Order::C) { turned } else { turned.copy(Order::C)? };
        let order = match self.device() {
            Device::Cpu => cpu::argsort(&packed, lines.extent as usize, is_descending)?,
            device => {
                let stream = Stream::legacy(device)?;
                let order = cuda::argsort(&packed, lines.extent, is_descending, &stream)?;
                stream.synchronize()?;
                order
            }
        };
        let order = order.transpose(&back)?;
        if order.is_contiguous(Order::C) { Ok(order) } else { order.copy(Order::C) }
    }
}

/// The sort key of an element, given by its bits: an unsigned integer of the same size, as in sort.cu.
fn key_of(bits: u64, dtype: DType, is_descending: bool) -> u64 {
    let width = 8 * dtype.size_bytes();
    let sign = 1u64 << (width - 1);
    let all = sign | (sign - 1);
    let infinity = match (dtype.kind(), width) {
        (DTypeKind::BFloat, _) => 0x7f80,
        (_, 16) => 0x7c00,
        (_, 32) => 0x7f80_0000,
        _ => 0x7ff0_0000_0000_0000,
    };
    let key = match dtype.kind() {
        DTypeKind::Bool => u64::from(bits != 0),
        DTypeKind::Int => bits ^ sign,
        DTypeKind::Float | DTypeKind::BFloat => match bits & (sign - 1) {
            0 => sign,
            magnitude if magnitude > infinity => all,
            _ if bits & sign != 0 => all - bits,
            _ => bits | sign,
        },
        _ => bits,
    };
    if is_descending { all - key } else { key }
}
