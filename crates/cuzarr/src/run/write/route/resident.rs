//! Chunks that the store keeps in the device's memory: each whole chunk is gathered into memory of its own and handed over, without
//! a way through the host.

use std::sync::Arc;

use cuzarr_device::transfer::gather_on;
use cuzarr_device::{Buffer, NdBuffer, Packing, Stream};

use crate::error::Result;
use crate::plan::Coverage;
use crate::run::report::Stage;
use crate::run::write::gathering::Gathering;
use crate::run::write::object::at_chunk;
use crate::run::write::route::host::{Leaf, Writing};

/// Chunks that are gathered before the store gets them: one wait for all.
const GATHERED: usize = 64;

/// Whole chunks on their way to a store on their device.
pub(crate) struct Resident {
    chunks: Gathering,
    /// A packed chunk of nothing but the fill value, for chunks that hang over the array's edge.
    blank: Option<Buffer>,
    /// What the store gets next.
    gathered: Vec<(Leaf, Buffer)>,
}

impl Resident {
    /// For a value on a device where the store keeps values; `None` where chunks are encoded before.
    pub(crate) fn new(writing: &Writing, value: &NdBuffer, slab_bytes: usize) -> Option<Resident> {
        let program = writing.program.as_ref().filter(|_| writing.call.store.is_on(value.device()))?;
        if !program.stored_is_packed() || program.tail().packing != Packing::Plain {
            return None;
        }
        let strides = writing.plan.packed_strides();
        let chunks = Gathering::new(program.tail().clone(), strides, program.packed_size_bytes(), slab_bytes);
        Some(Resident { chunks, blank: None, gathered: Vec::new() })
    }

    /// Whether a chunk goes this way: one that is an object, and replaced.
    pub(crate) fn takes(&self, leaf: &Leaf) -> bool {
        leaf.chunk.coverage.replaces() && leaf.place.is_object()
    }

    /// Gathers a chunk into memory that the store will keep.
    pub(crate) fn add(&mut self, writing: &Arc<Writing>, value: &NdBuffer, kernels: &Stream, leaf: Leaf) -> Result<()> {
        let (start, extent) = writing.plan.region(&leaf.chunk);
        let part = value.region(&start, &extent, &vec![1; extent.len()])?;
        if !writing.write_empty && part.all_equal_element(&writing.fill, true)? {
            return at_chunk(leaf.place.deliver_buffer(None), &leaf.chunk.name);
        }
        // Of no stream: the store's readers come on streams of their own.
        let chunk = Buffer::empty(value.device(), self.chunks.size_bytes)?;
        if let (true, Some(program)) = (leaf.chunk.coverage != Coverage::Full, &writing.program) {
            if self.blank.is_none() {
                self.blank = Some(Buffer::from_bytes(value.device(), writing.blank(program)?)?);
            }
            if let Some(blank) = &self.blank {
                kernels.d2d(blank, &chunk)?;
            }
        }
        let transfer = self.chunks.transfer(writing, std::slice::from_ref(&leaf));
        let gather = || gather_on(value, &transfer, &chunk, kernels);
        writing.call.counters.time(Stage::Gather, self.chunks.size_bytes as u64, gather)?;
        self.gathered.push((leaf, chunk));
        if self.gathered.len() < GATHERED { Ok(()) } else { self.flush(kernels) }
    }

    /// Gives the store what was gathered, once it is there.
    pub(crate) fn flush(&mut self, kernels: &Stream) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        kernels.synchronize()?;
        for (leaf, chunk) in self.gathered.drain(..) {
            at_chunk(leaf.place.deliver_buffer(Some(&chunk)), &leaf.chunk.name)?;
        }
        Ok(())
    }

    /// Whether chunks wait for the store.
    pub(crate) fn has_leaves(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Forgets everything, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.gathered.clear();
    }
}
