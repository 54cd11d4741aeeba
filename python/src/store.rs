//! Stores for Python, and stores that are written in Python.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cuzarr::internal::run::Engine;
use cuzarr::internal::store::{has_zip_name, is_zip};
use cuzarr::store::{
    ByteRange, Capabilities, Condition, Durability, Gds, GdsStore, GpuMemoryStore, Identity, Key, Listing,
    LocalOptions, LocalStore, Lock, MemoryStore, Payload, Prefixed, ReadRequest, ReadSink, Registry, Split, Stat,
    Store, StoreExt, Unfinished, Url, Workers, ZipArchive, ZipMode, ZipOptions, no_parts,
};
use cuzarr::{Error, ErrorKind};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order};
use cuzarr_remote::reference::{self, ArrayReferences, Columns, ReferenceTable};
use cuzarr_remote::{CredentialSource, Credentials, StorageOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::ending::{Unlocked, attach};
use crate::error::{IntoPython, PyResult, from_python};
use crate::identity::Place;
use crate::interrupt::{self, looking};
use crate::names::parse_device;
use crate::ndbuffer::{PyNdBuffer, elements};
use crate::replies::Pending;

/// A Zarr store that the Rust library implements, as an object for Python.
#[pyclass(name = "Store", module = "cuzarr._core", frozen)]
pub struct PyStore {
    /// The store of the Rust library that this object makes available to Python.
    pub inner: Arc<dyn Store>,
}

/// Parses the options of a store in a local directory. `fsync` (`none`, `data`, `full`) sets how much of a write must
/// reach the disk before the write returns. `direct_io` (`auto`, `on`, `off`) sets whether reads bypass the page cache.
fn local_options(fsync: &str, direct_io: &str) -> cuzarr::Result<LocalOptions> {
    Ok(LocalOptions::default().with_durability(fsync.parse()?).with_direct_io(direct_io.parse()?))
}

#[pymethods]
impl PyStore {
    /// Opens a store in a local directory.
    #[staticmethod]
    fn local(py: Python<'_>, root: PathBuf, fsync: &str, direct_io: &str) -> PyResult<Self> {
        let store = py.unlocked(|| LocalStore::with_options(root, local_options(fsync, direct_io)?)).py()?;
        Ok(PyStore { inner: Arc::new(store) })
    }

    /// Opens the store at a URL, or at a chain of URLs. Returns `None` if a scheme is not built in. A named store in
    /// memory is the same for the whole process. `options` are for remote stores. `credentials` is called for new
    /// credentials when the last ones are about to expire. It returns the parts of the credentials, and the time when
    /// they expire, in seconds since 1970.
    #[staticmethod]
    #[pyo3(signature = (url, options=Vec::new(), credentials=None))]
    fn open_url(
        py: Python<'_>,
        url: &str,
        options: Vec<(String, String)>,
        credentials: Option<Py<PyAny>>,
    ) -> PyResult<Option<Self>> {
        let mut options = StorageOptions::from_iter(options);
        if let Some(callable) = credentials {
            options.set_credentials(Arc::new(PythonCredentials(callable)));
        }
        let registry = cuzarr_remote::registry_with(options);
        let url = Url::parse(url).py()?;
        if !PyStore::knows(&registry, &url) {
            return Ok(None);
        }
        // Some stores read their list of values when they are opened.
        let mut links = std::iter::successors(Some(&url), |url| url.wrapped());
        let is_far = links.any(|link| cuzarr_remote::SCHEMES.contains(&link.scheme()));
        let inner = looking(py, is_far, &interrupt::token(), move || registry.open_url(&url))?;
        Ok(Some(PyStore { inner }))
    }

    /// Makes a store over a table of references to parts of files. `columns` are keys and file URLs, and for each key
    /// the index of its file's URL, the first byte, and the number of bytes (0: the whole file). `inline` are values
    /// that the table contains itself. Name and identity are those of `like`, and `inside` is the part of the table to
    /// open. `pending` are arrays, and a callable that returns the columns and the inline values of an array when its
    /// first chunk is read.
    #[staticmethod]
    #[pyo3(signature = (columns, inline, options, like, inside, pending=None))]
    fn references(
        py: Python<'_>,
        columns: ReferenceColumns,
        inline: Vec<(String, Vec<u8>)>,
        options: Vec<(String, String)>,
        like: &PyStore,
        inside: &str,
        pending: Option<(Vec<String>, Py<PyAny>)>,
    ) -> PyResult<Self> {
        let open = || -> cuzarr::Result<Arc<dyn Store>> {
            let mut table = ReferenceTable::new();
            add_references(&table, &columns, inline)?;
            if let Some((arrays, callable)) = pending {
                table = table.with_arrays(arrays, Arc::new(PythonReferences(callable)));
            }
            let options = StorageOptions::from_iter(options);
            let (name, identity) = (like.inner.to_string(), like.inner.identity());
            let store = reference::open_table_as(table, &name, identity, &cuzarr_remote::registry(), &options)?;
            Ok(if inside.is_empty() { Arc::new(store) } else { Arc::new(Prefixed::new(Arc::new(store), inside)?) })
        };
        Ok(PyStore { inner: py.unlocked(open).py()? })
    }

    /// Whether all schemes of a URL, or chain of URLs, are built in.
    #[staticmethod]
    fn knows_url(url: &str) -> PyResult<bool> {
        Ok(PyStore::knows(&cuzarr_remote::registry(), &Url::parse(url).py()?))
    }

    /// Whether the option of remote stores with this name has a secret value, such as a password.
    #[staticmethod]
    fn is_secret_option(name: &str) -> bool {
        StorageOptions::is_secret(name)
    }

    /// Whether the store refuses writes.
    fn is_read_only(&self) -> bool {
        self.inner.capabilities().read_only
    }

    /// Makes an empty store in host memory.
    #[staticmethod]
    fn memory() -> Self {
        PyStore { inner: Arc::new(MemoryStore::new()) }
    }

    /// Makes an empty store in a device's memory.
    #[staticmethod]
    fn device_memory(device: &str) -> PyResult<Self> {
        Ok(PyStore { inner: Arc::new(GpuMemoryStore::new(parse_device(device)?)) })
    }

    /// Opens a store in a local directory whose values can move directly between files and GPU memory. If `gds`
    /// (`auto`, `on`, `off`) allows it, cuFile moves values between files and GPU memory.
    #[staticmethod]
    fn gds(py: Python<'_>, root: PathBuf, gds: &str, fsync: &str, direct_io: &str) -> PyResult<Self> {
        let gds = gds.parse::<Gds>().py()?;
        let store = py.unlocked(|| GdsStore::new(root, gds, local_options(fsync, direct_io)?)).py()?;
        Ok(PyStore { inner: Arc::new(store) })
    }

    /// Makes a store that keeps the metadata of arrays and groups in `metadata` and everything else in `data`.
    #[staticmethod]
    fn split(data: &PyStore, metadata: &PyStore) -> Self {
        PyStore { inner: Arc::new(Split::new(Arc::clone(&data.inner), Arc::clone(&metadata.inner))) }
    }

    /// Makes a store over a store that is implemented in Python. `adapter` is its adapter in `cuzarr.storage`.
    #[staticmethod]
    fn python(py: Python<'_>, adapter: Py<PyAny>) -> PyResult<Self> {
        let name: String = adapter.call_method0(py, "describe")?.extract(py)?;
        let place = Place::new(adapter.call_method0(py, "identity")?.bind(py))?;
        let capabilities = Capabilities {
            deletes: adapter.getattr(py, "supports_deletes")?.extract(py)?,
            transactional: adapter.getattr(py, "is_transactional")?.extract(py)?,
            // A store that fetches many values at once is probably remote.
            far: adapter.getattr(py, "is_asynchronous")?.extract(py)?,
            ..Capabilities::default()
        };
        let device = adapter.getattr(py, "device")?.extract::<Option<String>>(py)?;
        let device = device.as_deref().map(parse_device).transpose()?;
        let store = PythonStore { adapter, name, capabilities, place, device };
        Ok(PyStore { inner: Arc::new(store) })
    }

    /// Reads the value of a key, or a part of it. A negative `start` counts from the end.
    #[pyo3(signature = (key, start=None, stop=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        start: Option<i64>,
        stop: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.read(py, key, move |store, key| store.get_range(key, range(start, stop)))?;
        Ok(value.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Reads several parts of the value of one key, which is opened once. Parts are `None` if the key does not exist.
    fn get_parts<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        parts: Vec<(Option<i64>, Option<u64>)>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let request = |(start, stop)| ReadRequest { key: key.to_string(), range: range(start, stop) };
        let requests = parts.into_iter().map(request).collect();
        let values = py.unlocked(|| self.inner.get_many(requests)).into_iter();
        values.map(|value| Ok(value.py()?.map(|bytes| PyBytes::new(py, &bytes)))).collect()
    }

    /// Like [`PyStore::get`], but reads into new memory of a device.
    #[pyo3(signature = (key, device, start=None, stop=None))]
    fn get_on(
        &self,
        py: Python<'_>,
        key: &str,
        device: &str,
        start: Option<i64>,
        stop: Option<u64>,
    ) -> PyResult<Option<PyNdBuffer>> {
        let device = parse_device(device)?;
        let value = py.unlocked(|| self.inner.get_buffer(key, range(start, stop), device)).py()?;
        value.map(|buffer| flat(buffer).py()).transpose()
    }

    /// Stores the bytes of an array's elements, in C order, at a key. They may be on any device.
    fn set_from(&self, py: Python<'_>, key: &str, value: &PyNdBuffer) -> PyResult<()> {
        let array = &value.inner;
        self.change(py, key, |store| {
            if !array.is_contiguous(Order::C) {
                return store.write_buffer(key, &elements(&array.copy(Order::C)?)?);
            }
            // The memory's owner may write it later, so the store gets a copy.
            let bytes = elements(array)?;
            let copy = Buffer::empty(bytes.device(), bytes.size_bytes())?;
            copy.copy_from(&bytes)?;
            store.write_buffer(key, &copy)
        })
    }

    /// Whether values move between the store and this device's memory without passing through host memory.
    fn is_on(&self, device: &str) -> PyResult<bool> {
        Ok(self.inner.is_on(parse_device(device)?))
    }

    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        self.change(py, key, |store| store.write(key, value))
    }

    fn set_if_not_exists(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<bool> {
        self.change(py, key, |store| store.write_if_absent(key, value))
    }

    fn delete(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        self.change(py, key, |store| store.delete(key))
    }

    fn delete_dir(&self, py: Python<'_>, prefix: &str) -> PyResult<()> {
        py.unlocked(|| cuzarr::node::delete_tree(&*self.inner, prefix)).py()
    }

    /// Whether writes to the store become visible only when they are committed. Such a store accepts chunks only of
    /// existing arrays.
    fn is_transactional(&self) -> bool {
        self.inner.capabilities().transactional
    }

    /// Deletes an array or group with everything below it, and removes its entries from consolidated metadata of groups
    /// above.
    fn delete_node(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.unlocked(|| cuzarr::node::delete_node(&*self.inner, path)).py()
    }

    fn getsize(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        self.read(py, key, |store, key| store.size_bytes(key))
    }

    fn list_prefix(&self, py: Python<'_>, prefix: &str) -> PyResult<Vec<String>> {
        self.read(py, prefix, |store, prefix| store.list(prefix))
    }

    /// Returns the keys and the prefixes directly below a prefix.
    fn list_dir(&self, py: Python<'_>, prefix: &str) -> PyResult<(Vec<String>, Vec<String>)> {
        let listing = self.read(py, prefix, |store, prefix| store.list_dir(prefix))?;
        Ok((listing.keys, listing.prefixes))
    }

    /// Whether both stores refer to the same data, so that each key has the same value in both.
    fn __eq__(&self, other: &PyStore) -> bool {
        self.inner.identity() == other.inner.identity()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.inner.identity().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<cuzarr._core.Store {}>", self.inner)
    }
}

/// A local ZIP file, for reading and writing.
#[pyclass(name = "ZipArchive", module = "cuzarr._core", frozen)]
pub struct PyZipArchive {
    inner: ZipArchive,
}

#[pymethods]
impl PyZipArchive {
    /// Opens the ZIP file at `path`. `mode` is `r`, `a`, `w` or `x`. `deflate` is the compression level of new members,
    /// or `None` for no compression.
    #[new]
    fn new(path: PathBuf, mode: &str, deflate: Option<u32>, zip64: bool, fsync: &str) -> PyResult<Self> {
        let mode = match mode {
            "r" => ZipMode::Read,
            "a" => ZipMode::Append,
            "w" => ZipMode::Replace,
            "x" => ZipMode::Create,
            _ => {
                let message = format!("got mode '{mode}', expected 'r', 'a', 'w' or 'x'");
                return Err(Error::new(ErrorKind::InvalidArgument, message)).py();
            }
        };
        let options = ZipOptions::default()
            .with_mode(mode)
            .with_deflate(deflate)
            .with_zip64(zip64)
            .with_durability(fsync.parse::<Durability>().py()?);
        Ok(PyZipArchive { inner: ZipArchive::new(path, options).py()? })
    }

    /// Whether a path is that of a ZIP file, or of a ZIP file that could be made there.
    #[staticmethod]
    fn is_at(path: PathBuf) -> bool {
        if path.is_file() { is_zip(&path) } else { !path.is_dir() && has_zip_name(&path) }
    }

    /// Returns a store over this ZIP file: its keys are the names of the file's members.
    fn store(&self) -> PyStore {
        PyStore { inner: Arc::new(self.inner.clone()) }
    }

    /// Whether something was written since the last `finish`, and so is not in the final file yet.
    fn is_unfinished(&self) -> bool {
        self.inner.is_unfinished()
    }

    /// Gives the written file its final name, if anything was written.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.unlocked(|| self.inner.finish()).py()
    }

    /// Discards all writes since the file was opened or finished.
    fn discard(&self, py: Python<'_>) {
        py.unlocked(|| self.inner.discard());
    }
}

