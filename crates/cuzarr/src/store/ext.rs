//! Plain calls on stores, for values that the calling thread waits for: metadata, indexes, tests.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cuzarr_device::{Buffer, Device};

use super::{ByteRange, Condition, Key, Lease, Payload, ReadOutcome, ReadRequest, ReadSink, Store, Workers};
use crate::error::{Error, ErrorKind, Result};

/// Runs each job at once, on the calling thread.
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

/// Plain calls on every store: they wait, and return new vectors.
pub trait StoreExt: Store {
    /// A whole value; `None` when the key does not exist.
    ///
    /// # Errors
    /// What the store reports.
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.get_at_most(key, u64::MAX)
    }

    /// A whole value that must not be larger than `limit_bytes`.
    ///
    /// # Errors
    /// `StoreFailed` when it is larger; nothing was read then.
    fn get_at_most(&self, key: &Key, limit_bytes: u64) -> Result<Option<Vec<u8>>> {
        let request = ReadRequest { key: key.to_string(), range: ByteRange::Full };
        only(collect(self, vec![request], limit_bytes))
    }

    /// Part of a value; `None` when the key does not exist.
    ///
    /// # Errors
    /// `StoreFailed` when the value is shorter than the range.
    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Vec<u8>>> {
        only(collect(self, vec![ReadRequest { key: key.to_string(), range }], u64::MAX))
    }

    /// A batch, each item with its own outcome, in the order of the requests.
    fn get_many(&self, requests: Vec<ReadRequest>) -> Vec<Result<Option<Vec<u8>>>> {
        collect(self, requests, u64::MAX)
    }

    /// Like [`StoreExt::get_many`]; a value that is larger than `limit_bytes` is an error of its item.
    fn get_many_at_most(&self, requests: Vec<ReadRequest>, limit_bytes: u64) -> Vec<Result<Option<Vec<u8>>>> {
        collect(self, requests, limit_bytes)
    }

    /// Part of a value, in new memory of `device`; `None` when the key does not exist.
    ///
    /// # Errors
    /// Those of [`StoreExt::get_range`]; what the device reports.
    fn get_buffer(&self, key: &Key, range: ByteRange, device: Device) -> Result<Option<Buffer>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let sink = Arc::new(OneBuffer { device, sender: Mutex::new(sender) });
        self.read([ReadRequest { key: key.to_string(), range }].into(), sink, &InlineWorkers);
        let lost = || Err(Error::new(ErrorKind::StoreFailed, "the store gave up a read without saying why"));
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

    /// Writes a value unless the key exists; says whether it wrote.
    ///
    /// # Errors
    /// Those of [`Store::put`].
    fn write_if_absent(&self, key: &Key, value: &[u8]) -> Result<bool> {
        self.put(key, Payload::Bytes(value), &Condition::Absent)
    }

    /// Deletes a value; a missing key is no error.
    ///
    /// # Errors
    /// Those of [`Store::delete_many`].
    fn delete(&self, key: &Key) -> Result<()> {
        self.delete_many(&[key.to_string()])
    }

    /// Size of a value, or `None` when the key does not exist.
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

type Item = Result<Option<Vec<u8>>>;

fn collect<S: Store + ?Sized>(store: &S, requests: Vec<ReadRequest>, limit_bytes: u64) -> Vec<Item> {
    let count = requests.len();
    let sink = Arc::new(Collector {
        limit_bytes,
        items: Mutex::new((0..count).map(|_| None).collect()),
        done: Condvar::new(),
    });
    store.read(requests.into(), Arc::clone(&sink) as Arc<dyn ReadSink>, &InlineWorkers);
    sink.wait()
}

fn only(mut items: Vec<Item>) -> Item {
    items.pop().unwrap_or(Ok(None))
}

struct Collector {
    limit_bytes: u64,
    items: Mutex<Vec<Option<Item>>>,
    done: Condvar,
}

impl Collector {
    fn wait(&self) -> Vec<Item> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        while items.iter().any(Option::is_none) {
            items = self.done.wait(items).unwrap_or_else(PoisonError::into_inner);
        }
        items.drain(..).flatten().collect()
    }
}

impl ReadSink for Collector {
    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        if size_bytes > self.limit_bytes {
            let message = format!("value has {size_bytes} bytes, at most {} are accepted here", self.limit_bytes);
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
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store handed back memory that it was not lent")),
            },
        });
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = items.get_mut(index) {
            *slot = Some(item);
        }
        self.done.notify_all();
    }
}

/// Takes one value, in memory of a device.
struct OneBuffer {
    device: Device,
    sender: Mutex<std::sync::mpsc::Sender<Result<Option<Buffer>>>>,
}

impl OneBuffer {
    fn take(&self, outcome: ReadOutcome) -> Result<Option<Buffer>> {
        match outcome {
            ReadOutcome::Missing => Ok(None),
            // What the store keeps must not be written through what is given away.
            ReadOutcome::OnDevice(buffer) if buffer.is_read_only() => {
                let copy = Buffer::empty(self.device, buffer.size_bytes())?;
                copy.copy_from(&buffer)?;
                Ok(Some(copy))
            }
            ReadOutcome::OnDevice(buffer) => Ok(Some(buffer.to_device(self.device)?)),
            ReadOutcome::Filled(lease) => match lease.into_any().downcast::<Vec<u8>>() {
                Ok(bytes) if self.device == Device::Cpu => Ok(Some(Buffer::from_vec(*bytes))),
                Ok(bytes) => Ok(Some(Buffer::from_bytes(self.device, &bytes)?)),
                Err(_) => Err(Error::new(ErrorKind::StoreFailed, "the store handed back memory that it was not lent")),
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
        let no_memory = |_| Error::new(ErrorKind::OutOfMemory, format!("no memory for a value of {size_bytes} bytes"));
        Ok(Buffer::empty(self.device, usize::try_from(size_bytes).map_err(no_memory)?)?)
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.and_then(|outcome| self.take(outcome));
        // The receiver waits for one outcome, and a second one is nobody's.
        let _ = self.sender.lock().unwrap_or_else(PoisonError::into_inner).send(outcome);
    }
}

/// Zeroed memory, or an error where there is not that much.
fn zeroed(size_bytes: u64) -> Result<Vec<u8>> {
    let no_memory = || Error::new(ErrorKind::OutOfMemory, format!("no memory for a value of {size_bytes} bytes"));
    let size = usize::try_from(size_bytes).map_err(|_| no_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
    bytes.resize(size, 0);
    Ok(bytes)
}
