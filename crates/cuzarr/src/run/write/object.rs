//! Stored objects (chunks or shards) that a call is writing: in one request, part after part, or under a condition. A
//! failed object is never written, so readers keep the old value.

use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuzarr_device::Buffer;

use crate::codec::{Sharding, above_bound};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{ChunkLayout, ChunkName, Touched};
use crate::run::context::CallArray;
use crate::run::engine::Engine;
use crate::run::report::Stage;
use crate::store::{Condition, Key, Payload, Store, StoreExt};

/// If the inner chunks of a shard are smaller than this on average, they are copied into one buffer before they are
/// stored.
const LEAST_PIECE_BYTES: usize = 32 << 10;

/// A stored object that a call is writing: a chunk, or a shard.
pub(crate) struct Object {
    pub(crate) array: CallArray,
    /// The object's chunk layout, and its codecs.
    pub(crate) layout: Arc<ChunkLayout>,
    pub(crate) key: Arc<str>,
    /// Whether every element of the object is replaced, so that its old bytes are not needed.
    pub(crate) covered: bool,
    /// Keeps this write from replacing what another writer has stored in the object after its old bytes were read.
    /// `None` if the old bytes are not needed, or the store has no conditional writes.
    pub(crate) guard: Option<Guard>,
    /// When dropped with the object, tells the coordinator that all work on the object has ended.
    pub(crate) _ticket: Box<dyn Send + Sync>,
}

/// A guard against lost updates: it keeps a write from replacing an object that changed after its old bytes were read.
/// Only the version that was read is replaced. If there is another version, the object is noted in `lost`, and its
/// write begins again.
pub(crate) struct Guard {
    pub(crate) touched: Touched,
    pub(crate) lost: Arc<Mutex<Vec<Touched>>>,
    /// The condition under which the store replaces the object: that it still has the version that was read. It is set
    /// when the old bytes are read.
    pub(crate) condition: OnceLock<Condition>,
}

impl Guard {
    pub(crate) fn new(touched: Touched, lost: Arc<Mutex<Vec<Touched>>>) -> Guard {
        Guard { touched, lost, condition: OnceLock::new() }
    }
}

/// Old bytes of a stored object, or of an inner chunk in it, that were read to be merged with new elements.
#[derive(Clone)]
pub(crate) struct StoredBytes {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl StoredBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    pub(super) fn part(&self, offset: u64, size_bytes: u64) -> Option<StoredBytes> {
        let start = usize::try_from(offset).ok()?.checked_add(self.range.start)?;
        let end = start.checked_add(usize::try_from(size_bytes).ok()?)?;
        (end <= self.range.end).then(|| StoredBytes { bytes: Arc::clone(&self.bytes), range: start..end })
    }
}

impl Object {
    pub(super) fn load(&self) -> Result<Option<StoredBytes>> {
        if self.covered {
            return Ok(None);
        }
        let bound = self.layout.levels[0].bound_bytes.unwrap_or(u64::MAX);
        let read = || self.array.store().get_versioned(&self.key, bound);
        let found = self.array.call.counters.time(Stage::Fetch, 0, read).map_err(above_bound)?;
        if let Some(guard) = &self.guard {
            let condition = match &found {
                None => Condition::Absent,
                Some((_, Some(version))) => Condition::Unchanged(version.clone()),
                Some((_, None)) => Condition::Always,
            };
            // An object's old bytes are read only once: a chunk is one leaf, and a shard reads them under a lock.
            let _ = guard.condition.set(condition);
        }
        Ok(found.map(|(bytes, _)| StoredBytes { range: 0..bytes.len(), bytes: Arc::new(bytes) }))
    }

    /// The condition under which the store replaces the object; without a guard, it always does.
    fn condition(&self) -> &Condition {
        self.guard.as_ref().and_then(|guard| guard.condition.get()).unwrap_or(&Condition::Always)
    }

    /// Whether the object must be stored even if it only holds the fill value. Stores cannot delete an object under a
    /// condition, and another writer may just have written elements to the object.
    pub(crate) fn must_stay(&self) -> bool {
        matches!(self.condition(), Condition::Unchanged(_))
    }

