//! Parts of a rectilinear grid: the chunks of one shape, moved together, are an array with a regular grid.
//!
//! A call for a rectilinear array is one call per part, each with the codecs bound to the shape of its chunks. A part counts its
//! elements without gaps. So the selected elements of a part are stretches: each is a range in the part's own indices, and has its
//! place in the result. The chunks of a calendar, for example, have four lengths, and so four parts, however many years there are.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::selection::{AxisSelection, Selection};
use super::stretches::{Stretch, Stretches};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{ChunkGrid, Edges, LengthRun, RectilinearGrid};

/// Most shapes of chunks of one call. Each takes a call of its own.
const MOST_PARTS: usize = 1 << 20;

/// The chunks of one shape.
#[derive(Clone, Debug)]
pub(crate) struct GridPart {
    /// Elements of each chunk.
    pub(crate) chunk_shape: Vec<u64>,
    axes: Vec<PartAxis>,
}

/// The chunks of one length along one dimension.
#[derive(Clone, Debug)]
pub(crate) struct PartAxis {
    /// `None` where these are all chunks, which need not be moved.
    runs: Option<PartRuns>,
    /// Elements of all these chunks; the array's end cuts off the last one.
    extent: u64,
    edge: u64,
}

/// Runs of one length that begin inside the array, sorted by place: a part of all runs of the grid, which is not copied.
#[derive(Clone, Debug)]
struct PartRuns {
    sorted: Arc<[LengthRun]>,
    own: Range<usize>,
    /// The array's extent, which cuts off the last run.
    array_extent: u64,
}

impl PartRuns {
    /// The runs of a length.
    fn new(sorted: &Arc<[LengthRun]>, edge: u64, array_extent: u64) -> PartRuns {
        let below = |start: u64| sorted.partition_point(|one| (one.run.edge, one.run.start) < (edge, start));
        PartRuns { sorted: Arc::clone(sorted), own: below(0)..below(array_extent), array_extent }
    }

    fn list(&self) -> &[LengthRun] {
        &self.sorted[self.own.clone()]
    }

    /// The index behind a run's last element inside the array.
    fn end(&self, one: &LengthRun) -> u64 {
        one.run.end().min(self.array_extent)
    }

    /// Elements of all these chunks.
    fn extent(&self) -> u64 {
        self.list().last().map_or(0, |last| last.own_start() + (self.end(last) - last.run.start))
    }

    /// The runs from the one on that holds an element, or is the next one behind it.
    fn list_from(&self, index: u64) -> &[LengthRun] {
        let list = self.list();
        &list[list.partition_point(|one| self.end(one) <= index)..]
    }
}

impl PartAxis {
    /// The chunks of each length that hold elements between `first` and `last`, in the order in which the lengths are met.
    fn all(grid: &RectilinearGrid, dim: usize, extent: u64, (first, last): (u64, u64)) -> Vec<PartAxis> {
        let runs = match &grid.axes()[dim] {
            Edges::Even(edge) => return vec![PartAxis { runs: None, extent, edge: *edge }],
            Edges::Runs(runs) => runs,
        };
        // Neighbours have different lengths.
        if let Some(only) = runs.first().filter(|_| runs.get(1).is_none_or(|next| next.start >= extent)) {
            return vec![PartAxis { runs: None, extent: extent.min(only.end()), edge: only.edge }];
        }
        let begin = runs.partition_point(|run| run.end() <= first);
        let end = runs.partition_point(|run| run.start <= last);
        let mut met = HashSet::new();
        let edges = runs[begin..end.max(begin)].iter().map(|run| run.edge).filter(|&edge| met.insert(edge));
        let axis = |edge: u64| {
            let runs = PartRuns::new(grid.sorted_runs(dim), edge, extent);
            PartAxis { extent: runs.extent(), runs: Some(runs), edge }
        };
        edges.map(axis).collect()
    }

    /// A chunk's number in the array.
    fn chunk(&self, own: u64) -> u64 {
        let Some(runs) = &self.runs else { return own };
        let list = runs.list();
        // A chunk below the part's count lies in a run.
        let one = list[list.partition_point(|one| one.own_chunk <= own) - 1];
        one.run.first_chunk + (own - one.own_chunk)
    }

    /// The stretches of a range that lie in these chunks.
    fn stretches(&self, range: &AxisSelection) -> Option<Stretches> {
        let runs = self.runs.as_ref()?;
        let first_from = |index: u64| index.saturating_sub(range.start).div_ceil(range.step).min(range.count);
        let last = range.start + range.count.saturating_sub(1) * range.step;
        let mut list = Vec::new();
        let mut position = 0;
        for one in runs.list_from(range.start).iter().take_while(|one| one.run.start <= last) {
            let (place, end) = (first_from(one.run.start), first_from(runs.end(one)));
            if place < end {
                let index = range.start + place * range.step - one.run.start + one.own_start();
                list.push(Stretch { position, index, place, count: end - place });
                position += end - place;
            }
        }
        Some(Stretches { list, count: position, step: range.step, dropped: range.dropped })
    }

    /// The index in the part of an element of the array; `None` when it lies in other chunks.
    fn own(&self, index: u64) -> Option<u64> {
        let Some(runs) = &self.runs else { return Some(index) };
        let one = runs.list_from(index).first()?;
        (one.run.start <= index).then(|| index - one.run.start + one.own_start())
    }
}

