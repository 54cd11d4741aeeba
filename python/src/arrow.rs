//! Exports elements as Apache Arrow arrays, through Arrow's PyCapsule interface. The capsules hold the structures of
//! its C data interface: <https://arrow.apache.org/docs/format/CDataInterface.html>. Elements that can be shared are
//! not copied: the Arrow array owns the memory that a read filled.

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use cuzarr::codec::VariableElements;
use cuzarr::{Error, ErrorKind};
use cuzarr_device::{DType, NdBuffer, Order};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyTuple};

use crate::error::{IntoPython, PyResult};

/// The C struct `ArrowSchema` of the Arrow C data interface.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

/// The C struct `ArrowArray` of the Arrow C data interface.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

/// Memory that an exported `ArrowArray` owns: its buffers, and their addresses.
struct Owned {
    /// The object that owns the memory of the exported array's buffers, and so keeps it alive. Only the consumer reads
    /// it.
    _memory: Box<dyn Any>,
    buffers: [*const c_void; 3],
}

/// One of the Arrow structs that a Python capsule can own.
trait Interface: Sized {
    const CAPSULE: &'static CStr;

    /// The function that frees what the struct owns; `None` after a consumer took it.
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Interface for Schema {
    const CAPSULE: &'static CStr = c"arrow_schema";

    fn release(&self) -> Option<unsafe extern "C" fn(*mut Schema)> {
        self.release
    }
}

impl Interface for Array {
    const CAPSULE: &'static CStr = c"arrow_array";

    fn release(&self) -> Option<unsafe extern "C" fn(*mut Array)> {
        self.release
    }
}

/// Exports elements of variable length to Arrow: as `large_string` if they are `text`, else as `large_binary`.
///
/// # Errors
/// `DTypeMismatch` for text that is not UTF-8, because consumers do not check it.
pub fn variable(py: Python<'_>, elements: VariableElements, text: bool) -> PyResult<Bound<'_, PyTuple>> {
    if text {
        check_text(&elements).py()?;
    }
    let elements = if elements.offsets.is_empty() { VariableElements::with_capacity(0) } else { elements };
    let (length, buffers) =
        (elements.len(), [ptr::null(), elements.offsets.as_ptr().cast(), elements.data.as_ptr().cast()]);
    let format = if text { c"U" } else { c"Z" };
    capsules(py, format, length, 3, Owned { _memory: Box::new(elements), buffers })
}

/// Exports one-dimensional elements in host memory to Arrow.
///
/// # Errors
/// `Unsupported` for a type that Arrow does not have, and for several dimensions; `MemorySpace` for GPU memory, because
/// consumers of this interface expect host memory.
pub fn fixed<'py>(py: Python<'py>, elements: &NdBuffer) -> PyResult<Bound<'py, PyTuple>> {
    if !elements.device().is_host_accessible() {
        let message =
            format!("elements are on {}, an array of Arrow's C data interface is in host memory", elements.device());
        return Err(Error::new(ErrorKind::MemorySpace, message).with_hint("copy them to the host first")).py();
    }
    let [length] = *elements.shape() else {
        let message = format!("an array of Arrow has one dimension, this one has {}", elements.ndim());
        return Err(Error::new(ErrorKind::Unsupported, message)).py();
    };
    if elements.dtype() == DType::BOOL {
        let bytes = elements.to_host_bytes(Order::C).py()?;
        let bits: Vec<u8> =
            bytes.chunks(8).map(|eight| eight.iter().rev().fold(0, |bits, one| bits << 1 | one)).collect();
        let buffers = [ptr::null(), bits.as_ptr().cast(), ptr::null()];
        return capsules(py, c"b", length, 2, Owned { _memory: Box::new(bits), buffers });
    }
    let Some(format) = format_of(elements.dtype()) else {
        let message = format!("Arrow has no type for elements of {}", elements.dtype());
        return Err(Error::new(ErrorKind::Unsupported, message)).py();
    };
    let elements = if elements.is_contiguous(Order::C) { elements.clone() } else { elements.copy(Order::C).py()? };
    let address = elements.address() as *const c_void;
    capsules(py, format, length, 2, Owned { _memory: Box::new(elements), buffers: [ptr::null(), address, ptr::null()] })
}

