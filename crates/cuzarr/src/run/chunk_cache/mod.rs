//! The chunk cache: decoded chunks that arrays read again, in memory of the device of their results. Each device has one,
//! which all arrays of the process share.
//!
//! It keeps packed chunks, before conversion and selection, so one entry serves every type and selection. The chunks
//! that were used last stay, up to the configured size and within the memory limit. When work in flight needs memory,
//! the cache frees its memory first.
//!
//! A call claims the chunks that it decodes for the cache. Other calls that need these chunks wait for that call, but
//! only when they hold no memory and no claims themselves. So no two calls wait for each other.

mod of_call;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cuzarr_device::Buffer;

pub(crate) use self::of_call::CallCache;
use crate::cancellation::{CancellationToken, POLL_INTERVAL};
use crate::codec::VariableElements;
use crate::error::Result;
use crate::plan::{Entries, Kept};
use crate::run::schedule::budget::{Bytes, Reserved};
use crate::store::Version;

/// Approximate memory of a cached chunk beside its elements, in bytes: the strings that identify it, and map entries.
const OVERHEAD_BYTES: u64 = 512;

/// The chunk cache of one device: decoded chunks that later reads can use again. Clones share it.
#[derive(Clone)]
pub(crate) struct ChunkCache(Arc<Shared>);

struct Shared {
    /// Counts the memory in flight on the device, of which the cache's memory is a part.
    memory: Bytes,
    /// Size of all chunks in bytes, including chunks that are not added yet, and dropped chunks that calls still use.
    bytes: Arc<AtomicU64>,
    state: Mutex<State>,
    /// Wakes waiting reads when another read has ended its announced decoding of a chunk for the cache.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Arc<ChunkPlace>, Entry>,
    /// The cached chunks sorted by when they were last used, oldest first.
    uses: BTreeMap<u64, Arc<ChunkPlace>>,
    /// The number that the next event gets: each use of a cached chunk, and each claim.
    next_use: u64,
    /// Chunks that a running call decodes for the cache, so that other calls can wait for them.
    claims: BTreeMap<Arc<ChunkPlace>, Claim>,
}

/// The announcement that a running call decodes a chunk for the chunk cache.
#[derive(Clone, Copy)]
struct Claim {
    number: u64,
    /// Whether the stored object of the chunk was written since a call began to decode the chunk for the cache.
    was_written: bool,
}

/// The memory reserved for one chunk in the cache. Dropping it returns the memory.
pub(crate) struct CacheMemory {
    reserved: Reserved,
    all: Arc<AtomicU64>,
}

impl Drop for CacheMemory {
    fn drop(&mut self) {
        self.all.fetch_sub(self.reserved.bytes(), Ordering::AcqRel);
    }
}

/// The key of a decoded chunk in the chunk cache: its stored object, its position in a shard, and the codecs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkPlace {
    /// The address of the object, unique in the process ([`crate::store::Identity::object`]).
    pub(crate) object: String,
    /// The chunk's coordinates in its shard, for each level of shards; empty for a chunk that is an object of its own.
    pub(crate) inner: Vec<u64>,
    /// Text that stands for the array's element type, chunk grid and codecs.
    pub(crate) coding: Arc<str>,
}

/// A cache entry: a decoded chunk, or the index of a shard.
pub(crate) struct KeptChunk {
    pub(crate) content: KeptContent,
    /// Gives the bytes of this chunk back to the memory budget when no call uses the chunk any more.
    _memory: CacheMemory,
}

/// The content of a cache entry: the elements of a chunk, the index of a shard, or the note that an object is missing.
pub(crate) enum KeptContent {
    /// Packed bytes of a chunk, in memory of the device of the results.
    Packed(Buffer),
    /// Elements of a chunk whose data type has variable length.
    Elements(VariableElements),
    /// The index of a shard, which says where the shard's inner chunks lie.
    Index(Arc<dyn Entries>),
    /// The note that the store has no such chunk or shard.
    Missing,
}

