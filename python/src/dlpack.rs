//! DLPack (versions 0 and 1) and the CUDA array interface (version 3), in both directions and without copying.
//!
//! Layouts: <https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h>; the Python side:
//! <https://dmlc.github.io/dlpack/latest/python_spec.html>.

use std::ffi::{CStr, c_void};

use cuzarr_device::{DType, DTypeKind, Device, NdBuffer, Stream, pool};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error::{IntoPython, PyResult};
use crate::ndbuffer::{PyNdBuffer, foreign};

const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

const UNVERSIONED: &CStr = c"dltensor";
const UNVERSIONED_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const READ_ONLY: u64 = 1;

/// CUDA's number of the legacy default stream, on which producers make their memory ready.
const LEGACY_STREAM: usize = 1;

/// Waits until everything put on somebody else's stream is done, so that the memory is ready on all of ours.
fn wait(device: Device, stream: usize) -> cuzarr_device::Result<()> {
    // SAFETY: the producer named this stream in an interface that is being read, so it is alive.
    unsafe { Stream::from_raw(device, stream, None) }?.synchronize()
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: DlTensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: (u32, u32),
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// DLPack's device type and number.
pub fn device_of(device: Device) -> (i32, i32) {
    match device {
        Device::Cuda(ordinal) => (CUDA, ordinal as i32),
        _ => (CPU, 0),
    }
}

fn code_of(dtype: DType) -> Option<DlDataType> {
    let code = match dtype.kind() {
        DTypeKind::Int => 0,
        DTypeKind::UInt => 1,
        DTypeKind::Float => 2,
        DTypeKind::BFloat => 4,
        DTypeKind::Complex => 5,
        DTypeKind::Bool => 6,
        DTypeKind::Opaque => return None,
    };
    Some(DlDataType { code, bits: u8::try_from(dtype.size_bytes() * 8).ok()?, lanes: 1 })
}

fn dtype_of(data_type: DlDataType) -> Option<DType> {
    let DlDataType { code, bits, lanes: 1 } = data_type else { return None };
    Some(match (code, bits) {
        (0, 8) => DType::INT8,
        (0, 16) => DType::INT16,
        (0, 32) => DType::INT32,
        (0, 64) => DType::INT64,
        (1, 8) => DType::UINT8,
        (1, 16) => DType::UINT16,
        (1, 32) => DType::UINT32,
        (1, 64) => DType::UINT64,
        (2, 16) => DType::FLOAT16,
        (2, 32) => DType::FLOAT32,
        (2, 64) => DType::FLOAT64,
        (4, 16) => DType::BFLOAT16,
        (5, 64) => DType::COMPLEX64,
        (5, 128) => DType::COMPLEX128,
        (6, 8) => DType::BOOL,
        _ => return None,
    })
}

/// What an exported tensor keeps alive: the memory, and the arrays its header points into.
struct Exported {
    _memory: NdBuffer,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A capsule over the memory.
pub fn export<'py>(
    py: Python<'py>,
    buffer: &NdBuffer,
    max_version: Option<(u32, u32)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut memory = buffer.clone();
    if dl_device.is_some_and(|wanted| wanted != device_of(memory.device())) {
        if dl_device != Some((CPU, 0)) || copy == Some(false) {
            return Err(PyBufferError::new_err(format!(
                "the memory is on {}, not on the device asked for",
                memory.device()
            )));
        }
        memory = py.detach(|| memory.to_device(Device::Cpu)).py()?;
    } else if copy == Some(true) {
        memory = py.detach(|| memory.copy(cuzarr_device::Order::C)).py()?;
    }
    let versioned = max_version.is_some_and(|(major, _)| major >= 1);
    if memory.is_read_only() && !versioned {
        return Err(PyBufferError::new_err("the memory is read-only, which only DLPack 1 can say"));
    }
    pool::mark_shared(memory.buffer());
    let data_type = code_of(memory.dtype()).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "DLPack has no elements of {} bytes without arithmetic",
            memory.dtype().size_bytes()
        ))
    })?;
    let item_bytes = memory.dtype().size_bytes() as i64;
    let owner = Box::new(Exported {
        shape: memory.shape().iter().map(|&extent| extent as i64).collect(),
        strides: memory.strides().iter().map(|&stride| stride as i64 / item_bytes).collect(),
        _memory: memory.clone(),
    });
    let (device_type, device_id) = device_of(memory.device());
    let tensor = DlTensor {
        data: memory.address() as *mut c_void,
        device: DlDevice { device_type, device_id },
        ndim: memory.ndim() as i32,
        dtype: data_type,
        shape: owner.shape.as_ptr().cast_mut(),
        strides: owner.strides.as_ptr().cast_mut(),
        byte_offset: 0,
    };
    let manager = Box::into_raw(owner).cast::<c_void>();
    let (raw, name) = if versioned {
        let flags = if memory.is_read_only() { READ_ONLY } else { 0 };
        let managed = ManagedVersioned { version: (1, 0), manager, deleter: Some(delete_versioned), flags, tensor };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), VERSIONED)
    } else {
        let managed = Managed { tensor, manager, deleter: Some(delete_unversioned) };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), UNVERSIONED)
    };
    // SAFETY: `raw` is a live header of the kind that `name` says; `drop_capsule` frees it when nobody has taken it.
    let capsule = unsafe { ffi::PyCapsule_New(raw, name.as_ptr(), Some(drop_capsule)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

unsafe extern "C" fn delete_unversioned(managed: *mut Managed) {
    // SAFETY: both boxes were made by `export`, and DLPack promises one call.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.manager.cast::<Exported>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: both boxes were made by `export`, and DLPack promises one call.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.manager.cast::<Exported>()));
    }
}

/// Frees a tensor that no consumer took: one that did renamed the capsule.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with the capsule made by `export`; under its first name the header is still ours.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) == 1 {
            delete_unversioned(ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()).cast());
        }
    }
}

