//! The elements of a write that a device encodes: in its memory, or in host memory. From host memory, the elements of
//! one batch at a time go up through pinned memory. All threads fill small slabs of it, which cross the bus as soon as
//! they are full.

use cuzarr_device::internal::{Reader, SlabRing, Threads, pool};
use cuzarr_device::{Device, Layout, NdBuffer, Order, Stream, Tail, Transfer, TransferBox};

use crate::error::Result;
use crate::plan::strides;
use crate::run::pieces::{Piece, piece_bytes, pieces};
use crate::run::report::Stage;
use crate::run::write::writing::{Leaf, Writing};

/// The elements of a write that a device encodes.
pub(crate) enum Elements {
    OnDevice(NdBuffer),
    OnHost(HostElements),
}

/// Elements in host memory, and the pinned memory through which they go to the device.
pub(crate) struct HostElements {
    pub(crate) value: Reader,
    ring: SlabRing,
    piece_bytes: usize,
    /// Shape of the largest part of a chunk that is written.
    part_shape: Vec<usize>,
}

/// The elements of one batch in device memory.
pub(crate) struct Staged {
    pub(crate) value: NdBuffer,
    /// If only the batch's elements are there: where those of each chunk begin.
    starts: Option<Vec<Vec<usize>>>,
}

impl Elements {
    /// Takes the elements of a write that `device` encodes.
    ///
    /// # Errors
    /// `InvalidArgument` when elements in host memory are being written.
    pub(crate) fn new(writing: &Writing, value: NdBuffer, device: Device) -> Result<Elements> {
        if value.device() == device {
            return Ok(Elements::OnDevice(value));
        }
        let (call, part_shape) = (&writing.call, writing.plan.largest_part());
        let part_shape = part_shape.into_iter().map(|extent| extent as usize).collect();
        // A piece has at least one element.
        let piece_bytes = piece_bytes(call).max(value.dtype().size_bytes());
        let ring = SlabRing::new(device, piece_bytes, piece_bytes.saturating_mul(call.threads))?;
        Ok(Elements::OnHost(HostElements { value: value.reader()?, ring, piece_bytes, part_shape }))
    }

    /// The elements in host memory; `None` if they are on the device.
    pub(crate) fn on_host(&self) -> Option<&Reader> {
        match self {
            Elements::OnDevice(_) => None,
            Elements::OnHost(elements) => Some(&elements.value),
        }
    }

    /// Size in bytes of the pinned memory through which the elements go to the device.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        match self {
            Elements::OnDevice(_) => 0,
            Elements::OnHost(elements) => elements.ring.limit_bytes() as u64,
        }
    }

    /// Returns memory of the device that has the elements of the chunks `leaves`, for work on `stream`.
    ///
    /// # Errors
    /// `OutOfMemory`, `DeviceFailed`.
    pub(crate) fn stage(&self, writing: &Writing, leaves: &[Leaf], stream: &Stream) -> Result<Staged> {
        match self {
            Elements::OnDevice(value) => Ok(Staged { value: value.clone(), starts: None }),
            Elements::OnHost(elements) => elements.stage(writing, leaves, stream),
        }
    }
}

impl HostElements {
    /// Copies the elements of these chunks to new memory of the device, one chunk's part after the other.
    fn stage(&self, writing: &Writing, leaves: &[Leaf], stream: &Stream) -> Result<Staged> {
        let (array, part_shape) = (self.value.array(), &self.part_shape);
        let (dtype, elements) = (array.dtype(), part_shape.iter().product::<usize>());
        let part_bytes = elements * dtype.size_bytes();
        let extents: Vec<u64> = part_shape.iter().map(|&extent| extent as u64).collect();
        let packed_strides = strides(0..extents.len(), &extents).into_iter().map(|stride| stride as isize).collect();
        let item = |(number, leaf): (usize, &Leaf)| {
            let (start, extent) = writing.plan.region(&leaf.chunk);
            let packed_offset_bytes = number * part_bytes;
            TransferBox { packed_offset_bytes, packed_size_bytes: part_bytes, packed_first_elem: 0, start, extent }
        };
        let boxes = leaves.iter().enumerate().map(item).collect();
        let staged = pool::allocate(leaves.len() * part_bytes, stream)?;
        let empty = Transfer { tail: Tail::plain(dtype), packed_strides, lists: None, boxes: Vec::new() };
        let pieces = pieces(&staged, &empty, boxes, self.piece_bytes);
        let call = &writing.call;
        let up = |piece: Piece| self.upload(writing, &piece, stream);
        Threads::workers().map(call.threads, pieces, up).into_iter().collect::<Result<()>>()?;
        let mut shape = part_shape.clone();
        let starts = (0..leaves.len()).map(|number| {
            let mut start = vec![0; shape.len()];
            if let (Some(first), Some(rows)) = (start.first_mut(), part_shape.first()) {
                *first = number * rows;
            }
            start
        });
        let starts = Some(starts.collect());
        if let Some(rows) = shape.first_mut() {
            *rows *= leaves.len();
        }
        let layout = Layout::contiguous(&shape, dtype.size_bytes(), Order::C)?;
        Ok(Staged { value: NdBuffer::from_parts(staged, dtype, layout)?, starts })
    }

    /// Copies the elements of a piece into a slab, and begins to copy the slab to the device.
    fn upload(&self, writing: &Writing, piece: &Piece, stream: &Stream) -> Result<()> {
        let Piece { packed, range, transfer } = piece;
        let (mut slab, size_bytes, counters) =
            (self.ring.acquire(range.len())?, range.len() as u64, &writing.call.counters);
        let gather = || self.value.gather(transfer, &mut slab.bytes_mut()?[..range.len()]);
        counters.time(Stage::Gather, size_bytes, gather)?;
        let upload = || slab.upload(0..range.len(), &packed.slice(range.clone())?, stream);
        Ok(counters.time(Stage::Upload, size_bytes, upload)?)
    }
}

impl Staged {
    /// Where the elements of the chunk number `number` of the batch begin, and their extent.
    pub(crate) fn region(&self, writing: &Writing, number: usize, leaf: &Leaf) -> (Vec<usize>, Vec<usize>) {
        let (start, extent) = writing.plan.region(&leaf.chunk);
        match &self.starts {
            Some(starts) => (starts[number].clone(), extent),
            None => (start, extent),
        }
    }
}
