//! Writers for Python: they take rows of arrays from a running program, and store them behind its back.

use std::process;
use std::sync::{Mutex, PoisonError};

use cuzarr::node::{Writer, WriterOptions};
use cuzarr::{CancellationToken, Error, ErrorKind};
use cuzarr_device::Device;
use pyo3::prelude::*;

use crate::array::PyArray;
use crate::error::{IntoPython, PyResult};
use crate::foreign;
use crate::interrupt::{here, interruptible};
use crate::ndbuffer::PyNdBuffer;
use crate::watch::Watches;

/// Takes rows of one or several arrays, and stores them on a thread of its own.
#[pyclass(name = "Writer", module = "cuzarr._core", frozen)]
pub struct PyWriter {
    writer: Mutex<Writer>,
    token: CancellationToken,
    process: u32,
}

#[pymethods]
impl PyWriter {
    /// Opens a writer for arrays, each with the number of the dimension along which rows are added. `region` is the start
    /// and the extent of the part that it fills.
    #[new]
    fn new(
        py: Python<'_>,
        arrays: Vec<(Bound<'_, PyArray>, usize)>,
        slots: usize,
        resume: bool,
        region: Option<(Vec<u64>, Vec<u64>)>,
    ) -> PyResult<Self> {
        let watches = Watches::current();
        let token = watches.token();
        let of = |(array, axis): (Bound<'_, PyArray>, usize)| (watches.array(array.get().array(), &token), axis);
        let (arrays, options) = (arrays.into_iter().map(of).collect(), WriterOptions { slots, resume, region });
        let writer = interruptible(py, &token, || Writer::new(arrays, &options))?;
        Ok(PyWriter { writer: Mutex::new(writer), token, process: process::id() })
    }

    /// Adds rows to an array of the writer: from `row` on, or behind the last ones. `stream` is the CUDA stream on which
    /// the caller makes and changes `value`. With `keeps`, the caller leaves `value` as it is.
    #[pyo3(signature = (array, row, value, stream, keeps))]
    fn add(
        &self,
        py: Python<'_>,
        array: usize,
        row: Option<u64>,
        value: &PyNdBuffer,
        stream: Option<usize>,
        keeps: bool,
    ) -> PyResult<()> {
        let value = value.inner.clone();
        let stream = match stream {
            Some(handle) if value.device() != Device::Cpu => Some(foreign::stream(value.device(), handle).py()?),
            _ => None,
        };
        self.with(py, |writer| match (keeps, row) {
            (true, row) => writer.give(array, row, value, stream.as_ref()),
            (false, Some(row)) => writer.write(array, row, &value, stream.as_ref()),
            (false, None) => writer.append(array, &value, stream.as_ref()),
        })
    }

    /// Stores all rows that were added, and waits until they are stored.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Writer::flush)
    }

    /// Stores all rows that were added, and ends the writer.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Writer::close)
    }

    /// The first row that is not stored yet.
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |writer| Ok(writer.position()))
    }

    /// How long calls waited for memory, in seconds.
    fn waited(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, |writer| Ok(writer.waited().as_secs_f64()))
    }
}

impl PyWriter {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Writer) -> cuzarr::Result<T> + Send) -> PyResult<T> {
        if self.process != process::id() {
            // Another thread may have held the lock when the process was forked.
            let message = "the writer belongs to the process that opened it, and this is a forked child";
            let error = Error::new(ErrorKind::InvalidArgument, message).with_hint("open the array and a writer here");
            return Err::<T, Error>(error).py();
        }
        let token = &self.token;
        here(py, || {
            token.check()?;
            work(&mut self.writer.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}
