//! Watches: objects by which Python code cancels running reads and writes, and counts the stored objects that were
//! reached.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr::CancellationToken;
use cuzarr::internal::meta::node::ZARR_JSON;
use cuzarr::internal::node::with_store;
use cuzarr::node::Array;
use cuzarr::store::{
    Capabilities, Condition, Identity, Key, Lease, Listing, Lock, OpenValues, Payload, ReadOutcome, ReadRequest,
    ReadSink, Stat, Store, Unfinished, Version, Workers,
};
use cuzarr_device::{Buffer, Device};
use pyo3::prelude::*;

use crate::error::PyResult;
use crate::interrupt;

thread_local! {
    /// The watches whose `with` blocks this thread is in, innermost last.
    static CURRENT: RefCell<Vec<Arc<Watch>>> = const { RefCell::new(Vec::new()) };
}

/// An object that can cancel running reads and writes, and that remembers the keys of stored objects that they have
/// reached.
#[derive(Default)]
pub struct Watch {
    cancellation: CancellationToken,
    keys: Mutex<Keys>,
    counts: bool,
    lists_missing: bool,
}

#[derive(Default)]
struct Keys {
    read: HashSet<String>,
    written: HashSet<String>,
    missing: HashSet<String>,
}

impl Watch {
    /// Makes a `Watch` whose only task is to remember the keys that are read but missing in the store.
    pub fn of_missing() -> Watch {
        Watch { lists_missing: true, ..Watch::default() }
    }

    /// Returns the keys that were read but are missing in the store, since the last call of this function, and forgets
    /// them.
    pub fn take_missing(&self) -> HashSet<String> {
        std::mem::take(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner).missing)
    }

    /// Cancels the reads and writes that this watch observes: each fails before it reaches its next stored object.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Notes a key that holds elements. Documents, and records of progress, do not count.
    fn note(&self, key: &str, keys: fn(&mut Keys) -> &mut HashSet<String>) {
        let name = key.rsplit('/').next().unwrap_or(key);
        if self.counts && name != ZARR_JSON && !name.starts_with('.') {
            keys(&mut self.keys.lock().unwrap_or_else(PoisonError::into_inner)).insert(key.to_string());
        }
    }
}

/// The `Watch` objects that observe one read or write: each can cancel it, or remember the keys of stored objects that
/// it reaches.
#[derive(Clone)]
pub struct Watches(Arc<[Arc<Watch>]>);

impl Watches {
    /// Returns the `Watch` objects whose `with` blocks this thread is in; they observe its reads and writes.
    pub fn current() -> Watches {
        Watches(CURRENT.with_borrow(|stack| stack.iter().map(Arc::clone).collect()))
    }

    /// Returns the `Watch` objects whose `with` blocks this thread is in, and `own` as a further one.
    pub fn with(own: &Arc<Watch>) -> Watches {
        Watches(CURRENT.with_borrow(|stack| stack.iter().chain([own]).map(Arc::clone).collect()))
    }

    /// Makes a token that is cancelled when one of these watches is, for a read or write that they observe. A signal
    /// cancels it, too.
    pub fn token(&self) -> CancellationToken {
        let tokens = self.0.iter().map(|watch| watch.cancellation.clone());
        CancellationToken::under(tokens.chain([interrupt::token()]).collect())
    }

    /// Returns an array whose reads and writes report their keys to these watches, and end when `token` is cancelled.
    pub fn array(&self, array: &Array, token: &CancellationToken) -> Array {
        with_store(&array.under(token.clone()), self.store(array.store()))
    }

    /// Returns a store that reports the keys it reads and writes to these watches, or `store` itself if none of them
    /// remembers keys.
    pub fn store(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        match self.0.iter().any(|watch| watch.counts || watch.lists_missing) {
            true => Arc::new(Watched { inner: Arc::clone(store), watches: self.clone() }),
            false => Arc::clone(store),
        }
    }

    fn note_read(&self, key: &str, is_missing: bool) {
        for watch in self.0.iter() {
            watch.note(key, |keys| &mut keys.read);
            if watch.lists_missing && is_missing {
                watch.keys.lock().unwrap_or_else(PoisonError::into_inner).missing.insert(key.to_string());
            }
        }
    }

    fn note_written(&self, key: &Key) {
        self.0.iter().for_each(|watch| watch.note(key, |keys| &mut keys.written));
    }
}

/// An object by which Python code cancels its own reads and writes, and counts the stored objects that they have
/// reached. A watch applies to all calls that begin on this thread inside its `with` block.
#[pyclass(name = "Watch", module = "cuzarr._core", frozen)]
pub struct PyWatch {
    watch: Arc<Watch>,
}

