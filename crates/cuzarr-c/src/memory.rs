//! Regions of arrays, and memory of the caller.

use std::ffi::{c_char, c_void};

use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::{DType, Device, Layout, NdBuffer, Order, Result};
use cuzarr_device::{Stream, dlpack};
use serde_json::Value;

use crate::handle::{invalid, optional_slice, optional_text, required};

/// The value of `stream` for memory that may be touched at once.
pub const CUZARR_STREAM_READY: usize = 0xffff_ffff_ffff_ffff;

/// A box of elements of an array. A pointer to a region that is NULL means the whole array.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cuzarr_region {
    /// Number of dimensions, which must be that of the array. The lists below have this length.
    pub ndim: usize,
    /// Index of the first element along each dimension. NULL: 0 everywhere.
    pub start: *const u64,
    /// Number of elements along each dimension. Must not be NULL unless ndim is 0.
    pub shape: *const u64,
    /// Distance of neighbouring elements along each dimension, at least 1. NULL: 1 everywhere.
    pub step: *const u64,
}

/// Memory of the caller, with the elements of a region. Its shape is that of the region. cuzarr uses it during the call
/// alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cuzarr_memory {
    /// Address of the memory. May be NULL if there are no elements.
    pub data: *mut c_void,
    /// Size of the memory in bytes. Elements outside of it are an error.
    pub size_bytes: usize,
    /// Bytes from `data` to the region's first element, such as for negative strides.
    pub offset_bytes: usize,
    /// Distance of neighbouring elements along each dimension in bytes; may be negative. NULL: C order without gaps, the
    /// last dimension varies fastest. What a read fills must not overlap itself. A write may have strides of 0.
    pub strides: *const i64,
    /// Where the memory is: "cpu" or "cuda:N". NULL: "cpu". An address on another device than this is undefined
    /// behaviour, as a dangling pointer is.
    pub device: *const c_char,
    /// Type of the elements in memory, by its name in Zarr v3: "float32". NULL: the array's own. Elements are converted
    /// between this type and the array's, as NumPy's astype does it.
    pub dtype: *const c_char,
    /// The stream whose work fills or uses the memory: 0 or 1 for the legacy default stream, 2 for that of the thread, a
    /// cudaStream_t or CUstream as an integer, or CUZARR_STREAM_READY. The call waits for the work that the stream
    /// has got so far, before it touches the memory. In host memory, only 0 and CUZARR_STREAM_READY are allowed.
    pub stream: usize,
}

/// Returns the elements that a region selects.
pub unsafe fn selection(region: *const cuzarr_region, array: &[u64]) -> Result<Selection> {
    if region.is_null() {
        return Ok(Selection::all(array));
    }
    // SAFETY: the caller promises a region; it is not null.
    let region = unsafe { *required(region.cast_mut(), "the region")? };
    let ndim = region.ndim;
    // Before the lists are read: they have as many numbers as the caller believes the array to have dimensions.
    if ndim != array.len() {
        return Err(invalid(format!("the region has {ndim} dimensions, the array has {}", array.len())));
    }
    // SAFETY: the caller promises lists of `ndim` numbers.
    let (start, shape, step) = unsafe {
        let start = optional_slice(region.start, ndim, "the region's start")?;
        (
            start,
            optional_slice(region.shape, ndim, "the region's shape")?,
            optional_slice(region.step, ndim, "its step")?,
        )
    };
    if shape.is_none() && ndim > 0 {
        return Err(invalid("the region's shape is NULL"));
    }
    let at = |list: Option<&[u64]>, axis: usize, otherwise| list.map_or(otherwise, |list| list[axis]);
    let axis = |axis| AxisSelection {
        start: at(start, axis, 0),
        count: at(shape, axis, 0),
        step: at(step, axis, 1),
        dropped: false,
    };
    let selection = Selection::new((0..ndim).map(axis).collect())?;
    selection.check(array)?;
    Ok(selection)
}

/// Wraps memory of the caller for the elements of a selection, once its stream has done its work.
pub unsafe fn wrap(
    memory: *const cuzarr_memory,
    selection: &Selection,
    own: Option<DType>,
    is_read_only: bool,
) -> Result<NdBuffer> {
    let memory = required(memory.cast_mut(), "the memory")?;
    // SAFETY: the caller promises so; it is not null.
    let memory = unsafe { *memory };
    let shape = selection.shape().into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| invalid("the region is larger than memory can be"))?;
    // SAFETY: the caller promises texts, and as many strides as the region has dimensions.
    let (device, dtype, strides) = unsafe {
        let device = optional_text(memory.device, "the memory's device")?;
        let dtype = optional_text(memory.dtype, "the memory's dtype")?;
        (device, dtype, optional_slice(memory.strides, shape.len(), "the memory's strides")?)
    };
    let device = device.map_or(Ok(Device::Cpu), str::parse)?;
    let dtype = dtype
        .map_or(Ok(own), |name| cuzarr::meta::DataType::from_v3(&Value::from(name)).map(|one| one.device_dtype()))?;
    let dtype = dtype.ok_or_else(|| {
        invalid("elements of variable length have no place in plain memory").with_hint("read them from Python or Rust")
    })?;
    let strides: Vec<isize> = match strides {
        Some(strides) => strides.iter().map(|&stride| stride as isize).collect(),
        None => Layout::contiguous(&shape, dtype.size_bytes(), Order::C)?.strides().to_vec(),
    };
    // Every element lies inside the memory, as this checks.
    Layout::strided(&shape, &strides, memory.offset_bytes, dtype.size_bytes(), memory.size_bytes)?;
    let start = memory.data as usize;
    let is_possible = start.checked_add(memory.size_bytes).is_some() && (start != 0 || shape.contains(&0));
    if !is_possible {
        return Err(invalid(format!("{} bytes at {:p} are not possible memory", memory.size_bytes, memory.data)));
    }
    let first = start + memory.offset_bytes;
    // SAFETY: the caller promises that the stream lives during the call.
    unsafe { wait(device, memory.stream) }?;
    // SAFETY: the caller promises `size_bytes` bytes at `data` during the call; all elements lie inside, as was checked.
    Ok(unsafe { dlpack::wrap(device, dtype, first, &shape, &strides, Box::new(()), is_read_only) }?)
}

/// Waits for the work that a stream of the caller has got so far.
pub unsafe fn wait(device: Device, stream: usize) -> Result<()> {
    match (device, stream) {
        (_, CUZARR_STREAM_READY) | (Device::Cpu, 0) => Ok(()),
        (Device::Cpu, _) => Err(invalid(format!("stream {stream:#x} for host memory, which has no streams"))
            .with_hint("wait for the stream, and pass CUZARR_STREAM_READY")),
        // SAFETY: the caller promises so.
        _ => Ok(unsafe { Stream::from_raw(device, stream, None) }?.record()?.synchronize()?),
    }
}
