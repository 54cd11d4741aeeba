//! The order in which a plan visits the elements of a selection: the order of the array's chunks.
//!
//! Index lists are sorted, and points are grouped by chunk, so that the elements of a chunk are consecutive. A plan
//! counts in positions of this order: one range of positions per dimension, or one range for points.
//! [`ChunkOrder::lists`] maps each position to the place of its element.

mod points;
mod walk;

use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::{List, Lists, Within};

use super::cells::{Cells, CellsAlong, Splitter};
use super::geometry::{packed_strides, region};
use super::pieces::PackedAxis;
use super::selection::{AxisIndex, AxisSelection, Parts, Selection};
use super::source::Source;
use crate::error::Result;
pub(crate) use points::Points;
use walk::covers;
pub(crate) use walk::{Cell, Walk, chunks_touched};

/// Indices along one dimension, each with its position in the caller's list.
type Numbered = Vec<(u64, usize)>;

/// A selection, sorted so that its elements are visited chunk by chunk.
#[derive(Clone, Debug)]
pub(crate) enum ChunkOrder {
    /// The outer product of one range or index list per dimension.
    Product(Vec<Along>),
    /// The selected points, grouped by chunk.
    Points(Arc<Points>),
}

/// The selected elements along one dimension, sorted by index.
#[derive(Clone, Debug)]
pub(crate) enum Along {
    /// The selected elements lie at even distances.
    Range(AxisSelection),
    /// Sorted indices, and for each its position in the caller's list.
    List { indices: Arc<[u64]>, places: Arc<[usize]> },
}

impl ChunkOrder {
    /// Sorts a selection for reading: an element that is selected twice goes to both of its positions in the result.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array; `Unsupported` for points of an array with more elements than
    /// 128 bits count.
    pub(crate) fn new(selection: &Selection, source: &Source) -> Result<ChunkOrder> {
        ChunkOrder::of(selection, source, of_read(source))
    }

    /// Sorts a selection for writing: each element appears once. If an element is selected several times, only the last
    /// one is kept.
    ///
    /// # Errors
    /// Those of [`ChunkOrder::new`].
    pub(crate) fn of_last(selection: &Selection, source: &Source) -> Result<ChunkOrder> {
        ChunkOrder::of(selection, source, Within::LastOfElem)
    }

    fn of(selection: &Selection, source: &Source, within: Within) -> Result<ChunkOrder> {
        if let Parts::Points(indices) = selection.parts() {
            return Ok(ChunkOrder::Points(Arc::new(Points::new(indices, source, within)?)));
        }
        selection.check(&source.shape)?;
        Ok(match selection.parts() {
            Parts::Box(axes) => ChunkOrder::Product(axes.iter().copied().map(Along::Range).collect()),
            Parts::Product(axes) => ChunkOrder::Product(axes.iter().map(|axis| along(axis, within)).collect()),
            Parts::Points(_) => ChunkOrder::Product(Vec::new()),
        })
    }

    /// Returns this order for the same array with codecs that are bound to another device, where packed chunks may have
    /// another layout.
    ///
    /// # Errors
    /// Those of [`ChunkOrder::new`].
    pub(crate) fn rebound(self, source: &Source) -> Result<ChunkOrder> {
        match self {
            ChunkOrder::Points(points) if !points.suits(source) => {
                Ok(ChunkOrder::Points(Arc::new(points.rebound(source)?)))
            }
            order => Ok(order),
        }
    }

    /// Whether index lists or points are selected, so that strides alone do not say where elements lie.
    pub(crate) fn has_lists(&self) -> bool {
        match self {
            ChunkOrder::Product(axes) => axes.iter().any(|axis| axis.step().is_none()),
            ChunkOrder::Points(_) => true,
        }
    }

    /// The selected range along each dimension; `None` if there are index lists or points.
    pub(crate) fn ranges(&self) -> Option<Vec<AxisSelection>> {
        match self {
            ChunkOrder::Product(axes) => axes.iter().map(|axis| axis.range().copied()).collect(),
            ChunkOrder::Points(_) => None,
        }
    }

    /// The range of all positions in the selection: one range along each dimension, or a single range for points.
    pub(crate) fn whole(&self) -> Vec<(u64, u64)> {
        match self {
            ChunkOrder::Product(axes) => axes.iter().map(|axis| (0, axis.count())).collect(),
            ChunkOrder::Points(points) => vec![(0, points.len() as u64)],
        }
    }

    /// Makes an iterator over the grid cells that hold the selected elements at the positions `inside`. The grid begins
    /// at `origin`.
    pub(crate) fn walk(&self, origin: &[u64], cells: Cells<'_>, inside: &[(u64, u64)]) -> Walk {
        match self {
            ChunkOrder::Product(axes) => Walk::new(axes, origin, cells, inside),
            ChunkOrder::Points(points) => Walk::of_points(points, origin, cells, inside),
        }
    }

