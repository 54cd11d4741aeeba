//! Exchange of memory with other Python libraries, through DLPack capsules and CUDA array interface dictionaries.
//! [`cuzarr_device::dlpack`] reads and writes their contents. Nothing is copied unless the consumer asks for it.
//!
//! The Python side of DLPack: <https://dmlc.github.io/dlpack/latest/python_spec.html>.

use std::ptr::NonNull;

use cuzarr::{Error, ErrorKind};
use cuzarr_device::dlpack::{self, ArrayInterface, DLManagedTensor, DLManagedTensorVersioned, Managed};
use cuzarr_device::{Device, NdBuffer, Order, Owner, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::ending::{Unlocked, try_attach};
use crate::error::{IntoPython, PyResult, to_python};
use crate::names::parse_device;

/// The number by which CUDA's array interfaces name the legacy default stream. Producers make their memory ready on it.
const LEGACY_STREAM: usize = 1;
/// The number by which a consumer says to DLPack's producers that they need not make their memory ready on any stream.
const NO_STREAM: i64 = -1;
/// The newest supported version of the CUDA array interface.
const INTERFACE_VERSION: i64 = 3;

/// An owner of one or several Python objects, such as those that keep memory alive. Any thread may drop the value.
pub struct PythonOwner<T>(Option<T>);

impl<T> PythonOwner<T> {
    pub fn new(object: T) -> PythonOwner<T> {
        PythonOwner(Some(object))
    }

    /// Returns the Python object that this value owns. It is there until the value is dropped.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Drop for PythonOwner<T> {
    fn drop(&mut self) {
        // Drops the object while this thread is attached to the interpreter; otherwise it would live until the next
        // thread attaches. If the interpreter has already ended, the object is leaked.
        let mut object = self.0.take();
        try_attach(|_| drop(object.take()));
        std::mem::forget(object);
    }
}

/// Wraps a Python object whose memory a buffer uses, so that the object lives as long as the buffer. Dropping the
/// wrapper takes the interpreter's lock.
pub fn python_owner<T: Send + Sync + 'static>(owner: T) -> Owner {
    Box::new(PythonOwner::new(owner))
}

/// Makes the error for an array of another Python library whose memory cuzarr cannot use.
pub fn foreign(message: impl Into<String>) -> PyErr {
    to_python(&Error::new(ErrorKind::InvalidArgument, message))
}

/// Makes the error for memory that cannot be exported to another library: a `BufferError`, as the protocols require.
pub fn export_error(py: Python<'_>, error: &Error) -> PyErr {
    let refused = || {
        let arguments = PyDict::new(py);
        arguments.set_item("hint", error.hint())?;
        arguments.set_item("trail", PyTuple::new(py, error.trail())?)?;
        py.import("cuzarr.errors")?.getattr("ExportError")?.call((error.message(),), Some(&arguments))
    };
    if error.kind() == ErrorKind::Unsupported {
        return refused().map_or_else(|failure| failure, PyErr::from_value);
    }
    to_python(error)
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns a device as DLPack names it: its type and its number.
pub fn dlpack_device(device: Device) -> PyResult<(i32, i32)> {
    let device = dlpack::device(device).py()?;
    Ok((device.device_type, device.device_id))
}

/// The arguments that a consumer passes to `__dlpack__`.
pub struct Request {
    pub stream: Option<i64>,
    pub max_version: Option<(u32, u32)>,
    pub device: Option<(i32, i32)>,
    pub copy: Option<bool>,
}

/// Exports the memory of `buffer` as a DLPack capsule, in the form that the consuming library requests.
pub fn export<'py>(py: Python<'py>, buffer: &NdBuffer, request: &Request) -> PyResult<Bound<'py, PyAny>> {
    let own = dlpack_device(buffer.device())?;
    let is_host = own.0 == dlpack::DEVICE_CPU;
    // Results are ready on every stream before users get them, so only impossible values are refused.
    if request.stream.is_some_and(|stream| stream < -1 || (stream == 0 && !is_host)) {
        let stream = request.stream.unwrap_or_default();
        let message = format!("stream {stream} is not a DLPack stream of a GPU");
        let hint = "pass 1 (legacy default), 2 (per-thread default), a CUstream above 2, or -1 (no waiting)";
        return Err(to_python(&Error::new(ErrorKind::InvalidArgument, message).with_hint(hint)));
    }
    let moves = request.device.is_some_and(|wanted| wanted != own);
    if moves && (request.device != Some((dlpack::DEVICE_CPU, 0)) || request.copy == Some(false)) {
        let message = format!("the memory is on {}, not on the requested DLPack device", buffer.device());
        return Err(export_error(py, &unsupported(message).with_hint("copy it there first, or leave out dl_device")));
    }
    let copies = moves || request.copy == Some(true);
    let copied = match (moves, copies) {
        (true, _) => Some(py.unlocked(|| buffer.to_device(Device::Cpu)).py()?),
        (_, true) => Some(py.unlocked(|| buffer.copy(Order::C)).py()?),
        _ => None,
    };
    let memory = copied.as_ref().unwrap_or(buffer);
    if request.max_version.is_some_and(|(major, _)| major >= 1) {
        let tensor = dlpack::export_versioned(memory, copies).map_err(|error| export_error(py, &error.into()))?;
        // SAFETY: made just now, and given to the capsule alone.
        unsafe { capsule(py, tensor) }
    } else {
        let tensor = dlpack::export_legacy(memory).map_err(|error| export_error(py, &error.into()))?;
        // SAFETY: made just now, and given to the capsule alone.
        unsafe { capsule(py, tensor) }
    }
}

