//! Receives the values that stores written in Python deliver, and passes them to the reader that requested them. They
//! may come at once or later, from any thread.
//!
//! A value is borrowed from Python under the interpreter's lock, and copied to its destination without that lock, by
//! threads that the reader lends. These threads do not take the lock for each value: the borrowed objects are given
//! back together, when the next value comes or before the batch ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use cuzarr::store::{ByteRange, Lease, ReadOutcome, ReadRequest, ReadSink, Version, Workers};
use cuzarr::{Error, ErrorKind};
use cuzarr_device::{Buffer, Device};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBaseException, PyIndexError};
use pyo3::prelude::*;

use crate::ending::{Unlocked, try_attach};
use crate::error::{IntoPython, PyResult};
use crate::foreign::PythonOwner;
use crate::ndbuffer::{PyNdBuffer, elements};

/// Largest number of bytes of values that wait to be copied, or are being copied, for a store that is read on the
/// reader's thread. That thread copies further values itself before it asks the store for the next one.
const WAITING_BYTES: usize = 128 << 20;

/// A read request as it is passed to Python adapters: a key, the first byte, and the byte after the last. A negative
/// first byte selects that many bytes at the end of the value.
pub type Bounds = (String, Option<i64>, Option<u64>);

/// Converts a read request to the form in which it is passed to Python adapters.
fn bounds(request: &ReadRequest) -> cuzarr::Result<Bounds> {
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
    /// The device whose memory holds the store's values; `None` if that is host memory.
    device: Option<Device>,
    explain: Explain,
    /// Threads that copy values to their destination; `None` if the thread that brings a value copies it.
    workers: Option<Arc<dyn Workers>>,
    /// The thread that requested the batch. If a store answers on this thread, the next value is not requested yet.
    reader: ThreadId,
    /// For each request, whether an answer has come. Later answers are ignored.
    answered: Vec<AtomicBool>,
    /// For each request, whether the reader has been told of its end.
    done: Vec<AtomicBool>,
    /// Number of requests of whose end the reader has not been told.
    remaining: AtomicUsize,
    borrowed: Mutex<Borrowed>,
}

/// Values of Python objects on their way to the reader.
#[derive(Default)]
struct Borrowed {
    arrived: VecDeque<Arrived>,
    /// Number of jobs that copy arrived values.
    copiers: usize,
    /// Values that were copied, and must be given back to Python.
    copied: Vec<Held>,
    /// Size of all values that have arrived and are not given back.
    size_bytes: usize,
}

/// A value that is to be copied to the reader.
struct Arrived {
    index: usize,
    value: Held,
    /// The reader's memory for the value, if it is reserved already.
    lease: Option<Box<dyn Lease>>,
}

/// What a store's Python code answers to a request.
enum Answer {
    Host(Held),
    OnDevice(Buffer),
    Missing,
}

impl Pending {
    pub fn new(
        batch: Arc<[ReadRequest]>,
        sink: Arc<dyn ReadSink>,
        device: Option<Device>,
        workers: Option<Arc<dyn Workers>>,
        explain: Explain,
    ) -> Arc<Pending> {
        let flags = || batch.iter().map(|_| AtomicBool::new(false)).collect();
        let (answered, done, remaining) = (flags(), flags(), AtomicUsize::new(batch.len()));
        let (reader, borrowed) = (thread::current().id(), Mutex::default());
        Arc::new(Pending { batch, sink, device, explain, workers, reader, answered, done, remaining, borrowed })
    }

    /// Requests all values of the batch from an adapter in Python. Returns when the adapter has answered, or when it
    /// will answer later. If `call` fails, all requests without an answer fail with its error.
    pub fn request(self: Arc<Self>, call: impl FnOnce(Vec<Bounds>, PyChunkReply) -> cuzarr::Result<()>) {
        let requests = self.batch.iter().map(bounds).collect::<cuzarr::Result<Vec<_>>>();
        let started = requests.and_then(|requests| call(requests, PyChunkReply { pending: Arc::clone(&self) }));
        let Err(error) = started else { return };
        for (index, answered) in self.answered.iter().enumerate() {
            // An answered request ends when its value is copied.
            if !answered.swap(true, Ordering::AcqRel) {
                self.end(index, Err(error.clone()));
            }
        }
    }

