//! Reads and writes elements at indices along a dimension, with the indices on the array's device. `NdBuffer::take` is
//! for indices on the host.

mod cpu;
mod cuda;

use crate::array::dtype::DType;
use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::c_layout::c_layout;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::lines::Lines;
use crate::stream::Stream;

/// The shapes of a gather's array, indices and result, for the kernel. `Listed` in gather.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Listed {
    /// The array, divided into lines along the dimension that is indexed.
    array: Lines,
    /// Number of elements in a line of the result, along the dimension that is indexed.
    listed: u64,
    /// Steps from one index to the next along the three dimensions of the result; 0 if all lines have the same indices.
    strides: [u64; 3],
}

/// The shapes of a scatter's array and indices, for the kernel. `Written` in gather.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Written {
    lines: Lines,
    /// Number of indices along the dimension that is written.
    listed: u64,
    /// Bytes from one element of the array to the next, along its three dimensions.
    strides: [i64; 3],
}

// `Written` in gather.cu.
c_layout! { Written: 56 bytes { lines at 0, listed at 24, strides at 32 } }

// `Listed` in gather.cu.
c_layout! { Listed: 56 bytes { array at 0, listed at 24, strides at 32 } }

impl NdBuffer {
    /// Returns the elements at the given indices along a dimension, like `numpy.take_along_axis`, in new memory in C
    /// order. The indices are int64 and on the same device; negative ones count from the end. Their other extents are
    /// those of the array, or all 1: then every line has the same indices.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer};
    /// let rows = NdBuffer::from_slice(Device::Cpu, &[1_u8, 2, 3, 4], &[2, 2])?;
    /// let of_each = NdBuffer::from_slice(Device::Cpu, &[1_i64, 0, 0, -1], &[2, 2])?;
    /// assert_eq!(rows.gather(1, &of_each)?.host_slice::<u8>()?, [2, 1, 3, 4]);
    /// let of_all = NdBuffer::from_slice(Device::Cpu, &[-1_i64, 0, 1], &[3, 1])?;
    /// assert_eq!(rows.gather(0, &of_all)?.host_slice::<u8>()?, [3, 4, 1, 2, 3, 4]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension, the indices have another type or do not fit, or an index is
    /// out of range; `MemorySpace` when the indices are on another device; those of [`NdBuffer::empty`].
    pub fn gather(&self, axis: usize, indices: &NdBuffer) -> Result<NdBuffer> {
        let array = Lines::new(self.shape(), axis)?;
        let fits = |allowed: &dyn Fn(usize, usize) -> bool| {
            let pairs = indices.shape().iter().zip(self.shape()).enumerate();
            indices.ndim() == self.ndim()
                && pairs.filter(|(own, _)| *own != axis).all(|(_, (&own, &other))| allowed(own, other))
        };
        let is_shared = fits(&|own, _| own == 1);
        if indices.dtype() != DType::INT64 || !(is_shared || fits(&|own, other| own == other)) {
            let (got, shape) = (indices.shape(), self.shape());
            let message =
                format!("indices of {} and shape {got:?} along dimension {axis} of {shape:?}", indices.dtype());
            return Err(Error::invalid(format!("{message}: expected int64, with the other extents or 1 for all")));
        }
        if indices.device() != self.device() {
            let (there, here) = (indices.device(), self.device());
            return Err(Error::new(ErrorKind::MemorySpace, format!("indices are on {there}, elements on {here}")));
        }
        let mut shape = self.shape().to_vec();
        shape[axis] = indices.shape()[axis];
        let gathered = NdBuffer::empty(self.device(), self.dtype(), &shape, Order::C)?;
        if indices.is_empty() || array.outer * array.inner == 0 {
            return Ok(gathered);
        }
        if array.extent == 0 {
            return Err(Error::invalid(format!("there are indices of dimension {axis}, which has no elements")));
        }
        let outside = |index: i64| {
            let message = format!("index {index} of dimension {axis} is outside of its extent {}", array.extent);
            Error::invalid(message)
        };
        let (own, indices) = (packed(self)?, packed(indices)?);
        let listed = shape[axis] as u64;
        let strides = if is_shared { [0, 1, 0] } else { [listed * array.inner, array.inner, 1] };
        let listed = Listed { array, listed, strides };
        match self.device() {
            Device::Cpu => {
                let bytes = cpu::gather(&own.to_host_bytes(Order::C)?, &indices.host_slice::<i64>()?, listed);
                NdBuffer::from_host(Device::Cpu, self.dtype(), &shape, Order::C, &bytes.map_err(outside)?)
            }
            device => match cuda::gather(&own, &indices, &gathered, listed, &Stream::legacy(device)?)? {
                Some(index) => Err(outside(index)),
                None => Ok(gathered),
            },
        }
    }

