//! What the plans of reads and of writes share: how the selected elements of a cell lie in its packed chunk, and in memory.

use super::selection::AxisSelection;

/// Elements between neighbours, per dimension of a box whose dimensions lie in the order of `axes`, the last one closest.
pub(crate) fn strides(axes: impl DoubleEndedIterator<Item = usize>, shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut stride = 1u64;
    for axis in axes.rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis]);
    }
    strides
}

/// Elements between selected neighbours in packed bytes, per kept dimension, where those of the array are `strides` apart.
pub(super) fn packed_strides(axes: &[AxisSelection], strides: &[u64]) -> impl Iterator<Item = isize> {
    let kept = axes.iter().zip(strides).filter(|(axis, _)| !axis.dropped);
    // A dimension with one element in the chunk needs no stride; others have strides inside the chunk.
    kept.map(|(axis, &stride)| isize::try_from(stride.saturating_mul(axis.step)).unwrap_or(isize::MAX))
}

/// Index, in the packed chunk that begins at `origin`, of the first element of the selection's indices `inside`.
pub(super) fn first_elem(axes: &[AxisSelection], strides: &[u64], origin: &[u64], inside: &[(u64, u64)]) -> usize {
    let axes = axes.iter().enumerate();
    axes.map(|(dim, axis)| (axis.start + inside[dim].0 * axis.step - origin[dim]) * strides[dim]).sum::<u64>() as usize
}

/// The selection's indices `inside` as a box of memory: start and extent of each kept dimension.
pub(super) fn region(axes: &[AxisSelection], inside: &[(u64, u64)]) -> impl Iterator<Item = (usize, usize)> {
    let kept = axes.iter().zip(inside).filter(|(axis, _)| !axis.dropped);
    // What is selected is in memory, so its extents fit `usize`.
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
