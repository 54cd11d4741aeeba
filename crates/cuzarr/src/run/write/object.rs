//! Objects that are being written. Any thread encodes inner chunks in any order. The last chunk of a shard makes the shard, and
//! the last chunk of an object writes the object. A failed object is never written, so readers keep the old value.

use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cuzarr_device::Buffer;

use crate::codec::{Chain, ShardIndex, Sharding, above_bound};
use crate::error::{Error, ErrorKind, Result, ResultExt};
use crate::plan::{ChunkName, Source, Touched};
use crate::run::context::Context;
use crate::run::read::coordinator::sharding_at;
use crate::run::report::Stage;
use crate::run::write::flow::Flow;
use crate::store::{ByteRange, Condition, Key, Payload, Store, StoreExt};

/// Pieces of a shard are copied into one object for the store when they have fewer bytes than this on average.
const LEAST_PIECE_BYTES: usize = 32 << 10;

/// The place of an encoded chunk.
#[derive(Clone)]
pub(crate) enum Place {
    /// The chunk is an object.
    Object(Arc<Object>),
    /// The chunk is an inner chunk of a shard, with this C-order number.
    Inner(Arc<Shard>, usize),
}

/// An object that is being written.
pub(crate) struct Object {
    pub(crate) call: Arc<Context>,
    pub(crate) chain: Arc<Chain>,
    pub(crate) source: Arc<Source>,
    pub(crate) key: Arc<str>,
    /// Whether the whole object is replaced, so that its old bytes are not needed.
    pub(crate) covered: bool,
    /// Keeps what others write to the object meanwhile; `None` where the old bytes are not needed, or the store cannot help.
    pub(crate) guard: Option<Guard>,
    /// Dropped with the object: tells the coordinator that all work on it has ended.
    pub(crate) _ticket: Box<dyn Send + Sync>,
}

/// Keeps what other writers put into an object between the reading of its old bytes and its writing: the object is only written
/// over the version that was read. Otherwise it is noted as lost, and the write begins again with it.
pub(crate) struct Guard {
    pub(crate) touched: Touched,
    pub(crate) lost: Arc<Mutex<Vec<Touched>>>,
    /// What must hold in the store when the object is written. It is set when the old bytes are read.
    pub(crate) condition: OnceLock<Condition>,
}

impl Guard {
    pub(crate) fn new(touched: Touched, lost: Arc<Mutex<Vec<Touched>>>) -> Guard {
        Guard { touched, lost, condition: OnceLock::new() }
    }
}

/// A shard that is being written.
pub(crate) struct Shard {
    place: Place,
    level: usize,
    covered: bool,
    base: Mutex<Base>,
    slots: Mutex<Vec<Option<Slot>>>,
    remaining: AtomicUsize,
    /// Where the chunks go that are written as they come; else the last one writes the shard.
    flow: Option<Flow>,
}

/// The shard's old bytes.
enum Base {
    Unknown,
    Missing,
    Known(Stored, ShardIndex),
}

/// Bytes of an object that was read.
#[derive(Clone)]
pub(crate) struct Stored {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

/// The new bytes of an inner chunk, or `None` when it is not stored. A chunk without a slot keeps its old bytes.
struct Slot(Option<Vec<u8>>);

impl Stored {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    fn part(&self, offset: u64, size_bytes: u64) -> Option<Stored> {
        let start = usize::try_from(offset).ok()?.checked_add(self.range.start)?;
        let end = start.checked_add(usize::try_from(size_bytes).ok()?)?;
        (end <= self.range.end).then(|| Stored { bytes: Arc::clone(&self.bytes), range: start..end })
    }
}

impl Object {
    fn load(&self) -> Result<Option<Stored>> {
        if self.covered {
            return Ok(None);
        }
        let bound = self.source.levels[0].bound_bytes.unwrap_or(u64::MAX);
        let read = || self.call.store.get_versioned(&self.key, bound);
        let found = self.call.counters.time(Stage::Fetch, 0, read).map_err(above_bound)?;
        if let Some(guard) = &self.guard {
            let condition = match &found {
                None => Condition::Absent,
                Some((_, Some(version))) => Condition::Unchanged(version.clone()),
                Some((_, None)) => Condition::Always,
            };
            // An object's old bytes are read once: a chunk is one leaf, and a shard reads them under a lock.
            let _ = guard.condition.set(condition);
        }
        Ok(found.map(|(bytes, _)| Stored { range: 0..bytes.len(), bytes: Arc::new(bytes) }))
    }

    /// What must hold in the store when the object is written.
    fn condition(&self) -> &Condition {
        self.guard.as_ref().and_then(|guard| guard.condition.get()).unwrap_or(&Condition::Always)
    }

