//! Looks for the chunks of a read in the chunk cache, and decides which chunks this read decodes. A chunk of a batch is
//! in the cache, or is decoded by this read for the cache, or is being decoded by another read.

use std::mem::take;
use std::sync::Arc;

use crate::error::Result;
use crate::plan::{Batch, SizeRule, Unit};
use crate::run::access::Access;
use crate::run::chunk_cache::{CacheMemory, CallCache, ChunkPlace, FoundChunk, KeptChunk, KeptContent};
use crate::run::context::Context;
use crate::run::engine::Engine;
use crate::run::options::Options;
use crate::run::read::fetch::{Request, fetch};
use crate::store::{ByteRange, Stat, Version};

/// A copy of a decoded chunk on the device; it goes to the chunk cache once its frame proves undamaged.
pub(crate) struct Unchecked {
    pub(crate) unit: Unit,
    pub(crate) content: KeptContent,
    pub(crate) memory: CacheMemory,
}

/// Gives a new call its view of the chunk cache, if one of its arrays uses it.
pub(crate) fn with_cache(call: Arc<Context>, engine: &Engine, accesses: &[&Access], options: &Options) -> Arc<Context> {
    let names = |(at, access): (usize, &&Access)| access.cached_as(&*call.of(at).store, options).cloned();
    let arrays: Vec<_> = accesses.iter().enumerate().map(names).collect();
    if let Some(device) = accesses.first().map(|access| access.device()).filter(|_| arrays.iter().any(Option::is_some))
    {
        let cache = engine.chunk_cache(device);
        // The configured size may be smaller than before.
        cache.shrink(options.chunk_cache_bytes);
        // The call is new, so it has no cache yet.
        let _ = call.cache.set(CallCache::new(cache, arrays, options, call.limit_bytes));
    }
    call
}

/// Sorts the chunks of a batch: those that the chunk cache has, and those that this read decodes itself. Returns units
/// of chunks that another read decodes now, or has added just now. If `now`, this read decodes those too.
///
/// # Errors
/// `Cancelled`
pub(crate) fn sort(call: &Arc<Context>, cache: &CallCache, batch: &mut Batch, now: bool) -> Result<Vec<Unit>> {
    let places: Vec<_> = batch.units.iter().map(|unit| cache.place(unit)).collect();
    if places.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let mut found = find(call, cache, batch, &places)?;
    let (mut units, mut later) = (Vec::with_capacity(batch.units.len()), Vec::new());
    for (at, (mut unit, place)) in take(&mut batch.units).into_iter().zip(&places).enumerate() {
        match (found[at].take(), place) {
            (Some(chunk), _) if matches!(chunk.content, KeptContent::Missing) => batch.fills.extend(unit.fills()),
            (Some(chunk), _) => batch.kept.push((unit, chunk)),
            (None, Some(place)) if cache.claim(place) => {
                unit.keep = true;
                units.push(unit);
            }
            (None, Some(_)) if !now => later.push(unit),
            (None, _) => units.push(unit),
        }
    }
    call.counters.add_cached(places.len() - units.len() - later.len());
    let sorted = Batch::new(batch.group, units, take(&mut batch.fills), batch.limits);
    *batch = Batch { kept: take(&mut batch.kept), ..sorted };
    Ok(later)
}

/// Looks for chunks in the chunk cache, and asks the stores whether those that were found are current.
fn find(
    call: &Arc<Context>,
    cache: &CallCache,
    batch: &Batch,
    places: &[Option<Arc<ChunkPlace>>],
) -> Result<Vec<Option<Arc<KeptChunk>>>> {
    let mut chunks: Vec<Option<Arc<KeptChunk>>> = vec![None; places.len()];
    let mut unsure: Vec<(usize, &Arc<ChunkPlace>, FoundChunk)> = Vec::new();
    for (at, (unit, place)) in batch.units.iter().zip(places).enumerate() {
        let Some(place) = place else { continue };
        let Some(found) = cache.cache.find(place) else { continue };
        let is_fresh = || cache.is_fresh(call.of(unit.array).store.capabilities(), &found);
        match &unit.version {
            _ if !fits(unit, &found) => cache.cache.drop_stale(place, &found),
            // The store was asked for the shard's version when the index was needed.
            Some(version) if found.version.as_ref() == Some(version) => chunks[at] = Some(found.chunk),
            Some(_) => cache.cache.drop_stale(place, &found),
            None if is_fresh() => chunks[at] = Some(found.chunk),
            None => unsure.push((at, place, found)),
        }
    }
    let versions = ask(call, unsure.iter().map(|(at, ..)| &batch.units[*at]).collect())?;
    for ((at, place, found), version) in unsure.into_iter().zip(versions) {
        match version {
            // A missing object has no version, and an object without a version is not kept.
            Ok(version) if version == found.version.clone().map(Some) => {
                cache.cache.confirm(place);
                chunks[at] = Some(found.chunk);
            }
            // If the store cannot say, the chunk is read, and that read reports the error.
            Ok(_) | Err(_) => cache.cache.drop_stale(place, &found),
        }
    }
    Ok(chunks)
}

/// Asks the stores which versions the stored objects of these chunks have now. `None` for objects that do not exist;
/// the inner `None` for objects whose version the store does not tell.
fn ask(call: &Arc<Context>, units: Vec<&Unit>) -> Result<Vec<Result<Option<Option<Version>>>>> {
    let mut versions: Vec<Result<Option<Option<Version>>>> = (0..units.len()).map(|_| Ok(None)).collect();
    let mut others = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        call.cancellation.check()?;
        let store = &call.of(unit.array).store;
        // A file takes microseconds. Far stores are asked for all objects at once.
        let stat = if store.capabilities().far { None } else { Some(store.stat(&unit.name.key)) };
        match stat {
            Some(Ok(Some(Stat { version: None, .. }))) | None => others.push(at),
            Some(stat) => versions[at] = stat.map(|stat| stat.map(|stat| stat.version)),
        }
    }
    let request = |at: &usize| Request {
        array: units[*at].array,
        key: &units[*at].name.key,
        range: ByteRange::Span { offset: 0, size_bytes: 0 },
        size: SizeRule::Exact(0),
        version: None,
    };
    if others.is_empty() {
        return Ok(versions);
    }
    let answers = fetch(call, &others.iter().map(request).collect::<Vec<_>>());
    for (at, answer) in others.into_iter().zip(answers) {
        versions[at] = answer.map(|found| found.map(|found| found.version));
    }
    Ok(versions)
}

/// Whether the cached chunk has the size that this read expects for the chunk.
fn fits(unit: &Unit, found: &FoundChunk) -> bool {
    match &found.chunk.content {
        KeptContent::Packed(packed) => packed.size_bytes() == unit.packed_size_bytes,
        KeptContent::Elements(_) | KeptContent::Missing => true,
        KeptContent::Index(_) => false,
    }
}

/// Waits until no other read decodes any of these chunks for the chunk cache. This read holds no memory and no claims.
///
/// # Errors
/// `Cancelled`
pub(crate) fn wait(call: &Context, cache: &CallCache, units: &[Unit]) -> Result<()> {
    let places: Vec<_> = units.iter().filter_map(|unit| cache.place(unit)).collect();
    cache.cache.wait(&cache.cache.claims_on(&places), &call.cancellation)
}