impl KeptContent {
    /// Returns the content of the cache entry `kept`, which a batch carries; `None` if `kept` is of another type.
    pub(crate) fn of(kept: &dyn Kept) -> Option<&KeptContent> {
        (kept as &dyn Any).downcast_ref::<KeptChunk>().map(|chunk| &chunk.content)
    }
}

impl fmt::Debug for KeptChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptChunk").finish_non_exhaustive()
    }
}

impl Kept for KeptChunk {}

/// A chunk that was found in the cache, with what is known about its object.
#[derive(Clone)]
pub(crate) struct FoundChunk {
    pub(crate) chunk: Arc<KeptChunk>,
    /// The version of the stored object that holds the chunk; `None` if the object does not exist.
    pub(crate) version: Option<Version>,
    /// When the store last confirmed that the stored object of the chunk has this version.
    pub(crate) seen: Instant,
}

struct Entry {
    found: FoundChunk,
    last_use: u64,
}

/// Number and size of the chunks in the chunk cache of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Number of chunks in the cache of the device.
    pub chunks: u64,
    /// Size of the cached chunks in bytes, including the memory for the cache's own tables.
    pub size_bytes: u64,
}

impl ChunkCache {
    /// Makes a chunk cache for a device, whose chunks count as part of `memory` in flight.
    pub(crate) fn new(memory: Bytes) -> ChunkCache {
        let cache = ChunkCache(Arc::new(Shared {
            memory,
            bytes: Arc::default(),
            state: Mutex::default(),
            ended: Condvar::new(),
        }));
        let weak = Arc::downgrade(&cache.0);
        cache.0.memory.set_spare(move || weak.upgrade().is_some_and(|shared| ChunkCache(shared).give_up_one()));
        cache
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of chunks in the cache, and the size of all of them in bytes.
    pub(crate) fn used(&self) -> CacheUse {
        CacheUse { chunks: self.state().entries.len() as u64, size_bytes: self.0.bytes.load(Ordering::Acquire) }
    }

    /// Looks for a chunk in the cache, and marks it as used.
    pub(crate) fn find(&self, place: &ChunkPlace) -> Option<FoundChunk> {
        let mut state = self.state();
        let State { entries, uses, next_use, .. } = &mut *state;
        let entry = entries.get_mut(place)?;
        if let Some(place) = uses.remove(&entry.last_use) {
            uses.insert(*next_use, place);
        }
        entry.last_use = *next_use;
        *next_use += 1;
        Some(entry.found.clone())
    }

    /// Notes that the store has just confirmed that a cached chunk is current.
    pub(crate) fn confirm(&self, place: &ChunkPlace) {
        if let Some(entry) = self.state().entries.get_mut(place) {
            entry.found.seen = Instant::now();
        }
    }

    /// Drops a found chunk whose object has changed in the store. A chunk that was added since then stays.
    pub(crate) fn drop_stale(&self, place: &ChunkPlace, found: &FoundChunk) {
        let mut state = self.state();
        let is_same = state.entries.get(place).is_some_and(|entry| Arc::ptr_eq(&entry.found.chunk, &found.chunk));
        let dropped = if is_same { state.remove(place) } else { None };
        drop(state);
        drop(dropped);
    }

    /// Announces that the caller decodes a chunk for the cache, so that other reads can wait for it. Returns whether no
    /// other call has claimed it or has added it since the caller looked for it.
    pub(crate) fn claim(&self, place: &Arc<ChunkPlace>) -> bool {
        let mut state = self.state();
        let is_free = !state.claims.contains_key(place) && !state.entries.contains_key(place);
        if is_free {
            let number = state.next_use;
            state.next_use += 1;
            state.claims.insert(Arc::clone(place), Claim { number, was_written: false });
        }
        is_free
    }

    /// Announces that the caller no longer decodes these chunks for the cache, so that other reads stop waiting.
    pub(crate) fn release<'a>(&self, places: impl Iterator<Item = &'a Arc<ChunkPlace>>) {
        let mut state = self.state();
        places.for_each(|place| {
            state.claims.remove(place);
        });
        drop(state);
        self.0.ended.notify_all();
    }

