//! Stores for the chunks of a request: a directory, a store of cuzarr, or a Python object.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::store::{
    Capabilities, Condition, Identity, Key, Listing, LocalOptions, LocalStore, Lock, Payload, ReadRequest, ReadSink,
    Stat, Store, Symlinks, Unfinished, Workers, no_parts,
};
use cuzarr::{Error, ErrorKind};
use cuzarr_device::Device;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::ending::attach;
use crate::error::{IntoPython, PyResult, from_python};
use crate::replies::Pending;
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

    /// Makes a store from a Python object with `start(requests, reply)`, `set(key, value)` and `delete(key)`. A request
    /// is (key, start, stop); a negative start counts from the end. `start` calls `reply` with the number and the value
    /// of each request: before it returns, or later from any thread. A value is bytes-like, `None`, or an exception.
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
        Pending::new(batch, sink, None, workers.handle(), Box::new(explain)).request(|requests, reply| {
            self.call("reading chunks", |_, adapter| adapter.call_method1("start", (requests, reply)).map(|_| ()))
        });
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
