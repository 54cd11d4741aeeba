//! The box that a list of chunks makes up.

#[path = "../src/pipeline/grid.rs"]
mod grid;

use std::sync::Arc;

use cuzarr::plan::AxisSelection;
use grid::{Grid, Part};

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
