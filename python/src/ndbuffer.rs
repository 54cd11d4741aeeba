//! N-dimensional arrays in the memory of a device, as objects of Python. They support the buffer protocol, DLPack and
//! the CUDA array interface.

use std::ffi::{c_int, c_void};

use cuzarr::{Error, ErrorKind};
use cuzarr_device::internal::pool;
use cuzarr_device::{Buffer, Device, ElementRange, Layout, NdBuffer, Order, Scan, dlpack, nonzero_indices};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrow;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::foreign::{self, export_error, python_owner};
use crate::names::{parse_device, parse_dtype};

/// An n-dimensional array in the memory of a device.
#[pyclass(name = "NdBuffer", module = "cuzarr._core", frozen)]
pub struct PyNdBuffer {
    /// The array of the Rust library that this object makes available to Python.
    pub inner: NdBuffer,
}

fn parse_order(name: &str) -> Order {
    if name == "F" { Order::F } else { Order::C }
}

/// The bytes of an array's packed elements, as a buffer.
pub fn elements(array: &NdBuffer) -> cuzarr::Result<Buffer> {
    let start = array.layout().offset_bytes();
    Ok(array.buffer().slice(start..start + array.size_bytes())?)
}

impl PyNdBuffer {
    /// The range of bytes that the elements occupy in the buffer: offset of the first byte, and end of the last one.
    fn span(&self) -> (usize, usize) {
        // Constructors checked that the span lies inside the memory.
        let first = self.inner.layout().offset_bytes();
        self.inner.layout().span_bytes().unwrap_or((first, first))
    }
}

#[pymethods]
impl PyNdBuffer {
    /// Allocates an array without setting its elements.
    #[staticmethod]
    fn empty(py: Python<'_>, shape: Vec<usize>, dtype: &str, device: &str, order: &str) -> PyResult<Self> {
        let (dtype, device) = (parse_dtype(dtype)?, parse_device(device)?);
        let order = parse_order(order);
        Ok(PyNdBuffer { inner: py.unlocked(|| NdBuffer::empty(device, dtype, &shape, order)).py()? })
    }

    /// Allocates an array of zero bytes in pinned host memory.
    #[staticmethod]
    fn pinned(py: Python<'_>, shape: Vec<usize>, dtype: &str, device: &str) -> PyResult<Self> {
        let (dtype, device) = (parse_dtype(dtype)?, parse_device(device)?);
        Ok(PyNdBuffer { inner: py.unlocked(|| NdBuffer::pinned(device, dtype, &shape, Order::C)).py()? })
    }

    /// Makes an array over the host memory of a Python object. `address` is that of the first element.
    #[staticmethod]
    fn wrap(
        address: usize,
        shape: Vec<usize>,
        strides: Vec<isize>,
        dtype: &str,
        read_only: bool,
        owner: Py<PyAny>,
    ) -> PyResult<Self> {
        let (dtype, owner) = (parse_dtype(dtype)?, python_owner(owner));
        // SAFETY: only `host_view` and `wrap_host` of `cuzarr._memory.foreign` call this. They pass a NumPy array's own
        // address, shape, strides and flag, and the array as owner.
        let inner = unsafe { dlpack::wrap(Device::Cpu, dtype, address, &shape, &strides, owner, read_only) }.py()?;
        Ok(PyNdBuffer { inner })
    }

