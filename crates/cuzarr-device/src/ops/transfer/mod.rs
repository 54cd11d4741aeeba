//! Transfers: boxes of elements move between packed memory (decoded chunks) and an nd-buffer, and can be changed on the
//! way.
//!
//! A transfer is the last step of every read ([`scatter`]) and the first step of every write ([`gather`]). A [`Tail`]
//! lists the changes of each element; boxes say from where to where elements move. All boxes of a transfer share the
//! tail and the packed strides, so one kernel launch moves thousands of chunks. The same tail runs on CPUs and GPUs,
//! and gives the same bits.
//!
//! Every box is checked before anything moves. So no box can read outside the packed memory, or write outside the
//! nd-buffer. Many threads may scatter into one nd-buffer at the same time if their boxes are disjoint: each call
//! leases its boxes. `Writer` leases once for many calls.

pub(crate) mod boxes;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod tail;

use std::ops::Range;

use crate::array::dtype::DType;
use crate::array::layout::{Order, check_box};
use crate::array::lists::Lists;
use crate::array::ndbuffer::NdBuffer;
use crate::array::writer::{Part, Reader};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::buffer::Buffer;
use crate::memory::lease::{Access, Lease};
use crate::stream::Stream;

pub use crate::ops::element::arithmetic::Arithmetic;
pub use crate::ops::step::ElementStep;
pub use boxes::{Transfer, TransferBox};

pub use tail::{Packing, Tail};

impl NdBuffer {
    /// Makes new memory in which every element has the bytes `element`.
    ///
    /// # Errors
    /// Those of [`NdBuffer::empty`]; `InvalidArgument` when `element` has the wrong size.
    pub fn full(device: Device, dtype: DType, shape: &[usize], order: Order, element: &[u8]) -> Result<NdBuffer> {
        if element.len() == dtype.size_bytes() && element.iter().all(|&byte| byte == 0) {
            return NdBuffer::zeroed(device, dtype, shape, order);
        }
        let array = NdBuffer::empty(device, dtype, shape, order)?;
        array.fill(element)?;
        Ok(array)
    }

    /// Sets every element to `element`, given by its bytes.
    ///
    /// # Errors
    /// `InvalidArgument` when `element` has the wrong size or the memory is read-only.
    pub fn fill(&self, element: &[u8]) -> Result<()> {
        let whole = (vec![0; self.ndim()], self.shape().to_vec());
        fill_boxes(self, &[whole], element)
    }
}

impl Reader {
    /// Moves boxes of the elements that this reader may read to packed bytes, like [`gather_host`](gather_host).
    ///
    /// # Errors
    /// `InvalidArgument` when a box leaves either memory or types do not match.
    pub fn gather(&self, transfer: &Transfer, packed: &mut [u8]) -> Result<()> {
        transfer.check(packed.len(), self.array())?;
        // SAFETY: checked above. The lease keeps writers away from the elements, and `packed` is borrowed exclusively.
        unsafe { cpu::gather(self.array(), transfer, packed.as_mut_ptr()) };
        Ok(())
    }
}

impl Part {
    /// Moves packed bytes to boxes of the elements that this part may write, like [`scatter_host`](scatter_host). Each
    /// box must lie inside one of the part's boxes.
    ///
    /// # Errors
    /// `InvalidArgument` when a box leaves the part or the packed bytes, or types do not match.
    pub fn scatter(&mut self, packed: &[u8], transfer: &Transfer) -> Result<()> {
        transfer.check(packed.len(), self.array())?;
        self.require_lists(transfer.lists.as_ref())?;
        for item in &transfer.boxes {
            self.require(&item.start, &item.extent)?;
        }
        // SAFETY: checked above. The boxes are of this part, which is borrowed exclusively, and the writer's lease
        // keeps all other code away.
        unsafe { cpu::scatter(packed.as_ptr(), transfer, self.array()) };
        Ok(())
    }

    /// Sets every element of a box to `element`, given by its bytes. The box must lie inside one of the part's boxes.
    ///
    /// # Errors
    /// `InvalidArgument` when the box leaves the part, or `element` has the wrong size.
    pub fn fill(&mut self, start: &[usize], extent: &[usize], element: &[u8]) -> Result<()> {
        self.array().check_element(element)?;
        self.require(start, extent)?;
        // SAFETY: a box of this part, which is borrowed exclusively, and the writer's lease keeps all other code away.
        unsafe { cpu::fill_box(self.array(), self.lists(), start, extent, element) };
        Ok(())
    }
}

