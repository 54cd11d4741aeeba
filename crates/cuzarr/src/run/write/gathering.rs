//! Gathers chunks from the elements of a write in device memory, many chunks by one kernel launch.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr_device::internal::transfer::gather_on;
use cuzarr_device::{Buffer, Stream, Tail, Transfer, TransferBox};

use crate::error::Result;
use crate::plan::padded;
use crate::run::write::elements::Staged;
use crate::run::write::writing::{Leaf, Writing};

/// Where a gather kernel puts the elements that it takes from the caller's memory.
pub(crate) enum GatherTo {
    /// The elements go into contiguous memory that holds only the written part of the chunk, with these strides.
    Parts(Vec<isize>),
    /// The elements go to their positions in whole chunks of one layout and one size: packed, or as plain elements.
    Chunks,
    /// The elements go to their positions in whole packed chunks, whose layouts may differ.
    PackedChunks,
}

/// Chunks that one kernel launch will gather from the caller's memory, and the form in which it writes them.
pub(crate) struct Gathering {
    pub(crate) tail: Tail,
    /// Where a kernel puts the elements of each chunk.
    to: GatherTo,
    /// Size of the largest chunk in bytes; `padded_bytes` is the distance between chunks in the slab.
    pub(crate) size_bytes: usize,
    pub(crate) padded_bytes: usize,
    pub(crate) most: usize,
    pub(crate) leaves: Vec<Leaf>,
}

impl Gathering {
    pub(crate) fn new(tail: Tail, to: GatherTo, size_bytes: usize, slab_bytes: usize) -> Gathering {
        let padded_bytes = padded(size_bytes);
        let most = (slab_bytes / padded_bytes).max(1);
        Gathering { tail, to, size_bytes, padded_bytes, most, leaves: Vec::new() }
    }

    /// Size of one chunk in gathered form, in bytes. If chunks do not differ in shape, this is the size of the largest.
    pub(crate) fn bytes_of(&self, leaf: &Leaf) -> Result<usize> {
        match &self.to {
            GatherTo::Parts(_) | GatherTo::Chunks => Ok(self.size_bytes),
            GatherTo::PackedChunks => Ok(leaf.chunk.layout.program()?.packed_size_bytes()),
        }
    }

    /// Describes for a kernel how it gathers the elements of these chunks. Chunks of one layout share a transfer.
    fn transfers(&self, writing: &Writing, leaves: &[Leaf], staged: &Staged) -> Result<Vec<Transfer>> {
        let mut transfers: Vec<Transfer> = Vec::new();
        let mut numbers = HashMap::new();
        for (place, leaf) in leaves.iter().enumerate() {
            let layout = &leaf.chunk.layout;
            let kind = if let GatherTo::PackedChunks = self.to { Arc::as_ptr(layout) } else { std::ptr::null() };
            let number = *numbers.entry(kind).or_insert_with(|| {
                let (packed_strides, lists) = match &self.to {
                    GatherTo::Parts(strides) => (strides.clone(), None),
                    _ => (writing.spacing.strides(layout).into_owned(), writing.spacing.lists.clone()),
                };
                transfers.push(Transfer { tail: self.tail.clone(), packed_strides, lists, boxes: Vec::new() });
                transfers.len() - 1
            });
            let (start, extent) = staged.region(writing, place, leaf);
            transfers[number].boxes.push(TransferBox {
                packed_offset_bytes: place * self.padded_bytes,
                packed_size_bytes: self.bytes_of(leaf)?,
                packed_first_elem: match &self.to {
                    GatherTo::Parts(_) => 0,
                    _ => writing.plan.first_elem(&leaf.chunk),
                },
                start,
                extent,
            });
        }
        Ok(transfers)
    }

    /// Enqueues on `stream` a kernel that gathers the elements of these chunks from `staged` into `packed`.
    pub(crate) fn gather(
        &self,
        writing: &Writing,
        leaves: &[Leaf],
        staged: &Staged,
        packed: &Buffer,
        stream: &Stream,
    ) -> Result<()> {
        let transfers = self.transfers(writing, leaves, staged)?;
        transfers.iter().try_for_each(|transfer| Ok(gather_on(&staged.value, transfer, packed, stream)?))
    }
}
