//! Geometry that plans of reads and writes share: the places of a cell's selected elements in its packed chunk and in memory.

use super::selection::{AxisSelection, Selection};
use crate::error::{Error, ErrorKind, Result};

/// The strides of a box in elements, per dimension. Its dimensions lie in the order of `axes`, the last one innermost.
pub(crate) fn strides(axes: impl DoubleEndedIterator<Item = usize>, shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1u64;
    for axis in axes.rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis]);
    }
    strides
}

/// The strides of selected elements in packed bytes, per kept dimension. `strides` are those of all elements.
pub(super) fn packed_strides(axes: &[AxisSelection], strides: &[u64]) -> impl Iterator<Item = isize> {
    let kept = axes.iter().zip(strides).filter(|(axis, _)| !axis.dropped);
    // A dimension with one element in the chunk needs no stride; others have strides inside the chunk.
    kept.map(|(axis, &stride)| isize::try_from(stride.saturating_mul(axis.step)).unwrap_or(isize::MAX))
}

/// The index of the first selected element in the packed chunk at `origin`. `inside` are the selection's indices in the chunk.
pub(super) fn first_elem(axes: &[AxisSelection], strides: &[u64], origin: &[u64], inside: &[(u64, u64)]) -> usize {
    let axes = axes.iter().enumerate();
    axes.map(|(dim, axis)| (axis.start + inside[dim].0 * axis.step - origin[dim]) * strides[dim]).sum::<u64>() as usize
}

/// The selection's indices `inside` as a box of memory: start and extent of each kept dimension.
pub(super) fn region(axes: &[AxisSelection], inside: &[(u64, u64)]) -> impl Iterator<Item = (usize, usize)> {
    let kept = axes.iter().zip(inside).filter(|(axis, _)| !axis.dropped);
    // The selected elements fit in memory, so their extents fit `usize`.
    kept.map(|(_, &(from, to))| (from as usize, (to - from) as usize))
}

/// All indices of a selection, per dimension.
pub(super) fn whole(axes: &[AxisSelection]) -> Vec<(u64, u64)> {
    axes.iter().map(|axis| (0, axis.count)).collect()
}

/// The C-order number of a cell of a grid.
pub(super) fn number_in(grid: &[u64], at: &[u64]) -> usize {
    at.iter().zip(grid).fold(0u64, |number, (&at, &extent)| number * extent + at) as usize
}

/// The selection's shape in memory.
///
/// # Errors
/// `OutOfMemory` when no memory could hold it.
pub(crate) fn memory_shape(selection: &Selection) -> Result<Vec<usize>> {
    let extents = selection.shape().into_iter().map(usize::try_from);
    extents.collect::<std::result::Result<_, _>>().map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("selection {selection} has more elements than memory can have"))
    })
}
