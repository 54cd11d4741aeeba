//! N-d memory as Python holds it: over the buffer protocol, DLPack and the CUDA array interface.

use std::ffi::{c_int, c_void};

use cuzarr::{Error, ErrorKind};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order, Owner, pool};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::dlpack;
use crate::error::{IntoPython, PyResult};

/// N-d memory on a device.
#[pyclass(name = "NdBuffer", module = "cuzarr._core", frozen)]
pub struct PyNdBuffer {
    /// The memory.
    pub inner: NdBuffer,
}

/// A Python object that owns memory; it may be given up on any thread.
struct PythonOwner(Option<Py<PyAny>>);

impl Drop for PythonOwner {
    fn drop(&mut self) {
        // Given up while the interpreter is attached, or it would live until somebody attaches to it next. When the interpreter
        // has ended before a thread let go of the memory, the object ends with the process.
        let mut object = self.0.take();
        Python::try_attach(|_| drop(object.take()));
        std::mem::forget(object);
    }
}

/// Memory that a Python object owns.
///
/// # Safety
/// These bytes lie on `device` and live as long as `owner`.
pub unsafe fn foreign_memory(device: Device, address: usize, size_bytes: usize, owner: Py<PyAny>) -> Buffer {
    // SAFETY: the caller's promise.
    unsafe { Buffer::from_raw(device, address, size_bytes, python_owner(owner)) }
}

/// A Python object that owns memory; dropping it takes the interpreter's lock.
pub fn python_owner(owner: Py<PyAny>) -> Owner {
    Box::new(PythonOwner(Some(owner)))
}

