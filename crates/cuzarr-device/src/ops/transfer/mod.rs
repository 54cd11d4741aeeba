//! Boxes of elements between packed memory (decoded chunks) and an nd-buffer, changing the elements on the way.
//!
//! This is the last step of every read ([`scatter`]) and the first of every write ([`gather`]). A [`Tail`] says what a
//! packed element goes through; the boxes say from where to where. All boxes of one transfer share the tail and the
//! packed strides, so one kernel launch moves thousands of chunks. The same tail runs on the CPU and on GPUs, with the
//! same result, bit for bit.
//!
//! Every box is checked before anything moves, so whatever the boxes say, nothing outside the packed memory is read and
//! nothing outside the nd-buffer is written. Many threads may scatter into one nd-buffer at once, as long as their
//! boxes are disjoint: those of a call are leased while it runs. [`Writer`](crate::Writer) leases once for many calls.

pub(crate) mod cpu;
pub(crate) mod cuda;

use std::borrow::Cow;

use crate::array::dtype::{DType, DTypeKind};
use crate::array::ndbuffer::NdBuffer;
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::{Access, Lease};
use crate::ops::cast;
use crate::stream::Stream;

/// One step of arithmetic, done in the element type that is current at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// `x + operand`; integers wrap.
    Add,
    /// `x - operand`; integers wrap.
    Subtract,
    /// `x * operand`; integers wrap.
    Multiply,
    /// `x / operand`; for integers the quotient is truncated toward zero, and by zero is zero.
    Divide,
    /// `round_half_even(x)`; the operand is not used. Integers stay as they are.
    Round,
}

/// What happens to one element on its way. Steps are listed in the order of reading (packed → nd-buffer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementStep {
    /// Reverses the bytes of every unit of `unit_bytes` (2, 4, 8 or 16) in the element.
    SwapBytes {
        /// Bytes that are reversed together.
        unit_bytes: usize,
    },
    /// Converts as NumPy's `astype` does on x86-64, for NaN and out-of-range values too (see [`cpu::cast`]).
    Cast {
        /// Type before.
        from: DType,
        /// Type after.
        to: DType,
    },
    /// Arithmetic in `dtype` with a constant, given as the bits of that type in the low bytes.
    Arithmetic {
        /// What to do.
        operation: Arithmetic,
        /// In which type: an integer or float type of 1 to 8 bytes. The 2-byte floats compute in binary32 and round once.
        dtype: DType,
        /// The constant's bytes, native order, zero-padded.
        operand: [u8; 8],
    },
    /// Rounds a float in integer arithmetic, half to even, so that its lowest bits are zero (see [`cpu::bits`]).
    RoundBits {
        /// A float type of 2, 4 or 8 bytes.
        dtype: DType,
        /// How many bits become zero, fewer than the type has.
        dropped_bits: u32,
    },
}

/// How packed bytes become elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// Element after element.
    Plain,
    /// Byte-shuffled as by numcodecs' and HDF5's shuffle: first all first bytes of `unit_bytes`-sized units, then all
    /// second bytes, …; bytes that do not fill a unit follow unchanged. The unit need not be the element.
    Shuffled {
        /// Bytes of a shuffled unit.
        unit_bytes: usize,
    },
    /// One bit an element, bool only: most significant bit first as numpy.packbits.
    Bits,
}

/// What packed elements go through between packed memory and an nd-buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// How elements lie in packed memory.
    pub packing: Packing,
    /// Element type in packed memory (byte order aside).
    pub packed: DType,
    /// Steps in the order of reading.
    pub steps: Vec<ElementStep>,
    /// Steps in the order of writing (nd-buffer → packed), where they are not the plain inverse of `steps`.
    ///
    /// `None` takes `steps` backwards, each inverted: a byte swap is its own inverse, a cast goes the other way, adding
    /// and subtracting, multiplying and dividing change places, and rounding of either kind is left out. Codecs that define their
    /// encoding differently state it: fixedscaleoffset reads `x / scale + offset` and writes
    /// `round((x - offset) * scale)`, each in the type that NumPy's promotion gives.
    pub write_steps: Option<Vec<ElementStep>>,
    /// Element type in the nd-buffer.
    pub dtype: DType,
}

