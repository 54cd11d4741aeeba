//! The box that a list of chunks makes up.

use std::sync::Arc;

use cuzarr::internal::plan::KeyOf;
use cuzarr::plan::{AxisSelection, Selection};

/// The part of one chunk along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first element, in the chunk.
    pub start: u64,
    /// How many elements.
    pub count: u64,
    /// Distance between neighbours.
    pub step: u64,
    /// The place of the first element in the result; `None` when the result does not have the dimension.
    pub out_start: Option<u64>,
}

/// A box of elements, as a selection of an array that only has the chunks of the box.
pub struct Grid {
    /// The array's shape.
    pub shape: Vec<u64>,
    /// The box.
    pub selection: Selection,
    /// The start of the box in the result, per dimension of the result.
    pub out_start: Vec<u64>,
    /// The extents of the box in the result.
    pub out_shape: Vec<u64>,
    /// The item of each chunk.
    pub places: Arc<Places>,
}

/// A map from places in a grid to items.
pub struct Places {
    /// The places of chunks along each dimension, ascending.
    positions: Vec<Vec<u64>>,
    /// The item of each chunk, C order of `positions`.
    items: Vec<usize>,
}

impl Places {
    fn item(&self, at: &[u64]) -> Option<usize> {
        let mut linear = 0;
        for (positions, at) in self.positions.iter().zip(at) {
            linear = linear * positions.len() + positions.binary_search(at).ok()?;
        }
        self.items.get(linear).copied()
    }

    /// A function from places to keys. A plan only asks for places where something was selected.
    pub fn keys(self: &Arc<Places>, keys: &Arc<[String]>) -> KeyOf {
        let (places, keys) = (Arc::clone(self), Arc::clone(keys));
        Arc::new(move |at| places.item(at).map(|item| keys[item].clone()).unwrap_or_default())
    }
}

/// One dimension of a box while the box is built.
struct Axis {
    /// The different parts along this dimension, by their place in the result.
    parts: Vec<Part>,
    start: u64,
    step: u64,
    positions: Vec<u64>,
}

impl Axis {
    fn new(mut parts: Vec<Part>, chunk: u64) -> Option<Axis> {
        parts.sort_by_key(|part| part.out_start);
        parts.dedup();
        let first = *parts.first()?;
        let (out_first, step) = (first.out_start.unwrap_or(0), first.step);
        if parts.len() > 1 && first.out_start.is_none() {
            return None;
        }
        let (mut expected, mut positions) = (out_first, Vec::with_capacity(parts.len()));
        for part in &parts {
            // The place of the part's first element in an array whose first chunk is the box's first.
            let element = (part.out_start.unwrap_or(0) - out_first).checked_mul(step)?.checked_add(first.start)?;
            let end = part.start.checked_add((part.count.checked_sub(1)?).checked_mul(step)?)?;
            let origin = element.checked_sub(part.start)?;
            let fits = part.step == step && part.out_start.unwrap_or(0) == expected && end < chunk;
            if !fits || origin % chunk != 0 || positions.last().is_some_and(|&last| last >= origin / chunk) {
                return None;
            }
            positions.push(origin / chunk);
            expected += part.count;
        }
        Some(Axis { parts, start: first.start, step, positions })
    }

    fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count).sum()
    }
}