/// Somebody else's tensor: frees it when the last reference is gone.
#[pyclass(module = "cuzarr._core", frozen)]
struct Imported {
    managed: usize,
    versioned: bool,
    // The producer; some free their memory with it in spite of the tensor.
    _object: Py<PyAny>,
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the header was taken from its capsule by `import`, which made this object its only owner.
        unsafe {
            if self.versioned {
                let managed = self.managed as *mut ManagedVersioned;
                if let Some(deleter) = (*managed).deleter {
                    deleter(managed);
                }
            } else {
                let managed = self.managed as *mut Managed;
                if let Some(deleter) = (*managed).deleter {
                    deleter(managed);
                }
            }
        }
    }
}

fn request<'py>(py: Python<'py>, object: &Bound<'py, PyAny>, on_gpu: bool) -> PyResult<Bound<'py, PyAny>> {
    let arguments = PyDict::new(py);
    if on_gpu {
        arguments.set_item("stream", LEGACY_STREAM)?;
    }
    let plain = arguments.copy()?;
    arguments.set_item("max_version", (1, 0))?;
    match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Producers from before DLPack 1 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method("__dlpack__", (), Some(&plain)),
        other => other,
    }
}

/// The memory of an object with `__dlpack__`.
pub fn import(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<PyNdBuffer> {
    let (device_type, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let capsule = request(py, object, device_type == CUDA || device_type == CUDA_MANAGED)?;
    if !capsule.is_instance_of::<PyCapsule>() {
        return Err(PyTypeError::new_err("__dlpack__ gave no capsule"));
    }
    let pointer = capsule.as_ptr();
    // SAFETY: a capsule, checked; the names say what it holds, and renaming it takes the header over.
    let (managed, versioned) = unsafe {
        if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr());
            ffi::PyCapsule_SetName(pointer, VERSIONED_USED.as_ptr());
            (managed as usize, true)
        } else if ffi::PyCapsule_IsValid(pointer, UNVERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, UNVERSIONED.as_ptr());
            ffi::PyCapsule_SetName(pointer, UNVERSIONED_USED.as_ptr());
            (managed as usize, false)
        } else {
            return Err(PyTypeError::new_err("the capsule holds no tensor that was not taken before"));
        }
    };
    let owner = Py::new(py, Imported { managed, versioned, _object: object.clone().unbind() })?;
    // SAFETY: the header is alive: `owner` has it.
    let tensor = unsafe {
        if versioned { &(*(managed as *const ManagedVersioned)).tensor } else { &(*(managed as *const Managed)).tensor }
    };
    let dtype = dtype_of(tensor.dtype).ok_or_else(|| {
        foreign(format!(
            "elements of DLPack type {} with {} bits are not supported",
            tensor.dtype.code, tensor.dtype.bits
        ))
    })?;
    let device = match tensor.device.device_type {
        CPU | CUDA_HOST => Device::Cpu,
        CUDA | CUDA_MANAGED => Device::Cuda(tensor.device.device_id.unsigned_abs()),
        other => {
            return Err(foreign(format!(
                "memory of DLPack device type {other} is neither the host's nor a CUDA GPU's"
            )));
        }
    };
    let ndim = usize::try_from(tensor.ndim).map_err(|_| foreign("the tensor has a negative number of dimensions"))?;
    // SAFETY: DLPack: `shape` has `ndim` entries, `strides` too unless it is null.
    let (shape, strides) = unsafe {
        let shape = if ndim == 0 { &[][..] } else { std::slice::from_raw_parts(tensor.shape, ndim) };
        let strides = (!tensor.strides.is_null() && ndim > 0).then(|| std::slice::from_raw_parts(tensor.strides, ndim));
        (shape, strides)
    };
    let shape: Vec<usize> = shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(0)).collect();
    let item = dtype.size_bytes() as isize;
    let strides = match strides {
        Some(strides) => strides.iter().map(|&stride| (stride as isize).saturating_mul(item)).collect(),
        None => packed_strides(&shape, item),
    };
    if device != Device::Cpu {
        py.detach(|| wait(device, LEGACY_STREAM)).py()?;
    }
    let address = (tensor.data as usize).wrapping_add(tensor.byte_offset as usize);
    // SAFETY: DLPack's promise about a tensor that was not deleted; `owner` deletes it at its end.
    unsafe { PyNdBuffer::from_owner(device, address, &shape, &strides, dtype, owner.into_any()) }
}

