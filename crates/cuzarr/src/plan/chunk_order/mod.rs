//! The order in which a plan meets the elements of a selection: that of the array's chunks.
//!
//! Index lists are sorted, and points are grouped by chunk, so that the elements of one chunk follow each other. A plan counts in
//! positions of this order: one range of positions per dimension, or one for all points. [`ChunkOrder::lists`] says where the
//! element of each position belongs.

mod walk;

use std::ops::{Add, Mul};
use std::sync::Arc;

use cuzarr_device::{List, Lists};

use super::geometry::{cells_inside, packed_strides, region};
use super::parts::GridPart;
use super::pieces::PackedAxis;
use super::selection::{AxisIndex, AxisSelection, Parts, Selection};
use super::source::Source;
use super::stretches::Stretches;
use crate::error::{Error, ErrorKind, Result};
use walk::covers;
pub(crate) use walk::{Cell, Walk, chunks_touched};

/// Points are grouped by counting while there are at most this many cells for each point, else by sorting.
const CELLS_A_POINT: u128 = 4;

/// Numbers of elements or chunks, each with its place in the caller's list.
type Numbered = Vec<(u128, usize)>;

/// A selection in the order of the array's chunks.
#[derive(Clone, Debug)]
pub(crate) enum ChunkOrder {
    /// The outer product of these dimensions.
    Product(Vec<Along>),
    /// Points.
    Points(Arc<Points>),
}

/// What is selected along one dimension.
#[derive(Clone, Debug)]
pub(crate) enum Along {
    /// Elements at even distances.
    Range(AxisSelection),
    /// Rising indices, and the place of each in the caller's list.
    List { indices: Arc<[u64]>, places: Arc<[usize]> },
    /// Elements of a range that lie in one part of a rectilinear grid.
    Stretches(Arc<Stretches>),
}

/// Points, those of one chunk behind each other.
#[derive(Debug)]
pub(crate) struct Points {
    /// The indices along each dimension.
    pub(crate) indices: Vec<Vec<u64>>,
    /// The place of each point in the caller's list.
    places: Vec<usize>,
}

impl ChunkOrder {
    /// The order for reading.
    ///
    /// # Errors
    /// `SelectionInvalid` when the selection does not fit the array; `Unsupported` for points of an array with more elements than
    /// 128 bits count.
    pub(crate) fn new(selection: &Selection, source: &Source) -> Result<ChunkOrder> {
        // Of an uncompressed chunk only the part that holds its points is read.
        let by_elem = source.packed.stored_is_packed;
        ChunkOrder::of(selection, source, by_elem, |_| ())
    }

    /// The order for writing: of elements that are named several times, the last one counts.
    ///
    /// # Errors
    /// Those of [`ChunkOrder::new`].
    pub(crate) fn of_last(selection: &Selection, source: &Source) -> Result<ChunkOrder> {
        ChunkOrder::of(selection, source, true, keep_last)
    }

    fn of(selection: &Selection, source: &Source, by_elem: bool, once: impl Fn(&mut Numbered)) -> Result<ChunkOrder> {
        selection.check(&source.shape)?;
        Ok(match selection.parts() {
            Parts::Box(axes) => ChunkOrder::Product(axes.iter().copied().map(Along::Range).collect()),
            Parts::Product(axes) => ChunkOrder::Product(axes.iter().map(|axis| along(axis, &once)).collect()),
            Parts::Points(indices) => ChunkOrder::Points(Arc::new(Points::new(indices, source, by_elem, &once)?)),
        })
    }