impl Grid {
    /// The box that parts of chunks of `chunk_shape` make up; `None` when they do not make up a box. An item is `complete` when
    /// every element that the array has of its chunk is selected.
    pub fn of_parts(items: &[(Vec<Part>, bool)], chunk_shape: &[u64]) -> Option<Grid> {
        let ndim = chunk_shape.len();
        if chunk_shape.contains(&0) {
            return None;
        }
        let axis = |dim: usize| Axis::new(items.iter().map(|(parts, _)| parts[dim]).collect(), chunk_shape[dim]);
        let axes = (0..ndim).map(axis).collect::<Option<Vec<_>>>()?;
        let total = axes.iter().try_fold(1usize, |total, axis| total.checked_mul(axis.parts.len()))?;
        if total != items.len() {
            return None;
        }
        let mut places = vec![usize::MAX; total];
        let mut shape: Vec<u64> = Vec::with_capacity(ndim);
        for (dim, axis) in axes.iter().enumerate() {
            shape.push((axis.positions.last()? + 1).checked_mul(chunk_shape[dim])?);
        }
        for (item, (parts, complete)) in items.iter().enumerate() {
            let mut linear = 0;
            for (dim, (axis, part)) in axes.iter().zip(parts).enumerate() {
                let rank = axis.parts.binary_search_by_key(&part.out_start, |known| known.out_start).ok()?;
                linear = linear * axis.parts.len() + rank;
                if *complete && rank + 1 == axis.parts.len() {
                    // The array ends here, so the rest of the chunk need not be kept.
                    shape[dim] = axis.positions[rank] * chunk_shape[dim] + part.start + part.count;
                }
            }
            let place = &mut places[linear];
            if *place != usize::MAX {
                return None;
            }
            *place = item;
        }
        let select = |axis: &Axis| AxisSelection {
            start: axis.start,
            count: axis.count(),
            step: axis.step,
            dropped: axis.parts[0].out_start.is_none(),
        };
        let selection = Selection::new(axes.iter().map(select).collect()).ok()?;
        let out_start = axes.iter().filter_map(|axis| axis.parts[0].out_start).collect();
        let positions = axes.into_iter().map(|axis| axis.positions).collect();
        let places = Arc::new(Places { positions, items: places });
        Some(Grid { shape, out_shape: selection.shape(), selection, out_start, places })
    }

    /// A box of an array of `shape`; `None` when the array has no such box. Where the box ends within a chunk, the chunk counts
    /// as whole, so that its elements behind the array's edge are kept. With `keep_beyond` every chunk counts as whole.
    pub fn of_box(
        array_shape: &[u64],
        chunk_shape: &[u64],
        axes: Vec<AxisSelection>,
        keep_beyond: bool,
    ) -> Option<Grid> {
        let extents: Vec<(u64, u64)> = array_shape.iter().copied().zip(chunk_shape.iter().copied()).collect();
        if [axes.len(), chunk_shape.len()] != [array_shape.len(); 2] || chunk_shape.contains(&0) {
            return None;
        }
        let covers = axes.iter().zip(&extents).map(|(axis, &(extent, chunk))| covers(axis, extent, chunk));
        let covers = covers.collect::<Option<Vec<_>>>()?;
        let all_have_whole = |dim: usize| covers.iter().enumerate().all(|(other, (any, _))| other == dim || *any);
        let mut shape = Vec::with_capacity(extents.len());
        for (dim, &(extent, chunk)) in extents.iter().enumerate() {
            let is_whole = covers[dim].1 && all_have_whole(dim) && !keep_beyond;
            shape.push(if is_whole { extent } else { extent.div_ceil(chunk).checked_mul(chunk)? });
        }
        let selection = Selection::new(axes).ok()?;
        let out_shape = selection.shape();
        let places = Arc::new(Places { positions: Vec::new(), items: Vec::new() });
        Some(Grid { shape, out_start: vec![0; out_shape.len()], out_shape, selection, places })
    }

    /// A box of whole chunks, stacked along the first dimension.
    pub fn stacked(count: usize, chunk_shape: &[u64]) -> Option<Grid> {
        let whole = |number: usize| {
            let part = |(dim, &extent): (usize, &u64)| Part {
                start: 0,
                count: extent,
                step: 1,
                out_start: Some(if dim == 0 { number as u64 * extent } else { 0 }),
            };
            (chunk_shape.iter().enumerate().map(part).collect(), false)
        };
        Grid::of_parts(&(0..count).map(whole).collect::<Vec<_>>(), chunk_shape)
    }
}

