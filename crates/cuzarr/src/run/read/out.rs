//! Where a read puts its elements: one result, or regions that are handed to the caller in order. Each region is handed
//! to the caller when it is complete, so one pipeline can read more than memory holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use cuzarr_device::internal::pool;
use cuzarr_device::{Buffer, DType, Event, Layout, NdBuffer, Order, Stream};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Selection, memory_shape};
use crate::run::read::in_flight::Packed;

/// A box of elements in the result: its first index and its length along each dimension.
pub(crate) type Extent = (Vec<usize>, Vec<usize>);

/// Where a read puts its elements: an nd-buffer, regions in order, or a table of variable-length elements.
pub(crate) enum Out {
    Whole(NdBuffer),
    InTurn(InTurn),
    /// The shape of the result, for a read of variable-length elements, which are collected in a table.
    Elements(Vec<u64>),
}

/// The output of a read that hands regions to its caller one by one, in order, in memory that is reused.
pub(crate) struct InTurn {
    dtype: DType,
    /// The shape of each region, with a first dimension of 1.
    shapes: Vec<Vec<usize>>,
    /// Size of the largest region in bytes, which is the size of the memory for each region.
    region_bytes: usize,
    /// Number of further regions that get new memory, before the memory of earlier regions is reused.
    unmade: usize,
    free: (Sender<Buffer>, Receiver<Buffer>),
    filling: Option<OutFilling>,
    deliver: Sender<Arrived>,
}

/// The region that is being filled, and how many of its elements are still missing.
struct OutFilling {
    number: usize,
    elements: NdBuffer,
    missing_elems: usize,
    lease: OutLease,
}

/// The memory of one region, lent to the thread that uses the region's elements. When it is dropped, the memory can be
/// used for another region.
struct OutLease {
    memory: Buffer,
    home: Sender<Buffer>,
}

impl Drop for OutLease {
    fn drop(&mut self) {
        // This fails only when the read has ended.
        let _ = self.home.send(self.memory.clone());
    }
}

/// One region that a read hands to its caller: the elements, and an event that marks their arrival. Dropping it lets
/// its memory be reused, so kernels that use it must have ended by then.
pub(crate) struct Arrived {
    elements: NdBuffer,
    done: Event,
    _lease: OutLease,
}

impl Arrived {
    /// Waits until the region is complete, and returns its elements.
    ///
    /// # Errors
    /// Those of [`Event::synchronize`].
    pub(crate) fn elements(&self) -> Result<&NdBuffer> {
        self.done.synchronize()?;
        Ok(&self.elements)
    }
}

impl InTurn {
    /// Makes the output of a read that hands over one region for each of these selections. There is memory for at most
    /// `at_once` of them at a time.
    ///
    /// # Errors
    /// `OutOfMemory` if the memory of one region could not be addressed.
    pub(crate) fn new(
        dtype: DType,
        selections: &[Selection],
        at_once: usize,
        deliver: Sender<Arrived>,
    ) -> Result<InTurn> {
        let shape = |selection| Ok([&[1], &memory_shape(selection)?[..]].concat());
        let shapes = selections.iter().map(shape).collect::<Result<Vec<Vec<usize>>>>()?;
        let largest = shapes.iter().map(|shape| shape.iter().product::<usize>()).max().unwrap_or(0);
        let region_bytes = largest * dtype.size_bytes();
        let unmade = at_once.max(1);
        Ok(InTurn { dtype, shapes, region_bytes, unmade, free: channel(), filling: None, deliver })
    }