impl Tail {
    /// Elements that are moved as they are.
    pub fn plain(dtype: DType) -> Tail {
        Tail { packing: Packing::Plain, packed: dtype, steps: Vec::new(), write_steps: None, dtype }
    }

    /// Whether packed bytes are the nd-buffer's bytes, both ways.
    pub fn is_plain(&self) -> bool {
        self.packing == Packing::Plain && self.steps.is_empty() && self.write_steps.as_ref().is_none_or(Vec::is_empty)
    }

    /// The steps of writing: `write_steps`, or the inverse of `steps`.
    pub fn steps_of_writing(&self) -> Cow<'_, [ElementStep]> {
        match &self.write_steps {
            Some(steps) => Cow::Borrowed(steps),
            None => Cow::Owned(self.steps.iter().rev().filter_map(|step| step.inverse()).collect()),
        }
    }

    /// How many elements `size_bytes` packed bytes hold.
    pub fn packed_len(&self, size_bytes: usize) -> usize {
        match (self.packing, self.packed.size_bytes()) {
            (Packing::Bits, _) => size_bytes.saturating_mul(8),
            (_, 0) => isize::MAX as usize,
            (_, element) => size_bytes / element,
        }
    }

    /// Checks that every step fits the one before, in both directions.
    ///
    /// # Errors
    /// `InvalidArgument` when the types do not join up, a unit is not possible, or the packing does not suit the type.
    pub fn check(&self) -> Result<()> {
        match self.packing {
            Packing::Bits if self.packed != DType::BOOL => {
                return Err(Error::invalid(format!("packed bits hold bool, not {}", self.packed)));
            }
            Packing::Shuffled { unit_bytes: 0 } => return Err(Error::invalid("cannot shuffle units of 0 bytes")),
            _ => (),
        }
        check_steps(&self.steps, self.packed, self.dtype)?;
        check_steps(&self.steps_of_writing(), self.dtype, self.packed)
    }
}

impl ElementStep {
    /// The step that takes this one back, as far as it can be; `None` when nothing does.
    pub fn inverse(&self) -> Option<ElementStep> {
        match *self {
            ElementStep::SwapBytes { .. } => Some(*self),
            ElementStep::Cast { from, to } => Some(ElementStep::Cast { from: to, to: from }),
            ElementStep::RoundBits { .. } => None,
            ElementStep::Arithmetic { operation, dtype, operand } => {
                let operation = match operation {
                    Arithmetic::Add => Arithmetic::Subtract,
                    Arithmetic::Subtract => Arithmetic::Add,
                    Arithmetic::Multiply => Arithmetic::Divide,
                    Arithmetic::Divide => Arithmetic::Multiply,
                    Arithmetic::Round => return None,
                };
                Some(ElementStep::Arithmetic { operation, dtype, operand })
            }
        }
    }
}

fn check_steps(steps: &[ElementStep], from: DType, to: DType) -> Result<()> {
    let mut current = from;
    for step in steps {
        match *step {
            ElementStep::SwapBytes { unit_bytes } => {
                if !matches!(unit_bytes, 2 | 4 | 8 | 16) || !current.size_bytes().is_multiple_of(unit_bytes) {
                    return Err(Error::invalid(format!("cannot swap units of {unit_bytes} bytes in {current}")));
                }
            }
            ElementStep::Cast { from, to } => {
                require_dtype("cast", from, current)?;
                if !cast::is_supported(from, to) {
                    return Err(Error::new(ErrorKind::Unsupported, format!("cannot cast {from} to {to}")));
                }
                current = to;
            }
            ElementStep::RoundBits { dtype, dropped_bits } => {
                require_dtype("rounding", dtype, current)?;
                let is_float = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::BFloat);
                if !is_float || dropped_bits as usize >= 8 * dtype.size_bytes() {
                    return Err(Error::invalid(format!("cannot round {dropped_bits} bits of {dtype} away")));
                }
            }
            ElementStep::Arithmetic { dtype, .. } => {
                require_dtype("arithmetic", dtype, current)?;
                if !matches!(dtype.kind(), DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float | DTypeKind::BFloat) {
                    return Err(Error::new(ErrorKind::Unsupported, format!("no arithmetic in {dtype}")));
                }
            }
        }
    }
    require_dtype("the end of the steps", current, to)
}