    /// Stores the encoded object, or deletes it if there are no bytes. If the store is far away, another thread does
    /// it, so that this one can go on encoding.
    pub(super) fn send(self: &Arc<Self>, encoded: Option<Cow<'_, [u8]>>) -> Result<()> {
        if !self.array.is_far() {
            return self.store(encoded.as_deref());
        }
        let (object, encoded) = (Arc::clone(self), encoded.map(Cow::into_owned));
        self.array.call.senders.submit(Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| object.store(encoded.as_deref())));
            let panicked = |_| Err(Error::new(ErrorKind::StoreFailed, "the store panicked; please report this"));
            if let Err(error) = outcome.unwrap_or_else(panicked) {
                object.array.fail(error.at(format!("chunk '{}'", object.key)));
            }
        }));
        Ok(())
    }

    /// Writes the encoded object from host memory to the store; without bytes, deletes it there.
    pub(crate) fn store(&self, encoded: Option<&[u8]>) -> Result<()> {
        self.replace(encoded.map(Payload::Bytes))
    }

    /// Writes the encoded object from device memory to the store; without a buffer, deletes it there.
    pub(super) fn store_buffer(&self, encoded: Option<&Buffer>) -> Result<()> {
        self.replace(encoded.map(Payload::Buffer))
    }

    fn replace(&self, value: Option<Payload<'_>>) -> Result<()> {
        let condition = self.condition();
        self.flush(value.map_or(0, |value| value.size_bytes()), |store, key| match value {
            Some(value) => {
                let written = store.put(key, value, condition)?;
                if let Some(guard) = self.guard.as_ref().filter(|_| !written) {
                    guard.lost.lock().unwrap_or_else(PoisonError::into_inner).push(guard.touched.clone());
                }
                Ok(())
            }
            // The object did not exist. If it does now, another writer has made it.
            None if *condition == Condition::Absent => Ok(()),
            None => store.delete(key),
        })
    }

    /// Maximum size of a shard whose inner chunks can be written as soon as they are encoded. `None` if the chunks must
    /// be written together, or are too small to be written alone.
    pub(super) fn flow_bound_bytes(&self, sharding: &Sharding) -> Option<u64> {
        let can = self.array.store().capabilities();
        let bound_bytes = self.layout.levels[0].bound_bytes?;
        (can.writes_parts && can.shortens_parts && self.covered && self.guard.is_none() && !self.array.is_far())
            .then_some(bound_bytes)
            .filter(|bound| *bound >= (LEAST_PIECE_BYTES * sharding.len()) as u64)
    }

    /// Whether a shard is written inner chunk by inner chunk, without copying the chunks into one buffer first. This
    /// needs a store that writes parts, and pieces so large that joining them by a copy is not worthwhile.
    pub(super) fn takes_pieces(&self, pieces: &[Vec<u8>]) -> bool {
        let size_bytes: usize = pieces.iter().map(Vec::len).sum();
        size_bytes >= LEAST_PIECE_BYTES * pieces.len()
            && self.array.store().capabilities().writes_parts
            && !self.array.is_far()
    }

    /// Writes a shard to the store from its encoded inner chunks and index, which follow each other in `pieces`.
    pub(super) fn store_pieces(&self, pieces: &[Vec<u8>]) -> Result<()> {
        let size_bytes: usize = pieces.iter().map(Vec::len).sum();
        self.flush(size_bytes, |store, key| {
            let value = store.begin(key, size_bytes as u64)?;
            let mut offset = 0;
            for piece in pieces {
                value.write_at(offset, piece)?;
                offset += piece.len() as u64;
            }
            value.finish()
        })
    }

    /// Calls `write` to change the object in the store, unless the call was cancelled.
    pub(crate) fn flush(&self, size_bytes: usize, write: impl FnOnce(&dyn Store, &Key) -> Result<()>) -> Result<()> {
        self.array.call.check_cancelled()?;
        let store = self.array.store();
        let written = self.array.call.counters.time(Stage::Flush, size_bytes as u64, || write(store, &self.key));
        Engine::get().forget(store, [&*self.key]);
        written
    }
}

/// Adds the chunk's name to the text that tells where an error happened.
pub(crate) fn at_chunk<T>(result: Result<T>, name: &ChunkName) -> Result<T> {
    result.at(|| name.to_string())
}
