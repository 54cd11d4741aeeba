//! The context of one read or write: its store, threads, memory, counters and failures. Every part of the call carries it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::pool::Within;

use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::run::chunk_cache::CallCache;
use crate::run::report::{Counters, Report};
use crate::run::schedule::budget::Memory;
use crate::run::schedule::countdown::Countdown;
use crate::run::schedule::pool::{Jobs, Share};
use crate::run::schedule::scratch::Scratch;
use crate::run::schedule::streams::Streams;
use crate::store::{HeldValues, OpenValues, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};

/// Maximum number of writes over a network at the same time, over all calls of the process; further writes wait.
pub(crate) const FAR_WRITES: usize = 64;

/// Hint in the error message if another writer replaced a shard while it was read.
const READ_AGAIN: &str = "read again";

/// Maximum number of errors that are attached to the first error of a call; later errors are dropped.
const OTHER_FAILURES: usize = 15;

/// Everything that the threads of one read or write share: stores, threads, memory budget and failures.
pub(crate) struct Context {
    /// The stores of the call's arrays, indexed by the number of the array.
    pub(crate) stores: Vec<CallStore>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) pool: Threads,
    /// The queue of this call's jobs that wait for worker threads.
    pub(crate) jobs: Jobs,
    /// Threads that do nothing but wait until writes to stores over a network have ended.
    pub(crate) senders: Threads,
    pub(crate) threads: usize,
    pub(crate) scratch: Scratch,
    pub(crate) streams: Streams,
    pub(crate) memory: Memory,
    pub(crate) limit_bytes: u64,
    pub(crate) counters: Counters,
    pub(crate) failures: Failures,
    /// The call's view of the chunk cache, if the call reads arrays that use it.
    pub(crate) cache: OnceLock<CallCache>,
    /// Keeps the device's memory pool below the call's memory limit while the call runs.
    pub(crate) _within: Within,
}

/// The store of one array of a call, and the shards and objects of it that the call has open or in memory. Two arrays
/// may use the same keys, so each has its own open shards and held objects.
pub(crate) struct CallStore {
    pub(crate) store: Arc<dyn Store>,
    /// Shards that this call keeps open after it has read their index. Their chunks must come from the same version.
    pub(crate) shards: OpenValues,
    /// Stored objects that were read whole, from which the call reads instead of from the store.
    held: OnceLock<HeldValues>,
}

impl CallStore {
    pub(crate) fn new(store: Arc<dyn Store>, shards: OpenValues) -> CallStore {
        CallStore { store, shards, held: OnceLock::new() }
    }

    /// Keeps whole stored objects in memory, from which the call then reads instead of the store, until it ends. The
    /// call does not ask the store for them again.
    pub(crate) fn hold(&self, values: impl IntoIterator<Item = (String, Option<Vec<u8>>)>) {
        // A call holds objects only once, so this never fails.
        let _ = self.held.set(HeldValues::new(self.store.to_string(), values));
    }

    /// Whether this call holds whole stored objects of the array in memory, so that reads may not need the store.
    pub(crate) fn holds(&self) -> bool {
        self.held.get().is_some()
    }

    /// Whether requests to the store take long, as over a network.
    pub(crate) fn is_far(&self) -> bool {
        self.store.capabilities().far && !self.holds()
    }
}

/// One array to which a call writes, together with the call's shared context.
#[derive(Clone)]
pub(crate) struct CallArray {
    pub(crate) call: Arc<Context>,
    /// The array's number among the arrays of the call.
    pub(crate) number: usize,
    /// The array's name in errors, if the call writes to several arrays.
    pub(crate) name: Option<Arc<str>>,
}

impl CallArray {
    /// The store to which this call writes the array.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.call.of(self.number).store
    }

    /// Whether requests to the array's store take long, as over a network.
    pub(crate) fn is_far(&self) -> bool {
        self.call.of(self.number).is_far()
    }

    /// Ends the call with an error about this array.
    pub(crate) fn fail(&self, error: Error) {
        self.call.fail(match &self.name {
            Some(name) => error.at(&**name),
            None => error,
        });
    }
}

/// The errors that threads of one call have reported. After the first one, no new work begins.
#[derive(Default)]
pub(crate) struct Failures {
    cancelled: AtomicBool,
    errors: Mutex<Vec<Error>>,
}

