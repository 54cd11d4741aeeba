//! The rectilinear chunk grid: chunks differ in length along each dimension.
//! <https://github.com/zarr-developers/zarr-extensions/tree/main/chunk-grids/rectilinear>
//!
//! Equal consecutive lengths are kept as one run, as in the document. So a small document never becomes a large list.

use std::ops::Range;

use serde_json::{Value, json};

use super::{MAX_EXTENT, check_ndim, invalid};
use crate::{Error, ErrorKind, Result};

/// Consecutive chunks along a dimension that have one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Length of each chunk of the run, in elements.
    pub edge: u64,
    /// Number of chunks in the run.
    pub count: u64,
    /// The number, along the dimension, of the first chunk in this run.
    pub first_chunk: u64,
    /// Index, along the dimension, of the run's first element.
    pub start: u64,
}

impl Run {
    /// The index, along the dimension, after the run's last element.
    pub fn end(&self) -> u64 {
        self.start + self.edge * self.count // checked when the run was made
    }
}

/// How one dimension is divided into chunks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Edges {
    /// All chunks along the dimension have this length, and there are as many as the array needs.
    Even(u64),
    /// All chunks along the dimension in order, as runs of chunks of equal length. They cover the array, and may reach
    /// beyond its end.
    Runs(Vec<Run>),
}

/// A grid whose chunks may differ in length along each dimension.
///
/// ```
/// use cuzarr::meta::RectilinearGrid;
/// let grid = RectilinearGrid::new(&[vec![16, 10], vec![24, 14]])?;
/// assert_eq!(grid.chunk_counts(&[26, 38])?, [2, 2]);
/// assert_eq!(grid.chunk_of(&[20, 15])?, [1, 0]);
/// assert_eq!(grid.chunk_region(&[1, 0], &[26, 38])?, [16..26, 0..24]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RectilinearGrid {
    axes: Vec<Edges>,
    /// Length of the longest chunk along each dimension.
    largest: Vec<u64>,
}

/// The lengths of chunks along a dimension while they are collected, with equal neighbours joined to runs.
#[derive(Default)]
struct Runs(Vec<Run>);

impl Runs {
    /// Adds `count` chunks of length `edge`; `None` if they are empty, or end beyond the largest extent of an array.
    fn add(&mut self, edge: u64, count: u64) -> Option<()> {
        if edge == 0 || count == 0 {
            return None;
        }
        let last = self.0.last();
        let (first_chunk, start) = last.map_or((0, 0), |run| (run.first_chunk + run.count, run.end()));
        edge.checked_mul(count)?.checked_add(start).filter(|&end| end <= MAX_EXTENT)?;
        match self.0.last_mut() {
            Some(run) if run.edge == edge => run.count += count,
            _ => self.0.push(Run { edge, count, first_chunk, start }),
        }
        Some(())
    }
}

impl RectilinearGrid {
    /// Makes a grid from the length of every chunk along each dimension.
    ///
    /// # Errors
    /// `MetadataInvalid` when a dimension has no chunks, a chunk has no elements, or chunks end beyond the largest
    /// extent of an array.
    pub fn new(edges: &[Vec<u64>]) -> Result<Self> {
        check_ndim(edges.len(), "chunk_shapes")?;
        Ok(RectilinearGrid::of(edges.iter().map(|edges| Edges::listed(edges)).collect::<Result<_>>()?))
    }

    /// Makes a grid from the division of each dimension into chunks.
    pub(crate) fn of(axes: Vec<Edges>) -> RectilinearGrid {
        let largest = |axis: &Edges| match axis {
            Edges::Even(edge) => *edge,
            Edges::Runs(runs) => runs.iter().map(|run| run.edge).max().unwrap_or(1),
        };
        RectilinearGrid { largest: axes.iter().map(largest).collect(), axes }
    }

