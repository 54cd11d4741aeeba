//! The route of chunks that the store keeps in device memory. Each whole chunk is gathered into its own memory and handed over,
//! without passing through the host.

use std::sync::Arc;

use cuzarr_device::transfer::gather_on;
use cuzarr_device::{Buffer, NdBuffer, Packing, Stream};

use crate::error::Result;
use crate::plan::Coverage;
use crate::run::report::Stage;
use crate::run::write::gathering::Gathering;
use crate::run::write::object::at_chunk;
use crate::run::write::writing::{Leaf, Writing};

/// Chunks that are gathered before the store gets them, so that one wait serves all.
const GATHERED: usize = 64;

/// Whole chunks on their way to a store on their device.
pub(crate) struct Resident {
    chunks: Gathering,
    /// A packed chunk that only holds the fill value, for chunks beyond the array's edge.
    blank: Option<Buffer>,
    /// The chunks that the store gets next.
    gathered: Vec<(Leaf, Buffer)>,
}

impl Resident {
    /// The route for a value on a device where the store keeps values; `None` when chunks must be encoded.
    pub(crate) fn new(writing: &Writing, value: &NdBuffer, slab_bytes: usize) -> Option<Resident> {
        let program = writing.program.as_ref().filter(|_| writing.call.store.is_on(value.device()))?;
        if !program.stored_is_packed() || program.tail().packing != Packing::Plain {
            return None;
        }
        let strides = writing.plan.packed_strides();
        let chunks = Gathering::new(program.tail().clone(), strides, program.packed_size_bytes(), slab_bytes);
        Some(Resident { chunks, blank: None, gathered: Vec::new() })
    }

    /// Whether a chunk takes this route: it must be an object, and be replaced as a whole.
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
        // The memory belongs to no stream, because the store's readers use their own streams.
        let chunk = Buffer::empty(value.device(), self.chunks.size_bytes)?;
        if leaf.chunk.coverage != Coverage::Full {
            if self.blank.is_none() {
                self.blank = Some(Buffer::from_bytes(value.device(), writing.packed_blank()?)?);
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

    /// Waits for the gathered chunks, and gives them to the store.
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

    /// Drops everything, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.gathered.clear();
    }
}