    /// The order of the selected elements in one part of a rectilinear grid, whose own indices are counted; `None` when there are
    /// none. Of elements that a write names several times, the last one counts.
    ///
    /// # Errors
    /// Those of [`ChunkOrder::new`].
    pub(crate) fn of_part(
        selection: &Selection,
        part: &GridPart,
        source: &Source,
        is_write: bool,
    ) -> Result<Option<ChunkOrder>> {
        let once = |same: &mut Numbered| {
            if is_write {
                keep_last(same)
            }
        };
        let order = match selection.parts() {
            Parts::Box(axes) => {
                let axes = axes.iter().enumerate().map(|(dim, range)| range_in(part, dim, range));
                ChunkOrder::Product(axes.collect())
            }
            Parts::Product(axes) => {
                let axes = axes.iter().enumerate().map(|(dim, axis)| match axis {
                    AxisIndex::Range(range) => range_in(part, dim, range),
                    AxisIndex::List(_) => along(axis, &once).in_part(part, dim),
                });
                ChunkOrder::Product(axes.collect())
            }
            Parts::Points(indices) => {
                let (mut own, mut places) = (vec![Vec::new(); indices.len()], Vec::new());
                for place in 0..indices.first().map_or(0, |one| one.len()) {
                    let dims = indices.iter().enumerate();
                    let point = dims.map(|(dim, one)| part.own(dim, one[place])).collect::<Option<Vec<u64>>>();
                    if let Some(point) = point {
                        own.iter_mut().zip(point).for_each(|(own, index)| own.push(index));
                        places.push(place);
                    }
                }
                let own: Vec<Arc<[u64]>> = own.into_iter().map(Arc::from).collect();
                let by_elem = is_write || source.packed.stored_is_packed;
                let mut points = Points::new(&own, source, by_elem, &once)?;
                points.places.iter_mut().for_each(|place| *place = places[*place]);
                ChunkOrder::Points(Arc::new(points))
            }
        };
        let is_empty = order.whole().iter().any(|(from, to)| from == to);
        Ok((!is_empty).then_some(order))
    }

    /// Whether index lists say where elements lie.
    pub(crate) fn has_lists(&self) -> bool {
        match self {
            ChunkOrder::Product(axes) => axes.iter().any(|axis| axis.step().is_none()),
            ChunkOrder::Points(_) => true,
        }
    }

    /// The range along each dimension, where elements are a product of ranges in the source.
    pub(crate) fn ranges(&self) -> Option<Vec<AxisSelection>> {
        match self {
            ChunkOrder::Product(axes) => axes.iter().map(|axis| axis.range().copied()).collect(),
            ChunkOrder::Points(_) => None,
        }
    }

    /// All positions.
    pub(crate) fn whole(&self) -> Vec<(u64, u64)> {
        match self {
            ChunkOrder::Product(axes) => axes.iter().map(|axis| (0, axis.count())).collect(),
            ChunkOrder::Points(points) => vec![(0, points.places.len() as u64)],
        }
    }

    /// The cells of a grid that hold the elements of these positions.
    pub(crate) fn walk(&self, origin: &[u64], cell: &[u64], inside: &[(u64, u64)]) -> Walk {
        match self {
            ChunkOrder::Product(axes) => Walk::new(axes, origin, cell, inside),
            ChunkOrder::Points(points) => Walk::of_points(points, origin, cell, inside),
        }
    }

    /// The number of cells of a grid, which begins with the array, that the elements of these positions touch.
    pub(crate) fn cells(&self, inside: &[(u64, u64)], cell: &[u64]) -> u64 {
        match self {
            ChunkOrder::Product(axes) => {
                let axes = axes.iter().zip(inside).zip(cell);
                axes.map(|((axis, &inside), &cell)| axis.cells(inside, cell.max(1))).fold(1, u64::saturating_mul)
            }
            ChunkOrder::Points(_) => self.walk(&vec![0; cell.len()], cell, inside).count() as u64,
        }
    }

    /// The number of cells of a grid that the whole selection touches.
    pub(crate) fn touched(&self, cell: &[u64]) -> u64 {
        self.cells(&self.whole(), cell)
    }

    /// The box of the result for these positions, which lie in one cell: start and extent of each of its dimensions.
    pub(crate) fn region<'a>(&'a self, inside: &'a [(u64, u64)]) -> impl Iterator<Item = (usize, usize)> + 'a {
        let places = move |(dim, &(from, to)): (usize, &(u64, u64))| match self {
            ChunkOrder::Product(axes) => axes[dim].places((from, to)),
            ChunkOrder::Points(_) => Some((from, to)),
        };
        region(inside.iter().enumerate().filter_map(places))
    }