impl PyStore {
    /// Runs a function that writes or deletes the value of a key, without the interpreter's lock. The chunk cache drops
    /// its chunks of the value.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        key: &str,
        write: impl FnOnce(&dyn Store) -> cuzarr::Result<T> + Send,
    ) -> PyResult<T> {
        let work = || {
            let changed = write(&*self.inner);
            Engine::get().forget(&*self.inner, [key]);
            changed
        };
        py.unlocked(work).py()
    }

    /// Runs a function that reads from the store at a key or prefix, without the interpreter's lock; a signal can end
    /// it.
    fn read<T: Send + 'static>(
        &self,
        py: Python<'_>,
        key: &str,
        read: impl FnOnce(&dyn Store, &str) -> cuzarr::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (store, key) = (Arc::clone(&self.inner), key.to_string());
        looking(py, self.inner.capabilities().far, &interrupt::token(), move || read(&*store, &key))
    }

    fn knows(registry: &Registry, url: &Url) -> bool {
        let mut links = std::iter::successors(Some(url), |url| url.wrapped());
        links.all(|link| registry.schemes().any(|scheme| scheme == link.scheme()))
    }
}

/// References as columns: keys, file URLs, and for each key the index of its file, its first byte and its number of
/// bytes.
type ReferenceColumns = (Vec<String>, Vec<String>, Vec<u32>, Vec<u64>, Vec<u64>);