impl Context {
    /// The worker threads that the call lends to stores for its reads. They share a new turn of the pool.
    pub(crate) fn workers(&self) -> Share {
        Share { pool: self.pool.clone(), threads: self.threads, turn: self.pool.next_turn() }
    }

    /// Passes a job to the call's worker threads, which run it soon. If the job `waits` for a far store, it runs on a
    /// thread that only waits.
    pub(crate) fn submit(&self, waits: bool, job: impl FnOnce() + Send + 'static) {
        if waits { self.senders.submit(Box::new(job)) } else { self.jobs.submit(Box::new(job)) }
    }

    /// Waits until a countdown ends, and meanwhile runs jobs of the call that wait for a thread.
    pub(crate) fn help_until(&self, countdown: &Countdown) {
        while !countdown.is_done() {
            if !self.jobs.help() {
                countdown.wait();
            }
        }
    }

    /// Returns the store of the array with this number.
    ///
    /// # Panics
    /// When there is no such array.
    pub(crate) fn of(&self, array: usize) -> &CallStore {
        &self.stores[array]
    }

    /// Reads a batch from the objects that the call holds in memory, or from the array's store if some are not held.
    pub(crate) fn read(&self, array: usize, batch: Arc<[ReadRequest]>, sink: Arc<dyn ReadSink>, workers: &dyn Workers) {
        let CallStore { store, held, .. } = self.of(array);
        if let Some(held) = held.get().filter(|held| held.have(&batch)) {
            return held.read(batch, sink, workers);
        }
        if !self.cancellation.is_cancelled() {
            return self.counters.watch(|| store.read(batch, sink, workers));
        }
        for index in 0..batch.len() {
            sink.done(index, self.cancellation.check().map(|()| ReadOutcome::Missing));
        }
    }

    /// Whether requests to any store of the call take long, as over a network.
    pub(crate) fn is_far(&self) -> bool {
        self.stores.iter().any(CallStore::is_far)
    }

    /// Records an error, which ends the call. Work that has not begun then ends early.
    pub(crate) fn fail(&self, error: Error) {
        self.failures.cancelled.store(true, Ordering::Release);
        let mut failures = self.errors();
        // A cancellation after another failure adds no information.
        let news = error.kind() != ErrorKind::Cancelled || failures.is_empty();
        if news && failures.len() <= OTHER_FAILURES {
            failures.push(error);
        }
    }

    /// Whether the call has failed, so that no new work may begin.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.failures.cancelled.load(Ordering::Acquire)
    }

    /// Checks that the call may go on: no thread has failed, and the caller has not cancelled it.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "cancelled because another part of the call failed"));
        }
        self.cancellation.check()
    }

    /// Checks that a shard that was opened still has the version with which its index was read. Without a wanted
    /// version, any is accepted.
    ///
    /// # Errors
    /// `StoreFailed` when it was replaced since then.
    pub(crate) fn check_version(wanted: Option<&Version>, found: &Version) -> Result<()> {
        if wanted.is_none_or(|wanted| wanted.has_same_bytes(found)) {
            return Ok(());
        }
        let message = "the shard was replaced by another writer since its index was read";
        Err(Error::new(ErrorKind::StoreFailed, message).with_hint(READ_AGAIN))
    }

    /// Whether an error says that another writer replaced the shard: the error of [`Context::check_version`].
    pub(crate) fn is_replaced(error: &Error) -> bool {
        error.kind() == ErrorKind::StoreFailed && error.hint() == Some(READ_AGAIN)
    }

    /// Nanoseconds since the call began.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.counters.elapsed_ns()
    }

    /// The report of what the call has done so far.
    pub(crate) fn report(&self) -> Report {
        self.counters.report()
    }

    /// The result of the call: the first error that a thread reported, with the others attached, if there was one.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn outcome(&self) -> Result<()> {
        let mut failures = std::mem::take(&mut *self.errors());
        if failures.is_empty() {
            return Ok(());
        }
        // A cancellation may be recorded shortly before its cause, so the first other failure counts.
        let first = failures.iter().position(|error| error.kind() != ErrorKind::Cancelled).unwrap_or(0);
        let first = failures.swap_remove(first);
        Err(first.with_others(failures.into_iter().filter(|error| error.kind() != ErrorKind::Cancelled)))
    }

    fn errors(&self) -> MutexGuard<'_, Vec<Error>> {
        self.failures.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
