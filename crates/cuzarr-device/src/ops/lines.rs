//! The lines of an array along one dimension.

use crate::c_layout::c_layout;
use crate::error::{Error, Result};

/// A packed array seen with three dimensions: all dimensions before an axis, the axis itself, and all dimensions behind
/// it. `Lines` in lines.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Number of elements of the dimensions before the axis.
    pub outer: u64,
    /// Number of elements of a line: the extent of the axis.
    pub extent: u64,
    /// Number of elements of the dimensions behind the axis: the distance between elements of a line.
    pub inner: u64,
}

// `Lines` in lines.cuh.
c_layout! { Lines: 24 bytes { outer at 0, extent at 8, inner at 16 } }

impl Lines {
    /// Divides an array of this shape into lines along dimension `axis`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dimension.
    pub(crate) fn new(shape: &[usize], axis: usize) -> Result<Lines> {
        let Some(&extent) = shape.get(axis) else {
            return Err(Error::invalid(format!("there is no dimension {axis} of {}", shape.len())));
        };
        let product = |extents: &[usize]| extents.iter().map(|&extent| extent as u64).product();
        Ok(Lines { outer: product(&shape[..axis]), extent: extent as u64, inner: product(&shape[axis + 1..]) })
    }

    /// Number of elements of the array that is divided into lines.
    pub(crate) fn len(self) -> u64 {
        self.outer * self.extent * self.inner
    }
}
