//! Selections of elements of an array: boxes with positive steps, outer products of index lists, and points.

use std::fmt;
use std::sync::Arc;

use super::divisor::Divisor;
use crate::error::{Error, ErrorKind, Result};

/// Which elements are selected along one dimension: `count` elements with the indices `start`, `start + step`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AxisSelection {
    /// Index of the first element that is selected.
    pub start: u64,
    /// Number of elements that are selected along the dimension.
    pub count: u64,
    /// Distance between neighbouring selected elements; at least 1.
    pub step: u64,
    /// Whether the dimension is missing in the result, as for an integer index. Then `count` is 1.
    pub dropped: bool,
}

/// One argument between the brackets of basic indexing, as in `array[1, 2:5]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceArg {
    /// An integer, which drops the dimension. Negative integers count from the end.
    Index(i64),
    /// A slice `start:stop:step`, as in Python.
    Slice {
        /// Index of the first element that is selected.
        start: Option<i64>,
        /// The index at which the slice ends; the element there is not selected.
        stop: Option<i64>,
        /// The distance between selected elements; it must be positive.
        step: Option<i64>,
    },
    /// An ellipsis `...`: as many full slices as the other arguments leave out.
    Ellipsis,
}

/// The selection along one dimension of an outer product: a range or an index list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AxisIndex {
    /// The selected elements lie at even distances.
    Range(AxisSelection),
    /// The elements with these indices along the dimension are selected, in any order. An index may occur several
    /// times.
    List(Arc<[u64]>),
}

/// A selection of elements of an array: a box, the outer product of one selector per dimension, or points.
///
/// If an element is selected several times in a write, the last value counts.
///
/// ```
/// use cuzarr::plan::{Selection, SliceArg};
/// let rows = SliceArg::Slice { start: Some(1), stop: None, step: Some(2) };
/// let selection = Selection::from_slices(&[rows, SliceArg::Index(-1)], &[6, 4])?;
/// assert_eq!(selection.shape(), [3]);
/// assert_eq!(selection.to_string(), "[1:6:2, 3]");
/// let points = Selection::points(vec![[5, 0].into(), [1, 1].into()])?;
/// assert_eq!(points.shape(), [2]);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    parts: Parts,
}

/// A selection by its kind: a box, the outer product of ranges and index lists, or points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Parts {
    /// A box: a range along each dimension.
    Box(Vec<AxisSelection>),
    /// A range or a list along each dimension, with at least one list.
    Product(Vec<AxisIndex>),
    /// For each dimension, the indices of all points.
    Points(Vec<Arc<[u64]>>),
}

impl Selection {
    /// Makes a selection from a range along each dimension. [`Selection::check`] tests whether it fits an array.
    ///
    /// # Errors
    /// `SelectionInvalid` when a step is 0, a dropped dimension does not have one element, or the last element overflows.
    pub fn new(axes: Vec<AxisSelection>) -> Result<Selection> {
        axes.iter().enumerate().try_for_each(|(axis, select)| check_range(axis, select))?;
        Ok(Selection { parts: Parts::Box(axes) })
    }

    /// Makes a selection that is the outer product of one range or index list per dimension.
    ///
    /// # Errors
    /// Those of [`Selection::new`].
    pub fn orthogonal(axes: Vec<AxisIndex>) -> Result<Selection> {
        let range = |axis: &AxisIndex| if let AxisIndex::Range(range) = axis { Some(*range) } else { None };
        if let Some(ranges) = axes.iter().map(range).collect() {
            return Selection::new(ranges);
        }
        for (axis, select) in axes.iter().enumerate() {
            range(select).map_or(Ok(()), |select| check_range(axis, &select))?;
        }
        Ok(Selection { parts: Parts::Product(axes) })
    }

