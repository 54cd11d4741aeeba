//! The process's engine: its threads, its scratch memory, and the bytes in flight on each device.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::pool::within;
use cuzarr_device::{Device, PerProcess, is_forked};

use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::run::chunk_cache::{CacheUse, ChunkCache};
use crate::run::context::{CallStore, Context, FAR_WRITES, Failures};
use crate::run::options::Options;
use crate::run::report::Counters;
use crate::run::schedule::budget::Memory;
use crate::run::schedule::pool::Jobs;
use crate::run::schedule::range_lock::{Objects, Turn, Turns};
use crate::run::schedule::scratch::Scratch;
use crate::run::schedule::streams::Streams;
use crate::store::{Identity, Key, OpenLimit, OpenValues, Store};

/// Maximum number of worker threads in the process; a larger number in the options is reduced to this. Reads from
/// remote stores may use more threads than a machine has cores.
const MOST_THREADS: usize = 512;

/// Maximum number of shards that all reads of the process together keep open. This is many more than there are threads,
/// and far fewer than the thousand open files that systems allow a process.
const OPEN_SHARDS: usize = 128;

/// The engine, which runs all reads and writes: threads, scratch memory and memory budgets. Each process has one, which
/// all calls share.
pub struct Engine {
    pool: Threads,
    /// Worker threads for reads during which the thread that called the read also decodes.
    driven_pool: Threads,
    /// Threads that do nothing but wait until writes to stores over a network have ended.
    senders: Threads,
    scratch: Scratch,
    streams: Streams,
    memory: Mutex<HashMap<Device, Memory>>,
    /// The chunk caches of the devices that have one.
    caches: Mutex<HashMap<Device, ChunkCache>>,
    open_shards: Arc<OpenLimit>,
    turns: Arc<Turns>,
    /// Locks on arrays and groups, so that metadata changes of one node by this process run one after the other.
    nodes: Arc<Turns>,
    /// The arrays that writers of this process have.
    writers: Arc<Mutex<Vec<Arc<Written>>>>,
}

/// An array that a writer of this process has, and the part of it that the writer fills; `None` for all of it.
struct Written {
    array: Identity,
    region: Option<Vec<Range<u64>>>,
}

/// Marks that a writer has an array, until it is dropped.
pub(crate) struct WriterMark {
    writers: Arc<Mutex<Vec<Arc<Written>>>>,
    written: Arc<Written>,
}

impl Drop for WriterMark {
    fn drop(&mut self) {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|one| !Arc::ptr_eq(one, &self.written));
    }
}

static ENGINE: PerProcess<OnceLock<Arc<Engine>>> = PerProcess::new();

impl Engine {
    /// Returns the engine of this process. A forked child gets a new one, because threads do not survive a fork.
    pub fn get() -> Arc<Engine> {
        // Remembers the process, so that forked children know that they are some.
        is_forked();
        Arc::clone(ENGINE.get().get_or_init(|| Arc::new(Engine::with_workers(Threads::workers()))))
    }

    /// Makes a separate engine with its own threads and memory budgets, for tests and for programs that do not want to
    /// share them.
    pub fn new(threads: usize) -> Engine {
        Engine::with_workers(Threads::new(threads))
    }

    fn with_workers(pool: Threads) -> Engine {
        Engine {
            pool,
            driven_pool: Threads::new(1),
            senders: Threads::new(FAR_WRITES),
            scratch: Scratch::default(),
            streams: Streams::default(),
            memory: Mutex::default(),
            caches: Mutex::default(),
            open_shards: Arc::new(OpenLimit::new(OPEN_SHARDS)),
            turns: Arc::default(),
            nodes: Arc::default(),
            writers: Arc::default(),
        }
    }

    /// Notes that a writer has an array, or a region of it. `None` if another writer of this process has elements of it.
    pub(crate) fn mark_writer(&self, array: Identity, region: Option<Vec<Range<u64>>>) -> Option<WriterMark> {
        let meets = |one: &Written| match (&one.region, &region) {
            _ if one.array != array => false,
            (Some(one), Some(other)) => {
                one.iter().zip(other).all(|(one, other)| one.start.max(other.start) < one.end.min(other.end))
            }
            _ => true,
        };
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        if writers.iter().any(|one| meets(one)) {
            return None;
        }
        let written = Arc::new(Written { array, region });
        writers.push(Arc::clone(&written));
        Some(WriterMark { writers: Arc::clone(&self.writers), written })
    }

    /// Whether a writer of this process has an array at this place or below it.
    pub(crate) fn has_writer(&self, place: &Identity) -> bool {
        let writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        writers.iter().any(|one| one.array.overlaps(place))
    }

    /// Returns the counter of the bytes that all calls together have in flight on a device.
    pub fn memory(&self, device: Device) -> Memory {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default().clone()
    }