fn packed_strides(shape: &[usize], item: isize) -> Vec<isize> {
    let mut step = item;
    let mut strides = vec![0; shape.len()];
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(extent.max(1) as isize);
    }
    strides
}

fn dtype_of_typestr(typestr: &str) -> Option<DType> {
    let (order, rest) = (typestr.as_bytes().first()?, typestr.get(1..)?);
    let size: u32 = rest.get(1..)?.parse().ok()?;
    if *order == b'>' && size > 1 {
        return None;
    }
    let bits = u8::try_from(size * 8).ok();
    let code = match rest.as_bytes()[0] {
        b'i' => 0,
        b'u' => 1,
        b'f' => 2,
        b'c' => 5,
        b'b' => 6,
        b'V' => return Some(DType::opaque(size)),
        _ => return None,
    };
    dtype_of(DlDataType { code, bits: bits?, lanes: 1 })
}

/// The memory of an object with `__cuda_array_interface__`.
pub fn import_cuda_array_interface(
    py: Python<'_>,
    interface: &Bound<'_, PyDict>,
    device: Device,
    owner: &Bound<'_, PyAny>,
) -> PyResult<PyNdBuffer> {
    let member =
        |name: &str| interface.get_item(name)?.ok_or_else(|| foreign(format!("the interface has no '{name}'")));
    let shape: Vec<usize> = member("shape")?.extract()?;
    let typestr: String = member("typestr")?.extract()?;
    let (address, _read_only): (usize, bool) = member("data")?.extract()?;
    let dtype =
        dtype_of_typestr(&typestr).ok_or_else(|| foreign(format!("elements of '{typestr}' are not supported")))?;
    let strides: Option<Vec<isize>> =
        interface.get_item("strides")?.map(|strides| strides.extract()).transpose()?.flatten();
    let strides = strides.unwrap_or_else(|| packed_strides(&shape, dtype.size_bytes() as isize));
    if strides.len() != shape.len() {
        return Err(foreign("the interface has another number of strides than dimensions"));
    }
    let stream: Option<usize> = interface.get_item("stream")?.map(|stream| stream.extract()).transpose()?.flatten();
    if let Some(stream) = stream {
        py.detach(|| wait(device, stream)).py()?;
    }
    // SAFETY: the interface's promise, for as long as its object lives.
    unsafe { PyNdBuffer::from_owner(device, address, &shape, &strides, dtype, owner.clone().unbind()) }
}