    /// Returns which of these chunks other calls are decoding for the cache now, each with the number of the
    /// announcement. A caller does not wait for later claims, so callers do not queue up for a chunk that cannot be
    /// kept.
    pub(crate) fn claims_on(&self, places: &[Arc<ChunkPlace>]) -> Vec<(Arc<ChunkPlace>, u64)> {
        let state = self.state();
        places.iter().filter_map(|place| Some((Arc::clone(place), state.claims.get(place)?.number))).collect()
    }

    /// Waits until the calls that decode these chunks for the cache have added them or given up. The caller holds no
    /// memory in flight and no claims.
    ///
    /// # Errors
    /// `Cancelled`
    pub(crate) fn wait(&self, claims: &[(Arc<ChunkPlace>, u64)], cancellation: &CancellationToken) -> Result<()> {
        let mut state = self.state();
        let lasts = |state: &State, (place, number): &(Arc<ChunkPlace>, u64)| {
            state.claims.get(place).is_some_and(|claim| claim.number == *number)
        };
        while claims.iter().any(|claim| lasts(&state, claim)) {
            state = self.0.ended.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            // The token may call back to the caller, so the lock is released first.
            drop(state);
            cancellation.check()?;
            state = self.state();
        }
        Ok(())
    }

    /// Reserves memory for a chunk of `size_bytes`, and drops old chunks so that all together have at most `most_bytes`.
    /// `None` if there is no room.
    pub(crate) fn reserve(&self, size_bytes: u64, most_bytes: u64, limit_bytes: u64) -> Option<CacheMemory> {
        let bytes = size_bytes.checked_add(OVERHEAD_BYTES).filter(|bytes| *bytes <= most_bytes)?;
        let add = |all: u64| all.checked_add(bytes).filter(|all| *all <= most_bytes);
        while self.0.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_err() {
            if !self.give_up_one() {
                return None;
            }
        }
        match self.0.memory.try_take(bytes, limit_bytes) {
            Some(reserved) => Some(CacheMemory { reserved, all: Arc::clone(&self.0.bytes) }),
            None => {
                self.0.bytes.fetch_sub(bytes, Ordering::AcqRel);
                None
            }
        }
    }

    /// Drops old chunks until all together have at most `most_bytes`. Chunks in use stay.
    pub(crate) fn shrink(&self, most_bytes: u64) {
        while self.0.bytes.load(Ordering::Acquire) > most_bytes && self.give_up_one() {}
    }

    /// Adds a chunk that the caller has decoded for the cache, and wakes the reads that wait for it. The chunk is
    /// dropped if its object was written since the claim began.
    pub(crate) fn keep(
        &self,
        place: &Arc<ChunkPlace>,
        content: KeptContent,
        version: Option<Version>,
        memory: CacheMemory,
    ) {
        let chunk = Arc::new(KeptChunk { content, _memory: memory });
        let mut state = self.state();
        let is_current = state.claims.remove(place).is_some_and(|claim| !claim.was_written);
        // The old entry and a refused new one are dropped without the lock.
        let mut dropped = (state.remove(place), None);
        if is_current {
            let last_use = state.next_use;
            state.next_use += 1;
            state.uses.insert(last_use, Arc::clone(place));
            let found = FoundChunk { chunk, version, seen: Instant::now() };
            state.entries.insert(Arc::clone(place), Entry { found, last_use });
        } else {
            dropped.1 = Some(chunk);
        }
        drop(state);
        drop(dropped);
        self.0.ended.notify_all();
    }