    /// Makes an iterator over all grid cells that hold selected elements, for a grid that begins at the array's first
    /// element.
    pub(crate) fn walk_all(&self, cells: Cells<'_>) -> Walk {
        let ndim = match self {
            ChunkOrder::Product(axes) => axes.len(),
            ChunkOrder::Points(points) => points.ndim(),
        };
        self.walk(&vec![0; ndim], cells, &self.whole())
    }

    /// Counts the cells that hold elements at the positions `inside`, for a grid that begins at the array's first
    /// element.
    pub(crate) fn cells(&self, inside: &[(u64, u64)], cells: Cells<'_>) -> u64 {
        match self {
            ChunkOrder::Product(axes) => {
                let axes = axes.iter().zip(inside).enumerate();
                axes.map(|(dim, (axis, &(from, to)))| axis.cells(from..to, &cells.along(dim)))
                    .fold(1, u64::saturating_mul)
            }
            ChunkOrder::Points(points) => points
                .chunks_of(inside, cells)
                .unwrap_or_else(|| self.walk(&vec![0; points.ndim()], cells, inside).count() as u64),
        }
    }

    /// Counts the cells of a grid that the whole selection touches.
    pub(crate) fn touched(&self, cells: Cells<'_>) -> u64 {
        self.cells(&self.whole(), cells)
    }

    /// The box of the result that the positions `inside` of a grid cell fill: start and extent along each dimension of
    /// the result.
    pub(crate) fn region<'a>(&'a self, inside: &'a [(u64, u64)]) -> impl Iterator<Item = (usize, usize)> + 'a {
        // For lists and points, the box is given in positions.
        let kept = move |(dim, &positions): (usize, &(u64, u64))| match self {
            ChunkOrder::Product(axes) if axes[dim].is_dropped() => None,
            _ => Some(positions),
        };
        region(inside.iter().enumerate().filter_map(kept))
    }

    /// Where the first element at the positions `inside` lies in the packed chunk at `origin`, counted in elements.
    /// Dimensions with lists count as 0.
    pub(crate) fn first_elem(&self, strides: &[u64], origin: &[u64], inside: &[(u64, u64)]) -> usize {
        match self {
            ChunkOrder::Product(axes) => {
                let ranges = axes.iter().enumerate().filter(|(_, axis)| axis.step().is_some());
                ranges.map(|(dim, axis)| (axis.index(inside[dim].0) - origin[dim]) * strides[dim]).sum::<u64>() as usize
            }
            ChunkOrder::Points(_) => 0,
        }
    }

    /// How far neighbouring selected elements lie apart in a packed chunk, in elements, per dimension of the result.
    /// For a list, this is the stride of neighbouring indices.
    pub(crate) fn packed_strides(&self, strides: &[u64]) -> Vec<isize> {
        match self {
            ChunkOrder::Product(axes) => {
                let kept = axes.iter().zip(strides).filter(|(axis, _)| !axis.is_dropped());
                packed_strides(kept.map(|(axis, &stride)| (axis.step().unwrap_or(1), stride))).collect()
            }
            ChunkOrder::Points(_) => vec![1],
        }
    }

    /// For each position in index lists, or for each point: where the element lies in its chunk, and in memory of shape
    /// `array`. `None` for boxes, because their elements lie at equal distances.
    ///
    /// # Errors
    /// `InvalidArgument` if `array` is not the selection's shape.
    pub(crate) fn lists(&self, source: &Source, array: &[usize]) -> Result<Option<Arc<Lists>>> {
        let lists: Vec<Option<Arc<List>>> = match self {
            ChunkOrder::Product(axes) => {
                let kept = axes.iter().enumerate().filter(|(_, axis)| !axis.is_dropped());
                let list = |(dim, axis): (usize, &Along)| match axis {
                    Along::Range(_) => None,
                    Along::List { indices, places } => {
                        let in_chunk = InChunk::new(source, dim);
                        let pair = |(&index, &place): (&u64, &usize)| [in_chunk.of(index), place as u64];
                        Some(Arc::new(List::new(indices.iter().zip(&**places).map(pair).collect())))
                    }
                };
                kept.map(list).collect()
            }
            ChunkOrder::Points(points) => vec![Some(points.list())],
        };
        match lists.iter().any(Option::is_some) {
            true => Ok(Some(Arc::new(Lists::new(lists, array)?))),
            false => Ok(None),
        }
    }