#[pymethods]
impl PyWatch {
    #[new]
    #[pyo3(signature = (*, counts=false))]
    fn new(counts: bool) -> Self {
        PyWatch { watch: Arc::new(Watch { counts, ..Watch::default() }) }
    }

    /// Ends the calls under this watch at their next stored object, and later calls immediately. Any thread may call
    /// it.
    fn cancel(&self) {
        self.watch.cancel();
    }

    /// Number of stored objects that were read so far, and number that were written or deleted.
    fn counts(&self) -> (usize, usize) {
        let keys = self.watch.keys.lock().unwrap_or_else(PoisonError::into_inner);
        (keys.read.len(), keys.written.len())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        CURRENT.with_borrow_mut(|stack| stack.push(Arc::clone(&slf.get().watch)));
        slf
    }

    fn __exit__(&self, _kind: Py<PyAny>, _value: Py<PyAny>, _traceback: Py<PyAny>) -> PyResult<()> {
        CURRENT.with_borrow_mut(|stack| {
            let place = stack.iter().rposition(|watch| Arc::ptr_eq(watch, &self.watch));
            place.map(|place| stack.remove(place));
        });
        Ok(())
    }
}

/// A wrapper of a store that reports each key that is read, written or deleted to `Watch` objects.
struct Watched {
    inner: Arc<dyn Store>,
    watches: Watches,
}

/// A receiver of a store's values that reports the key of each arrived value to `Watch` objects, and passes the value
/// on.
struct WatchedSink {
    inner: Arc<dyn ReadSink>,
    batch: Arc<[ReadRequest]>,
    watches: Watches,
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for WatchedSink {
    fn check(&self) -> cuzarr::Result<()> {
        self.inner.check()
    }

    fn reserve(&self, index: usize, size_bytes: u64) -> cuzarr::Result<Box<dyn Lease>> {
        self.inner.reserve(index, size_bytes)
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.inner.open_values()
    }

    fn opened(&self, index: usize, version: Version) -> cuzarr::Result<()> {
        self.inner.opened(index, version)
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn reserve_on_device(&self, index: usize, size_bytes: u64) -> cuzarr::Result<Buffer> {
        self.inner.reserve_on_device(index, size_bytes)
    }

    fn done(&self, index: usize, outcome: cuzarr::Result<ReadOutcome>) {
        if let Some(request) = self.batch.get(index) {
            self.watches.note_read(&request.key, matches!(outcome, Ok(ReadOutcome::Missing)));
        }
        self.inner.done(index, outcome);
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

/// A value that is written in parts, whose key is reported to `Watch` objects. The watches are told when it is
/// finished.
struct WatchedValue {
    value: Box<dyn Unfinished>,
    key: String,
    watches: Watches,
}

#[deny(clippy::missing_trait_methods)]
impl Unfinished for WatchedValue {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> cuzarr::Result<()> {
        self.value.write_at(offset, bytes)
    }

    fn shorten(&mut self, size_bytes: u64) -> cuzarr::Result<()> {
        self.value.shorten(size_bytes)
    }

    fn finish(self: Box<Self>) -> cuzarr::Result<()> {
        self.value.finish()?;
        self.watches.note_written(&self.key);
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Watched {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let sink = Arc::new(WatchedSink { inner: sink, batch: Arc::clone(&batch), watches: self.watches.clone() });
        self.inner.read(batch, sink, workers);
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> cuzarr::Result<bool> {
        let wrote = self.inner.put(key, value, condition)?;
        // Trying to create a document that may already exist is not progress.
        if *condition != Condition::Absent {
            self.watches.note_written(key);
        }
        Ok(wrote)
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> cuzarr::Result<Box<dyn Unfinished>> {
        let value = self.inner.begin(key, size_bytes)?;
        Ok(Box::new(WatchedValue { value, key: key.to_string(), watches: self.watches.clone() }))
    }

    fn delete_many(&self, keys: &[String]) -> cuzarr::Result<()> {
        self.inner.delete_many(keys)?;
        keys.iter().for_each(|key| self.watches.note_written(key));
        Ok(())
    }

    fn delete_prefix(&self, prefix: &Key) -> cuzarr::Result<()> {
        self.inner.delete_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> cuzarr::Result<Option<Stat>> {
        self.inner.stat(key)
    }

    fn list_dir(&self, prefix: &Key) -> cuzarr::Result<Listing> {
        self.inner.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> cuzarr::Result<Vec<String>> {
        self.inner.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn try_lock(&self, prefix: &Key) -> cuzarr::Result<Lock> {
        self.inner.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.inner.above()
    }
}
