//! Runs the plan of a read: the coordinator starts batches and takes back those that are done. It launches the batches
//! of a plan while there is memory, and closes them when they come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::codec::{Chain, Sharding};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{Batch, IndexRead, Plans, SizeRule, Step, WholeShards};
use crate::run::access::Access;
use crate::run::chunk_cache::CallCache;
use crate::run::context::Context;
use crate::run::options::INDEXES_SHARE;
use crate::run::read::cached::{sort, wait};
use crate::run::read::destination::{Destination, Launch};
use crate::run::read::fetch::{Fetched, Request, fetch};
use crate::run::read::in_flight::{InFlight, Launcher, shorter};
use crate::run::read::indexes::VersionedIndex;
use crate::store::ByteRange;

/// Reads the batches of plans, several at once, into `destination`. Plan `n` reads the array `accesses[n]`. Returns
/// when no batch is in flight any more.
///
/// # Errors
/// The first failure, with the others attached.
pub(crate) fn run<D: Destination>(
    call: &Arc<Context>,
    accesses: &[&Access],
    plans: Plans,
    destination: &mut D,
) -> Result<()> {
    let (sender, receiver) = channel();
    hold_small_shards(call, accesses, &plans);
    let (flying, launched, later) = (HashMap::new(), 0, Vec::new());
    let mut reading = Reading { call, accesses, destination, plans, sender, receiver, flying, launched, later };
    if let Err(error) = reading.run() {
        call.fail(error);
    }
    reading.land_the_rest();
    let finished = reading.destination.finish();
    // Other reads must not wait for chunks that this read will not keep.
    call.cache.get().into_iter().for_each(CallCache::release);
    call.outcome()?;
    finished
}

struct Reading<'a, D: Destination> {
    call: &'a Arc<Context>,
    accesses: &'a [&'a Access],
    destination: &'a mut D,
    plans: Plans,
    sender: Sender<usize>,
    receiver: Receiver<usize>,
    flying: HashMap<usize, Arc<InFlight<D::Route>>>,
    launched: usize,
    /// Chunks that another read is decoding for the chunk cache now, so that this read can take them from the cache
    /// later.
    later: Vec<Batch>,
}

impl<D: Destination> Reading<'_, D> {
    fn run(&mut self) -> Result<()> {
        while !self.call.is_cancelled() {
            let step = self.plans.next(&|group| self.destination.room(group))?;
            match step {
                Step::Done => break,
                Step::Indexes(wanted) => self.learn(wanted)?,
                Step::Batch(batch) => self.sort(batch)?,
            }
            while let Ok(number) = self.receiver.try_recv() {
                self.close(number)?;
            }
            // If chunks are missing, batches come back so fast that the call may never wait. So the token is checked
            // here.
            self.call.cancellation.check()?;
        }
        self.read_later()
    }

    /// Starts to read the chunks of a batch; chunks that another read decodes for the chunk cache are kept for later.
    fn sort(&mut self, mut batch: Batch) -> Result<()> {
        if let Some(cache) = self.call.cache.get() {
            let later = sort(self.call, cache, &mut batch, false)?;
            if !later.is_empty() {
                self.later.push(Batch::new(batch.group, later, Vec::new(), batch.limits));
            }
            if batch.is_empty() {
                return Ok(());
            }
        }
        self.launch(batch)
    }

    /// Waits for chunks that other reads decode for the chunk cache, and puts their elements into this read's results.
    /// Before that, this read has ended its own work and returned its memory, so no two reads wait for each other.
    fn read_later(&mut self) -> Result<()> {
        let Some(cache) = self.call.cache.get() else { return Ok(()) };
        for mut batch in std::mem::take(&mut self.later) {
            while !self.flying.is_empty() && !self.call.is_cancelled() {
                self.close_next()?;
            }
            self.destination.rest()?;
            if self.call.is_cancelled() {
                return Ok(());
            }
            cache.release();
            wait(self.call, cache, &batch.units)?;
            sort(self.call, cache, &mut batch, true)?;
            self.launch(batch)?;
        }
        Ok(())
    }

    fn launch(&mut self, mut batch: Batch) -> Result<()> {
        while !self.call.is_cancelled() {
            let launcher = Launcher { call: self.call, number: self.launched, sender: &self.sender };
            // A batch that may wait for memory must hold no kept chunks, because these take memory themselves.
            let alone = self.flying.is_empty() && batch.kept.is_empty();
            match self.destination.launch(&launcher, batch, alone)? {
                Launch::Launched(flight) => {
                    self.flying.insert(self.launched, flight);
                    self.launched += 1;
                    return Ok(());
                }
                Launch::NoMemory(refused) if self.flying.is_empty() && !refused.kept.is_empty() => {
                    batch = refused.without_kept();
                    continue;
                }
                Launch::NoMemory(refused) => batch = refused,
            }
            self.close_next()?;
        }
        Ok(())
    }

    fn close_next(&mut self) -> Result<()> {
        if let Ok(number) = self.receiver.try_recv() {
            return self.close(number);
        }
        self.destination.idle()?;
        match self.call.cancellation.receive(&self.receiver)? {
            Some(number) => self.close(number),
            // This struct holds a sender itself, so this never happens.
            None => Err(Error::new(ErrorKind::StoreFailed, "reads ended without an outcome")),
        }
    }

    fn close(&mut self, number: usize) -> Result<()> {
        match self.flying.remove(&number) {
            Some(flight) => self.destination.close(flight, number),
            None => Ok(()),
        }
    }

    /// Waits until all batches of this read have ended, after the last batch was started or the call failed.
    fn land_the_rest(&mut self) {
        while !self.flying.is_empty() {
            if let Err(error) = self.close_next() {
                self.call.fail(error);
            }
        }
    }

    fn learn(&mut self, mut wanted: Vec<IndexRead>) -> Result<()> {
        if let Some(cache) = self.call.cache.get() {
            wanted.retain(|index| {
                match cache.index(index.array, self.call.of(index.array).store.capabilities(), &index.place) {
                    Some(entries) => {
                        self.plans.learn(index.array, index.place.clone(), entries);
                        false
                    }
                    None => true,
                }
            });
        }
        // Held objects are in memory for this call only, so their indexes are not kept.
        let kept = |index: &IndexRead| match self.call.of(index.array).holds() {
            true => None,
            false => self.accesses[index.array].indexes().get(&index.place),
        };
        let mut wanted: Vec<_> = wanted.into_iter().map(|index| (kept(&index), index)).collect();
        while !wanted.is_empty() {
            let requests: Vec<Request<'_>> =
                wanted.iter().map(|(kept, index)| request(index, kept.is_some())).collect();
            let found = fetch(self.call, &requests);
            let mut replaced = Vec::new();
            for ((kept, index), fetched) in wanted.into_iter().zip(found) {
                let fetched = fetched.map_err(|error| shorter(self.call, &index, error));
                let entries = match (fetched.at(|| format!("{}: shard index", index.name))?, kept) {
                    (None, _) => None,
                    (Some(fetched), None) => Some(self.decode(&index, &fetched)?),
                    (Some(fetched), Some(kept)) if kept.version == fetched.version => Some(kept),
                    (Some(_), Some(_)) => {
                        replaced.push((None, index));
                        continue;
                    }
                };
                let entries = entries.map(|entries| entries as Arc<_>);
                if let Some(cache) = self.call.cache.get() {
                    cache.keep_index(index.array, &index.place, entries.as_ref());
                }
                self.plans.learn(index.array, index.place, entries);
            }
            wanted = replaced;
        }
        Ok(())
    }

    fn decode(&self, index: &IndexRead, fetched: &Fetched) -> Result<Arc<VersionedIndex>> {
        let sharding = sharding_at(&index.layout.chain, index.place.level)?;
        let decoded = sharding.decode_index(&fetched.bytes).at(|| index.name.to_string())?;
        let entries = Arc::new(VersionedIndex { index: decoded, version: fetched.version.clone() });
        if !self.call.of(index.array).holds() {
            self.accesses[index.array].indexes().keep(&index.place, &entries, self.call.limit_bytes / INDEXES_SHARE);
        }
        Ok(entries)
    }
}