    /// Whether the object must stay, even when it only holds the fill value. Stores cannot delete an object under a condition, and
    /// another writer may just have put elements into it.
    pub(crate) fn must_stay(&self) -> bool {
        matches!(self.condition(), Condition::Unchanged(_))
    }

    /// Stores the object now. Where every request takes long, another thread stores it, so that threads that encode can go on.
    fn send(self: &Arc<Self>, encoded: Option<Cow<'_, [u8]>>) -> Result<()> {
        if !self.call.is_far() {
            return self.store(encoded.as_deref());
        }
        let (object, encoded) = (Arc::clone(self), encoded.map(Cow::into_owned));
        self.call.senders.submit(Box::new(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| object.store(encoded.as_deref())));
            let panicked = |_| Err(Error::new(ErrorKind::StoreFailed, "the store panicked; please report this"));
            if let Err(error) = outcome.unwrap_or_else(panicked) {
                object.call.fail(error.at(format!("chunk '{}'", object.key)));
            }
        }));
        Ok(())
    }

    /// Writes the object; `None` deletes it.
    pub(crate) fn store(&self, encoded: Option<&[u8]>) -> Result<()> {
        self.replace(encoded.map(Payload::Bytes))
    }

    /// Writes the object from device memory; `None` deletes it.
    fn store_buffer(&self, encoded: Option<&Buffer>) -> Result<()> {
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
            // The object was not there, and what is there now is another writer's.
            None if *condition == Condition::Absent => Ok(()),
            None => store.delete(key),
        })
    }

    /// Most bytes of a shard whose inner chunks can be written as they come, each large enough to be written alone; else `None`.
    fn flow_bound_bytes(&self, sharding: &Sharding) -> Option<u64> {
        let can = self.call.store.capabilities();
        let bound_bytes = self.source.levels[0].bound_bytes?;
        (can.writes_parts && can.shortens_parts && self.covered && self.guard.is_none() && !self.call.is_far())
            .then_some(bound_bytes)
            .filter(|bound| *bound >= (LEAST_PIECE_BYTES * sharding.len()) as u64)
    }

    /// Whether the store writes pieces, of which each is so large that it is not worth copying.
    fn takes_pieces(&self, pieces: &[Vec<u8>]) -> bool {
        let size_bytes: usize = pieces.iter().map(Vec::len).sum();
        size_bytes >= LEAST_PIECE_BYTES * pieces.len()
            && self.call.store.capabilities().writes_parts
            && !self.call.is_far()
    }

    /// Writes the object from pieces that follow each other.
    fn store_pieces(&self, pieces: &[Vec<u8>]) -> Result<()> {
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

    /// Lets `write` change the object in the store, unless the call was cancelled.
    pub(crate) fn flush(&self, size_bytes: usize, write: impl FnOnce(&dyn Store, &Key) -> Result<()>) -> Result<()> {
        self.call.check_cancelled()?;
        self.call.counters.time(Stage::Flush, size_bytes as u64, || write(&*self.call.store, &self.key))
    }
}

impl Place {
    /// Whether an encoded chunk is the whole object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Place::Object(_))
    }

    /// Like [`Place::deliver`], for a chunk that is in device memory.
    pub(crate) fn deliver_buffer(&self, encoded: Option<&Buffer>) -> Result<()> {
        match self {
            Place::Object(object) => object.store_buffer(encoded),
            Place::Inner(..) => self.deliver(encoded.map(Buffer::to_vec).transpose()?),
        }
    }

    /// Whether the chunk must be stored, even when it only holds the fill value.
    pub(crate) fn must_stay(&self) -> bool {
        matches!(self, Place::Object(object) if object.must_stay())
    }

    /// The object that the chunk belongs to.
    pub(crate) fn object(&self) -> &Arc<Object> {
        match self {
            Place::Object(object) => object,
            Place::Inner(shard, _) => shard.place.object(),
        }
    }

    /// The old bytes, when they are needed.
    pub(crate) fn load(&self) -> Result<Option<Stored>> {
        match self {
            Place::Object(object) => object.load(),
            Place::Inner(shard, linear) => shard.load_inner(*linear),
        }
    }

    /// Puts an encoded chunk in its place. `None` means that the chunk is not stored.
    pub(crate) fn deliver(&self, encoded: Option<Vec<u8>>) -> Result<()> {
        match self {
            Place::Object(object) => object.send(encoded.map(Cow::Owned)),
            Place::Inner(shard, linear) => shard.deliver(*linear, encoded),
        }
    }

    /// Like [`Place::deliver`], for borrowed bytes.
    pub(crate) fn deliver_bytes(&self, encoded: &[u8]) -> Result<()> {
        match self {
            Place::Object(object) => object.send(Some(Cow::Borrowed(encoded))),
            Place::Inner(shard, linear) => shard.deliver(*linear, Some(encoded.to_vec())),
        }
    }
}