    fn answered(&self, index: usize) -> PyResult<&AtomicBool> {
        self.answered.get(index).ok_or_else(|| PyIndexError::new_err(index))
    }

    fn borrowed(&self) -> MutexGuard<'_, Borrowed> {
        self.borrowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, index: usize, outcome: cuzarr::Result<ReadOutcome>) {
        if !self.done[index].swap(true, Ordering::AcqRel) {
            if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.give_back();
            }
            self.sink.done(index, outcome);
        }
    }

    /// Gives the copied values back to Python. Takes the interpreter's lock once, if there are any.
    fn give_back(&self) {
        let copied = self.borrowed().take_copied();
        if !copied.is_empty() {
            // If the interpreter has ended, the values are leaked one by one.
            let mut copied = Some(copied);
            try_attach(|_| drop(copied.take()));
        }
    }

    /// Checks that a value of `size_bytes` is what the request asks for.
    fn check_size(&self, index: usize, size_bytes: usize) -> cuzarr::Result<()> {
        let request = &self.batch[index];
        if let ByteRange::Span { offset, size_bytes: expected } = request.range
            && size_bytes as u64 != expected
        {
            let key = &request.key;
            let message = format!("'{key}' has {size_bytes} bytes from byte {offset}, expected {expected}");
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        Ok(())
    }

    /// Reserves memory for the value of a request, after checking that `size_bytes` is what the request asks for.
    fn reserve(&self, index: usize, size_bytes: usize) -> cuzarr::Result<Box<dyn Lease>> {
        self.check_size(index, size_bytes)?;
        self.sink.reserve(index, size_bytes as u64)
    }

    /// Whether the reader wants values in the memory of the device where the store keeps them.
    fn is_on_device(&self) -> bool {
        self.device.is_some_and(|device| device != Device::Cpu && device == self.sink.device())
    }

    /// Whether a value in host memory that comes on this thread can be left to the lent threads, which reserve memory
    /// for it. A value on the reader's own thread gets its memory there, so that of several errors the first value's
    /// comes first.
    fn may_queue(&self) -> bool {
        self.workers.is_some() && thread::current().id() != self.reader && !self.is_on_device()
    }

    /// Passes an answer to the reader, or to the threads that copy values.
    fn take(self: Arc<Self>, index: usize, answer: Answer, version: Option<i64>) {
        let opened = version.map_or(Ok(()), |hash| self.sink.opened(index, Version::numbered(hash as u64)));
        let value = match (opened, answer) {
            (Err(error), _) => return self.end(index, Err(error)),
            (_, Answer::Missing) => return self.end(index, Ok(ReadOutcome::Missing)),
            (_, Answer::OnDevice(value)) => return self.end(index, self.take_buffer(index, &value)),
            (_, Answer::Host(value)) if self.is_on_device() => {
                let buffer = Buffer::from_bytes(self.sink.device(), &value.to_vec()).map_err(Error::from);
                return self.end(index, buffer.and_then(|buffer| self.take_buffer(index, &buffer)));
            }
            (_, Answer::Host(value)) => value,
        };
        match self.reserve(index, value.len()) {
            Ok(lease) => self.queue(Arrived { index, value, lease: Some(lease) }, WAITING_BYTES),
            Err(error) => self.end(index, Err(error)),
        }
    }

    fn take_buffer(&self, index: usize, value: &Buffer) -> cuzarr::Result<ReadOutcome> {
        self.check_size(index, value.size_bytes())?;
        if self.is_on_device() {
            return Ok(ReadOutcome::OnDevice(value.to_device(self.sink.device())?.into_read_only()));
        }
        let mut lease = self.sink.reserve(index, value.size_bytes() as u64)?;
        lease.bytes().copy_from_slice(&value.to_vec()?);
        Ok(ReadOutcome::Filled(lease))
    }

    /// Leaves a value to the lent threads, or copies it here: if there are none, or if values of `most_bytes` wait.
    fn queue(self: Arc<Self>, arrived: Arrived, most_bytes: usize) {
        let mut borrowed = self.borrowed();
        borrowed.size_bytes += arrived.value.len();
        let Some(workers) = self.workers.as_ref().filter(|_| borrowed.size_bytes <= most_bytes) else {
            drop(borrowed);
            return self.copy(arrived);
        };
        borrowed.arrived.push_back(arrived);
        let starts = borrowed.copiers < workers.count();
        borrowed.copiers += usize::from(starts);
        drop(borrowed);
        if starts {
            let pending = Arc::clone(&self);
            workers.spawn(Box::new(move || pending.copy_arrived()));
        }
    }

    /// Copies values until none waits.
    fn copy_arrived(&self) {
        loop {
            let mut borrowed = self.borrowed();
            let Some(arrived) = borrowed.arrived.pop_front() else {
                borrowed.copiers -= 1;
                return;
            };
            drop(borrowed);
            self.copy(arrived);
        }
    }

    fn copy(&self, arrived: Arrived) {
        let Arrived { index, value, lease } = arrived;
        let lease = lease.map_or_else(|| self.reserve(index, value.len()), Ok);
        let outcome = lease.map(|mut lease| {
            value.copy_to(lease.bytes());
            ReadOutcome::Filled(lease)
        });
        self.borrowed().copied.push(value);
        self.end(index, outcome);
    }

    /// Finds what an adapter in Python answers to a request: bytes, an array of bytes on a device, or `None` for a
    /// missing key.
    ///
    /// # Errors
    /// The answer is an exception, or no bytes.
    fn classify(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>) -> cuzarr::Result<Answer> {
        if value.is_none() {
            return Ok(Answer::Missing);
        }
        let explain = |exception| (self.explain)(py, &self.batch[index], exception);
        if value.is_instance_of::<PyBaseException>() {
            return Err(explain(PyErr::from_value(value.clone())));
        }
        if let Ok(array) = value.cast::<PyNdBuffer>() {
            return elements(&array.get().inner).py().map(Answer::OnDevice).map_err(explain);
        }
        Held::new(value).map(Answer::Host).map_err(explain)
    }
}

