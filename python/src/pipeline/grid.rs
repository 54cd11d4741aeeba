//! Finds the box of elements that the parts of chunks in a request from zarr-python form together.

use std::sync::Arc;

use cuzarr::internal::plan::KeyOf;
use cuzarr::plan::{AxisSelection, Selection};

/// The elements of one chunk that a request wants, along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index, in the chunk, of the first wanted element.
    pub start: u64,
    /// Number of wanted elements along the dimension.
    pub count: u64,
    /// Distance between two wanted elements, in elements.
    pub step: u64,
    /// Index in the result at which the first wanted element goes; `None` if the result does not have this dimension.
    pub out_start: Option<u64>,
}

/// A box of wanted elements, as a selection of an imaginary array that consists of the chunks that hold them.
pub struct Grid {
    /// Shape of the imaginary array, which consists of the chunks that hold the box.
    pub shape: Vec<u64>,
    /// The selection of the imaginary array that is the box.
    pub selection: Selection,
    /// Where the box begins in the result, along each dimension of the result.
    pub out_start: Vec<u64>,
    /// The extents of the box, along each dimension of the result.
    pub out_shape: Vec<u64>,
    /// Maps each chunk of the imaginary array to the index of its item in zarr-python's request.
    pub places: Arc<Places>,
}

/// A map from the grid index of each chunk to the index of its item in the request from zarr-python.
pub struct Places {
    /// The grid indices, ascending, of the chunks in the request: one list for each dimension.
    positions: Vec<Vec<u64>>,
    /// For each chunk, in the C order of `positions`, its index among the items of the request.
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

    /// Returns a function that maps the grid index of a chunk to the chunk's key. A plan asks only for chunks with
    /// selected elements.
    pub fn keys(self: &Arc<Places>, keys: &Arc<[String]>) -> KeyOf {
        let (places, keys) = (Arc::clone(self), Arc::clone(keys));
        Arc::new(move |at| places.item(at).map(|item| keys[item].clone()).unwrap_or_default())
    }
}

/// One dimension of a box that is put together from parts of chunks.
struct Axis {
    /// The distinct ranges of elements that the box takes from chunks along this dimension, in the order of the result.
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
            // The index of the part's first element, in an array that begins with the box's first chunk.
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
    /// Finds the box that parts of chunks of shape `chunk_shape` form together; `None` if they do not form a box. An
    /// item is `complete` if all elements that the array has in its chunk are selected.
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
                    // The array ends here, so elements of the chunk beyond its end need not be kept.
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

    /// Makes the grid for a box inside an array of shape `shape`; `None` if the box is empty or leaves the array. If
    /// the box ends within a chunk, the grid includes the whole chunk, so that elements beyond the array's edge are
    /// kept. With `keep_beyond`, the grid has only whole chunks.
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

    /// Makes the grid for a box that consists of `count` whole chunks, stacked along the first dimension.
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

/// Whether a selection covers any whole chunk along a dimension of `extent` elements, and whether it covers the last
/// chunk that it touches. `None` if it selects nothing or leaves the array.
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