impl Shard {
    /// A shard of `level` that gets the inner chunks with these C-order numbers.
    pub(crate) fn new(place: Place, level: usize, covered: bool, touched: &[usize]) -> Result<Shard> {
        let sharding = sharding_at(&place.object().chain, level)?;
        let flow = match &place {
            Place::Object(object) if covered => {
                object.flow_bound_bytes(sharding).map(|bound| Flow::new(sharding, bound, touched.iter().copied()))
            }
            _ => None,
        };
        let count = if flow.is_some() { 0 } else { sharding.len() };
        Ok(Shard {
            level,
            covered,
            base: Mutex::new(Base::Unknown),
            slots: Mutex::new((0..count).map(|_| None).collect()),
            remaining: AtomicUsize::new(touched.len()),
            flow,
            place,
        })
    }

    /// Whether chunks are written as they come.
    pub(crate) fn flows(&self) -> bool {
        self.flow.is_some()
    }

    /// The shard's old bytes, read once. Other threads that need them wait here.
    fn base(&self) -> Result<MutexGuard<'_, Base>> {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*base, Base::Unknown) {
            *base = match self.covered {
                true => Base::Missing,
                false => self.load_base()?,
            };
        }
        Ok(base)
    }

    fn load_base(&self) -> Result<Base> {
        let Some(stored) = self.place.load()? else { return Ok(Base::Missing) };
        let sharding = sharding_at(&self.place.object().chain, self.level)?;
        let (have, need) = (stored.bytes().len() as u64, sharding.index_size_bytes());
        let short =
            || Error::new(ErrorKind::ChunkCorrupt, format!("shard has {have} bytes, but its index alone has {need}"));
        let at = match sharding.index_range() {
            ByteRange::Suffix { .. } => have.checked_sub(need).ok_or_else(short)?,
            _ => 0,
        };
        let index = sharding.decode_index(stored.part(at, need).ok_or_else(short)?.bytes())?;
        index.validate(have)?;
        Ok(Base::Known(stored, index))
    }

    fn load_inner(&self, linear: usize) -> Result<Option<Stored>> {
        match &*self.base()? {
            Base::Known(stored, index) => kept(stored, index, linear),
            _ => Ok(None),
        }
    }

    fn deliver(&self, linear: usize, encoded: Option<Vec<u8>>) -> Result<()> {
        if let Some(flow) = &self.flow {
            let object = self.place.object();
            return flow.add((object, sharding_at(&object.chain, self.level)?), linear, encoded);
        }
        if let Some(slot) = self.slots.lock().unwrap_or_else(PoisonError::into_inner).get_mut(linear) {
            *slot = Some(Slot(encoded));
        }
        if self.remaining.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        match (self.assemble()?, &self.place) {
            (Some(pieces), Place::Object(object)) if object.takes_pieces(&pieces) => object.store_pieces(&pieces),
            (pieces, place) => place.deliver(pieces.map(|pieces| pieces.concat())),
        }
    }

    /// The pieces of the shard's object.
    fn assemble(&self) -> Result<Option<Vec<Vec<u8>>>> {
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        let base = self.base()?;
        let mut chunks = Vec::with_capacity(slots.len());
        for (linear, slot) in slots.into_iter().enumerate() {
            chunks.push(match (slot, &*base) {
                (Some(Slot(encoded)), _) => encoded,
                (None, Base::Known(stored, index)) => {
                    kept(stored, index, linear)?.map(|stored| stored.bytes().to_vec())
                }
                (None, _) => None,
            });
        }
        drop(base);
        let sharding = sharding_at(&self.place.object().chain, self.level)?;
        if self.place.must_stay() { sharding.pieces(chunks).map(Some) } else { sharding.encode_pieces(chunks) }
    }
}

/// The old bytes of an inner chunk.
fn kept(stored: &Stored, index: &ShardIndex, linear: usize) -> Result<Option<Stored>> {
    let Some((offset, size_bytes)) = index.get(linear) else { return Ok(None) };
    let outside = || Error::new(ErrorKind::ChunkCorrupt, format!("inner chunk {linear} lies outside its shard"));
    stored.part(offset, size_bytes).map(Some).ok_or_else(outside)
}

/// Adds the chunk to an error's trail.
pub(crate) fn at_chunk<T>(result: Result<T>, name: &ChunkName) -> Result<T> {
    result.at(|| name.to_string())
}
