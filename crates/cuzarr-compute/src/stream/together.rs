//! Reads several views of one array together, so that chunks which they share are read once.

use crate::expression::View;
use crate::regions::memory_shape;
use cuzarr::Result;
use cuzarr::plan::{AxisSelection, Region, Selection};
use cuzarr_device::NdBuffer;

/// The elements of a box of an array, which was read once for several views of that array. The box is read in one call,
/// so chunks that several views need are read only once.
pub(crate) struct Together {
    start: Vec<u64>,
    elements: NdBuffer,
}

impl Together {
    /// Reads the box that contains the given regions of several views of one array. `None` if the box has more elements
    /// than all parts together.
    ///
    /// # Errors
    /// Those of [`Array::read_buffer`].
    pub(crate) fn read(views: &[(&View, Region)]) -> Result<Option<Together>> {
        let [(first, _), ..] = views else { return Ok(None) };
        let ranges: Option<Vec<_>> = views.iter().map(|(view, part)| view.ranges(part)).collect();
        let Some(parts): Option<Vec<Vec<AxisSelection>>> = ranges else { return Ok(None) };
        if parts.iter().flatten().any(|axis| axis.count == 0) {
            return Ok(None);
        }
        let end = |axis: &AxisSelection| axis.start + (axis.count - 1) * axis.step + 1;
        let along = |dim: usize| {
            let axes = || parts.iter().map(|part| &part[dim]);
            let start = axes().map(|axis| axis.start).min().unwrap_or(0);
            (start, axes().map(end).max().unwrap_or(0) - start)
        };
        let (start, extent): (Vec<u64>, Vec<u64>) = (0..first.array.shape().len()).map(along).unzip();
        let elems = |extents: &mut dyn Iterator<Item = u64>| extents.fold(1, u64::saturating_mul);
        let apart = parts.iter().map(|part| elems(&mut part.iter().map(|axis| axis.count)));
        if elems(&mut extent.iter().copied()) > apart.fold(0, u64::saturating_add) {
            return Ok(None);
        }
        let elements = first.array.read_buffer(&Selection::region(&start, &extent)?)?;
        Ok(Some(Together { start, elements }))
    }

    /// Returns the elements of one view's region, taken from the box.
    ///
    /// # Errors
    /// `InvalidArgument` for a part that was not read.
    pub(crate) fn part(&self, view: &View, part: &Region) -> Result<NdBuffer> {
        let axes = view.ranges(part).unwrap_or_default();
        let start: Vec<u64> = axes.iter().zip(&self.start).map(|(axis, start)| axis.start - start).collect();
        let all = |of: fn(&AxisSelection) -> u64| memory_shape(&axes.iter().map(of).collect::<Vec<_>>());
        let elements =
            self.elements.region(&memory_shape(&start)?, &all(|axis| axis.count)?, &all(|axis| axis.step)?)?;
        let dropped: Vec<usize> = (0..axes.len()).filter(|&dim| axes[dim].dropped).collect();
        view.arranged(part, &elements.squeeze(&dropped)?)
    }
}
