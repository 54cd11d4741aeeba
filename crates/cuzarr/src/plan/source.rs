//! The source of a plan: the array's grid, its levels of sharding, and the layout of a packed chunk.

use std::fmt;
use std::sync::Arc;

use super::geometry::strides;
use crate::store::ByteRange;

/// The chunks of one level: the array's chunks, or the inner chunks of a shard.
#[derive(Clone, Debug)]
pub struct Level {
    /// Elements of a chunk, per dimension.
    pub chunk_shape: Vec<u64>,
    /// Most bytes of an encoded chunk; `None` for elements of variable length.
    pub bound_bytes: Option<u64>,
    /// The layout of the shard, when the chunk is a shard. Its inner chunks are the next level.
    pub shard: Option<ShardLayout>,
}

/// The place of a shard's index, and the grid of its inner chunks.
#[derive(Clone, Debug)]
pub struct ShardLayout {
    /// Inner chunks per dimension.
    pub grid: Vec<u64>,
    /// The bytes of the index in the shard: a `Suffix`, or a `Span` from 0.
    pub index_range: ByteRange,
    /// Bytes of the encoded index.
    pub index_size_bytes: u64,
}

/// The layout of the innermost chunk's elements after its host codecs are undone.
#[derive(Clone, Debug)]
pub struct PackedLayout {
    /// Bytes of a packed chunk; 0 for variable-length elements.
    pub size_bytes: usize,
    /// Bytes of a packed element; 0 for variable-length elements.
    pub element_bytes: usize,
    /// Packed dimension `i` is array dimension `axes[i]`.
    pub axes: Vec<usize>,
    /// Whether stored bytes are packed bytes, so that no host codec has to run.
    pub stored_is_packed: bool,
    /// Whether a part of the packed bytes can be used alone, because elements lie one after the other.
    pub divisible: bool,
}

impl PackedLayout {
    /// The strides of a packed chunk in elements, per dimension of the array.
    pub(crate) fn strides(&self, chunk_shape: &[u64]) -> Vec<u64> {
        strides(self.axes.iter().copied(), chunk_shape)
    }
}

/// A function that makes the key of a chunk from its place in the grid.
pub type KeyOf = Arc<dyn Fn(&[u64]) -> String + Send + Sync>;

/// The description of an array for plans.
#[derive(Clone)]
pub struct Source {
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// The array's chunks, then the inner chunks of shards. Chunks of the last level are decoded.
    pub levels: Vec<Level>,
    /// The layout of a packed chunk of the last level.
    pub packed: PackedLayout,
    /// The keys of the first level's chunks.
    pub key: KeyOf,
}

impl Source {
    /// The level whose chunks are decoded.
    pub fn leaf(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Source");
        debug.field("shape", &self.shape).field("levels", &self.levels).field("packed", &self.packed);
        debug.finish_non_exhaustive()
    }
}
