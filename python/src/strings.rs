//! Elements of variable length as Python objects: lists of `str` or `bytes`, in C order.

use cuzarr::codec::VariableElements;
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyString};

use crate::error::{IntoPython, PyResult};

/// Converts elements of variable length to a Python list: of strings if they are `text`, else of bytes.
pub fn to_list<'py>(py: Python<'py>, elements: &VariableElements, text: bool) -> PyResult<Bound<'py, PyList>> {
    if !text {
        return PyList::new(py, elements.iter().map(|element| PyBytes::new(py, element)).collect::<Vec<_>>());
    }
    let list = PyList::empty(py);
    for element in elements.iter() {
        list.append(PyString::from_bytes(py, element)?)?;
    }
    Ok(list)
}

/// Converts a Python list of strings or bytes to elements of variable length. If they are `text`, `None` becomes an
/// empty string, and other objects are converted with `str`. Otherwise `None` and 0 become empty bytes, and strings are
/// encoded.
///
/// # Errors
/// `DTypeMismatch` for an element that is neither bytes nor text, in an array of bytes; exceptions of `str`.
pub fn from_list(list: &Bound<'_, PyList>, text: bool) -> PyResult<VariableElements> {
    let mut elements = VariableElements::with_capacity(list.len());
    for item in list {
        if let Ok(string) = item.cast::<PyString>() {
            elements.push(string.to_str()?.as_bytes());
        } else if item.is_none() {
            elements.push(&[]);
        } else if text {
            elements.push(item.str()?.to_str()?.as_bytes());
        } else if let Ok(bytes) = item.cast::<PyBytes>() {
            elements.push(bytes.as_bytes());
        } else if item.is_instance_of::<PyByteArray>() || item.is_instance_of::<PyMemoryView>() {
            elements.push(item.py().get_type::<PyBytes>().call1((&item,))?.cast::<PyBytes>()?.as_bytes());
        } else if item.eq(0)? {
            elements.push(&[]);
        } else {
            let message = format!("got an element of type {}, the array holds bytes", item.get_type().name()?);
            return Err(Error::new(ErrorKind::DTypeMismatch, message)).py();
        }
    }
    Ok(elements)
}
