//! Shards that are read whole, each with one request. If requests take long, reading the index first would double the
//! time.

use std::sync::Arc;

use super::chunk_order::ChunkOrder;
use super::options::PlanOptions;
use super::source::{ChunkLayout, Source};

/// Maximum number of shards that are read whole at once; for a read of more shards, their indexes are read first.
const MOST_SHARDS: u64 = 256;

/// Maximum bytes of elements in a shard that is read whole; in a larger shard, reading on takes longer than another
/// request.
const SMALL_SHARD_BYTES: u64 = 4 << 20;

/// Maximum bytes that encoding adds to an incompressible chunk, besides a sixteenth of the chunk's size.
const HEADER_BYTES: u64 = 64;

/// Shards that one call may read whole, so that it need not read their indexes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeShards {
    /// The keys of the shards in the store.
    pub keys: Vec<Arc<str>>,
    /// Maximum size of a stored shard, in bytes.
    pub bound_bytes: u64,
}

/// The shards that hold the selection, if reading them whole is faster than reading their indexes first. It is faster
/// if they are small, all fit in memory at once, and at least half of their inner chunks are needed. Otherwise many
/// parts are read while others are decoded.
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
        // A shard at the array's edge has no inner chunks beyond the edge.
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
    /// Size in bytes of all elements of a shard together.
    elements_bytes: u64,
    /// Maximum size of a stored shard that a sensible writer makes. Codecs would allow several times as much.
    bound_bytes: u64,
}

/// Sizes of the largest shard with this layout; `None` for elements of variable length.
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
