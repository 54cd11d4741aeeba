//! Writes elements that lie in device memory, or that a device encodes. Each chunk takes the route that its placement names (`crate::plan`). All
//! routes share the slabs in which bytes cross the bus (`crate::run::write::downloads`).

use std::sync::Arc;
use std::sync::mpsc::Sender;

use cuzarr_device::{Device, NdBuffer, Stream};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::{ChunkRoute, Coverage, DeviceEncoding, DeviceWrite};
use crate::run::schedule::budget::{Cost, Held};
use crate::run::write::downloads::{Downloads, Outgoing, What};
use crate::run::write::elements::Elements;
use crate::run::write::event::Event;
use crate::run::write::route::gather::Gather;
use crate::run::write::route::host::submit;
use crate::run::write::route::kernels::Kernels;
use crate::run::write::route::resident::Resident;
use crate::run::write::writing::{Leaf, LeafValue, Writing};

/// Brings the elements of a write from or through device memory to the store, each chunk on its route.
pub(crate) struct DeviceSource {
    elements: Elements,
    placement: DeviceWrite,
    stream: Stream,
    down: Downloads,
    gather: Gather,
    /// The write route for chunks that kernels encode; `None` if the host encodes all chunks.
    kernels: Option<Kernels>,
    resident: Resident,
    /// Keeps memory reserved for the slabs and for the device memory that chunks are gathered in.
    _held: Held,
}

impl DeviceSource {
    /// Prepares a write whose chunks go through `device`. The elements are in its memory or on the host. The coordinator
    /// hears by `events` of old chunks that were fetched.
    pub(crate) fn new(
        writing: &Writing,
        value: NdBuffer,
        device: Device,
        placement: DeviceWrite,
        events: &Sender<Event>,
    ) -> Result<DeviceSource> {
        let (call, program) = (&writing.call, writing.plan.source.layout().program()?);
        let (dtype, elements) = (value.dtype(), Elements::new(writing, value, device)?);
        let slabs = |count: usize| (placement.slab_bytes as u64).saturating_mul(count as u64);
        let pinned = slabs(placement.slabs) + elements.pinned_bytes();
        let old_bytes = placement.encoding.as_ref().map_or(0, DeviceEncoding::old_pinned_bytes);
        // Old chunks need no pinned memory of their own where there is little.
        let old_bytes = if pinned.saturating_add(old_bytes as u64) <= call.limit_bytes { old_bytes } else { 0 };
        let cost = Cost {
            host: 0,
            pinned: pinned + old_bytes as u64,
            device: slabs(placement.downloads + 1) + placement.device_bytes,
        };
        let held = call.memory.take(cost, call.limit_bytes, &call.cancellation)?;
        let kernels = placement.encoding.as_ref();
        let kernels = kernels.map(|encoding| {
            Kernels::new(writing, program, encoding, (placement.keeps_frames, old_bytes), (device, events))
        });
        let kernels = kernels.transpose()?;
        let part_shape = writing.plan.largest_part();
        let extents = part_shape.iter().map(|&extent| extent as usize).collect();
        Ok(DeviceSource {
            kernels,
            stream: call.streams.take(device)?,
            down: Downloads::new(writing, &placement, device, extents, dtype)?,
            gather: Gather::new(program, &placement, &part_shape),
            resident: Resident::new(program, placement.slab_bytes),
            elements,
            placement,
            _held: held,
        })
    }