    /// Returns memory for the region with this number, and waits until some is free if necessary. All earlier regions
    /// are complete.
    pub(crate) fn memory(&mut self, number: usize, stream: &Stream) -> Result<NdBuffer> {
        if let Some(filling) = self.filling.as_ref().filter(|filling| filling.number == number) {
            return Ok(filling.elements.clone());
        }
        let out_of_turn =
            || Error::new(ErrorKind::DeviceFailed, format!("elements of region {number} came out of turn"));
        let shape = self.shapes.get(number).filter(|_| self.filling.is_none()).ok_or_else(out_of_turn)?;
        let memory = match self.free.1.try_recv() {
            Ok(memory) => memory,
            Err(_) if self.unmade > 0 => {
                self.unmade -= 1;
                pool::allocate(self.region_bytes, stream)?
            }
            // The caller returns regions even if it fails, so this wait ends.
            Err(_) => self.free.1.recv().map_err(|_| out_of_turn())?,
        };
        let lease = OutLease { memory, home: self.free.0.clone() };
        let layout = Layout::contiguous(shape, self.dtype.size_bytes(), Order::C)?;
        let elements = NdBuffer::from_parts(lease.memory.clone(), self.dtype, layout)?;
        let missing_elems = shape.iter().product();
        self.filling = Some(OutFilling { number, elements: elements.clone(), missing_elems, lease });
        Ok(elements)
    }

    /// Notes that `elems` elements of the current region are on their way; hands the region to the caller when none is
    /// missing.
    pub(crate) fn placed(&mut self, elems: usize, stream: &Stream) -> Result<()> {
        let Some(mut filling) = self.filling.take() else { return Ok(()) };
        filling.missing_elems = filling.missing_elems.saturating_sub(elems);
        if filling.missing_elems > 0 {
            self.filling = Some(filling);
            return Ok(());
        }
        let elements = filling.elements.index_axis(0, 0)?;
        let arrived = Arrived { elements, done: stream.record()?, _lease: filling.lease };
        let gone = |_| Error::new(ErrorKind::Cancelled, "the caller no longer takes regions");
        self.deliver.send(arrived).map_err(gone)
    }
}

impl Out {
    /// The shape of the result; empty for a read of regions one after another.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match self {
            Out::Whole(out) => out.shape().to_vec(),
            Out::InTurn(_) => Vec::new(),
            // A shape that is too large for memory is refused later, when the elements are put together.
            Out::Elements(shape) => shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(usize::MAX)).collect(),
        }
    }

    /// Size of the result in bytes, if there is one result that is contiguous in C order.
    pub(crate) fn contiguous_bytes(&self) -> Option<usize> {
        match self {
            Out::Whole(out) if out.is_contiguous(Order::C) => Some(out.size_bytes()),
            _ => None,
        }
    }

    /// The memory of the result, for a read that has one result.
    ///
    /// # Errors
    /// `Unsupported` for other outputs.
    pub(crate) fn whole(&self) -> Result<&NdBuffer> {
        match self {
            Out::Whole(out) => Ok(out),
            _ => Err(Error::new(ErrorKind::Unsupported, "this route needs one result in its own memory")),
        }
    }

    /// The shape of the result, for a read of variable-length elements.
    ///
    /// # Errors
    /// `Unsupported` for elements of fixed size.
    pub(crate) fn elements(&self) -> Result<&[u64]> {
        match self {
            Out::Elements(shape) => Ok(shape),
            _ => Err(Error::new(ErrorKind::Unsupported, "elements of variable length do not fit an nd-buffer")),
        }
    }
}

/// Groups decoded elements, and boxes to be filled with the fill value, by the region that they belong to. The first
/// index of each box is the number of its region; afterwards it is 0.
pub(crate) fn by_number(packed: Vec<Packed>, fills: Vec<Extent>) -> BTreeMap<usize, (Vec<Packed>, Vec<Extent>)> {
    let mut regions: BTreeMap<usize, (Vec<Packed>, Vec<Extent>)> = BTreeMap::new();
    let take = |start: &mut [usize]| start.first_mut().map_or(0, std::mem::take);
    for Packed { out, bytes, layout, boxes, .. } in packed {
        let mut parts: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for mut item in boxes {
            parts.entry(take(&mut item.start)).or_default().push(item);
        }
        for (number, boxes) in parts {
            let (bytes, layout) = (bytes.clone(), Arc::clone(&layout));
            let packed = Packed { out, bytes, layout, boxes, keep: Vec::new() };
            regions.entry(number).or_default().0.push(packed);
        }
    }
    for (mut start, extent) in fills {
        regions.entry(take(&mut start)).or_default().1.push((start, extent));
    }
    regions
}
