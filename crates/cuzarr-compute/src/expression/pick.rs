//! Picks: one selector for each dimension, combined as an outer product, with the result's dimensions in any order.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cuzarr::plan::{AxisIndex, AxisSelection, Region, Selection};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::{Layout, NdBuffer};

use crate::regions::memory_shape;

/// The indices that a pick chooses along one dimension of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Along {
    /// The pick chooses a single index. The result lacks the dimension.
    Index(u64),
    /// The pick chooses `count` indices at equal distances: `start`, `start + step`, ….
    Range {
        /// The first of the indices that are chosen.
        start: u64,
        /// Number of indices that are chosen.
        count: u64,
        /// Distance from each index to the next, positive or negative.
        step: i64,
    },
    /// The pick chooses the listed indices, in any order. An index may appear several times.
    List(Arc<[u64]>),
}

/// Where a dimension of the picked elements comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickedDim {
    /// The result's dimension is the dimension of the source with this index.
    Source(usize),
    /// The result's dimension is a new one with this extent, along which elements repeat.
    New(u64),
}

/// A selection of an expression's elements, and the order of the result's dimensions. It can express slices with
/// positive or negative steps, integers, index lists, transposes and new dimensions.
///
/// ```
/// use cuzarr::device::{DType, Device, NdBuffer, Order};
/// use cuzarr_compute::{Along, ComputeOptions, Expr, Pick, PickedDim};
/// let matrix: Vec<u8> = [1i32, 2, 3, 4, 5, 6].iter().flat_map(|x| x.to_ne_bytes()).collect();
/// let matrix = Expr::buffer(NdBuffer::from_host(Device::Cpu, DType::INT32, &[2, 3], Order::C, &matrix)?)?;
/// let rows = Along::Range { start: 1, count: 2, step: -1 };
/// let dims = vec![PickedDim::Source(1), PickedDim::Source(0)];
/// let turned = matrix.picked(&Pick::new(vec![rows, Along::List([0, 2].into())], dims)?)?;
/// assert_eq!(turned.shape(), [2, 2]);
/// assert_eq!(turned.compute(&ComputeOptions::default())?.host_slice::<i32>()?, [4, 1, 6, 3]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    along: Vec<Along>,
    dims: Vec<PickedDim>,
}

impl Along {
    pub(super) fn all(extent: u64) -> Along {
        Along::Range { start: 0, count: extent, step: 1 }
    }