    /// For each packed dimension, where the elements at the positions `inside` lie in the chunk at `origin`. `dims` is
    /// the order of the chunk's dimensions.
    pub(crate) fn packed_axes(
        &self,
        dims: &[usize],
        strides: &[u64],
        origin: &[u64],
        inside: &[(u64, u64)],
    ) -> Vec<PackedAxis> {
        match self {
            ChunkOrder::Product(axes) => {
                let along = |&dim: &usize| match &axes[dim] {
                    Along::List { indices, .. } => {
                        let indices = &indices[inside[dim].0 as usize..inside[dim].1 as usize];
                        PackedAxis::Listed(indices.iter().map(|index| (index - origin[dim]) * strides[dim]).collect())
                    }
                    even => {
                        let step = even.step().unwrap_or(1);
                        let (count, distance) = (inside[dim].1 - inside[dim].0, step.saturating_mul(strides[dim]));
                        PackedAxis::Even { count, distance }
                    }
                };
                dims.iter().map(along).collect()
            }
            ChunkOrder::Points(points) => {
                vec![PackedAxis::Listed((inside[0].0..inside[0].1).map(|point| points.elem(point as usize)).collect())]
            }
        }
    }

    /// Whether the elements at the positions `inside` fill the box from `origin` to `end` completely.
    pub(crate) fn covers(&self, inside: &[(u64, u64)], origin: &[u64], end: &[u64]) -> bool {
        let mut dims = origin.iter().zip(end);
        match self {
            ChunkOrder::Product(axes) => axes.iter().zip(inside).zip(dims).all(|((axis, &inside), (&origin, &end))| {
                match axis {
                    // A list for writing has no index twice, so comparing the counts is enough.
                    Along::List { .. } => inside.1 - inside.0 == end - origin,
                    even => covers(even.step().unwrap_or(1), inside, origin, end),
                }
            }),
            ChunkOrder::Points(_) => {
                let all = dims.try_fold(1u64, |product, (origin, end)| product.checked_mul(end - origin));
                all == Some(inside[0].1 - inside[0].0)
            }
        }
    }
}

impl Along {
    pub(crate) fn count(&self) -> u64 {
        match self {
            Along::Range(range) => range.count,
            Along::List { indices, .. } => indices.len() as u64,
        }
    }

    /// Returns the array index of the selected element at a position of the selection.
    pub(crate) fn index(&self, position: u64) -> u64 {
        match self {
            Along::Range(range) => range.start + position * range.step,
            Along::List { indices, .. } => indices[position as usize],
        }
    }

    /// The first position, from `from` on, whose array index is at least `index`. It may be behind the last position.
    pub(crate) fn position_from(&self, from: u64, index: u64) -> u64 {
        match self {
            Along::Range(range) => index.saturating_sub(range.start).div_ceil(range.step),
            Along::List { indices, .. } => from + indices[from as usize..].partition_point(|&one| one < index) as u64,
        }
    }

    fn range(&self) -> Option<&AxisSelection> {
        match self {
            Along::Range(range) => Some(range),
            Along::List { .. } => None,
        }
    }

    /// The distance between neighbouring selected elements; `None` for index lists.
    fn step(&self) -> Option<u64> {
        match self {
            Along::Range(range) => Some(range.step),
            Along::List { .. } => None,
        }
    }

    fn is_dropped(&self) -> bool {
        match self {
            Along::Range(range) => range.dropped,
            Along::List { .. } => false,
        }
    }

    fn cells(&self, positions: Range<u64>, cells: &CellsAlong) -> u64 {
        match self {
            Along::Range(range) => cells.touched(range, positions),
            Along::List { indices, .. } => cells.touched_by(&indices[positions.start as usize..positions.end as usize]),
        }
    }
}

/// How the points within a chunk are sorted for reading: by element if the chunk is uncompressed, because then only the
/// parts with points are read.
fn of_read(source: &Source) -> Within {
    if source.layout().packed.stored_is_packed { Within::ByElem } else { Within::Rising }
}

fn along(axis: &AxisIndex, within: Within) -> Along {
    let list = match axis {
        AxisIndex::Range(range) => return Along::Range(*range),
        AxisIndex::List(list) => list,
    };
    if list.is_sorted_by(|one, next| one < next) {
        return Along::List { indices: Arc::clone(list), places: (0..list.len()).collect() };
    }
    let mut pairs: Numbered = list.iter().copied().zip(0..).collect();
    pairs.sort_unstable();
    if within == Within::LastOfElem {
        // Equal indices keep the caller's order, so the last one remains.
        pairs.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                *kept = *next;
            }
            is_same
        });
    }
    let (indices, places): (Vec<u64>, Vec<usize>) = pairs.into_iter().unzip();
    Along::List { indices: indices.into(), places: places.into() }
}

/// For one dimension, the grids of all chunk levels, through which an array index becomes an index in the innermost
/// chunk.
struct InChunk(Vec<Splitter>);

impl InChunk {
    fn new(source: &Source, dim: usize) -> InChunk {
        InChunk((0..source.levels()).map(|level| Splitter::new(source.cells(level).along(dim))).collect())
    }

    /// Returns where `index` lies in its innermost chunk, counted from the chunk's beginning.
    fn of(&self, index: u64) -> u64 {
        self.0.iter().fold(index, |index, level| level.rest(index))
    }
}
