//! JSON values between Python and the library.

use std::collections::HashMap;

use cuzarr::meta::{Json, Object};
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::Value;

use crate::error::{IntoPython, PyResult};

/// Largest nesting depth of lists and dictionaries that are converted to JSON; deeper ones are refused, because they
/// could not be read again.
const MAX_DEPTH: usize = 128;

/// Python strings for the member names of JSON objects. Each is made once.
pub type Names<'a, 'py> = HashMap<&'a str, Bound<'py, PyString>>;

/// Converts a JSON object to a dictionary.
pub fn to_dict<'a, 'py>(
    py: Python<'py>,
    members: &'a Object,
    names: &mut Names<'a, 'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, member) in members {
        let value = named(py, member, names)?;
        let name = names.entry(name).or_insert_with(|| PyString::new(py, name));
        dict.set_item(&*name, value)?;
    }
    Ok(dict)
}

/// Converts a JSON value of a metadata document to a Python value.
pub fn to_python<'py>(py: Python<'py>, value: &Json) -> PyResult<Bound<'py, PyAny>> {
    named(py, value, &mut Names::new())
}

/// Converts a JSON value of `serde_json` to a Python value.
pub fn to_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &Json::from_value(value).py()?)
}

/// Converts a Python value to a JSON value of `serde_json`. It must be a value that Python's `json` can write.
pub fn from_value(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(from_python(value, 0)?.to_value())
}

fn named<'a, 'py>(py: Python<'py>, value: &'a Json, names: &mut Names<'a, 'py>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Json::Null => py.None().into_bound(py),
        Json::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Json::Number(text) => number(py, text)?,
        Json::String(text) => PyString::new(py, text).into_any(),
        Json::Array(elements) => {
            let list = PyList::empty(py);
            for element in elements {
                list.append(named(py, element, names)?)?;
            }
            list.into_any()
        }
        Json::Object(members) => to_dict(py, members, names)?.into_any(),
    })
}

fn number<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(integer.into_pyobject(py)?.into_any());
    }
    if text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) {
        let message = |error: PyErr| Error::new(ErrorKind::MetadataInvalid, format!("not JSON: {error}"));
        return py.get_type::<PyInt>().call1((text,)).map_err(message).py();
    }
    // Rust parses Python's text for numbers that are not finite, and rounds as Python does.
    let message = || Error::new(ErrorKind::MetadataInvalid, format!("not JSON: '{text}' is no number"));
    Ok(PyFloat::new(py, text.parse().map_err(|_| message()).py()?).into_any())
}

/// Converts a dictionary to a JSON object, with values written as Python's `json` writes them. NumPy scalars and arrays
/// become numbers and lists.
pub fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<Object> {
    object(dict, 0)
}

/// Returns a dictionary as it would be read back from a stored document, with strings as names and JSON's types as
/// values.
#[pyfunction]
pub fn plain_json<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    to_dict(dict.py(), &from_dict(dict)?, &mut Names::new())
}

fn refused(what: impl std::fmt::Display) -> PyErr {
    let error = Error::new(ErrorKind::InvalidArgument, format!("metadata cannot be written as JSON: {what}"));
    crate::error::to_python(&error)
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string())
}

fn object(dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<Object> {
    if depth > MAX_DEPTH {
        return Err(refused(format!("more than {MAX_DEPTH} containers lie in each other")));
    }
    let mut members = Object::with_capacity(dict.len());
    for (name, member) in dict {
        members.insert(key(&name)?, from_python(&member, depth + 1)?);
    }
    Ok(members)
}

fn key(name: &Bound<'_, PyAny>) -> PyResult<String> {
    match scalar(name)? {
        Some(Json::String(text) | Json::Number(text)) => Ok(text),
        Some(Json::Bool(value)) => Ok(value.to_string()),
        Some(Json::Null) => Ok("null".into()),
        _ => Err(refused(format!("keys must be str, int, float, bool or None, not {}", type_name(name)))),
    }
}

fn from_python(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Json> {
    if let Some(scalar) = scalar(value)? {
        return Ok(scalar);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return object(dict, depth).map(Json::Object);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        if depth > MAX_DEPTH {
            return Err(refused(format!("more than {MAX_DEPTH} containers lie in each other")));
        }
        let elements = value.try_iter()?.map(|element| from_python(&element?, depth + 1));
        return elements.collect::<PyResult<_>>().map(Json::Array);
    }
    let numpy = value.py().import("numpy")?;
    if value.is_instance(&numpy.getattr("generic")?)? || value.is_instance(&numpy.getattr("ndarray")?)? {
        let plain = value.call_method0("tolist")?;
        // `tolist` returns a scalar unchanged if Python has no type for it.
        if !plain.is_instance(&numpy.getattr("generic")?)? {
            return from_python(&plain, depth + 1);
        }
    }
    Err(refused(format!("{} has no JSON form", type_name(value))))
}

/// Converts a Python value that is not a list or dictionary; `None` for those.
fn scalar(value: &Bound<'_, PyAny>) -> PyResult<Option<Json>> {
    Ok(Some(if value.is_none() {
        Json::Null
    } else if let Ok(text) = value.cast::<PyString>() {
        Json::String(text.to_str().map_err(refused)?.to_owned())
    } else if let Ok(value) = value.cast::<PyBool>() {
        Json::Bool(value.is_true())
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(integer) => Json::Number(integer.to_string()),
            // Writes the number itself, even if its class has another `__repr__`.
            Err(_) => Json::Number(value.py().get_type::<PyInt>().call_method1("__repr__", (value,))?.extract()?),
        }
    } else if let Ok(float) = value.cast::<PyFloat>() {
        let number = float.value();
        Json::Number(match number.is_finite() {
            true => PyFloat::new(value.py(), number).repr()?.extract()?,
            false if number.is_nan() => "NaN".into(),
            false => if number > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        })
    } else {
        return Ok(None);
    }))
}
