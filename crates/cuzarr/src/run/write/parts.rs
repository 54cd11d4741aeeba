//! Large objects that are written in parts, while later parts are still coming from a device.
//!
//! Systems allow only one write to a file at a time. So the parts of an object are written in order, by one thread at a
//! time, and the parts of several objects come in turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::Buffer;

use crate::codec::{Location, seal};
use crate::error::{Error, ErrorKind, Result};
use crate::run::write::object::at_chunk;
use crate::run::write::writing::{Leaf, Seal, Writing};
use crate::store::Unfinished;

/// The bytes of a large object that is written in parts: a packed chunk, or a chunk that kernels encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartsOf {
    /// A packed chunk, which is not stored when it only holds the fill value.
    Packed,
    /// A frame: a chunk that kernels encoded.
    Frame,
}

/// A large object whose bytes come from the device in parts, and are written part by part.
pub(crate) struct Parts {
    /// The parts of the object that still wait to be written to the store; dropped before `leaf`. The coordinator waits
    /// until the leaf is dropped, so nothing of a failed object is left when the call returns.
    state: Mutex<State>,
    leaf: Leaf,
    of: PartsOf,
    size_bytes: usize,
    /// Bytes that are stored before the first part of the object, such as a checksum; `after` is stored after the last
    /// part.
    before: Vec<u8>,
    after: Vec<u8>,
}

struct State {
    waiting: VecDeque<Buffer>,
    /// The part of the object that is written so far; `None` while a thread writes, and after a failure.
    writer: Option<Writer>,
    failed: bool,
}

/// The state of a large object that is written in parts: the unfinished object in the store, and the bytes done.
#[derive(Default)]
struct Writer {
    /// The unfinished object in the store; `None` as long as all parts only hold the fill value.
    value: Option<Box<dyn Unfinished>>,
    /// Number of bytes in the parts that were written, or that were found to hold only the fill value.
    done_bytes: usize,
}

impl Parts {
    /// Begins an object of `size_bytes` that is written in parts, with a checksum if the device computed one.
    pub(crate) fn new(leaf: Leaf, of: PartsOf, size_bytes: usize, sealed: Option<Seal>) -> Parts {
        let checksum = |wanted: Location| match sealed {
            Some(Seal { checksum, location }) if location == wanted => seal(&[], checksum, location),
            _ => Vec::new(),
        };
        let state = State { waiting: VecDeque::new(), writer: Some(Writer::default()), failed: false };
        let (before, after) = (checksum(Location::Start), checksum(Location::End));
        Parts { state: Mutex::new(state), leaf, of, size_bytes, before, after }
    }

    /// Adds the next part of the object, and lets a thread write it to the store.
    pub(crate) fn add(self: &Arc<Self>, writing: &Arc<Writing>, part: Buffer) {
        let mut state = self.lock();
        // Nobody will write the part, so its memory must be returned.
        if state.failed {
            return;
        }
        state.waiting.push_back(part);
        let Some(writer) = state.writer.take() else { return };
        drop(state);
        let (parts, writing) = (Arc::clone(self), Arc::clone(writing));
        let call = Arc::clone(&writing.call);
        call.submit(false, move || parts.write_waiting(&writing, writer));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the waiting parts of the object to the store, and those that are added meanwhile.
    fn write_waiting(&self, writing: &Writing, mut writer: Writer) {
        loop {
            let mut state = self.lock();
            let Some(part) = state.waiting.pop_front() else {
                state.writer = Some(writer);
                return;
            };
            drop(state);
            let outcome = catch_unwind(AssertUnwindSafe(|| self.write(writing, &mut writer, &part)));
            let panicked = |_| Err(Error::new(ErrorKind::StoreFailed, "the store panicked; please report this"));
            if let Err(error) = at_chunk(outcome.unwrap_or_else(panicked), &self.leaf.chunk.name) {
                writing.array.fail(error);
                let mut state = self.lock();
                state.failed = true;
                return state.waiting.clear();
            }
        }
    }

    fn write(&self, writing: &Writing, writer: &mut Writer, part: &Buffer) -> Result<()> {
        let object = self.leaf.place.object();
        let (offset, bytes) = (writer.done_bytes, part.host_bytes()?);
        writer.done_bytes += bytes.len();
        let is_last = writer.done_bytes == self.size_bytes;
        let is_fill = self.of == PartsOf::Packed
            && writer.value.is_none()
            && writing.is_unstored(&self.leaf.chunk.layout, &bytes, offset)?;
        match &writer.value {
            None if is_fill && is_last => return object.store(None),
            None if is_fill => return Ok(()),
            _ => {}
        }
        let at = |offset: usize| (self.before.len() + offset) as u64;
        object.flush(bytes.len(), |store, key| {
            let value = match &mut writer.value {
                Some(value) => value,
                None => {
                    let value = store.begin(key, at(self.size_bytes + self.after.len()))?;
                    value.write_at(0, &self.before)?;
                    if offset > 0 {
                        value.write_at(at(0), &writing.packed_blank(&self.leaf.chunk.layout)?[..offset])?;
                    }
                    writer.value.insert(value)
                }
            };
            value.write_at(at(offset), &bytes)?;
            if is_last { value.write_at(at(self.size_bytes), &self.after) } else { Ok(()) }
        })?;
        match writer.value.take_if(|_| is_last) {
            Some(value) => object.flush(0, |_, _| value.finish()),
            None => Ok(()),
        }
    }
}
