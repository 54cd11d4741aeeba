//! Imports DLPack structures as nd-buffers.

use std::ptr::NonNull;

use crate::array::dtype::DType;
use crate::array::layout::{Layout, Order};
use crate::array::ndbuffer::NdBuffer;
use crate::array::small_number::SmallNumber;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::interop::dlpack::{
    DEVICE_CPU, DEVICE_CUDA, DEVICE_CUDA_HOST, DEVICE_CUDA_MANAGED, DLDataType, DLDevice, DLManagedTensor,
    DLManagedTensorVersioned, DLTensor, FLAG_READ_ONLY, FLAG_SUBBYTE_TYPE_PADDED, Managed, VERSION,
};
use crate::memory::lease::Owner;

/// A DLPack structure that cuzarr has taken over from its producer. `drop` calls its deleter, when the last view of its
/// memory is gone.
struct Taken<T: Managed>(NonNull<T>);

impl<T: Managed> Drop for Taken<T> {
    fn drop(&mut self) {
        // SAFETY: the caller of the importing function promised a live structure that no other code ends; this value is
        // dropped once.
        unsafe { T::delete(self.0) }
    }
}

// SAFETY: DLPack lets the consumer call the deleter from any thread, and nothing else of the structure is used.
unsafe impl<T: Managed> Send for Taken<T> {}
// SAFETY: nothing of the structure is reached through a shared reference.
unsafe impl<T: Managed> Sync for Taken<T> {}

/// Takes over a DLPack 1 structure from its producer, as an nd-buffer that shares the array's memory. The deleter is
/// called when the last view of the memory is gone, or immediately if the import fails. The caller renames the capsule
/// to [`Managed::USED_CAPSULE`] before the call.
///
/// `own` may wrap the structure in a larger owner, for example with another object that keeps the memory alive, or with
/// a lock that the deleter needs.
///
/// # Errors
/// `Unsupported` for other major versions, unknown devices and unknown types; `InvalidArgument` for shapes and strides
/// that make no sense.
///
/// # Safety
/// `tensor` is a live structure that no other code takes over; its memory is as large as its shape and strides say, and
/// may be touched when this is called (see the stream rules of [`crate::interop::dlpack`]).
pub unsafe fn import_versioned(
    tensor: NonNull<DLManagedTensorVersioned>,
    own: impl FnOnce(Owner) -> Owner,
) -> Result<NdBuffer> {
    let owner = own(Box::new(Taken(tensor)));
    // SAFETY: live, by the caller's promise; only the version is read before it is known.
    let version = unsafe { (*tensor.as_ptr()).version };
    if version.major != VERSION.major {
        let (major, minor) = (version.major, version.minor);
        return Err(unsupported(format!("DLPack structure of version {major}.{minor}, expected {}.x", VERSION.major)));
    }
    // SAFETY: live, by the caller's promise, and of a version that has these fields.
    unsafe { import(&(*tensor.as_ptr()).dl_tensor, owner, (*tensor.as_ptr()).flags) }
}

/// Takes over a structure of DLPack before version 1, like [`import_versioned`].
///
/// # Errors
/// Those of [`import_versioned`].
///
/// # Safety
/// The conditions of [`import_versioned`].
pub unsafe fn import_legacy(tensor: NonNull<DLManagedTensor>, own: impl FnOnce(Owner) -> Owner) -> Result<NdBuffer> {
    let owner = own(Box::new(Taken(tensor)));
    // SAFETY: live, by the caller's promise.
    unsafe { import(&(*tensor.as_ptr()).dl_tensor, owner, 0) }
}

