//! Receives the values that stores written in Python deliver, and passes them to the reader that requested them. They
//! may come at once or later, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuzarr::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink, Workers};
use cuzarr::{Error, ErrorKind};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;

use crate::ending::Unlocked;
use crate::error::PyResult;
use crate::foreign::PythonOwner;

/// A read request as it is passed to Python adapters: a key, the first byte, and the byte after the last. A negative
/// first byte selects that many bytes at the end of the value.
pub type Bounds = (String, Option<i64>, Option<u64>);

/// Converts a read request to the form in which it is passed to Python adapters.
pub fn bounds(request: &ReadRequest) -> cuzarr::Result<Bounds> {
    let signed = |value: u64| {
        i64::try_from(value).map_err(|_| Error::new(ErrorKind::StoreFailed, format!("byte {value} is out of range")))
    };
    let (start, stop) = match request.range {
        ByteRange::Full => (None, None),
        ByteRange::From { offset } => (Some(signed(offset)?), None),
        ByteRange::Suffix { size_bytes } => (Some(-signed(size_bytes)?), None),
        ByteRange::Span { offset, size_bytes } => (Some(signed(offset)?), Some(offset.saturating_add(size_bytes))),
    };
    Ok((request.key.clone(), start, stop))
}

/// A function that converts the exception that a Python store delivered in place of a value to an error of the library.
pub type Explain = Box<dyn Fn(Python<'_>, &ReadRequest, PyErr) -> Error + Send + Sync>;

/// A batch of read requests to a Python store, of which some values have not arrived yet. Requests without an answer
/// fail when the value is dropped.
pub struct Pending {
    pub batch: Arc<[ReadRequest]>,
    sink: Arc<dyn ReadSink>,
    done: Vec<AtomicBool>,
    explain: Explain,
}

impl Pending {
    pub fn new(batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, explain: Explain) -> Arc<Pending> {
        let done = batch.iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Pending { batch, sink, done, explain })
    }

    pub fn end(&self, index: usize, outcome: cuzarr::Result<ReadOutcome>) {
        if !self.done[index].swap(true, Ordering::AcqRel) {
            self.sink.done(index, outcome);
        }
    }

    pub fn end_all(&self, failed: impl Fn() -> Error) {
        (0..self.batch.len()).for_each(|index| self.end(index, Err(failed())));
    }

    /// Reserves memory for the value of a request, after checking that `size_bytes` is what the request asks for.
    fn reserve(&self, index: usize, size_bytes: usize) -> cuzarr::Result<Box<dyn Lease>> {
        let request = &self.batch[index];
        if let ByteRange::Span { offset, size_bytes: expected } = request.range
            && size_bytes as u64 != expected
        {
            let key = &request.key;
            let message = format!("'{key}' has {size_bytes} bytes from byte {offset}, expected {expected}");
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        self.sink.reserve(index, size_bytes as u64)
    }

    pub fn fill(&self, index: usize, value: &Held) {
        let outcome = self.reserve(index, value.len()).map(|mut lease| {
            value.copy_to(lease.bytes());
            ReadOutcome::Filled(lease)
        });
        self.end(index, outcome);
    }

    /// Returns the bytes that came for a request; `None` if the key does not exist.
    pub fn classify(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>) -> cuzarr::Result<Option<Held>> {
        if value.is_none() {
            return Ok(None);
        }
        let explain = |exception| (self.explain)(py, &self.batch[index], exception);
        if value.is_instance_of::<PyBaseException>() {
            return Err(explain(PyErr::from_value(value.clone())));
        }
        Held::new(value).map(Some).map_err(explain)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end_all(|| Error::new(ErrorKind::Cancelled, "the store dropped the read"));
    }
}

/// The bytes of a Python object, borrowed in place without copying.
pub struct Held(PythonOwner<PyBuffer<u8>>);

impl Held {
    fn new(value: &Bound<'_, PyAny>) -> PyResult<Held> {
        let buffer = PyBuffer::<u8>::get(value)?;
        match buffer.is_c_contiguous() {
            true => Ok(Held(PythonOwner::new(buffer))),
            false => Err(pyo3::exceptions::PyBufferError::new_err("the bytes of a value are not contiguous")),
        }
    }

    fn len(&self) -> usize {
        self.0.get().map_or(0, PyBuffer::len_bytes)
    }

    fn copy_to(&self, dst: &mut [u8]) {
        assert_eq!(dst.len(), self.len());
        if let Some(buffer) = self.0.get().filter(|_| self.len() > 0) {
            // SAFETY: the exporter keeps `len` contiguous bytes in place while the buffer is held, and `dst` is our own
            // memory of the same length. Values of a store are replaced, never changed in place. A program that changes
            // them anyway gets a mixture of old and new bytes, which decoders check.
            unsafe { std::ptr::copy_nonoverlapping(buffer.buf_ptr().cast::<u8>(), dst.as_mut_ptr(), dst.len()) };
        }
    }
}

/// The object to which a store's Python code passes the values of one batch.
#[pyclass(name = "ChunkReply", module = "cuzarr._core", frozen)]
pub struct PyChunkReply {
    pub pending: Arc<Pending>,
    /// Threads that copy values to their destination; `None` if the calling thread copies them.
    pub workers: Option<Arc<dyn Workers>>,
}

#[pymethods]
impl PyChunkReply {
    /// Takes the value for the request with this index of the batch: bytes, `None` for a missing key, or an exception.
    fn __call__(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if index >= self.pending.batch.len() {
            return Err(pyo3::exceptions::PyIndexError::new_err(index));
        }
        let outcome = self.pending.classify(py, index, value);
        let pending = Arc::clone(&self.pending);
        let end = move || match outcome {
            Ok(Some(value)) => pending.fill(index, &value),
            Ok(None) => pending.end(index, Ok(ReadOutcome::Missing)),
            Err(error) => pending.end(index, Err(error)),
        };
        match &self.workers {
            Some(workers) => workers.spawn(Box::new(end)),
            None => py.unlocked(end),
        }
        Ok(())
    }

    /// Whether the reader is still waiting for the values of the batch.
    fn is_wanted(&self, py: Python<'_>) -> bool {
        py.unlocked(|| self.pending.sink.check().is_ok())
    }
}