    /// Writes `values` to the elements at the given indices along a dimension. The indices are int64, one-dimensional
    /// and on the same device; negative ones count from the end. The values are broadcast, and converted if the types
    /// differ. If an index occurs several times, the last values win. If an index is out of range, nothing is written.
    ///
    /// ```
    /// use cuzarr_device::{Device, NdBuffer};
    /// let rows = NdBuffer::from_slice(Device::Cpu, &[1_u8, 2, 3, 4], &[2, 2])?;
    /// let indices = NdBuffer::from_slice(Device::Cpu, &[-1_i64, 0, -1], &[3])?;
    /// rows.scatter(0, &indices, &NdBuffer::from_slice(Device::Cpu, &[5_u8, 6, 7], &[3, 1])?)?;
    /// assert_eq!(rows.host_slice::<u8>()?, [6, 6, 7, 7]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension, the indices have another type or shape, an index is out of
    /// range, the values do not fit, or the memory is read-only; `MemorySpace` when the indices are on another device;
    /// those of [`NdBuffer::empty`].
    pub fn scatter(&self, axis: usize, indices: &NdBuffer, values: &NdBuffer) -> Result<()> {
        let array = Lines::new(self.shape(), axis)?;
        if indices.dtype() != DType::INT64 || indices.ndim() != 1 {
            let (dtype, shape) = (indices.dtype(), indices.shape());
            return Err(Error::invalid(format!(
                "indices of {dtype} and shape {shape:?}, expected int64 in one dimension"
            )));
        }
        if indices.device() != self.device() {
            let (there, here) = (indices.device(), self.device());
            return Err(Error::new(ErrorKind::MemorySpace, format!("indices are on {there}, elements on {here}")));
        }
        self.buffer().require_writable()?;
        let mut shape = self.shape().to_vec();
        shape[axis] = indices.len();
        let outside = |index: i64| {
            let message = format!("index {index} of dimension {axis} is outside of its extent {}", array.extent);
            Error::invalid(message)
        };
        if self.device() == Device::Cpu {
            let counted = |&asked: &i64| {
                let index = if asked < 0 { (asked as u64).wrapping_add(array.extent) } else { asked as u64 };
                if index < array.extent { Ok(index) } else { Err(outside(asked)) }
            };
            let indices = packed(indices)?.host_slice::<i64>()?.iter().map(counted).collect::<Result<Vec<u64>>>()?;
            return self.put(axis, &indices, values);
        }
        // A copy, since the values may share this memory.
        let own = NdBuffer::empty(self.device(), self.dtype(), &shape, Order::C)?;
        own.copy_from_cast(&values.broadcast_to(&shape)?)?;
        if indices.is_empty() {
            return Ok(());
        }
        if array.extent == 0 {
            return Err(Error::invalid(format!("there are indices of dimension {axis}, which has no elements")));
        }
        let three = [array.outer as usize, array.extent as usize, array.inner as usize];
        let Some(lines) =
            self.layout().reshape(&three)?.filter(|_| !own.is_empty()).map(|lines| self.with_layout(lines))
        else {
            // The dimensions before or behind the axis cannot be merged to one.
            let all = self.copy(Order::C)?;
            if !all.is_empty() {
                all.scatter(axis, indices, &own)?;
                self.copy_from(&all)?;
            }
            return Ok(());
        };
        let stream = Stream::legacy(self.device())?;
        cuda::scatter(&lines, &packed(indices)?, &own, &stream)?.map_or(Ok(()), |index| Err(outside(index)))
    }
}

fn packed(array: &NdBuffer) -> Result<NdBuffer> {
    if array.is_contiguous(Order::C) { Ok(array.clone()) } else { array.copy(Order::C) }
}