/// Moves boxes from packed memory to `target`, and changes the elements by the steps in `transfer.tail`. Returns when
/// the elements are there.
///
/// # Errors
/// `InvalidArgument` when a box leaves either memory, types do not match, `target` is read-only or the two overlap;
/// `MemorySpace` when they are on different devices.
pub fn scatter(packed: &Buffer, transfer: &Transfer, target: &NdBuffer) -> Result<()> {
    let stream = Stream::legacy(target.device())?;
    scatter_on(packed, transfer, target, &stream)?;
    stream.synchronize()
}

/// Moves boxes from packed memory to `target` like [`scatter`], but in stream order. On a GPU, returns once the work is
/// on `stream`; on `cpu`, when it is done.
///
/// # Errors
/// Those of [`scatter`]; `MemorySpace` when `stream` belongs to another device.
pub fn scatter_on(packed: &Buffer, transfer: &Transfer, target: &NdBuffer, stream: &Stream) -> Result<()> {
    scatter_all_on(&[Scatter::all(packed, transfer, target)], stream)
}

/// Boxes that [`scatter_all_on`] moves from one packed buffer to one nd-buffer: some of those of a transfer.
#[derive(Clone)]
pub struct Scatter<'a> {
    /// The packed memory from which elements move.
    pub packed: &'a Buffer,
    /// The boxes, and how their elements are packed and changed.
    pub transfer: &'a Transfer,
    /// Which of the transfer's boxes lie in `packed`.
    pub range: Range<usize>,
    /// The nd-buffer to which elements move.
    pub target: &'a NdBuffer,
}

