//! The write route of chunks in device memory that the host encodes. One launch gathers the elements of many chunks,
//! one copy moves them across the bus, and all cores encode them from pinned memory.
//!
//! Whole chunks are gathered in packed form, through the program's tail, if the tail loses no information. Parts of
//! chunks, and chunks whose tail rounds or casts, are gathered as plain elements. The host must compare these, or merge
//! them with old elements.

use cuzarr_device::internal::pool;
use cuzarr_device::{Packing, Tail};

use crate::codec::Program;
use crate::error::Result;
use crate::plan::{DeviceWrite, padded, strides};
use crate::run::report::Stage;
use crate::run::write::downloads::{Outgoing, What};
use crate::run::write::gathering::{GatherTo, Gathering};
use crate::run::write::parts::PartsOf;
use crate::run::write::route::encode::FrameAt;
use crate::run::write::writing::Leaf;

/// Chunks that wait to be gathered into a slab for the host: packed, and as plain elements.
pub(crate) struct Gather {
    elements: Gathering,
    packed: Gathering,
    /// Whether packed chunks are so large that they are written in parts.
    in_parts: bool,
}

impl Gather {
    /// Makes the queue of chunks that wait to be gathered for the host, still empty. `part_shape` has the extents of
    /// the largest part of a chunk that is written.
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

    /// Adds a chunk, to be gathered as plain elements or in packed form, as `what` says. It is copied with the next
    /// chunks of the same form.
    pub(crate) fn add(&mut self, outgoing: &mut Outgoing<'_>, leaf: Leaf, what: What) -> Result<()> {
        let gathering = self.of(what);
        gathering.leaves.push(leaf);
        if gathering.leaves.len() < gathering.most { Ok(()) } else { self.send(outgoing, what) }
    }

    fn of(&mut self, what: What) -> &mut Gathering {
        if what == What::Packed { &mut self.packed } else { &mut self.elements }
    }

    /// Enqueues a kernel that gathers the waiting chunks of the form `what`, and the copy of their bytes to the host.
    fn send(&mut self, outgoing: &mut Outgoing<'_>, what: What) -> Result<()> {
        let Outgoing { writing, elements, stream, down } = outgoing;
        // Memory is reserved for only one arena of large chunks.
        down.make_room(writing)?;
        let is_large = what == What::Packed && self.in_parts;
        if is_large {
            down.hand_all_over(writing)?;
        }
        let gathering = self.of(what);
        let leaves = std::mem::take(&mut gathering.leaves);
        let padded_bytes = gathering.padded_bytes;
        let total_bytes = leaves.len() * padded_bytes;
        let arena = pool::allocate(total_bytes, stream)?;
        if gathering.tail.packing == Packing::Bits {
            // Cleared, because no element owns the bits behind the last one.
            stream.memset(&arena, 0)?;
        }
        let staged = elements.stage(writing, &leaves, stream)?;
        let gather = || gathering.gather(writing, &leaves, &staged, &arena, stream);
        writing.call.counters.time_on(Stage::Gather, total_bytes as u64, stream, gather)?;
        down.copies.wait(&stream.record()?)?;
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

    /// Gathers the waiting chunks of both forms, and copies their bytes to the host.
    pub(crate) fn flush(&mut self, outgoing: &mut Outgoing<'_>) -> Result<()> {
        for what in [What::Packed, What::Elements] {
            if !self.of(what).leaves.is_empty() {
                self.send(outgoing, what)?;
            }
        }
        Ok(())
    }

    /// Whether chunks wait to be gathered.
    pub(crate) fn has_leaves(&self) -> bool {
        !self.elements.leaves.is_empty() || !self.packed.leaves.is_empty()
    }

    /// Drops all waiting chunks, because the write has failed.
    pub(crate) fn abandon(&mut self) {
        self.elements.leaves.clear();
        self.packed.leaves.clear();
    }
}