/// Makes the request that reads a shard's index. When the index is known, the request asks for no bytes, only for the
/// shard's version.
fn request(index: &IndexRead, is_known: bool) -> Request<'_> {
    let (range, size_bytes) = match is_known {
        true => (ByteRange::Span { offset: 0, size_bytes: 0 }, 0),
        false => (index.range, index.size_bytes),
    };
    let (array, key, version) = (index.array, &*index.place.key, index.version.clone());
    Request { array, key, range, size: SizeRule::Exact(size_bytes), version }
}

/// Reads small shards of stores over a network whole if most of each shard is needed. Then index and chunks take one
/// request. The shards of all arrays are requested together.
fn hold_small_shards(call: &Arc<Context>, accesses: &[&Access], plans: &Plans) {
    let small = |(array, access): (usize, &&Access)| {
        let store = &call.of(array).store;
        // A shard whose chunks are kept is not read whole each time.
        let is_cached = call.cache.get().is_some_and(|cache| cache.is_for(array));
        let can = store.capabilities().far && !store.is_on(access.device()) && !is_cached;
        let shards = if can { plans.of(array).whole_shards() } else { None };
        shards.map(|shards| (array, shards))
    };
    let shards: Vec<(usize, WholeShards)> = accesses.iter().enumerate().filter_map(small).collect();
    if shards.is_empty() {
        return;
    }
    let mut requests = Vec::new();
    for (array, WholeShards { keys, bound_bytes }) in &shards {
        let (array, size) = (*array, SizeRule::AtMost(*bound_bytes));
        requests.extend(keys.iter().map(|key| Request { array, key, range: ByteRange::Full, size, version: None }));
    }
    let mut fetched = fetch(call, &requests).into_iter();
    for (array, WholeShards { keys, .. }) in &shards {
        let of_array: Vec<_> = fetched.by_ref().take(keys.len()).collect();
        let of_array: Result<Vec<_>> = of_array.into_iter().collect();
        // If an object cannot be read whole, its parts are read later, and that read reports the error.
        if let Ok(of_array) = of_array {
            let values = keys.iter().zip(of_array);
            call.of(*array).hold(values.map(|(key, fetched)| (key.to_string(), fetched.map(|fetched| fetched.bytes))));
        }
    }
}

/// Returns the sharding codec of a codec chain at nesting level `level`; level 0 is the outermost.
///
/// # Errors
/// `Unsupported` if the chain has no such level. Plans that are made from the chain never ask for one.
pub(crate) fn sharding_at(chain: &Chain, level: usize) -> Result<&Sharding> {
    let none = || Error::new(ErrorKind::Unsupported, format!("the codec chain has no shards at level {level}"));
    let mut sharding = chain.sharding().ok_or_else(none)?;
    for _ in 0..level {
        sharding = sharding.inner().sharding().ok_or_else(none)?;
    }
    Ok(sharding)
}