/// Adds references, given as columns and as inline values, to a table of references.
fn add_references(
    table: &ReferenceTable,
    columns: &ReferenceColumns,
    inline: Vec<(String, Vec<u8>)>,
) -> cuzarr::Result<()> {
    let (keys, urls, files, offsets, sizes_bytes) = columns;
    table.insert_columns(Columns { keys, urls, files, offsets, sizes_bytes })?;
    inline.into_iter().try_for_each(|(key, value)| table.insert_inline(&key, value))
}

/// A Python function that returns the references of an array when they are first needed.
struct PythonReferences(Py<PyAny>);

impl ArrayReferences for PythonReferences {
    fn add(&self, array: &str, table: &ReferenceTable) -> cuzarr::Result<()> {
        type Given = (ReferenceColumns, Vec<(String, Vec<u8>)>);
        let given = attach(|py| {
            let given = self.0.call1(py, (array,)).and_then(|given| given.extract::<Given>(py));
            given.map_err(|error| from_python(py, ErrorKind::StoreFailed, "table of references", error))
        });
        let (columns, inline) = given?;
        add_references(table, &columns, inline)
    }
}

/// The user's Python function that returns credentials.
struct PythonCredentials(Py<PyAny>);

impl CredentialSource for PythonCredentials {
    fn credentials(&self) -> cuzarr::Result<Credentials> {
        attach(|py| {
            let given = self.0.call0(py).and_then(|given| given.extract::<(BTreeMap<String, String>, Option<f64>)>(py));
            let (values, expires_at) =
                given.map_err(|error| from_python(py, ErrorKind::StoreFailed, "credential_provider", error))?;
            let seconds = expires_at.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            Ok(Credentials { values, expires_at: seconds.map(|seconds| SystemTime::UNIX_EPOCH + seconds) })
        })
    }
}