    /// Makes an array over the memory of an object whose `__cuda_array_interface__` is `interface`. Waits for the
    /// stream that the interface names. Without a device, the driver tells which GPU owns the memory.
    #[staticmethod]
    fn from_cuda_array_interface(
        py: Python<'_>,
        interface: &Bound<'_, PyDict>,
        device: Option<&str>,
        owner: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: foreign::import_cuda_array_interface(py, interface, device, owner)? })
    }

    /// Returns the dictionary of `__cuda_array_interface__` for this memory.
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        foreign::cuda_array_interface(py, &self.inner)
    }

    /// Makes an array over the memory of an object that has the method `__dlpack__`. Without `waits`, the producer's work
    /// on the memory may still run.
    #[staticmethod]
    #[pyo3(signature = (object, waits=true))]
    fn from_dlpack(py: Python<'_>, object: &Bound<'_, PyAny>, waits: bool) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: foreign::import(py, object, waits)? })
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

    /// The address of the array's first element in host or device memory. The caller may use it on any stream.
    #[getter]
    fn address(&self) -> usize {
        pool::mark_shared(self.inner.buffer());
        self.inner.address()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.size_bytes()
    }

    /// Copies the elements to another device. Returns this object if they are already there.
    fn to(slf: PyRef<'_, Self>, py: Python<'_>, device: &str) -> PyResult<Py<Self>> {
        let device = parse_device(device)?;
        if slf.inner.device() == device {
            return Ok(slf.into());
        }
        let inner = slf.inner.clone();
        let moved = py.unlocked(|| inner.to_device(device)).py()?;
        Py::new(py, PyNdBuffer { inner: moved })
    }

    /// Whether the array's memory must not be written.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    /// Returns the elements, in C order, with another shape. Returns a view if possible, else a copy.
    fn reshape(&self, py: Python<'_>, shape: Vec<usize>) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.reshape_copy(&shape)).py()? })
    }

    /// A view of elements of one-dimensional memory, starting at `first`, with shape `shape` in C order.
    fn part(&self, first: usize, shape: Vec<usize>) -> PyResult<Self> {
        let (inner, width) = (&self.inner, self.inner.dtype().size_bytes());
        let step = inner.strides().first().copied().unwrap_or(width as isize);
        let mut strides = vec![step; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim] as isize;
        }
        let offset = inner.layout().offset_bytes().checked_add_signed(first as isize * step).unwrap_or(usize::MAX);
        let layout = Layout::strided(&shape, &strides, offset, width, inner.buffer().size_bytes()).py()?;
        Ok(PyNdBuffer { inner: NdBuffer::from_parts(inner.buffer().clone(), inner.dtype(), layout).py()? })
    }

    /// A view with reordered dimensions: dimension `i` is dimension `axes[i]` of this buffer.
    fn transpose(&self, axes: Vec<usize>) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: self.inner.transpose(&axes).py()? })
    }

    /// A view of a box of the array, without the dimensions `dropped`.
    fn region(&self, start: Vec<usize>, count: Vec<usize>, step: Vec<usize>, dropped: Vec<usize>) -> PyResult<Self> {
        let inner = self.inner.region(&start, &count, &step).and_then(|region| region.squeeze(&dropped)).py()?;
        Ok(PyNdBuffer { inner })
    }

    /// A view of the same bits as elements of another type. If its size differs, the length of the last dimension
    /// changes.
    fn reinterpret(&self, dtype: &str) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: self.inner.reinterpret(parse_dtype(dtype)?).py()? })
    }

    /// A packed copy of the array, converted to another type.
    fn astype(&self, py: Python<'_>, dtype: &str, order: &str) -> PyResult<Self> {
        let (dtype, order) = (parse_dtype(dtype)?, parse_order(order));
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.astype(dtype, order)).py()? })
    }

    /// A packed copy of the array.
    fn copy(&self, py: Python<'_>, order: &str) -> PyResult<Self> {
        let order = parse_order(order);
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.copy(order)).py()? })
    }

    /// Copies the elements of an array on any device into this one. Broadcasts them, and converts them if the types
    /// differ.
    fn copy_from(&self, py: Python<'_>, source: &PyNdBuffer) -> PyResult<()> {
        let copy = || self.inner.copy_from_cast(&source.inner.broadcast_to(self.inner.shape())?);
        py.unlocked(copy).py()
    }

    /// Returns whole slices of the array: those at the given indices along a dimension, in new memory. The indices are
    /// 8-byte integers on the host.
    fn take(&self, py: Python<'_>, axis: usize, indices: &PyNdBuffer) -> PyResult<Self> {
        let take = || self.inner.take(axis, &indices.inner.host_slice::<u64>()?);
        Ok(PyNdBuffer { inner: py.unlocked(take).py()? })
    }

    /// Writes whole slices of the array: those at the given indices along a dimension. The values are broadcast, and
    /// converted if types differ.
    fn put(&self, py: Python<'_>, axis: usize, indices: &PyNdBuffer, values: &PyNdBuffer) -> PyResult<()> {
        let put = || self.inner.put(axis, &indices.inner.host_slice::<u64>()?, &values.inner);
        py.unlocked(put).py()
    }

    /// Copies ranges of elements of other arrays into this one; all arrays have one dimension and the same element
    /// type. `ranges` are 8-byte integers on the host, of shape (ranges, 4): the number of the array, the range's first
    /// element there and here, and its number of elements.
    fn copy_ranges(&self, py: Python<'_>, sources: Vec<PyRef<'_, PyNdBuffer>>, ranges: &PyNdBuffer) -> PyResult<()> {
        let sources: Vec<NdBuffer> = sources.iter().map(|source| source.inner.clone()).collect();
        let copy = || {
            let ranges = ranges.inner.host_slice::<u64>()?;
            let range = |of: &[u64]| ElementRange {
                source: of[0] as usize,
                start: of[1] as usize,
                target: of[2] as usize,
                len: of[3] as usize,
            };
            self.inner.copy_ranges(&sources, &ranges.chunks_exact(4).map(range).collect::<Vec<_>>())
        };
        py.unlocked(copy).py()
    }

    /// Returns one element for each index, with that index along a dimension, in new memory (NumPy's
    /// `take_along_axis`). The indices are 8-byte integers on the same device. Their other extents are this buffer's,
    /// or all 1.
    fn gather(&self, py: Python<'_>, axis: usize, indices: &PyNdBuffer) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.gather(axis, &indices.inner)).py()? })
    }

    /// Writes one element for each index, with that index along a dimension (NumPy's `put_along_axis`). The indices are
    /// 8-byte integers on the same device. The values are broadcast, and converted if types differ.
    fn scatter(&self, py: Python<'_>, axis: usize, indices: &PyNdBuffer, values: &PyNdBuffer) -> PyResult<()> {
        py.unlocked(|| self.inner.scatter(axis, &indices.inner, &values.inner)).py()
    }

    /// The C-order positions of the true elements, as 8-byte integers on the same device.
    fn nonzero(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.unlocked(|| nonzero_indices(&self.inner)).py()? })
    }

    /// The indices that sort the elements along a dimension, as 8-byte integers.
    fn argsort(&self, py: Python<'_>, axis: usize, is_descending: bool) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.argsort(axis, is_descending)).py()? })
    }

    /// Computes the matrix product of this array with `other`. The last two dimensions are the matrices; the others are
    /// broadcast.
    fn matmul(&self, py: Python<'_>, other: &PyNdBuffer) -> PyResult<Self> {
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.matmul(&other.inner)).py()? })
    }

    /// Computes running sums along a dimension, or running products if `is_product`.
    fn scan(&self, py: Python<'_>, axis: usize, is_product: bool) -> PyResult<Self> {
        let operation = if is_product { Scan::Product } else { Scan::Sum };
        Ok(PyNdBuffer { inner: py.unlocked(|| self.inner.scan(axis, operation)).py()? })
    }

    /// Sets every element of the array to the value with the bytes `element`.
    fn fill(&self, py: Python<'_>, element: &[u8]) -> PyResult<()> {
        py.unlocked(|| self.inner.fill(element)).py()
    }

    /// Whether two arrays have the same shape and type, and equal elements. The comparison runs on this buffer's
    /// device.
    fn all_equal(&self, py: Python<'_>, other: &PyNdBuffer, equal_nan: bool) -> PyResult<bool> {
        py.unlocked(|| self.inner.all_equal(&other.inner, equal_nan)).py()
    }

    /// Whether every element of the array equals the one with the bytes `element`. With `equal_nan`, NaN equals NaN.
    fn all_equal_element(&self, py: Python<'_>, element: &[u8], equal_nan: bool) -> PyResult<bool> {
        py.unlocked(|| self.inner.all_equal_element(element, equal_nan)).py()
    }

    /// Exports one-dimensional elements in host memory as an Arrow array: the capsules of its schema and of its
    /// elements.
    fn arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        arrow::fixed(py, &self.inner)
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
        let request = foreign::Request { stream, max_version, device: dl_device, copy };
        foreign::export(py, &self.inner, &request)
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        foreign::dlpack_device(self.inner.device())
    }

    /// Offset in bytes of the array's first element from the start of the memory that Python's buffer protocol shows.
    #[getter]
    fn offset_bytes(&self) -> usize {
        self.inner.layout().offset_bytes() - self.span().0
    }

    /// Lends the array to Python's buffer protocol: as flat bytes from the lowest to the highest element. The memory
    /// must be on the host.
    ///
    /// # Safety
    /// The interpreter calls this with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let inner = &slf.get().inner;
        if !inner.device().is_host_accessible() {
            let message = format!("the memory is on {}, but the buffer protocol is for host memory", inner.device());
            let error =
                Error::new(ErrorKind::Unsupported, message).with_hint("copy the elements to the host with .cpu()");
            return Err(export_error(slf.py(), &error));
        }
        let (low, end) = slf.get().span();
        // A layout's span fits `isize`.
        let size = (end - low) as ffi::Py_ssize_t;
        // SAFETY: the interpreter owns `view`. The memory lives as long as this object, to which the view holds a reference.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                (inner.buffer().address() + low) as *mut c_void,
                size,
                c_int::from(inner.is_read_only()),
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    /// Ends the use of this array's memory through Python's buffer protocol. Nothing needs to be done: `__getbuffer__`
    /// takes no resource that must be returned.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.NdBuffer {} {:?} on {}>", self.inner.dtype(), self.inner.shape(), self.inner.device())
    }
}
