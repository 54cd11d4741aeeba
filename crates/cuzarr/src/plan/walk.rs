//! A walk over the cells of a regular grid that a selection touches, in C order, without a list of them.

use super::selection::{AxisSelection, Selection};
use super::source::Source;

/// One dimension of a walk.
#[derive(Clone, Copy, Debug)]
struct Axis {
    select: AxisSelection,
    /// The grid's first element in the array.
    origin: u64,
    /// The extent of a cell.
    cell: u64,
    /// The selection's indices that lie in the grid: `first..end`.
    first: u64,
    end: u64,
    /// The current cell `at`, which holds the selection's indices `from..to`.
    at: u64,
    from: u64,
    to: u64,
}

impl Axis {
    fn enter(&mut self, from: u64) {
        self.from = from;
        let element = self.select.start + from * self.select.step;
        self.at = (element - self.origin) / self.cell;
        let cell_end = self.origin.saturating_add((self.at + 1).saturating_mul(self.cell));
        self.to = first_index_from(&self.select, cell_end).min(self.end);
    }
}

/// The first index of the selection whose element is not before `element`. It may be above `count`.
fn first_index_from(select: &AxisSelection, element: u64) -> u64 {
    element.saturating_sub(select.start).div_ceil(select.step)
}

/// A walk over the cells of a grid that hold selected elements. It does not visit cells that a step jumps over, so a tiny
/// selection of a huge array is a short walk.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    axes: Vec<Axis>,
    finished: bool,
}

/// The part of a selection in one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The cell's place in the grid.
    pub at: Vec<u64>,
    /// The cell's first element in the array.
    pub origin: Vec<u64>,
    /// The selection's indices inside the cell, per dimension: `from..to`.
    pub inside: Vec<(u64, u64)>,
}

impl Walk {
    /// A walk over cells of shape `cell`, in the part of the array that begins at `origin`. `inside` are the selection's indices,
    /// which must lie in that part. Extents of cells are at least 1.
    pub(crate) fn new(axes: &[AxisSelection], origin: &[u64], cell: &[u64], inside: &[(u64, u64)]) -> Walk {
        let mut walk = Walk { axes: Vec::with_capacity(axes.len()), finished: false };
        for dim in 0..axes.len() {
            let (first, end) = inside[dim];
            if first >= end {
                walk.finished = true;
                return walk;
            }
            let mut axis = Axis {
                select: axes[dim],
                origin: origin[dim],
                cell: cell[dim].max(1),
                first,
                end,
                at: 0,
                from: 0,
                to: 0,
            };
            axis.enter(first);
            walk.axes.push(axis);
        }
        walk
    }

    /// The current cell, or `None` at the end.
    pub(crate) fn current(&self) -> Option<Cell> {
        if self.finished {
            return None;
        }
        Some(Cell {
            at: self.axes.iter().map(|axis| axis.at).collect(),
            origin: self.axes.iter().map(|axis| axis.origin + axis.at * axis.cell).collect(),
            inside: self.axes.iter().map(|axis| (axis.from, axis.to)).collect(),
        })
    }

    /// Goes to the next cell.
    pub(crate) fn advance(&mut self) {
        for axis in self.axes.iter_mut().rev() {
            if axis.to < axis.end {
                axis.enter(axis.to);
                return;
            }
            axis.enter(axis.first);
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

/// The number of cells of extent `cell` that the selection's indices `from..to` touch in one dimension of the array.
pub(crate) fn cells_inside(select: &AxisSelection, (from, to): (u64, u64), cell: u64) -> u64 {
    let element = |index: u64| select.start + index * select.step;
    match to - from {
        0 => 0,
        count if select.step >= cell => count,
        _ => element(to - 1) / cell - element(from) / cell + 1,
    }
}

/// The number of cells of extent `cell` that the selection touches in one dimension of the array.
pub(crate) fn cells_touched(select: &AxisSelection, cell: u64) -> u64 {
    cells_inside(select, (0, select.count), cell)
}

/// The number of innermost chunks that the selection touches.
pub(crate) fn chunks_touched(source: &Source, selection: &Selection) -> u64 {
    touched(selection, &source.leaf().chunk_shape)
}

/// The number of cells of a grid that the selection touches.
pub(super) fn touched(selection: &Selection, shape: &[u64]) -> u64 {
    let axes = selection.axes().iter().zip(shape);
    axes.map(|(axis, &extent)| cells_touched(axis, extent)).fold(1, u64::saturating_mul)
}

/// Whether the selection's indices `inside` cover every element of `origin..end` in this dimension.
pub(crate) fn covers(select: &AxisSelection, inside: (u64, u64), origin: u64, end: u64) -> bool {
    let count = inside.1 - inside.0;
    count == end - origin && (select.step == 1 || count <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: u64, count: u64, step: u64) -> AxisSelection {
        AxisSelection { start, count, step, dropped: false }
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
            for found in Walk::new(&axes, &[0], &[cell], &whole(&axes)) {
                for index in found.inside[0].0..found.inside[0].1 {
                    let element = start + index * step;
                    assert_eq!(element / cell, found.at[0]);
                    met.push(index);
                }
            }
            assert_eq!(met, (0..count).collect::<Vec<_>>());
            let walked = Walk::new(&axes, &[0], &[cell], &whole(&axes)).count() as u64;
            assert_eq!(cells_touched(&axes[0], cell), walked, "{start} {count} {step} {cell}");
        }
    }

    #[test]
    fn cells_come_in_c_order() {
        let axes = [axis(0, 4, 1), axis(0, 4, 1)];
        let places: Vec<_> = Walk::new(&axes, &[0, 0], &[2, 3], &whole(&axes)).map(|cell| cell.at).collect();
        assert_eq!(places, [[0, 0], [0, 1], [1, 0], [1, 1]]);
    }

    #[test]
    fn no_dimensions_is_one_cell_and_no_elements_is_none() {
        assert_eq!(Walk::new(&[], &[], &[], &[]).count(), 1);
        assert_eq!(Walk::new(&[axis(0, 0, 1)], &[0], &[4], &[(0, 0)]).count(), 0);
    }

    #[test]
    fn a_tiny_selection_of_a_huge_array_is_a_short_walk() {
        let axes = [axis(7, 3, u64::MAX / 4)];
        assert_eq!(Walk::new(&axes, &[0], &[1000], &[(0, 3)]).count(), 3);
    }

    #[test]
    fn an_inner_grid_is_walked_from_its_origin() {
        let axes = [axis(0, 20, 1)];
        let cells: Vec<_> =
            Walk::new(&axes, &[8], &[3], &[(8, 16)]).map(|cell| (cell.origin[0], cell.inside[0])).collect();
        assert_eq!(cells, [(8, (8, 11)), (11, (11, 14)), (14, (14, 16))]);
    }
}
