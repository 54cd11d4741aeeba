//! Reads batches of requests from stores whose values open like files, with several threads. Requests for one value
//! open it once. The lent threads take units of work until none is left.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cuzarr_device::{Buffer, Device};

use super::object::Object;
use super::parts::{PART_BYTES, Parts, part_bytes};
use super::{ByteRange, Key, Lease, ReadOutcome, ReadRequest, ReadSink, Workers};
use crate::error::{Error, ErrorKind, Result, ResultExt};

/// Maximum number of requests that one thread takes at a time. The limit spreads many small ranges of a large shard
/// over the threads. Still, a thread need not return to the queue after each range.
const UNIT_REQUESTS: usize = 16;

/// A thread takes no further requests in one go when those that it has taken ask for this many bytes together. A
/// divided read has parts of the same size, so units and parts keep a thread busy for the same time.
const UNIT_BYTES: u64 = PART_BYTES as u64;

/// Opens the values of a store, so that threads which the caller lends can read parts of them.
pub(super) trait Source: Send + Sync + 'static {
    type Object: Object;

    /// Opens the value of a key for reading; `None` when the key does not exist.
    fn open(&self, key: &Key) -> Result<Option<Self::Object>>;

    /// The text by which error messages name the store.
    fn name(&self) -> String;
}

/// Reads a batch of requests with the threads that the caller lends.
pub(super) fn run<S: Source>(source: S, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
    let groups = group_by_key::<S>(&batch);
    let units = split(&groups, &batch);
    if units.is_empty() {
        return;
    }
    let jobs = workers.count().clamp(1, units.len());
    let (threads, helpers) = (workers.count(), workers.handle());
    let next = AtomicUsize::new(0);
    let shared = Arc::new(SharedBatch { source, batch, sink, groups, units, next, threads, helpers });
    for _ in 0..jobs {
        let shared = Arc::clone(&shared);
        workers.spawn(Box::new(move || shared.work()));
    }
}

/// All requests of a batch for one stored value.
struct BatchGroup<S: Source> {
    items: Vec<usize>,
    opening: Mutex<Opening<S::Object>>,
    /// Number of work units on this value that are not done; at 0, the value is closed. A unit is the requests that one
    /// thread takes together.
    remaining: AtomicUsize,
}

enum Opening<O> {
    Untried,
    Open(Arc<O>),
    Missing,
    Failed(Error),
    Closed,
}

/// Requests for one value that one thread reads together, given by their positions in the value's group.
struct BatchUnit {
    group: usize,
    positions: Range<usize>,
}

struct SharedBatch<S: Source> {
    source: S,
    batch: Arc<[ReadRequest]>,
    sink: Arc<dyn ReadSink>,
    groups: Vec<BatchGroup<S>>,
    units: Vec<BatchUnit>,
    next: AtomicUsize,
    /// The number of threads that the caller lends, among which large reads are divided.
    threads: usize,
    helpers: Option<Arc<dyn Workers>>,
}

/// Groups the requests of a batch by the key of the value that they read. The groups are in the order of the requests,
/// so early requests tend to be answered first.
fn group_by_key<S: Source>(batch: &[ReadRequest]) -> Vec<BatchGroup<S>> {
    let mut groups: Vec<BatchGroup<S>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::with_capacity(batch.len());
    for (item, request) in batch.iter().enumerate() {
        let group = *known.entry(&request.key).or_insert_with(|| {
            let opening = Mutex::new(Opening::Untried);
            groups.push(BatchGroup { items: Vec::with_capacity(1), opening, remaining: AtomicUsize::new(0) });
            groups.len() - 1
        });
        groups[group].items.push(item);
    }
    groups
}

fn split<S: Source>(groups: &[BatchGroup<S>], batch: &[ReadRequest]) -> Vec<BatchUnit> {
    let mut units = Vec::with_capacity(groups.len());
    for (group, BatchGroup { items, remaining, .. }) in groups.iter().enumerate() {
        let (first_unit, mut start, mut bytes) = (units.len(), 0, 0u64);
        for (position, &item) in items.iter().enumerate() {
            bytes = bytes.saturating_add(match batch[item].range {
                ByteRange::Span { size_bytes, .. } | ByteRange::Suffix { size_bytes } => size_bytes,
                ByteRange::Full | ByteRange::From { .. } => UNIT_BYTES,
            });
            let end = position + 1;
            if end - start == UNIT_REQUESTS || bytes >= UNIT_BYTES || end == items.len() {
                units.push(BatchUnit { group, positions: start..end });
                (start, bytes) = (end, 0);
            }
        }
        remaining.store(units.len() - first_unit, Ordering::Relaxed);
    }
    units
}

