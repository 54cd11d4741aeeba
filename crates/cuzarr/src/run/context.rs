//! The context of one read or write: its store, threads, memory, counters and failures. Every part of the call carries it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuzarr_device::internal::Threads;
use cuzarr_device::internal::pool::Within;

use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::run::report::{Counters, Report};
use crate::run::schedule::budget::Memory;
use crate::run::schedule::pool::{Jobs, Share};
use crate::run::schedule::scratch::Scratch;
use crate::run::schedule::streams::Streams;
use crate::store::{HeldValues, OpenValues, ReadOutcome, ReadRequest, ReadSink, Store, Version, Workers};

/// Writes that are on their way to stores far away at the same time, of all calls.
pub(crate) const FAR_WRITES: usize = 64;

/// Most failures that are kept beside the first one.
const OTHER_FAILURES: usize = 15;

/// The context of one read or write.
pub(crate) struct Context {
    /// The stores of the call's arrays, by the numbers of these.
    pub(crate) stores: Vec<CallStore>,
    pub(crate) cancellation: CancellationToken,
    pub(crate) pool: Threads,
    /// The call's own jobs in that pool.
    pub(crate) jobs: Jobs,
    /// Threads that wait for writes to stores far away.
    pub(crate) senders: Threads,
    pub(crate) threads: usize,
    pub(crate) scratch: Scratch,
    pub(crate) streams: Streams,
    pub(crate) memory: Memory,
    pub(crate) limit_bytes: u64,
    pub(crate) counters: Counters,
    pub(crate) failures: Failures,
    /// Keeps the memory of the device's pool below the limit.
    pub(crate) _within: Within,
}

/// The store of one array of a call. Arrays may share keys, and so each has its own open and held objects.
pub(crate) struct CallStore {
    pub(crate) store: Arc<dyn Store>,
    /// Shards that were opened for their index. Their chunks must come from the same version.
    pub(crate) shards: OpenValues,
    /// Objects that were read whole.
    held: OnceLock<HeldValues>,
}

impl CallStore {
    pub(crate) fn new(store: Arc<dyn Store>, shards: OpenValues) -> CallStore {
        CallStore { store, shards, held: OnceLock::new() }
    }

    /// Holds objects until the call ends. The store is not asked for them again.
    pub(crate) fn hold(&self, values: impl IntoIterator<Item = (String, Option<Vec<u8>>)>) {
        // A call holds objects once.
        let _ = self.held.set(HeldValues::new(self.store.to_string(), values));
    }

    /// Whether objects are held.
    pub(crate) fn holds(&self) -> bool {
        self.held.get().is_some()
    }

    /// Whether the store is far away.
    pub(crate) fn is_far(&self) -> bool {
        self.store.capabilities().far && !self.holds()
    }
}

/// The failures of one call. After the first one, no new work begins.
#[derive(Default)]
pub(crate) struct Failures {
    cancelled: AtomicBool,
    errors: Mutex<Vec<Error>>,
}

impl Context {
    /// The threads that the call lends to stores, with their own turn.
    pub(crate) fn workers(&self) -> Share {
        Share { pool: self.pool.clone(), threads: self.threads, turn: self.pool.next_turn() }
    }

    /// Gives a job to the call's threads, or to threads that wait for stores far away and keep no other from its work.
    pub(crate) fn submit(&self, waits: bool, job: impl FnOnce() + Send + 'static) {
        if waits { self.senders.submit(Box::new(job)) } else { self.jobs.submit(Box::new(job)) }
    }

    /// The store of an array.
    ///
    /// # Panics
    /// When there is no such array.
    pub(crate) fn of(&self, array: usize) -> &CallStore {
        &self.stores[array]
    }

    /// Reads a batch of an array from held objects if they have all of it, else from the store.
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

    /// Whether a store is far away.
    pub(crate) fn is_far(&self) -> bool {
        self.stores.iter().any(CallStore::is_far)
    }

    /// Notes a failure. Work that has not begun then ends early.
    pub(crate) fn fail(&self, error: Error) {
        self.failures.cancelled.store(true, Ordering::Release);
        let mut failures = self.errors();
        // A cancellation because of an earlier failure tells nothing new.
        let news = error.kind() != ErrorKind::Cancelled || failures.is_empty();
        if news && failures.len() <= OTHER_FAILURES {
            failures.push(error);
        }
    }

    /// Whether the call has failed.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.failures.cancelled.load(Ordering::Acquire)
    }

    /// Checks that this call still goes on: nothing failed, and the caller has not cancelled it.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "cancelled because another part of the call failed"));
        }
        self.cancellation.check()
    }

    /// Checks that a value has the wanted version, if one is wanted.
    ///
    /// # Errors
    /// `StoreFailed` when it was replaced since then.
    pub(crate) fn check_version(wanted: Option<&Version>, found: &Version) -> Result<()> {
        if wanted.is_none_or(|wanted| wanted.has_same_bytes(found)) {
            return Ok(());
        }
        let message = "the shard was replaced by another writer since its index was read";
        Err(Error::new(ErrorKind::StoreFailed, message).with_hint("read again"))
    }

    /// Nanoseconds since the call began.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.counters.elapsed_ns()
    }

    /// The report of the work so far.
    pub(crate) fn report(&self) -> Report {
        self.counters.report()
    }

    /// The first failure with the others attached, if there was one.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn outcome(&self) -> Result<()> {
        let mut failures = std::mem::take(&mut *self.errors());
        if failures.is_empty() {
            return Ok(());
        }
        // A cancellation can only come first when its cause followed it closely.
        let first = failures.iter().position(|error| error.kind() != ErrorKind::Cancelled).unwrap_or(0);
        let first = failures.swap_remove(first);
        Err(first.with_others(failures.into_iter().filter(|error| error.kind() != ErrorKind::Cancelled)))
    }

    fn errors(&self) -> MutexGuard<'_, Vec<Error>> {
        self.failures.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
