//! Shards that one request reads whole. Where requests take long, reading the index first would double the time.

use std::sync::Arc;

use super::chunk_order::ChunkOrder;
use super::options::PlanOptions;
use super::source::{ChunkLayout, Source};

/// Most shards that are read at once: hundreds of requests, like for indexes.
const MOST_SHARDS: u64 = 256;

/// Most bytes of a shard's elements for reading it whole. More bytes take one connection longer than another request.
const SMALL_SHARD_BYTES: u64 = 4 << 20;

/// Bytes that an incompressible chunk has beside its elements and a sixteenth of them.
const HEADER_BYTES: u64 = 64;

/// Objects that may be read whole before anything is known about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeShards {
    /// The objects' keys.
    pub keys: Vec<Arc<str>>,
    /// Most bytes of one object.
    pub bound_bytes: u64,
}

/// The shards that hold the selection, when they are small, all fit in memory at once, and at least half of their inner chunks
/// are wanted. Otherwise reading parts is faster: many at a time, while others are decoded.
pub(super) fn whole_shards(source: &Source, order: &ChunkOrder, options: &PlanOptions) -> Option<WholeShards> {
    let [_, inner, ..] = &source.layout().levels[..] else { return None };
    let Sizes { elements_bytes, bound_bytes } = sizes(source.layout())?;
    let (objects, count) = (source.cells(0), order.touched(source.cells(0)));
    let is_small = elements_bytes > 0 && elements_bytes <= options.coalesce_max_bytes.min(SMALL_SHARD_BYTES);
    if !is_small || count > MOST_SHARDS || count.checked_mul(elements_bytes)? > options.whole_shards_bytes {
        return None;
    }
    let (mut keys, mut inner_chunks) = (Vec::new(), 0u64);
    let ndim = source.shape.len();
    for shard in order.walk_all(objects) {
        // A shard at the array's end has no inner chunks beyond it.
        let extents = (0..ndim).map(|dim| {
            let end = objects.along(dim).at(shard.origin[dim]).end.min(source.shape[dim]);
            (end - shard.origin[dim]).div_ceil(inner.chunk_shape[dim].max(1))
        });
        inner_chunks = inner_chunks.saturating_add(extents.fold(1, u64::saturating_mul));
        keys.push((source.key)(&shard.at).into());
    }
    let wanted = order.touched(source.cells(1));
    (!keys.is_empty() && wanted >= inner_chunks.div_ceil(2)).then_some(WholeShards { keys, bound_bytes })
}

struct Sizes {
    /// The bytes of a shard's elements.
    elements_bytes: u64,
    /// Most bytes of a sensibly written object. Codecs allow several times as much.
    bound_bytes: u64,
}

/// Sizes of a shard, or of the largest one; `None` for elements of variable length.
fn sizes(layout: &ChunkLayout) -> Option<Sizes> {
    let (mut chunks, mut indexes_bytes) = (1u64, 0u64);
    for shard in layout.levels.iter().filter_map(|level| level.shard.as_ref()) {
        indexes_bytes = chunks.checked_mul(shard.index_size_bytes)?.checked_add(indexes_bytes)?;
        chunks = shard.grid.iter().try_fold(chunks, |chunks, &extent| chunks.checked_mul(extent))?;
    }
    let elements_bytes = chunks.checked_mul(layout.packed.size_bytes as u64)?;
    let headers_bytes = chunks.checked_mul(HEADER_BYTES)?.checked_add(elements_bytes / 16)?;
    let bound_bytes = elements_bytes.checked_add(headers_bytes)?.checked_add(indexes_bytes)?;
    Some(Sizes { elements_bytes, bound_bytes })
}
