//! A walk: an iterator over the grid cells (chunks or shards) that a selection touches. It visits them one by one,
//! without a list: in C order, or for points in the order of the points.

use std::sync::Arc;

use super::{Along, ChunkOrder, Points};
use crate::plan::cells::{CellSpan, Cells, CellsAlong};
use crate::plan::source::Source;

/// The state of a walk over grid cells along one dimension: the division into cells, and the current cell.
#[derive(Clone, Debug)]
struct Axis {
    along: Along,
    /// The array element at which the grid begins.
    origin: u64,
    cells: CellsAlong,
    /// Which positions of the selection lie in the grid: `first..end`.
    first: u64,
    end: u64,
    /// The number of the current cell along this dimension, and the array index of its first element. The cell holds
    /// the positions `from..to`.
    at: u64,
    start: u64,
    from: u64,
    to: u64,
}

impl Axis {
    fn enter(&mut self, from: u64) {
        let CellSpan { number, start, end } = self.cells.at(self.along.index(from) - self.origin);
        (self.at, self.start, self.from) = (number, self.origin + start, from);
        self.to = self.along.position_from(from, self.origin.saturating_add(end)).min(self.end);
    }
}

/// An iterator over the grid cells that hold selected points; the points are grouped by cell.
#[derive(Clone, Debug)]
struct PointWalk {
    points: Arc<Points>,
    origin: Vec<u64>,
    cells: Vec<CellsAlong>,
    end: usize,
    /// The points in the current grid cell, which are consecutive in the order of the walk: `from..to`. The first of
    /// them lies in `chunk`.
    from: usize,
    to: usize,
    chunk: usize,
}

impl PointWalk {
    /// The cell in which a chunk lies, as one span along each dimension.
    fn cell_of(&self, chunk: usize) -> impl Iterator<Item = CellSpan> + '_ {
        let dims = self.points.first(chunk).zip(&self.origin).zip(&self.cells);
        dims.map(|((index, origin), cells)| cells.at(index - origin))
    }

    fn enter(&mut self, from: usize) {
        self.from = from;
        // A cell holds whole chunks, whose points are consecutive. Near chunks are tried first; then a binary search
        // finds the last one.
        let starts = self.points.starts();
        let chunks = starts.len() - 1;
        let first = starts.partition_point(|&start| start <= from) - 1;
        let is_same = |chunk: usize| starts[chunk] < self.end && self.cell_of(first).eq(self.cell_of(chunk));
        let (mut same, mut step) = (first, 1);
        while same + step < chunks && is_same(same + step) {
            same += step;
            step *= 2;
        }
        let (mut low, mut high) = (same, (same + step).min(chunks));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if is_same(middle) { low = middle } else { high = middle }
        }
        let to = starts[low + 1].min(self.end);
        (self.chunk, self.to) = (first, to);
    }
}

/// An iterator over the cells of a grid (chunks or shards) that hold selected elements. It does not visit cells that a
/// step jumps over, so a tiny selection of a huge array is a short walk.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    steps: Steps,
    finished: bool,
}

#[derive(Clone, Debug)]
enum Steps {
    Product(Vec<Axis>),
    Points(PointWalk),
}

/// A grid cell, and the part of the selection in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The cell's coordinates in the grid.
    pub at: Vec<u64>,
    /// The array element at which the cell begins.
    pub origin: Vec<u64>,
    /// Which positions of the selection lie in the cell, as `from..to`: per dimension, or one range for points.
    pub inside: Vec<(u64, u64)>,
}

impl Walk {
    /// Makes the iterator over selected cells of a grid that begins at the array element `origin`. `inside` is the
    /// range of positions of the selection that it visits. These positions must lie in the grid.
    pub(crate) fn new(axes: &[Along], origin: &[u64], cells: Cells<'_>, inside: &[(u64, u64)]) -> Walk {
        let mut walk = Vec::with_capacity(axes.len());
        let finished = inside.iter().any(|(first, end)| first >= end);
        for dim in 0..if finished { 0 } else { axes.len() } {
            let (first, end) = inside[dim];
            let (along, cells, origin) = (axes[dim].clone(), cells.along(dim), origin[dim]);
            let mut axis = Axis { along, origin, cells, first, end, at: 0, start: 0, from: 0, to: 0 };
            axis.enter(first);
            walk.push(axis);
        }
        Walk { steps: Steps::Product(walk), finished }
    }

    /// Like [`Walk::new`], for points, which are grouped by cell.
    pub(crate) fn of_points(points: &Arc<Points>, origin: &[u64], cells: Cells<'_>, inside: &[(u64, u64)]) -> Walk {
        let (from, end) = inside.first().map_or((0, 0), |&(from, end)| (from as usize, end as usize));
        let cells = (0..origin.len()).map(|dim| cells.along(dim)).collect();
        let mut walk =
            PointWalk { points: Arc::clone(points), origin: origin.to_vec(), cells, end, from, to: from, chunk: 0 };
        if from < end {
            walk.enter(from);
        }
        Walk { steps: Steps::Points(walk), finished: from >= end }
    }

