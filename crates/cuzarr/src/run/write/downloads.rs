//! Copies bytes of a write from the device to the host, slab by slab, and passes them to threads that encode or store
//! them. If the store writes parts, a large object comes part by part, in turn with others
//! (`crate::run::write::parts`). So no slab must hold a whole object.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cuzarr_device::internal::{Slab, SlabRing};
use cuzarr_device::{Buffer, DType, Device, Layout, NdBuffer, Order, Stream};

use crate::error::Result;
use crate::plan::DeviceWrite;
use crate::run::report::Stage;
use crate::run::write::elements::Elements;
use crate::run::write::parts::{Parts, PartsOf};
use crate::run::write::route::encode::FrameAt;
use crate::run::write::route::host::submit;
use crate::run::write::writing::{LeafValue, Writing};

/// The elements of a write, the CUDA stream and the slabs with which a write route copies chunks from the device to the
/// host.
pub(crate) struct Outgoing<'a> {
    pub(crate) writing: &'a Arc<Writing>,
    pub(crate) elements: &'a Elements,
    /// The stream on which kernels gather the elements of chunks.
    pub(crate) stream: &'a Stream,
    pub(crate) down: &'a mut Downloads,
}

/// Slabs whose bytes are being copied from the device to the host, oldest first.
pub(crate) struct Downloads {
    pub(crate) ring: SlabRing,
    pub(crate) copies: Stream,
    under_way: VecDeque<Download>,
    /// Number of slabs that may still be on their way from the device when the next slab is to be filled.
    most: usize,
    /// An object with more bytes is written in parts of this size; `None` if all objects are written whole.
    part_bytes: Option<usize>,
    /// Shape of the largest part of a chunk that is written, without dropped dimensions; `dtype` is the type of its
    /// elements.
    part_shape: Vec<usize>,
    dtype: DType,
}

/// A slab to which bytes are being copied from the device, and a description of the bytes.
struct Download {
    slab: Slab,
    content: Content,
}

enum Content {
    /// Whole chunks, each with its range of bytes in the slab.
    Chunks(Vec<FrameAt>, What),
    /// Parts of large objects, in the order in which they are written.
    Parts(Vec<(Arc<Parts>, Range<usize>)>),
}

/// The form in which chunks of a write are copied to the host: plain elements, packed, or encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Plain elements, of those parts of chunks that the write replaces.
    Elements,
    /// Whole chunks in packed form, which the host encodes.
    Packed,
    /// Frames: whole chunks that kernels encoded.
    Frames,
}

