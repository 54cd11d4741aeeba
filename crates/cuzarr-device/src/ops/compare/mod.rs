//! Compares the elements of nd-buffers with each other, or with one element.

mod cpu;
mod cuda;

use crate::array::ndbuffer::NdBuffer;
use crate::array::writer::Reader;
use crate::device::Device;
use crate::error::Result;
use crate::memory::lease::Access;
use crate::stream::Stream;

impl NdBuffer {
    /// Whether both nd-buffers have the same shape, dtype and elements, like `numpy.array_equal`: -0.0 equals 0.0, and
    /// NaN equals NaN only with `equal_nan`.
    ///
    /// # Errors
    /// Those of [`NdBuffer::to_device`]: `other` is copied to the device of `self`.
    pub fn all_equal(&self, other: &NdBuffer, equal_nan: bool) -> Result<bool> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        nd_equals(self, other, equal_nan)
    }

    /// Whether every element equals `element`, given by its bytes. NaN is treated as in zarr-python: with `equal_nan`
    /// any NaN equals any other, else NaN equals nothing. [`NdBuffer::holds_only`] compares bits instead.
    ///
    /// -0.0 differs from 0.0. Complex numbers are compared part by part (unlike in zarr-python), so that neither the
    /// sign of a zero nor a part beside a NaN is ignored.
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size; those of [`NdBuffer::to_device`].
    pub fn all_equal_element(&self, element: &[u8], equal_nan: bool) -> Result<bool> {
        self.check_element(element)?;
        nd_equals_element(self, element, if equal_nan { Nan::Any } else { Nan::Never })
    }

    /// Whether every element has the bits of `element`. Such a chunk need not be stored if `element` is the fill value.
    /// A NaN equals only a NaN with the same sign and payload.
    ///
    /// ```
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let array = NdBuffer::full(Device::Cpu, DType::FLOAT32, &[3], Order::C, &f32::NAN.to_ne_bytes())?;
    /// assert!(array.holds_only(&f32::NAN.to_ne_bytes())?);
    /// assert!(!array.holds_only(&(-f32::NAN).to_ne_bytes())?);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size; those of [`NdBuffer::to_device`].
    pub fn holds_only(&self, element: &[u8]) -> Result<bool> {
        self.check_element(element)?;
        nd_equals_element(self, element, Nan::Bits)
    }
}

impl Reader {
    /// Whether every element that this reader may read has the bits of `element`; see [`NdBuffer::holds_only`].
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size.
    pub fn holds_only(&self, element: &[u8]) -> Result<bool> {
        self.array().check_element(element)?;
        Ok(cpu::all_equal_element(self.array(), element, Nan::Bits))
    }
}

/// Which NaNs are equal when all elements are compared with one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nan {
    /// Two NaNs are equal if they have the same bits.
    Bits,
    /// Any two NaNs are equal, whatever their bits are.
    Any,
    /// No NaN equals any other, or itself.
    Never,
}

/// Whether all elements of an nd-buffer equal `element`.
fn nd_equals_element(array: &NdBuffer, element: &[u8], nan: Nan) -> Result<bool> {
    match array.device() {
        Device::Cpu => {
            let _lease = array.lease(Access::Read)?;
            Ok(cpu::all_equal_element(array, element, nan))
        }
        device => cuda::all_equal_element(array, element, nan, &Stream::legacy(device)?),
    }
}

/// Whether two nd-buffers of the same shape and dtype have equal elements; see [`NdBuffer::all_equal`]. They are
/// compared on the device of `left`.
fn nd_equals(left: &NdBuffer, right: &NdBuffer, equal_nan: bool) -> Result<bool> {
    let right = right.to_device(left.device())?;
    match left.device() {
        Device::Cpu => {
            let _leases = (left.lease(Access::Read)?, right.lease(Access::Read)?);
            cpu::all_equal(left, &right, equal_nan)
        }
        device => cuda::all_equal(left, &right, equal_nan, &Stream::legacy(device)?),
    }
}
