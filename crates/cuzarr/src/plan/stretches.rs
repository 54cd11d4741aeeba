//! Stretches: elements at even distances, of which only those in the chunks of one part of a rectilinear grid are met.
//! [`parts`](super::parts) makes them.

use super::geometry::cells_inside;
use super::selection::AxisSelection;

/// Elements at even distances that follow each other in the part and in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// The position of the first element among all those of the part.
    pub(crate) position: u64,
    /// The index of the first element, in the part.
    pub(crate) index: u64,
    /// The place of the first element in the result.
    pub(crate) place: u64,
    /// Number of elements, at least 1.
    pub(crate) count: u64,
}

/// What is selected of a part along one dimension. A cell of the part never holds elements of two stretches.
#[derive(Clone, Debug)]
pub(crate) struct Stretches {
    pub(crate) list: Vec<Stretch>,
    /// Number of elements.
    pub(crate) count: u64,
    /// Distance of neighbours in a stretch.
    pub(crate) step: u64,
    /// Whether the result lacks the dimension.
    pub(crate) dropped: bool,
}

impl Stretches {
    /// The stretch of a position.
    fn at(&self, position: u64) -> &Stretch {
        &self.list[self.list.partition_point(|stretch| stretch.position <= position) - 1]
    }

    /// The index at a position.
    pub(crate) fn index(&self, position: u64) -> u64 {
        let stretch = self.at(position);
        stretch.index + (position - stretch.position) * self.step
    }

    /// The place in the result of a position.
    pub(crate) fn place(&self, position: u64) -> u64 {
        let stretch = self.at(position);
        stretch.place + (position - stretch.position)
    }

    /// The first position whose index is not below `index`; it may be behind the last.
    pub(crate) fn position_from(&self, index: u64) -> u64 {
        let last = |stretch: &Stretch| stretch.index + (stretch.count - 1) * self.step;
        match self.list.get(self.list.partition_point(|stretch| last(stretch) < index)) {
            Some(stretch) => stretch.position + index.saturating_sub(stretch.index).div_ceil(self.step),
            None => self.count,
        }
    }

    /// The number of cells of extent `cell` that the positions `from..to` touch.
    pub(crate) fn cells(&self, (from, to): (u64, u64), cell: u64) -> u64 {
        let touched = &self.list[self.list.partition_point(|stretch| stretch.position + stretch.count <= from)..];
        let parts = touched.iter().take_while(|stretch| stretch.position < to).map(|stretch| {
            let begin = from.max(stretch.position) - stretch.position;
            let end = to.min(stretch.position + stretch.count).saturating_sub(stretch.position);
            let range = AxisSelection { start: stretch.index, count: stretch.count, step: self.step, dropped: false };
            cells_inside(&range, (begin.min(end), end), cell)
        });
        parts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every second element from the first on, of two chunks of 4 elements; 3 others lie between them in the result.
    fn stretches() -> Stretches {
        let list = vec![
            Stretch { position: 0, index: 1, place: 0, count: 2 },
            Stretch { position: 2, index: 4, place: 5, count: 2 },
        ];
        Stretches { list, count: 4, step: 2, dropped: false }
    }

    #[test]
    fn positions_have_their_indices_and_places() {
        let all = stretches();
        let found: Vec<_> = (0..4).map(|position| (all.index(position), all.place(position))).collect();
        assert_eq!(found, [(1, 0), (3, 1), (4, 5), (6, 6)]);
        let positions: Vec<_> = (0..9).map(|index| all.position_from(index)).collect();
        assert_eq!(positions, [0, 0, 1, 1, 2, 3, 3, 4, 4]);
        assert_eq!(
            (all.cells((0, 4), 4), all.cells((0, 2), 4), all.cells((0, 4), 2), all.cells((1, 3), 1)),
            (2, 1, 4, 2)
        );
    }
}
