//! The shard indexes that an open array keeps in memory between calls. A decoded index is used again as long as the
//! shard has the same version, which each call asks the store. Elements are never kept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::codec::ShardIndex;
use crate::plan::{Entries, IndexPlace};
use crate::store::Version;

/// Approximate memory that a kept index needs beside its entries, in bytes.
const OVERHEAD_BYTES: u64 = 256;

/// A shard's decoded index, and the version of the shard from which it was read.
pub(crate) struct VersionedIndex {
    pub(crate) index: ShardIndex,
    /// The shard's version; `None` if the store does not report versions.
    pub(crate) version: Option<Version>,
}

impl Entries for VersionedIndex {
    fn get(&self, linear: usize) -> Option<(u64, u64)> {
        self.index.get(linear)
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn version(&self) -> Option<Version> {
        self.version.clone()
    }
}

/// Shard indexes of one array that are kept between calls. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Indexes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The kept shard indexes, each with a number that shows which one came first.
    known: HashMap<IndexPlace, (u64, Arc<VersionedIndex>)>,
    arrivals: BTreeMap<u64, IndexPlace>,
    next_arrival: u64,
    bytes: u64,
}

impl Indexes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kept index of the shard that `place` names; `None` if there is none. The caller must compare its
    /// version with the store's.
    pub(crate) fn get(&self, place: &IndexPlace) -> Option<Arc<VersionedIndex>> {
        self.state().known.get(place).map(|(_, index)| Arc::clone(index))
    }

    /// Keeps the index of a shard in memory for later calls. Drops the oldest indexes while all together are larger
    /// than `limit_bytes`.
    pub(crate) fn keep(&self, place: &IndexPlace, index: &Arc<VersionedIndex>, limit_bytes: u64) {
        let mut state = self.state();
        state.forget(place);
        if !index.version.as_ref().is_some_and(Version::is_settled) || size_bytes(index) > limit_bytes {
            return;
        }
        state.bytes += size_bytes(index);
        let arrival = state.next_arrival;
        state.next_arrival += 1;
        state.known.insert(place.clone(), (arrival, Arc::clone(index)));
        state.arrivals.insert(arrival, place.clone());
        while state.bytes > limit_bytes {
            let Some(oldest) = state.arrivals.first_key_value().map(|(_, place)| place.clone()) else { break };
            state.forget(&oldest);
        }
    }
}

impl State {
    fn forget(&mut self, place: &IndexPlace) {
        if let Some((arrival, index)) = self.known.remove(place) {
            self.bytes -= size_bytes(&index);
            self.arrivals.remove(&arrival);
        }
    }
}

fn size_bytes(index: &VersionedIndex) -> u64 {
    16 * index.len() as u64 + OVERHEAD_BYTES
}
