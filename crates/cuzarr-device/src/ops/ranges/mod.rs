//! Copies ranges of elements of several arrays into one array, such as rows of variable length into a batch.

mod cuda;

use crate::array::layout::Order;
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::step::require_dtype;
use crate::stream::Stream;

/// A range of elements to copy from one of several arrays to another array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRange {
    /// Number of the array from which elements are copied.
    pub source: usize,
    /// Index of the range's first element in the array from which elements are copied.
    pub start: usize,
    /// Index in the target to which the first element is copied.
    pub target: usize,
    /// Number of elements to copy.
    pub len: usize,
}

impl NdBuffer {
    /// Copies ranges of other arrays into this one. All arrays are contiguous, have one dimension and the same type. If
    /// two ranges have the same target, either's elements may stay. Returns when the elements are there; on a GPU, one
    /// launch copies tens of thousands of ranges.
    ///
    /// ```
    /// use cuzarr_device::{Device, ElementRange, NdBuffer};
    /// let of = |values: &[u8]| NdBuffer::from_slice(Device::Cpu, values, &[values.len()]);
    /// let (joined, sources) = (of(&[0; 5])?, [of(&[1, 2, 3])?, of(&[4, 5, 6])?]);
    /// let last = ElementRange { source: 1, start: 1, target: 0, len: 2 };
    /// let first = ElementRange { source: 0, start: 0, target: 2, len: 3 };
    /// joined.copy_ranges(&sources, &[last, first])?;
    /// assert_eq!(joined.host_slice::<u8>()?, [5, 6, 1, 2, 3]);
    /// # Ok::<(), cuzarr_device::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when a range names no source or leaves an array, arrays have another type, several dimensions
    /// or gaps, or the memory is read-only or also a source's; `MemorySpace` when arrays are on different devices.
    pub fn copy_ranges(&self, sources: &[NdBuffer], ranges: &[ElementRange]) -> Result<()> {
        self.buffer().require_writable()?;
        require_line("the target", self, self)?;
        for source in sources {
            require_line("a source", source, self)?;
            if source.overlaps(self) {
                return Err(Error::invalid("a source and the target overlap"));
            }
        }
        for (number, range) in ranges.iter().enumerate() {
            let Some(source) = sources.get(range.source) else {
                let (got, count) = (range.source, sources.len());
                return Err(Error::invalid(format!("range {number} is of source {got}, but there are {count}")));
            };
            let fits =
                |first: usize, array: &NdBuffer| first.checked_add(range.len).is_some_and(|end| end <= array.len());
            if !fits(range.start, source) || !fits(range.target, self) {
                let (from, to) = (source.len(), self.len());
                let message =
                    format!("range {number}, {range:?}, leaves its source of {from} elements or its target of {to}");
                return Err(Error::invalid(message));
            }
        }
        let elem_bytes = self.dtype().size_bytes();
        match self.device() {
            Device::Cpu => {
                let sources = sources.iter().map(NdBuffer::as_buffer).collect::<Result<Vec<_>>>()?;
                let sources = sources.iter().map(|source| source.host_bytes()).collect::<Result<Vec<_>>>()?;
                let target = self.as_buffer()?;
                let mut target = target.host_bytes_mut()?;
                for range in ranges {
                    let own = |first: usize| first * elem_bytes..(first + range.len) * elem_bytes;
                    target[own(range.target)].copy_from_slice(&sources[range.source][own(range.start)]);
                }
                Ok(())
            }
            device if elem_bytes > 0 => cuda::copy(sources, self, ranges, &Stream::legacy(device)?),
            _ => Ok(()),
        }
    }
}

/// Refuses arrays that have another number of dimensions than one, gaps between elements, or another type or device
/// than `target`.
fn require_line(what: &str, array: &NdBuffer, target: &NdBuffer) -> Result<()> {
    require_dtype(what, array.dtype(), target.dtype())?;
    if array.ndim() != 1 || !array.is_contiguous(Order::C) {
        let (shape, strides) = (array.shape(), array.strides());
        let message =
            format!("{what} has shape {shape:?} and strides {strides:?}, expected one dimension without gaps");
        return Err(Error::invalid(message));
    }
    if array.device() != target.device() {
        let (there, here) = (array.device(), target.device());
        return Err(Error::new(ErrorKind::MemorySpace, format!("{what} is on {there}, the target on {here}")));
    }
    Ok(())
}
