//! What a plan knows of an array: its grid, the levels of sharding below it, and how a packed chunk lies.

use std::fmt;
use std::sync::Arc;

use super::geometry::strides;
use crate::store::ByteRange;

/// How the chunks of one level lie in the level above.
#[derive(Clone, Debug)]
pub struct Level {
    /// Elements of a chunk, per dimension.
    pub chunk_shape: Vec<u64>,
    /// Most bytes that an encoded chunk may have; unknown for variable-length elements.
    pub bound_bytes: Option<u64>,
    /// Set when the chunk is a shard whose inner chunks are the next level.
    pub shard: Option<ShardLayout>,
}

/// Where a shard keeps its index, and how many inner chunks it has.
#[derive(Clone, Debug)]
pub struct ShardLayout {
    /// Inner chunks per dimension.
    pub grid: Vec<u64>,
    /// Where the index lies in the shard: a `Suffix`, or a `Span` from 0.
    pub index_range: ByteRange,
    /// Bytes of the encoded index.
    pub index_size_bytes: u64,
}

/// How the elements of the innermost chunk lie once its host codecs are undone.
#[derive(Clone, Debug)]
pub struct PackedLayout {
    /// Bytes of a packed chunk; 0 for variable-length elements.
    pub size_bytes: usize,
    /// Bytes of a packed element; 0 for variable-length elements.
    pub element_bytes: usize,
    /// Packed dimension `i` is array dimension `axes[i]`.
    pub axes: Vec<usize>,
    /// Whether stored bytes are packed bytes: no host codec has to run.
    pub stored_is_packed: bool,
    /// Whether a part of the packed bytes is of use by itself (elements lie one after the other).
    pub divisible: bool,
}

impl PackedLayout {
    /// Elements between neighbours in a packed chunk, per dimension of the array.
    pub(crate) fn strides(&self, chunk_shape: &[u64]) -> Vec<u64> {
        strides(self.axes.iter().copied(), chunk_shape)
    }
}

/// Makes the key of a chunk from its place in the grid.
pub type KeyOf = Arc<dyn Fn(&[u64]) -> String + Send + Sync>;

/// What a plan knows of an array.
#[derive(Clone)]
pub struct Source {
    /// Elements per dimension.
    pub shape: Vec<u64>,
    /// The array's chunks, then the inner chunks of shards; the last level is what is decoded.
    pub levels: Vec<Level>,
    /// How a chunk of the last level lies when packed.
    pub packed: PackedLayout,
    /// Keys of the first level's chunks.
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
