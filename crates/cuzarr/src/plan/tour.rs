//! A tour: an iterator over the cells of one grid (chunks or shards) that one or several selections need. A chunk that
//! several selections need comes once.

use std::collections::BTreeMap;

use super::cells::Cells;
use super::chunk_order::ChunkOrder;
use super::chunk_order::{Cell, Walk};

/// The part of a grid cell (an object or a chunk) that one selection needs.
#[derive(Clone, Debug)]
pub(super) struct Want {
    /// The number of the selection in its plan.
    pub(super) selection: usize,
    /// Which positions of the selection lie in the cell, as `from..to`: per dimension, or one range for points.
    pub(super) inside: Vec<(u64, u64)>,
}

/// A grid cell (an object or a chunk), and the parts of it that selections need.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The cell's coordinates in the grid.
    pub(super) at: Vec<u64>,
    /// The array element at which the cell begins.
    pub(super) origin: Vec<u64>,
    /// For each selection that needs elements of this grid cell, which elements; at least one selection does.
    pub(super) wants: Vec<Want>,
}

/// The grid cells that a plan has not visited yet.
pub(super) enum Tour {
    /// Cells of one selection, which are computed one by one.
    Walk(usize, Walk),
    /// Cells of several selections, which were listed in advance, in reverse order.
    Listed(Vec<Spot>),
}

impl Spot {
    fn new(selection: usize, Cell { at, origin, inside }: Cell) -> Spot {
        Spot { at, origin, wants: vec![Want { selection, inside }] }
    }
}

impl Tour {
    /// Makes an iterator over the cells of a grid that hold the elements `wants` of the selections. The grid begins at
    /// the array element `origin`.
    pub(super) fn new(selections: &[ChunkOrder], wants: &[Want], origin: &[u64], cells: Cells<'_>) -> Tour {
        let walk = |want: &Want| selections[want.selection].walk(origin, cells, &want.inside);
        if let [want] = wants {
            return Tour::Walk(want.selection, walk(want));
        }
        let mut spots = BTreeMap::<Vec<u64>, Spot>::new();
        for want in wants {
            for met in walk(want) {
                match spots.get_mut(&met.at) {
                    Some(spot) => spot.wants.push(Want { selection: want.selection, inside: met.inside }),
                    None => {
                        spots.insert(met.at.clone(), Spot::new(want.selection, met));
                    }
                }
            }
        }
        Tour::Listed(spots.into_values().rev().collect())
    }

    /// The grid cell at which the tour stands; `None` after the last one.
    pub(super) fn current(&self) -> Option<Spot> {
        match self {
            Tour::Walk(selection, walk) => walk.current().map(|cell| Spot::new(*selection, cell)),
            Tour::Listed(spots) => spots.last().cloned(),
        }
    }

    /// Moves the tour to the next grid cell, if there is one.
    pub(super) fn advance(&mut self) {
        match self {
            Tour::Walk(_, walk) => walk.advance(),
            Tour::Listed(spots) => drop(spots.pop()),
        }
    }

    /// For each remaining cell, its coordinates in the grid and the array element at which it begins.
    pub(super) fn places(&self) -> Box<dyn Iterator<Item = (Vec<u64>, Vec<u64>)> + '_> {
        match self {
            Tour::Walk(_, walk) => Box::new(places_of(walk.clone())),
            Tour::Listed(spots) => Box::new(spots.iter().rev().map(|spot| (spot.at.clone(), spot.origin.clone()))),
        }
    }
}

/// For each cell of a walk, its coordinates in the grid and the array element at which it begins.
pub(super) fn places_of(walk: Walk) -> impl Iterator<Item = (Vec<u64>, Vec<u64>)> {
    walk.map(|cell| (cell.at, cell.origin))
}
