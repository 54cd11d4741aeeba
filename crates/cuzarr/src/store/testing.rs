//! A store for tests that records, delays or fails the operations of another store.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cuzarr_device::{Buffer, Device};

use super::{
    ByteRange, Capabilities, Condition, Identity, InlineWorkers, Key, Lease, Listing, Lock, OpenValues, Payload,
    ReadOutcome, ReadRequest, ReadSink, Stat, Store, Unfinished, Version, Workers,
};
use crate::error::{Error, ErrorKind, Result};

/// An operation that was requested from a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The read of one item of a batch.
    Read(ReadRequest),
    /// A write of this many bytes to this key, or the beginning of a value that is written in parts.
    Write(String, usize),
    /// The write of one part of a value: the value's key, and the offset and size of the part.
    Part(String, u64, usize),
    /// A write of this many bytes to this key, only if the key does not exist.
    WriteIfAbsent(String, usize),
    /// A deletion of the value of this key.
    Delete(String),
    /// A deletion of everything below a prefix.
    DeletePrefix(String),
    /// A request for a value's size.
    Size(String),
    /// A listing of the keys and prefixes directly below this prefix.
    ListDir(String),
    /// A listing of all keys below this prefix.
    List(String),
}

type Failure = dyn Fn(&Operation) -> Option<Error> + Send + Sync;

/// Observes another store: records operations, counts the bytes read, and can delay or fail operations.
pub struct Observed {
    inner: Arc<dyn Store>,
    operations: Arc<Mutex<Vec<Operation>>>,
    read_bytes: Arc<AtomicU64>,
    in_flight: Arc<InFlight>,
    delayed: Option<Delayed>,
    failure: Option<Arc<Failure>>,
    refuses_deletes: bool,
    hides_versions: bool,
    transactional: bool,
}

/// Number of items that are being read from the store now, and the largest number so far.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

type Job = Box<dyn FnOnce() + Send>;

/// Workers for tests that run each job on a separate thread, a fixed time after it was given.
struct Delayed {
    delay: Duration,
    jobs: Sender<(Instant, Job)>,
}

impl Delayed {
    fn new(delay: Duration) -> Delayed {
        let (jobs, waiting) = channel::<(Instant, Job)>();
        // All delays are equal, so jobs are due in the order in which they arrive. The thread ends with the store.
        std::thread::spawn(move || {
            for (due, job) in waiting {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                job();
            }
        });
        Delayed { delay, jobs }
    }
}

impl Observed {
    /// Makes a store that observes `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Observed {
            inner,
            operations: Arc::default(),
            read_bytes: Arc::default(),
            in_flight: Arc::default(),
            delayed: None,
            failure: None,
            transactional: false,
            refuses_deletes: false,
            hides_versions: false,
        }
    }

    /// Makes each item of a read take at least `delay`, as in a remote store. Any number of items wait at the same
    /// time, and none of them blocks a thread of the caller.
    #[must_use]
    pub fn with_read_delay(mut self, delay: Duration) -> Self {
        self.delayed = Some(Delayed::new(delay));
        self
    }

    /// Makes the store claim that writes are invisible until they are committed; see [`Capabilities::transactional`].
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// The largest number of items that were read from the store at the same time.
    pub fn most_in_flight(&self) -> usize {
        self.in_flight.most.load(Ordering::Relaxed)
    }

    /// Calls `failure` before each operation, which fails if `failure` returns an error. If it returns an error, the
    /// operation fails with that error.
    #[must_use]
    pub fn with_failure(mut self, failure: impl Fn(&Operation) -> Option<Error> + Send + Sync + 'static) -> Self {
        self.failure = Some(Arc::new(failure));
        self
    }

    /// Makes the store claim that values cannot be deleted, as in a ZIP file.
    #[must_use]
    pub fn without_deletes(mut self) -> Self {
        self.refuses_deletes = true;
        self
    }

    /// Makes the store report no versions, like a server without entity tags.
    #[must_use]
    pub fn without_versions(mut self) -> Self {
        self.hides_versions = true;
        self
    }

    /// The operations that were requested from the store since the last call of this method.
    pub fn take_operations(&self) -> Vec<Operation> {
        std::mem::take(&mut *self.operations.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys and byte ranges that were read since the last call of this method. Records of other operations are
    /// discarded.
    pub fn take_reads(&self) -> Vec<(String, ByteRange)> {
        let reads = self.take_operations().into_iter().filter_map(|operation| match operation {
            Operation::Read(request) => Some((request.key, request.range)),
            _ => None,
        });
        reads.collect()
    }

    /// Number of bytes that reads have delivered since the store was made.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    fn observe(&self, operation: Operation) -> Result<()> {
        observe(&self.operations, self.failure.as_deref(), operation)
    }
}