    /// The index of the first selected element in the packed chunk at `origin`; dimensions with lists do not count.
    pub(crate) fn first_elem(&self, strides: &[u64], origin: &[u64], inside: &[(u64, u64)]) -> usize {
        match self {
            ChunkOrder::Product(axes) => {
                let ranges = axes.iter().enumerate().filter(|(_, axis)| axis.step().is_some());
                ranges.map(|(dim, axis)| (axis.index(inside[dim].0) - origin[dim]) * strides[dim]).sum::<u64>() as usize
            }
            ChunkOrder::Points(_) => 0,
        }
    }

    /// The strides of selected elements in packed bytes, per dimension of the result; 0 where a list says where they lie.
    pub(crate) fn packed_strides(&self, strides: &[u64]) -> Vec<isize> {
        match self {
            ChunkOrder::Product(axes) => {
                let kept = axes.iter().zip(strides).filter(|(axis, _)| !axis.is_dropped());
                packed_strides(kept.map(|(axis, &stride)| (axis.step().unwrap_or(0), stride))).collect()
            }
            ChunkOrder::Points(_) => vec![0],
        }
    }

    /// Where the elements of each position lie in their chunk, whose elements have these strides, and in memory of shape `array`.
    /// `None` for boxes, whose elements lie at even distances.
    ///
    /// # Errors
    /// `InvalidArgument` when `array` is not the selection's shape.
    pub(crate) fn lists(&self, source: &Source, strides: &[u64], array: &[usize]) -> Result<Option<Arc<Lists>>> {
        let levels = |dim: usize| -> Vec<Divisor> {
            source.levels.iter().map(|level| Divisor::new(level.chunk_shape[dim])).collect()
        };
        let in_chunk = |levels: &[Divisor], index: u64| levels.iter().fold(index, |index, level| level.rest(index));
        let lists: Vec<Option<List>> = match self {
            ChunkOrder::Product(axes) => {
                let kept = axes.iter().enumerate().filter(|(_, axis)| !axis.is_dropped());
                let list = |(dim, axis): (usize, &Along)| match axis {
                    Along::Range(_) | Along::Stretches(_) => None,
                    Along::List { indices, places } => {
                        let levels = levels(dim);
                        let elem = |&index: &u64| (in_chunk(&levels, index) * strides[dim]) as usize;
                        Some(List { packed_elems: indices.iter().map(elem).collect(), places: places.to_vec() })
                    }
                };
                kept.map(list).collect()
            }
            ChunkOrder::Points(points) => {
                let mut packed_elems = vec![0; points.places.len()];
                for (dim, indices) in points.indices.iter().enumerate() {
                    let levels = levels(dim);
                    for (elem, &index) in packed_elems.iter_mut().zip(indices) {
                        *elem += (in_chunk(&levels, index) * strides[dim]) as usize;
                    }
                }
                vec![Some(List { packed_elems, places: points.places.clone() })]
            }
        };
        match lists.iter().any(Option::is_some) {
            true => Ok(Some(Arc::new(Lists::new(lists, array)?))),
            false => Ok(None),
        }
    }