    /// Parses the configuration of a rectilinear grid in a v3 document.
    pub(crate) fn from_configuration(configuration: &serde_json::Map<String, Value>) -> Result<Self> {
        match configuration.get("kind") {
            Some(Value::String(kind)) if kind == "inline" => {}
            Some(kind) => {
                let message = format!(
                    "member 'chunk_grid.configuration.kind': got {}, expected \"inline\"",
                    super::abbreviate(kind)
                );
                return Err(Error::new(ErrorKind::UnsupportedFeature, message));
            }
            None => {
                return Err(invalid("chunk_grid", &json!(configuration), "a configuration with kind and chunk_shapes"));
            }
        }
        let member = "chunk_grid.configuration.chunk_shapes";
        let shapes = configuration.get("chunk_shapes").unwrap_or(&Value::Null);
        let Value::Array(axes) = shapes else {
            return Err(invalid(member, shapes, "an array with an entry per dimension"));
        };
        check_ndim(axes.len(), member)?;
        let axis = |axis: &Value| parse_axis(axis).ok_or_else(|| invalid(member, axis, &expected_edges()));
        Ok(RectilinearGrid::of(axes.iter().map(axis).collect::<Result<_>>()?))
    }

    /// Writes the `chunk_grid` member of a v3 document. Neighbours of equal length are written as a run.
    pub(crate) fn to_json(&self) -> Value {
        let run = |run: &Run| if run.count == 1 { json!(run.edge) } else { json!([run.edge, run.count]) };
        let axis = |axis: &Edges| match axis {
            Edges::Even(edge) => json!(edge),
            Edges::Runs(runs) => runs.iter().map(run).collect(),
        };
        let shapes: Value = self.axes.iter().map(axis).collect();
        json!({"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}})
    }

    /// For each dimension, how it is divided into chunks.
    pub fn axes(&self) -> &[Edges] {
        &self.axes
    }

    /// The length of the chunks along a dimension, if all have the same length, even the last one; else `None`.
    pub(crate) fn even_edge(&self, dim: usize) -> Option<u64> {
        match &self.axes[dim] {
            Edges::Even(edge) => Some(*edge),
            Edges::Runs(runs) => match &runs[..] {
                [only] => Some(only.edge),
                _ => None,
            },
        }
    }

    /// The number and the range of the chunk that holds element `index` along dimension `dim`. Elements after the last
    /// listed chunk belong to one more chunk, without an end.
    pub(crate) fn chunk_along(&self, dim: usize, index: u64) -> (u64, Range<u64>) {
        let axis = &self.axes[dim];
        let number = axis.chunk_of(index);
        (number, axis.range(number, u64::MAX))
    }

    /// Number of dimensions of the grid.
    pub fn ndim(&self) -> usize {
        self.axes.len()
    }

    /// The shape of the largest chunk: along each dimension, the length of the longest chunk.
    pub fn largest_chunk(&self) -> &[u64] {
        &self.largest
    }

    /// Number of chunks along each dimension, for an array of `shape`. If the listed chunks end before the array, one
    /// more chunk is counted. An array that grows gets such a chunk.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs.
    pub fn chunk_counts(&self, shape: &[u64]) -> Result<Vec<u64>> {
        self.check_ndim(shape.len(), "shape")?;
        Ok(self.axes.iter().zip(shape).map(|(axis, &extent)| axis.count(extent)).collect())
    }

    /// The position in the grid of the chunk that holds the element at `index`. Elements after the last listed chunk
    /// are in one more chunk.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs.
    pub fn chunk_of(&self, index: &[u64]) -> Result<Vec<u64>> {
        self.check_ndim(index.len(), "element index")?;
        Ok(self.axes.iter().zip(index).map(|(axis, &at)| axis.chunk_of(at)).collect())
    }

    /// The region of the array that a chunk covers, cut off at the array's `shape`.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of dimensions differs, or there is no such chunk.
    pub fn chunk_region(&self, chunk: &[u64], shape: &[u64]) -> Result<Vec<Range<u64>>> {
        self.check_ndim(chunk.len(), "chunk index")?;
        let counts = self.chunk_counts(shape)?;
        if chunk.iter().zip(&counts).any(|(at, count)| at >= count) {
            let message = format!("chunk index: got {chunk:?}, expected one below {counts:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let region = self.axes.iter().zip(chunk).zip(shape).map(|((axis, &at), &extent)| {
            let range = axis.range(at, extent);
            range.start..range.end.min(extent)
        });
        Ok(region.collect())
    }

    /// Refuses a shape beyond the end of the listed chunks.
    pub(crate) fn check_covers(&self, shape: &[u64], member: &str) -> Result<()> {
        if self.ndim() != shape.len() {
            let got = format!("chunks along {} dimensions", self.ndim());
            let message = format!("member '{member}': got {got}, expected {} as in 'shape'", shape.len());
            return Err(Error::new(ErrorKind::MetadataInvalid, message));
        }
        for (dim, (axis, &extent)) in self.axes.iter().zip(shape).enumerate() {
            if let Edges::Runs(runs) = axis
                && runs.last().is_none_or(|run| run.end() < extent)
            {
                let end = runs.last().map_or(0, Run::end);
                let message =
                    format!("member '{member}': got {end} elements along dimension {dim}, expected at least {extent}");
                return Err(Error::new(ErrorKind::MetadataInvalid, message));
            }
        }
        Ok(())
    }

    /// Refuses chunks whose lengths are not multiples of `inner`, the shape of the chunks inside shards.
    pub(crate) fn check_multiples(&self, inner: &[u64], member: &str) -> Result<()> {
        for (dim, (axis, &inner)) in self.axes.iter().zip(inner).enumerate() {
            if let Some(edge) = axis.distinct().into_iter().find(|edge| inner == 0 || !edge.is_multiple_of(inner)) {
                let message = format!(
                    "member '{member}': got a shard of {edge} elements along dimension {dim}, expected a multiple of {inner}"
                );
                return Err(Error::new(ErrorKind::MetadataInvalid, message));
            }
        }
        Ok(())
    }

    /// Returns this grid, extended to cover an array of `shape`. If the listed chunks end before the array, one more
    /// chunk covers the rest. Its length is a multiple of `inner`, the shape of the chunks inside shards.
    #[must_use]
    pub(crate) fn grown(&self, shape: &[u64], inner: Option<&[u64]>) -> RectilinearGrid {
        let grown = |(dim, (axis, &extent)): (usize, (&Edges, &u64))| match axis {
            Edges::Even(edge) => Edges::Even(*edge),
            Edges::Runs(runs) => {
                let mut runs = Runs(runs.clone());
                let missing = extent.saturating_sub(runs.0.last().map_or(0, Run::end));
                let unit = inner.and_then(|inner| inner.get(dim)).map_or(1, |&unit| unit.max(1));
                // A multiple may end beyond the largest extent of an array. Then the unrounded length is used, and
                // refused later.
                let rounded = missing.checked_next_multiple_of(unit).unwrap_or(missing);
                let _ = runs.add(rounded, 1).or_else(|| runs.add(missing, 1));
                Edges::Runs(runs.0)
            }
        };
        RectilinearGrid::of(self.axes.iter().zip(shape).enumerate().map(grown).collect())
    }

    fn check_ndim(&self, got: usize, what: &str) -> Result<()> {
        if got == self.ndim() {
            return Ok(());
        }
        let message = format!("{what}: got {got} dimensions, expected {} as in the chunk grid", self.ndim());
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

impl Edges {
    /// Divides a dimension into chunks of these lengths, in order.
    ///
    /// # Errors
    /// `MetadataInvalid` for an empty list, for a chunk without elements, and for chunks that end beyond the largest
    /// extent of an array.
    pub(crate) fn listed(lengths: &[u64]) -> Result<Edges> {
        let mut runs = Runs::default();
        match lengths.iter().try_for_each(|&length| runs.add(length, 1)) {
            Some(()) if !runs.0.is_empty() => Ok(Edges::Runs(runs.0)),
            _ => Err(invalid("chunk_shapes", &json!(lengths), &expected_edges())),
        }
    }

    /// The run that holds the element at `index`; `None` after the last run.
    fn run_at(runs: &[Run], index: u64) -> Option<&Run> {
        runs.get(runs.partition_point(|run| run.end() <= index))
    }

    /// Number of chunks along the dimension, for an array of length `extent`.
    pub fn count(&self, extent: u64) -> u64 {
        if extent == 0 { 0 } else { self.chunk_of(extent - 1) + 1 }
    }

    /// The number of the chunk that holds the element at `index`. Elements after the last chunk are in the next one.
    pub fn chunk_of(&self, index: u64) -> u64 {
        match self {
            Edges::Even(edge) => index / edge,
            Edges::Runs(runs) => match Edges::run_at(runs, index) {
                Some(run) => run.first_chunk + (index - run.start) / run.edge,
                None => runs.last().map_or(0, |run| run.first_chunk + run.count),
            },
        }
    }

    /// The range of elements that a chunk covers, for an array of length `extent`. Only the chunk after the last listed
    /// one is cut off at the extent.
    fn range(&self, chunk: u64, extent: u64) -> Range<u64> {
        match self {
            Edges::Even(edge) => {
                let start = chunk.saturating_mul(*edge);
                start..start.saturating_add(*edge)
            }
            Edges::Runs(runs) => match runs.get(runs.partition_point(|run| run.first_chunk + run.count <= chunk)) {
                Some(run) => {
                    let start = run.start + (chunk - run.first_chunk) * run.edge;
                    start..start + run.edge
                }
                None => runs.last().map_or(0, Run::end)..extent,
            },
        }
    }

    /// The index, along the dimension, of a chunk's first element. For the number after the last chunk, the end of the
    /// last chunk.
    pub fn start(&self, chunk: u64) -> u64 {
        self.range(chunk, self.end().unwrap_or(MAX_EXTENT)).start
    }

    /// The length of a chunk, including its part beyond the array's end; `None` after the last chunk.
    pub fn size(&self, chunk: u64) -> Option<u64> {
        match self {
            Edges::Even(edge) => Some(*edge),
            Edges::Runs(runs) => {
                runs.get(runs.partition_point(|run| run.first_chunk + run.count <= chunk)).map(|run| run.edge)
            }
        }
    }

    /// The index after the last chunk's last element; `None` for chunks of one length, which have no last one.
    pub fn end(&self) -> Option<u64> {
        match self {
            Edges::Even(_) => None,
            Edges::Runs(runs) => Some(runs.last().map_or(0, Run::end)),
        }
    }

    /// The different lengths of the chunks along the dimension, sorted.
    pub fn distinct(&self) -> Vec<u64> {
        let mut edges = match self {
            Edges::Even(edge) => vec![*edge],
            Edges::Runs(runs) => runs.iter().map(|run| run.edge).collect(),
        };
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

fn expected_edges() -> String {
    format!("a length of at least 1, or an array of lengths and [length, count] pairs that end within {MAX_EXTENT}")
}

/// Parses the chunks along one dimension: a length, or a list of lengths and of pairs `[length, count]`.
fn parse_axis(axis: &Value) -> Option<Edges> {
    let entries = match axis {
        Value::Array(entries) => entries,
        edge => return edge.as_u64().filter(|&edge| (1..=MAX_EXTENT).contains(&edge)).map(Edges::Even),
    };
    let mut runs = Runs::default();
    for entry in entries {
        match entry {
            Value::Array(pair) => match &pair[..] {
                [edge, count] => runs.add(edge.as_u64()?, count.as_u64()?)?,
                _ => return None,
            },
            edge => runs.add(edge.as_u64()?, 1)?,
        }
    }
    (!runs.0.is_empty()).then_some(Edges::Runs(runs.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(shapes: Value) -> Result<RectilinearGrid> {
        let configuration = json!({"kind": "inline", "chunk_shapes": shapes});
        RectilinearGrid::from_configuration(configuration.as_object().unwrap())
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        let grid = parse(json!([4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [4, 4, 4]])).unwrap();
        let shape = [6; 5];
        grid.check_covers(&shape, "chunk_grid").unwrap();
        assert_eq!(grid.chunk_counts(&shape).unwrap(), [2, 3, 2, 4, 2]);
        assert_eq!(grid.chunk_of(&[5; 5]).unwrap(), [1, 2, 1, 3, 1]);
        assert_eq!(grid.chunk_region(&[1, 2, 1, 3, 1], &shape).unwrap(), [4..6, 3..6, 4..6, 3..6, 4..6]);
        assert_eq!(grid.largest_chunk(), [4, 3, 4, 3, 4]);
        let written = json!([4, [1, 2, 3], [[4, 2]], [[1, 3], 3], [[4, 3]]]);
        assert_eq!(grid.to_json()["configuration"]["chunk_shapes"], written);
    }

    #[test]
    fn covers_every_element_once() {
        let grid = RectilinearGrid::new(&[vec![3, 3, 1, 4], vec![2, 5]]).unwrap();
        let shape = [10, 6];
        let mut seen = vec![0; 60];
        let counts = grid.chunk_counts(&shape).unwrap();
        for (i, j) in (0..counts[0]).flat_map(|i| (0..counts[1]).map(move |j| (i, j))) {
            let region = grid.chunk_region(&[i, j], &shape).unwrap();
            for index in region[0].clone().flat_map(|a| region[1].clone().map(move |b| [a, b])) {
                assert_eq!(grid.chunk_of(&index).unwrap(), [i, j]);
                seen[(index[0] * 6 + index[1]) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1), "{seen:?}");
    }

    #[test]
    fn a_small_document_of_many_chunks_stays_small() {
        let grid = parse(json!([[[1, 1_000_000_000_000_u64], 5]])).unwrap();
        assert_eq!(grid.axes().len(), 1);
        assert_eq!(grid.chunk_of(&[999_999_999_999]).unwrap(), [999_999_999_999]);
        assert_eq!(grid.chunk_of(&[1_000_000_000_004]).unwrap(), [1_000_000_000_000]);
    }

    #[test]
    fn a_larger_array_gets_one_more_chunk_and_a_smaller_one_keeps_its_lengths() {
        let grid = RectilinearGrid::new(&[vec![10, 20]]).unwrap();
        assert_eq!(grid.chunk_counts(&[50]).unwrap(), [3]);
        assert_eq!(grid.grown(&[50], None).to_json()["configuration"]["chunk_shapes"], json!([[10, [20, 2]]]));
        assert_eq!(grid.grown(&[50], Some(&[6])).to_json()["configuration"]["chunk_shapes"], json!([[10, 20, 24]]));
        assert_eq!(grid.grown(&[5], None), grid);
        assert_eq!(grid.chunk_counts(&[5]).unwrap(), [1]);
        assert_eq!(grid.chunk_counts(&[0]).unwrap(), [0]);
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        let wrong = [
            json!([0]),
            json!([[0]]),
            json!([[]]),
            json!([[[3]]]),
            json!([[[3, 0]]]),
            json!([[[0, 3]]]),
            json!(["a"]),
            json!([[1.5]]),
        ];
        for shapes in wrong.into_iter().chain([json!([[[u64::MAX, 2]]]), json!([[[1, u64::MAX], 1]]), json!(3)]) {
            assert_eq!(parse(shapes.clone()).unwrap_err().kind(), ErrorKind::MetadataInvalid, "{shapes}");
        }
        let other = json!({"kind": "other", "chunk_shapes": [[1]]});
        let error = RectilinearGrid::from_configuration(other.as_object().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
        let short = parse(json!([[1, 2]])).unwrap();
        assert_eq!(short.check_covers(&[4], "chunk_grid").unwrap_err().kind(), ErrorKind::MetadataInvalid);
        assert_eq!(short.check_multiples(&[2], "chunk_grid").unwrap_err().kind(), ErrorKind::MetadataInvalid);
    }
}
