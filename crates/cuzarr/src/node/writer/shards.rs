//! Shards of which some rows have come: their inner chunks are encoded at once, and wait in host memory until the shard
//! is whole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuzarr_device::{Device, NdBuffer};

use super::blocks::rows_between;
use super::rows::Rows;
use super::stored::{Part, Sharding, Stored, StoredRows};
use crate::error::Result;
use crate::meta::{ArrayMetadata, CodecsMetadata, NewArray};
use crate::node::array::Array;
use crate::run::Engine;
use crate::store::{MemoryStore, StoreExt};

/// The shards of an array that are not whole.
pub(super) struct Shards {
    number: usize,
    part: Part,
    height: u64,
    /// Rows of a block, which are whole inner chunks.
    block: u64,
    /// Extents of an inner chunk.
    chunk: Vec<u64>,
    bounds: Range<u64>,
    /// An array of the inner chunks, with room for any row.
    inner: Array,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Shards of which some rows have come, by their number along the writer's dimension.
    begun: BTreeMap<u64, Begun>,
    /// Numbers of the shards that were whole.
    done: Rows,
}

struct Begun {
    /// The array of the inner chunks, in memory of this shard.
    inner: Array,
    rows: Rows,
    /// Rows that `inner` has: those that have come, and old ones beside them.
    known: Rows,
    /// Whether rows came after the shard was stored last.
    has_news: bool,
}

