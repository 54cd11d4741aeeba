//! Geometry that plans of reads and writes share: where the selected elements of a cell lie in its packed chunk and in
//! memory.

use std::ops::Range;

use super::selection::{AxisSelection, Selection};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::ChunkGrid;

/// For a box that is contiguous in memory, the stride along each dimension, in elements. The dimensions lie in the
/// order `axes` in memory, the last one innermost.
pub(crate) fn strides(axes: impl DoubleEndedIterator<Item = usize>, shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1u64;
    for axis in axes.rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis]);
    }
    strides
}

/// The strides of selected elements in a packed chunk, for each dimension that the selection keeps. `kept` has the
/// selection's step and the stride of neighbouring elements in the chunk.
pub(super) fn packed_strides(kept: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = isize> {
    // A stride is only too large if the chunk has one element along the dimension. Then the stride is not used.
    kept.map(|(step, stride)| isize::try_from(stride.saturating_mul(step)).unwrap_or(isize::MAX))
}

/// The box of memory that these positions of a selection fill: start and extent along each dimension that the selection
/// keeps.
pub(super) fn region(kept: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = (usize, usize)> {
    // The selected elements fit in memory, so their extents fit `usize`.
    kept.map(|(from, to)| (from as usize, (to - from) as usize))
}

/// Counts the chunks of extent `cell` that the positions `indices` of a selection touch, in one dimension of the array.
pub(crate) fn cells_inside(select: &AxisSelection, indices: Range<u64>, cell: u64) -> u64 {
    let element = |index: u64| select.start + index * select.step;
    match indices.end - indices.start {
        0 => 0,
        count if select.step >= cell => count,
        _ => element(indices.end - 1) / cell - element(indices.start) / cell + 1,
    }
}

/// The C-order number of the cell at `at` in a grid.
pub(super) fn number_in(grid: &[u64], at: &[u64]) -> usize {
    at.iter().zip(grid).fold(0u64, |number, (&at, &extent)| number * extent + at) as usize
}

/// The shape that memory for the selected elements must have.
///
/// # Errors
/// `OutOfMemory` when no memory could hold it.
pub(crate) fn memory_shape(selection: &Selection) -> Result<Vec<usize>> {
    let extents = selection.shape().into_iter().map(usize::try_from);
    extents.collect::<std::result::Result<_, _>>().map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("selection {selection} has more elements than memory can have"))
    })
}

/// The first and the last object along each dimension that a selection touches; `None` if it is empty.
///
/// # Errors
/// `SelectionInvalid` when the selection does not fit the array.
pub(crate) fn chunk_bounds(grid: &ChunkGrid, shape: &[u64], selection: &Selection) -> Result<Option<Vec<(u64, u64)>>> {
    selection.check(shape)?;
    let Some(bounds) = selection.bounds() else { return Ok(None) };
    let (first, last): (Vec<u64>, Vec<u64>) = bounds.into_iter().unzip();
    Ok(Some(grid.chunk_of(&first)?.into_iter().zip(grid.chunk_of(&last)?).collect()))
}