impl<S: Source> SharedBatch<S> {
    fn work(self: &Arc<Self>) {
        while let Some(unit) = self.units.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let group = &self.groups[unit.group];
            let key = &self.batch[group.items[0]].key;
            let object = self.open(group, key);
            for &item in &group.items[unit.positions.clone()] {
                match &object {
                    Ok(Some(object)) => self.read(object, item),
                    Ok(None) => self.done(item, Ok(ReadOutcome::Missing)),
                    Err(error) => self.done(item, Err(error.clone())),
                }
            }
            drop(object);
            if group.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
                *group.opening.lock().unwrap_or_else(PoisonError::into_inner) = Opening::Closed;
            }
        }
    }

    /// Opens the value that a group of requests reads, when the first thread needs it. Other threads that need it wait
    /// here.
    fn open(&self, group: &BatchGroup<S>, key: &Key) -> Result<Option<Arc<S::Object>>> {
        let mut opening = group.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*opening, Opening::Untried) {
            *opening = match self.open_or_kept(key) {
                Ok(Some(object)) => Opening::Open(object),
                Ok(None) => Opening::Missing,
                Err(error) => Opening::Failed(error),
            };
        }
        match &*opening {
            Opening::Open(object) => Ok(Some(Arc::clone(object))),
            Opening::Missing => Ok(None),
            Opening::Failed(error) => Err(error.clone()),
            Opening::Untried | Opening::Closed => Err(Error::new(ErrorKind::StoreFailed, "value was closed too early")),
        }
    }

    /// Returns the value that the caller keeps open from earlier batches, or else opens the value now.
    fn open_or_kept(&self, key: &Key) -> Result<Option<Arc<S::Object>>> {
        let Some(kept) = self.sink.open_values() else { return Ok(self.source.open(key)?.map(Arc::new)) };
        if let Some(object) = kept.get(key) {
            return Ok(Some(object));
        }
        Ok(self.source.open(key)?.map(|object| kept.keep(key, Arc::new(object))))
    }

    /// Whether the read of the batch's item `item` must fail if the value changes while it is read.
    fn is_watched(&self, item: usize) -> bool {
        self.batch[item].range == ByteRange::Full || self.sink.open_values().is_some()
    }

    fn done(&self, item: usize, outcome: Result<ReadOutcome>) {
        self.sink.done(item, outcome.at(|| format!("{}: key '{}'", self.source.name(), self.batch[item].key)));
    }

    fn read(self: &Arc<Self>, object: &Arc<S::Object>, item: usize) {
        let (offset, mut lease) = match self.begin(object, item) {
            Ok(Begun::Lent(offset, lease)) => (offset, lease),
            Ok(Begun::OnDevice(buffer)) => return self.done(item, Ok(ReadOutcome::OnDevice(buffer))),
            Err(error) => return self.done(item, Err(error)),
        };
        let size_bytes = lease.bytes().len();
        let part_bytes = part_bytes(size_bytes, self.threads / self.units.len());
        let is_divided = self.threads > 1 && size_bytes >= 2 * part_bytes && object.is_divisible();
        if let Some(helpers) = self.helpers.as_ref().filter(|_| is_divided) {
            let shared = Arc::clone(self);
            let end = move |outcome| shared.done(item, outcome);
            match Parts::divide(object, offset, part_bytes, self.is_watched(item), lease, end) {
                Ok(parts) => return parts.fill(helpers, self.threads),
                Err(undivided) => lease = undivided,
            }
        }
        let filled = object.read_exact_at(lease.bytes(), offset);
        let unchanged = filled.and_then(|()| if self.is_watched(item) { object.check_unchanged() } else { Ok(()) });
        self.done(item, unchanged.map(|()| ReadOutcome::Filled(lease)));
    }

    /// Reserves memory for the bytes of one item, and reports the version of its value to the sink. If the item's bytes
    /// come in device memory, returns those bytes instead.
    fn begin(&self, object: &S::Object, item: usize) -> Result<Begun> {
        if let Some(version) = object.version() {
            self.sink.opened(item, version)?;
        }
        let (offset, size_bytes) = self.batch[item].range.resolve(object.size_bytes())?;
        match self.on_device(object, item, offset..offset + size_bytes)? {
            None => Ok(Begun::Lent(offset, reserve(&*self.sink, item, size_bytes)?)),
            Some(buffer) => {
                if self.is_watched(item) {
                    object.check_unchanged()?;
                }
                Ok(Begun::OnDevice(buffer))
            }
        }
    }

    fn on_device(&self, object: &S::Object, item: usize, range: Range<u64>) -> Result<Option<Buffer>> {
        match self.sink.device() {
            Device::Cpu => Ok(None),
            device => {
                let size_bytes = range.end - range.start;
                object.on_device(device, range, &|| self.sink.reserve_on_device(item, size_bytes))
            }
        }
    }
}

/// The memory into which one item is read, or has been read: the result of [`SharedBatch::begin`].
enum Begun {
    /// The item is read into memory that the sink lent. The number is the offset of its first byte in the value.
    Lent(u64, Box<dyn Lease>),
    OnDevice(Buffer),
}

/// Reports an error for the items of jobs that were dropped before any thread ran them. Otherwise a caller would wait
/// for them forever.
impl<S: Source> Drop for SharedBatch<S> {
    fn drop(&mut self) {
        let untouched = self.units.get(*self.next.get_mut()..).unwrap_or(&[]);
        for unit in untouched {
            for &item in &self.groups[unit.group].items[unit.positions.clone()] {
                self.sink.done(item, Err(Error::new(ErrorKind::Cancelled, "the read was dropped before it began")));
            }
        }
    }
}

/// Reserves memory for one item from the sink, and checks that the memory has the requested size.
pub(super) fn reserve(sink: &dyn ReadSink, item: usize, size_bytes: u64) -> Result<Box<dyn Lease>> {
    let mut lease = sink.reserve(item, size_bytes)?;
    let lent_bytes = lease.bytes().len();
    if lent_bytes as u64 == size_bytes {
        return Ok(lease);
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("lent memory has {lent_bytes} bytes, expected {size_bytes}")))
}