    /// The chunk cache of a device. Its entries are in the memory of the device's results.
    pub(crate) fn chunk_cache(&self, device: Device) -> ChunkCache {
        let memory = self.memory(device);
        let bytes = if device == Device::Cpu { memory.host } else { memory.device };
        self.caches().entry(device).or_insert_with(|| ChunkCache::new(bytes)).clone()
    }

    /// The number of chunks in the chunk cache of a device, and the size of all of them in bytes.
    pub fn cache_use(&self, device: Device) -> CacheUse {
        self.caches().get(&device).map(ChunkCache::used).unwrap_or_default()
    }

    /// Drops all chunks of the chunk cache of a device.
    pub fn clear_cache(&self, device: Device) {
        let cache = self.caches().get(&device).cloned();
        cache.into_iter().for_each(|cache| cache.clear());
    }

    /// Allocates memory for a result by calling `allocate`, a second time if the device had too little free memory.
    /// Before the second call, the device's chunk cache drops its chunks.
    ///
    /// # Errors
    /// Those of `allocate`.
    pub(crate) fn allocate<T, E: Into<Error>>(&self, device: Device, allocate: impl Fn() -> Result<T, E>) -> Result<T> {
        let first = allocate().map_err(Into::into);
        match &first {
            Err(error) if error.kind() == ErrorKind::OutOfMemory && self.cache_use(device).chunks > 0 => {
                self.clear_cache(device);
                allocate().map_err(Into::into)
            }
            _ => first,
        }
    }

    /// Drops the chunks of stored objects that this process has written or deleted, from the chunk caches of all
    /// devices.
    pub fn forget<'a>(&self, store: &dyn Store, keys: impl IntoIterator<Item = &'a Key>) {
        self.forget_by(store, |caches, identity| {
            for object in keys.into_iter().map(|key| identity.object(key)) {
                caches.iter().for_each(|cache| cache.forget(&object));
            }
        });
    }

    /// Like [`Engine::forget`], for all objects below a prefix.
    pub(crate) fn forget_below(&self, store: &dyn Store, prefix: &Key) {
        self.forget_by(store, |caches, identity| {
            caches.iter().for_each(|cache| cache.forget_below(&identity.object(prefix)));
        });
    }

    fn forget_by(&self, store: &dyn Store, forget: impl FnOnce(&[ChunkCache], &Identity)) {
        let caches: Vec<_> = self.caches().values().cloned().collect();
        if !caches.is_empty() {
            forget(&caches, &store.identity());
        }
    }

    fn caches(&self) -> MutexGuard<'_, HashMap<Device, ChunkCache>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context of a read or write call: its stores, threads, memory budget and counters. `stores` has the
    /// store of each array.
    pub(crate) fn call(&self, stores: &[&Arc<dyn Store>], device: Device, options: &Options) -> Arc<Context> {
        self.call_by(&self.pool, options.threads, stores, device, options)
    }

    /// Makes the context of a read into device memory, for which the calling thread works too. Otherwise, work for the
    /// device would have to wait until a worker leaves the calling thread a core, which takes milliseconds.
    pub(crate) fn driven_call(&self, stores: &[&Arc<dyn Store>], device: Device, options: &Options) -> Arc<Context> {
        self.call_by(&self.driven_pool, options.threads.saturating_sub(1).max(1), stores, device, options)
    }

    fn call_by(
        &self,
        pool: &Threads,
        threads: usize,
        stores: &[&Arc<dyn Store>],
        device: Device,
        options: &Options,
    ) -> Arc<Context> {
        pool.grow(threads.min(MOST_THREADS));
        let threads = threads.clamp(1, pool.most());
        let within = within(device, options.memory_limit_bytes);
        let of =
            |store: &&Arc<dyn Store>| CallStore::new(Arc::clone(store), OpenValues::new(Arc::clone(&self.open_shards)));
        Arc::new(Context {
            stores: stores.iter().map(of).collect(),
            cancellation: options.cancellation.clone(),
            pool: pool.clone(),
            jobs: Jobs::new(pool.clone(), threads),
            senders: self.senders.clone(),
            threads,
            scratch: self.scratch.clone(),
            streams: self.streams.clone(),
            memory: self.memory(device),
            limit_bytes: within.limit_bytes(),
            counters: Counters::new(options.trace),
            failures: Failures::default(),
            cache: OnceLock::new(),
            _within: within,
        })
    }

    /// Waits until earlier writes of this process to these stored objects are done, and locks the objects for the
    /// caller. Each item of `objects` is a box of one array's stored objects.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn turn(&self, objects: Vec<Objects>, cancellation: &CancellationToken) -> Result<Turn> {
        self.turns.take(objects, cancellation)
    }

    /// Waits until earlier changes of this process to these nodes' metadata are done, and locks the nodes for the
    /// caller.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn node_turn(&self, nodes: Vec<Identity>, cancellation: &CancellationToken) -> Result<Turn> {
        let objects = nodes.into_iter().map(|node| Objects { array: node, bounds: Vec::new() });
        self.nodes.take(objects.collect(), cancellation)
    }
}
