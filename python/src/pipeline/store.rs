//! Stores for the chunks of a request: a directory, a store of cuzarr, or a Python object.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::store::{
    Capabilities, Condition, Identity, Key, Listing, LocalOptions, LocalStore, Lock, Payload, ReadOutcome, ReadRequest,
    ReadSink, Stat, Store, Symlinks, Unfinished, Workers, no_parts,
};
use cuzarr::{Error, ErrorKind};
use cuzarr_device::Device;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::ending::{Unlocked, attach};
use crate::error::{IntoPython, PyResult, from_python};
use crate::replies::{Bounds, Pending, PyChunkReply, bounds};
use crate::store::PyStore;

/// A store from which the chunks of a request are read, and to which they are written.
#[pyclass(name = "ChunkStore", module = "cuzarr._core", frozen)]
pub struct PyChunkStore {
    pub(super) inner: Arc<dyn Store>,
    failure: Failure,
}

/// The first exception that the Python code of a store raised.
type Failure = Arc<Mutex<Option<PyErr>>>;

#[pymethods]
impl PyChunkStore {
    /// Opens a store in a local directory. Like zarr-python, it follows symbolic links to any place.
    #[staticmethod]
    fn local(root: std::path::PathBuf, direct_io: &str) -> PyResult<Self> {
        let direct_io = direct_io.parse().py()?;
        let options = LocalOptions::default().with_symlinks(Symlinks::Everywhere).with_direct_io(direct_io);
        let store = LocalStore::with_options(root, options).py()?;
        Ok(PyChunkStore { inner: Arc::new(store), failure: Failure::default() })
    }

    /// Makes a store for chunks from a store of cuzarr.
    #[staticmethod]
    fn of(store: &PyStore) -> Self {
        PyChunkStore { inner: Arc::clone(&store.inner), failure: Failure::default() }
    }

    /// Makes a store from a Python object with `fetch(requests, reply)`, `set(key, value)` and `delete(key)`. A request
    /// is (key, start, stop); a negative start counts from the end. `fetch` either returns a list of all values, or
    /// returns `None` and calls `reply` with the number and the value of each request, from any thread. A value is
    /// bytes-like, `None`, or an exception.
    #[staticmethod]
    fn python(adapter: Py<PyAny>) -> Self {
        let failure = Failure::default();
        let inner = Arc::new(PythonChunks { adapter, identity: Identity::unique(), failure: Arc::clone(&failure) });
        PyChunkStore { inner, failure }
    }

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.ChunkStore {}>", self.inner)
    }
}

impl PyChunkStore {
    pub(super) fn take_failure(&self) -> Option<PyErr> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn note(py: Python<'_>, failure: &Failure, what: &str, exception: PyErr) -> Error {
    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| exception.clone_ref(py));
    from_python(py, ErrorKind::StoreFailed, what, exception)
}

struct PythonChunks {
    adapter: Py<PyAny>,
    identity: Identity,
    failure: Failure,
}

impl fmt::Debug for PythonChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PythonChunks")
    }
}

impl fmt::Display for PythonChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a zarr-python store")
    }
}

impl PythonChunks {
    fn fetch(&self, py: Python<'_>, pending: &Arc<Pending>, workers: &dyn Workers) -> cuzarr::Result<()> {
        let requests = pending.batch.iter().map(bounds).collect::<cuzarr::Result<Vec<Bounds>>>()?;
        let raised = |exception| note(py, &self.failure, "reading chunks", exception);
        let reply = PyChunkReply { pending: Arc::clone(pending), workers: None };
        let answer = self.adapter.bind(py).call_method1("fetch", (requests, reply)).map_err(raised)?;
        if answer.is_none() {
            return Ok(());
        }
        let values = answer.cast_into::<PyList>().map_err(|error| raised(error.into()))?;
        let count = pending.batch.len();
        if values.len() != count {
            let message = format!("the store returned {} values for {count} requests", values.len());
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        let mut held = Vec::with_capacity(count);
        for (index, value) in values.iter().enumerate() {
            match pending.classify(py, index, &value) {
                Ok(Some(value)) => held.push((index, value)),
                Ok(None) => py.unlocked(|| pending.end(index, Ok(ReadOutcome::Missing))),
                Err(error) => py.unlocked(|| pending.end(index, Err(error))),
            }
        }
        // The lent threads copy the values without the interpreter's lock.
        let held = Arc::new(held);
        let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for _ in 0..workers.count().clamp(1, held.len().max(1)) {
            let (held, next, pending) = (Arc::clone(&held), Arc::clone(&next), Arc::clone(pending));
            workers.spawn(Box::new(move || {
                while let Some((index, value)) = held.get(next.fetch_add(1, Ordering::Relaxed)) {
                    pending.fill(*index, value);
                }
            }));
        }
        Ok(())
    }

    fn call(&self, what: &str, call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<()>) -> cuzarr::Result<()> {
        attach(|py| call(py, self.adapter.bind(py)).map_err(|error| note(py, &self.failure, what, error)))
    }
}

fn no_such_call(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} is not supported for the chunks of a request"))
}

impl Store for PythonChunks {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let failure = Arc::clone(&self.failure);
        let explain = move |py: Python<'_>, request: &ReadRequest, exception| {
            note(py, &failure, &format!("reading '{}'", request.key), exception)
        };
        let pending = Pending::new(batch, sink, Box::new(explain));
        if let Err(error) = attach(|py| self.fetch(py, &pending, workers)) {
            pending.end_all(|| error.clone());
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> cuzarr::Result<bool> {
        if *condition != Condition::Always {
            return Err(no_such_call("writing a value under a condition"));
        }
        value.with_bytes(|bytes| {
            self.call(&format!("writing '{key}'"), |py, adapter| {
                adapter.call_method1("set", (key, PyBytes::new(py, bytes))).map(|_| ())
            })
        })?;
        Ok(true)
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> cuzarr::Result<Box<dyn Unfinished>> {
        no_parts(self, key)
    }

    fn delete_many(&self, keys: &[String]) -> cuzarr::Result<()> {
        keys.iter().try_for_each(|key| {
            self.call(&format!("deleting '{key}'"), |_, adapter| adapter.call_method1("delete", (key,)).map(|_| ()))
        })
    }

    fn delete_prefix(&self, _prefix: &Key) -> cuzarr::Result<()> {
        Err(no_such_call("deleting a prefix"))
    }

    // The size before a value is read is needed only for budgets; asking for it would cost one more request.
    fn stat(&self, _key: &Key) -> cuzarr::Result<Option<Stat>> {
        Ok(None)
    }

    fn list_dir(&self, _prefix: &Key) -> cuzarr::Result<Listing> {
        Err(no_such_call("listing"))
    }

    fn list(&self, _prefix: &Key) -> cuzarr::Result<Vec<String>> {
        Err(no_such_call("listing"))
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn is_on(&self, _device: Device) -> bool {
        false
    }

    fn try_lock(&self, _prefix: &Key) -> cuzarr::Result<Lock> {
        Ok(Lock::Unsupported)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}