fn observe(operations: &Mutex<Vec<Operation>>, failure: Option<&Failure>, operation: Operation) -> Result<()> {
    let failure = failure.and_then(|failure| failure(&operation));
    operations.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    failure.map_or(Ok(()), Err)
}

/// A value that is written in parts, and records its parts.
struct ObservedValue {
    value: Box<dyn Unfinished>,
    key: String,
    operations: Arc<Mutex<Vec<Operation>>>,
    failure: Option<Arc<Failure>>,
}

#[deny(clippy::missing_trait_methods)]
impl Unfinished for ObservedValue {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let operation = Operation::Part(self.key.clone(), offset, bytes.len());
        observe(&self.operations, self.failure.as_deref(), operation)?;
        self.value.write_at(offset, bytes)
    }

    fn shorten(&mut self, size_bytes: u64) -> Result<()> {
        self.value.shorten(size_bytes)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.value.finish()
    }
}

/// A sink for one item of a batch: it counts the item's bytes, and passes each call on to the batch's own sink.
struct ItemSink {
    item: usize,
    sink: Arc<dyn ReadSink>,
    read_bytes: Arc<AtomicU64>,
    in_flight: Arc<InFlight>,
    hides_versions: bool,
    ended: AtomicBool,
}

impl ItemSink {
    fn end(&self, outcome: Result<ReadOutcome>) {
        self.in_flight.now.fetch_sub(1, Ordering::Relaxed);
        self.ended.store(true, Ordering::Release);
        self.sink.done(self.item, outcome);
    }
}

