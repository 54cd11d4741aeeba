//! The description of an array for plans: its grid, its levels of sharding, and the layout of a packed chunk.

use std::fmt;
use std::sync::Arc;

use super::cells::Cells;
use super::geometry::strides;
use crate::codec::{Chain, Program};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::RectilinearGrid;
use crate::store::ByteRange;

/// One level of chunks: the array's stored chunks, or the inner chunks of its shards.
#[derive(Clone, Debug)]
pub struct Level {
    /// The shape of a chunk of this level.
    pub chunk_shape: Vec<u64>,
    /// Maximum size of an encoded chunk; `None` for elements of variable length.
    pub bound_bytes: Option<u64>,
    /// How the chunks are divided if they are shards; `None` if they are decoded directly. The shard's inner chunks are
    /// the next level.
    pub shard: Option<ShardLayout>,
}

/// Where the index of a shard lies, and the grid of its inner chunks.
#[derive(Clone, Debug)]
pub struct ShardLayout {
    /// Number of inner chunks of the shard along each dimension.
    pub grid: Vec<u64>,
    /// Where the index lies in the shard: a `Suffix`, or a `Span` from 0.
    pub index_range: ByteRange,
    /// Size of the index in bytes, in its encoded form.
    pub index_size_bytes: u64,
}

/// The layout of the packed bytes of an innermost chunk: its bytes after the host has undone the codecs.
#[derive(Clone, Debug)]
pub struct PackedLayout {
    /// Size of a packed chunk in bytes; 0 for variable-length elements.
    pub size_bytes: usize,
    /// Size of a packed element in bytes; 0 for variable-length elements.
    pub element_bytes: usize,
    /// The array's dimension that each dimension of a packed chunk is: packed dimension `i` is array dimension
    /// `axes[i]`.
    pub axes: Vec<usize>,
    /// Whether a chunk's stored bytes are its packed bytes, so that no codec has to run before elements are copied.
    pub stored_is_packed: bool,
    /// Whether a range of a chunk's packed bytes holds whole elements that can be used without the rest of the chunk.
    pub divisible: bool,
}

/// A function that makes the key of a stored chunk from its coordinates in the grid.
pub type KeyOf = Arc<dyn Fn(&[u64]) -> String + Send + Sync>;

/// A function that makes the layout of stored objects (chunks or shards) of a given shape.
pub(crate) type LayoutOf = Arc<dyn Fn(&[u64]) -> Result<Arc<ChunkLayout>> + Send + Sync>;

/// How stored objects of one shape are divided into chunks, with the codecs that are bound to this shape.
#[derive(Debug)]
pub struct ChunkLayout {
    /// The levels of chunks, from stored objects down to the innermost chunks. Chunks of the last level are decoded.
    pub(crate) levels: Vec<Level>,
    /// The layout of the packed bytes of an innermost chunk.
    pub(crate) packed: PackedLayout,
    /// The strides of a packed chunk in elements, per dimension of the array.
    pub(crate) strides: Vec<u64>,
    /// The codec chain that encodes a whole object.
    pub(crate) chain: Arc<Chain>,
    /// The codecs of an innermost chunk, bound to a device; `None` for elements of variable length.
    pub(crate) program: Option<Arc<Program>>,
}

impl ChunkLayout {
    /// Makes the layout of stored objects (chunks or shards) that the codecs `chain` encode.
    pub(crate) fn new(
        levels: Vec<Level>,
        packed: PackedLayout,
        chain: Arc<Chain>,
        program: Option<Arc<Program>>,
    ) -> ChunkLayout {
        let leaf = &levels[levels.len() - 1].chunk_shape;
        let strides = strides(packed.axes.iter().copied(), leaf);
        ChunkLayout { levels, packed, strides, chain, program }
    }

    /// Returns the innermost level: the chunks that are decoded, and are not shards.
    pub(crate) fn leaf(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }

    /// The codecs of the innermost chunks, bound to a device.
    ///
    /// # Errors
    /// `Unsupported` for elements of variable length.
    pub(crate) fn program(&self) -> Result<&Arc<Program>> {
        let message = "elements have variable length: use read_variable and write_variable";
        self.program.as_ref().ok_or_else(|| Error::new(ErrorKind::Unsupported, message))
    }