/// Makes an nd-buffer of the memory that a DLPack tensor of either version describes.
///
/// # Safety
/// The tensor's pointers are as large as it says, and `owner` keeps its memory alive.
unsafe fn import(tensor: &DLTensor, owner: Owner, flags: u64) -> Result<NdBuffer> {
    let read_only = flags & FLAG_READ_ONLY != 0;
    let dtype = dtype(tensor.dtype)?;
    if tensor.dtype.bits < 8 && flags & FLAG_SUBBYTE_TYPE_PADDED == 0 {
        let message =
            format!("several elements of {dtype} share a byte in this DLPack structure, expected a byte for each");
        return Err(unsupported(message));
    }
    let device = device(tensor.device)?;
    let ndim = usize::try_from(tensor.ndim).ok().filter(|&ndim| ndim == 0 || !tensor.shape.is_null());
    let ndim = ndim.ok_or_else(|| Error::invalid(format!("DLPack structure with {} dimensions", tensor.ndim)))?;
    // SAFETY: the caller promises `ndim` extents at a pointer that is not null, as was checked; for none, nothing is read.
    let extents = if ndim == 0 { &[] } else { unsafe { std::slice::from_raw_parts(tensor.shape, ndim) } };
    let invalid = || Error::invalid(format!("DLPack structure of shape {extents:?} is too large or negative"));
    let shape: Option<Vec<usize>> = extents.iter().map(|&extent| usize::try_from(extent).ok()).collect();
    let shape = shape.ok_or_else(invalid)?;
    let size = dtype.size_bytes() as isize;
    let strides = if tensor.strides.is_null() || ndim == 0 {
        Layout::contiguous(&shape, dtype.size_bytes(), Order::C)?.strides().to_vec()
    } else {
        // SAFETY: the caller promises `ndim` strides where the pointer is not null.
        let strides = unsafe { std::slice::from_raw_parts(tensor.strides, ndim) };
        let is_empty = shape.contains(&0);
        let in_bytes = |(&stride, &extent): (&i64, &usize)| match isize::try_from(stride).ok()?.checked_mul(size) {
            // The stride of such a dimension is never used, and producers write anything there.
            None if extent <= 1 || is_empty => Some(size),
            bytes => bytes,
        };
        strides.iter().zip(&shape).map(in_bytes).collect::<Option<Vec<isize>>>().ok_or_else(invalid)?
    };
    let first = usize::try_from(tensor.byte_offset).ok().and_then(|offset| offset.checked_add(tensor.data as usize));
    let first = first.ok_or_else(invalid)?;
    if tensor.data.is_null() && !shape.contains(&0) {
        return Err(Error::invalid(format!("DLPack structure of shape {extents:?} without memory")));
    }
    // SAFETY: the caller promises memory as large as shape and strides say, kept alive by `owner`.
    unsafe { crate::interop::array_interface::wrap(device, dtype, first, &shape, &strides, owner, read_only) }
}

fn device(device: DLDevice) -> Result<Device> {
    match (device.device_type, u32::try_from(device.device_id)) {
        (DEVICE_CPU | DEVICE_CUDA_HOST, _) => Ok(Device::Cpu),
        (DEVICE_CUDA | DEVICE_CUDA_MANAGED, Ok(ordinal)) => Ok(Device::Cuda(ordinal)),
        _ => Err(unsupported(format!("DLPack device {} of type {}", device.device_id, device.device_type))),
    }
}

fn dtype(dtype: DLDataType) -> Result<DType> {
    Ok(match (dtype.code, dtype.bits, dtype.lanes) {
        (0, 8, 1) => DType::INT8,
        (0, 16, 1) => DType::INT16,
        (0, 32, 1) => DType::INT32,
        (0, 64, 1) => DType::INT64,
        (1, 8, 1) => DType::UINT8,
        (1, 16, 1) => DType::UINT16,
        (1, 32, 1) => DType::UINT32,
        (1, 64, 1) => DType::UINT64,
        (2, 16, 1) => DType::FLOAT16,
        (2, 32, 1) => DType::FLOAT32,
        (2, 64, 1) => DType::FLOAT64,
        (4, 16, 1) => DType::BFLOAT16,
        (5, 64, 1) => DType::COMPLEX64,
        (5, 128, 1) => DType::COMPLEX128,
        (6, 8, 1) => DType::BOOL,
        (code, bits, 1) if small(code, bits).is_some() => small(code, bits).map_or(DType::UINT8, DType::small),
        (code, bits, lanes) => {
            return Err(unsupported(format!("DLPack type with code {code}, {bits} bits and {lanes} lanes")));
        }
    })
}

/// The [`SmallNumber`] with this DLPack code and number of bits.
fn small(code: u8, bits: u8) -> Option<SmallNumber> {
    SmallNumber::all().find(|number| number.dlpack() == Some((code, bits)))
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