impl<'a> Scatter<'a> {
    /// Describes the move of all boxes of a transfer from `packed` to `target`, for `scatter_all_on`.
    pub fn all(packed: &'a Buffer, transfer: &'a Transfer, target: &'a NdBuffer) -> Scatter<'a> {
        Scatter { packed, transfer, range: 0..transfer.boxes.len(), target }
    }

    fn boxes(&self) -> &[TransferBox] {
        &self.transfer.boxes[self.range.clone()]
    }
}

/// Moves boxes for each of `moves` like [`scatter_on`]; no two of them may write to the same elements. On a GPU, one
/// launch moves the boxes of all moves with equal strides and steps, whatever their buffers.
///
/// # Errors
/// Those of [`scatter_on`], before anything has moved.
pub fn scatter_all_on(moves: &[Scatter<'_>], stream: &Stream) -> Result<()> {
    for Scatter { packed, transfer, range, target } in moves {
        check_pair(packed, transfer, range.clone(), target, stream)?;
        target.buffer().require_writable()?;
    }
    if stream.device() != Device::Cpu {
        return cuda::scatter(moves, stream);
    }
    moves.iter().try_for_each(|one| {
        let (packed, Transfer { tail, packed_strides, lists, boxes }) = (one.packed.host_bytes()?, one.transfer);
        if one.range.len() == boxes.len() {
            return scatter_host(&packed, one.transfer, one.target);
        }
        let (tail, packed_strides, lists) = (tail.clone(), packed_strides.clone(), lists.clone());
        scatter_host(&packed, &Transfer { tail, packed_strides, lists, boxes: one.boxes().to_vec() }, one.target)
    })
}

/// Moves boxes from `source` to packed memory, and changes the elements by the steps of writing in `transfer.tail`.
/// Returns when the elements are there.
///
/// Packed bytes (or packed bits) outside the boxes keep their values.
///
/// # Errors
/// Those of [`scatter`].
pub fn gather(source: &NdBuffer, transfer: &Transfer, packed: &Buffer) -> Result<()> {
    let stream = Stream::legacy(source.device())?;
    gather_on(source, transfer, packed, &stream)?;
    stream.synchronize()
}

/// Moves boxes from `source` to packed memory like [`gather`], but in stream order. On a GPU, returns once the work is
/// on `stream`; on `cpu`, when it is done.
///
/// # Errors
/// Those of [`scatter_on`].
pub fn gather_on(source: &NdBuffer, transfer: &Transfer, packed: &Buffer, stream: &Stream) -> Result<()> {
    check_pair(packed, transfer, 0..transfer.boxes.len(), source, stream)?;
    packed.require_writable()?;
    match source.device() {
        Device::Cpu => gather_host(source, transfer, &mut packed.host_bytes_mut()?)?,
        _ => cuda::gather(source, transfer, packed, stream)?,
    }
    Ok(())
}

/// Copies many pieces of device memory in one launch, in stream order. Each pair is a source and a target of the same
/// size. The two must not overlap, and no target may overlap another one.
///
/// # Errors
/// `InvalidArgument` when sizes differ, `MemorySpace` when a buffer is not on the stream's device or that device is
/// `cpu`, `ReadOnly`, `OutOfMemory`, `DeviceFailed`.
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

/// Like [`scatter`], but from host bytes, for callers that decode into their own memory. `target` must be on the host.
///
/// # Errors
/// Those of [`scatter`].
pub fn scatter_host(packed: &[u8], transfer: &Transfer, target: &NdBuffer) -> Result<()> {
    require_host(target)?;
    transfer.check(packed.len(), target)?;
    let _lease =
        lease_boxes(target, transfer.lists.as_deref(), transfer.boxes.iter().map(|item| (&item.start, &item.extent)))?;
    // SAFETY: the boxes lie in both memories, as was checked, and are leased for writing.
    unsafe { cpu::scatter(packed.as_ptr(), transfer, target) };
    Ok(())
}

/// Moves boxes from `source` to packed host bytes, like [`gather`]. `source` must be on the host.
///
/// # Errors
/// Those of [`gather`].
pub fn gather_host(source: &NdBuffer, transfer: &Transfer, packed: &mut [u8]) -> Result<()> {
    source.reader()?.gather(transfer, packed)
}

/// Sets every element of the boxes, given as (start, extent), to `element`, given by its bytes.
///
/// # Errors
/// `InvalidArgument` when a box is not inside `target`, `element` has the wrong size, or `target` is read-only.
pub fn fill_boxes(target: &NdBuffer, boxes: &[(Vec<usize>, Vec<usize>)], element: &[u8]) -> Result<()> {
    let stream = Stream::legacy(target.device())?;
    fill_boxes_on(target, None, boxes, element, &stream)?;
    stream.synchronize()
}

/// Sets every element of the boxes to `element` like [`fill_boxes`], but in stream order. On a GPU, returns once the
/// work is on `stream`; on `cpu`, when it is done. With lists, boxes count positions in them.
///
/// # Errors
/// Those of [`fill_boxes`]; `MemorySpace` when `stream` belongs to another device.
pub fn fill_boxes_on(
    target: &NdBuffer,
    lists: Option<&Lists>,
    boxes: &[(Vec<usize>, Vec<usize>)],
    element: &[u8],
    stream: &Stream,
) -> Result<()> {
    require_stream(stream, target)?;
    target.check_element(element)?;
    target.buffer().require_writable()?;
    lists.map_or(Ok(()), |lists| lists.require(target.shape()))?;
    for (start, extent) in boxes {
        check_box(start, extent, lists.map_or(target.shape(), Lists::positions))?;
    }
    match target.device() {
        Device::Cpu => {
            let _lease = lease_boxes(target, lists, boxes.iter().map(|(start, extent)| (start, extent)))?;
            for (start, extent) in boxes {
                // SAFETY: the boxes lie in both memories, as was checked, and are leased for writing.
                unsafe { cpu::fill_box(target, lists, start, extent, element) };
            }
            Ok(())
        }
        _ => cuda::fill_boxes(target, lists, boxes, element, stream),
    }
}

/// Reserves boxes of an nd-buffer in host memory for writing; conflicting accesses are refused meanwhile. With lists,
/// leases the whole nd-buffer.
fn lease_boxes<'a>(
    target: &NdBuffer,
    lists: Option<&Lists>,
    boxes: impl Iterator<Item = (&'a Vec<usize>, &'a Vec<usize>)>,
) -> Result<Lease> {
    if lists.is_some() {
        return target.lease(Access::Write);
    }
    let ones = vec![1; target.ndim()];
    let footprint = |(start, extent): (&Vec<usize>, &Vec<usize>)| Ok(target.region(start, extent, &ones)?.footprint());
    let footprints: Vec<_> = boxes.map(footprint).collect::<Result<_>>()?;
    target.buffer().lease_of(footprints.into_iter().flatten(), Access::Write)
}

fn check_pair(
    packed: &Buffer,
    transfer: &Transfer,
    range: Range<usize>,
    array: &NdBuffer,
    stream: &Stream,
) -> Result<()> {
    require_stream(stream, array)?;
    if packed.device() != array.device() {
        let message = format!("packed bytes are on {}, the array on {}", packed.device(), array.device());
        return Err(Error::new(ErrorKind::MemorySpace, message));
    }
    transfer.check_some(range, packed.size_bytes(), array)?;
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
