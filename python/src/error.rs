//! Conversion between errors of the library and Python's exceptions.

use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The result of a function that Python calls: its error is a Python exception.
pub type PyResult<T> = pyo3::PyResult<T>;

/// Converts an error of the Rust library to a Python exception. The classes are written in Python (`cuzarr.errors`):
/// with the stable ABI of Python 3.11, a Rust class cannot derive from `ValueError` and other built-in exceptions.
pub fn to_python(error: &Error) -> PyErr {
    Python::attach(|py| match instance(py, error) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    })
}

/// Options of functions that are `True` or `False`.
const SWITCHES: [&str; 4] = ["overwrite", "resume", "skip_unreadable", "strict"];
/// Options of functions that have other values.
const OPTIONS: [&str; 2] = ["memory_limit", "only"];

/// Returns how Python writes an option that a hint names.
fn option(name: &str) -> Option<String> {
    match name {
        _ if SWITCHES.contains(&name) => Some(format!("{name}=True")),
        _ if OPTIONS.contains(&name) => Some(name.to_string()),
        _ => None,
    }
}

fn instance<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    if let Some(original) = source_exception(py, error) {
        return Ok(original.into_value(py).into_bound(py).into_any());
    }
    let others = error.others().iter().map(|other| instance(py, other)).collect::<PyResult<Vec<_>>>()?;
    py.import("cuzarr.errors")?.getattr("from_core")?.call1((
        error.kind().name(),
        error.message(),
        PyTuple::new(py, error.trail())?,
        error.clone().with_options_spelled(option).hint(),
        PyTuple::new(py, others)?,
    ))
}

/// Makes the Python exception for an argument of the wrong type.
pub fn wrong_type(py: Python<'_>, message: &str) -> PyErr {
    let made = py.import("cuzarr.errors").and_then(|errors| errors.getattr("ArgumentTypeError")?.call1((message,)));
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// The exception that a Python store or codec raised, if it should reach the user unchanged: one of cuzarr's own
/// exceptions, or an interrupt.
fn source_exception(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let source = error.source_as::<PyErr>()?;
    let ours = py.import("cuzarr.errors").and_then(|errors| errors.getattr("CuzarrError")).ok()?;
    let keep = source.is_instance(py, &ours) || !source.is_instance_of::<pyo3::exceptions::PyException>(py);
    keep.then(|| source.clone_ref(py))
}

/// Converts an exception from a Python store or codec, which the library called, to an error of the library.
pub fn from_python(py: Python<'_>, kind: ErrorKind, what: &str, exception: PyErr) -> Error {
    let value = exception.value(py);
    let mut told = value.repr().map_or_else(|_| "?".into(), |repr| repr.to_string());
    // Some exceptions have no arguments, but a text that describes what happened.
    if let (Some(name), Ok(text)) = (told.strip_suffix("()"), value.str()) {
        told = format!("{name}: {text}").trim_end_matches([':', ' ']).to_string();
    }
    let message = format!("{what}: {told}");
    Error::new(kind, message).telling(exception)
}

/// Converts the exception that ended a command of the command line to an error of the library.
pub fn of_command(py: Python<'_>, exception: &PyErr) -> Error {
    let value = exception.value(py);
    let text = |name: &str| value.getattr(name).ok()?.extract::<String>().ok();
    let kind = text("kind").and_then(|name| ErrorKind::ALL.iter().copied().find(|kind| kind.name() == name));
    let message = text("message").unwrap_or_else(|| value.to_string());
    let mut error = Error::new(kind.unwrap_or(ErrorKind::StoreFailed), message);
    let trail = value.getattr("trail").and_then(|trail| trail.extract::<Vec<String>>()).unwrap_or_default();
    for place in trail.into_iter().rev() {
        error = error.at(place);
    }
    match text("hint") {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Converts the result of each item of a batch to `None` for success, or to a Python exception.
pub fn exceptions(results: Vec<cuzarr::Result<()>>) -> Vec<Option<Py<PyAny>>> {
    let exception = |error| Python::attach(|py| to_python(&error).into_value(py).into_any());
    results.into_iter().map(|result| result.err().map(exception)).collect()
}

/// An extension of `Result` that converts errors of the library to Python exceptions: `result.py()?`.
pub trait IntoPython<T> {
    /// Converts an error in the result to a Python exception.
    fn py(self) -> PyResult<T>;
}

impl<T, E: Into<Error>> IntoPython<T> for Result<T, E> {
    fn py(self) -> PyResult<T> {
        self.map_err(|error| to_python(&error.into()))
    }
}