/// Makes a capsule that owns a DLPack tensor until a consumer takes the tensor and renames the capsule.
///
/// # Safety
/// The structure is alive, and nothing else owns it.
unsafe fn capsule<T: Managed>(py: Python<'_>, tensor: NonNull<T>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: a pointer that is not null, and a name that lives forever.
    let capsule = unsafe { ffi::PyCapsule_New(tensor.as_ptr().cast(), T::CAPSULE.as_ptr(), Some(drop_capsule::<T>)) };
    // SAFETY: a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    // SAFETY: without a capsule, nothing else owns the structure.
    capsule.inspect_err(|_| unsafe { T::delete(tensor) })
}

/// Frees the DLPack tensor of a capsule, unless a consumer took it. (A consumer renames the capsule when it takes the
/// tensor.)
unsafe extern "C" fn drop_capsule<T: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with a capsule from `capsule`. Under its first name it owns the structure.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, T::CAPSULE.as_ptr()) == 1
            && let Some(tensor) = NonNull::new(ffi::PyCapsule_GetPointer(capsule, T::CAPSULE.as_ptr()))
        {
            T::delete(tensor.cast());
        }
    }
}

/// Takes the DLPack tensor out of a capsule. `None` for another kind of capsule, and if the structure was already
/// taken.
fn take<T: Managed>(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<NonNull<T>>> {
    let pointer = capsule.as_ptr();
    // SAFETY: the object is a capsule. Under this name it owns a structure of this kind; under the next name it does not.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, T::CAPSULE.as_ptr()) != 1 {
            return Ok(None);
        }
        let tensor = ffi::PyCapsule_GetPointer(pointer, T::CAPSULE.as_ptr());
        if ffi::PyCapsule_SetName(pointer, T::USED_CAPSULE.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        Ok(NonNull::new(tensor.cast()))
    }
}

fn ask_for_capsule<'py>(object: &Bound<'py, PyAny>, stream: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item("stream", stream)?;
    }
    let plain = arguments.copy()?;
    arguments.set_item("max_version", (dlpack::VERSION.major, dlpack::VERSION.minor))?;
    match object.call_method("__dlpack__", (), Some(&arguments)) {
        // Producers older than DLPack 1 do not know `max_version`.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method("__dlpack__", (), Some(&plain)),
        other => other,
    }
}