/// An element type by its name: `float32`, `opaque12`.
pub fn parse_dtype(name: &str) -> PyResult<DType> {
    if let Some(size_bytes) = name.strip_prefix("opaque").and_then(|size| size.parse().ok()) {
        return Ok(DType::opaque(size_bytes));
    }
    DType::NUMBERS
        .into_iter()
        .find(|dtype| dtype.to_string() == name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown element type '{name}'")))
}

/// A device by its name.
pub fn parse_device(name: &str) -> PyResult<Device> {
    name.parse::<Device>().py()
}

fn parse_order(name: &str) -> Order {
    if name == "F" { Order::F } else { Order::C }
}

impl PyNdBuffer {
    /// Memory that a Python object owns.
    ///
    /// # Safety
    /// The elements at these strides from `address` lie in memory on `device` that lives as long as `owner`.
    pub unsafe fn from_owner(
        device: Device,
        address: usize,
        shape: &[usize],
        strides: &[isize],
        dtype: DType,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let mut low = 0_isize;
        let mut high = 0_isize;
        if !shape.contains(&0) {
            for (&extent, &stride) in shape.iter().zip(strides) {
                let reach = isize::try_from(extent - 1).ok().and_then(|last| stride.checked_mul(last));
                let reach = reach.ok_or_else(|| PyValueError::new_err("strides leave the address space"))?;
                if reach < 0 { low += reach } else { high += reach }
            }
        }
        let size_bytes = if shape.contains(&0) { 0 } else { (high - low).unsigned_abs() + dtype.size_bytes() };
        let start = address.wrapping_add_signed(low);
        // SAFETY: the caller's promise, for the bytes from the lowest element to the end of the highest.
        let buffer = unsafe { foreign_memory(device, start, size_bytes, owner) };
        let layout = Layout::strided(shape, strides, low.unsigned_abs(), dtype.size_bytes(), size_bytes).py()?;
        Ok(PyNdBuffer { inner: NdBuffer::from_parts(buffer, dtype, layout).py()? })
    }
}

#[pymethods]
impl PyNdBuffer {
    /// Memory without meaning yet.
    #[staticmethod]
    fn empty(py: Python<'_>, shape: Vec<usize>, dtype: &str, device: &str, order: &str) -> PyResult<Self> {
        let (dtype, device) = (parse_dtype(dtype)?, parse_device(device)?);
        let order = parse_order(order);
        Ok(PyNdBuffer { inner: py.detach(|| NdBuffer::empty(device, dtype, &shape, order)).py()? })
    }

    /// Memory of a Python object, by address; for host memory only.
    #[staticmethod]
    fn wrap(
        address: usize,
        shape: Vec<usize>,
        strides: Vec<isize>,
        dtype: &str,
        device: &str,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let (dtype, device) = (parse_dtype(dtype)?, parse_device(device)?);
        // SAFETY: `cuzarr._convert.wrap_host` alone calls this, with a NumPy array's own address, shape and strides, and
        // the array as owner.
        unsafe { PyNdBuffer::from_owner(device, address, &shape, &strides, dtype, owner) }
    }

    /// Memory of an object with `__cuda_array_interface__`, which is `interface`; waits for the stream it names.
    #[staticmethod]
    fn from_cuda_array_interface(
        py: Python<'_>,
        interface: &Bound<'_, PyDict>,
        device: &str,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        dlpack::import_cuda_array_interface(py, interface, parse_device(device)?, owner)
    }

    /// Memory of an object with `__dlpack__`.
    #[staticmethod]
    fn from_dlpack(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        dlpack::import(py, object)
    }

    #[getter]
    fn device(&self) -> String {
        self.inner.device().to_string()
    }

    #[getter]
    fn dtype(&self) -> String {
        self.inner.dtype().to_string()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.strides())
    }

    /// Address of the first element. Who asks may use it on any stream.
    #[getter]
    fn address(&self) -> usize {
        pool::mark_shared(self.inner.buffer());
        self.inner.address()
    }

    /// Bytes that the elements fill.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.size_bytes()
    }

    /// The elements on another device; this object when they are there.
    fn to(slf: PyRef<'_, Self>, py: Python<'_>, device: &str) -> PyResult<Py<Self>> {
        let device = parse_device(device)?;
        if slf.inner.device() == device {
            return Ok(slf.into());
        }
        let inner = slf.inner.clone();
        let moved = py.detach(|| inner.to_device(device)).py()?;
        Py::new(py, PyNdBuffer { inner: moved })
    }

    /// Whether writing is refused.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    /// A view under another shape, elements in C order; a copy where a view is not possible.
    fn reshape(&self, py: Python<'_>, shape: Vec<usize>) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.detach(|| self.inner.reshape_copy(&shape)).py()? })
    }

    /// A view whose dimension `i` is dimension `axes[i]` of this one.
    fn transpose(&self, axes: Vec<usize>) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: self.inner.transpose(&axes).py()? })
    }

    /// A view of a box, without the dimensions that `dropped` names.
    fn region(&self, start: Vec<usize>, count: Vec<usize>, step: Vec<usize>, dropped: Vec<usize>) -> PyResult<Self> {
        let inner = self.inner.region(&start, &count, &step).and_then(|region| region.squeeze(&dropped)).py()?;
        Ok(PyNdBuffer { inner })
    }

    /// The same bits as another type; where its size is another, the last dimension has more or fewer elements.
    fn reinterpret(&self, dtype: &str) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: self.inner.reinterpret(parse_dtype(dtype)?).py()? })
    }

    /// A packed copy with converted elements.
    fn astype(&self, py: Python<'_>, dtype: &str, order: &str) -> PyResult<Self> {
        let (dtype, order) = (parse_dtype(dtype)?, parse_order(order));
        Ok(PyNdBuffer { inner: py.detach(|| self.inner.astype(dtype, order)).py()? })
    }

    /// A packed copy.
    fn copy(&self, py: Python<'_>, order: &str) -> PyResult<Self> {
        let order = parse_order(order);
        Ok(PyNdBuffer { inner: py.detach(|| self.inner.copy(order)).py()? })
    }

    /// Copies elements from any device; they broadcast, and are converted where the types differ.
    fn copy_from(&self, py: Python<'_>, source: &PyNdBuffer) -> PyResult<()> {
        let copy = || self.inner.copy_from_cast(&source.inner.broadcast_to(self.inner.shape())?);
        py.detach(copy).py()
    }

    /// Sets every element to the one with these bytes.
    fn fill(&self, py: Python<'_>, element: &[u8]) -> PyResult<()> {
        py.detach(|| self.inner.fill(element)).py()
    }

    /// Whether shape, type and every element are equal, compared where this one is.
    fn all_equal(&self, py: Python<'_>, other: &PyNdBuffer, equal_nan: bool) -> PyResult<bool> {
        py.detach(|| self.inner.all_equal(&other.inner, equal_nan)).py()
    }

    /// Whether every element has these bits.
    fn all_equal_element(&self, py: Python<'_>, element: &[u8], equal_nan: bool) -> PyResult<bool> {
        py.detach(|| self.inner.all_equal_element(element, equal_nan)).py()
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Results are ready on every stream before anybody holds them.
        let _ = stream;
        dlpack::export(py, &self.inner, max_version, dl_device, copy)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::device_of(self.inner.device())
    }

    /// The bytes from the first element on, flat, when they are in host memory.
    ///
    /// # Safety
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let inner = &slf.get().inner;
        if !inner.device().is_host_accessible() {
            return Err(PyBufferError::new_err(format!("the bytes are on {}", inner.device())));
        }
        let span = inner.layout().span_bytes().filter(|&(low, _)| low == inner.layout().offset_bytes());
        let Some((low, end)) = span else {
            return Err(PyBufferError::new_err("elements lie before the first one"));
        };
        let size = ffi::Py_ssize_t::try_from(end - low).map_err(|_| PyBufferError::new_err("too large"))?;
        // SAFETY: `view` is the interpreter's; the memory lives as long as this object, to which the view holds a reference.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                inner.address() as *mut c_void,
                size,
                c_int::from(inner.is_read_only()),
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// Nothing was taken by `__getbuffer__`.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.NdBuffer {} {:?} on {}>", self.inner.dtype(), self.inner.shape(), self.inner.device())
    }
}

/// An error about memory handed over by Python.
pub fn foreign(message: impl Into<String>) -> PyErr {
    crate::error::to_python(&Error::new(ErrorKind::InvalidArgument, message))
}
