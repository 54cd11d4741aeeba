//! Writers for Python: they take rows of arrays from a running program, and store them in the background.

use std::process;
use std::sync::{Mutex, PoisonError};

use cuzarr::node::{Array, Writer, WriterArray, WriterOptions, WriterProgress};
use cuzarr::{CancellationToken, Error, ErrorKind};
use cuzarr_device::Device;
use cuzarr_device::downsample::Downsampling;
use pyo3::prelude::*;

use crate::array::PyArray;
use crate::ending::Unlocked;
use crate::error::{IntoPython, PyResult};
use crate::foreign;
use crate::interrupt::{here, interruptible};
use crate::ndbuffer::PyNdBuffer;
use crate::watch::Watches;

/// Rows of one array: its number, the rows, and the stream on which they are made.
type Given<'py> = (usize, PyRef<'py, PyNdBuffer>, Option<usize>);

/// An array, the number of the dimension along which rows are added, its coarser levels, each with its factors, and how
/// they are made.
type Target<'py> = (Bound<'py, PyArray>, usize, Vec<(Bound<'py, PyArray>, Vec<u64>)>, String);

/// Takes rows of one or several arrays, and stores them on a thread of its own.
#[pyclass(name = "Writer", module = "cuzarr._core", frozen)]
pub struct PyWriter {
    writer: Mutex<Option<Writer>>,
    progress: WriterProgress,
    token: CancellationToken,
    process: u32,
}

#[pymethods]
impl PyWriter {
    /// Opens a writer for arrays. `region` is the start and the extent of the part that it fills.
    #[new]
    fn new(
        py: Python<'_>,
        arrays: Vec<Target<'_>>,
        slots: usize,
        resume: bool,
        region: Option<(Vec<u64>, Vec<u64>)>,
    ) -> PyResult<Self> {
        let watches = Watches::current();
        let token = watches.token();
        let watched = |array: &Bound<'_, PyArray>| -> Array { watches.array(array.get().array(), &token) };
        let of = |(array, axis, levels, method): Target<'_>| {
            let unknown = || Error::new(ErrorKind::InvalidArgument, format!("unknown method '{method}'"));
            let hint = "use mean, gaussian, max, nearest or mode";
            let method = Downsampling::named(&method).ok_or_else(|| unknown().with_hint(hint)).py()?;
            let levels = levels.into_iter().map(|(level, factors)| (watched(&level), factors)).collect();
            Ok(WriterArray::new(watched(&array), axis).with_levels(levels, method))
        };
        let arrays = arrays.into_iter().map(of).collect::<PyResult<Vec<_>>>()?;
        let options = WriterOptions { slots, resume, region };
        let writer = interruptible(py, &token, || Writer::new(arrays, &options))?;
        let progress = writer.progress();
        Ok(PyWriter { writer: Mutex::new(Some(writer)), progress, token, process: process::id() })
    }

    /// Adds rows to arrays of the writer: from `row` on, or behind the last ones. Each array is given by its number, with
    /// its rows and the CUDA stream on which the caller makes and changes them. With `keeps`, the caller leaves them as
    /// they are.
    fn add(&self, py: Python<'_>, rows: Vec<Given<'_>>, row: Option<u64>, keeps: bool) -> PyResult<()> {
        let given = |(array, value, stream): Given<'_>| {
            let value = value.inner.clone();
            let stream = stream.filter(|_| value.device() != Device::Cpu);
            Ok((array, value.clone(), stream.map(|handle| foreign::stream(value.device(), handle)).transpose().py()?))
        };
        let given = rows.into_iter().map(given).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |writer| writer.add(&given, row, keeps))
    }

    /// Stores all rows that were added, and waits until they are stored.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Writer::flush)
    }

    /// Stores all rows that were added, and ends the writer.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Writer::close)
    }

    /// Ends the writer without storing what is gathered.
    fn abandon(&self, py: Python<'_>) {
        if self.process == process::id() {
            py.unlocked(|| drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()));
        }
    }

    /// The first row that is not stored yet.
    fn position(&self) -> u64 {
        self.progress.position()
    }

    /// How long calls waited for memory, in seconds.
    fn waited(&self) -> f64 {
        self.progress.waited().as_secs_f64()
    }

    /// The row behind the last one that was added.
    fn end(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |writer| Ok(writer.end()))
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
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            work(writer.as_mut().ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "the writer is closed"))?)
        })
    }
}
