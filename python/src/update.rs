//! Updates for Python: a `with` block that reads and writes elements while other writes in the process wait.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::CancellationToken;
use cuzarr::node::{Array, Update};
use cuzarr::plan::Selection;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::PyResult;
use crate::interrupt::interruptible;
use crate::ndbuffer::PyNdBuffer;
use crate::strings;

/// An update of a selection, such as `a[i] += 1`, which no other write may interrupt. Other writes to the same stored
/// objects wait until its `with` block ends.
#[pyclass(name = "Update", module = "cuzarr._core", frozen)]
pub struct PyUpdate {
    update: Mutex<Option<Arc<Update>>>,
    token: CancellationToken,
}

#[pymethods]
impl PyUpdate {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) {
        self.update.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Writes elements to the selection of the update. They are broadcast to the selection's shape.
    fn write(&self, py: Python<'_>, value: &PyNdBuffer) -> PyResult<()> {
        let (update, value) = (self.update()?, value.inner.clone());
        interruptible(py, &self.token, || update.write_buffer(&value))
    }

    /// Writes elements of variable length, given in C order, to the selection of the update.
    fn write_variable(&self, py: Python<'_>, elements: &Bound<'_, PyList>, text: bool) -> PyResult<()> {
        let (update, elements) = (self.update()?, strings::from_list(elements, text)?);
        interruptible(py, &self.token, || update.write_variable(&elements))
    }
}

impl PyUpdate {
    /// Begins an update: waits until other writes to the selection's stored objects are done.
    pub fn begin(py: Python<'_>, array: Array, selection: Selection) -> PyResult<PyUpdate> {
        let token = array.options().cancellation.clone();
        let update = interruptible(py, &token, || array.update(&selection))?;
        Ok(PyUpdate { update: Mutex::new(Some(Arc::new(update))), token })
    }

    fn update(&self) -> PyResult<Arc<Update>> {
        let update = self.update.lock().unwrap_or_else(PoisonError::into_inner);
        update.clone().ok_or_else(|| PyValueError::new_err("the update has ended"))
    }
}
