//! Carriers of copies: Python functions that distribute the regions of a copy to the workers of a cluster.

use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::node::{Array, ArrayOptions};
use cuzarr::plan::Region;
use cuzarr::store::Store;
use cuzarr::{Error, ErrorKind};
use cuzarr_compute::{Carrier, Pass, Rest};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator};

use crate::ending::{Unlocked, attach};
use crate::error::{IntoPython, PyResult};

/// A Python function that copies the boxes of an array in other processes, such as the workers of a cluster. It gets
/// both ends of the copy, options, the memory limit, factors with method, ranges of the source, and boxes. It returns
/// an iterator that yields once for each copied box, in the order of the boxes.
pub struct Elsewhere {
    function: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Elsewhere {
    /// Runs a copy of an array (`work`) on this thread, without the interpreter's lock; the Python function `function`
    /// copies the array's boxes. An exception of the function is raised unchanged.
    pub fn run(
        py: Python<'_>,
        function: Py<PyAny>,
        work: impl FnOnce(&Elsewhere) -> cuzarr::Result<()> + Send,
    ) -> PyResult<()> {
        let carrier = Elsewhere { function, raised: Mutex::new(None) };
        let result = py.unlocked(|| work(&carrier));
        match carrier.raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(exception) => Err(exception),
            None => result.py(),
        }
    }

    fn python<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> cuzarr::Result<T> {
        attach(|py| {
            call(py).map_err(|exception| {
                *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
                Error::new(ErrorKind::Cancelled, "the regions were not copied")
            })
        })
    }

    fn begin(
        &self,
        py: Python<'_>,
        pass: &Pass,
        memory_limit_bytes: u64,
        boxes: Vec<(Vec<u64>, Vec<u64>)>,
    ) -> PyResult<Py<PyIterator>> {
        let (source, target) = (pass.source(), pass.target());
        let options = PyDict::new(py);
        options.set_item("memory_limit_bytes", target.options().memory_limit_bytes)?;
        options.set_item("write_empty_chunks", target.options().write_empty_chunks)?;
        let shrink = pass.shrink().map(|shrink| (shrink.factors.clone(), shrink.method.name()));
        let select = pass.selection().and_then(|selection| selection.axes());
        let select = select.map(|axes| axes.iter().map(|axis| (axis.start, axis.count, axis.step)).collect::<Vec<_>>());
        // A source in another store than the target belongs to the copy's source.
        let is_own = Arc::ptr_eq(source.store(), target.store());
        let ends = (end(py, source), is_own, end(py, target));
        let iterator = self.function.call1(py, (ends, options, memory_limit_bytes, shrink, select, boxes))?;
        Ok(iterator.bind(py).try_iter()?.unbind())
    }
}

/// Describes one array, the source or the target of a copy, for the Python function that copies its boxes: its path,
/// and the name and bytes of its main metadata document.
fn end(py: Python<'_>, array: &Array) -> (String, &'static str, Py<PyBytes>) {
    let documents = array.metadata().documents();
    let (name, document) = documents.first().map_or(("", &[][..]), |(name, bytes)| (*name, &bytes[..]));
    (array.path().to_string(), name, PyBytes::new(py, document).unbind())
}

impl Carrier for Elsewhere {
    fn prepare(&self, _options: &ArrayOptions, target: &Arc<dyn Store>) -> cuzarr::Result<()> {
        if !target.capabilities().transactional {
            return Ok(());
        }
        let message = format!("{target}: workers of a cluster cannot write here: the store commits all writes at once");
        Err(Error::new(ErrorKind::Unsupported, message).with_hint("leave out client="))
    }

    fn carry(
        &self,
        pass: &Pass,
        memory_limit_bytes: u64,
        rest: &mut Rest<'_>,
        done: &mut dyn FnMut(&Region, Option<u64>) -> cuzarr::Result<()>,
    ) -> cuzarr::Result<()> {
        let rest: Vec<(Region, Option<u64>)> = rest.collect::<cuzarr::Result<_>>()?;
        let boxes = rest.iter().map(|(region, _)| (region.start.clone(), region.extent.clone())).collect();
        let steps = self.python(|py| self.begin(py, pass, memory_limit_bytes, boxes))?;
        for (region, finished) in &rest {
            self.python(|py| match steps.clone_ref(py).into_bound(py).next() {
                Some(step) => step.map(|_| ()),
                None => Err(PyRuntimeError::new_err("the carrier ended before the last region")),
            })?;
            done(region, *finished)?;
        }
        Ok(())
    }
}
