//! The arrays of a writer, as the side that stores rows knows them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::rows::Rows;
use crate::error::Result;
use crate::meta::{CodecsMetadata, Extension};
use crate::node::array::Array;
use crate::plan::Selection;

/// Arrays by their numbers among those of a writer.
pub(super) type Arrays = BTreeMap<usize, Array>;

/// The part of an array that a writer fills: the first element and the extent along each dimension. Along `axis`, rows
/// are counted from the beginning of the array.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) axis: usize,
    pub(super) start: Vec<u64>,
    pub(super) extent: Vec<u64>,
}

impl Part {
    /// The elements of rows.
    pub(super) fn selection(&self, rows: &Range<u64>) -> Result<Selection> {
        let (mut start, mut extent) = (self.start.clone(), self.extent.clone());
        (start[self.axis], extent[self.axis]) = (rows.start, rows.end - rows.start);
        Selection::region(&start, &extent)
    }
}

/// The rows and the inner chunks of a sharded array.
#[derive(Clone, Debug)]
pub(super) struct Sharding {
    /// Rows of a shard.
    pub(super) height: u64,
    /// Extents of an inner chunk.
    pub(super) chunk: Vec<u64>,
    pub(super) codecs: Vec<Extension>,
}

impl Sharding {
    /// Returns how an array is sharded, if its shards are written from inner chunks that are encoded row by row.
    pub(super) fn of(array: &Array, axis: usize) -> Result<Option<Sharding>> {
        let CodecsMetadata::V3(codecs) = array.metadata().codecs() else { return Ok(None) };
        let (Some(chunk), [sharding]) = (Extension::inner_chunk_shape(codecs), &codecs[..]) else { return Ok(None) };
        let height = array.metadata().chunk_grid().chunk_shape()[axis];
        // Without rows of inner chunks there is nothing to encode early. Transactional stores show a shard's rows first.
        if chunk[axis] >= height || array.store().capabilities().transactional {
            return Ok(None);
        }
        let Some(Value::Array(inner)) = sharding.configuration.get("codecs") else { return Ok(None) };
        let codec = |(at, codec)| Extension::from_json(codec, &format!("codecs[{at}]"));
        let codecs = inner.iter().enumerate().map(codec).collect::<Result<Vec<_>>>()?;
        Ok(Some(Sharding { height, chunk, codecs }))
    }
}

/// Rows of an array that were stored.
pub(super) struct StoredRows {
    pub(super) array: usize,
    pub(super) rows: Rows,
}

/// An array of a writer, as the storing thread knows it.
pub(super) struct Stored {
    pub(super) array: Array,
    pub(super) part: Part,
    /// Rows of one block.
    pub(super) height: u64,
    /// How the array is sharded, if its shards are gathered from inner chunks.
    pub(super) sharding: Option<Sharding>,
    /// The number of the array to which the program adds the rows: this one, unless it is a coarser level.
    pub(super) image: usize,
    /// The number of the next finer level, and the number of its rows that become one, if this is a coarser level.
    pub(super) finer: Option<(usize, u64)>,
    /// The shape that the stored document must have, because nobody else changes it.
    pub(super) shape: Vec<u64>,
    /// The first row behind all rows that are stored, or on their way.
    pub(super) end: u64,
    /// The rows that were stored, beginning with those that were there before.
    pub(super) rows: Rows,
}

impl Stored {
    pub(super) fn new(array: Array, part: Part, height: u64, sharding: Option<Sharding>) -> Stored {
        let shape = array.shape().to_vec();
        let rows = Rows::from(0..part.start[part.axis]);
        Stored { array, end: shape[part.axis], part, height, sharding, image: 0, finer: None, shape, rows }
    }

    /// The first row that is not in the store.
    pub(super) fn end_of_prefix(&self) -> u64 {
        self.rows.first_missing(0)
    }

    /// The first row that is not in the array as it is stored.
    pub(super) fn position(&self) -> u64 {
        self.end_of_prefix().min(self.shape[self.part.axis])
    }

    /// The first row that the writer does not take.
    pub(super) fn end_of_rows(&self, is_final: bool) -> u64 {
        let Part { axis, start, extent } = &self.part;
        if is_final { start[*axis] + extent[*axis] } else { i64::MAX as u64 }
    }
}
