//! Exports nd-buffers as DLPack structures.

use std::ptr::NonNull;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::ndbuffer::NdBuffer;
use crate::array::small_number::SmallNumber;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::interop::dlpack::{
    DEVICE_CPU, DEVICE_CUDA, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, FLAG_IS_COPIED,
    FLAG_READ_ONLY, FLAG_SUBBYTE_TYPE_PADDED, VERSION,
};
use crate::memory::pool;

/// A DLPack structure that cuzarr exported, with the nd-buffer memory that it describes. The structure's deleter drops
/// it.
struct Exported<T> {
    tensor: T,
    _array: NdBuffer,
    _shape: Box<[i64]>,
    _strides: Box<[i64]>,
}

/// Exports the array as a DLPack 1 structure. It keeps the array's memory alive until its deleter is called.
///
/// `is_copied` says that the memory is a copy made for this consumer.
///
/// # Errors
/// `Unsupported` for opaque elements, strides that are no whole number of elements, and elements that are not aligned.
pub fn export_versioned(array: &NdBuffer, is_copied: bool) -> Result<NonNull<DLManagedTensorVersioned>> {
    unsafe extern "C" fn deleter(tensor: *mut DLManagedTensorVersioned) {
        if !tensor.is_null() {
            // SAFETY: `boxed` leaked the box that `manager_ctx` points to; DLPack has the consumer call this once.
            drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported<DLManagedTensorVersioned>>()) });
        }
    }
    let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
    let flags = flag(array.is_read_only(), FLAG_READ_ONLY)
        | flag(is_copied, FLAG_IS_COPIED)
        | flag(is_padded(array.dtype()), FLAG_SUBBYTE_TYPE_PADDED);
    boxed(
        array,
        |dl_tensor| DLManagedTensorVersioned {
            version: VERSION,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(deleter),
            flags,
            dl_tensor,
        },
        |tensor, context| tensor.manager_ctx = context,
    )
}

/// Exports the array as the structure that DLPack had before version 1.
///
/// # Errors
/// Those of [`export_versioned`]; also `Unsupported` for read-only memory and elements of less than 8 bits, which the
/// old structure cannot express.
pub fn export_legacy(array: &NdBuffer) -> Result<NonNull<DLManagedTensor>> {
    unsafe extern "C" fn deleter(tensor: *mut DLManagedTensor) {
        if !tensor.is_null() {
            // SAFETY: `boxed` leaked the box that `manager_ctx` points to; DLPack has the consumer call this once.
            drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported<DLManagedTensor>>()) });
        }
    }
    if array.is_read_only() {
        let message = "DLPack before version 1 cannot say that memory is read-only";
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("ask for `max_version=(1, 0)`, or copy it"));
    }
    if is_padded(array.dtype()) {
        let message = format!("DLPack before version 1 cannot say that elements of {} take a byte each", array.dtype());
        return Err(unsupported(message).with_hint("ask for `max_version=(1, 1)`"));
    }
    boxed(
        array,
        |dl_tensor| DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(deleter) },
        |tensor, context| tensor.manager_ctx = context,
    )
}

fn boxed<T>(
    array: &NdBuffer,
    wrap: impl FnOnce(DLTensor) -> T,
    set_context: impl FnOnce(&mut T, *mut std::ffi::c_void),
) -> Result<NonNull<T>> {
    let dtype = data_type(array.dtype())?;
    let device = device(array.device())?;
    let alignment = array.dtype().swap_unit_bytes();
    if !array.is_empty() && !array.address().is_multiple_of(alignment) {
        let message = format!("elements of {} are not aligned to {alignment} bytes", array.dtype());
        return Err(unsupported(message).with_hint("copy the array first"));
    }
    let size = array.dtype().size_bytes() as isize;
    // Extents and strides are below `isize::MAX`, which fits 64 bits.
    let mut shape: Box<[i64]> = array.shape().iter().map(|&extent| extent as i64).collect();
    let whole = |(&extent, &stride): (&usize, &isize)| match stride % size {
        0 => Ok((stride / size) as i64),
        _ if extent <= 1 || array.is_empty() => Ok(1),
        _ => {
            let message = format!("a stride of {stride} bytes is not a number of {size}-byte elements");
            Err(unsupported(message).with_hint("copy the array first"))
        }
    };
    let mut strides: Box<[i64]> = array.shape().iter().zip(array.strides()).map(whole).collect::<Result<_>>()?;
    let ndim = i32::try_from(shape.len()).map_err(|_| unsupported("too many dimensions".to_string()))?;
    pool::mark_shared(array.buffer());
    let tensor = DLTensor {
        data: array.address() as *mut _,
        device,
        ndim,
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let exported = Exported { tensor: wrap(tensor), _array: array.clone(), _shape: shape, _strides: strides };
    let exported = Box::leak(Box::new(exported));
    let context: *mut Exported<T> = exported;
    // SAFETY: just leaked, so valid and known to no other code; the deleter takes the box back through this pointer.
    let tensor = unsafe {
        set_context(&mut (*context).tensor, context.cast());
        &raw mut (*context).tensor
    };
    // SAFETY: it points to a field of the box that was leaked just now, so it is not null.
    Ok(unsafe { NonNull::new_unchecked(tensor) })
}

/// Converts a device to DLPack's type and number of the device. The simulated device of tests counts as the CPU.
///
/// # Errors
/// `Unsupported` when the device's number is too large.
pub fn device(device: Device) -> Result<DLDevice> {
    match device {
        Device::Cpu | Device::Simt => Ok(DLDevice { device_type: DEVICE_CPU, device_id: 0 }),
        Device::Cuda(ordinal) => {
            let device_id = i32::try_from(ordinal).map_err(|_| unsupported(format!("no DLPack device {ordinal}")))?;
            Ok(DLDevice { device_type: DEVICE_CUDA, device_id })
        }
    }
}

/// Whether an element has padding bits in memory, because the type has less than 8 bits.
fn is_padded(dtype: DType) -> bool {
    dtype.small_number().is_some_and(|number| number.part_bits() < 8)
}

fn data_type(dtype: DType) -> Result<DLDataType> {
    if let Some((code, bits)) = dtype.small_number().and_then(SmallNumber::dlpack) {
        return Ok(DLDataType { code, bits, lanes: 1 });
    }
    let code = match dtype.kind() {
        DTypeKind::Int => 0,
        DTypeKind::UInt => 1,
        DTypeKind::Float => 2,
        DTypeKind::BFloat => 4,
        DTypeKind::Complex => 5,
        DTypeKind::Bool => 6,
        DTypeKind::Opaque => return Err(unsupported(format!("DLPack has no type for {dtype}"))),
    };
    Ok(DLDataType { code, bits: (dtype.size_bytes() * 8) as u8, lanes: 1 })
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}