impl Borrowed {
    fn take_copied(&mut self) -> Vec<Held> {
        let copied = std::mem::take(&mut self.copied);
        self.size_bytes -= copied.iter().map(Held::len).sum::<usize>();
        copied
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if *self.remaining.get_mut() > 0 {
            let dropped = || Error::new(ErrorKind::Cancelled, "the store dropped the read");
            let error = self.sink.check().err().unwrap_or_else(dropped);
            (0..self.batch.len()).for_each(|index| self.end(index, Err(error.clone())));
        }
    }
}

/// The bytes of a Python object, borrowed in place without copying.
struct Held(PythonOwner<PyBuffer<u8>>);

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

    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }
}

/// The object to which a store's Python code passes the values of one batch.
#[pyclass(name = "ChunkReply", module = "cuzarr._core", frozen)]
pub struct PyChunkReply {
    pending: Arc<Pending>,
}

#[pymethods]
impl PyChunkReply {
    /// Takes the value for the request with this index of the batch: bytes, `None` for a missing key, or an exception.
    /// `version` identifies the state of the whole value, if only a part of it was requested.
    #[pyo3(signature = (index, value, version=None))]
    fn __call__(&self, py: Python<'_>, index: usize, value: &Bound<'_, PyAny>, version: Option<i64>) -> PyResult<()> {
        let answered =
            self.pending.answered.get(index).ok_or_else(|| pyo3::exceptions::PyIndexError::new_err(index))?;
        if answered.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let copied = self.pending.borrowed().take_copied();
        drop(copied); // not under the mutex: it may run Python code, which may let another thread call this
        let pending = Arc::clone(&self.pending);
        let answer = match pending.classify(py, index, value) {
            // Nothing here waits, so that a loop of the store keeps the interpreter's lock for all values it has.
            Ok(Answer::Host(value)) if version.is_none() && pending.may_queue() => {
                pending.queue(Arrived { index, value, lease: None }, usize::MAX);
                return Ok(());
            }
            answer => answer,
        };
        py.unlocked(move || match answer {
            Ok(answer) => pending.take(index, answer, version),
            Err(error) => pending.end(index, Err(error)),
        });
        Ok(())
    }

    /// Whether the reader still waits for the value of the request with this index. If it does not, the request ends
    /// here.
    fn wants(&self, py: Python<'_>, index: usize) -> PyResult<bool> {
        let answered = self.pending.answered(index)?;
        let Err(error) = self.pending.sink.check() else { return Ok(!answered.load(Ordering::Acquire)) };
        if !answered.swap(true, Ordering::AcqRel) {
            py.unlocked(|| self.pending.end(index, Err(error)));
        }
        Ok(false)
    }
}