impl GridPart {
    /// The shape of the array that these chunks make up.
    pub(crate) fn shape(&self) -> Vec<u64> {
        self.axes.iter().map(|axis| axis.extent).collect()
    }

    /// The place of a chunk in the array's grid.
    pub(crate) fn chunk(&self, own: &[u64]) -> Vec<u64> {
        own.iter().zip(&self.axes).map(|(&own, axis)| axis.chunk(own)).collect()
    }

    /// The stretches of a range along a dimension; `None` where the part has all chunks.
    pub(crate) fn stretches(&self, dim: usize, range: &AxisSelection) -> Option<Stretches> {
        self.axes[dim].stretches(range)
    }

    /// The index in the part of an element along a dimension; `None` when it lies in other chunks.
    pub(crate) fn own(&self, dim: usize, index: u64) -> Option<u64> {
        self.axes[dim].own(index)
    }
}

/// The parts of a grid that a selection touches, or may touch.
///
/// # Errors
/// `SelectionInvalid` when the selection does not fit the array; `Unsupported` when chunks have too many shapes.
pub(crate) fn parts_touched(grid: &RectilinearGrid, shape: &[u64], selection: &Selection) -> Result<Vec<GridPart>> {
    selection.check(shape)?;
    let Some(bounds) = selection.bounds() else { return Ok(Vec::new()) };
    let axes = shape.iter().zip(bounds).enumerate();
    let axes: Vec<Vec<PartAxis>> =
        axes.map(|(dim, (&extent, bounds))| PartAxis::all(grid, dim, extent, bounds)).collect();
    let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.len()));
    if count.is_none_or(|count| count > MOST_PARTS) {
        let message = format!("selection {selection} touches chunks of more than {MOST_PARTS} different shapes");
        return Err(Error::new(ErrorKind::Unsupported, message).with_hint("select fewer chunks at once"));
    }
    let mut parts = vec![GridPart { chunk_shape: Vec::new(), axes: Vec::new() }];
    for choices in &axes {
        let with = |part: &GridPart, axis: &PartAxis| GridPart {
            chunk_shape: [&part.chunk_shape[..], &[axis.edge]].concat(),
            axes: [&part.axes[..], std::slice::from_ref(axis)].concat(),
        };
        parts = parts.iter().flat_map(|part| choices.iter().map(move |axis| with(part, axis))).collect();
    }
    Ok(parts)
}

/// The first and last object along each dimension that a selection touches; `None` when there are none.
///
/// # Errors
/// `SelectionInvalid` when the selection does not fit the array.
pub(crate) fn chunk_bounds(grid: &ChunkGrid, shape: &[u64], selection: &Selection) -> Result<Option<Vec<(u64, u64)>>> {
    selection.check(shape)?;
    let Some(bounds) = selection.bounds() else { return Ok(None) };
    let (first, last): (Vec<u64>, Vec<u64>) = bounds.into_iter().unzip();
    Ok(Some(grid.chunk_of(&first)?.into_iter().zip(grid.chunk_of(&last)?).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(edges: &[Vec<u64>], shape: &[u64], selection: &Selection) -> Vec<(Vec<u64>, Vec<u64>)> {
        let grid = RectilinearGrid::new(edges).unwrap();
        let parts = parts_touched(&grid, shape, selection).unwrap();
        parts.into_iter().map(|part| (part.chunk_shape.clone(), part.shape())).collect()
    }

    #[test]
    fn parts_are_the_lengths_that_are_touched_in_their_order() {
        let edges = [vec![3, 2, 3, 4, 2, 2]];
        let region = |start, extent| Selection::region(&[start], &[extent]).unwrap();
        assert_eq!(
            parts(&edges, &[15], &region(4, 1)),
            [(vec![2], vec![5])],
            "the array's end cuts off the last chunk"
        );
        let all = [(vec![3], vec![6]), (vec![2], vec![5]), (vec![4], vec![4])];
        assert_eq!(parts(&edges, &[15], &region(0, 15)), all);
        assert_eq!(parts(&edges, &[3], &region(0, 3)), [(vec![3], vec![3])], "the first run is all of a short array");
    }

    #[test]
    fn elements_are_found_in_parts_of_many_runs() {
        let edges: Vec<u64> = (0..200).map(|chunk| [3, 1, 4][chunk % 3]).collect();
        let extent: u64 = edges.iter().sum();
        let grid = RectilinearGrid::new(std::slice::from_ref(&edges)).unwrap();
        let whole = Selection::all(&[extent]);
        let parts = parts_touched(&grid, &[extent], &whole).unwrap();
        let mut owners = vec![0; extent as usize];
        for part in &parts {
            let mut expected = 0;
            for index in 0..extent {
                if let Some(own) = part.own(0, index) {
                    assert_eq!(own, expected, "elements of a part lie without gaps");
                    expected += 1;
                    owners[index as usize] += 1;
                    let chunk = part.chunk(&[own / part.chunk_shape[0]]);
                    assert_eq!(chunk, grid.chunk_of(&[index]).unwrap());
                }
            }
            assert_eq!(part.shape(), [expected]);
        }
        assert!(owners.iter().all(|&count| count == 1));
    }
}
