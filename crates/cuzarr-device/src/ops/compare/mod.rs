//! Whether elements are equal.

mod cpu;
mod cuda;

use crate::array::ndbuffer::NdBuffer;
use crate::array::writer::Reader;
use crate::device::Device;
use crate::error::Result;
use crate::memory::lease::Access;
use crate::stream::Stream;

impl NdBuffer {
    /// Whether both have the same shape and dtype and equal elements, as `numpy.array_equal`: -0.0 equals 0.0, and NaN
    /// equals NaN only with `equal_nan`.
    ///
    /// # Errors
    /// Those of [`NdBuffer::to_device`]: elements are compared where `self` is.
    pub fn all_equal(&self, other: &NdBuffer, equal_nan: bool) -> Result<bool> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        nd_equals(self, other, equal_nan)
    }

    /// Whether every element is the one whose bytes are `element`: the test for chunks that need not be stored.
    ///
    /// Compares bits, so -0.0 is not 0.0; with `equal_nan` any NaN equals any NaN. That is zarr-python's test, except
    /// that complex numbers are compared part by part, so that no sign of a zero and no part beside a NaN is lost.
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size; else as [`NdBuffer::to_device`].
    pub fn all_equal_element(&self, element: &[u8], equal_nan: bool) -> Result<bool> {
        self.check_element(element)?;
        nd_equals_element(self, element, equal_nan)
    }
}

impl Reader {
    /// Whether every element is `element`; see [`NdBuffer::all_equal_element`].
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size.
    pub fn all_equal_element(&self, element: &[u8], equal_nan: bool) -> Result<bool> {
        self.array().check_element(element)?;
        Ok(cpu::all_equal_element(self.array(), element, equal_nan))
    }
}

/// Whether all elements are `element`; see [`NdBuffer::all_equal_element`].
fn nd_equals_element(array: &NdBuffer, element: &[u8], equal_nan: bool) -> Result<bool> {
    match array.device() {
        Device::Cpu => {
            let _lease = array.lease(Access::Read)?;
            Ok(cpu::all_equal_element(array, element, equal_nan))
        }
        device => cuda::all_equal_element(array, element, equal_nan, &Stream::legacy(device)?),
    }
}

/// Whether two nd-buffers of one shape and dtype have equal elements; see [`NdBuffer::all_equal`]. Compared where the first
/// one is.
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