fn format_of(dtype: DType) -> Option<&'static CStr> {
    Some(match dtype {
        DType::INT8 => c"c",
        DType::UINT8 => c"C",
        DType::INT16 => c"s",
        DType::UINT16 => c"S",
        DType::INT32 => c"i",
        DType::UINT32 => c"I",
        DType::INT64 => c"l",
        DType::UINT64 => c"L",
        DType::FLOAT16 => c"e",
        DType::FLOAT32 => c"f",
        DType::FLOAT64 => c"g",
        _ => return None,
    })
}

fn check_text(elements: &VariableElements) -> Result<(), Error> {
    let all = std::str::from_utf8(&elements.data).ok();
    let is_text = all.is_some_and(|all| elements.offsets.iter().all(|&offset| all.is_char_boundary(offset as usize)));
    if is_text {
        return Ok(());
    }
    let first = elements.iter().position(|element| std::str::from_utf8(element).is_err()).unwrap_or_default();
    Err(Error::new(ErrorKind::DTypeMismatch, format!("element {first} is not UTF-8")))
}

/// Makes the capsules of an Arrow schema, and of an Arrow array of `length` elements with `n_buffers` buffers.
fn capsules<'py>(
    py: Python<'py>,
    format: &'static CStr,
    length: usize,
    n_buffers: i64,
    owned: Owned,
) -> PyResult<Bound<'py, PyTuple>> {
    let schema = Schema {
        format: format.as_ptr(),
        name: c"".as_ptr(),
        metadata: ptr::null(),
        flags: 0,
        n_children: 0,
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: ptr::null_mut(),
    };
    let owned = Box::into_raw(Box::new(owned));
    let array = Array {
        length: length as i64,
        null_count: 0,
        offset: 0,
        n_buffers,
        n_children: 0,
        // SAFETY: made just now. A field's place, no reference.
        buffers: unsafe { &raw mut (*owned).buffers }.cast(),
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: owned.cast(),
    };
    let capsules = [capsule(py, Box::new(schema))?, capsule(py, Box::new(array))?];
    PyTuple::new(py, capsules)
}

/// Makes a Python capsule that owns an Arrow struct. Consumers move the contents out and clear `release`.
fn capsule<T: Interface>(py: Python<'_>, structure: Box<T>) -> PyResult<Bound<'_, PyAny>> {
    let structure = Box::into_raw(structure);
    // SAFETY: the name lives as long as the program, and the destructor frees the structure once.
    let made = unsafe { ffi::PyCapsule_New(structure.cast(), T::CAPSULE.as_ptr(), Some(drop_capsule::<T>)) };
    // SAFETY: a new reference, or none with Python's error set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) };
    // SAFETY: without a capsule, nothing else owns the structure.
    made.inspect_err(|_| unsafe { free(structure) })
}

/// Frees an Arrow struct, and what it owns unless a consumer took it.
///
/// # Safety
/// The structure is boxed, and nothing else owns it.
unsafe fn free<T: Interface>(structure: *mut T) {
    // SAFETY: the caller's.
    let mut structure = unsafe { Box::from_raw(structure) };
    if let Some(release) = structure.release() {
        // SAFETY: the contents are there, since no consumer took them.
        unsafe { release(&raw mut *structure) };
    }
}

/// Frees the Arrow struct that a Python capsule owns, when Python frees the capsule.
///
/// # Safety
/// Python calls it, once, with a capsule that [`capsule`] made of a `T`.
unsafe extern "C" fn drop_capsule<T: Interface>(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule's own name.
    let structure = unsafe { ffi::PyCapsule_GetPointer(capsule, T::CAPSULE.as_ptr()) };
    if !structure.is_null() {
        // SAFETY: `capsule` put a boxed `T` there, which is freed here alone.
        unsafe { free(structure.cast::<T>()) };
    }
}

/// Marks an exported Arrow schema, which owns no memory, as released.
///
/// # Safety
/// The caller passes a schema that [`capsules`] made, once. The schema may have been moved to another address.
unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: the caller's. The schema owns nothing.
    unsafe { (*schema).release = None };
}

/// Frees the buffers of an exported Arrow array, and marks the array as released.
///
/// # Safety
/// The caller passes an array that [`capsules`] made, once. The array may have been moved to another address.
unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: the caller's. `capsules` put a boxed `Owned` there, which is freed here alone.
    unsafe {
        drop(Box::from_raw((*array).private_data.cast::<Owned>()));
        (*array).release = None;
    }
}
