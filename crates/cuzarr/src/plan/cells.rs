//! The cells of the grids that plans visit: chunks, shards, or the inner chunks of shards.

use std::ops::Range;
use std::sync::Arc;

use super::divisor::Divisor;
use super::geometry::cells_inside;
use super::selection::AxisSelection;
use crate::meta::RectilinearGrid;

/// A grid of chunks: either all cells have one shape, or they differ in length along each dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cells<'a> {
    Even(&'a [u64]),
    Uneven(&'a Arc<RectilinearGrid>),
}

/// How the cells of a grid lie along one dimension.
#[derive(Clone, Debug)]
pub(crate) enum CellsAlong {
    Even(u64),
    Uneven(Arc<RectilinearGrid>, usize),
}

/// The number and the extent of one grid cell along one dimension. Indices count from the first element of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellSpan {
    pub(crate) number: u64,
    pub(crate) start: u64,
    /// The index after the cell's last element. It may lie beyond the array's edge.
    pub(crate) end: u64,
}

impl Cells<'_> {
    pub(crate) fn along(&self, dim: usize) -> CellsAlong {
        match self {
            // An extent of 0 would make an endless walk.
            Cells::Even(shape) => CellsAlong::Even(shape[dim].max(1)),
            Cells::Uneven(grid) => match grid.even_edge(dim) {
                Some(edge) => CellsAlong::Even(edge),
                None => CellsAlong::Uneven(Arc::clone(grid), dim),
            },
        }
    }
}

impl CellsAlong {
    /// Returns the grid cell, along one dimension, that holds `index`, counted from the beginning of the grid.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> CellSpan {
        match self {
            CellsAlong::Even(extent) => {
                let number = index / extent;
                let start = number * extent;
                CellSpan { number, start, end: start.saturating_add(*extent) }
            }
            CellsAlong::Uneven(grid, dim) => {
                let (number, range) = grid.chunk_along(*dim, index);
                CellSpan { number, start: range.start, end: range.end }
            }
        }
    }

    /// Counts the grid cells, along one dimension, that hold the elements at `positions` of a selected range.
    pub(crate) fn touched(&self, range: &AxisSelection, positions: Range<u64>) -> u64 {
        match self {
            CellsAlong::Even(extent) => cells_inside(range, positions, *extent),
            CellsAlong::Uneven(..) => {
                let (mut at, mut cells) = (positions.start, 0);
                while at < positions.end {
                    let end = self.at(range.start + at * range.step).end;
                    at = end.saturating_sub(range.start).div_ceil(range.step).max(at + 1);
                    cells += 1;
                }
                cells
            }
        }
    }

    /// Counts the grid cells, along one dimension, that hold the sorted element indices `indices`.
    pub(crate) fn touched_by(&self, mut indices: &[u64]) -> u64 {
        let mut cells = 0;
        while let Some(&first) = indices.first() {
            let end = self.at(first).end;
            // The distance doubles with each step, until it reaches the end of the cell.
            let mut beyond = 1;
            while indices.get(beyond).is_some_and(|&index| index < end) {
                beyond *= 2;
            }
            let looked = &indices[..beyond.min(indices.len())];
            indices = &indices[looked.partition_point(|&index| index < end)..];
            cells += 1;
        }
        cells
    }
}

/// How an index along one dimension is split into the number of its grid cell and the index within that cell.
pub(crate) enum Splitter {
    Even(Divisor),
    Uneven(CellsAlong),
}

impl Splitter {
    pub(crate) fn new(cells: CellsAlong) -> Splitter {
        match cells {
            CellsAlong::Even(extent) => Splitter::Even(Divisor::new(extent)),
            uneven => Splitter::Uneven(uneven),
        }
    }

    /// Returns the index within the grid cell that holds `index`, along one dimension.
    pub(crate) fn rest(&self, index: u64) -> u64 {
        match self {
            Splitter::Even(divisor) => divisor.rest(index),
            Splitter::Uneven(cells) => index - cells.at(index).start,
        }
    }

    /// Replaces each index in `rests` by the index within its cell. For each, calls `cell` with its place in `rests`,
    /// and the cell's number and extent.
    pub(crate) fn split(&self, rests: &mut [u64], mut cell: impl FnMut(usize, u64, u64)) {
        match self {
            Splitter::Even(divisor) => divisor.split(rests, |at, number| cell(at, number, divisor.extent())),
            Splitter::Uneven(cells) => {
                for (at, rest) in rests.iter_mut().enumerate() {
                    let CellSpan { number, start, end } = cells.at(*rest);
                    *rest -= start;
                    cell(at, number, end - start);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_and_counted_in_both_kinds_of_grids() {
        let grid = Arc::new(RectilinearGrid::new(&[vec![3, 2, 3, 4, 2, 2], vec![5; 4]]).unwrap());
        let (uneven, even) = (Cells::Uneven(&grid).along(0), Cells::Uneven(&grid).along(1));
        assert!(matches!(even, CellsAlong::Even(5)), "runs of one length are even");
        let starts = [0, 3, 5, 8, 12, 14, 16];
        for index in 0..16 {
            let number = starts.iter().filter(|&&start| start <= index).count() - 1;
            let (start, end) = (starts[number], starts[number + 1]);
            assert_eq!(uneven.at(index), CellSpan { number: number as u64, start, end });
        }
        for (start, count, step) in [(0, 16, 1), (3, 5, 2), (15, 1, 1), (1, 2, 9), (0, 0, 1), (2, 4, 4)] {
            let range = AxisSelection { start, count, step, dropped: false };
            let indices: Vec<u64> = (0..count).map(|at| start + at * step).collect();
            for cells in [&uneven, &CellsAlong::Even(4)] {
                let mut met: Vec<u64> = indices.iter().map(|&index| cells.at(index).number).collect();
                met.dedup();
                assert_eq!(cells.touched(&range, 0..count), met.len() as u64, "{range:?}");
                assert_eq!(cells.touched_by(&indices), met.len() as u64, "{range:?}");
            }
        }
    }
}
