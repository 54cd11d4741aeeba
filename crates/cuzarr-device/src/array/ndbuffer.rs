//! Typed, strided, N-dimensional memory on a device.

use std::fmt;

use crate::array::dtype::DType;
use crate::array::layout::{Layout, Order};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::footprint::Footprint;
use crate::memory::lease::{Access, Lease};

/// Typed, strided, N-dimensional memory on one device: a [`Buffer`], a [`DType`] and a [`Layout`] (offset and strides
/// in bytes, relative to the buffer).
///
/// Cloning, slicing, transposing and reshaping give views that share memory, as in NumPy. Writes through one view are
/// seen by all: `fill`, `copy_from` and transfers take `&self`. Users of host memory lease the elements they touch, see
/// [`Buffer`]. [`NdBuffer::writer`] lets many threads write disjoint parts. Methods return when their work is done.
///
/// ```
/// use cuzarr_device::{Device, DType, NdBuffer, Order};
/// let bytes: Vec<u8> = (0..6_i16).flat_map(i16::to_ne_bytes).collect();
/// let array = NdBuffer::from_host(Device::Cpu, DType::INT16, &[2, 3], Order::C, &bytes)?;
/// let column = array.region(&[0, 1], &[2, 1], &[1, 1])?;
/// column.fill(&9_i16.to_ne_bytes())?;
/// assert_eq!(array.host_slice::<i16>()?, [0, 9, 2, 3, 9, 5]);
/// # Ok::<(), cuzarr_device::Error>(())
/// ```
#[derive(Clone)]
pub struct NdBuffer {
    buffer: Buffer,
    dtype: DType,
    layout: Layout,
}

