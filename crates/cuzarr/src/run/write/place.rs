//! The target of an encoded chunk: an object of its own in the store, or a position in a shard. Any thread encodes
//! inner chunks, in any order. The thread with a shard's last chunk makes the shard, unless the shard is written while
//! its chunks come.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::Buffer;

use crate::codec::ShardIndex;
use crate::error::{Error, ErrorKind, Result};
use crate::run::read::coordinator::sharding_at;
use crate::run::write::flow::Flow;
use crate::run::write::object::{Object, StoredBytes};
use crate::store::ByteRange;

/// The target of an encoded chunk: an object of its own in the store, or a position in a shard.
#[derive(Clone)]
pub(crate) enum Place {
    /// The encoded chunk becomes an object of its own in the store.
    Object(Arc<Object>),
    /// The chunk is an inner chunk of a shard, with this C-order number.
    Inner(Arc<WriteShard>, usize),
}

/// A shard that is being written, and the inner chunks that are encoded so far.
pub(crate) struct WriteShard {
    /// Writes the inner chunks of the shard to the store as soon as they are encoded. Without a flow, the last chunk
    /// writes the shard. The flow is dropped before the object, and the coordinator waits for the object's end. So
    /// nothing of a failed shard is left when a call returns.
    flow: Option<Flow>,
    place: Place,
    level: usize,
    covered: bool,
    base: Mutex<Base>,
    slots: Mutex<Vec<Option<Slot>>>,
    remaining: AtomicUsize,
}

/// The old bytes of a shard of which a write replaces a part, if they were read.
enum Base {
    Unknown,
    Missing,
    Known(StoredBytes, ShardIndex),
}

/// The new bytes of an inner chunk of the shard, or `None` when the chunk is not stored. A chunk without a slot keeps
/// its old bytes.
struct Slot(Option<Vec<u8>>);

impl Place {
    /// Whether the encoded chunk becomes an object of its own in the store.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Place::Object(_))
    }

    /// Like [`Place::deliver`], for an encoded chunk in device memory.
    pub(crate) fn deliver_buffer(&self, encoded: Option<&Buffer>) -> Result<()> {
        match self {
            Place::Object(object) => object.store_buffer(encoded),
            Place::Inner(..) => self.deliver(encoded.map(Buffer::to_vec).transpose()?),
        }
    }

    /// Whether the chunk must be stored even if it only holds the fill value.
    pub(crate) fn must_stay(&self) -> bool {
        matches!(self, Place::Object(object) if object.must_stay())
    }

    /// The stored object that contains the chunk, or that is the chunk itself.
    pub(crate) fn object(&self) -> &Arc<Object> {
        match self {
            Place::Object(object) => object,
            Place::Inner(shard, _) => shard.place.object(),
        }
    }

    /// Reads the old bytes of the chunk; `None` if they are not needed, or there are none.
    pub(crate) fn load(&self) -> Result<Option<StoredBytes>> {
        match self {
            Place::Object(object) => object.load(),
            Place::Inner(shard, linear) => shard.load_inner(*linear),
        }
    }

    /// Stores an encoded chunk, or adds it to its shard. `None` means that the chunk is not stored.
    pub(crate) fn deliver(&self, encoded: Option<Vec<u8>>) -> Result<()> {
        match self {
            Place::Object(object) => object.send(encoded.map(Cow::Owned)),
            Place::Inner(shard, linear) => shard.deliver(*linear, encoded),
        }
    }

    /// Like [`Place::deliver`], for encoded bytes that the caller keeps.
    pub(crate) fn deliver_bytes(&self, encoded: &[u8]) -> Result<()> {
        match self {
            Place::Object(object) => object.send(Some(Cow::Borrowed(encoded))),
            Place::Inner(shard, linear) => shard.deliver(*linear, Some(encoded.to_vec())),
        }
    }
}

impl WriteShard {
    /// Begins to write a shard of `level` that gets the inner chunks `touched`, given by their C-order numbers.
    pub(crate) fn new(place: Place, level: usize, covered: bool, touched: &[usize]) -> Result<WriteShard> {
        let sharding = sharding_at(&place.object().layout.chain, level)?;
        let flow = match &place {
            Place::Object(object) if covered => {
                object.flow_bound_bytes(sharding).map(|bound| Flow::new(sharding, bound, touched.iter().copied()))
            }
            _ => None,
        };
        let count = if flow.is_some() { 0 } else { sharding.len() };
        Ok(WriteShard {
            level,
            covered,
            base: Mutex::new(Base::Unknown),
            slots: Mutex::new((0..count).map(|_| None).collect()),
            remaining: AtomicUsize::new(touched.len()),
            flow,
            place,
        })
    }

    /// Whether this shard's inner chunks are written to the store one by one, as soon as they are encoded.
    pub(crate) fn flows(&self) -> bool {
        self.flow.is_some()
    }

    /// Returns the old bytes of a shard of which a write replaces a part; they are read once. Other threads that need
    /// them wait.
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
        let sharding = sharding_at(&self.place.object().layout.chain, self.level)?;
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

    fn load_inner(&self, linear: usize) -> Result<Option<StoredBytes>> {
        match &*self.base()? {
            Base::Known(stored, index) => kept(stored, index, linear),
            _ => Ok(None),
        }
    }

    fn deliver(&self, linear: usize, encoded: Option<Vec<u8>>) -> Result<()> {
        if let Some(flow) = &self.flow {
            let object = self.place.object();
            return flow.add(object, sharding_at(&object.layout.chain, self.level)?, linear, encoded);
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

    /// Puts together the bytes of the whole shard from new inner chunks and the old ones that are kept.
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
        let sharding = sharding_at(&self.place.object().layout.chain, self.level)?;
        if self.place.must_stay() { sharding.pieces(chunks).map(Some) } else { sharding.encode_pieces(chunks) }
    }
}

/// Returns the old bytes of an inner chunk; `None` if the chunk was not stored.
fn kept(stored: &StoredBytes, index: &ShardIndex, linear: usize) -> Result<Option<StoredBytes>> {
    let Some((offset, size_bytes)) = index.get(linear) else { return Ok(None) };
    let outside = || Error::new(ErrorKind::ChunkCorrupt, format!("inner chunk {linear} lies outside its shard"));
    stored.part(offset, size_bytes).map(Some).ok_or_else(outside)
}