/// Whether a selection covers some chunk of an array of `extent` elements, and the last chunk that it touches. `None` when it
/// selects nothing, or leaves the array.
fn covers(axis: &AxisSelection, extent: u64, chunk: u64) -> Option<(bool, bool)> {
    let last = axis.count.checked_sub(1)?.checked_mul(axis.step)?.checked_add(axis.start)?;
    if last >= extent {
        return None;
    }
    let is_dense = axis.step == 1 || chunk == 1;
    let whole = |number: u64| {
        let first = number.saturating_mul(chunk);
        is_dense && axis.start <= first && first <= last && first.saturating_add(chunk).min(extent) <= last + 1
    };
    Some((whole(axis.start.div_ceil(chunk)), whole(last / chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_box(shape: &[u64], chunks: &[u64], axes: &[(u64, u64, u64)], keep_beyond: bool) -> Option<Grid> {
        let axis = |&(start, count, step): &(u64, u64, u64)| AxisSelection { start, count, step, dropped: false };
        Grid::of_box(shape, chunks, axes.iter().map(axis).collect(), keep_beyond)
    }

    #[test]
    fn a_box_of_an_array_keeps_what_lies_behind_the_edge_of_chunks_it_does_not_cover() {
        let shape = |axes: &[(u64, u64, u64)]| of_box(&[10, 10], &[4, 4], axes, false).unwrap().shape;
        assert_eq!(shape(&[(0, 10, 1), (0, 10, 1)]), [10, 10]);
        assert_eq!(shape(&[(8, 2, 1), (2, 6, 1)]), [10, 10], "the last columns are not touched");
        assert_eq!(shape(&[(8, 2, 1), (2, 7, 1)]), [10, 12], "one of the last two columns");
        assert_eq!(shape(&[(9, 1, 1), (0, 10, 1)]), [12, 12], "half of the last rows");
        assert_eq!(shape(&[(0, 10, 1), (9, 1, 1)]), [12, 12]);
        assert_eq!(shape(&[(0, 5, 2), (0, 10, 1)]), [12, 12], "with gaps");
        assert_eq!(of_box(&[10], &[4], &[(0, 10, 1)], true).unwrap().shape, [12]);
        assert_eq!(of_box(&[3], &[1], &[(0, 2, 2)], false).unwrap().shape, [3]);
        assert!(of_box(&[10], &[4], &[(0, 11, 1)], false).is_none());
        assert!(of_box(&[10], &[4], &[(0, 0, 1)], false).is_none());
        assert!(of_box(&[u64::MAX], &[4], &[(1, u64::MAX, u64::MAX)], false).is_none());
        assert!(of_box(&[], &[], &[], false).unwrap().shape.is_empty());
    }

    fn part(start: u64, count: u64, step: u64, out_start: u64) -> Part {
        Part { start, count, step, out_start: Some(out_start) }
    }

    fn axes(grid: &Grid) -> Vec<(u64, u64, u64)> {
        grid.selection.axes().unwrap().iter().map(|axis| (axis.start, axis.count, axis.step)).collect()
    }

    #[test]
    fn neighbouring_chunks_are_one_box() {
        let items = [(vec![part(2, 2, 1, 0)], false), (vec![part(0, 4, 1, 2)], true), (vec![part(0, 1, 1, 6)], false)];
        let grid = Grid::of_parts(&items, &[4]).unwrap();
        assert_eq!((axes(&grid), grid.shape.clone()), (vec![(2, 7, 1)], vec![12]));
        assert_eq!((grid.out_start.clone(), grid.out_shape.clone()), (vec![0], vec![7]));
        let keys: Arc<[String]> = ["a", "b", "c"].map(String::from).into();
        assert_eq!((0..3).map(|at| grid.places.keys(&keys)(&[at])).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn a_step_jumps_over_chunks() {
        // Every 9th element from 1 on, in chunks of 4: elements 1, 10, 19 of chunks 0, 2, 4.
        let items = [(vec![part(1, 1, 9, 0)], false), (vec![part(2, 1, 9, 1)], false), (vec![part(3, 1, 9, 2)], false)];
        let grid = Grid::of_parts(&items, &[4]).unwrap();
        assert_eq!((axes(&grid), grid.shape.clone()), (vec![(1, 3, 9)], vec![20]));
        let keys: Arc<[String]> = ["a", "b", "c"].map(String::from).into();
        assert_eq!(grid.places.keys(&keys)(&[4]), "c");
    }

    #[test]
    fn integers_drop_their_dimension_and_items_come_in_any_order() {
        let row = Part { start: 3, count: 1, step: 1, out_start: None };
        let items = [(vec![row, part(0, 3, 1, 2)], true), (vec![row, part(1, 2, 1, 0)], true)];
        let grid = Grid::of_parts(&items, &[4, 3]).unwrap();
        assert_eq!((grid.out_shape.clone(), grid.shape.clone()), (vec![5], vec![4, 6]));
        let keys: Arc<[String]> = ["second", "first"].map(String::from).into();
        assert_eq!(grid.places.keys(&keys)(&[0, 1]), "second");
    }

    #[test]
    fn a_complete_last_chunk_ends_the_array() {
        let items = [(vec![part(0, 4, 1, 0)], true), (vec![part(0, 3, 1, 4)], true)];
        assert_eq!(Grid::of_parts(&items, &[4]).unwrap().shape, [7]);
        let items = [(vec![part(0, 4, 1, 0)], true), (vec![part(0, 3, 1, 4)], false)];
        assert_eq!(Grid::of_parts(&items, &[4]).unwrap().shape, [8]);
    }

    #[test]
    fn what_is_no_box_is_refused() {
        let refused = |items: &[(Vec<Part>, bool)]| Grid::of_parts(items, &[4, 4]).is_none();
        let whole = |row: u64, column: u64| (vec![part(0, 4, 1, 4 * row), part(0, 4, 1, 4 * column)], true);
        assert!(!refused(&[whole(0, 0), whole(0, 1), whole(1, 0), whole(1, 1)]));
        assert!(refused(&[whole(0, 0), whole(0, 1), whole(1, 0)]), "a corner is missing");
        assert!(refused(&[whole(0, 0), whole(0, 0)]), "twice the same");
        assert!(refused(&[whole(0, 0), whole(0, 2)]), "a gap in the result");
        let short = (vec![part(0, 4, 1, 0), part(0, 3, 1, 0)], false);
        assert!(refused(&[short.clone(), (vec![part(0, 4, 1, 0), part(0, 4, 1, 3)], false)]), "a gap in the array");
        assert!(refused(&[(vec![part(0, 4, 1, 0), part(2, 3, 1, 0)], false)]), "beyond the chunk");
        assert!(refused(&[
            (vec![part(0, 4, 1, 0), part(0, 2, 1, 0)], false),
            (vec![part(0, 4, 1, 0), part(0, 2, 2, 2)], false)
        ]));
        assert!(refused(&[]), "nothing at all");
        assert!(Grid::of_parts(&[(vec![part(0, 1, 1, 0)], false)], &[0]).is_none(), "chunks without elements");
        let most = u64::MAX;
        assert!(Grid::of_parts(&[(vec![part(most, most, most, most)], false)], &[4]).is_none());
    }

    #[test]
    fn no_dimensions_are_one_chunk() {
        let grid = Grid::of_parts(&[(Vec::new(), true)], &[]).unwrap();
        assert!(grid.shape.is_empty() && grid.out_shape.is_empty());
        assert!(Grid::of_parts(&[(Vec::new(), true), (Vec::new(), true)], &[]).is_none());
    }

    #[test]
    fn stacked_chunks_lie_behind_each_other() {
        let grid = Grid::stacked(3, &[2, 5]).unwrap();
        assert_eq!((grid.shape.clone(), grid.out_shape.clone()), (vec![6, 5], vec![6, 5]));
    }
}