    /// Drops the cached chunks of a stored object that was written or deleted. Calls that decode its old bytes now do
    /// not keep them.
    pub(crate) fn forget(&self, object: &str) {
        self.forget_if(object, |other| other == object);
    }

    /// Like [`ChunkCache::forget`], for all objects below a prefix.
    pub(crate) fn forget_below(&self, prefix: &str) {
        // The address of a whole store ends with the separator.
        let prefix = prefix.trim_end_matches('/');
        self.forget_if(prefix, |object| object.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')));
    }

    /// Drops the cached chunks of all stored objects for whose address `is_it` is true. Their addresses begin with
    /// `first`.
    fn forget_if(&self, first: &str, is_it: impl Fn(&str) -> bool) {
        let from = ChunkPlace { object: first.to_string(), inner: Vec::new(), coding: "".into() };
        let mut state = self.state();
        let places: Vec<_> = state
            .entries
            .range::<ChunkPlace, _>(&from..)
            .map(|(place, _)| place)
            .take_while(|place| place.object.starts_with(first))
            .filter(|place| is_it(&place.object))
            .cloned()
            .collect();
        let dropped: Vec<_> = places.iter().filter_map(|place| state.remove(place)).collect();
        state
            .claims
            .range_mut::<ChunkPlace, _>(&from..)
            .take_while(|(place, _)| place.object.starts_with(first))
            .filter(|(place, _)| is_it(&place.object))
            .for_each(|(_, claim)| claim.was_written = true);
        drop(state);
        drop(dropped);
    }

    /// Drops every chunk and shard index of the cache.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        let dropped = std::mem::take(&mut state.entries);
        state.uses.clear();
        drop(state);
        drop(dropped);
    }

    /// Drops the chunk that was used longest ago, and that no call uses now. Returns whether there was one.
    fn give_up_one(&self) -> bool {
        let mut state = self.state();
        let is_idle = |place: &&Arc<ChunkPlace>| {
            state.entries.get(*place).is_some_and(|entry| Arc::strong_count(&entry.found.chunk) == 1)
        };
        let Some(place) = state.uses.values().find(is_idle).cloned() else { return false };
        let dropped = state.remove(&place);
        drop(state);
        dropped.is_some()
    }
}

