//! The plan of a write: the objects and chunks that the write touches. For each chunk, it has the part of the value,
//! and whether the chunk's old elements are needed.
//!
//! Like the plan of a read, it does no work and makes no lists: objects and inner chunks come from iterators. The plan
//! does not know the value's elements. If a chunk would only hold the fill value, `run` deletes it, or leaves it out of
//! its shard.

use std::sync::Arc;

use super::batch::ChunkName;
use super::chunk_order::Cell;
use super::chunk_order::ChunkOrder;
use super::geometry::number_in;
use super::read::Spacing;
use super::selection::Selection;
use super::source::{ChunkLayout, Source};
use crate::error::Result;

/// Bytes that the writer of a shard needs for each inner chunk, even for one that is not written. They are for the
/// handle of its new bytes, its part of the new object, and its entries in the old and the new index.
const SLOT_BYTES: u64 = 96;
/// Maximum size of the lists of a shard's inner chunks (thousands of them) that does not count as memory of a write.
const FREE_SLOTS_BYTES: u64 = 1 << 20;
/// Memory that each variable-length element needs while it is written: its offsets in the old and in the new chunk. A
/// plan cannot know the size of the element itself.
const VARIABLE_PLACE_BYTES: u64 = 24;
/// Number of further copies of a chunk that memory holds while the chunk is encoded: its packed and its encoded bytes.
const ENCODING_COPIES: u64 = 2;

/// How many of a chunk's old elements a write must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// The write keeps no old elements, because it replaces every element of the chunk.
    Full,
    /// The write keeps no old elements, because it replaces every element of the chunk that lies inside the array.
    /// Elements beyond the array's edge become the fill value.
    UpToEdge,
    /// The write keeps some old elements, so the chunk is read, changed and written again.
    Part,
}

impl Coverage {
    /// Whether the chunk is written without reading its old bytes.
    pub(crate) fn replaces(self) -> bool {
        self != Coverage::Part
    }
}

/// Finds the chunk of which a write replaces the smallest share, and returns how many of its old elements stay.
fn least_coverage(source: &Source, order: &ChunkOrder) -> Coverage {
    let mut least = Coverage::Full;
    let Some(axes) = order.ranges() else { return Coverage::Part };
    for (dim, (axis, &extent)) in axes.iter().zip(&source.shape).enumerate() {
        let (cells, end) = (source.leaf_cells().along(dim), axis.start.saturating_add(axis.count));
        let begins = axis.count == 0 || cells.at(axis.start).start == axis.start;
        let ends = axis.count == 0 || cells.at(end - 1).end == end;
        if axis.step != 1 || !begins || !(ends || end == extent) {
            return Coverage::Part;
        }
        if !ends {
            least = Coverage::UpToEdge;
        }
    }
    least
}

/// A chunk or a shard of which a write changes elements: a stored object, or an inner chunk.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    /// The chunk's name, for keys and messages.
    pub(crate) name: ChunkName,
    /// The chunk's C-order number in its shard; 0 for a chunk that is an object.
    pub(crate) number: usize,
    /// The chunk's level, counted from objects inwards; 0 for an object.
    pub(crate) level: usize,
    /// How many of the chunk's old elements the write keeps.
    pub(crate) coverage: Coverage,
    /// The layout and the codecs of the object in which the chunk lies, or which it is.
    pub(crate) layout: Arc<ChunkLayout>,
    /// The chunk's coordinates in its grid, and the part of the selection that lies in it.
    cell: Cell,
}

/// The plan of a write to one selection: which objects and chunks it touches, and which old elements it keeps.
pub(crate) struct WritePlan {
    pub(crate) source: Arc<Source>,
    pub(crate) selection: Selection,
    pub(crate) order: ChunkOrder,
}

impl Touched {
    /// The element of the array at which the chunk begins.
    pub(crate) fn origin(&self) -> &[u64] {
        &self.cell.origin
    }

    /// Whether the chunk is a shard. Then its inner chunks are written.
    pub(crate) fn is_shard(&self) -> bool {
        self.layout.levels[self.level].shard.is_some()
    }
}

impl WritePlan {
    /// Plans a write to `selection`.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array.
    pub(crate) fn new(source: Arc<Source>, selection: Selection) -> Result<WritePlan> {
        let order = ChunkOrder::of_last(&selection, &source)?;
        Ok(WritePlan { source, selection, order })
    }

