//! Sorts selected points in the order of the array's chunks.

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::{Grouped, List, Within, grouped};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::cells::{Cells, Splitter};
use crate::plan::selection::Selection;
use crate::plan::source::Source;

/// If the array has more chunks per selected point than this, only the chunks with points are numbered.
const CELLS_A_POINT: u128 = 4;

/// The selected points of an array, grouped by chunk.
#[derive(Debug)]
pub(crate) struct Points {
    /// For each dimension of the array, the indices of all points in the caller's order.
    indices: Vec<Arc<[u64]>>,
    within: Within,
    /// For each point, the number of its element in the packed chunk and its position in the caller's list.
    list: Arc<List>,
    /// For each chunk, the number of its first point; and at the end, the number of all points.
    starts: Vec<usize>,
    /// For each chunk, the position of its first point in the caller's list. It is also the place in `indices`.
    firsts: Vec<usize>,
    /// The extents of a chunk (the largest one, if chunks differ), and the strides of its packed bytes.
    leaf: Vec<u64>,
    strides: Vec<u64>,
    /// Whether the chunks of the array differ in shape.
    is_uneven: bool,
}

impl Points {
    /// Groups selected points by the chunk in which each lies.
    ///
    /// # Errors
    /// `SelectionInvalid` when a point lies outside; `Unsupported` when 128 bits cannot count the chunks.
    pub(super) fn new(indices: &[Arc<[u64]>], source: &Source, within: Within) -> Result<Points> {
        if indices.len() != source.shape.len() {
            Selection::points(indices.to_vec())?.check(&source.shape)?;
        }
        let (layout, count) = (source.layout(), indices.first().map_or(0, |one| one.len()));
        let (leaf, strides) = (layout.leaf().chunk_shape.clone(), layout.strides.clone());
        let elem_end = leaf.iter().fold(1u64, |product, &extent| product.saturating_mul(extent));
        let ways = Ways::new(source)?;
        let outside = || match Selection::points(indices.to_vec()).and_then(|points| points.check(&source.shape)) {
            Err(error) => error,
            Ok(()) => Error::new(ErrorKind::SelectionInvalid, "a point lies outside of the array"),
        };
        let Grouped { list, starts } = match ways.chunks <= (count as u128).saturating_mul(CELLS_A_POINT).min(1 << 32) {
            true => {
                let numbering = |range: Range<usize>, groups: &mut [u32], elems: &mut [u64]| {
                    ways.number(indices, range, groups, elems).ok_or_else(outside)
                };
                grouped(count, ways.chunks as usize, elem_end, within, &numbering)?
            }
            false => {
                let (mut numbers, mut all) = (vec![0u128; count], vec![0; count]);
                ways.number(indices, 0..count, &mut numbers, &mut all).ok_or_else(outside)?;
                let mut touched = numbers.clone();
                touched.sort_unstable();
                touched.dedup();
                if touched.len() > 1 << 32 {
                    let message = format!("points in {} chunks, expected at most {}", touched.len(), 1u64 << 32);
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                let numbering = |range: Range<usize>, groups: &mut [u32], elems: &mut [u64]| {
                    for (group, number) in groups.iter_mut().zip(&numbers[range.clone()]) {
                        *group = touched.partition_point(|one| one < number) as u32;
                    }
                    elems.copy_from_slice(&all[range]);
                    Ok::<_, Error>(())
                };
                grouped(count, touched.len(), elem_end, within, &numbering)?
            }
        };
        let firsts = starts[..starts.len() - 1].iter().map(|&start| list.all().get(start).1).collect();
        let (indices, list, is_uneven) = (indices.to_vec(), Arc::new(list), source.has_uneven_leaf());
        Ok(Points { indices, within, list, starts, firsts, leaf, strides, is_uneven })
    }

    /// Whether the points are already sorted for reading from `source`, whose codecs may be bound to another device.
    pub(super) fn suits(&self, source: &Source) -> bool {
        let (by_elem, layout) = (self.within != Within::Rising, source.layout());
        (&layout.leaf().chunk_shape, &layout.strides) == (&self.leaf, &self.strides)
            && (by_elem || !layout.packed.stored_is_packed)
    }

    /// Returns these points, sorted again for `source`, the same array with codecs that are bound to another device.
    ///
    /// # Errors
    /// Those of [`Points::new`].
    pub(super) fn rebound(&self, source: &Source) -> Result<Points> {
        let within = if self.within == Within::Rising { Within::ByElem } else { self.within };
        Points::new(&self.indices, source, within)
    }

    /// The number of dimensions of the array.
    pub(super) fn ndim(&self) -> usize {
        self.indices.len()
    }

    /// Number of selected points.
    pub(super) fn len(&self) -> usize {
        self.list.all().len()
    }

    /// The number of a point's element among the elements of its packed chunk.
    pub(super) fn elem(&self, point: usize) -> u64 {
        self.list.all().get(point).0 as u64
    }

    /// The array indices of the first point in a chunk. Chunks are counted in the order of [`Points::starts`].
    pub(super) fn first(&self, chunk: usize) -> impl Iterator<Item = u64> + '_ {
        let first = self.firsts[chunk];
        self.indices.iter().map(move |indices| indices[first])
    }