/// Makes a one-dimensional byte array over a buffer.
fn flat(buffer: Buffer) -> cuzarr::Result<PyNdBuffer> {
    let layout = Layout::contiguous(&[buffer.size_bytes()], 1, Order::C)?;
    Ok(PyNdBuffer { inner: NdBuffer::from_parts(buffer, DType::UINT8, layout)? })
}

fn range(start: Option<i64>, stop: Option<u64>) -> ByteRange {
    match (start, stop) {
        (None, None) => ByteRange::Full,
        (Some(start), None) if start < 0 => ByteRange::Suffix { size_bytes: start.unsigned_abs() },
        (Some(start), None) => ByteRange::From { offset: start.unsigned_abs() },
        (start, Some(stop)) => {
            let offset = start.unwrap_or(0).max(0).unsigned_abs();
            ByteRange::Span { offset, size_bytes: stop.saturating_sub(offset) }
        }
    }
}

/// A store that is implemented in Python, as a store of the Rust library. Every call takes the interpreter's lock, and
/// may come from any thread.
struct PythonStore {
    adapter: Py<PyAny>,
    name: String,
    capabilities: Capabilities,
    place: Place,
    /// The device whose memory holds the store's values; `None` if that is host memory.
    device: Option<Device>,
}

impl PythonStore {
    fn call<T>(
        &self,
        what: &str,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> cuzarr::Result<T> {
        attach(|py| {
            call(py, self.adapter.bind(py)).map_err(|error| {
                from_python(py, ErrorKind::StoreFailed, &format!("store '{}': {what}", self.name), error)
            })
        })
    }
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
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let name = self.name.clone();
        let explain = move |py: Python<'_>, request: &ReadRequest, exception| {
            from_python(py, ErrorKind::StoreFailed, &format!("store '{name}': get '{}'", request.key), exception)
        };
        Pending::new(batch, sink, self.device, workers.handle(), Box::new(explain)).request(|requests, reply| {
            self.call("get", |_, adapter| adapter.call_method1("start", (requests, reply)).map(|_| ()))
        });
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> cuzarr::Result<bool> {
        condition.refuse_versions(self, key)?;
        let what = format!("set '{key}'");
        if *condition == Condition::Absent {
            return value.with_bytes(|bytes| {
                self.call(&what, |py, adapter| {
                    adapter.call_method1("set_if_not_exists", (key, PyBytes::new(py, bytes)))?.extract()
                })
            });
        }
        match (value, self.device.filter(|device| *device != Device::Cpu)) {
            (Payload::Buffer(value), Some(device)) => {
                // A view would keep its whole block alive, and a block with other owners can change.
                let own = value.device() == device && value.size_bytes() == value.allocation_bytes();
                let copy = if own { value.clone() } else { Buffer::empty(device, value.size_bytes())? };
                if !own {
                    copy.copy_from(value)?;
                }
                let array = flat(copy)?;
                self.call(&what, |_, adapter| adapter.call_method1("set_buffer", (key, array)).map(|_| true))
            }
            (value, _) => value.with_bytes(|bytes| {
                self.call(&what, |py, adapter| {
                    adapter.call_method1("set", (key, PyBytes::new(py, bytes))).map(|_| true)
                })
            }),
        }
    }