    /// The grid cell at which the walk stands; `None` after the last one.
    pub(crate) fn current(&self) -> Option<Cell> {
        if self.finished {
            return None;
        }
        Some(match &self.steps {
            Steps::Product(axes) => Cell {
                at: axes.iter().map(|axis| axis.at).collect(),
                origin: axes.iter().map(|axis| axis.start).collect(),
                inside: axes.iter().map(|axis| (axis.from, axis.to)).collect(),
            },
            Steps::Points(walk) => {
                let cells = walk.cell_of(walk.chunk).zip(&walk.origin);
                let (at, origin) = cells.map(|(cell, origin)| (cell.number, origin + cell.start)).unzip();
                Cell { at, origin, inside: vec![(walk.from as u64, walk.to as u64)] }
            }
        })
    }

    /// Moves the walk to the next cell, if there is one.
    pub(crate) fn advance(&mut self) {
        match &mut self.steps {
            Steps::Product(axes) => {
                for axis in axes.iter_mut().rev() {
                    if axis.to < axis.end {
                        axis.enter(axis.to);
                        return;
                    }
                    axis.enter(axis.first);
                }
            }
            Steps::Points(walk) if walk.to < walk.end => return walk.enter(walk.to),
            Steps::Points(_) => {}
        }
        self.finished = true;
    }
}

impl Iterator for Walk {
    type Item = Cell;

    fn next(&mut self) -> Option<Cell> {
        let cell = self.current()?;
        self.advance();
        Some(cell)
    }
}

/// Counts the innermost chunks that the selection touches.
pub(crate) fn chunks_touched(source: &Source, order: &ChunkOrder) -> u64 {
    order.touched(source.leaf_cells())
}

/// Whether the positions `inside` of a selection with this step hold every element of `origin..end`, in one dimension.
pub(crate) fn covers(step: u64, inside: (u64, u64), origin: u64, end: u64) -> bool {
    let count = inside.1 - inside.0;
    count == end - origin && (step == 1 || count <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::geometry::cells_inside;
    use crate::plan::selection::AxisSelection;

    fn axis(start: u64, count: u64, step: u64) -> AxisSelection {
        AxisSelection { start, count, step, dropped: false }
    }

    fn walk(axes: &[AxisSelection], origin: &[u64], cell: &[u64], inside: &[(u64, u64)]) -> Walk {
        Walk::new(&axes.iter().copied().map(Along::Range).collect::<Vec<_>>(), origin, Cells::Even(cell), inside)
    }

    fn whole(axes: &[AxisSelection]) -> Vec<(u64, u64)> {
        axes.iter().map(|axis| (0, axis.count)).collect()
    }

    #[test]
    fn every_selected_element_is_met_once_in_its_cell() {
        for (start, count, step, cell) in
            [(0, 10, 1, 4), (3, 7, 2, 5), (1, 4, 9, 2), (5, 1, 1, 3), (0, 6, 3, 3), (2, 5, 4, 4)]
        {
            let axes = [axis(start, count, step)];
            let mut met = Vec::new();
            for found in walk(&axes, &[0], &[cell], &whole(&axes)) {
                for index in found.inside[0].0..found.inside[0].1 {
                    let element = start + index * step;
                    assert_eq!(element / cell, found.at[0]);
                    met.push(index);
                }
            }
            assert_eq!(met, (0..count).collect::<Vec<_>>());
            let walked = walk(&axes, &[0], &[cell], &whole(&axes)).count() as u64;
            assert_eq!(cells_inside(&axes[0], 0..count, cell), walked, "{start} {count} {step} {cell}");
        }
    }

    #[test]
    fn cells_come_in_c_order() {
        let axes = [axis(0, 4, 1), axis(0, 4, 1)];
        let places: Vec<_> = walk(&axes, &[0, 0], &[2, 3], &whole(&axes)).map(|cell| cell.at).collect();
        assert_eq!(places, [[0, 0], [0, 1], [1, 0], [1, 1]]);
    }

    #[test]
    fn no_dimensions_is_one_cell_and_no_elements_is_none() {
        assert_eq!(walk(&[], &[], &[], &[]).count(), 1);
        assert_eq!(walk(&[axis(0, 0, 1)], &[0], &[4], &[(0, 0)]).count(), 0);
    }

    #[test]
    fn a_tiny_selection_of_a_huge_array_is_a_short_walk() {
        let axes = [axis(7, 3, u64::MAX / 4)];
        assert_eq!(walk(&axes, &[0], &[1000], &[(0, 3)]).count(), 3);
    }

    #[test]
    fn an_inner_grid_is_walked_from_its_origin() {
        let axes = [axis(0, 20, 1)];
        let cells: Vec<_> = walk(&axes, &[8], &[3], &[(8, 16)]).map(|cell| (cell.origin[0], cell.inside[0])).collect();
        assert_eq!(cells, [(8, (8, 11)), (11, (11, 14)), (14, (14, 16))]);
    }
}
