//! Chunks of a value on a device that one launch gathers, one after the other.

use cuzarr_device::{Tail, Transfer, TransferBox};

use crate::plan::padded;
use crate::run::write::writing::{Leaf, Writing};

/// The places of gathered elements.
pub(crate) enum GatherTo {
    /// The part's own packed memory, with these strides.
    Parts(Vec<isize>),
    /// Their places in the packed chunk.
    Chunks,
}

/// Chunks that will be gathered together.
pub(crate) struct Gathering {
    pub(crate) tail: Tail,
    /// Where the elements of a part lie.
    to: GatherTo,
    /// Bytes of one chunk, and its bytes in the slab.
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

    pub(crate) fn transfer(&self, writing: &Writing, leaves: &[Leaf]) -> Transfer {
        let boxes = leaves.iter().enumerate().map(|(number, leaf)| {
            let (start, extent) = writing.plan.region(&leaf.chunk);
            TransferBox {
                packed_offset_bytes: number * self.padded_bytes,
                packed_size_bytes: self.size_bytes,
                packed_first_elem: match &self.to {
                    GatherTo::Parts(_) => 0,
                    GatherTo::Chunks => writing.plan.first_elem(&leaf.chunk),
                },
                start,
                extent,
            }
        });
        let boxes = boxes.collect();
        let (packed_strides, lists) = match &self.to {
            GatherTo::Parts(strides) => (strides.clone(), None),
            GatherTo::Chunks => (writing.spacing.strides.clone(), writing.spacing.lists.clone()),
        };
        Transfer { tail: self.tail.clone(), packed_strides, lists, boxes }
    }
}
