//! Points in the order of the array's chunks.

use std::ops::{Add, Mul, Range};
use std::sync::Arc;

use cuzarr_device::{Grouped, List, Within, grouped};

use super::{Divisor, InChunk};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::selection::Selection;
use crate::plan::source::Source;

/// Chunks are numbered as the grids have them while there are at most this many for each point, else by the points alone.
const CELLS_A_POINT: u128 = 4;

/// Points, those of one chunk behind each other.
#[derive(Debug)]
pub(crate) struct Points {
    /// The indices along each dimension, in the caller's order.
    indices: Vec<Arc<[u64]>>,
    /// The place of each in the caller's list, rising; `None` where these are all points of the caller.
    places: Option<Arc<[usize]>>,
    within: Within,
    /// For each point its number in the packed chunk, and its place in the caller's list.
    list: Arc<List>,
    /// The first point of each chunk, and the end.
    starts: Vec<usize>,
    /// Which of `indices` the first point of each chunk has.
    firsts: Vec<usize>,
    /// The extents of these chunks.
    leaf: Vec<u64>,
    /// The strides of packed chunks.
    strides: Vec<u64>,
}

impl Points {
    /// Groups points by chunk. Where they are not all points of a caller, `places` are their places in the caller's list, rising.
    ///
    /// # Errors
    /// `SelectionInvalid` when a point lies outside; `Unsupported` when 128 bits cannot count the chunks.
    pub(super) fn new(
        indices: &[Arc<[u64]>],
        places: Option<Arc<[usize]>>,
        source: &Source,
        within: Within,
    ) -> Result<Points> {
        if indices.len() != source.shape.len() {
            Selection::points(indices.to_vec())?.check(&source.shape)?;
        }
        let (leaf, count) = (source.leaf().chunk_shape.clone(), indices.first().map_or(0, |one| one.len()));
        let strides = source.packed.strides(&leaf);
        let elem_end = leaf.iter().fold(1u64, |product, &extent| product.saturating_mul(extent));
        let chunks = ChunkNumbers::new(source)?;
        let elements = Elements { indices, source, strides: &strides };
        let Grouped { list, starts } = match chunks.count <= (count as u128).saturating_mul(CELLS_A_POINT).min(1 << 32)
        {
            true => {
                let numbering = |range: Range<usize>, groups: &mut [u32], elems: &mut [u64]| {
                    elements.check(range.clone())?;
                    let mut numbers = vec![0u64; range.len()];
                    chunks.of(indices, range.clone(), &mut numbers);
                    groups.iter_mut().zip(numbers).for_each(|(group, number)| *group = number as u32);
                    elements.numbers(range, elems);
                    Ok::<_, Error>(())
                };
                grouped(count, chunks.count as usize, elem_end, within, &numbering)?
            }
            false => {
                elements.check(0..count)?;
                let mut numbers = vec![0u128; count];
                chunks.of(indices, 0..count, &mut numbers);
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
                    elements.numbers(range, elems);
                    Ok::<_, Error>(())
                };
                grouped(count, touched.len(), elem_end, within, &numbering)?
            }
        };
        let firsts = starts[..starts.len() - 1].iter().map(|&start| list.all().get(start).1).collect();
        let list = match &places {
            Some(places) => list.with_places(places),
            None => list,
        };
        Ok(Points { indices: indices.to_vec(), places, within, list: Arc::new(list), starts, firsts, leaf, strides })
    }

    /// Whether the points are in the order of another binding's chunks, too.
    pub(super) fn suits(&self, source: &Source) -> bool {
        let by_elem = self.within != Within::Rising;
        let layout = (&source.leaf().chunk_shape, source.packed.strides(&source.leaf().chunk_shape));
        layout == (&self.leaf, self.strides.clone()) && (by_elem || !source.packed.stored_is_packed)
    }

    /// These points for another binding of the array.
    ///
    /// # Errors
    /// Those of [`Points::new`].
    pub(super) fn rebound(&self, source: &Source) -> Result<Points> {
        let within = if self.within == Within::Rising { Within::ByElem } else { self.within };
        Points::new(&self.indices, self.places.clone(), source, within)
    }

    /// The number of points.
    pub(super) fn len(&self) -> usize {
        self.list.all().len()
    }

    /// The number of a point in its packed chunk.
    pub(super) fn elem(&self, point: usize) -> u64 {
        self.list.all().get(point).0 as u64
    }

    /// The index along each dimension of the first point of a chunk, the chunks counted in the order of [`Points::starts`].
    pub(super) fn first(&self, chunk: usize) -> impl Iterator<Item = u64> + '_ {
        let first = self.firsts[chunk];
        self.indices.iter().map(move |indices| indices[first])
    }

    /// The first point of each chunk that has points, and the end.
    pub(super) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Where each point lies in its packed chunk, whose elements have these strides, and in the caller's memory.
    pub(super) fn list(&self, strides: &[u64]) -> Arc<List> {
        debug_assert_eq!(strides, self.strides, "points are made for one layout of chunks");
        Arc::clone(&self.list)
    }

    /// The number of chunks, if cells of this extent are the chunks and all points are meant.
    pub(super) fn chunks_of(&self, inside: &[(u64, u64)], cell: &[u64]) -> Option<u64> {
        let is_whole = inside.first() == Some(&(0, self.len() as u64)) && cell == self.leaf;
        is_whole.then(|| self.starts.len().saturating_sub(1) as u64)
    }
}