impl NdBuffer {
    /// Allocates an nd-buffer with unspecified contents, packed in `order`.
    ///
    /// # Errors
    /// `InvalidArgument` when the size overflows; else as [`Buffer::empty`].
    pub fn empty(device: Device, dtype: DType, shape: &[usize], order: Order) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, dtype.size_bytes(), order)?;
        Ok(NdBuffer { buffer: Buffer::empty(device, layout.size_bytes())?, dtype, layout })
    }

    /// Allocates an nd-buffer of zero bytes, packed in `order`. On the host this costs nothing until the memory is
    /// touched.
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`].
    pub fn zeroed(device: Device, dtype: DType, shape: &[usize], order: Order) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, dtype.size_bytes(), order)?;
        Ok(NdBuffer { buffer: Buffer::zeroed(device, layout.size_bytes())?, dtype, layout })
    }

    /// Copies packed host bytes to a new nd-buffer on `device`.
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`]; `InvalidArgument` when there are more or fewer bytes than the shape needs.
    pub fn from_host(device: Device, dtype: DType, shape: &[usize], order: Order, bytes: &[u8]) -> Result<NdBuffer> {
        let layout = Layout::contiguous(shape, dtype.size_bytes(), order)?;
        if bytes.len() != layout.size_bytes() {
            let (got, expected) = (bytes.len(), layout.size_bytes());
            return Err(Error::invalid(format!("got {got} bytes for shape {shape:?} of {dtype}, expected {expected}")));
        }
        Ok(NdBuffer { buffer: Buffer::from_bytes(device, bytes)?, dtype, layout })
    }

    /// Makes an nd-buffer of existing memory, a dtype and a layout, without copying.
    ///
    /// # Errors
    /// `InvalidArgument` when an element would lie outside the memory, or the element sizes differ.
    pub fn from_parts(buffer: Buffer, dtype: DType, layout: Layout) -> Result<NdBuffer> {
        if layout.element_bytes() != dtype.size_bytes() {
            let got = layout.element_bytes();
            return Err(Error::invalid(format!("layout has {got}-byte elements, expected those of {dtype}")));
        }
        let (shape, strides) = (layout.shape(), layout.strides());
        Layout::strided(shape, strides, layout.offset_bytes(), layout.element_bytes(), buffer.size_bytes())?;
        Ok(NdBuffer { buffer, dtype, layout })
    }

    /// The device in whose memory the nd-buffer's elements lie.
    pub fn device(&self) -> Device {
        self.buffer.device()
    }

    /// The type of the nd-buffer's elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the nd-buffer: the extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Bytes from one element to the next, for each dimension.
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// Number of dimensions of the nd-buffer.
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// Number of elements of the nd-buffer.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether the nd-buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Size of the elements in bytes when packed.
    pub fn size_bytes(&self) -> usize {
        self.layout.size_bytes()
    }

    /// Shape, strides and offset with which the nd-buffer's elements lie in its memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The flat memory in which the nd-buffer's elements lie. It may be larger than they are.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The device address of element (0, …, 0).
    pub fn address(&self) -> usize {
        self.buffer.address() + self.layout.offset_bytes()
    }

    /// Whether the nd-buffer's elements must not be written.
    pub fn is_read_only(&self) -> bool {
        self.buffer.is_read_only()
    }

    /// Whether the nd-buffer's elements are packed without gaps in `order`.
    pub fn is_contiguous(&self, order: Order) -> bool {
        self.layout.is_contiguous(order)
    }

    /// The packed bytes of the nd-buffer as a flat buffer that shares the memory. The elements must be contiguous in C
    /// order.
    ///
    /// # Errors
    /// `InvalidArgument` when the elements are not contiguous.
    pub fn as_buffer(&self) -> Result<Buffer> {
        if !self.is_contiguous(Order::C) {
            return Err(Error::invalid("elements are not contiguous").with_hint("copy them first"));
        }
        let start = self.layout.offset_bytes();
        self.buffer.slice(start..start + self.size_bytes())
    }

    /// Whether the two nd-buffers have a byte in common. Also `true` for unusual layouts for which the exact answer
    /// would take long.
    ///
    /// ```
    /// use cuzarr_device::{DType, Device, NdBuffer, Order};
    /// let table = NdBuffer::zeroed(Device::Cpu, DType::UINT16, &[4, 2], Order::C)?;
    /// let (left, right) = (table.index_axis(1, 0)?, table.index_axis(1, 1)?);
    /// assert!(!left.overlaps(&right) && left.overlaps(&table));
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    pub fn overlaps(&self, other: &NdBuffer) -> bool {
        let at = |array: &NdBuffer| {
            let start = array.buffer.address() + array.layout.offset_bytes();
            Footprint::strided(array.shape(), array.strides(), start, array.dtype.size_bytes())
        };
        matches!((at(self), at(other)), (Some(one), Some(two)) if one.overlaps(&two))
    }

    /// The first address that the elements touch, and the address behind the last.
    pub fn address_span(&self) -> (usize, usize) {
        let base = self.buffer.address();
        // Constructors checked that the span lies inside the memory.
        let (start, end) = self.layout.span_bytes().unwrap_or((0, self.buffer.size_bytes()));
        (base + start, base + end)
    }

    /// The bytes of the memory block that the elements touch.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        let start = self.buffer.offset_bytes() + self.layout.offset_bytes();
        Footprint::strided(self.shape(), self.strides(), start, self.dtype.size_bytes())
    }

    /// Records that all elements of the nd-buffer are being read or written; conflicting accesses are refused while the
    /// result lives.
    pub(crate) fn lease(&self, access: Access) -> Result<Lease> {
        self.buffer.lease_of(self.footprint(), access)
    }

    pub(crate) fn with_layout(&self, layout: Layout) -> NdBuffer {
        NdBuffer { buffer: self.buffer.clone(), dtype: self.dtype, layout }
    }

    /// A view of the same bits as elements of another type. If its size differs, the extent of the last dimension
    /// changes.
    ///
    /// # Errors
    /// `InvalidArgument` when sizes differ and the last dimension is not packed, its bytes are no whole number of
    /// elements, or the new elements would not be aligned.
    pub fn reinterpret(&self, dtype: DType) -> Result<NdBuffer> {
        let bytes = dtype.size_bytes();
        if bytes == self.dtype.size_bytes() {
            return Ok(NdBuffer { dtype, ..self.clone() });
        }
        let alignment = 1 << bytes.trailing_zeros().min(4);
        let layout =
            self.layout.with_element_bytes(bytes, alignment).filter(|_| self.address().is_multiple_of(alignment));
        let layout = layout.ok_or_else(|| {
            let (shape, strides) = (self.shape(), self.strides());
            let own = self.dtype;
            Error::invalid(format!("{own} of shape {shape:?} with strides {strides:?} cannot be viewed as {dtype}"))
                .with_hint("copy it first")
        })?;
        Ok(NdBuffer { buffer: self.buffer.clone(), dtype, layout })
    }

    /// A view of the same elements under another shape. Elements keep their C order.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of elements differs, or the strides would need a copy.
    pub fn reshape(&self, shape: &[usize]) -> Result<NdBuffer> {
        let layout = self.layout.reshape(shape)?.ok_or_else(|| {
            let (own, strides) = (self.shape(), self.strides());
            let message = format!("shape {own:?} with strides {strides:?} cannot be viewed as {shape:?}");
            Error::invalid(message).with_hint("copy it: `reshape_copy`")
        })?;
        Ok(self.with_layout(layout))
    }

    /// A view with reordered dimensions: dimension `i` is dimension `axes[i]` of this nd-buffer.
    ///
    /// # Errors
    /// `InvalidArgument` when `axes` is not a permutation.
    pub fn transpose(&self, axes: &[usize]) -> Result<NdBuffer> {
        Ok(self.with_layout(self.layout.transpose(axes)?))
    }

    /// A view without the dimensions `axes`, which must have extent 1.
    ///
    /// # Errors
    /// `InvalidArgument` when a dimension has another extent.
    pub fn squeeze(&self, axes: &[usize]) -> Result<NdBuffer> {
        Ok(self.with_layout(self.layout.squeeze(axes)?))
    }

    /// A view of a box that begins at `start`, takes every `step`-th element, and has `extent` elements per dimension.
    ///
    /// # Errors
    /// `InvalidArgument` when the box does not lie inside.
    pub fn region(&self, start: &[usize], extent: &[usize], step: &[usize]) -> Result<NdBuffer> {
        Ok(self.with_layout(self.layout.region(start, extent, step)?))
    }

    /// A view of the elements whose index along dimension `axis` is `index`. The view does not have that dimension.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such position.
    pub fn index_axis(&self, axis: usize, index: usize) -> Result<NdBuffer> {
        Ok(self.with_layout(self.layout.index_axis(axis, index)?))
    }

    /// A read-only view that repeats elements, as NumPy broadcasts.
    ///
    /// # Errors
    /// `InvalidArgument` when the shapes do not match.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<NdBuffer> {
        let view = self.with_layout(self.layout.broadcast_to(shape)?);
        Ok(match view.shape() == self.shape() {
            true => view,
            false => NdBuffer { buffer: view.buffer.into_read_only(), ..view },
        })
    }

    pub(crate) fn check_element(&self, element: &[u8]) -> Result<()> {
        if element.len() == self.dtype.size_bytes() {
            return Ok(());
        }
        let (got, expected) = (element.len(), self.dtype.size_bytes());
        Err(Error::invalid(format!("an element of {} has {expected} bytes, got {got}", self.dtype)))
    }
}

impl fmt::Debug for NdBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, dtype, shape, strides) = (self.device(), self.dtype, self.shape(), self.strides());
        write!(f, "NdBuffer({device}, {dtype}, shape {shape:?}, strides {strides:?})")
    }
}
