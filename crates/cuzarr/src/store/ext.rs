//! Blocking calls on stores, for metadata, indexes and tests.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cuzarr_device::{Buffer, Device};

use super::{ByteRange, Condition, Key, Lease, Payload, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};
use crate::error::{Error, ErrorKind, Result};

/// Workers without threads of their own: they run each job at once, on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineWorkers;

impl Workers for InlineWorkers {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    fn count(&self) -> usize {
        1
    }
}

/// The bytes of a value, with the value's version if the store reports versions.
pub type Versioned = (Vec<u8>, Option<Version>);

/// Blocking methods that every store has, such as reading a whole value. They wait for the store, and return values in
/// new memory.
pub trait StoreExt: Store {
    /// Reads a whole value; `None` when the key does not exist.
    ///
    /// # Errors
    /// What the store reports.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.get_at_most(key, u64::MAX)
    }

    /// Reads a whole value that must not be larger than `limit_bytes`.
    ///
    /// # Errors
    /// `BudgetExceeded` when it is larger; nothing was read then.
    fn get_at_most(&self, key: &Key, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        let request = ReadRequest { key: key.to_string(), range: ByteRange::Full };
        only(collect(self, vec![request], limit_bytes))
    }

    /// Reads a whole value that must not be larger than `limit_bytes`, with its version; `None` when the key does not
    /// exist. The version is `None` if the store does not report versions.
    ///
    /// # Errors
    /// Those of [`StoreExt::get_at_most`].
    fn get_versioned(&self, key: &Key, limit_bytes: u64) -> Result<Option<Versioned>> {
        let request = ReadRequest { key: key.to_string(), range: ByteRange::Full };
        let (items, versions) = collect_versioned(self, vec![request], limit_bytes);
        Ok(only(items)?.map(|bytes| (bytes, versions.into_iter().next().flatten())))
    }

    /// Reads part of a value; `None` when the key does not exist.
    ///
    /// # Errors
    /// `StoreFailed` when the value is shorter than the range.
    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Vec<u8>>> {
        only(collect(self, vec![ReadRequest { key: key.to_string(), range }], u64::MAX))
    }

    /// Reads a batch, and returns the value of each item. Results are in the order of the requests. Each item can fail
    /// without the others.
    fn get_many(&self, requests: Vec<ReadRequest>) -> Vec<Result<Option<Vec<u8>>>> {
        collect(self, requests, u64::MAX)
    }

    /// Like [`StoreExt::get_many`], with a limit: an item whose value is larger than `limit_bytes` fails.
    fn get_many_at_most(&self, requests: Vec<ReadRequest>, limit_bytes: u64) -> Vec<Result<Option<Vec<u8>>>> {
        collect(self, requests, limit_bytes)
    }

    /// Like [`StoreExt::get_many_at_most`], with the version of each value if the store reports versions.
    fn get_many_versioned(&self, requests: Vec<ReadRequest>, limit_bytes: u64) -> Vec<Result<Option<Versioned>>> {
        let (items, versions) = collect_versioned(self, requests, limit_bytes);
        items.into_iter().zip(versions).map(|(item, version)| Ok(item?.map(|bytes| (bytes, version)))).collect()
    }

    /// Reads part of a value into new memory of `device`; `None` when the key does not exist.
    ///
    /// # Errors
    /// Those of [`StoreExt::get_range`]; what the device reports.
    fn get_buffer(&self, key: &Key, range: ByteRange, device: Device) -> Result<Option<Buffer>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let sink = Arc::new(OneBuffer { device, sender: Mutex::new(sender) });
        self.read([ReadRequest { key: key.to_string(), range }].into(), sink, &InlineWorkers);
        let lost = || Err(Error::new(ErrorKind::StoreFailed, "the store dropped a read without an outcome"));
        receiver.recv().unwrap_or_else(|_| lost())
    }

    /// Writes a value, whole and atomically.
    ///
    /// # Errors
    /// Those of [`Store::put`].
    fn write(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.put(key, Payload::Bytes(value), &Condition::Always).map(|_| ())
    }

    /// Like [`StoreExt::write`], for a value that may lie in device memory; see [`Payload::Buffer`].
    ///
    /// # Errors
    /// Those of [`Store::put`].
    fn write_buffer(&self, key: &Key, value: &Buffer) -> Result<()> {
        self.put(key, Payload::Buffer(value), &Condition::Always).map(|_| ())
    }

    /// Writes a value unless the key exists; returns whether it wrote.
    ///
    /// # Errors
    /// Those of [`Store::put`].
    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        self.put(key, Payload::Bytes(value), &Condition::Absent)
    }

    /// Deletes a value. A missing key is not an error.
    ///
    /// # Errors
    /// Those of [`Store::delete_many`].
    fn delete(&self, key: &Key) -> Result<()> {
        self.delete_many(&[key.to_string()])
    }

    /// The size of a value, or `None` when the key does not exist.
    ///
    /// # Errors
    /// Those of [`Store::stat`].
    fn size_bytes(&self, key: &Key) -> Result<Option<u64>> {
        Ok(self.stat(key)?.map(|stat| stat.size_bytes))
    }

    /// Whether the key has a value.
    ///
    /// # Errors
    /// Those of [`Store::stat`].
    fn exists(&self, key: &Key) -> Result<bool> {
        Ok(self.stat(key)?.is_some())
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

type BatchItem = Result<Option<Vec<u8>>>;

fn collect<S: Store + ?Sized>(store: &S, requests: Vec<ReadRequest>, limit_bytes: u64) -> Vec<BatchItem> {
    collect_versioned(store, requests, limit_bytes).0
}

/// Reads a batch, with the version of each item's value if the store reports versions.
pub(super) fn collect_versioned<S: Store + ?Sized>(
    store: &S,
    requests: Vec<ReadRequest>,
    limit_bytes: u64,
) -> (Vec<BatchItem>, Vec<Option<Version>>) {
    let count = requests.len();
    let sink = Arc::new(Collector {
        limit_bytes,
        items: Mutex::new((0..count).map(|_| None).collect()),
        versions: Mutex::new(vec![None; count]),
        done: Condvar::new(),
    });
    store.read(requests.into(), Arc::clone(&sink) as Arc<dyn ReadSink>, &InlineWorkers);
    (sink.wait(), std::mem::take(&mut *sink.versions.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn only(mut items: Vec<BatchItem>) -> BatchItem {
    items.pop().unwrap_or(Ok(None))
}

struct Collector {
    limit_bytes: u64,
    items: Mutex<Vec<Option<BatchItem>>>,
    versions: Mutex<Vec<Option<Version>>>,
    done: Condvar,
}

impl Collector {
    fn wait(&self) -> Vec<BatchItem> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        while items.iter().any(Option::is_none) {
            items = self.done.wait(items).unwrap_or_else(PoisonError::into_inner);
        }
        items.drain(..).flatten().collect()
    }
}

impl ReadSink for Collector {
    fn opened(&self, index: usize, version: Version) -> Result<()> {
        if let Some(slot) = self.versions.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
            *slot = Some(version);
        }
        Ok(())
    }

    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        if size_bytes > self.limit_bytes {
            let message = format!("value has {size_bytes} bytes, expected at most {}", self.limit_bytes);
            return Err(Error::new(ErrorKind::BudgetExceeded, message));
        }
        Ok(Box::new(zeroed(size_bytes)?))
    }

    fn done(&self, index: usize, outcome: Result<ReadOutcome>) {
        let item = outcome.and_then(|outcome| match outcome {
            ReadOutcome::Missing => Ok(None),
            ReadOutcome::OnDevice(buffer) => Ok(Some(buffer.to_vec()?)),
            ReadOutcome::Filled(lease) => match lease.into_any().downcast::<Vec<u8>>() {
                Ok(bytes) => Ok(Some(*bytes)),
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store returned memory that was not lent to it")),
            },
        });
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = items.get_mut(index) {
            *slot = Some(item);
        }
        self.done.notify_all();
    }
}

/// A sink for a single read: it takes the bytes in memory of a device and sends them to the caller.
struct OneBuffer {
    device: Device,
    sender: Mutex<std::sync::mpsc::Sender<Result<Option<Buffer>>>>,
}

impl OneBuffer {
    fn take(&self, outcome: ReadOutcome) -> Result<Option<Buffer>> {
        match outcome {
            ReadOutcome::Missing => Ok(None),
            // The caller may write to the result, so the result must not share the store's memory.
            ReadOutcome::OnDevice(buffer) if buffer.is_read_only() => {
                let copy = Buffer::empty(self.device, buffer.size_bytes())?;
                copy.copy_from(&buffer)?;
                Ok(Some(copy))
            }
            ReadOutcome::OnDevice(buffer) => Ok(Some(buffer.to_device(self.device)?)),
            ReadOutcome::Filled(lease) => match lease.into_any().downcast::<Vec<u8>>() {
                Ok(bytes) if self.device == Device::Cpu => Ok(Some(Buffer::from_vec(*bytes))),
                Ok(bytes) => Ok(Some(Buffer::from_bytes(self.device, &bytes)?)),
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store returned memory that was not lent to it")),
            },
        }
    }
}

impl ReadSink for OneBuffer {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        Ok(Box::new(zeroed(size_bytes)?))
    }

    fn device(&self) -> Device {
        self.device
    }

    fn reserve_on_device(&self, _index: usize, size_bytes: u64) -> Result<Buffer> {
        let no_memory =
            |_| Error::new(ErrorKind::OutOfMemory, format!("not enough memory for a value of {size_bytes} bytes"));
        Ok(Buffer::empty(self.device, usize::try_from(size_bytes).map_err(no_memory)?)?)
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.and_then(|outcome| self.take(outcome));
        // The receiver takes only the first outcome.
        let _ = self.sender.lock().unwrap_or_else(PoisonError::into_inner).send(outcome);
    }
}

/// Allocates zeroed memory, or returns an error if there is not enough.
pub(super) fn zeroed(size_bytes: u64) -> Result<Vec<u8>> {
    let no_memory =
        || Error::new(ErrorKind::OutOfMemory, format!("not enough memory for a value of {size_bytes} bytes"));
    let size = usize::try_from(size_bytes).map_err(|_| no_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
    bytes.resize(size, 0);
    Ok(bytes)
}