/// The elements that points name.
struct Elements<'a> {
    indices: &'a [Arc<[u64]>],
    source: &'a Source,
    strides: &'a [u64],
}

impl Elements<'_> {
    /// Refuses points outside of the array.
    fn check(&self, range: Range<usize>) -> Result<()> {
        for (indices, &extent) in self.indices.iter().zip(&self.source.shape) {
            if !indices[range.clone()].iter().fold(true, |below, &index| below & (index < extent)) {
                Selection::points(self.indices.to_vec())?.check(&self.source.shape)?;
            }
        }
        Ok(())
    }

    /// The number of each in its packed chunk.
    fn numbers(&self, range: Range<usize>, elems: &mut [u64]) {
        for (dim, (indices, &stride)) in self.indices.iter().zip(self.strides).enumerate() {
            let in_chunk = InChunk::new(self.source, dim);
            for (elem, &index) in elems.iter_mut().zip(&indices[range.clone()]) {
                *elem += in_chunk.of(index) * stride;
            }
        }
    }
}

/// The numbers of chunks, counted shard by shard and chunk by chunk.
struct ChunkNumbers {
    /// The grids, outermost first: cells in the cell around them, and elements of a cell, along each dimension.
    grids: Vec<Vec<(u64, u64)>>,
    /// Numbers in all.
    count: u128,
}

impl ChunkNumbers {
    fn new(source: &Source) -> Result<ChunkNumbers> {
        let mut extents = source.shape.clone();
        let (mut grids, mut count) = (Vec::new(), 1u128);
        for level in &source.levels {
            let cells = extents.iter().zip(&level.chunk_shape);
            let grid: Vec<(u64, u64)> =
                cells.map(|(extent, &cell)| (extent.div_ceil(cell.max(1)).max(1), cell.max(1))).collect();
            let all = grid.iter().try_fold(count, |count, &(cells, _)| count.checked_mul(cells.into()));
            count = all.ok_or_else(|| {
                let message = format!("points of an array of shape {:?}: its chunks cannot be counted", source.shape);
                Error::new(ErrorKind::Unsupported, message)
            })?;
            grids.push(grid);
            extents.clone_from(&level.chunk_shape);
        }
        Ok(ChunkNumbers { grids, count })
    }

    /// The numbers of the chunks of some points.
    fn of<N>(&self, indices: &[Arc<[u64]>], range: Range<usize>, numbers: &mut [N])
    where
        N: Copy + From<u64> + Add<Output = N> + Mul<Output = N>,
    {
        for (level, grid) in self.grids.iter().enumerate() {
            for (dim, &(cells, cell)) in grid.iter().enumerate() {
                let (cells, cell) = (N::from(cells), Divisor::new(cell));
                let around: Vec<Divisor> = self.grids[..level].iter().map(|outer| Divisor::new(outer[dim].1)).collect();
                for (number, &index) in numbers.iter_mut().zip(&indices[dim][range.clone()]) {
                    let inside = around.iter().fold(index, |index, outer| outer.rest(index));
                    *number = *number * cells + N::from(cell.times(inside));
                }
            }
        }
    }
}
