//! The route of chunks that the host encodes. One launch gathers the elements of many chunks, one copy moves them across the bus,
//! and all cores encode them from pinned memory.
//!
//! Whole chunks are gathered in packed form, through the tail, when the tail loses no information. Parts of chunks, and chunks
//! whose tail rounds or casts, are gathered as plain elements, because the host must compare them or merge them with old
//! elements.

use std::sync::Arc;

use cuzarr_device::internal::pool;
use cuzarr_device::{NdBuffer, Packing, Stream, Tail};

use crate::codec::Program;
use crate::error::Result;
use crate::plan::{DeviceWrite, padded, strides};
use crate::run::report::Stage;
use crate::run::write::downloads::{Downloads, What};
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::parts::PartsOf;
use crate::run::write::route::encode::FrameAt;
use crate::run::write::writing::{Leaf, Writing};

/// Chunks that wait to be gathered, in each form.
pub(crate) struct Gather {
    elements: Gathering,
    packed: Gathering,
    /// Whether packed chunks are so large that their parts come in turn.
    in_parts: bool,
}

impl Gather {
    /// Nothing yet. `part_shape` has the extents of the largest part of a chunk that is written.
    pub(crate) fn new(program: &Program, placement: &DeviceWrite, part_shape: &[u64]) -> Gather {
        let (tail, slab_bytes) = (program.tail(), placement.slab_bytes);
        let part_strides = strides(0..part_shape.len(), part_shape).into_iter().map(|stride| stride as isize).collect();
        let part_bytes = part_shape.iter().product::<u64>() as usize * tail.dtype.size_bytes();
        let chunk_bytes = program.packed_size_bytes();
        let arena_bytes = slab_bytes.max(placement.large_chunks * padded(chunk_bytes));
        Gather {
            elements: Gathering::new(Tail::plain(tail.dtype), GatherTo::Parts(part_strides), part_bytes, slab_bytes),
            packed: Gathering::new(tail.clone(), GatherTo::PackedChunks, chunk_bytes, arena_bytes),
            in_parts: placement.encoding.is_none() && placement.part_bytes.is_some(),
        }
    }

    /// Adds a chunk to the next copy of its form.
    pub(crate) fn add(
        &mut self,
        writing: &Arc<Writing>,
        from: (&NdBuffer, &Stream),
        down: &mut Downloads,
        (leaf, what): (Leaf, What),
    ) -> Result<()> {
        let gathering = self.of(what);
        gathering.leaves.push(leaf);
        if gathering.leaves.len() < gathering.most { Ok(()) } else { self.send(writing, from, down, what) }
    }

    fn of(&mut self, what: What) -> &mut Gathering {
        if what == What::Packed { &mut self.packed } else { &mut self.elements }
    }

    /// Puts the gathering and the copy of the collected chunks of one form on the streams.
    fn send(
        &mut self,
        writing: &Arc<Writing>,
        (value, kernels): (&NdBuffer, &Stream),
        down: &mut Downloads,
        what: What,
    ) -> Result<()> {
        // The arenas that are counted: one of large chunks.
        down.make_room(writing)?;
        let is_large = what == What::Packed && self.in_parts;
        if is_large {
            down.hand_all_over(writing)?;
        }
        let gathering = self.of(what);
        let leaves = std::mem::take(&mut gathering.leaves);
        let padded_bytes = gathering.padded_bytes;
        let total_bytes = leaves.len() * padded_bytes;
        let arena = pool::allocate(total_bytes, kernels)?;
        if gathering.tail.packing == Packing::Bits {
            // No element owns the bits behind the last one.
            kernels.memset(&arena, 0)?;
        }
        let gather = || gathering.gather(writing, &leaves, (value, &arena), kernels);
        writing.call.counters.time_on(Stage::Gather, total_bytes as u64, kernels, gather)?;
        down.copies.wait(&kernels.record()?)?;
        let leaves = leaves.into_iter().enumerate().map(|(number, leaf)| {
            let start = number * padded_bytes;
            Ok(FrameAt { range: start..start + gathering.bytes_of(&leaf)?, leaf, seal: None })
        });
        let leaves = leaves.collect::<Result<_>>()?;
        match is_large {
            true => down.bring_in_parts(writing, &arena, leaves, PartsOf::Packed),
            false => down.bring(writing, &arena, leaves, what),
        }
    }

    /// Sends what was collected.
    pub(crate) fn flush(
        &mut self,
        writing: &Arc<Writing>,
        from: (&NdBuffer, &Stream),
        down: &mut Downloads,
    ) -> Result<()> {
        for what in [What::Packed, What::Elements] {
            if !self.of(what).leaves.is_empty() {
                self.send(writing, from, down, what)?;
            }
        }
        Ok(())
    }

    /// Whether chunks wait for more chunks.
    pub(crate) fn has_leaves(&self) -> bool {
        !self.elements.leaves.is_empty() || !self.packed.leaves.is_empty()
    }

    /// Drops everything, after a failure.
    pub(crate) fn abandon(&mut self) {
        self.elements.leaves.clear();
        self.packed.leaves.clear();
    }
}