/// Imports the memory of an object that has the method `__dlpack__`. With `waits`, returns when the producer's work on the
/// memory is done; without, the caller orders its own work behind it.
pub fn import(py: Python<'_>, object: &Bound<'_, PyAny>, waits: bool) -> PyResult<NdBuffer> {
    let (device_type, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    let is_on_gpu = matches!(device_type, dlpack::DEVICE_CUDA | dlpack::DEVICE_CUDA_MANAGED);
    let stream = if waits { LEGACY_STREAM as i64 } else { NO_STREAM };
    let given = ask_for_capsule(object, is_on_gpu.then_some(stream))?;
    let capsule = given.cast::<PyCapsule>().map_err(|_| foreign(format!("__dlpack__ returned no capsule: {given}")))?;
    // The producer is kept alive too: some libraries free the memory with it. Some deleters need the interpreter.
    let producer = object.clone().unbind();
    let own = |structure: Owner| python_owner((structure, producer));
    let memory = if let Some(tensor) = take::<DLManagedTensorVersioned>(capsule)? {
        // SAFETY: the structure was taken out of its capsule. DLPack promises its memory until the deleter is called.
        unsafe { dlpack::import_versioned(tensor, own) }.py()?
    } else if let Some(tensor) = take::<DLManagedTensor>(capsule)? {
        // SAFETY: as above.
        unsafe { dlpack::import_legacy(tensor, own) }.py()?
    } else {
        return Err(foreign("the capsule has no DLPack structure, or another consumer has taken it"));
    };
    if waits && memory.device() != Device::Cpu {
        py.unlocked(|| wait(memory.device(), LEGACY_STREAM)).py()?;
    }
    Ok(memory)
}

/// Returns another library's stream for our calls.
pub fn stream(device: Device, handle: usize) -> cuzarr_device::Result<Stream> {
    // SAFETY: callers keep their stream alive until its work is done, as every library requires.
    unsafe { Stream::from_raw(device, handle, None) }
}

/// Waits until all work on another library's stream is done, so that its memory is ready on all our streams.
fn wait(device: Device, handle: usize) -> cuzarr_device::Result<()> {
    stream(device, handle)?.synchronize()
}

/// Returns the dictionary `__cuda_array_interface__` for our memory.
pub fn cuda_array_interface<'py>(py: Python<'py>, buffer: &NdBuffer) -> PyResult<Bound<'py, PyDict>> {
    // Results are ready on every stream, so consumers need not wait for one.
    let interface = ArrayInterface::export(buffer, None).py()?;
    let members = PyDict::new(py);
    members.set_item("version", INTERFACE_VERSION)?;
    members.set_item("shape", PyTuple::new(py, &interface.shape)?)?;
    members.set_item("strides", interface.strides.map(|strides| PyTuple::new(py, strides)).transpose()?)?;
    members.set_item("typestr", interface.typestr)?;
    members.set_item("data", (interface.address, interface.read_only))?;
    members.set_item("stream", py.None())?;
    Ok(members)
}

/// Returns a member of a `__cuda_array_interface__` dictionary; `None` if it is missing or `None`.
fn member<'py, T: FromPyObjectOwned<'py>>(interface: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>> {
    match interface.get_item(name)?.filter(|value| !value.is_none()) {
        None => Ok(None),
        Some(value) => match value.extract::<T>() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(foreign(format!("__cuda_array_interface__ has no usable '{name}': {value}"))),
        },
    }
}

/// Imports the memory of an object from its dictionary `__cuda_array_interface__`. Without a device, the driver tells
/// which GPU owns the memory.
pub fn import_cuda_array_interface(
    py: Python<'_>,
    members: &Bound<'_, PyDict>,
    device: Option<&str>,
    owner: &Bound<'_, PyAny>,
) -> PyResult<NdBuffer> {
    let missing = |name: &str| foreign(format!("__cuda_array_interface__ has no '{name}'"));
    let version = member::<i64>(members, "version")?.unwrap_or(0);
    if !(0..=INTERFACE_VERSION).contains(&version) {
        let message = format!("got version {version} of the CUDA array interface, expected 0 to {INTERFACE_VERSION}");
        return Err(to_python(&unsupported(message).with_hint("hand the array over with DLPack")));
    }
    if member::<Py<PyAny>>(members, "mask")?.is_some() {
        let message = "got an array with a mask".to_string();
        return Err(to_python(&unsupported(message).with_hint("fill in the masked elements first")));
    }
    let (address, read_only) = member::<(usize, bool)>(members, "data")?.ok_or_else(|| missing("data"))?;
    let interface = ArrayInterface {
        typestr: member(members, "typestr")?.ok_or_else(|| missing("typestr"))?,
        shape: member(members, "shape")?.ok_or_else(|| missing("shape"))?,
        strides: member(members, "strides")?,
        address,
        read_only,
        stream: member(members, "stream")?,
    };
    if interface.stream == Some(0) {
        return Err(foreign(
            "__cuda_array_interface__ names stream 0, which is ambiguous; expected 1, 2 or a CUstream",
        ));
    }
    let device = match device {
        Some(device) => parse_device(device)?,
        None if interface.address == 0 => Device::Cuda(0),
        None => Device::of_address(interface.address).py()?,
    };
    // SAFETY: the interface promises this memory for as long as its object lives.
    let memory = unsafe { interface.import(device, python_owner(owner.clone().unbind())) }.py()?;
    if let (Some(stream), false) = (interface.stream, device == Device::Cpu) {
        py.unlocked(|| wait(device, stream)).py()?;
    }
    Ok(memory)
}