    /// Where the elements of these positions lie in the packed chunk at `origin`, whose dimensions lie in the order `dims`.
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
                let elem = |point: u64| {
                    let dims = points.indices.iter().zip(origin).zip(strides);
                    dims.map(|((indices, origin), stride)| (indices[point as usize] - origin) * stride).sum()
                };
                vec![PackedAxis::Listed((inside[0].0..inside[0].1).map(elem).collect())]
            }
        }
    }

    /// Whether the elements of these positions are all elements of the box from `origin` to `end`.
    pub(crate) fn covers(&self, inside: &[(u64, u64)], origin: &[u64], end: &[u64]) -> bool {
        let mut dims = origin.iter().zip(end);
        match self {
            ChunkOrder::Product(axes) => axes.iter().zip(inside).zip(dims).all(|((axis, &inside), (&origin, &end))| {
                match axis {
                    // The indices differ.
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
            Along::Stretches(stretches) => stretches.count,
        }
    }

    /// The index at a position.
    pub(crate) fn index(&self, position: u64) -> u64 {
        match self {
            Along::Range(range) => range.start + position * range.step,
            Along::List { indices, .. } => indices[position as usize],
            Along::Stretches(stretches) => stretches.index(position),
        }
    }

    /// Start and end in the result of positions in one cell; `None` for a dimension that the result lacks. For lists, positions are
    /// their own places.
    fn places(&self, (from, to): (u64, u64)) -> Option<(u64, u64)> {
        match self {
            _ if self.is_dropped() => None,
            Along::Stretches(stretches) => {
                let start = stretches.place(from);
                Some((start, start + (to - from)))
            }
            _ => Some((from, to)),
        }
    }

    /// A list's elements in one part of a rectilinear grid.
    fn in_part(self, part: &GridPart, dim: usize) -> Along {
        let Along::List { indices, places } = self else { return self };
        let own = indices.iter().zip(places.iter()).filter_map(|(&index, &place)| Some((part.own(dim, index)?, place)));
        let (indices, places): (Vec<u64>, Vec<usize>) = own.unzip();
        Along::List { indices: indices.into(), places: places.into() }
    }

    /// The first position from `from` on whose index is not below `index`; it may be behind the last.
    pub(crate) fn position_from(&self, from: u64, index: u64) -> u64 {
        match self {
            Along::Range(range) => index.saturating_sub(range.start).div_ceil(range.step),
            Along::List { indices, .. } => from + indices[from as usize..].partition_point(|&one| one < index) as u64,
            Along::Stretches(stretches) => stretches.position_from(index).max(from),
        }
    }

    fn range(&self) -> Option<&AxisSelection> {
        match self {
            Along::Range(range) => Some(range),
            Along::List { .. } | Along::Stretches(_) => None,
        }
    }

    /// Distance of neighbours; `None` for lists.
    fn step(&self) -> Option<u64> {
        match self {
            Along::Range(range) => Some(range.step),
            Along::Stretches(stretches) => Some(stretches.step),
            Along::List { .. } => None,
        }
    }

    fn is_dropped(&self) -> bool {
        match self {
            Along::Range(range) => range.dropped,
            Along::Stretches(stretches) => stretches.dropped,
            Along::List { .. } => false,
        }
    }

    fn cells(&self, (from, to): (u64, u64), cell: u64) -> u64 {
        match self {
            Along::Range(range) => cells_inside(range, (from, to), cell),
            Along::Stretches(stretches) => stretches.cells((from, to), cell),
            Along::List { indices, .. } => {
                indices[from as usize..to as usize].chunk_by(|one, next| one / cell == next / cell).count() as u64
            }
        }
    }
}

/// Keeps the last of elements that are named several times. Equal ones are in the caller's order.
fn keep_last(same: &mut Numbered) {
    same.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            *kept = *next;
        }
        is_same
    });
}

fn range_in(part: &GridPart, dim: usize, range: &AxisSelection) -> Along {
    part.stretches(dim, range).map_or(Along::Range(*range), |stretches| Along::Stretches(Arc::new(stretches)))
}

fn along(axis: &AxisIndex, once: &impl Fn(&mut Numbered)) -> Along {
    let list = match axis {
        AxisIndex::Range(range) => return Along::Range(*range),
        AxisIndex::List(list) => list,
    };
    if list.is_sorted_by(|one, next| one < next) {
        return Along::List { indices: Arc::clone(list), places: (0..list.len()).collect() };
    }
    let mut pairs: Numbered = list.iter().map(|&index| u128::from(index)).zip(0..).collect();
    pairs.sort_unstable();
    once(&mut pairs);
    let (indices, places): (Vec<u64>, Vec<usize>) = pairs.into_iter().map(|(_, at)| (list[at], at)).unzip();
    Along::List { indices: indices.into(), places: places.into() }
}

impl Points {
    /// Groups points by chunk; with `by_elem`, those of a chunk come in the order of its elements.
    fn new(indices: &[Arc<[u64]>], source: &Source, by_elem: bool, once: &impl Fn(&mut Numbered)) -> Result<Points> {
        let places = Keys::new(source, by_elem)?.order(indices, once);
        let indices = indices.iter().map(|one| places.iter().map(|&place| one[place]).collect()).collect();
        Ok(Points { indices, places })
    }
}