    /// Returns the number of chosen indices; `None` for a single index, which drops the dimension.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Along::Index(_) => None,
            Along::Range { count, .. } => Some(*count),
            Along::List(list) => Some(list.len() as u64),
        }
    }

    /// Returns the source index that is chosen at position `at`, which must exist.
    pub(super) fn index(&self, at: u64) -> u64 {
        match self {
            Along::Index(index) => *index,
            Along::Range { start, step, .. } => start.wrapping_add_signed(step.wrapping_mul(at as i64)),
            Along::List(list) => list[at as usize],
        }
    }

    /// Returns how many chosen indices, from position `at` on, lie in the range `within` of the source without
    /// interruption. Element `at` must lie there.
    pub(super) fn run(&self, at: u64, within: &Range<u64>) -> u64 {
        match self {
            Along::Index(_) => 1,
            Along::Range { count, step, .. } => {
                let index = self.index(at);
                let left = if *step < 0 { index - within.start } else { within.end - 1 - index };
                (left / step.unsigned_abs().max(1) + 1).min(count - at)
            }
            Along::List(list) => list[at as usize..].iter().take_while(|index| within.contains(index)).count() as u64,
        }
    }

    /// Returns the indices of the source that remain if `next` chooses among the indices chosen here.
    pub(super) fn then(&self, next: &Along) -> Along {
        match (self, next) {
            (_, Along::Index(at)) => Along::Index(self.index(*at)),
            (Along::List(list), Along::Range { count, .. }) => {
                Along::List((0..*count).map(|at| list[next.index(at) as usize]).collect())
            }
            (_, Along::List(list)) => Along::List(list.iter().map(|&at| self.index(at)).collect()),
            (_, Along::Range { count: 0, .. }) => Along::all(0),
            (Along::Index(_), Along::Range { .. }) => self.clone(),
            (Along::Range { step: own, .. }, Along::Range { start, count, step }) => {
                Along::Range { start: self.index(*start), count: *count, step: own.saturating_mul(*step) }
            }
        }
    }

    /// Returns the chosen indices, each reduced by `start`.
    pub(super) fn moved(&self, start: u64) -> Along {
        match self {
            Along::Index(index) => Along::Index(index - start),
            Along::Range { start: first, count, step } => {
                Along::Range { start: first.saturating_sub(start), count: *count, step: *step }
            }
            Along::List(list) => Along::List(list.iter().map(|index| index - start).collect()),
        }
    }

    fn check(&self, axis: usize, extent: u64) -> Result<()> {
        let outside = |index: i128| !(0..i128::from(extent)).contains(&index);
        let wrong = match self {
            Along::Index(index) => outside(i128::from(*index)).then_some(i128::from(*index)),
            Along::Range { count: 0, .. } => None,
            Along::Range { start, count, step } => {
                let last = i128::from(*start).saturating_add(i128::from(*step).saturating_mul(i128::from(count - 1)));
                [i128::from(*start), last].into_iter().find(|&index| outside(index))
            }
            Along::List(list) => list.iter().map(|&index| i128::from(index)).find(|&index| outside(index)),
        };
        wrong.map_or(Ok(()), |index| {
            let message = format!("index {index} of dimension {axis} is outside of its extent {extent}");
            Err(Error::new(ErrorKind::SelectionInvalid, message))
        })
    }

    /// Converts the chosen indices to an index for reading from an array in a store. It has no negative steps: such a
    /// range is read in ascending order.
    fn rising(&self) -> AxisIndex {
        let range = |start, count, step, dropped| AxisIndex::Range(AxisSelection { start, count, step, dropped });
        match self {
            Along::Index(index) => range(*index, 1, 1, true),
            Along::Range { count: 0, .. } => range(0, 0, 1, false),
            Along::Range { start, count: 1, .. } => range(*start, 1, 1, false),
            Along::Range { start, count, step } if *step > 0 => range(*start, *count, *step as u64, false),
            Along::Range { count, step, .. } => range(self.index(count - 1), *count, step.unsigned_abs(), false),
            Along::List(list) => AxisIndex::List(Arc::clone(list)),
        }
    }

    fn is_falling(&self) -> bool {
        matches!(self, Along::Range { count, step, .. } if *step < 0 && *count > 1)
    }
}

impl From<&AxisIndex> for Along {
    fn from(index: &AxisIndex) -> Along {
        match index {
            AxisIndex::Range(axis) if axis.dropped => Along::Index(axis.start),
            AxisIndex::Range(axis) => {
                let step = i64::try_from(axis.step).unwrap_or(i64::MAX);
                Along::Range { start: axis.start, count: axis.count, step }
            }
            AxisIndex::List(list) => Along::List(Arc::clone(list)),
        }
    }
}

