//! Finds the positions of the true elements of a mask, in host or device memory.

mod cpu;
mod cuda;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::layout::{Layout, Order};
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;

/// Returns the C-order positions of a mask's true elements, rising, in host memory. A mask on a GPU is searched there,
/// and only the positions are copied.
///
/// ```
/// use cuzarr_device::{DType, Device, NdBuffer, Order, nonzero};
/// let mask = NdBuffer::from_host(Device::Cpu, DType::BOOL, &[2, 3], Order::C, &[0, 1, 0, 0, 1, 1])?;
/// assert_eq!(nonzero(&mask)?, [1, 4, 5]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
///
/// # Errors
/// `InvalidArgument` when the elements are not booleans; `OutOfMemory`, `DeviceFailed`.
pub fn nonzero(mask: &NdBuffer) -> Result<Vec<u64>> {
    nonzero_indices(mask)?.to_device(Device::Cpu)?.reinterpret(DType::UINT64)?.into_vec()
}

/// Like [`nonzero`], but the positions stay on the mask's device, as int64.
///
/// # Errors
/// Those of [`nonzero`].
pub fn nonzero_indices(mask: &NdBuffer) -> Result<NdBuffer> {
    if mask.dtype().kind() != DTypeKind::Bool {
        return Err(Error::invalid(format!("a mask has elements of {}, expected bool", mask.dtype())));
    }
    if mask.is_empty() {
        return NdBuffer::empty(mask.device(), DType::INT64, &[0], Order::C);
    }
    let is_packed = mask.is_contiguous(Order::C) && mask.address().is_multiple_of(size_of::<u64>());
    let mask = if is_packed { mask.clone() } else { mask.copy(Order::C)? };
    match mask.device() {
        Device::Cpu => {
            let numbers = cpu::nonzero(&mask.reinterpret(DType::UINT8)?.host_slice::<u8>()?);
            let len = numbers.len();
            NdBuffer::from_vec(numbers, &[len])?.reinterpret(DType::INT64)
        }
        device => {
            let numbers = cuda::nonzero(&mask, &Stream::legacy(device)?)?;
            let layout = Layout::contiguous(&[numbers.size_bytes() / size_of::<i64>()], size_of::<i64>(), Order::C)?;
            NdBuffer::from_parts(numbers, DType::INT64, layout)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_true_element_of_a_large_mask_is_found() {
        for len in [1usize, 63, 64, 65, 4096, 500_003] {
            for every in [1, 7, 5000] {
                let mask: Vec<u8> = (0..len).map(|at| u8::from(at % every == every - 1)).collect();
                let expected: Vec<u64> = (0..len as u64).filter(|&at| mask[at as usize] == 1).collect();
                let mask = NdBuffer::from_host(Device::Cpu, DType::BOOL, &[len], Order::C, &mask).unwrap();
                assert_eq!(nonzero(&mask).unwrap(), expected, "{len} {every}");
            }
        }
    }
}