/// The numbers of points: of their chunk, or of their element, counted shard by shard and chunk by chunk.
struct Keys {
    /// The grids, outermost first: cells in the cell around them, and elements of a cell, along each dimension.
    grids: Vec<Vec<(u64, u64)>>,
    /// The dimensions in the order of packed elements.
    packed_axes: Vec<usize>,
    /// Numbers in all.
    count: u128,
    by_elem: bool,
}

impl Keys {
    fn new(source: &Source, by_elem: bool) -> Result<Keys> {
        let mut extents = source.shape.clone();
        let ones = by_elem.then(|| vec![1; extents.len()]);
        let (mut grids, mut count) = (Vec::new(), Some(1u128));
        for shape in source.levels.iter().map(|level| &level.chunk_shape).chain(&ones) {
            let cells =
                extents.iter().zip(shape).map(|(extent, &cell)| (extent.div_ceil(cell.max(1)).max(1), cell.max(1)));
            let grid: Vec<(u64, u64)> = cells.collect();
            count =
                grid.iter().try_fold(count.unwrap_or(u128::MAX), |count, &(cells, _)| count.checked_mul(cells.into()));
            if count.is_none() {
                let message = format!("points of an array of shape {:?}: its elements cannot be counted", source.shape);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            grids.push(grid);
            extents.clone_from(shape);
        }
        Ok(Keys { grids, packed_axes: source.packed.axes.clone(), count: count.unwrap_or(u128::MAX), by_elem })
    }

    /// The numbers of all points.
    fn keys<N>(&self, indices: &[Arc<[u64]>]) -> Vec<N>
    where
        N: Copy + Default + From<u64> + Add<Output = N> + Mul<Output = N>,
    {
        let mut keys = vec![N::default(); indices.first().map_or(0, |one| one.len())];
        for (level, grid) in self.grids.iter().enumerate() {
            let elements = self.by_elem && level + 1 == self.grids.len();
            for at in 0..grid.len() {
                let dim = if elements { self.packed_axes[at] } else { at };
                let (cells, cell) = (N::from(grid[dim].0), Divisor::new(grid[dim].1));
                let around: Vec<Divisor> = self.grids[..level].iter().map(|outer| Divisor::new(outer[dim].1)).collect();
                for (key, &index) in keys.iter_mut().zip(&*indices[dim]) {
                    let inside = around.iter().fold(index, |index, outer| outer.rest(index));
                    *key = *key * cells + N::from(cell.times(inside));
                }
            }
        }
        keys
    }

    /// The places of the points in the order of their numbers, equal ones in the caller's order.
    fn order(&self, indices: &[Arc<[u64]>], once: &impl Fn(&mut Numbered)) -> Vec<usize> {
        let count = indices.first().map_or(0, |one| one.len());
        if !self.by_elem && self.count <= (count as u128).saturating_mul(CELLS_A_POINT) {
            return counted(&self.keys::<u64>(indices), self.count as usize);
        }
        let mut pairs: Numbered = self.keys::<u128>(indices).into_iter().zip(0..).collect();
        pairs.sort_unstable();
        if self.by_elem {
            once(&mut pairs);
        }
        pairs.into_iter().map(|(_, place)| place).collect()
    }
}

/// Divides by an extent: extents of chunks are often powers of two, and a division takes ten times as long as a shift.
struct Divisor {
    extent: u64,
    shift: Option<u32>,
}

impl Divisor {
    fn new(extent: u64) -> Divisor {
        let extent = extent.max(1);
        Divisor { extent, shift: extent.is_power_of_two().then(|| extent.trailing_zeros()) }
    }

    fn times(&self, index: u64) -> u64 {
        self.shift.map_or_else(|| index / self.extent, |shift| index >> shift)
    }

    fn rest(&self, index: u64) -> u64 {
        self.shift.map_or_else(|| index % self.extent, |_| index & (self.extent - 1))
    }
}

/// A counting sort.
fn counted(keys: &[u64], cells: usize) -> Vec<usize> {
    let mut next = vec![0usize; cells + 1];
    for &key in keys {
        next[key as usize + 1] += 1;
    }
    for cell in 0..cells {
        next[cell + 1] += next[cell];
    }
    let mut order = vec![0; keys.len()];
    for (place, &key) in keys.iter().enumerate() {
        let at = &mut next[key as usize];
        order[*at] = place;
        *at += 1;
    }
    order
}