    /// Adds a chunk to its route: to be encoded by kernels or by the host, or to be passed to a store on the device.
    pub(crate) fn add(&mut self, writing: &Arc<Writing>, leaf: Leaf) -> Result<()> {
        let route = self.placement.route(&leaf.chunk.layout, leaf.chunk.coverage, leaf.place.is_object());
        let (elements, stream, down) = (&self.elements, &self.stream, &mut self.down);
        if let (ChunkRoute::Packed | ChunkRoute::Elements, Some(value)) = (route, elements.on_host()) {
            let (start, extent) = writing.plan.region(&leaf.chunk);
            submit(writing, leaf, LeafValue::Elements(value.region(&start, &extent)?));
            return Ok(());
        }
        let mut outgoing = Outgoing { writing, elements, stream, down };
        match (route, &mut self.kernels) {
            (ChunkRoute::Resident, _) => self.resident.add(writing, elements, stream, leaf),
            (ChunkRoute::Kernels, Some(kernels)) => kernels.add(&mut outgoing, leaf),
            (ChunkRoute::Merge, Some(kernels)) => kernels.merge(&mut outgoing, leaf),
            (ChunkRoute::Packed, _) => self.gather.add(&mut outgoing, leaf, What::Packed),
            (ChunkRoute::Elements, _) => self.gather.add(&mut outgoing, leaf, What::Elements),
            (ChunkRoute::Kernels | ChunkRoute::Merge, None) => {
                Err(Error::new(ErrorKind::DeviceFailed, "a chunk was placed on kernels that the write does not have"))
            }
        }
    }

    /// Passes on the chunks whose old elements were fetched, to be merged and encoded by kernels.
    pub(crate) fn merge_fetched(&mut self, writing: &Arc<Writing>) -> Result<()> {
        let (elements, stream, down) = (&self.elements, &self.stream, &mut self.down);
        let mut outgoing = Outgoing { writing, elements, stream, down };
        self.kernels.as_mut().map_or(Ok(()), |kernels| kernels.merge_fetched(&mut outgoing))
    }

    /// Sends off every chunk that still waits in device memory: to the threads that encode or store it, or to the
    /// store.
    pub(crate) fn flush(&mut self, writing: &Arc<Writing>) -> Result<()> {
        self.resident.flush(&self.stream)?;
        let (elements, stream, down) = (&self.elements, &self.stream, &mut self.down);
        let mut outgoing = Outgoing { writing, elements, stream, down };
        if let Some(kernels) = &mut self.kernels {
            kernels.flush(&mut outgoing)?;
        }
        self.gather.flush(&mut outgoing)?;
        self.down.hand_all_over(writing)
    }

    /// Passes the oldest chunks on to threads that encode or store them: those in flight, else those that wait to be
    /// gathered. Returns false if there are none.
    pub(crate) fn advance(&mut self, writing: &Arc<Writing>) -> Result<bool> {
        if !self.down.is_empty() {
            self.down.hand_over(writing)?;
            return Ok(true);
        }
        let (elements, stream, down) = (&self.elements, &self.stream, &mut self.down);
        let mut outgoing = Outgoing { writing, elements, stream, down };
        if let Some(kernels) = &mut self.kernels
            && kernels.advance(&mut outgoing)?
        {
            return Ok(true);
        }
        let encoding = self.kernels.as_ref().is_some_and(Kernels::has_leaves);
        let waiting = encoding || self.resident.has_leaves() || self.gather.has_leaves();
        self.flush(writing)?;
        Ok(waiting)
    }

    /// Number of chunks that kernels encode at a time, in all batches together.
    pub(crate) fn chunks_wanted(&self) -> usize {
        self.placement.chunks_wanted()
    }

    /// Whether kernels encode chunks of this `coverage`, which says whether the write replaces all elements of a chunk
    /// or only some.
    pub(crate) fn encodes(&self, coverage: Coverage) -> bool {
        self.placement.encodes(coverage)
    }

    /// Whether chunks of this `coverage` (replaced fully or in part) go to the store from slabs, without other host
    /// memory.
    pub(crate) fn passes_by(&self, coverage: Coverage) -> bool {
        self.placement.passes_by(coverage)
    }

    /// Ends the write after its last chunk: counts the time that the device took, and returns the CUDA streams.
    pub(crate) fn finish(&mut self, writing: &Writing) -> Result<()> {
        writing.call.counters.settle()?;
        if let Some(kernels) = &mut self.kernels {
            kernels.give_back(writing);
        }
        // All work on these streams has ended.
        [&self.down.copies, &self.stream].into_iter().for_each(|stream| writing.call.streams.give_back(stream));
        Ok(())
    }

    /// Drops the chunks that were not yet passed on to threads, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.gather.abandon();
        self.down.abandon();
        self.resident.abandon();
        self.kernels.iter_mut().for_each(Kernels::abandon);
    }
}
