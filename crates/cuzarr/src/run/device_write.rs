//! Writing from device memory: the elements of many chunks are gathered by one launch, cross the bus in one copy, and are
//! encoded from pinned memory by all cores.

use std::collections::VecDeque;
use std::sync::Arc;

use cuzarr_device::transfer::gather_on;
use cuzarr_device::{Layout, NdBuffer, Order, Slab, SlabRing, Stream, Tail, Transfer, TransferBox, pool};

use super::engine::Options;
use super::report::Stage;
use super::write::{Leaf, LeafValue, Writing, submit};
use crate::error::Result;

/// Chunks begin at multiples of this in the slab.
const PIECE_ALIGNMENT_BYTES: usize = 256;
/// Slabs that may be under way to the host before the oldest is waited for.
const DOWNLOADS: usize = 2;

/// Brings the chunks' elements of a value on a device to the host.
pub(crate) struct DeviceSource {
    value: NdBuffer,
    ring: SlabRing,
    copies: Stream,
    kernels: Stream,
    /// Extents of the largest part of a chunk that is written, per kept dimension.
    part_shape: Vec<usize>,
    part_bytes: usize,
    parts_a_slab: usize,
    gathering: Vec<Leaf>,
    downloading: VecDeque<(Slab, Vec<Leaf>)>,
}

impl DeviceSource {
    pub(crate) fn new(writing: &Writing, value: NdBuffer, options: &Options) -> Result<DeviceSource> {
        let chunk = &writing.source.leaf().chunk_shape;
        let axes = writing.selection.axes().iter().zip(chunk).filter(|(axis, _)| !axis.dropped);
        let part_shape: Vec<usize> =
            axes.map(|(axis, &chunk)| chunk.div_ceil(axis.step).min(axis.count) as usize).collect();
        let part_bytes = part_shape.iter().product::<usize>() * value.dtype().size_bytes();
        let part_bytes = part_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES).max(PIECE_ALIGNMENT_BYTES);
        let limit_bytes = usize::try_from(writing.call.limit_bytes).unwrap_or(usize::MAX);
        let slab_bytes = options.slab_bytes.min(limit_bytes / 8).max(part_bytes);
        let device = value.device();
        Ok(DeviceSource {
            // Slabs are waited for while some are downloading and some are being encoded.
            ring: SlabRing::new(device, slab_bytes, slab_bytes.saturating_mul(2 * DOWNLOADS + 2))?,
            copies: Stream::new(device)?,
            kernels: Stream::new(device)?,
            value,
            part_shape,
            part_bytes,
            parts_a_slab: slab_bytes / part_bytes,
            gathering: Vec::new(),
            downloading: VecDeque::new(),
        })
    }

    /// Takes a chunk along with the next copy.
    pub(crate) fn add(&mut self, writing: &Arc<Writing>, leaf: Leaf) -> Result<()> {
        self.gathering.push(leaf);
        if self.gathering.len() < self.parts_a_slab {
            return Ok(());
        }
        self.download(writing)?;
        while self.downloading.len() > DOWNLOADS {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Hands every chunk over to the workers.
    pub(crate) fn flush(&mut self, writing: &Arc<Writing>) -> Result<()> {
        if !self.gathering.is_empty() {
            self.download(writing)?;
        }
        while !self.downloading.is_empty() {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Forgets chunks that were not handed over, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.gathering.clear();
        self.downloading.clear();
    }

    /// Puts the gathering and the copy of the chunks at hand on the streams.
    fn download(&mut self, writing: &Arc<Writing>) -> Result<()> {
        let leaves = std::mem::take(&mut self.gathering);
        let size_bytes = leaves.len() * self.part_bytes;
        let mut strides = vec![1; self.part_shape.len()];
        for dim in (1..self.part_shape.len()).rev() {
            strides[dim - 1] = strides[dim] * self.part_shape[dim] as isize;
        }
        let boxes = leaves.iter().enumerate().map(|(number, leaf)| {
            let (start, extent) = writing.region(&leaf.target);
            TransferBox {
                packed_offset_bytes: number * self.part_bytes,
                packed_size_bytes: self.part_bytes,
                packed_first_elem: 0,
                start,
                extent,
            }
        });
        let transfer =
            Transfer { tail: Tail::plain(self.value.dtype()), packed_strides: strides, boxes: boxes.collect() };
        let mut slab = self.ring.acquire(size_bytes)?;
        let arena = pool::allocate(size_bytes, &self.kernels)?;
        let counters = &writing.call.counters;
        counters.time(Stage::Gather, size_bytes as u64, || gather_on(&self.value, &transfer, &arena, &self.kernels))?;
        self.copies.wait(&self.kernels.record()?)?;
        counters.time(Stage::Download, size_bytes as u64, || slab.download(&arena, 0, &self.copies))?;
        self.downloading.push_back((slab, leaves));
        Ok(())
    }

    /// Waits for the oldest copy and lets the workers encode what came.
    fn hand_over(&mut self, writing: &Arc<Writing>) -> Result<()> {
        let Some((slab, leaves)) = self.downloading.pop_front() else { return Ok(()) };
        let dtype = self.value.dtype();
        let element_bytes = dtype.size_bytes();
        let bytes = slab.into_buffer()?;
        let whole = Layout::contiguous(&self.part_shape, element_bytes, Order::C)?;
        for (number, leaf) in leaves.into_iter().enumerate() {
            let (_, extent) = writing.region(&leaf.target);
            let from = number * self.part_bytes;
            let part = bytes.slice(from..from + self.part_bytes)?;
            let layout = whole.region(&vec![0; extent.len()], &extent, &vec![1; extent.len()])?;
            submit(writing, leaf, LeafValue::Elements(NdBuffer::from_parts(part, dtype, layout)?));
        }
        Ok(())
    }
}