fn require_dtype(what: &str, got: DType, expected: DType) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("{what} is in {got}, expected {expected}")))
}

/// One box to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferBox {
    /// Where the chunk's packed bytes begin in the packed buffer.
    pub packed_offset_bytes: usize,
    /// How many packed bytes the chunk has.
    pub packed_size_bytes: usize,
    /// Index, in the packed chunk, of the box's first element.
    pub packed_first_elem: usize,
    /// Where the box begins in the nd-buffer, per dimension.
    pub start: Vec<usize>,
    /// Elements per dimension.
    pub extent: Vec<usize>,
}

/// Many boxes between packed chunks of one kind and one nd-buffer.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// What the elements go through.
    pub tail: Tail,
    /// Elements between neighbours in a packed chunk, per dimension of the nd-buffer (selection steps and transposed
    /// axes included).
    pub packed_strides: Vec<isize>,
    /// The boxes; those of one transfer do not overlap in the nd-buffer (nor, when gathering, in packed memory).
    pub boxes: Vec<TransferBox>,
}

impl Transfer {
    /// Checks that no box leaves `packed_bytes` bytes of packed memory or the nd-buffer.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first box that does.
    pub fn check(&self, packed_bytes: usize, array: &NdBuffer) -> Result<()> {
        self.tail.check()?;
        require_dtype("the nd-buffer", array.dtype(), self.tail.dtype)?;
        if self.packed_strides.len() != array.ndim() {
            let (got, expected) = (self.packed_strides.len(), array.ndim());
            return Err(Error::invalid(format!("got {got} packed strides for {expected} dimensions")));
        }
        for (number, item) in self.boxes.iter().enumerate() {
            check_box(&item.start, &item.extent, array.shape())
                .and_then(|()| self.check_packed(item, packed_bytes))
                .map_err(|error| Error::invalid(format!("box {number}: {}", error.message())))?;
        }
        Ok(())
    }

    fn check_packed(&self, item: &TransferBox, packed_bytes: usize) -> Result<()> {
        let end = item.packed_offset_bytes.checked_add(item.packed_size_bytes);
        if end.is_none_or(|end| end > packed_bytes) {
            let (size, offset) = (item.packed_size_bytes, item.packed_offset_bytes);
            return Err(Error::invalid(format!(
                "{size} bytes from byte {offset} are not in {packed_bytes} packed bytes"
            )));
        }
        if item.extent.contains(&0) {
            return Ok(());
        }
        let len = self.tail.packed_len(item.packed_size_bytes);
        match packed_reach(item.packed_first_elem, &item.extent, &self.packed_strides) {
            Some((_, last)) if last < len => Ok(()),
            _ => {
                let (first, extent, strides) = (item.packed_first_elem, &item.extent, &self.packed_strides);
                Err(Error::invalid(format!(
                    "extent {extent:?} by {strides:?} from element {first} leaves a chunk of {len} elements"
                )))
            }
        }
    }
}

/// Lowest and highest element index that a box touches, or `None` when one is negative or does not fit.
fn packed_reach(first: usize, extent: &[usize], strides: &[isize]) -> Option<(usize, usize)> {
    let (mut low, mut high) = (isize::try_from(first).ok()?, isize::try_from(first).ok()?);
    for (&extent, &stride) in extent.iter().zip(strides) {
        let reach = stride.checked_mul(isize::try_from(extent - 1).ok()?)?;
        if reach < 0 { low = low.checked_add(reach)? } else { high = high.checked_add(reach)? }
    }
    Some((usize::try_from(low).ok()?, usize::try_from(high).ok()?))
}