impl Pick {
    /// Makes a pick from one selector for each dimension of the source, and one entry for each dimension of the result.
    ///
    /// # Errors
    /// `SelectionInvalid` unless the result has each dimension of the source exactly once, except those with a single
    /// index; and for a step of 0.
    pub fn new(along: Vec<Along>, dims: Vec<PickedDim>) -> Result<Pick> {
        let mut named = vec![0; along.len()];
        for dim in &dims {
            if let PickedDim::Source(axis) = dim
                && let Some(times) = named.get_mut(*axis)
            {
                *times += 1;
            }
        }
        let fits = dims.iter().all(|dim| !matches!(dim, PickedDim::Source(axis) if *axis >= along.len()));
        let is_once = along.iter().zip(&named).all(|(own, times)| *times == usize::from(own.count().is_some()));
        if !fits || !is_once {
            let message =
                format!("the result's dimensions {dims:?} are not those of {} selectors, each once", along.len());
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        if along.iter().any(|own| matches!(own, Along::Range { step: 0, .. })) {
            return Err(Error::new(ErrorKind::SelectionInvalid, "a range has a step of 0"));
        }
        Ok(Pick { along, dims })
    }

    /// Makes the pick that chooses all elements of a source of this shape.
    pub fn all(shape: &[u64]) -> Pick {
        let dims = (0..shape.len()).map(PickedDim::Source).collect();
        Pick { along: shape.iter().copied().map(Along::all).collect(), dims }
    }

    /// Makes the pick that chooses the same elements as a selection by ranges and lists, in the source's dimension
    /// order.
    pub(crate) fn of_axes(axes: &[AxisIndex]) -> Pick {
        let along: Vec<Along> = axes.iter().map(Along::from).collect();
        let kept = along.iter().enumerate().filter(|(_, own)| own.count().is_some());
        Pick { dims: kept.map(|(axis, _)| PickedDim::Source(axis)).collect(), along }
    }

    /// Returns the shape of the picked elements.
    pub fn shape(&self) -> Vec<u64> {
        let extent = |dim: &PickedDim| match dim {
            PickedDim::Source(axis) => self.along[*axis].count().unwrap_or(1),
            PickedDim::New(extent) => *extent,
        };
        self.dims.iter().map(extent).collect()
    }

    /// Checks that the pick fits the shape of a source.
    ///
    /// # Errors
    /// `SelectionInvalid` if it does not fit.
    pub fn check(&self, shape: &[u64]) -> Result<()> {
        if self.along.len() != shape.len() {
            let message = format!("{} selectors for {} dimensions", self.along.len(), shape.len());
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        self.along.iter().zip(shape).enumerate().try_for_each(|(axis, (own, &extent))| own.check(axis, extent))
    }

    /// Returns the chosen indices along a dimension of the source.
    pub(super) fn along(&self, axis: usize) -> &Along {
        &self.along[axis]
    }

    /// Returns the dimension of the result that a dimension of the source becomes; `None` if a single index drops it.
    pub(super) fn dim_of(&self, axis: usize) -> Option<usize> {
        self.dims.iter().position(|dim| *dim == PickedDim::Source(axis))
    }

    /// Returns this pick, but with the indices `along` in one dimension of the source.
    pub(super) fn with(&self, axis: usize, along: Along) -> Pick {
        let mut pick = self.clone();
        pick.along[axis] = along;
        pick
    }

    /// Whether the pick chooses all elements of a source of this shape, in the source's order.
    pub(crate) fn is_all(&self, shape: &[u64]) -> bool {
        let is_all = |(own, &extent): (&Along, &u64)| match own {
            Along::Range { start: 0, count, step } => *count == extent && (*step == 1 || extent < 2),
            _ => false,
        };
        self.is_in_order() && self.along.iter().zip(shape).all(is_all)
    }

    /// Whether all dimensions of the result come from the source, in the source's order.
    fn is_in_order(&self) -> bool {
        let mut last = None;
        self.dims.iter().all(|dim| match dim {
            PickedDim::Source(axis) if last.is_none_or(|last| last < *axis) => {
                last = Some(*axis);
                true
            }
            _ => false,
        })
    }

    /// Whether the pick chooses a box of the source, without gaps.
    pub(crate) fn is_dense(&self) -> bool {
        let is_dense = |own: &Along| matches!(own, Along::Range { count, step, .. } if *step == 1 || *count < 2);
        self.is_in_order() && self.along.iter().all(is_dense)
    }

    /// Combines two picks: `next` chooses among the elements of this one.
    pub(crate) fn then(&self, next: &Pick) -> Pick {
        let mut along = self.along.clone();
        for (dim, own) in self.dims.iter().zip(&next.along) {
            if let PickedDim::Source(axis) = dim {
                along[*axis] = along[*axis].then(own);
            }
        }
        let dim = |dim: &PickedDim| match dim {
            PickedDim::New(extent) => PickedDim::New(*extent),
            PickedDim::Source(place) => match self.dims[*place] {
                PickedDim::New(_) => PickedDim::New(next.along[*place].count().unwrap_or(1)),
                own => own,
            },
        };
        Pick { dims: next.dims.iter().map(dim).collect(), along }
    }

    /// Returns the pick that chooses only the region `part` of the picked elements.
    pub(crate) fn part(&self, part: &Region) -> Pick {
        let ranges = part.start.iter().zip(&part.extent);
        let range =
            |(&start, &count): (&u64, &u64)| Along::Range { start: if count == 0 { 0 } else { start }, count, step: 1 };
        self.then(&Pick {
            along: ranges.map(range).collect(),
            dims: (0..self.dims.len()).map(PickedDim::Source).collect(),
        })
    }

    /// Converts this pick of an expression of shape `whole` to a pick of an operand with the shape `own`.
    pub(crate) fn for_operand(&self, whole: &[u64], own: &[u64]) -> Pick {
        let missing = whole.len().saturating_sub(own.len());
        let along = |(axis, &extent): (usize, &u64)| match &self.along[missing + axis] {
            Along::Index(_) if extent == 1 => Along::Index(0),
            selector if extent != 1 || whole[missing + axis] == 1 => selector.clone(),
            _ => Along::all(1),
        };
        let dim = |dim: &PickedDim| match dim {
            PickedDim::Source(axis) => axis.checked_sub(missing).map_or(PickedDim::New(1), PickedDim::Source),
            new => *new,
        };
        Pick { along: own.iter().enumerate().map(along).collect(), dims: self.dims.iter().map(dim).collect() }
    }

    /// Returns the selection that reads the elements: dimensions in the source's order, all ranges ascending.
    ///
    /// # Errors
    /// Those of [`Selection::orthogonal`].
    pub(crate) fn selection(&self) -> Result<Selection> {
        Selection::orthogonal(self.along.iter().map(Along::rising).collect())
    }

    /// Returns [`Pick::selection`] as one range for each dimension; `None` if there are index lists.
    pub(crate) fn ranges(&self) -> Option<Vec<AxisSelection>> {
        let range = |own: &Along| match own.rising() {
            AxisIndex::Range(range) => Some(range),
            AxisIndex::List(_) => None,
        };
        self.along.iter().map(range).collect()
    }

    /// Rearranges elements that were read by [`Pick::selection`] into the picked order. The result is a view of the
    /// same memory.
    ///
    /// # Errors
    /// `InvalidArgument` if `read` does not have the shape of that selection.
    pub(crate) fn arranged(&self, read: &NdBuffer) -> Result<NdBuffer> {
        if self.is_in_order() && !self.along.iter().any(Along::is_falling) {
            return Ok(read.clone());
        }
        let kept: Vec<usize> = (0..self.along.len()).filter(|&axis| self.along[axis].count().is_some()).collect();
        let mut offset = read.layout().offset_bytes();
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for dim in &self.dims {
            let (extent, stride) = match dim {
                PickedDim::New(extent) => (memory_shape(&[*extent])?[0], 0),
                PickedDim::Source(axis) => {
                    let place = kept.iter().position(|own| own == axis).unwrap_or_default();
                    let (extent, stride) = (read.shape()[place], read.strides()[place]);
                    if self.along[*axis].is_falling() {
                        offset = offset.wrapping_add_signed(stride * (extent as isize - 1));
                        (extent, -stride)
                    } else {
                        (extent, stride)
                    }
                }
            };
            shape.push(extent);
            strides.push(stride);
        }
        let memory_bytes = read.buffer().size_bytes();
        if read.is_empty() {
            offset = read.layout().offset_bytes();
        }
        let layout = Layout::strided(&shape, &strides, offset, read.dtype().size_bytes(), memory_bytes)?;
        Ok(NdBuffer::from_parts(read.buffer().clone(), read.dtype(), layout)?)
    }

    /// Returns the picked elements of an array in memory. The result is a view, unless there are index lists.
    ///
    /// # Errors
    /// `SelectionInvalid` if the pick does not fit; what the device reports.
    pub(crate) fn of_memory(&self, source: &NdBuffer) -> Result<NdBuffer> {
        let rising: Vec<AxisIndex> = self.along.iter().map(Along::rising).collect();
        let mut elements = source.clone();
        for (axis, index) in rising.iter().enumerate() {
            let (mut start, mut step) = (vec![0; elements.ndim()], vec![1; elements.ndim()]);
            let mut extent = elements.shape().to_vec();
            match index {
                AxisIndex::Range(range) => {
                    let place = memory_shape(&[range.start, range.count, range.step])?;
                    (start[axis], extent[axis], step[axis]) = (place[0], place[1], place[2]);
                    elements = elements.region(&start, &extent, &step)?;
                }
                AxisIndex::List(list) => elements = elements.take(axis, list)?,
            }
        }
        let dropped: Vec<usize> = (0..self.along.len()).filter(|&axis| self.along[axis].count().is_none()).collect();
        self.arranged(&elements.squeeze(&dropped)?)
    }

    /// Returns the largest number of picked elements, along each dimension of the result, that lie in one chunk of the
    /// source.
    pub(crate) fn chunk_shape(&self, chunk: &[u64], whole: &[u64]) -> Vec<u64> {
        let extent = |dim: &PickedDim| match dim {
            PickedDim::New(extent) => (*extent).max(1),
            PickedDim::Source(axis) => match &self.along[*axis] {
                Along::Range { step, .. } => chunk[*axis].div_ceil(step.unsigned_abs()).max(1),
                // Assumes that the indices are spread evenly.
                Along::List(list) => {
                    let share = u128::from(chunk[*axis]) * list.len() as u128 / u128::from(whole[*axis].max(1));
                    u64::try_from(share).unwrap_or(u64::MAX).clamp(1, (list.len() as u64).max(1))
                }
                Along::Index(_) => 1,
            },
        };
        self.dims.iter().map(extent).collect()
    }

    /// Returns the flat C-order indices, in a source of this shape, of the picked elements.
    pub(crate) fn numbers(&self, shape: &[u64]) -> Vec<u64> {
        let mut strides = vec![1u64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
        }
        let fixed = self.along.iter().zip(&strides).filter(|(own, _)| own.count().is_none());
        let mut numbers = vec![fixed.map(|(own, stride)| own.index(0) * stride).sum()];
        for (dim, extent) in self.dims.iter().zip(self.shape()) {
            let at = |place: u64| match dim {
                PickedDim::Source(axis) => self.along[*axis].index(place) * strides[*axis],
                PickedDim::New(_) => 0,
            };
            let steps: Vec<u64> = (0..extent).map(at).collect();
            numbers = numbers.iter().flat_map(|number: &u64| steps.iter().map(move |step| number + step)).collect();
        }
        numbers
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let along = |own: &Along| match own {
            Along::Index(index) => index.to_string(),
            Along::Range { count: 0, .. } => "0:0".to_owned(),
            Along::Range { start, count, step: 1 } => format!("{start}:{}", start + count),
            Along::Range { start, count, step } => {
                let end = i128::from(own.index(count - 1)) + i128::from(step.signum());
                // No index means "before the first element".
                let end = if end < 0 { String::new() } else { end.to_string() };
                format!("{start}:{end}:{step}")
            }
            Along::List(list) => format!("{} indices", list.len()),
        };
        write!(f, "[{}]", self.along.iter().map(along).collect::<Vec<_>>().join(", "))?;
        if self.is_in_order() {
            return Ok(());
        }
        let kept: Vec<usize> = (0..self.along.len()).filter(|&axis| self.along[axis].count().is_some()).collect();
        let dim = |dim: &PickedDim| match dim {
            PickedDim::Source(axis) => kept.iter().position(|own| own == axis).unwrap_or_default().to_string(),
            PickedDim::New(_) => "new".to_owned(),
        };
        write!(f, ".transpose({})", self.dims.iter().map(dim).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_the_next_element_lies_elsewhere() {
        let list = Along::List([3, 4, 9, 4, 3].into());
        let ranges = [(0, 12, 1), (11, 12, -1), (1, 4, 3), (10, 4, -3), (5, 1, 1), (0, 2, 11)]
            .map(|(start, count, step)| Along::Range { start, count, step });
        for along in ranges.iter().chain([&list]) {
            for within in [0..5, 5..6, 6..12, 0..12] {
                let count = along.count().unwrap();
                for at in (0..count).filter(|&at| within.contains(&along.index(at))) {
                    let expected = (at..count).take_while(|&next| within.contains(&along.index(next))).count() as u64;
                    assert_eq!(along.run(at, &within), expected, "{along:?} from {at} in {within:?}");
                }
            }
        }
    }
}
