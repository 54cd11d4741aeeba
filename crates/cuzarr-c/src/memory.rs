//! Regions of arrays, and memory of the caller.

use std::ffi::{c_char, c_void};

use cuzarr::meta::DataType;
use cuzarr::plan::{AxisSelection, Selection};
use cuzarr::{DType, Device, Layout, NdBuffer, Order, Result};
use cuzarr_device::{Stream, dlpack};

use crate::handle::{invalid, optional_slice, optional_text, promised, required, slice};

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

/// Memory of the caller, with the elements of a region, or of rows for a writer, and of their shape. cuzarr uses it during
/// the call alone; cuzarr_writer_append has an exception.
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
    let cuzarr_region { ndim, start, shape, step } = unsafe { *required(region.cast_mut(), "the region")? };
    // Before the lists are read: they have as many numbers as the caller believes the array to have dimensions.
    if ndim != array.len() {
        return Err(invalid(format!("the region has {ndim} dimensions, the array has {}", array.len())));
    }
    let start = promised!(optional_slice(start, ndim, "the region's start"))?;
    let shape = promised!(slice(shape, ndim, "the region's shape"))?;
    let step = promised!(optional_slice(step, ndim, "its step"))?;
    let axis = |axis| AxisSelection {
        start: start.map_or(0, |start| start[axis]),
        count: shape[axis],
        step: step.map_or(1, |step| step[axis]),
        dropped: false,
    };
    let selection = Selection::new((0..ndim).map(axis).collect())?;
    selection.check(array)?;
    Ok(selection)
}

/// Wraps memory of the caller that has elements of this shape, and of the type `own` unless it says otherwise.
pub unsafe fn wrap(memory: &cuzarr_memory, shape: &[u64], own: Option<DType>, is_read_only: bool) -> Result<NdBuffer> {
    let shape = shape.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
    let shape = shape.map_err(|_| invalid("the region is larger than memory can be"))?;
    let device = promised!(optional_text(memory.device, "the memory's device"))?;
    let device = device.map_or(Ok(Device::Cpu), str::parse)?;
    let dtype = promised!(optional_text(memory.dtype, "the memory's dtype"))?;
    let dtype = dtype.map_or(Ok(own), |name| DataType::from_v3(&name.into()).map(|named| named.device_dtype()))?;
    let dtype = dtype.ok_or_else(|| {
        invalid("elements of variable length have no place in plain memory").with_hint("read them from Python or Rust")
    })?;
    let strides: Vec<isize> = match promised!(optional_slice(memory.strides, shape.len(), "the memory's strides"))? {
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
    // SAFETY: the caller promises `size_bytes` bytes at `data` as long as the call's page says; all elements lie inside, as
    // was checked.
    Ok(unsafe { dlpack::wrap(device, dtype, first, &shape, &strides, Box::new(()), is_read_only) }?)
}

/// Returns the stream that the caller names, if work on it comes before the memory is touched.
pub unsafe fn stream(device: Device, stream: usize) -> Result<Option<Stream>> {
    match (device, stream) {
        (_, CUZARR_STREAM_READY) | (Device::Cpu, 0) => Ok(None),
        (Device::Cpu, _) => Err(invalid(format!("stream {stream:#x} for host memory, which has no streams"))
            .with_hint("wait for the stream, and pass CUZARR_STREAM_READY")),
        // SAFETY: the caller promises so.
        _ => Ok(Some(unsafe { Stream::from_raw(device, stream, None) }?)),
    }
}

/// Waits for the work that a stream of the caller has got so far.
pub unsafe fn wait(device: Device, stream: usize) -> Result<()> {
    let stream = promised!(self::stream(device, stream))?;
    stream.map_or(Ok(()), |stream| Ok(stream.record()?.synchronize()?))
}