/// Refuses a box that is not inside `shape`.
pub(crate) fn check_box(start: &[usize], extent: &[usize], shape: &[usize]) -> Result<()> {
    let inside = start.len() == shape.len()
        && extent.len() == shape.len()
        && (0..shape.len()).all(|axis| start[axis].checked_add(extent[axis]).is_some_and(|end| end <= shape[axis]));
    if inside {
        return Ok(());
    }
    Err(Error::invalid(format!("{start:?} + {extent:?} is not inside shape {shape:?}")))
}

/// Moves boxes from packed memory into `target`, through the tail. Returns when they are there.
///
/// # Errors
/// `InvalidArgument` when a box leaves either memory, types do not match, `target` is read-only or the two overlap;
/// `MemorySpace` when they are on different devices.
pub fn scatter(packed: &Buffer, transfer: &Transfer, target: &NdBuffer) -> Result<()> {
    let stream = Stream::legacy(target.device())?;
    scatter_on(packed, transfer, target, &stream)?;
    stream.synchronize()
}

/// [`scatter`] in stream order: on a GPU it returns once the work is on `stream`, on `cpu` when it is done.
///
/// # Errors
/// As [`scatter`]; `MemorySpace` when `stream` is another device's.
pub fn scatter_on(packed: &Buffer, transfer: &Transfer, target: &NdBuffer, stream: &Stream) -> Result<()> {
    check_pair(packed, transfer, target, stream)?;
    target.buffer().require_writable()?;
    match target.device() {
        Device::Cpu => scatter_host(&packed.host_bytes()?, transfer, target)?,
        _ => cuda::scatter(packed, transfer, target, stream)?,
    }
    Ok(())
}

/// Moves boxes from `source` into packed memory, through the tail's steps of writing. Returns when they are there.
///
/// Packed bytes (packed bits) that no box covers keep their values.
///
/// # Errors
/// As [`scatter`].
pub fn gather(source: &NdBuffer, transfer: &Transfer, packed: &Buffer) -> Result<()> {
    let stream = Stream::legacy(source.device())?;
    gather_on(source, transfer, packed, &stream)?;
    stream.synchronize()
}

/// [`gather`] in stream order: on a GPU it returns once the work is on `stream`, on `cpu` when it is done.
///
/// # Errors
/// As [`scatter_on`].
pub fn gather_on(source: &NdBuffer, transfer: &Transfer, packed: &Buffer, stream: &Stream) -> Result<()> {
    check_pair(packed, transfer, source, stream)?;
    packed.require_writable()?;
    match source.device() {
        Device::Cpu => gather_host(source, transfer, &mut packed.host_bytes_mut()?)?,
        _ => cuda::gather(source, transfer, packed, stream)?,
    }
    Ok(())
}

/// Copies many pieces of device memory, each from the first of two buffers to the second, of the same size, in stream order
/// and as one launch. The two of a pair do not overlap, and no target overlaps another.
///
/// # Errors
/// `InvalidArgument` when sizes differ, `MemorySpace` when a buffer is not on the stream's device or that is `cpu`,
/// `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
pub fn copy_pieces_on(pieces: &[(Buffer, Buffer)], stream: &Stream) -> Result<()> {
    for (index, (src, dst)) in pieces.iter().enumerate() {
        if src.size_bytes() != dst.size_bytes() {
            let (from, to) = (src.size_bytes(), dst.size_bytes());
            return Err(Error::invalid(format!("piece {index}: cannot copy {from} bytes to {to}")));
        }
        dst.require_writable()?;
        if stream.device() == Device::Cpu || src.device() != stream.device() || dst.device() != stream.device() {
            let message = format!("piece {index} is on {} and {}, not both on a GPU", src.device(), dst.device());
            return Err(Error::new(ErrorKind::MemorySpace, message));
        }
    }
    cuda::copy_pieces(pieces, stream)
}