impl Downloads {
    pub(crate) fn new(
        writing: &Writing,
        placement: &DeviceWrite,
        device: Device,
        part_shape: Vec<usize>,
        dtype: DType,
    ) -> Result<Downloads> {
        let slab_bytes = placement.slab_bytes;
        Ok(Downloads {
            ring: SlabRing::new(device, slab_bytes, slab_bytes.saturating_mul(placement.slabs))?,
            copies: writing.call.streams.take(device)?,
            under_way: VecDeque::new(),
            most: placement.downloads,
            part_bytes: placement.part_bytes,
            part_shape,
            dtype,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Passes the bytes of the oldest slabs on to threads that encode or store them, until another slab may be filled.
    pub(crate) fn make_room(&mut self, writing: &Arc<Writing>) -> Result<()> {
        while self.under_way.len() > self.most {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Waits for all copies to the host, and passes their chunks to the threads that encode or store them.
    pub(crate) fn hand_all_over(&mut self, writing: &Arc<Writing>) -> Result<()> {
        while !self.under_way.is_empty() {
            self.hand_over(writing)?;
        }
        Ok(())
    }

    /// Brings frames to the host that lie one after the other in device memory. Large frames come in parts; a slab
    /// takes as many of the others as fit.
    pub(crate) fn bring_frames(&mut self, writing: &Arc<Writing>, buffer: &Buffer, frames: Vec<FrameAt>) -> Result<()> {
        let is_large = |frame: &FrameAt| self.part_bytes.is_some_and(|part_bytes| frame.range.len() > part_bytes);
        let (large, frames): (Vec<_>, Vec<_>) = frames.into_iter().partition(is_large);
        self.bring_in_parts(writing, buffer, large, PartsOf::Frame)?;
        let mut frames = frames.into_iter().peekable();
        while let Some(first) = frames.peek() {
            let (start, slab_bytes) = (first.range.start, self.ring.slab_bytes());
            let (mut together, mut end) = (Vec::new(), start);
            while let Some(frame) = frames.next_if(|frame| frame.range.end - start <= slab_bytes) {
                end = frame.range.end;
                together.push(FrameAt { range: frame.range.start - start..end - start, ..frame });
            }
            self.bring(writing, &buffer.slice(start..end)?, together, What::Frames)?;
        }
        Ok(())
    }

    /// Enqueues a copy of chunks from device memory to a slab.
    pub(crate) fn bring(
        &mut self,
        writing: &Arc<Writing>,
        bytes: &Buffer,
        leaves: Vec<FrameAt>,
        what: What,
    ) -> Result<()> {
        self.make_room(writing)?;
        let mut slab = self.ring.acquire(bytes.size_bytes())?;
        self.copy(writing, bytes, &mut slab, 0)?;
        self.under_way.push_back(Download { slab, content: Content::Chunks(leaves, what) });
        Ok(())
    }

    /// Brings large objects to the host part by part, with parts of several objects in turn, so that several are
    /// written at once.
    pub(crate) fn bring_in_parts(
        &mut self,
        writing: &Arc<Writing>,
        bytes: &Buffer,
        leaves: Vec<FrameAt>,
        of: PartsOf,
    ) -> Result<()> {
        let part_bytes = self.part_bytes.unwrap_or(usize::MAX);
        let object = |FrameAt { leaf, range, seal }| (Arc::new(Parts::new(leaf, of, range.len(), seal)), range);
        let mut objects: VecDeque<_> = leaves.into_iter().map(object).collect();
        while !objects.is_empty() {
            self.make_room(writing)?;
            let mut slab = self.ring.acquire(0)?;
            let (mut parts, mut end) = (Vec::new(), 0);
            while let Some((object, Range { start, end: last })) = objects.pop_front() {
                let size_bytes = part_bytes.min(last - start);
                if end + size_bytes > slab.size_bytes() {
                    objects.push_front((object, start..last));
                    break;
                }
                self.copy(writing, &bytes.slice(start..start + size_bytes)?, &mut slab, end)?;
                parts.push((Arc::clone(&object), end..end + size_bytes));
                end += size_bytes;
                if start + size_bytes < last {
                    objects.push_back((object, start + size_bytes..last));
                }
            }
            self.under_way.push_back(Download { slab, content: Content::Parts(parts) });
        }
        Ok(())
    }

    /// Enqueues a copy of `bytes` from device memory into a slab, from byte `offset_bytes` of the slab on.
    fn copy(&self, writing: &Writing, bytes: &Buffer, slab: &mut Slab, offset_bytes: usize) -> Result<()> {
        let (size_bytes, copies) = (bytes.size_bytes() as u64, &self.copies);
        let copy = || slab.download(bytes, offset_bytes, copies);
        writing.call.counters.time_on(Stage::Download, size_bytes, copies, copy)
    }

    /// Waits for the oldest copy, and gives the chunks of its slab to the threads, to encode and store them.
    pub(crate) fn hand_over(&mut self, writing: &Arc<Writing>) -> Result<()> {
        let Some(Download { slab, content }) = self.under_way.pop_front() else { return Ok(()) };
        let bytes = slab.into_buffer()?;
        let (leaves, what) = match content {
            Content::Chunks(leaves, what) => (leaves, what),
            Content::Parts(parts) => {
                return parts.into_iter().try_for_each(|(parts, range)| {
                    parts.add(writing, bytes.slice(range)?);
                    Ok(())
                });
            }
        };
        let whole = Layout::contiguous(&self.part_shape, self.dtype.size_bytes(), Order::C)?;
        for FrameAt { leaf, range, seal } in leaves {
            let part = bytes.slice(range)?;
            let value = match what {
                What::Packed => LeafValue::Packed(part),
                What::Frames => LeafValue::Frame(part, seal),
                What::Elements => {
                    let (_, extent) = writing.plan.region(&leaf.chunk);
                    let layout = whole.region(&vec![0; extent.len()], &extent, &vec![1; extent.len()])?;
                    LeafValue::Elements(NdBuffer::from_parts(part, self.dtype, layout)?.reader()?)
                }
            };
            submit(writing, leaf, value);
        }
        Ok(())
    }

    /// Drops the slabs whose chunks were not yet passed on to threads, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.under_way.clear();
    }
}