    fn begin(&self, key: &Key, _size_bytes: u64) -> cuzarr::Result<Box<dyn Unfinished>> {
        no_parts(self, key)
    }

    fn delete_many(&self, keys: &[String]) -> cuzarr::Result<()> {
        match keys {
            [] => Ok(()),
            [key] => {
                self.call(&format!("delete '{key}'"), |_, adapter| adapter.call_method1("delete", (key,)).map(|_| ()))
            }
            [first, ..] => self.call(&format!("delete '{first}' and {} more", keys.len() - 1), |_, adapter| {
                adapter.call_method1("delete_many", (keys.to_vec(),)).map(|_| ())
            }),
        }
    }

    fn delete_prefix(&self, prefix: &Key) -> cuzarr::Result<()> {
        self.call(&format!("delete '{prefix}'"), |_, adapter| adapter.call_method1("delete_dir", (prefix,)).map(|_| ()))
    }

    fn stat(&self, key: &Key) -> cuzarr::Result<Option<Stat>> {
        let size_bytes: Option<u64> =
            self.call(&format!("size of '{key}'"), |_, adapter| adapter.call_method1("getsize", (key,))?.extract())?;
        Ok(size_bytes.map(|size_bytes| Stat { size_bytes, version: None }))
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

    fn identity(&self) -> Identity {
        self.place.identity().clone()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn is_on(&self, device: Device) -> bool {
        device != Device::Cpu && self.device == Some(device)
    }

    fn try_lock(&self, _prefix: &Key) -> cuzarr::Result<Lock> {
        Ok(Lock::Unsupported)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        None
    }
}