    /// Number of elements of an innermost chunk.
    pub(crate) fn chunk_elements(&self) -> usize {
        self.chain.leaf().spec().elements().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
    }
}

/// The description of an array for plans: its shape, and the keys and layouts of its objects.
#[derive(Clone)]
pub struct Source {
    /// The shape of the array: its length along each dimension.
    pub shape: Vec<u64>,
    /// Makes the key of a stored object (chunk or shard) from its coordinates in the grid.
    pub key: KeyOf,
    /// How each stored object (chunk or shard) is divided and encoded, if all objects have one shape. In an uneven
    /// grid, the layout of the largest object.
    layout: Arc<ChunkLayout>,
    /// For stored objects (chunks or shards) that differ in shape: the grid of objects, and a function that makes their
    /// layouts.
    uneven: Option<(Arc<RectilinearGrid>, LayoutOf)>,
}

impl Source {
    /// Describes an array whose stored objects (chunks or shards) all have one shape.
    pub(crate) fn new(shape: Vec<u64>, key: KeyOf, layout: Arc<ChunkLayout>) -> Source {
        Source { shape, key, layout, uneven: None }
    }

    /// Describes the same chunks as part of an array of another shape, under other keys.
    #[must_use]
    pub(crate) fn with_chunks(&self, shape: Vec<u64>, key: KeyOf) -> Source {
        Source { shape, key, ..self.clone() }
    }

    /// Returns the description of this array with the uneven grid `grid`, whose objects differ in shape. The source's
    /// own layout stays that of the largest object.
    #[must_use]
    pub(crate) fn with_grid(self, grid: &RectilinearGrid, layout_of: LayoutOf) -> Source {
        let is_even = (0..grid.ndim()).all(|dim| grid.even_edge(dim).is_some());
        Source { uneven: (!is_even).then(|| (Arc::new(grid.clone()), layout_of)), ..self }
    }

    /// How each stored object (chunk or shard) is divided and encoded, if all objects have one shape. In an uneven
    /// grid, the layout of the largest object.
    pub(crate) fn layout(&self) -> &Arc<ChunkLayout> {
        &self.layout
    }

    /// Returns how the stored object (chunk or shard) that begins at the array element `origin` is divided and encoded.
    ///
    /// # Errors
    /// Errors from the codecs of an object of its shape.
    pub(crate) fn layout_at(&self, origin: &[u64]) -> Result<Arc<ChunkLayout>> {
        let Some((grid, layout_of)) = &self.uneven else { return Ok(Arc::clone(&self.layout)) };
        let extent = |(dim, &start): (usize, &u64)| {
            let (_, range) = grid.chunk_along(dim, start);
            range.end - range.start
        };
        let shape: Vec<u64> = origin.iter().enumerate().map(extent).collect();
        if shape == self.layout.levels[0].chunk_shape { Ok(Arc::clone(&self.layout)) } else { layout_of(&shape) }
    }

    /// The grid of the chunks of one level: level 0 has the stored objects, higher levels have the inner chunks of
    /// shards.
    pub(crate) fn cells(&self, level: usize) -> Cells<'_> {
        match &self.uneven {
            Some((grid, _)) if level == 0 => Cells::Uneven(grid),
            // Shards consist of whole inner chunks, so inner chunks have one grid across all shards.
            _ => Cells::Even(&self.layout.levels[level].chunk_shape),
        }
    }

    /// The number of levels: 1 without sharding, one more for each level of shards.
    pub(crate) fn levels(&self) -> usize {
        self.layout.levels.len()
    }

    /// The grid of the innermost chunks, which are decoded.
    pub(crate) fn leaf_cells(&self) -> Cells<'_> {
        self.cells(self.levels() - 1)
    }

    /// Whether the stored objects (chunks or shards) of the array differ in shape.
    pub(crate) fn is_uneven(&self) -> bool {
        self.uneven.is_some()
    }

    /// Whether the innermost chunks differ in shape.
    pub(crate) fn has_uneven_leaf(&self) -> bool {
        self.is_uneven() && self.levels() == 1
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Source");
        debug.field("shape", &self.shape).field("layout", &self.layout).field("is_uneven", &self.uneven.is_some());
        debug.finish_non_exhaustive()
    }
}