/// Reports an error for an item whose job was dropped before it ran.
impl Drop for ItemSink {
    fn drop(&mut self) {
        if !*self.ended.get_mut() {
            self.end(Err(Error::new(ErrorKind::Cancelled, "the read was dropped before it began")));
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl ReadSink for ItemSink {
    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn reserve(&self, _index: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
        self.sink.reserve(self.item, size_bytes)
    }

    fn open_values(&self) -> Option<&OpenValues> {
        self.sink.open_values()
    }

    fn opened(&self, _index: usize, version: Version) -> Result<()> {
        if self.hides_versions { Ok(()) } else { self.sink.opened(self.item, version) }
    }

    fn device(&self) -> Device {
        self.sink.device()
    }

    fn reserve_on_device(&self, _index: usize, size_bytes: u64) -> Result<Buffer> {
        self.sink.reserve_on_device(self.item, size_bytes)
    }

    fn done(&self, _index: usize, outcome: Result<ReadOutcome>) {
        let outcome = outcome.map(|outcome| match outcome {
            ReadOutcome::Filled(mut lease) => {
                self.read_bytes.fetch_add(lease.bytes().len() as u64, Ordering::Relaxed);
                ReadOutcome::Filled(lease)
            }
            ReadOutcome::OnDevice(buffer) => {
                self.read_bytes.fetch_add(buffer.size_bytes() as u64, Ordering::Relaxed);
                ReadOutcome::OnDevice(buffer)
            }
            ReadOutcome::Missing => ReadOutcome::Missing,
        });
        self.end(outcome);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Observed {
    fn read(&self, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        for (item, request) in batch.iter().enumerate() {
            if let Err(error) = self.observe(Operation::Read(request.clone())) {
                sink.done(item, Err(error));
                continue;
            }
            let (sink, read_bytes) = (Arc::clone(&sink), Arc::clone(&self.read_bytes));
            let in_flight = Arc::clone(&self.in_flight);
            in_flight.most.fetch_max(in_flight.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let item_sink = ItemSink {
                item,
                sink,
                read_bytes,
                in_flight,
                hides_versions: self.hides_versions,
                ended: AtomicBool::new(false),
            };
            let (inner, request) = (Arc::clone(&self.inner), request.clone());
            let job = Box::new(move || inner.read([request].into(), Arc::new(item_sink), &InlineWorkers));
            match &self.delayed {
                None => workers.spawn(job),
                // If the thread has ended, the job is dropped, which ends the item.
                Some(Delayed { delay, jobs }) => drop(jobs.send((Instant::now() + *delay, job))),
            }
        }
    }

    fn put(&self, key: &Key, value: Payload<'_>, condition: &Condition) -> Result<bool> {
        let (key_text, size_bytes) = (key.to_string(), value.size_bytes());
        self.observe(match condition {
            Condition::Absent => Operation::WriteIfAbsent(key_text, size_bytes),
            Condition::Always | Condition::Unchanged(_) => Operation::Write(key_text, size_bytes),
        })?;
        self.inner.put(key, value, condition)
    }

    fn begin(&self, key: &Key, size_bytes: u64) -> Result<Box<dyn Unfinished>> {
        self.observe(Operation::Write(key.to_string(), size_bytes as usize))?;
        let (operations, failure) = (Arc::clone(&self.operations), self.failure.clone());
        let value = self.inner.begin(key, size_bytes)?;
        Ok(Box::new(ObservedValue { value, key: key.to_string(), operations, failure }))
    }

    fn delete_many(&self, keys: &[String]) -> Result<()> {
        keys.iter().try_for_each(|key| {
            self.observe(Operation::Delete(key.clone()))?;
            self.inner.delete_many(std::slice::from_ref(key))
        })
    }

    fn delete_prefix(&self, prefix: &Key) -> Result<()> {
        self.observe(Operation::DeletePrefix(prefix.to_string()))?;
        self.inner.delete_prefix(prefix)
    }

    fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        self.observe(Operation::Size(key.to_string()))?;
        let stat = self.inner.stat(key)?;
        Ok(stat.map(|stat| Stat { version: stat.version.filter(|_| !self.hides_versions), ..stat }))
    }

    fn list_dir(&self, prefix: &Key) -> Result<Listing> {
        self.observe(Operation::ListDir(prefix.to_string()))?;
        self.inner.list_dir(prefix)
    }

    fn list(&self, prefix: &Key) -> Result<Vec<String>> {
        self.observe(Operation::List(prefix.to_string()))?;
        self.inner.list(prefix)
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities {
            deletes: inner.deletes && !self.refuses_deletes,
            far: inner.far || self.delayed.is_some(),
            transactional: inner.transactional || self.transactional,
            // Items are passed on one at a time.
            divides_reads: false,
            ..inner
        }
    }

    fn is_on(&self, device: Device) -> bool {
        self.inner.is_on(device)
    }

    fn try_lock(&self, prefix: &Key) -> Result<Lock> {
        self.inner.try_lock(prefix)
    }

    fn above(&self) -> Option<(Arc<dyn Store>, String)> {
        self.inner.above()
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observed({:?})", self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryStore, StoreExt};
    use super::*;

    #[test]
    fn conforms_while_watching() {
        super::super::conformance::run(&|| Arc::new(Observed::new(Arc::new(MemoryStore::new()))));
    }

    #[test]
    fn counts_and_fails_what_it_is_told_to() {
        let inner = Arc::new(MemoryStore::new());
        inner.write("good", b"12345").unwrap();
        let store = Observed::new(inner).with_failure(|operation| match operation {
            Operation::Read(request) if request.key == "bad" => Some(Error::new(ErrorKind::StoreFailed, "told to")),
            _ => None,
        });
        assert_eq!(store.get_range("good", ByteRange::Suffix { size_bytes: 2 }).unwrap().as_deref(), Some(&b"45"[..]));
        assert_eq!(store.get("bad").unwrap_err().message(), "told to");
        assert_eq!(store.read_bytes(), 2);
        let reads = store.take_reads();
        assert_eq!(reads[0], ("good".to_string(), ByteRange::Suffix { size_bytes: 2 }));
        assert_eq!(reads.len(), 2);
    }
}