impl State {
    /// Removes a chunk or shard index from the cache, and returns it. The caller drops it without the lock, because
    /// that gives memory back.
    fn remove(&mut self, place: &ChunkPlace) -> Option<FoundChunk> {
        let entry = self.entries.remove(place)?;
        self.uses.remove(&entry.last_use);
        Some(entry.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(object: &str) -> Arc<ChunkPlace> {
        Arc::new(ChunkPlace { object: object.into(), inner: Vec::new(), coding: "".into() })
    }

    fn keep(cache: &ChunkCache, object: &str, size_bytes: u64) -> bool {
        let place = place(object);
        assert!(cache.claim(&place));
        let Some(reserved) = cache.reserve(size_bytes, 4000, 1 << 20) else {
            cache.release([&place].into_iter());
            return false;
        };
        let content = KeptContent::Packed(Buffer::from_vec(vec![0; size_bytes as usize]));
        cache.keep(&place, content, Some(Version::numbered(1)), reserved);
        true
    }

    #[test]
    fn the_chunks_used_last_stay() {
        let cache = ChunkCache::new(Bytes::default());
        for object in ["a", "b", "c"] {
            assert!(keep(&cache, object, 500));
        }
        assert!(cache.find(&place("a")).is_some());
        assert!(keep(&cache, "d", 500), "there is room for three chunks with their overhead");
        assert!(cache.find(&place("b")).is_none() && cache.find(&place("a")).is_some());
        assert!(!keep(&cache, "e", 4000), "a chunk that is larger than the cache is not kept");
        assert_eq!(cache.used(), CacheUse { chunks: 3, size_bytes: 3 * (500 + OVERHEAD_BYTES) });
    }

    #[test]
    fn memory_in_flight_comes_first_and_chunks_in_use_stay() {
        let memory = Bytes::default();
        let cache = ChunkCache::new(memory.clone());
        assert!(keep(&cache, "a", 500) && keep(&cache, "b", 500));
        let in_use = cache.find(&place("a")).unwrap();
        let most = 2 * (500 + OVERHEAD_BYTES);
        assert!(memory.try_take(most, most).is_none(), "one chunk is in use");
        assert_eq!(cache.used().chunks, 1);
        let held = memory.try_take(500 + OVERHEAD_BYTES, most).unwrap();
        drop((in_use, held));
        let _all = memory.try_take(most, most).unwrap();
        assert_eq!((cache.used(), memory.used_bytes()), (CacheUse::default(), most));
    }

    #[test]
    fn a_chunk_for_which_there_is_no_memory_takes_no_room_of_others() {
        let memory = Bytes::default();
        let cache = ChunkCache::new(memory.clone());
        let (held, size_bytes) = (memory.try_take(4000, 4000).unwrap(), 4000 - OVERHEAD_BYTES);
        assert!(cache.reserve(size_bytes, 4000, 4000).is_none());
        assert_eq!(cache.used(), CacheUse::default());
        drop(held);
        assert!(cache.reserve(size_bytes, 4000, 4000).is_some());
    }

    #[test]
    fn chunks_of_written_objects_are_forgotten_even_while_they_are_decoded() {
        let cache = ChunkCache::new(Bytes::default());
        assert!(keep(&cache, "s/a/c/0", 1) && keep(&cache, "s/ab/c/0", 1) && keep(&cache, "s/a/c/1", 1));
        let decoding = place("s/a/c/2");
        assert!(cache.claim(&decoding));
        cache.forget("s/a/c/0");
        assert_eq!(cache.used().chunks, 2);
        cache.forget_below("s/a");
        assert!(cache.find(&place("s/ab/c/0")).is_some() && cache.find(&place("s/a/c/1")).is_none());
        let reserved = cache.reserve(1, 4096, 4096).unwrap();
        cache.keep(&decoding, KeptContent::Missing, None, reserved);
        assert!(cache.find(&decoding).is_none());
        assert!(cache.claim(&decoding), "the claim has ended");
    }

    #[test]
    fn a_chunk_that_came_since_the_caller_looked_is_not_claimed_anew() {
        let cache = ChunkCache::new(Bytes::default());
        assert!(cache.find(&place("a")).is_none());
        assert!(keep(&cache, "a", 1));
        assert!(!cache.claim(&place("a")));
        let old = cache.find(&place("a")).unwrap();
        cache.forget("a");
        assert!(keep(&cache, "a", 2));
        cache.drop_stale(&place("a"), &old);
        let new = cache.find(&place("a")).expect("the newer chunk stays");
        cache.drop_stale(&place("a"), &new);
        assert!(cache.find(&place("a")).is_none() && cache.claim(&place("a")));
    }

    #[test]
    fn who_needs_a_claimed_chunk_waits_for_its_end() {
        let cache = ChunkCache::new(Bytes::default());
        let claimed = place("a");
        assert!(cache.claim(&claimed) && !cache.claim(&claimed));
        let cancelled = CancellationToken::listening(|| true);
        let claims = cache.claims_on(&[Arc::clone(&claimed)]);
        assert!(cache.wait(&claims, &cancelled).is_err());
        let (other, waited) = (cache.clone(), claims.clone());
        let waiter = std::thread::spawn(move || other.wait(&waited, &CancellationToken::new()).is_ok());
        cache.release([&claimed].into_iter());
        assert!(waiter.join().unwrap());
        assert!(cache.claim(&claimed));
        assert!(cache.wait(&claims, &cancelled).is_ok(), "a later claim is not waited for");
    }
}
