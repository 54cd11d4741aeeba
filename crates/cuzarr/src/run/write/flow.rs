//! Shards that are written while their inner chunks come, so that little remains to be written after the last chunk.
//! Inner chunks are written in the shard's order. A chunk that comes early waits. One thread at a time writes, because
//! systems allow only one write to a file at a time. The other threads leave their chunks to it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::codec::{Layout, Sharding};
use crate::error::Result;
use crate::run::write::object::Object;
use crate::store::Unfinished;

/// Writes the inner chunks of a shard to the store, in the shard's order, as soon as they are encoded.
pub(crate) struct Flow {
    /// Maximum size of the shard in bytes.
    bound_bytes: u64,
    state: Mutex<State>,
}

struct State {
    /// Encoded inner chunks that are not written yet, by their C-order number in the shard; `None` for a chunk that is
    /// not stored.
    waiting: HashMap<usize, Option<Vec<u8>>>,
    /// The part of the shard that is written so far; `None` while a thread writes, and after a failure.
    writer: Option<FlowWriter>,
}

struct FlowWriter {
    layout: Layout,
    /// The unfinished shard in the store; `None` before the first chunk that is stored.
    value: Option<Box<dyn Unfinished>>,
}

impl Flow {
    /// Begins a shard that gets the inner chunks `touched`, and in which all other inner chunks will be missing.
    pub(crate) fn new(sharding: &Sharding, bound_bytes: u64, touched: impl Iterator<Item = usize>) -> Flow {
        let mut waiting: HashMap<_, _> = (0..sharding.len()).map(|linear| (linear, None)).collect();
        touched.for_each(|linear| drop(waiting.remove(&linear)));
        let writer = FlowWriter { layout: sharding.layout(), value: None };
        Flow { bound_bytes, state: Mutex::new(State { waiting, writer: Some(writer) }) }
    }

    /// Takes an encoded inner chunk of the shard, and writes all chunks that come next in the shard's order.
    pub(crate) fn add(
        &self,
        object: &Object,
        sharding: &Sharding,
        linear: usize,
        encoded: Option<Vec<u8>>,
    ) -> Result<()> {
        let mut state = self.lock();
        state.waiting.insert(linear, encoded);
        let Some(mut writer) = state.writer.take() else { return Ok(()) };
        while let Some(next) = sharding.next_of(&writer.layout) {
            let Some(chunk) = state.waiting.remove(&next) else {
                state.writer = Some(writer);
                return Ok(());
            };
            let offset = writer.layout.add(next, chunk.as_ref().map(Vec::len));
            if let Some(chunk) = chunk {
                drop(state);
                object.flush(chunk.len(), |store, key| {
                    let value = match &writer.value {
                        Some(value) => value,
                        None => writer.value.insert(store.begin(key, self.bound_bytes)?),
                    };
                    value.write_at(offset, &chunk)
                })?;
                state = self.lock();
            }
        }
        drop(state);
        let Some(mut value) = writer.value else { return object.store(None) };
        let (index, at, size_bytes) = sharding.index_of(&writer.layout)?;
        object.flush(index.len(), |_, _| {
            value.write_at(at, &index)?;
            value.shorten(size_bytes)?;
            value.finish()
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
