//! Elements in host memory: results of typed reads, and arguments of typed writes.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use cuzarr_device::{HostElement, Layout, NdBuffer, Order};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Selection, memory_shape};

/// The elements that a read returns: a vector in C order, and its shape.
///
/// It can be used like a slice. With the feature `ndarray`, it converts to an `ndarray::ArrayD`, and [`Values::view`]
/// returns a view.
///
/// ```
/// use cuzarr::node::Values;
/// let values = Values::new(&[2, 3], vec![1, 2, 3, 4, 5, 6])?;
/// assert_eq!(values.element(&[1, 0]), Some(&4));
/// assert_eq!(values.iter().sum::<i32>(), 21);
/// # Ok::<(), cuzarr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Values<T> {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<T>,
}

impl<T> Values<T> {
    /// Makes values from a vector in C order and its shape.
    ///
    /// # Errors
    /// `ShapeMismatch` when the vector has more or fewer elements than the shape.
    pub fn new(shape: &[usize], elements: Vec<T>) -> Result<Values<T>> {
        match Layout::contiguous(shape, size_of::<T>(), Order::C) {
            Ok(layout) if layout.len() == elements.len() => Ok(Values { shape: shape.to_vec(), elements }),
            _ => {
                let message = format!("got {} elements for shape {shape:?}", elements.len());
                Err(Error::new(ErrorKind::ShapeMismatch, message))
            }
        }
    }

    /// The shape of the values.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element at an index; `None` if the index is outside the shape.
    pub fn element(&self, index: &[usize]) -> Option<&T> {
        let is_inside = index.len() == self.shape.len() && index.iter().zip(&self.shape).all(|(at, len)| at < len);
        let place = index.iter().zip(&self.shape).fold(0, |place, (at, len)| place * len + at);
        is_inside.then(|| &self.elements[place])
    }

    /// Converts the values to their vector, in C order.
    pub fn into_vec(self) -> Vec<T> {
        self.elements
    }
}

impl<T> Deref for Values<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements
    }
}

impl<T> DerefMut for Values<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements
    }
}

/// A source of elements for typed writes: slices, vectors and arrays in C order; [`Values`]; and, with the feature
/// `ndarray`, arrays and views of the crate `ndarray`.
///
/// Slices, vectors and arrays take the shape of the selection. The others have a shape of their own, which is broadcast
/// to the selection's.
pub trait HostData {
    /// The Rust type of the elements.
    type Element: HostElement;

    /// Returns a view of the elements in host memory. If there are gaps between them, the elements are copied first.
    fn view(&self) -> HostView<'_, Self::Element>;
}

/// A view of elements in host memory, with their layout; see [`HostData`].
pub struct HostView<'a, T: HostElement> {
    elements: Cow<'a, [T]>,
    /// The layout of the elements in the slice; `None` for packed elements, which take the selection's shape.
    layout: Option<Result<Layout>>,
}

impl<'a, T: HostElement> HostView<'a, T> {
    /// Makes a view of elements in C order, which take the shape of the selection.
    pub fn unshaped(elements: &'a [T]) -> HostView<'a, T> {
        HostView { elements: Cow::Borrowed(elements), layout: None }
    }

    /// Makes a view of elements in C order, with their own shape.
    pub fn shaped(elements: impl Into<Cow<'a, [T]>>, shape: &[usize]) -> HostView<'a, T> {
        let layout = Layout::contiguous(shape, size_of::<T>(), Order::C).map_err(Error::from);
        HostView { elements: elements.into(), layout: Some(layout) }
    }

    /// Makes a view of elements with strides, counted in elements. The first element is `elements[start]`.
    pub fn strided(elements: &'a [T], shape: &[usize], strides: &[isize], start: usize) -> HostView<'a, T> {
        let bytes = size_of::<T>();
        let strides: Vec<isize> = strides.iter().map(|&stride| stride.saturating_mul(bytes as isize)).collect();
        let layout = Layout::strided(shape, &strides, start.saturating_mul(bytes), bytes, size_of_val(elements));
        HostView { elements: Cow::Borrowed(elements), layout: Some(layout.map_err(Error::from)) }
    }

    /// The shape of the elements; `None` if they take the selection's shape.
    pub(super) fn shape(&self) -> Option<Result<&[usize]>> {
        self.layout.as_ref().map(|layout| layout.as_ref().map(Layout::shape).map_err(Error::clone))
    }

    /// Number of elements in the memory that this view covers.
    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }

    /// Calls `work` with the elements as an nd-buffer, without copying them.
    pub(super) fn lend(self, selection: &Selection, work: impl FnOnce(&NdBuffer) -> Result<()>) -> Result<()> {
        let layout = match self.layout {
            Some(layout) => layout?,
            None => {
                let (got, expected) = (self.elements.len(), selection.len());
                if expected != Some(got as u64) {
                    let message =
                        format!("got {got} elements, selection {selection} has shape {:?}", selection.shape());
                    return Err(Error::new(ErrorKind::ShapeMismatch, message));
                }
                Layout::contiguous(&memory_shape(selection)?, size_of::<T>(), Order::C)?
            }
        };
        NdBuffer::lend(&self.elements, layout, work)?
    }
}

impl<T: HostElement> HostData for [T] {
    type Element = T;

    fn view(&self) -> HostView<'_, T> {
        HostView::unshaped(self)
    }
}

impl<T: HostElement, const N: usize> HostData for [T; N] {
    type Element = T;

    fn view(&self) -> HostView<'_, T> {
        HostView::unshaped(self)
    }
}

impl<T: HostElement> HostData for Vec<T> {
    type Element = T;

    fn view(&self) -> HostView<'_, T> {
        HostView::unshaped(self)
    }
}

impl<T: HostElement> HostData for Values<T> {
    type Element = T;

    fn view(&self) -> HostView<'_, T> {
        HostView::shaped(&self.elements[..], &self.shape)
    }
}
