//! Arrays in and out by DLPack.

use std::ptr::NonNull;

use cuzarr::{NdBuffer, Result};
use cuzarr_device::dlpack::{self, DLManagedTensorVersioned};

use crate::array::{array, cuzarr_array};
use crate::cancellation::cuzarr_cancellation;
use crate::error::{call, cuzarr_error, cuzarr_status};
use crate::handle::{invalid, promised, put_new};
use crate::memory::{cuzarr_region, selection, wait};

/// Reads the elements of a region into new memory on the array's device, and stores it in `tensor` as a structure of
/// DLPack, version 1. The caller owns it, and ends it by one call of its deleter, from any thread, also after the array was freed. When the
/// call returns, the elements are there, for every stream and for the host.
///
/// Errors: those of cuzarr_array_read; CUZARR_STATUS_UNSUPPORTED for data types that DLPack does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_read_dlpack(
    array: *const cuzarr_array, region: *const cuzarr_region, cancellation: *const cuzarr_cancellation,
    tensor: *mut *mut DLManagedTensorVersioned, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    let read = || {
        let array = promised!(self::array(array, cancellation))?;
        let memory = array.read_buffer(&promised!(selection(region, array.shape()))?)?;
        Ok(dlpack::export_versioned(&memory, false)?.as_ptr())
    };
    promised!(call(error, || put_new(tensor, "tensor", read)))
}

/// Reads the elements of a region into the memory of a DLPack tensor of another library, on any device. Takes the tensor
/// over: its deleter is called once, from any thread, also if the call fails. That may be a moment after the call. Keep the
/// memory by the library that owns it, to use the elements. `stream` is that of cuzarr_memory. When the call returns, the elements are there, for
/// every stream and for the host.
///
/// Errors: those of cuzarr_array_read; CUZARR_STATUS_UNSUPPORTED for structures of another major version, and for devices
/// and types that cuzarr does not have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_read_into_dlpack(
    array: *const cuzarr_array, region: *const cuzarr_region, tensor: *mut DLManagedTensorVersioned, stream: usize,
    cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        // The tensor comes first, so that it is freed.
        let (memory, array) = (import(tensor, stream)?, self::array(array, cancellation)?);
        array.read_into(&selection(region, array.shape())?, &memory)
    }))
}

/// Writes a DLPack tensor of any library, on any device, to a region. Takes the tensor over: its deleter is called once, from
/// any thread, also if the call fails. That may be a moment after the call. The tensor's shape is broadcast to the region's. `stream` is that of cuzarr_memory: the
/// call waits for its work before it reads the memory. When the call returns, the elements are stored.
///
/// Errors: those of cuzarr_array_write and cuzarr_array_read_into_dlpack.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuzarr_array_write_dlpack(
    array: *const cuzarr_array, region: *const cuzarr_region, tensor: *mut DLManagedTensorVersioned, stream: usize,
    cancellation: *const cuzarr_cancellation, error: *mut *mut cuzarr_error,
) -> cuzarr_status {
    promised!(call(error, || {
        // The tensor comes first, so that it is freed.
        let (memory, array) = (import(tensor, stream)?, self::array(array, cancellation)?);
        array.write_buffer(&selection(region, array.shape())?, &memory)
    }))
}

/// Takes over a tensor of the caller, and waits for the work of its stream.
unsafe fn import(tensor: *mut DLManagedTensorVersioned, stream: usize) -> Result<NdBuffer> {
    let tensor = NonNull::new(tensor).ok_or_else(|| invalid("tensor is NULL"))?;
    // SAFETY: the caller promises so. The memory is touched after the wait below.
    let memory = unsafe { dlpack::import_versioned(tensor, |owner| owner) }?;
    promised!(wait(memory.device(), stream))?;
    Ok(memory)
}
