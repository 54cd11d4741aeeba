//! Stores as Python holds them, and stores that are written in Python.

use std::fmt;
use std::sync::Arc;

use cuzarr::store::{
    ByteRange, Key, Listing, LocalStore, MemoryStore, ReadOutcome, ReadRequest, ReadSink, Store, StoreExt, Workers,
};
use cuzarr::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{IntoPython, PyResult, from_python};

/// A store, shared by Python and the arrays opened in it.
#[pyclass(name = "Store", module = "cuzarr._core", frozen)]
pub struct PyStore {
    /// The store.
    pub inner: Arc<dyn Store>,
}

#[pymethods]
impl PyStore {
    /// A directory.
    #[staticmethod]
    fn local(py: Python<'_>, root: std::path::PathBuf) -> PyResult<Self> {
        let store = py.detach(|| LocalStore::new(root)).py()?;
        Ok(PyStore { inner: Arc::new(store) })
    }

    /// This process's memory.
    #[staticmethod]
    fn memory() -> Self {
        PyStore { inner: Arc::new(MemoryStore::new()) }
    }

    /// A store written in Python, behind its adapter (`cuzarr._adapters`).
    #[staticmethod]
    fn python(py: Python<'_>, adapter: Py<PyAny>) -> PyResult<Self> {
        let name = adapter.call_method0(py, "describe")?.extract(py)?;
        Ok(PyStore { inner: Arc::new(PythonStore { adapter, name }) })
    }

    /// Bytes of a key, or of part of its value; a negative `start` counts from the end.
    #[pyo3(signature = (key, start=None, stop=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        start: Option<i64>,
        stop: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let range = match (start, stop) {
            (None, None) => ByteRange::Full,
            (Some(start), None) if start < 0 => ByteRange::Suffix { size_bytes: start.unsigned_abs() },
            (Some(start), None) => ByteRange::From { offset: start.unsigned_abs() },
            (start, Some(stop)) => {
                let offset = start.unwrap_or(0).max(0).unsigned_abs();
                ByteRange::Span { offset, size_bytes: stop.saturating_sub(offset) }
            }
        };
        let value = py.detach(|| self.inner.get_range(key, range)).py()?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        py.detach(|| self.inner.write(key, value)).py()
    }

    fn set_if_not_exists(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<bool> {
        py.detach(|| self.inner.write_if_absent(key, value)).py()
    }

    fn delete(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        py.detach(|| self.inner.delete(key)).py()
    }

    fn delete_dir(&self, py: Python<'_>, prefix: &str) -> PyResult<()> {
        py.detach(|| self.inner.delete_prefix(prefix)).py()
    }

    fn getsize(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        py.detach(|| self.inner.size_bytes(key)).py()
    }

    fn list_prefix(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<String>> {
        py.detach(|| self.inner.list(prefix)).py()
    }

    /// Keys and prefixes directly below a prefix.
    fn list_dir(&self, py: Python<'_>, prefix: &str) -> PyResult<(Vec<String>, Vec<String>)> {
        let listing = py.detach(|| self.inner.list_dir(prefix)).py()?;
        Ok((listing.keys, listing.prefixes))
    }

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.Store {}>", self.inner)
    }
}

/// A store written in Python. Every call takes the interpreter's lock, on whichever thread it comes.
struct PythonStore {
    adapter: Py<PyAny>,
    name: String,
}

impl PythonStore {
    fn call<T>(
        &self,
        what: &str,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> cuzarr::Result<T> {
        Python::attach(|py| {
            call(py, self.adapter.bind(py)).map_err(|error| {
                from_python(py, ErrorKind::StoreFailed, &format!("store '{}': {what}", self.name), error)
            })
        })
    }

    fn fetch(&self, request: &ReadRequest, index: usize, sink: &dyn ReadSink) -> cuzarr::Result<ReadOutcome> {
        let key = request.key.as_str();
        let (start, stop): (Option<i64>, Option<u64>) = match request.range {
            ByteRange::Full => (None, None),
            ByteRange::From { offset } => (Some(signed(offset)?), None),
            ByteRange::Suffix { size_bytes } => (Some(-signed(size_bytes)?), None),
            ByteRange::Span { offset, size_bytes } => (Some(signed(offset)?), Some(offset.saturating_add(size_bytes))),
        };
        let value: Option<Vec<u8>> = self
            .call(&format!("get '{key}'"), |_, adapter| adapter.call_method1("get", (key, start, stop))?.extract())?;
        let Some(value) = value else { return Ok(ReadOutcome::Missing) };
        if let ByteRange::Span { offset, size_bytes } = request.range
            && value.len() as u64 != size_bytes
        {
            let message = format!("'{key}' has {} bytes from byte {offset}, expected {size_bytes}", value.len());
            return Err(Error::new(ErrorKind::StoreFailed, message));
        }
        let mut lease = sink.reserve(index, value.len() as u64)?;
        lease.bytes().copy_from_slice(&value);
        Ok(ReadOutcome::Filled(lease))
    }
}

fn signed(value: u64) -> cuzarr::Result<i64> {
    i64::try_from(value).map_err(|_| Error::new(ErrorKind::StoreFailed, format!("no value has a byte {value}")))
}

impl fmt::Debug for PythonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonStore({})", self.name)
    }
}

impl fmt::Display for PythonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Store for PythonStore {
    // One item after the other, on the calling thread: the interpreter's lock would serialise them anyway.
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, _workers: &dyn Workers) {
        for (index, request) in batch.iter().enumerate() {
            sink.done(index, sink.check().and_then(|()| self.fetch(request, index, &*sink)));
        }
    }

    fn write(&self, key: &Key, value: &[u8]) -> cuzarr::Result<()> {
        self.call(&format!("set '{key}'"), |py, adapter| {
            adapter.call_method1("set", (key, PyBytes::new(py, value))).map(|_| ())
        })
    }

    fn write_if_absent(&self, key: &Key, value: &[u8]) -> cuzarr::Result<bool> {
        self.call(&format!("set '{key}'"), |py, adapter| {
            adapter.call_method1("set_if_not_exists", (key, PyBytes::new(py, value)))?.extract()
        })
    }

    fn delete(&self, key: &Key) -> cuzarr::Result<()> {
        self.call(&format!("delete '{key}'"), |_, adapter| adapter.call_method1("delete", (key,)).map(|_| ()))
    }

    fn delete_prefix(&self, prefix: &Key) -> cuzarr::Result<()> {
        self.call(&format!("delete '{prefix}'"), |_, adapter| adapter.call_method1("delete_dir", (prefix,)).map(|_| ()))
    }

    fn size_bytes(&self, key: &Key) -> cuzarr::Result<Option<u64>> {
        self.call(&format!("size of '{key}'"), |_, adapter| adapter.call_method1("getsize", (key,))?.extract())
    }

    fn list_dir(&self, prefix: &Key) -> cuzarr::Result<Listing> {
        let (keys, prefixes) = self.call(&format!("list '{prefix}'"), |_, adapter| {
            adapter.call_method1("list_dir", (prefix,))?.extract::<(Vec<String>, Vec<String>)>()
        })?;
        Ok(Listing { keys, prefixes })
    }

    fn list(&self, prefix: &Key) -> cuzarr::Result<Vec<String>> {
        self.call(&format!("list '{prefix}'"), |_, adapter| adapter.call_method1("list_prefix", (prefix,))?.extract())
    }

    fn is_read_only(&self) -> bool {
        false
    }
}
