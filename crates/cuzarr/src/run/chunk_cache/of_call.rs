//! One read's use of the chunk cache: the chunks that it looks for there, decodes for it, and adds to it.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{CacheMemory, ChunkCache, ChunkPlace, FoundChunk, KeptContent};
use crate::plan::{Entries, IndexPlace, Unit};
use crate::run::access::CachedAs;
use crate::run::options::Options;
use crate::store::{Capabilities, Version};

/// The view of the chunk cache that one read has: its arrays, its limits, and the chunks that it decodes for the cache.
pub(crate) struct CallCache {
    pub(crate) cache: ChunkCache,
    /// For each array of the read, the part that its chunks share in their cache keys; `None` for an array without the
    /// cache.
    arrays: Vec<Option<CachedAs>>,
    most_bytes: u64,
    limit_bytes: u64,
    max_age: Duration,
    /// The chunks that this read decodes for the cache.
    claims: Mutex<BTreeSet<Arc<ChunkPlace>>>,
    /// By array and key, the versions that the store has reported for objects that are read whole.
    versions: Mutex<HashMap<(usize, String), Version>>,
}

impl CallCache {
    /// Prepares one read's use of the chunk cache, for the arrays that it reads. `limit_bytes` is the memory limit of
    /// the call.
    pub(crate) fn new(
        cache: ChunkCache,
        arrays: Vec<Option<CachedAs>>,
        options: &Options,
        limit_bytes: u64,
    ) -> CallCache {
        CallCache {
            cache,
            arrays,
            most_bytes: options.chunk_cache_bytes,
            limit_bytes,
            max_age: options.chunk_cache_max_age,
            claims: Mutex::default(),
            versions: Mutex::default(),
        }
    }

    /// Whether chunks of the array with the number `array` are kept in the chunk cache.
    pub(crate) fn is_for(&self, array: usize) -> bool {
        self.arrays.get(array).is_some_and(Option::is_some)
    }

    /// The key of a chunk in the chunk cache; `None` if the chunk cannot be kept there.
    pub(crate) fn place(&self, unit: &Unit) -> Option<Arc<ChunkPlace>> {
        let CachedAs { store, coding } = self.arrays.get(unit.array)?.as_ref().filter(|_| unit.whole)?;
        let (object, inner) = (store.object(&unit.name.key), unit.name.inner.clone());
        Some(Arc::new(ChunkPlace { object, inner, coding: Arc::clone(coding) }))
    }

    /// The key of a shard's index in the chunk cache; `None` if the array does not use the cache.
    fn index_place(&self, array: usize, index: &IndexPlace) -> Option<Arc<ChunkPlace>> {
        let CachedAs { store, coding } = self.arrays.get(array)?.as_ref()?;
        // No chunk has a place like this, because a chunk's numbers are below 2^63.
        let inner = vec![u64::MAX, index.level as u64, index.shard_offset];
        Some(Arc::new(ChunkPlace { object: store.object(&index.key), inner, coding: Arc::clone(coding) }))
    }

    /// Whether this read may use a cached chunk at once, without asking the store whether the chunk is still current.
    pub(crate) fn is_fresh(&self, store: Capabilities, found: &FoundChunk) -> bool {
        let is_permanent = found.version.as_ref().is_some_and(Version::is_permanent);
        is_permanent || store.far && found.seen.elapsed() < self.max_age
    }

    /// Announces that this read decodes a chunk for the cache ([`ChunkCache::claim`]).
    pub(crate) fn claim(&self, place: &Arc<ChunkPlace>) -> bool {
        let is_claimed = self.cache.claim(place);
        if is_claimed {
            self.claims().insert(Arc::clone(place));
        }
        is_claimed
    }

    fn claims(&self) -> MutexGuard<'_, BTreeSet<Arc<ChunkPlace>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<(usize, String), Version>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that this read decodes no more chunks for the cache, so that other reads stop waiting. Chunks that are
    /// not kept by now will not be kept.
    pub(crate) fn release(&self) {
        let claims = take(&mut *self.claims());
        if !claims.is_empty() {
            self.cache.release(claims.iter());
        }
    }

    /// Notes the version that the store has reported for an object that this call reads whole.
    pub(crate) fn opened(&self, array: usize, key: &str, version: Version) {
        self.versions().insert((array, key.to_string()), version);
    }

    /// Drops all cached chunks and shard indexes of a stored object that was replaced.
    pub(crate) fn forget(&self, array: usize, key: &str) {
        if let Some(Some(CachedAs { store, .. })) = self.arrays.get(array) {
            self.cache.forget(&store.object(key));
        }
    }

    /// Reserves cache memory for a chunk of `size_bytes`; `None` if the cache has no room for it.
    pub(crate) fn reserve(&self, size_bytes: usize) -> Option<CacheMemory> {
        self.cache.reserve(size_bytes as u64, self.most_bytes, self.limit_bytes)
    }

    /// Adds to the chunk cache a chunk that this read has decoded. It is not kept if its object has no version, or has
    /// changed a moment ago.
    pub(crate) fn keep(&self, unit: &Unit, content: KeptContent, memory: CacheMemory) {
        let Some(place) = self.place(unit).filter(|place| self.claims().remove(place)) else { return };
        let known = || self.versions().remove(&(unit.array, unit.name.key.to_string()));
        let version = match content {
            KeptContent::Missing => None,
            _ => unit.version.clone().or_else(known),
        };
        self.add(&place, content, version, memory);
    }

    fn add(&self, place: &Arc<ChunkPlace>, content: KeptContent, version: Option<Version>, memory: CacheMemory) {
        let is_missing = matches!(content, KeptContent::Missing);
        match is_missing || version.as_ref().is_some_and(Version::is_settled) {
            true => self.cache.keep(place, content, version, memory),
            false => self.cache.release([place].into_iter()),
        }
    }

    /// Looks in the cache for the index of a shard that may be used without asking the store. The inner `None` stands
    /// for a missing shard. If there is no such index, claims it, so that [`CallCache::keep_index`] can add it.
    pub(crate) fn index(
        &self,
        array: usize,
        store: Capabilities,
        index: &IndexPlace,
    ) -> Option<Option<Arc<dyn Entries>>> {
        let place = self.index_place(array, index)?;
        let found = self.cache.find(&place);
        if let Some(found) = &found {
            if self.is_fresh(store, found) {
                return Some(match &found.chunk.content {
                    KeptContent::Index(entries) => Some(Arc::clone(entries)),
                    _ => None,
                });
            }
            self.cache.drop_stale(&place, found);
        }
        self.claim(&place);
        None
    }

    /// Adds to the cache the index of a shard that the store has just sent or confirmed; `None` for a missing shard.
    pub(crate) fn keep_index(&self, array: usize, index: &IndexPlace, entries: Option<&Arc<dyn Entries>>) {
        let place = self.index_place(array, index).filter(|place| self.claims().remove(place));
        let Some(place) = place else { return };
        let size_bytes = entries.map_or(0, |entries| 16 * entries.len());
        let version = entries.and_then(|entries| entries.version());
        let content = entries.map_or(KeptContent::Missing, |entries| KeptContent::Index(Arc::clone(entries)));
        match self.reserve(size_bytes) {
            Some(memory) => self.add(&place, content, version, memory),
            None => self.cache.release([&place].into_iter()),
        }
    }
}

impl Drop for CallCache {
    fn drop(&mut self) {
        self.release();
    }
}
