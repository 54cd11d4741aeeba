//! Where the reads and units of a batch lie in its slab.

use crate::plan::{Batch, Read};

/// Pieces of a slab begin at multiples of this.
pub(crate) const PIECE_ALIGNMENT_BYTES: usize = 256;
/// Elements of any type are aligned when packed bytes begin at a multiple of this.
const ELEMENT_ALIGNMENT_BYTES: usize = 16;

/// Where reads and units lie in a slab, and how large it must be.
pub(crate) struct SlabPlan {
    pub(crate) piece_bytes: Vec<usize>,
    /// Piece and offset in it, for each unit.
    pub(crate) units: Vec<(usize, usize)>,
    pub(crate) total_bytes: usize,
}

impl SlabPlan {
    pub(crate) fn new(batch: &Batch, stored_is_packed: bool) -> SlabPlan {
        let mut plan = SlabPlan { piece_bytes: Vec::new(), units: Vec::new(), total_bytes: 0 };
        for read in &batch.reads {
            let spans: Option<Vec<usize>> = stored_is_packed.then(|| in_place(batch, read)).flatten();
            match spans {
                Some(offsets) => {
                    let end = offsets.iter().zip(read.units.clone());
                    let size = end.map(|(offset, unit)| offset + batch.units[unit].packed_size_bytes).max();
                    plan.units.extend(offsets.iter().map(|&offset| (plan.piece_bytes.len(), offset)));
                    plan.push(size.unwrap_or(0));
                }
                None => {
                    for unit in read.units.clone() {
                        plan.units.push((plan.piece_bytes.len(), 0));
                        plan.push(batch.units[unit].packed_size_bytes);
                    }
                }
            }
        }
        plan
    }

    fn push(&mut self, size_bytes: usize) {
        self.total_bytes = self.total_bytes.next_multiple_of(PIECE_ALIGNMENT_BYTES) + size_bytes;
        self.piece_bytes.push(size_bytes);
    }
}

/// Offsets of a read's units when they can stay where the read brings them: the whole of it, or aligned parts.
pub(crate) fn in_place(batch: &Batch, read: &Read) -> Option<Vec<usize>> {
    let offsets: Vec<usize> =
        read.units.clone().map(|unit| batch.unit_span(read, unit).map_or(0, |(from, _)| from)).collect();
    let aligned = offsets.iter().all(|offset| offset.is_multiple_of(ELEMENT_ALIGNMENT_BYTES));
    aligned.then_some(offsets)
}