    /// Returns the coordinates, in the array's grid, of each stored object that the write touches.
    pub(crate) fn positions(&self) -> impl Iterator<Item = Vec<u64>> + '_ {
        self.order.walk_all(self.source.cells(0)).map(|cell| cell.at)
    }

    /// The stored objects that the write touches: chunks, or shards.
    ///
    /// # Errors
    /// Errors from the codecs of an object of its shape.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Result<Touched>> + '_ {
        self.order.walk_all(self.source.cells(0)).map(|cell| {
            let name = ChunkName { array: None, key: (self.source.key)(&cell.at).into(), inner: Vec::new() };
            let layout = self.source.layout_at(&cell.origin)?;
            Ok(Touched { name, number: 0, level: 0, coverage: self.coverage(0, &cell, &layout), layout, cell })
        })
    }

    /// The inner chunks that the write touches in a shard.
    pub(crate) fn inner(&self, shard: &Touched) -> impl Iterator<Item = Touched> + '_ {
        let (level, name, layout) = (shard.level + 1, shard.name.clone(), Arc::clone(&shard.layout));
        let grid = layout.levels[shard.level].shard.as_ref().map_or(Vec::new(), |shard| shard.grid.clone());
        let Cell { origin, inside, .. } = &shard.cell;
        self.order.walk(origin, self.source.cells(level), inside).map(move |cell| {
            let inner = name.inner.iter().chain(&cell.at).copied().collect();
            let name = ChunkName { key: Arc::clone(&name.key), inner, array: None };
            let (number, coverage) = (number_in(&grid, &cell.at), self.coverage(level, &cell, &layout));
            Touched { name, number, level, coverage, layout: Arc::clone(&layout), cell }
        })
    }

    fn coverage(&self, level: usize, cell: &Cell, layout: &ChunkLayout) -> Coverage {
        let shape = &layout.levels[level].chunk_shape;
        let end: Vec<u64> =
            cell.origin.iter().zip(shape).map(|(origin, extent)| origin.saturating_add(*extent)).collect();
        let extents = end.iter().zip(&self.source.shape);
        let cut: Vec<u64> = extents.map(|(&end, &extent)| end.min(extent)).collect();
        match self.order.covers(&cell.inside, &cell.origin, &cut) {
            false => Coverage::Part,
            true if cut == end => Coverage::Full,
            true => Coverage::UpToEdge,
        }
    }

    /// How many old elements stay in the chunk of which the write replaces the smallest share.
    pub(crate) fn least_coverage(&self) -> Coverage {
        least_coverage(&self.source, &self.order)
    }

    /// The box of the written value that goes to a chunk: starts and extents along the dimensions that the selection
    /// keeps.
    pub(crate) fn region(&self, chunk: &Touched) -> (Vec<usize>, Vec<usize>) {
        self.order.region(&chunk.cell.inside).unzip()
    }

    /// Where the first written element lies in the chunk's packed bytes, counted in elements.
    pub(crate) fn first_elem(&self, chunk: &Touched) -> usize {
        self.order.first_elem(&chunk.layout.strides, &chunk.cell.origin, &chunk.cell.inside)
    }

    /// Where written elements lie, both in packed chunks and in the caller's value, which has the shape `value`.
    ///
    /// # Errors
    /// `InvalidArgument` when the value has another shape than the selection.
    pub(crate) fn spacing(&self, value: &[usize]) -> Result<Spacing> {
        let lists = self.order.lists(&self.source, value)?;
        Ok(Spacing::new(Some((self.order.clone(), false)), self.source.layout(), lists))
    }

    /// Shape of the largest part of a chunk that the write replaces, without dropped dimensions. Empty for lists and
    /// points.
    pub(crate) fn largest_part(&self) -> Vec<u64> {
        let axes = self.selection.axes().unwrap_or_default().iter().zip(&self.source.layout().leaf().chunk_shape);
        let kept = axes.filter(|(axis, _)| !axis.dropped);
        kept.map(|(axis, &chunk)| chunk.div_ceil(axis.step).min(axis.count)).collect()
    }

    /// Host memory that writing one object needs while `threads` threads encode chunks: `old_bytes`, and its packed and
    /// encoded chunks.
    pub(crate) fn bytes_in_flight(&self, object: &Touched, old_bytes: u64, threads: usize) -> u64 {
        let (packed, leaf) = (&object.layout.packed, &object.layout.leaf().chunk_shape);
        let chunk_bytes = match packed.element_bytes {
            0 => leaf.iter().fold(VARIABLE_PLACE_BYTES, |bytes, &extent| bytes.saturating_mul(extent)),
            _ => packed.size_bytes as u64,
        };
        let chunks = self.cells_touched(object, self.source.levels() - 1);
        let encoding = chunk_bytes.saturating_mul(chunks.min(threads as u64)).saturating_mul(ENCODING_COPIES);
        let slots_bytes = self.slots_bytes(object).saturating_sub(FREE_SLOTS_BYTES);
        let chunks_bytes = chunk_bytes.saturating_mul(chunks).saturating_add(encoding);
        chunks_bytes.saturating_add(old_bytes).saturating_add(slots_bytes)
    }

    /// Size of the lists in which the writers of an object's shards keep their inner chunks.
    fn slots_bytes(&self, object: &Touched) -> u64 {
        let slots = object.layout.levels.iter().enumerate().filter_map(|(number, level)| {
            let shards = self.cells_touched(object, number);
            Some(level.shard.as_ref()?.grid.iter().fold(shards, |count, &extent| count.saturating_mul(extent)))
        });
        slots.fold(0, u64::saturating_add).saturating_mul(SLOT_BYTES)
    }

    /// Counts the chunks of one level in an object that the write touches.
    fn cells_touched(&self, object: &Touched, level: usize) -> u64 {
        self.order.cells(&object.cell.inside, self.source.cells(level))
    }
}