    /// Makes a selection of single points, given by their indices along each dimension. For each dimension, `indices`
    /// has the indices of all points. The result has one dimension.
    ///
    /// # Errors
    /// `SelectionInvalid` when there are no dimensions, or the numbers of indices differ.
    pub fn points(indices: Vec<Arc<[u64]>>) -> Result<Selection> {
        let counts: Vec<usize> = indices.iter().map(|one| one.len()).collect();
        if counts.is_empty() || counts.iter().any(|count| *count != counts[0]) {
            let message = format!("points with {counts:?} indices along their dimensions, expected equal numbers");
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        Ok(Selection { parts: Parts::Points(indices) })
    }

    /// Selects points by their C-order numbers in an array of this shape, as [`nonzero`](cuzarr_device::nonzero) finds
    /// them in a mask.
    ///
    /// ```
    /// use cuzarr::device::{DType, Device, NdBuffer, Order, nonzero};
    /// use cuzarr::plan::Selection;
    /// let mask = NdBuffer::from_host(Device::Cpu, DType::BOOL, &[2, 3], Order::C, &[0, 1, 0, 0, 1, 1])?;
    /// let points = Selection::numbered(&nonzero(&mask)?, &[2, 3])?;
    /// assert_eq!(points, Selection::points(vec![[0, 1, 1].into(), [1, 1, 2].into()])?);
    /// # Ok::<(), cuzarr::Error>(())
    /// ```
    ///
    /// # Errors
    /// `SelectionInvalid` when there are no dimensions.
    pub fn numbered(numbers: &[u64], shape: &[u64]) -> Result<Selection> {
        let mut indices = Vec::with_capacity(shape.len());
        let mut inner = 1u64;
        for &extent in shape.iter().rev() {
            let (outer, extent) = (Divisor::new(inner), Divisor::new(extent));
            indices.push(numbers.iter().map(|&number| extent.rest(outer.times(number))).collect());
            inner = inner.saturating_mul(extent.extent());
        }
        indices.reverse();
        Selection::points(indices)
    }

    /// Selects every element of an array of this shape.
    pub fn all(shape: &[u64]) -> Selection {
        let axis = |&count: &u64| AxisSelection { start: 0, count, step: 1, dropped: false };
        Selection { parts: Parts::Box(shape.iter().map(axis).collect()) }
    }

    /// Selects the box of shape `extent` that begins at `start`.
    ///
    /// # Errors
    /// `SelectionInvalid` when the lengths differ or the end overflows.
    pub fn region(start: &[u64], extent: &[u64]) -> Result<Selection> {
        if start.len() != extent.len() {
            let message = format!("region has {} starts and {} extents", start.len(), extent.len());
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        let axes = start.iter().zip(extent);
        Selection::new(axes.map(|(&start, &count)| AxisSelection { start, count, step: 1, dropped: false }).collect())
    }

    /// Makes the selection of `array[args]` for an array of this shape. Dimensions without an argument are selected
    /// whole.
    ///
    /// # Errors
    /// `SelectionInvalid` for too many arguments, two ellipses, an index out of bounds, or a step below 1.
    pub fn from_slices(args: &[SliceArg], shape: &[u64]) -> Result<Selection> {
        let ellipses = args.iter().filter(|arg| **arg == SliceArg::Ellipsis).count();
        let given = args.len() - ellipses;
        if ellipses > 1 {
            return Err(Error::new(ErrorKind::SelectionInvalid, "an index can only have a single ellipsis"));
        }
        if given > shape.len() {
            let message = format!("too many indices: got {given}, the array has {} dimensions", shape.len());
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        let full = SliceArg::Slice { start: None, stop: None, step: None };
        let mut expanded = Vec::with_capacity(shape.len());
        for arg in args {
            match arg {
                SliceArg::Ellipsis => expanded.extend(std::iter::repeat_n(full, shape.len() - given)),
                other => expanded.push(*other),
            }
        }
        expanded.resize(shape.len(), full);
        let axes = expanded.iter().zip(shape).enumerate().map(|(axis, (arg, &len))| resolve(*arg, axis, len));
        Ok(Selection { parts: Parts::Box(axes.collect::<Result<_>>()?) })
    }

    /// Whether the selection consists of points.
    pub(crate) fn is_points(&self) -> bool {
        matches!(self.parts, Parts::Points(_))
    }

    /// The range along each dimension of the array, for a box; `None` for index lists and points.
    pub fn axes(&self) -> Option<&[AxisSelection]> {
        if let Parts::Box(axes) = &self.parts { Some(axes) } else { None }
    }

    /// The kind of the selection, with its parts.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Whether this selection and `other` are boxes that differ only in where they begin: they have the same shape and
    /// steps.
    pub fn is_like(&self, other: &Selection) -> bool {
        self.likeness().is_some_and(|own| other.likeness() == Some(own))
    }

    /// The shape, steps and dropped dimensions of a box; `None` for other selections.
    pub(crate) fn likeness(&self) -> Option<Vec<(u64, u64, bool)>> {
        Some(self.axes()?.iter().map(|axis| (axis.count, axis.step, axis.dropped)).collect())
    }

    /// The shape of the selected elements, without dropped dimensions.
    pub fn shape(&self) -> Vec<u64> {
        let range = |axis: &AxisSelection| (!axis.dropped).then_some(axis.count);
        match &self.parts {
            Parts::Box(axes) => axes.iter().filter_map(range).collect(),
            Parts::Product(axes) => axes
                .iter()
                .filter_map(|axis| match axis {
                    AxisIndex::Range(axis) => range(axis),
                    AxisIndex::List(list) => Some(list.len() as u64),
                })
                .collect(),
            Parts::Points(indices) => vec![indices[0].len() as u64],
        }
    }

    /// The first and last selected index along each dimension; `None` when nothing is selected.
    pub(super) fn bounds(&self) -> Option<Vec<(u64, u64)>> {
        if self.is_empty() {
            return None;
        }
        let range = |axis: &AxisSelection| Some((axis.start, axis.start + (axis.count - 1) * axis.step));
        let list = |list: &Arc<[u64]>| Some((*list.iter().min()?, *list.iter().max()?));
        match &self.parts {
            Parts::Box(axes) => axes.iter().map(range).collect(),
            Parts::Product(axes) => axes
                .iter()
                .map(|axis| match axis {
                    AxisIndex::Range(axis) => range(axis),
                    AxisIndex::List(indices) => list(indices),
                })
                .collect(),
            Parts::Points(indices) => indices.iter().map(list).collect(),
        }
    }

    /// Whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// The number of selected elements, or `None` when it does not fit 64 bits.
    pub fn len(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        self.shape().into_iter().try_fold(1u64, u64::checked_mul)
    }

    /// Checks that the selection fits an array of this shape.
    ///
    /// # Errors
    /// `SelectionInvalid` when the number of dimensions differs or an element lies outside.
    pub fn check(&self, shape: &[u64]) -> Result<()> {
        let ndim = match &self.parts {
            Parts::Box(axes) => axes.len(),
            Parts::Product(axes) => axes.len(),
            Parts::Points(indices) => indices.len(),
        };
        if ndim != shape.len() {
            let message = format!("selection has {ndim} dimensions, the array has {}", shape.len());
            return Err(Error::new(ErrorKind::SelectionInvalid, message));
        }
        let inside = |select: &AxisSelection, len: u64| {
            select.count == 0 || select.start + (select.count - 1) * select.step < len
        };
        let all_below = |list: &[u64], len: u64| list.iter().fold(true, |below, &index| below & (index < len));
        for (axis, &len) in shape.iter().enumerate() {
            let fits = match &self.parts {
                Parts::Box(axes) => inside(&axes[axis], len),
                Parts::Product(axes) => match &axes[axis] {
                    AxisIndex::Range(select) => inside(select, len),
                    AxisIndex::List(list) => all_below(list, len),
                },
                Parts::Points(indices) => all_below(&indices[axis], len),
            };
            if !fits {
                let message = format!("selection {self} leaves dimension {axis} of {len} elements");
                return Err(Error::new(ErrorKind::SelectionInvalid, message));
            }
        }
        Ok(())
    }
}

fn check_range(axis: usize, select: &AxisSelection) -> Result<()> {
    let last = select.count.saturating_sub(1).checked_mul(select.step).and_then(|n| n.checked_add(select.start));
    if select.step == 0 || last.is_none() || (select.dropped && select.count != 1) {
        let message = format!("selection {select:?} of dimension {axis} is not valid");
        return Err(Error::new(ErrorKind::SelectionInvalid, message));
    }
    Ok(())
}

fn resolve(arg: SliceArg, axis: usize, len: u64) -> Result<AxisSelection> {
    let wide = i128::from(len);
    let (start, stop, step) = match arg {
        SliceArg::Index(index) => {
            let at = if index < 0 { i128::from(index) + wide } else { i128::from(index) };
            return match u64::try_from(at) {
                Ok(start) if start < len => Ok(AxisSelection { start, count: 1, step: 1, dropped: true }),
                _ => {
                    let message = format!("index {index} is out of bounds for dimension {axis} with {len} elements");
                    Err(Error::new(ErrorKind::SelectionInvalid, message))
                }
            };
        }
        SliceArg::Slice { start, stop, step } => (start, stop, step),
        SliceArg::Ellipsis => (None, None, None),
    };
    let step = step.unwrap_or(1);
    if step < 1 {
        let message = format!("step of dimension {axis} is {step}, expected at least 1");
        return Err(Error::new(ErrorKind::SelectionInvalid, message));
    }
    let clamp = |at: Option<i64>, default: i128| match at.map(i128::from) {
        None => default,
        Some(at) if at < 0 => (at + wide).max(0),
        Some(at) => at.min(wide),
    };
    // Both lie in 0..=len, so they fit `u64`.
    let (start, stop) = (clamp(start, 0) as u64, clamp(stop, wide) as u64);
    let step = step as u64;
    let count = stop.saturating_sub(start).div_ceil(step);
    Ok(AxisSelection { start: if count == 0 { start.min(len) } else { start }, count, step, dropped: false })
}

impl fmt::Display for AxisSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The stop lies one full step behind the last element, as people usually write it.
        let stop = self.count.saturating_mul(self.step).saturating_add(self.start);
        match (self.dropped, self.step) {
            (true, _) => write!(f, "{}", self.start),
            (false, 1) => write!(f, "{}:{stop}", self.start),
            (false, step) => {
                let last = self.start.saturating_add(self.count.saturating_sub(1).saturating_mul(step));
                let stop = if self.count == 0 { self.start } else { last.saturating_add(1) };
                write!(f, "{}:{stop}:{step}", self.start)
            }
        }
    }
}

impl fmt::Display for AxisIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisIndex::Range(range) => range.fmt(f),
            AxisIndex::List(list) => write!(f, "{} indices", list.len()),
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn listed(f: &mut fmt::Formatter<'_>, axes: &[impl fmt::Display]) -> fmt::Result {
            f.write_str("[")?;
            for (position, axis) in axes.iter().enumerate() {
                let comma = if position > 0 { ", " } else { "" };
                write!(f, "{comma}{axis}")?;
            }
            f.write_str("]")
        }
        match &self.parts {
            Parts::Box(axes) => listed(f, axes),
            Parts::Product(axes) => listed(f, axes),
            Parts::Points(indices) => write!(f, "[{} points]", indices[0].len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> SliceArg {
        SliceArg::Slice { start, stop, step }
    }

    fn axis(arg: SliceArg, len: u64) -> (u64, u64, u64) {
        let selection = Selection::from_slices(&[arg], &[len]).unwrap();
        {
            let axis = selection.axes().unwrap()[0];
            (axis.start, axis.count, axis.step)
        }
    }

    #[test]
    fn slices_mean_what_python_means() {
        assert_eq!(axis(slice(None, None, None), 10), (0, 10, 1));
        assert_eq!(axis(slice(Some(-3), None, None), 10), (7, 3, 1));
        assert_eq!(axis(slice(Some(-30), Some(30), Some(4)), 10), (0, 3, 4));
        assert_eq!(axis(slice(Some(5), Some(2), None), 10).1, 0);
        assert_eq!(axis(slice(Some(1), Some(-1), Some(3)), 10), (1, 3, 3));
        assert_eq!(axis(slice(Some(99), None, None), 10).1, 0);
        assert_eq!(axis(slice(Some(i64::MIN), Some(i64::MAX), Some(i64::MAX)), 10), (0, 1, i64::MAX as u64));
        assert_eq!(axis(SliceArg::Index(-1), 10), (9, 1, 1));
    }

    #[test]
    fn ellipsis_fills_the_middle() {
        let args = [SliceArg::Index(1), SliceArg::Ellipsis, slice(Some(2), Some(4), None)];
        let selection = Selection::from_slices(&args, &[3, 4, 5, 6]).unwrap();
        assert_eq!(selection.shape(), [4, 5, 2]);
        assert_eq!(selection.to_string(), "[1, 0:4, 0:5, 2:4]");
        assert_eq!(Selection::from_slices(&[SliceArg::Ellipsis], &[]).unwrap().shape(), [0u64; 0]);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let refused =
            |args: &[SliceArg]| Selection::from_slices(args, &[4]).unwrap_err().kind() == ErrorKind::SelectionInvalid;
        assert!(refused(&[SliceArg::Index(4)]) && refused(&[SliceArg::Index(-5)]));
        assert!(refused(&[slice(None, None, Some(0))]) && refused(&[slice(None, None, Some(-1))]));
        assert!(refused(&[SliceArg::Index(0); 2]) && refused(&[SliceArg::Ellipsis; 2]));
        assert!(Selection::all(&[5]).check(&[4]).is_err() && Selection::all(&[0]).check(&[0]).is_ok());
        let overflow = AxisSelection { start: 2, count: 3, step: u64::MAX / 2, dropped: false };
        assert!(Selection::new(vec![overflow]).is_err());
    }
}
