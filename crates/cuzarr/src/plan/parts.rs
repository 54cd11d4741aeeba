//! Parts of a rectilinear grid: the chunks of one shape, moved together, are an array with a regular grid.
//!
//! A call for a rectilinear array is one call per part, each with the codecs bound to the shape of its chunks. A part counts its
//! elements without gaps. So the selected elements of a part are stretches: each is a range in the part's own indices, and has its
//! place in the result. The chunks of a calendar, for example, have four lengths, and so four parts, however many years there are.

use std::sync::Arc;

use super::selection::{AxisSelection, Selection};
use super::stretches::{Stretch, Stretches};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{ChunkGrid, Edges, RectilinearGrid};

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
    runs: Option<Arc<[PartRun]>>,
    /// Elements of all these chunks; the array's end cuts off the last one.
    extent: u64,
    edge: u64,
}

/// Chunks that follow each other in the array and in the part.
#[derive(Clone, Copy, Debug)]
struct PartRun {
    /// The first chunk's number in the array, and in the part.
    first_chunk: u64,
    own_chunk: u64,
    /// The first element's index in the array, and in the part.
    start: u64,
    own_start: u64,
    /// Number of elements inside the array.
    len: u64,
}

impl PartAxis {
    /// The chunks of each length that hold elements between `first` and `last`.
    fn all(edges: &Edges, extent: u64, bounds: (u64, u64)) -> Vec<PartAxis> {
        let runs = match edges {
            Edges::Even(edge) => return vec![PartAxis { runs: None, extent, edge: *edge }],
            Edges::Runs(runs) => runs,
        };
        let mut axes: Vec<(u64, Vec<PartRun>)> = Vec::new();
        for run in runs.iter().filter(|run| run.start < extent) {
            let len = run.end().min(extent) - run.start;
            let at = axes.iter().position(|(edge, _)| *edge == run.edge).unwrap_or_else(|| {
                axes.push((run.edge, Vec::new()));
                axes.len() - 1
            });
            let before = axes[at].1.last();
            let (own_chunk, own_start) =
                before.map_or((0, 0), |last| (last.own_chunk + last.len / run.edge, last.own_start + last.len));
            let (first_chunk, start) = (run.first_chunk, run.start);
            axes[at].1.push(PartRun { first_chunk, own_chunk, start, own_start, len });
        }
        let is_alone = axes.len() == 1;
        let touched = axes
            .into_iter()
            .filter(|(_, runs)| runs.iter().any(|run| run.start <= bounds.1 && bounds.0 < run.start + run.len));
        let axis = |(edge, runs): (u64, Vec<PartRun>)| {
            let extent = runs.last().map_or(0, |run| run.own_start + run.len);
            PartAxis { runs: (!is_alone).then(|| runs.into()), extent, edge }
        };
        touched.map(axis).collect()
    }

    /// A chunk's number in the array.
    fn chunk(&self, own: u64) -> u64 {
        let Some(runs) = &self.runs else { return own };
        // A chunk below the part's count lies in a run.
        let run = runs[runs.partition_point(|run| run.own_chunk <= own) - 1];
        run.first_chunk + (own - run.own_chunk)
    }

    /// The stretches of a range that lie in these chunks.
    fn stretches(&self, range: &AxisSelection) -> Option<Stretches> {
        let runs = self.runs.as_ref()?;
        let first_from = |index: u64| index.saturating_sub(range.start).div_ceil(range.step).min(range.count);
        let mut list = Vec::new();
        let mut position = 0;
        for run in runs.iter() {
            let (place, end) = (first_from(run.start), first_from(run.start + run.len));
            if place < end {
                let index = range.start + place * range.step - run.start + run.own_start;
                list.push(Stretch { position, index, place, count: end - place });
                position += end - place;
            }
        }
        Some(Stretches { list, count: position, step: range.step, dropped: range.dropped })
    }

    /// The index in the part of an element of the array; `None` when it lies in other chunks.
    fn own(&self, index: u64) -> Option<u64> {
        let Some(runs) = &self.runs else { return Some(index) };
        let run = runs.get(runs.partition_point(|run| run.start + run.len <= index))?;
        (run.start <= index).then(|| index - run.start + run.own_start)
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
    let axes = grid.axes().iter().zip(shape).zip(bounds);
    let axes: Vec<Vec<PartAxis>> =
        axes.map(|((edges, &extent), bounds)| PartAxis::all(edges, extent, bounds)).collect();
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