    /// For each chunk with points, the number of its first point; and at the end, the number of all points.
    pub(super) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// For each point, where it lies in its packed chunk and in the caller's memory.
    pub(super) fn list(&self) -> Arc<List> {
        Arc::clone(&self.list)
    }

    /// The number of chunks with points; `None` unless the cells are the chunks and `inside` are all points.
    pub(super) fn chunks_of(&self, inside: &[(u64, u64)], cells: Cells<'_>) -> Option<u64> {
        let are_chunks = match cells {
            Cells::Even(shape) => !self.is_uneven && shape == self.leaf,
            Cells::Uneven(_) => self.is_uneven,
        };
        let is_whole = are_chunks && inside.first() == Some(&(0, self.len() as u64));
        is_whole.then(|| self.starts.len().saturating_sub(1) as u64)
    }
}

/// How the array indices of a point determine the number of its chunk, and of its element in that chunk.
struct Ways {
    /// For each dimension, how an index along it adds to the numbers of chunk and element. The dimensions are in the
    /// order of the packed chunk, the outermost first.
    axes: Vec<Way>,
    /// The number of chunks in the array. Chunks are counted shard by shard, and chunk by chunk inside a shard.
    chunks: u128,
}

/// How the index along one dimension adds to the number of a chunk, and of an element in it.
struct Way {
    dim: usize,
    extent: u64,
    /// The grid of each level, the outermost first: its cells, and by how much the chunk number grows from cell to
    /// cell.
    grids: Vec<(Splitter, u128)>,
    /// The difference between the numbers of neighbouring elements in a chunk; `None` if it depends on the chunk's
    /// shape.
    stride: Option<u64>,
}

impl Ways {
    fn new(source: &Source) -> Result<Ways> {
        let layout = source.layout();
        let stride = |dim: usize| (!source.has_uneven_leaf()).then_some(layout.strides[dim]);
        let way = |&dim: &usize| Way { dim, extent: source.shape[dim], grids: Vec::new(), stride: stride(dim) };
        let mut axes: Vec<Way> = layout.packed.axes.iter().map(way).collect();
        let mut chunks = 1u128;
        for level in (0..source.levels()).rev() {
            let cells = source.cells(level);
            for dim in (0..source.shape.len()).rev() {
                let cells = cells.along(dim);
                // The extent of the array, or of the shard that holds the inner chunks. The grid of inner chunks is
                // even.
                let around =
                    level.checked_sub(1).map_or(source.shape[dim], |outer| layout.levels[outer].chunk_shape[dim]);
                let count = if around == 0 { 1 } else { cells.at(around - 1).number + 1 };
                if let Some(axis) = axes.iter_mut().find(|axis| axis.dim == dim) {
                    axis.grids.insert(0, (Splitter::new(cells), chunks));
                }
                chunks = chunks.checked_mul(count.into()).ok_or_else(|| {
                    let message =
                        format!("points of an array of shape {:?}: its chunks cannot be counted", source.shape);
                    Error::new(ErrorKind::Unsupported, message)
                })?;
            }
        }
        Ok(Ways { axes, chunks })
    }

    /// Computes the number of each point's chunk, and of its element in the packed chunk. All `numbers` and `elems`
    /// must be 0 at first. Returns `None` if a point lies outside.
    fn number<N: ChunkNumber>(
        &self,
        indices: &[Arc<[u64]>],
        range: Range<usize>,
        numbers: &mut [N],
        elems: &mut [u64],
    ) -> Option<()> {
        let mut rest = vec![0; range.len()];
        for axis in &self.axes {
            let mut are_inside = true;
            for (rest, &index) in rest.iter_mut().zip(&indices[axis.dim][range.clone()]) {
                are_inside &= index < axis.extent;
                *rest = index;
            }
            if !are_inside {
                return None;
            }
            for (cells, weight) in &axis.grids {
                match axis.stride {
                    Some(_) => cells.split(&mut rest, |at, number, _| numbers[at].add(number, *weight)),
                    None => cells.split(&mut rest, |at, number, extent| {
                        numbers[at].add(number, *weight);
                        elems[at] *= extent;
                    }),
                }
            }
            let stride = axis.stride.unwrap_or(1);
            elems.iter_mut().zip(&rest).for_each(|(elem, rest)| *elem += rest * stride);
        }
        Some(())
    }
}

/// The number of a chunk, in 32 or 128 bits.
trait ChunkNumber: Copy {
    /// Adds to this chunk number the chunks of `cells` grid cells, with `weight` chunks in each.
    fn add(&mut self, cells: u64, weight: u128);
}

impl ChunkNumber for u32 {
    fn add(&mut self, cells: u64, weight: u128) {
        *self += cells as u32 * weight as u32;
    }
}

impl ChunkNumber for u128 {
    fn add(&mut self, cells: u64, weight: u128) {
        *self += u128::from(cells) * weight;
    }
}
