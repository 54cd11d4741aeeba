//! Boxes of arrays in stores, as expressions read them.

use std::fmt;

use cuzarr::node::Array;
use cuzarr::plan::{AxisSelection, Region, Selection};
use cuzarr::{Error, ErrorKind, Result};
use cuzarr_device::NdBuffer;

/// A box of an array in a store. The view counts its own elements.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) array: Array,
    /// What the view has of each dimension of the array; `None` where it has all elements.
    axes: Option<Vec<AxisSelection>>,
}

impl View {
    /// All elements of an array.
    pub(crate) fn whole(array: Array) -> View {
        View { array, axes: None }
    }

    /// The elements that a selection chooses.
    ///
    /// # Errors
    /// `SelectionInvalid` when it does not fit the array; `Unsupported` for index lists and points.
    pub(crate) fn new(array: Array, selection: &Selection) -> Result<View> {
        selection.check(array.shape())?;
        let Some(axes) = selection.axes() else {
            let message = format!("expressions take boxes of arrays, got {selection}");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("read these elements first"));
        };
        let is_all = |(axis, &extent): (&AxisSelection, &u64)| {
            axis.count == extent && !axis.dropped && (axis.start == 0 && axis.step == 1 || extent == 0)
        };
        let is_whole = axes.iter().zip(array.shape()).all(is_all);
        Ok(View { axes: (!is_whole).then(|| axes.to_vec()), array })
    }

    /// The shape of the view.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match &self.axes {
            Some(axes) => axes.iter().filter(|axis| !axis.dropped).map(|axis| axis.count).collect(),
            None => self.array.shape().to_vec(),
        }
    }

    /// Whether both views have the same elements of arrays that are known to be the same.
    pub(crate) fn is_like(&self, other: &View) -> bool {
        self.axes == other.axes
    }

    /// The extent of a chunk along each dimension of the view: as many of the view's elements as a chunk has at most.
    ///
    /// # Errors
    /// Those of [`Array::chunk_shape`].
    pub(crate) fn chunk_shape(&self) -> Result<Vec<u64>> {
        let chunk = self.array.chunk_shape()?;
        Ok(match &self.axes {
            Some(axes) => {
                let kept = axes.iter().zip(chunk).filter(|(axis, _)| !axis.dropped);
                kept.map(|(axis, extent)| extent.div_ceil(axis.step)).collect()
            }
            None => chunk,
        })
    }

    /// What a part of the view has of each dimension of the array.
    pub(crate) fn selected(&self, part: &Region) -> Vec<AxisSelection> {
        let mut own = part.start.iter().zip(&part.extent);
        let range = |start: u64, count: u64, step: u64| AxisSelection { start, count, step, dropped: false };
        match &self.axes {
            None => own.map(|(&start, &count)| range(start, count, 1)).collect(),
            Some(axes) => {
                let mut along = |axis: &AxisSelection| match axis.dropped {
                    true => *axis,
                    false => own
                        .next()
                        .map_or(*axis, |(&start, &count)| range(axis.start + start * axis.step, count, axis.step)),
                };
                axes.iter().map(&mut along).collect()
            }
        }
    }

    /// The elements of a part of the view.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`].
    pub(crate) fn read(&self, part: &Region) -> Result<NdBuffer> {
        self.array.read_buffer(&Selection::new(self.selected(part))?)
    }

    /// The box of the array that is a part of the view; `None` for views that leave out elements in between, or dimensions.
    pub(crate) fn region(&self, part: &Region) -> Option<Region> {
        let axes = self.selected(part);
        let is_dense = axes.iter().all(|axis| axis.step == 1 && !axis.dropped);
        let (start, extent) = axes.iter().map(|axis| (axis.start, axis.count)).unzip();
        is_dense.then_some(Region { number: part.number, start, extent })
    }

    /// Whether each part is one box of the array.
    pub(crate) fn is_dense(&self) -> bool {
        self.axes.iter().flatten().all(|axis| axis.step == 1 && !axis.dropped)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.array.path().is_empty() { "/" } else { self.array.path() })?;
        let Some(axes) = &self.axes else { return Ok(()) };
        let along = |axis: &AxisSelection| match (axis.dropped, axis.step) {
            (true, _) => axis.start.to_string(),
            (false, 1) => format!("{}:{}", axis.start, axis.start + axis.count),
            (false, step) => {
                format!("{}:{}:{step}", axis.start, axis.start + axis.count.saturating_sub(1) * step + 1)
            }
        };
        write!(f, "[{}]", axes.iter().map(along).collect::<Vec<_>>().join(", "))
    }
}