impl Shards {
    pub(super) fn new(number: usize, of: &Stored, sharding: Sharding, end: u64) -> Result<Shards> {
        let Sharding { height, chunk, codecs } = sharding;
        let (metadata, part) = (of.array.metadata(), of.part.clone());
        let axis = part.axis;
        let mut shape = metadata.shape().to_vec();
        let elem_bytes = metadata.data_type().size_bytes().unwrap_or(1) as u64;
        let others = shape.iter().enumerate().filter(|(at, _)| *at != axis);
        let row_bytes = others.fold(elem_bytes, |bytes, (_, &extent)| bytes.saturating_mul(extent.max(1)));
        shape[axis] = i64::MAX as u64 / row_bytes;
        let codecs = CodecsMetadata::V3(codecs);
        let new = NewArray {
            fill_value: metadata.fill_value().clone(),
            ..NewArray::plain(&shape, metadata.data_type().clone(), &chunk, codecs)
        };
        let inner = ArrayMetadata::new(new)?;
        let inner = Array::from_metadata(Arc::new(MemoryStore::new()), "", inner, of.array.options().clone())?;
        let bounds = part.start[axis]..end;
        Ok(Shards { number, part, height, block: of.height, chunk, bounds, inner, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the array of inner chunks to which rows of one block go. Old rows of the block are put there first. `None`
    /// for rows of a shard that is stored: they go to `array` itself.
    pub(super) fn begin(&self, array: &Array, span: &Range<u64>) -> Result<Option<Array>> {
        let shard = span.start / self.height;
        let inner = {
            let mut state = self.state();
            let is_new = !state.begun.contains_key(&shard);
            if is_new && (state.done.contains(&(shard..shard + 1)) || span.start < self.bounds.start) {
                return Ok(None);
            }
            let begun = state.begun.entry(shard).or_insert_with(|| Begun {
                inner: self.inner.with_store(Arc::new(MemoryStore::new())),
                rows: Rows::default(),
                known: Rows::default(),
                has_news: false,
            });
            begun.known.insert(span.clone());
            begun.inner.clone()
        };
        let block = span.start / self.block * self.block;
        let block = block..(block + self.block).min(array.shape()[self.part.axis]).max(span.end);
        self.seed(array, &inner, &block)?;
        Ok(Some(inner))
    }

    /// Puts the old rows of a block among the inner chunks of its shard, unless newer ones are there.
    fn seed(&self, array: &Array, inner: &Array, rows: &Range<u64>) -> Result<()> {
        let missing = {
            let mut state = self.state();
            let Some(begun) = state.begun.get_mut(&(rows.start / self.height)) else { return Ok(()) };
            let missing = begun.known.missing(rows);
            begun.known.insert(rows.clone());
            missing
        };
        for rows in missing {
            let selection = self.part.selection(&rows)?;
            inner.write_buffer(&selection, &array.read_buffer(&selection)?)?;
        }
        Ok(())
    }

    /// Notes that rows are encoded. Returns the number of their shard if it is whole.
    pub(super) fn add(&self, rows: &Rows) -> Option<u64> {
        let shard = rows.span()?.start / self.height;
        let mut state = self.state();
        let begun = state.begun.get_mut(&shard)?;
        rows.ranges().for_each(|rows| begun.rows.insert(rows));
        begun.has_news = true;
        begun.rows.contains(&rows_between(shard, self.height, &self.bounds)).then_some(shard)
    }

    /// Stores a shard that is whole, and frees its inner chunks. Adds its rows to `stored`.
    pub(super) fn finish(&self, array: &Array, shard: u64, stored: &mut Vec<StoredRows>) -> Result<()> {
        loop {
            self.state().begun.entry(shard).and_modify(|begun| begun.has_news = false);
            let outcome = self.store(array, shard);
            let mut state = self.state();
            let Some(begun) = state.begun.get_mut(&shard) else { return Ok(()) };
            match outcome {
                Err(error) => {
                    begun.has_news = true;
                    return Err(error);
                }
                // Rows came again meanwhile.
                Ok(_) if begun.has_news => {}
                Ok(rows) => {
                    state.begun.remove(&shard);
                    state.done.insert(shard..shard + 1);
                    stored.extend(rows);
                    return Ok(());
                }
            }
        }
    }

    /// Stores all shards of which rows have come since they were stored last. They stay in memory until they are whole.
    pub(super) fn settle(&self, array: &Array, stored: &mut Vec<StoredRows>) -> Result<()> {
        let state = self.state();
        let waiting: Vec<u64> = state.begun.iter().filter(|(_, of)| of.has_news).map(|(shard, _)| *shard).collect();
        drop(state);
        for shard in waiting {
            let is_whole = |begun: &Begun| begun.rows.contains(&rows_between(shard, self.height, &self.bounds));
            if self.state().begun.get(&shard).is_some_and(is_whole) {
                self.finish(array, shard, stored)?;
                continue;
            }
            stored.extend(self.store(array, shard)?);
            self.state().begun.entry(shard).and_modify(|begun| begun.has_news = false);
        }
        Ok(())
    }

    /// Reads rows of one block, from where they were written last.
    pub(super) fn read(&self, array: &Array, span: &Range<u64>) -> Result<NdBuffer> {
        let begun = self.state().begun.get(&(span.start / self.height)).map(|begun| begun.inner.clone());
        begun.as_ref().map_or(Ok(()), |inner| self.seed(array, inner, span))?;
        begun.as_ref().unwrap_or(array).read_buffer(&self.part.selection(span)?)
    }

    /// Writes a shard from the inner chunks that have come, and the old ones.
    fn store(&self, array: &Array, shard: u64) -> Result<Option<StoredRows>> {
        let begun = self.state().begun.get(&shard).map(|begun| (begun.inner.clone(), begun.rows.clone()));
        let Some((inner, rows)) = begun else { return Ok(None) };
        let Some(span) = rows.span() else { return Ok(None) };
        let selection = self.part.selection(&span)?;
        let frames = |origin: &[u64]| -> Result<Option<Option<Vec<u8>>>> {
            let (row, height) = (origin[self.part.axis], self.chunk[self.part.axis]);
            if rows.within(&(row..row + height)).is_empty() {
                return Ok(None);
            }
            let at: Vec<u64> = origin.iter().zip(&self.chunk).map(|(origin, extent)| origin / extent).collect();
            inner.store().get(&inner.metadata().chunk_key_encoding().key(&at)).map(Some)
        };
        let _turn = array.turn(&selection)?;
        let access = array.access(Device::Cpu)?;
        Engine::get().write_encoded(&access, array.store(), &selection, &frames, array.options())?;
        Ok(Some(StoredRows { array: self.number, rows }))
    }
}