/// [`scatter`] from host bytes, for callers that decode into memory of their own. `target` must be on the host.
///
/// # Errors
/// As [`scatter`].
pub fn scatter_host(packed: &[u8], transfer: &Transfer, target: &NdBuffer) -> Result<()> {
    require_host(target)?;
    transfer.check(packed.len(), target)?;
    let _lease = lease_boxes(target, transfer.boxes.iter().map(|item| (&item.start, &item.extent)))?;
    // SAFETY: checked above, and the boxes are leased.
    unsafe { cpu::scatter(packed.as_ptr(), transfer, target) };
    Ok(())
}

/// [`gather`] into host bytes. `source` must be on the host.
///
/// # Errors
/// As [`gather`].
pub fn gather_host(source: &NdBuffer, transfer: &Transfer, packed: &mut [u8]) -> Result<()> {
    source.reader()?.gather(transfer, packed)
}

/// Sets every element of the boxes, given as (start, extent), to the one whose bytes are `element`.
///
/// # Errors
/// `InvalidArgument` when a box is not inside `target`, `element` has the wrong size, or `target` is read-only.
pub fn fill_boxes(target: &NdBuffer, boxes: &[(Vec<usize>, Vec<usize>)], element: &[u8]) -> Result<()> {
    let stream = Stream::legacy(target.device())?;
    fill_boxes_on(target, boxes, element, &stream)?;
    stream.synchronize()
}

/// [`fill_boxes`] in stream order: on a GPU it returns once the work is on `stream`, on `cpu` when it is done.
///
/// # Errors
/// As [`fill_boxes`]; `MemorySpace` when `stream` is another device's.
pub fn fill_boxes_on(
    target: &NdBuffer,
    boxes: &[(Vec<usize>, Vec<usize>)],
    element: &[u8],
    stream: &Stream,
) -> Result<()> {
    require_stream(stream, target)?;
    target.check_element(element)?;
    target.buffer().require_writable()?;
    for (start, extent) in boxes {
        check_box(start, extent, target.shape())?;
    }
    match target.device() {
        Device::Cpu => {
            let _lease = lease_boxes(target, boxes.iter().map(|(start, extent)| (start, extent)))?;
            for (start, extent) in boxes {
                // SAFETY: checked above, and the boxes are leased.
                unsafe { cpu::fill_box(target, start, extent, element) };
            }
            Ok(())
        }
        _ => cuda::fill_boxes(target, boxes, element, stream),
    }
}

/// A lease to write boxes of an nd-buffer in host memory.
fn lease_boxes<'a>(target: &NdBuffer, boxes: impl Iterator<Item = (&'a Vec<usize>, &'a Vec<usize>)>) -> Result<Lease> {
    let ones = vec![1; target.ndim()];
    let footprint = |(start, extent): (&Vec<usize>, &Vec<usize>)| Ok(target.region(start, extent, &ones)?.footprint());
    let footprints: Vec<_> = boxes.map(footprint).collect::<Result<_>>()?;
    Lease::take(target.buffer(), footprints.into_iter().flatten(), Access::Write)
}

fn check_pair(packed: &Buffer, transfer: &Transfer, array: &NdBuffer, stream: &Stream) -> Result<()> {
    require_stream(stream, array)?;
    if packed.device() != array.device() {
        let message = format!("packed bytes are on {}, the array on {}", packed.device(), array.device());
        return Err(Error::new(ErrorKind::MemorySpace, message));
    }
    transfer.check(packed.size_bytes(), array)?;
    let (start, end) = array.address_span();
    if packed.address() < end && start < packed.address() + packed.size_bytes() && start < end {
        return Err(Error::invalid("packed memory and the array overlap"));
    }
    Ok(())
}

fn require_stream(stream: &Stream, array: &NdBuffer) -> Result<()> {
    if stream.device() == array.device() {
        return Ok(());
    }
    let message = format!("the array is on {}, the stream on {}", array.device(), stream.device());
    Err(Error::new(ErrorKind::MemorySpace, message))
}

fn require_host(array: &NdBuffer) -> Result<()> {
    if array.device().is_host_accessible() {
        return Ok(());
    }
    let message = format!("the array is on {}, host bytes cannot be moved into or out of it in place", array.device());
    Err(Error::new(ErrorKind::MemorySpace, message))
}
