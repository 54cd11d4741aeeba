//! Chunks of a value on a device that one launch gathers, one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use cuzarr_device::internal::transfer::gather_on;
use cuzarr_device::{Buffer, NdBuffer, Stream, Tail, Transfer, TransferBox};

use crate::error::Result;
use crate::plan::padded;
use crate::run::write::writing::{Leaf, Writing};

/// The places of gathered elements.
pub(crate) enum GatherTo {
    /// The part's own packed memory, with these strides.
    Parts(Vec<isize>),
    /// Their places in chunks of one layout and of one size: packed, or plain.
    Chunks,
    /// Their places in packed chunks of any layout.
    PackedChunks,
}

/// Chunks that will be gathered together.
pub(crate) struct Gathering {
    pub(crate) tail: Tail,
    /// Where the elements of a part lie.
    to: GatherTo,
    /// Bytes of the largest chunk, and the bytes of each in the slab.
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

    /// Bytes of one chunk: those of the largest one, unless chunks differ in shape.
    pub(crate) fn bytes_of(&self, leaf: &Leaf) -> Result<usize> {
        match &self.to {
            GatherTo::Parts(_) | GatherTo::Chunks => Ok(self.size_bytes),
            GatherTo::PackedChunks => Ok(leaf.chunk.layout.program()?.packed_size_bytes()),
        }
    }

    /// The movements of these chunks: one for all that have one layout.
    pub(crate) fn transfers(&self, writing: &Writing, leaves: &[Leaf]) -> Result<Vec<Transfer>> {
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
            let (start, extent) = writing.plan.region(&leaf.chunk);
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

    /// Puts the gathering of these chunks into `packed` on the stream.
    pub(crate) fn gather(
        &self,
        writing: &Writing,
        leaves: &[Leaf],
        (value, packed): (&NdBuffer, &Buffer),
        stream: &Stream,
    ) -> Result<()> {
        let transfers = self.transfers(writing, leaves)?;
        transfers.iter().try_for_each(|transfer| Ok(gather_on(value, transfer, packed, stream)?))
    }
}
