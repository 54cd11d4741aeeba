//! Conversion to and from arrays and views of the crate `ndarray`.

use cuzarr_device::HostElement;
use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};

use super::values::{HostData, HostView, Values};

impl<T> Values<T> {
    /// Returns the values as a view of the crate `ndarray`.
    pub fn view(&self) -> ArrayViewD<'_, T> {
        let view = ArrayViewD::from_shape(IxDyn(&self.shape), &self.elements);
        view.expect("constructors checked that there are as many elements as the shape has")
    }

    /// Converts the values to an array of the crate `ndarray`, without a copy.
    pub fn into_ndarray(self) -> ArrayD<T> {
        let array = ArrayD::from_shape_vec(IxDyn(&self.shape), self.elements);
        array.expect("constructors checked that there are as many elements as the shape has")
    }
}

/// Takes arrays of the crate `ndarray` for typed writes; elements without gaps are not copied. Others are packed first.
impl<S: Data<Elem: HostElement>, D: Dimension> HostData for ArrayBase<S, D> {
    type Element = S::Elem;

    fn view(&self) -> HostView<'_, S::Elem> {
        let Some(elements) = self.as_slice_memory_order() else {
            return HostView::shaped(self.iter().copied().collect::<Vec<_>>(), self.shape());
        };
        // Along dimensions with negative strides, the slice begins at the last element.
        let start = self.shape().iter().zip(self.strides()).filter(|(_, stride)| **stride < 0);
        let start = start.map(|(extent, stride)| extent.saturating_sub(1) * stride.unsigned_abs()).sum();
        HostView::strided(elements, self.shape(), self.strides(), start)
    }
}
